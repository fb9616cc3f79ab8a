"""Measures of all predictions together: F1, precision and recall at k, break-even point, ROC area, order of ranked rows.

T. Joachims, A Support Vector Method for Multivariate Performance Measures, ICML 2005, and Training Linear SVMs in Linear Time,
KDD 2006. No example has a hinge of its own here: the problem is one joint example, whose labeling is the classes, or the order, of
all rows, and whose oracle is a sort.
"""

from __future__ import annotations

from maxmargin.measures.counts import CountMeasure, is_measure
from maxmargin.measures.pairs import PairMeasure
from maxmargin.measures.problem import MeasureProblem

__all__ = ["CountMeasure", "MeasureProblem", "PairMeasure", "is_measure"]

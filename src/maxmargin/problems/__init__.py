"""Problems: the examples as arrays, and the local scores that solvers and engines read."""

from maxmargin.problems.chains import chain_problem
from maxmargin.problems.factor_graphs import FactorGraphs, Scores
from maxmargin.problems.features import Features
from maxmargin.problems.graphs import graph_problem
from maxmargin.problems.multi_class import binary_problem, multi_class_problem
from maxmargin.problems.multi_label import label_edges, multi_label_problem
from maxmargin.problems.templates import Structure, Template

__all__ = [
    "FactorGraphs",
    "Features",
    "Scores",
    "Structure",
    "Template",
    "binary_problem",
    "chain_problem",
    "graph_problem",
    "label_edges",
    "multi_class_problem",
    "multi_label_problem",
]

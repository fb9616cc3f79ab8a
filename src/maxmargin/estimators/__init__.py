"""Estimators in the style of scikit-learn, one file a task; `base` holds what they share."""

from maxmargin.estimators.binary import BinarySVM
from maxmargin.estimators.chain import ChainSVM
from maxmargin.estimators.graph import GraphSVM
from maxmargin.estimators.loading import load
from maxmargin.estimators.multi_class import MultiClassSVM
from maxmargin.estimators.multi_label import MultiLabelSVM
from maxmargin.estimators.parser import ParserSVM
from maxmargin.estimators.ranking import RankingSVM
from maxmargin.estimators.structured import StructuredSVM

__all__ = [
    "BinarySVM",
    "ChainSVM",
    "GraphSVM",
    "MultiClassSVM",
    "MultiLabelSVM",
    "ParserSVM",
    "RankingSVM",
    "StructuredSVM",
    "load",
]

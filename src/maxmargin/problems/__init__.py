"""Problems: the examples as arrays, and the local scores that solvers and engines read."""

from maxmargin.problems.chains import chain_problem
from maxmargin.problems.factor_graphs import FactorGraphs, Scores
from maxmargin.problems.features import Features
from maxmargin.problems.graphs import graph_problem
from maxmargin.problems.multi_class import binary_problem, multi_class_problem
from maxmargin.problems.multi_label import label_edges, multi_label_problem
from maxmargin.problems.structured import (
    at_least,
    at_least_one,
    at_most,
    cardinality,
    chain,
    custom,
    exactly,
    exactly_one,
    tree,
)
from maxmargin.problems.superpixels import nearest_superpixels, two_level_graph
from maxmargin.problems.templates import Structure, Template

__all__ = [
    "FactorGraphs",
    "Features",
    "Scores",
    "Structure",
    "Template",
    "at_least",
    "at_least_one",
    "at_most",
    "binary_problem",
    "cardinality",
    "chain",
    "chain_problem",
    "custom",
    "exactly",
    "exactly_one",
    "graph_problem",
    "label_edges",
    "multi_class_problem",
    "multi_label_problem",
    "nearest_superpixels",
    "tree",
    "two_level_graph",
]

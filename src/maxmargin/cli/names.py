"""Names that ``--help`` lists and that it must not import anything heavy to know; a test compares them with the library's."""

from __future__ import annotations

TASKS = ("binary", "multi-class", "multi-label", "chain", "graph", "parser")
SOLVERS = (
    "bcfw",
    "bundle",
    "dlpw",
    "excessive-gap",
    "exponentiated-gradient",
    "extragradient",
    "frank-wolfe",
    "lbfgs",
    "n-slack",
    "one-slack",
    "perceptron",
    "smo",
    "soft-bcfw",
    "subgradient",
)
ENGINES = (
    "alpha_expansion",
    "branch_and_bound",
    "combined",
    "dual_decomposition",
    "exhaustive",
    "graph_cut",
    "greedy",
    "junction_tree",
    "linear_program",
    "loopy_bp",
    "trees",
)
OBJECTIVES = ("margin", "log")
#: Without "precomputed", which a data file has no use for.
KERNELS = ("linear", "rbf", "poly")

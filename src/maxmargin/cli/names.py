"""Names that ``--help`` lists and that it must not import anything heavy to know; a test compares them with the library's."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping

from maxmargin.errors import did_you_mean

TASKS = ("binary", "multi-class", "multi-label", "chain", "graph", "parser", "ranking")
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
    "rho_approximate",
    "trees",
)
OBJECTIVES = ("margin", "log", "softmax-margin")
EDGES = ("full", "tree", "none")
EDGE_WEIGHTS = ("full", "potts")
#: What ``--scale`` may be, for the estimators' parameter of that name.
SCALES = ("auto", "yes", "no")
#: Settings of `TextFeatures`.
FEATURES = ("chunking", "tagging", "words")
#: Formats of data files, also by other names that they have.
FORMATS = {
    **{
        name: name
        for name in (
            "arff", "conll", "conllu", "images", "json", "libsvm", "npz", "packed", "sentences", "svm-hmm", "table", "trees"
        )
    },
    "csv": "table", "tsv": "table", "parquet": "table", "jsonl": "json", "spacy": "json",
    "svmlight": "libsvm", "svm-light": "libsvm", "svmhmm": "svm-hmm", "conll-u": "conllu",
}  # fmt: skip
#: Without "precomputed", which a data file has no use for.
KERNELS = ("linear", "rbf", "poly")


def one_of(noun: str, names: Iterable[str] | Mapping[str, str]) -> Callable[[str], str]:
    """For argparse: an option that is one of some names, or the name that another stands for."""
    meanings = dict(names) if isinstance(names, Mapping) else {name: name for name in names}

    def chosen(text: str) -> str:
        if text not in meanings:
            raise argparse.ArgumentTypeError(
                f"{text!r} is no {noun}; choose from {', '.join(meanings)}.{did_you_mean(text, meanings)}"
            )
        return meanings[text]

    return chosen

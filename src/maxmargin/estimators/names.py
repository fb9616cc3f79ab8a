"""The names that parameters may have, as types: a type checker finds ``solver="bcwf"``. A test compares them with what there is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

from maxmargin.inference import Engine

SolverName = Literal[
    "auto", "bcfw", "bundle", "dlpw", "excessive-gap", "exponentiated-gradient", "extragradient", "frank-wolfe", "lbfgs", "n-slack",
    "one-slack", "perceptron", "smo", "soft-bcfw", "subgradient",
]  # fmt: skip
EngineName = Literal[
    "auto", "alpha_expansion", "branch_and_bound", "combined", "dual_decomposition", "exhaustive", "graph_cut", "greedy",
    "junction_tree", "linear_program", "loopy_bp", "rho_approximate", "trees",
]  # fmt: skip
Objective = Literal["margin", "log", "softmax-margin"]
Auto = Literal["auto"]
#: A value, several to choose from, or whatever the data says.
COption = float | Sequence[float] | Auto


class SolverObject(Protocol):
    """A solver with options of its own."""

    def solve(self, problem: Any, *arguments: Any, **options: Any) -> Any:
        """Train on a problem."""
        ...


SolverOption = SolverName | SolverObject
InferenceOption = EngineName | Engine

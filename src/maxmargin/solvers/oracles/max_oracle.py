"""Max-oracles: the one question that solvers on any problem ask.

The hinge of example m is a maximum over planes (problems/statistics.py), and the mean over examples is one again:

    H_m(w) = max_y ell_m(y) - w . psi_m(y),      1/M sum_m weight_m H_m(w) = ell - w . psi
    psi = 1/M sum_m weight_m psi_m,              ell = 1/M sum_m weight_m ell_m     at the planes of largest slope

A `MaxOracle` gives such a plane of all examples (`mean_plane`), or those of some (`planes`). The weights are flat, shape (d,), in
this interface; planes are a `MeanPlane` (planes/mean_plane.py) or CSR one by one, both float64; example weights have mean 1. No
plane is ever worse than that of the truth, psi = 0 and ell = 0. Every plane is one of the problem that the certificate names; the
hinges are bounds from above where the engine gives only such, and may then exceed ell - w . psi.

There is one for factor graphs (`GraphOracle`, `SlackOracle` for slack rescaling, `ZeroOneOracle` for the zero-one loss), one for
models written in Python (`PythonOracle`), and one for parsing (parsing/oracle.py).
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from maxmargin.errors import OptionError
from maxmargin.inference import Engine
from maxmargin.parallel.threads import pause
from maxmargin.problems.factor_graphs import FactorGraphs
from maxmargin.problems.python_problem import PythonProblem
from maxmargin.solvers.oracles.graph_oracle import GraphOracle, or_truth
from maxmargin.solvers.oracles.slack_rescaling import SlackOracle
from maxmargin.solvers.oracles.zero_one import ZeroOneOracle
from maxmargin.solvers.planes.mean_plane import MeanPlane

#: Examples that a user's batch method is given at a time.
_BATCH = 256


class MaxOracle(Protocol):
    """What a solver needs of a problem that it knows by its planes alone."""

    n_examples: int
    n_weights: int
    #: (M,), of mean 1.
    weight: NDArray[np.float64]
    #: "exact", "relaxed" or "none": what the answers are worth.
    certificate: str
    #: Who answers, and why.
    name: str
    reason: str

    def mean_plane(self, w: NDArray[np.float64], threads: int) -> MeanPlane:
        """The mean of the planes of largest slope at w, over all examples; the bits do not depend on the threads."""

    def planes(self, w: NDArray[np.float64], examples: NDArray[np.int64]) -> tuple[Any, NDArray[np.float64]]:
        """The planes of largest slope at w of some examples, in their order: psi (n, d) in CSR, and ell (n,)."""


def oracle_of(
    problem: Any, engine: str | Engine = "auto", loss_augmented: bool = True, rescaling: str = "margin"
) -> MaxOracle:
    """The max-oracle of a problem.

    Parameters
    ----------
    problem : FactorGraphs, PythonProblem, or an object with a method ``max_oracle(loss_augmented)``
        For slack rescaling, of which its attribute ``rescales_slack`` says that it can, ``max_oracle(loss_augmented, rescaling)``.
    inference : "auto", str or engine
        For factor graphs: the inference engine that answers.
    loss_augmented : bool
        False leaves the task loss out: the planes are those of predictions.
    rescaling : "margin" or "slack"
        With "slack" the hinge is the largest ``loss (1 + w . phi - w . phi of the truth)`` (slack_rescaling.py).
    """
    if isinstance(problem, FactorGraphs):
        of_graphs = graph_oracle_of(problem, engine, loss_augmented, rescaling)
        of_graphs.compile()
        return of_graphs
    if engine != "auto":
        raise OptionError(f"inference={engine!r} is for factor graphs; this problem has an oracle of its own.")
    if isinstance(problem, PythonProblem):
        return PythonOracle(problem, loss_augmented, rescaling)
    if rescaling == "slack" and not getattr(problem, "rescales_slack", False):
        raise OptionError(f"A {type(problem).__name__} has no oracle for slack rescaling; use margin rescaling.")
    if hasattr(problem, "max_oracle"):
        more = {"rescaling": rescaling} if rescaling != "margin" else {}
        found: MaxOracle = problem.max_oracle(loss_augmented, **more)
        return found
    raise OptionError(f"A {type(problem).__name__} has no max-oracle, which this solver needs.")


def graph_oracle_of(
    problem: FactorGraphs, engine: str | Engine = "auto", loss_augmented: bool = True, rescaling: str = "margin"
) -> GraphOracle:
    """The max-oracle of factor graphs, by their loss and the rescaling."""
    if problem.zero_one and loss_augmented:
        return ZeroOneOracle(problem, engine)
    return (GraphOracle if rescaling == "margin" else SlackOracle)(problem, engine, loss_augmented)


class PythonOracle:
    """The methods of a model that a user wrote, as a max-oracle."""

    def __init__(self, problem: PythonProblem, loss_augmented: bool = True, rescaling: str = "margin") -> None:
        self.problem, self.loss_augmented, self.rescaling = problem, loss_augmented, rescaling
        if rescaling == "slack":
            problem.check_slack_rescaling()
        self.n_examples, self.n_weights, self.weight = problem.n_examples, problem.n_weights, problem.weight
        self.certificate = "exact" if problem.exact else "none"
        self.name = type(problem.model).__name__
        self.reason = "as its author promises" if problem.exact else "its author promises nothing (exact = False)"

    def mean_plane(self, w: NDArray[np.float64], threads: int) -> MeanPlane:
        """The mean of the planes of largest slope at w; Python code runs in one thread."""
        psi, ell, hinges = np.zeros(self.n_weights), 0.0, np.empty(self.n_examples)
        for first in range(0, self.n_examples, _BATCH):
            pause()
            piece = np.arange(first, min(first + _BATCH, self.n_examples))
            some, ells = self.planes(w, piece)
            psi += some.T @ self.weight[piece]
            ell += float(self.weight[piece] @ ells)
            hinges[piece] = ells - some @ w
        return MeanPlane.of(psi / self.n_examples, ell / self.n_examples, hinges)

    def planes(self, w: NDArray[np.float64], examples: NDArray[np.int64]) -> tuple[Any, NDArray[np.float64]]:
        """The planes of largest slope at w of some examples."""
        if not self.loss_augmented:
            return self.problem.predicted_planes(w, examples)
        psi, ell, slope = self.problem.violated_planes(w, examples, self.rescaling)
        return or_truth(psi, ell, slope)

"""Max-oracles: the one question that solvers on any problem ask.

The hinge of example m is a maximum over planes (problems/statistics.py), and the mean over examples is one again:

    H_m(w) = max_y ell_m(y) - w . psi_m(y),      1/M sum_m weight_m H_m(w) = ell - w . psi
    psi = 1/M sum_m weight_m psi_m,              ell = 1/M sum_m weight_m ell_m     at the planes of largest slope

A `MaxOracle` gives such a plane of all examples (`mean_plane`), or those of some (`planes`). The weights are flat, shape (d,), in
this interface; planes are dense as a mean and CSR one by one, both float64; example weights have mean 1. No plane is ever worse
than that of the truth, psi = 0 and ell = 0. Every plane is one of the problem that the certificate names; the hinges are bounds
from above where the engine gives only such (dual_decomposition), and may then exceed ell - w . psi.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.errors import OptionError
from maxmargin.inference import Engine
from maxmargin.jit import kernel
from maxmargin.parallel.threads import map_shards, pause
from maxmargin.problems.factor_graphs import FactorGraphs
from maxmargin.problems.python_problem import PythonProblem
from maxmargin.problems.statistics import add_example, project_example
from maxmargin.solvers.oracles.compiled import NOTHING_GIVEN, find_plane
from maxmargin.solvers.oracles.graph_oracle import GraphOracle
from maxmargin.solvers.oracles.plane_search import rows_of_planes
from maxmargin.solvers.oracles.slack_rescaling import SlackOracle

#: Most shards of a sum over all examples.
_SHARDS = 16
#: Entries of the planes that an engine outside compiled loops finds at a time.
_ENTRIES = 1 << 20
#: Examples that a user's batch method is given at a time.
_BATCH = 256


class MeanPlane(NamedTuple):
    """The mean of the planes of largest slope."""

    #: (d,)
    psi: NDArray[np.float64]
    ell: float
    #: (M,): H_m(w), or a bound from above.
    hinges: NDArray[np.float64]


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
    inference : "auto", str or engine
        For factor graphs: the inference engine that answers.
    loss_augmented : bool
        False leaves the task loss out: the planes are those of predictions.
    rescaling : "margin" or "slack"
        With "slack" the hinge is the largest ``loss (1 + w . phi - w . phi of the truth)`` (slack_rescaling.py).
    """
    if isinstance(problem, FactorGraphs):
        return FactorGraphOracle(problem, engine, loss_augmented, rescaling)
    if engine != "auto":
        raise OptionError(f"inference={engine!r} is for factor graphs; this problem has an oracle of its own.")
    if isinstance(problem, PythonProblem):
        return PythonOracle(problem, loss_augmented, rescaling)
    if rescaling == "slack":
        raise OptionError(f"A {type(problem).__name__} has no oracle for slack rescaling; use margin rescaling.")
    if hasattr(problem, "max_oracle"):
        found: MaxOracle = problem.max_oracle(loss_augmented)
        return found
    raise OptionError(f"A {type(problem).__name__} has no max-oracle, which this solver needs.")


class FactorGraphOracle:
    """An inference engine as the max-oracle of factor graphs, over shards of examples in threads."""

    def __init__(
        self,
        problem: FactorGraphs,
        engine: str | Engine = "auto",
        loss_augmented: bool = True,
        rescaling: str = "margin",
    ) -> None:
        if not loss_augmented:
            problem = problem.without_losses()
        self.problem = problem
        self.graph = GraphOracle(problem, engine) if rescaling == "margin" else SlackOracle(problem, engine)
        self.n_examples, self.n_weights, self.weight = problem.n_examples, problem.n_weights, problem.arrays.weight
        self.certificate, self.reason, self.name = self.graph.certificate, self.graph.reason, self.graph.engine.name
        # A shard's sum is dense: it must be small beside the work of finding the planes, and memory is slower than arithmetic.
        work = self.n_examples * (self.graph.view_work + self.graph.work)
        n = max(1, min(_SHARDS, self.n_examples, int(work / (8 * max(1, self.n_weights)))))
        cuts = np.linspace(0, self.n_examples, n + 1).astype(int).tolist()
        self.shards = list(itertools.pairwise(cuts))
        # Kernels are compiled before any clock starts: called with nothing to do.
        w, nothing = problem.working_weights(), np.empty(0, np.int64)
        with self.graph.workspace() as room:
            add_planes(problem.batch, *w, self.graph.compiled or NOTHING_GIVEN, room, nothing, *w, np.empty(0))

    def mean_plane(self, w: NDArray[np.float64], threads: int) -> MeanPlane:
        """The mean of the planes of largest slope at w."""
        p, hinges = self.problem, np.empty(self.n_examples)
        w_v, w_f = p.working_weights(w)

        def sum_of(begin: int, end: int) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
            out, ell = p.working_weights(), 0.0
            for chosen, oracle, bounds in self.answers(w_v, w_f, begin, end):
                at = hinges[chosen[0] : chosen[-1] + 1]
                with self.graph.workspace() as work:
                    ell += add_planes(p.batch, w_v, w_f, oracle, work, chosen, *out, at)
                if bounds is not None:
                    at[:] = bounds
            return ell, *out

        ell, psi_v, psi_f = 0.0, *p.working_weights()
        for more, more_v, more_f in map_shards(sum_of, self.shards, threads, pausing=True):
            ell += more
            psi_v += more_v
            psi_f += more_f
        return MeanPlane(p.flat_weights(psi_v, psi_f) / self.n_examples, ell / self.n_examples, hinges)

    def planes(self, w: NDArray[np.float64], examples: NDArray[np.int64]) -> tuple[Any, NDArray[np.float64]]:
        """The planes of largest slope at w of some examples."""
        p, chosen = self.problem, np.asarray(examples, np.int64)
        found, _ = self.graph.answer(*p.working_weights(w), chosen)
        psi = rows_of_planes(p, chosen, found, working=False)
        return _or_truth(psi, found.ell, found.ell - psi @ w)

    def answers(
        self, w_v: NDArray[np.float64], w_f: NDArray[np.float64], begin: int, end: int
    ) -> Iterator[tuple[NDArray[np.int64], Any, NDArray[np.float64] | None]]:
        """Who answers for the examples of a shard, piece by piece: the compiled oracle, or planes found before, with bounds."""
        if self.graph.compiled is not None:
            yield np.arange(begin, end), self.graph.compiled, None
            return
        p = self.problem
        size = max(1, _ENTRIES // (2 * int(p.arrays.largest.buffer) + 1))
        for first in range(begin, end, size):
            pause()
            chosen = np.arange(first, min(first + size, end))
            yield chosen, *self.graph.answer(w_v, w_f, chosen)


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
        return MeanPlane(psi / self.n_examples, ell / self.n_examples, hinges)

    def planes(self, w: NDArray[np.float64], examples: NDArray[np.int64]) -> tuple[Any, NDArray[np.float64]]:
        """The planes of largest slope at w of some examples."""
        if not self.loss_augmented:
            return self.problem.predicted_planes(w, examples)
        psi, ell, slope = self.problem.violated_planes(w, examples, self.rescaling)
        return _or_truth(psi, ell, slope)


def _or_truth(psi: Any, ell: NDArray[np.float64], slope: NDArray[np.float64]) -> tuple[Any, NDArray[np.float64]]:
    """Planes, with that of the truth where it is better."""
    worse = slope < 0.0
    if worse.any():
        psi, ell = sp.diags_array((~worse).astype(float)).tocsr() @ psi, np.where(worse, 0.0, ell)
    return psi, ell


# ------------------------------------------------------------------------------------------------------- kernels


@kernel
def add_planes(
    batch: Any, w_v: Any, w_f: Any, oracle: Any, work: Any, chosen: Any, out_v: Any, out_f: Any, hinges: Any
) -> float:
    """Add weight_m psi_m of the planes of largest slope to out; returns the sum of weight_m ell_m."""
    weight, z, change, index, value = batch.graphs.weight, work.z, work.change, work.index, work.value
    total = 0.0
    for k in range(len(chosen)):
        m = chosen[k]
        project_example(batch, m, w_v, w_f, z)
        n, ell = find_plane(oracle, batch, work, k, m, index, value, 0)
        slope = ell
        for e in range(n):
            slope -= value[e] * z[index[e]]
        hinges[k] = max(slope, 0.0)
        # Otherwise the truth is at least as good, which has a plane of zeros.
        if slope > 0.0:
            total += weight[m] * ell
            for e in range(n):
                change[index[e]] = value[e]
            add_example(batch, m, change, weight[m], out_v, out_f)
            for e in range(n):
                change[index[e]] = 0.0
    return total

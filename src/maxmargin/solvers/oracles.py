"""Max-oracles: the one question that solvers on any problem ask, and what they do when the user's code cannot answer.

The hinge of example m is a maximum over planes (problems/statistics.py), and the mean over examples is one again:

    H_m(w) = max_y ell_m(y) - w . psi_m(y),      1/M sum_m weight_m H_m(w) = ell - w . psi
    psi = 1/M sum_m weight_m psi_m,              ell = 1/M sum_m weight_m ell_m     at the planes of largest slope

A `MaxOracle` gives such a plane of all examples (`mean_plane`), or those of some (`planes`). The weights are flat, shape (d,), in
this interface; planes are dense as a mean and CSR one by one, both float64; example weights have mean 1. No plane is ever worse
than that of the truth, psi = 0 and ell = 0. Every plane is one of the problem that the certificate names; the hinges are bounds
from above where the engine gives only such (dual_decomposition), and may then exceed ell - w . psi.
"""

from __future__ import annotations

import math
import time
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.errors import OptionError
from maxmargin.inference import Engine
from maxmargin.parallel.threads import map_shards
from maxmargin.problems.factor_graphs import FactorGraphs
from maxmargin.problems.python_problem import OracleError, PythonProblem
from maxmargin.solvers.graph_oracle import GraphOracle
from maxmargin.solvers.loop import Run, State
from maxmargin.solvers.result import Status

#: Most shards of a sum over all examples.
_SHARDS = 16
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


def oracle_of(problem: Any, engine: str | Engine = "auto", loss_augmented: bool = True) -> MaxOracle:
    """The max-oracle of a problem.

    Parameters
    ----------
    problem : FactorGraphs, PythonProblem, or an object with a method ``max_oracle(loss_augmented)``
    engine : "auto", str or engine
        For factor graphs: the inference engine that answers.
    loss_augmented : bool
        False leaves the task loss out: the planes are those of predictions.
    """
    if isinstance(problem, FactorGraphs):
        return FactorGraphOracle(problem, engine, loss_augmented)
    if engine != "auto":
        raise OptionError(f"engine={engine!r} is for factor graphs; this problem has an oracle of its own.")
    if isinstance(problem, PythonProblem):
        return PythonOracle(problem, loss_augmented)
    if hasattr(problem, "max_oracle"):
        found: MaxOracle = problem.max_oracle(loss_augmented)
        return found
    raise OptionError(f"A {type(problem).__name__} has no max-oracle, which this solver needs.")


class FactorGraphOracle:
    """An inference engine as the max-oracle of factor graphs, over shards of examples in threads."""

    def __init__(self, problem: FactorGraphs, engine: str | Engine = "auto", loss_augmented: bool = True) -> None:
        if not loss_augmented:
            problem = problem.take(np.arange(problem.n_examples))
            problem.arrays = problem.arrays._replace(losses=np.zeros_like(problem.arrays.losses))
        self.problem = problem
        self.graph = GraphOracle(problem, engine)
        self.n_examples, self.n_weights, self.weight = problem.n_examples, problem.n_weights, problem.arrays.weight
        self.certificate, self.reason, self.name = self.graph.certificate, self.graph.reason, self.graph.engine.name
        # A shard's sum is dense: there are no more shards than make that cheap beside finding the planes.
        work = self.n_examples * (self.graph.view_work + self.graph.work)
        n = max(1, min(_SHARDS, self.n_examples, int(work / max(1, self.n_weights))))
        cuts = np.linspace(0, self.n_examples, n + 1).astype(int).tolist()
        self.shards = list(zip(cuts[:-1], cuts[1:], strict=True))

    def mean_plane(self, w: NDArray[np.float64], threads: int) -> MeanPlane:
        """The mean of the planes of largest slope at w."""
        p, hinges = self.problem, np.empty(self.n_examples)
        w_v, w_f = p.working_weights(w)

        def sum_of(begin: int, end: int) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
            out_v, out_f = p.working_weights()
            ell = self.graph.sum_planes(w_v, w_f, np.arange(begin, end), out_v, out_f, hinges[begin:end])
            return ell, out_v, out_f

        ell, psi_v, psi_f = 0.0, *p.working_weights()
        for more, more_v, more_f in map_shards(sum_of, self.shards, threads):
            ell += more
            psi_v += more_v
            psi_f += more_f
        return MeanPlane(p.flat_weights(psi_v, psi_f) / self.n_examples, ell / self.n_examples, hinges)

    def planes(self, w: NDArray[np.float64], examples: NDArray[np.int64]) -> tuple[Any, NDArray[np.float64]]:
        """The planes of largest slope at w of some examples."""
        psi, ell = self.graph.flat_planes(*self.problem.working_weights(w), np.asarray(examples, np.int64))
        return _or_truth(psi, ell, ell - psi @ w)


class PythonOracle:
    """The methods of a model that a user wrote, as a max-oracle."""

    def __init__(self, problem: PythonProblem, loss_augmented: bool = True) -> None:
        self.problem, self.loss_augmented = problem, loss_augmented
        self.n_examples, self.n_weights, self.weight = problem.n_examples, problem.n_weights, problem.weight
        self.certificate = "exact" if problem.exact else "none"
        self.name = type(problem.model).__name__
        self.reason = "as its author promises" if problem.exact else "its author promises nothing (exact = False)"

    def mean_plane(self, w: NDArray[np.float64], threads: int) -> MeanPlane:
        """The mean of the planes of largest slope at w; Python code runs in one thread."""
        psi, ell, hinges = np.zeros(self.n_weights), 0.0, np.empty(self.n_examples)
        for first in range(0, self.n_examples, _BATCH):
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
        psi, ell, slope = self.problem.violated_planes(w, examples)
        return _or_truth(psi, ell, slope)


def _or_truth(psi: Any, ell: NDArray[np.float64], slope: NDArray[np.float64]) -> tuple[Any, NDArray[np.float64]]:
    """Planes, with that of the truth where it is better."""
    worse = slope < 0.0
    if worse.any():
        psi, ell = sp.diags_array((~worse).astype(float)).tocsr() @ psi, np.where(worse, 0.0, ell)
    return psi, ell


S = TypeVar("S", bound=State)


class OracleRun(Run[S]):
    """A run on a max-oracle that may fail: what was certified before an error of the user's code is kept.

    If the model's code raises when weights with a certified value are at hand, the run ends there with status INTERRUPTED, a
    warning whose cause is the error, and the sentence in ``options["error"]``. Before, the error is raised.
    """

    oracle: MaxOracle
    failure: OracleError | None = None

    @abstractmethod
    def steps(self, now: S, stop: Callable[[], bool]) -> None:
        """The steps of one pass."""

    @abstractmethod
    def measure(self, now: S, off_schedule: bool) -> dict[str, float]:
        """Bound the optimum and keep the best weights; returns what else goes into the history."""

    def one_pass(self, now: S, stop: Callable[[], bool]) -> None:
        """One pass over the data."""
        clock = time.perf_counter()
        with self.keeping(now):
            self.steps(now, stop)
            now.n_passes += 1
        now.seconds += time.perf_counter() - clock

    def check(self, now: S, off_schedule: bool = False) -> None:
        """Bound the optimum, and write a line of history."""
        if self.failure is None:
            clock = time.perf_counter()
            with self.keeping(now):
                line = self.measure(now, off_schedule)
                now.monitor_seconds += time.perf_counter() - clock
                now.write_line(**line)

    @contextmanager
    def keeping(self, now: S) -> Iterator[None]:
        """End the run, rather than lose it, when the user's code raises."""
        try:
            yield
        except OracleError as error:
            if not math.isfinite(now.primal):
                raise
            self.failure = error
            # The loop asks for a verdict after a check.
            now.next_check = min(now.next_check, now.n_passes)
            warning = RuntimeWarning(f"Training stopped, and what was learned before is kept. {error}")
            warning.__cause__ = error.__cause__
            warnings.warn(warning, stacklevel=6)

    def verdict(self, now: S, tol: float, max_passes: int) -> Status | None:
        """Why to stop here, or None to go on."""
        return super().verdict(now, tol, max_passes) if self.failure is None else Status.INTERRUPTED

    def options(self, now: S) -> dict[str, Any]:
        """The oracle, and why it was chosen; the error that ended the run, if one did."""
        error = {} if self.failure is None else {"error": str(self.failure)}
        return {"engine": self.oracle.name, "engine_reason": self.oracle.reason, **error}

    def regulariser(self, w: NDArray[np.float64]) -> float:
        """lam/2 |w|^2."""
        return self.lam / 2.0 * float(w @ w)

    def mean(self, values: NDArray[np.float64]) -> float:
        """Weighted mean over examples."""
        return float(self.oracle.weight @ values) / len(values)

    def primal(self, now: S, w: NDArray[np.float64]) -> float:
        """P(w), by the oracle."""
        now.n_oracle_calls += self.oracle.n_examples
        return self.regulariser(w) + self.mean(self.oracle.mean_plane(w, self.threads).hinges)


def earlier_of(now: S, earlier: Any, names: tuple[str, ...]) -> S:
    """The earlier state, if it is of the same kind and its arrays of these names have the same shapes."""
    if type(earlier) is not type(now) or any(getattr(earlier, n).shape != getattr(now, n).shape for n in names):
        raise OptionError(
            "The earlier state belongs to a problem of another shape or to another solver; start without it "
            "(warm_start=False)."
        )
    return earlier

"""A run on a max-oracle: what solvers share that know a problem by its planes alone."""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from maxmargin import jit
from maxmargin.errors import OptionError, TemperatureError
from maxmargin.problems.python_problem import OracleError
from maxmargin.solvers.core.result import Status
from maxmargin.solvers.core.run import Run, State
from maxmargin.solvers.oracles.device_oracle import DeviceOracle

#: Entries whose products are held at a time: fresh memory for all of them costs more than the product.
_RANGE = 1 << 16

S = TypeVar("S", bound=State)


class OracleRun(Run[S]):
    """A run on an oracle that may fail: what was certified before is kept.

    If the model's code raises when weights with a certified value are at hand, the run ends there with status INTERRUPTED, a
    warning whose cause is the error, and the sentence in ``options["error"]`` and the result's message. If an exp-oracle has
    reached the lowest temperature that it can answer for, the run has got as far as it can: STALLED, with that sentence. Before
    there are such weights, the error is raised.
    """

    oracle: Any
    failure: OracleError | TemperatureError | None = None

    def device_oracle(self, loss_augmented: bool = True) -> DeviceOracle | None:
        """The problem's oracles on the solver's device; None on the processor."""
        if self.device.name == "cpu":
            return None
        return DeviceOracle(self.problem, self.device.name, self.solver.inference, loss_augmented)

    @abstractmethod
    def steps(self, now: S, stop: Callable[[], bool]) -> None:
        """The steps of one pass."""

    @abstractmethod
    def measure(self, now: S, off_schedule: bool) -> dict[str, float]:
        """Bound the optimum and keep the best weights; returns what else goes into the history."""

    def one_pass(self, now: S, stop: Callable[[], bool]) -> None:
        """One pass over the data."""
        clock = jit.clock()
        try:
            with self.keeping(now):
                self.steps(now, stop)
                now.n_passes += 1
        finally:
            now.seconds += jit.clock() - clock

    def check(self, now: S, off_schedule: bool = False) -> None:
        """Bound the optimum, and write a line of history."""
        if self.failure is None:
            clock = jit.clock()
            with self.keeping(now):
                line = self.measure(now, off_schedule)
                now.monitor_seconds += jit.clock() - clock
                now.write_line(**line)

    @contextmanager
    def keeping(self, now: S) -> Iterator[None]:
        """End the run, rather than lose it, when the oracle cannot answer."""
        try:
            yield
        except (OracleError, TemperatureError) as error:
            if not math.isfinite(now.primal):
                raise
            self.failure = error
            # The loop asks for a verdict after a check.
            now.next_check = min(now.next_check, now.n_passes)
            self.message = f"Training stopped, and what was learned before is kept. {error}"
            if isinstance(error, TemperatureError):
                return
            warning = RuntimeWarning(self.message)
            warning.__cause__ = error.__cause__
            warnings.warn(warning, stacklevel=6)

    def verdict(self, now: S, tol: float, max_passes: int) -> Status | None:
        """Why to stop here, or None to go on."""
        if isinstance(self.failure, OracleError):
            return Status.INTERRUPTED
        return super().verdict(now, tol, max_passes) or (None if self.failure is None else Status.STALLED)

    def options(self, now: S) -> dict[str, Any]:
        """The oracle, and why it was chosen; the error that ended the run, if one did."""
        error = {} if self.failure is None else {"error": str(self.failure)}
        return {"inference": self.oracle.name, "inference_reason": self.oracle.reason, **error}

    def flat(self, w: Any) -> NDArray[np.float64]:
        """A vector of the solver's as flat weights, in NumPy, which it is on the processor."""
        return w if self.device.name == "cpu" else np.asarray(self.oracle.flat(w))

    def regulariser(self, w: Any) -> float:
        """lam/2 |w|^2."""
        return self.lam / 2.0 * self.device.dot(w, w)

    def mean(self, values: Any) -> float:
        """Weighted mean over examples."""
        return self.device.dot(self.oracle.weight, values) / len(values)

    def primal(self, now: S, w: Any) -> float:
        """P(w), by the oracle."""
        now.n_oracle_calls += self.oracle.n_examples
        return self.regulariser(w) + self.mean(self.oracle.mean_plane(w, self.threads).hinges)


def dot(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Inner product, not by BLAS: its threads wait for each other longer than this takes, and their number may change the bits."""
    return float(sum(np.sum(a[k : k + _RANGE] * b[k : k + _RANGE]) for k in range(0, len(a), _RANGE)))


def earlier_of(now: S, earlier: Any, names: tuple[str, ...]) -> S:
    """The earlier state, if it is of the same kind and its arrays of these names have the same shapes."""
    if type(earlier) is not type(now) or any(getattr(earlier, n).shape != getattr(now, n).shape for n in names):
        raise OptionError(
            "The earlier state belongs to a problem of another shape or to another solver; start without it "
            "(warm_start=False)."
        )
    return earlier


def check_family(family: int, earlier: Any) -> None:
    """Refuse a state of another objective: its bounds would certify what is not so."""
    if earlier.family != family:
        raise OptionError(
            "The earlier state is of another objective or rescaling; start without it (warm_start=False)."
        )

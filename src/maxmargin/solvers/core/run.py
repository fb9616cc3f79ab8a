"""A run: one algorithm at work on one problem, and its state, which is all that a checkpoint holds.

`Solver.solve` (solver.py) makes a `Run`, which holds the problem's arrays, and asks it for passes and checks. What changes during a
run is the *state*, a dataclass of arrays and numbers that derives from `State`. A check bounds the optimum from both sides; checks
come ever more rarely, as the run decides (``next_check``). A check that is not due (the run stops between two) leaves no trace in
the checkpoint: a longer run would not have had it.
"""

from __future__ import annotations

import math
import os
import warnings
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from maxmargin.devices import device_of
from maxmargin.errors import OptionError
from maxmargin.solvers.core.checkpoint import RunKey, save_state
from maxmargin.solvers.core.monitor import Report
from maxmargin.solvers.core.result import Result, Status
from maxmargin.solvers.core.sampling import seed_of


@dataclass(kw_only=True)
class State:
    """What every run keeps: the best bounds, how far it went, and its history.

    Attributes
    ----------
    primal, dual : float
        The best objective, and the best lower bound.
    n_passes, next_check, n_oracle_calls : int
        Passes that were made, the one after which the next check is due, and calls of the oracle.
    seconds, monitor_seconds : float
        Seconds of the algorithm, and of checks and reports.
    data : int
        The run's data (`data_key`), or, for solvers whose states fit other data, its graphs (`structure_key`).
    relaxed : bool
        Whether what it holds belongs to the relaxed problem: that bounds the relaxation, and nothing else.
    rounding : float
        How far the bounds may cross by rounding alone, in units of the larger of 1 and the primal value.
    history : dict of str to list of float
        A column for each figure, an entry for each check.
    """

    #: The fields that are on the solver's device; all others are NumPy's arrays and numbers.
    on_device: ClassVar[tuple[str, ...]] = ()

    primal: float = math.inf
    dual: float = -math.inf
    n_passes: int = 0
    next_check: int = 1
    n_oracle_calls: int = 0
    seconds: float = 0.0
    monitor_seconds: float = 0.0
    data: int = 0
    relaxed: bool = False
    rounding: float = 1e-12
    history: dict[str, list[float]] = field(default_factory=dict)

    @property
    def gap(self) -> float:
        """Primal minus dual; where they meet, rounding may leave them crossed by a little, which is 0."""
        gap = self.primal - self.dual
        return 0.0 if math.isfinite(gap) and -self.rounding * max(1.0, abs(self.primal)) <= gap < 0.0 else gap

    @property
    def nbytes(self) -> int:
        """Bytes of the dual state."""
        return 0

    def write_line(self, **line: float) -> None:
        """Add a line to the history.

        Parameters
        ----------
        line : dict of str to float
            The figures of a check.
        """
        line = {
            "n_passes": self.n_passes, "seconds": self.seconds, "primal": self.primal, "dual": self.dual, "gap": self.gap,
            "n_oracle_calls": self.n_oracle_calls, "monitor_seconds": self.monitor_seconds,
        } | line  # fmt: skip
        for name, value in line.items():
            self.history.setdefault(name, []).append(float(value))


S = TypeVar("S", bound=State)


class Run(ABC, Generic[S]):
    """One run: the problem's arrays at hand, and the steps of the main loop.

    Parameters
    ----------
    solver : Solver
        Whose options they are.
    problem : problem
        What is trained.
    lam : float
        1 / C.
    random_state : int, Generator, RandomState or None
        Seed.
    threads : int
        Threads for what does not depend on their number.
    """

    #: The dataclass of the state.
    state_type: type[S]
    #: What a certified gap is about.
    certificate = "none"
    #: The gap that is asked for, by which some steps choose their precision.
    tol = 0.0
    #: Whether a monitor listens: checks that certify nothing are made for it alone, and at the end.
    watched = False
    #: The passes that are allowed, for runs that make several at a time.
    max_passes = 2**62
    #: The order of the columns of features that the run works in (problems/columns.py), if it is another than the problem's.
    columns: Any = None
    #: What went wrong, in sentences; and with the last checkpoint.
    message = ""
    unsaved = ""

    def __init__(self, solver: Any, problem: Any, lam: float, random_state: Any, threads: int) -> None:
        self.solver, self.problem, self.lam, self.threads = solver, problem, lam, threads
        #: Where the vectors of a solver are that can work elsewhere than on the processor.
        self.device = device_of(solver.device, threads)
        self.seed = seed_of(random_state)

    @abstractmethod
    def begin(self, earlier: S | None) -> S:
        """The first state, from that of an earlier run if there is one.

        Parameters
        ----------
        earlier : State or None
            The state of an earlier run.
        """

    @abstractmethod
    def one_pass(self, now: S, stop: Callable[[], bool]) -> None:
        """One pass over the data; `stop` says that it should be cut short.

        Parameters
        ----------
        now : State
            The state of the run.
        stop : callable
            Returns True when the pass should be cut short.
        """

    @abstractmethod
    def check(self, now: S, off_schedule: bool = False) -> None:
        """Bound the optimum, keep the best weights, write a line of history; steer, if on schedule.

        Parameters
        ----------
        now : State
            The state of the run.
        off_schedule : bool
            The check is one that was not due, such as the last: it changes nothing about the steps.
        """

    @abstractmethod
    def weights(self, now: S) -> NDArray[np.float64]:
        """The flat weights of the best primal value.

        Parameters
        ----------
        now : State
            The state of the run.
        """

    def due(self, now: S) -> bool:
        """Whether the pass that ended is followed by a check.

        Parameters
        ----------
        now : State
            The state of the run.
        """
        return now.n_passes >= now.next_check

    def options(self, now: S) -> dict[str, Any]:
        """What the result says about the run beside the solver's options.

        Parameters
        ----------
        now : State
            The state of the run.
        """
        return {}

    def verdict(self, now: S, tol: float, max_passes: int) -> Status | None:
        """Why to stop here, or None to go on.

        Parameters
        ----------
        now : State
            The state of the run.
        tol : float
            The gap that is asked for.
        max_passes : int
            Most passes.
        """
        # Bounds that crossed would be a fault of the program's, and certify nothing.
        if 0.0 <= now.gap <= tol and self.settled(now, tol):
            # Without a certificate, its oracle finds nothing more, which proves nothing.
            return Status.STALLED if self.certificate == "none" else Status.CONVERGED
        if now.n_passes >= max_passes:
            return Status.MAX_PASSES
        return Status.STALLED if self.stalled(now) else None

    def settled(self, now: S, tol: float) -> bool:
        """Whether nothing but the gap keeps the run from its end.

        Parameters
        ----------
        now : State
            The state of the run.
        tol : float
            The gap that is asked for.
        """
        return True

    def stalled(self, now: S) -> bool:
        """Whether the gap has stopped shrinking for so long that it will not reach the tolerance.

        Parameters
        ----------
        now : State
            The state of the run.
        """
        passes, gaps = now.history.get("n_passes", []), now.history.get("gap", [])
        past = bisect_right(passes, now.n_passes - max(500, now.n_passes // 2))
        return past > 0 and gaps[-1] > 0.99 * gaps[past - 1]

    def outside(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Weights of the run as weights of the problem that was given, whose columns may be in another order.

        Parameters
        ----------
        weights : array (d,)
            Flat weights.
        """
        return weights if self.columns is None else np.asarray(self.columns.outside(weights, self.threads))

    def report(self, now: S, max_passes: int, tol: float) -> Report:
        """What the monitor is told.

        Parameters
        ----------
        now : State
            The state of the run.
        max_passes : int
            Most passes.
        tol : float
            The gap that is asked for.
        """
        return Report(now.n_passes, max_passes, now.seconds, now.primal, now.dual, now.gap, tol, self.certificate)

    def save(self, now: S, path: str | os.PathLike[str], key: RunKey) -> None:
        """Write a checkpoint; training goes on if that fails, on a full disk for one.

        Parameters
        ----------
        now : State
            The state of the run.
        path : path
            The file.
        key : RunKey
            What the run is of: data, C, options, seed.
        """
        try:
            save_state(path, now, key)
            self.unsaved = ""
        except (OSError, OptionError) as error:
            if not self.unsaved:
                warnings.warn(
                    f"The checkpoint {os.fspath(path)!r} was not written, and training goes on without it: {error}",
                    RuntimeWarning,
                    stacklevel=3,
                )
            self.unsaved = f"The checkpoint {os.fspath(path)!r} is not current: {error}"

    def result(self, now: S, status: Status) -> Result:
        """The outcome: the weights of the best primal value and the best bounds seen.

        Parameters
        ----------
        now : State
            The state of the run.
        status : Status
            Why the run ended.
        """
        dual, gap, certificate = min(now.dual, now.primal), now.gap, self.certificate
        if gap < 0.0 and certificate == "none":
            # What an oracle that misses takes for the primal value may be too small.
            gap = 0.0
        elif gap < 0.0:
            dual, gap, certificate = -math.inf, math.inf, "none"
            warnings.warn(
                f"The bounds crossed (primal {now.primal!r}, dual {now.dual!r}): rounding is larger than what is left of the gap, "
                "and nothing is certified. Scale the features, or choose a smaller C.",
                RuntimeWarning,
                stacklevel=3,
            )
        return Result(
            status=status,
            weights=self.weights(now),
            primal=now.primal,
            dual=dual,
            gap=gap,
            certificate=certificate,
            n_passes=now.n_passes,
            n_oracle_calls=now.n_oracle_calls,
            seconds=now.seconds,
            history={name: np.array(values) for name, values in now.history.items()},
            solver=self.solver.name,
            message=" ".join(one for one in (self.message, self.unsaved) if one),
            options={
                **self.solver.options(),
                **self.options(now),
                "reason": self.solver.reason,
                "state_bytes": now.nbytes,
            },
            state=now,
        )

"""The main loop that all solvers share: pass, check, report, save, until there is a reason to stop.

A solver is options and a name; `Solver.solve` makes a `Run`, which holds the problem's arrays and does the work. What changes
during a run is the *state*, a dataclass of arrays and numbers that derives from `State`, so that a checkpoint is the state on
disk and nothing else. A check bounds the optimum from both sides; checks come ever more rarely, as the run decides
(``next_check``). A check that is not due (the run stops between two) leaves no trace in the checkpoint: a longer run would not
have had it.
"""

from __future__ import annotations

import math
import numbers
import os
import time
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from maxmargin.errors import OptionError
from maxmargin.formats.atomic import check_writable
from maxmargin.parallel.threads import n_threads
from maxmargin.problems.factor_graphs import FactorGraphs
from maxmargin.problems.features import KernelFeatures
from maxmargin.solvers.interrupt import Interruptible
from maxmargin.solvers.monitor import Monitor, Report, Silent
from maxmargin.solvers.result import Result, Status
from maxmargin.solvers.sampling import seed_of
from maxmargin.solvers.state import data_key, fingerprint, load_state, save_state


@dataclass(kw_only=True)
class State:
    """What every run keeps: the best bounds, how far it went, and its history."""

    primal: float = math.inf
    dual: float = -math.inf
    n_passes: int = 0
    next_check: int = 1
    n_oracle_calls: int = 0
    seconds: float = 0.0
    monitor_seconds: float = 0.0
    #: A sum over the data of the run.
    data: int = 0
    #: Whether what it holds belongs to the relaxed problem: that bounds the relaxation, and nothing else.
    relaxed: bool = False
    history: dict[str, list[float]] = field(default_factory=dict)

    @property
    def gap(self) -> float:
        """Primal minus dual; where they meet, rounding may leave them crossed by a hair, which is 0."""
        gap = self.primal - self.dual
        return 0.0 if math.isfinite(gap) and -1e-12 * max(1.0, abs(self.primal)) <= gap < 0.0 else gap

    @property
    def nbytes(self) -> int:
        """Bytes of the dual state."""
        return 0

    def write_line(self, **line: float) -> None:
        """Add a line to the history."""
        line = {
            "n_passes": self.n_passes, "seconds": self.seconds, "primal": self.primal, "dual": self.dual, "gap": self.gap,
            "n_oracle_calls": self.n_oracle_calls, "monitor_seconds": self.monitor_seconds,
        } | line  # fmt: skip
        for name, value in line.items():
            self.history.setdefault(name, []).append(float(value))


S = TypeVar("S", bound=State)


class Run(ABC, Generic[S]):
    """One run: the problem's arrays at hand, and the steps of the main loop."""

    #: The dataclass of the state.
    state_type: type[S]
    #: What a certified gap is about.
    certificate = "none"
    #: The gap that is asked for, by which some steps choose their precision.
    tol = 0.0

    def __init__(self, solver: Solver, problem: Any, lam: float, random_state: Any, threads: int) -> None:
        self.solver, self.problem, self.lam, self.threads = solver, problem, lam, threads
        self.seed = seed_of(random_state)

    @abstractmethod
    def begin(self, earlier: S | None) -> S:
        """The first state, from that of an earlier run if there is one."""

    @abstractmethod
    def one_pass(self, now: S, stop: Callable[[], bool]) -> None:
        """One pass over the data; `stop` says that it should be cut short."""

    @abstractmethod
    def check(self, now: S, off_schedule: bool = False) -> None:
        """Bound the optimum, keep the best weights, write a line of history; steer, if on schedule."""

    @abstractmethod
    def weights(self, now: S) -> NDArray[np.float64]:
        """The flat weights of the best primal value."""

    def options(self, now: S) -> dict[str, Any]:
        """What the result says about the run beside the solver's options."""
        return {}

    def verdict(self, now: S, tol: float, max_passes: int) -> Status | None:
        """Why to stop here, or None to go on."""
        # Bounds that crossed would be a fault of the program's, and certify nothing.
        if self.certificate != "none" and 0.0 <= now.gap <= tol:
            return Status.CONVERGED
        if self.certificate == "none" and 0.0 <= now.gap <= tol:
            # Its oracle finds nothing more, which proves nothing.
            return Status.STALLED
        if now.n_passes >= max_passes:
            return Status.MAX_PASSES
        return Status.STALLED if self.stalled(now) else None

    def stalled(self, now: S) -> bool:
        """Whether the gap has stopped shrinking for so long that it will not reach the tolerance."""
        passes, gaps = now.history.get("n_passes", []), now.history.get("gap", [])
        past = bisect_right(passes, now.n_passes - max(500, now.n_passes // 2))
        return past > 0 and gaps[-1] > 0.99 * gaps[past - 1]

    def report(self, now: S, max_passes: int, tol: float) -> Report:
        """What the monitor is told."""
        return Report(now.n_passes, max_passes, now.seconds, now.primal, now.dual, now.gap, tol, self.certificate)

    def result(self, now: S, status: Status) -> Result:
        """The outcome: the weights of the best primal value and the best bounds seen."""
        return Result(
            status=status,
            weights=self.weights(now),
            primal=now.primal,
            dual=now.dual,
            gap=now.gap,
            certificate=self.certificate,
            n_passes=now.n_passes,
            n_oracle_calls=now.n_oracle_calls,
            seconds=now.seconds,
            history={name: np.array(values) for name, values in now.history.items()},
            solver=self.solver.name,
            options={
                **self.solver.options(),
                **self.options(now),
                "reason": self.solver.reason,
                "state_bytes": now.nbytes,
            },
            state=now,
        )


def checked_number(name: str, value: Any, expected: str, zero: bool, infinite: bool) -> float:
    """A parameter as a float that is not negative; refuses all else, and whole numbers that no float can hold."""
    try:
        number = float(value) if isinstance(value, numbers.Real) else math.nan
    except OverflowError:
        number = math.nan
    if not (number > 0.0 or (zero and number == 0.0)) or (math.isinf(number) and not infinite):
        raise OptionError(f"{name}={value!r} is not possible; it must be {expected}.")
    return number


class Solver(ABC):
    """An algorithm and its options; what is stored by the constructor is all there is."""

    name = ""
    #: What a solver asks of a problem: "local scores", "max-oracle" or "marginals".
    requires: tuple[str, ...] = ()
    #: Whether a state fits other data of the same shape, too; otherwise such a run begins afresh.
    portable = False
    #: Whether it can train on features that are known by a kernel alone; and if the matrix is never held whole (`KernelBlocks`).
    kernels = False
    kernel_blocks = False
    #: Why this solver was chosen.
    reason = "as asked"

    def options(self) -> dict[str, Any]:
        """The constructor's parameters."""
        return dict(vars(self))

    @abstractmethod
    def check_options(self, problem: Any) -> None:
        """Refuse, in a sentence, options that cannot be, or a problem that this solver cannot do."""

    @abstractmethod
    def make_run(self, problem: Any, lam: float, random_state: Any, threads: int) -> Run[Any]:
        """What does the work."""

    def solve(
        self,
        problem: Any,
        C: float = 1.0,
        tol: float = 1e-3,
        max_passes: int = 1000,
        max_seconds: float | None = None,
        random_state: int | np.random.Generator | np.random.RandomState | None = 0,
        n_jobs: int | None = None,
        monitor: Monitor | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        state: Any = None,
    ) -> Result:
        """Train on a problem.

        Parameters
        ----------
        problem : FactorGraphs or oracle problem
            With labels.
        C : float
            lam = 1 / C.
        tol : float
            Certified gap to stop at, in units of the task loss.
        max_passes, max_seconds : int, float
            Other reasons to stop; seconds of the algorithm and its monitoring.
        random_state : int, generator or None
        n_jobs : int
            Threads; results do not depend on it.
        monitor : Monitor
        checkpoint : path
            File to write the state to from time to time, and to resume from if it is there.
        state : State
            State of an earlier run on a problem of the same shape, to start from; C may differ.
        """
        C = checked_number("C", C, "a finite number above 0", zero=False, infinite=False)
        tol = checked_number("tol", tol, "a number that is not negative", zero=True, infinite=True)
        if max_seconds is not None:
            expected = "a number that is not negative, or None"
            max_seconds = checked_number("max_seconds", max_seconds, expected, zero=True, infinite=True)
        if not isinstance(max_passes, int | np.integer) or not 1 <= max_passes < 2**63:
            raise OptionError(f"max_passes={max_passes!r} is not possible; it must be a whole number of at least 1.")
        if not getattr(problem, "has_labels", True):
            raise OptionError("This problem has no labels to learn from.")
        if isinstance(getattr(problem, "variable_features", None), KernelFeatures) and not self.kernels:
            raise OptionError(
                f'The solver "{self.name}" needs features, not a kernel; use "bcfw", "soft-bcfw" or "one-slack".'
            )
        if "local scores" in self.requires and not isinstance(problem, FactorGraphs):
            raise OptionError(
                f'The solver "{self.name}" needs the score tables of factor graphs, which this problem does not have; '
                'use "bcfw", "frank-wolfe", "subgradient" or "perceptron", which ask its oracle.'
            )
        self.check_options(problem)
        run = self.make_run(problem, 1.0 / C, random_state, n_threads(n_jobs))
        run.tol = tol
        talk: Monitor = monitor or Silent()
        key = ""
        if checkpoint is not None:
            check_writable(checkpoint)
            key = fingerprint(problem, {**self.options(), "C": C, "seed": run.seed})
        resumed = False
        if checkpoint is not None and os.path.exists(checkpoint):
            now, resumed = load_state(checkpoint, self.name, run.state_type, key), True
        else:
            data = data_key(problem)
            if state is not None and not isinstance(state, run.state_type):
                raise OptionError(
                    f'The earlier state is not one of "{self.name}" with these options; start without it (warm_start=False).'
                )
            if state is not None and hasattr(self, "engine") and state.relaxed and run.certificate != "relaxed":
                raise OptionError(
                    "The earlier state belongs to the relaxed problem, and would certify what is not so of this one; start "
                    "without it (warm_start=False)."
                )
            now = run.begin(state if state is not None and (self.portable or state.data == data) else None)
            now.data, now.relaxed = data, run.certificate == "relaxed"
        started = saved = time.perf_counter()
        deadline = math.inf if max_seconds is None else started + max_seconds
        status = run.verdict(now, tol, max_passes) if resumed else None
        if status is not None and now.n_passes not in now.history.get("n_passes", []):
            run.check(now, off_schedule=True)
            status = run.verdict(now, tol, max_passes)
        talk.start(self.name, max_passes, tol)
        try:
            with Interruptible() as ctrl_c:
                while status is None:
                    run.one_pass(now, lambda: ctrl_c.asked or time.perf_counter() >= deadline)
                    late = time.perf_counter() >= deadline
                    last = ctrl_c.asked or late or now.n_passes >= max_passes
                    if now.n_passes < now.next_check and not last:
                        continue
                    off_schedule = now.n_passes < now.next_check
                    if checkpoint is not None and off_schedule:
                        save_state(checkpoint, self.name, now, key)
                    run.check(now, off_schedule)
                    go_on = talk.update(run.report(now, max_passes, tol))
                    status = run.verdict(now, tol, max_passes)
                    if status is None and (ctrl_c.asked or not go_on):
                        status = Status.INTERRUPTED
                    elif status is None and late:
                        status = Status.TIME_LIMIT
                    if (
                        checkpoint is not None
                        and not off_schedule
                        and (status is not None or time.perf_counter() - saved > 30.0)
                    ):
                        save_state(checkpoint, self.name, now, key)
                        saved = time.perf_counter()
        except KeyboardInterrupt:
            # Pressed twice, or where the signal is not ours: what was certified before still holds.
            if not math.isfinite(now.primal):
                raise
            status = Status.INTERRUPTED
        assert status is not None
        result = run.result(now, status)
        talk.stop(result.summary())
        return result

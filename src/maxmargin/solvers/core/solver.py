"""A solver: an algorithm's name and options, what it asks of a problem, and `solve`, the main loop.

`Solver.solve` makes a `Run`, which holds the problem's arrays and does the work (run.py), and goes on, pass, check, report, save,
until there is a reason to stop.

Limits
------
Seconds are those of `jit.clock`, which stands still while kernels are compiled. `max_seconds` counts from the call of `solve`.
When they are over, or Ctrl-C is pressed, the pass ends at the next example (parallel/threads.py), and a last check has one second
more. A check that does not end by then is given up: what was certified before stays. A run that has no complete check at all
says what is known of w = 0 without inference, or that it knows nothing (a primal of inf).
"""

from __future__ import annotations

import inspect
import math
import numbers
import os
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Any

import numpy as np

from maxmargin import jit
from maxmargin.errors import OptionError
from maxmargin.formats.atomic import check_writable
from maxmargin.parallel.threads import Stopped, n_threads, stopping
from maxmargin.problems.factor_graphs import FactorGraphs
from maxmargin.solvers.core.capabilities import check_fit
from maxmargin.solvers.core.checkpoint import RunKey, data_key, load_state, structure_key
from maxmargin.solvers.core.interrupt import Interruptible
from maxmargin.solvers.core.monitor import Monitor, Silent
from maxmargin.solvers.core.result import Result, Status
from maxmargin.solvers.core.run import Run, State

#: Seconds that the last check may take when the time is over.
_GRACE = 1.0


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
    #: What a solver asks of a problem (capabilities.py): "local scores", "max-oracle" or "marginals".
    requires: tuple[str, ...] = ()
    #: The words that its results may have for what was certified, what it keeps in memory, and who published it.
    certificates: tuple[str, ...] = ("none",)
    keeps = ""
    paper = ""
    #: What it minimises: the mean hinge, the negative log-likelihood, or either, as its option `objective` says.
    objectives: tuple[str, ...] = ("margin",)
    #: Whether a state fits other data on the same graphs, too. A run on anything else begins afresh.
    portable = False
    #: Whether a state fits the same data with other weights of the examples.
    reweightable = False
    #: Whether it can train on features that are known by a kernel alone; and if the matrix is never held whole (`KernelBlocks`).
    kernels = False
    kernel_blocks = False
    #: The objectives that it trains with a kernel, if it does so at all.
    kernel_objectives: tuple[str, ...] = ("margin", "log")
    #: Why this solver was chosen.
    reason = "as asked"

    def __repr__(self) -> str:
        known = inspect.signature(type(self)).parameters
        given = (
            f"{name}={value!r}"
            for name, value in vars(self).items()
            if name in known and value is not known[name].default and value != known[name].default
        )
        return f"{type(self).__name__}({', '.join(given)})"

    def options(self) -> dict[str, Any]:
        """The constructor's parameters, an engine by its name."""
        return {name: getattr(value, "name", value) for name, value in vars(self).items()}

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
            Other reasons to stop; seconds of the algorithm and its monitoring, not of compilation. They are kept to within a second
            or one call of the oracle for one example, whichever is longer.
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
        started, compiled = jit.clock(), jit.compile_seconds()
        deadline = math.inf if max_seconds is None else started + max_seconds
        if not getattr(problem, "has_labels", True):
            raise OptionError("This problem has no labels to learn from.")
        check_fit(self, problem)
        self.check_options(problem)
        run = self.make_run(problem, 1.0 / C, random_state, n_threads(n_jobs))
        run.tol = tol
        talk: Monitor = monitor or Silent()
        key = RunKey("", "", {})
        if checkpoint is not None:
            check_writable(checkpoint)
            key = RunKey.of(self.name, problem, {**self.options(), "C": C, "seed": run.seed})
        resumed = False
        if checkpoint is not None and os.path.exists(checkpoint):
            now, resumed = load_state(checkpoint, run.state_type, key), True
        else:
            data = structure_key(problem) if self.portable else data_key(problem, weights=not self.reweightable)
            if state is not None and not isinstance(state, run.state_type):
                raise OptionError(
                    f'The earlier state is not one of "{self.name}" with these options; start without it (warm_start=False).'
                )
            if state is not None and hasattr(self, "inference") and state.relaxed and run.certificate != "relaxed":
                raise OptionError(
                    "The earlier state belongs to the relaxed problem, and would certify what is not so of this one; start "
                    "without it (warm_start=False)."
                )
            earlier = state if state is not None and state.data == data else None
            try:
                with stopping(lambda: jit.clock() >= deadline):
                    now = run.begin(earlier)
            except Stopped:
                # It has no state before its oracle has answered once.
                now = run.begin(earlier)
            now.data, now.relaxed = data, run.certificate == "relaxed"
            # Of sums of a few thousand terms, and of one over all examples.
            now.rounding = 2.0**-52 * (4096 + getattr(problem, "n_examples", 0))
        saved = jit.clock()
        status = run.verdict(now, tol, max_passes) if resumed else None
        if status is not None and now.n_passes not in now.history.get("n_passes", []):
            run.check(now, off_schedule=True)
            status = run.verdict(now, tol, max_passes)
        talk.start(self.name, max_passes, tol)
        try:
            with Interruptible() as ctrl_c:
                over = _Over(ctrl_c, deadline)
                while status is None:
                    with suppress(Stopped), stopping(over):
                        run.one_pass(now, over)
                    late = jit.clock() >= deadline
                    last = ctrl_c.asked or late or now.n_passes >= max_passes
                    if now.n_passes < now.next_check and not last:
                        continue
                    off_schedule = now.n_passes < now.next_check
                    if checkpoint is not None and off_schedule:
                        run.save(now, checkpoint, key)
                    try:
                        with stopping(over.with_grace):
                            run.check(now, off_schedule)
                    except Stopped:
                        status = Status.INTERRUPTED if ctrl_c.asked else Status.TIME_LIMIT
                        break
                    late = late or jit.clock() >= deadline
                    go_on = talk.update(run.report(now, max_passes, tol))
                    status = run.verdict(now, tol, max_passes)
                    if status is None and (ctrl_c.asked or not go_on):
                        status = Status.INTERRUPTED
                    elif status is None and late:
                        status = Status.TIME_LIMIT
                    if (
                        checkpoint is not None
                        and not off_schedule
                        and (status is not None or jit.clock() - saved > 30.0)
                    ):
                        run.save(now, checkpoint, key)
                        saved = jit.clock()
        except KeyboardInterrupt:
            # Pressed twice, or where the signal is not ours: what was certified before still holds.
            if not math.isfinite(now.primal):
                raise
            status = Status.INTERRUPTED
        assert status is not None
        if not math.isfinite(now.primal):
            know_nothing(run, now)
        if not now.history:
            now.write_line()
        result = run.result(now, status)
        over_by = jit.clock() - deadline
        if status is Status.TIME_LIMIT and over_by > _GRACE:
            result.message = (
                f"{result.message} The limit of {max_seconds:g} s was passed by {over_by:.1f} s: one call of the oracle takes that "
                "long."
            ).strip()
        zero = value_at_zero(run)
        if result.primal > zero * (1.0 + 1e-12):
            # Weights that are worse than none are of no use to anyone.
            result.weights = np.zeros_like(result.weights)
            result.primal, result.gap = zero, max(zero - result.dual, 0.0)
            result.message = (
                f"{result.message} No weights were found that are better than zero, which these are.".strip()
            )
        result.compile_seconds = jit.compile_seconds() - compiled
        talk.stop(result.summary())
        return result


class _Over:
    """Whether the time is over or Ctrl-C was pressed."""

    def __init__(self, ctrl_c: Interruptible, deadline: float) -> None:
        self.ctrl_c, self.deadline = ctrl_c, deadline

    def __call__(self) -> bool:
        if self.ctrl_c.asked:
            self.deadline = min(self.deadline, jit.clock())
        return jit.clock() >= self.deadline

    def with_grace(self) -> bool:
        """Whether it was so a moment ago."""
        return self() and jit.clock() >= self.deadline + _GRACE


def know_nothing(run: Run[Any], now: State) -> None:
    """Bounds of a run without a complete check.

    No hinge is negative, so nothing is below 0. At w = 0 a hinge is the largest loss of a labeling, which is the sum of those of
    its variables if nothing else is scored and nothing forbidden.
    """
    now.dual = max(now.dual, 0.0)
    if not run.weights(now).any():
        now.primal = value_at_zero(run)


def value_at_zero(run: Run[Any]) -> float:
    """The objective at w = 0, where a hinge is the largest loss of a labeling; inf where that takes inference to know."""
    p = run.problem
    if (
        isinstance(p, FactorGraphs)
        and getattr(run.solver, "objective", "margin") == "margin"
        and not any(side.any() for side in (p.arrays.variable_scores, p.arrays.factor_scores))
        and not any(side.any() for side in (p.arrays.variable_fixed, p.arrays.factor_fixed))
        and not p.has_structured
    ):
        worst = np.maximum.reduceat(p.arrays.losses, p.state_starts())
        return float(np.sum(p.arrays.weight * np.add.reduceat(worst, p.example_variables[:-1]))) / p.n_examples
    return math.inf

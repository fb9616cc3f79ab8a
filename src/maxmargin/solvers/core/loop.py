"""The main loop of all solvers: pass, check, report, save, until there is a reason to stop; and how it begins and ends."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from maxmargin import jit
from maxmargin.errors import OptionError
from maxmargin.formats.atomic import check_writable
from maxmargin.parallel.threads import Stopped, stopping
from maxmargin.problems.factor_graphs import FactorGraphs
from maxmargin.solvers.core.checkpoint import (
    Checkpoints,
    RunKey,
    data_key,
    load_state,
    structure_key,
)
from maxmargin.solvers.core.interrupt import Interruptible
from maxmargin.solvers.core.monitor import Monitor
from maxmargin.solvers.core.result import Result, Status
from maxmargin.solvers.core.run import Run, State

#: Seconds that the last check may take when the time is over.
_GRACE = 1.0


class Limits:
    """When to stop: the gap, the passes, and the seconds from now on."""

    def __init__(self, tol: float, max_passes: int, max_seconds: float | None) -> None:
        self.tol, self.max_passes, self.max_seconds = tol, max_passes, max_seconds
        self.deadline = math.inf if max_seconds is None else jit.clock() + max_seconds

    @property
    def late(self) -> bool:
        """Whether the time is over."""
        return jit.clock() >= self.deadline


class Checkpoint:
    """The file that a run is saved to and resumed from, if there is to be one."""

    def __init__(self, run: Run[Any], path: str | os.PathLike[str] | None, options: Mapping[str, Any]) -> None:
        self.run, self.path, self.saved, self.saved_pass = run, path, jit.clock(), 0
        if path is not None:
            self.rule = Checkpoints.of(path)
            check_writable(path)
            self.key = RunKey.of(run.solver.name, run.problem, options)

    def state(self) -> Any:
        """The state to resume from, or None."""
        if self.path is None or not os.path.exists(self.path):
            return None
        now = load_state(self.path, self.run.state_type, self.key)
        for name in now.on_device:
            setattr(now, name, self.run.device.put(getattr(now, name)))
        self.saved_pass = now.n_passes
        return now

    def save(self, now: State) -> None:
        """Write the state."""
        if self.path is not None:
            self.run.save(now, self.path, self.key)
            self.saved, self.saved_pass = jit.clock(), now.n_passes

    def save_if_due(self, now: State) -> None:
        """Write the state if the last time is long ago, or many passes."""
        if self.path is None:
            return
        by_pass = self.rule.passes is not None and now.n_passes - self.saved_pass >= self.rule.passes
        if by_pass or jit.clock() - self.saved > self.rule.seconds:
            self.save(now)


def first_state(run: Run[Any], state: Any, limits: Limits) -> Any:
    """Where a run begins: afresh, or where an earlier one ended, if its state fits the problem."""
    solver, problem = run.solver, run.problem
    data = structure_key(problem) if solver.portable else data_key(problem, weights=not solver.reweightable)
    if solver.device != "cpu":
        # Its vectors have other coordinates, and are elsewhere.
        data += 1
    if state is not None and not isinstance(state, run.state_type):
        raise OptionError(
            f'The earlier state is not one of "{solver.name}" with these options; start without it (warm_start=False).'
        )
    if state is not None and hasattr(solver, "inference") and state.relaxed and run.certificate != "relaxed":
        raise OptionError(
            "The earlier state belongs to the relaxed problem, and would certify what is not so of this one; start "
            "without it (warm_start=False)."
        )
    earlier = state if state is not None and state.data == data else None
    try:
        with stopping(lambda: limits.late):
            now = run.begin(earlier)
    except Stopped:
        # It has no state before its oracle has answered once.
        now = run.begin(earlier)
    now.data, now.relaxed = data, run.certificate == "relaxed"
    # Of sums of a few thousand terms, and of one over all examples.
    now.rounding = 2.0**-52 * (4096 + getattr(problem, "n_examples", 0))
    return now


def main_loop(run: Run[Any], now: State, limits: Limits, talk: Monitor, file: Checkpoint) -> Status:
    """Go on until there is a reason to stop."""
    tol, max_passes = limits.tol, limits.max_passes
    with Interruptible() as ctrl_c:
        over = _Over(ctrl_c, limits.deadline)
        while True:
            with suppress(Stopped), stopping(over):
                run.one_pass(now, over)
            late = limits.late
            last = ctrl_c.asked or late or now.n_passes >= max_passes
            off_schedule = not run.due(now)
            if off_schedule and not last:
                file.save_if_due(now)
                continue
            if off_schedule:
                file.save(now)
            try:
                with stopping(over.with_grace):
                    run.check(now, off_schedule)
            except Stopped:
                return Status.INTERRUPTED if ctrl_c.asked else Status.TIME_LIMIT
            late = late or limits.late
            report = run.report(now, max_passes, tol)
            go_on = talk.update(report._replace(weights=lambda: run.outside(run.weights(now))))
            status = run.verdict(now, tol, max_passes)
            if status is None and (ctrl_c.asked or not go_on):
                status = Status.INTERRUPTED
            elif status is None and late:
                status = Status.TIME_LIMIT
            if status is not None:
                if not off_schedule:
                    file.save(now)
                return status
            if not off_schedule:
                file.save_if_due(now)


def outcome(run: Run[Any], now: State, status: Status, limits: Limits) -> Result:
    """The result of a run, with what there is to say about it."""
    if not math.isfinite(now.primal):
        know_nothing(run, now)
    if not now.history:
        now.write_line()
    result = run.result(now, status)
    late_by, said = jit.clock() - limits.deadline, [result.message] if result.message else []
    if status is Status.TIME_LIMIT and late_by > _GRACE:
        said.append(
            f"The limit of {limits.max_seconds:g} s was passed by {late_by:.1f} s: one call of the oracle takes that long."
        )
    zero = value_at_zero(run) if result.certificate != "none" else math.inf
    if result.primal > zero * (1.0 + 1e-12):
        # Weights that are worse than none are of no use to anyone.
        result.weights = np.zeros_like(result.weights)
        result.primal, result.gap = zero, max(zero - result.dual, 0.0)
        said.append("No weights were found that are better than zero, which these are.")
    result.message = " ".join(said)
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
        return float(np.sum(p.arrays.weight * p.worst_losses())) / p.n_examples
    return math.inf

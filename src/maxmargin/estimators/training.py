"""Training: choose C if that is left open, train for it, and say what is left open."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Any

from sklearn.exceptions import ConvergenceWarning

from maxmargin import jit
from maxmargin.estimators.choosing import SOME, Choice, choose_C
from maxmargin.estimators.parameters import is_real
from maxmargin.estimators.stopping import Watch
from maxmargin.inference import Engine
from maxmargin.problems import FactorGraphs
from maxmargin.problems.conditionals import temperature_of
from maxmargin.solvers.core.checkpoint import option_in
from maxmargin.solvers.core.monitor import OnTheWay
from maxmargin.solvers.core.result import Result, Status

if TYPE_CHECKING:
    from maxmargin.reporting.progress import ProgressMonitor


def train(
    estimator: Any, solver: Any, problem: Any, state: Any, engine: Engine | None = None, watch: Watch | None = None
) -> None:
    """Choose C if that is left open, and train for it and for each C of a path, within the estimator's limits.

    From small to large, each from the one before. Sets ``C_``, ``validation_path_``, ``path_`` and ``result_``. A watch hears
    of the last runs, not of those that choose C.
    """
    monitor = _monitor(int(estimator.verbose))
    clock = jit.clock()
    results: dict[float, Result] = {}
    try:
        to_choose = not is_real(estimator.C)
        before = getattr(estimator, "C_", None)
        known = isinstance(estimator.C, str) or (to_choose and before in list(estimator.C))
        if known and state is not None and before is not None:
            choice = Choice(before, "as chosen by the fit before, from which this one starts", state=state)
        elif to_choose and estimator.checkpoint is not None and os.path.exists(estimator.checkpoint):
            # Written by the last run, after the path: nothing is chosen twice.
            C = float(option_in(estimator.checkpoint, "C"))
            choice = Choice(C, "as chosen before the checkpoint was written", state=state)
        elif to_choose:
            quiet = None if monitor is None else OnTheWay(monitor, "choosing C")
            choice = choose_C(estimator, solver, problem, engine, state, quiet)
        else:
            choice = Choice(float(estimator.C), "as asked", state=state)
        state = choice.state
        for C in sorted({choice.C, *(float(one) for one in getattr(estimator, "C_path", None) or ())}):
            left = None if estimator.max_seconds is None else float(estimator.max_seconds)
            if left is not None and choice.path:
                left = max(left - (jit.clock() - clock), 0.0)
            result: Result = choice.interrupted or solver.solve(
                problem, C=C, tol=float(estimator.tol), max_passes=int(estimator.max_passes), max_seconds=left,
                random_state=estimator.random_state, n_jobs=estimator.n_jobs,
                monitor=monitor if watch is None else watch.around(monitor), checkpoint=estimator.checkpoint, state=state,
            )  # fmt: skip
            result.options |= {"C": C, "tol": float(estimator.tol), "C_reason": choice.reason}
            if watch is not None and watch.active and choice.interrupted is None:
                watch.finish(result, float(estimator.tol))
            state, results[C] = result.state, result
    finally:
        if monitor is not None:
            monitor.close()
    warn_if_open(results[choice.C])
    estimator.C_, estimator.validation_path_ = choice.C, choice.path
    estimator.path_, estimator.result_ = results, results[choice.C]
    if isinstance(problem, FactorGraphs):
        estimator.temperature_ = choice.temperature
        if estimator.objective == "log" or problem.without_matrix:
            # Rows of a kernel whose matrix is not held have no scores of their own.
            estimator.temperature_ = 1.0
        elif choice.temperature is None:
            # As many variables are enough, if examples have many.
            n = SOME * problem.n_examples // max(problem.n_examples, len(problem.labels) // 8)
            estimator.temperature_ = temperature_of(problem, estimator.result_.weights, n)


def warn_if_open(result: Result) -> None:
    """Warn of a run that ended before its gap was closed, where one can be closed, and say what would help."""
    advice = {
        Status.MAX_PASSES: "Allow more passes (max_passes)",
        Status.TIME_LIMIT: "Allow more time (max_seconds)",
        Status.STALLED: "Its gap has stopped shrinking",
    }
    if result.certificate == "none" or result.status not in advice or not result.gap > result.options["tol"]:
        return
    warnings.warn(
        f"Training ended with {result.status} after {result.n_passes} passes, at a gap of {result.gap:.3g} where tol is "
        f"{result.options['tol']:g}. {advice[result.status]}; or try a larger tol, a smaller C than {result.options['C']:g}, or "
        "features on one scale (scale=True).",
        ConvergenceWarning,
        stacklevel=5,
    )


def _monitor(verbose: int) -> ProgressMonitor | None:
    if not verbose:
        return None
    from maxmargin.reporting.progress import ProgressMonitor

    return ProgressMonitor()

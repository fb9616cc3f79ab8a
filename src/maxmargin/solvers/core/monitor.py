"""How solvers talk: they report to a monitor and never print.

A monitor is called at every check with one `Report` and answers whether to go on. Whatever it does (a progress bar, a log
line, a callback of the user's) is timed apart from the algorithm.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray


class Report(NamedTuple):
    """What a solver knows at a check.

    Attributes
    ----------
    n_passes, max_passes : int
        Passes over the data that were made, and most that will be.
    seconds : float
        Seconds of training so far.
    primal, dual, gap : float
        The best objective so far, the best lower bound of the optimum, and their difference.
    tol : float
        The gap at which training stops.
    certificate : str
        "exact", "relaxed", "soft" or "none": the problem that the gap is about.
    weights : callable, optional
        Returns the flat weights of the best primal value so far, also where zero would be better; of the problem that the
        solver was given, whose columns estimators may have scaled.
    eval_loss : float, optional
        Loss of these weights on held-out examples, where `fit` has an ``eval_set``.
    """

    n_passes: int
    max_passes: int
    seconds: float
    primal: float
    dual: float
    gap: float
    tol: float
    certificate: str
    weights: Callable[[], NDArray[np.float64]] | None = None
    eval_loss: float | None = None


class Monitor(Protocol):
    """Something that listens to a solver."""

    def start(self, solver: str, max_passes: int, tol: float) -> None:
        """Training begins.

        Parameters
        ----------
        solver : str
            Name of the algorithm.
        max_passes : int
            Most passes over the data.
        tol : float
            Gap at which training stops.
        """

    def update(self, report: Report) -> bool:
        """Take one check's figures; return False to ask the solver to stop.

        Parameters
        ----------
        report : Report
            What the solver knows at this check.
        """

    def stop(self, summary: str) -> None:
        """Training ended, whatever the reason; `summary` is one sentence, or "" if there is nothing to say.

        Parameters
        ----------
        summary : str
            One sentence, or "" if there is nothing to say.
        """


class Silent:
    """Says nothing."""

    def start(self, solver: str, max_passes: int, tol: float) -> None:
        """Do nothing."""

    def update(self, report: Report) -> bool:
        """Go on."""
        return True

    def stop(self, summary: str) -> None:
        """Do nothing."""


class OnTheWay:
    """Passes on what is said of a run that is one of many on the way to something, without the summary."""

    def __init__(self, monitor: Monitor, purpose: str) -> None:
        self.monitor, self.purpose = monitor, purpose

    def start(self, solver: str, max_passes: int, tol: float) -> None:
        """Say what the run is for."""
        self.monitor.start(f"{solver}, {self.purpose}", max_passes, tol)

    def update(self, report: Report) -> bool:
        """Pass the report on."""
        return self.monitor.update(report)

    def stop(self, summary: str) -> None:
        """Pass on that it ended."""
        self.monitor.stop("")


class Callback(Silent):
    """Calls a function with each `Report`; training stops when it returns False.

    Parameters
    ----------
    function : callable
        Takes a `Report`; training goes on unless it returns False.
    """

    def __init__(self, function: Callable[[Report], object]) -> None:
        self.function = function

    def update(self, report: Report) -> bool:
        """Pass the report on."""
        return self.function(report) is not False

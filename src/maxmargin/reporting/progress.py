"""Progress on the standard error: a bar in a terminal, plain lines elsewhere.

The bar is full when the certified gap has come down to `tol`, on a logarithmic scale from the first gap: passes of a
solver that converges linearly move it by equal amounts. It never goes back.
"""

from __future__ import annotations

import math
import sys
import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from maxmargin.solvers.core.monitor import Report

_SECONDS_BETWEEN_LINES = 5.0


class ProgressMonitor:
    """Shows passes, the certified gap, the time elapsed and, at the end, the status.

    Parameters
    ----------
    console : rich.console.Console, optional
        Where to write; by default the standard error.
    every : float
        Seconds between the lines that are written where the console is no terminal.
    """

    def __init__(self, console: Console | None = None, every: float = _SECONDS_BETWEEN_LINES) -> None:
        self.console = console
        self.every = every
        self._progress: Progress | None = None
        self._task: Any = None
        self._first_gap = math.nan
        self._fraction = 0.0
        self._last_line = -math.inf

    def start(self, solver: str, max_passes: int, tol: float) -> None:
        """Show an empty bar, or nothing yet."""
        self._first_gap, self._fraction, self._last_line = math.nan, 0.0, time.monotonic()
        if self.console is None:
            # Looked up now: what the standard error is may change between two trainings.
            self.console = Console(file=sys.stderr)
        if self.console.is_terminal:
            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=30),
                TextColumn("{task.fields[figures]}"),
                TimeElapsedColumn(),
                console=self.console,
                transient=True,
            )
            self._progress.start()
            self._task = self._progress.add_task(solver, total=1.0, figures="starting")

    def update(self, report: Report) -> bool:
        """Show a check's figures; never asks to stop."""
        self._fraction = max(self._fraction, self._done(report))
        if self._progress is not None:
            figures = f"pass {report.n_passes}  {report.certificate} gap {report.gap:.2e} → {report.tol:.0e}"
            self._progress.update(self._task, completed=self._fraction, figures=figures)
        elif self.console is not None and time.monotonic() - self._last_line >= self.every:
            self._last_line = time.monotonic()
            self._line(
                f"pass {report.n_passes} of at most {report.max_passes}: {report.certificate} gap {report.gap:.3g} "
                f"(tol {report.tol:g}), {report.seconds:.1f} s"
            )
        return True

    def stop(self, summary: str) -> None:
        """Take the bar away and say how it ended."""
        self.close()
        if summary:
            self._line(summary)

    def close(self) -> None:
        """Take the bar away, if there is one: also when training fails, or the cursor would stay hidden."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def _line(self, text: str) -> None:
        if self.console is not None:
            self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _done(self, report: Report) -> float:
        """How far the gap has come, in 0..1."""
        gap, tol = report.gap, report.tol
        if math.isfinite(gap) and not math.isfinite(self._first_gap):
            self._first_gap = gap
        if gap <= tol:
            return 1.0
        by_passes = report.n_passes / report.max_passes if tol <= 0 else 0.0
        if not math.isfinite(gap) or tol <= 0 or self._first_gap <= gap:
            return by_passes
        return math.log(self._first_gap / gap) / math.log(self._first_gap / tol)

"""Signals that ask a process to stop: Ctrl-C (SIGINT), SIGTERM, and SIGHUP where there is one.

While training runs in the main thread, the first of them only raises a flag (`maxmargin.solvers.core.interrupt`). This module knows
which signals they are and which one came last, and has what the command line does with them outside of training.
"""

from __future__ import annotations

import signal
from types import FrameType

#: The signals that stop training, by name where the platform has them.
STOP_SIGNALS: tuple[signal.Signals, ...] = tuple(
    signal.Signals[name] for name in ("SIGINT", "SIGTERM", "SIGHUP") if name in signal.Signals.__members__
)


class StopSignal(KeyboardInterrupt):
    """A signal other than Ctrl-C asked to stop; `number` is the signal's."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class _Last:
    number: int = int(signal.SIGINT)


def remember(number: int) -> None:
    """Note which signal asked to stop."""
    _Last.number = number


def last_stop() -> signal.Signals:
    """The signal that asked to stop last; SIGINT if none did."""
    return signal.Signals(_Last.number)


def raise_stopped(number: int, frame: FrameType | None) -> None:
    """A handler: end what is going on, with everything cleaned up on the way."""
    remember(number)
    raise StopSignal(number)

"""Ctrl-C during training, or SIGTERM or SIGHUP: a request to stop, not an exception in the middle of an update.

While training runs in the main thread under the usual handlers, the first signal only raises a flag, which solvers look at
between kernels; a second one does what it would have done without us. In other threads, or where someone else handles a signal
or ignores it (as ``nohup`` does), nothing changes.
"""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any

from maxmargin.signals import STOP_SIGNALS, raise_stopped, remember

_USUAL = (signal.default_int_handler, signal.SIG_DFL, raise_stopped)


class Interruptible:
    """Context manager; `asked` tells whether a signal to stop came inside it."""

    def __init__(self) -> None:
        self.asked = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Interruptible:
        if threading.current_thread() is threading.main_thread():
            for number in STOP_SIGNALS:
                if signal.getsignal(number) in _USUAL:
                    self._previous[number] = signal.signal(number, self._ask)
        return self

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            previous = self._previous[number]
            if callable(previous):
                previous(number, frame)
            else:
                signal.signal(number, previous)
                os.kill(os.getpid(), number)
        remember(number)
        self.asked = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, previous in self._previous.items():
            signal.signal(number, previous)

"""Ctrl-C during training: a request to stop, not an exception in the middle of an update.

While training runs in the main thread under Python's own handler, the first Ctrl-C only raises a flag, which solvers look at
between kernels; a second one interrupts as usual. In other threads, or where someone else handles the signal, nothing changes.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class Interruptible:
    """Context manager; `asked` tells whether Ctrl-C was pressed inside it."""

    def __init__(self) -> None:
        self.asked = False
        self._previous: Any = None

    def __enter__(self) -> Interruptible:
        if (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        ):
            self._previous = signal.signal(signal.SIGINT, self._ask)
        return self

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            signal.default_int_handler(number, frame)
        self.asked = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)

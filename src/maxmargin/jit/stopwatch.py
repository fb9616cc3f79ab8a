"""The seconds that compilation takes: counted in whatever thread, announced once, and left out of `clock`."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from functools import cache
from typing import Any

from .folder import cache_folder
from .sources import of_package

try:
    from numba.core import event

    # Numba's stubs have no types for this.
    _events: Any = event
    _HAS_EVENTS = True
except ImportError:  # another Numba than those that are known
    _HAS_EVENTS = False

#: Seconds of compilation after which it is announced.
_PATIENCE = 2.0


@cache
def say_once(sentence: str) -> None:
    """Print a sentence on the standard error, once a process."""
    with contextlib.suppress(Exception):  # there may be no standard error
        print(sentence, file=sys.stderr, flush=True)


def announce_compilation() -> None:
    """Say, once a process, that kernels are being compiled."""
    problem = cache_folder()[1]
    say_once(problem or "Compiling kernels for this machine; they are kept for next time.")


class _Stopwatch:
    """Seconds of compilation. Numba compiles in one thread at a time, and a compilation contains those of what it calls."""

    def __init__(self) -> None:
        self.depth = 0
        self.quiet = False
        # Seconds of what is over, and when the present one began: read at once by other threads.
        self.state: tuple[float, float | None] = (0.0, None)
        self.timer: threading.Timer | None = None

    def begin(self, ours: bool) -> None:
        self.depth += 1
        if self.depth > 1:
            return
        total = self.state[0]
        self.state = total, time.perf_counter()
        if ours and not self.quiet:
            self.timer = threading.Timer(max(0.0, _PATIENCE - total), self.announce)
            self.timer.daemon = True
            self.timer.start()

    def end(self) -> None:
        self.depth -= 1
        total, started = self.state
        if self.depth == 0 and started is not None:
            self.state = total + time.perf_counter() - started, None
            if self.timer is not None:
                self.timer.cancel()
                self.timer = None

    def announce(self) -> None:
        if not self.quiet:
            self.quiet = True
            announce_compilation()

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        self.begin(ours=False)
        try:
            yield
        finally:
            self.end()


_stopwatch = _Stopwatch()
counting = _stopwatch.counting

if _HAS_EVENTS:

    class _Listener(_events.Listener):
        def on_start(self, event: Any) -> None:
            function = getattr((event.data or {}).get("dispatcher"), "py_func", None)
            _stopwatch.begin(of_package(str(getattr(function, "__module__", ""))))

        def on_end(self, event: Any) -> None:
            _stopwatch.end()

    _events.register("numba:compile", _Listener())


def silence() -> None:
    """Do not announce compilation in this process."""
    _stopwatch.quiet = True


def compile_seconds() -> float:
    """Seconds that this process has spent compiling, in whatever thread, until now."""
    total, started = _stopwatch.state
    return total if started is None else total + time.perf_counter() - started


def clock() -> float:
    """Seconds from some moment, as `time.perf_counter`, which stand still while kernels are being compiled."""
    return time.perf_counter() - compile_seconds()

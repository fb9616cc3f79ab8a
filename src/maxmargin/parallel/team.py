"""Threads that stay awake for a moment after their work: the next piece of it often comes at once.

It takes some tens of microseconds to wake a thread, and systems may put it on the core of the thread that woke it, where both are
slow for some milliseconds. So a thread that has nothing to do looks for work for a millisecond before it sleeps, as those of OpenMP
do.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from typing import Any

import numba
import numpy as np

from maxmargin.jit import atomic_add, atomic_read, give_way, kernel, wait_a_little
from maxmargin.parallel.lines import LINE, zeros_in_lines

#: Looks for work before a thread sleeps, about a millisecond, and between two at which another thread may have the core.
_LOOKS, _SOME = 0 if getattr(numba.config, "DISABLE_JIT", False) else 30_000, 1_000


class Team:
    """Some threads, which call functions and then wait for more, awake for a moment.

    Parameters
    ----------
    size : int
        Threads.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.signals = zeros_in_lines((size * LINE,), np.int64)
        self.semaphores = [threading.Semaphore(0) for _ in range(size)]
        self.jobs: list[tuple[Future[None], Callable[[], None]] | None] = [None] * size
        for number in range(size):
            threading.Thread(target=self._work, args=(number,), daemon=True, name=f"maxmargin-{number}").start()

    def start(self, functions: Sequence[Callable[[], None]]) -> list[Future[None]]:
        """Have each function called by a thread of its own; at most as many as there are threads."""
        started: list[Future[None]] = []
        for number, function in enumerate(functions):
            started.append(Future())
            self.jobs[number] = started[-1], function
            signal(self.signals, number * LINE)
            self.semaphores[number].release()
        return started

    def _work(self, number: int) -> None:
        seen = 0
        while True:
            wait_for_signal(self.signals, number * LINE, seen, _LOOKS)
            self.semaphores[number].acquire()
            seen += 1
            job, self.jobs[number] = self.jobs[number], None
            assert job is not None
            _do(*job)
            # What it was given is not kept while it sleeps.
            del job


def _do(future: Future[None], function: Callable[[], None]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        function()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(None)


_idle: list[Team] = []
_lock = threading.Lock()


def in_threads(leader: Callable[[], None], helpers: Sequence[Callable[[], None]]) -> None:
    """Run `leader` here and helpers in other threads at the same time; those that have not begun when it ends never do."""
    if not helpers:
        leader()
        return
    team = _borrow(len(helpers))
    started = team.start(helpers)
    try:
        leader()
    finally:
        for one in started:
            one.cancel()
        wait(started)
        with _lock:
            _idle.append(team)
    for one in started:
        if not one.cancelled():
            one.result()


def _borrow(size: int) -> Team:
    """A team that nobody else has."""
    with _lock:
        for k, team in enumerate(_idle):
            if team.size >= size:
                return _idle.pop(k)
    return Team(size)


def _forget() -> None:
    # A forked process has none of its parent's threads, and someone may have held the lock.
    global _lock
    _idle.clear()
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


# ------------------------------------------------------------------------------------------------------- kernels


@kernel
def signal(signals: Any, at: int) -> None:
    """Tell a thread that is awake that there is work."""
    atomic_add(signals, at, 1)


@kernel
def wait_for_signal(signals: Any, at: int, seen: int, looks: int) -> None:
    """Wait for one more signal, but not for long."""
    for look in range(looks):
        if atomic_read(signals, at) > seen:
            return
        if look % _SOME == _SOME - 1:
            give_way()
        else:
            wait_a_little()

"""Turns: rounds of work that threads share, each followed by work of one thread alone, inside compiled loops.

A loop over batches of a few examples has turns that take less time than it takes to hand work to a thread of Python. So every
thread runs one kernel for many turns, and they meet in an array of numbers that all of them see (`turn_counters`). A turn has
*parts*, which anyone takes; the *leader* waits until all are done, does what is its own, and opens the next turn, until it closes
the whole. The parts do not depend on the number of threads, and it does not matter who does one.

A helper is waited for only while it is at work on a part: one that begins late, or never, is not missed. Whoever finds nothing to
do for some microseconds returns from the kernel, to be called again after others had a chance to run.

Layout of the counters: parts that were taken, parts that may be taken, parts that are done, whether the leader has closed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.jit import atomic_add, atomic_read, atomic_swap, atomic_write, inner
from maxmargin.parallel.threads import in_threads

_TAKEN, _OPEN, _DONE, _CLOSED = (8 * k for k in range(4))
#: Looks for work before a thread gives up for a while: some 20 microseconds.
PATIENCE = 1000


def turn_counters() -> NDArray[np.int64]:
    """Counters of turns that have not begun, each in a line of the cache of its own."""
    return np.zeros(32, np.int64)


def take_turns(counters: NDArray[np.int64], lead: Callable[[], bool], helper: Callable[[], bool], threads: int) -> None:
    """Call `lead` here until it says that it is done, and `helper` in other threads until the turns are closed."""

    def help_out() -> None:
        while not helper():
            time.sleep(0)

    def lead_on() -> None:
        try:
            while not lead():
                time.sleep(0)
        finally:
            counters[_CLOSED] = 1

    in_threads(lead_on, help_out, threads)


# ------------------------------------------------------------------------------------------------------- kernels


@inner
def open_turn(counters: Any, parts: int) -> None:
    """Let so many more parts be taken."""
    atomic_add(counters, _OPEN, parts)


@inner
def take_part(counters: Any) -> int:
    """The number of a part, counted over all turns, that nobody else has; -1 if none is open."""
    while True:
        taken = atomic_read(counters, _TAKEN)
        if taken >= atomic_read(counters, _OPEN):
            return -1
        if atomic_swap(counters, _TAKEN, taken, taken + 1):
            return int(taken)


@inner
def end_part(counters: Any) -> None:
    """A part that was taken is done."""
    atomic_add(counters, _DONE, 1)


@inner
def turns_began(counters: Any) -> bool:
    """Whether any part was opened."""
    return bool(atomic_read(counters, _OPEN) > 0)


@inner
def turn_is_over(counters: Any) -> bool:
    """Whether all parts that were opened are done."""
    return bool(atomic_read(counters, _DONE) == atomic_read(counters, _OPEN))


@inner
def close_turns(counters: Any) -> None:
    """There will be no more turns."""
    atomic_write(counters, _CLOSED, 1)


@inner
def turns_are_closed(counters: Any) -> bool:
    """Whether there will be no more turns."""
    return bool(atomic_read(counters, _CLOSED) != 0)

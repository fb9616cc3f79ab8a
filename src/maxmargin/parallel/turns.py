"""Turns: rounds of work that threads share, each followed by what all of them do, inside compiled loops.

A loop over batches of a few examples has turns that take less time than it takes to hand work to a thread of Python. So every
thread runs one kernel for many turns, and they meet in an array of numbers that all of them see (`turn_counters`). A turn has
*parts*, which anyone takes. When all are done, the *leader* may *announce* that every thread has to do something for itself, such
as bringing a copy of its own up to date; when all *helpers* have followed, the leader does what is its own and opens the next
turn, until it closes the whole. The parts do not depend on who does one.

A helper that has not begun when the leader's patience ends is not waited for, and never begins. Whoever finds nothing to do for
a millisecond or so returns from the kernel, to be called again after others had a chance to run.

Layout of the counters: parts that were taken, parts that may be taken, parts that are done, whether the leader has closed,
announcements, how often they were followed, helpers that have begun (-1 - their number when no more may), helpers expected. A
thread's *role* is an array of its own: LEADER or HELPER, whether it has begun, the announcements that it followed (of the leader:
how often it waited for helpers), and for how long it has found nothing to do.

A kernel asks for one task after the other (`next_task`):

    PART     do a part, whose number comes with it, and call `end_part`
    FOLLOW   do what every thread has to do for itself, and call `follow`
    LEAD     for the leader: all is done; announce, or open the next turn, or close
    CLOSED   return; nothing is left to do
    WAITING  return, and be called again
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.jit import atomic_add, atomic_read, atomic_swap, atomic_write, inner, wait_a_little
from maxmargin.parallel.lines import LINE, zeros_in_lines
from maxmargin.parallel.threads import in_threads

_TAKEN, _OPEN, _DONE, _CLOSED_TURNS, _ANNOUNCED, _FOLLOWED, _HERE, _EXPECTED = (LINE * k for k in range(8))
#: Looks for work before a thread gives up for a while, about a millisecond; how often the leader waits so long for helpers.
PATIENCE, _WAITS = 50_000, 10
LEADER, HELPER = range(2)
PART, FOLLOW, LEAD, CLOSED, WAITING = range(5)
_KIND, _BEGAN, _SEEN, _IDLE = range(4)


def turn_counters() -> NDArray[np.int64]:
    """Counters of turns that have not begun, each in a line of the cache of its own."""
    return zeros_in_lines((8 * LINE,), np.int64)


def new_role(kind: int) -> NDArray[np.int64]:
    """The role of a thread, LEADER or HELPER."""
    role = zeros_in_lines((LINE,), np.int64)
    role[_KIND] = kind
    return role


def take_turns(counters: NDArray[np.int64], lead: Callable[[], bool], helpers: Sequence[Callable[[], bool]]) -> None:
    """Call `lead` here until it says that it is done, and each helper in a thread of its own until the turns are closed."""
    counters[_EXPECTED] = len(helpers)

    failed: list[bool] = []

    def help_out(helper: Callable[[], bool]) -> None:
        try:
            while not helper():
                time.sleep(0)
        except BaseException:
            failed.append(True)
            raise

    def lead_on() -> None:
        try:
            # A helper that failed is waited for in vain; its error is raised when all have ended.
            while not failed and not lead():
                time.sleep(0)
        finally:
            counters[_CLOSED_TURNS] = 1

    in_threads(lead_on, [partial(help_out, one) for one in helpers])


# ------------------------------------------------------------------------------------------------------- kernels


@inner
def next_task(counters: Any, role: Any, n_parts: int) -> tuple[int, int]:
    """What a thread has to do next, and the number of the part if it is one; each turn has `n_parts`."""
    if not _is_here(counters, role):
        return (CLOSED if role[_KIND] == HELPER else WAITING), 0
    while True:
        if role[_KIND] == HELPER and atomic_read(counters, _ANNOUNCED) > role[_SEEN]:
            return FOLLOW, 0
        part = _take_part(counters)
        if part >= 0:
            role[_IDLE] = 0
            return PART, part % n_parts
        if role[_KIND] == LEADER:
            helpers = -1 - atomic_read(counters, _HERE)
            if atomic_read(counters, _DONE) == atomic_read(counters, _OPEN) and (
                atomic_read(counters, _FOLLOWED) == helpers * atomic_read(counters, _ANNOUNCED)
            ):
                return LEAD, 0
        elif atomic_read(counters, _CLOSED_TURNS) != 0 and atomic_read(counters, _ANNOUNCED) == role[_SEEN]:
            return CLOSED, 0
        role[_IDLE] += 1
        if role[_IDLE] > PATIENCE:
            role[_IDLE] = 0
            return WAITING, 0
        wait_a_little()


@inner
def _is_here(counters: Any, role: Any) -> bool:
    """A thread begins. Whether it may go on: a helper unless it is late, the leader when it waits for no more helpers."""
    while not role[_BEGAN]:
        here = atomic_read(counters, _HERE)
        if role[_KIND] == HELPER:
            if here < 0:
                return False
            role[_BEGAN] = atomic_swap(counters, _HERE, here, here + 1)
            continue
        looks = 0
        while here < counters[_EXPECTED] and role[_SEEN] < _WAITS:
            wait_a_little()
            here = atomic_read(counters, _HERE)
            looks += 1
            if looks > PATIENCE:
                role[_SEEN] += 1
                return False
        role[_BEGAN] = atomic_swap(counters, _HERE, here, -1 - here)
    return True


@inner
def open_turn(counters: Any, parts: int) -> None:
    """Let so many more parts be taken."""
    atomic_add(counters, _OPEN, parts)


@inner
def _take_part(counters: Any) -> int:
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
def close_turns(counters: Any) -> None:
    """There will be no more turns."""
    atomic_write(counters, _CLOSED_TURNS, 1)


@inner
def announce(counters: Any) -> None:
    """Tell all helpers to do what they have to do for themselves."""
    atomic_add(counters, _ANNOUNCED, 1)


@inner
def follow(counters: Any, role: Any) -> None:
    """A helper has done what was announced."""
    role[_SEEN] += 1
    atomic_add(counters, _FOLLOWED, 1)

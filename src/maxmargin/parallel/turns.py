"""Turns: batches of work that threads share, each followed by what every thread does for itself, inside compiled loops.

A loop over batches of a few examples has turns that take less time than it takes to hand work to a thread of Python. So every
thread runs one kernel for many batches, and they meet in an array of numbers that all of them see (`turn_counters`).

A batch has *parts*, which anyone takes. What is found there is written to a *slot* of the batch, and every thread brings a copy of
its own up to date by it: it *writes* the batch. A thread takes parts of a batch when it has written all batches before, and writes
one when all of its parts are taken, result after result, as they become ready. So threads wait for results that are missing, and
for nothing else. The parts do not depend on who does one, nor does the order in which results are written.

The *leader* opens the next batch when it begins one; there are SLOTS slots. It waits for no *helper* that is behind, only for one
that holds a part it needs: a helper that has not written a batch when its slot is needed, that has not begun when the leader's
patience ends, or that holds a part for long (`take_turns`), is *retired*. It takes no more parts, and its copy is not to be used.
So on a machine that is busy with something else the leader goes on alone. Whoever finds nothing to do for some tenths of a
millisecond returns from the kernel, to be called again after others had a chance to run.

Layout of the counters: parts that were taken, parts that may be taken, parts that are done, all counted over all batches; whether
the turns are running, ended or aborted; whether someone asked the leader to open no more batches; for each helper, the batches that
it has written (-1 before it begins) and the part that it holds (-1 if none), and in a line of its own whether it is retired.

A thread's *role* is an array of its own: its number (0 is the leader), the batches that it has written, how many results of the
next one, whether it has begun, and for how long it has found nothing to do.

A kernel asks for one task after the other (`next_task`):

    PART     do a part, whose number over all batches comes with it, and call `end_part`
    WRITE    write the batch whose number comes with it, where `is_ready` says so, and call `end_batch`
    LEAD     for the leader: no part of the batch is open; open it, or close
    CLOSED   return; nothing is left to do
    WAITING  return, and be called again
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.jit import atomic_add, atomic_read, atomic_swap, atomic_write, give_way, inner, wait_a_little
from maxmargin.parallel.lines import LINE, zeros_in_lines
from maxmargin.parallel.team import in_threads

#: Batches whose results are kept at a time: so far may a helper be behind.
SLOTS = 16
#: Looks for something to do between two at which another thread may have the core; before a thread gives up for a while, some
#: tenths of a millisecond; and before the leader does without helpers that have not begun.
_LOOKS, _PATIENCE, _FIRST_PATIENCE = 1_000, 20_000, 50_000
#: A helper is late when the leader waits for its part for so many seconds, and so many times as long as a batch takes.
_LATE, _LATE_BATCHES = 1e-3, 2.0
#: Seconds that a helper sleeps when it has found nothing to do, at first and at most; those of a call that found something.
_NAP, _LONGEST_NAP, _AT_WORK = 5e-5, 2e-3, 2e-3

PART, WRITE, LEAD, CLOSED, WAITING = range(5)
#: Places of a role; the rest of its line is free.
NUMBER, BATCH, PLACE, _BEGAN, _IDLE, FREE = range(6)
_RUNNING, _ENDED, _ABORTED = range(3)
_TAKEN, _OPEN, _DONE, _STATE, _ASKED, _HELPERS = (LINE * k for k in range(6))
_WRITTEN, _HOLDS, _RETIRED, _LINES = 0, 1, LINE, 2 * LINE


def turn_counters(n_helpers: int = 0, first: int = 0, n_parts: int = 1) -> NDArray[np.int64]:
    """Counters of turns that have not begun, the `first` batches of which are over; threads share no line of the cache here."""
    counters = zeros_in_lines((_HELPERS + n_helpers * _LINES,), np.int64)
    counters[[_TAKEN, _OPEN, _DONE]] = first * n_parts
    for name in (_WRITTEN, _HOLDS):
        counters[_HELPERS + name :: _LINES] = -1
    return counters


def new_role(number: int, first: int = 0) -> NDArray[np.int64]:
    """The role of a thread: the leader is number 0, helpers are 1, 2 and so on; the `first` batches are over."""
    role = zeros_in_lines((LINE,), np.int64)
    role[NUMBER], role[BATCH] = number, first
    return role


def take_turns(
    counters: NDArray[np.int64], lead: Callable[[], bool], helpers: Sequence[Callable[[], bool]], n_parts: int = 1
) -> None:
    """Call `lead` here until it says that it is done, and each helper in a thread of its own until the turns are closed."""
    failed: list[bool] = []

    def help_out(helper: Callable[[], bool]) -> None:
        nap, since = _NAP, time.perf_counter()
        try:
            while not helper():
                nap = _NAP if time.perf_counter() - since > _AT_WORK else min(2.0 * nap, _LONGEST_NAP)
                time.sleep(nap)
                since = time.perf_counter()
        except BaseException:
            failed.append(True)
            raise

    def lead_on() -> None:
        begin, before, since, state = time.perf_counter(), counters[_OPEN], 0.0, _ABORTED
        waits_for = -1
        try:
            # A helper that failed is waited for in vain; its error is raised when all have ended.
            while not failed:
                if lead():
                    state = _ENDED
                    break
                _give_way()
                now, n_open = time.perf_counter(), int(counters[_OPEN])
                if waits_for != n_open:
                    waits_for, since = n_open, now
                usual = _LATE_BATCHES * n_parts * (since - begin) / max(n_parts, n_open - before)
                if now - since > max(_LATE, usual):
                    _retire_holders(counters)
        finally:
            counters[_STATE] = state

    in_threads(lead_on, [partial(help_out, one) for one in helpers])


def has_written(counters: NDArray[np.int64], role: NDArray[np.int64], n_parts: int) -> bool:
    """Whether a helper has written all batches of turns that are over, and was not retired."""
    retired = counters[_HELPERS + (role[NUMBER] - 1) * _LINES + _RETIRED]
    return bool(role[BATCH] * n_parts == counters[_OPEN] and not retired)


def _give_way() -> None:
    """Let another thread run on this core."""
    if hasattr(os, "sched_yield"):
        os.sched_yield()
    else:
        time.sleep(0)


def _retire_holders(counters: NDArray[np.int64]) -> None:
    """Retire the helpers that hold a part."""
    for at in range(_HELPERS, len(counters), _LINES):
        if counters[at + _HOLDS] >= 0:
            counters[at + _RETIRED] = 1


# ------------------------------------------------------------------------------------------------------- kernels


@inner
def _place(helper: int) -> int:
    """Where the counters of a helper are."""
    return _HELPERS + (helper - 1) * _LINES


@inner
def _is_retired(counters: Any, role: Any) -> bool:
    return bool(atomic_read(counters, _place(role[NUMBER]) + _RETIRED) != 0)


@inner
def next_task(counters: Any, role: Any, n_parts: int) -> tuple[int, int]:
    """What a thread has to do next, and the number of the part or batch; each batch has `n_parts`."""
    if not role[_BEGAN]:
        _begin(counters, role)
    helper, b = role[NUMBER], role[BATCH]
    end = (b + 1) * n_parts
    while True:
        state = atomic_read(counters, _STATE)
        if helper > 0 and (state == _ABORTED or _is_retired(counters, role)):
            return CLOSED, 0
        taken = atomic_read(counters, _TAKEN)
        if taken >= end:
            return WRITE, b
        if taken < atomic_read(counters, _OPEN):
            if atomic_swap(counters, _TAKEN, taken, taken + 1):
                if helper > 0:
                    atomic_write(counters, _place(helper) + _HOLDS, taken)
                role[_IDLE] = 0
                return PART, taken
            continue
        if helper == 0:
            return LEAD, b
        if state == _ENDED:
            return CLOSED, 0
        role[_IDLE] += 1
        if role[_IDLE] > _PATIENCE:
            role[_IDLE] = 0
            return WAITING, 0
        _wait(role[_IDLE])


@inner
def _begin(counters: Any, role: Any) -> None:
    """A helper says that it is there; the leader waits for them a little, and retires those that are not."""
    role[_BEGAN] = 1
    if role[NUMBER] > 0:
        atomic_write(counters, _place(role[NUMBER]) + _WRITTEN, role[BATCH])
        return
    looks = 0
    for at in range(_HELPERS, len(counters), _LINES):
        while atomic_read(counters, at + _WRITTEN) < 0 and looks < _FIRST_PATIENCE:
            wait_a_little()
            looks += 1
        if atomic_read(counters, at + _WRITTEN) < 0:
            atomic_write(counters, at + _RETIRED, 1)


@inner
def end_part(counters: Any, role: Any) -> None:
    """The part that a thread took is done, and its results are ready."""
    atomic_add(counters, _DONE, 1)
    if role[NUMBER] > 0:
        atomic_write(counters, _place(role[NUMBER]) + _HOLDS, -1)


@inner
def make_ready(flags: Any, at: int, b: int) -> None:
    """A result of batch b can be written by all; `flags` has an entry for each result of a slot."""
    atomic_write(flags, at, b + 1)


@inner
def is_ready(flags: Any, at: int, b: int) -> bool:
    """Wait a little for a result of batch b; whether it is ready."""
    looks = 0
    while atomic_read(flags, at) <= b:
        looks += 1
        if looks > _PATIENCE:
            return False
        _wait(looks)
    return True


@inner
def _wait(looks: int) -> None:
    """Wait a little before the next look."""
    if looks % _LOOKS == 0:
        give_way()
    else:
        wait_a_little()


@inner
def parts_are_done(counters: Any, role: Any, n_parts: int) -> bool:
    """Wait a little for all parts of the batches until a thread's own; whether they are done."""
    return bool(is_ready(counters, _DONE, (role[BATCH] + 1) * n_parts - 1))


@inner
def end_batch(counters: Any, role: Any) -> None:
    """A thread has written a batch."""
    role[BATCH] += 1
    role[PLACE] = 0
    if role[NUMBER] > 0:
        atomic_write(counters, _place(role[NUMBER]) + _WRITTEN, role[BATCH])


@inner
def open_batches(counters: Any, role: Any, n_parts: int, n_batches: int) -> None:
    """The leader opens its next batch and the one after it, and retires helpers whose slot of an earlier one is needed."""
    if atomic_read(counters, _ASKED) != 0:
        return
    end = min(role[BATCH] + 2, n_batches)
    if atomic_read(counters, _OPEN) < end * n_parts:
        for at in range(_HELPERS, len(counters), _LINES):
            if atomic_read(counters, at + _WRITTEN) < end - SLOTS:
                atomic_write(counters, at + _RETIRED, 1)
        atomic_write(counters, _OPEN, end * n_parts)


@inner
def ask_for_pause(counters: Any) -> None:
    """Ask the leader to open no more batches."""
    atomic_write(counters, _ASKED, 1)


@inner
def pause_is_asked(counters: Any) -> bool:
    """Whether no more batches are to be opened."""
    return bool(atomic_read(counters, _ASKED) != 0)


@inner
def close_turns(counters: Any) -> None:
    """There will be no more batches."""
    atomic_write(counters, _STATE, _ENDED)

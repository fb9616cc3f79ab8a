"""Turns: every part is done once, all threads write the same, nobody waits for ever, and late helpers are done without."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from maxmargin.jit import atomic_add, atomic_read, atomic_swap, atomic_write, kernel
from maxmargin.parallel.team import in_threads
from maxmargin.parallel.turns import (
    BATCH,
    CLOSED,
    LEAD,
    NUMBER,
    PART,
    PLACE,
    SLOTS,
    WAITING,
    WRITE,
    ask_for_pause,
    close_turns,
    end_batch,
    end_part,
    has_written,
    is_ready,
    make_ready,
    new_role,
    next_task,
    open_batches,
    parts_are_done,
    pause_is_asked,
    take_turns,
    turn_counters,
)

PARTS = 5


@kernel
def run_turns(counters, role, found, flags, own, n_batches, pause_at):
    """Part p of batch b finds p + the sum of all that was found before, which every thread writes into a sum of its own."""
    while True:
        task, number = next_task(counters, role, PARTS)
        if task == PART:
            b, p = number // PARTS, number % PARTS
            at = b % SLOTS * PARTS + p
            found[at] = p + own[0]
            if b == pause_at:
                ask_for_pause(counters)
            make_ready(flags, at, b)
            end_part(counters, role)
        elif task == WRITE:
            for p in range(role[PLACE], PARTS):
                at = number % SLOTS * PARTS + p
                if not is_ready(flags, at, number):
                    role[PLACE] = p
                    return WAITING
                own[1] = (own[1] * 31 + found[at]) % 1_000_003
            own[0] = own[1]
            end_batch(counters, role)
            if role[NUMBER] == 0:
                open_batches(counters, role, PARTS, n_batches)
        elif task == LEAD:
            if number < n_batches and not pause_is_asked(counters):
                open_batches(counters, role, PARTS, n_batches)
                continue
            close_turns(counters)
            return CLOSED
        else:
            return task


def turns(threads, n_batches, first=0, own=None, pause_at=-1):
    counters, roles = turn_counters(threads - 1, first, PARTS), [new_role(k, first) for k in range(threads)]
    found, flags = np.zeros(SLOTS * PARTS, np.int64), np.zeros(SLOTS * PARTS, np.int64)
    own = [np.zeros(2, np.int64) for _ in range(threads)] if own is None else own
    leader, *helpers = [
        lambda k=k: run_turns(counters, roles[k], found, flags, own[k], n_batches, pause_at) == CLOSED
        for k in range(threads)
    ]
    take_turns(counters, leader, helpers, PARTS)
    return counters, roles, own


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_every_thread_writes_what_one_thread_would(threads):
    n = 2000
    _, _, (alone,) = turns(1, n)
    counters, roles, own = turns(threads, n)
    assert own[0].tolist() == alone.tolist()
    assert roles[0][BATCH] == n
    for role, copy in zip(roles[1:], own[1:], strict=True):
        # One that was late was retired, and its copy is not to be used.
        if has_written(counters, role, PARTS):
            assert copy.tolist() == alone.tolist()


@pytest.mark.parametrize("threads", [1, 3])
def test_a_pause_comes_at_the_end_of_a_batch_and_turns_go_on_after_it(threads):
    n = 300
    _, _, (alone,) = turns(1, n)
    counters, roles, own = turns(threads, n, pause_at=100)
    assert 101 <= roles[0][BATCH] <= 103
    current = [k for k in range(1, threads) if has_written(counters, roles[k], PARTS)]
    _, roles, own = turns(1 + len(current), n, int(roles[0][BATCH]), [own[0], *(own[k] for k in current)])
    assert roles[0][BATCH] == n
    assert own[0].tolist() == alone.tolist()


def test_one_thread_never_waits():
    """All that it waits for it does itself: the kernel returns once."""
    counters, role, own = turn_counters(), new_role(0), np.zeros(2, np.int64)
    room = np.zeros((2, SLOTS * PARTS), np.int64)
    assert run_turns(counters, role, room[0], room[1], own, 50, -1) == CLOSED


def test_a_helper_that_comes_late_is_retired():
    counters, own = turn_counters(1), np.zeros((2, 2), np.int64)
    room, role = np.zeros((2, SLOTS * PARTS), np.int64), new_role(1)
    assert run_turns(counters, new_role(0), room[0], room[1], own[0], 30, -1) == CLOSED
    assert run_turns(counters, role, room[0], room[1], own[1], 30, -1) == CLOSED
    assert own[1].tolist() == [0, 0]
    assert not has_written(counters, role, PARTS)


def test_a_leader_goes_on_alone_when_a_helper_takes_long():
    """A helper that falls asleep with a part is waited for, and gets no other."""
    n = 400
    _, _, (alone,) = turns(1, n)
    counters, roles = turn_counters(1, 0, PARTS), [new_role(0), new_role(1)]
    found, flags, own = np.zeros(SLOTS * PARTS, np.int64), np.zeros(SLOTS * PARTS, np.int64), np.zeros((2, 2), np.int64)
    taken = []

    def sleepy():
        # It takes a part by hand, and does it much later.
        if taken:
            return run_turns(counters, roles[1], found, flags, own[1], n, -1) == CLOSED
        task, number = take(counters, roles[1])
        if task != PART:
            return task == CLOSED
        taken.append(number)
        time.sleep(0.05)
        at = number // PARTS % SLOTS * PARTS + number % PARTS
        finish(counters, roles[1], found, flags, at, number, own[1])
        return False

    take_turns(
        counters,
        lambda: run_turns(counters, roles[0], found, flags, own[0], n, -1) == CLOSED,
        [sleepy],
        PARTS,
    )
    assert own[0].tolist() == alone.tolist()
    if taken:
        assert not has_written(counters, roles[1], PARTS)


@kernel
def take(counters, role):
    return next_task(counters, role, PARTS)


@kernel
def finish(counters, role, found, flags, at, number, own):
    found[at] = number % PARTS + own[0]
    make_ready(flags, at, number // PARTS)
    end_part(counters, role)


@kernel
def wait_for_parts(counters, role):
    return parts_are_done(counters, role, PARTS)


def test_parts_are_counted():
    counters, leader = turn_counters(0, 0, PARTS), new_role(0)
    room, own = np.zeros((2, SLOTS * PARTS), np.int64), np.zeros(2, np.int64)
    assert take(counters, leader) == (LEAD, 0)
    assert not wait_for_parts(counters, leader)
    run_turns(counters, leader, room[0], room[1], own, 1, -1)
    leader[BATCH] = 0
    assert wait_for_parts(counters, leader)


def test_an_error_of_the_leader_ends_the_helpers():
    counters, role = turn_counters(1), new_role(1)
    room, own = np.zeros((2, SLOTS * PARTS), np.int64), np.zeros(2, np.int64)
    began = threading.Event()

    def lead():
        began.wait(10.0)
        raise ValueError("no more")

    def helper():
        began.set()
        return run_turns(counters, role, room[0], room[1], own, 1, -1) == CLOSED

    with pytest.raises(ValueError, match="no more"):
        take_turns(counters, lead, [helper])


def test_an_error_of_a_helper_is_raised():
    began = threading.Event()

    def helper():
        began.set()
        raise ValueError("not here")

    with pytest.raises(ValueError, match="not here"):
        in_threads(lambda: began.wait(10.0), [helper])


def test_a_leader_does_not_wait_for_a_helper_that_failed():
    began, calls = threading.Event(), []

    def lead():
        began.wait(10.0)
        calls.append(1)
        return len(calls) > 1000

    def helper():
        began.set()
        raise ValueError("not here")

    with pytest.raises(ValueError, match="not here"):
        take_turns(turn_counters(), lead, [helper])
    assert len(calls) < 1000


@kernel
def count_up(numbers, n):
    for _ in range(n):
        atomic_add(numbers, 0, 1)
        while True:
            now = atomic_read(numbers, 1)
            if atomic_swap(numbers, 1, now, now + 2):
                break


def test_numbers_that_threads_share_lose_nothing():
    numbers = np.zeros(2, np.int64)
    count_up(numbers, 0)
    in_threads(lambda: count_up(numbers, 50_000), [lambda: count_up(numbers, 50_000)])
    # A helper that has not begun when the leader ends never does.
    assert numbers[0] in (50_000, 100_000)
    assert numbers[1] == 2 * numbers[0]


@kernel
def write_and_compare(numbers):
    atomic_write(numbers, 0, 7)
    return atomic_swap(numbers, 0, 6, 1), atomic_swap(numbers, 0, 7, 3)


def test_a_swap_looks_before_it_writes():
    numbers = np.zeros(1, np.int64)
    assert write_and_compare(numbers) == (False, True)
    assert numbers[0] == 3

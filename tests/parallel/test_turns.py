"""Turns: every part is done once, the leader is alone between turns, and nobody waits for ever."""

from __future__ import annotations

import threading
from functools import partial

import numpy as np
import pytest

from maxmargin.jit import atomic_add, atomic_read, atomic_swap, atomic_write, kernel
from maxmargin.parallel.threads import in_threads
from maxmargin.parallel.turns import (
    CLOSED,
    FOLLOW,
    HELPER,
    LEAD,
    LEADER,
    PART,
    announce,
    close_turns,
    end_part,
    follow,
    new_role,
    next_task,
    open_turn,
    take_turns,
    turn_counters,
    turns_began,
)

PARTS = 5


@kernel
def run_turns(counters, role, done, sums, n_turns):
    """Each part adds 1 to its entry of `done`; between turns the leader writes what they add up to."""
    while True:
        task, part = next_task(counters, role, PARTS)
        if task == PART:
            done[part] += 1
            end_part(counters)
        elif task == LEAD:
            if turns_began(counters):
                turn = int(sums[n_turns])
                sums[turn], sums[n_turns] = done.sum(), turn + 1
                if turn + 1 == n_turns:
                    close_turns(counters)
                    return True
            open_turn(counters, PARTS)
        else:
            return task == CLOSED


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_every_part_of_every_turn_is_done_once(threads):
    n, counters, done = 2000, turn_counters(), np.zeros(PARTS, np.int64)
    sums = np.zeros(n + 1, np.int64)
    leader, *helpers = [
        partial(run_turns, counters, new_role(HELPER if k else LEADER), done, sums, n) for k in range(threads)
    ]
    take_turns(counters, leader, helpers)
    assert done.tolist() == [n] * PARTS
    assert sums[:n].tolist() == list(range(PARTS, PARTS * n + 1, PARTS))


def test_an_error_of_the_leader_ends_the_helpers():
    counters, role = turn_counters(), new_role(HELPER)
    began = threading.Event()

    def lead():
        began.wait(10.0)
        raise ValueError("no more")

    def helper():
        began.set()
        return bool(run_turns(counters, role, np.zeros(PARTS, np.int64), np.zeros(2, np.int64), 1))

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
def follow_turns(counters, role, copies, mine, n_turns):
    """In each turn one part is taken by anyone; then every helper adds the turn's number to an entry of its own."""
    while True:
        task, _ = next_task(counters, role, 1)
        if task == PART:
            end_part(counters)
        elif task == FOLLOW:
            copies[mine] += copies[0]
            follow(counters, role)
        elif task == LEAD:
            copies[0] += 1
            if copies[0] > n_turns:
                close_turns(counters)
                return True
            open_turn(counters, 1)
            announce(counters)
        else:
            return task == CLOSED


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_all_helpers_follow_every_announcement(threads):
    n, counters, copies = 500, turn_counters(), np.zeros(threads, np.int64)
    roles = [new_role(LEADER if k == 0 else HELPER) for k in range(threads)]

    def take_part_in(k):
        return lambda: bool(follow_turns(counters, roles[k], copies, k, n))

    take_turns(counters, take_part_in(0), [take_part_in(k) for k in range(1, threads)])
    # One that was late never began.
    assert all(count in (0, n * (n + 1) // 2) for count in copies[1:])
    assert copies[0] == n + 1


def test_a_helper_that_comes_late_does_not_begin():
    counters, copies = turn_counters(), np.zeros(2, np.int64)
    assert follow_turns(counters, new_role(LEADER), copies, 0, 3)
    assert follow_turns(counters, new_role(HELPER), copies, 1, 3)
    assert copies.tolist() == [4, 0]


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

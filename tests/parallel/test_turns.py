"""Turns: every part is done once, the leader is alone between turns, and nobody waits for ever."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from maxmargin.jit import atomic_add, atomic_read, atomic_swap, atomic_write, kernel, wait_a_little
from maxmargin.parallel.threads import in_threads
from maxmargin.parallel.turns import (
    close_turns,
    end_part,
    open_turn,
    take_part,
    take_turns,
    turn_counters,
    turn_is_over,
    turns_are_closed,
    turns_began,
)

PARTS = 5


@kernel
def run_turns(counters, done, sums, n_turns, leads):
    """Each part adds 1 to its entry of `done`; between turns the leader writes what they add up to."""
    idle = 0
    while True:
        part = take_part(counters)
        if part >= 0:
            done[part % PARTS] += 1
            end_part(counters)
            idle = 0
        elif not leads and turns_are_closed(counters):
            return True
        elif leads and turn_is_over(counters):
            if turns_began(counters):
                turn = int(sums[n_turns])
                sums[turn], sums[n_turns] = done.sum(), turn + 1
                if turn + 1 == n_turns:
                    close_turns(counters)
                    return True
            open_turn(counters, PARTS)
        else:
            idle += 1
            if idle > 1000:
                return False
            wait_a_little()


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_every_part_of_every_turn_is_done_once(threads):
    n, counters, done = 2000, turn_counters(), np.zeros(PARTS, np.int64)
    sums = np.zeros(n + 1, np.int64)
    take_turns(
        counters,
        lambda: bool(run_turns(counters, done, sums, n, True)),
        lambda: bool(run_turns(counters, done, sums, n, False)),
        threads,
    )
    assert done.tolist() == [n] * PARTS
    assert sums[:n].tolist() == list(range(PARTS, PARTS * n + 1, PARTS))


def test_an_error_of_the_leader_ends_the_helpers():
    counters = turn_counters()
    began = threading.Event()

    def lead():
        began.wait(10.0)
        raise ValueError("no more")

    def helper():
        began.set()
        return bool(run_turns(counters, np.zeros(PARTS, np.int64), np.zeros(2, np.int64), 1, False))

    with pytest.raises(ValueError, match="no more"):
        take_turns(counters, lead, helper, 2)


def test_an_error_of_a_helper_is_raised():
    began = threading.Event()

    def helper():
        began.set()
        raise ValueError("not here")

    with pytest.raises(ValueError, match="not here"):
        in_threads(lambda: began.wait(10.0), helper, 2)


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
    in_threads(lambda: count_up(numbers, 50_000), lambda: count_up(numbers, 50_000), 2)
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

"""Threads that stay awake: each function is called once, and a team works for one caller at a time."""

from __future__ import annotations

import threading

import pytest

from maxmargin.parallel import team
from maxmargin.parallel.team import Team, in_threads
from maxmargin.parallel.threads import map_shards


def test_helpers_run_beside_the_leader():
    barrier, names = threading.Barrier(3), []

    def meet():
        barrier.wait(60.0)
        names.append(threading.current_thread().name)

    for _ in range(3):
        in_threads(meet, [meet, meet])
    assert len(names) == 9
    assert names.count(threading.current_thread().name) == 3


def test_threads_are_used_again():
    in_threads(lambda: None, [lambda: None] * 2)
    before = threading.active_count()
    for _ in range(20):
        in_threads(lambda: None, [lambda: None] * 2)
    assert threading.active_count() == before


def test_a_helper_that_has_not_begun_never_does(monkeypatch):
    """Its thread is at work for another one."""
    busy, done = threading.Event(), []
    one = Team(1)
    (first,) = one.start([lambda: busy.wait(60.0)])
    while not first.running():
        pass
    monkeypatch.setattr(team, "_borrow", lambda size: one)
    threading.Timer(0.1, busy.set).start()
    in_threads(lambda: None, [lambda: done.append(1)])
    assert done == []
    in_threads(lambda: None, [])


def test_a_shard_may_have_shards_of_its_own():
    def outer(begin, end):
        return sum(map_shards(lambda low, high: high - low, [(k, k + 1) for k in range(begin, end)], 2))

    assert map_shards(outer, [(0, 5), (5, 9), (9, 20)], 3) == [5, 4, 11]


def test_leaders_in_several_threads_do_not_meet():
    found = []

    def lead(k):
        found.append(map_shards(lambda begin, end: (k, begin), [(i, i) for i in range(50)], 2))

    leaders = [threading.Thread(target=lead, args=(k,)) for k in range(4)]
    for one in leaders:
        one.start()
    for one in leaders:
        one.join()
    assert sorted(one[0][0] for one in found) == [0, 1, 2, 3]
    assert all(one == [(one[0][0], i) for i in range(50)] for one in found)


def test_the_error_of_the_first_shard_is_raised_and_no_more_begin():
    begun = []

    def fail(begin, end):
        begun.append(begin)
        if begin in (3, 5):
            raise ValueError(f"shard {begin}")

    with pytest.raises(ValueError, match="shard 3"):
        map_shards(fail, [(k, k) for k in range(1000)], 2)
    assert len(begun) < 1000

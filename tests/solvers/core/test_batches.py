"""Batches: their sizes, the weights of helpers, and the overlap of moves that are made side by side."""

from __future__ import annotations

import numpy as np
import pytest

from maxmargin.problems import multi_class_problem
from maxmargin.solvers import BCFW
from maxmargin.solvers.core import batches
from maxmargin.solvers.core.batches import Helpers, batch_size


def test_batches_are_small_at_first_and_where_there_are_few_examples():
    assert [batch_size(100_000, k) for k in (0, 1, 2, 4, 6, 50)] == [4, 4, 8, 16, 16, 16]
    assert [batch_size(n, 50) for n in (1, 799, 800, 5_000, 20_000)] == [1, 1, 2, 12, 16]


def test_helpers_get_the_leader_s_weights_again_when_they_are_not_current():
    helpers = Helpers(3, lambda: object())
    w_v, w_f = np.arange(12.0).reshape(6, 2), np.arange(3.0).reshape(1, 3)
    both = helpers.for_walk(9, w_v, w_f)
    assert both == helpers.all
    assert len({id(one.room) for one in both}) == 2
    w_v += 1.0
    # They write what the leader does themselves, and are left alone while they are current.
    assert all((one.weights[0] == w_v - 1.0).all() for one in helpers.for_walk(9, w_v, w_f))
    # One that was late has missed moves, and gets a copy of the weights.
    helpers.note(both, [True, False])
    one, other = helpers.for_walk(9, w_v, w_f)
    assert (one.weights[0] == w_v - 1.0).all()
    assert (other.weights[0] == w_v).all()
    helpers.outdate()
    for one in helpers.for_walk(9, w_v, w_f):
        np.testing.assert_array_equal(one.weights[0], w_v)
        np.testing.assert_array_equal(one.weights[1], w_f)
        assert one.weights[0].ctypes.data % 64 == 0
    assert helpers.take(2) == both


def test_a_helper_that_takes_no_part_in_a_walk_is_not_current():
    helpers, w = Helpers(3, object), np.zeros((4, 2))
    one, other = helpers.for_walk(9, w)
    helpers.note([one], [True])
    w += 1.0
    assert helpers.for_walk(9, w) == [one, other]
    assert (one.weights[0] == 0.0).all()
    assert (other.weights[0] == 1.0).all()


def test_weights_of_helpers_are_as_many_as_the_memory_for_them_allows(monkeypatch):
    monkeypatch.setattr(batches, "_COPIES", 1000)
    assert len(Helpers(8, object).for_walk(9, np.zeros((10, 4)), None)) == 3
    assert len(Helpers(8, object).for_walk(2, np.zeros((10, 4)), None)) == 2
    assert not Helpers(8, object).for_walk(9, np.zeros((200, 4)), np.zeros((1, 1)))
    assert len(Helpers(8, object).take(7)) == 7


def test_late_helpers_are_done_without_for_ever_more_walks_and_the_others_are_not():
    helpers, w, took_part = Helpers(3, object), np.zeros((1, 1)), []
    for _ in range(40):
        chosen = helpers.for_walk(9, w)
        prompt, late = helpers.all
        assert prompt in chosen
        took_part.append(late in chosen)
        helpers.note(chosen, [one is prompt for one in chosen])
    assert "".join(str(int(one)) for one in took_part).startswith("11001000000100000000000000")
    while late not in helpers.for_walk(9, w):
        pass
    helpers.note([late], [True])
    assert late in helpers.for_walk(9, w)


@pytest.mark.parametrize("alike", [True, False])
def test_the_overlap_is_1_of_equal_examples_and_0_of_those_that_share_no_feature(alike, monkeypatch):
    monkeypatch.setattr(batches, "BATCH_SHARE", 1.0)
    n = 40
    X = np.ones((n, 3)) if alike else np.eye(n)
    result = BCFW().solve(multi_class_problem(X, np.zeros(n, np.int32), 3), 10.0, tol=0.0, max_passes=6)
    between, along = result.state.overlap
    assert along > 0.0
    assert between / along == pytest.approx(1.0 if alike else 0.0, abs=0.02)


def test_blocks_that_move_side_by_side_do_not_overshoot(monkeypatch):
    """Equal examples, all in one batch: the moves that each would make alone add up to many times too much."""
    monkeypatch.setattr(batches, "BATCH_SHARE", 1.0)
    monkeypatch.setattr(batches, "LARGEST_BATCH", 64)
    monkeypatch.setattr(batches, "FIRST_BATCH", 64)
    rng = np.random.default_rng(0)
    X = np.tile(rng.normal(size=(4, 3)), (16, 1))
    problem = multi_class_problem(X, np.tile(np.arange(4), 16), 4)
    result = BCFW().solve(problem, 1000.0, tol=1e-3, max_passes=400)
    assert result.gap <= 1e-3, result.summary()


def test_batches_of_examples_that_have_a_part_in_common_converge(monkeypatch):
    """Most of a move is an example's own, but all have some columns in common, along which the moves of a batch add up."""
    monkeypatch.setattr(batches, "BATCH_SHARE", 1.0)
    monkeypatch.setattr(batches, "LARGEST_BATCH", 32)
    rng = np.random.default_rng(0)
    n = 400
    X = np.hstack([2.0 + 0.1 * rng.normal(size=(n, 3)), rng.normal(size=(n, 60))])
    y = (X[:, 3:6] + rng.normal(size=(n, 3))).argmax(axis=1)
    problem = multi_class_problem(X, y, 3)
    many = BCFW().solve(problem, 300.0, tol=3e-3, max_passes=400)
    monkeypatch.setattr(batches, "LARGEST_BATCH", 1)
    one = BCFW().solve(problem, 300.0, tol=3e-3, max_passes=400)
    assert many.gap <= 3e-3, many.summary()
    assert many.n_passes <= 3 * one.n_passes, (many.n_passes, one.n_passes)

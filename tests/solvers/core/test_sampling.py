"""Sampling by gap: the right number, the right shares, and the uniform part."""

import numpy as np
import pytest

from maxmargin.errors import OptionError
from maxmargin.jit import kernel
from maxmargin.solvers.core.sampling import draw_examples, sample_by_gap, seed_of, shuffle


def test_shares_are_those_of_the_gaps():
    gaps = np.array([0.0, 1.0, 3.0, -1e-18, 6.0])
    counts = np.zeros(5)
    for seed in range(4000):
        drawn = sample_by_gap(gaps, np.random.default_rng(seed), np.ones(len(gaps), bool))
        assert len(drawn) == 5
        counts += np.bincount(drawn, minlength=5)
    expected = 5 * (0.2 / 5 + 0.8 * np.maximum(gaps, 0) / 10)
    np.testing.assert_allclose(counts / 4000, expected, atol=0.03)


@pytest.mark.parametrize("gaps", [np.zeros(4), np.array([1.0, np.inf]), np.array([1.0, np.nan])])
def test_without_usable_gaps_everyone_is_visited_once(gaps):
    np.testing.assert_array_equal(
        sample_by_gap(gaps, np.random.default_rng(0), np.ones(len(gaps), bool)), np.arange(len(gaps))
    )


def test_seeds():
    assert seed_of(7) == seed_of(np.int64(7)) == 7
    assert seed_of(np.random.default_rng(3)) == seed_of(np.random.default_rng(3))
    assert seed_of(np.random.RandomState(3)) == seed_of(np.random.RandomState(3))
    assert isinstance(seed_of(None), int)
    for wrong in (-1, 1.5, "x", True):
        with pytest.raises(OptionError, match="random_state="):
            seed_of(wrong)


@kernel
def shuffled(values, n, random):
    return shuffle(values, n, random)


def test_a_shuffle_resumes_and_favours_no_order():
    order = np.arange(100)
    random = shuffled(order, 60, 5)
    np.testing.assert_array_equal(np.sort(order[:60]), np.arange(60))
    np.testing.assert_array_equal(order[60:], np.arange(60, 100))
    again = np.arange(100)
    assert shuffled(again, 60, 5) == random
    np.testing.assert_array_equal(again, order)
    places, random = np.zeros((5, 5)), 1
    for _ in range(4000):
        order = np.arange(5)
        random = shuffled(order, 5, random)
        places[np.arange(5), order] += 1
    assert np.abs(places / 4000 - 0.2).max() < 0.03
    assert shuffled(np.empty(0, np.int64), 0, 7) == 7


@pytest.mark.parametrize("by_gap", [True, False])
def test_examples_without_weight_are_never_drawn(by_gap):
    weight = np.array([1.0, 0.0, 2.0, 0.0, 1.0, 3.0])
    seen = np.concatenate(
        [draw_examples(np.ones(6), weight, np.random.default_rng(seed), by_gap) for seed in range(20)]
    )
    assert set(seen.tolist()) == {0, 2, 4, 5}
    assert len(seen) == 20 * 4
    # Gaps that say nothing yet.
    assert set(draw_examples(np.full(6, np.inf), weight, np.random.default_rng(0), True).tolist()) == {0, 2, 4, 5}

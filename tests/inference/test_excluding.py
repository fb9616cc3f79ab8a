"""The k best labelings of graphs with cycles against all labelings, sorted."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxmargin.errors import DataError, OptionError, TooLargeError
from maxmargin.inference import BranchAndBound, Exhaustive, JunctionTree, Trees, choose_top_k, excluding, top_k
from maxmargin.inference.excluding import top_k_of_any
from maxmargin.problems import Scores, graph_problem, multi_label_problem
from reference import enumeration
from reference.random_problems import random_problem

TOLERANCE = 1e-9


def check(graphs, scores, k, engine):
    """Order, values, distinctness and padding, example by example."""
    found = top_k_of_any(graphs, scores, k, engine)
    assert found.labels.shape == (k, len(graphs.labels))
    assert found.labels.dtype == np.int32
    for m, example in enumerate(enumeration.examples(graphs)):
        ranked = sorted(
            (value for _, value in enumeration.all_scores(example, scores) if value > -np.inf), reverse=True
        )
        n = min(k, len(ranked))
        own = found.labels[:, example.first_variable : example.first_variable + len(example.n_states)]
        np.testing.assert_allclose(found.values[m, :n], ranked[:n], rtol=0, atol=TOLERANCE)
        assert len({tuple(row) for row in own[:n].tolist()}) == n
        for row, value in zip(own[:n].tolist(), found.values[m], strict=False):
            assert enumeration.labeling_score(example, scores, row) == pytest.approx(value, abs=TOLERANCE)
        assert (own[n:] == -1).all()
        assert np.isneginf(found.values[m, n:]).all()
    return found


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(["loopy", "forest"]),
    max_variables=st.integers(1, 5),
    max_states=st.integers(2, 4),
    forbidden=st.booleans(),
    engine=st.sampled_from([Exhaustive(), JunctionTree()]),
    k=st.sampled_from([1, 2, 3, 7, 40]),
)
def test_any_graph(seed, kind, max_variables, max_states, forbidden, engine, k):
    rng = np.random.default_rng(seed)
    graphs = random_problem(
        rng, kind=kind, n_examples=3, max_variables=max_variables, max_states=max_states, forbidden=forbidden
    )
    check(graphs, graphs.scores(2 * rng.normal(size=graphs.n_weights)), k, engine)


@pytest.mark.parametrize("seed", range(5))
def test_binary_pairs_by_branch_and_bound(seed):
    rng = np.random.default_rng(seed)
    pairs = [(i, j) for i in range(6) for j in range(i + 1, 6)]
    graphs = multi_label_problem(rng.normal(size=(4, 3)), None, pairs, 6)
    check(graphs, graphs.scores(rng.normal(size=graphs.n_weights)), 5, BranchAndBound())


@pytest.mark.parametrize("engine", [Exhaustive(), JunctionTree(), BranchAndBound()])
def test_equal_scores_are_all_found_once(engine):
    """All labelings tie: every one of them is found, and none twice."""
    graphs = graph_problem([(np.zeros((3, 1)), [[0, 1], [1, 2], [0, 2]])], None, 2)
    scores = Scores(np.zeros(6), np.zeros(12))
    found = check(graphs, scores, 9, engine)
    assert np.isfinite(found.values).sum() == 8


def test_forests_agree_with_the_lists_of_max_product():
    rng = np.random.default_rng(3)
    graphs = random_problem(rng, kind="forest", n_examples=6, max_variables=6, max_states=3)
    scores = graphs.scores(rng.normal(size=graphs.n_weights))
    expected = top_k(graphs, scores, 6)
    np.testing.assert_allclose(top_k_of_any(graphs, scores, 6, Trees()).values, expected.values, atol=TOLERANCE)


def test_pieces_and_threads_change_nothing(monkeypatch):
    rng = np.random.default_rng(4)
    graphs = random_problem(rng, n_examples=5, max_variables=5)
    scores = graphs.scores(rng.normal(size=graphs.n_weights))
    whole = top_k_of_any(graphs, scores, 4, Exhaustive())
    monkeypatch.setattr(excluding, "_ENTRIES", 30)
    again = top_k_of_any(graphs, scores, 4, Exhaustive(), n_jobs=2)
    np.testing.assert_array_equal(again.labels, whole.labels)
    np.testing.assert_array_equal(again.values, whole.values)


def test_what_is_refused(monkeypatch):
    grid = np.arange(900).reshape(30, 30)
    edges = np.vstack([np.column_stack([grid[:, :-1].ravel(), grid[:, 1:].ravel()]),
                       np.column_stack([grid[:-1].ravel(), grid[1:].ravel()])])  # fmt: skip
    three = graph_problem([(np.ones((900, 1)), edges)], None, 3)
    with pytest.raises(DataError, match=r"no exact engine is cheap on these graphs; the largest is example 0, of 900"):
        choose_top_k(three)
    assert choose_top_k(graph_problem([(np.ones((900, 1)), edges)], None, 2))[0].name == "branch_and_bound"
    small = graph_problem([(np.zeros((3, 1)), [[0, 1], [1, 2], [0, 2]])], None, 2)
    scores = Scores(np.zeros(6), np.zeros(12))
    with pytest.raises(OptionError, match="k=0 is not possible"):
        top_k_of_any(small, scores, 0, Exhaustive())
    from maxmargin.inference import GraphCut

    with pytest.raises(DataError, match='"graph_cut" does not prove'):
        top_k_of_any(small, scores, 2, GraphCut())
    monkeypatch.setattr(excluding, "MOST_BYTES", 100)
    with pytest.raises(TooLargeError, match="k=50 labelings of each of 1 examples"):
        top_k_of_any(small, scores, 50, Exhaustive())

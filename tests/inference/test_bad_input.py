"""What no engine can answer gets a sentence that names the place; what looks odd but is not gets an answer."""

from __future__ import annotations

import numpy as np
import pytest

from maxmargin.errors import DataError, MaxMarginError, TooLargeError
from maxmargin.inference import ENGINES, Exhaustive, GraphCut, JunctionTree, engine
from maxmargin.problems import graph_problem, label_edges, multi_label_problem
from maxmargin.problems.factor_graphs import Scores


def labels(n, edges, n_examples=2):
    return multi_label_problem(np.ones((n_examples, 1)), None, np.array(edges, int).reshape(-1, 2), n)


def random_scores(graphs, seed=0):
    rng = np.random.default_rng(seed)
    return Scores(*(rng.normal(size=int(end[-1])) for end in (graphs.example_states, graphs.example_tables)))


def test_a_graph_too_wide():
    edges = [(i, j) for i in range(40) for j in range(i)]
    with pytest.raises(TooLargeError, match=r"Example 0: its graph has an induced width of at least 39 .* at most"):
        JunctionTree().maximise(labels(40, edges), random_scores(labels(40, edges)))
    with pytest.raises(TooLargeError, match="Example 0"):
        Exhaustive().maximise(labels(40, edges), random_scores(labels(40, edges)))


def test_more_than_two_states_in_a_cut():
    graphs = graph_problem([(np.ones((2, 1)), [[0, 1]])], None, 3)
    with pytest.raises(DataError, match="Example 0: variable 0 has 3 states; graph cuts take binary variables only"):
        GraphCut().maximise(graphs, random_scores(graphs))


@pytest.mark.parametrize("name", sorted(ENGINES))
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_scores_that_are_not_numbers(name, value):
    graphs = labels(3, [(0, 1), (1, 2)])
    scores = random_scores(graphs)
    scores.variables[7] = value
    with pytest.raises(MaxMarginError, match=r"Example 1 has a score of NaN or \+inf"):
        engine(name).maximise(graphs, scores)


def with_an_impossible_example():
    graphs = labels(3, [(0, 1), (1, 2)])
    scores = random_scores(graphs)
    scores.variables[6:8] = -np.inf
    return graphs, scores


@pytest.mark.parametrize("name", sorted(set(ENGINES) - {"combined", "greedy"}))
def test_everything_forbidden(name):
    with pytest.raises(MaxMarginError, match=r"Example 1(: every labeling is forbidden| has a score of -inf)"):
        engine(name).maximise(*with_an_impossible_example())


def test_a_search_finds_nothing_where_everything_is_forbidden():
    assert engine("greedy").maximise(*with_an_impossible_example()).values[1] == -np.inf


@pytest.mark.parametrize("name", sorted(ENGINES))
def test_an_isolated_node(name):
    graphs = labels(3, [(0, 1)])
    scores = random_scores(graphs)
    found = engine(name).maximise(graphs, scores)
    np.testing.assert_array_equal(found.labels[[2, 5]], scores.variables.reshape(2, 3, 2)[:, 2].argmax(axis=1))


def test_a_self_loop_and_a_duplicate_edge():
    with pytest.raises(DataError, match=r"edge 1 joins|joins .* with itself|only once"):
        graph_problem([(np.ones((3, 1)), [[0, 1], [2, 2]])], None, 2)
    with pytest.raises(DataError, match="edges 0 and 1 both join nodes 1 and 0"):
        graph_problem([(np.ones((3, 1)), [[0, 1], [1, 0]])], None, 2)
    with pytest.raises(DataError, match=r"itself|only once"):
        label_edges([[0, 0]], np.eye(3))


def test_no_examples():
    with pytest.raises(DataError, match="empty"):
        graph_problem([], None, 2)
    with pytest.raises(DataError, match="empty"):
        multi_label_problem(np.ones((0, 2)), None, np.empty((0, 2), int), 3)

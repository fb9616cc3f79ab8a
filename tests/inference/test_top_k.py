"""The k best labelings against all labelings, sorted."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxmargin.errors import DataError, OptionError
from maxmargin.inference import Trees
from maxmargin.inference.top_k import top_k
from maxmargin.problems import FactorGraphs, Features, Scores, Structure, Template, chain_problem, graph_problem
from reference import enumeration
from reference.random_problems import random_problem

TOLERANCE = 1e-10


def check(graphs, scores, k):
    """Order, values, distinctness and padding, example by example."""
    found = top_k(graphs, scores, k)
    assert found.labels.shape == (k, len(graphs.labels))
    assert found.labels.dtype == np.int32
    assert found.values.shape == (graphs.n_examples, k)
    for m, example in enumerate(enumeration.examples(graphs)):
        ranked = sorted(
            (value for _, value in enumeration.all_scores(example, scores) if value > -np.inf), reverse=True
        )
        n = min(k, len(ranked))
        own = found.labels[:, example.first_variable : example.first_variable + len(example.n_states)]
        np.testing.assert_allclose(found.values[m, :n], ranked[:n], rtol=0, atol=TOLERANCE)
        assert (np.diff(found.values[m, :n]) <= 0).all()
        assert len({tuple(row) for row in own[:n].tolist()}) == n
        for row, value in zip(own[:n].tolist(), found.values[m], strict=False):
            assert enumeration.labeling_score(example, scores, row) == pytest.approx(value, abs=TOLERANCE)
        assert (own[n:] == -1).all()
        assert np.isneginf(found.values[m, n:]).all()
    return found


def whole_numbers(rng, graphs):
    """Scores that tie often, and add without rounding; a tenth of them forbid, but nothing that state 0 needs."""
    sizes = int(graphs.example_states[-1]), int(graphs.example_tables[-1])
    out = [np.where(rng.random(n) < 0.1, -np.inf, rng.integers(-2, 3, n).astype(float)) for n in sizes]
    for example in enumeration.examples(graphs):
        for part, starts in zip(out, (example.state_start, example.table_start), strict=True):
            part[starts] = 0.0
    return Scores(*out)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**32 - 1),
    max_variables=st.integers(1, 5),
    max_states=st.integers(2, 4),
    max_arity=st.integers(1, 4),
    forbidden=st.booleans(),
    tied=st.booleans(),
    k=st.sampled_from([1, 2, 3, 7, 50, 1000]),
)
def test_any_forest(seed, max_variables, max_states, max_arity, forbidden, tied, k):
    rng = np.random.default_rng(seed)
    graphs = random_problem(
        rng,
        kind="forest",
        n_examples=3,
        max_variables=max_variables,
        max_states=max_states,
        max_arity=max_arity,
        forbidden=forbidden,
    )
    scores = whole_numbers(rng, graphs) if tied else graphs.scores(2 * rng.normal(size=graphs.n_weights))
    check(graphs, scores, k)


@pytest.mark.parametrize("k", [1, 5, 400])
def test_chains_of_many_tags(k):
    rng = np.random.default_rng(k)
    graphs = chain_problem([rng.normal(size=(n, 3)) for n in (1, 2, 3, 2)], None, 7)
    check(graphs, graphs.scores(rng.normal(size=graphs.n_weights)), k)


def test_every_way_to_hang_a_tree_and_several_parts():
    rng = np.random.default_rng(0)
    nodes = rng.normal(size=(5, 2))
    shapes = ([], [[3, 1]], [[0, 4], [1, 4], [2, 4], [3, 4]], [[4, 0], [0, 1], [2, 0]], [[0, 1], [3, 2]])
    graphs = graph_problem([(nodes, edges) for edges in shapes], None, 3)
    scores = graphs.scores(rng.normal(size=graphs.n_weights))
    for k in (1, 10, 243, 300):
        check(graphs, scores, k)


def test_the_best_one_is_the_engines():
    rng = np.random.default_rng(1)
    graphs = chain_problem([rng.normal(size=(n, 3)) for n in (30, 1, 17)], None, 9)
    scores = graphs.scores(rng.normal(size=graphs.n_weights))
    best, found = Trees().maximise(graphs, scores), top_k(graphs, scores, 4)
    np.testing.assert_array_equal(found.labels[0], best.labels)
    np.testing.assert_array_equal(found.values[:, 0], best.values)


def test_long_chains_equal_a_search_by_exclusion():
    # Lawler: the best labeling other than those found so far differs from one of them at a first position.
    rng = np.random.default_rng(2)
    graphs = chain_problem([rng.normal(size=(12, 3))], None, 4)
    scores = graphs.scores(rng.normal(size=graphs.n_weights))
    expected = []

    def best(prefix, excluded):
        variables = scores.variables.reshape(12, 4).copy()
        for t, y in enumerate(prefix):
            variables[t, np.arange(4) != y] = -np.inf
        variables[len(prefix), list(excluded)] = -np.inf
        found = Trees().maximise(graphs, Scores(variables.ravel(), scores.factors))
        return float(found.values[0]), found.labels.tolist(), prefix, excluded

    waiting = [best([], set())]
    while len(expected) < 25:
        value, labels, prefix, excluded = waiting.pop(waiting.index(max(waiting, key=lambda one: one[0])))
        expected.append(value)
        for t in range(len(prefix), 12):
            gone = {labels[t]} | (excluded if t == len(prefix) else set())
            if len(gone) < 4:
                waiting.append(best(labels[:t], gone))
    np.testing.assert_allclose(top_k(graphs, scores, 25).values[0], expected, rtol=0, atol=TOLERANCE)


def test_an_example_answers_alone_as_in_a_batch():
    rng = np.random.default_rng(3)
    graphs = random_problem(rng, kind="forest", n_examples=8)
    scores = whole_numbers(rng, graphs)
    together = top_k(graphs, scores, 6)
    states, tables, variables = graphs.example_states, graphs.example_tables, graphs.example_variables
    for m in range(graphs.n_examples):
        own = Scores(scores.variables[states[m] : states[m + 1]], scores.factors[tables[m] : tables[m + 1]])
        alone = top_k(graphs.take([m]), own, 6)
        np.testing.assert_array_equal(alone.labels, together.labels[:, variables[m] : variables[m + 1]])
        np.testing.assert_array_equal(alone.values[0], together.values[m])


def test_what_is_refused():
    nodes = np.ones((3, 2))
    tree, cycle = (nodes, [[0, 1], [1, 2]]), (nodes, [[0, 1], [1, 2], [0, 2]])
    graphs = graph_problem([tree, cycle], None, 2)
    scores = graphs.scores(np.zeros(graphs.n_weights))
    with pytest.raises(DataError, match="the graph of example 1 has a cycle"):
        top_k(graphs, scores, 2)
    trees = graphs.take([0, 0])
    tables = trees.scores(np.zeros(graphs.n_weights))
    for k in (0, -1, 1.5, True, "2"):
        with pytest.raises(OptionError, match=r"k=.* it must be a whole number of at least 1"):
            top_k(trees, tables, k)
    tables.variables[trees.example_states[1]] = np.nan
    with pytest.raises(DataError, match="Example 1 has a score of NaN"):
        top_k(trees, tables, 2)


def test_an_example_without_an_allowed_labeling_is_named():
    never = Template(np.full((2, 2), -1), np.array([[-np.inf, 0.0], [0.0, -np.inf]]))
    structure = Structure([0, 0], [0, 0], [0], [0], [(0, 1)])
    one = Features.constant()
    forbid = np.zeros(8)
    forbid[[5, 7]] = -np.inf  # example 1: both variables 0, which the factor forbids
    graphs = FactorGraphs(
        [structure], [0, 0], [Template([0, 1])], [never], one, one, [0, 0], [0, 0], variable_scores=forbid
    )
    with pytest.raises(DataError, match="Example 1: every labeling is forbidden"):
        top_k(graphs, graphs.scores(np.zeros(2)), 3)

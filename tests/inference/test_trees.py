"""Message passing on trees against exhaustive search and plain enumeration."""

import gc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from maxmargin.errors import DataError
from maxmargin.inference import Exhaustive, Trees
from maxmargin.inference.top_k import top_k
from maxmargin.inference.trees import TreeRoom, max_product_one, schedule, sum_product_one
from maxmargin.problems import (
    FactorGraphs,
    Features,
    Scores,
    Structure,
    Template,
    chain_problem,
    graph_problem,
    structured,
)
from reference import enumeration
from reference.random_problems import random_problem

TOLERANCE = 1e-10
SETTINGS = [
    {},
    {"max_states": 2, "max_variables": 7, "max_arity": 2},
    {"max_states": 5, "max_variables": 4, "max_arity": 2},
    {"max_states": 4, "max_variables": 4, "max_arity": 4},
    {"sparse": True},
    {"forbidden": True},
    {"forbidden": True, "shared": False, "max_arity": 4},
    {"max_variables": 1},
    {"max_arity": 1},
]
NAMES = [" ".join(f"{k}={v}" for k, v in s.items()) or "plain" for s in SETTINGS]


def random_scores(rng, graphs, scale=2.0):
    return graphs.scores(scale * rng.normal(size=graphs.n_weights), loss_augmented=bool(rng.integers(2)))


def check_everything(graphs, scores, temperature):
    trees, exhaustive = Trees().maximise(graphs, scores), Exhaustive().maximise(graphs, scores)
    np.testing.assert_allclose(trees.values, exhaustive.values, rtol=0, atol=TOLERANCE)
    np.testing.assert_array_equal(trees.values, graphs.labeling_scores(scores, trees.labels))
    np.testing.assert_array_equal(trees.bounds, trees.values)
    labels, values, unique = enumeration.maximise(graphs, scores)
    np.testing.assert_allclose(trees.values, values, rtol=0, atol=TOLERANCE)
    np.testing.assert_array_equal((trees.labels == labels)[np.repeat(unique, np.diff(graphs.example_variables))], True)
    found = Trees().marginals(graphs, scores, temperature)
    for one, two, three in zip(
        found,
        Exhaustive().marginals(graphs, scores, temperature),
        enumeration.marginals(graphs, scores, temperature),
        strict=True,
    ):
        np.testing.assert_allclose(one, two, rtol=0, atol=TOLERANCE)
        np.testing.assert_allclose(one, three, rtol=0, atol=TOLERANCE)
    assert (found.variables[np.isneginf(scores.variables)] == 0).all()
    assert (found.factors[np.isneginf(scores.factors)] == 0).all()


@pytest.mark.parametrize("setting", SETTINGS, ids=NAMES)
@pytest.mark.parametrize("temperature", [10.0, 1.0, 0.1])
def test_trees_equal_exhaustive_search_and_enumeration(setting, temperature):
    rng = np.random.default_rng(int(10 * temperature))
    graphs = random_problem(rng, kind="forest", **setting)
    check_everything(graphs, random_scores(rng, graphs), temperature)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**32 - 1),
    max_states=st.integers(2, 4),
    max_arity=st.integers(1, 4),
    forbidden=st.booleans(),
    shared=st.booleans(),
    temperature=st.sampled_from([10.0, 1.0, 0.1]),
)
def test_any_forest(seed, max_states, max_arity, forbidden, shared, temperature):
    rng = np.random.default_rng(seed)
    graphs = random_problem(
        rng,
        kind="forest",
        n_examples=3,
        max_variables=4,
        max_states=max_states,
        max_arity=max_arity,
        forbidden=forbidden,
        shared=shared,
    )
    check_everything(graphs, random_scores(rng, graphs), temperature)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**32 - 1),
    n_states=st.integers(1, 6),
    n=st.integers(1, 4),
    share=st.sampled_from([0.0, 0.2, 0.5]),
    temperature=st.sampled_from([10.0, 1.0, 0.1]),
)
def test_any_tree_with_forbidden_states(seed, n_states, n, share, temperature):
    # Edges in either direction, and scores of which a share forbids; the labeling of all zeros stays allowed.
    rng = np.random.default_rng(seed)
    edges = [rng.permutation([v, int(rng.integers(v))]).tolist() for v in range(1, n) if rng.random() < 0.8]
    graphs = graph_problem([(np.ones((n, 1)), edges)] * 3, None, n_states)
    tables = [rng.normal(size=int(end[-1])) for end in (graphs.example_states, graphs.example_tables)]
    for table, block in zip(tables, (n_states, n_states**2), strict=True):
        table[(rng.random(len(table)) < share) & (np.arange(len(table)) % block > 0)] = -np.inf
    check_everything(graphs, Scores(*tables), temperature)


@pytest.mark.parametrize("boundary", [False, True])
def test_chains_of_many_tags(boundary):
    # Lengths 1 to 3 keep 7 tags enumerable; 7 is no multiple of the kernel's unrolling.
    rng = np.random.default_rng(1)
    graphs = chain_problem([rng.normal(size=(n, 3)) for n in (1, 2, 3, 2)], None, 7, boundary=boundary)
    check_everything(graphs, random_scores(rng, graphs), 1.0)


@pytest.mark.parametrize("n_states", [1, 2, 3, 4, 5, 8, 9])
def test_messages_to_either_end_of_an_edge(n_states):
    # The root is the last node: edges send to their second slot in the first graph, to their first in the second.
    rng = np.random.default_rng(n_states)
    nodes = rng.normal(size=(3, 2))
    graphs = graph_problem(
        [(nodes, [[0, 2], [1, 2]]), (nodes, [[2, 0], [2, 1]]), (nodes, [[0, 1], [0, 2]])], None, n_states
    )
    check_everything(graphs, random_scores(rng, graphs), 1.0)


def test_disconnected_variables_are_on_their_own():
    rng = np.random.default_rng(2)
    nodes = rng.normal(size=(4, 2))
    graphs = graph_problem([(nodes, []), (nodes, [[3, 1]])], None, 3)
    check_everything(graphs, random_scores(rng, graphs), 0.1)


def test_without_factors_every_variable_takes_its_first_best_state():
    rng = np.random.default_rng(4)
    graphs = FactorGraphs(
        [Structure([0, 1, 0], [0] * 3), Structure([1], [0])], [0, 1, 0], [Template([0, 1]), Template([0, 1, 2])], [],
        Features.constant(), Features.constant(), [0] * 3, [0] * 3,
    )  # fmt: skip
    n = int(graphs.example_states[-1])
    check_everything(graphs, random_scores(rng, graphs), 0.1)
    for scores in (rng.integers(0, 2, n).astype(float), np.where(rng.random(n) < 0.3, -np.inf, 0.0)):
        scores[graphs.state_starts()] = 0.0
        found = Trees().maximise(graphs, Scores(scores, np.empty(0)))
        states = np.split(scores, graphs.state_starts()[1:])
        assert found.labels.tolist() == [one.tolist().index(one.max()) for one in states]


def test_low_temperature_and_large_scores():
    rng = np.random.default_rng(3)
    for _ in range(5):
        graphs = random_problem(rng, kind="forest", n_examples=8, forbidden=True, max_arity=4)
        scores = random_scores(rng, graphs, 1e3)
        best = Trees().maximise(graphs, scores)
        found = Trees().marginals(graphs, scores, 1e-3)
        assert all(np.isfinite(part).all() for part in found)
        np.testing.assert_allclose(found.log_partition, best.values, atol=1e-2)
        np.testing.assert_allclose(np.add.reduceat(found.variables, graphs.state_starts()), 1.0)


def test_long_chain_does_not_overflow():
    rng = np.random.default_rng(4)
    graphs = chain_problem([rng.normal(size=(2000, 2))], None, 3)
    scores = random_scores(rng, graphs, 50.0)
    best, found = Trees().maximise(graphs, scores), Trees().marginals(graphs, scores)
    assert best.values[0] <= found.log_partition[0] <= best.values[0] + 2000 * np.log(3)
    np.testing.assert_allclose(np.add.reduceat(found.variables, graphs.state_starts()), 1.0)


def test_viterbi_equals_a_textbook_recursion():
    rng = np.random.default_rng(5)
    lengths, n_tags = (9, 4, 9, 1), 26
    graphs = chain_problem([rng.normal(size=(n, 4)) for n in lengths], None, n_tags, boundary=False)
    scores = random_scores(rng, graphs)
    states, tables = graphs.example_states, graphs.example_tables
    for m, value in enumerate(Trees().maximise(graphs, scores).values):
        unary = scores.variables[states[m] : states[m + 1]].reshape(-1, n_tags)
        pairs = scores.factors[tables[m] : tables[m + 1]].reshape(-1, n_tags, n_tags)
        forward = unary[0]
        for t in range(1, len(unary)):
            forward = (forward[:, None] + pairs[t - 1]).max(axis=0) + unary[t]
        assert value == pytest.approx(forward.max(), abs=TOLERANCE)


def test_ties_are_broken_the_same_way_every_time():
    rng = np.random.default_rng(6)
    graphs = random_problem(rng, kind="forest", n_examples=20)
    zero = Scores(np.zeros(graphs.example_states[-1]), np.zeros(graphs.example_tables[-1]))
    first = Trees().maximise(graphs, zero).labels
    np.testing.assert_array_equal(first, Trees().maximise(graphs, zero).labels)


def test_a_cycle_is_refused_by_example():
    nodes = np.ones((3, 2))
    tree, cycle = (nodes, [[0, 1], [1, 2]]), (nodes, [[0, 1], [1, 2], [0, 2]])
    graphs = graph_problem([tree, tree, cycle], None, 2)
    scores = graphs.scores(np.zeros(graphs.n_weights))
    assert "the graph of example 2 has a cycle" in Trees().refusal(graphs)
    for method in (Trees().maximise, Trees().marginals):
        with pytest.raises(DataError, match="the graph of example 2 has a cycle"):
            method(graphs, scores)
    # Two factors over the same pair are a cycle too.
    one = Features.constant()
    structure = Structure([0, 0], [0, 0], [0, 0], [0, 0], [(0, 1), (1, 0)])
    twice = FactorGraphs([structure], [0], [Template([0, 1])], [Template([[0, 1], [2, 3]])], one, one, [0], [0])
    assert "the graph of example 0 has a cycle" in Trees().refusal(twice)


def test_a_structured_factor_is_refused_by_example():
    one, members = Features.constant(), structured.chain(3, 2)
    plain, chained = Structure([0], [0]), Structure([0, 0, 0], [0, 0, 0], [0], [0], [(0, 1, 2)])
    graphs = FactorGraphs([plain, chained], [0, 0, 1], [Template([0, 1])], [members], one, one, [0] * 3, [0] * 3)
    scores = graphs.scores(np.zeros(graphs.n_weights))
    for method in (Trees().maximise, Trees().marginals, lambda *given: top_k(*given, 2)):
        with pytest.raises(DataError, match=r"Example 2: factor 0 is a chain factor .* .trees. takes"):
            method(graphs, scores)
    assert Trees().refusal(graphs.take([0, 1])) is None


def test_a_subset_without_cycles_is_not_refused():
    rng = np.random.default_rng(8)
    nodes = rng.normal(size=(3, 2))
    graphs = graph_problem([(nodes, [[0, 1], [1, 2], [0, 2]]), (nodes, [[0, 1], [1, 2]]), (nodes, [[2, 0]])], None, 2)
    part = graphs.take([2, 1, 2])
    assert part.is_forest
    assert not graphs.take([1, 0]).is_forest
    assert Trees().refusal(part) is None
    assert "the graph of example 1 has a cycle" in Trees().refusal(graphs.take([1, 0]))
    assert "the graph of example 0 has a cycle" in Trees().refusal(graphs.take([1, 0], keep_numbers=True))
    check_everything(part, random_scores(rng, part), 1.0)


# Not kept on disk, since Numba would not notice a change of the functions it calls.
@njit
def _one_by_one(plan, room, examples, largest, v_scores, f_scores, temperature, labels, values, out_v, out_f, masses):
    """Every example from buffers of its own scores, labels and marginals, in the middle of which they stand."""
    own_v, own_f = np.empty(largest.states + 3), np.empty(largest.tables + 5)
    mu_v, mu_f = np.empty(largest.states + 3), np.empty(largest.tables + 5)
    own_labels = np.empty(largest.variables + 2, np.int32)
    for m in range(len(examples) - 1):
        s, first, states, tables = examples[m].structure, examples[m].variables, examples[m].states, examples[m].tables
        n_variables, n_states = examples[m + 1].variables - first, examples[m + 1].states - states
        n_tables = examples[m + 1].tables - tables
        own_v[3 : 3 + n_states] = v_scores[states : states + n_states]
        own_f[5 : 5 + n_tables] = f_scores[tables : tables + n_tables]
        values[m] = max_product_one(plan, room, s, own_v, 3, own_f, 5, own_labels, 2)
        labels[first : first + n_variables] = own_labels[2 : 2 + n_variables]
        masses[m] = sum_product_one(plan, room, s, own_v, 3, own_f, 5, temperature, mu_v, mu_f)
        out_v[states : states + n_states] = mu_v[3 : 3 + n_states]
        out_f[tables : tables + n_tables] = mu_f[5 : 5 + n_tables]


def test_one_example_at_a_time_from_buffers_of_its_own():
    rng = np.random.default_rng(9)
    graphs = random_problem(rng, kind="forest", n_examples=20, forbidden=True)
    scores = random_scores(rng, graphs)
    best, expected = Trees().maximise(graphs, scores), Trees().marginals(graphs, scores, 0.5)
    labels, values = np.empty_like(best.labels), np.empty_like(best.values)
    found = [np.empty_like(part) for part in expected]
    a = graphs.arrays
    _one_by_one(schedule(graphs), TreeRoom.of(a.largest), a.examples, a.largest, *scores, 0.5, labels, values, *found)
    np.testing.assert_array_equal(labels, best.labels)
    np.testing.assert_allclose(values, best.values, rtol=0, atol=TOLERANCE)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("method", ["maximise", "marginals"])
def test_scores_that_are_no_numbers_are_named(method):
    graphs = chain_problem([np.ones((3, 1))] * 3, None, 2)
    for wrong, sentence in ((-np.inf, "every labeling is forbidden"), (np.nan, "NaN"), (np.inf, "NaN")):
        scores = graphs.scores(np.zeros(graphs.n_weights))
        scores.variables[graphs.example_states[1] : graphs.example_states[1] + 2] = wrong
        with pytest.raises(DataError, match=f"Example 1.* {sentence}"):
            getattr(Trees(), method)(graphs, scores)


def test_subsets_share_the_schedule_and_it_dies_with_the_batch():
    graphs = chain_problem([np.ones((3, 1)), np.ones((2, 1))], None, 2)
    assert schedule(graphs) is schedule(graphs.take([1]))
    other = chain_problem([np.ones((3, 1)), np.ones((2, 1))], None, 2)
    assert schedule(other) is not schedule(graphs)
    kept = schedule.__closure__
    cache = next(cell.cell_contents for cell in kept if isinstance(cell.cell_contents, dict))
    key = id(graphs.arrays.structures)
    assert key in cache
    del graphs
    gc.collect()
    assert key not in cache


def test_an_arity_three_factor_can_force_its_variables():
    # Only (1, 0, 1) is allowed, whatever the variables would rather be.
    scores = np.full((2, 2, 2), -np.inf)
    scores[1, 0, 1] = 0.0
    structure = Structure([0, 0, 0], [0, 0, 0], [0], [0], [(2, 0, 1)])
    one = Features.constant()
    graphs = FactorGraphs(
        [structure], [0], [Template([0, 1])], [Template(np.full((2, 2, 2), -1), scores)], one, one, [0], [0]
    )
    tables = graphs.scores(np.array([5.0, -5.0]))
    np.testing.assert_array_equal(Trees().maximise(graphs, tables).labels, [0, 1, 1])
    np.testing.assert_array_equal(Trees().marginals(graphs, tables).variables, [1, 0, 0, 1, 0, 1])

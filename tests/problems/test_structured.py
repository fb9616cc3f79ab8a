"""Structured factors: oracles, layout and scores against plain enumeration."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit
from tests.reference import enumeration
from tests.reference.random_problems import (
    parity_maximise,
    parity_statistics,
    random_structured_problem,
    random_structured_template,
)

from maxmargin.errors import DataError
from maxmargin.inference import Exhaustive
from maxmargin.jit import kernel
from maxmargin.problems import FactorGraphs, Features, Scores, Structure, Template
from maxmargin.problems.layout import joint_states_of
from maxmargin.problems.structured import (
    at_least,
    at_least_one,
    at_most,
    cardinality,
    chain,
    custom,
    exactly,
    exactly_one,
    structured_max,
    structured_max_marginals,
    structured_score,
    structured_statistics,
    tree,
    work_size,
)

INF = np.inf
many = settings(max_examples=40, derandomize=True, deadline=None)
seeds = st.integers(0, 10**6)


@kernel
def oracles(g, t, room, unary, params, labels, marginals, statistics):
    kinds, slots, structured = g.factor_kinds, g.slots, g.structured
    work, order, scratch = np.empty(room), np.empty(room, np.int64), np.empty(room, np.int32)
    structured_max_marginals(t, -1, kinds, slots, structured, unary, params, 0, marginals, work, order, scratch)
    value = structured_max(t, kinds, slots, structured, unary, params, 0, labels, work, order)
    structured_statistics(t, kinds, slots, structured, labels, statistics, 0)
    return value, structured_score(t, kinds, slots, structured, params, 0, labels, work)


def alone(template, labels=None, n_states=None):
    """A batch of one example whose variables all stand in one factor of the template."""
    n = template.arity
    one = Features.constant()
    structure = Structure([0] * n, [0] * n, [0], [0], [tuple(range(n))])
    variable = Template(np.arange(n_states or template.n_states[0]))
    return FactorGraphs([structure], [0], [variable], [template], one, one, [0], [0], labels)


def best_by_enumeration(template, unary, params):
    """Max-marginals in the places of unary."""
    starts = np.cumsum((0, *template.n_states))
    out = np.full(len(unary), -INF)
    for labels in itertools.product(*(range(n) for n in template.n_states)):
        value = sum(unary[start + k] for start, k in zip(starts[:-1], labels, strict=True))
        value += sum(times * params[entry] for entry, times in enumeration.statistics(template, labels).items())
        for start, k in zip(starts[:-1], labels, strict=True):
            out[start + k] = max(out[start + k], value)
    return out


@pytest.mark.parametrize("name", ["cardinality", "chain", "tree", "custom"])
@pytest.mark.parametrize("style", ["plain", "ties", "forbidden"])
@given(seed=seeds)
@many
def test_oracles(name, style, seed):
    rng = np.random.default_rng(seed)
    n_states = int(rng.integers(1, 4)) if name in ("chain", "tree") else 2
    n = int(rng.integers(1, 7))
    template = random_structured_template(rng, name, n, n_states, style == "forbidden")
    graphs = alone(template)
    unary, params = 2 * rng.normal(size=n * n_states), template.scores.copy()
    if style == "ties":
        unary, params = np.round(unary), np.round(params)
    if style == "forbidden":
        unary[rng.random(len(unary)) < 0.25] = -INF
    expected = best_by_enumeration(template, unary, params)
    labels, marginals = np.empty(n, np.int32), np.empty(n * n_states)
    statistics = np.empty(template.blocks.size)
    value, score = oracles(
        graphs.arrays, 0, work_size(graphs.arrays.largest), unary, params, labels, marginals, statistics
    )
    np.testing.assert_allclose(marginals, expected, rtol=0, atol=1e-12)
    assert value == pytest.approx(expected.max(), abs=1e-12)
    if value > -INF:
        counted = enumeration.statistics(template, [int(k) for k in labels])
        np.testing.assert_array_equal(statistics, [counted.get(p, 0.0) for p in range(len(statistics))])
        assert score == pytest.approx(sum(times * params[p] for p, times in counted.items()), abs=1e-12)
        own = unary[np.arange(n) * n_states + labels].sum()
        assert own + score == pytest.approx(value, abs=1e-12)


def test_a_long_cardinality_factor_is_sorted_right():
    rng = np.random.default_rng(0)
    n = 300
    template = exactly(n, 40)
    graphs = alone(template)
    unary = rng.normal(size=2 * n)
    labels, marginals, statistics = np.empty(n, np.int32), np.empty(2 * n), np.empty(n + 1)
    value, _ = oracles(
        graphs.arrays, 0, work_size(graphs.arrays.largest), unary, template.scores, labels, marginals, statistics
    )
    gains = unary[1::2] - unary[::2]
    chosen = np.argsort(-gains)[:40]
    np.testing.assert_array_equal(np.flatnonzero(labels), np.sort(chosen))
    assert value == pytest.approx(unary[::2].sum() + gains[chosen].sum())
    out = np.setdiff1d(np.arange(n), chosen)
    worst, next_best = gains[chosen].min(), gains[out].max()
    np.testing.assert_allclose(marginals[2 * out + 1], value - worst + gains[out])
    np.testing.assert_allclose(marginals[2 * chosen], value + next_best - gains[chosen])


@pytest.mark.parametrize("n_states", [2, 3])
@pytest.mark.parametrize("forbidden", [False, True])
@given(seed=seeds)
@settings(max_examples=15, derandomize=True, deadline=None)
def test_scores_and_exhaustive_search(n_states, forbidden, seed):
    rng = np.random.default_rng(seed)
    graphs = random_structured_problem(rng, n_states=n_states, max_variables=5, forbidden=forbidden)
    weights = rng.normal(size=graphs.n_weights)
    scores = graphs.scores(weights)
    of_variables, of_factors = enumeration.score_tables(graphs, weights)
    np.testing.assert_allclose(scores.variables, of_variables)
    np.testing.assert_allclose(scores.factors, of_factors)
    expected, values, unique = enumeration.maximise(graphs, scores)
    if np.isneginf(values).any():
        m = int(np.flatnonzero(np.isneginf(values))[0])
        with pytest.raises(DataError, match=f"Example {m}: every labeling is forbidden"):
            Exhaustive().maximise(graphs, scores)
        return
    found = Exhaustive().maximise(graphs, scores)
    np.testing.assert_allclose(found.values, values, atol=1e-10)
    for m, (first, last) in enumerate(itertools.pairwise(graphs.example_variables)):
        if unique[m]:
            np.testing.assert_array_equal(found.labels[first:last], expected[first:last])
    labels = rng.integers(0, n_states, len(graphs.labels)).astype(np.int32)
    for example, value in zip(enumeration.examples(graphs), graphs.labeling_scores(scores, labels), strict=True):
        own = labels[example.first_variable : example.first_variable + len(example.n_states)]
        assert value == pytest.approx(enumeration.labeling_score(example, scores, own), abs=1e-10)
    marginals = Exhaustive().marginals(graphs, scores, temperature=0.7)
    for one, other in zip(marginals, enumeration.marginals(graphs, scores, 0.7), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-10)


def test_joint_features_give_the_scores():
    rng = np.random.default_rng(3)
    graphs = random_structured_problem(rng)
    weights = rng.normal(size=graphs.n_weights)
    with_weights, without = graphs.scores(weights), graphs.scores(np.zeros(graphs.n_weights))
    labels = rng.integers(0, 2, len(graphs.labels)).astype(np.int32)
    gained = graphs.labeling_scores(with_weights, labels) - graphs.labeling_scores(without, labels)
    for m, (first, last) in enumerate(itertools.pairwise(graphs.example_variables)):
        assert gained[m] == pytest.approx(weights @ enumeration.joint_features(graphs, m, labels[first:last]))


@pytest.mark.parametrize(
    ("template", "allowed"),
    [
        (at_most(3, 1), lambda count: count <= 1),
        (at_most(3, 7), lambda count: True),
        (at_least(3, 2), lambda count: count >= 2),
        (exactly(3, 0), lambda count: count == 0),
        (at_least_one(3), lambda count: count >= 1),
        (exactly_one(3), lambda count: count == 1),
    ],
)
def test_counts(template, allowed):
    graphs = alone(template)
    scores = graphs.scores(np.zeros(graphs.n_weights))
    for labels in itertools.product(range(2), repeat=3):
        value = graphs.labeling_scores(scores, np.array(labels, np.int32))[0]
        assert value == (0.0 if allowed(sum(labels)) else -INF)


def test_layout():
    graphs = mixed()
    assert graphs.has_structured
    assert not graphs.take([1]).has_structured
    assert graphs.refuse_structured("trees") == (
        'Example 0: factor 1 is a cardinality factor over 3 variables; "trees" takes factors with tables only.'
    )
    assert graphs.take([1, 0]).refuse_structured("trees").startswith("Example 1: ")
    assert graphs.take([1]).refuse_structured("trees") is None
    np.testing.assert_array_equal(graphs.example_tables, [0, 12, 16])
    np.testing.assert_array_equal(graphs.example_messages, [0, 8, 10])
    np.testing.assert_array_equal(joint_states_of(graphs.arrays, np.ones(6, np.int32)), [3, -1, -1, 15])
    assert not graphs.is_forest
    assert graphs.take([1]).is_forest


def mixed(labels=None):
    pair, one = Template(np.arange(4).reshape(2, 2)), Features.constant()
    structures = [
        Structure([0] * 3, [0] * 3, [0, 1, 2], [0] * 3, [(0, 1), (2, 0, 1), (0, 1, 2)]),
        Structure([0] * 3, [0] * 3, [0], [0], [(1, 2)]),
    ]
    templates = [pair, at_most(3, 1), tree([-1, 0, 0], 2, blocks=np.full((2, 2), 4))]
    return FactorGraphs(structures, [0, 1], [Template([0, 1])], templates, one, one, [0, 0], [0, 0], labels)


def test_forbidden_labels_are_named():
    mixed([0, 1, 0, 1, 1, 1])
    with pytest.raises(DataError, match=r"Example 0: its own labels are forbidden by the hard constraints\."):
        mixed([1, 1, 0, 1, 1, 1])


def test_impossible_factors():
    for make, sentence in (
        (lambda: exactly(5, 7), r"exactly\(5, 7\) is not possible: of 5 variables, 0 to 5 can be in state 1\."),
        (lambda: at_least(3, 4), r"at_least\(3, 4\) is not possible"),
        (lambda: at_most(3, -1), r"at_most\(3, -1\) is not possible"),
        (lambda: at_least(3, -2), r"at_least\(3, -2\) is not possible"),
        (lambda: cardinality(0), r"A cardinality factor needs variables"),
        (lambda: cardinality(2, [-INF] * 3), r"forbids all of its states"),
        (lambda: cardinality(2, [0.0, np.nan, 0.0]), r"must be finite numbers"),
        (lambda: cardinality(3, [0.0] * 3), r"A cardinality factor of this size has 4 parameters; got 3 scores\."),
        (lambda: chain(3, 2, blocks=[0, 1]), r"A chain factor of this size has 4 parameters; got 2 blocks\."),
        (lambda: tree([-1, 1], 2), r"Variable 1 of a tree has parent 1; the first has -1, and each other an earlier"),
        (lambda: tree([0, 0], 2), r"Variable 0 of a tree has parent 0"),
        (lambda: tree([-1, -1], 2), r"Variable 1 of a tree has parent -1"),
    ):
        with pytest.raises(DataError, match=sentence):
            make()


def test_scopes_must_fit():
    one = Features.constant()
    structure = Structure([0, 0, 1], [0] * 3, [0], [0], [(0, 1, 2)])
    variables = [Template([0, 1]), Template([2, 3, 4])]
    for template, sentence in (
        (at_most(4, 1), r"Factor 0 of structure 0 joins 3 variables; its cardinality template is for 4\."),
        (
            at_most(3, 1),
            r"Factor 0 of structure 0 is a cardinality factor, and variable 2 of its scope has 3 states; its template "
            r"expects 2\.",
        ),
    ):
        with pytest.raises(DataError, match=sentence):
            FactorGraphs([structure], [0], variables, [template], one, one, [0], [0])


@njit
def wrong_value(unary, params, n_states, labels):
    labels[:] = 0
    return 1e3


@njit
def wrong_labels(unary, params, n_states, labels):
    labels[:] = 5
    return 0.0


@njit
def wrong_code(unary, params, n_states, labels):
    return unary.no_such_method()


@njit
def silent(labels, n_states, out):
    pass


def test_custom_functions_are_tried():
    for maximise, statistics, sentence in (
        (wrong_value, parity_statistics, r"maximise returned 1000 for labels that score"),
        (wrong_labels, parity_statistics, r"maximise gave variable 0 the label 5; its states are 0 to 1\."),
        (wrong_code, parity_statistics, r"maximise\(unary, params, n_states, labels\) does not compile"),
        (parity_maximise, silent, r"statistics must write a finite number"),
    ):
        with pytest.raises(DataError, match=sentence):
            custom((2, 2, 2), 2, maximise, statistics)


def test_a_plain_python_function_is_compiled():
    template = custom((2, 2), 2, parity_maximise.py_func, parity_statistics.py_func, scores=[0.0, 3.0])
    graphs = alone(template)
    found = Exhaustive().maximise(graphs, graphs.scores(np.zeros(graphs.n_weights)))
    np.testing.assert_array_equal(found.labels, [0, 1])
    assert found.values[0] == 3.0


def test_batches_with_custom_factors_are_pickled():
    template = custom((2, 2, 2), 2, parity_maximise, parity_statistics, scores=[0.0, 3.0])
    graphs = alone(template)
    state = graphs.__dict__ | {"arrays": graphs.arrays._replace(structured=np.zeros_like(graphs.arrays.structured))}
    # As if the addresses were those of another process.
    graphs.__dict__.update(state)
    copy = pickle.loads(pickle.dumps(graphs))
    assert copy.arrays.structured[0] != 0
    scores = Scores(np.array([0.0, 1.0, 0.0, 2.0, 0.0, -1.0]), copy.scores(np.zeros(copy.n_weights)).factors)
    found = Exhaustive().maximise(copy, scores)
    np.testing.assert_array_equal(found.labels, [0, 1, 0])
    assert found.values[0] == 5.0

"""Greedy search against the same search in plain Python, and against all single changes."""

import numpy as np
import pytest

from maxmargin.errors import DataError, OptionError
from maxmargin.inference import Engine
from maxmargin.inference.greedy import Greedy
from maxmargin.problems import Scores, chain_problem, multi_label_problem
from reference import enumeration
from reference.random_problems import random_problem

SETTINGS = [
    {"kind": "loopy"},
    {"kind": "loopy", "max_states": 2, "max_variables": 8, "max_arity": 2},
    {"kind": "loopy", "max_arity": 4, "max_states": 4, "max_variables": 4},
    {"kind": "loopy", "sparse": True},
    {"kind": "loopy", "forbidden": True},
    {"kind": "loopy", "shared": False, "forbidden": True, "max_arity": 4},
    {"kind": "forest", "max_arity": 4},
    {"kind": "loopy", "max_variables": 1},
]
NAMES = ["-".join(f"{k}={v}" for k, v in s.items()) for s in SETTINGS]


def random_scores(rng, graphs, scale=2.0):
    return graphs.scores(scale * rng.normal(size=graphs.n_weights), loss_augmented=bool(rng.integers(2)))


def whole_scores(rng, graphs, forbidden=0.0):
    """Whole numbers, which add without rounding and tie often."""
    parts = []
    for size in (graphs.example_states[-1], graphs.example_tables[-1]):
        part = rng.integers(-2, 3, size).astype(float)
        part[rng.random(size) < forbidden] = -np.inf
        parts.append(part)
    return Scores(*parts)


def merit(example, scores, labels):
    """(minus the number of forbidden terms, the sum of the others): what greedy search raises."""
    terms = [scores.variables[start + k] for start, k in zip(example.state_start, labels, strict=True)]
    for start, scope, shape in zip(example.table_start, example.structure.scopes, example.shapes, strict=True):
        terms.append(scores.factors[start + enumeration.joint_index(labels, scope, shape)])
    allowed = [float(term) for term in terms if term > -np.inf]
    return len(allowed) - len(terms), sum(allowed)


def single_changes(example, labels):
    for v, n in enumerate(example.n_states):
        for k in range(n):
            if k != labels[v]:
                yield [*labels[:v], k, *labels[v + 1 :]]


def plain_greedy(example, scores):
    labels = [
        int(np.argmax(scores.variables[start : start + n]))
        for start, n in zip(example.state_start, example.n_states, strict=True)
    ]
    while True:
        best, best_merit = None, merit(example, scores, labels)
        for changed in single_changes(example, labels):
            value = merit(example, scores, changed)
            if value > best_merit:
                best, best_merit = changed, value
        if best is None:
            return labels
        labels = best


@pytest.mark.parametrize("setting", SETTINGS, ids=NAMES)
@pytest.mark.parametrize("seed", range(4))
def test_no_single_change_improves(setting, seed):
    rng = np.random.default_rng(seed)
    graphs = random_problem(rng, **setting)
    scores = random_scores(rng, graphs)
    result = Greedy().maximise(graphs, scores)
    assert result.labels.dtype == np.int32
    np.testing.assert_array_equal(result.values, graphs.labeling_scores(scores, result.labels))
    np.testing.assert_array_equal(result.bounds, np.inf)
    assert (result.values <= enumeration.maximise(graphs, scores)[1] + 1e-10).all()
    for m, example in enumerate(enumeration.examples(graphs)):
        labels = result.labels[graphs.example_variables[m] : graphs.example_variables[m + 1]].tolist()
        count, value = merit(example, scores, labels)
        assert (result.values[m] == -np.inf) == (count < 0)
        for changed in single_changes(example, labels):
            other_count, other_value = merit(example, scores, changed)
            assert (other_count, other_value - 1e-10) <= (count, value)


@pytest.mark.parametrize("forbidden", [0.0, 0.2, 0.6])
def test_every_step_is_the_best_one_and_ties_go_to_the_lowest_variable_and_state(forbidden):
    rng = np.random.default_rng(int(10 * forbidden))
    for _ in range(30):
        graphs = random_problem(rng, kind="loopy", max_variables=6, max_states=4, max_arity=3)
        scores = whole_scores(rng, graphs, forbidden)
        expected = np.concatenate([plain_greedy(example, scores) for example in enumeration.examples(graphs)])
        np.testing.assert_array_equal(Greedy().maximise(graphs, scores).labels, expected)


def test_the_lowest_of_equal_changes_by_hand():
    # Two labels that both pay only while the other is 0: the first one moves, and then neither gains.
    graphs = multi_label_problem(np.ones((1, 1)), None, np.array([[0, 1]]), 2)
    scores = Scores(np.zeros(4), np.array([0.0, 1.0, 1.0, 0.0]))
    result = Greedy().maximise(graphs, scores)
    np.testing.assert_array_equal(result.labels, [1, 0])
    np.testing.assert_array_equal(result.values, [1.0])


def test_a_forbidden_start_leads_to_an_allowed_labeling():
    # Own scores prefer (1, 1, 1); every pair of equal neighbours is forbidden.
    graphs = multi_label_problem(np.ones((1, 1)), None, np.array([[0, 1], [1, 2]]), 3)
    pair = [-np.inf, 0.0, 0.0, -np.inf]
    scores = Scores(np.array([0.0, 1.0, 0.0, 9.0, 0.0, 1.0]), np.array(pair + pair))
    result = Greedy().maximise(graphs, scores)
    np.testing.assert_array_equal(result.labels, [1, 0, 1])
    np.testing.assert_array_equal(result.values, [2.0])


def test_a_search_that_ends_forbidden_says_so():
    graphs = multi_label_problem(np.ones((1, 1)), None, np.array([[0, 1]]), 2)
    scores = Scores(np.zeros(4), np.array([-np.inf] * 4))
    result = Greedy().maximise(graphs, scores)
    np.testing.assert_array_equal(result.labels, [0, 0])
    np.testing.assert_array_equal(result.values, [-np.inf])


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_the_search_ends_where_rounding_makes_and_breaks_ties(scale):
    rng = np.random.default_rng(1)
    edges = np.stack(np.triu_indices(12, 1), axis=1)
    graphs = multi_label_problem(np.ones((200, 1)), None, edges, 12)
    # Sums of tenths differ by rounding alone where they should be equal.
    scores = Scores(
        0.1 * scale * rng.integers(-1, 2, graphs.example_states[-1]),
        0.1 * scale * rng.integers(-1, 2, graphs.example_tables[-1]),
    )
    whole = Scores(np.rint(scores.variables / scale * 10), np.rint(scores.factors / scale * 10))
    np.testing.assert_array_equal(Greedy().maximise(graphs, scores).labels, Greedy().maximise(graphs, whole).labels)


def test_a_subset_has_the_answers_of_the_whole():
    rng = np.random.default_rng(5)
    graphs = random_problem(rng, kind="loopy", n_examples=8, forbidden=True)
    scores = random_scores(rng, graphs)
    chosen = [6, 0, 0, 3]
    variables, states, tables = graphs.example_variables, graphs.example_states, graphs.example_tables
    part = Scores(
        np.concatenate([scores.variables[states[m] : states[m + 1]] for m in chosen]),
        np.concatenate([scores.factors[tables[m] : tables[m + 1]] for m in chosen]),
    )
    whole, some = Greedy().maximise(graphs, scores), Greedy().maximise(graphs.take(chosen), part)
    np.testing.assert_array_equal(some.values, whole.values[chosen])
    np.testing.assert_array_equal(
        some.labels, np.concatenate([whole.labels[variables[m] : variables[m + 1]] for m in chosen])
    )


def test_what_it_refuses():
    graphs = chain_problem([np.ones((2, 1)), np.ones((3, 1))], None, 2)
    scores = graphs.scores(np.zeros(graphs.n_weights))
    assert isinstance(Greedy(), Engine)
    assert (Greedy().name, Greedy().exact, Greedy().refusal(graphs)) == ("greedy", False, None)
    with pytest.raises(OptionError, match=r'The "greedy" engine finds labelings and has no marginals; .*\.'):
        Greedy().marginals(graphs, scores)
    with pytest.raises(DataError, match=r"The scores of factors have shape \(3,\); this batch needs \(20,\)\."):
        Greedy().maximise(graphs, Scores(scores.variables, np.zeros(3)))
    for wrong in (np.nan, np.inf):
        # The last example's last factor: no labeling that the search visits need have this score.
        factors = scores.factors.copy()
        factors[-1] = wrong
        with pytest.raises(DataError, match=r"Example 1 has a score of NaN or \+inf"):
            Greedy().maximise(graphs, Scores(scores.variables, factors))

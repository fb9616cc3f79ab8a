"""Exhaustive search against enumeration in plain Python, on graphs of every kind."""

import numpy as np
import pytest

from maxmargin.errors import DataError, OptionError, TooLargeError
from maxmargin.inference import Engine, Exhaustive, Trees, engine
from maxmargin.problems import FactorGraphs, Features, Scores, Structure, Template, chain_problem
from reference import enumeration
from reference.random_problems import random_problem

TOLERANCE = 1e-10
SETTINGS = [
    {"kind": "loopy"},
    {"kind": "loopy", "max_states": 2, "max_variables": 7, "max_arity": 2},
    {"kind": "loopy", "max_arity": 4, "max_states": 4, "max_variables": 4},
    {"kind": "loopy", "sparse": True},
    {"kind": "loopy", "forbidden": True},
    {"kind": "loopy", "shared": False, "forbidden": True},
    {"kind": "forest", "max_arity": 4},
    {"kind": "loopy", "max_variables": 1},
]


def random_scores(rng, graphs, scale=2.0):
    return graphs.scores(scale * rng.normal(size=graphs.n_weights), loss_augmented=bool(rng.integers(2)))


def one_graph(n_states, scopes=()):
    """One example with zero scores and its own shape."""
    sizes = sorted(set(n_states))
    kinds = [sizes.index(n) for n in n_states]
    templates = [Template(np.zeros(tuple(n_states[v] for v in scope), int)) for scope in scopes]
    structure = Structure(kinds, [0] * len(kinds), range(len(scopes)), [0] * len(scopes), scopes)
    one = Features.constant()
    return FactorGraphs([structure], [0], [Template(np.zeros(n, int)) for n in sizes], templates, one, one, [0], [0])


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda s: "-".join(f"{k}={v}" for k, v in s.items()))
@pytest.mark.parametrize("seed", range(3))
def test_map_equals_enumeration(setting, seed):
    rng = np.random.default_rng(seed)
    graphs = random_problem(rng, **setting)
    scores = random_scores(rng, graphs)
    result = Exhaustive().maximise(graphs, scores)
    labels, values, unique = enumeration.maximise(graphs, scores)
    np.testing.assert_allclose(result.values, values, rtol=0, atol=TOLERANCE)
    np.testing.assert_array_equal(result.values, graphs.labeling_scores(scores, result.labels))
    np.testing.assert_array_equal(result.bounds, result.values)
    np.testing.assert_array_equal((result.labels == labels)[np.repeat(unique, np.diff(graphs.example_variables))], True)
    assert result.labels.dtype == np.int32


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda s: "-".join(f"{k}={v}" for k, v in s.items()))
@pytest.mark.parametrize("temperature", [10.0, 1.0, 0.1])
def test_marginals_equal_enumeration(setting, temperature):
    rng = np.random.default_rng(7)
    graphs = random_problem(rng, **setting)
    scores = random_scores(rng, graphs)
    found = Exhaustive().marginals(graphs, scores, temperature)
    for one, other in zip(found, enumeration.marginals(graphs, scores, temperature), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=TOLERANCE)
    assert (found.variables[np.isneginf(scores.variables)] == 0).all()
    assert (found.factors[np.isneginf(scores.factors)] == 0).all()


def test_ties_go_to_the_first_labeling_in_c_order():
    rng = np.random.default_rng(0)
    for _ in range(20):
        graphs = random_problem(rng, kind="loopy")
        # Whole numbers add without rounding, and tie often.
        scores = Scores(
            rng.integers(0, 2, graphs.example_states[-1]).astype(float),
            rng.integers(0, 2, graphs.example_tables[-1]).astype(float),
        )
        np.testing.assert_array_equal(
            Exhaustive().maximise(graphs, scores).labels, enumeration.maximise(graphs, scores)[0]
        )


def test_low_temperature_and_large_scores():
    rng = np.random.default_rng(3)
    graphs = random_problem(rng, kind="loopy", forbidden=True)
    scores = random_scores(rng, graphs, 1e3)
    best = Exhaustive().maximise(graphs, scores)
    found = Exhaustive().marginals(graphs, scores, 1e-3)
    assert all(np.isfinite(part).all() for part in found)
    np.testing.assert_allclose(found.log_partition, best.values, atol=1e-2)
    np.testing.assert_allclose(np.add.reduceat(found.variables, graphs.state_starts()), 1.0)


def test_a_subset_has_the_answers_of_the_whole():
    rng = np.random.default_rng(5)
    graphs = random_problem(rng, kind="loopy", n_examples=8)
    scores = random_scores(rng, graphs)
    chosen = [6, 0, 0, 3]
    variables, states, tables = graphs.example_variables, graphs.example_states, graphs.example_tables
    part = Scores(
        np.concatenate([scores.variables[states[m] : states[m + 1]] for m in chosen]),
        np.concatenate([scores.factors[tables[m] : tables[m + 1]] for m in chosen]),
    )
    whole, some = Exhaustive().maximise(graphs, scores), Exhaustive().maximise(graphs.take(chosen), part)
    np.testing.assert_array_equal(some.values, whole.values[chosen])
    np.testing.assert_array_equal(
        some.labels, np.concatenate([whole.labels[variables[m] : variables[m + 1]] for m in chosen])
    )


def test_too_many_joint_states():
    graphs = one_graph([2] * 21)
    scores = graphs.scores(np.zeros(graphs.n_weights))
    with pytest.raises(
        TooLargeError, match=r"Example 0 has 2097152 joint states; exhaustive search tries at most 1048576\."
    ):
        Exhaustive().maximise(graphs, scores)
    assert Exhaustive().refusal(one_graph([2] * 20)) is None
    assert "about 10^602" in Exhaustive().refusal(one_graph([2] * 2000))
    with pytest.raises(TooLargeError, match="Example 1 has 8 joint states; exhaustive search tries at most 4"):
        Exhaustive(limit=4).marginals(*_two_chains())


def _two_chains():
    graphs = chain_problem([np.ones((2, 1)), np.ones((3, 1))], None, 2)
    return graphs, graphs.scores(np.zeros(graphs.n_weights))


def test_everything_forbidden_names_the_example():
    graphs, scores = _two_chains()
    scores.factors[graphs.example_tables[1] : graphs.example_tables[1] + 4] = -np.inf
    for method in (Exhaustive().maximise, Exhaustive().marginals, Trees().maximise, Trees().marginals):
        with pytest.raises(DataError, match=r"Example 1: every labeling is forbidden by the hard constraints\."):
            method(graphs, scores)


def test_scores_must_fit_the_batch():
    graphs, scores = _two_chains()
    for one in (Exhaustive(), Trees()):
        with pytest.raises(DataError, match=r"The scores of factors have shape \(3,\); this batch needs \(20,\)\."):
            one.maximise(graphs, Scores(scores.variables, np.zeros(3)))
        with pytest.raises(DataError, match=r"Example 0 has a score of NaN or \+inf"):
            one.maximise(graphs, Scores(np.full(10, np.nan), scores.factors))
        for temperature in (0.0, -1.0, np.nan, np.inf):
            with pytest.raises(OptionError, match=r"temperature=.* must be a finite number above 0\."):
                one.marginals(graphs, scores, temperature)


def test_engines_by_name():
    assert isinstance(engine("trees"), Trees)
    assert isinstance(engine("exhaustive"), Exhaustive)
    own = Exhaustive(limit=8)
    assert engine(own) is own
    assert isinstance(own, Engine)
    assert isinstance(Trees(), Engine)
    with pytest.raises(
        OptionError, match=r"There is no inference engine 'viterbi'; known names are .*\"exhaustive\".*\"trees\""
    ):
        engine("viterbi")
    for nonsense in (3, Trees):
        with pytest.raises(OptionError, match="neither the name of an inference engine nor an engine"):
            engine(nonsense)

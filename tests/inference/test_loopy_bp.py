"""Loopy belief propagation: exact on forests, honest elsewhere."""

import numpy as np
import pytest

from maxmargin.errors import DataError, OptionError
from maxmargin.inference import Engine, Exhaustive, Trees
from maxmargin.inference.loopy_bp import LoopyBP
from maxmargin.problems import Scores, chain_problem, multi_label_problem
from reference import enumeration
from reference.random_problems import random_problem

FORESTS = [
    {},
    {"max_states": 2, "max_variables": 7, "max_arity": 2},
    {"max_states": 5, "max_variables": 4, "max_arity": 2},
    {"max_states": 4, "max_variables": 5, "max_arity": 4},
    {"sparse": True},
    {"forbidden": True},
    {"forbidden": True, "shared": False, "max_arity": 4, "max_states": 4},
    {"max_variables": 1},
    {"max_arity": 1},
]
LOOPY = [
    {},
    {"max_states": 2, "max_variables": 8, "max_arity": 2},
    {"max_arity": 4, "max_states": 4, "max_variables": 4},
    {"forbidden": True},
    {"shared": False, "forbidden": True, "max_arity": 4},
]
ENGINES = [LoopyBP(), LoopyBP(max_rounds=1), LoopyBP(damping=0.0, tol=0.0)]


def names(settings):
    return [" ".join(f"{k}={v}" for k, v in s.items()) or "plain" for s in settings]


def random_scores(rng, graphs, scale=2.0):
    return graphs.scores(scale * rng.normal(size=graphs.n_weights), loss_augmented=bool(rng.integers(2)))


@pytest.mark.parametrize("setting", FORESTS, ids=names(FORESTS))
@pytest.mark.parametrize("seed", range(3))
def test_forests_are_exact(setting, seed):
    rng = np.random.default_rng(seed)
    graphs = random_problem(rng, kind="forest", **setting)
    scores = random_scores(rng, graphs)
    labels, values, unique = enumeration.maximise(graphs, scores)
    for engine in ENGINES:
        result = engine.maximise(graphs, scores)
        assert result.labels.dtype == np.int32
        np.testing.assert_array_equal(result.values, graphs.labeling_scores(scores, result.labels))
        np.testing.assert_array_equal(result.bounds, np.inf)
        np.testing.assert_allclose(result.values, values, rtol=0, atol=1e-10)
        np.testing.assert_allclose(result.values, Trees().maximise(graphs, scores).values, rtol=0, atol=1e-10)
        same = np.repeat(unique, np.diff(graphs.example_variables))
        np.testing.assert_array_equal(result.labels[same], labels[same])


@pytest.mark.parametrize("setting", FORESTS, ids=names(FORESTS))
@pytest.mark.parametrize("temperature", [10.0, 1.0, 0.1])
def test_marginals_of_forests_are_exact(setting, temperature):
    rng = np.random.default_rng(int(10 * temperature))
    for _ in range(3):
        graphs = random_problem(rng, kind="forest", **setting)
        scores = random_scores(rng, graphs)
        expected = Trees().marginals(graphs, scores, temperature)
        for engine in ENGINES:
            found = engine.marginals(graphs, scores, temperature)
            for one, other in zip(found, expected, strict=True):
                np.testing.assert_allclose(one, other, rtol=0, atol=1e-8)
            assert (found.variables[np.isneginf(scores.variables)] == 0).all()
            assert (found.factors[np.isneginf(scores.factors)] == 0).all()


@pytest.mark.parametrize("forbidden", [0.0, 0.1])
def test_ties_on_forests_do_not_mix_labelings(forbidden):
    rng = np.random.default_rng(2)
    tried = 0
    while tried < 30:
        graphs = random_problem(rng, kind="forest", max_variables=6, max_arity=3)
        parts = []
        for size in (graphs.example_states[-1], graphs.example_tables[-1]):
            part = rng.integers(0, 2, size).astype(float)
            part[rng.random(size) < forbidden] = -np.inf
            parts.append(part)
        scores = Scores(*parts)
        values = enumeration.maximise(graphs, scores)[1]
        if np.isfinite(values).all():
            np.testing.assert_array_equal(LoopyBP().maximise(graphs, scores).values, values)
            tried += 1


def test_a_long_chain_needs_no_more_rounds():
    rng = np.random.default_rng(4)
    graphs = chain_problem([rng.normal(size=(500, 2))], None, 3)
    scores = graphs.scores(rng.normal(size=graphs.n_weights))
    exact = Trees().maximise(graphs, scores)
    np.testing.assert_array_equal(LoopyBP(max_rounds=1).maximise(graphs, scores).labels, exact.labels)
    for one, other in zip(LoopyBP().marginals(graphs, scores), Trees().marginals(graphs, scores), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-8)


@pytest.mark.parametrize("setting", LOOPY, ids=names(LOOPY))
@pytest.mark.parametrize("seed", range(4))
def test_labelings_of_loopy_graphs_have_the_scores_they_claim(setting, seed):
    rng = np.random.default_rng(seed)
    graphs = random_problem(rng, kind="loopy", **setting)
    scores = random_scores(rng, graphs)
    best = enumeration.maximise(graphs, scores)[1]
    for engine in ENGINES:
        result = engine.maximise(graphs, scores)
        np.testing.assert_array_equal(result.values, graphs.labeling_scores(scores, result.labels))
        assert (result.values <= best + 1e-10).all()
        np.testing.assert_array_equal(result.bounds, np.inf)


@pytest.mark.parametrize("setting", LOOPY, ids=names(LOOPY))
@pytest.mark.parametrize("temperature", [10.0, 1.0, 0.1])
def test_marginals_of_loopy_graphs_sum_to_one(setting, temperature):
    rng = np.random.default_rng(int(10 * temperature))
    graphs = random_problem(rng, kind="loopy", **setting)
    scores = random_scores(rng, graphs)
    for engine in ENGINES:
        found = engine.marginals(graphs, scores, temperature)
        assert all(np.isfinite(part).all() for part in found)
        np.testing.assert_allclose(np.add.reduceat(found.variables, graphs.state_starts()), 1.0, atol=1e-12)
        for example in enumeration.examples(graphs):
            for start, shape in zip(example.table_start, example.shapes, strict=True):
                assert found.factors[start : start + int(np.prod(shape))].sum() == pytest.approx(1.0, abs=1e-12)
        assert (found.variables[np.isneginf(scores.variables)] == 0).all()
        assert (found.factors[np.isneginf(scores.factors)] == 0).all()


def test_weak_couplings_are_nearly_exact():
    rng = np.random.default_rng(8)
    edges = np.stack(np.triu_indices(6, 1), axis=1)
    graphs = multi_label_problem(np.ones((20, 1)), None, edges, 6)
    scores = Scores(rng.normal(size=graphs.example_states[-1]), 0.1 * rng.normal(size=graphs.example_tables[-1]))
    exact, found = Exhaustive().marginals(graphs, scores), LoopyBP().marginals(graphs, scores)
    np.testing.assert_allclose(found.variables, exact.variables, atol=1e-2)
    np.testing.assert_allclose(found.factors, exact.factors, atol=1e-2)
    np.testing.assert_allclose(found.log_partition, exact.log_partition, atol=1e-2)
    # Converged messages: factors agree with their variables.
    pairs = found.factors.reshape(20, len(edges), 2, 2)
    of_variables = found.variables.reshape(20, 6, 2)
    np.testing.assert_allclose(pairs.sum(axis=3), of_variables[:, edges[:, 0]], atol=1e-5)
    np.testing.assert_allclose(pairs.sum(axis=2), of_variables[:, edges[:, 1]], atol=1e-5)
    best = Exhaustive().maximise(graphs, scores).values
    np.testing.assert_allclose(LoopyBP().maximise(graphs, scores).values, best)


def test_low_temperature_and_large_scores():
    rng = np.random.default_rng(3)
    for kind in ("forest", "loopy"):
        graphs = random_problem(rng, kind=kind, forbidden=True)
        scores = random_scores(rng, graphs, 1e3)
        found = LoopyBP().marginals(graphs, scores, 1e-3)
        assert all(np.isfinite(part).all() for part in found)
        np.testing.assert_allclose(np.add.reduceat(found.variables, graphs.state_starts()), 1.0)


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
    whole, some = LoopyBP().maximise(graphs, scores), LoopyBP().maximise(graphs.take(chosen), part)
    np.testing.assert_array_equal(some.values, whole.values[chosen])
    np.testing.assert_array_equal(
        some.labels, np.concatenate([whole.labels[variables[m] : variables[m + 1]] for m in chosen])
    )
    sums, of_part = LoopyBP().marginals(graphs, scores), LoopyBP().marginals(graphs.take(chosen), part)
    np.testing.assert_array_equal(of_part.log_partition, sums.log_partition[chosen])
    np.testing.assert_array_equal(
        of_part.variables, np.concatenate([sums.variables[states[m] : states[m + 1]] for m in chosen])
    )


def test_everything_forbidden_names_the_example():
    graphs = chain_problem([np.ones((2, 1)), np.ones((3, 1))], None, 2)
    scores = graphs.scores(np.zeros(graphs.n_weights))
    scores.factors[graphs.example_tables[1] : graphs.example_tables[1] + 4] = -np.inf
    for engine in ENGINES:
        for method in (engine.maximise, engine.marginals):
            with pytest.raises(DataError, match=r"Example 1: every labeling is forbidden by the hard constraints\."):
                method(graphs, scores)


def test_an_odd_cycle_of_different_neighbours_is_not_seen_through():
    # No labeling is allowed, but each factor alone finds nothing impossible: the value says what the labeling is worth.
    graphs = multi_label_problem(np.ones((1, 1)), None, np.array([[0, 1], [0, 2], [1, 2]]), 3)
    scores = Scores(np.zeros(6), np.array([-np.inf, 0.0, 0.0, -np.inf] * 3))
    np.testing.assert_array_equal(LoopyBP().maximise(graphs, scores).values, [-np.inf])
    assert np.isfinite(LoopyBP().marginals(graphs, scores).variables).all()


def test_what_it_refuses():
    graphs = chain_problem([np.ones((2, 1)), np.ones((3, 1))], None, 2)
    scores = graphs.scores(np.zeros(graphs.n_weights))
    assert isinstance(LoopyBP(), Engine)
    assert (LoopyBP().name, LoopyBP().exact, LoopyBP().refusal(graphs)) == ("loopy_bp", False, None)
    for temperature in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(OptionError, match=r"temperature=.* must be a finite number above 0\."):
            LoopyBP().marginals(graphs, scores, temperature)
    for method in (LoopyBP().maximise, LoopyBP().marginals):
        with pytest.raises(DataError, match=r"The scores of factors have shape \(3,\); this batch needs \(20,\)\."):
            method(graphs, Scores(scores.variables, np.zeros(3)))
        with pytest.raises(DataError, match=r"Example 0 has a score of NaN or \+inf"):
            method(graphs, Scores(np.full(10, np.nan), scores.factors))


@pytest.mark.parametrize("wrong", [0, -1, 2.5, True, "many", None])
def test_max_rounds_is_a_whole_number(wrong):
    with pytest.raises(OptionError, match=r"max_rounds=.* is not possible; it must be a whole number of at least 1\."):
        LoopyBP(max_rounds=wrong)


@pytest.mark.parametrize("wrong", [1.0, -0.1, np.nan, np.inf, True, "half", None])
def test_damping_is_a_share(wrong):
    with pytest.raises(OptionError, match=r"damping=.* is not possible; it must be at least 0 and below 1\."):
        LoopyBP(damping=wrong)


@pytest.mark.parametrize("wrong", [-1e-9, np.nan, np.inf, True, "small", None])
def test_tol_is_a_number(wrong):
    with pytest.raises(OptionError, match=r"tol=.* is not possible; it must be a finite number of at least 0\."):
        LoopyBP(tol=wrong)
    assert LoopyBP(np.int64(3), np.float64(0.25), np.float32(0.5)).max_rounds == 3


@pytest.mark.parametrize("setting", LOOPY[:3], ids=names(LOOPY[:3]))
def test_the_last_labeling_is_that_of_the_beliefs_and_never_better_than_the_best(setting):
    """The beliefs of max-product are those of sum-product at a low temperature."""
    worse = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        graphs = random_problem(rng, kind="loopy", **setting)
        scores = random_scores(rng, graphs)
        best, last = (
            LoopyBP(max_rounds=3, damping=0.0, labeling=one).maximise(graphs, scores) for one in ("best", "last")
        )
        assert (last.values <= best.values + 1e-12).all()
        worse += int((last.values < best.values - 1e-9).sum())
        beliefs = LoopyBP(max_rounds=3, damping=0.0, tol=0.0).marginals(graphs, scores, temperature=1e-3)
        starts = graphs.state_starts()
        top = np.maximum.reduceat(beliefs.variables, starts)
        chosen = beliefs.variables[starts + last.labels]
        # Where the belief is clear, it is the one that was taken.
        clear = top > 0.999
        assert (chosen[clear] > 0.999).mean() > 0.95
    assert worse > 0


def test_a_labeling_that_is_not_known():
    with pytest.raises(OptionError, match="labeling='first' is not possible"):
        LoopyBP(labeling="first")

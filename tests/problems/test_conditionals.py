"""Conditional scores against the definition, and the temperature against probabilities that are known."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

from maxmargin.problems import binary_problem, chain_problem, graph_problem, multi_class_problem
from maxmargin.problems.conditionals import conditional_scores, fit_temperature, temperature_of
from maxmargin.problems.factor_graphs import Scores


def chains(order=1, n=12, forbidden=None):
    rng = np.random.default_rng(0)
    y = [rng.integers(0, 3, rng.integers(1, 6)) for _ in range(n)]
    return chain_problem([rng.normal(size=(len(row), 2)) for row in y], y, 3, order=order, forbidden=forbidden)


def images():
    rng = np.random.default_rng(1)
    edges = np.array([[0, 1], [1, 2], [2, 3], [3, 0], [0, 2]])
    graphs = [(rng.normal(size=(4, 2)), edges, None), (rng.normal(size=(3, 2)), edges[:2], None)]
    return graph_problem(graphs, [rng.integers(0, 4, 4), rng.integers(0, 4, 3)], 4)


@pytest.mark.parametrize("problem", [chains(), chains(2), images()], ids=["chain", "order 2", "graph"])
def test_conditional_scores_are_differences_of_labelings(problem):
    scores = problem.scores(np.random.default_rng(2).normal(size=problem.n_weights))
    found = conditional_scores(problem, scores, problem.labels)
    whole = problem.labeling_scores(scores, problem.labels)
    starts = np.append(problem.state_starts(), problem.example_states[-1])
    for v in range(len(problem.labels)):
        m = np.searchsorted(problem.example_variables, v, side="right") - 1
        own = found[starts[v] : starts[v + 1]]
        for k in range(len(own)):
            labels = problem.labels.copy()
            labels[v] = k
            change = problem.labeling_scores(scores, labels)[m] - whole[m]
            assert own[k] - own[problem.labels[v]] == pytest.approx(change, abs=1e-12)


def test_what_is_forbidden_has_no_probability():
    rng = np.random.default_rng(0)
    y = [np.array([0, 0, 1]), np.array([1, 1])] * 5
    never = np.array([[False, False], [True, False]])
    problem = chain_problem([rng.normal(size=(len(row), 2)) for row in y], y, 2, forbidden=never)
    scores = problem.scores(rng.normal(size=problem.n_weights))
    found = conditional_scores(problem, scores, problem.labels)
    assert np.isneginf(found).any()
    assert np.isfinite(fit_temperature(problem, scores))


@pytest.mark.parametrize("temperature", [0.02, 1.0, 30.0])
def test_a_known_temperature_is_found(temperature):
    """Labels drawn from softmax(scores / T)."""
    rng = np.random.default_rng(3)
    tables = rng.normal(size=(20_000, 4))
    p = np.exp(tables / temperature * temperature)
    draws = (p.cumsum(axis=1) > rng.random((len(p), 1)) * p.sum(axis=1, keepdims=True)).argmax(axis=1)
    problem = multi_class_problem(np.ones((len(p), 1)), draws, 4)
    scores = Scores((temperature * tables).ravel(), np.empty(0))
    assert fit_temperature(problem, scores) == pytest.approx(temperature, rel=0.05)


@pytest.mark.parametrize("seed", range(8))
def test_the_temperature_is_that_of_the_largest_pseudo_likelihood(seed):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(200, 3)), rng.integers(0, 4, 200)
    problem = multi_class_problem(X, y, 4, sample_weight=rng.integers(0, 3, 200))
    weights = 0.2 * rng.normal(size=problem.n_weights) + (np.eye(4)[y].T @ X).ravel() / rng.choice([0.5, 5.0, 20.0])

    def loss(log_beta):
        scores = np.exp(log_beta) * problem.scores(weights).variables.reshape(-1, 4)
        return problem.arrays.weight @ (logsumexp(scores, axis=1) - scores[np.arange(200), y])

    best = minimize_scalar(loss, bounds=(-7.0, 7.0), method="bounded", options={"xatol": 1e-6}).fun
    assert loss(-np.log(temperature_of(problem, weights, 200))) <= best + 1e-6


@pytest.mark.parametrize("right", [True, False])
def test_scores_that_are_always_right_or_wrong_have_a_temperature(right):
    y = np.arange(6) % 2
    problem, typical = (
        binary_problem(np.where((y == 1) == right, 1.0, -1.0)[:, None] * np.arange(1.0, 7.0)[:, None], y),
        3.5,
    )
    found = temperature_of(problem, np.ones(1), 6)
    assert found == pytest.approx(typical / 100.0 if right else typical * 100.0)


@pytest.mark.parametrize("n", [1, 7, 50, 99, 300])
def test_the_temperature_of_some_examples_is_that_of_a_smaller_problem(n):
    rng = np.random.default_rng(n)
    X, y = rng.normal(size=(100, 3)), rng.integers(0, 2, 100)
    for problem in (multi_class_problem(X, y + rng.integers(0, 2, 100), 3), binary_problem(X, y)):
        weights = rng.normal(size=problem.n_weights)
        some = problem.take(np.arange(0, 100, -(-100 // n)))
        assert temperature_of(problem, weights, n) == fit_temperature(some, some.scores(weights))


def test_scores_that_say_nothing():
    problem = multi_class_problem(np.ones((5, 1)), np.arange(5) % 2, 2)
    assert fit_temperature(problem, Scores(np.zeros(10), np.empty(0))) == 1.0

"""The averaged perceptron against its definition in plain Python."""

from __future__ import annotations

import numpy as np
import pytest

from maxmargin.errors import OptionError
from maxmargin.inference import engine
from maxmargin.problems.chains import chain_problem
from maxmargin.solvers import Callback, Status
from maxmargin.solvers.online.perceptron import Perceptron
from maxmargin.solvers.oracles.max_oracle import oracle_of
from reference.enumerated_program import planes
from reference.random_problems import random_problem


def by_definition(problem, loss_augmented, n_passes):
    """The mean of the weights over all visits, with every labeling written out."""
    if not loss_augmented:
        problem = problem.take(np.arange(problem.n_examples))
        problem.arrays = problem.arrays._replace(losses=0.0 * problem.arrays.losses)
    found, w, total, t = planes(problem), np.zeros(problem.n_weights), 0.0, 0
    for k in range(n_passes):
        for m in np.random.default_rng([0, 0, k]).permutation(problem.n_examples):
            psi, _ = max(found[m], key=lambda one: one[1] - w @ one[0])
            w = w + problem.arrays.weight[m] * psi
            total, t = total + w, t + 1
    return total / t


@pytest.mark.parametrize("engine_name", ["trees", "exhaustive"])
def test_the_mean_of_all_weights(engine_name):
    compared = 0
    for seed in range(1, 21, 2):
        problem = random_problem(np.random.default_rng(seed), kind="forest", n_examples=4, max_states=2)
        for augmented in (False, True):
            # Without fixed scores of its own, every labeling ties at w = 0, and engines may choose any.
            if not augmented and not len(problem.arrays.variable_scores):
                continue
            compared += 1
            result = Perceptron(engine_name, loss_augmented=augmented).solve(problem, 2.0, max_passes=3)
            np.testing.assert_allclose(result.weights, by_definition(problem, augmented, result.n_passes), atol=1e-9)
            hinges = oracle_of(problem, "junction_tree").mean_plane(result.weights, 1).hinges
            value = 0.25 * result.weights @ result.weights + problem.arrays.weight @ hinges / 4
            assert result.primal == pytest.approx(value, abs=1e-9)
            assert result.certificate == "none"
            assert result.dual == -np.inf
            assert result.gap == np.inf
    assert compared > 10


def separable(n=60):
    rng = np.random.default_rng(0)
    w = rng.normal(size=(3, 6))
    X = []
    while len(X) < n:
        x = rng.normal(size=(int(rng.integers(1, 6)), 6))
        top = np.sort(x @ w.T, axis=1)
        if (top[:, -1] - top[:, -2] > 0.5).all():
            X.append(x)
    return chain_problem(X, [(x @ w.T).argmax(axis=1) for x in X], 3)


def test_it_ends_when_it_makes_no_mistake():
    problem, reports = separable(), []
    result = Perceptron().solve(problem, max_passes=500)
    assert result.status is Status.STALLED
    assert result.history["n_mistakes"].tolist() == [0]
    # Checks are for whoever listens, and change nothing.
    watched = Perceptron().solve(problem, max_passes=500, monitor=Callback(reports.append))
    np.testing.assert_array_equal(watched.weights, result.weights)
    assert (watched.n_passes, watched.status) == (result.n_passes, result.status)
    assert len(reports) == len(watched.history["n_mistakes"]) > 2
    assert watched.history["n_mistakes"][0] > 0
    assert reports[-1].primal == watched.primal == result.primal
    labels = engine("trees").maximise(problem, problem.scores(result.weights)).labels
    assert (labels == problem.labels).mean() > 0.99


def test_a_checkpoint_goes_on_bit_for_bit(tmp_path):
    problem, solver = separable(), Perceptron(loss_augmented=True, batch=4)
    whole = solver.solve(problem, max_passes=10)
    solver.solve(problem, max_passes=4, checkpoint=tmp_path / "state")
    rest = solver.solve(problem, max_passes=10, checkpoint=tmp_path / "state")
    np.testing.assert_array_equal(rest.weights, whole.weights)
    assert rest.primal == whole.primal


def test_threads_do_not_change_the_bits():
    problem = separable()
    one, two = (Perceptron().solve(problem, max_passes=3, n_jobs=n) for n in (1, 2))
    np.testing.assert_array_equal(one.weights, two.weights)
    assert one.primal == two.primal


def test_bad_options():
    with pytest.raises(OptionError, match="batch=0 is not possible"):
        Perceptron(batch=0).solve(separable(3))

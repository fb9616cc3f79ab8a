"""Extragradient against its steps by enumeration, and against the training problem written out."""

from __future__ import annotations

import numpy as np
import pytest

from maxmargin.errors import OptionError
from maxmargin.problems import label_edges, multi_label_problem
from maxmargin.problems.chains import chain_problem
from maxmargin.problems.features import KernelFeatures
from maxmargin.problems.multi_class import multi_class_problem
from maxmargin.solvers import Status
from maxmargin.solvers.marginals.extragradient import Extragradient
from reference.enumerated_program import exact_optimum, planes
from reference.random_problems import random_problem

SLACK = 1e-7


def problems():
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(10, 3)), rng.integers(0, 2, (10, 4))
    lengths = rng.integers(1, 5, 8)
    rows, tags = [rng.normal(size=(t, 3)) for t in lengths], [rng.integers(0, 3, t) for t in lengths]
    return {
        "labels": multi_label_problem(X, Y, label_edges("full", Y), 4, sample_weight=rng.random(10) + 0.5),
        "classes": multi_class_problem(X, rng.integers(0, 3, 10), 3),
        "chains": chain_problem(rows, tags, 3, sample_weight=rng.random(8) + 0.5),
        "forest": random_problem(np.random.default_rng(1), kind="forest", n_examples=6, forbidden=True, sparse=True),
        "loopy": random_problem(np.random.default_rng(2), n_examples=5, max_variables=4),
    }


PROBLEMS = problems()


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("rho", [None, 0.3])
def test_it_closes_the_gap(name, rho):
    best = exact_optimum(PROBLEMS[name], 1.0)
    result = Extragradient(rho=rho).solve(PROBLEMS[name], 1.0, tol=5e-3, max_passes=5000)
    assert result.certificate == "exact"
    assert (result.history["dual"] <= best + SLACK).all()
    assert (result.history["primal"] >= best - SLACK).all()
    assert result.status is Status.CONVERGED, result.summary()


def test_steps_are_those_of_the_saddle_point():
    problem, lam = PROBLEMS["chains"], 0.5
    run = Extragradient().make_run(problem, lam, 0, 1)
    now = run.begin(None)
    every = [(np.array([psi for psi, _ in found]), np.array([ell for _, ell in found])) for found in planes(problem)]
    share = problem.arrays.weight / problem.n_examples
    p, w = [np.full(len(ell), 1.0 / len(ell)) for _, ell in every], np.zeros(problem.n_weights)

    def mean(p):
        return sum(c * one @ features for c, one, (features, _) in zip(share, p, every, strict=True))

    def tilt(p, eta, w):
        p = [one * np.exp(eta * (losses - features @ w)) for one, (features, losses) in zip(p, every, strict=True)]
        return [one / one.sum() for one in p]

    taken = 0
    for _ in range(25):
        np.testing.assert_allclose(now.psi, mean(p), atol=1e-9)
        np.testing.assert_allclose(now.w, w, atol=1e-9)
        eta, a = now.step, now.a
        run.steps(now, lambda: False)
        if now.a > a:
            taken += 1
            pull = eta * now.rho
            w_ahead, p_ahead = (w + pull * mean(p)) / (1 + pull * lam), tilt(p, eta, w)
            w, p = (w + pull * mean(p_ahead)) / (1 + pull * lam), tilt(p, eta, w_ahead)
    assert taken > 10


def test_the_safe_step_is_always_taken():
    for name, problem in PROBLEMS.items():
        run = Extragradient().make_run(problem, 0.2, 0, 1)
        now = run.begin(None)
        now.growth = 1.0
        for _ in range(50):
            step = now.step
            run.one_pass(now, lambda: False)
            assert now.step == step, name


def test_a_linear_kernel_does_the_same():
    rng = np.random.default_rng(3)
    lengths = rng.integers(1, 6, 8)
    rows, tags = [rng.normal(size=(t, 4)) for t in lengths], [rng.integers(0, 3, t) for t in lengths]
    x = np.concatenate(rows)
    plain, kernel = chain_problem(rows, tags, 3), chain_problem(KernelFeatures(x @ x.T), tags, 3, lengths=lengths)
    one, two = (Extragradient(rho=0.4).solve(p, 2.0, tol=0.0, max_passes=20) for p in (plain, kernel))
    np.testing.assert_allclose(one.history["dual"], two.history["dual"], atol=1e-8)
    w = (two.weights[: 3 * len(x)].reshape(3, -1) @ x).ravel()
    np.testing.assert_allclose(w, one.weights[:12], atol=1e-8)


def test_a_checkpoint_goes_on_bit_for_bit(tmp_path):
    solver, problem = Extragradient(), PROBLEMS["chains"]
    whole = solver.solve(problem, 10.0, tol=0.0, max_passes=20, n_jobs=2)
    solver.solve(problem, 10.0, tol=0.0, max_passes=9, checkpoint=tmp_path / "state")
    rest = solver.solve(problem, 10.0, tol=0.0, max_passes=20, checkpoint=tmp_path / "state")
    np.testing.assert_array_equal(rest.weights, whole.weights)
    assert (rest.primal, rest.dual) == (whole.primal, whole.dual)


def test_a_warm_start_begins_at_the_weights():
    problem = PROBLEMS["chains"]
    first = Extragradient().solve(problem, 1.0, tol=1e-2, max_passes=2000)
    warm = Extragradient().solve(problem, 2.0, tol=1e-2, max_passes=5000, state=first.state)
    assert warm.status is Status.CONVERGED
    assert warm.dual <= exact_optimum(problem, 2.0) + SLACK <= warm.primal + 2 * SLACK


def test_sentences():
    with pytest.raises(OptionError, match=r"rho=-1\.0 is not possible"):
        Extragradient(rho=-1.0).solve(PROBLEMS["chains"])
    result = Extragradient("loopy_bp").solve(PROBLEMS["labels"], max_passes=3)
    assert result.certificate == "none"
    assert result.status is not Status.CONVERGED

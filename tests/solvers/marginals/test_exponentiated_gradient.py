"""Exponentiated gradient, batch and online, against the training problems written out."""

from __future__ import annotations

import numpy as np
import pytest

from maxmargin.errors import OptionError
from maxmargin.problems import label_edges, multi_label_problem
from maxmargin.problems.chains import chain_problem
from maxmargin.problems.features import KernelFeatures
from maxmargin.problems.multi_class import multi_class_problem
from maxmargin.solvers import Status
from maxmargin.solvers.marginals.exponentiated_gradient import ExponentiatedGradient
from maxmargin.solvers.marginals.lbfgs import LBFGS
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
FORESTS = ("classes", "chains", "forest")
CASES = [(name, False) for name in PROBLEMS] + [(name, True) for name in FORESTS]


def check(result, best):
    assert result.certificate == "exact"
    assert (result.history["dual"] <= best + SLACK).all()
    assert (result.history["primal"] >= best - SLACK).all()
    assert result.status is Status.CONVERGED, result.summary()


@pytest.mark.parametrize(("name", "online"), CASES)
def test_it_closes_the_gap_of_the_margin(name, online):
    tol = 2e-3 if online else 5e-3
    result = ExponentiatedGradient(online=online).solve(PROBLEMS[name], 1.0, tol=tol, max_passes=5000)
    check(result, exact_optimum(PROBLEMS[name], 1.0))


@pytest.mark.parametrize(("name", "online"), CASES)
def test_it_closes_the_gap_of_the_log_objective(name, online):
    best = LBFGS().solve(PROBLEMS[name], 3.0, tol=1e-10, max_passes=500)
    assert best.status is Status.CONVERGED
    result = ExponentiatedGradient(objective="log", online=online).solve(PROBLEMS[name], 3.0, tol=1e-6, max_passes=2000)
    check(result, best.primal)


def test_batch_steps_are_the_multiplicative_update():
    # By enumeration: p_m(y) <- p_m(y) exp(eta (ell - w . psi)), normalised.
    problem, lam = PROBLEMS["chains"], 0.5
    run = ExponentiatedGradient(online=False).make_run(problem, lam, 0, 1)
    now = run.begin(None)
    every = [(np.array([psi for psi, _ in found]), np.array([ell for _, ell in found])) for found in planes(problem)]
    p = [np.full(len(ell), 1.0 / len(ell)) for _, ell in every]
    share = problem.arrays.weight / problem.n_examples
    run.steps(now, lambda: False)
    for _ in range(6):
        psi = sum(c * one @ features for c, one, (features, _) in zip(share, p, every, strict=True))
        ell = sum(c * one @ losses for c, one, (_, losses) in zip(share, p, every, strict=True))
        np.testing.assert_allclose(now.psi, psi, atol=1e-10)
        assert now.ell == pytest.approx(ell, abs=1e-10)
        assert now.dual >= ell - psi @ psi / (2 * lam) - 1e-10
        eta, a = now.step, now.a
        run.steps(now, lambda: False)
        if now.a == a:
            continue
        w = psi / lam
        p = [one * np.exp(eta * (losses - features @ w)) for one, (features, losses) in zip(p, every, strict=True)]
        p = [one / one.sum() for one in p]


@pytest.mark.parametrize("objective", ["margin", "log"])
def test_no_step_decreases_the_dual(objective):
    problem = PROBLEMS["chains"]
    for online in (False, True):
        run = ExponentiatedGradient(objective=objective, online=online).make_run(problem, 0.1, 0, 1)
        now = run.begin(None)
        last = -np.inf
        for k in range(30):
            run.one_pass(now, lambda: False)
            # The best so far is the last.
            now.dual = -np.inf
            if online:
                run.measure(now, False)
            elif k:
                entropy = now.value + now.v @ now.psi - now.ell if objective == "log" else 0.0
                now.dual = now.ell + entropy - now.psi @ now.psi / 0.2
            assert now.dual >= last - 1e-12
            last = now.dual


@pytest.mark.parametrize("online", [False, True])
def test_a_linear_kernel_does_the_same(online):
    rng = np.random.default_rng(3)
    lengths = rng.integers(1, 6, 8)
    rows, tags = [rng.normal(size=(t, 4)) for t in lengths], [rng.integers(0, 3, t) for t in lengths]
    x = np.concatenate(rows)
    plain, kernel = chain_problem(rows, tags, 3), chain_problem(KernelFeatures(x @ x.T), tags, 3, lengths=lengths)
    one, two = (ExponentiatedGradient(online=online).solve(p, 2.0, tol=0.0, max_passes=12) for p in (plain, kernel))
    np.testing.assert_allclose(one.history["dual"], two.history["dual"], rtol=0, atol=1e-8)
    np.testing.assert_allclose(one.history["primal"], two.history["primal"], rtol=1e-8)
    w = (two.weights[: 3 * len(x)].reshape(3, -1) @ x).ravel()
    np.testing.assert_allclose(w, one.weights[:12], atol=1e-8)


@pytest.mark.parametrize("online", [False, True])
def test_a_checkpoint_goes_on_bit_for_bit(online, tmp_path):
    solver, problem = ExponentiatedGradient(online=online), PROBLEMS["chains"]
    whole = solver.solve(problem, 10.0, tol=0.0, max_passes=20, n_jobs=2)
    solver.solve(problem, 10.0, tol=0.0, max_passes=9, checkpoint=tmp_path / "state")
    rest = solver.solve(problem, 10.0, tol=0.0, max_passes=20, checkpoint=tmp_path / "state")
    np.testing.assert_array_equal(rest.weights, whole.weights)
    assert (rest.primal, rest.dual) == (whole.primal, whole.dual)


@pytest.mark.parametrize("online", [False, True])
def test_a_warm_start_keeps_the_distributions(online):
    solver, problem = ExponentiatedGradient(online=online), PROBLEMS["chains"]
    first = solver.solve(problem, 1.0, tol=1e-2, max_passes=2000)
    for C in (0.5, 2.0):
        best = exact_optimum(problem, C)
        warm = solver.solve(problem, C, tol=1e-2, max_passes=5000, state=first.state)
        check(warm, best)


def test_sentences():
    with pytest.raises(OptionError, match="Online exponentiated gradient keeps marginals of trees"):
        ExponentiatedGradient(online=True).solve(PROBLEMS["labels"])
    with pytest.raises(OptionError, match="objective='hinge' is not known"):
        ExponentiatedGradient(objective="hinge").solve(PROBLEMS["labels"])
    result = ExponentiatedGradient("loopy_bp").solve(PROBLEMS["labels"], max_passes=3)
    assert result.certificate == "none"
    assert "approximate" in result.options["inference_reason"]
    assert result.status is not Status.CONVERGED

"""Every certificate of SoftBCFW against a quadratic program solved by Clarabel."""

from __future__ import annotations

import numpy as np
import pytest

from maxmargin.problems import FactorGraphs, Features, Structure, Template
from maxmargin.problems.losses import variable_losses
from maxmargin.solvers import SoftBCFW, Status
from reference.quadratic_program import optimum
from reference.random_problems import random_problem

SLACK = 1e-7


def problem_of(seed, forbidden=False):
    rng = np.random.default_rng(seed)
    problem = random_problem(
        rng,
        kind=("loopy", "forest")[seed % 2],
        n_examples=int(rng.integers(1, 8)),
        max_variables=int(rng.integers(1, 6)),
        max_states=int(rng.integers(2, 5)),
        max_arity=int(rng.integers(1, 5)),
        sparse=bool(rng.integers(2)),
        forbidden=forbidden,
        shared=bool(rng.integers(2)),
    )
    return problem, float(10.0 ** rng.uniform(-1, 1.5)), float(10.0 ** rng.uniform(-1, 1))


@pytest.mark.parametrize("first", range(0, 200, 20))
def test_the_default_closes_the_relaxed_gap_and_brackets_the_optimum(first):
    for seed in range(first, first + 20):
        problem, C, _ = problem_of(seed)
        best = optimum(problem, C)
        result = SoftBCFW().solve(problem, C, tol=1e-4, max_passes=20_000)
        assert result.dual - SLACK <= best <= result.primal + SLACK, seed
        assert (result.history["dual"] <= best + SLACK).all(), seed
        assert (result.history["primal"] >= best - SLACK).all(), seed
        assert result.status is Status.CONVERGED, (seed, result.summary())
        assert result.gap <= 1e-4
        assert result.certificate == ("exact" if problem.is_forest else "relaxed")


@pytest.mark.parametrize("first", range(0, 200, 20))
def test_soft_certificates_bracket_the_soft_optimum(first):
    for seed in range(first, first + 20):
        problem, C, rho = problem_of(seed)
        if problem.example_factors[-1] == 0:
            continue
        best, hard = optimum(problem, C, rho), optimum(problem, C)
        for solver in (SoftBCFW(rho=rho, multipliers=False), SoftBCFW.algorithm_1(rho)):
            result = solver.solve(problem, C, tol=1e-3, max_passes=300)
            assert result.certificate == "soft"
            assert result.dual - SLACK <= best <= result.primal + SLACK, seed
            # The same run also bounds the hard problem.
            assert (result.history["relaxed_dual"] <= hard + SLACK).all(), seed
            assert (result.history["relaxed_primal"] >= hard - SLACK).all(), seed


@pytest.mark.parametrize("seed", range(0, 24, 2))
def test_a_shrinking_rho_approaches_the_hard_problem(seed):
    """The paper's first extension: without multipliers, agreement is enforced ever harder."""
    problem, C, _ = problem_of(seed)
    if problem.example_factors[-1] == 0:
        return
    best = optimum(problem, C)
    result = SoftBCFW(rho=10.0, multipliers=False, rho_decay=0.97).solve(problem, C, tol=0.0, max_passes=300)
    loose = SoftBCFW(rho=10.0, multipliers=False).solve(problem, C, tol=0.0, max_passes=300)
    assert result.certificate == ("exact" if problem.is_forest else "relaxed")
    assert result.dual - SLACK <= best <= result.primal + SLACK
    assert result.primal - best <= loose.history["relaxed_primal"][-1] - best + 1e-3
    assert result.primal - best <= 0.02 * (1.0 + best)


@pytest.mark.parametrize("seed", range(12))
def test_smooth_maxima_keep_certificates_true(seed):
    """The paper's third extension: the gap stays open by what smoothing costs, and no more."""
    problem, C, _ = problem_of(seed)
    best = optimum(problem, C)
    blocks = float(problem.example_variables[-1] + problem.example_factors[-1]) / problem.n_examples
    for smoothing in (0.1, 1e-3):
        result = SoftBCFW(smoothing=smoothing).solve(problem, C, tol=1e-4, max_passes=1500)
        assert result.dual - SLACK <= best <= result.primal + SLACK
        # Each block's maximum is off by at most half the smoothing; examples are weighed up to 1.5 / 0.5.
        assert result.gap <= 3.0 * blocks * smoothing / 2.0 + 2e-3


def test_hard_constraints():
    """Bounds hold and weights are optimal; the gap closes unless marginals cannot be repaired, which is rare."""
    closed = 0
    for seed in range(60):
        problem, C, _ = problem_of(seed, forbidden=True)
        best = optimum(problem, C)
        result = SoftBCFW().solve(problem, C, tol=1e-4, max_passes=20_000)
        assert result.dual - SLACK <= best <= result.primal + SLACK, seed
        assert result.primal <= best + 1e-3, (seed, result.summary())
        assert (result.status is Status.CONVERGED) == (result.gap <= 1e-4)
        closed += result.status is Status.CONVERGED
    assert closed >= 57


@pytest.mark.parametrize("seed", range(12))
def test_algorithm_1_reaches_the_soft_optimum(seed):
    problem, _, rho = problem_of(seed)
    best = optimum(problem, 1.0, rho if problem.example_factors[-1] else None)
    result = SoftBCFW.algorithm_1(rho).solve(problem, 1.0, tol=3e-3, max_passes=50_000)
    assert result.status is Status.CONVERGED, result.summary()
    assert abs(result.primal - best) <= 3e-3


def test_the_weights_have_the_reported_value():
    """Recompute P(w) by enumeration on forests, where the relaxation is exact."""
    from maxmargin.inference.trees import Trees

    for seed in range(1, 20, 2):
        problem, C, _ = problem_of(seed)
        result = SoftBCFW().solve(problem, C, tol=1e-4, max_passes=20_000)
        augmented = problem.scores(result.weights, loss_augmented=True)
        hinge = Trees().maximise(problem, augmented).values - problem.labeling_scores(
            problem.scores(result.weights), problem.labels
        )
        value = 0.5 / C * result.weights @ result.weights + np.mean(problem.arrays.weight * hinge)
        # The certified primal is an upper bound of it, and tight because the gap is.
        assert result.dual - SLACK <= value <= result.primal + SLACK


@pytest.mark.parametrize("state", [0, 1])
def test_pairs_of_variables_with_a_forbidden_state(state):
    """Binary pairs have a faster way to their bounds, which must not meet an infinite score."""
    pairs = [(0, 1), (1, 2), (0, 2)]
    scores = np.zeros(2)
    scores[state] = -np.inf
    truth = [0, 1 - state, 1]
    structure = Structure([0, 1, 0], [0, 0, 0], [0] * 3, [0] * 3, pairs)
    problem = FactorGraphs(
        [structure], [0, 0], [Template([0, 1]), Template([2, 3], scores)], [Template(np.arange(4).reshape(2, 2))],
        Features(np.ones((2, 1))), Features.constant(), [0, 1], [0, 0], [*truth, *truth],
        variable_losses(np.array([*truth, *truth]), np.full(6, 2), np.array([3, 3]), "hamming"),
    )  # fmt: skip
    result = SoftBCFW().solve(problem, 10.0, tol=1e-4, max_passes=5000)
    assert result.dual - SLACK <= optimum(problem, 10.0) <= result.primal + SLACK
    assert result.status is Status.CONVERGED

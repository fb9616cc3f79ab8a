"""What the papers prove, checked on small problems: Meshi, Srebro and Hazan (soft constraints), Finley and Joachims (intractable).

Theorems 5 and 6 of Joachims, Finley and Yu are in cutting_planes/test_one_slack.py, theorems 2 and 3 of Finley and Joachims in
tests/inference/test_rho_approximate.py, the rates of Zhang, Saha and Vishwanathan in marginals/test_excessive_gap.py.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from maxmargin.inference import engine as engine_of
from maxmargin.solvers import BCFW, NSlack, OneSlack, SoftBCFW
from maxmargin.solvers.oracles.max_oracle import oracle_of
from reference.enumerated_program import planes, value
from reference.random_problems import coupled_labels

C = 5.0


@pytest.fixture(scope="module")
def problem():
    return coupled_labels(2, n=20, n_labels=4)


@pytest.fixture(scope="module")
def hard(problem):
    """The optimum of G, the relaxed problem, from both sides."""
    return SoftBCFW().solve(problem, C, tol=1e-6, max_passes=20_000)


def soft(problem, rho, tol=1e-5):
    """The optimum of G_rho."""
    return SoftBCFW(rho=rho, multipliers=False).solve(problem, C, tol=tol, max_passes=50_000)


def h_of(problem, w):
    """The constant of theorem 4.1, an example: (8 Ymax q (B R + L))^2, with the norms of these weights and features."""
    psi = [np.linalg.norm(one[0]) for some in planes(problem) for one in some]
    q = 4 + 6
    return (8 * 2 * q * (np.linalg.norm(w) * max(psi) + 1.0)) ** 2


@pytest.mark.parametrize("rho", [0.01, 0.1, 1.0])
def test_soft_4_1_the_soft_optimum_is_above_the_hard_one_by_at_most_rho_h(problem, hard, rho):
    found = soft(problem, rho)
    assert found.certificate == "soft"
    assert hard.dual <= found.primal
    assert found.dual <= hard.primal + rho / 2.0 * h_of(problem, hard.weights)


def test_soft_4_1_the_difference_vanishes_with_rho(problem, hard):
    optima = [soft(problem, rho) for rho in (1.0, 0.1, 0.01)]
    for larger, smaller in itertools.pairwise(optima):
        assert smaller.dual <= larger.primal
    # By a factor of 10 in rho, several times closer.
    above = [one.dual - hard.primal for one in optima]
    assert above[0] > 3.0 * above[1] > 9.0 * max(above[2], 0.0)


@pytest.mark.parametrize("tol", [0.1, 1e-3])
def test_soft_4_2_a_gap_of_the_soft_problem_is_one_of_the_hard_problem(problem, hard, tol):
    found = soft(problem, 0.1, tol)
    assert found.gap <= tol
    # P of the relaxation at these weights, by another oracle.
    relaxed = oracle_of(problem, "linear_program")
    own = found.weights @ found.weights / (2 * C) + relaxed.mean_plane(found.weights, 1).hinges.mean()
    assert own <= found.primal + 1e-9
    assert own - hard.primal <= tol + 0.1 / 2.0 * h_of(problem, hard.weights)
    assert own - hard.primal <= tol + (soft(problem, 0.1).primal - hard.dual)


def test_soft_5_2_the_gap_of_algorithm_1_falls_like_one_over_the_passes(problem):
    """Theorem 5.2: what is missing after t passes is at most a constant over t, as a mean; so four times as many leave a third."""
    solver = SoftBCFW(rho=1.0, multipliers=False, blocks="random")
    optimum = soft(problem, 1.0).primal

    def away(passes):
        duals = [solver.solve(problem, C, tol=0.0, max_passes=passes, random_state=seed).dual for seed in range(3)]
        return optimum - np.mean(duals)

    few, many = away(400), away(1600)
    assert many > 0.0
    assert many <= few / 3.0


# ---------------------------------------------------------------------------------------------------------- intractable


@pytest.mark.parametrize("engine", ["greedy", "loopy_bp", "exhaustive", "graph_cut", "linear_program"])
@pytest.mark.parametrize("kind", [OneSlack, NSlack], ids=lambda one: one.name)
def test_intractable_1_and_4_every_oracle_terminates(problem, engine, kind):
    """At most (C Delta^2 R^2 + n Delta) / epsilon^2 constraints: each round adds at most one for each example."""
    epsilon = 0.05
    result = kind(inference=engine).solve(problem, C, tol=epsilon, max_passes=100_000)
    psi = max(np.linalg.norm(one[0]) for some in planes(problem) for one in some)
    # In the paper's terms C is n times ours; relaxed vertices are means of labelings.
    n = problem.n_examples
    assert result.n_passes <= (C * n * psi**2 + n) / epsilon**2
    assert result.n_passes < 10_000


@pytest.mark.parametrize("engine", ["graph_cut", "linear_program"])
def test_intractable_5_relaxed_weights_and_slacks_are_feasible(problem, engine):
    """Every constraint of the exact problem holds within epsilon: the relaxation has more of them."""
    result = NSlack(inference=engine).solve(problem, C, tol=1e-4)
    assert result.certificate == "relaxed"
    xi = oracle_of(problem, engine).mean_plane(result.weights, 1).hinges
    for some, slack in zip(planes(problem), xi, strict=True):
        assert all(ell - psi @ result.weights <= slack + 1e-9 for psi, ell in some)
    assert value(problem, C, result.weights) <= result.primal + 1e-9


@pytest.mark.parametrize("engine", ["exhaustive", "graph_cut", "linear_program"])
def test_intractable_6_the_mean_slack_bounds_the_empirical_risk(problem, engine):
    """With the same relaxation for training and prediction; an open label counts its fraction."""
    result = BCFW(inference=engine).solve(problem, C, tol=1e-4)
    scores = problem.scores(result.weights)
    chosen = engine_of(engine)
    xi = oracle_of(problem, engine).mean_plane(result.weights, 1).hinges
    if engine == "exhaustive":
        losses = problem.labeling_losses(chosen.maximise(problem, scores).labels)
    else:
        relaxed = chosen.relax(problem, scores)
        losses = np.add.reduceat(relaxed.variables * problem.arrays.losses, problem.example_states[:-1])
    assert (losses <= xi + 1e-9).all()
    assert losses.mean() <= xi.mean() + 1e-9

"""L-BFGS against scipy's, on the log objective written out over all labelings."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from maxmargin.errors import OptionError
from maxmargin.problems import label_edges, multi_label_problem
from maxmargin.problems.chains import chain_problem
from maxmargin.problems.multi_class import multi_class_problem
from maxmargin.solvers import Status
from maxmargin.solvers.frank_wolfe import FrankWolfe
from maxmargin.solvers.lbfgs import LBFGS, two_loops
from reference.enumerated_program import planes
from reference.random_problems import random_problem


def log_optimum(problem, C):
    """The least value of lam/2 |w|^2 + the mean negative log-likelihood, and its weights, by enumeration."""
    plain = problem.take(np.arange(problem.n_examples))
    plain.arrays = plain.arrays._replace(losses=np.zeros_like(plain.arrays.losses))
    found = [(np.array([psi for psi, _ in one]), np.array([ell for _, ell in one])) for one in planes(plain)]
    shares = problem.arrays.weight / problem.n_examples

    def value(w):
        total, gradient = w @ w / (2 * C), w / C
        for (psi, ell), share in zip(found, shares, strict=True):
            slope = ell - psi @ w
            mass = np.exp(slope - slope.max())
            total += share * (slope.max() + np.log(mass.sum()))
            gradient = gradient - share * (mass @ psi) / mass.sum()
        return total, gradient

    best = minimize(
        value, np.zeros(problem.n_weights), jac=True, method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-10}
    )
    return best.fun, best.x


def problems():
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(12, 3)), rng.integers(0, 2, (12, 4))
    lengths = rng.integers(1, 5, 8)
    rows, tags = [rng.normal(size=(t, 3)) for t in lengths], [rng.integers(0, 3, t) for t in lengths]
    return {
        "labels": multi_label_problem(X, Y, label_edges("full", Y), 4, sample_weight=rng.random(12) + 0.5),
        "classes": multi_class_problem(X, rng.integers(0, 3, 12), 3),
        "chains": chain_problem(rows, tags, 3),
        "forest": random_problem(np.random.default_rng(1), kind="forest", n_examples=6, forbidden=True, sparse=True),
        "loopy": random_problem(np.random.default_rng(2), n_examples=5, max_variables=4),
    }


PROBLEMS = problems()


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("C", [0.3, 30.0])
def test_it_closes_the_gap_to_the_optimum(name, C):
    best, w = log_optimum(PROBLEMS[name], C)
    result = LBFGS().solve(PROBLEMS[name], C, tol=1e-9, max_passes=500)
    assert result.certificate == "exact"
    assert (result.history["dual"] <= best + 1e-9).all()
    assert (result.history["primal"] >= best - 1e-9).all()
    assert result.status is Status.CONVERGED, result.summary()
    np.testing.assert_allclose(result.weights, w, atol=1e-4 * np.sqrt(C))


def test_the_gap_is_that_of_the_weights():
    problem, C = PROBLEMS["chains"], 3.0
    best, _ = log_optimum(problem, C)
    result = LBFGS().solve(problem, C, tol=0.0, max_passes=6)
    assert result.status is Status.MAX_PASSES
    assert result.dual < best < result.primal
    assert result.n_oracle_calls == 6 * problem.n_examples
    found = LBFGS().solve(problem, C, tol=1e-3, max_passes=500)
    assert found.primal - best <= 1e-3


def test_the_direction_is_that_of_the_inverse_hessian_by_updates():
    # BFGS in full: H <- (I - s y'/sy) H (I - y s'/sy) + s s'/sy from the scaled identity.
    rng = np.random.default_rng(0)
    d, n = 7, 4
    half = rng.normal(size=(d, d))
    S = rng.normal(size=(n, d))
    Y, g = S @ (half @ half.T + np.eye(d)), rng.normal(size=d)
    order = np.array([2, 3, 0, 1])
    newest = order[-1]
    H = np.eye(d) * (S[newest] @ Y[newest]) / (Y[newest] @ Y[newest])
    for i in order:
        left = np.eye(d) - np.outer(S[i], Y[i]) / (S[i] @ Y[i])
        H = left @ H @ left.T + np.outer(S[i], S[i]) / (S[i] @ Y[i])
    shares, own = two_loops(np.stack([S @ Y.T, Y @ Y.T]), order, np.stack([S @ g, Y @ g]))
    np.testing.assert_allclose(own * g + shares[0] @ S + shares[1] @ Y, -H @ g, rtol=1e-9)


def test_steps_that_are_too_long_or_too_short_are_bracketed():
    problem = PROBLEMS["classes"]
    run = LBFGS().make_run(problem, 1.0, 0, 1)
    for factor in (1e-6, 1e3):
        now = run.begin(None)
        run.steps(now, lambda: False)
        before = now.value
        now.direction, now.slope = now.direction * factor, now.slope * factor
        for _ in range(40):
            w = now.w
            run.steps(now, lambda: False)
            if now.w is not w:
                break
        assert now.value < before
        assert np.linalg.norm(now.w) > 1e-3


def test_a_checkpoint_goes_on_bit_for_bit(tmp_path):
    problem = PROBLEMS["chains"]
    whole = LBFGS(memory=3).solve(problem, 10.0, tol=0.0, max_passes=20)
    LBFGS(memory=3).solve(problem, 10.0, tol=0.0, max_passes=9, checkpoint=tmp_path / "state")
    rest = LBFGS(memory=3).solve(problem, 10.0, tol=0.0, max_passes=20, checkpoint=tmp_path / "state")
    np.testing.assert_array_equal(rest.weights, whole.weights)
    assert (rest.primal, rest.dual) == (whole.primal, whole.dual)


def test_a_warm_start_begins_at_the_weights():
    problem = PROBLEMS["chains"]
    first = LBFGS().solve(problem, 10.0, tol=1e-6, max_passes=500)
    again = LBFGS().solve(problem, 10.0, tol=1e-6, max_passes=500, state=first.state)
    assert again.n_passes == 1
    other = LBFGS().solve(problem, 3.0, tol=1e-6, max_passes=500, state=first.state)
    assert other.primal == pytest.approx(log_optimum(problem, 3.0)[0], abs=1e-6)


def test_sentences():
    with pytest.raises(OptionError, match='"lbfgs" needs a smooth objective'):
        LBFGS(objective="margin").solve(PROBLEMS["classes"])
    with pytest.raises(OptionError, match="memory=0 is not possible"):
        LBFGS(memory=0).solve(PROBLEMS["classes"])
    state = FrankWolfe().solve(PROBLEMS["classes"], max_passes=1).state
    with pytest.raises(OptionError, match='not one of "lbfgs"'):
        LBFGS().solve(PROBLEMS["classes"], state=state)

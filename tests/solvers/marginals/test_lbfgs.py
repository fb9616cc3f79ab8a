"""L-BFGS against scipy's, on the log objective written out over all labelings."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize

from maxmargin.errors import OptionError
from maxmargin.estimators import ChainSVM
from maxmargin.problems import columns, label_edges, multi_label_problem
from maxmargin.problems.chains import chain_problem
from maxmargin.problems.features import Features
from maxmargin.problems.multi_class import multi_class_problem
from maxmargin.solvers import BCFW, BundleMethod, Callback, ExponentiatedGradient, Status
from maxmargin.solvers.frank_wolfe.frank_wolfe import FrankWolfe
from maxmargin.solvers.marginals import lbfgs
from maxmargin.solvers.marginals.lbfgs import LBFGS, two_loops
from maxmargin.solvers.oracles import packed_chains
from reference.enumerated_program import planes
from reference.random_problems import random_problem


def log_optimum(problem, C, losses=False):
    """The least value of lam/2 |w|^2 + the mean negative log-likelihood, and its weights, by enumeration."""
    plain = problem.take(np.arange(problem.n_examples))
    if not losses:
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


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("solver", [LBFGS, BundleMethod, ExponentiatedGradient], ids=lambda one: one.name)
def test_the_softmax_margin_has_the_loss_in_the_exponent(name, solver):
    problem = PROBLEMS[name]
    best, w = log_optimum(problem, 3.0, losses=True)
    result = solver(objective="softmax-margin").solve(problem, 3.0, tol=1e-6, max_passes=3000)
    assert result.certificate == "exact"
    assert (result.history["dual"] <= best + 1e-9).all()
    assert (result.history["primal"] >= best - 1e-9).all()
    assert result.status is Status.CONVERGED, result.summary()
    np.testing.assert_allclose(result.weights, w, atol=1e-2)
    # It bounds the hinge, and with no loss it is another objective.
    assert best > BCFW().solve(problem, 3.0, tol=1e-6).dual
    assert best > log_optimum(problem, 3.0)[0]


def test_a_state_of_another_objective_is_refused():
    problem = PROBLEMS["chains"]
    for solver in (BundleMethod, ExponentiatedGradient):
        state = solver(objective="log").solve(problem, 3.0, tol=1e-2).state
        with pytest.raises(OptionError, match="another objective"):
            solver(objective="softmax-margin").solve(problem, 3.0, state=state)


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


def test_a_first_step_that_is_too_short_is_doubled_until_it_is_long_enough():
    # From 0 the first direction has length 1 at most, and features this small want weights far longer.
    rng = np.random.default_rng(0)
    X, y = 1e-4 * rng.normal(size=(30, 4)), rng.integers(0, 3, 30)
    run = LBFGS().make_run(multi_class_problem(X, y, 3), 1e-12, 0, 1)
    now = run.begin(None)
    run.steps(now, lambda: False)
    steps = [now.step]
    while now.n_pairs == 0 and len(steps) < 60:
        run.steps(now, lambda: False)
        steps.append(now.step)
    doubled = steps[:-1]
    assert len(doubled) > 3
    assert doubled == [2.0**k for k in range(len(doubled))]
    assert now.n_pairs == 1


def test_threads_do_not_change_the_bits(monkeypatch):
    # Ranges of few entries, so that there are many.
    monkeypatch.setattr("maxmargin.devices.vectors._RANGE", 7)
    one, two = (LBFGS().solve(PROBLEMS["labels"], 10.0, tol=0.0, max_passes=12, n_jobs=n) for n in (1, 2))
    np.testing.assert_array_equal(one.weights, two.weights)
    monkeypatch.undo()
    whole = LBFGS().solve(PROBLEMS["labels"], 10.0, tol=0.0, max_passes=12)
    np.testing.assert_allclose(one.weights, whole.weights, rtol=1e-6, atol=1e-9)


def test_a_callback_stops_at_a_value():
    # Reports hold plain numbers: a comparison of NumPy's is not the False that ends a run.
    reached = Callback(lambda report: report.primal > 1.3)
    result = LBFGS().solve(PROBLEMS["chains"], 100.0, tol=0.0, max_passes=100, monitor=reached)
    assert result.status is Status.INTERRUPTED
    assert result.primal <= 1.3 < result.history["primal"][-2]


def test_probabilities_of_a_chain_are_calibrated():
    # At the optimum expected statistics are the true ones but for lam w: for a tag and a feature, what the model expects over all
    # words of the training data minus what is there is -lam M w. Probabilities are those of enumeration.
    rng = np.random.default_rng(3)
    lengths, C = rng.integers(1, 5, 12), 5.0
    X, y = [rng.normal(size=(t, 3)) for t in lengths], [rng.integers(0, 3, t) for t in lengths]
    model = ChainSVM(C=C, objective="log", tol=1e-9, fit_intercept=True, max_passes=2000).fit(X, y)
    found = model.predict_marginals(X)
    excess, constant = np.zeros((3, 3)), np.zeros(3)
    for rows, tags, marginals in zip(X, y, found, strict=True):
        scores = rows @ model.coef_.T + model.intercept_
        scores[0] += model.start_coef_
        scores[-1] += model.end_coef_
        mass = {}
        for labels in itertools.product(range(3), repeat=len(rows)):
            own = sum(scores[t, k] for t, k in enumerate(labels))
            own += sum(model.transition_coef_[a, b] for a, b in itertools.pairwise(labels))
            mass[labels] = np.exp(own)
        total, truth = sum(mass.values()), np.eye(3)[tags]
        expected = np.zeros((len(rows), 3))
        for labels, share in mass.items():
            expected[np.arange(len(rows)), labels] += share / total
        np.testing.assert_allclose(marginals, expected, atol=1e-10)
        excess += (expected - truth).T @ rows
        constant += (expected - truth).sum(axis=0)
    np.testing.assert_allclose(excess, -len(X) / C * model.coef_, atol=1e-3)
    np.testing.assert_allclose(constant, -len(X) / C * model.intercept_, atol=1e-3)


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


def text(seed=0, n=40, tags=3, columns=9, longest=5):
    """Chains with sparse features that say something about the tags."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, longest, n)
    labels = [rng.integers(0, tags, length) for length in lengths]
    seen = rng.random((tags, columns))[np.concatenate(labels)] > rng.random((lengths.sum(), columns))
    return chain_problem(
        Features(sp.csr_array(seen.astype(float))), labels, tags, lengths=lengths, sample_weight=rng.random(n) + 0.5
    )


@pytest.fixture
def few(monkeypatch):
    """Begin with gradient descent on small problems, too."""
    monkeypatch.setattr(lbfgs, "_MANY", 2)


@pytest.mark.parametrize("C", [0.1, 30.0, 1e4])
@pytest.mark.parametrize("objective", ["log", "softmax-margin"])
def test_text_begins_with_gradient_descent(few, C, objective):
    problem = text()
    best, w = log_optimum(problem, C, losses=objective != "log")
    result = LBFGS(objective=objective).solve(problem, C, tol=1e-8, max_passes=1000)
    assert result.state.rate > 0.0
    assert len(result.state.scale)
    assert result.history["n_passes"][0] == 4
    assert (result.history["dual"] <= best + 1e-8 * max(1.0, best)).all()
    assert (result.history["primal"] >= best - 1e-8 * max(1.0, best)).all()
    assert result.status is Status.CONVERGED, result.summary()
    assert result.primal - best <= 1e-8 * max(1.0, best)
    assert result.weights.shape == (problem.n_weights,)
    np.testing.assert_allclose(result.weights, w, atol=2e-4 * np.sqrt(C))


def test_passes_of_gradient_descent_are_few_against_those_that_they_replace(few, monkeypatch):
    problem, C = text(1, n=400, columns=60), 400.0
    some = LBFGS().solve(problem, C, tol=1e-3, max_passes=500)
    monkeypatch.setattr(lbfgs, "_MANY", 10**9)
    none = LBFGS().solve(problem, C, tol=1e-3, max_passes=500)
    assert some.status is none.status is Status.CONVERGED
    assert some.n_passes < none.n_passes
    assert abs(some.primal - none.primal) <= 1e-3


@pytest.mark.parametrize("passes", [1, 2, 3, 4])
def test_a_run_that_ends_among_passes_of_gradient_descent_has_bounds(few, passes, tmp_path):
    problem, C = text(), 30.0
    best, _ = log_optimum(problem, C)
    result = LBFGS().solve(problem, C, tol=0.0, max_passes=passes, checkpoint=tmp_path / "run")
    assert result.n_passes == passes
    assert result.dual <= best <= result.primal < np.inf
    # What it resumes from is what it would have been.
    resumed = LBFGS().solve(problem, C, tol=0.0, max_passes=9, checkpoint=tmp_path / "run")
    whole = LBFGS().solve(problem, C, tol=0.0, max_passes=9)
    np.testing.assert_array_equal(resumed.weights, whole.weights)
    assert resumed.primal == whole.primal


def test_threads_do_not_change_the_bits_of_text(few):
    problem = text(n=80, columns=3)
    one, two = (LBFGS().solve(problem, 10.0, tol=0.0, max_passes=12, n_jobs=jobs) for jobs in (1, 3))
    np.testing.assert_array_equal(one.weights, two.weights)
    assert (one.primal, one.dual) == (two.primal, two.dual)


def test_where_no_rate_is_better_than_none_the_run_begins_at_zero(few, monkeypatch):
    problem, C = text(), 30.0
    best, _ = log_optimum(problem, C)
    monkeypatch.setattr(packed_chains.PackedChains, "rate", lambda self, lam, order: (0.0, 0))
    result = LBFGS().solve(problem, C, tol=1e-6, max_passes=500)
    assert result.status is Status.CONVERGED
    assert result.primal - best <= 1e-6
    assert len(result.state.scale) == 0


def test_a_state_of_text_is_taken_up_with_its_scales(few):
    problem = text()
    first = LBFGS().solve(problem, 30.0, tol=1e-6, max_passes=500)
    again = LBFGS().solve(problem, 30.0, tol=1e-6, max_passes=500, state=first.state)
    assert again.n_passes <= 2
    np.testing.assert_array_equal(again.state.scale, first.state.scale)
    best, _ = log_optimum(problem, 60.0)
    other = LBFGS().solve(problem, 60.0, tol=1e-6, max_passes=500, state=first.state)
    assert other.status is Status.CONVERGED
    assert abs(other.primal - best) <= 1e-6


def test_merged_columns_of_text_give_the_weights_of_the_problem(few, monkeypatch):
    # More columns than a cache holds are put in order, and merged where nothing can tell them apart.
    monkeypatch.setattr(columns, "_FEW", 10)
    problem = text(2, n=12, columns=30)
    best, w = log_optimum(problem, 10.0)
    result = LBFGS().solve(problem, 10.0, tol=1e-8, max_passes=500)
    assert abs(result.primal - best) <= 1e-8
    np.testing.assert_allclose(result.weights, w, atol=1e-3)

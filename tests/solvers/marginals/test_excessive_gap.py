"""Excessive gap reduction against algorithm 1 by enumeration, and against the training problem written out."""

from __future__ import annotations

import numpy as np
import pytest

from maxmargin.errors import OptionError
from maxmargin.parsing.forests import ParseForests
from maxmargin.parsing.grammar import induce
from maxmargin.parsing.trees import Tree
from maxmargin.problems import label_edges, multi_label_problem
from maxmargin.problems.chains import chain_problem
from maxmargin.problems.features import KernelFeatures
from maxmargin.problems.multi_class import multi_class_problem
from maxmargin.solvers import BCFW, Status
from maxmargin.solvers.marginals.excessive_gap import ExcessiveGap
from maxmargin.solvers.marginals.exponentiated_gradient import ExponentiatedGradient
from maxmargin.solvers.marginals.extragradient import Extragradient
from maxmargin.solvers.marginals.lbfgs import LBFGS
from maxmargin.solvers.oracles.exp_oracle import MeanMarginals, exp_oracle_of
from maxmargin.solvers.oracles.max_oracle import oracle_of
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
        "tree of labels": multi_label_problem(X, Y, label_edges("tree", Y), 4),
        "classes": multi_class_problem(X, rng.integers(0, 3, 10), 3),
        "chains": chain_problem(rows, tags, 3, sample_weight=rng.random(8) + 0.5),
        "forest": random_problem(np.random.default_rng(1), kind="forest", n_examples=6, forbidden=True, sparse=True),
        "loopy": random_problem(np.random.default_rng(2), n_examples=5, max_variables=4),
    }


PROBLEMS = problems()


class Enumerated:
    """Algorithm 1, with every labeling of every example written out (alpha sums to weight / M for each example)."""

    def __init__(self, problem, lam, L):
        self.lam, self.mu = lam, L
        self.share = problem.arrays.weight / problem.n_examples
        every = planes(problem)
        self.psi = [np.array([psi for psi, _ in found]) for found in every]
        self.ell = [np.array([ell for _, ell in found]) for found in every]
        uniform = [np.full(len(ell), share / len(ell)) for ell, share in zip(self.ell, self.share, strict=True)]
        self.w = self.weights(uniform)
        self.alpha = self.project(uniform, -1.0 / L, self.gradient(uniform))
        self.k = 1

    def weights(self, alpha):
        return sum(a @ psi for a, psi in zip(alpha, self.psi, strict=True)) / self.lam

    def gradient(self, alpha):
        w = self.weights(alpha)
        return [ell - psi @ w for ell, psi in zip(self.ell, self.psi, strict=True)]

    def project(self, alpha, eta, gradient):
        out = []
        for a, g, share in zip(alpha, gradient, self.share, strict=True):
            log = np.log(a) - eta * g
            mass = np.exp(log - log.max())
            out.append(share * mass / mass.sum())
        return out

    def smoothest(self, w, mu):
        ones = [np.ones(len(ell)) for ell in self.ell]
        return self.project(ones, -1.0 / mu, [ell - psi @ w for ell, psi in zip(self.ell, self.psi, strict=True)])

    def dual(self):
        w = self.weights(self.alpha)
        return sum(a @ ell for a, ell in zip(self.alpha, self.ell, strict=True)) - self.lam / 2 * w @ w

    def smooth_primal(self):
        total = self.lam / 2 * self.w @ self.w
        for ell, psi, share in zip(self.ell, self.psi, self.share, strict=True):
            slope = (ell - psi @ self.w) / self.mu
            total += share * self.mu * (slope.max() + np.log(np.exp(slope - slope.max()).mean()))
        return total

    def step(self):
        tau = 2.0 / (self.k + 3)
        beta = self.smoothest(self.w, self.mu)
        hat = [(1 - tau) * a + tau * b for a, b in zip(self.alpha, beta, strict=True)]
        self.w = (1 - tau) * self.w + tau * self.weights(hat)
        tilde = self.project(beta, -tau / ((1 - tau) * self.mu), self.gradient(hat))
        self.alpha = [(1 - tau) * a + tau * t for a, t in zip(self.alpha, tilde, strict=True)]
        self.mu *= 1 - tau
        self.k += 1


@pytest.mark.parametrize("name", PROBLEMS)
def test_every_step_is_that_of_algorithm_1(name):
    problem, lam = PROBLEMS[name], 0.7
    run = ExcessiveGap(constant="safe").make_run(problem, lam, 0, 1)
    now = run.begin(None)
    reference = Enumerated(problem, lam, exp_oracle_of(problem).radius() ** 2 / lam)
    run.steps(now, lambda: False)
    for _ in range(30):
        np.testing.assert_allclose(now.w, reference.w, atol=1e-9)
        np.testing.assert_allclose(now.psi / lam, reference.weights(reference.alpha), atol=1e-9)
        assert now.mu == pytest.approx(reference.mu, rel=1e-12)
        assert now.ell - now.psi @ now.psi / (2 * lam) == pytest.approx(reference.dual(), abs=1e-9)
        assert now.excess == pytest.approx(reference.dual() - reference.smooth_primal(), abs=1e-9)
        # A bound of the true divergence, which enumeration knows.
        uniform = [share / len(a) for a, share in zip(reference.alpha, reference.share, strict=True)]
        true = sum(
            float(np.sum(a * np.log(np.maximum(a, 1e-300) / u))) for a, u in zip(reference.alpha, uniform, strict=True)
        )
        assert now.divergence >= true - 1e-9
        run.steps(now, lambda: False)
        reference.step()


@pytest.mark.parametrize("constant", ["safe", "adaptive"])
@pytest.mark.parametrize("name", PROBLEMS)
def test_it_closes_the_gap_and_keeps_the_invariant_at_every_step(name, constant):
    problem, C = PROBLEMS[name], 1.0
    best = exact_optimum(problem, C)
    result = ExcessiveGap(constant=constant).solve(problem, C, tol=2e-3, max_passes=5000)
    assert result.certificate == "exact"
    assert (result.history["excess"] >= -1e-12).all()
    assert (result.history["dual"] <= best + SLACK).all()
    assert (result.history["primal"] >= best - SLACK).all()
    assert result.status is Status.CONVERGED, result.summary()
    # Theorem 1, with the constants that are reported.
    assert result.options["n_steps"] <= result.options["bound_by_log_labelings"]
    # The value that is reported is at least that of the weights, which a max-oracle knows.
    hinges = oracle_of(problem, "exhaustive").mean_plane(result.weights, 1).hinges
    value = 0.5 / C * result.weights @ result.weights + problem.arrays.weight @ hinges / problem.n_examples
    assert best - SLACK <= value <= result.primal + 1e-10


def test_the_gap_falls_with_the_square_of_the_steps_and_an_estimate_helps():
    problem = PROBLEMS["chains"]
    safe = ExcessiveGap(constant="safe").solve(problem, 10.0, tol=0.0, max_passes=400)
    k = safe.history["n_passes"]
    bound = 6 * safe.options["log_labelings"] * safe.options["psi_bound"] ** 2 * 10.0 / ((k + 1) * (k + 2))
    assert (safe.history["gap"] <= bound + 1e-12).all()
    adaptive = ExcessiveGap().solve(problem, 10.0, tol=0.0, max_passes=400)
    assert adaptive.gap < 0.3 * safe.gap
    assert (adaptive.history["excess"] >= -1e-12).all()


def test_an_estimate_that_is_too_small_is_doubled():
    problem = PROBLEMS["chains"]
    run = ExcessiveGap().make_run(problem, 0.1, 0, 1)
    now = run.begin(None)
    now.constant = 1e-6 * now.safe
    for _ in range(100):
        before, constant = now.k, now.constant
        run.one_pass(now, lambda: False)
        assert (now.constant > constant) == (now.k == before)
    assert now.n_failed > 0
    assert now.k + now.n_failed == 100


def sentences():
    lines = (
        "(S (NP (DT the) (NN dog)) (VP (VBZ sees) (NP (DT the) (NN cat))))",
        "(S (NP (NNP Kim)) (VP (VBZ sees) (NP (DT the) (NN dog)) (PP (IN with) (NP (NNP Kim)))))",
        "(S (NP (NP (NNP Kim)) (PP (IN with) (NP (DT the) (NN dog)))) (VP (VBZ sees)))",
        "(S (NP (NN cat)) (VP (VBZ sees) (NP (NP (NN dog)) (PP (IN with) (NP (NNP Kim))))))",
    )
    trees = [Tree.parse(line) for line in lines]
    return ParseForests(induce(trees, markov=1)[0], None, trees)


def test_short_sentences_are_parsed():
    problem = sentences()
    best = BCFW().solve(problem, 3.0, tol=1e-5)
    assert best.status is Status.CONVERGED
    for solver in (ExcessiveGap(), ExponentiatedGradient(), Extragradient()):
        result = solver.solve(problem, 3.0, tol=1e-3, max_passes=3000)
        assert result.certificate == "exact"
        assert result.status is Status.CONVERGED, result.summary()
        assert result.dual <= best.primal + SLACK
        assert result.primal >= best.dual - SLACK
    log = LBFGS().solve(problem, 3.0, tol=1e-7, max_passes=300)
    assert log.status is Status.CONVERGED
    assert ExponentiatedGradient(objective="log").solve(
        problem, 3.0, tol=1e-5, max_passes=3000
    ).primal == pytest.approx(log.primal, abs=1e-5)


def test_one_call_a_pass_and_none_for_the_gap():
    result = ExcessiveGap(constant="safe").solve(PROBLEMS["chains"], 1.0, tol=0.0, max_passes=9)
    assert result.n_oracle_calls == 9 * PROBLEMS["chains"].n_examples
    assert len(result.history["gap"]) == 9


@pytest.mark.parametrize("constant", ["safe", "adaptive"])
def test_a_linear_kernel_does_the_same(constant):
    rng = np.random.default_rng(3)
    lengths = rng.integers(1, 6, 8)
    rows, tags = [rng.normal(size=(t, 4)) for t in lengths], [rng.integers(0, 3, t) for t in lengths]
    x = np.concatenate(rows)
    plain, kernel = chain_problem(rows, tags, 3), chain_problem(KernelFeatures(x @ x.T), tags, 3, lengths=lengths)
    one, two = (ExcessiveGap(constant=constant).solve(p, 2.0, tol=0.0, max_passes=60) for p in (plain, kernel))
    for name in ("dual", "primal", "excess"):
        np.testing.assert_allclose(one.history[name], two.history[name], rtol=1e-8, atol=1e-8)
    w = (two.weights[: 3 * len(x)].reshape(3, -1) @ x).ravel()
    np.testing.assert_allclose(w, one.weights[:12], atol=1e-8)


def test_a_checkpoint_goes_on_bit_for_bit(tmp_path):
    solver, problem = ExcessiveGap(), PROBLEMS["chains"]
    whole = solver.solve(problem, 10.0, tol=0.0, max_passes=20, n_jobs=2)
    solver.solve(problem, 10.0, tol=0.0, max_passes=9, checkpoint=tmp_path / "state")
    rest = solver.solve(problem, 10.0, tol=0.0, max_passes=20, checkpoint=tmp_path / "state")
    np.testing.assert_array_equal(rest.weights, whole.weights)
    assert (rest.primal, rest.dual) == (whole.primal, whole.dual)


def test_a_warm_start_keeps_the_estimate():
    problem = PROBLEMS["chains"]
    first = ExcessiveGap().solve(problem, 1.0, tol=1e-2, max_passes=2000)
    warm = ExcessiveGap().solve(problem, 2.0, tol=1e-2, max_passes=2000, state=first.state)
    assert warm.status is Status.CONVERGED
    assert warm.dual <= exact_optimum(problem, 2.0) + SLACK <= warm.primal + 2 * SLACK


def test_features_of_zero_and_very_low_temperatures():
    zero = multi_class_problem(np.zeros((4, 2)), np.arange(4) % 2, 2)
    result = ExcessiveGap().solve(zero, 1.0, tol=1e-6, max_passes=200)
    assert result.primal == pytest.approx(1.0, abs=1e-6)
    assert result.status is Status.CONVERGED
    run = ExcessiveGap(constant="safe").make_run(PROBLEMS["chains"], 1.0, 0, 1)
    now = run.begin(None)
    now.constant = 1e-295
    with pytest.raises(OptionError, match="is too low: scores divided by it"):
        run.steps(now, lambda: False)


def test_sentences():
    with pytest.raises(OptionError, match="constant='tiny' is not known"):
        ExcessiveGap(constant="tiny").solve(PROBLEMS["chains"])
    result = ExcessiveGap("loopy_bp").solve(PROBLEMS["labels"], max_passes=3)
    assert result.certificate == "none"
    assert "approximate" in result.options["inference_reason"]
    assert result.status is not Status.CONVERGED
    with pytest.raises(OptionError, match='The engine "trees" cannot be the exp-oracle here'):
        ExcessiveGap("trees").solve(PROBLEMS["labels"])

    class Own:
        n_examples, n_weights, has_labels = 1, 1, True
        weight, certificate, name, reason = np.ones(1), "exact", "own", "own"

        def exp_oracle(self, loss_augmented):
            return self

        def mean(self, w, temperature, threads):
            """Two labelings: psi 0 and 1, ell 0 and 1."""
            slope = np.array([0.0, 1.0 - w[0]])
            mass = np.exp((slope - slope.max()) / temperature)
            p = mass[1] / mass.sum()
            return MeanMarginals(np.array([p]), p, np.array([slope.max() + temperature * np.log(mass.sum())]))

    with pytest.raises(OptionError, match="knows no bound of"):
        ExcessiveGap(constant="safe").solve(Own())
    # The hinge of one number: min lam/2 w^2 + max(0, 1 - w) is 1/2 at w = 1 for lam = 1.
    assert ExcessiveGap().solve(Own(), 1.0, tol=1e-4).primal == pytest.approx(0.5, abs=1e-4)

"""Kernels: a linear kernel trains the linear model, and any kernel the model of its feature map."""

from __future__ import annotations

import numpy as np
import pytest

from maxmargin.errors import DataError, OptionError
from maxmargin.problems import Features, label_edges, multi_label_problem
from maxmargin.problems.chains import chain_problem
from maxmargin.problems.features import KernelFeatures
from maxmargin.solvers import BCFW, DLPW, FrankWolfe, Perceptron, SoftBCFW, Subgradient


def chains(kernel):
    """The same sequences with rows of features, or with their inner products."""
    rng = np.random.default_rng(3)
    lengths = rng.integers(1, 6, 15)
    rows = [rng.normal(size=(t, 4)) for t in lengths]
    problem = chain_problem(rows, [rng.integers(0, 3, t) for t in lengths], 3)
    if kernel:
        X = np.concatenate(rows)
        problem.variable_features = KernelFeatures(X @ X.T)
    return problem


def labels(kernel):
    rng = np.random.default_rng(4)
    X, Y = rng.normal(size=(20, 3)), rng.integers(0, 2, (20, 4))
    features = KernelFeatures(X @ X.T) if kernel else Features(X)
    return multi_label_problem(features, Y, label_edges("full", Y), 4)


@pytest.mark.parametrize("make", [chains, labels])
def test_a_linear_kernel_takes_the_steps_of_the_linear_model(make):
    plain, kernelised = make(False), make(True)
    one = BCFW.plain().solve(plain, 2.0, tol=0.0, max_passes=12)
    other = BCFW.plain().solve(kernelised, 2.0, tol=0.0, max_passes=12)
    np.testing.assert_allclose(other.history["primal"], one.history["primal"], rtol=1e-8)
    np.testing.assert_allclose(other.history["dual"], one.history["dual"], rtol=1e-8, atol=1e-12)
    linear, dual = plain.scores(one.weights), kernelised.scores(other.weights)
    np.testing.assert_allclose(dual.variables, linear.variables, atol=1e-8)
    np.testing.assert_allclose(dual.factors, linear.factors, atol=1e-8)


# Rounding decides between equal steps, so that runs of these part; their optimum is one.
@pytest.mark.parametrize("solver", [BCFW(), SoftBCFW()], ids=["bcfw", "soft-bcfw"])
@pytest.mark.parametrize("make", [chains, labels])
def test_a_linear_kernel_has_the_optimum_of_the_linear_model(solver, make):
    C, tol = 2.0, 1e-5
    plain, kernelised = make(False), make(True)
    one = solver.solve(plain, C, tol=tol, max_passes=20_000)
    other = solver.solve(kernelised, C, tol=tol, max_passes=20_000)
    assert max(one.gap, other.gap) <= tol
    assert one.dual <= other.primal
    assert other.dual <= one.primal
    # P is strongly convex: weights are this near the optimum, and so are scores, for rows of this length.
    apart = 2.0 * np.sqrt(2.0 * tol * C)
    longest = float(np.sqrt(plain.variable_features.arrays.squared_norms.max()))
    linear, dual = plain.scores(one.weights), kernelised.scores(other.weights)
    np.testing.assert_allclose(dual.variables, linear.variables, atol=apart * longest)
    np.testing.assert_allclose(dual.factors, linear.factors, atol=apart)


@pytest.mark.parametrize("solver", [DLPW(), FrankWolfe(), Perceptron(), Subgradient()], ids=lambda one: one.name)
def test_solvers_that_need_features_say_so(solver):
    with pytest.raises(OptionError, match=f'The solver "{solver.name}" needs features, not a kernel'):
        solver.solve(chains(True))


def test_weights_there_and_back():
    problem = chains(True)
    rng = np.random.default_rng(0)
    flat = rng.normal(size=problem.n_weights)
    w_v, w_f = problem.working_weights(flat)
    np.testing.assert_array_equal(problem.flat_weights(w_v, w_f), flat)
    # The norm of the function that the coefficients stand for.
    A, gram = w_v[len(w_v) // 2 :], problem.variable_features.arrays.gram
    assert problem.inner((w_v, w_f), (w_v, w_f)) == pytest.approx(np.trace(A.T @ gram @ A) + (w_f**2).sum())


@pytest.mark.parametrize(
    ("gram", "words"),
    [
        (np.ones((2, 3)), r"shape \(2, 3\); expected a square matrix"),
        (np.array([[1.0, np.nan], [np.nan, 1.0]]), r"\[0, 1\] is nan"),
        (np.array([[1.0, 0.5], [0.0, 1.0]]), r"not symmetric: \[0, 1\] is 0.5, but \[1, 0\] is 0.0"),
        (np.array([[1.0, 0.0], [0.0, -1.0]]), r"\[1, 1\] is -1.0; a kernel of a row with itself is not negative"),
    ],
)
def test_bad_matrices(gram, words):
    with pytest.raises(DataError, match=words):
        KernelFeatures(gram)

"""Coordinates of solvers on sparse features: scores, norms and optima are those of the problem's own columns."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from maxmargin.problems import Features, chain_problem
from maxmargin.problems import columns as module
from maxmargin.problems.columns import Columns, columns_of
from maxmargin.solvers import LBFGS, BundleMethod, ExcessiveGap, ExponentiatedGradient, Extragradient


def chains(seed=0, tags=3, p=40):
    """Short chains with a few frequent columns, many that occur once, and some that never do."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 5, 9)
    X = np.zeros((lengths.sum(), p))
    for row in X:
        row[rng.integers(0, 5, 2)] = rng.normal(size=2)
        row[rng.integers(5, p - 3, 3)] = rng.normal(size=3)
    labels = [rng.integers(0, tags, n) for n in lengths]
    return chain_problem(Features(sp.csr_array(X)), labels, tags, lengths=lengths), X


@pytest.mark.parametrize("seed", range(5))
def test_scores_and_norms_stay(seed):
    problem, X = chains(seed)
    columns = Columns(problem)
    u = np.random.default_rng(seed).normal(size=columns.inside.n_weights)
    w = columns.outside(u)
    assert w @ w == pytest.approx(u @ u, rel=1e-12)
    for one, other in zip(problem.scores(w), columns.inside.scores(u), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)
    # No entry: no weight.
    assert not problem.split_weights(w)[0][:, ~X.any(axis=0)].any()


def test_columns_are_merged_and_ordered_by_use():
    problem, X = chains()
    found = Columns(problem).inside.variable_features
    matrix = _dense(found)
    entries, first = np.count_nonzero(matrix, axis=0), np.argmax(matrix != 0.0, axis=0)
    keys = list(zip(-np.floor(np.log2(entries)), first, strict=True))
    assert keys == sorted(keys)
    single = np.count_nonzero(X, axis=0) == 1
    rows = np.unique(np.argmax(X[:, single] != 0.0, axis=0))
    assert (entries == 1).sum() == len(rows) < single.sum()
    for row in rows:
        own = matrix[row, (entries == 1) & (first == row)]
        np.testing.assert_allclose(own, [np.linalg.norm(X[row, single])], rtol=1e-14)


def _dense(features):
    a = features.arrays
    return sp.csr_array((a.data, a.indices, a.indptr), features.shape).toarray()


SOLVERS = {
    "lbfgs": LBFGS(),
    "excessive-gap": ExcessiveGap(),
    "batch": ExponentiatedGradient(online=False),
    "online": ExponentiatedGradient(online=True),
    "extragradient": Extragradient(),
}


@pytest.mark.parametrize("name", SOLVERS)
def test_a_solver_finds_the_same_in_both_coordinates(name, monkeypatch):
    problem, _ = chains()
    options = {"C": 3.0, "tol": 1e-5, "max_passes": 3000}
    monkeypatch.setattr(module, "_FEW", 0)
    inside = SOLVERS[name].solve(problem, **options)
    assert len(inside.state.best) < problem.n_weights == len(inside.weights)
    again = SOLVERS[name].solve(problem, C=3.0, tol=1e-5, max_passes=5, state=inside.state)
    monkeypatch.setattr(module, "_FEW", problem.n_weights)
    plain = SOLVERS[name].solve(problem, **options)
    assert plain.primal == pytest.approx(inside.primal, abs=2e-5)
    # P is strongly convex: |w - w*|^2 <= 2 gap / lam.
    assert np.linalg.norm(plain.weights - inside.weights) <= 2.0 * np.sqrt(2.0 * 3.0 * 1e-5)
    assert len(again.weights) == problem.n_weights
    if name != "lbfgs":
        # An independent value of the very weights, from the bounds of another solver.
        assert BundleMethod().solve(problem, C=3.0, tol=1e-6, max_passes=500).dual <= inside.primal + 1e-9


def test_only_many_sparse_features_are_worth_it():
    problem, X = chains()
    assert columns_of(problem) is None
    assert columns_of(object()) is None
    labels, lengths = np.split(problem.labels, problem.example_variables[1:-1]), np.diff(problem.example_variables)
    wide, dense = (
        chain_problem(Features(matrix), labels, 3, lengths=lengths)
        for matrix in (sp.csr_array(np.tile(X, 2000)), np.ones((len(X), 80_000)))
    )
    assert columns_of(wide) is not None
    assert columns_of(dense) is None

"""Coordinates of solvers on sparse features: scores, norms and optima are those of the problem's own columns."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.sparse as sp

from maxmargin import ChainSVM, load
from maxmargin.problems import Features, chain_problem
from maxmargin.problems import columns as module
from maxmargin.problems.columns import Columns, OrderedFeatures, columns_of, in_order_of_use
from maxmargin.solvers import (
    BCFW,
    LBFGS,
    BundleMethod,
    ExcessiveGap,
    ExponentiatedGradient,
    Extragradient,
    FrankWolfe,
    NSlack,
    OneSlack,
    Perceptron,
    Subgradient,
)
from maxmargin.solvers.oracles.max_oracle import oracle_of


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
    columns = Columns(problem, merge=True)
    u = np.random.default_rng(seed).normal(size=columns.inside.n_weights)
    w = columns.outside(u)
    assert w @ w == pytest.approx(u @ u, rel=1e-12)
    for one, other in zip(problem.scores(w), columns.inside.scores(u), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)
    # No entry: no weight.
    assert not problem.split_weights(w)[0][:, ~X.any(axis=0)].any()


def test_columns_are_merged_and_ordered_by_use():
    problem, X = chains()
    found = Columns(problem, merge=True).inside.variable_features
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
    assert len(inside.weights) == problem.n_weights
    again = SOLVERS[name].solve(problem, C=3.0, tol=1e-5, max_passes=5, state=inside.state)
    monkeypatch.setattr(module, "_FEW", problem.n_weights)
    plain = SOLVERS[name].solve(problem, **options)
    # Fewer columns, whether states are filled up or not.
    assert len(inside.state.best) < len(plain.state.best)
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


PLANES = {
    "bcfw": BCFW(),
    "plain": BCFW.plain(),
    "one-slack": OneSlack(),
    "n-slack": NSlack(),
    "subgradient": Subgradient(),
    "perceptron": Perceptron(),
    "frank-wolfe": FrankWolfe(),
}


@pytest.mark.parametrize("name", PLANES)
def test_solvers_on_planes_find_the_same_in_both_coordinates(name, monkeypatch, tmp_path):
    problem, X = chains(tags=3)
    options = {"C": 3.0, "tol": 1e-4, "max_passes": 300}
    monkeypatch.setattr(module, "_FEW", 0)
    inside = PLANES[name].solve(problem, **options)
    # k passes, a checkpoint, and the rest give what all of them do; the states are those of the columns in order.
    PLANES[name].solve(problem, **options | {"max_passes": 2}, checkpoint=tmp_path / "state")
    resumed = PLANES[name].solve(problem, **options, checkpoint=tmp_path / "state")
    np.testing.assert_array_equal(resumed.weights, inside.weights)
    warm = PLANES[name].solve(problem, **options, state=inside.state)
    assert warm.primal <= inside.primal + 1e-3 or name == "perceptron"
    monkeypatch.setattr(module, "_FEW", problem.n_weights)
    plain = PLANES[name].solve(problem, **options)
    assert len(inside.weights) == problem.n_weights
    assert not problem.split_weights(inside.weights)[0][:, ~X.any(axis=0)].any()
    if name in ("perceptron", "subgradient", "frank-wolfe"):
        # The same steps, but for rounding.
        np.testing.assert_allclose(inside.weights, plain.weights, atol=1e-9)
    elif name != "plain":
        assert inside.gap <= 1e-4
    assert np.linalg.norm(plain.weights - inside.weights) <= 2.0 * np.sqrt(2.0 * 3.0 * max(inside.gap, plain.gap))
    hinges = oracle_of(problem, "junction_tree").mean_plane(inside.weights, 1).hinges
    assert inside.primal == pytest.approx(inside.weights @ inside.weights / 6.0 + hinges.mean(), abs=1e-9)


@pytest.mark.parametrize("merge", [False, True])
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("ones", [False, True])
def test_ordered_features(merge, constant, ones):
    _, X = chains()
    rows = Features(sp.csr_array((X != 0.0).astype(float) if ones else X))
    found, given = OrderedFeatures(rows, merge, constant), rows.with_constant() if constant else rows
    assert (len(found.arrays.data) == 0) == (ones and not merge)
    matrix = found.matrix()
    for begin, end in itertools.pairwise(matrix.indptr):
        assert (np.diff(matrix.indices[begin:end]) > 0).all()
    u = np.random.default_rng(0).normal(size=(2, found.shape[1]))
    # Two weights of factors come after those of the blocks.
    w = found.outside(np.append(u.ravel(), [5.0, 6.0]), 2)
    assert w[-2:].tolist() == [5.0, 6.0]
    w = w[:-2].reshape(2, given.shape[1])
    np.testing.assert_allclose(given.matrix() @ w.T, matrix @ u.T, atol=1e-12)
    assert (w**2).sum() == pytest.approx((u**2).sum())
    threaded = OrderedFeatures(rows, merge, constant, threads=3)
    np.testing.assert_array_equal(threaded.column, found.column)
    for one, other in zip(threaded.arrays, found.arrays, strict=True):
        np.testing.assert_array_equal(one, other)


def test_columns_are_sorted_by_the_bits_of_their_use_and_then_by_their_first_row():
    rng = np.random.default_rng(0)
    entries, first = rng.integers(0, 40, size=500), rng.integers(0, 90, size=500)
    columns = np.flatnonzero(rng.random(500) < 0.7)
    wanted = columns[np.lexsort((first[columns], -np.frexp(entries[columns])[1]))]
    np.testing.assert_array_equal(in_order_of_use(columns, entries, first), wanted)
    assert len(in_order_of_use(columns[:0], entries, first)) == 0


def test_an_estimator_has_its_own_columns_and_names(monkeypatch, tmp_path):
    rng = np.random.default_rng(0)
    X = [[f"w{rng.integers(30)}" for _ in range(rng.integers(1, 8))] for _ in range(40)]
    y = [["AB"[int(word[1:]) % 2] for word in one] for one in X]
    options = {"C": 10.0, "solver": "perceptron", "max_passes": 5, "C_path": [1.0]}
    plain = ChainSVM(**options).fit(X, y)
    monkeypatch.setattr(module, "_MANY", 0)
    monkeypatch.setattr(module, "_FEW", 0)
    ordered = ChainSVM(**options).fit(X, y)
    for name in ("coef_", "intercept_", "transition_coef_", "start_coef_"):
        np.testing.assert_array_equal(getattr(ordered, name), getattr(plain, name))
    np.testing.assert_array_equal(ordered.path_[1.0].weights, plain.path_[1.0].weights)
    assert ordered.top_features("A", 5) == plain.top_features("A", 5)
    ordered.save(tmp_path / "model.mm")
    for one, other in zip(load(tmp_path / "model.mm").predict(X), plain.predict(X), strict=True):
        np.testing.assert_array_equal(one, other)
    again = []
    for many in (0, 10**9):
        monkeypatch.setattr(module, "_MANY", many)
        model = ChainSVM(**options | {"warm_start": True}).fit(X, y)
        again.append(model.set_params(max_passes=10).fit(X, y).coef_)
    np.testing.assert_array_equal(*again)
    # Values on other scales are changed first, and put in order then.
    Z = [[{"large": 1000.0 * rng.normal(), "small": rng.normal(), word: 1.0} for word in one] for one in X]
    options = {"C": 10.0, "solver": "bcfw", "scale": True, "tol": 1e-7, "max_passes": 1000}
    plain = ChainSVM(**options).fit(Z, y)
    monkeypatch.setattr(module, "_MANY", 0)
    ordered = ChainSVM(**options).fit(Z, y)
    np.testing.assert_allclose(ordered.coef_, plain.coef_, atol=2.0 * np.sqrt(2.0 * 10.0 * 1e-7))
    assert ordered.score(Z, y) == plain.score(Z, y)

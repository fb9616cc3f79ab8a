"""``scale="auto"``: columns on one scale while training, weights in the user's units afterwards."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_wine
from sklearn.preprocessing import StandardScaler

import maxmargin as mm
from maxmargin.errors import OptionError
from maxmargin.estimators.scaling import scale_columns
from maxmargin.problems import Features
from maxmargin.solvers import SOLVERS

#: Columns of sizes from 1e-2 to 1e4, some far from 0.
SIZES, MEANS = np.array([1.0, 1e-2, 1e4, 50.0]), np.array([0.0, 5.0, -3e4, 1e3])


def data(n=60, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    return (rng.normal(size=(n, 4)) + 2.0 * np.eye(4)[y]) * SIZES + MEANS, y


def test_raw_wine_is_as_good_as_scaled_wine():
    X, y = load_wine(return_X_y=True)
    raw = mm.MultiClassSVM(C=10.0).fit(X[::2], y[::2])
    by_hand = StandardScaler().fit(X[::2])
    scaled = mm.MultiClassSVM(C=10.0, scale=False).fit(by_hand.transform(X[::2]), y[::2])
    assert raw.score(X[1::2], y[1::2]) == scaled.score(by_hand.transform(X[1::2]), y[1::2]) > 0.95
    assert "columns were centred and divided by 0.1" in raw.result_.options["scale"]
    # The same problem, so the same certificate, up to the rounding of the scaler.
    assert raw.result_.primal == pytest.approx(scaled.result_.primal, abs=2e-3)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array, lambda X: X.astype(np.float32)])
def test_weights_are_in_the_users_units(convert, fit_intercept):
    X, y = data()
    X = convert(X)
    model = mm.MultiClassSVM(C=10.0, scale=True, fit_intercept=fit_intercept).fit(X, y)
    dense = X.toarray() if sp.issparse(X) else X
    scores = dense @ model.coef_.T + model.intercept_
    np.testing.assert_allclose(model.decision_function(X), scores, rtol=1e-4, atol=1e-4)
    # The objective at the weights of the scaled columns is what was certified.
    rows = scale_columns(
        Features(np.column_stack([dense, np.ones(len(y))]) if fit_intercept else dense), fit_intercept, True
    )
    if sp.issparse(X):
        columns = sp.csr_array(np.column_stack([dense, np.ones(len(y))]) if fit_intercept else dense)
        rows = scale_columns(Features(columns), fit_intercept, True)
    w = model.coef_ * rows.factor[:4]
    constant = (model.intercept_ + model.coef_ @ rows.shift[:4])[:, None] if fit_intercept else np.zeros((3, 1))
    margins = 1.0 - np.eye(3)[y] + scores - scores[np.arange(len(y)), y][:, None]
    value = (np.sum(w**2) + np.sum(constant**2)) / 20.0 + margins.max(axis=1).mean()
    assert value == pytest.approx(model.result_.primal, rel=1e-4)


def test_columns_that_are_alike_are_left_alone():
    rng = np.random.default_rng(0)
    for X in (rng.normal(size=(50, 3)), rng.random((50, 3)), rng.integers(0, 2, (50, 20)).astype(float)):
        assert scale_columns(Features(X), True, False) is None
    text = sp.random_array((200, 50), density=0.05, rng=rng, format="csr")
    assert scale_columns(Features(text), True, False) is None
    model = mm.MultiClassSVM(C=1.0).fit(rng.normal(size=(50, 3)), np.arange(50) % 3)
    assert model.result_.options["scale"] == "columns are as they were given"


def test_columns_far_from_zero_are_centred_only():
    X = np.random.default_rng(0).normal((0.0, 5.0, 0.0), size=(50, 3))
    rows = scale_columns(Features(np.column_stack([X, np.ones(50)])), True, False)
    np.testing.assert_allclose(rows.matrix()[:, :3].mean(axis=0), 0.0, atol=1e-12)
    assert rows.factor.tolist() == [1.0] * 4
    # Without a constant nothing makes up for it.
    assert scale_columns(Features(X), False, False) is None


def test_columns_that_do_not_vary_stay():
    X = np.column_stack([np.full(30, 7.0), np.arange(30.0) * 1e4, np.arange(30) % 2, np.ones(30)])
    rows = scale_columns(Features(X), True, False)
    np.testing.assert_array_equal(rows.matrix()[:, [0, 3]], X[:, [0, 3]])
    for convert in (np.asarray, sp.csr_array):
        assert scale_columns(Features(convert(np.ones((5, 2)))), True, True) is None


def test_sparse_columns_keep_their_zeros():
    X = sp.csr_array(np.diag([1.0, 1e5, 1e-3]))
    rows = scale_columns(Features(X), True, False)
    assert rows.sparse
    np.testing.assert_array_equal(rows.matrix().toarray(), np.eye(3))


def test_chains_graphs_and_labels():
    rng = np.random.default_rng(0)
    y = [rng.integers(0, 3, rng.integers(2, 6)) for _ in range(30)]
    X = [(rng.normal(size=(len(row), 4)) + 2.0 * np.eye(4)[row]) * SIZES + MEANS for row in y]
    for options in ({}, {"order": 2, "emission_order": 1}):
        model = mm.ChainSVM(C=30.0, **options).fit(X, y)
        assert "centred and divided" in model.result_.options["scale"]
        assert model.score(X, y) > 0.8
        rows, states = np.split(model.predict_marginals(X)[0], 1)[0], model.predict(X)[0]
        assert rows.shape == (len(states), 3)
    # Features of edges are divided, never centred.
    edges = [np.array([[t, t + 1] for t in range(len(row) - 1)]).reshape(-1, 2) for row in y]
    graphs = [
        (x, e, np.abs(rng.normal(size=(len(e), 2))) * [1.0, 1e4] + [0.0, 1e4]) for x, e in zip(X, edges, strict=True)
    ]
    graph = mm.GraphSVM(C=30.0).fit(graphs, y)
    assert graph.result_.options["scale"].count("columns were") == 2
    assert graph.score(graphs, y) > 0.8
    labels = mm.MultiLabelSVM(C=30.0).fit(np.vstack(X), np.eye(3, dtype=int)[np.concatenate(y)])
    assert "centred" in labels.result_.options["scale"]


def test_warm_starts_and_checkpoints(tmp_path):
    X, y = data()
    model = mm.MultiClassSVM(C=10.0, warm_start=True, tol=1e-5).fit(X, y)
    first, weights = model.result_.n_passes, model.result_.weights.copy()
    model.fit(X, y)
    assert model.result_.n_passes < first
    np.testing.assert_allclose(model.result_.weights, weights, rtol=0.05, atol=1e-2)
    whole = mm.MultiClassSVM(C=10.0, tol=0.0, max_passes=8).fit(X, y)
    file = tmp_path / "a.ckpt"
    mm.MultiClassSVM(C=10.0, tol=0.0, max_passes=4, checkpoint=file).fit(X, y)
    rest = mm.MultiClassSVM(C=10.0, tol=0.0, max_passes=8, checkpoint=file).fit(X, y)
    np.testing.assert_array_equal(whole.result_.weights, rest.result_.weights)


@pytest.mark.parametrize("solver", sorted(SOLVERS))
def test_the_state_keeps_its_own_weights(solver):
    """A warm start goes on from the weights of the scaled columns, whoever trained them."""
    X, y = data()
    objective = "margin" if "margin" in SOLVERS[solver].objectives else "log"
    model = mm.MultiClassSVM(C=10.0, solver=solver, objective=objective, max_passes=3).fit(X, y)
    assert "divided" in model.result_.options["scale"]
    for field in dataclasses.fields(model.result_.state):
        value = getattr(model.result_.state, field.name)
        if isinstance(value, np.ndarray):
            assert not np.shares_memory(value, model.result_.weights), field.name


@pytest.mark.parametrize("scale", ["yes", None, 1, 0.5])
def test_bad_values_are_refused(scale):
    with pytest.raises(OptionError, match=r'scale=.* must be "auto", True or False'):
        mm.MultiClassSVM(scale=scale).fit(*data())

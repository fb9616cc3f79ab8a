"""`partial_fit` against one pass of the same solver, against the published steps in plain NumPy, and in pieces."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import scipy.sparse as sp

import maxmargin as mm
from maxmargin import BinarySVM, ChainSVM, MultiClassSVM, MultiLabelSVM
from maxmargin.errors import DataError, OptionError
from maxmargin.solvers import Perceptron, Subgradient


def rows(seed=0, n=60, p=4):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    return rng.normal(size=(n, p)) + np.eye(3, p)[y], np.array(["a", "b", "c"])[y]


def tagged(seed=0, n=40):
    rng = np.random.default_rng(seed)
    tags = [rng.choice(["B", "I", "O"], size=4) for _ in range(n)]
    return [np.eye(3)[np.searchsorted(["B", "I", "O"], y)] + rng.normal(size=(4, 3)) for y in tags], tags


def sets(seed=0, n=60):
    rng = np.random.default_rng(seed)
    Y = rng.integers(0, 2, (n, 4))
    return Y + rng.normal(size=(n, 4)), Y


def two(seed=0):
    X, y = rows(seed)
    return X, y == "a"


CASES = {
    "two classes": (BinarySVM, two, [False, True]),
    "classes": (MultiClassSVM, rows, ["a", "b", "c"]),
    "labels": (MultiLabelSVM, sets, None),
    "tags": (ChainSVM, tagged, ["B", "I", "O"]),
}
SOLVERS = {
    "perceptron": Perceptron(),
    "with margin": Perceptron(loss_augmented=True),
    "subgradient": Subgradient(t0=60),
}


def take(values, order):
    return [values[k] for k in order] if isinstance(values, list) else values[order]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("solver", SOLVERS)
def test_batches_equal_a_pass_of_fit_in_the_same_order(name, solver):
    kind, data, classes = CASES[name]
    X, y = data()
    n = len(y)
    # The order in which a first pass of `fit` visits examples.
    order = np.random.default_rng([0, 0, 0]).permutation(n)
    X, y = take(X, np.argsort(order)), take(y, np.argsort(order))
    options = {"C": 10.0, "solver": SOLVERS[solver], "scale": False}
    online = kind(**options)
    for part in np.array_split(order, 5):
        online.partial_fit(take(X, part), take(y, part), classes=classes)
    fitted = kind(**options, max_passes=1, tol=0.0).fit(X, y)
    if solver == "subgradient":
        # `fit` takes the last iterate where that is better; the average comes from its state.
        state = fitted.result_.state
        t, t0 = state.t, 60
        average = ((t + 1) * state.v - state.u) / (state.lam * (t * (t + 1) / 2 + t * t0))
        np.testing.assert_allclose(online._online[0].v, state.v, rtol=0, atol=1e-12)
        np.testing.assert_allclose(np.linalg.norm(online.result_.weights), np.linalg.norm(average), rtol=1e-10)
    else:
        np.testing.assert_allclose(online.result_.weights, fitted.result_.weights, rtol=0, atol=1e-12)
    assert online.result_.certificate == "none"
    assert online.result_.status != "CONVERGED"
    assert online.result_.n_oracle_calls == n


def test_the_published_steps():
    """Pegasos for several classes, written out: w <- (1 - 1/t) w + 1/(lam t) psi, averaged in proportion to t."""
    X, y = rows()
    weight = np.random.default_rng(1).uniform(0.2, 3.0, len(y))
    lam, t0 = 1 / 50.0, 7.0
    model = MultiClassSVM(C=50.0, solver=Subgradient(t0=t0), fit_intercept=False)
    for part in np.array_split(np.arange(len(y)), 7):
        model.partial_fit(X[part], y[part], ["a", "b", "c"], weight[part])
    w, total, mass = np.zeros((3, 4)), np.zeros((3, 4)), 0.0
    for m, (x, label) in enumerate(zip(X, y, strict=True)):
        t, k = m + 1 + t0, "abc".index(label)
        scores = w @ x + (np.arange(3) != k)
        best = int(scores.argmax())
        w = w * (t - 1) / t
        if best != k:
            w[k] += weight[m] * x / (lam * t)
            w[best] -= weight[m] * x / (lam * t)
        total, mass = total + t * w, mass + t
    np.testing.assert_allclose(model.coef_, total / mass, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_it_learns_and_pieces_do_not_matter(name):
    kind, data, classes = CASES[name]
    (X, y), held = data(0), data(1)
    whole = kind(C=100.0, solver=Subgradient(t0=100)).partial_fit(X, y, classes)
    parts = kind(C=100.0, solver=Subgradient(t0=100))
    for part in np.array_split(np.arange(len(y)), 11):
        parts.partial_fit(take(X, part), take(y, part), classes)
    np.testing.assert_allclose(parts.result_.weights, whole.result_.weights, rtol=0, atol=1e-12)
    auto = kind()
    for _ in range(5):
        auto.partial_fit(X, y, classes)
    assert auto.score(*held) >= kind().fit(X, y).score(*held) - 0.1
    assert auto.result_.options["C_reason"] == "by the scale of the first batch"
    assert auto.result_.n_passes == 5


def test_hashed_words_and_sparse_rows():
    words = [["the", "dog", "barked"], ["dogs", "bark"], ["a", "small", "dog"]]
    tags = [["DET", "NOUN", "VERB"], ["NOUN", "VERB"], ["DET", "ADJ", "NOUN"]]
    tagger = ChainSVM(C=10, solver="perceptron", features=mm.TextFeatures(n_hash=2**12))
    for _ in range(10):
        for x, y in zip(words, tags, strict=True):
            tagger.partial_fit([x], [y], classes=["ADJ", "DET", "NOUN", "VERB"])
    assert tagger.score(words, tags) == 1.0
    with pytest.raises(OptionError, match="n_hash"):
        ChainSVM(C=10).partial_fit(words, tags, classes=["ADJ", "DET", "NOUN", "VERB"])
    X, y = rows()
    dense = MultiClassSVM(C=10).partial_fit(X, y, ["a", "b", "c"])
    sparse = MultiClassSVM(C=10).partial_fit(sp.csr_array(X), y, ["a", "b", "c"])
    np.testing.assert_allclose(sparse.coef_, dense.coef_, atol=1e-12)


def test_sequences_of_other_lengths_in_other_batches():
    """The loss of a position stays what it was in the first batch."""
    rng = np.random.default_rng(0)
    lengths = [2, 2, 6, 3, 5, 1]
    tags = [rng.choice(["B", "I", "O"], size=n) for n in lengths]
    X = [rng.normal(size=(n, 3)) for n in lengths]
    parts = ChainSVM(C=10, solver=Subgradient(t0=5))
    parts.partial_fit(X[:2], tags[:2], ["B", "I", "O"]).partial_fit(X[2:], tags[2:])
    # Costs that are divided by the mean length of all, 19 / 6, times that over 2.
    costs = (1 - np.eye(3)) * (19 / 6) / 2
    whole = ChainSVM(C=10, solver=Subgradient(t0=5), loss=costs).partial_fit(X, tags, ["B", "I", "O"])
    np.testing.assert_allclose(parts.result_.weights, whole.result_.weights, rtol=0, atol=1e-12)


def test_pickles_go_on_and_fit_begins_anew(tmp_path):
    X, y = rows()
    model = MultiClassSVM(C=10).partial_fit(X[:30], y[:30], ["a", "b", "c"])
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copy.partial_fit(X[30:], y[30:]).coef_, model.partial_fit(X[30:], y[30:]).coef_)
    model.save(tmp_path / "model.mm")
    loaded = mm.load(tmp_path / "model.mm")
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    fitted = model.fit(X, y)
    assert fitted.result_.certificate == "exact"
    again = pickle.loads(pickle.dumps(fitted))
    # A perceptron with margin that goes on from the weights of fit, written out.
    again.set_params(solver=Perceptron(loss_augmented=True)).partial_fit(X[:9], y[:9])
    w, total = np.column_stack([fitted.coef_, fitted.intercept_]), 0.0
    for x, label in zip(X[:9], y[:9], strict=True):
        row, k = np.append(x, 1.0), "abc".index(label)
        best = int((w @ row + (np.arange(3) != k)).argmax())
        w = w.copy()
        w[k] += row
        w[best] -= row
        total = total + w
    np.testing.assert_allclose(np.column_stack([again.coef_, again.intercept_]), total / 9, atol=1e-10)
    # One subgradient step from loaded weights: w (1 - 1/t) + psi / (lam t) with t = t0 + 1.
    loaded.set_params(solver=Subgradient(t0=4)).partial_fit(X[:1], y[:1])
    w, row, k = np.column_stack([copy.coef_, copy.intercept_]), np.append(X[0], 1.0), "abc".index(y[0])
    best = int((w @ row + (np.arange(3) != k)).argmax())
    w = w * 4 / 5
    w[k] += row * 10 / 5
    w[best] -= row * 10 / 5
    np.testing.assert_allclose(np.column_stack([loaded.coef_, loaded.intercept_]), w, atol=1e-10)


def test_what_is_refused():
    X, y = rows()
    with pytest.raises(DataError, match="classes must be passed on the first call"):
        MultiClassSVM().partial_fit(X, y)
    with pytest.raises(OptionError, match=r'"subgradient" and "perceptron"; solver=.bcfw. needs all examples'):
        MultiClassSVM(solver="bcfw").partial_fit(X, y, ["a", "b", "c"])
    with pytest.raises(OptionError, match="solver='one-slack' needs all"):
        MultiClassSVM(solver=mm.solvers.OneSlack()).partial_fit(X, y, ["a", "b", "c"])
    assert not hasattr(MultiClassSVM(kernel="rbf"), "partial_fit")
    with pytest.raises(OptionError, match="class_weight='balanced' is not possible in partial_fit"):
        MultiClassSVM(class_weight="balanced").partial_fit(X, y, ["a", "b", "c"])
    with pytest.raises(OptionError, match="edges="):
        MultiLabelSVM(edges="tree").partial_fit(*sets())
    with pytest.raises(OptionError, match="of all predictions together"):
        BinarySVM(loss="f1").partial_fit(*two(), [False, True])
    with pytest.raises(OptionError, match="give one C"):
        MultiClassSVM(C=[1, 2]).partial_fit(X, y, ["a", "b", "c"])
    model = MultiClassSVM().partial_fit(X, y, ["a", "b", "c"])
    with pytest.raises(DataError, match="is not the same as at the first call"):
        model.partial_fit(X, y, ["a", "b"])
    with pytest.raises(DataError, match="y has the class 'd'"):
        model.partial_fit(X[:1], ["d"])
    with pytest.raises(DataError, match="2 features"):
        model.partial_fit(X[:, :2], y)
    chain = ChainSVM(C=1).partial_fit(*tagged(), ["B", "I", "O"])
    with pytest.raises(DataError, match="X has 2 features, but ChainSVM is expecting 3"):
        chain.partial_fit([np.ones((2, 2))], [["B", "I"]])
    with pytest.raises(DataError, match="'X', a tag that was not seen"):
        chain.partial_fit([np.ones((1, 3))], [["X"]])

"""The estimators as scikit-learn knows them.

scikit-learn's own battery feeds estimators one column of several classes: what `BinarySVM` and `MultiClassSVM` take.
`MultiLabelSVM` takes columns of zeros and ones, so it runs on a wrapper that makes two columns of such targets. The
checks that cannot hold are named with reasons.
"""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import maxmargin as mm


class OneColumn(mm.MultiLabelSVM):
    """Makes the targets of scikit-learn's checks into zeros and ones."""

    def fit(self, X, y, sample_weight=None):
        return super().fit(X, y if y is None else columns(y), sample_weight)

    def partial_fit(self, X, y, classes=None, sample_weight=None):
        return super().partial_fit(X, columns(y), sample_weight=sample_weight)

    def score(self, X, y, sample_weight=None):
        return super().score(X, columns(y), sample_weight)


def columns(y):
    column = np.ravel(np.asarray(y))
    if column.dtype.kind == "c":
        raise ValueError("Complex data not supported")
    if column.dtype.kind == "f" and not np.isfinite(column).all():
        raise ValueError("Input y contains infinity or NaN")
    distinct = np.unique(column)
    if len(distinct) == 0:
        return np.empty((0, 2))
    return np.column_stack([column == distinct[0], column == distinct[-1]])


WEIGHTS = (
    "cv, which the check sets to a list of splits, is a number of folds here; and training stops at a gap, so that weights are "
    "known to its root: at a gap of 1e-10 probabilities differ by 5e-6, where the check allows 1e-7; gamma of kernels is the "
    "scale of all rows, whatever their weights (test_weights_count_like_repeated_rows)"
)
TWO = "predictions have the two columns that the wrapper made out of one; test_multi_label.py covers sparse features"
EXPECTED = {
    "check_sample_weight_equivalence_on_dense_data": WEIGHTS,
    "check_sample_weight_equivalence_on_sparse_data": WEIGHTS,
}
EXPECTED_OF_COLUMNS = EXPECTED | {"check_estimator_sparse_array": TWO, "check_estimator_sparse_matrix": TWO}


@parametrize_with_checks(
    [
        OneColumn(C=1.0, max_passes=20),
        mm.BinarySVM(C=1.0),
        mm.MultiClassSVM(),
        mm.BinarySVM(C=1.0, kernel="rbf"),
        mm.MultiClassSVM(C=1.0, kernel="poly"),
    ],
    expected_failed_checks=lambda one: EXPECTED_OF_COLUMNS if isinstance(one, OneColumn) else EXPECTED,
)
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize(
    ("kind", "kernel"), [(mm.BinarySVM, "linear"), (mm.MultiClassSVM, "linear"), (mm.BinarySVM, "rbf")]
)
def test_weights_count_like_repeated_rows(kind, kernel):
    """What scikit-learn's check of sample weights asks, at the precision that a gap allows."""
    rng = np.random.default_rng(0)
    X, y, weight = rng.normal(size=(30, 4)), rng.integers(0, 2, 30), rng.integers(0, 4, 30)
    # The scale that gamma would be chosen by is that of all rows, whatever their weights.
    model = kind(C=1.0, tol=1e-10, max_passes=20000, kernel=kernel, gamma=0.3)
    weighted = clone(model).fit(X, y, sample_weight=weight).decision_function(X)
    repeated = clone(model).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight)).decision_function(X)
    np.testing.assert_allclose(weighted, repeated, atol=2e-5)


def test_an_object_among_numbers_is_a_type_error():
    X = np.array([[{"a": 1}, 1.0], [1.0, 2.0]], object)
    with pytest.raises(mm.errors.WrongTypeError, match="X holds values that are not real numbers"):
        mm.BinarySVM(C=1.0).fit(X, [0, 1])
    assert issubclass(mm.errors.WrongTypeError, TypeError)
    assert issubclass(mm.errors.WrongTypeError, mm.errors.DataError)


@pytest.mark.parametrize("kind", [mm.BinarySVM, mm.MultiClassSVM, mm.MultiLabelSVM, mm.ChainSVM, mm.GraphSVM])
def test_parameters_are_stored_and_cloned(kind):
    model = kind(3.0, solver=mm.solvers.SoftBCFW(), tol=0.5, random_state=7)
    parameters = model.get_params()
    assert parameters["C"] == 3.0
    assert vars(model).keys() == model.get_params(deep=False).keys()
    other = clone(model)
    assert other.get_params()["tol"] == 0.5
    assert other is not model
    assert other.set_params(C=4.0).C == 4.0
    # Nothing is checked or changed before fit.
    assert kind(C="nonsense").C == "nonsense"
    assert "tol=0.5" in repr(model)
    with pytest.raises(ValueError, match="Invalid parameter"):
        model.set_params(magic=1)


@pytest.mark.parametrize(
    ("kind", "X", "y"),
    [
        (mm.BinarySVM, [[1.0]], [1]),
        (mm.MultiClassSVM, [[1.0]], [1]),
        (mm.MultiLabelSVM, [[1.0]], [[1]]),
        (mm.ChainSVM, [[[1.0]]], [[1]]),
        (mm.GraphSVM, [([[1.0]], [])], [[1]]),
    ],
)
def test_not_fitted(kind, X, y):
    for method in ("predict", "decision_function"):
        with pytest.raises(NotFittedError):
            getattr(kind(), method)(X)
    with pytest.raises(NotFittedError):
        kind().score(X, y)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3)) * [1, 10, 100]
    return X, (X > 0).astype(int)


def test_in_a_pipeline(data):
    X, Y = data
    pipeline = make_pipeline(StandardScaler(), mm.MultiLabelSVM(C=10.0, tol=1e-2)).fit(X, Y)
    assert pipeline.score(X, Y) > 0.85
    assert pipeline.predict(X).shape == Y.shape


@pytest.mark.parametrize("lists", [False, True])
def test_grid_search(data, lists):
    X, Y = data
    targets = [np.flatnonzero(row).tolist() for row in Y] if lists else Y
    search = GridSearchCV(mm.MultiLabelSVM(tol=1e-2, edges="none"), {"C": [1e-4, 10.0]}, cv=2)
    search.fit(StandardScaler().fit_transform(X), targets)
    assert search.best_params_ == {"C": 10.0}
    assert search.best_score_ > 0.8


@pytest.mark.parametrize("kind", [mm.BinarySVM, mm.MultiClassSVM])
def test_classifiers_in_a_grid_search_with_a_curve(data, kind):
    X, Y = data
    model = make_pipeline(StandardScaler(), kind(tol=1e-2))
    name = f"{kind.__name__.lower()}__C"
    search = GridSearchCV(model, {name: [1e-6, 10.0]}, scoring="roc_auc", cv=2).fit(X, np.array(["n", "y"])[Y[:, 0]])
    assert search.best_score_ > 0.9
    assert search.predict(X).dtype == np.dtype("<U1")


def test_cross_validation_of_sequences():
    rng = np.random.default_rng(0)
    tags = [np.array(["A", "B", "C"])[rng.integers(0, 3, rng.integers(1, 5))] for _ in range(24)]
    X = [np.column_stack([row == "A", row == "B", rng.normal(size=len(row))]) for row in tags]
    scores = cross_val_score(mm.ChainSVM(C=100.0, tol=1e-2), X, tags, cv=3)
    assert (scores > 0.9).all()
    search = GridSearchCV(mm.ChainSVM(tol=1e-2), {"C": [1e-4, 100.0]}, cv=2).fit(X, tags)
    assert search.best_params_ == {"C": 100.0}


def test_cross_validation_of_graphs():
    rng = np.random.default_rng(0)
    labels = [rng.integers(0, 2, 3) for _ in range(12)]
    graphs = [(np.column_stack([y, rng.normal(size=3)]), [[0, 1], [1, 2]]) for y in labels]
    scores = cross_val_score(mm.GraphSVM(C=10.0, tol=1e-2), graphs, labels, cv=3)
    assert (scores > 0.9).all()


def test_feature_names(data):
    X, Y = data
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = mm.MultiLabelSVM(max_passes=2).fit(frame, Y)
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame[["b", "a", "c"]])
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        model.predict(X)
    assert not hasattr(mm.MultiLabelSVM(max_passes=2).fit(X, Y), "feature_names_in_")
    for kind in (mm.BinarySVM, mm.MultiClassSVM):
        assert kind(max_passes=2).fit(frame, Y[:, 0]).feature_names_in_.tolist() == ["a", "b", "c"]


def test_importing_the_package_imports_next_to_nothing():
    code = """
import sys, maxmargin
heavy = [name for name in ("numpy", "scipy", "numba", "sklearn", "rich", "matplotlib") if name in sys.modules]
assert not heavy, heavy
assert "MultiLabelSVM" in dir(maxmargin)
assert maxmargin.__version__
assert "numpy" not in sys.modules
for name in maxmargin.__all__:
    getattr(maxmargin, name)
assert "matplotlib" not in sys.modules
try:
    maxmargin.nonsense
except AttributeError as error:
    assert "nonsense" in str(error)
"""
    subprocess.run([sys.executable, "-c", code], check=True)

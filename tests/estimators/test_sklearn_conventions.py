"""The estimators as scikit-learn knows them.

scikit-learn's own battery feeds estimators one column of several classes; ours takes columns of zeros and ones. So it
runs on a wrapper that makes two columns of such targets; the checks that cannot hold even so are named with reasons.
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


STOPS = "training stops at a tolerance, so two ways to the same optimum differ by more than rounding"
TWO = "predictions have the two columns that the wrapper made out of one; test_multi_label.py covers sparse features"
EXPECTED = {
    "check_estimator_sparse_array": TWO,
    "check_estimator_sparse_matrix": TWO,
    "check_sample_weight_equivalence_on_dense_data": STOPS,
    "check_sample_weight_equivalence_on_sparse_data": STOPS,
    "check_dtype_object": "an object that is no number is a DataError, not a TypeError",
}


@parametrize_with_checks([OneColumn(max_passes=20)], expected_failed_checks=lambda _: EXPECTED)
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("kind", [mm.MultiLabelSVM, mm.GraphSVM])
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


def test_not_fitted():
    for method in ("predict", "decision_function"):
        with pytest.raises(NotFittedError):
            getattr(mm.MultiLabelSVM(), method)([[1.0]])
        with pytest.raises(NotFittedError):
            getattr(mm.GraphSVM(), method)([([[1.0]], [])])
    with pytest.raises(NotFittedError):
        mm.MultiLabelSVM().score([[1.0]], [[1]])
    with pytest.raises(NotFittedError):
        mm.GraphSVM().score([([[1.0]], [])], [[1]])


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

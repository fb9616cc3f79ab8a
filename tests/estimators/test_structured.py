"""StructuredSVM: training, prediction and saving of a model written in Python."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score

from maxmargin.errors import DataError, OptionError
from maxmargin.estimators.multi_class import MultiClassSVM
from maxmargin.estimators.structured import StructuredSVM
from maxmargin.problems.python_problem import OracleError
from maxmargin.solvers import SoftBCFW, Status
from maxmargin.solvers.frank_wolfe.bcfw import BCFW


class Classes:
    """Multi-class classification, as SVM-struct's users would write it."""

    def __init__(self, n_classes=3):
        self.n_classes = n_classes

    def joint_features(self, x, y):
        phi = np.zeros((self.n_classes, len(x)))
        phi[y] = x
        return phi.ravel()

    def loss(self, y, y_hat):
        return float(y != y_hat)

    def most_violated(self, x, y, w):
        scores = w.reshape(self.n_classes, -1) @ x + 1.0
        scores[y] -= 1.0
        return int(scores.argmax())

    def predict(self, x, w):
        return int((w.reshape(self.n_classes, -1) @ x).argmax())


class Named(Classes):
    """The same with named features."""

    feature_names = tuple(f"{k}:{j}" for k in range(3) for j in range(4))

    def joint_features(self, x, y):
        return {f"{y}:{j}": value for j, value in enumerate(x)}

    def score(self, x, y, w):
        return sum(value * w[name] for name, value in self.joint_features(x, y).items())

    def most_violated(self, x, y, w):
        return max(range(3), key=lambda k: float(k != y) + self.score(x, k, w))

    def predict(self, x, w):
        return max(range(3), key=lambda k: self.score(x, k, w))


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 4))
    y = (X @ rng.normal(size=(4, 3)) + 0.3 * rng.normal(size=(80, 3))).argmax(axis=1)
    return X, y


@pytest.mark.parametrize("model", [Classes(), Named()], ids=["vectors", "names"])
def test_it_learns_what_multi_class_learns(data, model):
    X, y = data
    weight = np.linspace(0.5, 2.0, 80)
    written = StructuredSVM(model, C=10.0, tol=1e-4).fit(X, y, weight)
    built_in = MultiClassSVM(10.0, tol=1e-4, fit_intercept=False).fit(X, y, weight)
    assert written.result_.status is Status.CONVERGED
    assert written.result_.certificate == "exact"
    assert written.result_.primal == pytest.approx(built_in.result_.primal, abs=2e-4)
    # P is strongly convex: weights of value within 1e-4 of the optimum are within sqrt(2 * 1e-4 / lam) of it.
    np.testing.assert_allclose(written.coef_.reshape(3, 4), built_in.coef_, atol=2 * np.sqrt(2e-3))
    assert np.mean(np.array(written.predict(X)) == built_in.predict(X)) > 0.95
    assert written.score(X, y) == pytest.approx(np.mean(np.array(written.predict(X)) == y))
    assert written.score(X, y, weight) == pytest.approx(np.average(np.array(written.predict(X)) == y, weights=weight))
    assert written.feature_names_ == (None if type(model) is Classes else list(Named.feature_names))
    assert written.result_.weights is written.coef_


def test_as_an_estimator(data):
    X, y = data
    model = StructuredSVM(Classes(), C=3.0, solver=BCFW(cache=5))
    assert vars(model).keys() == model.get_params(deep=False).keys()
    assert clone(model).C == 3.0
    search = GridSearchCV(StructuredSVM(Classes(), tol=1e-2), {"C": [1e-4, 10.0]}, cv=2).fit(X, y)
    assert search.best_params_ == {"C": 10.0}
    written, built_in = StructuredSVM(Classes(), C=10.0, tol=1e-5), MultiClassSVM(10.0, tol=1e-5, fit_intercept=False)
    one, other = (cross_val_score(each, X, y, cv=KFold(3)) for each in (written, built_in))
    # Weights that close differ, if at all, at an input on a border.
    np.testing.assert_allclose(one, other, atol=1.5 / 26)
    with pytest.raises(NotFittedError):
        model.predict(X)


@pytest.mark.parametrize("solver", ["bcfw", "frank-wolfe", "subgradient", "perceptron"])
def test_solvers_by_name(data, solver):
    X, y = data
    model = StructuredSVM(Classes(), C=10.0, solver=solver, tol=0.02, max_passes=100).fit(X, y)
    assert model.result_.solver == solver
    assert model.score(X, y) > 0.85


def test_a_warm_start_and_a_checkpoint(data, tmp_path):
    X, y = data
    model = StructuredSVM(Classes(), C=1.0, warm_start=True, tol=1e-3, verbose=0).fit(X, y)
    cold = model.result_.n_oracle_calls
    assert model.fit(X, y).result_.n_oracle_calls < cold
    path = tmp_path / "state"
    StructuredSVM(Classes(), checkpoint=path, max_passes=3, tol=0.0).fit(X, y)
    rest = StructuredSVM(Classes(), checkpoint=path, max_passes=6, tol=0.0).fit(X, y)
    whole = StructuredSVM(Classes(), max_passes=6, tol=0.0).fit(X, y)
    np.testing.assert_array_equal(rest.coef_, whole.coef_)


def test_weights_can_be_kept_but_not_the_code(data, tmp_path):
    X, y = data
    model = StructuredSVM(Classes(), C=10.0).fit(X, y)
    with pytest.raises(OptionError, match="cannot be saved: its model is code"):
        model.save(tmp_path / "model.mm")
    np.savez(tmp_path / "weights.npz", coef=model.coef_)
    again = StructuredSVM(Classes())
    again.coef_, again.feature_names_ = np.load(tmp_path / "weights.npz")["coef"], None
    assert again.predict(X) == model.predict(X)


def test_what_it_refuses(data):
    X, y = data
    for options, words in (
        ({"C": 0}, "C=0 is not possible"),
        ({"tol": -1}, "tol=-1 is not possible"),
        ({"max_passes": 0}, "max_passes=0 is not possible"),
        ({"n_jobs": 0}, "n_jobs=0 is not possible"),
        ({"solver": "magic"}, "solver='magic' cannot train a model written in Python"),
        ({"solver": "soft-bcfw"}, "solver='soft-bcfw' cannot train a model written in Python"),
        ({"solver": SoftBCFW()}, "solver='soft-bcfw' cannot train a model written in Python"),
        ({"solver": BCFW}, "solver='bcfw' cannot train"),
    ):
        with pytest.raises(OptionError, match=words):
            StructuredSVM(Classes(), **options).fit(X, y)
    with pytest.raises(DataError, match="The model is a str"):
        StructuredSVM("chain").fit(X, y)
    with pytest.raises(DataError, match="X has 80 examples, but Y has 79"):
        StructuredSVM(Classes()).fit(X, y[1:])
    model = StructuredSVM(Classes(), max_passes=2).fit(X, y)
    with pytest.raises(DataError, match="X has 80 inputs, but y has 1"):
        model.score(X, y[:1])
    with pytest.raises(OracleError, match="Input 1: predict raised ValueError"):
        model.predict([np.ones(4), np.ones(3)])

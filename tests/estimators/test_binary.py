"""BinarySVM: LinearSVC's objective, and what it accepts and refuses."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.svm import LinearSVC

import maxmargin as mm
from maxmargin.errors import DataError, OptionError
from maxmargin.estimators import base
from maxmargin.problems import binary_problem
from maxmargin.solvers import make_solver
from reference.enumerated_program import exact_optimum


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 5))
    return X, np.where(X @ [1.0, -1.0, 0.5, 0.0, 0.0] + 0.5 + 0.7 * rng.normal(size=80) > 0, "yes", "no")


def small(**options):
    return mm.BinarySVM(**({"C": 10.0, "tol": 1e-4} | options))


def objective(w, X, y, C, weight=None):
    """1/(2C) |w|^2 + mean hinge, from the definition; the weights of examples are scaled to mean 1."""
    hinge = np.maximum(0, 1 - np.where(y == "yes", 1, -1) * (X @ w))
    return w @ w / (2 * C) + np.average(hinge, weights=weight)


def peer(X, y, C, weight=None):
    weight = np.ones(len(y)) if weight is None else np.asarray(weight)
    machine = LinearSVC(C=C / weight.sum(), loss="hinge", fit_intercept=False, tol=1e-8, max_iter=10**6)
    return machine.fit(X, y, sample_weight=weight).coef_[0]


# ------------------------------------------------------------------------------------------------- training


@pytest.mark.parametrize("C", [0.1, 10.0, 1000.0])
@pytest.mark.parametrize("intercept", [False, True])
def test_the_objective_is_that_of_linear_svc(data, C, intercept):
    X, y = data
    model = small(C=C, fit_intercept=intercept).fit(X, y)
    rows = np.column_stack([X, np.ones(len(X))]) if intercept else X
    best = objective(peer(rows, y, C), rows, y, C)
    assert objective(model.result_.weights, rows, y, C) == pytest.approx(best, rel=1e-3)
    assert model.result_.primal == pytest.approx(objective(model.result_.weights, rows, y, C), rel=1e-9)
    assert model.result_.dual <= best + 1e-9
    assert model.result_.certificate == "exact"


def test_sample_weights_and_class_weights_are_those_of_linear_svc(data):
    X, y = data
    sample = np.random.default_rng(1).uniform(0, 3, len(y))
    for class_weight, by_class in (
        ({"yes": 5.0}, np.where(y == "yes", 5.0, 1.0)),
        ("balanced", len(y) / (2 * np.where(y == "yes", np.sum(y == "yes"), np.sum(y == "no")))),
        (None, np.ones(len(y))),
    ):
        weight = sample * by_class
        model = small(class_weight=class_weight, fit_intercept=False).fit(X, y, sample_weight=sample)
        best = objective(peer(X, y, 10.0, weight), X, y, 10.0, weight)
        assert objective(model.coef_[0], X, y, 10.0, weight) == pytest.approx(best, rel=1e-3)


def test_costs_move_the_boundary(data):
    X, y = data
    # To say "yes" (state 1) where "no" is true costs ten times as much.
    model = small(loss=[[0, 10], [1, 0]]).fit(X, y)
    assert np.sum(model.predict(X) == "yes") < np.sum(small().fit(X, y).predict(X) == "yes")
    w = model.result_.weights
    margin = np.where(y == "yes", 1, -1) * (X @ w[:-1] + w[-1])
    hinge = np.maximum(0, np.where(y == "yes", 1, 10) - margin)
    assert model.result_.primal == pytest.approx(w @ w / 20 + hinge.mean())


@pytest.mark.parametrize("kernel", [{}, {"kernel": "poly", "degree": 2, "gamma": 0.5}, {"kernel": "rbf", "n_basis": 6}])
def test_costs_against_a_program_of_all_labelings(data, kernel):
    X, y = data[0][:40], data[1][:40]
    costs = np.array([[0.0, 2.5], [0.5, 0.0]])
    model = small(loss=costs, fit_intercept=False, max_passes=20_000, **kernel).fit(X, y)
    rows = X
    if "degree" in kernel:
        rows = np.hstack([np.einsum("ni,nj->nij", X, X).reshape(40, -1) / 2.0, X, np.ones((40, 1))])
    elif kernel:
        basis = model.basis_vectors_
        inverse = np.linalg.inv(np.linalg.cholesky(rbf_kernel(basis, gamma=model.gamma_)))
        rows = rbf_kernel(X, basis, gamma=model.gamma_) @ inverse.T
    best = exact_optimum(binary_problem(rows, (y == "yes").astype(int), costs), 10.0)
    assert model.result_.gap <= 1e-4
    assert model.result_.dual - 1e-7 <= best <= model.result_.primal + 1e-7


def test_attributes_have_the_shapes_of_scikit_learn(data):
    X, y = data
    model = small().fit(X, y)
    assert model.classes_.tolist() == ["no", "yes"]
    assert model.coef_.shape == (1, 5)
    assert model.intercept_.shape == (1,)
    assert np.shares_memory(model.coef_, model.result_.weights)
    assert np.shares_memory(model.intercept_, model.result_.weights)
    decision = model.decision_function(X)
    np.testing.assert_allclose(decision, X @ model.coef_[0] + model.intercept_[0])
    np.testing.assert_array_equal(model.predict(X), np.where(decision > 0, "yes", "no"))
    assert model.score(X, y) == np.mean(model.predict(X) == y) > 0.8
    assert model.inference_ == "trees (exact): no graph has a cycle"
    assert small(fit_intercept=False).fit(X, y).intercept_.tolist() == [0]


def test_score_with_sample_weights(data):
    X, y = data
    model = small().fit(X, y)
    right = model.predict(X) == y
    assert model.score(X, y, sample_weight=right) == 1.0


@pytest.mark.parametrize(
    ("one", "other", "classes"),
    [
        (3, -1, [-1, 3]),
        (True, False, [False, True]),
        (2.0, 1.0, [1.0, 2.0]),
        (("t", 1), ("s", 2), [("s", 2), ("t", 1)]),
    ],
)
def test_kinds_of_classes(data, one, other, classes):
    X, y = data
    values = [one if label == "yes" else other for label in y]
    model = small().fit(X, values)
    assert model.classes_.tolist() == classes
    assert [type(label) for label in model.classes_.tolist()] == [type(label) for label in classes]
    same = small().fit(X, y).predict(X)
    assert model.predict(X).tolist() == [one if label == "yes" else other for label in same]
    assert model.score(X, values) == np.mean(same == y)


@pytest.mark.parametrize(
    "convert", [list, pd.Series, lambda y: y.astype(object), lambda y: pd.Series(y, dtype="category")]
)
def test_kinds_of_y_agree(data, convert):
    X, y = data
    one, other = small().fit(X, y), small().fit(X, convert(y))
    np.testing.assert_array_equal(one.result_.weights, other.result_.weights)
    assert other.predict(X).tolist() == one.predict(X).tolist()


@pytest.mark.parametrize("convert", [sp.csr_array, sp.csr_matrix, pd.DataFrame, lambda X: X.tolist()])
def test_kinds_of_X_agree(data, convert):
    X, y = data
    one, other = small().fit(X, y), small().fit(convert(X), y)
    np.testing.assert_array_equal(one.result_.weights, other.result_.weights)
    np.testing.assert_array_equal(one.predict(X), other.predict(convert(X)))


@pytest.mark.parametrize("loss", ["zero-one", "count"])
def test_names_of_the_one_loss(data, loss):
    model = small(loss=loss).fit(*data)
    assert model.loss == loss
    np.testing.assert_array_equal(model.result_.weights, small().fit(*data).result_.weights)


def test_the_objective_is_handed_on(data, monkeypatch):
    seen = []

    def spied(solver, problem, objective, inference, device):
        seen.append(objective)
        return make_solver(solver, problem)

    monkeypatch.setattr(base, "make_solver", spied)
    for objective in ("margin", "log"):
        small(objective=objective, max_passes=1).fit(*data)
    assert seen == ["margin", "log"]


def test_warm_start_and_checkpoint(data, tmp_path):
    X, y = data
    warm = small(warm_start=True).fit(X, y)
    passes = warm.result_.n_passes
    assert warm.fit(X, y).result_.n_passes < passes
    path = tmp_path / "state.mm"
    first = small(checkpoint=path, tol=1e-2).fit(X, y)
    assert small(checkpoint=path).fit(X, y).result_.n_passes > first.result_.n_passes


# ------------------------------------------------------------------------------------------------- refused


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda X, y: (X, None), "BinarySVM requires y to be passed, but the target y is None"),
        (lambda X, y: (X, y[:-1]), "X has 80 rows, but y has 79; expected a class for each row of X"),
        (lambda X, y: (X[:0], y[:0]), "X has no rows: the data is empty"),
        (lambda X, y: (X[:, :0], y), r"0 feature\(s\)"),
        (lambda X, y: (X[0], y), "X has 1 dimension"),
        (lambda X, y: (np.where(X > 1, np.nan, X), y), r"X\[\d+, \d\] is nan"),
        (lambda X, y: (X, ["yes"] * 80), "at least 2 classes to tell apart, but y holds one class only: 'yes'"),
        (lambda X, y: (X, np.arange(80) % 3), "y holds 3 classes. MultiClassSVM takes any number"),
        (lambda X, y: (X, np.where(y == "yes", np.nan, 1.0)), r"y contains NaN or None: y\[\d+\] is nan"),
        (lambda X, y: (X, [None, *y[1:]]), r"y\[0\] is None"),
        (lambda X, y: (X, np.where(y == "yes", 0.5, 1.0)), r"Unknown label type: continuous: y\[\d+\] is 0.5"),
        (lambda X, y: (X, [[1]] * 80), r"y\[0\] is \[1\], which is not hashable"),
        (lambda X, y: (X, np.ones((80, 2))), r"y has 2 dimension\(s\), shape \(80, 2\)"),
        (lambda X, y: (X, sp.csr_array(np.ones((80, 1)))), "y is a sparse matrix"),
        (lambda X, y: (X, "yes"), "y is 'yes'; expected one class for each row"),
        (lambda X, y: (X, 3), "y is 3; expected one class for each row"),
    ],
)
def test_bad_data_is_a_sentence(data, change, sentence):
    X, y = change(*data)
    with pytest.raises(DataError, match=sentence):
        small().fit(X, y)


@pytest.mark.parametrize(
    ("options", "kind", "sentence"),
    [
        ({"C": 0}, OptionError, "C=0 is not possible"),
        ({"loss": "square"}, OptionError, "loss='square' is not known"),
        ({"loss": [[0, 1, 1]] * 3}, DataError, r"loss has shape \(3, 3\); expected \(2, 2\)"),
        ({"loss": [[0, 1], [1]]}, DataError, "neither a name nor a table of numbers"),
        ({"loss": [[0, -1], [1, 0]]}, DataError, r"loss\[0, 1\], the cost of 'yes' where 'no' is true, is -1.0"),
        ({"loss": [[0, np.inf], [1, 0]]}, DataError, r"is inf; costs must be finite"),
        ({"loss": [[0, 1], [1, 2]]}, DataError, r"loss\[1, 1\], the cost of 'yes' where it is true, is 2.0"),
        ({"class_weight": "equal"}, OptionError, "class_weight='equal' is not possible"),
        ({"class_weight": [1, 2]}, OptionError, r"class_weight=\[1, 2\] is not possible"),
        ({"class_weight": {"yes": -1}}, OptionError, r"class_weight\['yes'\] is -1; it must be a finite number"),
        ({"class_weight": {"yes": np.nan}}, OptionError, r"class_weight\['yes'\] is nan"),
        (
            {"class_weight": {"yess": 2}},
            OptionError,
            r"the class 'yess', which is not in y; the classes are \['no', 'yes'\]",
        ),
    ],
)
def test_a_bad_parameter_is_a_sentence(data, options, kind, sentence):
    with pytest.raises(kind, match=sentence):
        small(**options).fit(*data)


def test_class_weights_of_more_classes_than_there_are(data):
    model = small(class_weight={"yes": 2.0, "no": 1.0, "perhaps": 9.0}).fit(*data)
    same = small(class_weight={"yes": 2.0}).fit(*data)
    np.testing.assert_array_equal(model.result_.weights, same.result_.weights)


def test_wrong_sample_weights(data):
    with pytest.raises(DataError, match=r"sample_weight has shape \(3,\); expected \(80,\), one per example"):
        small().fit(*data, sample_weight=np.ones(3))
    with pytest.raises(DataError, match="not negative"):
        small().fit(*data, sample_weight=-np.ones(80))


def test_prediction_and_score_refuse_what_they_do_not_know(data):
    X, y = data
    model = small().fit(X, y)
    with pytest.raises(DataError, match="X has 4 features, but BinarySVM is expecting 5"):
        model.predict(X[:, :4])
    # A class that was not seen in training is wrong.
    assert model.score(X[:3], ["maybe"] * 3) == 0.0
    with pytest.raises(DataError, match="X has 80 rows, but y has 79"):
        model.score(X, y[:-1])

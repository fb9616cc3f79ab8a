"""MultiClassSVM: Crammer and Singer's objective, costs, weights, and what it refuses; BinarySVM's tests cover the rest."""

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp
import scipy.special
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.svm import LinearSVC

import maxmargin as mm
from maxmargin.errors import DataError
from maxmargin.estimators import labels
from maxmargin.problems import multi_class_problem
from reference.enumerated_program import exact_optimum
from reference.quadratic_program import optimum

NAMES = np.array(["a", "b", "c", "d"])


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 6))
    return X, NAMES[(X[:, :4] + 0.5 * rng.normal(size=(90, 4))).argmax(axis=1)]


def small(**options):
    return mm.MultiClassSVM(**({"C": 10.0, "tol": 1e-4} | options))


def states(y):
    return np.searchsorted(NAMES, y)


def objective(W, X, y, C, costs=None, weight=None):
    """1/(2C) |W|^2 + mean of max_k cost(y, k) + (w_k - w_y) . x, from the definition."""
    costs = 1 - np.eye(len(W)) if costs is None else np.asarray(costs)
    scores = X @ W.T
    hinge = (costs[y] + scores).max(axis=1) - scores[np.arange(len(y)), y]
    return (W**2).sum() / (2 * C) + np.average(hinge, weights=weight)


@pytest.mark.parametrize("C", [0.1, 10.0, 1000.0])
@pytest.mark.parametrize("intercept", [False, True])
def test_the_objective_is_crammer_and_singers(data, C, intercept):
    X, y = data
    model = small(C=C, fit_intercept=intercept, max_passes=20_000).fit(X, y)
    assert model.result_.gap <= 1e-4
    rows = np.column_stack([X, np.ones(len(X))]) if intercept else X
    peer = LinearSVC(C=C / len(y), multi_class="crammer_singer", fit_intercept=False, tol=1e-8, max_iter=10**6)
    best = objective(peer.fit(rows, y).coef_, rows, states(y), C)
    found = objective(model.result_.weights.reshape(4, -1), rows, states(y), C)
    assert found == pytest.approx(best, rel=1e-3)
    assert model.result_.primal == pytest.approx(found, rel=1e-9)
    assert model.result_.dual <= best + 1e-9


def test_costs_and_weights(data):
    X, y = data
    costs = np.array([[0, 1, 2, 3], [1, 0, 1, 2], [5, 1, 0, 1], [3, 2, 1, 0.5]])
    with pytest.raises(DataError, match=r"loss\[3, 3\], the cost of 'd' where it is true, is 0.5"):
        small(loss=costs).fit(X, y)
    costs[3, 3] = 0
    by_class = {"a": 2.0, "d": 0.5}
    sample = np.random.default_rng(1).uniform(0, 2, len(y))
    weight = sample * [by_class.get(label, 1.0) for label in y]
    model = small(loss=costs.tolist(), class_weight=by_class, fit_intercept=False).fit(X, y, sample_weight=sample)
    found = objective(model.coef_, X, states(y), 10.0, costs, weight)
    assert model.result_.primal == pytest.approx(found, rel=1e-9)
    best = optimum(multi_class_problem(X, states(y), 4, costs, weight), 10.0)
    assert found == pytest.approx(best, abs=1e-4)
    assert model.result_.dual <= best + 1e-7


@pytest.mark.parametrize(
    "kernel",
    [{}, {"kernel": "rbf", "gamma": 0.3}, {"kernel": "rbf", "gamma": 0.3, "n_basis": 200, "basis": "cholesky"}],
)
def test_costs_against_a_program_of_all_labelings(data, kernel):
    X, y = data[0][:30], data[1][:30]
    costs = np.random.default_rng(2).uniform(0.1, 3.0, (4, 4))
    np.fill_diagonal(costs, 0.0)
    model = small(loss=costs, fit_intercept=False, max_passes=20_000, **kernel).fit(X, y)
    # Rows whose inner products are the kernel's.
    rows = np.linalg.cholesky(rbf_kernel(X, gamma=0.3)) if kernel else X
    best = exact_optimum(multi_class_problem(rows, states(y), 4, costs), 10.0)
    assert model.result_.gap <= 1e-4
    assert model.result_.dual - 1e-7 <= best <= model.result_.primal + 1e-7
    # Costs matter: the optimum without them is another.
    assert abs(best - exact_optimum(multi_class_problem(rows, states(y), 4), 10.0)) > 0.01


def test_balanced_is_what_it_says(data):
    X, y = data
    counts = {name: np.sum(y == name) for name in NAMES}
    balanced = small(class_weight="balanced").fit(X, y)
    by_hand = small(class_weight={name: len(y) / (4 * count) for name, count in counts.items()}).fit(X, y)
    np.testing.assert_allclose(balanced.result_.weights, by_hand.result_.weights, atol=1e-9)
    assert not np.allclose(balanced.result_.weights, small().fit(X, y).result_.weights, atol=1e-3)


def test_attributes_and_predictions(data):
    X, y = data
    model = small().fit(X, y)
    assert model.classes_.tolist() == NAMES.tolist()
    assert model.coef_.shape == (4, 6)
    assert model.intercept_.shape == (4,)
    scores = model.decision_function(X)
    np.testing.assert_allclose(scores, X @ model.coef_.T + model.intercept_)
    np.testing.assert_array_equal(model.predict(X), NAMES[scores.argmax(axis=1)])
    assert model.score(X, y) == np.mean(model.predict(X) == y) > 0.8


def test_two_classes_are_a_binary_machine(data):
    X, y = data
    two = np.isin(y, ["a", "b"])
    model = small(C=10.0, tol=1e-5, max_passes=20_000).fit(X, two)
    assert model.coef_.shape == (2, 6)
    # The best two blocks are w/2 and -w/2, whose squares add up to |w|^2 / 2: the binary machine with C twice as large.
    binary = mm.BinarySVM(C=20.0, tol=1e-5, max_passes=20_000).fit(X, two)
    assert model.result_.primal == pytest.approx(binary.result_.primal, abs=2e-4)
    decision = model.decision_function(X)
    assert decision.shape == (90,)
    np.testing.assert_allclose(decision, binary.decision_function(X), atol=0.05)
    np.testing.assert_array_equal(model.predict(X), decision > 0)


def test_sparse_features_agree(data):
    X, y = data
    one, other = small().fit(X, y), small().fit(sp.csr_array(X), y)
    np.testing.assert_array_equal(one.result_.weights, other.result_.weights)
    np.testing.assert_allclose(one.decision_function(X), other.decision_function(sp.csr_array(X)))


def test_classes_that_do_not_compare(data):
    X, y = data
    values = [{"a": "x", "b": 1, "c": ("t", 2), "d": frozenset("q")}[label] for label in y]
    model = small(max_passes=50).fit(X, values)
    assert set(model.classes_.tolist()) == {"x", 1, ("t", 2), frozenset("q")}
    assert model.classes_.tolist()[0] == values[0]
    assert model.score(X, values) > 0.8


def test_zero_one_is_hamming_here(data):
    np.testing.assert_array_equal(small(loss="zero-one").fit(*data).result_.weights, small().fit(*data).result_.weights)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda X, y: (X, ["a"] * 90), "MultiClassSVM needs at least 2 classes .* one class only: 'a'"),
        (lambda X, y: (X, y[:5]), "X has 90 rows, but y has 5"),
        (lambda X, y: (X, None), "MultiClassSVM requires y"),
        (lambda X, y: (X * np.nan, y), r"X\[0, 0\] is nan"),
    ],
)
def test_bad_data_is_a_sentence(data, change, sentence):
    X, y = change(*data)
    with pytest.raises(DataError, match=sentence):
        small().fit(X, y)


def test_an_unseen_class(data):
    X, y = data
    model = small().fit(X, y)
    right = model.predict(X) == y
    assert model.score(X, np.where(np.arange(90) == 0, "e", y)) == right[1:].sum() / 90


def test_probabilities_of_the_log_objective():
    rng = np.random.default_rng(5)
    X, y = rng.normal(size=(60, 3)), rng.integers(0, 3, 60)
    model = mm.MultiClassSVM(C=20.0, objective="log", tol=1e-7, fit_intercept=False).fit(X, y)

    def objective(flat):
        scores = X @ flat.reshape(3, 3).T
        return 0.5 / 20.0 * flat @ flat + np.mean(scipy.special.logsumexp(scores, axis=1) - scores[np.arange(60), y])

    best = scipy.optimize.minimize(objective, np.zeros(9), tol=1e-12)
    assert abs(model.result_.primal - best.fun) <= 1e-6
    expected = scipy.special.softmax(X @ best.x.reshape(3, 3).T, axis=1)
    np.testing.assert_allclose(model.predict_proba(X), expected, atol=2e-3)
    assert model.temperature_ == 1.0


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint8, np.int64, np.float64, object, str])
def test_classes_and_states_are_the_same_whatever_holds_the_labels(dtype):
    y = (
        np.random.default_rng(0).integers(2, size=50)
        if dtype is bool
        else np.random.default_rng(0).integers(3, 9, size=50)
    )
    column = y.astype(dtype)
    classes, states = labels.classes_and_states(column, "A test")
    expected = labels.distinct(column.tolist())
    assert classes.dtype == expected.dtype
    np.testing.assert_array_equal(classes, expected)
    np.testing.assert_array_equal(states, labels.states_of(column.tolist(), expected))
    assert states.dtype == np.int32


def test_labels_that_are_far_apart_are_classes_too():
    classes, states = labels.classes_and_states(np.array([-(2**62), 2**62, 5, 5]), "A test")
    assert classes.tolist() == [-(2**62), 5, 2**62]
    assert states.tolist() == [0, 2, 1, 1]

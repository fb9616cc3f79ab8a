"""Kernels on the estimators: against linear models on explicit features, a quadratic program, and what cannot be.

A basis of all rows is the kernel itself; a smaller one, the linear model on OP8's features as the paper prints them.
"""

from __future__ import annotations

import clarabel
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV

import maxmargin as mm
from maxmargin.errors import DataError, ModelFileError, OptionError
from maxmargin.estimators import feature_space
from maxmargin.estimators.prediction import StructuredPredictor
from maxmargin.formats.model_file import read_model, write_model
from maxmargin.jit import Struct
from maxmargin.problems import Features, chain_problem, graph_problem
from maxmargin.problems.features import KernelBlocks
from maxmargin.solvers import SOLVERS
from maxmargin.solvers.cutting_planes.one_slack import OneSlack

TOL = 1e-6
KINDS = [mm.BinarySVM, mm.MultiClassSVM, mm.MultiLabelSVM, mm.ChainSVM, mm.GraphSVM]
WITH_BASIS = [kind for kind in KINDS if "n_basis" in kind().get_params()]
EDGES = np.array([[0, 1], [1, 2], [2, 0]])


def inner_products(X, Y):
    return X @ Y.T


def data(kind, convert=lambda X: X, seed=0, p=2):
    """A small data set for an estimator; `convert` makes its feature rows something else."""
    rng = np.random.default_rng(seed)
    if kind in (mm.ChainSVM, mm.GraphSVM):
        lengths = rng.integers(1, 5, 10) if kind is mm.ChainSVM else np.full(8, 3)
        rows = [rng.normal(size=(t, p)) for t in lengths]
        y = [np.digitize(x[:, 0] * x[:, 1] + 0.3 * rng.normal(size=len(x)), [-0.3, 0.3]) for x in rows]
        rows = [convert(x) for x in rows]
        return (rows if kind is mm.ChainSVM else [(x, EDGES, rng.normal(size=(3, 1))) for x in rows]), y
    X = rng.normal(size=(24, p))
    if kind is mm.MultiLabelSVM:
        return convert(X), (np.column_stack([X[:, 0], X[:, 1], X[:, 0] * X[:, 1]]) > 0.1).astype(int)
    return convert(X), np.digitize(X[:, 0] * X[:, 1], [0.0] if kind is mm.BinarySVM else [-0.3, 0.3])


def flat(answers):
    return np.concatenate([np.ravel(one) for one in answers])


def train(kind, X, y, **options):
    options = {"C": 3.0, "tol": TOL, "max_passes": 20_000} | options
    model = kind(**options).fit(X, y)
    assert model.result_.gap <= options["tol"]
    return model


def same_optimum(one, other):
    """Each bound of the one holds for the other; rounding of values near 1 stays below 1e-9."""
    assert one.result_.dual <= other.result_.primal + 1e-9
    assert other.result_.dual <= one.result_.primal + 1e-9


#: How many rows, and how much of factors' features, the joint features of an example can add up to at most.
ROWS = {mm.BinarySVM: 1, mm.MultiClassSVM: 1, mm.MultiLabelSVM: np.sqrt(3), mm.ChainSVM: 4, mm.GraphSVM: 3}
FACTORS = {mm.BinarySVM: 0, mm.MultiClassSVM: 0, mm.MultiLabelSVM: np.sqrt(3), mm.ChainSVM: 5, mm.GraphSVM: 3 * 2.8}


def near(one, other, X, other_X, longest):
    """Scores of labelings differ by no more than the gaps allow: lam/2 |w - w*|^2 <= gap; no row is longer than `longest`."""
    norm = ROWS[type(one)] * longest + FACTORS[type(one)]
    apart = norm * sum(np.sqrt(2.0 * model.C * model.result_.gap) for model in (one, other)) + 1e-9
    np.testing.assert_allclose(other.decision_function(other_X), one.decision_function(X), atol=apart)
    # What the other predicts is as good to the one as its own predictions, but for that.
    if isinstance(one, StructuredPredictor):
        problem, found = one._predict(X)
        labels = other._predict(other_X)[1].labels
        scores = problem.labeling_scores(problem.scores(one._flat_weights(problem)), labels)
        assert (scores >= found.values - 2 * apart).all()
    else:
        scores = one.decision_function(X).reshape(len(labels := other.predict(other_X)), -1)
        scores = np.hstack([np.zeros_like(scores), scores]) if scores.shape[1] == 1 else scores
        assert (scores[np.arange(len(labels)), labels] >= scores.max(axis=1) - 2 * apart).all()


# ------------------------------------------------------------------------------------------------- truth


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_the_kernel_of_inner_products_is_the_linear_model(kind, intercept):
    X, y = data(kind)
    one = train(kind, X, y, fit_intercept=intercept)
    other = train(kind, X, y, fit_intercept=intercept, kernel=inner_products)
    same_optimum(one, other)
    near(one, other, X, X, 3.0)
    if intercept:
        gaps = np.sqrt(2.0 * one.C * one.result_.gap) + np.sqrt(2.0 * one.C * other.result_.gap)
        np.testing.assert_allclose(other.intercept_, one.intercept_, atol=gaps)


def squares(X):
    """Features whose inner products are (x.y / 2 + 1.5)^2."""
    pairs = np.einsum("ni,nj->nij", X, X).reshape(len(X), -1)
    return np.hstack([pairs / 2.0, np.sqrt(1.5) * X, np.full((len(X), 1), 1.5)])


@pytest.mark.parametrize("kind", KINDS)
def test_a_polynomial_is_a_linear_model_of_products(kind):
    explicit, y = data(kind, squares)
    X, _ = data(kind)
    one = train(kind, explicit, y, fit_intercept=False)
    other = train(kind, X, y, fit_intercept=False, kernel="poly", degree=2, gamma=0.5, coef0=1.5)
    same_optimum(one, other)
    near(one, other, explicit, X, 7.0)
    new, _ = data(kind, seed=1)
    near(one, other, data(kind, squares, seed=1)[0], new, 7.0)


def program(gram, t, C):
    """min over 0 <= a <= 1 of the negative dual of C/n sum hinge + |w|^2 / 2, by Clarabel; returns a, and P at the optimum."""
    n = len(t)
    Q = sp.csc_matrix(np.triu(C / n**2 * np.outer(t, t) * gram))
    A = sp.csc_matrix(np.vstack([-np.eye(n), np.eye(n)]))
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    bounds = np.concatenate([np.zeros(n), np.ones(n)])
    found = clarabel.DefaultSolver(Q, -np.ones(n) / n, A, bounds, [clarabel.NonnegativeConeT(2 * n)], settings).solve()
    return np.array(found.x), -found.obj_val


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("gamma", ["scale", 0.7])
def test_rbf_against_a_quadratic_program(intercept, gamma):
    X, y = data(mm.BinarySVM)
    new, _ = data(mm.BinarySVM, seed=1)
    C, number = 5.0, 1.0 / (X.shape[1] * X.var()) if gamma == "scale" else gamma
    model = train(mm.BinarySVM, X, y, kernel="rbf", gamma=gamma, fit_intercept=intercept, C=C)
    assert model.gamma_ == pytest.approx(number)

    def kernel(A, B):
        return np.exp(-number * ((A[:, None] - B[None]) ** 2).sum(axis=2)) + intercept

    t = 2.0 * y - 1.0
    a, value = program(kernel(X, X), t, C)
    assert model.result_.dual - 1e-7 <= value <= model.result_.primal + 1e-7
    expected = kernel(new, X) @ (C / len(t) * a * t)
    # The program is solved to about 1e-8; k(x, x) is 1 or 2.
    apart = (np.sqrt(2 * C * model.result_.gap) + np.sqrt(2 * C * 1e-7)) * np.sqrt(1.0 + intercept)
    np.testing.assert_allclose(model.decision_function(new), expected, atol=apart)


@pytest.mark.parametrize("kernel", ["rbf", "poly"])
@pytest.mark.parametrize("kind", KINDS)
def test_sparse_rows_stay_sparse(kind, kernel, monkeypatch):
    dense, y = data(kind, p=7)
    X, _ = data(kind, sp.csr_array, p=7)
    inner = sp.csr_array.toarray

    def guarded(self, *options, **more):
        assert self.shape[1] != 7, "feature rows were made dense"
        return inner(self, *options, **more)

    for name in ("toarray", "todense"):
        monkeypatch.setattr(sp.csr_array, name, guarded)
    one, other = (train(kind, given, y, kernel=kernel, tol=1e-4) for given in (dense, X))
    assert sp.issparse(other.support_vectors_)
    assert other.gamma_ == pytest.approx(one.gamma_)
    same_optimum(one, other)
    # No row is longer than 4, so that k(x, x) + 1 is at most 2 or (16 gamma + 1)^3 + 1.
    longest = np.sqrt(2.0 if kernel == "rbf" else (16 * one.gamma_ + 1) ** 3 + 1)
    near(one, other, dense, X, longest)


def test_products_of_features_need_a_kernel():
    X, y = data(mm.MultiClassSVM)
    assert mm.MultiClassSVM(C=100.0).fit(X, y).score(X, y) < 0.8
    assert mm.MultiClassSVM(C=100.0, kernel="rbf").fit(X, y).score(X, y) > 0.95


# ------------------------------------------------------------------------------------------------- what a model holds


@pytest.mark.parametrize("kind", KINDS)
def test_dual_coefficients(kind):
    X, y = data(kind)
    model = kind(C=0.5, kernel="rbf", gamma=0.3).fit(X, y)
    blocks = 1 if kind is mm.BinarySVM else 3
    rows = (
        X if kind not in (mm.ChainSVM, mm.GraphSVM) else np.concatenate([x[0] if kind is mm.GraphSVM else x for x in X])
    )
    assert model.dual_coef_.shape == (blocks, len(model.support_))
    np.testing.assert_array_equal(model.support_vectors_, rows[model.support_])
    assert (model.dual_coef_ != 0).any(axis=0).all()
    np.testing.assert_allclose(model.intercept_, model.dual_coef_.sum(axis=1))
    assert not hasattr(model, "coef_")
    with pytest.raises(AttributeError, match="With a kernel there are no weights of features, coef_"):
        model.coef_  # noqa: B018
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        model.nonsense  # noqa: B018
    # The score by hand, of the factorless tasks.
    if kind in (mm.BinarySVM, mm.MultiClassSVM):
        scores = rbf_kernel(X, model.support_vectors_, gamma=0.3) @ model.dual_coef_.T + model.intercept_
        np.testing.assert_allclose(model.decision_function(X).reshape(scores.shape), scores)
    model.set_params(kernel="linear").fit(X, y)
    assert model.coef_.shape == (blocks, 2)
    for name in ("dual_coef_", "support_", "support_vectors_", "gamma_"):
        assert not hasattr(model, name)
    model.set_params(kernel="rbf").fit(X, y)
    assert not hasattr(model, "coef_")


def test_edges_stay_linear():
    X, y = data(mm.GraphSVM)
    model = mm.GraphSVM(kernel="rbf").fit(X, y)
    assert model.edge_coef_.shape == (3, 3, 1)
    nodes, edges, features = X[0]
    labels, values, _ = model.predict(X[:1], return_bound=True)
    k = labels[0]
    scores = rbf_kernel(nodes, model.support_vectors_, gamma=model.gamma_) @ model.dual_coef_.T + model.intercept_
    by_hand = scores[np.arange(3), k].sum() + (model.edge_coef_[k[edges[:, 0]], k[edges[:, 1]]] * features).sum()
    assert values[0] == pytest.approx(by_hand)


def test_marginals_and_the_k_best():
    X, y = data(mm.ChainSVM)
    other = mm.ChainSVM(kernel="rbf").fit(X, y)
    # The same scores, made by a linear model whose features are the kernel's.
    rows = [
        rbf_kernel(x, other.support_vectors_, gamma=other.gamma_) @ other.dual_coef_.T + other.intercept_ for x in X
    ]
    one = mm.ChainSVM(fit_intercept=False, max_passes=1).fit(rows, y)
    one.result_.weights[:9] = np.eye(3).ravel()
    one.result_.weights[9:] = other.result_.weights[3 * len(flat(y)) :]
    marginals = flat(other.predict_marginals(X)), flat(one.predict_marginals(rows, other.temperature_))
    np.testing.assert_allclose(*marginals, atol=1e-12)
    for found, expected in zip(other.predict_top_k(X, 3), one.predict_top_k(rows, 3), strict=True):
        for mine, theirs in zip(found, expected, strict=True):
            np.testing.assert_array_equal(np.array(mine).round(9), np.array(theirs).round(9))


def test_unknown_nodes_are_no_rows():
    X, y = data(mm.GraphSVM)
    y[0] = [-1, 0, 1]
    model = mm.GraphSVM(kernel="rbf").fit(X, y)
    known = np.concatenate([X[0][0][1:], *[nodes for nodes, _, _ in X[1:]]])
    np.testing.assert_array_equal(model.support_vectors_, known[model.support_])


@pytest.mark.parametrize("kind", KINDS)
def test_prediction_goes_by_blocks_of_rows(kind, monkeypatch):
    X, y = data(kind)
    model = kind(kernel="rbf").fit(X, y)
    expected = model.decision_function(X)
    seen = []
    between = feature_space._between

    def spied(estimator, rows, *rest):
        seen.append(rows.shape[0])
        return between(estimator, rows, *rest)

    monkeypatch.setattr(feature_space, "_BLOCK_BYTES", 8 * 5 * len(model.support_))
    monkeypatch.setattr(feature_space, "_between", spied)
    np.testing.assert_allclose(model.decision_function(X), expected, atol=1e-12)
    assert len(seen) > 1
    assert max(seen) == 5


def test_a_model_without_support():
    """A cost of 0 for every mistake leaves all weights at 0."""
    X, y = data(mm.BinarySVM)
    model = mm.BinarySVM(kernel="rbf", loss=np.zeros((2, 2))).fit(X, y)
    assert len(model.support_) == 0
    assert (model.decision_function(X) == 0).all()


# ------------------------------------------------------------------------------------------------- precomputed


@pytest.mark.parametrize("kind", [mm.BinarySVM, mm.MultiClassSVM, mm.MultiLabelSVM])
def test_precomputed(kind):
    X, y = data(kind)
    new, _ = data(kind, seed=1)
    gram = rbf_kernel(X, X, gamma=0.5)
    kept = gram.copy()
    one = kind(kernel="rbf", gamma=0.5, max_passes=20).fit(X, y)
    other = kind(kernel="precomputed", max_passes=20).fit(gram, y)
    np.testing.assert_array_equal(gram, kept)
    np.testing.assert_array_equal(other.result_.weights, one.result_.weights)
    np.testing.assert_allclose(
        other.decision_function(rbf_kernel(new, X, gamma=0.5)), one.decision_function(new), atol=1e-12
    )
    assert other.n_features_in_ == len(X)
    assert not hasattr(other, "support_vectors_")
    with pytest.raises(DataError, match="24 features"):
        other.predict(gram[:, 1:])


def test_precomputed_in_a_grid_search():
    X, y = data(mm.BinarySVM)
    grid = {"C": [1e-3, 10.0]}
    one = GridSearchCV(mm.MultiClassSVM(kernel="rbf", gamma=0.5), grid, cv=3).fit(X, y)
    other = GridSearchCV(mm.MultiClassSVM(kernel="precomputed"), grid, cv=3).fit(rbf_kernel(X, X, gamma=0.5), y)
    np.testing.assert_allclose(other.cv_results_["mean_test_score"], one.cv_results_["mean_test_score"])


# ------------------------------------------------------------------------------------------------- going on


def test_warm_start():
    X, y = data(mm.ChainSVM)
    model = mm.ChainSVM(C=1.0, kernel="rbf", gamma=0.5, warm_start=True, tol=1e-4).fit(X, y)
    first = model.result_.n_passes
    model.fit(X, y)
    assert model.result_.n_passes < first
    # Another kernel is another problem: a fresh start.
    model.set_params(gamma=1.5).fit(X, y)
    fresh = mm.ChainSVM(C=1.0, kernel="rbf", gamma=1.5, tol=1e-4).fit(X, y)
    np.testing.assert_array_equal(model.result_.weights, fresh.result_.weights)


def test_a_path_of_C():
    X, y = data(mm.MultiLabelSVM)
    model = mm.MultiLabelSVM(C=10.0, C_path=[0.1, 1.0], kernel="rbf", tol=1e-4).fit(X, y)
    assert sorted(model.path_) == [0.1, 1.0, 10.0]
    for C, result in model.path_.items():
        alone = mm.MultiLabelSVM(C=C, kernel="rbf", tol=1e-4).fit(X, y).result_
        assert max(alone.dual, result.dual) <= min(alone.primal, result.primal) + 1e-9


@pytest.mark.parametrize("kind", [mm.MultiClassSVM, mm.ChainSVM])
def test_checkpoints(kind, tmp_path):
    X, y = data(kind)
    options = {"kernel": "rbf", "tol": 0.0, "C": 10.0}
    whole = kind(max_passes=8, **options).fit(X, y)
    kind(max_passes=4, checkpoint=tmp_path / "a", **options).fit(X, y)
    resumed = kind(max_passes=8, checkpoint=tmp_path / "a", **options).fit(X, y)
    np.testing.assert_array_equal(resumed.result_.weights, whole.result_.weights)
    np.testing.assert_array_equal(resumed.dual_coef_, whole.dual_coef_)
    with pytest.raises(OptionError, match="belongs to another run: the data differs"):
        kind(max_passes=8, checkpoint=tmp_path / "a", **(options | {"gamma": 2.0})).fit(X, y)


# ------------------------------------------------------------------------------------------------- model files


@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array, lambda X: X.astype(np.float32)])
@pytest.mark.parametrize("kernel", ["rbf", "poly"])
@pytest.mark.parametrize("kind", KINDS)
def test_saving(kind, kernel, convert, tmp_path):
    X, y = data(kind, convert)
    model = kind(C=1.0, kernel=kernel, degree=2, max_passes=10).fit(X, y)
    model.save(tmp_path / "a.mm")
    loaded = mm.load(tmp_path / "a.mm")
    assert model.decision_function(X).tobytes() == loaded.decision_function(X).tobytes()
    assert flat(model.predict(X)).tobytes() == flat(loaded.predict(X)).tobytes()
    for name in ("dual_coef_", "support_", "intercept_", "gamma_"):
        np.testing.assert_array_equal(getattr(model, name), getattr(loaded, name))
    one, two = model.support_vectors_, loaded.support_vectors_
    assert type(one) is type(two)
    assert one.dtype == two.dtype
    assert abs(one - two).max() == 0
    assert not hasattr(loaded, "coef_")
    loaded.save(tmp_path / "b.mm")
    assert (tmp_path / "a.mm").read_bytes() == (tmp_path / "b.mm").read_bytes()
    np.testing.assert_array_equal(clone(loaded).fit(X, y).result_.weights, model.result_.weights)


def test_saving_of_a_precomputed_model(tmp_path):
    X, y = data(mm.MultiClassSVM)
    gram = rbf_kernel(X, X)
    model = mm.MultiClassSVM(kernel="precomputed").fit(gram, y)
    model.save(tmp_path / "a.mm")
    assert mm.load(tmp_path / "a.mm").decision_function(gram).tobytes() == model.decision_function(gram).tobytes()


def test_a_function_is_not_saved(tmp_path):
    model = mm.BinarySVM(kernel=inner_products).fit(*data(mm.BinarySVM))
    with pytest.raises(OptionError, match="The kernel inner_products cannot be saved: it is code"):
        model.save(tmp_path / "a.mm")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda h, a: h["kernel"].update(n_rows=23), "its weights have shape"),
        (lambda h, a: h["kernel"].update(n_rows="many"), "n_rows is 'many'"),
        (lambda h, a: h["kernel"].update(gamma=-1.0), "gamma is -1.0"),
        (lambda h, a: h["parameters"].update(kernel="sigmoid"), "kernel='sigmoid' is not known"),
        (lambda h, a: h["parameters"].update(degree=0), "degree=0 is not possible"),
        (lambda h, a: h["parameters"].update(kernel="linear"), "its weights have shape"),
        (lambda h, a: h.pop("kernel"), "lacks what a model needs"),
        (lambda h, a: a.pop("support_data"), "lacks what a model needs"),
        (lambda h, a: a["support_indices"].__setitem__(0, 99), "row 0 has an entry in column 99"),
        (lambda h, a: a["support_data"].__setitem__(0, np.nan), "must be finite"),
        (lambda h, a: a.update(support_vectors=np.ones((1, 2))), r"support vectors have shape \(1, 2\)"),
    ],
)
def test_a_file_that_does_not_fit_together(tmp_path, change, sentence):
    mm.BinarySVM(kernel="rbf").fit(*data(mm.BinarySVM, sp.csr_array)).save(tmp_path / "a.mm")
    header, arrays = read_model(tmp_path / "a.mm")
    for key in ("format", "format_version", "arrays"):
        header.pop(key)
    change(header, arrays)
    write_model(tmp_path / "b.mm", header, arrays)
    with pytest.raises(ModelFileError, match=sentence):
        mm.load(tmp_path / "b.mm")


# ------------------------------------------------------------------------------------------------- what cannot be


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"kernel": "sigmoid"}, "kernel='sigmoid' is not known"),
        ({"kernel": 3}, "kernel=3 is not known"),
        ({"kernel": dict}, "kernel=<class 'dict'> is not known"),
        ({"gamma": "auto"}, "gamma='auto' is not possible"),
        ({"gamma": 0.0}, r"gamma=0\.0 is not possible"),
        ({"gamma": np.inf}, "gamma=inf is not possible"),
        ({"degree": 1.5}, r"degree=1\.5 is not possible"),
        ({"coef0": -1.0}, r"coef0=-1\.0 is not possible"),
        ({"coef0": "1"}, "coef0='1' is not possible"),
        (
            {"kernel": "rbf", "n_basis": 0},
            "n_basis=0 is not possible; it must be a whole number of at least 1, or None",
        ),
        ({"kernel": "rbf", "n_basis": 2.5}, r"n_basis=2\.5 is not possible"),
        ({"kernel": "rbf", "n_basis": True}, "n_basis=True is not possible"),
        ({"n_basis": 5}, "n_basis=5 is for kernels"),
        ({"basis": "lda"}, 'basis=\'lda\' is not known; use "auto", "cholesky", "random", "k-means"'),
        ({"basis": None}, "basis=None is not known"),
        ({"objective": "square"}, 'objective=\'square\' is not known; use "margin", "log"'),
    ],
)
def test_parameters_that_cannot_be(kind, options, sentence):
    if not set(options) <= set(kind().get_params()):
        pytest.skip("not a parameter of this estimator")
    with pytest.raises(OptionError, match=sentence):
        kind(**options).fit(*data(kind))


@pytest.mark.parametrize("solver", sorted(SOLVERS))
def test_a_solver_trains_the_kernel_right_or_not_at_all(solver):
    X, y = data(mm.ChainSVM)
    objective = "margin" if "margin" in getattr(SOLVERS[solver], "objectives", ("margin",)) else "log"
    model = mm.ChainSVM(C=3.0, solver=solver, kernel=inner_products, max_passes=3000, objective=objective)
    if solver not in feature_space.KERNEL_SOLVERS:
        with pytest.raises(
            OptionError, match=f'The solver {solver} needs features, of which a kernel has none; use "auto", .* n_basis'
        ):
            model.fit(X, y)
        return
    model.fit(X, y)
    assert model.result_.gap <= model.tol
    same_optimum(model, train(mm.ChainSVM, X, y))


@pytest.mark.parametrize("kind", [mm.ChainSVM, mm.GraphSVM])
def test_no_precomputed_kernel_of_structures(kind):
    with pytest.raises(OptionError, match=f"kernel='precomputed' is not possible for {kind.__name__}"):
        kind(kernel="precomputed").fit(*data(kind))


def test_precomputed_matrices_that_are_none():
    X, y = data(mm.BinarySVM)
    model = mm.BinarySVM(kernel="precomputed")
    with pytest.raises(DataError, match=r"X has shape \(24, 2\); .* square matrix"):
        model.fit(X, y)
    with pytest.raises(DataError, match=r"X is a sparse matrix; .* it must be an array"):
        model.fit(sp.csr_array(X @ X.T), y)
    with pytest.raises(DataError, match=r"X is not symmetric: \[0, 1\]"):
        model.fit(np.triu(rbf_kernel(X, X)), y)
    with pytest.raises(DataError, match=r"X\[3, 3\] is nan"):
        model.fit(np.diag(np.where(np.arange(24) == 3, np.nan, 1.0)), y)
    model.fit(X @ X.T, y)
    with pytest.raises(DataError, match="X is a sparse matrix"):
        model.predict(sp.csr_array(X @ X.T))


@pytest.mark.parametrize("kind", KINDS)
def test_too_many_rows(kind, monkeypatch):
    X, y = data(kind)
    n = len(X) if kind not in (mm.ChainSVM, mm.GraphSVM) else len(flat(y))
    monkeypatch.setattr(feature_space, "KERNEL_LIMIT", 8 * n * n - 1)
    with pytest.raises(DataError, match=f"kernel matrix of {n} rows takes {8 * n * n} bytes, and the limit is"):
        kind(kernel="rbf", solver="bcfw").fit(X, y)
    monkeypatch.setattr(feature_space, "KERNEL_LIMIT", 8 * n * n)
    kind(kernel="rbf", solver="bcfw", max_passes=1).fit(X, y)


@pytest.mark.parametrize("kind", [mm.BinarySVM, mm.ChainSVM])
def test_a_matrix_that_is_too_large_is_never_held(kind, monkeypatch):
    X, y = data(kind)
    whole = train(kind, X, y, kernel="rbf", tol=1e-3)
    monkeypatch.setattr(feature_space, "KERNEL_LIMIT", 1)
    model = kind(C=3.0, kernel="rbf").fit(X, y)
    assert model.result_.solver == "one-slack"
    assert "too large to hold" in model.result_.options["reason"]
    assert model.result_.gap <= model.tol
    same_optimum(whole, model)
    if kind is mm.BinarySVM:
        with pytest.raises(DataError, match="the limit is 1 "):
            kind(kernel="precomputed").fit(rbf_kernel(X, X), y)


@pytest.mark.parametrize("kind", KINDS)
def test_a_solver_that_needs_no_matrix_gets_none(kind, monkeypatch):
    X, y = data(kind)
    whole = train(kind, X, y, kernel="rbf", tol=1e-4)
    asked = []

    class Spied(OneSlack):
        def solve(self, problem, *rest, **options):
            asked.append(problem.variable_features)
            return super().solve(problem, *rest, **options)

    model = train(kind, X, y, kernel="rbf", solver=Spied(), tol=1e-4)
    assert isinstance(asked[0], KernelBlocks)
    same_optimum(whole, model)
    near(whole, model, X, X, np.sqrt(2.0))
    # Not even where it would be too large.
    monkeypatch.setattr(feature_space, "KERNEL_LIMIT", 1)
    again = train(kind, X, y, kernel="rbf", solver=OneSlack(), tol=1e-4)
    np.testing.assert_array_equal(again.dual_coef_, model.dual_coef_)


@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("intercept", [True, False])
def test_rows_with_and_without_the_matrix(intercept, convert):
    X, _ = data(mm.BinarySVM, convert)
    A = np.random.default_rng(0).normal(size=(24, 3))
    for kernel in ("rbf", "poly", inner_products):
        model = mm.BinarySVM(kernel=kernel, fit_intercept=intercept)
        whole, blocks = (feature_space.training_rows(model, Features(X), blocks=blocks) for blocks in (False, True))
        assert isinstance(blocks, KernelBlocks)
        assert not isinstance(whole, KernelBlocks)
        np.testing.assert_allclose(blocks.times(A), whole.times(A), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(blocks.arrays.squared_norms, whole.arrays.squared_norms)
    # A matrix that is given is there.
    gram = rbf_kernel(X, X)
    rows = feature_space.training_rows(mm.BinarySVM(kernel="precomputed"), Features(gram), blocks=True)
    np.testing.assert_array_equal(rows.arrays.gram, gram + 1.0)


def test_the_limit():
    assert feature_space.KERNEL_LIMIT == 8 * 2**30


@pytest.mark.parametrize("kind", KINDS)
def test_functions_that_are_no_kernels(kind):
    X, y = data(kind)
    n = len(X) if kind not in (mm.ChainSVM, mm.GraphSVM) else len(flat(y))

    def narrow(A, B):
        return (A @ B.T)[:, 1:]

    def missing(A, B):
        return np.full((len(A), len(B)), np.nan)

    def skewed(A, B):
        return A @ B.T + np.arange(len(B))

    def negative(A, B):
        return -A @ B.T

    for kernel, sentence in (
        (narrow, rf"The kernel narrow returned shape \({n}, {n - 1}\)"),
        (missing, r"the matrix of the kernel missing\[0, 0\] is nan"),
        (skewed, r"the kernel skewed is not symmetric: \[0, 1\]"),
        (negative, "of a row with itself is not negative"),
        (lambda A, B: "nonsense", "The kernel <lambda> failed on arrays"),
    ):
        with pytest.raises(DataError, match=sentence):
            kind(kernel=kernel, fit_intercept=False).fit(X, y)


@pytest.mark.parametrize("n_basis", [None, 10])
def test_rows_of_many_zeros_that_were_given_dense_stay_so(n_basis):
    """They are held in compressed rows, which the user's kernel need not know of."""
    X, y = np.zeros((24, 20)), data(mm.BinarySVM)[1]
    X[:, :4] = np.random.default_rng(0).normal(size=(24, 4))

    def dense_only(A, B):
        return np.exp(-((A[:, None] - B[None]) ** 2).sum(axis=2))

    one = mm.BinarySVM(1.0, kernel="rbf", gamma=1.0, n_basis=n_basis, basis="cholesky").fit(X, y)
    other = mm.BinarySVM(1.0, kernel=dense_only, n_basis=n_basis, basis="cholesky").fit(X, y)
    np.testing.assert_allclose(other.decision_function(X), one.decision_function(X), atol=1e-6)
    near_diagonal = np.where(rbf_kernel(X, gamma=9.0) < 0.01, 0.0, rbf_kernel(X, gamma=9.0))
    assert np.count_nonzero(near_diagonal) < 0.2 * near_diagonal.size
    model = mm.BinarySVM(kernel="precomputed", n_basis=n_basis).fit(near_diagonal, y)
    assert model.decision_function(near_diagonal).shape == (24,)


@pytest.mark.parametrize("kind", KINDS)
def test_a_function_that_cannot_take_sparse_rows(kind):
    def dense_only(A, B):
        return np.exp(-((A[:, None] - B[None]) ** 2).sum(axis=2))

    X, y = data(kind, sp.csr_array)
    with pytest.raises(DataError, match="The kernel dense_only failed on CSR matrices of shapes") as raised:
        kind(kernel=dense_only).fit(X, y)
    assert isinstance(raised.value.__cause__, Exception)
    # One that can: the product of CSR matrices is a CSR matrix.
    kind(kernel=inner_products, max_passes=2).fit(X, y).predict(X)


def test_a_function_that_fails_later():
    X, y = data(mm.BinarySVM)
    model = mm.BinarySVM(kernel=inner_products).fit(X, y)
    with pytest.raises(DataError, match="The kernel <lambda> returned shape"):
        model.set_params(kernel=lambda A, B: np.ones(3)).predict(X)


def test_an_overflow_is_a_sentence():
    X, y = data(mm.BinarySVM)
    with pytest.raises(DataError, match=r"the matrix of the kernel poly\[\d+, \d+\] is inf"):
        mm.BinarySVM(kernel="poly", gamma=1e200, degree=3).fit(X, y)


def test_kernels_with_a_negative_eigenvalue():
    X, y = data(mm.BinarySVM)
    K = rbf_kernel(X, X) - 0.9 * np.ones((24, 24))
    np.fill_diagonal(K, 1.0)
    least = np.linalg.eigvalsh(K)[0]
    assert least < -1
    sentence = f"is not positive semi-definite: its most negative eigenvalue is {least:.6g}"
    for n_basis in (None, 3):
        with pytest.raises(DataError, match=f"X {sentence}"):
            mm.BinarySVM(kernel="precomputed", n_basis=n_basis).fit(K, y)

    def hyperbolic(A, B):
        return np.tanh(2.0 * A @ B.T + 1.0) ** 2

    least = np.linalg.eigvalsh(hyperbolic(X, X))[0]
    with pytest.raises(DataError, match=f"the matrix of the kernel hyperbolic is not .* eigenvalue is {least:.6g}"):
        mm.BinarySVM(kernel=hyperbolic).fit(X, y)
    with pytest.raises(DataError, match="the matrix of the kernel hyperbolic of the basis is not positive"):
        mm.BinarySVM(kernel=hyperbolic, n_basis=20, basis="random").fit(X, y)


# ------------------------------------------------------------------------------------------------- low rank


def stacked(kind, X):
    return (
        X if kind not in (mm.ChainSVM, mm.GraphSVM) else np.concatenate([x[0] if kind is mm.GraphSVM else x for x in X])
    )


@pytest.mark.parametrize("basis", ["cholesky", "random"])
@pytest.mark.parametrize("kind", WITH_BASIS)
def test_a_basis_of_all_rows_is_the_kernel_itself(kind, basis):
    X, y = data(kind)
    one = train(kind, X, y, kernel="rbf", gamma=0.5)
    other = train(kind, X, y, kernel="rbf", gamma=0.5, n_basis=1000, basis=basis)
    same_optimum(one, other)
    near(one, other, X, X, np.sqrt(2.0))
    new, _ = data(kind, seed=1)
    near(one, other, new, new, np.sqrt(2.0))
    assert other.basis_residual_ <= 1e-9
    assert len(np.unique(other.basis_)) == len(other.basis_)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("basis", ["cholesky", "random", "k-means"])
@pytest.mark.parametrize("kind", WITH_BASIS)
def test_a_basis_is_the_linear_model_of_the_paper(kind, basis, intercept):
    X, y = data(kind)
    other = train(kind, X, y, kernel="rbf", gamma=0.5, n_basis=7, basis=basis, fit_intercept=intercept)
    vectors = other.basis_vectors_
    assert vectors.shape == (7, 2)
    inverse = np.linalg.inv(np.linalg.cholesky(rbf_kernel(vectors, vectors, gamma=0.5)))

    def features(rows):
        return rbf_kernel(rows, vectors, gamma=0.5) @ inverse.T

    one = train(kind, data(kind, features)[0], y, fit_intercept=intercept)
    same_optimum(one, other)
    near(one, other, data(kind, features)[0], X, np.sqrt(2.0))
    near(one, other, data(kind, features, seed=1)[0], data(kind, seed=1)[0], np.sqrt(2.0))
    rows = stacked(kind, X)
    assert other.basis_residual_ == pytest.approx(1.0 - (features(rows) ** 2).sum() / len(rows))
    assert 0.0 < other.basis_residual_ < 0.5
    if basis == "k-means":
        assert not hasattr(other, "basis_")
    else:
        np.testing.assert_array_equal(vectors, rows[other.basis_])


def test_greedy_rows_are_those_with_the_largest_rest():
    X, y = data(mm.BinarySVM)
    for kernel, gram in (("rbf", rbf_kernel(X, X, gamma=0.5)), ("poly", (0.5 * X @ X.T + 1.0) ** 3)):
        expected: list[int] = []
        for _ in range(6):
            rest = gram.diagonal() - np.einsum(
                "ij,jk,ki->i", gram[:, expected], np.linalg.pinv(gram[np.ix_(expected, expected)]), gram[expected]
            ) if expected else gram.diagonal()  # fmt: skip
            expected.append(int(np.argmax(rest)))
        model = mm.BinarySVM(kernel=kernel, gamma=0.5, n_basis=6, basis="cholesky", max_passes=1).fit(X, y)
        assert model.basis_.tolist() == expected


def test_rows_that_repeat_add_nothing():
    X, y = data(mm.MultiClassSVM)
    twice, both = np.vstack([X, X]), np.concatenate([y, y])
    one = train(mm.MultiClassSVM, X, y, kernel="poly", degree=2)
    for basis in ("cholesky", "random", "k-means"):
        model = train(mm.MultiClassSVM, twice, both, kernel="poly", degree=2, gamma=one.gamma_, n_basis=48, basis=basis)
        # Polynomials of degree 2 in two variables, of which there are 6.
        assert model._basis_map.shape[1] == 6
        assert model.basis_residual_ < 1e-9
        same_optimum(one, model)
    assert len(mm.MultiClassSVM(kernel="poly", degree=2, n_basis=48, basis="cholesky").fit(twice, both).basis_) == 6


def test_a_kernel_that_is_zero_has_a_model():
    X, y = data(mm.BinarySVM)
    for basis in ("cholesky", "random", "k-means"):
        model = mm.BinarySVM(kernel=lambda A, B: np.zeros((len(A), len(B))), n_basis=3, basis=basis).fit(X, y)
        assert np.ptp(model.decision_function(X)) == 0.0


def test_the_seed_draws_the_basis():
    X, y = data(mm.BinarySVM)
    for basis in ("random", "k-means"):
        made = [
            mm.BinarySVM(kernel="rbf", n_basis=5, basis=basis, random_state=seed, max_passes=1).fit(X, y)
            for seed in (0, 0, 1)
        ]
        one, same, other = (model.basis_vectors_ for model in made)
        np.testing.assert_array_equal(one, same)
        assert not np.array_equal(one, other)


def test_centres_are_better_than_rows_at_random():
    X = np.random.default_rng(0).normal(size=(400, 2))
    y = X[:, 0] > 0
    rest = {
        basis: mm.BinarySVM(kernel="rbf", n_basis=20, basis=basis, max_passes=1).fit(X, y).basis_residual_
        for basis in ("random", "k-means")
    }
    assert rest["k-means"] < 0.8 * rest["random"]


@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array, lambda X: X.astype(np.float32)])
def test_centres_for_a_function_are_rows(convert):
    X, y = data(mm.BinarySVM, convert)
    model = mm.BinarySVM(kernel=inner_products, n_basis=5, basis="k-means", max_passes=5).fit(X, y)
    assert 1 < len(model.basis_) <= 5
    assert abs(model.basis_vectors_ - X[model.basis_]).max() == 0.0


@pytest.mark.parametrize("solver", ["bcfw", "soft-bcfw", "frank-wolfe"])
def test_every_solver_of_features_takes_a_basis(solver):
    X, y = data(mm.MultiLabelSVM)
    options = {"kernel": "rbf", "n_basis": 8, "edges": "tree", "tol": 1e-2}
    one = train(mm.MultiLabelSVM, X, y, **options)
    other = train(mm.MultiLabelSVM, X, y, solver=solver, **options)
    same_optimum(one, other)


@pytest.mark.parametrize("basis", ["cholesky", "random", "k-means"])
@pytest.mark.parametrize("kind", WITH_BASIS)
def test_sparse_rows_stay_sparse_with_a_basis(kind, basis, monkeypatch):
    dense, y = data(kind, p=7)
    X, _ = data(kind, sp.csr_array, p=7)
    made_dense = sp.csr_array.toarray

    def guarded(self, *options, **more):
        # Centres are dense, and begin as rows.
        assert self.shape[1] != 7 or self.shape[0] <= 9, "feature rows were made dense"
        return made_dense(self, *options, **more)

    for name in ("toarray", "todense"):
        monkeypatch.setattr(sp.csr_array, name, guarded)
    one, other = (train(kind, given, y, kernel="rbf", n_basis=9, basis=basis, tol=1e-4) for given in (dense, X))
    assert sp.issparse(other.basis_vectors_) == (basis != "k-means")
    if basis != "k-means":
        np.testing.assert_array_equal(one.basis_, other.basis_)
        same_optimum(one, other)
        near(one, other, dense, X, np.sqrt(2.0))


@pytest.mark.parametrize("kind", WITH_BASIS)
def test_what_a_model_with_a_basis_holds(kind):
    X, y = data(kind)
    model = kind(C=0.5, kernel="rbf", gamma=0.3, n_basis=6).fit(X, y)
    blocks = 1 if kind is mm.BinarySVM else 3
    assert model.basis_coef_.shape == (blocks, 6)
    assert model.intercept_.shape == (blocks,)
    with pytest.raises(
        AttributeError, match="no weights of features, coef_; the model is in basis_coef_, basis_vectors_"
    ):
        model.coef_  # noqa: B018
    for name in ("dual_coef_", "support_", "support_vectors_"):
        assert not hasattr(model, name)
    if kind in (mm.BinarySVM, mm.MultiClassSVM):
        scores = rbf_kernel(X, model.basis_vectors_, gamma=0.3) @ model.basis_coef_.T + model.intercept_
        np.testing.assert_allclose(model.decision_function(X).reshape(scores.shape), scores)
    model.set_params(n_basis=None).fit(X, y)
    for name in ("basis_coef_", "basis_", "basis_vectors_", "basis_residual_"):
        assert not hasattr(model, name)
    assert model.dual_coef_.shape == (blocks, len(model.support_))
    model.set_params(kernel="rbf", n_basis=4).fit(X, y)
    assert not hasattr(model, "dual_coef_")
    assert model.set_params(kernel="linear", n_basis=None).fit(X, y).coef_.shape == (blocks, 2)


@pytest.mark.parametrize("basis", ["cholesky", "random"])
@pytest.mark.parametrize("kind", [mm.BinarySVM, mm.MultiClassSVM, mm.MultiLabelSVM])
def test_a_basis_of_a_precomputed_matrix(kind, basis, tmp_path):
    X, y = data(kind)
    new, _ = data(kind, seed=1)
    options = {"C": 1.0, "n_basis": 8, "basis": basis, "max_passes": 20}
    one = kind(kernel="rbf", gamma=0.5, **options).fit(X, y)
    other = kind(kernel="precomputed", **options).fit(rbf_kernel(X, X, gamma=0.5), y)
    np.testing.assert_array_equal(other.basis_, one.basis_)
    assert not hasattr(other, "basis_vectors_")
    between = rbf_kernel(new, X, gamma=0.5)
    np.testing.assert_allclose(other.decision_function(between), one.decision_function(new), atol=1e-9)
    # No other column is looked at.
    rest = np.setdiff1d(np.arange(24), other.basis_)
    changed = between.copy()
    changed[:, rest] = 7.0
    np.testing.assert_array_equal(other.decision_function(changed), other.decision_function(between))
    other.save(tmp_path / "a.mm")
    assert mm.load(tmp_path / "a.mm").decision_function(between).tobytes() == other.decision_function(between).tobytes()
    with pytest.raises(OptionError, match='basis="k-means" needs the rows'):
        kind(kernel="precomputed", n_basis=3, basis="k-means").fit(rbf_kernel(X, X), y)


def test_another_basis_is_another_problem():
    X, y = data(mm.MultiClassSVM)
    options = {"C": 1.0, "kernel": "rbf", "basis": "random", "tol": 1e-4}
    model = mm.MultiClassSVM(n_basis=8, warm_start=True, **options).fit(X, y)
    first = model.result_.n_passes
    assert model.fit(X, y).result_.n_passes < first
    model.set_params(basis="cholesky").fit(X, y)
    fresh = mm.MultiClassSVM(n_basis=8, **(options | {"basis": "cholesky"})).fit(X, y)
    np.testing.assert_array_equal(model.result_.weights, fresh.result_.weights)


@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array, lambda X: X.astype(np.float32)])
@pytest.mark.parametrize("basis", ["cholesky", "k-means"])
@pytest.mark.parametrize("kind", WITH_BASIS)
def test_saving_a_basis(kind, basis, convert, tmp_path):
    X, y = data(kind, convert)
    model = kind(kernel="rbf", n_basis=6, basis=basis, max_passes=10).fit(X, y)
    model.save(tmp_path / "a.mm")
    loaded = mm.load(tmp_path / "a.mm")
    assert model.decision_function(X).tobytes() == loaded.decision_function(X).tobytes()
    assert flat(model.predict(X)).tobytes() == flat(loaded.predict(X)).tobytes()
    for name in ("basis_coef_", "intercept_", "gamma_", "basis_residual_"):
        np.testing.assert_array_equal(getattr(model, name), getattr(loaded, name))
    assert hasattr(loaded, "basis_") == (basis == "cholesky")
    assert type(model.basis_vectors_) is type(loaded.basis_vectors_)
    loaded.save(tmp_path / "b.mm")
    assert (tmp_path / "a.mm").read_bytes() == (tmp_path / "b.mm").read_bytes()
    np.testing.assert_array_equal(clone(loaded).fit(X, y).result_.weights, model.result_.weights)


def test_vectors_with_many_zeros_are_loaded_as_they_were(tmp_path):
    """The rows of the model are emptier than all rows together, of which a third is kept dense."""
    rng = np.random.default_rng(0)
    X = np.zeros((40, 20))
    X[:20] = rng.normal(size=(20, 20))
    X[20:, :4] = rng.normal(size=(20, 4))
    for n_basis in (None, 5):
        model = mm.BinarySVM(kernel="rbf", n_basis=n_basis, basis="random", C=0.1).fit(X, np.arange(40) % 2)
        kind = "support_vectors_" if n_basis is None else "basis_vectors_"
        setattr(model, kind, np.where(np.arange(20) < 4, getattr(model, kind), 0.0))
        model.save(tmp_path / "a.mm")
        assert isinstance(getattr(mm.load(tmp_path / "a.mm"), kind), np.ndarray)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda h, a: a.pop("basis_map"), "lacks what a model needs"),
        (lambda h, a: a.update(basis_map=a["basis_map"][:, :-1]), "its weights have shape"),
        (lambda h, a: a["basis_map"].__setitem__((0, 0), np.nan), "the map of its basis"),
        (lambda h, a: a.update(basis_map=np.ones(6)), "the map of its basis"),
        (lambda h, a: h["kernel"].update(residual=-1.0), "the residual of its basis is -1.0"),
        (lambda h, a: h["kernel"].update(gamma="scale"), "gamma is 'scale'"),
        (lambda h, a: a.update(basis=a["basis"][1:]), "the rows of its basis are not 6 numbers"),
        (lambda h, a: a.update(basis_vectors=a["basis_vectors"][1:]), r"basis vectors have shape \(5, 2\)"),
        (lambda h, a: a["basis_vectors"].__setitem__((0, 0), np.inf), "must be finite"),
        (lambda h, a: h["parameters"].update(n_basis=None), "lacks what a model needs"),
    ],
)
def test_a_file_with_a_basis_that_does_not_fit_together(tmp_path, change, sentence):
    mm.BinarySVM(kernel="rbf", n_basis=6, basis="cholesky").fit(*data(mm.BinarySVM)).save(tmp_path / "a.mm")
    header, arrays = read_model(tmp_path / "a.mm")
    for key in ("format", "format_version", "arrays"):
        header.pop(key)
    arrays = {name: array.copy() for name, array in arrays.items()}
    change(header, arrays)
    write_model(tmp_path / "b.mm", header, arrays)
    with pytest.raises(ModelFileError, match=sentence):
        mm.load(tmp_path / "b.mm")


# ------------------------------------------------------------------------------------------------- builders


def same_problem(one, other):
    for a, b in zip(
        (*one.arrays, *one.variable_features.arrays), (*other.arrays, *other.variable_features.arrays), strict=True
    ):
        np.testing.assert_array_equal(*(list(c) if isinstance(c, Struct) else c for c in (a, b)))


@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array])
def test_builders_take_rows_that_are_stacked(convert):
    X, y = data(mm.ChainSVM, convert)
    lengths = [x.shape[0] for x in X]
    rows = Features(sp.vstack(X, format="csr") if sp.issparse(X[0]) else np.concatenate(X))
    same_problem(chain_problem(rows, y, 3, lengths=lengths), chain_problem(X, y, 3))
    with pytest.raises(DataError, match=f"do not add up to the {rows.shape[0]} rows"):
        chain_problem(rows, y, 3, lengths=lengths[1:])
    X, y = data(mm.GraphSVM, convert)
    nodes = [graph[0] for graph in X]
    rows = Features(sp.vstack(nodes, format="csr") if sp.issparse(nodes[0]) else np.concatenate(nodes))
    same_problem(graph_problem(X, y, 3, node_features=rows), graph_problem(X, y, 3))
    with pytest.raises(DataError, match=f"The graphs have 21 nodes, but X has {rows.shape[0]} rows"):
        graph_problem(X[1:], y[1:], 3, node_features=rows)

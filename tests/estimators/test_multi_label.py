"""MultiLabelSVM: what it accepts, what it learns, and what it refuses in a sentence."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import maxmargin as mm
from maxmargin.errors import DataError, OptionError
from maxmargin.inference import batches


def frame(values, columns=None):
    return pd.DataFrame(values, columns=columns)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 5))
    # The last label is on exactly if both of the first two are: pairs matter.
    Y = (X[:, :3] + 0.1 * rng.normal(size=(40, 3)) > 0).astype(np.int8)
    return X, np.column_stack([Y, Y[:, 0] & Y[:, 1]])


@pytest.fixture(scope="module")
def model(data):
    return mm.MultiLabelSVM(C=10.0, tol=1e-2).fit(*data)


def small(**options):
    return mm.MultiLabelSVM(**({"C": 10.0, "tol": 1e-2} | options))


def score_by_hand(model, x, y):
    value = ((model.coef_ @ x + model.intercept_) * y).sum()
    return value + sum(w * y[i] * y[j] for w, (i, j) in zip(model.edge_coef_, model.edges_, strict=True))


# ------------------------------------------------------------------------------------------------- training


def test_attributes_have_the_promised_shapes(data, model):
    X, Y = data
    assert model.coef_.shape == (4, 5)
    assert model.intercept_.shape == (4,)
    assert model.edges_.shape == (6, 2)
    assert model.edge_coef_.shape == (6,)
    assert model.classes_.tolist() == [0, 1, 2, 3]
    assert model.n_features_in_ == 5
    assert str(model.result_.status) == "CONVERGED"
    assert model.result_.gap <= 1e-2
    assert model.score(X, Y) > 0.9


def test_named_weights_are_views_of_the_flat_vector(model):
    for part in (model.coef_, model.intercept_, model.edge_coef_):
        assert np.shares_memory(part, model.result_.weights)
    assert np.sum(model.coef_**2) + np.sum(model.intercept_**2) + np.sum(model.edge_coef_**2) == pytest.approx(
        np.sum(model.result_.weights**2)
    )


def test_prediction_is_the_best_of_all_labelings(data, model):
    X, _ = data
    predicted, scores, bounds = model.predict(X, return_bound=True)
    labelings = (np.arange(16)[:, None] >> np.arange(4)) & 1
    for x, y, score, bound in zip(X[:10], predicted, scores, bounds, strict=False):
        best = max(score_by_hand(model, x, z) for z in labelings)
        assert score_by_hand(model, x, y) == pytest.approx(best)
        assert score == pytest.approx(best)
        assert bound == score
    assert model.inference_ == "exhaustive (exact): no example has more than 1024 labelings"


@pytest.mark.parametrize("engine", ["dual_decomposition", "graph_cut"])
def test_an_engine_that_is_not_exact_gives_a_bound_that_holds(data, model, engine):
    X, _ = data
    rough = small(inference=engine).fit(*data)
    exact = rough.set_params(inference="exhaustive").predict(X, return_bound=True)[1]
    _, scores, bounds = rough.set_params(inference=engine).predict(X, return_bound=True)
    assert rough.inference_ == f"{engine} (not always exact): as asked"
    assert (scores <= exact + 1e-9).all()
    assert (bounds >= exact - 1e-9).all()


@pytest.mark.parametrize(
    ("edges", "n_edges", "engine"), [("none", 0, "trees"), ("tree", 3, "trees"), ([[2, 0]], 1, "trees")]
)
def test_edges(data, edges, n_edges, engine):
    model = small(edges=edges).fit(*data)
    assert model.edges_.shape == (n_edges, 2)
    assert model.edge_coef_.shape == (n_edges,)
    assert model.inference_ == f"{engine} (exact): no graph has a cycle"
    assert model.result_.certificate == "exact"
    assert model.predict(data[0]).shape == (40, 4)


def test_without_intercept(data):
    X, Y = data
    model = small(fit_intercept=False).fit(X, Y)
    assert model.intercept_.tolist() == [0, 0, 0, 0]
    assert len(model.result_.weights) == 4 * 5 + 6
    assert model.predict(X).shape == Y.shape


def test_a_constant_feature_is_the_intercept(data):
    X, Y = data
    with_it = small().fit(X, Y)
    by_hand = small(fit_intercept=False).fit(np.column_stack([X, np.ones(len(X))]), Y)
    np.testing.assert_array_equal(with_it.result_.weights, by_hand.result_.weights)
    np.testing.assert_array_equal(with_it.intercept_, by_hand.coef_[:, -1])


@pytest.mark.parametrize("convert", [sp.csr_array, sp.csr_matrix, sp.coo_array, lambda X: X.tolist(), frame])
def test_kinds_of_X_agree(data, convert):
    X, Y = data
    one, other = small(tol=1e-5).fit(X, Y), small(tol=1e-5).fit(convert(X), Y)
    np.testing.assert_array_equal(other.result_.weights, one.result_.weights)
    np.testing.assert_array_equal(other.predict(convert(X)), one.predict(X))


def test_sparse_features_are_not_made_dense():
    X = sp.csr_array((np.ones(10), (np.arange(10), 499_999 * np.arange(10))), (20, 5_000_000))
    Y = np.eye(20, 2, dtype=int)
    model = small(max_passes=1, edges="none").fit(X, Y)
    assert model.predict(X).shape == (20, 2)


@pytest.mark.parametrize(
    "convert",
    [
        lambda Y: Y.astype(bool),
        lambda Y: Y.astype(float),
        lambda Y: Y.tolist(),
        sp.csr_array,
        frame,
    ],
)
def test_kinds_of_Y_agree(data, model, convert):
    X, Y = data
    other = small().fit(X, convert(Y))
    np.testing.assert_array_equal(other.result_.weights, model.result_.weights)
    predicted = other.predict(X)
    assert isinstance(predicted, np.ndarray)
    assert other.score(X, convert(Y)) == model.score(X, Y)


def test_lists_of_labels(data, model):
    X, Y = data
    names = np.array(["a", "b", "c", "d"])
    lists = [set(names[row == 1]) for row in Y]
    other = small().fit(X, lists)
    assert other.classes_.tolist() == ["a", "b", "c", "d"]
    predicted = other.predict(X)
    assert predicted == [names[row == 1].tolist() for row in model.predict(X)]
    assert other.score(X, lists) == model.score(X, Y)
    assert other.score(X, Y) == model.score(X, Y)


def test_lists_of_numbers_and_of_things_that_do_not_compare(data):
    X, _ = data
    numbered = small(max_passes=2).fit(X[:3], [[30, 4], [4], []])
    assert numbered.classes_.tolist() == [4, 30]
    mixed = small(max_passes=2).fit(X[:3], [["x", 1], (1,), [("t", 2)]])
    assert mixed.classes_.tolist() == ["x", 1, ("t", 2)]
    assert len(mixed.predict(X[:3])) == 3


def test_label_names_of_a_data_frame(data):
    X, Y = data
    named = frame(Y, ["w", "x", "y", "z"])
    model = small(max_passes=2).fit(X, named)
    assert model.classes_.tolist() == ["w", "x", "y", "z"]
    model.score(X, named)
    with pytest.raises(DataError, match="another order"):
        model.score(X, named[["x", "w", "y", "z"]])


def test_sample_weight_of_zero_is_absence(data):
    X, Y = data
    doubled = small(tol=1e-4).fit(np.vstack([X, X]), np.vstack([Y, 1 - Y]), sample_weight=np.repeat([1.0, 0.0], 40))
    plain = small(tol=1e-4).fit(X, Y)
    assert doubled.result_.primal == pytest.approx(plain.result_.primal, abs=3e-4)


def test_loss_by_label(data):
    X, Y = data
    model = small(loss=np.array([1.0, 0.0, 0.0, 0.0]), edges="none").fit(X, Y)
    assert np.abs(model.coef_[0]).sum() > 0
    np.testing.assert_allclose(model.coef_[2], 0, atol=1e-9)


def test_the_same_seed_gives_the_same_bits(data, model):
    np.testing.assert_array_equal(small().fit(*data).result_.weights, model.result_.weights)
    np.testing.assert_array_equal(small(n_jobs=2).fit(*data).result_.weights, model.result_.weights)


def test_warm_start_goes_on(data):
    X, Y = data
    cold = small(tol=1e-4).fit(X, Y)
    warm = small(tol=1e-4, warm_start=True).fit(X, Y)
    warm.fit(X, Y)
    assert warm.result_.gap <= 1e-4
    assert warm.result_.n_passes < cold.result_.n_passes
    warm.set_params(C=11.0).fit(X, Y)
    assert warm.result_.gap <= 1e-4
    # Data of another shape starts afresh.
    assert warm.fit(X[:20], Y[:20]).result_.gap <= 1e-4


def test_checkpoint_is_written(data, tmp_path):
    path = tmp_path / "state.mm"
    first = small(checkpoint=path).fit(*data)
    assert path.exists()
    assert small(checkpoint=path, tol=1e-3).fit(*data).result_.n_passes > first.result_.n_passes
    with pytest.raises(OptionError, match="belongs to another"):
        small(checkpoint=path, C=3.0).fit(*data)


@pytest.mark.parametrize("n_jobs", [None, 2, -1])
def test_prediction_in_pieces_gives_the_same(data, model, n_jobs, monkeypatch):
    X, _ = data
    whole = model.predict(X, return_bound=True)
    monkeypatch.setattr(batches, "_SHARD_BYTES", 1500)
    other = small(n_jobs=n_jobs).fit(*data)
    for one, two in zip(whole, other.predict(X, return_bound=True), strict=True):
        np.testing.assert_array_equal(one, two)


def test_nothing_is_printed(data, capfd):
    small().fit(*data)
    assert capfd.readouterr() == ("", "")


def test_verbose_writes_to_the_standard_error(data, capfd):
    small(verbose=1).fit(*data)
    out, err = capfd.readouterr()
    assert out == ""
    assert "CONVERGED" in err
    assert "\x1b" not in err


# ------------------------------------------------------------------------------------------------- odd but fine


def test_one_example():
    model = small().fit([[1.0, 2.0]], [[1, 0]])
    assert model.predict([[1.0, 2.0]]).tolist() == [[1, 0]]


def test_one_label(data):
    X, Y = data
    model = small().fit(X, Y[:, :1])
    assert model.edges_.shape == (0, 2)
    assert model.score(X, Y[:, :1]) > 0.9


@pytest.mark.parametrize("value", [0, 1])
@pytest.mark.parametrize("edges", ["full", "tree", "none"])
def test_all_labels_equal(data, value, edges):
    X, Y = data
    model = small(edges=edges).fit(X, np.full_like(Y, value))
    assert (model.predict(X) == value).all()


def test_a_label_never_on_and_a_label_always_on(data):
    X, Y = data
    Y = Y.copy()
    Y[:, 1], Y[:, 2] = 0, 1
    predicted = small().fit(X, Y).predict(X)
    assert (predicted[:, 1] == 0).all()
    assert (predicted[:, 2] == 1).all()


# ------------------------------------------------------------------------------------------------- refused


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"C": -1.0},
            r"C=-1\.0 is not possible; it must be \"auto\", a finite number above 0 or a list of such numbers\.",
        ),
        ({"C": 0}, "C=0 is not possible"),
        ({"C": np.nan}, "C=nan is not possible"),
        ({"C": np.inf}, "C=inf is not possible"),
        ({"C": "1"}, "C='1' is not possible"),
        ({"C": True}, "C=True is not possible"),
        ({"tol": -1e-3}, "tol=-0.001 is not possible"),
        ({"tol": None}, "tol=None is not possible"),
        ({"max_passes": 0}, "max_passes=0 is not possible"),
        ({"max_passes": 1.5}, "max_passes=1.5 is not possible"),
        ({"max_seconds": 0}, "max_seconds=0 is not possible"),
        ({"fit_intercept": "yes"}, "fit_intercept='yes' is not possible"),
        ({"warm_start": 2}, "warm_start=2 is not possible"),
        ({"n_jobs": 0}, "n_jobs=0 is not possible"),
        ({"n_jobs": "all"}, "n_jobs='all' is not possible"),
        ({"verbose": -1}, "verbose=-1 is not possible"),
        ({"random_state": -1}, "random_state=-1 is not possible"),
        ({"random_state": "x"}, "random_state='x' is not possible"),
        ({"solver": "sgd"}, r"solver='sgd' is not known; the known names are \"auto\", .*\"soft-bcfw\""),
        ({"solver": 3}, "solver=3 is neither a name nor an object"),
        ({"inference": "magic"}, r"inference='magic' is not known; .*\"exhaustive\", .*\"trees\""),
        ({"inference": 3}, "inference=3 is neither"),
        ({"loss": "square"}, r"loss='square' is not known; use \"hamming\", \"fraction\", \"count\""),
        ({"edges": "ring"}, "edges='ring' is not known"),
        ({"C_path": [1.0, -1.0]}, r"C_path=\[1.0, -1.0\] is not possible"),
        ({"C_path": "all"}, "C_path='all' is not possible"),
        ({"C_path": [1.0], "checkpoint": "x.mm"}, "give either C_path or checkpoint"),
        ({"checkpoint": 3}, "checkpoint=3 is not possible"),
        ({"checkpoint": "/nowhere/at/all.mm"}, "the directory /nowhere/at does not exist"),
    ],
)
def test_a_bad_parameter_is_a_sentence(data, options, sentence):
    with pytest.raises(OptionError, match=sentence):
        mm.MultiLabelSVM(**options).fit(*data)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda X, Y: (np.where(X > 2, np.nan, X), Y), r"X\[\d+, \d\] is nan; features must be finite"),
        (lambda X, Y: (np.where(X > 2, np.inf, X), Y), r"X\[\d+, \d\] is inf; features must be finite"),
        (lambda X, Y: (sp.csr_array(np.where(X > 2, np.nan, X)), Y), r"X\[\d+, \d\] is nan"),
        (lambda X, Y: (X[:0], Y[:0]), "X has no rows: the data is empty"),
        (lambda X, Y: (X, Y[:0]), "Y has shape .*: the data is empty"),
        (lambda X, Y: (X, []), "Y has 1 dimension"),
        (lambda X, Y: (X, Y[:, :0]), "Y has shape .*: the data is empty"),
        (lambda X, Y: (X[:, :0], Y), r"0 feature\(s\)"),
        (lambda X, Y: (X[0], Y), "X has 1 dimension"),
        (lambda X, Y: (X[:-1], Y), "X has 39 rows, but Y has 40"),
        (lambda X, Y: (X, [["a"]] * 3), "X has 40 rows, but Y has 3"),
        (lambda X, Y: (X, Y[:, 0]), "Y has 1 dimension"),
        (lambda X, Y: (X, Y + 1), r"Y\[\d+, \d\] is 2; expected 0 or 1"),
        (lambda X, Y: (X, np.where(Y == 1, -1, 0)), r"Y\[\d+, \d\] is -1; .* A label that is not known is NaN or None"),
        (lambda X, Y: (X, np.full(Y.shape, np.nan)), "No label of any example in Y is known"),
        (lambda X, Y: (X, None), "target y is None"),
        (lambda X, Y: (X, [set()] * 40), "No example in Y has a label"),
        (lambda X, Y: (X, [["a"], "b"] * 20), r"Y\[1\] is 'b'; expected a collection"),
        (lambda X, Y: (X, [[["a"]]] * 40), r"not hashable"),
        (lambda X, Y: (np.full(X.shape, "x"), Y), "values that are not real numbers"),
        (lambda X, Y: (X + 1j, Y), "Complex data not supported"),
        (lambda X, Y: (X, frame(Y, list("aabc"))), "Two columns of Y have the same name"),
    ],
)
def test_bad_data_is_a_sentence(data, change, sentence):
    X, Y = change(*data)
    with pytest.raises(DataError, match=sentence):
        small().fit(X, Y)


@pytest.mark.parametrize(
    ("edges", "sentence"),
    [([[0, 4]], "Edge 0 joins labels 0 and 4, but there are labels 0 to 3 only"), ([[1, 1]], "with itself")],
)
def test_an_edge_to_a_missing_label(data, edges, sentence):
    with pytest.raises(DataError, match=sentence):
        small(edges=edges).fit(*data)


def test_wrong_sample_weights(data):
    with pytest.raises(DataError, match="sample_weight has shape"):
        small().fit(*data, sample_weight=np.ones(3))
    with pytest.raises(DataError, match="not negative"):
        small().fit(*data, sample_weight=-np.ones(40))


def test_prediction_refuses_other_features(data, model):
    with pytest.raises(DataError, match="X has 4 features, but MultiLabelSVM is expecting 5 features"):
        model.predict(data[0][:, :4])
    with pytest.raises(DataError, match="is nan"):
        model.predict(np.full((1, 5), np.nan))


def test_score_refuses_what_it_cannot_compare(data, model):
    X, Y = data
    with pytest.raises(DataError, match="Y has 3 columns; the model has 4 labels"):
        model.score(X, Y[:, :3])
    with pytest.raises(DataError, match="X has 40 rows, but Y has 39"):
        model.score(X, Y[:-1])
    lists = small(max_passes=2).fit(X[:2], [["a"], ["b"]])
    # A label that was not seen in training is one more that is wrong.
    seen = lists.score(X[:2], [["a"], []])
    assert lists.score(X[:2], [["a"], ["c"]]) == pytest.approx((4 * seen + 1) / 6)


def test_an_engine_that_cannot_says_so(data):
    with pytest.raises(OptionError, match=r'"trees" cannot be the oracle here.* has a cycle'):
        small(inference="trees").fit(*data)
    with pytest.raises(DataError, match="cycle"):
        small(solver="soft-bcfw", inference="trees").fit(*data).predict(data[0])


def test_a_path_of_c(data):
    model = small(C=1.0, C_path=[10.0, 0.1], tol=1e-3).fit(*data)
    assert list(model.path_) == [0.1, 1.0, 10.0]
    assert model.result_ is model.path_[1.0]
    for C, result in model.path_.items():
        assert result.options["C"] == C
        assert result.gap <= 1e-3
        alone = small(C=C, tol=1e-3).fit(*data).result_
        assert result.dual <= alone.primal
        assert alone.dual <= result.primal


def test_the_choice_of_a_solver_is_reported(data):
    assert small().fit(*data).result_.options["reason"].startswith("binary variables in pairs")
    assert small(edges="none").fit(*data).result_.options["reason"].startswith("without factors")
    assert small(edges="tree").fit(*data).result_.options["reason"].startswith("no graph has a cycle")
    assert small(solver="soft-bcfw").fit(*data).result_.options["reason"] == "as asked"

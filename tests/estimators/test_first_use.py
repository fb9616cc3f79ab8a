"""What people meet first: empty inputs, names, probabilities, results as text, pickles, errors that name a column."""

import pickle
import typing

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import log_loss, roc_auc_score

import maxmargin as mm
from maxmargin.errors import DataError, OptionError
from maxmargin.estimators import names
from maxmargin.inference import ENGINES
from maxmargin.solvers import BCFW, SOLVERS, SoftBCFW
from maxmargin.solvers.core.result import Status


def blobs(n=120, noise=1.0):
    rng = np.random.default_rng(0)
    y = np.arange(n) % 3
    return rng.normal(size=(n, 4)) * noise + 2.0 * np.eye(4)[y], y


def label_sets(n=150):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n, 5))
    Y = (X[:, :3] + 0.7 * rng.normal(size=(n, 3)) > 0.5).astype(int)
    Y[:, 2] |= Y[:, 1]
    return X, Y


def chains(n=60):
    rng = np.random.default_rng(2)
    y = [rng.integers(0, 3, rng.integers(2, 7)) for _ in range(n)]
    return [rng.normal(size=(len(row), 3)) + 1.5 * np.eye(3)[row] for row in y], y


# ------------------------------------------------------------------------------------------------- nothing to predict


def test_nothing_to_predict():
    X, y = blobs()
    for model in (mm.MultiClassSVM(C=1.0), mm.BinarySVM(C=1.0)):
        fitted = model.fit(X, y if isinstance(model, mm.MultiClassSVM) else y > 0)
        for empty in ([], np.empty((0, 4)), pd.DataFrame(np.empty((0, 4)))):
            assert fitted.predict(empty).shape == (0,)
            assert fitted.predict_proba(empty).shape == (0, len(fitted.classes_))
            assert len(fitted.decision_function(empty)) == 0
    X, Y = label_sets()
    model = mm.MultiLabelSVM(C=1.0).fit(X, Y)
    assert model.predict([]).shape == model.decision_function([]).shape == model.predict_proba([]).shape == (0, 3)
    assert [len(one) for one in model.predict([], return_bound=True)] == [0, 0, 0]
    lists = mm.MultiLabelSVM(C=1.0).fit(X, [np.flatnonzero(row).tolist() for row in Y])
    assert lists.predict([]) == []
    X, y = chains()
    model = mm.ChainSVM(C=1.0).fit(X, y)
    assert model.predict([]) == model.predict_marginals([]) == []
    assert model.predict_top_k([], 2) == ([], [])
    graph = mm.GraphSVM(C=1.0).fit([(x, np.array([[0, 1]]), None) for x in X], y)
    assert graph.predict([]) == []
    parser = mm.ParserSVM(C=1.0).fit(["(S (A a) (B b))", "(S (A a) (B c))"])
    assert parser.predict([]) == []
    with pytest.raises(DataError, match="empty"):
        mm.ChainSVM(C=1.0).fit([], [])


# ------------------------------------------------------------------------------------------------- scores and probabilities


def test_scores_of_labels():
    X, Y = label_sets()
    model = mm.MultiLabelSVM().fit(X, Y)
    scores = model.decision_function(X)
    assert scores.shape == Y.shape
    np.testing.assert_array_equal(scores > 0, model.predict(X) == 1)
    assert roc_auc_score(Y, scores) > 0.85
    # From the definition: what the label adds to the score of the labels that were predicted.
    on = model.predict(X)
    for i in range(3):
        expected = X @ model.coef_[i] + model.intercept_[i]
        for (a, b), weight in zip(model.edges_, model.edge_coef_, strict=True):
            if i in (a, b):
                expected = expected + weight * on[:, b if i == a else a]
        np.testing.assert_allclose(scores[:, i], expected, atol=1e-12)


@pytest.mark.parametrize("C", ["auto", 10.0])
def test_probabilities_are_fitted(C):
    X, y = blobs(600, noise=1.5)
    half = np.arange(600) % 2 == 0
    model = mm.MultiClassSVM(C=C).fit(X[half], y[half])
    found = model.predict_proba(X[~half])
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    np.testing.assert_array_equal(found.argmax(axis=1), model.predict(X[~half]))
    # Neither half nor twice the temperature is much better on new examples.
    losses = {}
    for factor in (0.5, 1.0, 2.0):
        scores = model.decision_function(X[~half]) / (factor * model.temperature_)
        p = np.exp(scores - scores.max(axis=1, keepdims=True))
        losses[factor] = log_loss(y[~half], p / p.sum(axis=1, keepdims=True))
    assert losses[1.0] < min(losses.values()) + 0.05
    assert log_loss(y[~half], found) == pytest.approx(losses[1.0])


def test_probabilities_of_tags_labels_and_after_a_file(tmp_path):
    X, y = chains()
    model = mm.ChainSVM().fit(X, y)
    found = model.predict_proba(X)
    assert [row.shape for row in found] == [(len(row), 3) for row in y]
    truth = np.concatenate(y)
    flat = np.vstack(found)
    np.testing.assert_allclose(flat.sum(axis=1), 1.0)
    # They say something: far from the 1/3 of a temperature that is too high.
    assert log_loss(truth, flat) < 0.7
    assert flat.max(axis=1).mean() > 0.6
    model.save(tmp_path / "a.mm")
    np.testing.assert_array_equal(np.vstack(mm.load(tmp_path / "a.mm").predict_proba(X)), flat)
    X, Y = label_sets()
    labels = mm.MultiLabelSVM(objective="log", edges="tree").fit(X, Y)
    assert labels.temperature_ == 1.0
    assert labels.predict_proba(X).shape == Y.shape
    assert roc_auc_score(Y, labels.predict_proba(X)) > 0.85


# ------------------------------------------------------------------------------------------------- labels and weights


def test_unseen_classes_count_as_wrong():
    X, y = blobs()
    model = mm.MultiClassSVM(C=10.0).fit(X, y)
    other = y.copy()
    other[:30] = 9
    right = model.predict(X) == y
    assert model.score(X, other) == right[30:].sum() / 120


def test_edges_by_name_and_label_sets_in_a_series():
    X, Y = label_sets()
    frame = pd.DataFrame(Y, columns=["cat", "dog", "cow"])
    model = mm.MultiLabelSVM(C=10.0, edges=[("dog", "cow")]).fit(X, frame)
    assert model.edges_.tolist() == [[1, 2]]
    series = pd.Series([[name for name, on in zip(frame.columns, row, strict=True) if on] for row in Y])
    same = mm.MultiLabelSVM(C=10.0, edges=[["cow", "dog"]]).fit(X, series)
    assert same.classes_.tolist() == ["cat", "cow", "dog"]
    assert same.edges_.tolist() == [[1, 2]]
    assert same.score(X, series) == pytest.approx(model.score(X, frame), abs=0.02)
    with pytest.raises(OptionError, match="edges names the label 'bird', which is not in Y; the labels are"):
        mm.MultiLabelSVM(edges=[("dog", "bird")]).fit(X, frame)


def test_class_weights_of_labels():
    """The certificate is about exactly these costs."""
    X, Y = label_sets(60)
    for weight, costs in (
        ({0: 3.0}, np.tile([3.0, 1.0, 1.0], (60, 1))),
        ("balanced", np.where(Y == 1, 30 / Y.sum(axis=0), 30 / (60 - Y.sum(axis=0)))),
    ):
        model = mm.MultiLabelSVM(C=10.0, edges="none", class_weight=weight, scale=False).fit(X, Y)
        scores = X @ model.coef_.T + model.intercept_
        hinge = np.maximum(costs / 3 - np.where(Y == 1, 1, -1) * scores, 0.0).sum(axis=1).mean()
        value = (np.sum(model.coef_**2) + np.sum(model.intercept_**2)) / 20.0 + hinge
        assert value == pytest.approx(model.result_.primal, abs=1e-9)
    with pytest.raises(OptionError, match="class_weight"):
        mm.MultiLabelSVM(class_weight="heavy").fit(X, Y)


# ------------------------------------------------------------------------------------------------- text


def test_results_and_solvers_as_text():
    X, y = blobs()
    result = mm.MultiClassSVM().fit(X, y).result_
    assert repr(result).startswith("Result(soft-bcfw, CONVERGED: exact gap ")
    assert len(repr(result)) < 250
    html = result._repr_html_()
    assert html.startswith("<table>")
    assert "held-out" in html
    result.message = "<b>"
    assert "<b>" not in result._repr_html_()
    assert repr(BCFW()) == "BCFW()"
    assert repr(SoftBCFW(rho=2.0)) == "SoftBCFW(rho=2.0)"
    assert repr(mm.MultiClassSVM(solver=BCFW(cache=3))) == "MultiClassSVM(solver=BCFW(cache=3))"
    tree = mm.ParserSVM(C=1.0).fit(["(S (A a) (B b))"]).predict([["a", "b"]])[0]
    assert tree._repr_svg_().startswith("<svg")


def test_pickles_have_no_state():
    X, y = chains(200)
    model = mm.ChainSVM(C=10.0).fit(X, y)
    text = pickle.dumps(model)
    again = pickle.loads(text)
    assert again.result_.state is None
    assert len(text) < 20_000
    assert len(pickle.dumps(model.result_.state)) > 5 * len(text)
    for one, other in zip(again.predict(X), model.predict(X), strict=True):
        np.testing.assert_array_equal(one, other)
    # The original goes on from where it was, the copy begins afresh.
    model.set_params(warm_start=True).fit(X, y)
    again.set_params(warm_start=True).fit(X, y)
    assert 2 * model.result_.n_oracle_calls < again.result_.n_oracle_calls


def test_errors_name_the_column():
    X, y = blobs(30)
    frame = pd.DataFrame(X, columns=["age", "height", "weight", "pulse"], index=[f"p{k}" for k in range(30)])
    frame.loc["p7", "height"] = np.nan
    with pytest.raises(DataError, match="X has nan in column 'height', row 'p7'"):
        mm.MultiClassSVM().fit(frame, y)
    frame["height"] = ["tall"] * 30
    with pytest.raises(DataError, match="not real numbers: column 'height' is 'tall' in row 'p0'"):
        mm.MultiClassSVM().fit(frame, y)


def test_public_names():
    assert "TextFeatures" in dir(mm)
    assert "importlib" not in dir(mm)
    assert all(not name.startswith("_") or name == "__version__" for name in dir(mm))
    assert mm.TextFeatures().window == 2


def test_types_have_all_names():
    assert set(typing.get_args(names.SolverName)) == {"auto", *SOLVERS}
    assert set(typing.get_args(names.EngineName)) == {"auto", *ENGINES}


def test_words_need_no_features():
    words = [["the", "cat", "sat"], ["a", "dog", "ran"]] * 15
    tags = [["D", "N", "V"]] * 30
    model = mm.ChainSVM(C=10.0).fit(words, tags)
    assert model.predict([["the", "dog", "sat"]])[0].tolist() == ["D", "N", "V"]
    assert "word[0]=cat" in model.feature_names_in_.tolist()


# ------------------------------------------------------------------------------------------------- training


@pytest.mark.parametrize("solver", ["bcfw", "auto", "subgradient", "one-slack"])
def test_inference_is_for_training_too(solver):
    X, Y = label_sets(40)
    model = mm.MultiLabelSVM(C=1.0, solver=solver, inference="exhaustive", max_passes=3).fit(X, Y)
    assert model.result_.options["inference"] == "exhaustive"
    assert model.inference_.startswith("exhaustive")
    assert model.result_.certificate == ("exact" if solver != "subgradient" else model.result_.certificate)
    # A solver object says it for itself.
    own = mm.MultiLabelSVM(C=1.0, solver=BCFW("graph_cut"), inference="exhaustive", max_passes=3).fit(X, Y)
    assert own.result_.options["inference"] == "graph_cut"
    assert own.inference_.startswith("exhaustive")


def test_inference_changes_nothing_where_no_engine_is_asked():
    X, Y = label_sets(40)
    model = mm.MultiLabelSVM(C=1.0, solver="soft-bcfw", inference="exhaustive").fit(X, Y)
    assert model.result_.solver == "soft-bcfw"
    none = mm.MultiLabelSVM(C=1.0, edges="none", inference="exhaustive").fit(X, Y)
    assert none.result_.solver == "soft-bcfw"


def test_weights_are_never_worse_than_zero():
    """Columns of very different sizes, as given: a few passes end above the objective of w = 0, which is 1."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(129, 19)) * 10.0 ** rng.uniform(-2, 4, 19)
    Y = rng.integers(0, 2, (129, 7))
    model = mm.MultiLabelSVM(C=1000.0, scale=False, max_passes=1).fit(X, Y)
    assert model.result_.primal <= 1.0
    assert not model.coef_.any()
    assert "better than zero" in model.result_.message
    assert model.result_.status is Status.MAX_PASSES
    scaled = mm.MultiLabelSVM(C=10.0, max_passes=300).fit(X, Y)
    assert scaled.result_.gap < 0.01

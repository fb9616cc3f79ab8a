"""Structured estimators in scikit-learn's tools: metadata, folds of sequences and graphs, data frames, the HTML picture."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_val_score, cross_validate

import maxmargin as mm
from maxmargin.errors import DataError


def tagged(n=24):
    rng = np.random.default_rng(0)
    tags = [rng.choice(["A", "B", "C"], k) for k in rng.integers(1, 5, n)]
    return [np.column_stack([y == "A", y == "B", rng.normal(size=len(y))]) for y in tags], tags


def graphs(n=18):
    rng = np.random.default_rng(1)
    labels = [rng.integers(0, 2, k) for k in rng.integers(2, 5, n)]
    chains = [(np.column_stack([y, rng.normal(size=len(y))]), [[i, i + 1] for i in range(len(y) - 1)]) for y in labels]
    return chains, labels


def sets(n=24):
    rng = np.random.default_rng(2)
    Y = rng.integers(0, 2, (n, 3))
    names = np.array(["p", "q", "r"])
    return Y + 0.3 * rng.normal(size=Y.shape), [names[row == 1].tolist() for row in Y]


def rows(n=40):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n, 3))
    return X, np.where(X[:, 0] > 0, "up", "down")


CASES = {
    "sequences": (mm.ChainSVM(C=10.0), tagged),
    "graphs": (mm.GraphSVM(C=10.0), graphs),
    "collections of labels": (mm.MultiLabelSVM(C=10.0), sets),
    "classes": (mm.MultiClassSVM(C=10.0), rows),
    "two classes": (mm.BinarySVM(C=10.0), rows),
}


def part(values, chosen):
    return [values[k] for k in chosen] if isinstance(values, list) else values[chosen]


@pytest.mark.parametrize("name", CASES)
def test_predictions_of_folds(name):
    """Each labeling of cross_val_predict is that of a model trained on the other folds."""
    model, data = CASES[name]
    X, y = data()
    found = cross_val_predict(model, X, y, cv=KFold(3))
    assert len(found) == len(y)
    for train, test in KFold(3).split(X):
        expected = clone(model).fit(part(X, train), part(y, train)).predict(part(X, test))
        for k, labels in zip(test, expected, strict=True):
            assert np.array_equal(found[k], labels)
    assert len(cross_val_score(model, X, y, cv=3)) == 3


@pytest.mark.parametrize("name", CASES)
def test_weights_of_examples_are_routed(name):
    """With set_fit_request, GridSearchCV hands each fold its weights."""
    model, data = CASES[name]
    X, y = data()
    weight = np.random.default_rng(4).uniform(0.1, 5.0, len(y))
    with sklearn.config_context(enable_metadata_routing=True):
        asked = clone(model).set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        search = GridSearchCV(asked, {"C": [0.3, 30.0]}, cv=KFold(2)).fit(X, y, sample_weight=weight)
        for k, C in enumerate([0.3, 30.0]):
            for fold, (train, test) in enumerate(KFold(2).split(X)):
                one = clone(model).set_params(C=C).fit(part(X, train), part(y, train), weight[train])
                expected = one.score(part(X, test), part(y, test), weight[test])
                assert search.cv_results_[f"split{fold}_test_score"][k] == pytest.approx(expected)
        best = clone(model).set_params(**search.best_params_).fit(X, y, weight)
        np.testing.assert_array_equal(search.best_estimator_.result_.weights, best.result_.weights)
        with pytest.raises(UnsetMetadataPassedError, match="sample_weight"):
            cross_validate(clone(model), X, y, params={"sample_weight": weight}, cv=2)


@pytest.mark.parametrize("name", CASES)
def test_the_html_says_whether_a_model_is_fitted(name):
    model, data = CASES[name]
    model = clone(model)
    assert "Not fitted" in model._repr_html_()
    shown = model.fit(*data())._repr_html_()
    assert "Not fitted" not in shown
    assert "Fitted" in shown
    assert type(model).__name__ in shown


@pytest.mark.parametrize("name", ["sequences", "graphs"])
def test_data_frames_of_sequences_and_graphs(name, tmp_path):
    model, data = CASES[name]
    X, y = data()

    def frames(columns):
        made = [pd.DataFrame(x if name == "sequences" else x[0], columns=columns) for x in X]
        return made if name == "sequences" else [(one, x[1]) for one, x in zip(made, X, strict=True)]

    columns = ["a", "b", "c"] if name == "sequences" else ["a", "b"]
    plain, named = clone(model).fit(X, y), clone(model).fit(frames(columns), y)
    np.testing.assert_array_equal(named.coef_, plain.coef_)
    assert named.feature_names_in_.tolist() == columns
    assert not hasattr(plain, "feature_names_in_")
    assert len(cross_val_score(model, frames(columns), y, cv=3)) == 3
    with pytest.raises(DataError, match=r"Feature names seen at fit time, yet now missing:\n- a\n"):
        named.predict(frames(["z", *columns[1:]]))
    mixed = [*frames(columns)[:1], *frames(columns[::-1])[1:]]
    with pytest.raises(DataError, match="named differently"):
        named.predict(mixed)
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        named.predict(X)
    named.save(tmp_path / "model.mm")
    again = mm.load(tmp_path / "model.mm")
    assert again.feature_names_in_.tolist() == columns
    assert [one.tolist() for one in again.predict(frames(columns))] == [one.tolist() for one in plain.predict(X)]
    # A fit without names forgets them.
    assert not hasattr(named.fit(X, y), "feature_names_in_")


def test_labelings_are_a_list_and_an_array():
    X, y = tagged()
    model = mm.ChainSVM(C=1.0).fit(X, y)
    by_length = sorted(X, key=len)
    found = model.predict([by_length[0], by_length[-1]])
    assert isinstance(found, list)
    assert np.asarray(found).shape == (2,)
    assert np.concatenate(found).shape == (len(by_length[0]) + len(by_length[-1]),)
    # Of one length they are a table, as those of any other list.
    same = [x for x in X if len(x) == len(by_length[-1])]
    assert np.asarray(model.predict(same)).shape == (len(same), len(by_length[-1]))
    assert np.array(model.predict(same), object).dtype == object

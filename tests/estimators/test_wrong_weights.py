"""Weights of examples and classes, columns and constraints that cannot be: a sentence each, which says where."""

import numpy as np
import pandas as pd
import pytest

import maxmargin as mm
from maxmargin.errors import DataError, OptionError

rng = np.random.default_rng(0)
X = rng.normal(size=(12, 2))
y = (X[:, 0] > 0).astype(int)
FRAME = pd.DataFrame(X, columns=["a", "b"])
RING = [[0, 1], [1, 2], [2, 0]]
PARTS = [X[k : k + 3] for k in range(0, 12, 3)]
TAGS = [y[k : k + 3] for k in range(0, 12, 3)]
#: Estimators with something to fit, and how many examples that has.
FITS = {
    "two classes": (mm.BinarySVM(C=1.0, tol=0.1), X, y, 12),
    "f1": (mm.BinarySVM(C=100.0, tol=0.1, loss="f1"), X, y, 12),
    "classes": (mm.MultiClassSVM(C=1.0, tol=0.1), X, y, 12),
    "labels": (mm.MultiLabelSVM(C=1.0, tol=0.1), X, np.column_stack([y, 1 - y]), 12),
    "chains": (mm.ChainSVM(C=1.0, tol=0.1), PARTS, TAGS, 4),
    "graphs": (mm.GraphSVM(C=1.0, tol=0.1), [(one, RING) for one in PARTS], TAGS, 4),
}


@pytest.mark.parametrize("name", FITS)
def test_sample_weights(name):
    model, given, target, n = FITS[name]
    for value, shown in ((-1.0, "-1.0"), (np.nan, "nan"), (np.inf, "inf")):
        weight = np.ones(n)
        weight[2] = value
        sentence = rf"sample_weight\[2\] is {shown}; sample weights must be finite and not negative"
        with pytest.raises(DataError, match=sentence):
            model.fit(given, target, sample_weight=weight)
        with pytest.raises(DataError, match=sentence):
            model.fit(given, target).score(given, target, sample_weight=weight)
    with pytest.raises(DataError, match=r"sample_weight is 0 for every (example|sequence|graph)"):
        model.fit(given, target, sample_weight=np.zeros(n))
    with pytest.raises(DataError, match=r"sample_weight has shape \(3,\); expected"):
        model.fit(given, target, sample_weight=np.ones(3))


@pytest.mark.parametrize("name", [name for name in FITS if name != "f1"])
def test_class_weights(name):
    model, given, target, _ = FITS[name]
    for weights, sentence in (
        ({7: 1.0}, "class_weight has the class 7, which is not in y; the classes are"),
        ({0: -1.0}, r"class_weight\[0\] is -1.0; it must be a finite number that is not negative"),
        ({0: np.nan}, r"class_weight\[0\] is nan"),
        ([1.0, 2.0], 'it must be None, "balanced" or a dict of weights by class'),
    ):
        with pytest.raises(OptionError, match=sentence):
            type(model)(C=1.0, class_weight=weights).fit(given, target)


def test_class_weights_that_leave_nothing():
    with pytest.raises(OptionError, match="class_weight leaves every example with a weight of 0"):
        mm.BinarySVM(C=1.0, class_weight={0: 0.0, 1: 0.0}).fit(X, y)


@pytest.mark.parametrize("name", ["two classes", "classes", "labels"])
def test_other_columns_are_named(name):
    model, _, target, _ = FITS[name]
    model.fit(FRAME, target)
    for frame, sentence in (
        (FRAME.rename(columns={"b": "c"}), r"(?s)unseen at fit time:\n- c\n.*now missing:\n- b"),
        (FRAME[["b", "a"]], "same order"),
        (FRAME.assign(z=1.0), r"(?s)unseen at fit time:\n- z"),
        (FRAME[["a"]], r"(?s)now missing:\n- b"),
    ):
        with pytest.raises(DataError, match=sentence):
            model.predict(frame)


def test_other_columns_of_sequences_are_named():
    model = mm.ChainSVM(C=1.0, tol=0.1).fit([FRAME[:6], FRAME[6:]], [y[:6], y[6:]])
    with pytest.raises(DataError, match=r"(?s)unseen at fit time:\n- c"):
        model.predict([FRAME.rename(columns={"b": "c"})])
    with pytest.raises(DataError, match=r"sequence 1 are named differently .*: it has 'c' and it lacks 'b'"):
        model.predict([FRAME, FRAME.rename(columns={"b": "c"})])
    with pytest.raises(DataError, match="they stand in another order"):
        model.predict([FRAME, FRAME[["b", "a"]]])


def test_constraints_that_contradict_each_other():
    every = [(0, 0), (0, 1), (1, 0), (1, 1)]
    with pytest.raises(OptionError, match="forbidden lists every transition between the tags"):
        mm.ChainSVM(C=1.0, forbidden=every).fit([X[:1], X[1:2]], [[0], [1]])
    model = mm.ChainSVM(C=1.0, tol=0.1, forbidden=every[1:]).fit([X[:2], X[1:2]], [[0, 0], [1]])
    assert model.predict([X[:5]])[0].tolist() == [0] * 5
    one_way = mm.ChainSVM(C=1.0, tol=0.1, forbidden=[(0, 0), (1, 0), (1, 1)]).fit([X[:2]], [[0, 1]])
    with pytest.raises(
        DataError, match="Sequence 0 has 3 positions, but the forbidden transitions allow no tags for more"
    ):
        one_way.predict([X[:3]])

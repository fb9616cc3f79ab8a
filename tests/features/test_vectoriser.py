"""Vectoriser: matrices against scikit-learn's DictVectorizer and FeatureHasher; what is dropped, and what is refused."""

from collections import Counter, OrderedDict

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction import DictVectorizer, FeatureHasher

from maxmargin.errors import DataError, OptionError
from maxmargin.features import Vectoriser

WORDS = ["a", "b", "c", "été", "d=e", ""]


def random_dicts(seed, n=30):
    """Sequences of dicts with strings, whole and broken numbers and booleans, under names that mix them."""
    rng = np.random.default_rng(seed)

    def value():
        kind = rng.integers(5)
        drawn = rng.choice(WORDS)
        return [str(drawn), int(rng.integers(-2, 3)), float(rng.normal()), bool(rng.integers(2)), rng.random()][kind]

    def position():
        return {f"f{k}": value() for k in rng.choice(8, rng.integers(0, 6), replace=False)}

    return [[position() for _ in range(rng.integers(1, 6))] for _ in range(n)]


def flat(sequences):
    return [position for sequence in sequences for position in sequence]


@pytest.mark.parametrize("seed", range(5))
def test_dicts_as_scikit_learn_reads_them(seed):
    train, test = random_dicts(seed), random_dicts(seed + 100)
    theirs, ours = DictVectorizer(), Vectoriser()
    found = ours.fit_transform(train)
    assert isinstance(found, sp.csr_array)
    assert found.has_canonical_format
    assert (found.data != 0).all()
    np.testing.assert_array_equal(found.toarray(), theirs.fit_transform(flat(train)).toarray())
    assert ours.feature_names_.tolist() == theirs.feature_names_ == ours.get_feature_names_out().tolist()
    # The test data has features that were not seen.
    assert set(Vectoriser().fit(test).feature_names_) - set(ours.feature_names_)
    np.testing.assert_array_equal(ours.transform(test).toarray(), theirs.transform(flat(test)).toarray())
    assert clone(ours).fit(train).feature_names_.tolist() == theirs.feature_names_


def random_strings(seed, kind=list):
    rng = np.random.default_rng(seed)
    return [
        [kind(rng.choice(WORDS[:5], rng.integers(0, 5)).tolist()) for _ in range(rng.integers(1, 6))] for _ in range(20)
    ]


@pytest.mark.parametrize("kind", [list, tuple, set, frozenset])
def test_strings_are_counted(kind):
    data = random_strings(0, kind)
    counts = [Counter(position) for position in flat(data)]
    assert kind in (set, frozenset) or max(max(one.values(), default=0) for one in counts) > 1
    found = Vectoriser().fit_transform(data)
    np.testing.assert_array_equal(found.toarray(), DictVectorizer().fit_transform(counts).toarray())


def test_hashing_as_scikit_learn_does():
    strings, dicts = random_strings(1), random_dicts(1)
    for data, kind in ((strings, "string"), (dicts, "dict")):
        # So few columns that names collide.
        theirs = FeatureHasher(7, input_type=kind, alternate_sign=False).transform(flat(data))
        ours = Vectoriser(n_hash=7)
        np.testing.assert_allclose(ours.fit_transform(data).toarray(), theirs.toarray(), atol=1e-12)
        np.testing.assert_allclose(ours.transform(data).toarray(), theirs.toarray(), atol=1e-12)
        assert ours.n_features_ == 7
        assert not hasattr(ours, "feature_names_")
        with pytest.raises(OptionError, match="With n_hash=7 columns have no names"):
            ours.get_feature_names_out()


def test_rare_features_get_no_column():
    data = [[{"a": "x", "n": 2}, {"a": "y"}], [{"a": "x", "n": 0.5}, {"b": True}]]
    rare = Vectoriser(min_count=2).fit(data)
    # "n" has two different values, and is one feature.
    assert rare.feature_names_.tolist() == ["a=x", "n"]
    assert rare.transform(data).toarray().tolist() == [[1, 2], [0, 0], [1, 0.5], [0, 0]]
    assert rare.fit([[["b", "b"], ["c"]]]).feature_names_.tolist() == ["b"]


def test_all_unknown_is_an_empty_row():
    vectoriser = Vectoriser().fit([[["a"]]])
    assert vectoriser.transform([[["z"], []], [["a", "z"]]]).toarray().tolist() == [[0], [0], [1]]


def test_other_mappings_and_numbers():
    data = [[OrderedDict(a=np.float32(0.5), b=np.int8(2), c=np.bool_(True), d=np.str_("x"))]]
    vectoriser = Vectoriser()
    assert vectoriser.fit_transform(data).toarray().tolist() == [[0.5, 2.0, 1.0, 1.0]]
    assert vectoriser.feature_names_.tolist() == ["a", "b", "c", "d=x"]


def test_refit_forgets():
    vectoriser = Vectoriser().fit([[["a"]]])
    assert vectoriser.fit([[["b"]]]).feature_names_.tolist() == ["b"]
    vectoriser.set_params(n_hash=4).fit([[["b"]]])
    assert not hasattr(vectoriser, "feature_names_")


@pytest.mark.parametrize(
    ("X", "sentence"),
    [
        ([], "There is no sequence: the data is empty"),
        ("text", "X is of type str; expected a list of sequences"),
        (3, "X is of type int"),
        ([[{"a": 1}], []], "Sequence 1 is empty"),
        ([{"a": 1}], "Sequence 0 is {'a': 1}; expected a list of positions"),
        ([[["a"]], 3], "Sequence 1 is 3; expected a list of positions"),
        ([[{"a": 1}], [{"a": 1}, ["a"]]], r"Sequence 1: position 1 is \['a'\]; expected a dict of features at every pos"),
        ([[["a"], {"a": 1}]], r"Sequence 0: position 1 is {'a': 1}; expected .*, or a list of strings at every position"),
        ([["the", "cat"]], "Sequence 0: position 0 is 'the'; .* For sentences of words, use TextFeatures"),
        ([[["a"]], [["b"], ["c", 3]]], "Sequence 1: position 1 has the feature 3; expected strings"),
        ([[["a"]], [["b"], ["c", ["d"]]]], r"Sequence 1: position 1 has the feature \['d'\]; expected strings"),
        ([[["a"]], [["b", ("c", ["d"])]]], "Sequence 1: position 0 has the feature .*; expected strings"),
        ([[{"a": 1}], [{}, {"b": None}]], "Sequence 1: position 1 has the feature 'b' with the value None; expected a na"),
        ([[{"a": 1}, {"b": [1]}]], r"Sequence 0: position 1 has the feature 'b' with the value \[1\]"),
        ([[{"a": 1}, {"b": float("nan")}]], "Sequence 0: position 1 has the feature 'b' with the value nan"),
        ([[{"a": 1}, {3: 1}]], "Sequence 0: position 1 has the feature 3 with the value 1; expected a name of type str"),
        ([[{}, {}]], "No feature occurs min_count=1 times"),
    ],
)  # fmt: skip
def test_bad_data_is_a_sentence(X, sentence):
    with pytest.raises(DataError, match=sentence):
        Vectoriser().fit(X)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"min_count": 0}, "min_count=0 is not possible; it must be a whole number of at least 1"),
        ({"min_count": True}, "min_count=True is not possible"),
        ({"n_hash": 2.5}, "n_hash=2.5 is not possible; it must be a whole number of at least 1, or None"),
        ({"n_hash": 8, "min_count": 2}, "min_count=2 needs a vocabulary"),
    ],
)
def test_bad_options_are_a_sentence(options, sentence):
    with pytest.raises(OptionError, match=sentence):
        Vectoriser(**options).fit([[["a"]]])


def test_not_fitted():
    with pytest.raises(NotFittedError):
        Vectoriser().transform([[["a"]]])

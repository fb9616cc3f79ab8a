"""Pruned models against models whose weights were set to 0 by hand, and their files."""

from __future__ import annotations

import numpy as np
import pytest

import maxmargin as mm
from maxmargin.errors import ModelFileError, OptionError
from maxmargin.formats.model_file import read_model, write_model

WORDS = ["the", "a", "dog", "cat", "barks", "sleeps", "small", "old", "runs", "bird"]
TAGS = ["D", "D", "N", "N", "V", "V", "A", "A", "V", "N"]


@pytest.fixture(scope="module")
def sentences():
    rng = np.random.default_rng(0)
    X = [[WORDS[k] for k in rng.integers(0, 10, rng.integers(2, 6))] for _ in range(60)]
    return X, [[TAGS[WORDS.index(word)] for word in row] for row in X]


@pytest.fixture(scope="module")
def tagger(sentences):
    X, y = sentences
    return mm.ChainSVM(C=10).fit(X[:40], y[:40])


@pytest.mark.parametrize("options", [{}, {"emission_order": 1}, {"fit_intercept": False}])
def test_a_pruned_tagger_is_the_tagger_with_zeros(sentences, options):
    X, y = sentences
    model = mm.ChainSVM(C=10, **options).fit(X[:40], y[:40])
    held = X[40:], y[40:]
    threshold = float(np.quantile(np.abs(model.coef_), 0.8))
    pruned = model.prune(threshold=threshold, eval_set=held)
    by_hand = mm.ChainSVM(C=10, **options).fit(X[:40], y[:40])
    by_hand.coef_[np.abs(by_hand.coef_) < threshold] = 0.0
    if options.get("emission_order"):
        by_hand.emission_coef_[np.abs(by_hand.emission_coef_) < threshold] = 0.0
    for found, expected in zip(pruned.predict(X), by_hand.predict(X), strict=True):
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_allclose(pruned.decision_function(X), by_hand.decision_function(X), atol=1e-12)
    said = pruned.result_.options["pruned"]
    assert said["weights"] == np.count_nonzero(by_hand.coef_) + np.count_nonzero(
        getattr(by_hand, "emission_coef_", np.zeros(1))
    )
    assert said["score_before"] == model.score(*held)
    assert said["score"] == pruned.score(*held)
    assert pruned.n_features_in_ < model.n_features_in_
    assert len(pruned.feature_names_in_) == pruned.n_features_in_ == said["features"]
    assert pruned.result_.certificate == "none"
    assert pruned.result_.status != "CONVERGED"
    assert model.result_.certificate == "exact"
    assert "before" in pruned.result_.summary()
    # Names still go with their weights.
    names = model.feature_names_in_.tolist()
    for k, name in enumerate(pruned.feature_names_in_):
        np.testing.assert_array_equal(pruned.coef_[:, k], by_hand.coef_[:, names.index(name)])


def test_files_of_pruned_models_are_small(sentences, tagger, tmp_path):
    X, y = sentences
    pruned = tagger.prune(keep=0.05, eval_set=(X[40:], y[40:]))
    assert pruned.result_.options["pruned"]["weights"] <= np.ceil(0.05 * np.count_nonzero(tagger.coef_)) + 1
    tagger.save(tmp_path / "whole.mm")
    pruned.save(tmp_path / "pruned.mm")
    # The header is most of such small files.
    whole, small = (
        sum(one.nbytes for one in read_model(tmp_path / name)[1].values()) for name in ("whole.mm", "pruned.mm")
    )
    assert small < 0.3 * whole
    again = mm.load(tmp_path / "pruned.mm")
    np.testing.assert_array_equal(again.result_.weights, pruned.result_.weights)
    assert [row.tolist() for row in again.predict(X)] == [row.tolist() for row in pruned.predict(X)]
    assert again.result_.options["pruned"]["score"] == pruned.result_.options["pruned"]["score"]


def test_the_smallest_model_of_a_given_loss(sentences, tagger):
    X, y = sentences
    held = X[40:], y[40:]
    found = tagger.prune(eval_set=held, max_loss=0.02)
    assert tagger.score(*held) - found.score(*held) <= 0.02
    kept = found.result_.options["pruned"]["weights"]
    nonzero = np.count_nonzero(tagger.coef_)
    half = tagger.prune(keep=kept / 2 / nonzero, eval_set=held)
    assert kept < nonzero / 2 + 1
    assert tagger.score(*held) - half.score(*held) > 0.02


@pytest.mark.parametrize("kind", [mm.BinarySVM, mm.MultiClassSVM, mm.MultiLabelSVM])
def test_other_models(kind, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 12))
    y = (
        np.column_stack([X[:, 0] > 0, X[:, 1] > 0]).astype(int)
        if kind is mm.MultiLabelSVM
        else (X[:, 0] > 0).astype(int)
    )
    model = kind(C=10).fit(X, y)
    pruned = model.prune(keep=0.25)
    assert pruned.coef_.shape == model.coef_.shape
    assert np.count_nonzero(pruned.coef_) == np.ceil(0.25 * model.coef_.size)
    assert np.abs(pruned.coef_[pruned.coef_ != 0]).min() >= np.abs(model.coef_[pruned.coef_ == 0]).max()
    np.testing.assert_array_equal(pruned.intercept_, model.intercept_)
    pruned.save(tmp_path / "model.mm")
    np.testing.assert_array_equal(mm.load(tmp_path / "model.mm").predict(X), pruned.predict(X))


def test_hashed_columns_keep_their_places(sentences):
    X, y = sentences
    model = mm.ChainSVM(C=10, features=mm.TextFeatures(n_hash=512)).fit(X, y)
    pruned = model.prune(keep=0.1)
    assert pruned.n_features_in_ == 512
    assert pruned.score(X, y) > 0.5


def test_what_is_refused(tagger):
    with pytest.raises(OptionError, match="Give one of keep, threshold and max_loss"):
        tagger.prune()
    with pytest.raises(OptionError, match="Give one of"):
        tagger.prune(keep=0.5, threshold=0.1)
    with pytest.raises(OptionError, match="keep=0 is not possible"):
        tagger.prune(keep=0)
    with pytest.raises(OptionError, match="threshold=-1 is not possible"):
        tagger.prune(threshold=-1)
    with pytest.raises(OptionError, match="give them as eval_set"):
        tagger.prune(max_loss=0.1)
    rng = np.random.default_rng(0)
    kernel = mm.BinarySVM(C=1, kernel="rbf").fit(rng.normal(size=(10, 2)), np.arange(10) % 2)
    with pytest.raises(OptionError, match='kernel="linear"'):
        kernel.prune(keep=0.5)


@pytest.mark.parametrize("fault", ["order", "beyond", "lengths", "too many", "no numbers"])
def test_damaged_files_are_refused(tagger, tmp_path, fault):
    path = tmp_path / "model.mm"
    tagger.prune(keep=0.05).save(path)
    header, arrays = read_model(path)
    header = {name: value for name, value in header.items() if name not in ("format", "format_version", "arrays")}
    arrays = dict(arrays)
    if fault == "order":
        arrays["weights_index"] = arrays["weights_index"][::-1].copy()
    elif fault == "beyond":
        header["n_weights"] = 5
    elif fault == "lengths":
        arrays["weights_value"] = arrays["weights_value"][:-1]
    elif fault == "too many":
        header["n_weights"] = 10**12
    else:
        arrays["weights_value"] = np.full_like(arrays["weights_value"], np.nan)
    write_model(path, header, arrays)
    with pytest.raises(ModelFileError):
        mm.load(path)

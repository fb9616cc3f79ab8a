"""Marginals, the k best, and what a relaxation leaves open, against enumeration of all labelings."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest

from maxmargin import ChainSVM, GraphSVM, MultiLabelSVM
from maxmargin.errors import OptionError


@pytest.fixture(scope="module")
def tagged():
    rng = np.random.default_rng(0)
    lengths = [1, 2, 3, 4, 4]
    X = [rng.normal(size=(n, 3)) for n in lengths]
    y = [rng.choice(["a", "b", "c"], n) for n in lengths]
    y[0][0], y[1][0], y[2][0] = "a", "b", "c"
    return X, y


@pytest.fixture(scope="module")
def tagger(tagged):
    return ChainSVM(C=10).fit(*tagged)


def all_tags(model, x):
    """Every tag sequence and its score, best first."""
    found = []
    for y in itertools.product(range(3), repeat=len(x)):
        score = sum(x[t] @ model.coef_[y[t]] + model.intercept_[y[t]] for t in range(len(x)))
        score += sum(model.transition_coef_[y[t], y[t + 1]] for t in range(len(x) - 1))
        found.append((score + model.start_coef_[y[0]] + model.end_coef_[y[-1]], y))
    return sorted(found, reverse=True)


@pytest.mark.parametrize("temperature", [1.0, 0.2])
def test_marginals_of_chains(tagged, tagger, temperature):
    X, _ = tagged
    for x, marginals in zip(X, tagger.predict_marginals(X, temperature), strict=True):
        expected = np.zeros((len(x), 3))
        for score, y in all_tags(tagger, x):
            for t, k in enumerate(y):
                expected[t, k] += np.exp(score / temperature)
        np.testing.assert_allclose(marginals, expected / expected.sum(axis=1, keepdims=True), atol=1e-10)


def test_the_k_best_of_chains(tagged, tagger):
    X, _ = tagged
    labels, scores = tagger.predict_top_k(X, 5)
    for x, best, values in zip(X, labels, scores, strict=True):
        expected = all_tags(tagger, x)[:5]
        np.testing.assert_allclose(values, [score for score, _ in expected], atol=1e-10)
        assert [tags.tolist() for tags in best] == [[tagger.classes_[k] for k in y] for _, y in expected]
    # One position has only three labelings.
    assert len(labels[0]) == 3
    with pytest.raises(OptionError, match="k=0 is not possible"):
        tagger.predict_top_k(X, 0)


def test_multi_label_marginals_are_exact_when_cheap():
    rng = np.random.default_rng(1)
    X, Y = rng.normal(size=(12, 3)), rng.integers(0, 2, (12, 4))
    model = MultiLabelSVM(C=10).fit(X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = model.predict_marginals(X, temperature=1.0)
    total = np.zeros((12, 4))
    mass = np.zeros(12)
    for y in itertools.product([0, 1], repeat=4):
        on = np.array(y)
        score = (X @ model.coef_.T + model.intercept_) @ on + model.edge_coef_ @ on[model.edges_].prod(axis=1)
        total += np.exp(score)[:, None] * on
        mass += np.exp(score)
    np.testing.assert_allclose(found, total / mass[:, None], atol=1e-10)


def test_marginals_of_wide_graphs_say_that_they_are_approximate():
    rng = np.random.default_rng(2)
    X, Y = rng.normal(size=(10, 3)), rng.integers(0, 2, (10, 20))
    model = MultiLabelSVM(C=1, max_passes=5).fit(X, Y)
    with pytest.warns(UserWarning, match='These marginals are approximate, by "loopy_bp"'):
        found = model.predict_marginals(X)
    assert ((found >= 0) & (found <= 1)).all()
    assert model.inference_.startswith("graph_cut (not always exact)")


def test_the_share_of_open_labels():
    """A frustrated triangle: every pair wants to differ, so the relaxation leaves all three labels open."""
    model = MultiLabelSVM(C=1, fit_intercept=False, inference="graph_cut").fit(np.ones((2, 1)), [[1, 0, 0], [0, 1, 1]])
    model.result_.weights[:] = [1.0, 1.0, 1.0, -1.0, -1.0, -1.0]
    assert model.ambiguity([[1.0]]) == 1.0
    model.result_.weights[:] = [3.0, 3.0, 3.0, -1.0, -1.0, -1.0]
    assert model.ambiguity([[1.0]]) == 0.0
    model.inference = "exhaustive"
    assert model.ambiguity([[1.0]]) == 0.0


def test_graph_marginals():
    rng = np.random.default_rng(3)
    graphs = [(rng.normal(size=(4, 2)), [[0, 1], [1, 2], [2, 3]]) for _ in range(4)]
    model = GraphSVM(C=1).fit(graphs, [rng.integers(0, 3, 4) for _ in graphs])
    for marginals, labels in zip(model.predict_marginals(graphs, 1e-4), model.predict(graphs), strict=True):
        # Cold enough, the most likely labels are the best ones.
        assert marginals.argmax(axis=1).tolist() == [model.classes_.tolist().index(one) for one in labels]
        np.testing.assert_allclose(marginals.sum(axis=1), 1.0)

"""Margins, abstention and thresholds against enumeration of all labelings, and against simulated risks."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import maxmargin as mm
from maxmargin import BinarySVM, ChainSVM, GraphSVM, MultiClassSVM, MultiLabelSVM, ParserSVM
from maxmargin.errors import DataError, OptionError


@pytest.fixture(scope="module")
def labels_model():
    rng = np.random.default_rng(1)
    X, Y = rng.normal(size=(30, 3)), rng.integers(0, 2, (30, 4))
    return MultiLabelSVM(C=10).fit(X, Y), X, Y


def scores_of_labels(model, x):
    """Every labeling and its score."""
    found = {}
    for y in itertools.product([0, 1], repeat=len(model.classes_)):
        on = np.array(y)
        found[y] = float((model.coef_ @ x + model.intercept_) @ on + model.edge_coef_ @ on[model.edges_].prod(axis=1))
    return found


def test_the_k_best_and_the_margin_of_labels_on_a_complete_graph(labels_model):
    model, X, _ = labels_model
    labels, scores = model.predict_top_k(X, 6)
    margins = model.predict_margin(X)
    for x, best, values, margin in zip(X, labels, scores, margins, strict=True):
        every = scores_of_labels(model, x)
        expected = sorted(every.values(), reverse=True)
        np.testing.assert_allclose(values, expected[:6], atol=1e-9)
        np.testing.assert_allclose([every[tuple(one)] for one in np.array(best).tolist()], values, atol=1e-9)
        assert margin == pytest.approx(expected[0] - expected[1], abs=1e-9)


@pytest.mark.parametrize("inference", ["exhaustive", "junction_tree", "branch_and_bound", "graph_cut"])
def test_named_engines_find_the_same_k_best(labels_model, inference):
    model, X, Y = labels_model
    other = MultiLabelSVM(C=10, inference=inference).fit(X, Y)
    other.result_.weights[:] = model.result_.weights
    np.testing.assert_allclose(other.predict_margin(X), model.predict_margin(X), atol=1e-9)


def test_the_probability_of_a_labeling_and_of_labels(labels_model):
    model, X, _ = labels_model
    joint = model.predict_or_abstain(X, 0.5, "joint")
    single = model.predict_or_abstain(X, 0.5)
    assert single.accepted.shape == single.confidence.shape == (30, 4)
    for m, x in enumerate(X):
        every = scores_of_labels(model, x)
        mass = {y: np.exp(score / model.temperature_) for y, score in every.items()}
        total = sum(mass.values())
        best = max(every, key=every.get)
        assert tuple(joint.labels[m]) == best
        assert joint.confidence[m] == pytest.approx(mass[best] / total)
        for i, state in enumerate(best):
            expected = sum(p for y, p in mass.items() if y[i] == state) / total
            assert single.confidence[m, i] == pytest.approx(expected)
    np.testing.assert_array_equal(joint.accepted, joint.confidence >= 0.5)
    assert joint.coverage == pytest.approx(joint.accepted.mean())


def test_margins_of_classes():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 4)), rng.choice(["a", "b", "c"], 60)
    model = MultiClassSVM(C=10).fit(X, y)
    scores = X @ model.coef_.T + model.intercept_
    ordered = np.sort(scores, axis=1)
    np.testing.assert_allclose(model.predict_margin(X), ordered[:, -1] - ordered[:, -2])
    labels, values = model.predict_top_k(X, 2)
    np.testing.assert_array_equal(labels[:, 0], model.predict(X))
    np.testing.assert_allclose(values, ordered[:, :-3:-1])
    assert model.predict_top_k(X, 9)[0].shape == (60, 3)
    mass = np.exp(scores / 0.3)
    np.testing.assert_allclose(model.predict_marginals(X, 0.3), mass / mass.sum(axis=1, keepdims=True))
    np.testing.assert_array_equal(model.predict_marginals(X), model.predict_proba(X))
    with pytest.raises(OptionError, match="temperature=0 is not possible"):
        model.predict_marginals(X, 0)
    two = BinarySVM(C=10).fit(X, y == "a")
    np.testing.assert_allclose(two.predict_margin(X), np.abs(two.decision_function(X)))
    assert model.predict_margin(np.empty((0, 4))).shape == (0,)
    kept = model.predict_or_abstain(X, 0.6)
    np.testing.assert_array_equal(kept.accepted, model.predict_proba(X).max(axis=1) >= 0.6)
    marked = kept.marked("?")
    assert (marked[~kept.accepted] == "?").all()
    assert marked[kept.accepted].tolist() == model.predict(X)[kept.accepted].tolist()
    with pytest.raises(OptionError, match="k=0 is not possible"):
        model.predict_top_k(X, 0)


@pytest.fixture(scope="module")
def tagged():
    rng = np.random.default_rng(2)
    tags = [rng.choice(["B", "I", "O"], size=n) for n in rng.integers(1, 7, 200)]
    signals = [np.eye(3)[np.searchsorted(["B", "I", "O"], y)] + 0.8 * rng.normal(size=(len(y), 3)) for y in tags]
    return ChainSVM(C=10).fit(signals[:100], tags[:100]), signals[100:], tags[100:]


def test_sequences_abstain_tag_by_tag_or_whole(tagged):
    model, X, _y = tagged
    found = model.predict_or_abstain(X, 0.8)
    proba = model.predict_proba(X)
    for p, keep, sure, labels, marked in zip(
        proba, found.accepted, found.confidence, found.labels, found.marked(), strict=True
    ):
        chosen = p[np.arange(len(p)), np.searchsorted(model.classes_, labels)]
        np.testing.assert_allclose(sure, chosen)
        np.testing.assert_array_equal(keep, sure >= 0.8)
        assert marked.tolist() == [tag if k else None for tag, k in zip(labels.tolist(), keep, strict=True)]
    whole = model.predict_or_abstain(X, 1.0, "margin")
    ranked = model.predict_top_k(X, 2)[1]
    np.testing.assert_allclose(whole.confidence, [one[0] - one[1] for one in ranked])
    assert [one is None for one in whole.marked()] == (~whole.accepted).tolist()


@pytest.mark.parametrize("confidence", ["probability", "margin", "joint"])
def test_a_threshold_has_the_risk_that_was_asked_for(tagged, confidence):
    model, X, y = tagged
    curve = model.risk_coverage(X, y, confidence)
    chosen = model.choose_threshold(X, y, 0.05, confidence)
    found = model.predict_or_abstain(X, chosen, confidence)
    assert found.coverage == pytest.approx(chosen.coverage)
    wrong = [np.asarray(a) != np.asarray(b) for a, b in zip(found.labels, y, strict=True)]
    if confidence == "probability":
        lost, kept = np.concatenate(wrong), np.concatenate(found.accepted)
    else:
        lost, kept = np.array([one.any() for one in wrong]), found.accepted
    assert lost[kept].mean() == pytest.approx(chosen.risk)
    assert chosen.risk <= 0.05 < lost.mean()
    # No larger share of the predictions has this risk.
    assert (curve.risk[curve.coverage > chosen.coverage] > 0.05).all()
    assert curve.risk[-1] == pytest.approx(lost.mean())


def test_the_bound_of_the_risk_holds_as_often_as_it_says():
    """Mistakes have the probability 1 - confidence, so the risk above a threshold is known."""
    rng = np.random.default_rng(5)
    broken, coverages = 0, []
    for _ in range(300):
        sure = rng.random(4000)
        wrong = rng.random(4000) < 0.6 * (1.0 - sure)
        chosen = mm.choose_threshold(wrong, sure, 0.1, level=0.9)
        if chosen.coverage == 0.0:
            continue
        coverages.append(chosen.coverage)
        # The mean of 0.6 (1 - s) over s above t.
        broken += 0.3 * (1.0 - chosen.threshold) > 0.1
        assert chosen.risk <= chosen.bound <= 0.1
    # At 10 % of 300, three standard deviations are 16; an honest bound is far below.
    assert broken <= 46
    assert len(coverages) > 250
    # The largest share with this risk is 1/3.
    assert np.mean(coverages) > 0.1


def test_an_empirical_threshold_breaks_its_risk_about_half_the_time():
    """What `level` is for: without, the risk on new examples is above the wanted one more often than not."""
    rng = np.random.default_rng(5)
    broken = 0
    for _ in range(200):
        sure = rng.random(400)
        wrong = rng.random(400) < 0.6 * (1.0 - sure)
        broken += 0.3 * (1.0 - mm.choose_threshold(wrong, sure, 0.1).threshold) > 0.1
    assert broken > 60


def test_what_thresholds_refuse():
    chosen = mm.choose_threshold([1, 1, 1], [0.2, 0.5, 0.9], 0.1)
    assert chosen.threshold == np.inf
    assert chosen.coverage == 0.0
    assert mm.choose_threshold([0, 1, 0], [0.9, 0.5, 0.2], 0.5).coverage == 1.0
    with pytest.raises(OptionError, match="risk=-1 is not possible"):
        mm.choose_threshold([0], [1], -1)
    with pytest.raises(OptionError, match="level=1 is not possible"):
        mm.choose_threshold([0], [1], 0.1, level=1)
    with pytest.raises(DataError, match="is for losses of 0 and 1"):
        mm.choose_threshold([0.5], [1], 0.1, level=0.9)


def test_graphs_with_cycles_and_unknown_nodes():
    rng = np.random.default_rng(3)
    ring = [[0, 1], [1, 2], [2, 3], [3, 0]]
    graphs = [(rng.normal(size=(4, 2)), ring) for _ in range(20)]
    labels = [rng.integers(0, 3, 4) for _ in graphs]
    model = GraphSVM(C=1).fit(graphs, labels)
    for graph, values in zip(graphs, model.predict_top_k(graphs, 4)[1], strict=True):
        every = []
        for y in itertools.product(range(3), repeat=4):
            score = sum(model.coef_[k] @ x + model.intercept_[k] for k, x in zip(y, graph[0], strict=True))
            every.append(score + sum(model.edge_coef_[y[i], y[j], 0] for i, j in ring))
        np.testing.assert_allclose(values, sorted(every, reverse=True)[:4], atol=1e-9)
    labels[0] = np.array([-1, -1, -1, 0])
    assert len(model.risk_coverage(graphs, labels).risk) == 77
    assert len(model.risk_coverage(graphs, labels, "joint").risk) == 20
    with pytest.raises(DataError, match="No label is known"):
        model.risk_coverage(graphs[:1], [[-1, -1, -1, -1]])


def test_what_is_not_exact_is_refused():
    at = np.arange(400).reshape(20, 20)
    edges = np.vstack([np.column_stack([at[:, :-1].ravel(), at[:, 1:].ravel()]),
                       np.column_stack([at[:-1].ravel(), at[1:].ravel()])])  # fmt: skip
    rng = np.random.default_rng(0)
    graphs = [(rng.normal(size=(400, 2)), edges)]
    model = GraphSVM(C=1, edge_weights="potts", max_passes=3, tol=1).fit(graphs, [rng.integers(0, 3, 400)])
    with pytest.raises(DataError, match="known only where inference is exact"):
        model.predict_margin(graphs)
    with pytest.warns(UserWarning, match="approximate"), pytest.raises(DataError, match="whole labeling"):
        model.predict_or_abstain(graphs, 0.5, "joint")
    with pytest.raises(OptionError, match="confidence='margins' is not known"):
        model.predict_or_abstain(graphs, 0.5, "margins")
    with pytest.raises(OptionError, match="threshold='half' is not possible"):
        model.predict_or_abstain(graphs, "half")


def test_labels_in_collections(labels_model):
    model, X, Y = labels_model
    names = np.array(["p", "q", "r", "s"])
    lists = MultiLabelSVM(C=10).fit(X, [names[row == 1].tolist() for row in Y])
    found = lists.predict_or_abstain(X, 0.7)
    assert found.accepted.shape == (30, 4)
    with pytest.raises(OptionError, match="Collections of labels"):
        found.marked()
    assert len(lists.predict_or_abstain(X, 0.7, "margin").marked()) == 30
    curve = lists.risk_coverage(X, [[*names[row == 1], "unseen"] for row in Y])
    assert curve.risk[-1] == pytest.approx(np.mean(model.predict(X) != Y))


def test_margins_of_trees():
    trees = ["(S (N dogs) (V bark))", "(S (N cats) (V sleep))", "(S (N dogs) (V sleep) (N cats))"]
    model = ParserSVM(C=1).fit(trees)
    sentences = [["dogs", "bark"], ["cats", "sleep"], ["dogs", "sleep", "cats"], ["bark"]]
    scores = model.predict_top_k(sentences, 2)[1]
    expected = [one[0] - one[1] if len(one) > 1 else np.inf if len(one) else -np.inf for one in scores]
    np.testing.assert_allclose(model.predict_margin(sentences), expected)
    assert expected[-1] == -np.inf

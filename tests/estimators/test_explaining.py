"""Explanations: contributions sum to the difference of two scores, which are computed here from the named weights."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_iris

import maxmargin as mm
from maxmargin.errors import DataError

RING = [[0, 1], [1, 2], [2, 3], [3, 0]]


def check(explanation, one, other):
    """The scores are these, and the contributions sum to their difference."""
    assert explanation.score == pytest.approx(one, abs=1e-9)
    assert explanation.against_score == pytest.approx(other, abs=1e-9)
    assert math.fsum(c.contribution for c in explanation.contributions) == explanation.difference
    assert explanation.difference == pytest.approx(one - other, abs=1e-9)
    assert all(c.contribution == c.value * c.weight != 0 for c in explanation.contributions)
    sizes = [abs(c.contribution) for c in explanation.contributions]
    assert sizes == sorted(sizes, reverse=True)
    assert explanation.to_frame()["contribution"].tolist() == [c.contribution for c in explanation.contributions]
    assert math.fsum(explanation.by("part").values()) == pytest.approx(explanation.difference)


@pytest.fixture(scope="module")
def iris():
    return load_iris(return_X_y=True, as_frame=True)


def test_classes(iris):
    X, y = iris
    model = mm.MultiClassSVM(C=10.0, tol=1e-2).fit(X, y)
    for row in (0, 70, 120):
        scores = model.coef_ @ X.iloc[row] + model.intercept_
        first, second = np.argsort(-scores)[:2]
        for x in (X.iloc[row], X.iloc[[row]]):
            found = model.explain(x)
            assert (found.labels, found.against, found.exact) == (first, second, True)
            check(found, scores[first], scores[second])
    third = int(np.argsort(-scores)[2])
    found = model.explain(X.iloc[120], against=third)
    assert found.against == third
    assert not found.exact
    check(found, scores[first], scores[third])
    by_name = {c.feature: c for c in found.contributions}
    assert by_name["petal width (cm)"].weight == model.coef_[first, 3] - model.coef_[third, 3]
    assert by_name["(intercept)"].part == "intercept"


def test_two_classes_and_sparse_rows(iris):
    X, y = iris
    model = mm.BinarySVM(C=10.0, tol=1e-2).fit(sp.csr_array(X.to_numpy()), y == 0)
    for row in (0, 99):
        x = X.to_numpy()[row]
        score = float(model.coef_[0] @ x + model.intercept_[0])
        found = model.explain(sp.csr_array(x[None]))
        assert found.labels == (score > 0)
        check(found, max(score, 0.0), min(score, 0.0))


def test_a_kernel_is_one_feature(iris):
    X, y = iris
    model = mm.MultiClassSVM(C=10.0, kernel="rbf", tol=1e-2).fit(X, y)
    scores = model.decision_function(X.iloc[[60]])[0]
    found = model.explain(X.iloc[60])
    check(found, *np.sort(scores)[::-1][:2])
    assert {c.feature for c in found.contributions} == {"(score by the kernel)"}


def label_score(model, x, y):
    pairs = sum(w * y[i] * y[j] for w, (i, j) in zip(model.edge_coef_, model.edges_, strict=True))
    return float((model.coef_ @ x + model.intercept_) @ y + pairs)


def test_sets_of_labels():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    Y = (X[:, :3] + 0.5 * rng.normal(size=(60, 3)) > 0).astype(int)
    Y = np.column_stack([Y, Y[:, 0] & Y[:, 1]])
    names = ["sun", "sea", "sand", "beach"]
    model = mm.MultiLabelSVM(C=100.0, tol=1e-2).fit(X, pd.DataFrame(Y, columns=names))
    lists = mm.MultiLabelSVM(C=100.0, tol=1e-2).fit(X, [[n for n, on in zip(names, y, strict=True) if on] for y in Y])
    for x in X[:5]:
        ranked = sorted(itertools.product((0, 1), repeat=4), key=lambda y: -label_score(model, x, np.array(y)))
        found = model.explain(x)
        assert found.exact
        assert tuple(found.labels) == ranked[0]
        assert tuple(found.against) == ranked[1]
        check(found, *(label_score(model, x, np.array(y)) for y in ranked[:2]))
        other = np.array([1, 1, 0, 1])
        check(model.explain(x, against=other), *(label_score(model, x, np.array(y)) for y in (ranked[0], other)))
        assert lists.explain(x, against=["sun", "sea"]).against == ["sea", "sun"]
    found = model.explain(X[0], against=1 - np.array(model.predict(X[:1])[0]))
    assert {c.part for c in found.contributions} == {"feature", "intercept", "pair"}


def chain_score(model, x, y):
    at = [model.classes_.tolist().index(tag) for tag in y]
    score = sum(model.coef_[k] @ row + model.intercept_[k] for k, row in zip(at, x, strict=True))
    score += model.start_coef_[at[0]] + model.end_coef_[at[-1]]
    for t in range(1, len(at)):
        score += model.transition_coef_[at[t - 1], at[t]]
        if hasattr(model, "emission_coef_"):
            score += model.emission_coef_[at[t - 1], at[t]] @ x[t]
        if t > 1 and hasattr(model, "transition2_coef_"):
            score += model.transition2_coef_[at[t - 2], at[t - 1], at[t]]
    return float(score)


@pytest.mark.parametrize("options", [{}, {"order": 2, "emission_order": 1}])
def test_tags(options):
    rng = np.random.default_rng(1)
    tags = [rng.choice(["A", "B", "C"], size=4) for _ in range(30)]
    X = [np.eye(3)[np.searchsorted(["A", "B", "C"], y)] + rng.normal(size=(4, 3)) for y in tags]
    model = mm.ChainSVM(C=10.0, tol=1e-2, **options).fit(X, tags)
    for x in X[:3]:
        ranked = sorted(itertools.product("ABC", repeat=4), key=lambda y: -chain_score(model, x, y))
        found = model.explain(x)
        assert found.exact
        assert tuple(found.labels) == ranked[0]
        assert tuple(found.against) == ranked[1]
        check(found, chain_score(model, x, ranked[0]), chain_score(model, x, ranked[1]))
    found = model.explain(X[0], against=list(ranked[-1]))
    assert {"feature", "intercept", "transition"} <= {c.part for c in found.contributions}
    text = str(found)
    assert "against: the labeling that was given" in text
    assert f"ahead by {found.difference:.6g}" in text


def graph_score(model, graph, y):
    nodes, edges, features = graph
    at = [model.classes_.tolist().index(label) for label in y]
    if model.node_weights == "class-wise":
        score = sum(model.coef_[k] * row[k] + model.intercept_[k] for k, row in zip(at, nodes, strict=True))
    else:
        score = sum(model.coef_[k] @ row + model.intercept_[k] for k, row in zip(at, nodes, strict=True))
    for (i, j), z in zip(edges, features, strict=True):
        if model.edge_weights == "potts":
            score += model.edge_coef_ @ z * (at[i] == at[j])
        else:
            score += model.edge_coef_[at[i], at[j]] @ z
    return float(score)


@pytest.mark.parametrize("options", [{}, {"edge_weights": "potts"}, {"node_weights": "class-wise"}])
def test_nodes(options):
    rng = np.random.default_rng(2)
    graphs = [(rng.normal(size=(4, 2)), RING, rng.uniform(size=(4, 2))) for _ in range(20)]
    labels = [np.where(nodes[:, 0] > nodes[:, 1], "in", "out") for nodes, _, _ in graphs]
    model = mm.GraphSVM(C=10.0, tol=1e-2, **options).fit(graphs, labels)
    for graph in graphs[:3]:
        ranked = sorted(itertools.product(("in", "out"), repeat=4), key=lambda y: -graph_score(model, graph, y))
        found = model.explain(graph)
        assert found.exact
        assert tuple(found.labels) == ranked[0]
        check(found, graph_score(model, graph, ranked[0]), graph_score(model, graph, ranked[1]))
        check(
            model.explain(graph, against=ranked[-1]),
            graph_score(model, graph, ranked[0]),
            graph_score(model, graph, ranked[-1]),
        )
    assert "edge" in {c.part for c in found.contributions}


def test_bad_questions_are_refused(iris):
    X, y = iris
    model = mm.MultiClassSVM(C=1.0, tol=0.1).fit(X, y)
    with pytest.raises(DataError, match="explain takes one example, and x has 3 rows"):
        model.explain(X[:3])
    with pytest.raises(DataError, match="against has 7, which was not seen in training"):
        model.explain(X[:1], against=7)
    with pytest.raises(DataError, match=r"(?s)names should match.*wide"):
        model.explain(X[:1].rename(columns={"petal width (cm)": "wide"}))
    with pytest.raises(DataError, match="A contribution has no 'colour'"):
        model.explain(X[:1]).by("colour")
    chain = mm.ChainSVM(C=1.0, tol=0.1, forbidden=[("a", "b")]).fit([np.eye(2)], [["b", "a"]])
    with pytest.raises(DataError, match="forbidden by the constraints"):
        chain.explain(np.eye(2), against=["a", "b"])
    with pytest.raises(DataError, match="Sequence 0 has 2 positions, but 1 tags"):
        chain.explain(np.eye(2), against=["a"])
    graphs = [(np.eye(3), [[0, 1]]), (np.eye(3), [[0, 1]])]
    graph = mm.GraphSVM(C=1.0, tol=0.1).fit(graphs, [["a", "b", "b"], ["a", "b", "a"]])
    with pytest.raises(DataError, match="explain takes one graph"):
        graph.explain(graphs)


def test_one_labeling_has_no_runner_up():
    chain = mm.ChainSVM(C=1.0, tol=0.1, forbidden=[("a", "a"), ("b", "b"), ("a", "b")]).fit([np.eye(2)], [["b", "a"]])
    with pytest.raises(DataError, match="allow one labeling only"):
        chain.explain(np.eye(2))

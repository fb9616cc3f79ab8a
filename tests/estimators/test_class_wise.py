"""GraphSVM with one weight a class for given scores of the classes, on two levels of superpixels, and the accuracy of pixels."""

import itertools
import json

import numpy as np
import pytest
import scipy.sparse as sp

import maxmargin as mm
from maxmargin.cli.main import run
from maxmargin.errors import DataError, OptionError
from maxmargin.formats import GraphData, read_graphs, write_graphs
from maxmargin.problems import nearest_superpixels, two_level_graph
from reference.enumerated_program import exact_optimum

K = 3


@pytest.fixture(scope="module")
def data():
    """Two coarse superpixels and four fine ones, which mostly have the class of theirs; scores of classes are on other scales."""
    rng = np.random.default_rng(3)
    graphs, labels = [], []
    for _ in range(12):
        of, coarse = rng.integers(0, 2, 4), rng.integers(0, K, 2)
        fine = np.where(rng.random(4) < 0.9, coarse[of], rng.integers(0, K, 4))
        scores = [(np.eye(K)[y] + 0.8 * rng.normal(size=(len(y), K))) * [4.0, 1.0, 0.3] for y in (fine, coarse)]
        graphs.append(two_level_graph(*scores, of))
        labels.append(np.concatenate([fine, coarse]))
    return graphs, labels


def small(**options):
    given = {"C": 10.0, "tol": 1e-4, "node_weights": "class-wise", "edge_weights": "potts", "fit_intercept": False}
    return mm.GraphSVM(**(given | options))


@pytest.fixture(scope="module")
def model(data):
    return small().fit(*data)


class ByHand:
    """The model of the paper, written down once more: K weights of scores, and one for equal classes."""

    exact = True

    def joint_features(self, x, y):
        scores, edges = x
        phi = np.zeros(K + 1)
        for i, k in enumerate(y):
            phi[k] += scores[i, k]
        phi[K] = sum(y[i] == y[j] for i, j in edges)
        return phi

    def loss(self, y, y_hat):
        return sum(a != b for a, b in zip(y, y_hat, strict=True)) / len(y)

    def most_violated(self, x, y, w):
        every = itertools.product(range(K), repeat=len(y))
        return max(every, key=lambda one: self.loss(y, one) + w @ self.joint_features(x, one))

    def predict(self, x, w):
        return max(itertools.product(range(K), repeat=len(x[0])), key=lambda one: w @ self.joint_features(x, one))


def test_the_model_has_a_weight_a_class_and_one_for_edges(data, model):
    assert len(model.result_.weights) == K + 1
    assert model.coef_.shape == (K,)
    assert model.edge_coef_.shape == (1,)
    assert model.intercept_.tolist() == [0.0] * K
    assert model.result_.certificate == "exact"
    assert np.shares_memory(model.coef_, model.result_.weights)


def test_the_optimum_is_that_of_the_model_written_by_hand(data, model):
    graphs, labels = data
    by_hand = mm.StructuredSVM(ByHand(), C=10.0, tol=1e-4).fit(graphs, [tuple(row.tolist()) for row in labels])
    assert model.result_.primal == pytest.approx(by_hand.result_.primal, abs=2e-4)
    np.testing.assert_allclose(model.result_.weights, by_hand.result_.weights, atol=0.05)
    for graph, found in zip(graphs, model.predict(graphs), strict=True):
        best = ByHand().predict(graph, model.result_.weights)
        np.testing.assert_array_equal(found, best)


@pytest.mark.parametrize("solver", ["soft-bcfw", "one-slack", "n-slack", "excessive-gap", "smo", "subgradient"])
def test_other_solvers_agree(data, model, solver):
    tol = 1e-3 if solver in ("soft-bcfw", "one-slack", "n-slack") else 0.05
    found = small(solver=solver, tol=tol, max_passes=20_000).fit(*data).result_
    assert found.gap <= tol
    assert found.dual <= model.result_.primal + 1e-9
    assert found.primal >= model.result_.dual - 1e-9


@pytest.mark.parametrize("edge_weights", ["full", "potts"])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("n_edge_features", [0, 1, 2])
def test_intercepts_and_edge_features(data, edge_weights, intercept, n_edge_features):
    rng = np.random.default_rng(0)
    graphs = [(X, edges, rng.normal(size=(len(edges), n_edge_features))) for X, edges in data[0]]
    model = small(edge_weights=edge_weights, fit_intercept=intercept, tol=1e-3, max_passes=5000).fit(graphs, data[1])
    problem = mm.problems.graph_problem(
        graphs if n_edge_features else data[0], data[1], K, edge_weights, node_weights="class-wise", intercept=intercept
    )
    assert model.result_.dual - 1e-9 <= exact_optimum(problem, 10.0) <= model.result_.primal + 1e-9
    assert model.result_.gap <= 1e-3
    q = max(1, n_edge_features)
    assert model.edge_coef_.shape == ((q,) if edge_weights == "potts" else (K, K, q))
    X, edges, Z = graphs[0]
    y = model.predict(graphs[:1])[0]
    value = sum(model.coef_[k] * x[k] + model.intercept_[k] for x, k in zip(X, y, strict=True))
    for (i, j), z in zip(edges, Z if n_edge_features else np.ones((len(edges), 1)), strict=True):
        if edge_weights == "full":
            value += model.edge_coef_[y[i], y[j]] @ z
        elif y[i] == y[j]:
            value += model.edge_coef_ @ z
    assert model.decision_function(graphs[:1])[0] == pytest.approx(value)
    # What the scores' factors do not use stays 0, and is not part of any name.
    used = model.coef_ @ model.coef_ + model.intercept_ @ model.intercept_ + (model.edge_coef_**2).sum()
    assert used == pytest.approx(model.result_.weights @ model.result_.weights)


def test_sparse_scores_are_the_same(data, model):
    graphs = [(sp.csr_array(X), edges) for X, edges in data[0]]
    np.testing.assert_array_equal(small().fit(graphs, data[1]).result_.weights, model.result_.weights)


def test_unknown_nodes_and_no_edges(data):
    graphs, labels = data
    hidden = [np.where(np.arange(6) == 0, -1, row) for row in labels]
    cut = [(X[1:], edges[1:] - 1) for X, edges in graphs]
    one, two = small().fit(graphs, hidden), small().fit(cut, [row[1:] for row in labels])
    np.testing.assert_array_equal(one.result_.weights, two.result_.weights)
    alone = small().fit([(X, []) for X, _ in graphs], labels)
    assert alone.edge_coef_.tolist() == [0.0]


def test_saved_and_scaled_and_with_C_chosen(data, tmp_path):
    for options in ({"C": "auto", "tol": 1e-2}, {"scale": True, "fit_intercept": True}):
        model = small(**options).fit(*data)
        model.save(tmp_path / "a.mm")
        loaded = mm.load(tmp_path / "a.mm")
        assert loaded.node_weights == "class-wise"
        np.testing.assert_array_equal(loaded.coef_, model.coef_)
        assert [row.tolist() for row in loaded.predict(data[0])] == [row.tolist() for row in model.predict(data[0])]


def test_pixel_accuracy_and_node_weights(data, model):
    graphs, labels = data
    rng = np.random.default_rng(1)
    counts = [rng.integers(0, 50, (6, K)) for _ in graphs]
    for one in counts:
        one[4:] = 0  # the coarse level
    predicted = model.predict(graphs)
    right = sum(one[i, y[i]] for one, y in zip(counts, predicted, strict=True) for i in range(6))
    assert model.pixel_accuracy(graphs, counts) == pytest.approx(right / sum(one.sum() for one in counts))
    weight = [np.arange(6) for _ in graphs]
    hits = [(p == y) @ np.arange(6) for p, y in zip(predicted, labels, strict=True)]
    assert model.score(graphs, labels, node_weight=weight) == pytest.approx(sum(hits) / (15 * len(graphs)))
    # Pixels that all have the class of their superpixel are a weight of the superpixel.
    pure = [np.eye(K)[y] * np.arange(6)[:, None] for y in labels]
    assert model.pixel_accuracy(graphs, pure) == pytest.approx(model.score(graphs, labels, node_weight=weight))


def test_levels():
    assert nearest_superpixels([[0.1, 0.1], [0.9, 0.4]], [[1.0, 0.5], [0.0, 0.0], [0.0, 0.0]]).tolist() == [1, 0]
    nodes, edges = two_level_graph(np.eye(3)[:2], sp.csr_array(np.eye(3)), [2, 0])
    assert nodes.toarray().tolist() == [*np.eye(3)[:2].tolist(), *np.eye(3).tolist()]
    assert edges.tolist() == [[0, 4], [1, 2]]


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: two_level_graph(np.eye(3), np.eye(2), [0, 0, 0]), "the same number of features in both"),
        (lambda: two_level_graph(np.eye(2), np.eye(2), [0]), "a whole number for each of the 2 fine superpixels"),
        (
            lambda: two_level_graph(np.eye(2), np.eye(2), [0, 2]),
            "fine superpixel 1 into coarse superpixel 2; there are 2",
        ),
        (lambda: nearest_superpixels(np.zeros((2, 2)), np.zeros((0, 2))), "at least one coarse"),
    ],
)
def test_levels_that_cannot_be(call, sentence):
    with pytest.raises(DataError, match=sentence):
        call()


def test_what_cannot_be_is_a_sentence(data, model):
    graphs, labels = data
    with pytest.raises(OptionError, match="node_weights='one' is not known"):
        small(node_weights="one").fit(*data)
    with pytest.raises(OptionError, match="no kernel"):
        small(kernel="rbf").fit(*data)
    with pytest.raises(
        DataError, match="The nodes have 2 features; class-wise weights need one for each of the 3 classes"
    ):
        small().fit([(X[:, :2], edges) for X, edges in graphs], labels)
    with pytest.raises(DataError, match=r"Graph 0: pixel_counts has shape \(6,\); expected \(6, 3\)"):
        model.pixel_accuracy(graphs, [np.ones(6) for _ in graphs])
    with pytest.raises(DataError, match="node_weight must be finite numbers that are not negative"):
        model.score(graphs, labels, node_weight=[-np.ones(6) for _ in graphs])
    with pytest.raises(DataError, match="There are 12 graphs, but node_weight for 1"):
        model.score(graphs, labels, node_weight=[np.ones(6)])
    with pytest.raises(DataError, match="No node has a pixel"):
        model.pixel_accuracy(graphs, [np.zeros((6, K)) for _ in graphs])


def test_the_command_line(data, model, tmp_path, capsys):
    """Names in another order than the alphabet's: the columns of the file are scores of its own classes."""
    graphs, labels = data
    full = [(X, edges, np.ones((len(edges), 1))) for X, edges in graphs]
    counts = [np.eye(K, dtype=int)[y] * 7 for y in labels]
    file, saved = tmp_path / "two.npz", tmp_path / "two.mm"
    write_graphs(file, GraphData(full, labels, ["sky", "cow", "tree"], counts))
    read = read_graphs(file)
    np.testing.assert_array_equal(read.pixel_counts[3], counts[3])
    line = ["train", file, "-C", 10, "--tol", 1e-4, "--no-intercept", "--edge-weights", "potts", "--quiet", "-o", saved]
    assert run([str(word) for word in [*line, "--set", "node_weights=class-wise"]]) == 0
    capsys.readouterr()
    loaded = mm.load(saved)
    assert loaded.classes_.tolist() == ["cow", "sky", "tree"]
    assert loaded.result_.primal == pytest.approx(model.result_.primal, abs=2e-4)
    assert run(["evaluate", str(saved), str(file), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["pixel_accuracy"] == pytest.approx(found["node_accuracy"])
    assert found["node_accuracy"] == pytest.approx(model.score(graphs, labels), abs=0.05)
    assert run(["info", str(saved)]) == 0
    assert "its score" in capsys.readouterr().out

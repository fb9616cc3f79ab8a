"""GraphSVM: what it accepts, what it learns, and what it refuses in a sentence."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp

import maxmargin as mm
from maxmargin.errors import DataError, OptionError


def ring(n):
    return np.column_stack([np.arange(n), (np.arange(n) + 1) % n])


@pytest.fixture(scope="module")
def data():
    """Rings of 5 nodes with 3 classes; neighbours are often equal, and features are noisy."""
    rng = np.random.default_rng(1)
    graphs, labels = [], []
    for _ in range(15):
        y = np.repeat(rng.integers(0, 3, 2), [2, 3])
        graphs.append((np.eye(3)[y] + 0.5 * rng.normal(size=(5, 3)), ring(5), rng.normal(size=(5, 2))))
        labels.append(np.array(["red", "green", "blue"])[y])
    return graphs, labels


def small(**options):
    return mm.GraphSVM(**({"C": 10.0, "tol": 2e-2} | options))


@pytest.fixture(scope="module")
def model(data):
    return small().fit(*data)


def score_by_hand(model, graph, states):
    X, edges, Z = graph
    value = sum(model.coef_[k] @ x + model.intercept_[k] for x, k in zip(X, states, strict=True))
    return value + sum(model.edge_coef_[states[i], states[j]] @ z for (i, j), z in zip(edges, Z, strict=True))


def test_attributes_have_the_promised_shapes(data, model):
    assert model.classes_.tolist() == ["blue", "green", "red"]
    assert model.coef_.shape == (3, 3)
    assert model.intercept_.shape == (3,)
    assert model.edge_coef_.shape == (3, 3, 2)
    assert (model.n_features_in_, model.n_edge_features_in_) == (3, 2)
    assert model.result_.gap <= 2e-2
    assert model.score(*data) > 0.8
    for part in (model.coef_, model.intercept_, model.edge_coef_):
        assert np.shares_memory(part, model.result_.weights)


def test_prediction_is_the_best_of_all_labelings(data, model):
    graphs, _ = data
    predicted, scores, bounds = model.predict(graphs[:3], return_bound=True)
    state = {name: k for k, name in enumerate(model.classes_)}
    for graph, labels, score in zip(graphs, predicted, scores, strict=False):
        best = max(score_by_hand(model, graph, y) for y in itertools.product(range(3), repeat=5))
        assert score == pytest.approx(best)
        assert score_by_hand(model, graph, [state[name] for name in labels]) == pytest.approx(best)
    np.testing.assert_array_equal(scores, bounds)
    np.testing.assert_array_equal(model.decision_function(graphs[:3]), scores)
    assert model.inference_.startswith("exhaustive (exact)")


def test_potts(data):
    model = small(edge_weights="potts").fit(*data)
    assert model.edge_coef_.shape == (2,)
    assert model.score(*data) > 0.7


def test_edges_without_features(data):
    graphs = [graph[:2] for graph in data[0]]
    model = small().fit(graphs, data[1])
    assert model.edge_coef_.shape == (3, 3, 1)
    assert model.n_edge_features_in_ == 0
    # Equal neighbours are the rule in this data.
    assert np.trace(model.edge_coef_[:, :, 0]) > 0
    assert model.score(graphs, data[1]) > 0.8


def test_without_intercept(data):
    model = small(fit_intercept=False).fit(*data)
    assert model.intercept_.tolist() == [0, 0, 0]
    assert len(model.result_.weights) == 9 + 18


def test_sparse_nodes_agree(data):
    graphs = [(sp.csr_array(X), edges, Z) for X, edges, Z in data[0]]
    sparse, dense = small(tol=1e-4).fit(graphs, data[1]), small(tol=1e-4).fit(*data)
    np.testing.assert_array_equal(sparse.result_.weights, dense.result_.weights)
    assert sparse.result_.primal == dense.result_.primal
    assert [row.tolist() for row in sparse.predict(graphs)] == [row.tolist() for row in sparse.predict(data[0])]


def test_unknown_nodes_are_left_out_with_their_edges(data):
    graphs, labels = data
    hidden = [np.array(row, object) for row in labels]
    for row in hidden:
        row[4] = None
    cut = [(X[:4], edges[:3], Z[:3]) for X, edges, Z in graphs]
    one = small().fit(graphs, hidden)
    two = small().fit(cut, [row[:4] for row in labels])
    np.testing.assert_array_equal(one.result_.weights, two.result_.weights)
    # Such nodes do not count in the score.
    wrong = [np.where(np.arange(5) == 4, None, row) for row in one.predict(graphs)]
    assert one.score(graphs, wrong) == 1.0


@pytest.mark.parametrize("unknown", [-1, np.nan])
def test_unknown_numbers(data, unknown):
    graphs, _ = data
    labels = [np.array([3, 3, 7, 7, unknown]) for _ in graphs]
    model = small(max_passes=3).fit(graphs, labels)
    assert model.classes_.tolist() == [3, 7]


def test_a_graph_without_known_nodes_is_left_out(data):
    graphs, labels = data
    some = [[None] * 5, *labels[1:]]
    one = small().fit(graphs, some, sample_weight=np.arange(15) + 1.0)
    two = small().fit(graphs[1:], labels[1:], sample_weight=np.arange(1, 15) + 1.0)
    np.testing.assert_array_equal(one.result_.weights, two.result_.weights)


def test_graphs_of_other_shapes_and_without_edges(data, model):
    X = np.eye(3)
    for graphs in (
        [(X, [])],
        [(X, np.empty((0, 2), int), np.empty((0, 2)))],
        [(X, [[0, 1]], [[1.0, 0.0]]), (X[:1], [])],
    ):
        predicted = model.predict(graphs)
        assert [len(row) for row in predicted] == [len(graph[0]) for graph in graphs]


def test_large_loopy_graphs_are_decoded_with_a_bound(data, model):
    rng = np.random.default_rng(0)
    grid = np.arange(25).reshape(5, 5)
    edges = np.vstack(
        [
            np.column_stack([grid[:, :-1].ravel(), grid[:, 1:].ravel()]),
            np.column_stack([grid[:-1].ravel(), grid[1:].ravel()]),
        ]
    )
    labels, scores, bounds = model.predict(
        [(rng.normal(size=(25, 3)), edges, rng.normal(size=(40, 2)))], return_bound=True
    )
    assert len(labels[0]) == 25
    assert (bounds >= scores).all()


def test_all_labels_equal(data):
    graphs, labels = data
    model = small().fit(graphs, [["x"] * 5 for _ in labels])
    assert model.classes_.tolist() == ["x"]
    assert model.score(graphs, [["x"] * 5 for _ in labels]) == 1.0


def test_one_graph(data):
    model = small().fit(data[0][:1], data[1][:1])
    assert model.score(data[0][:1], data[1][:1]) == 1.0


def test_a_label_never_seen_counts_as_wrong(data, model):
    graphs, _ = data
    predicted = model.predict(graphs[:1])[0]
    assert model.score(graphs[:1], [["violet", *predicted[1:]]]) == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda g, y: ([], []), "There is no graph: the data is empty"),
        (lambda g, y: ("graphs", y), "graphs is of type str"),
        (lambda g, y: (g, y[:-1]), "There are 15 graphs, but labels for 14"),
        (lambda g, y: (g, None), "labels must be a list"),
        (lambda g, y: (g, [y[0][:4], *y[1:]]), "Graph 0 has 5 nodes, but 4 labels"),
        (lambda g, y: (g, ["abcde", *y[1:]]), "The labels of graph 0 are 'abcde'"),
        (lambda g, y: (g, [[[1]] * 5, *y[1:]]), "Graph 0: node 0 has the label .*not hashable"),
        (lambda g, y: (g, [[None] * 5] * 15), "nothing to learn from"),
        (
            lambda g, y: ([(g[0][0], [[0, 5]], [[1.0, 2.0]]), *g[1:]], y),
            "edge 0 joins nodes 0 and 5, but the graph has nodes 0 to 4",
        ),
        (lambda g, y: ([(g[0][0], [[1, 1]], [[1.0, 2.0]]), *g[1:]], y), "joins node 1 with itself"),
        (lambda g, y: ([(g[0][0] * np.nan, *g[0][1:]), *g[1:]], y), "is nan; features must be finite"),
        (lambda g, y: ([(g[0][0], g[0][1], g[0][2] * np.inf), *g[1:]], y), "features must be finite"),
        (lambda g, y: ([(g[0][0][:, :2], *g[0][1:]), *g[1:]], y), "features"),
        (lambda g, y: ([(g[0][0], g[0][1]), *g[1:]], y), "edge features"),
        (lambda g, y: ([(g[0][0],), *g[1:]], y), "Graph 0 must be a tuple"),
        (lambda g, y: ([(np.empty((0, 3)), []), *g[1:]], y), "Graph 0: the node features have shape"),
    ],
)
def test_bad_data_is_a_sentence(data, change, sentence):
    graphs, labels = change(*data)
    with pytest.raises(DataError, match=sentence):
        small().fit(graphs, labels)


def test_bad_parameters(data):
    with pytest.raises(OptionError, match="edge_weights='ising' is not known"):
        small(edge_weights="ising").fit(*data)
    with pytest.raises(OptionError, match="C=-1 is not possible"):
        small(C=-1).fit(*data)
    with pytest.raises(DataError, match="sample_weight has shape"):
        small().fit(*data, sample_weight=[1.0])


def test_prediction_refuses_other_features(data, model):
    X, edges, Z = data[0][0]
    with pytest.raises(DataError, match="Graph 0 has 2 node features, but GraphSVM is expecting 3"):
        model.predict([(X[:, :2], edges, Z)])
    with pytest.raises(DataError, match="Graph 0 has 1 edge features, but GraphSVM is expecting 2"):
        model.predict([(X, edges, Z[:, :1])])
    with pytest.raises(DataError, match="Graph 0 has 0 edge features, but GraphSVM is expecting 2"):
        model.predict([(X, edges)])

"""The builders of each task against their scores written out, and every sentence of their validation."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp

from maxmargin.errors import DataError, OptionError
from maxmargin.problems import (
    Scores,
    binary_problem,
    chain_problem,
    graph_problem,
    label_edges,
    multi_class_problem,
    multi_label_problem,
)
from maxmargin.problems.losses import variable_losses

RNG = np.random.default_rng(0)
X = RNG.normal(size=(5, 3))


def check_scores(graphs, score, n_checks=20, seed=0):
    """Compare the scores of random labelings with ``score(flat, m, labels)``."""
    rng = np.random.default_rng(seed)
    flat = rng.normal(size=graphs.n_weights)
    tables = graphs.scores(flat)
    n_states = np.diff(np.append(graphs.state_starts(), graphs.example_states[-1]))
    for _ in range(n_checks):
        labels = rng.integers(0, n_states).astype(np.int32)
        found = graphs.labeling_scores(tables, labels)
        for m in range(graphs.n_examples):
            own = labels[graphs.example_variables[m] : graphs.example_variables[m + 1]]
            assert found[m] == pytest.approx(score(flat, m, own), abs=1e-12)


def equal_scores(one, other):
    """Whether two problems give the same score tables under the same random weights."""
    assert one.n_weights == other.n_weights
    flat = np.random.default_rng(1).normal(size=one.n_weights)
    for a, b in zip(one.scores(flat, True), other.scores(flat, True), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-13)


# -------------------------------------------------------------------------------- binary, multi-class


def test_binary_scores():
    graphs = binary_problem(X, [0, 1, 1, 0, 1])
    assert graphs.n_weights == 3
    check_scores(graphs, lambda w, m, y: w @ X[m] * y[0])
    assert graphs.is_forest


def test_multi_class_scores():
    graphs = multi_class_problem(X, [0, 1, 2, 3, 3], 4)
    assert graphs.n_weights == 12
    check_scores(graphs, lambda w, m, y: w.reshape(4, 3)[y[0]] @ X[m])
    assert len(graphs.structures) == 1
    np.testing.assert_array_equal(graphs.arrays.losses[:4], [0, 1, 1, 1])


def test_multi_class_cost_table():
    costs = np.array([[0.0, 1.0, 2.0], [3.0, 0.0, 4.0], [5.0, 6.0, 0.0]])
    graphs = multi_class_problem(X[:3], [1, 2, 0], 3, loss=costs)
    np.testing.assert_array_equal(graphs.arrays.losses.reshape(3, 3), costs[[1, 2, 0]])


def test_one_variable_csr_equals_dense():
    sparse = sp.csr_matrix(X * (np.abs(X) > 0.5))
    equal_scores(
        multi_class_problem(sparse, [0, 1, 2, 0, 1], 3), multi_class_problem(sparse.toarray(), [0, 1, 2, 0, 1], 3)
    )
    equal_scores(binary_problem(sparse, [0, 1, 1, 0, 1]), binary_problem(sparse.toarray(), [0, 1, 1, 0, 1]))


# -------------------------------------------------------------------------------- multi-label

Y = (RNG.random((5, 4)) < 0.5).astype(int)
OWN_EDGES = [[2, 0], [1, 3], [3, 2]]


@pytest.mark.parametrize("edges", ["full", "tree", "none", OWN_EDGES], ids=str)
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_multi_label_scores(edges, form):
    pairs = label_edges(edges, Y)
    graphs = multi_label_problem(form(X), Y, pairs, 4)
    assert graphs.n_weights == 4 * 3 + len(pairs)

    def score(w, m, y):
        of_labels, of_pairs = w[:12].reshape(4, 3), w[12:]
        return sum(of_labels[i] @ X[m] * y[i] for i in range(4)) + sum(
            of_pairs[e] * y[i] * y[j] for e, (i, j) in enumerate(pairs)
        )

    check_scores(graphs, score)
    assert len(graphs.structures) == 1
    assert graphs.is_forest == (edges != "full")
    np.testing.assert_array_equal(graphs.labels.reshape(5, 4), Y)
    np.testing.assert_allclose(graphs.labeling_losses(1 - graphs.labels), 1.0)


def test_edges_by_name():
    np.testing.assert_array_equal(label_edges("full", Y), list(itertools.combinations(range(4), 2)))
    assert label_edges("none", Y).shape == (0, 2)
    assert label_edges([], Y).shape == (0, 2)
    np.testing.assert_array_equal(label_edges(OWN_EDGES, Y), [[0, 2], [1, 3], [2, 3]])
    assert label_edges("tree", Y[:, :1]).shape == (0, 2)


@pytest.mark.parametrize("n_labels", [0, 1, 2, 4])
def test_a_tree_without_rows_or_labels_makes_no_fuss(n_labels):
    # Warnings are errors here.
    assert label_edges("tree", np.empty((0, n_labels))).shape == (max(n_labels - 1, 0), 2)
    assert label_edges("full", np.empty((0, n_labels))).shape == (n_labels * (n_labels - 1) // 2, 2)


def mutual_information(a, b):
    total = 0.0
    for i, j in itertools.product((0, 1), repeat=2):
        joint = np.mean((a == i) & (b == j))
        if joint > 0:
            total += joint * np.log(joint / (np.mean(a == i) * np.mean(b == j)))
    return total


@pytest.mark.parametrize("seed", range(6))
def test_tree_is_the_spanning_tree_of_greatest_mutual_information(seed):
    rng = np.random.default_rng(seed)
    n_labels = 5
    labels = (rng.random((30, n_labels)) < rng.random(n_labels)).astype(int)
    labels[:, 1] = np.where(rng.random(30) < 0.8, labels[:, 0], 1 - labels[:, 0])
    if seed == 0:
        labels[:, 2] = 0  # a label that never occurs shares no information with any other
    pairs = list(itertools.combinations(range(n_labels), 2))
    information = {pair: mutual_information(labels[:, pair[0]], labels[:, pair[1]]) for pair in pairs}

    def spans(tree):
        reached = {0}
        for _ in tree:
            reached |= {v for edge in tree if reached & set(edge) for v in edge}
        return len(reached) == n_labels

    best = max(sum(information[e] for e in tree) for tree in itertools.combinations(pairs, n_labels - 1) if spans(tree))
    found = [tuple(int(v) for v in edge) for edge in label_edges("tree", labels)]
    assert len(found) == n_labels - 1
    assert spans(found)
    assert sum(information[edge] for edge in found) == pytest.approx(best, abs=1e-12)


def test_multi_label_costs():
    graphs = multi_label_problem(X, Y, label_edges("none", Y), 4, loss=[1.0, 2.0, 3.0, 4.0])
    np.testing.assert_allclose(graphs.labeling_losses(1 - graphs.labels), 2.5)
    counted = multi_label_problem(X, Y, label_edges("none", Y), 4, loss="count")
    np.testing.assert_allclose(counted.labeling_losses(1 - counted.labels), 4.0)


# -------------------------------------------------------------------------------- chains

SEQUENCES = [RNG.normal(size=(n, 2)) for n in (3, 1, 4, 3)]
TAGS = [RNG.integers(0, 3, len(s)) for s in SEQUENCES]


@pytest.mark.parametrize("boundary", [False, True])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_chain_scores(boundary, form):
    graphs = chain_problem([form(s) for s in SEQUENCES], TAGS, 3, boundary=boundary)
    assert graphs.n_weights == 6 + 9 + (6 if boundary else 0)
    assert graphs.variable_features.sparse == (form is sp.csr_array)

    def score(w, m, y):
        of_tags, moves = w[:6].reshape(3, 2), w[6:15].reshape(3, 3)
        total = sum(of_tags[k] @ x for k, x in zip(y, SEQUENCES[m], strict=True))
        total += sum(moves[a, b] for a, b in itertools.pairwise(y))
        return total + (w[15 + y[0]] + w[18 + y[-1]] if boundary else 0.0)

    check_scores(graphs, score)
    assert graphs.is_forest
    # Lengths 1, 3 and 4: the two chains of length 3 share their structure.
    assert len(graphs.structures) == 3
    assert graphs.structure_of[0] == graphs.structure_of[3]
    np.testing.assert_array_equal(graphs.labels, np.concatenate(TAGS))
    # Each of the 11 positions counts the same, and their mean is 1; or each of the 4 sequences does.
    np.testing.assert_allclose(graphs.labeling_losses((graphs.labels + 1) % 3), np.array([3, 1, 4, 3]) * 4 / 11)
    fraction = chain_problem([form(s) for s in SEQUENCES], TAGS, 3, boundary=boundary, loss="fraction")
    np.testing.assert_allclose(fraction.labeling_losses((graphs.labels + 1) % 3), 1.0)


def test_forbidden_transitions():
    mask = np.zeros((3, 3), bool)
    mask[0, 1] = True
    graphs = chain_problem(SEQUENCES[:1], None, 3, boundary=False, forbidden=mask)
    tables = graphs.scores(np.zeros(graphs.n_weights))
    np.testing.assert_array_equal(np.isneginf(tables.factors.reshape(2, 3, 3)), [mask, mask])
    assert not graphs.has_labels
    np.testing.assert_array_equal(graphs.labels, -1)


@pytest.mark.parametrize("boundary", [False, True])
@pytest.mark.parametrize(("order", "emission_order"), [(0, 0), (1, 1), (2, 0), (2, 1), (2, 2)])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_scores_of_chains_of_other_orders(boundary, order, emission_order, form):
    graphs = chain_problem(
        [form(s) for s in SEQUENCES], TAGS, 3, boundary=boundary, order=order, emission_order=emission_order
    )
    sizes = [9 if order else 0, 27 if order == 2 else 0, *([3, 3] if boundary else [0, 0])]
    width = 3 if emission_order else 1
    assert graphs.n_weights == 6 + width * sum(sizes)

    def score(w, m, y):
        x, of_tags = SEQUENCES[m], w[:6].reshape(3, 2)
        pairs, triples, start, end = np.split(w[6:].reshape(-1, width), np.cumsum(sizes)[:-1])
        total = sum(of_tags[k] @ row for k, row in zip(y, x, strict=True))
        # A block is the features' weights, if there are any, and the constant's.
        for t in range(1, len(y)):
            if order >= 1:
                block = pairs[3 * y[t - 1] + y[t]]
                total += block[-1] + (block[:-1] @ x[t] if emission_order >= 1 else 0.0)
            if order == 2 and t >= 2:
                block = triples[9 * y[t - 2] + 3 * y[t - 1] + y[t]]
                total += block[-1] + (block[:-1] @ x[t] if emission_order == 2 else 0.0)
        return total + (start[y[0], -1] + end[y[-1], -1] if boundary else 0.0)

    check_scores(graphs, score)
    assert graphs.is_forest == (order < 2)
    assert graphs.factor_features.sparse == (bool(emission_order) and form is sp.csr_array)


@pytest.mark.parametrize("boundary", [False, True])
@pytest.mark.parametrize("order", [0, 1, 2])
def test_constraints_hold_at_every_order(boundary, order):
    mask, first = np.zeros((3, 3), bool), np.array([False, False, True])
    mask[0, 1] = True
    graphs = chain_problem(
        SEQUENCES[:1], None, 3, boundary=boundary, order=order, forbidden=mask, forbidden_first=first
    )
    tables = graphs.scores(np.random.default_rng(0).normal(size=graphs.n_weights))
    for y in itertools.product(range(3), repeat=3):
        value = graphs.labeling_scores(tables, np.array(y, np.int32))[0]
        assert np.isneginf(value) == (y[0] == 2 or any(mask[a, b] for a, b in itertools.pairwise(y)))


def test_some_sparse_parts_make_all_sparse():
    mixed = chain_problem([sp.csr_array(SEQUENCES[0]), *SEQUENCES[1:]], TAGS, 3)
    assert mixed.variable_features.sparse
    equal_scores(mixed, chain_problem(SEQUENCES, TAGS, 3))


def test_chain_cost_table_is_a_mean_over_all_positions():
    costs = np.array([[0.0, 1.0, 2.0], [3.0, 0.0, 4.0], [5.0, 6.0, 0.0]])
    graphs = chain_problem(SEQUENCES, TAGS, 3, loss=costs)
    other = (graphs.labels + 1) % 3
    found = graphs.labeling_losses(other)
    for m, tags in enumerate(TAGS):
        assert found[m] == pytest.approx(np.sum(costs[tags, (tags + 1) % 3]) / np.mean([len(one) for one in TAGS]))


# -------------------------------------------------------------------------------- graphs

NODES = [RNG.normal(size=(n, 2)) for n in (3, 4, 3, 2)]
EDGES = [[[0, 1], [2, 1]], [[0, 1], [1, 2], [2, 3], [0, 3]], [[0, 1], [2, 1]], []]
EDGE_FEATURES = [RNG.normal(size=(len(e), 2)) for e in EDGES]
NODE_LABELS = [RNG.integers(0, 3, len(n)) for n in NODES]


@pytest.mark.parametrize("edge_weights", ["full", "potts"])
@pytest.mark.parametrize("with_features", [False, True])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_graph_scores(edge_weights, with_features, form):
    parts = zip(NODES, EDGES, EDGE_FEATURES, strict=True)
    given = [(form(n), e, z) if with_features else (form(n), e) for n, e, z in parts]
    graphs = graph_problem(given, NODE_LABELS, 3, edge_weights=edge_weights)
    q = 2 if with_features else 1
    assert graphs.n_weights == 6 + (9 if edge_weights == "full" else 1) * q

    def score(w, m, y):
        of_states, of_pairs = w[:6].reshape(3, 2), w[6:].reshape(-1, q)
        total = sum(of_states[k] @ x for k, x in zip(y, NODES[m], strict=True))
        for e, (i, j) in enumerate(EDGES[m]):
            z = EDGE_FEATURES[m][e] if with_features else np.ones(1)
            if edge_weights == "full":
                total += of_pairs[3 * y[i] + y[j]] @ z
            elif y[i] == y[j]:
                total += of_pairs[0] @ z
        return total

    check_scores(graphs, score)
    # Graphs 0 and 2 have the same edges.
    assert len(graphs.structures) == 3
    assert graphs.structure_of[0] == graphs.structure_of[2]
    assert not graphs.is_forest
    np.testing.assert_array_equal(graphs.labels, np.concatenate(NODE_LABELS))


def test_graphs_without_any_edge():
    for given in ((NODES[0], []), (NODES[0], [], np.empty((0, 2)))):
        graphs = graph_problem([given], None, 3)
        assert isinstance(graphs.scores(np.zeros(graphs.n_weights)), Scores)
        assert graphs.is_forest
        assert graphs.example_tables[-1] == 0


def test_one_example_is_enough():
    assert binary_problem(X[:1], [1]).n_examples == 1
    assert multi_class_problem(X[:1], [2], 3).n_examples == 1
    assert multi_label_problem(X[:1], Y[:1], label_edges("full", Y), 4).n_examples == 1
    assert chain_problem(SEQUENCES[:1], TAGS[:1], 3).n_examples == 1
    assert graph_problem([(NODES[0], EDGES[0])], NODE_LABELS[:1], 3).n_examples == 1


def test_problems_to_predict_have_no_labels():
    for graphs in (
        binary_problem(X, None),
        multi_class_problem(X, None, 3),
        multi_label_problem(X, None, label_edges("full", Y), 4),
        chain_problem(SEQUENCES, None, 3),
        graph_problem([(NODES[0], EDGES[0])], None, 3),
    ):
        assert not graphs.has_labels
        assert (graphs.labels == -1).all()


# -------------------------------------------------------------------------------- sentences

NAN = np.where(np.arange(15).reshape(5, 3) == 7, np.nan, X)
CELL = np.zeros((5, 4), bool)
CELL[2:, 1] = True
EDGES_4 = label_edges("none", Y)
INF = np.where(np.arange(15).reshape(5, 3) == 7, np.inf, X)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: binary_problem(NAN, [0] * 5), r"X\[2, 1\] is nan; features must be finite"),
        (lambda: multi_class_problem(INF, [0] * 5, 2), r"X\[2, 1\] is inf; features must be finite"),
        (lambda: multi_label_problem(sp.csr_array(NAN), Y, label_edges("none", Y), 4), r"X\[2, 1\] is nan"),
        (lambda: binary_problem(X[0], [0]), r"X has 1 dimension\(s\), shape \(3,\); expected 2"),
        (lambda: binary_problem(np.array([["a"]]), [0]), "X holds values that are not real numbers"),
        (lambda: binary_problem(X[:0], []), "There are no examples: the data is empty"),
        (lambda: multi_label_problem(X[:0], Y[:0], label_edges("none", Y), 4), "X has no rows: the data is empty"),
        (lambda: binary_problem(X, [0, 1]), r"X has 5 rows, but y has shape \(2,\); expected \(5,\)"),
        (lambda: binary_problem(X, [0, 1, 2, 0, 0]), "Example 2: variable 0 has label 2; its states are 0 to 1"),
        (lambda: binary_problem(X, [0, 1, 0, 0, 2]), "Example 4: variable 0 has label 2; its states are 0 to 1"),
        (
            lambda: multi_class_problem(X, [0, 1, -1, 0, 0], 3),
            "Example 2: variable 0 has label -1; its states are 0 to 2",
        ),
        (
            lambda: multi_class_problem(X, [0, 1, 0, 0, 3], 3, loss=1 - np.eye(3)),
            "Example 4: variable 0 has label 3; its states are 0 to 2",
        ),
        (
            lambda: binary_problem(X, [0] * 5, sample_weight=[1, 2]),
            r"sample weights have shape \(2,\); expected \(5,\)",
        ),
        (
            lambda: binary_problem(X, [0] * 5, sample_weight=[-1, 2, 1, 1, 1]),
            "Sample weights must be finite, not negative",
        ),
        (
            lambda: binary_problem(X, [0] * 5, loss="hinge"),
            r'loss=\'hinge\' is not known; use "hamming", "fraction", "count", "zero-one" or a table',
        ),
        (
            lambda: multi_label_problem(X, Y.T, label_edges("none", Y), 4),
            r"Y has shape \(4, 5\); expected \(5, 4\): a row for each row of X, a column a label",
        ),
        (lambda: multi_label_problem(X, Y[:3], label_edges("none", Y), 4), r"Y has shape \(3, 4\); expected \(5, 4\)"),
        (lambda: multi_label_problem(X, np.where(CELL, 2, Y), EDGES_4, 4), r"Y\[2, 1\] is 2; a label is 0 or 1\."),
        (lambda: multi_label_problem(X, np.where(CELL, 0.5, Y), EDGES_4, 4), r"Y must be .*; entry \[2, 1\] is 0\.5\."),
        (lambda: multi_label_problem(X, np.where(CELL, np.nan, Y), EDGES_4, 4), r"Y must be .*entry \[2, 1\] is nan\."),
        (lambda: multi_label_problem(X, Y.astype(str), EDGES_4, 4), "Y must be whole numbers; found dtype <U"),
        (lambda: multi_class_problem(X, [0, 1, 1.5, 0, 2.5], 3), r"y must be whole numbers; entry \[2\] is 1\.5\."),
        (lambda: multi_class_problem(X, [0, 1, np.inf, 0, 1], 3), r"y must be whole numbers; entry \[2\] is inf\."),
        (lambda: multi_class_problem(X, [0, 2**32, 0, 0, 0], 3), r"y must be whole numbers; entry \[1\] is 4294967296"),
        (lambda: multi_class_problem(X, list("abcab"), 3), "y must be whole numbers; found dtype <U1"),
        (lambda: binary_problem(X, [None] * 5), "y must be whole numbers; found dtype object"),
        (lambda: binary_problem(X.astype(complex), [0] * 5), "X holds values that are not real numbers .*complex128"),
        (lambda: binary_problem(sp.csr_array(X.astype(complex)), [0] * 5), "X holds .* not real numbers .*complex128"),
        (lambda: binary_problem(X.astype(str), [0] * 5), "X holds values that are not real numbers .*<U"),
        (lambda: label_edges("star", Y), r'edges=\'star\' is not known; use "full", "tree", "none" or a list of pairs'),
        (lambda: label_edges([[0, 1], [2, 4]], Y), "Edge 1 joins labels 2 and 4, but there are labels 0 to 3 only"),
        (lambda: label_edges([[1, 1]], Y), "Edge 0 joins label 1 with itself"),
        (lambda: label_edges([[0, 1], [1, 0]], Y), r"Edges 0 and 1 both join labels 0 and 1\."),
        (
            lambda: label_edges([[0, 1, 2]], Y),
            r"edges has shape \(1, 3\).*expected whole numbers of shape \(n_edges, 2\)",
        ),
        (lambda: label_edges([[0.0, 1.0]], Y), "edges has .*dtype float64; expected whole numbers"),
        (lambda: chain_problem([], [], 3), "There is no sequence: the data is empty"),
        (lambda: chain_problem([X, X[:0]], None, 3), "Sequence 1 is empty"),
        (lambda: chain_problem([X, X[0]], None, 3), r"Sequence 1 has shape \(3,\); expected \(rows, features\)"),
        (lambda: chain_problem([X, X[:, :2]], None, 3), "Sequence 1 has 2 features; sequence 0 has 3"),
        (lambda: chain_problem([X, NAN, INF], None, 3), r"Sequence 1: X\[2, 1\] is nan; features must be finite"),
        (lambda: chain_problem([X, sp.csr_array(INF)], None, 3), r"Sequence 1: X\[2, 1\] is inf; features must"),
        (lambda: chain_problem([sp.csr_array(X), NAN], None, 3), r"Sequence 1: X\[2, 1\] is nan; features must"),
        (
            lambda: chain_problem([X, X.astype(complex)], None, 3),
            "Sequence 1: X holds values that are not real numbers",
        ),
        (lambda: chain_problem([sp.csr_array(X), X.astype(str)], None, 3), "Sequence 1: X holds .* not real numbers"),
        (
            lambda: chain_problem([X, X], [[0] * 5, [0, 0, 0.5, 0, 0]], 3),
            r"Example 1: its tags must be whole numbers; entry \[2\] is 0\.5\.",
        ),
        (
            lambda: chain_problem([X], [list("NVNVN")], 3),
            "Example 0: its tags must be whole numbers; found dtype <U1",
        ),
        (lambda: chain_problem([X], [[0, 1]], 3), r"Example 0 has 5 rows, but its tags have shape \(2,\)"),
        (lambda: chain_problem([X], [[0] * 5, [0]], 3), "There are 1 examples, but 2 tags"),
        (
            lambda: chain_problem([X, X], [[0] * 5, [0, 0, 0, 0, 3]], 3),
            "Example 1: variable 4 has label 3; its states are 0 to 2",
        ),
        (
            lambda: chain_problem([X], None, 3, forbidden=np.zeros((2, 2))),
            r"forbidden has shape \(2, 2\); expected \(3, 3\)",
        ),
        (
            lambda: chain_problem([X, X], [[0] * 5, [0, 0, 1, 1, 1]], 2, forbidden=[[0, 1], [0, 0]]),
            "Example 1: its own labels are forbidden by the hard constraints",
        ),
        (lambda: chain_problem([X], None, 2, forbidden=np.ones((2, 2))), "forbids all of its states"),
        (
            lambda: chain_problem([X], None, 3, forbidden_first=np.zeros(2)),
            r"forbidden_first has shape \(2,\); expected \(3,\)",
        ),
        (lambda: graph_problem([], [], 3), "There is no graph: the data is empty"),
        (lambda: graph_problem([X], None, 3), r"Graph 0 must be a tuple \(node_features, edges\)"),
        (
            lambda: graph_problem([(X, [[0, 5]])], None, 3),
            "Graph 0: edge 0 joins nodes 0 and 5, but the graph has nodes 0 to 4",
        ),
        (lambda: graph_problem([(X, []), (X, [[0, 1], [2, 2]])], None, 3), "Graph 1: edge 1 joins node 2 with itself"),
        (
            lambda: graph_problem([(X, [[0.5, 1]])], None, 3),
            "Graph 0: edges have .*dtype float64; expected whole numbers",
        ),
        (
            lambda: graph_problem([(X, []), (X, [[0, 1], [2, 3], [1, 2], [3, 2], [1, 0]])], None, 3),
            r"Graph 1: edges 1 and 3 both join nodes 3 and 2\.",
        ),
        (lambda: graph_problem([(X, [[0, 1], [0, 1]])], None, 3), "Graph 0: edges 0 and 1 both join nodes 0 and 1"),
        (lambda: graph_problem([(X, []), (NAN, [])], None, 3), r"Graph 1: node_features\[2, 1\] is nan; features"),
        (lambda: graph_problem([(X, []), (sp.csr_array(INF), [])], None, 3), r"Graph 1: node_features\[2, 1\] is inf"),
        (
            lambda: graph_problem([(X, [[0, 1]], [[1.0]]), (X, [[0, 1], [1, 2]], [[1.0], [np.inf]])], None, 3),
            r"Graph 1: edge_features\[1, 0\] is inf",
        ),
        (
            lambda: graph_problem([(X, [[0, 1]], [[1j]])], None, 3),
            "Graph 0: edge_features holds values that are not real numbers",
        ),
        (lambda: graph_problem([(np.ones(3), [])], None, 3), r"Graph 0 has shape \(3,\); expected \(rows, features\)"),
        (lambda: graph_problem([(X, [0, 1])], None, 3), r"Graph 0: edges have shape \(2,\)"),
        (
            lambda: graph_problem([(X, [[0, 1]], np.ones((2, 1)))], None, 3),
            r"Graph 0 has 1 edges, but its edge features have shape \(2, 1\); expected \(n_edges, q\)",
        ),
        (lambda: graph_problem([(X, [[0, 1]], [[np.nan]])], None, 3), r"Graph 0: edge_features\[0, 0\] is nan"),
        (
            lambda: graph_problem([(X, [[0, 1]], [[1.0]]), (X, [[0, 1]])], None, 3),
            "Some graphs have other edge features than the rest",
        ),
        (lambda: graph_problem([(X, [])], [[0] * 4], 3), r"Example 0 has 5 rows, but its labels have shape \(4,\)"),
        (
            lambda: graph_problem([(X, [])], [[0, 1, 2, 3, 0]], 3),
            "Example 0: variable 3 has label 3; its states are 0 to 2",
        ),
        (
            lambda: graph_problem([(X, [])], None, 3, edge_weights="ising"),
            r'edge_weights=\'ising\' is not known; use "full" or',
        ),
        (
            lambda: multi_class_problem(X, [0] * 5, 2, loss=np.ones((3, 3))),
            r"loss has shape \(3, 3\); expected \(K, K\) with K = 2",
        ),
        (lambda: multi_class_problem(X, [0] * 5, 2, loss=[[0, -1], [1, 0]]), "finite costs that are not negative"),
        (
            lambda: multi_class_problem(X, [0] * 5, 2, loss=np.ones((1, 1, 1, 1))),
            "loss has 4 dimensions; expected 1, 2 or 3",
        ),
        (
            lambda: multi_label_problem(X, Y, label_edges("none", Y), 4, loss=[1, 2]),
            "loss has 2 costs; expected one for each of the 4",
        ),
    ],
)
def test_sentences(call, sentence):
    with pytest.raises((DataError, OptionError), match=sentence):
        call()


def test_whole_floats_and_booleans_are_labels():
    for y in ([0.0, 1.0, 1.0, 0.0, 1.0], [False, True, True, False, True], np.array([0, 1, 1, 0, 1], np.uint64)):
        graphs = binary_problem(X, y)
        assert graphs.labels.dtype == np.int32
        np.testing.assert_array_equal(graphs.labels, [0, 1, 1, 0, 1])
    np.testing.assert_array_equal(multi_label_problem(X, Y.astype(bool), EDGES_4, 4).labels, Y.ravel())


def test_losses_leave_unknown_labels_alone():
    found = variable_losses(np.array([1, -1]), np.array([2, 2]), np.array([2]), "hamming")
    np.testing.assert_array_equal(found, [0.5, 0.0, 0.5, 0.5])

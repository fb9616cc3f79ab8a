"""Graphs from pictures, matrices and networkx, against loops over pixels and pairs."""

import numpy as np
import pytest
import scipy.sparse as sp

import maxmargin as mm
from maxmargin.errors import DataError, OptionError
from maxmargin.problems.graphs import check_graph
from maxmargin.problems.grids import grid_edges


@pytest.mark.parametrize("neighbours", [4, 8])
@pytest.mark.parametrize("shape", [(3, 5), (1, 4), (6, 1), (1, 1)])
def test_neighbours_of_a_grid(neighbours, shape):
    h, w = shape
    expected = set()
    for r in range(h):
        for c in range(w):
            for dr in (-1, 0, 1):
                for dc in (-1, 0, 1):
                    near = (dr or dc) and (neighbours == 8 or not (dr and dc))
                    if near and 0 <= r + dr < h and 0 <= c + dc < w:
                        expected.add(frozenset((r * w + c, (r + dr) * w + c + dc)))
    edges = grid_edges(h, w, neighbours)
    assert {frozenset(edge) for edge in edges.tolist()} == expected
    assert len(edges) == len(expected)
    check_graph(0, (np.ones((h * w, 1)), edges))


@pytest.mark.parametrize("channels", [None, 3])
def test_contrast_of_a_picture(channels):
    rng = np.random.default_rng(0)
    image = rng.random((4, 6) if channels is None else (4, 6, channels))
    nodes, edges, features = mm.grid_graph(image, neighbours=8)
    pixels = image.reshape(24, -1)
    np.testing.assert_array_equal(nodes, pixels)
    differ = np.array([((pixels[i] - pixels[j]) ** 2).sum() for i, j in edges])
    np.testing.assert_array_equal(features[:, 0], 1.0)
    np.testing.assert_allclose(features[:, 1], np.exp(-differ / (2 * differ.mean())))
    np.testing.assert_allclose(mm.grid_graph(image, beta=3.0)[2][:, 1], np.exp(-3.0 * differ[: len(edges) - 30]))
    np.testing.assert_array_equal(mm.grid_graph(np.ones((3, 3)))[2], 1.0)
    more = rng.random((4, 6, 5))
    np.testing.assert_array_equal(mm.grid_graph(image, more)[0], more.reshape(24, 5))
    np.testing.assert_array_equal(mm.grid_graph(image, more.reshape(24, 5))[0], more.reshape(24, 5))


def test_a_picture_is_segmented_and_shown():
    rng = np.random.default_rng(1)
    truth = np.zeros((12, 12), int)
    truth[3:9, 3:9] = 1
    images = [truth + 0.6 * rng.normal(size=truth.shape) for _ in range(4)]
    graphs = [mm.grid_graph(image) for image in images]
    model = mm.GraphSVM(C=100, edge_weights="potts").fit(graphs[:3], [truth.ravel()] * 3)
    found = mm.labels_as_image(model.predict(graphs[3:])[0], truth.shape)
    assert found.shape == truth.shape
    assert np.mean(found == truth) > np.mean((images[3] > 0.5) == truth)
    segments = np.array([[0, 0, 1], [2, 1, 1]])
    np.testing.assert_array_equal(mm.labels_as_image(["a", "b", "c"], segments), [["a", "a", "b"], ["c", "b", "b"]])
    assert mm.labels_as_image(np.ones((6, 4)), (2, 3)).shape == (2, 3, 4)


def test_what_pictures_refuse():
    with pytest.raises(DataError, match=r"image has shape \(3,\)"):
        mm.grid_graph([1.0, 2.0, 3.0])
    with pytest.raises(DataError, match=r"image\[0, 1\] is nan"):
        mm.grid_graph([[1.0, np.nan]])
    with pytest.raises(DataError, match=r"node_features has shape \(3, 3\); expected \(2, 2, p\) or \(4, p\)"):
        mm.grid_graph(np.ones((2, 2)), np.ones((3, 3)))
    with pytest.raises(OptionError, match="neighbours=6 is not possible"):
        mm.grid_graph(np.ones((2, 2)), neighbours=6)
    with pytest.raises(OptionError, match="beta=-1 is not possible"):
        mm.grid_graph(np.ones((2, 2)), beta=-1)
    with pytest.raises(DataError, match="expected one for each of the 2 x 3 pixels"):
        mm.labels_as_image([1, 2], (2, 3))
    with pytest.raises(DataError, match="there are 2 labels"):
        mm.labels_as_image([1, 2], np.array([[0, 2]]))


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array, sp.coo_array, sp.csc_matrix])
@pytest.mark.parametrize("part", ["whole", "upper", "lower"])
def test_matrices_of_neighbours(kind, part):
    rng = np.random.default_rng(2)
    whole = np.where(rng.random((9, 9)) < 0.3, rng.normal(size=(9, 9)).round(2), 0.0)
    whole = whole + whole.T + np.eye(9)
    given = {"whole": whole, "upper": np.triu(whole), "lower": np.tril(whole)}[part]
    X = rng.normal(size=(9, 2))
    expected = {(i, j): whole[i, j] for i in range(9) for j in range(i + 1, 9) if whole[i, j] != 0}
    nodes, edges, features = mm.graph_from_adjacency(kind(given), X, weights=True)
    assert dict(zip(map(tuple, edges.tolist()), features[:, 1], strict=True)) == pytest.approx(expected)
    np.testing.assert_array_equal(features[:, 0], 1.0)
    np.testing.assert_array_equal(nodes, X)
    check_graph(0, (nodes, edges, features))
    np.testing.assert_array_equal(mm.graph_from_adjacency(kind(given), X)[1], edges)


def test_what_matrices_refuse():
    X = np.ones((2, 1))
    with pytest.raises(DataError, match=r"adjacency\[0, 1\] and adjacency\[1, 0\] differ, 2 and 1"):
        mm.graph_from_adjacency([[0, 1], [2, 0]], X, weights=True)
    assert len(mm.graph_from_adjacency([[0, 1], [2, 0]], X)[1]) == 1
    with pytest.raises(DataError, match=r"adjacency has shape \(1, 2\)"):
        mm.graph_from_adjacency([[0, 1]], X)
    with pytest.raises(DataError, match="a row for each of the 2 nodes"):
        mm.graph_from_adjacency(np.ones((2, 2)), np.ones((3, 1)))
    with pytest.raises(DataError, match=r"adjacency\[0, 1\] is nan"):
        mm.graph_from_adjacency([[0, np.nan], [0, 0]], X)
    assert mm.graph_from_adjacency(np.eye(2), X)[1].shape == (0, 2)


def test_networkx():
    nx = pytest.importorskip("networkx")
    graph = nx.karate_club_graph()
    for node in graph:
        graph.nodes[node]["x"] = [graph.degree[node], float(node == 0)]
        graph.nodes[node]["one"] = 1
    nodes, edges, features = mm.graph_from_networkx(graph, ["one", "x"], "weight")
    order = list(graph.nodes)
    assert nodes.shape == (34, 3)
    np.testing.assert_array_equal(nodes[:, 1], [graph.degree[node] for node in order])
    assert {frozenset((order[i], order[j])) for i, j in edges} == {frozenset(edge) for edge in graph.edges}
    np.testing.assert_array_equal(features[:, 1], [graph.edges[order[i], order[j]]["weight"] for i, j in edges])
    labels = [graph.nodes[node]["club"] for node in order]
    model = mm.GraphSVM(C=10, tol=1e-2, max_passes=20).fit([(nodes, edges, features)], [labels])
    assert len(model.predict([(nodes, edges, features)])[0]) == 34
    plain = mm.graph_from_networkx(graph, np.ones((34, 1)))
    assert len(plain) == 2
    with pytest.raises(DataError, match="Node 0 has no attribute 'y'"):
        mm.graph_from_networkx(graph, "y")
    with pytest.raises(DataError, match="no numbers"):
        mm.graph_from_networkx(graph, "club")
    with pytest.raises(DataError, match="multigraph"):
        mm.graph_from_networkx(nx.MultiGraph(graph), "one")
    with pytest.raises(DataError, match="expected a graph of networkx"):
        mm.graph_from_networkx([[0, 1]], "one")
    directed = nx.DiGraph([(0, 1), (1, 2)])
    assert mm.graph_from_networkx(directed, np.ones((3, 1)))[1].tolist() == [[0, 1], [1, 2]]

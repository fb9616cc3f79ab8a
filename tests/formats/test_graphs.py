"""Graphs in npz files: dtypes, splits, and the sentence for everything that does not fit together."""

import numpy as np
import pytest

from maxmargin.errors import DataError
from maxmargin.formats.graphs import GraphData, read_graphs, write_graphs


def arrays(**changes):
    """Two graphs: a path of three nodes, and two nodes without an edge; a third of two nodes and one edge."""
    base = {
        "X": np.arange(14, dtype=np.float16).reshape(7, 2),
        "y": np.array([0, 1, -1, 2, 0, 1, 1], dtype=np.int8),
        "edges": np.array([[0, 1], [1, 2], [1, 0]], dtype=np.uint16),
        "edge_features": np.array([[1], [2], [3]], dtype=np.float32),
        "node_ptr": np.array([0, 3, 5, 7]),
        "edge_ptr": np.array([0, 2, 2, 3], dtype=np.uint8),
        "split": np.array([0, 1, 0], dtype=np.int8),
        "classes": np.array(["sky", "tree", "cow"]),
        "image": np.array(["ignored"] * 3),
    }
    base.update(changes)
    return {name: array for name, array in base.items() if array is not None}


def write(tmp_path, **changes):
    path = tmp_path / "set.npz"
    np.savez(path, **arrays(**changes))
    return path


def test_read(tmp_path):
    data = read_graphs(write(tmp_path))
    assert len(data.graphs) == 3
    assert data.class_names == ["sky", "tree", "cow"]
    nodes, edges, edge_features = data.graphs[0]
    assert (nodes.dtype, edges.dtype, edge_features.dtype) == (np.float64, np.int64, np.float64)
    np.testing.assert_array_equal(nodes, [[0, 1], [2, 3], [4, 5]])
    np.testing.assert_array_equal(edges, [[0, 1], [1, 2]])
    np.testing.assert_array_equal(edge_features, [[1], [2]])
    np.testing.assert_array_equal(data.labels[0], [0, 1, -1])
    assert data.labels[0].dtype == np.int64
    assert data.graphs[1][1].shape == (0, 2)
    np.testing.assert_array_equal(data.graphs[2][1], [[1, 0]])


def test_split(tmp_path):
    path = write(tmp_path)
    assert len(read_graphs(path, split=0).graphs) == 2
    np.testing.assert_array_equal(read_graphs(path, split=1).labels[0], [2, 0])
    with pytest.raises(DataError, match=r"set.npz: no graph has split=7; found \[0, 1\]"):
        read_graphs(path, split=7)
    with pytest.raises(DataError, match=r"set.npz: split=0 was asked for, but the file has no array 'split'"):
        read_graphs(write(tmp_path, split=None), split=0)
    with pytest.raises(DataError, match=r"'split' has dtype float64 .* expected one integer for each of the 3 graphs"):
        read_graphs(write(tmp_path, split=np.zeros(2)), split=0)


def test_pixels(tmp_path):
    assert read_graphs(write(tmp_path)).pixel_counts is None
    counts = np.arange(28, dtype=np.uint16).reshape(7, 4)
    data = read_graphs(write(tmp_path, pixel_label_counts=counts), split=0)
    np.testing.assert_array_equal(data.pixel_counts[1], counts[5:, 1:])
    pixels = read_graphs(write(tmp_path, npix=np.arange(1, 8))).pixel_counts[0]
    # The label of the third node is not known.
    np.testing.assert_array_equal(pixels, [[1, 0, 0], [0, 2, 0], [0, 0, 0]])
    with pytest.raises(DataError, match=r"'pixel_label_counts' has shape \(7, 3\) .* expected \(7, 4\)"):
        read_graphs(write(tmp_path, pixel_label_counts=counts[:, 1:]))
    with pytest.raises(DataError, match=r"'npix' has shape \(7,\) and -1 as its least number"):
        read_graphs(write(tmp_path, npix=np.arange(-1, 6)))
    with pytest.raises(DataError, match=r"'npix' has dtype float64"):
        read_graphs(write(tmp_path, npix=np.ones(7)))


def test_optional_arrays(tmp_path):
    data = read_graphs(write(tmp_path, edge_features=None, classes=None))
    np.testing.assert_array_equal(data.graphs[0][2], [[1], [1]])
    assert data.class_names == ["0", "1", "2"]


def test_unsigned_labels(tmp_path):
    data = read_graphs(write(tmp_path, y=np.array([0, 1, 2, 2, 0, 1, 1], dtype=np.uint8)))
    np.testing.assert_array_equal(data.labels[1], [2, 0])


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"X": None}, "the array 'X' is missing"),
        ({"y": None}, "the array 'y' is missing"),
        ({"edges": None}, "the array 'edges' is missing"),
        ({"node_ptr": None}, "the array 'node_ptr' is missing"),
        ({"edge_ptr": None}, "the array 'edge_ptr' is missing"),
        ({"X": np.zeros(7)}, r"'X' has dtype float64 and shape \(7,\); expected numbers in 2 dimensions"),
        ({"y": np.zeros(7)}, r"'y' has dtype float64 and shape \(7,\); expected integers in 1 dimension\."),
        ({"y": np.zeros(6, dtype=int)}, "'y' has 6 entries and 'X' 7 rows"),
        ({"edges": np.zeros((3, 3), dtype=int)}, "'edges' has 3 columns; expected 2"),
        ({"edge_features": np.zeros((2, 1))}, "'edge_features' has 2 rows and 'edges' 3"),
        ({"node_ptr": np.array([0, 5, 3, 7])}, "'node_ptr' goes from 5 to 3 at graph 1; expected it to increase"),
        ({"node_ptr": np.array([0, 3, 3, 7])}, "'node_ptr' goes from 3 to 3 at graph 1.*at least one node"),
        ({"node_ptr": np.array([0, 3, 5, 6])}, r"'node_ptr' goes from \[0\] to \[6\].*to the 7 rows"),
        ({"node_ptr": np.array([1, 3, 5, 7])}, r"'node_ptr' goes from \[1\] to \[7\].*from 0"),
        ({"edge_ptr": np.array([0, 2, 1, 3])}, "'edge_ptr' goes from 2 to 1 at graph 1"),
        ({"edge_ptr": np.array([0, 3])}, "'node_ptr' is for 3 graphs and 'edge_ptr' for 1"),
        ({"edges": np.array([[0, 1], [1, 2], [1, 2]])}, r"edge 0 of graph 2 joins the nodes \[1, 2\].* nodes 0 to 1"),
        ({"edges": np.array([[0, 1], [1, -1], [1, 0]])}, r"edge 1 of graph 0 joins the nodes \[1, -1\]"),
        ({"edges": np.array([[0, 1], [2, 2], [1, 0]])}, "edge 1 of graph 0 joins the node 2 to itself"),
        ({"X": np.full((7, 2), np.nan)}, "'X' is NaN or infinite at node 0 of graph 0, column 0"),
        ({"edge_features": np.array([[0], [0], [np.inf]])}, "'edge_features' is NaN or infinite at edge 0 of graph 2"),
        ({"y": np.array([0, 1, 2, 2, 3, 1, 1])}, "node 1 of graph 1 has the label 3; expected 0 to 2"),
        ({"y": np.array([0, -2, 2, 2, 0, 1, 1])}, "node 1 of graph 0 has the label -2"),
        ({"classes": np.array([1, 2, 3])}, "'classes' has dtype int64 .* expected strings"),
    ],
)
def test_what_does_not_fit(tmp_path, changes, match):
    with pytest.raises(DataError, match=rf"set.npz: .*{match}"):
        read_graphs(write(tmp_path, **changes))


def test_unreadable_files(tmp_path):
    with pytest.raises(DataError, match=r"nowhere.npz cannot be read: No such file"):
        read_graphs(tmp_path / "nowhere.npz")
    path = tmp_path / "text.npz"
    path.write_text("no zip")
    with pytest.raises(DataError, match=r"text.npz: this is not an npz file"):
        read_graphs(path)
    whole = write(tmp_path).read_bytes()
    for size in range(2, len(whole), 97):
        path.write_bytes(whole[:size])
        with pytest.raises(DataError, match="truncated or corrupt"):
            read_graphs(path)


def test_pickled_arrays_are_refused(tmp_path):
    with pytest.raises(DataError, match="pickle"):
        read_graphs(write(tmp_path, X=np.array([[object()]] * 7)))


def test_round_trip(tmp_path):
    data = read_graphs(write(tmp_path))
    path = tmp_path / "copy.npz"
    write_graphs(path, data)
    back = read_graphs(path)
    assert back.class_names == data.class_names
    for one, two in zip(data.graphs + data.labels, back.graphs + back.labels, strict=True):
        for a, b in zip(one, two, strict=True):
            np.testing.assert_array_equal(a, b)


def test_what_cannot_be_written(tmp_path):
    data = read_graphs(write(tmp_path))
    path = tmp_path / "out.npz"
    nodes, edges, edge_features = data.graphs[0]
    bad = [
        (GraphData([], [], []), "there are 0 graphs and 0 arrays of labels"),
        (GraphData(data.graphs, data.labels[:2], data.class_names), "there are 3 graphs and 2 arrays of labels"),
        (GraphData([data.graphs[0]], [data.labels[1]], data.class_names), "graph 0 has 3 nodes, 2 labels"),
        (GraphData([data.graphs[0], (nodes[:, :1], edges, edge_features)], [data.labels[0]] * 2, ["a"] * 3), "graph 1"),
        (GraphData([(nodes, edges * 0, edge_features)], [data.labels[0]], data.class_names), "to itself"),
    ]
    for wrong, match in bad:
        with pytest.raises(DataError, match=match):
            write_graphs(path, wrong)
    assert not path.exists()

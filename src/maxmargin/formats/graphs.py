"""Labelled graphs in one ``.npz`` file.

Conventions
-----------
The graphs lie one after another in the arrays: ``X`` (N, p) and ``y`` (N,) for the nodes, ``edges`` (E, 2) and
``edge_features`` (E, q) for the edges. Graph g owns the nodes ``node_ptr[g]:node_ptr[g + 1]`` and the edges
``edge_ptr[g]:edge_ptr[g + 1]``; an edge names its nodes by their numbers inside the graph. A label of -1 is unknown.
Optional are ``edge_features`` (default: a column of ones), ``split`` (one integer a graph) and ``classes`` (names); and, where
nodes are superpixels, ``pixel_label_counts`` (N, 1 + classes), how many pixels of no class, and of each class, a node has, or
``npix`` (N,), how many pixels, which are then all of the node's class.
All arrays may have any dtype of their kind on disk; in memory they are float64 and int64.
"""

from __future__ import annotations

import os
import zipfile
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maxmargin.errors import DataError
from maxmargin.formats.atomic import atomic_write
from maxmargin.formats.npz import read_npz

_NAMES = ("X", "y", "edges", "edge_features", "node_ptr", "edge_ptr", "split", "classes")
_PIXELS = ("pixel_label_counts", "npix")
#: Without names, the labels are all numbers up to the largest, and one that is mistyped must not make billions of them.
_MOST_CLASSES = 1 << 20
Graph = tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]


@dataclass(frozen=True, eq=False)
class GraphData:
    """Graphs with a class for every node.

    Attributes
    ----------
    graphs : list of tuple
        For every graph: node features (n_i, p) float64, edges (e_i, 2) int64, edge features (e_i, q) float64.
    labels : list of ndarray of int64
        For every graph the classes of its nodes, -1 where unknown.
    class_names : list of str
        The names of the classes 0, 1, ...
    pixel_counts : list of ndarray of int64, or None
        For every graph (n_i, classes): how many pixels of each class its nodes have.
    """

    graphs: list[Graph]
    labels: list[NDArray[np.int64]]
    class_names: list[str]
    pixel_counts: list[NDArray[np.int64]] | None = None


def read_graphs(path: str | os.PathLike[str], split: int | None = None) -> GraphData:
    """Read graphs from an ``.npz`` file.

    Parameters
    ----------
    path : path-like
        The file.
    split : int, optional
        Keep the graphs whose entry in the array ``split`` is this number.

    Returns
    -------
    GraphData
        The arrays of the graphs are views of common arrays.
    """
    place = os.fspath(path)
    arrays = read_npz(path, _NAMES + _PIXELS)
    X, y, edges, edge_features, node_ptr, edge_ptr, class_names = _check(place, arrays)
    n_graphs = len(node_ptr) - 1
    chosen = np.arange(n_graphs)
    if split is not None:
        if "split" not in arrays:
            raise DataError(f"{place}: split={split} was asked for, but the file has no array 'split'.")
        parts = arrays["split"]
        if parts.shape != (n_graphs,) or parts.dtype.kind not in "iu":
            raise DataError(
                f"{place}: the array 'split' has dtype {parts.dtype} and shape {parts.shape}; "
                f"expected one integer for each of the {n_graphs} graphs."
            )
        chosen = np.flatnonzero(parts == split)
        if not len(chosen):
            raise DataError(f"{place}: no graph has split={split}; found {sorted(set(parts.tolist()))}.")
    graphs: list[Graph] = []
    labels: list[NDArray[np.int64]] = []
    for g in chosen:
        nodes = slice(node_ptr[g], node_ptr[g + 1])
        links = slice(edge_ptr[g], edge_ptr[g + 1])
        graphs.append((X[nodes], edges[links], edge_features[links]))
        labels.append(y[nodes])
    pixels = _pixel_counts(place, arrays, y, len(class_names))
    counts = None if pixels is None else [pixels[node_ptr[g] : node_ptr[g + 1]] for g in chosen]
    return GraphData(graphs, labels, class_names, counts)


def write_graphs(path: str | os.PathLike[str], data: GraphData) -> None:
    """Write graphs to an ``.npz`` file that `read_graphs` accepts.

    Parameters
    ----------
    path : path-like
        The file to write or to replace, in one step.
    data : GraphData
        At least one graph; checked as `read_graphs` checks.
    """
    place = os.fspath(path)
    if not data.graphs or len(data.graphs) != len(data.labels):
        raise DataError(
            f"{place}: there are {len(data.graphs)} graphs and {len(data.labels)} arrays of labels; "
            "expected as many, and at least one."
        )
    for g, (nodes, edges, edge_features) in enumerate(data.graphs):
        if len(data.labels[g]) != len(nodes) or len(edges) != len(edge_features):
            raise DataError(
                f"{place}: graph {g} has {len(nodes)} nodes, {len(data.labels[g])} labels, {len(edges)} edges and "
                f"{len(edge_features)} rows of edge features; expected as many labels as nodes, and rows as edges."
            )
        first_nodes, _, first_edge_features = data.graphs[0]
        if nodes.shape[1:] != first_nodes.shape[1:] or edge_features.shape[1:] != first_edge_features.shape[1:]:
            raise DataError(
                f"{place}: graph {g} has features of shape {nodes.shape[1:]} a node and {edge_features.shape[1:]} an "
                f"edge; expected {first_nodes.shape[1:]} and {first_edge_features.shape[1:]}, as in graph 0."
            )
    arrays: dict[str, NDArray[np.generic]] = {
        "X": np.concatenate([graph[0] for graph in data.graphs]),
        "y": np.concatenate(data.labels),
        "edges": np.concatenate([graph[1] for graph in data.graphs]),
        "edge_features": np.concatenate([graph[2] for graph in data.graphs]),
        "node_ptr": np.cumsum([0] + [len(graph[0]) for graph in data.graphs]),
        "edge_ptr": np.cumsum([0] + [len(graph[1]) for graph in data.graphs]),
        "classes": np.array(data.class_names, dtype=np.str_),
    }
    _check(place, arrays)
    if data.pixel_counts is not None:
        counts = np.concatenate(data.pixel_counts)
        arrays["pixel_label_counts"] = np.hstack([np.zeros((len(counts), 1), counts.dtype), counts])
        _pixel_counts(place, arrays, np.concatenate(data.labels), len(data.class_names))
    with atomic_write(path) as stream, zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


_Checked = tuple[
    NDArray[np.float64],
    NDArray[np.int64],
    NDArray[np.int64],
    NDArray[np.float64],
    NDArray[np.int64],
    NDArray[np.int64],
    list[str],
]


def _check(place: str, arrays: dict[str, NDArray[np.generic]]) -> _Checked:
    """Return the arrays as float64 and int64, or raise a sentence on the first thing that does not fit."""
    X = _array(place, arrays, "X", "fiub", 2).astype(np.float64)
    y = _array(place, arrays, "y", "iu", 1).astype(np.int64)
    edges = _array(place, arrays, "edges", "iu", 2).astype(np.int64)
    if "edge_features" in arrays:
        edge_features = _array(place, arrays, "edge_features", "fiub", 2).astype(np.float64)
    else:
        edge_features = np.ones((len(edges), 1))
    if len(y) != len(X):
        raise DataError(f"{place}: 'y' has {len(y)} entries and 'X' {len(X)} rows; expected as many.")
    if edges.shape[1] != 2:
        raise DataError(f"{place}: 'edges' has {edges.shape[1]} columns; expected 2.")
    if len(edge_features) != len(edges):
        raise DataError(
            f"{place}: 'edge_features' has {len(edge_features)} rows and 'edges' {len(edges)}; expected as many."
        )
    node_ptr = _pointers(place, arrays, "node_ptr", len(X), "a graph needs at least one node")
    edge_ptr = _pointers(place, arrays, "edge_ptr", len(edges), None)
    if len(node_ptr) != len(edge_ptr):
        raise DataError(
            f"{place}: 'node_ptr' is for {len(node_ptr) - 1} graphs and 'edge_ptr' for {len(edge_ptr) - 1}; "
            "expected as many."
        )
    _check_edges(place, edges, node_ptr, edge_ptr)
    _check_finite(place, "X", X, node_ptr, "node")
    _check_finite(place, "edge_features", edge_features, edge_ptr, "edge")
    return X, y, edges, edge_features, node_ptr, edge_ptr, _class_names(place, arrays, y, node_ptr)


def _pixel_counts(
    place: str, arrays: dict[str, NDArray[np.generic]], y: NDArray[np.int64], n_classes: int
) -> NDArray[np.int64] | None:
    """Pixels of each class (N, classes) that nodes have; None if the file does not say."""
    if "pixel_label_counts" in arrays:
        counts = _array(place, arrays, "pixel_label_counts", "iu", 2).astype(np.int64)
        expected: tuple[int, ...] = (len(y), 1 + n_classes)
    elif "npix" in arrays:
        counts = _array(place, arrays, "npix", "iu", 1).astype(np.int64)
        expected = (len(y),)
    else:
        return None
    if counts.shape != expected or counts.min(initial=0) < 0:
        name = "npix" if len(expected) == 1 else "pixel_label_counts"
        raise DataError(
            f"{place}: {name!r} has shape {counts.shape} and {counts.min(initial=0)} as its least number; expected {expected}, "
            "for each node its pixels, none negative."
        )
    if counts.ndim == 2:
        return np.ascontiguousarray(counts[:, 1:])
    by_class = np.zeros((len(y), n_classes), np.int64)
    known = np.flatnonzero(y >= 0)
    by_class[known, y[known]] = counts[known]
    return by_class


def _array(
    place: str, arrays: dict[str, NDArray[np.generic]], name: str, kinds: str, n_dim: int
) -> NDArray[np.generic]:
    if name not in arrays:
        raise DataError(f"{place}: the array {name!r} is missing.")
    array = arrays[name]
    if array.ndim != n_dim or array.dtype.kind not in kinds:
        what = "integers" if kinds == "iu" else "numbers"
        raise DataError(
            f"{place}: the array {name!r} has dtype {array.dtype} and shape {array.shape}; "
            f"expected {what} in {n_dim} dimension{'s' if n_dim > 1 else ''}."
        )
    return array


def _pointers(
    place: str, arrays: dict[str, NDArray[np.generic]], name: str, n_rows: int, why_strict: str | None
) -> NDArray[np.int64]:
    pointers = _array(place, arrays, name, "iu", 1).astype(np.int64)
    if len(pointers) < 2 or pointers[0] != 0 or pointers[-1] != n_rows:
        raise DataError(
            f"{place}: {name!r} goes from {pointers[:1].tolist()} to {pointers[-1:].tolist()} in {len(pointers)} "
            f"entries; expected from 0 to the {n_rows} rows, one entry more than there are graphs."
        )
    wrong = np.flatnonzero(np.diff(pointers) < (0 if why_strict is None else 1))
    if len(wrong):
        g = wrong[0]
        raise DataError(
            f"{place}: {name!r} goes from {pointers[g]} to {pointers[g + 1]} at graph {g}; "
            f"expected it to increase{'' if why_strict is None else f', since {why_strict}'}."
        )
    return pointers


def _owner(pointers: NDArray[np.int64], row: int) -> tuple[int, int]:
    """Return the graph that owns a row, and the number of the row inside the graph."""
    g = int(np.searchsorted(pointers, row, side="right")) - 1
    return g, int(row - pointers[g])


def _check_edges(
    place: str, edges: NDArray[np.int64], node_ptr: NDArray[np.int64], edge_ptr: NDArray[np.int64]
) -> None:
    sizes = np.repeat(np.diff(node_ptr), np.diff(edge_ptr))
    outside = np.flatnonzero(((edges < 0) | (edges >= sizes[:, None])).any(axis=1))
    if len(outside):
        g, e = _owner(edge_ptr, int(outside[0]))
        raise DataError(
            f"{place}: edge {e} of graph {g} joins the nodes {edges[outside[0]].tolist()}, "
            f"but the graph has the nodes 0 to {sizes[outside[0]] - 1}."
        )
    loops = np.flatnonzero(edges[:, 0] == edges[:, 1])
    if len(loops):
        g, e = _owner(edge_ptr, int(loops[0]))
        raise DataError(f"{place}: edge {e} of graph {g} joins the node {edges[loops[0], 0]} to itself.")


def _check_finite(place: str, name: str, values: NDArray[np.float64], pointers: NDArray[np.int64], what: str) -> None:
    wrong = np.argwhere(~np.isfinite(values))
    if len(wrong):
        g, row = _owner(pointers, int(wrong[0, 0]))
        raise DataError(f"{place}: {name!r} is NaN or infinite at {what} {row} of graph {g}, column {wrong[0, 1]}.")


def _class_names(
    place: str, arrays: dict[str, NDArray[np.generic]], y: NDArray[np.int64], node_ptr: NDArray[np.int64]
) -> list[str]:
    if "classes" in arrays:
        classes = arrays["classes"]
        if classes.ndim != 1 or classes.dtype.kind != "U":
            raise DataError(
                f"{place}: the array 'classes' has dtype {classes.dtype} and shape {classes.shape}; "
                "expected strings in 1 dimension."
            )
        names = [str(name) for name in classes]
    else:
        largest = int(y.max(initial=-1))
        if largest >= _MOST_CLASSES:
            g, node = _owner(node_ptr, int(y.argmax()))
            raise DataError(
                f"{place}: node {node} of graph {g} has the label {largest}; expected one below {_MOST_CLASSES}, since "
                "there is no array 'classes'."
            )
        names = [str(label) for label in range(largest + 1)]
    wrong = np.flatnonzero((y < -1) | (y >= len(names)))
    if len(wrong):
        g, node = _owner(node_ptr, int(wrong[0]))
        raise DataError(
            f"{place}: node {node} of graph {g} has the label {y[wrong[0]]}; "
            f"expected 0 to {len(names) - 1}, or -1 for unknown."
        )
    return names

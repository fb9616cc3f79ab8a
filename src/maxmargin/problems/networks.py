"""Networks as graphs: from matrices of neighbours, and from networkx."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.errors import DataError, OptionError

NetworkGraph = tuple[Any, NDArray[np.int64]] | tuple[Any, NDArray[np.int64], NDArray[np.float64]]


def graph_from_adjacency(adjacency: Any, node_features: Any, weights: bool = False) -> NetworkGraph:
    """The graph of a matrix of neighbours, as `GraphSVM` takes it.

    Two nodes are joined where the matrix has an entry other than 0, in either direction: each pair once, the smaller number
    first. The diagonal does not count.

    Parameters
    ----------
    adjacency : sparse matrix or array (n, n)
        Which nodes are neighbours: symmetric, or one of its triangles.
    node_features : array or CSR matrix (n, p)
        Features of the nodes.
    weights : bool
        Make features of edges, a constant 1 and the entry of the matrix; otherwise edges have none.

    Returns
    -------
    nodes, edges : as given, int array (E, 2)
    edge_features : array (E, 2)
        With ``weights=True``.
    """
    if not sp.issparse(adjacency):
        adjacency = np.asarray(adjacency)
        if adjacency.dtype.kind not in "biuf":
            raise DataError(f"adjacency has dtype {adjacency.dtype}; expected numbers.")
    if adjacency.ndim != 2 or adjacency.shape[0] != adjacency.shape[1]:
        raise DataError(f"adjacency has shape {adjacency.shape}; expected (n, n).")
    n = adjacency.shape[0]
    nodes = _node_rows(node_features, n)
    matrix = sp.coo_array(sp.csr_array(adjacency, dtype=np.float64))
    if not np.isfinite(matrix.data).all():
        k = int(np.flatnonzero(~np.isfinite(matrix.data))[0])
        raise DataError(f"adjacency[{matrix.row[k]}, {matrix.col[k]}] is {matrix.data[k]}; it must be finite.")
    real = (matrix.data != 0.0) & (matrix.row != matrix.col)
    row, column, value = (one[real] for one in (matrix.row.astype(np.int64), matrix.col.astype(np.int64), matrix.data))
    low, high = np.minimum(row, column), np.maximum(row, column)
    pairs, place = np.unique(low * n + high, return_inverse=True)
    edges = np.column_stack([pairs // n, pairs % n]) if len(pairs) else np.empty((0, 2), np.int64)
    if not weights:
        return nodes, edges
    largest, least = np.full(len(pairs), -np.inf), np.full(len(pairs), np.inf)
    np.maximum.at(largest, place, value)
    np.minimum.at(least, place, value)
    unequal = np.flatnonzero(largest != least)
    if len(unequal):
        i, j = edges[unequal[0]].tolist()
        raise DataError(
            f"adjacency[{i}, {j}] and adjacency[{j}, {i}] differ, {largest[unequal[0]]:g} and {least[unequal[0]]:g}; an edge has "
            "one weight. Make the matrix symmetric."
        )
    return nodes, edges, np.column_stack([np.ones(len(pairs)), largest])


def graph_from_networkx(
    graph: Any, node_features: Any, edge_features: str | Sequence[str] | None = None
) -> NetworkGraph:
    """The graph of a networkx graph, as `GraphSVM` takes it; nodes come in the order of ``graph.nodes``.

    Parameters
    ----------
    graph : networkx.Graph or DiGraph
        An edge of a directed graph goes from its first node to its second, which ``edge_weights="full"`` tells apart.
    node_features : str, list of str, or array or CSR matrix (n, p)
        Names of attributes of the nodes, each a number or a vector; or the features, in the order of the nodes.
    edge_features : str or list of str, optional
        Names of attributes of the edges; a constant 1 stands before them.

    Returns
    -------
    nodes, edges : array or CSR matrix (n, p), int array (E, 2)
    edge_features : array (E, q + 1)
        With ``edge_features``.
    """
    if not (callable(getattr(graph, "is_multigraph", None)) and hasattr(graph, "nodes")):
        raise DataError(f"graph is of type {type(graph).__name__}; expected a graph of networkx.")
    if graph.is_multigraph():
        raise DataError(
            "graph has parallel edges (it is a multigraph); an edge may stand once. networkx.Graph(graph) merges them."
        )
    number = {node: k for k, node in enumerate(graph.nodes)}
    given = _names(node_features)
    nodes: Any
    if given is None:
        nodes = _node_rows(node_features, len(number))
    else:
        nodes = _columns([(f"Node {node!r}", values) for node, values in graph.nodes(data=True)], given)
    listed = [(a, b, values) for a, b, values in graph.edges(data=True) if a != b]
    edges = np.array([(number[a], number[b]) for a, b, _ in listed], np.int64).reshape(-1, 2)
    if edge_features is None:
        return nodes, edges
    named = _names(edge_features)
    if named is None:
        raise OptionError(
            f"edge_features={edge_features!r} is not possible; it must be names of attributes of edges, or None."
        )
    columns = _columns([(f"Edge {(a, b)!r}", values) for a, b, values in listed], named)
    return nodes, edges, np.column_stack([np.ones(len(edges)), columns])


def _names(given: Any) -> list[str] | None:
    """Names of attributes; None if these are no names."""
    if isinstance(given, str):
        return [given]
    if isinstance(given, list | tuple) and given and all(isinstance(one, str) for one in given):
        return list(given)
    return None


def _columns(rows: list[tuple[str, Any]], names: list[str]) -> NDArray[np.float64]:
    """The attributes of all nodes or edges, one row each."""
    made: list[NDArray[np.float64]] = []
    for who, values in rows:
        for name in names:
            if name not in values:
                raise DataError(f"{who} has no attribute {name!r}; it has {sorted(map(str, values))}.")
        try:
            made.append(np.concatenate([np.atleast_1d(np.asarray(values[name], np.float64)) for name in names]))
        except (TypeError, ValueError):
            raise DataError(f"{who} has attributes among {names} that are no numbers.") from None
        if made[-1].shape != made[0].shape:
            raise DataError(f"{who} has {len(made[-1])} numbers in {names}, and the first has {len(made[0])}.")
    return np.array(made) if made else np.empty((0, len(names)))


def _node_rows(features: Any, n: int) -> Any:
    rows: Any = features if sp.issparse(features) else np.asarray(features)
    if rows.ndim != 2 or rows.shape[0] != n:
        raise DataError(f"node_features has shape {rows.shape}; expected a row for each of the {n} nodes.")
    return rows

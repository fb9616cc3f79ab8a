"""General pairwise graphs with node and edge features: grids, superpixels, networks.

    score(x, y) = sum_i w_{y_i} . x_i + sum_{e = (i, j)} V_{y_i, y_j} . z_e        (edge_weights="full")
                                        sum_{e = (i, j)} V . z_e [y_i = y_j]        (edge_weights="potts")

Weights are shared over all nodes and over all edges. Graphs of the same edges share one structure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from maxmargin.errors import DataError, OptionError
from maxmargin.problems.chains import join_labels, stack_examples, stack_features
from maxmargin.problems.factor_graphs import FactorGraphs
from maxmargin.problems.features import Features, as_floats
from maxmargin.problems.losses import is_zero_one, variable_losses
from maxmargin.problems.templates import Structure, Template, first_repeat
from maxmargin.sparse import checked_csr


def graph_problem(
    graphs: Sequence[Any],
    labels: Sequence[ArrayLike] | None,
    n_states: int,
    edge_weights: str = "full",
    loss: str | ArrayLike = "hamming",
    sample_weight: ArrayLike | None = None,
    node_features: Features | None = None,
) -> FactorGraphs:
    """Build the problem of a set of graphs.

    Parameters
    ----------
    graphs : list of (node_features (n, p), edges (e, 2)) or (node_features, edges, edge_features (e, q))
        Edges name nodes inside their graph; without edge features each edge has the constant feature 1.
    labels : list of int arrays (n,) with states 0 to n_states - 1, or None to predict
    n_states : int
    edge_weights : "full" or "potts"
        "full": one weight vector per pair of states; "potts": one for equal states, 0 otherwise.
    node_features : Features, optional
        A row for each node, one graph after another, in the place of the graphs' own features.
    """
    if edge_weights not in ("full", "potts"):
        raise OptionError(f'edge_weights={edge_weights!r} is not known; use "full" or "potts".')
    parts = [check_graph(m, graph) for m, graph in enumerate(graphs)]
    if node_features is None:
        rows, sizes = stack_examples([part[0] for part in parts], "graph", "node_features")
    else:
        rows, sizes = node_features, np.array([part[0].shape[0] for part in parts], np.int64)
        if sizes.sum() != rows.shape[0]:
            raise DataError(f"The graphs have {sizes.sum()} nodes, but {rows.name} has {rows.shape[0]} rows.")
    joined = None if labels is None else join_labels(labels, sizes, "labels")
    edge_counts = np.array([len(part[1]) for part in parts], np.int64)
    own_features = any(part[2] is not None for part in parts)
    if own_features:
        widths = {part[2].shape[1] for part in parts if part[2] is not None}
        if len(widths) > 1 or any(part[2] is None for part in parts):
            raise DataError("Some graphs have other edge features than the rest; all need the same number.")
        edge_rows = stack_features([part[2] for part in parts], "Graph", "edge_features")
        if edge_rows.shape[0] == 0:
            edge_rows = Features(np.zeros((1, widths.pop())), "edge_features")
    else:
        edge_rows = Features.constant()

    seen: dict[tuple[int, bytes], int] = {}
    structures: list[Structure] = []
    structure_of = np.empty(len(parts), np.int32)
    for m, (nodes, edges, _) in enumerate(parts):
        key = (nodes.shape[0], edges.tobytes())
        if key not in seen:
            seen[key] = len(structures)
            n, e = nodes.shape[0], len(edges)
            row = np.arange(e) if own_features else np.zeros(e, np.int64)
            structures.append(Structure(np.zeros(n, np.int64), np.arange(n), np.zeros(e, np.int64), row, edges))
        structure_of[m] = seen[key]
    if edge_weights == "full":
        blocks = np.arange(n_states * n_states).reshape(n_states, n_states)
    else:
        blocks = np.where(np.eye(n_states, dtype=bool), 0, -1)
    first_edge = np.concatenate([[0], np.cumsum(edge_counts)[:-1]])
    return FactorGraphs(
        structures,
        structure_of,
        [Template(np.arange(n_states))],
        [Template(blocks)],
        rows,
        edge_rows,
        np.concatenate([[0], np.cumsum(sizes)[:-1]]),
        first_edge if own_features else np.zeros(len(parts), np.int64),
        joined,
        None if joined is None else variable_losses(joined, np.full(len(joined), n_states), sizes, loss),
        weights=sample_weight,
        zero_one=is_zero_one(loss),
    )


def check_graph(m: int, graph: Any) -> tuple[Any, NDArray[np.int64], NDArray[Any] | None]:
    """One graph as (node features, edges, edge features or None), or a sentence about what is wrong with graph m."""
    if not isinstance(graph, tuple | list) or len(graph) not in (2, 3):
        raise DataError(f"Graph {m} must be a tuple (node_features, edges) or (node_features, edges, edge_features).")
    nodes = checked_csr(graph[0], f"Graph {m}: node_features") if sp.issparse(graph[0]) else graph[0]
    if not hasattr(nodes, "ndim"):
        nodes = np.asarray(nodes)
    if nodes.ndim != 2:
        raise DataError(f"Graph {m} has shape {nodes.shape}; expected (rows, features).")
    edges = np.asarray(graph[1])
    if edges.size == 0:
        edges = np.empty((0, 2), np.int64)
    if edges.ndim != 2 or edges.shape[1] != 2 or not np.issubdtype(edges.dtype, np.integer):
        raise DataError(
            f"Graph {m}: edges have shape {edges.shape}, dtype {edges.dtype}; expected whole numbers (n_edges, 2)."
        )
    edges = np.ascontiguousarray(edges, np.int64)
    n = nodes.shape[0]
    wrong = np.flatnonzero((edges < 0).any(axis=1) | (edges >= n).any(axis=1))
    if len(wrong):
        i, j = edges[wrong[0]]
        raise DataError(
            f"Graph {m}: edge {wrong[0]} joins nodes {i} and {j}, but the graph has nodes 0 to {n - 1} only."
        )
    loops = np.flatnonzero(edges[:, 0] == edges[:, 1])
    if len(loops):
        raise DataError(f"Graph {m}: edge {loops[0]} joins node {edges[loops[0], 0]} with itself.")
    twice = first_repeat(edges)
    if twice is not None:
        i, j = edges[twice[1]]
        raise DataError(f"Graph {m}: edges {twice[0]} and {twice[1]} both join nodes {i} and {j}.")
    if len(graph) == 2 or graph[2] is None:
        return nodes, edges, None
    features = as_floats(np.asarray(graph[2]), f"Graph {m}: edge_features")
    if features.ndim != 2 or len(features) != len(edges):
        raise DataError(
            f"Graph {m} has {len(edges)} edges, but its edge features have shape {features.shape}; "
            "expected (n_edges, q)."
        )
    return nodes, edges, features

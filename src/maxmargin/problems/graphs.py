"""General pairwise graphs with node and edge features: grids, superpixels, networks.

    score(x, y) = sum_i w_{y_i} . x_i + sum_{e = (i, j)} V_{y_i, y_j} . z_e        (edge_weights="full")
                                        sum_{e = (i, j)} V . z_e [y_i = y_j]        (edge_weights="potts")

Weights are shared over all nodes and over all edges. Graphs of the same edges share one structure.

With ``node_weights="class-wise"`` the features of a node are scores of its classes by given classifiers, and w is a number a class:

    score(x, y) = sum_i w_{y_i} x_i[y_i] + ...

(O. Meshi, N. Srebro and T. Hazan, Efficient Training of Structured SVMs via Soft Constraints, AISTATS 2015, section 6). All states
of a variable share one row of features, so that x_i[k] is the one feature of a factor on the node alone, which scores state k and
no other: a node has as many of them as classes. Their rows stand before the edges' among the features of factors, in the first
column.
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
    node_weights: str = "full",
    intercept: bool = False,
    edge_features: Features | None = None,
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
    loss : "hamming", "fraction", "count", "zero-one" or array
        Task loss; an array has the costs by true and predicted state.
    sample_weight : array (M,), optional
        Weights of the graphs.
    node_features : Features, optional
        A row for each node, one graph after another, in the place of the graphs' own features.
    node_weights : "full" or "class-wise"
        "full": one weight vector per state; "class-wise": one number per state, for the node's feature of that state.
    intercept : bool
        With class-wise weights, a constant feature of each state, too; otherwise it is a column of the node features.
    edge_features : Features, optional
        A row for each edge, one graph after another, in the place of the graphs' own features: such as a kernel's.
    """
    if edge_weights not in ("full", "potts"):
        raise OptionError(f'edge_weights={edge_weights!r} is not known; use "full" or "potts".')
    if node_weights not in ("full", "class-wise"):
        raise OptionError(f'node_weights={node_weights!r} is not known; use "full" or "class-wise".')
    parts = [check_graph(m, graph) for m, graph in enumerate(graphs)]
    if node_features is None:
        rows, sizes = stack_examples([part[0] for part in parts], "graph", "node_features")
    else:
        rows, sizes = node_features, np.array([part[0].shape[0] for part in parts], np.int64)
        if sizes.sum() != rows.shape[0]:
            raise DataError(f"The graphs have {sizes.sum()} nodes, but {rows.name} has {rows.shape[0]} rows.")
    class_wise = node_weights == "class-wise"
    if class_wise and rows.shape[1] != n_states:
        raise DataError(
            f"The nodes have {rows.shape[1]} features; class-wise weights need one for each of the {n_states} classes."
        )
    joined = None if labels is None else join_labels(labels, sizes, "labels")
    edge_rows, own_features = _edge_rows(parts) if edge_features is None else (edge_features, True)
    if class_wise and edge_features is not None:
        raise OptionError("Class-wise weights of nodes are weights of factors, and those have the edges' own features.")
    n_scores = n_states if class_wise else 0
    structures, structure_of = _structures(parts, n_scores, own_features)
    if edge_weights == "full":
        blocks = np.arange(n_states * n_states).reshape(n_states, n_states)
    else:
        blocks = np.where(np.eye(n_states, dtype=bool), 0, -1)
    first_node = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    first_edge = np.concatenate([[0], np.cumsum([len(part[1]) for part in parts])[:-1]]) * own_features
    nodes, factors = Template(np.arange(n_states)), [Template(blocks)]
    if class_wise:
        edge_rows, first_edge = _with_scores(rows, sizes, edge_rows, parts, own_features)
        rows, first_node = Features.constant(), np.zeros(len(parts), np.int64)
        nodes = nodes if intercept else Template(np.full(n_states, -1))
        scored = np.where(np.eye(n_states, dtype=bool), np.arange(n_states), -1)
        factors = [*map(Template, scored), Template(np.where(blocks >= 0, blocks + n_states, -1))]
    return FactorGraphs(
        structures,
        structure_of,
        [nodes],
        factors,
        rows,
        edge_rows,
        first_node,
        first_edge,
        joined,
        None if joined is None else variable_losses(joined, np.full(len(joined), n_states), sizes, loss),
        weights=sample_weight,
        zero_one=is_zero_one(loss),
    )


def _edge_rows(parts: list[Any]) -> tuple[Features, bool]:
    """Features of the edges of all graphs, and whether they are theirs and not a constant."""
    if all(part[2] is None for part in parts):
        return Features.constant(), False
    widths = {part[2].shape[1] for part in parts if part[2] is not None}
    if len(widths) > 1 or any(part[2] is None for part in parts):
        raise DataError("Some graphs have other edge features than the rest; all need the same number.")
    rows = stack_features([part[2] for part in parts], "Graph", "edge_features")
    return (rows if rows.shape[0] else Features(np.zeros((1, widths.pop())), "edge_features")), True


def _structures(parts: list[Any], n_scores: int, own_features: bool) -> tuple[list[Structure], NDArray[np.int32]]:
    """The shapes of the graphs, each once, and that of each graph; nodes have `n_scores` factors of their own before the edges."""
    seen: dict[tuple[int, bytes], int] = {}
    structures: list[Structure] = []
    structure_of = np.empty(len(parts), np.int32)
    for m, (nodes, edges, _) in enumerate(parts):
        key = (nodes.shape[0], edges.tobytes())
        if key not in seen:
            seen[key] = len(structures)
            n, e = nodes.shape[0], len(edges)
            own = np.arange(n * n_scores)
            scopes = [(i,) for i in range(n) for _ in range(n_scores)] + edges.tolist() if n_scores else edges
            structures.append(
                Structure(
                    np.zeros(n, np.int64),
                    np.zeros(n, np.int64) if n_scores else np.arange(n),
                    np.concatenate([own % max(n_scores, 1), np.full(e, n_scores)]),
                    np.concatenate([own, len(own) + (np.arange(e) if own_features else np.zeros(e, np.int64))]),
                    scopes,
                )
            )
        structure_of[m] = seen[key]
    return structures, structure_of


def _with_scores(
    scores: Features, sizes: NDArray[np.int64], edges: Features, parts: list[Any], own_features: bool
) -> tuple[Features, NDArray[np.int64]]:
    """Rows of factors: of each graph the scores of its nodes, one a row, then its edges' features; and where graphs begin."""
    matrix, features = scores.matrix(), edges.matrix()
    dense = matrix.toarray() if scores.sparse else matrix
    counts = np.array([len(part[1]) if own_features else 1 for part in parts])
    first = np.concatenate([[0], np.cumsum(sizes * dense.shape[1] + counts)])
    rows = np.zeros((int(first[-1]), edges.shape[1]), np.result_type(dense, np.float32))
    node = edge = 0
    for at, n, e in zip(first, sizes, counts, strict=False):
        cut = at + n * dense.shape[1]
        rows[at:cut, 0] = dense[node : node + n].ravel()
        rows[cut : cut + e] = features[edge : edge + e] if own_features else 1.0
        node, edge = node + n, edge + e
    return Features(rows, scores.name), first[:-1]


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

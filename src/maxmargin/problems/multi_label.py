"""Multi-label problems: a binary variable a label, a factor a pair of labels.

T. Finley and T. Joachims, Training Structural SVMs when Exact Inference is Intractable, ICML 2008, section 5; O. Meshi, N. Srebro
and T. Hazan, Efficient Training of Structured SVMs via Soft Constraints, AISTATS 2015, section 6.

    score(x, y) = sum_i (w_i . x) y_i + sum_{(i, j) in edges} w_ij y_i y_j

Only state 1 of a label, and only state (1, 1) of a pair, has weights. All examples share one structure.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import minimum_spanning_tree

from maxmargin.errors import DataError, OptionError
from maxmargin.problems.factor_graphs import FactorGraphs, as_states, example_weights
from maxmargin.problems.features import Features
from maxmargin.problems.losses import is_zero_one, uniform_losses, variable_losses
from maxmargin.problems.templates import Structure, Template, first_repeat

#: Rows that are looked at at a time.
_SOME_ROWS = 1 << 16


def multi_label_problem(
    X: Any,
    Y: ArrayLike | None,
    edges: NDArray[np.int64],
    n_labels: int,
    loss: str | ArrayLike = "hamming",
    sample_weight: ArrayLike | None = None,
    known: NDArray[np.bool_] | None = None,
) -> FactorGraphs:
    """Build the factor graphs of a multi-label data set.

    Parameters
    ----------
    X : array or CSR matrix (n, p)
    Y : 0/1 array (n, L), or None to predict
    edges : int array (E, 2)
        Pairs of labels joined by a factor, as `label_edges` makes them.
    n_labels : int
        L.
    loss : "hamming", "count", or an array: (L,), the cost of each label; (2, 2), costs by truth and prediction; or (L, 2, 2)
    sample_weight : array (n,), optional
    known : bool array (n, L), optional
        Which labels are known. The others are left out, with their pairs; rows without a known label are left out whole.
    """
    features = X if isinstance(X, Features) else Features(X)
    n, edges = features.shape[0], np.asarray(edges, np.int64).reshape(-1, 2)
    if n == 0:
        raise DataError("X has no rows: the data is empty.")
    labels = None
    if Y is not None:
        if np.shape(Y) != (n, n_labels):
            raise DataError(
                f"Y has shape {np.shape(Y)}; expected ({n}, {n_labels}): a row for each row of X, a column a label."
            )
        labels = as_states(Y, "Y").ravel()
        if labels.min(initial=0) < 0 or labels.max(initial=0) > 1:
            wrong = int(np.flatnonzero((labels != 0) & (labels != 1))[0])
            row, column = divmod(wrong, n_labels)
            raise DataError(f"Y[{row}, {column}] is {labels[wrong]}; a label is 0 or 1.")
    rows = np.arange(n)
    if known is None or labels is None:
        structures, structure_of = [_structure(np.ones(n_labels, bool), edges)], np.zeros(n, np.int64)
        losses = None if labels is None else uniform_losses(labels, 2, n_labels, loss)
    else:
        rows = np.flatnonzero(known.any(axis=1))
        patterns, structure_of = np.unique(known[rows], axis=0, return_inverse=True)
        structures = [_structure(pattern, edges) for pattern in patterns]
        labels = labels.reshape(n, n_labels)[rows][known[rows]]
        losses = _known_losses(labels, known[rows], loss)
        if sample_weight is not None:
            sample_weight = example_weights(sample_weight, n)[rows]
    return FactorGraphs(
        structures,
        structure_of.ravel(),
        [Template([-1, i]) for i in range(n_labels)],
        [Template([[-1, -1], [-1, e]]) for e in range(len(edges))],
        features,
        Features.constant(),
        rows,
        0 * rows,
        labels,
        losses,
        weights=sample_weight,
        zero_one=is_zero_one(loss),
    )


def _structure(known: NDArray[np.bool_], edges: NDArray[np.int64]) -> Structure:
    """The graph of the labels that are known, and of the pairs of them."""
    labels = np.flatnonzero(known)
    kept = np.flatnonzero(known[edges].all(axis=1))
    number = np.cumsum(known) - 1
    return Structure(
        labels, np.zeros(len(labels), np.int64), kept, np.zeros(len(kept), np.int64), number[edges[kept]].reshape(-1, 2)
    )


def _known_losses(labels: NDArray[np.int32], known: NDArray[np.bool_], loss: str | ArrayLike) -> NDArray[np.float64]:
    """The task loss of the labels that are known, one row after another."""
    sizes = known.sum(axis=1)
    two = np.full(len(labels), 2)
    if isinstance(loss, str) or np.ndim(loss) == 2:
        return variable_losses(labels, two, sizes, loss)
    table = np.asarray(loss, np.float64)
    if table.ndim == 1:
        table = table[:, None, None] * (1.0 - np.eye(2))
    if table.shape != (known.shape[1], 2, 2):
        raise DataError(f"loss has shape {np.shape(loss)}; expected costs of {known.shape[1]} labels.")
    return np.asarray(table[np.nonzero(known)[1], labels] / float(sizes.mean())).ravel()


def label_edges(edges: str | ArrayLike, Y: NDArray[Any], known: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
    """Pairs of labels to join: every pair, a tree, none, or the given pairs.

    Parameters
    ----------
    edges : "full", "tree", "none" or array-like of pairs
        "tree" is the spanning tree of greatest mutual information between the labels in Y (Chow and Liu).
    Y : 0/1 array (n, L)
    known : bool array (n, L), optional
        Which entries of Y are known: those of a pair of labels are counted where both are.
    """
    n_labels = Y.shape[1]
    if isinstance(edges, str):
        if edges == "full":
            return np.stack(np.triu_indices(n_labels, 1), axis=1).astype(np.int64)
        if edges == "none":
            return np.empty((0, 2), np.int64)
        if edges == "tree":
            if known is None:
                return mutual_information_tree(len(Y), pair_counts(Y))
            seen, on = known.astype(np.float64), np.where(known, Y, 0).astype(np.float64)
            return mutual_information_tree(seen.T @ seen, on.T @ on, on.T @ seen)
        raise OptionError(f'edges={edges!r} is not known; use "full", "tree", "none" or a list of pairs of labels.')
    pairs = np.asarray(edges)
    if pairs.size == 0:
        return np.empty((0, 2), np.int64)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or not np.issubdtype(pairs.dtype, np.integer):
        raise DataError(
            f"edges has shape {pairs.shape}, dtype {pairs.dtype}; expected whole numbers of shape (n_edges, 2)."
        )
    pairs = np.sort(pairs.astype(np.int64), axis=1)
    for e, (i, j) in enumerate(pairs):
        if i < 0 or j >= n_labels:
            raise DataError(f"Edge {e} joins labels {i} and {j}, but there are labels 0 to {n_labels - 1} only.")
        if i == j:
            raise DataError(f"Edge {e} joins label {i} with itself.")
    twice = first_repeat(pairs)
    if twice is not None:
        i, j = pairs[twice[0]]
        raise DataError(f"Edges {twice[0]} and {twice[1]} both join labels {i} and {j}.")
    return pairs


def pair_counts(Y: NDArray[Any]) -> NDArray[np.float64]:
    """How many rows of Y (n, L) have both of two labels, (L, L)."""
    pairs = np.zeros((Y.shape[1], Y.shape[1]))
    # Whole numbers, so that the sum is the same in any pieces.
    for first in range(0, len(Y), _SOME_ROWS):
        ones = Y[first : first + _SOME_ROWS].astype(np.float64)
        pairs += ones.T @ ones
    return pairs


def mutual_information_tree(
    n: int | NDArray[np.float64], pairs: NDArray[np.float64], single: NDArray[np.float64] | None = None
) -> NDArray[np.int64]:
    """The spanning tree of greatest mutual information between labels, by the `pair_counts` of n rows.

    Where labels are missing, n (L, L) is how many rows have both labels known, and `single` (L, L) in how many of these the first
    is on.
    """
    n_labels = len(pairs)
    if n_labels < 2:
        return np.empty((0, 2), np.int64)
    # Without rows all information is 0, and any tree is a best one.
    count = np.maximum(n, 1)
    joint = pairs / count
    p = np.broadcast_to((pairs.diagonal()[:, None] if single is None else single) / count, joint.shape)
    q = np.swapaxes(p, 0, 1)
    information = np.zeros((n_labels, n_labels))
    for both, first, second in (
        (joint, p, q),
        (p - joint, p, 1 - q),
        (q - joint, 1 - p, q),
        (1 - p - q + joint, 1 - p, 1 - q),
    ):
        with np.errstate(divide="ignore", invalid="ignore"):
            term = both * np.log(both / (first * second))
        information += np.where(both > 1e-15, term, 0.0)
    # The spanning tree routine minimises, and reads a zero as "no edge": turn large into small and keep all above zero.
    cost = np.triu(information.max() - information + 1.0, 1)
    tree = minimum_spanning_tree(csr_array(cost)).tocoo()
    pairs = np.sort(np.stack([tree.coords[0], tree.coords[1]], axis=1), axis=1).astype(np.int64)
    return np.asarray(pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))])

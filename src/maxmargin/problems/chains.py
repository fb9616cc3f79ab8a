"""Chains (Cutting section 3.2): a variable a position, a factor between neighbours, weights shared along the chain.

    score(x, y) = sum_t w_{y_t} . x_t + sum_t A[y_t, y_{t+1}] + start[y_1] + end[y_T]

Blocks of factors: the K*K transitions first, then K for the first tag and K for the last (left out with boundary=False).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from maxmargin.errors import DataError
from maxmargin.problems.factor_graphs import FactorGraphs
from maxmargin.problems.features import Features
from maxmargin.problems.losses import variable_losses
from maxmargin.problems.templates import Structure, Template


def chain_problem(
    sequences: Sequence[Any],
    tags: Sequence[ArrayLike] | None,
    n_tags: int,
    boundary: bool = True,
    forbidden: ArrayLike | None = None,
    loss: str | ArrayLike = "hamming",
    sample_weight: ArrayLike | None = None,
) -> FactorGraphs:
    """Build the problem of a set of tagged sequences.

    Parameters
    ----------
    sequences : list of arrays or CSR matrices (length, p)
    tags : list of int arrays (length,), or None to predict
    n_tags : int
        K.
    boundary : bool
        Learn a weight for the first and for the last tag.
    forbidden : bool array (K, K), optional
        Transitions that may not happen.
    """
    rows, lengths = stack_examples(sequences, "sequence")
    labels = None
    if tags is not None:
        labels = join_labels(tags, lengths, "tags")
    scores = None
    if forbidden is not None:
        mask = np.asarray(forbidden, bool)
        if mask.shape != (n_tags, n_tags):
            raise DataError(f"forbidden has shape {mask.shape}; expected ({n_tags}, {n_tags}).")
        scores = np.where(mask, -np.inf, 0.0)
    square = n_tags * n_tags
    factor_templates = [Template(np.arange(square).reshape(n_tags, n_tags), scores)]
    if boundary:
        factor_templates += [Template(square + np.arange(n_tags)), Template(square + n_tags + np.arange(n_tags))]
    shapes, structure_of = np.unique(lengths, return_inverse=True)
    structures = [_chain(int(length), boundary) for length in shapes]
    return FactorGraphs(
        structures,
        structure_of,
        [Template(np.arange(n_tags))],
        factor_templates,
        rows,
        Features.constant(),
        np.concatenate([[0], np.cumsum(lengths)[:-1]]),
        np.zeros(len(lengths), np.int64),
        labels,
        None if labels is None else variable_losses(labels, np.full(len(labels), n_tags), lengths, loss),
        weights=sample_weight,
    )


def _chain(length: int, boundary: bool) -> Structure:
    scopes: list[tuple[int, ...]] = [(t, t + 1) for t in range(length - 1)]
    kinds = [0] * len(scopes)
    if boundary:
        scopes += [(0,), (length - 1,)]
        kinds += [1, 2]
    return Structure(np.zeros(length, np.int64), np.arange(length), kinds, np.zeros(len(kinds), np.int64), scopes)


def stack_examples(parts: Sequence[Any], noun: str) -> tuple[Features, NDArray[np.int64]]:
    """Stack the feature rows of all examples; CSR if any part is. Returns the features and the number of rows of each."""
    if len(parts) == 0:
        raise DataError(f"There is no {noun}: the data is empty.")
    checked = [part if sp.issparse(part) else np.asarray(part) for part in parts]
    for m, part in enumerate(checked):
        if part.ndim != 2:
            raise DataError(f"{noun.capitalize()} {m} has shape {part.shape}; expected (rows, features).")
        if part.shape[0] == 0:
            raise DataError(f"{noun.capitalize()} {m} is empty.")
        if part.shape[1] != checked[0].shape[1]:
            raise DataError(f"{noun.capitalize()} {m} has {part.shape[1]} features; {noun} 0 has {checked[0].shape[1]}.")
    stacked = sp.vstack(checked, format="csr") if any(map(sp.issparse, checked)) else np.concatenate(checked)
    return Features(stacked, f"the stacked {noun}s"), np.array([part.shape[0] for part in checked], np.int64)


def join_labels(labels: Sequence[ArrayLike], lengths: NDArray[np.int64], noun: str) -> NDArray[np.int32]:
    """Concatenate the labels of all examples after checking their lengths."""
    if len(labels) != len(lengths):
        raise DataError(f"There are {len(lengths)} examples, but {len(labels)} {noun}.")
    parts = [np.asarray(one) for one in labels]
    for m, part in enumerate(parts):
        if part.shape != (lengths[m],):
            raise DataError(f"Example {m} has {lengths[m]} rows, but its {noun} have shape {part.shape}.")
    return np.concatenate(parts).astype(np.int32)

"""Chains (Cutting section 3.2): a variable a position, a factor between neighbours, weights shared along the chain.

    score(x, y) = sum_t w_{y_t} . x_t + sum_t A[y_t, y_{t+1}] + start[y_1] + end[y_T]

Blocks of factors: the K*K transitions first, then K for the first tag and K for the last (left out with
boundary=False).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from maxmargin.errors import DataError
from maxmargin.problems.factor_graphs import FactorGraphs, as_states
from maxmargin.problems.features import Features, as_floats
from maxmargin.problems.losses import variable_losses
from maxmargin.problems.templates import Structure, Template


def chain_problem(
    sequences: Sequence[Any] | Features,
    tags: Sequence[ArrayLike] | None,
    n_tags: int,
    boundary: bool = True,
    forbidden: ArrayLike | None = None,
    loss: str | ArrayLike = "hamming",
    sample_weight: ArrayLike | None = None,
    lengths: ArrayLike | None = None,
) -> FactorGraphs:
    """Build the problem of a set of tagged sequences.

    Parameters
    ----------
    sequences : list of arrays or CSR matrices (length, p), or Features
        Features hold the rows of all sequences, one sequence after another; `lengths` says how many each has.
    tags : list of int arrays (length,), or None to predict
    n_tags : int
        K.
    boundary : bool
        Learn a weight for the first and for the last tag.
    forbidden : bool array (K, K), optional
        Transitions that may not happen.
    lengths : int array (M,), optional
    """
    if isinstance(sequences, Features):
        rows, lengths = sequences, np.asarray(lengths, np.int64)
        if lengths.ndim != 1 or (lengths < 1).any() or lengths.sum() != rows.shape[0]:
            raise DataError(f"The lengths of the sequences do not add up to the {rows.shape[0]} rows of {rows.name}.")
    else:
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


def stack_examples(parts: Sequence[Any], noun: str, name: str = "X") -> tuple[Features, NDArray[np.int64]]:
    """Stack the feature rows of all examples, CSR if any part is; returns the features and how many rows each has."""
    if len(parts) == 0:
        raise DataError(f"There is no {noun}: the data is empty.")
    title, width = noun.capitalize(), None
    checked: list[Any] = []
    for m, given in enumerate(parts):
        part: Any = given if sp.issparse(given) else np.asarray(given)
        if part.ndim != 2:
            raise DataError(f"{title} {m} has shape {part.shape}; expected (rows, features).")
        if part.shape[0] == 0:
            raise DataError(f"{title} {m} is empty.")
        width = part.shape[1] if width is None else width
        if part.shape[1] != width:
            raise DataError(f"{title} {m} has {part.shape[1]} features; {noun} 0 has {width}.")
        checked.append(part if sp.issparse(part) else as_floats(part, f"{title} {m}: {name}"))
    return stack_features(checked, title, name), np.array([part.shape[0] for part in checked], np.int64)


def stack_features(parts: Sequence[Any], title: str, name: str) -> Features:
    """Stack checked parts, CSR if any of them is; what is wrong with their numbers is said of the part that has it."""
    stacked = sp.vstack(parts, format="csr") if any(map(sp.issparse, parts)) else np.concatenate(parts)
    try:
        return Features(stacked, f"the stacked {name}")
    except DataError:
        for m, part in enumerate(parts):
            Features(part, f"{title} {m}: {name}")
        raise


def join_labels(labels: Sequence[ArrayLike], lengths: NDArray[np.int64], noun: str) -> NDArray[np.int32]:
    """Concatenate the labels of all examples after checking their lengths."""
    if len(labels) != len(lengths):
        raise DataError(f"There are {len(lengths)} examples, but {len(labels)} {noun}.")
    parts = []
    for m, one in enumerate(labels):
        part = np.asarray(one)
        if part.shape != (lengths[m],):
            raise DataError(f"Example {m} has {lengths[m]} rows, but its {noun} have shape {part.shape}.")
        parts.append(as_states(part, f"Example {m}: its {noun}"))
    return np.concatenate(parts)

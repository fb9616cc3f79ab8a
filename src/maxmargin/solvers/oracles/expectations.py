"""Expectations written to weights: the features of an example, times the change of their statistics, added row by row."""

from __future__ import annotations

from typing import Any

import numpy as np

from maxmargin.jit import inner, kernel
from maxmargin.problems.features import entry, score_row


@inner
def add_side(side: Any, m: int, s: int, out: Any, change: Any, scale: float) -> None:
    """Weights += scale * sum_r x_r change(r, :) of one side, as `add_statistics`, for changes that are nowhere zero."""
    groups, features = side.groups, side.features
    row0, at = side.first_row[m], side.at
    for q in range(side.first_group[s], side.first_group[s + 1]):
        place = at + groups[q].at
        moved = change[place : place + groups[q].block_end - groups[q].block]
        add_blocks(features, row0 + groups[q].row, out, groups[q].block, moved, scale)


@inner
def add_blocks(features: Any, row: int, out: Any, low: int, moved: Any, scale: float) -> None:
    """Weights of the blocks from `low` on += scale * x_row moved.

    Of weights behind a kernel only the coefficients are written, since the scores of a sum are found at once.
    """
    indptr, indices, data, dense, n = (
        features.indptr, features.indices, features.data, features.dense, len(features.gram),
    )  # fmt: skip
    high = low + len(moved)
    if n > 0:
        add_scaled(out[n + row, low:high], moved, scale)
    elif len(indptr) > 1:
        for k in range(indptr[row], indptr[row + 1]):
            add_scaled(out[indices[k], low:high], moved, scale * entry(data, k))
    else:
        for column in range(dense.shape[1]):
            add_scaled(out[column, low:high], moved, scale * dense[row, column])


@inner
def add_scaled(out: Any, vector: Any, scale: float) -> None:
    """Add scale times a vector to out."""
    for j in range(len(vector)):
        out[j] += scale * vector[j]


@kernel
def template_scores(features: Any, row: int, w_f: Any, blocks: Any, fixed: Any, out: Any) -> None:
    """Scores of all factor templates' joint states with one feature row."""
    learned = np.empty(w_f.shape[1])
    score_row(features, row, w_f, 0, len(learned), learned, 0)
    for y in range(len(blocks)):
        out[y] = fixed[y] + (learned[blocks[y]] if blocks[y] >= 0 else 0.0)


@kernel
def add_one_row(features: Any, row: int, out: Any, change: Any) -> None:
    """Weights += x_row change, of all blocks."""
    add_blocks(features, row, out, 0, change, 1.0)

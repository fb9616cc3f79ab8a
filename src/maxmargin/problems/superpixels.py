"""Two levels of superpixels: fine ones, each joined to one of the coarse ones.

    score(x, y) = sum_{i fine} (w_{y_i} x_i[y_i] - v [y_i != y_{c(i)}]) + sum_{j coarse} w_{y_j} x_j[y_j]

(O. Meshi, N. Srebro and T. Hazan, Efficient Training of Structured SVMs via Soft Constraints, AISTATS 2015, section 6; the picture
model of J. Yao, S. Fidler and R. Urtasun, CVPR 2012.) A reward v for equal classes is the same model as a penalty for unequal
ones, since every fine superpixel has one edge: ``GraphSVM(node_weights="class-wise", edge_weights="potts", fit_intercept=False)``
has its 21 + 1 weights for 21 classes. Every graph is a forest of stars.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from maxmargin.errors import DataError


def two_level_graph(fine: Any, coarse: Any, coarse_of: ArrayLike) -> tuple[Any, NDArray[np.int64]]:
    """The graph of two levels of superpixels of one picture: ``(node_features, edges)``, fine superpixels first.

    Parameters
    ----------
    fine, coarse : array or CSR matrix (n, p), array or CSR matrix (m, p)
        Features of the superpixels of each level.
    coarse_of : int array (n,)
        The coarse superpixel, 0 to m - 1, of each fine one; `nearest_superpixels` finds it from their positions.
    """
    one: Any = fine if sp.issparse(fine) else np.asarray(fine)
    other: Any = coarse if sp.issparse(coarse) else np.asarray(coarse)
    if one.ndim != 2 or other.ndim != 2 or one.shape[1] != other.shape[1]:
        raise DataError(
            f"The fine superpixels have shape {one.shape}, and the coarse ones {other.shape}; expected (rows, features), the "
            "same number of features in both."
        )
    parents = np.asarray(coarse_of)
    if parents.shape != (one.shape[0],) or (parents.size and not np.issubdtype(parents.dtype, np.integer)):
        raise DataError(
            f"coarse_of has shape {parents.shape}, dtype {parents.dtype}; expected a whole number for each of the "
            f"{one.shape[0]} fine superpixels."
        )
    wrong = np.flatnonzero((parents < 0) | (parents >= other.shape[0]))
    if len(wrong):
        raise DataError(
            f"coarse_of puts fine superpixel {wrong[0]} into coarse superpixel {parents[wrong[0]]}; there are "
            f"{other.shape[0]}, counted from 0."
        )
    stack: Any = (
        sp.vstack([one, other], format="csr") if sp.issparse(one) or sp.issparse(other) else np.vstack([one, other])
    )
    edges = np.column_stack([np.arange(one.shape[0]), one.shape[0] + parents.astype(np.int64)])
    return stack, edges.astype(np.int64)


def nearest_superpixels(fine: ArrayLike, coarse: ArrayLike) -> NDArray[np.int64]:
    """The coarse superpixel (n,) whose position (m, d) is nearest to that of each fine one (n, d); the first of several.

    Parameters
    ----------
    fine : array (n, d)
        Positions of the fine superpixels.
    coarse : array (m, d)
        Positions of the coarse ones.
    """
    one, other = np.asarray(fine, np.float64), np.asarray(coarse, np.float64)
    if one.ndim != 2 or other.ndim != 2 or one.shape[1] != other.shape[1] or len(other) == 0:
        raise DataError(
            f"The positions have shapes {one.shape} and {other.shape}; expected (superpixels, coordinates), at least one coarse "
            "superpixel."
        )
    # A coordinate at a time: all differences at once would take as much room as both levels together.
    apart = np.zeros((len(one), len(other)))
    for k in range(one.shape[1]):
        apart += (one[:, k, None] - other[None, :, k]) ** 2
    return np.asarray(apart.argmin(axis=1), np.int64)

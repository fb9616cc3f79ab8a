"""Feature matrices as the kernels see them.

Conventions
-----------
A feature matrix has one row per *feature row* and p columns. It is held either dense, C-contiguous (rows, p), or in
compressed sparse rows; float32 stays float32, everything else becomes float64. Sparse input is never made dense.

Kernels receive the tuple `FeatureArrays`: ``dense`` has no row when the matrix is sparse, and ``indptr`` has length 1
when it is dense, so that one compiled kernel serves both. Weights are held feature-major, shape (p, B): the scores of
one row for all B blocks are then sums of contiguous rows of the weights, which is what makes sparse features fast.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.errors import DataError
from maxmargin.kernels import inner


class FeatureArrays(NamedTuple):
    """A feature matrix for kernels: CSR when ``len(indptr) > 1``, dense otherwise."""

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    data: NDArray[Any]
    dense: NDArray[Any]
    squared_norms: NDArray[np.float64]


class Features:
    """A checked feature matrix, dense or CSR.

    Parameters
    ----------
    matrix : array-like or sparse matrix of shape (rows, p)
    name : str
        How error messages call it.
    """

    def __init__(self, matrix: Any, name: str = "X") -> None:
        self.name = name
        if sp.issparse(matrix):
            csr: Any = sp.csr_array(cast(Any, matrix))
            if not csr.has_canonical_format:
                # The arrays are the caller's, and summing duplicates works in place.
                csr = csr.copy()
                csr.sum_duplicates()
            data = as_floats(csr.data, name)
            if data.size and not np.isfinite(data).all():
                at = int(np.flatnonzero(~np.isfinite(data))[0])
                row = int(np.searchsorted(csr.indptr, at, side="right") - 1)
                raise DataError(
                    f"{name}[{row}, {csr.indices[at]}] is {data[at]}; features must be finite, not NaN or infinity."
                )
            self.shape: tuple[int, int] = (int(csr.shape[0]), int(csr.shape[1]))
            squares = sp.csr_array((data.astype(np.float64) ** 2, csr.indices, csr.indptr), shape=csr.shape)
            self.arrays = FeatureArrays(
                np.ascontiguousarray(csr.indptr, np.int64),
                np.ascontiguousarray(csr.indices, np.int32),
                np.ascontiguousarray(data),
                np.empty((0, 0), data.dtype),
                np.asarray(squares @ np.ones(csr.shape[1])),
            )
        else:
            dense = np.asarray(matrix)
            if dense.ndim != 2:
                raise DataError(
                    f"{name} has {dense.ndim} dimension(s), shape {dense.shape}; expected 2: (rows, features)."
                )
            dense = np.ascontiguousarray(as_floats(dense, name))
            bad = ~np.isfinite(dense)
            if bad.any():
                row, column = (int(k) for k in np.argwhere(bad)[0])
                raise DataError(
                    f"{name}[{row}, {column}] is {dense[row, column]}; features must be finite, not NaN or infinity."
                )
            self.shape = (int(dense.shape[0]), int(dense.shape[1]))
            self.arrays = FeatureArrays(
                np.zeros(1, np.int64),
                np.empty(0, np.int32),
                np.empty(0, dense.dtype),
                dense,
                _squared_norms(dense),
            )

    @property
    def sparse(self) -> bool:
        """Whether the matrix is held in compressed sparse rows."""
        return len(self.arrays.indptr) > 1

    @property
    def nbytes(self) -> int:
        """Bytes held by the matrix."""
        return int(sum(part.nbytes for part in self.arrays))

    def matrix(self) -> Any:
        """Return the matrix as an array or a CSR array, sharing memory."""
        if self.sparse:
            return sp.csr_array((self.arrays.data, self.arrays.indices, self.arrays.indptr), shape=self.shape)
        return self.arrays.dense

    @classmethod
    def constant(cls) -> Features:
        """One row with the single feature 1: what factors without features of their own use."""
        return cls(np.ones((1, 1)), "the constant feature")


def as_floats(values: NDArray[Any], name: str) -> NDArray[Any]:
    """Real numbers as float32 if they are that already, else as float64."""
    if values.dtype == np.float32 or values.dtype == np.float64:
        return values
    try:
        if values.dtype.kind in "biufO":
            return values.astype(np.float64)
    except (TypeError, ValueError):
        pass
    raise DataError(f"{name} holds values that are not real numbers (dtype {values.dtype}).")


def _squared_norms(dense: NDArray[Any]) -> NDArray[np.float64]:
    """Sum column by column, as the sparse product does: the same data trains to the same bits, dense or CSR."""
    norms = np.zeros(len(dense))
    for column in range(dense.shape[1]):
        norms += dense[:, column].astype(np.float64) ** 2
    return norms


@inner
def score_row(features: Any, row: int, weights: Any, first: int, last: int, out: Any, at: int) -> None:
    """out[at + b - first] = x_row . weights[:, b] for b in first..last-1."""
    indptr, indices, data, dense = features.indptr, features.indices, features.data, features.dense
    width = last - first
    for b in range(width):
        out[at + b] = 0.0
    if len(indptr) > 1:
        for q in range(indptr[row], indptr[row + 1]):
            x = data[q]
            column = indices[q]
            for b in range(width):
                out[at + b] += x * weights[column, first + b]
    else:
        for column in range(dense.shape[1]):
            x = dense[row, column]
            if x != 0.0:
                for b in range(width):
                    out[at + b] += x * weights[column, first + b]


@inner
def add_row(features: Any, row: int, weights: Any, first: int, last: int, change: Any, at: int, scale: float) -> None:
    """weights[:, b] += scale * change[at + b - first] * x_row for b in first..last-1."""
    indptr, indices, data, dense = features.indptr, features.indices, features.data, features.dense
    width = last - first
    if len(indptr) > 1:
        for q in range(indptr[row], indptr[row + 1]):
            x = scale * data[q]
            column = indices[q]
            for b in range(width):
                weights[column, first + b] += x * change[at + b]
    else:
        for column in range(dense.shape[1]):
            x = scale * dense[row, column]
            if x != 0.0:
                for b in range(width):
                    weights[column, first + b] += x * change[at + b]

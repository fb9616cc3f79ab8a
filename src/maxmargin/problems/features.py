"""Feature matrices as the kernels see them.

Conventions
-----------
A feature matrix has one row per *feature row* and p columns. It is held either dense, C-contiguous (rows, p), or in
compressed sparse rows; float32 stays float32, everything else becomes float64. Sparse input is never made dense.

Kernels receive the tuple `FeatureArrays`: ``dense`` has no row when the matrix is sparse, and ``indptr`` has length 1
when it is dense, so that one compiled kernel serves both. Weights are held feature-major, shape (p, B): the scores of
one row for all B blocks are then sums of contiguous rows of the weights, which is what makes sparse features fast.

With a kernel (`KernelFeatures`) the weights are never written down. ``w_b = sum_r A[r, b] phi(x_r)`` over the N rows of
the training data, and what stands in the place of the weights has shape (2 N, B): the scores Z = K A above the dual
coefficients A. Reading a row's scores costs nothing; adding a row to the weights costs N. Sums and multiples of such
arrays are those of the weights, and `Features.inner` knows their inner products.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.errors import DataError
from maxmargin.kernels import inner

#: A dense matrix of at least so many columns, of which less than this share is not 0, is held in compressed rows: loops over it
#: are faster, and it takes less room. The same data has the same scores either way, to the bit.
_WIDE, _MOSTLY_ZERO = 16, 0.35


class FeatureArrays(NamedTuple):
    """A feature matrix for kernels: CSR when ``len(indptr) > 1``, dense otherwise."""

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    data: NDArray[Any]
    dense: NDArray[Any]
    squared_norms: NDArray[np.float64]
    #: (N, N) inner products of the rows, with a kernel; (0, 0) without.
    gram: NDArray[np.float64]


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
            self.arrays = _compressed(csr, data)
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
            if dense.shape[1] >= _WIDE and np.count_nonzero(dense) < _MOSTLY_ZERO * dense.size:
                compressed = sp.csr_array(dense)
                self.arrays = _compressed(compressed, compressed.data)
                return
            self.arrays = FeatureArrays(
                np.zeros(1, np.int64),
                np.empty(0, np.int32),
                np.empty(0, dense.dtype),
                dense,
                _squared_norms(dense),
                np.empty((0, 0)),
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

    def working_weights(self, blocks: NDArray[np.float64]) -> NDArray[np.float64]:
        """Weights (B, p) as kernels want them, feature-major."""
        return np.ascontiguousarray(blocks.T)

    def flat_weights(self, working: NDArray[np.float64]) -> NDArray[np.float64]:
        """Weights as kernels have them, block after block."""
        return working.T.ravel()

    def inner(self, one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
        """Inner product of two weights as kernels have them.

        Not by BLAS: its threads would wait for each other on a machine that has other work.
        """
        return float(np.einsum("ij,ij->", one, other))

    @classmethod
    def constant(cls) -> Features:
        """One row with the single feature 1: what factors without features of their own use."""
        return cls(np.ones((1, 1)), "the constant feature")


class KernelFeatures(Features):
    """The rows of the training data, known by their inner products alone.

    Parameters
    ----------
    gram : array (N, N)
        Symmetric and positive semi-definite.
    name : str
        How error messages call it.
    """

    def __init__(self, gram: NDArray[np.float64], name: str = "the kernel matrix") -> None:
        values = np.ascontiguousarray(gram, np.float64)
        if values.ndim != 2 or values.shape[0] != values.shape[1]:
            raise DataError(
                f"{name} has shape {values.shape}; expected a square matrix, a row and a column per feature row."
            )
        if not np.isfinite(values).all():
            row, column = (int(k) for k in np.argwhere(~np.isfinite(values))[0])
            raise DataError(
                f"{name}[{row}, {column}] is {values[row, column]}; it must be finite, not NaN or infinity."
            )
        largest = float(np.abs(values).max(initial=0.0))
        if not np.allclose(values, values.T, rtol=0.0, atol=1e-8 * largest):
            row, column = (int(k) for k in np.argwhere(np.abs(values - values.T) > 1e-8 * largest)[0])
            raise DataError(
                f"{name} is not symmetric: [{row}, {column}] is {values[row, column]}, "
                f"but [{column}, {row}] is {values[column, row]}."
            )
        if values.size and values.diagonal().min() < 0:
            row = int(values.diagonal().argmin())
            raise DataError(
                f"{name}[{row}, {row}] is {values[row, row]}; a kernel of a row with itself is not negative."
            )
        self.name = name
        self.shape = (len(values), len(values))
        self.arrays = FeatureArrays(
            np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0), np.empty((0, 0)), values.diagonal().copy(), values
        )  # fmt: skip

    def matrix(self) -> Any:
        """Return the matrix of inner products: scores are its rows times the dual coefficients."""
        return self.arrays.gram

    def working_weights(self, blocks: NDArray[np.float64]) -> NDArray[np.float64]:
        """Dual coefficients (B, N) as kernels want them: scores above coefficients, (2 N, B)."""
        return np.ascontiguousarray(np.concatenate([self.arrays.gram @ blocks.T, blocks.T]))

    def flat_weights(self, working: NDArray[np.float64]) -> NDArray[np.float64]:
        """The dual coefficients, block after block."""
        return working[self.shape[0] :].T.ravel()

    def inner(self, one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
        """Scores of one weighed with the coefficients of the other."""
        return float(np.einsum("ij,ij->", one[: self.shape[0]], other[self.shape[0] :]))


def _compressed(csr: Any, data: NDArray[Any]) -> FeatureArrays:
    squares = sp.csr_array((data.astype(np.float64) ** 2, csr.indices, csr.indptr), shape=csr.shape)
    return FeatureArrays(
        np.ascontiguousarray(csr.indptr, np.int64),
        np.ascontiguousarray(csr.indices, np.int32),
        np.ascontiguousarray(data),
        np.empty((0, 0), data.dtype),
        np.asarray(squares @ np.ones(csr.shape[1])),
        np.empty((0, 0)),
    )


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
    if features.gram.shape[0] > 0:
        for b in range(width):
            out[at + b] = weights[row, first + b]
        return
    if width == 1:
        # One block, as in binary problems: a loop over blocks would cost more than the product.
        total = 0.0
        if len(indptr) > 1:
            for q in range(indptr[row], indptr[row + 1]):
                total += data[q] * weights[indices[q], first]
        else:
            for column in range(dense.shape[1]):
                total += dense[row, column] * weights[column, first]
        out[at] = total
        return
    for b in range(width):
        out[at + b] = 0.0
    # Four features at a time: a loop over few blocks costs as much to begin as to run. Sums stay in the order of the features,
    # so that the same data has the same scores, dense or CSR.
    if len(indptr) > 1:
        q, end = indptr[row], indptr[row + 1]
        while q + 4 <= end:
            _add_four(
                weights, indices[q], indices[q + 1], indices[q + 2], indices[q + 3], data[q], data[q + 1], data[q + 2],
                data[q + 3], first, width, out, at,
            )  # fmt: skip
            q += 4
        while q < end:
            x, column = data[q], indices[q]
            for b in range(width):
                out[at + b] += x * weights[column, first + b]
            q += 1
        return
    held = 0
    c0, c1, c2 = 0, 0, 0
    x0 = x1 = x2 = dense[row, 0] if dense.shape[1] > 0 else 0.0
    for column in range(dense.shape[1]):
        x = dense[row, column]
        if x != 0.0:
            if held == 0:
                c0, x0 = column, x
            elif held == 1:
                c1, x1 = column, x
            elif held == 2:
                c2, x2 = column, x
            else:
                _add_four(weights, c0, c1, c2, column, x0, x1, x2, x, first, width, out, at)
                held = -1
            held += 1
    for k in range(held):
        column, x = (c0, x0) if k == 0 else (c1, x1) if k == 1 else (c2, x2)
        for b in range(width):
            out[at + b] += x * weights[column, first + b]


@inner
def _add_four(
    weights: Any, c0: int, c1: int, c2: int, c3: int, x0: float, x1: float, x2: float, x3: float, first: int, width: int,
    out: Any, at: int,
) -> None:  # fmt: skip
    """Add four features' parts to the scores, one after the other."""
    w0, w1, w2, w3 = weights[c0], weights[c1], weights[c2], weights[c3]
    for b in range(width):
        total = out[at + b] + x0 * w0[first + b]
        total += x1 * w1[first + b]
        total += x2 * w2[first + b]
        out[at + b] = total + x3 * w3[first + b]


@inner
def add_row(features: Any, row: int, weights: Any, first: int, last: int, change: Any, at: int, scale: float) -> None:
    """weights[:, b] += scale * change[at + b - first] * x_row for b in first..last-1."""
    indptr, indices, data, dense, gram = features.indptr, features.indices, features.data, features.dense, features.gram
    width, n = last - first, gram.shape[0]
    changed = 0
    for b in range(width):
        changed += change[at + b] != 0.0
    # Few blocks change at most visits of a problem with many: then a column at a time touches less. One block is a column.
    narrow = 6 * changed < width or width == 1
    if n > 0:
        for b in range(width):
            weights[n + row, first + b] += scale * change[at + b]
        for i in range(n):
            x = scale * gram[row, i]
            for b in range(width):
                weights[i, first + b] += x * change[at + b]
    elif narrow:
        for b in range(width):
            step = scale * change[at + b]
            if step != 0.0:
                if len(indptr) > 1:
                    for q in range(indptr[row], indptr[row + 1]):
                        weights[indices[q], first + b] += step * data[q]
                else:
                    for column in range(dense.shape[1]):
                        weights[column, first + b] += step * dense[row, column]
    elif len(indptr) > 1:
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

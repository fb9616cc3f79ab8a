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

Solvers that look at all rows at once need no more of a kernel than ``K @ A``, which `times` computes. `KernelBlocks` does so
without the matrix, tile by tile, in bounded memory. ``K[i, j]`` serves ``K[j, i]`` too, so that N^2 / 2 values are computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import copy
from typing import Any, NoReturn

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.errors import DataError, OptionError
from maxmargin.jit import Struct, inner, kernel
from maxmargin.sparse import checked_csr

#: A dense matrix of at least so many columns, of which less than this share is not 0, is held in compressed rows: loops over it
#: are faster, and it takes less room. The same data has the same scores either way, to the bit.
WIDE, MOSTLY_ZERO = 16, 0.35
#: Bytes of kernel values that `KernelBlocks` holds at a time, and how many tiles they are.
_BLOCK_BYTES, _TILES = 64 << 20, 16
#: Rows up to which a factorisation decides whether a matrix is positive semi-definite; above, steps of Lanczos' method, N^2 each.
_DECIDED, _STEPS = 4096, 60
#: Kernels count the columns of sparse matrices in 32 bits.
_MOST_COLUMNS = 2**31
#: Numbers that are compared at a time.
_MASK = 1 << 20
#: An eigenvalue as far below 0 as this share of the largest is rounding.
_ROUNDING = 1e-8


class FeatureArrays(Struct):
    """A feature matrix for kernels: CSR when ``len(indptr) > 1``, dense otherwise. CSR without ``data`` has entries of 1 alone."""

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

    shape: tuple[int, int]
    #: Whether the matrix was given dense and is held in compressed rows.
    compressed = False

    def __init__(self, matrix: Any, name: str = "X") -> None:
        self.name = name
        if sp.issparse(matrix):
            csr = checked_csr(matrix, name)
            if csr.shape[1] >= _MOST_COLUMNS:
                raise DataError(f"{name} has {csr.shape[1]} columns; expected fewer than 2**31.")
            if _all_ones(csr.data):
                data = np.empty(0, np.float32 if csr.data.dtype == np.float32 else np.float64)
            else:
                data = as_floats(csr.data, name)
            if data.size and not _all_finite(data):
                at = int(np.flatnonzero(~np.isfinite(data))[0])
                row = int(np.searchsorted(csr.indptr, at, side="right") - 1)
                raise DataError(
                    f"{name}[{row}, {csr.indices[at]}] is {data[at]}; features must be finite, not NaN or infinity."
                )
            self.shape = (int(csr.shape[0]), int(csr.shape[1]))
            self.arrays = compressed(csr.indptr, csr.indices, data)
        else:
            dense = np.asarray(matrix)
            if dense.ndim != 2:
                raise DataError(
                    f"{name} has {dense.ndim} dimension(s), shape {dense.shape}; expected 2: (rows, features)."
                )
            dense = np.ascontiguousarray(as_floats(dense, name))
            if not _all_finite(dense):
                row, column = (int(k) for k in np.argwhere(~np.isfinite(dense))[0])
                raise DataError(
                    f"{name}[{row}, {column}] is {dense[row, column]}; features must be finite, not NaN or infinity."
                )
            self.shape = (int(dense.shape[0]), int(dense.shape[1]))
            if dense.shape[1] >= WIDE and np.count_nonzero(dense) < MOSTLY_ZERO * dense.size:
                rows = sp.csr_array(dense)
                self.arrays = compressed(rows.indptr, rows.indices, rows.data)
                self.compressed = True
                return
            self.arrays = FeatureArrays(
                np.zeros(1, np.int64),
                np.empty(0, np.int32),
                np.empty(0, dense.dtype),
                dense,
                squared_norms(dense),
                np.empty((0, 0)),
            )

    @classmethod
    def of_rows(
        cls, indptr: NDArray[np.int64], indices: NDArray[np.int32], data: NDArray[Any], n_columns: int, name: str
    ) -> Features:
        """Features of compressed rows that are known to be right: sorted, distinct, in range and finite; no data says ones.

        Parameters
        ----------
        indptr, indices, data : arrays
            Rows in CSR; no `data` at all if every value is 1.
        n_columns : int
            p.
        name : str
            What errors call the matrix.
        """
        made = cls.__new__(cls)
        made.set_rows(indptr, indices, data, n_columns, name)
        return made

    def set_rows(
        self, indptr: NDArray[np.int64], indices: NDArray[np.int32], data: NDArray[Any], n_columns: int, name: str
    ) -> None:
        """Hold such rows.

        Parameters
        ----------
        indptr, indices, data : arrays
            Rows in CSR; no `data` at all if every value is 1.
        n_columns : int
            p.
        name : str
            What errors call the matrix.
        """
        self.name, self.shape = name, (len(indptr) - 1, n_columns)
        self.arrays = compressed(indptr, indices, data)

    @property
    def sparse(self) -> bool:
        """Whether the matrix is held in compressed sparse rows."""
        return len(self.arrays.indptr) > 1

    @property
    def nbytes(self) -> int:
        """Bytes held by the matrix."""
        return int(sum(part.nbytes for part in self.arrays))

    def matrix(self) -> Any:
        """Return the matrix as an array or a CSR array, sharing memory but for ones that are not kept."""
        a = self.arrays
        if self.sparse:
            data = a.data if len(a.data) else np.ones(len(a.indices), a.data.dtype)
            return sp.csr_array((data, a.indices, a.indptr), shape=self.shape)
        return a.dense

    def fingerprint_arrays(self) -> tuple[NDArray[Any], ...]:
        """All that scores and inner products depend on, for comparing data."""
        return tuple(self.arrays)

    def working_weights(self, blocks: NDArray[np.float64]) -> NDArray[np.float64]:
        """Weights (B, p) as kernels want them, feature-major.

        Parameters
        ----------
        blocks : array (B, p)
            Weights, a row a block.
        """
        return np.ascontiguousarray(blocks.T)

    @property
    def working_rows(self) -> int:
        """Rows of weights as kernels want them."""
        return self.shape[1]

    def blocks(self, working: NDArray[np.float64]) -> NDArray[np.float64]:
        """A view (B, p) of weights as kernels have them.

        Parameters
        ----------
        working : array (p, B)
            Weights as kernels have them.
        """
        return working.T

    def inner(self, one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
        """Inner product of two weights as kernels have them.

        Not by BLAS: its threads would wait for each other on a machine that has other work.

        Parameters
        ----------
        one, other : arrays (p, B)
            Weights as kernels have them.
        """
        return float(np.einsum("ij,ij->", self.halves(one)[0], self.halves(other)[1]))

    def halves(self, working: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Two views of weights; products of one's first and another's second are inner products.

        Parameters
        ----------
        working : array
            Weights as kernels have them.
        """
        return working, working

    def with_constant(self) -> Features:
        """The same rows with a last column of ones; they are not checked again. CSR stays CSR, float32 stays float32."""
        (n, p), a = self.shape, self.arrays
        if p + 1 >= _MOST_COLUMNS:
            raise DataError(f"{self.name} has {p} columns; expected fewer than 2**31, and one for the constant.")
        made = copy(self)
        made.shape = (n, p + 1)
        if self.sparse:
            indices = np.empty(len(a.indices) + n, np.int32)
            data = np.empty(len(a.data) + n if len(a.data) else 0, a.data.dtype)
            _append_ones(a.indptr, a.indices, a.data, p, indices, data)
            parts = a.indptr + np.arange(n + 1), indices, data, a.dense
        else:
            parts = a.indptr, a.indices, a.data, np.hstack([a.dense, np.ones((n, 1), a.dense.dtype)])
        made.arrays = FeatureArrays(*parts, a.squared_norms + 1.0, a.gram)
        return made

    def some_rows(self, begin: int, end: int) -> Features:
        """Some of the rows, as views of these.

        Parameters
        ----------
        begin, end : int
            The first row, and the one after the last.
        """
        a, made = self.arrays, copy(self)
        made.shape = (end - begin, self.shape[1])
        norms = a.squared_norms[begin:end]
        if self.sparse:
            low, high = int(a.indptr[begin]), int(a.indptr[end])
            indptr, data = a.indptr[begin : end + 1] - low, a.data[low:high] if len(a.data) else a.data
            made.arrays = FeatureArrays(indptr, a.indices[low:high], data, a.dense, norms, a.gram)
        else:
            made.arrays = FeatureArrays(a.indptr, a.indices, a.data, a.dense[begin:end], norms, a.gram)
        return made

    def column_ranges(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The smallest and the largest value of each column of compressed rows, zeros that are not held included."""
        p, a = self.shape[1], self.arrays
        low, high, count = np.full(p, np.inf), np.full(p, -np.inf), np.zeros(p, np.int64)
        _column_ranges(a.indices, a.data, low, high, count)
        some = count < self.shape[0]
        return np.where(some, np.minimum(low, 0.0), low), np.where(some, np.maximum(high, 0.0), high)

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
        self.name = name
        if values.ndim != 2 or values.shape[0] != values.shape[1]:
            raise DataError(
                f"{name} has shape {values.shape}; expected a square matrix, a row and a column per feature row."
            )
        _check_values(values, name, 0)
        self.shape = (len(values), len(values))
        self.arrays = FeatureArrays(
            np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0), np.empty((0, 0)), values.diagonal().copy(), values
        )  # fmt: skip

    def matrix(self) -> Any:
        """Return the matrix of inner products: scores are its rows times the dual coefficients."""
        return self.arrays.gram

    def times(self, coefficients: NDArray[np.float64]) -> NDArray[np.float64]:
        """Scores K A (N, B) of all rows, from dual coefficients A (N, B)."""
        return np.asarray(self.arrays.gram @ coefficients)

    def working_weights(self, blocks: NDArray[np.float64]) -> NDArray[np.float64]:
        """Dual coefficients (B, N) as kernels want them: scores above coefficients, (2 N, B)."""
        return np.ascontiguousarray(np.concatenate([self.times(blocks.T), blocks.T]))

    @property
    def working_rows(self) -> int:
        """Rows of scores and of coefficients."""
        return 2 * self.shape[0]

    def blocks(self, working: NDArray[np.float64]) -> NDArray[np.float64]:
        """A view (B, N) of the dual coefficients."""
        return working[self.shape[0] :].T

    def halves(self, working: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Scores and coefficients: scores of one are weighed with the coefficients of the other."""
        return working[: self.shape[0]], working[self.shape[0] :]


class KernelBlocks(KernelFeatures):
    """The rows of the training data and a kernel, whose matrix is never held whole.

    Only `times` is there. What would read single inner products (`matrix`, `working_weights`) refuses; ``arrays.gram`` is empty.

    Parameters
    ----------
    rows : array or CSR matrix (N, p)
    kernel : callable
        ``kernel(X, Y)`` is a matrix with a row for each row of X and a column for each row of Y, symmetric and positive
        semi-definite.
    name : str
        How error messages call the matrix.
    block_bytes : int
        Most bytes of kernel values held at a time. Tiles that fit are kept from one product to the next.
    """

    def __init__(
        self,
        rows: Any,
        kernel: Callable[[Any, Any], NDArray[np.float64]],
        name: str = "the kernel matrix",
        block_bytes: int = _BLOCK_BYTES,
    ) -> None:
        n = int(rows.shape[0])
        self.name, self.rows, self.kernel = name, rows, kernel
        self.shape = (n, n)
        self.block_bytes = block_bytes
        self._side = max(1, math.isqrt(block_bytes // (8 * _TILES)))
        self._kept: dict[tuple[int, int], NDArray[np.float64]] = {}
        diagonal = np.empty(n)
        for first in range(0, n, self._side):
            tile = self._tile(first, first)
            _check_values(tile, name, first)
            diagonal[first : first + self._side] = tile.diagonal()
        # A few columns, by which other kernels on the same rows are told apart; nothing else reads them.
        few = np.unique(np.linspace(0, n - 1, 4).astype(np.int64)) if n else np.empty(0, np.int64)
        columns = np.asarray(kernel(rows, rows[few]), np.float64).ravel() if n else np.empty(0)
        self.arrays = FeatureArrays(
            np.zeros(1, np.int64), np.empty(0, np.int32), columns, np.empty((0, 0)), diagonal, np.empty((0, 0))
        )

    def fingerprint_arrays(self) -> tuple[NDArray[Any], ...]:
        """The rows, and some values of the kernel: a function cannot be compared."""
        rows = Features(self.rows, self.name).arrays
        return (*rows, *self.arrays)

    @property
    def nbytes(self) -> int:
        """Bytes held beside the rows: `FeatureArrays` and the tiles that are kept."""
        return super().nbytes + sum(tile.nbytes for tile in self._kept.values())

    def times(self, coefficients: NDArray[np.float64]) -> NDArray[np.float64]:
        """Scores K A (N, B) of all rows, tile by tile, always in the same order."""
        scores = np.zeros(coefficients.shape)
        for first in range(0, self.shape[0], self._side):
            ours = slice(first, first + self._side)
            for second in range(first, self.shape[0], self._side):
                theirs = slice(second, second + self._side)
                tile = self._tile(first, second)
                scores[ours] += tile @ coefficients[theirs]
                if second > first:
                    scores[theirs] += tile.T @ coefficients[ours]
        return scores

    def _tile(self, first: int, second: int) -> NDArray[np.float64]:
        """The kernel between the rows from `first` and the rows from `second`."""
        if (first, second) in self._kept:
            return self._kept[first, second]
        ours = self.rows[first : first + self._side]
        # That both are one and the same object makes a tile on the diagonal symmetric to the last bit.
        tile = np.asarray(
            self.kernel(ours, ours if first == second else self.rows[second : second + self._side]), float
        )
        _check_finite(tile, self.name, first, second)
        # Room for two stays free: for the one at work, and for what the kernel itself needs.
        if len(self._kept) < _TILES - 2:
            self._kept[first, second] = tile
        return tile

    def _refuse(self) -> NoReturn:
        raise OptionError(
            f"{self.name[0].upper()}{self.name[1:]} is not held whole, so that nothing can be read from it row by row; "
            'use "one-slack" or "bundle", which look at all rows at once, or a KernelFeatures of the matrix.'
        )

    @property
    def working_rows(self) -> NoReturn:
        """Refuse: solvers that work on these read single inner products."""
        self._refuse()

    def matrix(self) -> NoReturn:
        """Refuse: there is no matrix."""
        self._refuse()

    def working_weights(self, blocks: NDArray[np.float64]) -> NoReturn:
        """Refuse: solvers that work on these read single inner products."""
        self._refuse()


def _check_values(values: NDArray[np.float64], name: str, first: int) -> None:
    """Refuse what is no square part, from row `first` on, of a matrix of inner products."""
    _check_finite(values, name, first, first)
    largest = float(np.abs(values).max(initial=0.0))
    if not np.allclose(values, values.T, rtol=0.0, atol=_ROUNDING * largest):
        row, column = (int(k) for k in np.argwhere(np.abs(values - values.T) > _ROUNDING * largest)[0])
        raise DataError(
            f"{name} is not symmetric: [{first + row}, {first + column}] is {values[row, column]}, "
            f"but [{first + column}, {first + row}] is {values[column, row]}."
        )
    if values.size and values.diagonal().min() < 0:
        row = int(values.diagonal().argmin())
        raise DataError(
            f"{name}[{first + row}, {first + row}] is {values[row, row]}; a kernel of a row with itself is not negative."
        )


def _check_finite(values: NDArray[np.float64], name: str, first: int, second: int) -> None:
    if not np.isfinite(values).all():
        row, column = (int(k) for k in np.argwhere(~np.isfinite(values))[0])
        raise DataError(
            f"{name}[{first + row}, {second + column}] is {values[row, column]}; it must be finite, not NaN or infinity."
        )


def check_semidefinite(gram: NDArray[np.float64], name: str) -> None:
    """Refuse a symmetric matrix with an eigenvalue below 0, in a sentence that names the most negative one.

    Up to 4096 rows, gram + 1e-8 largest I has a Cholesky factor or not, which decides it. Above, Lanczos' method looks for a
    negative eigenvalue: what it finds is there, but one that is small beside the largest may escape it.
    """
    if not gram.size:
        return
    least, largest = _ritz_values(gram)
    if least >= -_ROUNDING * largest and len(gram) <= _DECIDED:
        shifted = gram.copy()
        shifted.flat[:: len(gram) + 1] += _ROUNDING * max(largest, np.finfo(float).tiny)
        if scipy.linalg.lapack.dpotrf(shifted.T, lower=True, overwrite_a=True, clean=False)[1] > 0:
            least = -np.inf
    if least < -_ROUNDING * largest:
        if len(gram) <= _DECIDED:
            least, largest = (float(scipy.linalg.eigvalsh(gram, subset_by_index=(k, k))[0]) for k in (0, len(gram) - 1))
        raise DataError(
            f"{name} is not positive semi-definite: its most negative eigenvalue is {least:.6g}, and its largest {largest:.6g}. "
            "A kernel must be an inner product in some space, whose matrices have no negative eigenvalue."
        )


def _ritz_values(gram: NDArray[np.float64]) -> tuple[float, float]:
    """The least and the largest eigenvalue that Lanczos' method finds: never below the one, never above the other."""
    n = len(gram)
    steps = min(n, _STEPS)
    basis = np.zeros((steps, n))
    image = np.random.default_rng(0).normal(size=n)
    on, off = np.zeros(steps), np.zeros(steps)
    for k in range(steps):
        length = float(np.linalg.norm(image))
        if k and length <= 1e-12 * np.abs(on).max():
            steps = k
            break
        off[k], basis[k] = length, image / length
        image = gram @ basis[k]
        on[k] = image @ basis[k]
        # Twice, because once leaves what rounding put back.
        for _ in range(2):
            image -= basis[: k + 1].T @ (basis[: k + 1] @ image)
    values = scipy.linalg.eigvalsh_tridiagonal(on[:steps], off[1:steps])
    return float(values[0]), float(values[-1])


def _all_ones(values: NDArray[Any]) -> bool:
    """Whether all numbers are 1, without a mask as long as they are, or any where the first says that they are not."""
    return (
        values.dtype.kind in "biuf"
        and (len(values) == 0 or bool(values[0] == 1))
        and all((values[k : k + _MASK] == 1).all() for k in range(0, len(values), _MASK))
    )


def _all_finite(values: NDArray[Any]) -> bool:
    """Whether all numbers are finite: so they are if their sum is, which needs no mask; else in pieces."""
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(values.sum()):
            return True
    step = max(1, _MASK // max(1, values.size // max(1, len(values))))
    return all(np.isfinite(values[k : k + step]).all() for k in range(0, len(values), step))


def compressed(indptr: NDArray[Any], indices: NDArray[Any], data: NDArray[Any]) -> FeatureArrays:
    """Compressed rows for kernels, with their norms."""
    indptr, data = np.ascontiguousarray(indptr, np.int64), np.ascontiguousarray(data)
    norms = np.empty(len(indptr) - 1)
    _row_norms(indptr, data, norms)
    return FeatureArrays(
        indptr, np.ascontiguousarray(indices, np.int32), data, np.empty((0, 0), data.dtype), norms, np.empty((0, 0))
    )


def as_floats(values: NDArray[Any], name: str) -> NDArray[Any]:
    """Real numbers as float32 if they are that already, else as float64."""
    if values.dtype == np.float32 or values.dtype == np.float64:
        return values
    try:
        if values.dtype.kind in "biufO":
            return values.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        pass
    raise DataError(f"{name} holds values that are not real numbers (dtype {values.dtype}).")


def squared_norms(dense: NDArray[Any]) -> NDArray[np.float64]:
    """Sum column by column, as of compressed rows: the same data trains to the same bits, dense or CSR."""
    norms = np.zeros(len(dense))
    # Some rows at a time, which stay in the cache while column after column is read.
    step = max(1, _MASK // max(1, dense.shape[1]))
    for first in range(0, len(dense), step):
        rows, out = dense[first : first + step], norms[first : first + step]
        for column in range(dense.shape[1]):
            out += rows[:, column].astype(np.float64) ** 2
    return norms


def column_moments(
    dense: NDArray[Any],
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """The least and the largest value of each column, its mean and its standard deviation; nothing is copied."""
    p = dense.shape[1]
    low, high, total, square = np.full(p, np.inf), np.full(p, -np.inf), np.zeros(p), np.zeros(p)
    _add_moments(dense, low, high, total)
    mean = total / len(dense)
    _add_deviations(dense, mean, square)
    return low, high, mean, np.sqrt(square / len(dense))


@kernel
def _add_moments(dense: Any, low: Any, high: Any, total: Any) -> None:
    for row in range(dense.shape[0]):
        for column in range(dense.shape[1]):
            value = np.float64(dense[row, column])
            low[column], high[column] = min(low[column], value), max(high[column], value)
            total[column] += value


@kernel
def _add_deviations(dense: Any, mean: Any, square: Any) -> None:
    for row in range(dense.shape[0]):
        for column in range(dense.shape[1]):
            away = np.float64(dense[row, column]) - mean[column]
            square[column] += away * away


@kernel
def _row_norms(indptr: Any, data: Any, out: Any) -> None:
    for row in range(len(out)):
        total = 0.0
        for q in range(indptr[row], indptr[row + 1]):
            value = np.float64(entry(data, q))
            total += value * value
        out[row] = total


@kernel
def _append_ones(indptr: Any, indices: Any, data: Any, column: int, new_indices: Any, new_data: Any) -> None:
    for row in range(len(indptr) - 1):
        for q in range(indptr[row], indptr[row + 1]):
            new_indices[q + row] = indices[q]
        new_indices[indptr[row + 1] + row] = column
    for row in range(len(indptr) - 1 if len(data) > 0 else 0):
        for q in range(indptr[row], indptr[row + 1]):
            new_data[q + row] = data[q]
        new_data[indptr[row + 1] + row] = 1.0


@kernel
def _column_ranges(indices: Any, data: Any, low: Any, high: Any, count: Any) -> None:
    for q in range(len(indices)):
        column, value = indices[q], np.float64(entry(data, q))
        low[column], high[column] = min(low[column], value), max(high[column], value)
        count[column] += 1


@inner
def row_times_block(features: Any, row: int, weights: Any, block: int) -> float:
    """x_row . weights[:, block]."""
    indptr, indices, data, dense = features.indptr, features.indices, features.data, features.dense
    total = 0.0
    if len(indptr) > 1:
        for q in range(indptr[row], indptr[row + 1]):
            total += entry(data, q) * weights[indices[q], block]
    else:
        for column in range(dense.shape[1]):
            total += dense[row, column] * weights[column, block]
    return total


@inner
def row_times_four(
    features: Any, row: int, weights: Any, b0: int, b1: int, b2: int, b3: int
) -> tuple[float, float, float, float]:
    """x_row . weights[:, b] of four blocks: sums of one wait for themselves at each step."""
    indptr, indices, data, dense = features.indptr, features.indices, features.data, features.dense
    t0 = t1 = t2 = t3 = 0.0
    if len(indptr) > 1:
        for q in range(indptr[row], indptr[row + 1]):
            x, w = entry(data, q), weights[indices[q]]
            t0 += x * w[b0]
            t1 += x * w[b1]
            t2 += x * w[b2]
            t3 += x * w[b3]
    else:
        for column in range(dense.shape[1]):
            x, w = dense[row, column], weights[column]
            t0 += x * w[b0]
            t1 += x * w[b1]
            t2 += x * w[b2]
            t3 += x * w[b3]
    return t0, t1, t2, t3


@inner
def add_to_block(features: Any, row: int, weights: Any, block: int, scale: float) -> None:
    """weights[:, block] += scale * x_row."""
    indptr, indices, data, dense = features.indptr, features.indices, features.data, features.dense
    if len(indptr) > 1:
        for q in range(indptr[row], indptr[row + 1]):
            weights[indices[q], block] += scale * entry(data, q)
    else:
        for column in range(dense.shape[1]):
            weights[column, block] += scale * dense[row, column]


@inner
def add_to_two_blocks(features: Any, row: int, weights: Any, b: int, c: int, scale: float, scale_c: float) -> None:
    """weights[:, b] += scale * x_row and weights[:, c] += scale_c * x_row; neither block is the other."""
    indptr, indices, data, dense = features.indptr, features.indices, features.data, features.dense
    if len(indptr) > 1:
        for q in range(indptr[row], indptr[row + 1]):
            column, x = indices[q], entry(data, q)
            weights[column, b] += scale * x
            weights[column, c] += scale_c * x
    else:
        for column in range(dense.shape[1]):
            x = dense[row, column]
            weights[column, b] += scale * x
            weights[column, c] += scale_c * x


@inner
def entry(data: Any, q: int) -> float:
    """The q-th value of compressed rows, of which none is kept if all are 1."""
    return data[q] if len(data) > 0 else 1.0


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
        out[at] = row_times_block(features, row, weights, first)
        return
    for b in range(width):
        out[at + b] = 0.0
    # Four features at a time: a loop over few blocks costs as much to begin as to run. Sums stay in the order of the features,
    # so that the same data has the same scores, dense or CSR.
    if len(indptr) > 1:
        q, end = indptr[row], indptr[row + 1]
        while q + 4 <= end:
            _add_four(
                weights, indices[q], indices[q + 1], indices[q + 2], indices[q + 3], entry(data, q), entry(data, q + 1),
                entry(data, q + 2), entry(data, q + 3), first, width, out, at,
            )  # fmt: skip
            q += 4
        while q < end:
            x, column = entry(data, q), indices[q]
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
    if changed == 0:
        return
    # Few blocks change at most visits of a problem with many: then a column at a time touches less. One block is a column.
    narrow = 6 * changed < width or width == 1
    if n > 0:
        for b in range(width):
            weights[n + row, first + b] += scale * change[at + b]
        if narrow:
            for b in range(width):
                step = scale * change[at + b]
                for i in range(n if step != 0.0 else 0):
                    weights[i, first + b] += step * gram[row, i]
            return
        for i in range(n):
            x = scale * gram[row, i]
            for b in range(width):
                weights[i, first + b] += x * change[at + b]
    elif narrow:
        for b in range(width):
            step = scale * change[at + b]
            if step != 0.0:
                add_to_block(features, row, weights, first + b, step)
    elif len(indptr) > 1:
        for q in range(indptr[row], indptr[row + 1]):
            x = scale * entry(data, q)
            column = indices[q]
            for b in range(width):
                weights[column, first + b] += x * change[at + b]
    else:
        for column in range(dense.shape[1]):
            x = scale * dense[row, column]
            if x != 0.0:
                for b in range(width):
                    weights[column, first + b] += x * change[at + b]

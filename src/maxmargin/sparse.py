"""Sparse matrices of a user's, checked before anything reads them.

SciPy looks at the indices of a matrix when it is made, in part, and never again: a matrix whose indices count from 1, or whose
``indptr`` was changed, makes compiled code read and write outside of its arrays, SciPy's own as well as ours. So every sparse
matrix that comes from outside passes `checked_csr` before it is converted, stacked or read.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.errors import DataError


def checked_csr(matrix: Any, name: str) -> Any:
    """A sparse matrix of any format as a CSR array whose indices are in range, sorted and distinct within each row.

    The arrays are shared with the matrix where they are right as they are; entries of the same place are added up in a copy.

    Parameters
    ----------
    matrix : sparse matrix or array (rows, columns)
    name : str
        How error messages call it.
    """
    if len(matrix.shape) != 2:
        raise DataError(
            f"{name} is a sparse array of {len(matrix.shape)} dimension(s), shape {matrix.shape}; expected 2: (rows, columns)."
        )
    if matrix.format == "csr":
        check_compressed(matrix.indptr, matrix.indices, matrix.data, matrix.shape, name)
        csr = matrix
    elif matrix.format == "csc":
        check_compressed(matrix.indptr, matrix.indices, matrix.data, matrix.shape[::-1], name, "column", "row")
        csr = matrix.tocsr()
    elif matrix.format == "bsr":
        data = matrix.data
        if (
            data.ndim != 3
            or 0 in data.shape[1:]
            or any(n % k for n, k in zip(matrix.shape, data.shape[1:], strict=True))
        ):
            raise DataError(f"{name} has blocks of shape {data.shape[1:]}, which do not fill its shape {matrix.shape}.")
        shape = (matrix.shape[0] // data.shape[1], matrix.shape[1] // data.shape[2])
        check_compressed(matrix.indptr, matrix.indices, data, shape, name, "row of blocks", "column of blocks")
        csr = matrix.tocsr()
    else:
        coo = matrix.tocoo()
        _check_coordinates(coo, name)
        csr = coo.tocsr()
    # A new object, so that nothing is believed that was true of the arrays once; and unused room at the ends is cut off.
    nnz = int(csr.indptr[-1])
    csr = sp.csr_array((csr.data[:nnz], csr.indices[:nnz], csr.indptr), shape=csr.shape)
    if not csr.has_canonical_format:
        csr = csr.copy()
        csr.sum_duplicates()
    return csr


def check_compressed(
    indptr: NDArray[Any],
    indices: NDArray[Any],
    data: NDArray[Any],
    shape: tuple[int, int],
    name: str,
    row: str = "row",
    column: str = "column",
) -> None:
    """Refuse arrays that are no compressed rows of a matrix of this shape, in a sentence that names the row and the index."""
    n_rows, n_columns = (int(size) for size in shape)
    for array, part in ((indptr, "indptr"), (indices, "indices")):
        if not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype.kind not in "iu":
            raise DataError(f"The array {part} of {name} is not a vector of whole numbers.")
    if len(indptr) != n_rows + 1:
        raise DataError(
            f"indptr of {name} has {len(indptr)} entries; expected {n_rows + 1}, one more than there are {row}s."
        )
    if indptr[0] != 0:
        raise DataError(f"indptr of {name} begins with {indptr[0]}; expected 0.")
    falling = indptr[1:] < indptr[:-1]
    if falling.any():
        at = int(falling.argmax())
        raise DataError(
            f"indptr of {name} falls from {indptr[at]} to {indptr[at + 1]} at {row} {at}; it must not decrease."
        )
    nnz = int(indptr[-1])
    if nnz > len(indices) or nnz > len(data):
        over = int(np.searchsorted(indptr, min(len(indices), len(data)), side="right")) - 1
        raise DataError(
            f"indptr of {name} goes up to {nnz}, at {row} {over}, but there are {len(indices)} indices and {len(data)} values."
        )
    used = indices[:nnz]
    if nnz and (used.min() < 0 or used.max() >= n_columns):
        at = int(((used < 0) | (used >= n_columns)).argmax())
        owner = int(np.searchsorted(indptr, at, side="right")) - 1
        found = int(used[at])
        hint = " Indices count from 0." if found == n_columns else ""
        raise DataError(
            f"{name}: {row} {owner} has an entry in {column} {found}, but there are the {column}s 0 to {n_columns - 1} "
            f"only.{hint}"
        )


def _check_coordinates(coo: Any, name: str) -> None:
    """Refuse entries outside of a matrix."""
    if not len(coo.row) == len(coo.col) == len(coo.data):
        raise DataError(
            f"{name} has {len(coo.row)} rows of entries, {len(coo.col)} columns of entries and {len(coo.data)} values; "
            "expected as many."
        )
    wrong = (coo.row < 0) | (coo.row >= coo.shape[0]) | (coo.col < 0) | (coo.col >= coo.shape[1])
    if wrong.any():
        at = int(wrong.argmax())
        raise DataError(
            f"{name} has an entry at row {coo.row[at]}, column {coo.col[at]}, outside of its shape {coo.shape}."
        )

"""The feature rows of a packed folder: maps of its files, which kernels read as they are, and nothing copies.

Stored are the rows as training wants them, with the constant as a column of its own: dense, the constant last; or compressed,
with the columns in the order of their use where there are many (problems/columns.py), as `column` says, else as they are, the
constant last. What is in the files goes to kernels, so every row is looked at once, in order, before it does: that indices are
in range and increase, and that values are finite. Norms are found on the way.

Rows are sent to other processes as the name of the folder and two numbers, and mapped there.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin import scratch
from maxmargin.errors import DataError
from maxmargin.jit import kernel
from maxmargin.packed.folder import Folder
from maxmargin.problems.columns import OrderedFeatures, many_columns
from maxmargin.problems.features import FeatureArrays, Features, entry

#: Numbers that are read at a time where blocks of rows are made: 32 MB.
_BLOCK = 1 << 22


@lru_cache(maxsize=64)
def _opened(place: str, stamp: int) -> Folder:
    return Folder(place)


def opened(place: str | os.PathLike[str]) -> Folder:
    """A packed folder, opened once for as long as its header stays the same."""
    where = os.path.abspath(os.fspath(place))
    try:
        stamp = os.stat(os.path.join(where, "header.json")).st_mtime_ns
    except (OSError, ValueError):
        stamp = 0
    return _opened(where, stamp)


def mapped_again(place: str, digest: str, begin: int, end: int) -> StoredRows:
    """The rows of a folder in another process, if it is the same folder there."""
    folder = opened(place)
    if folder.digest != digest:
        raise folder.error("it is not the folder that the rows were sent from: its header differs")
    return StoredRows(folder, begin, end)


class StoredRows(OrderedFeatures):
    """Rows of a packed folder, with the constant.

    Parameters
    ----------
    folder : Folder
    begin, end : int
        The first row, and the one after the last.
    """

    #: Whether rows are on disk, and are better read in their order.
    on_disk = True

    def __init__(self, folder: Folder, begin: int, end: int) -> None:
        self.folder, self.begin, self.end = folder, begin, end
        self.name = "the packed X"
        p, n = n_columns(folder), folder.size("n_rows", 1)
        if not 0 <= begin < end <= n:
            raise folder.error(f"rows {begin} to {end} are not among its {n} rows")
        norms = scratch.empty(end - begin)
        nothing = np.empty((0, 0))
        if "dense" in folder.arrays:
            dtype = _float_type(folder, "dense")
            dense = for_kernels(folder.array("dense", dtype, (n, p + 1))[begin:end])
            self.column, inside = np.arange(p + 1, dtype=np.int32), p + 1
            wrong = _check_dense(dense, norms)
            self.arrays = FeatureArrays(
                np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0, dtype), dense, norms, nothing
            )
        else:
            indptr = folder.array("indptr", np.int64, (n + 1,))
            indices = folder.array("indices", np.int32, (None,))
            dtype = _float_type(folder, "data") if "data" in folder.arrays else np.dtype(np.float64)
            data = folder.array("data", dtype, (len(indices),)) if "data" in folder.arrays else np.empty(0, dtype)
            self.column, inside = _columns(folder, p)
            low, high = int(indptr[begin]), int(indptr[end])
            if not 0 <= low <= high <= len(indices):
                raise folder.error(f"indptr goes from {low} to {high}, but there are {len(indices)} indices")
            own = for_kernels(indptr) if (begin, end, low) == (0, n, 0) else indptr[begin : end + 1] - low
            values = for_kernels(data[low:high]) if len(data) else data
            self.arrays = FeatureArrays(
                own, for_kernels(indices[low:high]), values, np.empty((0, 0), dtype), norms, nothing
            )
            wrong = _check_compressed(self.arrays, inside, int(self.column[-1]), "column" in folder.arrays, norms)
        if wrong >= 0:
            raise folder.error(
                f"row {begin + wrong} is damaged: its indices are out of range or do not increase, its constant is not 1, or a "
                "value is not finite"
            )
        self.shape = (end - begin, inside)
        self.share = (self.column >= 0).astype(float)

    def __copy__(self) -> StoredRows:
        # In this process the same maps do, and rows are looked at once.
        made = type(self).__new__(type(self))
        made.__dict__.update(self.__dict__)
        return made

    def __reduce__(self) -> Any:
        return mapped_again, (self.folder.place, self.folder.digest, self.begin, self.end)

    def fingerprint_arrays(self) -> tuple[NDArray[Any], ...]:
        """The checksums of the folder, and which rows these are."""
        text = f"{self.folder.digest} {self.begin} {self.end}"
        return (np.frombuffer(text.encode("ascii"), np.uint8),)

    def some_rows(self, begin: int, end: int) -> StoredRows:
        """Some of the rows.

        Parameters
        ----------
        begin, end : int
            The first row, and the one after the last.
        """
        made: StoredRows = super().some_rows(begin, end)  # type: ignore[assignment]
        made.begin, made.end = self.begin + begin, self.begin + end
        return made

    def inside(self, flat: NDArray[np.float64], n_blocks: int, constant: bool) -> NDArray[np.float64]:
        """Flat weights with the columns here, from those with the columns of the user's, which may have no constant."""
        p = len(self.column)
        width = p if constant else p - 1
        cut = n_blocks * width
        out = np.zeros(n_blocks * self.shape[1] + len(flat) - cut)
        here = out[: n_blocks * self.shape[1]].reshape(n_blocks, -1)
        kept = np.flatnonzero(self.column[:width] >= 0)
        here[:, self.column[kept]] = flat[:cut].reshape(n_blocks, width)[:, kept]
        out[n_blocks * self.shape[1] :] = flat[cut:]
        return out

    def outside(self, flat: NDArray[np.float64], n_blocks: int, threads: int = 1) -> NDArray[np.float64]:
        """Flat weights with the columns of the user's, from those with the columns here."""
        if self.shape[1] == len(self.column) and "column" not in self.folder.arrays:
            return flat
        return super().outside(flat, n_blocks, threads)

    def original(self) -> NDArray[np.int64]:
        """The user's column of each column here; the constant is the one after the last."""
        kept = np.flatnonzero(self.column >= 0)
        out = np.empty(self.shape[1], np.int64)
        out[self.column[kept]] = kept
        return out

    def plain(self, rows: NDArray[np.int64] | slice) -> Any:
        """Some rows in memory, in the user's columns and without the constant: an array, or a CSR array."""
        a, p = self.arrays, len(self.column) - 1
        if not self.sparse:
            return np.array(a.dense[rows, :p])
        data = a.data if len(a.data) else np.ones(1, a.data.dtype)
        chosen = np.arange(self.shape[0])[rows]
        lengths = a.indptr[chosen + 1] - a.indptr[chosen]
        ends = np.concatenate([[0], np.cumsum(lengths)])
        at = np.repeat(a.indptr[chosen] - ends[:-1], lengths) + np.arange(ends[-1])
        column = self.original()[a.indices[at]]
        kept = column < p
        values = data[at][kept] if len(a.data) else np.ones(int(kept.sum()), a.data.dtype)
        counts = np.concatenate([[0], np.cumsum(kept)])[ends]
        made: Any = sp.csr_array((values, column[kept], counts), shape=(len(chosen), p))
        made.sort_indices()
        return made

    def ranges(self) -> list[tuple[int, int]]:
        """Rows from begin to end, few enough to be read at a time."""
        n = self.shape[0]
        held = len(self.arrays.indices) if self.sparse else self.arrays.dense.size
        step = max(1, int(_BLOCK / max(held / n, 1.0)))
        return [(first, min(first + step, n)) for first in range(0, n, step)]


class PackedFeatures(Features):
    """The same rows as the user knows them, without the constant; they are written out only if something reads them.

    Parameters
    ----------
    stored : StoredRows
    """

    def __init__(self, stored: StoredRows) -> None:
        self.stored, self.name = stored, "the packed X"
        self.shape = (stored.shape[0], len(stored.column) - 1)

    def with_constant(self) -> Features:
        """The rows as they are stored."""
        return self.stored

    @property
    def sparse(self) -> bool:
        """Whether rows are compressed."""
        return self.stored.sparse

    def __getattr__(self, name: str) -> Any:
        if name != "arrays":
            raise AttributeError(name)
        # Without the constant, on disk where other large arrays are.
        self.arrays = _without_constant(self.stored)
        return self.arrays


def _without_constant(stored: StoredRows) -> FeatureArrays:
    """The rows without the constant, in the user's columns, block by block."""
    a, (n, p) = stored.arrays, (stored.shape[0], len(stored.column) - 1)
    norms, dtype = scratch.empty(n), a.data.dtype
    if not stored.sparse:
        dense = scratch.empty((n, p), a.dense.dtype)
        for begin, end in stored.ranges():
            dense[begin:end] = a.dense[begin:end, :p]
        _dense_norms(dense, norms)
        return FeatureArrays(a.indptr, a.indices, a.data, dense, norms, a.gram)
    indptr, size = scratch.zeros(n + 1, np.int64), 0
    blocks = stored.ranges()
    total = len(a.indices) - n
    indices, data = scratch.empty(total, np.int32), scratch.empty(total if len(a.data) else 0, dtype)
    for begin, end in blocks:
        part = Features(stored.plain(slice(begin, end))).arrays
        here = slice(size, size + len(part.indices))
        indices[here] = part.indices
        if len(a.data):
            data[here] = part.data if len(part.data) else 1.0
        indptr[begin + 1 : end + 1] = part.indptr[1:] + size
        norms[begin:end], size = part.squared_norms, here.stop
    return FeatureArrays(indptr, indices, data, a.dense, norms, a.gram)


def _float_type(folder: Folder, name: str) -> np.dtype[Any]:
    dtype = folder.arrays[name].dtype
    if dtype not in (np.float32, np.float64) or not dtype.isnative:
        raise folder.error(f"the array {name!r} has dtype {dtype}; expected float32 or float64")
    return dtype


def n_columns(folder: Folder) -> int:
    """How many columns a folder has, without the constant: no more than its arrays show."""
    p = folder.size("n_features", 1)
    if "dense" in folder.arrays:
        shown = folder.arrays["dense"].shape[-1] - 1
    elif "column" in folder.arrays:
        shown = len(folder.arrays["column"]) - 1
    else:
        shown = p if p < 2**31 - 1 and not many_columns(p) else -1
    if p != shown:
        raise folder.error(
            f"it says n_features={p}, but its arrays have other columns, or lack 'column', which many columns have"
        )
    return p


def _columns(folder: Folder, p: int) -> tuple[NDArray[np.int32], int]:
    """For each column, and the constant, the stored column that holds it, or -1; and how many there are."""
    if "column" not in folder.arrays:
        return np.arange(p + 1, dtype=np.int32), p + 1
    column = np.array(folder.array("column", np.int32, (p + 1,)))
    kept = np.sort(column[column >= 0])
    if column.min() < -1 or len(kept) == 0 or not (kept == np.arange(len(kept))).all() or column[-1] < 0:
        raise folder.error("the array 'column' does not number the columns")
    return column, len(kept)


class _Unlocked:
    """An array whose memory cannot be written to, for NumPy as one that can: kernels' types have no other, and none writes it."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.array = array
        self.__array_interface__ = {**array.__array_interface__, "data": (array.__array_interface__["data"][0], False)}


def for_kernels(array: NDArray[Any]) -> NDArray[Any]:
    """A map as kernels take it."""
    return np.asarray(_Unlocked(array)) if array.size and not array.flags.writeable else array


def checked_states(states: NDArray[Any], n_states: int, what: str) -> None:
    """Refuse states out of range, in pieces."""
    for first in range(0, len(states), _BLOCK):
        piece = states[first : first + _BLOCK]
        if piece.size and (piece.min() < 0 or piece.max() >= n_states):
            wrong = np.argwhere((piece < 0) | (piece >= n_states))[0]
            raise DataError(f"{what}: row {first + int(wrong[0])} has a label that is not among its {n_states} labels.")


# ------------------------------------------------------------------------------------------------------- kernels


@kernel
def _check_dense(dense: Any, norms: Any) -> int:
    """The first row with a value that is not finite, or without the constant, or -1; the squared norms of the others."""
    last = dense.shape[1] - 1
    for row in range(dense.shape[0]):
        total = 0.0
        for column in range(last):
            value = np.float64(dense[row, column])
            total += value * value
        # Not true of NaN either.
        if not total < np.inf or dense[row, last] != 1.0:
            for column in range(last):
                if not np.isfinite(dense[row, column]):
                    return row
            if dense[row, last] != 1.0:
                return row
        norms[row] = total + 1.0
    return -1


@kernel
def _dense_norms(dense: Any, norms: Any) -> None:
    for row in range(dense.shape[0]):
        total = 0.0
        for column in range(dense.shape[1]):
            value = np.float64(dense[row, column])
            total += value * value
        norms[row] = total


@kernel
def _check_compressed(features: Any, n_columns: int, constant: int, ordered: bool, norms: Any) -> int:
    """The first row that is no compressed row of so many columns, with a 1 in the one of the constant, or -1; squared norms."""
    indptr, indices, data = features.indptr, features.indices, features.data
    if indptr[0] != 0 or indptr[len(norms)] != len(indices):
        return 0
    for row in range(len(norms)):
        begin, end = indptr[row], indptr[row + 1]
        if begin < 0 or end < begin or end > len(indices):
            return row
        total, before, found = 0.0, -1, False
        for q in range(begin, end):
            if indices[q] <= before or indices[q] >= n_columns:
                return row
            before, value = indices[q], np.float64(entry(data, q))
            if not np.isfinite(value):
                return row
            if before == constant:
                found = value == 1.0
                if not ordered:
                    continue
            total += value * value
        if not found:
            return row
        # In the order in which they are added up in memory, which has the constant at the end unless columns are ordered.
        norms[row] = total if ordered else total + 1.0
    return -1

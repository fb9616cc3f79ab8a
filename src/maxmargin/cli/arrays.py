"""Data sets in one ``.npz`` file: rows of features with labels, or sequences. Graphs are for `maxmargin.formats.graphs`.

Conventions
-----------
``X`` (N, p) holds the features. ``y`` is (N,), whole numbers or strings, or, for multi-label data, (N, L), zeros and ones; a
file to predict may lack it. With ``sequence_ptr`` (S + 1,) the rows are positions, and sequence s owns the rows
``sequence_ptr[s]:sequence_ptr[s + 1]``. Optional are ``classes`` (strings: the names of the numbers in y, or of its columns)
and ``split`` (one integer an example or sequence).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.errors import DataError
from maxmargin.formats.npz import array_names, read_npz

_NAMES = ("X", "y", "sequence_ptr", "classes", "split")


@dataclass(frozen=True, eq=False)
class ArrayData:
    """Rows, or sequences of rows, with their labels: None without ``y``."""

    #: "chain", "multi-label", or "classes": one label a row.
    kind: str
    inputs: Any
    targets: Any
    class_names: list[str] | None


def holds_graphs(place: str) -> bool:
    """Whether an npz file has edges; its arrays are not read."""
    return not {"edges", "edge_ptr"}.isdisjoint(array_names(place))


def read_arrays(place: str, split: int | None = None) -> ArrayData:
    """Read an npz file that holds no graphs; with `split`, the examples whose entry in ``split`` it is."""
    arrays = read_npz(place, _NAMES)
    X = _features(place, arrays)
    y = arrays.get("y")
    if y is not None and (y.ndim not in (1, 2) or y.dtype.kind not in "iubUf" or len(y) != len(X)):
        raise DataError(
            f"{place}: 'y' has dtype {y.dtype} and shape {y.shape}; expected a label for each of the {len(X)} rows of 'X': "
            "whole numbers or strings, or zeros and ones (rows, labels)."
        )
    names = _class_names(place, arrays)
    pointers = _pointers(place, arrays, len(X))
    chosen = _chosen(place, arrays, split, len(X) if pointers is None else len(pointers) - 1)
    if y is not None and y.ndim == 2:
        if pointers is not None:
            raise DataError(f"{place}: 'y' has shape {y.shape}; sequences have one tag a row.")
        return ArrayData("multi-label", X[chosen], y[chosen], names)
    labels = None if y is None else _named(place, y, names)
    if pointers is None:
        return ArrayData("classes", X[chosen], None if labels is None else [labels[m] for m in chosen], names)
    parts = [slice(pointers[m], pointers[m + 1]) for m in chosen]
    return ArrayData(
        "chain", [X[part] for part in parts], None if labels is None else [labels[p] for p in parts], names
    )


def _features(place: str, arrays: dict[str, NDArray[Any]]) -> NDArray[Any]:
    if "X" not in arrays:
        raise DataError(f"{place}: the array 'X' is missing.")
    X = arrays["X"]
    if X.ndim != 2 or X.dtype.kind not in "fiub" or 0 in X.shape:
        raise DataError(
            f"{place}: the array 'X' has dtype {X.dtype} and shape {X.shape}; expected numbers (rows, features)."
        )
    return X


def _class_names(place: str, arrays: dict[str, NDArray[Any]]) -> list[str] | None:
    if "classes" not in arrays:
        return None
    classes = arrays["classes"]
    names: list[str] = classes.ravel().tolist()
    if classes.ndim != 1 or classes.dtype.kind != "U" or len(set(names)) < len(names):
        raise DataError(
            f"{place}: the array 'classes' has dtype {classes.dtype} and shape {classes.shape}; expected distinct strings."
        )
    return names


def _named(place: str, y: NDArray[Any], names: list[str] | None) -> list[Any]:
    """The labels of all rows, by their names if they have some."""
    if names is None:
        return list(y.tolist())
    wrong = np.flatnonzero((y < 0) | (y >= len(names))) if y.dtype.kind in "iu" else np.arange(len(y))
    if len(wrong):
        raise DataError(
            f"{place}: row {wrong[0]} has the label {y[wrong[0]]!s}; expected 0 to {len(names) - 1}, as there are 'classes'."
        )
    return [names[k] for k in y.tolist()]


def _pointers(place: str, arrays: dict[str, NDArray[Any]], n_rows: int) -> NDArray[np.int64] | None:
    if "sequence_ptr" not in arrays:
        return None
    found = arrays["sequence_ptr"]
    if found.ndim != 1 or found.dtype.kind not in "iu" or len(found) < 2 or found[0] != 0 or found[-1] != n_rows:
        raise DataError(
            f"{place}: 'sequence_ptr' has dtype {found.dtype} and shape {found.shape}; expected whole numbers from 0 to the "
            f"{n_rows} rows, one more than there are sequences."
        )
    pointers = found.astype(np.int64)
    wrong = np.flatnonzero(np.diff(pointers) < 1)
    if len(wrong):
        s = int(wrong[0])
        raise DataError(
            f"{place}: sequence {s} goes from row {pointers[s]} to {pointers[s + 1]}; it needs at least one row."
        )
    return pointers


def _chosen(place: str, arrays: dict[str, NDArray[Any]], split: int | None, n: int) -> NDArray[np.int64]:
    if split is None:
        return np.arange(n)
    if "split" not in arrays:
        raise DataError(f"{place}: split={split} was asked for, but the file has no array 'split'.")
    parts = arrays["split"]
    if parts.shape != (n,) or parts.dtype.kind not in "iu":
        raise DataError(
            f"{place}: the array 'split' has dtype {parts.dtype} and shape {parts.shape}; expected {n} whole numbers."
        )
    found = np.flatnonzero(parts == split)
    if len(found) == 0:
        raise DataError(f"{place}: nothing has split={split}; found {sorted(set(parts.tolist()))}.")
    return found

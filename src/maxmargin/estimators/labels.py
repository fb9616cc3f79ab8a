"""Labels as users have them, and as columns and states.

Conventions
-----------
``classes`` is a vector of the distinct labels, sorted where they can be compared and in order of appearance otherwise.
Multi-label targets come as an *array* of zeros and ones (n, L), or as *lists*: a collection of labels per example. A
list of rows of zeros and ones, all of the same length, is an array.
"""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.errors import DataError


def distinct(values: Iterable[Hashable]) -> NDArray[Any]:
    """The distinct labels as a vector."""
    found = list(dict.fromkeys(values))
    with contextlib.suppress(TypeError):
        found = sorted(found)  # type: ignore[type-var]
    return as_vector(found)


def as_vector(labels: Sequence[Any]) -> NDArray[Any]:
    """Labels as a vector of a plain dtype if they are all str, all bool, all int or all float; of objects otherwise."""
    kinds = {np.asarray(label).dtype.kind for label in labels}
    plain = np.asarray(labels) if len(kinds) == 1 and kinds <= set("Ubif") else None
    if plain is not None and plain.ndim == 1:
        return plain
    boxed = np.empty(len(labels), object)
    boxed[:] = list(labels)
    return boxed


# --------------------------------------------------------------------------------------------------------------------
# Multi-label targets


def is_lists(Y: Any) -> bool:
    """Whether Y is a collection of labels per example rather than an array of zeros and ones."""
    if isinstance(Y, np.ndarray) and Y.ndim == 1 and Y.dtype == object:
        Y = list(Y)
    if not isinstance(Y, list | tuple) or not Y:
        return False
    if not all(isinstance(row, list | tuple | set | frozenset) for row in Y):
        # Rows that are arrays, or no collections at all, are for NumPy to judge.
        return any(isinstance(row, list | tuple | set | frozenset) for row in Y)
    lengths = {len(row) for row in Y}
    indicator = (
        len(lengths) == 1
        and 0 not in lengths
        and all(isinstance(row, list | tuple) and all(_is_bit(entry) for entry in row) for row in Y)
    )
    return not indicator


def _is_bit(value: Any) -> bool:
    return isinstance(value, bool | int | float | np.bool_ | np.integer | np.floating) and value in (0, 1)


def encode_lists(Y: Any, classes: NDArray[Any] | None) -> tuple[NDArray[np.int8], NDArray[Any]]:
    """Zeros and ones of collections of labels, and the classes, which are found here if they are not given."""
    rows = list(Y)
    for m, row in enumerate(rows):
        if not isinstance(row, list | tuple | set | frozenset):
            raise DataError(f"Y[{m}] is {row!r}; expected a collection of labels, as in the other rows.")
        for label in row:
            if not isinstance(label, Hashable):
                raise DataError(f"Y[{m}] has the label {label!r}, which is not hashable and so can be no label.")
    if classes is None:
        classes = distinct(label for row in rows for label in row)
        if len(classes) == 0:
            raise DataError("No example in Y has a label, so nothing tells which labels there are.")
    column = {label: i for i, label in enumerate(classes.tolist())}
    encoded = np.zeros((len(rows), len(classes)), np.int8)
    for m, row in enumerate(rows):
        for label in row:
            if label not in column:
                raise DataError(f"Y[{m}] has the label {label!r}, which was not seen in training.")
            encoded[m, column[label]] = 1
    return encoded, classes


def encode_array(Y: Any) -> tuple[NDArray[np.int8], NDArray[Any]]:
    """Zeros and ones of an array, sparse matrix or data frame, and the classes: column names, or column numbers."""
    names = getattr(Y, "columns", None)
    sparse = sp.issparse(Y)
    if sparse:
        values = np.asarray(Y.toarray())
    else:
        try:
            values = np.asarray(Y)
        except ValueError:
            raise DataError("Y has rows of different lengths; expected an array of zeros and ones.") from None
    if values.ndim != 2:
        raise DataError(
            f"Y has {values.ndim} dimension(s), shape {values.shape}; expected zeros and ones of shape (examples, "
            "labels), or a collection of labels for each example."
        )
    if values.shape[0] == 0 or values.shape[1] == 0:
        raise DataError(f"Y has shape {values.shape}: the data is empty.")
    with np.errstate(invalid="ignore"):
        wrong = ~((values == 0) | (values == 1))
    if wrong.any():
        m, i = (int(k) for k in np.argwhere(wrong)[0])
        raise DataError(f"Y[{m}, {i}] is {values[m, i]}; expected 0 or 1.")
    classes = np.arange(values.shape[1]) if names is None else as_vector(list(names))
    if names is not None and len(set(classes.tolist())) != len(classes):
        raise DataError("Two columns of Y have the same name; labels must differ.")
    return values.astype(np.int8), classes


# --------------------------------------------------------------------------------------------------------------------
# Labels of nodes


def known_labels(labels: Any, m: int, n_nodes: int) -> tuple[list[Any], NDArray[np.bool_]]:
    """The labels of graph m's nodes and which of them are known: -1, None and NaN say unknown."""
    if isinstance(labels, np.ndarray) and labels.ndim != 1:
        raise DataError(
            f"Graph {m} has {n_nodes} nodes, but its labels have shape {labels.shape}; expected ({n_nodes},)."
        )
    if isinstance(labels, str) or not isinstance(labels, Iterable):
        raise DataError(f"The labels of graph {m} are {labels!r}; expected one label for each of its {n_nodes} nodes.")
    values = labels.tolist() if isinstance(labels, np.ndarray) else list(labels)
    if len(values) != n_nodes:
        raise DataError(f"Graph {m} has {n_nodes} nodes, but {len(values)} labels.")
    known = np.ones(n_nodes, bool)
    for i, value in enumerate(values):
        if not isinstance(value, Hashable):
            raise DataError(
                f"Graph {m}: node {i} has the label {value!r}, which is not hashable and so can be no label."
            )
        # Only NaN differs from itself.
        if value is None or value != value or (not isinstance(value, str) and value == -1):
            known[i] = False
    return values, known

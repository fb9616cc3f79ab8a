"""Labels that are not known: how they are marked, and what is left of a target without them.

What is not known is left out of training: its variable, and every pair or transition that it belongs to. What remains is a problem
of the same kind over the known variables, so that it is convex, and its certificate is exact where that of whole examples is. A
sequence falls into pieces, which keep their own transitions; C, the loss of an example and its weight go on counting sequences, not
pieces. An example of which nothing is known is left out whole. (To guess unknown labels along with the weights, or to take the
largest score over them on both sides of the hinge, would be no convex problem.)

None, NaN and pandas' NA mark a label that is not known, and so do masked entries of a masked array.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.errors import DataError
from maxmargin.estimators.labels import is_missing


def unknown_entries(Y: Any) -> tuple[Any, NDArray[np.bool_] | None]:
    """A multi-label target with 0 where it is not known, and which entries are known, (n, L); None if all are."""
    if isinstance(Y, np.ma.MaskedArray):
        unknown = np.ma.getmaskarray(Y)
        values: Any = Y.filled(0)
        rest, known = unknown_entries(values)
        unknown = unknown if known is None else unknown | ~known
        return (rest, None) if not unknown.any() else (rest, ~unknown)
    if hasattr(Y, "isna") and hasattr(Y, "columns"):
        unknown = np.asarray(Y.isna(), bool)
        return (Y, None) if not unknown.any() else (Y.mask(Y.isna(), 0), ~unknown)
    if not isinstance(Y, np.ndarray | list | tuple):
        # Sparse matrices have zeros where nothing is said.
        return Y, None
    try:
        values = np.asarray(Y)
    except ValueError:
        return Y, None
    if values.dtype.kind == "f":
        unknown = np.isnan(values)
    elif values.dtype.kind == "O" and values.ndim == 2:
        unknown = np.array([[is_missing(one) for one in row] for row in values], bool)
    else:
        return Y, None
    return (Y, None) if not unknown.any() else (np.where(unknown, 0, values), ~unknown)


def known_rows(known: NDArray[np.bool_] | None) -> NDArray[np.int64] | None:
    """The examples of which any label is known; None if all labels are."""
    if known is None:
        return None
    rows = np.flatnonzero(known.any(axis=1))
    if len(rows) == 0:
        raise DataError("No label of any example in Y is known: there is nothing to learn from.")
    return rows


def known_positions(place: NDArray[np.int32], tags: list[Any]) -> NDArray[np.bool_] | None:
    """Which positions have a tag that is known, by the place of each tag among the distinct ones; None if all have."""
    missing = np.array([is_missing(tag) for tag in tags], bool)
    if not missing.any():
        return None
    known: NDArray[np.bool_] = ~missing[place]
    if not known.any():
        raise DataError("No position of any sequence has a known tag: there is nothing to learn from.")
    return known


def note_unknown(estimator: Any, n: int) -> None:
    """Say in the results how many labels were left out, which their certificates are not about."""
    if n:
        for result in estimator.path_.values():
            result.options["unknown_labels"] = int(n)

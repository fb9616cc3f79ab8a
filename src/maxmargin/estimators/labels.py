"""Labels as users have them, and as columns and states.

Conventions
-----------
``classes`` is a vector of the distinct labels, sorted where they can be compared and in order of appearance otherwise.
A label's *state* is its place there. Multi-label targets come as an *array* of zeros and ones (n, L), or as *lists*: a
collection of labels per example. A list of rows of zeros and ones, all of the same length, is an array. The target of
a classifier is a *column*: one label an example.
"""

from __future__ import annotations

import contextlib
import math
import numbers
import warnings
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import DataConversionWarning

from maxmargin.errors import DataError, OptionError, did_you_mean
from maxmargin.packed.data import PackedLabels
from maxmargin.problems.factor_graphs import as_weights
from maxmargin.sparse import checked_csr

#: Numbers that a table of labels may have beyond one for each example.
_FEW_NUMBERS = 1000


def is_empty(X: Any) -> bool:
    """Whether there is nothing to predict: an empty list, or no rows."""
    shape = getattr(X, "shape", None)
    return shape[0] == 0 if shape else isinstance(X, Sequence) and not isinstance(X, str) and len(X) == 0


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
    if isinstance(Y, PackedLabels):
        return False
    # A Series of collections is an array of objects, too.
    if getattr(Y, "ndim", 0) == 1 and getattr(getattr(Y, "dtype", None), "kind", "") == "O":
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
        and all(isinstance(row, list | tuple) and all(_is_bit(entry) or _is_open(entry) for entry in row) for row in Y)
    )
    return not indicator


def _is_bit(value: Any) -> bool:
    return isinstance(value, bool | int | float | np.bool_ | np.integer | np.floating) and value in (0, 1)


def _is_open(value: Any) -> bool:
    return value is None or (isinstance(value, float) and value != value)


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


def without_unseen(Y: Any, classes: NDArray[Any]) -> tuple[list[Any], NDArray[np.bool_]]:
    """Collections without the labels that are no classes, and which of those each had: a row for each, a column a label."""
    known, column = set(classes.tolist()), dict[Any, int]()
    rows, found = [], []
    for m, row in enumerate(Y):
        if isinstance(row, list | tuple | set | frozenset):
            other = [one for one in row if isinstance(one, Hashable) and one not in known]
            found += [(m, column.setdefault(one, len(column))) for one in other]
            row = [one for one in row if one not in column] if other else row
        rows.append(row)
    unseen = np.zeros((len(rows), len(column)), bool)
    for m, k in found:
        unseen[m, k] = True
    return rows, unseen


def encode_array(Y: Any) -> tuple[NDArray[np.int8], NDArray[Any]]:
    """Zeros and ones of an array, sparse matrix or data frame, and the classes: column names, or column numbers."""
    if isinstance(Y, PackedLabels) and Y.ndim == 2:
        return Y.states, Y.classes
    names = getattr(Y, "columns", None)
    if sp.issparse(Y):
        values = np.asarray(checked_csr(Y, "Y").toarray())
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
        hint = " A label that is not known is NaN or None." if values[m, i] == -1 else ""
        raise DataError(f"Y[{m}, {i}] is {values[m, i]}; expected 0 or 1.{hint}")
    classes = np.arange(values.shape[1]) if names is None else as_vector(list(names))
    if names is not None and len(set(classes.tolist())) != len(classes):
        raise DataError("Two columns of Y have the same name; labels must differ.")
    return values.astype(np.int8), classes


# --------------------------------------------------------------------------------------------------------------------
# One label an example


def column(y: Any, name: str) -> list[Any]:
    """The labels of a classifier's target; `name` is who asks for it."""
    if y is None:
        raise DataError(f"{name} requires y to be passed, but the target y is None.")
    if sp.issparse(y):
        raise DataError("y is a sparse matrix; expected one class for each row of X.")
    if hasattr(y, "__array__"):
        y = np.asarray(y)
        if y.dtype.kind == "c":
            raise DataError(f"Complex data not supported: y has dtype {y.dtype}.")
        if y.ndim == 2 and y.shape[1] == 1:
            warnings.warn(
                f"A column-vector y was passed when a 1d array was expected: its shape {y.shape} is read as "
                f"({len(y)},).",
                DataConversionWarning,
                stacklevel=3,
            )
            y = y.ravel()
        if y.ndim != 1:
            raise DataError(f"y has {y.ndim} dimension(s), shape {y.shape}; expected one class for each row of X.")
        y = y.tolist()
    if isinstance(y, str) or not isinstance(y, Iterable):
        raise DataError(f"y is {y!r}; expected one class for each row of X.")
    values = list(y)
    try:
        found = list(dict.fromkeys(values))
    except TypeError:
        m = next(m for m, label in enumerate(values) if not isinstance(label, Hashable))
        raise DataError(f"y[{m}] is {values[m]!r}, which is not hashable and so can be no class.") from None
    for label in found:
        wrong = None
        if is_missing(label):
            wrong = "Input y contains NaN or None"
        elif isinstance(label, float | np.floating) and not float(label).is_integer():
            wrong = "Unknown label type: continuous" if math.isfinite(label) else "Input y contains infinity"
        if wrong:
            raise DataError(
                f"{wrong}: y[{values.index(label)}] is {label}; a class may be a string, a whole number, a boolean or "
                "any other value that is hashable."
            )
    return values


def classes_and_states(y: Any, name: str) -> tuple[NDArray[Any], NDArray[np.int32]]:
    """The classes of a classifier's target, and the state of each of its labels; `name` is who asks for it."""
    if isinstance(y, PackedLabels) and y.ndim == 1:
        return y.classes, y.states
    if isinstance(y, np.ndarray) and y.ndim == 1 and len(y) and y.dtype.kind in "bi":
        # Whole numbers need not be looked at one by one.
        low, high = int(y.min()), int(y.max())
        if high - low <= _FEW_NUMBERS + len(y):
            places = y.astype(np.int64) - low
            found = np.bincount(places) > 0
            classes = np.flatnonzero(found) + low
            return classes.astype(bool if y.dtype.kind == "b" else np.int64), (np.cumsum(found) - 1).astype(np.int32)[
                places
            ]
    values = column(y, name)
    classes = distinct(values)
    return classes, states_of(values, classes)


def states_of_column(y: Any, classes: NDArray[Any], name: str) -> NDArray[np.int32]:
    """State of each label of a classifier's target among these classes, -1 if it is none of them; `name` is who asks."""
    if isinstance(y, PackedLabels) and y.ndim == 1:
        return np.asarray(states_of(y.classes.tolist(), classes)[y.states])
    return states_of(column(y, name), classes)


def states_of(values: Iterable[Any], classes: NDArray[Any]) -> NDArray[np.int32]:
    """State of each label; -1 for a label that is not among the classes."""
    state = {label: k for k, label in enumerate(classes.tolist())}
    return np.array([state.get(label, -1) for label in values], np.int32)


def is_missing(label: Any) -> bool:
    """Whether a label is None, NaN, which alone differs from itself, or pandas' NA, which does not say."""
    if label is None or type(label).__name__ == "NAType":
        return True
    return bool(label != label)


def check_several(classes: NDArray[Any], name: str) -> None:
    """Refuse data with fewer than two classes."""
    if len(classes) < 2:
        raise DataError(
            f"{name} needs at least 2 classes to tell apart, but y holds one class only: {classes.tolist()[0]!r}."
        )


# --------------------------------------------------------------------------------------------------------------------
# Weights and costs by class


def class_weights(class_weight: Any, classes: NDArray[Any], states: NDArray[np.int32]) -> NDArray[np.float64] | None:
    """Weight (K,) of each class, or None if there are none.

    "balanced" is n / (K * count). A class that a dict leaves out has weight 1; a key that is no class is refused, unless
    all classes are given, as when a fold of the data lacks a rare class.
    """
    if class_weight is None:
        return None
    if isinstance(class_weight, str) and class_weight == "balanced":
        return np.asarray(len(states) / (len(classes) * np.bincount(states, minlength=len(classes))))
    if not isinstance(class_weight, Mapping):
        raise OptionError(
            f'class_weight={class_weight!r} is not possible; it must be None, "balanced" or a dict of weights by class.'
        )
    labels = classes.tolist()
    for label, weight in class_weight.items():
        if not (isinstance(weight, numbers.Real) and 0 <= float(weight) < math.inf):
            raise OptionError(
                f"class_weight[{label!r}] is {weight!r}; it must be a finite number that is not negative."
            )
    left_out = [label for label in labels if label not in class_weight]
    unknown = [label for label in class_weight if label not in labels]
    if left_out and unknown:
        raise OptionError(
            f"class_weight has the class {unknown[0]!r}, which is not in y; the classes are {labels}."
            + did_you_mean(unknown[0], labels)
        )
    return np.array([float(class_weight.get(label, 1.0)) for label in labels])


def example_weights(sample_weight: ArrayLike | None, n: int, noun: str) -> NDArray[np.float64]:
    """A weight for each example, 1 by default: finite, not negative, and not all of them 0."""
    if sample_weight is None:
        return np.ones(n)
    weight = as_weights(sample_weight, "sample_weight")
    if weight.shape != (n,):
        raise DataError(f"sample_weight has shape {weight.shape}; expected ({n},), one per {noun}.")
    wrong = np.flatnonzero(~(np.isfinite(weight) & (weight >= 0)))
    if len(wrong):
        k = int(wrong[0])
        raise DataError(f"sample_weight[{k}] is {weight[k]}; sample weights must be finite and not negative.")
    if n and not weight.any():
        raise DataError(f"sample_weight is 0 for every {noun}; sample weights must not all be zero.")
    return weight


def score_weights(sample_weight: ArrayLike | None, n: int, noun: str) -> NDArray[np.float64]:
    """A weight for each example of a mean, which is of no use if all are 0."""
    weight = example_weights(sample_weight, n, noun)
    # Of equal size as before, but a sum that a float can hold.
    return np.asarray(weight / weight.max())


def _as_table(loss: Any) -> NDArray[np.float64]:
    try:
        return np.asarray(loss, np.float64)
    except (TypeError, ValueError, OverflowError):
        raise DataError(f"loss={loss!r} is neither a name nor a table of numbers.") from None


def label_costs(loss: Any, classes: NDArray[Any]) -> Any:
    """A loss of sets of labels that is no name, as costs: (L,), or ``[truth, predicted]`` of shape (2, 2) or (L, 2, 2)."""
    if isinstance(loss, str):
        return loss
    labels, table = classes.tolist(), _as_table(loss)
    n = len(labels)
    if table.shape not in ((n,), (2, 2), (n, 2, 2)):
        raise DataError(
            f"loss has shape {table.shape}; expected ({n},), the cost of each label; (2, 2), the costs of off and on by what is "
            f"true; or ({n}, 2, 2), such a table for each label."
        )
    wrong = np.argwhere(~(np.isfinite(table) & (table >= 0)))
    if len(wrong):
        place = tuple(int(k) for k in wrong[0])
        of = f"of {labels[place[0]]!r}, " if table.ndim != 2 else ""
        raise DataError(f"loss{list(place)}, a cost {of}is {table[place]}; costs must be finite and not negative.")
    if table.ndim > 1 and np.diagonal(table, axis1=-2, axis2=-1).any():
        raise DataError("The diagonal of a table of costs, loss[..., k, k], must be 0: to be right must cost 0.")
    return table


def cost_table(loss: Any, classes: NDArray[Any]) -> Any:
    """A loss that is no name, as an array (K, K) of costs ``[truth, predicted]``."""
    if isinstance(loss, str):
        return loss
    labels, table = classes.tolist(), _as_table(loss)
    if table.shape != (len(labels), len(labels)):
        raise DataError(
            f"loss has shape {table.shape}; expected ({len(labels)}, {len(labels)}): the cost of each predicted class, "
            "by true class."
        )
    wrong = np.argwhere(~(np.isfinite(table) & (table >= 0)))
    if len(wrong):
        i, j = (int(k) for k in wrong[0])
        raise DataError(
            f"loss[{i}, {j}], the cost of {labels[j]!r} where {labels[i]!r} is true, is {table[i, j]}; costs must be "
            "finite and not negative."
        )
    if np.diagonal(table).any():
        k = int(np.flatnonzero(np.diagonal(table))[0])
        raise DataError(
            f"loss[{k}, {k}], the cost of {labels[k]!r} where it is true, is {table[k, k]}; to be right must cost 0."
        )
    return table


# --------------------------------------------------------------------------------------------------------------------
# A label for each part of an example


class Labelings(list[Any]):
    """A list of labelings, one an example, which NumPy takes for an array (n,) of objects where their lengths differ.

    So scikit-learn's `cross_val_predict` can put together the predictions of its folds. Labelings of one length are an array (n,
    length), as those of any other list.
    """

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """An array of labels, or of objects."""
        if len({len(one) for one in self}) < 2:
            return np.array(list(self), dtype)
        out = np.empty(len(self), object)
        for m, one in enumerate(self):
            out[m] = one
        return out if dtype is None else out.astype(dtype)


def values_of_parts(labels: Any, m: int, n: int, whole: str, part: str, noun: str) -> Sequence[Any]:
    """One value for each of example m's n parts: the nodes of a graph, the positions of a sequence."""
    title = f"{whole.capitalize()} {m}"
    if isinstance(labels, np.ndarray) and labels.ndim != 1:
        raise DataError(f"{title} has {n} {part}s, but its {noun}s have shape {labels.shape}; expected ({n},).")
    if isinstance(labels, str) or not isinstance(labels, Iterable):
        raise DataError(f"The {noun}s of {whole} {m} are {labels!r}; expected one {noun} for each of its {n} {part}s.")
    if isinstance(labels, list | tuple):
        values: Sequence[Any] = labels
    else:
        values = labels.tolist() if isinstance(labels, np.ndarray) else list(labels)
    if len(values) != n:
        raise DataError(f"{title} has {n} {part}s, but {len(values)} {noun}s.")
    return values


def labels_of_parts(labels: Any, m: int, n: int, whole: str, part: str, noun: str) -> list[Any]:
    """The same for values that must be hashable."""
    values = list(values_of_parts(labels, m, n, whole, part, noun))
    for i, value in enumerate(values):
        if not isinstance(value, Hashable):
            raise DataError(
                f"{whole.capitalize()} {m}: {part} {i} has the {noun} {value!r}, which is not hashable and so can be no {noun}."
            )
    return values


def known_labels(labels: Any, m: int, n_nodes: int) -> tuple[list[Any], NDArray[np.bool_]]:
    """The labels of graph m's nodes and which of them are known: -1, None and NaN say unknown."""
    if isinstance(labels, np.ndarray) and labels.shape == (n_nodes,) and labels.dtype.kind in "biuU":
        return labels.tolist(), np.ones(n_nodes, bool) if labels.dtype.kind == "U" else labels != -1
    values = labels_of_parts(labels, m, n_nodes, "graph", "node", "label")
    unknown = [is_missing(value) or (not isinstance(value, str) and value == -1) for value in values]
    return values, ~np.array(unknown, bool)


def check_costs(estimator: Any, classes: NDArray[Any]) -> None:
    """Refuse a table of costs or class weights that do not fit the classes."""
    cost_table(estimator.loss, classes)
    class_weights(estimator.class_weight, classes, np.arange(len(classes), dtype=np.int32))

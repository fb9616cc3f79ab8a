"""Sequences and their tags, as users give them: what they are lists of, and tags as states of all positions, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import clone

from maxmargin.errors import DataError
from maxmargin.estimators import labels as target
from maxmargin.estimators.given_features import check_same_columns
from maxmargin.features import Vectoriser
from maxmargin.features.text import TextFeatures
from maxmargin.features.vectoriser import FeatureColumns, number
from maxmargin.packed.data import PackedLabels
from maxmargin.problems import Features
from maxmargin.problems.chains import stack_examples


def vectoriser_for(given: Any, X: Any) -> FeatureColumns | None:
    """What makes features of the positions; None if they have rows of numbers."""
    if given is not None:
        made: FeatureColumns = clone(given)
        return made
    kind = kind_of(X)
    return None if kind is None else TextFeatures() if kind == "words" else Vectoriser()


def kind_of(X: Any) -> str | None:
    """What the sequences are lists of: "words", "names" (dicts or collections of strings), or None, numbers."""
    if isinstance(X, str) or not isinstance(X, Sequence | np.ndarray):
        return None
    for one in X:
        if not (isinstance(one, list | tuple) or (isinstance(one, np.ndarray) and one.dtype.kind in "OU")):
            return None
        for position in one:
            if isinstance(position, str):
                return "words"
            if isinstance(position, Mapping | set | frozenset):
                return "names"
            if not isinstance(position, list | tuple) or len(position):
                return "names" if isinstance(position, list | tuple) and isinstance(position[0], str) else None
    return None


def known_states(
    place: NDArray[np.int32],
    tags: list[Any],
    lengths: NDArray[np.int64],
    classes: NDArray[Any],
    known: NDArray[np.bool_] | None = None,
) -> NDArray[np.int32]:
    """States of all positions, one sequence after the other; -1 where the tag is not known."""
    states: NDArray[np.int32] = target.states_of(tags, classes)[place]
    unseen = states < 0 if known is None else (states < 0) & known
    if unseen.any():
        at = int(unseen.argmax())
        m, t = _locate(at, lengths)
        raise DataError(f"y[{m}][{t}] is {tags[place[at]]!r}, a tag that was not seen in training.")
    return states


def lengths_of(X: Sequence[Any]) -> NDArray[np.int64]:
    """The number of positions of each sequence."""
    return np.array([len(one) for one in X], np.int64)


def check_sequences(X: Any) -> tuple[Features, NDArray[np.int64]]:
    """The rows of all sequences, one after the other, and the sequences' lengths."""
    if sp.issparse(X) or hasattr(X, "columns") or (isinstance(X, np.ndarray) and X.ndim == 2):
        raise DataError(f"X is one matrix, of shape {X.shape}; expected a list with a matrix (length, p) per sequence.")
    if isinstance(X, str) or not isinstance(X, Sequence | np.ndarray):
        raise DataError(f"X is of type {type(X).__name__}; expected a list with a matrix (length, p) per sequence.")
    check_same_columns(X, "sequence")
    features, lengths = stack_examples(list(X), "sequence")
    if features.shape[1] == 0:
        raise DataError("The sequences have 0 features; at least 1 is required.")
    return features, lengths


def _check_packed_tags(y: PackedLabels, lengths: NDArray[np.int64]) -> NDArray[np.int32]:
    """The states of packed tags, which must be those of sequences of these lengths."""
    states: NDArray[np.int32] = y.states
    if len(y) != len(lengths) or len(states) != int(lengths.sum()):
        raise DataError(
            f"There are {len(lengths)} sequences of {int(lengths.sum())} positions in X, but {len(y)} with {len(states)} tags in y."
        )
    return states


def check_tags(y: Any, lengths: NDArray[np.int64]) -> tuple[NDArray[np.int32], list[Any]]:
    """The tags in the order in which they appear, and for each position, one sequence after the other, the place of its own."""
    if isinstance(y, PackedLabels):
        return _check_packed_tags(y, lengths), y.classes.tolist()
    if y is None:
        raise DataError("ChainSVM requires y to be passed, but the target y is None.")
    if isinstance(y, str) or not hasattr(y, "__len__"):
        raise DataError(f"y is of type {type(y).__name__}; expected a list with the tags of each sequence.")
    if len(y) != len(lengths):
        raise DataError(f"There are {len(lengths)} sequences in X, but tags for {len(y)} in y.")
    names = "sequence", "position", "tag"
    values = [
        target.values_of_parts(row, m, n, *names) for m, (row, n) in enumerate(zip(y, lengths.tolist(), strict=True))
    ]
    try:
        place, tags = number(chain.from_iterable(values))
    except TypeError:
        for m, row in enumerate(values):
            target.labels_of_parts(row, m, len(row), *names)
        raise
    return place, tags


def _locate(position: int, lengths: NDArray[np.int64]) -> tuple[int, int]:
    """The sequence of a position that is counted over all of them, and the position there."""
    m = int(np.searchsorted(np.cumsum(lengths), position, side="right"))
    return m, position - int(lengths[:m].sum())

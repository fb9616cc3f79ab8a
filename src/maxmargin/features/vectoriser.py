"""Vectoriser: sequences of positions with named features, as one matrix.

Conventions
-----------
A *sequence* is a list of positions. A position is a dict {name: value}, where a number or a boolean is the value of the
feature "name" and a string makes the feature "name=value" with value 1; or it is a list or a set of strings, features that
count 1 each time they are there. Positions of all sequences, one sequence after another, are the rows of one CSR matrix of
float64.

Columns are the names seen in `fit`, sorted; what `transform` meets besides is dropped. With ``n_hash`` there is no
vocabulary: a name's column is its hash, |MurmurHash3(name)| mod n_hash, and names that collide add up.

Names are strings, and Python must look at each one; so a name is looked up once where it occurs, and everything else is done
once for a distinct name, or by NumPy.
"""

from __future__ import annotations

import math
import numbers
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from itertools import chain
from operator import methodcaller
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import murmurhash3_32
from sklearn.utils.validation import check_is_fitted

from maxmargin.errors import DataError, OptionError
from maxmargin.jit import kernel
from maxmargin.problems.features import Features
from maxmargin.problems.layout import offsets


class Found(NamedTuple):
    """The features of all positions, before they have columns."""

    #: What the features are called; one name may stand here more than once.
    names: list[str]
    #: How many positions have each of them.
    counts: NDArray[np.int64]
    #: For each feature of each position, row after row, its place in `names`; without `rows` a table, a row a position, -1 for
    #: none.
    feature: NDArray[np.int32]
    #: Where each row begins, and where the last one ends.
    rows: NDArray[np.int64] | None = None
    #: The features' values, or None if all are 1.
    values: NDArray[np.float64] | None = None


class FeatureColumns(BaseEstimator):
    """Base of what turns sequences into matrices: which name has which column.

    Attributes
    ----------
    feature_names_ : array (p,)
        Names of the columns, sorted; not there with ``n_hash``.
    n_features_ : int
        p.
    """

    min_count: int
    n_hash: int | None
    feature_names_: NDArray[Any]
    n_features_: int

    def fit(self, X: Any, y: Any = None) -> Self:
        """Find the columns; `y` is there for pipelines.

        Parameters
        ----------
        X : list of sequences
            Sequences of words, tuples, dicts or lists of strings, whatever these features are made of.
        y : ignored
            There for pipelines.
        """
        self._learn(self._begin(X))
        return self

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """Find the columns, and return the matrix of the same sequences.

        Parameters
        ----------
        X : list of sequences
            Sequences of words, tuples, dicts or lists of strings, whatever these features are made of.
        y : ignored
            There for pipelines.
        """
        return self.fit_features(X).matrix()

    def transform(self, X: Any) -> Any:
        """The positions of all sequences, one sequence after another, as a CSR array (positions, p).

        Parameters
        ----------
        X : list of sequences
            Sequences of words, tuples, dicts or lists of strings, whatever these features are made of.
        """
        return self.features(X).matrix()

    def fit_features(self, X: Any) -> Features:
        """Find the columns, and return the features of the same sequences, which keep no values if all are 1.

        Parameters
        ----------
        X : list of sequences
            Sequences of words, tuples, dicts or lists of strings, whatever these features are made of.
        """
        found = self._begin(X)
        return self._features(found, self._learn(found))

    def features(self, X: Any) -> Features:
        """The positions of all sequences as features.

        Parameters
        ----------
        X : list of sequences
            Sequences of words, tuples, dicts or lists of strings, whatever these features are made of.
        """
        check_is_fitted(self)
        found = self._read(X)
        return self._features(found, self._columns_of(found.names))

    def fit_blocks(self, blocks: Iterable[Any]) -> Self:
        """Find the columns of sequences that come some at a time, and are never in memory together.

        Parameters
        ----------
        blocks : iterable of lists of sequences
            Each as `fit` takes them.
        """
        self.check_options()
        if self.n_hash is not None:
            self.set_columns(None)
            return self
        counts: dict[str, int] = {}
        for block in blocks:
            found = self._read(block)
            for name, count in zip(found.names, found.counts.tolist(), strict=True):
                counts[name] = counts.get(name, 0) + count
        names = sorted(name for name, count in counts.items() if count >= self.min_count)
        if not names:
            raise DataError(f"No feature occurs min_count={self.min_count} times, so there are no columns.")
        self.set_columns(names)
        return self

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Names of the columns, as scikit-learn asks for them.

        Parameters
        ----------
        input_features : ignored
            There since scikit-learn passes it.
        """
        check_is_fitted(self)
        if self.n_hash is not None:
            raise OptionError(f"With n_hash={self.n_hash} columns have no names.")
        return self.feature_names_

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "n_features_")

    def set_columns(self, names: list[str] | None) -> None:
        """Make columns of these names, which must differ; None for hashing.

        Parameters
        ----------
        names : list of str, or None
            The names, in the order of the columns; None if names are hashed.
        """
        for name in ("feature_names_", "_column"):
            self.__dict__.pop(name, None)
        if names is None:
            assert self.n_hash is not None
            self.n_features_ = int(self.n_hash)
            return
        self.feature_names_ = np.array(names, object)
        self.n_features_ = len(names)

    def check_options(self) -> None:
        """Refuse, in a sentence, options that cannot be."""
        for name in ("min_count", "n_hash"):
            value = getattr(self, name)
            if not ((is_whole(value, 1) and value < 2**31) or (name == "n_hash" and value is None)):
                also = ", or None" if name == "n_hash" else ""
                raise OptionError(
                    f"{name}={value!r} is not possible; it must be a whole number of at least 1{also}, below 2**31."
                )
        if self.n_hash is not None and self.min_count > 1:
            raise OptionError(
                f"min_count={self.min_count} needs a vocabulary, which hashing does without: give either min_count or n_hash."
            )

    def _begin(self, X: Any) -> Found:
        self.check_options()
        return self._read(X)

    def _read(self, X: Any) -> Found:
        """The features of all positions."""
        raise NotImplementedError

    def _learn(self, found: Found) -> NDArray[np.int32]:
        """Make columns of the names; returns that of each of them, or -1."""
        if self.n_hash is not None:
            self.set_columns(None)
            return self._columns_of(found.names)
        place, names = number(found.names)
        counts = np.bincount(place, found.counts, len(names))
        kept = sorted(np.flatnonzero(counts >= self.min_count).tolist(), key=names.__getitem__)
        if not kept:
            raise DataError(f"No feature occurs min_count={self.min_count} times, so there are no columns.")
        self.set_columns([names[k] for k in kept])
        columns = np.full(len(names), -1, np.int32)
        columns[kept] = np.arange(len(kept))
        return np.asarray(columns[place])

    def _features(self, found: Found, columns: NDArray[np.int32]) -> Features:
        """The features, whose names have these columns; a table of them is overwritten."""
        if found.rows is None:
            rows, values = np.zeros(len(found.feature) + 1, np.int64), None
            place = found.feature.reshape(-1)
            distinct = compress_rows(found.feature, columns, place, rows)
            place = place[: rows[-1]] if 2 * rows[-1] > len(place) else place[: rows[-1]].copy()
            if distinct:
                return Features.of_rows(rows, place, np.empty(0), self.n_features_, "X")
        else:
            place = columns[found.feature]
            known = place >= 0
            values = None if found.values is None else found.values[known]
            place, rows = place[known], offsets(known)[found.rows]
        data = np.ones(len(place)) if values is None else values
        matrix: Any = sp.csr_array((data, place, rows), shape=(len(rows) - 1, self.n_features_))
        matrix.sum_duplicates()
        if values is not None:
            matrix.eliminate_zeros()
        return Features(matrix)

    def _columns_of(self, names: list[str]) -> NDArray[np.int32]:
        """The column of each name, or -1."""
        if self.n_hash is None:
            if not hasattr(self, "_column"):
                self._column = {name: k for k, name in enumerate(self.feature_names_.tolist())}
            column = self._column
            return np.array([column.get(name, -1) for name in names], np.int32)
        coded = (name.encode("utf-8", "surrogatepass") for name in names)
        hashes = np.fromiter(map(murmurhash3_32, coded), np.int64, len(names))
        return np.asarray(np.abs(hashes) % self.n_hash, np.int32)


class Vectoriser(FeatureColumns):
    """Sequences of dicts, or of lists of strings, as one CSR matrix.

    Parameters
    ----------
    min_count : int
        Features that fewer positions of the training data have get no column.
    n_hash : int, optional
        Number of columns that names are hashed into, in place of a vocabulary; 2**18 is a common choice.

    Attributes
    ----------
    feature_names_, n_features_ : array (p,), int
        The columns' names, sorted (not there with ``n_hash``), and how many there are.

    Examples
    --------
    >>> from maxmargin.features import Vectoriser
    >>> vectoriser = Vectoriser()
    >>> vectoriser.fit_transform([[{"word": "the", "length": 3}, {"word": "cat", "length": 3}]]).toarray()
    array([[3., 0., 1.],
           [3., 1., 0.]])
    >>> vectoriser.feature_names_.tolist()
    ['length', 'word=cat', 'word=the']
    """

    def __init__(self, min_count: int = 1, n_hash: int | None = None) -> None:
        self.min_count = min_count
        self.n_hash = n_hash

    def _read(self, X: Any) -> Found:
        positions, lengths = flatten(X)
        kinds = set(map(type, positions))
        if all(issubclass(kind, Mapping) for kind in kinds):
            return _read_dicts(positions, lengths)
        if all(issubclass(kind, list | tuple | set | frozenset) for kind in kinds):
            return _read_strings(positions, lengths)
        first = Mapping if isinstance(positions[0], Mapping) else (list, tuple, set, frozenset)
        at = next(t for t, one in enumerate(positions) if not isinstance(one, first))
        also = " For sentences of words, use TextFeatures." if isinstance(positions[at], str) else ""
        raise DataError(
            f"{place_of(at, lengths)} is {positions[at]!r}; expected a dict of features at every position, or a list of "
            f"strings at every position.{also}"
        )


def _read_dicts(positions: list[Any], lengths: NDArray[np.int64]) -> Found:
    items = map(methodcaller("items"), positions)
    try:
        # Equal pairs are looked at once: True, 1 and 1.0 are equal, and mean the same.
        feature, pairs = number(chain.from_iterable(items))
    except TypeError:
        at, name, value = next(
            (t, *item) for t, one in enumerate(positions) for item in one.items() if not all(map(_hashable, item))
        )
        raise DataError(_not_a_feature(place_of(at, lengths), name, value)) from None
    names, values = [], np.ones(len(pairs))
    for k, (name, value) in enumerate(pairs):
        if isinstance(name, str) and isinstance(value, str):
            names.append(f"{name}={value}")
            continue
        if not (isinstance(name, str) and isinstance(value, numbers.Real | np.bool_) and math.isfinite(value)):
            at = _position(positions, int(np.flatnonzero(feature == k)[0]))
            raise DataError(_not_a_feature(place_of(at, lengths), name, value))
        names.append(name)
        values[k] = float(value)
    counts = np.bincount(feature, minlength=len(names))
    return Found(names, counts, feature, offsets(list(map(len, positions))), values[feature])


def _read_strings(positions: list[Any], lengths: NDArray[np.int64]) -> Found:
    try:
        feature, names = number(chain.from_iterable(positions))
    except TypeError:
        names, feature = [], np.empty(0, np.int32)
        at = next(t for t, one in enumerate(positions) if not all(map(_hashable, one)))
    else:
        wrong = [k for k, name in enumerate(names) if not isinstance(name, str)]
        at = _position(positions, int(np.flatnonzero(feature == wrong[0])[0])) if wrong else -1
    if at >= 0:
        entry = next(one for one in positions[at] if not isinstance(one, str))
        raise DataError(f"{place_of(at, lengths)} has the feature {entry!r}; expected strings.")
    return Found(names, np.bincount(feature, minlength=len(names)), feature, offsets(list(map(len, positions))))


def _not_a_feature(place: str, name: Any, value: Any) -> str:
    return (
        f"{place} has the feature {name!r} with the value {value!r}; expected a name of type str, and a value that is a "
        "finite number, a boolean or a string."
    )


def _hashable(value: Any) -> bool:
    # A tuple may hold a list.
    try:
        hash(value)
    except TypeError:
        return False
    return isinstance(value, Hashable)


def _position(positions: list[Any], feature: int) -> int:
    """The position of a feature that is counted over all positions."""
    return int(np.searchsorted(np.cumsum([len(one) for one in positions]), feature, side="right"))


# --------------------------------------------------------------------------------------------------------------------
# Sequences


def flatten(X: Any) -> tuple[list[Any], NDArray[np.int64]]:
    """The positions of all sequences, one sequence after another, and the sequences' lengths."""
    if isinstance(X, str | Mapping) or not isinstance(X, Iterable):
        raise DataError(f"X is of type {type(X).__name__}; expected a list of sequences, each a list of positions.")
    sequences = list(X)
    if not sequences:
        raise DataError("There is no sequence: the data is empty.")
    for m, one in enumerate(sequences):
        if isinstance(one, str | Mapping) or not hasattr(one, "__len__"):
            raise DataError(f"Sequence {m} is {one!r}; expected a list of positions.")
        if len(one) == 0:
            raise DataError(f"Sequence {m} is empty.")
    return list(chain.from_iterable(sequences)), np.array([len(one) for one in sequences], np.int64)


def place_of(position: int, lengths: NDArray[np.int64]) -> str:
    """How sentences call a position that is counted over all sequences."""
    m = int(np.searchsorted(np.cumsum(lengths), position, side="right"))
    return f"Sequence {m}: position {position - int(lengths[:m].sum())}"


def number(values: Iterable[Any]) -> tuple[NDArray[np.int32], list[Any]]:
    """Number the distinct values in the order in which they appear: the number of each value, and the distinct ones."""
    numbers_of: defaultdict[Any, int] = defaultdict()
    numbers_of.default_factory = numbers_of.__len__
    return np.fromiter(map(numbers_of.__getitem__, values), np.int32), list(numbers_of)


def is_whole(value: Any, least: int) -> bool:
    """Whether a parameter is a whole number of at least `least`."""
    return not isinstance(value, bool | np.bool_) and isinstance(value, numbers.Integral) and int(value) >= least


# ------------------------------------------------------------------------------------------------------- kernels


@kernel
def compress_rows(table: Any, columns: Any, indices: Any, rows: Any) -> bool:
    """Write the columns of the features in each row of the table, sorted, one row after another, and where the rows end.

    `indices` may be the table itself, row after row: nothing is written before it was read. Returns whether all columns of every
    row differ.
    """
    at, distinct = 0, True
    for r in range(table.shape[0]):
        first = at
        for t in range(table.shape[1]):
            column = columns[table[r, t]] if table[r, t] >= 0 else -1
            if column < 0:
                continue
            place = at
            while place > first and indices[place - 1] > column:
                indices[place] = indices[place - 1]
                place -= 1
            indices[place] = column
            if place > first and indices[place - 1] == column:
                distinct = False
            at += 1
        rows[r + 1] = at
    return distinct


@kernel
def number_codes(codes: Any, numbers: Any) -> Any:
    """Number distinct codes in the order in which they appear, -1 for what is below 0; returns the distinct ones."""
    size, n = 1024, 0
    keys, places, distinct = np.full(size, -1), np.empty(size, np.int32), np.empty(size, np.int64)
    for k in range(len(codes)):
        code = codes[k]
        if code < 0:
            numbers[k] = -1
            continue
        at = (code * 40503 + (code >> 16)) % size
        while keys[at] >= 0 and keys[at] != code:
            at = (at + 1) % size
        if keys[at] < 0:
            keys[at], places[at], distinct[n] = code, n, code
            n += 1
        numbers[k] = places[at]
        if 2 * n > size:
            # A larger table, with the same codes.
            size *= 4
            keys, places, more = np.full(size, -1), np.empty(size, np.int32), np.empty(size, np.int64)
            for j in range(n):
                more[j] = distinct[j]
                at = (distinct[j] * 40503 + (distinct[j] >> 16)) % size
                while keys[at] >= 0:
                    at = (at + 1) % size
                keys[at], places[at] = distinct[j], j
            distinct = more
    return distinct[:n].copy()

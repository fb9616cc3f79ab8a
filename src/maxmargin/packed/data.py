"""What a packed folder holds, as estimators take it: rows or sequences, and their labels.

`PackedRows`, `PackedSequences` and `PackedLabels` stand where arrays and lists stand otherwise. Slices of them are parts of the
same files; single examples, or some by their numbers, are read into memory. Sent to other processes they are the name of the
folder and two numbers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin import scratch
from maxmargin.errors import DataError
from maxmargin.features.saved import restore_vectoriser
from maxmargin.features.vectoriser import FeatureColumns
from maxmargin.packed.folder import Folder
from maxmargin.packed.rows import PackedFeatures, StoredRows, checked_states, for_kernels, n_columns, opened

#: The tasks that data can be packed for.
TASKS = ("binary", "multi-class", "multi-label", "chain")
#: Labels that are read at a time.
_SOME = 1 << 16


class _Part:
    """Some examples of a folder."""

    def __init__(self, folder: Folder, begin: int, end: int) -> None:
        self.folder, self.begin, self.end = folder, begin, end

    def __len__(self) -> int:
        return self.end - self.begin

    def __reduce__(self) -> Any:
        return _again, (type(self), self.folder.place, self.folder.digest, self.begin, self.end)

    def _range(self, key: slice) -> tuple[int, int]:
        begin, end, step = key.indices(len(self))
        if step != 1:
            raise DataError(
                "Of packed data, parts are taken in their order: slices with steps other than 1 are not possible."
            )
        return self.begin + begin, self.begin + max(begin, end)

    def _numbers(self, key: Any) -> NDArray[np.int64]:
        """Numbers of examples of this part, from numbers, negative ones or a mask."""
        chosen = np.asarray(key)
        if chosen.dtype == bool:
            if chosen.shape != (len(self),):
                raise DataError(f"A mask has shape {chosen.shape}; expected ({len(self)},).")
            chosen = np.flatnonzero(chosen)
        if chosen.ndim != 1 or chosen.dtype.kind not in "iu":
            raise DataError(f"Examples are chosen by {key!r:.80}; expected a slice, numbers or a mask.")
        numbers = np.where(chosen < 0, chosen + len(self), chosen).astype(np.int64)
        if len(numbers) and (numbers.min() < 0 or numbers.max() >= len(self)):
            raise DataError(
                f"There are {len(self)} examples; some of the numbers {chosen.min()} to {chosen.max()} are none."
            )
        return numbers


def _again(kind: Any, place: str, digest: str, begin: int, end: int) -> Any:
    folder = opened(place)
    if folder.digest != digest:
        raise folder.error("it is not the folder that the data was sent from: its header differs")
    _check(folder)
    return kind(folder, begin, end)


class PackedRows(_Part):
    """Rows of features of a packed folder, for `fit` and `predict`; a slice is another one, other parts are read into memory.

    Parameters
    ----------
    folder : Folder
        The folder, opened.
    begin, end : int
        The first example, and the one after the last.
    """

    ndim = 2

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns, the constant left out."""
        return len(self), self.folder.size("n_features", 1)

    @cached_property
    def features(self) -> PackedFeatures:
        """The rows for a problem, after a look at all of them."""
        return PackedFeatures(StoredRows(self.folder, self.begin, self.end))

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return PackedRows(self.folder, *self._range(key))
        chosen = self._numbers([key] if isinstance(key, int | np.integer) else key)
        return self.features.stored.plain(chosen)

    def matrix(self) -> Any:
        """All rows in memory: an array, or a CSR array."""
        return self.features.stored.plain(slice(None))


class PackedSequences(_Part, Sequence[Any]):
    """Sequences of a packed folder, for `fit` and `predict`; a slice is another one, a single sequence is a matrix in memory.

    Parameters
    ----------
    folder : Folder
        The folder, opened.
    begin, end : int
        The first example, and the one after the last.
    """

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        """Where all sequences of the folder begin."""
        lengths = self.folder.arrays["lengths"]
        return np.concatenate([[0], np.cumsum(lengths)])

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """How many positions each sequence has."""
        return np.array(self.folder.arrays["lengths"][self.begin : self.end])

    @cached_property
    def features(self) -> PackedFeatures:
        """The positions of all sequences for a problem, after a look at all of them."""
        first, last = (int(self._starts[k]) for k in (self.begin, self.end))
        return PackedFeatures(StoredRows(self.folder, first, last))

    @property
    def vectoriser(self) -> FeatureColumns | None:
        """What made features of words, if anything did."""
        return vectoriser_of(self.folder)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return PackedSequences(self.folder, *self._range(key))
        if not isinstance(key, int | np.integer):
            return [self[int(m)] for m in self._numbers(key)]
        m = int(self._numbers([key])[0])
        ends = self._starts[self.begin : self.end + 1] - self._starts[self.begin]
        return self.features.stored.plain(slice(int(ends[m]), int(ends[m + 1])))


class PackedLabels(_Part):
    """The labels of a packed folder: one for each row, zeros and ones (n, L), or the tags of each sequence.

    Parameters
    ----------
    folder : Folder
        The folder, opened.
    begin, end : int
        The first example, and the one after the last.
    """

    @property
    def classes(self) -> NDArray[Any]:
        """The labels that there are, sorted as the estimators have them."""
        return _classes(self.folder)

    @property
    def _task(self) -> str:
        return str(self.folder.header["task"])

    @property
    def ndim(self) -> int:
        """2 for sets of labels."""
        return 2 if self._task == "multi-label" else 1

    @property
    def shape(self) -> tuple[int, ...]:
        """Examples, and, of sets of labels, labels."""
        return (len(self), len(self.classes)) if self.ndim == 2 else (len(self),)

    @property
    def columns(self) -> list[Any]:
        """Of sets of labels, their names, in the order of the columns."""
        if self.ndim != 2:
            raise AttributeError("columns")
        return list(self.classes.tolist())

    @cached_property
    def states(self) -> NDArray[Any]:
        """The numbers of the labels: int32 (n,), int8 (n, L) of zeros and ones, or int32 for all positions."""
        found = self.folder.arrays["labels"]
        if self._task == "chain":
            starts = np.concatenate([[0], np.cumsum(self.folder.arrays["lengths"])])
            found = found[int(starts[self.begin]) : int(starts[self.end])]
        else:
            found = found[self.begin : self.end]
        checked_states(found, 2 if self.ndim == 2 else len(self.classes), f"The packed folder {self.folder.place}")
        return for_kernels(found)

    def __iter__(self) -> Iterator[Any]:
        for first in range(0, len(self), _SOME):
            some = np.arange(first, min(first + _SOME, len(self)))
            found = self[some]
            yield from found if self._task == "chain" or self.ndim == 2 else found.tolist()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if self._task == "chain":
            raise TypeError("The tags of sequences are no array.")
        values = self.states if self.ndim == 2 else self.classes[self.states]
        return np.array(values, dtype=dtype)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return PackedLabels(self.folder, *self._range(key))
        single = isinstance(key, int | np.integer)
        chosen = self._numbers([key] if single else key)
        if self._task == "chain":
            ends = np.concatenate([[0], np.cumsum(self.folder.arrays["lengths"][self.begin : self.end])])
            found: Any = [self.classes[self.states[ends[m] : ends[m + 1]]] for m in chosen.tolist()]
        else:
            found = self.states[chosen] if self.ndim == 2 else self.classes[self.states[chosen]]
        return found[0] if single else found


@dataclass(frozen=True, eq=False)
class PackedData:
    """A packed folder: what `fit`, `predict` and `score` take.

    Attributes
    ----------
    path : str
        The folder.
    task : "binary", "multi-class", "multi-label" or "chain"
        What the labels are.
    X : PackedRows or PackedSequences
        The features.
    y : PackedLabels
        The labels.
    feature_names : list of str or None
        The names of the columns, if they have any.
    vectoriser : TextFeatures, Vectoriser or None
        What made features of words.
    """

    path: str
    task: str
    X: Any
    y: Any
    feature_names: list[str] | None
    vectoriser: Any


def room_for(X: Any) -> AbstractContextManager[None]:
    """Where large arrays are made while `X` is trained on: on the disk that packed data is on, or in memory.

    Parameters
    ----------
    X : packed or other data
    """
    return scratch.on_disk(X.folder.place if isinstance(X, _Part) else None)


def read_packed(path: str | os.PathLike[str], verify: bool = False) -> PackedData:
    """Open a packed folder; its arrays are mapped, not read.

    Parameters
    ----------
    path : path-like
        The folder, as `pack` or ``maxmargin pack`` made it.
    verify : bool
        Read all of it and compare the checksums.

    Returns
    -------
    PackedData
        `X` and `y` for estimators.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from maxmargin import MultiClassSVM
    >>> from maxmargin.packed import pack, read_packed
    >>> folder = tempfile.mkdtemp() + "/rows"
    >>> X = np.random.default_rng(0).normal(size=(60, 4))
    >>> pack(folder, X, X[:, :3].argmax(axis=1))
    >>> data = read_packed(folder)
    >>> MultiClassSVM(C=100).fit(data.X, data.y).predict(data.X).shape
    (60,)
    """
    folder = opened(path)
    if verify:
        folder.verify()
    n = _check(folder)
    task, header = str(folder.header["task"]), folder.header
    inputs: Any = PackedSequences(folder, 0, n) if task == "chain" else PackedRows(folder, 0, n)
    names = header.get("feature_names")
    if names is None and header.get("first_index") in (0, 1):
        first = header["first_index"]
        names = [str(index) for index in range(first, folder.size("n_features", 1) + first)]
    elif names is not None and not (
        isinstance(names, list)
        and len(names) == folder.size("n_features", 1)
        and all(isinstance(one, str) for one in names)
    ):
        raise folder.error("its feature_names are no list of a name for each column")
    return PackedData(os.fspath(path), task, inputs, PackedLabels(folder, 0, n), names, vectoriser_of(folder))


def _check(folder: Folder) -> int:
    """Look at the header, the labels and the lengths; the rows are looked at when they are first used. Returns the examples."""
    task = folder.header.get("task")
    if task not in TASKS:
        raise folder.error(f"its task is {task!r:.60}; expected one of {', '.join(TASKS)}")
    n, n_rows = folder.size("n_examples", 1), folder.size("n_rows", 1)
    n_columns(folder)
    classes = _classes(folder)
    if task == "multi-label":
        folder.array("labels", np.int8, (n, len(classes)))
    else:
        folder.array("labels", np.int32, (n_rows,))
    if task == "chain":
        lengths = folder.array("lengths", np.int64, (n,))
        if lengths.min() < 1 or lengths.max() > n_rows or int(lengths.sum()) != n_rows:
            raise folder.error("its lengths are not those of sequences with as many positions as there are rows")
    elif n != n_rows:
        raise folder.error(f"it has {n} examples, but {n_rows} rows")
    return n


def _classes(folder: Folder) -> NDArray[Any]:
    labels: Any = folder.header.get("labels")
    plain = isinstance(labels, list) and bool(labels)
    if not plain or not (all(isinstance(one, str) for one in labels) or all(type(one) is int for one in labels)):
        raise folder.error("its labels are no list of strings or of whole numbers")
    try:
        classes = np.array(labels)
    except OverflowError:
        classes = np.empty(0, object)
    if classes.dtype.kind not in "Ui" or len(set(labels)) != len(labels):
        raise folder.error("its labels are not all different, or too large")
    return classes


def vectoriser_of(folder: Folder) -> FeatureColumns | None:
    """What made features of words, from the header and the arrays of names."""
    saved = folder.header.get("vectoriser")
    if saved is None:
        return None
    return restore_vectoriser(saved, folder.arrays, folder.size("n_features", 1), f"The packed folder {folder.place}: ")

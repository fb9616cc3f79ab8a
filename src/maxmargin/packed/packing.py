"""What makes packed folders: of arrays, and of text files, line after line, in memory that does not grow with them.

Rows go to files as they are read, with what must be known of all of them before they can be arranged: how often each column is
used, the index of the first column, the labels. Then they are read once more, and written as training wants them (rows.py).
What stays in memory is a few numbers for each column and the names of labels and features; of words, the vocabulary is found in
a first pass over the text.
"""

from __future__ import annotations

import math
import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.errors import DataError, OptionError, did_you_mean
from maxmargin.features.saved import VECTORISERS, name_arrays
from maxmargin.features.vectoriser import FeatureColumns
from maxmargin.formats.conll import Sentence
from maxmargin.formats.plain_json import plain
from maxmargin.formats.svm_hmm import tagged_lines
from maxmargin.formats.svmlight import (
    BLOCK_LINES,
    MAX_IMPLIED_FEATURES,
    classes_of,
    labelled_lines,
    parse_pairs,
    query_number,
    short,
    sorted_names,
)
from maxmargin.packed.folder import FolderWriter
from maxmargin.problems.columns import in_order_of_use, many_columns, move_columns
from maxmargin.problems.features import MOSTLY_ZERO, WIDE, FeatureArrays, as_floats
from maxmargin.sparse import checked_csr

#: Numbers that are held at a time, positions of text, and bytes of labels for a byte of text above which it cannot be meant.
_PIECE, _POSITIONS, _MOST_TIMES = 1 << 19, 1 << 16, 1 << 10


def pack(
    path: str | os.PathLike[str],
    X: Any,
    y: Any,
    feature_names: Sequence[str] | None = None,
) -> None:
    """Write arrays to a packed folder, some rows at a time, so that they may be maps of files themselves.

    Parameters
    ----------
    path : path-like
        The folder, which must not be there yet; it appears in one step.
    X : array, CSR matrix (n, p), or list of arrays or CSR matrices (length, p)
        Rows of features, or a matrix for each sequence; float32 stays float32.
    y : array (n,), array (n, L) of zeros and ones, or list of sequences of tags
        A class for each row, strings or whole numbers; a set of labels; or the tags of each sequence.
    feature_names : sequence of str, optional
        The names of the columns.
    """
    with FolderWriter(path) as folder:
        if sp.issparse(X) or hasattr(X, "shape"):
            n, width = _add_matrix(folder, checked_csr(X, "X") if sp.issparse(X) else X)
            folder.header |= {"n_rows": n, "n_examples": n}
            _add_targets(folder, y, n)
        else:
            width = _add_sequences(folder, X, y)
        folder.header["n_features"] = width
        if feature_names is not None:
            names = [str(name) for name in feature_names]
            if len(names) != width:
                raise DataError(f"There are {len(names)} names of features for {width} columns.")
            folder.header["feature_names"] = names


def pack_svmlight(
    path: str | os.PathLike[str],
    source: str | os.PathLike[str],
    task: str | None = None,
    n_features: int | None = None,
    label_names: Sequence[str] | None = None,
) -> None:
    """Pack labelled rows in the text format of SVM-light and LIBSVM, line after line.

    Parameters
    ----------
    path : path-like
        The folder, which must not be there yet.
    source : path-like
        The text, possibly compressed.
    task : "binary", "multi-class" or "multi-label", optional
        None is as the labels look.
    n_features : int, optional
        The number of columns; by default the largest index decides.
    label_names : sequence of str, optional
        Of sets of labels: all of them, in the order of their columns; by default those that occur.
    """
    place = os.fspath(source)
    with FolderWriter(path) as folder:
        rows, labels = RawRows(folder, place), _Codes(folder)
        for block in _blocks(labelled_lines(source), BLOCK_LINES):
            numbers, heads, _, texts = (list(part) for part in zip(*block, strict=True))
            rows.add_text(numbers, texts, n_features)
            for number, head in zip(numbers, heads, strict=True):
                sets = head.split(",") if head else []
                if "" in sets or len(set(sets)) < len(sets):
                    raise DataError(f"{place}, line {number}: a label is empty, or occurs twice, in {short(head)}.")
                labels.add(sets)
            labels.flush()
        first = int(not rows.has_zero)
        folder.header |= {"n_rows": rows.n_rows, "n_examples": rows.n_rows, "first_index": first}
        folder.header["n_features"] = rows.arrange(first, n_features)
        labels.arrange(place, task, label_names=label_names)


def pack_svm_hmm(path: str | os.PathLike[str], source: str | os.PathLike[str], n_features: int | None = None) -> None:
    """Pack tagged sequences in the text format of SVM-hmm, line after line.

    Parameters
    ----------
    path : path-like
        The folder, which must not be there yet.
    source : path-like
        The text, possibly compressed.
    n_features : int, optional
        The number of columns; by default the largest index decides.
    """
    place = os.fspath(source)
    with FolderWriter(path) as folder:
        rows, tags, seen = RawRows(folder, place), _Codes(folder), _Seen()
        lengths, last, qid, length = folder.array("lengths", np.int64), None, -1, 0
        for block in _blocks(tagged_lines(source), BLOCK_LINES):
            numbers, words, queries, texts = (list(part) for part in zip(*block, strict=True))
            rows.add_text(numbers, texts, n_features)
            found = []
            for number, tag, query in zip(numbers, words, queries, strict=True):
                tags.add([tag])
                if query != last:
                    before, qid, last = qid, query_number(place, number, query), query
                    if qid != before:
                        if not seen.add(qid):
                            raise DataError(
                                f"{place}, line {number}: the sequence qid:{qid} comes back; its lines must follow each other."
                            )
                        if length:
                            found.append(length)
                        length = 0
                length += 1
            tags.flush()
            lengths.add(np.array(found, np.int64))
        lengths.add(np.array([length], np.int64))
        if rows.has_zero:
            raise DataError(f"{place}: the index 0 occurs; SVM-hmm's indices count from 1.")
        folder.header |= {"n_rows": rows.n_rows, "n_examples": lengths.n_rows, "first_index": 1}
        folder.header["n_features"] = rows.arrange(1, n_features)
        tags.arrange(place, "chain")


def pack_words(
    path: str | os.PathLike[str],
    source: Callable[[], Iterable[tuple[Sentence, list[str]]]],
    features: FeatureColumns,
    place: str = "the text",
) -> None:
    """Pack sentences and their tags, with the features that a vectoriser makes of their words.

    Parameters
    ----------
    path : path-like
        The folder, which must not be there yet.
    source : callable
        Gives the sentences and their tags, one after the other, as often as it is called: once, or twice if there is a vocabulary.
    features : TextFeatures or Vectoriser
        It is fitted here, unless it was fitted before.
    place : str
        How errors call the text.
    """
    features.check_options()
    if hasattr(features, "n_features_"):
        pass
    elif features.n_hash is None:
        features.fit_blocks([words for words, _ in block] for block in _sentence_blocks(source()))
    else:
        features.set_columns(None)
    with FolderWriter(path) as folder:
        rows, tags, lengths = RawRows(folder, place), _Codes(folder), folder.array("lengths", np.int64)
        for block in _sentence_blocks(source()):
            found = features.features([words for words, _ in block]).arrays
            rows.add(np.diff(found.indptr), found.indices, found.data)
            for _, own in block:
                for tag in own:
                    tags.add([tag])
            tags.flush()
            lengths.add(np.array([len(words) for words, _ in block], np.int64))
        folder.header |= {"n_rows": rows.n_rows, "n_examples": lengths.n_rows, "n_features": features.n_features_}
        rows.arrange(0, features.n_features_)
        tags.arrange(place, "chain", numbers=False)
        kind = next((name for name, made in VECTORISERS.items() if type(features) is made), None)
        if kind is None:
            raise OptionError(f"features={features!r} cannot be packed; use one of {', '.join(VECTORISERS)}.")
        folder.header["vectoriser"] = {"name": kind, "options": plain(features.get_params(deep=False))}
        for name, array in name_arrays(getattr(features, "feature_names_", None)).items():
            folder.array(name, array.dtype).add(array)


# --------------------------------------------------------------------------------------------------------------------
# Rows


class RawRows:
    """Compressed rows on their way to a folder: in files of their own until all are there.

    Parameters
    ----------
    folder : FolderWriter
    place : str
        How errors call the source.
    """

    def __init__(self, folder: FolderWriter, place: str) -> None:
        self.folder, self.place, self.n_rows, self.n_entries = folder, place, 0, 0
        self.files = {name: folder.raw(name) for name in ("counts", "indices", "data")}
        #: By column: its entries, and the row of the first.
        self.entries, self.first = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self.ones, self.has_zero = True, False
        self.dtype: np.dtype[Any] = np.dtype(np.float64)

    def add_text(self, numbers: list[int], texts: list[str], n_features: int | None) -> None:
        """Add lines of pairs."""
        indices, values, counts = parse_pairs(self.place, numbers, texts)
        most = MAX_IMPLIED_FEATURES if n_features is None else n_features
        if len(indices) and int(indices.max()) > most:
            line = numbers[int(np.searchsorted(np.cumsum(counts), int(indices.argmax()), side="right"))]
            hint = "; if the file has that many features, give n_features" if n_features is None else ""
            raise DataError(
                f"{self.place}, line {line}: the index {int(indices.max())} is out of range; expected at most {most}{hint}."
            )
        self.has_zero = self.has_zero or bool(indices.min(initial=1) == 0)
        kept = values != 0
        rows = np.repeat(np.arange(len(counts)), counts)[kept]
        largest = int(indices.max(initial=-1))
        self._grow(largest + 1)
        self.add(np.bincount(rows, minlength=len(counts)), indices[kept].astype(np.int32), values[kept])

    def add(self, counts: NDArray[Any], indices: NDArray[np.int32], values: NDArray[Any]) -> None:
        """Add rows of so many entries; no values at all if every value is 1."""
        if len(values) == 0 and len(indices):
            values = np.ones(len(indices), self.dtype)
        elif self.ones:
            self.ones = bool((values == 1).all())
        if not np.isfinite(values).all():
            at = int(np.flatnonzero(~np.isfinite(values))[0])
            row = int(np.searchsorted(np.cumsum(counts), at, side="right"))
            raise DataError(
                f"{self.place}: row {self.n_rows + row} has {values[at]} in column {indices[at]}; features must be finite, not "
                "NaN or infinity."
            )
        self._grow(int(indices.max(initial=-1)) + 1)
        columns, where, times = np.unique(indices, return_index=True, return_counts=True)
        new = self.entries[columns] == 0
        ends = np.cumsum(counts)
        self.first[columns[new]] = self.n_rows + np.searchsorted(ends, where[new], side="right")
        self.entries[columns] += times
        self.files["counts"].write(np.ascontiguousarray(counts, np.int64).data)
        self.files["indices"].write(np.ascontiguousarray(indices, np.int32).data)
        self.files["data"].write(np.ascontiguousarray(values, self.dtype).data)
        self.n_rows += len(counts)
        self.n_entries += len(indices)

    def arrange(self, base: int, n_features: int | None) -> int:
        """Write the rows as training wants them, with the constant; returns the number of columns."""
        for one in self.files.values():
            one.close()
        p = len(self.entries) - base if n_features is None else n_features
        if p < 1:
            raise DataError(f"{self.place}: no line has a feature; give n_features if this is meant.")
        if len(self.entries) - base > p:
            raise DataError(
                f"{self.place}: the index {len(self.entries) - 1} is out of range; expected {base} to {p - 1 + base}."
            )
        self._grow(p + base)
        entries = np.append(self.entries[base:], self.n_rows)
        ordered = many_columns(p)
        to = np.arange(p + 1, dtype=np.int32)
        if ordered:
            kept = in_order_of_use(np.flatnonzero(entries > 0), entries, np.append(self.first[base:], 0))
            to = np.full(p + 1, -1, np.int32)
            to[kept] = np.arange(len(kept))
            self.folder.array("column", np.int32).add(to)
        indptr, indices = self.folder.array("indptr", np.int64), self.folder.array("indices", np.int32)
        data = None if self.ones else self.folder.array("data", self.dtype)
        indptr.add(np.zeros(1, np.int64))
        at = 0
        # Before the first column stands none.
        shifted = np.concatenate([np.full(base, -1, np.int32), to])
        for counts, columns, values in self._read():
            begins = np.concatenate([[0], np.cumsum(counts)])
            n = len(columns) + len(counts)
            given = np.empty(0, self.dtype) if data is None else values
            rows = FeatureArrays(begins, columns, given, np.empty((0, 0), self.dtype), np.empty(0), np.empty((0, 0)))
            ends, moved = begins + np.arange(len(begins)), np.empty(n, np.int32)
            numbers = np.empty(0 if data is None else n, self.dtype)
            move_columns(rows, shifted, np.empty(0), True, ends, moved, numbers, 0, len(counts))
            indptr.add(ends[1:] + at)
            indices.add(moved)
            if data is not None:
                data.add(numbers)
            at += n
        for name in self.files:
            os.unlink(self.folder.path_of(f"raw_{name}"))
        return p

    def _read(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int32], NDArray[Any]]]:
        """The rows again, some at a time: how many entries they have, and the entries."""
        read = {name: open(self.folder.path_of(f"raw_{name}"), "rb") for name in self.files}  # noqa: SIM115
        try:
            rows = max(1, int(_PIECE / max(self.n_entries / max(self.n_rows, 1), 1.0)))
            while len(counts := np.fromfile(read["counts"], np.int64, rows)):
                n = int(counts.sum())
                yield counts, np.fromfile(read["indices"], np.int32, n), np.fromfile(read["data"], self.dtype, n)
        finally:
            for one in read.values():
                one.close()

    def _grow(self, size: int) -> None:
        """Make room for columns."""
        if size > len(self.entries):
            self.entries = np.concatenate([self.entries, np.zeros(size - len(self.entries), np.int64)])
            self.first = np.concatenate([self.first, np.zeros(size - len(self.first), np.int64)])


def _add_matrix(folder: FolderWriter, X: Any) -> tuple[int, int]:
    """The rows of a matrix, dense or compressed as a problem would have them; how many, and how many columns."""
    compressed = sp.issparse(X)
    if not compressed and not isinstance(X, np.ndarray):
        X = np.asarray(X)
    if X.ndim != 2 or 0 in X.shape:
        raise DataError(f"X has shape {X.shape}; expected rows and columns of features, at least one of each.")
    n, p = (int(size) for size in X.shape)
    step = max(1, _PIECE // p)
    if not compressed:
        n_filled = sum(int(np.count_nonzero(X[k : k + step])) for k in range(0, n, step))
        if p < WIDE or n_filled >= MOSTLY_ZERO * n * p:
            _add_dense(folder, X, step)
            return n, p
    rows = RawRows(folder, "X")
    rows.dtype = np.dtype(np.float32) if X.dtype == np.float32 else np.dtype(np.float64)
    step = max(1, int(_PIECE * n / max(X.nnz, n))) if compressed else step
    for k in range(0, n, step):
        part: Any = X[k : k + step] if compressed else sp.csr_array(as_floats(np.asarray(X[k : k + step]), "X"))
        rows.add(np.diff(part.indptr), part.indices, as_floats(part.data, "X"))
    rows.arrange(0, p)
    return n, p


def _add_dense(folder: FolderWriter, X: NDArray[Any], step: int) -> None:
    n, p = X.shape
    out = folder.array("dense", np.float32 if X.dtype == np.float32 else np.float64, p + 1)
    for k in range(0, n, step):
        part = as_floats(np.asarray(X[k : k + step]), "X")
        bad = np.argwhere(~np.isfinite(part))
        if len(bad):
            row, column = (int(one) for one in bad[0])
            raise DataError(
                f"X[{k + row}, {column}] is {part[row, column]}; features must be finite, not NaN or infinity."
            )
        out.add(np.hstack([part, np.ones((len(part), 1), part.dtype)]))


def _add_sequences(folder: FolderWriter, X: Any, y: Any) -> int:
    """The rows of all sequences, and their tags; returns the number of columns."""
    if isinstance(X, str) or not isinstance(X, Sequence) or len(X) == 0:
        raise DataError(
            f"X is of type {type(X).__name__}; expected a matrix, or a list with a matrix (length, p) per sequence."
        )
    if not hasattr(y, "__len__") or len(y) != len(X):
        raise DataError("y must have the tags of each sequence of X.")
    shapes = [one.shape if hasattr(one, "shape") else np.shape(one) for one in X]
    width, tags, lengths = shapes[0][-1], _Codes(folder), folder.array("lengths", np.int64)
    for m, (shape, own) in enumerate(zip(shapes, y, strict=True)):
        if len(shape) != 2 or shape[0] == 0 or shape[1] != width:
            raise DataError(f"Sequence {m} has shape {shape}; expected a row for each position, and {width} columns.")
        if len(own) != shape[0]:
            raise DataError(f"Sequence {m} has {shape[0]} positions, but {len(own)} tags.")
    compressed = any(sp.issparse(one) for one in X)
    step = max(1, _PIECE // max(1, width * max(shape[0] for shape in shapes)))
    if compressed:
        rows = RawRows(folder, "X")
        for k in range(0, len(X), step):
            part: Any = checked_csr(sp.vstack([sp.csr_array(one) for one in X[k : k + step]], format="csr"), "X")
            rows.add(np.diff(part.indptr), part.indices, as_floats(part.data, "X"))
        rows.arrange(0, width)
    else:
        # One matrix: all are in memory as it is.
        _add_matrix(folder, np.concatenate([np.asarray(one) for one in X]))
    for own in y:
        for tag in own.tolist() if hasattr(own, "tolist") else own:
            tags.add([tag])
    tags.flush()
    lengths.add(np.array([shape[0] for shape in shapes], np.int64))
    folder.header |= {"n_rows": sum(shape[0] for shape in shapes), "n_examples": len(X)}
    tags.arrange("y", "chain", numbers=False)
    return int(width)


# --------------------------------------------------------------------------------------------------------------------
# Labels


class _Codes:
    """Labels on their way to a folder: numbers in the order in which they appear, in files of their own."""

    def __init__(self, folder: FolderWriter) -> None:
        self.folder, self.code, self.single, self.n = folder, dict[Any, int](), True, 0
        self.codes: list[int] = []
        self.counts: list[int] = []
        self.files = {name: folder.raw(f"label_{name}") for name in ("codes", "counts")}

    def add(self, labels: Sequence[Any]) -> None:
        """Add the labels of an example."""
        for label in labels:
            self.codes.append(self.code.setdefault(label, len(self.code)))
        self.single = self.single and len(labels) == 1
        self.counts.append(len(labels))

    def flush(self) -> None:
        """Write what was added."""
        self.files["codes"].write(np.array(self.codes, np.int32).data)
        self.files["counts"].write(np.array(self.counts, np.int32).data)
        self.n += len(self.counts)
        self.codes, self.counts = [], []

    def arrange(
        self, place: str, task: str | None, numbers: bool = True, label_names: Sequence[str] | None = None
    ) -> None:
        """Number the labels in their order, and write the states; text may spell numbers."""
        for one in self.files.values():
            one.close()
        if task is None:
            task = (
                "multi-label" if not self.single else "binary" if len(self._spelled(numbers)[1]) <= 2 else "multi-class"
            )
        if task != "multi-label" and not self.single:
            raise DataError(f"{place}: some lines have no label, or several; --task {task} needs one on each line.")
        self.folder.header["task"] = task
        if task == "multi-label":
            self._sets(place, label_names)
        else:
            states, labels = self._spelled(numbers)
            self.folder.header["labels"] = labels
            out = self.folder.array("labels", np.int32)
            with open(self.folder.path_of("raw_label_codes"), "rb") as stream:
                while len(codes := np.fromfile(stream, np.int32, _PIECE)):
                    out.add(states[codes])
        for name in self.files:
            os.unlink(self.folder.path_of(f"raw_label_{name}"))

    def _spelled(self, numbers: bool) -> tuple[NDArray[np.int32], list[Any]]:
        """The state of each code, and the labels, sorted."""
        tokens = list(self.code)
        spelled = list(classes_of(tokens).values()) if numbers else tokens
        kinds = {type(one) for one in spelled}
        if not (kinds <= {str} or kinds <= {int}):
            raise DataError("The labels to be packed must all be strings, or all whole numbers.")
        labels = sorted(set(spelled))
        state = {label: k for k, label in enumerate(labels)}
        return np.array([state[one] for one in spelled], np.int32), labels

    def _sets(self, place: str, label_names: Sequence[str] | None) -> None:
        names = sorted_names(self.code) if label_names is None else list(label_names)
        if not names:
            raise DataError(f"{place}: no line has a label.")
        unknown = [name for name in self.code if name not in set(names)]
        if unknown:
            raise DataError(
                f"{place}: the label {short(unknown[0])} is not among the {len(names)} known labels."
                + did_you_mean(unknown[0], names)
            )
        written = os.path.getsize(place) if os.path.isfile(place) else math.inf
        if self.n * len(names) > max(1 << 29, _MOST_TIMES * written):
            raise DataError(
                f"{place} has {self.n} examples and {len(names)} labels, which make too large a matrix of labels."
            )
        column = {name: k for k, name in enumerate(names)}
        columns = np.array([column[name] for name in self.code], np.int64)
        self.folder.header["labels"] = names
        out, step = self.folder.array("labels", np.int8, len(names)), max(1, _PIECE // len(names))
        with (
            open(self.folder.path_of("raw_label_codes"), "rb") as codes,
            open(self.folder.path_of("raw_label_counts"), "rb") as stream,
        ):
            while len(counts := np.fromfile(stream, np.int32, step)):
                Y = np.zeros((len(counts), len(names)), np.int8)
                found = columns[np.fromfile(codes, np.int32, int(counts.sum()))]
                Y[np.repeat(np.arange(len(counts)), counts), found] = 1
                out.add(Y)


def _add_targets(folder: FolderWriter, y: Any, n: int) -> None:
    """Labels of rows: one each, or zeros and ones."""
    names = getattr(y, "columns", None)
    values = np.asarray(y)
    if values.ndim not in (1, 2) or len(values) != n:
        raise DataError(
            f"y has shape {values.shape}; expected a label, or a row of zeros and ones, for each of {n} rows."
        )
    if values.ndim == 2:
        labels = [str(one) for one in names] if names is not None else list(range(values.shape[1]))
        folder.header |= {"task": "multi-label", "labels": labels}
        out = folder.array("labels", np.int8, values.shape[1])
        step = max(1, _PIECE // max(values.shape[1], 1))
        for k in range(0, n, step):
            part = values[k : k + step]
            if not ((part == 0) | (part == 1)).all():
                raise DataError(f"Y has entries other than 0 and 1 in rows {k} to {k + len(part) - 1}.")
            out.add(part)
        return
    if values.dtype.kind not in "iuU" and not (
        values.dtype == object and all(type(one) in (str, int) for one in values)
    ):
        raise DataError(f"y has dtype {values.dtype}; labels to be packed must be strings or whole numbers.")
    found, states = np.unique(values, return_inverse=True)
    folder.header |= {"task": "binary" if len(found) <= 2 else "multi-class", "labels": found.tolist()}
    folder.array("labels", np.int32).add(states)


class _Seen:
    """Numbers that were seen: runs of numbers that follow each other take no more room than one."""

    def __init__(self) -> None:
        self.begins: list[int] = []
        self.ends: list[int] = []

    def add(self, number: int) -> bool:
        """Add a number; False if it was there."""
        at = bisect_right(self.begins, number) - 1
        if at >= 0 and number < self.ends[at]:
            return False
        if at >= 0 and number == self.ends[at]:
            self.ends[at] += 1
        else:
            self.begins.insert(at + 1, number)
            self.ends.insert(at + 1, number + 1)
        return True


def _blocks(lines: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """Some at a time."""
    block = []
    for one in lines:
        block.append(one)
        if len(block) == size:
            yield block
            block = []
    if block:
        yield block


def _sentence_blocks(sentences: Iterable[tuple[Sentence, list[str]]]) -> Iterator[list[tuple[Sentence, list[str]]]]:
    """Sentences with so many positions at a time."""
    block: list[tuple[Sentence, list[str]]] = []
    n = 0
    for one in sentences:
        block.append(one)
        n += len(one[0])
        if n >= _POSITIONS:
            yield block
            block, n = [], 0
    if block:
        yield block

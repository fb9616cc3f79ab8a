"""Labelled rows in the text format of SVM-light and LIBSVM: ``0,14,15 440:0.037 587:0.085 # comment``.

Conventions
-----------
One example a line; blank lines and comments are skipped. A line that begins with a space, or with a pair, has no label.
Indices increase within a line and count from 1, or from 0 if the file says so (``zero_based="auto"``: if the index 0
occurs). The names of features are their indices as the file counts them. A query number, ``qid:3`` before the pairs, groups
lines for ranking (`LabelledRows.ranking`); anything else does without it.

The same lines are read in two ways. For a classifier a line has one label; labels that are all whole numbers (``+1``,
``-1``, ``3``, ``3.0``) are numbers, and other labels are names. In multi-label data a line has any number of labels with
commas between them, all of them names.

As in `maxmargin.formats.arff`, a fast pass over all pairs gives up on anything out of the ordinary, and a pass line by
line then defines what is accepted and names the line that is not.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from maxmargin.errors import DataError, OptionError, did_you_mean
from maxmargin.formats.atomic import atomic_write
from maxmargin.formats.compression import open_text
from maxmargin.formats.multilabel import MultiLabelData, check_label_cells
from maxmargin.sparse import checked_csr

_INTEGER = re.compile(r"[+-]?\d{1,18}", re.ASCII)
_WHOLE = re.compile(r"[+-]?\d{1,18}(\.0*)?", re.ASCII)
_INDEX = re.compile(r"\d{1,18}", re.ASCII)
# Digits can be read in one way only: a number that ends wrongly is found so in one pass.
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
# What Python takes for a space, and a line of pairs has none of.
_ODD_SPACE = re.compile(r"[\x0b\x0c\r\x1c-\x1f]")
# One mistyped index must not make a matrix (and a list of names) of millions of columns.
MAX_IMPLIED_FEATURES = 1 << 22
# Strings in an array all take the room of the longest: beyond so many bytes they are kept as objects.
_MOST_PADDED = 64 << 20
# So many lines are parsed at a time: the text of a large file is never there twice, let alone cut into pieces.
BLOCK_LINES = 4096


@dataclass(frozen=True, eq=False)
class ClassData:
    """Examples with one label each.

    Attributes
    ----------
    X : csr_array of float64 with int32 indices, or ndarray of float64, shape (n, p)
        The features.
    y : ndarray, shape (n,)
        The labels: int64 if all are whole numbers, else strings; of objects, with None, if a line has no label.
    feature_names : list of str
        The names of the p columns of `X`.
    """

    X: csr_array[np.float64] | NDArray[np.float64]
    y: NDArray[Any]
    feature_names: list[str]


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """The examples of a file, with their labels still as they are spelled.

    Attributes
    ----------
    place : str
        The file, as errors name it.
    line_numbers : list of int
        The line of each example.
    labels : list of str
        The labels as they are spelled; "" where there is none.
    X : csr_array of float64 (n, p)
        The features.
    base : int
        The index of the first column.
    queries : list of int
        The query of each line, -1 where there is none.
    """

    place: str
    line_numbers: list[int]
    labels: list[str]
    X: csr_array[np.float64]
    base: int
    queries: list[int]

    @property
    def feature_names(self) -> list[str]:
        """The columns' indices as the file counts them."""
        return [str(index) for index in range(self.base, int(self.X.shape[1]) + self.base)]

    def one_label_each(self) -> bool:
        """Whether every line has exactly one label."""
        return all(label and "," not in label for label in dict.fromkeys(self.labels))

    def multi_label(self, label_names: Sequence[str] | None = None) -> MultiLabelData:
        """The rows as multi-label data; see `read_libsvm_multilabel`.

        Parameters
        ----------
        label_names : sequence of str, optional
            The labels that there may be, in the order of the columns; by default those that occur.
        """
        Y, names = _label_matrix(self.place, self.line_numbers, self.labels, label_names)
        return MultiLabelData(self.X, Y, self.feature_names, names)

    def classes(self, known: Sequence[Any] | None = None) -> ClassData:
        """The rows for a classifier; see `read_svmlight_classes`.

        Parameters
        ----------
        known : sequence, optional
            The classes that there may be; any other label is refused with its line, but for 0, which then says that the label is
            not known.
        """
        label_of = classes_of(dict.fromkeys(self.labels), known)
        possible = None if known is None else {None, *known}
        for token, label in label_of.items():
            if "," in token or (possible is not None and label not in possible):
                line = self.line_numbers[self.labels.index(token)]
                wrong = "holds several" if "," in token else f"is not among the {len(known or ())} known labels"
                raise DataError(
                    f"{self.place}, line {line}: the label {short(token)} {wrong}.{did_you_mean(token, known or ())}"
                )
        return ClassData(self.X, label_vector([label_of[token] for token in self.labels]), self.feature_names)

    def ranking(self) -> tuple[NDArray[np.float64], NDArray[np.int64] | None]:
        """The levels of the lines, numbers, and their queries, whose lines stand together; None if no line has one."""
        levels = np.empty(len(self.labels))
        for row, token in enumerate(self.labels):
            if not _NUMBER.fullmatch(token):
                found = short(token) if token else "nothing"
                raise DataError(
                    f"{self.place}, line {self.line_numbers[row]}: {found} was found where a number, the level by which the line "
                    "is ranked, was expected."
                )
            levels[row] = float(token)
        if max(self.queries) < 0:
            return levels, None
        first: dict[int, int] = {}
        for row, query in enumerate(self.queries):
            line = self.line_numbers[row]
            if query < 0:
                raise DataError(f"{self.place}, line {line}: 'qid:NUMBER' is missing, which other lines have.")
            if query in first and query != self.queries[row - 1]:
                raise DataError(
                    f"{self.place}, line {line}: the query qid:{query} of line {first[query]} comes back; the lines of a query "
                    "must stand together."
                )
            first.setdefault(query, line)
        return levels, np.array(self.queries, np.int64)


def read_svmlight(
    path: str | os.PathLike[str], n_features: int | None = None, zero_based: bool | Literal["auto"] = "auto"
) -> LabelledRows:
    """Read a file of labelled rows, possibly compressed, and leave open what its labels mean.

    Parameters
    ----------
    path : path-like
        The file.
    n_features : int, optional
        The number of columns; by default the largest index decides.
    zero_based : bool or "auto"
        Whether the first feature has the index 0.

    Returns
    -------
    LabelledRows
        `X` is a csr_array without explicit zeros.
    """
    place = os.fspath(path)
    numbers: list[int] = []
    labels: list[str] = []
    texts: list[str] = []
    queries: list[int] = []
    for number, head, query, tail in labelled_lines(path):
        queries.append(query)
        numbers.append(number)
        labels.append(head)
        texts.append(tail)
    X, base = sparse_rows(place, numbers, texts, n_features, zero_based)
    return LabelledRows(place, numbers, labels, X, base, queries)


def read_svmlight_classes(
    path: str | os.PathLike[str],
    n_features: int | None = None,
    classes: Sequence[Any] | None = None,
    zero_based: bool | Literal["auto"] = "auto",
) -> ClassData:
    """Read a file with one label a line, binary or multi-class, possibly compressed.

    Parameters
    ----------
    path : path-like
        The file.
    n_features : int, optional
        The number of columns; by default the largest index decides.
    classes : sequence, optional
        The labels that there are; any other is refused with its line, but for 0, which then stands for a label that is
        not known, as in SVM-light.
    zero_based : bool or "auto"
        Whether the first feature has the index 0.

    Returns
    -------
    ClassData
        `X` is a csr_array without explicit zeros.
    """
    return read_svmlight(path, n_features, zero_based).classes(classes)


def read_libsvm_multilabel(
    path: str | os.PathLike[str],
    n_features: int | None = None,
    label_names: Sequence[str] | None = None,
    zero_based: bool | Literal["auto"] = "auto",
) -> MultiLabelData:
    """Read a multi-label file in LIBSVM's format, possibly compressed.

    Parameters
    ----------
    path : path-like
        The file.
    n_features : int, optional
        The number of columns; by default the largest index decides.
    label_names : sequence of str, optional
        All labels, in the order of the columns of ``Y``. By default the labels that occur, sorted (as numbers if all
        of them are integers).
    zero_based : bool or "auto"
        Whether the first feature has the index 0.

    Returns
    -------
    MultiLabelData
        `X` is a csr_array without explicit zeros.
    """
    return read_svmlight(path, n_features, zero_based).multi_label(label_names)


def write_svmlight_classes(path: str | os.PathLike[str], data: ClassData) -> None:
    """Write rows with one label each, with indices from 1 and the exact values.

    Parameters
    ----------
    path : path-like
        The file to write or to replace, in one step.
    data : ClassData
        The labels go into the file as they print and must be free of spaces, commas, colons and ``#``; None is left out.
    """
    labels = data.y.tolist()
    check_names(path, "label", [str(label) for label in dict.fromkeys(labels) if label is not None])
    write_rows(path, ["" if label is None else str(label) for label in labels], data.X)


def write_libsvm_multilabel(path: str | os.PathLike[str], data: MultiLabelData) -> None:
    """Write multi-label data in LIBSVM's format, with indices from 1 and the exact values.

    The numbers of features and labels are not part of the format: give them to the reader where the last features or
    some labels never occur.

    Parameters
    ----------
    path : path-like
        The file to write or to replace, in one step.
    data : MultiLabelData
        The names of the labels go into the file and must be free of spaces, commas, colons and ``#``.
    """
    check_names(path, "label", data.label_names)
    write_rows(path, [",".join(data.label_names[label] for label in np.flatnonzero(row)) for row in data.Y], data.X)


# --------------------------------------------------------------------------------------------------------------------
# What the readers and writers of such lines share


def example_lines(path: str | os.PathLike[str]) -> Generator[tuple[int, str]]:
    """Yield the number and the text of every line that is more than a comment, with spaces for tabs."""
    found = False
    with open_text(path) as stream:
        for number, raw in enumerate(stream, start=1):
            line = raw.partition("#")[0].rstrip()
            if line:
                found = True
                yield number, line.replace("\t", " ")
    if not found:
        raise DataError(f"{os.fspath(path)}: there are no examples in the file.")


def labelled_lines(path: str | os.PathLike[str]) -> Generator[tuple[int, str, int, str]]:
    """Yield the number of every line, its label as it is spelled, its query or -1, and its pairs."""
    place = os.fspath(path)
    for number, line in example_lines(path):
        head, _, tail = line.partition(" ")
        if ":" in head:
            head, tail = "", line
        tail, at = tail.strip(), -1
        if tail.startswith("qid:"):
            query, _, tail = tail.partition(" ")
            at = query_number(place, number, query)
        yield number, head, at, tail


def first_query(path: str | os.PathLike[str]) -> int:
    """The number of the first example's line if ``qid:`` comes after its label; 0 if not, or if this is no such text."""
    # A file that is not there is an error all the same.
    open_text(path).close()
    with suppress(DataError), closing(example_lines(path)) as lines:
        number, line = next(lines)
        return number if line.partition(" ")[2].lstrip().startswith("qid:") else 0
    return 0


def short(text: str) -> str:
    """A piece of a file, in quotes and cut where it is long, for a sentence."""
    return repr(text if len(text) <= 60 else text[:57] + "...")


def query_number(place: str, line: int, token: str) -> int:
    """The number of ``qid:NUMBER``."""
    name, _, number = token.partition(":")
    if name != "qid" or not _INDEX.fullmatch(number):
        raise DataError(f"{place}, line {line}: {short(token)} was found where 'qid:NUMBER' was expected.")
    return int(number)


def sparse_rows(
    place: str,
    line_numbers: list[int],
    texts: list[str],
    n_features: int | None,
    zero_based: bool | Literal["auto"],
) -> tuple[csr_array[np.float64], int]:
    """The rows of the texts of pairs, and the index of the first column."""
    if not (zero_based is True or zero_based is False or (isinstance(zero_based, str) and zero_based == "auto")):
        raise OptionError(f"zero_based is {zero_based!r}; expected True, False or 'auto'.")
    if n_features is not None and not (isinstance(n_features, int | np.integer) and 1 <= n_features < 2**31):
        raise OptionError(f"n_features is {n_features!r}; expected a positive whole number below 2**31.")
    blocks = [
        parse_pairs(place, line_numbers[first : first + BLOCK_LINES], texts[first : first + BLOCK_LINES])
        for first in range(0, len(texts), BLOCK_LINES)
    ]
    indices = np.concatenate([block[0] for block in blocks])
    values = np.concatenate([block[1] for block in blocks])
    counts = np.concatenate([block[2] for block in blocks])
    base = int(not bool(indices.min(initial=1) == 0) if zero_based == "auto" else not zero_based)
    n_columns = _check_range(place, line_numbers, counts, indices, base, n_features)
    kept = values != 0
    rows = np.repeat(np.arange(len(counts)), counts)[kept]
    row_ends = np.cumsum(np.bincount(rows, minlength=len(counts)))
    X = csr_array(
        (
            values[kept],
            (indices[kept] - base).astype(np.int32),
            np.concatenate([[0], row_ends]).astype(np.int32),
        ),
        shape=(len(counts), n_columns),
    )
    return X, base


def label_vector(labels: list[Any]) -> NDArray[Any]:
    """Labels as a vector of whole numbers or of strings; of objects if there are None among them, or if one is very long."""
    longest = max((len(label) for label in dict.fromkeys(labels) if isinstance(label, str)), default=0)
    if None not in labels and 4 * longest * len(labels) <= _MOST_PADDED:
        return np.array(labels)
    vector = np.empty(len(labels), object)
    vector[:] = labels
    return vector


def whole_numbers(tokens: list[str]) -> list[Any]:
    """Labels as numbers if all of them are whole numbers, else as they are."""
    spelled = classes_of(dict.fromkeys(tokens), None)
    return [spelled[token] for token in tokens]


def check_names(path: str | os.PathLike[str], noun: str, names: Sequence[str], marks: str = " ,:#") -> None:
    """Refuse names that would not be read back: empty ones, and those with one of the marks, or with another space."""
    for name in names:
        if not name or re.search(rf"[\s{marks}]", name):
            raise DataError(
                f"The {noun} {name!r} cannot be written to {os.fspath(path)}: it is empty or has one of {marks!r}."
            )


def write_rows(path: str | os.PathLike[str], heads: Sequence[str], rows: Any) -> None:
    """Write a line for each row, in one step: its head, and its pairs."""
    X = checked_csr(rows if issparse(rows) else csr_array(rows), "X")
    if not np.isfinite(X.data).all():
        raise DataError(f"The features cannot be written to {os.fspath(path)}: some are NaN or infinite.")
    with atomic_write(path) as stream:
        for i, head in enumerate(heads):
            entries = slice(int(X.indptr[i]), int(X.indptr[i + 1]))
            pairs = sorted(zip(X.indices[entries].tolist(), X.data[entries].tolist(), strict=True))
            text = " ".join(f"{index + 1}:{value!r}" for index, value in pairs)
            # A line of nothing would be skipped as blank; an explicit zero keeps the example.
            stream.write(f"{head} {text if text or head else '1:0'}".rstrip().encode() + b"\n")


# --------------------------------------------------------------------------------------------------------------------
# Pairs


Pairs = tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]


def parse_pairs(place: str, line_numbers: list[int], texts: list[str]) -> Pairs:
    """All indices, all values and the number of pairs of every line."""
    return _parse_pairs_fast(texts) or _parse_pairs_slow(place, line_numbers, texts)


def _parse_pairs_fast(texts: list[str]) -> Pairs | None:
    """Return all indices, all values and the number of pairs of every line; None if anything is out of the ordinary."""
    counts = np.array([text.count(":") for text in texts], dtype=np.int64)
    total = int(counts.sum())
    text = " ".join(texts)
    if not text.isascii() or "_" in text or " :" in text or ": " in text or _ODD_SPACE.search(text):
        return None
    # With the colons as tokens of their own, well-formed pairs are exactly: index, colon, value, index, ...
    tokens = text.replace(":", " : ").split()
    if len(tokens) != 3 * total or tokens[1::3].count(":") != total or not all(map(str.isdecimal, tokens[0::3])):
        return None
    try:
        indices = np.array(list(map(int, tokens[0::3])), dtype=np.int64)
        values = np.array(list(map(float, tokens[2::3])), dtype=np.float64)
    except (ValueError, OverflowError):
        return None
    rows = np.repeat(np.arange(len(texts)), counts)
    increasing = (np.diff(indices) > 0) | (np.diff(rows) > 0)
    if not increasing.all() or not np.isfinite(values).all():
        return None
    return indices, values, counts


def _parse_pairs_slow(place: str, line_numbers: list[int], texts: list[str]) -> Pairs:
    """Parse line by line, and raise the sentence on the first line that is wrong."""
    indices: list[int] = []
    values: list[float] = []
    counts: list[int] = []
    for number, text in zip(line_numbers, texts, strict=True):
        pairs = text.split()
        previous = -1
        for pair in pairs:
            index, value = _parse_pair(f"{place}, line {number}", pair)
            if index <= previous:
                raise DataError(
                    f"{place}, line {number}: the index {index} comes after {previous}; "
                    "indices must increase, and none may occur twice."
                )
            previous = index
            indices.append(index)
            values.append(value)
        counts.append(len(pairs))
    return np.array(indices, dtype=np.int64), np.array(values, dtype=np.float64), np.array(counts, dtype=np.int64)


def _parse_pair(place: str, pair: str) -> tuple[int, float]:
    index, colon, value = pair.partition(":")
    if not (index and colon and value):
        raise DataError(f"{place}: {short(pair)} was found where a pair 'index:value' was expected.")
    if not _INDEX.fullmatch(index):
        raise DataError(f"{place}: the index of {short(pair)} is not a nonnegative integer.")
    if not _NUMBER.fullmatch(value) or not math.isfinite(float(value)):
        raise DataError(f"{place}: the value of {short(pair)} is not a finite number.")
    return int(index), float(value)


def _check_range(
    place: str,
    line_numbers: list[int],
    counts: NDArray[np.int64],
    indices: NDArray[np.int64],
    base: int,
    n_features: int | None,
) -> int:
    """Return the number of columns, having checked every index against it."""
    limit = MAX_IMPLIED_FEATURES if n_features is None else n_features
    wrong = np.flatnonzero((indices < base) | (indices - base >= limit))
    if len(wrong):
        line = line_numbers[int(np.searchsorted(np.cumsum(counts), wrong[0], side="right"))]
        hint = "; if the file has that many features, give n_features" if n_features is None else ""
        raise DataError(
            f"{place}, line {line}: the index {indices[wrong[0]]} is out of range; "
            f"expected {base} to {limit - 1 + base}{hint}."
        )
    if n_features is not None:
        return n_features
    if not len(indices):
        raise DataError(f"{place}: no line has a feature; give n_features if this is meant.")
    return int(indices.max()) + 1 - base


# --------------------------------------------------------------------------------------------------------------------
# Labels


def classes_of(tokens: Iterable[str], known: Sequence[Any] | None = None) -> dict[str, Any]:
    """What each spelling stands for: a known label, else a whole number or a name; None for no label."""
    names = {} if known is None else {str(label): label for label in known}
    if known is None:
        numeric = all(_WHOLE.fullmatch(token) for token in tokens if token)
    else:
        numeric = not any(isinstance(label, str) for label in known)
    found: dict[str, Any] = {}
    for token in tokens:
        label: Any = names.get(token, token)
        if label == token and numeric and _WHOLE.fullmatch(token):
            label = int(token.partition(".")[0])
        unknown = known is not None and label == 0 and label not in known
        found[token] = None if unknown or token == "" else label
    return found


def sorted_names(found: Iterable[str]) -> list[str]:
    """Names of labels in the order of their columns: as numbers if all are integers."""
    if all(_INTEGER.fullmatch(label) for label in found):
        return sorted(found, key=lambda label: (int(label), label))
    return sorted(found)


def _label_matrix(
    place: str, line_numbers: list[int], tokens: list[str], label_names: Sequence[str] | None
) -> tuple[NDArray[np.int8], list[str]]:
    labels = [token.split(",") if token else [] for token in tokens]
    if label_names is not None:
        names = list(label_names)
    else:
        names = sorted_names({label for line in labels for label in line})
        if not names:
            raise DataError(f"{place}: no line has a label; give label_names if this is meant.")
    check_label_cells(place, len(labels), len(names))
    column_of = {name: column for column, name in enumerate(names)}
    Y = np.zeros((len(labels), len(names)), dtype=np.int8)
    for row, (number, line) in enumerate(zip(line_numbers, labels, strict=True)):
        for label in line:
            if not label:
                raise DataError(f"{place}, line {number}: a label is empty in {short(tokens[row])}.")
            if label not in column_of:
                raise DataError(
                    f"{place}, line {number}: the label {short(label)} is not among the {len(names)} known labels."
                    + did_you_mean(label, names)
                )
            if Y[row, column_of[label]]:
                raise DataError(f"{place}, line {number}: the label {short(label)} occurs twice.")
            Y[row, column_of[label]] = 1
    return Y, names

"""Multi-label data in LIBSVM's text format: ``0,14,15 440:0.037 587:0.085 # comment``.

Conventions
-----------
One example a line; blank lines and comments are skipped. A line that begins with a space, or with a pair, has no label.
Indices increase within a line and count from 1, or from 0 if the file says so (``zero_based="auto"``: if the index 0
occurs). The names of features are their indices as the file counts them.

As in `maxmargin.formats.arff`, a fast pass over all pairs gives up on anything out of the ordinary, and a pass line by
line then defines what is accepted and names the line that is not.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from maxmargin.errors import DataError, OptionError
from maxmargin.formats.atomic import atomic_write
from maxmargin.formats.compression import open_text
from maxmargin.formats.multilabel import MultiLabelData

_INTEGER = re.compile(r"[+-]?\d{1,18}", re.ASCII)
_INDEX = re.compile(r"\d{1,18}", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
# One mistyped index must not make a matrix (and a list of names) of billions of columns.
_MAX_IMPLIED_FEATURES = 1 << 24


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
    place = os.fspath(path)
    if not (zero_based is True or zero_based is False or zero_based == "auto"):
        raise OptionError(f"zero_based is {zero_based!r}; expected True, False or 'auto'.")
    if n_features is not None and not 1 <= n_features < 2**31:
        raise OptionError(f"n_features is {n_features}; expected a positive number below 2**31.")
    line_numbers, label_tokens, pair_texts = _split_lines(path)
    parsed = _parse_pairs_fast(pair_texts) or _parse_pairs_slow(place, line_numbers, pair_texts)
    indices, values, counts = parsed
    base = int(not bool(indices.min(initial=1) == 0) if zero_based == "auto" else not zero_based)
    n_columns = _check_range(place, line_numbers, counts, indices, base, n_features)
    Y, names = _label_matrix(place, line_numbers, label_tokens, label_names)
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
    return MultiLabelData(X, Y, [str(index) for index in range(base, n_columns + base)], names)


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
    for name in data.label_names:
        if not name or re.search(r"[\s,:#]", name):
            raise DataError(
                f"The label {name!r} cannot be written to {os.fspath(path)}: it is empty or has one of ' ,:#'."
            )
    X = csr_array(data.X)
    if not np.isfinite(X.data).all():
        raise DataError(f"The features cannot be written to {os.fspath(path)}: some are NaN or infinite.")
    with atomic_write(path) as stream:
        for i in range(X.shape[0]):
            labels = ",".join(data.label_names[label] for label in np.flatnonzero(data.Y[i]))
            entries = slice(int(X.indptr[i]), int(X.indptr[i + 1]))
            pairs = sorted(zip(X.indices[entries].tolist(), X.data[entries].tolist(), strict=True))
            text = " ".join(f"{index + 1}:{value!r}" for index, value in pairs)
            # A line of nothing would be skipped as blank; an explicit zero keeps the example.
            stream.write(f"{labels} {text if text or labels else '1:0'}".rstrip().encode() + b"\n")


def _split_lines(path: str | os.PathLike[str]) -> tuple[list[int], list[str], list[str]]:
    """Return the line number, the text of the labels and the text of the pairs of every example."""
    numbers: list[int] = []
    labels: list[str] = []
    pairs: list[str] = []
    with open_text(path) as stream:
        for number, raw in enumerate(stream, start=1):
            line = raw.partition("#")[0].rstrip()
            if not line:
                continue
            head, _, tail = line.replace("\t", " ").partition(" ")
            if ":" in head:
                head, tail = "", line
            numbers.append(number)
            labels.append(head)
            pairs.append(tail.strip())
    if not numbers:
        raise DataError(f"{os.fspath(path)}: there are no examples in the file.")
    return numbers, labels, pairs


_Pairs = tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]


def _parse_pairs_fast(texts: list[str]) -> _Pairs | None:
    """Return all indices, all values and the number of pairs of every line; None if anything is out of the ordinary."""
    counts = np.array([text.count(":") for text in texts], dtype=np.int64)
    total = int(counts.sum())
    text = " ".join(texts)
    if not text.isascii() or "_" in text or " :" in text or ": " in text:
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


def _parse_pairs_slow(place: str, line_numbers: list[int], texts: list[str]) -> _Pairs:
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
        raise DataError(f"{place}: {pair!r} was found where a pair 'index:value' was expected.")
    if not _INDEX.fullmatch(index):
        raise DataError(f"{place}: the index of {pair!r} is not a nonnegative integer.")
    if not _NUMBER.fullmatch(value) or not math.isfinite(float(value)):
        raise DataError(f"{place}: the value of {pair!r} is not a finite number.")
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
    limit = _MAX_IMPLIED_FEATURES if n_features is None else n_features
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


def _label_matrix(
    place: str, line_numbers: list[int], tokens: list[str], label_names: Sequence[str] | None
) -> tuple[NDArray[np.int8], list[str]]:
    labels = [token.split(",") if token else [] for token in tokens]
    if label_names is not None:
        names = list(label_names)
    else:
        found = {label for line in labels for label in line}
        if all(_INTEGER.fullmatch(label) for label in found):
            names = sorted(found, key=lambda label: (int(label), label))
        else:
            names = sorted(found)
        if not names:
            raise DataError(f"{place}: no line has a label; give label_names if this is meant.")
    column_of = {name: column for column, name in enumerate(names)}
    Y = np.zeros((len(labels), len(names)), dtype=np.int8)
    for row, (number, line) in enumerate(zip(line_numbers, labels, strict=True)):
        for label in line:
            if not label:
                raise DataError(f"{place}, line {number}: a label is empty in {tokens[row]!r}.")
            if label not in column_of:
                raise DataError(
                    f"{place}, line {number}: the label {label!r} is not among the {len(names)} known labels."
                )
            if Y[row, column_of[label]]:
                raise DataError(f"{place}, line {number}: the label {label!r} occurs twice.")
            Y[row, column_of[label]] = 1
    return Y, names

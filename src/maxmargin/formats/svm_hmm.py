"""Tagged sequences in the text format of SVM-hmm: ``TAG qid:EXNUM FEAT:VAL FEAT:VAL ... # comment``.

Conventions
-----------
One position a line; blank lines and comments are skipped. Lines that follow each other with the same number are one
sequence, and a number that comes back later is an error. Features count from 1 and increase within a line. Tags are
numbers if all of them are whole numbers, as in SVM-hmm's own files, and names otherwise.

The pairs are parsed by `maxmargin.formats.svmlight`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from maxmargin.errors import DataError
from maxmargin.formats.svmlight import (
    check_names,
    example_lines,
    label_vector,
    query_number,
    short,
    sparse_rows,
    whole_numbers,
    write_rows,
)


@dataclass(frozen=True, eq=False)
class SequenceData:
    """Sequences of positions with a tag each, one sequence after another.

    Attributes
    ----------
    X : csr_array of float64 with int32 indices, or ndarray of float64, shape (N, p)
        The features of all N positions.
    lengths : ndarray of int64, shape (S,)
        The number of positions of each sequence; at least one.
    tags : ndarray, shape (N,)
        The tags of all positions: int64 if all are whole numbers, else strings.
    qids : ndarray of int64, shape (S,)
        The number of each sequence.
    """

    X: csr_array[np.float64] | NDArray[np.float64]
    lengths: NDArray[np.int64]
    tags: NDArray[Any]
    qids: NDArray[np.int64]

    def sequences(self) -> list[Any]:
        """A matrix (length, p) a sequence, for `ChainSVM`; the numbers are not copied."""
        ends = np.cumsum(self.lengths).tolist()
        starts = [0, *ends[:-1]]
        X = self.X
        if not issparse(X):
            return [X[a:b] for a, b in zip(starts, ends, strict=True)]
        return [
            csr_array(
                (
                    X.data[X.indptr[a] : X.indptr[b]],
                    X.indices[X.indptr[a] : X.indptr[b]],
                    X.indptr[a : b + 1] - X.indptr[a],
                ),
                shape=(b - a, X.shape[1]),
            )
            for a, b in zip(starts, ends, strict=True)
        ]

    def tag_lists(self) -> list[list[Any]]:
        """The tags of each sequence."""
        return [part.tolist() for part in np.split(self.tags, np.cumsum(self.lengths)[:-1])]


def read_svm_hmm(path: str | os.PathLike[str], n_features: int | None = None) -> SequenceData:
    """Read a file of tagged sequences, possibly compressed.

    Parameters
    ----------
    path : path-like
        The file.
    n_features : int, optional
        The number of columns; by default the largest index decides.

    Returns
    -------
    SequenceData
        `X` is a csr_array without explicit zeros.
    """
    place = os.fspath(path)
    numbers: list[int] = []
    tags: list[str] = []
    texts: list[str] = []
    first_line: dict[int, int] = {}
    starts: list[int] = []
    last: str | None = None
    for number, tag, query, text in tagged_lines(path):
        if query != last:
            qid, last = query_number(place, number, query), query
            # The same number may be spelled differently.
            if not starts or qid != next(reversed(first_line)):
                if qid in first_line:
                    raise DataError(
                        f"{place}, line {number}: the sequence qid:{qid} of line {first_line[qid]} comes back; "
                        "its lines must follow each other."
                    )
                first_line[qid] = number
                starts.append(len(numbers))
        numbers.append(number)
        tags.append(tag)
        texts.append(text)
    X, _ = sparse_rows(place, numbers, texts, n_features, zero_based=False)
    lengths = np.array([*starts[1:], len(numbers)], dtype=np.int64) - np.array(starts, dtype=np.int64)
    return SequenceData(X, lengths, label_vector(whole_numbers(tags)), np.array(list(first_line), dtype=np.int64))


def tagged_lines(path: str | os.PathLike[str]) -> Iterator[tuple[int, str, str, str]]:
    """The number of every line, its tag, ``qid:NUMBER`` as it is spelled, and its pairs."""
    for number, line in example_lines(path):
        tag, query, text = (*line.split(None, 2), "", "")[:3]
        if ":" in tag:
            raise DataError(f"{os.fspath(path)}, line {number}: {short(tag)} was found where a tag was expected.")
        yield number, tag, query, text


def write_svm_hmm(path: str | os.PathLike[str], data: SequenceData) -> None:
    """Write tagged sequences, with the exact values.

    Parameters
    ----------
    path : path-like
        The file to write or to replace, in one step.
    data : SequenceData
        The tags go into the file as they print and must be free of spaces, colons and ``#``.
    """
    tags = [str(tag) for tag in data.tags.tolist()]
    check_names(path, "tag", list(dict.fromkeys(tags)), " :#")
    qids = np.repeat(data.qids, data.lengths).tolist()
    write_rows(path, [f"{tag} qid:{qid}" for tag, qid in zip(tags, qids, strict=True)], data.X)

"""Precision, recall and F1 of chunks in tagged sentences, by the rules of CoNLL's program conlleval.

Conventions
-----------
Tags are ``B-TYPE``, ``I-TYPE`` and ``O``, or ``B`` and ``I`` without a type. In a sentence, with ``O`` before its first
and after its last position, a chunk of a type

    begins at t  if  tag_t is B,  or tag_t is I and (tag_{t-1} is O or type_{t-1} != type_t)
    ends at t    if  it has begun and (tag_{t+1} is B or O, or type_{t+1} != type_t)

so that an ``I`` after an ``O``, or after another type, begins a chunk as a ``B`` does. A predicted chunk is right if a true
one has the same beginning, end and type. With n_right of n_predicted and n_true chunks

    precision = n_right / n_predicted,   recall = n_right / n_true,   F1 = 2 precision recall / (precision + recall)

and 0 where there is nothing to divide by.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.errors import DataError

_TAG = re.compile(r"O|[BI](-.*)?", re.DOTALL)
_O, _I = 0, 2


@dataclass(frozen=True)
class ChunkScore:
    """How many chunks there are, were predicted, and are right.

    Attributes
    ----------
    n_true, n_predicted, n_right : int
        Numbers of chunks.
    """

    n_true: int
    n_predicted: int
    n_right: int

    @property
    def precision(self) -> float:
        """Share of the predicted chunks that are right."""
        return self.n_right / self.n_predicted if self.n_predicted else 0.0

    @property
    def recall(self) -> float:
        """Share of the true chunks that were predicted."""
        return self.n_right / self.n_true if self.n_true else 0.0

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall."""
        return 2 * self.n_right / (self.n_predicted + self.n_true) if self.n_right else 0.0

    def __str__(self) -> str:
        return f"precision: {100 * self.precision:6.2f}%; recall: {100 * self.recall:6.2f}%; FB1: {100 * self.f1:6.2f}"


@dataclass(frozen=True)
class ChunkScores:
    """Scores of chunks; prints as conlleval does.

    Attributes
    ----------
    overall : ChunkScore
        Of chunks of all types.
    by_type : dict of str to ChunkScore
        Of each type.
    n_tokens : int
        Number of tags.
    accuracy : float
        Share of the tags that are right.
    """

    overall: ChunkScore
    by_type: dict[str, ChunkScore]
    n_tokens: int
    accuracy: float

    def __str__(self) -> str:
        whole = self.overall
        lines = [
            f"processed {self.n_tokens} tokens with {whole.n_true} phrases; "
            f"found: {whole.n_predicted} phrases; correct: {whole.n_right}.",
            f"accuracy: {100 * self.accuracy:6.2f}%; {whole}",
        ]
        lines += [f"{kind:>17}: {score}  {score.n_predicted}" for kind, score in self.by_type.items()]
        return "\n".join(lines)


def are_chunk_tags(tags: Iterable[Any]) -> bool:
    """Whether these are tags of chunks: B, I and O, at least one of them B or I."""
    found = set(tags)
    return found > {"O"} and all(isinstance(tag, str) and _TAG.fullmatch(tag) for tag in found)


def chunk_scores(truth: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> ChunkScores:
    """Compare predicted chunks with the true ones.

    Parameters
    ----------
    truth, predicted : lists of sequences of str
        The tags of each sentence.

    Returns
    -------
    ChunkScores
    """
    lengths = [len(row) for row in truth]
    found = [len(row) for row in predicted]
    if lengths != found:
        if len(lengths) != len(found):
            raise DataError(f"There are {len(lengths)} sentences, but predictions for {len(found)}.")
        m = next(m for m, (one, other) in enumerate(zip(lengths, found, strict=True)) if one != other)
        raise DataError(f"Sentence {m} has {lengths[m]} tags, but {found[m]} predicted ones.")
    tags = [*chain.from_iterable(truth), *chain.from_iterable(predicted)]
    distinct = list(dict.fromkeys(tags))
    _check_tags(distinct, tags, lengths)
    types = sorted({tag[2:] for tag in distinct if tag != "O"})
    number = {tag: k for k, tag in enumerate(distinct)}
    letters = np.array(["OBI".index(tag[0]) for tag in distinct], dtype=np.int64)
    kinds = np.array([-1 if tag == "O" else types.index(tag[2:]) for tag in distinct], dtype=np.int64)
    true_tags, guesses = np.array([number[tag] for tag in tags], dtype=np.int64).reshape(2, -1)
    firsts = np.cumsum([0, *lengths])[:-1]
    is_first = np.zeros(len(true_tags), bool)
    is_first[firsts[firsts < len(is_first)]] = True
    begins, ends, kind = _chunks(letters[true_tags], kinds[true_tags], is_first)
    other_begins, other_ends, other_kind = _chunks(letters[guesses], kinds[guesses], is_first)
    _, one, other = np.intersect1d(begins, other_begins, assume_unique=True, return_indices=True)
    right = one[(ends[one] == other_ends[other]) & (kind[one] == other_kind[other])]
    counts = [np.bincount(of, minlength=len(types)).tolist() for of in (kind, other_kind, kind[right])]
    return ChunkScores(
        ChunkScore(len(begins), len(other_begins), len(right)),
        {name: ChunkScore(*of_type) for name, *of_type in zip(types, *counts, strict=True)},
        len(true_tags),
        float((true_tags == guesses).mean()) if len(true_tags) else 0.0,
    )


def _check_tags(distinct: list[Any], tags: list[Any], lengths: list[int]) -> None:
    for tag in distinct:
        if not isinstance(tag, str) or not _TAG.fullmatch(tag):
            where, at = tags.index(tag), np.cumsum(lengths)
            position = where % int(at[-1])
            m = int(np.searchsorted(at, position, side="right"))
            whose = "The truth" if where < at[-1] else "The prediction"
            raise DataError(
                f"{whose} of sentence {m} is {tag!r} at position {position - int(at[m]) + lengths[m]}; "
                "expected O, B or I, the latter two with -TYPE if there are types."
            )


def _chunks(
    letters: NDArray[np.int64], kinds: NDArray[np.int64], is_first: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The first and the last position and the type of every chunk, in order."""
    goes_on = (letters == _I) & ~is_first
    # An O has a type of its own, so that what follows it is of another type.
    goes_on[1:] &= kinds[1:] == kinds[:-1]
    inside = letters != _O
    begins = np.flatnonzero(inside & ~goes_on)
    ends = np.flatnonzero(inside & ~np.append(goes_on[1:], False))
    return begins, ends, kinds[begins]

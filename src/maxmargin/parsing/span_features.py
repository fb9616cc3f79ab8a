"""Features of derivations: one weight a rule, and weights of (symbol, property) of spans of two words and more."""

from __future__ import annotations

from typing import Any

import numpy as np

from maxmargin.jit import inner, kernel
from maxmargin.parsing.chart import (
    D_BEGIN,
    D_END,
    D_RULE,
    D_SPLIT,
    D_SYMBOL,
    FIRST,
    LAST,
    LENGTH,
    N_BUCKETS,
    N_CLASSES,
    SPLIT,
)


@inner
def write_features(
    row: int, rows: Any, first: int, token: Any, base: Any, word_class: Any, bucket: Any, out: Any
) -> int:
    """The weights that a row of a derivation uses, into out; how many there are."""
    out[0], n = rows[row, D_RULE], 1
    if rows[row, D_SPLIT] < 0:
        return n
    i, j, a = rows[row, D_BEGIN], rows[row, D_END], rows[row, D_SYMBOL]
    if base[FIRST] >= 0:
        out[n] = base[FIRST] + a * base[N_CLASSES] + word_class[token[first + i]]
        n += 1
    if base[LAST] >= 0:
        out[n] = base[LAST] + a * base[N_CLASSES] + word_class[token[first + j - 1]]
        n += 1
    if base[LENGTH] >= 0:
        out[n] = base[LENGTH] + a * base[N_BUCKETS] + bucket[j - i]
        n += 1
    if base[SPLIT] >= 0:
        out[n] = base[SPLIT] + a * base[N_BUCKETS] + bucket[j - rows[row, D_SPLIT]]
        n += 1
    return n


@kernel
def list_features(features: Any, start: Any, rows: Any, firsts: Any, token: Any, indices: Any) -> None:
    """The weights that derivations use, one after the other."""
    base, word_class, bucket = features.base, features.word_class, features.bucket
    own, at = np.empty(5, np.int64), 0
    for m in range(len(start) - 1):
        for row in range(start[m], start[m + 1]):
            for q in range(write_features(row, rows, firsts[m], token, base, word_class, bucket, own)):
                indices[at] = own[q]
                at += 1


@kernel
def add_features(features: Any, start: Any, rows: Any, firsts: Any, token: Any, times: Any, out: Any) -> None:
    """Add times[m] phi of the m-th derivation to out."""
    base, word_class, bucket = features.base, features.word_class, features.bucket
    own = np.empty(5, np.int64)
    for m in range(len(start) - 1):
        if times[m] != 0.0:
            for row in range(start[m], start[m + 1]):
                for q in range(write_features(row, rows, firsts[m], token, base, word_class, bucket, own)):
                    out[own[q]] += times[m]


@kernel
def derivation_scores(features: Any, start: Any, rows: Any, firsts: Any, token: Any, w: Any, out: Any) -> None:
    """Inner products w . phi of derivations."""
    base, word_class, bucket = features.base, features.word_class, features.bucket
    own = np.empty(5, np.int64)
    for m in range(len(start) - 1):
        total = 0.0
        for row in range(start[m], start[m + 1]):
            for q in range(write_features(row, rows, firsts[m], token, base, word_class, bucket, own)):
                total += w[own[q]]
        out[m] = total

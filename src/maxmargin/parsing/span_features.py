"""Features of derivations: one weight a rule, and weights of (symbol, property) of spans of two words and more."""

from __future__ import annotations

from typing import Any

import numpy as np

from maxmargin.jit import inner, kernel


@inner
def write_features(features: Any, rows: Any, row: int, token: Any, first: int, out: Any) -> int:
    """The weights that a row of a derivation uses, into out; how many there are."""
    out[0], n = rows[row].rule, 1
    if rows[row].split < 0:
        return n
    i, j, a = rows[row].begin, rows[row].end, rows[row].symbol
    if features.first >= 0:
        out[n] = features.first + a * features.n_classes + features.word_class[token[first + i]]
        n += 1
    if features.last >= 0:
        out[n] = features.last + a * features.n_classes + features.word_class[token[first + j - 1]]
        n += 1
    if features.length >= 0:
        out[n] = features.length + a * features.n_buckets + features.bucket[j - i]
        n += 1
    if features.split >= 0:
        out[n] = features.split + a * features.n_buckets + features.bucket[j - rows[row].split]
        n += 1
    return n


@kernel
def list_features(features: Any, start: Any, rows: Any, firsts: Any, token: Any, indices: Any) -> None:
    """The weights that derivations use, one after the other."""
    own, at = np.empty(5, np.int64), 0
    for m in range(len(start) - 1):
        for row in range(start[m], start[m + 1]):
            for q in range(write_features(features, rows, row, token, firsts[m], own)):
                indices[at] = own[q]
                at += 1


@kernel
def add_features(features: Any, start: Any, rows: Any, firsts: Any, token: Any, times: Any, out: Any) -> None:
    """Add times[m] phi of the m-th derivation to out."""
    own = np.empty(5, np.int64)
    for m in range(len(start) - 1):
        if times[m] != 0.0:
            for row in range(start[m], start[m + 1]):
                for q in range(write_features(features, rows, row, token, firsts[m], own)):
                    out[own[q]] += times[m]


@kernel
def derivation_scores(features: Any, start: Any, rows: Any, firsts: Any, token: Any, w: Any, out: Any) -> None:
    """Inner products w . phi of derivations."""
    own = np.empty(5, np.int64)
    for m in range(len(start) - 1):
        total = 0.0
        for row in range(start[m], start[m + 1]):
            for q in range(write_features(features, rows, row, token, firsts[m], own)):
                total += w[own[q]]
        out[m] = total

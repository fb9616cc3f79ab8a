"""The best derivation read off a chart, from the root down.

It is the one that k_best.py finds with k = 1: a node looks through its rules and splits in the same order, and takes the first of
the best ones. That is all that most parsing asks for, and much less to compile.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maxmargin.jit import inner
from maxmargin.parsing.chart import bottom_brackets, bottom_score, chain_brackets, chain_score, span_of
from maxmargin.parsing.grammar import short_record

#: A top that is yet to be read.
WAITING = short_record("begin", "end", "symbol")


@inner
def read_one(task: Any, m: int, room: Any, chart: Any, stack: Any, out: Any, e: int) -> None:
    """Write the best derivation of sentence m to `out`, of which it is the e-th; nothing if there is none."""
    rules, sentences, slot, rows = task.rules, task.sentences, room.slot, out.rows
    n, at, depth = sentences.start[m + 1] - sentences.start[m], out.first[e], -1
    wrong, best = sentences.gold_start[m + 1] - sentences.gold_start[m], -np.inf
    for r in rules.roots:
        if slot[n, r] >= 0 and chart[slot[n, r]] > best:
            best, depth = chart[slot[n, r]], 0
            stack[0].begin, stack[0].end, stack[0].symbol = 0, n, r
    if depth < 0:
        return
    while depth >= 0:
        # The types that charts have, so that what both call is compiled once.
        i, j, a = np.int64(stack[depth].begin), np.int64(stack[depth].end), stack[depth].symbol
        depth -= 1
        span, c = span_of(sentences, m, i, j), a
        r = _best_chain(task, m, slot, chart, a, span)
        if r >= 0:
            c, rule = rules.by_top[r].symbol, rules.by_top[r].rule
            wrong += chain_brackets(task, rule, c, span)
            rows[at].begin, rows[at].end, rows[at].symbol, rows[at].rule, rows[at].split = i, j, a, rule, -1
            at += 1
        r, split = _best_bottom(task, m, slot, chart, c, span)
        if split < 0:
            rule = rules.by_token[r].rule
        else:
            rule = rules.by_parent[r].rule
            wrong += bottom_brackets(task, rules.label[c], span[2], span[3])
            stack[depth + 1].begin, stack[depth + 1].end, stack[depth + 1].symbol = split, j, rules.by_parent[r].right
            stack[depth + 2].begin, stack[depth + 2].end, stack[depth + 2].symbol = i, split, rules.by_parent[r].left
            depth += 2
        rows[at].begin, rows[at].end, rows[at].symbol, rows[at].rule, rows[at].split = i, j, c, rule, split
        at += 1
    out.values[e, 0], out.wrong[e, 0], out.sizes[e] = best, wrong, at - out.first[e]


@inner
def _best_chain(task: Any, m: int, slot: Any, chart: Any, a: int, span: Any) -> int:
    """The place in `by_top` of the chain below the top of a, -1 for none."""
    i, j, _, _ = span
    start, by_top = task.rules.start, task.rules.by_top
    found, best = -1, chart[slot[j, a] + j + i]
    for r in range(start[a].top, start[a + 1].top):
        c = by_top[r].symbol
        if slot[j, c] >= 0:
            x = chart[slot[j, c] + j + i] + chain_score(task, m, by_top[r].rule, c, span)
            if x > best:
                found, best = r, x
    return found


@inner
def _best_bottom(task: Any, m: int, slot: Any, chart: Any, a: int, span: Any) -> tuple[int, int]:
    """The place of the rule of a bottom in `by_token`, and -1; or that in `by_parent`, and the split."""
    i, j, _, _ = span
    rules, w, found, at = task.rules, task.w, 0, -1
    if j - i == 1:
        word = task.sentences.token[task.sentences.start[m] + i]
        for r in range(rules.token_start[word], rules.token_start[word + 1]):
            if rules.by_token[r].symbol == a:
                found = r
        return found, at
    start, by_parent, best, more = rules.start, rules.by_parent, -np.inf, bottom_score(task, m, a, span)
    split_at, n_buckets, bucket = task.features.split, task.features.n_buckets, task.features.bucket
    for r in range(start[a].parent, start[a + 1].parent):
        b, right, weight = by_parent[r].left, slot[j, by_parent[r].right], w[by_parent[r].rule]
        if right < 0:
            continue
        for split in range(i + 1, j):
            if chart[right + split] == -np.inf:
                continue
            left = slot[split, b]
            if left >= 0:
                y = chart[right + split] + weight
                if split_at >= 0:
                    y += w[split_at + a * n_buckets + bucket[j - split]]
                x = (chart[left + i] + y) + more
                if x > best:
                    best, found, at = x, r, split
    return found, at

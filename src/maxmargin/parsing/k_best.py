"""Derivations read off a chart, best first.

L. Huang and D. Chiang, Better k-best Parsing, International Workshop on Parsing Technologies 2005, algorithm 3. No back pointers
are kept: a node, which is a top or a bottom of one span, looks through its rules and splits only when a derivation goes through it.
Its k best edges wait in a list; when the best one leaves, it comes back with the next best derivation of its right part, or of its
left part if the right one is still the best, so that each combination comes once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maxmargin.jit import inner
from maxmargin.parsing.chart import (
    D_BEGIN,
    D_END,
    D_RULE,
    D_SPLIT,
    D_SYMBOL,
    LEFT,
    N_BUCKETS,
    NUMBER,
    OTHER,
    PARENT,
    RULE,
    SPLIT,
    SYMBOL,
    TOP,
    bottom_brackets,
    bottom_score,
    chain_brackets,
    chain_score,
    gold_of,
)

# `nodes`: the span, the symbol, the kind; derivations found, first of the candidates, the part to look at next, exhausted.
N_BEGIN, N_END, N_SYMBOL, N_KIND, N_FOUND, N_HEAD, N_PART, N_DONE = range(8)
IS_BOTTOM, IS_TOP, IS_ROOT = range(3)


# `candidates`: rule (of a top: -1 for none; of the root: the symbol), split, ranks of both parts, the next of the list.
C_RULE, C_SPLIT, C_LEFT, C_RIGHT, C_NEXT = range(5)


@inner
def next_best(
    goal: int, rank: int, k: int, n: int, first: int, token: Any, w: Any, start: Any, by_parent: Any, by_top: Any,
    token_start: Any, by_token: Any, roots: Any, base: Any, word_class: Any, bucket: Any, label: Any, chain_start: Any,
    chain_label: Any, gold: Any, g0: int, g1: int, unit: float, slot: Any, chart: Any, keys: Any, held: Any, nodes: Any,
    found: Any, candidates: Any, value: Any, stack: Any, count: Any,
) -> None:  # fmt: skip
    """Find the derivations of a node up to the rank, or all of them if there are fewer."""
    depth = len(stack) // 2
    floor = depth
    stack[depth, 0], stack[depth, 1] = goal, rank
    while depth >= floor:
        v = stack[depth, 0]
        if nodes[v, N_FOUND] > stack[depth, 1] or nodes[v, N_DONE] == 1:
            depth -= 1
            continue
        if nodes[v, N_HEAD] == -2:
            open_node(
                v, k, n, first, token, w, start, by_parent, by_top, token_start, by_token, roots, base, word_class, bucket,
                label, chain_start, chain_label, gold, g0, g1, unit, slot, chart, nodes, candidates, value, count,
            )  # fmt: skip
        if nodes[v, N_PART] > 0:
            # The last one that left comes back with a part of the next rank.
            e, part = found[v, nodes[v, N_FOUND] - 1], nodes[v, N_PART]
            after = C_LEFT if part == C_RIGHT else 0
            u = -1
            if part == C_RIGHT or candidates[e, C_RIGHT] == 0:
                u = part_of(v, e, part, by_parent, by_top, slot, keys, held, nodes, candidates, count)
            if u < 0:
                nodes[v, N_PART] = after
                continue
            wanted = candidates[e, part] + 1
            if nodes[u, N_FOUND] <= wanted and nodes[u, N_DONE] == 0:
                depth += 1
                stack[depth, 0], stack[depth, 1] = u, wanted
                continue
            nodes[v, N_PART] = after
            if nodes[u, N_FOUND] > wanted:
                f = add_candidate(v, candidates[e, C_RULE], candidates[e, C_SPLIT], nodes, candidates, count)
                candidates[f, C_LEFT], candidates[f, C_RIGHT] = candidates[e, C_LEFT], candidates[e, C_RIGHT]
                candidates[f, part] = wanted
                value[f] = value[e] + (value[found[u, wanted]] - value[found[u, wanted - 1]])
            continue
        e, before, at, earlier = nodes[v, N_HEAD], -1, nodes[v, N_HEAD], -1
        while at >= 0:
            if value[at] > value[e]:
                e, before = at, earlier
            earlier, at = at, candidates[at, C_NEXT]
        if e < 0:
            nodes[v, N_DONE] = 1
            continue
        if before < 0:
            nodes[v, N_HEAD] = candidates[e, C_NEXT]
        else:
            candidates[before, C_NEXT] = candidates[e, C_NEXT]
        found[v, nodes[v, N_FOUND]] = e
        nodes[v, N_FOUND] += 1
        nodes[v, N_PART] = C_RIGHT


@inner
def add_candidate(v: int, rule: int, split: int, nodes: Any, candidates: Any, count: Any) -> int:
    """One more candidate of a node, with the best of its parts."""
    f = count[1]
    count[1] += 1
    candidates[f, C_RULE], candidates[f, C_SPLIT], candidates[f, C_LEFT], candidates[f, C_RIGHT] = rule, split, 0, 0
    candidates[f, C_NEXT], nodes[v, N_HEAD] = nodes[v, N_HEAD], f
    return int(f)


@inner
def offer(
    x: float, rule: int, split: int, v: int, k: int, least: float, nodes: Any, candidates: Any, value: Any, count: Any, first: int
) -> float:  # fmt: skip
    """Take an edge among the node's k best, which are all candidates from `first` on; returns what the next must exceed."""
    if count[1] - first < k:
        f = add_candidate(v, rule, split, nodes, candidates, count)
        value[f] = x
        if count[1] - first < k:
            return least
    else:
        for f in range(first, first + k):
            if value[f] == least:
                value[f], candidates[f, C_RULE], candidates[f, C_SPLIT] = x, rule, split
                break
    least = value[first]
    for f in range(first + 1, first + k):
        least = min(least, value[f])
    return least


@inner
def open_node(
    v: int, k: int, n: int, first: int, token: Any, w: Any, start: Any, by_parent: Any, by_top: Any, token_start: Any,
    by_token: Any, roots: Any, base: Any, word_class: Any, bucket: Any, label: Any, chain_start: Any, chain_label: Any,
    gold: Any, g0: int, g1: int, unit: float, slot: Any, chart: Any, nodes: Any, candidates: Any, value: Any, count: Any,
) -> None:  # fmt: skip
    """List the k best edges of a node, with the best of their parts."""
    i, j, a, kind = nodes[v, N_BEGIN], nodes[v, N_END], nodes[v, N_SYMBOL], nodes[v, N_KIND]
    nodes[v, N_HEAD] = -1
    least, f0 = -np.inf, count[1]
    if kind == IS_ROOT:
        for r in roots:
            if slot[n, r] >= 0 and chart[slot[n, r]] > least:
                least = offer(chart[slot[n, r]], r, -1, v, k, least, nodes, candidates, value, count, f0)
        return
    own, own_end = gold_of(i, j, gold, g0, g1)
    if kind == IS_TOP:
        x = chart[slot[j, a] + j + i]
        if x > least:
            least = offer(x, -1, -1, v, k, least, nodes, candidates, value, count, f0)
        for r in range(start[TOP, a], start[TOP, a + 1]):
            c, rule = by_top[r, SYMBOL], by_top[r, RULE]
            if slot[j, c] >= 0:
                x = chart[slot[j, c] + j + i] + chain_score(
                    rule, c, j - i, len(by_parent), w, label, chain_start, chain_label, gold, own, own_end, unit
                )
                if x > least:
                    least = offer(x, r, -1, v, k, least, nodes, candidates, value, count, f0)
        return
    if j - i == 1:
        word = token[first + i]
        for r in range(token_start[word], token_start[word + 1]):
            if by_token[r, SYMBOL] == a:
                offer(w[by_token[r, RULE]], r, -1, v, k, least, nodes, candidates, value, count, f0)
        return
    more = bottom_score(a, i, j, first, token, w, base, word_class, bucket, label, gold, own, own_end, unit)
    for r in range(start[PARENT, a], start[PARENT, a + 1]):
        b, right, weight = by_parent[r, LEFT], slot[j, by_parent[r, OTHER]], w[by_parent[r, NUMBER]]
        if right < 0:
            continue
        for split in range(i + 1, j):
            if chart[right + split] == -np.inf:
                continue
            left = slot[split, b]
            if left >= 0:
                y = chart[right + split] + weight
                if base[SPLIT] >= 0:
                    y += w[base[SPLIT] + a * base[N_BUCKETS] + bucket[j - split]]
                x = (chart[left + i] + y) + more
                if x > least:
                    least = offer(x, r, split, v, k, least, nodes, candidates, value, count, f0)


@inner
def part_of(
    v: int, e: int, part: int, by_parent: Any, by_top: Any, slot: Any, keys: Any, held: Any, nodes: Any, candidates: Any,
    count: Any,
) -> int:  # fmt: skip
    """The node of a candidate's right or left part, or of its only part, which counts as right; -1 if there is none."""
    i, j, kind = nodes[v, N_BEGIN], nodes[v, N_END], nodes[v, N_KIND]
    rule, split = candidates[e, C_RULE], candidates[e, C_SPLIT]
    below = IS_TOP
    if kind == IS_BOTTOM:
        if split < 0:
            return -1
        if part == C_RIGHT:
            i, c = split, by_parent[rule, OTHER]
        else:
            j, c = split, by_parent[rule, LEFT]
    elif part == C_LEFT:
        return -1
    elif kind == IS_TOP:
        below, c = IS_BOTTOM, nodes[v, N_SYMBOL]
        if rule >= 0:
            c = by_top[rule, SYMBOL]
    else:
        c = rule
    # A node is known by its place in the chart.
    key = slot[j, c] + i + (j if below == IS_BOTTOM else 0)
    at = (key * 0x9E3779B1 >> 7) & (len(keys) - 1)
    while keys[at] >= 0 and keys[at] != key:
        at = (at + 1) & (len(keys) - 1)
    if keys[at] < 0:
        u = count[0]
        count[0] += 1
        keys[at], held[at] = key, u
        nodes[u, N_BEGIN], nodes[u, N_END], nodes[u, N_SYMBOL], nodes[u, N_KIND] = i, j, c, below
        nodes[u, N_FOUND], nodes[u, N_HEAD], nodes[u, N_PART], nodes[u, N_DONE] = 0, -2, 0, 0
    return int(held[at])


@inner
def read_off(
    rank: int, k: int, n: int, first: int, token: Any, w: Any, start: Any, by_parent: Any, by_top: Any, token_start: Any,
    by_token: Any, roots: Any, base: Any, word_class: Any, bucket: Any, label: Any, chain_start: Any, chain_label: Any,
    gold: Any, g0: int, g1: int, unit: float, slot: Any, chart: Any, keys: Any, held: Any, nodes: Any, found: Any,
    candidates: Any, value: Any, stack: Any, count: Any, rows: Any, to: int,
) -> tuple[int, int]:  # fmt: skip
    """Write a derivation of the root to rows[to:]; returns the number of its rows, and of its wrong brackets."""
    at, wrong, depth = to, g1 - g0, 0
    stack[0, 0], stack[0, 1] = 0, rank
    while depth >= 0:
        v, r = stack[depth, 0], stack[depth, 1]
        depth -= 1
        # Parts that are the best of their node have not been looked at yet.
        next_best(
            v, r, k, n, first, token, w, start, by_parent, by_top, token_start, by_token, roots, base, word_class, bucket,
            label, chain_start, chain_label, gold, g0, g1, unit, slot, chart, keys, held, nodes, found, candidates, value,
            stack, count,
        )  # fmt: skip
        e = found[v, r]
        rule, split = candidates[e, C_RULE], candidates[e, C_SPLIT]
        i, j, a, kind = nodes[v, N_BEGIN], nodes[v, N_END], nodes[v, N_SYMBOL], nodes[v, N_KIND]
        number = -1
        if kind == IS_BOTTOM:
            number = by_parent[rule, NUMBER] if split >= 0 else by_token[rule, RULE]
            if split >= 0:
                own, own_end = gold_of(i, j, gold, g0, g1)
                wrong += bottom_brackets(label[a], gold, own, own_end)
        elif kind == IS_TOP and rule >= 0:
            number, c = by_top[rule, RULE], by_top[rule, SYMBOL]
            own, own_end = gold_of(i, j, gold, g0, g1)
            wrong += chain_brackets(
                number - len(by_parent), label[c] if j - i > 1 else -1, chain_start, chain_label, gold, own, own_end
            )
        if number >= 0:
            rows[at, D_BEGIN], rows[at, D_END], rows[at, D_SYMBOL], rows[at, D_RULE] = i, j, a, number
            rows[at, D_SPLIT] = split
            at += 1
        for part in (C_RIGHT, C_LEFT):
            u = part_of(v, e, part, by_parent, by_top, slot, keys, held, nodes, candidates, count)
            if u >= 0:
                depth += 1
                stack[depth, 0], stack[depth, 1] = u, candidates[e, part]
    return at - to, wrong

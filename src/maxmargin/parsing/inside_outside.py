"""Marginals of derivations: inside scores by the chart, then from the root down.

A node's probability goes to its edges in proportion to exp(. / T), and is added to their parts. Nothing is divided out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maxmargin.jit import inner, kernel
from maxmargin.parsing.chart import (
    FAR,
    NEVER,
    bottom_brackets,
    bottom_score,
    chain_brackets,
    chain_score,
    clear_chart,
    fill_chart,
    span_of,
)


@kernel
def inside_outside(
    task: Any, room: Any, chosen: Any, times: Any, scale: float, truth: Any, values: Any, wrong: Any, counts: Any
) -> None:
    """Add times E[phi] of the chosen sentences to counts, as `Parser.expect` has it."""
    start, temperature = task.sentences.start, task.temperature
    chart, mu = np.empty(1 << 12), np.empty(1 << 12)
    for e in range(len(chosen)):
        m = chosen[e]
        n = start[m + 1] - start[m]
        values[e], wrong[e] = -np.inf, 0.0
        if n == 0:
            continue
        chart = fill_chart(task, m, room, chart, False)
        total = log_partition(task, room, chart, n)
        values[e] = total
        if total > -np.inf:
            if len(mu) < len(chart):
                mu = np.empty(len(chart))
            part, own = times[m], 0.0
            if scale > 0.0:
                own = np.exp(min(0.0, (truth[m] - total) / temperature))
                part /= 1.0 - own * (1.0 - np.exp(-scale / temperature))
            found = _spread(task, m, room, chart, mu, total, part, counts)
            wrong[e] = own if scale > 0.0 else found
        clear_chart(room, n)


@inner
def log_partition(task: Any, room: Any, chart: Any, n: int) -> float:
    """T log sum exp of all derivations of a sentence of n words over T, or the best score."""
    roots, slot, temperature = task.rules.roots, room.slot, task.temperature
    best = -np.inf
    for r in roots:
        if slot[n, r] >= 0:
            best = max(best, chart[slot[n, r]])
    if temperature == 0.0 or best == -np.inf:
        return float(best)
    total = 0.0
    for r in roots:
        if slot[n, r] >= 0:
            total += np.exp((chart[slot[n, r]] - best) / temperature)
    return float(best + temperature * np.log(total))


@inner
def _spread(task: Any, m: int, room: Any, chart: Any, mu: Any, total: float, times: float, counts: Any) -> float:
    """Probabilities of all tops and bottoms, into mu, and times E[phi], added to counts; returns E[wrong].

    ``total`` is the log partition.
    """
    sentences, slot, members, member_start = task.sentences, room.slot, room.members, room.member_start
    n = sentences.start[m + 1] - sentences.start[m]
    for j in range(1, n + 1):
        for q in range(member_start[j], member_start[j + 1]):
            at = slot[j, members[q]]
            mu[at : at + 2 * j] = 0.0
    for r in task.rules.roots:
        if slot[n, r] >= 0:
            mu[slot[n, r]] = np.exp((chart[slot[n, r]] - total) / task.temperature)
    wrong = float(sentences.gold_start[m + 1] - sentences.gold_start[m])
    for j in range(n, 0, -1):
        for i in range(j):
            span = span_of(sentences, m, i, j)
            wrong = _spread_tops(task, m, room, chart, mu, times, counts, span, wrong)
            wrong = _spread_bottoms(task, m, room, chart, mu, times, counts, span, wrong)
    return wrong


@inner
def _spread_tops(
    task: Any, m: int, room: Any, chart: Any, mu: Any, times: float, counts: Any, span: Any, wrong: float
) -> float:
    """From the tops of a span to its bottoms; returns E[wrong] with what their chains add."""
    start, by_top, temperature = task.rules.start, task.rules.by_top, task.temperature
    slot, members, member_start = room.slot, room.members, room.member_start
    i, j, _, _ = span
    for q in range(member_start[j], member_start[j + 1]):
        a = members[q]
        at = slot[j, a] + i
        p, x = mu[at], chart[at]
        if p < NEVER:
            continue
        mu[at + j] += p * np.exp((chart[at + j] - x) / temperature)
        for r in range(start[a].top, start[a + 1].top):
            c, rule = by_top[r].symbol, by_top[r].rule
            below = slot[j, c] + j + i
            if slot[j, c] < 0 or chart[below] == -np.inf:
                continue
            y = chart[below] + chain_score(task, m, rule, c, span)
            if (y - x) / temperature > FAR:
                share = p * np.exp((y - x) / temperature)
                mu[below] += share
                counts[rule] += times * share
                wrong += share * chain_brackets(task, rule, c, span)
    return wrong


@inner
def _spread_bottoms(
    task: Any, m: int, room: Any, chart: Any, mu: Any, times: float, counts: Any, span: Any, wrong: float
) -> float:
    """From the bottoms of a span to the tops of their parts; returns E[wrong] with what the bottoms add."""
    rules, features, token, w = task.rules, task.features, task.sentences.token, task.w
    start, by_parent, by_token, token_start = rules.start, rules.by_parent, rules.by_token, rules.token_start
    slot, members, member_start, temperature = room.slot, room.members, room.member_start, task.temperature
    split_at, n_buckets, word_class, bucket = features.split, features.n_buckets, features.word_class, features.bucket
    i, j, g0, g1 = span
    first, at_split = task.sentences.start[m], 0
    for q in range(member_start[j], member_start[j + 1]):
        a = members[q]
        at = slot[j, a] + j + i
        p, x = mu[at], chart[at]
        if p < NEVER:
            continue
        if j - i == 1:
            word = token[first + i]
            for r in range(token_start[word], token_start[word + 1]):
                if by_token[r].symbol == a:
                    counts[by_token[r].rule] += times * p
            continue
        more = bottom_score(task, m, a, span)
        wrong += p * bottom_brackets(task, rules.label[a], g0, g1)
        if features.first >= 0:
            counts[features.first + a * features.n_classes + word_class[token[first + i]]] += times * p
        if features.last >= 0:
            counts[features.last + a * features.n_classes + word_class[token[first + j - 1]]] += times * p
        if features.length >= 0:
            counts[features.length + a * n_buckets + bucket[j - i]] += times * p
        for r in range(start[a].parent, start[a + 1].parent):
            b, right, rule = by_parent[r].left, slot[j, by_parent[r].right], by_parent[r].rule
            if right < 0:
                continue
            for split in range(i + 1, j):
                left = slot[split, b]
                if left < 0 or chart[right + split] == -np.inf:
                    continue
                y = chart[left + i] + chart[right + split] + w[rule] + more
                if split_at >= 0:
                    at_split = split_at + a * n_buckets + bucket[j - split]
                    y += w[at_split]
                if (y - x) / temperature > FAR:
                    share = p * np.exp((y - x) / temperature)
                    mu[left + i] += share
                    mu[right + split] += share
                    counts[rule] += times * share
                    if split_at >= 0:
                        counts[at_split] += times * share
    return wrong


@inner
def mark_likely(
    coarse: Any, m: int, room: Any, chart: Any, mu: Any, counts: Any, least: float, allowed: Any
) -> tuple[Any, Any]:
    """Which coarse symbols of which spans have at least that probability, as tops or as bottoms.

    Returns the rows of the coarse chart and its probabilities, in larger arrays if need be.
    """
    slot, members, member_start = room.slot, room.members, room.member_start
    n = coarse.sentences.start[m + 1] - coarse.sentences.start[m]
    chart = fill_chart(coarse, m, room, chart, False)
    total = log_partition(coarse, room, chart, n)
    # Where there is no coarse derivation there is no other.
    allowed[: n * (n + 1) // 2] = total == -np.inf
    if total > -np.inf:
        if len(mu) < len(chart):
            mu = np.empty(len(chart))
        _spread(coarse, m, room, chart, mu, total, 0.0, counts)
        for j in range(1, n + 1):
            for q in range(member_start[j], member_start[j + 1]):
                at = slot[j, members[q]]
                for i in range(j):
                    if max(mu[at + i], mu[at + j + i]) >= least:
                        allowed[j * (j - 1) // 2 + i, members[q]] = True
    clear_chart(room, n)
    return chart, mu

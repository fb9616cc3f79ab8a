"""Marginals of derivations: inside scores by the chart, then from the root down.

A node's probability goes to its edges in proportion to exp(. / T), and is added to their parts. Nothing is divided out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maxmargin.jit import inner, kernel
from maxmargin.parsing.chart import (
    FAR,
    FIRST,
    LAST,
    LEFT,
    LENGTH,
    N_BUCKETS,
    N_CLASSES,
    NEVER,
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
    chart_room,
    clear_chart,
    fill_chart,
    gold_of,
    longest_of,
    weights_of,
)


@kernel
def inside_outside(
    rules: Any, features: Any, sentences: Any, w: Any, temperature: float, chosen: Any, unit: Any, times: Any, scale: float,
    truth: Any, values: Any, wrong: Any, counts: Any,
) -> None:  # fmt: skip
    """Add times E[phi] of the chosen sentences to counts, as `Parser.expect` has it."""
    start, by_right, by_parent, by_bottom, by_top, token_start, by_token, roots = (
        rules.start, rules.by_right, rules.by_parent, rules.by_bottom, rules.by_top, rules.token_start, rules.by_token,
        rules.roots,
    )  # fmt: skip
    label, chain_start, chain_label, coarse = rules.label, rules.chain_start, rules.chain_label, rules.coarse
    base, word_class, bucket = features.base, features.word_class, features.bucket
    s_start, token, gold_start, gold = sentences.start, sentences.token, sentences.gold_start, sentences.gold
    slot, members, member_start, seen, bottom, top = chart_room(longest_of(chosen, s_start), len(label))
    bottom_sum, top_sum = np.zeros_like(bottom), np.zeros_like(top)
    chart, mu, right_weight = np.empty(1 << 12), np.empty(1 << 12), weights_of(by_right, w)
    anything = np.empty((0, 0), np.bool_)
    for e in range(len(chosen)):
        m = chosen[e]
        first, n, g0, g1 = s_start[m], s_start[m + 1] - s_start[m], gold_start[m], gold_start[m + 1]
        values[e], wrong[e] = -np.inf, 0.0
        if n == 0:
            continue
        chart = fill_chart(
            n, first, token, temperature, w, start, by_right, right_weight, by_bottom, token_start, by_token, base, word_class,
            bucket, label, chain_start, chain_label, gold, g0, g1, unit[m], np.inf, coarse, anything, slot, chart, members,
            member_start, bottom, bottom_sum, top, top_sum, seen,
        )  # fmt: skip
        total = log_partition(n, temperature, roots, slot, chart)
        values[e] = total
        if total > -np.inf:
            if len(mu) < len(chart):
                mu = np.empty(len(chart))
            part, own = times[m], 0.0
            if scale > 0.0:
                own = np.exp(min(0.0, (truth[m] - total) / temperature))
                part /= 1.0 - own * (1.0 - np.exp(-scale / temperature))
            found = spread(
                n, first, token, temperature, total, w, start, by_parent, by_top, by_token, token_start, roots, base,
                word_class, bucket, label, chain_start, chain_label, gold, g0, g1, unit[m], part, slot, chart, mu, members,
                member_start, counts,
            )  # fmt: skip
            wrong[e] = own if scale > 0.0 else found
        clear_chart(n, slot, members, member_start)


@inner
def log_partition(n: int, temperature: float, roots: Any, slot: Any, chart: Any) -> float:
    """T log sum exp of all derivations of a sentence over T, or the best score."""
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
def spread(
    n: int, first: int, token: Any, temperature: float, total: float, w: Any, start: Any, by_parent: Any, by_top: Any,
    by_token: Any, token_start: Any, roots: Any, base: Any, word_class: Any, bucket: Any, label: Any, chain_start: Any,
    chain_label: Any, gold: Any, g0: int, g1: int, unit: float, times: float, slot: Any, chart: Any, mu: Any, members: Any,
    member_start: Any, counts: Any,
) -> float:  # fmt: skip
    """Probabilities of all tops and bottoms, into mu, and times E[phi], added to counts; returns E[wrong].

    ``total`` is the log partition.
    """
    for j in range(1, n + 1):
        for q in range(member_start[j], member_start[j + 1]):
            at = slot[j, members[q]]
            mu[at : at + 2 * j] = 0.0
    for r in roots:
        if slot[n, r] >= 0:
            mu[slot[n, r]] = np.exp((chart[slot[n, r]] - total) / temperature)
    wrong = float(g1 - g0)
    for j in range(n, 0, -1):
        for i in range(j):
            own, own_end = gold_of(i, j, gold, g0, g1)
            for q in range(member_start[j], member_start[j + 1]):
                a = members[q]
                at = slot[j, a] + i
                p, x = mu[at], chart[at]
                if p < NEVER:
                    continue
                mu[at + j] += p * np.exp((chart[at + j] - x) / temperature)
                for r in range(start[TOP, a], start[TOP, a + 1]):
                    c, rule = by_top[r, SYMBOL], by_top[r, RULE]
                    below = slot[j, c] + j + i
                    if slot[j, c] < 0 or chart[below] == -np.inf:
                        continue
                    y = chart[below] + chain_score(
                        rule, c, j - i, len(by_parent), w, label, chain_start, chain_label, gold, own, own_end, unit
                    )
                    if (y - x) / temperature > FAR:
                        share = p * np.exp((y - x) / temperature)
                        mu[below] += share
                        counts[rule] += times * share
                        bracket = label[c] if j - i > 1 else -1
                        wrong += share * chain_brackets(
                            rule - len(by_parent), bracket, chain_start, chain_label, gold, own, own_end
                        )
            for q in range(member_start[j], member_start[j + 1]):
                a = members[q]
                at = slot[j, a] + j + i
                p, x = mu[at], chart[at]
                if p < NEVER:
                    continue
                if j - i == 1:
                    word = token[first + i]
                    for r in range(token_start[word], token_start[word + 1]):
                        if by_token[r, SYMBOL] == a:
                            counts[by_token[r, RULE]] += times * p
                    continue
                more = bottom_score(a, i, j, first, token, w, base, word_class, bucket, label, gold, own, own_end, unit)
                wrong += p * bottom_brackets(label[a], gold, own, own_end)
                if base[FIRST] >= 0:
                    counts[base[FIRST] + a * base[N_CLASSES] + word_class[token[first + i]]] += times * p
                if base[LAST] >= 0:
                    counts[base[LAST] + a * base[N_CLASSES] + word_class[token[first + j - 1]]] += times * p
                if base[LENGTH] >= 0:
                    counts[base[LENGTH] + a * base[N_BUCKETS] + bucket[j - i]] += times * p
                for r in range(start[PARENT, a], start[PARENT, a + 1]):
                    b, right, rule = by_parent[r, LEFT], slot[j, by_parent[r, OTHER]], by_parent[r, NUMBER]
                    if right < 0:
                        continue
                    for split in range(i + 1, j):
                        if chart[right + split] == -np.inf:
                            continue
                        left = slot[split, b]
                        if left < 0:
                            continue
                        y = chart[left + i] + chart[right + split] + w[rule] + more
                        at_split = 0
                        if base[SPLIT] >= 0:
                            at_split = base[SPLIT] + a * base[N_BUCKETS] + bucket[j - split]
                            y += w[at_split]
                        if (y - x) / temperature > FAR:
                            share = p * np.exp((y - x) / temperature)
                            mu[left + i] += share
                            mu[right + split] += share
                            counts[rule] += times * share
                            if base[SPLIT] >= 0:
                                counts[at_split] += times * share
    return wrong


@inner
def mark_likely(
    n: int, least: float, slot: Any, mu: Any, members: Any, member_start: Any, allowed: Any
) -> None:  # fmt: skip
    """Which symbols of which spans have at least that probability, as tops or as bottoms."""
    allowed[: n * (n + 1) // 2] = False
    for j in range(1, n + 1):
        for q in range(member_start[j], member_start[j + 1]):
            at = slot[j, members[q]]
            for i in range(j):
                if max(mu[at + i], mu[at + j + i]) >= least:
                    allowed[j * (j - 1) // 2 + i, members[q]] = True

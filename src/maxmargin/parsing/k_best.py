"""Derivations read off a chart, best first.

L. Huang and D. Chiang, Better k-best Parsing, International Workshop on Parsing Technologies 2005, algorithm 3. No back pointers
are kept: a node, which is a top or a bottom of one span, looks through its rules and splits only when a derivation goes through it.
Its k best edges wait in a list; when the best one leaves, it comes back with the next best derivation of its right part, or of its
left part if the right one is still the best, so that each combination comes once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.jit import Struct, inner, record_type, records
from maxmargin.parsing.chart import bottom_brackets, bottom_score, chain_brackets, chain_score, span_of
from maxmargin.parsing.grammar import short_record

#: The span, the symbol, the kind; derivations found, first of the candidates (`CLOSED` before they are listed), the part to look at
#: next, whether there is nothing more to find.
NODE = short_record("begin", "end", "symbol", "kind", "found", "head", "part", "done")
IS_BOTTOM, IS_TOP, IS_ROOT = range(3)
CLOSED = -2
#: Rule (of a top: -1 for none; of the root: the symbol), split, the next of the list.
CANDIDATE = short_record("rule", "split", "next")
# Columns of `ranks`, and parts of nodes.
NEITHER, LEFT, RIGHT = range(-1, 2)
#: A derivation that is wanted.
WANTED = short_record("node", "rank")
USED = record_type("nodes", "candidates")


class Search(Struct):
    """The nodes and candidates of one sentence."""

    #: A table of nodes by their place in the chart: the places, or -1, and the nodes.
    keys: NDArray[np.int64]
    held: NDArray[np.int32]
    nodes: Any
    #: (nodes, k): the candidates that have left, best first.
    found: NDArray[np.int32]
    candidates: Any
    #: (candidates, 2): the ranks of the left part, and of the right or only part.
    ranks: NDArray[np.int32]
    value: NDArray[np.float64]
    stack: Any
    #: One record: how many nodes and candidates there are.
    used: Any

    @classmethod
    def of(cls, longest: int, k: int) -> Search:
        """Room for the k best derivations of sentences of that many words."""
        n_nodes = 4 * longest * (k + 2) + 16
        n_keys, n_candidates = 1 << (2 * n_nodes - 1).bit_length(), (k + 2) * n_nodes
        nodes, candidates, stack = (
            np.empty(n, kind).view(np.recarray)
            for n, kind in ((n_nodes, NODE), (n_candidates, CANDIDATE), (8 * longest + 16, WANTED))
        )
        return cls(
            np.empty(n_keys, np.int64), np.empty(n_keys, np.int32), nodes, np.empty((n_nodes, k), np.int32), candidates,
            np.empty((n_candidates, 2), np.int32), np.empty(n_candidates), stack, records(USED, [0], [0]),
        )  # fmt: skip


# ------------------------------------------------------------------------------------------------------- kernels


@inner
def read_best(task: Any, m: int, room: Any, chart: Any, search: Any, out: Any, e: int) -> None:
    """Write the k best derivations of sentence m to `out`, of which it is the e-th."""
    values, wrong, first, sizes = out.values, out.wrong, out.first, out.sizes
    keys, nodes, found, value, used = search.keys, search.nodes, search.found, search.value, search.used
    k, n = found.shape[1], task.sentences.start[m + 1] - task.sentences.start[m]
    keys[:] = -1
    used[0].nodes = used[0].candidates = 0
    _add_node(search, 0, n, -1, IS_ROOT)
    for r in range(k):
        _next_best(task, m, room, chart, search, 0, r)
        if nodes[0].found <= r:
            break
        values[e, r] = value[found[0, r]]
        sizes[e * k + r], wrong[e, r] = _read_off(task, m, room, chart, search, r, out.rows, first[e * k + r])


@inner
def _next_best(task: Any, m: int, room: Any, chart: Any, search: Any, goal: int, rank: int) -> None:
    """Find the derivations of a node up to the rank, or all of them if there are fewer."""
    nodes, found, candidates, ranks, value, stack = (
        search.nodes, search.found, search.candidates, search.ranks, search.value, search.stack,
    )  # fmt: skip
    depth = len(stack) // 2
    floor = depth
    stack[depth].node, stack[depth].rank = goal, rank
    while depth >= floor:
        v = stack[depth].node
        if nodes[v].found > stack[depth].rank or nodes[v].done == 1:
            depth -= 1
            continue
        if nodes[v].head == CLOSED:
            _open_node(task, m, room, chart, search, v)
        if nodes[v].part != NEITHER:
            # The last one that left comes back with a part of the next rank.
            e, part = found[v, nodes[v].found - 1], nodes[v].part
            after = LEFT if part == RIGHT else NEITHER
            u = -1
            if part == RIGHT or ranks[e, RIGHT] == 0:
                u = _part_of(task.rules, room.slot, search, v, e, part)
            if u < 0:
                nodes[v].part = after
                continue
            wanted = ranks[e, part] + 1
            if nodes[u].found <= wanted and nodes[u].done == 0:
                depth += 1
                stack[depth].node, stack[depth].rank = u, wanted
                continue
            nodes[v].part = after
            if nodes[u].found > wanted:
                f = _add_candidate(search, v, candidates[e].rule, candidates[e].split)
                ranks[f, LEFT], ranks[f, RIGHT] = ranks[e, LEFT], ranks[e, RIGHT]
                ranks[f, part] = wanted
                value[f] = value[e] + (value[found[u, wanted]] - value[found[u, wanted - 1]])
            continue
        e, before, at, earlier = nodes[v].head, -1, nodes[v].head, -1
        while at >= 0:
            if value[at] > value[e]:
                e, before = at, earlier
            earlier, at = at, candidates[at].next
        if e < 0:
            nodes[v].done = 1
            continue
        if before < 0:
            nodes[v].head = candidates[e].next
        else:
            candidates[before].next = candidates[e].next
        found[v, nodes[v].found] = e
        nodes[v].found += 1
        nodes[v].part = RIGHT


@inner
def _add_node(search: Any, i: int, j: int, a: int, kind: int) -> int:
    """One more node, that nothing is known of."""
    nodes, used = search.nodes, search.used
    u = used[0].nodes
    used[0].nodes += 1
    nodes[u].begin, nodes[u].end, nodes[u].symbol, nodes[u].kind = i, j, a, kind
    nodes[u].found, nodes[u].head, nodes[u].part, nodes[u].done = 0, CLOSED, NEITHER, 0
    return int(u)


@inner
def _add_candidate(search: Any, v: int, rule: int, split: int) -> int:
    """One more candidate of a node, with the best of its parts."""
    nodes, candidates, ranks, used = search.nodes, search.candidates, search.ranks, search.used
    f = used[0].candidates
    used[0].candidates += 1
    candidates[f].rule, candidates[f].split, ranks[f, LEFT], ranks[f, RIGHT] = rule, split, 0, 0
    candidates[f].next, nodes[v].head = nodes[v].head, f
    return int(f)


@inner
def _offer(search: Any, v: int, x: float, rule: int, split: int, least: float, first: int) -> float:
    """Take an edge among the node's k best, which are all candidates from `first` on; returns what the next must exceed."""
    candidates, value, used, k = search.candidates, search.value, search.used, search.found.shape[1]
    if used[0].candidates - first < k:
        f = _add_candidate(search, v, rule, split)
        value[f] = x
        if used[0].candidates - first < k:
            return least
    else:
        for f in range(first, first + k):
            if value[f] == least:
                value[f], candidates[f].rule, candidates[f].split = x, rule, split
                break
    least = value[first]
    for f in range(first + 1, first + k):
        least = min(least, value[f])
    return least


@inner
def _open_node(task: Any, m: int, room: Any, chart: Any, search: Any, v: int) -> None:
    """List the k best edges of a node, with the best of their parts."""
    rules, w, slot, nodes = task.rules, task.w, room.slot, search.nodes
    i, j, a, kind = nodes[v].begin, nodes[v].end, nodes[v].symbol, nodes[v].kind
    nodes[v].head = -1
    least, first = -np.inf, search.used[0].candidates
    if kind == IS_ROOT:
        for r in rules.roots:
            if slot[j, r] >= 0 and chart[slot[j, r]] > least:
                least = _offer(search, v, chart[slot[j, r]], r, -1, least, first)
        return
    start, span = rules.start, span_of(task.sentences, m, i, j)
    if kind == IS_TOP:
        by_top, x = rules.by_top, chart[slot[j, a] + j + i]
        if x > least:
            least = _offer(search, v, x, -1, -1, least, first)
        for r in range(start[a].top, start[a + 1].top):
            c = by_top[r].symbol
            if slot[j, c] >= 0:
                x = chart[slot[j, c] + j + i] + chain_score(task, m, by_top[r].rule, c, span)
                if x > least:
                    least = _offer(search, v, x, r, -1, least, first)
        return
    if j - i == 1:
        by_token, word = rules.by_token, task.sentences.token[task.sentences.start[m] + i]
        for r in range(rules.token_start[word], rules.token_start[word + 1]):
            if by_token[r].symbol == a:
                _offer(search, v, w[by_token[r].rule], r, -1, least, first)
        return
    _list_splits(task, slot, chart, search, v, bottom_score(task, m, a, span))


@inner
def _list_splits(task: Any, slot: Any, chart: Any, search: Any, v: int, more: float) -> None:
    """List the k best edges of a bottom of two words and more, whose own score is `more`."""
    start, by_parent, w, nodes = task.rules.start, task.rules.by_parent, task.w, search.nodes
    split_at, n_buckets, bucket = task.features.split, task.features.n_buckets, task.features.bucket
    i, j, a = nodes[v].begin, nodes[v].end, nodes[v].symbol
    least, first = -np.inf, search.used[0].candidates
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
                if x > least:
                    least = _offer(search, v, x, r, split, least, first)


@inner
def _part_of(rules: Any, slot: Any, search: Any, v: int, e: int, part: int) -> int:
    """The node of a candidate's right or left part, or of its only part, which counts as right; -1 if there is none."""
    keys, held, nodes, by_parent = search.keys, search.held, search.nodes, rules.by_parent
    i, j, kind = nodes[v].begin, nodes[v].end, nodes[v].kind
    rule, split = search.candidates[e].rule, search.candidates[e].split
    below = IS_TOP
    if kind == IS_BOTTOM:
        if split < 0:
            return -1
        if part == RIGHT:
            i, c = split, by_parent[rule].right
        else:
            j, c = split, by_parent[rule].left
    elif part == LEFT:
        return -1
    elif kind == IS_TOP:
        below, c = IS_BOTTOM, nodes[v].symbol
        if rule >= 0:
            c = rules.by_top[rule].symbol
    else:
        c = rule
    # A node is known by its place in the chart.
    key = slot[j, c] + i + (j if below == IS_BOTTOM else 0)
    at = (key * 0x9E3779B1 >> 7) & (len(keys) - 1)
    while keys[at] >= 0 and keys[at] != key:
        at = (at + 1) & (len(keys) - 1)
    if keys[at] < 0:
        keys[at], held[at] = key, _add_node(search, i, j, c, below)
    return int(held[at])


@inner
def _read_off(task: Any, m: int, room: Any, chart: Any, search: Any, rank: int, rows: Any, to: int) -> tuple[int, int]:
    """Write a derivation of the root to rows[to:]; returns the number of its rows, and of its wrong brackets."""
    rules, sentences, slot = task.rules, task.sentences, room.slot
    nodes, candidates, ranks, stack = search.nodes, search.candidates, search.ranks, search.stack
    at, wrong, depth = to, sentences.gold_start[m + 1] - sentences.gold_start[m], 0
    stack[0].node, stack[0].rank = 0, rank
    while depth >= 0:
        v, r = stack[depth].node, stack[depth].rank
        depth -= 1
        # Parts that are the best of their node have not been looked at yet.
        _next_best(task, m, room, chart, search, v, r)
        e = search.found[v, r]
        rule, split = candidates[e].rule, candidates[e].split
        i, j, a, kind = nodes[v].begin, nodes[v].end, nodes[v].symbol, nodes[v].kind
        number = -1
        if kind == IS_BOTTOM and split >= 0:
            number, span = rules.by_parent[rule].rule, span_of(sentences, m, i, j)
            wrong += bottom_brackets(task, rules.label[a], span[2], span[3])
        elif kind == IS_BOTTOM:
            number = rules.by_token[rule].rule
        elif kind == IS_TOP and rule >= 0:
            number = rules.by_top[rule].rule
            wrong += chain_brackets(task, number, rules.by_top[rule].symbol, span_of(sentences, m, i, j))
        if number >= 0:
            rows[at].begin, rows[at].end, rows[at].symbol, rows[at].rule, rows[at].split = i, j, a, number, split
            at += 1
        for part in (RIGHT, LEFT):
            u = _part_of(rules, slot, search, v, e, part)
            if u >= 0:
                depth += 1
                stack[depth].node, stack[depth].rank = u, ranks[e, part]
    return at - to, wrong

"""Charts of weighted context-free grammars (CKY): the best score of every span and symbol, exact.

Notation
--------
Words count from 0; the span (i, j) holds words i to j - 1. A grammar (parsing/grammar.py) gives every span of a derivation
a *bottom*, by a lexical or a binary rule, and then at most one *chain* to its *top*:

    bottom(i, i+1, A) = w(A -> word i)
    bottom(i, j, A)   = max_{k, A -> B C}  top(i, k, B) + top(k, j, C) + w(A -> B C) + split(A, j - k)  + own(i, j, A)
    top(i, j, A)      = max( bottom(i, j, A),  max_{chains A => C}  w(A => C) + bottom(i, j, C) )
    score             = max_{roots R} top(0, n, R)

`own` and `split` are span features, for spans of two words and more. With a task loss inside the chart, every bracket costs
one *unit* more, or one unit less if the truth has it (see `Brackets`). For marginals at temperature T each max becomes
T log sum exp(. / T).

The chart
---------
Columns, the spans with the same end j, are filled from left to right, each from its shortest span to its longest. When the
span (k, j) is done, each of its tops C pushes every rule A -> B C to all spans (i, j) at once: the tops of B that end at k
are one row over i, so are the bottoms of A that end at j, and a rule is a max of two rows. So only right parts that exist
are looked at, and no rule whose left symbol ends nowhere at k. Rows of symbols that never end at a word take no room: a
chart takes 16 bytes a (span, symbol) at the most, and a fraction of that for large grammars. One chart serves all
sentences of a call.

No back pointers are kept: k_best.py reads derivations off the chart, inside_outside.py has marginals, parser.py asks both.

Pruning, off by default, makes all this inexact: ``beam`` leaves only tops within so much of the span's best one, and
``coarse`` only the (span, symbol) whose coarse symbol has at least that posterior probability under a grammar of coarse
symbols: labels, with the hidden symbols of a label taken as one. A coarse rule weighs as much as the heaviest of its rules.
A sentence that has no derivation left is parsed again without pruning.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.jit import Struct, inner
from maxmargin.problems.layout import offsets

# Rows of `start`: where the rules of a symbol begin in `by_right`, `by_parent`, `by_bottom` and `by_top`.
RIGHT, PARENT, BOTTOM, TOP = range(4)
# Columns of `by_right` (left, parent, rule), of `by_parent` (left, right, rule), and of the tables of chains and words: the
# other symbol and the rule.
LEFT, OTHER, NUMBER = range(3)
SYMBOL, RULE = range(2)
# Columns of a derivation, as in parsing/grammar.py, and of `gold`.
D_BEGIN, D_END, D_SYMBOL, D_RULE, D_SPLIT = range(5)
G_BEGIN, G_END, G_LABEL = range(3)
# Entries of `base`: the first weight of each span feature, or -1 without it; then the number of word classes and of buckets.
FIRST, LAST, LENGTH, SPLIT, N_CLASSES, N_BUCKETS = range(6)
#: Probabilities below this, and exponents, are as good as none: all of a long sentence's together are below 1e-11.
NEVER, FAR = 1e-17, -40.0


class Rules(Struct):
    """A grammar as charts read it: rules by each of their symbols. All int32."""

    #: (4, S + 1)
    start: NDArray[np.int32]
    by_right: NDArray[np.int32]
    by_parent: NDArray[np.int32]
    by_bottom: NDArray[np.int32]
    by_top: NDArray[np.int32]
    #: (tokens + 2,): the last token has no tags, and stands for words that the grammar does not know.
    token_start: NDArray[np.int32]
    by_token: NDArray[np.int32]
    roots: NDArray[np.int32]
    #: (S,): the bracket of each symbol, -1 for hidden ones.
    label: NDArray[np.int32]
    #: The brackets that chain u adds: ``chain_label[chain_start[u]:chain_start[u + 1]]``.
    chain_start: NDArray[np.int32]
    chain_label: NDArray[np.int32]
    #: (S,): the symbol of the coarse grammar.
    coarse: NDArray[np.int32]


class SpanFeatures(Struct):
    """Weights of (symbol, property) of spans of two words and more; they come after those of the rules."""

    #: (6,) int64
    base: NDArray[np.int64]
    #: (tokens + 1,): class of a first or last word.
    word_class: NDArray[np.int32]
    #: (longest + 1,): bucket of a length.
    bucket: NDArray[np.int32]


class Brackets(Struct):
    """Sentences, and the labelled brackets of their truths.

    Brackets are the labels of a tree above its tags; hidden symbols have none. With P and G the multisets of (begin, end, label)
    of a derivation and of the truth, the number that is *wrong* is |P| + |G| - 2 |P and G|, a sum over spans.
    """

    #: (M + 1,), and the tokens of all sentences.
    start: NDArray[np.int64]
    token: NDArray[np.int32]
    #: (M + 1,), and rows (begin, end, label) in the order of the chart: by end, then from the last begin to the first.
    gold_start: NDArray[np.int64]
    gold: NDArray[np.int32]


def chart_rules(grammar: Any) -> Rules:
    """A grammar as charts read it."""
    binary, unary, lexical, n = grammar.binary, grammar.unary, grammar.lexical, len(grammar.symbols)
    number = np.arange(grammar.n_rules, dtype=np.int32)
    of_binary, of_unary, of_lexical = np.split(number, [len(binary), len(binary) + len(unary)])
    names: dict[str, int] = {}
    label = np.array(
        [
            -1 if hidden else names.setdefault(name, len(names))
            for name, hidden in zip(grammar.labels, grammar.hidden, strict=True)
        ],
        np.int32,
    )
    chains = [
        [grammar.labels[top], *between] for top, between in zip(unary[:, 0].tolist(), grammar.chains, strict=True)
    ]
    tables, starts = [], []
    for columns, key, size in (
        ((binary[:, 1], binary[:, 0], of_binary), binary[:, 2], n),
        ((binary[:, 1], binary[:, 2], of_binary), binary[:, 0], n),
        ((unary[:, 0], of_unary), unary[:, 1], n),
        ((unary[:, 1], of_unary), unary[:, 0], n),
        ((lexical[:, 0], of_lexical), lexical[:, 1], grammar.n_tokens + 1),
    ):
        order = np.argsort(key, kind="stable")
        tables.append(np.ascontiguousarray(np.stack(columns, axis=1)[order], np.int32))
        starts.append(offsets(np.bincount(key, minlength=size)).astype(np.int32))
    by_right, by_parent, by_bottom, by_top, by_token = tables
    return Rules(
        np.stack(starts[:4]),
        by_right,
        by_parent,
        by_bottom,
        by_top,
        starts[4],
        by_token,
        np.unique(grammar.roots).astype(np.int32),
        label,
        offsets([len(chain) for chain in chains]).astype(np.int32),
        np.array([names.setdefault(name, len(names)) for chain in chains for name in chain], np.int32),
        coarse_symbols(grammar, label),
    )


def coarse_symbols(grammar: Any, label: NDArray[np.int32]) -> NDArray[np.int32]:
    """The coarse symbol of each symbol: its label, or for hidden symbols the label that they are a part of."""
    binary, hidden = grammar.binary, np.asarray(grammar.hidden, bool)
    owner, known = label.copy(), -2
    while known < (known := int(np.count_nonzero(owner >= 0))):
        for part in (1, 2):
            inside = hidden[binary[:, part]] & (owner[binary[:, 0]] >= 0)
            owner[binary[inside, part]] = owner[binary[inside, 0]]
    return np.unique(2 * owner + hidden, return_inverse=True)[1].astype(np.int32)


def coarse_rules(grammar: Any, rules: Rules) -> tuple[Rules, NDArray[np.int32]]:
    """The grammar of coarse symbols, and the coarse rule (n_rules,) of each rule."""
    of, n = rules.coarse, int(rules.coarse.max()) + 1
    lexical = np.stack([of[grammar.lexical[:, 0]], grammar.lexical[:, 1]], axis=1)
    unique = [
        np.unique(table, axis=0, return_inverse=True) for table in (of[grammar.binary], of[grammar.unary], lexical)
    ]
    sizes = [len(table) for table, _ in unique]
    coarse = SimpleNamespace(
        symbols=range(n), binary=unique[0][0], unary=unique[1][0], lexical=unique[2][0], roots=of[grammar.roots],
        hidden=np.zeros(n, bool), labels=[str(c) for c in range(n)], chains=[()] * sizes[1], n_rules=sum(sizes),
        n_tokens=grammar.n_tokens,
    )  # fmt: skip
    first = offsets(sizes)
    number = np.concatenate([first[part] + unique[part][1].ravel() for part in range(3)])
    return chart_rules(coarse), number.astype(np.int32)


# ------------------------------------------------------------------------------------------------------- kernels


@inner
def longest_of(chosen: Any, s_start: Any) -> int:
    """Words of the longest of the sentences."""
    longest = 0
    for e in range(len(chosen)):
        longest = max(longest, s_start[chosen[e] + 1] - s_start[chosen[e]])
    return int(longest)


@inner
def chart_room(longest: int, n_symbols: int) -> tuple[Any, Any, Any, Any, Any, Any]:
    """What a chart needs beside its rows.

    slot[j, A] is where the row of A in column j begins: j tops by their begins, then as many bottoms; -1 if there is none.
    The symbols that have one are members[member_start[j]:member_start[j + 1]]. The last two hold the column in work.
    """
    return (
        np.full((longest + 1, n_symbols), -1, np.int64),
        np.empty(longest * n_symbols, np.int32),
        np.zeros(longest + 2, np.int64),
        np.zeros(n_symbols, np.int8),
        np.full(n_symbols * longest, -np.inf),
        np.full(n_symbols * longest, -np.inf),
    )


@inner
def weights_of(by_right: Any, w: Any) -> Any:
    """The weights of binary rules in the order in which charts read them."""
    out = np.empty(len(by_right))
    for r in range(len(by_right)):
        out[r] = w[by_right[r, NUMBER]]
    return out


@inner
def coarse_weights(rule: Any, w: Any) -> Any:
    """The weight of each coarse rule, the largest of its rules'."""
    n = 0
    for r in range(len(rule)):
        n = max(n, rule[r] + 1)
    out = np.full(n, -np.inf)
    for r in range(len(rule)):
        out[rule[r]] = max(out[rule[r]], w[r])
    return out


@inner
def clear_chart(n: int, slot: Any, members: Any, member_start: Any) -> None:
    """Leave no slots for the next sentence."""
    for j in range(1, n + 1):
        for q in range(member_start[j], member_start[j + 1]):
            slot[j, members[q]] = -1


# ------------------------------------------------------------------------------------------------------- from the words up


@inner
def fill_chart(
    n: int, first: int, token: Any, temperature: float, w: Any, start: Any, by_right: Any, right_weight: Any, by_bottom: Any,
    token_start: Any, by_token: Any, base: Any, word_class: Any, bucket: Any, label: Any, chain_start: Any, chain_label: Any,
    gold: Any, g0: int, g1: int, unit: float, beam: float, coarse: Any, allowed: Any, slot: Any, chart: Any, members: Any,
    member_start: Any, bottom: Any, bottom_sum: Any, top: Any, top_sum: Any, seen: Any,
) -> Any:  # fmt: skip
    """Fill the chart of one sentence, with maxima if the temperature is 0; returns its rows, in a larger array if need be."""
    used, begin, g, n_binary = 0, 0, g0, len(by_right)
    for j in range(1, n + 1):
        member_start[j] = begin
        end, word = begin, token[first + j - 1]
        for r in range(token_start[word], token_start[word + 1]):
            a = by_token[r, SYMBOL]
            if w[by_token[r, RULE]] > -np.inf:
                put(w[by_token[r, RULE]], a * n + j - 1, temperature, bottom, bottom_sum)
                seen[a], members[end] = 1, a
                end += 1
        for k in range(j - 1, -1, -1):
            own = g
            while g < g1 and gold[g, G_END] == j and gold[g, G_BEGIN] == k:
                g += 1
            end = finish_span(
                k, j, n, first, token, temperature, w, start, by_bottom, n_binary, base, word_class, bucket, label,
                chain_start, chain_label, gold, own, g, unit, beam, coarse, allowed, members, begin, end, bottom, bottom_sum,
                top, top_sum, seen,
            )  # fmt: skip
            if k > 0 and temperature == 0.0:
                end = push_span(
                    k, j, n, w, start, by_right, right_weight, base, bucket, slot, chart, members, begin, end, bottom, top, seen
                )  # fmt: skip
            elif k > 0:
                end = push_span_sum(
                    k, j, n, temperature, w, start, by_right, right_weight, base, bucket, slot, chart, members, begin, end,
                    bottom, bottom_sum, top, seen,
                )  # fmt: skip

        if used + 2 * j * (end - begin) > len(chart):
            larger = np.empty(2 * (used + 2 * j * (end - begin)))
            larger[:used] = chart[:used]
            chart = larger
        kept = begin
        for q in range(begin, end):
            a, lives = members[q], False
            seen[a] = 0
            for i in range(j):
                x, y = top[a * n + i], bottom[a * n + i]
                lives |= x > -np.inf or y > -np.inf
                chart[used + i], chart[used + j + i] = x, y
                top[a * n + i], bottom[a * n + i] = -np.inf, -np.inf
            if temperature > 0.0:
                for i in range(j):
                    top_sum[a * n + i], bottom_sum[a * n + i] = 0.0, 0.0
            if lives:
                slot[j, a], members[kept] = used, a
                used, kept = used + 2 * j, kept + 1
        begin = kept
    member_start[n + 1] = begin
    return chart


@inner
def finish_span(
    k: int, j: int, n: int, first: int, token: Any, temperature: float, w: Any, start: Any, by_bottom: Any, n_binary: int,
    base: Any, word_class: Any, bucket: Any, label: Any, chain_start: Any, chain_label: Any, gold: Any, g0: int, g1: int,
    unit: float, beam: float, coarse: Any, allowed: Any, members: Any, begin: int, end: int, bottom: Any, bottom_sum: Any,
    top: Any, top_sum: Any, seen: Any,
) -> int:  # fmt: skip
    """Bottoms with all that belongs to them, and tops; returns the new end of the column's members."""
    span, last = j * (j - 1) // 2 + k, end
    # To pass that many arrays takes longer than the common cases: nothing to add, or a bracket that is wrong for sure.
    wide, simple = j - k > 1, g0 == g1
    more = wide and (not simple or base[FIRST] >= 0 or base[LAST] >= 0 or base[LENGTH] >= 0)
    for q in range(begin, last):
        a = members[q]
        at = a * n + k
        x = bottom[at]
        if x == -np.inf:
            continue
        if len(allowed) > 0 and not allowed[span, coarse[a]]:
            bottom[at] = -np.inf
            continue
        if temperature > 0.0:
            x += temperature * np.log(bottom_sum[at])
        if more:
            x += bottom_score(a, k, j, first, token, w, base, word_class, bucket, label, gold, g0, g1, unit)
        elif wide and label[a] >= 0:
            x += unit
        bottom[at] = x
        put(x, at, temperature, top, top_sum)
        for r in range(start[BOTTOM, a], start[BOTTOM, a + 1]):
            t, rule = by_bottom[r, SYMBOL], by_bottom[r, RULE]
            if simple:
                u = rule - n_binary
                y = x + (w[rule] + unit * (chain_start[u + 1] - chain_start[u]))
            else:
                y = x + chain_score(rule, a, j - k, n_binary, w, label, chain_start, chain_label, gold, g0, g1, unit)
            if y > -np.inf and (len(allowed) == 0 or allowed[span, coarse[t]]):
                if seen[t] == 0:
                    seen[t], members[end] = 1, t
                    end += 1
                put(y, t * n + k, temperature, top, top_sum)
    if temperature > 0.0:
        for q in range(begin, end):
            at = members[q] * n + k
            if top[at] > -np.inf:
                top[at] += temperature * np.log(top_sum[at])
    if beam < np.inf:
        best = -np.inf
        for q in range(begin, end):
            best = max(best, top[members[q] * n + k])
        for q in range(begin, end):
            at = members[q] * n + k
            if top[at] < best - beam:
                top[at] = -np.inf
    return end


@inner
def push_span(
    k: int, j: int, n: int, w: Any, start: Any, by_right: Any, right_weight: Any, base: Any, bucket: Any,
    slot: Any, chart: Any, members: Any, begin: int, end: int, bottom: Any, top: Any, seen: Any,
) -> int:  # fmt: skip
    """Push the tops of the span (k, j) to all spans that it is the right part of; returns the new end of the members."""
    split = base[SPLIT]
    for q in range(begin, end):
        c = members[q]
        x = top[c * n + k]
        if x == -np.inf:
            continue
        for r in range(start[RIGHT, c], start[RIGHT, c + 1]):
            left = slot[k, by_right[r, LEFT]]
            if left < 0:
                continue
            a, y = by_right[r, OTHER], x + right_weight[r]
            if split >= 0:
                y += w[split + a * base[N_BUCKETS] + bucket[j - k]]
            if seen[a] == 0:
                seen[a], members[end] = 1, a
                end += 1
            push_max(chart, left, k, y, bottom, a * n)
    return end


@inner
def push_span_sum(
    k: int, j: int, n: int, temperature: float, w: Any, start: Any, by_right: Any, right_weight: Any, base: Any, bucket: Any,
    slot: Any, chart: Any, members: Any, begin: int, end: int, bottom: Any, bottom_sum: Any, top: Any, seen: Any,
) -> int:  # fmt: skip
    """The same with sums of exponentials. Apart, because what is called from two places in one function is not inlined."""
    split = base[SPLIT]
    for q in range(begin, end):
        c = members[q]
        x = top[c * n + k]
        if x == -np.inf:
            continue
        for r in range(start[RIGHT, c], start[RIGHT, c + 1]):
            left = slot[k, by_right[r, LEFT]]
            if left < 0:
                continue
            a, y = by_right[r, OTHER], x + right_weight[r]
            if split >= 0:
                y += w[split + a * base[N_BUCKETS] + bucket[j - k]]
            if seen[a] == 0:
                seen[a], members[end] = 1, a
                end += 1
            push_sum(chart, left, k, y, temperature, bottom, bottom_sum, a * n)
    return end


@inner
def put(x: float, at: int, temperature: float, value: Any, total: Any) -> None:
    """Take one more x > -inf into a maximum, or into a sum of exponentials: T log sum exp is value + T log total."""
    if temperature == 0.0:
        value[at] = max(value[at], x)
    elif x <= value[at]:
        far = (x - value[at]) / temperature
        if far > FAR:
            total[at] += np.exp(far)
    else:
        total[at] = total[at] * np.exp((value[at] - x) / temperature) + 1.0
        value[at] = x


@inner
def push_max(chart: Any, left: int, k: int, y: float, bottom: Any, at: int) -> None:
    """Raise bottoms to the tops of a row plus y. A function of its own, or slices count references, which costs twice the time."""
    tops, out = chart[left : left + k], bottom[at : at + k]
    for i in range(k):
        out[i] = max(out[i], tops[i] + y)


@inner
def push_sum(
    chart: Any, left: int, k: int, y: float, temperature: float, bottom: Any, bottom_sum: Any, at: int
) -> None:
    """The same with sums of exponentials."""
    for i in range(k):
        x = chart[left + i] + y
        if x > -np.inf:
            put(x, at + i, temperature, bottom, bottom_sum)


# ------------------------------------------------------------------------------------------------------- terms of the score


@inner
def bottom_score(
    a: int, i: int, j: int, first: int, token: Any, w: Any, base: Any, word_class: Any, bucket: Any, label: Any, gold: Any,
    g0: int, g1: int, unit: float,
) -> float:  # fmt: skip
    """What a bottom of two words and more has of its own: span features and its bracket."""
    out = 0.0
    if base[FIRST] >= 0:
        out += w[base[FIRST] + a * base[N_CLASSES] + word_class[token[first + i]]]
    if base[LAST] >= 0:
        out += w[base[LAST] + a * base[N_CLASSES] + word_class[token[first + j - 1]]]
    if base[LENGTH] >= 0:
        out += w[base[LENGTH] + a * base[N_BUCKETS] + bucket[j - i]]
    if unit != 0.0:
        out += unit * bottom_brackets(label[a], gold, g0, g1)
    return out


@inner
def chain_score(
    rule: int, a: int, length: int, n_binary: int, w: Any, label: Any, chain_start: Any, chain_label: Any, gold: Any, g0: int,
    g1: int, unit: float,
) -> float:  # fmt: skip
    """The weight of a chain over the bottom a, and its brackets."""
    if unit == 0.0:
        return float(w[rule])
    own = label[a] if length > 1 else -1
    return float(w[rule] + unit * chain_brackets(rule - n_binary, own, chain_start, chain_label, gold, g0, g1))


@inner
def bottom_brackets(own: int, gold: Any, g0: int, g1: int) -> int:
    """|P| - 2 |P and G| of a bottom with this label, or none (-1), where the truth has gold[g0:g1]."""
    return 0 if own < 0 else 1 - 2 * overlap(own, 0, 0, gold[:0, 0], gold, g0, g1)


@inner
def chain_brackets(u: int, own: int, chain_start: Any, chain_label: Any, gold: Any, g0: int, g1: int) -> int:
    """What chain u adds to that of the bottom below it."""
    c0, c1 = chain_start[u], chain_start[u + 1]
    if g0 == g1:
        return int(c1 - c0)
    both = overlap(own, c0, c1, chain_label, gold, g0, g1) - overlap(own, c0, c0, chain_label, gold, g0, g1)
    return int(c1 - c0 - 2 * both)


@inner
def overlap(own: int, c0: int, c1: int, chain_label: Any, gold: Any, g0: int, g1: int) -> int:
    """How many of the truth's brackets a span has, counted with repetitions."""
    out = 0
    for g in range(g0, g1):
        name = gold[g, G_LABEL]
        spare = 1 if own == name else 0
        for c in range(c0, c1):
            spare += chain_label[c] == name
        for earlier in range(g0, g):
            spare -= gold[earlier, G_LABEL] == name
        out += spare > 0
    return out


@inner
def gold_of(i: int, j: int, gold: Any, g0: int, g1: int) -> tuple[int, int]:
    """The truth's brackets of a span."""
    while g0 < g1 and (gold[g0, G_END] != j or gold[g0, G_BEGIN] != i):
        g0 += 1
    end = g0
    while end < g1 and gold[end, G_END] == j and gold[end, G_BEGIN] == i:
        end += 1
    return g0, end


# ------------------------------------------------------------------------------------------------------- derivations


# ------------------------------------------------------------------------------------------------------- from the root down


# ------------------------------------------------------------------------------------------------------- features

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

No back pointers are kept: one_best.py and k_best.py read derivations off the chart, inside_outside.py has marginals, parser.py asks
them.

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

from maxmargin.jit import Struct, inner, records
from maxmargin.parsing.grammar import short_record
from maxmargin.problems.layout import offsets

#: Binary rules by their right symbol and by their parent, chains and words by one of their symbols: what else the rule has, and its
#: number.
BY_RIGHT = short_record("left", "parent", "rule")
BY_PARENT = short_record("left", "right", "rule")
BY_SYMBOL = short_record("symbol", "rule")
#: `start`: where the rules of a symbol begin in each table.
START = short_record("right", "parent", "bottom", "top")
#: A bracket of the truth.
BRACKET = short_record("begin", "end", "label")
#: Probabilities below this, and exponents, are as good as none: all of a long sentence's together are below 1e-11.
NEVER, FAR = 1e-17, -40.0


class Rules(Struct):
    """A grammar as charts read it: rules by each of their symbols. All int32."""

    #: (S + 1,)
    start: Any
    by_right: Any
    by_parent: Any
    by_bottom: Any
    by_top: Any
    #: (tokens + 2,): the last token has no tags, and stands for words that the grammar does not know.
    token_start: NDArray[np.int32]
    by_token: Any
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

    #: The first weight of each feature, or -1 without it.
    first: int = -1
    last: int = -1
    length: int = -1
    split: int = -1
    n_classes: int = 0
    n_buckets: int = 0
    #: (tokens + 1,): class of a first or last word.
    word_class: NDArray[np.int32] = np.empty(0, np.int32)
    #: (longest + 1,): bucket of a length.
    bucket: NDArray[np.int32] = np.empty(0, np.int32)


class Brackets(Struct):
    """Sentences, and the labelled brackets of their truths.

    Brackets are the labels of a tree above its tags; hidden symbols have none. With P and G the multisets of (begin, end, label)
    of a derivation and of the truth, the number that is *wrong* is |P| + |G| - 2 |P and G|, a sum over spans.
    """

    #: (M + 1,), and the tokens of all sentences.
    start: NDArray[np.int64]
    token: NDArray[np.int32]
    #: (M + 1,), and brackets in the order of the chart: by end, then from the last begin to the first.
    gold_start: NDArray[np.int64]
    gold: Any


class Task(Struct):
    """What charts are made from: a grammar, sentences, and how derivations are scored."""

    rules: Rules
    features: SpanFeatures
    sentences: Brackets
    w: NDArray[np.float64]
    #: The weights in the order of ``rules.by_right``.
    right_weight: NDArray[np.float64]
    #: (M,): what a wrong bracket adds to the score.
    unit: NDArray[np.float64]
    #: 0 for the best derivations.
    temperature: float
    beam: float = np.inf


class ChartRoom(Struct):
    """What the chart of a sentence needs beside its rows."""

    #: (words + 1, symbols): slot[j, A] is where the row of A in column j begins: j tops by their begins, then as many bottoms; -1
    #: if there is none.
    slot: NDArray[np.int64]
    #: The symbols that have a row are members[member_start[j]:member_start[j + 1]].
    members: NDArray[np.int32]
    member_start: NDArray[np.int64]
    #: The column in work: its symbols, and their bottoms and tops; T log sum exp is bottom + T log bottom_sum.
    seen: NDArray[np.int8]
    bottom: NDArray[np.float64]
    bottom_sum: NDArray[np.float64]
    top: NDArray[np.float64]
    top_sum: NDArray[np.float64]
    #: (spans, coarse symbols): what pruning has left; empty without coarse symbols.
    allowed: NDArray[np.bool_]

    @classmethod
    def of(cls, longest: int, n_symbols: int, sums: bool, n_coarse: int = 0) -> ChartRoom:
        """Room for sentences of that many words; with sums of exponentials, or without."""
        n = longest * n_symbols
        bottom_sum, top_sum = np.zeros((2, n if sums else 0))
        return cls(
            np.full((longest + 1, n_symbols), -1, np.int64), np.empty(n, np.int32), np.zeros(longest + 2, np.int64),
            np.zeros(n_symbols, np.int8), np.full(n, -np.inf), bottom_sum, np.full(n, -np.inf), top_sum,
            np.empty((longest * (longest + 1) // 2 if n_coarse else 0, n_coarse), np.bool_),
        )  # fmt: skip


def chart_rules(grammar: Any) -> Rules:
    """A grammar as charts read it."""
    binary, unary, lexical, n = grammar.binary, grammar.unary, grammar.lexical, len(grammar.symbols)
    of_binary, of_unary, of_lexical = np.split(np.arange(grammar.n_rules), [len(binary), len(binary) + len(unary)])
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
    for table, key, size in (
        (records(BY_RIGHT, binary[:, 1], binary[:, 0], of_binary), binary[:, 2], n),
        (records(BY_PARENT, binary[:, 1], binary[:, 2], of_binary), binary[:, 0], n),
        (records(BY_SYMBOL, unary[:, 0], of_unary), unary[:, 1], n),
        (records(BY_SYMBOL, unary[:, 1], of_unary), unary[:, 0], n),
        (records(BY_SYMBOL, lexical[:, 0], of_lexical), lexical[:, 1], grammar.n_tokens + 1),
    ):
        tables.append(table[np.argsort(key, kind="stable")])
        starts.append(offsets(np.bincount(key, minlength=size)))
    by_right, by_parent, by_bottom, by_top, by_token = tables
    return Rules(
        records(START, *starts[:4]),
        by_right,
        by_parent,
        by_bottom,
        by_top,
        starts[4].astype(np.int32),
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
def clear_chart(room: Any, n: int) -> None:
    """Leave no slots for the next sentence."""
    slot, members, member_start = room.slot, room.members, room.member_start
    for j in range(1, n + 1):
        for q in range(member_start[j], member_start[j + 1]):
            slot[j, members[q]] = -1


# ------------------------------------------------------------------------------------------------------- from the words up


@inner
def fill_chart(task: Any, m: int, room: Any, chart: Any, pruned: bool) -> Any:
    """Fill the chart of sentence m, with maxima if the temperature is 0; returns its rows, in a larger array if need be."""
    s_start, token, gold_start, gold = (
        task.sentences.start, task.sentences.token, task.sentences.gold_start, task.sentences.gold,
    )  # fmt: skip
    w, token_start, by_token, temperature = task.w, task.rules.token_start, task.rules.by_token, task.temperature
    slot, members, member_start, seen = room.slot, room.members, room.member_start, room.seen
    bottom, bottom_sum, top, top_sum = room.bottom, room.bottom_sum, room.top, room.top_sum
    first, n, g, last = s_start[m], s_start[m + 1] - s_start[m], gold_start[m], gold_start[m + 1]
    used, begin = 0, 0
    for j in range(1, n + 1):
        member_start[j] = begin
        end, word = begin, token[first + j - 1]
        for r in range(token_start[word], token_start[word + 1]):
            a, x = by_token[r].symbol, w[by_token[r].rule]
            if x > -np.inf:
                put(x, a * n + j - 1, temperature, bottom, bottom_sum)
                seen[a], members[end] = 1, a
                end += 1
        for k in range(j - 1, -1, -1):
            own = g
            while g < last and gold[g].end == j and gold[g].begin == k:
                g += 1
            end = finish_span(task, m, room, (k, j, own, g), end, pruned)
            if k > 0:
                end = push_span(task, room, chart, n, k, j, end)

        if used + 2 * j * (end - begin) > len(chart):
            larger = np.empty(2 * (used + 2 * j * (end - begin)))
            # A loop: to assign a slice would compile the text of the error that slices of other shapes raise.
            for at in range(used):
                larger[at] = chart[at]
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
def finish_span(task: Any, m: int, room: Any, span: Any, end: int, pruned: bool) -> int:
    """Bottoms with all that belongs to them, and tops; returns the new end of the column's members.

    A span is its begin and end, and where the truth's brackets of it begin and end.
    """
    k, j, _, _ = span
    start, by_bottom, coarse, temperature = task.rules.start, task.rules.by_bottom, task.rules.coarse, task.temperature
    members, seen, bottom, bottom_sum, top, top_sum = (
        room.members, room.seen, room.bottom, room.bottom_sum, room.top, room.top_sum,
    )  # fmt: skip
    n, begin = task.sentences.start[m + 1] - task.sentences.start[m], room.member_start[j]
    allowed, row, last = room.allowed, j * (j - 1) // 2 + k, end
    masked = pruned and len(allowed) > 0
    for q in range(begin, last):
        a = members[q]
        at = a * n + k
        x = bottom[at]
        if x == -np.inf:
            continue
        if masked and not allowed[row, coarse[a]]:
            bottom[at] = -np.inf
            continue
        if temperature > 0.0:
            x += temperature * np.log(bottom_sum[at])
        if j - k > 1:
            x += bottom_score(task, m, a, span)
        bottom[at] = x
        put(x, at, temperature, top, top_sum)
        for r in range(start[a].bottom, start[a + 1].bottom):
            t = by_bottom[r].symbol
            y = x + chain_score(task, m, by_bottom[r].rule, a, span)
            if y > -np.inf and (not masked or allowed[row, coarse[t]]):
                if seen[t] == 0:
                    seen[t], members[end] = 1, t
                    end += 1
                put(y, t * n + k, temperature, top, top_sum)
    if temperature > 0.0:
        for q in range(begin, end):
            at = members[q] * n + k
            if top[at] > -np.inf:
                top[at] += temperature * np.log(top_sum[at])
    if pruned and task.beam < np.inf:
        best = -np.inf
        for q in range(begin, end):
            best = max(best, top[members[q] * n + k])
        for q in range(begin, end):
            at = members[q] * n + k
            if top[at] < best - task.beam:
                top[at] = -np.inf
    return end


@inner
def push_span(task: Any, room: Any, chart: Any, n: int, k: int, j: int, end: int) -> int:
    """Push the tops of the span (k, j) to all spans that it is the right part of; returns the new end of the members."""
    start, by_right, right_weight, temperature = (
        task.rules.start, task.rules.by_right, task.right_weight, task.temperature,
    )  # fmt: skip
    w, bucket, split, n_buckets = task.w, task.features.bucket, task.features.split, task.features.n_buckets
    slot, members, seen, bottom, bottom_sum, top = (
        room.slot, room.members, room.seen, room.bottom, room.bottom_sum, room.top,
    )  # fmt: skip
    for q in range(room.member_start[j], end):
        c = members[q]
        x = top[c * n + k]
        if x == -np.inf:
            continue
        for r in range(start[c].right, start[c + 1].right):
            left = slot[k, by_right[r].left]
            if left < 0:
                continue
            a, y = by_right[r].parent, x + right_weight[r]
            if split >= 0:
                y += w[split + a * n_buckets + bucket[j - k]]
            if seen[a] == 0:
                seen[a], members[end] = 1, a
                end += 1
            if temperature == 0.0:
                push_max(chart, left, k, y, bottom, a * n)
            else:
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
def bottom_score(task: Any, m: int, a: int, span: Any) -> float:
    """What a bottom of two words and more has of its own: span features and its bracket."""
    features, w, token, unit = task.features, task.w, task.sentences.token, task.unit[m]
    i, j, g0, g1 = span
    out, begin = 0.0, task.sentences.start[m]
    if features.first >= 0:
        out += w[features.first + a * features.n_classes + features.word_class[token[begin + i]]]
    if features.last >= 0:
        out += w[features.last + a * features.n_classes + features.word_class[token[begin + j - 1]]]
    if features.length >= 0:
        out += w[features.length + a * features.n_buckets + features.bucket[j - i]]
    if unit != 0.0:
        out += unit * bottom_brackets(task, task.rules.label[a], g0, g1)
    return out


@inner
def chain_score(task: Any, m: int, rule: int, a: int, span: Any) -> float:
    """The weight of a chain over the bottom a, and its brackets."""
    w, unit = task.w, task.unit[m]
    if unit == 0.0:
        return float(w[rule])
    return float(w[rule] + unit * chain_brackets(task, rule, a, span))


@inner
def bottom_brackets(task: Any, own: int, g0: int, g1: int) -> int:
    """|P| - 2 |P and G| of a bottom with this label, or none (-1), where the truth has gold[g0:g1]."""
    return 0 if own < 0 else 1 - 2 * overlap(task, own, 0, 0, g0, g1)


@inner
def chain_brackets(task: Any, rule: int, a: int, span: Any) -> int:
    """What a chain adds to that of the bottom a below it."""
    i, j, g0, g1 = span
    u, chain_start = rule - len(task.rules.by_right), task.rules.chain_start
    c0, c1 = chain_start[u], chain_start[u + 1]
    if g0 == g1:
        return int(c1 - c0)
    own = task.rules.label[a] if j - i > 1 else -1
    return int(c1 - c0 - 2 * (overlap(task, own, c0, c1, g0, g1) - overlap(task, own, c0, c0, g0, g1)))


@inner
def overlap(task: Any, own: int, c0: int, c1: int, g0: int, g1: int) -> int:
    """How many of the truth's brackets a span has, counted with repetitions."""
    gold, chain_label, out = task.sentences.gold, task.rules.chain_label, 0
    for g in range(g0, g1):
        name = gold[g].label
        spare = 1 if own == name else 0
        for c in range(c0, c1):
            spare += chain_label[c] == name
        for earlier in range(g0, g):
            spare -= gold[earlier].label == name
        out += spare > 0
    return out


@inner
def span_of(sentences: Any, m: int, i: int, j: int) -> tuple[int, int, int, int]:
    """A span with the place of the truth's brackets of it."""
    gold, begin, last = sentences.gold, sentences.gold_start[m], sentences.gold_start[m + 1]
    while begin < last and (gold[begin].end != j or gold[begin].begin != i):
        begin += 1
    end = begin
    while end < last and gold[end].end == j and gold[end].begin == i:
        end += 1
    return i, j, begin, end

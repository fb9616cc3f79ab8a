"""Charts of weighted context-free grammars (CKY): the best derivation, the k best, and inside-outside, exact.

Notation
--------
Words count from 0; the span (i, j) holds words i to j - 1. A grammar (problems/grammar.py) gives every span of a derivation
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

No back pointers are kept. Derivations are read off lazily (Huang and Chiang, Better k-best Parsing, 2005, algorithm 3): a
node, which is a top or a bottom of one span, looks through its rules and splits only when a derivation goes through it. Its
k best edges wait in a list; when the best one leaves, it comes back with the next best derivation of its right part, or of
its left part if the right one is still the best, so that each combination comes once.

Marginals go from the root down (as in trees.py): a node's probability goes to its edges in proportion to exp(. / T), and is
added to their parts. Nothing is divided out.

Pruning, off by default, makes all this inexact: ``beam`` leaves only tops within so much of the span's best one, and
``coarse`` only the (span, symbol) whose coarse symbol has at least that posterior probability under a grammar of coarse
symbols: labels, with the hidden symbols of a label taken as one. A coarse rule weighs as much as the heaviest of its rules.
A sentence that has no derivation left is parsed again without pruning.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.errors import OptionError, TooLargeError
from maxmargin.inference.contract import check_temperature
from maxmargin.inference.top_k import MOST_BYTES
from maxmargin.jit import inner, kernel
from maxmargin.parallel.threads import run_shards
from maxmargin.problems.layout import offsets

# Rows of `start`: where the rules of a symbol begin in `by_right`, `by_parent`, `by_bottom` and `by_top`.
RIGHT, PARENT, BOTTOM, TOP = range(4)
# Columns of `by_right` (left, parent, rule), of `by_parent` (left, right, rule), and of the tables of chains and words: the
# other symbol and the rule.
LEFT, OTHER, NUMBER = range(3)
SYMBOL, RULE = range(2)
# Columns of a derivation, as in problems/grammar.py, and of `gold`.
D_BEGIN, D_END, D_SYMBOL, D_RULE, D_SPLIT = range(5)
G_BEGIN, G_END, G_LABEL = range(3)
# Entries of `base`: the first weight of each span feature, or -1 without it; then the number of word classes and of buckets.
FIRST, LAST, LENGTH, SPLIT, N_CLASSES, N_BUCKETS = range(6)
# `nodes`: the span, the symbol, the kind; derivations found, first of the candidates, the part to look at next, exhausted.
N_BEGIN, N_END, N_SYMBOL, N_KIND, N_FOUND, N_HEAD, N_PART, N_DONE = range(8)
IS_BOTTOM, IS_TOP, IS_ROOT = range(3)
# `candidates`: rule (of a top: -1 for none; of the root: the symbol), split, ranks of both parts, the next of the list.
C_RULE, C_SPLIT, C_LEFT, C_RIGHT, C_NEXT = range(5)
#: Probabilities below this, and exponents, are as good as none: all of a long sentence's together are below 1e-11.
_NEVER, _FAR = 1e-17, -40.0


class Rules(NamedTuple):
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


class SpanFeatures(NamedTuple):
    """Weights of (symbol, property) of spans of two words and more; they come after those of the rules."""

    #: (6,) int64
    base: NDArray[np.int64]
    #: (tokens + 1,): class of a first or last word.
    word_class: NDArray[np.int32]
    #: (longest + 1,): bucket of a length.
    bucket: NDArray[np.int32]


class Brackets(NamedTuple):
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


class Derivations(NamedTuple):
    """The best derivations of some sentences, best first."""

    #: (n, k): scores, with the loss if it was asked for; -inf where there are fewer than k.
    values: NDArray[np.float64]
    #: (n, k): brackets that are wrong.
    wrong: NDArray[np.int64]
    #: (n k + 1,), and rows (begin, end, symbol, rule, split): those of rank r of the m-th begin at ``start[m k + r]``.
    start: NDArray[np.int64]
    rows: NDArray[np.int32]


class Pruning(NamedTuple):
    """What kernels know of pruning; beam is +inf and coarse 0 where it is off."""

    beam: float
    coarse: float
    rules: Rules
    #: The coarse rule of each rule; empty without coarse symbols.
    rule: NDArray[np.int32]


class Parser:
    """CKY with one grammar.

    Parameters
    ----------
    grammar : Grammar
    features : SpanFeatures, optional
    beam : float, optional
        Keep only the tops of a span that score at most this much below its best.
    coarse : float, optional
        Keep only what has at least this posterior probability under the coarse grammar.
    memory : int
        Bytes that a chart may take, in each thread; a longer sentence is refused.
    """

    def __init__(
        self,
        grammar: Any,
        features: SpanFeatures | None = None,
        beam: float | None = None,
        coarse: float | None = None,
        memory: int = 1 << 31,
    ) -> None:
        if beam is not None and not beam >= 0.0:
            raise OptionError(f"beam={beam!r} is not possible; it must be a number that is not negative, or None.")
        if coarse is not None and not 0.0 <= coarse < 1.0:
            raise OptionError(f"coarse={coarse!r} is not possible; it must be a probability below 1, or None.")
        self.grammar, self.memory = grammar, memory
        self.rules = chart_rules(grammar)
        self.features = features or SpanFeatures(
            np.array([-1, -1, -1, -1, 0, 0]), np.empty(0, np.int32), np.empty(0, np.int32)
        )
        self.exact = beam is None and coarse is None
        tables = coarse_rules(grammar, self.rules) if coarse is not None else (self.rules, np.empty(0, np.int32))
        self.pruning = Pruning(np.inf if beam is None else float(beam), float(coarse or 0.0), *tables)

    def check_length(self, start: NDArray[np.int64], name: str = "Example") -> None:
        """Refuse a sentence whose chart could take more memory than there may be."""
        lengths = np.diff(start)
        if len(lengths):
            m, n, symbols = int(lengths.argmax()), int(lengths.max()), len(self.grammar.symbols)
            needed = 8 * n * (n + 1) * symbols
            if needed > self.memory:
                raise TooLargeError(
                    f"{name} {m} has {n} words: its chart with {symbols} symbols could take {needed / 1e9:.1f} GB, and "
                    f"{self.memory / 1e9:.1f} GB are allowed (memory={self.memory}); shorten it or allow more."
                )

    def best(
        self,
        sentences: Brackets,
        w: NDArray[np.float64],
        k: int = 1,
        chosen: NDArray[np.int64] | None = None,
        units: NDArray[np.float64] | None = None,
        threads: int = 1,
    ) -> Derivations:
        """The k best derivations of some sentences, or all of them where there are fewer.

        Parameters
        ----------
        sentences : Brackets
        w : float array (d,)
        k : int
            At least 1.
        chosen : int array, optional
            Which sentences; all of them by default.
        units : float array (M,), optional
            What a wrong bracket adds to the score.
        threads : int
        """
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
            raise OptionError(f"k={k!r} is not possible; it must be a whole number of at least 1.")
        self.check_length(sentences.start)
        some, unit = self._chosen(sentences, chosen, units)
        k, n = int(k), np.diff(sentences.start)[some]
        size = k * (20 * int(np.maximum(4 * n - 2, 0).sum()) + 32 * len(some))
        if size > MOST_BYTES:
            raise TooLargeError(
                f"k={k} derivations of each of {len(some)} sentences take {size} bytes; the limit is {MOST_BYTES} "
                "(maxmargin.inference.top_k.MOST_BYTES). Ask for fewer, or for fewer sentences at a time."
            )
        # Every span of a derivation has a bottom, and may have a chain.
        room = offsets(np.repeat(np.maximum(4 * n - 2, 0), k))
        rows = np.empty((int(room[-1]), 5), np.int32)
        values, wrong, sizes = (
            np.full((len(some), k), -np.inf),
            np.zeros((len(some), k), np.int64),
            np.zeros(len(room) - 1, np.int64),
        )

        def shard(begin: int, end: int) -> None:
            _best(
                self.rules, self.features, sentences, self.pruning, w, k, some[begin:end], unit, room[begin * k :],
                values[begin:end], wrong[begin:end], sizes[begin * k : end * k], rows,
            )  # fmt: skip

        run_shards(shard, len(some), threads)
        start = offsets(sizes)
        return Derivations(values, wrong, start, rows[np.repeat(room[:-1] - start[:-1], sizes) + np.arange(start[-1])])

    def expect(
        self,
        sentences: Brackets,
        w: NDArray[np.float64],
        temperature: float,
        times: NDArray[np.float64],
        counts: NDArray[np.float64],
        chosen: NDArray[np.int64] | None = None,
        units: NDArray[np.float64] | None = None,
        against: tuple[float, NDArray[np.float64]] = (0.0, np.empty(0)),
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Add times[m] E_m[phi] to counts, under p(y) ~ exp(score / T); returns the log partitions and E_m[wrong] of `chosen`.

        With ``against = (scale, scores)`` every derivation but the truth, whose score is scores[m], scores `scale` more. Then what
        is added is times[m] f_m E_m[phi] with f_m = 1 / (1 - p_m (1 - exp(-scale / T))), where E, the log partitions and p_m, the
        probability of the truth, which is returned in the place of E_m[wrong], are those without `scale`. A sentence without a
        derivation has -inf and 0, and adds nothing.
        """
        temperature = check_temperature(temperature)
        self.check_length(sentences.start)
        some, unit = self._chosen(sentences, chosen, units)
        values, wrong = np.empty(len(some)), np.empty(len(some))
        _expect(
            self.rules, self.features, sentences, w, temperature, some, unit, times, *against, values, wrong, counts
        )
        return values, wrong

    def scores(
        self, w: NDArray[np.float64], start: NDArray[np.int64], rows: NDArray[np.int32], tokens: Any
    ) -> NDArray[np.float64]:
        """Inner products w . phi of derivations; ``tokens`` are (first of each derivation's sentence, all tokens)."""
        out = np.empty(len(start) - 1)
        _derivation_scores(self.features, start, rows, *tokens, w, out)
        return out

    def add_features(
        self, start: NDArray[np.int64], rows: NDArray[np.int32], tokens: Any, times: NDArray[np.float64], out: NDArray[np.float64]
    ) -> None:  # fmt: skip
        """Add times[m] phi of the m-th derivation to out (d,)."""
        _add_features(self.features, start, rows, *tokens, times, out)

    def list_features(
        self, start: NDArray[np.int64], rows: NDArray[np.int32], tokens: Any
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The weights that derivations use, with repetitions: where each one's begin (n + 1,), and their numbers."""
        per_row = 1 + np.count_nonzero(self.features.base[: SPLIT + 1] >= 0) * (rows[:, D_SPLIT] >= 0)
        first = offsets(per_row)
        indices = np.empty(int(first[-1]), np.int64)
        _list_features(self.features, start, rows, *tokens, indices)
        return first[start], indices

    def _chosen(self, sentences: Brackets, chosen: Any, units: Any) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        n = len(sentences.start) - 1
        some = np.arange(n) if chosen is None else np.ascontiguousarray(chosen, np.int64)
        return some, np.zeros(n) if units is None else np.ascontiguousarray(units, np.float64)


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


@kernel
def _best(
    rules: Any, features: Any, sentences: Any, pruning: Any, w: Any, k: int, chosen: Any, unit: Any, room: Any, values: Any,
    wrong: Any, sizes: Any, rows: Any,
) -> None:  # fmt: skip
    """The k best derivations of the chosen sentences; those of rank r of the m-th go to rows[room[m k + r]:]."""
    start, by_right, by_parent, by_bottom, by_top, token_start, by_token, roots = (
        rules.start, rules.by_right, rules.by_parent, rules.by_bottom, rules.by_top, rules.token_start, rules.by_token,
        rules.roots,
    )  # fmt: skip
    label, chain_start, chain_label, coarse = rules.label, rules.chain_start, rules.chain_label, rules.coarse
    base, word_class, bucket = features.base, features.word_class, features.bucket
    s_start, token, gold_start, gold = sentences.start, sentences.token, sentences.gold_start, sentences.gold
    longest = longest_of(chosen, s_start)
    slot, members, member_start, seen, bottom, top = chart_room(longest, len(label))
    chart, nothing = np.empty(1 << 12), np.empty(0)
    right_weight = weights_of(by_right, w)
    anything = np.empty((0, 0), np.bool_)

    # The coarse chart, which is empty if there is none.
    c = pruning.rules
    size = longest if pruning.coarse > 0.0 else 0
    c_slot, c_members, c_member_start, c_seen, c_bottom, c_top = chart_room(size, len(c.label))
    c_bottom_sum, c_top_sum = np.zeros_like(c_bottom), np.zeros_like(c_top)
    c_chart, mu, no_base = np.empty(1 << 12), np.empty(0), np.full(6, -1)
    c_w = coarse_weights(pruning.rule, w)
    c_right_weight, c_counts = weights_of(c.by_right, c_w) if size > 0 else nothing, np.zeros(len(c_w))
    allowed = np.empty((size * (size + 1) // 2, len(c.label)), np.bool_)

    n_nodes = 4 * longest * (k + 2) + 16
    bits = 3
    while 1 << bits < 2 * n_nodes:
        bits += 1
    keys, held = np.empty(1 << bits, np.int64), np.empty(1 << bits, np.int32)
    nodes, found = np.empty((n_nodes, 8), np.int32), np.empty((n_nodes, k), np.int32)
    candidates, value = np.empty(((k + 2) * n_nodes, 5), np.int32), np.empty((k + 2) * n_nodes)
    stack, count = np.empty((8 * longest + 16, 2), np.int32), np.zeros(2, np.int64)

    for e in range(len(chosen)):
        m = chosen[e]
        first, n, g0, g1 = s_start[m], s_start[m + 1] - s_start[m], gold_start[m], gold_start[m + 1]
        if n == 0:
            continue
        mask = anything
        if size > 0:
            c_chart = fill_chart(
                n, first, token, 1.0, c_w, c.start, c.by_right, c_right_weight, c.by_bottom, c.token_start, c.by_token,
                no_base, word_class, bucket, c.label, c.chain_start, c.chain_label, gold, 0, 0, 0.0, np.inf, c.coarse,
                anything, c_slot, c_chart, c_members, c_member_start, c_bottom, c_bottom_sum, c_top, c_top_sum, c_seen,
            )  # fmt: skip
            total = log_partition(n, 1.0, c.roots, c_slot, c_chart)
            if total > -np.inf:
                if len(mu) < len(c_chart):
                    mu = np.empty(len(c_chart))
                spread(
                    n, first, token, 1.0, total, c_w, c.start, c.by_parent, c.by_top, c.by_token, c.token_start, c.roots,
                    no_base, word_class, bucket, c.label, c.chain_start, c.chain_label, gold, 0, 0, 0.0, 0.0, c_slot,
                    c_chart, mu, c_members, c_member_start, c_counts,
                )  # fmt: skip
                mark_likely(n, pruning.coarse, c_slot, mu, c_members, c_member_start, allowed)
                mask = allowed
            clear_chart(n, c_slot, c_members, c_member_start)

        beam = pruning.beam
        while True:
            chart = fill_chart(
                n, first, token, 0.0, w, start, by_right, right_weight, by_bottom, token_start, by_token, base, word_class,
                bucket, label, chain_start, chain_label, gold, g0, g1, unit[m], beam, coarse, mask, slot, chart, members,
                member_start, bottom, nothing, top, nothing, seen,
            )  # fmt: skip
            if log_partition(n, 0.0, roots, slot, chart) > -np.inf or (beam == np.inf and len(mask) == 0):
                break
            # Pruning has left nothing.
            clear_chart(n, slot, members, member_start)
            beam, mask = np.inf, anything

        count[0], count[1] = 1, 0
        keys[:] = -1
        nodes[0, N_BEGIN], nodes[0, N_END], nodes[0, N_SYMBOL], nodes[0, N_KIND] = 0, n, -1, IS_ROOT
        nodes[0, N_FOUND], nodes[0, N_HEAD], nodes[0, N_PART], nodes[0, N_DONE] = 0, -2, 0, 0
        for r in range(k):
            next_best(
                0, r, k, n, first, token, w, start, by_parent, by_top, token_start, by_token, roots, base, word_class,
                bucket, label, chain_start, chain_label, gold, g0, g1, unit[m], slot, chart, keys, held, nodes, found,
                candidates, value, stack, count,
            )  # fmt: skip
            if nodes[0, N_FOUND] <= r:
                break
            values[e, r] = value[found[0, r]]
            sizes[e * k + r], wrong[e, r] = read_off(
                r, k, n, first, token, w, start, by_parent, by_top, token_start, by_token, roots, base, word_class,
                bucket, label, chain_start, chain_label, gold, g0, g1, unit[m], slot, chart, keys, held, nodes, found,
                candidates, value, stack, count, rows, room[e * k + r],
            )  # fmt: skip
        clear_chart(n, slot, members, member_start)


@kernel
def _expect(
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
        if far > _FAR:
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


# ------------------------------------------------------------------------------------------------------- from the root down


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
                if p < _NEVER:
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
                    if (y - x) / temperature > _FAR:
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
                if p < _NEVER:
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
                        if (y - x) / temperature > _FAR:
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


# ------------------------------------------------------------------------------------------------------- features


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
def _list_features(features: Any, start: Any, rows: Any, firsts: Any, token: Any, indices: Any) -> None:
    """The weights that derivations use, one after the other."""
    base, word_class, bucket = features.base, features.word_class, features.bucket
    own, at = np.empty(5, np.int64), 0
    for m in range(len(start) - 1):
        for row in range(start[m], start[m + 1]):
            for q in range(write_features(row, rows, firsts[m], token, base, word_class, bucket, own)):
                indices[at] = own[q]
                at += 1


@kernel
def _add_features(features: Any, start: Any, rows: Any, firsts: Any, token: Any, times: Any, out: Any) -> None:
    """Add times[m] phi of the m-th derivation to out."""
    base, word_class, bucket = features.base, features.word_class, features.bucket
    own = np.empty(5, np.int64)
    for m in range(len(start) - 1):
        if times[m] != 0.0:
            for row in range(start[m], start[m + 1]):
                for q in range(write_features(row, rows, firsts[m], token, base, word_class, bucket, own)):
                    out[own[q]] += times[m]


@kernel
def _derivation_scores(features: Any, start: Any, rows: Any, firsts: Any, token: Any, w: Any, out: Any) -> None:
    """Inner products w . phi of derivations."""
    base, word_class, bucket = features.base, features.word_class, features.bucket
    own = np.empty(5, np.int64)
    for m in range(len(start) - 1):
        total = 0.0
        for row in range(start[m], start[m + 1]):
            for q in range(write_features(row, rows, firsts[m], token, base, word_class, bucket, own)):
                total += w[own[q]]
        out[m] = total

"""A parser: charts of one grammar over many sentences, in threads.

chart.py has the recursions, k_best.py reads derivations off, inside_outside.py has the marginals.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.errors import OptionError, TooLargeError
from maxmargin.inference.contract import check_temperature
from maxmargin.inference.top_k import MOST_BYTES
from maxmargin.jit import kernel
from maxmargin.parallel.threads import run_shards
from maxmargin.parsing.chart import (
    D_SPLIT,
    SPLIT,
    Brackets,
    Rules,
    SpanFeatures,
    chart_room,
    chart_rules,
    clear_chart,
    coarse_rules,
    coarse_weights,
    fill_chart,
    longest_of,
    weights_of,
)
from maxmargin.parsing.inside_outside import inside_outside, log_partition, mark_likely, spread
from maxmargin.parsing.k_best import (
    IS_ROOT,
    N_BEGIN,
    N_DONE,
    N_END,
    N_FOUND,
    N_HEAD,
    N_KIND,
    N_PART,
    N_SYMBOL,
    next_best,
    read_off,
)
from maxmargin.parsing.span_features import add_features, derivation_scores, list_features
from maxmargin.problems.layout import offsets


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
        inside_outside(
            self.rules, self.features, sentences, w, temperature, some, unit, times, *against, values, wrong, counts
        )
        return values, wrong

    def scores(
        self, w: NDArray[np.float64], start: NDArray[np.int64], rows: NDArray[np.int32], tokens: Any
    ) -> NDArray[np.float64]:
        """Inner products w . phi of derivations; ``tokens`` are (first of each derivation's sentence, all tokens)."""
        out = np.empty(len(start) - 1)
        derivation_scores(self.features, start, rows, *tokens, w, out)
        return out

    def add_features(
        self, start: NDArray[np.int64], rows: NDArray[np.int32], tokens: Any, times: NDArray[np.float64], out: NDArray[np.float64]
    ) -> None:  # fmt: skip
        """Add times[m] phi of the m-th derivation to out (d,)."""
        add_features(self.features, start, rows, *tokens, times, out)

    def list_features(
        self, start: NDArray[np.int64], rows: NDArray[np.int32], tokens: Any
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The weights that derivations use, with repetitions: where each one's begin (n + 1,), and their numbers."""
        per_row = 1 + np.count_nonzero(self.features.base[: SPLIT + 1] >= 0) * (rows[:, D_SPLIT] >= 0)
        first = offsets(per_row)
        indices = np.empty(int(first[-1]), np.int64)
        list_features(self.features, start, rows, *tokens, indices)
        return first[start], indices

    def _chosen(self, sentences: Brackets, chosen: Any, units: Any) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        n = len(sentences.start) - 1
        some = np.arange(n) if chosen is None else np.ascontiguousarray(chosen, np.int64)
        return some, np.zeros(n) if units is None else np.ascontiguousarray(units, np.float64)


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

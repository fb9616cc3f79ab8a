"""A parser: charts of one grammar over many sentences, in threads.

chart.py has the recursions, one_best.py and k_best.py read derivations off, inside_outside.py has the marginals.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.errors import OptionError, TooLargeError
from maxmargin.inference.contract import check_temperature
from maxmargin.inference.top_k import MOST_BYTES
from maxmargin.jit import Struct, kernel
from maxmargin.parallel.threads import run_shards
from maxmargin.parsing.chart import (
    Brackets,
    ChartRoom,
    Rules,
    SpanFeatures,
    Task,
    chart_rules,
    clear_chart,
    coarse_rules,
    fill_chart,
)
from maxmargin.parsing.grammar import ROW
from maxmargin.parsing.inside_outside import inside_outside, log_partition, mark_likely
from maxmargin.parsing.k_best import Search, read_best
from maxmargin.parsing.one_best import WAITING, read_one
from maxmargin.parsing.span_features import add_features, derivation_scores, list_features
from maxmargin.problems.layout import offsets


class Derivations(NamedTuple):
    """The best derivations of some sentences, best first."""

    #: (n, k): scores, with the loss if it was asked for; -inf where there are fewer than k.
    values: NDArray[np.float64]
    #: (n, k): brackets that are wrong.
    wrong: NDArray[np.int64]
    #: (n k + 1,), and rows of derivations (`grammar.ROW`): those of rank r of the m-th begin at ``start[m k + r]``.
    start: NDArray[np.int64]
    rows: Any


class Rooms(Struct):
    """What a thread works in: charts of sentences of at most so many words, and parts of a derivation that are yet to be read."""

    longest: int
    chart: ChartRoom
    coarse: ChartRoom
    stack: Any


class Readings(Struct):
    """The derivations of some sentences, and where they are written."""

    #: (n, k): scores and wrong brackets.
    values: NDArray[np.float64]
    wrong: NDArray[np.int64]
    #: (n k,): where the rows of each begin, and how many there are.
    first: NDArray[np.int64]
    sizes: NDArray[np.int64]
    rows: Any


class Pruning(NamedTuple):
    """How charts are pruned; beam is +inf and coarse 0 where it is off."""

    beam: float
    coarse: float
    #: The coarse grammar, and the coarse rule of each rule; the grammar itself without coarse symbols.
    rules: Rules
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
        self.features = features or SpanFeatures()
        self.exact = beam is None and coarse is None
        tables = coarse_rules(grammar, self.rules) if coarse is not None else (self.rules, np.empty(0, np.int32))
        #: Rooms that threads borrow: to make one takes longer than the chart of a short sentence.
        self._idle: list[tuple[Rooms, Search | None]] = []
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
        first = offsets(np.repeat(np.maximum(4 * n - 2, 0), k))
        rows = np.empty(int(first[-1]), ROW).view(np.recarray)
        values, wrong = np.full((len(some), k), -np.inf), np.zeros((len(some), k), np.int64)
        sizes = np.zeros(len(first) - 1, np.int64)
        task = self._task(sentences, w, unit, 0.0)
        coarse = self._coarse_task(task) if self.pruning.coarse > 0.0 else None

        def shard(begin: int, end: int) -> None:
            out = Readings(values[begin:end], wrong[begin:end], first[begin * k :], sizes[begin * k : end * k], rows)
            rooms = self._borrow(int(n[begin:end].max(initial=0)), k)
            _best(task, coarse, self.pruning.coarse, *rooms, some[begin:end], out)
            self._idle.append(rooms)

        run_shards(shard, len(some), threads)
        start = offsets(sizes)
        return Derivations(
            values, wrong, start, rows.take(np.repeat(first[:-1] - start[:-1], sizes) + np.arange(start[-1]))
        )

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
        longest = int(np.diff(sentences.start)[some].max(initial=0))
        room = ChartRoom.of(longest, len(self.rules.label), True)
        task = self._task(sentences, w, unit, temperature)._replace(beam=np.inf)
        inside_outside(task, room, some, times, *against, values, wrong, counts)
        return values, wrong

    def scores(self, w: NDArray[np.float64], start: NDArray[np.int64], rows: Any, tokens: Any) -> NDArray[np.float64]:
        """Inner products w . phi of derivations; ``tokens`` are (first of each derivation's sentence, all tokens)."""
        out = np.empty(len(start) - 1)
        derivation_scores(self.features, start, rows, *tokens, w, out)
        return out

    def add_features(
        self, start: NDArray[np.int64], rows: Any, tokens: Any, times: NDArray[np.float64], out: NDArray[np.float64]
    ) -> None:
        """Add times[m] phi of the m-th derivation to out (d,)."""
        add_features(self.features, start, rows, *tokens, times, out)

    def list_features(
        self, start: NDArray[np.int64], rows: Any, tokens: Any
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The weights that derivations use, with repetitions: where each one's begin (n + 1,), and their numbers."""
        f = self.features
        per_row = 1 + sum(one >= 0 for one in (f.first, f.last, f.length, f.split)) * (rows.split >= 0)
        first = offsets(per_row)
        indices = np.empty(int(first[-1]), np.int64)
        list_features(self.features, start, rows, *tokens, indices)
        return first[start], indices

    def _chosen(self, sentences: Brackets, chosen: Any, units: Any) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        n = len(sentences.start) - 1
        some = np.arange(n) if chosen is None else np.ascontiguousarray(chosen, np.int64)
        return some, np.zeros(n) if units is None else np.ascontiguousarray(units, np.float64)

    def _task(self, sentences: Brackets, w: NDArray[np.float64], unit: NDArray[np.float64], temperature: float) -> Task:
        right = w[self.rules.by_right.rule]
        return Task(self.rules, self.features, sentences, w, right, unit, temperature, self.pruning.beam)

    def _borrow(self, longest: int, k: int) -> tuple[Rooms, Search | None]:
        """Rooms that nobody else has, and room for a search unless k is 1; after an error they are not given back."""
        try:
            rooms, search = self._idle.pop()
            if rooms.longest >= longest and k == (1 if search is None else search.found.shape[1]):
                return rooms, search
        except IndexError:
            pass
        n_coarse = len(self.pruning.rules.label) if self.pruning.coarse > 0.0 else 0
        return Rooms(
            longest,
            ChartRoom.of(longest, len(self.rules.label), False, n_coarse),
            ChartRoom.of(longest if n_coarse else 0, n_coarse, True),
            np.empty(longest + 2, WAITING).view(np.recarray),
        ), None if k == 1 else Search.of(longest, k)

    def _coarse_task(self, task: Task) -> Task:
        """The same sentences, without their truths, at temperature 1; a coarse rule has the largest weight of its rules."""
        rules, rule, some = self.pruning.rules, self.pruning.rule, task.sentences
        w = np.full(int(rule.max(initial=-1)) + 1, -np.inf)
        np.maximum.at(w, rule, task.w[: len(rule)])
        unknown = some._replace(gold_start=np.zeros_like(some.gold_start))
        return Task(rules, SpanFeatures(), unknown, w, w[rules.by_right.rule], np.zeros_like(task.unit), 1.0)


@kernel
def _best(task: Any, coarse: Any, least: float, rooms: Any, search: Any, chosen: Any, out: Any) -> None:
    """The best derivations of the chosen sentences, the k best if there is a search.

    With a coarse grammar, of what has at least that probability under it. What is None is not compiled.
    """
    room, start = rooms.chart, task.sentences.start
    chart, coarse_chart, mu = np.empty(1 << 12), np.empty(1 << 12), np.empty(0)
    counts = np.zeros(0)
    if coarse is not None:
        counts = np.zeros(len(coarse.w))
    for e in range(len(chosen)):
        m = chosen[e]
        n = start[m + 1] - start[m]
        if n == 0:
            continue
        if coarse is not None:
            coarse_chart, mu = mark_likely(coarse, m, rooms.coarse, coarse_chart, mu, counts, least, room.allowed)
        pruned = least > 0.0 or task.beam < np.inf
        chart = fill_chart(task, m, room, chart, pruned)
        if pruned and log_partition(task, room, chart, n) == -np.inf:
            # Pruning has left nothing.
            clear_chart(room, n)
            chart = fill_chart(task, m, room, chart, False)
        if search is None:
            read_one(task, m, room, chart, rooms.stack, out, e)
        else:
            read_best(task, m, room, chart, search, out, e)
        clear_chart(room, n)

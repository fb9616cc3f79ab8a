"""The k best labelings of any graph, exact: the labelings but the best one are cut into parts, and the best of each part is found.

Lawler, A procedure for computing the k best solutions to discrete optimization problems, Management Science 18, 1972; for
labelings, Nilsson, An efficient algorithm for finding the M most probable configurations, Statistics and Computing 8, 1998. A
*part* is a set of labelings: the first i variables have given states, variable i has none of some states, the others are free.
Let y be the best labeling of a part. All others of the part are in exactly one of the parts

    y_0 ... y_{j-1} as in y,  y_j is another state than in y,  the rest is free        j = i, ..., n - 1

where for j = i the states that were excluded before stay so. The best labeling of each is found by an exact engine, all parts
of all examples in one batch, and the best of what is found is the next labeling of its example. That takes n maximisations a
labeling at most.

Conventions
-----------
An excluded state has a penalty in the place of -inf: twice the difference between the largest and the smallest sum of scores there
could be. So a labeling with an excluded state scores below all others, a part is empty if its best labeling has one, and
engines that take finite scores only do as well as the others. Scores of labelings are computed afresh from the tables that
were given.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.errors import DataError, TooLargeError
from maxmargin.inference import batches
from maxmargin.inference.contract import Engine, TopK, check_count, check_numbers, check_refusal
from maxmargin.problems.factor_graphs import FactorGraphs, Scores

#: Most bytes that the labelings which are kept may take, and entries of score tables that are made at a time.
MOST_BYTES = 8 << 30
_ENTRIES = 1 << 22


class _Parts(NamedTuple):
    """Parts of the labelings of examples, with the best labeling of each."""

    #: The example of each part, the first variable that may still change, and the states that this one may not have (parts, K).
    owner: NDArray[np.int64]
    first: NDArray[np.int64]
    excluded: NDArray[np.bool_]
    #: The best labelings, one after another, and their scores.
    labels: NDArray[np.int32]
    values: NDArray[np.float64]


def top_k_of_any(graphs: FactorGraphs, scores: Scores, k: int, engine: Engine, n_jobs: int | None = None) -> TopK:
    """Find the k best allowed labelings of every example, or all of them if there are fewer, on graphs with cycles or without.

    Parameters
    ----------
    graphs : FactorGraphs
        Without structured factors.
    scores : Scores
        Tables of scores of its variables and factors.
    k : int
        At least 1.
    engine : Engine
        One that is exact: it finds the best labeling of every part.
    n_jobs : int, optional
        Threads; None is 1, and -1 is one a core.
    """
    k = check_count(k)
    structured = graphs.refuse_structured("top_k_of_any")
    if structured is not None:
        raise DataError(structured)
    if not engine.exact:
        raise DataError(
            f'The engine "{engine.name}" does not prove that its labelings are the best, so the k best would not be known.'
        )
    check_refusal(engine, graphs)
    scores = check_numbers(graphs, scores)
    sizes = np.diff(graphs.example_variables)
    n_bytes = 4 * k * (2 * int(sizes.sum()) + int(sizes.max()))
    if n_bytes > MOST_BYTES:
        raise TooLargeError(
            f"k={k} labelings of each of {graphs.n_examples} examples take {n_bytes} bytes; the limit is {MOST_BYTES} "
            "(maxmargin.inference.excluding.MOST_BYTES). Ask for fewer, or for fewer examples at a time."
        )
    search = _Search(graphs, scores, engine, n_jobs)
    labels, values = np.full((k, len(graphs.labels)), -1, np.int32), np.full((graphs.n_examples, k), -np.inf)
    parts = search.whole()
    for rank in range(k):
        best = _best_of_each(parts)
        owner = parts.owner[best]
        own = _ranges(parts_start(parts, sizes)[best], sizes[owner])
        labels[rank, _ranges(graphs.example_variables[owner], sizes[owner])] = parts.labels[own]
        values[owner, rank] = parts.values[best]
        if rank + 1 == k or not len(best):
            break
        chosen = _take(parts, best, sizes)
        others = np.setdiff1d(np.arange(len(parts.owner)), best)
        parts = search.keep(_join(_take(parts, others, sizes), search.split(chosen)), k - rank - 1)
    return TopK(labels, values)


class _Search:
    """The batch and its tables, and who is asked about them."""

    def __init__(self, graphs: FactorGraphs, scores: Scores, engine: Engine, n_jobs: int | None) -> None:
        self.graphs, self.scores, self.engine, self.n_jobs = graphs, scores, engine, n_jobs
        self.sizes = np.diff(graphs.example_variables)
        starts = np.append(graphs.state_starts(), graphs.example_states[-1])
        #: The number of states of each variable, and the most.
        self.n_states = np.diff(starts)
        self.most = int(self.n_states.max())
        spread = np.zeros(graphs.n_examples)
        for values, cuts, examples in (
            (scores.variables, starts[:-1], np.repeat(np.arange(graphs.n_examples), self.sizes)),
            (scores.factors, *self._tables()),
        ):
            if len(cuts):
                finite = np.isfinite(values)
                high = np.maximum.reduceat(np.where(finite, values, -np.inf), cuts)
                low = np.minimum.reduceat(np.where(finite, values, np.inf), cuts)
                spread += np.bincount(examples, np.maximum(high - low, 0.0), graphs.n_examples)
        self.penalty = np.where(spread > 0.0, 2.0 * spread, 1.0)

    def _tables(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where the table of each factor begins, and its example."""
        g, a = self.graphs, self.graphs.arrays
        count = np.diff(g.example_factors)
        first = a.structures.factors[g.structure_of] - g.example_factors[:-1]
        local = np.repeat(first, count) + np.arange(int(count.sum()))
        starts = np.repeat(g.example_tables[:-1], count) + a.factors.table[local]
        return np.asarray(starts, np.int64), np.repeat(np.arange(g.n_examples), count)

    def whole(self) -> _Parts:
        """All labelings of each example as one part."""
        found = batches.maximise(self.graphs, self.scores, self.engine, self.n_jobs)
        n = self.graphs.n_examples
        return _Parts(
            np.arange(n), np.zeros(n, np.int64), np.zeros((n, self.most), bool), found.labels, np.asarray(found.values)
        )

    def split(self, parts: _Parts) -> _Parts:
        """All labelings of some parts but their best, in parts."""
        n = self.sizes[parts.owner] - parts.first
        source = np.repeat(np.arange(len(n)), n)
        owner = parts.owner[source]
        first = parts.first[source] + np.arange(len(source)) - np.repeat(np.cumsum(n) - n, n)
        own = parts.labels[parts_start(parts, self.sizes)[source] + first]
        excluded = (first == parts.first[source])[:, None] & parts.excluded[source]
        excluded[np.arange(len(own)), own] = True
        left = self.n_states[self.graphs.example_variables[owner] + first] - excluded.sum(axis=1)
        made: list[_Parts] = []
        kept = np.flatnonzero(left > 0)
        entries = np.diff(self.graphs.example_states) + np.diff(self.graphs.example_tables)
        pieces = np.cumsum(entries[owner[kept]]) // _ENTRIES
        for piece in np.split(kept, np.flatnonzero(np.diff(pieces)) + 1):
            if len(piece):
                made.append(self._solve(parts, source[piece], first[piece], excluded[piece]))
        return _join(_take(parts, np.empty(0, np.int64), self.sizes), *made)

    def _solve(
        self, parts: _Parts, source: NDArray[np.int64], first: NDArray[np.int64], excluded: NDArray[np.bool_]
    ) -> _Parts:
        """The best labeling of each part, without the parts that are empty."""
        g, owner = self.graphs, parts.owner[source]
        sizes = self.sizes[owner]
        batch = g.take(owner, keep_numbers=True)
        variables = _ranges(g.example_variables[owner], sizes)
        own = parts.labels[_ranges(parts_start(parts, self.sizes)[source], sizes)]
        # For each variable of the batch, its part and its place in the example.
        part = np.repeat(np.arange(len(owner)), sizes)
        place = variables - g.example_variables[owner][part]
        n_states = self.n_states[variables]
        variable = np.repeat(np.arange(len(variables)), n_states)
        state = np.arange(len(variable)) - np.repeat(np.cumsum(n_states) - n_states, n_states)
        at, p = place[variable], part[variable]
        wrong = (at < first[p]) & (state != own[variable])
        wrong |= (at == first[p]) & excluded[p, state]
        own_v = self.scores.variables[_ranges(g.example_states[owner], np.diff(g.example_states)[owner])]
        own_f = self.scores.factors[_ranges(g.example_tables[owner], np.diff(g.example_tables)[owner])]
        tables = Scores(own_v - np.where(wrong, self.penalty[owner][p], 0.0), own_f)
        labels = batches.maximise(batch, tables, self.engine, self.n_jobs).labels
        values = batch.labeling_scores(Scores(own_v, own_f), labels)
        bad = wrong[batch.state_starts() + labels]
        good = ~np.logical_or.reduceat(bad, batch.example_variables[:-1]) & (values > -np.inf)
        made = _Parts(owner, first, excluded, labels, values)
        return _take(made, np.flatnonzero(good), self.sizes)

    def keep(self, parts: _Parts, most: int) -> _Parts:
        """The `most` best parts of each example: no other can have one of the labelings that are still to be found."""
        order = np.lexsort((-parts.values, parts.owner))
        owner = parts.owner[order]
        rank = np.arange(len(order)) - np.searchsorted(owner, owner)
        return _take(parts, np.sort(order[rank < most]), self.sizes)


def parts_start(parts: _Parts, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where the labels of each part begin."""
    n = sizes[parts.owner]
    return np.asarray(np.cumsum(n) - n)


def _best_of_each(parts: _Parts) -> NDArray[np.int64]:
    """The number of the best part of each example that has one; of equal ones the first."""
    order = np.lexsort((-parts.values, parts.owner))
    owner = parts.owner[order]
    return np.asarray(order[np.searchsorted(owner, np.unique(owner))])


def _take(parts: _Parts, chosen: NDArray[np.int64], sizes: NDArray[np.int64]) -> _Parts:
    own = _ranges(parts_start(parts, sizes)[chosen], sizes[parts.owner[chosen]])
    return _Parts(
        parts.owner[chosen], parts.first[chosen], parts.excluded[chosen], parts.labels[own], parts.values[chosen]
    )


def _join(*parts: _Parts) -> _Parts:
    return _Parts(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _ranges(starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The numbers of ranges, one after another."""
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if len(ends) else 0
    return np.asarray(np.arange(total) + np.repeat(starts - (ends - sizes), sizes))

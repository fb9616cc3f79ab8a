"""Measures of order: the share of pairs of rows that are ranked the wrong way round.

T. Joachims, A Support Vector Method for Multivariate Performance Measures, ICML 2005, section 3.3 (ROC area), and Training Linear
SVMs in Linear Time, KDD 2006 (ordinal regression and ranking). Rows have levels, and a pair is two rows of one query whose levels
differ; with two levels and one query the share of pairs in the right order is the area under the ROC curve. A labeling says of each
pair whether it is swapped, so that the hinge is a sum over pairs:

    H(w) = sum over pairs (i above j) of  weight max(0, 1 - (s_i - s_j)),       s = X w

with the weight 1 / (number of pairs), or 1 / (queries with pairs * pairs of this query) if queries count the same. A row's
coefficient in psi is the weight times (pairs that it should win and does not by a margin of 1, minus pairs that it should lose and
does not). Both counts come from a sort by score and a sweep, in which a tree of counts (Fenwick 1994) says how many rows of lower
level were passed: O(n log n) for any number of levels, where the paper takes a sweep for each.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.errors import DataError
from maxmargin.jit import inner, kernel


class PairMeasure:
    """The share of swapped pairs.

    Parameters
    ----------
    levels : int array (n,)
        0 to the number of levels minus 1; rows of higher level should have larger scores.
    queries : int array (n,), optional
        Rows of different queries are not compared. Default: one query.
    by_query : bool
        Every query counts the same, whatever its number of pairs.
    name : str
        How error messages call the loss.
    """

    #: Scores are compared with each other alone.
    learns_threshold = False

    def __init__(
        self,
        levels: NDArray[np.int64],
        queries: NDArray[np.int64] | None = None,
        by_query: bool = False,
        name: str = "roc-area",
    ) -> None:
        self.name, self.by_query = name, by_query
        self.levels = np.asarray(levels, np.int64)
        self.n = len(self.levels)
        self.queries = np.zeros(self.n, np.int64) if queries is None else np.asarray(queries, np.int64)
        n_levels = int(self.levels.max(initial=0)) + 1
        # Pairs of a query: all pairs of its rows less those of one level.
        sizes = np.bincount(self.queries)
        alike = np.bincount(self.queries * n_levels + self.levels, minlength=len(sizes) * n_levels).reshape(
            -1, n_levels
        )
        pairs = (sizes.astype(np.float64) ** 2 - (alike.astype(np.float64) ** 2).sum(axis=1)) / 2.0
        if not pairs.any():
            where = "of a query " if queries is not None else ""
            raise DataError(f"No two rows {where}differ in their level: there is nothing to rank.")
        #: (queries,): the weight of a pair.
        self.weight = np.full(len(pairs), 1.0 / pairs.sum())
        if by_query:
            self.weight = 1.0 / (np.maximum(pairs, 1.0) * np.count_nonzero(pairs))

    @property
    def n_predicted(self) -> int:
        """How many rows are of the highest level."""
        return int(np.count_nonzero(self.levels == self.levels.max()))

    @property
    def kinds(self) -> NDArray[np.int64]:
        """What a part of the rows should have its share of."""
        return self.levels

    def take(self, rows: NDArray[np.int64]) -> PairMeasure:
        """The measure of some of the rows.

        Parameters
        ----------
        rows : int array
            Numbers of the rows.
        """
        queries = np.unique(self.queries[rows], return_inverse=True)[1]
        return PairMeasure(self.levels[rows], queries, self.by_query, self.name)

    def fingerprint_arrays(self) -> tuple[NDArray[Any], ...]:
        """What bounds depend on."""
        return self.levels, self.queries, self.weight

    def find(self, scores: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
        """The pairs that are not in order by a margin of 1: coefficients of the rows in psi, and the loss.

        Parameters
        ----------
        scores : array (n,)
            Scores of all rows.
        """
        return self._swapped(scores, scores + 1.0)

    def loss(self, scores: NDArray[np.float64]) -> float:
        """The share of swapped pairs; a pair of equal scores is half of one.

        Parameters
        ----------
        scores : array (n,)
            Scores of all rows.
        """
        ties = self._swapped(scores, np.nextafter(scores, np.inf))[1]
        return 0.5 * (self._swapped(scores, scores)[1] + ties)

    def _swapped(self, scores: NDArray[np.float64], raised: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
        """Pairs (i above j) with scores_i < raised_j."""
        coefficients = np.zeros(self.n)
        order = np.lexsort((scores, self.queries))
        return coefficients, float(sweep(order, scores, raised, self.levels, self.queries, self.weight, coefficients))


@kernel
def sweep(order: Any, scores: Any, raised: Any, levels: Any, queries: Any, weight: Any, out: Any) -> float:
    """Write the coefficients of pairs (i above j) with s_i < raised_j, of rows sorted by query and score; returns the loss."""
    n = len(order)
    tree = np.zeros(levels.max() + 2, np.int64) if n > 0 else np.zeros(2, np.int64)
    total = 0.0
    begin = 0
    while begin < n:
        query = queries[order[begin]]
        end = begin
        while end < n and queries[order[end]] == query:
            end += 1
        if weight[query] > 0.0:
            total += weight[query] * _sweep_query(order[begin:end], scores, raised, levels, weight[query], tree, out)
        begin = end
    return total


@inner
def _sweep_query(order: Any, scores: Any, raised: Any, levels: Any, weight: float, tree: Any, out: Any) -> float:
    """The same for one query; the tree of counts is zero before and after. Returns the number of pairs."""
    n, pairs = len(order), 0
    # As the upper row of a pair: the lower rows whose raised score is above its own.
    for j in order:
        _add(tree, levels[j], 1)
    passed = 0
    for i in order:
        while passed < n and raised[order[passed]] <= scores[i]:
            _add(tree, levels[order[passed]], -1)
            passed += 1
        count = _below(tree, levels[i])
        out[i] += weight * count
        pairs += count
    for k in range(passed, n):
        _add(tree, levels[order[k]], -1)
    # As the lower row: the upper rows whose score is below its raised score.
    passed = 0
    for j in order:
        while passed < n and scores[order[passed]] < raised[j]:
            _add(tree, levels[order[passed]], 1)
            passed += 1
        out[j] -= weight * (passed - _below(tree, levels[j] + 1))
    for k in range(passed):
        _add(tree, levels[order[k]], -1)
    return float(pairs)


@inner
def _add(tree: Any, level: int, count: int) -> None:
    """Count rows of a level."""
    k = level + 1
    while k < len(tree):
        tree[k] += count
        k += k & -k


@inner
def _below(tree: Any, level: int) -> int:
    """How many rows of lower level are counted."""
    total, k = 0, level
    while k > 0:
        total += tree[k]
        k -= k & -k
    return total

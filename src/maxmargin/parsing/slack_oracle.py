"""Slack rescaling of parse forests: the derivation of largest loss times violation.

    H_m(w) = max_y  a (1 + s(y)),     a = loss(y) = unit_m times the number of wrong brackets,  s(y) = w . phi(y) - w . phi(truth)

A search over charts whose loss is scaled by lambda (solvers/oracles/slack_rescaling.py) finds the best derivation on the upper hull
of the points (a, b), b = 1 + s(y), and a direction lambda in which that hull is touched. What lies under the hull is found by the k
best derivations in that direction: with v the value b + lambda a of the k-th, every other derivation has a value of at most v, and
a is a whole number of units, so that

    a b  <=  max_{j = 1, 2 ..}  unit j (v - lambda unit j)

When the best product found is as large, it is the largest of all; otherwise k grows, eight times at a time. Where k has become very
large the bound is kept in the place of the hinge, and planes are those of the best derivation found.

The zero-one loss is the same for all wrong derivations: the best of them is that of margin rescaling.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.parsing.oracle import Found, ParseOracle, check_derived
from maxmargin.problems.layout import offsets
from maxmargin.solvers.oracles.slack_rescaling import hull_search

#: Derivations that are looked at in the last direction.
_RANKS = (8, 64, 512, 4096)
#: Relative difference of two products that is rounding.
_ROUNDING = 1e-10


class SlackParseOracle(ParseOracle):
    """Charts as the max-oracle of slack rescaling."""

    def most_violated(self, w: NDArray[np.float64], examples: NDArray[np.int64]) -> Found:
        """A derivation of largest loss times violation of each of the examples."""
        if self.zero_one:
            found = super().most_violated(w, examples)
            # Where there is no derivation but the truth, the loss is 0 and the slope -inf.
            product = np.where(found.ell > 0.0, found.ell, 1.0) * (1.0 + found.slope - found.ell)
            return found._replace(slope=product, factor=found.ell, bound=product)
        search = _Search(self.problem, w, np.asarray(examples, np.int64))
        return search.found()


class _Search:
    """The search for some examples at one w."""

    def __init__(self, problem: Any, w: NDArray[np.float64], examples: NDArray[np.int64]) -> None:
        self.problem, self.w, self.examples, n = problem, w, examples, len(examples)
        self.unit = problem.units[examples]
        start, rows = problem.truths_of(examples)
        self.truth = problem.parser.scores(w, start, rows, problem.tokens_of(examples))
        #: The best derivation of each example so far, at first the truth, its loss, and its product.
        self.kept: list[Any] = [rows[start[m] : start[m + 1]] for m in range(n)]
        self.loss, self.best = np.zeros(n), np.zeros(n)

    def ask(
        self, at: NDArray[np.int64], direction: NDArray[np.float64], k: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
        """Loss, 1 + score - that of the truth (n, k), and which there are, of the k best derivations of some in a direction."""
        p, some = self.problem, self.examples[at]
        units = np.zeros(p.n_examples)
        units[some] = direction * self.unit[at]
        found = p.parser.best(p.sentences, self.w, k, some, units)
        check_derived(found.values, some)
        first, tokens = p.tokens_of(np.repeat(some, k))
        scores = p.parser.scores(self.w, found.start, found.rows, (first, tokens)).reshape(-1, k)
        there = np.diff(found.start).reshape(-1, k) > 0
        a, b = self.unit[at][:, None] * found.wrong, 1.0 + scores - self.truth[at][:, None]
        products = np.where(there, a * b, -np.inf)
        top = products.argmax(axis=1)
        for e in np.flatnonzero(products[np.arange(len(at)), top] > self.best[at]):
            m, piece = at[e], e * k + top[e]
            self.best[m], self.loss[m] = products[e, top[e]], a[e, top[e]]
            self.kept[m] = found.rows[found.start[piece] : found.start[piece + 1]]
        return a, b, there

    def one(
        self, direction: NDArray[np.float64], open_: NDArray[np.bool_]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Loss, 1 + score and the value in its direction of the best derivation of each example that is open."""
        at = np.flatnonzero(open_)
        a, b = np.zeros(len(open_)), np.zeros(len(open_))
        a_open, b_open, _ = self.ask(at, direction[at], 1)
        a[at], b[at] = a_open[:, 0], b_open[:, 0]
        return a, b, b + direction * a

    def found(self) -> Found:
        """The derivations of largest product, and bounds on the largest."""
        n = len(self.examples)
        if n == 0:
            return Found(np.zeros(1, np.int64), self.problem.truth[:0], self.best, self.best, self.loss, self.best)
        _, bound, direction = hull_search(self.one, lambda better: None, n, True, self.unit)
        for k in _RANKS:
            at = np.flatnonzero(bound > self.best + _ROUNDING * (1.0 + self.best))
            if len(at) == 0:
                break
            a, b, there = self.ask(at, direction[at], k)
            value = b[:, -1] + direction[at] * a[:, -1]
            left = np.where(there[:, -1], largest_product(value, direction[at], self.unit[at]), 0.0)
            bound[at] = np.minimum(bound[at], np.maximum(left, self.best[at]))
        start = offsets([len(rows) for rows in self.kept])
        rows = np.concatenate(self.kept).view(np.recarray)
        closed = bound <= self.best + _ROUNDING * (1.0 + self.best)
        return Found(start, rows, self.loss, self.best, self.loss, np.where(closed, self.best, bound))


def largest_product(
    value: NDArray[np.float64], direction: NDArray[np.float64], unit: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The largest a (value - direction a) over whole numbers of units."""
    number = np.maximum(np.floor(value / (2.0 * direction * unit)), 1.0)
    two = [unit * j * (value - direction * unit * j) for j in (number, number + 1.0)]
    return np.maximum(np.maximum(*two), 0.0)

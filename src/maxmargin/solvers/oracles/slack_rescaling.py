"""Slack rescaling: the most violated labeling where the loss is the price of a violation.

T. Joachims, T. Finley and C.-N. Yu, Cutting-Plane Training of Structural SVMs, Machine Learning 77, 2009, algorithms 2 and 4.

    H_m(w) = max_y loss(y) (1 + s(y)),      s(y) = w . phi(y) - w . phi(truth)
    plane of y:   psi_s = loss(y) psi(y),   ell_s = loss(y) (1 + fixed(y) - fixed(truth))

A product does not fall apart into factors. On trees, where all wrong variables of an example cost the same, max-product over states
and numbers of wrong variables finds the best (inference/by_count.py). Where an example has few labelings, all of them are tried.
Elsewhere the *margin* oracle is asked with the loss scaled by numbers lambda (Sarawagi and Gupta, ICML 2008; Choi, Meshi and
Srebro, AISTATS 2016): with a = loss(y) and b = 1 + s(y), it finds the point (a, b) that is best in the direction (lambda, 1),

    v(lambda) = max_y  b + lambda a,     so that every y has    a b <= a (v - lambda a) <= v^2 / (4 lambda)

1. From lambda = 1, multiply or divide until one point has b >= lambda a and another b <= lambda a: log a + log b is concave along
   the upper hull of the points, so its largest product lies between them.
2. Ask in the direction that is square to the line through the two. A new point takes the place of one of them; if there is none,
   the line is an edge of the hull.

The best point found gives the plane. Points under the hull are never seen: the hinge is known between its product and the largest
product on the edge, a (v - lambda a) at a = v / (2 lambda) or at one of its ends. Planes bound the exact problem from below, and
these hinges do so from above: the certificate is "exact", although the gap may stay open. With an engine that is not exact but
bounds its scores, v is that bound.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.inference import Engine, by_count
from maxmargin.inference.exhaustive import Exhaustive, joint_states, next_labeling
from maxmargin.inference.trees import Trees
from maxmargin.jit import kernel
from maxmargin.problems.factor_graphs import FactorGraphs, Scores
from maxmargin.problems.layout import joint_state
from maxmargin.solvers.oracles.compiled import Given
from maxmargin.solvers.oracles.graph_oracle import GraphOracle, write_planes

#: Labelings of an example up to which all are tried.
_FEW = 4096
#: Factor between two lambdas until the bracket is found, and most questions.
_STRETCH, _MOST = 4.0, 60
#: Relative difference of two scores that is rounding.
_ROUNDING = 1e-10


class SlackOracle(GraphOracle):
    """An engine as a max-oracle for slack rescaling."""

    def __init__(self, problem: FactorGraphs, chosen: str | Engine = "auto", loss_augmented: bool = True) -> None:
        few = not problem.has_structured and bool(joint_states(problem).max() <= _FEW)
        problem = problem.with_loss_tables()
        left_open = isinstance(chosen, str) and chosen == "auto"
        #: What a wrong variable of each example costs (M,), if it is searched by the number of those.
        self.cost = costs(problem) if by_count.refusal(problem) is None else None
        by_itself = few and left_open and self.cost is None
        super().__init__(problem, Exhaustive() if by_itself else chosen, loss_augmented)
        # An engine of another type is asked, whatever it calls itself.
        self.all = few and type(self.engine) is Exhaustive
        if not isinstance(self.engine, Trees):
            self.cost = None
        if self.all:
            self.reason = "every labeling of an example is tried"
        elif self.cost is not None:
            self.reason = "max-product over states and numbers of wrong variables"
        # Labelings and bounds, whatever the engine relaxes.
        self.compiled, self.relaxes, self.bounds = None, False, not self.all and self.cost is None
        if self.certificate == "relaxed":
            self.certificate = "exact"

    def answer(
        self, w_v: NDArray[np.float64], w_f: NDArray[np.float64], examples: NDArray[np.int64]
    ) -> tuple[Given, NDArray[np.float64] | None]:
        """The planes of some examples, and bounds on their hinges where those say more."""
        part = self.problem.take(examples, keep_numbers=True)
        scores = part.scores_of((w_v, w_f), loss_augmented=False)
        truth = part.labeling_scores(scores, part.labels)
        if self.cost is not None:
            numbers = np.arange(int(part.arrays.largest.variables) + 1)
            labels, bounds = (
                by_count.most_violated(part, scores, np.outer(self.cost[examples], numbers), slack=True)[0],
                None,
            )
        elif self.all:
            labels, bounds = np.empty(len(part.labels), np.int32), None
            try_all(part.arrays, scores.variables, scores.factors, truth, labels)
        else:
            labels, bounds = self.search(part, scores, truth)
        found = self.room(len(examples))
        write_planes(part, labels, found)
        loss = part.labeling_losses(labels)
        found.value[: found.start[-1]] *= np.repeat(loss, np.diff(found.start))
        found.ell[:] = loss * (1.0 + found.ell - loss)
        return found, bounds

    def search(
        self, part: FactorGraphs, scores: Scores, truth: NDArray[np.float64]
    ) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """The labelings of largest product that the search finds, and bounds on the largest."""
        sizes, states = np.diff(part.example_variables), np.diff(part.example_states)
        best_labels, labels = part.labels.copy(), part.labels
        bounded = self.certificate != "none"

        def ask(direction: NDArray[np.float64], open_: NDArray[np.bool_]) -> tuple[NDArray[np.float64], ...]:
            nonlocal labels
            scaled = scores._replace(variables=scores.variables + np.repeat(direction, states) * part.arrays.losses)
            found = self.engine.maximise(part, scaled)
            labels = found.labels
            a = part.labeling_losses(labels)
            b = 1.0 + part.labeling_scores(scores, labels) - truth
            # An engine without bounds is taken at its word; nothing is certified then.
            return a, b, 1.0 + (found.bounds if bounded else found.values) - truth

        def keep(better: NDArray[np.bool_]) -> None:
            chosen = np.repeat(better, sizes)
            best_labels[chosen] = labels[chosen]

        best, bound, _ = hull_search(ask, keep, part.n_examples, self.engine.exact)
        return best_labels, np.maximum(bound, best) if bounded else best


def hull_search(
    ask: Callable[[NDArray[np.float64], NDArray[np.bool_]], tuple[NDArray[np.float64], ...]],
    keep: Callable[[NDArray[np.bool_]], None],
    n: int,
    exact: bool,
    least: NDArray[np.float64] | float = 0.0,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """The largest products found by questions in one direction after the other, bounds on the largest, and the last directions.

    Parameters
    ----------
    ask : callable
        For directions (n,) and which examples are open, the points a, b (n,) that are best there, and bounds on b + direction a.
    keep : callable
        Told which of the points just found are better than all before.
    n : int
        Examples.
    exact : bool
        Whether points are the best in their direction.
    least : float array (n,)
        The least a above 0.
    """
    best, bound, direction, last = np.zeros(n), np.full(n, np.inf), np.ones(n), np.ones(n)
    # Points (a, b) on either side; NaN while there is none.
    low, high = np.full((2, n), np.nan), np.full((2, n), np.nan)
    open_ = np.ones(n, bool)
    for _ in range(_MOST):
        last = np.where(open_, direction, last)
        a, b, v = ask(direction, open_)
        better = open_ & (a * b > best)
        best[better] = (a * b)[better]
        keep(better)
        with np.errstate(divide="ignore", invalid="ignore"):
            # The largest product under the line, for any loss at all from the least on.
            under = np.where(v >= 2.0 * direction * least, v * v / (4.0 * direction), least * (v - direction * least))
            under = np.where(v > 0.0, np.maximum(under, 0.0), 0.0)
            bound = np.where(open_, np.minimum(bound, under), bound)
            edge = low[1] + direction * low[0]
            # Both are known, and nothing is above the line through them.
            end = open_ & ~np.isnan(high[0]) & (b + direction * a <= edge + _ROUNDING * (1.0 + np.abs(edge)))
            if exact:
                # The hull's best product is on that line, between the two.
                at = np.clip(v / (2.0 * direction), low[0], high[0])
                bound = np.where(end, np.minimum(bound, np.maximum(at * (v - direction * at), 0.0)), bound)
            settled = bound <= best + _ROUNDING * (1.0 + best)
            open_ &= ~(end | settled)
            to_low = b >= direction * a
            low = np.where(open_ & to_low, [a, b], low)
            high = np.where(open_ & ~to_low, [a, b], high)
            between = (low[1] - high[1]) / (high[0] - low[0])
            # One point on both sides: its product is the hull's best, and so says the line square to it.
            one = np.abs(high[0] - low[0]) <= _ROUNDING * high[0]
            between = np.where(one, low[1] / low[0], between)
        stretched = np.where(np.isnan(low[0]), direction / _STRETCH, direction * _STRETCH)
        both = np.isfinite(between) & (between > 0.0)
        open_ &= both | np.isnan(low[0]) | np.isnan(high[0])
        direction = np.where(open_, np.where(both, between, stretched), 1.0)
        if not open_.any():
            break
    return best, bound, last


def costs(problem: FactorGraphs) -> NDArray[np.float64] | None:
    """What a wrong variable costs in each example (M,), or None if that is not one number."""
    tables = problem.arrays.losses
    wrong = np.ones(len(tables), bool)
    wrong[problem.state_starts() + problem.labels] = False
    first = problem.example_states[:-1]
    high = np.maximum.reduceat(np.where(wrong, tables, 0.0), first)
    low = np.minimum.reduceat(np.where(wrong, tables, np.inf), first)
    return high if (low >= high).all() else None


# ------------------------------------------------------------------------------------------------------- kernels


@kernel
def try_all(g: Any, v_scores: Any, f_scores: Any, truth: Any, out: Any) -> None:
    """The labeling of largest loss (1 + score - truth) of every example, the truth first."""
    examples, structures, variables, factors = g.examples, g.structures, g.variables, g.factors
    scope, kinds, slots, losses, own = g.scope, g.factor_kinds, g.slots, g.losses, g.labels
    labels = np.empty(g.largest.variables, np.int32)
    for m in range(len(examples) - 1):
        s, first, states, tables = (
            examples[m].structure, examples[m].variables, examples[m].states, examples[m].tables,
        )  # fmt: skip
        n, n_states = examples[m + 1].variables - first, examples[m + 1].states - states
        v0, c0, n_factors = (
            structures[s].variables,
            structures[s].factors,
            examples[m + 1].factors - examples[m].factors,
        )
        best = 0.0
        for i in range(n):
            labels[i] = 0
            out[first + i] = own[first + i]
        more = True
        while more:
            score, loss = -truth[m], 0.0
            for i in range(n):
                at = states + variables[v0 + i].table + labels[i]
                score += v_scores[at]
                loss += losses[at]
            for c in range(n_factors):
                score += f_scores[
                    tables + factors[c0 + c].table + joint_state(c0 + c, 0, factors, scope, kinds, slots, labels)
                ]
            # A forbidden labeling has a score of -inf, and its loss may be 0.
            if loss > 0.0 and loss * (1.0 + score) > best:
                best = loss * (1.0 + score)
                for i in range(n):
                    out[first + i] = labels[i]
            more = next_labeling(variables, v0, n, n_states, labels)

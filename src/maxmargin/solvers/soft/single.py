"""The kernels of SoftBCFW where every example is one variable: binary and multi-class problems (single_run.py).

Then a visit is one step of dual coordinate ascent with a closed form, and nothing is left of factors, messages and rho:

    mu_m <- argmax over the simplex of  theta . mu - c/2 |mu - mu_m|^2,      c = |x|^2 weight / (lam M)

(Keerthi, Sundararajan, Chang, Hsieh and Lin 2008; of two states, Hsieh et al. 2008). The block's gap comes with it, and so does its
*violation*, the largest score minus the smallest that has mass. Where all mass is at the best state, the violation is the next
score minus the best one, which is negative: by so much the example is settled.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin import scratch
from maxmargin.jit import Struct, inner, kernel, prefetch
from maxmargin.problems.factor_graphs import FactorGraphs
from maxmargin.problems.features import KernelFeatures, add_row, add_to_block, row_times_block, score_row
from maxmargin.solvers.core.sampling import shuffle
from maxmargin.solvers.soft.simplex import project_block

#: Visits ahead of which memory is fetched (ijcnn1: 75 ns a visit, and 218 without), and numbers in a line of the cache.
_FAR, _NEAR, _LINE = 12, 6, 8
# `numbers`: examples that passes visit, the random number; in a pass that is not over: visits that are done, examples that were not
# settled. `levels`: how far examples must be settled to be left out, the mean gap that the last pass saw; in a pass
# that is not over: sums of gaps and of violations.
N_ACTIVE, RANDOM, PLACE, UNSETTLED = range(4)
SETTLED, SEEN, GAPS, VIOLATIONS = range(4)


class Singles(Struct):
    """The dual point, which examples passes visit, and where the present pass is."""

    #: (M K,): masses of the states; (M,): gaps when they were last measured.
    mu: NDArray[np.float64]
    gap: NDArray[np.float64]
    #: The first N_ACTIVE are the examples to visit, in the order of the present pass; -1 for one that it leaves out.
    active: NDArray[np.int64]
    numbers: NDArray[np.int64]
    levels: NDArray[np.float64]

    @classmethod
    def at_truth(cls, problem: FactorGraphs, seed: int) -> Singles:
        """All mass at the truth, and all examples that have weight active."""
        n, n_states = problem.n_examples, len(problem.arrays.variable_block)
        mu, live = scratch.zeros(n * n_states), np.flatnonzero(problem.arrays.weight > 0.0)
        mu[np.arange(n) * n_states + problem.labels] = 1.0
        active, random = np.full(n, -1), 1 + 2654435761 * (seed + 1) % (2**31 - 2)
        active[: len(live)] = live
        return cls(
            mu, np.ones(n), active, np.array([len(live), random, 0, 0]),
            np.array([np.inf, np.inf, 0.0, 0.0]),
        )  # fmt: skip


class SingleRules(Struct):
    """How examples are visited, and room for one of them."""

    lam: float
    smoothing: float
    #: Examples that are settled by more than this many times the mean violation are left out.
    leave_out: float
    #: Whether the problem is a plain binary one, and nothing is smoothed.
    binary: bool
    #: Scores of the blocks, and how far their masses have moved, which is zero between uses; scores and masses of the states.
    buffer: NDArray[np.float64]
    moved: NDArray[np.float64]
    theta: NDArray[np.float64]
    flat: NDArray[np.float64]


def is_single(problem: FactorGraphs) -> bool:
    """Whether every example is one variable of the same template, with a feature row of its own."""
    a = problem.arrays
    one = len(problem.structures) == 1 and len(problem.structures[0].variable_templates) == 1
    return bool(
        one
        and len(problem.variable_templates) == 1
        and problem.example_factors[-1] == 0
        and not isinstance(problem.variable_features, KernelFeatures)
        and problem.n_examples == problem.variable_features.shape[0]
        and (a.examples[:-1].variable_row == np.arange(problem.n_examples)).all()
        and a.variable_groups[0].row == 0
    )


def is_plain_binary(problem: FactorGraphs) -> bool:
    """Whether there are two states, and nothing but the weights scores the second, and nothing the first."""
    a = problem.arrays
    return a.variable_block.tolist() == [-1, 0] and not a.variable_fixed.any() and len(a.variable_scores) == 0


# ------------------------------------------------------------------------------------------------------- kernels


@kernel
def visit_singles(
    batch: Any, w: Any, point: Any, rules: Any, n_passes: int, budget: int, enough: float
) -> tuple[int, int]:
    """Go on with the present pass, and make further ones, until `budget` visits are spent or a pass sees so little as `enough`.

    That is its mean gap. Returns the passes that ended, and the visits.
    """
    active, numbers, levels, mu = point.active, point.numbers, point.levels, point.mu
    weight, visits = batch.graphs.weight, 0
    for k in range(n_passes):
        if visits >= budget:
            return k, visits
        n, settled = numbers[N_ACTIVE], levels[SETTLED]
        if numbers[PLACE] == 0:
            numbers[RANDOM] = shuffle(active, n, numbers[RANDOM])
            levels[GAPS], levels[VIOLATIONS], numbers[UNSETTLED] = 0.0, 0.0, 0
        gaps, violations, unsettled = levels[GAPS], levels[VIOLATIONS], numbers[UNSETTLED]
        place = numbers[PLACE]
        last = min(n, place + budget - visits)
        visits += last - place
        for q in range(place, last):
            m = active[q]
            _look_ahead(batch, mu, active[min(q + _FAR, n - 1)], active[min(q + _NEAR, n - 1)])
            if rules.binary:
                gap, violation = _visit_binary(batch, w, mu, rules.lam, m)
            else:
                gap, violation = _visit(batch, w, mu, rules, m)
            gaps += weight[m] * gap
            if violation > 0.0:
                violations += violation
                unsettled += 1
            elif violation < -settled:
                active[q] = -1
        levels[GAPS], levels[VIOLATIONS], numbers[UNSETTLED], numbers[PLACE] = gaps, violations, unsettled, last
        if last < n:
            return k, visits
        _end_pass(point, rules.leave_out, len(weight))
        if levels[SEEN] <= enough:
            return k + 1, visits
    return n_passes, visits


@inner
def _look_ahead(batch: Any, mu: Any, far: int, near: int) -> None:
    """Fetch what visits of two examples will read: first what says where its row is, then the row."""
    features, losses = batch.variables.features, batch.graphs.losses
    indptr, indices, data, dense = features.indptr, features.indices, features.data, features.dense
    n_states = len(batch.graphs.variable_block)
    for k in range(n_states * far, n_states * (far + 1), _LINE):
        prefetch(mu, k)
        prefetch(losses, k)
    prefetch(batch.graphs.weight, far)
    prefetch(features.squared_norms, far)
    if len(indptr) > 1:
        prefetch(indptr, far)
        for q in range(indptr[near], indptr[near + 1], _LINE):
            prefetch(data, q)
        for q in range(indptr[near], indptr[near + 1], 2 * _LINE):
            prefetch(indices, q)
    else:
        for q in range(near * dense.shape[1], (near + 1) * dense.shape[1], _LINE):
            prefetch(dense, q)


@inner
def _end_pass(point: Any, leave_out: float, n_examples: int) -> None:
    """Close the gaps that the pass left among the active examples, and say how far settled ones are to be left out next."""
    active, numbers, levels = point.active, point.numbers, point.levels
    kept = 0
    for q in range(numbers[N_ACTIVE]):
        if active[q] >= 0:
            active[kept] = active[q]
            kept += 1
    numbers[N_ACTIVE], numbers[PLACE] = kept, 0
    levels[SEEN] = levels[GAPS] / n_examples
    # Without a violation nothing is known of how far examples will go.
    levels[SETTLED] = leave_out * levels[VIOLATIONS] / kept if numbers[UNSETTLED] > 0 else np.inf


@inner
def _visit_binary(batch: Any, w: Any, mu: Any, lam: float, m: int) -> tuple[float, float]:
    """Bring the masses of two states to their optimum; returns the gap and the violation before."""
    features, weight, losses = batch.variables.features, batch.graphs.weight, batch.graphs.losses
    mass = mu[2 * m + 1]
    slope = losses[2 * m + 1] - losses[2 * m] + row_times_block(features, m, w, 0)
    gap = (1.0 - mass) * slope if slope > 0.0 else -mass * slope
    violation = slope if mass == 0.0 else -slope if mass == 1.0 else abs(slope)
    if violation > 0.0:
        unit = weight[m] / (lam * len(weight))
        own = unit * features.squared_norms[m]
        target = min(1.0, max(0.0, mass + slope / own)) if own > 0.0 else 1.0 if slope > 0.0 else 0.0
        mu[2 * m], mu[2 * m + 1] = 1.0 - target, target
        add_to_block(features, m, w, 0, unit * (mass - target))
    return gap, violation


@inner
def _visit(batch: Any, w: Any, mu: Any, rules: Any, m: int) -> tuple[float, float]:
    """Bring the masses of the states to their optimum; returns the gap and the violation before."""
    g, features = batch.graphs, batch.variables.features
    weight, blocks, sharing, n_blocks, n_states = (
        g.weight, g.variable_block, g.variable_sharing, w.shape[1], len(g.variable_block),
    )  # fmt: skip
    theta, flat, moved, smoothing = rules.theta, rules.flat, rules.moved, rules.smoothing
    _score(batch, w, m, rules.buffer, theta)
    at, high, low, most = n_states * m, -np.inf, np.inf, 0.0
    for k in range(n_states):
        if smoothing > 0.0:
            theta[k] -= smoothing * mu[at + k]
        high = max(high, theta[k])
        if mu[at + k] > 0.0:
            low = min(low, theta[k])
            most = max(most, mu[at + k])
    gap = 0.0
    for k in range(n_states):
        if mu[at + k] > 0.0:
            gap += mu[at + k] * (high - theta[k])
    if gap <= 0.0:
        if most < 1.0:
            # All mass is at states that are best alike.
            return gap, 0.0
        second = -np.inf
        for k in range(n_states):
            if mu[at + k] == 0.0:
                second = max(second, theta[k])
        return gap, second - high
    unit = weight[m] / (rules.lam * len(weight))
    own = unit * features.squared_norms[m]
    if n_states == 2:
        slope = theta[1] - theta[0]
        curvature = (own * (sharing[0] + sharing[1]) if blocks[0] != blocks[1] else 0.0) + 2.0 * smoothing
        target = mu[at + 1] + slope / curvature if curvature > 0.0 else (1.0 if slope > 0.0 else 0.0)
        target = min(1.0, max(0.0, target))
        flat[0], flat[1] = 1.0 - target, target
    else:
        project_block(n_states, own, smoothing, high, sharing, 0, mu, at, theta, flat)
    for k in range(n_states):
        if blocks[k] >= 0:
            moved[blocks[k]] += flat[k] - mu[at + k]
        mu[at + k] = flat[k]
    add_row(features, m, w, 0, n_blocks, moved, 0, -unit)
    for k in range(n_states):
        if blocks[k] >= 0:
            moved[blocks[k]] = 0.0
    return gap, high - low


@inner
def _score(batch: Any, w: Any, m: int, buffer: Any, theta: Any) -> None:
    """Loss-augmented scores of the states of example m."""
    g = batch.graphs
    blocks, fixed, losses, extra = g.variable_block, g.variable_fixed, g.losses, g.variable_scores
    n_states = len(blocks)
    score_row(batch.variables.features, m, w, 0, w.shape[1], buffer, 0)
    for k in range(n_states):
        theta[k] = fixed[k] + losses[n_states * m + k] + (buffer[blocks[k]] if blocks[k] >= 0 else 0.0)
        if len(extra) > 0:
            theta[k] += extra[n_states * m + k]


@kernel
def measure_singles(batch: Any, w: Any, point: Any, binary: bool, begin: int, end: int, hinges: Any) -> None:
    """Hinges of examples begin to end - 1, into hinges[begin:end], and their gaps."""
    labels, mu, gaps, n_states = batch.graphs.labels, point.mu, point.gap, len(batch.graphs.variable_block)
    buffer, theta = np.empty(w.shape[1]), np.empty(n_states)
    if binary:
        features, losses = batch.variables.features, batch.graphs.losses
        for m in range(begin, end):
            slope = losses[2 * m + 1] - losses[2 * m] + row_times_block(features, m, w, 0)
            gaps[m] = mu[2 * m] * slope if slope > 0.0 else -mu[2 * m + 1] * slope
            hinges[m] = max(slope, 0.0) if labels[m] == 0 else max(-slope, 0.0)
        return
    for m in range(begin, end):
        _score(batch, w, m, buffer, theta)
        high, gap = -np.inf, 0.0
        for k in range(n_states):
            high = max(high, theta[k])
        for k in range(n_states):
            if mu[n_states * m + k] > 0.0:
                gap += mu[n_states * m + k] * (high - theta[k])
        hinges[m], gaps[m] = high - theta[labels[m]], gap


@kernel
def activate(batch: Any, point: Any) -> tuple[float, float]:
    """Make active what has a gap or mass at several states; returns the mean gap of what was not active, and of all.

    Examples without weight are never active.
    """
    weight, mu, gaps, active, numbers = batch.graphs.weight, point.mu, point.gap, point.active, point.numbers
    n_states, n, seen, total = len(batch.graphs.variable_block), 0, 0.0, 0.0
    for q in range(numbers[N_ACTIVE]):
        if active[q] >= 0:
            seen += weight[active[q]] * gaps[active[q]]
    for m in range(len(weight)):
        total += weight[m] * gaps[m]
        whole = False
        for k in range(n_states):
            whole = whole or mu[n_states * m + k] == 1.0
        if weight[m] > 0.0 and (gaps[m] > 0.0 or not whole):
            active[n] = m
            n += 1
    numbers[N_ACTIVE], numbers[PLACE] = n, 0
    return (total - seen) / len(weight), total / len(weight)


@kernel
def single_linear(batch: Any, mu: Any) -> float:
    """The linear part of f."""
    weight, total = batch.graphs.weight, 0.0
    for m in range(len(weight)):
        total += weight[m] * _linear(batch, mu, m)
    return total / len(weight)


@inner
def _linear(batch: Any, mu: Any, m: int) -> float:
    """The score of the masses of example m, but for the weights, minus that of the truth."""
    g = batch.graphs
    labels, fixed, losses, extra, n_states = (
        g.labels,
        g.variable_fixed,
        g.losses,
        g.variable_scores,
        len(g.variable_block),
    )
    linear, at = 0.0, n_states * m
    for k in range(n_states):
        change = mu[at + k] - (1.0 if k == labels[m] else 0.0)
        # A forbidden state has no mass, and -inf times 0 would be NaN.
        if change != 0.0:
            linear += change * (fixed[k] + losses[at + k])
            if len(extra) > 0:
                linear += change * extra[at + k]
    return linear


@kernel
def single_weights(batch: Any, mu: Any, lam: float, w: Any) -> None:
    """The weights of the masses, into w."""
    g, features = batch.graphs, batch.variables.features
    labels, weight, blocks = g.labels, g.weight, g.variable_block
    n_blocks, n_states, scale = w.shape[1], len(blocks), 1.0 / (lam * len(weight))
    moved = np.zeros(n_blocks)
    w[:] = 0.0
    for m in range(len(weight)):
        at = n_states * m
        if mu[at + labels[m]] == 1.0:
            continue
        for k in range(n_states):
            if blocks[k] >= 0:
                moved[blocks[k]] += mu[at + k] - (1.0 if k == labels[m] else 0.0)
        add_row(features, m, w, 0, n_blocks, moved, 0, -scale * weight[m])
        for k in range(n_states):
            if blocks[k] >= 0:
                moved[blocks[k]] = 0.0

"""The visits of block-coordinate Frank-Wolfe: slopes of an example's planes, the oracle if they are exhausted, a better block.

One visit of example m:

1. Project the weights onto the example (z), and read off the slopes v of the planes it has.
2. Cached planes first: if the best of them promises at least ``accept`` of the gap that the oracle last found here, and at least
   ``floor`` (a share of the mean gap), the oracle is not asked.
3. Otherwise the oracle finds the plane of largest slope. Its slope minus the block's mean is the block's duality gap: exactly
   so with an exact oracle, and for the relaxed problem with a relaxed one.
4. Improve the block over its planes (`improve_block`), and write the change of w once.

The oracle is an argument (oracles/compiled.py), and Numba compiles `visit_blocks` once for each type of it. The kernel returns
where it stopped, which is before the end only if the arena of planes is full.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.jit import Struct, kernel
from maxmargin.problems.statistics import project_example
from maxmargin.solvers.oracles.compiled import find_plane, gram_times_plane
from maxmargin.solvers.planes.arena import (
    add_products,
    free_slot,
    improve_block,
    mark_used,
    most_planes,
    plane_slopes,
    put_plane,
    write_change,
)

# `counts`: oracle calls, visits without one, crowded blocks.
N_ORACLE, N_CACHED, N_CROWDED = range(3)


class Rules(Struct):
    """How blocks are visited."""

    #: 1 / (lam M).
    scale: float
    #: Share of the last gap, and least gain, at which a cached plane will do.
    accept: float
    floor: float
    #: Share of the slope at which a block's steps end, and their number.
    inner: float
    steps: int
    #: Whether the oracle may be asked.
    ask: bool


class Visit(Struct):
    """The examples of a walk and what is known of them."""

    order: NDArray[np.int64]
    #: Where to begin in the order, and the number of the pass.
    first: int
    clock: int
    #: The gap that the oracle last found at each example of the batch, and `counts`.
    gaps: NDArray[np.float64]
    counts: NDArray[np.int64]


# ------------------------------------------------------------------------------------------------------- kernels


@kernel
def visit_blocks(
    batch: Any, w_v: Any, w_f: Any, oracle: Any, grams: Any, store: Any, work: Any, rules: Any, visit: Any
) -> tuple[int, float]:
    """Visit the examples order[first:]; returns where it stopped, and the gain in M times the dual."""
    order, gaps, counts, clock = visit.order, visit.gaps, visit.counts, visit.clock
    filled, index, value, z, weight = store.filled, store.entry, store.value, work.z, batch.graphs.weight
    v, moved = np.empty(most_planes(store)), np.empty(most_planes(store))
    gain = 0.0
    for k in range(visit.first, len(order)):
        m = order[k]
        kappa = rules.scale * weight[m]
        project_example(batch, m, w_v, w_f, z)
        mean, top = plane_slopes(store, m, z, v)
        enough = max(rules.accept * gaps[m], rules.floor)
        if rules.ask and not (top - mean >= enough and top > mean):
            begin = filled[0]
            # A plane has at most an entry for each coordinate.
            if begin + len(z) > len(index):
                return k, gain
            n, ell = find_plane(oracle, batch, work, k, m, index, value, begin)
            slope = ell
            for e in range(begin, begin + n):
                slope -= value[e] * z[index[e]]
            counts[N_ORACLE] += 1
            gaps[m] = max(slope, top) - mean
            # What is no better than a plane at hand is that plane, but for rounding.
            if slope > top + 1e-12 * (1.0 + abs(top)):
                slot = free_slot(store, m)
                if slot < 0:
                    counts[N_CROWDED] += 1
                else:
                    gram_times_plane(batch, grams, work, m, index, value, begin, begin + n)
                    put_plane(store, 0, m, slot, ell, n)
                    add_products(store, m, slot, work.u)
                    v[slot] = slope
                    top = slope
        else:
            counts[N_CACHED] += 1
        if top > mean:
            got = improve_block(store, m, kappa, v, moved, rules.inner * (top - mean), rules.steps)
            if got > 0.0:
                gain += weight[m] * got
                write_change(batch, store, m, moved, work.change, kappa, w_v, w_f)
            mark_used(store, m, clock)
    return len(order), gain


@kernel
def exhausted(batch: Any, w_v: Any, w_f: Any, store: Any, order: Any, rules: Any, gaps: Any) -> Any:
    """Which of the examples have no cached plane that is good enough."""
    z, v, out = np.empty(2 * batch.factors.at), np.empty(most_planes(store)), np.empty(len(order), np.bool_)
    for k in range(len(order)):
        m = order[k]
        project_example(batch, m, w_v, w_f, z)
        mean, top = plane_slopes(store, m, z, v)
        out[k] = not (top - mean >= max(rules.accept * gaps[m], rules.floor) and top > mean)
    return out


@kernel
def propose(batch: Any, w_v: Any, w_f: Any, store: Any, order: Any, rules: Any, moved: Any, slopes: Any) -> None:
    """What each block would do by itself at these weights: the change of its masses, and the slope of M f along it."""
    weight, alpha, n_planes = batch.graphs.weight, store.alpha, store.n_planes
    z, most = np.empty(2 * batch.factors.at), most_planes(store)
    v, before, kept = np.empty(most), np.empty(most), np.empty(most)
    for k in range(len(order)):
        m = order[k]
        first, n = store.first[m], n_planes[m]
        project_example(batch, m, w_v, w_f, z)
        mean, top = plane_slopes(store, m, z, v)
        for a in range(n):
            before[a], kept[a] = v[a], alpha[first + a]
        improve_block(store, m, rules.scale * weight[m], v, moved[k], rules.inner * (top - mean), rules.steps)
        slope = 0.0
        for a in range(n):
            alpha[first + a] = kept[a]
            slope += moved[k, a] * before[a]
        slopes[k] = weight[m] * slope


@kernel
def move_masses(store: Any, order: Any, moved: Any, step: float, clock: int) -> None:
    """Move the masses of each example by a share of its moves."""
    alpha = store.alpha
    for k in range(len(order)):
        first = store.first[order[k]]
        for a in range(store.n_planes[order[k]]):
            alpha[first + a] = max(alpha[first + a] + step * moved[k, a], 0.0)
        mark_used(store, order[k], clock)

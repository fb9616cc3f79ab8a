"""The visits of block-coordinate Frank-Wolfe: look at an example's planes, ask the oracle if they are exhausted, improve the block.

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

from maxmargin.jit import kernel
from maxmargin.problems.layout import (
    L_BUFFER,
    L_STATES,
    L_TABLES,
    L_VARIABLES,
    STRUCTURE,
)
from maxmargin.solvers.oracles.compiled import find_plane, oracle_room, project_example, spread_plane
from maxmargin.solvers.planes.arena import add_plane, free_slot, improve_block, plane_slopes, write_change

# `counts`: oracle calls, visits without one, crowded blocks.
N_ORACLE, N_CACHED, N_CROWDED = range(3)
# `rules`: 1 / (lam M); share of the last gap and least gain at which a cached plane will do; share of the slope at which a
# block's steps end, and their number; 0 if the oracle is never asked.
R_SCALE, R_ACCEPT, R_FLOOR, R_INNER, R_STEPS, R_ORACLE = range(6)


# ------------------------------------------------------------------------------------------------------- kernels


@kernel
def visit_blocks(
    g: Any, v_features: Any, f_features: Any, w_v: Any, w_f: Any, oracle: Any, grams: Any, store: Any, order: Any, first: int,
    clock: int, rules: Any, gaps: Any, counts: Any,
) -> tuple[int, float]:  # fmt: skip
    """Visit the examples order[first:]; returns where it stopped, and the gain in M times the dual."""
    examples, structures, v_groups, f_groups, weight = (
        g.examples, g.structures, g.variable_groups, g.factor_groups, g.weight,
    )  # fmt: skip
    count, alpha, ell, start, size, used, gram, index, value, filled = (
        store.n_planes, store.alpha, store.ell, store.start, store.size, store.used, store.gram, store.entry, store.value,
        store.filled,
    )  # fmt: skip
    gram_start, row_grams, kept = grams.start, grams.values, grams.kept
    largest = g.largest
    half, capacity = largest[L_BUFFER], alpha.shape[1]
    z, u, change, tally = np.empty(2 * half), np.empty(2 * half), np.zeros(2 * half), np.zeros(2 * half)
    touched = np.empty(2 * (largest[L_VARIABLES] + largest[L_TABLES]), np.int32)
    v, moved = np.empty(capacity), np.empty(capacity)
    theta_v, theta_f = np.empty(largest[L_STATES]), np.empty(largest[L_TABLES])
    labels = np.empty(largest[L_VARIABLES], np.int32)
    t_v, t_f = np.empty((0 if kept else len(w_v), w_v.shape[1])), np.empty((0 if kept else len(w_f), w_f.shape[1]))
    room = oracle_room(oracle, largest)
    gain = 0.0
    for k in range(first, len(order)):
        m = order[k]
        s, kappa = examples[m, STRUCTURE], rules[R_SCALE] * weight[m]
        project_example(m, s, examples, structures, v_groups, f_groups, v_features, f_features, half, w_v, w_f, z)
        mean, top = plane_slopes(m, count, alpha, ell, start, size, index, value, z, v)
        enough = max(rules[R_ACCEPT] * gaps[m], rules[R_FLOOR])
        if rules[R_ORACLE] > 0.0 and not (top - mean >= enough and top > mean):
            begin = filled[0]
            # A plane has at most an entry for each coordinate.
            if begin + 2 * half > len(index):
                return k, gain
            n, ell_new = find_plane(
                oracle, room, k, m, s, g, half, z, theta_v, theta_f, labels, tally, touched, index, value, begin
            )  # fmt: skip
            slope = ell_new
            for e in range(begin, begin + n):
                slope -= value[e] * z[index[e]]
            counts[N_ORACLE] += 1
            gaps[m] = max(slope, top) - mean
            # What is no better than a plane at hand is that plane, but for rounding.
            if slope > top + 1e-12 * (1.0 + abs(top)):
                slot = free_slot(m, count, alpha, used)
                if slot < 0:
                    counts[N_CROWDED] += 1
                else:
                    spread_plane(
                        m, s, begin, n, index, value, examples, structures, v_groups, f_groups, v_features, f_features, half,
                        gram_start, row_grams, kept, t_v, t_f, change, u,
                    )  # fmt: skip
                    filled[0] = begin + n
                    add_plane(m, slot, ell_new, begin, n, u, count, alpha, ell, start, size, gram, index, value)
                    v[slot] = slope
                    top = slope
        else:
            counts[N_CACHED] += 1
        if top > mean:
            got = improve_block(
                m, count[m], kappa, v, alpha, gram, moved, rules[R_INNER] * (top - mean), int(rules[R_STEPS])
            )
            if got > 0.0:
                gain += weight[m] * got
                write_change(
                    m, count[m], moved, start, size, index, value, change, kappa, s, examples, structures, v_groups, f_groups,
                    v_features, f_features, half, w_v, w_f,
                )  # fmt: skip
            for a in range(count[m]):
                if alpha[m, a] > 0.0:
                    used[m, a] = clock
    return len(order), gain


@kernel
def exhausted(
    g: Any, v_features: Any, f_features: Any, w_v: Any, w_f: Any, store: Any, order: Any, rules: Any, gaps: Any
) -> Any:
    """Which of the examples have no cached plane that is good enough."""
    half = g.largest[L_BUFFER]
    z, v, out = np.empty(2 * half), np.empty(store.alpha.shape[1]), np.empty(len(order), np.bool_)
    for k in range(len(order)):
        m = order[k]
        project_example(
            m, g.examples[m, STRUCTURE], g.examples, g.structures, g.variable_groups, g.factor_groups, v_features, f_features,
            half, w_v, w_f, z,
        )  # fmt: skip
        mean, top = plane_slopes(
            m, store.n_planes, store.alpha, store.ell, store.start, store.size, store.entry, store.value, z, v
        )
        out[k] = not (top - mean >= max(rules[R_ACCEPT] * gaps[m], rules[R_FLOOR]) and top > mean)
    return out


@kernel
def propose(
    g: Any,
    v_features: Any,
    f_features: Any,
    w_v: Any,
    w_f: Any,
    store: Any,
    order: Any,
    rules: Any,
    moved: Any,
    slopes: Any,
) -> None:
    """What each block would do by itself at these weights: the change of its masses, and the slope of M f along it."""
    examples, structures, v_groups, f_groups, weight = (
        g.examples, g.structures, g.variable_groups, g.factor_groups, g.weight,
    )  # fmt: skip
    n_planes, alpha, ell, start, size, gram, entry, value = (
        store.n_planes, store.alpha, store.ell, store.start, store.size, store.gram, store.entry, store.value,
    )  # fmt: skip
    half, capacity = g.largest[L_BUFFER], alpha.shape[1]
    z, v, before, kept = np.empty(2 * half), np.empty(capacity), np.empty(capacity), np.empty(capacity)
    for k in range(len(order)):
        m = order[k]
        s, n = examples[m, STRUCTURE], n_planes[m]
        project_example(m, s, examples, structures, v_groups, f_groups, v_features, f_features, half, w_v, w_f, z)
        mean, top = plane_slopes(m, n_planes, alpha, ell, start, size, entry, value, z, v)
        before[:n] = v[:n]
        kept[:n] = alpha[m, :n]
        improve_block(
            m,
            n,
            rules[R_SCALE] * weight[m],
            v,
            alpha,
            gram,
            moved[k],
            rules[R_INNER] * (top - mean),
            int(rules[R_STEPS]),
        )
        alpha[m, :n] = kept[:n]
        slopes[k] = weight[m] * (moved[k, :n] * before[:n]).sum()

"""Visits that do not ask the oracle, of examples with many feature rows: images, above all.

Such a visit (visits.py) needs the scores of the states that stand in the example's planes, a part of all its states, and changes
weights for those alone. Here the weights lie block after block, W'[b], so that a score is a product of two runs of numbers:

    z(r, b) = x_r . W'[b],         W'[b] += kappa change(r, b) x_r

Rows are dense for that, and the weights must be so few that turning them around costs nothing beside a pass. Measured on
superpixels (43 rows an example, 150 features, 21 classes): 4 times as fast as projecting all weights.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.jit import Struct, inner, kernel, reordering
from maxmargin.problems.factor_graphs import FactorGraphs
from maxmargin.solvers.frank_wolfe.visits import N_CACHED
from maxmargin.solvers.oracles.plane_search import group_of
from maxmargin.solvers.planes.arena import add_combination, improve_block, mark_used, most_planes

#: Operations that project the weights onto an example, above which it pays; most weights, and most numbers in dense rows.
_LEAST, _WEIGHTS, _ENTRIES = 10_000.0, 1 << 17, 1 << 25


class DenseRows(Struct):
    """The feature rows of variables and of factors, as dense float64 matrices."""

    variables: NDArray[np.float64]
    factors: NDArray[np.float64]


def dense_rows(problem: FactorGraphs, projection_work: float) -> DenseRows | None:
    """Rows for visits of this kind, or None where others do better."""
    sides = problem.variable_features, problem.factor_features
    small = all(size.size <= _WEIGHTS for size in problem.working_weights())
    entries = sum(one.shape[0] * one.shape[1] for one in sides)
    given_dense = all(
        len(one.arrays.gram) == 0 and (not one.sparse or getattr(one, "compressed", False)) for one in sides
    )
    if projection_work < _LEAST or not small or not given_dense or entries > _ENTRIES:
        return None
    return DenseRows(*(_dense(one.matrix()) for one in sides))


def _dense(matrix: Any) -> NDArray[np.float64]:
    return np.ascontiguousarray(matrix.toarray() if hasattr(matrix, "toarray") else matrix, np.float64)


# ------------------------------------------------------------------------------------------------------- kernels


@reordering
def _product(rows: Any, row: int, blocks: Any, block: int) -> float:
    """x_row . W'[block]."""
    total = 0.0
    for k in range(rows.shape[1]):
        total += rows[row, k] * blocks[block, k]
    return total


@inner
def _add_times(rows: Any, row: int, scale: float, blocks: Any, block: int) -> None:
    """W'[block] += scale x_row."""
    for k in range(rows.shape[1]):
        blocks[block, k] += scale * rows[row, k]


@inner
def _slopes(batch: Any, rows: Any, b_v: Any, b_f: Any, store: Any, m: int, known: Any, seen: Any, v: Any) -> Any:
    """The slopes of all planes of example m into v; returns their mean and the largest.

    `known` has the scores that were found; those whose `seen` is `seen[-1]` belong to this visit.
    """
    v_side, f_side, s = batch.variables, batch.factors, batch.graphs.examples[m].structure
    v_groups, f_groups, half, visit = v_side.groups, f_side.groups, f_side.at, seen[-1]
    alpha, ell, start, size, index, value = store.alpha, store.ell, store.start, store.size, store.entry, store.value
    x_v, x_f, v_row, f_row = rows.variables, rows.factors, v_side.first_row[m], f_side.first_row[m]
    first, mean, top = store.first[m], 0.0, -np.inf
    for a in range(store.n_planes[m]):
        slope, p, q = ell[first + a], v_side.first_group[s], f_side.first_group[s]
        for e in range(start[first + a], start[first + a] + size[first + a]):
            i = index[e]
            if seen[i] != visit:
                seen[i] = visit
                if i < half:
                    p = group_of(v_side, i, p)
                    known[i] = _product(x_v, v_row + v_groups[p].row, b_v, i - v_groups[p].at + v_groups[p].block)
                else:
                    q = group_of(f_side, i - half, q)
                    known[i] = _product(
                        x_f, f_row + f_groups[q].row, b_f, i - half - f_groups[q].at + f_groups[q].block
                    )
            slope -= value[e] * known[i]
        v[a] = slope
        mean += alpha[first + a] * slope
        top = max(top, slope)
    return mean, top


@inner
def _write_change(
    batch: Any, rows: Any, b_v: Any, b_f: Any, store: Any, m: int, kappa: float, moved: Any, change: Any
) -> None:
    """W += kappa sum_a moved(a) psi_a; `change` is zero, and is so again afterwards."""
    v_side, f_side, s = batch.variables, batch.factors, batch.graphs.examples[m].structure
    v_groups, f_groups, half = v_side.groups, f_side.groups, f_side.at
    start, size, index, first = store.start, store.size, store.entry, store.first[m]
    x_v, x_f, v_row, f_row = rows.variables, rows.factors, v_side.first_row[m], f_side.first_row[m]
    add_combination(store, m, moved, kappa, change)
    for a in range(store.n_planes[m]):
        if moved[a] == 0.0:
            continue
        p, q = v_side.first_group[s], f_side.first_group[s]
        for e in range(start[first + a], start[first + a] + size[first + a]):
            i = index[e]
            scale, change[i] = change[i], 0.0
            if scale == 0.0:
                continue
            if i < half:
                p = group_of(v_side, i, p)
                _add_times(x_v, v_row + v_groups[p].row, scale, b_v, i - v_groups[p].at + v_groups[p].block)
            else:
                q = group_of(f_side, i - half, q)
                _add_times(x_f, f_row + f_groups[q].row, scale, b_f, i - half - f_groups[q].at + f_groups[q].block)


@kernel
def visit_cached(
    batch: Any, rows: Any, b_v: Any, b_f: Any, store: Any, work: Any, rules: Any, visit: Any, left: Any
) -> float:
    """Improve the blocks of the examples in order over the planes they have; returns the gain in M times the dual.

    Where the oracle may be asked, those whose planes are not good enough for that are left to it.
    """
    order, gaps, weight, n = visit.order, visit.gaps, batch.graphs.weight, 2 * batch.factors.at
    v, moved = np.empty(most_planes(store)), np.empty(most_planes(store))
    known, seen, gain = np.empty(n), np.full(n + 1, -1), 0.0
    for k in range(len(order)):
        m, seen[n] = order[k], k
        kappa = rules.scale * weight[m]
        mean, top = _slopes(batch, rows, b_v, b_f, store, m, known, seen, v)
        enough = max(rules.accept * gaps[m], rules.floor)
        left[k] = rules.ask and not (top - mean >= enough and top > mean)
        if left[k]:
            continue
        visit.counts[N_CACHED] += 1
        if top > mean:
            got = improve_block(store, m, kappa, v, moved, rules.inner * (top - mean), rules.steps)
            if got > 0.0:
                gain += weight[m] * got
                _write_change(batch, rows, b_v, b_f, store, m, kappa, moved, work.change)
            mark_used(store, m, visit.clock)
    return gain

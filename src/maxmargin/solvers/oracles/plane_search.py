"""The kernels of the joint oracle: find the planes of examples, keep them, pick the best that are kept, and add them up.

Planes of factor graphs are kept as entries of the example's statistics (problems/statistics.py), a few where the plane itself has
hundreds; those of other problems as entries of the flat weights.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.jit import Struct, inner, kernel
from maxmargin.problems.factor_graphs import FactorGraphs
from maxmargin.problems.features import add_row, entry, row_times_block, score_row
from maxmargin.problems.statistics import project_example
from maxmargin.solvers.oracles.compiled import Given, find_plane
from maxmargin.solvers.planes.arena import keep_plane


class Turn(Struct):
    """A round over kept planes: its number, and the shard at work.

    For every example it has the plane picked (0 is the truth), the hinge, and a bound on that where the oracle has one, else NaN.
    """

    now: int
    shard: int
    picks: NDArray[np.int32]
    hinges: NDArray[np.float64]
    bounds: NDArray[np.float64]

    @classmethod
    def of(cls, n: int, now: int = 0) -> Turn:
        """Nothing is picked."""
        return cls(now, 0, np.zeros(n, np.int32), np.zeros(n), np.full(n, np.nan))


def rows_of_planes(problem: FactorGraphs, chosen: NDArray[np.int64], found: Given, working: bool) -> Any:
    """Planes of examples in statistics coordinates as CSR rows in flat weights, or in working vectors (joint_plane.py)."""
    (p, b), (q, c) = (one.shape for one in problem.working_weights())
    steps = [[0, b, 1], [p * b, c, 1]] if working else [[0, 1, p], [p * b, 1, q]]
    starts, indices, values = np.zeros(len(chosen) + 1, np.int64), np.empty(0, np.int64), np.empty(0)
    for _ in range(2):
        # Counted first, written then.
        indices, values = np.empty(starts[-1], np.int64), np.empty(starts[-1])
        write_rows(problem.batch, chosen, found, np.array(steps, np.int64), starts, indices, values)
    psi = sp.csr_array((values, indices, starts), (len(chosen), problem.n_weights))
    # An example that reads a row twice has its coordinates twice.
    psi.sum_duplicates()
    return psi


# ------------------------------------------------------------------------------------------------------- kernels


@kernel
def add_singles(batch: Any, blocks: Any, w: Any, begin: int, end: int, out: Any, hinges: Any) -> float:
    """Add weight_m psi_m of the best states of single variables to out; returns the sum of weight_m ell_m."""
    g, features = batch.graphs, batch.variables.features
    examples, labels, losses, weight = g.examples, g.labels, g.losses, g.weight
    n_states, width = len(blocks), w.shape[1]
    z, one, total = np.empty(width), np.ones(1), 0.0
    for m in range(begin, end):
        row, own, at = examples[m].variable_row, labels[m], m * n_states
        score_row(features, row, w, 0, width, z, 0)
        base = z[blocks[own]] if blocks[own] >= 0 else 0.0
        best, top = own, 0.0
        for y in range(n_states):
            slope = losses[at + y] - base
            if blocks[y] >= 0:
                slope += z[blocks[y]]
            if y != own and slope > top:
                best, top = y, slope
        hinges[m] = top
        if best != own:
            total += weight[m] * losses[at + best]
            if blocks[own] >= 0:
                add_row(features, row, out, blocks[own], blocks[own] + 1, one, 0, weight[m])
            if blocks[best] >= 0:
                add_row(features, row, out, blocks[best], blocks[best] + 1, one, 0, -weight[m])
    return total


@kernel
def remember(batch: Any, w_v: Any, w_f: Any, oracle: Any, work: Any, cache: Any, chosen: Any, turn: Any) -> int:
    """Find the planes of the chosen examples, and put them into the cache; returns how many were done before it was full."""
    picks, hinges, now, shard = turn.picks, turn.hinges, turn.now, turn.shard
    z, index, value = work.z, work.index, work.value
    for k in range(len(chosen)):
        m = chosen[k]
        project_example(batch, m, w_v, w_f, z)
        n, ell = find_plane(oracle, batch, work, k, m, index, value, 0)
        slope = ell
        for e in range(n):
            slope -= value[e] * z[index[e]]
        hinges[m], picks[m] = max(slope, 0.0), 0
        # Otherwise the truth is at least as good.
        if slope > 0.0:
            slot = keep_plane(cache, shard, now, m, ell, n, index, value)
            if slot < 0:
                return k
            picks[m] = slot
    return len(chosen)


@inner
def group_of(side: Any, i: int, q: int) -> int:
    """The group that has statistic i of its side; q is one before it, as entries come in the order of the groups."""
    groups = side.groups
    while i >= groups[q].at + groups[q].block_end - groups[q].block:
        q += 1
    return q


@kernel
def recall(batch: Any, w_v: Any, w_f: Any, scored: bool, cache: Any, begin: int, end: int, turn: Any) -> None:
    """Pick the best cached plane of the examples from begin to end.

    Where `scored`, w_v and w_f are not weights but scores: of every feature row in every block.
    """
    v_side, f_side, examples = batch.variables, batch.factors, batch.graphs.examples
    v_groups, f_groups, half = v_side.groups, f_side.groups, f_side.at
    picks, hinges, now = turn.picks, turn.hinges, turn.now
    z, seen = np.empty(2 * half), np.full(2 * half, -1)
    ell, start, size, used, index, value = cache.ell, cache.start, cache.size, cache.used, cache.entry, cache.value
    for m in range(begin, end):
        first, s, best, top = cache.first[m], examples[m].structure, 0, 0.0
        for a in range(first + 1, first + cache.n_planes[m]):
            v, f = v_side.first_group[s], f_side.first_group[s]
            slope = ell[a]
            for e in range(start[a], start[a] + size[a]):
                i = index[e]
                if seen[i] != m:
                    seen[i] = m
                    if i < half:
                        v = group_of(v_side, i, v)
                        row, block = v_side.first_row[m] + v_groups[v].row, i - v_groups[v].at + v_groups[v].block
                        z[i] = w_v[row, block] if scored else row_times_block(v_side.features, row, w_v, block)
                    else:
                        f = group_of(f_side, i - half, f)
                        row, block = (
                            f_side.first_row[m] + f_groups[f].row,
                            i - half - f_groups[f].at + f_groups[f].block,
                        )
                        z[i] = w_f[row, block] if scored else row_times_block(f_side.features, row, w_f, block)
                slope -= value[e] * z[i]
            if slope > top:
                best, top = a - first, slope
        picks[m], hinges[m] = best, top
        if best > 0:
            used[first + best] = now


@kernel
def add_planes(batch: Any, cache: Any, picks: Any, out_v: Any, out_f: Any, low: int, high: int) -> float:
    """Add weight_m psi_m of the planes picked to out, in the variables' columns from low to high, and the factors' if low is 0.

    Returns the sum of weight_m ell_m.
    """
    v_side, f_side, examples, weight = batch.variables, batch.factors, batch.graphs.examples, batch.graphs.weight
    v_groups, f_groups, half, features = v_side.groups, f_side.groups, f_side.at, v_side.features
    indptr, indices, data, dense = features.indptr, features.indices, features.data, features.dense
    start, size, index, value = cache.start, cache.size, cache.entry, cache.value
    total, one = 0.0, np.ones(1)
    for m in range(len(picks)):
        if picks[m] == 0:
            continue
        a, s = cache.first[m] + picks[m], examples[m].structure
        v, f = v_side.first_group[s], f_side.first_group[s]
        total += weight[m] * cache.ell[a]
        for e in range(start[a], start[a] + size[a]):
            i, scale = index[e], weight[m] * value[e]
            if i < half:
                v = group_of(v_side, i, v)
                row, block = v_side.first_row[m] + v_groups[v].row, i - v_groups[v].at + v_groups[v].block
                if len(indptr) > 1:
                    for q in range(indptr[row], indptr[row + 1]):
                        if low <= indices[q] < high:
                            out_v[indices[q], block] += scale * entry(data, q)
                else:
                    for column in range(low, high):
                        out_v[column, block] += scale * dense[row, column]
            elif low == 0:
                f = group_of(f_side, i - half, f)
                row, block = f_side.first_row[m] + f_groups[f].row, i - half - f_groups[f].at + f_groups[f].block
                add_row(f_side.features, row, out_f, block, block + 1, one, 0, scale)
    return total


@inner
def write_row(features: Any, row: int, step: int, base: int, scale: float, at: int, indices: Any, values: Any) -> int:
    """Write scale times a feature row whose column k has the coordinate base + k step, if there is room; returns where it ends."""
    indptr, columns, data, dense = features.indptr, features.indices, features.data, features.dense
    if len(indptr) > 1:
        if len(indices) > 0:
            for q in range(indptr[row], indptr[row + 1]):
                indices[at + q - indptr[row]] = base + columns[q] * step
                values[at + q - indptr[row]] = scale * entry(data, q)
        return int(at + indptr[row + 1] - indptr[row])
    for column in range(dense.shape[1]):
        if dense[row, column] != 0.0:
            if len(indices) > 0:
                indices[at], values[at] = base + column * step, scale * dense[row, column]
            at += 1
    return at


@kernel
def write_rows(batch: Any, chosen: Any, found: Any, steps: Any, starts: Any, indices: Any, values: Any) -> None:
    """Planes as rows of weights, whose coordinates may repeat; counts entries only, into `starts`, where there is no room.

    ``steps``, for variables and for factors: where the weights begin, from a feature to the next, from a block to the next.
    """
    v_side, f_side, examples = batch.variables, batch.factors, batch.graphs.examples
    v_groups, f_groups, half = v_side.groups, f_side.groups, f_side.at
    start, entry, value = found.start, found.entry, found.value
    at = 0
    for k in range(len(chosen)):
        m = chosen[k]
        s = examples[m].structure
        v, f = v_side.first_group[s], f_side.first_group[s]
        for e in range(start[k], start[k + 1]):
            i = entry[e]
            if i < half:
                v = group_of(v_side, i, v)
                base = steps[0, 0] + (i - v_groups[v].at + v_groups[v].block) * steps[0, 2]
                row = v_side.first_row[m] + v_groups[v].row
                at = write_row(v_side.features, row, steps[0, 1], base, value[e], at, indices, values)
            else:
                f = group_of(f_side, i - half, f)
                base = steps[1, 0] + (i - half - f_groups[f].at + f_groups[f].block) * steps[1, 2]
                row = f_side.first_row[m] + f_groups[f].row
                at = write_row(f_side.features, row, steps[1, 1], base, value[e], at, indices, values)
        starts[k + 1] = at


@kernel
def remember_rows(cache: Any, chosen: Any, given: Any, u: Any, turn: Any) -> int:
    """Put planes given in flat weights into the cache; returns how many were done before it was full."""
    starts, indices, data, ell = given.start, given.entry, given.value, given.ell
    picks, hinges = turn.picks, turn.hinges
    for k in range(len(chosen)):
        m, first, last = chosen[k], starts[k], starts[k + 1]
        slope = ell[k]
        for e in range(first, last):
            slope -= data[e] * u[indices[e]]
        hinges[m], picks[m] = max(slope, 0.0), 0
        if slope > 0.0:
            slot = keep_plane(
                cache, turn.shard, turn.now, m, ell[k], last - first, indices[first:last], data[first:last]
            )  # fmt: skip
            if slot < 0:
                return k
            picks[m] = slot
    return len(chosen)


@kernel
def recall_rows(cache: Any, u: Any, begin: int, end: int, turn: Any) -> None:
    """Pick the best cached plane of the examples from begin to end."""
    picks, hinges, now = turn.picks, turn.hinges, turn.now
    ell, start, size, used, index, value = cache.ell, cache.start, cache.size, cache.used, cache.entry, cache.value
    for m in range(begin, end):
        first, best, top = cache.first[m], 0, 0.0
        for a in range(first + 1, first + cache.n_planes[m]):
            slope = ell[a]
            for e in range(start[a], start[a] + size[a]):
                slope -= value[e] * u[index[e]]
            if slope > top:
                best, top = a - first, slope
        picks[m], hinges[m] = best, top
        if best > 0:
            used[first + best] = now


@kernel
def add_rows(cache: Any, weight: Any, picks: Any, out: Any) -> float:
    """Add weight_m psi_m of the planes picked to out; returns the sum of weight_m ell_m."""
    start, size, index, value = cache.start, cache.size, cache.entry, cache.value
    total = 0.0
    for m in range(len(picks)):
        if picks[m] > 0:
            a = cache.first[m] + picks[m]
            total += weight[m] * cache.ell[a]
            for e in range(start[a], start[a] + size[a]):
                out[index[e]] += weight[m] * value[e]
    return total

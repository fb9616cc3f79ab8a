"""The kernels of the joint oracle: find the planes of examples, keep them, pick the best that are kept, and add them up.

A cached plane is its entries in the weights' own coordinates: an entry's key is ``feature row * blocks + block``, the blocks of
factors after those of variables. Problems that are known by their planes alone have flat weights, and the key is the coordinate.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maxmargin.jit import inner, kernel
from maxmargin.problems.features import add_row, score_row
from maxmargin.problems.statistics import project_example
from maxmargin.solvers.oracles.compiled import find_plane
from maxmargin.solvers.planes.cache import keep_plane


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
def remember(
    batch: Any, w_v: Any, w_f: Any, oracle: Any, work: Any, cache: Any, blocks: Any, chosen: Any, turn: Any
) -> int:
    """Find the planes of the chosen examples, and put them into the cache; returns how many were done before it was full.

    ``blocks`` are those of variables, and all.
    """
    g, half = batch.graphs, batch.factors.at
    examples, structures, v_groups, f_groups = g.examples, g.structures, g.variable_groups, g.factor_groups
    picks, hinges = turn.picks, turn.hinges
    z, index, value, key = work.z, work.index, work.value, np.empty(2 * half, np.int64)
    for k in range(len(chosen)):
        m = chosen[k]
        s = examples[m].structure
        project_example(batch, m, w_v, w_f, z)
        n, ell = find_plane(oracle, batch, work, k, m, index, value, 0)
        slope = ell
        for e in range(n):
            slope -= value[e] * z[index[e]]
        hinges[m], picks[m] = max(slope, 0.0), -1
        # Otherwise the truth is at least as good, which has a plane of zeros.
        if slope > 0.0:
            v, f = structures[s].variable_groups, structures[s].factor_groups
            for e in range(n):
                i = index[e]
                # Entries come in the order of the groups, so the group only moves on.
                if i < half:
                    while i >= v_groups[v].at + v_groups[v].block_end - v_groups[v].block:
                        v += 1
                    row, block = examples[m].variable_row + v_groups[v].row, i - v_groups[v].at + v_groups[v].block
                else:
                    i -= half
                    while i >= f_groups[f].at + f_groups[f].block_end - f_groups[f].block:
                        f += 1
                    row = examples[m].factor_row + f_groups[f].row
                    block = blocks[0] + i - f_groups[f].at + f_groups[f].block
                key[e] = row * blocks[1] + block
            slot = keep_plane(cache, turn, m, n, key, index, value, ell)
            if slot < 0:
                return k
            picks[m] = slot
    return len(chosen)


@inner
def row_times_block(features: Any, row: int, weights: Any, block: int) -> float:
    """x_row . weights[:, block]."""
    indptr, indices, data, dense = features.indptr, features.indices, features.data, features.dense
    total = 0.0
    if len(indptr) > 1:
        for q in range(indptr[row], indptr[row + 1]):
            total += data[q] * weights[indices[q], block]
    else:
        for column in range(dense.shape[1]):
            total += dense[row, column] * weights[column, block]
    return total


@kernel
def recall(batch: Any, w_v: Any, w_f: Any, cache: Any, blocks: Any, begin: int, end: int, turn: Any) -> None:
    """Pick the best cached plane of the examples from begin to end, or none, which is the truth."""
    v_features, f_features, half = batch.variables.features, batch.factors.features, batch.factors.at
    picks, hinges, now = turn.picks, turn.hinges, turn.now
    z, seen = np.empty(2 * half), np.full(2 * half, -1)
    n_planes, c_ell, c_start, c_size, c_used, c_key, c_at, c_value = (
        cache.n_planes, cache.ell, cache.start, cache.size, cache.used, cache.key, cache.at, cache.value,
    )  # fmt: skip
    n_variable_blocks, n_blocks = blocks
    for m in range(begin, end):
        best, top = -1, 0.0
        for a in range(n_planes[m]):
            slope = c_ell[m, a]
            for e in range(c_start[m, a], c_start[m, a] + c_size[m, a]):
                i = c_at[e]
                if seen[i] != m:
                    seen[i], row, block = m, c_key[e] // n_blocks, c_key[e] % n_blocks
                    if block < n_variable_blocks:
                        z[i] = row_times_block(v_features, row, w_v, block)
                    else:
                        z[i] = row_times_block(f_features, row, w_f, block - n_variable_blocks)
                slope -= c_value[e] * z[i]
            if slope > top:
                best, top = a, slope
        picks[m], hinges[m] = best, top
        if best >= 0:
            c_used[m, best] = now


@kernel
def add_planes(batch: Any, cache: Any, blocks: Any, picks: Any, out_v: Any, out_f: Any, low: int, high: int) -> float:
    """Add weight_m psi_m of the planes picked to out, in the variables' columns from low to high, and the factors' if low is 0.

    Returns the sum of weight_m ell_m.
    """
    v_features, f_features, weight = batch.variables.features, batch.factors.features, batch.graphs.weight
    c_ell, c_start, c_size, c_key, c_value = cache.ell, cache.start, cache.size, cache.key, cache.value
    indptr, indices, data, dense = v_features.indptr, v_features.indices, v_features.data, v_features.dense
    n_variable_blocks, n_blocks = blocks
    total, one = 0.0, np.ones(1)
    for m in range(len(picks)):
        a = picks[m]
        if a >= 0:
            total += weight[m] * c_ell[m, a]
            for e in range(c_start[m, a], c_start[m, a] + c_size[m, a]):
                row, block, scale = c_key[e] // n_blocks, c_key[e] % n_blocks, weight[m] * c_value[e]
                if block < n_variable_blocks:
                    if len(indptr) > 1:
                        for q in range(indptr[row], indptr[row + 1]):
                            if low <= indices[q] < high:
                                out_v[indices[q], block] += scale * data[q]
                    else:
                        for column in range(low, high):
                            out_v[column, block] += scale * dense[row, column]
                elif low == 0:
                    block -= n_variable_blocks
                    add_row(f_features, row, out_f, block, block + 1, one, 0, scale)
    return total


@inner
def write_row(
    features: Any, row: int, base: int, width: int, block: int, scale: float, at: int, indices: Any, values: Any
) -> int:
    """Write scale times a feature row in a block of a working vector, if there is room; returns where it ends."""
    indptr, columns, data, dense = features.indptr, features.indices, features.data, features.dense
    if len(indptr) > 1:
        if len(indices) > 0:
            for q in range(indptr[row], indptr[row + 1]):
                indices[at + q - indptr[row]] = base + columns[q] * width + block
                values[at + q - indptr[row]] = scale * data[q]
        return int(at + indptr[row + 1] - indptr[row])
    for column in range(dense.shape[1]):
        if dense[row, column] != 0.0:
            if len(indices) > 0:
                indices[at], values[at] = base + column * width + block, scale * dense[row, column]
            at += 1
    return at


@kernel
def write_planes(
    batch: Any, cache: Any, blocks: Any, shapes: Any, chosen: Any, starts: Any, indices: Any, values: Any
) -> None:
    """The first cached plane of each example chosen in working coordinates, which may repeat; counts only, without room."""
    v_features, f_features = batch.variables.features, batch.factors.features
    c_start, c_size, c_key, c_value = cache.start, cache.size, cache.key, cache.value
    at = 0
    for k in range(len(chosen)):
        m = chosen[k]
        for e in range(c_start[m, 0], c_start[m, 0] + c_size[m, 0]):
            row, block = c_key[e] // blocks[1], c_key[e] % blocks[1]
            if block < blocks[0]:
                at = write_row(v_features, row, 0, shapes[0, 1], block, c_value[e], at, indices, values)
            else:
                base = shapes[0, 0] * shapes[0, 1]
                at = write_row(f_features, row, base, shapes[1, 1], block - blocks[0], c_value[e], at, indices, values)
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
        hinges[m], picks[m] = max(slope, 0.0), -1
        if slope > 0.0:
            key = indices[first:last]
            slot = keep_plane(cache, turn, m, last - first, key, key, data[first:last], ell[k])
            if slot < 0:
                return k
            picks[m] = slot
    return len(chosen)


@kernel
def recall_rows(cache: Any, u: Any, begin: int, end: int, turn: Any) -> None:
    """Pick the best cached plane of the examples from begin to end, or none, which is the truth."""
    picks, hinges, now = turn.picks, turn.hinges, turn.now
    n_planes, c_ell, c_start, c_size, c_used, c_key, c_value = (
        cache.n_planes, cache.ell, cache.start, cache.size, cache.used, cache.key, cache.value,
    )  # fmt: skip
    for m in range(begin, end):
        best, top = -1, 0.0
        for a in range(n_planes[m]):
            slope = c_ell[m, a]
            for e in range(c_start[m, a], c_start[m, a] + c_size[m, a]):
                slope -= c_value[e] * u[c_key[e]]
            if slope > top:
                best, top = a, slope
        picks[m], hinges[m] = best, top
        if best >= 0:
            c_used[m, best] = now


@kernel
def add_rows(cache: Any, weight: Any, picks: Any, out: Any) -> float:
    """Add weight_m psi_m of the planes picked to out; returns the sum of weight_m ell_m."""
    c_ell, c_start, c_size, c_key, c_value = cache.ell, cache.start, cache.size, cache.key, cache.value
    total = 0.0
    for m in range(len(picks)):
        a = picks[m]
        if a >= 0:
            total += weight[m] * c_ell[m, a]
            for e in range(c_start[m, a], c_start[m, a] + c_size[m, a]):
                out[c_key[e]] += weight[m] * c_value[e]
    return total

"""The visits of block-coordinate Frank-Wolfe: slopes of an example's planes, the oracle if they are exhausted, a better block.

One visit of example m:

1. Read off the slopes v of the planes that it has.
2. Cached planes first: if the best of them promises at least ``accept`` of the gap that the oracle last found here, and at least
   ``floor`` (a share of the mean gap), the oracle is not asked.
3. Otherwise the weights are projected onto the example (z), and the oracle finds the plane of largest slope. Its slope minus the
   block's mean is the block's duality gap: exactly so with an exact oracle, and for the relaxed problem with a relaxed one.
4. Improve the block over its planes (`improve_block`), and write the change of w once.

Several threads share a *batch* of examples. Steps 1 to 3 are done for all of it at the same weights, in threads: planes, their
inner products and gaps are each example's own, and what is found goes into segments of the arena that belong to parts of the
batch. Then one thread takes the examples in order, reads the slopes at the weights of the moment, and does step 4. A plane is a
bound whatever the weights were when it was found, and the steps are exact, so f never falls. That planes are a batch old costs
passes where weights change fast, so batches are small at first. They and their parts depend on the problem and the number of the
pass alone, and so do the bits of a run, whatever the number of threads.

Slopes and changes of w are about the coordinates that stand in an example's planes. Where those are a small part of all (`few`),
as in chains with many states, step 4 reads and writes their weights alone: for words of 8 letters, 128 pixels and 26 classes that
takes two thirds of the time of a visit that projects all weights, and less than half for sentences of 25 words.

The oracle is an argument (oracles/compiled.py), and Numba compiles `visit_batches` once for each type of it. The kernel of the
leader returns before the end if a segment of the arena is full.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.jit import Struct, inner, kernel, wait_a_little
from maxmargin.parallel.turns import (
    PATIENCE,
    close_turns,
    end_part,
    open_turn,
    take_part,
    turn_is_over,
    turns_are_closed,
    turns_began,
)
from maxmargin.problems.features import add_to_block, row_times_block, row_times_four
from maxmargin.problems.statistics import project_example
from maxmargin.solvers.oracles.compiled import find_plane, gram_times_plane
from maxmargin.solvers.oracles.plane_search import group_of
from maxmargin.solvers.planes.arena import (
    add_combination,
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
    #: The number of the pass.
    clock: int
    #: The gap that the oracle last found at each example of the batch, and `counts`.
    gaps: NDArray[np.float64]
    counts: NDArray[np.int64]


class Walk(Struct):
    """The examples that are visited, in batches, and how far that has come."""

    #: (n,): examples, and where each stood in the order that was asked for. (batches + 1,): where the batches begin, each of
    #: which has an example once.
    order: NDArray[np.int64]
    place: NDArray[np.int64]
    starts: NDArray[np.int64]
    #: The gap that the oracle last found at each example of the problem; the number of the pass.
    gaps: NDArray[np.float64]
    clock: int
    #: Whether planes have a small part of the coordinates.
    few: bool
    #: (n,): whether the planes of an example promise a gain.
    promising: NDArray[np.bool_]
    #: (1,): the batch; (parts,): where each of its parts goes on; (parts, 3): what was counted; (1,): the gain.
    now: NDArray[np.int64]
    at: NDArray[np.int64]
    counts: NDArray[np.int64]
    gain: NDArray[np.float64]
    counters: NDArray[np.int64]


#: What a call of `visit_batches` ends with.
DONE, WAITING, FULL = range(3)


# ------------------------------------------------------------------------------------------------------- kernels


@kernel
def in_batches(order: Any, size: int, n_examples: int) -> Any:
    """Places of the order, in batches of some size that have each example once, and where they begin: repeats go to later ones."""
    n, places, starts, last = len(order), np.empty(len(order), np.int64), [0], np.full(n_examples, -1)
    later, n_later, read, filled = np.empty(n, np.int64), 0, 0, 0
    while filled < n:
        batch, end, kept = len(starts), filled + size, 0
        for i in range(n_later):
            k = later[i]
            if filled < end and last[order[k]] != batch:
                last[order[k]], places[filled] = batch, k
                filled += 1
            else:
                later[kept] = k
                kept += 1
        n_later = kept
        while filled < end and read < n:
            if last[order[read]] != batch:
                last[order[read]], places[filled] = batch, read
                filled += 1
            else:
                later[n_later] = read
                n_later += 1
            read += 1
        starts.append(filled)
    return places, np.array(starts)


@kernel
def visit_batches(
    batch: Any, w_v: Any, w_f: Any, oracle: Any, grams: Any, store: Any, work: Any, rules: Any, walk: Any, leads: bool
) -> int:
    """Visit the examples of a walk, as the leader or as a helper; returns DONE, FULL, or WAITING for others."""
    counters, n_parts, gains, n = walk.counters, len(walk.at), walk.gain, 2 * batch.factors.at
    v, moved, notes = np.empty(most_planes(store)), np.empty(most_planes(store)), np.full((4, n + 1), -1)
    idle = 0
    if leads and walk.now[0] == len(walk.starts) - 1:
        close_turns(counters)
        return DONE
    while True:
        part = take_part(counters)
        if part >= 0:
            _find_planes(batch, w_v, w_f, oracle, grams, store, work, rules, walk, part % n_parts, v)
            end_part(counters)
            idle = 0
        elif not leads and turns_are_closed(counters):
            return DONE
        elif leads and turn_is_over(counters):
            b = walk.now[0]
            if turns_began(counters) or not rules.ask:
                for p in range(n_parts if rules.ask else 0):
                    if walk.at[p] < _part_end(walk, b, p):
                        close_turns(counters)
                        return FULL
                if rules.steps > 0:
                    for k in range(walk.starts[b], walk.starts[b + 1]):
                        if not walk.promising[k]:
                            continue
                        gains[0] += _step(batch, w_v, w_f, store, work, rules, walk, walk.order[k], notes, v, moved)
                b += 1
                walk.now[0] = b
                if b == len(walk.starts) - 1:
                    close_turns(counters)
                    return DONE
                for p in range(n_parts):
                    walk.at[p] = walk.starts[b] if p == 0 else _part_end(walk, b, p - 1)
            if rules.ask:
                open_turn(counters, n_parts)
        else:
            idle += 1
            if idle > PATIENCE:
                return WAITING
            wait_a_little()


@inner
def _part_end(walk: Any, b: int, part: int) -> int:
    """Where a part of a batch ends."""
    return int(walk.starts[b] + (walk.starts[b + 1] - walk.starts[b]) * (part + 1) // len(walk.at))


@inner
def _find_planes(
    batch: Any, w_v: Any, w_f: Any, oracle: Any, grams: Any, store: Any, work: Any, rules: Any, walk: Any, part: int,
    v: Any,
) -> None:  # fmt: skip
    """Ask about the examples of a part whose planes are exhausted; it stops where its segment of the arena is full."""
    order, gaps, counts, z, k = walk.order, walk.gaps, walk.counts[part], work.z, walk.at[part]
    promising = walk.promising
    filled, segment, index, value, b = store.filled, store.segment, store.entry, store.value, walk.now[0]
    # Small batches have fewer parts than there are segments, and take them in turn.
    end, here = _part_end(walk, b, part), (b * len(walk.at) + part) % len(filled)
    while k < end:
        m = order[k]
        project_example(batch, m, w_v, w_f, z)
        mean, top = plane_slopes(store, m, z, v)
        enough = max(rules.accept * gaps[m], rules.floor)
        if top - mean >= enough and top > mean:
            counts[N_CACHED] += 1
            k += 1
            continue
        begin = filled[here]
        # A plane has at most an entry for each coordinate.
        if begin + len(z) > segment[here + 1]:
            break
        n, ell = find_plane(oracle, batch, work, walk.place[k], m, index, value, begin)
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
                put_plane(store, here, m, slot, ell, n)
                add_products(store, m, slot, work.u)
                top = slope
        promising[k] = top > mean
        k += 1
    walk.at[part] = k


@inner
def _step(
    batch: Any, w_v: Any, w_f: Any, store: Any, work: Any, rules: Any, walk: Any, m: int, notes: Any, v: Any, moved: Any
) -> float:
    """Improve the block of example m over the planes that it has; returns the gain in M times the dual."""
    weight = batch.graphs.weight[m]
    kappa, gain = rules.scale * weight, 0.0
    mean, top = _slopes(batch, w_v, w_f, store, m, work.z, notes, v, walk.few)
    if top > mean:
        gain = improve_block(store, m, kappa, v, moved, rules.inner * (top - mean), rules.steps)
        if gain > 0.0:
            if walk.few:
                _write_few(batch, store, m, moved, work.change, kappa, w_v, w_f)
            else:
                write_change(batch, store, m, moved, work.change, kappa, w_v, w_f)
        mark_used(store, m, walk.clock)
    return float(gain * weight)


@inner
def _slopes(batch: Any, w_v: Any, w_f: Any, store: Any, m: int, z: Any, notes: Any, v: Any, few: bool) -> Any:
    """The slopes of all planes of example m into v; returns their mean and the largest.

    Where planes have `few` coordinates, z is found for those alone.
    """
    if few:
        _project_few(batch, w_v, w_f, store, m, z, notes)
    else:
        project_example(batch, m, w_v, w_f, z)
    return plane_slopes(store, m, z, v)


@inner
def _project_few(batch: Any, w_v: Any, w_f: Any, store: Any, m: int, z: Any, notes: Any) -> None:
    """Find z at the coordinates of all planes of example m, each once; those of a row together, which takes less time.

    `notes[0]` has the number of the visit at coordinates that were seen, and at its end. From a row's `notes[1]`, which is -1
    between uses, `notes[2]` leads through its coordinates; `notes[3]` has the rows.
    """
    v_side, f_side, s = batch.variables, batch.factors, batch.graphs.examples[m].structure
    v_groups, f_groups, half, last = v_side.groups, f_side.groups, f_side.at, notes.shape[1] - 1
    start, size, index, first = store.start, store.size, store.entry, store.first[m]
    p0, q0, n_rows = v_side.first_group[s], f_side.first_group[s], 0
    n_v = v_side.first_group[s + 1] - p0
    notes[0, last] += 1
    visit = notes[0, last]
    for a in range(first + 1, first + store.n_planes[m]):
        p, q = p0, q0
        for e in range(start[a], start[a] + size[a]):
            i = index[e]
            if notes[0, i] != visit:
                notes[0, i] = visit
                if i < half:
                    p = group_of(v_side, i, p)
                    row = p - p0
                else:
                    q = group_of(f_side, i - half, q)
                    row = n_v + q - q0
                if notes[1, row] < 0:
                    notes[3, n_rows] = row
                    n_rows += 1
                notes[2, i] = notes[1, row]
                notes[1, row] = i
    for k in range(n_rows):
        row = notes[3, k]
        i, notes[1, row] = notes[1, row], -1
        if row < n_v:
            group = v_groups[p0 + row]
            _project_listed(v_side.features, v_side.first_row[m] + group.row, w_v, group.block - group.at, i, z, notes)
        else:
            group = f_groups[q0 + row - n_v]
            shift = group.block - group.at - half
            _project_listed(f_side.features, f_side.first_row[m] + group.row, w_f, shift, i, z, notes)


@inner
def _project_listed(features: Any, row: int, weights: Any, shift: int, i: int, z: Any, notes: Any) -> None:
    """Find z of one row at the coordinates that `notes[2]` leads to from i on."""
    while i >= 0:
        j = notes[2, i]
        if j < 0:
            z[i] = row_times_block(features, row, weights, i + shift)
            return
        k = notes[2, j]
        if k < 0:
            k = j
        t = notes[2, k]
        if t < 0:
            t = k
        z[i], z[j], z[k], z[t] = row_times_four(features, row, weights, i + shift, j + shift, k + shift, t + shift)
        i = notes[2, t]


@inner
def _write_few(batch: Any, store: Any, m: int, moved: Any, change: Any, kappa: float, w_v: Any, w_f: Any) -> None:
    """`write_change`, coordinate by coordinate."""
    v_side, f_side, s = batch.variables, batch.factors, batch.graphs.examples[m].structure
    v_groups, f_groups, half = v_side.groups, f_side.groups, f_side.at
    start, size, index, first = store.start, store.size, store.entry, store.first[m]
    v_row, f_row = v_side.first_row[m], f_side.first_row[m]
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
                block = i - v_groups[p].at + v_groups[p].block
                add_to_block(v_side.features, v_row + v_groups[p].row, w_v, block, scale)
            else:
                q = group_of(f_side, i - half, q)
                block = i - half - f_groups[q].at + f_groups[q].block
                add_to_block(f_side.features, f_row + f_groups[q].row, w_f, block, scale)


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

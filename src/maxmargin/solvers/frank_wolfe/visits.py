"""The visits of block-coordinate Frank-Wolfe: slopes of an example's planes, the oracle if they are exhausted, a better block.

One visit of example m:

1. Read off the slopes v of the planes that it has.
2. Cached planes first: if the best of them promises at least ``accept`` of the gap that the oracle last found here, and at least
   ``floor`` (a share of the mean gap), the oracle is not asked.
3. Otherwise the weights are projected onto the example (z), and the oracle finds the plane of largest slope. Its slope minus the
   block's mean is the block's duality gap: exactly so with an exact oracle, and for the relaxed problem with a relaxed one.
4. Improve the block over its planes (`improve_block`), and write the change of w once.

The examples of a *batch* are visited at the same weights, in threads: planes, their inner products, masses and gaps are each
example's own, and what is found goes into segments of the arena that belong to parts of the batch. Every thread writes the moves of
all into weights of its own (core/batches.py), example after example, before it visits one of the next batch (parallel/turns.py).
Moves that are found side by side may add up to too much: with d_m the change of w that example m makes for itself, and N examples
in a batch,

    f gains  sum_m [ slope_m - curvature_m / 2 ] - lam M sum_{m < k} d_m . d_k,        curvature_m = lam M |d_m|^2

so that a block is improved as if its curvature were 1 + (N - 1) `overlap` times what it is, where the overlap is the mean of
d_m . d_k by that of |d_m|^2. It is measured as the run goes: of every few batches, the slopes of one example are read once
more, after the moves of all. A batch of one has no overlap, and its steps are exact; of larger ones f
could fall, though hardly for long, and the bounds of a check are of the blocks as they are. Weights change fast in the first
passes, so batches are small then. They depend on the problem and the number of the pass alone, and so do the bits of a run,
whatever the number of threads.

Slopes and changes of w are about the coordinates that stand in an example's planes. Where those are a small part of all (`few`),
as in chains with many states, the weights of those alone are written, and read where the oracle is not asked: for words of 8
letters, 128 pixels and 26 classes that takes two thirds of the time of a visit that projects all weights, and less than half for
sentences of 25 words.

The oracle is an argument (oracles/compiled.py), and Numba compiles `visit_batches` once for each type of it. The kernel of the
leader returns before the end if a segment of the arena is full, or may be after the next batches.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.jit import Struct, inner, kernel, unowned
from maxmargin.parallel.lines import LINE
from maxmargin.parallel.turns import (
    BATCH,
    CLOSED,
    FREE,
    LEAD,
    NUMBER,
    PART,
    PLACE,
    SLOTS,
    WAITING,
    WRITE,
    ask_for_pause,
    close_turns,
    end_batch,
    end_part,
    is_ready,
    make_ready,
    next_task,
    open_batches,
    parts_are_done,
    pause_is_asked,
)
from maxmargin.problems.features import add_to_block, add_to_two_blocks, row_times_block, row_times_four
from maxmargin.problems.statistics import add_example, project_example
from maxmargin.solvers.core.batches import note_overlap, overlap_share, part_start
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
    #: (SLOTS,): what the moves of two examples have in common, of the curvature along one, as far as was known after each batch. A
    #: batch goes by what was known when it was opened, two batches before; (2,): the sums of `measured` before the walk.
    overlaps: NDArray[np.float64]
    before: NDArray[np.float64]
    #: (results, planes), where the SLOTS slots have as many results as the largest batch has examples: the masses that move.
    moved: NDArray[np.float64]
    #: (results, LINE): what they gain, the slope and curvature along them, and how many entries of the weights' change they make; a
    #: line of the cache for each. `ready` is the same memory, and says at the end of a line whose batch the result is.
    move: NDArray[np.float64]
    ready: NDArray[np.int64]
    #: (results, coordinates): the change of the weights, as the example's statistics; or, where those are `few`, as entries: a
    #: feature row, -1 - row if it is one of factors, a block and what is added.
    change: NDArray[np.float64]
    row: NDArray[np.int64]
    block: NDArray[np.int32]
    #: (2,): curvature between the moves of two examples of a batch, and along the move of one; sums that forget.
    measured: NDArray[np.float64]
    #: (parts,): where each part of a walk without steps goes on.
    at: NDArray[np.int64]
    #: (1,): the gain of all; (1,): the batch that comes next.
    total: NDArray[np.float64]
    next: NDArray[np.int64]
    counters: NDArray[np.int64]


# Places of `move`.
_GAIN, _SLOPE, _BEND, _ENTRIES = range(4)
#: What a call of `visit_batches` ends with if a segment of the arena is full.
FULL = -1
#: Every so many batches the overlap of moves is measured.
_MEASURE = 4


# ------------------------------------------------------------------------------------------------------- kernels


@kernel
def visit_batches(
    batch: Any, w_v: Any, w_f: Any, oracle: Any, grams: Any, store: Any, work: Any, rules: Any, walk: Any, role: Any
) -> int:
    """Visit the examples of a walk, as the leader or as a helper; returns CLOSED, FULL, or WAITING for others.

    Every thread has weights of its own, which are the same; where no steps are made, they may be shared. The free places of a
    role have its `counts`.
    """
    counters, n_parts, n_batches, leads = walk.counters, len(walk.at), len(walk.starts) - 1, role[NUMBER] == 0
    v, notes = np.empty(most_planes(store)), np.full((4, 2 * batch.factors.at + 1), -1)
    w_v, w_f = unowned(w_v), unowned(w_f)
    while True:
        task, number = next_task(counters, role, n_parts)
        if task == PART:
            _visit_part(batch, w_v, w_f, oracle, grams, store, work, rules, walk, role, number, notes, v)
            end_part(counters, role)
        elif task == WRITE:
            if rules.steps > 0:
                if not _write(batch, w_v, w_f, rules, walk, role):
                    return WAITING
                if leads:
                    _end_batch(batch, w_v, w_f, store, work, walk, number, notes, v)
                    walk.overlaps[number % SLOTS] = overlap_share(walk.measured)
            elif leads:
                if not parts_are_done(counters, role, n_parts):
                    return WAITING
                for part in range(n_parts):
                    if walk.at[part] < part_start(walk.starts, number, part + 1, n_parts):
                        close_turns(counters)
                        return FULL
            end_batch(counters, role)
            if leads:
                open_batches(counters, role, n_parts, n_batches)
        elif task == LEAD:
            walk.next[0] = number
            if number < n_batches and not pause_is_asked(counters):
                open_batches(counters, role, n_parts, n_batches)
                continue
            close_turns(counters)
            return CLOSED if number == n_batches else FULL
        else:
            return int(task)


@inner
def _visit_part(
    batch: Any, w_v: Any, w_f: Any, oracle: Any, grams: Any, store: Any, work: Any, rules: Any, walk: Any, role: Any,
    number: int, notes: Any, v: Any,
) -> None:  # fmt: skip
    """Visit the examples of a part; without steps, it stops where its segment of the arena is full."""
    order, starts, gaps, z, n_parts = walk.order, walk.starts, walk.gaps, work.z, len(walk.at)
    b, part = number // n_parts, number % n_parts
    filled, segment, index, value = store.filled, store.segment, store.entry, store.value
    # Small batches have fewer parts than there are segments, and take them in turn.
    k, end, here = part_start(starts, b, part, n_parts), part_start(starts, b, part + 1, n_parts), number % len(filled)
    steps, overlap = rules.steps > 0, overlap_share(walk.before) if b < 2 else walk.overlaps[(b - 2) % SLOTS]
    stiff = 1.0 + (starts[b + 1] - starts[b] - 1) * overlap
    first = starts[b] - b % SLOTS * (len(walk.move) // SLOTS)
    if not steps:
        k = walk.at[part]
    n_examples = end - k
    while k < end:
        m = order[k]
        if walk.few and not rules.ask:
            _project_few(batch, w_v, w_f, store, m, z, notes)
        else:
            project_example(batch, m, w_v, w_f, z)
        mean, top = plane_slopes(store, m, z, v)
        enough = max(rules.accept * gaps[m], rules.floor)
        if not rules.ask or (top - mean >= enough and top > mean):
            role[FREE + N_CACHED] += 1
        else:
            begin = filled[here, 0]
            # A plane has at most an entry for each coordinate.
            if begin + len(z) > segment[here + 1]:
                break
            n, ell = find_plane(oracle, batch, work, walk.place[k], m, index, value, begin)
            slope = ell
            for e in range(begin, begin + n):
                slope -= value[e] * z[index[e]]
            role[FREE + N_ORACLE] += 1
            gaps[m] = max(slope, top) - mean
            # What is no better than a plane at hand is that plane, but for rounding.
            if slope > top + 1e-12 * (1.0 + abs(top)):
                slot = free_slot(store, m)
                if slot < 0:
                    role[FREE + N_CROWDED] += 1
                else:
                    gram_times_plane(batch, grams, work, m, index, value, begin, begin + n)
                    put_plane(store, here, m, slot, ell, n)
                    add_products(store, m, slot, work.u)
                    v[slot] = top = slope
        if steps:
            _step(batch, store, work, rules, walk, k - first, m, stiff, mean, top, v)
            if k + 1 == end and filled[here, 0] + 2 * n_examples * len(z) > segment[here + 1]:
                # After the part of the next batch there may be no room, and that batch may have begun.
                ask_for_pause(walk.counters)
            make_ready(walk.ready, (k - first) * LINE + LINE - 1, b)
        k += 1
    if not steps:
        walk.at[part] = k


@inner
def _step(
    batch: Any, store: Any, work: Any, rules: Any, walk: Any, place: int, m: int, stiff: float, mean: float, top: float,
    v: Any,
) -> None:  # fmt: skip
    """Improve the block of example m over the planes that it has."""
    weight, moved, move = batch.graphs.weight[m], walk.moved[place], walk.move[place]
    move[_GAIN] = 0.0
    if not top > mean:
        for a in range(store.n_planes[m]):
            moved[a] = 0.0
        return
    # Others move at the same time, and the more alike their moves are, the shorter they must be.
    kappa = rules.scale * weight
    gain = improve_block(store, m, kappa * stiff, v, moved, rules.inner * (top - mean), rules.steps)
    mark_used(store, m, walk.clock)
    move[_GAIN] = gain * weight
    after = 0.0
    for a in range(store.n_planes[m]):
        after += moved[a] * v[a]
    # Before and after the move the slopes along it add up to twice the gain.
    bend = 2.0 * (gain - after) / stiff
    move[_SLOPE], move[_BEND] = 2.0 * gain - after - bend, bend
    if gain > 0.0:
        if walk.few:
            move[_ENTRIES] = _list_change(batch, store, m, moved, work.change, kappa, walk, place)
        else:
            change = walk.change[place]
            for i in range(len(change)):
                change[i] = 0.0
            add_combination(store, m, moved, 1.0, change)


@inner
def _write(batch: Any, w_v: Any, w_f: Any, rules: Any, walk: Any, role: Any) -> bool:
    """Write the moves of a thread's batch into its weights; whether all were ready."""
    v_side, f_side, b = batch.variables, batch.factors, role[BATCH]
    first = b % SLOTS * (len(walk.move) // SLOTS)
    for k in range(role[PLACE], walk.starts[b + 1] - walk.starts[b]):
        place, m = first + k, walk.order[walk.starts[b] + k]
        if not is_ready(walk.ready, place * LINE + LINE - 1, b):
            role[PLACE] = k
            return False
        if not walk.move[place, _GAIN] > 0.0:
            continue
        change = walk.change[place]
        if not walk.few:
            add_example(batch, m, change, rules.scale * batch.graphs.weight[m], w_v, w_f)
            continue
        rows, blocks, e, n = walk.row[place], walk.block[place], 0, int(walk.move[place, _ENTRIES])
        while e < n:
            row = rows[e]
            if row < 0:
                add_to_block(f_side.features, -1 - row, w_f, blocks[e], change[e])
            elif e + 1 < n and rows[e + 1] == row:
                # As where a plane says that one state is taken for another.
                add_to_two_blocks(v_side.features, row, w_v, blocks[e], blocks[e + 1], change[e], change[e + 1])
                e += 1
            else:
                add_to_block(v_side.features, row, w_v, blocks[e], change[e])
            e += 1
    return True


@inner
def _end_batch(batch: Any, w_v: Any, w_f: Any, store: Any, work: Any, walk: Any, b: int, notes: Any, v: Any) -> None:
    """Add up what a batch gained; of some, see how far the slope of one example along its move was changed by the others'."""
    begin, size, first = walk.starts[b], walk.starts[b + 1] - walk.starts[b], b % SLOTS * (len(walk.move) // SLOTS)
    for k in range(first, first + size):
        walk.total[0] += walk.move[k, _GAIN]
    place = b // _MEASURE % size
    if size == 1 or b % _MEASURE > 0 or walk.move[first + place, _GAIN] <= 0.0:
        return
    m = walk.order[begin + place]
    for k in range(begin + size, walk.starts[min(b + 2, len(walk.starts) - 1)]):
        # Another thread may have begun with the next batch.
        if walk.order[k] == m:
            return
    if walk.few:
        _project_few(batch, w_v, w_f, store, m, work.z, notes)
    else:
        project_example(batch, m, w_v, w_f, work.z)
    plane_slopes(store, m, work.z, v)
    after, move = 0.0, walk.move[first + place]
    for a in range(store.n_planes[m]):
        after += walk.moved[first + place, a] * v[a]
    weight = batch.graphs.weight[m]
    note_overlap(walk.measured, size, weight * (move[_SLOPE] - after), weight * move[_BEND])


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
def _list_change(batch: Any, store: Any, m: int, moved: Any, change: Any, kappa: float, walk: Any, place: int) -> int:
    """List what moves of mass add to the weights; returns the number of entries. `change` is zero, and is so again afterwards."""
    v_side, f_side, s = batch.variables, batch.factors, batch.graphs.examples[m].structure
    v_groups, f_groups, half = v_side.groups, f_side.groups, f_side.at
    start, size, index, first = store.start, store.size, store.entry, store.first[m]
    v_row, f_row, n = v_side.first_row[m], f_side.first_row[m], 0
    rows, blocks, values = walk.row[place], walk.block[place], walk.change[place]
    add_combination(store, m, moved, kappa, change)
    for a in range(store.n_planes[m]):
        if moved[a] == 0.0:
            continue
        p, q = v_side.first_group[s], f_side.first_group[s]
        for e in range(start[first + a], start[first + a] + size[first + a]):
            i = index[e]
            if change[i] == 0.0:
                continue
            values[n], change[i] = change[i], 0.0
            if i < half:
                p = group_of(v_side, i, p)
                rows[n], blocks[n] = v_row + v_groups[p].row, i - v_groups[p].at + v_groups[p].block
            else:
                q = group_of(f_side, i - half, q)
                rows[n], blocks[n] = -1 - (f_row + f_groups[q].row), i - half - f_groups[q].at + f_groups[q].block
            n += 1
    return n


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

"""The k best labelings of forests, exact: max-product with lists in the place of numbers.

Every state of every variable keeps a list of the up to k best partial labelings of what has been heard from below, best
first; to begin with, the variable's own score alone. A step of the schedule (see trees.py) replaces the lists of the
parent p. A new entry for the parent's state y_p is a joint state y_c of the factor that agrees with it, a rank r_p in
the parent's old list and a rank r_j in the list of each child's state:

    value = scores_c(y_c) + up_p(y_p)[r_p] + sum_{children j} up_j(y_j)[r_j]

Each such choice is another labeling, so there are no duplicates. The k largest come off a heap that starts with all
ranks 0 for each joint state. When an entry leaves, its *successors* come in: one rank is one higher, and it is the last
rank above 0 or stands after it. That way every choice has one predecessor, which is no worse, since lists decrease and
rounding keeps order. The parts of a graph are joined at the end by the same rule: a list of the whole example grows by
a root at a time.

Every entry remembers its choice, so labelings are read off on the way back. An example takes k numbers a state, and
k (arity + 1) a factor and state of its parent; one buffer serves all examples.

Of entries with the same value the one that entered the heap first is first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.errors import TooLargeError
from maxmargin.inference.contract import (
    TopK,
    check_count,
    check_numbers,
    check_refusal,
    once_per_structures,
    raise_infeasible,
)
from maxmargin.inference.trees import Trees, schedule
from maxmargin.jit import Struct, inner, kernel
from maxmargin.problems.factor_graphs import FactorGraphs, Scores
from maxmargin.problems.layout import Largest, local_offsets

#: Most bytes that the k best labelings may take.
MOST_BYTES = 8 << 30


class Records(Struct):
    """Where the choices of each step are remembered."""

    #: First record of each step of the schedule, in the example; a record is a joint state and a rank an end.
    first: NDArray[np.int64]
    #: Numbers in the records of the largest example, for k = 1, and in the largest record.
    size: int
    width: int


class ListRoom(Struct):
    """Room for the lists of one example, and for the heap that makes one of them."""

    #: The list of a state of the example, best first, and one more, the list of the whole example; and how long they are.
    value: NDArray[np.float64]
    length: NDArray[np.int64]
    #: The choices of the steps and of the roots, and a list that is being made.
    back: NDArray[np.int32]
    back_roots: NDArray[np.int32]
    best: NDArray[np.float64]
    rank_of: NDArray[np.int64]
    #: The starts of a heap, joint states of a factor or states of a root: a score, and the lists to choose from.
    score: NDArray[np.float64]
    joint: NDArray[np.int32]
    lists: NDArray[np.int64]
    #: The entries of a heap in the order in which they came: value, start, ranks.
    entry_value: NDArray[np.float64]
    entry_start: NDArray[np.int64]
    ranks: NDArray[np.int32]
    heap: NDArray[np.int64]

    @classmethod
    def of(cls, largest: Largest, records: Records, k: int) -> ListRoom:
        """Room for k labelings of the largest example."""
        n, states, n_lists = largest.variables, largest.states, records.width - 1
        starts = max(largest.table, states)
        entries = starts + k * n_lists
        return cls(
            np.empty((states + 1, k)), np.empty(states + 1, np.int64), np.empty(records.size * k, np.int32),
            np.empty(3 * n * k, np.int32), np.empty(k), np.empty(n, np.int64), np.empty(starts), np.empty(starts, np.int32),
            np.empty((starts, n_lists), np.int64), np.empty(entries), np.empty(entries, np.int64),
            np.empty((entries, n_lists), np.int32), np.empty(entries, np.int64),
        )  # fmt: skip


def top_k(graphs: FactorGraphs, scores: Scores, k: int) -> TopK:
    """Find the k best allowed labelings of every example, or all of them if there are fewer.

    Parameters
    ----------
    graphs : FactorGraphs
        Without cycles.
    scores : Scores
    k : int
        At least 1.
    """
    k = check_count(k)
    check_refusal(Trees(), graphs)
    scores, a, records = check_numbers(graphs, scores), graphs.arrays, _records(graphs)
    # Labels and scores of all examples, and the lists and records of the largest one.
    each = 4 * len(graphs.labels) + 16 * graphs.n_examples + 12 * int(a.largest.variables)
    each += 8 * int(a.largest.states) + 4 * records.size + 32 * records.width
    if k * each > MOST_BYTES:
        raise TooLargeError(
            f"k={k} labelings of each of {graphs.n_examples} examples take {k * each} bytes; the limit is {MOST_BYTES} "
            "(maxmargin.inference.top_k.MOST_BYTES). Ask for fewer, or for fewer examples at a time."
        )
    labels = np.full((k, len(graphs.labels)), -1, np.int32)
    room = ListRoom.of(a.largest, records, k)
    _top_k(a.examples, schedule(graphs), records.first, room, scores.variables, scores.factors, labels)
    first = graphs.example_variables[:-1]
    found = labels[:, first].T >= 0
    if not found[:, 0].all():
        raise_infeasible(graphs, scores, int(np.flatnonzero(~found[:, 0])[0]))
    values = np.stack([graphs.labeling_scores(scores, np.maximum(row, 0)) for row in labels], axis=1)
    values[~found] = -np.inf
    # Scores computed afresh may differ in rounding from those that ranked the labelings.
    order = np.argsort(-values, axis=1, kind="stable")
    rows = np.repeat(order.T, np.diff(graphs.example_variables), axis=1)
    return TopK(np.take_along_axis(labels, rows, axis=0), np.take_along_axis(values, order, axis=1))


@once_per_structures
def _records(graphs: FactorGraphs) -> Records:
    plan = schedule(graphs)
    parent = plan.steps.parent
    width = plan.steps.end - parent + 1
    sizes = width * plan.ends[parent].states
    first, of_structure = local_offsets(sizes, np.diff(plan.first_step))
    # Joining a root needs the root's state and two ranks.
    return Records(first, int(of_structure.max(initial=0)), int(width.max(initial=3)))


# ------------------------------------------------------------------------------------------------------- kernels


@kernel
def _top_k(
    examples: Any, schedule: Any, first_record: Any, room: Any, v_scores: Any, f_scores: Any, labels: Any
) -> None:
    """Labelings of all examples by rank; those that are not there stay as they are."""
    value, length = room.value, room.length
    for m in range(len(examples) - 1):
        s, states = examples[m].structure, examples[m].states
        for i in range(examples[m + 1].states - states):
            value[i, 0] = v_scores[states + i]
            length[i] = 1 if value[i, 0] > -np.inf else 0
        for q in range(schedule.first_step[s], schedule.first_step[s + 1]):
            _send(schedule, first_record[q], room, q, f_scores, examples[m].tables)
        _join_roots(schedule, room, s)
        for rank in range(length[len(length) - 1]):
            _read_labels(schedule, first_record, room, s, rank, labels[rank], examples[m].variables)


@inner
def _send(schedule: Any, record: int, room: Any, q: int, f_scores: Any, f_at: int) -> None:
    """Replace the lists of the parent of step q; the example's scores of factors begin at f_scores[f_at]."""
    step, ends, score, joint, lists = schedule.steps[q], schedule.ends, room.score, room.joint, room.lists
    value, length, best, k = room.value, room.length, room.best, len(room.best)
    at, parent, width = f_at + step.table, step.parent, step.end - step.parent
    to, n, stride = ends[parent].state, ends[parent].states, ends[parent].stride
    for x in range(n):
        n_starts = 0
        for outer in range(0, step.entries, n * stride):
            for y in range(outer + x * stride, outer + (x + 1) * stride):
                score[n_starts], joint[n_starts] = f_scores[at + y], y
                for e in range(width):
                    state = (y // ends[parent + e].stride) % ends[parent + e].states
                    lists[n_starts, e] = ends[parent + e].state + state
                n_starts += 1
        length[to + x] = _best(room, n_starts, width, room.back, (record + x * (width + 1)) * k)
        for c in range(length[to + x]):
            value[to + x, c] = best[c]


@inner
def _join_roots(schedule: Any, room: Any, s: int) -> None:
    """Make the list of the whole example, a root at a time."""
    roots, score, joint, lists, best, k = schedule.roots, room.score, room.joint, room.lists, room.best, len(room.best)
    value, length, whole, r0 = room.value, room.length, len(room.length) - 1, schedule.first_root[s]
    value[whole, 0], length[whole] = 0.0, 1
    for r in range(r0, schedule.first_root[s + 1]):
        for x in range(roots[r].states):
            score[x], joint[x], lists[x, 0], lists[x, 1] = 0.0, x, whole, roots[r].state + x
        length[whole] = _best(room, roots[r].states, 2, room.back_roots, 3 * (r - r0) * k)
        for c in range(length[whole]):
            value[whole, c] = best[c]


@inner
def _read_labels(schedule: Any, first_record: Any, room: Any, s: int, rank: int, labels: Any, first: int) -> None:
    """Write the labeling of a rank into labels[first:], from the roots to the leaves."""
    steps, ends, roots, first_step, first_root = (
        schedule.steps, schedule.ends, schedule.roots, schedule.first_step, schedule.first_root,
    )  # fmt: skip
    back, back_roots, rank_of, k, r0 = room.back, room.back_roots, room.rank_of, len(room.best), schedule.first_root[s]
    for r in range(first_root[s + 1] - 1, r0 - 1, -1):
        record = 3 * ((r - r0) * k + rank)
        labels[first + roots[r].variable] = back_roots[record]
        rank, rank_of[roots[r].variable] = back_roots[record + 1], back_roots[record + 2]
    for q in range(first_step[s + 1] - 1, first_step[s] - 1, -1):
        parent, width = steps[q].parent, steps[q].end - steps[q].parent
        v = ends[parent].variable
        record = (first_record[q] + labels[first + v] * (width + 1)) * k + rank_of[v] * (width + 1)
        y = back[record]
        for e in range(width):
            v = ends[parent + e].variable
            labels[first + v] = (y // ends[parent + e].stride) % ends[parent + e].states
            rank_of[v] = back[record + 1 + e]


@inner
def _best(room: Any, n_starts: int, width: int, back: Any, to: int) -> int:
    """The up to k best sums score[i] + sum_e value[lists[i, e], rank_e], into room.best; how many there are.

    The choices, (joint[i], ranks), go to back[to:].
    """
    score, joint, lists, value, length = room.score, room.joint, room.lists, room.value, room.length
    entry_value, entry_start, ranks, heap = room.entry_value, room.entry_start, room.ranks, room.heap
    best, k = room.best, len(room.best)
    n = 0
    for i in range(n_starts):
        total = score[i]
        for e in range(width):
            total += value[lists[i, e], 0] if length[lists[i, e]] > 0 else -np.inf
        if total > -np.inf:
            entry_value[n], entry_start[n], heap[n] = total, i, n
            for e in range(width):
                ranks[n, e] = 0
            n += 1
    size = n
    for place in range(size // 2 - 1, -1, -1):
        _sift_down(heap, size, entry_value, place)

    found = 0
    while found < k and size > 0:
        top = heap[0]
        size -= 1
        heap[0] = heap[size]
        _sift_down(heap, size, entry_value, 0)
        i = entry_start[top]
        best[found] = entry_value[top]
        back[to + found * (width + 1)] = joint[i]
        for e in range(width):
            back[to + found * (width + 1) + 1 + e] = ranks[top, e]
        found += 1

        for e in range(width - 1, -1, -1):
            if ranks[top, e] + 1 < length[lists[i, e]]:
                for j in range(width):
                    ranks[n, j] = ranks[top, j]
                ranks[n, e] += 1
                total = score[i]
                for j in range(width):
                    total += value[lists[i, j], ranks[n, j]]
                entry_value[n], entry_start[n], heap[size] = total, i, n
                n += 1
                size += 1
                _sift_up(heap, entry_value, size - 1)
            if ranks[top, e] > 0:
                break
    return found


@inner
def _before(values: Any, a: int, b: int) -> bool:
    return values[a] > values[b] or (values[a] == values[b] and a < b)


@inner
def _sift_down(heap: Any, size: int, values: Any, place: int) -> None:
    while 2 * place + 1 < size:
        child = 2 * place + 1
        if child + 1 < size and _before(values, heap[child + 1], heap[child]):
            child += 1
        if not _before(values, heap[child], heap[place]):
            return
        heap[place], heap[child] = heap[child], heap[place]
        place = child


@inner
def _sift_up(heap: Any, values: Any, place: int) -> None:
    while place > 0:
        above = (place - 1) // 2
        if not _before(values, heap[place], heap[above]):
            return
        heap[place], heap[above] = heap[above], heap[place]
        place = above

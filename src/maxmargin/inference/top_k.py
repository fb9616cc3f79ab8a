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

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.errors import DataError, OptionError, TooLargeError
from maxmargin.inference.contract import check_numbers, once_per_structures, raise_infeasible
from maxmargin.inference.trees import Trees, schedule
from maxmargin.jit import Struct, inner, kernel
from maxmargin.problems.factor_graphs import FactorGraphs, Scores
from maxmargin.problems.layout import local_offsets


class TopK(NamedTuple):
    """The best labelings of a batch, best first."""

    #: (k, V) int32: row r holds the labeling of rank r of each example, concatenated; -1 where there are fewer than k.
    labels: NDArray[np.int32]
    #: (M, k) float64: their scores; -inf where there are fewer than k.
    values: NDArray[np.float64]


#: Most bytes that the k best labelings may take.
MOST_BYTES = 8 << 30


class Records(Struct):
    """Where the choices of each step are remembered."""

    #: First record of each step of the schedule, in the example; a record is a joint state and a rank an end.
    first: NDArray[np.int64]
    #: Numbers in the records of the largest example, for k = 1, and in the largest record.
    size: int
    width: int


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
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise OptionError(f"k={k!r} is not possible; it must be a whole number of at least 1.")
    refusal = Trees().refusal(graphs)
    if refusal is not None:
        raise DataError(refusal)
    scores, a, k = check_numbers(graphs, scores), graphs.arrays, int(k)
    # Labels and scores of all examples, and the lists and records of the largest one.
    each = 4 * len(graphs.labels) + 16 * graphs.n_examples + 12 * int(a.largest.variables)
    each += 8 * int(a.largest.states) + 4 * _records(graphs).size + 32 * _records(graphs).width
    if k * each > MOST_BYTES:
        raise TooLargeError(
            f"k={k} labelings of each of {graphs.n_examples} examples take {k * each} bytes; the limit is {MOST_BYTES} "
            "(maxmargin.inference.top_k.MOST_BYTES). Ask for fewer, or for fewer examples at a time."
        )
    labels = np.full((k, len(graphs.labels)), -1, np.int32)
    _top_k(a.examples, a.largest, schedule(graphs), _records(graphs), scores.variables, scores.factors, k, labels)
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
    examples: Any, largest: Any, schedule: Any, records: Any, v_scores: Any, f_scores: Any, k: int, labels: Any
) -> None:
    """Labelings of all examples by rank; those that are not there stay as they are."""
    first_step, first_root = schedule.first_step, schedule.first_root
    steps, ends, roots = schedule.steps, schedule.ends, schedule.roots
    first = records.first
    n_variables, n_states = largest.variables, largest.states
    # The list of a state of the example, and one more, the list of the whole example.
    value, length = np.empty((n_states + 1, k)), np.empty(n_states + 1, np.int64)
    back, back_roots = np.empty(records.size * k, np.int32), np.empty(3 * n_variables * k, np.int32)
    # The starts of a heap, joint states of a factor or states of a root: a score, and the lists to choose from.
    room, n_lists = max(largest.table, n_states), records.width - 1
    score, joint, lists = np.empty(room), np.empty(room, np.int32), np.empty((room, n_lists), np.int64)
    # The entries of a heap in the order in which they came: value, start, ranks.
    room += k * n_lists
    entry_value, entry_start, heap = np.empty(room), np.empty(room, np.int64), np.empty(room, np.int64)
    ranks = np.empty((room, n_lists), np.int32)
    best, rank_of = np.empty(k), np.empty(n_variables, np.int64)

    for m in range(len(examples) - 1):
        s, states, tables = examples[m].structure, examples[m].states, examples[m].tables
        for i in range(examples[m + 1].states - states):
            value[i, 0] = v_scores[states + i]
            length[i] = 1 if value[i, 0] > -np.inf else 0

        for q in range(first_step[s], first_step[s + 1]):
            at, parent, width = tables + steps[q].table, steps[q].parent, steps[q].end - steps[q].parent
            to, n, stride = ends[parent].state, ends[parent].states, ends[parent].stride
            for x in range(n):
                n_starts = 0
                for outer in range(0, steps[q].entries, n * stride):
                    for y in range(outer + x * stride, outer + (x + 1) * stride):
                        score[n_starts], joint[n_starts] = f_scores[at + y], y
                        for e in range(width):
                            state = (y // ends[parent + e].stride) % ends[parent + e].states
                            lists[n_starts, e] = ends[parent + e].state + state
                        n_starts += 1
                length[to + x] = _best(
                    k, n_starts, width, score, joint, lists, value, length, entry_value, entry_start, ranks, heap,
                    best, back, (first[q] + x * (width + 1)) * k,
                )  # fmt: skip
                for c in range(length[to + x]):
                    value[to + x, c] = best[c]

        whole, r0 = n_states, first_root[s]
        value[whole, 0], length[whole] = 0.0, 1
        for r in range(r0, first_root[s + 1]):
            for x in range(roots[r].states):
                score[x], joint[x], lists[x, 0], lists[x, 1] = 0.0, x, whole, roots[r].state + x
            length[whole] = _best(
                k, roots[r].states, 2, score, joint, lists, value, length, entry_value, entry_start, ranks, heap,
                best, back_roots, 3 * (r - r0) * k,
            )  # fmt: skip
            for c in range(length[whole]):
                value[whole, c] = best[c]

        v0 = examples[m].variables
        for c in range(length[whole]):
            rank = c
            for r in range(first_root[s + 1] - 1, r0 - 1, -1):
                record = 3 * ((r - r0) * k + rank)
                labels[c, v0 + roots[r].variable] = back_roots[record]
                rank, rank_of[roots[r].variable] = back_roots[record + 1], back_roots[record + 2]
            for q in range(first_step[s + 1] - 1, first_step[s] - 1, -1):
                parent, width = steps[q].parent, steps[q].end - steps[q].parent
                v = ends[parent].variable
                record = (first[q] + labels[c, v0 + v] * (width + 1)) * k + rank_of[v] * (width + 1)
                y = back[record]
                for e in range(width):
                    v = ends[parent + e].variable
                    labels[c, v0 + v] = (y // ends[parent + e].stride) % ends[parent + e].states
                    rank_of[v] = back[record + 1 + e]


@inner
def _best(
    k: int, n_starts: int, width: int, score: Any, joint: Any, lists: Any, value: Any, length: Any,
    entry_value: Any, entry_start: Any, ranks: Any, heap: Any, best: Any, back: Any, to: int,
) -> int:  # fmt: skip
    """The up to k best sums score[i] + sum_e value[lists[i, e], rank_e], into best; how many there are.

    The choices, (joint[i], ranks), go to back[to:].
    """
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

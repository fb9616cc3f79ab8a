"""Trees: max-product and sum-product on forests and chains (Viterbi, forward-backward), exact, factors of any arity.

Each component is rooted at its last variable, so that a chain is walked from left to right. Every factor then has
one *parent* variable, nearest to the root, and sends it one message when its other variables, the *children*, have
heard from all factors below them. With ``up_i`` the scores of variable i plus what it has heard,

    max:  up_p(y_p) += max_{y_c: y_p}  scores_c(y_c) + sum_{children j} up_j(y_j)
    sum:  up_p(y_p) += T log sum_{y_c: y_p} exp((scores_c(y_c) + sum_{children j} up_j(y_j)) / T)

On the way back from the roots, max-product decodes each factor's children given its parent's state. Sum-product
multiplies the parent's marginal by the conditional of the children given the parent, which the way up has left in
the factor's table:

    mu_c(y_c) = mu_p(y_p) exp(...) / sum exp(...),      mu_j(y_j) = sum_{y_c: y_j} mu_c(y_c)

No message is ever divided out, so forbidden states (-inf) cause no NaN, and low temperatures no cancellation: every
exponent is a difference to the largest one with the same y_p, hence at most 0.

The order of factors is a property of a structure, computed once (`schedule`); examples walk it over their own scores.
`max_product_one` and `sum_product_one` do one example, for other compiled loops to call.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.errors import DataError
from maxmargin.inference.contract import (
    MapResult,
    Marginals,
    check_numbers,
    check_temperature,
    exact_result,
    once_per_structures,
    raise_infeasible,
    room_per_structures,
)
from maxmargin.jit import Struct, inner, kernel, record_type, records
from maxmargin.problems.factor_graphs import FactorGraphs, Scores
from maxmargin.problems.layout import GraphArrays, Largest, offsets
from maxmargin.problems.tables import slot_add, slot_max, slot_scale, slot_sum
from maxmargin.problems.templates import Structure

#: One end of a factor: the variable, its first state in the example, its slot in the factor's table.
END = record_type("variable", "state", "states", "stride", "outer")
#: What a factor sends: its table in the example and that table's size, room for a number per state of the parent, the row of the
#: parent in `ends`, and the end of its children, which are the rows after it.
STEP = record_type("table", "entries", "message", "parent", "end")
#: A root: the variable, its first state in the example, and how many it has.
ROOT = record_type("variable", "state", "states")


class Schedule(Struct):
    """The order in which factors send, from the leaves to the roots."""

    #: (S+1,): where the steps and the roots of each structure begin.
    first_step: NDArray[np.int64]
    first_root: NDArray[np.int64]
    #: A record per factor, and its ends: the parent first, then the children in the order of the scope.
    steps: Any
    ends: Any
    roots: Any
    #: States of all variables of each structure.
    n_states: NDArray[np.int64]


class TreeRoom(Struct):
    """Room for the messages of one example."""

    up: NDArray[np.float64]
    heard: NDArray[np.float64]
    table: NDArray[np.float64]
    total: NDArray[np.float64]
    chosen: NDArray[np.int64]

    @classmethod
    def of(cls, largest: Largest) -> TreeRoom:
        """Room for the largest example."""
        states, deltas = largest.states, largest.deltas
        return cls(
            np.empty(states), np.empty(states), np.empty(largest.table), np.empty(deltas), np.empty(deltas, np.int64)
        )


@room_per_structures
def tree_room(graphs: FactorGraphs) -> TreeRoom:
    """Room for the messages of one example of a batch."""
    return TreeRoom.of(graphs.arrays.largest)


class Trees:
    """Message passing from the leaves to the roots and back; exact on forests."""

    name = "trees"
    exact = True
    operations = 2.0

    def plan(self, graphs: FactorGraphs) -> Schedule:
        """The order of the messages, by which compiled loops ask about one example.

        Parameters
        ----------
        graphs : FactorGraphs
            The batch.
        """
        return schedule(graphs)

    def refusal(self, graphs: FactorGraphs) -> str | None:
        """Name the first example with a structured factor or a cycle, if there is one."""
        structured = graphs.refuse_structured(self.name)
        if structured is not None or graphs.is_forest:
            return structured
        cyclic = np.flatnonzero(~forests(graphs)[graphs.structure_of])
        number = graphs.number_of(int(cyclic[0]))
        return f"The trees engine needs graphs without cycles, but the graph of example {number} has a cycle."

    def maximise(self, graphs: FactorGraphs, scores: Scores) -> MapResult:
        """Find the best labeling of every example by max-product."""
        scores = self._check(graphs, scores)
        labels, a = np.empty(len(graphs.labels), np.int32), graphs.arrays
        if graphs.example_factors[-1] == 0:
            _best_states(graphs, scores.variables, labels)
        else:
            with tree_room(graphs) as room:
                _max_product(schedule(graphs), room, a.examples, scores.variables, scores.factors, labels)
        return exact_result(graphs, scores, labels)

    def marginals(self, graphs: FactorGraphs, scores: Scores, temperature: float = 1.0) -> Marginals:
        """Compute all marginals by sum-product at the given temperature."""
        temperature = check_temperature(temperature)
        scores = self._check(graphs, scores)
        out = Marginals(np.empty(len(scores.variables)), np.empty(len(scores.factors)), np.empty(graphs.n_examples))
        with tree_room(graphs) as room:
            failed = _sum_product(
                schedule(graphs), room, graphs.arrays.examples, scores.variables, scores.factors, temperature, *out
            )
        if failed >= 0:
            raise_infeasible(graphs, scores, failed)
        return out

    def _check(self, graphs: FactorGraphs, scores: Scores) -> Scores:
        refusal = self.refusal(graphs)
        if refusal is not None:
            raise DataError(refusal)
        return check_numbers(graphs, scores)


def _best_states(graphs: FactorGraphs, scores: NDArray[np.float64], labels: NDArray[np.int32]) -> None:
    """The best state of each variable by itself, the first of several: there is no message, and nothing to compile."""
    starts = graphs.state_starts()
    n_states = np.diff(np.append(starts, len(scores)))
    for n in np.unique(n_states):
        those = np.flatnonzero(n_states == n)
        labels[those] = scores[starts[those, None] + np.arange(n)].argmax(axis=1)


@once_per_structures
def forests(graphs: FactorGraphs) -> NDArray[np.bool_]:
    """Whether each structure's graph has no cycle."""
    return np.array([structure.is_forest() for structure in graphs.structures], bool)


@once_per_structures
def schedule(graphs: FactorGraphs) -> Schedule:
    """The order of the factors of all structures; `max_product_one` and `sum_product_one` walk it."""
    a = graphs.arrays
    walks = [_walk(structure) for structure in graphs.structures]
    n_factors = np.diff(a.structures.factors)
    factor = _join(walk[0] for walk in walks) + np.repeat(a.structures[:-1].factors, n_factors)
    parent = _join(walk[1] for walk in walks)
    n_roots = np.array([len(walk[2]) for walk in walks])
    root = _join(walk[2] for walk in walks)

    kind = a.factors[factor].template
    arity = a.factor_kinds[kind].arity
    begin = offsets(arity)
    step = np.repeat(np.arange(len(factor)), arity)
    # Places in the scope, in the order of `ends`: the parent's first, then the rest without it.
    place = np.arange(len(step)) - begin[step]
    place = np.where(place == 0, parent[step], place - (place <= parent[step]))
    variable = a.scope[a.factors[factor[step]].neighbours + place]
    slot = a.slots[a.factor_kinds[kind[step]].slots + place]
    state = a.variables[np.repeat(a.structures[:-1].variables, n_factors)[step] + variable].table
    of_root = a.variables[np.repeat(a.structures[:-1].variables, n_roots) + root]
    return Schedule(
        a.structures.factors.copy(),
        offsets(n_roots),
        records(
            STEP,
            a.factors[factor].table,
            a.factor_kinds[kind].entries,
            a.factors[factor].delta,
            begin[:-1],
            begin[1:],
        ),
        records(END, variable, state, slot.states, slot.stride, slot.outer),
        records(ROOT, root, of_root.table, a.variable_kinds[of_root.template].entries),
        _n_states(a),
    )


def _n_states(a: GraphArrays) -> NDArray[np.int64]:
    """States of all variables of each structure."""
    ends = a.structures[1:].variables - 1
    last = a.variables[ends]
    return np.ascontiguousarray(last.table + a.variable_kinds[last.template].entries)


def _join(lists: Iterable[list[int]]) -> NDArray[np.int64]:
    return np.fromiter(chain.from_iterable(lists), np.int64)


def _walk(structure: Structure) -> tuple[list[int], list[int], list[int]]:
    """Factors from the leaves to the roots, the slots of their parents, and the roots.

    A structure with cycles is walked too, so that offsets stay those of its factors; `Trees.refusal` keeps it from use.
    """
    scopes = structure.scope_lists()
    incident: list[list[tuple[int, int]]] = [[] for _ in structure.variable_templates]
    for c, scope in enumerate(scopes):
        for slot, v in enumerate(scope):
            incident[v].append((c, slot))
    seen = [False] * len(incident)
    sent = [False] * len(scopes)
    order: list[tuple[int, int]] = []
    roots = []
    for root in range(len(incident) - 1, -1, -1):
        if seen[root]:
            continue
        seen[root] = True
        roots.append(root)
        waiting = [root]
        for v in waiting:
            for c, slot in incident[v]:
                if not sent[c]:
                    sent[c] = True
                    order.append((c, slot))
                    waiting += [u for u in scopes[c] if not seen[u]]
                    for u in scopes[c]:
                        seen[u] = True
    order.reverse()
    return [c for c, _ in order], [slot for _, slot in order], roots


# ------------------------------------------------------------------------------------------------------- kernels


@kernel
def _max_product(schedule: Any, room: Any, examples: Any, v_scores: Any, f_scores: Any, labels: Any) -> None:
    for m in range(len(examples) - 1):
        max_product_one(
            schedule, room, examples[m].structure, v_scores, examples[m].states, f_scores, examples[m].tables, labels,
            examples[m].variables,
        )  # fmt: skip


@inner
def max_product_one(
    schedule: Any, room: Any, s: int, v_scores: Any, v_at: int, f_scores: Any, f_at: int, labels: Any, first: int
) -> float:
    """Best labeling of one example of structure s into labels[first:], and its score.

    Where no labeling is allowed, that is -inf, and the labeling is one of those that are forbidden.
    The example's scores of variables begin at v_scores[v_at], those of its factors at f_scores[f_at].
    """
    steps, ends, roots, n_states = schedule.steps, schedule.ends, schedule.roots, schedule.n_states[s]
    first_step, last_step = schedule.first_step[s], schedule.first_step[s + 1]
    up, heard, table, chosen = room.up, room.heard, room.table, room.chosen
    for i in range(n_states):
        up[i] = v_scores[v_at + i]

    for q in range(first_step, last_step):
        at, size, parent = f_at + steps[q].table, steps[q].entries, steps[q].parent
        to, n, stride = ends[parent].state, ends[parent].states, ends[parent].stride
        if steps[q].end - parent == 2:
            below, n_below = ends[parent + 1].state, ends[parent + 1].states
            if stride == 1:
                max_columns(f_scores[at : at + size], up[below : below + n_below], heard)
            else:
                max_rows(f_scores[at : at + size], up[below : below + n_below], heard)
        else:
            for y in range(size):
                table[y] = f_scores[at + y]
            for e in range(parent + 1, steps[q].end):
                slot_add(table, 0, ends[e].outer, ends[e].states, ends[e].stride, up, ends[e].state, 1.0)
            _slot_best(table, size, n, stride, heard, chosen, steps[q].message)
        for k in range(n):
            up[to + k] += heard[k]

    value = 0.0
    for r in range(schedule.first_root[s], schedule.first_root[s + 1]):
        at = roots[r].state
        best = 0
        for k in range(1, roots[r].states):
            if up[at + k] > up[at + best]:
                best = k
        value += up[at + best]
        labels[first + roots[r].variable] = best

    for q in range(last_step - 1, first_step - 1, -1):
        parent = steps[q].parent
        k = labels[first + ends[parent].variable]
        if steps[q].end - parent == 2:
            at, stride = f_at + steps[q].table + k * ends[parent].stride, ends[parent + 1].stride
            below = ends[parent + 1].state
            top, best = -np.inf, 0
            for i in range(ends[parent + 1].states):
                score = f_scores[at + i * stride] + up[below + i]
                if score > top:
                    top, best = score, i
            labels[first + ends[parent + 1].variable] = best
        else:
            y = chosen[steps[q].message + k]
            for e in range(parent + 1, steps[q].end):
                labels[first + ends[e].variable] = (y // ends[e].stride) % ends[e].states
    return value


@inner
def max_columns(table: Any, child: Any, out: Any) -> None:
    """out[k] = max_i table[i, k] + child[i]; the inner loop is along rows, where it compiles to vector instructions.

    Two rows at a time halve the traffic of `out`. Of an odd number the first row stands alone; of an even number it
    counts twice.
    """
    n = len(table) // len(child)
    for k in range(n):
        out[k] = table[k] + child[0]
    for i in range(len(child) % 2, len(child), 2):
        one, two = table[i * n : i * n + n], table[i * n + n : i * n + 2 * n]
        add_one, add_two = child[i], child[i + 1]
        for k in range(n):
            value, other = one[k] + add_one, two[k] + add_two
            value = other if other > value else value
            out[k] = value if value > out[k] else out[k]


@inner
def max_rows(table: Any, child: Any, out: Any) -> None:
    """out[k] = max_i table[k, i] + child[i]; four running maxima, since one would wait for itself at every step."""
    n = len(child)
    for k in range(len(table) // n):
        row = table[k * n : k * n + n]
        a = b = c = d = -np.inf
        for i in range(0, n - 3, 4):
            a = max(a, row[i] + child[i])
            b = max(b, row[i + 1] + child[i + 1])
            c = max(c, row[i + 2] + child[i + 2])
            d = max(d, row[i + 3] + child[i + 3])
        for i in range(n - n % 4, n):
            a = max(a, row[i] + child[i])
        out[k] = max(max(a, b), max(c, d))


@inner
def _slot_best(table: Any, size: int, n_states: int, stride: int, out: Any, joint: Any, at: int) -> None:
    """out[k] = the largest entry whose variable is in state k; joint[at + k] = the first joint state that has it."""
    for k in range(n_states):
        out[k] = -np.inf
        joint[at + k] = 0
    y = 0
    while y < size:
        for k in range(n_states):
            for _ in range(stride):
                if table[y] > out[k]:
                    out[k] = table[y]
                    joint[at + k] = y
                y += 1


@kernel
def _sum_product(
    schedule: Any, room: Any, examples: Any, v_scores: Any, f_scores: Any, temperature: float, out_v: Any, out_f: Any,
    log_partition: Any,
) -> int:  # fmt: skip
    """Marginals of every example; the first example that has no allowed labeling, or -1."""
    for m in range(len(examples) - 1):
        states, tables = examples[m].states, examples[m].tables
        log_partition[m] = sum_product_one(
            schedule, room, examples[m].structure, v_scores, states, f_scores, tables, temperature, out_v, out_f
        )
        # Not true of NaN either.
        if not log_partition[m] > -np.inf:
            return m
    return -1


@inner
def sum_product_one(
    schedule: Any, room: Any, s: int, v_scores: Any, v_at: int, f_scores: Any, f_at: int, temperature: float, out_v: Any,
    out_f: Any,
) -> float:  # fmt: skip
    """Marginals of one example of structure s into out_v[v_at:] and out_f[f_at:], and its log partition function.

    Where no labeling is allowed, that is -inf, and the marginals mean nothing. Scores are given as in `max_product_one`.
    """
    steps, ends, roots, n_states = schedule.steps, schedule.ends, schedule.roots, schedule.n_states[s]
    first_step, last_step = schedule.first_step[s], schedule.first_step[s + 1]
    up, most, total = room.up, room.heard, room.total
    for i in range(n_states):
        up[i] = v_scores[v_at + i]
        out_v[v_at + i] = 0.0

    for q in range(first_step, last_step):
        here, size, message, parent = steps[q].table, steps[q].entries, steps[q].message, steps[q].parent
        at = f_at + here
        for y in range(size):
            out_f[at + y] = f_scores[f_at + here + y]
        for e in range(parent + 1, steps[q].end):
            slot_add(out_f, at, ends[e].outer, ends[e].states, ends[e].stride, up, ends[e].state, 1.0)
        to, n, stride = ends[parent].state, ends[parent].states, ends[parent].stride
        slot_max(out_f, at, ends[parent].outer, n, stride, most, 0)
        _exponentiate(out_f, at, size, n, stride, temperature, most, total, message)
        for k in range(n):
            up[to + k] += most[k]
            if total[message + k] > 1.0:
                up[to + k] += temperature * np.log(total[message + k])

    log_partition = 0.0
    for r in range(schedule.first_root[s], schedule.first_root[s + 1]):
        first, last = roots[r].state, roots[r].state + roots[r].states
        top = -np.inf
        for i in range(first, last):
            top = max(top, up[i])
        if top == -np.inf:
            return -np.inf
        mass = 0.0
        for i in range(first, last):
            out_v[v_at + i] = np.exp((up[i] - top) / temperature)
            mass += out_v[v_at + i]
        for i in range(first, last):
            out_v[v_at + i] /= mass
        log_partition += top + temperature * np.log(mass)

    for q in range(last_step - 1, first_step - 1, -1):
        at, message, parent = f_at + steps[q].table, steps[q].message, steps[q].parent
        n = ends[parent].states
        for k in range(n):
            sent = total[message + k]
            most[k] = out_v[v_at + ends[parent].state + k] / sent if sent > 0.0 else 0.0
        slot_scale(out_f, at, ends[parent].outer, n, ends[parent].stride, most, 0)
        for e in range(parent + 1, steps[q].end):
            slot_sum(out_f, at, ends[e].outer, ends[e].states, ends[e].stride, out_v, v_at + ends[e].state)
    return log_partition


@inner
def _exponentiate(
    table: Any, at: int, size: int, n_states: int, stride: int, temperature: float, most: Any, total: Any, to: int
) -> None:
    """Turn the table into exp((table - most[k]) / T), k the state of the slot, and sum it into total[to + k]."""
    for k in range(n_states):
        total[to + k] = 0.0
    y = at
    while y < at + size:
        for k in range(n_states):
            top, mass = most[k], total[to + k]
            for _ in range(stride):
                # Where all is forbidden, -inf - -inf would be NaN.
                table[y] = np.exp((table[y] - top) / temperature) if table[y] > -np.inf else 0.0
                mass += table[y]
                y += 1
            total[to + k] = mass

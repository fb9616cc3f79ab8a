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
)
from maxmargin.jit import Struct, inner, kernel
from maxmargin.problems.factor_graphs import FactorGraphs, Scores
from maxmargin.problems.layout import (
    F_DELTA,
    F_SCOPE,
    F_TABLE,
    F_TEMPLATE,
    K_ARITY,
    K_SIZE,
    K_SLOTS,
    L_DELTAS,
    L_STATES,
    L_TABLE,
    S_FACTORS,
    S_VARIABLES,
    SLOT_OUTER,
    SLOT_STATES,
    SLOT_STRIDE,
    STATES,
    STRUCTURE,
    TABLES,
    V_STATE,
    V_TEMPLATE,
    VARIABLES,
    offsets,
)
from maxmargin.problems.tables import slot_add, slot_max, slot_scale, slot_sum
from maxmargin.problems.templates import Structure

# Columns of `ends`, one end of a factor: the variable, its first state in the example, its slot in the factor's table.
E_VARIABLE, E_STATE, E_STATES, E_STRIDE, E_OUTER = range(5)
# Columns of `steps`: the factor's table in the example and its size, room for a number per state of the parent, the row
# of the parent in `ends`, and the end of its children, which are the rows after it.
T_TABLE, T_SIZE, T_ROOM, T_PARENT, T_END = range(5)


class Schedule(Struct):
    """The order in which factors send, from the leaves to the roots."""

    #: Structure s has the steps start[s, 0]:start[s + 1, 0] and the roots start[s, 1]:start[s + 1, 1].
    start: NDArray[np.int64]
    #: A row per factor, and its ends: the parent first, then the children in the order of the scope.
    steps: NDArray[np.int64]
    ends: NDArray[np.int64]
    #: A row (variable, first state in the example, number of states) per root.
    roots: NDArray[np.int64]


class Trees:
    """Message passing from the leaves to the roots and back; exact on forests."""

    name = "trees"
    exact = True

    def refusal(self, graphs: FactorGraphs) -> str | None:
        """Name the first example with a structured factor or a cycle, if there is one."""
        structured = graphs.refuse_structured(self.name)
        if structured is not None or graphs.is_forest:
            return structured
        cyclic = np.flatnonzero(~forests(graphs)[graphs.structure_of])
        return f"The trees engine needs graphs without cycles, but the graph of example {cyclic[0]} has a cycle."

    def maximise(self, graphs: FactorGraphs, scores: Scores) -> MapResult:
        """Find the best labeling of every example by max-product."""
        scores = self._check(graphs, scores)
        labels, a = np.empty(len(graphs.labels), np.int32), graphs.arrays
        _max_product(a.examples, a.largest, schedule(graphs), scores.variables, scores.factors, labels)
        return exact_result(graphs, scores, labels)

    def marginals(self, graphs: FactorGraphs, scores: Scores, temperature: float = 1.0) -> Marginals:
        """Compute all marginals by sum-product at the given temperature."""
        temperature = check_temperature(temperature)
        scores = self._check(graphs, scores)
        out = Marginals(np.empty(len(scores.variables)), np.empty(len(scores.factors)), np.empty(graphs.n_examples))
        a = graphs.arrays
        failed = _sum_product(
            a.examples, a.largest, schedule(graphs), scores.variables, scores.factors, temperature, *out
        )
        if failed >= 0:
            raise_infeasible(graphs, scores, failed)
        return out

    def _check(self, graphs: FactorGraphs, scores: Scores) -> Scores:
        refusal = self.refusal(graphs)
        if refusal is not None:
            raise DataError(refusal)
        return check_numbers(graphs, scores)


@once_per_structures
def forests(graphs: FactorGraphs) -> NDArray[np.bool_]:
    """Whether each structure's graph has no cycle."""
    return np.array([structure.is_forest() for structure in graphs.structures], bool)


@once_per_structures
def schedule(graphs: FactorGraphs) -> Schedule:
    """The order of the factors of all structures; `max_product_one` and `sum_product_one` walk it."""
    a = graphs.arrays
    walks = [_walk(structure) for structure in graphs.structures]
    n_factors = np.diff(a.structures[:, S_FACTORS])
    factor = _join(walk[0] for walk in walks) + np.repeat(a.structures[:-1, S_FACTORS], n_factors)
    parent = _join(walk[1] for walk in walks)
    n_roots = np.array([len(walk[2]) for walk in walks])
    root = _join(walk[2] for walk in walks)

    kind = a.factors[factor, F_TEMPLATE]
    arity = a.factor_kinds[kind, K_ARITY]
    begin = offsets(arity)
    step = np.repeat(np.arange(len(factor)), arity)
    # Places in the scope, in the order of `ends`: the parent's first, then the rest without it.
    place = np.arange(len(step)) - begin[step]
    place = np.where(place == 0, parent[step], place - (place <= parent[step]))
    variable = a.scope[a.factors[factor[step], F_SCOPE] + place]
    slot = a.slots[a.factor_kinds[kind[step], K_SLOTS] + place]
    state = a.variables[np.repeat(a.structures[:-1, S_VARIABLES], n_factors)[step] + variable, V_STATE]
    of_root = a.variables[np.repeat(a.structures[:-1, S_VARIABLES], n_roots) + root]
    return Schedule(
        np.stack([a.structures[:, S_FACTORS], offsets(n_roots)], axis=1),
        np.stack(
            [
                a.factors[factor, F_TABLE],
                a.factor_kinds[kind, K_SIZE],
                a.factors[factor, F_DELTA],
                begin[:-1],
                begin[1:],
            ],
            axis=1,
        ),
        np.stack([variable, state, slot[:, SLOT_STATES], slot[:, SLOT_STRIDE], slot[:, SLOT_OUTER]], axis=1),
        np.stack([root, of_root[:, V_STATE], a.variable_kinds[of_root[:, V_TEMPLATE], K_SIZE]], axis=1),
    )


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
def _max_product(examples: Any, largest: Any, schedule: Any, v_scores: Any, f_scores: Any, labels: Any) -> None:
    """Best labeling of every example; a forbidden one if none is allowed."""
    start, steps, ends, roots = schedule.start, schedule.steps, schedule.ends, schedule.roots
    up, heard = np.empty(largest[L_STATES]), np.empty(largest[L_STATES])
    table, chosen = np.empty(largest[L_TABLE]), np.empty(largest[L_DELTAS], np.int64)
    for m in range(len(examples) - 1):
        states = examples[m, STATES]
        max_product_one(
            examples[m, STRUCTURE], examples[m + 1, STATES] - states, start, steps, ends, roots,
            v_scores, states, f_scores, examples[m, TABLES], up, heard, table, chosen, labels, examples[m, VARIABLES],
        )  # fmt: skip


@inner
def max_product_one(
    s: int, n_states: int, start: Any, steps: Any, ends: Any, roots: Any, v_scores: Any, v_at: int, f_scores: Any,
    f_at: int, up: Any, heard: Any, table: Any, chosen: Any, labels: Any, first: int,
) -> float:  # fmt: skip
    """Best labeling of one example of structure s into labels[first:], and its score.

    Where no labeling is allowed, that is -inf, and the labeling is one of those that are forbidden.
    `start`, `steps`, `ends`, `roots` are those of `schedule`. The example's n_states scores of variables begin at
    v_scores[v_at], those of its factors at f_scores[f_at]. Room to work in, by the columns of `largest`: up (L_STATES),
    heard (L_STATES), table (L_TABLE), and chosen (L_DELTAS), which holds whole numbers.
    """
    for i in range(n_states):
        up[i] = v_scores[v_at + i]

    for q in range(start[s, 0], start[s + 1, 0]):
        at, size, parent = f_at + steps[q, T_TABLE], steps[q, T_SIZE], steps[q, T_PARENT]
        to, n, stride = ends[parent, E_STATE], ends[parent, E_STATES], ends[parent, E_STRIDE]
        if steps[q, T_END] - parent == 2:
            below, n_below = ends[parent + 1, E_STATE], ends[parent + 1, E_STATES]
            if stride == 1:
                _max_columns(f_scores[at : at + size], up[below : below + n_below], heard)
            else:
                _max_rows(f_scores[at : at + size], up[below : below + n_below], heard)
        else:
            for y in range(size):
                table[y] = f_scores[at + y]
            for e in range(parent + 1, steps[q, T_END]):
                slot_add(table, 0, ends[e, E_OUTER], ends[e, E_STATES], ends[e, E_STRIDE], up, ends[e, E_STATE], 1.0)
            _slot_best(table, size, n, stride, heard, chosen, steps[q, T_ROOM])
        for k in range(n):
            up[to + k] += heard[k]

    value = 0.0
    for r in range(start[s, 1], start[s + 1, 1]):
        at = roots[r, 1]
        best = 0
        for k in range(1, roots[r, 2]):
            if up[at + k] > up[at + best]:
                best = k
        value += up[at + best]
        labels[first + roots[r, 0]] = best

    for q in range(start[s + 1, 0] - 1, start[s, 0] - 1, -1):
        parent = steps[q, T_PARENT]
        k = labels[first + ends[parent, E_VARIABLE]]
        if steps[q, T_END] - parent == 2:
            at, stride = f_at + steps[q, T_TABLE] + k * ends[parent, E_STRIDE], ends[parent + 1, E_STRIDE]
            below = ends[parent + 1, E_STATE]
            top, best = -np.inf, 0
            for i in range(ends[parent + 1, E_STATES]):
                score = f_scores[at + i * stride] + up[below + i]
                if score > top:
                    top, best = score, i
            labels[first + ends[parent + 1, E_VARIABLE]] = best
        else:
            y = chosen[steps[q, T_ROOM] + k]
            for e in range(parent + 1, steps[q, T_END]):
                labels[first + ends[e, E_VARIABLE]] = (y // ends[e, E_STRIDE]) % ends[e, E_STATES]
    return value


@inner
def _max_columns(table: Any, child: Any, out: Any) -> None:
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
def _max_rows(table: Any, child: Any, out: Any) -> None:
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
    examples: Any, largest: Any, schedule: Any, v_scores: Any, f_scores: Any, temperature: float,
    out_v: Any, out_f: Any, log_partition: Any,
) -> int:  # fmt: skip
    """Marginals of every example; the first example that has no allowed labeling, or -1."""
    start, steps, ends, roots = schedule.start, schedule.steps, schedule.ends, schedule.roots
    up, most, total = np.empty(largest[L_STATES]), np.empty(largest[L_STATES]), np.empty(largest[L_DELTAS])
    for m in range(len(examples) - 1):
        states, tables = examples[m, STATES], examples[m, TABLES]
        log_partition[m] = sum_product_one(
            examples[m, STRUCTURE], examples[m + 1, STATES] - states, start, steps, ends, roots,
            v_scores, states, f_scores, tables, temperature, up, most, total, out_v, states, out_f, tables,
        )  # fmt: skip
        # Not true of NaN either.
        if not log_partition[m] > -np.inf:
            return m
    return -1


@inner
def sum_product_one(
    s: int, n_states: int, start: Any, steps: Any, ends: Any, roots: Any, v_scores: Any, v_at: int, f_scores: Any,
    f_at: int, temperature: float, up: Any, most: Any, total: Any, out_v: Any, v_to: int, out_f: Any, f_to: int,
) -> float:  # fmt: skip
    """Marginals of one example of structure s into out_v[v_to:] and out_f[f_to:], and its log partition function.

    Where no labeling is allowed, that is -inf, and the marginals mean nothing. Scores and schedule are given as in
    `max_product_one`; room to work in: up (L_STATES), most (L_STATES), total (L_DELTAS).
    """
    for i in range(n_states):
        up[i] = v_scores[v_at + i]
        out_v[v_to + i] = 0.0

    for q in range(start[s, 0], start[s + 1, 0]):
        here, size, room, parent = steps[q, T_TABLE], steps[q, T_SIZE], steps[q, T_ROOM], steps[q, T_PARENT]
        at = f_to + here
        for y in range(size):
            out_f[at + y] = f_scores[f_at + here + y]
        for e in range(parent + 1, steps[q, T_END]):
            slot_add(out_f, at, ends[e, E_OUTER], ends[e, E_STATES], ends[e, E_STRIDE], up, ends[e, E_STATE], 1.0)
        to, n, stride = ends[parent, E_STATE], ends[parent, E_STATES], ends[parent, E_STRIDE]
        slot_max(out_f, at, ends[parent, E_OUTER], n, stride, most, 0)
        _exponentiate(out_f, at, size, n, stride, temperature, most, total, room)
        for k in range(n):
            up[to + k] += most[k]
            if total[room + k] > 1.0:
                up[to + k] += temperature * np.log(total[room + k])

    log_partition = 0.0
    for r in range(start[s, 1], start[s + 1, 1]):
        first, last = roots[r, 1], roots[r, 1] + roots[r, 2]
        top = -np.inf
        for i in range(first, last):
            top = max(top, up[i])
        if top == -np.inf:
            return -np.inf
        mass = 0.0
        for i in range(first, last):
            out_v[v_to + i] = np.exp((up[i] - top) / temperature)
            mass += out_v[v_to + i]
        for i in range(first, last):
            out_v[v_to + i] /= mass
        log_partition += top + temperature * np.log(mass)

    for q in range(start[s + 1, 0] - 1, start[s, 0] - 1, -1):
        at, room, parent = f_to + steps[q, T_TABLE], steps[q, T_ROOM], steps[q, T_PARENT]
        n = ends[parent, E_STATES]
        for k in range(n):
            sent = total[room + k]
            most[k] = out_v[v_to + ends[parent, E_STATE] + k] / sent if sent > 0.0 else 0.0
        slot_scale(out_f, at, ends[parent, E_OUTER], n, ends[parent, E_STRIDE], most, 0)
        for e in range(parent + 1, steps[q, T_END]):
            slot_sum(out_f, at, ends[e, E_OUTER], ends[e, E_STATES], ends[e, E_STRIDE], out_v, v_to + ends[e, E_STATE])
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

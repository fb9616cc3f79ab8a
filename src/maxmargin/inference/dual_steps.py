"""The steps of dual decomposition: visits of variables, which lower the bound or its smoothed form (dual_decomposition.py).

A *row* is a pair (variable, factor of it), in the order of the layout's `incident`. Kernels work on example m of a `Task`, in a
`Room` that holds its messages.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.inference.trees import max_columns, max_rows
from maxmargin.jit import Struct, inner, record_type
from maxmargin.problems.layout import GraphArrays
from maxmargin.problems.structured import structured_max_marginals, structured_score, work_size
from maxmargin.problems.tables import slot_add, slot_max, slot_scale, slot_sum
from maxmargin.problems.templates import TABLE

#: What the factor is to the variable, whether its scope has earlier and later variables; of a pair, the other variable, its number
#: of states, its message and its stride.
ROW = record_type("kind", "earlier", "later", "other", "other_states", "other_delta", "other_stride")
SINGLE, PAIR, WIDE, STRUCTURED = range(4)
#: States of a pair from which on it pays to see that all unequal ones score the same.
POTTS = 4
#: Sums below this are too small for their logarithms to be trusted.
TINY = 1e-290


class Plan(Struct):
    """What sweeps need to know of the structures."""

    rows: Any
    #: For each variable, the part of its belief that each factor it sends to gets.
    share: NDArray[np.float64]
    #: First structured factor of each structure in `structured`, and the factors, numbered inside their structure.
    first_structured: NDArray[np.int64]
    structured: NDArray[np.int64]


class Task(Struct):
    """Graphs and their scores."""

    graphs: GraphArrays
    plan: Plan
    variable_scores: NDArray[np.float64]
    factor_scores: NDArray[np.float64]


class Room(Struct):
    """What is known of one example, and room for one variable or factor of it."""

    #: Scores of the variables, what they have given to their factors, and what they have heard from them.
    theta: NDArray[np.float64]
    lam: NDArray[np.float64]
    heard: NDArray[np.float64]
    #: A number per state of a variable.
    belief: NDArray[np.float64]
    spare: NDArray[np.float64]
    given: NDArray[np.float64]
    #: Tables as exponentials, and the largest entry of each, at the first message of its factor.
    soft: NDArray[np.float64]
    most: NDArray[np.float64]
    #: What all unequal states of a pair score, where they score the same, else NaN; at the first message of its factor.
    unequal: NDArray[np.float64]
    #: A table; of structured factors a number per state of the scope, scratch and labels.
    table: NDArray[np.float64]
    unary: NDArray[np.float64]
    high: NDArray[np.float64]
    work: NDArray[np.float64]
    order: NDArray[np.int64]
    own: NDArray[np.int32]
    #: A labeling.
    trial: NDArray[np.int32]

    @classmethod
    def of(cls, a: GraphArrays) -> Room:
        """Room for the largest example."""
        largest, size = a.largest, work_size(a.largest)
        n, messages = largest.states, largest.deltas
        return cls(
            np.empty(n), np.empty(messages), np.empty(messages), np.empty(n), np.empty(n), np.empty(n),
            np.empty(largest.tables), np.empty(messages), np.empty(messages), np.empty(largest.table),
            np.empty(largest.slots), np.empty(largest.slots), np.empty(size), np.empty(size, np.int64),
            np.empty(largest.slots, np.int32), np.empty(largest.variables, np.int32),
        )  # fmt: skip


# ------------------------------------------------------------------------------------------------------- sweeps


@inner
def example_at(g: Any, m: int) -> tuple[int, int, int, int, int, int]:
    """The first variable and the end, the first factor and the end, and where its states and tables begin."""
    examples, structures, s = g.examples, g.structures, g.examples[m].structure
    v0, v1, f0, f1 = (
        structures[s].variables,
        structures[s + 1].variables,
        structures[s].factors,
        structures[s + 1].factors,
    )
    return v0, v1, f0, f1, examples[m].states, examples[m].tables


@inner
def variable_at(g: Any, v: int) -> tuple[int, int, int, int]:
    """The number of states, the first of them, the first row and the end."""
    variables, q = g.variables, g.variables[v].neighbours
    n_states = g.variable_kinds[variables[v].template].entries
    return n_states, variables[v].table, q, q + variables[v].degree


@inner
def _best_of(belief: Any, n_states: int) -> tuple[float, bool]:
    """The largest belief, and whether any is -inf."""
    top, dead = -np.inf, False
    for k in range(n_states):
        dead = dead or belief[k] == -np.inf
        top = max(top, belief[k])
    return top, dead


@inner
def start(task: Any, room: Any, m: int) -> tuple[float, float]:
    """Scores of the variables, with factors of one variable among them, and no messages.

    Returns the largest finite score, and 1 + the sum of the logarithms of all numbers of (joint) states.
    """
    g, rows, v_scores, f_scores = task.graphs, task.plan.rows, task.variable_scores, task.factor_scores
    factors, incident, kinds, theta, lam, own = g.factors, g.incident, g.factor_kinds, room.theta, room.lam, room.own
    v0, v1, f0, f1, states, tables = example_at(g, m)
    size, entropy = 0.0, 1.0
    for v in range(v0, v1):
        n_states, state, q0, q1 = variable_at(g, v)
        entropy += np.log(n_states)
        for k in range(n_states):
            theta[state + k] = v_scores[states + state + k]
        for q in range(q0, q1):
            if rows[q].kind == SINGLE:
                t, at = factors[f0 + incident[q].factor].template, tables + incident[q].table
                for k in range(n_states):
                    if kinds[t].kind == TABLE:
                        theta[state + k] += f_scores[at + k]
                    else:
                        own[0] = k
                        theta[state + k] += structured_score(
                            t, kinds, g.slots, g.structured, f_scores, at, own, room.work
                        )
        for k in range(n_states):
            if theta[state + k] > -np.inf:
                size = max(size, abs(theta[state + k]))
        for q in range(q0, q1):
            for k in range(n_states):
                lam[incident[q].delta + k] = 0.0 if theta[state + k] > -np.inf else -np.inf
    for c in range(f0, f1):
        t = factors[c].template
        at, entries = tables + factors[c].table, kinds[t].entries
        entropy += np.log(entries)
        for y in range(at, at + entries):
            if f_scores[y] > -np.inf:
                size = max(size, abs(f_scores[y]))
        if kinds[t].arity == 2 and kinds[t].kind == TABLE:
            room.unequal[factors[c].delta] = _score_of_unequal(
                f_scores, at, kinds[t].entries, g.slots[kinds[t].slots].states
            )
    return size, entropy


@inner
def _score_of_unequal(f_scores: Any, at: int, entries: int, n_states: int) -> float:
    """What all unequal states of a pair score if they score the same and are many; else NaN."""
    if n_states < POTTS or entries != n_states * n_states:
        return np.nan
    # Row by row, between two entries of the diagonal there are n_states unequal ones.
    score = f_scores[at + 1]
    for k in range(n_states - 1):
        first = at + k * (n_states + 1) + 1
        for y in range(first, first + n_states):
            if f_scores[y] != score:
                return np.nan
    return float(score)


@inner
def bound_round(task: Any, room: Any, m: int) -> Any:
    """Visit all variables forwards and backwards; the bound."""
    bound = np.inf
    for forward in (True, False):
        bound = _sweep(task, room, m, forward)
        if bound == -np.inf:
            break
    return bound


@inner
def _sweep(task: Any, room: Any, m: int, forward: bool) -> Any:
    """Visit all variables in one order; the bound, since all factors end with 0 as their largest score."""
    g, rows, share, incident = task.graphs, task.plan.rows, task.plan.share, task.graphs.incident
    theta, lam, heard, belief = room.theta, room.lam, room.heard, room.belief
    v0, v1, f0, _, _, tables = example_at(g, m)
    total = 0.0
    for step in range(v1 - v0):
        v = v0 + step if forward else v1 - 1 - step
        n_states, state, q0, q1 = variable_at(g, v)
        for k in range(n_states):
            belief[k] = theta[state + k]
        for q in range(q0, q1):
            to = incident[q].delta
            if rows[q].earlier if forward else rows[q].later:
                message(task, room, q, n_states, tables, f0)
                for k in range(n_states):
                    belief[k] += heard[to + k]
            else:
                for k in range(n_states):
                    if theta[state + k] > -np.inf:
                        belief[k] -= lam[to + k]
        top, dead = _best_of(belief, n_states)
        if top == -np.inf:
            return -np.inf
        total += top
        part = share[v]
        for q in range(q0, q1):
            to = incident[q].delta
            if rows[q].earlier if forward else rows[q].later:
                for k in range(n_states):
                    lam[to + k] = -heard[to + k]
            if rows[q].later if forward else rows[q].earlier:
                for k in range(n_states):
                    if belief[k] > -np.inf:
                        lam[to + k] += part * (belief[k] - top)
        if dead:
            _bury(g, room, v)
    return total


@inner
def _bury(g: Any, room: Any, v: int) -> None:
    """Forbid the states that no allowed labeling has, in the variable and in all its factors."""
    incident, belief, theta, lam = g.incident, room.belief, room.theta, room.lam
    n_states, state, q0, q1 = variable_at(g, v)
    for k in range(n_states):
        if belief[k] == -np.inf:
            theta[state + k] = -np.inf
            for q in range(q0, q1):
                lam[incident[q].delta + k] = -np.inf


@inner
def message(task: Any, room: Any, q: int, n_states: int, tables: int, f0: int) -> None:
    """Best score of row q's factor for each state of the variable, without what the variable itself has given to it."""
    rows, incident, f_scores, lam, heard = (
        task.plan.rows, task.graphs.incident, task.factor_scores, room.lam, room.heard,
    )  # fmt: skip
    to, at = incident[q].delta, tables + incident[q].table
    if rows[q].kind != PAIR:
        _wide_message(task, room, q, n_states, tables, f0)
        return
    other, n_other, stride = rows[q].other_delta, rows[q].other_states, incident[q].stride
    unequal = room.unequal[min(to, other)]
    if unequal == unequal:
        _potts_message(f_scores, at, unequal, lam, other, heard, to, n_states)
    elif n_states == 2 and n_other == 2:
        zero, one = lam[other], lam[other + 1]
        heard[to] = max(f_scores[at] + zero, f_scores[at + 3 - stride] + one)
        heard[to + 1] = max(f_scores[at + stride] + zero, f_scores[at + 3] + one)
    elif stride == 1:
        max_columns(f_scores[at : at + n_states * n_other], lam[other : other + n_other], heard[to : to + n_states])
    else:
        max_rows(f_scores[at : at + n_states * n_other], lam[other : other + n_other], heard[to : to + n_states])


@inner
def _potts_message(
    f_scores: Any, at: int, unequal: float, lam: Any, other: int, heard: Any, to: int, n_states: int
) -> None:
    """The same of a pair whose unequal states all score the same: the best other state is the same for all but one."""
    best, second = -1, -np.inf
    top = -np.inf
    for k in range(n_states):
        if lam[other + k] > top or best < 0:
            best, top, second = k, lam[other + k], top
        elif lam[other + k] > second:
            second = lam[other + k]
    for k in range(n_states):
        away = second if k == best else top
        heard[to + k] = max(f_scores[at + k * (n_states + 1)] + lam[other + k], unequal + away)


@inner
def _wide_message(task: Any, room: Any, q: int, n_states: int, tables: int, f0: int) -> None:
    """The same of a factor that is no pair."""
    g, f_scores, lam, heard, table = task.graphs, task.factor_scores, room.lam, room.heard, room.table
    incident, factors, kinds, slots = g.incident, g.factors, g.factor_kinds, g.slots
    to, at, c = incident[q].delta, tables + incident[q].table, f0 + incident[q].factor
    t, first = factors[c].template, factors[c].delta
    if task.plan.rows[q].kind == STRUCTURED:
        unary, high, mine, own_slot = room.unary, room.high, to - first, 0
        for j in range(kinds[t].arity):
            e = kinds[t].slots + j
            there = slots[e].delta
            if there == mine:
                own_slot = j
            for k in range(there, there + slots[e].states):
                unary[k] = 0.0 if there == mine else lam[first + k]
        structured_max_marginals(
            t, own_slot, kinds, slots, g.structured, unary, f_scores, at, high, room.work, room.order, room.own
        )
        for k in range(n_states):
            heard[to + k] = high[mine + k]
        return
    for y in range(kinds[t].entries):
        table[y] = f_scores[at + y]
    for j in range(kinds[t].arity):
        e = kinds[t].slots + j
        given = first + slots[e].delta
        if given != to:
            slot_add(table, 0, slots[e].outer, slots[e].states, slots[e].stride, lam, given, 1.0)
    slot_max(table, 0, incident[q].outer, n_states, incident[q].stride, heard, to)


# ------------------------------------------------------------------------------------------------------- smoothing


@inner
def soften(task: Any, room: Any, m: int, temperature: float) -> None:
    """Fill `soft` with exp(score / temperature) of all tables, relative to the largest of each, which `most` keeps."""
    g, f_scores, soft, most = task.graphs, task.factor_scores, room.soft, room.most
    factors, kinds = g.factors, g.factor_kinds
    _, _, f0, f1, _, tables = example_at(g, m)
    for c in range(f0, f1):
        t = factors[c].template
        if kinds[t].kind == TABLE:
            at, n = factors[c].table, kinds[t].entries
            top = largest_of(f_scores, tables + at, n)
            most[factors[c].delta] = top
            for y in range(at, at + n):
                soft[y] = np.exp((f_scores[tables + y] - top) / temperature) if top > -np.inf else 0.0


@inner
def soft_sweep(task: Any, room: Any, m: int, temperature: float, forward: bool) -> None:
    """Minimise the smoothed bound over all messages of one variable, for each variable in turn."""
    g, rows, theta, lam, heard, belief = (
        task.graphs, task.plan.rows, room.theta, room.lam, room.heard, room.belief,
    )  # fmt: skip
    incident = g.incident
    v0, v1, f0, _, _, tables = example_at(g, m)
    for step in range(v1 - v0):
        v = v0 + step if forward else v1 - 1 - step
        n_states, state, q0, q1 = variable_at(g, v)
        for k in range(n_states):
            belief[k] = theta[state + k]
        parts = 1.0
        for q in range(q0, q1):
            to = incident[q].delta
            if rows[q].earlier or rows[q].later:
                parts += 1.0
                _soft_message(task, room, q, n_states, tables, f0, temperature)
                for k in range(n_states):
                    belief[k] += heard[to + k]
            else:
                for k in range(n_states):
                    if theta[state + k] > -np.inf:
                        belief[k] -= lam[to + k]
        top, dead = _best_of(belief, n_states)
        if top == -np.inf:
            return
        for q in range(q0, q1):
            to = incident[q].delta
            if rows[q].earlier or rows[q].later:
                for k in range(n_states):
                    if belief[k] > -np.inf:
                        lam[to + k] = (belief[k] - top) / parts - heard[to + k]
        if dead:
            _bury(g, room, v)


@inner
def _soft_message(task: Any, room: Any, q: int, n_states: int, tables: int, f0: int, temperature: float) -> None:
    """As `message`, with temperature * log sum exp(. / temperature) for the maximum.

    Tables are exponentiated once a temperature, so that a message costs exponentials of messages only. Structured
    factors, and sums that are too small for a float, are left to the maximum; bounds hold for all messages.
    """
    g, rows, soft, lam, heard = task.graphs, task.plan.rows, room.soft, room.lam, room.heard
    incident, factors, kinds, slots = g.incident, g.factors, g.factor_kinds, g.slots
    table, sums, given = room.table, room.spare, room.given
    c = f0 + incident[q].factor
    t, to, at = factors[c].template, incident[q].delta, incident[q].table
    shift = room.most[factors[c].delta]
    for k in range(n_states):
        sums[k] = 0.0
    if rows[q].kind == PAIR:
        n_other = rows[q].other_states
        shift += _exponentials(lam, rows[q].other_delta, n_other, temperature, given)
        pair = soft[at : at + n_states * n_other]
        if incident[q].stride == 1:
            _add_columns(pair, given[:n_other], sums[:n_states])
        else:
            _add_rows(pair, given[:n_other], sums[:n_states])
    elif rows[q].kind != STRUCTURED:
        for y in range(kinds[t].entries):
            table[y] = soft[at + y]
        for j in range(kinds[t].arity):
            e = kinds[t].slots + j
            other, n_other = factors[c].delta + slots[e].delta, slots[e].states
            if other != to:
                shift += _exponentials(lam, other, n_other, temperature, given)
                slot_scale(table, 0, slots[e].outer, n_other, slots[e].stride, given, 0)
        slot_sum(table, 0, incident[q].outer, n_states, incident[q].stride, sums, 0)
    least = np.inf
    for k in range(n_states):
        least = min(least, sums[k])
    if least < TINY:
        message(task, room, q, n_states, tables, f0)
    for k in range(n_states):
        if sums[k] >= TINY:
            heard[to + k] = shift + temperature * np.log(sums[k])


@inner
def _exponentials(values: Any, at: int, n: int, temperature: float, out: Any) -> Any:
    """Fill out with exp(value / temperature), relative to the largest value, which is returned."""
    top = largest_of(values, at, n)
    for k in range(n):
        out[k] = np.exp((values[at + k] - top) / temperature) if top > -np.inf else 0.0
    return top


@inner
def _add_columns(table: Any, given: Any, out: Any) -> None:
    """out[k] += sum_i table[i, k] * given[i]."""
    n = len(out)
    for i in range(len(given)):
        row = table[i * n : i * n + n]
        for k in range(n):
            out[k] += row[k] * given[i]


@inner
def _add_rows(table: Any, given: Any, out: Any) -> None:
    """out[k] += sum_i table[k, i] * given[i]."""
    n = len(given)
    for k in range(len(out)):
        row = table[k * n : k * n + n]
        a = b = c = d = 0.0
        for i in range(0, n - 3, 4):
            a += row[i] * given[i]
            b += row[i + 1] * given[i + 1]
            c += row[i + 2] * given[i + 2]
            d += row[i + 3] * given[i + 3]
        for i in range(n - n % 4, n):
            a += row[i] * given[i]
        out[k] += (a + b) + (c + d)


@inner
def largest_of(values: Any, at: int, n: int) -> Any:
    """The largest of n numbers."""
    most = -np.inf
    for k in range(n):
        most = max(most, values[at + k])
    return most

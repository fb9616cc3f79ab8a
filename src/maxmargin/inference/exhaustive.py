"""Exhaustive search: every labeling of every example, for small graphs of any shape.

Labelings are visited in C order (the last variable changes fastest), depth first: level d fixes variable d, and
every factor belongs to the level of the last variable of its scope, where its joint state becomes known. At each
level

    partial(y_0 .. y_d) = partial(y_0 .. y_{d-1}) + scores_d(y_d) + sum_{c of level d} scores_c(y_c)

is a fresh sum of the scores that are known so far: nothing is subtracted, so no rounding builds up, and a forbidden
partial labeling (-inf) is left with all that lies below it. The search for the best labeling also leaves what cannot
become better than the best so far, even if every later variable and factor had its largest score.

Probability mass travels the other way: a level's mass is credited to its state and to its factors' joint states when
the search leaves it, so a labeling costs about as much as its last level.

A structured factor is scored through its statistics, afresh for each state of its level; nothing is assumed of its
largest score. Its entries in *tables* coordinates are the means of its statistics.

Of labelings with the same (sum in the above order) score, the first in C order wins.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.errors import TooLargeError
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
from maxmargin.problems.layout import offsets
from maxmargin.problems.structured import structured_score, structured_statistics, work_size
from maxmargin.problems.templates import TABLE

#: A level: its variable's number of states, the first of them in the example, the first factor (and the next level's).
LEVEL = record_type("states", "state", "factor")
#: A factor of a level: table in the example, stride of the level's own variable, first and last row of `earlier`, number of joint
#: states, template, first entry of the scope.
FACTOR = record_type("table", "stride", "earlier", "last", "entries", "template", "scope")
#: A variable of a factor's scope that is fixed at an earlier level, and its stride.
EARLIER = record_type("variable", "stride")


class Levels(Struct):
    """The levels of all structures; a structure's begin at ``start``."""

    start: NDArray[np.int64]
    #: A record per variable, and one more that holds the end.
    variables: Any
    #: A record per factor, by level.
    factors: Any
    earlier: Any


class SearchRoom(Struct):
    """Room for the search of one example."""

    #: By state: the score of a partial labeling that ends there.
    partial: NDArray[np.float64]
    #: By level: the state tried now; the most that later levels can add, or the mass of what has been left.
    choice: NDArray[np.int64]
    rest: NDArray[np.float64]
    #: By factor: its joint state with the level's variable at state 0, since the search last entered its level.
    place: NDArray[np.int64]
    #: The labels of a structured factor.
    own: NDArray[np.int32]


class Exhaustive:
    """Try every labeling; exact on any graph, for examples of at most ``limit`` joint states.

    Parameters
    ----------
    limit : int
        Largest number of joint states of an example.
    """

    name = "exhaustive"
    exact = True

    def __init__(self, limit: int = 2**20) -> None:
        self.limit = limit

    def refusal(self, graphs: FactorGraphs) -> str | None:
        """Name the first example with too many joint states, if there is one."""
        over = np.flatnonzero(joint_states(graphs) > self.limit)
        if len(over) == 0:
            return None
        m = int(over[0])
        structure = graphs.structures[graphs.structure_of[m]]
        n_states = [graphs.variable_templates[t].n_states[0] for t in structure.variable_templates]
        # A picture's number of labelings has too many digits to be written, or even worked out.
        digits = math.fsum(map(math.log10, n_states))
        shown = str(math.prod(n_states)) if digits < 15 else f"about 10^{math.floor(digits + 1e-9)}"
        return f"Example {graphs.number_of(m)} has {shown} joint states; exhaustive search tries at most {self.limit}."

    def maximise(self, graphs: FactorGraphs, scores: Scores) -> MapResult:
        """Find the best labeling of every example; the first in C order if several are best."""
        scores = self._check(graphs, scores)
        labels = np.empty(len(graphs.labels), np.int32)
        with search_room(graphs) as (room, work):
            failed = _search(graphs.arrays, levels_of(graphs), room, work, *scores, labels)
        if failed >= 0:
            raise_infeasible(graphs, scores, failed)
        return exact_result(graphs, scores, labels)

    def marginals(self, graphs: FactorGraphs, scores: Scores, temperature: float = 1.0) -> Marginals:
        """Sum over all labelings, relative to the best one."""
        temperature = check_temperature(temperature)
        best = self.maximise(graphs, scores).values
        scores = check_numbers(graphs, scores)
        out = Marginals(np.zeros(len(scores.variables)), np.zeros(len(scores.factors)), np.empty(graphs.n_examples))
        with search_room(graphs) as (room, work):
            _sum(graphs.arrays, levels_of(graphs), room, work, *scores, best, temperature, out)
        return out

    def _check(self, graphs: FactorGraphs, scores: Scores) -> Scores:
        refusal = self.refusal(graphs)
        if refusal is not None:
            raise TooLargeError(refusal)
        return check_numbers(graphs, scores)


def joint_states(graphs: FactorGraphs) -> NDArray[np.float64]:
    """Number of labelings (M,) of each example; as floats, since they may be astronomical."""
    return np.asarray(_joint_states(graphs)[graphs.structure_of])


@once_per_structures
def _joint_states(graphs: FactorGraphs) -> NDArray[np.float64]:
    a = graphs.arrays
    with np.errstate(over="ignore"):
        n_states = a.variable_kinds.entries[a.variables.template].astype(np.float64)
        return np.asarray(np.multiply.reduceat(n_states, a.structures[:-1].variables))


@room_per_structures
def search_room(graphs: FactorGraphs) -> tuple[SearchRoom, NDArray[np.float64] | None]:
    """Room for any example of the structures, and room for structured factors, or None if there are none."""
    a, largest = graphs.arrays, graphs.arrays.largest
    n, factors = largest.variables, len(a.factors)
    return SearchRoom(
        np.empty(largest.states), np.empty(n, np.int64), np.empty(n), np.empty(factors, np.int64),
        np.empty(largest.slots, np.int32),
    ), np.empty(work_size(largest)) if (a.factor_kinds.kind != TABLE).any() else None  # fmt: skip


@once_per_structures
def levels_of(graphs: FactorGraphs) -> Levels:
    """The levels of the search."""
    a = graphs.arrays
    first = a.factors.neighbours
    arity = a.factor_kinds.arity[a.factors.template]
    factor = np.repeat(np.arange(len(arity)), arity)
    slot = a.factor_kinds.slots[a.factors.template[factor]] + np.arange(len(factor)) - first[factor]
    stride = a.slots.stride[slot]
    # The level of a factor is the last variable of its scope; the others come earlier.
    last = np.maximum.reduceat(a.scope, first) if len(first) else first
    own = a.scope == last[factor]
    earlier = first - np.arange(len(first))
    level = last + np.repeat(a.structures[:-1].variables, np.diff(a.structures.factors))
    size = a.factor_kinds.entries[a.factors.template]
    factors = records(
        FACTOR, a.factors.table, stride[own], earlier, earlier + arity - 1, size, a.factors.template, first
    )
    n_states = a.variable_kinds.entries[a.variables.template]
    return Levels(
        np.ascontiguousarray(a.structures.variables),
        records(
            LEVEL, np.append(n_states, 0), np.append(a.variables.table, 0),
            offsets(np.bincount(level, minlength=len(n_states))),
        ),
        factors[np.argsort(level, kind="stable")],
        records(EARLIER, a.scope[~own], stride[~own]),
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------------- kernels
#
# `work` is None where no factor is structured. Numba then leaves out what is only done if it is not None.


@kernel
def _search(g: Any, levels: Any, room: Any, work: Any, v_scores: Any, f_scores: Any, labels: Any) -> int:
    """Best labeling of every example; the first example that has none, or -1."""
    examples, variables, partial, choice, rest = g.examples, levels.variables, room.partial, room.choice, room.rest
    for m in range(len(examples) - 1):
        first, n = examples[m].variables, examples[m + 1].variables - examples[m].variables
        own_v, own_f = v_scores[examples[m].states :], f_scores[examples[m].tables :]
        v0 = levels.start[examples[m].structure]
        bound_rest(g, levels, rest, v0, n, own_v, own_f)
        best, value = -np.inf, 0.0
        d, entering = 0, True
        while d >= 0:
            n_states, at = variables[v0 + d].states, variables[v0 + d].state
            if entering:
                enter_level(g, levels, room, work, v0, d, value, own_v, own_f)
                entering = False
            choice[d] += 1
            if choice[d] == n_states:
                d -= 1
                continue
            value = partial[at + choice[d]]
            if value == -np.inf or value + rest[d] <= best:
                continue
            if d < n - 1:
                d += 1
                entering = True
            elif value > best:
                best = value
                for v in range(n):
                    labels[first + v] = choice[v]
        if best == -np.inf:
            return m
    return -1


@inner
def bound_rest(g: Any, levels: Any, rest: Any, v0: int, n: int, v_scores: Any, f_scores: Any) -> None:
    """rest[d]: the most that the variables after d can add. Below a labeling that falls short by more, nothing is better."""
    variables, factors, kinds, bound = levels.variables, levels.factors, g.factor_kinds, 0.0
    for d in range(n - 1, -1, -1):
        rest[d] = bound
        most, at = -np.inf, variables[v0 + d].state
        for k in range(variables[v0 + d].states):
            most = max(most, v_scores[at + k])
        bound += most
        for q in range(variables[v0 + d].factor, variables[v0 + d + 1].factor):
            most, at = -np.inf, factors[q].table
            if kinds[factors[q].template].kind != TABLE:
                most = np.inf
            for y in range(factors[q].entries):
                most = max(most, f_scores[at + y])
            bound += most


@inner
def enter_level(
    g: Any, levels: Any, room: Any, work: Any, v0: int, d: int, value: float, v_scores: Any, f_scores: Any
) -> None:
    """Scores of all states of variable d, given the choices for the variables before it, and their score."""
    variables, factors, earlier = levels.variables, levels.factors, levels.earlier
    partial, choice, place = room.partial, room.choice, room.place
    n_states, at = variables[v0 + d].states, variables[v0 + d].state
    for k in range(n_states):
        partial[at + k] = value + v_scores[at + k]
    for q in range(variables[v0 + d].factor, variables[v0 + d + 1].factor):
        joint, stride = factors[q].table, factors[q].stride
        if work is not None:
            t = factors[q].template
            if g.factor_kinds[t].kind != TABLE:
                for k in range(n_states):
                    choice[d] = k
                    _own_labels(g, factors[q].scope, t, choice, room.own)
                    partial[at + k] += structured_score(
                        t, g.factor_kinds, g.slots, g.structured, f_scores, joint, room.own, work
                    )
                continue
        for e in range(factors[q].earlier, factors[q].last):
            joint += earlier[e].stride * choice[earlier[e].variable]
        for k in range(n_states):
            partial[at + k] += f_scores[joint + k * stride]
        place[q] = joint
    choice[d] = -1


@inner
def _own_labels(g: Any, first: int, t: int, choice: Any, own: Any) -> None:
    """The labels of one factor's scope."""
    for j in range(g.factor_kinds[t].arity):
        own[j] = choice[g.scope[first + j]]


@kernel
def _sum(
    g: Any, levels: Any, room: Any, work: Any, v_scores: Any, f_scores: Any, best: Any, temperature: float, out: Any
) -> None:
    """Marginals of every example, from masses relative to its best score; those of `out` come in as zeros."""
    examples, variables, partial, choice, mass = g.examples, levels.variables, room.partial, room.choice, room.rest
    for m in range(len(examples) - 1):
        n, v0 = examples[m + 1].variables - examples[m].variables, levels.start[examples[m].structure]
        own_v, own_f = v_scores[examples[m].states :], f_scores[examples[m].tables :]
        out_v = out.variables[examples[m].states : examples[m + 1].states]
        out_f = out.factors[examples[m].tables : examples[m + 1].tables]
        value = 0.0
        d, entering = 0, True
        while True:
            if entering:
                enter_level(g, levels, room, work, v0, d, value, own_v, own_f)
                mass[d] = 0.0
                entering = False
            choice[d] += 1
            if choice[d] < variables[v0 + d].states:
                value = partial[variables[v0 + d].state + choice[d]]
                if value == -np.inf:
                    continue
                if d < n - 1:
                    d += 1
                    entering = True
                    continue
                p = np.exp((value - best[m]) / temperature)
            elif d == 0:
                break
            else:
                p = mass[d]
                d -= 1
            mass[d] += p
            out_v[variables[v0 + d].state + choice[d]] += p
            _credit_factors(g, levels, room, work, v0, d, p, out_f)
        out_v /= mass[0]
        out_f /= mass[0]
        # The best labeling's mass is exp of a rounding error rather than 1, which is as good.
        out.log_partition[m] = best[m] + temperature * np.log(mass[0])


@inner
def _credit_factors(g: Any, levels: Any, room: Any, work: Any, v0: int, d: int, p: float, out_f: Any) -> None:
    """Add the mass p to the joint states of the factors of level d."""
    variables, factors, place, choice = levels.variables, levels.factors, room.place, room.choice
    for q in range(variables[v0 + d].factor, variables[v0 + d + 1].factor):
        if work is not None:
            t = factors[q].template
            if g.factor_kinds[t].kind != TABLE:
                _own_labels(g, factors[q].scope, t, choice, room.own)
                structured_statistics(t, g.factor_kinds, g.slots, g.structured, room.own, work, 0)
                for y in range(factors[q].entries):
                    out_f[factors[q].table + y] += p * work[y]
                continue
        out_f[place[q] + choice[d] * factors[q].stride] += p


@inner
def next_labeling(variables: Any, v0: int, n: int, n_states: int, labels: Any) -> bool:
    """Make labels[:n] the next labeling in C order, of an example whose structure begins at v0; False after the last one."""
    i = n - 1
    while i >= 0:
        last = variables[v0 + i + 1].table if i + 1 < n else n_states
        if labels[i] + 1 < last - variables[v0 + i].table:
            labels[i] += 1
            return True
        labels[i] = 0
        i -= 1
    return False

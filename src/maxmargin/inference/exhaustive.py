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
)
from maxmargin.jit import Struct, inner, kernel
from maxmargin.problems.factor_graphs import FactorGraphs, Scores
from maxmargin.problems.layout import offsets
from maxmargin.problems.structured import structured_score, structured_statistics, work_size
from maxmargin.problems.templates import TABLE

# `variables` of Levels: number of states, first state in the example, first factor of the level (and the next level's).
LEVEL_STATES, LEVEL_STATE, LEVEL_FACTOR = range(3)
# `factors` of Levels: table in the example, stride of the level's own variable, first and last row of `earlier`,
# number of joint states, template, first entry of the scope.
FACTOR_TABLE, FACTOR_STRIDE, FACTOR_EARLIER, FACTOR_LAST, FACTOR_SIZE, FACTOR_TEMPLATE, FACTOR_SCOPE = range(7)


class Levels(Struct):
    """The levels of all structures; a structure's begin at ``start``."""

    start: NDArray[np.int64]
    #: A row per variable, and one more that holds the end.
    variables: NDArray[np.int64]
    #: A row per factor, by level.
    factors: NDArray[np.int64]
    #: A row (variable, stride) per factor and variable of its scope that is fixed at an earlier level.
    earlier: NDArray[np.int64]


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
        return f"Example {m} has {shown} joint states; exhaustive search tries at most {self.limit}."

    def maximise(self, graphs: FactorGraphs, scores: Scores) -> MapResult:
        """Find the best labeling of every example; the first in C order if several are best."""
        scores = self._check(graphs, scores)
        labels, a = np.empty(len(graphs.labels), np.int32), graphs.arrays
        failed = _search(a, _levels(graphs), work_size(a.largest), scores.variables, scores.factors, labels)
        if failed >= 0:
            raise_infeasible(graphs, scores, failed)
        return exact_result(graphs, scores, labels)

    def marginals(self, graphs: FactorGraphs, scores: Scores, temperature: float = 1.0) -> Marginals:
        """Sum over all labelings, relative to the best one."""
        temperature = check_temperature(temperature)
        best = self.maximise(graphs, scores).values
        scores = check_numbers(graphs, scores)
        out = Marginals(np.zeros(len(scores.variables)), np.zeros(len(scores.factors)), np.empty(graphs.n_examples))
        a = graphs.arrays
        _sum(a, _levels(graphs), work_size(a.largest), scores.variables, scores.factors, best, temperature, *out)
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
        n_states = a.variable_kinds[a.variables.template].entries.astype(np.float64)
        return np.asarray(np.multiply.reduceat(n_states, a.structures[:-1].variables))


@once_per_structures
def _levels(graphs: FactorGraphs) -> Levels:
    a = graphs.arrays
    first = a.factors.neighbours
    arity = a.factor_kinds[a.factors.template].arity
    factor = np.repeat(np.arange(len(arity)), arity)
    slot = a.factor_kinds[a.factors[factor].template].slots + np.arange(len(factor)) - first[factor]
    stride = a.slots[slot].stride
    # The level of a factor is the last variable of its scope; the others come earlier.
    last = np.maximum.reduceat(a.scope, first) if len(first) else first
    own = a.scope == last[factor]
    earlier = first - np.arange(len(first))
    level = last + np.repeat(a.structures[:-1].variables, np.diff(a.structures.factors))
    size = a.factor_kinds[a.factors.template].entries
    factors = np.stack(
        [a.factors.table, stride[own], earlier, earlier + arity - 1, size, a.factors.template, first],
        axis=1,
    )

    variables = np.zeros((len(a.variables) + 1, 3), np.int64)
    variables[:-1, LEVEL_STATES] = a.variable_kinds[a.variables.template].entries
    variables[:-1, LEVEL_STATE] = a.variables.table
    variables[:, LEVEL_FACTOR] = offsets(np.bincount(level, minlength=len(a.variables)))
    return Levels(
        np.ascontiguousarray(a.structures.variables),
        variables,
        factors[np.argsort(level, kind="stable")],
        np.stack([a.scope, stride], axis=1)[~own],
    )


# ------------------------------------------------------------------------------------------------------- kernels


@kernel
def _search(g: Any, levels: Any, room: int, v_scores: Any, f_scores: Any, labels: Any) -> int:
    """Best labeling of every example; the first example that has none, or -1."""
    examples, largest, scope, kinds, slots, structured = (
        g.examples, g.largest, g.scope, g.factor_kinds, g.slots, g.structured,
    )  # fmt: skip
    partial, choice = np.empty(largest.states), np.empty(largest.variables, np.int64)
    rest, work, own = np.empty(largest.variables), np.empty(room), np.empty(largest.slots, np.int32)
    start, variables, factors, earlier = levels.start, levels.variables, levels.factors, levels.earlier
    for m in range(len(examples) - 1):
        v0, states, tables = start[examples[m].structure], examples[m].states, examples[m].tables
        first, n = examples[m].variables, examples[m + 1].variables - examples[m].variables
        # The most that the variables after d can add: below a partial labeling that falls short by more, nothing is better.
        bound = 0.0
        for d in range(n - 1, -1, -1):
            rest[d] = bound
            most, at = -np.inf, states + variables[v0 + d, LEVEL_STATE]
            for k in range(variables[v0 + d, LEVEL_STATES]):
                most = max(most, v_scores[at + k])
            bound += most
            for q in range(variables[v0 + d, LEVEL_FACTOR], variables[v0 + d + 1, LEVEL_FACTOR]):
                most, at = -np.inf, tables + factors[q, FACTOR_TABLE]
                if kinds[factors[q, FACTOR_TEMPLATE]].kind != TABLE:
                    most = np.inf
                for y in range(factors[q, FACTOR_SIZE]):
                    most = max(most, f_scores[at + y])
                bound += most
        best, value = -np.inf, 0.0
        d, entering = 0, True
        while d >= 0:
            n_states, at = variables[v0 + d, LEVEL_STATES], variables[v0 + d, LEVEL_STATE]
            if entering:
                # Scores of all states of variable d, given the choices for the variables before it.
                for k in range(n_states):
                    partial[at + k] = value + v_scores[states + at + k]
                for q in range(variables[v0 + d, LEVEL_FACTOR], variables[v0 + d + 1, LEVEL_FACTOR]):
                    joint, stride = tables + factors[q, FACTOR_TABLE], factors[q, FACTOR_STRIDE]
                    t = factors[q, FACTOR_TEMPLATE]
                    if kinds[t].kind != TABLE:
                        for k in range(n_states):
                            choice[d] = k
                            _own_labels(t, kinds, scope, factors[q, FACTOR_SCOPE], choice, own)
                            partial[at + k] += structured_score(t, kinds, slots, structured, f_scores, joint, own, work)
                        continue
                    for e in range(factors[q, FACTOR_EARLIER], factors[q, FACTOR_LAST]):
                        joint += earlier[e, 1] * choice[earlier[e, 0]]
                    for k in range(n_states):
                        partial[at + k] += f_scores[joint + k * stride]
                choice[d] = -1
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
def _own_labels(t: int, kinds: Any, scope: Any, first: int, choice: Any, own: Any) -> None:
    """The labels of one factor's scope."""
    for j in range(kinds[t].arity):
        own[j] = choice[scope[first + j]]


@kernel
def _sum(
    g: Any, levels: Any, room: int, v_scores: Any, f_scores: Any, best: Any, temperature: float,
    out_v: Any, out_f: Any, log_partition: Any,
) -> None:  # fmt: skip
    """Marginals of every example, from masses relative to its best score; out_v and out_f come in as zeros."""
    examples, largest, scope, kinds, slots, structured = (
        g.examples, g.largest, g.scope, g.factor_kinds, g.slots, g.structured,
    )  # fmt: skip
    work, own = np.empty(room), np.empty(largest.slots, np.int32)
    partial, choice = np.empty(largest.states), np.empty(largest.variables, np.int64)
    mass = np.zeros(largest.variables)
    start, variables, factors, earlier = levels.start, levels.variables, levels.factors, levels.earlier
    # Where each factor's joint state with the level's variable at state 0 is, since the search last entered its level.
    place = np.empty(len(factors), np.int64)
    for m in range(len(examples) - 1):
        v0, states, tables = start[examples[m].structure], examples[m].states, examples[m].tables
        n = examples[m + 1].variables - examples[m].variables
        value = 0.0
        d, entering = 0, True
        while True:
            n_states, at = variables[v0 + d, LEVEL_STATES], variables[v0 + d, LEVEL_STATE]
            if entering:
                # Scores of all states of variable d, given the choices for the variables before it.
                for k in range(n_states):
                    partial[at + k] = value + v_scores[states + at + k]
                for q in range(variables[v0 + d, LEVEL_FACTOR], variables[v0 + d + 1, LEVEL_FACTOR]):
                    joint, stride = tables + factors[q, FACTOR_TABLE], factors[q, FACTOR_STRIDE]
                    t = factors[q, FACTOR_TEMPLATE]
                    if kinds[t].kind != TABLE:
                        for k in range(n_states):
                            choice[d] = k
                            _own_labels(t, kinds, scope, factors[q, FACTOR_SCOPE], choice, own)
                            partial[at + k] += structured_score(t, kinds, slots, structured, f_scores, joint, own, work)
                        continue
                    for e in range(factors[q, FACTOR_EARLIER], factors[q, FACTOR_LAST]):
                        joint += earlier[e, 1] * choice[earlier[e, 0]]
                    for k in range(n_states):
                        partial[at + k] += f_scores[joint + k * stride]
                    place[q] = joint
                choice[d] = -1
                mass[d] = 0.0
                entering = False
            choice[d] += 1
            if choice[d] < n_states:
                value = partial[at + choice[d]]
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
            out_v[states + variables[v0 + d, LEVEL_STATE] + choice[d]] += p
            for q in range(variables[v0 + d, LEVEL_FACTOR], variables[v0 + d + 1, LEVEL_FACTOR]):
                t = factors[q, FACTOR_TEMPLATE]
                if kinds[t].kind == TABLE:
                    out_f[place[q] + choice[d] * factors[q, FACTOR_STRIDE]] += p
                    continue
                _own_labels(t, kinds, scope, factors[q, FACTOR_SCOPE], choice, own)
                structured_statistics(t, kinds, slots, structured, own, work, 0)
                for y in range(factors[q, FACTOR_SIZE]):
                    out_f[tables + factors[q, FACTOR_TABLE] + y] += p * work[y]
        for i in range(states, examples[m + 1].states):
            out_v[i] /= mass[0]
        for i in range(tables, examples[m + 1].tables):
            out_f[i] /= mass[0]
        # The best labeling's mass is exp of a rounding error rather than 1, which is as good.
        log_partition[m] = best[m] + temperature * np.log(mass[0])

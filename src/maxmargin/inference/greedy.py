"""Greedy search: the best single change of a labeling, again and again, until none raises its score.

Finley and Joachims (2008), section 3.1: greedy "iteratively changes the single variable value y_u that would increase
network potential most". They do not say where it starts; here every variable starts in the best state by its own
scores (the lowest of several), as if there were no factors. Like every search that looks at some labelings only, it
undergenerates: its score is at most the best one, and says nothing about how far that is, so ``bounds`` are +inf.

With ``y`` the labeling and ``y^{i=k}`` the same with variable i in state k, each state keeps

    sum_i(k)       = scores_i(k) + sum_{c: i in c} scores_c(y_c^{i=k}),   the finite terms only
    forbidden_i(k) = the number of these terms that are -inf

so that the change of i to k raises the score by ``sum_i(k) - sum_i(y_i)`` where nothing is forbidden. A change that
lowers the number of forbidden terms counts as an increase, before any finite one, and a change that raises it never
does: a search that starts at a forbidden labeling looks for an allowed one first, and does not leave it again. It may
still end at a forbidden labeling, though others are allowed; then its value is -inf.

Ties, also those that only rounding breaks, go to the lowest variable, then to its lowest state.

A change of variable i moves the sums of its neighbours alone: it costs a step per state of the other variables of its
factors, and the search for the next change a step per state of the example. Sums that are updated drift, so the sums
of a variable are computed afresh before it changes, and all of them before the search ends; and an increase must
exceed what rounding can make of the terms. Hence every change truly raises the score, no labeling is seen twice, and
the search ends.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.errors import OptionError
from maxmargin.inference.contract import (
    MapResult,
    Marginals,
    check_numbers,
    check_refusal,
    room_per_structures,
    unbounded_result,
)
from maxmargin.jit import Struct, inner, kernel
from maxmargin.problems.factor_graphs import FactorGraphs, Scores
from maxmargin.problems.layout import joint_state

_EPSILON = float(np.finfo(np.float64).eps)


class ClimbRoom(Struct):
    """Room for the search of one example."""

    #: By state: sums and numbers of forbidden terms.
    sums: NDArray[np.float64]
    forbidden: NDArray[np.int64]
    #: By factor: its joint state under the labeling.
    joint: NDArray[np.int64]


class Greedy:
    """Best single changes from the variables' own best states, to a labeling that none of them improves."""

    name = "greedy"
    exact = False

    def refusal(self, graphs: FactorGraphs) -> str | None:
        """Refuse structured factors; anything else can be searched."""
        return graphs.refuse_structured(self.name)

    def maximise(self, graphs: FactorGraphs, scores: Scores) -> MapResult:
        """Find a labeling of every example that no single change improves; -inf if it is forbidden."""
        check_refusal(self, graphs)
        scores = check_numbers(graphs, scores)
        labels = np.empty(len(graphs.labels), np.int32)
        with _room(graphs) as room:
            _climb(graphs.arrays, room, scores.variables, scores.factors, labels)
        return unbounded_result(graphs, scores, labels)

    def marginals(self, graphs: FactorGraphs, scores: Scores, temperature: float = 1.0) -> Marginals:
        """Refuse: a search for labelings has no marginals."""
        raise OptionError(
            'The "greedy" engine finds labelings and has no marginals; "trees", "exhaustive" and "loopy_bp" have.'
        )


@room_per_structures
def _room(graphs: FactorGraphs) -> ClimbRoom:
    n, most_factors = graphs.arrays.largest.states, int(np.diff(graphs.arrays.structures.factors).max(initial=0))
    return ClimbRoom(np.empty(n), np.empty(n, np.int64), np.empty(most_factors, np.int64))


# ------------------------------------------------------------------------------------------------------- kernels


@kernel
def _climb(g: Any, room: Any, v_scores: Any, f_scores: Any, labels: Any) -> None:
    """Labeling of every example, by best single changes from the variables' own best states."""
    examples, variables, sums, forbidden = g.examples, g.variables, room.sums, room.forbidden
    for m in range(len(examples) - 1):
        s, n, size = examples[m].structure, examples[m + 1].variables - examples[m].variables, 0.0
        v0, own = g.structures[s].variables, labels[examples[m].variables : examples[m + 1].variables]
        own_v, own_f = v_scores[examples[m].states :], f_scores[examples[m].tables :]
        for i in range(examples[m].states, examples[m + 1].states):
            size = max(size, _size(v_scores[i]))
        for y in range(examples[m].tables, examples[m + 1].tables):
            size = max(size, _size(f_scores[y]))
        _start(g, room.joint, s, n, own_v, own)
        fresh = False
        while True:
            v, k = -1, 0
            if fresh:
                v, k = _best_change(g, room, v0, size, own)
            if v < 0:
                # None in sight: it is the end if the sums were computed afresh.
                for u in range(n):
                    _refresh(g, room, v0 + u, own_v, own_f, own[u])
                fresh = True
                v, k = _best_change(g, room, v0, size, own)
                if v < 0:
                    break
            _refresh(g, room, v0 + v, own_v, own_f, own[v])
            lost, gain = _gain(variables[v0 + v].table, own[v], k, sums, forbidden)
            if lost > 0 or (lost == 0 and gain > _noise(variables[v0 + v].degree, size)):
                _change(g, room, s, v, k, own_f, own)


@inner
def _start(g: Any, joint: Any, s: int, n: int, v_scores: Any, labels: Any) -> None:
    """The variables' own best states, and the joint states that they give factors."""
    variables, kinds, v0, f0 = g.variables, g.variable_kinds, g.structures[s].variables, g.structures[s].factors
    for v in range(n):
        at, best = variables[v0 + v].table, 0
        for k in range(1, kinds[variables[v0 + v].template].entries):
            if v_scores[at + k] > v_scores[at + best]:
                best = k
        labels[v] = best
    for c in range(g.structures[s + 1].factors - f0):
        joint[c] = joint_state(f0 + c, 0, g.factors, g.scope, g.factor_kinds, g.slots, labels)


@inner
def _size(score: float) -> float:
    return abs(score) if score > -np.inf else 0.0


@inner
def _noise(degree: int, size: float) -> float:
    """What rounding can make of the difference of two sums of degree + 1 terms that are at most `size`."""
    return _EPSILON * (degree + 1) * (degree + 1) * size


@inner
def _gain(at: int, now: int, k: int, sums: Any, forbidden: Any) -> tuple[int, float]:
    """How many forbidden terms fewer, and how much more score, state k has than the state now."""
    return forbidden[at + now] - forbidden[at + k], sums[at + k] - sums[at + now]


@inner
def _best_change(g: Any, room: Any, v0: int, size: float, labels: Any) -> tuple[int, int]:
    """The best change: variable and state; variable -1 if none is an increase."""
    variables, kinds, sums, forbidden = g.variables, g.variable_kinds, room.sums, room.forbidden
    best_v, best_k, best_lost, best_gain = -1, 0, 0, 0.0
    for v in range(len(labels)):
        at, now = variables[v0 + v].table, labels[v]
        noise = _noise(variables[v0 + v].degree, size)
        for k in range(kinds[variables[v0 + v].template].entries):
            lost, gain = _gain(at, now, k, sums, forbidden)
            if lost < best_lost or (lost == 0 and gain <= noise):
                continue
            # Changes that differ by rounding alone are ties.
            if lost > best_lost or gain > best_gain + noise:
                best_v, best_k, best_lost, best_gain = v, k, lost, gain
    return best_v, best_k


@inner
def _refresh(g: Any, room: Any, v: int, v_scores: Any, f_scores: Any, now: int) -> None:
    """Compute the sums of one variable, which is in the state now, afresh."""
    incident, sums, forbidden, joint, variable = g.incident, room.sums, room.forbidden, room.joint, g.variables[v]
    at, n_states, row = variable.table, g.variable_kinds[variable.template].entries, variable.neighbours
    for k in range(n_states):
        score = v_scores[at + k]
        sums[at + k] = score if score > -np.inf else 0.0
        forbidden[at + k] = 0 if score > -np.inf else 1
    for e in range(row, row + variable.degree):
        stride = incident[e].stride
        base = incident[e].table + joint[incident[e].factor] - now * stride
        for k in range(n_states):
            score = f_scores[base + k * stride]
            if score > -np.inf:
                sums[at + k] += score
            else:
                forbidden[at + k] += 1


@inner
def _change(g: Any, room: Any, s: int, v: int, state: int, f_scores: Any, labels: Any) -> None:
    """Put variable v into another state, and update the sums of its neighbours; its own stay what they are."""
    variables, factors, scope, incident, kinds, slots = (
        g.variables, g.factors, g.scope, g.incident, g.factor_kinds, g.slots,
    )  # fmt: skip
    sums, forbidden, joint, v0, f0 = (
        room.sums, room.forbidden, room.joint, g.structures[s].variables, g.structures[s].factors,
    )  # fmt: skip
    row, move = variables[v0 + v].neighbours, state - labels[v]
    for e in range(row, row + variables[v0 + v].degree):
        c, step = incident[e].factor, move * incident[e].stride
        t, members = factors[f0 + c].template, factors[f0 + c].neighbours
        for j in range(kinds[t].arity):
            u = scope[members + j]
            if u == v:
                continue
            slot = kinds[t].slots + j
            stride, at = slots[slot].stride, variables[v0 + u].table
            base = factors[f0 + c].table + joint[c] - labels[u] * stride
            for k in range(slots[slot].states):
                before, after = f_scores[base + k * stride], f_scores[base + k * stride + step]
                if before > -np.inf:
                    sums[at + k] -= before
                else:
                    forbidden[at + k] -= 1
                if after > -np.inf:
                    sums[at + k] += after
                else:
                    forbidden[at + k] += 1
        joint[c] += step
    labels[v] = state

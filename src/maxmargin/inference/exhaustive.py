"""Exhaustive search: every labeling of every example, for small graphs of any shape.

Labelings are visited in C order (the last variable changes fastest), depth first: level d fixes variable d, and
every factor belongs to the level of the last variable of its scope, where its joint state becomes known. At each
level

    partial(y_0 .. y_d) = partial(y_0 .. y_{d-1}) + scores_d(y_d) + sum_{c of level d} scores_c(y_c)

is a fresh sum of the scores that are known so far: nothing is subtracted, so no rounding builds up, and a forbidden
partial labeling (-inf) is left with all that lies below it. Probability mass travels the other way: a level's mass
is credited to its state and to its factors' joint states when the search leaves it, so a labeling costs about as
much as its last level.

Of labelings with the same (sum in the above order) score, the first in C order wins.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from maxmargin.errors import TooLargeError
from maxmargin.inference.contract import (
    MapResult,
    Marginals,
    check_scores,
    check_temperature,
    exact_result,
    once_per_structures,
    raise_infeasible,
)
from maxmargin.problems.factor_graphs import FactorGraphs, Scores


class Levels(NamedTuple):
    """The factors of each level: variable v of all structures' variables has factor[start[v]:start[v+1]]."""

    start: NDArray[np.int64]
    factor: NDArray[np.int32]


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
        a = graphs.arrays
        structure = graphs.structures[a.structure[m]]
        n_states = math.prod(graphs.variable_templates[t].n_states[0] for t in structure.variable_templates)
        shown = str(n_states) if n_states < 10**15 else f"about 10^{len(str(n_states)) - 1}"
        return f"Example {m} has {shown} joint states; exhaustive search tries at most {self.limit}."

    def maximise(self, graphs: FactorGraphs, scores: Scores) -> MapResult:
        """Find the best labeling of every example; the first in C order if several are best."""
        scores = self._check(graphs, scores)
        labels = np.empty(len(graphs.labels), np.int32)
        failed = _search(graphs.arrays, _levels(graphs), scores.variables, scores.factors, labels)
        if failed >= 0:
            raise_infeasible(graphs, scores, failed)
        return exact_result(graphs, scores, labels)

    def marginals(self, graphs: FactorGraphs, scores: Scores, temperature: float = 1.0) -> Marginals:
        """Sum over all labelings, relative to the best one."""
        temperature = check_temperature(temperature)
        best = self.maximise(graphs, scores).values
        scores = check_scores(graphs, scores)
        out = Marginals(np.zeros(len(scores.variables)), np.zeros(len(scores.factors)), np.empty(graphs.n_examples))
        _sum(graphs.arrays, _levels(graphs), scores.variables, scores.factors, best, temperature, *out)
        return out

    def _check(self, graphs: FactorGraphs, scores: Scores) -> Scores:
        refusal = self.refusal(graphs)
        if refusal is not None:
            raise TooLargeError(refusal)
        return check_scores(graphs, scores)


def joint_states(graphs: FactorGraphs) -> NDArray[np.float64]:
    """Number of labelings (M,) of each example; as floats, since they may be astronomical."""
    a = graphs.arrays
    return np.asarray(_joint_states(graphs)[a.structure])


@once_per_structures
def _joint_states(graphs: FactorGraphs) -> NDArray[np.float64]:
    a = graphs.arrays
    with np.errstate(over="ignore"):
        n_states = np.diff(a.vt_start)[a.v_template].astype(np.float64)
        return np.asarray(np.multiply.reduceat(n_states, a.local_variables[:-1]))


@once_per_structures
def _levels(graphs: FactorGraphs) -> Levels:
    a = graphs.arrays
    n_factors = np.diff(a.local_factors)
    if n_factors.sum() == 0:
        return Levels(np.zeros(len(a.v_template) + 1, np.int64), np.empty(0, np.int32))
    local = np.concatenate([np.arange(n) for n in n_factors])
    last = np.maximum.reduceat(a.scope, a.f_scope) + np.repeat(a.local_variables[:-1], n_factors)
    start = np.concatenate([[0], np.cumsum(np.bincount(last, minlength=len(a.v_template)))])
    return Levels(start.astype(np.int64), local[np.argsort(last, kind="stable")].astype(np.int32))


# ------------------------------------------------------------------------------------------------------- kernels


# The batch's many arrays are not handed down to helpers: where such a call is not inlined, it costs more than its work.


@njit(cache=True, nogil=True)
def _joint(scope: Any, slot: int, shape: Any, at: int, arity: int, d: int, choice: Any) -> Any:
    """Joint state of a factor with variable d at state 0 and the others as chosen; the stride of variable d."""
    joint, stride = 0, 1
    for j in range(arity):
        size = shape[at + j]
        joint *= size
        if scope[slot + j] == d:
            stride = 1
        else:
            joint += choice[scope[slot + j]]
            stride *= size
    return joint, stride


@njit(cache=True, nogil=True)
def _search(g: Any, levels: Any, v_scores: Any, f_scores: Any, labels: Any) -> int:
    """Best labeling of every example; the first example that has none, or -1."""
    partial, choice = np.empty(g.largest[0]), np.empty(g.largest[6], np.int64)
    for m in range(len(g.structure)):
        s = g.structure[m]
        v0, f0 = g.local_variables[s], g.local_factors[s]
        first, n = g.variables[m], g.variables[m + 1] - g.variables[m]
        best, value = -np.inf, 0.0
        d, entering = 0, True
        while d >= 0:
            t = g.v_template[v0 + d]
            n_states = g.vt_start[t + 1] - g.vt_start[t]
            if entering:
                # Scores of all states of variable d, given the choices for the variables before it.
                at = g.v_state[v0 + d]
                for k in range(n_states):
                    partial[at + k] = value + v_scores[g.states[m] + at + k]
                for q in range(levels.start[v0 + d], levels.start[v0 + d + 1]):
                    c = f0 + levels.factor[q]
                    t = g.f_template[c]
                    joint, stride = _joint(
                        g.scope, g.f_scope[c], g.ft_shape, g.ft_shape_start[t], g.ft_arity[t], d, choice
                    )
                    joint += g.tables[m] + g.f_table[c]
                    for k in range(n_states):
                        partial[at + k] += f_scores[joint + k * stride]
                choice[d] = -1
                entering = False
            choice[d] += 1
            if choice[d] == n_states:
                d -= 1
                continue
            value = partial[g.v_state[v0 + d] + choice[d]]
            if value == -np.inf:
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


@njit(cache=True, nogil=True)
def _sum(
    g: Any,
    levels: Any,
    v_scores: Any,
    f_scores: Any,
    best: Any,
    temperature: float,
    out_v: Any,
    out_f: Any,
    log_partition: Any,
) -> None:
    """Marginals of every example, from masses relative to its best score; out_v and out_f come in as zeros."""
    partial, choice, mass = np.empty(g.largest[0]), np.empty(g.largest[6], np.int64), np.zeros(g.largest[6])
    for m in range(len(g.structure)):
        s = g.structure[m]
        v0, f0 = g.local_variables[s], g.local_factors[s]
        n = g.variables[m + 1] - g.variables[m]
        value = 0.0
        d, entering = 0, True
        while True:
            t = g.v_template[v0 + d]
            n_states = g.vt_start[t + 1] - g.vt_start[t]
            if entering:
                # Scores of all states of variable d, given the choices for the variables before it.
                at = g.v_state[v0 + d]
                for k in range(n_states):
                    partial[at + k] = value + v_scores[g.states[m] + at + k]
                for q in range(levels.start[v0 + d], levels.start[v0 + d + 1]):
                    c = f0 + levels.factor[q]
                    t = g.f_template[c]
                    joint, stride = _joint(
                        g.scope, g.f_scope[c], g.ft_shape, g.ft_shape_start[t], g.ft_arity[t], d, choice
                    )
                    joint += g.tables[m] + g.f_table[c]
                    for k in range(n_states):
                        partial[at + k] += f_scores[joint + k * stride]
                choice[d] = -1
                mass[d] = 0.0
                entering = False
            choice[d] += 1
            if choice[d] < n_states:
                value = partial[g.v_state[v0 + d] + choice[d]]
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
            out_v[g.states[m] + g.v_state[v0 + d] + choice[d]] += p
            for q in range(levels.start[v0 + d], levels.start[v0 + d + 1]):
                c = f0 + levels.factor[q]
                t = g.f_template[c]
                joint, stride = _joint(g.scope, g.f_scope[c], g.ft_shape, g.ft_shape_start[t], g.ft_arity[t], d, choice)
                out_f[g.tables[m] + g.f_table[c] + joint + choice[d] * stride] += p
        for i in range(g.states[m], g.states[m + 1]):
            out_v[i] /= mass[0]
        for i in range(g.tables[m], g.tables[m + 1]):
            out_f[i] /= mass[0]
        # The best labeling's mass is exp of a rounding error rather than 1, which is as good.
        log_partition[m] = best[m] + temperature * np.log(mass[0])

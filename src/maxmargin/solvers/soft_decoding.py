"""A labeling and a bound for graphs that no exact engine can do: the soft solver's own reparametrisation, used to predict.

Block-coordinate descent on the messages (star updates, see soft_bounds.py) lowers the bound

    sum_i max theta_i + sum_c max theta_c   >=   max_y score(y)

and after each round the variables' best states are read off, improved by single changes until none helps, and kept if they are
the best labeling so far. A round ends the search when the labeling meets the bound: it is then optimal.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.inference.contract import MapResult
from maxmargin.kernels import inner, kernel
from maxmargin.problems.factor_graphs import FactorGraphs, Scores
from maxmargin.problems.layout import (
    F_TABLE,
    F_TEMPLATE,
    FACTORS,
    I_DELTA,
    I_FACTOR,
    I_STRIDE,
    K_SIZE,
    L_DELTAS,
    L_STATES,
    L_TABLES,
    S_FACTORS,
    S_VARIABLES,
    STATES,
    STRUCTURE,
    TABLES,
    V_DEGREE,
    V_INCIDENT,
    V_STATE,
    V_TEMPLATE,
    VARIABLES,
    joint_state,
)  # fmt: skip
from maxmargin.solvers.soft_bounds import star_round


def decode(graphs: FactorGraphs, scores: Scores, rounds: int = 30) -> MapResult:
    """Best labeling found for each example, its score, and an upper bound on the best score.

    Parameters
    ----------
    graphs : FactorGraphs
    scores : Scores
        As `graphs.scores(weights)` gives them.
    rounds : int
        Rounds of descent on the messages, at most.
    """
    labels = np.empty(int(graphs.example_variables[-1]), np.int32)
    bounds: NDArray[np.float64] = np.empty(graphs.n_examples)
    decode_examples(graphs.arrays, scores.variables, scores.factors, rounds, labels, bounds)
    values = graphs.labeling_scores(scores, labels)
    return MapResult(labels, values, np.maximum(bounds, values))


@kernel
def decode_examples(g: Any, v_scores: Any, f_scores: Any, rounds: int, labels: Any, bounds: Any) -> None:
    """Labels of all examples, concatenated, and their bounds."""
    largest = g.largest
    theta_f, delta, high = np.empty(largest[L_TABLES]), np.empty(largest[L_DELTAS]), np.empty(largest[L_DELTAS])
    theta_v, belief, shared = np.empty(largest[L_STATES]), np.empty(largest[L_STATES]), np.empty(largest[L_STATES])
    trial = np.empty(largest[L_STATES], np.int32)
    examples, structures, variables, factors = g.examples, g.structures, g.variables, g.factors
    v_kinds, f_kinds, incident, scope, slots = g.variable_kinds, g.factor_kinds, g.incident, g.scope, g.slots
    for m in range(len(examples) - 1):
        s, first, states, tables = (
            examples[m, STRUCTURE],
            examples[m, VARIABLES],
            examples[m, STATES],
            examples[m, TABLES],
        )
        v0, f0 = structures[s, S_VARIABLES], structures[s, S_FACTORS]
        n, n_factors = examples[m + 1, VARIABLES] - first, examples[m + 1, FACTORS] - examples[m, FACTORS]
        for k in range(examples[m + 1, STATES] - states):
            theta_v[k] = v_scores[states + k]
        for y in range(examples[m + 1, TABLES] - tables):
            theta_f[y] = f_scores[tables + y]
        delta[:] = 0.0
        lowest, most, before = np.inf, -np.inf, np.inf
        for v in range(n):
            labels[first + v] = 0
        for round_number in range(rounds + 1):
            bound = 0.0
            for c in range(f0, f0 + n_factors):
                best = -np.inf
                for y in range(factors[c, F_TABLE], factors[c, F_TABLE] + f_kinds[factors[c, F_TEMPLATE], K_SIZE]):
                    best = max(best, theta_f[y])
                bound += best
            for v in range(n):
                state, i0 = variables[v0 + v, V_STATE], variables[v0 + v, V_INCIDENT]
                best, trial[v] = -np.inf, 0
                for k in range(v_kinds[variables[v0 + v, V_TEMPLATE], K_SIZE]):
                    value = theta_v[state + k]
                    for e in range(i0, i0 + variables[v0 + v, V_DEGREE]):
                        value += delta[incident[e, I_DELTA] + k]
                    if value > best:
                        best, trial[v] = value, k
                bound += best
            lowest = min(lowest, bound)
            value = _improve(
                n, v0, f0, n_factors, states, tables, variables, factors, v_kinds, f_kinds, incident, scope, slots, v_scores,
                f_scores, trial, belief,
            )  # fmt: skip
            if value > most:
                most = value
                for v in range(n):
                    labels[first + v] = trial[v]
            # Done when the labeling meets the bound, or when the bound has stopped falling.
            if lowest - most <= 1e-12 * (1.0 + abs(most)) or before - bound <= 1e-9 * (1.0 + abs(bound)):
                break
            before = bound
            if round_number < rounds:
                star_round(v0, n, variables, v_kinds, incident, theta_v, theta_f, delta, high, shared)
        bounds[m] = lowest


@inner
def _improve(
    n: int, v0: int, f0: int, n_factors: int, states: int, tables: int, variables: Any, factors: Any, v_kinds: Any, f_kinds: Any,
    incident: Any, scope: Any, slots: Any, v_scores: Any, f_scores: Any, trial: Any, belief: Any,
) -> float:  # fmt: skip
    """Change single labels while that raises the score; returns the score."""
    changed = True
    sweeps = 0
    while changed and sweeps < 100:
        changed = False
        sweeps += 1
        for v in range(n):
            state, n_states = variables[v0 + v, V_STATE], v_kinds[variables[v0 + v, V_TEMPLATE], K_SIZE]
            for k in range(n_states):
                belief[k] = v_scores[states + state + k]
            now = trial[v]
            trial[v] = 0
            for e in range(variables[v0 + v, V_INCIDENT], variables[v0 + v, V_INCIDENT] + variables[v0 + v, V_DEGREE]):
                c = f0 + incident[e, I_FACTOR]
                base = tables + factors[c, F_TABLE] + joint_state(c, 0, factors, scope, f_kinds, slots, trial)
                for k in range(n_states):
                    belief[k] += f_scores[base + k * incident[e, I_STRIDE]]
            best = now
            for k in range(n_states):
                if belief[k] > belief[best]:
                    best = k
            trial[v] = best
            changed = changed or best != now
    total = 0.0
    for v in range(n):
        total += v_scores[states + variables[v0 + v, V_STATE] + trial[v]]
    for c in range(f0, f0 + n_factors):
        total += f_scores[tables + factors[c, F_TABLE] + joint_state(c, 0, factors, scope, f_kinds, slots, trial)]
    return total

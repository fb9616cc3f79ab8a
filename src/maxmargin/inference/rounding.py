"""From a relaxation to a labeling: rounding schemes, and improvement by single changes.

A variable whose marginals are 0 and 1 keeps what they say; the others are *ambiguous*. Finley and Joachims (2008) train
with relaxed solutions and have to round them to predict. The schemes:

- ``"half-up"``: the state of largest marginal, of several the highest one. A half of a binary variable is rounded to 1.
- ``"unary"``: of the states with a marginal above 0, the one of largest own score, of several the lowest one.
- ``"random"``: coins, with the marginals as odds; the same every time for the same batch.
- ``"fraction"``: nothing is decided. Labels are those of ``"half-up"``, but the open ones count one half where losses are measured
  (`MultiLabelSVM.score`, ``maxmargin evaluate``), as in the column LProg of Finley and Joachims' tables.
- ``"repair"``, greedy repair: the state of largest marginal, of several the one of largest own score; then single
  variables are changed for as long as that raises the score. For half-integral marginals that start is ``"unary"``.

Only ``"repair"`` looks at factors; the others leave labels as rounded. An own score is that of the variable alone,
without factors of one variable. On pairs of binary variables no change of an unambiguous variable can raise the score,
since the states of the relaxation are at least as good as any others whatever the rest does (persistency); so it is the
same there whether all variables may change or only ambiguous ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.errors import OptionError
from maxmargin.jit import kernel
from maxmargin.problems.factor_graphs import FactorGraphs, Scores
from maxmargin.problems.layout import joint_state

HALF_UP, UNARY, REPAIR = range(3)
#: All rounding schemes by name; coins are thrown afterwards.
SCHEMES = {"half-up": HALF_UP, "unary": UNARY, "repair": REPAIR, "random": HALF_UP, "fraction": HALF_UP}
#: Marginals this close to each other are equal.
TOLERANCE = 1e-9


def check_rounding(name: str) -> str:
    """The name of a rounding scheme, or a sentence."""
    if name not in SCHEMES:
        known = ", ".join(f'"{one}"' for one in SCHEMES)
        raise OptionError(f"There is no rounding {name!r}; known names are {known}.")
    return name


def round_marginals(
    graphs: FactorGraphs, scores: Scores, marginals: NDArray[np.float64], rounding: str
) -> NDArray[np.int32]:
    """A labeling of every example from marginals in *states* coordinates."""
    starts = graphs.state_starts()
    n_states = np.diff(np.append(starts, len(marginals)))
    if rounding == "unary":
        candidate = marginals > TOLERANCE
    else:
        candidate = marginals >= np.repeat(np.maximum.reduceat(marginals, starts), n_states) - TOLERANCE
    if rounding == "random":
        return throw_coins(marginals, starts)
    if rounding in ("half-up", "fraction"):
        chosen = np.flatnonzero(candidate)
        chosen = chosen[np.searchsorted(chosen, starts + n_states) - 1]
    else:
        own = np.where(candidate, scores.variables, -np.inf)
        chosen = np.flatnonzero(candidate & (own == np.repeat(np.maximum.reduceat(own, starts), n_states)))
        chosen = chosen[np.searchsorted(chosen, starts)]
    labels = (chosen - starts).astype(np.int32)
    if rounding == "repair":
        improve(graphs.arrays, scores.variables, scores.factors, labels)
    return labels


def throw_coins(marginals: NDArray[np.float64], starts: NDArray[np.int64]) -> NDArray[np.int32]:
    """A state of every variable, with its marginals as odds."""
    ends = np.append(starts[1:], len(marginals))
    below = np.cumsum(marginals)
    base = np.where(starts > 0, below[starts - 1], 0.0)
    drawn = base + np.random.default_rng(0).random(len(starts)) * (below[ends - 1] - base)
    chosen = np.clip(np.searchsorted(below, drawn, side="right"), starts, ends - 1)
    # Sums of many marginals round: a state of marginal 0 is never drawn.
    wrong = marginals[chosen] <= 0.0
    largest = np.flatnonzero(marginals >= np.repeat(np.maximum.reduceat(marginals, starts), ends - starts))
    chosen[wrong] = largest[np.searchsorted(largest, starts)][wrong]
    return np.asarray(chosen - starts, np.int32)


# ------------------------------------------------------------------------------------------------------- kernels


@kernel
def improve(g: Any, v_scores: Any, f_scores: Any, labels: Any) -> None:
    """Give single variables their best state, given the others, until no change raises the score."""
    examples, structures, variables, factors = g.examples, g.structures, g.variables, g.factors
    scope, incident, v_kinds, kinds, slots = g.scope, g.incident, g.variable_kinds, g.factor_kinds, g.slots
    local = np.empty(g.largest.states)
    for m in range(len(examples) - 1):
        s, first, states, tables = examples[m].structure, examples[m].variables, examples[m].states, examples[m].tables
        v0, f0 = structures[s].variables, structures[s].factors
        n = examples[m + 1].variables - first
        # Round and round, until n variables in a row have stayed.
        v, stayed = 0, 0
        while stayed < n:
            n_states, at = v_kinds[variables[v0 + v].template].entries, states + variables[v0 + v].table
            size, now = 0.0, labels[first + v]
            for k in range(n_states):
                local[k] = v_scores[at + k]
                if local[k] > -np.inf:
                    size += abs(local[k])
            q0 = variables[v0 + v].neighbours
            for q in range(q0, q0 + variables[v0 + v].degree):
                c, stride = f0 + incident[q].factor, incident[q].stride
                joint = joint_state(c, first, factors, scope, kinds, slots, labels) - now * stride
                for k in range(n_states):
                    score = f_scores[tables + incident[q].table + joint + k * stride]
                    local[k] += score
                    if score > -np.inf:
                        size += abs(score)
            best = now
            for k in range(n_states):
                if local[k] > local[best]:
                    best = k
            # A gain that rounding could have made might be undone later, and again.
            if best != now and (local[now] == -np.inf or local[best] - local[now] > 1e-12 * size):
                labels[first + v] = best
                stayed = 0
            stayed += 1
            v = v + 1 if v + 1 < n else 0

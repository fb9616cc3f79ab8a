"""Descent on the messages of one example, and the bound that they give.

For scores theta and any messages delta,

    sum_i max [theta_i + sum_c delta_ci] + sum_c max [theta_c - sum_i delta_ci]

bounds the best score of a labeling from above. A star update minimises it exactly over all messages to one variable: each of its
factors hands over its max-marginal, and the sum is shared out equally. With a temperature eps every max is a soft-max,
eps log sum exp(. / eps), and the update keeps its form. Structured factors have a round of their own (structured_bounds.py).

The kernels work in a `Room` (state.py): `theta_v` has the variables' own scores, `theta_f` the factors' scores reparametrised by
`delta`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from maxmargin.jit import inner
from maxmargin.problems.layout import P_STATE_I, GraphArrays
from maxmargin.problems.tables import slot_add, slot_max
from maxmargin.problems.templates import TABLE
from maxmargin.solvers.soft.structured_bounds import factor_max, factor_round

#: A message that no score outweighs; finite, because infinities would meet and make NaN.
_FAR = 1e30


def has_only_pairs(arrays: GraphArrays) -> bool:
    """Whether all factors are pairs of binary variables and nothing is forbidden, which has a faster round.

    Differences of messages cannot express a forbidden state.
    """
    return bool((arrays.pairs[:, P_STATE_I] >= 0).all()) and all(
        np.isfinite(fixed).all() for fixed in (arrays.variable_fixed, arrays.variable_scores)
    )


# ------------------------------------------------------------------------------------------------------- kernels


@inner
def take_out(g: Any, room: Any, c: int) -> None:
    """Take its messages out of the scores of factor c."""
    slots, delta, theta_f, t = g.slots, room.delta, room.theta_f, g.factors[c].template
    tab, here, slot0 = g.factors[c].table, g.factors[c].delta, g.factor_kinds[t].slots
    for z in range(slot0, slot0 + g.factors[c].degree):
        slot_add(
            theta_f, tab, slots[z].outer, slots[z].states, slots[z].stride, delta, here + slots[z].delta, -1.0
        )  # fmt: skip


@inner
def bound_of_messages(
    g: Any, room: Any, m: int, rounds: int, only_pairs: bool, value: float, held: Any = None
) -> float:
    """Improve the messages of example m by some rounds, and add the maxima to `value`."""
    examples, variables, factors, incident = g.examples, g.variables, g.factors, g.incident
    v_kinds, f_kinds, theta_v, theta_f, delta = g.variable_kinds, g.factor_kinds, room.theta_v, room.theta_f, room.delta
    s = examples[m].structure
    v0, n = g.structures[s].variables, examples[m + 1].variables - examples[m].variables
    f0, n_factors = g.structures[s].factors, examples[m + 1].factors - examples[m].factors
    for _ in range(rounds):
        message_round(g, room, m, 0.0, only_pairs)
        if held is not None:
            for r in range(held.first[s], held.first[s + 1]):
                factor_round(g, room, v0, f0 + held.factors[r].factor)
    if held is not None:
        for r in range(held.first[s], held.first[s + 1]):
            value += factor_max(g, room, v0, f0 + held.factors[r].factor)
    for c in range(f0, f0 + n_factors):
        tab, t, most = factors[c].table, factors[c].template, -np.inf
        if held is not None and f_kinds[t].kind != TABLE:
            continue
        for y in range(tab, tab + f_kinds[t].entries):
            most = max(most, theta_f[y])
        value += most
    for v in range(v0, v0 + n):
        state, i0, most = variables[v].table, variables[v].neighbours, -np.inf
        for k in range(v_kinds[variables[v].template].entries):
            belief = theta_v[state + k]
            for e in range(i0, i0 + variables[v].degree):
                belief += delta[incident[e].delta + k]
            most = max(most, belief)
        value += most
    return value


@inner
def message_round(g: Any, room: Any, m: int, eps: float, only_pairs: bool) -> None:
    """A star update for each variable of example m in turn."""
    v0 = g.structures[g.examples[m].structure].variables
    end = v0 + g.examples[m + 1].variables - g.examples[m].variables
    if only_pairs:
        _pair_star_round(g, room, v0, end, eps)
    else:
        _star_round(g, room, v0, end, eps)


@inner
def _star_round(g: Any, room: Any, v0: int, end: int, eps: float) -> None:
    """Star updates, exact; messages of structured factors, whose slots have no stride, stay as they are."""
    variables, kinds, incident = g.variables, g.variable_kinds, g.incident
    theta_v, theta_f, delta, high, shared = room.theta_v, room.theta_f, room.delta, room.high, room.shared
    for v in range(v0, end):
        i0 = variables[v].neighbours
        i1 = i0 + variables[v].degree
        if i0 == i1:
            continue
        n_states, state = kinds[variables[v].template].entries, variables[v].table
        for k in range(n_states):
            shared[k] = theta_v[state + k]
        n_moving = 0
        for e in range(i0, i1):
            to = incident[e].delta
            if incident[e].stride == 0:
                for k in range(n_states):
                    shared[k] += delta[to + k]
                continue
            n_moving += 1
            slot_max(theta_f, incident[e].table, incident[e].outer, n_states, incident[e].stride, high, to)
            if eps > 0.0:
                _soften(theta_f, incident[e].table, incident[e].outer, n_states, incident[e].stride, eps, high, to)
            for k in range(n_states):
                high[to + k] += delta[to + k]
                shared[k] += high[to + k]
        share = 1.0 / (n_moving + 1)
        for e in range(i0, i1):
            to = incident[e].delta
            if incident[e].stride == 0:
                continue
            for k in range(n_states):
                if shared[k] != -np.inf:
                    new = high[to + k] - shared[k] * share
                elif high[to + k] == -np.inf:
                    # The factor forbids this state of the variable altogether: the message may be as low as one likes.
                    new = -_FAR
                else:
                    # The state is forbidden elsewhere: here it may be made as bad as one likes, short of outweighing that.
                    new = 0.5 * _FAR * share
                high[to + k] = delta[to + k] - new
                delta[to + k] = new
            slot_add(theta_f, incident[e].table, incident[e].outer, n_states, incident[e].stride, high, to, 1.0)


@inner
def _pair_star_round(g: Any, room: Any, v0: int, end: int, eps: float) -> None:
    """The same where all factors are pairs of binary variables: only delta(1) - delta(0) matters, so delta(0) stays."""
    variables, incident = g.variables, g.incident
    theta_v, theta_f, delta, high = room.theta_v, room.theta_f, room.delta, room.high
    for v in range(v0, end):
        i0, state = variables[v].neighbours, variables[v].table
        i1 = i0 + variables[v].degree
        shared = theta_v[state + 1] - theta_v[state]
        for e in range(i0, i1):
            at, stride, to = incident[e].table, incident[e].stride, incident[e].delta
            rise = _soft_max(theta_f[at + stride], theta_f[at + 3], eps)
            rise -= _soft_max(theta_f[at], theta_f[at + 3 - stride], eps)
            high[to] = rise + delta[to + 1] - delta[to]
            shared += high[to]
        share = shared / (i1 - i0 + 1)
        for e in range(i0, i1):
            at, stride, to = incident[e].table, incident[e].stride, incident[e].delta
            new = high[to] - share + delta[to]
            theta_f[at + stride] += delta[to + 1] - new
            theta_f[at + 3] += delta[to + 1] - new
            delta[to + 1] = new


@inner
def _soft_max(a: float, b: float, eps: float) -> float:
    """Return eps log(exp(a / eps) + exp(b / eps)), or the max if eps is 0."""
    most = max(a, b)
    if eps > 0.0 and abs(a - b) < 40.0 * eps:
        most += eps * math.log1p(math.exp(-abs(a - b) / eps))
    return most


@inner
def _soften(table: Any, at: int, outer: int, n_states: int, stride: int, eps: float, out: Any, to: int) -> None:
    """Max-marginals of a slot (tables.py) become soft: eps log sum exp(entry / eps)."""
    for k in range(n_states):
        most, total = out[to + k], 0.0
        if outer * stride == 1 or most == -np.inf:
            continue
        for o in range(outer):
            y = at + (o * n_states + k) * stride
            for i in range(stride):
                total += exp_below(table[y + i] - most, eps)
        if total > 1.0:
            out[to + k] = most + eps * math.log(total)


@inner
def exp_below(x: float, eps: float) -> float:
    """exp(x / eps) for x of at most 0, and 0 where it is lost in a sum that 1 is part of: most states are far from the best."""
    x /= eps
    return 1.0 if x == 0.0 else math.exp(x) if x > -40.0 else 0.0

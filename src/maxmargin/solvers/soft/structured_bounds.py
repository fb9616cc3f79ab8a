"""Structured factors in the bounds of `SoftBCFW` (structured.py, bounds.py).

Above, a factor's maximum under any messages is its oracle's. `factor_round` improves all messages of one factor at once: with b_i
the beliefs of its variables without it, each gets an equal share of the factor's max-marginals,

    delta_ci(y_i) = 1/n max_{y: y_i} [ theta . F(y) + sum_j b_j(y_j) ] - b_i(y_i)

which is exact where the graph is one factor and its variables, and halves the passes of counts with learned weights.

Below, (F_c, mu_c) is a mixture of labelings, so it is kept, and the variables take their marginals from it (`agreeing`); tables are
then repaired onto those as ever. A variable in two structured factors has two such marginals: unless they agree to 1e-12, its
example counts with its own labels, which is true but leaves the gap open.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maxmargin.jit import inner, kernel
from maxmargin.problems.structured import (
    structured_max,
    structured_max_marginals,
    structured_score,
    structured_statistics,
)

#: Beliefs as far as this from 0 are of states that some factor forbids.
_DEAD = 1e28


@inner
def read_messages(g: Any, held: Any, dual: Any, room: Any, m: int, r: int, inverse: float) -> tuple[float, float]:
    """Messages nu + (mu_c - mu_i) / rho of a factor, at its place in delta; returns the score of the truth and |delta|^2."""
    example, variables, scope, kinds, slots, truth = (
        g.examples[m], g.variables, g.scope, g.factor_kinds, g.slots, g.labels,
    )  # fmt: skip
    mu, nu, inside, delta, labels = dual.mu, dual.nu, dual.inside, room.delta, room.structured.labels
    v0, f0 = g.structures[example.structure].variables, g.structures[example.structure].factors
    factor, here = g.factors[f0 + held.factors[r].factor], held.start[m].state + held.factors[r].state
    t, at, to, msg = factor.template, factor.neighbours, factor.delta, example.messages + factor.message
    square = 0.0
    for j in range(kinds[t].arity):
        z = slots[kinds[t].slots + j].delta
        state = example.states + variables[v0 + scope[at + j]].table
        labels[j] = truth[example.variables + scope[at + j]]
        for k in range(slots[kinds[t].slots + j].states):
            delta[to + z + k] = (inside[here + z + k] - mu[state + k]) * inverse
            if k > 0:
                delta[to + z + k] += nu[msg + z - j + k - 1]
            square += delta[to + z + k] * delta[to + z + k]
    return (
        structured_score(t, kinds, slots, g.structured, room.theta_f, factor.table, labels, room.structured.work),
        square,
    )


@inner
def _beliefs_without(g: Any, room: Any, v0: int, c: int) -> None:
    """The beliefs of a factor's variables but for its own messages; -inf where a state is forbidden elsewhere."""
    variables, scope, kinds, slots, incident = g.variables, g.scope, g.factor_kinds, g.slots, g.incident
    theta_v, delta, unary = room.theta_v, room.delta, room.structured.unary
    t, at, to = g.factors[c].template, g.factors[c].neighbours, g.factors[c].delta
    for j in range(kinds[t].arity):
        z, v = slots[kinds[t].slots + j].delta, v0 + scope[at + j]
        for k in range(slots[kinds[t].slots + j].states):
            belief, dead = theta_v[variables[v].table + k], False
            for e in range(variables[v].neighbours, variables[v].neighbours + variables[v].degree):
                if incident[e].delta != to + z:
                    belief += delta[incident[e].delta + k]
                    dead = dead or abs(delta[incident[e].delta + k]) > _DEAD
            unary[z + k] = -np.inf if dead else belief


@inner
def factor_round(g: Any, room: Any, v0: int, c: int) -> None:
    """Minimise the bound exactly over all messages of one factor."""
    kinds, slots, delta, own = g.factor_kinds, g.slots, room.delta, room.structured
    unary, most, t, to = own.unary, own.most, g.factors[c].template, g.factors[c].delta
    n = kinds[t].arity
    _beliefs_without(g, room, v0, c)
    structured_max_marginals(
        t, -1, kinds, slots, g.structured, unary, room.theta_f, g.factors[c].table, most, own.work, own.order, own.labels
    )  # fmt: skip
    for j in range(n):
        z = slots[kinds[t].slots + j].delta
        end = z + slots[kinds[t].slots + j].states
        least = np.inf
        for i in range(z, end):
            if most[i] > -np.inf:
                least = min(least, most[i])
        for i in range(z, end):
            # A state that this factor forbids altogether need only not be the best; one that is forbidden elsewhere never is.
            if unary[i] > -np.inf:
                delta[to + i] = (most[i] if most[i] > -np.inf else least) / n - unary[i]


@inner
def factor_max(g: Any, room: Any, v0: int, c: int) -> float:
    """max_y theta . F(y) - sum_i delta_ci(y_i), over the labelings that the variables allow."""
    kinds, slots, delta, own, t = g.factor_kinds, g.slots, room.delta, room.structured, g.factors[c].template
    unary, to, last = own.unary, g.factors[c].delta, kinds[t].slots + kinds[t].arity - 1
    _beliefs_without(g, room, v0, c)
    for i in range(slots[last].delta + slots[last].states):
        if unary[i] > -np.inf:
            unary[i] = -delta[to + i]
    return structured_max(  # type: ignore[no-any-return]
        t, kinds, slots, g.structured, unary, room.theta_f, g.factors[c].table, own.labels, own.work, own.order
    )


@kernel
def agreeing(g: Any, held: Any, dual: Any, out: Any, usable: Any) -> None:
    """Variables' marginals as the structured factors have them, into out; whether those agree for an example, into usable."""
    examples, structures, variables, factors, scope, kinds, slots = (
        g.examples, g.structures, g.variables, g.factors, g.scope, g.factor_kinds, g.slots,
    )  # fmt: skip
    first, rows, start, inside = held.first, held.factors, held.start, dual.inside
    given = np.empty(g.largest.variables, np.bool_)
    out[:] = dual.mu
    usable[:] = True
    for m in range(len(examples) - 1):
        s = examples[m].structure
        given[:] = False
        for r in range(first[s], first[s + 1]):
            c = structures[s].factors + rows[r].factor
            t, at, here = factors[c].template, factors[c].neighbours, start[m].state + rows[r].state
            for j in range(kinds[t].arity):
                v, z = scope[at + j], here + slots[kinds[t].slots + j].delta
                state = examples[m].states + variables[structures[s].variables + v].table
                for k in range(slots[kinds[t].slots + j].states):
                    if given[v] and abs(out[state + k] - inside[z + k]) > 1e-12:
                        usable[m] = False
                    # Rounding may leave a state without mass a hair below 0.
                    out[state + k] = max(inside[z + k], 0.0)
                given[v] = True


@inner
def disagreement_of(g: Any, held: Any, dual: Any, m: int, r: int) -> float:
    """|mu_c(y_i) - mu_i(y_i)|^2 summed over the variables and states of a structured factor."""
    example, variables, scope, kinds, slots, mu, inside = (
        g.examples[m], g.variables, g.scope, g.factor_kinds, g.slots, dual.mu, dual.inside,
    )  # fmt: skip
    v0, f0 = g.structures[example.structure].variables, g.structures[example.structure].factors
    factor, here = g.factors[f0 + held.factors[r].factor], held.start[m].state + held.factors[r].state
    slot0, at = kinds[factor.template].slots, factor.neighbours
    square = 0.0
    for j in range(factor.degree):
        z = here + slots[slot0 + j].delta
        state = example.states + variables[v0 + scope[at + j]].table
        for k in range(slots[slot0 + j].states):
            square += (inside[z + k] - mu[state + k]) ** 2
    return square


@inner
def change_of_statistics(batch: Any, dual: Any, room: Any, m: int, c: int, place: int) -> float:
    """Add F(truth) - F_c to moved[place + block]; returns the fixed score of F_c minus that of the truth."""
    g, side, table, moved = batch.graphs, batch.factors, dual.table, room.moved
    kinds, blocks, fixed, scores, scope, truth = (
        side.kinds, side.block, side.fixed, side.scores, g.scope, g.labels,
    )  # fmt: skip
    labels, spare = room.structured.labels, room.structured.spare
    t, at, first, tab = (
        side.members[c].template, side.members[c].neighbours, g.examples[m].variables,
        g.examples[m].tables + side.members[c].table,
    )  # fmt: skip
    start = kinds[t].start
    for j in range(kinds[t].arity):
        labels[j] = truth[first + scope[at + j]]
    structured_statistics(t, kinds, g.slots, g.structured, labels, spare, 0)
    linear = 0.0
    for p in range(kinds[t].entries):
        d = table[tab + p] - spare[p]
        if d != 0.0:
            linear += d * (fixed[start + p] + (scores[tab + p] if len(scores) > 0 else 0.0))
            if blocks[start + p] >= 0:
                moved[place + blocks[start + p]] -= d
    return linear

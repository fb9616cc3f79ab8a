"""Algorithm 1 of the paper, as printed: random blocks, plain Frank-Wolfe steps, fixed rho.

O. Meshi, N. Srebro and T. Hazan, Efficient Training of Structured SVMs via Soft Constraints, AISTATS 2015, algorithm 1.

A block is a variable or a factor of one example, drawn uniformly. With dir = s - mu_a, s the vertex of the best (joint) state,

    gamma = clip( theta_a . dir / ( |Phi dir|^2 / (lam M) + kappa / rho ), 0, 1 )          lines 7 and 12, mended
    kappa = N_i |dir|^2 for a variable,  sum_{i in c} |A_ci dir|^2 for a factor
    mu_a <- mu_a + gamma dir,      w <- w - gamma / (lam M) Phi dir                         lines 14 and 15

Line 12 of the paper has a minus where the plus stands here, and both step sizes hide factors of M. The messages
delta = (mu_c - mu_i) / rho are read off the marginals when a block needs them.

Of a structured factor, which has too many joint states for mu_c, only what the objective sees of mu_c is kept (appendix D): its
marginals A_ci mu_c and its mean statistics, whose change is Phi dir. The vertex is that of its own best labeling, and the step is
the same (`frank_wolfe_step` in structured.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maxmargin.jit import inner, kernel
from maxmargin.problems.features import add_row, score_row
from maxmargin.problems.tables import slot_add, slot_sum
from maxmargin.problems.templates import TABLE
from maxmargin.solvers.soft.structured import frank_wolfe_step


@kernel
def random_blocks(
    batch: Any, w_v: Any, w_f: Any, dual: Any, chosen_examples: Any, chosen_blocks: Any, rules: Any, room: Any, held: Any = None
) -> None:  # fmt: skip
    """One Frank-Wolfe step on each drawn block; block a of an example is variable a, or factor a - n.

    `held` says where structured factors are, if there are any.
    """
    g, side, other, moved, rho = batch.graphs, batch.variables, batch.factors, room.moved, rules.rho
    examples, weight, kinds = g.examples, g.weight, batch.factors.kinds
    for draw in range(len(chosen_examples)):
        m, a = chosen_examples[draw], chosen_blocks[draw]
        unit, s = weight[m] / (rules.lam * len(weight)), examples[m].structure
        if unit == 0.0:
            continue
        n = examples[m + 1].variables - examples[m].variables
        if a < n:
            v = side.first_member[s] + a
            row, first, last = _score_member(side, m, s, a, w_v, room.z)
            _variable_scores(g, dual, room, m, v, first, rho, held)
            own = unit * side.features.squared_norms[row]
            gamma = _step(g, side, dual.mu, room, m, v, own, rho, False)
            if gamma > 0.0:
                add_row(side.features, row, w_v, first, last, moved, 0, -gamma * unit)
        else:
            c = other.first_member[s] + a - n
            row, first, last = _score_member(other, m, s, a - n, w_f, room.z)
            own, gamma = unit * other.features.squared_norms[row], 0.0
            if kinds[other.members[c].template].kind == TABLE:
                _factor_scores(g, dual, room, m, c, first, rho)
                gamma = _step(g, other, dual.table, room, m, c, own, rho, True)
            if held is not None:
                for r in range(held.first[s], held.first[s + 1]):
                    if held.factors[r].factor == a - n:
                        gamma = frank_wolfe_step(batch, held, dual, rules, room, m, r, first, own)
            if gamma > 0.0:
                add_row(other.features, row, w_f, first, last, moved, 0, -gamma * unit)


@inner
def _score_member(side: Any, m: int, s: int, a: int, weights: Any, z: Any) -> tuple[int, int, int]:
    """Learned scores of the blocks of member a of example m, of structure s; returns its row and its range of blocks."""
    groups, kind, q = side.groups, side.kinds[side.members[side.first_member[s] + a].template], side.first_group[s]
    while groups[q].last <= a:
        q += 1
    row = side.first_row[m] + groups[q].row
    first, last = _block_range(side.block, kind.start, kind.entries)
    score_row(side.features, row, weights, first, last, z, 0)
    return row, first, last


@inner
def _variable_scores(g: Any, dual: Any, room: Any, m: int, v: int, first: int, rho: float, held: Any) -> None:
    """theta_i = loss + w.phi_i + sum_c delta_ci, into value."""
    variable, incident, blocks, scores, mu = g.variables[v], g.incident, g.variable_block, g.variable_scores, dual.mu
    value, delta, z, kind = room.value, room.delta, room.z, g.variable_kinds[variable.template]
    start, size, degree, edge = kind.start, kind.entries, variable.degree, variable.neighbours
    here = g.examples[m].states + variable.table
    for k in range(size):
        delta[k] = -degree * mu[here + k]
    for e in range(edge, edge + degree):
        tab = g.examples[m].tables + incident[e].table
        if incident[e].stride > 0:
            slot_sum(dual.table, tab, incident[e].outer, size, incident[e].stride, delta, 0)
    if held is not None:
        s, inside = g.examples[m].structure, dual.inside
        for e in range(edge, edge + degree):
            c = g.structures[s].factors + incident[e].factor
            for r in range(held.first[s], held.first[s + 1]):
                if held.factors[r].factor == incident[e].factor:
                    at = held.start[m].state + held.factors[r].state + incident[e].delta - g.factors[c].delta
                    for k in range(size):
                        delta[k] += inside[at + k]
    for k in range(size):
        b = blocks[start + k]
        learned = z[b - first] if b >= 0 else 0.0
        value[k] = g.variable_fixed[start + k] + g.losses[here + k] + delta[k] / rho + learned
        if len(scores) > 0:
            value[k] += scores[here + k]


@inner
def _factor_scores(g: Any, dual: Any, room: Any, m: int, c: int, first: int, rho: float) -> None:
    """theta_c = w.phi_c - sum_i delta_ci, into value."""
    factor, blocks, scores, mu, value, delta, z = (
        g.factors[c], g.factor_block, g.factor_scores, dual.mu, room.value, room.delta, room.z,
    )  # fmt: skip
    kind, at, here = g.factor_kinds[factor.template], factor.neighbours, g.examples[m].tables + factor.table
    start, v0 = kind.start, g.structures[g.examples[m].structure].variables
    for y in range(kind.entries):
        b = blocks[start + y]
        value[y] = g.factor_fixed[start + y] + (z[b - first] if b >= 0 else 0.0)
        if len(scores) > 0:
            value[y] += scores[here + y]
    for j in range(kind.arity):
        slot = g.slots[kind.slots + j]
        state = g.examples[m].states + g.variables[v0 + g.scope[at + j]].table
        for k in range(slot.states):
            delta[k] = -mu[state + k]
        slot_sum(dual.table, here, slot.outer, slot.states, slot.stride, delta, 0)
        slot_add(value, 0, slot.outer, slot.states, slot.stride, delta, 0, -1.0 / rho)


@inner
def _step(
    g: Any, side: Any, marginal: Any, room: Any, m: int, member: int, own: float, rho: float, is_factor: bool
) -> float:
    """Move a block towards the vertex of its best state; returns how far, with the direction's blocks in `moved`."""
    kind, slots, blocks, value, delta, moved = (
        side.kinds[side.members[member].template], g.slots, side.block, room.value, room.delta, room.moved,
    )  # fmt: skip
    here, start, size = side.first_score[m] + side.members[member].table, kind.start, kind.entries
    first, last = _block_range(blocks, start, size)
    best, high, ascent, curvature = 0, -np.inf, 0.0, 0.0
    for y in range(size):
        if value[y] > high:
            best, high = y, value[y]
    for y in range(size):
        if marginal[here + y] > 0.0:
            ascent += marginal[here + y] * (high - value[y])
    if ascent <= 0.0:
        return 0.0
    for b in range(last - first):
        moved[b] = 0.0
    for y in range(size):
        value[y] = (1.0 if y == best else 0.0) - marginal[here + y]  # the direction, from here on
        if blocks[start + y] >= 0:
            moved[blocks[start + y] - first] += value[y]
    for b in range(last - first):
        curvature += own * moved[b] * moved[b]
    if is_factor:
        for j in range(kind.arity):
            slot = slots[kind.slots + j]
            for k in range(slot.states):
                delta[k] = 0.0
            slot_sum(value, 0, slot.outer, slot.states, slot.stride, delta, 0)
            for k in range(slot.states):
                curvature += delta[k] * delta[k] / rho
    else:
        for k in range(size):
            curvature += side.members[member].degree / rho * value[k] * value[k]
    gamma = min(1.0, ascent / curvature) if curvature > 0.0 else 1.0
    for y in range(size):
        marginal[here + y] += gamma * value[y]
    return gamma


@inner
def _block_range(blocks: Any, start: int, size: int) -> tuple[int, int]:
    """First and last + 1 of the blocks that a template's states use; an empty range if none does."""
    first, last = -1, -1
    for y in range(start, start + size):
        b = blocks[y]
        if b >= 0:
            first = b if first < 0 or b < first else first
            last = max(last, b)
    return (first, last + 1) if first >= 0 else (0, 0)

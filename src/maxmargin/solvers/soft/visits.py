"""Example visits: the default inner loop of `SoftBCFW`.

One visit takes one example and improves all of its blocks in its own coordinates. For multipliers nu and marginals mu,

    delta_ci = nu_ci + (mu_c(y_i) - mu_i(y_i)) / rho                     agreement messages
    theta_c  = w.phi_c - sum_i delta_ci                                  reparametrised score of a factor c
    theta_i  = loss_i + w.phi_i + sum_c delta_ci                         reparametrised score of a variable i

and a sweep is: for each factor, pairwise Frank-Wolfe steps (mass from its worst active joint state to its best, exact line
search); then for each variable, the exact maximum over its simplex, which is a projection because the block's quadratic is
diagonal. Structured factors have steps of their own (structured.py). The example's features are scored once for the visit
and the accumulated change of the weights is written once, whenever the example's blocks share one feature row; otherwise once per
group and sweep.

With ``smoothing`` eps, maxima are smooth (section 7 of the paper, third extension): each block's part of the dual loses
eps/2 |mu_a|^2, which adds eps to its curvature and -eps mu_a to its scores.

For a pair of binary variables, to_i and to_j below are delta(1) - delta(0), all that matters of a message.

The multipliers move at the start of a visit, by the disagreement that the last visit left: nu <- delta (section 7,
second extension). Each visit reports two quantities, both in units of the task loss:

    block gap      sum_a max_s theta_a.(s - mu_a)       how far the blocks are from their optimum
    disagreement   sum |delta| |mu_c(y_i) - mu_i(y_i)|  what agreement would still cost
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.jit import inner, kernel
from maxmargin.problems.factor_graphs import FactorGraphs
from maxmargin.problems.features import add_row, score_row
from maxmargin.problems.layout import P_BLOCK, P_STATE_I, P_STATE_J
from maxmargin.problems.tables import slot_add
from maxmargin.problems.templates import TABLE
from maxmargin.solvers.soft.pairs import best_and_worst
from maxmargin.solvers.soft.simplex import best_mass, project_block
from maxmargin.solvers.soft.structured import add_messages, sweep_structured


def distinct_blocks(problem: FactorGraphs) -> NDArray[np.bool_]:
    """Of each factor template whether no two of its joint states share a block."""
    used = [one.blocks[one.blocks >= 0] for one in problem.factor_templates]
    return np.array([len(np.unique(blocks)) == len(blocks) for blocks in used], bool)


# ------------------------------------------------------------------------------------------------------- kernels


@kernel
def visit_examples(
    batch: Any, w_v: Any, w_f: Any, dual: Any, order: Any, rules: Any, room: Any, held: Any = None
) -> None:
    """Visit the examples in `order`; weights and the dual point are updated in place.

    `w_f` is None where there are no factors, and `held` says where structured ones are, if there are any; without, nothing of
    them is even compiled.
    """
    g, side, other = batch.graphs, batch.variables, batch.factors
    examples, structures, weight, v_groups, f_groups = g.examples, g.structures, g.weight, side.groups, other.groups
    v_norms, f_norms = side.features.squared_norms, other.features.squared_norms
    z, moved, message, figures = room.z, room.moved, room.message, room.figures
    for m in order:
        unit = weight[m] / (rules.lam * len(weight))
        if unit == 0.0:
            continue
        s = examples[m].structure
        vq0, vq1 = structures[s].variable_groups, structures[s + 1].variable_groups
        fq0, fq1 = structures[s].factor_groups, structures[s + 1].factor_groups
        if rules.edgeless:
            fq1 = fq0
        figures[:] = 0.0
        # Without factors a variable's block is solved at once.
        last_sweep = rules.sweeps - 1 if fq1 > fq0 else 0
        for sweep in range(last_sweep + 1):
            message[: examples[m + 1].states - examples[m].states] = 0.0
            if w_f is not None:
                for q in range(fq0, fq1):
                    row, at = other.first_row[m] + f_groups[q].row, other.at + f_groups[q].at
                    first, last = f_groups[q].block, f_groups[q].block_end
                    if sweep == 0 or fq1 - fq0 > 1:
                        score_row(other.features, row, w_f, first, last, z, at)
                        moved[at : at + last - first] = 0.0
                    _sweep_factors(batch, dual, rules, room, m, q, unit * f_norms[row], sweep == 0)
                    if held is not None:
                        sweep_structured(batch, held, dual, rules, room, m, q, unit * f_norms[row], sweep == 0)
                    if sweep == last_sweep or fq1 - fq0 > 1:
                        add_row(other.features, row, w_f, first, last, moved, at, -unit)
            for q in range(vq0, vq1):
                row, at = side.first_row[m] + v_groups[q].row, v_groups[q].at
                first, last = v_groups[q].block, v_groups[q].block_end
                if sweep == 0 or vq1 - vq0 > 1:
                    score_row(side.features, row, w_v, first, last, z, at)
                    moved[at : at + last - first] = 0.0
                _sweep_variables(batch, dual, rules, room, m, q, unit * v_norms[row], sweep == 0)
                if sweep == last_sweep or vq1 - vq0 > 1:
                    add_row(side.features, row, w_v, first, last, moved, at, -unit)
        dual.block_gap[m] = figures[0]
        dual.disagreement[m] = figures[1]


@inner
def _sweep_factors(batch: Any, dual: Any, rules: Any, room: Any, m: int, q: int, own: float, first: bool) -> None:
    """Improve each factor of group q and add its messages to its variables' sums; `first` of the visit's sweeps."""
    g, side = batch.graphs, batch.factors
    example, group, factors, kinds, pairs = g.examples[m], side.groups[q], side.members, side.kinds, g.pairs
    mu, table, nu, z, moved, message = dual.mu, dual.table, dual.nu, room.z, room.moved, room.message
    states, tables, messages, f0 = (
        example.states,
        example.tables,
        example.messages,
        side.first_member[example.structure],
    )
    shift, inverse, smoothing = side.at + group.at - group.block, 1.0 / rules.rho, rules.smoothing
    move_nu = rules.multipliers and first
    total_gap, total_disagreement = 0.0, 0.0
    for c in range(f0 + group.first, f0 + group.last):
        tab = tables + factors[c].table
        msg = messages + factors[c].message
        at_i = pairs[c, P_STATE_I]
        if at_i >= 0:
            # A pair of binary variables, the common case: the computation of tables with everything in registers.
            at_j, b0, b1 = pairs[c, P_STATE_J], pairs[c, P_BLOCK], pairs[c, P_BLOCK + 1]
            b2, b3 = pairs[c, P_BLOCK + 2], pairs[c, P_BLOCK + 3]
            p0, p1, p2, p3 = table[tab], table[tab + 1], table[tab + 2], table[tab + 3]
            gone_i = 2.0 * (p2 + p3 - mu[states + at_i + 1])
            gone_j = 2.0 * (p1 + p3 - mu[states + at_j + 1])
            to_i, to_j = nu[msg], nu[msg + 1]
            if move_nu:
                to_i += gone_i * inverse
                to_j += gone_j * inverse
                nu[msg] = to_i
                nu[msg + 1] = to_j
            to_i += gone_i * inverse
            to_j += gone_j * inverse
            s0 = (z[shift + b0] if b0 >= 0 else 0.0) - smoothing * p0
            s1 = (z[shift + b1] if b1 >= 0 else 0.0) - to_j - smoothing * p1
            s2 = (z[shift + b2] if b2 >= 0 else 0.0) - to_i - smoothing * p2
            s3 = (z[shift + b3] if b3 >= 0 else 0.0) - to_i - to_j - smoothing * p3
            best, high, worst, low, mass = best_and_worst(p0, p1, p2, p3, s0, s1, s2, s3)
            if first:
                total_gap += high - p0 * s0 - p1 * s1 - p2 * s2 - p3 * s3
                total_disagreement += 0.5 * (abs(to_i * gone_i) + abs(to_j * gone_j))
            if high - low > 1e-15:
                d_i, d_j = (best >> 1) - (worst >> 1), (best & 1) - (worst & 1)
                gain, loss = pairs[c, P_BLOCK + best], pairs[c, P_BLOCK + worst]
                curvature = 2.0 * (d_i * d_i + d_j * d_j) * inverse + 2.0 * smoothing
                if gain != loss:
                    curvature += own * ((gain >= 0) + (loss >= 0))
                step = (high - low) / curvature
                if step >= mass:
                    step = mass
                    table[tab + worst] = 0.0
                else:
                    table[tab + worst] = mass - step
                table[tab + best] += step
                if gain != loss:
                    if gain >= 0:
                        z[shift + gain] -= own * step
                        moved[shift + gain] += step
                    if loss >= 0:
                        z[shift + loss] += own * step
                        moved[shift + loss] -= step
                to_i += 2.0 * step * inverse * d_i
                to_j += 2.0 * step * inverse * d_j
            message[at_i + 1] += to_i
            message[at_j + 1] += to_j
        elif kinds[factors[c].template].kind == TABLE:
            gone, n = _table_scores(batch, dual, rules, room, m, c, shift, move_nu)
            gap = _table_steps(batch, dual, rules, room, c, n, tab, shift, own, first)
            add_messages(g, room, example.structure, c)
            total_gap += gap
            total_disagreement += gone
    room.figures[0] += total_gap
    room.figures[1] += total_disagreement


@inner
def _table_scores(
    batch: Any, dual: Any, rules: Any, room: Any, m: int, c: int, shift: int, move_nu: bool
) -> tuple[float, int]:
    """Write the messages and the reparametrised scores of one factor's table, and which of its joint states have mass.

    Few have, in large tables. Returns the disagreement, and their number.
    """
    g, side = batch.graphs, batch.factors
    example, variables, scope, slots, factor = g.examples[m], g.variables, g.scope, g.slots, side.members[c]
    blocks, fixed, scores, kind = side.block, side.fixed, side.scores, side.kinds[factor.template]
    mu, table, nu, learned, value, delta, active = (
        dual.mu, dual.table, dual.nu, room.z, room.value, room.delta, room.active,
    )  # fmt: skip
    start, size, slot0, at = kind.start, kind.entries, kind.slots, factor.neighbours
    v0, tab, msg = (
        g.structures[example.structure].variables, example.tables + factor.table, example.messages + factor.message,
    )  # fmt: skip
    inverse, smoothing, disagreement, n = 1.0 / rules.rho, rules.smoothing, 0.0, 0
    for y in range(size):
        if table[tab + y] > 0.0:
            active[n] = y
            n += 1
    for y in range(size):
        b = blocks[start + y]
        value[y] = fixed[start + y] + (learned[shift + b] if b >= 0 else 0.0)
    if len(scores) > 0:
        for y in range(size):
            value[y] += scores[tab + y]
    for j in range(kind.arity):
        n_states, stride = slots[slot0 + j].states, slots[slot0 + j].stride
        outer, z = slots[slot0 + j].outer, slots[slot0 + j].delta
        state = example.states + variables[v0 + scope[at + j]].table
        for k in range(n_states):
            delta[z + k] = -mu[state + k]
        for a in range(n):
            delta[z + (active[a] // stride) % n_states] += table[tab + active[a]]
        # Multipliers are kept relative to the first state's (see FactorGraphs, *messages*): entry z - j + k - 1.
        for k in range(n_states - 1, -1, -1):
            gone = delta[z + k]
            to = gone * inverse
            if k > 0:
                if move_nu:
                    nu[msg + z - j + k - 1] += (gone - delta[z]) * inverse
                to += nu[msg + z - j + k - 1]
            delta[z + k] = to
            disagreement += abs(to * gone)
        slot_add(value, 0, outer, n_states, stride, delta, z, -1.0)
    if smoothing > 0.0:
        for y in range(size):
            value[y] -= smoothing * table[tab + y]
    return disagreement, n


@inner
def _table_steps(
    batch: Any, dual: Any, rules: Any, room: Any, c: int, n: int, tab: int, shift: int, own: float, measure: bool
) -> float:
    """Up to `steps` pairwise steps on one factor's table; returns its gap before them, if measured.

    The first n of room.active are the joint states that have mass.
    """
    side, slots, table, active = batch.factors, batch.graphs.slots, dual.table, room.active
    distinct = rules.distinct[side.members[c].template]
    blocks, kind, value, delta, scores, moved = (
        side.block, side.kinds[side.members[c].template], room.value, room.delta, room.z, room.moved,
    )  # fmt: skip
    start, size, arity, slot0 = kind.start, kind.entries, kind.arity, kind.slots
    inverse, smoothing, gap = 1.0 / rules.rho, rules.smoothing, 0.0
    opening = 0.0
    for step_number in range(rules.steps):
        best, last, high, low = 0, 0, -np.inf, np.inf
        for a in range(n):
            if value[active[a]] < low:
                last, low = a, value[active[a]]
            if value[active[a]] > high:
                best, high = active[a], value[active[a]]
        worst = active[last]
        # Joint states that have no mass join in at the first step, and when those that have some are done with.
        if step_number == 0 or high - low < 0.1 * opening:
            best = _first_largest(value, size)
            high = value[best]
        if step_number == 0:
            opening = high - low
            if measure:
                gap = high
                for a in range(n):
                    gap -= table[tab + active[a]] * value[active[a]]
        # Later steps polish the block: stop when what is left is small beside what the first step found.
        if high - low <= 1e-15 or high - low < 0.1 * opening:
            break
        gain, loss = blocks[start + best], blocks[start + worst]
        curvature = 2.0 * smoothing + (own * ((gain >= 0) + (loss >= 0)) if gain != loss else 0.0)
        for j in range(arity):
            n_states, stride = slots[slot0 + j].states, slots[slot0 + j].stride
            if (best // stride) % n_states != (worst // stride) % n_states:
                curvature += 2.0 * inverse
        step = (high - low) / curvature
        if step >= table[tab + worst]:
            step = table[tab + worst]
            table[tab + worst] = 0.0
            n -= 1
            active[last] = active[n]
        else:
            table[tab + worst] -= step
        if table[tab + best] == 0.0:
            active[n] = best
            n += 1
        table[tab + best] += step
        value[best] -= smoothing * step
        value[worst] += smoothing * step
        for j in range(arity):
            n_states, stride, z = slots[slot0 + j].states, slots[slot0 + j].stride, slots[slot0 + j].delta
            up, down = (best // stride) % n_states, (worst // stride) % n_states
            if up != down:
                delta[z + up] += step * inverse
                delta[z + down] -= step * inverse
                for outer in range(slots[slot0 + j].outer):
                    y = outer * n_states * stride
                    for i in range(stride):
                        value[y + up * stride + i] -= step * inverse
                        value[y + down * stride + i] += step * inverse
        if gain != loss:
            if gain >= 0:
                scores[shift + gain] -= own * step
                moved[shift + gain] += step
            if loss >= 0:
                scores[shift + loss] += own * step
                moved[shift + loss] -= step
            if distinct:
                value[best] -= own * step if gain >= 0 else 0.0
                value[worst] += own * step if loss >= 0 else 0.0
                continue
            for y in range(size):
                b = blocks[start + y]
                if b >= 0:
                    if b == gain:
                        value[y] -= own * step
                    elif b == loss:
                        value[y] += own * step
    return gap


@inner
def _first_largest(value: Any, size: int) -> int:
    """The first of the largest entries; four running maxima, since one would wait for itself at every step."""
    a = b = c = d = -np.inf
    for y in range(0, size - 3, 4):
        a, b = max(a, value[y]), max(b, value[y + 1])
        c, d = max(c, value[y + 2]), max(d, value[y + 3])
    for y in range(size - size % 4, size):
        a = max(a, value[y])
    top = max(max(a, b), max(c, d))
    for y in range(size):
        if value[y] == top:
            return y
    return 0


@inner
def _sweep_variables(batch: Any, dual: Any, rules: Any, room: Any, m: int, q: int, own: float, first: bool) -> None:
    """Move each variable of a group to its block's maximum: max theta.mu - 1/2 sum_k c_k (mu_k - now_k)^2 on the simplex."""
    g, side, group = batch.graphs, batch.variables, batch.variables.groups[q]
    members, kinds, blocks, fixed, scores = side.members, side.kinds, side.block, side.fixed, side.scores
    sharing, losses, mu = g.variable_sharing, g.losses, dual.mu
    z, moved, message, theta, flat, figures = (
        room.z, room.moved, room.message, room.theta_v, room.flat, room.figures,
    )  # fmt: skip
    states, v0 = g.examples[m].states, side.first_member[g.examples[m].structure]
    shift, smoothing, rho = group.at - group.block, rules.smoothing, np.inf if rules.edgeless else rules.rho
    for v in range(v0 + group.first, v0 + group.last):
        t = members[v].template
        start, n_states = kinds[t].start, kinds[t].entries
        local = members[v].table
        at = states + local
        pull = members[v].degree / rho + smoothing
        high = -np.inf
        for k in range(n_states):
            score = fixed[start + k] + losses[at + k] + message[local + k] - smoothing * mu[at + k]
            b = blocks[start + k]
            if b >= 0:
                score += z[shift + b]
            if len(scores) > 0:
                score += scores[at + k]
            theta[k] = score
            high = max(high, score)
        if first:
            gap = 0.0
            for k in range(n_states):
                if mu[at + k] > 0.0:
                    gap += mu[at + k] * (high - theta[k])
            figures[0] += gap
        if n_states == 2:
            slope = theta[1] - theta[0]
            curvature = own * (sharing[start] + sharing[start + 1]) + 2.0 * pull
            if blocks[start] == blocks[start + 1]:
                curvature = 2.0 * pull
            target = best_mass(mu[at + 1], slope, curvature)
            step = target - mu[at + 1]
            if step != 0.0:
                mu[at + 1] = target
                mu[at] = 1.0 - target
                for k in range(2):
                    b = blocks[start + k]
                    if b >= 0:
                        z[shift + b] -= own * step if k == 1 else -own * step
                        moved[shift + b] += step if k == 1 else -step
            continue

        project_block(n_states, own, pull, high, sharing, start, mu, at, theta, flat)
        for k in range(n_states):
            target = flat[k]
            step = target - mu[at + k]
            if step != 0.0:
                mu[at + k] = target
                b = blocks[start + k]
                if b >= 0:
                    z[shift + b] -= own * step
                    moved[shift + b] += step

"""Certificates for the soft solver: a bound from above and a bound from below, for G and for G_rho.

Above. For any weights w and any messages delta (eq. 2 of the paper, soft_bcfw.py),

    g(w, delta) = lam/2 |w|^2 + 1/M sum_m [ sum_i max theta_i + sum_c max theta_c - score of the truth ]  >=  G(w)  >=  G*

so messages may be improved at will: `hinges` starts from the solver's own and runs block-coordinate descent on delta (messages.py).

Below. For any mu in the local polytope, f(mu) = loss.mu - lam/2 |w(mu)|^2 <= G*. The solver's mu does not agree exactly, so
`dual_point` repairs it: the variables' marginals stay; each factor's table is scaled down, slot by slot, to at most their
marginals, and the rank-one product of what is missing is added. Where that would put mass on a forbidden joint state, allowed
states are filled greedily; if mass is left over the example falls back to its own labels, which are feasible and contribute 0.

For G_rho (soft), delta = (mu_c - mu_i) / rho is not improved, mu not repaired, and the penalty counts on both sides.

Structured factors bring their own maxima and marginals to both bounds (structured_bounds.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maxmargin.jit import inner, kernel
from maxmargin.problems.features import add_row
from maxmargin.problems.layout import P_STATE_I, P_STATE_J, joint_state, side_scores
from maxmargin.problems.tables import slot_scale, slot_sum
from maxmargin.problems.templates import TABLE
from maxmargin.solvers.soft.messages import bound_of_messages, take_out
from maxmargin.solvers.soft.structured_bounds import change_of_statistics, disagreement_of, read_messages


@kernel
def hinges(
    batch: Any, w_v: Any, w_f: Any, dual: Any, rules: Any, room: Any, begin: int, end: int, out: Any, held: Any = None
) -> None:
    """Upper bound on the relaxed hinge of examples begin to end - 1, into out[m].

    Messages get rounds of descent where the example's gap is large: elsewhere there is little to gain. `w_f` is None where there
    are no factors, and so no messages.
    """
    block_gap, disagreement = dual.block_gap, dual.disagreement
    for m in range(begin, end):
        loss_augmented_scores(batch, m, w_v, w_f, room)
        if w_f is None:
            out[m] = _hinge_of_variables(batch.graphs, room, m)
            continue
        truth, penalty = _read_messages(batch.graphs, dual, rules, room, m, held)
        rounds = rules.polish if block_gap[m] + disagreement[m] > rules.enough else 0
        total = bound_of_messages(batch.graphs, room, m, rounds, rules.only_pairs, truth, held)
        out[m] = total + 0.5 * rules.rho * penalty if rules.soft else total


@inner
def loss_augmented_scores(batch: Any, m: int, w_v: Any, w_f: Any, room: Any) -> None:
    """Scores of the variables of example m, with the task loss, and of its factors."""
    examples, losses, theta_v = batch.graphs.examples, batch.graphs.losses, room.theta_v
    s, states = examples[m].structure, examples[m].states
    side_scores(batch.variables, m, s, w_v, room.z, theta_v, 0)
    if w_f is not None:
        side_scores(batch.factors, m, s, w_f, room.z, room.theta_f, 0)
    for k in range(examples[m + 1].states - states):
        theta_v[k] += losses[states + k]


@inner
def _hinge_of_variables(g: Any, room: Any, m: int) -> float:
    """The best score of the variables of example m by themselves, minus that of the truth."""
    examples, variables, kinds, labels, theta = g.examples, g.variables, g.variable_kinds, g.labels, room.theta_v
    first, v0 = examples[m].variables, g.structures[examples[m].structure].variables
    total, n = 0.0, examples[m + 1].variables - first
    for v in range(n):
        total -= theta[variables[v0 + v].table + labels[first + v]]
    for v in range(v0, v0 + n):
        most, state = -np.inf, variables[v].table
        for k in range(kinds[variables[v].template].entries):
            most = max(most, theta[state + k])
        total += most
    return total


@inner
def _read_messages(g: Any, dual: Any, rules: Any, room: Any, m: int, held: Any) -> tuple[float, float]:
    """Messages nu + (mu_c - mu_i) / rho, and the factors' scores reparametrised by them.

    Returns minus the score of the truth, and |delta|^2 if soft.
    """
    examples, variables, factors, scope, kinds, slots, pairs, labels = (
        g.examples, g.variables, g.factors, g.scope, g.factor_kinds, g.slots, g.pairs, g.labels,
    )  # fmt: skip
    mu, table, nu, theta_v, theta_f, delta = dual.mu, dual.table, dual.nu, room.theta_v, room.theta_f, room.delta
    s, first, states, tables, inverse = (
        examples[m].structure, examples[m].variables, examples[m].states, examples[m].tables, 1.0 / rules.rho,
    )  # fmt: skip
    v0, f0 = g.structures[s].variables, g.structures[s].factors
    total, penalty = 0.0, 0.0
    for v in range(examples[m + 1].variables - first):
        total -= theta_v[variables[v0 + v].table + labels[first + v]]
    for c in range(f0, f0 + examples[m + 1].factors - examples[m].factors):
        t, at, tab, here = factors[c].template, factors[c].neighbours, factors[c].table, factors[c].delta
        msg, i, j = examples[m].messages + factors[c].message, pairs[c, P_STATE_I], pairs[c, P_STATE_J]
        if held is not None and kinds[t].kind != TABLE:
            continue
        total -= theta_f[tab + joint_state(c, first, factors, scope, kinds, slots, labels)]
        if i >= 0 and not rules.soft:
            p1, p2, p3 = table[tables + tab + 1], table[tables + tab + 2], table[tables + tab + 3]
            to_i = nu[msg] + 2.0 * inverse * (p2 + p3 - mu[states + i + 1])
            to_j = nu[msg + 1] + 2.0 * inverse * (p1 + p3 - mu[states + j + 1])
            delta[here], delta[here + 1], delta[here + 2], delta[here + 3] = 0.0, to_i, 0.0, to_j
            theta_f[tab + 1] -= to_j
            theta_f[tab + 2] -= to_i
            theta_f[tab + 3] -= to_i + to_j
            continue
        for j in range(kinds[t].arity):
            z = kinds[t].slots + j
            n_states, to = slots[z].states, here + slots[z].delta
            state = states + variables[v0 + scope[at + j]].table
            for k in range(n_states):
                delta[to + k] = -mu[state + k]
            slot_sum(table, tables + tab, slots[z].outer, n_states, slots[z].stride, delta, to)
            for k in range(n_states):
                delta[to + k] *= inverse
                if k > 0:
                    delta[to + k] += nu[msg + slots[z].delta - j + k - 1]
                penalty += delta[to + k] * delta[to + k]
        take_out(g, room, c)
    if held is not None:
        for r in range(held.first[s], held.first[s + 1]):
            truth, square = read_messages(g, held, dual, room, m, r, inverse)
            total -= truth
            penalty += square
    return total, penalty


@kernel
def dual_point(
    batch: Any, dual: Any, rules: Any, room: Any, r_v: Any, r_f: Any, begin: int, end: int, held: Any = None,
    usable: Any = None,
) -> float:  # fmt: skip
    """Mean linear part of the dual (loss, fixed scores, penalty if soft) at mu, repaired unless soft; w(mu) into r_v, r_f.

    Of the examples from `begin` to `end`, of which there are shares of the mean and of w.

    With structured factors, and unless soft, mu has to agree with them where `usable` says so (`agreeing`). Where there are no
    factors r_f is None.
    """
    weight = batch.graphs.weight
    r_v[:] = 0.0
    if r_f is not None:
        r_f[:] = 0.0
    total = 0.0
    for m in range(begin, end):
        if usable is not None and not usable[m]:
            continue
        feasible, penalty = True, 0.0
        if r_f is not None:
            feasible, penalty = _agreeing_tables(batch.graphs, dual, rules, room, m, held)
        if feasible:
            unit = weight[m] / (rules.lam * len(weight))
            linear = _write_variables(batch, dual, room, m, unit, r_v)
            if r_f is not None:
                linear = _write_factors(batch, dual, room, m, unit, r_f, linear, held)
            total += weight[m] * (linear - 0.5 * penalty / rules.rho)
    return total / len(weight)


@inner
def _agreeing_tables(g: Any, dual: Any, rules: Any, room: Any, m: int, held: Any) -> tuple[bool, float]:
    """Write the tables of example m, repaired unless soft; returns whether they could be, and the disagreement if soft."""
    examples, factors, kinds, pairs = g.examples, g.factors, g.factor_kinds, g.pairs
    mu, table, repaired, soft = dual.mu, dual.table, room.repaired, rules.soft
    s, states, tables, penalty = examples[m].structure, examples[m].states, examples[m].tables, 0.0
    f0 = g.structures[s].factors
    for c in range(f0, f0 + examples[m + 1].factors - examples[m].factors):
        if held is not None and kinds[factors[c].template].kind != TABLE:
            continue
        if soft:
            penalty += _disagreement(g, dual, room, m, c)
        elif pairs[c, P_STATE_I] >= 0:
            # Binary pairs: all freedom is in P(1, 1), which is clipped to what the variables allow.
            a, b = mu[states + pairs[c, P_STATE_I] + 1], mu[states + pairs[c, P_STATE_J] + 1]
            tab = factors[c].table
            both = min(min(a, b), max(max(0.0, a + b - 1.0), table[tables + tab + 3]))
            repaired[tab], repaired[tab + 1], repaired[tab + 2] = 1.0 - a - b + both, b - both, a - both
            repaired[tab + 3] = both
        elif not _repair(g, dual, room, m, c):
            return False, 0.0
    if held is not None:
        for r in range(held.first[s], held.first[s + 1] if soft else held.first[s]):
            penalty += disagreement_of(g, held, dual, m, r)
    return True, penalty


@inner
def _write_variables(batch: Any, dual: Any, room: Any, m: int, unit: float, r_v: Any) -> float:
    """Add the variables' part of example m to the weights; returns its linear part."""
    g, side, mu, moved = batch.graphs, batch.variables, dual.mu, room.moved
    groups, members, kinds, blocks, fixed, scores = (
        side.groups, side.members, side.kinds, side.block, side.fixed, side.scores,
    )  # fmt: skip
    s, states, losses, labels, label_at = (
        g.examples[m].structure, g.examples[m].states, g.losses, g.labels, g.examples[m].variables,
    )  # fmt: skip
    v0, linear = side.first_member[s], 0.0
    for q in range(side.first_group[s], side.first_group[s + 1]):
        first, last, at = groups[q].block, groups[q].block_end, groups[q].at
        moved[at : at + last - first] = 0.0
        for v in range(groups[q].first, groups[q].last):
            t, state = members[v0 + v].template, states + members[v0 + v].table
            start, n_states = kinds[t].start, kinds[t].entries
            norm = 0.0
            for k in range(n_states):
                norm += mu[state + k]
            for k in range(n_states):
                p = mu[state + k] / norm
                is_truth = 1.0 if k == labels[label_at + v] else 0.0
                if p != is_truth:
                    score = fixed[start + k]
                    if len(scores) > 0:
                        score += scores[state + k]
                    linear += p * losses[state + k] + (p - is_truth) * score
                    if blocks[start + k] >= 0:
                        moved[at + blocks[start + k] - first] += is_truth - p
        add_row(side.features, side.first_row[m] + groups[q].row, r_v, first, last, moved, at, unit)
    return linear


@inner
def _write_factors(batch: Any, dual: Any, room: Any, m: int, unit: float, r_f: Any, linear: float, held: Any) -> float:
    """Add the factors' part of example m to the weights; returns `linear` and its linear part."""
    g, side, moved, repaired = batch.graphs, batch.factors, room.moved, room.repaired
    groups, members, kinds, blocks, fixed, scores = (
        side.groups, side.members, side.kinds, side.block, side.fixed, side.scores,
    )  # fmt: skip
    s, tables, label_at = g.examples[m].structure, g.examples[m].tables, g.examples[m].variables
    f0 = side.first_member[s]
    for q in range(side.first_group[s], side.first_group[s + 1]):
        first, last, at = groups[q].block, groups[q].block_end, groups[q].at
        moved[at : at + last - first] = 0.0
        for c in range(f0 + groups[q].first, f0 + groups[q].last):
            t, tab = members[c].template, members[c].table
            start = kinds[t].start
            if held is not None and kinds[t].kind != TABLE:
                linear += change_of_statistics(batch, dual, room, m, c, at - first)
                continue
            truth = joint_state(c, label_at, members, g.scope, kinds, g.slots, g.labels)
            for y in range(kinds[t].entries):
                p = repaired[tab + y]
                is_truth = 1.0 if y == truth else 0.0
                if p != is_truth:
                    score = fixed[start + y]
                    if len(scores) > 0:
                        score += scores[tables + tab + y]
                    linear += (p - is_truth) * score
                    if blocks[start + y] >= 0:
                        moved[at + blocks[start + y] - first] += is_truth - p
        add_row(side.features, side.first_row[m] + groups[q].row, r_f, first, last, moved, at, unit)
    return linear


@inner
def _disagreement(g: Any, dual: Any, room: Any, m: int, c: int) -> float:
    """|mu_c(y_i) - mu_i(y_i)|^2 summed over the variables and states of factor c; its table is copied to its local place."""
    variables, scope, kinds, slots, example = g.variables, g.scope, g.factor_kinds, g.slots, g.examples[m]
    mu, table, copy, gone = dual.mu, dual.table, room.repaired, room.target
    t, local, at, v0 = (
        g.factors[c].template, g.factors[c].table, g.factors[c].neighbours, g.structures[example.structure].variables,
    )  # fmt: skip
    for y in range(kinds[t].entries):
        copy[local + y] = table[example.tables + local + y]
    square = 0.0
    for j in range(kinds[t].arity):
        z = kinds[t].slots + j
        n_states, state = slots[z].states, example.states + variables[v0 + scope[at + j]].table
        for k in range(n_states):
            gone[k] = -mu[state + k]
        slot_sum(table, example.tables + local, slots[z].outer, n_states, slots[z].stride, gone, 0)
        for k in range(n_states):
            square += gone[k] * gone[k]
    return square


@inner
def _repair(g: Any, dual: Any, room: Any, m: int, c: int) -> bool:
    """Move factor c's table onto its variables' marginals; the result at its local place in `repaired`."""
    variables, scope, kinds, slots, example = g.variables, g.scope, g.factor_kinds, g.slots, g.examples[m]
    mu, table, repaired, target, missing = dual.mu, dual.table, room.repaired, room.target, room.missing
    t, local, at = g.factors[c].template, g.factors[c].table, g.factors[c].neighbours
    size, arity, slot0 = kinds[t].entries, kinds[t].arity, kinds[t].slots
    v0, tab = g.structures[example.structure].variables, example.tables + local
    for y in range(size):
        repaired[local + y] = max(table[tab + y], 0.0)
    for j in range(arity):
        n_states, stride = slots[slot0 + j].states, slots[slot0 + j].stride
        outer, z = slots[slot0 + j].outer, slots[slot0 + j].delta
        state = example.states + variables[v0 + scope[at + j]].table
        norm = 0.0
        for k in range(n_states):
            norm += mu[state + k]
        for k in range(n_states):
            target[z + k] = mu[state + k] / norm
            missing[z + k] = 0.0
        slot_sum(repaired, local, outer, n_states, stride, missing, z)
        for k in range(n_states):
            missing[z + k] = target[z + k] / missing[z + k] if missing[z + k] > target[z + k] else 1.0
        slot_scale(repaired, local, outer, n_states, stride, missing, z)
    left = 1.0
    for y in range(size):
        left -= repaired[local + y]
    if left <= 0.0:
        return True
    for j in range(arity):
        n_states, z = slots[slot0 + j].states, slots[slot0 + j].delta
        for k in range(n_states):
            missing[z + k] = 0.0
        slot_sum(repaired, local, slots[slot0 + j].outer, n_states, slots[slot0 + j].stride, missing, z)
        for k in range(n_states):
            missing[z + k] = max(target[z + k] - missing[z + k], 0.0)
    return bool(_fill(g, room, t, local, tab, left))


@inner
def _fill(g: Any, room: Any, t: int, local: int, tab: int, left: float) -> bool:
    """Add the rank-one product of what is missing to a table, `left` in all.

    Where that would use a forbidden joint state, allowed ones are filled greedily; returns whether nothing is left over.
    """
    slots, fixed, scores, repaired, missing = g.slots, g.factor_fixed, g.factor_scores, room.repaired, room.missing
    kind = g.factor_kinds[t]
    start, size, arity, slot0 = kind.start, kind.entries, kind.arity, kind.slots
    blocked = False
    for y in range(size):
        if fixed[start + y] == -np.inf or (len(scores) > 0 and scores[tab + y] == -np.inf):
            blocked = blocked or _rank_one(y, arity, slot0, slots, missing, left) > 0.0
    if not blocked:
        if arity == 2:
            n, after = slots[slot0 + 1].states, slots[slot0 + 1].delta
            for i in range(slots[slot0].states):
                # Most states miss nothing.
                if missing[i] > 0.0:
                    for k in range(n):
                        repaired[local + i * n + k] += missing[i] * missing[after + k] / left
        else:
            for y in range(size):
                repaired[local + y] += _rank_one(y, arity, slot0, slots, missing, left)
        return True
    for y in range(size):
        if not (fixed[start + y] == -np.inf or (len(scores) > 0 and scores[tab + y] == -np.inf)):
            most = left
            for j in range(arity):
                z = slot0 + j
                most = min(most, missing[slots[z].delta + (y // slots[z].stride) % slots[z].states])
            repaired[local + y] += most
            left -= most
            for j in range(arity):
                z = slot0 + j
                missing[slots[z].delta + (y // slots[z].stride) % slots[z].states] -= most
    return left <= 1e-12


@inner
def _rank_one(y: int, arity: int, slot0: int, slots: Any, missing: Any, left: float) -> float:
    """Entry y of the product of the missing marginals, each of sum `left`."""
    product = left
    for j in range(arity):
        z = slot0 + j
        product *= missing[slots[z].delta + (y // slots[z].stride) % slots[z].states] / left
    return product

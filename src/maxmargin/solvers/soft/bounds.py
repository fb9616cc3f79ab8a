"""Certificates for the soft solver: a bound from above and a bound from below, for G and for G_rho.

Above. For any weights w and any messages delta (eq. 2 of the paper, soft_bcfw.py),

    g(w, delta) = lam/2 |w|^2 + 1/M sum_m [ sum_i max theta_i + sum_c max theta_c - score of the truth ]  >=  G(w)  >=  G*

so messages may be improved at will: `hinges` starts from the solver's own and runs block-coordinate descent on delta
(a star update a variable: each of its factors hands over its max-marginal, and the sum is shared out equally).

Below. For any mu in the local polytope, f(mu) = loss.mu - lam/2 |w(mu)|^2 <= G*. The solver's mu does not agree exactly, so
`dual_point` repairs it: the variables' marginals stay; each factor's table is scaled down, slot by slot, to at most their
marginals, and the rank-one product of what is missing is added. Where that would put mass on a forbidden joint state, allowed
states are filled greedily; if mass is left over the example falls back to its own labels, which are feasible and contribute 0.

For G_rho (soft), delta = (mu_c - mu_i) / rho is not improved, mu not repaired, and the penalty counts on both sides.

Structured factors bring their own maxima and marginals to both bounds (structured.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maxmargin.jit import inner, kernel
from maxmargin.problems.features import add_row
from maxmargin.problems.layout import P_I, P_J, P_STATE_I, P_STATE_J, side_scores
from maxmargin.problems.tables import slot_add, slot_max, slot_scale, slot_sum
from maxmargin.problems.templates import TABLE
from maxmargin.solvers.soft.structured import (
    E_STATE,
    H_FACTOR,
    H_STATE,
    change_of_statistics,
    disagreement_of,
    factor_max,
    factor_round,
    read_messages,
)

#: A message that no score outweighs; finite, because infinities would meet and make NaN.
_FAR = 1e30


@kernel
def hinges(
    batch: Any, w_v: Any, w_f: Any, mu: Any, table: Any, nu: Any, rho: float, polish: int, soft: bool, gaps: Any, enough: float,
    begin: int, end: int, out: Any, held: Any = None,
) -> None:  # fmt: skip
    """Upper bound on the relaxed hinge of examples begin to end - 1, into out[m].

    Messages get `polish` rounds of descent where the example's gap is above `enough`: elsewhere there is little to gain.
    """
    g = batch.graphs
    largest = g.largest
    buffer = np.empty(largest.buffer)
    theta_v, theta_f = np.empty(largest.states), np.empty(largest.tables)
    delta, high = np.empty(largest.deltas), np.empty(largest.deltas)
    shared = np.empty(largest.states)
    examples, variables, factors, labels = g.examples, g.variables, g.factors, g.labels
    v_kinds, f_kinds, slots, scope, incident = g.variable_kinds, g.factor_kinds, g.slots, g.scope, g.incident
    structures, losses, pairs = g.structures, g.losses, g.pairs
    v_fixed, v_scores = g.variable_fixed, g.variable_scores
    inverse = 1.0 / rho
    only_pairs = not soft
    for c in range(len(pairs)):
        only_pairs = only_pairs and pairs[c, P_STATE_I] >= 0
    # Differences of messages cannot express a forbidden state.
    for fixed in (v_fixed, v_scores):
        for k in range(len(fixed)):
            only_pairs = only_pairs and fixed[k] > -np.inf
    if held is not None:
        first_row, rows, start, inside, structured = held.first, held.factors, held.start, held.inside, g.structured
        room = 2 * largest.slots + largest.table + 2
        work, order, own = np.empty(room), np.empty(room, np.int64), np.empty(room, np.int32)
        unary, most_of = np.empty(room), np.empty(room)
    for m in range(begin, end):
        s = examples[m].structure
        v0, f0 = structures[s].variables, structures[s].factors
        n, n_factors = (
            examples[m + 1].variables - examples[m].variables,
            examples[m + 1].factors - examples[m].factors,
        )
        states, tables, messages, first = (
            examples[m].states,
            examples[m].tables,
            examples[m].messages,
            examples[m].variables,
        )
        side_scores(batch.variables, m, s, w_v, buffer, theta_v, 0)
        side_scores(batch.factors, m, s, w_f, buffer, theta_f, 0)
        for k in range(examples[m + 1].states - states):
            theta_v[k] += losses[states + k]
        total, penalty = 0.0, 0.0
        for v in range(n):
            total -= theta_v[variables[v0 + v].table + labels[first + v]]

        # Messages nu + (mu_c - mu_i) / rho, and the factors' scores reparametrised by them.
        for c in range(n_factors):
            tab, msg, here = factors[f0 + c].table, messages + factors[f0 + c].message, factors[f0 + c].delta
            i, j = pairs[f0 + c, P_STATE_I], pairs[f0 + c, P_STATE_J]
            if i >= 0 and not soft:
                p1, p2, p3 = table[tables + tab + 1], table[tables + tab + 2], table[tables + tab + 3]
                to_i = nu[msg] + 2.0 * inverse * (p2 + p3 - mu[states + i + 1])
                to_j = nu[msg + 1] + 2.0 * inverse * (p1 + p3 - mu[states + j + 1])
                delta[here], delta[here + 1], delta[here + 2], delta[here + 3] = 0.0, to_i, 0.0, to_j
                total -= theta_f[tab + 2 * labels[first + pairs[f0 + c, P_I]] + labels[first + pairs[f0 + c, P_J]]]
                theta_f[tab + 1] -= to_j
                theta_f[tab + 2] -= to_i
                theta_f[tab + 3] -= to_i + to_j
                continue
            t, at, joint = factors[f0 + c].template, factors[f0 + c].neighbours, 0
            if held is not None and f_kinds[t].kind != TABLE:
                continue
            for j in range(f_kinds[t].arity):
                z = f_kinds[t].slots + j
                n_states, stride, outer, to = (
                    slots[z].states,
                    slots[z].stride,
                    slots[z].outer,
                    here + slots[z].delta,
                )
                state = states + variables[v0 + scope[at + j]].table
                joint += stride * labels[first + scope[at + j]]
                for k in range(n_states):
                    delta[to + k] = -mu[state + k]
                slot_sum(table, tables + tab, outer, n_states, stride, delta, to)
                for k in range(n_states):
                    delta[to + k] *= inverse
                    if k > 0:
                        delta[to + k] += nu[msg + slots[z].delta - j + k - 1]
                    penalty += delta[to + k] * delta[to + k]
            total -= theta_f[tab + joint]
            for j in range(f_kinds[t].arity):
                z = f_kinds[t].slots + j
                slot_add(
                    theta_f,
                    tab,
                    slots[z].outer,
                    slots[z].states,
                    slots[z].stride,
                    delta,
                    here + slots[z].delta,
                    -1.0,
                )
        if held is not None:
            for r in range(first_row[s], first_row[s + 1]):
                c = f0 + rows[r, H_FACTOR]
                truth, square = read_messages(
                    c, start[m, E_STATE] + rows[r, H_STATE], v0, states, messages + factors[c].message, first, variables,
                    factors, scope, f_kinds, slots, structured, mu, nu, inside, inverse, labels, theta_f, delta, own, work,
                )  # fmt: skip
                total -= truth
                penalty += square

        for _ in range(polish if gaps[m] > enough else 0):
            if only_pairs:
                _pair_star_round(v0, n, variables, incident, theta_v, theta_f, delta, high)
                continue
            star_round(v0, n, variables, v_kinds, incident, theta_v, theta_f, delta, high, shared)
            if held is not None:
                for r in range(first_row[s], first_row[s + 1]):
                    factor_round(
                        f0 + rows[r, H_FACTOR], v0, variables, factors, scope, f_kinds, slots, structured, incident, theta_v,
                        theta_f, delta, unary, most_of, own, work, order,
                    )  # fmt: skip
        if held is not None:
            for r in range(first_row[s], first_row[s + 1]):
                total += factor_max(
                    f0 + rows[r, H_FACTOR], v0, variables, factors, scope, f_kinds, slots, structured, incident, theta_v, theta_f,
                    delta, unary, own, work, order,
                )  # fmt: skip
        for c in range(n_factors):
            tab, most = factors[f0 + c].table, -np.inf
            if held is not None and f_kinds[factors[f0 + c].template].kind != TABLE:
                continue
            for y in range(tab, tab + f_kinds[factors[f0 + c].template].entries):
                most = max(most, theta_f[y])
            total += most
        for v in range(n):
            i0 = variables[v0 + v].neighbours
            most = -np.inf
            for k in range(v_kinds[variables[v0 + v].template].entries):
                belief = theta_v[variables[v0 + v].table + k]
                for e in range(i0, i0 + variables[v0 + v].degree):
                    belief += delta[incident[e].delta + k]
                most = max(most, belief)
            total += most
        out[m] = total + 0.5 * rho * penalty if soft else total


@inner
def star_round(
    v0: int,
    n: int,
    variables: Any,
    kinds: Any,
    incident: Any,
    theta_v: Any,
    theta_f: Any,
    delta: Any,
    high: Any,
    shared: Any,
) -> None:
    """Minimise the bound exactly over all messages to one variable, for each variable in turn.

    theta_v holds the variables' own scores, theta_f the factors' scores reparametrised by delta. Messages of structured factors,
    whose slots have no stride, stay as they are.
    """
    for v in range(v0, v0 + n):
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
def _pair_star_round(
    v0: int, n: int, variables: Any, incident: Any, theta_v: Any, theta_f: Any, delta: Any, high: Any
) -> None:
    """The same where all factors are pairs of binary variables: only delta(1) - delta(0) matters, so delta(0) stays."""
    for v in range(v0, v0 + n):
        i0, state = variables[v].neighbours, variables[v].table
        i1 = i0 + variables[v].degree
        shared = theta_v[state + 1] - theta_v[state]
        for e in range(i0, i1):
            at, stride, to = incident[e].table, incident[e].stride, incident[e].delta
            rise = max(theta_f[at + stride], theta_f[at + 3]) - max(theta_f[at], theta_f[at + 3 - stride])
            high[to] = rise + delta[to + 1] - delta[to]
            shared += high[to]
        share = shared / (i1 - i0 + 1)
        for e in range(i0, i1):
            at, stride, to = incident[e].table, incident[e].stride, incident[e].delta
            new = high[to] - share + delta[to]
            theta_f[at + stride] += delta[to + 1] - new
            theta_f[at + 3] += delta[to + 1] - new
            delta[to + 1] = new


@kernel
def dual_point(
    g: Any,
    v_features: Any,
    f_features: Any,
    mu: Any,
    table: Any,
    lam: float,
    rho: float,
    soft: bool,
    r_v: Any,
    r_f: Any,
    held: Any = None,
    usable: Any = None,
) -> float:
    """Mean linear part of the dual (loss, fixed scores, penalty if soft) at mu, repaired unless soft; w(mu) into r_v, r_f.

    With structured factors, and unless soft, mu has to agree with them where `usable` says so (`agreeing`).
    """
    n_examples = len(g.weight)
    largest = g.largest
    change, repaired = np.empty(largest.buffer), np.empty(largest.tables)
    target, missing = np.empty(largest.slots), np.empty(largest.slots)
    examples, structures, variables, factors, labels = g.examples, g.structures, g.variables, g.factors, g.labels
    v_kinds, v_block, v_fixed, v_groups, losses = (
        g.variable_kinds,
        g.variable_block,
        g.variable_fixed,
        g.variable_groups,
        g.losses,
    )
    f_kinds, f_block, f_fixed, f_groups = g.factor_kinds, g.factor_block, g.factor_fixed, g.factor_groups
    pairs = g.pairs
    v_scores, f_scores, weight, scope, slots = g.variable_scores, g.factor_scores, g.weight, g.scope, g.slots
    if held is not None:
        first_row, rows, begin, inside, structured = held.first, held.factors, held.start, held.inside, g.structured
        own, spare = np.empty(largest.slots, np.int32), np.empty(largest.table)
    r_v[:] = 0.0
    r_f[:] = 0.0
    total = 0.0
    for m in range(n_examples):
        if usable is not None and not usable[m]:
            continue
        s = examples[m].structure
        v0, f0 = structures[s].variables, structures[s].factors
        states, tables = examples[m].states, examples[m].tables
        penalty, feasible = 0.0, True
        for c in range(examples[m + 1].factors - examples[m].factors):
            if held is not None and f_kinds[factors[f0 + c].template].kind != TABLE:
                continue
            if soft:
                penalty += _disagreement(
                    f0 + c, v0, states, tables, variables, factors, scope, f_kinds, slots, mu, table, repaired, target
                )
            elif pairs[f0 + c, P_STATE_I] >= 0:
                # Binary pairs: all freedom is in P(1, 1), which is clipped to what the variables allow.
                a, b = mu[states + pairs[f0 + c, P_STATE_I] + 1], mu[states + pairs[f0 + c, P_STATE_J] + 1]
                tab = factors[f0 + c].table
                both = min(min(a, b), max(max(0.0, a + b - 1.0), table[tables + tab + 3]))
                repaired[tab], repaired[tab + 1], repaired[tab + 2], repaired[tab + 3] = (
                    1.0 - a - b + both,
                    b - both,
                    a - both,
                    both,
                )
            elif not _repair(
                f0 + c, v0, states, tables, variables, factors, scope, f_kinds, slots, f_fixed, f_scores, mu, table, repaired,
                target, missing,
            ):  # fmt: skip
                feasible = False
                break
        if not feasible:
            continue
        if held is not None:
            for r in range(first_row[s], first_row[s + 1] if soft else first_row[s]):
                penalty += disagreement_of(
                    f0 + rows[r, H_FACTOR], begin[m, E_STATE] + rows[r, H_STATE], v0, states, variables, factors, scope, f_kinds,
                    slots, mu, inside,
                )  # fmt: skip
        unit = weight[m] / (lam * n_examples)
        linear = 0.0
        for q in range(structures[s].variable_groups, structures[s + 1].variable_groups):
            first, last, at = v_groups[q].block, v_groups[q].block_end, v_groups[q].at
            change[at : at + last - first] = 0.0
            for v in range(v_groups[q].first, v_groups[q].last):
                t, state = variables[v0 + v].template, states + variables[v0 + v].table
                start, n_states = v_kinds[t].start, v_kinds[t].entries
                norm = 0.0
                for k in range(n_states):
                    norm += mu[state + k]
                for k in range(n_states):
                    p = mu[state + k] / norm
                    is_truth = 1.0 if k == labels[examples[m].variables + v] else 0.0
                    if p != is_truth:
                        score = v_fixed[start + k]
                        if len(v_scores) > 0:
                            score += v_scores[state + k]
                        linear += p * losses[state + k] + (p - is_truth) * score
                        if v_block[start + k] >= 0:
                            change[at + v_block[start + k] - first] += is_truth - p
            add_row(v_features, examples[m].variable_row + v_groups[q].row, r_v, first, last, change, at, unit)
        for q in range(structures[s].factor_groups, structures[s + 1].factor_groups):
            first, last, at = f_groups[q].block, f_groups[q].block_end, f_groups[q].at
            change[at : at + last - first] = 0.0
            for c in range(f_groups[q].first, f_groups[q].last):
                t, tab = factors[f0 + c].template, factors[f0 + c].table
                start = f_kinds[t].start
                if held is not None and f_kinds[t].kind != TABLE:
                    linear += change_of_statistics(
                        f0 + c, tables + tab, examples[m].variables, at, first, factors, scope, f_kinds, slots, structured,
                        f_block, f_fixed, f_scores, labels, table, change, own, spare,
                    )  # fmt: skip
                    continue
                truth = 0
                for j in range(f_kinds[t].arity):
                    i = scope[factors[f0 + c].neighbours + j]
                    truth += slots[f_kinds[t].slots + j].stride * labels[examples[m].variables + i]
                for y in range(f_kinds[t].entries):
                    p = repaired[tab + y]
                    is_truth = 1.0 if y == truth else 0.0
                    if p != is_truth:
                        score = f_fixed[start + y]
                        if len(f_scores) > 0:
                            score += f_scores[tables + tab + y]
                        linear += (p - is_truth) * score
                        if f_block[start + y] >= 0:
                            change[at + f_block[start + y] - first] += is_truth - p
            add_row(f_features, examples[m].factor_row + f_groups[q].row, r_f, first, last, change, at, unit)
        total += weight[m] * (linear - 0.5 * penalty / rho)
    return total / n_examples


@inner
def _disagreement(
    c: int, v0: int, states: int, tables: int, variables: Any, factors: Any, scope: Any, kinds: Any, slots: Any, mu: Any,
    table: Any, copy: Any, gone: Any,
) -> float:  # fmt: skip
    """|mu_c(y_i) - mu_i(y_i)|^2 summed over the variables and states of factor c; its table is copied to its local place."""
    t, local = factors[c].template, factors[c].table
    for y in range(kinds[t].entries):
        copy[local + y] = table[tables + local + y]
    square = 0.0
    for j in range(kinds[t].arity):
        z = kinds[t].slots + j
        n_states, state = slots[z].states, states + variables[v0 + scope[factors[c].neighbours + j]].table
        for k in range(n_states):
            gone[k] = -mu[state + k]
        slot_sum(table, tables + local, slots[z].outer, n_states, slots[z].stride, gone, 0)
        for k in range(n_states):
            square += gone[k] * gone[k]
    return square


@inner
def _repair(
    c: int, v0: int, states: int, tables: int, variables: Any, factors: Any, scope: Any, kinds: Any, slots: Any, fixed: Any,
    scores: Any, mu: Any, table: Any, repaired: Any, target: Any, missing: Any,
) -> bool:  # fmt: skip
    """Move factor c's table onto its variables' marginals; the result at its local place in `repaired`."""
    t, local, at = factors[c].template, factors[c].table, factors[c].neighbours
    start, size, arity, slot0 = kinds[t].start, kinds[t].entries, kinds[t].arity, kinds[t].slots
    tab = tables + local
    for y in range(size):
        repaired[local + y] = max(table[tab + y], 0.0)
    for j in range(arity):
        n_states, stride = slots[slot0 + j].states, slots[slot0 + j].stride
        outer, z = slots[slot0 + j].outer, slots[slot0 + j].delta
        state = states + variables[v0 + scope[at + j]].table
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

    # The rank-one product of what is missing, unless it would use a forbidden joint state: then fill allowed states greedily.
    blocked = False
    for y in range(size):
        if fixed[start + y] == -np.inf or (len(scores) > 0 and scores[tab + y] == -np.inf):
            blocked = blocked or _rank_one(y, arity, slot0, slots, missing, left) > 0.0
    if not blocked:
        if size == 4 and arity == 2:
            for y in range(4):
                repaired[local + y] += missing[y >> 1] * missing[2 + (y & 1)] / left
        else:
            for y in range(size):
                repaired[local + y] += _rank_one(y, arity, slot0, slots, missing, left)
        return True
    for y in range(size):
        if not (fixed[start + y] == -np.inf or (len(scores) > 0 and scores[tab + y] == -np.inf)):
            room = left
            for j in range(arity):
                z = slot0 + j
                room = min(room, missing[slots[z].delta + (y // slots[z].stride) % slots[z].states])
            repaired[local + y] += room
            left -= room
            for j in range(arity):
                z = slot0 + j
                missing[slots[z].delta + (y // slots[z].stride) % slots[z].states] -= room
    return left <= 1e-12


@inner
def _rank_one(y: int, arity: int, slot0: int, slots: Any, missing: Any, left: float) -> float:
    """Entry y of the product of the missing marginals, each of sum `left`."""
    product = left
    for j in range(arity):
        z = slot0 + j
        product *= missing[slots[z].delta + (y // slots[z].stride) % slots[z].states] / left
    return product

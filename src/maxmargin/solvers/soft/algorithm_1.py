"""Algorithm 1 of the paper, as printed: random blocks, plain Frank-Wolfe steps, fixed rho.

O. Meshi, N. Srebro and T. Hazan, Efficient Training of Structured SVMs via Soft Constraints, AISTATS 2015, algorithm 1.

A block is a variable or a factor of one example, drawn uniformly. With dir = s - mu_a, s the vertex of the best (joint) state,

    gamma = clip( theta_a . dir / ( |Phi dir|^2 / (lam M) + kappa / rho ), 0, 1 )          lines 7 and 12, mended
    kappa = N_i |dir|^2 for a variable,  sum_{i in c} |A_ci dir|^2 for a factor
    mu_a <- mu_a + gamma dir,      w <- w - gamma / (lam M) Phi dir                         lines 14 and 15

Line 12 of the paper has a minus where the plus stands here, and both step sizes hide factors of M. The messages
delta = (mu_c - mu_i) / rho are read off the marginals when a block needs them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maxmargin.jit import inner, kernel
from maxmargin.problems.features import add_row, score_row
from maxmargin.problems.tables import slot_add, slot_sum


@kernel
def random_blocks(
    g: Any, v_features: Any, f_features: Any, w_v: Any, w_f: Any, mu: Any, table: Any, chosen_examples: Any, chosen_blocks: Any,
    lam: float, rho: float,
) -> None:  # fmt: skip
    """One Frank-Wolfe step on each drawn block; block a of an example is variable a, or factor a - n."""
    largest, n_examples = g.largest, len(g.weight)
    buffer, moved = np.empty(largest.buffer), np.empty(largest.buffer)
    value, delta = (
        np.empty(max(largest.table, largest.states)),
        np.empty(max(largest.slots, largest.states)),
    )
    examples, structures, weight, losses = g.examples, g.structures, g.weight, g.losses
    variables, v_kinds, v_block, v_fixed, v_groups = (
        g.variables,
        g.variable_kinds,
        g.variable_block,
        g.variable_fixed,
        g.variable_groups,
    )
    factors, f_kinds, f_block, f_fixed, f_groups = (
        g.factors,
        g.factor_kinds,
        g.factor_block,
        g.factor_fixed,
        g.factor_groups,
    )
    scope, slots, incident, v_scores, f_scores = g.scope, g.slots, g.incident, g.variable_scores, g.factor_scores
    for draw in range(len(chosen_examples)):
        m, a = chosen_examples[draw], chosen_blocks[draw]
        unit = weight[m] / (lam * n_examples)
        if unit == 0.0:
            continue
        s, states, tables = examples[m].structure, examples[m].states, examples[m].tables
        v0, f0 = structures[s].variables, structures[s].factors
        n = examples[m + 1].variables - examples[m].variables
        if a < n:  # a variable: theta_i = loss + w.phi_i + sum_c delta_ci
            q = structures[s].variable_groups
            while v_groups[q].last <= a:
                q += 1
            row = examples[m].variable_row + v_groups[q].row
            t, here = variables[v0 + a].template, states + variables[v0 + a].table
            start, size, degree = v_kinds[t].start, v_kinds[t].entries, variables[v0 + a].degree
            first, last = _block_range(v_block, start, size)
            score_row(v_features, row, w_v, first, last, buffer, 0)
            for k in range(size):
                delta[k] = -degree * mu[here + k]
            for e in range(variables[v0 + a].neighbours, variables[v0 + a].neighbours + degree):
                slot_sum(table, tables + incident[e].table, incident[e].outer, size, incident[e].stride, delta, 0)
            for k in range(size):
                b = v_block[start + k]
                value[k] = (
                    v_fixed[start + k] + losses[here + k] + delta[k] / rho + (buffer[b - first] if b >= 0 else 0.0)
                )
                if len(v_scores) > 0:
                    value[k] += v_scores[here + k]
            own, block, marginal, squares = unit * v_features.squared_norms[row], v_block, mu, float(degree)
        else:  # a factor: theta_c = w.phi_c - sum_i delta_ci
            c = a - n
            q = structures[s].factor_groups
            while f_groups[q].last <= c:
                q += 1
            row = examples[m].factor_row + f_groups[q].row
            t, here = factors[f0 + c].template, tables + factors[f0 + c].table
            start, size = f_kinds[t].start, f_kinds[t].entries
            first, last = _block_range(f_block, start, size)
            score_row(f_features, row, w_f, first, last, buffer, 0)
            for y in range(size):
                b = f_block[start + y]
                value[y] = f_fixed[start + y] + (buffer[b - first] if b >= 0 else 0.0)
                if len(f_scores) > 0:
                    value[y] += f_scores[here + y]
            for j in range(f_kinds[t].arity):
                z = f_kinds[t].slots + j
                state = states + variables[v0 + scope[factors[f0 + c].neighbours + j]].table
                for k in range(slots[z].states):
                    delta[k] = -mu[state + k]
                slot_sum(table, here, slots[z].outer, slots[z].states, slots[z].stride, delta, 0)
                slot_add(value, 0, slots[z].outer, slots[z].states, slots[z].stride, delta, 0, -1.0 / rho)
            own, block, marginal, squares = unit * f_features.squared_norms[row], f_block, table, 0.0

        best, high = 0, -np.inf
        for y in range(size):
            if value[y] > high:
                best, high = y, value[y]
        ascent = 0.0
        for y in range(size):
            if marginal[here + y] > 0.0:
                ascent += marginal[here + y] * (high - value[y])
        if ascent <= 0.0:
            continue
        for b in range(last - first):
            moved[b] = 0.0
        for y in range(size):
            value[y] = (1.0 if y == best else 0.0) - marginal[here + y]  # the direction, from here on
            if block[start + y] >= 0:
                moved[block[start + y] - first] += value[y]
        curvature = 0.0
        for b in range(last - first):
            curvature += own * moved[b] * moved[b]
        if a < n:
            for k in range(size):
                curvature += squares / rho * value[k] * value[k]
        else:
            for j in range(f_kinds[t].arity):
                z = f_kinds[t].slots + j
                for k in range(slots[z].states):
                    delta[k] = 0.0
                slot_sum(value, 0, slots[z].outer, slots[z].states, slots[z].stride, delta, 0)
                for k in range(slots[z].states):
                    curvature += delta[k] * delta[k] / rho
        gamma = min(1.0, ascent / curvature) if curvature > 0.0 else 1.0
        for y in range(size):
            marginal[here + y] += gamma * value[y]
        if a < n:
            add_row(v_features, row, w_v, first, last, moved, 0, -gamma * unit)
        else:
            add_row(f_features, row, w_f, first, last, moved, 0, -gamma * unit)


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

"""Factor tables that agree with given variable marginals.

`repair_table` moves one table onto its variables' marginals: scale it down, slot by slot, to at most their targets, then add
the rank-one product of what is missing. Where that would put mass on a forbidden joint state, allowed states are filled
greedily instead, which may fail.

`couple_tables` makes a start for the soft solver out of an edgeless solution. The variables keep their marginals; each
factor's table becomes the best point between two couplings of them, the one nearest to the truth (the truth repaired) and the
independent one, by exact line search on the dual, one factor after the other while the weights follow.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maxmargin.kernels import inner, kernel
from maxmargin.problems.features import add_row, score_row
from maxmargin.problems.layout import (
    F_ROW, F_SCOPE, F_TABLE, F_TEMPLATE, G_AT, G_BLOCK, G_BLOCK_END, G_FIRST, G_LAST, G_ROW, K_ARITY, K_SIZE, K_SLOTS, K_START,
    L_BUFFER, L_SLOTS, L_TABLES, P_BLOCK, P_STATE_I, P_STATE_J, S_FACTOR_GROUPS, S_FACTORS, S_VARIABLES, SLOT_DELTA, SLOT_OUTER, SLOT_STATES, SLOT_STRIDE, STATES,
    STRUCTURE, TABLES, V_STATE,
)  # fmt: skip
from maxmargin.problems.tables import slot_scale, slot_sum


@kernel
def couple_tables(g: Any, f_features: Any, w_f: Any, mu: Any, table: Any, lam: float) -> None:
    """Set all tables, which must hold the truth, and w_f, which must be 0, from the variables' marginals."""
    largest = g.largest
    buffer, moved = np.empty(largest[L_BUFFER]), np.empty(largest[L_BUFFER])
    near = np.empty(largest[L_TABLES])
    target, missing = np.empty(largest[L_SLOTS]), np.empty(largest[L_SLOTS])
    examples, structures, groups, weight, norms = g.examples, g.structures, g.factor_groups, g.weight, f_features.squared_norms
    variables, factors, scope, kinds, slots = g.variables, g.factors, g.scope, g.factor_kinds, g.slots
    blocks, fixed, scores, pairs = g.factor_block, g.factor_fixed, g.factor_scores, g.pairs
    for m in range(len(weight)):
        s, states, tables = examples[m, STRUCTURE], examples[m, STATES], examples[m, TABLES]
        v0, f0 = structures[s, S_VARIABLES], structures[s, S_FACTORS]
        unit = weight[m] / (lam * len(weight))
        for q in range(structures[s, S_FACTOR_GROUPS], structures[s + 1, S_FACTOR_GROUPS]):
            row, first, last, at = examples[m, F_ROW] + groups[q, G_ROW], groups[q, G_BLOCK], groups[q, G_BLOCK_END], groups[q, G_AT]
            score_row(f_features, row, w_f, first, last, buffer, at)
            moved[at : at + last - first] = 0.0
            own = unit * norms[row]
            for c in range(f0 + groups[q, G_FIRST], f0 + groups[q, G_LAST]):
                b = pairs[c, P_BLOCK + 3]
                if pairs[c, P_STATE_I] >= 0 and b >= 0 and pairs[c, P_BLOCK] + pairs[c, P_BLOCK + 1] + pairs[c, P_BLOCK + 2] == -3:
                    # Binary pairs with a weight for (1, 1) only: the best coupling has a closed form.
                    p_i, p_j = mu[states + pairs[c, P_STATE_I] + 1], mu[states + pairs[c, P_STATE_J] + 1]
                    tab = tables + factors[c, F_TABLE]
                    both = table[tab + 3] + (buffer[at - first + b] / own if own > 0.0 else 0.0)
                    both = min(min(p_i, p_j), max(max(0.0, p_i + p_j - 1.0), both))
                    step = both - table[tab + 3]
                    buffer[at - first + b] -= own * step
                    moved[at - first + b] += step
                    table[tab], table[tab + 1], table[tab + 2], table[tab + 3] = 1.0 - p_i - p_j + both, p_j - both, p_i - both, both
                elif repair_table(
                    c, v0, states, tables, variables, factors, scope, kinds, slots, fixed, scores, mu, table, near, target, missing
                ):
                    _mix(
                        c, tables, factors, kinds, slots, blocks, fixed, scores, own, at - first, target, near, table,
                        buffer, moved,
                    )  # fmt: skip
            add_row(f_features, row, w_f, first, last, moved, at, -unit)


@inner
def _mix(
    c: int, tables: int, factors: Any, kinds: Any, slots: Any, blocks: Any, fixed: Any, scores: Any, own: float, shift: int,
    target: Any, near: Any, table: Any, buffer: Any, moved: Any,
) -> None:  # fmt: skip
    """Move factor c's table from the truth to near + t (product - near), with the best t; `target` holds the marginals."""
    t, local = factors[c, F_TEMPLATE], factors[c, F_TABLE]
    start, size, arity, slot0 = kinds[t, K_START], kinds[t, K_SIZE], kinds[t, K_ARITY], kinds[t, K_SLOTS]
    tab = tables + local
    # First to `near`, which the scores below must already feel.
    for y in range(size):
        step = near[local + y] - table[tab + y]
        b = blocks[start + y]
        if b >= 0 and step != 0.0:
            buffer[shift + b] -= own * step
            moved[shift + b] += step
    # Then along the direction to the product, which is kept in `table` until the step is known.
    slope, curvature = 0.0, 0.0
    for y in range(size):
        product = 1.0
        for j in range(arity):
            z = slot0 + j
            product *= target[slots[z, SLOT_DELTA] + (y // slots[z, SLOT_STRIDE]) % slots[z, SLOT_STATES]]
        direction = product - near[local + y]
        table[tab + y] = direction
        if direction != 0.0:
            slope += direction * fixed[start + y]
            if len(scores) > 0:
                slope += direction * scores[tab + y]
            b = blocks[start + y]
            if b >= 0:
                slope += direction * buffer[shift + b]
                # Joint states that share a block could cancel; counting them apart only makes the step shorter.
                curvature += own * abs(direction)
    step = 0.0
    if slope > 0.0:
        step = min(1.0, slope / curvature) if curvature > 0.0 else 1.0
    for y in range(size):
        direction = table[tab + y]
        table[tab + y] = near[local + y] + step * direction
        b = blocks[start + y]
        if b >= 0 and step > 0.0:
            buffer[shift + b] -= own * step * direction
            moved[shift + b] += step * direction


@inner
def repair_table(
    c: int, v0: int, states: int, tables: int, variables: Any, factors: Any, scope: Any, kinds: Any, slots: Any, fixed: Any,
    scores: Any, mu: Any, table: Any, repaired: Any, target: Any, missing: Any,
) -> bool:  # fmt: skip
    """Move factor c's table onto its variables' marginals; the result at its local place in `repaired`."""
    t, local, at = factors[c, F_TEMPLATE], factors[c, F_TABLE], factors[c, F_SCOPE]
    start, size, arity, slot0 = kinds[t, K_START], kinds[t, K_SIZE], kinds[t, K_ARITY], kinds[t, K_SLOTS]
    tab = tables + local
    for y in range(size):
        repaired[local + y] = max(table[tab + y], 0.0)
    for j in range(arity):
        n_states, stride = slots[slot0 + j, SLOT_STATES], slots[slot0 + j, SLOT_STRIDE]
        outer, z = slots[slot0 + j, SLOT_OUTER], slots[slot0 + j, SLOT_DELTA]
        state = states + variables[v0 + scope[at + j], V_STATE]
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
        n_states, z = slots[slot0 + j, SLOT_STATES], slots[slot0 + j, SLOT_DELTA]
        for k in range(n_states):
            missing[z + k] = 0.0
        slot_sum(repaired, local, slots[slot0 + j, SLOT_OUTER], n_states, slots[slot0 + j, SLOT_STRIDE], missing, z)
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
                room = min(room, missing[slots[z, SLOT_DELTA] + (y // slots[z, SLOT_STRIDE]) % slots[z, SLOT_STATES]])
            repaired[local + y] += room
            left -= room
            for j in range(arity):
                z = slot0 + j
                missing[slots[z, SLOT_DELTA] + (y // slots[z, SLOT_STRIDE]) % slots[z, SLOT_STATES]] -= room
    return left <= 1e-12


@inner
def _rank_one(y: int, arity: int, slot0: int, slots: Any, missing: Any, left: float) -> float:
    """Entry y of the product of the missing marginals, each of sum `left`."""
    product = left
    for j in range(arity):
        z = slot0 + j
        product *= missing[slots[z, SLOT_DELTA] + (y // slots[z, SLOT_STRIDE]) % slots[z, SLOT_STATES]] / left
    return product

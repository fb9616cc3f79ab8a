"""A start for binary pairs: tables that agree with the variables' marginals, and small weights for them.

After a short edgeless run the variables have marginals of their own. A pair of binary variables with a weight for (1, 1) only
has one degree of freedom left, P(1, 1), in a range that the two marginals allow; `couple_pairs` sets it to the best value for
the dual, in closed form, one factor after the other while the weights follow.
"""

from __future__ import annotations

from typing import Any

from maxmargin.jit import kernel
from maxmargin.problems.layout import P_BLOCK, P_STATE_I, P_STATE_J, GraphArrays


def can_couple(arrays: GraphArrays, n_factor_features: int) -> bool:
    """Whether every factor is a pair of binary variables with one weight, that of (1, 1)."""
    p = arrays.pairs
    alone = (p[:, P_BLOCK : P_BLOCK + 3] == -1).all() and (p[:, P_BLOCK + 3] >= 0).all()
    return bool(n_factor_features == 1 and (p[:, P_STATE_I] >= 0).all() and alone)


@kernel
def couple_pairs(g: Any, dual: Any, feature: float, w_f: Any, lam: float) -> None:
    """Set all tables, which must hold the truth, and w_f, which must be 0; `feature` is the factors' constant feature."""
    examples, structures, weight, factors, pairs = g.examples, g.structures, g.weight, g.factors, g.pairs
    mu, table = dual.mu, dual.table
    for m in range(len(weight)):
        states, tables, f0 = examples[m].states, examples[m].tables, structures[examples[m].structure].factors
        unit = weight[m] / (lam * len(weight))
        if unit == 0.0:
            continue
        for c in range(f0, f0 + examples[m + 1].factors - examples[m].factors):
            i, j = mu[states + pairs[c, P_STATE_I] + 1], mu[states + pairs[c, P_STATE_J] + 1]
            tab, b = tables + factors[c].table, pairs[c, P_BLOCK + 3]
            both = table[tab + 3] + w_f[0, b] / (unit * feature)
            both = min(min(i, j), max(max(0.0, i + j - 1.0), both))
            w_f[0, b] -= unit * feature * (both - table[tab + 3])
            table[tab], table[tab + 1], table[tab + 2], table[tab + 3] = 1.0 - i - j + both, j - both, i - both, both

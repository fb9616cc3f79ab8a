"""The block of one variable: a number where it has two states, a projection onto the simplex where it has more."""

from __future__ import annotations

from typing import Any

import numpy as np

from maxmargin.jit import inner


@inner
def best_mass(now: float, slope: float, curvature: float) -> float:
    """The mass of the second of two states at the block's maximum, from what it has now; a forbidden state keeps its mass."""
    if slope == -np.inf or slope == np.inf:
        return now
    if curvature > 0.0:
        return min(1.0, max(0.0, now + slope / curvature))
    if slope == 0.0:
        return now
    return 1.0 if slope > 0.0 else 0.0


@inner
def project_block(
    n_states: int, own: float, pull: float, high: float, sharing: Any, first: int, mu: Any, at: int, theta: Any, flat: Any
) -> None:  # fmt: skip
    """Argmax over the simplex of ``theta . p - 1/2 sum_k c_k (p_k - mu_k)^2``, into `flat`; theta is used up.

    c_k = own * sharing[first + k] + pull; `high` is the largest theta, and a forbidden state has -inf. Michelot's method: drop the
    states that would become negative until none does. The level, which mass is taken down to, is at least what leaves each state
    with a mass of 1: most states are below it, and dropped before the first round.
    """
    floor = max(1e-3 * own, 1e-12)
    least, before, cost, inverse = -np.inf, -1.0, 0.0, 0.0
    # theta becomes mu + theta / c, and flat 1 / c; a dropped state has a flat of 0.
    for k in range(n_states):
        flat[k] = 0.0
        if theta[k] != -np.inf:
            if sharing[first + k] != before:
                before = sharing[first + k]
                cost = max(own * before + pull, floor)
                inverse = 1.0 / cost
            flat[k] = inverse
            theta[k] = mu[at + k] + (theta[k] - high) * inverse
            least = max(least, (theta[k] - 1.0) * cost)
    total, inverse_sum = -1.0, 0.0
    for k in range(n_states):
        if flat[k] > 0.0:
            if theta[k] > least * flat[k]:
                total += theta[k]
                inverse_sum += flat[k]
            else:
                flat[k] = 0.0
    level, dropping = 0.0, True
    while dropping:
        dropping = False
        level = total / inverse_sum
        for k in range(n_states):
            if flat[k] > 0.0 and theta[k] <= level * flat[k]:
                total -= theta[k]
                inverse_sum -= flat[k]
                flat[k] = 0.0
                dropping = True
    mass = 0.0
    for k in range(n_states):
        if flat[k] > 0.0:
            flat[k] = max(theta[k] - level * flat[k], 0.0)
            mass += flat[k]
    # Where c is tiny, mu drowns in theta / c, and what is left sums to 1 only roughly; a dual point's masses must sum to 1.
    for k in range(n_states):
        if flat[k] > 0.0:
            flat[k] /= mass

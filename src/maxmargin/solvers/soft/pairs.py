"""The block of a pair of binary variables, whose four joint states fit into registers."""

from __future__ import annotations

import numpy as np

from maxmargin.jit import inner


@inner
def best_and_worst(
    p0: float, p1: float, p2: float, p3: float, s0: float, s1: float, s2: float, s3: float
) -> tuple[int, float, int, float, float]:
    """Of joint states with masses p and scores s: the best and its score; the worst that has mass, its score and its mass."""
    best, high = 0, s0
    if s1 > high:
        best, high = 1, s1
    if s2 > high:
        best, high = 2, s2
    if s3 > high:
        best, high = 3, s3
    worst, low, mass = 0, np.inf, 0.0
    if p0 > 0.0:
        low, mass = s0, p0
    if p1 > 0.0 and s1 < low:
        worst, low, mass = 1, s1, p1
    if p2 > 0.0 and s2 < low:
        worst, low, mass = 2, s2, p2
    if p3 > 0.0 and s3 < low:
        worst, low, mass = 3, s3, p3
    return best, high, worst, low, mass

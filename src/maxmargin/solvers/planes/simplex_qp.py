"""The quadratic program of cutting-plane training: a concave quadratic over the simplex.

K planes with Gram matrix G (psi_a . psi_b) and constants ell; the dual of the 1-slack problem (section 3.2 of its paper) is

    max_alpha  f(alpha) = ell . alpha - kappa/2 alpha' G alpha,      alpha >= 0,  sum alpha = 1
    v   = ell - kappa G alpha                                        the slopes of f
    gap = max_a v_a - alpha . v                                      f is within it of the best value

A primal active-set method, in the manner of Wolfe's for the nearest point of a polytope. The *support* S holds the planes with
mass. Each round lets the plane of largest slope into S, then goes to the best point of S, sum alpha = 1; whenever a mass would
become negative on the way, the step ends there and that plane leaves S. The best point is found from the residual, so that every
round also refines what rounding spoiled before:

    (H + shift) d = v_S + mu 1,   sum d = 0,       H = kappa G_SS + c 1 1',   R' R = H + shift
    t = min( v_S . d / kappa d' G_SS d,  the largest with alpha_S + t d >= 0 )

c 1 1' changes nothing for a d of sum 0, and makes H definite if no plane of S is an affine combination of the others. If one is,
`shift`, a rounding error's worth of the diagonal, keeps the factor definite; d is then large along the combination, where f is
linear, and t carries it to the border: a dependent plane leaves S without being looked for. R is upper triangular; a plane is
appended as its last column, and one is removed by Givens rotations, which never lose definiteness.

Where rounding leaves d no ascent, mass moves from the worst plane of S to the best instead, which needs no factor.

Chosen by measurement (benchmarks/quadratic.py: 3475 programs of nine recorded runs, of 2 to 1000 planes, to 1e-8 of the largest
ell). None failed; a program of 200 to 499 planes took 0.11 ms in the median from the last answer, and 2.6 ms from scratch. Pairwise
steps alone took 60 times as long as the former, and 8 programs were not done after 20,000 steps. PIQP, DAQP, HiGHS, OSQP and
Clarabel, all from scratch, took 20, 33, 38, 52 and 107 ms; of the 317 programs that they were given HiGHS failed on 8, DAQP and
OSQP on one each.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maxmargin.jit import inner, kernel

#: Share of the diagonal of H that is added to it.
SHIFT = 1e-13
#: Rounding of a number of size 1.
EPS = 2.0**-52
#: Factor by which the diagonal under alpha may move away from c before H is factored anew.
DRIFT = 100.0
#: Rounds without a gain in f or a smaller gap after which rounding is all there is.
PATIENCE = 10
#: Most rounds, for each plane. Recorded programs took about one a plane from scratch, and at most 19 in all from the last answer.
ROUNDS = 20


@kernel
def solve_simplex_qp(gram: Any, n: int, ell: Any, kappa: float, alpha: Any, tol: float) -> float:
    """Maximise f over the simplex from a feasible alpha, in place; returns the gap.

    Parameters
    ----------
    gram : (>= n, >= n) float64, C-contiguous
        G is its leading block, symmetric and positive semi-definite but for rounding.
    n : int
        The number of planes, K.
    ell, alpha : (>= n,) float64
    kappa : float
    tol : float
        The gap to stop at. Where rounding does not allow so small a gap, alpha is as good as can be, and the gap says how good.
    """
    v, direction, curved, best_alpha = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    support, place = np.empty(n, np.int64), np.full(n, -1)
    factor, work = np.empty((n, n)), np.empty(n)
    size, constant = _build(n, gram, kappa, alpha, support, place, factor, work)
    best_gap, best_value, stalled = np.inf, -np.inf, 0
    for _ in range(ROUNDS * (n + 10)):
        top, gap, value, weight, rounding = _slopes(n, gram, ell, kappa, alpha, size, support, v)
        if not gap > max(tol, rounding):
            # NaN goes out here, too.
            return 0.0 if gap < 0.0 else float(gap)
        stalled += 1
        if gap < 0.9 * best_gap or value > best_value + rounding:
            stalled = 0
        best_value = max(best_value, value)
        if gap < best_gap:
            best_gap = gap
            best_alpha[:n] = alpha[:n]
        if stalled > PATIENCE:
            break
        if not constant <= DRIFT * weight <= DRIFT * DRIFT * constant and weight > 0.0:
            size, constant = _build(n, gram, kappa, alpha, support, place, factor, work)
        if place[top] < 0:
            size = _append(top, size, gram, kappa, constant, support, place, factor, work)
        size, moved = _settle(size, gram, kappa, alpha, v, support, place, factor, work, direction, curved)
        if not moved:
            _move_pair(top, n, gram, kappa, alpha, v)
            size, constant = _build(n, gram, kappa, alpha, support, place, factor, work)
        _normalise(size, support, alpha)
    alpha[:n] = best_alpha[:n]
    return float(best_gap)


# ------------------------------------------------------------------------------------------------------- kernels


@inner
def _slopes(
    n: int, gram: Any, ell: Any, kappa: float, alpha: Any, size: int, support: Any, v: Any
) -> tuple[int, float, float, float, float]:
    """The slopes v, afresh; returns the steepest plane, the gap, f, the mean diagonal, how much of the gap may be rounding."""
    for a in range(n):
        v[a] = 0.0
    for k in range(size):
        b = support[k]
        mass = kappa * alpha[b]
        for a in range(n):
            v[a] -= mass * gram[b, a]
    top, mean, value, weight = 0, 0.0, 0.0, 0.0
    for a in range(n):
        v[a] += ell[a]
        if v[a] > v[top]:
            top = a
    rounding = abs(ell[top])
    for k in range(size):
        b = support[k]
        mean += alpha[b] * v[b]
        value += 0.5 * alpha[b] * (ell[b] + v[b])
        weight += kappa * alpha[b] * gram[b, b]
        rounding += alpha[b] * (kappa * abs(gram[b, top]) + abs(ell[b]) + abs(ell[b] - v[b]))
    return top, v[top] - mean, value, weight, EPS * rounding


@inner
def _build(
    n: int, gram: Any, kappa: float, alpha: Any, support: Any, place: Any, factor: Any, work: Any
) -> tuple[int, float]:
    """Support and factor of a given alpha; returns the size of the support, and c."""
    weighted, mean = 0.0, 0.0
    for a in range(n):
        weighted += kappa * alpha[a] * gram[a, a]
        mean += kappa * gram[a, a] / n
    # As large as the planes that matter: the diagonal may span many orders of magnitude, and c must not drown its smaller part.
    constant = weighted if weighted > 0.0 else mean if mean > 0.0 else 1.0
    size = 0
    for a in range(n):
        place[a] = -1
        if alpha[a] > 0.0:
            size = _append(a, size, gram, kappa, constant, support, place, factor, work)
        else:
            alpha[a] = 0.0
    return size, constant


@inner
def _append(
    a: int, size: int, gram: Any, kappa: float, constant: float, support: Any, place: Any, factor: Any, work: Any
) -> int:
    """Let a plane into the support: solve R' r = H_Sa for the factor's next column."""
    for k in range(size):
        work[k] = kappa * gram[a, support[k]] + constant
    diagonal = kappa * gram[a, a] + constant
    pivot = diagonal
    for k in range(size):
        entry = work[k] / factor[k, k]
        factor[k, size] = entry
        pivot -= entry * entry
        for q in range(k + 1, size):
            work[q] -= entry * factor[k, q]
    factor[size, size] = np.sqrt(max(pivot, 0.0) + SHIFT * diagonal)
    support[size], place[a] = a, size
    return size + 1


@inner
def _remove(k: int, size: int, support: Any, place: Any, factor: Any) -> int:
    """Take the k-th plane out of the support: its column goes, and rotations of rows make the rest triangular again."""
    place[support[k]] = -1
    for q in range(k, size - 1):
        support[q] = support[q + 1]
        place[support[q]] = q
    for p in range(size):
        for q in range(max(k, p - 1), size - 1):
            factor[p, q] = factor[p, q + 1]
    for p in range(k, size - 1):
        # Row p now begins at its diagonal, and row p + 1 one to the left of it.
        upper, lower = factor[p, p], factor[p + 1, p]
        length = np.hypot(upper, lower)
        cosine, sine = upper / length, lower / length
        factor[p, p] = length
        for q in range(p + 1, size - 1):
            above, below = factor[p, q], factor[p + 1, q]
            factor[p, q] = cosine * above + sine * below
            factor[p + 1, q] = cosine * below - sine * above
    return size - 1


@inner
def _settle(
    size: int, gram: Any, kappa: float, alpha: Any, v: Any, support: Any, place: Any, factor: Any, work: Any,
    direction: Any, curved: Any,
) -> tuple[int, bool]:  # fmt: skip
    """Go to the best point of the support, dropping planes on the way; returns its size, and if any mass moved."""
    moved = False
    while size > 1:
        _ascent(size, v, support, factor, work, direction)
        slope, curvature, longest, blocking = 0.0, 0.0, np.inf, -1
        for k in range(size):
            curved[k] = 0.0
        for k in range(size):
            b, d = support[k], direction[k]
            slope += d * v[b]
            for q in range(size):
                curved[q] += d * gram[b, support[q]]
            if d < 0.0 and alpha[b] < -d * longest:
                longest, blocking = alpha[b] / -d, k
        for k in range(size):
            curvature += kappa * direction[k] * curved[k]
        if not 0.0 < slope < np.inf:
            return size, moved
        step = longest
        if curvature * longest > slope:
            step, blocking = slope / curvature, -1
        if step > 0.0:
            moved = True
        for k in range(size):
            b = support[k]
            alpha[b] += step * direction[k]
            v[b] -= kappa * step * curved[k]
        if blocking < 0:
            return size, moved
        alpha[support[blocking]] = 0.0
        for k in range(size - 1, -1, -1):
            # Others that came to the border with it; a step of 0 is blocked by the newcomer alone.
            b = support[k]
            if alpha[b] <= EPS * step * abs(direction[k]):
                alpha[b] = 0.0
                size = _remove(k, size, support, place, factor)
    return size, moved


@inner
def _ascent(size: int, v: Any, support: Any, factor: Any, work: Any, direction: Any) -> None:
    """The d of sum 0 that solves (H + shift) d = v_S + mu 1."""
    ones, mean = work, 0.0
    for k in range(size):
        mean += v[support[k]] / size
    for k in range(size):
        direction[k], ones[k] = v[support[k]] - mean, 1.0
    # With x = R^-T v and y = R^-T 1, d = R^-1 (x + mu y), and 1 . d = y . (x + mu y).
    across, along = 0.0, 0.0
    for k in range(size):
        x, y = direction[k] / factor[k, k], ones[k] / factor[k, k]
        direction[k], ones[k] = x, y
        across += x * y
        along += y * y
        for q in range(k + 1, size):
            direction[q] -= x * factor[k, q]
            ones[q] -= y * factor[k, q]
    for k in range(size - 1, -1, -1):
        x = direction[k] - across / along * ones[k]
        for q in range(k + 1, size):
            x -= direction[q] * factor[k, q]
        direction[k] = x / factor[k, k]


@inner
def _move_pair(top: int, n: int, gram: Any, kappa: float, alpha: Any, v: Any) -> None:
    """Move mass from the worst plane that has some to the best, as far as f grows."""
    worst = -1
    for a in range(n):
        if alpha[a] > 0.0 and (worst < 0 or v[a] < v[worst]):
            worst = a
    slope = v[top] - v[worst]
    curvature = kappa * (gram[top, top] + gram[worst, worst] - 2.0 * gram[top, worst])
    step = alpha[worst]
    if curvature * step > slope:
        step = slope / curvature
    if top != worst:
        alpha[top] += step
        alpha[worst] -= step


@inner
def _normalise(size: int, support: Any, alpha: Any) -> None:
    total = 0.0
    for k in range(size):
        total += alpha[support[k]]
    for k in range(size):
        alpha[support[k]] /= total

"""The programme of cutting planes where some weights have a sign: w_j >= 0 for some coordinates j, w_j <= 0 for others.

With J the coordinates that have a sign s_j, and v = sum_k alpha_k psi_k,

    min_w  lam/2 |w|^2 + max_k (ell_k - w . psi_k)     such that  s_j w_j >= 0 for j in J

has the dual

    D(alpha) = ell . alpha - 1/(2 lam) |[v]|^2,        [v]_j = s_j max(s_j v_j, 0) for j in J, and v_j elsewhere
    w(alpha) = [v] / lam

since lam/2 |w|^2 - w . v is least at w = [v] / lam, where it is -1/(2 lam) |[v]|^2. So any masses still give a lower bound of P,
and weights that have their signs.

D is concave and piecewise quadratic. With P_kj = s_j psi_kj (K, |J|), G = Psi Psi' and t = alpha' P,

    D(alpha) = ell . alpha - kappa/2 ( alpha' G alpha - |min(t, 0)|^2 ),      kappa = 1 / lam
    slopes   = ell - kappa ( G alpha - P min(t, 0) ),                         gap = max_k slopes_k - alpha . slopes

Around alpha the coordinates A with t < 0 are cut off, and D is the programme with G - P_A P_A' in the place of G, which
simplex_qp.py solves. That solution is a direction of ascent, Newton's; along it the best step is found exactly, by the places where
coordinates change sides. Few rounds are enough, since A changes little from one programme to the next. If rounding leaves no
ascent, the step goes towards the plane of largest slope instead (Frank-Wolfe), which always gains.

P is dense: K |J| numbers, and a round takes some K^2 |J| operations. That is little for pairs of labels, and for features it is
meant for thousands, not for millions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.solvers.planes.mean_plane import MeanPlane
from maxmargin.solvers.planes.simplex_qp import solve_simplex_qp

#: Most rounds: Newton's take a handful, and a programme that is left early still has a true bound.
_ROUNDS = 200
#: Rounds without a smaller gap after which rounding is all there is.
_PATIENCE = 20
#: Share of the terms of a slope that is rounding.
_ROUNDING = 1e-14


class Signs:
    """The coordinates that have a sign, and which.

    Parameters
    ----------
    signs : int array (size,)
        1 for a weight that may not be negative, -1 for one that may not be positive, 0 for the others.
    """

    def __init__(self, signs: NDArray[Any]) -> None:
        self.at = np.flatnonzero(signs)
        self.sign = np.asarray(signs, np.float64)[self.at]
        self.place = np.full(len(signs), -1, np.int64)
        self.place[self.at] = np.arange(len(self.at))

    def row(self, index: NDArray[np.int64] | None, value: NDArray[np.float64]) -> NDArray[np.float64]:
        """The coordinates of a plane that have a sign, each times its sign."""
        if index is None:
            return np.asarray(value[self.at] * self.sign)
        out = np.zeros(len(self.at))
        place = self.place[index]
        kept = place >= 0
        out[place[kept]] = value[kept]
        return np.asarray(out * self.sign)

    def of_plane(self, plane: MeanPlane) -> NDArray[np.float64]:
        """The same of a plane."""
        return self.row(plane.index, plane.value)

    def project(self, w: NDArray[np.float64]) -> None:
        """Set the weights of the wrong sign to 0, in place."""
        w[self.at] = self.sign * np.maximum(self.sign * w[self.at], 0.0)


def solve_signed_qp(
    gram: NDArray[np.float64],
    signed: NDArray[np.float64],
    ell: NDArray[np.float64],
    kappa: float,
    alpha: NDArray[np.float64],
    tol: float,
) -> float:
    """Maximise D over the simplex from a feasible alpha, in place; returns the gap.

    Parameters
    ----------
    gram : array (K, K)
        G.
    signed : array (K, J)
        P.
    ell, alpha : arrays (K,)
    kappa : float
    tol : float
        The gap to stop at.
    """
    best, best_gap, stalled = alpha.copy(), np.inf, 0
    for _ in range(_ROUNDS):
        slopes, cut = _slopes(gram, signed, ell, kappa, alpha)
        gap = float(slopes.max() - slopes @ alpha)
        if gap < best_gap:
            best[:], best_gap, stalled = alpha, gap, 0
        else:
            stalled += 1
        if gap <= max(tol, _ROUNDING * float(np.abs(ell).max())) or stalled > _PATIENCE:
            break
        own = signed[:, cut]
        target = alpha.copy()
        solve_simplex_qp(gram - own @ own.T, len(ell), ell, kappa, target, 0.1 * max(tol, 0.0))
        if not _step(gram, signed, ell, kappa, alpha, target - alpha):
            vertex = -alpha
            vertex[int(slopes.argmax())] += 1.0
            if not _step(gram, signed, ell, kappa, alpha, vertex):
                break
    alpha[:] = best
    return max(best_gap, 0.0)


def _slopes(
    gram: NDArray[np.float64],
    signed: NDArray[np.float64],
    ell: NDArray[np.float64],
    kappa: float,
    alpha: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The slopes of D, and which coordinates are cut off."""
    t = alpha @ signed
    return ell - kappa * (gram @ alpha - signed @ np.minimum(t, 0.0)), t < 0.0


def _step(
    gram: NDArray[np.float64],
    signed: NDArray[np.float64],
    ell: NDArray[np.float64],
    kappa: float,
    alpha: NDArray[np.float64],
    direction: NDArray[np.float64],
) -> bool:
    """Go to the best point on the way from alpha to alpha + direction, both in the simplex; returns whether there is a gain."""
    t, q = alpha @ signed, direction @ signed
    linear = float(ell @ direction - kappa * (direction @ (gram @ alpha)))
    curve = kappa * float(direction @ (gram @ direction))

    def slope(s: float) -> float:
        return linear - s * curve + kappa * float(q @ np.minimum(t + s * q, 0.0))

    if not slope(0.0) > 0.0:
        return False
    step = 1.0
    if slope(1.0) < 0.0:
        # The slope falls along a line between places where a coordinate changes sides.
        with np.errstate(divide="ignore", invalid="ignore"):
            places = -t / q
        places = np.concatenate([[0.0], np.sort(places[(places > 0.0) & (places < 1.0)]), [1.0]])
        low, high = 0, len(places) - 1
        while high - low > 1:
            middle = (low + high) // 2
            if slope(float(places[middle])) > 0.0:
                low = middle
            else:
                high = middle
        one, two = float(places[low]), float(places[high])
        above, below = slope(one), slope(two)
        step = one + (two - one) * above / (above - below) if above > below else one
    if step <= 0.0:
        return False
    alpha += step * direction
    np.maximum(alpha, 0.0, out=alpha)
    alpha /= alpha.sum()
    return True

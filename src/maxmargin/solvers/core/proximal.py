"""Accelerated proximal steps: what keeps coordinate ascent fast when C is large.

Large C couples the examples through w so strongly that coordinate ascent crawls. Then the passes work on

    min_w  P(w) + kappa/2 |w - c|^2,       w = (lam w(mu) + kappa c) / (lam + kappa)

which is as easy as a small C, and the centre c follows the iterates with Nesterov's momentum every few passes (accelerated
proximal coordinate ascent, Shalev-Shwartz and Zhang 2014; "Catalyst", Lin, Mairal and Harchaoui 2015). Certificates are for P
itself throughout: any w bounds it from above, and any dual point mu from below, by f(mu) = linear - lam/2 |w(mu)|^2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from maxmargin.problems.factor_graphs import FactorGraphs
from maxmargin.solvers.core.run import Run, State


@dataclass
class ProximalState(State):
    """Weights, the centre and where it was last, the best weights and the best dual point, each in two matrices."""

    w_v: NDArray[np.float64]
    w_f: NDArray[np.float64]
    best_v: NDArray[np.float64]
    best_f: NDArray[np.float64]
    dual_v: NDArray[np.float64]
    dual_f: NDArray[np.float64]
    centre_v: NDArray[np.float64]
    centre_f: NDArray[np.float64]
    last_v: NDArray[np.float64]
    last_f: NDArray[np.float64]
    lam: float
    momentum: float = field(default=1.0, kw_only=True)
    dual_linear: float = field(default=0.0, kw_only=True)

    @staticmethod
    def zeros(problem: FactorGraphs) -> dict[str, Any]:
        """All of these matrices at zero."""
        w_v, w_f = problem.working_weights()
        pairs = {f"{name}_v": np.zeros_like(w_v) for name in ("w", "best", "dual", "centre", "last")}
        return pairs | {f"{name}_f": np.zeros_like(w_f) for name in ("w", "best", "dual", "centre", "last")}


P = TypeVar("P", bound=ProximalState)


class ProximalRun(Run[P]):
    """A run with a centre; `step_lam` is lam + kappa, or lam where no proximal term is needed."""

    problem: FactorGraphs
    step_lam: float

    def move_centre(self, now: P) -> None:
        """Nesterov's step: c <- w + beta (w - last w); started anew when it points against the way the weights go."""
        share = self.lam / self.step_lam
        against = self.problem.inner(
            (now.centre_v - now.w_v, now.centre_f - now.w_f), (now.w_v - now.last_v, now.w_f - now.last_f)
        )
        if against > 0.0:
            now.momentum = 1.0
        following = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * now.momentum**2))
        beta = min((now.momentum - 1.0) / following, (1.0 - math.sqrt(share)) / (1.0 + math.sqrt(share)))
        now.momentum = following
        for w, centre, last in ((now.w_v, now.centre_v, now.last_v), (now.w_f, now.centre_f, now.last_f)):
            moved = w + beta * (w - last)
            last[:] = w
            w += (1.0 - share) * (moved - centre)
            centre[:] = moved

    def raise_dual(self, now: P, linear: float, r_v: NDArray[np.float64], r_f: NDArray[np.float64]) -> None:
        """Move the best dual point towards the new one as far as f grows.

        Both are feasible, so everything between them is, and f(mu) = linear - lam/2 |w(mu)|^2 is known from the two
        ends. The first end is the truth, where both parts are 0: the bound is never below 0.
        """
        d_v, d_f = r_v - now.dual_v, r_f - now.dual_f
        inner = self.problem.inner
        slope = linear - now.dual_linear - self.lam * inner((now.dual_v, now.dual_f), (d_v, d_f))
        curvature = self.lam * inner((d_v, d_f), (d_v, d_f))
        if slope <= 0.0:
            step = 0.0
        else:
            step = min(1.0, slope / curvature) if curvature > 0.0 else 1.0
        now.dual_v += step * d_v
        now.dual_f += step * d_f
        now.dual_linear += step * (linear - now.dual_linear)
        now.dual = max(now.dual, now.dual_linear - self.regulariser(now.dual_v, now.dual_f))

    def regulariser(self, w_v: NDArray[np.float64], w_f: NDArray[np.float64]) -> float:
        """lam/2 |w|^2."""
        return self.lam / 2.0 * self.problem.inner((w_v, w_f), (w_v, w_f))

    def mean(self, values: NDArray[np.float64]) -> float:
        """Weighted mean over examples."""
        return float((self.problem.arrays.weight * values).sum()) / len(values)

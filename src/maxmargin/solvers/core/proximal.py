"""Accelerated proximal steps: what keeps coordinate ascent fast when C is large.

Large C couples the examples through w so strongly that coordinate ascent crawls. Then the passes work on

    min_w  P(w) + kappa/2 |w - c|^2,       w = (lam w(mu) + kappa c) / (lam + kappa)

which is as easy as a small C, and the centre c follows the iterates with Nesterov's momentum every few passes (accelerated
proximal coordinate ascent, Shalev-Shwartz and Zhang 2014; "Catalyst", Lin, Mairal and Harchaoui 2015). Certificates are for P
itself throughout: any w bounds it from above, and any dual point mu from below (dual_run.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from maxmargin.jit import kernel, reordering
from maxmargin.parallel.threads import map_rows
from maxmargin.solvers.core.dual_run import DualRun, DualState


@dataclass
class ProximalState(DualState):
    """The same, with the centre and where it was last."""

    matrices = (*DualState.matrices, "centre", "last")

    centre_v: NDArray[np.float64]
    centre_f: NDArray[np.float64]
    last_v: NDArray[np.float64]
    last_f: NDArray[np.float64]
    lam: float
    momentum: float = field(default=1.0, kw_only=True)


P = TypeVar("P", bound=ProximalState)


class ProximalRun(DualRun[P]):
    """A run with a centre; `step_lam` is lam + kappa, or lam where no proximal term is needed."""

    step_lam: float

    def move_centre(self, now: P) -> None:
        """Nesterov's step: c <- w + beta (w - last w); started anew when it points against the way the weights go."""
        share = self.lam / self.step_lam
        sides = (
            (now.w_v, now.centre_v, now.last_v, self.problem.variable_features),
            (now.w_f, now.centre_f, now.last_f, self.problem.factor_features),
        )
        against = 0.0
        for w, centre, last, features in sides:
            (w_one, w_other), (centre_one, _), (_, last_other) = map(features.halves, (w, centre, last))
            parts = centre_one, w_one, w_other, last_other

            def product(begin: int, end: int, parts: Any = parts) -> float:
                return float(product_of_ways(*(one[begin:end] for one in parts)))

            against += sum(map_rows(product, w_one.shape, self.threads))
        if against > 0.0:
            now.momentum = 1.0
        following = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * now.momentum**2))
        beta = min((now.momentum - 1.0) / following, (1.0 - math.sqrt(share)) / (1.0 + math.sqrt(share)))
        now.momentum = following
        for w, centre, last, _ in sides:

            def go(begin: int, end: int, parts: Any = (w, centre, last)) -> None:
                move(*(one[begin:end] for one in parts), beta, share)

            map_rows(go, w.shape, self.threads)


# ------------------------------------------------------------------------------------------------------- kernels


@kernel
def product_of_ways(centre: Any, w: Any, w_other: Any, last: Any) -> float:
    """The inner product of centre - w and w - last; see `Features.halves`."""
    total = 0.0
    for row in range(len(w)):
        total += _row_of_ways(centre[row], w[row], w_other[row], last[row])
    return total


@reordering
def _row_of_ways(centre: Any, w: Any, w_other: Any, last: Any) -> float:
    total = 0.0
    for k in range(len(w)):
        total += (centre[k] - w[k]) * (w_other[k] - last[k])
    return total


@kernel
def move(w: Any, centre: Any, last: Any, beta: float, share: float) -> None:
    """The centre moves to w + beta (w - last), and w by 1 - share of its way."""
    for row in range(len(w)):
        for k in range(w.shape[1]):
            moved = beta * (w[row, k] - last[row, k]) + w[row, k]
            last[row, k] = w[row, k]
            w[row, k] += (1.0 - share) * (moved - centre[row, k])
            centre[row, k] = moved


@kernel
def between(centre: Any, r: Any, share: float, out: Any) -> None:
    """Out = (1 - share) centre + share r."""
    for row in range(len(out)):
        for k in range(out.shape[1]):
            out[row, k] = (1.0 - share) * centre[row, k] + share * r[row, k]

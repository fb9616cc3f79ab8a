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
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

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
        against = self.problem.inner(
            (now.centre_v - now.w_v, now.centre_f - now.w_f), (now.w_v - now.last_v, now.w_f - now.last_f)
        )
        if against > 0.0:
            now.momentum = 1.0
        following = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * now.momentum**2))
        beta = min((now.momentum - 1.0) / following, (1.0 - math.sqrt(share)) / (1.0 + math.sqrt(share)))
        now.momentum = following
        for w, centre, last in ((now.w_v, now.centre_v, now.last_v), (now.w_f, now.centre_f, now.last_f)):
            # moved = w + beta (w - last), and w += (1 - share) (moved - centre), without more room for either.
            moved = np.subtract(w, last, out=self.spare(w))
            moved *= beta
            moved += w
            last[:] = w
            np.subtract(moved, centre, out=centre)
            centre *= 1.0 - share
            w += centre
            centre[:] = moved

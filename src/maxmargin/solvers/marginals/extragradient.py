"""Extragradient with Bregman projections on the saddle point.

Taskar, Lacoste-Julien and Jordan, Structured Prediction, Dual Extragradient and Bregman Projections, JMLR 7, 2006. With a
distribution p_m over the labelings of every example, and psi(p), ell(p) the means of weight_m E psi_m and weight_m E ell_m,

    min_w max_p  F(w, p) = lam/2 |w|^2 + ell(p) - w . psi(p)

(there |w| is bounded; here it is regularised, as everywhere in this library). A step looks ahead, and then goes along the
gradient found there. The divergence of distributions is relative entropy, and the regulariser is part of the projection:

    w'  = (w + eta rho psi(p))  / (1 + eta rho lam),      p'(y) ~ p(y) exp(eta (ell(y) - w . psi(y)))
    w  <- (w + eta rho psi(p')) / (1 + eta rho lam),      p(y) <- p(y) exp(eta (ell(y) - w' . psi(y))) / normalised

All p_m start uniform and make the same steps, so p is the Gibbs distribution of the weights v / a at temperature 1 / a, with v
= sum eta w', a = sum eta: a vector and a number. v / a is also the mean of all w', so that the call of the exp-oracle that
finds p bounds its value: both bounds, that of the mean w' and that of the mean p', are free. The value of the last w is asked
of a max-oracle, rarely.

The gap of the means is at most (|w*|^2 / (2 rho) + KL(p* | uniform)) / sum eta as long as

    eta^2 rho |psi(p') - psi(p)|^2 / 2 <= KL(p' | p)      and      KL(p' | p+) <= |w' - w|^2 / (2 rho)

(p+ the next p), which eta^2 rho <= 1 / max |psi|^2 makes sure. All terms are at hand; eta grows as long as both hold and is
halved where one does not. rho weighs |w*|^2 against log |Y|.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.devices import copied
from maxmargin.errors import OptionError
from maxmargin.inference import Engine
from maxmargin.solvers.core.run import State
from maxmargin.solvers.core.solver import Solver
from maxmargin.solvers.marginals.exp_run import ExpRun
from maxmargin.solvers.oracles.exp_oracle import HOT, MeanMarginals
from maxmargin.solvers.oracles.oracle_run import earlier_of

#: What a step grows by after it was taken: before and after the first that was not.
_EAGER, _CAREFUL = 2.0, 1.1
#: Error of a divergence by rounding.
_ROUNDING = 1e-13


@dataclass
class ExtragradientState(State):
    """The weights, the exponents a and v of p, what they give, and the sums for the mean of p'."""

    on_device = ("w", "v", "psi", "psi_sum", "best")

    w: NDArray[np.float64]
    v: NDArray[np.float64]
    psi: NDArray[np.float64]
    psi_sum: NDArray[np.float64]
    best: NDArray[np.float64]
    lam: float
    rho: float
    a: float
    ell: float
    value: float
    step: float
    ell_sum: float = 0.0
    growth: float = _EAGER

    @property
    def nbytes(self) -> int:
        """Bytes of both sequences."""
        return 4 * int(self.w.nbytes)


class Extragradient(Solver):
    """Extragradient on the saddle point of weights and distributions.

    Parameters
    ----------
    inference : "auto", str or engine
        The exp-oracle of factor graphs.
    rho : float, optional
        Step of the weights for a step of 1 of the distributions; None weighs a bound of ``|w*|^2`` against ``log |Y|``.
    device : str
        "cpu", "cuda", "cuda:1" and so on, or "torch" (`maxmargin.devices`).
    """

    name = "extragradient"
    requires = ("marginals",)
    certificates = ("exact", "none")
    keeps = "a few vectors of weights"
    paper = "Taskar, Lacoste-Julien and Jordan 2006"
    kernels = True
    on_devices = True

    def __init__(self, inference: str | Engine = "auto", rho: float | None = None, device: str = "cpu") -> None:
        self.inference = inference
        self.rho = rho
        self.device = device

    def check_options(self, problem: Any) -> None:
        """Refuse a rho that is not positive."""
        if self.rho is not None and not (math.isfinite(self.rho) and self.rho > 0.0):
            raise OptionError(f"rho={self.rho!r} is not possible; it must be a finite number above 0, or None.")

    def make_run(self, problem: Any, lam: float, random_state: Any, threads: int) -> ExtragradientRun:
        """What does the work."""
        return ExtragradientRun(self, problem, lam, random_state, threads)


class ExtragradientRun(ExpRun[ExtragradientState]):
    """One run."""

    solver: Extragradient
    state_type = ExtragradientState

    def begin(self, earlier: ExtragradientState | None) -> ExtragradientState:
        """No weights and uniform distributions; an earlier run gives its weights to begin with."""
        zero = self.device.zeros(self.oracle.n_weights)
        uniform = self.oracle.mean(zero, HOT, self.threads)
        labelings = self.mean(uniform.values) / HOT
        # |w*|^2 is at most 2 P(0) / lam, and P(0) about the mean loss.
        rho = self.solver.rho or max(uniform.ell, 1e-3) / (self.lam * max(labelings, 1e-3))
        radius = self.radius()
        step = 1.0 / (math.sqrt(rho) * radius) if 0.0 < radius < math.inf else 1.0
        now = ExtragradientState(
            zero, copied(zero), uniform.psi, copied(zero), copied(zero), self.lam, rho, 1.0 / HOT, uniform.ell,
            self.mean(uniform.values), step,
        )  # fmt: skip
        if earlier is not None:
            now.w = copied(earlier_of(now, earlier, ("w",)).w)
        return now

    def steps(self, now: ExtragradientState, stop: Callable[[], bool]) -> None:
        """Look ahead, and step; or half of it the next time."""
        eta, pull = now.step, now.step * now.rho
        w_ahead = (now.w + pull * now.psi) / (1.0 + pull * self.lam)
        a = now.a + eta
        ahead = self.at(now, a, now.v + eta * now.w)
        v = now.v + eta * w_ahead
        found = self.at(now, a, v)
        moved, turned = ahead.psi - now.psi, w_ahead - now.w
        value, value_ahead = self.mean(found.values), self.mean(ahead.values)
        to_ahead = eta * (ahead.ell - self.inner(now.w, ahead.psi)) - a * value_ahead + now.a * now.value
        from_ahead = a * (value - value_ahead) + eta * self.inner(turned, ahead.psi)
        slack = _ROUNDING * (1.0 + a * abs(value))
        if (
            0.5 * eta * pull * self.inner(moved, moved) > to_ahead + slack
            or now.rho * from_ahead > 0.5 * self.inner(turned, turned) + slack * now.rho
        ):
            now.step, now.growth = 0.5 * now.step, _CAREFUL
            return
        now.w = (now.w + pull * ahead.psi) / (1.0 + pull * self.lam)
        now.psi_sum += eta * ahead.psi
        now.ell_sum += eta * ahead.ell
        now.a, now.v, now.psi, now.ell, now.value = a, v, found.psi, found.ell, value
        now.step *= now.growth
        mean_psi = now.psi_sum / a
        now.dual = max(now.dual, now.ell_sum / a - self.inner(mean_psi, mean_psi) / (2.0 * self.lam))
        self.keep(now, self.regulariser(v / a) + value, v / a)

    def at(self, now: ExtragradientState, a: float, v: NDArray[np.float64]) -> MeanMarginals:
        """Expectations under the distributions of a and v."""
        return self.expect(now, v / a, 1.0 / a)

    def measure(self, now: ExtragradientState, off_schedule: bool) -> dict[str, float]:
        """The bounds of the means came with the passes; ask for the last weights' value now and then."""
        self.keep(now, self.primal(now, now.w), now.w)
        if not off_schedule:
            now.next_check = now.n_passes + 1 + now.n_passes // 4
        return {"step": now.step}

    def keep(self, now: ExtragradientState, primal: float, w: NDArray[np.float64]) -> None:
        """Take note of weights with a better value."""
        if primal < now.primal:
            now.primal, now.best = primal, w

    def weights(self, now: ExtragradientState) -> NDArray[np.float64]:
        """The flat weights of the best primal value."""
        return self.flat(now.best)

"""Excessive gap reduction with Bregman projections.

X. Zhang, A. Saha and S. V. N. Vishwanathan, Accelerated Training of Max-Margin Markov Networks with Kernels, ALT 2011,
algorithms 1 and 2.

With a distribution alpha_m over the labelings of every example, psi(alpha) and ell(alpha) the means of weight_m E psi_m and
weight_m E ell_m, and mu > 0,

    D(alpha)   = ell(alpha) - |psi(alpha)|^2 / (2 lam),           w(alpha) = psi(alpha) / lam
    J_mu(w)    = lam/2 |w|^2 + mean of weight_m (H_m,mu(w) - mu log |Y_m|)      (exp_oracle.py), whose maximiser is alpha_mu(w)

Two sequences are kept such that J_mu_k(w_k) <= D(alpha_k) while mu_k falls (eq. 7). Since P <= J_mu + mu log |Y|, the gap is
then at most mu_k log |Y|:

    tau       with  tau^2 L <= (1 - tau) mu_k                  (eq. 14; algorithm 1 has tau = 2 / (k + 3) and mu_1 = L)
    alpha^    = (1 - tau) alpha_k + tau alpha_mu_k(w_k)
    w_k+1     = (1 - tau) w_k + tau w(alpha^)
    mu_k+1    = (1 - tau) mu_k
    alpha_k+1 = (1 - tau) alpha_k + tau alpha~

*One call of the exp-oracle a step.* The Bregman projection alpha~ of eq. (31) has the exponents (ell - psi . w_k) / mu_k + tau
/ ((1 - tau) mu_k) (ell - psi . w(alpha^)) = (ell - psi . w_k+1) / mu_k+1: it is alpha_mu_k+1(w_k+1), the very distribution that
the next step begins with. And of all distributions only psi and ell are ever used, both linear: so a vector and a number stand
for alpha_k, no marginal is stored, none needs to be renormalised, and no logarithm of one is taken.

*The gap is free.* H_m <= H_m,mu, so lam/2 |w_k|^2 + mean of weight_m H_m,mu_k(w_k) bounds P(w_k) from above, and the call has
found it.

*L.* max |psi|^2 / lam is safe: the condition of eq. (7) then holds at every step (theorem 2). It is a bound for the worst
direction, so the default estimates L: both sides of eq. (7) are at hand after a step; if it fails, L is doubled and the step
done again, at most up to the safe L, where it cannot fail; if it holds, L shrinks a little. The guarantee is the same.

*The dual alone.* For any distribution alpha', f(w_k) + (A w_k) . alpha' - g(alpha') >= D(alpha'), so that J_mu_k(w_k) >= D(alpha')
- mu_k d(alpha'), with d the prox-function: the mean of weight_m KL(alpha'_m | uniform). With eq. (7),

    D(alpha') - D(alpha_k) <= mu_k d(alpha')  =  6 L d(alpha') / ((k + 1) (k + 2))         with the steps of algorithm 1

which is eq. (16) where alpha' maximises D. There are many such alpha', and the bound holds for the one of least divergence: D knows
only marginals of cliques, so that is the one of largest entropy among those with the same marginals. It is not the divergence of
alpha_k, nor that of beta. What a run does know is a bound of d(alpha_K) of its own last point, a mixture of betas whose divergences
are known (`kl_to_uniform`): taken as alpha', it says how fast D(alpha_K), which is within the gap of the maximum, was come close to
(`bound_by_kl`).

*Kernels* (section 4.3). Where w is known by coefficients (features.py), those of w_k are the beta_k of theorem 3; all of the
above is linear in them, and norms come from the Gram matrix.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.errors import OptionError
from maxmargin.inference import Engine
from maxmargin.solvers.core.run import State
from maxmargin.solvers.core.solver import Solver
from maxmargin.solvers.marginals.exp_run import ExpRun
from maxmargin.solvers.oracles.exp_oracle import HOT
from maxmargin.solvers.oracles.oracle_run import earlier_of

#: What L is multiplied by after a step that kept eq. (7), before and after the first that did not, and after one that did not.
_EAGER, _CAREFUL, _GROW = 0.5, 0.9, 2.0
#: The least estimate of L, as a share of the safe one.
_LEAST = 1e-9
#: Relative error of the two sides of eq. (7) by rounding.
_ROUNDING = 1e-12


@dataclass
class ExcessiveGapState(State):
    """w_k; psi and ell of alpha_k, and of alpha_mu_k(w_k), which is called beta here."""

    on_device = ("w", "psi", "beta_psi", "best")

    w: NDArray[np.float64]
    psi: NDArray[np.float64]
    beta_psi: NDArray[np.float64]
    best: NDArray[np.float64]
    lam: float
    #: L, the estimate in use, and the safe one.
    constant: float
    safe: float
    #: Mean of weight_m log |Y_m|.
    labelings: float
    ell: float = 0.0
    beta_ell: float = 0.0
    mu: float = 0.0
    #: D(alpha_k) - J_mu_k(w_k), which must not be negative.
    excess: float = 0.0
    #: A bound of KL(alpha_k | uniform): the same mixture of the divergences of the betas.
    divergence: float = 0.0
    #: Steps taken, and passes that went into an L that was too small.
    k: int = 0
    n_failed: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes of both sequences."""
        return 3 * int(self.w.nbytes)


class ExcessiveGap(Solver):
    """Excessive gap reduction with Bregman projections.

    Parameters
    ----------
    inference : "auto", str or engine
        The exp-oracle of factor graphs.
    constant : "adaptive" or "safe"
        L: estimated as it goes, or ``max |psi|^2 / lam`` with the steps of algorithm 1.
    device : str
        "cpu", "cuda", "cuda:1" and so on, or "torch" (`maxmargin.devices`).
    """

    name = "excessive-gap"
    requires = ("marginals",)
    certificates = ("exact", "none")
    keeps = "a few vectors of weights"
    paper = "Zhang, Saha and Vishwanathan 2011"
    kernels = True
    on_devices = True

    def __init__(self, inference: str | Engine = "auto", constant: str = "adaptive", device: str = "cpu") -> None:
        self.inference = inference
        self.constant = constant
        self.device = device

    def check_options(self, problem: Any) -> None:
        """Refuse a constant that is not known."""
        if self.constant not in ("adaptive", "safe"):
            raise OptionError(f'constant={self.constant!r} is not known; use "adaptive" or "safe".')

    def make_run(self, problem: Any, lam: float, random_state: Any, threads: int) -> ExcessiveGapRun:
        """What does the work."""
        return ExcessiveGapRun(self, problem, lam, random_state, threads)


class ExcessiveGapRun(ExpRun[ExcessiveGapState]):
    """One run."""

    solver: ExcessiveGap
    state_type = ExcessiveGapState

    def begin(self, earlier: ExcessiveGapState | None) -> ExcessiveGapState:
        """w_1 = w(uniform), and L; an earlier run gives its estimate of L, since eq. (7) is about this lam."""
        zero = self.device.zeros(self.oracle.n_weights)
        uniform = self.oracle.mean(zero, HOT, self.threads)
        labelings = uniform.values / HOT
        safe = self.radius() ** 2 / self.lam
        if self.solver.constant == "safe" and not math.isfinite(safe):
            raise OptionError('This problem knows no bound of |psi|, which constant="safe" needs; use "adaptive".')
        # Where all psi are 0, any temperature will do.
        safe = max(safe, 1e-9)
        now = ExcessiveGapState(
            uniform.psi / self.lam, uniform.psi, uniform.psi, zero, self.lam, safe, safe, self.mean(labelings),
        )  # fmt: skip
        if self.solver.constant == "adaptive":
            now.constant = 0.01 * safe if math.isfinite(safe) else 1.0
        if earlier is not None:
            earlier = earlier_of(now, earlier, ("w",))
            now.constant = min(safe, earlier.constant * earlier.lam / self.lam)
        return now

    def steps(self, now: ExcessiveGapState, stop: Callable[[], bool]) -> None:
        """One step, or a larger L for the next time."""
        if now.k == 0:
            # alpha_1 = V(uniform, -grad D / mu_1) is alpha_mu_1(w_1): a step of 1 from nothing.
            tau, mu, w = 1.0, now.constant, now.w
        else:
            tau = self.step(now)
            mu, towards = (1.0 - tau) * now.mu, (1.0 - tau) * now.psi + tau * now.beta_psi
            w = (1.0 - tau) * now.w + tau / self.lam * towards
        found = self.expect(now, w, mu)
        psi, ell = (1.0 - tau) * now.psi + tau * found.psi, (1.0 - tau) * now.ell + tau * found.ell
        smooth, slope = self.regulariser(w) + self.mean(found.values), self.inner(w, found.psi)
        dual = ell - self.inner(psi, psi) / (2.0 * self.lam)
        now.dual = max(now.dual, dual)
        if smooth < now.primal:
            now.primal, now.best = smooth, w
        excess = dual - (smooth - mu * now.labelings)
        if excess < -_ROUNDING * max(1.0, abs(smooth)) and now.constant < now.safe:
            now.constant, now.n_failed = min(now.safe, _GROW * now.constant), now.n_failed + 1
            return
        entropy = (self.mean(found.values) - found.ell + slope) / mu
        now.divergence += tau * (now.labelings - entropy - now.divergence)
        now.w, now.psi, now.ell, now.mu, now.excess = w, psi, ell, mu, excess
        now.beta_psi, now.beta_ell = found.psi, found.ell
        now.k += 1
        if self.solver.constant == "adaptive":
            shrink = _CAREFUL if now.n_failed else _EAGER
            now.constant = max(shrink * now.constant, _LEAST * min(now.safe, 1.0))

    def step(self, now: ExcessiveGapState) -> float:
        """Tau: that of algorithm 1, or the largest that eq. (14) allows."""
        if self.solver.constant == "safe":
            return 2.0 / (now.k + 3.0)
        ratio = now.mu / now.constant
        return 2.0 / (1.0 + math.sqrt(1.0 + 4.0 / ratio))

    def measure(self, now: ExcessiveGapState, off_schedule: bool) -> dict[str, float]:
        """Both bounds came with the pass."""
        if not off_schedule:
            now.next_check = now.n_passes + 1
        return {"mu": now.mu, "excess": now.excess, "constant": now.constant}

    def options(self, now: ExcessiveGapState) -> dict[str, Any]:
        """The constants of the theory, and the steps that eq. (22) allows to the gap, and to a dual that is so near its last value.

        The largest divergence from the uniform distribution, D of eq. (8), is the mean of weight_m log |Y_m|.
        """
        radius = math.sqrt(now.safe * self.lam)
        gap = max(now.gap, 1e-300)
        return {
            **super().options(now),
            "psi_bound": radius,
            "log_labelings": now.labelings,
            "kl_to_uniform": now.divergence,
            "bound_by_log_labelings": 2.0 + radius * math.sqrt(6.0 * now.labelings / (self.lam * gap)),
            "bound_by_kl": radius * math.sqrt(6.0 * max(0.0, now.divergence) / (self.lam * gap)),
            "n_steps": now.k,
            "n_failed": now.n_failed,
        }

    def weights(self, now: ExcessiveGapState) -> NDArray[np.float64]:
        """The flat weights of the best primal value."""
        return self.flat(now.best)

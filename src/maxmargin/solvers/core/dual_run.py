"""Runs that keep the best point of the dual: any point bounds the optimum from below, by f(mu) = linear - lam/2 |w(mu)|^2."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from maxmargin.problems.factor_graphs import FactorGraphs
from maxmargin.solvers.core.run import Run, State


@dataclass
class DualState(State):
    """Weights, the best weights and the best dual point, each in two matrices."""

    #: Names of the pairs of matrices.
    matrices: ClassVar[tuple[str, ...]] = ("w", "best", "dual")

    w_v: NDArray[np.float64]
    w_f: NDArray[np.float64]
    best_v: NDArray[np.float64]
    best_f: NDArray[np.float64]
    dual_v: NDArray[np.float64]
    dual_f: NDArray[np.float64]
    dual_linear: float = field(default=0.0, kw_only=True)

    @classmethod
    def zeros(cls, problem: FactorGraphs) -> dict[str, Any]:
        """All of these matrices at zero."""
        w_v, w_f = problem.working_weights()
        # Not `zeros_like`, which writes the zeros: many of these are not needed at once, or at all.
        pairs = {f"{name}_v": np.zeros(w_v.shape) for name in cls.matrices}
        return pairs | {f"{name}_f": np.zeros(w_f.shape) for name in cls.matrices}


D = TypeVar("D", bound=DualState)


class DualRun(Run[D]):
    """A run that moves the best dual point towards each new one."""

    problem: FactorGraphs
    _spare: NDArray[np.float64] | None = None

    def spare(self, like: NDArray[np.float64]) -> NDArray[np.float64]:
        """Room of the shape of some weights, the same at every call: fresh memory costs more than what is done in it."""
        if self._spare is None or self._spare.shape != like.shape:
            self._spare = np.empty(like.shape)
        return self._spare

    def raise_dual(self, now: D, linear: float, r_v: NDArray[np.float64], r_f: NDArray[np.float64]) -> None:
        """Move the best dual point towards the new one as far as f grows.

        Both are feasible, so everything between them is, and f(mu) = linear - lam/2 |w(mu)|^2 is known from the two
        ends. The first end is the truth, where both parts are 0: the bound is never below 0.
        """
        d_v, d_f = np.subtract(r_v, now.dual_v, out=self.spare(r_v)), r_f - now.dual_f
        inner = self.problem.inner
        slope = linear - now.dual_linear - self.lam * inner((now.dual_v, now.dual_f), (d_v, d_f))
        curvature = self.lam * inner((d_v, d_f), (d_v, d_f))
        if slope <= 0.0:
            step = 0.0
        else:
            step = min(1.0, slope / curvature) if curvature > 0.0 else 1.0
        d_v *= step
        d_f *= step
        now.dual_v += d_v
        now.dual_f += d_f
        now.dual_linear += step * (linear - now.dual_linear)
        now.dual = max(now.dual, now.dual_linear - self.regulariser(now.dual_v, now.dual_f))

    def regulariser(self, w_v: NDArray[np.float64], w_f: NDArray[np.float64]) -> float:
        """lam/2 |w|^2."""
        return self.lam / 2.0 * self.problem.inner((w_v, w_f), (w_v, w_f))

    def mean(self, values: NDArray[np.float64]) -> float:
        """Weighted mean over examples."""
        return float((self.problem.arrays.weight * values).sum()) / len(values)

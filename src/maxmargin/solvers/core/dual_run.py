"""Runs that keep the best point of the dual: any point bounds the optimum from below, by f(mu) = linear - lam/2 |w(mu)|^2."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from maxmargin.jit import kernel, reordering
from maxmargin.parallel.lines import zeros_in_lines
from maxmargin.parallel.threads import map_rows
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
        pairs = {f"{name}_v": zeros_in_lines(w_v.shape) for name in cls.matrices}
        return pairs | {f"{name}_f": zeros_in_lines(w_f.shape) for name in cls.matrices}


D = TypeVar("D", bound=DualState)
Weights = tuple[NDArray[np.float64], NDArray[np.float64]]


class DualRun(Run[D]):
    """A run that moves the best dual point towards each new one."""

    problem: FactorGraphs

    def raise_dual(
        self,
        now: D,
        linear: float,
        r_v: NDArray[np.float64],
        r_f: NDArray[np.float64],
        centre: Weights | None = None,
        share: float = 1.0,
    ) -> tuple[float, float]:
        """Move the best dual point towards the new one, r, as far as f grows.

        Both are feasible, so everything between them is, and f(mu) = linear - lam/2 |w(mu)|^2 is known from the two
        ends. The first end is the truth, where both parts are 0: the bound is never below 0. With a centre, r is found first,
        from the weights, which are (1 - share) centre + share r.

        Returns the inner products of the weights with r, and with themselves.
        """
        sides = self.problem.variable_features, self.problem.factor_features
        duals, weights = (now.dual_v, now.dual_f), (now.w_v, now.w_f)
        sums = np.zeros(5)
        for features, dual, r, w, c in zip(sides, duals, (r_v, r_f), weights, centre or weights, strict=True):
            parts = *features.halves(dual), *features.halves(r), *features.halves(w)
            halves: list[tuple[NDArray[np.float64], ...]] = [features.halves(one) for one in (c, w, r)]
            if halves[0][0] is halves[0][1]:
                halves = [one[:1] for one in halves]

            def products(begin: int, end: int, parts: Any = parts, halves: Any = halves) -> Any:
                if centre is not None:
                    for one, other, to in zip(*halves, strict=True):
                        apart(one[begin:end], other[begin:end], share, to[begin:end])
                return products_towards(*(one[begin:end] for one in parts))

            for found in map_rows(products, parts[0].shape, self.threads):
                sums += found
        own, along, square, across, norm = sums.tolist()
        slope, curvature, step = linear - now.dual_linear - self.lam * along, self.lam * square, 0.0
        if slope > 0.0:
            step = min(1.0, slope / curvature) if curvature > 0.0 else 1.0
            for dual, r in zip(duals, (r_v, r_f), strict=True):

                def go(begin: int, end: int, dual: Any = dual, r: Any = r) -> None:
                    move_towards(dual[begin:end], r[begin:end], step)

                map_rows(go, dual.shape, self.threads)
            now.dual_linear += step * (linear - now.dual_linear)
        reached = own + step * (2.0 * along + step * square)
        now.dual = max(now.dual, now.dual_linear - self.lam / 2.0 * reached)
        return across, norm

    def keep_best(self, now: D, weights: Weights) -> None:
        """Copy the best weights so far, in threads."""
        for to, w in zip((now.best_v, now.best_f), weights, strict=True):

            def copy(begin: int, end: int, to: Any = to, w: Any = w) -> None:
                to[begin:end] = w[begin:end]

            map_rows(copy, w.shape, self.threads)

    def regulariser(self, w_v: NDArray[np.float64], w_f: NDArray[np.float64]) -> float:
        """lam/2 |w|^2."""
        return self.lam / 2.0 * self.inner((w_v, w_f), (w_v, w_f))

    def inner(self, one: Weights, other: Weights) -> float:
        """The inner product of two pairs of matrices."""
        total = 0.0
        for x, y, features in zip(
            one, other, (self.problem.variable_features, self.problem.factor_features), strict=True
        ):
            x, y = features.halves(x)[0], features.halves(y)[1]

            def product(begin: int, end: int, x: Any = x, y: Any = y) -> float:
                # Not by BLAS: its threads would wait for each other on a machine that has other work.
                return float(np.einsum("ij,ij->", x[begin:end], y[begin:end]))

            total += sum(map_rows(product, x.shape, self.threads))
        return total

    def mean(self, values: NDArray[np.float64]) -> float:
        """Weighted mean over examples."""
        return float((self.problem.arrays.weight * values).sum()) / len(values)


# ------------------------------------------------------------------------------------------------------- kernels
#
# Weights of text have millions of entries, which take longer to read than to multiply: each of these reads them once.


@kernel
def apart(centre: Any, w: Any, share: float, out: Any) -> None:
    """Out = r where w = (1 - share) centre + share r."""
    for row in range(len(out)):
        for k in range(out.shape[1]):
            out[row, k] = (w[row, k] - (1.0 - share) * centre[row, k]) / share


@kernel
def products_towards(dual: Any, dual_other: Any, r: Any, r_other: Any, w: Any, w_other: Any) -> Any:
    """Inner products: of dual with itself and with r - dual, of that with itself, of w with r and with itself.

    All are by halves; see `Features.halves`.
    """
    own, along, square, across, norm = 0.0, 0.0, 0.0, 0.0, 0.0
    for row in range(len(dual)):
        more = _row_towards(dual[row], dual_other[row], r[row], r_other[row], w[row], w_other[row])
        own += more[0]
        along += more[1]
        square += more[2]
        across += more[3]
        norm += more[4]
    return own, along, square, across, norm


@reordering
def _row_towards(dual: Any, dual_other: Any, r: Any, r_other: Any, w: Any, w_other: Any) -> Any:
    own, along, square, across, norm = 0.0, 0.0, 0.0, 0.0, 0.0
    for k in range(len(dual)):
        away = r_other[k] - dual_other[k]
        own += dual[k] * dual_other[k]
        along += dual[k] * away
        square += (r[k] - dual[k]) * away
        across += r[k] * w_other[k]
        norm += w[k] * w_other[k]
    return own, along, square, across, norm


@kernel
def move_towards(dual: Any, r: Any, step: float) -> None:
    """Dual += step (r - dual)."""
    for row in range(len(dual)):
        for k in range(dual.shape[1]):
            dual[row, k] += step * (r[row, k] - dual[row, k])

"""Plain BCFW, as published: a Frank-Wolfe step with exact line search towards the oracle's labeling (``BCFW.plain()``).

S. Lacoste-Julien, M. Jaggi, M. Schmidt and P. Pletscher, Block-Coordinate Frank-Wolfe Optimization for Structural SVMs, ICML
2013, algorithm 4 (with line search), and its weighted averaging.

A block's distribution is not kept, only its mean plane: its statistics s_m (statistics.py) and ell_m. With the direction
``dir = plane - mean``, and kappa = weight / (lam M),

    gamma = clip( (slope of dir) / (kappa |psi(dir)|^2), 0, 1 ),     w += kappa gamma psi(dir)

The paper keeps a dense vector of weights for each example; statistics are the same in the few coordinates that the example can
reach.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.jit import Struct, kernel
from maxmargin.problems.factor_graphs import FactorGraphs
from maxmargin.problems.layout import offsets
from maxmargin.problems.statistics import add_example, add_statistics, project_example, statistics_sizes
from maxmargin.solvers.core.dual_run import Weights
from maxmargin.solvers.frank_wolfe.block_run import BlockRun, BlockState
from maxmargin.solvers.frank_wolfe.visits import N_ORACLE, Rules, Visit
from maxmargin.solvers.oracles.compiled import find_plane, gram_times_plane


@dataclass
class PlainState(BlockState):
    """Blocks as their mean planes: statistics and ell."""

    mean: NDArray[np.float64]
    ell: NDArray[np.float64]

    @property
    def nbytes(self) -> int:
        """Bytes of the dual state."""
        return int(self.mean.nbytes + self.ell.nbytes)


class Means(Struct):
    """The mean planes: that of example m begins at mean[start[m]]; `sizes` (S, 2) are the statistics of each structure's sides."""

    sizes: NDArray[np.int64]
    start: NDArray[np.int64]
    mean: NDArray[np.float64]
    ell: NDArray[np.float64]


class PlainRun(BlockRun[PlainState]):
    """Blocks are mean planes, as in the paper."""

    state_type = PlainState

    def __init__(self, solver: Any, problem: FactorGraphs, lam: float, random_state: Any, threads: int) -> None:
        super().__init__(solver, problem, lam, random_state, threads)
        self.sizes = statistics_sizes(problem)
        ends = offsets(self.sizes.sum(axis=1)[problem.structure_of])
        self.start, self.n_statistics = ends[:-1], int(ends[-1])

    def first_state(self, **common: Any) -> PlainState:
        """Every mean at the truth."""
        return PlainState(**common, mean=np.zeros(self.n_statistics), ell=np.zeros(self.problem.n_examples))

    def shrink(self, now: PlainState, earlier: PlainState, share: float) -> None:
        """Take over the means of an earlier run."""
        now.mean[:], now.ell[:] = share * earlier.mean, share * earlier.ell

    def make_afresh(self, now: PlainState, out: Weights) -> None:
        """The weights of the means."""
        weights_of_means(self.problem.batch, self.sizes, self.start, now.mean, self.scale, *out)

    def linear_part(self, now: PlainState) -> float:
        """The mean loss of the means."""
        return self.mean(now.ell)

    def visit_with(
        self,
        oracle: Any,
        now: PlainState,
        order: NDArray[np.int64],
        rules: Rules,
        counts: NDArray[np.int64],
    ) -> float:
        """Visit these examples with an oracle."""
        gain: float = plain_visits(
            self.problem.batch, now.w_v, now.w_f, oracle, self.grams, Means(self.sizes, self.start, now.mean, now.ell),
            self.work, rules, Visit(order, now.n_passes, now.gaps, counts),
        )  # fmt: skip
        return gain


# ------------------------------------------------------------------------------------------------------- kernels


@kernel
def plain_visits(
    batch: Any, w_v: Any, w_f: Any, oracle: Any, grams: Any, means: Any, work: Any, rules: Any, visit: Any
) -> float:
    """Visit the examples in order; returns the gain in M times the dual. No step is made if rules.steps is 0."""
    order, gaps, counts, weight, examples = (
        visit.order, visit.gaps, visit.counts, batch.graphs.weight, batch.graphs.examples,
    )  # fmt: skip
    sizes, start, mean, ell = means.sizes, means.start, means.mean, means.ell
    z, u, change, index, value, half = work.z, work.u, work.change, work.index, work.value, batch.factors.at
    gain = 0.0
    for k in range(len(order)):
        m = order[k]
        s, at, kappa = examples[m].structure, start[m], rules.scale * weight[m]
        n_v, n_f = sizes[s, 0], sizes[s, 1]
        project_example(batch, m, w_v, w_f, z)
        n, ell_new = find_plane(oracle, batch, work, k, m, index, value, 0)
        counts[N_ORACLE] += 1
        for e in range(n):
            change[index[e]] = value[e]
        slope, n = ell_new - ell[m], 0
        for side in range(2):
            for i in range(n_f if side else n_v):
                here = side * half + i
                change[here] -= mean[at + side * n_v + i]
                if change[here] != 0.0:
                    slope -= change[here] * z[here]
                    index[n], value[n] = here, change[here]
                    n += 1
        gaps[m] = max(slope, 0.0)
        if slope > 0.0 and rules.steps > 0:
            gram_times_plane(batch, grams, work, m, index, value, 0, n)
            curvature = 0.0
            for e in range(n):
                curvature += kappa * value[e] * u[index[e]]
            step = slope / curvature if slope < curvature else 1.0
            gain += weight[m] * step * (slope - 0.5 * step * curvature)
            ell[m] += step * (ell_new - ell[m])
            for e in range(n):
                i = index[e]
                mean[at + (i if i < half else i - half + n_v)] += step * value[e]
            add_example(batch, m, change, kappa * step, w_v, w_f)
        for e in range(n):
            change[index[e]] = 0.0
    return gain


@kernel
def weights_of_means(batch: Any, sizes: Any, start: Any, mean: Any, scale: float, w_v: Any, w_f: Any) -> None:
    """Make w afresh from the mean planes, scale = 1 / (lam M)."""
    examples, weight = batch.graphs.examples, batch.graphs.weight
    w_v[:] = 0.0
    w_f[:] = 0.0
    for m in range(len(weight)):
        s, at = examples[m].structure, start[m]
        add_statistics(batch.variables, m, s, w_v, mean, at, scale * weight[m])
        add_statistics(batch.factors, m, s, w_f, mean, at + sizes[s, 0], scale * weight[m])

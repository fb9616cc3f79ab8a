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

from maxmargin.jit import kernel
from maxmargin.problems.factor_graphs import FactorGraphs
from maxmargin.problems.layout import (
    F_ROW,
    L_BUFFER,
    L_STATES,
    L_TABLES,
    L_VARIABLES,
    S_FACTOR_GROUPS,
    S_VARIABLE_GROUPS,
    STRUCTURE,
    V_ROW,
    offsets,
)
from maxmargin.problems.statistics import add_statistics, statistics_sizes
from maxmargin.solvers.frank_wolfe.block_run import BlockRun, BlockState
from maxmargin.solvers.frank_wolfe.visits import N_ORACLE, R_SCALE, R_STEPS
from maxmargin.solvers.oracles.compiled import find_plane, oracle_room, project_example, spread_plane


@dataclass
class PlainState(BlockState):
    """Blocks as their mean planes: statistics and ell."""

    mean: NDArray[np.float64]
    ell: NDArray[np.float64]

    @property
    def nbytes(self) -> int:
        """Bytes of the dual state."""
        return int(self.mean.nbytes + self.ell.nbytes)


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

    def dual_point(self, now: PlainState) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
        """The linear part of f at the means, and their weights."""
        r_v, r_f = np.empty_like(now.w_v), np.empty_like(now.w_f)
        total = weights_of_means(
            self.problem.arrays, *self.features, self.sizes, self.start, now.mean, now.ell, self.scale, r_v, r_f
        )
        return float(total) / self.problem.n_examples, r_v, r_f

    def visit_with(
        self,
        oracle: Any,
        now: PlainState,
        order: NDArray[np.int64],
        rules: NDArray[np.float64],
        counts: NDArray[np.int64],
    ) -> float:
        """Visit these examples with an oracle."""
        gain: float = plain_visits(
            self.problem.arrays, *self.features, now.w_v, now.w_f, oracle, self.grams, self.sizes, self.start, now.mean,
            now.ell, order, rules, now.gaps, counts,
        )  # fmt: skip
        return gain


# ------------------------------------------------------------------------------------------------------- kernels


@kernel
def plain_visits(
    g: Any, v_features: Any, f_features: Any, w_v: Any, w_f: Any, oracle: Any, grams: Any, sizes: Any, start: Any, mean: Any,
    ell: Any, order: Any, rules: Any, gaps: Any, counts: Any,
) -> float:  # fmt: skip
    """Visit the examples in order; returns the gain in M times the dual. No step is made if rules[R_STEPS] is 0.

    ``sizes`` (S, 2) are the statistics of each structure's sides; example m's mean plane begins at mean[start[m]].
    """
    examples, structures, v_groups, f_groups, weight = (
        g.examples, g.structures, g.variable_groups, g.factor_groups, g.weight,
    )  # fmt: skip
    gram_start, row_grams, kept, largest = grams.start, grams.values, grams.kept, g.largest
    half = largest[L_BUFFER]
    z, u, tally, change = np.empty(2 * half), np.empty(2 * half), np.zeros(2 * half), np.zeros(2 * half)
    touched = np.empty(2 * (largest[L_VARIABLES] + largest[L_TABLES]), np.int32)
    index, value = np.empty(2 * half, np.int32), np.empty(2 * half)
    theta_v, theta_f = np.empty(largest[L_STATES]), np.empty(largest[L_TABLES])
    labels = np.empty(largest[L_VARIABLES], np.int32)
    t_v, t_f = np.empty((0 if kept else len(w_v), w_v.shape[1])), np.empty((0 if kept else len(w_f), w_f.shape[1]))
    room = oracle_room(oracle, largest)
    gain = 0.0
    for k in range(len(order)):
        m = order[k]
        s, at, kappa = examples[m, STRUCTURE], start[m], rules[R_SCALE] * weight[m]
        n_v, n_f = sizes[s, 0], sizes[s, 1]
        project_example(m, s, examples, structures, v_groups, f_groups, v_features, f_features, half, w_v, w_f, z)
        n, ell_new = find_plane(
            oracle, room, k, m, s, g, half, z, theta_v, theta_f, labels, tally, touched, index, value, 0
        )  # fmt: skip
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
        if slope > 0.0 and rules[R_STEPS] > 0.0:
            spread_plane(
                m, s, 0, n, index, value, examples, structures, v_groups, f_groups, v_features, f_features, half, gram_start,
                row_grams, kept, t_v, t_f, tally, u,
            )  # fmt: skip
            curvature = 0.0
            for e in range(n):
                curvature += kappa * value[e] * u[index[e]]
            step = slope / curvature if slope < curvature else 1.0
            gain += weight[m] * step * (slope - 0.5 * step * curvature)
            ell[m] += step * (ell_new - ell[m])
            for e in range(n):
                i = index[e]
                mean[at + (i if i < half else i - half + n_v)] += step * value[e]
            add_statistics(
                v_features, examples[m, V_ROW], v_groups, structures[s, S_VARIABLE_GROUPS],
                structures[s + 1, S_VARIABLE_GROUPS], w_v, change, 0, kappa * step,
            )  # fmt: skip
            add_statistics(
                f_features, examples[m, F_ROW], f_groups, structures[s, S_FACTOR_GROUPS],
                structures[s + 1, S_FACTOR_GROUPS], w_f, change, half, kappa * step,
            )  # fmt: skip
        for e in range(n):
            change[index[e]] = 0.0
    return gain


@kernel
def weights_of_means(
    g: Any,
    v_features: Any,
    f_features: Any,
    sizes: Any,
    start: Any,
    mean: Any,
    ell: Any,
    scale: float,
    w_v: Any,
    w_f: Any,
) -> float:
    """Make w afresh from the mean planes, scale = 1 / (lam M); returns sum_m weight_m ell_m."""
    examples, structures, v_groups, f_groups, weight = (
        g.examples, g.structures, g.variable_groups, g.factor_groups, g.weight,
    )  # fmt: skip
    w_v[:] = 0.0
    w_f[:] = 0.0
    total = 0.0
    for m in range(len(ell)):
        s, at = examples[m, STRUCTURE], start[m]
        total += weight[m] * ell[m]
        add_statistics(
            v_features, examples[m, V_ROW], v_groups, structures[s, S_VARIABLE_GROUPS], structures[s + 1, S_VARIABLE_GROUPS],
            w_v, mean, at, scale * weight[m],
        )  # fmt: skip
        add_statistics(
            f_features, examples[m, F_ROW], f_groups, structures[s, S_FACTOR_GROUPS], structures[s + 1, S_FACTOR_GROUPS],
            w_f, mean, at + sizes[s, 0], scale * weight[m],
        )  # fmt: skip
    return total

"""BCFW with steps of several blocks at once: ``steps="joint"``."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from maxmargin.parallel.threads import map_shards
from maxmargin.solvers.frank_wolfe.plane_run import PlaneRun, PlaneState
from maxmargin.solvers.frank_wolfe.visits import (
    N_CACHED,
    N_ORACLE,
    Rules,
    exhausted,
    move_masses,
    propose,
)
from maxmargin.solvers.planes.arena import (
    INNER,
    STEPS,
    add_moves,
)


class JointRun(PlaneRun):
    """Mini-batches: the blocks of a batch are improved side by side, in threads, and step together by one line search.

    Each block's move is the best for itself at the same weights. Along all moves at once f is a parabola, and the batch goes
    to its top, or the whole way. The moves do not depend on the number of threads, nor does the order of their sum.
    """

    def walk(
        self, now: PlaneState, order: NDArray[np.int64], ask: bool, stop: Callable[[], bool]
    ) -> tuple[float, float]:
        """Visit the examples a batch at a time; a batch has an example once."""
        counts, gain = np.zeros(3, np.int64), 0.0
        rules = Rules(self.scale, *self.acceptance(now), INNER, STEPS, ask)
        for first in range(0, len(order), self.solver.batch):
            batch = np.unique(order[first : first + self.solver.batch])
            if ask:
                self.ask_exhausted(now, batch, rules, counts)
            gain += self.step_together(now, batch, rules)
            if stop():
                break
        self.count(now, counts)
        return gain, len(order) * self.oracle.projection_work + counts[N_ORACLE] * self.oracle.work

    def ask_exhausted(self, now: PlaneState, batch: NDArray[np.int64], rules: Rules, counts: NDArray[np.int64]) -> None:
        """Ask the oracle, in threads, about the examples whose planes are exhausted, and keep what it finds."""
        empty = exhausted(self.problem.batch, now.w_v, now.w_f, now.store, batch, rules, now.gaps)
        counts[N_CACHED] += int((~empty).sum())
        batch = batch[empty]
        shards = _pieces(len(batch))
        found = map_shards(
            lambda begin, end: self.oracle.most_violated(now.w_v, now.w_f, batch[begin:end]), shards, self.threads
        )
        for (begin, end), planes in zip(shards, found, strict=True):
            self.visit_with(self.oracle.with_given(planes), now, batch[begin:end], self.resting, counts)

    def step_together(self, now: PlaneState, batch: NDArray[np.int64], rules: Rules) -> float:
        """The step of a batch; returns the gain in M times the dual."""
        p, store = self.problem, now.store
        moved, slopes = np.zeros((len(batch), store.most)), np.empty(len(batch))
        map_shards(
            lambda begin, end: propose(
                p.batch, now.w_v, now.w_f, store, batch[begin:end], rules, moved[begin:end], slopes[begin:end]
            ),
            _pieces(len(batch)),
            self.threads,
        )  # fmt: skip
        before = now.w_v.copy(), now.w_f.copy()
        add_moves(p.batch, store, batch, moved, self.scale, now.w_v, now.w_f)
        change = now.w_v - before[0], now.w_f - before[1]
        slope, curvature = float(slopes.sum()), self.step_lam * p.n_examples * p.inner(change, change)
        if slope <= 0.0:
            now.w_v[:], now.w_f[:] = before
            return 0.0
        step = min(1.0, slope / curvature) if curvature > 0.0 else 1.0
        now.w_v[:], now.w_f[:] = before[0] + step * change[0], before[1] + step * change[1]
        move_masses(store, batch, moved, step, now.n_passes)
        return step * (slope - 0.5 * step * curvature)


def _pieces(n: int) -> list[tuple[int, int]]:
    """Shards of a batch, which do not depend on the number of threads."""
    size = max(1, -(-n // 8))
    return [(first, min(first + size, n)) for first in range(0, n, size)]

"""BCFW on problems with an oracle of their own: blocks are distributions over planes, as in bcfw.py, in coordinates of the weights.

Such a problem, one that a user wrote or parsing, says nothing about its features, so a plane is kept as its entries in the flat
weights (few, if the features are sparse), and products of planes are computed from those. Visits, cached passes and checks are
those of `bcfw`; what is counted as the cost of an oracle call is a guess, since Python code is slow and charts are not small, and
neither knows its operations. Checks ask about all examples at the same weights, in threads if the oracle is compiled.

A new plane must be at least as good as those that the block has, since they are outputs too: where it is not, the oracle has missed
the best, and one that promised to be exact (a model with ``exact = True``) is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.errors import DataError, OptionError
from maxmargin.jit import kernel
from maxmargin.parallel.threads import map_shards
from maxmargin.problems.python_problem import PythonProblem
from maxmargin.solvers.core.run import State
from maxmargin.solvers.core.sampling import draw_examples
from maxmargin.solvers.core.solver import Solver
from maxmargin.solvers.frank_wolfe.visits import (
    N_CACHED,
    N_CROWDED,
    N_ORACLE,
    Rules,
    Visit,
)
from maxmargin.solvers.oracles.compiled import NOTHING_GIVEN, Given, copy_plane
from maxmargin.solvers.oracles.max_oracle import oracle_of
from maxmargin.solvers.oracles.oracle_run import OracleRun, earlier_of
from maxmargin.solvers.planes.arena import (
    ACCEPT,
    CACHED_PASSES,
    FLOOR,
    INNER,
    STEPS,
    Arena,
    add_combination,
    add_flat_products,
    flat_weights_of_planes,
    free_slot,
    improve_block,
    mark_used,
    most_planes,
    plane_slopes,
    put_plane,
)

#: Operations that a call of the oracle counts for.
_CALL = 200_000.0
#: Entries that the arena of planes grows by, at least; examples of a check that are asked about at a time, and of each thread.
_ROOM, _BATCH, _SHARD = 1 << 14, 256, 32


@dataclass
class PythonState(State):
    """Blocks as distributions over planes."""

    w: NDArray[np.float64]
    best: NDArray[np.float64]
    average: NDArray[np.float64]
    gaps: NDArray[np.float64]
    lam: float
    store: Arena
    n_cached: int = 0


class PythonRun(OracleRun[PythonState]):
    """One run of `BCFW` on a problem that is known by its planes alone."""

    state_type = PythonState
    solver: Any

    def __init__(self, solver: Solver, problem: Any, lam: float, random_state: Any, threads: int) -> None:
        super().__init__(solver, problem, lam, random_state, threads)
        if self.solver.steps in ("plain", "joint"):
            raise OptionError(
                f'steps="{self.solver.steps}" is for factor graphs; on a problem with an oracle of its own use '
                '"corrective" or "pairwise".'
            )
        self.oracle = oracle_of(problem, self.solver.inference)
        self.certificate = self.oracle.certificate
        self.written = isinstance(problem, PythonProblem)
        self.scale = 1.0 / (lam * self.oracle.n_examples)
        self.dense = np.zeros(self.oracle.n_weights)

    # -------------------------------------------------------------------------------------------- the start

    def begin(self, earlier: PythonState | None) -> PythonState:
        """Every block at the truth and w = 0; or the blocks of an earlier run, as in bcfw.py."""
        n, zero = self.oracle.n_examples, np.zeros(self.oracle.n_weights)
        store = Arena.empty(n, 1 + max(self.solver.cache, 1), _ROOM)
        now = PythonState(zero, zero.copy(), zero.copy(), np.full(n, np.inf), self.lam, store)
        if earlier is not None:
            earlier = earlier_of(now, earlier, ("w", "gaps"))
            share = min(1.0, self.lam / earlier.lam)
            now.store = earlier.store._copy()
            now.store.shrink(share)
            self.refresh(now)
        return now

    def refresh(self, now: PythonState) -> float:
        """Make w afresh from the planes, which ends the drift of its running sums; returns f there."""
        n = self.oracle.n_examples
        total: float = flat_weights_of_planes(now.store, self.oracle.weight, self.scale, now.w)
        return float(total / n - self.regulariser(now.w))

    # -------------------------------------------------------------------------------------------- one pass

    def steps(self, now: PythonState, stop: Callable[[], bool]) -> None:
        """A pass that may ask the oracle, and cached passes for as long as they gain more for their cost."""
        rng = np.random.default_rng([self.seed, 0, now.n_passes])
        gain, cost = self.walk(now, self.draw(now, rng), True, stop)
        if self.solver.cache and self.solver.steps == "corrective":
            for _ in range(CACHED_PASSES):
                if stop():
                    break
                more, spent = self.walk(now, self.draw(now, rng), False, stop)
                if more * cost <= gain * spent:
                    break
                gain, cost = gain + more, cost + spent
        if self.solver.averaging:
            now.average += 2.0 / (now.n_passes + 2) * (now.w - now.average)

    def draw(self, now: PythonState, rng: np.random.Generator) -> NDArray[np.int64]:
        """The examples of a pass, in random order."""
        return draw_examples(now.gaps, self.oracle.weight, rng, self.solver.sampling == "gap" and now.n_passes > 0)

    def walk(
        self, now: PythonState, order: NDArray[np.int64], ask: bool, stop: Callable[[], bool]
    ) -> tuple[float, float]:
        """Visit the examples in order; returns the gain and the cost."""
        corrective = self.solver.steps == "corrective"
        rules = Rules(self.scale, *self.acceptance(now), INNER, STEPS if corrective else 1, False)
        calls, gain = now.n_oracle_calls, 0.0
        size = self.solver.batch if ask else len(order)
        for first in range(0, len(order), size):
            piece = order[first : first + size]
            if ask:
                empty = exhausted_planes(now.w, now.store, piece, rules, now.gaps)
                gain += self.visit(now, piece[~empty], rules)
                gain += self.visit(now, piece[empty], rules, ask=True)
            else:
                gain += self.visit(now, piece, rules)
            if stop():
                break
        entries = float(now.store.filled[0, 0]) / self.oracle.n_examples
        return gain, len(order) * (1.0 + entries) + (now.n_oracle_calls - calls) * _CALL

    def acceptance(self, now: PythonState) -> tuple[float, float]:
        """When a cached plane is good enough: share of the block's last gap, and least gap."""
        if not self.solver.cache or not np.isfinite(now.gaps).all():
            return math.inf, math.inf
        return ACCEPT, FLOOR * self.mean(now.gaps)

    def planes(self, now: PythonState, order: NDArray[np.int64]) -> tuple[Any, NDArray[np.float64]]:
        """New planes of these examples, by threads if there are many examples; Python code runs in one."""
        if self.written or len(order) <= _SHARD:
            found: tuple[Any, NDArray[np.float64]] = self.oracle.planes(now.w, order)
            return found
        cuts = [(first, min(first + _SHARD, len(order))) for first in range(0, len(order), _SHARD)]
        parts = map_shards(lambda begin, end: self.oracle.planes(now.w, order[begin:end]), cuts, self.threads)
        return sp.vstack([psi for psi, _ in parts], format="csr"), np.concatenate([ell for _, ell in parts])

    def visit(self, now: PythonState, order: NDArray[np.int64], rules: Rules, ask: bool = False) -> float:
        """Visit these examples, with new planes of all of them or with those at hand."""
        if len(order) == 0:
            return 0.0
        given, counts = NOTHING_GIVEN, np.zeros(3, np.int64)
        if ask:
            psi, ell = self.planes(now, order)
            given = Given(psi.indptr.astype(np.int64), psi.indices.astype(np.int32), psi.data, ell)
            if now.store.filled[0, 0] + psi.nnz > len(now.store.entry):
                now.store = now.store.with_room(_ROOM, psi.nnz)
        gain, missed = visit_planes(
            now.w,
            now.store,
            self.oracle.weight,
            given,
            self.dense,
            rules._replace(ask=ask),
            Visit(order, now.n_passes, now.gaps, counts),
        )
        now.n_oracle_calls += int(counts[N_ORACLE])
        now.n_cached += int(counts[N_CACHED])
        if counts[N_CROWDED] > 0:
            now.store = now.store.with_capacity(np.arange(self.oracle.n_examples))
        if missed >= 0 and self.certificate == "exact":
            asked = "most_violated" if self.written else f"the oracle {self.oracle.name}"
            promise = " If it cannot promise that, set exact = False." if self.written else ""
            raise DataError(
                f"Example {missed}: {asked} returned an output whose loss + score is below that of one it returned "
                f"before; it must return the largest.{promise}"
            )
        return float(gain)

    # -------------------------------------------------------------------------------------------- certificates

    def measure(self, now: PythonState, off_schedule: bool) -> dict[str, float]:
        """Ask the oracle about every example at the same weights: the mean of the gaps is the gap, and all planes are kept."""
        value = self.refresh(now)
        now.dual = max(now.dual, value)
        rules = Rules(self.scale, np.inf, np.inf, 0.0, 0, False)
        for first in range(0, self.oracle.n_examples, _BATCH):
            self.visit(now, np.arange(first, min(first + _BATCH, self.oracle.n_examples)), rules, ask=True)
        gap = self.mean(now.gaps)
        found = [(value + gap, now.w)]
        if self.solver.averaging:
            found.append((self.primal(now, now.average), now.average))
        for primal, w in found:
            if primal < now.primal:
                now.primal, now.best = primal, w.copy()
        if not off_schedule:
            now.next_check = now.n_passes + 1 + now.n_passes // 8
        return {"block_gap": gap, "n_cached": now.n_cached, "bytes": now.store.nbytes}

    # -------------------------------------------------------------------------------------------- the outcome

    def weights(self, now: PythonState) -> NDArray[np.float64]:
        """The flat weights of the best primal value."""
        return now.best

    def options(self, now: PythonState) -> dict[str, Any]:
        """How the planes were used."""
        return {**super().options(now), "n_cached": now.n_cached, "planes": float(now.store.n_planes.mean()) - 1.0}


# ------------------------------------------------------------------------------------------------------- kernels


@kernel
def visit_planes(w: Any, store: Any, weight: Any, given: Any, dense: Any, rules: Any, visit: Any) -> tuple[float, int]:
    """Visit the examples in order, as visits.py has it; the planes that are given are theirs if the rules say that one asks.

    ``dense`` (d,) is zero, and is so again afterwards.
    Returns the gain in M times the dual, and the first example whose new plane is worse than one it has, or -1.
    """
    order, gaps, counts, clock = visit.order, visit.gaps, visit.counts, visit.clock
    index, value, filled = store.entry, store.value, store.filled
    v, moved = np.empty(most_planes(store)), np.empty(most_planes(store))
    gain, missed = 0.0, -1
    for k in range(len(order)):
        m = order[k]
        kappa = rules.scale * weight[m]
        mean, top = plane_slopes(store, m, w, v)
        if rules.ask:
            begin = filled[0, 0]
            n, ell = copy_plane(given, k, index, value, begin)
            slope, terms = ell, 1.0 + abs(ell)
            for e in range(begin, begin + n):
                slope -= value[e] * w[index[e]]
                terms += abs(value[e] * w[index[e]])
            counts[N_ORACLE] += 1
            # Steps of the examples before have moved w since the oracle was asked.
            if missed < 0 and (k == 0 or rules.steps == 0) and slope < top - 1e-9 * (terms + abs(top)):
                missed = m
            gaps[m] = max(slope, top) - mean
            # What is no better than a plane at hand is that plane, but for rounding.
            if slope > top + 1e-12 * (1.0 + abs(top)):
                slot = free_slot(store, m)
                if slot < 0:
                    counts[N_CROWDED] += 1
                else:
                    put_plane(store, 0, m, slot, ell, n)
                    add_flat_products(store, m, slot, dense)
                    v[slot] = slope
                    top = slope
        else:
            counts[N_CACHED] += 1
        if top > mean:
            got = improve_block(store, m, kappa, v, moved, rules.inner * (top - mean), rules.steps)
            if got > 0.0:
                gain += weight[m] * got
                add_combination(store, m, moved, kappa, w)
            mark_used(store, m, clock)
    return gain, missed


@kernel
def exhausted_planes(w: Any, store: Any, order: Any, rules: Any, gaps: Any) -> Any:
    """Which of the examples have no cached plane that is good enough."""
    v, out = np.empty(most_planes(store)), np.empty(len(order), np.bool_)
    for k in range(len(order)):
        m = order[k]
        mean, top = plane_slopes(store, m, w, v)
        out[k] = not (top - mean >= max(rules.accept * gaps[m], rules.floor) and top > mean)
    return out

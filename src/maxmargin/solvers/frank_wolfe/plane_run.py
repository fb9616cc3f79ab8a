"""BCFW with blocks that are distributions over planes that are kept (planes/arena.py): cached planes first, then the oracle."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin import jit
from maxmargin.parallel.lines import LINE, zeros_in_lines
from maxmargin.parallel.threads import Stopped
from maxmargin.parallel.turns import CLOSED, FREE, SLOTS, has_written, new_role, take_turns, turn_counters
from maxmargin.problems.statistics import statistics_sizes
from maxmargin.solvers.core.batches import Helper, Helpers, batch_size, in_batches
from maxmargin.solvers.core.dual_run import Weights
from maxmargin.solvers.frank_wolfe.block_run import BlockRun, BlockState
from maxmargin.solvers.frank_wolfe.cached_visits import DenseRows, dense_rows, visit_cached
from maxmargin.solvers.frank_wolfe.visits import (
    FULL,
    N_CACHED,
    N_CROWDED,
    Rules,
    Visit,
    Walk,
    exhausted,
    visit_batches,
)
from maxmargin.solvers.oracles.compiled import NOTHING_GIVEN, Work
from maxmargin.solvers.planes.arena import (
    ACCEPT,
    CACHED_PASSES,
    FLOOR,
    Arena,
    linear_of_planes,
    weights_of_planes,
)

#: The proximal term makes lam this power of the condition |psi|^2 / (lam M ell) times larger, at most so many times: beyond, the
#: centre overshoots what a few passes can follow. Examples with many rows have planes that are long and alike, and allow more (the
#: two-level model of superpixels, a quarter of the images, 12.5 s: gap 0.054 with 9, 0.023 with 60).
_EXPONENT, _STRONGEST, _STRONGEST_OF_MANY = 0.375, 9.0, 60.0
#: Examples that the oracle is asked about before the first pass.
_FIRST = 64
#: Entries that the arena of planes grows by, at least.
_ROOM = 1 << 16
#: Inner products of planes for which there is room at first, and slots of an example at least.
_PRODUCTS, _LEAST_CAPACITY = 1 << 24, 6
#: Segments of the arena, at most: parts of batches add planes to their own.
_SEGMENTS = 16
#: Numbers for which there is room in the changes of batches: 32 MB.
_CHANGES = 1 << 22
#: Coordinates of a variable above which slopes are read by the coordinates that planes have.
_WIDE = 12


@dataclass
class PlaneState(BlockState):
    """Blocks as distributions over planes."""

    store: Arena
    #: Curvature between the moves of two examples, and along the move of one (visits.py).
    overlap: NDArray[np.float64]
    n_cached: int = 0


class PlaneRun(BlockRun[PlaneState]):
    """Blocks are distributions over planes that are kept."""

    state_type = PlaneState
    shares_visits = True

    def first_state(self, **common: Any) -> PlaneState:
        """Every block has the truth alone."""
        p = self.problem
        sizes = np.array([one.n_states[0] for one in p.variable_templates], float)
        with np.errstate(over="ignore"):
            labelings = max(float(sizes[p.structures[s].variable_templates].prod()) for s in np.unique(p.structure_of))
        # Relaxed planes are more than labelings.
        most = labelings - 1 if self.certificate == "exact" else np.inf
        capacity = 1 + int(min(max(self.solver.cache, 1), most))
        # Of very many examples few have many planes: those get more room when they need it.
        capacity = min(capacity, max(_LEAST_CAPACITY, math.isqrt(_PRODUCTS // p.n_examples)))
        segments = min(_SEGMENTS, self.batch_size(20))
        store = Arena.empty(p.n_examples, capacity, _ROOM // segments + 2 * self.half, segments)
        return PlaneState(**common, store=store, overlap=np.zeros(2))

    def shrink(self, now: PlaneState, earlier: PlaneState, share: float) -> None:
        """Take over the planes of an earlier run."""
        now.store = earlier.store._copy()
        now.store.shrink(share)

    def prepare(self, now: PlaneState) -> None:
        """Choose the strength of the proximal term by the planes that the oracle finds first for some examples.

        A unit of a plane's mass changes its own slope by |psi|^2 / (lam M), and slopes are of the size of ell: their ratio is
        the condition of coordinate ascent.
        """
        # Compiled before the clock starts.
        self.visit(now, np.empty(0, np.int64), self.resting._replace(ask=False), np.zeros(3, np.int64))
        clock = jit.clock()
        n = self.problem.n_examples
        some = np.sort(np.random.default_rng([self.seed, 1]).permutation(n)[:_FIRST])
        with suppress(Stopped):
            self.refresh_gaps(now, some)
        store = now.store
        chosen = some[store.n_planes[some] > 1]
        newest = store.n_planes[chosen] - 1
        ell = np.abs(store.ell[store.first[chosen] + newest])
        if self.corrective and len(chosen) and ell.sum() > 0.0:
            square = store.products[store.square[chosen] + newest * (store.capacity[chosen] + 1)]
            condition = self.scale * float(square.sum() / ell.sum())
            strongest = _STRONGEST if self.rows is None else _STRONGEST_OF_MANY
            now.step_lam = self.lam * min(max(1.0, condition**_EXPONENT), strongest)
        now.seconds += jit.clock() - clock

    def make_afresh(self, now: PlaneState, out: Weights) -> None:
        """The weights of the planes' masses."""
        self.helpers.outdate()
        weights_of_planes(self.problem.batch, now.store, 1.0 / (self.lam * self.problem.n_examples), *out)

    def linear_part(self, now: PlaneState) -> float:
        """The mean loss of the planes, by their masses."""
        return float(linear_of_planes(now.store, self.problem.arrays.weight)) / self.problem.n_examples

    def move_centre(self, now: PlaneState) -> None:
        """Nesterov's step, which the weights follow."""
        self.helpers.outdate()
        super().move_centre(now)

    def visits(self, now: PlaneState, rng: np.random.Generator, stop: Callable[[], bool]) -> None:
        """A pass that may ask the oracle, and cached passes for as long as they gain more for their cost."""
        gain, cost = self.walk(now, self.draw(now, rng), True, stop)
        if not (self.solver.cache and self.corrective):
            return
        for _ in range(CACHED_PASSES):
            if stop():
                break
            more, spent = self.walk(now, self.draw(now, rng), False, stop)
            if more * cost <= gain * spent:
                break
            gain, cost = gain + more, cost + spent

    def acceptance(self, now: PlaneState) -> tuple[float, float]:
        """When a cached plane is good enough: share of the block's last gap, and least gap."""
        if not self.solver.cache or not np.isfinite(now.gaps).all():
            return math.inf, math.inf
        return ACCEPT, FLOOR * self.mean(now.gaps)

    def count(self, now: PlaneState, counts: NDArray[np.int64]) -> None:
        """Take note of what a walk did, and make room in crowded blocks."""
        super().count(now, counts)
        now.n_cached += int(counts[N_CACHED])
        if counts[N_CROWDED] > 0:
            now.store = now.store.with_capacity(np.flatnonzero(now.store.n_planes == now.store.capacity))

    def visit(self, now: PlaneState, order: NDArray[np.int64], rules: Rules, counts: NDArray[np.int64]) -> float:
        """Visit these examples; an engine outside the compiled loop is asked for those whose planes are exhausted."""
        gain, cached, asked = 0.0, rules._replace(ask=False), rules._replace(accept=np.inf, floor=np.inf)
        if self.rows is not None:
            gain, left = self.visit_cached(now, order, rules, counts)
            if not left.any():
                return gain
            order, rules = order[left], asked
        if self.oracle.compiled is not None:
            return gain + self.visit_with(self.oracle.compiled, now, order, rules, counts)
        if not rules.ask:
            return gain + self.visit_with(NOTHING_GIVEN, now, order, cached, counts)
        if self.rows is None:
            empty = exhausted(self.problem.batch, now.w_v, now.w_f, now.store, order, rules, now.gaps)
            gain, order = self.visit_with(NOTHING_GIVEN, now, order[~empty], cached, counts), order[empty]
        return gain + self.visit_with(self.oracle.most_violated(now.w_v, now.w_f, order), now, order, asked, counts)

    @cached_property
    def rows(self) -> DenseRows | None:
        """Dense rows for visits without the oracle, where those pay."""
        return dense_rows(self.problem, self.oracle.projection_work)

    def visit_cached(
        self, now: PlaneState, order: NDArray[np.int64], rules: Rules, counts: NDArray[np.int64]
    ) -> tuple[float, NDArray[np.bool_]]:
        """Visit these examples, with the weights turned around for the time; the gain, and who is left to the oracle."""
        b_v, b_f = (np.ascontiguousarray(w.T) for w in (now.w_v, now.w_f))
        visit, left = Visit(order, now.n_passes, now.gaps, counts), np.empty(len(order), np.bool_)
        gain = float(visit_cached(self.problem.batch, self.rows, b_v, b_f, now.store, self.work, rules, visit, left))
        now.w_v[:], now.w_f[:] = b_v.T, b_f.T
        self.helpers.outdate()
        return gain, left

    def visit_with(
        self, oracle: Any, now: PlaneState, order: NDArray[np.int64], rules: Rules, counts: NDArray[np.int64]
    ) -> float:
        """Visit these examples with an oracle, in batches that threads share; planes get more room when they need it."""
        walk, weights, steps = self.new_walk(now, order, rules), (now.w_v, now.w_f), rules.steps > 0
        n_parts, first, helpers = len(walk.at), 0, list[Helper[Work]]()
        if n_parts > 1:
            # More threads than a batch has examples would be idle.
            most = self.batch_size(now.n_passes) - 1
            helpers = self.helpers.for_walk(most, *weights) if steps else self.helpers.take(self.threads - 1)
        while True:
            store, found = self.with_room(now, walk), [CLOSED]
            walk = walk._replace(counters=turn_counters(len(helpers), first, n_parts))
            roles = [new_role(k, first) for k in range(len(helpers) + 1)]

            def visit(work: Work, w: Any, role: Any, found: list[int], store: Arena = store, walk: Walk = walk) -> bool:
                found[0] = visit_batches(self.problem.batch, *w, oracle, self.grams, store, work, rules, walk, role)
                return found[0] in (CLOSED, FULL)

            take_turns(
                walk.counters,
                partial(visit, self.work, weights, roles[0], found),
                [
                    partial(visit, one.room, one.weights if steps else weights, role, [CLOSED])
                    for one, role in zip(helpers, roles[1:], strict=True)
                ],
                n_parts,
            )
            counts += sum(role[FREE:] for role in roles)
            if steps:
                self.helpers.note(helpers, [has_written(walk.counters, role, n_parts) for role in roles[1:]])
                helpers = [one for one in helpers if one.current]
            if found[0] == CLOSED:
                return float(walk.total[0])
            first = int(walk.next[0])

    def with_room(self, now: PlaneState, walk: Walk) -> Arena:
        """The planes, with room in each segment for what the next parts may find."""
        store, segments = now.store, len(now.store.filled)
        # Steps are made in batches, two of which may be under way; without, a part stops where its segment is full.
        examples = 2 * -(-int(np.diff(walk.starts).max(initial=0)) // len(walk.at)) if len(walk.move) else 1
        room = 2 * self.half * examples
        if (store.filled[:, 0] + room > store.segment[1:]).any():
            shards = np.linspace(0, self.problem.n_examples, segments + 1).astype(int).tolist()
            now.store = store.with_room(_ROOM // segments, room, list(pairwise(shards)), self.threads)
        return now.store

    @cached_property
    def helpers(self) -> Helpers[Work]:
        """Other threads that visit examples."""
        return Helpers(self.threads, self.room)

    def new_walk(self, now: PlaneState, order: NDArray[np.int64], rules: Rules) -> Walk:
        """A walk that has not begun."""
        n, steps = len(order), rules.steps > 0
        size = self.batch_size(now.n_passes) if steps else max(n, 1)
        if steps and size > 1:
            places, starts = in_batches(order, size, self.problem.n_examples)
            # The longest of a batch first: threads that take one after the other are done at about the same time.
            batch = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
            places = places[np.lexsort((-np.diff(self.problem.example_variables)[order[places]], batch))]
        else:
            places, starts = np.arange(n), np.minimum(np.arange(-(-n // size) + 1) * size, n)
        n_parts = max(1, min(size, len(now.store.filled)))
        # One thread alone writes a result before it finds the next.
        results, coordinates = 0 if not steps else SLOTS * size if size > 1 else 1, 2 * self.half
        listed, move = (results, coordinates if self.few else 0), zeros_in_lines((results, LINE))
        return Walk(
            order[places], places, starts, now.gaps, now.n_passes, self.few, np.zeros(SLOTS), now.overlap.copy(),
            np.zeros((results, now.store.most)), move, move.view(np.int64), np.empty((results, coordinates)),
            np.empty(listed, np.int64), np.empty(listed, np.int32), now.overlap,
            starts[:2][-1] * np.arange(n_parts) // n_parts, np.zeros(1), np.zeros(1, np.int64), turn_counters(),
        )  # fmt: skip

    def batch_size(self, n_passes: int) -> int:
        """Examples that are visited together in a pass; few where the changes that they make would take much room."""
        return min(batch_size(self.problem.n_examples, n_passes), max(1, _CHANGES // (SLOTS * 2 * self.half + 1)))

    @cached_property
    def few(self) -> bool:
        """Whether planes have a small part of the coordinates of an example: there are many for each variable."""
        p = self.problem
        sides = p.variable_features, p.factor_features
        entries = statistics_sizes(p)[:, 0] @ np.bincount(p.structure_of, minlength=len(p.structures))
        return bool(entries > _WIDE * p.example_variables[-1]) and all(len(one.arrays.gram) == 0 for one in sides)

    def line(self, now: PlaneState) -> dict[str, float]:
        """Visits that did without the oracle, and bytes of the planes."""
        return {"n_cached": now.n_cached, "bytes": now.store.nbytes}

    def options(self, now: PlaneState) -> dict[str, Any]:
        """How the planes were used."""
        return {**super().options(now), "n_cached": now.n_cached, "planes": float(now.store.n_planes.mean()) - 1.0}

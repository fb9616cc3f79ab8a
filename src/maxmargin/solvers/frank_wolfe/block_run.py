"""What all runs of BCFW share: a block for each example, visits in an order drawn by their gaps, and checks.

bcfw.py has the algorithm and its papers. What a block is, is left open: a distribution over planes that are kept (plane_run.py), or
the mean plane alone (plain.py).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from maxmargin import jit
from maxmargin.errors import OptionError
from maxmargin.parallel.threads import Stopped, map_rows, map_shards, pause
from maxmargin.problems.factor_graphs import FactorGraphs
from maxmargin.problems.statistics import row_grams
from maxmargin.solvers.core.dual_run import Weights
from maxmargin.solvers.core.proximal import ProximalRun, ProximalState, between
from maxmargin.solvers.core.sampling import draw_examples, near_each_other
from maxmargin.solvers.frank_wolfe.visits import N_ORACLE, Rules
from maxmargin.solvers.oracles.compiled import NOTHING_GIVEN, Work, workspace
from maxmargin.solvers.oracles.max_oracle import graph_oracle_of
from maxmargin.solvers.planes.arena import (
    INNER,
    STEPS,
)

#: Checks of which one makes the weights afresh.
_AFRESH = 16
#: Passes between two moves of the proximal term's centre.
_CENTRE_PASSES = 2
#: Operations between two questions whether to stop; batches of a pass, at most, for an engine outside the compiled loop: each
#: batch costs some milliseconds beside its answers.
_PIECE, _BATCHES = 100_000_000, 24
#: Share of the gap that lies between the labelings found and their bounds above which the oracle is asked for its best, and above
#: which the run is over, if in so many passes, at least, the gap does not become so many times what it was.
_LEFT_OPEN, _PATIENCE, _SLOW = (0.3, 0.8), 20, 0.9
#: Entries for which there is room at a time in a thread that asks for a check: 6 MB, for it is not given back to the system.
_SHARD_ENTRIES = 1 << 19


@dataclass
class BlockState(ProximalState):
    """What a run keeps whatever its blocks are."""

    mean_v: NDArray[np.float64]
    mean_f: NDArray[np.float64]
    gaps: NDArray[np.float64]
    step_lam: float
    #: Whether the oracle is asked for its best.
    in_earnest: bool = field(default=False, kw_only=True)


B = TypeVar("B", bound=BlockState)


class BlockRun(ProximalRun[B]):
    """One run: the problem's arrays at hand, and the steps of the main loop."""

    #: A `BCFW` (bcfw.py), which makes runs and is not known here.
    solver: Any
    problem: FactorGraphs
    #: Whether visits are shared by threads.
    shares_visits = False

    def __init__(self, solver: Any, problem: FactorGraphs, lam: float, random_state: Any, threads: int) -> None:
        super().__init__(solver, problem, lam, random_state, threads)
        self.oracle = graph_oracle_of(problem, solver.inference)
        self.certificate = self.oracle.certificate
        self.grams = row_grams(problem, of_labelings=True)
        self.half = int(problem.arrays.largest.buffer)
        self.step_lam = lam

    @property
    def scale(self) -> float:
        """What a unit of mass does to w, but for the example's weight."""
        return 1.0 / (self.step_lam * self.problem.n_examples)

    @property
    def resting(self) -> Rules:
        """Visits that ask the oracle, and make no step."""
        return Rules(self.scale, np.inf, np.inf, 0.0, 0, True)

    @cached_property
    def work(self) -> Work:
        """Room for walks."""
        return self.room()

    def room(self) -> Work:
        """Room for one thread."""
        largest = self.problem.arrays.largest
        return workspace(largest, (self.oracle.compiled or NOTHING_GIVEN).room(largest), self.grams.room(self.problem))

    # -------------------------------------------------------------------------------------------- the start

    @abstractmethod
    def first_state(self, **common: Any) -> B:
        """Every block at the truth."""

    @abstractmethod
    def shrink(self, now: B, earlier: B, share: float) -> None:
        """Take over the blocks of an earlier run, with a share of the mass of everything but the truth."""

    def begin(self, earlier: B | None) -> B:
        """Every block at the truth and w = 0; or the blocks of an earlier run, with the weights left where they are if they can be.

        With a smaller lam, w = 1 / (lam M) sum alpha psi stays if the mass of all planes but the truth shrinks in proportion.
        """
        common = ProximalState.zeros(self.problem)
        now = self.first_state(
            **common, mean_v=np.zeros(common["w_v"].shape), mean_f=np.zeros(common["w_f"].shape),
            gaps=np.full(self.problem.n_examples, np.inf), lam=self.lam, step_lam=self.lam,
        )  # fmt: skip
        if earlier is not None and (
            type(earlier) is not type(now)
            or any(getattr(earlier, name).shape != getattr(now, name).shape for name in ("w_v", "w_f", "gaps"))
        ):
            raise OptionError(
                "The earlier state belongs to a problem of another shape or to another solver; start without it "
                "(warm_start=False)."
            )
        if earlier is not None:
            self.shrink(now, earlier, min(1.0, self.lam / earlier.lam))
            self.make_afresh(now, (now.w_v, now.w_f))
            now.centre_v[:], now.centre_f[:] = now.w_v, now.w_f
            now.last_v[:], now.last_f[:] = now.w_v, now.w_f
        else:
            # Kernels are compiled before the clock starts: called with nothing to do.
            self.visit(now, np.empty(0, np.int64), self.resting, np.zeros(3, np.int64))
        self.prepare(now)
        return now

    def prepare(self, now: B) -> None:
        """Whatever else a run needs before its first pass."""

    @abstractmethod
    def make_afresh(self, now: B, out: Weights) -> None:
        """Find the weights of the blocks, w(alpha)."""

    @abstractmethod
    def linear_part(self, now: B) -> float:
        """The linear part of f at the blocks."""

    @cached_property
    def dual_weights(self) -> Weights:
        """Room for w(alpha), kept from check to check: fresh memory costs more than what is written to it."""
        return self.problem.working_weights()

    # -------------------------------------------------------------------------------------------- one pass

    def one_pass(self, now: B, stop: Callable[[], bool]) -> None:
        """As many visits as there are examples, and whatever else pays."""
        clock = jit.clock()
        self.step_lam, self.oracle.in_earnest = now.step_lam, now.in_earnest
        if self.step_lam > self.lam and now.n_passes > 0 and now.n_passes % _CENTRE_PASSES == 0:
            self.move_centre(now)
        rng = np.random.default_rng([self.seed, 0, now.n_passes])
        try:
            self.visits(now, rng, stop)
        except Stopped:
            # Every visit leaves blocks and weights that fit each other.
            now.seconds += jit.clock() - clock
            raise
        now.n_passes += 1
        if self.solver.averaging:
            share = 2.0 / (now.n_passes + 1)
            now.mean_v += share * (now.w_v - now.mean_v)
            now.mean_f += share * (now.w_f - now.mean_f)
        now.seconds += jit.clock() - clock

    def visits(self, now: B, rng: np.random.Generator, stop: Callable[[], bool]) -> None:
        """The visits of a pass."""
        self.walk(now, self.draw(now, rng), True, stop)

    def draw(self, now: B, rng: np.random.Generator) -> NDArray[np.int64]:
        """The examples of a pass, in random order."""
        by_gap = self.solver.sampling == "gap" and now.n_passes > 0
        drawn = draw_examples(now.gaps, self.problem.arrays.weight, rng, by_gap)
        return near_each_other(drawn, self.problem.variable_features, self.problem.n_examples, rng)

    def walk(self, now: B, order: NDArray[np.int64], ask: bool, stop: Callable[[], bool]) -> tuple[float, float]:
        """Visit the examples in order, in pieces that can be interrupted; returns the gain and the cost."""
        counts, gain = np.zeros(3, np.int64), 0.0
        rules = Rules(self.scale, *self.acceptance(now), INNER, STEPS if self.corrective else 1, ask)
        size = max(1, int(_PIECE / (1.0 + (self.oracle.work if ask else self.oracle.projection_work))))
        if ask and self.oracle.compiled is None:
            size = max(self.solver.batch, len(order) // _BATCHES)
        for piece in np.array_split(order, max(1, round(len(order) / size))):
            gain += self.visit(now, piece, rules, counts)
            if stop():
                break
        self.count(now, counts)
        return gain, len(order) * self.oracle.projection_work + counts[N_ORACLE] * self.oracle.work

    def acceptance(self, now: B) -> tuple[float, float]:
        """When a cached plane is good enough: share of the block's last gap, and least gap."""
        return math.inf, math.inf

    @property
    def corrective(self) -> bool:
        """Whether a visit solves its block."""
        return self.solver.steps in ("corrective", "joint")

    def count(self, now: B, counts: NDArray[np.int64]) -> None:
        """Take note of what a walk did."""
        now.n_oracle_calls += int(counts[N_ORACLE])

    def visit(self, now: B, order: NDArray[np.int64], rules: Rules, counts: NDArray[np.int64]) -> float:
        """Visit these examples; an engine outside the compiled loop is asked before."""
        oracle = self.oracle.compiled or self.oracle.most_violated(now.w_v, now.w_f, order)
        return self.visit_with(oracle, now, order, rules, counts)

    @abstractmethod
    def visit_with(
        self, oracle: Any, now: B, order: NDArray[np.int64], rules: Rules, counts: NDArray[np.int64]
    ) -> float:
        """Visit these examples with an oracle; returns the gain in M times the dual."""

    # -------------------------------------------------------------------------------------------- certificates

    def check(self, now: B, off_schedule: bool = False) -> None:
        """Ask the oracle about every example at the same weights: the mean of the gaps is the gap, and all planes are kept."""
        clock = jit.clock()
        self.step_lam, self.oracle.in_earnest = now.step_lam, now.in_earnest
        afresh = off_schedule or len(now.history.get("gap", [])) % _AFRESH == _AFRESH // 2
        centre, r, share = (now.centre_v, now.centre_f), self.dual_weights, self.lam / self.step_lam
        if afresh:
            # This ends the drift of running sums.
            self.make_afresh(now, r)
            self.mix(centre, r, share, (now.w_v, now.w_f))
        linear = self.linear_part(now)
        across, norm = self.raise_dual(now, linear, *r, None if afresh else centre, share)
        # What the oracle finds here the passes go on with, so it counts as theirs.
        asking = jit.clock()
        bounds = self.refresh_gaps(now, np.arange(self.problem.n_examples))
        asking = jit.clock() - asking
        now.seconds += asking
        best = now.w_v, now.w_f
        # A block's gap is its hinge minus the mean slope of its planes, and those add up to this.
        slopes, regulariser = linear - self.lam * across, self.lam / 2.0 * norm
        primal = regulariser + slopes + self.mean(now.gaps)
        left_open = 0.0
        if bounds is not None:
            found, primal = primal, regulariser + self.mean(bounds)
            left_open = max(primal - found, 0.0)
        if self.solver.averaging:
            mean = self.primal(now.mean_v, now.mean_f)
            if mean < primal:
                primal, best = mean, (now.mean_v, now.mean_f)
        if primal < now.primal:
            now.primal = primal
            self.keep_best(now, best)
        if not off_schedule:
            now.next_check = now.n_passes + 1 + now.n_passes // 8
            now.in_earnest = now.in_earnest or left_open > _LEFT_OPEN[0] * now.gap
        now.monitor_seconds += jit.clock() - clock - asking
        now.write_line(block_gap=self.mean(now.gaps), left_open=left_open, **self.line(now))

    def mix(self, centre: Weights, r: Weights, share: float, out: Weights) -> None:
        """Find w, which is `between` the centre and w(alpha)."""
        for side in zip(centre, r, out, strict=True):

            def go(begin: int, end: int, side: Any = side) -> None:
                one, other, to = (array[begin:end] for array in side)
                between(one, other, share, to)

            map_rows(go, side[0].shape, self.threads)

    def stalled(self, now: B) -> bool:
        """Whether the gap has stopped shrinking, or shrinks slowly and is what the oracle leaves open by its best."""
        passes, gaps, opened = (now.history.get(name, []) for name in ("n_passes", "gap", "left_open"))
        past = bisect_right(passes, now.n_passes - max(_PATIENCE, now.n_passes // 4)) - 1
        if past >= 0 and now.in_earnest and gaps[-1] > _SLOW * gaps[past]:
            since = zip(opened[past:], gaps[past:], strict=True)
            if all(left > _LEFT_OPEN[1] * gap for left, gap in since):
                self.message = (
                    f"What is left of the gap lies between the labelings that {self.oracle.name} finds and its bounds on their "
                    "scores, which longer training does not bring together."
                )
                return True
        return super().stalled(now)

    def refresh_gaps(self, now: B, examples: NDArray[np.int64]) -> NDArray[np.float64] | None:
        """Find the planes of largest slope of these examples, in threads, and keep them and their gaps, without a step.

        Returns bounds on their hinges where the oracle has such.
        """
        counts, n = np.zeros(3, np.int64), len(examples)
        size = max(1, min(-(-n // 16), int(_SHARD_ENTRIES / (2 * self.half + 1))))
        shards = [(first, min(first + size, n)) for first in range(0, n, size)]
        bounds = np.empty(n) if self.oracle.bounds else None
        if self.oracle.compiled is not None and (self.threads <= 1 or self.shares_visits):
            # The planes are found where they are kept, by one projection of the weights, not two.
            for piece in np.array_split(examples, max(1, round(n * (1.0 + self.oracle.work) / _PIECE))):
                pause()
                self.visit_with(self.oracle.compiled, now, piece, self.resting, counts)
            shards = []
        for k in range(0, len(shards), 16):
            found = map_shards(
                lambda begin, end: self.oracle.answer(now.w_v, now.w_f, examples[begin:end]),
                shards[k : k + 16],
                self.threads,
                pausing=True,
            )
            for (begin, end), (planes, above) in zip(shards[k : k + 16], found, strict=True):
                self.visit_with(self.oracle.with_given(planes), now, examples[begin:end], self.resting, counts)
                if bounds is not None:
                    bounds[begin:end] = above
            # Their room is for the next ones.
            del found, planes
        self.count(now, counts)
        return bounds

    def line(self, now: B) -> dict[str, float]:
        """What else goes into the history."""
        return {}

    def primal(self, w_v: NDArray[np.float64], w_f: NDArray[np.float64]) -> float:
        """P(w), by the oracle."""
        return self.regulariser(w_v, w_f) + self.mean(self.oracle.hinges(w_v, w_f, self.threads))

    # -------------------------------------------------------------------------------------------- the outcome

    def weights(self, now: B) -> NDArray[np.float64]:
        """The flat weights of the best primal value."""
        return self.problem.flat_weights(now.best_v, now.best_f, self.threads)

    def options(self, now: B) -> dict[str, Any]:
        """The oracle, and why it was chosen."""
        return {
            "inference": self.oracle.engine.name,
            "inference_reason": self.oracle.reason,
            "proximal": now.step_lam / self.lam - 1.0,
        }

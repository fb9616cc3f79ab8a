"""BCFW: block-coordinate Frank-Wolfe with a max-oracle.

Lacoste-Julien, Jaggi, Schmidt and Pletscher, Block-Coordinate Frank-Wolfe Optimization for Structural SVMs, ICML 2013. The
dual of

    P(w) = lam/2 |w|^2 + 1/M sum_m H_m(w),      H_m(w) = max_y ell_m(y) - w . psi_m(y)

has a block for each example, a distribution alpha_m over its labelings (planes.py). A visit of an example asks the oracle for
the labeling that attains H_m and improves the block exactly; the block's duality gap comes for free, and

    P(w) - f(alpha) = 1/M sum_m weight_m [ H_m(w) - sum_y alpha_m(y) (ell_m(y) - w . psi_m(y)) ]

``BCFW.plain()`` is the algorithm of the paper: a Frank-Wolfe step with exact line search on a uniformly drawn example. The
default spends far fewer oracle calls, by these measures:

- *Planes are kept* and tried before the oracle (Shah, Kolmogorov and Lampert 2015): accepted if the best of them gains at least a
  quarter of the gap last seen at this example, and a hundredth of the mean gap (Osokin, Alayrac, Lukasewitz, Dokania and
  Lacoste-Julien 2016).
- *Corrective steps*: a visit solves the small quadratic program over all planes of the block, by pairwise steps on their Gram
  matrix.
- *Sampling by gap* (Osokin et al.), refreshed at checks, whose labelings join the planes too.
- *A proximal term* where C is large (proximal.py).
- *Cached passes*: after each pass, further ones that never ask the oracle, for as long as they gain more for their cost than the
  last pass did. The cost is counted in operations, not in seconds, so that a run can be repeated to the bit.

The certificate depends on the oracle: "exact" if its labelings are the best ones, "relaxed" if they range over the local
polytope (linear_program, graph_cut), "none" if it may miss the best (greedy, loopy_bp, ...): then the value reported as primal is
only what was found. `dual_decomposition` may miss the best, too, but bounds its score: with it the certificate is "exact", since
labelings bound the exact problem from below and the bounds do so from above, though the gap need not close.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from maxmargin import jit
from maxmargin.errors import OptionError
from maxmargin.inference import Engine
from maxmargin.parallel.threads import Stopped, map_shards
from maxmargin.problems.factor_graphs import FactorGraphs
from maxmargin.problems.layout import L_BUFFER, offsets
from maxmargin.problems.statistics import row_grams, statistics_sizes
from maxmargin.solvers.bcfw_plain import plain_visits, weights_of_means
from maxmargin.solvers.bcfw_python import PythonRun
from maxmargin.solvers.bcfw_visits import (
    N_CACHED,
    N_CROWDED,
    N_ORACLE,
    NOTHING_GIVEN,
    R_ACCEPT,
    R_FLOOR,
    R_ORACLE,
    exhausted,
    propose,
    visit_blocks,
)
from maxmargin.solvers.graph_oracle import GraphOracle
from maxmargin.solvers.loop import Solver
from maxmargin.solvers.planes import (
    ACCEPT,
    CACHED_PASSES,
    FLOOR,
    INNER,
    STEPS,
    PlaneFields,
    PlaneStore,
    add_moves,
    weights_of_planes,
)
from maxmargin.solvers.proximal import ProximalRun, ProximalState
from maxmargin.solvers.sampling import sample_by_gap

#: The proximal term makes lam this power of the condition |psi|^2 / (lam M ell) times larger, at most so many times (beyond, the
#: centre overshoots what a few passes can follow); and the passes between two moves of the centre.
_EXPONENT, _STRONGEST, _CENTRE_PASSES = 0.375, 9.0, 2
#: Examples that the oracle is asked about before the first pass.
_FIRST_LOOK = 64
#: Entries that the arena of planes grows by, at least.
_ROOM = 1 << 16
#: Entries of the planes that a check finds at a time.
_SHARD_ENTRIES = 1 << 22


@dataclass
class BlockState(ProximalState):
    """What a run keeps whatever its blocks are."""

    mean_v: NDArray[np.float64]
    mean_f: NDArray[np.float64]
    gaps: NDArray[np.float64]
    step_lam: float


@dataclass
class PlaneState(PlaneFields, BlockState):
    """Blocks as distributions over planes."""


@dataclass
class PlainState(BlockState):
    """Blocks as their mean planes: statistics and ell."""

    mean: NDArray[np.float64]
    ell: NDArray[np.float64]

    @property
    def nbytes(self) -> int:
        """Bytes of the dual state."""
        return int(self.mean.nbytes + self.ell.nbytes)


B = TypeVar("B", bound=BlockState)


class BCFW(Solver):
    """Block-coordinate Frank-Wolfe.

    Parameters
    ----------
    engine : "auto", str or engine
        The max-oracle: "auto" is `trees` on graphs without cycles, `graph_cut` on binary pairs, exact where that is cheap
        (small state spaces, small width), else `dual_decomposition`.
    steps : "corrective", "pairwise", "joint" or "plain"
        How a visit improves a block: solve it over its planes, one pairwise step, or the paper's Frank-Wolfe step. With "joint",
        batches of blocks are solved side by side, in threads, and step together: worth it where the oracle is slow.
    sampling : "gap" or "uniform"
        How examples are drawn for a pass.
    cache : int
        Planes kept an example; they grow beyond it where all have mass. 0 asks the oracle at every visit.
    averaging : bool
        Also keep the weighted mean of the weights after each pass, and report it where its value is lower.
    batch : int
        Examples per call of an engine that works outside the compiled loop, and per step with ``steps="joint"``.
    """

    name = "bcfw"
    requires = ("max-oracle",)
    kernels = True

    def __init__(
        self,
        engine: str | Engine = "auto",
        steps: str = "corrective",
        sampling: str = "gap",
        cache: int = 20,
        averaging: bool = False,
        batch: int = 4,
    ) -> None:
        self.engine = engine
        self.steps = steps
        self.sampling = sampling
        self.cache = cache
        self.averaging = averaging
        self.batch = batch

    @classmethod
    def plain(cls, engine: str | Engine = "auto") -> BCFW:
        """The algorithm of the paper, with its weighted averaging."""
        return cls(engine, steps="plain", sampling="uniform", cache=0, averaging=True)

    def options(self) -> dict[str, Any]:
        """The constructor's parameters, the engine by name."""
        return {**vars(self), "engine": getattr(self.engine, "name", self.engine)}

    def check_options(self, problem: Any) -> None:
        """Refuse, in a sentence, options that cannot be."""
        if self.steps not in ("corrective", "pairwise", "joint", "plain"):
            raise OptionError(f'steps={self.steps!r} is not known; use "corrective", "pairwise", "joint" or "plain".')
        if self.sampling not in ("gap", "uniform"):
            raise OptionError(f'sampling={self.sampling!r} is not known; use "gap" or "uniform".')
        for name, least in (("cache", 0), ("batch", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
                raise OptionError(f"{name}={value!r} is not possible; use a whole number of at least {least}.")

    def make_run(self, problem: Any, lam: float, random_state: Any, threads: int) -> BlockRun[Any] | PythonRun:
        """What does the work."""
        if not isinstance(problem, FactorGraphs):
            return PythonRun(self, problem, lam, random_state, threads)
        kinds: dict[str, type[BlockRun[Any]]] = {"plain": PlainRun, "joint": JointRun}
        kind = kinds.get(self.steps, PlaneRun)
        return kind(self, problem, lam, random_state, threads)


class BlockRun(ProximalRun[B]):
    """One run: the problem's arrays at hand, and the steps of the main loop."""

    solver: BCFW
    problem: FactorGraphs

    def __init__(self, solver: BCFW, problem: FactorGraphs, lam: float, random_state: Any, threads: int) -> None:
        super().__init__(solver, problem, lam, random_state, threads)
        self.oracle = GraphOracle(problem, solver.engine)
        self.certificate = self.oracle.certificate
        self.features = problem.variable_features.arrays, problem.factor_features.arrays
        self.grams = row_grams(problem)
        self.half = int(problem.arrays.largest[L_BUFFER])
        self.step_lam = lam

    @property
    def scale(self) -> float:
        """What a unit of mass does to w, but for the example's weight."""
        return 1.0 / (self.step_lam * self.problem.n_examples)

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
            **common, mean_v=np.zeros_like(common["w_v"]), mean_f=np.zeros_like(common["w_f"]),
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
            now.w_v[:], now.w_f[:] = self.dual_point(now)[1:]
            now.centre_v[:], now.centre_f[:] = now.w_v, now.w_f
            now.last_v[:], now.last_f[:] = now.w_v, now.w_f
        else:
            # Kernels are compiled before the clock starts: called with nothing to do.
            self.visit(now, np.empty(0, np.int64), np.zeros(6), np.zeros(3, np.int64))
        self.prepare(now)
        return now

    def prepare(self, now: B) -> None:
        """Whatever else a run needs before its first pass."""

    @abstractmethod
    def dual_point(self, now: B) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
        """The linear part of f at the blocks, and their weights w(alpha)."""

    # -------------------------------------------------------------------------------------------- one pass

    def one_pass(self, now: B, stop: Callable[[], bool]) -> None:
        """As many visits as there are examples, and whatever else pays."""
        clock = jit.clock()
        self.step_lam = now.step_lam
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
        n = self.problem.n_examples
        if self.solver.sampling == "uniform" or now.n_passes == 0:
            return rng.permutation(n)
        return rng.permutation(sample_by_gap(now.gaps * self.problem.arrays.weight, rng))

    def walk(self, now: B, order: NDArray[np.int64], ask: bool, stop: Callable[[], bool]) -> tuple[float, float]:
        """Visit the examples in order, in pieces that can be interrupted; returns the gain and the cost."""
        counts, gain = np.zeros(3, np.int64), 0.0
        rules = np.array([self.scale, *self.acceptance(now), INNER, STEPS if self.corrective else 1, ask])
        size = max(1, int(2_000_000 / (1.0 + self.oracle.work)))
        if ask and self.oracle.compiled is None:
            size = self.solver.batch
        for first in range(0, len(order), size):
            gain += self.visit(now, order[first : first + size], rules, counts)
            if stop():
                break
        self.count(now, counts)
        return gain, len(order) * self.oracle.view_work + counts[N_ORACLE] * self.oracle.work

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

    def visit(self, now: B, order: NDArray[np.int64], rules: NDArray[np.float64], counts: NDArray[np.int64]) -> float:
        """Visit these examples; an engine outside the compiled loop is asked before."""
        oracle = self.oracle.compiled or self.oracle.most_violated(now.w_v, now.w_f, order)
        return self.visit_with(oracle, now, order, rules, counts)

    @abstractmethod
    def visit_with(
        self, oracle: Any, now: B, order: NDArray[np.int64], rules: NDArray[np.float64], counts: NDArray[np.int64]
    ) -> float:
        """Visit these examples with an oracle; returns the gain in M times the dual."""

    # -------------------------------------------------------------------------------------------- certificates

    def check(self, now: B, off_schedule: bool = False) -> None:
        """Ask the oracle about every example at the same weights: the mean of the gaps is the gap, and all planes are kept."""
        clock = jit.clock()
        self.step_lam = now.step_lam
        linear, r_v, r_f = self.dual_point(now)
        self.raise_dual(now, linear, r_v, r_f)
        # Made afresh, which ends the drift of running sums.
        share = self.lam / self.step_lam
        now.w_v[:], now.w_f[:] = share * r_v + (1.0 - share) * now.centre_v, share * r_f + (1.0 - share) * now.centre_f
        # What the oracle finds here the passes go on with, so it counts as theirs.
        asking = jit.clock()
        self.look_at(now, np.arange(self.problem.n_examples))
        asking = jit.clock() - asking
        now.seconds += asking
        best = now.w_v, now.w_f
        # A block's gap is its hinge minus the mean slope of its planes, and those add up to this.
        slopes = linear - self.lam * self.problem.inner(best, (r_v, r_f))
        primal = self.regulariser(*best) + slopes + self.mean(now.gaps)
        if self.oracle.bounds:
            primal = self.primal(now.w_v, now.w_f)
        if self.solver.averaging:
            mean = self.primal(now.mean_v, now.mean_f)
            if mean < primal:
                primal, best = mean, (now.mean_v, now.mean_f)
        if primal < now.primal:
            now.primal = primal
            now.best_v[:], now.best_f[:] = best
        if not off_schedule:
            now.next_check = now.n_passes + 1 + now.n_passes // 8
        now.monitor_seconds += jit.clock() - clock - asking
        now.write_line(block_gap=self.mean(now.gaps), **self.line(now))

    def look_at(self, now: B, examples: NDArray[np.int64]) -> None:
        """Find the planes of largest slope of these examples, in threads, and look at them without a step."""
        counts, rules = np.zeros(3, np.int64), np.array([self.scale, np.inf, np.inf, 0.0, 0.0, 1.0])
        n = len(examples)
        size = max(1, min(-(-n // 16), int(_SHARD_ENTRIES / (2 * self.half + 1))))
        shards = [(first, min(first + size, n)) for first in range(0, n, size)]
        for k in range(0, len(shards), 16):
            found = map_shards(
                lambda begin, end: self.oracle.most_violated(now.w_v, now.w_f, examples[begin:end]),
                shards[k : k + 16],
                self.threads,
                pausing=True,
            )
            for (begin, end), planes in zip(shards[k : k + 16], found, strict=True):
                self.visit_with(planes, now, examples[begin:end], rules, counts)
        self.count(now, counts)

    def line(self, now: B) -> dict[str, float]:
        """What else goes into the history."""
        return {}

    def primal(self, w_v: NDArray[np.float64], w_f: NDArray[np.float64]) -> float:
        """P(w), by the oracle."""
        return self.regulariser(w_v, w_f) + self.mean(self.oracle.hinges(w_v, w_f, self.threads))

    # -------------------------------------------------------------------------------------------- the outcome

    def weights(self, now: B) -> NDArray[np.float64]:
        """The flat weights of the best primal value."""
        return self.problem.flat_weights(now.best_v, now.best_f)

    def options(self, now: B) -> dict[str, Any]:
        """The oracle, and why it was chosen."""
        return {
            "engine": self.oracle.engine.name,
            "engine_reason": self.oracle.reason,
            "proximal": now.step_lam / self.lam - 1.0,
        }


class PlaneRun(BlockRun[PlaneState]):
    """Blocks are distributions over planes that are kept."""

    state_type = PlaneState

    def first_state(self, **common: Any) -> PlaneState:
        """Every block has the truth alone."""
        p = self.problem
        n_states = np.diff(np.append(p.state_starts(), p.example_states[-1])).astype(float)
        with np.errstate(over="ignore"):
            labelings = np.multiply.reduceat(n_states, p.example_variables[:-1]).max()
        # Relaxed planes are more than labelings.
        most = labelings - 1 if self.certificate == "exact" else np.inf
        capacity = 1 + int(min(max(self.solver.cache, 1), most))
        store = PlaneStore.empty(p.n_examples, capacity, _ROOM + 2 * self.half)
        return PlaneState(**common, **store._asdict())

    def shrink(self, now: PlaneState, earlier: PlaneState, share: float) -> None:
        """Take over the planes of an earlier run."""
        now.store = PlaneStore._make(array.copy() for array in earlier.store)
        now.alpha *= share
        now.alpha[:, 0] += 1.0 - share

    def prepare(self, now: PlaneState) -> None:
        """Look at the planes that the oracle finds first for some examples, and choose the strength of the proximal term by them.

        A unit of a plane's mass changes its own slope by |psi|^2 / (lam M), and slopes are of the size of ell: their ratio is
        the condition of coordinate ascent.
        """
        clock = jit.clock()
        n = self.problem.n_examples
        some = np.sort(np.random.default_rng([self.seed, 1]).permutation(n)[:_FIRST_LOOK])
        with suppress(Stopped):
            self.look_at(now, some)
        newest = now.n_planes[some] - 1
        chosen, at = some[newest > 0], newest[newest > 0]
        ell = np.abs(now.ell[chosen, at])
        if self.corrective and len(chosen) and ell.sum() > 0.0:
            condition = self.scale * float(now.gram[chosen, at, at].sum() / ell.sum())
            now.step_lam = self.lam * min(max(1.0, condition**_EXPONENT), _STRONGEST)
        now.seconds += jit.clock() - clock

    def dual_point(self, now: PlaneState) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
        """The linear part of f at the planes' masses, and their weights."""
        r_v, r_f = np.empty_like(now.w_v), np.empty_like(now.w_f)
        total = weights_of_planes(
            self.problem.arrays,
            *self.features,
            now.store,
            self.half,
            1.0 / (self.lam * self.problem.n_examples),
            r_v,
            r_f,
        )
        return float(total) / self.problem.n_examples, r_v, r_f

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
            now.store = now.store.with_capacity(2 * now.store.capacity)

    def visit(
        self, now: PlaneState, order: NDArray[np.int64], rules: NDArray[np.float64], counts: NDArray[np.int64]
    ) -> float:
        """Visit these examples; an engine outside the compiled loop is asked for those whose planes are exhausted."""
        if self.oracle.compiled is not None:
            return self.visit_with(self.oracle.compiled, now, order, rules, counts)
        cached, asked = rules.copy(), rules.copy()
        cached[R_ORACLE], asked[[R_ACCEPT, R_FLOOR]] = 0.0, np.inf
        if not rules[R_ORACLE]:
            return self.visit_with(NOTHING_GIVEN, now, order, cached, counts)
        empty = exhausted(self.problem.arrays, *self.features, now.w_v, now.w_f, now.store, order, rules, now.gaps)
        gain = self.visit_with(NOTHING_GIVEN, now, order[~empty], cached, counts)
        order = order[empty]
        return gain + self.visit_with(self.oracle.most_violated(now.w_v, now.w_f, order), now, order, asked, counts)

    def visit_with(
        self,
        oracle: Any,
        now: PlaneState,
        order: NDArray[np.int64],
        rules: NDArray[np.float64],
        counts: NDArray[np.int64],
    ) -> float:
        """Visit these examples with an oracle; planes get more room when they need it."""
        first, gain = 0, 0.0
        while True:
            more: float
            first, more = visit_blocks(
                self.problem.arrays, *self.features, now.w_v, now.w_f, oracle, self.grams, now.store, order, first,
                now.n_passes, rules, now.gaps, counts,
            )  # fmt: skip
            gain += more
            if first == len(order):
                return gain
            now.store = now.store.with_room(max(_ROOM, int(now.filled[0]) // 2) + 2 * self.half)

    def line(self, now: PlaneState) -> dict[str, float]:
        """Visits that did without the oracle, and bytes of the planes."""
        return {"n_cached": now.n_cached, "bytes": now.nbytes}

    def options(self, now: PlaneState) -> dict[str, Any]:
        """How the planes were used."""
        return {**super().options(now), "n_cached": now.n_cached, "planes": float(now.n_planes.mean()) - 1.0}


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
        rules = np.array([self.scale, *self.acceptance(now), INNER, STEPS, ask])
        for first in range(0, len(order), self.solver.batch):
            batch = np.unique(order[first : first + self.solver.batch])
            if ask:
                self.look(now, batch, rules, counts)
            gain += self.step_together(now, batch, rules)
            if stop():
                break
        self.count(now, counts)
        return gain, len(order) * self.oracle.view_work + counts[N_ORACLE] * self.oracle.work

    def look(
        self, now: PlaneState, batch: NDArray[np.int64], rules: NDArray[np.float64], counts: NDArray[np.int64]
    ) -> None:
        """Ask the oracle, in threads, about the examples whose planes are exhausted, and keep what it finds."""
        empty = exhausted(self.problem.arrays, *self.features, now.w_v, now.w_f, now.store, batch, rules, now.gaps)
        counts[N_CACHED] += int((~empty).sum())
        batch = batch[empty]
        shards = _pieces(len(batch))
        found = map_shards(
            lambda begin, end: self.oracle.most_violated(now.w_v, now.w_f, batch[begin:end]), shards, self.threads
        )
        resting = np.array([self.scale, np.inf, np.inf, 0.0, 0.0, 1.0])
        for (begin, end), planes in zip(shards, found, strict=True):
            self.visit_with(planes, now, batch[begin:end], resting, counts)

    def step_together(self, now: PlaneState, batch: NDArray[np.int64], rules: NDArray[np.float64]) -> float:
        """The step of a batch; returns the gain in M times the dual."""
        p, store = self.problem, now.store
        moved, slopes = np.zeros((len(batch), store.capacity)), np.empty(len(batch))
        map_shards(
            lambda begin, end: propose(
                p.arrays, *self.features, now.w_v, now.w_f, store, batch[begin:end], rules, moved[begin:end], slopes[begin:end]
            ),
            _pieces(len(batch)),
            self.threads,
        )  # fmt: skip
        before = now.w_v.copy(), now.w_f.copy()
        add_moves(p.arrays, *self.features, store, batch, moved, self.half, self.scale, now.w_v, now.w_f)
        change = now.w_v - before[0], now.w_f - before[1]
        slope, curvature = float(slopes.sum()), self.step_lam * p.n_examples * p.inner(change, change)
        if slope <= 0.0:
            now.w_v[:], now.w_f[:] = before
            return 0.0
        step = min(1.0, slope / curvature) if curvature > 0.0 else 1.0
        now.w_v[:], now.w_f[:] = before[0] + step * change[0], before[1] + step * change[1]
        store.alpha[batch] = np.maximum(store.alpha[batch] + step * moved, 0.0)
        store.used[batch] = np.where(store.alpha[batch] > 0.0, now.n_passes, store.used[batch])
        return step * (slope - 0.5 * step * curvature)


def _pieces(n: int) -> list[tuple[int, int]]:
    """Shards of a batch, which do not depend on the number of threads."""
    size = max(1, -(-n // 8))
    return [(first, min(first + size, n)) for first in range(0, n, size)]


class PlainRun(BlockRun[PlainState]):
    """Blocks are mean planes, as in the paper."""

    state_type = PlainState

    def __init__(self, solver: BCFW, problem: FactorGraphs, lam: float, random_state: Any, threads: int) -> None:
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

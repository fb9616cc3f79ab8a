"""Stochastic subgradient steps of size 1 / (lam t), averaged; and the dual bound that they carry along.

Shalev-Shwartz, Singer, Srebro and Cotter, Pegasos, 2011; for structured outputs, Ratliff, Bagnell and Zinkevich 2007. A visit of
example m at the weights w, the t-th in all, finds its plane of largest slope (oracles/max_oracle.py) and steps

    w <- w - eta_t (lam w - weight_m psi_m),        eta_t = 1 / (lam (t + t0))

From w = 0 that telescopes: the weights are a scaled sum of planes, so a step writes only where psi is not 0,

    w_t = v_t / (lam (t + t0)),     v_t = sum_{s <= t} weight_s psi_s

Iterates are averaged in proportion to t + t0 (Lacoste-Julien, Schmidt and Bach 2012), which the second sum u_t = sum_{s <= t} s
weight_s psi_s gives when it is asked for:

    sum_t (t + t0) w_t = 1/lam sum_t v_t = ((T + 1) v_T - u_T) / lam

A mini-batch keeps w for its examples; everything else is the same.

A dual bound comes for free, since a scaled sum of planes is what the w of a dual point is (planes/arena.py): in w_t, a visit of an
example is mass M / (t + t0) on the plane it found, and the truth, whose plane is 0, has the rest. Scaled by c, with n_m visits of
example m, that is a distribution if c M n_m / (t + t0) <= 1 for all of them, and

    f(c) = c L_t / (t + t0) - c^2 lam/2 |w_t|^2,     L_t = sum_{s <= t} weight_s ell_s

bounds the optimum from below at the best such c. The same holds for the average, whose masses come from both sums of visits. So
the gap is certified as by the other solvers, although it closes slowly.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.errors import OptionError
from maxmargin.inference import Engine
from maxmargin.jit import Struct, kernel
from maxmargin.problems.statistics import add_example, project_example
from maxmargin.solvers.core.run import State
from maxmargin.solvers.core.solver import Solver
from maxmargin.solvers.oracles.compiled import find_plane, workspace
from maxmargin.solvers.oracles.graph_oracle import GraphOracle
from maxmargin.solvers.oracles.max_oracle import MaxOracle, oracle_of
from maxmargin.solvers.oracles.oracle_run import OracleRun, earlier_of

# `sums`: of weight ell, of s weight ell, of visits whose plane is not the truth's.
L_SUM, L_TIMES, N_MISTAKES = range(3)


class Pace(Struct):
    """Examples asked about at the same weights, visits before these; sums count 1 / (step (t + t0)), or 1 if step is 0."""

    batch: int
    t: int
    step: float
    t0: float


@dataclass
class SumState(State):
    """Sums of planes, plain and by visit: flat weights, or as kernels want them (feature-major, variables before factors)."""

    v: NDArray[np.float64]
    u: NDArray[np.float64]
    best: NDArray[np.float64]
    sums: NDArray[np.float64]
    #: (M,): how often each example was visited, and the sum of the numbers of those visits.
    visits: NDArray[np.float64]
    times: NDArray[np.float64]
    lam: float
    #: Visits in all.
    t: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the two sums."""
        return int(self.v.nbytes + self.u.nbytes)


class SumRun(OracleRun[SumState]):
    """A run whose weights are a scaled sum of planes: what Subgradient and Perceptron share."""

    state_type = SumState
    solver: Any
    #: Whose planes are added; `oracle` is the one of the training problem.
    asked: MaxOracle
    #: The weights are v / (step (t + t0)), or v where step is 0.
    step: float
    t0: float

    def begin(self, earlier: SumState | None) -> SumState:
        """Nothing visited yet; or the sums of an earlier run, scaled so that the weights stay if lam is not larger."""
        d, n = self.oracle.n_weights, self.oracle.n_examples
        now = SumState(np.zeros(d), np.zeros(d), np.zeros(d), np.zeros(3), np.zeros(n), np.zeros(n), self.lam)
        if earlier is not None:
            earlier = earlier_of(now, earlier, ("v", "visits"))
            # Fewer visits of everything but the truth, as it were.
            share = min(1.0, self.lam / earlier.lam) if self.step else 1.0
            for name in ("v", "u", "sums", "visits", "times"):
                setattr(now, name, share * getattr(earlier, name))
            now.t = earlier.t
        if self.compiled:
            # Compiled before the clock starts: called with nothing to do.
            self.walker(now)(np.empty(0, np.int64))
        return now

    def steps(self, now: SumState, stop: Callable[[], bool]) -> None:
        """Visit all examples in random order, in pieces that can be interrupted."""
        rng = np.random.default_rng([self.seed, 0, now.n_passes])
        now.sums[N_MISTAKES] = 0.0
        self.visit(now, rng.permutation(self.oracle.n_examples), stop)

    def visit(self, now: SumState, order: NDArray[np.int64], stop: Callable[[], bool]) -> None:
        """Visit examples in an order, in pieces that can be interrupted."""
        batch, walk = self.solver.batch, self.walker(now)
        size = -(-self.piece // batch) * batch
        for first in range(0, len(order), size):
            piece = order[first : first + size]
            walk(piece)
            now.visits[piece] += 1.0
            now.times[piece] += now.t + 1.0 + np.arange(len(piece))
            now.t += len(piece)
            now.n_oracle_calls += len(piece)
            if stop():
                break

    @property
    def compiled(self) -> bool:
        """Whether visits can be made in a compiled loop."""
        return isinstance(self.asked, GraphOracle) and self.asked.compiled is not None

    @property
    def piece(self) -> int:
        """Examples between two questions whether to stop."""
        work = self.asked.work if isinstance(self.asked, GraphOracle) else 0.0
        return max(1, int(20_000_000 / (1.0 + work))) if self.compiled else 1

    def walker(self, now: SumState) -> Callable[[NDArray[np.int64]], None]:
        """What adds the planes of some examples to the sums."""
        asked, batch = self.asked, self.solver.batch
        if isinstance(asked, GraphOracle) and asked.compiled is not None:
            p, oracle, sums = asked.problem, asked.compiled, (*self.views(now.v), *self.views(now.u))
            work = workspace(p.arrays.largest, oracle.room(p.arrays.largest), planes=batch)

            def compiled(piece: NDArray[np.int64]) -> None:
                pace = Pace(batch, now.t, self.step, self.t0)
                sum_visits(p.batch, *sums, oracle, work, piece, pace, now.sums)

            return compiled

        def one_by_one(piece: NDArray[np.int64]) -> None:
            psi, ell = asked.planes(self.last(now), piece)
            weight = asked.weight[piece]
            times = now.t + 1.0 + np.arange(len(piece))
            now.v += psi.T @ weight
            now.u += psi.T @ (weight * times)
            now.sums += np.array([weight @ ell, (weight * times) @ ell, np.count_nonzero(np.diff(psi.indptr))])

        return one_by_one

    def views(self, working: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The weights of variables and of factors in a sum that kernels see."""
        assert isinstance(self.asked, GraphOracle)
        p = self.asked.problem
        shape = p.variable_features.shape[1], p.n_variable_blocks
        split = shape[0] * shape[1]
        return working[:split].reshape(shape), working[split:].reshape(p.factor_features.shape[1], p.n_factor_blocks)

    def flat(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """A sum as flat weights."""
        if not (isinstance(self.asked, GraphOracle) and self.compiled):
            return weights
        return self.asked.problem.flat_weights(*self.views(weights))

    def value(self, now: SumState, weights: NDArray[np.float64], flat: NDArray[np.float64]) -> float:
        """P of weights that are known as a sum and as flat weights; no planes are added up where the oracle is compiled."""
        if not (isinstance(self.oracle, GraphOracle) and self.compiled):
            return self.primal(now, flat)
        now.n_oracle_calls += self.oracle.n_examples
        return self.regulariser(flat) + self.mean(self.oracle.hinges(*self.views(weights), self.threads))

    def last(self, now: SumState) -> NDArray[np.float64]:
        """The weights after the last visit."""
        return now.v / (self.step * max(1.0, now.t + self.t0)) if self.step else now.v.copy()

    def average(self, now: SumState) -> NDArray[np.float64]:
        """The average of the iterates."""
        average = (now.t + 1) * now.v
        average -= now.u
        average /= self.step * (now.t * (now.t + 1) / 2.0 + now.t * self.t0) if self.step else now.t
        return average

    @abstractmethod
    def measure(self, now: SumState, off_schedule: bool) -> dict[str, float]:
        """Bound the optimum."""

    def weights(self, now: SumState) -> NDArray[np.float64]:
        """The flat weights that are reported."""
        return now.best


class Subgradient(Solver):
    """Stochastic subgradient with averaging.

    Parameters
    ----------
    inference : "auto", str or engine
        The max-oracle of factor graphs.
    t0 : float, optional
        Visits that are taken to have been made before the first: larger is more careful at the start. None is the number of
        examples.
    batch : int
        Examples that are visited at the same weights.
    """

    name = "subgradient"
    requires = ("max-oracle",)
    certificates = ("exact", "relaxed", "none")
    keeps = "a few vectors of weights, two numbers an example"
    loss_tables = False
    orders_columns = True
    streams = True
    paper = "Shalev-Shwartz, Singer, Srebro and Cotter 2011; Ratliff, Bagnell and Zinkevich 2007"

    def __init__(self, inference: str | Engine = "auto", t0: float | None = None, batch: int = 1) -> None:
        self.inference = inference
        self.t0 = t0
        self.batch = batch

    def check_options(self, problem: Any) -> None:
        """Refuse, in a sentence, options that cannot be."""
        if self.t0 is not None and not (np.isfinite(self.t0) and self.t0 >= 0):
            raise OptionError(f"t0={self.t0!r} is not possible; use a finite number that is not negative, or None.")
        check_batch(self.batch)

    def make_run(self, problem: Any, lam: float, random_state: Any, threads: int) -> SubgradientRun:
        """What does the work."""
        return SubgradientRun(self, problem, lam, random_state, threads)


def check_batch(batch: Any) -> None:
    """Refuse a batch that is no number of examples."""
    if isinstance(batch, bool) or not isinstance(batch, int | np.integer) or batch < 1:
        raise OptionError(f"batch={batch!r} is not possible; use a whole number of at least 1.")


class SubgradientRun(SumRun):
    """One run."""

    def __init__(self, solver: Subgradient, problem: Any, lam: float, random_state: Any, threads: int) -> None:
        super().__init__(solver, problem, lam, random_state, threads)
        self.oracle = self.asked = oracle_of(problem, solver.inference)
        self.certificate = self.oracle.certificate
        self.step = lam
        self.t0 = float(self.oracle.n_examples if solver.t0 is None else solver.t0)

    def measure(self, now: SumState, off_schedule: bool) -> dict[str, float]:
        """Values of the last iterate and of the average, and of the dual points that they belong to."""
        n, t = self.oracle.n_examples, now.t
        total = t * (t + 1) / 2.0 + t * self.t0
        last, mean = self.last(now), self.average(now)
        flat_last, flat_mean = self.flat(last), self.flat(mean)
        self.bound(now, flat_last, now.sums[L_SUM] / (t + self.t0), n * now.visits / (t + self.t0))
        ell = ((t + 1) * now.sums[L_SUM] - now.sums[L_TIMES]) / total
        self.bound(now, flat_mean, ell, n * ((t + 1) * now.visits - now.times) / total)
        for w, flat in ((last, flat_last), (mean, flat_mean)):
            primal = self.value(now, w, flat)
            if primal < now.primal:
                now.primal, now.best = primal, flat
        if not off_schedule:
            now.next_check = now.n_passes + 1 + now.n_passes // 8
        return {}

    def bound(self, now: SumState, w: NDArray[np.float64], ell: float, mass: NDArray[np.float64]) -> None:
        """The best dual bound of weights that have these masses on planes, scaled."""
        norm = 2.0 * self.regulariser(w)
        scale = min(1.0 / float(mass.max()), max(ell, 0.0) / norm if norm > 0.0 else math.inf)
        now.dual = max(now.dual, scale * ell - scale**2 / 2.0 * norm)


# ------------------------------------------------------------------------------------------------------- kernels


@kernel
def sum_visits(
    batch: Any, v_v: Any, v_f: Any, u_v: Any, u_f: Any, oracle: Any, work: Any, order: Any, pace: Any, sums: Any
) -> None:
    """Visit examples in order: add their planes to v, and the number of the visit times them to u."""
    weight, z, change, index, value = batch.graphs.weight, work.z, work.change, work.index, work.value
    size, t = pace.batch, pace.t
    begin, ell = np.zeros(size + 1, np.int64), np.empty(size)
    for first in range(0, len(order), size):
        last = min(first + size, len(order))
        scale = 1.0 / (pace.step * max(1.0, t + first + pace.t0)) if pace.step > 0.0 else 1.0
        for k in range(first, last):
            m, j = order[k], k - first
            project_example(batch, m, v_v, v_f, z)
            if scale != 1.0:
                for i in range(len(z)):
                    z[i] *= scale
            n, ell[j] = find_plane(oracle, batch, work, k, m, index, value, begin[j])
            begin[j + 1] = begin[j] + n
        for k in range(first, last):
            m, j = order[k], k - first
            if begin[j] == begin[j + 1] and ell[j] == 0.0:
                continue
            times = t + k + 1.0
            sums[L_SUM] += weight[m] * ell[j]
            sums[L_TIMES] += times * weight[m] * ell[j]
            sums[N_MISTAKES] += 1.0
            for e in range(begin[j], begin[j + 1]):
                change[index[e]] = value[e]
            add_example(batch, m, change, weight[m], v_v, v_f)
            add_example(batch, m, change, times * weight[m], u_v, u_f)
            for e in range(begin[j], begin[j + 1]):
                change[index[e]] = 0.0

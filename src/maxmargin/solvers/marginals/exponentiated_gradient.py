"""Exponentiated gradient on the dual, batch and online.

Collins, Globerson, Koo, Carreras and Bartlett, Exponentiated Gradient Algorithms for Conditional Random Fields and Max-Margin
Markov Networks, JMLR 9, 2008. With a distribution p_m over the labelings of every example, and psi(p), ell(p) the means of
weight_m E psi_m and weight_m E ell_m,

    w(p) = psi(p) / lam
    D(p) = ell(p) - lam/2 |w(p)|^2                               objective="margin"
    D(p) = ell(p) - lam/2 |w(p)|^2 + mean weight_m entropy(p_m)  objective="softmax-margin"; "log", where ell has no task loss

A step multiplies every p_m(y) by exp(eta (ell_m(y) - w . psi_m(y))); with the log objective it is taken to the power 1 / (1 +
eta) as well, which is the same as their (1 - eta') log p + eta' (...) with eta' = eta / (1 + eta). It maximises

    <grad q(p), p'> - KL(p' | p) / eta  (+ entropy(p')),      q(p) = ell(p) - lam/2 |w(p)|^2

and does not decrease D if |psi(p') - psi(p)|^2 / (2 lam) <= KL(p' | p) / eta, as eta <= lam / max |psi|^2 makes sure. Here eta
grows as long as that holds and is halved where it does not; the divergence is a difference of log partition functions.

*Batch.* All p_m start from the uniform distribution and make the same steps, so they keep the form

    p_m(y) ~ exp(a ell_m(y) - v . psi_m(y)),      a <- a + eta, v <- v + eta w(p)     (log: a = 1, v <- (v + eta w(p)) / (1 + eta))

which is the Gibbs distribution of the weights v / a at temperature 1 / a: a number and a vector are all there is to keep, and
one call of the exp-oracle is one step. v / a is the mean of all w(p) so far, and its value is bounded from above by its smooth
value at temperature 1 / a, which the call has found: both bounds are free. The value of the last w(p) is asked of a max-oracle,
rarely.

*Online.* Examples take turns, each with a step of its own, on forests. An example keeps a_m, its exponents and the statistics
of its marginals in its own coordinates (statistics.py), and w follows every step. The gap takes a call at checks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.devices import copied
from maxmargin.errors import OptionError
from maxmargin.inference import Engine
from maxmargin.inference.trees import TreeRoom, schedule, sum_product_one
from maxmargin.jit import Struct, kernel
from maxmargin.problems.factor_graphs import FactorGraphs
from maxmargin.problems.layout import offsets
from maxmargin.problems.statistics import add_example, project_example, row_grams, statistics_sizes
from maxmargin.solvers.core.capabilities import OBJECTIVES, check_objective
from maxmargin.solvers.core.run import State
from maxmargin.solvers.core.solver import Solver
from maxmargin.solvers.marginals.exp_run import ExpRun
from maxmargin.solvers.oracles.compiled import fill_tables, gram_times_plane, marginals_plane, minus_truth, workspace
from maxmargin.solvers.oracles.exp_oracle import HOT, FactorGraphExpOracle, MeanMarginals
from maxmargin.solvers.oracles.oracle_run import check_family, earlier_of

#: What a step grows by after it was taken: before and after the first that was not.
_EAGER, _CAREFUL = 2.0, 1.1
#: Error of a dual value by rounding, beside which no step is judged.
_ROUNDING = 1e-13
#: Halvings of an example's step in one visit.
_TRIES = 12
# Columns of `own`, what an example keeps beside its exponents and statistics: a, E ell, a times its value, the step, what it
# grows by.
A, ELL, LOG, STEP, GROWTH = range(5)


class Kept(Struct):
    """What is kept of all examples.

    Example m has the entries starts[m]:starts[m + 1] of zeta and of statistics, the truth's minus the expected ones: those of
    variables, then those of factors, as `sizes` says for its structure.
    """

    sizes: NDArray[np.int64]
    starts: NDArray[np.int64]
    zeta: NDArray[np.float64]
    statistics: NDArray[np.float64]
    own: NDArray[np.float64]
    log: bool


class ExponentiatedGradient(Solver):
    """Exponentiated gradient.

    Parameters
    ----------
    inference : "auto", str or engine
        The exp-oracle of factor graphs.
    objective : "margin", "log" or "softmax-margin"
    online : bool, optional
        Examples one at a time, on forests; None is wherever that is possible.
    device : str
        "cpu", "cuda", "cuda:1" and so on, or "torch" (`maxmargin.devices`); all examples at a time but on "cpu".
    """

    name = "exponentiated-gradient"
    requires = ("marginals",)
    certificates = ("exact", "none")
    keeps = "a few vectors of weights; online, statistics of each example"
    paper = "Collins, Globerson, Koo, Carreras and Bartlett 2008"
    objectives = OBJECTIVES
    kernels = True
    on_devices = True

    def __init__(
        self,
        inference: str | Engine = "auto",
        objective: str = "margin",
        online: bool | None = None,
        device: str = "cpu",
    ) -> None:
        self.inference = inference
        self.objective = objective
        self.online = online
        self.device = device

    def check_options(self, problem: Any) -> None:
        """Refuse an objective that is not known."""
        check_objective(self.objective)

    def make_run(self, problem: Any, lam: float, random_state: Any, threads: int) -> BatchRun | OnlineRun:
        """What does the work."""
        by_trees = isinstance(problem, FactorGraphs) and problem.is_forest and not problem.has_structured
        if self.online and not by_trees:
            raise OptionError(
                "Online exponentiated gradient keeps marginals of trees, and not all of these graphs are trees; "
                "use online=False."
            )
        if self.online and self.device != "cpu":
            raise OptionError(
                'Online exponentiated gradient works on the processor: use online=False, or device="cpu".'
            )
        by_trees = (
            by_trees and self.device == "cpu" and getattr(self.inference, "name", self.inference) in ("auto", "trees")
        )
        run = OnlineRun if (by_trees if self.online is None else self.online) else BatchRun
        return run(self, problem, lam, random_state, threads)


# --------------------------------------------------------------------------------------------------------------- batch


@dataclass
class BatchState(State):
    """The exponents a, v, and what they give: psi, ell, and the mean value at v / a."""

    on_device = ("v", "psi", "best")

    v: NDArray[np.float64]
    psi: NDArray[np.float64]
    best: NDArray[np.float64]
    lam: float
    a: float
    #: The number of its objective.
    family: int
    ell: float = 0.0
    value: float = 0.0
    step: float = 0.0
    growth: float = _EAGER
    #: Whether psi, ell and value are those of a and v.
    known: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes of the dual state."""
        return int(self.v.nbytes + self.psi.nbytes)


class BatchRun(ExpRun[BatchState]):
    """One run, all examples at a time."""

    solver: ExponentiatedGradient
    state_type = BatchState

    def __init__(
        self, solver: ExponentiatedGradient, problem: Any, lam: float, random_state: Any, threads: int
    ) -> None:
        super().__init__(solver, problem, lam, random_state, threads)
        self.log, self.family = solver.objective != "margin", OBJECTIVES.index(solver.objective)

    def begin(self, earlier: BatchState | None) -> BatchState:
        """Uniform distributions (of the weights 0, with the log objective), or the earlier ones: they do not depend on lam."""
        zero = self.device.zeros(self.oracle.n_weights)
        now = BatchState(zero, copied(zero), copied(zero), self.lam, 1.0 if self.log else 1.0 / HOT, self.family)
        # A norm is at most infinite, where the problem knows no bound: the first steps then grow from 1.
        now.step = min(1.0, self.lam / max(1e-300, self.radius() ** 2)) or 1.0
        if earlier is not None:
            earlier = earlier_of(now, earlier, ("v",))
            check_family(self.family, earlier)
            now.v, now.a, now.step = copied(earlier.v), earlier.a, earlier.step * self.lam / earlier.lam
        return now

    def steps(self, now: BatchState, stop: Callable[[], bool]) -> None:
        """One step, or half of it the next time."""
        if not now.known:
            self.arrive(now, now.a, now.v, self.expect(now, now.v / now.a, 1.0 / now.a))
            return
        w = now.psi / self.lam
        if self.log:
            a, v = 1.0, (now.v + now.step * w) / (1.0 + now.step)
        else:
            a, v = now.a + now.step, now.v + now.step * w
        found = self.expect(now, v / a, 1.0 / a)
        moved = found.psi - now.psi
        divergence = (
            (a - now.a) * found.ell
            - self.inner(v - now.v, found.psi)
            - (a * self.mean(found.values) - now.a * now.value)
        )
        if self.inner(moved, moved) / (2.0 * self.lam) <= divergence / now.step + _ROUNDING * (1.0 + abs(now.dual)):
            self.arrive(now, a, v, found)
            now.step *= now.growth
        else:
            now.step, now.growth = 0.5 * now.step, _CAREFUL

    def arrive(self, now: BatchState, a: float, v: NDArray[np.float64], found: MeanMarginals) -> None:
        """Go to the distributions of a and v, and bound the optimum by them."""
        now.a, now.v, now.psi, now.ell, now.value, now.known = a, v, found.psi, found.ell, self.mean(found.values), True
        entropy = now.value + self.inner(v, found.psi) - found.ell if self.log else 0.0
        now.dual = max(now.dual, found.ell + entropy - self.inner(found.psi, found.psi) / (2.0 * self.lam))
        self.keep(now, self.regulariser(v / a) + now.value, v / a)

    def measure(self, now: BatchState, off_schedule: bool) -> dict[str, float]:
        """The bounds of the mean came with the passes; ask for the last weights' value now and then."""
        if not self.log:
            self.keep(now, self.primal(now, now.psi / self.lam), now.psi / self.lam)
        if not off_schedule:
            now.next_check = now.n_passes + 1 + now.n_passes // 4
        return {"step": now.step}

    def keep(self, now: BatchState, primal: float, w: NDArray[np.float64]) -> None:
        """Take note of weights with a better value."""
        if primal < now.primal:
            now.primal, now.best = primal, w

    def weights(self, now: BatchState) -> NDArray[np.float64]:
        """The flat weights of the best primal value."""
        return self.flat(now.best)


# -------------------------------------------------------------------------------------------------------------- online


@dataclass
class OnlineState(State):
    """What every example keeps, one after the other, and the weights."""

    #: Exponents and statistics of the marginals, both in the examples' statistics coordinates.
    zeta: NDArray[np.float64]
    statistics: NDArray[np.float64]
    #: (M, 5): the columns A to GROWTH.
    own: NDArray[np.float64]
    w: NDArray[np.float64]
    average: NDArray[np.float64]
    best: NDArray[np.float64]
    lam: float
    #: The number of its objective.
    family: int

    @property
    def nbytes(self) -> int:
        """Bytes of the dual state."""
        return int(self.zeta.nbytes + self.statistics.nbytes + self.own.nbytes)


class OnlineRun(ExpRun[OnlineState]):
    """One run, an example at a time."""

    solver: ExponentiatedGradient
    state_type = OnlineState
    oracle: FactorGraphExpOracle

    def __init__(
        self, solver: ExponentiatedGradient, problem: Any, lam: float, random_state: Any, threads: int
    ) -> None:
        super().__init__(solver, problem, lam, random_state, threads)
        p, self.log, self.family = self.problem, solver.objective != "margin", OBJECTIVES.index(solver.objective)
        self.schedule, self.grams, self.sizes = schedule(p), row_grams(p), statistics_sizes(p)
        self.starts = offsets(self.sizes.sum(axis=1)[p.structure_of])
        # Kernels are compiled before any clock starts: called with nothing to do.
        self.visit(self.uniform(), np.empty(0, np.int64), 0.0)

    def uniform(self) -> OnlineState:
        """Uniform distributions (of the weights 0, with the log objective), of which nothing is known yet."""
        p = self.problem
        room, zero, own = int(self.starts[-1]), np.zeros(p.n_weights), np.zeros((p.n_examples, 5))
        own[:, A] = 1.0 if self.log else 1.0 / HOT
        own[:, STEP], own[:, GROWTH] = 1.0, _EAGER
        return OnlineState(np.zeros(room), np.zeros(room), own, zero, zero.copy(), zero.copy(), self.lam, self.family)

    def begin(self, earlier: OnlineState | None) -> OnlineState:
        """Uniform distributions, or the earlier ones: they do not depend on lam."""
        now = self.uniform()
        if earlier is not None:
            earlier = earlier_of(now, earlier, ("zeta", "w"))
            check_family(self.family, earlier)
            now.zeta, now.statistics, now.own = earlier.zeta.copy(), earlier.statistics.copy(), earlier.own.copy()
            now.w = earlier.w * (earlier.lam / self.lam)
        else:
            # A visit with a step of 0 finds the statistics of the distributions as they are.
            self.visit(now, np.arange(self.oracle.n_examples), 0.0)
        now.average = now.w.copy()
        return now

    def steps(self, now: OnlineState, stop: Callable[[], bool]) -> None:
        """Visit all examples in random order."""
        rng = np.random.default_rng([self.seed, 0, now.n_passes])
        order = rng.permutation(self.oracle.n_examples)
        for piece in np.array_split(order, max(1, len(order) // 500)):
            self.visit(now, piece, 1.0)
            if stop():
                break
        now.average += 2.0 / (now.n_passes + 2) * (now.w - now.average)

    def visit(self, now: OnlineState, order: NDArray[np.int64], share: float) -> None:
        """Steps of some examples."""
        p = self.problem
        w_v, w_f = p.working_weights(now.w)
        batch, largest = self.oracle.problem.batch, p.arrays.largest
        work = workspace(largest, TreeRoom.of(largest), self.grams.room(self.problem))
        kept = Kept(self.sizes, self.starts, now.zeta, now.statistics, now.own, self.log)
        now.n_oracle_calls += visit_examples(
            batch, w_v, w_f, self.schedule, self.grams, work, kept, order, self.lam, share
        )
        now.w = p.flat_weights(w_v, w_f)

    def measure(self, now: OnlineState, off_schedule: bool) -> dict[str, float]:
        """The dual from what the examples keep, the primal from the oracle."""
        dual = self.mean(now.own[:, ELL]) - self.regulariser(now.w)
        if self.log:
            now.dual = max(now.dual, dual + self.mean(self.entropies(now)))
        else:
            now.dual = max(now.dual, dual)
        for w in (now.w, now.average):
            primal = self.log_primal(now, w) if self.log else self.primal(now, w)
            if primal < now.primal:
                now.primal, now.best = primal, w.copy()
        if not off_schedule:
            now.next_check = now.n_passes + 1 + now.n_passes // 4
        return {"step": float(np.median(now.own[:, STEP]))}

    def log_primal(self, now: OnlineState, w: NDArray[np.float64]) -> float:
        """P(w) of the log objective."""
        return self.regulariser(w) + self.mean(self.expect(now, w, 1.0).values)

    def entropies(self, now: OnlineState) -> NDArray[np.float64]:
        """Entropy of every example's distribution: log partition function minus the mean exponent."""
        n = len(now.own)
        of = np.repeat(np.arange(n), np.diff(self.starts))
        exponents = np.bincount(of, now.zeta * now.statistics, minlength=n)
        return np.asarray(now.own[:, LOG] - now.own[:, A] * now.own[:, ELL] + exponents)

    def weights(self, now: OnlineState) -> NDArray[np.float64]:
        """The flat weights of the best primal value."""
        return now.best


# ------------------------------------------------------------------------------------------------------- kernels


@kernel
def visit_examples(
    batch: Any,
    w_v: Any,
    w_f: Any,
    schedule: Any,
    grams: Any,
    work: Any,
    kept: Any,
    order: Any,
    lam: float,
    share: float,
) -> int:
    """One step of each example, halved until the dual does not decrease; returns how often marginals were computed.

    With share = 0 the distributions stay, and their statistics are found.
    """
    examples, weight, half = batch.graphs.examples, batch.graphs.weight, batch.factors.at
    z, u, change, index, value, theta_v, theta_f, mu_v, mu_f = (
        work.z, work.u, work.change, work.index, work.value, work.theta_v, work.theta_f, work.mu_v, work.mu_f,
    )  # fmt: skip
    sizes, starts, zeta, statistics, own, log = kept.sizes, kept.starts, kept.zeta, kept.statistics, kept.own, kept.log
    scaled = np.empty(len(z))
    calls = 0
    for k in range(len(order)):
        m = order[k]
        s, kappa = examples[m].structure, weight[m] / (lam * len(weight))
        exponents, mine = zeta[starts[m] : starts[m + 1]], statistics[starts[m] : starts[m + 1]]
        of_variables, of_factors = sizes[s, 0], sizes[s, 1]
        project_example(batch, m, w_v, w_f, z)
        for _ in range(_TRIES):
            step = share * own[m, STEP]
            a = 1.0 if log else own[m, A] + step
            shrink = 1.0 / (1.0 + step) if log else 1.0
            for j in range(of_variables + of_factors):
                i = j if j < of_variables else half + j - of_variables
                scaled[i] = shrink * (exponents[j] + step * z[i]) / a
            fill_tables(batch, m, scaled, theta_v, theta_f)
            found = sum_product_one(schedule, work.room, s, theta_v, 0, theta_f, 0, 1.0 / a, mu_v, mu_f)
            calls += 1
            found = minus_truth(batch, m, theta_v, theta_f, found)
            n, ell = marginals_plane(batch, work, m, mu_v, mu_f, index, value, 0)
            for e in range(n):
                change[index[e]] = value[e]
            divergence = (a - own[m, A]) * ell - (a * found - own[m, LOG])
            size = 0
            for j in range(of_variables + of_factors):
                i = j if j < of_variables else half + j - of_variables
                divergence -= (a * scaled[i] - exponents[j]) * change[i]
                moved = change[i] - mine[j]
                change[i] = 0.0
                if moved != 0.0:
                    index[size] = i
                    value[size] = moved
                    size += 1
            curvature = 0.0
            if step > 0.0:
                gram_times_plane(batch, grams, work, m, index, value, 0, size)
                for e in range(size):
                    curvature += value[e] * u[index[e]]
                if not 0.5 * kappa * curvature * step <= divergence + step * _ROUNDING * (1.0 + abs(ell)):
                    own[m, STEP], own[m, GROWTH] = 0.5 * own[m, STEP], _CAREFUL
                    continue
                own[m, STEP] *= own[m, GROWTH]
            for e in range(size):
                change[index[e]] = value[e]
            for j in range(of_variables + of_factors):
                i = j if j < of_variables else half + j - of_variables
                exponents[j] = a * scaled[i]
                mine[j] += change[i]
            own[m, A], own[m, ELL], own[m, LOG] = a, ell, a * found
            add_example(batch, m, change, kappa, w_v, w_f)
            for e in range(size):
                change[index[e]] = 0.0
            break
    return calls

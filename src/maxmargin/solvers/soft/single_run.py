"""SoftBCFW where every example is one variable: dual coordinate ascent that leaves out settled examples (single.py has the steps).

Most examples end with all mass at one state, and stay there. So a pass visits the *active* examples alone, and leaves out those
that are settled by more than a few times what the examples of the pass before were violated by (the shrinking of Joachims 1999,
and of Hsieh, Chang, Lin, Keerthi and Sundararajan 2008). A check measures the gaps of all examples at one w, which makes active
what has one again; if what was left out has more than half of the gap, less is left out from then on. Nothing is certified but by
a check.

A check costs as much as several passes, so one is made when it should end the run, because the mean gap that a pass saw is at
most tol; or when that is a tenth of the last check's, since what was left out has been waiting; or after twice as many passes as
the last one. With a proximal term (proximal.py),

    P(w) - f(mu) = 1/M sum_m weight_m gap_m(w) + lam/2 |w - w(mu)|^2,      w - w(mu) = kappa/lam (c - w)

so that the gap of P is known without a pass over the examples, too, and so is w(mu). That is made afresh, which ends the drift of
running sums, before a gap counts as closed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin import jit
from maxmargin.errors import OptionError
from maxmargin.parallel.threads import run_shards
from maxmargin.problems.factor_graphs import FactorGraphs
from maxmargin.solvers.core.proximal import ProximalRun, ProximalState
from maxmargin.solvers.soft.single import (
    N_ACTIVE,
    PLACE,
    SEEN,
    SingleRules,
    Singles,
    activate,
    is_plain_binary,
    measure_singles,
    single_linear,
    single_weights,
    visit_singles,
)

#: The proximal term makes lam the square root of the condition R^2 / (lam M loss) times larger, and so many times that with more
#: than two states; at most so many times. (Letters, C / n = 0.1: 11 visits an example, 20 without the second factor. Reuters,
#: C / n = 10: 11 visits; beyond 6 times lam, the centre overshoots, and 15 are needed.)
_MANY_STATES, _STRONGEST = 3.3, 9.0
#: Passes between two moves of the centre; and before the first check, unless one is due, without a centre and with one, when the
#: first gaps are far from the last.
_CENTRE_PASSES, _FIRST_CHECK, _FIRST_WITH_CENTRE = 3, 6, 12
#: A check is due when the gap that passes see is this share of the last check's.
_DROP = 0.1
#: Of tol, what the passes must see to call for a check: at first, by how much less after such a check failed, and at least.
_TRUST, _DOUBT, _LEAST_TRUST = 1.0, 0.7, 0.3
#: Examples that are settled by so many times the mean violation are left out, at first; and what that is multiplied by when more
#: than a share of the gap was theirs.
_LEAVE_OUT, _CAUTION, _MISSED = 2.0, 4.0, 0.5
#: Numbers of features that are read in one call of a kernel, about: what cannot be interrupted.
_ENTRIES = 2e7


@dataclass
class SingleState(ProximalState):
    """All that a run needs to go on."""

    point: Singles
    #: The gap at the weights of the last check; see `_TRUST` and `_LEAVE_OUT`.
    last_gap: float = field(default=0.0, kw_only=True)
    trust: float = field(default=_TRUST, kw_only=True)
    leave_out: float = field(default=_LEAVE_OUT, kw_only=True)

    @property
    def nbytes(self) -> int:
        """Bytes of the dual state."""
        return int(sum(array.nbytes for array in self.point))


class SingleRun(ProximalRun[SingleState]):
    """One run: the problem's arrays at hand, and the steps of the main loop."""

    state_type = SingleState
    certificate = "exact"
    #: A `SoftBCFW` (soft_bcfw.py), which makes runs and is not known here.
    solver: Any
    problem: FactorGraphs

    def __init__(self, solver: Any, problem: FactorGraphs, lam: float, random_state: Any, threads: int) -> None:
        super().__init__(solver, problem, lam, random_state, threads)
        self.batch = problem.batch
        norms = self.batch.variables.features.squared_norms
        loss = max(float(problem.worst_losses().mean()), 1e-12)
        condition = float(norms.mean()) / (lam * problem.n_examples * loss)
        # lam + kappa.
        strength = math.sqrt(condition) * (1.0 if len(problem.arrays.variable_block) == 2 else _MANY_STATES)
        self.step_lam = lam * min(max(1.0, strength), _STRONGEST)
        # Smoothed masses are never settled.
        self.leaves_out = solver.sampling == "gap" and solver.smoothing == 0.0
        self.binary = solver.smoothing == 0.0 and is_plain_binary(problem)
        features = problem.variable_features
        entries = len(features.arrays.indices) if features.sparse else features.shape[0] * features.shape[1]
        self.budget = 1 + int(_ENTRIES / (1.0 + problem.n_variable_blocks * entries / problem.n_examples))
        self.rules = self.rules_for(_LEAVE_OUT)

    def rules_for(self, leave_out: float) -> SingleRules:
        """How examples are visited, for what a state has found out about leaving them out."""
        a, n_blocks = self.problem.arrays, self.problem.n_variable_blocks
        return SingleRules(
            self.step_lam, self.solver.smoothing, leave_out if self.leaves_out else math.inf, self.binary,
            np.empty(n_blocks), np.zeros(n_blocks), np.empty(len(a.variable_block)), np.empty(len(a.variable_block)),
        )  # fmt: skip

    def begin(self, earlier: SingleState | None) -> SingleState:
        """Every mass at the truth, w = 0; or the masses of an earlier run."""
        p = self.problem
        first = _FIRST_WITH_CENTRE if self.step_lam > self.lam else _FIRST_CHECK
        now = SingleState(
            **ProximalState.zeros(p), point=Singles.at_truth(p, self.seed), lam=self.lam, next_check=first
        )
        if earlier is None:
            # Compiled before the clock starts: called with nothing to do.
            visit_singles(self.batch, now.w_v, now.point, self.rules, 0, 1, 0.0)
            return now
        mu = now.point.mu
        if earlier.point.mu.shape != mu.shape or earlier.w_v.shape != now.w_v.shape:
            raise OptionError(
                "The earlier state belongs to a problem of another shape; start without it (warm_start=False)."
            )
        # With a smaller lam, w = 1 / (lam M) sum (truth - mu) stays where it is if mu moves towards the truth in proportion.
        mu += min(1.0, self.lam / earlier.lam) * (earlier.point.mu - mu)
        single_weights(self.batch, mu, self.lam, now.w_v)
        # The centre at w(mu) leaves the weights where they are.
        now.centre_v[:], now.last_v[:] = now.w_v, now.w_v
        return now

    # -------------------------------------------------------------------------------------------- passes

    def one_pass(self, now: SingleState, stop: Callable[[], bool]) -> None:
        """Passes up to the next move of the centre or the next check; or a part of one, where the data is large."""
        clock = jit.clock()
        proximal, point = self.step_lam > self.lam, now.point
        n = max(1, min(now.next_check, self.max_passes) - now.n_passes)
        if proximal:
            if now.n_passes > 0 and now.n_passes % _CENTRE_PASSES == 0 and point.numbers[PLACE] == 0:
                self.move_centre(now)
            n = min(n, _CENTRE_PASSES - now.n_passes % _CENTRE_PASSES)
        if now.leave_out != self.rules.leave_out and self.leaves_out:
            self.rules = self.rules_for(now.leave_out)
        due = max(now.trust * self.tol, _DROP * now.last_gap)
        done, visits = visit_singles(self.batch, now.w_v, point, self.rules, n, self.budget, -1.0 if proximal else due)
        now.n_passes += done
        now.n_oracle_calls += visits
        # In the same passes whatever the limits are, so that a run resumes to the bit.
        if done and (not proximal or (now.n_passes % _CENTRE_PASSES == 0 and point.numbers[PLACE] == 0)):
            seen = float(point.levels[SEEN])
            if seen <= due and proximal:
                seen += self.centre_gap(now)
            if seen <= due or point.numbers[N_ACTIVE] == 0:
                now.next_check = now.n_passes
        now.seconds += jit.clock() - clock

    def centre_gap(self, now: SingleState) -> float:
        """lam/2 |w - w(mu)|^2: what the centre adds to the gap."""
        away = now.centre_v - now.w_v
        return self.lam / 2.0 * (self.step_lam / self.lam - 1.0) ** 2 * self.problem.variable_features.inner(away, away)

    # -------------------------------------------------------------------------------------------- certificates

    def check(self, now: SingleState, off_schedule: bool = False) -> None:
        """Bound the optimum from both sides, keep the best weights, and make active what has a gap."""
        clock = jit.clock()
        point, n = now.point, self.problem.n_examples
        hinges = np.empty(n)
        run_shards(
            lambda begin, end: measure_singles(self.batch, now.w_v, point, self.binary, begin, end, hinges),
            n,
            self.threads,
        )
        primal = self.regulariser(now.w_v, now.w_f) + self.mean(hinges)
        missed, gap = activate(self.batch, point) if self.leaves_out else (0.0, self.mean(point.gap))
        linear, share = float(single_linear(self.batch, point.mu)), self.lam / self.step_lam
        r_v = (now.w_v - (1.0 - share) * now.centre_v) / share if share < 1.0 else now.w_v.copy()
        dual = linear - self.regulariser(r_v, now.w_f)
        if primal < now.primal:
            now.primal = primal
            now.best_v[:] = now.w_v
        if now.primal - max(now.dual, dual) <= self.tol:
            single_weights(self.batch, point.mu, self.lam, r_v)
            now.w_v[:] = share * r_v + (1.0 - share) * now.centre_v
        self.raise_dual(now, linear, r_v, now.w_f)
        if not off_schedule:
            self.learn(now, missed, gap, primal - dual)
            now.next_check = now.n_passes + max(_CENTRE_PASSES, now.n_passes)
        now.monitor_seconds += jit.clock() - clock
        now.write_line(block_gap=gap, n_active=int(point.numbers[N_ACTIVE]))

    def learn(self, now: SingleState, missed: float, gap: float, whole_gap: float) -> None:
        """Trust what passes see less if it called for this check too early, and leave out less if too much was left out."""
        if now.n_passes == now.next_check and float(now.point.levels[SEEN]) <= now.trust * self.tol:
            now.trust = max(_LEAST_TRUST, _DOUBT * now.trust)
        if missed > _MISSED * gap:
            now.leave_out *= _CAUTION
        now.last_gap = whole_gap

    # -------------------------------------------------------------------------------------------- the outcome

    def weights(self, now: SingleState) -> NDArray[np.float64]:
        """The flat weights of the best primal value."""
        return self.problem.flat_weights(now.best_v, now.best_f)

    def options(self, now: SingleState) -> dict[str, Any]:
        """The strength of the proximal term."""
        return {"proximal": self.step_lam / self.lam - 1.0}

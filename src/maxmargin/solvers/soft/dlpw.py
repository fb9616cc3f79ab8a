"""DLPW: stochastic subgradient steps on the weights, between closed-form updates of the examples' messages.

Meshi, Sontag, Jaakkola and Globerson, Learning Efficiently with Approximate Inference via Dual Losses, ICML 2010; its smooth
version after Hazan and Urtasun, NIPS 2010. Both are baselines in section 6 of the paper of soft_bcfw.py, and the problem is
G there,

    min_{w, delta}  g(w, delta) = lam/2 |w|^2 + 1/M sum_m weight_m [ sum_i max theta_i + sum_c max theta_c - score of the truth ]
    theta_i(k) = loss_i(k) + w.phi_i(k) + sum_c delta_ci(k),        theta_c(y) = w.phi_c(y) - sum_i delta_ci(y_i)

and the t-th visit, of example m, is

    delta_.i <- argmin g over all messages to i, for each variable i in turn (a star update, `message_rounds` times):
                h_c(k) = max_{y: y_i = k} theta_c(y) + delta_ci(k),   delta_ci = h_c - (theta_i's own + sum_c h_c) / (1 + #c)
    mu       <- the best state of each theta_i and theta_c, as an indicator
    w        <- (1 - lam eta) w - eta weight_m (E_mu phi - phi(truth)),         eta = 1 / (lam (t + t0))

Smooth, every max above is a soft-max, eps log sum exp(./eps): the star update keeps its form and makes the marginals of the
variable and its factors agree, mu are the marginals exp(theta/eps) / sum, and g_eps, jointly convex and differentiable, is
minimised. It is above g by at most eps times the sum of the logarithms of the table sizes. Without smoothing there is no such
promise: coordinate descent on a function with kinks may stop short of the optimum, and with it the weights.

Above, g(w, delta) with the max (never the soft-max) bounds G*, at the last weights and at their average with weights t; messages
are polished first. Below, an average of mu over the visits, made to agree, is a point of the dual (bounds.py).

Messages are kept in full, all states of a slot, because those to forbidden states are huge and no difference of such numbers
is exact. The weights are scale * v inside a pass, and their average share * (u + back * v), so that shrinking costs nothing and
a visit touches only the features of its example.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin import jit
from maxmargin.errors import OptionError
from maxmargin.jit import inner, kernel
from maxmargin.parallel.threads import run_shards
from maxmargin.problems.factor_graphs import FactorGraphs
from maxmargin.problems.features import add_row, score_row
from maxmargin.problems.layout import P_STATE_I, joint_state, joint_states_of, offsets
from maxmargin.problems.tables import slot_add, slot_max
from maxmargin.solvers.core.run import Run, State
from maxmargin.solvers.core.solver import Solver
from maxmargin.solvers.soft.bounds import dual_point, star_round

#: A message that no score outweighs; finite, because infinities would meet and make NaN.
_FAR = 1e30
#: Rounds of descent on the messages at a check.
_POLISH = 2


@dataclass
class DLPWState(State):
    """All that DLPW needs to go on."""

    delta: NDArray[np.float64]
    mu: NDArray[np.float64]
    table: NDArray[np.float64]
    w_v: NDArray[np.float64]
    w_f: NDArray[np.float64]
    average_v: NDArray[np.float64]
    average_f: NDArray[np.float64]
    best_v: NDArray[np.float64]
    best_f: NDArray[np.float64]
    dual_v: NDArray[np.float64]
    dual_f: NDArray[np.float64]
    dual_linear: float = 0.0
    n_steps: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes of messages and averaged marginals."""
        return int(self.delta.nbytes + self.mu.nbytes + self.table.nbytes)


class DLPW(Solver):
    """Stochastic subgradient on the weights, coordinate descent on the messages.

    Parameters
    ----------
    smoothing : None or float
        Temperature eps of the soft-max that takes the place of the max, in units of the task loss; None for the max itself.
    message_rounds : int
        Rounds of message updates over an example's variables per visit.
    step0 : "auto" or float
        About the first step on the weights: the t-th is 1 / (lam (t + t0)) with t0 = C / step0, or 1 if that is less.
    """

    name = "dlpw"
    requires = ("local scores",)
    certificates = ("exact", "relaxed")
    keeps = "messages, and averaged marginals"
    paper = "Meshi, Sontag, Jaakkola and Globerson 2010; Hazan and Urtasun 2010"
    portable = True

    def __init__(self, smoothing: float | None = None, message_rounds: int = 1, step0: float | str = "auto") -> None:
        self.smoothing = smoothing
        self.message_rounds = message_rounds
        self.step0 = step0

    def make_run(self, problem: FactorGraphs, lam: float, random_state: Any, threads: int) -> DLPWRun:
        """What does the work."""
        return DLPWRun(self, problem, lam, random_state, threads)

    def check_options(self, problem: FactorGraphs) -> None:
        """Refuse, in a sentence, options that cannot be, and factors without tables."""
        if self.smoothing is not None and not _is_positive(self.smoothing):
            raise OptionError(f"smoothing={self.smoothing!r} is not possible; use None or a finite number above 0.")
        if (
            isinstance(self.message_rounds, bool)
            or not isinstance(self.message_rounds, int | np.integer)
            or self.message_rounds < 1
        ):
            raise OptionError(f"message_rounds={self.message_rounds!r} is not possible; use a whole number above 0.")
        if self.step0 != "auto" and not _is_positive(self.step0):
            raise OptionError(f'step0={self.step0!r} is not possible; use "auto" or a finite number above 0.')
        if getattr(problem, "has_structured", False):
            raise OptionError(str(problem.refuse_structured(self.name)))


def _is_positive(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, Real) and 0.0 < float(value) < math.inf


class DLPWRun(Run[DLPWState]):
    """One run: the problem's arrays at hand, and the steps of the main loop."""

    state_type = DLPWState
    solver: DLPW
    problem: FactorGraphs

    def __init__(self, solver: DLPW, problem: FactorGraphs, lam: float, random_state: Any, threads: int) -> None:
        super().__init__(solver, problem, lam, random_state, threads)
        self.g = problem.arrays
        self.v_features, self.f_features = problem.variable_features.arrays, problem.factor_features.arrays
        self.certificate = "exact" if problem.is_forest else "relaxed"
        self.n_blocks = int(problem.example_variables[-1] + problem.example_factors[-1])
        self.smoothing = 0.0 if solver.smoothing is None else float(solver.smoothing)
        sizes = np.array([sum(template.n_states) for template in problem.factor_templates], np.int64)
        running = offsets(sizes[self.g.factors.template])
        #: Where each example's messages begin.
        self.starts = offsets(np.diff(running[self.g.structures.factors])[problem.structure_of])
        #: Whether all factors are pairs of binary variables and nothing is forbidden, which has a faster round.
        self.only_pairs = bool((self.g.pairs[:, P_STATE_I] >= 0).all()) and all(
            np.isfinite(fixed).all() for fixed in (self.g.variable_fixed, self.g.variable_scores)
        )
        self.step0 = self.first_step() if isinstance(solver.step0, str) else float(solver.step0)
        self.t0 = max(1.0, 1.0 / (lam * self.step0))

    # -------------------------------------------------------------------------------------------- the start

    def begin(self, earlier: DLPWState | None) -> DLPWState:
        """No messages and no weights, or those of an earlier run."""
        p = self.problem
        w_v, w_f = p.working_weights()
        now = DLPWState(
            delta=np.zeros(int(self.starts[-1])),
            mu=np.zeros(int(p.example_states[-1])),
            table=np.zeros(int(p.example_tables[-1])),
            w_v=w_v, w_f=w_f, average_v=w_v.copy(), average_f=w_f.copy(), best_v=w_v.copy(), best_f=w_f.copy(),
            dual_v=w_v.copy(), dual_f=w_f.copy(),
        )  # fmt: skip
        now.mu[p.state_starts() + p.labels] = 1.0
        now.table[joint_states_of(p.arrays, p.labels)] = 1.0
        if earlier is not None:
            if any(getattr(earlier, name).shape != getattr(now, name).shape for name in ("delta", "mu", "w_v", "w_f")):
                raise OptionError(
                    "The earlier state belongs to a problem of another shape; start without it (warm_start=False)."
                )
            now.delta[:], now.n_steps = earlier.delta, earlier.n_steps
            for to_v, to_f in ((now.w_v, now.w_f), (now.average_v, now.average_f)):
                to_v[:], to_f[:] = earlier.best_v, earlier.best_f
        # Compiled before the clock starts: called with nothing to do.
        self.visit(now, np.empty(0, np.int64))
        return now

    def first_step(self) -> float:
        """The step that changes an example's own scores by about its loss."""
        p = self.problem
        sides = ((p.n_variable_blocks, self.v_features), (p.n_factor_blocks, self.f_features))
        squares = [float(side.squared_norms.mean()) for blocks, side in sides if blocks and len(side.squared_norms)]
        loss = float(np.maximum.reduceat(self.g.losses, p.state_starts()).mean())
        square = max(squares, default=0.0)
        return loss / square if loss > 0.0 and square > 0.0 else 1.0 / self.lam

    # -------------------------------------------------------------------------------------------- one pass

    def one_pass(self, now: DLPWState, stop: Callable[[], bool]) -> None:
        """Visit all examples in random order, in pieces that can be interrupted."""
        clock = jit.clock()
        n = self.problem.n_examples
        order = np.random.default_rng([self.seed, 0, now.n_passes]).permutation(n)
        size = max(1, int(5_000_000 * n / (1 + self.problem.example_tables[-1] + self.problem.example_states[-1])))
        for first in range(0, n, size):
            self.visit(now, order[first : first + size])
            if stop():
                break
        now.n_oracle_calls += self.solver.message_rounds * self.n_blocks
        now.n_passes += 1
        now.seconds += jit.clock() - clock

    def visit(self, now: DLPWState, order: NDArray[np.int64]) -> None:
        """Visit the examples in order."""
        _visit(
            self.g, self.v_features, self.f_features, now.w_v, now.w_f, now.average_v, now.average_f, now.delta, self.starts,
            now.mu, now.table, order, self.lam, self.t0, now.n_steps, self.smoothing, int(self.solver.message_rounds),
            2.0 / (now.n_passes + 2.0), self.only_pairs,
        )  # fmt: skip
        now.n_steps += len(order)

    # -------------------------------------------------------------------------------------------- certificates

    def check(self, now: DLPWState, off_schedule: bool = False) -> None:
        """Bound the optimum from both sides, keep the better of last and average, and write a line of history."""
        clock = jit.clock()
        last, average = (self.upper(now, w_v, w_f) for w_v, w_f in ((now.w_v, now.w_f), (now.average_v, now.average_f)))
        if min(last, average) < now.primal:
            now.primal = min(last, average)
            best = (now.w_v, now.w_f) if last <= average else (now.average_v, now.average_f)
            now.best_v[:], now.best_f[:] = best
        self.raise_dual(now)
        if not off_schedule:
            now.next_check = now.n_passes + max(1, now.n_passes // 5)
        now.monitor_seconds += jit.clock() - clock
        now.write_line(last=last, average=average)

    def upper(self, now: DLPWState, w_v: NDArray[np.float64], w_f: NDArray[np.float64]) -> float:
        """The value g at these weights and the current messages, polished."""
        hinge = np.empty(self.problem.n_examples)
        run_shards(
            lambda begin, end: _hinges(
                self.g, self.v_features, self.f_features, w_v, w_f, now.delta, self.starts, _POLISH, self.only_pairs, begin, end,
                hinge,
            ),
            self.problem.n_examples,
            self.threads,
        )  # fmt: skip
        return self.regulariser(w_v, w_f) + float(self.g.weight @ hinge) / len(hinge)

    def raise_dual(self, now: DLPWState) -> None:
        """Move the best dual point towards the averaged marginals, repaired, as far as f grows (see SoftRun.raise_dual)."""
        d_v, d_f = np.empty_like(now.w_v), np.empty_like(now.w_f)
        rise = -now.dual_linear + dual_point(
            self.g, self.v_features, self.f_features, now.mu, now.table, self.lam, 1.0, False, d_v, d_f
        )
        d_v -= now.dual_v
        d_f -= now.dual_f
        slope = rise - self.lam * float(np.vdot(now.dual_v, d_v) + np.vdot(now.dual_f, d_f))
        curvature = self.lam * float(np.vdot(d_v, d_v) + np.vdot(d_f, d_f))
        step = 0.0 if slope <= 0.0 else min(1.0, slope / curvature) if curvature > 0.0 else 1.0
        now.dual_v += step * d_v
        now.dual_f += step * d_f
        now.dual_linear += step * rise
        now.dual = max(now.dual, now.dual_linear - self.regulariser(now.dual_v, now.dual_f))

    def regulariser(self, w_v: NDArray[np.float64], w_f: NDArray[np.float64]) -> float:
        """lam/2 |w|^2."""
        return self.lam / 2.0 * float(np.vdot(w_v, w_v) + np.vdot(w_f, w_f))

    # -------------------------------------------------------------------------------------------- the outcome

    def weights(self, now: DLPWState) -> NDArray[np.float64]:
        """The flat weights of the best primal value."""
        return self.problem.flat_weights(now.best_v, now.best_f)

    def options(self, now: DLPWState) -> dict[str, Any]:
        """The first step, as chosen."""
        return {"first_step": self.step0}


# ------------------------------------------------------------------------------------------------------- kernels


@kernel
def _visit(
    g: Any, v_features: Any, f_features: Any, w_v: Any, w_f: Any, average_v: Any, average_f: Any, delta: Any, starts: Any,
    mu: Any, table: Any, order: Any, lam: float, t0: float, n_steps: int, eps: float, rounds: int, newest: float,
    only_pairs: bool,
) -> None:  # fmt: skip
    """Visit the examples in `order`: messages, then a step on the weights; `newest` is the part of this mu in its average."""
    largest = g.largest
    buffer = np.empty(largest.buffer)
    theta_v, theta_f = np.empty(largest.states), np.empty(largest.tables)
    high, shared = np.empty(largest.deltas), np.empty(largest.states)
    examples, structures, variables, factors = g.examples, g.structures, g.variables, g.factors
    v_kinds, f_kinds, slots, scope, incident = g.variable_kinds, g.factor_kinds, g.slots, g.scope, g.incident
    v_groups, f_groups, losses, labels, weight = g.variable_groups, g.factor_groups, g.losses, g.labels, g.weight
    v_block, v_fixed, v_scores = g.variable_block, g.variable_fixed, g.variable_scores
    f_block, f_fixed, f_scores = g.factor_block, g.factor_fixed, g.factor_scores
    # w = scale * v and average = share * (u + back * v), where v and u are kept in w and average.
    scale, share, back, t = 1.0, 1.0, 0.0, n_steps
    for m in order:
        t += 1
        s, first, states, tables = (
            examples[m].structure,
            examples[m].variables,
            examples[m].states,
            examples[m].tables,
        )
        v0, n = structures[s].variables, examples[m + 1].variables - first
        f0, n_factors = structures[s].factors, examples[m + 1].factors - examples[m].factors
        vq0, vq1 = structures[s].variable_groups, structures[s + 1].variable_groups
        fq0, fq1 = structures[s].factor_groups, structures[s + 1].factor_groups
        own = delta[starts[m] : starts[m + 1]]
        _scaled_scores(
            examples[m].variable_row, vq0, vq1, v_groups, v0, variables, v_kinds, v_block, v_fixed, v_scores, states, v_features, w_v,
            scale, buffer, theta_v,
        )  # fmt: skip
        _scaled_scores(
            examples[m].factor_row, fq0, fq1, f_groups, f0, factors, f_kinds, f_block, f_fixed, f_scores, tables, f_features, w_f,
            scale, buffer, theta_f,
        )  # fmt: skip
        for k in range(examples[m + 1].states - states):
            theta_v[k] += losses[states + k]
        _reparametrise(f0, n_factors, factors, f_kinds, slots, own, theta_f)
        for _ in range(rounds):
            if only_pairs:
                _pair_star_round(v0, n, variables, incident, eps, theta_v, theta_f, own, high)
            elif eps > 0.0:
                _smooth_star_round(v0, n, variables, v_kinds, incident, eps, theta_v, theta_f, own, high, shared)
            else:
                star_round(v0, n, variables, v_kinds, incident, theta_v, theta_f, own, high, shared)

        # Scores become marginals in place, and then marginals minus the truth.
        for v in range(v0, v0 + n):
            state, size, i0 = variables[v].table, v_kinds[variables[v].template].entries, variables[v].neighbours
            for e in range(i0, i0 + variables[v].degree):
                for k in range(size):
                    theta_v[state + k] += own[incident[e].delta + k]
            _to_marginals(theta_v, state, size, eps, mu, states, newest)
            theta_v[state + labels[first + v - v0]] -= 1.0
        for c in range(f0, f0 + n_factors):
            tab = factors[c].table
            _to_marginals(theta_f, tab, f_kinds[factors[c].template].entries, eps, table, tables, newest)
            theta_f[tab + joint_state(c, first, factors, scope, f_kinds, slots, labels)] -= 1.0

        scale *= 1.0 - 1.0 / (t0 + t)
        unit = -weight[m] / (lam * (t0 + t) * scale)
        _add_side(
            examples[m].variable_row, vq0, vq1, v_groups, v0, variables, v_kinds, v_block, v_features, w_v, average_v, theta_v, buffer,
            unit, back,
        )  # fmt: skip
        _add_side(
            examples[m].factor_row, fq0, fq1, f_groups, f0, factors, f_kinds, f_block, f_features, w_f, average_f, theta_f, buffer,
            unit, back,
        )  # fmt: skip
        share *= 1.0 - 2.0 / (t + 2.0)
        back += 2.0 / (t + 2.0) * scale / share
    for w, average in ((w_v, average_v), (w_f, average_f)):
        for i in range(w.shape[0]):
            for b in range(w.shape[1]):
                average[i, b] = share * (average[i, b] + back * w[i, b])
                w[i, b] *= scale


@kernel
def _hinges(
    g: Any, v_features: Any, f_features: Any, w_v: Any, w_f: Any, delta: Any, starts: Any, polish: int, only_pairs: bool,
    begin: int, end: int, out: Any,
) -> None:  # fmt: skip
    """Upper bound on the relaxed hinge of examples begin to end - 1, into out[m]; the messages themselves stay."""
    largest = g.largest
    buffer = np.empty(largest.buffer)
    theta_v, theta_f = np.empty(largest.states), np.empty(largest.tables)
    own, high, shared = np.empty(largest.deltas), np.empty(largest.deltas), np.empty(largest.states)
    examples, structures, variables, factors = g.examples, g.structures, g.variables, g.factors
    v_kinds, f_kinds, slots, scope, incident = g.variable_kinds, g.factor_kinds, g.slots, g.scope, g.incident
    v_groups, f_groups, losses, labels = g.variable_groups, g.factor_groups, g.losses, g.labels
    v_block, v_fixed, v_scores = g.variable_block, g.variable_fixed, g.variable_scores
    f_block, f_fixed, f_scores = g.factor_block, g.factor_fixed, g.factor_scores
    for m in range(begin, end):
        s, first, states, tables = (
            examples[m].structure,
            examples[m].variables,
            examples[m].states,
            examples[m].tables,
        )
        v0, n = structures[s].variables, examples[m + 1].variables - first
        f0, n_factors = structures[s].factors, examples[m + 1].factors - examples[m].factors
        _scaled_scores(
            examples[m].variable_row, structures[s].variable_groups, structures[s + 1].variable_groups, v_groups, v0, variables,
            v_kinds, v_block, v_fixed, v_scores, states, v_features, w_v, 1.0, buffer, theta_v,
        )  # fmt: skip
        _scaled_scores(
            examples[m].factor_row, structures[s].factor_groups, structures[s + 1].factor_groups, f_groups, f0, factors,
            f_kinds, f_block, f_fixed, f_scores, tables, f_features, w_f, 1.0, buffer, theta_f,
        )  # fmt: skip
        total = 0.0
        for v in range(v0, v0 + n):
            total -= theta_v[variables[v].table + labels[first + v - v0]]
        for c in range(f0, f0 + n_factors):
            total -= theta_f[factors[c].table + joint_state(c, first, factors, scope, f_kinds, slots, labels)]
        for k in range(examples[m + 1].states - states):
            theta_v[k] += losses[states + k]
        for z in range(starts[m + 1] - starts[m]):
            own[z] = delta[starts[m] + z]
        _reparametrise(f0, n_factors, factors, f_kinds, slots, own, theta_f)
        for _ in range(polish):
            if only_pairs:
                _pair_star_round(v0, n, variables, incident, 0.0, theta_v, theta_f, own, high)
            else:
                star_round(v0, n, variables, v_kinds, incident, theta_v, theta_f, own, high, shared)
        for c in range(f0, f0 + n_factors):
            tab, most = factors[c].table, -np.inf
            for y in range(tab, tab + f_kinds[factors[c].template].entries):
                most = max(most, theta_f[y])
            total += most
        for v in range(v0, v0 + n):
            i0, most = variables[v].neighbours, -np.inf
            for k in range(v_kinds[variables[v].template].entries):
                belief = theta_v[variables[v].table + k]
                for e in range(i0, i0 + variables[v].degree):
                    belief += own[incident[e].delta + k]
                most = max(most, belief)
            total += most
        out[m] = total


@inner
def _scaled_scores(
    row0: int, q0: int, q1: int, groups: Any, first: int, members: Any, kinds: Any, blocks: Any, fixed: Any, extra: Any,
    extra_at: int, features: Any, weights: Any, scale: float, buffer: Any, out: Any,
) -> None:  # fmt: skip
    """Score tables of one side of an example under the weights scale * weights (see `side_scores`)."""
    for q in range(q0, q1):
        low, place = groups[q].block, groups[q].at
        score_row(features, row0 + groups[q].row, weights, low, groups[q].block_end, buffer, place)
        for i in range(groups[q].first, groups[q].last):
            t, here = members[first + i].template, members[first + i].table
            start = kinds[t].start
            for y in range(kinds[t].entries):
                b = blocks[start + y]
                value = fixed[start + y] + (scale * buffer[place + b - low] if b >= 0 else 0.0)
                if len(extra) > 0:
                    value += extra[extra_at + here + y]
                out[here + y] = value


@inner
def _add_side(
    row0: int, q0: int, q1: int, groups: Any, first: int, members: Any, kinds: Any, blocks: Any, features: Any, v: Any, u: Any,
    values: Any, buffer: Any, unit: float, back: float,
) -> None:  # fmt: skip
    """Add unit * sum of values * features of one side of an example to v; u moves so that u + back * v stays."""
    for q in range(q0, q1):
        low, last, place = groups[q].block, groups[q].block_end, groups[q].at
        buffer[place : place + last - low] = 0.0
        moved = False
        for i in range(groups[q].first, groups[q].last):
            t, here = members[first + i].template, members[first + i].table
            start = kinds[t].start
            for y in range(kinds[t].entries):
                if values[here + y] != 0.0 and blocks[start + y] >= 0:
                    buffer[place + blocks[start + y] - low] += values[here + y]
                    moved = True
        if moved:
            add_row(features, row0 + groups[q].row, v, low, last, buffer, place, unit)
            add_row(features, row0 + groups[q].row, u, low, last, buffer, place, -back * unit)


@inner
def _reparametrise(f0: int, n_factors: int, factors: Any, kinds: Any, slots: Any, delta: Any, theta_f: Any) -> None:
    """Take the messages out of the factors' scores."""
    for c in range(f0, f0 + n_factors):
        t = factors[c].template
        for z in range(kinds[t].slots, kinds[t].slots + kinds[t].arity):
            slot_add(
                theta_f, factors[c].table, slots[z].outer, slots[z].states, slots[z].stride, delta,
                factors[c].delta + slots[z].delta, -1.0,
            )  # fmt: skip


@inner
def _to_marginals(theta: Any, at: int, size: int, eps: float, average: Any, average_at: int, newest: float) -> None:
    """Scores of one block become exp(theta / eps) / sum, or the indicator of the best if eps is 0; and join their average."""
    best, total = 0, 0.0
    for y in range(1, size):
        if theta[at + y] > theta[at + best]:
            best = y
    most = theta[at + best]
    for y in range(size):
        if eps > 0.0:
            theta[at + y] = _exp((theta[at + y] - most) / eps)
        else:
            theta[at + y] = 1.0 if y == best else 0.0
        total += theta[at + y]
    inverse = 1.0 / total
    for y in range(size):
        p = theta[at + y] * inverse
        theta[at + y] = p
        average[average_at + at + y] += newest * (p - average[average_at + at + y])


@inner
def _smooth_star_round(
    v0: int, n: int, variables: Any, kinds: Any, incident: Any, eps: float, theta_v: Any, theta_f: Any, delta: Any, high: Any,
    shared: Any,
) -> None:  # fmt: skip
    """`star_round` with the soft-max in the place of the max."""
    for v in range(v0, v0 + n):
        i0 = variables[v].neighbours
        i1 = i0 + variables[v].degree
        if i0 == i1:
            continue
        n_states, state = kinds[variables[v].template].entries, variables[v].table
        for k in range(n_states):
            shared[k] = theta_v[state + k]
        for e in range(i0, i1):
            to = incident[e].delta
            _slot_soft_max(theta_f, incident[e].table, incident[e].outer, n_states, incident[e].stride, eps, high, to)
            for k in range(n_states):
                high[to + k] += delta[to + k]
                shared[k] += high[to + k]
        share = 1.0 / (i1 - i0 + 1)
        for e in range(i0, i1):
            to = incident[e].delta
            for k in range(n_states):
                if shared[k] != -np.inf:
                    new = high[to + k] - shared[k] * share
                elif high[to + k] == -np.inf:
                    new = -_FAR
                else:
                    new = 0.5 * _FAR * share
                high[to + k] = delta[to + k] - new
                delta[to + k] = new
            slot_add(theta_f, incident[e].table, incident[e].outer, n_states, incident[e].stride, high, to, 1.0)


@inner
def _pair_star_round(
    v0: int, n: int, variables: Any, incident: Any, eps: float, theta_v: Any, theta_f: Any, delta: Any, high: Any
) -> None:
    """Either round where all factors are pairs of binary variables: only delta(1) - delta(0) matters, so delta(0) stays."""
    for v in range(v0, v0 + n):
        i0, state = variables[v].neighbours, variables[v].table
        i1 = i0 + variables[v].degree
        shared = theta_v[state + 1] - theta_v[state]
        for e in range(i0, i1):
            at, stride, to = incident[e].table, incident[e].stride, incident[e].delta
            rise = _soft_max(theta_f[at + stride], theta_f[at + 3], eps) - _soft_max(
                theta_f[at], theta_f[at + 3 - stride], eps
            )
            high[to] = rise + delta[to + 1] - delta[to]
            shared += high[to]
        share = shared / (i1 - i0 + 1)
        for e in range(i0, i1):
            at, stride, to = incident[e].table, incident[e].stride, incident[e].delta
            new = high[to] - share + delta[to]
            theta_f[at + stride] += delta[to + 1] - new
            theta_f[at + 3] += delta[to + 1] - new
            delta[to + 1] = new


@inner
def _soft_max(a: float, b: float, eps: float) -> float:
    """Return eps log(exp(a / eps) + exp(b / eps)), or the max if eps is 0."""
    most = max(a, b)
    if eps > 0.0 and abs(a - b) < 40.0 * eps:
        most += eps * math.log1p(math.exp(-abs(a - b) / eps))
    return most


@inner
def _slot_soft_max(table: Any, at: int, outer: int, n_states: int, stride: int, eps: float, out: Any, to: int) -> None:
    """out[to + k] = eps log sum exp(entry / eps) over the entries whose variable is in state k (see tables.py)."""
    slot_max(table, at, outer, n_states, stride, out, to)
    for k in range(n_states):
        most, total = out[to + k], 0.0
        if outer * stride == 1 or most == -np.inf:
            continue
        for o in range(outer):
            y = at + (o * n_states + k) * stride
            for i in range(stride):
                total += _exp((table[y + i] - most) / eps)
        if total > 1.0:
            out[to + k] = most + eps * math.log(total)


@inner
def _exp(x: float) -> float:
    """exp(x) for x of at most 0, with what is lost in a sum that 1 is part of left out: most states are far from the best."""
    return 1.0 if x == 0.0 else math.exp(x) if x > -40.0 else 0.0

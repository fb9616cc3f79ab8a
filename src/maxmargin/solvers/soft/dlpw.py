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
    w        <- (1 - lam eta) w - eta weight_m (E_mu phi - phi(truth)),         eta = step / (t + t0)

With step = 1/lam, the default, that is the rule for strongly convex functions. The papers try several and show the best. Any
positive number converges, since steps vanish and their sum does not, and so does one that changes within bounds: "adaptive"
raises it while g falls from check to check at the last weights, and cuts it when g has risen.

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
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin import jit
from maxmargin.errors import OptionError
from maxmargin.jit import Struct, inner, kernel
from maxmargin.parallel.threads import run_shards
from maxmargin.problems.factor_graphs import FactorGraphs
from maxmargin.problems.layout import joint_state, joint_states_of, offsets
from maxmargin.problems.statistics import add_example, project_example, side_of_marginals
from maxmargin.solvers.core.dual_run import DualRun, DualState
from maxmargin.solvers.core.solver import Solver
from maxmargin.solvers.oracles.compiled import fill_tables, minus_truth
from maxmargin.solvers.soft.bounds import dual_point, loss_augmented_scores
from maxmargin.solvers.soft.messages import bound_of_messages, exp_below, has_only_pairs, message_round, take_out
from maxmargin.solvers.soft.state import BoundRules, Room

#: Rounds of descent on the messages at a check.
_POLISH = 2
#: What an adaptive step is multiplied by where the objective has fallen and where it has risen, and how far from 1/lam it may go.
_LONGER, _SHORTER, _FARTHEST = 1.5, 0.4, 100.0
#: The weights are written out anew when their scale is less than this: their average is a difference of numbers that are this much
#: larger than they are.
_SMALL = 1e-6


class Point(Struct):
    """Messages with all states, and averages of the marginals of variables and factors."""

    delta: NDArray[np.float64]
    mu: NDArray[np.float64]
    table: NDArray[np.float64]


class Rules(Struct):
    """How examples are visited."""

    lam: float
    t0: float
    #: lam times the step.
    shrink: float
    #: The temperature, or 0; and rounds of message updates.
    eps: float
    rounds: int
    #: Whether rounds may be those of pairs.
    only_pairs: bool
    #: Visits before these, and the part of the marginals of these in their average.
    n_steps: int
    newest: float
    #: Where each example's messages begin.
    starts: NDArray[np.int64]


@dataclass
class DLPWState(DualState):
    """All that DLPW needs to go on."""

    matrices = (*DualState.matrices, "average")

    average_v: NDArray[np.float64]
    average_f: NDArray[np.float64]
    point: Point
    n_steps: int = field(default=0, kw_only=True)
    #: lam times the step, which an adaptive one changes; and g at the last weights of the last check.
    shrink: float = field(default=1.0, kw_only=True)
    last: float = field(default=math.inf, kw_only=True)

    @property
    def nbytes(self) -> int:
        """Bytes of messages and averaged marginals."""
        return int(sum(one.nbytes for one in self.point))


class DLPW(Solver):
    """Stochastic subgradient on the weights, coordinate descent on the messages.

    Parameters
    ----------
    smoothing : None or float
        Temperature eps of the soft-max that takes the place of the max, in units of the task loss; None for the max itself.
    message_rounds : int
        Rounds of message updates over an example's variables per visit.
    step0 : "auto" or float
        About the first step on the weights: the t-th is step / (t + t0) with t0 = step / step0, but at least 1 and step / C.
    step : "auto", "adaptive" or float
        How large steps are: "auto" is C, "adaptive" follows the objective, from C / 100 to 100 C.
    """

    name = "dlpw"
    requires = ("local scores",)
    certificates = ("exact", "relaxed")
    keeps = "messages, and averaged marginals"
    paper = "Meshi, Sontag, Jaakkola and Globerson 2010; Hazan and Urtasun 2010"
    portable = True

    def __init__(
        self,
        smoothing: float | None = None,
        message_rounds: int = 1,
        step0: float | str = "auto",
        step: float | str = "auto",
    ) -> None:
        self.smoothing = smoothing
        self.message_rounds = message_rounds
        self.step0 = step0
        self.step = step

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
        if self.step not in ("auto", "adaptive") and not _is_positive(self.step):
            raise OptionError(f'step={self.step!r} is not possible; use "auto", "adaptive" or a finite number above 0.')
        if getattr(problem, "has_structured", False):
            raise OptionError(str(problem.refuse_structured(self.name)))


def _is_positive(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, Real) and 0.0 < float(value) < math.inf


class DLPWRun(DualRun[DLPWState]):
    """One run: the problem's arrays at hand, and the steps of the main loop."""

    state_type = DLPWState
    solver: DLPW

    def __init__(self, solver: DLPW, problem: FactorGraphs, lam: float, random_state: Any, threads: int) -> None:
        super().__init__(solver, problem, lam, random_state, threads)
        self.g, self.batch, self.room = problem.arrays, problem.batch, Room.of(problem.arrays.largest)
        self.certificate = "exact" if problem.is_forest else "relaxed"
        self.n_blocks = int(problem.example_variables[-1] + problem.example_factors[-1])
        self.smoothing = 0.0 if solver.smoothing is None else float(solver.smoothing)
        sizes = np.array([sum(template.n_states) for template in problem.factor_templates], np.int64)
        running = offsets(sizes[self.g.factors.template])
        #: Where each example's messages begin.
        self.starts = offsets(np.diff(running[self.g.structures.factors])[problem.structure_of])
        self.only_pairs = has_only_pairs(self.g)
        self.step0 = self.first_step() if isinstance(solver.step0, str) else float(solver.step0)
        self.first_shrink = 1.0 if isinstance(solver.step, str) else lam * float(solver.step)

    # -------------------------------------------------------------------------------------------- the start

    def begin(self, earlier: DLPWState | None) -> DLPWState:
        """No messages and no weights, or those of an earlier run."""
        p = self.problem
        point = Point(*map(np.zeros, (self.starts[-1], p.example_states[-1], p.example_tables[-1])))
        now = DLPWState(**DLPWState.zeros(p), point=point, shrink=self.first_shrink)
        now.point.mu[p.state_starts() + p.labels] = 1.0
        now.point.table[joint_states_of(p.arrays, p.labels)] = 1.0
        if earlier is not None:
            pairs = *zip(earlier.point, now.point, strict=True), (earlier.w_v, now.w_v), (earlier.w_f, now.w_f)
            if any(one.shape != other.shape for one, other in pairs):
                raise OptionError(
                    "The earlier state belongs to a problem of another shape; start without it (warm_start=False)."
                )
            now.point.delta[:], now.n_steps = earlier.point.delta, earlier.n_steps
            if self.solver.step == "adaptive":
                now.shrink = earlier.shrink
            for to_v, to_f in ((now.w_v, now.w_f), (now.average_v, now.average_f)):
                to_v[:], to_f[:] = earlier.best_v, earlier.best_f
        # Compiled before the clock starts: called with nothing to do.
        self.visit(now, np.empty(0, np.int64))
        return now

    def first_step(self) -> float:
        """The step that changes an example's own scores by about its loss."""
        p = self.problem
        sides = ((p.n_variable_blocks, self.batch.variables.features), (p.n_factor_blocks, self.batch.factors.features))
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

    def rules(self, now: DLPWState) -> Rules:
        """How examples are visited in this pass."""
        rounds, newest = int(self.solver.message_rounds), 2.0 / (now.n_passes + 2.0)
        t0 = max(1.0, now.shrink, now.shrink / (self.lam * self.step0))
        return Rules(
            self.lam, t0, now.shrink, self.smoothing, rounds, self.only_pairs, now.n_steps, newest, self.starts
        )  # fmt: skip

    def visit(self, now: DLPWState, order: NDArray[np.int64]) -> None:
        """Visit the examples in order."""
        rules = self.rules(now)
        _visit(self.batch, now.w_v, now.w_f, now.average_v, now.average_f, now.point, order, rules, self.room)
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
        d_v, d_f = np.empty_like(now.w_v), np.empty_like(now.w_f)
        rules = BoundRules(self.lam, 1.0, False)
        linear = dual_point(self.batch, now.point, rules, self.room, d_v, d_f, 0, self.problem.n_examples)
        self.raise_dual(now, linear, d_v, d_f)
        if not off_schedule:
            if self.solver.step == "adaptive":
                longer = now.shrink * (_LONGER if last < now.last else _SHORTER)
                now.shrink, now.last = min(max(longer, 1.0 / _FARTHEST), _FARTHEST), last
            now.next_check = now.n_passes + max(1, now.n_passes // 5)
        now.monitor_seconds += jit.clock() - clock
        now.write_line(last=last, average=average)

    def upper(self, now: DLPWState, w_v: NDArray[np.float64], w_f: NDArray[np.float64]) -> float:
        """The value g at these weights and the current messages, polished."""
        hinge = np.empty(self.problem.n_examples)
        rules = self.rules(now)
        run_shards(
            lambda begin, end: _hinges(
                self.batch, w_v, w_f, now.point, rules, Room.of(self.g.largest), begin, end, hinge
            ),
            self.problem.n_examples,
            self.threads,
        )  # fmt: skip
        return self.regulariser(w_v, w_f) + self.mean(hinge)

    # -------------------------------------------------------------------------------------------- the outcome

    def weights(self, now: DLPWState) -> NDArray[np.float64]:
        """The flat weights of the best primal value."""
        return self.problem.flat_weights(now.best_v, now.best_f)

    def options(self, now: DLPWState) -> dict[str, Any]:
        """The first step, as chosen, and the step as it ended."""
        return {"first_step": self.step0, "final_step": now.shrink / self.lam}


# ------------------------------------------------------------------------------------------------------- kernels


@kernel
def _visit(
    batch: Any, w_v: Any, w_f: Any, average_v: Any, average_f: Any, point: Any, order: Any, rules: Any, room: Any
) -> None:
    """Visit the examples in `order`: messages, then a step on the weights."""
    g, starts, weight, t0, shrink = batch.graphs, rules.starts, batch.graphs.weight, rules.t0, rules.shrink
    theta_v, theta_f, z, own, delta, moved = room.theta_v, room.theta_f, room.z, room.delta, point.delta, room.moved
    # The truth is off the marginals already.
    nothing = np.zeros(max(len(theta_v), len(theta_f)))
    moved[:] = 0.0
    # w = scale * v and average = share * (u + back * v), where v and u are kept in w and average.
    scale, share, back, t = 1.0, 1.0, 0.0, rules.n_steps
    for m in order:
        t += 1
        project_example(batch, m, w_v, w_f, z)
        z *= scale
        fill_tables(batch, m, z, theta_v, theta_f)
        _take_out(g, point, room, m, starts)
        for _ in range(rules.rounds):
            message_round(g, room, m, rules.eps, rules.only_pairs)
        delta[starts[m] : starts[m + 1]] = own[: starts[m + 1] - starts[m]]
        _to_marginals(g, point, room, m, rules.eps, rules.newest)
        scale *= 1.0 - shrink / (t0 + t)
        unit = weight[m] * shrink / (rules.lam * (t0 + t) * scale)
        side_of_marginals(batch.variables, m, g.examples[m].structure, theta_v, nothing, moved)
        side_of_marginals(batch.factors, m, g.examples[m].structure, theta_f, nothing, moved)
        add_example(batch, m, moved, unit, w_v, w_f)
        add_example(batch, m, moved, -back * unit, average_v, average_f)
        moved[:] = 0.0
        share *= 1.0 - 2.0 / (t + 2.0)
        back += 2.0 / (t + 2.0) * scale / share
        if scale < _SMALL:
            _write_out(w_v, w_f, average_v, average_f, scale, share, back)
            scale, share, back = 1.0, 1.0, 0.0
    _write_out(w_v, w_f, average_v, average_f, scale, share, back)


@inner
def _write_out(w_v: Any, w_f: Any, average_v: Any, average_f: Any, scale: float, share: float, back: float) -> None:
    """The weights and their average in the place of v and u."""
    for w, average in ((w_v, average_v), (w_f, average_f)):
        for i in range(w.shape[0]):
            for b in range(w.shape[1]):
                average[i, b] = share * (average[i, b] + back * w[i, b])
                w[i, b] *= scale


@kernel
def _hinges(batch: Any, w_v: Any, w_f: Any, point: Any, rules: Any, room: Any, begin: int, end: int, out: Any) -> None:
    """Upper bound on the relaxed hinge of examples begin to end - 1, into out[m]; the messages themselves stay."""
    for m in range(begin, end):
        loss_augmented_scores(batch, m, w_v, w_f, room)
        truth = minus_truth(batch, m, room.theta_v, room.theta_f, 0.0)
        _take_out(batch.graphs, point, room, m, rules.starts)
        out[m] = bound_of_messages(batch.graphs, room, m, _POLISH, rules.only_pairs, truth)


@inner
def _take_out(g: Any, point: Any, room: Any, m: int, starts: Any) -> None:
    """Copy the messages of example m to the room, and take them out of the factors' scores."""
    first, f0 = starts[m], g.structures[g.examples[m].structure].factors
    room.delta[: starts[m + 1] - first] = point.delta[first : starts[m + 1]]
    for c in range(f0, f0 + g.examples[m + 1].factors - g.examples[m].factors):
        take_out(g, room, c)


@inner
def _to_marginals(g: Any, point: Any, room: Any, m: int, eps: float, newest: float) -> None:
    """The scores of example m become marginals in place, join their average, and then the truth is taken off them."""
    examples, variables, factors, incident, labels = g.examples, g.variables, g.factors, g.incident, g.labels
    theta_v, theta_f, delta, v_kinds, f_kinds = room.theta_v, room.theta_f, room.delta, g.variable_kinds, g.factor_kinds
    s, first = examples[m].structure, examples[m].variables
    v0, f0 = g.structures[s].variables, g.structures[s].factors
    for v in range(v0, v0 + examples[m + 1].variables - first):
        state, size, i0 = variables[v].table, v_kinds[variables[v].template].entries, variables[v].neighbours
        for e in range(i0, i0 + variables[v].degree):
            for k in range(size):
                theta_v[state + k] += delta[incident[e].delta + k]
        _to_marginal(theta_v, state, size, eps, point.mu, examples[m].states + state, newest)
        theta_v[state + labels[first + v - v0]] -= 1.0
    for c in range(f0, f0 + examples[m + 1].factors - examples[m].factors):
        tab, size = factors[c].table, f_kinds[factors[c].template].entries
        _to_marginal(theta_f, tab, size, eps, point.table, examples[m].tables + tab, newest)
        theta_f[tab + joint_state(c, first, factors, g.scope, f_kinds, g.slots, labels)] -= 1.0


@inner
def _to_marginal(theta: Any, at: int, size: int, eps: float, average: Any, to: int, newest: float) -> None:
    """Scores of one block become exp(theta / eps) / sum, or the indicator of the best if eps is 0; and join their average."""
    best, total = 0, 0.0
    for y in range(1, size):
        if theta[at + y] > theta[at + best]:
            best = y
    most = theta[at + best]
    for y in range(size):
        if eps > 0.0:
            theta[at + y] = exp_below(theta[at + y] - most, eps)
        else:
            theta[at + y] = 1.0 if y == best else 0.0
        total += theta[at + y]
    inverse = 1.0 / total
    for y in range(size):
        p = theta[at + y] * inverse
        theta[at + y] = p
        average[to + y] += newest * (p - average[to + y])

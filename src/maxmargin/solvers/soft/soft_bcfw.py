"""SoftBCFW: structured SVMs with soft agreement constraints, and their hard limit by multipliers.

O. Meshi, N. Srebro and T. Hazan, Efficient Training of Structured SVMs via Soft Constraints, AISTATS 2015. It
is the paper of this folder.
The relaxed problem, with marginals mu of variables and factors and agreement messages delta (eq. 2, 3):

    G : min_{w, delta}  g(w, delta) = lam/2 |w|^2 + 1/M sum_m [ sum_i max theta_i + sum_c max theta_c ]
    F : max_mu          f(mu) = loss . mu - lam/2 |w(mu)|^2          over marginals that agree

Soft agreement replaces the constraint by a penalty (eq. 5, 6), averaged over examples like the loss:

    f_rho(mu)       = f(mu) - 1/(2 rho M) sum |mu_c(y_i) - mu_i(y_i)|^2
    g_rho(w, delta) = g(w, delta) + rho/(2 M) |delta|^2
    w(mu) = 1/(lam M) sum [phi(y*) - E_mu phi],      delta = (mu_c - mu_i) / rho

(Read to the letter, eq. 5 divides the penalty by M once more than the loss, and agreement vanishes for the rho of the paper.)

Two algorithms share this file:

``blocks="random", multipliers=False``
    Algorithm 1 of the paper: random blocks, plain Frank-Wolfe steps, fixed rho, a certificate for G_rho ("soft").
``blocks="examples"`` (the default)
    One pass visits as many examples as there are, sampled by their gap; a visit improves all blocks of an example
    (visits.py), structured factors among them (structured.py). With multipliers (the paper's second extension),
    delta = nu + (mu_c - mu_i) / rho and nu <- delta at each visit, so that the limit is G itself, whatever rho is: the certificate
    is for G ("relaxed"), or for the exact problem where the graphs are forests ("exact").

Large C couples the examples through w so strongly that coordinate ascent crawls: a proximal term, whose centre is accelerated,
keeps it fast (proximal.py). Certificates are for P itself throughout.

What the solver chooses by itself: kappa from the scale of features, loss and C; rho starts at the scale where a variable's step
is a fraction of its simplex, and follows the balance of two gaps, what the blocks could still gain and what disagreement costs
the dual: the first much above the second means that agreement is enforced too hard (rho grows), the opposite that it is too
loose (rho shrinks). Multi-label problems start from a short edgeless run, coupled (coupling.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin import jit, scratch
from maxmargin.errors import OptionError
from maxmargin.inference.trees import Trees
from maxmargin.parallel.threads import asked_to_stop, map_rows, map_shards, run_shards
from maxmargin.problems.factor_graphs import FactorGraphs
from maxmargin.problems.layout import joint_states_of
from maxmargin.solvers.core.proximal import ProximalRun, ProximalState
from maxmargin.solvers.core.sampling import draw_examples, near_each_other
from maxmargin.solvers.core.solver import Solver
from maxmargin.solvers.oracles.graph_oracle import GraphOracle
from maxmargin.solvers.soft.algorithm_1 import random_blocks
from maxmargin.solvers.soft.bounds import dual_point, hinges
from maxmargin.solvers.soft.coupling import can_couple, couple_pairs
from maxmargin.solvers.soft.messages import has_only_pairs
from maxmargin.solvers.soft.pair_visits import PairVisits, shares_examples
from maxmargin.solvers.soft.single import is_single
from maxmargin.solvers.soft.single_run import SingleRun
from maxmargin.solvers.soft.state import BoundRules, Dual, Room, Rules
from maxmargin.solvers.soft.structured import ATOMS, hold, hold_truth, overlapping
from maxmargin.solvers.soft.structured_bounds import agreeing
from maxmargin.solvers.soft.visits import distinct_blocks, visit_examples

#: Block gap over the cost of repair that a run steers to, and how far off it may be: from 1 to 9 all do about equally well.
_BALANCE, _SLACK = 3.0, 3.0
#: How far rho may go from where it started, as a factor.
_RANGE = 300.0
#: Passes over the variables alone before factors join in.
_EDGELESS_PASSES = 2
#: Marginals that are visited between two questions whether to stop.
_PIECE = 6_000_000
#: Shards of examples whose w(mu) are made side by side, at most.
_SHARDS = 8
#: Pairwise steps on one factor table per visit, at most.
_TABLE_STEPS = 10
#: Rounds of descent on the messages at a check.
_POLISH = 2
#: Until this pass the bound from above is computed only where it may end the run, by what it is expected to be, or when it is from
#: the first half of the passes: a check costs as much as one to two passes. Later checks are rare. An expected gap counts by this
#: share, since it falls faster than what the blocks could gain.
_EARLY, _EXPECTED = 42, 0.75
#: C R^2 / (M loss) above which a proximal term brings it down to this, and the passes between two moves of the centre.
_CONDITION, _CENTRE_PASSES = 20.0, 3


@dataclass
class SoftState(ProximalState):
    """All that SoftBCFW needs to go on."""

    point: Dual
    rho: float
    next_check: int = field(default=3, kw_only=True)
    #: The pass of the last bound from above, and the gap there, as a share of what the blocks could gain.
    bounded: int = field(default=0, kw_only=True)
    gap_share: float = field(default=0.0, kw_only=True)

    @property
    def nbytes(self) -> int:
        """Bytes of the dual state: marginals and multipliers."""
        d = self.point
        return sum(one.nbytes for one in (d.mu, d.table, d.nu, d.inside, d.mass, d.atoms))


class SoftBCFW(Solver):
    """Block-coordinate Frank-Wolfe with soft agreement constraints.

    Parameters
    ----------
    rho : "auto" or float
        Softness of agreement, in 1 / (units of the task loss); a number is kept as it is. With multipliers it changes the speed
        only; without, the problem.
    multipliers : bool
        Move multipliers, so that agreement becomes hard in the limit.
    blocks : "examples" or "random"
        Visit whole examples, or draw single blocks as Algorithm 1 of the paper does (then multipliers must be False).
    sampling : "gap" or "uniform"
        How examples are drawn for a pass.
    sweeps : int
        Sweeps over an example's blocks per visit.
    rho_decay : float
        Factor by which rho shrinks from pass to pass; below 1 and without multipliers this is the paper's first extension, and the
        certificate is for G, which such a run approaches.
    smoothing : float
        Smooth the maxima (the paper's third extension): each block's part of the dual loses ``smoothing / 2 |mu|^2``. Certificates
        are for the problem without it, so the gap does not close beyond what smoothing leaves.
    """

    name = "soft-bcfw"
    requires = ("local scores",)
    certificates = ("exact", "relaxed", "soft")
    keeps = "marginals of all states and joint states, and multipliers"
    paper = "Meshi, Srebro and Hazan 2015"
    portable = True
    kernels = True

    def __init__(
        self,
        rho: float | str = "auto",
        multipliers: bool = True,
        blocks: str = "examples",
        sampling: str = "gap",
        sweeps: int = 2,
        rho_decay: float = 1.0,
        smoothing: float = 0.0,
    ) -> None:
        self.rho = rho
        self.multipliers = multipliers
        self.blocks = blocks
        self.sampling = sampling
        self.sweeps = sweeps
        self.rho_decay = rho_decay
        self.smoothing = smoothing

    @classmethod
    def algorithm_1(cls, rho: float = 1.0) -> SoftBCFW:
        """Algorithm 1 of the paper, with its fixed rho.

        Parameters
        ----------
        rho : float
            Softness of the agreement constraints.
        """
        return cls(rho=rho, multipliers=False, blocks="random")

    def make_run(self, problem: FactorGraphs, lam: float, random_state: Any, threads: int) -> SoftRun | SingleRun:
        """What does the work."""
        kind = SingleRun if self.blocks == "examples" and is_single(problem) else SoftRun
        return kind(self, problem, lam, random_state, threads)

    def check_options(self, problem: FactorGraphs) -> None:
        """Refuse, in a sentence, options that cannot be."""
        if self.blocks not in ("examples", "random"):
            raise OptionError(f'blocks={self.blocks!r} is not known; use "examples" or "random".')
        if self.sampling not in ("gap", "uniform"):
            raise OptionError(f'sampling={self.sampling!r} is not known; use "gap" or "uniform".')
        if self.blocks == "random" and self.multipliers:
            raise OptionError(
                'blocks="random" is Algorithm 1 of the paper, which has no multipliers; set multipliers=False.'
            )
        if isinstance(self.rho, str):
            if self.rho != "auto":
                raise OptionError(f'rho={self.rho!r} is not possible; use "auto" or a number above 0.')
        elif not (math.isfinite(self.rho) and self.rho > 0):
            raise OptionError(f'rho={self.rho!r} is not possible; use "auto" or a finite number above 0.')
        if not 0.0 < self.rho_decay <= 1.0:
            raise OptionError(f"rho_decay={self.rho_decay!r} is not possible; use a number above 0 and at most 1.")
        if not (math.isfinite(self.smoothing) and self.smoothing >= 0.0):
            raise OptionError(
                f"smoothing={self.smoothing!r} is not possible; use a finite number that is not negative."
            )
        if self.blocks == "random" and self.smoothing:
            raise OptionError('blocks="random" is Algorithm 1 of the paper, without smoothing; set smoothing=0.')
        if isinstance(self.sweeps, bool) or not isinstance(self.sweeps, int | np.integer) or self.sweeps < 1:
            raise OptionError(f"sweeps={self.sweeps!r} is not possible; use a whole number above 0.")


class SoftRun(ProximalRun[SoftState]):
    """One run: the problem's arrays at hand, and the steps of the main loop."""

    state_type = SoftState
    solver: SoftBCFW
    problem: FactorGraphs

    def __init__(self, solver: SoftBCFW, problem: FactorGraphs, lam: float, random_state: Any, threads: int) -> None:
        super().__init__(solver, problem, lam, random_state, threads)
        self.g, self.batch, self.room = problem.arrays, problem.batch, Room.of(problem.arrays.largest)
        has_factors = bool(problem.example_factors[-1] > 0)
        self.soft = has_factors and not solver.multipliers and solver.rho_decay == 1.0
        self.certificate = "soft" if self.soft else "exact" if problem.is_forest else "relaxed"
        self.multipliers = has_factors and solver.multipliers
        self.has_factors = has_factors
        #: On forests max-product finds the hinges, in less time than messages are improved.
        self.trees = None
        if has_factors and not self.soft and Trees().refusal(problem) is None:
            self.trees = GraphOracle(problem, Trees())
        self.only_pairs, self.overlapping, self.held = has_only_pairs(self.g), overlapping(problem), hold(problem)
        #: What kernels are told of structured factors, which is nothing where there are none.
        self.structured = (self.held,) if len(self.held.factors) else ()
        #: Room for w(mu), kept from check to check: fresh memory costs more than what is written to it.
        self.dual_weights: list[tuple[NDArray[np.float64], NDArray[np.float64]]] | None = None
        self.distinct = distinct_blocks(problem)
        #: Visits whose threads share an example, where they can.
        self.pair_visits = None
        if has_factors and solver.blocks == "examples" and shares_examples(problem):
            self.pair_visits = PairVisits(problem, threads)
        self.n_blocks = int(problem.example_variables[-1] + problem.example_factors[-1])
        # lam + kappa; Algorithm 1 stays as printed.
        self.step_lam = lam if solver.blocks == "random" else max(lam, self.easy_lam())

    def edges(self, w_f: NDArray[np.float64]) -> NDArray[np.float64] | None:
        """Weights of factors for kernels, which leave out all that is about factors if it is None."""
        return w_f if self.has_factors else None

    # -------------------------------------------------------------------------------------------- the start

    def truth(self) -> SoftState:
        """Line 1 of Algorithm 1: every marginal at the truth, w = 0."""
        p, n = self.problem, self.problem.n_examples
        ends = self.held.start[-1]
        point = Dual(
            mu=scratch.zeros(int(p.example_states[-1])), table=scratch.zeros(int(p.example_tables[-1])),
            nu=scratch.zeros(int(p.example_messages[-1])),
            inside=np.zeros(ends.state), mass=np.zeros((ends.number, ATOMS)), atoms=np.zeros(ATOMS * ends.scope, np.int32),
            block_gap=np.ones(n), disagreement=np.zeros(n),
        )  # fmt: skip
        point.mu[p.state_starts() + p.labels] = 1.0
        entries = joint_states_of(p.arrays, p.labels)
        point.table[entries[entries >= 0]] = 1.0
        for held in self.structured:
            hold_truth(self.g, held, point)
        return SoftState(**ProximalState.zeros(p), point=point, rho=self.first_rho(), lam=self.lam)

    def begin(self, earlier: SoftState | None) -> SoftState:
        """Where the run begins: the truth, the marginals of an earlier run, or a short edgeless run."""
        now, n = self.truth(), self.problem.n_examples
        if earlier is not None:
            old, new = earlier.point, now.point
            pairs = [(getattr(old, name), getattr(new, name)) for name in ("mu", "table", "nu", "atoms")]
            pairs += (earlier.w_v, now.w_v), (earlier.w_f, now.w_f)
            if any(one.shape != other.shape for one, other in pairs):
                raise OptionError(
                    "The earlier state belongs to a problem of another shape; start without it (warm_start=False)."
                )
            # With a smaller lam, w = 1 / (lam M) sum (truth - mu) stays where it is if mu moves towards the truth in proportion.
            share = min(1.0, self.lam / earlier.lam)
            new.mu[:] += share * (old.mu - new.mu)
            new.table[:] += share * (old.table - new.table)
            new.inside[:] += share * (old.inside - new.inside)
            # What mass the atoms lack is the truth's.
            new.mass[:], new.atoms[:], new.nu[:] = share * old.mass, old.atoms, old.nu
            if isinstance(self.solver.rho, str):
                now.rho = earlier.rho
            rules = BoundRules(self.lam, now.rho, True)
            dual_point(self.batch, new, rules, self.room, now.w_v, self.edges(now.w_f), 0, n, *self.structured)
            # The centre at w(mu) leaves the weights where they are.
            now.centre_v[:], now.centre_f[:] = now.w_v, now.w_f
            now.last_v[:], now.last_f[:] = now.w_v, now.w_f
            return now
        # Kernels are compiled before the clock starts: called with nothing to do.
        nothing = np.empty(0, np.int64)
        if self.solver.blocks == "random":
            self.draw(now, nothing)
            return now
        self.visit(now, nothing, edgeless=False)
        if self.multipliers and can_couple(self.g, now.w_f.shape[0]):
            constant = math.sqrt(self.batch.factors.features.squared_norms[0])
            nobody = self.g._replace(weight=self.g.weight[:0])
            couple_pairs(nobody, now.point, constant, now.w_f, self.step_lam)
            clock = jit.clock()
            with self.in_lines(now):
                for k in range(_EDGELESS_PASSES):
                    if asked_to_stop():
                        break
                    order = np.random.default_rng([self.seed, 1, k]).permutation(n)
                    self.visit(now, order, edgeless=True)
            couple_pairs(self.g, now.point, constant, now.w_f, self.step_lam)
            now.point.block_gap[:], now.point.disagreement[:] = 1.0, 0.0
            now.seconds += jit.clock() - clock
        return now

    def first_rho(self) -> float:
        """The softness at which a variable's block moves by a fraction of its simplex for a score of its own loss.

        A variable's curvature is about 2 N / rho for N factors, and scores are of the size of its loss; with K states, each
        holds about 1 / K of the mass.
        """
        if not isinstance(self.solver.rho, str):
            return float(self.solver.rho)
        if not self.has_factors:
            return 1.0
        degree = self.g.variables.degree
        n = self.problem.example_variables[-1]
        mean_states = self.problem.example_states[-1] / n
        return float(0.3 * degree[degree > 0].mean() / self.mean_loss / mean_states)

    def easy_lam(self) -> float:
        """The regularisation at which R^2 / (lam M loss), the condition of coordinate ascent, is moderate."""
        p = self.problem
        sides = [self.batch.variables.features.squared_norms.mean()] if p.variable_features.shape[1] else [0.0]
        if self.has_factors and p.n_factor_blocks:
            sides.append(self.batch.factors.features.squared_norms.mean())
        return float(max(sides)) / (_CONDITION * p.n_examples * self.mean_loss)

    @cached_property
    def mean_loss(self) -> float:
        """Mean over variables of the largest task loss of a state."""
        return max(float(np.maximum.reduceat(self.g.losses, self.problem.state_starts()).mean()), 1e-12)

    # -------------------------------------------------------------------------------------------- one pass

    def one_pass(self, now: SoftState, stop: Callable[[], bool]) -> None:
        """As many visits as there are examples (or as many draws as there are blocks), in pieces that can be interrupted."""
        clock = jit.clock()
        if now.n_passes > 0:
            now.rho = max(now.rho * self.solver.rho_decay, self.first_rho() / _RANGE)
        if self.step_lam > self.lam and now.n_passes > 0 and now.n_passes % _CENTRE_PASSES == 0:
            self.move_centre(now)
        rng = np.random.default_rng([self.seed, 0, now.n_passes])
        n = self.problem.n_examples
        if self.solver.blocks == "random":
            self.draw(now, rng.integers(self.n_blocks, size=self.n_blocks))
            now.n_oracle_calls += self.n_blocks
        else:
            order = self.draw_examples(now, rng)
            pieces = 1 + int(self.problem.example_tables[-1] + self.problem.example_states[-1]) // _PIECE
            with self.in_lines(now):
                for piece in np.array_split(order, min(pieces, n)):
                    self.visit(now, piece, edgeless=False)
                    if stop():
                        break
            now.n_oracle_calls += self.solver.sweeps * self.n_blocks
        now.n_passes += 1
        now.seconds += jit.clock() - clock

    def draw_examples(self, now: SoftState, rng: np.random.Generator) -> NDArray[np.int64]:
        """The examples of a pass, in random order."""
        gaps, live = now.point.block_gap + now.point.disagreement, (self.g.weight > 0.0).astype(np.float64)
        drawn = draw_examples(gaps, live, rng, self.solver.sampling == "gap" and now.n_passes > 0)
        return near_each_other(drawn, self.problem.variable_features, self.problem.n_examples, rng)

    def draw(self, now: SoftState, blocks: NDArray[np.int64]) -> None:
        """One step of Algorithm 1 on each of these blocks, numbered over all examples."""
        blocks_before = self.problem.example_variables + self.problem.example_factors
        chosen = np.searchsorted(blocks_before, blocks, side="right") - 1
        places = blocks - blocks_before[chosen]
        rules = Rules(self.step_lam, now.rho, 0.0, 1, 1, False, False, self.distinct)
        random_blocks(self.batch, now.w_v, now.w_f, now.point, chosen, places, rules, self.room, *self.structured)

    def visit(self, now: SoftState, order: NDArray[np.int64], edgeless: bool) -> None:
        """Visit the examples in order."""
        rules = Rules(
            self.step_lam, now.rho, self.solver.smoothing, 1 if edgeless else self.solver.sweeps, _TABLE_STEPS,
            self.multipliers and not edgeless, edgeless, self.distinct,
        )  # fmt: skip
        if self.pair_visits is not None:
            self.pair_visits.visit(now, order, rules)
        else:
            visit_examples(
                self.batch, now.w_v, self.edges(now.w_f), now.point, order, rules, self.room, *self.structured
            )

    @contextmanager
    def in_lines(self, now: SoftState) -> Iterator[None]:
        """For the time of some visits, have the weights where these want them."""
        if self.pair_visits is not None:
            self.pair_visits.begin_pass(now)
        try:
            yield
        finally:
            if self.pair_visits is not None:
                self.pair_visits.end_pass(now)

    def balance(self, now: SoftState, repair_cost: float) -> None:
        """Steer rho so that block gap and the cost of disagreement stay in proportion; ever more gently, so that it settles."""
        gaps, rounds = now.history.get("gap", []), now.history.get("block_gap", [])
        blocks, cost = self.mean(now.point.block_gap), max(repair_cost, 0.0) + self.mean(now.point.disagreement)
        ratio = blocks / cost / _BALANCE if blocks > 0.0 and cost > 0.0 else 1.0
        change = 1.0
        if now.n_passes > 60 and len(gaps) > 5 and len(gaps) % 5 == 0 and gaps[-1] > 0.8 * gaps[-6]:
            # Little progress. Multipliers that move too far keep the marginals swinging: enforce agreement harder, unless it is the
            # blocks that lag behind, and have been losing ground.
            change = 2.0 if ratio > _SLACK and rounds[-1] >= rounds[-6] else 0.5
        elif not 1.0 / _SLACK <= ratio <= _SLACK:
            change = min(2.0, max(0.5, math.sqrt(ratio))) ** (1.0 / (1.0 + now.n_passes / 60.0))
        now.rho = min(_RANGE * self.first_rho(), max(self.first_rho() / _RANGE, now.rho * change))

    # -------------------------------------------------------------------------------------------- certificates

    def check(self, now: SoftState, off_schedule: bool = False) -> None:
        """Bound the optimum from both sides, keep the best weights, and write a line of history; steer, if on schedule."""
        clock = jit.clock()
        line = {"rho": now.rho}
        above = self.bound_is_due(now, off_schedule)
        primal = self.upper(now, self.soft) if above else np.inf
        linear, r_v, r_f = self.lower(now, self.soft)
        if self.soft:
            hard, h_v, h_f = self.lower(now, False)
            line |= {"relaxed_primal": self.upper(now, False), "relaxed_dual": hard - self.regulariser(h_v, h_f)}
        elif self.multipliers and isinstance(self.solver.rho, str) and not off_schedule:
            self.balance(now, self.repair_cost(now, r_v, r_f))
        if primal < now.primal:
            now.primal = primal
            self.keep_best(now, (now.w_v, now.w_f))
        self.raise_dual(now, linear, r_v, r_f)
        if above:
            now.bounded, now.gap_share = now.n_passes, now.gap / max(self.left(now), 1e-300)
        if not off_schedule:
            now.next_check = now.n_passes + _CENTRE_PASSES * max(1, now.n_passes // 21)
        now.monitor_seconds += jit.clock() - clock
        gap, disagreement = self.mean(now.point.block_gap), self.mean(now.point.disagreement)
        now.write_line(block_gap=gap, disagreement=disagreement, **line)

    def left(self, now: SoftState) -> float:
        """What the blocks could gain, and what disagreement costs, when the examples were last visited."""
        return self.mean(now.point.block_gap) + self.mean(now.point.disagreement)

    def bound_is_due(self, now: SoftState, off_schedule: bool) -> bool:
        """Whether a check computes the bound from above; the last one holds, too."""
        if off_schedule or self.soft or now.n_passes > _EARLY or now.n_passes >= 2 * now.bounded:
            return True
        return _EXPECTED * now.gap_share * self.left(now) <= self.tol

    def upper(self, now: SoftState, soft: bool) -> float:
        """The value g at the current weights and messages: for G_rho if soft, else for G, which is P itself on forests."""
        if self.trees is not None and not soft:
            return self.regulariser(now.w_v, now.w_f) + self.mean(self.trees.hinges(now.w_v, now.w_f, self.threads))
        hinge, w_f = np.empty(self.problem.n_examples), self.edges(now.w_f)
        enough = 0.05 * float((now.point.block_gap + now.point.disagreement).mean())
        rules = BoundRules(self.lam, now.rho, soft, 0 if soft else _POLISH, enough, self.only_pairs)
        run_shards(
            lambda begin, end: hinges(
                self.batch, now.w_v, w_f, now.point, rules, Room.of(self.g.largest), begin, end, hinge, *self.structured
            ),
            self.problem.n_examples,
            self.threads,
        )  # fmt: skip
        return self.regulariser(now.w_v, now.w_f) + self.mean(hinge)

    def lower(self, now: SoftState, soft: bool) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
        """The linear part of f at the current marginals, repaired unless soft, and the weights w(mu) there."""
        # Of a soft run there are two at a time.
        if self.dual_weights is None or self.soft:
            self.dual_weights = [(np.empty_like(now.w_v), np.empty_like(now.w_f)) for _ in range(self.n_shards)]
        point = now.point
        further: tuple[Any, ...] = self.structured
        if further and not soft:
            point, usable = point._replace(mu=np.empty_like(point.mu)), np.empty(self.problem.n_examples, np.bool_)
            agreeing(self.g, self.held, now.point, point.mu, usable)
            further = (*further, usable)
        rules, n, parts = BoundRules(self.lam, now.rho, soft), self.problem.n_examples, self.dual_weights

        def of_shard(number: int, _: int) -> float:
            begin, end = (n * k // len(parts) for k in (number, number + 1))
            room, (r_v, r_f) = Room.of(self.g.largest), parts[number]
            return float(dual_point(self.batch, point, rules, room, r_v, self.edges(r_f), begin, end, *further))

        linear = sum(map_shards(of_shard, [(k, k) for k in range(len(parts))], self.threads))
        for first, *others in zip(*parts, strict=True):

            def add(begin: int, end: int, first: Any = first, others: Any = others) -> None:
                for other in others:
                    first[begin:end] += other[begin:end]

            map_rows(add, first.shape, self.threads if others else 1)
        return linear, *parts[0]

    @cached_property
    def n_shards(self) -> int:
        """Shards of examples whose w(mu) are made side by side: as many as are worth the room for it, a power of 2."""
        p = self.problem
        marginals = int(p.example_tables[-1] + p.example_states[-1])
        worth = min(max(1.0, marginals / max(1, p.n_weights)), _SHARDS)
        return min(1 << round(math.log2(worth)), p.n_examples)

    def repair_cost(self, now: SoftState, r_v: NDArray[np.float64], r_f: NDArray[np.float64]) -> float:
        """What the (proximal) dual loses through the weights when the marginals are made to agree.

        Where they cannot be, because structured factors overlap, disagreement alone has to tell.
        """
        if self.overlapping:
            return 0.0
        share, inner = self.lam / self.step_lam, self.problem.inner
        w, r, centre = (now.w_v, now.w_f), (r_v, r_f), (now.centre_v, now.centre_f)
        # |share r + (1 - share) centre|^2
        after = share**2 * inner(r, r)
        if share < 1.0:
            after += (1.0 - share) * (2.0 * share * inner(r, centre) + (1.0 - share) * inner(centre, centre))
        return self.step_lam / 2.0 * (after - inner(w, w))

    # -------------------------------------------------------------------------------------------- the outcome

    def weights(self, now: SoftState) -> NDArray[np.float64]:
        """The flat weights of the best primal value."""
        return self.problem.flat_weights(now.best_v, now.best_f)

    def options(self, now: SoftState) -> dict[str, Any]:
        """Where rho ended, and the strength of the proximal term."""
        return {"final_rho": now.rho, "proximal": self.step_lam / self.lam - 1.0}

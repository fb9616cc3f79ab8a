"""Sequential minimal optimisation on marginals, for trees.

Taskar, Learning Structured Prediction Models: A Large Margin Approach, PhD thesis, Stanford 2004, chapter 6. The dual of an
example is a distribution over its labelings, and on a tree its marginals on variables and factors are all that is ever needed.
A step takes the pair of labelings that violates optimality most and moves mass t from one to the other:

    y+   = argmax of ell(y) - w . psi(y)                                 (max-product)
    y-   = argmin of the same over labelings that have mass: those whose marginals are all positive
    t    = clip( (slope(y+) - slope(y-)) / (kappa |psi(y+) - psi(y-)|^2), 0, least marginal of y- where it differs from y+ )
    mu  += t (y+ - y-),      w += kappa t (psi(y+) - psi(y-)),      kappa = weight_m / (lam M)

Marginals that agree locally are those of a distribution, since the graph has no cycle; so a y- whose marginals are positive has
mass in one that gives these marginals, and as much as its least marginal. (Where y- has not the mass itself, moving it moves
others along: a step of the polytope of marginals, not of a list of labelings. Nothing is ever enumerated.) An example makes
several steps at a visit, in coordinates of its own: w is written at each, and the weights as the example sees them follow by
its rows' Gram matrix.

The dual never decreases; the gap takes a call of the max-oracle at checks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.errors import OptionError
from maxmargin.inference.trees import TreeRoom, max_product_one, schedule
from maxmargin.jit import Struct, inner, kernel
from maxmargin.problems.layout import joint_state, joint_states_of
from maxmargin.problems.statistics import add_example, collect, plane_of_labels, project_example, row_grams
from maxmargin.solvers.core.run import State
from maxmargin.solvers.core.solver import Solver
from maxmargin.solvers.oracles.compiled import fill_tables, gram_times_plane, workspace
from maxmargin.solvers.oracles.max_oracle import oracle_of
from maxmargin.solvers.oracles.oracle_run import OracleRun, earlier_of

#: A marginal below this is rounding, and counts as none.
_NO_MASS = 1e-14
#: A visit ends when the violation is this share of where it began.
_ENOUGH = 0.1


class Masses(Struct):
    """The arrays of a state that steps change."""

    variables: NDArray[np.float64]
    factors: NDArray[np.float64]
    ell: NDArray[np.float64]


@dataclass
class SMOState(State):
    """Marginals of all examples, in states and tables coordinates, and what they give."""

    variables: NDArray[np.float64]
    factors: NDArray[np.float64]
    #: (M,): E ell_m.
    ell: NDArray[np.float64]
    w: NDArray[np.float64]
    best: NDArray[np.float64]
    lam: float

    @property
    def nbytes(self) -> int:
        """Bytes of the dual state."""
        return int(self.variables.nbytes + self.factors.nbytes + self.ell.nbytes)


class SMO(Solver):
    """Sequential minimal optimisation on the marginals of trees.

    Parameters
    ----------
    steps : int
        Most pairs of labelings of an example at a visit.
    """

    name = "smo"
    requires = ("local scores",)
    certificates = ("exact",)
    keeps = "marginals of all examples"
    paper = "Taskar 2004"
    kernels = True

    def __init__(self, steps: int = 10) -> None:
        self.steps = steps

    def check_options(self, problem: Any) -> None:
        """Refuse graphs with cycles, and visits without a step."""
        if not (isinstance(self.steps, int) and self.steps >= 1):
            raise OptionError(f"steps={self.steps!r} is not possible; it must be a whole number from 1.")
        refusal = problem.refuse_structured(self.name)
        if refusal is not None or not problem.is_forest:
            raise OptionError(
                f'The solver "smo" keeps marginals of trees. {refusal or "Not all of these graphs are trees."} '
                'Use "bcfw", or "excessive-gap" where the graphs have a small width.'
            )

    def make_run(self, problem: Any, lam: float, random_state: Any, threads: int) -> SMORun:
        """What does the work."""
        return SMORun(self, problem, lam, random_state, threads)


class SMORun(OracleRun[SMOState]):
    """One run."""

    solver: SMO
    state_type = SMOState

    def __init__(self, solver: SMO, problem: Any, lam: float, random_state: Any, threads: int) -> None:
        super().__init__(solver, problem, lam, random_state, threads)
        self.oracle = oracle_of(problem, "trees")
        self.certificate = self.oracle.certificate
        self.schedule, self.grams = schedule(problem), row_grams(problem)
        # Kernels are compiled before any clock starts: called with nothing to do.
        self.visit(self.truth(), np.empty(0, np.int64))

    def truth(self) -> SMOState:
        """All mass on the truth: w = 0."""
        p = self.problem
        variables, factors = np.zeros(int(p.example_states[-1])), np.zeros(int(p.example_tables[-1]))
        variables[p.state_starts() + p.labels] = 1.0
        factors[joint_states_of(p.arrays, p.labels)] = 1.0
        zero = np.zeros(p.n_weights)
        return SMOState(variables, factors, np.zeros(p.n_examples), zero, zero.copy(), self.lam)

    def begin(self, earlier: SMOState | None) -> SMOState:
        """The truth, or earlier marginals, mixed with the truth so that the weights stay if lam is not larger than it was."""
        now = self.truth()
        if earlier is not None:
            earlier = earlier_of(now, earlier, ("variables", "factors", "w"))
            share = min(1.0, self.lam / earlier.lam)
            now.variables += share * (earlier.variables - now.variables)
            now.factors += share * (earlier.factors - now.factors)
            now.ell, now.w = share * earlier.ell, earlier.w * (share * earlier.lam / self.lam)
        return now

    def steps(self, now: SMOState, stop: Callable[[], bool]) -> None:
        """Visit all examples in random order."""
        rng = np.random.default_rng([self.seed, 0, now.n_passes])
        order = rng.permutation(self.oracle.n_examples)
        for piece in np.array_split(order, max(1, len(order) // 500)):
            self.visit(now, piece)
            if stop():
                break

    def visit(self, now: SMOState, order: NDArray[np.int64]) -> None:
        """Steps of some examples."""
        p = self.problem
        w_v, w_f = p.working_weights(now.w)
        largest = p.arrays.largest
        work = workspace(largest, TreeRoom.of(largest), self.grams.room(self.problem), planes=2)
        now.n_oracle_calls += visit_pairs(
            p.batch, w_v, w_f, self.schedule, self.grams, work, Masses(now.variables, now.factors, now.ell), order, self.lam,
            self.solver.steps,
        )  # fmt: skip
        now.w = p.flat_weights(w_v, w_f)

    def measure(self, now: SMOState, off_schedule: bool) -> dict[str, float]:
        """The dual from the marginals, the primal from the oracle."""
        now.dual = max(now.dual, self.mean(now.ell) - self.regulariser(now.w))
        primal = self.primal(now, now.w)
        if primal < now.primal:
            now.primal, now.best = primal, now.w.copy()
        if not off_schedule:
            now.next_check = now.n_passes + 1 + now.n_passes // 4
        return {}

    def regulariser(self, w: NDArray[np.float64]) -> float:
        """lam/2 |w|^2, for coefficients of a kernel, too."""
        working = self.problem.working_weights(w)
        return self.lam / 2.0 * float(self.problem.inner(working, working))

    def weights(self, now: SMOState) -> NDArray[np.float64]:
        """The flat weights of the best primal value."""
        return now.best


# ------------------------------------------------------------------------------------------------------- kernels


@inner
def _move(marginals: Any, source: int, target: int, mass: float) -> None:
    """Move mass from one entry to another; what rounding leaves at the first is none."""
    left = marginals[source] - mass
    marginals[source] = left if left > _NO_MASS else 0.0
    marginals[target] += mass


@kernel
def visit_pairs(
    batch: Any,
    w_v: Any,
    w_f: Any,
    schedule: Any,
    grams: Any,
    work: Any,
    masses: Any,
    order: Any,
    lam: float,
    most_steps: int,
) -> int:
    """Steps of the examples in order; returns how often max-product was run."""
    g = batch.graphs
    examples, structures, weight, largest = g.examples, g.structures, g.weight, g.largest
    variables, factors, scope, kinds, slots = g.variables, g.factors, g.scope, g.factor_kinds, g.slots
    z, u, change, index, value, tally, touched = (
        work.z, work.u, work.change, work.index, work.value, work.tally, work.touched,
    )  # fmt: skip
    theta_v, theta_f, worst_v, worst_f, room, best = (
        work.theta_v, work.theta_f, work.mu_v, work.mu_f, work.room, work.labels,
    )  # fmt: skip
    mu_v, mu_f, ells = masses.variables, masses.factors, masses.ell
    least = np.empty(largest.variables, np.int32)
    calls = 0
    for k in range(len(order)):
        m = order[k]
        s, kappa = examples[m].structure, weight[m] / (lam * len(weight))
        states, tables, v0, c0 = (
            examples[m].states, examples[m].tables, structures[s].variables, structures[s].factors,
        )  # fmt: skip
        n_states, n_tables = examples[m + 1].states - states, examples[m + 1].tables - tables
        n_variables = examples[m + 1].variables - examples[m].variables
        n_factors = examples[m + 1].factors - examples[m].factors
        mine_v, mine_f = mu_v[states : states + n_states], mu_f[tables : tables + n_tables]
        project_example(batch, m, w_v, w_f, z)
        begun = 0.0
        for step in range(most_steps):
            fill_tables(batch, m, z, theta_v, theta_f)
            for i in range(n_states):
                worst_v[i] = -theta_v[i] if mine_v[i] > _NO_MASS else -np.inf
            for i in range(n_tables):
                worst_f[i] = -theta_f[i] if mine_f[i] > _NO_MASS else -np.inf
            top = max_product_one(schedule, room, s, theta_v, 0, theta_f, 0, best, 0)
            bottom = -max_product_one(schedule, room, s, worst_v, 0, worst_f, 0, least, 0)
            calls += 2
            violation = top - bottom
            begun = max(begun, violation)
            # Not true of NaN either.
            if not violation > max(_ENOUGH * begun if step else 0.0, 1e-12):
                break
            most = 1.0
            for v in range(n_variables):
                if best[v] != least[v]:
                    most = min(most, mine_v[variables[v0 + v].table + least[v]])
            for c in range(c0, c0 + n_factors):
                one = joint_state(c, 0, factors, scope, kinds, slots, best)
                other = joint_state(c, 0, factors, scope, kinds, slots, least)
                if one != other:
                    most = min(most, mine_f[factors[c].table + other])
            n_best, ell_best = plane_of_labels(batch, m, best, 0, tally, touched, index, value, 0)
            n_least, ell_least = plane_of_labels(batch, m, least, 0, tally, touched, index, value, n_best)
            for e in range(n_best + n_least):
                change[index[e]] += value[e] if e < n_best else -value[e]
            size = collect(change, index, value, 0)
            gram_times_plane(batch, grams, work, m, index, value, 0, size)
            curvature = 0.0
            for e in range(size):
                curvature += value[e] * u[index[e]]
            t = most if kappa * curvature * most <= violation else violation / (kappa * curvature)
            for v in range(n_variables):
                if best[v] != least[v]:
                    at = variables[v0 + v].table
                    _move(mine_v, at + least[v], at + best[v], t)
            for c in range(c0, c0 + n_factors):
                one = joint_state(c, 0, factors, scope, kinds, slots, best)
                other = joint_state(c, 0, factors, scope, kinds, slots, least)
                if one != other:
                    _move(mine_f, factors[c].table + other, factors[c].table + one, t)
            ells[m] += t * (ell_best - ell_least)
            for e in range(size):
                change[index[e]] = t * value[e]
            add_example(batch, m, change, kappa, w_v, w_f)
            for e in range(size):
                change[index[e]] = 0.0
            for i in range(len(z)):
                z[i] += kappa * t * u[i]
    return calls

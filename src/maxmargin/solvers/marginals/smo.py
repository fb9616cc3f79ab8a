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
from maxmargin.inference.trees import max_product_one, schedule
from maxmargin.jit import inner, kernel
from maxmargin.problems.layout import (
    F_ROW,
    F_TABLE,
    FACTORS,
    L_BUFFER,
    L_DELTAS,
    L_STATES,
    L_TABLE,
    L_TABLES,
    L_VARIABLES,
    S_FACTOR_GROUPS,
    S_FACTORS,
    S_VARIABLE_GROUPS,
    S_VARIABLES,
    STATES,
    STRUCTURE,
    TABLES,
    V_ROW,
    V_STATE,
    VARIABLES,
    joint_state,
    joint_states_of,
)
from maxmargin.problems.statistics import add_statistics, collect, row_grams
from maxmargin.solvers.core.run import State
from maxmargin.solvers.core.solver import Solver
from maxmargin.solvers.oracles.compiled import (
    factor_tables,
    labels_plane,
    project_example,
    spread_plane,
    variable_tables,
)
from maxmargin.solvers.oracles.max_oracle import oracle_of
from maxmargin.solvers.oracles.oracle_run import OracleRun, earlier_of

#: A marginal below this is rounding, and counts as none.
_NO_MASS = 1e-14
#: A visit ends when the violation is this share of where it began.
_ENOUGH = 0.1


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
        now.n_oracle_calls += visit_pairs(
            p.arrays, p.variable_features.arrays, p.factor_features.arrays, w_v, w_f, self.schedule, self.grams, order,
            self.lam, self.solver.steps, now.variables, now.factors, now.ell,
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
    g: Any, v_features: Any, f_features: Any, w_v: Any, w_f: Any, schedule: Any, grams: Any, order: Any, lam: float,
    most_steps: int, mu_v: Any, mu_f: Any, ells: Any,
) -> int:  # fmt: skip
    """Steps of the examples in order; returns how often max-product was run."""
    examples, structures, v_groups, f_groups, weight = (
        g.examples, g.structures, g.variable_groups, g.factor_groups, g.weight,
    )  # fmt: skip
    variables, factors, scope, kinds, slots = g.variables, g.factors, g.scope, g.factor_kinds, g.slots
    start, steps, ends, roots = schedule.start, schedule.steps, schedule.ends, schedule.roots
    gram_start, grams_of_rows, kept = grams.start, grams.values, grams.kept
    largest = g.largest
    half, n_examples = largest[L_BUFFER], len(examples) - 1
    z, u, tally, change = np.empty(2 * half), np.empty(2 * half), np.zeros(2 * half), np.zeros(2 * half)
    touched = np.empty(2 * (largest[L_VARIABLES] + largest[L_TABLES]), np.int32)
    index, value = np.empty(4 * half, np.int32), np.empty(4 * half)
    theta_v, theta_f = np.empty(largest[L_STATES]), np.empty(largest[L_TABLES])
    worst_v, worst_f = np.empty(largest[L_STATES]), np.empty(largest[L_TABLES])
    up, heard = np.empty(largest[L_STATES]), np.empty(largest[L_STATES])
    table, chosen = np.empty(g.largest[L_TABLE]), np.empty(largest[L_DELTAS], np.int64)
    best, least = np.empty(largest[L_VARIABLES], np.int32), np.empty(largest[L_VARIABLES], np.int32)
    t_v, t_f = np.empty((0 if kept else len(w_v), w_v.shape[1])), np.empty((0 if kept else len(w_f), w_f.shape[1]))
    calls = 0
    for k in range(len(order)):
        m = order[k]
        s, kappa = examples[m, STRUCTURE], weight[m] / (lam * n_examples)
        states, tables, v0, c0 = (
            examples[m, STATES],
            examples[m, TABLES],
            structures[s, S_VARIABLES],
            structures[s, S_FACTORS],
        )
        n_states, n_tables = examples[m + 1, STATES] - states, examples[m + 1, TABLES] - tables
        n_variables, n_factors = (
            examples[m + 1, VARIABLES] - examples[m, VARIABLES],
            examples[m + 1, FACTORS] - examples[m, FACTORS],
        )
        mine_v, mine_f = mu_v[states : states + n_states], mu_f[tables : tables + n_tables]
        project_example(m, s, examples, structures, v_groups, f_groups, v_features, f_features, half, w_v, w_f, z)
        begun = 0.0
        for step in range(most_steps):
            variable_tables(m, s, g, z, theta_v)
            factor_tables(m, s, g, half, z, theta_f)
            for i in range(n_states):
                worst_v[i] = -theta_v[i] if mine_v[i] > _NO_MASS else -np.inf
            for i in range(n_tables):
                worst_f[i] = -theta_f[i] if mine_f[i] > _NO_MASS else -np.inf
            top = max_product_one(
                s, n_states, start, steps, ends, roots, theta_v, 0, theta_f, 0, up, heard, table, chosen, best, 0
            )  # fmt: skip
            bottom = -max_product_one(
                s, n_states, start, steps, ends, roots, worst_v, 0, worst_f, 0, up, heard, table, chosen, least, 0
            )  # fmt: skip
            calls += 2
            violation = top - bottom
            begun = max(begun, violation)
            # Not true of NaN either.
            if not violation > max(_ENOUGH * begun if step else 0.0, 1e-12):
                break
            room = 1.0
            for v in range(n_variables):
                if best[v] != least[v]:
                    room = min(room, mine_v[variables[v0 + v, V_STATE] + least[v]])
            for c in range(c0, c0 + n_factors):
                one = joint_state(c, 0, factors, scope, kinds, slots, best)
                other = joint_state(c, 0, factors, scope, kinds, slots, least)
                if one != other:
                    room = min(room, mine_f[factors[c, F_TABLE] + other])
            n_best, ell_best = labels_plane(m, s, g, half, best, 0, tally, touched, index, value, 0)
            n_least, ell_least = labels_plane(m, s, g, half, least, 0, tally, touched, index, value, n_best)
            for e in range(n_best + n_least):
                change[index[e]] += value[e] if e < n_best else -value[e]
            size = collect(change, 0, 2 * half, index, value, 0)
            spread_plane(
                m, s, 0, size, index, value, examples, structures, v_groups, f_groups, v_features, f_features, half, gram_start,
                grams_of_rows, kept, t_v, t_f, change, u,
            )  # fmt: skip
            curvature = 0.0
            for e in range(size):
                curvature += value[e] * u[index[e]]
            t = room if kappa * curvature * room <= violation else violation / (kappa * curvature)
            for v in range(n_variables):
                if best[v] != least[v]:
                    at = variables[v0 + v, V_STATE]
                    _move(mine_v, at + least[v], at + best[v], t)
            for c in range(c0, c0 + n_factors):
                one = joint_state(c, 0, factors, scope, kinds, slots, best)
                other = joint_state(c, 0, factors, scope, kinds, slots, least)
                if one != other:
                    _move(mine_f, factors[c, F_TABLE] + other, factors[c, F_TABLE] + one, t)
            ells[m] += t * (ell_best - ell_least)
            for e in range(size):
                change[index[e]] = t * value[e]
            add_statistics(
                v_features, examples[m, V_ROW], v_groups, structures[s, S_VARIABLE_GROUPS], structures[s + 1, S_VARIABLE_GROUPS],
                w_v, change, 0, kappa,
            )  # fmt: skip
            add_statistics(
                f_features, examples[m, F_ROW], f_groups, structures[s, S_FACTOR_GROUPS], structures[s + 1, S_FACTOR_GROUPS],
                w_f, change, half, kappa,
            )  # fmt: skip
            for e in range(size):
                change[index[e]] = 0.0
            for i in range(2 * half):
                z[i] += kappa * t * u[i]
    return calls

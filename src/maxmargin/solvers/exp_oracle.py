"""Exp-oracles: expectations under the Gibbs distribution of every example, the one question of the marginal-based solvers.

With the planes of oracles.py, psi_m(y) and ell_m(y), both relative to the truth, and a temperature T,

    p_m(y)    ~ exp((ell_m(y) - w . psi_m(y)) / T)
    H_m,T(w)  = T log sum_y exp((ell_m(y) - w . psi_m(y)) / T),      H_m(w) <= H_m,T(w) <= H_m(w) + T log |Y_m|
    grad H_m,T(w) = - E_p psi_m

An `ExpOracle` gives the means over all examples of weight_m E_p psi_m and weight_m E_p ell_m, and all H_m,T. At T = 1 and
without the task loss, H_m,1 is the negative log-likelihood of the truth. The weights are flat, shape (d,), float64; with a
kernel they are the dual coefficients (features.py), and so is the mean of psi.

*Forests* are done example by example in one compiled loop: project, fill tables, sum-product in the log domain (trees.py),
collect. *Chains* whose factors have the same scores everywhere (chains.py) need no exponential for a transition: with

    e_t(j) = exp((scores_t(j) - max_t) / T),      E(i, j) = exp((A(i, j) - max_A) / T)
    a_t(j) = e_t(j) sum_i a_{t-1}(i) E(i, j) / c_t,     q_t(j) = e_t(j) b_t(j) / c_t,     b_{t-1}(i) = sum_j E(i, j) q_t(j)

where c_t makes a_t sum to 1, the marginals are a_t b_t, the expected transitions E(i, j) sum_t a_{t-1}(i) q_t(j), and the log
partition function is the sum of T log c_t and of the maxima. All e, E, a and b must be 0, because something is forbidden, or at
least `_LEAST`: then no product underflows and nothing is lost. Where one is smaller, at low temperatures, everything is taken
relative to the best way to go on: with h_t(i) the score of the best labeling of all that comes after i at t (max-product),

    x_t(i, j) = exp((A(i, j) + scores_t(j) + h_t(j) - h_{t-1}(i)) / T) <= 1,      with a 1 for every i that has a way to go on
    a_t(j) = sum_i a_{t-1}(i) x_t(i, j) / c_t,     b_{t-1}(i) = sum_j x_t(i, j) b_t(j) / c_t

Since sums of x over all that may follow are between 1 and K^(n-t), an x or an a that is smaller than exp(-`_NEGLIGIBLE`)
K^-(n-t) adds nothing that double precision could tell: it is left out, its exponential is not computed, and the colder it is
the less there is to do. *Other graphs* are asked of an engine, a piece of the batch at a time.
"""

from __future__ import annotations

import itertools
import math
import re
from copy import copy
from dataclasses import replace
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from maxmargin.errors import MaxMarginError, OptionError, TemperatureError
from maxmargin.inference import Engine, engine
from maxmargin.inference.batches import run_of_examples
from maxmargin.inference.choice import choose_marginals
from maxmargin.inference.contract import check_temperature
from maxmargin.inference.trees import schedule, sum_product_one
from maxmargin.jit import inner, kernel
from maxmargin.parallel.threads import map_shards, pause
from maxmargin.problems.columns import columns_of
from maxmargin.problems.factor_graphs import FactorGraphs
from maxmargin.problems.features import KernelFeatures, score_row
from maxmargin.problems.layout import (
    F_ROW,
    F_SCOPE,
    F_TABLE,
    F_TEMPLATE,
    FACTORS,
    G_AT,
    G_BLOCK,
    G_BLOCK_END,
    G_FIRST,
    G_LAST,
    G_ROW,
    K_ARITY,
    K_SIZE,
    K_START,
    L_BUFFER,
    L_DELTAS,
    L_STATES,
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
    V_TEMPLATE,
    VARIABLES,
    joint_state,
)
from maxmargin.problems.statistics import project
from maxmargin.problems.templates import Template
from maxmargin.solvers.bcfw_visits import factor_tables, marginals_plane, project_example, variable_tables
from maxmargin.solvers.graph_oracle import row_entries
from maxmargin.solvers.loop import State
from maxmargin.solvers.oracles import MaxOracle, OracleRun, dot, oracle_of
from maxmargin.solvers.result import Result, Status

#: Most shards of a sum over all examples, and how often their work must exceed the weights' number.
_SHARDS, _SHARE = 16, 40
#: Entries of score tables that an engine outside compiled loops is given at a time.
_ENTRIES = 1 << 20
#: Least number that products of scaled probabilities are made of: three of them, and a division, stay far from underflow.
_LEAST = 1e-60
#: Minus the logarithm of a share that is lost in rounding, many times over.
_NEGLIGIBLE = 45.0
#: Below, scores divided by the temperature are no numbers any more.
_COLDEST = 1e-290
#: A temperature at which every distribution is uniform, to the last bit.
HOT = 1e100


class MeanMarginals(NamedTuple):
    """Means of expectations."""

    #: (d,): 1/M sum_m weight_m E psi_m.
    psi: NDArray[np.float64]
    #: 1/M sum_m weight_m E ell_m.
    ell: float
    #: (M,): H_m,T(w).
    values: NDArray[np.float64]


class ExpOracle(Protocol):
    """What a solver needs of a problem that it knows by its expectations alone."""

    n_examples: int
    n_weights: int
    #: (M,), of mean 1.
    weight: NDArray[np.float64]
    #: "exact", or "none" where the marginals are approximate.
    certificate: str
    #: Who answers, and why.
    name: str
    reason: str

    def mean(self, w: NDArray[np.float64], temperature: float, threads: int) -> MeanMarginals:
        """Expectations at w, over all examples; the bits do not depend on the threads."""


def exp_oracle_of(problem: Any, engine: str | Engine = "auto", loss_augmented: bool = True) -> ExpOracle:
    """The exp-oracle of a problem.

    Parameters
    ----------
    problem : FactorGraphs, or an object with a method ``exp_oracle(loss_augmented)``
    engine : "auto", str or engine
        For factor graphs: the inference engine that answers.
    loss_augmented : bool
        False leaves the task loss out, as the log objective does.
    """
    if isinstance(problem, FactorGraphs):
        return FactorGraphExpOracle(problem, engine, loss_augmented)
    if not hasattr(problem, "exp_oracle"):
        raise OptionError(
            f"A {type(problem).__name__} has no marginals (no exp-oracle), which this solver needs; "
            'use "bcfw", "frank-wolfe", "subgradient" or "perceptron", which ask for the most violated labeling alone.'
        )
    if engine != "auto":
        raise OptionError(f"engine={engine!r} is for factor graphs; this problem has an exp-oracle of its own.")
    found: ExpOracle = problem.exp_oracle(loss_augmented)
    return found


class FactorGraphExpOracle:
    """Sum-product on factor graphs, over shards of examples in threads."""

    def __init__(self, problem: FactorGraphs, chosen: str | Engine = "auto", loss_augmented: bool = True) -> None:
        if not loss_augmented:
            problem = copy(problem)
            problem.arrays = problem.arrays._replace(losses=np.zeros_like(problem.arrays.losses))
        self.problem = problem
        self.features = problem.variable_features.arrays, problem.factor_features.arrays
        if isinstance(chosen, str) and chosen == "auto":
            self.engine, self.reason = choose_marginals(problem)
        else:
            self.engine, self.reason = engine(chosen), "as asked"
        refusal = self.engine.refusal(problem) or problem.refuse_structured(self.engine.name)
        if refusal is not None:
            raise OptionError(f'The engine "{self.engine.name}" cannot be the exp-oracle here. {refusal}')
        self.certificate = "exact" if self.engine.exact else "none"
        if not self.engine.exact:
            self.reason += ": its marginals are approximate, so that nothing is certified"
        self.name = self.engine.name
        self.n_examples, self.n_weights, self.weight = problem.n_examples, problem.n_weights, problem.arrays.weight
        self.compiled = self.engine.name == "trees"
        self.schedule = schedule(problem) if self.compiled else None
        self.chain = _chain(problem) if self.compiled else None
        cuts = np.linspace(0, self.n_examples, self._n_shards() + 1).astype(int).tolist()
        self.shards = list(itertools.pairwise(cuts))
        self.sums: list[NDArray[np.float64]] = []
        # Kernels are compiled before any clock starts: called with nothing to do.
        w, nothing = problem.working_weights(), np.empty(0, np.int64)
        if self.compiled:
            add_tree_marginals(problem.arrays, *self.features, *w, self.schedule, 1.0, nothing, *w, np.empty(0))
        if self.chain is not None:
            self._chains(nothing, *w, 1.0, w, np.empty(0))
        flatten(np.zeros((1, 0, 1)), 0, 1.0, np.empty(0))

    def mean(self, w: NDArray[np.float64], temperature: float, threads: int) -> MeanMarginals:
        """Expectations at w, over all examples."""
        temperature = check_temperature(temperature)
        if temperature < _COLDEST:
            raise TemperatureError(
                f"temperature={temperature!r} is too low: scores divided by it are no numbers any more; "
                f"it must be at least {_COLDEST:g}."
            )
        p, values = self.problem, np.empty(self.n_examples)
        w_v, w_f = p.working_weights(w)
        # Kept from call to call: memory that is new costs more than the sums where there are many weights.
        if len(self.sums) == 0 or len(self.sums[0]) != len(self.shards):
            self.sums = [np.empty((len(self.shards), *one.shape)) for one in (w_v, w_f)]

        def sum_of(begin: int, end: int) -> float:
            out = [one[self.shards.index((begin, end))] for one in self.sums]
            for one in out:
                one[:] = 0.0
            chosen = np.arange(begin, end)
            if not self.compiled:
                return self._by_engine(begin, end, (w_v, w_f), temperature, out, values)
            if self.chain is not None:
                return self._chains(chosen, w_v, w_f, temperature, out, values)
            return float(
                add_tree_marginals(p.arrays, *self.features, w_v, w_f, self.schedule, temperature, chosen, *out, values)
            )

        ell = sum(map_shards(sum_of, self.shards, threads, pausing=True)) / self.n_examples
        wrong = np.flatnonzero(~np.isfinite(values))
        if len(wrong):
            raise OptionError(
                f"Example {wrong[0]} has a log partition function of {values[wrong[0]]}: its scores are no finite numbers."
            )
        psi, cut = np.empty(self.n_weights), p.n_variable_blocks * p.variable_features.shape[1]
        # Behind a kernel the coefficients stand below the scores.
        flatten(self.sums[0], len(w_v) - p.variable_features.shape[1], 1.0 / self.n_examples, psi[:cut])
        flatten(self.sums[1], len(w_f) - p.factor_features.shape[1], 1.0 / self.n_examples, psi[cut:])
        return MeanMarginals(psi, ell, values)

    def radius(self) -> float:
        """A bound from above on the norms of all psi_m(y), from those of the feature rows; exact with a single variable."""
        p = self.problem
        out = np.empty(self.n_examples)
        sides = [_moves(templates) for templates in (p.variable_templates, p.factor_templates)]
        norms = [np.sqrt(features.squared_norms) for features in self.features]
        _radii(p.arrays, *norms, *(moves for moves, _ in sides), *(disjoint for _, disjoint in sides), out)
        return float(out.max())

    def _by_engine(
        self, begin: int, end: int, working: Any, temperature: float, out: Any, values: NDArray[np.float64]
    ) -> float:
        """Add the expectations of a run of examples that the engine finds, piece by piece."""
        p, ell = self.problem, 0.0
        entries = p.example_states + p.example_tables
        while begin < end:
            pause()
            stop = int(np.searchsorted(entries, entries[begin] + _ENTRIES, side="right")) - 1
            stop = min(end, max(begin + 1, stop))
            part = run_of_examples(p, begin, stop)
            scores = part.scores_of(working, loss_augmented=True)
            try:
                found = self.engine.marginals(part, scores, temperature)
            except MaxMarginError as error:
                first = begin
                sentence = re.sub(r"(?i)\b(example )(\d+)", lambda m: f"{m[1]}{first + int(m[2])}", str(error))  # noqa: B023
                raise type(error)(sentence) from error
            ell += add_marginals(part.arrays, *self.features, found.variables, found.factors, *out)
            values[begin:stop] = found.log_partition - part.labeling_scores(scores, part.labels)
            begin = stop
        return ell

    def _chains(
        self, chosen: NDArray[np.int64], w_v: Any, w_f: Any, temperature: float, out: Any, values: NDArray[np.float64]
    ) -> float:
        """Add the expectations of some chains."""
        assert self.chain is not None
        p, chain = self.problem, self.chain
        a, row = p.arrays, chain.row
        scores, counts = np.empty(len(a.factor_block)), np.zeros(len(a.factor_block))
        _template_scores(self.features[1], row, w_f, a.factor_block, a.factor_fixed, scores)
        ell = add_chain_marginals(
            a, self.features[0], w_v, chain.pair, chain.plain, scores, temperature, chosen, out[0], counts, values
        )
        # A forbidden joint state has no mass, and -inf times 0 would be NaN.
        ell += np.sum(counts[counts != 0.0] * a.factor_fixed[counts != 0.0])
        blocks = np.zeros(w_f.shape[1])
        np.subtract.at(blocks, a.factor_block[a.factor_block >= 0], counts[a.factor_block >= 0])
        _add_one_row(self.features[1], row, out[1], blocks)
        return float(ell)

    def _n_shards(self) -> int:
        """A shard's sum is dense: it must be small beside the work of its examples."""
        p = self.problem
        work = float(2 * p.example_states[-1] * row_entries(p.variable_features) + 3 * p.example_tables[-1])
        return max(1, min(_SHARDS, self.n_examples, round(work / (_SHARE * max(1, self.n_weights)))))


S = TypeVar("S", bound=State)


class ExpRun(OracleRun[S]):
    """A run on an exp-oracle: what the marginal-based solvers share.

    Inner products are those of the weights, whether they are written down or known by the coefficients of a kernel. A problem with
    many sparse features is trained in coordinates of its own (columns.py), and so are its states; its result has the weights.
    """

    oracle: ExpOracle  # type: ignore[assignment]
    hardest: MaxOracle | None = None
    #: The weights that `inner` saw last, and their scores.
    seen: NDArray[np.float64] | None = None
    scores: NDArray[np.float64]

    def __init__(self, solver: Any, problem: Any, lam: float, random_state: Any, threads: int) -> None:
        self.columns = columns_of(problem)
        problem = problem if self.columns is None else self.columns.inside
        super().__init__(solver, problem, lam, random_state, threads)
        self.oracle = exp_oracle_of(problem, solver.engine, getattr(solver, "objective", "margin") == "margin")
        self.certificate = self.oracle.certificate

    def result(self, now: S, status: Status) -> Result:
        """The outcome, in the coordinates of the problem."""
        found = super().result(now, status)
        return found if self.columns is None else replace(found, weights=self.columns.outside(found.weights))

    def expect(self, now: S, w: NDArray[np.float64], temperature: float) -> MeanMarginals:
        """Ask the oracle, and count the question."""
        now.n_oracle_calls += self.oracle.n_examples
        return self.oracle.mean(w, temperature, self.threads)

    def inner(self, one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
        """Inner product of two flat weights; behind a kernel, a product with its matrix, which is kept for `one`."""
        p = self.problem
        if not (isinstance(p, FactorGraphs) and isinstance(p.variable_features, KernelFeatures)):
            return dot(one, other)
        (own, own_factors), (others, other_factors) = p.split_weights(one), p.split_weights(other)
        if self.seen is not one:
            self.seen, self.scores = one, p.variable_features.times(own.T)
        return dot(self.scores, others.T) + dot(own_factors, other_factors)

    def regulariser(self, w: NDArray[np.float64]) -> float:
        """lam/2 |w|^2."""
        return self.lam / 2.0 * self.inner(w, w)

    def primal(self, now: S, w: NDArray[np.float64]) -> float:
        """P(w) of the margin, by a max-oracle with the same engine."""
        if self.hardest is None:
            self.hardest = oracle_of(self.problem, getattr(self.oracle, "engine", "auto"))
        now.n_oracle_calls += self.oracle.n_examples
        return self.regulariser(w) + self.mean(self.hardest.mean_plane(w, self.threads).hinges)

    def radius(self) -> float:
        """A bound of max |psi|, or infinity where the problem knows none."""
        return float(self.oracle.radius()) if hasattr(self.oracle, "radius") else math.inf

    def labelings(self) -> float:
        """Mean of weight_m log |Y_m|."""
        return self.mean(self.oracle.mean(np.zeros(self.oracle.n_weights), HOT, self.threads).values / HOT)


def check_objective(objective: str) -> None:
    """Refuse an objective that is neither of the two."""
    if objective not in ("margin", "log"):
        raise OptionError(f'objective={objective!r} is not known; use "margin" or "log".')


class _Chain(NamedTuple):
    """What all factors of a batch of chains share: the template between neighbours, and the feature row."""

    pair: int
    row: int
    #: Whether the states of every variable have consecutive blocks and no fixed scores.
    plain: bool


def _chain(graphs: FactorGraphs) -> _Chain | None:
    """Whether every example is a chain from its first variable to its last, with the same scores for the same factors."""
    a = graphs.arrays
    if len(a.factor_scores) or len(a.factor_groups) == 0:
        return None
    # All factors of all examples read one feature row.
    used = np.flatnonzero(np.diff(a.structures[:, S_FACTORS])[graphs.structure_of])
    if len(used) == 0 or np.ptp(a.factor_groups[:, G_ROW]) or np.ptp(a.examples[used, F_ROW]):
        return None
    arity = a.factor_kinds[a.factors[:, F_TEMPLATE], K_ARITY]
    kinds = np.unique(a.factors[arity == 2, F_TEMPLATE])
    n_states = np.unique(a.variable_kinds[np.unique(a.variables[:, V_TEMPLATE]), K_SIZE])
    if len(kinds) != 1 or len(n_states) != 1 or arity.max() > 2 or arity.min() < 1:
        return None
    for s in range(len(a.structures) - 1):
        c = np.arange(a.structures[s, S_FACTORS], a.structures[s + 1, S_FACTORS])
        pairs = c[arity[c] == 2]
        first = a.scope[a.factors[pairs, F_SCOPE]]
        n = a.structures[s + 1, S_VARIABLES] - a.structures[s, S_VARIABLES]
        if (
            len(pairs) != n - 1
            or (np.sort(first) != np.arange(n - 1)).any()
            or (a.scope[a.factors[pairs, F_SCOPE] + 1] != first + 1).any()
        ):
            return None
    plain = len(a.variable_scores) == 0 and all(
        template.blocks[0] >= 0 and (np.diff(template.blocks) == 1).all() and not template.scores.any()
        for template in graphs.variable_templates
    )
    return _Chain(int(kinds[0]), int(a.examples[used[0], F_ROW] + a.factor_groups[0, G_ROW]), plain)


def _moves(templates: list[Template]) -> tuple[NDArray[np.float64], bool]:
    """The longest move of each template's statistics from one state to another, and whether templates share no block."""
    moves, seen = [np.empty(0)], []
    for template in templates:
        blocks = np.unique(template.blocks)
        named = blocks[blocks >= 0]
        moves.append(np.array([np.sqrt(min(2.0, len(named))) if len(blocks) > 1 else 0.0]))
        seen.append(named)
    return np.concatenate(moves), len(np.unique(np.concatenate([np.empty(0), *seen]))) == sum(map(len, seen))


# ------------------------------------------------------------------------------------------------------- kernels


@inner
def _add_expectation(
    m: int, s: int, examples: Any, structures: Any, v_groups: Any, f_groups: Any, v_features: Any, f_features: Any, half: int,
    change: Any, weight: float, out_v: Any, out_f: Any,
) -> None:  # fmt: skip
    """Add the statistics of example m to the sums."""
    _add_side(
        v_features, examples[m, V_ROW], v_groups, structures[s, S_VARIABLE_GROUPS], structures[s + 1, S_VARIABLE_GROUPS],
        out_v, change, 0, weight,
    )  # fmt: skip
    _add_side(
        f_features, examples[m, F_ROW], f_groups, structures[s, S_FACTOR_GROUPS], structures[s + 1, S_FACTOR_GROUPS],
        out_f, change, half, weight,
    )  # fmt: skip


@inner
def _add_side(
    features: Any, row0: int, groups: Any, q0: int, q1: int, out: Any, change: Any, at: int, scale: float
) -> None:
    """Weights += scale * sum_r x_r change(r, :) of one side, as `add_statistics`, for changes that are nowhere zero.

    Of weights behind a kernel only the coefficients are written, since the scores of a sum are found at once.
    """
    indptr, indices, data, dense, n = (
        features.indptr,
        features.indices,
        features.data,
        features.dense,
        len(features.gram),
    )
    for q in range(q0, q1):
        row, low, high, place = (
            row0 + groups[q, G_ROW],
            groups[q, G_BLOCK],
            groups[q, G_BLOCK_END],
            at + groups[q, G_AT],
        )
        moved = change[place : place + high - low]
        if n > 0:
            _add_scaled(out[n + row, low:high], moved, scale)
        elif len(indptr) > 1:
            for k in range(indptr[row], indptr[row + 1]):
                _add_scaled(out[indices[k], low:high], moved, scale * data[k])
        else:
            for column in range(dense.shape[1]):
                _add_scaled(out[column, low:high], moved, scale * dense[row, column])


@inner
def _add_scaled(out: Any, vector: Any, scale: float) -> None:
    for j in range(len(vector)):
        out[j] += scale * vector[j]


@kernel
def add_tree_marginals(
    g: Any, v_features: Any, f_features: Any, w_v: Any, w_f: Any, schedule: Any, temperature: float, chosen: Any, out_v: Any,
    out_f: Any, values: Any,
) -> float:  # fmt: skip
    """Add weight_m E psi_m of the chosen examples to out, fill their values; returns the sum of weight_m E ell_m."""
    examples, structures, v_groups, f_groups, weight = (
        g.examples, g.structures, g.variable_groups, g.factor_groups, g.weight,
    )  # fmt: skip
    variables, factors, scope, kinds, slots, truth = g.variables, g.factors, g.scope, g.factor_kinds, g.slots, g.labels
    start, steps, ends, roots = schedule.start, schedule.steps, schedule.ends, schedule.roots
    largest = g.largest
    half = largest[L_BUFFER]
    z, tally, change = np.empty(2 * half), np.zeros(2 * half), np.zeros(2 * half)
    index, value = np.empty(2 * half, np.int32), np.empty(2 * half)
    theta_v, theta_f = np.empty(largest[L_STATES]), np.empty(largest[L_TABLES])
    mu, table = np.empty(largest[L_STATES]), np.empty(largest[L_TABLES])
    truth_v, truth_f = np.zeros(largest[L_STATES]), np.zeros(largest[L_TABLES])
    up, most, total = np.empty(largest[L_STATES]), np.empty(largest[L_STATES]), np.empty(largest[L_DELTAS])
    sum_of_ell = 0.0
    for k in range(len(chosen)):
        m = chosen[k]
        s, first = examples[m, STRUCTURE], examples[m, VARIABLES]
        project_example(m, s, examples, structures, v_groups, f_groups, v_features, f_features, half, w_v, w_f, z)
        variable_tables(m, s, g, z, theta_v)
        factor_tables(m, s, g, half, z, theta_f)
        values[m] = sum_product_one(
            s, examples[m + 1, STATES] - examples[m, STATES], start, steps, ends, roots, theta_v, 0, theta_f, 0, temperature,
            up, most, total, mu, 0, table, 0,
        )  # fmt: skip
        if not np.isfinite(values[m]):
            continue
        for v in range(examples[m + 1, VARIABLES] - first):
            values[m] -= theta_v[variables[structures[s, S_VARIABLES] + v, V_STATE] + truth[first + v]]
        for c in range(
            structures[s, S_FACTORS], structures[s, S_FACTORS] + examples[m + 1, FACTORS] - examples[m, FACTORS]
        ):
            values[m] -= theta_f[factors[c, F_TABLE] + joint_state(c, first, factors, scope, kinds, slots, truth)]
        n, ell = marginals_plane(m, s, g, half, mu, table, truth_v, truth_f, tally, index, value, 0)
        sum_of_ell += weight[m] * ell
        for e in range(n):
            change[index[e]] = value[e]
        _add_expectation(
            m, s, examples, structures, v_groups, f_groups, v_features, f_features, half, change, weight[m], out_v, out_f
        )  # fmt: skip
        for e in range(n):
            change[index[e]] = 0.0
    return sum_of_ell


@kernel
def add_marginals(
    g: Any, v_features: Any, f_features: Any, variables: Any, factors: Any, out_v: Any, out_f: Any
) -> float:
    """Add weight_m E psi_m under given marginals, in states and tables coordinates; returns the sum of weight_m E ell_m."""
    examples, structures, v_groups, f_groups, weight = (
        g.examples, g.structures, g.variable_groups, g.factor_groups, g.weight,
    )  # fmt: skip
    half = g.largest[L_BUFFER]
    tally, change = np.zeros(2 * half), np.zeros(2 * half)
    index, value = np.empty(2 * half, np.int32), np.empty(2 * half)
    truth_v, truth_f = np.zeros(g.largest[L_STATES]), np.zeros(g.largest[L_TABLES])
    sum_of_ell = 0.0
    for m in range(len(examples) - 1):
        s = examples[m, STRUCTURE]
        n, ell = marginals_plane(
            m, s, g, half, variables[examples[m, STATES] : examples[m + 1, STATES]],
            factors[examples[m, TABLES] : examples[m + 1, TABLES]], truth_v, truth_f, tally, index, value, 0,
        )  # fmt: skip
        sum_of_ell += weight[m] * ell
        for e in range(n):
            change[index[e]] = value[e]
        _add_expectation(
            m, s, examples, structures, v_groups, f_groups, v_features, f_features, half, change, weight[m], out_v, out_f
        )  # fmt: skip
        for e in range(n):
            change[index[e]] = 0.0
    return sum_of_ell


@kernel
def add_chain_marginals(
    g: Any, features: Any, w_v: Any, pair: int, plain: bool, scores: Any, temperature: float, chosen: Any, out_v: Any, counts: Any,
    values: Any,
) -> float:  # fmt: skip
    """Add weight_m E psi_m of the variables of chains to out_v, and expected minus true factors by template to counts.

    `scores` are those of all factor templates, in the order of their blocks; `plain` is `_Chain`'s. Returns the sum of weight_m
    E ell_m without the factors' part.
    """
    examples, structures, v_groups, weight = g.examples, g.structures, g.variable_groups, g.weight
    variables, factors, scope, kinds, truth, losses = (
        g.variables, g.factors, g.scope, g.factor_kinds, g.labels, g.losses,
    )  # fmt: skip
    v_kinds, v_block, v_fixed, v_scores = g.variable_kinds, g.variable_block, g.variable_fixed, g.variable_scores
    largest = g.largest
    n_states = v_kinds[variables[0, V_TEMPLATE], K_SIZE]
    at_pair = kinds[pair, K_START]
    transitions = scores[at_pair : at_pair + n_states * n_states].copy().reshape((n_states, n_states))
    turned = transitions.T.copy()
    safe, top_pair, rising, falling = _exponentials(transitions, temperature)
    length = largest[L_VARIABLES]
    z, change = np.empty(largest[L_BUFFER]), np.zeros(largest[L_BUFFER])
    theta, emit = np.empty((length, n_states)), np.empty((length, n_states))
    a, q, b, norm = np.empty((length, n_states)), np.empty((length, n_states)), np.empty(n_states), np.empty(length)
    together = np.zeros((n_states, n_states))
    ahead, kept, share_of = np.empty((length, n_states)), np.empty(0, np.int32), np.empty(0)
    ends = np.empty(length + 1, np.int64)
    sum_of_ell = 0.0
    for k in range(len(chosen)):
        m = chosen[k]
        s, first, share = examples[m, STRUCTURE], examples[m, VARIABLES], weight[m]
        n, v0, states = examples[m + 1, VARIABLES] - first, structures[s, S_VARIABLES], examples[m, STATES]
        q0, q1 = structures[s, S_VARIABLE_GROUPS], structures[s + 1, S_VARIABLE_GROUPS]
        c0, c1 = structures[s, S_FACTORS], structures[s + 1, S_FACTORS]
        project(features, examples[m, V_ROW], v_groups, q0, q1, w_v, z, 0)
        for group in range(q0, q1):
            place = v_groups[group, G_AT] - v_groups[group, G_BLOCK]
            for t in range(v_groups[group, G_FIRST], v_groups[group, G_LAST]):
                here = theta[t]
                here[:] = losses[states + t * n_states : states + (t + 1) * n_states]
                start = v_kinds[variables[v0 + t, V_TEMPLATE], K_START]
                if plain:
                    _add_scaled(here, z[place + v_block[start] : place + v_block[start] + n_states], 1.0)
                    continue
                for y in range(n_states):
                    block = v_block[start + y]
                    here[y] += v_fixed[start + y] + (z[place + block] if block >= 0 else 0.0)
                if len(v_scores) > 0:
                    _add_scaled(here, v_scores[states + t * n_states : states + (t + 1) * n_states], 1.0)
        value = 0.0
        for c in range(c0, c1):
            kind, t = factors[c, F_TEMPLATE], scope[factors[c, F_SCOPE]]
            if kind != pair:
                for y in range(n_states):
                    theta[t, y] += scores[kinds[kind, K_START] + y]
            else:
                value -= scores[at_pair + truth[first + t] * n_states + truth[first + t + 1]]
        for t in range(n):
            value -= theta[t, truth[first + t]]
        log_partition = _forward(n, theta, temperature, rising, emit, a, norm) if safe else np.nan
        if np.isnan(log_partition) or not _backward(n, falling, emit, a, norm, q, b):
            if len(kept) == 0:
                # At most every transition of the longest chain is kept.
                kept, share_of = np.empty(length * n_states**2, np.int32), np.empty(length * n_states**2)
            log_partition = _relative_forward(
                n, theta, temperature, transitions, turned, ahead, a, norm, kept, share_of, ends
            )  # fmt: skip
            _relative_backward(
                n, a, norm, kept, share_of, ends, emit, b, share, counts[at_pair : at_pair + n_states**2]
            )
            values[m] = value + log_partition
        else:
            values[m] = value + log_partition + (n - 1) * top_pair
            for t in range(1, n):
                _add_outer(together, a[t - 1], q[t], share)
        for t in range(1, n):
            counts[at_pair + truth[first + t - 1] * n_states + truth[first + t]] -= share
        # From here on emit holds the marginals minus the truth.
        ell = 0.0
        for group in range(q0, q1):
            place = v_groups[group, G_AT] - v_groups[group, G_BLOCK]
            for t in range(v_groups[group, G_FIRST], v_groups[group, G_LAST]):
                start, moved = v_kinds[variables[v0 + t, V_TEMPLATE], K_START], emit[t]
                moved[truth[first + t]] -= 1.0
                ell += _expected(moved, losses, states + t * n_states)
                if plain:
                    _add_scaled(change[place + v_block[start] : place + v_block[start] + n_states], moved, -1.0)
                    continue
                ell += _expected(moved, v_fixed, start)
                if len(v_scores) > 0:
                    ell += _expected(moved, v_scores, states + t * n_states)
                for y in range(n_states):
                    if v_block[start + y] >= 0:
                        change[place + v_block[start + y]] -= moved[y]
        sum_of_ell += share * ell
        _add_side(features, examples[m, V_ROW], v_groups, q0, q1, out_v, change, 0, share)
        change[: v_groups[q1 - 1, G_AT] + v_groups[q1 - 1, G_BLOCK_END] - v_groups[q1 - 1, G_BLOCK]] = 0.0
        for c in range(c0, c1):
            kind, t = factors[c, F_TEMPLATE], scope[factors[c, F_SCOPE]]
            if kind != pair:
                for y in range(n_states):
                    counts[kinds[kind, K_START] + y] += share * emit[t, y]
    for i in range(n_states):
        for j in range(n_states):
            counts[at_pair + i * n_states + j] += rising[i, j] * together[i, j]
    return sum_of_ell


@inner
def _exponentials(table: Any, temperature: float) -> Any:
    """Whether no transition is too small beside the largest; that, their exponentials, and those transposed."""
    n = len(table)
    top = -np.inf
    for i in range(n):
        for j in range(n):
            top = max(top, table[i, j])
    rising, falling = np.zeros((n, n)), np.zeros((n, n))
    safe = True
    for i in range(n):
        for j in range(n):
            if table[i, j] > -np.inf:
                rising[i, j] = np.exp((table[i, j] - top) / temperature)
                falling[j, i] = rising[i, j]
                # Not true of NaN either.
                safe = safe and rising[i, j] >= _LEAST
    return safe, top, rising, falling


@inner
def _forward(n: int, theta: Any, temperature: float, rising: Any, emit: Any, a: Any, norm: Any) -> float:
    """Fill emit, a and norm; returns the log partition function but for the transitions' largest score, or NaN."""
    n_states = theta.shape[1]
    log_partition = 0.0
    for t in range(n):
        scores, e, here = theta[t], emit[t], a[t]
        top = -np.inf
        for y in range(n_states):
            top = max(top, scores[y])
        least = 1.0
        for y in range(n_states):
            e[y] = np.exp((scores[y] - top) / temperature)
            least = min(least, e[y] if scores[y] > -np.inf else 1.0)
        # Not true of NaN either.
        if not least >= _LEAST:
            return np.nan
        if t == 0:
            for y in range(n_states):
                here[y] = e[y]
        else:
            _multiply(a[t - 1], rising, here)
            for y in range(n_states):
                here[y] *= e[y]
        mass = 0.0
        for y in range(n_states):
            mass += here[y]
        if not mass > 0.0:
            return np.nan
        for y in range(n_states):
            here[y] /= mass
            if 0.0 < here[y] < _LEAST:
                return np.nan
        norm[t] = mass
        log_partition += top + temperature * np.log(mass)
    return log_partition


@inner
def _backward(n: int, falling: Any, emit: Any, a: Any, norm: Any, q: Any, b: Any) -> bool:
    """Fill q, and the marginals into emit; False if a number is too small."""
    n_states = emit.shape[1]
    for y in range(n_states):
        b[y] = 1.0
    for t in range(n - 1, -1, -1):
        e, here, back = emit[t], a[t], q[t]
        for y in range(n_states):
            # What cannot be reached does not send, or it would grow without bound.
            if here[y] == 0.0:
                b[y] = 0.0
            if 0.0 < b[y] < _LEAST:
                return False
            back[y] = e[y] * b[y] / norm[t]
            e[y] = here[y] * b[y]
        if t > 0:
            _multiply(back, falling, b)
    return True


@inner
def _relative_forward(
    n: int, theta: Any, temperature: float, transitions: Any, turned: Any, ahead: Any, a: Any, norm: Any, kept: Any,
    share_of: Any, ends: Any,
) -> float:  # fmt: skip
    """Fill a and norm, relative to the best way to go on, and the x that are kept; returns the log partition function.

    `ahead` holds h_t plus the scores of t. Transition i * K + j into position t is kept[e] for an e in ends[t]:ends[t + 1], and
    its x is share_of[e].
    """
    n_states = theta.shape[1]
    for t in range(n - 1, -1, -1):
        here = ahead[t]
        here[:] = 0.0
        if t < n - 1:
            here[:] = -np.inf
            for j in range(n_states):
                row, score = turned[j], ahead[t + 1, j]
                for i in range(n_states):
                    here[i] = max(here[i], row[i] + score)
        for i in range(n_states):
            here[i] += theta[t, i]
    best = -np.inf
    for i in range(n_states):
        best = max(best, ahead[0, i])
    size, log_partition = 0, best
    for t in range(n):
        here = a[t]
        least = -_NEGLIGIBLE - (n - t) * np.log(n_states)
        ends[t] = size
        if t == 0:
            for i in range(n_states):
                here[i] = np.exp((ahead[0, i] - best) / temperature)
        else:
            here[:] = 0.0
            rare = np.exp(least)
            for i in range(n_states):
                if a[t - 1, i] <= rare:
                    continue
                row, score = transitions[i], ahead[t]
                # h_{t-1}(i), with the sum that it is the largest of, so that one x is 1.
                behind = ahead[t - 1, i] - theta[t - 1, i]
                floor = behind + least * temperature
                for j in range(n_states):
                    if row[j] + score[j] > floor:
                        x = np.exp((row[j] + score[j] - behind) / temperature)
                        kept[size], share_of[size] = i * n_states + j, x
                        here[j] += a[t - 1, i] * x
                        size += 1
        mass = 0.0
        for i in range(n_states):
            mass += here[i]
        norm[t] = mass
        for i in range(n_states):
            here[i] /= mass
        log_partition += temperature * np.log(mass)
    ends[n] = size
    return log_partition


@inner
def _relative_backward(
    n: int, a: Any, norm: Any, kept: Any, share_of: Any, ends: Any, emit: Any, b: Any, weight: float, counts: Any
) -> None:
    """Marginals into emit, and weight times those of the transitions to counts."""
    n_states = emit.shape[1]
    for i in range(n_states):
        b[i] = 1.0
    for t in range(n - 1, -1, -1):
        for i in range(n_states):
            emit[t, i] = a[t, i] * b[i]
        if t == 0:
            break
        back = emit[t - 1]
        back[:] = 0.0
        for e in range(ends[t], ends[t + 1]):
            i, j = kept[e] // n_states, kept[e] % n_states
            ways = share_of[e] * b[j] / norm[t]
            counts[kept[e]] += weight * a[t - 1, i] * ways
            back[i] += ways
        b[:] = back


@inner
def _expected(moved: Any, scores: Any, at: int) -> float:
    """Sum of moved[y] scores[at + y]; a forbidden state does not move, and -inf times 0 would be NaN."""
    total = 0.0
    for y in range(len(moved)):
        if moved[y] != 0.0:
            total += moved[y] * scores[at + y]
    return total


@inner
def _multiply(vector: Any, matrix: Any, out: Any) -> None:
    """out[j] = sum_i vector[i] matrix[i, j], two rows at a time; the inner loop compiles to vector instructions."""
    n = len(vector)
    for j in range(n):
        out[j] = 0.0
    for i in range(0, n - 1, 2):
        one, two, x, y = matrix[i], matrix[i + 1], vector[i], vector[i + 1]
        for j in range(n):
            out[j] += x * one[j] + y * two[j]
    if n % 2:
        last, x = matrix[n - 1], vector[n - 1]
        for j in range(n):
            out[j] += x * last[j]


@inner
def _add_outer(matrix: Any, left: Any, right: Any, scale: float) -> None:
    """Matrix += scale * left right^T."""
    for i in range(len(left)):
        _add_scaled(matrix[i], right, scale * left[i])


@kernel
def flatten(sums: Any, first: int, scale: float, out: Any) -> None:
    """The sum over shards of sums[:, first:, :] times scale, block after block; in tiles, since one side is read across."""
    n, rows, blocks, tile = sums.shape[0], sums.shape[1] - first, sums.shape[2], 64
    for begin in range(0, rows, tile):
        end = min(begin + tile, rows)
        for b in range(blocks):
            here = out[b * rows + begin : b * rows + end]
            here[:] = 0.0
            for k in range(n):
                part = sums[k, first + begin : first + end]
                for i in range(end - begin):
                    here[i] += part[i, b]
            for i in range(end - begin):
                here[i] *= scale


@kernel
def _template_scores(features: Any, row: int, w_f: Any, blocks: Any, fixed: Any, out: Any) -> None:
    """Scores of all factor templates' joint states with one feature row."""
    learned = np.empty(w_f.shape[1])
    score_row(features, row, w_f, 0, len(learned), learned, 0)
    for y in range(len(blocks)):
        out[y] = fixed[y] + (learned[blocks[y]] if blocks[y] >= 0 else 0.0)


@kernel
def _add_one_row(features: Any, row: int, out: Any, change: Any) -> None:
    """Weights += x_row change, as a group of one member that has all blocks."""
    group = np.array([[0, 1, 0, 0, len(change), 0]])
    _add_side(features, row, group, 0, 1, out, change, 0, 1.0)


@kernel
def _radii(
    g: Any, v_norms: Any, f_norms: Any, v_moves: Any, f_moves: Any, v_apart: bool, f_apart: bool, out: Any
) -> None:
    """For each example a bound of |psi|: moves of one template add up in length, those of other blocks at right angles."""
    examples, structures = g.examples, g.structures
    moved_v, moved_f = np.zeros(len(v_moves)), np.zeros(len(f_moves))
    for m in range(len(out)):
        s = examples[m, STRUCTURE]
        of_v = _side_radius(
            structures[s, S_VARIABLE_GROUPS], structures[s + 1, S_VARIABLE_GROUPS], g.variable_groups, structures[s, S_VARIABLES],
            g.variables, v_norms, examples[m, V_ROW], v_moves, v_apart, moved_v,
        )  # fmt: skip
        of_f = _side_radius(
            structures[s, S_FACTOR_GROUPS], structures[s + 1, S_FACTOR_GROUPS], g.factor_groups, structures[s, S_FACTORS],
            g.factors, f_norms, examples[m, F_ROW], f_moves, f_apart, moved_f,
        )  # fmt: skip
        out[m] = np.sqrt(of_v * of_v + of_f * of_f)


@inner
def _side_radius(
    q0: int, q1: int, groups: Any, first: int, members: Any, norms: Any, row0: int, moves: Any, apart: bool, moved: Any
) -> float:
    """Bound of one side; `moved` is zero, and is so again afterwards."""
    total = 0.0
    for q in range(q0, q1):
        begin, end = first + groups[q, G_FIRST], first + groups[q, G_LAST]
        for i in range(begin, end):
            moved[members[i, 0]] += moves[members[i, 0]]
        length = square = 0.0
        for i in range(begin, end):
            length += moved[members[i, 0]]
            square += moved[members[i, 0]] ** 2
            moved[members[i, 0]] = 0.0
        total += norms[row0 + groups[q, G_ROW]] * (np.sqrt(square) if apart else length)
    return total

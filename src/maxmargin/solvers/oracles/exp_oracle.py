"""Exp-oracles: expectations under the Gibbs distribution of every example, the one question of the marginal-based solvers.

With the planes of max_oracle.py, psi_m(y) and ell_m(y), both relative to the truth, and a temperature T,

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
least `LEAST`: then no product underflows and nothing is lost. Where one is smaller, at low temperatures, everything is taken
relative to the best way to go on: with h_t(i) the score of the best labeling of all that comes after i at t (max-product),

    x_t(i, j) = exp((A(i, j) + scores_t(j) + h_t(j) - h_{t-1}(i)) / T) <= 1,      with a 1 for every i that has a way to go on
    a_t(j) = sum_i a_{t-1}(i) x_t(i, j) / c_t,     b_{t-1}(i) = sum_j x_t(i, j) b_t(j) / c_t

Since sums of x over all that may follow are between 1 and K^(n-t), an x or an a that is smaller than exp(-`_NEGLIGIBLE`)
K^-(n-t) adds nothing that double precision could tell: it is left out, its exponential is not computed, and the colder it is
the less there is to do. *Other graphs* are asked of an engine, a piece of the batch at a time.
"""

from __future__ import annotations

import itertools
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from maxmargin.errors import OptionError, TemperatureError
from maxmargin.inference import Engine, engine
from maxmargin.inference.choice import choose_marginals
from maxmargin.inference.contract import check_temperature
from maxmargin.inference.trees import Schedule, TreeRoom, sum_product_one
from maxmargin.jit import inner, kernel
from maxmargin.parallel.pool import Pool
from maxmargin.parallel.threads import map_shards, pause
from maxmargin.problems.factor_graphs import FactorGraphs
from maxmargin.problems.statistics import project_example
from maxmargin.problems.templates import Template
from maxmargin.solvers.oracles.chain_marginals import add_chain_marginals, chain_of
from maxmargin.solvers.oracles.compiled import Work, fill_tables, marginals_plane, minus_truth, workspace
from maxmargin.solvers.oracles.expectations import add_one_row, add_side, template_scores
from maxmargin.solvers.oracles.graph_oracle import row_entries
from maxmargin.solvers.oracles.packed_chains import PackedChains, packs

#: Most shards of a sum over all examples, and how often their work must exceed the weights' number.
_SHARDS, _SHARE = 16, 40
#: Entries of score tables that an engine outside compiled loops is given at a time.
_ENTRIES = 1 << 20
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
    inference : "auto", str or engine
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
    found: ExpOracle
    if getattr(problem, "takes_engine", False):
        found = problem.exp_oracle(loss_augmented, engine)
        return found
    if engine != "auto":
        raise OptionError(f"inference={engine!r} is for factor graphs; this problem has an exp-oracle of its own.")
    found = problem.exp_oracle(loss_augmented)
    return found


class FactorGraphExpOracle:
    """Sum-product on factor graphs, over shards of examples in threads."""

    def __init__(self, problem: FactorGraphs, chosen: str | Engine = "auto", loss_augmented: bool = True) -> None:
        if not loss_augmented:
            problem = problem.without_losses()
        self.problem = problem
        self.features = problem.variable_features.arrays, problem.factor_features.arrays
        self._works: Pool[Work] = Pool()
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
        plan = self.engine.plan(problem) if hasattr(self.engine, "plan") else None
        self.schedule = plan if isinstance(plan, Schedule) else None
        self.compiled = self.schedule is not None
        self.chain = chain_of(problem) if self.compiled else None
        cuts = np.linspace(0, self.n_examples, self._n_shards() + 1).astype(int).tolist()
        self.shards = list(itertools.pairwise(cuts))
        self.sums: list[NDArray[np.float64]] = []
        # Kernels are compiled before any clock starts: called with nothing to do.
        w, nothing = problem.working_weights(), np.empty(0, np.int64)
        if self.chain is not None:
            self._chains(nothing, *w, 1.0, w, np.empty(0))
        elif self.compiled:
            with self.workspace() as work:
                add_tree_marginals(problem.batch, *w, self.schedule, work, 1.0, nothing, *w, np.empty(0))
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
            with self.workspace() as work:
                return float(
                    add_tree_marginals(p.batch, w_v, w_f, self.schedule, work, temperature, chosen, *out, values)
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

    def packed(self) -> PackedChains | None:
        """The same oracle for vectors as its kernels read them, where there is one."""
        if self.chain is None or not packs(self.problem, self.chain):
            return None
        return PackedChains(self.problem, self.chain, self.shards)

    def workspace(self) -> AbstractContextManager[Work]:
        """Room for a shard."""
        largest = self.problem.arrays.largest
        return self._works.borrow(lambda: workspace(largest, TreeRoom.of(largest)))

    def radius(self) -> float:
        """A bound from above on the norms of all psi_m(y)."""
        return radius(self.problem)

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
            part = p.slice(begin, stop)
            scores = part.scores_of(working, loss_augmented=True)
            found = self.engine.marginals(part, scores, temperature)
            with self.workspace() as work:
                ell += add_marginals(part.batch, work, found.variables, found.factors, *out)
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
        template_scores(self.features[1], row, w_f, a.factor_block, a.factor_fixed, scores)
        ell = add_chain_marginals(
            p.batch, w_v, chain.pair, chain.plain, scores, temperature, chosen, out[0], counts, values
        )
        # A forbidden joint state has no mass, and -inf times 0 would be NaN.
        ell += np.sum(counts[counts != 0.0] * a.factor_fixed[counts != 0.0])
        blocks = np.zeros(w_f.shape[1])
        np.subtract.at(blocks, a.factor_block[a.factor_block >= 0], counts[a.factor_block >= 0])
        add_one_row(self.features[1], row, out[1], blocks)
        return float(ell)

    def _n_shards(self) -> int:
        """A shard's sum is dense: it must be small beside the work of its examples."""
        p = self.problem
        work = float(2 * p.example_states[-1] * row_entries(p.variable_features) + 3 * p.example_tables[-1])
        return max(1, min(_SHARDS, self.n_examples, round(work / (_SHARE * max(1, self.n_weights)))))


def radius(problem: FactorGraphs) -> float:
    """A bound from above on the norms of all psi_m(y), from those of the feature rows; exact with a single variable."""
    out = np.empty(problem.n_examples)
    sides = [_moves(templates) for templates in (problem.variable_templates, problem.factor_templates)]
    features = problem.variable_features.arrays, problem.factor_features.arrays
    norms = [np.sqrt(one.squared_norms) for one in features]
    _radii(problem.batch, *norms, *(moves for moves, _ in sides), *(disjoint for _, disjoint in sides), out)
    return float(out.max())


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
def _add_expectation(batch: Any, work: Any, m: int, mu_v: Any, mu_f: Any, out_v: Any, out_f: Any) -> float:
    """Add weight_m E psi_m under given marginals of example m to the sums; returns E ell_m."""
    change, index, value = work.change, work.index, work.value
    s, weight = batch.graphs.examples[m].structure, batch.graphs.weight[m]
    n, ell = marginals_plane(batch, work, m, mu_v, mu_f, index, value, 0)
    for e in range(n):
        change[index[e]] = value[e]
    add_side(batch.variables, m, s, out_v, change, weight)
    add_side(batch.factors, m, s, out_f, change, weight)
    for e in range(n):
        change[index[e]] = 0.0
    return ell  # type: ignore[no-any-return]


@kernel
def add_tree_marginals(
    batch: Any,
    w_v: Any,
    w_f: Any,
    schedule: Any,
    work: Any,
    temperature: float,
    chosen: Any,
    out_v: Any,
    out_f: Any,
    values: Any,
) -> float:
    """Add weight_m E psi_m of the chosen examples to out, fill their values; returns the sum of weight_m E ell_m."""
    examples, weight = batch.graphs.examples, batch.graphs.weight
    z, theta_v, theta_f, mu_v, mu_f = work.z, work.theta_v, work.theta_f, work.mu_v, work.mu_f
    total = 0.0
    for k in range(len(chosen)):
        m = chosen[k]
        project_example(batch, m, w_v, w_f, z)
        fill_tables(batch, m, z, theta_v, theta_f)
        values[m] = sum_product_one(
            schedule, work.room, examples[m].structure, theta_v, 0, theta_f, 0, temperature, mu_v, mu_f
        )
        if not np.isfinite(values[m]):
            continue
        values[m] = minus_truth(batch, m, theta_v, theta_f, values[m])
        total += weight[m] * _add_expectation(batch, work, m, mu_v, mu_f, out_v, out_f)
    return total


@kernel
def add_marginals(batch: Any, work: Any, variables: Any, factors: Any, out_v: Any, out_f: Any) -> float:
    """Add weight_m E psi_m under given marginals, in states and tables coordinates; returns the sum of weight_m E ell_m."""
    examples, weight = batch.graphs.examples, batch.graphs.weight
    total = 0.0
    for m in range(len(weight)):
        mu_v = variables[examples[m].states : examples[m + 1].states]
        mu_f = factors[examples[m].tables : examples[m + 1].tables]
        total += weight[m] * _add_expectation(batch, work, m, mu_v, mu_f, out_v, out_f)
    return total


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
def _radii(
    batch: Any, v_norms: Any, f_norms: Any, v_moves: Any, f_moves: Any, v_apart: bool, f_apart: bool, out: Any
) -> None:
    """For each example a bound of |psi|: moves of one template add up in length, those of other blocks at right angles."""
    moved_v, moved_f = np.zeros(len(v_moves)), np.zeros(len(f_moves))
    for m in range(len(out)):
        s = batch.graphs.examples[m].structure
        of_v = _side_radius(batch.variables, m, s, v_norms, v_moves, v_apart, moved_v)
        of_f = _side_radius(batch.factors, m, s, f_norms, f_moves, f_apart, moved_f)
        out[m] = np.sqrt(of_v * of_v + of_f * of_f)


@inner
def _side_radius(side: Any, m: int, s: int, norms: Any, moves: Any, apart: bool, moved: Any) -> float:
    """Bound of one side; `moved` is zero, and is so again afterwards."""
    groups, members, first, row0 = side.groups, side.members, side.first_member[s], side.first_row[m]
    total = 0.0
    for q in range(side.first_group[s], side.first_group[s + 1]):
        begin, end = first + groups[q].first, first + groups[q].last
        for i in range(begin, end):
            moved[members[i].template] += moves[members[i].template]
        length = square = 0.0
        for i in range(begin, end):
            length += moved[members[i].template]
            square += moved[members[i].template] ** 2
            moved[members[i].template] = 0.0
        total += norms[row0 + groups[q].row] * (np.sqrt(square) if apart else length)
    return total

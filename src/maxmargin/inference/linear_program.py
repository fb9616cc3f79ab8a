"""Linear program: the relaxation over the local marginal polytope, for any numbers of states and any arity.

Every variable i has a marginal mu_i over its states and every factor c a marginal mu_c over its joint states:

    max   sum_i theta_i . mu_i + sum_c theta_c . mu_c
    s.t.  sum_k mu_i(k) = 1,   sum_y mu_c(y) = 1                       a distribution per variable and factor
          sum_{y: y_i = k} mu_c(y) = mu_i(k)    for i in scope(c)      they agree; k = 0 follows from the others
          mu >= 0

Labelings are the integral points, so the optimum is an upper bound on the best score (Finley and Joachims 2008,
section 3, who train structural SVMs with it). It is tight on forests. Elsewhere some marginals may be fractional; the
simplex method returns a vertex, and on graphs of binary variables and pairs every vertex is half-integral: marginals
are 0, 1/2 or 1, and an optimal labeling exists that keeps the 0s and 1s (persistence). With more states or larger
factors vertices may have any fractions, and integral parts prove nothing.

Bounds do not lean on the solver's tolerances. For whatever multipliers delta the solver gives to the agreements,

    bound = sum_i max_k [theta_i(k) + sum_c delta_ci(k)] + sum_c max_y [theta_c(y) - sum_i delta_ci(y_i)]

is at least the score of every labeling, and at optimal multipliers it is the value of the program.

A forbidden state (-inf) is a column fixed to 0. The relaxation of an example that has no allowed labeling may still be
feasible, so the rounded labeling may be forbidden; its value is then -inf.

All examples of one structure share one HiGHS model: only costs change, and within a call the (dual) simplex method goes
on from the last basis. Where several vertices are optimal, which one comes back may depend on the examples before it in
the same call; the bound does not. Each call begins from the same basis, so that answers do not depend on earlier calls,
and a run that goes on from a checkpoint has the bits of one that was not interrupted; ``warm=True`` goes on from the last
basis of the last call, which is about twice as fast in training.

With ``clusters="triplets"`` there are marginals of three variables for every triangle, too (triplets.py): a polytope between this
one and that of labelings, and certificates of training ("relaxed") are for it.

A model has a column per state and joint state, a row per variable and factor, and ``sum_{i in c} (K_i - 1)`` more rows
per factor c. On complete graphs of binary labels the number of pivots grows about linearly with the rows, and the time a
little faster.
"""

from __future__ import annotations

import importlib
import threading
from collections import OrderedDict
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array

from maxmargin.errors import DataError, OptionError, TooLargeError
from maxmargin.inference.contract import (
    MapResult,
    Marginals,
    Relaxed,
    check_scores,
    once_per_structures,
    raise_infeasible,
)
from maxmargin.inference.rounding import TOLERANCE, check_rounding, round_marginals
from maxmargin.inference.triplets import Extension, extend
from maxmargin.parallel.threads import pause
from maxmargin.problems.factor_graphs import FactorGraphs, Scores
from maxmargin.problems.layout import offsets

#: A kept model counts as its columns and this many more, since HiGHS has its own overhead.
MODEL_OVERHEAD = 10_000


class LinearProgram:
    """The local-polytope relaxation by the simplex method of HiGHS, rounded to a labeling.

    Models are kept for as long as the structures live; of many, those used last, up to ``limit`` columns in all.

    Parameters
    ----------
    limit : int
        Largest number of columns (states and joint states) of an example.
    rounding : "half-up", "unary", "repair", "random" or "fraction"
        How `maximise` rounds (rounding.py); "repair" may change every variable.
    warm : bool
        Start each program from the basis of the last one, whichever call that was in. That takes about half the time in training,
        but among equally good vertices the answer then depends on earlier calls, so that runs do not resume to the bit.
    clusters : "pairs" or "triplets"
        What marginals there are beside those of the factors: none, or those of every three variables of a triangle, which is
        tighter and takes longer.
    """

    name = "linear_program"
    exact = False
    sequential = True

    def __init__(
        self, limit: int = 2_000_000, rounding: str = "repair", warm: bool = False, clusters: str = "pairs"
    ) -> None:
        self.limit = limit
        self.warm = warm
        self.rounding = check_rounding(rounding)
        if clusters not in ("pairs", "triplets"):
            raise OptionError(f'clusters={clusters!r} is not known; use "pairs" or "triplets".')
        self.clusters = clusters
        self._models = once_per_structures(lambda graphs: _Models(self.clusters == "triplets"))
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[LinearProgram], tuple[int, str, bool, str]]:
        # Models live in C++ and are cheap to build again, so copies start without.
        return type(self), (self.limit, self.rounding, self.warm, self.clusters)

    def refusal(self, graphs: FactorGraphs) -> str | None:
        """Name the first example whose linear program is too large, or that has a structured factor."""
        structured = graphs.refuse_structured(self.name)
        if structured is not None:
            return structured
        n_columns = np.diff(graphs.example_states) + np.diff(graphs.example_tables)
        if self.clusters == "triplets":
            n_columns = n_columns + self._models(graphs).n_added(graphs)[graphs.structure_of]
        over = np.flatnonzero(n_columns > self.limit)
        if len(over) == 0:
            return None
        m = int(over[0])
        return f"Example {graphs.number_of(m)} needs a linear program of {n_columns[m]} columns; at most {self.limit} are tried."

    def relax(self, graphs: FactorGraphs, scores: Scores) -> Relaxed:
        """Solve the relaxation of every example.

        Parameters
        ----------
        graphs : FactorGraphs
        scores : Scores

        Returns
        -------
        Relaxed
            A vertex of the local marginal polytope per example, and upper bounds that hold for every labeling.
        """
        refusal = self.refusal(graphs)
        if refusal is not None:
            raise TooLargeError(refusal)
        scores = check_scores(graphs, scores)
        highs = _highs()
        states, tables = graphs.example_states, graphs.example_tables
        variables, factors = np.empty(len(scores.variables)), np.empty(len(scores.factors))
        bounds = np.empty(graphs.n_examples)
        # A HiGHS model is one solver with one basis: two threads must not use it at once.
        with self._lock:
            models, used = self._models(graphs), set()
            # By structure, so that a model is used for all its examples before another one can push it out.
            for m in np.argsort(graphs.structure_of, kind="stable").tolist():
                pause()
                here = slice(states[m], states[m + 1])
                theta = np.concatenate([scores.variables[here], scores.factors[tables[m] : tables[m + 1]]])
                if not (theta < np.inf).all():
                    raise_infeasible(graphs, scores, m)
                s = int(graphs.structure_of[m])
                model = models.of(s, graphs, highs, self.limit)
                if s not in used and not self.warm:
                    model.reset()
                    used.add(s)
                status = model.solve(theta)
                # The polytope is bounded, so when HiGHS leaves open which of the two it is, it is infeasible.
                if status in (highs.HighsModelStatus.kInfeasible, highs.HighsModelStatus.kUnboundedOrInfeasible):
                    raise_infeasible(graphs, scores, m)
                if status != highs.HighsModelStatus.kOptimal:
                    models.drop(s)
                    number = graphs.number_of(m)
                    raise DataError(
                        f"Example {number}: HiGHS did not solve its linear program; it reports {status.name}.",
                        example=number,
                    )
                variables[here], factors[tables[m] : tables[m + 1]], bounds[m] = model.answer(theta)
        # The simplex method keeps to its bounds up to a tolerance.
        for side in (variables, factors):
            side[np.abs(side) <= TOLERANCE] = 0.0
            side[np.abs(side - 1.0) <= TOLERANCE] = 1.0
        fractional = (variables != 0.0) & (variables != 1.0)
        return Relaxed(variables, bounds, np.logical_or.reduceat(fractional, graphs.state_starts()), factors)

    def maximise(self, graphs: FactorGraphs, scores: Scores) -> MapResult:
        """Round the relaxation; a labeling that comes out forbidden has the value -inf."""
        scores = check_scores(graphs, scores)
        relaxed = self.relax(graphs, scores)
        labels = round_marginals(graphs, scores, relaxed.variables, self.rounding)
        values = graphs.labeling_scores(scores, labels)
        return MapResult(labels, values, np.maximum(relaxed.bounds, values), relaxed.ambiguous)

    def marginals(self, graphs: FactorGraphs, scores: Scores, temperature: float = 1.0) -> Marginals:
        """Refuse: a relaxation has no Gibbs marginals."""
        raise OptionError(
            'The engine "linear_program" has no Gibbs marginals, only those of the best relaxed labeling (`relax`); '
            'use "trees" or "exhaustive".'
        )


def _highs() -> Any:
    """The package highspy, or a sentence."""
    try:
        return importlib.import_module("highspy")
    except ImportError:
        raise OptionError(
            "The engine \"linear_program\" needs highspy, which is not installed: pip install 'maxmargin[lp]'."
        ) from None


class _Models:
    """The models of a batch's structures, those used last. Refers to no array of the batch, so that batches can die."""

    def __init__(self, triplets: bool) -> None:
        self._triplets, self._added = triplets, np.empty(0, np.int64)
        self._kept: OrderedDict[int, _Model] = OrderedDict()

    def n_added(self, graphs: FactorGraphs) -> NDArray[np.int64]:
        """Columns that triplets add to the program of each structure."""
        if not len(self._added):
            n = range(len(graphs.structures))
            self._added = np.array([_triplets(graphs, s)[1].sizes.sum() for s in n], np.int64)
        return self._added

    def of(self, s: int, graphs: FactorGraphs, highs: Any, limit: int) -> _Model:
        """The model of structure s, built if it is not there."""
        if s not in self._kept:
            self._kept[s] = _Model(graphs, s, highs, self._triplets)
            room = limit - sum(one.n_columns + MODEL_OVERHEAD for one in self._kept.values())
            while room < 0 and len(self._kept) > 1:
                _, oldest = self._kept.popitem(last=False)
                room += oldest.n_columns + MODEL_OVERHEAD
        self._kept.move_to_end(s)
        return self._kept[s]

    def drop(self, s: int) -> None:
        """Forget the model of structure s."""
        self._kept.pop(s, None)


class _Model:
    """The linear program of one structure: states and then joint states are columns, in the order of the scores.

    Columns of triplets, which score nothing, come last.
    """

    def __init__(self, graphs: FactorGraphs, s: int, highs: Any, triplets: bool) -> None:
        #: First column of each variable, factor and cluster; the first rows are theirs, in the same order.
        self.starts, self.n_states, self.matrix = _constraints(graphs, s)
        self.n_scores = self.matrix.shape[1]
        if triplets:
            self.starts, self.matrix = _with_triplets(graphs, s, self.starts, self.matrix)
        n_rows, self.n_columns = self.matrix.shape
        self._columns = np.arange(self.n_columns, dtype=np.int32)
        self._forbidden = np.zeros(self.n_columns, bool)
        self._optimal = highs.HighsModelStatus.kOptimal
        right = np.zeros(n_rows)
        right[: len(self.starts)] = 1.0
        lp = highs.HighsLp()
        lp.num_col_, lp.num_row_ = self.n_columns, n_rows
        lp.col_cost_, lp.col_lower_ = np.zeros(self.n_columns), np.zeros(self.n_columns)
        # Marginals are at most 1 without being told.
        lp.col_upper_ = np.full(self.n_columns, np.inf)
        lp.row_lower_ = lp.row_upper_ = right
        lp.a_matrix_.format_ = highs.MatrixFormat.kColwise
        lp.a_matrix_.start_, lp.a_matrix_.index_ = self.matrix.indptr, self.matrix.indices
        lp.a_matrix_.value_ = self.matrix.data
        self._solver = highs.Highs()
        for option, value in (
            ("output_flag", False),
            ("solver", "simplex"),
            ("threads", 1),
            ("primal_feasibility_tolerance", TOLERANCE),
            ("dual_feasibility_tolerance", TOLERANCE),
        ):
            self._solver.setOptionValue(option, value)
        self._solver.passModel(lp)
        self._solver.run()
        self._first = self._solver.getBasis()

    def reset(self) -> None:
        """Forget what was solved before: go on from the basis of the model without scores."""
        self._solver.clearSolver()
        self._solver.setBasis(self._first)

    def solve(self, theta: NDArray[np.float64]) -> Any:
        """Maximise theta . mu from the last basis; return the status."""
        theta = self._padded(theta)
        forbidden = np.isneginf(theta)
        changed = np.flatnonzero(forbidden != self._forbidden).astype(np.int32)
        if len(changed):
            upper = np.where(forbidden[changed], 0.0, np.inf)
            self._solver.changeColsBounds(len(changed), changed, np.zeros(len(changed)), upper)
            self._forbidden = forbidden
        cost = np.where(forbidden, 0.0, -theta)
        # The solver's tolerances are absolute: costs of size 1 make them relative to the scores.
        self._scale = float(np.abs(cost).max(initial=0.0)) or 1.0
        self._solver.changeColsCost(self.n_columns, self._columns, cost / self._scale)
        self._solver.run()
        status = self._solver.getModelStatus()
        if status != self._optimal:
            # A bad basis may be the reason; without one, HiGHS may also presolve.
            self._solver.clearSolver()
            self._solver.run()
            status = self._solver.getModelStatus()
        return status

    def _padded(self, theta: NDArray[np.float64]) -> NDArray[np.float64]:
        return theta if len(theta) == self.n_columns else np.append(theta, np.zeros(self.n_columns - len(theta)))

    def answer(self, theta: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
        """Marginals of the variables' states and the factors' joint states, and the bound that the multipliers prove."""
        solution = self._solver.getSolution()
        # HiGHS minimises, so its multipliers have the other sign. Those of sums to 1 cancel in the bound.
        multipliers = np.array(solution.row_dual) * -self._scale
        multipliers[: len(self.starts)] = 0.0
        reduced = self._padded(theta) - self.matrix.T @ multipliers
        bound = float(np.maximum.reduceat(reduced, self.starts).sum())
        columns = np.array(solution.col_value)
        return columns[: self.n_states], columns[self.n_states : self.n_scores], bound


def _constraints(graphs: FactorGraphs, s: int) -> tuple[NDArray[np.int64], int, Any]:
    """First column of each variable and factor, number of states, and the matrix of structure s."""
    a = graphs.arrays
    v0, f0, v1, f1 = (int(a.structures[k][side]) for k in (s, s + 1) for side in ("variables", "factors"))
    sizes_v = a.variable_kinds[a.variables[v0:v1].template].entries
    template = a.factors[f0:f1].template
    sizes_f, arity = a.factor_kinds[template].entries, a.factor_kinds[template].arity
    n_states, n_simplices = int(sizes_v.sum()), len(sizes_v) + len(sizes_f)
    n_columns = n_states + int(sizes_f.sum())
    starts = np.concatenate([a.variables[v0:v1].table, n_states + a.factors[f0:f1].table])

    # An end is a (factor, variable of its scope); it has a row for each state of the variable but the first.
    factor = np.repeat(np.arange(len(arity)), arity)
    place = np.arange(len(factor)) - offsets(arity)[factor]
    slot = a.slots[a.factor_kinds[template[factor]].slots + place]
    states = slot.states
    first_row = n_simplices + offsets(states - 1)
    variable = a.scope[a.factors[f0:f1].neighbours[factor] + place]
    # Every joint state of the factor at the end, and every state of the variable at the end.
    end, joint = _expand(sizes_f[factor])
    state = joint // slot[end].stride % states[end]
    counted = state > 0
    end, joint, state = end[counted], joint[counted], state[counted]
    own_end, own = _expand(states - 1)
    rows = [
        np.repeat(np.arange(n_simplices), np.concatenate([sizes_v, sizes_f])),
        first_row[end] + state - 1,
        first_row[own_end] + own,
    ]
    columns = [
        np.arange(n_columns),
        starts[len(sizes_v) + factor[end]] + joint,
        starts[variable[own_end]] + own + 1,
    ]
    values = np.concatenate([np.ones(n_columns + len(end)), -np.ones(len(own))])
    matrix = csc_array((values, (np.concatenate(rows), np.concatenate(columns))), shape=(int(first_row[-1]), n_columns))
    return starts, n_states, matrix


def _expand(sizes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The owner and the number inside its owner of every member of pieces of the given sizes."""
    owner = np.repeat(np.arange(len(sizes)), sizes)
    return owner, np.arange(len(owner)) - offsets(sizes)[owner]


def _triplets(graphs: FactorGraphs, s: int) -> tuple[NDArray[np.int64], Extension]:
    """First column of each variable of structure s, and the chords and triplets of its graph."""
    structure, a = graphs.structures[s], graphs.arrays
    v0, f0, v1, f1 = (int(a.structures[k][side]) for k in (s, s + 1) for side in ("variables", "factors"))
    sizes = a.variable_kinds.entries[a.variables.template[v0:v1]]
    first = int(sizes.sum()) + a.factors.table[f0:f1]
    n_columns = int(sizes.sum() + a.factor_kinds.entries[a.factors.template[f0:f1]].sum())
    return a.variables.table[v0:v1], extend(sizes.tolist(), structure.scope_lists(), first.tolist(), n_columns)


def _with_triplets(graphs: FactorGraphs, s: int, starts: NDArray[np.int64], matrix: Any) -> tuple[Any, Any]:
    """The program with chords and triplets: first columns, and the matrix with a sum to 1 for each of them, too."""
    first_of, more = _triplets(graphs, s)
    n_rows, n_columns = matrix.shape
    n_old, n_new = len(starts), len(more.sizes)
    own_starts = n_columns + offsets(more.sizes)[:-1]
    base = matrix.tocoo()
    rows = [np.where(base.row < n_old, base.row, base.row + n_new), n_old + np.repeat(np.arange(n_new), more.sizes)]
    columns = [base.col, n_columns + np.arange(int(more.sizes.sum()))]
    values = [base.data, np.ones(int(more.sizes.sum()))]
    at = n_rows + n_new
    rows.append(at + more.rows)
    columns.append(more.columns)
    values.append(more.values)
    at += more.n_rows
    sizes = np.diff(np.append(starts, n_columns))
    # A chord agrees with its two variables, in all states but the first.
    for (i, j), column in zip(more.chords, more.chord_columns.tolist(), strict=True):
        states = np.indices((sizes[i], sizes[j])).reshape(2, -1)
        for v, of in ((i, states[0]), (j, states[1])):
            counted = np.flatnonzero(of > 0)
            rows += [at + of[counted] - 1, at + np.arange(sizes[v] - 1)]
            columns += [column + counted, first_of[v] + 1 + np.arange(sizes[v] - 1)]
            values += [np.ones(len(counted)), -np.ones(sizes[v] - 1)]
            at += sizes[v] - 1
    shape = (int(at), n_columns + int(more.sizes.sum()))
    made = csc_array((np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))), shape=shape)
    return np.concatenate([starts, own_starts]), made

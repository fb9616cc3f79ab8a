"""The compiled max-oracle of factor graphs: from weights to the plane of one example, inside a loop over examples.

An example's weights are projected onto its statistics (z, statistics.py), tables of scores are filled from z, the engine answers,
and its answer is written as a plane: `index` and `value` among the statistics, and the constant ell. All of it works in a `Work`,
which a caller makes for each call of a kernel (`workspace`).

The oracle is an argument: `TreeOracle`, `CliqueOracle` and `CutOracle` are asked inside the compiled loop, and `Given` has planes
that any engine has found before. Numba compiles a kernel once for each type of oracle that it is called with.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from maxmargin.inference import junction_tree, trees
from maxmargin.inference.clique_tables import OF_FACTOR, MaxRoom, Tree, needs_of
from maxmargin.inference.contract import Engine
from maxmargin.inference.graph_cut import OPEN, CutRoom, Network, polynomial, relaxed_marginals, roof_dual
from maxmargin.inference.trees import Schedule, TreeRoom
from maxmargin.jit import Struct, inner, inner_overload
from maxmargin.problems.factor_graphs import FactorGraphs
from maxmargin.problems.layout import Largest, add_losses, expected_loss, joint_state
from maxmargin.problems.statistics import (
    add_example,
    add_gram_times,
    add_row_products,
    collect,
    plane_of_labels,
    project_example,
    side_of_marginals,
    side_tables,
    statistics_end,
)


class Given(Struct):
    """Planes that an engine found: the k-th is for the k-th example of a visit's order."""

    start: NDArray[np.int64]
    entry: NDArray[Any]
    value: NDArray[np.float64]
    ell: NDArray[np.float64]

    def room(self, largest: Largest) -> Room:
        """None is needed."""
        return Room(0)


NOTHING_GIVEN = Given(np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0), np.empty(0))


class TreeOracle(Struct):
    """The best labeling, by max-product; exact on forests.

    Where it is ``direct``, every factor's table is a run of the statistics themselves (its blocks are consecutive, and it has no
    fixed scores), as in chains: the schedule then points there, and no table is filled. Planes that are ``given`` stand in the
    place of answers.
    """

    schedule: Schedule
    direct: bool
    given: Given = NOTHING_GIVEN

    def room(self, largest: Largest) -> TreeRoom:
        """Room for the messages."""
        return TreeRoom.of(largest)


class CliqueOracle(Struct):
    """The best labeling, by max-product on clique trees; exact.

    Factors whose table is a run of the statistics, as in `TreeOracle`, are read there if all are so. Otherwise the statistics are
    copied to where the other tables are filled, and the trees point into both. ``given`` is as in `TreeOracle`.
    """

    trees: Tree
    #: Of each template whether its tables are filled; empty if none are.
    filled: NDArray[np.bool_]
    #: Entries of the largest clique, and of the messages of an example.
    clique: int
    messages: int
    given: Given = NOTHING_GIVEN

    def room(self, largest: Largest) -> MaxRoom:
        """Room for the messages and the tables."""
        return MaxRoom.of(self.clique, self.messages, largest.buffer + largest.tables if len(self.filled) else 0)


class CutOracle(Struct):
    """The optimum of the local polytope, by a graph cut; for binary variables and pairs. ``given`` is as in `TreeOracle`."""

    network: Network
    given: Given = NOTHING_GIVEN

    def room(self, largest: Largest) -> CutRoom:
        """Room for the flow."""
        return CutRoom.of(largest, self.network)


CompiledOracle: TypeAlias = TreeOracle | CliqueOracle | CutOracle


def compiled_oracle(problem: FactorGraphs, engine: Engine) -> CompiledOracle | None:
    """The oracle of an engine that compiled loops can ask, or None."""
    plan = engine.plan(problem) if hasattr(engine, "plan") else None
    if isinstance(plan, Schedule):
        return tree_oracle(problem, plan)
    if isinstance(plan, Tree):
        return clique_oracle(problem, plan)
    return CutOracle(plan) if isinstance(plan, Network) else None


def tree_oracle(problem: FactorGraphs, plan: Schedule) -> TreeOracle:
    """Max-product on the statistics themselves where every factor's table is a run of them; see `TreeOracle`."""
    runs, a = runs_of_statistics(problem), problem.arrays
    if not len(runs) or not runs.all():
        return TreeOracle(plan, False)
    owner = np.repeat(np.arange(len(problem.structures)), np.diff(a.structures.factors))
    steps = plan.steps.copy()
    by_table = np.argsort(owner * (a.factors.table.max() + 1) + a.factors.table)
    by_step = np.argsort(owner * (steps.table.max() + 1) + steps.table)
    steps.table[by_step] = run_places(problem)[by_table]
    return TreeOracle(plan._replace(steps=steps), True)


def clique_oracle(problem: FactorGraphs, plan: Tree) -> CliqueOracle:
    """Max-product on clique trees that read what they can from the statistics; see `CliqueOracle`."""
    runs, a, needs = runs_of_statistics(problem), problem.arrays, needs_of(problem)
    template = a.factors.template
    filled = np.empty(0, bool) if runs.all() else ~runs
    # A template that is no run has no place; what `run_places` says of it is not read.
    place = np.where(runs[template], run_places(problem), a.largest.buffer + a.factors.table)
    links = plan.links.copy()
    chosen = np.flatnonzero(links.kind == OF_FACTOR)
    links.at[chosen] = place[links.factor[chosen]]
    return CliqueOracle(plan._replace(links=links), filled, needs.clique.max(), needs.messages.max())


def runs_of_statistics(problem: FactorGraphs) -> NDArray[np.bool_]:
    """Of each template whether its factors' tables are runs of an example's statistics, without fixed scores."""
    if len(problem.arrays.factor_scores):
        return np.zeros(len(problem.factor_templates), bool)
    blocks = [one.blocks.ravel() for one in problem.factor_templates]
    return np.array(
        [
            bool((np.diff(own) == 1).all() and own[0] >= 0 and not one.scores.any())
            for own, one in zip(blocks, problem.factor_templates, strict=True)
        ],
        bool,
    )


def run_places(problem: FactorGraphs) -> NDArray[np.int64]:
    """Where the table of each factor of all structures begins among its structure's statistics, if it is a run of them."""
    a = problem.arrays
    group = np.repeat(np.arange(len(a.factor_groups)), a.factor_groups.last - a.factor_groups.first)
    first_block = a.factor_block[a.factor_kinds.start[a.factors.template]]
    place: NDArray[np.int64] = a.factor_groups.at[group] + first_block - a.factor_groups.block[group]
    return place


class Room(Struct):
    """Room for an oracle that needs none."""

    size: int


class Work(Struct):
    """Room for one example at a time."""

    #: In statistics coordinates: weights, K times a plane, and two vectors that are zero between uses.
    z: NDArray[np.float64]
    u: NDArray[np.float64]
    change: NDArray[np.float64]
    tally: NDArray[np.float64]
    touched: NDArray[np.int32]
    #: A plane.
    index: NDArray[np.int32]
    value: NDArray[np.float64]
    #: In states and tables coordinates: scores, marginals, and the truth, which is zero between uses.
    theta_v: NDArray[np.float64]
    theta_f: NDArray[np.float64]
    mu_v: NDArray[np.float64]
    mu_f: NDArray[np.float64]
    truth_v: NDArray[np.float64]
    truth_f: NDArray[np.float64]
    labels: NDArray[np.int32]
    #: Zeros where the rows' Gram matrices are not kept: columns of sparse features, or weights (`RowGrams.room`).
    t_v: NDArray[np.float64]
    t_f: NDArray[np.float64]
    #: What the oracle needs.
    room: Any


def workspace(
    largest: Largest, room: Any = None, shapes: tuple[tuple[int, int], tuple[int, int]] | None = None, planes: int = 1
) -> Work:
    """Room for the largest example, for some planes at a time, and of the shapes that `RowGrams.room` asks for."""
    n, states, tables = 2 * largest.buffer, largest.states, largest.tables
    t_v, t_f = (np.zeros(shape) for shape in shapes or ((0, 0), (0, 0)))
    return Work(
        np.empty(n), np.empty(n), np.zeros(n), np.zeros(n), np.empty(2 * (largest.variables + tables), np.int32),
        np.empty(planes * n, np.int32), np.empty(planes * n), np.empty(states), np.empty(tables), np.empty(states),
        np.empty(tables), np.zeros(states), np.zeros(tables), np.empty(largest.variables, np.int32),
        t_v, t_f, Room(0) if room is None else room,
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------------- kernels


@inner
def gram_times_plane(batch: Any, grams: Any, work: Any, m: int, index: Any, value: Any, begin: int, end: int) -> None:
    """Write K times the plane of the entries from begin to end, in statistics coordinates, into work.u.

    Where the rows' Gram matrices are neither kept nor computed row by row, the plane is written as weights, which are then
    projected onto the example.
    """
    u, dense, start, t_v, t_f = work.u, work.tally, grams.start, work.t_v, work.t_f
    u[:] = 0.0
    if grams.kept or grams.by_row:
        s, half = batch.graphs.examples[m].structure, batch.factors.at
        middle = begin
        while middle < end and index[middle] < half:
            middle += 1
        if grams.by_row:
            add_row_products(batch.variables, m, s, index, value, begin, middle, t_v, u)
            add_row_products(batch.factors, m, s, index, value, middle, end, t_f, u)
            return
        add_gram_times(batch.variables, s, index, value, begin, middle, grams.values, start[m, 0], u)
        add_gram_times(batch.factors, s, index, value, middle, end, grams.values, start[m, 1], u)
        return
    t_v[:] = 0.0
    t_f[:] = 0.0
    for e in range(begin, end):
        dense[index[e]] = value[e]
    add_example(batch, m, dense, 1.0, t_v, t_f)
    project_example(batch, m, t_v, t_f, u)
    for e in range(begin, end):
        dense[index[e]] = 0.0


@inner
def fill_tables(batch: Any, m: int, z: Any, theta_v: Any, theta_f: Any) -> None:
    """Loss-augmented scores of the variables of example m and scores of its factors, from the beginnings of the arrays."""
    variable_tables(batch, m, z, theta_v)
    side_tables(batch.factors, m, batch.graphs.examples[m].structure, z, theta_f)


@inner
def variable_tables(batch: Any, m: int, z: Any, theta_v: Any) -> None:
    """Loss-augmented scores of the variables of example m, from the beginning of theta_v."""
    side_tables(batch.variables, m, batch.graphs.examples[m].structure, z, theta_v)
    add_losses(batch.graphs, m, theta_v, 0)


@inner
def minus_truth(batch: Any, m: int, theta_v: Any, theta_f: Any, value: float) -> float:
    """A value minus the score of the labels of example m under tables that begin at 0."""
    g = batch.graphs
    examples, structures, variables, factors, truth = g.examples, g.structures, g.variables, g.factors, g.labels
    s, first = examples[m].structure, examples[m].variables
    for v in range(examples[m + 1].variables - first):
        value -= theta_v[variables[structures[s].variables + v].table + truth[first + v]]
    c0 = structures[s].factors
    for c in range(c0, c0 + examples[m + 1].factors - examples[m].factors):
        y = joint_state(c, first, factors, g.scope, g.factor_kinds, g.slots, truth)
        value -= theta_f[factors[c].table + y]
    return value


@inner
def _mark_truth(batch: Any, m: int, truth_v: Any, truth_f: Any, mark: float) -> None:
    """Write a number at the states and joint states of the truth of example m."""
    g = batch.graphs
    examples, structures, variables, factors, truth = g.examples, g.structures, g.variables, g.factors, g.labels
    s, first = examples[m].structure, examples[m].variables
    for v in range(examples[m + 1].variables - first):
        truth_v[variables[structures[s].variables + v].table + truth[first + v]] = mark
    c0 = structures[s].factors
    for c in range(c0, c0 + examples[m + 1].factors - examples[m].factors):
        y = joint_state(c, first, factors, g.scope, g.factor_kinds, g.slots, truth)
        truth_f[factors[c].table + y] = mark


@inner
def marginals_plane(
    batch: Any, work: Any, m: int, mu_v: Any, mu_f: Any, index: Any, value: Any, begin: int
) -> tuple[int, float]:
    """The plane of marginals of example m, given from the beginnings of mu_v and mu_f, as `plane_of_labels` writes it."""
    s, truth_v, truth_f, tally = batch.graphs.examples[m].structure, work.truth_v, work.truth_f, work.tally
    ell = expected_loss(batch.graphs, m, mu_v)
    _mark_truth(batch, m, truth_v, truth_f, 1.0)
    ell += side_of_marginals(batch.variables, m, s, mu_v, truth_v, tally)
    ell += side_of_marginals(batch.factors, m, s, mu_f, truth_f, tally)
    _mark_truth(batch, m, truth_v, truth_f, 0.0)
    return collect(tally, index, value, begin), ell


@inner
def copy_plane(given: Any, k: int, index: Any, value: Any, begin: int) -> tuple[int, float]:
    """Copy the k-th plane from index[begin] on; return its number of entries and ell."""
    start, entry, values = given.start, given.entry, given.value
    first, n = start[k], start[k + 1] - start[k]
    for e in range(n):
        index[begin + e], value[begin + e] = entry[first + e], values[first + e]
    return n, given.ell[k]


def _labels_by_trees(oracle: Any, batch: Any, work: Any, m: int) -> None:
    z, theta_v, theta_f, labels, room = work.z, work.theta_v, work.theta_f, work.labels, work.room
    s = batch.graphs.examples[m].structure
    variable_tables(batch, m, z, theta_v)
    if oracle.direct:
        trees.max_product_one(oracle.schedule, room, s, theta_v, 0, z, batch.factors.at, labels, 0)
    else:
        side_tables(batch.factors, m, s, z, theta_f)
        trees.max_product_one(oracle.schedule, room, s, theta_v, 0, theta_f, 0, labels, 0)


def _labels_by_cliques(oracle: Any, batch: Any, work: Any, m: int) -> None:
    z, theta_v, labels, room, scores = work.z, work.theta_v, work.labels, work.room, work.room.scores
    s, half = batch.graphs.examples[m].structure, batch.factors.at
    variable_tables(batch, m, z, theta_v)
    if len(oracle.filled) == 0:
        junction_tree.max_product_one(oracle.trees, room, s, theta_v, 0, z, half, labels, 0)
    else:
        for i in range(statistics_end(batch.factors, s)):
            scores[i] = z[half + i]
        side_tables(batch.factors, m, s, z, scores[half:], oracle.filled)
        junction_tree.max_product_one(oracle.trees, room, s, theta_v, 0, scores, 0, labels, 0)


def best_labels(oracle: Any, batch: Any, work: Any, m: int) -> None:
    """Write the best labeling of example m at work.z, by a `TreeOracle` or a `CliqueOracle`, into work.labels.

    The scores of its variables, with their losses, are left in work.theta_v.
    """
    _LABELERS[type(oracle)](oracle, batch, work, m)


@inner_overload(best_labels)
def _compiled_best_labels(oracle: Any, batch: Any, work: Any, m: int) -> Any:
    return _LABELERS[oracle.instance_class]


_LABELERS: dict[Any, Any] = {TreeOracle: _labels_by_trees, CliqueOracle: _labels_by_cliques}


def _plane_of_best(
    oracle: Any, batch: Any, work: Any, k: int, m: int, index: Any, value: Any, begin: int
) -> tuple[int, float]:
    if len(oracle.given.ell) > 0:
        return copy_plane(oracle.given, k, index, value, begin)  # type: ignore[no-any-return]
    best_labels(oracle, batch, work, m)
    return plane_of_labels(batch, m, work.labels, 0, work.tally, work.touched, index, value, begin)  # type: ignore[no-any-return]


def _plane_by_cuts(
    oracle: Any, batch: Any, work: Any, k: int, m: int, index: Any, value: Any, begin: int
) -> tuple[int, float]:
    if len(oracle.given.ell) > 0:
        return copy_plane(oracle.given, k, index, value, begin)  # type: ignore[no-any-return]
    theta_v, theta_f, labels, net, room = work.theta_v, work.theta_f, work.labels, oracle.network, work.room
    s, state = batch.graphs.examples[m].structure, room.state
    fill_tables(batch, m, work.z, theta_v, theta_f)
    polynomial(net, room, s, theta_v, 0, theta_f, 0)
    roof_dual(net, room, s)
    fractional = False
    for v in range(net.starts[s + 1].variables - net.starts[s].variables):
        fractional = fractional or state[v] == OPEN
        labels[v] = state[v]
    if not fractional:
        return plane_of_labels(batch, m, labels, 0, work.tally, work.touched, index, value, begin)  # type: ignore[no-any-return]
    relaxed_marginals(net, room, s, work.mu_v, 0, work.mu_f, 0)
    return marginals_plane(batch, work, m, work.mu_v, work.mu_f, index, value, begin)  # type: ignore[no-any-return]


def _plane_given(
    oracle: Any, batch: Any, work: Any, k: int, m: int, index: Any, value: Any, begin: int
) -> tuple[int, float]:
    return copy_plane(oracle, k, index, value, begin)  # type: ignore[no-any-return]


def find_plane(
    oracle: Any, batch: Any, work: Any, k: int, m: int, index: Any, value: Any, begin: int
) -> tuple[int, float]:
    """Write the plane of largest slope of example m, the k-th that is visited, at work.z, from index[begin] on.

    Returns its number of entries and ell.
    """
    found: tuple[int, float] = _FINDERS[type(oracle)](oracle, batch, work, k, m, index, value, begin)
    return found


@inner_overload(find_plane)
def _compiled_find_plane(oracle: Any, batch: Any, work: Any, k: int, m: int, index: Any, value: Any, begin: int) -> Any:
    return _FINDERS[oracle.instance_class]


_FINDERS: dict[Any, Any] = {
    TreeOracle: _plane_of_best, CliqueOracle: _plane_of_best, CutOracle: _plane_by_cuts, Given: _plane_given,
}  # fmt: skip

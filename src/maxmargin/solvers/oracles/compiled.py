"""The compiled max-oracle of factor graphs: from weights to the plane of one example, inside a loop over examples.

An example's weights are projected onto its statistics (z, statistics.py), tables of scores are filled from z, the engine answers,
and its answer is written as a plane: `index` and `value` among the statistics, and the constant ell.

The oracle is an argument: `TreeOracle` and `CutOracle` are asked inside the compiled loop, and `Given` holds planes that any engine
has found before. Numba compiles a kernel once for each type of oracle that it is called with.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.inference.graph_cut import (
    N_PAIR,
    N_SINGLE,
    N_VARIABLE,
    OPEN,
    Network,
    polynomial,
    relaxed_tables,
    roof_dual,
    workspace,
)
from maxmargin.inference.trees import Schedule, max_product_one
from maxmargin.jit import Struct, inner, inner_overload
from maxmargin.problems.layout import (
    F_ROW,
    F_TABLE,
    FACTORS,
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
    TABLES,
    V_ROW,
    V_STATE,
    VARIABLES,
    joint_state,
)
from maxmargin.problems.statistics import (
    add_statistics,
    collect,
    plane_of_labels,
    project,
    side_of_marginals,
    side_tables,
    spread,
)


class Given(Struct):
    """Planes that an engine found: the k-th is for the k-th example of a visit's order."""

    start: NDArray[np.int64]
    entry: NDArray[np.int32]
    value: NDArray[np.float64]
    ell: NDArray[np.float64]


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


class CutOracle(Struct):
    """The optimum of the local polytope, by a graph cut; for binary variables and pairs. ``given`` is as in `TreeOracle`."""

    network: Network
    given: Given = NOTHING_GIVEN


@inner
def project_example(
    m: int, s: int, examples: Any, structures: Any, v_groups: Any, f_groups: Any, v_features: Any, f_features: Any, half: int,
    w_v: Any, w_f: Any, z: Any,
) -> None:  # fmt: skip
    """The weights as example m sees them."""
    project(
        v_features, examples[m, V_ROW], v_groups, structures[s, S_VARIABLE_GROUPS], structures[s + 1, S_VARIABLE_GROUPS],
        w_v, z, 0,
    )  # fmt: skip
    project(
        f_features, examples[m, F_ROW], f_groups, structures[s, S_FACTOR_GROUPS], structures[s + 1, S_FACTOR_GROUPS],
        w_f, z, half,
    )  # fmt: skip


@inner
def spread_plane(
    m: int, s: int, begin: int, n: int, index: Any, value: Any, examples: Any, structures: Any, v_groups: Any, f_groups: Any,
    v_features: Any, f_features: Any, half: int, gram_start: Any, row_grams: Any, kept: bool, t_v: Any, t_f: Any, dense: Any,
    u: Any,
) -> None:  # fmt: skip
    """Write K times the plane, in statistics coordinates, into u.

    Where the rows' Gram matrices are not kept, the plane is written as weights t_v, t_f, which are then projected onto the
    example; `dense` is zero, and is so again afterwards.
    """
    u[:] = 0.0
    vq0, vq1 = structures[s, S_VARIABLE_GROUPS], structures[s + 1, S_VARIABLE_GROUPS]
    fq0, fq1 = structures[s, S_FACTOR_GROUPS], structures[s + 1, S_FACTOR_GROUPS]
    if kept:
        spread(index, value, begin, n, 0, half, v_groups, vq0, vq1, row_grams, gram_start[m, 0], u)
        spread(index, value, begin, n, half, 2 * half, f_groups, fq0, fq1, row_grams, gram_start[m, 1], u)
        return
    for e in range(begin, begin + n):
        dense[index[e]] = value[e]
    t_v[:] = 0.0
    t_f[:] = 0.0
    add_statistics(v_features, examples[m, V_ROW], v_groups, vq0, vq1, t_v, dense, 0, 1.0)
    add_statistics(f_features, examples[m, F_ROW], f_groups, fq0, fq1, t_f, dense, half, 1.0)
    project_example(m, s, examples, structures, v_groups, f_groups, v_features, f_features, half, t_v, t_f, u)
    for e in range(begin, begin + n):
        dense[index[e]] = 0.0


@inner
def variable_tables(m: int, s: int, g: Any, z: Any, theta_v: Any) -> None:
    """Loss-augmented scores of the variables of example m, from the beginning of theta_v."""
    examples, structures, losses = g.examples, g.structures, g.losses
    states = examples[m, STATES]
    side_tables(
        structures[s, S_VARIABLE_GROUPS], structures[s + 1, S_VARIABLE_GROUPS], g.variable_groups, structures[s, S_VARIABLES],
        g.variables, g.variable_kinds, g.variable_block, g.variable_fixed, g.variable_scores, states, z, 0, theta_v,
    )  # fmt: skip
    for k in range(examples[m + 1, STATES] - states):
        theta_v[k] += losses[states + k]


@inner
def factor_tables(m: int, s: int, g: Any, half: int, z: Any, theta_f: Any) -> None:
    """Score tables of the factors of example m, from the beginning of theta_f."""
    structures = g.structures
    side_tables(
        structures[s, S_FACTOR_GROUPS], structures[s + 1, S_FACTOR_GROUPS], g.factor_groups, structures[s, S_FACTORS],
        g.factors, g.factor_kinds, g.factor_block, g.factor_fixed, g.factor_scores, g.examples[m, TABLES], z, half, theta_f,
    )  # fmt: skip


@inner
def labels_plane(
    m: int,
    s: int,
    g: Any,
    half: int,
    labels: Any,
    at: int,
    count: Any,
    touched: Any,
    index: Any,
    value: Any,
    begin: int,
    structured: Any = None,
    own_labels: Any = None,
    own_statistics: Any = None,
) -> tuple[int, float]:
    """The plane of the labeling of example m that begins at labels[at]; structured factors are known only if `structured` is."""
    e, st = g.examples, g.structures
    return plane_of_labels(  # type: ignore[no-any-return]
        st[s, S_VARIABLE_GROUPS], st[s + 1, S_VARIABLE_GROUPS], g.variable_groups, st[s, S_FACTOR_GROUPS],
        st[s + 1, S_FACTOR_GROUPS], g.factor_groups, st[s, S_VARIABLES], g.variables, g.variable_kinds, g.variable_block,
        g.variable_fixed, g.variable_scores, e[m, STATES], st[s, S_FACTORS], g.factors, g.factor_kinds, g.factor_block,
        g.factor_fixed, g.factor_scores, e[m, TABLES], g.scope, g.slots, g.losses, half, labels, at, g.labels, e[m, VARIABLES],
        count, touched, index, value, begin, structured, own_labels, own_statistics,
    )  # fmt: skip


@inner
def marginals_plane(
    m: int, s: int, g: Any, half: int, mu: Any, table: Any, truth_v: Any, truth_f: Any, count: Any, index: Any, value: Any,
    begin: int,
) -> tuple[int, float]:  # fmt: skip
    """The plane of marginals of example m, given from the beginning of mu and table; truth_v and truth_f are zero, and stay so."""
    examples, structures, variables, factors = g.examples, g.structures, g.variables, g.factors
    states, tables, first = examples[m, STATES], examples[m, TABLES], examples[m, VARIABLES]
    v0, c0 = structures[s, S_VARIABLES], structures[s, S_FACTORS]
    n, n_factors = examples[m + 1, VARIABLES] - first, examples[m + 1, FACTORS] - examples[m, FACTORS]
    scope, kinds, slots, truth = g.scope, g.factor_kinds, g.slots, g.labels
    for v in range(n):
        truth_v[variables[v0 + v, V_STATE] + truth[first + v]] = 1.0
    for c in range(n_factors):
        truth_f[factors[c0 + c, F_TABLE] + joint_state(c0 + c, first, factors, scope, kinds, slots, truth)] = 1.0
    ell = 0.0
    for k in range(examples[m + 1, STATES] - states):
        if mu[k] > 0.0:
            ell += mu[k] * g.losses[states + k]
    ell += side_of_marginals(
        structures[s, S_VARIABLE_GROUPS], structures[s + 1, S_VARIABLE_GROUPS], g.variable_groups, v0, variables,
        g.variable_kinds, g.variable_block, g.variable_fixed, g.variable_scores, states, mu, truth_v, 0, count,
    )  # fmt: skip
    ell += side_of_marginals(
        structures[s, S_FACTOR_GROUPS], structures[s + 1, S_FACTOR_GROUPS], g.factor_groups, c0, factors, kinds,
        g.factor_block, g.factor_fixed, g.factor_scores, tables, table, truth_f, half, count,
    )  # fmt: skip
    for v in range(n):
        truth_v[variables[v0 + v, V_STATE] + truth[first + v]] = 0.0
    for c in range(n_factors):
        truth_f[factors[c0 + c, F_TABLE] + joint_state(c0 + c, first, factors, scope, kinds, slots, truth)] = 0.0
    return collect(count, 0, 2 * half, index, value, begin), ell


@inner
def copy_plane(given: Any, k: int, index: Any, value: Any, begin: int) -> tuple[int, float]:
    """Copy the k-th plane from index[begin] on; return its number of entries and ell."""
    start, entry, values = given.start, given.entry, given.value
    first, n = start[k], start[k + 1] - start[k]
    for e in range(n):
        index[begin + e], value[begin + e] = entry[first + e], values[first + e]
    return n, given.ell[k]


def _plane_by_trees(
    oracle: Any, room: Any, k: int, m: int, s: int, g: Any, half: int, z: Any, theta_v: Any, theta_f: Any, labels: Any,
    count: Any, touched: Any, index: Any, value: Any, begin: int,
) -> tuple[int, float]:  # fmt: skip
    if len(oracle.given.ell) > 0:
        return copy_plane(oracle.given, k, index, value, begin)  # type: ignore[no-any-return]
    variable_tables(m, s, g, z, theta_v)
    if not oracle.direct:
        factor_tables(m, s, g, half, z, theta_f)
    plan, (up, heard, table, chosen) = oracle.schedule, room
    max_product_one(
        s, g.examples[m + 1, STATES] - g.examples[m, STATES], plan.start, plan.steps, plan.ends, plan.roots,
        theta_v, 0, z if oracle.direct else theta_f, half if oracle.direct else 0, up, heard, table, chosen, labels, 0,
    )  # fmt: skip
    return labels_plane(m, s, g, half, labels, 0, count, touched, index, value, begin)  # type: ignore[no-any-return]


def _plane_by_cuts(
    oracle: Any, room: Any, k: int, m: int, s: int, g: Any, half: int, z: Any, theta_v: Any, theta_f: Any, labels: Any,
    count: Any, touched: Any, index: Any, value: Any, begin: int,
) -> tuple[int, float]:  # fmt: skip
    if len(oracle.given.ell) > 0:
        return copy_plane(oracle.given, k, index, value, begin)  # type: ignore[no-any-return]
    variable_tables(m, s, g, z, theta_v)
    factor_tables(m, s, g, half, z, theta_f)
    net = oracle.network
    starts, pairs, singles = net.starts, net.pairs, net.singles
    linear, state, coupling, (nodes, arcs, residual, excess), mu, table, truth_v, truth_f = room
    n, e0 = g.examples[m + 1, VARIABLES] - g.examples[m, VARIABLES], starts[s, N_PAIR]
    n_pairs = starts[s + 1, N_PAIR] - e0
    polynomial(
        n, 0, 0, starts[s, N_SINGLE], starts[s + 1, N_SINGLE], singles, e0, n_pairs, pairs, theta_v, theta_f, linear, coupling
    )  # fmt: skip
    roof_dual(
        n, e0, n_pairs, pairs, starts[s, N_VARIABLE], net.first_row, linear, coupling, nodes, arcs, residual, excess, state
    )  # fmt: skip
    fractional = False
    for v in range(n):
        fractional = fractional or state[v] == OPEN
        labels[v] = state[v]
    if not fractional:
        return labels_plane(m, s, g, half, labels, 0, count, touched, index, value, begin)  # type: ignore[no-any-return]
    for v in range(n):
        share = 0.5 if state[v] == OPEN else float(state[v])
        mu[2 * v], mu[2 * v + 1] = 1.0 - share, share
    relaxed_tables(
        starts[s, N_SINGLE], starts[s + 1, N_SINGLE], singles, e0, n_pairs, pairs, coupling, mu, 0, table, 0
    )  # fmt: skip
    return marginals_plane(m, s, g, half, mu, table, truth_v, truth_f, count, index, value, begin)  # type: ignore[no-any-return]


def _plane_given(
    oracle: Any, room: Any, k: int, m: int, s: int, g: Any, half: int, z: Any, theta_v: Any, theta_f: Any, labels: Any,
    count: Any, touched: Any, index: Any, value: Any, begin: int,
) -> tuple[int, float]:  # fmt: skip
    return copy_plane(oracle, k, index, value, begin)  # type: ignore[no-any-return]


def find_plane(
    oracle: Any, room: Any, k: int, m: int, s: int, g: Any, half: int, z: Any, theta_v: Any, theta_f: Any, labels: Any,
    count: Any, touched: Any, index: Any, value: Any, begin: int,
) -> tuple[int, float]:  # fmt: skip
    """Write the plane of largest slope from index[begin] on; return its number of entries and ell."""
    by = (
        _plane_by_trees
        if isinstance(oracle, TreeOracle)
        else _plane_by_cuts
        if isinstance(oracle, CutOracle)
        else _plane_given
    )
    return by(oracle, room, k, m, s, g, half, z, theta_v, theta_f, labels, count, touched, index, value, begin)


@inner_overload(find_plane)
def _compiled_find_plane(
    oracle: Any, room: Any, k: int, m: int, s: int, g: Any, half: int, z: Any, theta_v: Any, theta_f: Any, labels: Any,
    count: Any, touched: Any, index: Any, value: Any, begin: int,
) -> Any:  # fmt: skip
    kind = getattr(oracle, "instance_class", None)
    return _plane_by_trees if kind is TreeOracle else _plane_by_cuts if kind is CutOracle else _plane_given


def _room_of_trees(oracle: Any, largest: Any) -> Any:
    return (
        np.empty(largest[L_STATES]),
        np.empty(largest[L_STATES]),
        np.empty(largest[L_TABLE]),
        np.empty(largest[L_DELTAS], np.int64),
    )


def _room_of_cuts(oracle: Any, largest: Any) -> Any:
    return (
        np.empty(largest[L_VARIABLES]),
        np.empty(largest[L_VARIABLES], np.int8),
        np.empty(oracle.network.most_pairs),
        workspace(largest[L_VARIABLES], oracle.network.most_pairs),
        np.empty(largest[L_STATES]),
        np.empty(largest[L_TABLES]),
        np.zeros(largest[L_STATES]),
        np.zeros(largest[L_TABLES]),
    )


def _no_room(oracle: Any, largest: Any) -> Any:
    return np.empty(0)


def oracle_room(oracle: Any, largest: Any) -> Any:
    """Room for an oracle to work in."""
    by = (
        _room_of_trees
        if isinstance(oracle, TreeOracle)
        else _room_of_cuts
        if isinstance(oracle, CutOracle)
        else _no_room
    )
    return by(oracle, largest)


@inner_overload(oracle_room)
def _compiled_oracle_room(oracle: Any, largest: Any) -> Any:
    kind = getattr(oracle, "instance_class", None)
    return _room_of_trees if kind is TreeOracle else _room_of_cuts if kind is CutOracle else _no_room

"""The visits of block-coordinate Frank-Wolfe: look at an example's planes, ask the oracle if they are exhausted, improve the block.

One visit of example m:

1. Project the weights onto the example (z), and read off the slopes v of the planes it has.
2. Cached planes first: if the best of them promises at least ``accept`` of the gap that the oracle last found here, and at least
   ``floor`` (a share of the mean gap), the oracle is not asked (DESIGN section 8).
3. Otherwise the oracle finds the plane of largest slope. Its slope minus the block's mean is the block's duality gap: exactly
   so with an exact oracle, and for the relaxed problem with a relaxed one.
4. Improve the block over its planes (`improve_block`), and write the change of w once.

The oracle is an argument: `TreeOracle` and `CutOracle` are asked inside the compiled loop, and `Given` holds planes that any
engine has found before. Numba compiles `visit_blocks` once for each type of oracle. The kernel returns where it stopped, which is
before the end only if the arena of planes is full.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload
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
from maxmargin.solvers.planes import add_plane, free_slot, improve_block, plane_slopes, write_change

# `counts`: oracle calls, visits without one, crowded blocks.
N_ORACLE, N_CACHED, N_CROWDED = range(3)
# `rules`: 1 / (lam M); share of the last gap and least gain at which a cached plane will do; share of the slope at which a
# block's steps end, and their number; 0 if the oracle is never asked.
R_SCALE, R_ACCEPT, R_FLOOR, R_INNER, R_STEPS, R_ORACLE = range(6)


class Given(NamedTuple):
    """Planes that an engine found: the k-th is for the k-th example of a visit's order."""

    start: NDArray[np.int64]
    entry: NDArray[np.int32]
    value: NDArray[np.float64]
    ell: NDArray[np.float64]


class TreeOracle(NamedTuple):
    """The best labeling, by max-product; exact on forests.

    Where it is ``direct``, every factor's table is a run of the statistics themselves (its blocks are consecutive, and it has no
    fixed scores), as in chains: the schedule then points there, and no table is filled.
    """

    schedule: Schedule
    direct: bool


class CutOracle(NamedTuple):
    """The optimum of the local polytope, by a graph cut; for binary variables and pairs."""

    network: Network


NOTHING_GIVEN = Given(np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0), np.empty(0))


# ------------------------------------------------------------------------------------------------------- kernels


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


def _plane_by_trees(
    oracle: Any, room: Any, k: int, m: int, s: int, g: Any, half: int, z: Any, theta_v: Any, theta_f: Any, labels: Any,
    count: Any, touched: Any, index: Any, value: Any, begin: int,
) -> tuple[int, float]:  # fmt: skip
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
    first, n = oracle.start[k], oracle.start[k + 1] - oracle.start[k]
    for e in range(n):
        index[begin + e], value[begin + e] = oracle.entry[first + e], oracle.value[first + e]
    return n, oracle.ell[k]


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


@overload(find_plane)
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


@overload(oracle_room)
def _compiled_oracle_room(oracle: Any, largest: Any) -> Any:
    kind = getattr(oracle, "instance_class", None)
    return _room_of_trees if kind is TreeOracle else _room_of_cuts if kind is CutOracle else _no_room


@kernel
def visit_blocks(
    g: Any, v_features: Any, f_features: Any, w_v: Any, w_f: Any, oracle: Any, grams: Any, store: Any, order: Any, first: int,
    clock: int, rules: Any, gaps: Any, counts: Any,
) -> tuple[int, float]:  # fmt: skip
    """Visit the examples order[first:]; returns where it stopped, and the gain in M times the dual."""
    examples, structures, v_groups, f_groups, weight = (
        g.examples, g.structures, g.variable_groups, g.factor_groups, g.weight,
    )  # fmt: skip
    count, alpha, ell, start, size, used, gram, index, value, filled = (
        store.n_planes, store.alpha, store.ell, store.start, store.size, store.used, store.gram, store.entry, store.value,
        store.filled,
    )  # fmt: skip
    gram_start, row_grams, kept = grams.start, grams.values, grams.kept
    largest = g.largest
    half, capacity = largest[L_BUFFER], alpha.shape[1]
    z, u, change, tally = np.empty(2 * half), np.empty(2 * half), np.zeros(2 * half), np.zeros(2 * half)
    touched = np.empty(2 * (largest[L_VARIABLES] + largest[L_TABLES]), np.int32)
    v, moved = np.empty(capacity), np.empty(capacity)
    theta_v, theta_f = np.empty(largest[L_STATES]), np.empty(largest[L_TABLES])
    labels = np.empty(largest[L_VARIABLES], np.int32)
    t_v, t_f = np.empty((0 if kept else len(w_v), w_v.shape[1])), np.empty((0 if kept else len(w_f), w_f.shape[1]))
    room = oracle_room(oracle, largest)
    gain = 0.0
    for k in range(first, len(order)):
        m = order[k]
        s, kappa = examples[m, STRUCTURE], rules[R_SCALE] * weight[m]
        project_example(m, s, examples, structures, v_groups, f_groups, v_features, f_features, half, w_v, w_f, z)
        mean, top = plane_slopes(m, count, alpha, ell, start, size, index, value, z, v)
        enough = max(rules[R_ACCEPT] * gaps[m], rules[R_FLOOR])
        if rules[R_ORACLE] > 0.0 and not (top - mean >= enough and top > mean):
            begin = filled[0]
            # A plane has at most an entry for each coordinate.
            if begin + 2 * half > len(index):
                return k, gain
            n, ell_new = find_plane(
                oracle, room, k, m, s, g, half, z, theta_v, theta_f, labels, tally, touched, index, value, begin
            )  # fmt: skip
            slope = ell_new
            for e in range(begin, begin + n):
                slope -= value[e] * z[index[e]]
            counts[N_ORACLE] += 1
            gaps[m] = max(slope, top) - mean
            # What is no better than a plane at hand is that plane, but for rounding.
            if slope > top + 1e-12 * (1.0 + abs(top)):
                slot = free_slot(m, count, alpha, used)
                if slot < 0:
                    counts[N_CROWDED] += 1
                else:
                    spread_plane(
                        m, s, begin, n, index, value, examples, structures, v_groups, f_groups, v_features, f_features, half,
                        gram_start, row_grams, kept, t_v, t_f, change, u,
                    )  # fmt: skip
                    filled[0] = begin + n
                    add_plane(m, slot, ell_new, begin, n, u, count, alpha, ell, start, size, gram, index, value)
                    v[slot] = slope
                    top = slope
        else:
            counts[N_CACHED] += 1
        if top > mean:
            got = improve_block(
                m, count[m], kappa, v, alpha, gram, moved, rules[R_INNER] * (top - mean), int(rules[R_STEPS])
            )
            if got > 0.0:
                gain += weight[m] * got
                write_change(
                    m, count[m], moved, start, size, index, value, change, kappa, s, examples, structures, v_groups, f_groups,
                    v_features, f_features, half, w_v, w_f,
                )  # fmt: skip
            for a in range(count[m]):
                if alpha[m, a] > 0.0:
                    used[m, a] = clock
    return len(order), gain


@kernel
def exhausted(
    g: Any, v_features: Any, f_features: Any, w_v: Any, w_f: Any, store: Any, order: Any, rules: Any, gaps: Any
) -> Any:
    """Which of the examples have no cached plane that is good enough."""
    half = g.largest[L_BUFFER]
    z, v, out = np.empty(2 * half), np.empty(store.alpha.shape[1]), np.empty(len(order), np.bool_)
    for k in range(len(order)):
        m = order[k]
        project_example(
            m, g.examples[m, STRUCTURE], g.examples, g.structures, g.variable_groups, g.factor_groups, v_features, f_features,
            half, w_v, w_f, z,
        )  # fmt: skip
        mean, top = plane_slopes(
            m, store.n_planes, store.alpha, store.ell, store.start, store.size, store.entry, store.value, z, v
        )
        out[k] = not (top - mean >= max(rules[R_ACCEPT] * gaps[m], rules[R_FLOOR]) and top > mean)
    return out


@kernel
def propose(
    g: Any,
    v_features: Any,
    f_features: Any,
    w_v: Any,
    w_f: Any,
    store: Any,
    order: Any,
    rules: Any,
    moved: Any,
    slopes: Any,
) -> None:
    """What each block would do by itself at these weights: the change of its masses, and the slope of M f along it."""
    examples, structures, v_groups, f_groups, weight = (
        g.examples, g.structures, g.variable_groups, g.factor_groups, g.weight,
    )  # fmt: skip
    n_planes, alpha, ell, start, size, gram, entry, value = (
        store.n_planes, store.alpha, store.ell, store.start, store.size, store.gram, store.entry, store.value,
    )  # fmt: skip
    half, capacity = g.largest[L_BUFFER], alpha.shape[1]
    z, v, before, kept = np.empty(2 * half), np.empty(capacity), np.empty(capacity), np.empty(capacity)
    for k in range(len(order)):
        m = order[k]
        s, n = examples[m, STRUCTURE], n_planes[m]
        project_example(m, s, examples, structures, v_groups, f_groups, v_features, f_features, half, w_v, w_f, z)
        mean, top = plane_slopes(m, n_planes, alpha, ell, start, size, entry, value, z, v)
        before[:n] = v[:n]
        kept[:n] = alpha[m, :n]
        improve_block(
            m,
            n,
            rules[R_SCALE] * weight[m],
            v,
            alpha,
            gram,
            moved[k],
            rules[R_INNER] * (top - mean),
            int(rules[R_STEPS]),
        )
        alpha[m, :n] = kept[:n]
        slopes[k] = weight[m] * (moved[k, :n] * before[:n]).sum()

"""Structured factors in `SoftBCFW` (section 5 and appendix D of its paper): one block each, whatever the size of its scope.

The block of a structured factor c is a distribution over its labelings. Of it are kept its mean statistics and its variables'
marginals,

    F_c = E F(y_c) (P numbers, where a table would stand)        mu_c(y_i) for each variable i of the scope (`inside`)

which is all that the objective sees: with theta the scores of its parameters and delta_ci = nu_ci + (mu_c - mu_i) / rho,

    value of a labeling   theta . F(y) - sum_i delta_ci(y_i)
    step from s to y      gamma = (value of y - value of s) / ( |x|^2 / (lam M) |dF|^2 + |dmu|^2 / rho ),  at most the mass of s

where dF adds up the parameters that share a block of weights. y is the factor's own best labeling, by `structured_max`. For s a
few labelings that have mass are remembered (`atoms` and their `mass`), and the rest of the distribution counts as one more:
its mean is what is left of F_c and mu_c when the atoms are taken away. So an atom that has to make room is simply forgotten. With
nothing remembered these are plain Frank-Wolfe steps, which crawl: on 60 random problems (tests/solvers/soft/test_structured.py)
a gap of 1e-4 takes them 130 passes in the median and more than 20,000 at worst; with eight atoms, 39 and 336. (As Algorithm 1 of
the paper they are there all the same, `frank_wolfe_step`: s is then the whole distribution, whose mass is 1.)
To 1 % of a large problem (1000 examples, a budget over 30 labels) the two take equally long.

The labelings of a structured factor are those that the factor and its variables allow: a state that its variable forbids has
score -inf in the oracle. Smooth maxima take smoothing / 2 |mu_c|^2 off the block's part of the dual.

Certificates are in structured_bounds.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.jit import Struct, inner, kernel, record_type, records
from maxmargin.problems.factor_graphs import FactorGraphs
from maxmargin.problems.layout import Largest, local_offsets, offsets
from maxmargin.problems.structured import (
    structured_max,
    structured_score,
    structured_statistics,
)
from maxmargin.problems.templates import TABLE

#: Labelings remembered a factor, and steps on it per sweep, at most; each step asks its oracle.
ATOMS, _STEPS = 8, 2
#: Mass below which the rest of a distribution is left where it is.
_NO_REST = 1e-9

#: `factors`, a row per structured factor of each structure: the factor, where its states and its scope begin among the example's
#: structured factors, and its number among them. `start` (M+1 rows): the same three over all examples.
HELD = record_type("factor", "state", "scope", "number")
START = record_type("state", "scope", "number")


class Held(Struct):
    """Where things are of the structured factors of a batch; what is kept of them is part of the dual point (state.py)."""

    #: First row of `factors` of each structure.
    first: NDArray[np.int64]
    factors: Any
    start: Any


class ScopeRoom(Struct):
    """Room for one structured factor."""

    labels: NDArray[np.int32]
    other: NDArray[np.int32]
    order: NDArray[np.int64]
    work: NDArray[np.float64]
    #: Of its variables' states: scores, max-marginals, and a direction; of its parameters: a direction, and statistics.
    unary: NDArray[np.float64]
    most: NDArray[np.float64]
    d_mu: NDArray[np.float64]
    d_f: NDArray[np.float64]
    spare: NDArray[np.float64]
    #: In statistics coordinates, and zero between uses.
    sums: NDArray[np.float64]

    @classmethod
    def of(cls, largest: Largest) -> ScopeRoom:
        """Room for the largest factor."""
        size = 2 * largest.slots + largest.table + 2
        whole = (np.empty(size, kind) for kind in (np.int32, np.int32, np.int64))
        parts: tuple[Any, ...] = (*whole, *np.empty((6, size)), np.zeros(2 * largest.buffer))
        return cls(*parts)


def hold(graphs: FactorGraphs) -> Held:
    """Find the structured factors of a batch."""
    a = graphs.arrays
    kind = a.factors.template
    chosen = np.flatnonzero(a.factor_kinds[kind].kind != TABLE)
    first = np.searchsorted(chosen, a.structures.factors).astype(np.int64)
    n_states = np.array([sum(one.n_states) for one in graphs.factor_templates], np.int64)[kind[chosen]]
    counts = np.diff(first)
    state, states = local_offsets(n_states, counts)
    scope, scopes = local_offsets(a.factor_kinds[kind[chosen]].arity, counts)
    number, numbers = local_offsets(np.ones_like(chosen), counts)
    local = chosen - np.repeat(a.structures[:-1].factors, counts)
    start = records(START, *(offsets(one[graphs.structure_of]) for one in (states, scopes, numbers)))
    return Held(first, records(HELD, local, state, scope, number), start)


def overlapping(graphs: FactorGraphs) -> bool:
    """Whether some variable is in two structured factors."""
    a = graphs.arrays
    kinds = a.factor_kinds[a.factors.template]
    owner = np.repeat(np.arange(len(graphs.structures)), np.diff(a.structures.factors))
    member = a.scope + np.repeat(a.structures[owner].variables, kinds.arity)
    inside = member[np.repeat(kinds.kind != TABLE, kinds.arity)]
    return len(np.unique(inside)) < len(inside)


# ------------------------------------------------------------------------------------------------------- kernels


@kernel
def hold_truth(g: Any, held: Any, dual: Any) -> None:
    """Every structured factor at the truth: marginals, statistics (in place of a table) and one atom."""
    examples, structures, factors, scope, kinds, slots = (
        g.examples, g.structures, g.factors, g.scope, g.factor_kinds, g.slots,
    )  # fmt: skip
    first, rows, start, inside, mass, atoms = held.first, held.factors, held.start, dual.inside, dual.mass, dual.atoms
    labels, own = g.labels, np.empty(g.largest.slots, np.int32)
    for m in range(len(examples) - 1):
        s = examples[m].structure
        for r in range(first[s], first[s + 1]):
            c = structures[s].factors + rows[r].factor
            t, at = factors[c].template, factors[c].neighbours
            here, atom = start[m].state + rows[r].state, ATOMS * (start[m].scope + rows[r].scope)
            for j in range(kinds[t].arity):
                own[j] = labels[examples[m].variables + scope[at + j]]
                atoms[atom + j] = own[j]
                inside[here + slots[kinds[t].slots + j].delta + own[j]] = 1.0
            mass[start[m].number + rows[r].number, 0] = 1.0
            structured_statistics(t, kinds, slots, g.structured, own, dual.table, examples[m].tables + factors[c].table)


@inner
def sweep_structured(
    batch: Any, held: Any, dual: Any, rules: Any, room: Any, m: int, q: int, own: float, first: bool
) -> None:
    """Improve each structured factor of group q and add its messages to its variables' sums; `first` of the visit's sweeps."""
    g, side, rows = batch.graphs, batch.factors, held.factors
    figures, group, s = room.figures, side.groups[q], g.examples[m].structure
    f0, shift = g.structures[s].factors, side.at + group.at - group.block
    for r in range(held.first[s], held.first[s + 1]):
        if not group.first <= rows[r].factor < group.last:
            continue
        disagreement = _read_scores(batch, held, dual, rules, room, m, r, shift, rules.multipliers and first)
        gap = _improve(batch, held, dual, rules, room, m, r, shift, own)
        if first:
            figures[0] += gap
            figures[1] += disagreement
        add_messages(g, room, s, f0 + rows[r].factor)


@inner
def add_messages(g: Any, room: Any, s: int, c: int) -> None:
    """Add the messages of factor c to its variables' sums."""
    variables, scope, slots, delta, message = g.variables, g.scope, g.slots, room.delta, room.message
    v0, at, slot0 = g.structures[s].variables, g.factors[c].neighbours, g.factor_kinds[g.factors[c].template].slots
    for j in range(g.factors[c].degree):
        state, z = variables[v0 + scope[at + j]].table, slots[slot0 + j].delta
        for k in range(slots[slot0 + j].states):
            message[state + k] += delta[z + k]


@inner
def _read_scores(
    batch: Any, held: Any, dual: Any, rules: Any, room: Any, m: int, r: int, shift: int, move_nu: bool
) -> float:
    """Write the scores of a factor's parameters, its messages and its variables' part of its scores; returns its disagreement."""
    g, side, start = batch.graphs, batch.factors, held.start
    example, row, variables, v_kinds, scope, slots = (
        g.examples[m], held.factors[r], g.variables, g.variable_kinds, g.scope, g.slots,
    )  # fmt: skip
    v_fixed, v_scores, blocks, fixed, scores = g.variable_fixed, g.variable_scores, side.block, side.fixed, side.scores
    mu, nu, inside, z_scores = dual.mu, dual.nu, dual.inside, room.z
    theta, delta, unary = room.value, room.delta, room.structured.unary
    inverse, smoothing, s = 1.0 / rules.rho, rules.smoothing, example.structure
    v0, factor = g.structures[s].variables, side.members[g.structures[s].factors + row.factor]
    kind, tab, msg = side.kinds[factor.template], example.tables + factor.table, example.messages + factor.message
    here, at, slot0, begin = start[m].state + row.state, factor.neighbours, kind.slots, kind.start
    for p in range(kind.entries):
        b = blocks[begin + p]
        theta[p] = fixed[begin + p] + (z_scores[shift + b] if b >= 0 else 0.0)
        if len(scores) > 0:
            theta[p] += scores[tab + p]
    disagreement = 0.0
    for j in range(kind.arity):
        z, v = slots[slot0 + j].delta, v0 + scope[at + j]
        state, own_fixed = example.states + variables[v].table, v_kinds[variables[v].template].start
        base = inside[here + z] - mu[state]
        for k in range(slots[slot0 + j].states):
            gone = inside[here + z + k] - mu[state + k]
            to = gone * inverse
            if k > 0:
                if move_nu:
                    nu[msg + z - j + k - 1] += (gone - base) * inverse
                to += nu[msg + z - j + k - 1]
            delta[z + k] = to
            disagreement += abs(to * gone)
            forbidden = v_fixed[own_fixed + k] == -np.inf or (len(v_scores) > 0 and v_scores[state + k] == -np.inf)
            unary[z + k] = -np.inf if forbidden else -to - smoothing * inside[here + z + k]
    return disagreement


@inner
def _improve(batch: Any, held: Any, dual: Any, rules: Any, room: Any, m: int, r: int, shift: int, own: float) -> float:
    """Up to _STEPS steps on one factor, each towards the best labeling from the worst; returns the gap before them."""
    g, side, start, row, own_room = batch.graphs, batch.factors, held.start, held.factors[r], room.structured
    kinds, slots, blocks, structured = side.kinds, g.slots, side.block, g.structured
    table, inside, mass, theta, delta, z, moved = (
        dual.table, dual.inside, dual.mass, room.value, room.delta, room.z, room.moved,
    )  # fmt: skip
    labels, unary, d_f, d_mu, sums = own_room.labels, own_room.unary, own_room.d_f, own_room.d_mu, own_room.sums
    inverse, smoothing, s = 1.0 / rules.rho, rules.smoothing, g.examples[m].structure
    factor = side.members[g.structures[s].factors + row.factor]
    t, tab, here = factor.template, g.examples[m].tables + factor.table, start[m].state + row.state
    number, atom = start[m].number + row.number, ATOMS * (start[m].scope + row.scope)
    begin, size, last = kinds[t].start, kinds[t].entries, kinds[t].slots + kinds[t].arity - 1
    n_inside = slots[last].delta + slots[last].states
    opening, gap = 0.0, 0.0
    for step_number in range(_STEPS):
        mean = 0.0
        for p in range(size):
            if table[tab + p] != 0.0:
                mean += theta[p] * table[tab + p]
        for i in range(n_inside):
            if inside[here + i] != 0.0:
                mean += unary[i] * inside[here + i]
        worst, low, rest = _worst(g, dual, room, t, number, atom, mean)
        high = structured_max(t, kinds, slots, structured, unary, theta, 0, labels, own_room.work, own_room.order)
        if step_number == 0:
            opening, gap = high - low, high - mean
        if not high - low > 1e-15 or high - low < 0.1 * opening:
            break
        most = _direction(g, dual, own_room, t, tab, here, number, atom, worst, rest)
        # Parameters may share a block, where what moves adds up.
        curvature = 0.0
        for p in range(size):
            if blocks[begin + p] >= 0:
                sums[shift + blocks[begin + p]] += d_f[p]
        for p in range(size):
            if blocks[begin + p] >= 0:
                curvature += own * d_f[p] * sums[shift + blocks[begin + p]]
        for i in range(n_inside):
            curvature += (inverse + smoothing) * d_mu[i] * d_mu[i]
        step = (high - low) / curvature if curvature * most > high - low else most
        for p in range(size):
            table[tab + p] += step * d_f[p]
            b = blocks[begin + p]
            if b >= 0:
                theta[p] -= own * step * sums[shift + b]
                z[shift + b] -= own * step * d_f[p]
                moved[shift + b] += step * d_f[p]
        for p in range(size):
            if blocks[begin + p] >= 0:
                sums[shift + blocks[begin + p]] = 0.0
        for i in range(n_inside):
            inside[here + i] += step * d_mu[i]
            delta[i] += step * inverse * d_mu[i]
            unary[i] -= step * (inverse + smoothing) * d_mu[i]
        if worst < ATOMS:
            mass[number, worst] = mass[number, worst] - step if step < most else 0.0
        _remember(dual, number, atom, kinds[t].arity, labels, step)
    return gap


@inner
def frank_wolfe_step(
    batch: Any, held: Any, dual: Any, rules: Any, room: Any, m: int, r: int, first: int, own: float
) -> float:
    """Move a structured factor towards its best labeling; returns how far, with the change of its blocks, from `first`, in `moved`.

    The scores of its blocks are in z[0:].
    """
    g, side, start, row, own_room = batch.graphs, batch.factors, held.start, held.factors[r], room.structured
    kinds, slots, blocks, table, inside, mass, moved = (
        side.kinds, g.slots, side.block, dual.table, dual.inside, dual.mass, room.moved,
    )  # fmt: skip
    labels, unary, d_f, d_mu, theta = own_room.labels, own_room.unary, own_room.d_f, own_room.d_mu, room.value
    factor = side.members[g.structures[g.examples[m].structure].factors + row.factor]
    t, tab, here = factor.template, g.examples[m].tables + factor.table, start[m].state + row.state
    number, atom = start[m].number + row.number, ATOMS * (start[m].scope + row.scope)
    begin, size, arity, slot0 = kinds[t].start, kinds[t].entries, kinds[t].arity, kinds[t].slots
    n_inside = slots[slot0 + arity - 1].delta + slots[slot0 + arity - 1].states
    _read_scores(batch, held, dual, rules, room, m, r, -first, False)
    ascent = structured_max(t, kinds, slots, g.structured, unary, theta, 0, labels, own_room.work, own_room.order)
    structured_statistics(t, kinds, slots, g.structured, labels, d_f, 0)
    last = first
    for p in range(size):
        if table[tab + p] != 0.0:
            ascent -= theta[p] * table[tab + p]
        last = max(last, blocks[begin + p])
    # Blocks between those that it has are not moved.
    for b in range(last - first + 1):
        moved[b] = 0.0
    for i in range(n_inside):
        if inside[here + i] != 0.0:
            ascent -= unary[i] * inside[here + i]
        d_mu[i] = -inside[here + i]
    if ascent <= 0.0:
        return 0.0
    for j in range(arity):
        d_mu[slots[slot0 + j].delta + labels[j]] += 1.0
    for p in range(size):
        d_f[p] -= table[tab + p]
        if blocks[begin + p] >= 0:
            moved[blocks[begin + p] - first] += d_f[p]
    curvature = 0.0
    for p in range(size):
        if blocks[begin + p] >= 0:
            curvature += own * d_f[p] * moved[blocks[begin + p] - first]
    for i in range(n_inside):
        curvature += d_mu[i] * d_mu[i] / rules.rho
    gamma = min(1.0, ascent / curvature) if curvature > 0.0 else 1.0
    for p in range(size):
        table[tab + p] += gamma * d_f[p]
    for i in range(n_inside):
        inside[here + i] += gamma * d_mu[i]
    for a in range(ATOMS):
        mass[number, a] *= 1.0 - gamma
    _remember(dual, number, atom, arity, labels, gamma)
    return gamma


@inner
def _worst(g: Any, dual: Any, room: Any, t: int, number: int, atom: int, mean: float) -> tuple[int, float, float]:
    """The worst of a factor's atoms and of what is not remembered (ATOMS), its value, and the mass of what is not remembered."""
    kinds, slots, mass, atoms, own = g.factor_kinds, g.slots, dual.mass, dual.atoms, room.structured
    labels, unary, arity, slot0 = own.labels, own.unary, kinds[t].arity, kinds[t].slots
    worst, low, rest, left = -1, np.inf, 1.0, mean
    for a in range(ATOMS):
        if mass[number, a] > 0.0:
            for j in range(arity):
                labels[j] = atoms[atom + a * arity + j]
            value = structured_score(t, kinds, slots, g.structured, room.value, 0, labels, own.work)
            for j in range(arity):
                value += unary[slots[slot0 + j].delta + labels[j]]
            rest -= mass[number, a]
            left -= mass[number, a] * value
            if value < low:
                worst, low = a, value
    if rest > _NO_REST and left / rest < low:
        worst, low = ATOMS, left / rest
    return worst, low, rest


@inner
def _direction(
    g: Any, dual: Any, room: Any, t: int, tab: int, here: int, number: int, atom: int, worst: int, rest: float
) -> float:
    """Write the direction from the worst to the labels at hand into d_f and d_mu; returns the mass of the worst."""
    kinds, slots, mass, table, inside = g.factor_kinds, g.slots, dual.mass, dual.table, dual.inside
    labels, d_f, d_mu, arity, slot0 = room.labels, room.d_f, room.d_mu, kinds[t].arity, kinds[t].slots
    last = slot0 + arity - 1
    n_inside = slots[last].delta + slots[last].states
    structured_statistics(t, kinds, slots, g.structured, labels, d_f, 0)
    for i in range(n_inside):
        d_mu[i] = 0.0
    for j in range(arity):
        d_mu[slots[slot0 + j].delta + labels[j]] = 1.0
    if worst < ATOMS:
        _add_atom(g, room, dual.atoms, atom + worst * arity, t, -1.0)
        return float(mass[number, worst])
    for p in range(kinds[t].entries):
        d_f[p] -= table[tab + p] / rest
    for i in range(n_inside):
        d_mu[i] -= inside[here + i] / rest
    for a in range(ATOMS):
        if mass[number, a] > 0.0:
            _add_atom(g, room, dual.atoms, atom + a * arity, t, mass[number, a] / rest)
    return rest


@inner
def _add_atom(g: Any, room: Any, atoms: Any, atom: int, t: int, scale: float) -> None:
    """Add scale times the statistics and states of an atom to a direction."""
    kinds, slots, other, spare, d_f, d_mu = g.factor_kinds, g.slots, room.other, room.spare, room.d_f, room.d_mu
    for j in range(kinds[t].arity):
        other[j] = atoms[atom + j]
        d_mu[slots[kinds[t].slots + j].delta + other[j]] += scale
    structured_statistics(t, kinds, slots, g.structured, other, spare, 0)
    for p in range(kinds[t].entries):
        d_f[p] += scale * spare[p]


@inner
def _remember(dual: Any, number: int, atom: int, arity: int, labels: Any, step: float) -> None:
    """Give a labeling `step` more mass, in its own place, or in a free one, or in that of the lightest."""
    mass, atoms, place = dual.mass, dual.atoms, 0
    for a in range(ATOMS):
        if mass[number, a] < mass[number, place]:
            place = a
    for a in range(ATOMS):
        if mass[number, a] > 0.0:
            same = True
            for j in range(arity):
                same = same and atoms[atom + a * arity + j] == labels[j]
            if same:
                mass[number, a] += step
                return
    mass[number, place] = step
    for j in range(arity):
        atoms[atom + place * arity + j] = labels[j]

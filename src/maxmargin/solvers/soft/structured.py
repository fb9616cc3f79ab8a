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
a gap of 1e-4 takes them 130 passes in the median and more than 20,000 at worst; with eight atoms, 39 and 336.
To 1 % of a large problem (1000 examples, a budget over 30 labels) the two take equally long.

The labelings of a structured factor are those that the factor and its variables allow: a state that its variable forbids has
score -inf in the oracle. Smooth maxima take smoothing / 2 |mu_c|^2 off the block's part of the dual.

Certificates
------------
Above, a factor's maximum under any messages is its oracle's. `factor_round` improves all messages of one factor at once: with b_i
the beliefs of its variables without it, each gets an equal share of the factor's max-marginals,

    delta_ci(y_i) = 1/n max_{y: y_i} [ theta . F(y) + sum_j b_j(y_j) ] - b_i(y_i)

which is exact where the graph is one factor and its variables, and halves the passes of counts with learned weights.

Below, (F_c, mu_c) is a mixture of labelings, so it is kept, and the variables take their marginals from it (`agreeing`); tables are
then repaired onto those as ever. A variable in two structured factors has two such marginals: unless they agree to 1e-12, its
example counts with its own labels, which is true but leaves the gap open.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.jit import Struct, inner, kernel
from maxmargin.problems.factor_graphs import FactorGraphs
from maxmargin.problems.layout import local_offsets, offsets
from maxmargin.problems.structured import (
    structured_max,
    structured_max_marginals,
    structured_score,
    structured_statistics,
)
from maxmargin.problems.templates import TABLE

#: Labelings remembered a factor, and steps on it per sweep, at most; each step asks its oracle.
ATOMS, _STEPS = 8, 2
#: Mass below which the rest of a distribution is left where it is.
_NO_REST = 1e-9
#: Beliefs as far as this from 0 are of states that some factor forbids.
_DEAD = 1e28

# `factors`, a row per structured factor of each structure: the factor, where its states and its scope begin among the
# example's structured factors, and its number among them. `start` (M+1 rows): the same three over all examples.
H_FACTOR, H_STATE, H_SCOPE, H_NUMBER = range(4)
E_STATE, E_SCOPE, E_NUMBER = range(3)


class Held(Struct):
    """What is kept of the structured factors of a batch."""

    #: First row of `factors` of each structure.
    first: NDArray[np.int64]
    factors: NDArray[np.int64]
    start: NDArray[np.int64]
    #: Marginals of the scopes' states.
    inside: NDArray[np.float64]
    #: (factors, ATOMS).
    mass: NDArray[np.float64]
    #: Labels of each factor's atoms, one atom after the other.
    atoms: NDArray[np.int32]


def hold(graphs: FactorGraphs) -> Held:
    """Room for the structured factors of a batch, all at 0."""
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
    start = np.stack([offsets(one[graphs.structure_of]) for one in (states, scopes, numbers)], axis=1)
    return Held(
        first, np.stack([local, state, scope, number], axis=1), start, np.zeros(start[-1, E_STATE]),
        np.zeros((start[-1, E_NUMBER], ATOMS)), np.zeros(ATOMS * start[-1, E_SCOPE], np.int32),
    )  # fmt: skip


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
def hold_truth(g: Any, held: Any, table: Any) -> None:
    """Every structured factor at the truth: marginals, statistics (into table) and one atom."""
    examples, structures, factors, scope, kinds, slots = (
        g.examples, g.structures, g.factors, g.scope, g.factor_kinds, g.slots,
    )  # fmt: skip
    structured, labels, largest = g.structured, g.labels, g.largest
    first, rows, start, inside, mass, atoms = held.first, held.factors, held.start, held.inside, held.mass, held.atoms
    own = np.empty(largest.slots, np.int32)
    for m in range(len(examples) - 1):
        s = examples[m].structure
        for r in range(first[s], first[s + 1]):
            c = structures[s].factors + rows[r, H_FACTOR]
            t, at = factors[c].template, factors[c].neighbours
            here, atom = start[m, E_STATE] + rows[r, H_STATE], ATOMS * (start[m, E_SCOPE] + rows[r, H_SCOPE])
            for j in range(kinds[t].arity):
                own[j] = labels[examples[m].variables + scope[at + j]]
                atoms[atom + j] = own[j]
                inside[here + slots[kinds[t].slots + j].delta + own[j]] = 1.0
            mass[start[m, E_NUMBER] + rows[r, H_NUMBER], 0] = 1.0
            structured_statistics(t, kinds, slots, structured, own, table, examples[m].tables + factors[c].table)


@inner
def sweep_structured(
    m: int, s: int, example: Any, group: Any, v0: int, f0: int, variables: Any, v_kinds: Any, v_fixed: Any, v_scores: Any,
    factors: Any, scope: Any, kinds: Any, slots: Any, structured: Any, blocks: Any, fixed: Any, scores: Any, own: float, rho: float,
    smoothing: float, measure: bool, move_nu: bool, mu: Any, table: Any, nu: Any, first: Any, rows: Any, start: Any,
    inside: Any, mass: Any, atoms: Any, buffer: Any, moved: Any, message: Any, theta: Any, delta: Any, unary: Any, d_f: Any,
    d_mu: Any, values: Any, sums: Any, spare: Any, labels: Any, other: Any, work: Any, order: Any, figures: Any,
) -> None:  # fmt: skip
    """Improve each structured factor of a group and add its messages to its variables' sums."""
    states = example.states
    inverse, shift = 1.0 / rho, group.at - group.block
    for r in range(first[s], first[s + 1]):
        if not group.first <= rows[r, H_FACTOR] < group.last:
            continue
        c = f0 + rows[r, H_FACTOR]
        t, at, tab = factors[c].template, factors[c].neighbours, example.tables + factors[c].table
        msg, here = example.messages + factors[c].message, start[m, E_STATE] + rows[r, H_STATE]
        begin, size, arity, slot0 = kinds[t].start, kinds[t].entries, kinds[t].arity, kinds[t].slots
        for p in range(size):
            b = blocks[begin + p]
            theta[p] = fixed[begin + p] + (buffer[shift + b] if b >= 0 else 0.0)
            if len(scores) > 0:
                theta[p] += scores[tab + p]
        disagreement = 0.0
        for j in range(arity):
            n_states, z = slots[slot0 + j].states, slots[slot0 + j].delta
            v = v0 + scope[at + j]
            state, own_fixed = states + variables[v].table, v_kinds[variables[v].template].start
            base = inside[here + z] - mu[state]
            for k in range(n_states):
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
        gap = _improve(
            t, tab, here, shift, begin, size, arity, slot0, kinds, slots, structured, blocks, own, inverse, smoothing, table,
            inside, mass, start[m, E_NUMBER] + rows[r, H_NUMBER], atoms, ATOMS * (start[m, E_SCOPE] + rows[r, H_SCOPE]), buffer,
            moved, theta, delta, unary, d_f, d_mu, values, sums, spare, labels, other, work, order,
        )  # fmt: skip
        if measure:
            figures[0] += gap
            figures[1] += disagreement
        for j in range(arity):
            state, z = variables[v0 + scope[at + j]].table, slots[slot0 + j].delta
            for k in range(slots[slot0 + j].states):
                message[state + k] += delta[z + k]


@inner
def _improve(
    t: int, tab: int, here: int, shift: int, begin: int, size: int, arity: int, slot0: int, kinds: Any, slots: Any,
    structured: Any, blocks: Any, own: float, inverse: float, smoothing: float, table: Any, inside: Any, mass: Any, number: int,
    atoms: Any, atom: int, buffer: Any, moved: Any, theta: Any, delta: Any, unary: Any, d_f: Any, d_mu: Any, values: Any,
    sums: Any, spare: Any, labels: Any, other: Any, work: Any, order: Any,
) -> float:  # fmt: skip
    """Up to _STEPS steps on one factor, each towards the best labeling from the worst; returns the gap before them."""
    last = slot0 + arity - 1
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
        # The worst of the atoms, and of what is not remembered (ATOMS).
        worst, low, rest, left = -1, np.inf, 1.0, mean
        for a in range(ATOMS):
            if mass[number, a] > 0.0:
                for j in range(arity):
                    labels[j] = atoms[atom + a * arity + j]
                values[a] = structured_score(t, kinds, slots, structured, theta, 0, labels, work)
                for j in range(arity):
                    values[a] += unary[slots[slot0 + j].delta + labels[j]]
                rest -= mass[number, a]
                left -= mass[number, a] * values[a]
                if values[a] < low:
                    worst, low = a, values[a]
        if rest > _NO_REST and left / rest < low:
            worst, low = ATOMS, left / rest
        high = structured_max(t, kinds, slots, structured, unary, theta, 0, labels, work, order)
        if step_number == 0:
            opening, gap = high - low, high - mean
        if not high - low > 1e-15 or high - low < 0.1 * opening:
            break

        # The direction, from the worst to the labels at hand.
        structured_statistics(t, kinds, slots, structured, labels, d_f, 0)
        for i in range(n_inside):
            d_mu[i] = 0.0
        for j in range(arity):
            d_mu[slots[slot0 + j].delta + labels[j]] = 1.0
        most = rest
        if worst == ATOMS:
            for p in range(size):
                d_f[p] -= table[tab + p] / rest
            for i in range(n_inside):
                d_mu[i] -= inside[here + i] / rest
            for a in range(ATOMS):
                if mass[number, a] > 0.0:
                    _add_atom(
                        t, kinds, slots, structured, arity, slot0, atoms, atom + a * arity, mass[number, a] / rest, size, d_f,
                        d_mu, spare, other,
                    )  # fmt: skip
        else:
            most = mass[number, worst]
            _add_atom(
                t, kinds, slots, structured, arity, slot0, atoms, atom + worst * arity, -1.0, size, d_f, d_mu, spare, other
            )  # fmt: skip
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
                buffer[shift + b] -= own * step * d_f[p]
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
        _remember(number, arity, labels, step, mass, atoms, atom)
    return gap


@inner
def _add_atom(
    t: int, kinds: Any, slots: Any, structured: Any, arity: int, slot0: int, atoms: Any, atom: int, scale: float, size: int,
    d_f: Any, d_mu: Any, spare: Any, other: Any,
) -> None:  # fmt: skip
    """Add scale times the statistics and states of an atom to a direction."""
    for j in range(arity):
        other[j] = atoms[atom + j]
        d_mu[slots[slot0 + j].delta + other[j]] += scale
    structured_statistics(t, kinds, slots, structured, other, spare, 0)
    for p in range(size):
        d_f[p] += scale * spare[p]


@inner
def _remember(number: int, arity: int, labels: Any, step: float, mass: Any, atoms: Any, atom: int) -> None:
    """Give a labeling `step` more mass, in its own place, or in a free one, or in that of the lightest."""
    place = 0
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


@inner
def read_messages(
    c: int, here: int, v0: int, states: int, msg: int, first: int, variables: Any, factors: Any, scope: Any, kinds: Any, slots: Any,
    structured: Any, mu: Any, nu: Any, inside: Any, inverse: float, truth: Any, theta_f: Any, delta: Any, labels: Any, work: Any,
) -> tuple[float, float]:  # fmt: skip
    """Messages nu + (mu_c - mu_i) / rho of a factor, at its place in delta; returns the score of the truth and |delta|^2."""
    t, at, to = factors[c].template, factors[c].neighbours, factors[c].delta
    square = 0.0
    for j in range(kinds[t].arity):
        z = slots[kinds[t].slots + j].delta
        state = states + variables[v0 + scope[at + j]].table
        labels[j] = truth[first + scope[at + j]]
        for k in range(slots[kinds[t].slots + j].states):
            delta[to + z + k] = (inside[here + z + k] - mu[state + k]) * inverse
            if k > 0:
                delta[to + z + k] += nu[msg + z - j + k - 1]
            square += delta[to + z + k] * delta[to + z + k]
    return structured_score(t, kinds, slots, structured, theta_f, factors[c].table, labels, work), square


@inner
def _beliefs_without(
    c: int, v0: int, variables: Any, factors: Any, scope: Any, kinds: Any, slots: Any, incident: Any, theta_v: Any, delta: Any,
    unary: Any,
) -> None:  # fmt: skip
    """The beliefs of a factor's variables but for its own messages; -inf where a state is forbidden elsewhere."""
    t, at, to = factors[c].template, factors[c].neighbours, factors[c].delta
    for j in range(kinds[t].arity):
        z, v = slots[kinds[t].slots + j].delta, v0 + scope[at + j]
        for k in range(slots[kinds[t].slots + j].states):
            belief, dead = theta_v[variables[v].table + k], False
            for e in range(variables[v].neighbours, variables[v].neighbours + variables[v].degree):
                if incident[e].delta != to + z:
                    belief += delta[incident[e].delta + k]
                    dead = dead or abs(delta[incident[e].delta + k]) > _DEAD
            unary[z + k] = -np.inf if dead else belief


@inner
def factor_round(
    c: int, v0: int, variables: Any, factors: Any, scope: Any, kinds: Any, slots: Any, structured: Any, incident: Any, theta_v: Any,
    theta_f: Any, delta: Any, unary: Any, most: Any, labels: Any, work: Any, order: Any,
) -> None:  # fmt: skip
    """Minimise the bound exactly over all messages of one factor."""
    t, to, n = factors[c].template, factors[c].delta, kinds[factors[c].template].arity
    _beliefs_without(c, v0, variables, factors, scope, kinds, slots, incident, theta_v, delta, unary)
    structured_max_marginals(
        t, -1, kinds, slots, structured, unary, theta_f, factors[c].table, most, work, order, labels
    )
    for j in range(n):
        z = slots[kinds[t].slots + j].delta
        end = z + slots[kinds[t].slots + j].states
        least = np.inf
        for i in range(z, end):
            if most[i] > -np.inf:
                least = min(least, most[i])
        for i in range(z, end):
            # A state that this factor forbids altogether need only not be the best; one that is forbidden elsewhere never is.
            if unary[i] > -np.inf:
                delta[to + i] = (most[i] if most[i] > -np.inf else least) / n - unary[i]


@inner
def factor_max(
    c: int, v0: int, variables: Any, factors: Any, scope: Any, kinds: Any, slots: Any, structured: Any, incident: Any, theta_v: Any,
    theta_f: Any, delta: Any, unary: Any, labels: Any, work: Any, order: Any,
) -> float:  # fmt: skip
    """max_y theta . F(y) - sum_i delta_ci(y_i), over the labelings that the variables allow."""
    t, to = factors[c].template, factors[c].delta
    _beliefs_without(c, v0, variables, factors, scope, kinds, slots, incident, theta_v, delta, unary)
    last = kinds[t].slots + kinds[t].arity - 1
    for i in range(slots[last].delta + slots[last].states):
        if unary[i] > -np.inf:
            unary[i] = -delta[to + i]
    return structured_max(t, kinds, slots, structured, unary, theta_f, factors[c].table, labels, work, order)  # type: ignore[no-any-return]


@kernel
def agreeing(g: Any, held: Any, mu: Any, out: Any, usable: Any) -> None:
    """Variables' marginals as the structured factors have them, into out; whether those agree for an example, into usable."""
    examples, structures, variables, factors, scope, kinds, slots = (
        g.examples, g.structures, g.variables, g.factors, g.scope, g.factor_kinds, g.slots,
    )  # fmt: skip
    first, rows, start, inside = held.first, held.factors, held.start, held.inside
    given = np.empty(g.largest.variables, np.bool_)
    out[:] = mu
    usable[:] = True
    for m in range(len(examples) - 1):
        s = examples[m].structure
        given[:] = False
        for r in range(first[s], first[s + 1]):
            c = structures[s].factors + rows[r, H_FACTOR]
            t, at, here = factors[c].template, factors[c].neighbours, start[m, E_STATE] + rows[r, H_STATE]
            for j in range(kinds[t].arity):
                v, z = scope[at + j], here + slots[kinds[t].slots + j].delta
                state = examples[m].states + variables[structures[s].variables + v].table
                for k in range(slots[kinds[t].slots + j].states):
                    if given[v] and abs(out[state + k] - inside[z + k]) > 1e-12:
                        usable[m] = False
                    # Rounding may leave a state without mass a hair below 0.
                    out[state + k] = max(inside[z + k], 0.0)
                given[v] = True


@inner
def disagreement_of(
    c: int, here: int, v0: int, states: int, variables: Any, factors: Any, scope: Any, kinds: Any, slots: Any, mu: Any, inside: Any
) -> float:  # fmt: skip
    """|mu_c(y_i) - mu_i(y_i)|^2 summed over the variables and states of a structured factor."""
    t, at = factors[c].template, factors[c].neighbours
    square = 0.0
    for j in range(kinds[t].arity):
        z = here + slots[kinds[t].slots + j].delta
        state = states + variables[v0 + scope[at + j]].table
        for k in range(slots[kinds[t].slots + j].states):
            square += (inside[z + k] - mu[state + k]) ** 2
    return square


@inner
def change_of_statistics(
    c: int, tab: int, first: int, at: int, low: int, factors: Any, scope: Any, kinds: Any, slots: Any, structured: Any, blocks: Any,
    fixed: Any, scores: Any, truth: Any, table: Any, change: Any, labels: Any, spare: Any,
) -> float:  # fmt: skip
    """Add F(truth) - F_c to change[at - low + block]; returns the fixed score of F_c minus that of the truth."""
    t = factors[c].template
    start, size = kinds[t].start, kinds[t].entries
    for j in range(kinds[t].arity):
        labels[j] = truth[first + scope[factors[c].neighbours + j]]
    structured_statistics(t, kinds, slots, structured, labels, spare, 0)
    linear = 0.0
    for p in range(size):
        d = table[tab + p] - spare[p]
        if d != 0.0:
            linear += d * (fixed[start + p] + (scores[tab + p] if len(scores) > 0 else 0.0))
            if blocks[start + p] >= 0:
                change[at + blocks[start + p] - low] -= d
    return linear

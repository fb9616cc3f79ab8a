"""Graph cuts: the relaxation of pairwise binary problems by maximum flow (roof duality, QPBO).

With x_i in {0, 1} the state of variable i, and xbar_i = 1 - x_i, minus the score is a quadratic polynomial

    E(x) = constant + sum_i c_i x_i + sum_e d_e x_i x_j,     d_e = s_e(0,1) + s_e(1,0) - s_e(0,0) - s_e(1,1)

*Posiform.* Each pair is brought to normal form, in which nothing but the constant is negative,

    d x_i x_j = d/2 (x_i + x_j) + |d|/2 (x_i xbar_j + xbar_i x_j)           if d < 0  (a supermodular score)
    d x_i x_j = d/2 (x_i + x_j) + |d|/2 (x_i x_j + xbar_i xbar_j) - d/2     if d > 0

and then each variable: c x_i if c > 0, else c + |c| xbar_i.

*Doubled graph.* Every literal, x_i and xbar_i, is a node, and is true on the source's side of a cut. A term a u v
becomes the arcs u -> not v and v -> not u, of capacity a; a term a u becomes u -> sink and source -> not u. So the
graph has 2n + 2 nodes, and

    constant + (maximum flow) / 2  =  min of E relaxed to the local polytope  <=  min_x E(x)

This is the roof dual (Boros and Hammer, "Pseudo-Boolean optimization", Discrete Applied Mathematics, 2002; Kolmogorov
and Rother, "Minimizing nonsubmodular functions with graph cuts: a review", PAMI 2007). Two factors on the same pair of
variables are two terms, as they are in the local polytope.

*Half-integrality and strong persistency.* Let R be the nodes that the source still reaches when the flow is largest. R
never holds both literals of a variable. If it holds x_i, then x_i = 1 in every best labeling; if xbar_i, then x_i = 0.

*Weak persistency.* The variables with neither literal in R may be tied. Take the mean of the flow and its mirror image
(u -> v is mirrored by not v -> not u), which is as large, and the strongly connected components of the literals that
are left, along arcs with capacity left. If a component leads to another, the mirror image of the other leads to that of
the first. So with components numbered after all that they lead to, the literals whose component has a smaller number
than their negation's lead only to literals of the same kind: making them true is a minimum cut, and an optimal solution
of the relaxation. These labels and those of R are together part of some best labeling (Boros and Hammer; Kolmogorov and
Rother, section 2.3). Variables with both literals in one component are 1/2 in every optimal solution of the relaxation:
they are *ambiguous*.

*Supermodular examples.* Without a d > 0, the literals xbar_i can be left out: the minimum cut on n + 2 nodes is the
best labeling, and no variable is ambiguous, ties or not.

Conventions
-----------
The two terminals are not stored: `excess` of a node is the residual capacity of its arc from the source, or minus that
of its arc to the sink; no node has both. Node ``side * n + i`` is x_i (side 0) or xbar_i (side 1). The *rows* of a
structure are its (variable, pair factor) incidences, by variable; arc ``side * n_rows + row`` leaves that side's
literal of the row's variable. So the arcs of a node are consecutive, the reverse of an arc is an arc, and an example
changes only which side an arc leads to.

Residual capacities below 1e-12 of the largest capacity count as saturated. Flows are sums and differences of
capacities, and a rounding error left on an arc would decide whether variables look persistent. What is not sent
loosens the bound, and never makes it wrong; labels are persistent up to as much of the score. Where no variable is
ambiguous the labeling is the best one, and the bound is its score, not the flow that equals it but for rounding.

Complexity
----------
Flow along single arcs first; then, on sparse graphs, search trees that grow from both terminals and are kept from path to
path (Boykov and Kolmogorov, "An experimental comparison of min-cut/max-flow algorithms for energy minimization in
vision", PAMI 2004), since on grids most of a search is the same as the one before; on dense graphs, levels (Dinic), where
a phase costs about O(|E|) and a few of them do, while trees would look at all arcs of a node to mend one of them. Measured,
each was the faster one in its place. Components cost O(|E|) of the ambiguous part. Memory is a few
numbers per arc of the largest example. Which variables an arc joins depends on the structure only: computed once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.errors import DataError, OptionError
from maxmargin.inference.contract import (
    MapResult,
    Marginals,
    Relaxed,
    check_scores,
    once_per_structures,
    raise_infeasible,
)
from maxmargin.inference.rounding import HALF_UP, REPAIR, SCHEMES, check_rounding
from maxmargin.jit import Struct, inner, kernel
from maxmargin.problems.factor_graphs import FactorGraphs, Scores
from maxmargin.problems.layout import offsets
from maxmargin.problems.templates import Template

# How sentences call whatever needs binary pairs of finite scores.
WHO = "graph cuts"

# `starts` of Network (one more row than structures): first variable, pair and single of each structure.
N_VARIABLE, N_PAIR, N_SINGLE = range(3)
# `pairs` of Network: the two variables, the table in the example, the factor's rows at the two variables.
PAIR_I, PAIR_J, PAIR_TABLE, PAIR_ROW_I, PAIR_ROW_J = range(5)
# `singles` of Network: the variable, the table in the example.
SINGLE_VARIABLE, SINGLE_TABLE = range(2)
# `rows` of Network: the variable at the other end, the pair; both counted inside the structure.
ROW_OTHER, ROW_PAIR = range(2)

# `nodes`, a row per literal: first arc, the tree it is in, the arc to its parent (or TERMINAL or ORPHAN), when its distance
# to the terminal was measured, that distance, whether it waits in the queue; and two lists that lie along the rows.
FIRST, TREE, PARENT, STAMP, DISTANCE, QUEUED, QUEUE, ORPHANS = range(8)
# The same columns in Dinic's algorithm, and when components are numbered.
_, _, LEVEL, CURSOR, PATH, _, _, _ = range(8)
_, _, ORDER, _, COMPONENT, LOW, CALLS, WAITING = range(8)
FREE, SOURCE, SINK = range(3)
TERMINAL, ORPHAN = -1, -2
FAR = 2**30
NOT_YET, OUTSIDE = -1, -2
# `arcs`: the node it leads to, the arc back.
HEAD, REVERSE = range(2)
# A variable whose state is not decided.
OPEN = -1

# With more arcs a node than this, levels are faster than search trees.
DENSE = 12

# Residuals below this part of the largest capacity are rounding errors; so are gains of the rounding below it.
SATURATED = 1e-12
# A sum of four scores below this part of the largest of them is a rounding error, a few units in the last place of sums
# on the way: the pair has no interaction.
NO_INTERACTION = 4e-15


class Network(Struct):
    """The graphs of all structures, without capacities."""

    starts: NDArray[np.int64]
    #: A row per factor of two variables.
    pairs: NDArray[np.int64]
    #: A row per factor of one variable.
    singles: NDArray[np.int64]
    #: First row of each variable among all structures' rows, and the end of the last.
    first_row: NDArray[np.int64]
    #: A row per (variable, pair), by variable.
    rows: NDArray[np.int64]
    #: The largest number of pairs in a structure.
    most_pairs: int


class GraphCut:
    """Relax by maximum flow: binary variables, factors of one or two of them, finite scores.

    The best labeling of an example comes out if all its pairs are supermodular (``score(0, 0) + score(1, 1) >=
    score(0, 1) + score(1, 0)``), or whenever no variable is ambiguous; ``bounds`` then equals ``values``. Otherwise the
    ambiguous variables are rounded, and ``bounds`` is above the best score.

    Parameters
    ----------
    rounding : "half-up", "unary" or "repair"
        How `maximise` rounds the ambiguous variables (rounding.py). "repair" changes, for as long as that raises the
        score, the ambiguous variable that raises it most.
    """

    name = "graph_cut"
    exact = False

    def __init__(self, rounding: str = "repair") -> None:
        self.rounding = check_rounding(rounding)

    def refusal(self, graphs: FactorGraphs) -> str | None:
        """Name the first example with a variable, a factor or a hard constraint that a cut cannot express."""
        return refusal_of(graphs, binary_faults(graphs), WHO)

    def relax(self, graphs: FactorGraphs, scores: Scores) -> Relaxed:
        """Maximise over the local polytope: marginals of 0, 1/2 and 1, and the value of the relaxation."""
        return self._solve(graphs, scores, True)[0]

    def maximise(self, graphs: FactorGraphs, scores: Scores) -> MapResult:
        """Keep what the relaxation decides, and round the rest."""
        relaxed, labels, values = self._solve(graphs, scores, False)
        return MapResult(labels, values, np.maximum(relaxed.bounds, values), relaxed.ambiguous)

    def marginals(self, graphs: FactorGraphs, scores: Scores, temperature: float = 1.0) -> Marginals:
        """Refuse: a cut says nothing about the Gibbs distribution."""
        raise OptionError("Graph cuts give the best labeling or its relaxation, not marginals; use another engine.")

    def _solve(
        self, graphs: FactorGraphs, scores: Scores, with_tables: bool
    ) -> tuple[Relaxed, NDArray[np.int32], NDArray[np.float64]]:
        """The relaxation, with or without the factors' part of it, the rounded labels and their scores."""
        refusal = self.refusal(graphs)
        if refusal is not None:
            raise DataError(refusal)
        scores = check_scores(graphs, scores)
        check_finite(graphs, scores, WHO)
        n_variables = len(graphs.labels)
        marginals, bounds = np.empty(2 * n_variables), np.empty(graphs.n_examples)
        ambiguous, labels = np.empty(n_variables, np.bool_), np.empty(n_variables, np.int32)
        a = graphs.arrays
        scheme = SCHEMES[self.rounding]
        tables = np.empty(len(scores.factors) if with_tables else 0)
        _relax(a.examples, a.largest, network(graphs), *scores, scheme, marginals, tables, bounds, ambiguous, labels)
        values = graphs.labeling_scores(scores, labels)
        decided = ~np.logical_or.reduceat(ambiguous, graphs.example_variables[:-1])
        bounds[decided] = values[decided]
        return Relaxed(marginals, bounds, ambiguous, tables), labels, values


def refusal_of(graphs: FactorGraphs, faults: dict[int, str], who: str) -> str | None:
    """Name the first example whose structure has a fault, or that has a hard constraint of its own."""
    if faults:
        wrong = np.flatnonzero(np.isin(graphs.structure_of, list(faults)))
        if len(wrong):
            m = int(wrong[0])
            return f"Example {m}: {faults[int(graphs.structure_of[m])]}"
    a = graphs.arrays
    for side, fixed, starts in (
        ("variable", a.variable_scores, graphs.example_states),
        ("factor", a.factor_scores, graphs.example_tables),
    ):
        forbidden = np.flatnonzero(np.isneginf(fixed))
        if len(forbidden):
            m = int(np.searchsorted(starts, forbidden[0], side="right") - 1)
            return f"Example {m}: a {side} has a score of -inf; {who} take finite scores only."
    return None


def check_finite(graphs: FactorGraphs, scores: Scores, who: str) -> None:
    """Refuse the first example that has a score which is not a finite number."""
    first = graphs.n_examples
    for given, starts in ((scores.variables, graphs.example_states), (scores.factors, graphs.example_tables)):
        wrong = np.flatnonzero(~np.isfinite(given))
        if len(wrong):
            first = min(first, int(np.searchsorted(starts, wrong[0], side="right") - 1))
    if first == graphs.n_examples:
        return
    for given, starts in ((scores.variables, graphs.example_states), (scores.factors, graphs.example_tables)):
        values = given[starts[first] : starts[first + 1]]
        if not (np.isfinite(values) | np.isneginf(values)).all():
            raise_infeasible(graphs, scores, first)
    raise DataError(f"Example {first} has a score of -inf; {who} take finite scores only.")


def structure_faults(
    graphs: FactorGraphs, of_variable: Callable[[Template], str | None], of_factor: Callable[[Template], str | None]
) -> dict[int, str]:
    """The first fault of each structure that has one; the callables say what is wrong with a template, or None."""
    wrong_v = [of_variable(t) for t in graphs.variable_templates]
    wrong_f = [of_factor(t) for t in graphs.factor_templates]
    found: dict[int, str] = {}
    for number, s in enumerate(graphs.structures):
        faults = [f"variable {i} {wrong_v[t]}" for i, t in enumerate(s.variable_templates) if wrong_v[t] is not None]
        faults += [f"factor {c} {wrong_f[t]}" for c, t in enumerate(s.factor_templates) if wrong_f[t] is not None]
        if faults:
            found[number] = faults[0]
    return found


@once_per_structures
def binary_faults(graphs: FactorGraphs) -> dict[int, str]:
    """What each structure that a cut cannot express has."""
    infinite = f"has a score of -inf; {WHO} take finite scores only."

    def of_variable(t: Template) -> str | None:
        if t.n_states != (2,):
            return f"has {t.n_states[0]} states; {WHO} take binary variables only."
        return infinite if np.isneginf(t.scores).any() else None

    def of_factor(t: Template) -> str | None:
        if t.arity > 2:
            return f"joins {t.arity} variables; {WHO} take factors of 1 or 2."
        return infinite if np.isneginf(t.scores).any() else None

    return structure_faults(graphs, of_variable, of_factor)


@once_per_structures
def network(graphs: FactorGraphs) -> Network:
    """Which variables the arcs of each structure join; factors of more than two variables are left out."""
    a = graphs.arrays
    n_structures, n_variables = len(a.structures) - 1, len(a.variables)
    arity = a.factor_kinds[a.factors.template].arity
    owner = np.repeat(np.arange(n_structures), np.diff(a.structures.factors))
    first_variable = a.structures.variables

    # A batch may share structures with one that is refused, so other factors are left out, not assumed away.
    pair = np.flatnonzero(arity == 2)
    ends = a.scope[a.factors[pair].neighbours[:, None] + np.arange(2)].reshape(-1, 2)
    at = (ends + first_variable[owner[pair]][:, None]).ravel()
    order = np.argsort(at, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    first_row = offsets(np.bincount(at, minlength=n_variables))
    first_pair = offsets(np.bincount(owner[pair], minlength=n_structures))
    local = place.reshape(-1, 2) - first_row[first_variable[owner[pair]]][:, None]
    rows = np.stack([ends[:, ::-1].ravel(), np.repeat(np.arange(len(pair)) - first_pair[owner[pair]], 2)], axis=1)

    single = np.flatnonzero(arity == 1)
    first_single = offsets(np.bincount(owner[single], minlength=n_structures))
    return Network(
        np.stack([first_variable, first_pair, first_single], axis=1),
        np.stack([ends[:, 0], ends[:, 1], a.factors[pair].table, local[:, 0], local[:, 1]], axis=1),
        np.stack([a.scope[a.factors[single].neighbours], a.factors[single].table], axis=1),
        first_row,
        rows[order],
        int(np.diff(first_pair).max(initial=0)),
    )


# ------------------------------------------------------------------------------------------------------- kernels


@kernel
def _relax(
    examples: Any, largest: Any, net: Any, v_scores: Any, f_scores: Any, scheme: int, marginals: Any, tables: Any, bounds: Any,
    ambiguous: Any, labels: Any,
) -> None:  # fmt: skip
    """Relaxation and rounded labels of every example."""
    starts, pairs, singles, first_row, rows = net.starts, net.pairs, net.singles, net.first_row, net.rows
    linear, state = np.empty(largest.variables), np.empty(largest.variables, np.int8)
    opened, coupling = np.empty(largest.variables, np.int64), np.empty(net.most_pairs)
    nodes, arcs, residual, excess = workspace(largest.variables, net.most_pairs)
    for m in range(len(examples) - 1):
        s, states, first = examples[m].structure, examples[m].states, examples[m].variables
        n, v0, e0 = examples[m + 1].variables - first, starts[s, N_VARIABLE], starts[s, N_PAIR]
        n_pairs = starts[s + 1, N_PAIR] - e0
        constant = polynomial(
            n, states, examples[m].tables, starts[s, N_SINGLE], starts[s + 1, N_SINGLE], singles, e0, n_pairs, pairs,
            v_scores, f_scores, linear, coupling,
        )  # fmt: skip
        least, tiny = roof_dual(
            n, e0, n_pairs, pairs, v0, first_row, linear, coupling, nodes, arcs, residual, excess, state
        )
        bounds[m] = -(constant + least)
        n_open = 0
        for v in range(n):
            share = 0.5 if state[v] == OPEN else float(state[v])
            marginals[states + 2 * v] = 1.0 - share
            marginals[states + 2 * v + 1] = share
            ambiguous[first + v] = state[v] == OPEN
            if state[v] == OPEN:
                opened[n_open] = v
                n_open += 1
                state[v] = 1 if scheme == HALF_UP or v_scores[states + 2 * v] < v_scores[states + 2 * v + 1] else 0
        if len(tables) > 0:
            relaxed_tables(
                starts[s, N_SINGLE], starts[s + 1, N_SINGLE], singles, e0, n_pairs, pairs, coupling, marginals, states, tables,
                examples[m].tables,
            )  # fmt: skip
        if scheme == REPAIR and n_open > 0:
            repair(v0, first_row, rows, linear, coupling, n_open, opened, state, tiny)
        for v in range(n):
            labels[first + v] = state[v]


@inner
def relaxed_tables(
    q0: int, q1: int, singles: Any, e0: int, n_pairs: int, pairs: Any, coupling: Any, mu: Any, states: int, table: Any, tables: int
) -> None:  # fmt: skip
    """Best marginals of the factors, given those of the variables: mu[states:] of one example into table[tables:]."""
    for q in range(q0, q1):
        i, at = states + 2 * singles[q, SINGLE_VARIABLE], tables + singles[q, SINGLE_TABLE]
        table[at], table[at + 1] = mu[i], mu[i + 1]
    for e in range(n_pairs):
        p, q = mu[states + 2 * pairs[e0 + e, PAIR_I] + 1], mu[states + 2 * pairs[e0 + e, PAIR_J] + 1]
        at = tables + pairs[e0 + e, PAIR_TABLE]
        # mu(1, 1) is between these two; the score, minus coupling, says which.
        both = min(p, q) if coupling[e] < 0.0 else max(0.0, p + q - 1.0)
        table[at], table[at + 1], table[at + 2], table[at + 3] = 1.0 - p - q + both, q - both, p - both, both


@inner
def workspace(n: int, n_pairs: int) -> Any:
    """Room for the doubled graph of n variables."""
    return (
        np.empty((2 * n + 1, 8), np.int32),
        np.empty((4 * n_pairs, 2), np.int32),
        np.empty(4 * n_pairs),
        np.empty(2 * n),
    )


@inner
def polynomial(
    n: int, states: int, tables: int, q0: int, q1: int, singles: Any, e0: int, n_pairs: int, pairs: Any, v_scores: Any,
    f_scores: Any, linear: Any, coupling: Any,
) -> float:  # fmt: skip
    """Write minus the score of an example as E(x); returns its constant."""
    constant = 0.0
    for v in range(n):
        constant -= v_scores[states + 2 * v]
        linear[v] = v_scores[states + 2 * v] - v_scores[states + 2 * v + 1]
    for q in range(q0, q1):
        at = tables + singles[q, SINGLE_TABLE]
        constant -= f_scores[at]
        linear[singles[q, SINGLE_VARIABLE]] += f_scores[at] - f_scores[at + 1]
    for e in range(n_pairs):
        at = tables + pairs[e0 + e, PAIR_TABLE]
        s00, s01, s10, s11 = f_scores[at], f_scores[at + 1], f_scores[at + 2], f_scores[at + 3]
        constant -= s00
        linear[pairs[e0 + e, PAIR_I]] += s00 - s10
        linear[pairs[e0 + e, PAIR_J]] += s00 - s01
        coupling[e] = interaction(s00, s01, s10, s11)
    return constant


@inner
def interaction(s00: float, s01: float, s10: float, s11: float) -> float:
    """The coefficient of x_i x_j in minus the score of a pair."""
    d = (s01 + s10) - (s00 + s11)
    return 0.0 if abs(d) <= NO_INTERACTION * max(max(abs(s00), abs(s01)), max(abs(s10), abs(s11))) else d


@inner
def roof_dual(
    n: int, e0: int, n_pairs: int, pairs: Any, v0: int, first_row: Any, linear: Any, coupling: Any, nodes: Any,
    arcs: Any, residual: Any, excess: Any, state: Any,
) -> tuple[float, float]:  # fmt: skip
    """Relax E without its constant; returns the minimum and what counts as 0, and leaves 0, 1 or OPEN in `state`."""
    constant, scale, doubled = 0.0, 0.0, False
    for v in range(n):
        excess[v] = -linear[v]
    for e in range(n_pairs):
        half = 0.5 * coupling[e]
        excess[pairs[e0 + e, PAIR_I]] -= half
        excess[pairs[e0 + e, PAIR_J]] -= half
        if half > 0.0:
            doubled = True
            constant -= half
        scale = max(scale, abs(half))

    sides = 2 if doubled else 1
    row0, n_rows = first_row[v0], 2 * n_pairs
    for v in range(n):
        constant -= max(excess[v], 0.0)
        scale = max(scale, abs(excess[v]))
        nodes[v, FIRST] = first_row[v0 + v] - row0
    if doubled:
        for v in range(n):
            excess[n + v] = -excess[v]
            nodes[n + v, FIRST] = n_rows + nodes[v, FIRST]
    nodes[sides * n, FIRST] = sides * n_rows
    for e in range(n_pairs):
        i, j = pairs[e0 + e, PAIR_I], pairs[e0 + e, PAIR_J]
        at_i, at_j, capacity = pairs[e0 + e, PAIR_ROW_I], pairs[e0 + e, PAIR_ROW_J], 0.5 * abs(coupling[e])
        crosses = 1 if coupling[e] > 0.0 else 0
        for side in range(sides):
            # The normal form is the same seen from either literal and either end, so all four arcs are alike.
            other = side ^ crosses
            one, back = side * n_rows + at_i, other * n_rows + at_j
            arcs[one, HEAD], arcs[back, HEAD] = other * n + j, side * n + i
            arcs[one, REVERSE], arcs[back, REVERSE] = back, one
            residual[one] = capacity
            residual[back] = capacity

    tiny = SATURATED * scale
    flow = max_flow(sides * n, sides * n_rows, nodes, arcs, residual, excess, tiny)
    if not doubled:
        for v in range(n):
            state[v] = 1 if nodes[v, TREE] == SOURCE else 0
        return constant + flow, tiny
    n_open = 0
    for v in range(n):
        one, zero = nodes[v, TREE] == SOURCE, nodes[n + v, TREE] == SOURCE
        state[v] = 1 if one else 0
        if one == zero:
            state[v] = OPEN
            n_open += 1
    if n_open > 0:
        _settle_ties(n, n_rows, nodes, arcs, residual, tiny, state)
    return constant + 0.5 * flow, tiny


@inner
def max_flow(
    n_nodes: int, n_arcs: int, nodes: Any, arcs: Any, residual: Any, excess: Any, tiny: float
) -> float:  # fmt: skip
    """Largest flow from nodes of positive to nodes of negative excess; the source still reaches those in its TREE."""
    flow = 0.0
    # Much of the flow takes one arc, and needs no search.
    for u in range(n_nodes):
        if excess[u] > tiny:
            for arc in range(nodes[u, FIRST], nodes[u + 1, FIRST]):
                v = arcs[arc, HEAD]
                if excess[v] < -tiny and residual[arc] > tiny:
                    amount = min(min(excess[u], -excess[v]), residual[arc])
                    flow += amount
                    excess[u] -= amount
                    excess[v] += amount
                    residual[arc] -= amount
                    residual[arcs[arc, REVERSE]] += amount
                    if excess[u] <= tiny:
                        break
    if n_arcs > DENSE * n_nodes:
        flow += _flow_by_levels(n_nodes, nodes, arcs, residual, excess, tiny)
    else:
        flow += _flow_by_trees(n_nodes, nodes, arcs, residual, excess, tiny)
    return float(flow)


@inner
def _flow_by_levels(n_nodes: int, nodes: Any, arcs: Any, residual: Any, excess: Any, tiny: float) -> float:
    """Dinic's algorithm."""
    flow = 0.0
    while True:
        # Levels: distances from the source, as far as the nearest nodes that lead to the sink.
        n_sources = 0
        for u in range(n_nodes):
            nodes[u, LEVEL] = -1
            if excess[u] > tiny:
                nodes[u, LEVEL] = 0
                nodes[n_sources, QUEUE] = u
                n_sources += 1
        done, reached, target = 0, n_sources, n_nodes
        while done < reached:
            u = nodes[done, QUEUE]
            done += 1
            distance = nodes[u, LEVEL] + 1
            if distance > target:
                break
            for arc in range(nodes[u, FIRST], nodes[u + 1, FIRST]):
                v = arcs[arc, HEAD]
                if nodes[v, LEVEL] < 0 and residual[arc] > tiny:
                    nodes[v, LEVEL] = distance
                    nodes[reached, QUEUE] = v
                    reached += 1
                    if excess[v] < -tiny:
                        target = distance
        if target == n_nodes:
            for u in range(n_nodes):
                nodes[u, TREE] = SOURCE if nodes[u, LEVEL] >= 0 else FREE
            return flow
        for q in range(reached):
            u = nodes[q, QUEUE]
            nodes[u, CURSOR] = nodes[u, FIRST]

        # Blocking flow: paths that go up one level an arc, depth first; an arc found useless is not tried again.
        for q in range(n_sources):
            source = nodes[q, QUEUE]
            u, depth = source, 0
            while True:
                if excess[u] < -tiny:
                    amount = min(excess[source], -excess[u])
                    for d in range(depth):
                        amount = min(amount, residual[nodes[d, PATH]])
                    flow += amount
                    excess[source] -= amount
                    excess[u] += amount
                    keep = depth
                    for d in range(depth - 1, -1, -1):
                        arc = nodes[d, PATH]
                        residual[arc] -= amount
                        residual[arcs[arc, REVERSE]] += amount
                        if residual[arc] <= tiny:
                            keep = d
                    if excess[source] <= tiny:
                        break
                    if keep < depth:
                        depth = keep
                        u = arcs[arcs[nodes[keep, PATH], REVERSE], HEAD]
                    continue
                arc, end, above = nodes[u, CURSOR], nodes[u + 1, FIRST], nodes[u, LEVEL] + 1
                if above > target:
                    arc = end
                while arc < end and not (nodes[arcs[arc, HEAD], LEVEL] == above and residual[arc] > tiny):
                    arc += 1
                nodes[u, CURSOR] = arc
                if arc < end:
                    nodes[depth, PATH] = arc
                    depth += 1
                    u = arcs[arc, HEAD]
                elif depth == 0:
                    break
                else:
                    # A dead end for all other paths of this phase, too.
                    nodes[u, LEVEL] = -1
                    depth -= 1
                    u = arcs[arcs[nodes[depth, PATH], REVERSE], HEAD]
                    nodes[u, CURSOR] += 1


@inner
def _flow_by_trees(n_nodes: int, nodes: Any, arcs: Any, residual: Any, excess: Any, tiny: float) -> float:
    """Boykov and Kolmogorov's algorithm."""
    queued, flow, now = 0, 0.0, 0
    for u in range(n_nodes):
        nodes[u, TREE], nodes[u, QUEUED] = FREE, 0
        if abs(excess[u]) > tiny:
            nodes[u, TREE] = SOURCE if excess[u] > 0.0 else SINK
            nodes[u, PARENT], nodes[u, STAMP], nodes[u, DISTANCE] = TERMINAL, 0, 1
            nodes[queued, QUEUE], nodes[u, QUEUED] = u, 1
            queued += 1
    at = 0
    end = queued if queued < n_nodes else 0
    while queued > 0:
        u = nodes[at, QUEUE]
        at = at + 1 if at + 1 < n_nodes else 0
        queued -= 1
        nodes[u, QUEUED] = 0
        tree = nodes[u, TREE]
        if tree == FREE:
            continue
        for arc in range(nodes[u, FIRST], nodes[u + 1, FIRST]):
            v = arcs[arc, HEAD]
            # Most neighbours have nothing to say, and are told by their own row.
            if nodes[v, TREE] == tree and nodes[v, DISTANCE] <= nodes[u, DISTANCE]:
                continue
            back = arcs[arc, REVERSE]
            forth = arc if tree == SOURCE else back
            # Trees may touch at this arc several times, each time by other ways to the terminals.
            while nodes[v, TREE] == SOURCE + SINK - tree and nodes[u, TREE] == tree and residual[forth] > tiny:
                now += 1
                amount, n_orphans = _augment(forth, nodes, arcs, residual, excess, tiny)
                flow += amount
                done = 0
                while done < n_orphans:
                    orphan = nodes[done, ORPHANS]
                    done += 1
                    if _adopt(orphan, now, nodes, arcs, residual, tiny):
                        continue
                    side = nodes[orphan, TREE]
                    nodes[orphan, TREE] = FREE
                    for a in range(nodes[orphan, FIRST], nodes[orphan + 1, FIRST]):
                        w, b = arcs[a, HEAD], arcs[a, REVERSE]
                        if nodes[w, TREE] != side:
                            continue
                        if nodes[w, QUEUED] == 0 and residual[b if side == SOURCE else a] > tiny:
                            nodes[end, QUEUE], nodes[w, QUEUED] = w, 1
                            end = end + 1 if end + 1 < n_nodes else 0
                            queued += 1
                        if nodes[w, PARENT] == b:
                            nodes[w, PARENT] = ORPHAN
                            nodes[n_orphans, ORPHANS] = w
                            n_orphans += 1
            if nodes[u, TREE] != tree:
                break
            if residual[forth] <= tiny:
                continue
            if nodes[v, TREE] == FREE:
                nodes[v, TREE], nodes[v, PARENT] = tree, back
                nodes[v, STAMP], nodes[v, DISTANCE] = nodes[u, STAMP], nodes[u, DISTANCE] + 1
                if nodes[v, QUEUED] == 0:
                    nodes[end, QUEUE], nodes[v, QUEUED] = v, 1
                    end = end + 1 if end + 1 < n_nodes else 0
                    queued += 1
            elif nodes[v, STAMP] <= nodes[u, STAMP]:
                # Nearer to the terminal this way.
                nodes[v, PARENT] = back
                nodes[v, STAMP], nodes[v, DISTANCE] = nodes[u, STAMP], nodes[u, DISTANCE] + 1
    return flow


@inner
def _augment(middle: int, nodes: Any, arcs: Any, residual: Any, excess: Any, tiny: float) -> tuple[float, int]:
    """Send what fits from the source's tree over the arc to the sink's; returns it, and how many nodes lost parents."""
    amount = residual[middle]
    for side in (SOURCE, SINK):
        u = arcs[arcs[middle, REVERSE] if side == SOURCE else middle, HEAD]
        up = nodes[u, PARENT]
        while up != TERMINAL:
            amount = min(amount, residual[arcs[up, REVERSE] if side == SOURCE else up])
            u = arcs[up, HEAD]
            up = nodes[u, PARENT]
        amount = min(amount, abs(excess[u]))
    n_orphans = 0
    residual[middle] -= amount
    residual[arcs[middle, REVERSE]] += amount
    for side in (SOURCE, SINK):
        u = arcs[arcs[middle, REVERSE] if side == SOURCE else middle, HEAD]
        up = nodes[u, PARENT]
        while up != TERMINAL:
            down = arcs[up, REVERSE]
            used, back = (down, up) if side == SOURCE else (up, down)
            residual[used] -= amount
            residual[back] += amount
            if residual[used] <= tiny:
                nodes[u, PARENT] = ORPHAN
                nodes[n_orphans, ORPHANS] = u
                n_orphans += 1
            u = arcs[up, HEAD]
            up = nodes[u, PARENT]
        excess[u] -= amount if side == SOURCE else -amount
        if abs(excess[u]) <= tiny:
            nodes[u, PARENT] = ORPHAN
            nodes[n_orphans, ORPHANS] = u
            n_orphans += 1
    return amount, n_orphans


@inner
def _adopt(u: int, now: int, nodes: Any, arcs: Any, residual: Any, tiny: float) -> bool:
    """Hang an orphan on the neighbour of its tree that is nearest to the terminal, if there is one."""
    tree, nearest, chosen = nodes[u, TREE], FAR, ORPHAN
    for arc in range(nodes[u, FIRST], nodes[u + 1, FIRST]):
        v = arcs[arc, HEAD]
        if nodes[v, TREE] != tree or residual[arcs[arc, REVERSE] if tree == SOURCE else arc] <= tiny:
            continue
        # Follow the parents up to a node whose distance is known to be of this round, to the terminal, or to an orphan.
        w, length = v, 0
        while nodes[w, STAMP] != now:
            length += 1
            up = nodes[w, PARENT]
            if up == TERMINAL:
                nodes[w, STAMP], nodes[w, DISTANCE] = now, 1
                length -= 1
            elif up == ORPHAN:
                length = FAR
                break
            else:
                w = arcs[up, HEAD]
        if length == FAR:
            continue
        length += nodes[w, DISTANCE]
        if length < nearest:
            nearest, chosen = length, arc
        w = v
        while nodes[w, STAMP] != now:
            nodes[w, STAMP], nodes[w, DISTANCE] = now, length
            length -= 1
            w = arcs[nodes[w, PARENT], HEAD]
    if chosen == ORPHAN:
        return False
    nodes[u, PARENT], nodes[u, STAMP], nodes[u, DISTANCE] = chosen, now, nearest + 1
    return True


@inner
def _settle_ties(n: int, n_rows: int, nodes: Any, arcs: Any, residual: Any, tiny: float, state: Any) -> None:
    """Decide the open variables whose literals lie in different components of what is left of the graph."""
    for v in range(n):
        for u in (v, n + v):
            nodes[u, ORDER], nodes[u, COMPONENT] = 0, NOT_YET if state[v] == OPEN else OUTSIDE
    # Every largest flow leaves the same components; the mean makes them mirror images in rounded numbers, too.
    for u in range(2 * n):
        if nodes[u, COMPONENT] == NOT_YET:
            for arc in range(nodes[u, FIRST], nodes[u + 1, FIRST]):
                back = arcs[arc, REVERSE]
                image = back - n_rows if back >= n_rows else back + n_rows
                if arc < image and nodes[arcs[arc, HEAD], COMPONENT] == NOT_YET:
                    mean = 0.5 * (residual[arc] + residual[image])
                    residual[arc], residual[image] = mean, mean
    _components(2 * n, nodes, arcs, residual, tiny)
    for v in range(n):
        if state[v] == OPEN and nodes[v, COMPONENT] != nodes[n + v, COMPONENT]:
            state[v] = 1 if nodes[v, COMPONENT] < nodes[n + v, COMPONENT] else 0


@inner
def _components(n_nodes: int, nodes: Any, arcs: Any, residual: Any, tiny: float) -> None:
    """Number the strongly connected components, each after all that it leads to (Tarjan's algorithm)."""
    order, n_components, n_waiting = 0, 0, 0
    for root in range(n_nodes):
        if nodes[root, COMPONENT] != NOT_YET:
            continue
        depth = 0
        nodes[0, CALLS] = root
        while depth >= 0:
            u = nodes[depth, CALLS]
            if nodes[u, ORDER] == 0:
                order += 1
                nodes[u, ORDER], nodes[u, LOW], nodes[u, CURSOR] = order, order, nodes[u, FIRST]
                nodes[n_waiting, WAITING] = u
                n_waiting += 1
            arc, end, entered = nodes[u, CURSOR], nodes[u + 1, FIRST], False
            while arc < end:
                v = arcs[arc, HEAD]
                if nodes[v, COMPONENT] == NOT_YET and residual[arc] > tiny:
                    if nodes[v, ORDER] == 0:
                        # The arc is looked at again on the way back, when LOW of v is known.
                        depth += 1
                        nodes[depth, CALLS] = v
                        entered = True
                        break
                    nodes[u, LOW] = min(nodes[u, LOW], nodes[v, LOW])
                arc += 1
            nodes[u, CURSOR] = arc
            if entered:
                continue
            if nodes[u, LOW] == nodes[u, ORDER]:
                v = -1
                while v != u:
                    n_waiting -= 1
                    v = nodes[n_waiting, WAITING]
                    nodes[v, COMPONENT] = n_components
                n_components += 1
            depth -= 1


@inner
def repair(
    v0: int, first_row: Any, rows: Any, field: Any, coupling: Any, n_open: int, opened: Any, state: Any, tiny: float
) -> None:
    """Change the variable that gains most, of those listed, until none gains; field comes in as linear costs of E."""
    for k in range(n_open):
        for r in range(first_row[v0 + opened[k]], first_row[v0 + opened[k] + 1]):
            if state[rows[r, ROW_OTHER]] == 1:
                field[opened[k]] += coupling[rows[r, ROW_PAIR]]
    while True:
        # field is now what x_v = 1 costs in place of 0, given the others.
        best, chosen = tiny, -1
        for k in range(n_open):
            gain = field[opened[k]] if state[opened[k]] == 1 else -field[opened[k]]
            if gain > best:
                best, chosen = gain, opened[k]
        if chosen < 0:
            return
        state[chosen] = 1 - state[chosen]
        sign = 1.0 if state[chosen] == 1 else -1.0
        for r in range(first_row[v0 + chosen], first_row[v0 + chosen + 1]):
            field[rows[r, ROW_OTHER]] += sign * coupling[rows[r, ROW_PAIR]]


@inner
def energy(n: int, e0: int, n_pairs: int, pairs: Any, linear: Any, coupling: Any, state: Any) -> float:
    """E of a labeling, without its constant."""
    total = 0.0
    for v in range(n):
        if state[v] == 1:
            total += linear[v]
    for e in range(n_pairs):
        if state[pairs[e0 + e, PAIR_I]] == 1 and state[pairs[e0 + e, PAIR_J]] == 1:
            total += coupling[e]
    return total

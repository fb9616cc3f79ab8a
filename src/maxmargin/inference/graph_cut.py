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
Node ``side * n + i`` of the flow's graph (max_flow.py) is x_i (side 0) or xbar_i (side 1). The *rows* of a structure are
its (variable, pair factor) incidences, by variable; arc ``side * n_rows + row`` leaves that side's literal of the row's
variable. So an example changes only which side an arc leads to, and which variables an arc joins is computed once for
each structure.

Residual capacities below 1e-12 of the largest capacity count as saturated. Flows are sums and differences of
capacities, and a rounding error left on an arc would decide whether variables look persistent. What is not sent
loosens the bound, and never makes it wrong; labels are persistent up to as much of the score. Where no variable is
ambiguous the labeling is the best one, and the bound is its score, not the flow that equals it but for rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.errors import DataError, OptionError
from maxmargin.inference.contract import (
    Engine,
    MapResult,
    Marginals,
    Relaxed,
    check_refusal,
    check_scores,
    once_per_structures,
    raise_infeasible,
    room_per_structures,
)
from maxmargin.inference.max_flow import NOT_YET, OUTSIDE, SOURCE, Flow, components, flow_kind, max_flow
from maxmargin.inference.rounding import HALF_UP, REPAIR, SCHEMES, check_rounding, throw_coins
from maxmargin.jit import Struct, inner, kernel, record_type, records
from maxmargin.problems.factor_graphs import FactorGraphs, Scores
from maxmargin.problems.layout import Largest, offsets
from maxmargin.problems.templates import Template

# How sentences call whatever needs binary pairs of finite scores.
WHO = "graph cuts"

#: First variable, pair and single of each structure.
START = record_type("variables", "pairs", "singles")
#: A factor of two variables: the two, its table in the example, its rows at the two.
PAIR = record_type("i", "j", "table", "row_i", "row_j")
#: A factor of one variable: the variable, its table in the example.
SINGLE = record_type("variable", "table")
#: An incidence: the variable at the other end, the pair; both counted inside the structure.
ROW = record_type("other", "pair")

# A variable whose state is not decided.
OPEN = -1

# Residuals below this part of the largest capacity are rounding errors; so are gains of the rounding below it.
SATURATED = 1e-12
# A sum of four scores below this part of the largest of them is a rounding error, a few units in the last place of sums
# on the way: the pair has no interaction.
NO_INTERACTION = 4e-15


class Network(Struct):
    """The graphs of all structures, without capacities."""

    #: One more than structures: the last holds the ends.
    starts: Any
    pairs: Any
    singles: Any
    #: First row of each variable among all structures' rows, and the end of the last.
    first_row: NDArray[np.int64]
    rows: Any
    #: The largest number of pairs in a structure.
    most_pairs: int


class CutRoom(Struct):
    """Room for the polynomial of one example, E(x) without its constant, for states of its variables, and for the flow."""

    #: c and d of E.
    linear: NDArray[np.float64]
    coupling: NDArray[np.float64]
    #: 0, 1 or OPEN.
    state: NDArray[np.int8]
    #: A list of variables that were open.
    opened: NDArray[np.int64]
    flow: Flow

    @classmethod
    def of(cls, largest: Largest, net: Network) -> CutRoom:
        """Room for the largest example."""
        n, pairs = largest.variables, net.most_pairs
        # Doubled graphs have twice as many nodes and arcs.
        flow = flow_kind(np.diff(net.starts.variables), 2 * np.diff(net.starts.pairs)).of(2 * n, 4 * pairs)
        return cls(np.empty(n), np.empty(pairs), np.empty(n, np.int8), np.empty(n, np.int64), flow)


class GraphCut:
    """Relax by maximum flow: binary variables, factors of one or two of them, finite scores.

    The best labeling of an example comes out if all its pairs are supermodular (``score(0, 0) + score(1, 1) >=
    score(0, 1) + score(1, 0)``), or whenever no variable is ambiguous; ``bounds`` then equals ``values``. Otherwise the
    ambiguous variables are rounded, and ``bounds`` is above the best score.

    Parameters
    ----------
    rounding : "half-up", "unary", "repair", "random" or "fraction"
        How `maximise` rounds the ambiguous variables (rounding.py). "repair" changes, for as long as that raises the
        score, the ambiguous variable that raises it most.
    """

    name = "graph_cut"
    exact = False
    operations = 20.0

    def __init__(self, rounding: str = "repair") -> None:
        self.rounding = check_rounding(rounding)

    def refusal(self, graphs: FactorGraphs) -> str | None:
        """Name the first example with a variable, a factor or a hard constraint that a cut cannot express."""
        return refusal_of(graphs, binary_faults(graphs), WHO)

    def plan(self, graphs: FactorGraphs) -> Network:
        """The network, by which compiled loops ask about one example.

        Parameters
        ----------
        graphs : FactorGraphs
            The batch.
        """
        return network(graphs)

    def relax(self, graphs: FactorGraphs, scores: Scores) -> Relaxed:
        """Maximise over the local polytope: marginals of 0, 1/2 and 1, and the value of the relaxation.

        Parameters
        ----------
        graphs : FactorGraphs
            The batch.
        scores : Scores
            Tables of scores of its variables and factors.
        """
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
        scores = finite_scores(self, graphs, scores, WHO)
        n, labels = len(graphs.labels), np.empty(len(graphs.labels), np.int32)
        tables = np.empty(len(scores.factors) if with_tables else 0)
        out = Relaxed(np.empty(2 * n), np.empty(graphs.n_examples), np.empty(n, np.bool_), tables)
        with cut_room(graphs) as room:
            _relax(graphs.arrays.examples, network(graphs), room, *scores, SCHEMES[self.rounding], out, labels)
        if self.rounding == "random":
            labels = throw_coins(out.variables, 2 * np.arange(n))
        values = graphs.labeling_scores(scores, labels)
        decided = ~np.logical_or.reduceat(out.ambiguous, graphs.example_variables[:-1])
        out.bounds[decided] = values[decided]
        return out, labels, values


def refusal_of(graphs: FactorGraphs, faults: dict[int, str], who: str) -> str | None:
    """Name the first example whose structure has a fault, or that has a hard constraint of its own."""
    if faults:
        wrong = np.flatnonzero(np.isin(graphs.structure_of, list(faults)))
        if len(wrong):
            m = int(wrong[0])
            return f"Example {graphs.number_of(m)}: {faults[int(graphs.structure_of[m])]}"
    a = graphs.arrays
    for side, fixed, starts in (
        ("variable", a.variable_scores, graphs.example_states),
        ("factor", a.factor_scores, graphs.example_tables),
    ):
        forbidden = np.flatnonzero(np.isneginf(fixed))
        if len(forbidden):
            m = int(np.searchsorted(starts, forbidden[0], side="right") - 1)
            return f"Example {graphs.number_of(m)}: a {side} has a score of -inf; {who} take finite scores only."
    return None


def finite_scores(engine: Engine, graphs: FactorGraphs, scores: Scores, who: str) -> Scores:
    """Score tables as kernels want them; refuse what the engine refuses, and the first example with a score that is not finite."""
    check_refusal(engine, graphs)
    scores, first = check_scores(graphs, scores), graphs.n_examples
    sides = (scores.variables, graphs.example_states), (scores.factors, graphs.example_tables)
    for given, starts in sides:
        wrong = np.flatnonzero(~np.isfinite(given))
        if len(wrong):
            first = min(first, int(np.searchsorted(starts, wrong[0], side="right") - 1))
    if first == graphs.n_examples:
        return scores
    for given, starts in sides:
        values = given[starts[first] : starts[first + 1]]
        if not (np.isfinite(values) | np.isneginf(values)).all():
            raise_infeasible(graphs, scores, first)
    number = graphs.number_of(first)
    raise DataError(f"Example {number} has a score of -inf; {who} take finite scores only.", example=number)


def structure_faults(
    graphs: FactorGraphs, of_variable: Callable[[Template], str | None], of_factor: Callable[[Template], str | None]
) -> dict[int, str]:
    """The first fault of each structure that has one; the callables say what is wrong with a template, or None."""
    wrong_v = [of_variable(t) for t in graphs.variable_templates]
    wrong_f = [of_factor(t) for t in graphs.factor_templates]
    found: dict[int, str] = {}
    for number, s in enumerate(graphs.structures):
        for noun, templates, wrong in (
            ("variable", s.variable_templates, wrong_v),
            ("factor", s.factor_templates, wrong_f),
        ):
            bad = np.isin(templates, [t for t, fault in enumerate(wrong) if fault is not None])
            if bad.any() and number not in found:
                c = int(np.flatnonzero(bad)[0])
                found[number] = f"{noun} {c} {wrong[templates[c]]}"
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
    arity = a.factor_kinds.arity[a.factors.template]
    owner = np.repeat(np.arange(n_structures), np.diff(a.structures.factors))
    first_variable = a.structures.variables

    # A batch may share structures with one that is refused, so other factors are left out, not assumed away.
    pair = np.flatnonzero(arity == 2)
    ends = a.scope[a.factors.neighbours[pair][:, None] + np.arange(2)].reshape(-1, 2)
    at = (ends + first_variable[owner[pair]][:, None]).ravel()
    order = np.argsort(at, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    first_row = offsets(np.bincount(at, minlength=n_variables))
    first_pair = offsets(np.bincount(owner[pair], minlength=n_structures))
    local = place.reshape(-1, 2) - first_row[first_variable[owner[pair]]][:, None]
    number = np.repeat(np.arange(len(pair)) - first_pair[owner[pair]], 2)

    single = np.flatnonzero(arity == 1)
    first_single = offsets(np.bincount(owner[single], minlength=n_structures))
    return Network(
        records(START, first_variable, first_pair, first_single),
        records(PAIR, ends[:, 0], ends[:, 1], a.factors.table[pair], local[:, 0], local[:, 1]),
        records(SINGLE, a.scope[a.factors.neighbours[single]], a.factors.table[single]),
        first_row,
        records(ROW, ends[:, ::-1].ravel()[order], number[order]),
        int(np.diff(first_pair).max(initial=0)),
    )


@room_per_structures
def cut_room(graphs: FactorGraphs) -> CutRoom:
    """Room for any example of the structures."""
    return CutRoom.of(graphs.arrays.largest, network(graphs))


# ------------------------------------------------------------------------------------------------------- kernels


@kernel
def _relax(
    examples: Any, net: Any, room: Any, v_scores: Any, f_scores: Any, scheme: int, out: Any, labels: Any
) -> None:
    """Relaxation and rounded labels of every example; without tables of factors if those of `out` are empty."""
    state, opened, ambiguous = room.state, room.opened, out.ambiguous
    for m in range(len(examples) - 1):
        s, states, tables = examples[m].structure, examples[m].states, examples[m].tables
        first, n = examples[m].variables, examples[m + 1].variables - examples[m].variables
        constant = polynomial(net, room, s, v_scores, states, f_scores, tables)
        least, tiny = roof_dual(net, room, s)
        out.bounds[m] = -(constant + least)
        relaxed_marginals(net, room, s, out.variables, states, out.factors, tables)
        n_open = 0
        for v in range(n):
            ambiguous[first + v] = state[v] == OPEN
            if state[v] == OPEN:
                opened[n_open] = v
                n_open += 1
                state[v] = 1 if scheme == HALF_UP or v_scores[states + 2 * v] < v_scores[states + 2 * v + 1] else 0
        if scheme == REPAIR and n_open > 0:
            repair(net, room, s, n_open, tiny)
        for v in range(n):
            labels[first + v] = state[v]


@inner
def polynomial(net: Any, room: Any, s: int, v_scores: Any, v_at: int, f_scores: Any, f_at: int) -> float:
    """Write minus the score of an example of structure s as E(x); returns its constant.

    The example's scores of variables begin at v_scores[v_at], those of its factors at f_scores[f_at].
    """
    starts, pairs, singles, linear, coupling = net.starts, net.pairs, net.singles, room.linear, room.coupling
    constant, e0 = 0.0, starts[s].pairs
    for v in range(starts[s + 1].variables - starts[s].variables):
        constant -= v_scores[v_at + 2 * v]
        linear[v] = v_scores[v_at + 2 * v] - v_scores[v_at + 2 * v + 1]
    for q in range(starts[s].singles, starts[s + 1].singles):
        at = f_at + singles[q].table
        constant -= f_scores[at]
        linear[singles[q].variable] += f_scores[at] - f_scores[at + 1]
    for e in range(e0, starts[s + 1].pairs):
        at = f_at + pairs[e].table
        s00, s01, s10, s11 = f_scores[at], f_scores[at + 1], f_scores[at + 2], f_scores[at + 3]
        constant -= s00
        linear[pairs[e].i] += s00 - s10
        linear[pairs[e].j] += s00 - s01
        coupling[e - e0] = interaction(s00, s01, s10, s11)
    return constant


@inner
def interaction(s00: float, s01: float, s10: float, s11: float) -> float:
    """The coefficient of x_i x_j in minus the score of a pair."""
    d = (s01 + s10) - (s00 + s11)
    return 0.0 if abs(d) <= NO_INTERACTION * max(max(abs(s00), abs(s01)), max(abs(s10), abs(s11))) else d


@inner
def relaxed_marginals(net: Any, room: Any, s: int, mu: Any, v_at: int, table: Any, f_at: int) -> None:
    """Marginals of the variables in mu[v_at:], by their states, and the best ones of the factors, if table is not empty."""
    starts, pairs, singles, state, coupling = net.starts, net.pairs, net.singles, room.state, room.coupling
    for v in range(starts[s + 1].variables - starts[s].variables):
        share = 0.5 if state[v] == OPEN else float(state[v])
        mu[v_at + 2 * v], mu[v_at + 2 * v + 1] = 1.0 - share, share
    if len(table) == 0:
        return
    for q in range(starts[s].singles, starts[s + 1].singles):
        i, at = v_at + 2 * singles[q].variable, f_at + singles[q].table
        table[at], table[at + 1] = mu[i], mu[i + 1]
    e0 = starts[s].pairs
    for e in range(e0, starts[s + 1].pairs):
        p, q, at = mu[v_at + 2 * pairs[e].i + 1], mu[v_at + 2 * pairs[e].j + 1], f_at + pairs[e].table
        # mu(1, 1) is between these two; the score, minus coupling, says which.
        both = min(p, q) if coupling[e - e0] < 0.0 else max(0.0, p + q - 1.0)
        table[at], table[at + 1], table[at + 2], table[at + 3] = 1.0 - p - q + both, q - both, p - both, both


@inner
def roof_dual(net: Any, room: Any, s: int) -> tuple[float, float]:
    """Relax E without its constant; returns the minimum and what counts as 0, and leaves 0, 1 or OPEN in room.state."""
    state, nodes, graph = room.state, room.flow.nodes, room.flow
    n = net.starts[s + 1].variables - net.starts[s].variables
    constant, scale, doubled = _build_graph(net, room, s)
    sides, tiny = 2 if doubled else 1, SATURATED * scale
    flow = max_flow(graph, sides * n, tiny)
    if not doubled:
        for v in range(n):
            state[v] = 1 if nodes[v].tree == SOURCE else 0
        return constant + flow, tiny
    n_open = 0
    for v in range(n):
        one, zero = nodes[v].tree == SOURCE, nodes[n + v].tree == SOURCE
        state[v] = 1 if one else 0
        if one == zero:
            state[v] = OPEN
            n_open += 1
    if n_open > 0:
        _settle_ties(graph, n, state, tiny)
    return constant + 0.5 * flow, tiny


@inner
def _build_graph(net: Any, room: Any, s: int) -> tuple[float, float, bool]:
    """Nodes and arcs of E without its constant; returns the posiform's, the largest capacity, and whether it is doubled."""
    starts, pairs, first_row, linear, coupling = net.starts, net.pairs, net.first_row, room.linear, room.coupling
    nodes, arcs, residual, excess = room.flow.nodes, room.flow.arcs, room.flow.residual, room.flow.excess
    v0, e0 = starts[s].variables, starts[s].pairs
    n, n_pairs = starts[s + 1].variables - v0, starts[s + 1].pairs - e0
    constant, scale, doubled = 0.0, 0.0, False
    for v in range(n):
        excess[v] = -linear[v]
    for e in range(n_pairs):
        half = 0.5 * coupling[e]
        excess[pairs[e0 + e].i] -= half
        excess[pairs[e0 + e].j] -= half
        if half > 0.0:
            doubled = True
            constant -= half
        scale = max(scale, abs(half))

    sides, n_rows = 2 if doubled else 1, 2 * n_pairs
    for v in range(n):
        constant -= max(excess[v], 0.0)
        scale = max(scale, abs(excess[v]))
        nodes[v].first = first_row[v0 + v] - first_row[v0]
    if doubled:
        for v in range(n):
            excess[n + v] = -excess[v]
            nodes[n + v].first = n_rows + nodes[v].first
    nodes[sides * n].first = sides * n_rows
    for e in range(n_pairs):
        pair, capacity, crosses = pairs[e0 + e], 0.5 * abs(coupling[e]), 1 if coupling[e] > 0.0 else 0
        for side in range(sides):
            # The normal form is the same seen from either literal and either end, so all four arcs are alike.
            other = side ^ crosses
            one, back = side * n_rows + pair.row_i, other * n_rows + pair.row_j
            arcs[one].head, arcs[back].head = other * n + pair.j, side * n + pair.i
            arcs[one].reverse, arcs[back].reverse = back, one
            residual[one] = capacity
            residual[back] = capacity
    return constant, scale, doubled


@inner
def _settle_ties(graph: Any, n: int, state: Any, tiny: float) -> None:
    """Decide the open variables whose literals lie in different components of what is left of the doubled graph."""
    nodes, arcs, residual = graph.parts, graph.arcs, graph.residual
    n_rows = nodes[n].first
    for u in range(2 * n):
        nodes[u].component = NOT_YET if state[u % n] == OPEN else OUTSIDE
    # Every largest flow leaves the same components; the mean makes them mirror images in rounded numbers, too.
    for u in range(2 * n):
        if nodes[u].component == NOT_YET:
            for arc in range(nodes[u].first, nodes[u + 1].first):
                back = arcs[arc].reverse
                image = back - n_rows if back >= n_rows else back + n_rows
                if arc < image and nodes[arcs[arc].head].component == NOT_YET:
                    mean = 0.5 * (residual[arc] + residual[image])
                    residual[arc], residual[image] = mean, mean
    components(graph, 2 * n, tiny)
    for v in range(n):
        if state[v] == OPEN and nodes[v].component != nodes[n + v].component:
            state[v] = 1 if nodes[v].component < nodes[n + v].component else 0


@inner
def repair(net: Any, room: Any, s: int, n_open: int, tiny: float) -> None:
    """Change the variable that gains most, of those that were open, until none gains; overwrites room.linear."""
    first_row, rows, v0, opened = net.first_row, net.rows, net.starts[s].variables, room.opened
    field, coupling, state = room.linear, room.coupling, room.state
    for k in range(n_open):
        for r in range(first_row[v0 + opened[k]], first_row[v0 + opened[k] + 1]):
            if state[rows[r].other] == 1:
                field[opened[k]] += coupling[rows[r].pair]
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
            field[rows[r].other] += sign * coupling[rows[r].pair]


@inner
def energy(net: Any, room: Any, s: int) -> float:
    """E of a labeling, room.state, without its constant."""
    starts, pairs, linear, coupling, state = net.starts, net.pairs, room.linear, room.coupling, room.state
    total, e0 = 0.0, starts[s].pairs
    for v in range(starts[s + 1].variables - starts[s].variables):
        if state[v] == 1:
            total += linear[v]
    for e in range(e0, starts[s + 1].pairs):
        if state[pairs[e].i] == 1 and state[pairs[e].j] == 1:
            total += coupling[e - e0]
    return total

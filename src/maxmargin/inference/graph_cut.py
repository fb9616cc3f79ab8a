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

*Half-integrality and persistency.* Let R be the nodes that the source still reaches when the flow is largest. R never
holds both literals of a variable. If it holds x_i, then x_i = 1 in every best labeling; if xbar_i, then x_i = 0; if
neither, x_i = 1/2 is optimal in the relaxation, and the variable is *ambiguous*. All ties are ambiguous.

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
loosens the bound, and never makes it wrong. Where no variable is ambiguous the labeling is the best one, and the bound
is its score, not the flow that equals it but for rounding.

Complexity
----------
Dinic's algorithm: at most O(n) phases of O(n |E|) work, in practice a handful of phases of about O(|E|). Memory is a
few numbers per arc of the largest example. Which variables an arc joins depends on the structure only: computed once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

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
from maxmargin.kernels import inner, kernel
from maxmargin.problems.factor_graphs import FactorGraphs, Scores
from maxmargin.problems.layout import (
    F_SCOPE,
    F_TABLE,
    F_TEMPLATE,
    K_ARITY,
    K_SIZE,
    L_VARIABLES,
    S_FACTORS,
    S_VARIABLES,
    STATES,
    STRUCTURE,
    TABLES,
    VARIABLES,
    offsets,
)

# `starts` of Network (one more row than structures): first variable, pair and single of each structure.
N_VARIABLE, N_PAIR, N_SINGLE = range(3)
# `pairs` of Network: the two variables, the table in the example, the factor's rows at the two variables.
PAIR_I, PAIR_J, PAIR_TABLE, PAIR_ROW_I, PAIR_ROW_J = range(5)
# `singles` of Network: the variable, the table in the example.
SINGLE_VARIABLE, SINGLE_TABLE = range(2)
# `rows` of Network: the variable at the other end, the pair; both counted inside the structure.
ROW_OTHER, ROW_PAIR = range(2)

# Residuals below this part of the largest capacity are rounding errors; so are gains of the rounding below it.
SATURATED = 1e-12
# A sum of four scores below this part of the largest of them is a rounding error: the pair has no interaction.
NO_INTERACTION = 1e-15


class Network(NamedTuple):
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
    """

    name = "graph_cut"
    exact = False

    def refusal(self, graphs: FactorGraphs) -> str | None:
        """Name the first example with a variable, a factor or a hard constraint that a cut cannot express."""
        faults = _faults(graphs)
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
                return f"Example {m}: a {side} has a score of -inf; graph cuts take finite scores only."
        return None

    def relax(self, graphs: FactorGraphs, scores: Scores) -> Relaxed:
        """Maximise over the local polytope: marginals of 0, 1/2 and 1, and the value of the relaxation."""
        return self._solve(graphs, scores)[0]

    def maximise(self, graphs: FactorGraphs, scores: Scores) -> MapResult:
        """Keep what the relaxation decides, and round the rest.

        Ambiguous variables begin at their own best state; then, as long as changing one of them improves the score, the
        change that improves it most is made.
        """
        relaxed, labels, values = self._solve(graphs, scores)
        return MapResult(labels, values, np.maximum(relaxed.bounds, values), relaxed.ambiguous)

    def marginals(self, graphs: FactorGraphs, scores: Scores, temperature: float = 1.0) -> Marginals:
        """Refuse: a cut says nothing about the Gibbs distribution."""
        raise OptionError("Graph cuts give the best labeling or its relaxation, not marginals; use another engine.")

    def _solve(self, graphs: FactorGraphs, scores: Scores) -> tuple[Relaxed, NDArray[np.int32], NDArray[np.float64]]:
        """The relaxation, the rounded labels and their scores."""
        refusal = self.refusal(graphs)
        if refusal is not None:
            raise DataError(refusal)
        scores = check_scores(graphs, scores)
        _check_finite(graphs, scores)
        n_variables = len(graphs.labels)
        marginals, bounds = np.empty(2 * n_variables), np.empty(graphs.n_examples)
        ambiguous, labels = np.empty(n_variables, np.bool_), np.empty(n_variables, np.int32)
        a = graphs.arrays
        _relax(a.examples, a.largest, _network(graphs), *scores, marginals, bounds, ambiguous, labels)
        values = graphs.labeling_scores(scores, labels)
        decided = ~np.logical_or.reduceat(ambiguous, graphs.example_variables[:-1])
        bounds[decided] = values[decided]
        return Relaxed(marginals, bounds, ambiguous), labels, values


def _check_finite(graphs: FactorGraphs, scores: Scores) -> None:
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
    raise DataError(f"Example {first} has a score of -inf; graph cuts take finite scores only.")


@once_per_structures
def _faults(graphs: FactorGraphs) -> dict[int, str]:
    """What each structure that a cut cannot express has."""
    found: dict[int, str] = {}
    for number, s in enumerate(graphs.structures):
        templates = [graphs.variable_templates[t] for t in s.variable_templates]
        fault = next(
            (
                f"variable {i} has {t.n_states[0]} states; graph cuts take binary variables only."
                if t.n_states != (2,)
                else f"variable {i} has a score of -inf; graph cuts take finite scores only."
                for i, t in enumerate(templates)
                if t.n_states != (2,) or np.isneginf(t.scores).any()
            ),
            None,
        )
        templates = [graphs.factor_templates[t] for t in s.factor_templates]
        fault = fault or next(
            (
                f"factor {c} joins {t.arity} variables; graph cuts take factors of 1 or 2."
                if t.arity not in (1, 2)
                else f"factor {c} has a score of -inf; graph cuts take finite scores only."
                for c, t in enumerate(templates)
                if t.arity not in (1, 2) or np.isneginf(t.scores).any()
            ),
            None,
        )
        if fault is not None:
            found[number] = fault
    return found


@once_per_structures
def _network(graphs: FactorGraphs) -> Network:
    a = graphs.arrays
    n_structures, n_variables = len(a.structures) - 1, len(a.variables)
    arity = a.factor_kinds[a.factors[:, F_TEMPLATE], K_ARITY]
    owner = np.repeat(np.arange(n_structures), np.diff(a.structures[:, S_FACTORS]))
    first_variable = a.structures[:, S_VARIABLES]

    # A batch may share structures with one that this engine refuses, so other factors are left out, not assumed away.
    pair = np.flatnonzero((arity == 2) & (a.factor_kinds[a.factors[:, F_TEMPLATE], K_SIZE] == 4))
    ends = a.scope[a.factors[pair, F_SCOPE][:, None] + np.arange(2)].reshape(-1, 2)
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
        np.stack([ends[:, 0], ends[:, 1], a.factors[pair, F_TABLE], local[:, 0], local[:, 1]], axis=1),
        np.stack([a.scope[a.factors[single, F_SCOPE]], a.factors[single, F_TABLE]], axis=1),
        first_row,
        rows[order],
        int(np.diff(first_pair).max(initial=0)),
    )


# ------------------------------------------------------------------------------------------------------- kernels


@kernel
def _relax(
    examples: Any, largest: Any, net: Any, v_scores: Any, f_scores: Any, marginals: Any, bounds: Any, ambiguous: Any,
    labels: Any,
) -> None:  # fmt: skip
    """Relaxation and rounded labels of every example."""
    starts, pairs, singles, first_row, rows = net.starts, net.pairs, net.singles, net.first_row, net.rows
    most_nodes, most_pairs = 2 * largest[L_VARIABLES], net.most_pairs
    own, linear, field = np.empty(largest[L_VARIABLES]), np.empty(largest[L_VARIABLES]), np.empty(largest[L_VARIABLES])
    coupling = np.empty(most_pairs)
    heads, reverse = np.empty(4 * most_pairs, np.int32), np.empty(4 * most_pairs, np.int32)
    residual = np.empty(4 * most_pairs)
    first_arc, excess = np.empty(most_nodes + 1, np.int64), np.empty(most_nodes)
    level, current = np.empty(most_nodes, np.int64), np.empty(most_nodes, np.int64)
    queue, path = np.empty(most_nodes, np.int64), np.empty(most_nodes, np.int64)
    for m in range(len(examples) - 1):
        s, states, tables, first = (
            examples[m, STRUCTURE],
            examples[m, STATES],
            examples[m, TABLES],
            examples[m, VARIABLES],
        )
        n, v0, e0 = examples[m + 1, VARIABLES] - first, starts[s, N_VARIABLE], starts[s, N_PAIR]
        n_pairs = starts[s + 1, N_PAIR] - e0
        constant = 0.0
        for v in range(n):
            constant -= v_scores[states + 2 * v]
            own[v] = v_scores[states + 2 * v] - v_scores[states + 2 * v + 1]
        for q in range(starts[s, N_SINGLE], starts[s + 1, N_SINGLE]):
            at = tables + singles[q, SINGLE_TABLE]
            constant -= f_scores[at]
            own[singles[q, SINGLE_VARIABLE]] += f_scores[at] - f_scores[at + 1]
        for v in range(n):
            field[v] = own[v]
            linear[v] = own[v]
        doubled, scale = False, 0.0
        for e in range(n_pairs):
            i, j, at = pairs[e0 + e, PAIR_I], pairs[e0 + e, PAIR_J], tables + pairs[e0 + e, PAIR_TABLE]
            s00, s01, s10, s11 = f_scores[at], f_scores[at + 1], f_scores[at + 2], f_scores[at + 3]
            d = (s01 + s10) - (s00 + s11)
            if abs(d) <= NO_INTERACTION * max(max(abs(s00), abs(s01)), max(abs(s10), abs(s11))):
                d = 0.0
            constant -= s00
            if d > 0.0:
                doubled = True
                constant -= 0.5 * d
            field[i] += s00 - s10
            field[j] += s00 - s01
            linear[i] += s00 - s10 + 0.5 * d
            linear[j] += s00 - s01 + 0.5 * d
            coupling[e] = d
            scale = max(scale, 0.5 * abs(d))

        sides = 2 if doubled else 1
        row0, n_rows = first_row[v0], 2 * n_pairs
        for v in range(n):
            constant += min(linear[v], 0.0)
            excess[v] = -linear[v]
            scale = max(scale, abs(linear[v]))
            first_arc[v] = first_row[v0 + v] - row0
        if doubled:
            for v in range(n):
                excess[n + v] = linear[v]
                first_arc[n + v] = n_rows + first_arc[v]
        first_arc[sides * n] = sides * n_rows
        for e in range(n_pairs):
            i, j = pairs[e0 + e, PAIR_I], pairs[e0 + e, PAIR_J]
            at_i, at_j, capacity = pairs[e0 + e, PAIR_ROW_I], pairs[e0 + e, PAIR_ROW_J], 0.5 * abs(coupling[e])
            crosses = 1 if coupling[e] > 0.0 else 0
            for side in range(sides):
                # The normal form is the same seen from either literal and either end, so all four arcs are alike.
                other = side ^ crosses
                one, back = side * n_rows + at_i, other * n_rows + at_j
                heads[one], heads[back] = other * n + j, side * n + i
                reverse[one], reverse[back] = back, one
                residual[one] = capacity
                residual[back] = capacity

        tiny = SATURATED * scale
        flow = _max_flow(sides * n, first_arc, heads, reverse, residual, excess, level, current, queue, path, tiny)
        bounds[m] = -(constant + (0.5 * flow if doubled else flow))
        n_ambiguous = 0
        for v in range(n):
            share = 1.0 if level[v] >= 0 else 0.0
            # Rounding could have both literals reached; that decides nothing either.
            if doubled and (level[v] >= 0) == (level[n + v] >= 0):
                share = 0.5
                n_ambiguous += 1
            marginals[states + 2 * v] = 1.0 - share
            marginals[states + 2 * v + 1] = share
            ambiguous[first + v] = share == 0.5
            labels[first + v] = 1 if share == 1.0 or (share == 0.5 and own[v] < 0.0) else 0
        if n_ambiguous > 0:
            _round(first, n, v0, first_row, rows, field, coupling, ambiguous, labels, tiny)


@inner
def _max_flow(
    n_nodes: int, first_arc: Any, heads: Any, reverse: Any, residual: Any, excess: Any, level: Any, current: Any,
    queue: Any, path: Any, tiny: float,
) -> float:  # fmt: skip
    """Dinic's flow from nodes of positive to nodes of negative excess; the source still reaches those of level >= 0."""
    flow = 0.0
    while True:
        # Levels: distances from the source, as far as the nearest nodes that lead to the sink.
        n_sources = 0
        for u in range(n_nodes):
            level[u] = -1
            if excess[u] > tiny:
                level[u] = 0
                queue[n_sources] = u
                n_sources += 1
        done, reached, target = 0, n_sources, n_nodes
        while done < reached:
            u = queue[done]
            done += 1
            distance = level[u] + 1
            if distance > target:
                break
            for arc in range(first_arc[u], first_arc[u + 1]):
                v = heads[arc]
                if level[v] < 0 and residual[arc] > tiny:
                    level[v] = distance
                    queue[reached] = v
                    reached += 1
                    if excess[v] < -tiny:
                        target = distance
        if target == n_nodes:
            return flow
        for q in range(reached):
            current[queue[q]] = first_arc[queue[q]]

        # Blocking flow: paths that go up one level an arc, depth first; an arc found useless is not tried again.
        for q in range(n_sources):
            source = queue[q]
            u, depth = source, 0
            while True:
                if excess[u] < -tiny:
                    amount = min(excess[source], -excess[u])
                    for d in range(depth):
                        amount = min(amount, residual[path[d]])
                    flow += amount
                    excess[source] -= amount
                    excess[u] += amount
                    keep = depth
                    for d in range(depth - 1, -1, -1):
                        arc = path[d]
                        residual[arc] -= amount
                        residual[reverse[arc]] += amount
                        if residual[arc] <= tiny:
                            keep = d
                    if excess[source] <= tiny:
                        break
                    if keep < depth:
                        depth = keep
                        u = heads[reverse[path[keep]]]
                    continue
                arc, end = current[u], first_arc[u + 1]
                if level[u] >= target:
                    arc = end
                while arc < end and not (residual[arc] > tiny and level[heads[arc]] == level[u] + 1):
                    arc += 1
                current[u] = arc
                if arc < end:
                    path[depth] = arc
                    depth += 1
                    u = heads[arc]
                elif depth == 0:
                    break
                else:
                    # A dead end for all other paths of this phase, too.
                    level[u] = -1
                    depth -= 1
                    u = heads[reverse[path[depth]]]
                    current[u] += 1


@inner
def _round(
    first: int, n: int, v0: int, first_row: Any, rows: Any, field: Any, coupling: Any, ambiguous: Any, labels: Any,
    tiny: float,
) -> None:  # fmt: skip
    """Change the ambiguous variable that gains most, until none gains; field comes in as the linear costs of E."""
    for v in range(n):
        if ambiguous[first + v]:
            for r in range(first_row[v0 + v], first_row[v0 + v + 1]):
                if labels[first + rows[r, ROW_OTHER]] == 1:
                    field[v] += coupling[rows[r, ROW_PAIR]]
    while True:
        # field is now what x_v = 1 costs in place of 0, given the others.
        best, chosen = tiny, -1
        for v in range(n):
            if ambiguous[first + v]:
                gain = field[v] if labels[first + v] == 1 else -field[v]
                if gain > best:
                    best, chosen = gain, v
        if chosen < 0:
            return
        labels[first + chosen] = 1 - labels[first + chosen]
        sign = 1.0 if labels[first + chosen] == 1 else -1.0
        for r in range(first_row[v0 + chosen], first_row[v0 + chosen + 1]):
            field[rows[r, ROW_OTHER]] += sign * coupling[rows[r, ROW_PAIR]]

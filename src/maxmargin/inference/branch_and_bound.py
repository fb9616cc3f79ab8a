"""Branch and bound: the best labeling of pairwise binary problems, by roof duality.

Minus the score is a quadratic polynomial E(x), as in graph_cut.py. A node of the search fixes the states of some
variables, which leaves a polynomial of the same kind in the others: a fixed x_i = 1 moves d_ij to the linear term of x_j.
Its roof dual, one maximum flow, gives

- a lower bound on all that lies below the node, which is left if the bound is not under the best labeling so far;
- states that belong to some best labeling below the node (persistency): they are fixed, and never branched on;
- a labeling, the open variables rounded and repaired, which may become the best so far.

Of what stays open, the variable with the largest sum of |d_ij| over open j is fixed next, since both its states change
most; the state that the rounded labeling has comes first. The search is depth first, so it needs a row of states per
depth.

Conventions
-----------
Labelings whose scores differ by less than 1e-12 of the sum of all |c_i| and |d_ij| count as equally good: bounds are
computed with rounding errors, and without a margin every tie would be searched to its end.

Complexity
----------
O(|E|) for a node and a little more than O(|E|) for its flow; n^2 bytes for the stack. The number of nodes depends on how
far the relaxation is from tight. With couplings that are weak beside the variables' own scores there is one; on complete
graphs of strong couplings of both signs, where all cycles are frustrated, it doubles with every two to three labels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.errors import DataError, OptionError, TooLargeError
from maxmargin.inference.contract import MapResult, Marginals, check_scores, exact_result
from maxmargin.inference.graph_cut import (
    N_PAIR,
    N_SINGLE,
    N_VARIABLE,
    OPEN,
    PAIR_I,
    PAIR_J,
    PAIR_ROW_I,
    PAIR_ROW_J,
    WHO,
    binary_faults,
    check_finite,
    energy,
    network,
    polynomial,
    refusal_of,
    repair,
    roof_dual,
    workspace,
)
from maxmargin.jit import inner, kernel
from maxmargin.problems.factor_graphs import FactorGraphs, Scores

# `stack`, a row per depth: how many children were entered, the variable branched on, its first state.
ENTERED, BRANCH, FIRST_STATE = range(3)
# Bounds closer to the best labeling than this part of all coefficients are no better.
EQUAL = 1e-12


class BranchAndBound:
    """Exact search with roof-dual bounds: binary variables, factors of one or two of them, finite scores.

    Parameters
    ----------
    limit : int
        Most nodes that the search for one example may visit.
    """

    name = "branch_and_bound"
    exact = True

    def __init__(self, limit: int = 1_000_000) -> None:
        if limit < 1:
            raise OptionError(f"limit={limit!r} is not possible; it must be at least 1.")
        self.limit = limit

    def refusal(self, graphs: FactorGraphs) -> str | None:
        """Name the first example with a variable, a factor or a hard constraint that a cut cannot express."""
        return refusal_of(graphs, binary_faults(graphs), WHO)

    def maximise(self, graphs: FactorGraphs, scores: Scores) -> MapResult:
        """Find the best labeling of every example."""
        return self.search(graphs, scores)[0]

    def search(self, graphs: FactorGraphs, scores: Scores) -> tuple[MapResult, NDArray[np.int64]]:
        """Find the best labeling of every example, and count the nodes (M,) that it took."""
        refusal = self.refusal(graphs)
        if refusal is not None:
            raise DataError(refusal)
        scores = check_scores(graphs, scores)
        check_finite(graphs, scores, WHO)
        a = graphs.arrays
        labels, visited = np.empty(len(graphs.labels), np.int32), np.zeros(graphs.n_examples, np.int64)
        m, gap = _search(a.examples, a.largest, network(graphs), *scores, self.limit, labels, visited)
        if m >= 0:
            raise TooLargeError(
                f"Example {m} with its {int(np.diff(graphs.example_variables)[m])} labels took more than {self.limit} "
                f"nodes of branch and bound; its best score is still open by {gap:.3g}."
            )
        return exact_result(graphs, scores, labels), visited

    def marginals(self, graphs: FactorGraphs, scores: Scores, temperature: float = 1.0) -> Marginals:
        """Refuse: the search leaves out most labelings."""
        raise OptionError("Branch and bound gives the best labeling, not marginals; use another engine.")


# ------------------------------------------------------------------------------------------------------- kernels


@kernel
def _search(
    examples: Any, largest: Any, net: Any, v_scores: Any, f_scores: Any, limit: int, labels: Any, visited: Any
) -> tuple[int, float]:
    """Best labeling of every example; returns the first that takes too many nodes and its gap, or -1."""
    starts, pairs, singles, first_row, rows = net.starts, net.pairs, net.singles, net.first_row, net.rows
    most, most_pairs = largest.variables, net.most_pairs
    linear, coupling, field, strength = np.empty(most), np.empty(most_pairs), np.empty(most), np.empty(most)
    stack, bound = np.empty((most + 1, 3), np.int64), np.empty(most + 1)
    fixed, trial = np.empty((most + 1, most), np.int8), np.empty(most, np.int8)
    # The polynomial of a node.
    live, place, opened = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
    sub_linear, sub_coupling, sub_state = np.empty(most), np.empty(most_pairs), np.empty(most, np.int8)
    sub_pairs, sub_row = np.empty((most_pairs, 5), np.int64), np.empty(most + 1, np.int64)
    nodes, arcs, residual, excess = workspace(most, most_pairs)
    for m in range(len(examples) - 1):
        s, first = examples[m].structure, examples[m].variables
        n, v0, e0 = examples[m + 1].variables - first, starts[s, N_VARIABLE], starts[s, N_PAIR]
        n_pairs = starts[s + 1, N_PAIR] - e0
        polynomial(
            n, examples[m].states, examples[m].tables, starts[s, N_SINGLE], starts[s + 1, N_SINGLE], singles, e0,
            n_pairs, pairs, v_scores, f_scores, linear, coupling,
        )  # fmt: skip
        margin = EQUAL * (np.abs(linear[:n]).sum() + np.abs(coupling[:n_pairs]).sum())
        least, depth, count = np.inf, 0, 0
        stack[0, ENTERED] = 0
        fixed[0, :n] = OPEN
        while depth >= 0:
            if stack[depth, ENTERED] > 0:
                # Back from a child; the labelings it found may have closed this node.
                if stack[depth, ENTERED] == 2 or bound[depth] >= least - margin:
                    depth -= 1
                else:
                    _enter(depth, n, stack, fixed)
                    depth += 1
                continue
            if count == limit:
                return m, least - _lowest(depth, stack, bound)
            count += 1
            constant, n_live, n_sub = _reduce(
                n, e0, n_pairs, pairs, linear, coupling, fixed[depth], live, place, sub_linear, sub_coupling, sub_pairs,
                sub_row,
            )  # fmt: skip
            below, tiny = roof_dual(
                n_live, 0, n_sub, sub_pairs, 0, sub_row, sub_linear, sub_coupling, nodes, arcs, residual, excess,
                sub_state,
            )  # fmt: skip
            bound[depth] = constant + below
            if bound[depth] >= least - margin:
                depth -= 1
                continue

            # The incumbent: what is decided, the rest rounded and repaired.
            n_open = 0
            for v in range(n):
                field[v], trial[v] = linear[v], fixed[depth, v]
            for k in range(n_live):
                fixed[depth, live[k]] = sub_state[k]
                trial[live[k]] = sub_state[k]
                if sub_state[k] == OPEN:
                    trial[live[k]] = 1 if sub_linear[k] < 0.0 else 0
                    opened[n_open] = live[k]
                    n_open += 1
            repair(v0, first_row, rows, field, coupling, n_open, opened, trial, tiny)
            value = energy(n, e0, n_pairs, pairs, linear, coupling, trial)
            if value < least:
                least = value
                for v in range(n):
                    labels[first + v] = trial[v]
            if n_open == 0 or bound[depth] >= least - margin:
                depth -= 1
                continue
            k = _most_coupled(n_live, n_sub, sub_pairs, sub_coupling, sub_state, strength)
            stack[depth, BRANCH], stack[depth, FIRST_STATE] = live[k], trial[live[k]]
            _enter(depth, n, stack, fixed)
            depth += 1
        visited[m] = count
    return -1, 0.0


@inner
def _enter(depth: int, n: int, stack: Any, fixed: Any) -> None:
    """Make the next child of the node: the branch variable's first state, then the other."""
    for v in range(n):
        fixed[depth + 1, v] = fixed[depth, v]
    fixed[depth + 1, stack[depth, BRANCH]] = stack[depth, FIRST_STATE] ^ stack[depth, ENTERED]
    stack[depth, ENTERED] += 1
    stack[depth + 1, ENTERED] = 0


@inner
def _lowest(depth: int, stack: Any, bound: Any) -> float:
    """A lower bound on all that is still to be searched, when the node at this depth is next."""
    # Nothing is known of the node itself yet but what is known of its parent.
    lowest: float = bound[depth - 1]
    for d in range(depth - 1):
        if stack[d, ENTERED] == 1:
            lowest = min(lowest, bound[d])
    return lowest


@inner
def _reduce(
    n: int, e0: int, n_pairs: int, pairs: Any, linear: Any, coupling: Any, fixed: Any, live: Any, place: Any,
    sub_linear: Any, sub_coupling: Any, sub_pairs: Any, sub_row: Any,
) -> tuple[float, int, int]:  # fmt: skip
    """The polynomial of the variables that are not fixed: its constant, how many they are, and how many pairs."""
    constant, n_live, n_sub = 0.0, 0, 0
    for v in range(n):
        if fixed[v] == OPEN:
            live[n_live], place[v] = v, n_live
            sub_linear[n_live], sub_row[n_live] = linear[v], 0
            n_live += 1
        elif fixed[v] == 1:
            constant += linear[v]
    for e in range(n_pairs):
        i, j, d = pairs[e0 + e, PAIR_I], pairs[e0 + e, PAIR_J], coupling[e]
        if fixed[i] == OPEN and fixed[j] == OPEN:
            if d != 0.0:
                a, b = place[i], place[j]
                sub_pairs[n_sub, PAIR_I], sub_pairs[n_sub, PAIR_J], sub_coupling[n_sub] = a, b, d
                # The number of the pair at either end, until the rows are known.
                sub_pairs[n_sub, PAIR_ROW_I], sub_pairs[n_sub, PAIR_ROW_J] = sub_row[a], sub_row[b]
                sub_row[a] += 1
                sub_row[b] += 1
                n_sub += 1
        elif fixed[i] == OPEN:
            if fixed[j] == 1:
                sub_linear[place[i]] += d
        elif fixed[j] == OPEN:
            if fixed[i] == 1:
                sub_linear[place[j]] += d
        elif fixed[i] == 1 and fixed[j] == 1:
            constant += d
    start = 0
    for k in range(n_live):
        degree = sub_row[k]
        sub_row[k] = start
        start += degree
    sub_row[n_live] = start
    for e in range(n_sub):
        sub_pairs[e, PAIR_ROW_I] += sub_row[sub_pairs[e, PAIR_I]]
        sub_pairs[e, PAIR_ROW_J] += sub_row[sub_pairs[e, PAIR_J]]
    return constant, n_live, n_sub


@inner
def _most_coupled(n: int, n_pairs: int, pairs: Any, coupling: Any, state: Any, strength: Any) -> int:
    """The open variable with the largest sum of |coupling| to open ones."""
    for k in range(n):
        strength[k] = 0.0 if state[k] == OPEN else -np.inf
    for e in range(n_pairs):
        i, j = pairs[e, PAIR_I], pairs[e, PAIR_J]
        if state[i] == OPEN and state[j] == OPEN:
            strength[i] += abs(coupling[e])
            strength[j] += abs(coupling[e])
    return int(np.argmax(strength[:n]))

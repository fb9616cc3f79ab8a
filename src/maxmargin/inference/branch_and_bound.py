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

from maxmargin.errors import OptionError, TooLargeError
from maxmargin.inference.contract import MapResult, Marginals, exact_result, room_per_structures
from maxmargin.inference.graph_cut import (
    OPEN,
    PAIR,
    START,
    WHO,
    CutRoom,
    Network,
    binary_faults,
    energy,
    finite_scores,
    network,
    polynomial,
    refusal_of,
    repair,
    roof_dual,
)
from maxmargin.inference.max_flow import Flow
from maxmargin.jit import Struct, inner, kernel, record_type, records
from maxmargin.problems.factor_graphs import FactorGraphs, Scores

#: A depth of the search: how many children were entered, the variable branched on, its first state.
DEPTH = record_type("entered", "branch", "first_state")
# Bounds closer to the best labeling than this part of all coefficients are no better.
EQUAL = 1e-12


class SearchRoom(Struct):
    """Room for the search of one example."""

    #: The polynomial of the example and a labeling, and the same two with `linear` of its own, for repairs.
    whole: CutRoom
    trial: CutRoom
    #: The polynomial of a node, in the variables that are not fixed, as one of a single structure.
    sub: CutRoom
    sub_net: Network
    #: Those variables, and the place of each variable among them.
    live: NDArray[np.int64]
    place: NDArray[np.int64]
    strength: NDArray[np.float64]
    #: A record and a bound for each depth, and the states that are fixed there.
    stack: Any
    bound: NDArray[np.float64]
    fixed: NDArray[np.int8]


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
        """Find the best labeling of every example, and count the nodes (M,) that it took.

        Parameters
        ----------
        graphs : FactorGraphs
            The batch.
        scores : Scores
            Tables of scores of its variables and factors.
        """
        scores = finite_scores(self, graphs, scores, WHO)
        labels, visited = np.empty(len(graphs.labels), np.int32), np.zeros(graphs.n_examples, np.int64)
        with _room(graphs) as room:
            m, gap = _search(graphs.arrays.examples, network(graphs), room, *scores, self.limit, labels, visited)
        if m >= 0:
            number, n = graphs.number_of(m), int(np.diff(graphs.example_variables)[m])
            raise TooLargeError(
                f"Example {number} with its {n} labels took more than {self.limit} nodes of branch and bound; its best score is "
                f"still open by {gap:.3g}.",
                example=number,
            )
        return exact_result(graphs, scores, labels), visited

    def marginals(self, graphs: FactorGraphs, scores: Scores, temperature: float = 1.0) -> Marginals:
        """Refuse: the search leaves out most labelings."""
        raise OptionError("Branch and bound gives the best labeling, not marginals; use another engine.")


@room_per_structures
def _room(graphs: FactorGraphs) -> SearchRoom:
    net, n = network(graphs), graphs.arrays.largest.variables
    pairs = net.most_pairs
    # What is left of a dense graph when variables are fixed may be sparse.
    sub = CutRoom.of(graphs.arrays.largest, net)._replace(flow=Flow.of(2 * n, 4 * pairs))
    whole = sub._replace(linear=np.empty(n), coupling=np.empty(pairs), state=np.empty(n, np.int8))
    return SearchRoom(
        whole, whole._replace(linear=np.empty(n)), sub,
        net._replace(starts=records(START, [0, 0]), pairs=np.recarray(pairs, dtype=PAIR), first_row=np.empty(n + 1, np.int64)),
        np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n), np.recarray(n + 1, dtype=DEPTH), np.empty(n + 1),
        np.empty((n + 1, n), np.int8),
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------------- kernels


@kernel
def _search(
    examples: Any, net: Any, room: Any, v_scores: Any, f_scores: Any, limit: int, labels: Any, visited: Any
) -> tuple[int, float]:
    """Best labeling of every example; returns the first that takes too many nodes and its gap, or -1."""
    stack, bound, fixed, live, whole, trial, sub = (
        room.stack, room.bound, room.fixed, room.live, room.whole, room.trial.state, room.sub,
    )  # fmt: skip
    for m in range(len(examples) - 1):
        s, first, n = examples[m].structure, examples[m].variables, examples[m + 1].variables - examples[m].variables
        polynomial(net, whole, s, v_scores, examples[m].states, f_scores, examples[m].tables)
        n_pairs = net.starts[s + 1].pairs - net.starts[s].pairs
        margin = EQUAL * (np.abs(whole.linear[:n]).sum() + np.abs(whole.coupling[:n_pairs]).sum())
        least, depth, count = np.inf, 0, 0
        stack[0].entered = 0
        fixed[0, :n] = OPEN
        while depth >= 0:
            if stack[depth].entered > 0:
                # Back from a child; the labelings it found may have closed this node.
                if stack[depth].entered == 2 or bound[depth] >= least - margin:
                    depth -= 1
                else:
                    _enter(stack, fixed, depth, n)
                    depth += 1
                continue
            if count == limit:
                return m, least - _lowest(stack, bound, depth)
            count += 1
            constant, n_live = _reduce(net, room, s, fixed[depth])
            below, tiny = roof_dual(room.sub_net, sub, 0)
            bound[depth] = constant + below
            if bound[depth] >= least - margin:
                depth -= 1
                continue
            n_open = _round(room, n, n_live, fixed[depth])
            repair(net, room.trial, s, n_open, tiny)
            value = energy(net, whole, s)
            if value < least:
                least = value
                for v in range(n):
                    labels[first + v] = trial[v]
            if n_open == 0 or bound[depth] >= least - margin:
                depth -= 1
                continue
            branch = live[_most_coupled(room.sub_net, sub, room.strength)]
            stack[depth].branch, stack[depth].first_state = branch, trial[branch]
            _enter(stack, fixed, depth, n)
            depth += 1
        visited[m] = count
    return -1, 0.0


@inner
def _enter(stack: Any, fixed: Any, depth: int, n: int) -> None:
    """Make the next child of the node: the branch variable's first state, then the other."""
    for v in range(n):
        fixed[depth + 1, v] = fixed[depth, v]
    fixed[depth + 1, stack[depth].branch] = stack[depth].first_state ^ stack[depth].entered
    stack[depth].entered += 1
    stack[depth + 1].entered = 0


@inner
def _lowest(stack: Any, bound: Any, depth: int) -> float:
    """A lower bound on all that is still to be searched, when the node at this depth is next."""
    # Nothing is known of the node itself yet but what is known of its parent.
    lowest: float = bound[depth - 1]
    for d in range(depth - 1):
        if stack[d].entered == 1:
            lowest = min(lowest, bound[d])
    return lowest


@inner
def _reduce(net: Any, room: Any, s: int, fixed: Any) -> tuple[float, int]:
    """The polynomial of the variables that are not fixed, into room.sub: its constant, and how many they are."""
    pairs, linear, coupling, live, place = net.pairs, room.whole.linear, room.whole.coupling, room.live, room.place
    sub_linear, sub_coupling, sub_pairs = room.sub.linear, room.sub.coupling, room.sub_net.pairs
    sub_row, e0 = room.sub_net.first_row, net.starts[s].pairs
    constant, n_live, n_sub = 0.0, 0, 0
    for v in range(net.starts[s + 1].variables - net.starts[s].variables):
        if fixed[v] == OPEN:
            live[n_live], place[v] = v, n_live
            sub_linear[n_live], sub_row[n_live] = linear[v], 0
            n_live += 1
        elif fixed[v] == 1:
            constant += linear[v]
    for e in range(e0, net.starts[s + 1].pairs):
        i, j, d = pairs[e].i, pairs[e].j, coupling[e - e0]
        if fixed[i] == OPEN and fixed[j] == OPEN:
            if d != 0.0:
                a, b = place[i], place[j]
                sub_pairs[n_sub].i, sub_pairs[n_sub].j, sub_coupling[n_sub] = a, b, d
                # The number of the pair at either end, until the rows are known.
                sub_pairs[n_sub].row_i, sub_pairs[n_sub].row_j = sub_row[a], sub_row[b]
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
        sub_pairs[e].row_i += sub_row[sub_pairs[e].i]
        sub_pairs[e].row_j += sub_row[sub_pairs[e].j]
    room.sub_net.starts[1].variables, room.sub_net.starts[1].pairs = n_live, n_sub
    return constant, n_live


@inner
def _round(room: Any, n: int, n_live: int, fixed: Any) -> int:
    """Fix what the roof dual decides, and write a labeling into room.trial, the rest rounded; returns how many are open."""
    linear, sub_linear, sub_state, live = room.whole.linear, room.sub.linear, room.sub.state, room.live
    field, state, opened, n_open = room.trial.linear, room.trial.state, room.trial.opened, 0
    for v in range(n):
        field[v], state[v] = linear[v], fixed[v]
    for k in range(n_live):
        fixed[live[k]] = sub_state[k]
        state[live[k]] = sub_state[k]
        if sub_state[k] == OPEN:
            state[live[k]] = 1 if sub_linear[k] < 0.0 else 0
            opened[n_open] = live[k]
            n_open += 1
    return n_open


@inner
def _most_coupled(net: Any, room: Any, strength: Any) -> int:
    """The open variable with the largest sum of |coupling| to open ones, of a single structure."""
    pairs, coupling, state, n = net.pairs, room.coupling, room.state, net.starts[1].variables
    for k in range(n):
        strength[k] = 0.0 if state[k] == OPEN else -np.inf
    for e in range(net.starts[1].pairs):
        i, j = pairs[e].i, pairs[e].j
        if state[i] == OPEN and state[j] == OPEN:
            strength[i] += abs(coupling[e])
            strength[j] += abs(coupling[e])
    return int(np.argmax(strength[:n]))

"""Alpha expansion: labelings of many states, improved by minimum cuts.

An *expansion move* to state alpha lets any set of variables change to alpha at once, and the rest keep their states. With
x_i = 1 if variable i changes, minus the score of the result is a quadratic polynomial of binary variables (graph_cut.py),
whose pairs have the scores

    s(0,0) = s_e(y_i, y_j)    s(0,1) = s_e(y_i, alpha)    s(1,0) = s_e(alpha, y_j)    s(1,1) = s_e(alpha, alpha)

- If every pair is supermodular (s(0,0) + s(1,1) >= s(0,1) + s(1,0)), the minimum cut is the best of all 2^n moves. This
  holds for every alpha and every labeling if minus the pair scores are a metric, as for Potts and truncated linear pairs.
- Otherwise the roof dual decides some variables, and the others keep their states (Rother, Kolmogorov, Lempitsky and
  Szummer, "Optimizing binary MRFs via extended roof duality", CVPR 2007). Such a move never lowers the score, whatever
  the others would have done, but need not be the best one.

Moves to all states in turn are repeated until none raises the score. Where all pairs are metric, with costs V_e, the cost
of the labeling is then at most 2 max_e (max V_e / min_{y != y'} V_e) times the least cost, in the scale where every own
cost is at least 0 and V_e(y, y) = 0 (Boykov, Veksler and Zabih, "Fast approximate energy minimization via graph cuts",
PAMI 2001). There is no bound that is known beforehand and tight enough to be of use: ``bounds`` are +inf.

Every variable starts in the best state by its own scores, the lowest of several. A move that raises the score by less
than 1e-12 of the sum of its coefficients counts as none, so that rounding cannot make the search go in circles.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maxmargin.errors import OptionError
from maxmargin.inference.contract import MapResult, Marginals, once_per_structures, unbounded_result
from maxmargin.inference.graph_cut import (
    OPEN,
    cut_room,
    energy,
    finite_scores,
    interaction,
    network,
    refusal_of,
    roof_dual,
    structure_faults,
)
from maxmargin.jit import inner, kernel
from maxmargin.problems.factor_graphs import FactorGraphs, Scores
from maxmargin.problems.templates import Template

WHO = "expansion moves"
# A gain below this part of the sum of a move's coefficients is a rounding error.
NO_GAIN = 1e-12


class AlphaExpansion:
    """Expansion moves until none helps: factors of one or two variables, finite scores, any number of states.

    The two variables of a factor must have the same number of states.

    Parameters
    ----------
    max_sweeps : int
        Most rounds through all states.
    """

    name = "alpha_expansion"
    exact = False

    def __init__(self, max_sweeps: int = 100) -> None:
        if max_sweeps < 0:
            raise OptionError(f"max_sweeps={max_sweeps!r} is not possible; it must be at least 0.")
        self.max_sweeps = max_sweeps

    def refusal(self, graphs: FactorGraphs) -> str | None:
        """Name the first example with a factor or a hard constraint that expansion moves cannot express."""
        return refusal_of(graphs, _faults(graphs), WHO)

    def maximise(self, graphs: FactorGraphs, scores: Scores) -> MapResult:
        """Find a labeling of every example that no expansion move found improves."""
        scores = finite_scores(self, graphs, scores, WHO)
        labels = np.empty(len(graphs.labels), np.int32)
        with cut_room(graphs) as room:
            _expand(graphs.arrays, network(graphs), room, *scores, self.max_sweeps, labels)
        return unbounded_result(graphs, scores, labels)

    def marginals(self, graphs: FactorGraphs, scores: Scores, temperature: float = 1.0) -> Marginals:
        """Refuse: a labeling has no marginals."""
        raise OptionError("Alpha expansion gives a labeling, not marginals; use another engine.")


@once_per_structures
def _faults(graphs: FactorGraphs) -> dict[int, str]:
    infinite = f"has a score of -inf; {WHO} take finite scores only."

    def of_variable(t: Template) -> str | None:
        return infinite if np.isneginf(t.scores).any() else None

    def of_factor(t: Template) -> str | None:
        if t.arity > 2:
            return f"joins {t.arity} variables; {WHO} take factors of 1 or 2."
        if len(set(t.n_states)) > 1:
            return "joins variables with {} and {} states; ".format(*t.n_states) + f"{WHO} need the same number."
        return infinite if np.isneginf(t.scores).any() else None

    return structure_faults(graphs, of_variable, of_factor)


# ------------------------------------------------------------------------------------------------------- kernels


@kernel
def _expand(g: Any, net: Any, room: Any, v_scores: Any, f_scores: Any, max_sweeps: int, labels: Any) -> None:
    """A labeling of every example that no move improves."""
    examples, variables, v_kinds, state = g.examples, g.variables, g.variable_kinds, room.state
    for m in range(len(examples) - 1):
        s, first, states = examples[m].structure, examples[m].variables, examples[m].states
        n, v0, most_states = examples[m + 1].variables - first, net.starts[s].variables, 0
        for v in range(n):
            n_states, at = v_kinds[variables[v0 + v].template].entries, states + variables[v0 + v].table
            labels[first + v] = np.argmax(v_scores[at : at + n_states])
            most_states = max(most_states, n_states)
        alpha, stayed = 0, 0
        for _ in range(max_sweeps * most_states):
            if stayed == most_states:
                break
            size = _move(g, net, room, m, alpha, v_scores, f_scores, labels)
            roof_dual(net, room, s)
            for v in range(n):
                if state[v] == OPEN:
                    state[v] = 0
            stayed += 1
            if energy(net, room, s) < -NO_GAIN * size:
                stayed = 1
                for v in range(n):
                    if state[v] == 1 and alpha < v_kinds[variables[v0 + v].template].entries:
                        labels[first + v] = alpha
            alpha = alpha + 1 if alpha + 1 < most_states else 0


@inner
def _move(g: Any, net: Any, room: Any, m: int, alpha: int, v_scores: Any, f_scores: Any, labels: Any) -> float:
    """Write what a move to alpha costs as E(x); returns the sum of the sizes of its terms."""
    variables, v_kinds, linear, coupling = g.variables, g.variable_kinds, room.linear, room.coupling
    example, starts, pairs, singles = g.examples[m], net.starts, net.pairs, net.singles
    first, s = example.variables, example.structure
    size, v0, e0 = 0.0, starts[s].variables, starts[s].pairs
    for v in range(starts[s + 1].variables - v0):
        linear[v] = 0.0
        if alpha < v_kinds[variables[v0 + v].template].entries:
            at = example.states + variables[v0 + v].table
            linear[v] = v_scores[at + labels[first + v]] - v_scores[at + alpha]
            size += abs(linear[v])
    for q in range(starts[s].singles, starts[s + 1].singles):
        v, at = singles[q].variable, example.tables + singles[q].table
        if alpha < v_kinds[variables[v0 + v].template].entries:
            linear[v] += f_scores[at + labels[first + v]] - f_scores[at + alpha]
            size += abs(f_scores[at + labels[first + v]] - f_scores[at + alpha])
    for e in range(e0, starts[s + 1].pairs):
        i, j, at = pairs[e].i, pairs[e].j, example.tables + pairs[e].table
        n_states = v_kinds[variables[v0 + i].template].entries
        coupling[e - e0] = 0.0
        if alpha < n_states:
            row, column = at + labels[first + i] * n_states, labels[first + j]
            s00, s01 = f_scores[row + column], f_scores[row + alpha]
            s10, s11 = f_scores[at + alpha * n_states + column], f_scores[at + alpha * n_states + alpha]
            linear[i] += s00 - s10
            linear[j] += s00 - s01
            coupling[e - e0] = interaction(s00, s01, s10, s11)
            size += abs(s00 - s10) + abs(s00 - s01) + abs(coupling[e - e0])
    return size

"""A search that is bad by a known factor, to study what training makes of that.

T. Finley and T. Joachims, Training Structural SVMs when Exact Inference is Intractable, ICML 2008, section 5.2.3. The labeling
found is not the best one, y*, but, of all labelings, the one of least score that is still at least rho times the best:

    rho score(y*) <= score(y)                      (eq. 4 and 5)

A best score below 0 leaves no room, and then it is y* itself. So score(y) / rho, or score(y) if that is below 0, bounds the best
score: training with it brackets the optimum of the exact problem, by the interval of theorem 2.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maxmargin.errors import OptionError
from maxmargin.inference.contract import MapResult, Marginals, check_refusal
from maxmargin.inference.exhaustive import Exhaustive, next_labeling
from maxmargin.jit import kernel
from maxmargin.problems.factor_graphs import FactorGraphs, Scores
from maxmargin.problems.layout import joint_state


class RhoApproximate:
    """A labeling of rho times the best score or a little more, by trying all.

    Parameters
    ----------
    rho : float
        Above 0, at most 1, which is exact.
    limit : int
        Largest number of joint states of an example.
    """

    name = "rho_approximate"
    exact = False
    bounded = True

    def __init__(self, rho: float = 0.9, limit: int = 2**20) -> None:
        if isinstance(rho, bool) or not isinstance(rho, int | float | np.floating) or not 0.0 < rho <= 1.0:
            raise OptionError(f"rho={rho!r} is not possible; it must be a number above 0 and at most 1.")
        self.rho, self.limit = float(rho), limit

    def refusal(self, graphs: FactorGraphs) -> str | None:
        """Refuse examples with too many joint states, and structured factors."""
        return graphs.refuse_structured(self.name) or Exhaustive(self.limit).refusal(graphs)

    def maximise(self, graphs: FactorGraphs, scores: Scores) -> MapResult:
        """Find a labeling of every example that is about rho times as good as the best."""
        check_refusal(self, graphs)
        best = Exhaustive(self.limit).maximise(graphs, scores)
        labels, least = best.labels.copy(), self.rho * best.values
        find_least(graphs.arrays, scores.variables, scores.factors, least, labels)
        values = graphs.labeling_scores(scores, labels)
        bounds = np.where(values > 0.0, values / self.rho, values)
        # The division rounds; what is known must stay above the best.
        return MapResult(labels, values, np.maximum(bounds, best.values))

    def marginals(self, graphs: FactorGraphs, scores: Scores, temperature: float = 1.0) -> Marginals:
        """Refuse: there is no distribution that is bad by a known factor."""
        raise OptionError('The engine "rho_approximate" finds labelings and has no marginals; use "exhaustive".')


@kernel
def find_least(g: Any, v_scores: Any, f_scores: Any, least: Any, out: Any) -> None:
    """Of all labelings of an example with at least a given score above 0, the one of least score."""
    examples, structures, variables, factors = g.examples, g.structures, g.variables, g.factors
    scope, kinds, slots = g.scope, g.factor_kinds, g.slots
    labels = np.empty(g.largest.variables, np.int32)
    for m in range(len(examples) - 1):
        if not least[m] > 0.0:
            continue
        s, first, states, tables = examples[m].structure, examples[m].variables, examples[m].states, examples[m].tables
        n, n_states = examples[m + 1].variables - first, examples[m + 1].states - states
        v0, c0, n_factors = (
            structures[s].variables,
            structures[s].factors,
            examples[m + 1].factors - examples[m].factors,
        )
        found = np.inf
        for i in range(n):
            labels[i] = 0
        more = True
        while more:
            score = 0.0
            for i in range(n):
                score += v_scores[states + variables[v0 + i].table + labels[i]]
            for c in range(n_factors):
                score += f_scores[
                    tables + factors[c0 + c].table + joint_state(c0 + c, 0, factors, scope, kinds, slots, labels)
                ]
            if least[m] <= score < found:
                found = score
                for i in range(n):
                    out[first + i] = labels[i]
            more = next_labeling(variables, v0, n, n_states, labels)

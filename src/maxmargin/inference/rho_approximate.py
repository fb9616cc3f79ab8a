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
from maxmargin.inference.exhaustive import Exhaustive, bound_rest, enter_level, levels_of, search_room
from maxmargin.jit import kernel
from maxmargin.problems.factor_graphs import FactorGraphs, Scores


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
        with search_room(graphs) as (room, _):
            find_least(graphs.arrays, levels_of(graphs), room, scores.variables, scores.factors, least, labels)
        values = graphs.labeling_scores(scores, labels)
        bounds = np.where(values > 0.0, values / self.rho, values)
        # The division rounds; what is known must stay above the best.
        return MapResult(labels, values, np.maximum(bounds, best.values))

    def marginals(self, graphs: FactorGraphs, scores: Scores, temperature: float = 1.0) -> Marginals:
        """Refuse: there is no distribution that is bad by a known factor."""
        raise OptionError('The engine "rho_approximate" finds labelings and has no marginals; use "exhaustive".')


@kernel
def find_least(g: Any, levels: Any, room: Any, v_scores: Any, f_scores: Any, least: Any, out: Any) -> None:
    """Of all labelings of an example with at least a given score above 0, the one of least score (exhaustive.py has the search)."""
    examples, variables, partial, choice, rest = g.examples, levels.variables, room.partial, room.choice, room.rest
    for m in range(len(examples) - 1):
        if not least[m] > 0.0:
            continue
        first, n = examples[m].variables, examples[m + 1].variables - examples[m].variables
        own_v, own_f = v_scores[examples[m].states :], f_scores[examples[m].tables :]
        v0 = levels.start[examples[m].structure]
        bound_rest(g, levels, rest, v0, n, own_v, own_f)
        found, value = np.inf, 0.0
        d, entering = 0, True
        while d >= 0:
            n_states, at = variables[v0 + d].states, variables[v0 + d].state
            if entering:
                enter_level(g, levels, room, None, v0, d, value, own_v, own_f)
                entering = False
            choice[d] += 1
            if choice[d] == n_states:
                d -= 1
                continue
            value = partial[at + choice[d]]
            if value + rest[d] < least[m]:
                continue
            if d < n - 1:
                d += 1
                entering = True
            elif value < found:
                found = value
                for v in range(n):
                    out[first + v] = choice[v]

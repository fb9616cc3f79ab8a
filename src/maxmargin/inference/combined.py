"""Combined: the better labeling of greedy search and loopy belief propagation.

Finley and Joachims (2008), section 3.1: the method "picks the assignment y with the highest network potential from both
greedy and LBP", which they find to fail on different problems. Of two labelings with the same score, the greedy one is
taken. There is no bound on the best score: ``bounds`` are +inf.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from maxmargin.errors import OptionError
from maxmargin.inference.contract import MapResult, Marginals, unbounded_result
from maxmargin.inference.greedy import Greedy
from maxmargin.inference.loopy_bp import LoopyBP
from maxmargin.problems.factor_graphs import FactorGraphs, Scores


class Combined:
    """Greedy search and loopy belief propagation, whichever is better on each example.

    Parameters
    ----------
    max_rounds : int
    damping : float
    tol : float
    labeling : "best" or "last"
        Options of `LoopyBP`.
    """

    name = "combined"
    exact = False

    def __init__(
        self, max_rounds: int = 100, damping: float = 0.5, tol: float = 1e-6, labeling: Literal["best", "last"] = "best"
    ) -> None:
        self.greedy = Greedy()
        self.loopy_bp = LoopyBP(max_rounds, damping, tol, labeling)

    def refusal(self, graphs: FactorGraphs) -> str | None:
        """Refuse what the two methods refuse: structured factors."""
        return graphs.refuse_structured(self.name)

    def maximise(self, graphs: FactorGraphs, scores: Scores) -> MapResult:
        """Find the better of both methods' labelings of every example; -inf if both are forbidden."""
        one, other = self.greedy.maximise(graphs, scores), self.loopy_bp.maximise(graphs, scores)
        second = np.repeat(other.values > one.values, np.diff(graphs.example_variables))
        return unbounded_result(graphs, scores, np.where(second, other.labels, one.labels))

    def marginals(self, graphs: FactorGraphs, scores: Scores, temperature: float = 1.0) -> Marginals:
        """Refuse: the better of two labelings has no marginals."""
        raise OptionError(
            'The "combined" engine finds labelings and has no marginals; "trees", "exhaustive" and "loopy_bp" have.'
        )

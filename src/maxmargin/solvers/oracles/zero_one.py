"""Zero-one loss on graphs without cycles: the best labeling that is not the truth.

    H_m(w) = max(0, 1 + max over y other than the truth of  w . phi(y) - w . phi(truth))

That labeling is the best one or the second best. It is found by max-product over states and whether any variable is wrong yet
(inference/by_count.py), or, where factors have more than two variables, as one of the two best labelings (inference/top_k.py). All
wrong labelings cost the same, so that margin and slack rescaling are one.

The problem's tables of losses are zeros (`FactorGraphs.zero_one`), and the loss of a plane is added here.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from maxmargin.errors import OptionError
from maxmargin.inference import Engine, by_count
from maxmargin.inference.top_k import top_k
from maxmargin.inference.trees import Trees
from maxmargin.problems.factor_graphs import FactorGraphs, Scores
from maxmargin.solvers.oracles.compiled import Given
from maxmargin.solvers.oracles.graph_oracle import GraphOracle, find_hinges, write_planes


class ZeroOneOracle(GraphOracle):
    """Max-product as the max-oracle of the zero-one loss."""

    def __init__(self, problem: FactorGraphs, chosen: str | Engine = "auto") -> None:
        refused = Trees().refusal(problem)
        if refused is not None:
            raise OptionError(
                f'loss="zero-one" needs the best labeling but the truth, which is found on graphs without cycles alone. {refused}'
            )
        by_name = chosen in ("auto", "trees") if isinstance(chosen, str) else isinstance(chosen, Trees)
        if not by_name:
            name = chosen if isinstance(chosen, str) else chosen.name
            raise OptionError(f'The engine "{name}" cannot be the oracle of loss="zero-one": use "trees", or "auto".')
        super().__init__(problem, Trees())
        self.by_count = by_count.refusal(problem, 1) is None
        self.reason = "max-product finds the best labeling that is not the truth"
        self.compiled = None

    def answer(
        self, w_v: NDArray[np.float64], w_f: NDArray[np.float64], examples: NDArray[np.int64]
    ) -> tuple[Given, NDArray[np.float64] | None]:
        """The planes of some examples; the labelings are exact, and need no bounds."""
        return self.most_violated(w_v, w_f, examples), None

    def most_violated(self, w_v: NDArray[np.float64], w_f: NDArray[np.float64], examples: NDArray[np.int64]) -> Given:
        """The planes of largest slope of some examples, in their order."""
        found = self.room(len(examples))
        if len(examples) == 0:
            return found
        part = self.problem.take(examples, keep_numbers=True)
        scores = part.scores_of((w_v, w_f))
        if self.by_count:
            labels = by_count.most_violated(part, scores, np.tile([0.0, 1.0], (len(examples), 1)), slack=False)[0]
        else:
            labels = best_but_truth(part, scores)
        write_planes(part, labels, found)
        found.ell[:] += part.labeling_losses(labels)
        return found

    def hinges(self, w_v: NDArray[np.float64], w_f: NDArray[np.float64], threads: int) -> NDArray[np.float64]:
        """H_m(w) of all examples."""
        out = np.empty(self.n_examples)
        for chosen, planes, _ in self.answers(w_v, w_f, 0, self.n_examples):
            with self.workspace() as work:
                find_hinges(self.problem.batch, w_v, w_f, planes, work, chosen[0], out[chosen[0] : chosen[-1] + 1])
        return out


def best_but_truth(part: FactorGraphs, scores: Scores) -> NDArray[np.int32]:
    """The best labeling of each example other than its truth, or that where there is no other."""
    best = top_k(part, scores, 2).labels
    right = np.logical_and.reduceat(best[0] == part.labels, part.example_variables[:-1])
    chosen = np.where(np.repeat(right, np.diff(part.example_variables)), best[1], best[0])
    return np.where(chosen < 0, part.labels, chosen).astype(np.int32)

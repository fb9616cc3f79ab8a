"""The second best labeling of an example, and whether it is known to be that.

On graphs without cycles it is exact (top_k.py). On others it is the best of V labelings, each the best of those in which one
variable i has not the label that it has in the given labeling y:

    max_{y' != y} score(y')  =  max_i  max_{y' : y'_i != y_i} score(y')

so that an engine, asked V times, finds it: with an exact engine exactly, and otherwise with a bound that may prove it. Where that
is too much, as for a picture, it is the best labeling that differs in one variable alone, and nothing is claimed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.inference import batches
from maxmargin.inference.contract import Engine
from maxmargin.inference.top_k import top_k
from maxmargin.inference.trees import Trees
from maxmargin.problems.conditionals import conditional_scores
from maxmargin.problems.factor_graphs import FactorGraphs, Scores

#: Entries of the score tables that V questions about an example may have in all.
MOST_ENTRIES = 1 << 24
#: Share of a score that rounding may change.
_ROUNDING = 1e-9


class RunnerUp(NamedTuple):
    """The best labeling found that differs from a given one.

    Attributes
    ----------
    labels : int32 array (V,)
        The labeling.
    value : float
        Its score.
    exact : bool
        Whether no other labeling but the given one scores more.
    how : str
        How it was found.
    """

    labels: NDArray[np.int32]
    value: float
    exact: bool
    how: str


def runner_up(
    graphs: FactorGraphs, scores: Scores, labels: NDArray[np.int32], engine: Engine, n_jobs: int | None = None
) -> RunnerUp | None:
    """The best labeling of a batch of one example that differs from a given one; None if there is no other.

    Parameters
    ----------
    graphs : FactorGraphs
        One example.
    scores : Scores
        Its tables.
    labels : int array (V,)
        The labeling that it must differ from.
    engine : Engine
        Who finds it on graphs with cycles.
    n_jobs : int, optional
        Threads; None is 1, and -1 is one a core.
    """
    if Trees().refusal(graphs) is None:
        found = top_k(graphs, scores, 2)
        for row, value in zip(found.labels, found.values[0].tolist(), strict=True):
            if value > -np.inf and (row != labels).any():
                return RunnerUp(row, value, True, "exact, by the two best labelings")
        return None
    starts = graphs.state_starts()
    ends = np.append(starts[1:], len(scores.variables))
    allowed = np.add.reduceat((scores.variables > -np.inf).astype(np.int64), starts)
    open_ = np.flatnonzero(allowed > 1)
    if len(open_) == 0:
        return None
    if len(open_) * (len(scores.variables) + len(scores.factors)) > MOST_ENTRIES:
        return _one_change(graphs, scores, labels, starts, ends)
    n, size = len(open_), len(scores.variables)
    tables = np.tile(scores.variables, n).reshape(n, size)
    # Enough to be worse than any labeling: some engines take finite scores only.
    tables[np.arange(n), starts[open_] + labels[open_]] -= 1.0 + _span(scores.variables) + _span(scores.factors)
    answers = batches.maximise(
        graphs.take(np.zeros(n, np.int64)), Scores(tables.ravel(), np.tile(scores.factors, n)), engine, n_jobs
    )
    rows = answers.labels.reshape(n, -1)
    changed = rows[np.arange(n), open_] != labels[open_]
    if not changed.any():
        return None
    best = int(np.argmax(np.where(changed, answers.values, -np.inf)))
    value = float(graphs.labeling_scores(scores, rows[best])[0])
    bound = float(answers.bounds.max())
    exact = bound <= value + _ROUNDING * (1.0 + abs(value))
    short = f'by "{engine.name}" with each variable changed in turn'
    return RunnerUp(
        rows[best],
        value,
        exact,
        f"exact, {short}" if exact else f"found {short}; another may score up to {bound:.6g}",
    )


def _span(table: NDArray[np.float64]) -> float:
    """At least by how much the sums of entries of two labelings can differ."""
    return float(2.0 * np.abs(table[np.isfinite(table)]).sum())


def _one_change(
    graphs: FactorGraphs, scores: Scores, labels: NDArray[np.int32], starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> RunnerUp | None:
    """The best labeling that differs in one variable."""
    given = conditional_scores(graphs, scores, labels)
    own = given[starts + labels]
    gains = given - np.repeat(own, ends - starts)
    gains[starts + labels] = -np.inf
    at = int(np.argmax(gains))
    if gains[at] == -np.inf:
        return None
    i = int(np.searchsorted(starts, at, side="right") - 1)
    changed = np.array(labels, np.int32)
    changed[i] = at - starts[i]
    value = float(graphs.labeling_scores(scores, changed)[0])
    return RunnerUp(
        changed, value, False, "the best labeling that differs in one variable; the graph is too large for more"
    )

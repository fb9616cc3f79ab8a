"""What every inference engine answers, and in which shapes.

Conventions
-----------
An engine reads a batch (`FactorGraphs`, M examples, V variables in all) and its score tables (`Scores`, float64),
and reads nothing else: the task loss counts only if the caller added it to the tables. A score of ``-inf``
forbids a state or a joint state; scores are otherwise finite. An example that has no allowed labeling is a
`DataError` that names it.

- MAP: ``max_y score(y)``, with ``score(y) = sum_i scores_i(y_i) + sum_c scores_c(y_c)``. ``values`` is always the
  score of ``labels``, computed afresh, so an engine that does not find the best labeling still never claims a score
  it does not have.
- Marginals: of ``p(y) ~ exp(score(y) / temperature)``; ``log_partition = temperature * log sum_y exp(score(y) /
  temperature)`` is in units of the score, and tends to the MAP value as the temperature tends to 0.

Messages, orders and whatever else depends on the shapes of graphs alone is computed once and kept
(`once_per_structures`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from maxmargin.errors import DataError, OptionError
from maxmargin.parallel.pool import Pool
from maxmargin.problems.factor_graphs import FactorGraphs, Scores

T = TypeVar("T")


class MapResult(NamedTuple):
    """Labelings and their scores.

    Attributes
    ----------
    labels : int32 array (V,)
        The labeling of each example, concatenated.
    values : float64 array (M,)
        Its score.
    bounds : float64 array (M,)
        An upper bound on the best score; equal to ``values`` when the engine is exact.
    ambiguous : bool array (V,), or None
        Variables that the engine's relaxation left open, and rounding decided; None where nothing is relaxed.
    """

    labels: NDArray[np.int32]
    values: NDArray[np.float64]
    bounds: NDArray[np.float64]
    ambiguous: NDArray[np.bool_] | None = None


class Relaxed(NamedTuple):
    """The optimum of a relaxation.

    Attributes
    ----------
    variables : float64 array
        Marginal of each state of each variable, in *states* coordinates; fractional where the relaxation is not tight.
    bounds : float64 array (M,)
        The value of the relaxation, an upper bound on the best score.
    ambiguous : bool array (V,)
        Variables whose marginals are not 0 or 1.
    factors : float64 array
        Marginal of each joint state of each factor, in *tables* coordinates.
    """

    variables: NDArray[np.float64]
    bounds: NDArray[np.float64]
    ambiguous: NDArray[np.bool_]
    factors: NDArray[np.float64]


class Marginals(NamedTuple):
    """Marginals of the Gibbs distribution of a batch.

    Attributes
    ----------
    variables : float64 array
        Probability of each state of each variable, in *states* coordinates.
    factors : float64 array
        Probability of each joint state of each factor, in *tables* coordinates.
    log_partition : float64 array (M,)
        temperature * log sum exp(score / temperature).
    """

    variables: NDArray[np.float64]
    factors: NDArray[np.float64]
    log_partition: NDArray[np.float64]


class TopK(NamedTuple):
    """The best labelings of a batch, best first.

    Attributes
    ----------
    labels : int32 array (k, V)
        Row r holds the labeling of rank r of each example, concatenated; -1 where there are fewer than k.
    values : float64 array (M, k)
        Their scores; -inf where there are fewer than k.
    """

    labels: NDArray[np.int32]
    values: NDArray[np.float64]


@runtime_checkable
class Engine(Protocol):
    """An algorithm for MAP and marginals on factor graphs.

    It may say more of itself, for those who ask it again and again:

    - ``relax(graphs, scores)``, a `Relaxed`: its answers range over the local polytope.
    - ``bounded = True``: it may miss the best labeling, but its bounds are as good as it can make them.
    - ``sequential = True``: it keeps something from example to example, and gets one thread.
    - ``plan(graphs)``: what compiled loops need to ask it about one example (solvers/oracles/compiled.py).
    - ``operations``: about how many an answer takes, for each score of an example.
    """

    @property
    def name(self) -> str:
        """The name users give: the engine's file in ``inference/``."""
        ...

    @property
    def exact(self) -> bool:
        """Whether MAP and marginals are exact on every batch that the engine does not refuse."""
        ...

    def refusal(self, graphs: FactorGraphs) -> str | None:
        """Return a sentence saying why this engine cannot handle the batch, or None if it can.

        Parameters
        ----------
        graphs : FactorGraphs
            The batch.
        """
        ...

    def maximise(self, graphs: FactorGraphs, scores: Scores) -> MapResult:
        """Find the best labeling of every example.

        Parameters
        ----------
        graphs : FactorGraphs
            The batch.
        scores : Scores
            Tables of scores of its variables and factors.
        """
        ...

    def marginals(self, graphs: FactorGraphs, scores: Scores, temperature: float = 1.0) -> Marginals:
        """Compute the marginals of every variable and factor.

        Parameters
        ----------
        graphs : FactorGraphs
            The batch.
        scores : Scores
            Tables of scores of its variables and factors.
        temperature : float
            What scores are divided by.
        """
        ...


def check_refusal(engine: Engine, graphs: FactorGraphs) -> None:
    """Raise what the engine's refusal says, if it refuses the batch."""
    refusal = engine.refusal(graphs)
    if refusal is not None:
        raise DataError(refusal)


def check_scores(graphs: FactorGraphs, scores: Scores) -> Scores:
    """Score tables as kernels want them (float64, contiguous), or a sentence about their shape."""
    checked = []
    for side, given, expected in (
        ("variables", scores.variables, graphs.example_states[-1]),
        ("factors", scores.factors, graphs.example_tables[-1]),
    ):
        values = np.ascontiguousarray(given, np.float64)
        if values.shape != (expected,):
            raise DataError(f"The scores of {side} have shape {values.shape}; this batch needs ({expected},).")
        checked.append(values)
    return Scores(*checked)


def check_temperature(temperature: float) -> float:
    """The temperature as a float, or a sentence."""
    if not (np.isfinite(temperature) and temperature > 0):
        raise OptionError(f"temperature={temperature!r} is not possible; it must be a finite number above 0.")
    return float(temperature)


def check_count(k: int) -> int:
    """How many labelings are asked for, or a sentence."""
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise OptionError(f"k={k!r} is not possible; it must be a whole number of at least 1.")
    return int(k)


def raise_infeasible(graphs: FactorGraphs, scores: Scores, m: int) -> None:
    """Say why example m has no best labeling: its scores are not numbers, or forbid everything."""
    number = graphs.number_of(m)
    for given, starts in ((scores.variables, graphs.example_states), (scores.factors, graphs.example_tables)):
        values = given[starts[m] : starts[m + 1]]
        if np.isnan(values).any() or np.isposinf(values).any():
            raise DataError(
                f"Example {number} has a score of NaN or +inf; scores must be finite, or -inf to forbid a state.",
                example=number,
            )
    raise DataError(f"Example {number}: every labeling is forbidden by the hard constraints.", example=number)


def check_numbers(graphs: FactorGraphs, scores: Scores) -> Scores:
    """Score tables as kernels want them, or a sentence about their shape or about the first NaN or +inf.

    Exact engines find such scores in their answer; a search may pass them by.
    """
    scores = check_scores(graphs, scores)
    wrong = []
    for given, starts in ((scores.variables, graphs.example_states), (scores.factors, graphs.example_tables)):
        # The maximum is NaN if any score is.
        if not given.max(initial=-np.inf) < np.inf:
            entry = int(np.flatnonzero(np.isnan(given) | np.isposinf(given))[0])
            wrong.append(int(np.searchsorted(starts, entry, side="right") - 1))
    if wrong:
        raise_infeasible(graphs, scores, min(wrong))
    return scores


def exact_result(graphs: FactorGraphs, scores: Scores, labels: NDArray[np.int32]) -> MapResult:
    """Score the labelings of an exact engine afresh; the scores are their own bounds."""
    values = graphs.labeling_scores(scores, labels)
    wrong = np.flatnonzero(~np.isfinite(values))
    if len(wrong):
        raise_infeasible(graphs, scores, int(wrong[0]))
    return MapResult(labels, values, values.copy())


def unbounded_result(graphs: FactorGraphs, scores: Scores, labels: NDArray[np.int32]) -> MapResult:
    """Score the labelings of an engine that knows no bounds afresh."""
    return MapResult(labels, graphs.labeling_scores(scores, labels), np.full(graphs.n_examples, np.inf))


def concatenate_results(parts: Sequence[MapResult]) -> MapResult:
    """The answer for a batch from the answers for its pieces, in order."""
    ambiguous = [part.ambiguous for part in parts if part.ambiguous is not None]
    return MapResult(
        np.concatenate([part.labels for part in parts]),
        np.concatenate([part.values for part in parts]),
        np.concatenate([part.bounds for part in parts]),
        np.concatenate(ambiguous) if len(ambiguous) == len(parts) else None,
    )


def once_per_structures(compute: Callable[[FactorGraphs], T]) -> Callable[[FactorGraphs], T]:
    """Keep what depends on the structures alone for as long as they live; `FactorGraphs.take` shares them.

    Two threads that ask for the same structures at once may both compute; they get equal answers.
    """
    kept: dict[int, tuple[weakref.ref[Any], T]] = {}

    def forget(dead: weakref.ref[Any], key: int) -> None:
        if key in kept and kept[key][0] is dead:
            del kept[key]

    def recall(graphs: FactorGraphs) -> T:
        # All batches over the same structures share this array; arrays cannot be keys, but can be referred to weakly.
        anchor = graphs.arrays.structures
        key = id(anchor)
        found = kept.get(key)
        if found is not None and found[0]() is anchor:
            return found[1]
        made = compute(graphs)
        kept[key] = (weakref.ref(anchor, lambda dead: forget(dead, key)), made)
        return made

    return recall


def room_per_structures(make: Callable[[FactorGraphs], T]) -> Callable[[FactorGraphs], AbstractContextManager[T]]:
    """Keep room to work in with the structures; each call of an engine borrows its own, since making it may take longer."""

    @once_per_structures
    def pool(graphs: FactorGraphs) -> Pool[T]:
        return Pool()

    def borrow(graphs: FactorGraphs) -> AbstractContextManager[T]:
        return pool(graphs).borrow(lambda: make(graphs))

    return borrow

"""Batches: any engine over shards of a batch, in threads, and predictions that never have all score tables in memory.

A batch is cut into runs of consecutive examples of about equal work, counted in states and joint states. Each shard is
a view of the batch: nothing but its table of offsets is copied. Engines answer every example on its own, so the joined
answer has the same bits whatever the shards and the number of threads. An engine that keeps something from example to
example, as the linear program keeps its last basis, gets its examples in order and in one thread, which is all that its
lock would allow anyway: it says ``sequential = True``, and so does a wrapper of it.

`maximise`, `marginals` and `relax` take score tables; `predict` and `predict_marginals` take weights, and fill the
tables of one shard when its turn comes. A shard of `predict` is small, so that an engine finds the scores still in the
processor's cache: on chains that saves more time than the shards cost.

An error names the example by its number in the whole batch.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from maxmargin.errors import OptionError
from maxmargin.inference.contract import MapResult, Marginals, Relaxed, check_scores, concatenate_results
from maxmargin.parallel.threads import map_shards, n_threads
from maxmargin.problems.factor_graphs import FactorGraphs, Scores

T = TypeVar("T")

#: Size of the score tables of a shard of `predict`, at most, give or take an example.
_SHARD_BYTES = 4 << 20
#: Shards for threads to share out, at least.
_SHARDS = 16


class Maximiser(Protocol):
    """What finds labelings; every `Engine` does."""

    def maximise(self, graphs: FactorGraphs, scores: Scores) -> MapResult:
        """Find a labeling of every example."""
        ...


class Marginaliser(Protocol):
    """What finds marginals; every `Engine` does, or says why not."""

    def marginals(self, graphs: FactorGraphs, scores: Scores, temperature: float = 1.0) -> Marginals:
        """Compute the marginals of every variable and factor."""
        ...


class Relaxer(Protocol):
    """What solves a relaxation: `graph_cut`, `linear_program`."""

    def relax(self, graphs: FactorGraphs, scores: Scores) -> Relaxed:
        """Solve the relaxation of every example."""
        ...


def maximise(graphs: FactorGraphs, scores: Scores, engine: Maximiser, n_jobs: int | None = None) -> MapResult:
    """Best labeling of every example.

    Parameters
    ----------
    graphs : FactorGraphs
    scores : Scores
    engine : Maximiser
    n_jobs : int, optional
        Threads; None is 1, and -1 is one a core.
    """
    return concatenate_results(_over_scores(engine.maximise, graphs, scores, engine, n_jobs))


def marginals(
    graphs: FactorGraphs, scores: Scores, engine: Marginaliser, temperature: float = 1.0, n_jobs: int | None = None
) -> Marginals:
    """Marginals of every variable and factor, and log partition functions.

    Parameters
    ----------
    graphs : FactorGraphs
    scores : Scores
    engine : Marginaliser
    temperature : float
    n_jobs : int, optional
        Threads; None is 1, and -1 is one a core.
    """

    def of_shard(part: FactorGraphs, tables: Scores) -> Marginals:
        return engine.marginals(part, tables, temperature)

    return Marginals(*_join(_over_scores(of_shard, graphs, scores, engine, n_jobs)))


def relax(graphs: FactorGraphs, scores: Scores, engine: Relaxer, n_jobs: int | None = None) -> Relaxed:
    """Optimum of the engine's relaxation of every example.

    Parameters
    ----------
    graphs : FactorGraphs
    scores : Scores
    engine : Relaxer
    n_jobs : int, optional
        Threads; None is 1, and -1 is one a core.
    """
    return Relaxed(*_join(_over_scores(engine.relax, graphs, scores, engine, n_jobs)))


def predict(
    graphs: FactorGraphs,
    weights: NDArray[np.float64],
    engine: Maximiser,
    n_jobs: int | None = None,
    chunk_bytes: int = 64 << 20,
    loss_augmented: bool = False,
) -> MapResult:
    """Best labeling of every example under the flat weights.

    Parameters
    ----------
    graphs : FactorGraphs
    weights : float array (n_weights,)
    engine : Maximiser
    n_jobs : int, optional
        Threads; None is 1, and -1 is one a core.
    chunk_bytes : int
        Size of the score tables in memory at a time, by all threads, give or take an example a thread.
    loss_augmented : bool
        Add the task loss to the scores, which makes the best labeling the most violated one.
    """
    return concatenate_results(
        _over_weights(engine.maximise, graphs, weights, engine, n_jobs, chunk_bytes, loss_augmented)
    )


def predict_marginals(
    graphs: FactorGraphs,
    weights: NDArray[np.float64],
    engine: Marginaliser,
    temperature: float = 1.0,
    n_jobs: int | None = None,
    chunk_bytes: int = 64 << 20,
    with_factors: bool = False,
) -> Marginals:
    """Marginals of every example under the flat weights.

    Parameters
    ----------
    graphs : FactorGraphs
    weights : float array (n_weights,)
    engine : Marginaliser
    temperature : float
    n_jobs : int, optional
        Threads; None is 1, and -1 is one a core.
    chunk_bytes : int
        Size of the score tables in memory at a time, by all threads, give or take an example a thread.
    with_factors : bool
        Keep the factors' marginals, which are as large as all score tables; otherwise ``factors`` is empty.
    """

    def of_shard(part: FactorGraphs, tables: Scores) -> Marginals:
        found = engine.marginals(part, tables, temperature)
        return found if with_factors else found._replace(factors=np.empty(0))

    return Marginals(*_join(_over_weights(of_shard, graphs, weights, engine, n_jobs, chunk_bytes, False)))


# ------------------------------------------------------------------------------------------------------------- shards


def _over_scores(
    answer: Callable[[FactorGraphs, Scores], T],
    graphs: FactorGraphs,
    scores: Scores,
    engine: object,
    n_jobs: int | None,
) -> list[T]:
    tables, threads = check_scores(graphs, scores), _threads(engine, n_jobs)
    states, joint = graphs.example_states, graphs.example_tables

    def of_shard(part: FactorGraphs, begin: int, end: int) -> T:
        return answer(part, Scores(_run(tables.variables, states, begin, end), _run(tables.factors, joint, begin, end)))

    return _over_shards(of_shard, graphs, 1 if threads == 1 else _SHARDS, threads)


def _over_weights(
    answer: Callable[[FactorGraphs, Scores], T], graphs: FactorGraphs, weights: NDArray[np.float64], engine: object,
    n_jobs: int | None, chunk_bytes: int, loss_augmented: bool,
) -> list[T]:  # fmt: skip
    if not chunk_bytes >= 1:
        raise OptionError(f"chunk_bytes={chunk_bytes!r} is not possible; it must be at least 1.")
    threads, working = _threads(engine, n_jobs), graphs.working_weights(np.ascontiguousarray(weights, np.float64))

    def of_shard(part: FactorGraphs, begin: int, end: int) -> T:
        return answer(part, part.scores_of(working, loss_augmented))

    n_bytes = 8 * int(graphs.example_states[-1] + graphs.example_tables[-1])
    count = -(-n_bytes // max(1, min(_SHARD_BYTES, chunk_bytes // threads)))
    return _over_shards(of_shard, graphs, max(count, 1 if threads == 1 else _SHARDS), threads)


def _over_shards(
    answer: Callable[[FactorGraphs, int, int], T], graphs: FactorGraphs, count: int, threads: int
) -> list[T]:
    """Answers for about `count` shards of equal work, in order."""

    def of_shard(begin: int, end: int) -> T:
        return answer(graphs.slice(begin, end), begin, end)

    work = graphs.example_states + graphs.example_tables
    cuts = np.unique(np.searchsorted(work, np.linspace(0, work[-1], count + 1))).tolist()
    return map_shards(of_shard, list(itertools.pairwise(cuts)), threads, pausing=True)


def _threads(engine: object, n_jobs: int | None) -> int:
    threads = n_threads(n_jobs)
    return 1 if getattr(engine, "sequential", False) else threads


def _run(values: NDArray[Any], starts: NDArray[np.int64], begin: int, end: int) -> NDArray[Any]:
    return values[starts[begin] : starts[end]]


def _join(parts: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Concatenate the arrays of named tuples, field by field; a field that no part has stays None."""
    return [None if one[0] is None else np.concatenate(one) for one in zip(*parts, strict=True)]

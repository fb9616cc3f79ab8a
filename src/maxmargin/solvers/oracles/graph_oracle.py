"""The max-oracle of factor graphs: an inference engine, asked for the most violated labeling of examples.

What the oracle's answers are worth is the *certificate* of whoever uses it: "exact" with an exact engine, "relaxed" with one that
maximises over the local polytope, "none" with one that may miss the best labeling. An engine that has a plan (`Engine` in
inference/contract.py) is asked inside compiled loops (`compiled`); others are called a batch at a time. One that is bounded may
miss the best labeling, but bounds its score: labelings bound the exact problem from below, and the bounds do so from above.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.errors import OptionError
from maxmargin.inference import Engine, batches, engine
from maxmargin.inference.choice import choose_oracle, is_exact
from maxmargin.inference.contract import MapResult, Relaxed
from maxmargin.inference.dual_decomposition import DualDecomposition
from maxmargin.jit import kernel
from maxmargin.parallel.pool import Pool
from maxmargin.parallel.threads import map_shards, pause
from maxmargin.problems.factor_graphs import FactorGraphs, Scores
from maxmargin.problems.features import Features
from maxmargin.problems.statistics import add_example, n_groups, plane_of_labels, project_example
from maxmargin.problems.structured import FactorRoom
from maxmargin.solvers.oracles.compiled import (
    NOTHING_GIVEN,
    CliqueOracle,
    CompiledOracle,
    Given,
    Work,
    compiled_oracle,
    find_plane,
    marginals_plane,
    workspace,
)
from maxmargin.solvers.oracles.plane_search import rows_of_planes
from maxmargin.solvers.planes.mean_plane import MeanPlane

#: Most shards of a sum over all examples.
_SHARDS = 16
#: Shards of examples whose hinges are asked for: between two of them a run can be stopped.
_HINGE_SHARDS = 64
#: Entries of the planes that an engine outside compiled loops finds at a time.
_ENTRIES = 1 << 20


class GraphOracle:
    """An inference engine as the max-oracle of factor graphs.

    Parameters
    ----------
    problem : FactorGraphs
    chosen : "auto", str or engine
    loss_augmented : bool
        False leaves the task loss out: the planes are those of predictions.
    """

    def __init__(self, problem: FactorGraphs, chosen: str | Engine = "auto", loss_augmented: bool = True) -> None:
        if not loss_augmented:
            problem = problem.without_losses()
        self.problem = problem
        self.n_examples, self.n_weights, self.weight = problem.n_examples, problem.n_weights, problem.arrays.weight
        if isinstance(chosen, str) and chosen == "auto":
            self.engine, self.reason = choose_oracle(problem)
        else:
            self.engine, self.reason = engine(chosen), "as asked"
        refusal = self.engine.refusal(problem)
        if refusal is not None:
            raise OptionError(f'The engine "{self.engine.name}" cannot be the oracle here. {refusal}')
        self.relaxes = not self.engine.exact and hasattr(self.engine, "relax")
        #: Whether labelings come with bounds from above, which bracket the exact problem although the engine may miss the best.
        self.bounds = getattr(self.engine, "bounded", False)
        exact = is_exact(self.engine, problem) or self.bounds
        self.certificate = "exact" if exact else "relaxed" if self.relaxes else "none"
        self.name = self.engine.name
        #: The same with more effort, for a run that what the engine leaves open keeps from its end, and whether it is asked.
        self.thorough = DualDecomposition() if chosen == "auto" and self.bounds else None
        self.in_earnest = False
        self.sequential = bool(getattr(self.engine, "sequential", False))
        self.compiled = compiled_oracle(problem, self.engine)
        self._works: Pool[Work] = Pool()

    @property
    def asked(self) -> Engine:
        """The engine that answers."""
        return self.thorough if self.in_earnest and self.thorough is not None else self.engine

    def workspace(self) -> AbstractContextManager[Work]:
        """Room for a call of a compiled loop with this oracle."""
        largest, compiled = self.problem.arrays.largest, self.compiled
        return self._works.borrow(lambda: workspace(largest, None if compiled is None else compiled.room(largest)))

    @property
    def projection_work(self) -> float:
        """Operations that project the weights onto an example, on average."""
        p = self.problem
        rows = n_groups(p)[p.structure_of].mean(axis=0)
        sides = (p.n_variable_blocks, p.variable_features), (p.n_factor_blocks, p.factor_features)
        return float(sum(n * blocks * row_entries(features) for n, (blocks, features) in zip(rows, sides, strict=True)))

    @property
    def work(self) -> float:
        """Operations of one oracle call, on average: a few for each score, many more for engines that search."""
        p = self.problem
        if isinstance(self.compiled, CliqueOracle):
            # The tables of its cliques may have many more entries than there are scores.
            return 2.0 * float(self.compiled.trees.needs.tables[p.structure_of].mean())
        size = float(p.example_states[-1] + p.example_tables[-1]) / p.n_examples
        return size * float(getattr(self.engine, "operations", 1000.0))

    @cached_property
    def shards(self) -> list[tuple[int, int]]:
        """Examples whose planes are summed by a thread.

        The sum is dense: it must be small beside the work of finding the planes, and memory is slower than arithmetic.
        """
        work = self.n_examples * (self.projection_work + self.work)
        n = max(1, min(_SHARDS, self.n_examples, int(work / (8 * max(1, self.n_weights)))))
        return list(itertools.pairwise(np.linspace(0, self.n_examples, n + 1).astype(int).tolist()))

    def compile(self) -> None:
        """Compile what finds mean planes before any clock starts: called with nothing to do."""
        w, nothing = self.problem.working_weights(), np.empty(0, np.int64)
        with self.workspace() as room:
            add_planes(self.problem.batch, *w, self.compiled or NOTHING_GIVEN, room, nothing, *w, np.empty(0))

    def mean_plane(self, w: NDArray[np.float64], threads: int) -> MeanPlane:
        """The mean of the planes of largest slope at w."""
        p, hinges = self.problem, np.empty(self.n_examples)
        w_v, w_f = p.working_weights(w)

        def sum_of(begin: int, end: int) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
            out, ell = p.working_weights(), 0.0
            for chosen, oracle, bounds in self.answers(w_v, w_f, begin, end):
                at = hinges[chosen[0] : chosen[-1] + 1]
                with self.workspace() as work:
                    ell += add_planes(p.batch, w_v, w_f, oracle, work, chosen, *out, at)
                if bounds is not None:
                    at[:] = bounds
            return ell, *out

        ell, psi_v, psi_f = 0.0, *p.working_weights()
        for more, more_v, more_f in map_shards(sum_of, self.shards, threads, pausing=True):
            ell += more
            psi_v += more_v
            psi_f += more_f
        return MeanPlane.of(p.flat_weights(psi_v, psi_f) / self.n_examples, ell / self.n_examples, hinges)

    def planes(self, w: NDArray[np.float64], examples: NDArray[np.int64]) -> tuple[Any, NDArray[np.float64]]:
        """The planes of largest slope at w of some examples."""
        p, chosen = self.problem, np.asarray(examples, np.int64)
        found, _ = self.answer(*p.working_weights(w), chosen)
        psi = rows_of_planes(p, chosen, found, working=False)
        return or_truth(psi, found.ell, found.ell - psi @ w)

    def answers(
        self, w_v: NDArray[np.float64], w_f: NDArray[np.float64], begin: int, end: int
    ) -> Iterator[tuple[NDArray[np.int64], Any, NDArray[np.float64] | None]]:
        """Who answers for the examples of a shard, piece by piece: the compiled oracle, or planes found before, with bounds."""
        if self.compiled is not None:
            yield np.arange(begin, end), self.compiled, None
            return
        size = max(1, _ENTRIES // (2 * int(self.problem.arrays.largest.buffer) + 1))
        for first in range(begin, end, size):
            pause()
            chosen = np.arange(first, min(first + size, end))
            yield chosen, *self.answer(w_v, w_f, chosen)

    def most_violated(self, w_v: NDArray[np.float64], w_f: NDArray[np.float64], examples: NDArray[np.int64]) -> Given:
        """The planes of largest slope of some examples, in their order."""
        p = self.problem
        found = self.room(len(examples))
        if len(examples) == 0:
            return found
        if self.compiled is not None:
            with self.workspace() as work:
                ask(p.batch, w_v, w_f, self.compiled, work, examples, found)
            return found
        part = p.take(examples, keep_numbers=True)
        scores = part.scores_of((w_v, w_f), loss_augmented=True)
        if self.relaxes:
            relaxed: Relaxed = self.engine.relax(part, scores)  # type: ignore[attr-defined]
            work = workspace(part.arrays.largest)
            planes_of_marginals(part.batch, work, relaxed.variables, relaxed.factors, found)
        else:
            write_planes(part, self.asked.maximise(part, scores).labels, found)
        return found

    def with_given(self, planes: Given) -> Given | CompiledOracle:
        """The oracle of compiled loops, answering with planes that were found before: of one type for one engine."""
        return planes if self.compiled is None else self.compiled._replace(given=planes)

    def answer(
        self, w_v: NDArray[np.float64], w_f: NDArray[np.float64], examples: NDArray[np.int64]
    ) -> tuple[Given, NDArray[np.float64] | None]:
        """The planes of some examples, and bounds on their hinges where those say more than the planes."""
        if not self.bounds:
            return self.most_violated(w_v, w_f, examples), None
        part = self.problem.take(examples, keep_numbers=True)
        scores = part.scores_of((w_v, w_f), loss_augmented=True)
        best = self.asked.maximise(part, scores)
        found = self.room(len(examples))
        write_planes(part, best.labels, found)
        return found, best.bounds - part.labeling_scores(scores, part.labels)

    def room(self, n: int) -> Given:
        """Room for the planes of n examples."""
        room = n * 2 * int(self.problem.arrays.largest.buffer)
        return Given(np.zeros(n + 1, np.int64), np.empty(room, np.int32), np.empty(room), np.empty(n))

    def hinges(self, w_v: NDArray[np.float64], w_f: NDArray[np.float64], threads: int) -> NDArray[np.float64]:
        """H_m(w) of all examples: exactly, or a bound from above if the engine has one, or else what it found."""
        if self.compiled is not None:
            out, compiled = np.empty(self.n_examples), self.compiled

            def of_shard(begin: int, end: int) -> None:
                with self.workspace() as work:
                    find_hinges(self.problem.batch, w_v, w_f, compiled, work, begin, out[begin:end])

            cuts = np.linspace(0, self.n_examples, min(_HINGE_SHARDS, self.n_examples) + 1).astype(int).tolist()
            map_shards(of_shard, list(itertools.pairwise(cuts)), threads, pausing=True)
            return out
        found = batches.predict(
            self.problem, self.problem.flat_weights(w_v, w_f), _Hinges(self.asked), threads, loss_augmented=True
        )
        return found.bounds if self.certificate != "none" else found.values


def write_planes(part: FactorGraphs, labels: NDArray[np.int32], found: Given) -> None:
    """The planes of one labeling of every example."""
    largest = part.arrays.largest
    own = FactorRoom(np.empty(largest.slots, np.int32), np.empty(2 * largest.table))
    planes_of_labels(part.batch, workspace(largest), own, labels, found)


def or_truth(psi: Any, ell: NDArray[np.float64], slope: NDArray[np.float64]) -> tuple[Any, NDArray[np.float64]]:
    """Planes, with that of the truth where it is better."""
    worse = slope < 0.0
    if worse.any():
        psi, ell = sp.diags_array((~worse).astype(float)).tocsr() @ psi, np.where(worse, 0.0, ell)
    return psi, ell


class _Hinges:
    """An engine whose answers are relative to the truth."""

    def __init__(self, chosen: Engine) -> None:
        self.chosen = chosen
        self.sequential = getattr(chosen, "sequential", False)

    def maximise(self, graphs: FactorGraphs, scores: Scores) -> MapResult:
        """Hinges in place of scores."""
        found, truth = self.chosen.maximise(graphs, scores), graphs.labeling_scores(scores, graphs.labels)
        return found._replace(values=found.values - truth, bounds=found.bounds - truth)


def row_entries(features: Features) -> float:
    """Mean number of entries of a feature row."""
    return len(features.arrays.indices) / max(1, features.shape[0]) if features.sparse else float(features.shape[1])


# ------------------------------------------------------------------------------------------------------- kernels


@kernel
def add_planes(
    batch: Any, w_v: Any, w_f: Any, oracle: Any, work: Any, chosen: Any, out_v: Any, out_f: Any, hinges: Any
) -> float:
    """Add weight_m psi_m of the planes of largest slope to out; returns the sum of weight_m ell_m."""
    weight, z, change, index, value = batch.graphs.weight, work.z, work.change, work.index, work.value
    total = 0.0
    for k in range(len(chosen)):
        m = chosen[k]
        project_example(batch, m, w_v, w_f, z)
        n, ell = find_plane(oracle, batch, work, k, m, index, value, 0)
        slope = ell
        for e in range(n):
            slope -= value[e] * z[index[e]]
        hinges[k] = max(slope, 0.0)
        # Otherwise the truth is at least as good, which has a plane of zeros.
        if slope > 0.0:
            total += weight[m] * ell
            for e in range(n):
                change[index[e]] = value[e]
            add_example(batch, m, change, weight[m], out_v, out_f)
            for e in range(n):
                change[index[e]] = 0.0
    return total


@kernel
def find_hinges(batch: Any, w_v: Any, w_f: Any, oracle: Any, work: Any, first: int, hinges: Any) -> None:
    """Hinges of the examples from `first` on."""
    z, index, value = work.z, work.index, work.value
    for k in range(len(hinges)):
        project_example(batch, first + k, w_v, w_f, z)
        n, slope = find_plane(oracle, batch, work, k, first + k, index, value, 0)
        for e in range(n):
            slope -= value[e] * z[index[e]]
        hinges[k] = max(slope, 0.0)


@kernel
def ask(batch: Any, w_v: Any, w_f: Any, oracle: Any, work: Any, chosen: Any, found: Any) -> None:
    """Planes of the chosen examples by an oracle that is compiled."""
    start, index, value, ell = found.start, found.entry, found.value, found.ell
    for k in range(len(chosen)):
        project_example(batch, chosen[k], w_v, w_f, work.z)
        n, ell[k] = find_plane(oracle, batch, work, k, chosen[k], index, value, start[k])
        start[k + 1] = start[k] + n


@kernel
def planes_of_labels(batch: Any, work: Any, own: Any, labels: Any, found: Any) -> None:
    """Planes of one labeling of every example."""
    examples, tally, touched = batch.graphs.examples, work.tally, work.touched
    start, index, value, ell = found.start, found.entry, found.value, found.ell
    for m in range(len(ell)):
        n, ell[m] = plane_of_labels(
            batch, m, labels, examples[m].variables, tally, touched, index, value, start[m], own
        )
        start[m + 1] = start[m] + n


@kernel
def planes_of_marginals(batch: Any, work: Any, mu: Any, table: Any, found: Any) -> None:
    """Planes of the marginals of every example."""
    examples = batch.graphs.examples
    start, index, value, ell = found.start, found.entry, found.value, found.ell
    for m in range(len(ell)):
        mu_v, mu_f = mu[examples[m].states : examples[m + 1].states], table[examples[m].tables : examples[m + 1].tables]
        n, ell[m] = marginals_plane(batch, work, m, mu_v, mu_f, index, value, start[m])
        start[m + 1] = start[m] + n

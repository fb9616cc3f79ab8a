"""The max-oracle of factor graphs: an inference engine, asked for the most violated labeling of examples.

What the oracle's answers are worth is the *certificate* of whoever uses it: "exact" with an exact engine, "relaxed" with one that
maximises over the local polytope, "none" with one that may miss the best labeling. `trees` and `graph_cut` can be asked inside
compiled loops (`compiled`); the others are called a batch at a time. `dual_decomposition` may miss the best labeling, but bounds
its score: labelings bound the exact problem from below, and the bounds do so from above.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.errors import OptionError
from maxmargin.inference import Engine, batches, engine
from maxmargin.inference.choice import choose_oracle
from maxmargin.inference.contract import MapResult, Relaxed
from maxmargin.inference.graph_cut import network
from maxmargin.inference.trees import schedule
from maxmargin.jit import kernel
from maxmargin.parallel.pool import Pool
from maxmargin.problems.factor_graphs import FactorGraphs, Scores
from maxmargin.problems.features import Features
from maxmargin.problems.statistics import n_groups, plane_of_labels, project_example
from maxmargin.problems.structured import FactorRoom
from maxmargin.solvers.oracles.compiled import (
    CutOracle,
    Given,
    TreeOracle,
    Work,
    find_plane,
    marginals_plane,
    workspace,
)


class GraphOracle:
    """An engine as a max-oracle.

    Parameters
    ----------
    problem : FactorGraphs
    chosen : "auto", str or engine
    """

    def __init__(self, problem: FactorGraphs, chosen: str | Engine = "auto") -> None:
        self.problem = problem
        if isinstance(chosen, str) and chosen == "auto":
            self.engine, self.reason = choose_oracle(problem)
        else:
            self.engine, self.reason = engine(chosen), "as asked"
        refusal = self.engine.refusal(problem)
        if refusal is not None:
            raise OptionError(f'The engine "{self.engine.name}" cannot be the oracle here. {refusal}')
        self.relaxes = not self.engine.exact and hasattr(self.engine, "relax")
        #: Whether labelings come with bounds from above, which bracket the exact problem although the engine may miss the best.
        self.bounds = self.engine.name == "dual_decomposition"
        self.certificate = "exact" if self.engine.exact or self.bounds else "relaxed" if self.relaxes else "none"
        self.compiled: TreeOracle | CutOracle | None = None
        if self.engine.name == "trees":
            self.compiled = tree_oracle(problem)
        elif self.engine.name == "graph_cut":
            self.compiled = CutOracle(network(problem))
        self._works: Pool[Work] = Pool()

    def workspace(self) -> AbstractContextManager[Work]:
        """Room for a call of a compiled loop with this oracle."""
        largest, compiled = self.problem.arrays.largest, self.compiled
        return self._works.borrow(lambda: workspace(largest, None if compiled is None else compiled.room(largest)))

    @property
    def view_work(self) -> float:
        """Operations of one look at an example without the oracle, on average: to project the weights onto it."""
        p = self.problem
        rows = n_groups(p)[p.structure_of].mean(axis=0)
        sides = (p.n_variable_blocks, p.variable_features), (p.n_factor_blocks, p.factor_features)
        return float(sum(n * blocks * row_entries(features) for n, (blocks, features) in zip(rows, sides, strict=True)))

    @property
    def work(self) -> float:
        """Operations of one oracle call, on average: a few for each score, many more for engines that search."""
        p = self.problem
        size = float(p.example_states[-1] + p.example_tables[-1]) / p.n_examples
        return size * (2.0 if self.engine.name == "trees" else 20.0 if self.compiled is not None else 1000.0)

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
            write_planes(part, self.engine.maximise(part, scores).labels, found)
        return found

    def with_given(self, planes: Given) -> Given | TreeOracle | CutOracle:
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
        best = self.engine.maximise(part, scores)
        found = self.room(len(examples))
        write_planes(part, best.labels, found)
        return found, best.bounds - part.labeling_scores(scores, part.labels)

    def room(self, n: int) -> Given:
        """Room for the planes of n examples."""
        room = n * 2 * int(self.problem.arrays.largest.buffer)
        return Given(np.zeros(n + 1, np.int64), np.empty(room, np.int32), np.empty(room), np.empty(n))

    def hinges(self, w_v: NDArray[np.float64], w_f: NDArray[np.float64], threads: int) -> NDArray[np.float64]:
        """H_m(w) of all examples: exactly, or a bound from above if the engine has one, or else what it found."""
        found = batches.predict(
            self.problem, self.problem.flat_weights(w_v, w_f), _Hinges(self.engine), threads, loss_augmented=True
        )
        return found.bounds if self.certificate != "none" else found.values


def write_planes(part: FactorGraphs, labels: NDArray[np.int32], found: Given) -> None:
    """The planes of one labeling of every example."""
    largest = part.arrays.largest
    own = FactorRoom(np.empty(largest.slots, np.int32), np.empty(2 * largest.table))
    planes_of_labels(part.batch, workspace(largest), own, labels, found)


def tree_oracle(problem: FactorGraphs) -> TreeOracle:
    """Max-product on the statistics themselves where every factor's table is a run of them; see `TreeOracle`."""
    plan, a = schedule(problem), problem.arrays
    templates = problem.factor_templates
    runs = [
        bool((np.diff(one.blocks.ravel()) == 1).all() and one.blocks.ravel()[0] >= 0 and not one.scores.any())
        for one in templates
    ]
    if not all(runs) or len(a.factor_scores) or not templates:
        return TreeOracle(plan, False)
    # Where each factor's table begins among its structure's statistics.
    group = np.repeat(np.arange(len(a.factor_groups)), a.factor_groups.last - a.factor_groups.first)
    first_block = a.factor_block[a.factor_kinds[a.factors.template].start]
    place = a.factor_groups[group].at + first_block - a.factor_groups[group].block
    owner = np.repeat(np.arange(len(problem.structures)), np.diff(a.structures.factors))
    steps = plan.steps.copy()
    by_table = np.argsort(owner * (a.factors.table.max() + 1) + a.factors.table)
    by_step = np.argsort(owner * (steps.table.max() + 1) + steps.table)
    steps.table[by_step] = place[by_table]
    return TreeOracle(plan._replace(steps=steps), True)


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
    return len(features.arrays.data) / max(1, features.shape[0]) if features.sparse else float(features.shape[1])


# ------------------------------------------------------------------------------------------------------- kernels


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

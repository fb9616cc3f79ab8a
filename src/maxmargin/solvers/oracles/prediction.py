"""Best labelings at weights by engines that compiled loops can ask: no table of scores is made for factors that share weights.

`predict` answers as `batches.predict` does. Max-product, on trees or on clique trees, reads the example's statistics where factors'
tables are runs of them (compiled.py): along a chain all transitions are one table, which stays in the processor's cache.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.inference import Engine, MapResult, batches
from maxmargin.inference.contract import check_refusal
from maxmargin.jit import inner, kernel
from maxmargin.parallel.pool import Pool
from maxmargin.parallel.threads import map_shards, n_threads
from maxmargin.problems.factor_graphs import FactorGraphs
from maxmargin.problems.layout import joint_state
from maxmargin.problems.statistics import project_example
from maxmargin.solvers.oracles.compiled import CliqueOracle, TreeOracle, Work, best_labels, compiled_oracle, workspace

#: Shards of examples; between two of them a prediction can be stopped.
_SHARDS = 64


def predict(
    problem: FactorGraphs, weights: NDArray[np.float64], engine: Engine, n_jobs: int | None = None
) -> MapResult:
    """Best labeling of every example under the flat weights; see `batches.predict`."""
    check_refusal(engine, problem)
    oracle = compiled_oracle(problem, engine) if problem.example_factors[-1] else None
    if not isinstance(oracle, TreeOracle | CliqueOracle):
        return batches.predict(problem, weights, engine, n_jobs)
    found, values = np.empty(len(problem.labels), np.int32), np.empty(problem.n_examples)
    batch, largest = problem.without_losses().batch, problem.arrays.largest
    w_v, w_f = problem.working_weights(np.ascontiguousarray(weights, np.float64))

    rooms: Pool[Work] = Pool()

    def of_shard(begin: int, end: int) -> None:
        with rooms.borrow(lambda: workspace(largest, oracle.room(largest))) as work:
            _predict(batch, w_v, w_f, oracle, work, begin, end, found, values)

    cuts = np.linspace(0, problem.n_examples, min(_SHARDS, problem.n_examples) + 1).astype(int).tolist()
    map_shards(of_shard, list(itertools.pairwise(cuts)), n_threads(n_jobs), pausing=True)
    if not np.isfinite(values).all():
        # There the error is made that names the example.
        return batches.predict(problem, weights, engine, n_jobs)
    return MapResult(found, values, values.copy())


# ------------------------------------------------------------------------------------------------------- kernels


@kernel
def _predict(
    batch: Any, w_v: Any, w_f: Any, oracle: Any, work: Any, begin: int, end: int, found: Any, values: Any
) -> None:  # fmt: skip
    """Labelings of the examples from begin to end, and their scores."""
    examples, labels, z = batch.graphs.examples, work.labels, work.z
    for m in range(begin, end):
        project_example(batch, m, w_v, w_f, z)
        best_labels(oracle, batch, work, m)
        values[m] = _score(batch, m, labels, work.theta_v, z)
        for v in range(examples[m].variables, examples[m + 1].variables):
            found[v] = labels[v - examples[m].variables]


@inner
def _score(batch: Any, m: int, labels: Any, theta_v: Any, z: Any) -> float:
    """The score of a labeling of example m, from the tables of its variables and the statistics of its factors."""
    g, side = batch.graphs, batch.factors
    examples, s = g.examples, g.examples[m].structure
    first, value = g.structures[s].variables, 0.0
    for v in range(examples[m + 1].variables - examples[m].variables):
        value += theta_v[g.variables[first + v].table + labels[v]]
    groups, members, kinds, blocks, fixed, extra = (
        side.groups, side.members, side.kinds, side.block, side.fixed, side.scores,
    )  # fmt: skip
    first = side.first_member[s]
    for q in range(side.first_group[s], side.first_group[s + 1]):
        place = side.at + groups[q].at - groups[q].block
        for c in range(first + groups[q].first, first + groups[q].last):
            y = joint_state(c, 0, members, g.scope, kinds, g.slots, labels)
            entry = kinds[members[c].template].start + y
            value += fixed[entry]
            if blocks[entry] >= 0:
                value += z[place + blocks[entry]]
            if len(extra) > 0:
                value += extra[side.first_score[m] + members[c].table + y]
    return value

"""The joint oracle of cutting planes: one plane for all examples, found by their oracles, or put together from a cache.

T. Joachims, T. Finley and C.-N. Yu, Cutting-Plane Training of Structural SVMs, Machine Learning 77, 2009, algorithms
3 and 4, line 6, and section 4. The mean of the examples' planes is a plane of the mean hinge:

    psi = 1/M sum_m weight_m psi_m,    ell = 1/M sum_m weight_m ell_m,    mean hinge at w >= ell - w . psi

`find` asks the max-oracle of every example; `recall` takes, for every example, the best of the last f planes that its oracle found
(or the truth, psi = 0 and ell = 0), which is a true plane too, and costs no oracle call.

Conventions
-----------
Vectors are *working* vectors, shape (size,): for factor graphs the feature-major weights of variables, then those of factors, so
that no call turns millions of weights around; for other problems the flat weights. `flat` turns one into flat weights, `working`
does the opposite. Planes are sparse, their indices sorted.

The cache is an arena of planes (planes/arena.py) without masses: entries of the examples' statistics for factor graphs, of the flat
weights for other problems. Examples are dealt to fixed shards, each with a segment of the arena of its own: shards are searched in
threads, and sums over examples are taken in order afterwards, so bits do not depend on the threads.

With a kernel vectors are coefficients of the training rows, w = sum_r A[r] phi(x_r), in the place of weights;
`image` gives K A, where scores are read.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.devices.vectors import erase, nonzeros
from maxmargin.inference import Engine
from maxmargin.parallel.threads import map_shards, run_shards
from maxmargin.problems.factor_graphs import FactorGraphs
from maxmargin.problems.features import Features, KernelFeatures
from maxmargin.problems.python_problem import PythonProblem
from maxmargin.solvers.oracles.compiled import NOTHING_GIVEN, Given
from maxmargin.solvers.oracles.graph_oracle import GraphOracle
from maxmargin.solvers.oracles.max_oracle import MaxOracle, graph_oracle_of, oracle_of
from maxmargin.solvers.oracles.plane_search import (
    Turn,
    add_planes,
    add_rows,
    add_singles,
    recall,
    recall_rows,
    remember,
    remember_rows,
    rows_of_planes,
)
from maxmargin.solvers.planes.arena import Arena
from maxmargin.solvers.planes.mean_plane import MeanPlane

#: Shards of examples: so many that the last ones do not leave a thread waiting for long.
_SHARDS = 32
#: Entries that are counted at a time: NumPy copies what it counts.
_COUNTED = 1 << 22
#: Scores of all rows are made at once if there are at most so many for an entry of a kept plane.
_MANY = 2.0
#: Operations of a shard in compiled code, at least: to begin one takes as long as some ten thousand.
_SHARD_WORK = 4e6
#: Examples that an oracle outside compiled code is asked about at a time.
_BATCH = 256


class JointOracle:
    """The max-oracle of any problem, asked for all its examples.

    Parameters
    ----------
    problem : FactorGraphs or oracle problem
    inference : "auto", str or engine
    rescaling : "margin" or "slack"
    """

    #: Whether planes of single examples can be kept.
    recalls = True

    def __init__(self, problem: Any, engine: str | Engine = "auto", rescaling: str = "margin") -> None:
        self.oracle = self.oracle_of_examples(problem, engine, rescaling)
        self.certificate, self.name, self.reason = self.oracle.certificate, self.oracle.name, self.oracle.reason
        self.n_examples, self.weight = self.oracle.n_examples, self.oracle.weight
        self.size = self.oracle.n_weights
        #: Whether examples are asked about one after the other; whether planes that were found are recalled later.
        self.sequential, self.keeps = isinstance(problem, PythonProblem), True
        cuts = np.linspace(0, self.n_examples, self.n_shards(self.n_examples) + 1).astype(int).tolist()
        self.shards = list(itertools.pairwise(cuts))
        self.out = np.zeros(self.size)
        # Compiled before any clock starts.
        nothing = self.cache(1)
        self.recall(np.zeros(self.size), nothing, 1, 0)

    def oracle_of_examples(self, problem: Any, engine: str | Engine, rescaling: str) -> MaxOracle:
        """Who answers for single examples."""
        return oracle_of(problem, engine, rescaling=rescaling)

    def n_shards(self, n_examples: int) -> int:
        """How many shards to ask about so many examples in."""
        return min(_SHARDS, n_examples)

    def cache(self, capacity: int) -> Arena:
        """An empty cache of so many planes an example, beside the truth."""
        room = 8 * -(-self.n_examples // len(self.shards)) + 64
        return Arena.empty(self.n_examples, 1 + capacity, room, len(self.shards), products=False)

    def flat(self, vector: NDArray[np.float64]) -> NDArray[np.float64]:
        """A working vector as flat weights."""
        return vector.copy()

    def working(self, flat: NDArray[Any]) -> NDArray[Any]:
        """Numbers of flat weights in the order of a working vector."""
        return flat.copy()

    def image(self, vector: NDArray[np.float64]) -> NDArray[np.float64]:
        """What a vector means to the scores: itself, but for kernels."""
        return vector

    @property
    def has_images(self) -> bool:
        """Whether images are other vectors."""
        return False

    def find(self, u: NDArray[np.float64], cache: Arena, threads: int, now: int) -> tuple[MeanPlane, Arena]:
        """The plane of largest slope at u; the planes of its examples are in the cache afterwards, which may have moved."""
        turn = Turn.of(self.n_examples, now)
        cache = self.ask(u, cache, turn, self.shards, threads, pausing=True)
        plane = self.joint(cache, turn, threads)
        return plane._replace(hinges=np.where(np.isnan(turn.bounds), turn.hinges, turn.bounds)), cache

    def ask(
        self,
        u: NDArray[np.float64],
        cache: Arena,
        turn: Turn,
        shards: Sequence[tuple[int, int]],
        threads: int,
        pausing: bool = False,
        segments: Sequence[tuple[int, int]] | None = None,
    ) -> Arena:
        """Put the planes of largest slope of some examples into the cache, a segment a shard; it may have moved afterwards.

        `segments` are the examples whose planes each segment has, where those are more than are asked about.
        """
        done = [begin for begin, _ in shards]

        def search(shard: int, _: int) -> None:
            done[shard] = self.search(done[shard], shards[shard][1], u, cache, turn._replace(shard=shard))

        left = [shard for shard, (begin, end) in enumerate(shards) if begin < end]
        while left:
            map_shards(search, [(shard, shard) for shard in left], 1 if self.sequential else threads, pausing)
            left = [shard for shard in left if done[shard] < shards[shard][1]]
            if left:
                cache = cache.with_room(0, self.widest, segments or shards)
        return cache

    def recall(self, u: NDArray[np.float64], cache: Arena, threads: int, now: int) -> MeanPlane:
        """The best plane that the cache has for u."""
        turn = Turn.of(self.n_examples, now)
        self.pick(u, cache, turn, threads)
        return self.joint(cache, turn, threads)

    def joint(self, cache: Arena, turn: Turn, threads: int) -> MeanPlane:
        """The mean of the planes picked."""
        erase(self.out, threads)
        ell = self.add(cache, turn.picks, self.out, threads) / self.n_examples
        return MeanPlane(*nonzeros(self.out, 1.0 / self.n_examples, threads), ell, turn.hinges)

    # ------------------------------------------------------------------------------------------------ by kind of problem

    #: Entries that the next plane may have.
    widest = 1 << 16

    def search(self, first: int, end: int, u: NDArray[np.float64], cache: Arena, turn: Turn) -> int:
        """Ask about the examples from `first` to `end`, in a shard's segment; returns where that was full, or the end."""
        while first < end:
            chosen = np.arange(first, min(first + _BATCH, end))
            psi, ell = self.oracle.planes(u, chosen)
            self.widest = max(self.widest, int(psi.nnz))
            rows = np.asarray(psi.indptr, np.int64), np.asarray(psi.indices, np.int32), np.asarray(psi.data, np.float64)
            first += remember_rows(cache, chosen, Given(*rows, ell), u, turn)
            bounds = getattr(self.oracle, "hinge_bounds", None)
            if bounds is not None:
                turn.bounds[chosen] = bounds[chosen]
            if first <= chosen[-1]:
                break
        return first

    def pick(self, u: NDArray[np.float64], cache: Arena, turn: Turn, threads: int) -> None:
        """Pick the best cached plane of every example."""
        run_shards(lambda begin, end: recall_rows(cache, u, begin, end, turn), self.n_examples, threads)

    def add(self, cache: Arena, picks: NDArray[np.int32], out: NDArray[np.float64], threads: int) -> float:
        """Add weight_m psi_m of the planes picked to out; returns the sum of weight_m ell_m."""
        return float(add_rows(cache, self.weight, picks, out))

    def rows(self, cache: Arena, chosen: NDArray[np.int64]) -> Given:
        """The first cached plane of each example chosen, in coordinates of working vectors."""
        at = cache.first[chosen] + 1
        starts = np.concatenate([[0], np.cumsum(cache.size[at])])
        places = np.arange(starts[-1]) + np.repeat(cache.start[at] - starts[:-1], np.diff(starts))
        return Given(starts, cache.entry[places], cache.value[places], cache.ell[at])


class GraphJointOracle(JointOracle):
    """The joint oracle of factor graphs.

    Of binary and multi-class problems, without a cache, one pass over the rows finds and sums the planes: a few instructions a
    state are all there is to do, and what serves any graph would take ten times as long.

    Where the rows of one side are known by a kernel alone, the identity stands in the place of the features: the weights of a row
    *are* its scores then, and a plane of such weights has the coefficients of the rows. The oracle is asked at Z = K A, and answers
    in coefficients.
    """

    oracle: GraphOracle

    def __init__(self, problem: FactorGraphs, engine: str | Engine = "auto", rescaling: str = "margin") -> None:
        self.kernels = tuple(
            one if isinstance(one, KernelFeatures) else None
            for one in (problem.variable_features, problem.factor_features)
        )
        of_variables, of_factors = self.kernels
        if of_variables is not None:
            problem = problem.with_variable_features(_identity(of_variables))
        if of_factors is not None:
            problem = problem.with_factor_features(_identity(of_factors))
        self.problem, self.single = problem, of_variables is None and is_single(problem)
        features = problem.variable_features.arrays
        w_v, w_f = problem.working_weights()
        self.shapes = w_v.shape, w_f.shape
        self.widest = 2 * int(problem.arrays.largest.buffer)
        # Entries of the features in the columns before each, so that threads can share them evenly.
        entries = features.indices if len(features.indptr) > 1 else np.arange(w_v.shape[0])
        used = np.zeros(w_v.shape[0], np.int64)
        for first in range(0, len(entries), _COUNTED):
            used += np.bincount(entries[first : first + _COUNTED], minlength=len(used))
        self.used = np.concatenate([[0], np.cumsum(used)])
        super().__init__(problem, engine, rescaling)
        self.sequential = self.oracle.sequential
        with self.oracle.workspace() as work:
            u, oracle = self.split(np.zeros(self.size)), self.oracle.compiled or NOTHING_GIVEN
            remember(problem.batch, *u, oracle, work, self.cache(1), np.empty(0, np.int64), Turn.of(0))

    def oracle_of_examples(self, problem: FactorGraphs, engine: str | Engine, rescaling: str) -> GraphOracle:
        """Who answers for single examples."""
        return graph_oracle_of(problem, engine, rescaling=rescaling)

    def n_shards(self, n_examples: int) -> int:
        """How many shards to ask about so many examples in: few, where the oracle is quick."""
        most = super().n_shards(n_examples)
        if self.oracle.compiled is None:
            return most
        return min(most, max(2, int(n_examples * self.operations / _SHARD_WORK)))

    @cached_property
    def operations(self) -> float:
        """Operations of a question about one example, on average."""
        return self.oracle.projection_work + self.oracle.work

    def split(self, vector: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The weights of variables and of factors in a working vector, as views."""
        (p, b), (q, c) = self.shapes
        return vector[: p * b].reshape(p, b), vector[p * b :].reshape(q, c)

    def flat(self, vector: NDArray[np.float64]) -> NDArray[np.float64]:
        """A working vector as flat weights."""
        w_v, w_f = self.split(vector)
        return np.concatenate([w_v.T.ravel(), w_f.T.ravel()])

    def working(self, flat: NDArray[Any]) -> NDArray[Any]:
        """Numbers of flat weights in the order of a working vector."""
        (p, b), (q, c) = self.shapes
        return np.concatenate([flat[: p * b].reshape(b, p).T.ravel(), flat[p * b :].reshape(c, q).T.ravel()])

    def search(self, first: int, end: int, u: NDArray[np.float64], cache: Arena, turn: Turn) -> int:
        """Ask about the examples from `first` to `end`, in a shard's segment; returns where that was full, or the end."""
        w_v, w_f = self.split(u)
        for chosen, oracle, known in self.oracle.answers(w_v, w_f, first, end):
            with self.oracle.workspace() as work:
                first += remember(self.problem.batch, w_v, w_f, oracle, work, cache, chosen, turn)
            if known is not None:
                turn.bounds[chosen] = known
            if first <= chosen[-1]:
                break
        return first

    def pick(self, u: NDArray[np.float64], cache: Arena, turn: Turn, threads: int) -> None:
        """Pick the best cached plane of every example."""
        w, features = self.split(u), (self.problem.variable_features, self.problem.factor_features)
        # Where the planes have many entries, a product of matrices gives all scores in less time than one after the other.
        n_scores = sum(x.shape[0] * one.shape[1] for x, one in zip(features, w, strict=True))
        # Of rows on disk none is made.
        scored = not getattr(features[0], "on_disk", False) and n_scores <= _MANY * int(
            cache.filled[:, 0].sum() - cache.segment[:-1].sum()
        )
        if scored:
            w = features[0].matrix() @ w[0], features[1].matrix() @ w[1]
        batch = self.problem.batch
        run_shards(lambda begin, end: recall(batch, *w, scored, cache, begin, end, turn), self.n_examples, threads)

    def add(self, cache: Arena, picks: NDArray[np.int32], out: NDArray[np.float64], threads: int) -> float:
        """Add weight_m psi_m of the planes picked to out; returns the sum of weight_m ell_m."""
        # Threads share the columns, not the examples: every entry of the sum is added up in the order of the examples.
        cuts = np.searchsorted(self.used, np.arange(threads + 1) * (self.used[-1] / threads)).tolist()
        cuts[0], cuts[-1] = 0, self.shapes[0][0]

        def sum_of(low: int, high: int) -> float:
            return float(add_planes(self.problem.batch, cache, picks, *self.split(out), low, high))

        return map_shards(sum_of, list(itertools.pairwise(sorted(set(cuts)))), threads)[0]

    def rows(self, cache: Arena, chosen: NDArray[np.int64]) -> Given:
        """The first cached plane of each example chosen, in coordinates of working vectors."""
        found = super().rows(cache, chosen)
        psi = rows_of_planes(self.problem, chosen, found, working=True)
        return Given(psi.indptr.astype(np.int64), psi.indices.astype(np.int32), psi.data, found.ell)

    def find(self, u: NDArray[np.float64], cache: Arena, threads: int, now: int) -> tuple[MeanPlane, Arena]:
        """The plane of largest slope at u."""
        if not self.single or self.keeps or self.oracle.compiled is None:
            return super().find(u, cache, threads, now)
        a, hinges = self.problem.arrays, np.empty(self.n_examples)
        start = a.variable_kinds[a.variables[0].template].start
        blocks = a.variable_block[start : start + a.variable_kinds[a.variables[0].template].entries]
        w_v, _ = self.split(u)

        def sum_of(begin: int, end: int) -> tuple[float, NDArray[np.float64]]:
            out = np.zeros(self.size)
            return add_singles(self.problem.batch, blocks, w_v, begin, end, self.split(out)[0], hinges), out

        ell = 0.0
        self.out[:] = 0.0
        for more, psi in map_shards(sum_of, self.oracle.shards, threads, pausing=True):
            ell += more
            self.out += psi
        plane = MeanPlane(*nonzeros(self.out, 1.0 / self.n_examples, threads), ell / self.n_examples, hinges)
        return plane, cache

    @property
    def has_images(self) -> bool:
        """With a kernel images are scores."""
        return self.kernels != (None, None)

    def image(self, vector: NDArray[np.float64]) -> NDArray[np.float64]:
        """K times the coefficients; weights of features stay as they are."""
        if not self.has_images:
            return vector
        sides = zip(self.kernels, self.split(vector), strict=True)
        return np.concatenate([(own if kernel is None else kernel.times(own)).ravel() for kernel, own in sides])


def _identity(kernel: KernelFeatures) -> Features:
    return Features(sp.eye_array(kernel.shape[0], format="csr"), "the identity")


def is_single(problem: FactorGraphs) -> bool:
    """Whether every example is one variable with nothing but learned scores, all of one kind, that reads its first row."""
    a = problem.arrays
    return bool(
        problem.example_factors[-1] == 0
        and problem.example_variables[-1] == problem.n_examples
        and len(problem.structures) == 1
        and problem.structures[0].variable_rows[0] == 0
        and len(a.variable_scores) == 0
        and len(a.losses) > 0
        and not a.variable_fixed.any()
    )


def joint_oracle(problem: Any, engine: str | Engine = "auto", rescaling: str = "margin") -> JointOracle:
    """The joint oracle of a problem, which may have one of its own (sharded.py)."""
    if hasattr(problem, "joint_oracle"):
        own: JointOracle = problem.joint_oracle(engine, rescaling)
        return own
    kind = GraphJointOracle if isinstance(problem, FactorGraphs) else JointOracle
    return kind(problem, engine, rescaling)

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

A cached plane is a list of (key, at, value). For factor graphs a key is ``row * blocks + block``, a feature row in a block of the
weights, blocks of factors after those of variables; it takes a few entries where the plane itself has hundreds, and `at`, its place
among the example's statistics, lets the planes of an example share the inner products of equal keys. For other problems a key is
the number of a weight. Examples are dealt to fixed shards, each with a segment of the arena of its own: shards
are searched in threads, and sums over examples are taken in order afterwards, so bits do not depend on the threads.

With a kernel (`KernelJointOracle`) vectors are coefficients of the training rows, w = sum_r A[r] phi(x_r), in the place of weights;
`image` gives K A, where scores are read.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.inference import Engine, LinearProgram
from maxmargin.jit import inner, kernel
from maxmargin.parallel.threads import map_shards
from maxmargin.problems.factor_graphs import FactorGraphs
from maxmargin.problems.features import Features, KernelFeatures, add_row, score_row
from maxmargin.problems.python_problem import PythonProblem
from maxmargin.problems.statistics import project_example
from maxmargin.solvers.oracles.compiled import NOTHING_GIVEN, find_plane
from maxmargin.solvers.oracles.max_oracle import FactorGraphOracle, MaxOracle, oracle_of
from maxmargin.solvers.planes.cache import PlaneCache, keep_plane
from maxmargin.solvers.planes.vectors import erase, nonzeros

#: Shards of examples: so many that the last ones do not leave a thread waiting for long.
_SHARDS = 32
#: Examples that an oracle outside compiled code is asked about at a time.
_BATCH = 256


class JointPlane(NamedTuple):
    """A plane of the mean hinge."""

    index: NDArray[np.int64]  # type: ignore[assignment]
    value: NDArray[np.float64]
    ell: float
    #: (M,): hinges, or bounds from above; of a recalled plane, what its examples' planes reach.
    hinges: NDArray[np.float64]


class JointOracle:
    """The max-oracle of any problem, asked for all its examples.

    Parameters
    ----------
    problem : FactorGraphs or oracle problem
    inference : "auto", str or engine
    rescaling : "margin" or "slack"
    """

    def __init__(self, problem: Any, engine: str | Engine = "auto", rescaling: str = "margin") -> None:
        self.oracle: MaxOracle = oracle_of(problem, engine, rescaling=rescaling)
        self.certificate, self.name, self.reason = self.oracle.certificate, self.oracle.name, self.oracle.reason
        self.n_examples, self.weight = self.oracle.n_examples, self.oracle.weight
        self.size = self.oracle.n_weights
        #: Whether examples are asked about one after the other; whether planes that were found are looked at again.
        self.sequential, self.keeps = isinstance(problem, PythonProblem), True
        n = min(_SHARDS, self.n_examples)
        self.shards = list(itertools.pairwise(np.linspace(0, self.n_examples, n + 1).astype(int).tolist()))
        self.out = np.zeros(self.size)
        # Compiled before any clock starts.
        nothing = self.cache(1)
        self.recall(np.zeros(self.size), nothing, 1, 0)

    def cache(self, capacity: int) -> PlaneCache:
        """An empty cache."""
        room = 8 * -(-self.n_examples // len(self.shards)) + 64
        return PlaneCache.empty(self.n_examples, capacity, len(self.shards), room)

    def flat(self, vector: NDArray[np.float64]) -> NDArray[np.float64]:
        """A working vector as flat weights."""
        return vector.copy()

    def image(self, vector: NDArray[np.float64]) -> NDArray[np.float64]:
        """What a vector means to the scores: itself, but for kernels."""
        return vector

    @property
    def has_images(self) -> bool:
        """Whether images are other vectors."""
        return False

    def find(self, u: NDArray[np.float64], cache: PlaneCache, threads: int, now: int) -> tuple[JointPlane, PlaneCache]:
        """The plane of largest slope at u; the planes of its examples are in the cache afterwards, which may have moved."""
        picks, hinges = np.full(self.n_examples, -1, np.int32), np.zeros(self.n_examples)
        done = [begin for begin, _ in self.shards]
        bounds = np.full(self.n_examples, np.nan)

        def search(shard: int, _: int) -> None:
            done[shard] = self.search(shard, done[shard], self.shards[shard][1], u, cache, now, picks, hinges, bounds)

        left = list(range(len(self.shards)))
        while left:
            map_shards(search, [(shard, shard) for shard in left], 1 if self.sequential else threads, pausing=True)
            left = [shard for shard in left if done[shard] < self.shards[shard][1]]
            if left:
                cache = cache.with_room(self.shards, self.widest)
        plane = self.joint(cache, picks, hinges, threads)
        return plane._replace(hinges=np.where(np.isnan(bounds), hinges, bounds)), cache

    def recall(self, u: NDArray[np.float64], cache: PlaneCache, threads: int, now: int) -> JointPlane:
        """The best plane that the cache has for u."""
        picks, hinges = np.full(self.n_examples, -1, np.int32), np.zeros(self.n_examples)
        map_shards(lambda begin, end: self.look(u, cache, begin, end, now, picks, hinges), self.shards, threads)
        return self.joint(cache, picks, hinges, threads)

    def joint(
        self, cache: PlaneCache, picks: NDArray[np.int32], hinges: NDArray[np.float64], threads: int
    ) -> JointPlane:
        """The mean of the planes picked."""
        erase(self.out, threads)
        ell = self.add(cache, picks, self.out, threads) / self.n_examples
        return JointPlane(*nonzeros(self.out, 1.0 / self.n_examples, threads), ell, hinges)

    # ------------------------------------------------------------------------------------------------ by kind of problem

    #: Entries that the next plane may have.
    widest = 1 << 16

    def search(
        self, shard: int, first: int, end: int, u: NDArray[np.float64], cache: PlaneCache, now: int, picks: Any, hinges: Any,
        bounds: Any,
    ) -> int:  # fmt: skip
        """Ask about the examples from `first` to `end`, in a shard's segment; returns where that was full, or the end."""
        while first < end:
            chosen = np.arange(first, min(first + _BATCH, end))
            psi, ell = self.oracle.planes(u, chosen)
            self.widest = max(self.widest, int(psi.nnz))
            rows = np.asarray(psi.indptr, np.int64), np.asarray(psi.indices, np.int64), np.asarray(psi.data, np.float64)
            first += remember_rows(cache, shard, chosen, *rows, ell, u, now, picks, hinges)
            if first <= chosen[-1]:
                break
        return first

    def look(
        self, u: NDArray[np.float64], cache: PlaneCache, begin: int, end: int, now: int, picks: Any, hinges: Any
    ) -> None:
        """Pick the best cached plane of some examples."""
        recall_rows(cache, u, begin, end, now, picks, hinges)

    def add(self, cache: PlaneCache, picks: NDArray[np.int32], out: NDArray[np.float64], threads: int) -> float:
        """Add weight_m psi_m of the planes picked to out; returns the sum of weight_m ell_m."""
        return float(add_rows(cache, self.weight, picks, out))

    def rows(
        self, cache: PlaneCache, chosen: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
        """The first cached plane of each example chosen: where each begins, coordinates and values, and constants."""
        starts = np.concatenate([[0], np.cumsum(cache.size[chosen, 0])])
        places = np.arange(starts[-1]) + np.repeat(cache.start[chosen, 0] - starts[:-1], np.diff(starts))
        return starts, cache.key[places], cache.value[places], cache.ell[chosen, 0]


class GraphJointOracle(JointOracle):
    """The joint oracle of factor graphs."""

    oracle: FactorGraphOracle

    def __init__(self, problem: FactorGraphs, engine: str | Engine = "auto", rescaling: str = "margin") -> None:
        self.problem = problem
        self.features = problem.variable_features.arrays, problem.factor_features.arrays
        w_v, w_f = problem.working_weights()
        self.shapes = w_v.shape, w_f.shape
        self.blocks = np.array([w_v.shape[1], w_v.shape[1] + w_f.shape[1]])
        self.widest = 2 * int(problem.arrays.largest.buffer)
        # Entries of the features in the columns before each, so that threads can share them evenly.
        entries = self.features[0].indices if len(self.features[0].indptr) > 1 else np.arange(w_v.shape[0])
        self.used = np.concatenate([[0], np.cumsum(np.bincount(entries, minlength=w_v.shape[0]))])
        super().__init__(problem, engine, rescaling)
        asked = self.oracle.graph.engine
        self.sequential = bool(getattr(asked, "sequential", isinstance(asked, LinearProgram)))
        nothing = self.cache(1)
        oracle = self.oracle.graph.compiled or NOTHING_GIVEN
        u, none = self.split(np.zeros(self.size)), np.empty(0)
        with self.oracle.graph.workspaces.borrow() as work:
            remember(
                problem.batch,
                *u,
                oracle,
                work,
                np.empty(0, np.int64),
                nothing,
                0,
                self.blocks,
                0,
                np.empty(0, np.int32),
                none,
            )

    def split(self, vector: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The weights of variables and of factors in a working vector, as views."""
        (p, b), (q, c) = self.shapes
        return vector[: p * b].reshape(p, b), vector[p * b :].reshape(q, c)

    def flat(self, vector: NDArray[np.float64]) -> NDArray[np.float64]:
        """A working vector as flat weights."""
        w_v, w_f = self.split(vector)
        return np.concatenate([w_v.T.ravel(), w_f.T.ravel()])

    def search(
        self, shard: int, first: int, end: int, u: NDArray[np.float64], cache: PlaneCache, now: int, picks: Any, hinges: Any,
        bounds: Any,
    ) -> int:  # fmt: skip
        """Ask about the examples from `first` to `end`, in a shard's segment; returns where that was full, or the end."""
        w_v, w_f = self.split(u)
        for chosen, oracle, known in self.oracle.answers(w_v, w_f, first, end):
            with self.oracle.graph.workspaces.borrow() as work:
                first += remember(
                    self.problem.batch, w_v, w_f, oracle, work, chosen, cache, shard, self.blocks, now, picks, hinges
                )
            if known is not None:
                bounds[chosen] = known
            if first <= chosen[-1]:
                break
        return first

    def look(
        self, u: NDArray[np.float64], cache: PlaneCache, begin: int, end: int, now: int, picks: Any, hinges: Any
    ) -> None:
        """Pick the best cached plane of some examples."""
        half = int(self.problem.arrays.largest.buffer)
        recall(cache, *self.features, *self.split(u), self.blocks, half, begin, end, now, picks, hinges)

    def add(self, cache: PlaneCache, picks: NDArray[np.int32], out: NDArray[np.float64], threads: int) -> float:
        """Add weight_m psi_m of the planes picked to out; returns the sum of weight_m ell_m."""
        # Threads share the columns, not the examples: every entry of the sum is added up in the order of the examples.
        cuts = np.searchsorted(self.used, np.arange(threads + 1) * (self.used[-1] / threads)).tolist()
        cuts[0], cuts[-1] = 0, self.shapes[0][0]

        def sum_of(low: int, high: int) -> float:
            return float(
                add_planes(cache, *self.features, self.weight, self.blocks, picks, *self.split(out), low, high)
            )

        return map_shards(sum_of, list(itertools.pairwise(sorted(set(cuts)))), threads)[0]

    def rows(
        self, cache: PlaneCache, chosen: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
        """The first cached plane of each example chosen: where each begins, coordinates and values, and constants."""
        starts, shapes = np.zeros(len(chosen) + 1, np.int64), np.array(self.shapes, np.int64)
        for _ in range(2):
            # Counted first, written then.
            indices, values = np.empty(starts[-1], np.int64), np.empty(starts[-1])
            write_planes(cache, *self.features, self.blocks, shapes, chosen, starts, indices, values)
        # An example that reads a row twice has its coordinates twice.
        psi = sp.csr_array((values, indices, starts), (len(chosen), self.size))
        psi.sum_duplicates()
        return psi.indptr.astype(np.int64), psi.indices.astype(np.int64), psi.data, cache.ell[chosen, 0]


class SingleJointOracle(GraphJointOracle):
    """The joint oracle of binary and multi-class problems: without a cache, one pass over the rows finds and sums the planes.

    A few instructions a state are all there is to do, and what serves any graph would take ten times as long.
    """

    @staticmethod
    def serves(problem: FactorGraphs) -> bool:
        """Whether every example is one variable with nothing but learned scores, all of one kind, that reads its first row."""
        a = problem.arrays
        return (
            problem.example_factors[-1] == 0
            and problem.example_variables[-1] == problem.n_examples
            and len(problem.structures) == 1
            and problem.structures[0].variable_rows[0] == 0
            and len(a.variable_scores) == 0
            and not a.variable_fixed.any()
        )

    def find(self, u: NDArray[np.float64], cache: PlaneCache, threads: int, now: int) -> tuple[JointPlane, PlaneCache]:
        """The plane of largest slope at u."""
        if self.keeps or self.oracle.graph.compiled is None:
            return super().find(u, cache, threads, now)
        a, hinges = self.problem.arrays, np.empty(self.n_examples)
        start = a.variable_kinds[a.variables[0].template].start
        blocks = a.variable_block[start : start + a.variable_kinds[a.variables[0].template].entries]
        w_v, _ = self.split(u)

        def sum_of(begin: int, end: int) -> tuple[float, NDArray[np.float64]]:
            out = np.zeros(self.size)
            ell = add_singles(
                a.examples, self.features[0], a.labels, a.losses, self.weight, blocks, w_v, begin, end, self.split(out)[0],
                hinges,
            )  # fmt: skip
            return ell, out

        ell = 0.0
        self.out[:] = 0.0
        for more, psi in map_shards(sum_of, self.oracle.shards, threads, pausing=True):
            ell += more
            self.out += psi
        plane = JointPlane(*nonzeros(self.out, 1.0 / self.n_examples, threads), ell / self.n_examples, hinges)
        return plane, cache


class KernelJointOracle(GraphJointOracle):
    """The joint oracle of factor graphs whose variables' rows are known by a kernel alone.

    With the identity in the place of the features, the weights of a row *are* its scores, and a plane of such weights has the
    coefficients of the rows: the oracle is asked at Z = K A, and answers in coefficients.
    """

    def __init__(self, problem: FactorGraphs, engine: str | Engine = "auto", rescaling: str = "margin") -> None:
        features = problem.variable_features
        assert isinstance(features, KernelFeatures)
        self.kernel, n = features, features.shape[0]
        identity = Features(sp.eye_array(n, format="csr"), "the identity")
        super().__init__(problem.with_variable_features(identity), engine, rescaling)

    @property
    def has_images(self) -> bool:
        """Images are scores."""
        return True

    def image(self, vector: NDArray[np.float64]) -> NDArray[np.float64]:
        """K times the coefficients; weights of factors stay as they are."""
        a_v, a_f = self.split(vector)
        return np.concatenate([np.asarray(self.kernel.times(a_v)).ravel(), a_f.ravel()])


def joint_oracle(problem: Any, engine: str | Engine = "auto", rescaling: str = "margin") -> JointOracle:
    """The joint oracle of a problem."""
    if not isinstance(problem, FactorGraphs):
        return JointOracle(problem, engine, rescaling)
    if isinstance(problem.variable_features, KernelFeatures):
        return KernelJointOracle(problem, engine, rescaling)
    kind = SingleJointOracle if SingleJointOracle.serves(problem) else GraphJointOracle
    return kind(problem, engine, rescaling)


# ------------------------------------------------------------------------------------------------------- kernels


@kernel
def add_singles(
    examples: Any, features: Any, labels: Any, losses: Any, weight: Any, blocks: Any, w: Any, begin: int, end: int, out: Any,
    hinges: Any,
) -> float:  # fmt: skip
    """Add weight_m psi_m of the best states of single variables to out; returns the sum of weight_m ell_m."""
    n_states, width = len(blocks), w.shape[1]
    z, one, total = np.empty(width), np.ones(1), 0.0
    for m in range(begin, end):
        row, own, at = examples[m].variable_row, labels[m], m * n_states
        score_row(features, row, w, 0, width, z, 0)
        base = z[blocks[own]] if blocks[own] >= 0 else 0.0
        best, top = own, 0.0
        for y in range(n_states):
            slope = losses[at + y] - base
            if blocks[y] >= 0:
                slope += z[blocks[y]]
            if y != own and slope > top:
                best, top = y, slope
        hinges[m] = top
        if best != own:
            total += weight[m] * losses[at + best]
            if blocks[own] >= 0:
                add_row(features, row, out, blocks[own], blocks[own] + 1, one, 0, weight[m])
            if blocks[best] >= 0:
                add_row(features, row, out, blocks[best], blocks[best] + 1, one, 0, -weight[m])
    return total


@kernel
def remember(
    batch: Any, w_v: Any, w_f: Any, oracle: Any, work: Any, chosen: Any, cache: Any, shard: int, blocks: Any, now: int, picks: Any,
    hinges: Any,
) -> int:  # fmt: skip
    """Find the planes of the chosen examples, and put them into the cache; returns how many were done before it was full."""
    g, half = batch.graphs, batch.factors.at
    examples, structures, v_groups, f_groups = g.examples, g.structures, g.variable_groups, g.factor_groups
    n_planes, c_ell, c_start, c_size, c_used, c_key, c_at, c_value, segment, filled = (
        cache.n_planes, cache.ell, cache.start, cache.size, cache.used, cache.key, cache.at, cache.value, cache.segment,
        cache.filled,
    )  # fmt: skip
    z, index, value, key = work.z, work.index, work.value, np.empty(2 * half, np.int64)
    for k in range(len(chosen)):
        m = chosen[k]
        s = examples[m].structure
        project_example(batch, m, w_v, w_f, z)
        n, ell = find_plane(oracle, batch, work, k, m, index, value, 0)
        slope = ell
        for e in range(n):
            slope -= value[e] * z[index[e]]
        hinges[m], picks[m] = max(slope, 0.0), -1
        # Otherwise the truth is at least as good, which has a plane of zeros.
        if slope > 0.0:
            v, f = structures[s].variable_groups, structures[s].factor_groups
            for e in range(n):
                i = index[e]
                # Entries come in the order of the groups, so the group only moves on.
                if i < half:
                    while i >= v_groups[v].at + v_groups[v].block_end - v_groups[v].block:
                        v += 1
                    row, block = examples[m].variable_row + v_groups[v].row, i - v_groups[v].at + v_groups[v].block
                else:
                    i -= half
                    while i >= f_groups[f].at + f_groups[f].block_end - f_groups[f].block:
                        f += 1
                    row = examples[m].factor_row + f_groups[f].row
                    block = blocks[0] + i - f_groups[f].at + f_groups[f].block
                key[e] = row * blocks[1] + block
            slot = keep_plane(
                m, n, key, index, value, ell, now, shard, n_planes, c_ell, c_start, c_size, c_used, c_key, c_at, c_value, segment,
                filled,
            )  # fmt: skip
            if slot < 0:
                return k
            picks[m] = slot
    return len(chosen)


@inner
def row_times_block(features: Any, row: int, weights: Any, block: int) -> float:
    """x_row . weights[:, block]."""
    indptr, indices, data, dense = features.indptr, features.indices, features.data, features.dense
    total = 0.0
    if len(indptr) > 1:
        for q in range(indptr[row], indptr[row + 1]):
            total += data[q] * weights[indices[q], block]
    else:
        for column in range(dense.shape[1]):
            total += dense[row, column] * weights[column, block]
    return total


@kernel
def recall(
    cache: Any, v_features: Any, f_features: Any, w_v: Any, w_f: Any, blocks: Any, half: int, begin: int, end: int, now: int,
    picks: Any, hinges: Any,
) -> None:  # fmt: skip
    """Pick the best cached plane of the examples from begin to end, or none, which is the truth."""
    z, seen = np.empty(2 * half), np.full(2 * half, -1)
    n_planes, c_ell, c_start, c_size, c_used, c_key, c_at, c_value = (
        cache.n_planes, cache.ell, cache.start, cache.size, cache.used, cache.key, cache.at, cache.value,
    )  # fmt: skip
    n_variable_blocks, n_blocks = blocks
    for m in range(begin, end):
        best, top = -1, 0.0
        for a in range(n_planes[m]):
            slope = c_ell[m, a]
            for e in range(c_start[m, a], c_start[m, a] + c_size[m, a]):
                i = c_at[e]
                if seen[i] != m:
                    seen[i], row, block = m, c_key[e] // n_blocks, c_key[e] % n_blocks
                    if block < n_variable_blocks:
                        z[i] = row_times_block(v_features, row, w_v, block)
                    else:
                        z[i] = row_times_block(f_features, row, w_f, block - n_variable_blocks)
                slope -= c_value[e] * z[i]
            if slope > top:
                best, top = a, slope
        picks[m], hinges[m] = best, top
        if best >= 0:
            c_used[m, best] = now


@kernel
def add_planes(
    cache: Any, v_features: Any, f_features: Any, weight: Any, blocks: Any, picks: Any, out_v: Any, out_f: Any, low: int, high: int
) -> float:  # fmt: skip
    """Add weight_m psi_m of the planes picked to out, in the variables' columns from low to high, and the factors' if low is 0.

    Returns the sum of weight_m ell_m.
    """
    c_ell, c_start, c_size, c_key, c_value = cache.ell, cache.start, cache.size, cache.key, cache.value
    indptr, indices, data, dense = v_features.indptr, v_features.indices, v_features.data, v_features.dense
    n_variable_blocks, n_blocks = blocks
    total, one = 0.0, np.ones(1)
    for m in range(len(picks)):
        a = picks[m]
        if a >= 0:
            total += weight[m] * c_ell[m, a]
            for e in range(c_start[m, a], c_start[m, a] + c_size[m, a]):
                row, block, scale = c_key[e] // n_blocks, c_key[e] % n_blocks, weight[m] * c_value[e]
                if block < n_variable_blocks:
                    if len(indptr) > 1:
                        for q in range(indptr[row], indptr[row + 1]):
                            if low <= indices[q] < high:
                                out_v[indices[q], block] += scale * data[q]
                    else:
                        for column in range(low, high):
                            out_v[column, block] += scale * dense[row, column]
                elif low == 0:
                    block -= n_variable_blocks
                    add_row(f_features, row, out_f, block, block + 1, one, 0, scale)
    return total


@inner
def write_row(
    features: Any, row: int, base: int, width: int, block: int, scale: float, at: int, indices: Any, values: Any
) -> int:
    """Write scale times a feature row in a block of a working vector, if there is room; returns where it ends."""
    indptr, columns, data, dense = features.indptr, features.indices, features.data, features.dense
    if len(indptr) > 1:
        if len(indices) > 0:
            for q in range(indptr[row], indptr[row + 1]):
                indices[at + q - indptr[row]] = base + columns[q] * width + block
                values[at + q - indptr[row]] = scale * data[q]
        return int(at + indptr[row + 1] - indptr[row])
    for column in range(dense.shape[1]):
        if dense[row, column] != 0.0:
            if len(indices) > 0:
                indices[at], values[at] = base + column * width + block, scale * dense[row, column]
            at += 1
    return at


@kernel
def write_planes(
    cache: Any, v_features: Any, f_features: Any, blocks: Any, shapes: Any, chosen: Any, starts: Any, indices: Any, values: Any
) -> None:  # fmt: skip
    """The first cached plane of each example chosen in working coordinates, which may repeat; counts only, without room."""
    c_start, c_size, c_key, c_value = cache.start, cache.size, cache.key, cache.value
    at = 0
    for k in range(len(chosen)):
        m = chosen[k]
        for e in range(c_start[m, 0], c_start[m, 0] + c_size[m, 0]):
            row, block = c_key[e] // blocks[1], c_key[e] % blocks[1]
            if block < blocks[0]:
                at = write_row(v_features, row, 0, shapes[0, 1], block, c_value[e], at, indices, values)
            else:
                base = shapes[0, 0] * shapes[0, 1]
                at = write_row(f_features, row, base, shapes[1, 1], block - blocks[0], c_value[e], at, indices, values)
        starts[k + 1] = at


@kernel
def remember_rows(
    cache: Any, shard: int, chosen: Any, starts: Any, indices: Any, data: Any, ell: Any, u: Any, now: int, picks: Any, hinges: Any
) -> int:  # fmt: skip
    """Put planes given as rows into the cache; returns how many were done before it was full."""
    n_planes, c_ell, c_start, c_size, c_used, c_key, c_at, c_value, segment, filled = (
        cache.n_planes, cache.ell, cache.start, cache.size, cache.used, cache.key, cache.at, cache.value, cache.segment,
        cache.filled,
    )  # fmt: skip
    for k in range(len(chosen)):
        m, first, last = chosen[k], starts[k], starts[k + 1]
        slope = ell[k]
        for e in range(first, last):
            slope -= data[e] * u[indices[e]]
        hinges[m], picks[m] = max(slope, 0.0), -1
        if slope > 0.0:
            slot = keep_plane(
                m, last - first, indices[first:last], indices[first:last], data[first:last], ell[k], now, shard, n_planes, c_ell,
                c_start, c_size, c_used, c_key, c_at, c_value, segment, filled,
            )  # fmt: skip
            if slot < 0:
                return k
            picks[m] = slot
    return len(chosen)


@kernel
def recall_rows(cache: Any, u: Any, begin: int, end: int, now: int, picks: Any, hinges: Any) -> None:
    """Pick the best cached plane of the examples from begin to end, or none, which is the truth."""
    n_planes, c_ell, c_start, c_size, c_used, c_key, c_value = (
        cache.n_planes, cache.ell, cache.start, cache.size, cache.used, cache.key, cache.value,
    )  # fmt: skip
    for m in range(begin, end):
        best, top = -1, 0.0
        for a in range(n_planes[m]):
            slope = c_ell[m, a]
            for e in range(c_start[m, a], c_start[m, a] + c_size[m, a]):
                slope -= c_value[e] * u[c_key[e]]
            if slope > top:
                best, top = a, slope
        picks[m], hinges[m] = best, top
        if best >= 0:
            c_used[m, best] = now


@kernel
def add_rows(cache: Any, weight: Any, picks: Any, out: Any) -> float:
    """Add weight_m psi_m of the planes picked to out; returns the sum of weight_m ell_m."""
    c_ell, c_start, c_size, c_key, c_value = cache.ell, cache.start, cache.size, cache.key, cache.value
    total = 0.0
    for m in range(len(picks)):
        a = picks[m]
        if a >= 0:
            total += weight[m] * c_ell[m, a]
            for e in range(c_start[m, a], c_start[m, a] + c_size[m, a]):
                out[c_key[e]] += weight[m] * c_value[e]
    return total

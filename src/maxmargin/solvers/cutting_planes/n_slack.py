"""n-slack cutting planes, with margin or slack rescaling.

T. Joachims, T. Finley and C.-N. Yu, Cutting-Plane Training of Structural SVMs, Machine Learning 77, 2009, algorithms 1 and 2.

    min_{w, xi >= 0}  lam/2 |w|^2 + 1/M sum_m weight_m xi_m     such that   w . psi_m(y) >= ell_m(y) - xi_m   for all m and y

Every example has a slack and a working set W_m of its own, which always has the plane of the truth:

    repeat   for m = 1 .. M:   plane <- the oracle's answer at w;   if  ell - w . psi > xi_m + epsilon:  add it to W_m
             after every `batch` new constraints:   w, xi <- the programme over all working sets
    until    no constraint was added

The programme has hundreds of thousands of constraints, so its Hessian is not kept. Its dual is solved where w is, one example's
simplex at a time: mass moves from the plane of W_m with the smallest slope (and some mass) to the one with the largest,

    v_a = ell_a - w . psi_a,      step = min( (v_a - v_b) / (kappa |psi_a - psi_b|^2), alpha_b ),      kappa = weight_m / (lam M)

and examples whose slopes agree are left out until the next look at all of them. Examples are visited in random order: in that of
a file whose neighbours are alike, each visit undoes the one before, and the gaps seen on the way are a hundredth of those at one w
(the first 50,000 rows of covtype: more than 500 sweeps in the place of 8). For the same reason only a look, which moves nothing,
says how precise the masses are.

Precision is managed: epsilon begins at a quarter of the largest loss and is quartered when a sweep adds next to nothing, until tol
is reached; the programme is solved to a share of it. A batch is at least a twentieth of all constraints, since the programme takes
time in proportion to them. After a sweep that added next to nothing w stands still for the next one, whose answers are then the
mean hinge as well. A plane without mass in `inactive` programmes is dropped.

This epsilon is about each example's slack; with no violation above it the mean hinge is within epsilon of the programme's, so the
gap is at most epsilon and what the programme lacks.

*Oracles that under-generate* (certificate "none"): Finley and Joachims, Training Structural SVMs when Exact Inference is
Intractable, ICML 2008, algorithm 1. Its lines 7 and 8 compare an answer with max{0, the worst of W_m}: an answer may be worse than
what the working set has, and an example's hinge is taken to be at least that, so that what is missed at one example does not
cancel what is violated at another. The weights are those of the last programme: the oracle misses more in some places than in
others, so that values at different weights say nothing about which are better. The run is over (STALLED, since nothing is proved)
when no example is violated by more than tol at the programme's solution.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.errors import OptionError
from maxmargin.inference import Engine
from maxmargin.jit import Struct, inner, kernel
from maxmargin.parallel.threads import map_shards
from maxmargin.solvers.core.run import State
from maxmargin.solvers.core.solver import Solver
from maxmargin.solvers.cutting_planes.bundle import check_certificate, check_family, check_rounds, family_of
from maxmargin.solvers.cutting_planes.one_slack import check_rescaling
from maxmargin.solvers.oracles.joint_plane import joint_oracle
from maxmargin.solvers.oracles.oracle_run import OracleRun, earlier_of
from maxmargin.solvers.planes.cache import PlaneCache, Turn

#: Examples that are asked about at a time, at least and at most; fewer where most violate, more where few do.
_CHUNK, _LONGEST = 16, 8192
#: Shards of a chunk.
_SHARDS = 8
#: The programme's gap as a share of epsilon, and an example's as a share of that.
_PROGRAMME, _BLOCK = 0.1, 0.5
#: Looks at all examples between two batches, and at a sweep's end; passes over those that are not settled after a look.
_LOOKS, _LAST_LOOKS, _PASSES = 2, 100, 10
#: A batch is at least this share of all constraints.
_GROWTH = 0.05
#: Share of the examples; a sweep that adds fewer constraints has found next to nothing, and epsilon is multiplied by _SHRINK.
_FEW, _SHRINK = 0.02, 0.25
#: Steps over one example's planes at a visit.
_STEPS = 5
#: Mass below this is rounding, and counts as none.
_NO_MASS = 1e-15


class Constraints(Struct):
    """The working sets: a linked list of planes for each example, planes in one arena."""

    #: (M,): first plane of each example, -1 for none; mass of the truth; gap at the last look.
    head: NDArray[np.int64]
    truth: NDArray[np.float64]
    gap: NDArray[np.float64]
    #: (room,): the next plane of the example, its mass, constant, programmes without mass, where its entries begin.
    next: NDArray[np.int64]
    alpha: NDArray[np.float64]
    ell: NDArray[np.float64]
    idle: NDArray[np.int32]
    start: NDArray[np.int64]
    #: The arena: coordinate of a working vector, and value.
    index: NDArray[np.int64]
    value: NDArray[np.float64]
    #: (2,): planes and entries in use.
    filled: NDArray[np.int64]

    @classmethod
    def empty(cls, n: int) -> Constraints:
        """Every example at the truth."""
        return cls(
            np.full(n, -1), np.ones(n), np.zeros(n), np.empty(0, np.int64), np.empty(0), np.empty(0), np.empty(0, np.int32),
            np.zeros(1, np.int64), np.empty(0, np.int64), np.empty(0), np.zeros(2, np.int64),
        )  # fmt: skip

    def with_room(self, planes: int, entries: int) -> Constraints:
        """The same, with space for more."""
        n, size = (int(k) for k in self.filled)
        grown = self
        if n + planes > len(self.alpha):
            room = 2 * (n + planes)
            names = ("next", "alpha", "ell", "idle")
            grown = grown._replace(**{name: _longer(getattr(self, name), n, room) for name in names})
            grown = grown._replace(start=_longer(self.start, n + 1, room + 1))
        if size + entries > len(self.index):
            room = 2 * (size + entries)
            grown = grown._replace(index=_longer(self.index, size, room), value=_longer(self.value, size, room))
        return grown


def _longer(values: NDArray[Any], used: int, room: int) -> NDArray[Any]:
    return np.concatenate([values[:used], np.empty(room - used, values.dtype)])


@dataclass(kw_only=True)
class NSlackState(State):
    """The working sets, the weights, and the best of them."""

    w: NDArray[np.float64]
    best: NDArray[np.float64]
    lam: float
    sets: Constraints
    #: What the planes are of (`family_of`).
    family: int = 0
    epsilon: float = 0.0
    n_programmes: int = 0
    #: Constraints that the last sweep added; its share of examples that violate; whether it found the mean hinge.
    n_added: int = 0
    rate: float = 1.0
    known: bool = False
    #: By how much an answer of the oracle was above its example's slack, at most, when all were last asked about at one w.
    violation: float = np.inf

    @property
    def n_constraints(self) -> int:
        """Constraints of all examples."""
        return int(self.sets.filled[0])

    @property
    def nbytes(self) -> int:
        """Bytes of the dual state."""
        return int(sum(array.nbytes for array in self.sets)) + self.w.nbytes + self.best.nbytes


class NSlack(Solver):
    """n-slack cutting planes.

    Parameters
    ----------
    rescaling : "margin" or "slack"
        How the task loss enters: as the margin that is asked for, or as the price of a violation.
    batch : int
        Constraints that are added, at least, before the programme is solved again.
    inactive : int
        Constraints without mass in so many programmes are dropped.
    inference : "auto", str or engine
        The max-oracle of factor graphs.
    certificate : None or "exact"
        What the oracle's answers must be worth; None takes what it gives.
    """

    name = "n-slack"
    requires = ("max-oracle",)
    certificates = ("exact", "relaxed", "none")
    keeps = "the constraints of each example"
    paper = "Tsochantaridis, Joachims, Hofmann and Altun 2005"

    def __init__(
        self,
        rescaling: str = "margin",
        batch: int = 100,
        inactive: int = 50,
        inference: str | Engine = "auto",
        certificate: str | None = None,
    ) -> None:
        self.rescaling = rescaling
        self.batch = batch
        self.inactive = inactive
        self.inference = inference
        self.certificate = certificate

    def check_options(self, problem: Any) -> None:
        """Refuse, in a sentence, options that cannot be."""
        check_rescaling(self.rescaling)
        check_rounds(1.0, self.inactive)
        if isinstance(self.batch, bool) or not isinstance(self.batch, int | np.integer) or self.batch < 1:
            raise OptionError(f"batch={self.batch!r} is not possible; it must be a whole number of at least 1.")

    def make_run(self, problem: Any, lam: float, random_state: Any, threads: int) -> NSlackRun:
        """What does the work."""
        return NSlackRun(self, problem, lam, random_state, threads)


class NSlackRun(OracleRun[NSlackState]):
    """One run."""

    solver: NSlack
    oracle: Any
    state_type = NSlackState

    def __init__(self, solver: NSlack, problem: Any, lam: float, random_state: Any, threads: int) -> None:
        super().__init__(solver, problem, lam, random_state, threads)
        self.oracle = joint_oracle(problem, solver.inference, solver.rescaling)
        check_certificate(solver.certificate, self.oracle, problem)
        self.certificate, n = self.oracle.certificate, self.oracle.n_examples
        self.family = family_of(solver.rescaling, self.certificate)
        self.cache = PlaneCache.empty(n, 1, _SHARDS, 8 * _CHUNK)
        self.scale = self.oracle.weight / (lam * n)
        self.order = np.random.default_rng([self.seed, 0]).permutation(n)
        # Room for one plane as weights; it is zero between uses.
        self.dense = np.zeros(self.oracle.size)

    def begin(self, earlier: NSlackState | None) -> NSlackState:
        """The truth, w = 0; or earlier working sets, their masses moved towards the truth if lam is smaller than it was."""
        zero = np.zeros(self.oracle.size)
        sets = Constraints.empty(self.oracle.n_examples)
        now = NSlackState(
            w=zero, best=zero.copy(), lam=self.lam, family=self.family,
            sets=sets,
        )  # fmt: skip
        if earlier is not None:
            earlier = earlier_of(now, earlier, ("w",))
            check_family(self.family, earlier)
            sets = earlier.sets._copy()
            share = min(1.0, self.lam / earlier.lam)
            sets.alpha[:] *= share
            sets.truth[:] = 1.0 - share * (1.0 - sets.truth)
            now.sets, now.w = sets, earlier.w * (share * earlier.lam / self.lam)
        return now

    def steps(self, now: NSlackState, stop: Callable[[], bool]) -> None:
        """One sweep over the examples."""
        n, first, waiting, worst = self.oracle.n_examples, 0, 0, 0.0
        hinges, picks, bounds = np.zeros(n), np.full(n, -1, np.int32), np.full(n, np.nan)
        hold, moved = now.n_passes > 0 and now.n_added <= _FEW * n, False
        now.n_added = 0
        while first < n and not stop():
            batch = max(self.solver.batch, _GROWTH * now.n_constraints)
            # As many examples as should have the rest of a batch among them.
            size = _LONGEST if hold else int(np.clip((batch - waiting) / max(now.rate, 1e-9), _CHUNK, _LONGEST))
            last = min(n, first + size)
            self.ask(now, first, last, picks, hinges, bounds)
            if now.epsilon == 0.0:
                # The first answers are for w = 0, where hinges are losses.
                now.epsilon = max(0.25 * float(hinges[first:last].max()), self.tol)
            more, most = self.add_violated(now, first, last, picks, hinges)
            worst = max(worst, most)
            now.rate += 0.2 * (more / (last - first) - now.rate)
            waiting += more
            now.n_added += more
            first = last
            if waiting >= batch and not hold:
                self.solve_programme(now, _LOOKS)
                moved, waiting = True, 0
        now.known = first == n and not moved
        if now.known:
            self.keep(now, hinges, bounds, worst)
            over = self.settled(now, self.tol) and now.gap <= self.tol
            if self.certificate != "none" or over:
                now.next_check = min(now.next_check, now.n_passes + 1)
            if self.certificate == "none":
                if over:
                    # Nothing is violated at the programme's solution: w stays there.
                    return
                now.known = False
        if now.epsilon > self.tol and now.n_added <= _FEW * n:
            now.epsilon = max(self.tol, _SHRINK * now.epsilon)
        elif not now.n_added:
            # At tol, what is left of the gap is the programme's, and a smaller epsilon makes that more precise.
            now.epsilon *= 0.5
        self.solve_programme(now, _LAST_LOOKS)
        now.sets = dropped(now.sets, int(self.solver.inactive))
        # Made afresh: a million small steps leave their rounding in w.
        linear = weights_of(now.sets, self.scale, self.oracle.weight, now.w)
        now.dual = max(now.dual, linear / n - self.regulariser(now.w))

    def ask(self, now: NSlackState, first: int, last: int, picks: Any, hinges: Any, bounds: Any) -> None:
        """The oracle's answers for some examples at w, in the cache."""
        cuts = np.linspace(first, last, min(_SHARDS, last - first) + 1).astype(int).tolist()
        self.cache.n_planes[first:last] = 0
        self.cache.filled[:] = self.cache.segment[:-1]
        done = cuts[:-1]

        def search(shard: int, _: int) -> None:
            turn = Turn(0, shard, picks, hinges)
            done[shard] = self.oracle.search(done[shard], cuts[shard + 1], now.w, self.cache, turn, bounds)

        left = list(range(len(done)))
        while left:
            map_shards(search, [(shard, shard) for shard in left], 1 if self.oracle.sequential else self.threads)
            left = [shard for shard in left if done[shard] < cuts[shard + 1]]
            if left:
                pieces = [(a, b) for a, b in zip(cuts[:-1], done, strict=True)]
                pieces += [(last, last)] * (_SHARDS - len(pieces))
                self.cache = self.cache.with_room(pieces, self.oracle.widest)
        now.n_oracle_calls += last - first

    def add_violated(self, now: NSlackState, first: int, last: int, picks: Any, hinges: Any) -> tuple[int, float]:
        """Add the planes of some examples that are violated by more than epsilon; returns their number and the most they are."""
        chosen = np.arange(first, last)
        most = violated(now.sets, now.w, chosen, now.epsilon, hinges, picks)
        chosen = chosen[picks[chosen] >= 0]
        if not len(chosen):
            return 0, most
        starts, indices, values, ells = self.oracle.rows(self.cache, chosen)
        now.sets = now.sets.with_room(len(chosen), len(indices))
        append(now.sets, chosen, starts, indices, values, ells)
        return len(chosen), most

    def solve_programme(self, now: NSlackState, looks: int) -> None:
        """Improve the masses: look at all examples, pass over those that are not settled, until the gap is a share of epsilon."""
        now.n_programmes += 1
        sets, n = now.sets, self.oracle.n_examples
        enough = _PROGRAMME * now.epsilon
        for k in range(looks):
            gap = look(sets, now.w, self.oracle.weight) / n
            # New planes get their mass even where that is little in the mean: without, they would be dropped, and found again.
            if gap <= enough and k > 0:
                break
            settled = _BLOCK * enough
            chosen = self.order[sets.gap[self.order] > settled]
            for _ in range(_PASSES):
                left = improve(sets, now.w, self.scale, self.oracle.weight, self.dense, chosen, settled) / n
                # Gaps on the way are smaller than a look's.
                if left <= 0.3 * max(enough, 0.3 * gap):
                    break
        k = int(sets.filled[0])
        sets.idle[:k] = np.where(sets.alpha[:k] > 0.0, 0, sets.idle[:k] + 1)

    def measure(self, now: NSlackState, off_schedule: bool) -> dict[str, float]:
        """The dual value is known; the primal too, by a call for every example, unless the last sweep found it."""
        n = self.oracle.n_examples
        if not now.known:
            hinges, picks, bounds = np.zeros(n), np.full(n, -1, np.int32), np.full(n, np.nan)
            for first in range(0, n, _LONGEST):
                self.ask(now, first, min(first + _LONGEST, n), picks, hinges, bounds)
            self.keep(now, hinges, bounds, violated(now.sets, now.w, np.arange(n), np.inf, hinges, picks))
        if not off_schedule:
            now.next_check = 2 * now.n_passes + 2
        return {
            "n_constraints": now.n_constraints, "epsilon": now.epsilon, "n_programmes": now.n_programmes,
            "violation": now.violation,
        }  # fmt: skip

    def keep(self, now: NSlackState, hinges: Any, bounds: Any, violation: float) -> None:
        """Take note of weights with a better value, or, where the oracle may miss the best labeling, of the last ones."""
        primal = self.regulariser(now.w) + self.mean(np.where(np.isnan(bounds), hinges, bounds))
        now.violation = violation
        if primal < now.primal or self.certificate == "none":
            now.primal = primal
            now.best[:] = now.w

    def settled(self, now: NSlackState, tol: float) -> bool:
        """Small violations of many may hide a large one in the mean, which only a certified gap makes up for."""
        return self.certificate != "none" or now.violation <= tol

    def weights(self, now: NSlackState) -> NDArray[np.float64]:
        """The flat weights of the best primal value."""
        return np.asarray(self.oracle.flat(now.best))

    def options(self, now: NSlackState) -> dict[str, Any]:
        """The oracle, the constraints, and those with mass."""
        support = int(np.count_nonzero(now.sets.alpha[: now.n_constraints]))
        return {**super().options(now), "support_vectors": support, "constraints": now.n_constraints}


def dropped(sets: Constraints, most: int) -> Constraints:
    """The working sets without the constraints that had no mass in the last `most` programmes."""
    n = int(sets.filled[0])
    if not (sets.idle[:n] >= most).any():
        return sets
    made = sets._replace(
        head=np.full(len(sets.head), -1), next=sets.next.copy(), alpha=sets.alpha.copy(), ell=sets.ell.copy(),
        idle=sets.idle.copy(), start=sets.start.copy(), index=sets.index.copy(), value=sets.value.copy(),
        filled=np.zeros(2, np.int64),
    )  # fmt: skip
    keep_used(sets, most, made)
    return made


# ------------------------------------------------------------------------------------------------------- kernels


@inner
def slope_of(a: int, ell: Any, start: Any, index: Any, value: Any, w: Any) -> float:
    """ell_a - w . psi_a."""
    slope = ell[a]
    for e in range(start[a], start[a + 1]):
        slope -= value[e] * w[index[e]]
    return float(slope)


@kernel
def violated(sets: Any, w: Any, chosen: Any, epsilon: float, hinges: Any, picks: Any) -> float:
    """Leave those of the picks whose slope is more than epsilon above the example's slack; the others become -1.

    Hinges become at least the slacks. Returns by how much one is above its slack, at most.
    """
    head, following, ell, start, index, value = sets.head, sets.next, sets.ell, sets.start, sets.index, sets.value
    most = 0.0
    for m in chosen:
        slack = 0.0
        a = head[m]
        while a >= 0:
            slack = max(slack, slope_of(a, ell, start, index, value, w))
            a = following[a]
        if not hinges[m] > slack + epsilon:
            picks[m] = -1
        most = max(most, hinges[m] - slack)
        hinges[m] = max(hinges[m], slack)
    return most


@kernel
def append(sets: Any, chosen: Any, starts: Any, indices: Any, values: Any, ells: Any) -> None:
    """Add planes, one for each example chosen; there is room."""
    head, following, alpha, ell, idle, start, index, value, filled, gap = (
        sets.head, sets.next, sets.alpha, sets.ell, sets.idle, sets.start, sets.index, sets.value, sets.filled, sets.gap,
    )  # fmt: skip
    for k in range(len(chosen)):
        a, at, m = filled[0], filled[1], chosen[k]
        start[a] = at
        for e in range(starts[k], starts[k + 1]):
            index[at], value[at] = indices[e], values[e]
            at += 1
        start[a + 1] = at
        alpha[a], ell[a], idle[a], following[a], head[m] = 0.0, ells[k], 0, head[m], a
        # Not settled.
        gap[m] = np.inf
        filled[0], filled[1] = a + 1, at


@inner
def squared_distance(a: int, b: int, start: Any, index: Any, value: Any, dense: Any) -> float:
    """|psi_a - psi_b|^2, where b = -1 is the truth, psi = 0; `dense` is zero, and is so again afterwards."""
    if b < 0 or a < 0:
        only, total = max(a, b), 0.0
        for e in range(start[only], start[only + 1]):
            total += value[e] ** 2
        return total
    for e in range(start[b], start[b + 1]):
        dense[index[e]] = value[e]
    total = 0.0
    for e in range(start[a], start[a + 1]):
        other = dense[index[e]]
        total += (value[e] - other) ** 2 - other**2
    for e in range(start[b], start[b + 1]):
        total += value[e] ** 2
        dense[index[e]] = 0.0
    return max(total, 0.0)


@kernel
def look(sets: Any, w: Any, weight: Any) -> float:
    """Take note of every example's gap at w; returns the sum of weight_m times them."""
    head, gaps, following, alpha, ell, start, index, value = (
        sets.head, sets.gap, sets.next, sets.alpha, sets.ell, sets.start, sets.index, sets.value,
    )  # fmt: skip
    total = 0.0
    for m in range(len(head)):
        top, mean, a = 0.0, 0.0, head[m]
        while a >= 0:
            v = slope_of(a, ell, start, index, value, w)
            mean += alpha[a] * v
            top = max(top, v)
            a = following[a]
        gaps[m] = max(top - mean, 0.0)
        total += weight[m] * gaps[m]
    return total


@kernel
def improve(sets: Any, w: Any, scale: Any, weight: Any, dense: Any, chosen: Any, settled: float) -> float:
    """One pass over those of the chosen whose gap was above `settled`; returns the sum of weight_m times the gaps it met."""
    head, truth, gaps, following, alpha, ell, start, index, value = (
        sets.head, sets.truth, sets.gap, sets.next, sets.alpha, sets.ell, sets.start, sets.index, sets.value,
    )  # fmt: skip
    total = 0.0
    for m in chosen:
        if not gaps[m] > settled:
            continue
        for step_number in range(_STEPS):
            best, worst, top, low, mean = -1, -2, 0.0, np.inf, 0.0
            if truth[m] > 0.0:
                worst, low = -1, 0.0
            a = head[m]
            while a >= 0:
                v = slope_of(a, ell, start, index, value, w)
                mean += alpha[a] * v
                if v > top:
                    best, top = a, v
                if alpha[a] > 0.0 and v < low:
                    worst, low = a, v
                a = following[a]
            if step_number == 0:
                gaps[m] = max(top - mean, 0.0)
                total += weight[m] * (top - mean)
            if not top - low > 0.5 * settled or best == worst:
                break
            mass = truth[m] if worst == -1 else alpha[worst]
            curvature = scale[m] * squared_distance(best, worst, start, index, value, dense)
            step = mass
            if curvature * step > top - low:
                step = (top - low) / curvature
            if mass - step <= _NO_MASS:
                step = mass
            if worst == -1:
                truth[m] = mass - step
            else:
                alpha[worst] = mass - step
                for e in range(start[worst], start[worst + 1]):
                    w[index[e]] -= scale[m] * step * value[e]
            if best == -1:
                truth[m] += step
            else:
                alpha[best] += step
                for e in range(start[best], start[best + 1]):
                    w[index[e]] += scale[m] * step * value[e]
            if following[head[m]] < 0 and step < mass:
                # One plane and the truth: that was the optimum.
                break
    return total


@kernel
def weights_of(sets: Any, scale: Any, weight: Any, w: Any) -> float:
    """Make w afresh from the masses; returns sum_m weight_m alpha_m . ell_m."""
    head, following, alpha, ell, start, index, value = (
        sets.head, sets.next, sets.alpha, sets.ell, sets.start, sets.index, sets.value,
    )  # fmt: skip
    w[:] = 0.0
    total = 0.0
    for m in range(len(head)):
        a = head[m]
        while a >= 0:
            if alpha[a] > 0.0:
                total += weight[m] * alpha[a] * ell[a]
                for e in range(start[a], start[a + 1]):
                    w[index[e]] += scale[m] * alpha[a] * value[e]
            a = following[a]
    return total


@kernel
def keep_used(sets: Any, most: int, made: Any) -> None:
    """Copy the constraints that are in use, in the order of the examples, which makes later passes run through memory."""
    n, at = 0, 0
    for m in range(len(sets.head)):
        a = sets.head[m]
        while a >= 0:
            if sets.idle[a] < most or sets.alpha[a] > 0.0:
                made.start[n], made.alpha[n], made.ell[n], made.idle[n] = at, sets.alpha[a], sets.ell[a], sets.idle[a]
                made.next[n] = made.head[m]
                made.head[m] = n
                for e in range(sets.start[a], sets.start[a + 1]):
                    made.index[at], made.value[at] = sets.index[e], sets.value[e]
                    at += 1
                n += 1
                made.start[n] = at
            a = sets.next[a]
    made.filled[0], made.filled[1] = n, at

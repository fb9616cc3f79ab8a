"""n-slack cutting planes, with margin or slack rescaling.

T. Joachims, T. Finley and C.-N. Yu, Cutting-Plane Training of Structural SVMs, Machine Learning 77, 2009, algorithms 1 and 2.

    min_{w, xi >= 0}  lam/2 |w|^2 + 1/M sum_m weight_m xi_m     such that   w . psi_m(y) >= ell_m(y) - xi_m   for all m and y

Every example has a slack and a working set W_m of its own, which always has the plane of the truth:

    repeat   for m = 1 .. M:   plane <- the oracle's answer at w;   if  ell - w . psi > xi_m + epsilon:  add it to W_m
             after every `batch` new constraints:   w, xi <- the programme over all working sets
    until    no constraint was added

The programme has hundreds of thousands of constraints, so of its Hessian only the squares of the examples' own planes are kept. Its
dual is solved where w is, one example's simplex at a time, by the block step of BCFW (planes/arena.py), with planes as entries of
the weights. Examples whose slopes agree are left out until the gaps of all are measured again. Examples are visited in random
order: in that of a file whose neighbours are alike, each visit undoes the one before, and the gaps seen on the way are a hundredth
of those at one w (the first 50,000 rows of covtype: more than 500 sweeps in the place of 8). For the same reason only gaps that are
measured at one w say how precise the masses are. Until the next measurement, planes without mass whose slopes were below the mean
of their example are left out, too (704 words of OCR letters: 5.4 s of the processor in the place of 7.7).

As published (``batch=1, epsilon="tol", stop="svm-struct"``): the programme is solved after every constraint, which is asked for at
its solution, epsilon is tol throughout, and the run is over when a sweep adds none. The programme's own gap is a tenth of epsilon.
The default makes larger batches, as the paper's section 4.6 has it, and is faster by orders of magnitude.

Precision is managed otherwise: epsilon begins at a quarter of the largest loss and is quartered when a sweep adds next to nothing,
until tol is reached; the programme is solved to a share of it. A batch is at least a twentieth of all constraints, since the
programme takes time in proportion to them. After a sweep that added next to nothing w stands still for the next one, whose answers
are then the mean hinge as well. A plane without mass in `inactive` programmes is dropped.

With a kernel, w in slopes is what scores are read from, K A for the coefficients A of rows: a step adds columns of the kernel
matrix, which must be held.

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

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.errors import OptionError
from maxmargin.inference import Engine
from maxmargin.jit import Struct, inner, kernel
from maxmargin.solvers.core.run import State
from maxmargin.solvers.core.solver import Solver
from maxmargin.solvers.cutting_planes.bundle import check_certificate, check_rounds, family_of
from maxmargin.solvers.cutting_planes.one_slack import check_rescaling, check_stop
from maxmargin.solvers.oracles.compiled import copy_plane
from maxmargin.solvers.oracles.joint_plane import joint_oracle
from maxmargin.solvers.oracles.oracle_run import OracleRun, check_family, dot, earlier_of
from maxmargin.solvers.oracles.plane_search import Turn
from maxmargin.solvers.planes.arena import (
    INNER,
    STEPS,
    Arena,
    add_combination,
    add_flat_products,
    drop_unused,
    flat_weights_of_planes,
    improve_block,
    most_planes,
    plane_slopes,
    put_plane,
)

#: Examples that are asked about at a time, at least and at most; fewer where most violate, more where few do.
_CHUNK, _LONGEST = 16, 8192
#: Constraints of a batch, at least.
_BATCH = 100
#: Most shards of a chunk.
_SHARDS = 8
#: The programme's gap as a share of epsilon, and an example's as a share of that.
_PROGRAMME, _BLOCK = 0.1, 0.5
#: Measurements of all gaps between two batches, and at a sweep's end; passes over the examples that are not settled after one.
_ROUNDS, _LAST_ROUNDS, _PASSES = 2, 100, 10
#: A batch is at least this share of all constraints.
_GROWTH = 0.05
#: Share of the examples; a sweep that adds fewer constraints has found next to nothing, and epsilon is multiplied by _SHRINK.
_FEW, _SHRINK = 0.02, 0.25
#: Slots of an example at first, the truth's included; entries of planes that there is room for at first.
_SLOTS, _ROOM = 2, 1 << 12


@dataclass(kw_only=True)
class NSlackState(State):
    """The working sets, the weights, and the best of them."""

    w: NDArray[np.float64]
    best: NDArray[np.float64]
    lam: float
    planes: Arena
    #: (M,): gaps of the examples' simplices, when they were last measured.
    gaps: NDArray[np.float64]
    #: With a kernel, the coefficients of rows that w is the image of; empty without. The best weights are coefficients then.
    coefficients: NDArray[np.float64]
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
        return self.planes.n_kept

    @property
    def nbytes(self) -> int:
        """Bytes of the dual state."""
        return self.planes.nbytes + self.w.nbytes + self.best.nbytes


class NSlack(Solver):
    """n-slack cutting planes.

    Parameters
    ----------
    rescaling : "margin" or "slack"
        How the task loss enters: as the margin that is asked for, or as the price of a violation.
    batch : "auto" or int
        Constraints that are added before the programme is solved again; "auto" is at least 100, and at least a twentieth of all. 1
        is the algorithm as published.
    epsilon : "auto" or "tol"
        By how much a constraint must be violated to be added: from a quarter of the largest loss down to `tol`, or `tol`
        throughout.
    stop : "gap" or "svm-struct"
        When to stop: at a certified gap of `tol` between the best bounds; or when, besides, no constraint is violated by more than
        `tol` at the last weights, which are returned.
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
    loss_tables = False
    orders_columns = True
    paper = "Tsochantaridis, Joachims, Hofmann and Altun 2005"
    kernels = True

    def __init__(
        self,
        rescaling: str = "margin",
        batch: str | int = "auto",
        epsilon: str = "auto",
        stop: str = "gap",
        inactive: int = 50,
        inference: str | Engine = "auto",
        certificate: str | None = None,
    ) -> None:
        self.rescaling = rescaling
        self.batch = batch
        self.epsilon = epsilon
        self.stop = stop
        self.inactive = inactive
        self.inference = inference
        self.certificate = certificate

    def check_options(self, problem: Any) -> None:
        """Refuse, in a sentence, options that cannot be."""
        check_rescaling(self.rescaling)
        check_rounds(1.0, self.inactive)
        whole = isinstance(self.batch, int | np.integer) and not isinstance(self.batch, bool) and self.batch >= 1
        if not whole and self.batch != "auto":
            raise OptionError(
                f'batch={self.batch!r} is not possible; it must be "auto" or a whole number of at least 1.'
            )
        if self.epsilon not in ("auto", "tol"):
            raise OptionError(f'epsilon={self.epsilon!r} is not known; use "auto" or "tol".')
        check_stop(self.stop)

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
        # The answers of the oracle, one an example.
        self.answers = Arena.empty(n, 2, 8 * _CHUNK, _SHARDS, products=False)
        self.scale = 1.0 / (lam * n)
        self.order = np.random.default_rng([self.seed, 0]).permutation(n)
        # Room for one plane as weights; it is zero between uses.
        self.dense = np.zeros(self.oracle.size)
        self.gram = Gram.of(self.oracle) if self.oracle.has_images else None

    def begin(self, earlier: NSlackState | None) -> NSlackState:
        """The truth, w = 0; or earlier working sets, their masses moved towards the truth if lam is smaller than it was."""
        n, zero = self.oracle.n_examples, np.zeros(self.oracle.size)
        now = NSlackState(
            w=zero, best=zero.copy(), lam=self.lam, family=self.family, gaps=np.zeros(n),
            planes=Arena.empty(n, _SLOTS, _ROOM), coefficients=np.zeros(0 if self.gram is None else len(zero)),
        )  # fmt: skip
        if earlier is not None:
            earlier = earlier_of(now, earlier, ("w", "gaps"))
            check_family(self.family, earlier)
            share = min(1.0, self.lam / earlier.lam)
            factor = share * earlier.lam / self.lam
            now.planes, now.w, now.coefficients = (
                earlier.planes._copy(),
                earlier.w * factor,
                earlier.coefficients * factor,
            )
            now.planes.shrink(share)
            # Programmes are counted from 0 again.
            now.planes.used[:] -= earlier.n_programmes
        return now

    def steps(self, now: NSlackState, stop: Callable[[], bool]) -> None:
        """One sweep over the examples."""
        n, first, waiting, worst = self.oracle.n_examples, 0, 0, 0.0
        turn, moved = Turn.of(n), False
        asked = 0 if isinstance(self.solver.batch, str) else int(self.solver.batch)
        # After a sweep that added next to nothing w stays where it is.
        still = not asked and now.n_passes > 0 and now.n_added <= _FEW * n
        now.n_added = 0
        while first < n and not stop():
            batch = asked or max(_BATCH, _GROWTH * now.n_constraints)
            # As many examples as should have the rest of a batch among them, or, of a batch that is asked for, may have.
            size = int(np.clip((batch - waiting) / max(now.rate, 1e-9), _CHUNK, _LONGEST))
            last = min(n, first + (_LONGEST if still else int(batch - waiting) if asked else size))
            self.ask(now, first, last, turn)
            if now.epsilon == 0.0:
                # The first answers are for w = 0, where hinges are losses.
                largest = 0.0 if self.solver.epsilon == "tol" else float(turn.hinges[first:last].max())
                now.epsilon = max(0.25 * largest, self.tol)
            more, most = self.add_violated(now, first, last, turn)
            worst = max(worst, most)
            now.rate += 0.2 * (more / (last - first) - now.rate)
            waiting += more
            now.n_added += more
            first = last
            if waiting >= batch and not still:
                self.solve_programme(now, _LAST_ROUNDS if asked else _ROUNDS)
                moved, waiting = True, 0
        now.known = first == n and not moved
        if now.known:
            self.keep(now, turn, worst)
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
        if waiting or not now.n_added or not asked:
            self.solve_programme(now, _LAST_ROUNDS)
        drop_unused(now.planes, now.n_programmes - int(self.solver.inactive) + 1)
        # Made afresh: a million small steps leave their rounding in w.
        made = now.w if self.gram is None else now.coefficients
        linear = flat_weights_of_planes(now.planes, self.oracle.weight, self.scale, made)
        if self.gram is not None:
            now.w = self.oracle.image(made)
        now.dual = max(now.dual, linear / n - self.own_regulariser(now))

    def ask(self, now: NSlackState, first: int, last: int, turn: Turn) -> None:
        """The oracle's answers for some examples at w."""
        n = min(_SHARDS, self.oracle.n_shards(last - first))
        cuts = np.linspace(first, last, n + 1).astype(int).tolist()
        shards = [*itertools.pairwise(cuts), *[(last, last)] * (_SHARDS + 1 - len(cuts))]
        self.answers.n_planes[first:last] = 1
        self.answers.filled[:, 0] = self.answers.segment[:-1]
        self.answers = self.oracle.ask(now.w, self.answers, turn, shards, self.threads)
        now.n_oracle_calls += last - first

    def add_violated(self, now: NSlackState, first: int, last: int, turn: Turn) -> tuple[int, float]:
        """Add the planes of some examples that are violated by more than epsilon; returns their number and the most they are."""
        chosen = np.arange(first, last)
        most = violated(now.planes, now.w, chosen, now.epsilon, turn)
        chosen = chosen[turn.picks[chosen] > 0]
        if not len(chosen):
            return 0, most
        found = self.oracle.rows(self.answers, chosen)
        planes = now.planes
        if planes.filled[0, 0] + len(found.entry) > len(planes.entry):
            planes = planes.with_room(_ROOM, len(found.entry))
        crowded = chosen[planes.n_planes[chosen] == planes.capacity[chosen]]
        now.planes = planes.with_capacity(crowded) if len(crowded) else planes
        append(now.planes, chosen, found, now.n_programmes, self.dense, self.gram)
        # Not settled.
        now.gaps[chosen] = np.inf
        return len(chosen), most

    def solve_programme(self, now: NSlackState, rounds: int) -> None:
        """Improve the masses: measure gaps, pass over the examples that are not settled, until the gap is a share of epsilon."""
        now.n_programmes += 1
        planes, weight, n = now.planes, self.oracle.weight, self.oracle.n_examples
        enough, active = _PROGRAMME * now.epsilon, np.zeros(len(planes.alpha), np.bool_)
        for k in range(rounds):
            gap = measure_gaps(planes, now.w, weight, now.gaps, active) / n
            # New planes get their mass even where that is little in the mean: without, they would be dropped, and found again.
            if gap <= enough and k > 0:
                break
            settled = _BLOCK * enough
            chosen = self.order[now.gaps[self.order] > settled]
            for _ in range(_PASSES):
                left = improve(
                    planes, now.w, self.scale, weight, chosen, settled, now.gaps, active, self.gram, now.coefficients
                )
                left /= n
                # Gaps on the way are smaller than those at one w.
                if left <= 0.3 * max(enough, 0.3 * gap):
                    break
        planes.used[planes.alpha > 0.0] = now.n_programmes

    def measure(self, now: NSlackState, off_schedule: bool) -> dict[str, float]:
        """The dual value is known; the primal too, by a call for every example, unless the last sweep found it."""
        n = self.oracle.n_examples
        if not now.known:
            turn = Turn.of(n)
            for first in range(0, n, _LONGEST):
                self.ask(now, first, min(first + _LONGEST, n), turn)
            self.keep(now, turn, violated(now.planes, now.w, np.arange(n), np.inf, turn))
        if not off_schedule:
            now.next_check = 2 * now.n_passes + 2
        return {
            "n_constraints": now.n_constraints, "epsilon": now.epsilon, "n_programmes": now.n_programmes,
            "violation": now.violation,
        }  # fmt: skip

    def keep(self, now: NSlackState, turn: Turn, violation: float) -> None:
        """Take note of weights with a better value, or, where the oracle may miss the best labeling, of the last ones."""
        primal = self.own_regulariser(now) + self.mean(np.where(np.isnan(turn.bounds), turn.hinges, turn.bounds))
        now.violation = violation
        if primal < now.primal or self.certificate == "none" or self.solver.stop == "svm-struct":
            now.primal = primal
            now.best[:] = now.w if self.gram is None else now.coefficients

    def own_regulariser(self, now: NSlackState) -> float:
        """lam/2 |w|^2 of the current weights; with a kernel, the product of coefficients and scores."""
        return self.regulariser(now.w) if self.gram is None else self.lam / 2.0 * dot(now.coefficients, now.w)

    def settled(self, now: NSlackState, tol: float) -> bool:
        """Small violations of many may hide a large one in the mean, which only a certified gap makes up for."""
        return (self.certificate != "none" and self.solver.stop == "gap") or now.violation <= tol

    def weights(self, now: NSlackState) -> NDArray[np.float64]:
        """The flat weights of the best primal value; with a kernel, coefficients of rows."""
        return np.asarray(self.oracle.flat(now.best))

    def options(self, now: NSlackState) -> dict[str, Any]:
        """The oracle, the constraints, and those with mass."""
        planes = now.planes
        return {**super().options(now), "support_vectors": planes.n_support, "constraints": planes.n_kept}


class Gram(Struct):
    """The kernel matrices of the rows of variables and of factors; of a side that is linear there is none."""

    of_variables: NDArray[np.float64]
    of_factors: NDArray[np.float64]
    #: The blocks that each row has a coefficient in, and where the coefficients of factors begin.
    variable_blocks: int
    factor_blocks: int
    cut: int

    @classmethod
    def of(cls, oracle: Any) -> Gram:
        """Of an oracle whose images are scores."""
        variables, factors = (np.empty((0, 0)) if one is None else one.arrays.gram for one in oracle.kernels)
        (rows, variable_blocks), (_, factor_blocks) = oracle.shapes
        return cls(variables, factors, variable_blocks, factor_blocks, rows * variable_blocks)


# ------------------------------------------------------------------------------------------------------- kernels


@inner
def gram_product(values: Any, blocks: int, i: int, j: int) -> float:
    """The inner product of what coefficients i and j of one side are of."""
    if len(values) == 0:
        return 1.0 if i == j else 0.0
    return values[i // blocks, j // blocks] if i % blocks == j % blocks else 0.0


@inner
def add_gram_products(planes: Any, m: int, slot: int, gram: Any) -> None:
    """The inner products of a new plane with all planes of example m, where entries are coefficients of rows."""
    start, size, index, value, products = planes.start, planes.size, planes.entry, planes.value, planes.products
    first, width, square = planes.first[m], planes.capacity[m], planes.square[m]
    variables, factors, cut = gram.of_variables, gram.of_factors, gram.cut
    new = first + slot
    for a in range(planes.n_planes[m]):
        product = 0.0
        for e in range(start[first + a], start[first + a] + size[first + a]):
            i = index[e]
            for f in range(start[new], start[new] + size[new]):
                j = index[f]
                if i < cut and j < cut:
                    product += value[e] * value[f] * gram_product(variables, gram.variable_blocks, i, j)
                elif i >= cut and j >= cut:
                    product += value[e] * value[f] * gram_product(factors, gram.factor_blocks, i - cut, j - cut)
        products[square + a * width + slot] = product
        products[square + slot * width + a] = product


@inner
def add_image(values: Any, blocks: int, i: int, change: float, scores: Any) -> None:
    """Add the image of a change of coefficient i of one side to that side's scores."""
    if len(values) == 0:
        scores[i] += change
    else:
        row, block = values[i // blocks], i % blocks
        for r in range(len(row)):
            scores[r * blocks + block] += change * row[r]


@inner
def add_images(planes: Any, m: int, masses: Any, scale: float, gram: Any, out: Any, scores: Any) -> None:
    """`add_combination` of coefficients, and of their images to the scores."""
    start, size, index, value, first = planes.start, planes.size, planes.entry, planes.value, planes.first[m]
    cut = gram.cut
    of_variables, of_factors = scores[:cut], scores[cut:]
    for a in range(planes.n_planes[m]):
        if masses[a] != 0.0:
            for e in range(start[first + a], start[first + a] + size[first + a]):
                i, change = index[e], scale * masses[a] * value[e]
                out[i] += change
                if i < cut:
                    add_image(gram.of_variables, gram.variable_blocks, i, change, of_variables)
                else:
                    add_image(gram.of_factors, gram.factor_blocks, i - cut, change, of_factors)


@kernel
def violated(planes: Any, w: Any, chosen: Any, epsilon: float, turn: Any) -> float:
    """Leave those of the picks whose slope is more than epsilon above the example's slack; the others become the truth.

    Hinges become at least the slacks. Returns by how much one is above its slack, at most.
    """
    picks, hinges, v = turn.picks, turn.hinges, np.empty(most_planes(planes))
    most = 0.0
    for m in chosen:
        _, slack = plane_slopes(planes, m, w, v)
        if not hinges[m] > slack + epsilon:
            picks[m] = 0
        most = max(most, hinges[m] - slack)
        hinges[m] = max(hinges[m], slack)
    return most


@kernel
def append(planes: Any, chosen: Any, found: Any, now: int, dense: Any, gram: Any) -> None:
    """Add planes, one for each example chosen; there is room."""
    for k in range(len(chosen)):
        m = chosen[k]
        n, ell = copy_plane(found, k, planes.entry, planes.value, planes.filled[0, 0])
        slot = planes.n_planes[m]
        put_plane(planes, 0, m, slot, ell, n)
        planes.used[planes.first[m] + slot] = now
        if gram is None:
            add_flat_products(planes, m, slot, dense)
        if gram is not None:
            add_gram_products(planes, m, slot, gram)


@kernel
def measure_gaps(planes: Any, w: Any, weight: Any, gaps: Any, active: Any) -> float:
    """Write every example's gap at w, and which planes have mass or may get some; returns the sum of weight_m gap_m."""
    total, v = 0.0, np.empty(most_planes(planes))
    for m in range(len(gaps)):
        mean, top = plane_slopes(planes, m, w, v)
        gaps[m] = max(top - mean, 0.0)
        total += weight[m] * gaps[m]
        first = planes.first[m]
        for a in range(planes.n_planes[m]):
            active[first + a] = planes.alpha[first + a] > 0.0 or v[a] > mean
    return total


@kernel
def improve(
    planes: Any, w: Any, scale: float, weight: Any, chosen: Any, settled: float, gaps: Any, active: Any, gram: Any,
    coefficients: Any,
) -> float:  # fmt: skip
    """One pass over those of the chosen whose gap was above `settled`; returns the sum of weight_m times the gaps it met."""
    v, moved, total = np.empty(most_planes(planes)), np.empty(most_planes(planes)), 0.0
    for m in chosen:
        if gaps[m] > settled:
            mean, top = plane_slopes(planes, m, w, v, active)
            gaps[m] = max(top - mean, 0.0)
            total += weight[m] * gaps[m]
            kappa = scale * weight[m]
            if improve_block(planes, m, kappa, v, moved, max(0.5 * settled, INNER * gaps[m]), STEPS) > 0.0:
                if gram is None:
                    add_combination(planes, m, moved, kappa, w)
                if gram is not None:
                    add_images(planes, m, moved, kappa, gram, coefficients, w)
    return total

"""1-slack cutting planes, with margin or slack rescaling.

T. Joachims, T. Finley and C.-N. Yu, Cutting-Plane Training of Structural SVMs, Machine Learning 77, 2009, algorithms 3 and 4.

    min_{w, xi >= 0}  lam/2 |w|^2 + xi   such that   w . psi(y_1 .. y_M) >= ell(y_1 .. y_M) - xi   for all labelings of all examples

All examples share one slack, and a constraint is a plane of the mean hinge (oracles/joint_plane.py):

    repeat   w, xi <- the programme over the working set (working_set.py)
             plane <- the best of the cached planes of each example, if it is violated by enough; else the oracle's answers
             add it to the working set
    until    H(w) - xi <= epsilon

Where the cache has no such plane, the oracle may first be asked about a share of the examples (`refresh`, SVM-struct's ``-b``), by
turns: if their new planes make one that is violated by enough, that is added, and the oracle is not asked about the others.

The number of rounds does not depend on the number of examples (theorem 5), and a few hundred planes are all that is ever kept.
A pass is a round with the oracle, and the rounds with the cache before it.

In SVM-struct's terms: C is theirs (they write 1/2 |w|^2 + C xi, C times ours), and epsilon is `tol`. They stop when no constraint
is violated by more than epsilon at the last solution, and return that (``stop="svm-struct"``); the default also counts the best
weights seen before, which with the same planes is never later. For their rule, too, planes are asked for on the way to w until the
best weights are within tol, and at w from then on; with ``step=1`` at w throughout, as they do.

With an oracle that under-generates, the best of an example's cached planes takes the place of an answer that is worse (bundle.py
has the rest).

With a kernel the dual is the same; vectors are coefficients of rows, and each plane is multiplied by the kernel matrix once, in
blocks (oracles/joint_plane.py), so that the matrix is never kept unless the problem keeps it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.devices import copied
from maxmargin.errors import OptionError
from maxmargin.inference import Engine
from maxmargin.inference.trees import Trees
from maxmargin.problems.factor_graphs import FactorGraphs
from maxmargin.solvers.core.solver import Solver
from maxmargin.solvers.cutting_planes.bundle import BundleState, HingeRun, check_rounds
from maxmargin.solvers.oracles.compiled import TreeOracle
from maxmargin.solvers.oracles.plane_search import Turn
from maxmargin.solvers.oracles.sharded import check_no_cache
from maxmargin.solvers.planes.arena import Arena
from maxmargin.solvers.planes.mean_plane import MeanPlane

#: A plane of the cache is good enough if it is violated by this share of what the oracle last found: rounds without the oracle
#: are cheap where there is a cache (parsing: 13,110 calls with 0.03, 14,858 with 0.1).
_ACCEPT = 0.03
#: Most rounds with the cache before the oracle is asked: ever smaller gains go into ever larger programmes (200 rows of Synth2,
#: C = 1000: 24 passes in 3.8 s; with at most 1000 rounds 20 in 11.6 s, with 10 rounds 94 in 2.3 s).
_RECALLS = 100
#: The same where the oracle is max-product, which takes hardly longer than a round with the cache: 704 words of OCR letters with a
#: cache of 10 took 2.4 to 3.4 s and 30,976 calls, 8.6 to 10.4 s and 19,008 with the numbers above.
_QUICK = 0.25, 10


@dataclass(kw_only=True)
class OneSlackState(BundleState):
    """The working set, and the planes that each example's oracle found last."""

    cache: Arena
    #: Rounds whose plane came from the cache; times that the oracle was asked about a share of the examples.
    n_recalled: int = 0
    n_refreshed: int = 0
    #: Whether the oracle was last asked at w itself.
    asked_at_w: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes of the dual state."""
        return super().nbytes + self.cache.nbytes


class OneSlack(Solver):
    """1-slack cutting planes.

    Parameters
    ----------
    rescaling : "margin" or "slack"
        How the task loss enters: as the margin that is asked for, or as the price of a violation.
    cache : "auto" or int
        Planes kept for each example, tried before the oracle is asked; 0 asks it every round. "auto" is 10, but 0 where the oracle
        is max-product inside a compiled loop, which takes no longer than the slopes of 10 planes (OCR letters: 211 rounds of the
        oracle in 1.9 s, or 44 and 357 from the cache in 2.4 to 3.4 s).
    stop : "gap" or "svm-struct"
        When to stop: at a certified gap of `tol` between the best bounds; or as SVM-struct does with its ``-e``, when no constraint
        is violated by more than `tol` at the last weights, which are returned.
    step : "auto" or float
        Where to ask for planes: this part of the way from the best weights to the programme's (bundle.py); "auto" is 0.3, and
        0.5 with a cache of planes of a slow oracle, which steady the programme, too. 1 is the algorithm of the paper.
    inactive : int
        Planes without mass in so many programmes are dropped.
    inference : "auto", str or engine
        The max-oracle of factor graphs.
    certificate : None or "exact"
        What the oracle's answers must be worth; None takes what it gives.
    refresh : float
        Share of the examples, above 0 and at most 1, that the oracle is asked about when the cache has no violated plane; only if
        that finds none either, it is asked about all.
    device : str
        "cpu", "cuda", "cuda:1" and so on, or "torch" (`maxmargin.devices`).
    """

    name = "one-slack"
    requires = ("max-oracle",)
    certificates = ("exact", "relaxed", "none")
    keeps = "a few hundred mean planes, and a cache"
    loss_tables = False
    orders_columns = True
    paper = "Joachims, Finley and Yu 2009"
    kernels = True
    kernel_blocks = True
    on_devices = True
    signs = True

    def __init__(
        self,
        rescaling: str = "margin",
        cache: str | int = "auto",
        stop: str = "gap",
        step: str | float = "auto",
        inactive: int = 50,
        inference: str | Engine = "auto",
        certificate: str | None = None,
        refresh: float = 1.0,
        device: str = "cpu",
    ) -> None:
        self.rescaling = rescaling
        self.cache = cache
        self.stop = stop
        self.step = step
        self.inactive = inactive
        self.inference = inference
        self.certificate = certificate
        self.refresh = refresh
        self.device = device

    def check_options(self, problem: Any) -> None:
        """Refuse, in a sentence, options that cannot be."""
        check_rescaling(self.rescaling)
        whole = isinstance(self.cache, int | np.integer) and not isinstance(self.cache, bool) and self.cache >= 0
        if not whole and self.cache != "auto":
            raise OptionError(f'cache={self.cache!r} is not possible; it must be "auto" or a whole number from 0.')
        real = isinstance(self.refresh, int | float | np.floating) and not isinstance(self.refresh, bool)
        if not real or not 0.0 < self.refresh <= 1.0:
            raise OptionError(f"refresh={self.refresh!r} is not possible; it must be a number above 0 and at most 1.")
        if self.refresh < 1.0 and self.cache == 0:
            raise OptionError(f"refresh={self.refresh!r} refreshes the cache, and cache=0 is none.")
        check_stop(self.stop)
        if self.device != "cpu" and (self.rescaling, self.refresh, self.cache) not in (
            ("margin", 1.0, "auto"),
            ("margin", 1.0, 0),
        ):
            raise OptionError(
                f'device="{self.device}" has no slack rescaling and keeps no planes of single examples; use rescaling="margin", '
                'cache="auto" and refresh=1, or device="cpu".'
            )
        check_rounds(0.5 if isinstance(self.step, str) and self.step == "auto" else self.step, self.inactive)

    def make_run(self, problem: Any, lam: float, random_state: Any, threads: int) -> OneSlackRun:
        """What does the work."""
        return OneSlackRun(self, problem, lam, random_state, threads)


def check_rescaling(rescaling: Any) -> None:
    """Refuse what is neither margin nor slack rescaling."""
    if rescaling not in ("margin", "slack"):
        raise OptionError(f'rescaling={rescaling!r} is not known; use "margin" or "slack".')


def check_stop(stop: Any) -> None:
    """Refuse a rule that is not known."""
    if stop not in ("gap", "svm-struct"):
        raise OptionError(f'stop={stop!r} is not known; use "gap" or "svm-struct".')


class OneSlackRun(HingeRun):
    """One run."""

    solver: OneSlack
    state_type = OneSlackState

    def __init__(self, solver: OneSlack, problem: Any, lam: float, random_state: Any, threads: int) -> None:
        self.rescaling = solver.rescaling
        super().__init__(solver, problem, lam, random_state, threads)
        graphs = isinstance(problem, FactorGraphs) and self.device.name == "cpu"
        within = graphs and isinstance(self.oracle.oracle.compiled, TreeOracle) and solver.refresh == 1.0
        if not self.oracle.recalls:
            check_no_cache(solver.cache)
            within = True
        self.capacity = (0 if within else 10) if solver.cache == "auto" else int(solver.cache)
        self.oracle.keeps = self.capacity > 0
        #: Whether a round with the oracle takes hardly longer than one with the cache.
        self.quick = graphs and isinstance(self.oracle.oracle.engine, Trees)
        self.accept, self.recalls = _QUICK if self.quick else (_ACCEPT, _RECALLS)

    @property
    def step(self) -> float:
        """Where planes are asked for, between the best weights and w."""
        if self.solver.step != "auto":
            return float(self.solver.step)
        return 0.5 if self.capacity and not self.quick else 0.3

    @property
    def care(self) -> float:
        """Programmes are solved well where the algorithm of the paper is asked for to the letter."""
        return 0.02 if self.solver.stop == "svm-struct" and self.solver.step == 1.0 else 1.0

    def begin(self, earlier: BundleState | None) -> OneSlackState:
        """The plane of the truth; or an earlier working set and its cache."""
        now = super().begin(earlier)
        assert isinstance(now, OneSlackState)
        if isinstance(earlier, OneSlackState) and np.array_equal(earlier.cache.capacity, now.cache.capacity):
            now.cache = earlier.cache._copy()
        return now

    def first_state(self) -> OneSlackState:
        """A state at w = 0."""
        fields = vars(super().first_state())
        # Without a cache there is still one plane of each example, from the search to the sum.
        cache = self.oracle.cache(max(1, self.capacity))
        return OneSlackState(**fields, cache=cache)

    def steps(self, now: Any, stop: Callable[[], bool]) -> None:
        """Rounds with planes of the cache, as long as those are violated by enough, and one with the oracle."""
        for _ in range(self.recalls if self.capacity and np.isfinite(now.violation) else 0):
            xi, enough = self.model(now), max(self.accept * now.violation, self.tol)
            plane: MeanPlane = self.oracle.recall(now.w, now.cache, self.threads, now.n_passes + now.n_recalled)
            if self.solver.refresh < 1.0 and self.slope(plane, now) - xi <= enough:
                plane = self.refreshed(now)
            if self.slope(plane, now) - xi <= enough or not self.add(now, plane, xi):
                break
            now.n_recalled += 1
            if stop():
                # A pass that did not ask the oracle is none.
                now.n_passes -= 1
                return
        super().steps(now, stop)

    def slope(self, plane: MeanPlane, now: Any) -> float:
        """The value of a plane at w."""
        return plane.ell - plane.dot(now.w)

    def refreshed(self, now: Any) -> MeanPlane:
        """The best plane of the cache after the oracle was asked at w about a share of the examples, the next by turns."""
        some = []
        for begin, end in self.oracle.shards:
            size = -(-(end - begin) * float(self.solver.refresh) // 1)
            first = begin + int(now.n_refreshed * size) % max(end - begin, 1)
            some.append((first, min(first + int(size), end)))
        clock = now.n_passes + now.n_recalled
        turn = Turn.of(self.oracle.n_examples, clock)
        now.cache = self.oracle.ask(now.w, now.cache, turn, some, self.threads, True, self.oracle.shards)
        now.n_oracle_calls += sum(end - begin for begin, end in some)
        now.n_refreshed += 1
        found: MeanPlane = self.oracle.recall(now.w, now.cache, self.threads, clock)
        return found

    def found(self, now: Any, xi: float) -> MeanPlane:
        """A plane by the oracle; at w, where SVM-struct's rule could be met there, and then w is what is returned."""
        if self.solver.stop != "svm-struct" or self.always_at_w:
            now.asked_at_w = True
            return super().found(now, xi)
        now.at_w = now.at_w or self.step == 1.0 or now.gap <= self.tol
        now.asked_at_w = now.at_w or not np.isfinite(now.primal)
        if not now.asked_at_w:
            return super().found(now, xi)
        best, coefficients, primal = copied(now.best), now.coefficients.copy(), now.primal
        now.primal = np.inf
        plane = super().found(now, xi)
        if now.violation > self.tol and primal < now.primal:
            now.best, now.coefficients, now.primal = best, coefficients, primal
        return plane

    def ask(self, now: Any, u: NDArray[np.float64]) -> tuple[MeanPlane, float]:
        """The mean of the examples' planes of largest slope, which the cache gets, too."""
        clock = now.n_passes + now.n_recalled
        plane, now.cache = self.oracle.find(u, now.cache, self.threads, clock)
        if self.certificate == "none" and self.capacity:
            plane = self.oracle.recall(u, now.cache, self.threads, clock)
        now.n_oracle_calls += self.oracle.n_examples
        return plane, self.mean(plane.hinges)

    def measure(self, now: Any, off_schedule: bool) -> dict[str, float]:
        """Bounds come with the rounds."""
        return {**super().measure(now, off_schedule), "n_recalled": now.n_recalled}

    def settled(self, now: Any, tol: float) -> bool:
        """A smaller gap of older bounds is no reason to stop for SVM-struct."""
        return self.solver.stop != "svm-struct" or (now.violation <= tol and now.asked_at_w)

    def options(self, now: Any) -> dict[str, Any]:
        """The oracle, the planes in use, the size of the cache, and the rounds whose plane came from it."""
        support = int(np.count_nonzero(now.alpha[1:]))
        more = {"support_vectors": support, "cached_planes": self.capacity, "n_recalled": now.n_recalled}
        return {**super().options(now), **more}

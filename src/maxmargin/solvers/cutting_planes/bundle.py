"""The bundle method: cutting planes of a convex mean loss, for the hinge and for the logistic loss.

Teo, Smola, Vishwanathan and Le, A Scalable Modular Convex Solver for Regularized Risk Minimization, KDD 2007; algorithm
3 of Joachims, Finley and Yu (one_slack.py) is the case of the hinge.

    P(w) = lam/2 |w|^2 + R(w),      R convex
    plane k, at w_k:   psi_k = -(a subgradient of R at w_k),   ell_k = R(w_k) + w_k . psi_k,     R(w) >= ell_k - w . psi_k
    w_{k+1} = argmin lam/2 |w|^2 + max_k (ell_k - w . psi_k),  whose dual is the programme of working_set.py

The dual value of any masses on the planes bounds P from below, whatever the precision of the programme. Planes are asked for not
at w_{k+1} itself, which jumps about while there are few planes, but a part `step` of the way there from the best weights so far; a
plane from anywhere is true. Where C is large that takes fewer rounds (OCR letters, 704 words: 211, not 478). If such a
plane says nothing new about w_{k+1}, the next one is asked for there; step = 1 is the method as published.

An oracle that under-generates (certificate "none") may answer with less than the working set has. R(w) is then taken to be at
least the model's value there, as in Finley and Joachims, Training Structural SVMs when Exact Inference is Intractable, ICML 2008,
algorithm 1, line 7; planes are asked for at w_{k+1}, and the weights are the last ones, not those of the best value: it misses
more in some places than in others, so that values at different weights say nothing about which are better. Such a run is over
when no constraint that the oracle finds is violated by more than tol.

Weights may have signs, w_j >= 0 or w_j <= 0: planes are the same, and the programme over them knows (planes/signed_qp.py).

With ``objective="margin"`` R is the mean hinge, whose planes come from the max-oracle; with ``objective="log"`` it is the mean
negative log-likelihood of a conditional random field, whose gradient comes from marginals ("softmax-margin" has the loss in the
exponent, too; lbfgs.py):

    R(w) = 1/M sum_m weight_m log sum_y exp(-w . psi_m(y)),       psi_m(y) = phi(x_m, y_m) - phi(x_m, y)
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.devices import copied
from maxmargin.devices.vectors import nonzeros
from maxmargin.errors import OptionError
from maxmargin.inference import ENGINES, Engine, engine
from maxmargin.problems.factor_graphs import FactorGraphs
from maxmargin.solvers.core.capabilities import OBJECTIVES, check_objective
from maxmargin.solvers.core.run import State
from maxmargin.solvers.core.solver import Solver
from maxmargin.solvers.oracles.exp_oracle import exp_oracle_of
from maxmargin.solvers.oracles.joint_plane import joint_oracle
from maxmargin.solvers.oracles.oracle_run import OracleRun, check_family, dot, earlier_of
from maxmargin.solvers.planes.mean_plane import MeanPlane
from maxmargin.solvers.planes.signed_qp import Signs
from maxmargin.solvers.planes.working_set import WorkingSet

#: The programme is solved to this share of the violation last seen, and of the tolerance.
_QP_SHARE, _QP_FLOOR = 0.05, 0.05
#: Share of the gap between the plane that the oracle found and its bound above which it is asked for its best.
_LEFT_OPEN = 0.3
#: Relative difference of a plane's slope from the model's value that is rounding.
_ROUNDING = 1e-12
#: Engines whose marginals are exact.
_MARGINALS = ("exhaustive", "junction_tree", "trees")


@dataclass(kw_only=True)
class BundleState(WorkingSet, State):
    """The working set, the weights of its solution and the best ones.

    With a kernel, both are what scores are read from, and `coefficients` has those of the best weights; it is empty without.
    """

    on_device = ("value", "w", "best")

    w: Any
    best: Any
    coefficients: NDArray[np.float64]
    lam: float
    #: lam/2 |w|^2, by w itself.
    regulariser: float = 0.0
    #: How much the last plane that the oracle found raised the model of R at w.
    violation: float = np.inf
    #: Whether the next plane is asked for at w itself.
    at_w: bool = False
    #: Questions in a row whose answer changed nothing: after one on the way to w and one there, the next ones would not, either.
    n_idle: int = 0
    #: Whether the oracle is asked for its best.
    in_earnest: bool = False
    #: What the planes are of (`family_of`).
    family: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the dual state."""
        own = int(self.w.nbytes + self.best.nbytes + self.coefficients.nbytes)
        return int(WorkingSet.nbytes.fget(self)) + own  # type: ignore[attr-defined]


class BundleMethod(Solver):
    """Cutting planes of a convex mean loss (BMRM).

    Parameters
    ----------
    objective : "margin", "log" or "softmax-margin"
    inference : "auto", str or engine
        The max-oracle, or the engine of marginals, of factor graphs.
    step : float
        Where to ask for planes: this part of the way from the best weights to the programme's; 1 is there.
    inactive : int
        Planes without mass in so many programmes are dropped.
    certificate : None or "exact"
        What the oracle's answers must be worth; None takes what it gives.
    device : str
        "cpu", "cuda", "cuda:1" and so on, or "torch" (`maxmargin.devices`).
    """

    name = "bundle"
    requires = ("max-oracle",)
    certificates = ("exact", "relaxed", "none")
    keeps = "mean planes"
    loss_tables = False
    orders_columns = True
    paper = "Teo, Smola, Vishwanathan and Le 2007"
    objectives = OBJECTIVES
    kernels = True
    kernel_blocks = True
    kernel_objectives = ("margin",)
    on_devices = True
    signs = True

    def __init__(
        self,
        objective: str = "margin",
        inference: str | Engine = "auto",
        step: float = 0.3,
        inactive: int = 50,
        certificate: str | None = None,
        device: str = "cpu",
    ) -> None:
        self.objective = objective
        self.inference = inference
        self.step = step
        self.inactive = inactive
        self.certificate = certificate
        self.device = device

    def check_options(self, problem: Any) -> None:
        """Refuse, in a sentence, options that cannot be."""
        check_objective(self.objective)
        check_rounds(self.step, self.inactive)

    def make_run(self, problem: Any, lam: float, random_state: Any, threads: int) -> BundleRun:
        """What does the work."""
        kind = HingeRun if self.objective == "margin" else LogRun
        return kind(self, problem, lam, random_state, threads)


def check_rounds(step: Any, inactive: Any) -> None:
    """Refuse a step that is not in (0, 1], or a number of rounds that is not one."""
    if isinstance(step, bool) or not isinstance(step, int | float | np.floating) or not 0.0 < step <= 1.0:
        raise OptionError(f"step={step!r} is not possible; it must be a number above 0 and at most 1.")
    if isinstance(inactive, bool) or not isinstance(inactive, int | np.integer) or inactive < 1:
        raise OptionError(f"inactive={inactive!r} is not possible; it must be a whole number of at least 1.")


def check_certificate(asked: Any, oracle: Any, problem: Any, among: Iterable[str] = ENGINES) -> None:
    """Refuse an oracle whose answers are worth less than is asked for."""
    if asked not in (None, "exact"):
        raise OptionError(f'certificate={asked!r} is not known; use None or "exact".')
    if asked is None or oracle.certificate == "exact":
        return
    if not isinstance(problem, FactorGraphs):
        raise OptionError(
            f'certificate="exact" is asked for, but {oracle.name} may miss the best output: {oracle.reason}. '
            "A model whose answers are always the best says exact = True."
        )
    short = "relaxes the problem" if oracle.certificate == "relaxed" else "is not exact"
    exact = [name for name in among if engine(name).exact and engine(name).refusal(problem) is None]
    would = " or ".join(f'"{name}"' for name in exact)
    raise OptionError(
        f'certificate="exact" is asked for, but the engine "{oracle.name}" {short}; '
        + (f"use {would}." if exact else "no engine is exact on this problem.")
    )


def family_of(objective: str, certificate: str) -> int:
    """What planes are of: an objective, or "slack", as an even number; one more for approximate marginals."""
    smooth = objective not in ("margin", "slack")
    return 2 * ("slack", *OBJECTIVES).index(objective) + (smooth and certificate != "exact")


class BundleRun(OracleRun[BundleState]):
    """One run: ask for a plane at w, add it, solve the programme, move w."""

    solver: Any
    state_type: type[Any] = BundleState
    #: Length of the vectors of planes, room for one, which is zero between uses, and for weights, and what planes are of.
    size: int
    dense: Any
    between: Any
    family: int
    #: Whether planes are asked for at w, whatever `step` says, and the last weights are those to return.
    always_at_w = False
    #: The coordinates of weights that have a sign; None if none has.
    signs: Signs | None = None

    @property
    def step(self) -> float:
        """Where planes are asked for, between the best weights and w."""
        return float(self.solver.step)

    def begin(self, earlier: BundleState | None) -> BundleState:
        """The plane of the truth and w = 0; or an earlier working set, since planes are valid whatever lam is."""
        now = self.first_state()
        now.family = self.family
        if earlier is not None:
            earlier = earlier_of(now, earlier, ("w",))
            check_family(self.family, earlier)
            for name in WorkingSet.__dataclass_fields__:
                setattr(now, name, copied(getattr(earlier, name)))
            if self.signs is not None:
                pieces = [slice(*ends) for ends in itertools.pairwise(now.start.tolist())]
                now.signed = np.stack([self.signs.row(now.index[one], now.value[one]) for one in pieces])
            self.solve_programme(now, 0.0)
            now.at_w = True
        # Of the truth's plane alone, 0: where nothing is violated at w = 0, no other is ever added.
        now.dual = now.linear - now.regulariser
        return now

    def first_state(self) -> BundleState:
        """A state at w = 0."""
        zero = self.device.zeros(self.size)
        truth = WorkingSet.only_truth(self.size, False, self.device, self.n_signed)
        return BundleState(**truth, w=zero, best=copied(zero), coefficients=np.empty(0), lam=self.lam)

    @property
    def n_signed(self) -> int:
        """How many weights have a sign."""
        return 0 if self.signs is None else len(self.signs.at)

    @abstractmethod
    def ask(self, now: BundleState, u: NDArray[np.float64]) -> tuple[MeanPlane, float]:
        """A plane at u, and R(u)."""

    def image(self, plane: MeanPlane) -> NDArray[np.float64] | None:
        """What a plane means to the scores, where that is another vector."""
        return None

    def steps(self, now: BundleState, stop: Callable[[], bool]) -> None:
        """One round: a plane, and the programme with it."""
        xi, before, effort = self.model(now), now.primal, now.in_earnest
        if self.add(now, self.found(now, xi), xi):
            now.n_idle = 0
            return
        now.n_idle = now.n_idle + 1 if now.primal == before and now.in_earnest == effort else 0
        if self.certificate == "none":
            # The oracle missed what the set has; what is left of the gap is the programme's.
            self.solve_programme(now, _QP_FLOOR * self.tol)

    def model(self, now: BundleState) -> float:
        """The value of the model at w, by the masses; with an exact programme it is the largest slope of the set."""
        return now.linear - 2.0 * now.regulariser

    def add(self, now: BundleState, plane: MeanPlane, xi: float) -> bool:
        """Add a plane and solve the programme, if it says something new about w; returns whether it does."""
        slope = plane.ell - plane.dot(now.w)
        if slope - xi <= _ROUNDING * (1.0 + abs(xi)):
            return False
        now.add_plane(plane, self.dense, self.image(plane), self.threads)
        if self.signs is not None:
            now.signed = np.concatenate([now.signed, self.signs.of_plane(plane)[None]])
        self.solve_programme(now, self.care * max(_QP_SHARE * (slope - xi), _QP_FLOOR * self.tol))
        now.drop_idle(int(self.solver.inactive))
        return True

    @property
    def care(self) -> float:
        """What the precision of programmes is multiplied by."""
        return 1.0

    def found(self, now: BundleState, xi: float) -> MeanPlane:
        """A plane by the oracle, from between the best weights and w; takes note of weights with a better value."""
        step = 1.0 if self.always_at_w or now.at_w or not np.isfinite(now.primal) else self.step
        u = now.w if step == 1.0 else self.device.blend(step, now.best, now.w, self.between)
        plane, risk = self.ask(now, u)
        self.note_left_open(now, risk - plane.ell + plane.dot(u))
        if self.certificate == "none":
            risk = max(risk, now.largest_slope(self.lam))
        if self.always_at_w:
            now.primal = np.inf
        now.violation = max(0.0, plane.ell - plane.dot(now.w) - xi)
        if step == 1.0:
            # Where the oracle only bounds the hinge, that bound counts.
            now.violation = max(now.violation, risk - xi)
        now.at_w = step < 1.0 and now.violation == 0.0
        self.keep(now, risk, u, step)
        return plane

    def note_left_open(self, now: BundleState, left_open: float) -> None:
        """Take note of what lies between the plane that the oracle found and its bound."""

    def keep(self, now: BundleState, risk: float, u: NDArray[np.float64], step: float) -> None:
        """Take note of weights with a better value; u is `step` of the way from the best ones to w."""
        primal = risk + self.lam / 2.0 * self.device.dot(u, u)
        if primal < now.primal:
            now.primal = primal
            if u is self.between:
                now.best, self.between = u, now.best
            else:
                now.best[:] = u

    def solve_programme(self, now: BundleState, tol: float) -> None:
        """Masses and weights of the working set."""
        now.optimise(self.lam, tol)
        self.place(now)
        now.dual = max(now.dual, now.linear - now.regulariser)

    def place(self, now: BundleState) -> None:
        """The weights of the masses."""
        now.weights(self.lam, now.w, self.threads)
        if self.signs is not None:
            self.signs.project(now.w)
        now.regulariser = self.lam / 2.0 * self.device.dot(now.w, now.w)

    def stalled(self, now: BundleState) -> bool:
        """Whether the gap has stopped shrinking, or nothing changes any more."""
        return now.n_idle > 1 or super().stalled(now)

    def measure(self, now: BundleState, off_schedule: bool) -> dict[str, float]:
        """Bounds come with the rounds; nothing is left to do."""
        if not off_schedule:
            now.next_check = now.n_passes + 1
        return {"n_planes": now.n_planes, "violation": now.violation}

    def weights(self, now: BundleState) -> NDArray[np.float64]:
        """The flat weights of the best primal value."""
        return self.flat(copied(now.best))


class LogRun(BundleRun):
    """The logistic loss, with the task loss or without, by marginals."""

    def __init__(self, solver: Any, problem: Any, lam: float, random_state: Any, threads: int) -> None:
        super().__init__(solver, problem, lam, random_state, threads)
        loss_augmented = solver.objective != "log"
        here = self.device_oracle(loss_augmented)
        self.oracle: Any = here or exp_oracle_of(problem, solver.inference, loss_augmented)
        check_certificate(solver.certificate, self.oracle, problem, _MARGINALS)
        self.certificate, self.size = self.oracle.certificate, self.oracle.n_weights
        self.dense, self.between = self.device.zeros(self.size), self.device.empty(self.size)
        signs = getattr(problem, "signs", None)
        self.signs = None if signs is None else Signs(signs)
        self.family = family_of(solver.objective, self.certificate)
        self.always_at_w = self.certificate == "none"

    def ask(self, now: BundleState, u: NDArray[np.float64]) -> tuple[MeanPlane, float]:
        """The tangent of R at u."""
        found = self.oracle.mean(u, 1.0, self.threads)
        now.n_oracle_calls += self.oracle.n_examples
        risk = self.mean(found.values)
        here = self.device.name == "cpu"
        index, value = nonzeros(found.psi, 1.0, self.threads) if here else (None, found.psi)
        plane = MeanPlane(index, value, risk, found.values)
        return plane._replace(ell=risk + plane.dot(u)), risk


class HingeRun(BundleRun):
    """The hinge, by the max-oracle."""

    oracle: Any
    rescaling = "margin"

    def __init__(self, solver: Any, problem: Any, lam: float, random_state: Any, threads: int) -> None:
        super().__init__(solver, problem, lam, random_state, threads)
        self.oracle = self.device_oracle() or joint_oracle(problem, solver.inference, self.rescaling)
        check_certificate(solver.certificate, self.oracle, problem)
        self.certificate, self.size = self.oracle.certificate, self.oracle.size
        self.dense, self.between = self.device.zeros(self.size), self.device.empty(self.size)
        signs = getattr(problem, "signs", None)
        self.signs = None if signs is None else Signs(self.oracle.working(signs))
        self.family = family_of(self.rescaling, self.certificate)
        self.always_at_w = self.certificate == "none"
        self.planes, self.oracle.keeps = self.oracle.cache(1), False

    def first_state(self) -> BundleState:
        """A state at w = 0."""
        zero, images = self.device.zeros(self.size), self.oracle.has_images
        return BundleState(
            **WorkingSet.only_truth(self.size, images, self.device, self.n_signed), w=zero, best=copied(zero),
            coefficients=np.zeros(self.size if images else 0), lam=self.lam,
        )  # fmt: skip

    def found(self, now: BundleState, xi: float) -> MeanPlane:
        """A plane by the oracle."""
        if getattr(self.oracle.oracle, "thorough", None) is not None:
            self.oracle.oracle.in_earnest = now.in_earnest
        return super().found(now, xi)

    def note_left_open(self, now: BundleState, left_open: float) -> None:
        """Ask the oracle for its best from now on, if what it leaves open is much of the gap."""
        if getattr(self.oracle.oracle, "thorough", None) is not None:
            now.in_earnest = now.in_earnest or left_open > _LEFT_OPEN * (now.primal - now.dual)

    def ask(self, now: BundleState, u: NDArray[np.float64]) -> tuple[MeanPlane, float]:
        """The mean of the examples' planes of largest slope."""
        plane, self.planes = self.oracle.find(u, self.planes, self.threads, now.n_passes)
        now.n_oracle_calls += self.oracle.n_examples
        return plane, self.mean(plane.hinges)

    def image(self, plane: MeanPlane) -> NDArray[np.float64] | None:
        """K times the plane's coefficients, with a kernel."""
        if not self.oracle.has_images:
            return None
        self.dense[plane.index] = plane.value
        found = np.asarray(self.oracle.image(self.dense))
        self.dense[plane.index] = 0.0
        return found

    def place(self, now: BundleState) -> None:
        """The weights of the masses; with a kernel, w is what scores are read from."""
        if not self.oracle.has_images:
            super().place(now)
            return
        now.w = now.scores(self.lam)
        now.weights(self.lam, self.dense, self.threads)
        now.regulariser = self.lam / 2.0 * dot(self.dense, now.w)
        self.dense[:] = 0.0

    def keep(self, now: BundleState, risk: float, u: NDArray[np.float64], step: float) -> None:
        """Take note of weights with a better value; with a kernel, inner products are of coefficients with scores."""
        if not self.oracle.has_images:
            super().keep(now, risk, u, step)
            return
        best, towards = now.coefficients, now.regulariser
        own, both = self.lam / 2.0 * dot(best, now.best), self.lam * dot(best, now.w)
        primal = risk + (1.0 - step) ** 2 * own + (1.0 - step) * step * both + step**2 * towards
        if primal < now.primal:
            now.primal = primal
            now.best[:] = u
            now.weights(self.lam, self.dense, self.threads)
            best *= 1.0 - step
            best += step * self.dense
            self.dense[:] = 0.0

    def weights(self, now: BundleState) -> NDArray[np.float64]:
        """The flat weights of the best primal value; with a kernel, coefficients of rows."""
        return np.asarray(self.oracle.flat(now.coefficients if self.oracle.has_images else now.best))

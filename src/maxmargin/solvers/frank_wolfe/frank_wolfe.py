"""Frank-Wolfe on the dual, all examples at a time.

Lacoste-Julien, Jaggi, Schmidt and Pletscher, Block-Coordinate Frank-Wolfe Optimization for Structural SVMs, ICML 2013, algorithm 2.
The iterate is a mixture of mean planes (oracles/max_oracle.py), kept as its weights w = psi / lam and its ell:

    f(w, ell) = ell - lam/2 |w|^2
    w_s = psi_s / lam, ell_s       of the mean plane of largest slope at w
    gap       = lam (w - w_s) . w - ell + ell_s  =  P(w) - f(w, ell)
    gamma     = clip( gap / (lam |w - w_s|^2), 0, 1 )
    w, ell   <- (1 - gamma) (w, ell) + gamma (w_s, ell_s)

One pass is one call for all examples, and the gap comes with the step, so that certificates are free. It needs many more passes
than `bcfw`; it is here because a call for all examples is what a cluster can share, and to compare with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.devices import copied
from maxmargin.inference import Engine
from maxmargin.solvers.core.run import State
from maxmargin.solvers.core.solver import Solver
from maxmargin.solvers.oracles.max_oracle import oracle_of
from maxmargin.solvers.oracles.oracle_run import OracleRun, earlier_of


@dataclass
class FrankWolfeState(State):
    """The mixture, the best weights, and the weighted mean of all."""

    on_device = ("w", "best", "average")

    w: NDArray[np.float64]
    best: NDArray[np.float64]
    average: NDArray[np.float64]
    ell: float
    lam: float

    @property
    def nbytes(self) -> int:
        """Bytes of the dual state."""
        return int(self.w.nbytes)


class FrankWolfe(Solver):
    """Batch Frank-Wolfe with exact line search.

    Parameters
    ----------
    inference : "auto", str or engine
        The max-oracle of factor graphs.
    averaging : bool
        Also keep the weighted mean of the weights, in which pass k counts k times, and report it where its value is lower; its
        value takes a call of its own at checks.
    device : str
        "cpu", "cuda", "cuda:1" and so on, or "torch" (`maxmargin.devices`).
    """

    name = "frank-wolfe"
    requires = ("max-oracle",)
    certificates = ("exact", "relaxed", "none")
    keeps = "a few vectors of weights"
    loss_tables = False
    orders_columns = True
    paper = "Lacoste-Julien, Jaggi, Schmidt and Pletscher 2013, algorithm 2"
    on_devices = True

    def __init__(self, inference: str | Engine = "auto", averaging: bool = False, device: str = "cpu") -> None:
        self.inference = inference
        self.averaging = averaging
        self.device = device

    def check_options(self, problem: Any) -> None:
        """Nothing here can be wrong; the oracle speaks for itself."""

    def make_run(self, problem: Any, lam: float, random_state: Any, threads: int) -> FrankWolfeRun:
        """What does the work."""
        return FrankWolfeRun(self, problem, lam, random_state, threads)


class FrankWolfeRun(OracleRun[FrankWolfeState]):
    """One run."""

    solver: FrankWolfe
    state_type = FrankWolfeState

    def __init__(self, solver: FrankWolfe, problem: Any, lam: float, random_state: Any, threads: int) -> None:
        super().__init__(solver, problem, lam, random_state, threads)
        self.oracle = self.device_oracle() or oracle_of(problem, solver.inference)
        self.certificate = self.oracle.certificate

    def begin(self, earlier: FrankWolfeState | None) -> FrankWolfeState:
        """The truth, w = 0; or an earlier mixture, whose weights stay where they are if lam is not larger than it was."""
        zero = self.device.zeros(self.oracle.n_weights)
        now = FrankWolfeState(zero, copied(zero), copied(zero), 0.0, self.lam)
        if earlier is not None:
            earlier = earlier_of(now, earlier, ("w",))
            share = min(1.0, self.lam / earlier.lam)
            now.w, now.ell = earlier.w * (share * earlier.lam / self.lam), share * earlier.ell
            now.average = copied(now.w)
        return now

    def steps(self, now: FrankWolfeState, stop: Callable[[], bool]) -> None:
        """One step; the value of the weights before it is known then, and the dual after it."""
        found = self.oracle.mean_plane(now.w, self.threads)
        now.n_oracle_calls += self.oracle.n_examples
        self.keep(now, self.regulariser(now.w) + self.mean(found.hinges), now.w)
        now.dual = max(now.dual, now.ell - self.regulariser(now.w))
        towards = found.dense(len(now.w)) / self.lam - now.w
        gap = found.ell - now.ell - self.lam * self.device.dot(towards, now.w)
        curvature = self.lam * self.device.dot(towards, towards)
        if gap > 0.0:
            step = gap / curvature if gap < curvature else 1.0
            now.w = now.w + step * towards
            now.ell += step * (found.ell - now.ell)
        now.dual = max(now.dual, now.ell - self.regulariser(now.w))
        if self.solver.averaging:
            now.average += 2.0 / (now.n_passes + 2) * (now.w - now.average)

    def measure(self, now: FrankWolfeState, off_schedule: bool) -> dict[str, float]:
        """Nothing is left to do but for the mean."""
        if self.solver.averaging:
            self.keep(now, self.primal(now, now.average), now.average)
        if not off_schedule:
            now.next_check = now.n_passes + 1 + (now.n_passes // 8 if self.solver.averaging else 0)
        return {}

    def keep(self, now: FrankWolfeState, primal: float, w: NDArray[np.float64]) -> None:
        """Take note of weights with a better value."""
        if primal < now.primal:
            now.primal, now.best = primal, copied(w)

    def weights(self, now: FrankWolfeState) -> NDArray[np.float64]:
        """The flat weights of the best primal value."""
        return self.flat(now.best)

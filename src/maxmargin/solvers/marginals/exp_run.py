"""A run on an exp-oracle: what the solvers by marginals share."""

from __future__ import annotations

import math
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from maxmargin.problems.columns import columns_of
from maxmargin.problems.factor_graphs import FactorGraphs
from maxmargin.problems.features import KernelFeatures
from maxmargin.solvers.core.run import State
from maxmargin.solvers.oracles.exp_oracle import HOT, ExpOracle, MeanMarginals, exp_oracle_of
from maxmargin.solvers.oracles.max_oracle import MaxOracle, oracle_of
from maxmargin.solvers.oracles.oracle_run import OracleRun, dot

S = TypeVar("S", bound=State)


class ExpRun(OracleRun[S]):
    """A run on an exp-oracle: what the marginal-based solvers share.

    Inner products are those of the weights, whether they are written down or known by the coefficients of a kernel. A problem with
    many sparse features is trained in coordinates of its own (columns.py), and so are its states; its result has the weights.
    """

    oracle: Any
    hardest: MaxOracle | None = None
    #: The weights that `inner` saw last, and their scores, of variables and of factors.
    seen: NDArray[np.float64] | None = None
    scores: list[NDArray[np.float64]]

    def __init__(self, solver: Any, problem: Any, lam: float, random_state: Any, threads: int) -> None:
        self.columns = columns_of(problem, merge=True, threads=threads)
        problem = problem if self.columns is None else self.columns.inside
        super().__init__(solver, problem, lam, random_state, threads)
        loss_augmented = getattr(solver, "objective", "margin") != "log"
        here: ExpOracle | None = self.device_oracle(loss_augmented)
        self.oracle = here or exp_oracle_of(problem, solver.inference, loss_augmented)
        self.hardest = self.oracle if here else None
        self.certificate = self.oracle.certificate

    def expect(self, now: S, w: Any, temperature: float) -> MeanMarginals:
        """Ask the oracle, and count the question."""
        now.n_oracle_calls += self.oracle.n_examples
        found: MeanMarginals = self.oracle.mean(w, temperature, self.threads)
        return found

    def inner(self, one: Any, other: Any) -> float:
        """Inner product of two flat weights; behind a kernel, a product with its matrix, which is kept for `one`."""
        p = self.problem
        if not (isinstance(p, FactorGraphs) and p.has_kernel):
            return self.device.dot(one, other)
        if self.seen is not one:
            sides = zip((p.variable_features, p.factor_features), p.split_weights(one), strict=True)
            self.seen = one
            self.scores = [side.times(own.T) if isinstance(side, KernelFeatures) else own.T for side, own in sides]
        return sum(dot(scores, others.T) for scores, others in zip(self.scores, p.split_weights(other), strict=True))

    def regulariser(self, w: Any) -> float:
        """lam/2 |w|^2."""
        return self.lam / 2.0 * self.inner(w, w)

    def primal(self, now: S, w: Any) -> float:
        """P(w) of the margin, by a max-oracle with the same engine."""
        if self.hardest is None:
            self.hardest = oracle_of(self.problem, getattr(self.oracle, "engine", "auto"))
        now.n_oracle_calls += self.oracle.n_examples
        return self.regulariser(w) + self.mean(self.hardest.mean_plane(w, self.threads).hinges)

    def radius(self) -> float:
        """A bound of max |psi|, or infinity where the problem knows none."""
        return float(self.oracle.radius()) if hasattr(self.oracle, "radius") else math.inf

    def labelings(self) -> float:
        """Mean of weight_m log |Y_m|."""
        return self.mean(self.oracle.mean(self.device.zeros(self.oracle.n_weights), HOT, self.threads).values / HOT)

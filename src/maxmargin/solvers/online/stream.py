"""Online training: examples that come one batch after another, each visited once, in the order in which they come.

The visits are those of the online solvers (subgradient.py, perceptron.py), and so are the weights after them, the average of all
iterates: batches that are visited one after another give the weights of one pass over all of them in that order. Nothing is
certified: that would take all examples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.errors import OptionError
from maxmargin.solvers.core.capabilities import check_fit
from maxmargin.solvers.core.solver import Solver
from maxmargin.solvers.online.subgradient import SumState


@dataclass
class Stream:
    """Where online training stands.

    Attributes
    ----------
    lam, t0 : float
        1 / C, and the visits that are taken to have been made before the first; perceptrons have no use for them.
    start : array (d,), optional
        Flat weights to begin with; None is zero.
    v, u : array (d,), optional
        The sum of the planes, and of these times the number of their visit, as the kernels have them; None before the first visit.
    t : int
        Examples visited.
    """

    lam: float
    t0: float
    start: NDArray[np.float64] | None = None
    v: NDArray[np.float64] | None = None
    u: NDArray[np.float64] | None = None
    t: int = 0

    def visit(self, solver: Solver, problem: Any) -> NDArray[np.float64]:
        """Visit the examples of a batch in their order; returns the flat weights after them.

        Parameters
        ----------
        solver : Solver
            One that visits examples one after another (``streams``).
        problem : problem
            The batch, with as many weights as those before.
        """
        check_fit(solver, problem)
        solver.check_options(problem)
        run: Any = solver.make_run(problem, self.lam, 0, 1)
        if run.step:
            run.t0 = self.t0
        if self.v is None or self.u is None:
            self.v = self._first(run, problem)
            # Sums of iterates leave out the one before the first visit.
            self.u = self.v.copy()
        if problem.n_weights != len(self.v):
            raise OptionError(f"This batch has {problem.n_weights} weights, and those before had {len(self.v)}.")
        n = run.oracle.n_examples
        now = SumState(self.v, self.u, np.empty(0), np.zeros(3), np.zeros(n), np.zeros(n), self.lam, self.t)
        run.visit(now, np.arange(n), lambda: False)
        # Where planes come one by one, the sums are new arrays.
        self.v, self.u, self.t = now.v, now.u, now.t
        weights: NDArray[np.float64] = run.flat(run.average(now))
        return weights

    def _first(self, run: Any, problem: Any) -> NDArray[np.float64]:
        """The sum that has the weights of the start."""
        if self.start is None:
            return np.zeros(problem.n_weights)
        flat = self.start
        if run.compiled:
            flat = np.concatenate([np.ravel(side) for side in problem.working_weights(flat)])
        return flat * (self.lam * self.t0) if run.step else flat.copy()

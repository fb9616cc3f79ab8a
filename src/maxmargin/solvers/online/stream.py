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
    v, u : array (d,)
        The sum of the planes, and of these times the number of their visit, as the kernels have them.
    t : int
        Examples visited.
    lam, t0 : float
        1 / C, and the visits that are taken to have been made before the first; perceptrons have no use for them.
    """

    v: NDArray[np.float64]
    u: NDArray[np.float64]
    t: int
    lam: float
    t0: float

    @classmethod
    def begin(cls, problem: Any, lam: float, t0: float) -> Stream:
        """Nothing visited yet.

        Parameters
        ----------
        problem : problem
            The first batch.
        lam : float
            1 / C.
        t0 : float
            Visits that are taken to have been made before the first.
        """
        return cls(np.zeros(problem.n_weights), np.zeros(problem.n_weights), 0, lam, t0)

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
        if problem.n_weights != len(self.v):
            raise OptionError(f"This batch has {problem.n_weights} weights, and those before had {len(self.v)}.")
        run: Any = solver.make_run(problem, self.lam, 0, 1)
        if run.step:
            run.t0 = self.t0
        n = run.oracle.n_examples
        now = SumState(
            self.v, self.u, np.empty(0), np.zeros(3), np.zeros(n), np.zeros(n), self.lam, self.t
        )  # fmt: skip
        run.visit(now, np.arange(n), lambda: False)
        self.t = now.t
        weights: NDArray[np.float64] = run.flat(run.average(now))
        return weights

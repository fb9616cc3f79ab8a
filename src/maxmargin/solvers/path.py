"""A path of C: each problem starts from the solution of the one before, with its weights.

For lam' < lam the dual point ``alpha' = (lam' / lam) alpha + (1 - lam' / lam) truth`` has the same weights, and its gap is that of
alpha plus exactly ``(1 - lam' / lam) (l - lam |w|^2)``, l being the linear part of the dual at alpha. Near the optimum that is
small, so that a whole path is certified at little more than the cost of its last point. Paths go from small to large C.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from maxmargin.errors import OptionError
from maxmargin.solvers.core.result import Result
from maxmargin.solvers.registry import make_solver


def path(problem: Any, Cs: Sequence[float], solver: Any = "auto", **options: Any) -> list[Result]:
    """Train for every C, each from the one before.

    Parameters
    ----------
    problem : FactorGraphs or oracle problem
    Cs : sequence of float
        In any order; they are trained from small to large.
    solver : str or solver
        One that can start from a state, as all that have a dual do.
    **options
        For `solve`: tol, max_passes, ...

    Returns
    -------
    list of Result
        In the order of Cs.
    """
    values = [float(C) for C in Cs]
    if not values:
        raise OptionError("The path of C is empty; give at least one value.")
    wrong = [C for C in values if not (math.isfinite(C) and C > 0)]
    if wrong:
        raise OptionError(f"The path of C has the value {wrong[0]!r}; all must be finite numbers above 0.")
    chosen, found, state = make_solver(solver, problem), {}, None
    for C in sorted(set(values)):
        result = chosen.solve(problem, C=C, state=state, **options)
        state, found[C] = result.state, result
    return [found[C] for C in values]

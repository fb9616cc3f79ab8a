"""Solvers: one algorithm a file. A solver takes a problem and returns a `Result` with a certificate."""

from __future__ import annotations

from typing import Any

from maxmargin.errors import OptionError
from maxmargin.solvers.bcfw import BCFW
from maxmargin.solvers.choice import choose_solver
from maxmargin.solvers.dlpw import DLPW
from maxmargin.solvers.frank_wolfe import FrankWolfe
from maxmargin.solvers.monitor import Callback, Monitor, Report, Silent
from maxmargin.solvers.path import path
from maxmargin.solvers.perceptron import Perceptron
from maxmargin.solvers.result import CERTIFICATES, Result, Status
from maxmargin.solvers.soft_bcfw import SoftBCFW
from maxmargin.solvers.subgradient import Subgradient

#: All solvers by name.
SOLVERS: dict[str, type[Any]] = {one.name: one for one in (BCFW, DLPW, FrankWolfe, Perceptron, SoftBCFW, Subgradient)}


def make_solver(solver: Any, problem: Any) -> Any:
    """A solver object from its name, "auto", or an object that is one already.

    Parameters
    ----------
    solver : str or solver object
    problem : FactorGraphs or oracle problem
        What "auto" chooses for.
    """
    if isinstance(solver, str):
        if solver == "auto":
            return choose_solver(problem)
        if solver not in SOLVERS:
            raise OptionError(f'solver={solver!r} is not known; use "auto" or one of: {", ".join(sorted(SOLVERS))}.')
        return SOLVERS[solver]()
    if not hasattr(solver, "solve"):
        raise OptionError(
            f"solver={solver!r} is neither a name nor a solver object; names are: auto, {', '.join(sorted(SOLVERS))}."
        )
    return solver


__all__ = [
    "BCFW",
    "CERTIFICATES",
    "DLPW",
    "SOLVERS",
    "Callback",
    "FrankWolfe",
    "Monitor",
    "Perceptron",
    "Report",
    "Result",
    "Silent",
    "SoftBCFW",
    "Status",
    "Subgradient",
    "choose_solver",
    "make_solver",
    "path",
]

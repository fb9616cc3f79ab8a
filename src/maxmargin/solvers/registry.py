"""All solvers by name: a new solver is one file and one line here."""

from __future__ import annotations

from copy import copy
from typing import Any

from maxmargin.devices import check_device
from maxmargin.errors import OptionError, did_you_mean
from maxmargin.solvers.choice import choose_batch_solver, choose_solver
from maxmargin.solvers.core.capabilities import SOLVERS
from maxmargin.solvers.cutting_planes.bundle import BundleMethod
from maxmargin.solvers.cutting_planes.n_slack import NSlack
from maxmargin.solvers.cutting_planes.one_slack import OneSlack
from maxmargin.solvers.frank_wolfe.bcfw import BCFW
from maxmargin.solvers.frank_wolfe.frank_wolfe import FrankWolfe
from maxmargin.solvers.marginals.excessive_gap import ExcessiveGap
from maxmargin.solvers.marginals.exponentiated_gradient import ExponentiatedGradient
from maxmargin.solvers.marginals.extragradient import Extragradient
from maxmargin.solvers.marginals.lbfgs import LBFGS
from maxmargin.solvers.marginals.smo import SMO
from maxmargin.solvers.online.perceptron import Perceptron
from maxmargin.solvers.online.subgradient import Subgradient
from maxmargin.solvers.soft.dlpw import DLPW
from maxmargin.solvers.soft.soft_bcfw import SoftBCFW

for one in (
    BCFW, BundleMethod, DLPW, ExcessiveGap, ExponentiatedGradient, Extragradient, FrankWolfe, LBFGS, NSlack, OneSlack, Perceptron,
    SMO, SoftBCFW, Subgradient,
):  # fmt: skip
    SOLVERS[one.name] = one


def make_solver(
    solver: Any, problem: Any, objective: str = "margin", inference: Any = "auto", device: str = "cpu"
) -> Any:
    """A solver object from its name, "auto", or an object that is one already.

    Parameters
    ----------
    solver : str or solver object
    problem : FactorGraphs or oracle problem
        What "auto" chooses for.
    objective : "margin", "log" or "softmax-margin"
        The mean hinge, or, for the solvers that can, the mean negative log-likelihood (the CRF's objective), without the task
        loss or with it.
    inference : "auto", str or engine
        What a solver that was named, and not made, asks for labelings or marginals.
    device : str
        Where it works (`maxmargin.devices`), unless it was made for another device than "cpu".
    """
    if device != "cpu":
        chosen = choose_batch_solver(objective) if isinstance(solver, str) and solver == "auto" else solver
        return on_device(make_solver(chosen, problem, objective, inference), device)
    named = not (isinstance(inference, str) and inference == "auto")
    if isinstance(solver, str):
        if solver == "auto":
            chosen = choose_solver(problem, objective)
            if named and hasattr(chosen, "inference"):
                chosen.inference = inference
            elif named and objective == "margin" and int(problem.example_factors[-1]) > 0:
                # One that asks an engine, in the place of one that does without.
                chosen = BCFW(inference)
                chosen.reason = "it asks the engine that inference names"
            return chosen
        if solver not in SOLVERS:
            raise OptionError(
                f'solver={solver!r} is not known; use "auto" or one of: {", ".join(sorted(SOLVERS))}.'
                + did_you_mean(solver, ("auto", *SOLVERS))
            )
        made = SOLVERS[solver]()
        if objective != getattr(made, "objective", "margin"):
            if objective not in made.objectives:
                able = [name for name, one in SOLVERS.items() if objective in one.objectives]
                raise OptionError(
                    f'The solver "{solver}" is not for objective={objective!r}; use "auto" or one of: {", ".join(sorted(able))}.'
                )
            made.objective = objective
        if named and hasattr(made, "inference"):
            made.inference = inference
        return made
    if not hasattr(solver, "solve"):
        raise OptionError(
            f"solver={solver!r} is neither a name nor a solver object; names are: auto, {', '.join(sorted(SOLVERS))}."
        )
    if getattr(solver, "objective", "margin") != objective:
        raise OptionError(
            f"objective={objective!r}, but the solver given is for objective={getattr(solver, 'objective', 'margin')!r}."
        )
    return solver


def on_device(solver: Any, device: str) -> Any:
    """A solver that works on a device, which must be one of those that can."""
    check_device(device)
    if not getattr(solver, "on_devices", False):
        objective = getattr(solver, "objective", "margin")
        able = ", ".join(
            f'"{name}"' for name, one in sorted(SOLVERS.items()) if one.on_devices and objective in one.objectives
        )
        raise OptionError(
            f'The solver "{solver.name}" works on the processor alone; with device="{device}" use "auto" or one of: {able}.'
        )
    if solver.device == "cpu":
        solver = copy(solver)
        solver.device = device
    return solver


__all__ = ["SOLVERS", "make_solver", "on_device"]

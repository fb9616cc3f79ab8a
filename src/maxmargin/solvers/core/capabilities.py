"""What solvers declare, what problems offer, and the sentence where the two do not fit.

A solver's class says what it needs (`requires`), which objectives it minimises (`objectives`), and what it makes of kernels
(`kernels`, `kernel_blocks`) and of weights that have a sign (`signs`). A problem says what it has (`offers`). Refusals, the choices
of the command line and the tables of the documentation are made from these declarations.
"""

from __future__ import annotations

from typing import Any

from maxmargin.errors import OptionError

#: What a solver may need of a problem, in words.
NEEDS = {
    "local scores": "the score tables of factor graphs",
    "max-oracle": "the most violated labelings",
    "marginals": "marginals",
    "loss of variables": 'a loss that is a sum over variables ("zero-one" is none)',
    "features": "features (a kernel has none, but n_basis makes some)",
    "kernel matrix": "a kernel whose matrix is held",
    "free signs": "weights that may have either sign",
}

#: What can be minimised: the mean hinge, the negative log-likelihood, or the latter with the loss inside the exponent
#: (marginals/lbfgs.py).
OBJECTIVES = ("margin", "log", "softmax-margin")

#: The needs in a table of solvers.
_ASKS = {"local scores": "score tables", "max-oracle": "labelings from an engine", "marginals": "marginals"}

#: All solvers by name; registry.py fills it.
SOLVERS: dict[str, type[Any]] = {}


def check_objective(objective: Any) -> None:
    """Refuse an objective that is not known."""
    if objective not in OBJECTIVES:
        known = ", ".join(f'"{one}"' for one in OBJECTIVES[:-1])
        raise OptionError(f'objective={objective!r} is not known; use {known} or "{OBJECTIVES[-1]}".')


def needs(solver: Any, objective: str) -> tuple[str, ...]:
    """All that a solver, or its class, asks of a problem with an objective."""
    # A smooth objective is known by its marginals alone, whoever minimises it.
    requires: tuple[str, ...] = solver.requires if objective == "margin" else ("marginals",)
    if not solver.kernels or objective not in solver.kernel_objectives:
        return (*requires, "features")
    return requires if solver.kernel_blocks else (*requires, "kernel matrix")


def missing(solver: Any, problem: Any, objective: str | None = None) -> list[str]:
    """What a solver needs and a problem does not have. A problem that declares nothing is taken to have all."""
    offered = getattr(problem, "offers", tuple(NEEDS))
    asked = objective or str(getattr(solver, "objective", "margin"))
    found = [need for need in needs(solver, asked) if need not in offered]
    # An oracle may know more than tables of scores do, and the log-likelihood does not look at the loss.
    if getattr(problem, "zero_one", False) and asked != "log" and "max-oracle" not in needs(solver, asked):
        found.append("loss of variables")
    if getattr(problem, "signs", None) is not None and not getattr(solver, "signs", False):
        found.append("free signs")
    return found


def able(problem: Any, objective: str = "margin") -> list[str]:
    """The names of the solvers that can train on a problem."""
    return sorted(
        name for name, one in SOLVERS.items() if objective in one.objectives and not missing(one, problem, objective)
    )


def check_fit(solver: Any, problem: Any) -> None:
    """Refuse a problem that lacks what the solver needs, in a sentence that says what is missing and who would do."""
    lacks = missing(solver, problem)
    if lacks:
        would = ", ".join(f'"{name}"' for name in able(problem, getattr(solver, "objective", "margin")))
        raise OptionError(
            f'The solver "{solver.name}" needs {" and ".join(NEEDS[need] for need in lacks)}, which this problem does not '
            f"have; {f'use one of: {would}' if would else 'no solver can do without'}."
        )
    if getattr(problem, "signs", None) is not None and getattr(solver, "device", "cpu") != "cpu":
        raise OptionError(f'Signs of weights are kept on the processor; use device="cpu", not {solver.device!r}.')


def solver_table() -> str:
    """All solvers and what they declare, as a table in Markdown."""
    lines = ["| name | asks for | objective | kernels | GPU | signs | certificates | keeps | paper |", "|" + "---|" * 9]
    for name, one in SOLVERS.items():
        kernels = ("yes, blocks too" if one.kernel_blocks else "yes") if one.kernels else "low-rank"
        lines.append(
            f"| `{name}` | {', '.join(_ASKS[need] for need in one.requires)} | {', '.join(one.objectives)} | {kernels} | "
            f"{'yes' if one.on_devices else 'no'} | {'yes' if one.signs else 'no'} | "
            f"{', '.join(f'`{word}`' for word in one.certificates)} | {one.keeps} | {one.paper} |"
        )
    return "\n".join(lines)

"""Settings by name: ``--set NAME=VALUE`` of estimators, ``solver.NAME``, ``inference.NAME``, and options that stand for them.

A value is read as JSON (``10``, ``0.5``, ``true``, ``null``, ``[0.1, 1]``), and as a string if it is none.
"""

from __future__ import annotations

import argparse
import inspect
import json
from typing import Any

from maxmargin.errors import OptionError, did_you_mean

#: Options of the command line that are options of solvers, by their names there.
OF_SOLVERS = {"rescaling": "rescaling", "cache": "cache", "stop": "stop", "train_inference": "inference"}
#: Options that are parameters of estimators, of the same names; not all tasks have all of them.
OF_ESTIMATORS = ("order", "emission_order", "bio", "n_basis", "C_path")
#: Options that say where and how often the state is saved.
OF_CHECKPOINTS = ("checkpoint", "resume", "checkpoint_seconds", "checkpoint_passes")
#: Parameters that other options of the command line set, or that mean nothing there.
_TAKEN = ("C", "solver", "verbose", "n_jobs", "random_state", "features", "warm_start")


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command ``train``."""
    parser.add_argument(
        "--rescaling", choices=("margin", "slack"), help="how the loss enters: one-slack, n-slack (default: margin)"
    )
    parser.add_argument("--cache", type=int, metavar="N", help="planes kept for each example: bcfw, one-slack")
    parser.add_argument(
        "--stop",
        choices=("gap", "svm-struct"),
        help="when to stop: one-slack (default: gap; svm-struct has --tol as its -e)",
    )
    parser.add_argument(
        "--train-inference",
        metavar="NAME",
        help="the solver's own engine (default: that of --inference); needs --solver",
    )
    parser.add_argument("--order", type=int, metavar="N", help="tags that a transition sees (chain; default: 1)")
    parser.add_argument(
        "--emission-order", type=int, metavar="N", help="tags before that features see (chain; default: 0)"
    )
    parser.add_argument(
        "--bio", action="store_true", default=None, help="predict no I-X without B-X or I-X before it (chain)"
    )
    parser.add_argument(
        "--n-basis", type=int, metavar="N", help="approximate the kernel by N basis functions (with --kernel)"
    )
    parser.add_argument(
        "--C-path",
        type=_numbers,
        metavar="A,B",
        dest="C_path",
        help="train for these values of C, too, from small to large",
    )
    parser.add_argument(
        "--checkpoint", metavar="FILE", help="save the state of the solver there, and go on from it if it is there"
    )
    parser.add_argument("--resume", metavar="FILE", help="the same, but FILE must be there")
    parser.add_argument(
        "--checkpoint-seconds", type=float, metavar="S", help="save it after so many seconds (default: 30)"
    )
    parser.add_argument("--checkpoint-passes", type=int, metavar="N", help="save it after so many passes, too")
    parser.add_argument(
        "--dask",
        metavar="ADDRESS",
        help="train on the Dask cluster whose scheduler is there, or, as local:N, on N processes of this machine "
        "(one-slack, bundle; needs the extra dask)",
    )
    parser.add_argument("--threads", type=int, metavar="N", help="(default: -1, one for each core)")
    parser.add_argument(
        "--set", action="append", metavar="NAME=VALUE", dest="settings", type=_setting,
        help="any other parameter of the estimator, or, as solver.NAME or inference.NAME, of these; may be repeated",
    )  # fmt: skip


def _numbers(text: str) -> list[float]:
    try:
        return [float(one) for one in text.split(",") if one.strip()]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of numbers with commas between them") from None


def _setting(text: str) -> tuple[str, Any]:
    name, equal, value = text.partition("=")
    if not (name and equal):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=VALUE")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def solver_of(args: argparse.Namespace) -> Any:
    """The solver by its name, or an object if any of its options is given; None if nothing is said."""
    given = {
        name: getattr(args, option) for option, name in OF_SOLVERS.items() if getattr(args, option, None) is not None
    }
    settings = getattr(args, "settings", None) or []
    given |= {name.partition(".")[2]: value for name, value in settings if name.startswith("solver.")}
    if not given:
        return args.solver
    from maxmargin.solvers import SOLVERS

    chosen = args.solver
    if chosen in (None, "auto") and {"rescaling", "stop"} & set(given):
        # Cutting planes alone have these.
        chosen = "one-slack"
    if chosen in (None, "auto"):
        raise OptionError(
            f"The solver's option {next(iter(given))!r} needs --solver, since the solvers differ: {', '.join(SOLVERS)}."
        )
    if chosen not in SOLVERS:
        return chosen
    known = _check_known(f"The solver {chosen}", SOLVERS[chosen], given)
    if args.objective is not None and "objective" in known:
        given.setdefault("objective", args.objective)
    return SOLVERS[chosen](**given)


def engine_of(args: argparse.Namespace) -> Any:
    """The engine by its name, or an object if any of its options is given; None if nothing is said."""
    settings = getattr(args, "settings", None) or []
    given = {name.partition(".")[2]: value for name, value in settings if name.startswith("inference.")}
    if not given:
        return args.inference
    from maxmargin.inference import ENGINES

    if args.inference not in ENGINES:
        raise OptionError(
            f"The engine's option {next(iter(given))!r} needs --inference, since the engines differ: {', '.join(ENGINES)}."
        )
    _check_known(f"The engine {args.inference}", ENGINES[args.inference], given)
    return ENGINES[args.inference](**given)


def _check_known(who: str, kind: Any, given: dict[str, Any]) -> list[str]:
    """The options of a solver or an engine; refuses others, and says what there is."""
    known = list(inspect.signature(kind).parameters)
    for name in given:
        if name not in known:
            raise OptionError(
                f"{who} has no option {name!r}; it has {', '.join(known) or 'none'}.{did_you_mean(name, known)}"
            )
    return known


def _checkpoint(args: argparse.Namespace) -> dict[str, Any]:
    """The parameter `checkpoint` of an estimator, by the options that describe it."""
    place, resume, seconds, passes = (getattr(args, name, None) for name in OF_CHECKPOINTS)
    if place is not None and resume is not None and place != resume:
        raise OptionError(
            f"--checkpoint {place} and --resume {resume} name two files; --resume goes on writing the file that it reads."
        )
    place = place or resume
    if place is None:
        for name, value in (("--checkpoint-seconds", seconds), ("--checkpoint-passes", passes)):
            if value is not None:
                raise OptionError(f"{name} needs --checkpoint or --resume, which name the file.")
        return {}
    from maxmargin.solvers.core.checkpoint import Checkpoints

    given = {"seconds": seconds, "passes": passes}
    kept = {name: value for name, value in given.items() if value is not None}
    return {"checkpoint": Checkpoints(place, **kept, resume=resume is not None)}


def parameters_of(args: argparse.Namespace, kind: type[Any], early: bool) -> dict[str, Any]:
    """Parameters of an estimator that options of their own set, and those of ``--set``.

    Before the data is read (`early`), its task is a guess, and what another may have is not refused.
    """
    known = [name for name in inspect.signature(kind).parameters if name not in _TAKEN]
    found: dict[str, Any] = {}
    if "checkpoint" in known:
        found |= _checkpoint(args)
    for name in OF_ESTIMATORS:
        if getattr(args, name, None) is None:
            continue
        if name in known:
            found[name] = getattr(args, name)
        elif not early:
            raise OptionError(f"--{name.replace('_', '-')} is not for the task {kind.task}.")
    for name, value in getattr(args, "settings", None) or []:
        if name.startswith(("solver.", "inference.")):
            continue
        if name in known:
            found[name] = value
        elif not early:
            taken = " (it has an option of its own)" if name in _TAKEN else ""
            raise OptionError(
                f"--set {name}: {kind.__name__} has no such parameter{taken}; it has {', '.join(known)}.{did_you_mean(name, known)}"
            )
    return found

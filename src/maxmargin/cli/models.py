"""Models made from options of the command line: their parameters, what is saved of them, and what is said of them."""

from __future__ import annotations

import argparse
import os
import signal
from typing import Any

from maxmargin.cli.exits import DONE, NOT_CONVERGED, say, writing
from maxmargin.cli.settings import engine_of, parameters_of, solver_of
from maxmargin.errors import OptionError
from maxmargin.signals import last_stop

#: Options of one task, and those that say something about features, which trees have none of.
_OF_PARSERS = ("markov", "parent", "min_count", "span_features", "unparsable")
_NOT_OF_PARSERS = ("inference", "kernel", "gamma", "degree", "no_intercept", "scale", "device", "max_memory")
_OF_FEATURES = ("inference", "kernel", "gamma", "degree", "edges", "edge_weights")
#: Parameters of all estimators that options of the same names set; what no option sets is as the estimator has it.
_PARAMETERS = (
    "C",
    "objective",
    "loss",
    "tol",
    "max_passes",
    "max_seconds",
    "validation_fraction",
    "cv",
    "device",
    "max_memory",
)


def make_model(args: argparse.Namespace, task: str, early: bool = False, **changes: Any) -> Any:
    """The estimator that the options describe, with its parameters checked; `early`, when its task is a guess."""
    from maxmargin.estimators.loading import TASKS
    from maxmargin.estimators.parameters import check_parameters

    options = {name: getattr(args, name) for name in _PARAMETERS if getattr(args, name) is not None}
    if args.seed is not None:
        options["random_state"] = args.seed
    # The answer does not depend on the number of threads.
    options |= {"n_jobs": -1 if args.threads is None else args.threads, "verbose": 0 if args.quiet else 1}
    solver = solver_of(args)
    if solver is not None:
        options["solver"] = solver
    _check_objective(args.solver or "auto", args.objective or "margin")
    if args.edges is not None and task != "multi-label":
        raise OptionError(
            f"--edges is for multi-label data, and this is {task} data; the edges of graphs come with the data (see "
            "--edge-weights)."
        )
    if args.edge_weights is not None and task != "graph":
        raise OptionError(f"--edge-weights is for graphs, and this is {task} data; see --edges for multi-label data.")
    for name in _OF_PARSERS if task != "parser" else _NOT_OF_PARSERS:
        if getattr(args, name, None) is not None:
            wanted = "features, which trees have none of" if task == "parser" else f"trees, and this is {task} data"
            raise OptionError(f"--{name.replace('_', '-')} is for {wanted}.")
    if task == "ranking":
        for name in ("inference", "objective", "no_intercept", "device"):
            if getattr(args, name, None) is not None:
                raise OptionError(f"--{name.replace('_', '-')} has no meaning for --task ranking.")
    if task == "parser":
        return _make_parser(args, options)
    options |= {name: getattr(args, name) for name in _OF_FEATURES if getattr(args, name) is not None}
    engine = engine_of(args)
    if engine is not None:
        options["inference"] = engine
    if args.no_intercept:
        options["fit_intercept"] = False
    if args.scale is not None:
        options["scale"] = {"auto": "auto", "yes": True, "no": False}[args.scale]
    model = TASKS[task](**options | parameters_of(args, TASKS[task], early))
    model.set_params(**changes)
    check_parameters(model)
    return model


def load_model(path: str) -> Any:
    """A model from its file, to predict with all cores."""
    from maxmargin.estimators.loading import load

    return load(path).set_params(n_jobs=-1)


def _check_objective(solver: str, objective: str) -> None:
    """Refuse a solver that does not train this objective."""
    from maxmargin.solvers import SOLVERS

    trains = {name: one.objectives for name, one in SOLVERS.items()}
    if objective not in trains.get(solver, (objective,)):
        able = ", ".join(sorted(name for name, found in trains.items() if objective in found))
        raise OptionError(
            f"--solver {solver} is for --objective {' or '.join(trains[solver])}, not for {objective}; with --objective "
            f"{objective} use auto or one of: {able}."
        )


def _make_parser(args: argparse.Namespace, options: dict[str, Any]) -> Any:
    from maxmargin.estimators.parser import ParserSVM, check_parser_options

    given = {name: getattr(args, name) for name in _OF_PARSERS if getattr(args, name, None) is not None}
    model = ParserSVM(**options | given | parameters_of(args, ParserSVM, False))
    check_parser_options(model)
    return model


def save_outputs(args: argparse.Namespace, model: Any, results: Any) -> list[str]:
    """Write the model and the picture, where asked for; returns sentences about them."""
    saved = []
    if args.output is not None:
        # Threads and progress are of this run, not of the model.
        kept = model.get_params(deep=False)
        model.set_params(n_jobs=None, verbose=0)
        with writing(args.output):
            model.save(args.output)
        model.set_params(n_jobs=kept["n_jobs"], verbose=kept["verbose"])
        saved.append(f"Model saved to {args.output}.")
    if args.plot is not None:
        _save_plot(args.plot, results)
        saved.append(f"Plot saved to {args.plot}.")
    return saved


def _save_plot(path: str, results: Any) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from maxmargin.formats.atomic import atomic_write
    from maxmargin.reporting.plots import plot_convergence

    figure = plot_convergence(results).figure
    with writing(path), atomic_write(path) as stream:
        figure.savefig(stream, format=picture_kind(path), dpi=150)
    plt.close(figure)


def picture_kind(path: str) -> str:
    """The format of a picture, by the ending of its name."""
    kind = os.path.splitext(path)[1].lstrip(".").lower() or "png"
    if kind not in ("png", "svg", "pdf", "jpg"):
        raise OptionError(f"{path}: pictures of the kind {kind!r} cannot be drawn; use .png, .svg, .pdf or .jpg.")
    return kind


def exit_code(results: list[Any]) -> int:
    """0, 1 or 128 and the signal's number, from how training ended."""
    statuses = {str(result.status) for result in results}
    if "INTERRUPTED" in statuses:
        by = last_stop()
        how = "Interrupted" if by == signal.SIGINT else f"Stopped by {by.name}"
        # There is a message if the weights are of a run on part of the data.
        uncertified = next(
            (result.message for result in results if result.certificate == "none" and result.message), ""
        )
        say(uncertified.replace("Interrupted", how, 1) or f"{how}; this is the best certified model so far.")
        return 128 + int(by)
    return DONE if statuses <= {"CONVERGED", "EARLY_STOPPED"} else NOT_CONVERGED


def report(args: argparse.Namespace, model: Any) -> dict[str, Any]:
    """What training found, for JSON."""
    from maxmargin.cli.info import sizes_of

    result = model.result_
    if model.task == "parser":
        sizes = {f"n_{name}": size for name, size in sizes_of(model).items()}
    else:
        sizes = {"n_labels": len(model.classes_), "n_features": model.n_features_in_, "n_weights": len(result.weights)}
        sizes["kernel"] = model.kernel
    return {
        "task": model.task,
        "status": str(result.status),
        "certificate": result.certificate,
        "primal": result.primal,
        "dual": result.dual,
        "gap": result.gap,
        "tol": float(model.tol),
        "C": model.C_,
        "C_reason": result.options.get("C_reason", "as asked"),
        "validation_path": [one._asdict() for one in model.validation_path_],
        "n_passes": result.n_passes,
        "seconds": result.seconds,
        "solver": result.solver,
        "options": result.options,
        "inference": model.inference_,
        **sizes,
    }

"""``maxmargin info``: what a model file holds, or what is installed."""

from __future__ import annotations

import argparse
import os
import platform
from typing import Any

from maxmargin.cli.exits import DONE, check_output, print_json, writing
from maxmargin.errors import OptionError

SUMMARY = "describe a model file, a packed folder, or this installation"
DESCRIPTION = (
    "With MODEL: its task, certificate, sizes, labels and strongest weights. With a packed folder: what it holds, and whether "
    "its checksums are right. Without: versions, kernel cache, cores."
)
_PACKAGES = ("maxmargin", "numpy", "scipy", "numba", "scikit-learn", "rich", "matplotlib")
_STRONGEST = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("model", metavar="MODEL", nargs="?", help="model file, or packed folder")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument(
        "--weights",
        metavar="FILE",
        help="write the weights there, with their names, as CSV ('-' is the standard output)",
    )
    parser.add_argument(
        "--part",
        metavar="NAME",
        default="features",
        help="which weights: features (default), pairs, transitions, boundary and so on, as to_frame has them",
    )


def run(args: argparse.Namespace) -> int:
    """Look, and print."""
    if args.weights is not None:
        return _write_weights(args.model, args.weights, args.part)
    if args.model is None:
        found = _installation()
    else:
        found = _folder(args.model) if os.path.isdir(args.model) else _model(args.model)
    if args.json:
        print_json(found)
        return DONE
    width = max(len(key) for key in found)
    for key, value in found.items():
        lines = _lines(value) if key != "validation_path" else _path_table(value)
        name = key if key == "C_" else key.replace("_", " ")
        print(f"{name:<{width}}  {lines[0]}")
        for line in lines[1:]:
            print(f"{'':<{width}}  {line}")
    return DONE


def _write_weights(model: str | None, path: str, part: str) -> int:
    """The weights of one part of a model as CSV."""
    if model is None:
        raise OptionError("--weights needs a model file: maxmargin info MODEL --weights FILE.")
    if path != "-":
        check_output(path)
    from maxmargin.estimators.loading import load

    frame = load(model).to_frame(part)
    # Where rows are only counted, their numbers say nothing.
    text: str = frame.to_csv(index=frame.index.name is not None or frame.index.nlevels > 1, lineterminator="\n")
    if path == "-":
        print(text, end="")
        return DONE
    from maxmargin.formats import atomic_write

    with writing(path), atomic_write(path) as stream:
        stream.write(text.encode())
    return DONE


def _lines(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [f"{key} {_text(entry, 3)}" for key, entry in value.items()] or ["-"]
    if isinstance(value, list):
        shown = ", ".join(_text(entry) for entry in value[:20])
        return [shown + (f", ... ({len(value)} in all)" if len(value) > 20 else "")]
    return [_text(value)]


def _text(value: Any, digits: int = 6) -> str:
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)


def _path_table(path: list[dict[str, Any]]) -> list[str]:
    """The values of C that were tried, a line each."""
    head = ("C", "held-out loss", "gap", "passes", "seconds", "standard error")
    rows = [head, *(["-" if value is None else _text(value, 3) for value in one.values()] for one in path)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)) for row in rows]


def _folder(path: str) -> dict[str, Any]:
    """What a packed folder holds, after a look at all of it."""
    from maxmargin.packed import read_packed

    data = read_packed(path, verify=True)
    folder = data.X.folder
    return {
        "folder": path,
        "task": data.task,
        "examples": len(data.X),
        "rows": folder.size("n_rows", 1),
        "features": folder.size("n_features", 1),
        "labels": data.y.classes.tolist(),
        "arrays": {name: f"{one.dtype} {list(one.shape)}, {one.nbytes} bytes" for name, one in folder.arrays.items()},
        "checksums": "all as they were written",
    }


def _installation() -> dict[str, Any]:
    from importlib.metadata import PackageNotFoundError, version

    from maxmargin.jit import describe_cache

    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    return {
        "versions": versions,
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count() or 1,
        "compiled_kernels": describe_cache(),
    }


def _model(path: str) -> dict[str, Any]:
    from maxmargin.estimators.loading import load
    from maxmargin.formats.model_file import read_header

    model = load(path)
    result = model.result_
    found = {
        "task": model.task,
        "status": str(result.status),
        "certificate": result.certificate,
        "primal": result.primal,
        "dual": result.dual,
        "gap": result.gap,
        "n_passes": result.n_passes,
        "seconds": result.seconds,
        "solver": result.solver,
        "reason": result.options.get("reason", ""),
        "C": model.C,
        "C_": model.C_,
        "C_reason": result.options.get("C_reason", "as asked"),
        "inference": model.inference_,
        "library_version": read_header(path)["library_version"],
        "sizes": sizes_of(model),
    }
    if model.validation_path_:
        found["validation_path"] = [one._asdict() for one in model.validation_path_]
    if model.task == "parser":
        return found | {"roots": roots_of(model), "strongest_rules": dict(model.top_rules(_STRONGEST))}
    found |= {"kernel": describe_kernel(model), "labels": model.classes_.tolist()}
    if model.kernel == "linear":
        found["strongest_weights"] = strongest_features(model, _STRONGEST)
    if model.task == "chain":
        found["strongest_transitions"] = strongest_transitions(model, _STRONGEST)
    elif model.task in ("multi-label", "graph"):
        found["strongest_edges"] = strongest_edges(model, _STRONGEST)
    return found


def sizes_of(model: Any) -> dict[str, int]:
    """How much of everything the model has."""
    if model.task == "parser":
        g = model.grammar_
        kinds = {"binary_rules": g.binary, "unary_rules": g.unary, "lexical_rules": g.lexical}
        names = {"symbols": g.symbols, "words": g.words, "word_classes": g.word_classes}
        return {name: len(one) for name, one in (names | kinds | {"weights": model.coef_}).items()}
    sizes = {"labels": len(model.classes_), "features": model.n_features_in_, "weights": len(model.result_.weights)}
    if model.task == "multi-label":
        sizes["pairs"] = len(model.edges_)
    elif model.task == "graph":
        sizes["edge_features"] = model.n_edge_features_in_
    return sizes


def roots_of(model: Any) -> list[str]:
    """The symbols that may span a sentence."""
    g = model.grammar_
    return [g.symbols[root] for root in g.roots.tolist()]


def describe_kernel(model: Any) -> str:
    """The kernel, its parameters, and how many rows the model is made of."""
    if model.kernel == "linear":
        return "linear"
    gamma = f", gamma {model.gamma_:.6g}" if hasattr(model, "gamma_") else ""
    degree = f", degree {model.degree}, coef0 {model.coef0:g}" if model.kernel == "poly" else ""
    name = model.kernel if isinstance(model.kernel, str) else getattr(model.kernel, "__name__", "a function")
    if model.n_basis is not None:
        return f"{name}{gamma}{degree}; {model.basis_coef_.shape[1]} basis functions"
    return f"{name}{gamma}{degree}; {len(model.support_)} of {model._n_rows} training rows count"


def strongest_features(model: Any, count: int) -> dict[str, float]:
    """The largest weights of features, by name: "label: feature"."""
    import numpy as np

    from maxmargin.estimators.frames import feature_names

    if model.coef_.ndim == 1 and model.task == "graph":
        order = np.argsort(-np.abs(model.coef_), kind="stable")[:count]
        return {f"{model.classes_[k]}: its score": float(model.coef_[k]) for k in order}
    names = feature_names(model)
    order = np.argsort(-np.abs(model.coef_), axis=None, kind="stable")[:count]
    rows, columns = np.unravel_index(order, model.coef_.shape)
    # A binary score is for the second class, and one by which to rank for the highest level.
    labels = model.classes_[-len(model.coef_) :]
    return {f"{labels[i]}: {names[k]}": float(model.coef_[i, k]) for i, k in zip(rows, columns, strict=True)}


def strongest_transitions(model: Any, count: int) -> dict[str, float]:
    """The largest weights of neighbouring tags, and of first and last ones: "tag > tag", "start > tag", "tag > end"."""
    tags = [str(tag) for tag in model.classes_]
    named = {f"{one} > {two}": model.transition_coef_[i, j] for i, one in enumerate(tags) for j, two in enumerate(tags)}
    if model.boundary:
        named |= {f"start > {tag}": model.start_coef_[k] for k, tag in enumerate(tags)}
        named |= {f"{tag} > end": model.end_coef_[k] for k, tag in enumerate(tags)}
    order = sorted(named, key=lambda name: -abs(named[name]))[:count]
    return {name: float(named[name]) for name in order}


def strongest_edges(model: Any, count: int) -> dict[str, float]:
    """The largest weights of pairs of labels, by name: "label + label"."""
    import numpy as np

    if model.task == "multi-label":
        order = np.argsort(-np.abs(model.edge_coef_), kind="stable")[:count]
        return {
            f"{model.classes_[model.edges_[e, 0]]} + {model.classes_[model.edges_[e, 1]]}": float(model.edge_coef_[e])
            for e in order
        }
    if not hasattr(model, "edge_coef_"):
        return {}
    order = np.argsort(-np.abs(model.edge_coef_), axis=None, kind="stable")[:count]
    found: dict[str, float] = {}
    for place in zip(*np.unravel_index(order, model.edge_coef_.shape), strict=True):
        pair = "equal" if len(place) == 1 else f"{model.classes_[place[0]]} + {model.classes_[place[1]]}"
        found[f"{pair}, edge feature {place[-1]}"] = float(model.edge_coef_[place])
    return found

"""The job of ``maxmargin train`` without data: why structure matters.

Synth2 (Finley and Joachims, ICML 2008): exactly one of ten labels is on, and only the number of features that are set
tells which. Each label by itself is a band of that number, which no linear score can cut out; the weights of pairs let
labels exclude each other, and then the largest score wins. 1000 examples to train, 10,000 to test. C is chosen on a
fifth of the training set, held out, and the model is then trained on all of it.
"""

from __future__ import annotations

import argparse
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from maxmargin.cli.exits import print_json
from maxmargin.cli.models import exit_code, make_model, report, save_outputs

# Larger values do better still, and take longer than a demonstration may.
_GRID = (1e2, 1e3, 1e4)
_HELD_OUT = 200
#: Rough models are enough to compare values of C; the final one is trained to the tolerance.
_PASSES_TO_COMPARE = 36
_TOL = 0.025
_MODELS = {"edgeless": "none", "structured": "full"}


def run_demonstration(args: argparse.Namespace) -> int:
    """Generate, choose C, train both models, compare."""
    from maxmargin.datasets import make_synth2

    train, test = make_synth2(1000, 0), make_synth2(10_000, 1)
    models: dict[str, Any] = {}
    losses: dict[str, float] = {}
    chosen = dict.fromkeys(_MODELS, args.C) if args.C not in (None, "auto") else _choose_C(args, *train)
    for name, edges in _MODELS.items():
        _note(args, f"{name}: training with C = {chosen[name]:g} on all {len(train[0])} examples")
        model = make_model(
            args, "multi-label", verbose=0, edges=edges, C=chosen[name], tol=_tol(args), solver=_solver(args)
        )
        models[name] = model.fit(*train)
        losses[name] = 1 - model.score(*test)
        if str(model.result_.status) == "INTERRUPTED":
            break
    _note(args, None)
    best = models.get("structured", models["edgeless"])
    saved = save_outputs(args, best, {name: model.result_ for name, model in models.items()})
    if args.json:
        found = {name: report(args, model) | {"test_hamming_loss": losses[name]} for name, model in models.items()}
        print_json(
            {"data": "synth2", "n_train": len(train[0]), "n_test": len(test[0]), "models": found, "model": args.output}
        )
    else:
        _print(models, losses, saved, args)
    return exit_code([model.result_ for model in models.values()])


def _solver(args: argparse.Namespace) -> str:
    """One solver for both models unless asked otherwise: on a new machine, kernels of two would take twice as long to compile."""
    return "soft-bcfw" if args.solver in (None, "auto") else str(args.solver)


def _tol(args: argparse.Namespace) -> float:
    return _TOL if args.tol is None else float(args.tol)


def _choose_C(args: argparse.Namespace, X: Any, Y: Any) -> dict[str, float]:
    """For each model, the C of the grid with the least loss on held-out data; candidates are trained side by side."""
    cut = len(X) - _HELD_OUT
    _note(args, f"choosing C among {', '.join(f'{C:g}' for C in _GRID)} on {_HELD_OUT} held-out examples")

    def held_out(name: str, C: float) -> float:
        tries: dict[str, Any] = {
            "edges": _MODELS[name], "C": C, "tol": _tol(args), "max_passes": _PASSES_TO_COMPARE, "solver": _solver(args)
        }  # fmt: skip
        model = make_model(args, "multi-label", verbose=0, **tries).fit(X[:cut], Y[:cut])
        return float(model.score(X[cut:], Y[cut:]))

    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        scores = {(name, C): pool.submit(held_out, name, C) for name in reversed(_MODELS) for C in _GRID}
    return {name: max(_GRID, key=lambda C: (scores[name, C].result(), -C)) for name in _MODELS}


def _note(args: argparse.Namespace, text: str | None) -> None:
    """What is going on, in one line that overwrites itself; nothing where there is no terminal."""
    if not args.quiet and sys.stderr.isatty():
        sys.stderr.write("\r\x1b[2K" + (text or ""))
        sys.stderr.flush()


def _print(models: dict[str, Any], losses: dict[str, float], saved: list[str], args: argparse.Namespace) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    from maxmargin.cli.info import strongest_edges
    from maxmargin.solvers.core.result import CERTIFICATES

    console = Console(highlight=False)
    console.print("Synth2: exactly one of 10 labels is on; 1000 examples to train, 10,000 to test.", soft_wrap=True)
    # Eight columns must fit into the 80 characters that a pipe is given.
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("model", "pairs", "C", "test loss", "certificate", "gap", "status", "seconds"):
        table.add_column(heading, justify="left" if heading in ("model", "certificate", "status") else "right")
    for name, model in models.items():
        result = model.result_
        table.add_row(
            name,
            str(len(model.edge_coef_)),
            f"{model.C:g}",
            f"{100 * losses[name]:.2f} %",
            result.certificate,
            f"{result.gap:.4f}",
            str(result.status),
            f"{result.seconds:.2f}",
        )
    console.print(table)
    for certificate in sorted({model.result_.certificate for model in models.values()}):
        console.print(f"Certificate {certificate}: {CERTIFICATES[certificate]}.", soft_wrap=True)
    if "structured" in models:
        pairs = "   ".join(
            f"{pair}: {weight:+.3g}" for pair, weight in strongest_edges(models["structured"], 4).items()
        )
        console.print(f"Strongest weights of pairs of labels: {pairs}", soft_wrap=True)
        console.print(
            f"Pair weights let labels exclude each other: {100 * losses['structured']:.1f} % of the labels are "
            f"wrong with them, {100 * losses['edgeless']:.1f} % without.",
            soft_wrap=True,
        )
    for sentence in saved:
        console.print(sentence, soft_wrap=True, markup=False)
    console.print(
        "Next: 'maxmargin train DATA -o model.mm' for your own data (.csv, .svm, .npz, .arff, .hmm, .conll, .conllu, .jsonl, "
        ".mrg); 'maxmargin train --help' for the rest.",
        soft_wrap=True,
        markup=False,
    )

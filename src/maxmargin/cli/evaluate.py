"""``maxmargin evaluate``: how good a model is on labelled data."""

from __future__ import annotations

import argparse
from typing import Any

from maxmargin.cli.data import DATA_HELP, add_data_options, read_data
from maxmargin.cli.exits import DONE, print_json

SUMMARY = "compare predictions with the truth"
DESCRIPTION = """\
Print the accuracy of a binary or multi-class model; Hamming loss, subset accuracy, micro- and macro-F1 of a multi-label
model; the accuracy of tags and of whole sequences of a chain model, and, if its tags are B-TYPE, I-TYPE and O, precision,
recall and F1 of chunks, as conlleval has them; the accuracy of nodes of a graph model; precision, recall and F1 of labelled
brackets, exact match and tag accuracy of a parser, as EVALB has them. Where inference is a relaxation, also the share of the
labels that it left open, which rounding decided."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("model", metavar="MODEL", help="model file, from 'maxmargin train -o'")
    parser.add_argument("data", metavar="DATA", help=DATA_HELP)
    add_data_options(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(args: argparse.Namespace) -> int:
    """Load, predict, compare, print."""
    from maxmargin.cli.metrics import NAMES, compare
    from maxmargin.estimators.loading import load

    model = load(args.model)
    data = read_data(args.data, args, model)
    metrics, chunks = compare(model, data)
    if args.json:
        report = {
            "task": model.task,
            "data": args.data,
            "n_examples": len(data),
            "inference": model.inference_,
            **metrics,
        }
        if chunks is not None:
            report["chunks"] = {kind: _figures(score) for kind, score in chunks.by_type.items()}
        print_json(report)
        return DONE
    width = max(len(NAMES[key]) for key in metrics)
    for key, value in metrics.items():
        print(f"{NAMES[key]:<{width}}  {value:.4f}")
    if chunks is not None:
        print(chunks)
    return DONE


def _figures(score: Any) -> dict[str, float]:
    names = ("precision", "recall", "f1", "n_true", "n_predicted", "n_right")
    return {name: getattr(score, name) for name in names}

"""``maxmargin evaluate``: how good a model is on labelled data."""

from __future__ import annotations

import argparse

from maxmargin.cli.data import add_data_options, read_data
from maxmargin.cli.exits import DONE, print_json

SUMMARY = "compare predictions with the truth"
DESCRIPTION = """\
Print the accuracy of a binary or multi-class model; Hamming loss, subset accuracy, micro- and macro-F1 of a multi-label
model; the accuracy of tags and of whole sequences of a chain model; the accuracy of nodes of a graph model. Where
inference is a relaxation, also the share of the labels that it left open, which rounding decided."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("model", metavar="MODEL", help="model file, from 'maxmargin train -o'")
    parser.add_argument("data", metavar="DATA", help=".arff, .svm, .libsvm, .txt or .npz file")
    add_data_options(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(args: argparse.Namespace) -> int:
    """Load, predict, compare, print."""
    from maxmargin.cli.metrics import NAMES, evaluate_model
    from maxmargin.estimators.saving import load

    model = load(args.model)
    data = read_data(args.data, args, model)
    metrics = evaluate_model(model, data)
    if args.json:
        print_json(
            {"task": model.task, "data": args.data, "n_examples": len(data), "inference": model.inference_, **metrics}
        )
        return DONE
    width = max(len(NAMES[key]) for key in metrics)
    for key, value in metrics.items():
        print(f"{NAMES[key]:<{width}}  {value:.4f}")
    return DONE

"""``maxmargin predict``: labels for new examples."""

from __future__ import annotations

import argparse
import sys

from maxmargin.cli.data import add_data_options, read_data
from maxmargin.cli.exits import DONE, check_output, to_json, writing

SUMMARY = "predict with a model"
DESCRIPTION = """\
Print the predicted labels, one line an example: the labels of a multi-label example with commas between them (an
empty line if it has none), the labels of a graph's nodes with spaces between them."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("model", metavar="MODEL", help="model file, from 'maxmargin train -o'")
    parser.add_argument("data", metavar="DATA", help=".arff, .svm, .libsvm, .txt or .npz file")
    add_data_options(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="write there instead of to the standard output")
    parser.add_argument("--json", action="store_true", help="one JSON object, with scores and upper bounds")


def run(args: argparse.Namespace) -> int:
    """Load, predict, print."""
    check_output(args.output)
    from maxmargin.estimators.saving import load

    model = load(args.model)
    data = read_data(args.data, args, model)
    labels, scores, bounds = model.predict(data.inputs, return_bound=True)
    if model.task == "multi-label":
        if not isinstance(labels, list):
            labels = [model.classes_[row == 1].tolist() for row in labels]
        between = ","
    else:
        labels = [row.tolist() for row in labels]
        between = " "
    if args.json:
        text = to_json(
            {
                "task": model.task,
                "inference": model.inference_,
                "predictions": labels,
                "scores": scores,
                "bounds": bounds,
            }
        )
    else:
        text = "\n".join(between.join(map(str, row)) for row in labels)
    if args.output is None:
        sys.stdout.write(text + "\n")
    else:
        from maxmargin.formats.atomic import atomic_write

        with writing(args.output), atomic_write(args.output) as stream:
            stream.write((text + "\n").encode())
    return DONE

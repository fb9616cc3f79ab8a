"""``maxmargin prune``: a smaller model, and what that costs."""

from __future__ import annotations

import argparse
import os

from maxmargin.cli.data import add_data_options, read_data
from maxmargin.cli.exits import DONE, check_output, print_json, writing
from maxmargin.errors import OptionError

SUMMARY = "make a model smaller"
DESCRIPTION = """\
Set weights of features of small absolute value to 0, drop features of words and names that have no weight left, and
save the smaller model. Give one of --keep, --threshold and --max-loss. With --eval, say what that costs on held-out
data. Models of classes, label sets and tags, without a kernel."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("model", metavar="MODEL", help="model file, from 'maxmargin train -o'")
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="save the smaller model there")
    parser.add_argument("--keep", type=float, metavar="F", help="share of the weights that are not 0 to keep")
    parser.add_argument("--threshold", type=float, metavar="T", help="keep weights of at least this absolute value")
    parser.add_argument(
        "--max-loss",
        type=float,
        metavar="L",
        help="the smallest of half, a quarter, ... of the weights at which the score on --eval falls by no more than this",
    )
    parser.add_argument("--eval", metavar="DATA", help="held-out data, to score both models on")
    add_data_options(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(args: argparse.Namespace) -> int:
    """Load, prune, save, say what is left."""
    check_output(args.output)
    from maxmargin.cli.models import load_model

    model = load_model(args.model)
    if not hasattr(model, "prune"):
        raise OptionError(f"A model for the task {model.task} cannot be pruned.")
    held = None
    if args.eval is not None:
        data = read_data(args.eval, args, model)
        held = data.inputs, data.targets
    smaller = model.prune(args.keep, args.threshold, held, args.max_loss)
    if hasattr(model, "_feature_names"):
        smaller._feature_names = model._feature_names
    with writing(args.output):
        smaller.save(args.output)
    sizes = {"bytes_before": os.path.getsize(args.model), "bytes": os.path.getsize(args.output)}
    if args.json:
        print_json({"model": args.output, **smaller.result_.options["pruned"], **sizes})
    else:
        print(smaller.result_.message)
        print(f"Saved {args.output}: {sizes['bytes']} bytes, before {sizes['bytes_before']}.")
    return DONE

"""``maxmargin evaluate``: how good a model is on labelled data."""

from __future__ import annotations

import argparse

from maxmargin.cli.data import DATA_HELP, add_data_options, read_data
from maxmargin.cli.exits import DONE, check_output, print_json, writing

SUMMARY = "compare predictions with the truth"
DESCRIPTION = """\
Print the accuracy of a binary or multi-class model, and of two classes also precision, recall and F1 of the second
one and the area under the ROC curve; of a ranking, the share of the pairs in the right order; Hamming loss, subset
accuracy, micro- and macro-F1 of a multi-label model; the accuracy of tags and of whole sequences of a chain model,
and, if its tags are B-TYPE, I-TYPE and O, precision, recall and F1 of chunks, as conlleval has them; the accuracy of
nodes of a graph model, and of pixels if the data says how many a node has; precision, recall and F1 of labelled
brackets, exact match and tag accuracy of a parser, as EVALB has them. Where inference is a relaxation, also the share
of the labels that it left open, which rounding decided. Below, precision, recall and F1 of each class, tag or label,
and what was mistaken for what; --html writes all of it as a page with pictures."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("model", metavar="MODEL", help="model file, from 'maxmargin train -o'")
    parser.add_argument("data", metavar="DATA", help=DATA_HELP)
    add_data_options(parser)
    parser.add_argument("--html", metavar="FILE", help="write a page with tables and pictures there, too")
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(args: argparse.Namespace) -> int:
    """Load, predict, compare, print."""
    check_output(args.html)
    if args.html is not None:
        from maxmargin.reporting.plots import require_matplotlib

        require_matplotlib()
    from maxmargin.cli.metrics import evaluate_model
    from maxmargin.cli.models import load_model

    model = load_model(args.model)
    found = evaluate_model(model, read_data(args.data, args, model))
    if args.html is not None:
        _write_page(args.html, found.page(args.model))
    if args.json:
        print_json(found.report())
    else:
        print("\n".join(found.lines()))
    return DONE


def _write_page(path: str, text: str) -> None:
    from maxmargin.formats.atomic import atomic_write

    with writing(path), atomic_write(path) as stream:
        stream.write(text.encode())

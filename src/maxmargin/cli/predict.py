"""``maxmargin predict``: labels for new examples."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from maxmargin.cli.data import DATA_HELP, add_data_options, read_data
from maxmargin.cli.dataset import Dataset
from maxmargin.cli.exits import DONE, check_output, say, to_json, writing
from maxmargin.cli.outputs import output_kind, predictions_text
from maxmargin.errors import OptionError

SUMMARY = "predict with a model"
DESCRIPTION = """\
Print the predicted labels, one line an example: a class; the score by which to rank it; the labels of a multi-label
example with commas between them (an empty line if it has none); the tags of a sequence, or the labels of a graph's
nodes, with spaces between them. Of SVM-hmm's files, print one tag a line, with an empty line between sequences; of
words in columns, the columns and the tag after them; of CoNLL-U, the file with the tags in their column. A parser
reads trees, or a .txt file of sentences, one a line with spaces between the words, and prints trees, an empty line
where there is none. Of JSON lines, print JSON lines. With -o, a file that ends in .jsonl has an object an example, and
one that ends in .csv or .tsv a table; of a folder of images, one that ends in .zip has masks."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("model", metavar="MODEL", help="model file, from 'maxmargin train -o'")
    parser.add_argument("data", metavar="DATA", help=DATA_HELP)
    add_data_options(parser)
    parser.add_argument("--threshold", type=float, metavar="T", help="print ? for what is less sure than this")
    parser.add_argument(
        "--confidence",
        choices=("probability", "margin", "joint"),
        help="of --threshold: the probability of each label (the default); by how much each labeling is ahead of the second "
        "best; or the probability of each labeling",
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write there instead of to the standard output; .jsonl and .csv say how"
    )
    parser.add_argument(
        "--json", action="store_true", help="one JSON object, with scores and, of structures, upper bounds"
    )


def run(args: argparse.Namespace) -> int:
    """Load, predict, print."""
    check_output(args.output)
    if args.confidence is not None and args.threshold is None:
        raise OptionError("--confidence says what --threshold is of; give it, too.")
    from maxmargin.cli.models import load_model

    model = load_model(args.model)
    data = read_data(args.data, args, model)
    predict = {"binary": _classes, "multi-class": _classes, "parser": _trees, "ranking": _scores}.get(
        model.task, _structures
    )
    found = predict(model, data.inputs) if args.threshold is None else _sure(model, data.inputs, args)
    if data.format == "images" and args.output is not None and args.output.lower().endswith(".zip"):
        from maxmargin.formats import write_masks

        with writing(args.output):
            superpixels = 200 if args.superpixels is None else args.superpixels
            write_masks(args.output, data.path, found["predictions"], superpixels)
        return DONE
    kind = output_kind(args.output)
    if kind is not None and not args.json:
        text = predictions_text(kind, model, data, found).removesuffix("\n")
    elif args.json:
        text = to_json({"task": model.task, "inference": model.inference_, **found})
    else:
        text = _text(model, data, found, args)
    if args.output is None:
        sys.stdout.write(text + "\n")
    else:
        from maxmargin.formats.atomic import atomic_write

        with writing(args.output), atomic_write(args.output) as stream:
            stream.write((text + "\n").encode())
    return DONE


def _text(model: Any, data: Dataset, found: dict[str, Any], args: argparse.Namespace) -> str:
    predictions = found["predictions"]
    if data.format == "json":
        return predictions_text("json", model, data, {"predictions": predictions}).removesuffix("\n")
    if data.format == "conllu":
        from maxmargin.formats.conllu import conllu_text

        tags = [list(map(str, row)) for row in predictions]
        return conllu_text(data.columns, tags, args.tag_column or "UPOS", args.comment or "#").removesuffix("\n")
    if data.format == "conll":
        from maxmargin.formats.conll import conll_text

        return conll_text(data.columns, [list(map(str, tags)) for tags in predictions]).removesuffix("\n")
    if data.format == "svm-hmm":
        return "\n\n".join("\n".join(map(str, tags)) for tags in predictions)
    if data.task == "parser":
        return "\n".join(tree or "" for tree in predictions)
    between = "," if data.task == "multi-label" else " "
    return "\n".join(between.join(map(str, one)) if isinstance(one, list) else str(one) for one in predictions)


def _sure(model: Any, X: Any, args: argparse.Namespace) -> dict[str, Any]:
    """Predictions, with ? for those that are not sure enough."""
    if not hasattr(model, "predict_or_abstain"):
        raise OptionError(f"--threshold is not for the task {model.task}.")
    found = model.predict_or_abstain(X, args.threshold, args.confidence or "probability")
    if model.task == "multi-label" and getattr(found.accepted, "ndim", 1) == 2:
        # Of each label, its name if it is on and with a question mark if that is not sure.
        on = model._encode(found.labels) == 1
        marks = [
            [
                f"{name}{'' if keep else '?'}"
                for name, keep, is_on in zip(model.classes_, sure, row, strict=True)
                if is_on or not keep
            ]
            for row, sure in zip(on, found.accepted, strict=True)
        ]
        predictions: list[Any] = marks
    elif isinstance(found.labels, list):
        predictions = [
            ["?"] * len(row) if one is None else [str(tag) for tag in one]
            for one, row in zip(
                found.marked("?" if isinstance(found.accepted, list) else None), found.labels, strict=True
            )
        ]
    elif model.task == "multi-label":
        predictions = [
            model.classes_[row == 1].tolist() if keep else ["?"]
            for row, keep in zip(found.labels, found.accepted, strict=True)
        ]
    else:
        predictions = found.marked("?").tolist()
    return {"predictions": predictions, "confidence": found.confidence, "coverage": found.coverage}


def _classes(model: Any, X: Any) -> dict[str, Any]:
    return {"predictions": model.predict(X).tolist(), "scores": model.decision_function(X)}


def _scores(model: Any, X: Any) -> dict[str, Any]:
    return {"predictions": model.predict(X).tolist()}


def _trees(model: Any, X: Any) -> dict[str, Any]:
    from maxmargin.estimators.parser import no_parse

    found = model._parse(X)
    missing = sum(not trees for trees, _ in found)
    if missing:
        say(no_parse(missing, len(found)))
    return {
        "predictions": [str(trees[0]) if trees else None for trees, _ in found],
        "scores": [float(scores[0]) if trees else None for trees, scores in found],
    }


def _structures(model: Any, X: Any) -> dict[str, Any]:
    labels, scores, bounds = model.predict(X, return_bound=True)
    if model.task != "multi-label":
        labels = [row.tolist() for row in labels]
    elif not isinstance(labels, list):
        labels = [model.classes_[row == 1].tolist() for row in labels]
    return {"predictions": labels, "scores": scores, "bounds": bounds}

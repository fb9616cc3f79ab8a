"""``maxmargin pack``: write a data file as a folder of arrays that training maps instead of reading."""

from __future__ import annotations

import argparse
import os
from typing import Any

from maxmargin.cli.data import DATA_HELP, add_data_options, kind_of, read_data
from maxmargin.cli.exits import DONE, print_json, writing
from maxmargin.cli.words import text_features
from maxmargin.errors import DataError, OptionError

SUMMARY = "write data larger than memory as a folder"
DESCRIPTION = """\
Write DATA to a packed folder, which train, predict and evaluate take in its place: its arrays are mapped, not read, so
that it may be larger than memory. LIBSVM's and SVM-hmm's text, words in columns and CoNLL-U are read line after line, in
memory that does not grow with them (but for the vocabulary of words, which --n-hash does without); .arff and .npz files are
read whole. The folder appears in one step, when it is complete."""
_STREAMED = ("libsvm", "svm-hmm", "conll", "conllu")
_PACKED = ("binary", "multi-class", "multi-label", "chain")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("data", metavar="DATA", help=DATA_HELP)
    parser.add_argument(
        "-o", "--output", metavar="FOLDER", required=True, help="the folder, which must not be there yet"
    )
    add_data_options(parser, training=True)
    parser.add_argument(
        "--model", metavar="MODEL", help="pack in the terms of this model: its columns, its vocabulary of words"
    )
    parser.add_argument(
        "--n-features",
        type=int,
        metavar="N",
        help="columns of LIBSVM's and SVM-hmm's text (default: the largest index)",
    )
    parser.add_argument(
        "--n-hash", type=int, metavar="N", help="hash features of words into N columns, without a vocabulary"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on the standard output")


def run(args: argparse.Namespace) -> int:
    """Pack, and say what was packed."""
    from maxmargin.packed import read_packed
    from maxmargin.packed.folder import check_new

    if args.max_words is not None:
        raise OptionError("--max-words is for trees, which cannot be packed.")
    model = None
    if args.model is not None:
        from maxmargin.cli.models import load_model

        model = load_model(args.model)
    with writing(args.output):
        check_new(args.output)
    kind, recognised = kind_of(args.data, args, model)
    for name in ("n_features", "n_hash"):
        if getattr(args, name) is not None and (kind in ("conll", "conllu")) != (name == "n_hash"):
            raise OptionError(f"--{name.replace('_', '-')} is not for {args.data}.")
    try:
        _pack(kind, args, model)
    except DataError as error:
        if not recognised:
            raise
        raise DataError(f"{error}{recognised}") from error
    data = read_packed(args.output)
    size = sum(entry.stat().st_size for entry in os.scandir(args.output))
    found = {
        "folder": args.output, "task": data.task, "n_examples": len(data.X), "n_labels": len(data.y.classes),
        "n_features": data.X.folder.size("n_features", 1), "bytes": size,
    }  # fmt: skip
    if args.json:
        print_json(found)
    else:
        noun = "sequences" if data.task == "chain" else "examples"
        print(
            f"{args.output}: {found['n_examples']} {noun}, {found['n_features']} features, {found['n_labels']} labels "
            f"({data.task}), {size / 1e6:.1f} MB"
        )
    return DONE


def _pack(kind: str, args: argparse.Namespace, model: Any) -> None:
    from maxmargin.packed import packing

    task = args.task if model is None else model.task
    if task is not None and task not in _PACKED:
        raise OptionError(f"Data for the task {task} cannot be packed; packed are {', '.join(_PACKED)}.")
    width = args.n_features if model is None else getattr(model, "n_features_in_", None)
    if kind == "libsvm":
        names = [str(label) for label in model.classes_] if task == "multi-label" and model is not None else None
        packing.pack_svmlight(args.output, args.data, task, width, names)
    elif kind == "svm-hmm":
        packing.pack_svm_hmm(args.output, args.data, width)
    elif kind in ("conll", "conllu"):
        _pack_words(kind, args, model)
    else:
        data = read_data(args.data, args, model)
        if data.task not in _PACKED:
            raise DataError(
                f"{args.data} holds {data.task} data, which cannot be packed; packed are {', '.join(_PACKED)}."
            )
        packing.pack(args.output, data.inputs, data.labelled().targets, data.feature_names)


def _pack_words(kind: str, args: argparse.Namespace, model: Any) -> None:
    from maxmargin.formats.conll import conll_sentences
    from maxmargin.formats.conllu import conllu_sentences
    from maxmargin.packed.packing import pack_words

    if args.data == "-":
        raise OptionError("Words are read twice; give a file, not the standard input.")
    if kind == "conll":
        options: tuple[Any, ...] = (args.comment, True, args.word_column or 1, args.tag_column or -1)
        reader: Any = conll_sentences
    else:
        options = (args.comment or "#", True, args.word_column or "FORM", args.tag_column or "UPOS")
        reader = conllu_sentences
    if model is not None:
        features = getattr(model, "vectoriser_", None)
        if features is None:
            raise DataError(f"{args.data} holds words, but the model was not trained on words.")
    else:
        first, _ = next(reader(args.data, *options))
        features = text_features(args.data, args.features, len(first[0]))
        if args.n_hash is not None:
            features.set_params(n_hash=args.n_hash)
    pack_words(args.output, lambda: reader(args.data, *options), features, args.data)

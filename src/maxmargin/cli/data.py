"""Data files on the command line: which reader.

Conventions
-----------
The ending decides, unless ``--format`` does: ``.arff`` is Mulan, ``.svm``, ``.libsvm`` and ``.txt`` are LIBSVM's text, ``.hmm`` is
SVM-hmm's, ``.conll`` has words in columns, ``.conllu`` is CoNLL-U, ``.mrg``, ``.ptb`` and ``.brackets`` have trees, each also with
``.gz``, ``.xz`` or ``.bz2`` after it; ``.zip`` has trees in its members ``.mrg``; ``.npz`` holds graphs (`formats.graphs`), or
sequences or rows (`cli.arrays`); ``.csv``, ``.tsv`` and ``.parquet`` are tables; ``.jsonl`` and ``.json`` have tokens or texts; a
folder with a folder ``images`` in it has pictures and masks. Labels go by their names. A format is read by the file of its name in
`cli.readers`.

Text of LIBSVM's kind, and text with the ending ``.dat`` or one that says nothing, is SVM-hmm's if its first example has ``qid:``;
other ``.dat`` is LIBSVM's. ``-`` is the standard input, which needs ``--format``. With ``--task ranking``, or a model
for it, text with ``qid:`` is SVM-rank's: levels and queries.

What a file holds says its task, if neither ``--task`` nor a model does: LIBSVM's text with one label on every line, and an npz
with one label a row, are binary or multi-class, by the number of labels.

Words in columns become numbers in the model, by its `TextFeatures`, so that it can read words again; ``--features`` says which.

Trees are read without traces and functions. A parser also reads sentences without trees, from ``.txt``: one a line, with spaces
between the words.
"""

from __future__ import annotations

import argparse
import importlib
import os
from collections.abc import Callable
from pathlib import PurePath
from typing import Any

from maxmargin.cli.dataset import Dataset
from maxmargin.cli.names import FEATURES, FORMATS, TASKS, one_of
from maxmargin.errors import DataError, OptionError

_COMPRESSED = (".gz", ".xz", ".bz2")
_FORMATS = {
    ".arff": "arff",
    ".svm": "libsvm",
    ".libsvm": "libsvm",
    ".txt": "libsvm",
    ".hmm": "svm-hmm",
    ".dat": "libsvm",
    ".conll": "conll",
    ".conllu": "conllu",
    ".mrg": "trees",
    ".ptb": "trees",
    ".brackets": "trees",
    ".zip": "trees",
    ".npz": "npz",
    ".csv": "table",
    ".tsv": "table",
    ".parquet": "table",
    ".pq": "table",
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
}
#: What DATA is, for ``--help``.
DATA_HELP = (
    ".arff, .svm, .libsvm, .txt, .dat, .hmm, .conll, .conllu, .csv, .tsv, .parquet, .jsonl, .json, .mrg, .ptb, .brackets, .zip or "
    ".npz file, a packed folder, or a folder of images; - is the standard input"
)
#: What files are called in sentences about how they were recognised.
_TITLES = {"libsvm": "SVM-light's and LIBSVM's text", "svm-hmm": "SVM-hmm's text"}
#: Formats of words, which a model reads by features of its own.
_WORDS = ("conll", "conllu", "json")
#: Options that are for some formats only, and what these hold.
_OF_FORMATS = {
    "features": (_WORDS, "words"),
    "word_column": (("conll", "conllu"), "words in columns"),
    "tag_column": (("conll", "conllu"), "words in columns"),
    "comment": (("conll", "conllu"), "words in columns"),
    "max_words": (("trees",), "trees"),
    "target": (("table",), "a table"),
    "drop": (("table",), "a table"),
    "label_names": (("json",), "JSON with tags as numbers"),
    "superpixels": (("images",), "images"),
}


def add_data_options(parser: argparse.ArgumentParser, training: bool = False) -> None:
    """Options that say how to read data; with some that only training needs, since a model knows the rest."""
    parser.add_argument(
        "--task",
        type=one_of("task", TASKS),
        metavar="TASK",
        help=f"{', '.join(TASKS)} (default: guessed from the data)",
    )
    parser.add_argument(
        "--format",
        type=one_of("format", FORMATS),
        metavar="FORMAT",
        help=f"of the data files: {', '.join(sorted(set(FORMATS.values())))} (default: by their ending)",
    )
    parser.add_argument(
        "--word-column",
        metavar="COLUMN",
        help="of .conll and .conllu: a number from 1, or from -1 for the last; of .conllu also a name (default: 1; FORM)",
    )
    parser.add_argument("--tag-column", metavar="COLUMN", help="the same, for the tags (default: -1; UPOS)")
    parser.add_argument(
        "--comment", metavar="PREFIX", help="of .conll and .conllu: leave out lines that begin so (default: none; #)"
    )
    parser.add_argument(
        "--xml", metavar="FILE", help="Mulan XML that names the labels of an ARFF file (default: beside it)"
    )
    parser.add_argument(
        "--n-labels", type=int, metavar="N", help="the last N attributes of an ARFF file are the labels"
    )
    parser.add_argument(
        "--target", metavar="A,B", help="of a table: the column to learn, or several of zeros and ones (label sets)"
    )
    parser.add_argument("--drop", metavar="A,B", help="of a table: columns that are no features")
    parser.add_argument(
        "--label-names",
        metavar="NAMES",
        help="of JSON with tags as numbers: their names with commas between them, or a file with one a line",
    )
    parser.add_argument(
        "--superpixels",
        type=int,
        metavar="N",
        help="of a folder of images: about so many nodes an image; 0 is a node for each pixel (default: 200)",
    )
    parser.add_argument("--split", type=int, metavar="N", help="of an .npz file, use what has N in the array 'split'")
    if training:
        parser.add_argument(
            "--features",
            type=one_of("features", FEATURES),
            metavar="NAME",
            help=f"{', '.join(FEATURES)}: of words in columns (default: chunking with parts of speech between words and tags, else "
            "tagging)",
        )
        parser.add_argument(
            "--max-words", type=int, metavar="N", help="train only on trees of at most N words (parser)"
        )


def read_data(path: str, args: argparse.Namespace, model: Any = None) -> Dataset:
    """Read a data file; with a model, in the terms of that model.

    Parameters
    ----------
    path : str
    args : Namespace
        With what `add_data_options` adds.
    model : estimator, optional
        Its labels and features must be those of the file.
    """
    from maxmargin.formats.compression import keeping

    with keeping(path):
        kind, recognised = kind_of(path, args, model)
        _check_options(path, kind, args, model)
        try:
            if kind not in (*_WORDS, "packed") and hasattr(model, "vectoriser_"):
                raise DataError(f"{path} holds numbers, but the model was trained on words or named features.")
            return _reader(kind)(path, args, model)
        except DataError as error:
            if not recognised:
                raise
            raise DataError(f"{error}{recognised}", example=error.example) from error


def _reader(kind: str) -> Callable[[str, argparse.Namespace, Any], Dataset]:
    """The function ``read`` of the file of that name in `maxmargin.cli.readers`."""
    module = importlib.import_module(f"maxmargin.cli.readers.{kind.replace('-', '_')}")
    read: Callable[[str, argparse.Namespace, Any], Dataset] = module.read
    return read


def kind_of(path: str, args: argparse.Namespace, model: Any = None) -> tuple[str, str]:
    """The format of a file or folder, and a sentence for errors if its content decided."""
    if args.format is not None:
        return args.format, ""
    return _recognise(path, _asked(args, model))


def _asked(args: argparse.Namespace, model: Any) -> str | None:
    """The task of the model, or the one that is asked for."""
    task: str | None = args.task if model is None else model.task
    return task


def _check_options(path: str, kind: str, args: argparse.Namespace, model: Any) -> None:
    """Refuse options that are for other data."""
    if model is not None and args.task not in (None, model.task):
        raise OptionError(f"--task is {args.task}, but the model is for the task {model.task}.")
    for name, (kinds, what) in _OF_FORMATS.items():
        if kind not in kinds and getattr(args, name, None) is not None:
            raise OptionError(f"--{name.replace('_', '-')} is for {what}, which {path} does not hold.")


def _recognise(path: str, task: str | None) -> tuple[str, str]:
    """The format, by the ending and, of text, by the first example; and a sentence for errors if the content decided."""
    from maxmargin.formats.svmlight import first_query

    if path == "-":
        raise OptionError(
            f"The standard input has no ending that says its format; say --format {'|'.join(sorted(set(FORMATS.values())))}."
        )
    if os.path.isdir(os.path.join(path, "images")):
        return "images", ""
    if os.path.isdir(path):
        return "packed", ""
    ending = _ending(path)
    kind = _FORMATS.get(ending, "")
    if kind not in ("", "libsvm"):
        return kind, ""
    if kind and task == "parser":
        return "sentences", ""
    if task == "ranking":
        return "libsvm", ""
    line = first_query(path)
    if line or ending == ".dat":
        kind = "svm-hmm" if line else "libsvm"
        why = f"its first example, line {line}, has 'qid:'" if line else "its first example has no 'qid:'"
        return kind, f" (It was recognised as {_TITLES[kind]}: {why}; --format says otherwise.)"
    if not kind:
        raise DataError(
            f"{path}: the ending says nothing about the format, nor does 'qid:' in its first line; expected .arff (Mulan), .svm, "
            ".libsvm, .txt or .dat (LIBSVM), .hmm (SVM-hmm), .conll (words in columns), .conllu (CoNLL-U), .mrg, .ptb or .brackets "
            "(trees), possibly with .gz, .xz or .bz2 after it, "
            ".csv, .tsv or .parquet (tables), .jsonl or .json (tokens, texts), .zip (trees), .npz (graphs, sequences, rows), a "
            "packed folder, a folder of images, or --format."
        )
    return kind, ""


def _ending(path: str) -> str:
    name = PurePath(path)
    suffix = name.suffix.lower()
    return PurePath(name.stem).suffix.lower() if suffix in _COMPRESSED else suffix


def holds_trees(path: str, args: argparse.Namespace) -> bool:
    """Whether the ending, or ``--format``, says that these are trees."""
    return (args.format or _FORMATS.get(_ending(path))) == "trees"

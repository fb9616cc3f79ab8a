"""Data files on the command line: which reader, which task, and whether they fit a model.

Conventions
-----------
The ending decides, unless ``--format`` does: ``.arff`` is Mulan, ``.svm``, ``.libsvm`` and ``.txt`` are LIBSVM's text, ``.hmm`` is
SVM-hmm's, ``.conll`` has words in columns, ``.conllu`` is CoNLL-U, ``.mrg``, ``.ptb`` and ``.brackets`` have trees, each also with
``.gz``, ``.xz`` or ``.bz2`` after it; ``.zip`` has trees in its members ``.mrg``; ``.npz`` holds graphs (`formats.graphs`), or
sequences or rows (`cli.arrays`). Labels go by their names.

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
import os
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from maxmargin.cli.names import FEATURES, FORMATS, TASKS, one_of
from maxmargin.errors import DataError, OptionError, did_you_mean

if TYPE_CHECKING:
    from maxmargin.features import TextFeatures
    from maxmargin.formats import MultiLabelData

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
}
#: What DATA is, for ``--help``.
DATA_HELP = (
    ".arff, .svm, .libsvm, .txt, .dat, .hmm, .conll, .conllu, .mrg, .ptb, .brackets, .zip or .npz file, or a packed folder; "
    "- is the standard input"
)
#: What files are called in sentences about how they were recognised.
_TITLES = {"libsvm": "SVM-light's and LIBSVM's text", "svm-hmm": "SVM-hmm's text"}
_CLASSES = ("binary", "multi-class")
_WORDS = ("conll", "conllu")


@dataclass(frozen=True, eq=False)
class Dataset:
    """What a data file holds, ready for `fit`, `predict` and `score`."""

    path: str
    task: str
    inputs: Any
    #: None if the file has no labels.
    targets: Any
    feature_names: list[str] | None
    format: str
    #: Words in columns: all columns of each sentence, as the file has them; of CoNLL-U, the lines of the file.
    columns: Any = None
    #: Parameters that an estimator needs to be trained on this, and what `fit` and `score` need beside inputs and targets.
    parameters: dict[str, Any] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)
    #: Of graphs of superpixels: the classes, and for each graph how many pixels of each class (n, classes) its nodes have.
    pixels: tuple[list[Any], list[Any]] | None = None

    def __len__(self) -> int:
        return len(self.inputs) if self.task in ("chain", "graph", "parser") else int(self.inputs.shape[0])

    def labelled(self) -> Dataset:
        """The same, after a look whether there are labels."""
        if self.targets is None:
            missing = {
                "conll": "a column of tags is",
                "conllu": "the column of tags holds nothing but '_', which says that they are",
                "sentences": "trees are",
            }.get(self.format, "the array 'y' is")
            raise DataError(f"{self.path} has no labels to compare with: {missing} missing.")
        return self


class NamedColumns:
    """Zeros and ones with the labels' names: what a data frame says to `fit`, without a data frame."""

    def __init__(self, values: Any, columns: list[str]) -> None:
        self.values = values
        self.columns = columns

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        import numpy as np

        return np.array(self.values, dtype=dtype) if copy else np.asarray(self.values, dtype=dtype)


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
            return _READERS[kind](path, args, model)
        except DataError as error:
            if not recognised:
                raise
            raise DataError(f"{error}{recognised}", example=error.example) from error


def kind_of(path: str, args: argparse.Namespace, model: Any = None) -> tuple[str, str]:
    """The format of a file or folder, and a sentence for errors if its content decided."""
    if args.format is not None:
        return args.format, ""
    return ("packed", "") if os.path.isdir(path) else _recognise(path, _asked(args, model))


def _asked(args: argparse.Namespace, model: Any) -> str | None:
    """The task of the model, or the one that is asked for."""
    task: str | None = args.task if model is None else model.task
    return task


def _check_options(path: str, kind: str, args: argparse.Namespace, model: Any) -> None:
    """Refuse options that are for other data."""
    if model is not None and args.task not in (None, model.task):
        raise OptionError(f"--task is {args.task}, but the model is for the task {model.task}.")
    for name in ("features", "word_column", "tag_column", "comment"):
        if kind not in _WORDS and getattr(args, name, None) is not None:
            raise OptionError(f"--{name.replace('_', '-')} is for words in columns, which {path} does not hold.")
    if kind != "trees" and getattr(args, "max_words", None) is not None:
        raise OptionError(f"--max-words is for trees, which {path} does not hold.")


def _task(path: str, found: str, possible: tuple[str, ...], args: argparse.Namespace, model: Any) -> str:
    """The task: what the model or the user says, if the file can be read so; else what was found in the file."""
    if model is not None and model.task not in possible:
        raise DataError(f"{path} holds {found} data, but the model is for the task {model.task}.")
    if args.task is not None and args.task not in possible:
        raise OptionError(f"{path} holds {found} data, but --task is {args.task}.")
    return str(args.task or (found if model is None else model.task))


def _recognise(path: str, task: str | None) -> tuple[str, str]:
    """The format, by the ending and, of text, by the first example; and a sentence for errors if the content decided."""
    from maxmargin.formats.svmlight import first_query

    if path == "-":
        raise OptionError(
            f"The standard input has no ending that says its format; say --format {'|'.join(sorted(_READERS))}."
        )
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
            "(trees), possibly with .gz, .xz or .bz2 after it, .zip (trees), .npz (graphs, sequences, rows), or --format."
        )
    return kind, ""


def _ending(path: str) -> str:
    name = PurePath(path)
    suffix = name.suffix.lower()
    return PurePath(name.stem).suffix.lower() if suffix in _COMPRESSED else suffix


def holds_trees(path: str, args: argparse.Namespace) -> bool:
    """Whether the ending, or ``--format``, says that these are trees."""
    return (args.format or _FORMATS.get(_ending(path))) == "trees"


def _classes_or(labels: list[Any] | None) -> str:
    """The task of data with one label an example."""
    return "binary" if len(set(labels or ())) <= 2 else "multi-class"


# --------------------------------------------------------------------------------------------------------------------
# npz


def _read_npz(path: str, args: argparse.Namespace, model: Any) -> Dataset:
    from maxmargin.cli.arrays import holds_graphs, read_arrays

    if holds_graphs(path):
        task = _task(path, "graph", ("graph",), args, model)
        return _read_graphs(path, args, task, model)
    data = read_arrays(path, args.split)
    targets = data.targets
    if targets is None and model is None:
        raise DataError(f"{path} has no labels: the array 'y' is missing.")
    if data.kind == "classes":
        # Rows without labels are for any model of rows.
        unknown = ("multi-label",) if targets is None else ()
        task = _task(path, _classes_or(targets), (*_CLASSES, *unknown), args, model)
    else:
        task = _task(path, data.kind, (data.kind,), args, model)
    if task == "multi-label" and model is None and data.class_names is not None:
        targets = NamedColumns(targets, data.class_names)
    return Dataset(path, task, data.inputs, targets, None, "npz")


def _read_graphs(path: str, args: argparse.Namespace, task: str, model: Any) -> Dataset:
    from maxmargin.formats import read_graphs

    data = read_graphs(path, args.split)
    names: list[Any] = data.class_names
    # Names that are numbers stay numbers, and names that are not distinct are of no use.
    if all(name.isdigit() for name in names) or len(set(names)) < len(names):
        names = list(range(len(names)))
    labels = [[names[k] if k >= 0 else None for k in row.tolist()] for row in data.labels]
    pixels = None if data.pixel_counts is None else (names, data.pixel_counts)
    graphs: list[Any] = data.graphs
    node_weights = (
        dict(getattr(args, "settings", None) or ()).get("node_weights") if model is None else model.node_weights
    )
    if node_weights == "class-wise" and graphs[0][0].shape[1] == len(names):
        # Columns are scores of the classes as the file has them; a model has them in the order of their names.
        order = sorted(range(len(names)), key=names.__getitem__)
        graphs = [(nodes[:, order], edges, features) for nodes, edges, features in graphs]
    return Dataset(path, task, graphs, labels, None, "npz", pixels=pixels)


# --------------------------------------------------------------------------------------------------------------------
# LIBSVM's text


def _read_libsvm(path: str, args: argparse.Namespace, model: Any) -> Dataset:
    from maxmargin.formats import read_svmlight

    if model is None and args.task == "ranking":
        rows, task = read_svmlight(path), "ranking"
    elif model is None:
        rows = read_svmlight(path)
        single = rows.one_label_each()
        found = _classes_or(rows.classes().y.tolist()) if single else "multi-label"
        task = _task(path, found, (*_CLASSES, "multi-label") if single else ("multi-label",), args, None)
    else:
        task = _task(path, "multi-label", (*_CLASSES, "multi-label", "ranking"), args, model)
        names = known_feature_names(model)
        # The first index of the training file decides for all: a test file need not have that feature.
        zero_based: Any = "auto" if names is None or names[0] not in ("0", "1") else names[0] == "0"
        rows = read_svmlight(path, model.n_features_in_, zero_based)
    if task == "multi-label":
        names = None if model is None else [str(label) for label in model.classes_]
        return _multi_label(path, rows.multi_label(names), model, "libsvm")
    check_feature_names(path, rows.feature_names, model)
    if task == "ranking":
        levels, queries = rows.ranking()
        return Dataset(path, task, rows.X, levels, rows.feature_names, "libsvm", more={"qid": queries})
    labels = rows.classes(None if model is None else model.classes_.tolist()).y.tolist()
    return Dataset(path, task, rows.X, labels, rows.feature_names, "libsvm")


# --------------------------------------------------------------------------------------------------------------------
# Packed folders


def _read_packed(path: str, args: argparse.Namespace, model: Any) -> Dataset:
    from maxmargin.packed import read_packed

    data = read_packed(path)
    # One label on each row can be read in three ways; a folder has been packed for one of them.
    possible = _CLASSES if data.task in _CLASSES else (data.task,)
    task = _task(path, data.task, possible, args, model)
    if model is not None and data.vectoriser is None and hasattr(model, "vectoriser_"):
        raise DataError(f"{path} holds numbers, but the model was trained on words or named features.")
    if data.feature_names is not None:
        check_feature_names(path, data.feature_names, model)
    if task == "multi-label" and model is not None and data.y.columns != [str(label) for label in model.classes_]:
        raise DataError(
            f"{path} has other labels than the model, or in another order; pack it with --model, in the terms of the model."
        )
    parameters: dict[str, Any] = {}
    if data.vectoriser is not None:
        from sklearn.base import clone

        parameters = {"features": clone(data.vectoriser)}
    return Dataset(path, task, data.X, data.y, data.feature_names, "packed", parameters=parameters)


# --------------------------------------------------------------------------------------------------------------------
# Sequences


def _read_svm_hmm(path: str, args: argparse.Namespace, model: Any) -> Dataset:
    from maxmargin.formats import read_svm_hmm

    task = _task(path, "chain", ("chain",), args, model)
    data = read_svm_hmm(path, None if model is None else model.n_features_in_)
    names = [str(index) for index in range(1, int(data.X.shape[1]) + 1)]
    check_feature_names(path, names, model)
    tags = data.tag_lists()
    if model is not None:
        known = set(model.classes_.tolist())
        # SVM-hmm counts tags from 1: a 0 that is no tag is one that is not known.
        tags = [[None if tag == 0 and tag not in known else tag for tag in row] for row in tags]
    return Dataset(path, task, data.sequences(), tags, names, "svm-hmm")


def _read_conll(path: str, args: argparse.Namespace, model: Any) -> Dataset:
    from maxmargin.formats import read_conll

    task = _task(path, "chain", ("chain",), args, model)
    word, tag = args.word_column or 1, args.tag_column or -1
    if model is None:
        sentences, tags = read_conll(path, args.comment, True, word, tag)
        features = text_features(path, getattr(args, "features", None), len(sentences[0][0]))
        return Dataset(path, task, sentences, tags, None, "conll", parameters={"features": features})
    names = _columns_read(path, model)
    columns, _ = read_conll(path, args.comment, tagged=False)
    if args.tag_column is not None:
        sentences, tags = read_conll(path, args.comment, True, word, tag)
    else:
        # There may be a tag in the last column, or none.
        sentences = columns if args.word_column is None else read_conll(path, args.comment, False, word)[0]
        tags = []
        if len(sentences[0][0]) == len(names) + 1:
            tags = [[row[-1] for row in rows] for rows in sentences]
            sentences = [[row[:-1] for row in rows] for rows in sentences]
    found = len(sentences[0][0])
    if found != len(names):
        several = f"{found} column{'s' if found > 1 else ''}{' for words' if tags else ''}"
        raise DataError(f"{path} has {several}; the model reads {', '.join(names)}, and a tag may follow.")
    return Dataset(path, task, sentences, tags or None, None, "conll", columns)


def _read_conllu(path: str, args: argparse.Namespace, model: Any) -> Dataset:
    from maxmargin.formats.compression import open_text
    from maxmargin.formats.conllu import NO_VALUE, read_conllu

    task = _task(path, "chain", ("chain",), args, model)
    word, tag, comment = args.word_column or "FORM", args.tag_column or "UPOS", args.comment or "#"
    sentences, tags = read_conllu(path, comment, True, word, tag)
    without = all(value == NO_VALUE for row in tags for value in row)
    if model is None:
        if without:
            raise DataError(
                f"{path}: the column of tags, {tag}, holds nothing but {NO_VALUE!r}: there is nothing to learn."
            )
        features = text_features(path, getattr(args, "features", None), 1)
        return Dataset(path, task, sentences, tags, None, "conllu", parameters={"features": features})
    names = _columns_read(path, model)
    if len(names) != 1:
        raise DataError(f"{path} is CoNLL-U, of which words alone are read, but the model reads {', '.join(names)}.")
    with open_text(path) as stream:
        lines = stream.read().splitlines()
    return Dataset(path, task, sentences, None if without else tags, None, "conllu", lines)


def _columns_read(path: str, model: Any) -> list[str]:
    """The names of the columns of words that a model reads."""
    names = getattr(getattr(model, "features", None), "columns", None)
    if names is None:
        raise DataError(f"{path} holds words, but the model was not trained on words.")
    return list(names)


def text_features(path: str, name: str | None, width: int) -> TextFeatures:
    """The features that ``--features`` names, of words with so many columns."""
    from maxmargin.features import TextFeatures

    columns = ("word", "pos", *(f"column{k}" for k in range(3, width + 1)))[:width]
    if name is None:
        name = "tagging" if width == 1 else "chunking"
    if name == "chunking" and width == 1:
        raise OptionError(f"--features is chunking, but {path} has no column between the word and the tag.")
    if name == "words":
        return TextFeatures(columns=columns)
    return TextFeatures.chunking(columns=columns) if name == "chunking" else TextFeatures.tagging(columns=columns)


# --------------------------------------------------------------------------------------------------------------------
# Trees


def _read_trees(path: str, args: argparse.Namespace, model: Any) -> Dataset:
    from maxmargin.parsing.treebank import read_trees

    task = _task(path, "parser", ("parser",), args, model)
    trees = list(read_trees(path, remove_traces=True, remove_functions=True))
    if not trees:
        raise DataError(f"{path} has no trees.")
    sentences, most = [tree.words() for tree in trees], getattr(args, "max_words", None)
    if most is not None and model is None:
        short = [m for m, words in enumerate(sentences) if len(words) <= most]
        if not short:
            raise DataError(f"{path} has {len(trees)} trees, but none of at most {most} words (--max-words).")
        trees, sentences = [trees[m] for m in short], [sentences[m] for m in short]
    return Dataset(path, task, sentences, trees, None, "trees")


def _read_sentences(path: str, args: argparse.Namespace, model: Any) -> Dataset:
    from maxmargin.formats.compression import open_text

    task = _task(path, "parser", ("parser",), args, model)
    if model is None:
        raise DataError(f"{path} has sentences, but a parser learns from trees.")
    with open_text(path) as stream:
        sentences = [line.split() for line in stream]
    if not sentences:
        raise DataError(f"{path} has no sentences.")
    return Dataset(path, task, sentences, None, None, "sentences")


# --------------------------------------------------------------------------------------------------------------------
# ARFF


def _read_arff(path: str, args: argparse.Namespace, model: Any) -> Dataset:
    task = _task(path, "multi-label", ("multi-label", "binary"), args, model)
    if task == "multi-label":
        return _multi_label(path, _read_mulan(path, args, model), model, "arff")
    from maxmargin.formats import read_mulan

    n_labels = 1 if args.xml is None and args.n_labels is None else args.n_labels
    data = read_mulan(path, args.xml, n_labels)
    if len(data.label_names) != 1:
        raise DataError(f"{path} has {len(data.label_names)} labels; the task binary needs one, of zeros and ones.")
    check_feature_names(path, data.feature_names, model)
    return Dataset(path, task, data.X, data.Y[:, 0].tolist(), data.feature_names, "arff")


def _read_mulan(path: str, args: argparse.Namespace, model: Any) -> MultiLabelData:
    from maxmargin.formats import read_mulan

    try:
        return read_mulan(path, args.xml, args.n_labels)
    except DataError:
        if model is None or args.xml is not None or args.n_labels is not None:
            raise
        # Nothing may say which attributes are labels; the model knows how many there are, and their names are compared.
        try:
            return read_mulan(path, n_labels=len(model.classes_))
        except (DataError, OptionError):
            pass
        raise


# --------------------------------------------------------------------------------------------------------------------
# Names


def _multi_label(path: str, data: MultiLabelData, model: Any, kind: str) -> Dataset:
    targets = NamedColumns(data.Y, data.label_names) if model is None else _columns_of(model, data, path)
    return Dataset(path, "multi-label", data.X, targets, data.feature_names, kind)


def _columns_of(model: Any, data: MultiLabelData, path: str) -> Any:
    """The targets in the order of the model's labels, after a look at all names."""
    import numpy as np

    check_feature_names(path, data.feature_names, model)
    classes = [str(label) for label in model.classes_]
    if len(classes) != len(data.label_names):
        raise DataError(f"{path} has {len(data.label_names)} labels, but the model has {len(classes)}.")
    if classes == [str(k) for k in range(len(classes))]:
        return data.Y
    unknown = sorted(set(data.label_names) - set(classes))
    if unknown:
        raise DataError(
            f"{path} has the label {unknown[0]!r}, which the model does not know." + did_you_mean(unknown[0], classes)
        )
    place = {name: i for i, name in enumerate(data.label_names)}
    return np.ascontiguousarray(data.Y[:, [place[name] for name in classes]])


def check_feature_names(path: str, names: list[str], model: Any) -> None:
    """Refuse features of other names than the model was trained with."""
    expected = None if model is None else known_feature_names(model)
    if expected is not None and names != expected and len(expected) == len(names):
        k = next(k for k, (one, other) in enumerate(zip(names, expected, strict=True)) if one != other)
        raise DataError(f"{path}: feature {k} is {names[k]!r}, but the model was trained with {expected[k]!r} there.")


def known_feature_names(model: Any) -> list[str] | None:
    """Names of the model's features, if it was trained with names."""
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        names = getattr(model, "_feature_names", None)
    return None if names is None else [str(name) for name in names]


_READERS = {
    "arff": _read_arff,
    "conll": _read_conll,
    "conllu": _read_conllu,
    "libsvm": _read_libsvm,
    "npz": _read_npz,
    "packed": _read_packed,
    "sentences": _read_sentences,
    "svm-hmm": _read_svm_hmm,
    "trees": _read_trees,
}

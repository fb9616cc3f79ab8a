"""Data files on the command line: which reader, which task, and whether they fit a model.

Conventions
-----------
The ending decides: ``.arff`` is Mulan, ``.svm``, ``.libsvm`` and ``.txt`` are LIBSVM's multi-label text, each also with
``.gz``, ``.xz`` or ``.bz2`` after it; ``.npz`` holds graphs. Labels go by their names.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from maxmargin.errors import DataError, OptionError

if TYPE_CHECKING:
    from maxmargin.formats import MultiLabelData

_COMPRESSED = (".gz", ".xz", ".bz2")
_LIBSVM = (".svm", ".libsvm", ".txt")
TASKS = ("multi-label", "graph")


@dataclass(frozen=True, eq=False)
class Dataset:
    """What a data file holds, ready for `fit`, `predict` and `score`."""

    path: str
    task: str
    inputs: Any
    targets: Any
    feature_names: list[str] | None

    def __len__(self) -> int:
        return len(self.inputs) if self.task == "graph" else int(self.inputs.shape[0])


class NamedColumns:
    """Zeros and ones with the labels' names: what a data frame says to `fit`, without a data frame."""

    def __init__(self, values: Any, columns: list[str]) -> None:
        self.values = values
        self.columns = columns

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        import numpy as np

        return np.array(self.values, dtype=dtype) if copy else np.asarray(self.values, dtype=dtype)


def add_data_options(parser: argparse.ArgumentParser) -> None:
    """Options that say how to read data."""
    parser.add_argument("--task", choices=TASKS, help="by default guessed from the data")
    parser.add_argument(
        "--xml", metavar="FILE", help="Mulan XML that names the labels of an ARFF file (default: beside it)"
    )
    parser.add_argument(
        "--n-labels", type=int, metavar="N", help="the last N attributes of an ARFF file are the labels"
    )
    parser.add_argument(
        "--split", type=int, metavar="N", help="of an .npz file, use the graphs whose entry in 'split' is N"
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
    kind = _kind(path)
    task = "graph" if kind == "npz" else "multi-label"
    if args.task is not None and args.task != task:
        raise OptionError(f"{path} holds {task} data, but --task is {args.task}.")
    if model is not None and model.task != task:
        raise DataError(f"{path} holds {task} data, but the model is for the task {model.task}.")
    if task == "graph":
        return _read_graphs(path, args)
    data = _read_libsvm(path, model) if kind == "libsvm" else _read_arff(path, args, model)
    names = data.label_names
    Y = data.Y if model is None else _columns_of(model, data, path)
    return Dataset(path, task, data.X, NamedColumns(data.Y, names) if model is None else Y, data.feature_names)


def _kind(path: str) -> str:
    name = PurePath(path)
    suffix = name.suffix.lower()
    if suffix in _COMPRESSED:
        suffix = PurePath(name.stem).suffix.lower()
    if suffix == ".arff":
        return "arff"
    if suffix in _LIBSVM:
        return "libsvm"
    if suffix == ".npz":
        return "npz"
    raise DataError(
        f"{path}: the ending says nothing about the format; expected .arff (Mulan), .svm, .libsvm or .txt (LIBSVM), "
        "possibly with .gz, .xz or .bz2 after it, or .npz (graphs)."
    )


def _read_graphs(path: str, args: argparse.Namespace) -> Dataset:
    from maxmargin.formats import read_graphs

    data = read_graphs(path, args.split)
    names: list[Any] = data.class_names
    # Names that are numbers stay numbers, and names that are not distinct are of no use.
    if all(name.isdigit() for name in names) or len(set(names)) < len(names):
        names = list(range(len(names)))
    labels = [[names[k] if k >= 0 else None for k in row.tolist()] for row in data.labels]
    return Dataset(path, "graph", data.graphs, labels, None)


def _read_libsvm(path: str, model: Any) -> MultiLabelData:
    from maxmargin.formats import read_libsvm_multilabel

    if model is None:
        return read_libsvm_multilabel(path)
    names = known_feature_names(model)
    # The first index of the training file decides for all: a test file need not have that feature.
    return read_libsvm_multilabel(
        path,
        n_features=model.n_features_in_,
        label_names=[str(label) for label in model.classes_],
        zero_based="auto" if names is None or names[0] not in ("0", "1") else names[0] == "0",
    )


def _read_arff(path: str, args: argparse.Namespace, model: Any) -> MultiLabelData:
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


def _columns_of(model: Any, data: MultiLabelData, path: str) -> Any:
    """The targets in the order of the model's labels, after a look at all names."""
    import numpy as np

    expected = known_feature_names(model)
    if expected is not None and data.feature_names != expected and len(expected) == len(data.feature_names):
        k = next(k for k, (one, other) in enumerate(zip(data.feature_names, expected, strict=True)) if one != other)
        raise DataError(
            f"{path}: feature {k} is {data.feature_names[k]!r}, but the model was trained with {expected[k]!r} there."
        )
    classes = [str(label) for label in model.classes_]
    if len(classes) != len(data.label_names):
        raise DataError(f"{path} has {len(data.label_names)} labels, but the model has {len(classes)}.")
    if classes == [str(k) for k in range(len(classes))]:
        return data.Y
    unknown = sorted(set(data.label_names) - set(classes))
    if unknown:
        raise DataError(f"{path} has the label {unknown[0]!r}, which the model does not know.")
    place = {name: i for i, name in enumerate(data.label_names)}
    return np.ascontiguousarray(data.Y[:, [place[name] for name in classes]])


def known_feature_names(model: Any) -> list[str] | None:
    """Names of the model's features, if it was trained with names."""
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        names = getattr(model, "_feature_names", None)
    return None if names is None else [str(name) for name in names]

"""What every reader of a data file returns, and what they share: the task, and a look whether names fit a model."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from maxmargin.errors import DataError, OptionError, did_you_mean

if TYPE_CHECKING:
    from maxmargin.formats import MultiLabelData

#: Tasks of data with one label an example.
CLASSES = ("binary", "multi-class")


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
    #: Words in columns: all columns of each sentence, as the file has them; of CoNLL-U, the lines of the file; of texts with
    #: entities, the texts; of images, their names.
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
                "table": "the column of the target, which --target names, is",
                "json": "the tags or entities are",
                "images": "the folder 'masks' is",
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


def task_of(path: str, found: str, possible: tuple[str, ...], args: argparse.Namespace, model: Any) -> str:
    """The task: what the model or the user says, if the file can be read so; else what was found in the file."""
    if model is not None and model.task not in possible:
        raise DataError(f"{path} holds {found} data, but the model is for the task {model.task}.")
    if args.task is not None and args.task not in possible:
        raise OptionError(f"{path} holds {found} data, but --task is {args.task}.")
    return str(args.task or (found if model is None else model.task))


def classes_or(labels: list[Any] | None) -> str:
    """The task of data with one label an example."""
    return "binary" if len(set(labels or ())) <= 2 else "multi-class"


def multi_label(path: str, data: MultiLabelData, model: Any, kind: str) -> Dataset:
    """Rows with label sets, in the order of the model's labels if there is one."""
    targets = NamedColumns(data.Y, data.label_names) if model is None else columns_of(model, data, path)
    return Dataset(path, "multi-label", data.X, targets, data.feature_names, kind)


def columns_of(model: Any, data: MultiLabelData, path: str) -> Any:
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
    # Not above: --help imports no estimators.
    from maxmargin.estimators.frames import known_feature_names

    return known_feature_names(model)

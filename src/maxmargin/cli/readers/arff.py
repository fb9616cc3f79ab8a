"""Mulan's ARFF."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from maxmargin.cli.dataset import Dataset, check_feature_names, multi_label, task_of
from maxmargin.errors import DataError, OptionError

if TYPE_CHECKING:
    from maxmargin.formats import MultiLabelData


def read(path: str, args: argparse.Namespace, model: Any) -> Dataset:
    """Read rows with label sets, or with one label of zeros and ones."""
    task = task_of(path, "multi-label", ("multi-label", "binary"), args, model)
    if task == "multi-label":
        return multi_label(path, _read_mulan(path, args, model), model, "arff")
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

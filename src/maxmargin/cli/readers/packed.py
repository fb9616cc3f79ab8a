"""Packed folders, which are mapped and not read."""

from __future__ import annotations

import argparse
from typing import Any

from maxmargin.cli.dataset import CLASSES, Dataset, check_feature_names, task_of
from maxmargin.errors import DataError


def read(path: str, args: argparse.Namespace, model: Any) -> Dataset:
    """Map a packed folder."""
    from maxmargin.packed import read_packed

    data = read_packed(path)
    # One label on each row can be read in three ways; a folder has been packed for one of them.
    possible = CLASSES if data.task in CLASSES else (data.task,)
    task = task_of(path, data.task, possible, args, model)
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

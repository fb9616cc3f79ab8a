"""The text of LIBSVM and SVM-light: classes, label sets or levels to rank by."""

from __future__ import annotations

import argparse
from typing import Any

from maxmargin.cli.dataset import (
    CLASSES,
    Dataset,
    check_feature_names,
    classes_or,
    known_feature_names,
    multi_label,
    task_of,
)


def read(path: str, args: argparse.Namespace, model: Any) -> Dataset:
    """Read rows with labels, or with levels."""
    from maxmargin.formats import read_svmlight

    if model is None and args.task == "ranking":
        rows, task = read_svmlight(path), "ranking"
    elif model is None:
        rows = read_svmlight(path)
        single = rows.one_label_each()
        found = classes_or(rows.classes().y.tolist()) if single else "multi-label"
        task = task_of(path, found, (*CLASSES, "multi-label") if single else ("multi-label",), args, None)
    else:
        task = task_of(path, "multi-label", (*CLASSES, "multi-label", "ranking"), args, model)
        names = known_feature_names(model)
        # The first index of the training file decides for all: a test file need not have that feature.
        zero_based: Any = "auto" if names is None or names[0] not in ("0", "1") else names[0] == "0"
        rows = read_svmlight(path, model.n_features_in_, zero_based)
    if task == "multi-label":
        names = None if model is None else [str(label) for label in model.classes_]
        return multi_label(path, rows.multi_label(names), model, "libsvm")
    check_feature_names(path, rows.feature_names, model)
    if task == "ranking":
        levels, queries = rows.ranking()
        return Dataset(path, task, rows.X, levels, rows.feature_names, "libsvm", more={"qid": queries})
    labels = rows.classes(None if model is None else model.classes_.tolist()).y.tolist()
    return Dataset(path, task, rows.X, labels, rows.feature_names, "libsvm")

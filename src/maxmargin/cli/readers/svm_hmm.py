"""SVM-hmm's text."""

from __future__ import annotations

import argparse
from typing import Any

from maxmargin.cli.dataset import Dataset, check_feature_names, task_of


def read(path: str, args: argparse.Namespace, model: Any) -> Dataset:
    """Read tagged sequences."""
    from maxmargin.formats import read_svm_hmm

    task = task_of(path, "chain", ("chain",), args, model)
    data = read_svm_hmm(path, None if model is None else model.n_features_in_)
    names = [str(index) for index in range(1, int(data.X.shape[1]) + 1)]
    check_feature_names(path, names, model)
    tags = data.tag_lists()
    if model is not None:
        known = set(model.classes_.tolist())
        # SVM-hmm counts tags from 1: a 0 that is no tag is one that is not known.
        tags = [[None if tag == 0 and tag not in known else tag for tag in row] for row in tags]
    return Dataset(path, task, data.sequences(), tags, names, "svm-hmm")

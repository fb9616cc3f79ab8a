"""``.npz``: graphs, sequences or rows."""

from __future__ import annotations

import argparse
from typing import Any

from maxmargin.cli.dataset import CLASSES, Dataset, NamedColumns, classes_or, task_of
from maxmargin.errors import DataError


def read(path: str, args: argparse.Namespace, model: Any) -> Dataset:
    """Read graphs, sequences or rows."""
    from maxmargin.cli.arrays import holds_graphs, read_arrays

    if holds_graphs(path):
        task = task_of(path, "graph", ("graph",), args, model)
        return _read_graphs(path, args, task, model)
    data = read_arrays(path, args.split)
    targets = data.targets
    if targets is None and model is None:
        raise DataError(f"{path} has no labels: the array 'y' is missing.")
    if data.kind == "classes":
        # Rows without labels are for any model of rows.
        unknown = ("multi-label",) if targets is None else ()
        task = task_of(path, classes_or(targets), (*CLASSES, *unknown), args, model)
    else:
        task = task_of(path, data.kind, (data.kind,), args, model)
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

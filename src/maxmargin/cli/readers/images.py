"""Folders of images with masks."""

from __future__ import annotations

import argparse
from typing import Any

from maxmargin.cli.dataset import Dataset, task_of
from maxmargin.errors import DataError


def read(path: str, args: argparse.Namespace, model: Any) -> Dataset:
    """Read images as graphs; the classes of masks are numbers, or names of colours."""
    from maxmargin.formats import read_image_masks

    task = task_of(path, "graph", ("graph",), args, model)
    data, names = read_image_masks(path, 200 if args.superpixels is None else args.superpixels)
    if not data.class_names:
        if model is None:
            raise DataError(f"{path} has no folder 'masks': there is nothing to learn.")
        return Dataset(path, task, data.graphs, None, None, "images", columns=names)
    classes: list[Any] = data.class_names
    if all(name.isdigit() for name in classes):
        classes = [int(name) for name in classes]
    labels = [[classes[k] if k >= 0 else None for k in row.tolist()] for row in data.labels]
    pixels = (classes, data.pixel_counts or [])
    return Dataset(path, task, data.graphs, labels, None, "images", columns=names, pixels=pixels)

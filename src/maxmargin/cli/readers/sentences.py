"""Sentences for a parser, one a line."""

from __future__ import annotations

import argparse
from typing import Any

from maxmargin.cli.dataset import Dataset, task_of
from maxmargin.errors import DataError


def read(path: str, args: argparse.Namespace, model: Any) -> Dataset:
    """Read words without trees."""
    from maxmargin.formats.compression import open_text

    task = task_of(path, "parser", ("parser",), args, model)
    if model is None:
        raise DataError(f"{path} has sentences, but a parser learns from trees.")
    with open_text(path) as stream:
        sentences = [line.split() for line in stream]
    if not sentences:
        raise DataError(f"{path} has no sentences.")
    return Dataset(path, task, sentences, None, None, "sentences")

"""Trees, without traces and functions."""

from __future__ import annotations

import argparse
from typing import Any

from maxmargin.cli.dataset import Dataset, task_of
from maxmargin.errors import DataError


def read(path: str, args: argparse.Namespace, model: Any) -> Dataset:
    """Read trees, and their words."""
    from maxmargin.parsing.treebank import read_trees

    task = task_of(path, "parser", ("parser",), args, model)
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

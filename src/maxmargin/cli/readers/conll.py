"""Words in columns."""

from __future__ import annotations

import argparse
from typing import Any

from maxmargin.cli.dataset import Dataset, task_of
from maxmargin.cli.words import columns_read, text_features
from maxmargin.errors import DataError


def read(path: str, args: argparse.Namespace, model: Any) -> Dataset:
    """Read words, and their tags if there are some."""
    from maxmargin.formats import read_conll

    task = task_of(path, "chain", ("chain",), args, model)
    word, tag = args.word_column or 1, args.tag_column or -1
    if model is None:
        sentences, tags = read_conll(path, args.comment, True, word, tag)
        features = text_features(path, getattr(args, "features", None), len(sentences[0][0]))
        return Dataset(path, task, sentences, tags, None, "conll", parameters={"features": features})
    names = columns_read(path, model)
    columns, _ = read_conll(path, args.comment, tagged=False)
    if args.tag_column is not None:
        sentences, tags = read_conll(path, args.comment, True, word, tag)
    else:
        # There may be a tag in the last column, or none.
        sentences = columns if args.word_column is None else read_conll(path, args.comment, False, word)[0]
        tags = []
        if len(sentences[0][0]) == len(names) + 1:
            tags = [[row[-1] for row in rows] for rows in sentences]
            sentences = [[row[:-1] for row in rows] for rows in sentences]
    found = len(sentences[0][0])
    if found != len(names):
        several = f"{found} column{'s' if found > 1 else ''}{' for words' if tags else ''}"
        raise DataError(f"{path} has {several}; the model reads {', '.join(names)}, and a tag may follow.")
    return Dataset(path, task, sentences, tags or None, None, "conll", columns)

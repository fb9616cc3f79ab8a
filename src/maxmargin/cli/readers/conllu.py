"""CoNLL-U."""

from __future__ import annotations

import argparse
from typing import Any

from maxmargin.cli.dataset import Dataset, task_of
from maxmargin.cli.words import columns_read, text_features
from maxmargin.errors import DataError


def read(path: str, args: argparse.Namespace, model: Any) -> Dataset:
    """Read words, and their tags if there are some."""
    from maxmargin.formats.compression import open_text
    from maxmargin.formats.conllu import NO_VALUE, read_conllu

    task = task_of(path, "chain", ("chain",), args, model)
    word, tag, comment = args.word_column or "FORM", args.tag_column or "UPOS", args.comment or "#"
    sentences, tags = read_conllu(path, comment, True, word, tag)
    without = all(value == NO_VALUE for row in tags for value in row)
    if model is None:
        if without:
            raise DataError(
                f"{path}: the column of tags, {tag}, holds nothing but {NO_VALUE!r}: there is nothing to learn."
            )
        features = text_features(path, getattr(args, "features", None), 1)
        return Dataset(path, task, sentences, tags, None, "conllu", parameters={"features": features})
    names = columns_read(path, model)
    if len(names) != 1:
        raise DataError(f"{path} is CoNLL-U, of which words alone are read, but the model reads {', '.join(names)}.")
    with open_text(path) as stream:
        lines = stream.read().splitlines()
    return Dataset(path, task, sentences, None if without else tags, None, "conllu", lines)

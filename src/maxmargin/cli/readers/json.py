"""JSON lines, or an array: tagged tokens, or texts with entities."""

from __future__ import annotations

import argparse
import os
from typing import Any

from maxmargin.cli.dataset import Dataset, task_of
from maxmargin.cli.words import columns_read, text_features
from maxmargin.errors import DataError


def read(path: str, args: argparse.Namespace, model: Any) -> Dataset:
    """Read words and tags; an object with ``tokens`` of strings says which of the two it is."""
    from maxmargin.formats import read_spacy_json, read_token_json
    from maxmargin.formats.json_lines import read_json_lines

    task = task_of(path, "chain", ("chain",), args, model)
    _, first = next(iter(read_json_lines(path)))
    texts = None
    if isinstance(first, dict) and "tokens" in first and "text" not in first:
        sentences, tags = read_token_json(path, _label_names(args.label_names))
    else:
        texts = read_spacy_json(path)
        sentences, tags = texts.sentences, texts.tags
    if model is None:
        if not tags:
            raise DataError(f"{path} has no tags: there is nothing to learn.")
        features = text_features(path, getattr(args, "features", None), 1)
        return Dataset(path, task, sentences, tags, None, "json", parameters={"features": features})
    names = columns_read(path, model)
    if len(names) != 1:
        raise DataError(f"{path} has words alone, but the model reads {', '.join(names)}.")
    return Dataset(path, task, sentences, tags or None, None, "json", columns=texts)


def _label_names(given: str | None) -> list[str] | None:
    """Names with commas between them, or of a file with one a line."""
    if given is None or not os.path.isfile(given):
        return None if given is None else [name.strip() for name in given.split(",") if name.strip()]
    from maxmargin.formats.compression import open_text

    with open_text(given) as stream:
        return [line.strip() for line in stream if line.strip()]

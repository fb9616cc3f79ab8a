"""Predictions as JSON lines or CSV, by the ending of ``-o``.

Conventions
-----------
JSON lines have an object an example: ``prediction`` (a class, an array of labels, of tags or of a graph's labels, a tree or
null), ``score`` where the model has one number for it, and what the data file gives to recognise it by: ``tokens``, ``text``
with ``entities``, ``words`` or ``image``. Of words, the key is ``tags`` in the place of ``prediction``, so that the lines can
be read as data.

CSV has a line an example, or of sequences and graphs a line a position or node, which counts from 0; of label sets a column of
zeros and ones for each label.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from maxmargin.cli.dataset import Dataset
from maxmargin.cli.exits import to_json

_KINDS = {".jsonl": "json", ".ndjson": "json", ".csv": "csv", ".tsv": "tsv"}


def output_kind(path: str | None) -> str | None:
    """What the ending asks for: "json", "csv" or "tsv"; None is the text of `predict`."""
    return None if path is None else _KINDS.get(PurePath(path).suffix.lower())


def predictions_text(kind: str, model: Any, data: Dataset, found: dict[str, Any]) -> str:
    """The file of predictions.

    Parameters
    ----------
    kind : str
        "json", "csv" or "tsv".
    model : estimator
    data : Dataset
    found : dict
        ``predictions`` and, of some tasks, ``scores``.
    """
    if kind == "json":
        return "".join(to_json(one) + "\n" for one in _objects(model, data, found))
    stream = io.StringIO()
    writer = csv.writer(stream, delimiter="\t" if kind == "tsv" else ",", lineterminator="\n")
    writer.writerows(_rows(model, data, found["predictions"]))
    return stream.getvalue()


def _objects(model: Any, data: Dataset, found: dict[str, Any]) -> Iterator[dict[str, Any]]:
    predictions = found["predictions"]
    scores = found.get("scores")
    several = scores is not None and getattr(scores, "ndim", 1) == 2
    if data.format == "json" and data.columns is not None:
        for text, spans in zip(data.columns.texts, data.columns.entities(predictions), strict=True):
            yield {"text": text, "entities": spans}
        return
    for m, prediction in enumerate(predictions):
        one: dict[str, Any] = {}
        if data.format in ("conll", "conllu", "json"):
            one["tokens"] = [position[0] for position in data.inputs[m]]
        elif data.task == "parser":
            one["words"] = list(data.inputs[m])
        elif data.format == "images":
            one["image"] = data.columns[m]
        one["tags" if "tokens" in one else "prediction"] = prediction
        if several:
            one["scores"] = dict(zip(map(str, model.classes_.tolist()), scores[m].tolist(), strict=True))  # type: ignore[index]
        elif scores is not None:
            one["score"] = scores[m]
        yield one


def _rows(model: Any, data: Dataset, predictions: list[Any]) -> Iterator[list[Any]]:
    if data.task == "multi-label":
        names = [str(label) for label in model.classes_]
        yield names
        for row in predictions:
            has = set(map(str, row))
            yield [int(name in has) for name in names]
    elif data.task in ("chain", "graph"):
        words = data.format in ("conll", "conllu", "json")
        whole, part = ("sequence", "position") if data.task == "chain" else ("graph", "node")
        yield [whole, part, *(["word"] if words else []), "prediction"]
        for m, row in enumerate(predictions):
            name = data.columns[m] if data.format == "images" else m
            for t, label in enumerate(row):
                yield [name, t, *([data.inputs[m][t][0]] if words else []), label]
    else:
        yield ["score" if data.task == "ranking" else "prediction"]
        for one in predictions:
            yield ["" if one is None else one]

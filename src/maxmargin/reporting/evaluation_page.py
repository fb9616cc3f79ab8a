"""How good predictions are, as one page of HTML with pictures that needs nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from maxmargin.reporting.labels import LabelReport, plot_confusion, plot_label_scores
from maxmargin.reporting.page import drawing, page, svg_element, table

#: Rows of the table of confusions, at most.
_MOST_CONFUSIONS = 100


def evaluation_page(
    title: str, facts: Mapping[str, Any], metrics: Mapping[str, float], labels: LabelReport | None, chunks: Any = None
) -> str:
    """The page.

    Parameters
    ----------
    title : str
    facts : dict
        What was evaluated, in words.
    metrics : dict of str to float
        Figures by what they are called.
    labels : LabelReport or None
        Those of each label, if there are labels.
    chunks : ChunkScores, optional
        Those of each type of chunk.
    """
    body = [f"<header><h1>{escape(title)}</h1>"]
    body += [f"<p>{escape(name)}: <strong>{escape(str(value))}</strong></p>" for name, value in facts.items()]
    body.append("</header>")
    body.append(
        table(
            "Figures", ["figure", "value"], [[(escape(name), name), _number(value)] for name, value in metrics.items()]
        )
    )
    if chunks is not None:
        rows = [
            [(escape(kind), kind), *(_number(getattr(one, name)) for name in ("precision", "recall", "f1")),
             *(_count(getattr(one, name)) for name in ("n_true", "n_predicted", "n_right"))]
            for kind, one in chunks.by_type.items()
        ]  # fmt: skip
        body.append(table("Chunks, as conlleval counts them", ["type", *_COLUMNS], rows))
    if labels is not None:
        body += _of_labels(labels)
    return page(title, body)


_COLUMNS = ["precision", "recall", "F1", "true", "predicted", "right"]


def _of_labels(labels: LabelReport) -> list[str]:
    columns = zip(labels.precision.tolist(), labels.recall.tolist(), labels.f1.tolist(), labels.n_true.tolist(),
                  labels.n_predicted.tolist(), labels.n_right.tolist(), strict=True)  # fmt: skip
    rows = [
        [(escape(str(label)), str(label)), *map(_number, row[:3]), *map(_count, row[3:])]
        for label, row in zip(labels.labels, columns, strict=True)
    ]
    means = labels.averages()
    rows += [
        [
            (f"<em>{name} mean</em>", ""),
            *(_number(mean[figure]) for figure in ("precision", "recall", "f1")),
            *[("", None)] * 3,
        ]
        for name, mean in means.items()
    ]
    parts = [_picture(plot_label_scores, labels, "scores", "Precision, recall and F1 of the most frequent labels.")]
    parts.append(table("Each label", ["label", *_COLUMNS], rows))
    if labels.confusion is not None and len(labels.labels) > 1:
        words = "What was predicted of each true label: shares by colour, and the numbers of items."
        parts.append(_picture(plot_confusion, labels, "confusion", words))
        found = labels.confusions()
        mistakes = [
            [(escape(str(one)), str(one)), (escape(str(other)), str(other)), _count(n)] for one, other, n in found
        ]
        if mistakes:
            caption = "Mistakes, the most frequent first"
            parts.append(table(caption, ["true", "predicted", "items"], mistakes[:_MOST_CONFUSIONS]))
    return parts


def _picture(draw: Any, labels: LabelReport, name: str, caption: str) -> str:
    with drawing(name):
        import matplotlib.pyplot as plt

        axis = draw(labels)
        svg = svg_element(axis.figure, name, caption)
        plt.close(axis.figure)
    return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>"


def _number(value: float) -> tuple[str, float]:
    return f"{value:.4f}", float(value)


def _count(value: int) -> tuple[str, int]:
    return f"{value:,}", int(value)

"""How good predictions are, in the figures that the literature uses."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from maxmargin.cli.dataset import Dataset
from maxmargin.errors import DataError
from maxmargin.reporting.chunks import ChunkScores, are_chunk_tags, chunk_scores
from maxmargin.reporting.labels import LabelReport, classification_report, compare_label_sets, compare_labels

NAMES = {
    "accuracy": "accuracy",
    "hamming_loss": "Hamming loss",
    "fractional_loss": "Hamming loss, open labels as half",
    "subset_accuracy": "subset accuracy",
    "micro_f1": "micro-F1",
    "macro_f1": "macro-F1",
    "precision": "precision",
    "recall": "recall",
    "f1": "F1",
    "roc_area": "area under the ROC curve",
    "pair_accuracy": "pairs in the right order",
    "node_accuracy": "node accuracy",
    "pixel_accuracy": "pixel accuracy",
    "tag_accuracy": "tag accuracy",
    "sequence_accuracy": "sequence accuracy",
    "chunk_precision": "chunk precision",
    "chunk_recall": "chunk recall",
    "chunk_f1": "chunk F1",
    "bracket_precision": "bracket precision",
    "bracket_recall": "bracket recall",
    "bracket_f1": "bracket F1",
    "exact_match": "exact match",
    "unparsed": "sentences without a parse",
    "open_labels": "labels left open by the relaxation",
}


#: So many labels, and so many mistakes, are printed at most; ``--json`` and ``--html`` have more.
_LABELS, _MISTAKES = 30, 10


@dataclass(frozen=True)
class Evaluation:
    """How good predictions of a data set are, for ``evaluate`` and ``train --test`` alike."""

    path: str
    n_examples: int
    task: str
    inference: str
    metrics: dict[str, float]
    #: The figures of each type of chunk, if the tags are those of chunks.
    chunks: ChunkScores | None
    #: The figures of each label, if there are labels: not of trees and rankings.
    labels: LabelReport | None = None

    def report(self) -> dict[str, Any]:
        """The figures, for JSON."""
        found = {"task": self.task, "data": self.path, "n_examples": self.n_examples, "inference": self.inference}
        found |= self.metrics
        if self.chunks is not None:
            found["chunks"] = {kind: _figures(one) for kind, one in self.chunks.by_type.items()}
        return found if self.labels is None else found | {"by_label": self.labels.to_dict()}

    def lines(self) -> list[str]:
        """The figures, one a line, and below them those of each label."""
        width = max(len(NAMES[key]) for key in self.metrics)
        lines = [f"{NAMES[key]:<{width}}  {value:.4f}" for key, value in self.metrics.items()]
        chunks = [] if self.chunks is None else str(self.chunks).splitlines()
        return [*lines, *chunks, *self._label_lines()]

    def _label_lines(self) -> list[str]:
        """The figures of each label, and the most frequent mistakes."""
        if self.labels is None:
            return []
        mistakes = self.labels.confusions()[:_MISTAKES]
        lines = ["", *self.labels.lines(_LABELS)]
        if mistakes:
            width = max(len(str(one)) for one, _, _ in mistakes)
            lines += ["", "most frequent mistakes: true, predicted, how often"]
            lines += [f"{one!s:<{width}}  {other!s}  {count}" for one, other, count in mistakes]
        return lines

    def page(self, model: str) -> str:
        """The figures as a page of HTML with pictures."""
        from maxmargin.reporting.evaluation_page import evaluation_page

        facts = {
            "Model": f"{model} ({self.task}; inference: {self.inference})",
            "Data": f"{self.path}, {self.n_examples} examples",
        }
        metrics = {NAMES[key]: value for key, value in self.metrics.items()}
        return evaluation_page(f"{model} on {self.path}", facts, metrics, self.labels, self.chunks)


def _figures(score: Any) -> dict[str, float]:
    names = ("precision", "recall", "f1", "n_true", "n_predicted", "n_right")
    return {name: getattr(score, name) for name in names}


def evaluate_model(model: Any, data: Dataset) -> Evaluation:
    """Predict a data set and compare with its labels."""
    metrics, chunks, labels = _compare(model, data)
    return Evaluation(data.path, len(data), model.task, model.inference_, metrics, chunks, labels)


def _compare(model: Any, data: Dataset) -> tuple[dict[str, float], ChunkScores | None, LabelReport | None]:
    targets = data.labelled().targets
    if data.task == "ranking":
        return {"pair_accuracy": model.score(data.inputs, targets, **data.more)}, None, None
    if data.task in ("binary", "multi-class"):
        binary = data.task == "binary"
        metrics = (
            binary_metrics(model, data.inputs, targets) if binary else {"accuracy": model.score(data.inputs, targets)}
        )
        return metrics, None, classification_report(model, data.inputs, targets)
    if data.task == "parser":
        trees = [found[0] if found else None for found, _ in model._parse(data.inputs)]
        return parsing_metrics(targets, trees), None, None
    problem, found = model._predict(data.inputs)
    chunks = None
    if data.format == "packed" and data.task == "chain":
        targets = [row.tolist() for row in targets]
    if data.task == "multi-label":
        predicted = found.labels.reshape(-1, len(model.classes_)) == 1
        truth = np.asarray(targets) == 1
        if truth.shape != predicted.shape:
            raise DataError(f"{data.path} has labels of shape {truth.shape}; the model predicts {predicted.shape}.")
        metrics, report = (
            multi_label_metrics(truth, predicted),
            compare_label_sets(truth, predicted, model.classes_.tolist()),
        )
        if found.ambiguous is not None and found.ambiguous.any():
            halves = np.where(found.ambiguous.reshape(truth.shape), 0.5, truth != predicted)
            metrics["fractional_loss"] = float(halves.mean())
    else:
        labels = model._present(found.labels, problem)
        metrics = labeling_metrics(data.task, targets, labels)
        flat = list(chain.from_iterable(row.tolist() for row in labels))
        report = compare_labels(list(chain.from_iterable(targets)), flat)
        if data.pixels is not None:
            metrics |= pixel_metrics(labels, *data.pixels)
        if data.task == "chain" and are_chunk_tags([*model.classes_.tolist(), *chain.from_iterable(targets)]):
            chunks = chunk_scores(targets, [row.tolist() for row in labels])
            overall = chunks.overall
            metrics |= {
                "chunk_precision": overall.precision, "chunk_recall": overall.recall, "chunk_f1": overall.f1
            }  # fmt: skip
    if found.ambiguous is not None:
        metrics["open_labels"] = float(found.ambiguous.mean())
    return metrics, chunks, report


def binary_metrics(model: Any, X: Any, targets: Any) -> dict[str, float]:
    """Accuracy; and, if both classes occur, precision, recall and F1 of the second one, and the area under the ROC curve."""
    from maxmargin.measures import PairMeasure

    metrics = {"accuracy": model.score(X, targets)}
    positive = np.array([one == model.classes_[1] for one in targets])
    if 0 < positive.sum() < len(positive):
        scores = model.decision_function(X)
        right = float((positive & (scores > 0)).sum())
        predicted = max(int((scores > 0).sum()), 1)
        metrics |= {
            "precision": right / predicted, "recall": right / positive.sum(),
            "f1": 2.0 * right / (positive.sum() + (scores > 0).sum()),
            "roc_area": 1.0 - PairMeasure(positive.astype(np.int64)).loss(scores),
        }  # fmt: skip
    return metrics


def labeling_metrics(task: str, truth: list[Any], predicted: list[Any]) -> dict[str, float]:
    """Share of the known labels (not None) that are right; of chains, also that of sequences all right."""
    right = [
        [one == other for one, other in zip(row, guess.tolist(), strict=True) if one is not None]
        for row, guess in zip(truth, predicted, strict=True)
    ]
    known = sum(map(len, right))
    if known == 0:
        raise DataError("No label of this data is known: there is nothing to compare with.")
    share = sum(map(sum, right)) / known
    if task == "graph":
        return {"node_accuracy": share}
    return {"tag_accuracy": share, "sequence_accuracy": sum(map(all, right)) / len(right)}


def pixel_metrics(predicted: list[Any], classes: list[Any], counts: list[Any]) -> dict[str, float]:
    """Share of the pixels, of those that have a class, whose class is the one predicted for their superpixel."""
    column = {name: k for k, name in enumerate(classes)}
    pixels = np.concatenate(counts)
    if not pixels.sum() > 0:
        return {}
    # Columns of a data set are its own classes, which need not be all that a model knows.
    place = np.array([column.get(label, -1) for row in predicted for label in row.tolist()])
    known = np.flatnonzero(place >= 0)
    return {"pixel_accuracy": float(pixels[known, place[known]].sum() / pixels.sum())}


def parsing_metrics(truth: list[Any], predicted: list[Any]) -> dict[str, float]:
    """EVALB's figures, and the share of the sentences without a tree, which have no brackets."""
    from maxmargin.parsing.brackets import bracket_scores

    scores = bracket_scores(truth, predicted)
    return {
        "bracket_precision": scores.precision,
        "bracket_recall": scores.recall,
        "bracket_f1": scores.f1,
        "exact_match": scores.exact_match,
        "tag_accuracy": scores.tag_accuracy,
        "unparsed": sum(tree is None for tree in predicted) / len(predicted),
    }


def multi_label_metrics(truth: Any, predicted: Any) -> dict[str, float]:
    """Hamming loss, subset accuracy and F1; a label neither in the truth nor predicted has an F1 of 0."""
    both = (truth & predicted).sum(axis=0).astype(np.float64)
    either = truth.sum(axis=0) + predicted.sum(axis=0)
    by_label = 2 * both / np.maximum(either, 1)
    return {
        "hamming_loss": float((truth != predicted).mean()),
        "subset_accuracy": float((truth == predicted).all(axis=1).mean()),
        "micro_f1": float(2 * both.sum() / max(either.sum(), 1)),
        "macro_f1": float(by_label.mean()),
    }

"""How good predictions are, in the figures that the literature uses."""

from __future__ import annotations

from typing import Any

import numpy as np

from maxmargin.cli.data import Dataset

NAMES = {
    "hamming_loss": "Hamming loss",
    "subset_accuracy": "subset accuracy",
    "micro_f1": "micro-F1",
    "macro_f1": "macro-F1",
    "node_accuracy": "node accuracy",
}


def evaluate_model(model: Any, data: Dataset) -> dict[str, float]:
    """Predict a data set and compare with its labels."""
    if data.task == "graph":
        return {"node_accuracy": model.score(data.inputs, data.targets)}
    truth = np.asarray(data.targets) == 1
    return multi_label_metrics(truth, _indicator(model, data.inputs))


def _indicator(model: Any, X: Any) -> Any:
    found = model._predict(X)[1].labels
    return found.reshape(-1, len(model.classes_)) == 1


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


def describe(metrics: dict[str, float]) -> str:
    """One line of figures."""
    return ", ".join(
        f"{NAMES[key]} {100 * value:.2f} %" if key != "micro_f1" and key != "macro_f1" else f"{NAMES[key]} {value:.4f}"
        for key, value in metrics.items()
    )

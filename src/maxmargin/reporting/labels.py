"""Precision, recall and F1 of each class, tag or label, and what is mistaken for what.

Conventions
-----------
*Items* are the examples of a classifier, the positions of sequences, the nodes of graphs; of label sets, an item is a pair of
an example and a label. With the numbers of items that truly have a label, that are predicted to, and both,

    precision = n_right / n_predicted,   recall = n_right / n_true,   F1 = 2 n_right / (n_true + n_predicted)

and 0 where there is nothing to divide by. The *macro* mean is that over labels, the *weighted* mean counts a label as often as
it is true, and the *micro* figures are those of all labels together, which are the accuracy where an item has exactly one
label. Items whose truth is not known (None) are left out. Labels of items are those that occur, sorted where they can
be compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.errors import DataError, OptionError
from maxmargin.reporting.plots import require_matplotlib

#: Names of the figures of a label.
FIGURES = ("precision", "recall", "f1", "n_true", "n_predicted", "n_right")


@dataclass(frozen=True, eq=False)
class LabelReport:
    """Figures of each label; prints as a table.

    Attributes
    ----------
    labels : list
        The classes, tags or labels.
    n_true, n_predicted, n_right : int array (K,)
        How many items have each of them, are predicted to, and both.
    confusion : int array (K, K) or None
        How many items of each label (rows) were predicted as each (columns); None for label sets.
    n_items : int
        Items whose truth is known; of label sets, the number of examples.
    accuracy : float
        Share of the items that are right; of label sets, of the pairs of an example and a label.
    """

    labels: list[Any]
    n_true: NDArray[np.int64]
    n_predicted: NDArray[np.int64]
    n_right: NDArray[np.int64]
    confusion: NDArray[np.int64] | None
    n_items: int
    accuracy: float

    @property
    def precision(self) -> NDArray[np.float64]:
        """Share of the predictions of each label that are right, (K,)."""
        return self.n_right / np.maximum(self.n_predicted, 1)

    @property
    def recall(self) -> NDArray[np.float64]:
        """Share of the items of each label that are found, (K,)."""
        return self.n_right / np.maximum(self.n_true, 1)

    @property
    def f1(self) -> NDArray[np.float64]:
        """Harmonic mean of precision and recall of each label, (K,)."""
        return np.asarray(2.0 * self.n_right / np.maximum(self.n_true + self.n_predicted, 1), np.float64)

    def averages(self) -> dict[str, dict[str, float]]:
        """The micro, macro and weighted means of precision, recall and F1."""
        true, predicted, right = (int(one.sum()) for one in (self.n_true, self.n_predicted, self.n_right))
        micro = {
            "precision": right / max(predicted, 1), "recall": right / max(true, 1), "f1": 2 * right / max(true + predicted, 1)
        }  # fmt: skip
        named = {"precision": self.precision, "recall": self.recall, "f1": self.f1}
        macro = {name: float(values.mean()) for name, values in named.items()}
        weighted = {name: float(values @ self.n_true) / max(true, 1) for name, values in named.items()}
        return {"micro": micro, "macro": macro, "weighted": weighted}

    def confusions(self) -> list[tuple[Any, Any, int]]:
        """What was mistaken for what: (truth, predicted, how often), the most frequent first; of label sets, nothing."""
        if self.confusion is None:
            return []
        wrong = self.confusion - np.diag(np.diag(self.confusion))
        rows, columns = np.nonzero(wrong)
        counts = wrong[rows, columns]
        order = np.argsort(-counts, kind="stable")
        return [(self.labels[rows[k]], self.labels[columns[k]], int(counts[k])) for k in order]

    def to_dict(self) -> dict[str, Any]:
        """The figures, for JSON: by label, their means, and what was mistaken for what."""
        columns = zip(*(getattr(self, name).tolist() for name in FIGURES), strict=True)
        found = {
            str(label): dict(zip(FIGURES, row, strict=True)) for label, row in zip(self.labels, columns, strict=True)
        }
        return {"labels": found, "averages": self.averages(), "confusions": [list(one) for one in self.confusions()]}

    def to_frame(self) -> Any:
        """The figures as a data frame of pandas, a row a label."""
        try:
            import pandas as pd
        except ImportError:
            raise OptionError("A data frame needs pandas, which is not installed: pip install pandas.") from None
        return pd.DataFrame({name: getattr(self, name) for name in FIGURES}, index=pd.Index(self.labels, name="label"))

    def lines(self, most: int | None = None) -> list[str]:
        """The table, a line a label, the most frequent first, and the means below.

        Parameters
        ----------
        most : int, optional
            At most so many labels.
        """
        order = np.argsort(-self.n_true, kind="stable")
        shown = order if most is None else order[:most]
        width = max([len(str(self.labels[k])) for k in shown] + [len("weighted mean")])
        lines = [f"{'':<{width}}  precision  recall      F1     true  predicted"]
        precision, recall, f1 = self.precision, self.recall, self.f1
        for k in shown:
            lines.append(
                f"{self.labels[k]!s:<{width}}  {precision[k]:>9.4f}  {recall[k]:.4f}  {f1[k]:.4f}  {self.n_true[k]:>7}  "
                f"{self.n_predicted[k]:>9}"
            )
        if len(shown) < len(order):
            lines.append(f"... {len(order) - len(shown)} more")
        for name, mean in self.averages().items():
            lines.append(
                f"{name + ' mean':<{width}}  {mean['precision']:>9.4f}  {mean['recall']:.4f}  {mean['f1']:.4f}"
            )
        return lines

    def __str__(self) -> str:
        return "\n".join(self.lines())


def compare_labels(truth: Sequence[Any], predicted: Sequence[Any], labels: Sequence[Any] = ()) -> LabelReport:
    """Compare items with one label each.

    Parameters
    ----------
    truth, predicted : sequences of labels
        The label of each item; None in `truth` where it is not known.
    labels : sequence, optional
        More labels to list, whether or not they occur; the macro mean counts them, too.

    Returns
    -------
    LabelReport
    """
    if len(truth) != len(predicted):
        raise DataError(f"There are {len(truth)} labels, but {len(predicted)} predictions.")
    pairs = [(one, other) for one, other in zip(truth, predicted, strict=True) if one is not None]
    if not pairs:
        raise DataError("No label of this data is known: there is nothing to compare with.")
    known = _sorted({*labels, *(one for one, _ in pairs), *(other for _, other in pairs)})
    number = {label: k for k, label in enumerate(known)}
    rows = np.array([number[one] for one, _ in pairs], np.int64)
    columns = np.array([number[other] for _, other in pairs], np.int64)
    K = len(known)
    confusion = np.bincount(rows * K + columns, minlength=K * K).reshape(K, K)
    right = np.diag(confusion).copy()
    return LabelReport(
        known,
        confusion.sum(axis=1),
        confusion.sum(axis=0),
        right,
        confusion,
        len(pairs),
        float(right.sum() / len(pairs)),
    )


def compare_label_sets(truth: Any, predicted: Any, labels: Sequence[Any]) -> LabelReport:
    """Compare label sets.

    Parameters
    ----------
    truth, predicted : arrays (n, L)
        Zeros and ones.
    labels : sequence (L,)
        The names of the columns.

    Returns
    -------
    LabelReport
    """
    true, found = np.asarray(truth) == 1, np.asarray(predicted) == 1
    if true.shape != found.shape or true.ndim != 2 or true.shape[1] != len(labels):
        raise DataError(
            f"There are labels of shape {true.shape} and predictions of shape {found.shape}; expected both (n, {len(labels)})."
        )
    n_true, n_found, n_right = (one.sum(axis=0).astype(np.int64) for one in (true, found, true & found))
    return LabelReport(list(labels), n_true, n_found, n_right, None, len(true), float((true == found).mean()))


def classification_report(model: Any, X: Any, y: Any) -> LabelReport:
    """Predict with a model, and compare with the truth label by label.

    Parameters
    ----------
    model : estimator
        A classifier, or one of label sets, sequences or graphs.
    X : inputs
        As `model.predict` takes them.
    y : targets
        As `model.score` takes them; tags and labels of nodes may be None, where they are not known.

    Returns
    -------
    LabelReport
    """
    task = getattr(model, "task", None)
    if task in ("binary", "multi-class"):
        return compare_labels(_plain(y), _plain(model.predict(X)))
    if task == "multi-label":
        return compare_label_sets(y, _indicator(model, model.predict(X)), model.classes_.tolist())
    if task in ("chain", "graph"):
        predicted = [_plain(row) for row in model.predict(X)]
        truth = [_plain(row) for row in y]
        if [len(row) for row in truth] != [len(row) for row in predicted]:
            raise DataError("The labels are not of the lengths of the examples that they are for.")
        return compare_labels(list(chain.from_iterable(truth)), list(chain.from_iterable(predicted)))
    raise OptionError(f"A {type(model).__name__} predicts no labels that could be compared one by one.")


def _plain(values: Any) -> list[Any]:
    return list(values.tolist() if hasattr(values, "tolist") else values)


def _indicator(model: Any, predicted: Any) -> Any:
    if not isinstance(predicted, list):
        return predicted
    place = {label: k for k, label in enumerate(model.classes_.tolist())}
    made = np.zeros((len(predicted), len(place)), np.int8)
    for m, labels in enumerate(predicted):
        made[m, [place[label] for label in labels]] = 1
    return made


def _sorted(labels: set[Any]) -> list[Any]:
    try:
        return sorted(labels)
    except TypeError:
        return sorted(labels, key=str)


# --------------------------------------------------------------------------------------------------------------------
# Pictures


def plot_confusion(report: LabelReport, ax: Any = None, normalize: bool = True, most: int = 30) -> Any:
    """Draw what was predicted of each true label.

    Parameters
    ----------
    report : LabelReport
        Of items with one label each.
    ax : matplotlib Axes, optional
        By default a figure is made.
    normalize : bool
        Colours are shares of the true label, or else counts.
    most : int
        At most so many labels, the most frequent ones.

    Returns
    -------
    matplotlib Axes
    """
    if report.confusion is None:
        raise OptionError(
            "Label sets have no confusion matrix: an example may have several labels. Use plot_label_scores."
        )
    require_matplotlib()
    chosen = np.sort(np.argsort(-(report.n_true + report.n_predicted), kind="stable")[:most])
    counts = report.confusion[np.ix_(chosen, chosen)]
    shown = counts / np.maximum(report.n_true[chosen], 1)[:, None] if normalize else counts.astype(np.float64)
    K = len(chosen)
    if ax is None:
        import matplotlib.pyplot as plt

        ax = plt.subplots(figsize=(2.2 + 0.32 * K, 1.6 + 0.32 * K), layout="constrained")[1]
    mesh = ax.pcolormesh(
        shown, cmap="Blues", vmin=0.0, vmax=1.0 if normalize else None, edgecolors="face", linewidth=0.3
    )
    names = [str(report.labels[k]) for k in chosen]
    at = np.arange(K) + 0.5
    ax.set_xticks(at, names, rotation=90 if max(map(len, names)) > 2 else 0, fontsize="small")
    ax.set_yticks(at, names, fontsize="small")
    ax.set_xlim(0, K)
    ax.set_ylim(K, 0)
    ax.set_xlabel("predicted")
    ax.set_ylabel("true")
    ax.set_aspect("equal")
    if K <= 15:
        middle = shown.max() / 2
        for i, j in zip(*np.nonzero(counts), strict=True):
            ax.text(j + 0.5, i + 0.5, str(counts[i, j]), ha="center", va="center", fontsize="x-small",
                    color="white" if shown[i, j] > middle else "#222222")  # fmt: skip
    ax.figure.colorbar(mesh, ax=ax, shrink=0.7, label="share of the true label" if normalize else "items")
    return ax


def plot_label_scores(report: LabelReport, ax: Any = None, most: int = 30) -> Any:
    """Draw precision, recall and F1 of each label, the most frequent on top.

    Parameters
    ----------
    report : LabelReport
    ax : matplotlib Axes, optional
        By default a figure is made.
    most : int
        At most so many labels, the most frequent ones.

    Returns
    -------
    matplotlib Axes
    """
    require_matplotlib()
    order = np.argsort(-report.n_true, kind="stable")[:most]
    if ax is None:
        import matplotlib.pyplot as plt

        ax = plt.subplots(figsize=(6.5, 1.2 + 0.3 * len(order)), layout="constrained")[1]
    at = np.arange(len(order))
    ax.barh(at, report.f1[order], color="#56b4e9", height=0.7, label="F1")
    ax.plot(report.precision[order], at, "o", color="#d55e00", markersize=5, label="precision")
    ax.plot(report.recall[order], at, "D", color="#009e73", markersize=4, label="recall")
    ax.set_yticks(at, [f"{report.labels[k]} ({report.n_true[k]})" for k in order], fontsize="small")
    ax.set_ylim(len(order) - 0.4, -0.6)
    ax.set_xlim(0, 1.02)
    ax.grid(True, axis="x", alpha=0.3)
    ax.legend(frameon=False, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return ax

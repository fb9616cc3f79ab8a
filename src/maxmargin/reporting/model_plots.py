"""Pictures of what a model has learned: which labels go together, and which tags follow each other."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.errors import DataError, OptionError
from maxmargin.reporting.plots import require_matplotlib

#: More names than this on an axis cannot be read.
_MOST_NAMES = 60
_POSITIVE, _NEGATIVE = "C0", "C3"


def plot_interactions(model: Any, ax: Any = None) -> Any:
    """Draw the weights of pairs of labels as a heat map.

    Parameters
    ----------
    model : fitted MultiLabelSVM, ChainSVM or GraphSVM
        Of a `MultiLabelSVM` the weight of both labels being on; pairs without a weight are grey. Of a `ChainSVM` the weight of a
        tag (row) followed by another (column). Of a `GraphSVM` with ``edge_weights="full"`` the weight of the first edge feature,
        by the classes of an edge's first (row) and second node (column).
    ax : matplotlib Axes, optional
        By default a figure is made that is as large as the labels need.

    Returns
    -------
    matplotlib Axes
    """
    table, what = _table(model)
    names = [str(name) for name in model.classes_]
    if ax is None:
        require_matplotlib()
        import matplotlib.pyplot as plt

        side = min(2.5 + 0.3 * len(names), 11.0)
        ax = plt.subplots(figsize=(side + 1.0, side), layout="constrained")[1]
    largest = float(np.nanmax(np.abs(table))) if np.isfinite(table).any() else 0.0
    ax.set_facecolor("0.85")
    image = ax.imshow(table, cmap="RdBu", vmin=-(largest or 1.0), vmax=largest or 1.0)
    if len(names) <= _MOST_NAMES:
        ax.set_xticks(range(len(names)), names, rotation=90)
        ax.set_yticks(range(len(names)), names)
    ax.set_title(what, fontsize="medium")
    ax.figure.colorbar(image, ax=ax, shrink=0.8, label="weight")
    return ax


def _table(model: Any) -> tuple[NDArray[np.float64], str]:
    if hasattr(model, "edges_") and hasattr(model, "edge_coef_"):
        n = len(model.classes_)
        table = np.full((n, n), np.nan)
        for (i, j), weight in zip(model.edges_, model.edge_coef_, strict=True):
            table[i, j] = table[j, i] = weight
        return table, "labels that go together (blue), and that exclude each other (red)"
    if hasattr(model, "transition_coef_"):
        table = np.array(model.transition_coef_, np.float64)
        if getattr(model, "forbidden_", None) is not None:
            table[model.forbidden_] = np.nan
        return table, "tag (row) followed by a tag (column)"
    edges = getattr(model, "edge_coef_", None)
    if edges is not None and np.ndim(edges) == 3:
        return np.array(edges[:, :, 0], np.float64), "classes of neighbours"
    raise DataError(
        f"{type(model).__name__} has no weights of pairs of labels to draw; expected a fitted MultiLabelSVM, ChainSVM, or "
        'GraphSVM with edge_weights="full".'
    )


def plot_transitions(model: Any, ax: Any = None, strongest: int = 2) -> Any:
    """Draw the tags of a tagger as a diagram, with an arrow for each of the strongest transitions.

    Blue arrows are transitions that are sought, red ones those that are avoided; the wider, the stronger. Circles are filled by how
    much a sequence likes to begin with the tag.

    Parameters
    ----------
    model : fitted ChainSVM
        With ``order=1`` or 2; the weights of pairs of tags are drawn.
    ax : matplotlib Axes, optional
        By default a figure is made.
    strongest : int
        How many transitions from each tag are drawn, those of largest absolute weight.

    Returns
    -------
    matplotlib Axes
    """
    if not hasattr(model, "transition_coef_"):
        raise DataError(f"{type(model).__name__} has no transitions to draw; expected a fitted ChainSVM.")
    if isinstance(strongest, bool) or not isinstance(strongest, int) or strongest < 1:
        raise OptionError(f"strongest={strongest!r} is not possible; it must be a whole number, at least 1.")
    weights = np.array(model.transition_coef_, np.float64)
    names = [str(name) for name in model.classes_]
    if ax is None:
        require_matplotlib()
        import matplotlib.pyplot as plt

        ax = plt.subplots(figsize=(6.5, 6.5), layout="constrained")[1]
    angle = np.pi / 2 - 2 * np.pi * np.arange(len(names)) / len(names)
    places = np.column_stack([np.cos(angle), np.sin(angle)])
    largest = float(np.abs(weights).max()) or 1.0
    for tag, row in enumerate(weights):
        for other in np.argsort(-np.abs(row), kind="stable")[:strongest].tolist():
            if row[other] != 0.0:
                _arrow(ax, places[tag], places[other], row[other] / largest)
    starts = np.array(getattr(model, "start_coef_", np.zeros(len(names))), np.float64)
    shade = (starts - starts.min()) / (np.ptp(starts) or 1.0)
    for (x, y), name, dark in zip(places, names, shade, strict=True):
        ax.text(
            x, y, name, ha="center", va="center", zorder=3, parse_math=False,
            bbox={"boxstyle": "circle,pad=0.4", "facecolor": (1.0, 1.0 - 0.25 * dark, 1.0 - 0.7 * dark), "edgecolor": "0.4"},
        )  # fmt: skip
    ax.set_xlim(-1.35, 1.35)
    ax.set_ylim(-1.35, 1.35)
    ax.set_aspect("equal")
    ax.set_axis_off()
    return ax


def _arrow(ax: Any, begin: NDArray[np.float64], end: NDArray[np.float64], weight: float) -> None:
    """An arrow that is as wide as its weight, from -1 to 1; back to the tag itself, on the outside of the circle."""
    from matplotlib.patches import FancyArrowPatch

    itself = bool((begin == end).all())
    if itself:
        aside = 0.12 * np.array([-begin[1], begin[0]])
        begin, end = 1.06 * begin + aside, 1.06 * end - aside
    patch = FancyArrowPatch(
        tuple(begin), tuple(end), connectionstyle=f"arc3,rad={-1.6 if itself else 0.18}", arrowstyle="-|>",
        mutation_scale=10 + 8 * abs(weight), linewidth=0.5 + 3.5 * abs(weight), alpha=0.35 + 0.6 * abs(weight),
        color=_POSITIVE if weight > 0 else _NEGATIVE, shrinkA=6 if itself else 24, shrinkB=6 if itself else 24, zorder=2,
    )  # fmt: skip
    ax.add_patch(patch)

"""Pictures of predictions: pictures that were segmented, and what abstaining is worth."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from maxmargin.errors import DataError
from maxmargin.reporting.abstention import risk_coverage
from maxmargin.reporting.plots import require_matplotlib


def plot_risk_coverage(loss: ArrayLike, confidence: ArrayLike, ax: Any = None, label: str | None = None) -> Any:
    """Draw the risk of the surest predictions against the share of the examples that is predicted.

    Parameters
    ----------
    loss : array (n,)
        Loss of each prediction: 0 and 1 for right and wrong ones, or any other.
    confidence : array (n,)
        How sure each prediction is.
    ax : matplotlib Axes, optional
        By default a figure is made; several calls on the same axes compare models.
    label : str, optional
        Name of the line.

    Returns
    -------
    matplotlib Axes
    """
    found = risk_coverage(loss, confidence)
    if ax is None:
        require_matplotlib()
        import matplotlib.pyplot as plt

        ax = plt.subplots(figsize=(6, 3.5), layout="constrained")[1]
        ax.set_xlabel("share of the examples that are predicted")
        ax.set_ylabel("mean loss of those")
        ax.set_xlim(0, 1)
        ax.grid(True, alpha=0.3)
    line = ax.plot(found.coverage, found.risk, label=label)[0]
    ax.axhline(found.risk[-1], color=line.get_color(), linestyle=":", linewidth=1)
    ax.set_ylim(0, 1.05 * max(float(np.max(one.get_ydata())) for one in ax.get_lines()) or 1.0)
    if label is not None:
        ax.legend(frameon=False)
    return ax


def plot_segmentation(
    image: ArrayLike, labels: ArrayLike, confidence: ArrayLike | None = None, truth: ArrayLike | None = None
) -> Any:
    """Draw a picture, what its pixels were labelled as, and how sure that is.

    Parameters
    ----------
    image : array (h, w) or (h, w, 3)
        The picture, grey or in colours.
    labels : int array (h, w)
        Predicted label of each pixel.
    confidence : array (h, w), optional
        Between 0 and 1, such as the probability of the predicted label.
    truth : int array (h, w), optional
        True label of each pixel, in the same colours; negative ones are not known, and stay white.

    Returns
    -------
    matplotlib Axes
        That of the picture; the others are in ``.figure.axes``, after it.
    """
    picture, found = np.asarray(image), np.asarray(labels)
    given = {"labels": found, "confidence": confidence, "truth": truth}
    for name, value in given.items():
        if value is not None and np.shape(value) != picture.shape[:2]:
            raise DataError(f"{name} has shape {np.shape(value)}, but the picture has {picture.shape[:2]} pixels.")
    require_matplotlib()
    import matplotlib.pyplot as plt

    panels = ["picture", *(["truth"] if truth is not None else []), "predicted"]
    panels += ["confidence"] if confidence is not None else []
    h, w = picture.shape[:2]
    size = 3.2 * len(panels), 3.2 * h / w + 0.5
    axes = plt.subplots(1, len(panels), figsize=size, layout="constrained", squeeze=False)[1][0]
    known = found if truth is None else np.concatenate([found.ravel(), np.asarray(truth).ravel()])
    colors = {"cmap": "tab10" if known.max() < 10 else "tab20", "vmin": -0.5, "vmax": 9.5 if known.max() < 10 else 19.5}
    for ax, panel in zip(axes, panels, strict=True):
        if panel == "picture":
            ax.imshow(picture, cmap="gray")
        elif panel == "confidence":
            shown = ax.imshow(np.asarray(confidence, np.float64), cmap="viridis", vmax=1.0)
            ax.figure.colorbar(shown, ax=ax, shrink=0.8)
        else:
            values = np.asarray(truth if panel == "truth" else found)
            ax.imshow(np.ma.masked_less(values, 0), interpolation="nearest", **colors)
        ax.set_title(panel, fontsize="medium")
        ax.set_xticks([])
        ax.set_yticks([])
    return axes[0]

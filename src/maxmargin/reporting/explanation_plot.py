"""A picture of an explanation: which weights made a labeling beat another one."""

from __future__ import annotations

import math
from typing import Any

from maxmargin.errors import DataError, OptionError
from maxmargin.reporting.plots import require_matplotlib

_FOR, _AGAINST = "C0", "C3"


def plot_explanation(explanation: Any, ax: Any = None, n: int = 12) -> Any:
    """Draw the contributions of an explanation as bars: blue ones speak for the prediction, red ones against it.

    Parameters
    ----------
    explanation : Explanation
        What ``model.explain(x)`` returns.
    ax : matplotlib Axes, optional
        By default a figure is made.
    n : int
        How many contributions have a bar of their own, those of largest size; the last bar is the sum of all others, so that all
        bars sum to the difference of the two scores.

    Returns
    -------
    matplotlib Axes
    """
    if not (hasattr(explanation, "contributions") and hasattr(explanation, "difference")):
        raise DataError(f"explanation is of type {type(explanation).__name__}; expected what model.explain(x) returns.")
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise OptionError(f"n={n!r} is not possible; it must be a whole number, at least 1.")
    shown, rest = explanation.contributions[:n], explanation.contributions[n:]
    names = [_name(one) for one in shown]
    values = [one.contribution for one in shown]
    if rest:
        names.append(f"{len(rest)} more")
        values.append(math.fsum(one.contribution for one in rest))
    if ax is None:
        require_matplotlib()
        import matplotlib.pyplot as plt

        ax = plt.subplots(figsize=(8.0, 1.2 + 0.32 * max(len(names), 1)), layout="constrained")[1]
    places = range(len(names))
    ax.barh(places, values, color=[_FOR if value > 0 else _AGAINST for value in values])
    ax.set_yticks(places, names, fontsize="small", parse_math=False)
    ax.invert_yaxis()
    ax.axvline(0.0, color="0.4", linewidth=0.8)
    ax.set_xlabel("contribution to the difference of the scores")
    ax.set_title(f"ahead by {explanation.difference:.4g}", fontsize="medium")
    return ax


def _name(one: Any) -> str:
    """The feature or the pair, where it is, and the labels that it tells apart."""
    what = one.feature or one.part
    where = f" at {one.place}" if one.place else ""
    return f"{what}{where}: {one.labels}, not {one.against}"

"""Pictures as SVG, to stand inside a page: drawn by matplotlib, in the colors of the page's text, light or dark."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from maxmargin.experiments.experiment import Line, Panel, Picture
from maxmargin.reporting.page import drawing, svg_element
from maxmargin.reporting.plots import require_matplotlib

#: Seen on white and on black (Okabe and Ito's palette, without black and yellow).
_COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a8a8a", "#7f4fc9")


def draw_svg(picture: Picture, name: str) -> str:
    """An SVG element.

    Parameters
    ----------
    picture : Picture
    name : str
        Unlike those of other pictures of the page: it goes into the identifiers.
    """
    require_matplotlib()
    from matplotlib.figure import Figure

    with drawing(name):
        n = len(picture.panels)
        figure = Figure(figsize=(max(5.0, 4.1 * n), 4.0), layout="constrained")
        axes = figure.subplots(1, n, squeeze=False)[0]
        for axis, panel in zip(axes, picture.panels, strict=True):
            _draw(axis, panel)
        # One legend below, where all panels have the same lines.
        same = len({tuple(line.label for line in panel.lines) for panel in picture.panels}) == 1
        for axis, panel in zip(axes, picture.panels, strict=True):
            if len(panel.lines) > 1 and not (same and n > 1):
                below = (
                    {"loc": "upper center", "bbox_to_anchor": (0.5, -0.2), "ncols": 2} if len(panel.lines) > 5 else {}
                )
                axis.legend(frameon=False, fontsize="small", **below)
        if same and n > 1 and len(picture.panels[0].lines) > 1:
            figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
        return svg_element(figure, name, picture.caption)


def draw_file(picture: Picture, name: str) -> str:
    """An SVG file of its own, with text in a grey that is seen on white and on black."""
    element = draw_svg(picture, name).replace("currentColor", "#777777")
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + element + "\n"


def _draw(axis: Any, panel: Panel) -> None:
    # A dashed line belongs to the one before it.
    number = -1
    for line in panel.lines:
        number += not line.dashed or number < 0
        _draw_line(axis, line, _COLORS[number % len(_COLORS)])
    # Settings may not have been run, and a logarithmic axis has no place for nothing.
    if panel.log_x and (seen := _positive(x for line in panel.lines for x in line.x)):
        axis.set_xscale("log")
        _label_plainly(axis.xaxis, seen)
    if panel.log_y and (seen := _positive(y for line in panel.lines for y in line.y)):
        axis.set_yscale("log")
        _label_plainly(axis.yaxis, seen)
    axis.set(title=panel.title, xlabel=panel.x_label, ylabel=panel.y_label)
    axis.grid(True, which="major")
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)


def _positive(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None and value > 0.0]


def _label_plainly(axis: Any, values: list[float]) -> None:
    """Ticks of a logarithmic axis that spans less than two decades: plain numbers, at 1, 2 and 5."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    if max(values) < 100.0 * min(values):
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
        axis.set_minor_locator(NullLocator())


def _draw_line(axis: Any, line: Line, color: str) -> None:
    kept = [k for k, (x, y) in enumerate(zip(line.x, line.y, strict=True)) if x is not None and y is not None]
    x, y = [line.x[k] for k in kept], [line.y[k] for k in kept]
    style = {"color": color, "label": line.label, "linestyle": "--" if line.dashed else "-", "linewidth": 1.6}
    if line.marker:
        style |= {"marker": "o", "markersize": 3.5, "markevery": max(1, len(x) // 15)}
    axis.plot(x, y, **style)
    if kept and line.low is not None and line.high is not None:
        low, high = [line.low[k] for k in kept], [line.high[k] for k in kept]
        axis.fill_between(x, low, high, color=color, alpha=0.18, linewidth=0)

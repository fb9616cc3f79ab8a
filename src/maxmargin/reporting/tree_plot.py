"""Pictures of parse trees; parsing/tree_layout.py says where everything stands."""

from __future__ import annotations

from typing import Any

from maxmargin.errors import DataError
from maxmargin.parsing.tree_layout import draw_svg, layout_of
from maxmargin.parsing.trees import Tree
from maxmargin.reporting.plots import require_matplotlib

#: The size of the font.
_POINTS = 10


def plot_tree(tree: Tree, ax: Any = None) -> Any:
    """Draw a tree with matplotlib.

    Parameters
    ----------
    tree : Tree
    ax : matplotlib Axes, optional
        Draw there, in whatever size it has. By default a figure is made that is as large as the tree needs.

    Returns
    -------
    matplotlib Axes
    """
    _check(tree)
    layout = layout_of(tree)
    if ax is None:
        require_matplotlib()
        import matplotlib.pyplot as plt

        inches = _POINTS / 72
        figure = plt.figure(figsize=(layout.width * inches, layout.height * inches))
        ax = figure.add_axes((0, 0, 1, 1))
    for corners in layout.branches:
        ax.plot(*zip(*corners, strict=True), color="0.6", linewidth=0.8, solid_joinstyle="round", zorder=1)
    for x, y, text, is_word in layout.names:
        # The dollar is a tag and a word, and no mathematics.
        ax.text(
            x, y, text, ha="center", va="center", fontsize=_POINTS, parse_math=False,
            style="italic" if is_word else "normal",
        )  # fmt: skip
    ax.set_xlim(0, layout.width)
    ax.set_ylim(layout.height, 0)
    ax.set_axis_off()
    return ax


def tree_svg(tree: Tree, font_size: float = 14) -> str:
    """Draw a tree as SVG, without matplotlib.

    Parameters
    ----------
    tree : Tree
    font_size : float
        In pixels.

    Returns
    -------
    str
        The text of an SVG file.
    """
    _check(tree)
    return draw_svg(tree, font_size)


def _check(tree: Any) -> None:
    if not isinstance(tree, Tree):
        raise DataError(f"{type(tree).__name__} cannot be drawn; expected a Tree.")

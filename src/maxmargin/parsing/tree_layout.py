"""The layout of a parse tree in a picture, and the picture as SVG.

The words stand in one line at the bottom, the tags right above them, and every other node one step above the highest
node under it. Each node has a piece of the width for itself and all that is under it, wide enough for every name, so
nothing overlaps. A branch goes aside within the step below its upper end and straight down from there, so none crosses
another. Lengths are in em, the size of the font.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

# The room between neighbours, the height of a step and the part of it that names take, the rim of the picture.
_GAP, _STEP, _NAME, _RIM = 0.8, 2.4, 1.3, 1.0
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_UNSHOWN = "\ufffd"


class Layout(NamedTuple):
    """Where everything stands, in em."""

    width: float
    height: float
    #: Middle (x, y from the top), text, whether it is a word.
    names: list[tuple[float, float, str, bool]]
    #: The corners of each branch.
    branches: list[list[tuple[float, float]]]


def draw_svg(tree: Any, font_size: float = 14) -> str:
    """A `Tree` as the text of an SVG file, with names of this size in pixels."""
    layout, em = layout_of(tree), font_size
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{layout.width * em:.1f}" height="{layout.height * em:.1f}" '
        f'font-family="DejaVu Sans, Verdana, sans-serif" font-size="{em:g}" text-anchor="middle">'
    ]
    for corners in layout.branches:
        points = " ".join(f"{x * em:.1f},{y * em:.1f}" for x, y in corners)
        lines.append(f'<polyline points="{points}" fill="none" stroke="#999"/>')
    for x, y, text, is_word in layout.names:
        style = ' font-style="italic"' if is_word else ""
        shown = escape(_CONTROL.sub(_UNSHOWN, text))
        lines.append(f'<text x="{x * em:.1f}" y="{y * em:.1f}" dy="0.35em"{style}>{shown}</text>')
    return "\n".join([*lines, "</svg>", ""])


def layout_of(tree: Any) -> Layout:
    """The place of every name and branch of a `Tree`, which imports this module and so is not known to it."""
    # Of every node, the width of its piece and the steps above the words.
    sizes: dict[int, tuple[float, int]] = {}

    def measure(node: Any, below: list[tuple[float, int]]) -> tuple[float, int]:
        own = max(_text_width(text) for text in ([node.label, str(node.children[0])] if node.is_tag else [node.label]))
        size = max(own + _GAP, sum(width for width, _ in below)), 1 + max((steps for _, steps in below), default=0)
        sizes[id(node)] = size
        return size

    width, steps = tree.fold(measure)
    bottom = _RIM + _NAME / 2 + steps * _STEP
    names: list[tuple[float, float, str, bool]] = []
    branches: list[list[tuple[float, float]]] = []
    # A node, where its piece begins, and the node above it.
    stack: list[tuple[Any, float, tuple[float, float] | None]] = [(tree, _RIM, None)]
    while stack:
        node, left, upper = stack.pop()
        room, rank = sizes[id(node)]
        x, y = left + room / 2, bottom - rank * _STEP
        names.append((x, y, node.label, False))
        if upper is not None:
            branches.append([(upper[0], upper[1] + _NAME / 2), (x, upper[1] + _STEP - _NAME / 2), (x, y - _NAME / 2)])
        below = [child for child in node.children if not isinstance(child, str)]
        left = x - sum(sizes[id(child)][0] for child in below) / 2
        for child in below:
            stack.append((child, left, (x, y)))
            left += sizes[id(child)][0]
        if node.is_tag:
            names.append((x, bottom, str(node.children[0]), True))
            branches.append([(x, y + _NAME / 2), (x, bottom - _NAME / 2)])
    return Layout(width + 2 * _RIM, bottom + _NAME / 2 + _RIM, names, branches)


def _text_width(text: str) -> float:
    """An upper estimate of the width of a text in a common font."""
    return sum(1.0 if unicodedata.east_asian_width(c) in "WF" else 0.78 if c.isupper() else 0.64 for c in text)

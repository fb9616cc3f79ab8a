"""Pages of HTML that need nothing else: their style, a script that sorts tables, and pictures as SVG in the colours of the text.

A page asks nothing of a network, follows the reader's light or dark setting, and is as wide as its window. Text from anywhere is
escaped by whoever writes it into a page.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

from maxmargin.reporting.plots import require_matplotlib

#: Drawn in the place of the color of the text, which an SVG inside a page takes from the page.
_TEXT = "#123456"
_DRAWING: dict[Any, Any] = {
    "axes.edgecolor": _TEXT,
    "axes.labelcolor": _TEXT,
    "axes.titlesize": "medium",
    "font.size": 10,
    "grid.alpha": 0.25,
    "grid.color": _TEXT,
    "legend.labelcolor": _TEXT,
    "svg.fonttype": "none",
    "text.color": _TEXT,
    "xtick.color": _TEXT,
    "ytick.color": _TEXT,
}


def page(title: str, body: list[str]) -> str:
    """A page of these parts.

    Parameters
    ----------
    title : str
    body : list of str
        HTML.
    """
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(body)
        + f"\n<script>{_SCRIPT}</script>\n</body></html>\n"
    )


def table(caption: str, columns: list[str], cells: list[list[tuple[str, Any]]], note: str = "") -> str:
    """A table that is sorted by a click on a column.

    Parameters
    ----------
    caption : str
    columns : list of str
    cells : list of rows of (HTML, value)
        What a cell shows, and what it is sorted by.
    note : str
        HTML after the caption.
    """
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    rows = []
    for row in cells:
        shown = []
        for text, value in row:
            kind = ' class="number"' if isinstance(value, int | float) else ""
            order = "" if value is None else escape(str(value))
            shown.append(f'<td{kind} data-order="{order}">{text}</td>')
        rows.append(f"<tr>{''.join(shown)}</tr>")
    return (
        f'<p class="caption">{escape(caption)}{note}</p><div class="wide"><table class="sortable">'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


@contextmanager
def drawing(name: str) -> Iterator[None]:
    """Draw in the colours of a page; `name` goes into the identifiers of the picture, and is that of no other one on the page."""
    require_matplotlib()
    import matplotlib

    with matplotlib.rc_context(_DRAWING | {"svg.hashsalt": name}):
        yield


def svg_element(figure: Any, name: str, caption: str) -> str:
    """A figure of matplotlib as an SVG element of a page, to be called within `drawing`.

    Parameters
    ----------
    figure : matplotlib Figure
    name : str
        As in `drawing`.
    caption : str
        For those who cannot see it.
    """
    stream = io.StringIO()
    figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = stream.getvalue()
    text = text[text.index("<svg") :].replace(_TEXT, "currentColor")
    # The width comes from the page; the first tag alone has these.
    head, rest = text[: text.index(">")], text[text.index(">") :]
    head = re.sub(r'\s(width|height)="[^"]*"', "", head)
    # Identifiers that matplotlib does not salt.
    rest = re.sub(
        r'id="((?:figure|axes|patch|line2d|text|matplotlib|xtick|ytick|legend|FillBetween|QuadMesh)[^"]*)"',
        rf'id="{name}-\1"',
        rest,
    )
    return f'{head} role="img" aria-label="{escape(caption)}"{rest}'.strip()


_STYLE = """
:root { color-scheme: light dark; --text: #1d2329; --back: #ffffff; --soft: #6b7680; --line: #d9dee3; --shade: #f4f6f8;
  --good: #1a7f4b; --other: #b25d00; }
@media (prefers-color-scheme: dark) { :root { --text: #e4e8ec; --back: #14181c; --soft: #98a4af; --line: #333c45; --shade: #1d2329;
  --good: #4cc38a; --other: #f0a050; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 68rem; padding: 1rem 1.2rem 4rem; color: var(--text); background: var(--back);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.25; } h2 { margin-top: 3rem; font-size: 1.25rem; border-bottom: 1px solid var(--line);
  padding-bottom: .4rem; } h3 { margin-top: 2.2rem; font-size: 1.1rem; }
a { color: inherit; } code { background: var(--shade); padding: .1rem .3rem; border-radius: .25rem; overflow-wrap: anywhere; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .7rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; white-space: nowrap; }
.overview { list-style: none; padding: 0; } .overview li { margin: .35rem 0; } .overview a { color: var(--soft); font-size: .85em; }
td.number { text-align: right; } tbody tr:hover { background: var(--shade); }
table.sortable th { cursor: pointer; }
th[aria-sort="ascending"]::after { content: " ▲"; } th[aria-sort="descending"]::after { content: " ▼"; }
.paper, .small { color: var(--soft); font-size: .85em; } .caption { margin: 1.4rem 0 .4rem; font-weight: 600; }
.caption .paper { font-weight: 400; } figure { margin: 1.2rem 0; } figure svg { width: 100%; height: auto; max-height: 32rem; }
figcaption { color: var(--soft); font-size: .9rem; }
.badge { display: inline-block; padding: .05rem .5rem; border: 1px solid currentColor; border-radius: 1rem; font-size: .8rem;
  white-space: nowrap; } .reproduced { color: var(--good); } .differs { color: var(--other); } .not-run { color: var(--soft); }
"""

_SCRIPT = """
for (const table of document.querySelectorAll("table.sortable")) {
  table.querySelectorAll("th").forEach((head, column) => {
    head.tabIndex = 0;
    const sort = () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      table.querySelectorAll("th").forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const key = row => row.children[column].dataset.order;
      const rows = [...table.tBodies[0].rows].sort((a, b) => {
        const [x, y] = [key(a), key(b)], [p, q] = [Number(x), Number(y)];
        if (x === "" || y === "") return (x === "") - (y === "");
        const order = isNaN(p) || isNaN(q) ? x.localeCompare(y) : p - q;
        return down ? -order : order;
      });
      table.tBodies[0].append(...rows);
    };
    head.addEventListener("click", sort);
    head.addEventListener("keydown", event => { if (event.key === "Enter") sort(); });
  });
}
"""

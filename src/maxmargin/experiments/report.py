"""The report: one page of HTML that needs nothing else, the same as Markdown, and the numbers as JSON.

Conventions
-----------
The page has its style, its script and its pictures inside, asks nothing of a network, follows the reader's light or dark
setting, and is as wide as its window. Text from anywhere is escaped.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from maxmargin.experiments.experiment import Beside, Experiment, Mode, Row, Table, Verdict, View
from maxmargin.experiments.pictures import draw_file, draw_svg
from maxmargin.experiments.runner import Failure
from maxmargin.formats.atomic import atomic_write
from maxmargin.reporting.page import page
from maxmargin.reporting.page import table as page_table

_PACKAGES = ("maxmargin", "numpy", "scipy", "numba", "scikit-learn", "highspy")
_SIGNS = {"reproduced": "✓", "differs": "≠", "not run": "–"}


@dataclass(frozen=True)
class Section:
    """An experiment with what came out of it."""

    experiment: Experiment
    view: View
    rows: list[Row]
    n_settings: int
    failures: list[Failure]

    @property
    def seconds(self) -> float:
        """Of all settings together."""
        return sum(row.seconds for row in self.rows)

    def command(self, program: str, mode: Mode) -> str:
        """What to type to have this alone."""
        return f"{program} {self.experiment.name} --{mode}"


@dataclass(frozen=True)
class Report:
    """All sections, by paper, and what the pages say above them.

    Parameters
    ----------
    title : str
    program : str
        The command: "maxmargin reproduce".
    mode : "quick" or "full"
    papers : dict from a key to a full citation
    sections : list of Section
    """

    title: str
    program: str
    mode: Mode
    papers: Mapping[str, str]
    sections: list[Section]

    def write(self, directory: str | os.PathLike[str]) -> list[Path]:
        """Write report.html, report.md, report.json and each picture into a directory, each whole or not at all."""
        written = []
        for name, text in (("report.html", self.html()), ("report.md", self.markdown()), ("report.json", self.json())):
            path = Path(directory) / name
            with atomic_write(path) as stream:
                stream.write(text.encode())
            written.append(path)
        for section in self.sections:
            for number, picture in enumerate(section.view.pictures, 1):
                name = f"{section.experiment.name}-{number}"
                with atomic_write(Path(directory) / f"{name}.svg") as stream:
                    stream.write(draw_file(picture, name).encode())
        return written

    def verdicts(self) -> list[tuple[Section, Verdict]]:
        """All verdicts, in order."""
        return [(section, verdict) for section in self.sections for verdict in section.view.verdicts]

    def json(self) -> str:
        """The numbers."""
        sections = [
            {
                "experiment": one.experiment.name,
                "paper": one.experiment.paper,
                "title": one.experiment.title,
                "command": one.command(self.program, self.mode),
                "seconds": round(one.seconds, 1),
                "verdicts": [vars(verdict) for verdict in one.view.verdicts],
                "tables": [
                    {
                        "caption": table.caption,
                        "columns": table.columns,
                        "rows": [[_plain(c) for c in row] for row in table.rows],
                    }
                    for table in one.view.tables
                ],
                "results": [row._asdict() for row in one.rows],
                "not_run": [failure._asdict() for failure in one.failures],
            }
            for one in self.sections
        ]
        return json.dumps({"mode": self.mode, "versions": versions(), "experiments": sections}, indent=1)

    # ------------------------------------------------------------------------------------------------------- Markdown

    def markdown(self) -> str:
        """The report, with links to its pictures."""
        lines = [f"# {self.title}", "", f"{_machine()}. Mode: {self.mode}.", "", self.summary(), ""]
        for key, sections in self._by_paper():
            lines += [f"## {self.papers[key]}", ""]
            for one in sections:
                lines += [f"### {one.experiment.title}", "", one.experiment.text, ""]
                lines += [f"- **{v.outcome}**: {v.claim} {v.why}" for v in one.view.verdicts]
                lines += [f"- **not run**: {_words(f.setting)}: {f.why}" for f in one.failures] + [""]
                lines += [
                    f"![{picture.caption}]({one.experiment.name}-{number}.svg)\n"
                    for number, picture in enumerate(one.view.pictures, 1)
                ]
                for table in one.view.tables:
                    lines += [table.caption, "", *_markdown_table(table), ""]
                lines += [f"`{one.command(self.program, self.mode)}`: {_effort(one)}.", ""]
        return "\n".join(lines)

    def summary(self) -> str:
        """How many claims held, in a sentence."""
        outcomes = [verdict.outcome for _, verdict in self.verdicts()]
        if not outcomes:
            n, missing = sum(len(one.rows) for one in self.sections), sum(len(one.failures) for one in self.sections)
            return f"{n} settings were run" + (f"; {missing} could not be." if missing else ".")
        counts = ", ".join(f"{outcomes.count(name)} {name}" for name in _SIGNS if name in outcomes)
        missing = sum(len(section.failures) for section in self.sections)
        lost = f"; {missing} settings could not be run" if missing else ""
        return f"{len(outcomes)} claims: {counts or 'none'}{lost}."

    # ----------------------------------------------------------------------------------------------------------- HTML

    def html(self) -> str:
        """The page."""
        body = [f"<header><h1>{escape(self.title)}</h1><p>{escape(_machine())}. Mode: {self.mode}.</p>"]
        body += [f"<p><strong>{escape(self.summary())}</strong></p>", self._overview(), "</header>"]
        for key, sections in self._by_paper():
            body.append(f'<h2 id="{key}">{escape(self.papers[key])}</h2>')
            body += [self._section(one) for one in sections]
        return page(self.title, body)

    def _overview(self) -> str:
        items = [
            f'<li>{_badge(verdict)} {escape(verdict.claim)} <a href="#{section.experiment.name}">'
            f"{escape(section.experiment.paper)}: {escape(section.experiment.title.partition(':')[0])}</a></li>"
            for section, verdict in self.verdicts()
        ]
        return f'<ul class="overview">{"".join(items)}</ul>' if items else ""

    def _section(self, one: Section) -> str:
        name = one.experiment.name
        parts = [f'<section id="{name}"><h3>{escape(one.experiment.title)}</h3><p>{escape(one.experiment.text)}</p>']
        parts += [
            f"<p>{_badge(verdict)} {escape(verdict.claim)} <em>{escape(verdict.why)}</em></p>"
            for verdict in one.view.verdicts
        ]
        for number, picture in enumerate(one.view.pictures):
            svg = draw_svg(picture, f"{name}-{number}")
            parts.append(f"<figure>{svg}<figcaption>{escape(picture.caption)}</figcaption></figure>")
        parts += [_html_table(table) for table in one.view.tables]
        if one.failures:
            items = "".join(f"<li>{escape(_words(f.setting))}: {escape(f.why)}</li>" for f in one.failures)
            parts.append(f"<p>Could not be run:</p><ul>{items}</ul>")
        parts.append(
            f'<p class="small"><code>{escape(one.command(self.program, self.mode))}</code> · {escape(_effort(one))}</p></section>'
        )
        return "\n".join(parts)

    def _by_paper(self) -> list[tuple[str, list[Section]]]:
        found: dict[str, list[Section]] = {}
        for one in self.sections:
            found.setdefault(one.experiment.paper, []).append(one)
        return list(found.items())


def versions() -> dict[str, str]:
    """Of Python and of the packages that the numbers come from."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _machine() -> str:
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores; " + ", ".join(
        f"{name} {number}" for name, number in versions().items()
    )


def _effort(one: Section) -> str:
    return f"{len(one.rows)} of {one.n_settings} settings, {one.seconds:.0f} s of computing"


def _words(setting: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in setting.items())


def _badge(verdict: Verdict) -> str:
    name = verdict.outcome
    return f'<span class="badge {name.replace(" ", "-")}">{_SIGNS[name]} {name}</span>'


def _number(value: Any, digits: int) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool | str):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.{digits}f}" if value == 0 or 10.0**-digits <= abs(value) < 1e6 else f"{value:.2e}"


def _plain(cell: Any) -> Any:
    return cell._asdict() if isinstance(cell, Beside) else cell


def _markdown_table(table: Table) -> list[str]:
    def cell(value: Any) -> str:
        if isinstance(value, Beside):
            return f"{_number(value.ours, table.digits)} ({_number(value.paper, table.digits)})"
        return _number(value, table.digits).replace("|", "\\|")

    lines = ["| " + " | ".join(table.columns) + " |", "|" + "---|" * len(table.columns)]
    return lines + ["| " + " | ".join(cell(value) for value in row) + " |" for row in table.rows]


def _html_table(table: Table) -> str:
    def cell(value: Any) -> tuple[str, Any]:
        shown: Any = value.ours if isinstance(value, Beside) else value
        text = escape(_number(shown, table.digits))
        if isinstance(value, Beside):
            text += f' <span class="paper">{escape(_number(value.paper, table.digits))}</span>'
        return text, shown

    note = ' <span class="paper">Small figures: as printed in the paper.</span>' if _has_beside(table.rows) else ""
    return page_table(table.caption, list(table.columns), [[cell(value) for value in row] for row in table.rows], note)


def _has_beside(rows: Sequence[Sequence[Any]]) -> bool:
    return any(isinstance(value, Beside) for row in rows for value in row)

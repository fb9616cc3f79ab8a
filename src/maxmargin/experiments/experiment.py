"""The vocabulary: an experiment, its settings, and what is shown of their results.

Conventions
-----------
A *setting* is a flat dict of strings, numbers and booleans: all that tells one run of an experiment from another. A *grid* is a
tuple of dicts from a name to the values to try; each dict stands for all combinations. A *job* is a function of a setting and of
the data directory that returns *figures*: a dict that JSON can hold. Both are kept; everything shown is made from them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

Setting = dict[str, str | int | float | bool]
Figures = dict[str, Any]
Grid = tuple[Mapping[str, Sequence[str | int | float | bool]], ...]
Job = Callable[[Setting, str | None], Figures]
Mode = Literal["quick", "full"]
Outcome = Literal["reproduced", "differs", "not run"]


class Row(NamedTuple):
    """A setting that was run.

    Attributes
    ----------
    setting, figures : dict
        Names and values.
    seconds : float
        Seconds that it took.
    """

    setting: Setting
    figures: Figures
    seconds: float


class Beside(NamedTuple):
    """A number of ours and the one that the paper prints."""

    ours: float | None
    paper: float | None


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes
    ----------
    caption : str
        What it shows.
    columns : tuple of str
        Headings.
    rows : list of lists
        Cells: text, numbers, pairs of `Beside`, or None.
    digits : int
        Digits after the point of numbers.
    """

    caption: str
    columns: tuple[str, ...]
    rows: list[list[Any]]
    digits: int = 2


@dataclass(frozen=True)
class Line:
    """A line of a panel.

    Attributes
    ----------
    label : str
        Its name in the legend.
    x, y : list of float
        Its points.
    low, high : list of float, optional
        Bounds of a band around it.
    dashed : bool
        Dashed, in the color of the line before it.
    marker : bool
        A dot at each point.
    """

    label: str
    x: list[float]
    y: list[float]
    low: list[float] | None = None
    high: list[float] | None = None
    dashed: bool = False
    marker: bool = True


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Attributes
    ----------
    title, x_label, y_label : str
        Its texts.
    lines : list of Line
        What is drawn.
    log_x, log_y : bool
        Logarithmic axes.
    """

    title: str
    x_label: str
    y_label: str
    lines: list[Line]
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True)
class Picture:
    """Panels side by side.

    Attributes
    ----------
    caption : str
        What they show.
    panels : list of Panel
        The panels.
    """

    caption: str
    panels: list[Panel]


@dataclass(frozen=True)
class Verdict:
    """A claim of the paper, and whether it holds here.

    Attributes
    ----------
    claim : str
        What the paper says.
    outcome : "reproduced", "differs" or "not run"
        Whether it holds.
    why : str
        The numbers that say so, or why it could not be tried.
    """

    claim: str
    outcome: Outcome
    why: str


@dataclass(frozen=True)
class View:
    """What is shown of an experiment.

    Attributes
    ----------
    tables : list of Table
        Its tables.
    pictures : list of Picture
        Its pictures.
    verdicts : list of Verdict
        Its claims.
    """

    tables: list[Table] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)


@dataclass(frozen=True)
class Experiment:
    """An experiment.

    Parameters
    ----------
    name : str
        What a user types, such as "intractable-table-2".
    paper : str
        The key of `papers.PAPERS`, or "peers".
    title, text : str
        A heading, and what is asked and how it was set up, in a few sentences.
    job : Job
        A function of a module, so that other processes find it.
    quick, full : Grid
        The settings in each mode.
    show : function of a list of rows
        What to show of those that were run, possibly not all.
    timed : bool
        Whether seconds are among the figures: such settings are run one at a time.
    """

    name: str
    paper: str
    title: str
    text: str
    job: Job
    quick: Grid
    full: Grid
    show: Callable[[list[Row]], View]
    timed: bool = False

    def settings(self, mode: Mode) -> list[Setting]:
        """All settings of a mode, in the order of the grid.

        Parameters
        ----------
        mode : "quick" or "full"
            Which of the two grids.
        """
        found: list[Setting] = []
        for part in self.quick if mode == "quick" else self.full:
            names = list(part)
            found += [dict(zip(names, values, strict=True)) for values in itertools.product(*part.values())]
        return found


def values_of(rows: Sequence[Row], name: str) -> list[Any]:
    """The values that a name of a setting takes, in the order in which they come."""
    return list(dict.fromkeys(row.setting[name] for row in rows if name in row.setting))


def find(rows: Sequence[Row], **setting: Any) -> Row | None:
    """The first row whose setting has these values."""
    for row in rows:
        if all(row.setting.get(name) == value for name, value in setting.items()):
            return row
    return None


def judge(claim: str, holds: bool | None, why: str) -> Verdict:
    """A verdict from a test; None where there were no results to test.

    Parameters
    ----------
    claim : str
        What the paper says.
    holds : bool or None
        Whether it holds here; None if there is nothing to say it by.
    why : str
        The numbers.
    """
    if holds is None:
        return Verdict(claim, "not run", "There are no results to judge it by.")
    return Verdict(claim, "reproduced" if holds else "differs", why)

"""``maxmargin reproduce``: the experiments of the four papers, as a page."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from maxmargin.cli.exits import BAD_DATA, DONE, INTERRUPTED, CannotWriteError, say, writing
from maxmargin.errors import OptionError
from maxmargin.signals import StopSignal

SUMMARY = "run the experiments of the four papers, and write a report"
DESCRIPTION = (
    "Run the experiments of the papers that this library implements, and write report.html, report.md and report.json, with our\n"
    "numbers beside the printed ones. NAME is an experiment (see --list), or soft, intractable, cutting or gap for a whole paper.\n"
    "Results are kept in OUT/results.jsonl as they come: the same command goes on after an interruption."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add_run_arguments(parser, "experiments", "reproduction")


def add_run_arguments(parser: argparse.ArgumentParser, noun: str, out: str) -> None:
    """Arguments of commands that run experiments."""
    parser.add_argument("names", metavar="NAME", nargs="*", help=f"{noun} (default: all)")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--quick", action="store_true", help="generated and small data, in a few minutes (the default)")
    mode.add_argument("--full", action="store_true", help="real data, and settings as published")
    parser.add_argument(
        "--data-home", metavar="DIR", help="directory of data sets (default: MAXMARGIN_DATA, or a cache)"
    )
    parser.add_argument("--out", metavar="DIR", help=f"directory of the report (default: {out}-quick or {out}-full)")
    parser.add_argument("--jobs", type=int, metavar="N", help="processes (default: one for each core)")
    parser.add_argument("--list", action="store_true", dest="listed", help=f"list the {noun}, and run nothing")


def run(args: argparse.Namespace) -> int:
    """Run what has no result yet, and write the report."""
    from maxmargin.experiments.papers import PAPERS
    from maxmargin.experiments.registry import EXPERIMENTS, choose

    if args.listed:
        for name, experiment in EXPERIMENTS.items():
            print(f"{name:24} {experiment.title}")
        return DONE
    mode = "full" if args.full else "quick"
    title = "The four papers, reproduced"
    return run_and_report(choose(args.names), mode, args, title, "maxmargin reproduce", PAPERS, f"reproduction-{mode}")


def run_and_report(
    experiments: list[Any], mode: Any, args: argparse.Namespace, title: str, program: str, papers: Any, out: str
) -> int:
    """Run experiments, write the pages, and say where they are."""
    from maxmargin import __version__
    from maxmargin.experiments.report import Report
    from maxmargin.experiments.results import ResultsFile
    from maxmargin.experiments.runner import run_experiments
    from maxmargin.parallel.threads import n_cores
    from maxmargin.reporting.plots import require_matplotlib

    if args.jobs is not None and args.jobs < 1:
        raise OptionError(f"--jobs {args.jobs} is not possible; it is the number of processes, at least 1.")
    require_matplotlib()
    directory = _directory(args.out or out)
    with writing(directory / "results.jsonl"):
        results = ResultsFile(directory / "results.jsonl", __version__)
    watch = _Watch()
    failures: list[Any] = []
    code = DONE
    try:
        with watch, writing(results.path):
            failures = run_experiments(experiments, mode, results, watch, args.data_home, args.jobs or n_cores())
    except KeyboardInterrupt as stop:
        code = 128 + stop.number if isinstance(stop, StopSignal) else INTERRUPTED
        say("Interrupted; what was finished is kept and in the report, and the same command goes on from there.")
    report = Report(title, program, mode, papers, [_section(one, mode, results, failures) for one in experiments])
    with writing(directory / "report.html"):
        pages = report.write(directory)
    for section, verdict in report.verdicts():
        print(f"{verdict.outcome:10}  {section.experiment.name}: {verdict.claim} {verdict.why}")
    print(f"{report.summary()} The report is {pages[0]}.")
    for failure in failures:
        words = ", ".join(f"{name} = {value}" for name, value in failure.setting.items())
        say(f"{failure.experiment} ({words}) was not run: {failure.why}")
    return BAD_DATA if failures else code


def _section(one: Any, mode: Any, results: Any, failures: list[Any]) -> Any:
    """An experiment with what came out of it."""
    from maxmargin.experiments.experiment import View
    from maxmargin.experiments.report import Section

    settings = one.settings(mode)
    rows = results.rows(one.name, settings)
    view = one.show(rows)
    if not rows:
        # Empty tables and pictures say nothing; that a claim was not tried does.
        view = View(verdicts=view.verdicts)
    return Section(one, view, rows, len(settings), [lost for lost in failures if lost.experiment == one.name])


def _directory(name: str) -> Path:
    path = Path(name)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotWriteError(f"The directory {path} cannot be made: {error.strerror or error}.") from error
    return path


class _Watch:
    """Progress on the standard error: a bar with the time left in a terminal, a line for each setting elsewhere."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self._console = Console(file=sys.stderr)
        self._progress = Progress(
            TextColumn("{task.description}"), BarColumn(bar_width=30), MofNCompleteColumn(), TimeElapsedColumn(),
            TextColumn("left:"), TimeRemainingColumn(), console=self._console, transient=True,
            disable=not self._console.is_terminal,
        )  # fmt: skip
        self._task: Any = None
        self._total, self._done, self._began = 0, 0, time.monotonic()

    def __enter__(self) -> _Watch:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def start(self, n_settings: int, n_kept: int) -> None:
        """Say how much there is to do."""
        self._total, self._began = n_settings, time.monotonic()
        kept = f"; {n_kept} have been run before" if n_kept else ""
        self._line(f"{n_settings} settings to run{kept}.")
        self._task = self._progress.add_task("running", total=n_settings)

    def finished(self, experiment: Any, setting: Any, seconds: float, why: str | None) -> None:
        """Count one more."""
        self._done += 1
        self._progress.update(self._task, advance=1, description=experiment.name)
        words = " ".join(str(value) for value in setting.values())
        how = f"{seconds:.1f} s" if why is None else f"not run: {why.rstrip('.')}"
        left = (time.monotonic() - self._began) / self._done * (self._total - self._done)
        self._line(f"{self._done}/{self._total} {experiment.name} ({words}): {how}; about {left:.0f} s left")

    def _line(self, text: str) -> None:
        if not self._console.is_terminal:
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)

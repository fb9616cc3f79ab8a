"""``maxmargin bench``: this library beside other programs, as far as they are installed."""

from __future__ import annotations

import argparse

from maxmargin.cli.exits import BAD_DATA, DONE
from maxmargin.cli.reproduce import add_run_arguments, run_and_report

SUMMARY = "compare with other programs that are installed, and write a report"
DESCRIPTION = (
    "Run this library and LIBLINEAR, CRFsuite, HiGHS, PyMaxflow and SVM-hmm in turns, as far as they are there, and write a table\n"
    "of seconds and ratios. NAME is a comparison (see --list). Results are kept in OUT/results.jsonl; remove it to measure again."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add_run_arguments(parser, "comparisons", "bench")


def run(args: argparse.Namespace) -> int:
    """Run, and write the report."""
    from maxmargin.experiments.peers import EXPERIMENTS, PEERS
    from maxmargin.experiments.registry import choose

    known = {one.name: one for one in EXPERIMENTS}
    if args.listed:
        for name, one in known.items():
            print(f"{name:24} {one.title}")
        return DONE
    mode = "full" if args.full else "quick"
    chosen = choose(args.names, known)
    code = run_and_report(chosen, mode, args, "Beside other programs", "maxmargin bench", PEERS, f"bench-{mode}")
    # A program that is not installed is no error.
    return DONE if code == BAD_DATA else code

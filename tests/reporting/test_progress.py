"""Progress: a bar in a terminal, plain lines elsewhere, nothing by default."""

import io
import math

import pytest
from rich.console import Console

from maxmargin.reporting.progress import ProgressMonitor
from maxmargin.solvers.core.monitor import Report


def report(n_passes, gap, tol=1e-3, max_passes=100):
    return Report(n_passes, max_passes, n_passes / 10, 1.0 + gap, 1.0, gap, tol, "relaxed")


def run(monitor, gaps, tol=1e-3):
    monitor.start("soft-bcfw", 100, tol)
    for k, gap in enumerate(gaps):
        assert monitor.update(report(k + 1, gap, tol)) is True
    monitor.stop("CONVERGED: relaxed gap 0.001 [not markup]")


def test_plain_lines_where_there_is_no_terminal():
    stream = io.StringIO()
    run(ProgressMonitor(Console(file=stream), every=0.0), [1.0, 0.1, 0.01])
    lines = stream.getvalue().splitlines()
    assert lines[0] == "pass 1 of at most 100: relaxed gap 1 (tol 0.001), 0.1 s"
    assert len(lines) == 4
    assert lines[-1] == "CONVERGED: relaxed gap 0.001 [not markup]"
    assert "\x1b" not in stream.getvalue()
    assert "\r" not in stream.getvalue()


def test_lines_come_every_few_seconds_only():
    stream = io.StringIO()
    run(ProgressMonitor(Console(file=stream)), [1.0, 0.1, 0.01])
    assert stream.getvalue() == "CONVERGED: relaxed gap 0.001 [not markup]\n"


def test_a_bar_in_a_terminal_that_is_taken_away():
    stream = io.StringIO()
    run(ProgressMonitor(Console(file=stream, force_terminal=True, width=120)), [1.0, 0.1, 0.01])
    assert "soft-bcfw" in stream.getvalue()
    assert "gap 1.00e-02" in stream.getvalue()
    assert stream.getvalue().rstrip().endswith("CONVERGED: relaxed gap 0.001 [not markup]")


def test_the_standard_error_is_the_default(capsys):
    run(ProgressMonitor(), [1.0])
    out, err = capsys.readouterr()
    assert out == ""
    assert "CONVERGED" in err


@pytest.mark.parametrize(
    ("gaps", "tol", "fractions"),
    [
        ([1.0, 0.1, 0.01, 0.001], 1e-3, [0, 1 / 3, 2 / 3, 1]),
        ([math.inf, 1.0, 2.0, 0.1, 1.0], 1e-2, [0, 0, 0, 1 / 2, 1 / 2]),
        ([1.0, 0.5], 0.0, [1 / 100, 2 / 100]),
        ([0.0], 0.0, [1]),
        ([math.nan], 1e-3, [0]),
    ],
)
def test_the_bar_is_logarithmic_in_the_gap_and_never_goes_back(gaps, tol, fractions):
    monitor = ProgressMonitor(Console(file=io.StringIO()))
    monitor.start("x", 100, tol)
    for k, (gap, fraction) in enumerate(zip(gaps, fractions, strict=True)):
        monitor.update(report(k + 1, gap, tol))
        assert monitor._fraction == pytest.approx(fraction)

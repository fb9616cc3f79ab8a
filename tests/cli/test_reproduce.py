"""``maxmargin reproduce``: what it writes, how it goes on after kill -9, and what it says of what cannot be."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from maxmargin.cli.main import run
from maxmargin.experiments import registry
from reference.jobs import experiment, fails

pytest.importorskip("matplotlib")


@pytest.fixture
def squares(monkeypatch):
    """One experiment, in the place of the papers'."""
    made = experiment()
    monkeypatch.setattr(registry, "EXPERIMENTS", {made.name: made})
    monkeypatch.setattr(registry.choose, "__defaults__", ({made.name: made},))
    monkeypatch.setitem(__import__("maxmargin.experiments.papers").experiments.papers.PAPERS, "test", "A test")
    return made


def test_list_and_help(capsys):
    assert run(["reproduce", "--list"]) == 0
    assert "intractable-table-2" in capsys.readouterr().out
    assert run(["reproduce", "--help"]) == 0
    assert "--full" in capsys.readouterr().out


def test_a_report_is_written_and_nothing_is_run_twice(squares, tmp_path, capsys):
    out = tmp_path / "deep" / "out"
    assert run(["reproduce", "--out", str(out), "--jobs", "1"]) == 0
    shown = capsys.readouterr()
    assert "1 claims: 1 reproduced." in shown.out
    assert "3 settings to run." in shown.err
    assert {path.name for path in out.iterdir()} == {
        "results.jsonl",
        "report.html",
        "report.md",
        "report.json",
        "test-squares-1.svg",
    }
    assert run(["reproduce", "--out", str(out), "--jobs", "1"]) == 0
    assert "0 settings to run; 3 have been run before." in capsys.readouterr().err


def test_bad_input_is_a_sentence(squares, tmp_path, capsys, monkeypatch):
    def said(*words, code):
        assert run(["reproduce", *words]) == code
        return capsys.readouterr().err

    assert "There is no experiment 'nothing'." in said("nothing", code=2)
    assert "--jobs 0 is not possible" in said("--jobs", "0", "--out", str(tmp_path), code=2)
    file = tmp_path / "file"
    file.write_text("")
    assert f"The directory {file} cannot be made" in said("--out", str(file), code=4)
    (tmp_path / "results.jsonl").write_text("rubbish\n")
    assert "line 1 is not a result" in said("--out", str(tmp_path), code=3)
    bad = experiment(fails, ({"how": ("data",), "x": (1,)},))
    monkeypatch.setattr(registry.choose, "__defaults__", ({bad.name: bad},))
    text = said("--out", str(tmp_path / "other"), "--jobs", "1", code=3)
    assert (
        "test-squares (how = data, x = 1) was not run: The data set squares cannot be downloaded; put the file at"
        in text
    )
    assert "1 settings could not be run" in (tmp_path / "other" / "report.md").read_text()


def test_a_run_that_is_interrupted_before_anything_is_finished_writes_a_report(tmp_path, capsys, monkeypatch):
    """Of every experiment of the papers."""

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("maxmargin.experiments.runner.run_experiments", interrupted)
    assert run(["reproduce", "--full", "--out", str(tmp_path)]) == 130
    assert "what was finished is kept" in capsys.readouterr().err
    report = json.loads((tmp_path / "report.json").read_text())
    verdicts = [one for section in report["experiments"] for one in section["verdicts"]]
    assert {one["outcome"] for one in verdicts} == {"not run"}
    assert {one["why"] for one in verdicts} == {"There are no results to judge it by."}


@pytest.mark.skipif(os.name == "nt", reason="signals are sent another way on Windows")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_run_that_is_killed_goes_on(tmp_path, number):
    """Two settings are fast, one takes a minute; the run is killed in that one."""
    mark = tmp_path / "mark"
    code = f"""
import sys
sys.path.insert(0, {str(os.path.dirname(os.path.dirname(__file__)))!r})
from maxmargin.cli.main import run
from maxmargin.experiments import papers, registry
from reference.jobs import experiment, slow

if __name__ == "__main__":
    grid = ({{"x": (1, 2), "mark": ({str(mark)!r} + "0",), "seconds": (0,)}},
            {{"x": (3,), "mark": ({str(mark)!r},), "seconds": (float(sys.argv[1]),)}})
    made = experiment(slow, grid)
    papers.PAPERS["test"] = "A test"
    registry.choose.__defaults__ = ({{made.name: made}},)
    sys.exit(run(["reproduce", "--jobs", "1", "--out", {str(tmp_path / "out")!r}]))
"""
    script = tmp_path / "script.py"
    script.write_text(code)
    command = [sys.executable, str(script)]
    process = subprocess.Popen([*command, "60"], stderr=subprocess.PIPE, text=True, start_new_session=True)
    deadline = time.monotonic() + 120
    while not mark.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(process.pid, number)
    _, error = process.communicate(timeout=60)
    assert process.returncode == (-signal.SIGKILL if number == signal.SIGKILL else 130), error
    # What was finished is in the report already, but not after kill -9, and it is said.
    assert ("what was finished is kept" in error) == (number == signal.SIGINT)
    assert (tmp_path / "out" / "report.html").exists() == (number == signal.SIGINT)
    lines = (tmp_path / "out" / "results.jsonl").read_text().splitlines()
    assert [json.loads(line)["setting"]["x"] for line in lines] == [1, 2]
    # The minute is a part of the setting; what is run now is a setting of no seconds.
    again = subprocess.run([*command, "0"], capture_output=True, text=True, timeout=120, check=False)
    assert again.returncode == 0, again.stderr
    assert "1 settings to run; 2 have been run before." in again.stderr

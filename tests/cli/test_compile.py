"""`maxmargin compile`."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from maxmargin.cli import compile_ahead
from maxmargin.cli.main import run
from maxmargin.cli.names import TASKS
from maxmargin.datasets.tiny import tiny_data
from maxmargin.estimators.loading import TASKS as ESTIMATORS


def test_what_was_compiled_is_found_by_the_next_process(tmp_path):
    environment = os.environ | {"MAXMARGIN_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "maxmargin", "compile", "binary", "--jobs", "1", "--json"]
    first, second = (
        json.loads(subprocess.run(command, env=environment, check=True, capture_output=True).stdout) for _ in range(2)
    )
    assert first["compiled"]["binary"] > 0.5
    assert second["compiled"]["binary"] == pytest.approx(0.0, abs=0.05)
    assert str(tmp_path) in second["kept"]


def test_a_solver_that_a_task_cannot_use_is_named(capsys):
    assert run(["compile", "binary", "parser", "--solver", "soft-bcfw", "--jobs", "2"]) == 0
    said = capsys.readouterr()
    assert "parser soft-bcfw: the solver is not for this task" in said.out
    assert "binary soft-bcfw" not in said.out
    assert "Compiled kernels:" in said.out
    assert "parser: done" in said.err


def _die(task, solver):
    os._exit(1)


def test_a_process_that_is_killed_is_no_error_inside(monkeypatch, capsys):
    monkeypatch.setattr(compile_ahead, "_compile", _die)
    assert run(["compile", "binary", "chain", "--jobs", "1"]) == 71
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("maxmargin: A process that was compiling has been killed")
    assert "--jobs 1" in said.err


@pytest.mark.skipif(os.name == "nt", reason="sends signals to a group of processes")
@pytest.mark.parametrize(
    ("name", "everyone", "sentence"),
    [("SIGINT", True, "Interrupted"), ("SIGINT", False, "Interrupted"), ("SIGTERM", False, "Stopped by SIGTERM")],
)
def test_a_signal_ends_all_processes_with_a_sentence(tmp_path, name, everyone, sentence):
    number = signal.Signals[name]
    command = [sys.executable, "-m", "maxmargin", "compile", "multi-label", "parser", "--jobs", "2"]
    process = subprocess.Popen(
        command,
        env=os.environ | {"MAXMARGIN_CACHE_DIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A suite in the background ignores Ctrl-C, and what it starts would, too.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    deadline = time.monotonic() + 60.0
    # Something has been compiled and kept.
    while not any(tmp_path.rglob("*.*")) and time.monotonic() < deadline:
        time.sleep(0.1)
    began = time.monotonic()
    (os.killpg if everyone else os.kill)(process.pid, number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert (out, err) == ("", f"maxmargin: {sentence}; what has been compiled is kept.\n")
    # The pipes close when the last process has ended; none goes on until it is done.
    assert time.monotonic() - began < 15.0


@pytest.mark.parametrize("words", [["nonsense"], ["binary", "--jobs", "0"], ["--solver", "bcwf"]])
def test_wrong_words_are_refused(words, capsys):
    assert run(["compile", *words]) == 2
    assert capsys.readouterr().err


@pytest.mark.parametrize("task", TASKS)
def test_every_task_has_tiny_data_that_fits(task):
    data = tiny_data(task)
    assert 1 <= len(data) <= 3
    assert len(data[0]) == len(data[-1])
    assert ESTIMATORS[task].task == task
    if task not in ("chain", "graph", "parser"):
        assert np.isfinite(data[0]).all()

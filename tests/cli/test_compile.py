"""`maxmargin compile`."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

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


@pytest.mark.parametrize("words", [["nonsense"], ["binary", "--jobs", "0"], ["--solver", "bcwf"]])
def test_wrong_words_are_refused(words, capsys):
    assert run(["compile", *words]) == 2
    assert capsys.readouterr().err


@pytest.mark.parametrize("task", TASKS)
def test_every_task_has_tiny_data_that_fits(task):
    data = tiny_data(task)
    assert 1 <= len(data) <= 2
    assert len(data[0]) == len(data[-1])
    assert ESTIMATORS[task].task == task
    if task not in ("chain", "graph", "parser"):
        assert np.isfinite(data[0]).all()

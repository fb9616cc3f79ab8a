"""Jobs of experiments that other processes can find: squares, and what goes wrong."""

import os
import signal
import time
from pathlib import Path

from maxmargin.errors import DataError
from maxmargin.experiments.experiment import Experiment, Line, Panel, Picture, Table, View, judge


def square(setting, data_home):
    if "log" in setting:
        with open(setting["log"], "a") as stream:
            stream.write(f"{setting['x']}\n")
    return {"y": setting["x"] ** 2, "threads": os.environ.get("OMP_NUM_THREADS")}


def fails(setting, data_home):
    if setting["how"] == "data":
        raise DataError("The data set squares cannot be downloaded; put the file at home/squares.")
    if setting["how"] == "error":
        raise ZeroDivisionError("a division")
    if setting["how"] == "killed":
        # Beside it another setting runs, which is lost with the pool and must be run again.
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGKILL)
    return {"y": 1}


def slow(setting, data_home):
    Path(setting["mark"]).touch()
    time.sleep(setting["seconds"])
    return {"y": 0}


def show(rows):
    x, y = [row.setting["x"] for row in rows], [row.figures["y"] for row in rows]
    panel = Panel("<squares>", "x", "y", [Line("a & b", x, y, y, y), Line("other", x, y, dashed=True)], log_y=True)
    table = Table("A <table>.", ("x", "y"), [[a, b] for a, b in zip(x, y, strict=True)])
    return View(
        [table],
        [Picture("Squares, drawn.", [panel, panel])],
        [judge("It <grows>.", y == sorted(y) if y else None, "See.")],
    )


def experiment(job=square, grid=({"x": (1, 2, 3)},), name="test-squares", **options):
    return Experiment(
        name, "test", "Squares: a test", "What squares do.", job, grid, grid, options.pop("show", show), **options
    )

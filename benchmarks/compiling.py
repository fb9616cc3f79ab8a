"""Where the seconds of a first use go: cold fit and predict of each estimator, and the functions that take longest to compile.

    python benchmarks/compiling.py                       all tasks, each in a process of its own with an empty cache
    python benchmarks/compiling.py --task chain --top 20

Own seconds are those of a function without what it calls. No data is needed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict

TASKS = ("binary", "multi-class", "multi-label", "chain", "graph", "parser")


def fit_and_predict(task: str) -> None:
    from maxmargin.datasets.tiny import tiny_data
    from maxmargin.estimators.loading import TASKS as ESTIMATORS

    data = tiny_data(task)
    model = ESTIMATORS[task](**({"rare": 0} if task == "parser" else {})).fit(*data)
    model.predict([tree.words() for tree in data[0]] if task == "parser" else data[0])


def measure(task: str) -> None:
    """In a process with an empty cache: print seconds and the functions that were compiled."""
    from numba.core import event

    import maxmargin

    class Listener(event.Listener):
        def __init__(self) -> None:
            self.open: list[list[float]] = []
            self.own: dict[str, float] = defaultdict(float)
            self.all: dict[str, float] = defaultdict(float)
            self.count: dict[str, int] = defaultdict(int)

        def on_start(self, event) -> None:
            self.open.append([time.perf_counter(), 0.0])

        def on_end(self, event) -> None:
            began, inside = self.open.pop()
            took = time.perf_counter() - began
            function = event.data["dispatcher"].py_func
            name = f"{function.__module__.removeprefix('maxmargin.')}.{function.__name__}"
            self.own[name] += took - inside
            self.all[name] += took
            self.count[name] += 1
            if self.open:
                self.open[-1][1] += took

    listener = Listener()
    event.register("numba:compile", listener)
    began, worked = time.perf_counter(), time.process_time()
    fit_and_predict(task)
    seconds, worked = time.perf_counter() - began, time.process_time() - worked
    rows = [(own, listener.all[name], listener.count[name], name) for name, own in listener.own.items()]
    found = {"version": maxmargin.__version__, "seconds": seconds, "worked": worked, "rows": sorted(rows, reverse=True)}
    print(json.dumps(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", choices=TASKS, nargs="+", default=TASKS)
    parser.add_argument("--top", type=int, default=8)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        measure(arguments.task[0])
        return
    for task in arguments.task:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, __file__, "--inside", "--task", task]
            environment = os.environ | {"MAXMARGIN_CACHE_DIR": folder}
            times, worked, rows = [], [], []
            for _ in range(2):
                began = time.perf_counter()
                done = subprocess.run(
                    command, env=environment, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
                )
                times.append(time.perf_counter() - began)
                found = json.loads(done.stdout)
                rows = found["rows"] or rows
                times.append(found["seconds"])
                worked.append(found["worked"])
        print(
            f"{task}: first fit and predict {times[1]:.1f} s ({worked[0]:.1f} of a processor, {times[0]:.1f} with imports), "
            f"next process {times[3]:.1f} s ({times[2]:.1f}); {len(rows)} functions compiled"
        )
        for own, inclusive, count, name in rows[: arguments.top]:
            print(f"  {own:6.2f} s own  {inclusive:6.2f} s with calls  {count} x  {name}")


if __name__ == "__main__":
    main()

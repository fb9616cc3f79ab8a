"""Running settings: in several processes, the ones whose seconds count one at a time, and every result kept as soon as it is there.

A setting that fails (its data are missing, an error, a process that was killed) does not stop the others; it is tried again
in the next run.
"""

from __future__ import annotations

import os
import signal
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import NamedTuple, Protocol

from maxmargin.errors import MaxMarginError
from maxmargin.experiments.experiment import Experiment, Figures, Job, Mode, Row, Setting
from maxmargin.experiments.results import ResultsFile

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Failure(NamedTuple):
    """A setting that could not be run, and why."""

    experiment: str
    setting: Setting
    why: str


class Watch(Protocol):
    """Who is told how a run goes on."""

    def start(self, n_settings: int, n_kept: int) -> None:
        """A run of so many settings begins; so many more have been run before."""

    def finished(self, experiment: Experiment, setting: Setting, seconds: float, why: str | None) -> None:
        """A setting has ended; `why` says what went wrong, if anything did."""


class _Task(NamedTuple):
    experiment: Experiment
    setting: Setting


def run_experiments(
    experiments: Sequence[Experiment],
    mode: Mode,
    results: ResultsFile,
    watch: Watch,
    data_home: str | None = None,
    n_jobs: int = 1,
) -> list[Failure]:
    """Run the settings that have no result yet.

    Parameters
    ----------
    experiments : list of Experiment
    mode : "quick" or "full"
    results : ResultsFile
        What is there is not run again; what is run is added.
    watch : Watch
    data_home : str, optional
        The directory of data sets.
    n_jobs : int
        Processes.

    Returns
    -------
    list of Failure
    """
    tasks = [_Task(one, setting) for one in experiments for setting in one.settings(mode)]
    missing = [task for task in tasks if (task.experiment.name, task.setting) not in results]
    watch.start(len(missing), len(tasks) - len(missing))
    failures = []
    together = [task for task in missing if not task.experiment.timed]
    alone = [task for task in missing if task.experiment.timed]
    for part, processes in ((together, n_jobs), (alone, 1)):
        for task, outcome, seconds in _run(part, data_home, processes):
            if isinstance(outcome, str):
                failures.append(Failure(task.experiment.name, task.setting, outcome))
            else:
                results.add(task.experiment.name, Row(task.setting, outcome, seconds))
            watch.finished(task.experiment, task.setting, seconds, outcome if isinstance(outcome, str) else None)
    return failures


def _run(tasks: list[_Task], data_home: str | None, n_jobs: int) -> Iterator[tuple[_Task, Figures | str, float]]:
    """Figures of each task, or why there are none, in the order in which they end."""
    lost: list[_Task] = []
    waiting = list(reversed(tasks))
    while waiting:
        yield from _run_pool(waiting, lost, data_home, n_jobs)
    # When a process is killed all that run are lost; one by one, it is seen whose fault it was.
    for task in lost:
        again: list[_Task] = []
        yield from _run_pool([task], again, data_home, 1)
        if again:
            yield task, "its process was killed, perhaps because the memory did not suffice", 0.0


def _run_pool(
    waiting: list[_Task], lost: list[_Task], data_home: str | None, n_jobs: int
) -> Iterator[tuple[_Task, Figures | str, float]]:
    """Run tasks off the end of a list until it is empty or a process is killed; what ran then is put into `lost`."""
    running: dict[Future[tuple[Figures | str, float]], _Task] = {}
    pool = ProcessPoolExecutor(min(n_jobs, len(waiting)), get_context("spawn"), initializer=_ignore_interrupts)
    threads = {name: os.environ.get(name) for name in _THREADS}
    # Processes inherit this; they share the cores as it is.
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        while waiting or running:
            while waiting and len(running) < n_jobs:
                task = waiting.pop()
                running[pool.submit(_work, task.experiment.job, task.setting, data_home)] = task
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                task = running.pop(future)
                try:
                    outcome, seconds = future.result()
                except BrokenProcessPool:
                    lost += [task, *running.values()]
                    return
                yield task, outcome, seconds
    except BrokenProcessPool:
        lost += [task, *running.values()]
    finally:
        # Also when the caller is interrupted: nobody waits for what is not wanted any more.
        for process in list((pool._processes or {}).values()):
            process.terminate()
        pool.shutdown(wait=False, cancel_futures=True)
        for name, value in threads.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


def _ignore_interrupts() -> None:
    """Ctrl-C reaches all processes of a terminal; this one is ended by the one that started it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _work(job: Job, setting: Setting, data_home: str | None) -> tuple[Figures | str, float]:
    """One setting, in a process of its own."""
    warnings.simplefilter("ignore")
    began = time.perf_counter()
    try:
        outcome: Figures | str = job(setting, data_home)
    except MaxMarginError as error:
        outcome = str(error)
    except Exception as error:
        outcome = f"{type(error).__name__}: {error}"
    return outcome, time.perf_counter() - began

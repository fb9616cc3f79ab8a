"""``maxmargin compile``: compile the kernels that tasks use, before anybody waits for them."""

from __future__ import annotations

import argparse
import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from maxmargin.cli.exits import DONE, INTERRUPTED, PROCESS_LOST, print_json, say
from maxmargin.cli.names import SOLVERS, TASKS, one_of
from maxmargin.signals import StopSignal

SUMMARY = "compile kernels ahead, for a container image or a shared machine"
DESCRIPTION = (
    "Fits and predicts on a few examples of each TASK, in as many processes as there are cores, so that the kernels are compiled "
    "and kept (MAXMARGIN_CACHE_DIR says where). What is kept serves all environments with the same versions on the same kind of "
    "processor. Features in single precision and kernels on features are compiled when they are first used."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument(
        "tasks", metavar="TASK", nargs="*", type=one_of("task", TASKS), help=f"by default all: {', '.join(TASKS)}"
    )
    parser.add_argument(
        "--solver",
        metavar="NAME",
        action="append",
        type=one_of("solver", ("all", *SOLVERS)),
        help="a solver beside the default one of each task; may be repeated; 'all' takes long",
    )
    parser.add_argument("--jobs", type=int, metavar="N", help="processes; by default one for each core")
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(args: argparse.Namespace) -> int:
    """Compile, show what is being done, and say what there is."""
    from concurrent.futures import BrokenExecutor

    try:
        return _run(args)
    except StopSignal as stop:
        say(f"Stopped by {stop}; what has been compiled is kept.")
        return 128 + stop.number
    except KeyboardInterrupt:
        say("Interrupted; what has been compiled is kept.")
        return INTERRUPTED
    except BrokenExecutor:
        say(
            "A process that was compiling has been killed, perhaps because memory ran out; what has been compiled is kept. "
            "Fewer processes take less memory: --jobs 1."
        )
        return PROCESS_LOST


def _run(args: argparse.Namespace) -> int:
    from concurrent.futures import as_completed

    from maxmargin.errors import OptionError
    from maxmargin.jit import describe_cache
    from maxmargin.parallel.threads import n_cores

    if args.jobs is not None and args.jobs < 1:
        raise OptionError(f"--jobs is {args.jobs}; at least one process is needed.")
    named = args.solver or []
    solvers = ("auto", *(SOLVERS if "all" in named else dict.fromkeys(named)))
    # The default solvers first; of those that are named, the ones that a task cannot use are passed over.
    work = [(task, solver) for solver in solvers for task in args.tasks or TASKS]
    processes = min(len(work), args.jobs or n_cores())
    began, seconds, unfit = time.perf_counter(), {}, []
    with _pool(processes) as pool, _bar(len(work), processes) as step:
        with _uninterrupted():
            waiting = {pool.submit(_compile, *one): one for one in work}
        for done in as_completed(waiting):
            task, solver = waiting[done]
            name = task if solver == "auto" else f"{task} {solver}"
            took = done.result()
            if took is None:
                unfit.append(name)
            else:
                seconds[name] = took
            step(name)
    took = time.perf_counter() - began
    if args.json:
        print_json({"seconds": took, "compiled": seconds, "cannot": unfit, "kept": describe_cache()})
        return DONE
    print(
        f"{len(seconds)} fits in {took:.1f} s, of which {sum(seconds.values()):.1f} s were compilation ({processes} processes)."
    )
    for name in unfit:
        print(f"{name}: the solver is not for this task")
    print(f"Compiled kernels: {describe_cache()}")
    return DONE


@contextlib.contextmanager
def _pool(processes: int) -> Iterator[Any]:
    """Fresh processes, because threads and compiled code do not survive a fork; whatever goes wrong ends them at once."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import active_children, get_context

    others = active_children()
    pool = ProcessPoolExecutor(processes, mp_context=get_context("spawn"))
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in active_children():
            if process not in others:
                process.terminate()
        raise
    finally:
        pool.shutdown()


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ignore Ctrl-C, as processes that are started meanwhile then do for good: a terminal sends it to them, too."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _compile(task: str, solver: str) -> float | None:
    """Seconds of compilation that a fit and a prediction took; None where the solver is not for the task."""
    import warnings

    from maxmargin import jit
    from maxmargin.datasets.tiny import further_data, tiny_data
    from maxmargin.errors import OptionError
    from maxmargin.estimators.loading import TASKS as ESTIMATORS

    warnings.simplefilter("ignore")
    jit.silence()
    before, options = jit.compile_seconds(), {"rare": 0} if task == "parser" else {}
    for data in tiny_data(task), *further_data(task):
        try:
            model = ESTIMATORS[task](solver=solver, C=1.0, max_passes=20, **options).fit(*data)
        except OptionError:
            return None
        model.predict([tree.words() for tree in data[0]] if task == "parser" else data[0])
    return jit.compile_seconds() - before


@contextlib.contextmanager
def _bar(total: int, processes: int) -> Iterator[Callable[[str], None]]:
    """A progress bar in a terminal, a line for each step elsewhere; both on the standard error."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda name: say(f"{name}: done")
        return
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task(f"compiling in {processes} processes", total=total)
        yield lambda name: bar.update(task, advance=1, description=name)

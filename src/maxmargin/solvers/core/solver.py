"""A solver: an algorithm's name and options, what it asks of a problem, and `solve`, the main loop.

`Solver.solve` makes a `Run`, which holds the problem's arrays and does the work (run.py), and goes on until there is a reason to
stop (loop.py).

Limits
------
Seconds are those of `jit.clock`, which stands still while kernels are compiled. `max_seconds` counts from the call of `solve`.
When they are over, or Ctrl-C is pressed, the pass ends at the next example (parallel/threads.py), and a last check has one second
more. A check that does not end by then is given up: what was certified before stays. A run that has no complete check at all
says what is known of w = 0 without inference, or that it knows nothing (a primal of inf).
"""

from __future__ import annotations

import inspect
import math
import numbers
import os
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from maxmargin import jit
from maxmargin.errors import OptionError
from maxmargin.parallel.threads import n_threads
from maxmargin.problems.columns import columns_of
from maxmargin.problems.factor_graphs import FactorGraphs
from maxmargin.solvers.core.capabilities import OBJECTIVES, check_fit
from maxmargin.solvers.core.loop import Checkpoint, Limits, first_state, main_loop, outcome
from maxmargin.solvers.core.monitor import Monitor, Silent
from maxmargin.solvers.core.result import Result, Status
from maxmargin.solvers.core.run import Run


def checked_number(name: str, value: Any, expected: str, zero: bool, infinite: bool) -> float:
    """A parameter as a float that is not negative; refuses all else, and whole numbers that no float can hold."""
    try:
        number = float(value) if isinstance(value, numbers.Real) else math.nan
    except OverflowError:
        number = math.nan
    if not (number > 0.0 or (zero and number == 0.0)) or (math.isinf(number) and not infinite):
        raise OptionError(f"{name}={value!r} is not possible; it must be {expected}.")
    return number


class Solver(ABC):
    """An algorithm and its options; what is stored by the constructor is all there is."""

    name = ""
    #: What a solver asks of a problem (capabilities.py): "local scores", "max-oracle" or "marginals".
    requires: tuple[str, ...] = ()
    #: The words that its results may have for what was certified, what it keeps in memory, and who published it.
    certificates: tuple[str, ...] = ("none",)
    keeps = ""
    paper = ""
    #: What it minimises: the mean hinge, the negative log-likelihood, or either, as its option `objective` says.
    objectives: tuple[str, ...] = ("margin",)
    #: Whether a state fits other data on the same graphs, too. A run on anything else begins afresh.
    portable = False
    #: Whether a state fits the same data with other weights of the examples.
    reweightable = False
    #: Whether it can train on features that are known by a kernel alone; and if the matrix is never held whole (`KernelBlocks`).
    kernels = False
    kernel_blocks = False
    #: The objectives that it trains with a kernel, if it does so at all.
    kernel_objectives: tuple[str, ...] = OBJECTIVES
    #: Whether it can keep weights at a sign (`FactorGraphs.signs`).
    signs = False
    #: Whether it reads the task loss of single states, which large problems do not keep (`FactorGraphs.costs`).
    loss_tables = True
    #: Whether it works in columns of sparse features in the order of their use (problems/columns.py), and its states are of those.
    orders_columns = False
    #: Whether it works on all examples at once, and can do so on a GPU; and where it works (devices/).
    on_devices = False
    device = "cpu"
    #: Whether it visits one example after another and can go on with others (`solvers.online.stream`).
    streams = False
    #: Why this solver was chosen.
    reason = "as asked"

    def __repr__(self) -> str:
        known = inspect.signature(type(self)).parameters
        given = (
            f"{name}={value!r}"
            for name, value in vars(self).items()
            if name in known and value is not known[name].default and value != known[name].default
        )
        return f"{type(self).__name__}({', '.join(given)})"

    def options(self) -> dict[str, Any]:
        """The constructor's parameters, an engine by its name."""
        return {name: getattr(value, "name", value) for name, value in vars(self).items()}

    @abstractmethod
    def check_options(self, problem: Any) -> None:
        """Refuse, in a sentence, options that cannot be, or a problem that this solver cannot do.

        Parameters
        ----------
        problem : problem
            What would be trained.
        """

    @abstractmethod
    def make_run(self, problem: Any, lam: float, random_state: Any, threads: int) -> Run[Any]:
        """What does the work.

        Parameters
        ----------
        problem : problem
            What is trained.
        lam : float
            1 / C.
        random_state : int, Generator, RandomState or None
            Seed.
        threads : int
            Threads.
        """

    def solve(
        self,
        problem: Any,
        C: float = 1.0,
        tol: float = 1e-3,
        max_passes: int = 1000,
        max_seconds: float | None = None,
        random_state: int | np.random.Generator | np.random.RandomState | None = 0,
        n_jobs: int | None = None,
        monitor: Monitor | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        state: Any = None,
    ) -> Result:
        """Train on a problem.

        Parameters
        ----------
        problem : FactorGraphs or oracle problem
            With labels.
        C : float
            lam = 1 / C.
        tol : float
            Certified gap to stop at, in units of the task loss.
        max_passes, max_seconds : int, float
            Other reasons to stop; seconds of the algorithm and its monitoring, not of compilation. They are kept to within a second
            or one call of the oracle for one example, whichever is longer.
        random_state : int, generator or None
        n_jobs : int
            Threads; results do not depend on it.
        monitor : Monitor
        checkpoint : path or Checkpoints
            File to write the state to from time to time, and to resume from if it is there; `core.checkpoint.Checkpoints` says
            how often.
        state : State
            State of an earlier run on a problem of the same shape, to start from; C may differ.
        """
        C = checked_number("C", C, "a finite number above 0", zero=False, infinite=False)
        tol = checked_number("tol", tol, "a number that is not negative", zero=True, infinite=True)
        if max_seconds is not None:
            expected = "a number that is not negative, or None"
            max_seconds = checked_number("max_seconds", max_seconds, expected, zero=True, infinite=True)
        if not isinstance(max_passes, int | np.integer) or not 1 <= max_passes < 2**63:
            raise OptionError(f"max_passes={max_passes!r} is not possible; it must be a whole number of at least 1.")
        compiled = jit.compile_seconds()
        limits = Limits(tol, max_passes, max_seconds)
        if not getattr(problem, "has_labels", True):
            raise OptionError("This problem has no labels to learn from.")
        check_fit(self, problem)
        self.check_options(problem)
        if self.loss_tables and isinstance(problem, FactorGraphs):
            problem = problem.with_loss_tables()
        # Signs are those of the problem's own columns.
        free = getattr(problem, "signs", None) is None
        columns = columns_of(problem, threads=n_threads(n_jobs)) if self.orders_columns and free else None
        problem = problem if columns is None else columns.inside
        run = self.make_run(problem, 1.0 / C, random_state, n_threads(n_jobs))
        run.tol, run.max_passes, run.watched = tol, max_passes, monitor is not None
        # A run may have put the columns in an order by itself.
        run.columns = run.columns if columns is None else columns
        talk: Monitor = monitor or Silent()
        file = Checkpoint(run, checkpoint, {**self.options(), "C": C, "seed": run.seed})
        now = file.state()
        status = None
        if now is None:
            now = first_state(run, state, limits)
        else:
            status = run.verdict(now, tol, max_passes)
            if status is not None and now.n_passes not in now.history.get("n_passes", []):
                run.check(now, off_schedule=True)
                status = run.verdict(now, tol, max_passes)
        talk.start(self.name, max_passes, tol)
        try:
            status = status or main_loop(run, now, limits, talk, file)
        except KeyboardInterrupt:
            # Pressed twice, or where the signal is not ours: what was certified before still holds.
            if not math.isfinite(now.primal):
                raise
            status = Status.INTERRUPTED
        result = outcome(run, now, status, limits)
        result.weights = run.outside(result.weights)
        result.compile_seconds = jit.compile_seconds() - compiled
        talk.stop(result.summary())
        return result

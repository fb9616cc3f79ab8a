"""Shards of examples over Python threads; kernels release the interpreter lock.

Shards depend on the examples alone, and each gives, or writes, its own part of the output, so results do not depend on
the number of threads.

A limit of time or Ctrl-C reaches long loops through `stopping`: inside it, `pause`, which loops over examples call between two of
them, raises `Stopped` once the question whether to stop is answered with yes. Only questions to oracles pause, which change
nothing that a solver keeps but what is right whenever they end.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar, cast

import numpy as np

from maxmargin.errors import OptionError

T = TypeVar("T")

_SHARDS = 16
#: Numbers in the rows of a range.
_ROWS = 1 << 18
_question: ContextVar[Callable[[], bool] | None] = ContextVar("maxmargin_stop", default=None)


class Stopped(BaseException):
    """Someone asked to stop, and the answer is not complete; like KeyboardInterrupt, no error of a user's code."""


@contextmanager
def stopping(stop: Callable[[], bool]) -> Iterator[None]:
    """Let `stop` end the loops that pause."""
    token = _question.set(stop)
    try:
        yield
    finally:
        _question.reset(token)


def asked_to_stop() -> bool:
    """Whether to stop as soon as possible."""
    stop = _question.get()
    return stop is not None and stop()


def pause() -> None:
    """Raise `Stopped` if that is asked for."""
    if asked_to_stop():
        raise Stopped


def n_threads(n_jobs: int | None) -> int:
    """Number of threads: None is 1, -1 is every core that this process may use, -2 all but one, and so on."""
    if n_jobs is None:
        return 1
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, int | np.integer) or n_jobs == 0:
        raise OptionError(f"n_jobs={n_jobs!r} is not possible; use a whole number above 0, or -1 for all cores.")
    return int(n_jobs) if n_jobs > 0 else max(1, n_cores() + 1 + int(n_jobs))


def n_cores() -> int:
    """Cores that this process may use; in a container, as many as it was given."""
    # joblib comes with scikit-learn, and takes long to import.
    from joblib import cpu_count

    return int(cpu_count())


def run_shards(function: Callable[[int, int], None], n_examples: int, threads: int) -> None:
    """Call function(begin, end) for consecutive shards that cover all examples."""
    if threads <= 1:
        function(0, n_examples)
        return
    cuts = np.linspace(0, n_examples, min(_SHARDS, n_examples) + 1).astype(int).tolist()
    map_shards(function, list(itertools.pairwise(cuts)), threads)


def map_shards(
    function: Callable[[int, int], T], shards: Sequence[tuple[int, int]], threads: int, pausing: bool = False
) -> list[T]:
    """Call function(begin, end) for every shard; the answers are in the order of the shards.

    The error of the first shard that has one is raised, and shards that have not begun by then never do. With `pausing`, a
    request to stop is such an error.
    """
    if pausing and _question.get() is not None:
        return map_shards(_pausing(function), shards, threads)
    if threads <= 1 or len(shards) <= 1:
        return [function(begin, end) for begin, end in shards]
    # Imported here, since it needs Numba.
    from maxmargin.parallel.team import in_threads

    answers: list[T | None] = [None] * len(shards)
    errors: dict[int, BaseException] = {}
    numbers = iter(range(len(shards)))

    def work() -> None:
        for number in numbers:
            if errors:
                return
            try:
                answers[number] = function(*shards[number])
            except BaseException as error:
                errors[number] = error

    in_threads(work, [work] * (min(threads, len(shards)) - 1))
    if errors:
        raise errors[min(errors)]
    return cast(list[T], answers)


def map_rows(function: Callable[[int, int], T], shape: tuple[int, ...], threads: int) -> list[T]:
    """Call function(begin, end) for ranges of the rows of a matrix, which do not depend on the threads; the answers in order."""
    size = max(1, _ROWS // max(1, shape[1]))
    return map_shards(function, [(k, min(k + size, shape[0])) for k in range(0, shape[0], size)], threads)


def _pausing(function: Callable[[int, int], T]) -> Callable[[int, int], T]:
    # Threads of the pool have a context of their own.
    stop = _question.get()
    assert stop is not None

    def call(begin: int, end: int) -> T:
        with stopping(stop):
            pause()
            return function(begin, end)

    return call

"""Batches: examples that are visited at the same weights, in threads, before what they found is written.

A solver that visits one example after the other, each at the weights that the last one left, has nothing that threads could
share. Examples of a small batch are visited side by side instead (frank_wolfe/visits.py says what keeps their moves from adding
up to too much), and the moves of all are written before the next batch. Batches depend on the problem and the number of
the pass alone, and so do the bits of a run, whatever the number of threads.

Each thread has weights of its own, and writes the moves of all into them: what one core writes and another reads has to travel
between their caches, which takes longer than to write it twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from maxmargin.jit import inner, kernel
from maxmargin.parallel.lines import zeros_in_lines
from maxmargin.parallel.threads import map_shards

#: A batch is this share of the examples, and so many, at most. Weights change fast in the first passes, whose batches are small:
#: beginning with so many examples, they double every other pass.
BATCH_SHARE, LARGEST_BATCH, FIRST_BATCH = 1 / 400, 16, 4
#: Bytes of weights of their own that helpers may have, at most, and weights that a thread copies at a time.
_COPIES, _COPIED = 1 << 29, 1 << 18
#: The sums of what is measured of the overlap of moves keep so much of what was before; the overlap until then.
_KEPT, _OVERLAP = 0.98, 0.1
#: Walks in a row to which a helper is late that are told apart: after so many it is done without for 2^_STRIKES - 2.
_STRIKES = 5

R = TypeVar("R")
Weights = tuple[NDArray[np.float64] | None, ...]


def batch_size(n_examples: int, n_passes: int) -> int:
    """Examples that are visited together in a pass."""
    return max(1, min(int(BATCH_SHARE * n_examples), LARGEST_BATCH, FIRST_BATCH << min(n_passes // 2, 10)))


def n_copies(threads: int, size: int) -> int:
    """Threads beside the leader that may have weights of their own, of so many bytes."""
    return min(threads - 1, _COPIES // max(1, size))


class Attendance:
    """Whether to count on a helper: one that comes late, since the machine has other work, is done without for some walks, ever
    more of them until it keeps up.
    """

    def __init__(self) -> None:
        self.strikes = self.walks_off = 0

    def is_due(self) -> bool:
        """Whether it takes part in the next walk."""
        self.walks_off -= 1
        return self.walks_off < 0

    def note(self, kept_up: bool) -> None:
        """Take note of a walk that it took part in."""
        self.strikes = 0 if kept_up else min(self.strikes + 1, _STRIKES)
        self.walks_off = (1 << self.strikes) - 2 if self.strikes else 0


class Helper(Generic[R]):
    """What one thread works with that visits examples beside the one that leads: room, and weights of its own.

    Parameters
    ----------
    room : object
        Room to work in.
    """

    def __init__(self, room: R) -> None:
        self.room = room
        self.weights: Weights = ()
        #: Whether its weights are those of the leader.
        self.current = False
        self.attendance = Attendance()


class Helpers(Generic[R]):
    """The threads that visit examples beside the one that leads.

    Parameters
    ----------
    threads : int
        Threads, the leader among them.
    make_room : function
        Room for one thread.
    """

    def __init__(self, threads: int, make_room: Callable[[], R]) -> None:
        self.threads, self.make_room = threads, make_room
        self.all: list[Helper[R]] = []

    def take(self, n: int) -> list[Helper[R]]:
        """The first n of them, kept from call to call."""
        while len(self.all) < n:
            self.all.append(Helper(self.make_room()))
        return self.all[:n]

    def outdate(self) -> None:
        """The leader's weights have changed."""
        for one in self.all:
            one.current = False

    def for_walk(self, most: int, *weights: NDArray[np.float64] | None) -> list[Helper[R]]:
        """Those, at most so many, that take part in a walk that changes the weights, each with a copy that is up to date."""
        n = n_copies(self.threads, sum(w.nbytes for w in weights if w is not None))
        chosen = [one for one in self.take(n) if one.attendance.is_due()][:most]
        pairs: list[tuple[NDArray[np.float64], NDArray[np.float64]]] = []
        for one in chosen:
            if not one.weights:
                one.weights = tuple(None if w is None else zeros_in_lines(w.shape) for w in weights)
            if not one.current:
                both = zip(one.weights, weights, strict=True)
                pairs += [(own, w) for own, w in both if own is not None and w is not None]
        if pairs:
            size = max(1, _COPIED // max(w.shape[1] for _, w in pairs))

            def copy(begin: int, end: int) -> None:
                for own, w in pairs:
                    own[begin:end] = w[begin:end]

            rows = max(len(w) for _, w in pairs)
            map_shards(copy, [(first, first + size) for first in range(0, rows, size)], self.threads)
        for one in chosen:
            one.current = True
        return chosen

    def note(self, chosen: Sequence[Helper[R]], kept_up: Sequence[bool]) -> None:
        """Take note of who took part in a walk, and whether each wrote all of its moves."""
        self.outdate()
        for one, current in zip(chosen, kept_up, strict=True):
            one.current = current
            one.attendance.note(current)


# ------------------------------------------------------------------------------------------------------- kernels


@kernel
def in_batches(order: Any, size: int, n_examples: int) -> Any:
    """Places of the order, in batches of some size that have each example once, and where they begin: repeats go to later ones."""
    n, places, starts, last = len(order), np.empty(len(order), np.int64), [0], np.full(n_examples, -1)
    later, n_later, read, filled = np.empty(n, np.int64), 0, 0, 0
    while filled < n:
        batch, end, kept = len(starts), filled + size, 0
        for i in range(n_later):
            k = later[i]
            if filled < end and last[order[k]] != batch:
                last[order[k]], places[filled] = batch, k
                filled += 1
            else:
                later[kept] = k
                kept += 1
        n_later = kept
        while filled < end and read < n:
            if last[order[read]] != batch:
                last[order[read]], places[filled] = batch, read
                filled += 1
            else:
                later[n_later] = read
                n_later += 1
            read += 1
        starts.append(filled)
    return places, np.array(starts)


@inner
def part_start(starts: Any, b: int, part: int, n_parts: int) -> int:
    """Where a part of batch b begins, and the one before it ends."""
    return int(starts[b] + (starts[b + 1] - starts[b]) * part // n_parts)


@inner
def overlap_share(overlap: Any) -> float:
    """Of the curvature along a move, what it has with another's, by what was measured so far."""
    return float(overlap[0] / overlap[1]) if overlap[1] > 0.0 else _OVERLAP


@inner
def note_overlap(overlap: Any, size: int, between: float, along: float) -> None:
    """Take note of the curvature between one example's move and those of the others, and along its own.

    Moves that work against each other count as having nothing in common: others will not.
    """
    overlap[0] = _KEPT * overlap[0] + max(between, 0.0) / (size - 1)
    overlap[1] = _KEPT * overlap[1] + along

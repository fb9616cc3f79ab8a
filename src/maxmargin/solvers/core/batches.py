"""Batches: examples that are visited at the same weights, in threads, before what they found is written.

A solver that visits one example after the other, each at the weights that the last one left, has nothing that threads could
share. Examples of a small batch are visited side by side instead (frank_wolfe/visits.py says what keeps their moves from adding
up to too much), and the moves of all are written when the last one is found. Batches depend on the problem and the number of
the pass alone, and so do the bits of a run, whatever the number of threads.

Each thread has weights of its own, and writes the moves of all into them: what one core writes and another reads has to travel
between their caches, which takes longer than to write it twice. Measured on two cores between which a line takes 170 ns, words of
8 letters, batches of 16: 1.4 times as fast as one thread, and at most 1.1 times with weights that threads share.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from maxmargin.jit import inner, kernel
from maxmargin.parallel.lines import zeros_in_lines
from maxmargin.parallel.threads import map_shards

#: A batch is this share of the examples, and so many, at most. Weights change fast in the first passes, whose batches are small:
#: beginning with so many examples, they double every other pass.
BATCH_SHARE, LARGEST_BATCH, FIRST_BATCH = 1 / 800, 16, 4
#: Bytes of weights of their own that helpers may have, at most, and weights that a thread copies at a time.
_COPIES, _COPIED = 1 << 29, 1 << 18
#: The sums of what is measured of the overlap of moves keep so much of what was before; the overlap until then.
_KEPT, _OVERLAP = 0.98, 0.1

R = TypeVar("R")


def batch_size(n_examples: int, n_passes: int) -> int:
    """Examples that are visited together in a pass."""
    return max(1, min(int(BATCH_SHARE * n_examples), LARGEST_BATCH, FIRST_BATCH << min(n_passes // 2, 10)))


def n_copies(threads: int, size: int) -> int:
    """Threads beside the leader that may have weights of their own, of so many bytes."""
    return min(threads - 1, _COPIES // max(1, size))


class Helpers(Generic[R]):
    """What threads work with that visit examples beside the one that leads: room, and weights of their own.

    Parameters
    ----------
    threads : int
        Threads, the leader among them.
    make_room : function
        Room for one thread.
    """

    def __init__(self, threads: int, make_room: Callable[[], R]) -> None:
        self.threads, self.make_room = threads, make_room
        self.rooms: list[R] = []
        self.weights: list[tuple[NDArray[np.float64] | None, ...]] = []
        #: Whether their weights are those of the leader.
        self.current = False

    def take(self, n: int) -> list[R]:
        """Room for n of them, kept from call to call."""
        while len(self.rooms) < n:
            self.rooms.append(self.make_room())
        return self.rooms[:n]

    def with_weights(self, *weights: NDArray[np.float64] | None) -> int:
        """How many there may be with weights of their own, which are brought up to date, in threads."""
        given = [w for w in weights if w is not None]
        n = n_copies(self.threads, sum(w.nbytes for w in given))
        while len(self.weights) < n:
            self.weights.append(tuple(None if w is None else zeros_in_lines(w.shape) for w in weights))
            self.current = False
        if n > 0 and not self.current:
            pairs = [
                (own, w)
                for one in self.weights[:n]
                for own, w in zip(one, weights, strict=True)
                if own is not None and w is not None
            ]
            size = max(1, _COPIED // max(w.shape[1] for w in given))

            def copy(begin: int, end: int) -> None:
                for own, w in pairs:
                    own[begin:end] = w[begin:end]

            rows = max(map(len, given))
            map_shards(copy, [(first, first + size) for first in range(0, rows, size)], self.threads)
        self.current = True
        return n


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
def stiffness(overlap: Any, size: int) -> float:
    """How many times its own curvature a block in a batch of some size meets, by the overlap that was measured."""
    share = overlap[0] / overlap[1] if overlap[1] > 0.0 else _OVERLAP
    return 1.0 + (size - 1) * share


@inner
def note_overlap(overlap: Any, size: int, between: float, along: float) -> None:
    """Take note of the curvature between one example's move and those of the others, and along its own.

    Moves that work against each other count as having nothing in common: others will not.
    """
    overlap[0] = _KEPT * overlap[0] + max(between, 0.0) / (size - 1)
    overlap[1] = _KEPT * overlap[1] + along

"""Sums and products of long vectors, in threads.

Weights of text have millions of entries, and what NumPy does to them in one thread takes as long as the oracle in two. Vectors are
cut into ranges of a fixed length, so that the bits do not depend on the threads; no BLAS, whose number of threads would change
them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.jit import kernel
from maxmargin.parallel.threads import map_shards

#: Entries of a range.
_RANGE = 1 << 18


def ranges(n: int) -> list[tuple[int, int]]:
    """The ranges of a vector."""
    return [(low, min(low + _RANGE, n)) for low in range(0, n, _RANGE)]


def blend(
    step: float, x: NDArray[np.float64], y: NDArray[np.float64], out: NDArray[np.float64], threads: int
) -> NDArray[np.float64]:
    """Write (1 - step) x + step y to out."""
    map_shards(lambda low, high: _blend(step, x, y, out, low, high), ranges(len(x)), threads)
    return out


def erase(x: NDArray[np.float64], threads: int) -> None:
    """Write zeros to x."""
    map_shards(lambda low, high: _erase(x, low, high), ranges(len(x)), threads)


def inner_product(x: NDArray[np.float64], y: NDArray[np.float64], threads: int) -> float:
    """The inner product x . y."""
    return float(sum(map_shards(lambda low, high: _dot(x, y, low, high), ranges(len(x)), threads)))


def nonzeros(x: NDArray[np.float64], scale: float, threads: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Where x is not zero, and scale times its entries there."""
    pieces = ranges(len(x))
    counts = map_shards(lambda low, high: int(_count(x, low, high)), pieces, threads)
    starts = np.concatenate([[0], np.cumsum(counts)])
    index, value = np.empty(starts[-1], np.int64), np.empty(starts[-1])
    map_shards(lambda low, high: _collect(x, scale, low, high, starts[low // _RANGE], index, value), pieces, threads)
    return index, value


@kernel
def _blend(step: float, x: Any, y: Any, out: Any, low: int, high: int) -> None:
    for i in range(low, high):
        out[i] = (1.0 - step) * x[i] + step * y[i]


@kernel
def _erase(x: Any, low: int, high: int) -> None:
    x[low:high] = 0.0


@kernel
def _dot(x: Any, y: Any, low: int, high: int) -> float:
    # Four sums: one would wait for itself.
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    whole = low + (high - low) // 4 * 4
    for i in range(low, whole, 4):
        a += x[i] * y[i]
        b += x[i + 1] * y[i + 1]
        c += x[i + 2] * y[i + 2]
        d += x[i + 3] * y[i + 3]
    for i in range(whole, high):
        a += x[i] * y[i]
    return a + b + (c + d)


@kernel
def _count(x: Any, low: int, high: int) -> int:
    count = 0
    for i in range(low, high):
        count += x[i] != 0.0
    return count


@kernel
def _collect(x: Any, scale: float, low: int, high: int, at: int, index: Any, value: Any) -> None:
    for i in range(low, high):
        if x[i] != 0.0:
            index[at], value[at] = i, scale * x[i]
            at += 1


@kernel
def sparse_dot(index: Any, value: Any, dense: Any) -> float:
    """The inner product of a sparse vector with a dense one."""
    total = 0.0
    for e in range(len(index)):
        total += value[e] * dense[index[e]]
    return total


@kernel
def scatter(index: Any, value: Any, dense: Any) -> None:
    """Write the entries of a sparse vector into a dense one."""
    for e in range(len(index)):
        dense[index[e]] = value[e]


@kernel
def clear(index: Any, dense: Any) -> None:
    """Write zeros where a sparse vector has entries."""
    for e in range(len(index)):
        dense[index[e]] = 0.0

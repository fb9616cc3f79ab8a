"""A cache of the last planes of each example, from which cutting planes are put together without the oracle.

T. Joachims, T. Finley and C.-N. Yu, Cutting-Plane Training of Structural SVMs, Machine Learning 77, 2009, section 4 (constraint
caching). A plane is a list of (key, at, value), as joint_plane.py explains; examples are dealt to fixed shards, each with a
segment of the arena of its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.jit import Struct, inner, kernel


class PlaneCache(Struct):
    """The last planes of M examples, at most f each."""

    #: (M,): planes in use; (M, f): constant, where the entries begin, how many there are, the round that last had use for it.
    n_planes: NDArray[np.int32]
    ell: NDArray[np.float64]
    start: NDArray[np.int64]
    size: NDArray[np.int32]
    used: NDArray[np.int32]
    #: The arena, and how much of each shard's segment of it is filled.
    key: NDArray[np.int64]
    at: NDArray[np.int32]
    value: NDArray[np.float64]
    segment: NDArray[np.int64]
    filled: NDArray[np.int64]

    @classmethod
    def empty(cls, n: int, capacity: int, n_shards: int, room: int) -> PlaneCache:
        """No planes; room for some entries in each shard."""
        shape, segment = (n, capacity), np.arange(n_shards + 1) * room
        return cls(
            np.zeros(n, np.int32), np.zeros(shape), np.zeros(shape, np.int64), np.zeros(shape, np.int32),
            np.zeros(shape, np.int32), np.empty(n_shards * room, np.int64), np.empty(n_shards * room, np.int32),
            np.empty(n_shards * room), segment, segment[:-1].copy(),
        )  # fmt: skip

    def with_room(self, shards: list[tuple[int, int]], widest: int) -> PlaneCache:
        """The same planes without the entries of dropped ones, and room for as much again, and one more plane, in each shard."""
        live = np.where(np.arange(self.ell.shape[1]) < self.n_planes[:, None], self.size, 0).sum(axis=1)
        room = [2 * int(live[begin:end].sum()) + widest for begin, end in shards]
        segment = np.concatenate([[0], np.cumsum(np.maximum(room, np.diff(self.segment)))])
        made = self._replace(
            start=np.zeros_like(self.start), key=np.empty(segment[-1], np.int64),
            at=np.empty(segment[-1], np.int32), value=np.empty(segment[-1]), segment=segment, filled=segment[:-1].copy(),
        )  # fmt: skip
        for s, (begin, end) in enumerate(shards):
            _compact(self, made, s, begin, end)
        return made

    @property
    def nbytes(self) -> int:
        """Bytes in all."""
        return int(sum(array.nbytes for array in self))


class Turn(Struct):
    """A round over the cache: its number, the shard at work; for all examples the plane picked (-1 is the truth) and the hinge."""

    now: int
    shard: int
    picks: NDArray[np.int32]
    hinges: NDArray[np.float64]


@kernel
def _compact(old: Any, new: Any, shard: int, begin: int, end: int) -> None:
    at = new.segment[shard]
    for m in range(begin, end):
        for a in range(old.n_planes[m]):
            new.start[m, a] = at
            for e in range(old.start[m, a], old.start[m, a] + old.size[m, a]):
                new.key[at], new.at[at], new.value[at] = old.key[e], old.at[e], old.value[e]
                at += 1
    new.filled[shard] = at


@inner
def keep_plane(cache: Any, turn: Any, m: int, n: int, key: Any, index: Any, value: Any, ell: float) -> int:
    """Put a plane of n entries into the cache, in the place of the one least recently used; returns its slot, -1 if full."""
    n_planes, c_ell, c_start, c_size, c_used, c_key, c_at, c_value, filled = (
        cache.n_planes, cache.ell, cache.start, cache.size, cache.used, cache.key, cache.at, cache.value, cache.filled,
    )  # fmt: skip
    now, shard = turn.now, turn.shard
    for a in range(n_planes[m]):
        if c_size[m, a] == n and c_ell[m, a] == ell:
            same, at = True, c_start[m, a]
            for e in range(n):
                if c_key[at + e] != key[e] or c_value[at + e] != value[e]:
                    same = False
                    break
            if same:
                c_used[m, a] = now
                return a
    at = filled[shard]
    if at + n > cache.segment[shard + 1]:
        return -1
    slot = n_planes[m]
    if slot == c_ell.shape[1]:
        slot = 0
        for a in range(1, n_planes[m]):
            if c_used[m, a] < c_used[m, slot]:
                slot = a
    else:
        n_planes[m] += 1
    c_ell[m, slot], c_start[m, slot], c_size[m, slot], c_used[m, slot] = ell, at, n, now
    for e in range(n):
        c_key[at + e], c_at[at + e], c_value[at + e] = key[e], index[e], value[e]
    filled[shard] = at + n
    return int(slot)

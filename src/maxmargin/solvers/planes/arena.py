"""Planes that are kept: the labelings found for each example, in one arena; and the block step over them.

Block-coordinate Frank-Wolfe and n-slack cutting planes keep planes with masses, and the cache of one-slack cutting planes keeps
them without. Example m has a *block* of the dual: a distribution alpha_m over its planes (statistics.py), of which the first is
always the truth, psi = 0 and ell = 0. With kappa_m = weight_m / (lam M),

    w = sum_m kappa_m sum_a alpha_m(a) psi_a,       f = 1/M sum_m weight_m alpha_m . ell_m - lam/2 |w|^2
    v_a = ell_a - w . psi_a                         the slope of f along a, but for weight_m / M
    v_a -= kappa_m t (psi_a . (psi_b - psi_c))      when mass t moves from plane c to plane b

so with the inner products of its planes a block is improved in numbers of its own, and w is written once at the end.

An example has a range of *slots*, `capacity` of them from `first` on, one for each plane, and where inner products are kept a
square of so many rows and columns of them. Planes are sparse: entries are coordinates and values, coordinates of the example's
statistics or of the weights, whichever the user of the arena has. Entries stand in segments, one for each shard of examples, so
that threads can add planes side by side. A plane without mass may be replaced, the longest unused first. If all planes of an
example have mass, it is crowded: nothing is added, and `with_capacity` makes more slots for it. Memory is what the planes take, not
examples times the most that one of them has. Of data that is on disk, the arena is there, too (scratch.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin import scratch
from maxmargin.jit import Struct, inner, kernel
from maxmargin.parallel.lines import LINE, zeros_in_lines
from maxmargin.parallel.threads import map_shards
from maxmargin.problems.statistics import add_example

#: Share of the last gap, and of the mean gap, at which a cached plane is good enough.
ACCEPT, FLOOR = 0.25, 0.01
#: Steps over a block end when the slopes differ by this share of where they began, and after this many.
INNER, STEPS = 0.05, 100
#: Most passes over cached planes between two that may ask the oracle.
CACHED_PASSES = 20
#: Mass below this is rounding, and counts as none.
_NO_MASS = 1e-15
# `taken`: slots and products in use, abandoned ones included; the most slots of an example.
_SLOTS, _PRODUCTS, _MOST = range(3)


class Arena(Struct):
    """The planes of M examples."""

    #: (M,): planes in use, where the slots begin, how many there are, where the inner products begin.
    n_planes: NDArray[np.int32]
    first: NDArray[np.int64]
    capacity: NDArray[np.int32]
    square: NDArray[np.int64]
    #: By slot: mass, constant, where the entries begin, how many there are, the time of the last use.
    alpha: NDArray[np.float64]
    ell: NDArray[np.float64]
    start: NDArray[np.int64]
    size: NDArray[np.int32]
    used: NDArray[np.int32]
    #: psi_a . psi_b, square after square; empty where they are not kept.
    products: NDArray[np.float64]
    taken: NDArray[np.int64]
    #: Coordinate and value of each entry; (S + 1,): where the segments begin; (S, LINE): how far they are filled, dropped planes
    #: included, at the beginning of a line of the cache for each, since threads fill their own.
    entry: NDArray[np.int32]
    value: NDArray[np.float64]
    segment: NDArray[np.int64]
    filled: NDArray[np.int64]

    @classmethod
    def empty(cls, n: int, capacity: int, room: int, n_shards: int = 1, products: bool = True) -> Arena:
        """Every example has the truth alone; `capacity` slots an example, and room for some entries in each segment."""
        slots, squares, segment = n * capacity, n * capacity**2 if products else 0, np.arange(n_shards + 1) * room
        first = np.arange(n) * capacity
        alpha = scratch.zeros(slots)
        alpha[first] = 1.0
        return cls(
            np.ones(n, np.int32), first, np.full(n, capacity, np.int32), np.arange(n) * (squares // max(n, 1)),
            alpha, scratch.zeros(slots), scratch.zeros(slots, np.int64), scratch.zeros(slots, np.int32),
            scratch.zeros(slots, np.int32), scratch.zeros(squares), np.array([slots, squares, capacity]),
            scratch.empty(n_shards * room, np.int32), scratch.empty(n_shards * room), segment, _in_lines(segment[:-1]),
        )  # fmt: skip

    @property
    def most(self) -> int:
        """Planes that an example may have without more slots, at most."""
        return int(self.taken[_MOST])

    @property
    def n_kept(self) -> int:
        """Planes of all examples, without those of the truth."""
        return int(self.n_planes.sum()) - len(self.n_planes)

    @property
    def n_support(self) -> int:
        """Planes with mass, without those of the truth."""
        return int(np.count_nonzero(self.alpha)) - int(np.count_nonzero(self.alpha[self.first]))

    @property
    def nbytes(self) -> int:
        """Bytes in all."""
        return int(sum(array.nbytes for array in self))

    def _copy(self) -> Arena:
        """The same planes in other arrays."""
        return Arena(*(scratch.copied(array) for array in self))

    def shrink(self, share: float) -> None:
        """Leave a share of the mass of every plane but the truth, which gets the rest."""
        self.alpha[:] *= share
        self.alpha[self.first] += 1.0 - share

    def with_room(
        self, least: int, more: int, shards: Sequence[tuple[int, int]] | None = None, threads: int = 1
    ) -> Arena:
        """The same planes, without the entries of dropped ones, and room for more in every segment.

        That is half of what was filled, at least `least`, and `more` beside it. `shards` are the examples of each segment.
        """
        shards = [(0, len(self.n_planes))] if shards is None else shards
        filled, begins = self.filled[:, 0] - self.segment[:-1], np.array([begin for begin, _ in shards])
        live = np.zeros(len(shards), np.int64)
        _count_entries(self, begins, np.array([end for _, end in shards]), live)
        segment = np.concatenate([[0], np.cumsum(live + np.maximum(least, filled // 2) + more)])
        made = self._replace(
            start=scratch.zeros(len(self.start), np.int64), entry=scratch.empty(int(segment[-1]), np.int32),
            value=scratch.empty(int(segment[-1])), segment=segment, filled=_in_lines(segment[:-1]),
        )  # fmt: skip

        def compact(shard: int, _: int) -> None:
            begin, end = shards[shard]
            _compact(self, made, shard, begin, end)

        map_shards(compact, [(shard, shard) for shard in range(len(shards))], threads)
        return made

    def with_capacity(self, crowded: NDArray[np.int64]) -> Arena:
        """The same planes, with twice as many slots for some examples."""
        wanted = self.capacity.astype(np.int64)
        wanted[crowded] *= 2
        squares = len(self.products) > 0
        more = [int(wanted[crowded].sum()), int((wanted[crowded] ** 2).sum()) if squares else 0]
        made, moving = self, crowded
        if self.taken[_SLOTS] + more[0] > len(self.ell) or self.taken[_PRODUCTS] + more[1] > len(self.products):
            # All move, in their order; where only some are crowded, others will be soon.
            n, moving = int(wanted.sum()), np.arange(len(wanted))
            n_products = int((wanted**2).sum()) if squares else 0
            if len(crowded) < len(wanted):
                n, n_products = n + n // 2, n_products + n_products // 2
            made = self._replace(
                first=self.first.copy(), capacity=self.capacity.copy(), square=self.square.copy(), alpha=scratch.zeros(n),
                ell=scratch.zeros(n), start=scratch.zeros(n, np.int64), size=scratch.zeros(n, np.int32),
                used=scratch.zeros(n, np.int32), products=scratch.zeros(n_products), taken=np.array([0, 0, self.most]),
            )  # fmt: skip
        _move_slots(self, made, moving, wanted)
        return made


def _in_lines(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Numbers at the beginning of a line of the cache each."""
    lines = zeros_in_lines((len(values), LINE), np.int64)
    lines[:, 0] = values
    return lines


# ------------------------------------------------------------------------------------------------------- kernels


@kernel
def _count_entries(planes: Any, begins: Any, ends: Any, counts: Any) -> None:
    """Entries of the planes of each shard."""
    n_planes, first, size = planes.n_planes, planes.first, planes.size
    for shard in range(len(counts)):
        for m in range(begins[shard], ends[shard]):
            for a in range(first[m], first[m] + n_planes[m]):
                counts[shard] += size[a]


@kernel
def _compact(old: Any, new: Any, shard: int, begin: int, end: int) -> None:
    """Copy the entries of some examples to the beginning of a segment."""
    n_planes, first, size, start, entry, value = old.n_planes, old.first, old.size, old.start, old.entry, old.value
    new_start, new_entry, new_value = new.start, new.entry, new.value
    at = new.segment[shard]
    for m in range(begin, end):
        for a in range(first[m], first[m] + n_planes[m]):
            new_start[a] = at
            for e in range(start[a], start[a] + size[a]):
                new_entry[at], new_value[at] = entry[e], value[e]
                at += 1
    new.filled[shard, 0] = at


@kernel
def _move_slots(old: Any, new: Any, examples: Any, wanted: Any) -> None:
    """Move the slots of some examples to the end of those taken; old and new may be one arena."""
    taken, squares = new.taken, len(old.products) > 0
    for m in examples:
        at, to, n, width = old.first[m], taken[_SLOTS], old.n_planes[m], wanted[m]
        for a in range(n):
            new.alpha[to + a], new.ell[to + a], new.used[to + a] = old.alpha[at + a], old.ell[at + a], old.used[at + a]
            new.start[to + a], new.size[to + a] = old.start[at + a], old.size[at + a]
            # Slots that are left behind have no mass.
            old.alpha[at + a] = 0.0
        if squares:
            for a in range(n):
                row, new_row = old.square[m] + a * old.capacity[m], taken[_PRODUCTS] + a * width
                for b in range(n):
                    new.products[new_row + b] = old.products[row + b]
            new.square[m] = taken[_PRODUCTS]
            taken[_PRODUCTS] += width * width
        new.first[m], new.capacity[m] = to, width
        taken[_SLOTS] += width
        taken[_MOST] = max(taken[_MOST], width)


@kernel
def drop_unused(planes: Any, before: int) -> None:
    """Drop the planes without mass whose last use was before some time; the others of an example move up."""
    alpha, ell, start, size, used, products = (
        planes.alpha, planes.ell, planes.start, planes.size, planes.used, planes.products,
    )  # fmt: skip
    kept = np.empty(most_planes(planes), np.int64)
    for m in range(len(planes.n_planes)):
        first, square, width, n = planes.first[m], planes.square[m], planes.capacity[m], 1
        kept[0] = 0
        for a in range(1, planes.n_planes[m]):
            if alpha[first + a] > 0.0 or used[first + a] >= before:
                kept[n] = a
                n += 1
        if n == planes.n_planes[m]:
            continue
        for k in range(1, n):
            a, to = first + kept[k], first + k
            mass, alpha[a] = alpha[a], 0.0
            alpha[to], ell[to], start[to], size[to], used[to] = mass, ell[a], start[a], size[a], used[a]
        for k in range(n):
            for q in range(n):
                products[square + k * width + q] = products[square + kept[k] * width + kept[q]]
        planes.n_planes[m] = n


@inner
def most_planes(planes: Any) -> int:
    """The most slots of an example."""
    return int(planes.taken[_MOST])


@inner
def plane_slopes(planes: Any, m: int, z: Any, v: Any, among: Any = None) -> tuple[float, float]:
    """v_a of all planes of block m, or of those `among` some, and -inf of the others; returns their mean and the largest."""
    alpha, ell, start, size, index, value = (
        planes.alpha, planes.ell, planes.start, planes.size, planes.entry, planes.value,
    )  # fmt: skip
    mean, top, first = 0.0, -np.inf, planes.first[m]
    for a in range(planes.n_planes[m]):
        s = first + a
        if among is not None:  # noqa: SIM102 (alone, so that Numba leaves it out)
            if not among[s]:
                v[a] = -np.inf
                continue
        slope = ell[s]
        for e in range(start[s], start[s] + size[s]):
            slope -= value[e] * z[index[e]]
        v[a] = slope
        mean += alpha[s] * slope
        top = max(top, slope)
    return mean, top


@inner
def free_slot(planes: Any, m: int) -> int:
    """Where the next plane of example m may go, or -1 if it is crowded."""
    alpha, used, first, count = planes.alpha, planes.used, planes.first[m], planes.n_planes[m]
    if count < planes.capacity[m]:
        return int(count)
    chosen = -1
    for a in range(1, count):
        if alpha[first + a] == 0.0 and (chosen < 0 or used[first + a] < used[first + chosen]):
            chosen = a
    return chosen


@inner
def equal_plane(planes: Any, m: int, ell: float, n: int, index: Any, value: Any) -> int:
    """Which plane of example m has these entries, or -1."""
    entries, values, ells, size, first = planes.entry, planes.value, planes.ell, planes.size, planes.first[m]
    for a in range(1, planes.n_planes[m]):
        if size[first + a] == n and ells[first + a] == ell:
            same, at = True, planes.start[first + a]
            for e in range(n):
                if entries[at + e] != index[e] or values[at + e] != value[e]:
                    same = False
                    break
            if same:
                return a
    return -1


@inner
def put_plane(planes: Any, shard: int, m: int, slot: int, ell: float, n: int) -> None:
    """Make a plane of the n entries after those that a segment has, without mass."""
    at, begin = planes.first[m] + slot, planes.filled[shard, 0]
    planes.alpha[at], planes.ell[at], planes.start[at], planes.size[at] = 0.0, ell, begin, n
    planes.n_planes[m] = max(planes.n_planes[m], slot + 1)
    planes.filled[shard, 0] = begin + n


@inner
def keep_plane(planes: Any, shard: int, now: int, m: int, ell: float, n: int, index: Any, value: Any) -> int:
    """Keep a plane of n entries, once, in the place of one that may be replaced; returns its slot, -1 if its segment is full."""
    slot = equal_plane(planes, m, ell, n, index, value)
    if slot < 0:
        begin, entries, values = planes.filled[shard, 0], planes.entry, planes.value
        if begin + n > planes.segment[shard + 1]:
            return -1
        slot = free_slot(planes, m)
        for e in range(n):
            entries[begin + e], values[begin + e] = index[e], value[e]
        put_plane(planes, shard, m, slot, ell, n)
    planes.used[planes.first[m] + slot] = now
    return int(slot)


@inner
def add_products(planes: Any, m: int, slot: int, u: Any) -> None:
    """The inner products of a new plane with all planes of example m; u is K times it, in the coordinates of the entries."""
    start, size, index, value, products = planes.start, planes.size, planes.entry, planes.value, planes.products
    first, width, square = planes.first[m], planes.capacity[m], planes.square[m]
    for a in range(planes.n_planes[m]):
        product = 0.0
        for e in range(start[first + a], start[first + a] + size[first + a]):
            product += value[e] * u[index[e]]
        products[square + a * width + slot] = product
        products[square + slot * width + a] = product


@inner
def improve_block(planes: Any, m: int, kappa: float, v: Any, moved: Any, tol: float, max_steps: int) -> float:
    """Pairwise steps: move mass from the worst plane that has some to the best, as far as f grows, until they differ by tol.

    `moved` gets the change of alpha; returns the gain in f, but for weight_m / M.
    """
    n, first, width, square = planes.n_planes[m], planes.first[m], planes.capacity[m], planes.square[m]
    alpha, products = planes.alpha, planes.products
    gain = 0.0
    for a in range(n):
        moved[a] = 0.0
    for _ in range(max_steps):
        best, worst = 0, -1
        for a in range(n):
            if v[a] > v[best]:
                best = a
            if alpha[first + a] > 0.0 and (worst < 0 or v[a] < v[worst]):
                worst = a
        slope = v[best] - v[worst]
        if not slope > tol:
            break
        at_best, at_worst = square + best * width, square + worst * width
        curvature = kappa * (products[at_best + best] + products[at_worst + worst] - 2.0 * products[at_best + worst])
        mass = alpha[first + worst]
        step = mass
        if curvature * step > slope:
            step = slope / curvature
        left = mass - step
        if left <= _NO_MASS:
            step, left = mass, 0.0
        alpha[first + worst] = left
        alpha[first + best] += step
        moved[worst] -= step
        moved[best] += step
        gain += step * (slope - 0.5 * curvature * step)
        for a in range(n):
            v[a] -= kappa * step * (products[at_best + a] - products[at_worst + a])
    return gain


@inner
def mark_used(planes: Any, m: int, now: int) -> None:
    """Write the time at the planes of example m that have mass."""
    alpha, used, first = planes.alpha, planes.used, planes.first[m]
    for a in range(first, first + planes.n_planes[m]):
        if alpha[a] > 0.0:
            used[a] = now


@inner
def add_combination(planes: Any, m: int, masses: Any, scale: float, out: Any) -> None:
    """Add scale sum_a masses(a) psi_a to out, in the coordinates of the entries."""
    start, size, index, value, first = planes.start, planes.size, planes.entry, planes.value, planes.first[m]
    for a in range(planes.n_planes[m]):
        if masses[a] != 0.0:
            for e in range(start[first + a], start[first + a] + size[first + a]):
                out[index[e]] += scale * masses[a] * value[e]


# ------------------------------------------------------------------------------------- planes in statistics coordinates


@inner
def write_change(batch: Any, planes: Any, m: int, moved: Any, change: Any, kappa: float, w_v: Any, w_f: Any) -> None:
    """W += kappa sum_a moved(a) psi_a; `change` is zero, and is so again afterwards."""
    start, size, index, first = planes.start, planes.size, planes.entry, planes.first[m]
    add_combination(planes, m, moved, 1.0, change)
    add_example(batch, m, change, kappa, w_v, w_f)
    for a in range(planes.n_planes[m]):
        if moved[a] != 0.0:
            for e in range(start[first + a], start[first + a] + size[first + a]):
                change[index[e]] = 0.0


@kernel
def linear_of_planes(planes: Any, weight: Any) -> float:
    """Return sum_m weight_m alpha_m . ell_m."""
    alpha, ell, total = planes.alpha, planes.ell, 0.0
    for m in range(len(weight)):
        linear, first = 0.0, planes.first[m]
        for a in range(first, first + planes.n_planes[m]):
            linear += alpha[a] * ell[a]
        total += weight[m] * linear
    return total


@kernel
def weights_of_planes(batch: Any, planes: Any, scale: float, w_v: Any, w_f: Any) -> None:
    """Make w afresh from the planes, scale = 1 / (lam M)."""
    alpha, weight = planes.alpha, batch.graphs.weight
    change = np.zeros(2 * batch.factors.at)
    w_v[:] = 0.0
    w_f[:] = 0.0
    for m in range(len(weight)):
        first, n = planes.first[m], planes.n_planes[m]
        write_change(batch, planes, m, alpha[first : first + n], change, scale * weight[m], w_v, w_f)


@kernel
def add_moves(batch: Any, planes: Any, order: Any, moved: Any, scale: float, w_v: Any, w_f: Any) -> None:
    """W += sum over the examples of what their moves of mass do."""
    weight, change = batch.graphs.weight, np.zeros(2 * batch.factors.at)
    for k in range(len(order)):
        m = order[k]
        write_change(batch, planes, m, moved[k], change, scale * weight[m], w_v, w_f)


# ------------------------------------------------------------------------------------- planes in coordinates of the weights


@inner
def add_flat_products(planes: Any, m: int, slot: int, dense: Any) -> None:
    """`add_products` of a plane in coordinates of the weights; `dense` is zero, and is so again afterwards."""
    at, index, value = planes.first[m] + slot, planes.entry, planes.value
    begin, end = planes.start[at], planes.start[at] + planes.size[at]
    for e in range(begin, end):
        dense[index[e]] = value[e]
    add_products(planes, m, slot, dense)
    for e in range(begin, end):
        dense[index[e]] = 0.0


@kernel
def flat_weights_of_planes(planes: Any, weight: Any, scale: float, w: Any) -> float:
    """Make w afresh from the planes, scale = 1 / (lam M); returns sum_m weight_m alpha_m . ell_m."""
    alpha, ell, start, size, index, value = (
        planes.alpha, planes.ell, planes.start, planes.size, planes.entry, planes.value,
    )  # fmt: skip
    w[:] = 0.0
    total = 0.0
    for m in range(len(weight)):
        for a in range(planes.first[m], planes.first[m] + planes.n_planes[m]):
            if alpha[a] > 0.0:
                total += weight[m] * alpha[a] * ell[a]
                for e in range(start[a], start[a] + size[a]):
                    w[index[e]] += scale * weight[m] * alpha[a] * value[e]
    return total

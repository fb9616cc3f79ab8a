"""Planes: the labelings that block-coordinate Frank-Wolfe has found for each example, and the step over them.

Example m has a *block* of the dual: a distribution alpha_m over its planes (statistics.py), of which the first is always the
truth, psi = 0 and ell = 0. With kappa_m = weight_m / (lam M),

    w = sum_m kappa_m sum_a alpha_m(a) psi_a,       f = 1/M sum_m weight_m alpha_m . ell_m - lam/2 |w|^2
    v_a = ell_a - w . psi_a                         the slope of f along a, but for weight_m / M
    v_a -= kappa_m t (psi_a . (psi_b - psi_c))      when mass t moves from plane c to plane b

so with the Gram matrix of its planes a block is improved in numbers of its own, and w is written once at the end. Planes are
kept as sparse statistics: memory is what labelings take, not examples times dimension.

`PlaneStore` has room for a fixed number of planes an example, and one arena for their entries. A plane without mass may be
replaced, the longest unused first. If all planes of an example have mass, its block is crowded: nothing is added, and the store
is asked to grow.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.jit import Struct, inner, kernel
from maxmargin.problems.statistics import add_example

#: Share of the last gap, and of the mean gap, at which a cached plane is good enough.
ACCEPT, FLOOR = 0.25, 0.01
#: Steps over a block end when the slopes differ by this share of where they began, and after this many.
INNER, STEPS = 0.05, 100
#: Most passes over cached planes between two that may ask the oracle.
CACHED_PASSES = 20
#: Mass below this is rounding, and counts as none.
_NO_MASS = 1e-15


class PlaneStore(Struct):
    """The planes of M examples, at most A each."""

    #: (M,): planes in use.
    n_planes: NDArray[np.int32]
    #: (M, A): mass, constant, where the entries begin, how many there are, the visit that last had use for it.
    alpha: NDArray[np.float64]
    ell: NDArray[np.float64]
    start: NDArray[np.int64]
    size: NDArray[np.int32]
    used: NDArray[np.int32]
    #: (M, A, A): psi_a . psi_b.
    gram: NDArray[np.float64]
    #: The arena: statistics coordinate and value of each entry.
    entry: NDArray[np.int32]
    value: NDArray[np.float64]
    #: (1,): entries of the arena in use, dropped planes included.
    filled: NDArray[np.int64]

    @classmethod
    def empty(cls, n: int, capacity: int, room: int) -> PlaneStore:
        """Every block at the truth."""
        shape = (n, capacity)
        alpha = np.zeros(shape)
        alpha[:, 0] = 1.0
        return cls(
            np.ones(n, np.int32), alpha, np.zeros(shape), np.zeros(shape, np.int64), np.zeros(shape, np.int32),
            np.zeros(shape, np.int32), np.zeros((n, capacity, capacity)), np.empty(room, np.int32), np.empty(room),
            np.zeros(1, np.int64),
        )  # fmt: skip

    @property
    def capacity(self) -> int:
        """Planes that an example may have."""
        return int(self.alpha.shape[1])

    @property
    def nbytes(self) -> int:
        """Bytes in all."""
        return int(sum(array.nbytes for array in self))

    def with_room(self, room: int) -> PlaneStore:
        """The same planes, without the entries of dropped ones, in an arena with space for `room` more."""
        live = np.arange(self.capacity) < self.n_planes[:, None]
        size = np.where(live, self.size, 0).astype(np.int64)
        n = int(size.sum())
        index, value = np.empty(n + room, np.int32), np.empty(n + room)
        start = np.zeros_like(self.start)
        _compact(self.start, size, self.entry, self.value, start, index, value)
        return self._replace(start=start, entry=index, value=value, filled=np.array([n], np.int64))

    def with_capacity(self, capacity: int) -> PlaneStore:
        """The same planes, with space for more in each block."""
        grown = PlaneStore.empty(len(self.n_planes), capacity, 0)
        old = self.capacity
        for name in ("alpha", "ell", "start", "size", "used"):
            getattr(grown, name)[:, :old] = getattr(self, name)
        grown.gram[:, :old, :old] = self.gram
        return grown._replace(n_planes=self.n_planes, entry=self.entry, value=self.value, filled=self.filled)


# ------------------------------------------------------------------------------------------------------- kernels


@kernel
def _compact(start: Any, size: Any, index: Any, value: Any, new_start: Any, new_index: Any, new_value: Any) -> None:
    at = 0
    for m in range(size.shape[0]):
        for a in range(size.shape[1]):
            new_start[m, a] = at
            for e in range(start[m, a], start[m, a] + size[m, a]):
                new_index[at] = index[e]
                new_value[at] = value[e]
                at += 1


@inner
def plane_slopes(store: Any, m: int, z: Any, v: Any) -> tuple[float, float]:
    """v_a of all planes of block m; returns their mean under alpha and the largest."""
    alpha, ell, start, size, index, value = (
        store.alpha, store.ell, store.start, store.size, store.entry, store.value,
    )  # fmt: skip
    mean, top = 0.0, -np.inf
    for a in range(store.n_planes[m]):
        slope = ell[m, a]
        for e in range(start[m, a], start[m, a] + size[m, a]):
            slope -= value[e] * z[index[e]]
        v[a] = slope
        mean += alpha[m, a] * slope
        top = max(top, slope)
    return mean, top


@inner
def free_slot(store: Any, m: int) -> int:
    """Where the next plane of block m may go, or -1 if the block is crowded."""
    alpha, used, count = store.alpha, store.used, store.n_planes[m]
    if count < alpha.shape[1]:
        return int(count)
    chosen = -1
    for a in range(1, count):
        if alpha[m, a] == 0.0 and (chosen < 0 or used[m, a] < used[m, chosen]):
            chosen = a
    return chosen


@inner
def add_plane(store: Any, m: int, slot: int, new_ell: float, begin: int, n: int, u: Any) -> None:
    """Put the plane whose n entries begin at `begin` into a slot; u is K times the plane, for its Gram row."""
    count, ell, start, size, gram, index, value = (
        store.n_planes, store.ell, store.start, store.size, store.gram, store.entry, store.value,
    )  # fmt: skip
    ell[m, slot], start[m, slot], size[m, slot], store.alpha[m, slot] = new_ell, begin, n, 0.0
    count[m] = max(count[m], slot + 1)
    for a in range(count[m]):
        product = 0.0
        for e in range(start[m, a], start[m, a] + size[m, a]):
            product += value[e] * u[index[e]]
        gram[m, a, slot] = product
        gram[m, slot, a] = product


@inner
def improve_block(store: Any, m: int, kappa: float, v: Any, moved: Any, tol: float, max_steps: int) -> float:
    """Pairwise steps: move mass from the worst plane that has some to the best, as far as f grows, until they differ by tol.

    `moved` gets the change of alpha; returns the gain in f, but for weight_m / M.
    """
    n, alpha, gram = store.n_planes[m], store.alpha, store.gram
    gain = 0.0
    for a in range(n):
        moved[a] = 0.0
    for _ in range(max_steps):
        best, worst = 0, -1
        for a in range(n):
            if v[a] > v[best]:
                best = a
            if alpha[m, a] > 0.0 and (worst < 0 or v[a] < v[worst]):
                worst = a
        slope = v[best] - v[worst]
        if not slope > tol:
            break
        curvature = kappa * (gram[m, best, best] + gram[m, worst, worst] - 2.0 * gram[m, best, worst])
        step = alpha[m, worst]
        if curvature * step > slope:
            step = slope / curvature
        left = alpha[m, worst] - step
        if left <= _NO_MASS:
            step, left = alpha[m, worst], 0.0
        alpha[m, worst] = left
        alpha[m, best] += step
        moved[worst] -= step
        moved[best] += step
        gain += step * (slope - 0.5 * curvature * step)
        for a in range(n):
            v[a] -= kappa * step * (gram[m, a, best] - gram[m, a, worst])
    return gain


@inner
def write_change(batch: Any, store: Any, m: int, moved: Any, change: Any, kappa: float, w_v: Any, w_f: Any) -> None:
    """W += kappa sum_a moved(a) psi_a; `change` is zero, and is so again afterwards."""
    n, start, size, index, value = store.n_planes[m], store.start, store.size, store.entry, store.value
    for a in range(n):
        if moved[a] != 0.0:
            for e in range(start[m, a], start[m, a] + size[m, a]):
                change[index[e]] += moved[a] * value[e]
    add_example(batch, m, change, kappa, w_v, w_f)
    for a in range(n):
        if moved[a] != 0.0:
            for e in range(start[m, a], start[m, a] + size[m, a]):
                change[index[e]] = 0.0


@kernel
def weights_of_planes(batch: Any, store: Any, scale: float, w_v: Any, w_f: Any) -> float:
    """Make w afresh from the planes, scale = 1 / (lam M); returns sum_m weight_m alpha_m . ell_m."""
    alpha, ell, weight = store.alpha, store.ell, batch.graphs.weight
    change, mass = np.zeros(2 * batch.factors.at), np.empty(alpha.shape[1])
    w_v[:] = 0.0
    w_f[:] = 0.0
    total = 0.0
    for m in range(len(weight)):
        linear = 0.0
        for a in range(store.n_planes[m]):
            mass[a] = alpha[m, a]
            linear += alpha[m, a] * ell[m, a]
        total += weight[m] * linear
        write_change(batch, store, m, mass, change, scale * weight[m], w_v, w_f)
    return total


@kernel
def add_moves(batch: Any, store: Any, order: Any, moved: Any, scale: float, w_v: Any, w_f: Any) -> None:
    """W += sum over the examples of what their moves of mass do."""
    weight, change = batch.graphs.weight, np.zeros(2 * batch.factors.at)
    for k in range(len(order)):
        m = order[k]
        write_change(batch, store, m, moved[k], change, scale * weight[m], w_v, w_f)

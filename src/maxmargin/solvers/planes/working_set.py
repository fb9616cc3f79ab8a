"""The working set of cutting planes, and the quadratic programme over it.

T. Joachims, T. Finley and C.-N. Yu, Cutting-Plane Training of Structural SVMs, Machine Learning 77, 2009, section 4.

Planes k = 0 .. K-1 of the mean hinge, of which plane 0 is that of the truth, psi = 0 and ell = 0:

    maximise  D(alpha) = ell . alpha - 1/(2 lam) alpha' G alpha     over alpha >= 0, sum alpha = 1,     G_kl = psi_k . psi_l
    w(alpha) = 1/lam sum_k alpha_k psi_k,       xi = max_k  ell_k - w . psi_k

The Hessian G is kept, and gets a row with every plane; the programme starts from its last solution. A plane that had no mass in the
last `idle` programmes is dropped.

Planes are sparse, one after the other in an arena; the arrays are fields of a solver's state, which a checkpoint writes one by one.
On a device (devices/) they are written out there, without an index, and all else is on the processor: a programme of a few hundred
planes takes less time than to ask for it.
With a kernel each plane also has an image, K psi (oracles/joint_plane.py), and G_kl = psi_k . K psi_l. Where weights have signs,
the coordinates of planes that have one are kept, too, and the programme is that of signed_qp.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.devices import Device, as_numpy
from maxmargin.devices.vectors import clear, scatter
from maxmargin.jit import kernel
from maxmargin.parallel.threads import map_shards
from maxmargin.solvers.planes.mean_plane import MeanPlane
from maxmargin.solvers.planes.signed_qp import solve_signed_qp
from maxmargin.solvers.planes.simplex_qp import solve_simplex_qp

#: Coordinates of a vector that are summed at a time, so that they stay in a core's cache.
_RANGE = 1 << 15


@dataclass(kw_only=True)
class WorkingSet:
    """Planes, their Hessian and the mass of each, as fields of a state."""

    #: (K,): constants, masses, programmes without mass; (K, K): inner products.
    ell: NDArray[np.float64]
    alpha: NDArray[np.float64]
    idle: NDArray[np.int64]
    gram: NDArray[np.float64]
    #: (K + 1,): where planes begin in the arena, which may have room after the last.
    start: NDArray[np.int64]
    index: NDArray[np.int64]
    value: Any
    #: (K, size): images, with a kernel; (0, 0) without.
    images: NDArray[np.float64]
    #: (K, J): coordinates of planes whose weights have a sign, times it; (0, 0) without.
    signed: NDArray[np.float64]

    @staticmethod
    def only_truth(size: int, has_images: bool, device: Device, n_signed: int = 0) -> dict[str, Any]:
        """The fields of a set that has the plane of the truth alone."""
        room = 0 if device.name == "cpu" else size
        return {
            "ell": np.zeros(1), "alpha": np.ones(1), "idle": np.zeros(1, np.int64), "gram": np.zeros((1, 1)),
            "start": np.array([0, room]), "index": np.empty(0, np.int64), "value": device.zeros(room),
            "images": np.zeros((1, size) if has_images else (0, 0)),
            "signed": np.zeros((1, n_signed) if n_signed else (0, 0)),
        }  # fmt: skip

    @property
    def n_planes(self) -> int:
        """K, the truth's included."""
        return len(self.ell)

    @property
    def nbytes(self) -> int:
        """Bytes of the working set."""
        return int(sum(getattr(self, name).nbytes for name in WorkingSet.__dataclass_fields__))

    def add_plane(self, plane: MeanPlane, dense: Any, image: NDArray[np.float64] | None, threads: int) -> None:
        """Add a plane; `dense` is zero, and is so again afterwards; its image, where it is another vector."""
        n = self.n_planes
        if plane.index is None:
            row = self._written_out(plane.value)
        else:
            row = self._sparse(plane.index, plane.value, dense, image, threads)
        grown = np.empty((n + 1, n + 1))
        grown[:n, :n], grown[n], grown[:, n] = self.gram, row, row
        self.gram = grown
        self.ell, self.idle = np.append(self.ell, plane.ell), np.append(self.idle, 0)
        self.alpha = np.append(self.alpha, 0.0)

    def _sparse(
        self, index: NDArray[np.int64], value: NDArray[np.float64], dense: NDArray[np.float64],
        image: NDArray[np.float64] | None, threads: int,
    ) -> NDArray[np.float64]:  # fmt: skip
        """Keep a plane; returns its inner products with all, itself included."""
        n, at, size = self.n_planes, int(self.start[-1]), len(index)
        if at + size > len(self.index):
            room = max(2 * (at + size), 1024)
            self.index = np.concatenate([self.index[:at], np.empty(room - at, np.int64)])
            self.value = np.concatenate([self.value[:at], np.empty(room - at)])
        self.index[at : at + size], self.value[at : at + size] = index, value
        self.start = np.append(self.start, at + size)
        row = np.empty(n + 1)
        if image is None:
            scatter(index, value, dense)
        against = dense if image is None else image
        pieces = [(int(k[0]), int(k[-1]) + 1) for k in np.array_split(np.arange(n + 1), min(8, n + 1))]
        map_shards(lambda k0, k1: products(self.start, self.index, self.value, against, k0, k1, row), pieces, threads)
        if image is None:
            clear(index, dense)
        else:
            self.images = np.concatenate([self.images, image[None]])
        return row

    def _written_out(self, psi: Any) -> NDArray[np.float64]:
        """The same on a device."""
        at, size = int(self.start[-1]), len(psi)
        if at + size > len(self.value):
            room = self.value.new_empty(2 * (at + size))
            room[:at] = self.value[:at]
            self.value = room
        self.value[at : at + size] = psi
        self.start = np.append(self.start, at + size)
        return as_numpy(self.value[: at + size].view(-1, size) @ psi)

    def optimise(self, lam: float, tol: float) -> float:
        """Solve the programme from where it stands; returns how far from optimal it may be."""
        if len(self.signed):
            gap = solve_signed_qp(self.gram, self.signed, self.ell, 1.0 / lam, self.alpha, tol)
        else:
            gap = float(solve_simplex_qp(self.gram, self.n_planes, self.ell, 1.0 / lam, self.alpha, tol))
        self.idle = np.where(self.alpha > 0.0, 0, self.idle + 1)
        return gap

    def drop_idle(self, most: int) -> None:
        """Drop the planes that had no mass in the last `most` programmes."""
        keep = self.idle < most
        keep[0] = True
        if keep.all():
            return
        sizes, at = np.diff(self.start), int(self.start[-1])
        n = int(sizes[keep].sum())
        if isinstance(self.value, np.ndarray):
            arena = np.repeat(keep, sizes)
            self.index[:n], self.value[:n] = self.index[:at][arena], self.value[:at][arena]
        else:
            self.value[:n] = self.value[:at].view(len(keep), -1)[np.flatnonzero(keep)].view(-1)
        self.start = np.concatenate([[0], np.cumsum(sizes[keep])])
        for name in ("ell", "alpha", "idle"):
            setattr(self, name, getattr(self, name)[keep])
        self.gram = np.ascontiguousarray(self.gram[np.ix_(keep, keep)])
        for name in ("images", "signed"):
            if len(getattr(self, name)):
                setattr(self, name, getattr(self, name)[keep])

    @property
    def linear(self) -> float:
        """The linear part of D(alpha).

        The rest, lam/2 |w(alpha)|^2, is for the caller to take from w itself: in alpha' G alpha large planes cancel, and with
        features of size 1e6 nothing but rounding is left.
        """
        return float(np.sum(self.ell * self.alpha))

    def largest_slope(self, lam: float) -> float:
        """The largest slope of the set at w(alpha): what the programme knows of the mean hinge there."""
        at = np.flatnonzero(self.alpha)
        products = np.sum(self.gram[:, at] * self.alpha[at], axis=1)
        if len(self.signed):
            products -= self.signed @ np.minimum(self.alpha @ self.signed, 0.0)
        return float(np.max(self.ell - products / lam))

    def weights(self, lam: float, out: Any, threads: int) -> Any:
        """w(alpha), into out; with a kernel, its coefficients."""
        if not isinstance(self.value, np.ndarray):
            at = np.flatnonzero(self.alpha)
            share = out.new_tensor(self.alpha[at] / lam)
            rows = self.value[: int(self.start[-1])].view(-1, len(out))
            out.copy_(share @ rows[at])
            return out
        step = max(_RANGE, -(-len(out) // (64 * _RANGE)) * _RANGE)
        pieces = [(low, min(low + step, len(out))) for low in range(0, len(out), step)]
        share = self.alpha / lam
        map_shards(
            lambda low, high: combine(self.start, self.index, self.value, share, low, high, out), pieces, threads
        )
        return out

    def scores(self, lam: float) -> NDArray[np.float64]:
        """The image of w(alpha), with a kernel."""
        at = np.flatnonzero(self.alpha)
        return np.asarray(self.alpha[at] / lam @ self.images[at])


# ------------------------------------------------------------------------------------------------------- kernels


@kernel
def products(start: Any, index: Any, value: Any, dense: Any, first: int, last: int, out: Any) -> None:
    """out[k] = psi_k . dense for k in first..last-1."""
    for k in range(first, last):
        total = 0.0
        for e in range(start[k], start[k + 1]):
            total += value[e] * dense[index[e]]
        out[k] = total


@kernel
def combine(start: Any, index: Any, value: Any, share: Any, low: int, high: int, out: Any) -> None:
    """Write sum_k share_k psi_k into out, in the coordinates from low to high, cut into ranges that stay in a core's cache."""
    n = len(share)
    at = np.empty(n, np.int64)
    for k in range(n):
        at[k] = start[k] + np.searchsorted(index[start[k] : start[k + 1]], low) if share[k] != 0.0 else start[k + 1]
    for begin in range(low, high, _RANGE):
        end = min(begin + _RANGE, high)
        out[begin:end] = 0.0
        for k in range(n):
            if share[k] != 0.0:
                e, last = at[k], start[k + 1]
                while e < last and index[e] < end:
                    out[index[e]] += share[k] * value[e]
                    e += 1
                at[k] = e

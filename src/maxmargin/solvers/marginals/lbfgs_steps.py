"""What L-BFGS does to its vectors: five sums over all entries, on the processor or on a device.

On the processor each is a kernel over ranges of a fixed length, in threads, so that the bits do not depend on them; pairs may be of
single precision there, and variables scaled (lbfgs.py). On a device they are products of matrices.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.devices import as_numpy
from maxmargin.devices.vectors import ranges
from maxmargin.jit import kernel, reordering
from maxmargin.parallel.threads import map_shards

#: Entries of vectors that stay in the cache while others pass by.
_PIECE = 1 << 12
#: Parts of pairs below it are left out.
_TINY = 1e-35


class ProcessorSteps:
    """By compiled kernels in threads.

    Parameters
    ----------
    n_weights, threads : int
    """

    def __init__(self, n_weights: int, threads: int) -> None:
        self.ranges, self.threads = ranges(n_weights), threads

    def over(self, function: Any, *arguments: Any) -> Any:
        """The sum of what a kernel returns for all ranges of the vectors, in threads."""
        parts = map_shards(lambda low, high: function(*arguments, low, high), self.ranges, self.threads)
        return np.sum(parts, axis=0)

    def compile(self, zero: NDArray[np.float64], pairs: Any, scale: Any) -> None:
        """Compile before any clock starts: called with nothing to do."""
        go_along(zero, zero, 0.0, zero, 0, 0)
        find_gradient(zero, zero, 1.0, 0.0, zero, zero, 0, 0)
        add_pair(zero, zero, zero, zero, scale, pairs[:, 0], 0, 0)
        add_products(pairs, pairs[1, 0], zero, scale, 0, 0, 0)
        combine(pairs, np.zeros((2, 0)), 0.0, zero, scale, zero, 0, 0)

    def go_along(self, w: Any, direction: Any, step: float, out: Any) -> float:
        """Out = w + step * direction; returns its squared norm."""
        return float(self.over(go_along, w, direction, step, out))

    def find_gradient(
        self, w: Any, psi: Any, share: float, lam: float, direction: Any, out: Any
    ) -> tuple[float, float]:
        """Out = lam w - share psi; returns its squared norm, and its product with the direction."""
        square, slope = self.over(find_gradient, w, psi, share, lam, direction, out).tolist()
        return square, slope

    def add_pair(self, w: Any, old_w: Any, gradient: Any, old_gradient: Any, scale: Any, pair: Any) -> float:
        """Write s and y; returns their product."""
        return float(self.over(add_pair, w, old_w, gradient, old_gradient, scale, pair))

    def products(self, pairs: Any, newest: int, gradient: Any, scale: Any, n: int) -> NDArray[np.float64]:
        """(2, 2, n): products with the newest y, and with the gradient, of the s and the y of the first n pairs."""
        return np.asarray(self.over(add_products, pairs, pairs[1, newest], gradient, scale, n))

    def combine(
        self, pairs: Any, shares: NDArray[np.float64], own: float, gradient: Any, scale: Any, out: Any
    ) -> float:
        """Out = own * gradient + the pairs times their shares (2, n); returns its product with the gradient."""
        return float(self.over(combine, pairs, shares, own, gradient, scale, out))


class DeviceSteps:
    """The same on tensors; no variable is scaled."""

    def compile(self, zero: Any, pairs: Any, scale: Any) -> None:
        """There is nothing to compile."""

    def go_along(self, w: Any, direction: Any, step: float, out: Any) -> float:
        """Out = w + step * direction; returns its squared norm."""
        out.copy_(w).add_(direction, alpha=step)
        return float(out @ out)

    def find_gradient(
        self, w: Any, psi: Any, share: float, lam: float, direction: Any, out: Any
    ) -> tuple[float, float]:
        """Out = lam w - share psi; returns its squared norm, and its product with the direction."""
        out.copy_(w).mul_(lam).sub_(psi, alpha=share)
        return float(out @ out), float(out @ direction)

    def add_pair(self, w: Any, old_w: Any, gradient: Any, old_gradient: Any, scale: Any, pair: Any) -> float:
        """Write s and y; returns their product."""
        pair[0].copy_(w).sub_(old_w)
        pair[1].copy_(gradient).sub_(old_gradient)
        return float(pair[0] @ pair[1])

    def products(self, pairs: Any, newest: int, gradient: Any, scale: Any, n: int) -> NDArray[np.float64]:
        """(2, 2, n): products with the newest y, and with the gradient, of the s and the y of the first n pairs."""
        rows = pairs.flatten(0, 1)
        with_y, with_gradient = (as_numpy(rows @ one).reshape(2, -1)[:, :n] for one in (pairs[1, newest], gradient))
        return np.stack([with_y, with_gradient])

    def combine(
        self, pairs: Any, shares: NDArray[np.float64], own: float, gradient: Any, scale: Any, out: Any
    ) -> float:
        """Out = own * gradient + the pairs times their shares (2, n); returns its product with the gradient."""
        every = np.zeros(pairs.shape[:2])
        every[:, : shares.shape[1]] = shares
        out.copy_(gradient).mul_(own).add_(pairs.flatten(0, 1).T @ out.new_tensor(every.ravel()))
        return float(out @ gradient)


# ------------------------------------------------------------------------------------------------------- kernels


@kernel
def go_along(w: Any, direction: Any, step: float, out: Any, low: int, high: int) -> float:
    """Out = w + step * direction, from low to high; returns its squared norm."""
    return float(add_along(w[low:high], direction[low:high], step, out[low:high]))


@reordering
def add_along(w: Any, direction: Any, step: float, out: Any) -> float:
    """Out = w + step * direction; returns its squared norm."""
    square = 0.0
    for i in range(len(out)):
        out[i] = w[i] + step * direction[i]
        square += out[i] * out[i]
    return square


@kernel
def find_gradient(
    w: Any, psi: Any, share: float, lam: float, direction: Any, out: Any, low: int, high: int
) -> tuple[float, float]:
    """Out = lam w - share psi, from low to high; returns its squared norm, and its product with the direction."""
    return gradient_of(w[low:high], psi[low:high], share, lam, direction[low:high], out[low:high])  # type: ignore[no-any-return]


@reordering
def gradient_of(w: Any, psi: Any, share: float, lam: float, direction: Any, out: Any) -> tuple[float, float]:
    """Out = lam w - share psi; returns its squared norm, and its product with the direction."""
    square, slope = 0.0, 0.0
    for i in range(len(out)):
        out[i] = lam * w[i] - share * psi[i]
        square += out[i] * out[i]
        slope += out[i] * direction[i]
    return square, slope


@kernel
def add_pair(w: Any, old_w: Any, gradient: Any, old_gradient: Any, scale: Any, pair: Any, low: int, high: int) -> float:
    """Write s and y from low to high; returns their product."""
    ones, product = np.ones(_PIECE, scale.dtype), 0.0
    for first in range(low, high, _PIECE):
        last = min(first + _PIECE, high)
        r = scale[first:last] if len(scale) > 0 else ones
        product += differences(
            w[first:last], old_w[first:last], gradient[first:last], old_gradient[first:last], r, pair[0, first:last],
            pair[1, first:last],
        )  # fmt: skip
    return product


@reordering
def differences(w: Any, old_w: Any, gradient: Any, old_gradient: Any, scale: Any, s: Any, y: Any) -> float:
    """S = (w - old_w) / scale, y = (gradient - old_gradient) scale; returns their product.

    What single precision keeps with a few bits alone, and takes a hundred times longer for, is none.
    """
    product = 0.0
    for i in range(len(s)):
        r = np.float64(scale[i])
        one, other = (w[i] - old_w[i]) / r, (gradient[i] - old_gradient[i]) * r
        s[i], y[i] = one if abs(one) > _TINY else 0.0, other if abs(other) > _TINY else 0.0
    for i in range(len(s)):
        product += np.float64(s[i]) * np.float64(y[i])
    return product


@kernel
def add_products(pairs: Any, y: Any, gradient: Any, scale: Any, n: int, low: int, high: int) -> Any:
    """(2, 2, n): products with y, and with the gradient, of the s and the y of the first pairs, from low to high.

    A piece of both vectors at a time stays in the cache while all pairs pass by.
    """
    out, slopes, own = np.zeros((2, 2, n)), np.empty(_PIECE), np.empty(_PIECE)
    for first in range(low, high, _PIECE):
        size = min(_PIECE, high - first)
        for i in range(size):
            slopes[i] = gradient[first + i] * (scale[first + i] if len(scale) > 0 else 1.0)
            own[i] = y[first + i]
        for side in range(2):
            for k in range(n):
                with_y, with_gradient = two_products(pairs[side, k, first : first + size], own, slopes)
                out[0, side, k] += with_y
                out[1, side, k] += with_gradient
    return out


@reordering
def two_products(row: Any, one: Any, other: Any) -> Any:
    """The inner products of a row with two vectors."""
    a, b = 0.0, 0.0
    for i in range(len(row)):
        x = np.float64(row[i])
        a += x * one[i]
        b += x * other[i]
    return a, b


@kernel
def combine(pairs: Any, shares: Any, own: float, gradient: Any, scale: Any, out: Any, low: int, high: int) -> float:
    """Out = own * gradient + the pairs times their shares, from low to high; returns its product with the gradient."""
    slope = 0.0
    for first in range(low, high, _PIECE):
        last = min(first + _PIECE, high)
        here = out[first:last]
        for i in range(len(here)):
            here[i] = own * gradient[first + i] * (scale[first + i] if len(scale) > 0 else 1.0)
        for side in range(2):
            for k in range(shares.shape[1]):
                row, share = pairs[side, k, first:last], shares[side, k]
                for i in range(len(here)):
                    here[i] += share * row[i]
        for i in range(len(here)):
            here[i] *= scale[first + i] if len(scale) > 0 else 1.0
            slope += here[i] * gradient[first + i]
    return slope

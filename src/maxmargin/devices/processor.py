"""The processor: vectors are NumPy's, and long ones are worked on in threads."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.devices.vectors import blend, inner_product


class Processor:
    """NumPy and compiled kernels."""

    name = "cpu"

    def __init__(self, threads: int = 1) -> None:
        self.threads = threads

    def zeros(self, *shape: int) -> NDArray[np.float64]:
        """An array of zeros."""
        return np.zeros(shape)

    def empty(self, *shape: int) -> NDArray[np.float64]:
        """An array of anything."""
        return np.empty(shape)

    def put(self, values: NDArray[Any]) -> NDArray[Any]:
        """A copy."""
        return values.copy()

    def dot(self, x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
        """The inner product of two vectors; its bits do not depend on the threads."""
        return inner_product(x, y, self.threads)

    def blend(
        self, step: float, x: NDArray[np.float64], y: NDArray[np.float64], out: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Write (1 - step) x + step y to out."""
        return blend(step, x, y, out, self.threads)

"""A plane of the mean hinge: the mean of one plane of every example.

psi = 1/M sum_m weight_m psi_m,    ell = 1/M sum_m weight_m ell_m,    mean hinge at w >= ell - w . psi
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.devices.vectors import sparse_dot


class MeanPlane(NamedTuple):
    """A plane of the mean hinge, psi as its entries in the order of their coordinates; on a device it is written out."""

    #: None where psi is written out.
    index: NDArray[np.int64] | None  # type: ignore[assignment]
    value: Any
    ell: float
    #: (M,): hinges, or bounds from above; of a plane of cached ones, what its examples' planes reach.
    hinges: Any

    @classmethod
    def of(cls, psi: NDArray[np.float64], ell: float, hinges: NDArray[np.float64]) -> MeanPlane:
        """A plane whose psi is written out."""
        index = np.flatnonzero(psi)
        return cls(index, psi[index], ell, hinges)

    def dot(self, w: Any) -> float:
        """Psi . w."""
        return float(self.value @ w) if self.index is None else float(sparse_dot(self.index, self.value, w))

    def dense(self, size: int) -> Any:
        """Psi, written out."""
        if self.index is None:
            return self.value
        psi = np.zeros(size)
        psi[self.index] = self.value
        return psi

"""A plane of the mean hinge: the mean of one plane of every example.

psi = 1/M sum_m weight_m psi_m,    ell = 1/M sum_m weight_m ell_m,    mean hinge at w >= ell - w . psi
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class MeanPlane(NamedTuple):
    """A plane of the mean hinge, psi as its entries in the order of their coordinates."""

    index: NDArray[np.int64]  # type: ignore[assignment]
    value: NDArray[np.float64]
    ell: float
    #: (M,): hinges, or bounds from above; of a plane of cached ones, what its examples' planes reach.
    hinges: NDArray[np.float64]

    @classmethod
    def of(cls, psi: NDArray[np.float64], ell: float, hinges: NDArray[np.float64]) -> MeanPlane:
        """A plane whose psi is written out."""
        index = np.flatnonzero(psi)
        return cls(index, psi[index], ell, hinges)

    def dense(self, size: int) -> NDArray[np.float64]:
        """Psi, written out."""
        psi = np.zeros(size)
        psi[self.index] = self.value
        return psi

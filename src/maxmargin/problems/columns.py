"""Columns of sparse features in the order of their use, and columns that the data cannot tell apart as one.

Text has hundreds of thousands of columns, and a pass over the examples looks up a row of weights for every entry of the
features. In alphabetical order nearly every look-up waits for memory. In the order of

    floor(log2(entries of the column)), the most frequent first, and among equals the row of the first entry,

what is used often stands together and stays in the cache, and what is used once is walked through from end to end.

Columns with a single entry, v_c, in the same row are seen by the data only through the sum of v_c w_c. What regularised solvers
do is linear and starts from 0, so that w_c stays proportional to v_c, and one column stands for all of them:

    v^2 = sum_c v_c^2,      v u = sum_c v_c w_c,      w_c = (v_c / v) u,      u^2 = sum_c w_c^2

In both, norms and inner products of weights are what they were: a change of coordinates, and the same optimum. A column without
entries has weight 0 and is left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.problems.factor_graphs import FactorGraphs
from maxmargin.problems.features import Features, KernelFeatures

#: Weights up to this number stay in the cache in any order.
_FEW = 1 << 17


class Columns:
    """The coordinates of a problem's solver: a batch whose variables' features have their columns in the order of use.

    Parameters
    ----------
    problem : FactorGraphs
        With sparse features of its variables.
    """

    def __init__(self, problem: FactorGraphs) -> None:
        self.problem, features = problem, problem.variable_features.arrays
        indices, rows, p = features.indices, len(features.indptr) - 1, problem.variable_features.shape[1]
        row_of = np.repeat(np.arange(rows, dtype=np.int32), np.diff(features.indptr))
        entries = np.bincount(indices, minlength=p)
        first, value = np.full(p, rows, np.int32), np.zeros(p)
        # The last to be written stays: the first row, when they come from the end.
        first[indices[::-1]] = row_of[::-1]
        value[indices] = features.data
        # Columns with a single entry stand in groups by its row, and the first of a group stays for all.
        single = np.flatnonzero(entries == 1)
        _, leader, group = np.unique(first[single], return_index=True, return_inverse=True)
        length = np.sqrt(np.bincount(group, value[single] ** 2))
        stays = entries > 0
        stays[single] = False
        stays[single[leader]] = True
        kept = np.flatnonzero(stays)
        kept = kept[np.lexsort((first[kept], -np.frexp(entries[kept])[1]))]
        #: (p,): the column here that stands for each column there, and the share of its weight: w = share * u.
        self.column, self.share = np.zeros(p, np.int32), (entries > 0).astype(float)
        self.column[kept] = np.arange(len(kept))
        self.column[single] = self.column[single[leader]][group]
        # A value of 0 that is stored is an entry, too.
        self.share[single] = np.divide(
            value[single], length[group], where=length[group] > 0.0, out=np.zeros(len(single))
        )
        data = features.data.astype(np.float64)
        alone = entries[indices] == 1
        value[single] = length[group]
        data[alone] = value[indices[alone]]
        used = stays[indices]
        starts = np.concatenate([[0], np.cumsum(used)])[features.indptr]
        matrix = sp.csr_array((data[used], self.column[indices[used]], starts), (rows, len(kept)))
        matrix.sort_indices()
        #: The batch in these coordinates.
        self.inside = problem.with_variable_features(Features(matrix, problem.variable_features.name))

    def outside(self, flat: NDArray[np.float64]) -> NDArray[np.float64]:
        """Flat weights of the problem, from those of the batch in these coordinates."""
        u_v, u_f = self.inside.split_weights(flat)
        out = np.empty(self.problem.n_weights)
        w_v, w_f = self.problem.split_weights(out)
        np.multiply(u_v[:, self.column], self.share, out=w_v)
        w_f[:] = u_f
        return out


def columns_of(problem: Any) -> Columns | None:
    """The coordinates in which a solver should work; None where the problem's own are as good."""
    if not isinstance(problem, FactorGraphs) or problem.n_weights <= _FEW:
        return None
    if isinstance(problem.variable_features, KernelFeatures) or not problem.variable_features.sparse:
        return None
    return Columns(problem)

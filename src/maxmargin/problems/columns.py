"""Columns of sparse features in the order of their use, and columns that the data cannot tell apart as one.

Text has hundreds of thousands of columns, and a pass over the examples looks up a row of weights for every entry of the
features. In alphabetical order nearly every look-up waits for memory. In the order of

    floor(log2(entries of the column)), the most frequent first, and among equals the row of the first entry,

what is used often stands together and stays in the cache, and what is used once is walked through from end to end.

Columns with a single entry, v_c, in the same row are seen by the data only through the sum of v_c w_c. What regularised solvers
do is linear and starts from 0, so that w_c stays proportional to v_c, and one column may stand for all of them (`merge`):

    v^2 = sum_c v_c^2,      v u = sum_c v_c w_c,      w_c = (v_c / v) u,      u^2 = sum_c w_c^2

In both, norms and inner products of weights are what they were: a change of coordinates, and the same optimum. A column without
entries has weight 0. Merging is for solvers that keep many vectors of weights: the values of the merged columns are not 1, and
features of ones alone, which keep no values, take three times the room with them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.jit import kernel
from maxmargin.parallel.threads import map_shards
from maxmargin.problems.factor_graphs import FactorGraphs
from maxmargin.problems.features import Features, KernelFeatures, entry

#: Weights up to this number stay in the cache in any order.
_FEW = 1 << 17
#: Columns of which a few blocks make more weights than that.
_MANY = 1 << 15


class OrderedFeatures(Features):
    """Features with their columns in the order of use, and how to go back.

    Parameters
    ----------
    features : Features
        In CSR.
    merge : bool
        Whether one column stands for those with a single entry in the same row.
    constant : bool
        Add a last column of ones, there: no copy of the features is made for it.
    """

    #: (p,): the column here that stands for each column there, and the share of its weight: w = share * u.
    column: NDArray[np.int32]
    share: NDArray[np.float64]

    def __init__(self, features: Features, merge: bool = False, constant: bool = False) -> None:
        rows, p = features.shape[0], features.shape[1] + int(constant)
        entries, first, value = np.zeros(p, np.int64), np.full(p, rows), np.zeros(p)
        look_at_columns(features.arrays, entries, first, value)
        if constant:
            entries[-1], first[-1], value[-1] = rows, 0, 1.0
        single = np.flatnonzero(entries == 1) if merge else np.empty(0, np.int64)
        # Columns with a single entry stand in groups by its row, and the first of a group stays for all.
        _, leader, group = np.unique(first[single], return_index=True, return_inverse=True)
        length = np.sqrt(np.bincount(group, value[single] ** 2))
        stays = entries > 0
        stays[single] = False
        stays[single[leader]] = True
        kept = in_order_of_use(np.flatnonzero(stays), entries, first)
        self.column, self.share = np.zeros(p, np.int32), (entries > 0).astype(float)
        self.column[kept] = np.arange(len(kept))
        self.column[single] = self.column[single[leader]][group]
        # A value of 0 that is stored is an entry, too.
        self.share[single] = np.divide(
            value[single], length[group], where=length[group] > 0.0, out=np.zeros(len(single))
        )
        merged = np.full(p if merge else 0, -1.0)
        merged[single] = length[group]
        to = np.where(stays, self.column, -1).astype(np.int32)
        n, given = int(entries[stays].sum()), features.arrays.data
        indptr, indices = np.zeros(rows + 1, np.int64), np.empty(n, np.int32)
        data = np.empty(n if merge or len(given) else 0, np.float64 if merge else given.dtype)
        move_columns(features.arrays, to, merged, constant, indptr, indices, data)
        self.set_rows(indptr, indices, data, len(kept), features.name)

    def outside(self, flat: NDArray[np.float64], n_blocks: int, threads: int = 1) -> NDArray[np.float64]:
        """Flat weights with the columns there, of so many blocks that read these features, from those with the columns here."""
        (p, inside), cut = (len(self.column), self.shape[1]), n_blocks * self.shape[1]
        out = np.empty(len(flat) + n_blocks * (p - inside))
        own, given = out[: n_blocks * p].reshape(n_blocks, p), flat[:cut].reshape(n_blocks, inside)

        def of_block(begin: int, end: int) -> None:
            for block in range(begin, end):
                # Columns are within bounds, and "clip" spares NumPy a copy.
                np.take(given[block], self.column, out=own[block], mode="clip")
                own[block] *= self.share

        map_shards(of_block, [(block, block + 1) for block in range(n_blocks)], threads)
        out[n_blocks * p :] = flat[cut:]
        return out


def in_order_of_use(
    columns: NDArray[np.int64], entries: NDArray[np.int64], first: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Some columns in the order of their use, by their numbers of entries and the row of the first."""
    return columns[np.lexsort((first[columns], -np.frexp(entries[columns])[1]))]


class Columns:
    """The coordinates of a problem's solver: a batch whose variables' features have their columns in the order of use.

    Parameters
    ----------
    problem : FactorGraphs
        With sparse features of its variables.
    merge : bool
        Whether one column stands for those with a single entry in the same row.
    """

    def __init__(self, problem: FactorGraphs, merge: bool = False) -> None:
        self.problem, self.features = problem, OrderedFeatures(problem.variable_features, merge)
        #: The batch in these coordinates.
        self.inside = problem.with_variable_features(self.features)

    def outside(self, flat: NDArray[np.float64], threads: int = 1) -> NDArray[np.float64]:
        """Flat weights of the problem, from those of the batch in these coordinates."""
        return self.features.outside(flat, self.problem.n_variable_blocks, threads)


def columns_of(problem: Any, merge: bool = False) -> Columns | None:
    """The coordinates in which a solver should work; None where the problem's own are as good."""
    if not isinstance(problem, FactorGraphs) or problem.n_weights <= _FEW:
        return None
    features = problem.variable_features
    if getattr(features, "on_disk", False):
        # They are in an order already, and are not written out in another.
        return None
    if isinstance(features, KernelFeatures) or not features.sparse or len(features.arrays.indices) == 0:
        return None
    return None if isinstance(features, OrderedFeatures) and not merge else Columns(problem, merge)


def worth_ordering(features: Features) -> bool:
    """Whether features that nothing is known of but their columns are better put in the order of use."""
    return features.sparse and many_columns(features.shape[1]) and len(features.arrays.indices) > 0


def many_columns(p: int) -> bool:
    """Whether so many columns of compressed rows are better put in the order of use."""
    return _MANY < p < 2**31 - 1


# ------------------------------------------------------------------------------------------------------- kernels


@kernel
def look_at_columns(features: Any, entries: Any, first: Any, value: Any) -> None:
    """Count the entries of each column, and note the row and the value of its first one."""
    indptr, indices, data = features.indptr, features.indices, features.data
    for row in range(len(indptr) - 1):
        for q in range(indptr[row], indptr[row + 1]):
            column = indices[q]
            if entries[column] == 0:
                first[column], value[column] = row, entry(data, q)
            entries[column] += 1


@kernel
def move_columns(features: Any, to: Any, merged: Any, constant: bool, indptr: Any, indices: Any, data: Any) -> None:
    """Write rows whose entries are moved to other columns, sorted; those with -1 are left out, those `merged` get their value.

    With `constant` every row has a 1 in the last of the columns, too.
    """
    old_indptr, old, values = features.indptr, features.indices, features.data
    at = 0
    for row in range(len(old_indptr) - 1):
        begin = at
        if constant:
            indices[at] = to[len(to) - 1]
            if len(data) > 0:
                data[at] = 1.0
            at += 1
        for q in range(old_indptr[row], old_indptr[row + 1]):
            if to[old[q]] >= 0:
                indices[at] = to[old[q]]
                if len(data) > 0:
                    whole = len(merged) > 0 and merged[old[q]] >= 0.0
                    data[at] = merged[old[q]] if whole else entry(values, q)
                at += 1
        indptr[row + 1] = at
        # Shell's sort, with gaps that grow by 3.
        gap = 1
        while 3 * gap < at - begin:
            gap = 3 * gap + 1
        while gap > 0:
            for k in range(begin + gap, at):
                column, x, place = indices[k], entry(data, k), k
                while place >= begin + gap and indices[place - gap] > column:
                    indices[place] = indices[place - gap]
                    if len(data) > 0:
                        data[place] = data[place - gap]
                    place -= gap
                indices[place] = column
                if len(data) > 0:
                    data[place] = x
            gap //= 3

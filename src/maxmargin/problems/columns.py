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

from maxmargin.jit import inner, kernel
from maxmargin.parallel.threads import map_shards, run_shards
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
    threads : int
        Threads that write them.
    """

    #: (p,): the column here that stands for each column there, and the share of its weight: w = share * u.
    column: NDArray[np.int32]
    share: NDArray[np.float64]

    def __init__(self, features: Features, merge: bool = False, constant: bool = False, threads: int = 1) -> None:
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
        indptr, given = rows_that_stay(features.arrays, to, constant), features.arrays.data
        n = int(indptr[-1])
        indices = np.empty(n, np.int32)
        data = np.empty(n if merge or len(given) else 0, np.float64 if merge else given.dtype)
        run_shards(
            lambda begin, end: move_columns(features.arrays, to, merged, constant, indptr, indices, data, begin, end),
            rows,
            threads,
        )
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
    found: NDArray[np.int64] = sort_by_use(columns, entries, first)
    return found


class Columns:
    """The coordinates of a problem's solver: a batch whose variables' features have their columns in the order of use.

    Parameters
    ----------
    problem : FactorGraphs
        With sparse features of its variables.
    merge : bool
        Whether one column stands for those with a single entry in the same row.
    threads : int
        Threads that write them.
    """

    def __init__(self, problem: FactorGraphs, merge: bool = False, threads: int = 1) -> None:
        self.problem, self.features = problem, OrderedFeatures(problem.variable_features, merge, threads=threads)
        #: The batch in these coordinates.
        self.inside = problem.with_variable_features(self.features)

    def outside(self, flat: NDArray[np.float64], threads: int = 1) -> NDArray[np.float64]:
        """Flat weights of the problem, from those of the batch in these coordinates."""
        return self.features.outside(flat, self.problem.n_variable_blocks, threads)


def columns_of(problem: Any, merge: bool = False, threads: int = 1) -> Columns | None:
    """The coordinates in which a solver should work; None where the problem's own are as good."""
    if not isinstance(problem, FactorGraphs) or problem.n_weights <= _FEW:
        return None
    features = problem.variable_features
    if getattr(features, "on_disk", False):
        # They are in an order already, and are not written out in another.
        return None
    if isinstance(features, KernelFeatures) or not features.sparse or len(features.arrays.indices) == 0:
        return None
    return None if isinstance(features, OrderedFeatures) and not merge else Columns(problem, merge, threads)


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
def sort_by_use(columns: Any, entries: Any, first: Any) -> Any:
    """Columns by the bits of their numbers of entries, the most first, and among equals by the row of the first entry.

    Two counting sorts: they are many, and comparing them takes ten times longer.
    """
    rows = 0
    for k in range(len(columns)):
        rows = max(rows, first[columns[k]] + 1)
    key = np.empty(len(columns), np.int64)
    for k in range(len(columns)):
        key[k] = first[columns[k]]
    by_row = columns[_sorted_places(key, rows)]
    for k in range(len(columns)):
        key[k], left = 63, entries[by_row[k]]
        while left > 0:
            left >>= 1
            key[k] -= 1
    return by_row[_sorted_places(key, 64)]


@inner
def _sorted_places(key: Any, n_keys: int) -> Any:
    """Where the keys stand when they are sorted; equal ones stay in their order."""
    starts, places = np.zeros(n_keys + 1, np.int64), np.empty(len(key), np.int64)
    for k in range(len(key)):
        starts[key[k] + 1] += 1
    for k in range(n_keys):
        starts[k + 1] += starts[k]
    for k in range(len(key)):
        places[starts[key[k]]] = k
        starts[key[k]] += 1
    return places


@kernel
def rows_that_stay(features: Any, to: Any, constant: bool) -> Any:
    """Where the rows of `move_columns` begin."""
    old_indptr, old = features.indptr, features.indices
    indptr = np.zeros(len(old_indptr), np.int64)
    for row in range(len(old_indptr) - 1):
        n = int(constant)
        for q in range(old_indptr[row], old_indptr[row + 1]):
            n += to[old[q]] >= 0
        indptr[row + 1] = indptr[row] + n
    return indptr


@kernel
def move_columns(
    features: Any, to: Any, merged: Any, constant: bool, indptr: Any, indices: Any, data: Any, first: int, last: int
) -> None:
    """Write rows whose entries are moved to other columns, sorted; those with -1 are left out, those `merged` get their value.

    With `constant` every row has a 1 in the last of the columns, too.
    """
    old_indptr, old, values = features.indptr, features.indices, features.data
    for row in range(first, last):
        begin = at = indptr[row]
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

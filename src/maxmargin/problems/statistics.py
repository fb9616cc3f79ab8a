"""Statistics: what a labeling of an example does to the weights, in coordinates of the example.

An example reads few feature rows, and a labeling counts how often each row stands in each block of the weights:

    phi(x, y) = sum_{r, b} s_y(r, b) (x_r in block b),        score(y) = s_y . z,   z(r, b) = x_r . W[:, b]

So z, the weights seen from the example, scores every labeling, and s_y is all that is ever needed of one. In *statistics*
coordinates the entry (group of the variables, block) stands at ``at + block - first block`` of the group, and those of factors the
same after ``half = largest.buffer`` entries. A *plane* is a labeling as the solvers see it:

    psi(y) = phi(truth) - phi(y), kept as the nonzero entries of s_truth - s_y,
    ell(y) = loss(y) + fixed(y) - fixed(truth),        hinge of y at w:  ell(y) - w . psi(y)

A structured factor counts its parameters by its statistics F(y) where a table counts its joint state (structured.py).

Mixtures of labelings (relaxed ones too) have fractional statistics. Inner products come from the rows' Gram matrix K, since
rows meet only in equal blocks:

    psi(a) . psi(b) = sum_{r, r', b} K(r, r') s_a(r, b) s_b(r', b)

Memory: K has an entry for each pair of groups of an example. Of sparse rows it is not made where planes are those of labelings: the
few rows that one has entries for are multiplied with the others when it is found. Where it would outgrow dense features (large
graphs), it is not made either, and inner products go through the weights' own coordinates.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin import scratch
from maxmargin.jit import Struct, inner, kernel
from maxmargin.problems.factor_graphs import FactorGraphs
from maxmargin.problems.features import add_row, entry, score_row
from maxmargin.problems.layout import joint_state, loss_of, offsets
from maxmargin.problems.structured import structured_statistics
from maxmargin.problems.templates import TABLE

#: Row Gram matrices are kept if they take at most this many times the room of the features, or this many entries.
_KEEP_RATIO, _KEEP_ENTRIES = 4, 1_000_000
#: Products of sparse rows are computed when they are asked for if no example reads more rows than this, and dense ones beside them
#: have at most so many columns.
_FEW_ROWS, _NARROW = 4096, 16


class RowGrams(Struct):
    """Inner products of the feature rows of each example: of variables, and of factors."""

    #: (M + 1, 2): where each example's two matrices begin in `values`; both columns are all 0 if they are not kept.
    start: NDArray[np.int64]
    values: NDArray[np.float64]
    kept: bool
    #: Whether products of sparse rows are computed when they are asked for.
    by_row: bool

    def room(self, graphs: FactorGraphs) -> tuple[tuple[int, int], tuple[int, int]] | None:
        """Shapes of two matrices of zeros in which what is not kept is computed: columns, or weights."""
        if self.kept:
            return None
        p, q = graphs.variable_features.working_rows, graphs.factor_features.working_rows
        if self.by_row:
            return (p, 1), (q, 1)
        return (p, graphs.n_variable_blocks), (q, graphs.n_factor_blocks)


def row_grams(graphs: FactorGraphs, of_labelings: bool = False) -> RowGrams:
    """Compute the matrices of all examples, or decide that each visit does; planes that are `of_labelings` have few entries."""
    features = graphs.variable_features, graphs.factor_features
    groups = n_groups(graphs)
    # A row of a plane is spread out once, and then the product with another row takes a look at each of that row's entries.
    narrow = features[1].sparse or features[1].shape[1] <= _NARROW
    by_row = of_labelings and features[0].sparse and narrow and bool(groups.max() <= _FEW_ROWS)
    squares = groups[graphs.structure_of] ** 2
    start = offsets(squares.ravel())
    room = sum(one.nbytes for one in features) // 8
    kept = not by_row and bool(start[-1] <= max(_KEEP_ENTRIES, _KEEP_RATIO * room))
    both = np.stack([start[:-1:2], start[1::2]], axis=1)
    values = scratch.empty(int(start[-1]) if kept else 0)
    if kept:
        _fill_row_grams(graphs.batch, both, values)
    return RowGrams(both if kept else np.zeros_like(both), values, kept, by_row)


def n_groups(graphs: FactorGraphs) -> NDArray[np.int64]:
    """(S, 2): feature rows that the variables and the factors of each structure read."""
    starts = graphs.arrays.structures
    return np.stack([np.diff(starts.variable_groups), np.diff(starts.factor_groups)], axis=1)


def statistics_sizes(graphs: FactorGraphs) -> NDArray[np.int64]:
    """(S, 2): entries that the variables and the factors of each structure take in statistics coordinates."""
    a = graphs.arrays
    out = np.zeros((len(a.structures) - 1, 2), np.int64)
    for side, groups, starts in (
        (0, a.variable_groups, a.structures.variable_groups),
        (1, a.factor_groups, a.structures.factor_groups),
    ):
        filled = np.diff(starts) > 0
        last = groups[starts[1:][filled] - 1]
        out[filled, side] = last.at + last.block_end - last.block
    return out


# ------------------------------------------------------------------------------------------------------- kernels


@inner
def row_product(features: Any, one: int, other: int) -> float:
    """x_one . x_other."""
    if features.gram.shape[0] > 0:
        return float(features.gram[one, other])
    indptr, indices, data, dense = features.indptr, features.indices, features.data, features.dense
    total = 0.0
    if len(indptr) > 1:
        p, q, p1, q1 = indptr[one], indptr[other], indptr[one + 1], indptr[other + 1]
        while p < p1 and q < q1:
            if indices[p] < indices[q]:
                p += 1
            elif indices[p] > indices[q]:
                q += 1
            else:
                total += np.float64(entry(data, p)) * np.float64(entry(data, q))
                p += 1
                q += 1
    else:
        for column in range(dense.shape[1]):
            total += np.float64(dense[one, column]) * np.float64(dense[other, column])
    return total


@inner
def fill_row_gram(side: Any, m: int, s: int, out: Any, at: int) -> None:
    """The Gram matrix of the rows that one side of example m reads."""
    groups, features, row0, q0 = side.groups, side.features, side.first_row[m], side.first_group[s]
    n = side.first_group[s + 1] - q0
    for i in range(n):
        for j in range(i + 1):
            value = row_product(features, row0 + groups[q0 + i].row, row0 + groups[q0 + j].row)
            out[at + i * n + j] = value
            out[at + j * n + i] = value


@kernel
def _fill_row_grams(batch: Any, start: Any, values: Any) -> None:
    examples = batch.graphs.examples
    for m in range(len(examples) - 1):
        s = examples[m].structure
        fill_row_gram(batch.variables, m, s, values, start[m, 0])
        fill_row_gram(batch.factors, m, s, values, start[m, 1])


@inner
def project(side: Any, m: int, s: int, weights: Any, z: Any) -> None:
    """z(r, b) = x_r . weights[:, b] of one side of example m."""
    groups, features, row0, at = side.groups, side.features, side.first_row[m], side.at
    for q in range(side.first_group[s], side.first_group[s + 1]):
        score_row(
            features, row0 + groups[q].row, weights, groups[q].block, groups[q].block_end, z, at + groups[q].at
        )  # fmt: skip


@inner
def project_example(batch: Any, m: int, w_v: Any, w_f: Any, z: Any) -> None:
    """The weights as example m sees them."""
    s = batch.graphs.examples[m].structure
    project(batch.variables, m, s, w_v, z)
    project(batch.factors, m, s, w_f, z)


@inner
def add_statistics(side: Any, m: int, s: int, weights: Any, change: Any, at: int, scale: float) -> None:
    """Weights += scale * sum_r x_r change(r, :) of one side of example m; its statistics begin at change[at]."""
    groups, features, row0 = side.groups, side.features, side.first_row[m]
    for q in range(side.first_group[s], side.first_group[s + 1]):
        low, high, place = groups[q].block, groups[q].block_end, at + groups[q].at
        # Most changes touch few of a row's blocks.
        while low < high and change[place] == 0.0:
            low += 1
            place += 1
        while high > low and change[place + high - low - 1] == 0.0:
            high -= 1
        if low < high:
            add_row(features, row0 + groups[q].row, weights, low, high, change, place, scale)


@inner
def add_example(batch: Any, m: int, change: Any, scale: float, w_v: Any, w_f: Any) -> None:
    """Weights += scale * sum_r x_r change(r, :) of example m."""
    s = batch.graphs.examples[m].structure
    add_statistics(batch.variables, m, s, w_v, change, batch.variables.at, scale)
    add_statistics(batch.factors, m, s, w_f, change, batch.factors.at, scale)


@inner
def statistics_end(side: Any, s: int) -> int:
    """How many entries one side of a structure takes in statistics coordinates."""
    if side.first_group[s + 1] == side.first_group[s]:
        return 0
    last = side.groups[side.first_group[s + 1] - 1]
    return int(last.at + last.block_end - last.block)


@inner
def side_tables(side: Any, m: int, s: int, z: Any, out: Any, wanted: Any = None) -> None:
    """Score tables of one side of example m from z: fixed + extra + learned, into out from its beginning.

    `wanted` says of which templates, if not of all.
    """
    groups, members, kinds, blocks, fixed, extra = (
        side.groups, side.members, side.kinds, side.block, side.fixed, side.scores,
    )  # fmt: skip
    first, extra_at, at = side.first_member[s], side.first_score[m], side.at
    for q in range(side.first_group[s], side.first_group[s + 1]):
        place = at + groups[q].at - groups[q].block
        for i in range(groups[q].first, groups[q].last):
            t, here = members[first + i].template, members[first + i].table
            if wanted is not None:  # noqa: SIM102
                if not wanted[t]:
                    continue
            start, size = kinds[t].start, kinds[t].entries
            for y in range(size):
                b = blocks[start + y]
                out[here + y] = fixed[start + y] + (z[place + b] if b >= 0 else 0.0)
            if len(extra) > 0:
                for y in range(size):
                    out[here + y] += extra[extra_at + here + y]


@inner
def add_gram_times(
    side: Any, s: int, index: Any, value: Any, begin: int, end: int, row_gram: Any, gram_at: int, u: Any
) -> None:
    """u(r', b) += sum_r K(r, r') s(r, b) for the entries from begin to end of one side; u is in statistics coordinates."""
    groups, low, q0, q1 = side.groups, side.at, side.first_group[s], side.first_group[s + 1]
    n, q = q1 - q0, q0
    for e in range(begin, end):
        i = index[e] - low
        # Entries come in the order of the coordinates, so the group only moves on.
        while i >= groups[q].at + groups[q].block_end - groups[q].block:
            q += 1
        b = i - groups[q].at + groups[q].block
        for other in range(q0, q1):
            if groups[other].block <= b < groups[other].block_end:
                u[low + groups[other].at + b - groups[other].block] += (
                    row_gram[gram_at + (q - q0) * n + other - q0] * value[e]
                )


@inner
def add_row_products(
    side: Any, m: int, s: int, index: Any, value: Any, begin: int, end: int, spread: Any, u: Any
) -> None:
    """`add_gram_times` with the products of rows computed here; `spread` (p, 1) is zero, and is so again afterwards."""
    groups, features, low, q0, q1 = side.groups, side.features, side.at, side.first_group[s], side.first_group[s + 1]
    indptr, indices, data, row0 = features.indptr, features.indices, features.data, side.first_row[m]
    sparse, q, first = len(indptr) > 1, q0, begin
    while first < end:
        while index[first] - low >= groups[q].at + groups[q].block_end - groups[q].block:
            q += 1
        last = first + 1
        while last < end and index[last] - low < groups[q].at + groups[q].block_end - groups[q].block:
            last += 1
        row, shift = row0 + groups[q].row, groups[q].block - groups[q].at - low
        if sparse:
            for k in range(indptr[row], indptr[row + 1]):
                spread[indices[k], 0] = entry(data, k)
        for other in range(q0, q1):
            there, product = row0 + groups[other].row, 0.0
            if sparse:
                for k in range(indptr[there], indptr[there + 1]):
                    product += spread[indices[k], 0] * np.float64(entry(data, k))
            else:
                product = row_product(features, row, there)
            if product != 0.0:
                at = low + groups[other].at - groups[other].block
                for e in range(first, last):
                    b = index[e] + shift
                    if groups[other].block <= b < groups[other].block_end:
                        u[at + b] += product * value[e]
        if sparse:
            for k in range(indptr[row], indptr[row + 1]):
                spread[indices[k], 0] = 0.0
        first = last


@inner
def _count(tally: Any, touched: Any, n: int, place: int, block: int, change: float) -> int:
    """Add to the tally of a block, if it is one, and note it as the n-th that was 0 before; returns how many are noted."""
    if block >= 0:
        at = place + block
        if tally[at] == 0.0:
            touched[n] = at
            n += 1
        tally[at] += change
    return n


@inner
def plane_of_labels(
    batch: Any,
    m: int,
    labels: Any,
    at: int,
    tally: Any,
    touched: Any,
    index: Any,
    value: Any,
    begin: int,
    own: Any = None,
) -> tuple[int, float]:
    """Write the plane of a labeling from index[begin], value[begin] on; return its number of entries and ell.

    The labels of example m begin at labels[at]. `tally` is zero in all statistics coordinates, and is so again afterwards. Where
    there may be structured factors, `own` is room for one (`FactorRoom`).
    """
    g, side = batch.graphs, batch.variables
    examples, truth = g.examples, g.labels
    s, truth_at, states = examples[m].structure, examples[m].variables, examples[m].states
    groups, members, kinds, blocks, fixed, scores = (
        side.groups, side.members, side.kinds, side.block, side.fixed, side.scores,
    )  # fmt: skip
    first = side.first_member[s]
    n, ell = 0, 0.0
    for q in range(side.first_group[s], side.first_group[s + 1]):
        place = groups[q].at - groups[q].block
        for i in range(groups[q].first, groups[q].last):
            y, true = labels[at + i], truth[truth_at + i]
            if y == true:
                continue
            state, start = states + members[first + i].table, kinds[members[first + i].template].start
            ell += loss_of(g, state + y, truth_at + i) + fixed[start + y] - fixed[start + true]
            if len(scores) > 0:
                ell += scores[state + y] - scores[state + true]
            n = _count(tally, touched, n, place, blocks[start + true], 1.0)
            n = _count(tally, touched, n, place, blocks[start + y], -1.0)
    # Another name, because another type of features makes another type of side.
    other = batch.factors
    groups, members, kinds, blocks, fixed, scores = (
        other.groups, other.members, other.kinds, other.block, other.fixed, other.scores,
    )  # fmt: skip
    scope, slots, first = g.scope, g.slots, other.first_member[s]
    for q in range(other.first_group[s], other.first_group[s + 1]):
        place = other.at + groups[q].at - groups[q].block
        for c in range(first + groups[q].first, first + groups[q].last):
            t, table = members[c].template, examples[m].tables + members[c].table
            start = kinds[t].start
            # Numba leaves a branch out, and what it calls, if the test of None stands alone.
            if own is not None:  # noqa: SIM102
                if kinds[t].kind != TABLE:
                    size, spared, counted = kinds[t].entries, own.labels, own.work
                    for which in range(2):
                        for j in range(kinds[t].arity):
                            i = scope[members[c].neighbours + j]
                            spared[j] = labels[at + i] if which == 0 else truth[truth_at + i]
                        structured_statistics(t, kinds, slots, g.structured, spared, counted, which * size)
                    for p in range(size):
                        change = counted[p] - counted[size + p]
                        if change != 0.0:
                            ell += change * fixed[start + p]
                            if len(scores) > 0:
                                ell += change * scores[table + p]
                            n = _count(tally, touched, n, place, blocks[start + p], -change)
                    continue
            y = joint_state(c, at, members, scope, kinds, slots, labels)
            true = joint_state(c, truth_at, members, scope, kinds, slots, truth)
            if y == true:
                continue
            ell += fixed[start + y] - fixed[start + true]
            if len(scores) > 0:
                ell += scores[table + y] - scores[table + true]
            n = _count(tally, touched, n, place, blocks[start + true], 1.0)
            n = _count(tally, touched, n, place, blocks[start + y], -1.0)
    size = 0
    for e in range(n):
        i = touched[e]
        # An entry that went through zero was noted twice.
        if tally[i] != 0.0:
            index[begin + size] = i
            value[begin + size] = tally[i]
            tally[i] = 0.0
            size += 1
    return size, ell


@inner
def side_of_marginals(side: Any, m: int, s: int, marginals: Any, truth: Any, tally: Any) -> float:
    """Add truth minus marginals of one side to the tally; return the fixed score of marginals minus truth.

    Marginals and truth begin at 0 of their arrays, in states or tables coordinates of the example.
    """
    groups, members, kinds, blocks, fixed, extra = (
        side.groups, side.members, side.kinds, side.block, side.fixed, side.scores,
    )  # fmt: skip
    first, extra_at, at = side.first_member[s], side.first_score[m], side.at
    ell = 0.0
    for q in range(side.first_group[s], side.first_group[s + 1]):
        place = at + groups[q].at - groups[q].block
        for i in range(groups[q].first, groups[q].last):
            t, here = members[first + i].template, members[first + i].table
            start = kinds[t].start
            for y in range(kinds[t].entries):
                change = marginals[here + y] - truth[here + y]
                # A forbidden state has no mass in either, and -inf times 0 would be NaN.
                if change != 0.0:
                    ell += change * fixed[start + y]
                    if len(extra) > 0:
                        ell += change * extra[extra_at + here + y]
                    if blocks[start + y] >= 0:
                        tally[place + blocks[start + y]] -= change
    return ell


@inner
def collect(tally: Any, index: Any, value: Any, begin: int) -> int:
    """Write the nonzero entries of the tally from index[begin], value[begin] on, and clear them."""
    size = 0
    for i in range(len(tally)):
        if tally[i] != 0.0:
            index[begin + size] = i
            value[begin + size] = tally[i]
            tally[i] = 0.0
            size += 1
    return size

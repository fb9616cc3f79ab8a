"""Statistics: what a labeling of an example does to the weights, in coordinates of the example.

An example reads few feature rows, and a labeling counts how often each row stands in each block of the weights:

    phi(x, y) = sum_{r, b} s_y(r, b) (x_r in block b),        score(y) = s_y . z,   z(r, b) = x_r . W[:, b]

So z, the weights seen from the example, scores every labeling, and s_y is all that is ever needed of one. In *statistics*
coordinates the entry (group of the variables, block) stands at ``G_AT + block - G_BLOCK``, and those of factors the same after
``half = largest[L_BUFFER]`` entries. A *plane* is a labeling as the solvers see it:

    psi(y) = phi(truth) - phi(y), kept as the nonzero entries of s_truth - s_y,
    ell(y) = loss(y) + fixed(y) - fixed(truth),        hinge of y at w:  ell(y) - w . psi(y)

A structured factor counts its parameters by its statistics F(y) where a table counts its joint state (structured.py).

Mixtures of labelings (relaxed ones too) have fractional statistics. Inner products come from the rows' Gram matrix K, since
rows meet only in equal blocks:

    psi(a) . psi(b) = sum_{r, r', b} K(r, r') s_a(r, b) s_b(r', b)

Memory: K has an entry for each pair of groups of an example. Where that would outgrow the features (large graphs), K is not made,
and inner products go through the weights' own coordinates.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.jit import Struct, inner, kernel
from maxmargin.problems.factor_graphs import FactorGraphs
from maxmargin.problems.features import add_row, score_row
from maxmargin.problems.layout import (
    F_ROW,
    F_SCOPE,
    F_TABLE,
    G_AT,
    G_BLOCK,
    G_BLOCK_END,
    G_FIRST,
    G_LAST,
    G_ROW,
    K_ARITY,
    K_KIND,
    K_SIZE,
    K_START,
    S_FACTOR_GROUPS,
    S_VARIABLE_GROUPS,
    STRUCTURE,
    V_ROW,
    V_STATE,
    joint_state,
    offsets,
)
from maxmargin.problems.structured import structured_statistics
from maxmargin.problems.templates import TABLE

#: Row Gram matrices are kept if they take at most this many times the room of the features, or this many entries.
_KEEP_RATIO, _KEEP_ENTRIES = 4, 1_000_000


class RowGrams(Struct):
    """Inner products of the feature rows of each example: of variables, and of factors."""

    #: (M + 1, 2): where each example's two matrices begin in `values`; both columns are all 0 if they are not kept.
    start: NDArray[np.int64]
    values: NDArray[np.float64]
    kept: bool


def row_grams(graphs: FactorGraphs) -> RowGrams:
    """Compute the matrices of all examples, or decide that each visit does."""
    a = graphs.arrays
    sizes = np.diff(a.structures[:, [S_VARIABLE_GROUPS, S_FACTOR_GROUPS]], axis=0)
    squares = sizes[graphs.structure_of] ** 2
    start = offsets(squares.ravel())
    room = (graphs.variable_features.nbytes + graphs.factor_features.nbytes) // 8
    kept = bool(start[-1] <= max(_KEEP_ENTRIES, _KEEP_RATIO * room))
    both = np.stack([start[:-1:2], start[1::2]], axis=1)
    values = np.empty(int(start[-1]) if kept else 0)
    if kept:
        _fill_row_grams(a, graphs.variable_features.arrays, graphs.factor_features.arrays, both, values)
    return RowGrams(both if kept else np.zeros_like(both), values, kept)


def statistics_sizes(graphs: FactorGraphs) -> NDArray[np.int64]:
    """(S, 2): entries that the variables and the factors of each structure take in statistics coordinates."""
    a = graphs.arrays
    out = np.zeros((len(a.structures) - 1, 2), np.int64)
    for side, groups, column in ((0, a.variable_groups, S_VARIABLE_GROUPS), (1, a.factor_groups, S_FACTOR_GROUPS)):
        ends = a.structures[1:, column]
        filled = np.diff(a.structures[:, column]) > 0
        last = groups[ends[filled] - 1]
        out[filled, side] = last[:, G_AT] + last[:, G_BLOCK_END] - last[:, G_BLOCK]
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
                total += np.float64(data[p]) * np.float64(data[q])
                p += 1
                q += 1
    else:
        for column in range(dense.shape[1]):
            total += np.float64(dense[one, column]) * np.float64(dense[other, column])
    return total


@inner
def fill_row_gram(features: Any, row0: int, groups: Any, q0: int, q1: int, out: Any, at: int) -> None:
    """The Gram matrix of the rows of the groups q0 to q1 of one side."""
    n = q1 - q0
    for i in range(n):
        for j in range(i + 1):
            value = row_product(features, row0 + groups[q0 + i, G_ROW], row0 + groups[q0 + j, G_ROW])
            out[at + i * n + j] = value
            out[at + j * n + i] = value


@kernel
def _fill_row_grams(g: Any, v_features: Any, f_features: Any, start: Any, values: Any) -> None:
    examples, structures, v_groups, f_groups = g.examples, g.structures, g.variable_groups, g.factor_groups
    for m in range(len(examples) - 1):
        s = examples[m, STRUCTURE]
        q0, q1 = structures[s, S_VARIABLE_GROUPS], structures[s + 1, S_VARIABLE_GROUPS]
        fill_row_gram(v_features, examples[m, V_ROW], v_groups, q0, q1, values, start[m, 0])
        q0, q1 = structures[s, S_FACTOR_GROUPS], structures[s + 1, S_FACTOR_GROUPS]
        fill_row_gram(f_features, examples[m, F_ROW], f_groups, q0, q1, values, start[m, 1])


@inner
def project(features: Any, row0: int, groups: Any, q0: int, q1: int, weights: Any, z: Any, at: int) -> None:
    """z(r, b) = x_r . weights[:, b] of one side, into z[at:]."""
    for q in range(q0, q1):
        score_row(
            features,
            row0 + groups[q, G_ROW],
            weights,
            groups[q, G_BLOCK],
            groups[q, G_BLOCK_END],
            z,
            at + groups[q, G_AT],
        )


@inner
def add_statistics(
    features: Any, row0: int, groups: Any, q0: int, q1: int, weights: Any, change: Any, at: int, scale: float
) -> None:
    """Weights += scale * sum_r x_r change(r, :) of one side; change[at:] is in statistics coordinates."""
    for q in range(q0, q1):
        low, high, place = groups[q, G_BLOCK], groups[q, G_BLOCK_END], at + groups[q, G_AT]
        # Most changes touch few of a row's blocks.
        while low < high and change[place] == 0.0:
            low += 1
            place += 1
        while high > low and change[place + high - low - 1] == 0.0:
            high -= 1
        if low < high:
            add_row(features, row0 + groups[q, G_ROW], weights, low, high, change, place, scale)


@inner
def side_tables(
    q0: int, q1: int, groups: Any, first: int, members: Any, kinds: Any, blocks: Any, fixed: Any, extra: Any, extra_at: int,
    z: Any, at: int, out: Any,
) -> None:  # fmt: skip
    """Score tables of one side of an example from z: fixed + extra + learned, into out from its beginning."""
    for q in range(q0, q1):
        place = at + groups[q, G_AT] - groups[q, G_BLOCK]
        for i in range(groups[q, G_FIRST], groups[q, G_LAST]):
            t, here = members[first + i, 0], members[first + i, 1]
            start = kinds[t, K_START]
            for y in range(kinds[t, K_SIZE]):
                b = blocks[start + y]
                out[here + y] = fixed[start + y] + (z[place + b] if b >= 0 else 0.0)
            if len(extra) > 0:
                for y in range(kinds[t, K_SIZE]):
                    out[here + y] += extra[extra_at + here + y]


@inner
def spread(
    index: Any, value: Any, begin: int, size: int, low: int, high: int, groups: Any, q0: int, q1: int, row_gram: Any,
    gram_at: int, u: Any,
) -> None:  # fmt: skip
    """u(r', b) += sum_r K(r, r') s(r, b) for the entries in [low, high) of one side; u is in statistics coordinates."""
    n, q = q1 - q0, q0
    for e in range(begin, begin + size):
        i = index[e]
        if low <= i < high:
            # Entries come in the order of the coordinates, so the group only moves on.
            while i - low >= groups[q, G_AT] + groups[q, G_BLOCK_END] - groups[q, G_BLOCK]:
                q += 1
            b = i - low - groups[q, G_AT] + groups[q, G_BLOCK]
            for other in range(q0, q1):
                if groups[other, G_BLOCK] <= b < groups[other, G_BLOCK_END]:
                    u[low + groups[other, G_AT] + b - groups[other, G_BLOCK]] += (
                        row_gram[gram_at + (q - q0) * n + other - q0] * value[e]
                    )


@inner
def plane_of_labels(
    q0: int, q1: int, groups: Any, f0: int, f1: int, f_groups: Any, v_first: int, variables: Any, v_kinds: Any, v_block: Any,
    v_fixed: Any, v_scores: Any, states: int, c_first: int, factors: Any, kinds: Any, f_block: Any, f_fixed: Any, f_scores: Any,
    tables: int, scope: Any, slots: Any, losses: Any, half: int, labels: Any, at: int, truth: Any, truth_at: int, count: Any,
    touched: Any, index: Any, value: Any, begin: int, structured: Any = None, own_labels: Any = None, own_statistics: Any = None,
) -> tuple[int, float]:  # fmt: skip
    """Write the plane of a labeling from index[begin], value[begin] on; return its number of entries and ell.

    `count` is zero in all statistics coordinates, and is so again afterwards. Where there may be structured factors, `structured`
    is the layout's, and the two after it are scratch for a factor's labels and twice its parameters.
    """
    n, ell = 0, 0.0
    for q in range(q0, q1):
        place = groups[q, G_AT] - groups[q, G_BLOCK]
        for i in range(groups[q, G_FIRST], groups[q, G_LAST]):
            y, own = labels[at + i], truth[truth_at + i]
            if y == own:
                continue
            state, start = variables[v_first + i, V_STATE], v_kinds[variables[v_first + i, 0], K_START]
            ell += losses[states + state + y] + v_fixed[start + y] - v_fixed[start + own]
            if len(v_scores) > 0:
                ell += v_scores[states + state + y] - v_scores[states + state + own]
            for sign, b in ((1.0, v_block[start + own]), (-1.0, v_block[start + y])):
                if b >= 0:
                    if count[place + b] == 0.0:
                        touched[n] = place + b
                        n += 1
                    count[place + b] += sign
    for q in range(f0, f1):
        place = half + f_groups[q, G_AT] - f_groups[q, G_BLOCK]
        for c in range(f_groups[q, G_FIRST], f_groups[q, G_LAST]):
            if structured is not None:
                t, at_table = factors[c_first + c, 0], tables + factors[c_first + c, F_TABLE]
                if kinds[t, K_KIND] != TABLE:
                    size = kinds[t, K_SIZE]
                    for which in range(2):
                        for j in range(kinds[t, K_ARITY]):
                            i = scope[factors[c_first + c, F_SCOPE] + j]
                            own_labels[j] = labels[at + i] if which == 0 else truth[truth_at + i]
                        structured_statistics(t, kinds, slots, structured, own_labels, own_statistics, which * size)
                    for p in range(size):
                        change = own_statistics[p] - own_statistics[size + p]
                        if change != 0.0:
                            b = f_block[kinds[t, K_START] + p]
                            ell += change * f_fixed[kinds[t, K_START] + p]
                            if len(f_scores) > 0:
                                ell += change * f_scores[at_table + p]
                            if b >= 0:
                                if count[place + b] == 0.0:
                                    touched[n] = place + b
                                    n += 1
                                count[place + b] -= change
                    continue
            y = joint_state(c_first + c, at, factors, scope, kinds, slots, labels)
            own = joint_state(c_first + c, truth_at, factors, scope, kinds, slots, truth)
            if y == own:
                continue
            table, start = factors[c_first + c, F_TABLE], kinds[factors[c_first + c, 0], K_START]
            ell += f_fixed[start + y] - f_fixed[start + own]
            if len(f_scores) > 0:
                ell += f_scores[tables + table + y] - f_scores[tables + table + own]
            for sign, b in ((1.0, f_block[start + own]), (-1.0, f_block[start + y])):
                if b >= 0:
                    if count[place + b] == 0.0:
                        touched[n] = place + b
                        n += 1
                    count[place + b] += sign
    size = 0
    for e in range(n):
        i = touched[e]
        # An entry that went through zero was noted twice.
        if count[i] != 0.0:
            index[begin + size] = i
            value[begin + size] = count[i]
            count[i] = 0.0
            size += 1
    return size, ell


@inner
def side_of_marginals(
    q0: int, q1: int, groups: Any, first: int, members: Any, kinds: Any, blocks: Any, fixed: Any, extra: Any, extra_at: int,
    marginals: Any, truth: Any, at: int, count: Any,
) -> float:  # fmt: skip
    """Add truth minus marginals of one side to count[at:]; return the fixed score of marginals minus truth.

    Marginals and truth begin at 0 of their arrays, in states or tables coordinates of the example.
    """
    ell = 0.0
    for q in range(q0, q1):
        place = at + groups[q, G_AT] - groups[q, G_BLOCK]
        for i in range(groups[q, G_FIRST], groups[q, G_LAST]):
            t, here = members[first + i, 0], members[first + i, 1]
            start = kinds[t, K_START]
            for y in range(kinds[t, K_SIZE]):
                change = marginals[here + y] - truth[here + y]
                # A forbidden state has no mass in either, and -inf times 0 would be NaN.
                if change != 0.0:
                    ell += change * fixed[start + y]
                    if len(extra) > 0:
                        ell += change * extra[extra_at + here + y]
                    if blocks[start + y] >= 0:
                        count[place + blocks[start + y]] -= change
    return ell


@inner
def collect(count: Any, low: int, high: int, index: Any, value: Any, begin: int) -> int:
    """Write the nonzero entries of count[low:high] from index[begin], value[begin] on, and clear them."""
    size = 0
    for i in range(low, high):
        if count[i] != 0.0:
            index[begin + size] = i
            value[begin + size] = count[i]
            count[i] = 0.0
            size += 1
    return size

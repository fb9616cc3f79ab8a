"""Triplets: clusters of three variables that tighten the relaxation over the local marginal polytope.

Pairs whose marginals agree need not be those of any distribution: around a frustrated triangle all three of them can differ. With
a marginal mu_t over the joint states of three variables for every triangle, and

    sum_{y_k} mu_t(y_i, y_j, y_k) = mu_ij(y_i, y_j)        for each pair i, j of the triplet

they must come from one for every three (D. Sontag, T. Meltzer, A. Globerson, T. Jaakkola and Y. Weiss, Tightening LP relaxations
for MAP using message passing, UAI 2008; footnote 3 of O. Meshi, N. Srebro and T. Hazan, AISTATS 2015). Triplets score nothing.

Cycles of more than three variables are cut into triangles first: the graph is made chordal, by eliminating the variable of least
degree and joining its neighbours, and a pair that no factor joins gets a marginal of its own, a *chord*. The triangles are those of
the chordal graph. With binary variables these are all cycle inequalities of the graph; a single cycle is exact with any numbers of
states. Of a factor of more than two variables, the marginals of its pairs agree with those of the pairs, too.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Pair = tuple[int, int]


class Extension(NamedTuple):
    """What triplets add to a linear program: blocks of columns after all others, and rows that must be 0."""

    #: How many columns each chord and each triplet has; they follow each other.
    sizes: NDArray[np.int64]
    #: Entries of the rows that make marginals of pairs agree.
    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    values: NDArray[np.float64]
    n_rows: int
    #: Chords, as scopes of pairs, which agree with their variables like other factors.
    chords: list[Pair]
    #: First column of each chord.
    chord_columns: NDArray[np.int64]


def triangles(n: int, scopes: Sequence[Sequence[int]]) -> tuple[list[Pair], list[tuple[int, int, int]]]:
    """Chords that make a graph of n variables chordal, and the triangles of that; each in the order of its variables."""
    near: list[set[int]] = [set() for _ in range(n)]
    for scope in scopes:
        for i, j in itertools.permutations(scope, 2):
            near[i].add(j)
    left, chords, found = set(range(n)), [], []
    while left:
        v = min(left, key=lambda one: (len(near[one]), one))
        for i, j in itertools.combinations(sorted(near[v]), 2):
            if j not in near[i]:
                near[i].add(j)
                near[j].add(i)
                chords.append((i, j))
            found.append(tuple(sorted((v, i, j))))
        for i in near[v]:
            near[i].discard(v)
        left.discard(v)
    return chords, sorted(found)  # type: ignore[arg-type]


def extend(n_states: Sequence[int], scopes: Sequence[Sequence[int]], first: Sequence[int], n_columns: int) -> Extension:
    """The chords and triplets of a graph.

    Parameters
    ----------
    n_states : of each variable
    scopes : the variables of each factor, whose table is in C order
    first : first column of each factor
    n_columns : columns of the program without triplets
    """
    chords, triplets = triangles(len(n_states), scopes)
    chord_sizes = [n_states[i] * n_states[j] for i, j in chords]
    sizes = np.array(chord_sizes + [int(np.prod([n_states[v] for v in one])) for one in triplets], np.int64)
    starts = n_columns + np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    regions: dict[Pair, tuple[Sequence[int], int]] = {}
    others: dict[Pair, list[tuple[Sequence[int], int]]] = {}
    for scope, at in [*zip(scopes, first, strict=True), *zip(chords, starts[: len(chords)].tolist(), strict=True)]:
        pairs = [(min(one), max(one)) for one in itertools.combinations(scope, 2)]
        for pair in pairs:
            if len(scope) == 2 and pair not in regions:
                regions[pair] = scope, int(at)
            else:
                others.setdefault(pair, []).append((scope, int(at)))
    for one, at in zip(triplets, starts[len(chords) :].tolist(), strict=False):
        for pair in itertools.combinations(one, 2):
            others.setdefault(pair, []).append((one, int(at)))
    entries: list[tuple[NDArray[np.int64], NDArray[np.int64], float]] = []
    n_rows = 0
    for pair, ones in others.items():
        # Without a region of its own, a pair is one of the first factor that has it.
        (scope, at), ones = (regions[pair], ones) if pair in regions else (ones[0], ones[1:])
        for other, other_at in ones:
            size = n_states[pair[0]] * n_states[pair[1]]
            for begin, members, sign in ((at, scope, 1.0), (other_at, other, -1.0)):
                joint = _joint_of_pair(n_states, members, pair)
                # That the sums over all states agree is known already, so that one row follows from the others.
                counted = np.flatnonzero(joint > 0)
                entries.append((n_rows + joint[counted] - 1, begin + counted, sign))
            n_rows += size - 1
    rows, columns = (np.concatenate([np.empty(0, np.int64), *(one[k] for one in entries)]) for k in (0, 1))
    values = np.concatenate([np.empty(0), *(np.full(len(one[0]), one[2]) for one in entries)])
    return Extension(sizes, rows, columns, values, n_rows, chords, starts[: len(chords)])


def _joint_of_pair(n_states: Sequence[int], scope: Sequence[int], pair: Pair) -> NDArray[np.int64]:
    """For each joint state of a scope, in C order, the joint state of a pair of its variables."""
    states = np.indices([n_states[v] for v in scope]).reshape(len(scope), -1)
    i, j = list(scope).index(pair[0]), list(scope).index(pair[1])
    return np.asarray(states[i] * n_states[pair[1]] + states[j], np.int64)

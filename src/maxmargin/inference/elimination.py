"""Elimination orders and the clique trees that they make: the part of junction trees that knows no scores.

*Elimination.* Variables are eliminated one after the other; to eliminate v joins all its remaining neighbours. The
*clique* of v is v with these neighbours, and the induced width of an order is its largest clique, minus one. Two orders
are tried, and the one with the smaller tables is kept: least *fill* first (the fewest new edges), ties by the size of
the clique's table; and least table first, ties by fill (Kjaerulff, "Triangulation of graphs", 1990). Edges are counted
as they come and go, so a step costs about the square of its clique.

*Clique tree.* A clique's parent is the clique where the next of its variables is eliminated. A clique that is part of a
child's is absorbed by the child, so what remains are the maximal cliques. Clique C shares its *separator* S with its
parent, and eliminates the *residual* R = C - S.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from math import inf, prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.inference.contract import once_per_structures
from maxmargin.problems.factor_graphs import FactorGraphs
from maxmargin.problems.templates import Structure

# No memory has so many entries, and beyond this their numbers do not fit in 64 bits.
MOST_ENTRIES = 2**60


class Clique(NamedTuple):
    """A maximal clique of one structure."""

    #: Its variables in the order of elimination: first those eliminated here, then those shared with the parent.
    residual: list[int]
    separator: list[int]
    #: Number of the parent clique, which is larger, or -1.
    parent: int


class Elimination(NamedTuple):
    """The clique tree of one structure, children before parents."""

    cliques: list[Clique]
    width: int
    #: Entries of all cliques and separators, and of the largest separator once more.
    entries: int


@once_per_structures
def _known(graphs: FactorGraphs) -> dict[int, Elimination]:
    """What is known of each structure: its clique tree, or from where on its tables were found to be too large."""
    return {}


def elimination_of(graphs: FactorGraphs, s: int, most: float = inf) -> Elimination:
    """The clique tree of a structure; without cliques, and with bounds from below, if it has more than `most` entries."""
    known, structure = _known(graphs), graphs.structures[s]
    found = known.get(s)
    if found is None or (not found.cliques and found.entries <= most):
        found = known[s] = _find_elimination(structure, states_of(graphs, structure), most)
    return found


def eliminations(graphs: FactorGraphs) -> list[Elimination]:
    """The clique trees of all structures."""
    return [elimination_of(graphs, s) for s in range(len(graphs.structures))]


@once_per_structures
def table_entries(graphs: FactorGraphs) -> NDArray[np.float64]:
    """Entries of each structure's tables; +inf for more than any memory has."""
    found = [one.entries for one in eliminations(graphs)]
    return np.array([float(one) if one <= MOST_ENTRIES else np.inf for one in found])


def states_of(graphs: FactorGraphs, structure: Structure) -> list[int]:
    """How many states each variable of a structure has."""
    return [graphs.variable_templates[t].n_states[0] for t in structure.variable_templates]


class OverError(Exception):
    """An order has more entries than it may have."""


def _find_elimination(structure: Structure, n_states: list[int], most: float = inf) -> Elimination:
    """The better one of two orders; without cliques, and with bounds from below, if both have more than `most` entries."""
    neighbours: list[set[int]] = [set() for _ in n_states]
    for scope in structure.scope_lists():
        for v in scope:
            neighbours[v].update(scope)
    for v, near in enumerate(neighbours):
        near.discard(v)
    fill = missing_edges(neighbours)
    found: list[Elimination] = []
    for fill_first in (True, False):
        try:
            order, later, filled = eliminate(neighbours, fill, n_states, fill_first, most)
            found.append(clique_tree(order, later, n_states))
        except OverError as over:
            width, entries, filled = over.args
            found.append(Elimination([], width, entries))
        # Without new edges the cliques are the graph's own, and no order has smaller ones; and where no memory would do, the
        # other order would not save it.
        if not filled or (found[0].cliques and found[0].entries > MOST_ENTRIES):
            break
    whole = [one for one in found if one.cliques]
    return min(whole or found, key=lambda one: one.entries)


def missing_edges(neighbours: list[set[int]]) -> list[int]:
    """How many pairs of each variable's neighbours are not joined."""
    if all(len(near) == len(neighbours) - 1 for near in neighbours):
        return [0] * len(neighbours)
    # Each pair is found from both its ends; a neighbour is not its own, which is no missing edge.
    return [sum(len(near - neighbours[u]) - 1 for u in near) // 2 for near in neighbours]


def eliminate(
    neighbours: list[set[int]], missing: list[int], n_states: list[int], fill_first: bool, most: float = inf
) -> tuple[list[int], list[set[int]], bool]:
    """The order, the neighbours of each variable when it is eliminated, and whether edges were added.

    Stops as soon as the cliques have more than `most` entries: with the largest width so far, the entries, and whether edges
    were added.
    """
    near, fill = [set(one) for one in neighbours], list(missing)
    size = [n * table_size(one, n_states) for n, one in zip(n_states, near, strict=True)]
    order, filled = [], False

    def key(v: int) -> tuple[int, int, int]:
        return (fill[v], size[v], v) if fill_first else (size[v], fill[v], v)

    queue = [key(v) for v in range(len(near))]
    heapify(queue)
    done = [False] * len(near)
    width = entries = 0
    while queue:
        entry = heappop(queue)
        v = entry[2]
        # Every change has put a new entry into the queue; the old ones are passed over when they come up.
        if done[v] or entry != key(v):
            continue
        done[v] = True
        order.append(v)
        around = near[v]
        changed = set(around)
        width = max(width, len(around))
        if fill[v]:
            # A clique that needs a new edge is part of no earlier one, and none of the later ones has v: it is maximal.
            entries, filled = entries + size[v], True
        if max(entries, size[v]) > most:
            raise OverError(width, max(entries, size[v]), filled)
        if fill[v]:
            for a in around:
                for b in around - near[a]:
                    if a < b:
                        both = near[a] & near[b]
                        for u in both:
                            fill[u] -= 1
                        changed |= both
                        fill[a] += len(near[a]) - len(both)
                        fill[b] += len(near[b]) - len(both)
                        near[a].add(b)
                        near[b].add(a)
                        size[a] *= n_states[b]
                        size[b] *= n_states[a]
        for u in around:
            # The neighbours of v are joined by now, so the pairs that go with v are those with u's other neighbours.
            fill[u] -= len(near[u]) - len(around)
            near[u].remove(v)
            size[u] //= n_states[v]
        changed.discard(v)
        for u in changed:
            heappush(queue, key(u))
    return order, near, filled


def clique_tree(order: list[int], later: list[set[int]], n_states: list[int]) -> Elimination:
    """The maximal cliques of an order; later[v] are the variables of v's clique that are eliminated after v."""
    rank = [0] * len(order)
    for r, v in enumerate(order):
        rank[v] = r
    residuals: list[list[int]] = []
    place, absorbed_by = [0] * len(order), dict[int, int]()
    for v in order:
        if v in absorbed_by:
            place[v] = place[absorbed_by[v]]
            residuals[place[v]].append(v)
        else:
            place[v] = len(residuals)
            residuals.append([v])
        if later[v]:
            # What v leaves is part of the next one's clique; if it has the same size it is the same.
            following = min(later[v], key=rank.__getitem__)
            if len(later[v]) == len(later[following]) + 1:
                absorbed_by.setdefault(following, v)
    # Children send first: by the last variable that a clique eliminates.
    by_last = sorted(range(len(residuals)), key=lambda c: rank[residuals[c][-1]])
    number = {c: n for n, c in enumerate(by_last)}
    cliques = []
    for residual in (residuals[c] for c in by_last):
        separator = sorted(later[residual[-1]], key=rank.__getitem__)
        cliques.append(Clique(residual, separator, number[place[separator[0]]] if separator else -1))
    columns = [table_size(one.separator, n_states) for one in cliques]
    tables = [table_size(one.residual, n_states) * n for one, n in zip(cliques, columns, strict=True)]
    width = max(len(one.residual) + len(one.separator) for one in cliques) - 1
    return Elimination(cliques, width, sum(tables) + sum(columns) + max(columns))


def table_size(variables: Iterable[int], n_states: list[int]) -> int:
    """Joint states of some variables."""
    return prod(n_states[v] for v in variables)

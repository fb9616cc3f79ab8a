"""Junction trees: exact MAP and marginals on any graph, in time and memory exponential in its induced width.

*Elimination.* Variables are eliminated one after the other; to eliminate v joins all its remaining neighbours. The
*clique* of v is v with these neighbours, and the induced width of an order is its largest clique, minus one. Two orders
are tried, and the one with the smaller tables is kept: least *fill* first (the fewest new edges), ties by the size of
the clique's table; and least table first, ties by fill (Kjaerulff, "Triangulation of graphs", 1990). Edges are counted
as they come and go, so a step costs about the square of its clique.

*Clique tree.* A clique's parent is the clique where the next of its variables is eliminated. A clique that is part of a
child's is absorbed by the child, so what remains are the maximal cliques. Clique C shares its *separator* S with its
parent, and eliminates the *residual* R = C - S. Every variable and every factor is scored in one clique, of those that
hold it the one with the smallest table, so that the largest have little but messages to add. (Lauritzen and
Spiegelhalter, JRSS B 1988; Koller and Friedman, "Probabilistic Graphical Models", 2009, chapters 9 and 10.)

*Messages.* From the leaves to the roots, with s_C the scores of clique C, and the children's messages added to it,

    max:  up_S(y_S) = max_{y_R} s_C(y_S, y_R)
    sum:  up_S(y_S) = T log sum_{y_R} exp(s_C(y_S, y_R) / T)

On the way back, max-product reads off y_R given y_S, which is known by then. The way up of sum-product has left the
conditional p(y_R | y_S) in the clique's table, and the way back multiplies it by the parent's marginal,

    mu_C(y_S, y_R) = mu_S(y_S) p(y_R | y_S),      mu_S(y_S) = sum of the parent's mu over all but S

As in trees.py, no message is divided out, so forbidden states (-inf) cause no NaN, and every exponent is at most 0.
The largest entry of each message is taken off it and counted apart: messages stay as small as the differences that
they tell, so that little is rounded on large graphs and at low temperatures.

Conventions
-----------
The variables of all tables stand in the order of elimination, in C order. So a clique's table has its residual first:
it is a matrix with a *row* per y_R and a *column* per y_S, and loops along rows, which are long where tables are large,
compile to vector instructions.

A *link* is a smaller table inside a clique's: a variable's scores, a factor's, or a child's message. For each dimension
of the clique's table it has a stride in the smaller one, 0 for variables that it does not know. Neighbouring dimensions
that are walked as one are stored as one. The two last are loops and the others a counter, so there are no index maps.

The scores of a link that knows none of the first dimensions repeat along them. So a clique's table is built from the
inside: links of the last dimensions are added to a *block*, the block is repeated along one more dimension, and so on.
To collect marginals, the table is folded in the same way: most of the work is for the links of the first variable.

Complexity
----------
Time is a few operations per entry of a clique's table and link. Memory is the tables of one example at a time,
float64: its cliques, its separators, and the largest separator once more for sums. ``limit`` bounds their entries.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from math import inf, log10, prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.errors import DataError, OptionError, TooLargeError
from maxmargin.inference.contract import (
    MapResult,
    Marginals,
    check_numbers,
    check_temperature,
    exact_result,
    once_per_structures,
    raise_infeasible,
)
from maxmargin.jit import Struct, inner, kernel
from maxmargin.problems.factor_graphs import FactorGraphs, Scores
from maxmargin.problems.templates import Structure

# `cliques` (one more row than cliques; the last holds the ends): table in the example's room, rows, columns, message in
# the example's room, first member, first member of the separator, first link.
C_TABLE, C_ROWS, C_COLUMNS, C_MESSAGE, C_MEMBER, C_SEPARATOR, C_LINK = range(7)
# `members`: the variable, its number of states; the residual's first.
M_VARIABLE, M_STATES = range(2)
# `links`, by size of the block: what the smaller table is, where it begins in the example (or in the room for messages),
# its size, the size of the block, its first and last row of `dimensions`.
LINK_KIND, LINK_AT, LINK_SIZE, LINK_BLOCK, LINK_FIRST, LINK_LAST = range(6)
OF_VARIABLE, OF_FACTOR, OF_MESSAGE = range(3)
# `dimensions`: how many steps, and how far each goes in the smaller table.
D_STEPS, D_STRIDE = range(2)

# No memory has so many entries, and beyond this their numbers do not fit in 64 bits.
MOST_ENTRIES = 2**60
# A table of at most that many entries has at most as many dimensions of two steps or more.
MOST_DIMENSIONS = 60


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


class Tree(Struct):
    """The clique trees of all structures, without scores."""

    #: First clique of each structure, and the end of the last.
    start: NDArray[np.int64]
    cliques: NDArray[np.int64]
    members: NDArray[np.int64]
    links: NDArray[np.int64]
    dimensions: NDArray[np.int64]
    #: (structures, 3): entries of all clique tables, of all messages, of the largest message.
    room: NDArray[np.int64]


class JunctionTree:
    """Message passing on a tree of cliques; exact on any graph of small induced width.

    Parameters
    ----------
    limit : int
        Largest number of table entries (float64) of an example, over all its cliques and separators.
    """

    name = "junction_tree"
    exact = True

    def __init__(self, limit: int = 2**24) -> None:
        if isinstance(limit, bool) or not isinstance(limit, int | np.integer) or not 1 <= limit <= MOST_ENTRIES:
            raise OptionError(f"limit={limit!r} is not possible; it must be a whole number from 1 to 2**60.")
        self.limit = int(limit)

    def refusal(self, graphs: FactorGraphs) -> str | None:
        """Name the first example with a factor that has no table, or whose tables would be too large, if any."""
        structured = graphs.refuse_structured(self.name)
        if structured is not None:
            return structured
        trials: dict[int, Elimination] = {}
        for m, s in enumerate(graphs.structure_of.tolist()):
            if s not in trials:
                trials[s] = _trial(graphs, s, self.limit)
            found = trials[s]
            if found.entries > self.limit:
                most = "" if found.cliques else "at least "
                return (
                    f"Example {m}: its graph has an induced width of {most}{found.width} under the best elimination order "
                    f"found, so its tables would take {most}{_memory(found.entries)}; at most {_memory(self.limit)} "
                    f"(limit={self.limit} entries) are allowed."
                )
        return None

    def width(self, graphs: FactorGraphs) -> NDArray[np.int64]:
        """Induced width (M,) of each example's graph under the best elimination order found."""
        return np.array([one.width for one in _eliminations(graphs)], np.int64)[graphs.structure_of]

    def entries(self, graphs: FactorGraphs) -> NDArray[np.float64]:
        """Number of table entries (M,) that each example takes; as floats, since they may be astronomical."""
        return _entries(graphs)[graphs.structure_of]

    def maximise(self, graphs: FactorGraphs, scores: Scores) -> MapResult:
        """Find the best labeling of every example by max-product."""
        scores = self._check(graphs, scores)
        labels = np.empty(len(graphs.labels), np.int32)
        failed = _max_product(graphs.arrays.examples, _tree(graphs), _room(graphs), *scores, labels)
        if failed >= 0:
            raise_infeasible(graphs, scores, failed)
        return exact_result(graphs, scores, labels)

    def marginals(self, graphs: FactorGraphs, scores: Scores, temperature: float = 1.0) -> Marginals:
        """Compute all marginals by sum-product at the given temperature."""
        temperature = check_temperature(temperature)
        scores = self._check(graphs, scores)
        out = Marginals(np.empty(len(scores.variables)), np.empty(len(scores.factors)), np.empty(graphs.n_examples))
        failed = _sum_product(graphs.arrays.examples, _tree(graphs), _room(graphs), *scores, temperature, *out)
        if failed >= 0:
            raise_infeasible(graphs, scores, failed)
        return out

    def _check(self, graphs: FactorGraphs, scores: Scores) -> Scores:
        refusal = self.refusal(graphs)
        if refusal is not None:
            raise (DataError if graphs.has_structured else TooLargeError)(refusal)
        return check_numbers(graphs, scores)


def _memory(entries: int) -> str:
    if 8 * entries >= 10**18:
        return f"about 10^{int(log10(8 * entries)) - 9} GB"
    size, units = float(8 * entries), iter(("bytes", "kB", "MB", "GB", "TB", "PB"))
    unit = next(units)
    while size >= 1000:
        size, unit = size / 1000, next(units)
    return f"{size:.3g} {unit}"


# -------------------------------------------------------------------------------------------------- elimination


@once_per_structures
def _trials(graphs: FactorGraphs) -> dict[int, Elimination]:
    """What is known of each structure: its clique tree, or from where on its tables were found to be too large."""
    return {}


def _trial(graphs: FactorGraphs, s: int, most: float = inf) -> Elimination:
    """The clique tree of a structure; without cliques, and with bounds from below, if it has more than `most` entries."""
    known, structure = _trials(graphs), graphs.structures[s]
    found = known.get(s)
    if found is None or (not found.cliques and found.entries <= most):
        found = known[s] = _elimination(structure, _n_states(graphs, structure), most)
    return found


def _eliminations(graphs: FactorGraphs, most: float = inf) -> list[Elimination]:
    return [_trial(graphs, s, most) for s in range(len(graphs.structures))]


@once_per_structures
def _entries(graphs: FactorGraphs) -> NDArray[np.float64]:
    found = [one.entries for one in _eliminations(graphs)]
    return np.array([float(one) if one <= MOST_ENTRIES else np.inf for one in found])


def _n_states(graphs: FactorGraphs, structure: Structure) -> list[int]:
    return [graphs.variable_templates[t].n_states[0] for t in structure.variable_templates]


class _OverError(Exception):
    """An order has more entries than it may have."""


def _elimination(structure: Structure, n_states: list[int], most: float = inf) -> Elimination:
    """The better one of two orders; without cliques, and with bounds from below, if both have more than `most` entries."""
    neighbours: list[set[int]] = [set() for _ in n_states]
    for scope in structure.scope_lists():
        for v in scope:
            neighbours[v].update(scope)
    for v, near in enumerate(neighbours):
        near.discard(v)
    fill = _missing_edges(neighbours)
    found: list[Elimination] = []
    for fill_first in (True, False):
        try:
            order, later, filled = _eliminate(neighbours, fill, n_states, fill_first, most)
            found.append(_clique_tree(order, later, n_states))
        except _OverError as over:
            width, entries, filled = over.args
            found.append(Elimination([], width, entries))
        # Without new edges the cliques are the graph's own, and no order has smaller ones; and where no memory would do, the
        # other order would not save it.
        if not filled or (found[0].cliques and found[0].entries > MOST_ENTRIES):
            break
    whole = [one for one in found if one.cliques]
    return min(whole or found, key=lambda one: one.entries)


def _missing_edges(neighbours: list[set[int]]) -> list[int]:
    """How many pairs of each variable's neighbours are not joined."""
    if all(len(near) == len(neighbours) - 1 for near in neighbours):
        return [0] * len(neighbours)
    # Each pair is found from both its ends; a neighbour is not its own, which is no missing edge.
    return [sum(len(near - neighbours[u]) - 1 for u in near) // 2 for near in neighbours]


def _eliminate(
    neighbours: list[set[int]], missing: list[int], n_states: list[int], fill_first: bool, most: float = inf
) -> tuple[list[int], list[set[int]], bool]:
    """The order, the neighbours of each variable when it is eliminated, and whether edges were added.

    Stops as soon as the cliques have more than `most` entries: with the largest width so far, the entries, and whether edges
    were added.
    """
    near, fill = [set(one) for one in neighbours], list(missing)
    size = [n * _size(one, n_states) for n, one in zip(n_states, near, strict=True)]
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
            raise _OverError(width, max(entries, size[v]), filled)
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


def _clique_tree(order: list[int], later: list[set[int]], n_states: list[int]) -> Elimination:
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
    columns = [_size(one.separator, n_states) for one in cliques]
    tables = [_size(one.residual, n_states) * n for one, n in zip(cliques, columns, strict=True)]
    width = max(len(one.residual) + len(one.separator) for one in cliques) - 1
    return Elimination(cliques, width, sum(tables) + sum(columns) + max(columns))


def _size(variables: Iterable[int], n_states: list[int]) -> int:
    return prod(n_states[v] for v in variables)


# ------------------------------------------------------------------------------------------------- flat arrays


@once_per_structures
def _tree(graphs: FactorGraphs) -> Tree:
    a = graphs.arrays
    start, room = [0], []
    cliques: list[list[int]] = []
    members: list[tuple[int, int]] = []
    links: list[list[int]] = []
    dimensions: list[tuple[int, int]] = []
    for s, (structure, found) in enumerate(zip(graphs.structures, _eliminations(graphs), strict=True)):
        tables = messages = largest = 0
        # A batch may share structures with one that this engine refuses.
        if found.cliques and found.entries <= MOST_ENTRIES:
            n_states = _n_states(graphs, structure)
            state = a.variables[a.structures[s].variables : a.structures[s + 1].variables].table.tolist()
            table = a.factors[a.structures[s].factors : a.structures[s + 1].factors].table.tolist()
            inside: list[list[tuple[int, int, list[int]]]] = [[] for _ in found.cliques]
            small = [(OF_VARIABLE, at, [v]) for v, at in enumerate(state)]
            small += [(OF_FACTOR, at, scope) for scope, at in zip(structure.scope_lists(), table, strict=True)]
            for c, one in zip(_homes(found.cliques, n_states, [one[2] for one in small]), small, strict=True):
                inside[c].append(one)
            for clique, own in zip(found.cliques, inside, strict=True):
                both = clique.residual + clique.separator
                rows, columns = _size(clique.residual, n_states), _size(clique.separator, n_states)
                at_separator = len(members) + len(clique.residual)
                cliques.append([tables, rows, columns, messages, len(members), at_separator, len(links)])
                members += [(v, n_states[v]) for v in both]
                depth = {v: i for i, v in enumerate(both)}
                for first, (kind, at, scope) in sorted(
                    ((min(depth[v] for v in one[2]), one) for one in own), key=lambda pair: -pair[0]
                ):
                    loops, block = _dimensions(both[first:], scope, n_states), _size(both[first:], n_states)
                    end = len(dimensions) + len(loops)
                    links.append([kind, at, _size(scope, n_states), block, len(dimensions), end])
                    dimensions += loops
                if clique.separator:
                    inside[clique.parent].append((OF_MESSAGE, messages, clique.separator))
                tables, messages, largest = tables + rows * columns, messages + columns, max(largest, columns)
        start.append(len(cliques))
        room.append((tables, messages, largest))
    cliques.append([0, 0, 0, 0, len(members), len(members), len(links)])
    return Tree(
        np.array(start, np.int64),
        np.array(cliques, np.int64),
        np.array(members, np.int64).reshape(-1, 2),
        np.array(links, np.int64).reshape(-1, 6),
        np.array(dimensions, np.int64).reshape(-1, 2),
        np.array(room, np.int64),
    )


def _homes(cliques: list[Clique], n_states: list[int], scopes: list[list[int]]) -> list[int]:
    """For each scope, the clique of the smallest table that holds it."""
    members = [{*one.residual, *one.separator} for one in cliques]
    holders: list[list[int]] = [[] for _ in n_states]
    for c in sorted(range(len(cliques)), key=lambda c: _size(members[c], n_states)):
        for v in members[c]:
            holders[v].append(c)
    rarest = [min(scope, key=lambda v: len(holders[v])) for scope in scopes]
    return [
        next(c for c in holders[v] if members[c].issuperset(scope)) for v, scope in zip(rarest, scopes, strict=True)
    ]


def _dimensions(members: list[int], scope: list[int], n_states: list[int]) -> list[tuple[int, int]]:
    """How the members' table is walked, outermost first, and how far each step goes in the table of the scope."""
    stride, step = {}, 1
    for v in reversed(scope):
        stride[v], step = step, step * n_states[v]
    loops: list[tuple[int, int]] = []
    for v in members:
        n, far = n_states[v], stride.get(v, 0)
        if n == 1:
            continue
        if loops and loops[-1][D_STRIDE] == n * far:
            loops[-1] = (loops[-1][D_STEPS] * n, far)
        else:
            loops.append((n, far))
    return [(1, 0)] * (2 - len(loops)) + loops


def _room(graphs: FactorGraphs) -> NDArray[np.int64]:
    """Entries of clique tables, of messages and of a message that the largest examples of the batch need."""
    return np.asarray(_tree(graphs).room[graphs.structure_of].max(axis=0))


# ------------------------------------------------------------------------------------------------------- kernels


@kernel
def _max_product(examples: Any, tree: Any, room: Any, v_scores: Any, f_scores: Any, labels: Any) -> int:
    """Best labeling of every example; the first example that has none, or -1."""
    start, cliques, members, links, dimensions = tree.start, tree.cliques, tree.members, tree.links, tree.dimensions
    table, message, count = np.empty(room[0]), np.empty(room[1]), np.zeros(MOST_DIMENSIONS, np.int64)
    for m in range(len(examples) - 1):
        s, first, states, tables = (
            examples[m].structure,
            examples[m].variables,
            examples[m].states,
            examples[m].tables,
        )
        for c in range(start[s], start[s + 1]):
            _fill(c, cliques, links, dimensions, v_scores, states, f_scores, tables, message, table, count)
            at, rows, columns, to = (
                cliques[c, C_TABLE],
                cliques[c, C_ROWS],
                cliques[c, C_COLUMNS],
                cliques[c, C_MESSAGE],
            )
            _column_max(table, at, rows, columns, message, to)
            if _take_off_largest(message, to, columns) == -np.inf:
                return m

        for c in range(start[s + 1] - 1, start[s] - 1, -1):
            separator, columns, column = cliques[c, C_SEPARATOR], cliques[c, C_COLUMNS], 0
            for i in range(separator, cliques[c + 1, C_MEMBER]):
                column = column * members[i, M_STATES] + labels[first + members[i, M_VARIABLE]]
            at, best = cliques[c, C_TABLE] + column, 0
            for r in range(1, cliques[c, C_ROWS]):
                if table[at + r * columns] > table[at + best * columns]:
                    best = r
            for i in range(separator - 1, cliques[c, C_MEMBER] - 1, -1):
                labels[first + members[i, M_VARIABLE]] = best % members[i, M_STATES]
                best //= members[i, M_STATES]
    return -1


@kernel
def _sum_product(
    examples: Any, tree: Any, room: Any, v_scores: Any, f_scores: Any, temperature: float,
    out_v: Any, out_f: Any, log_partition: Any,
) -> int:  # fmt: skip
    """Marginals of every example; the first example that has no allowed labeling, or -1."""
    start, cliques, links, dimensions = tree.start, tree.cliques, tree.links, tree.dimensions
    table, message, total = np.empty(room[0]), np.empty(room[1]), np.empty(room[2])
    count = np.zeros(MOST_DIMENSIONS, np.int64)
    for m in range(len(examples) - 1):
        s, states, tables = examples[m].structure, examples[m].states, examples[m].tables
        log_partition[m] = 0.0
        for c in range(start[s], start[s + 1]):
            _fill(c, cliques, links, dimensions, v_scores, states, f_scores, tables, message, table, count)
            at, rows, columns, to = (
                cliques[c, C_TABLE],
                cliques[c, C_ROWS],
                cliques[c, C_COLUMNS],
                cliques[c, C_MESSAGE],
            )
            _condition(table, at, rows, columns, temperature, message, to, total)
            top = _take_off_largest(message, to, columns)
            if top == -np.inf:
                return m
            log_partition[m] += top

        for c in range(start[s + 1] - 1, start[s] - 1, -1):
            at, rows, columns, to = (
                cliques[c, C_TABLE],
                cliques[c, C_ROWS],
                cliques[c, C_COLUMNS],
                cliques[c, C_MESSAGE],
            )
            # The message is the separator's marginal by now; a single column is certain, and a root's has none.
            if columns > 1:
                _scale_columns(table, at, rows, columns, message, to)
            block = rows * columns
            for q in range(cliques[c + 1, C_LINK] - 1, cliques[c, C_LINK] - 1, -1):
                _fold(table, at, block, links[q, LINK_BLOCK])
                block = links[q, LINK_BLOCK]
                kind, place = links[q, LINK_KIND], links[q, LINK_AT]
                if kind == OF_VARIABLE:
                    _collect(table, at, q, links, dimensions, out_v, states + place, count)
                elif kind == OF_FACTOR:
                    _collect(table, at, q, links, dimensions, out_f, tables + place, count)
                else:
                    _collect(table, at, q, links, dimensions, message, place, count)
    return -1


@inner
def _fill(
    c: int, cliques: Any, links: Any, dimensions: Any, v_scores: Any, states: int, f_scores: Any, tables: int,
    message: Any, table: Any, count: Any,
) -> None:  # fmt: skip
    """The scores of clique c with its children's messages, into its table."""
    at, block = cliques[c, C_TABLE], 1
    table[at] = 0.0
    for q in range(cliques[c, C_LINK], cliques[c + 1, C_LINK]):
        _repeat(table, at, block, links[q, LINK_BLOCK])
        block = links[q, LINK_BLOCK]
        kind, place = links[q, LINK_KIND], links[q, LINK_AT]
        if kind == OF_VARIABLE:
            _add(table, at, q, links, dimensions, v_scores, states + place, count)
        elif kind == OF_FACTOR:
            _add(table, at, q, links, dimensions, f_scores, tables + place, count)
        else:
            _add(table, at, q, links, dimensions, message, place, count)
    _repeat(table, at, block, cliques[c, C_ROWS] * cliques[c, C_COLUMNS])


@inner
def _repeat(table: Any, at: int, block: int, size: int) -> None:
    """Fill table[at : at + size] with copies of its first block."""
    for start in range(at + block, at + size, block):
        for y in range(block):
            table[start + y] = table[at + y]


@inner
def _fold(table: Any, at: int, size: int, block: int) -> None:
    """Add the other blocks of table[at : at + size] to the first."""
    for start in range(at + block, at + size, block):
        for y in range(block):
            table[at + y] += table[start + y]


@inner
def _add(table: Any, at: int, q: int, links: Any, dimensions: Any, small: Any, to: int, count: Any) -> None:
    """Add link q's table, small[to:], to its block of the clique's; `count` comes and goes as zeros."""
    first, last = links[q, LINK_FIRST], links[q, LINK_LAST] - 2
    n, far, n_inner, near = (
        dimensions[last, D_STEPS],
        dimensions[last, D_STRIDE],
        dimensions[last + 1, D_STEPS],
        dimensions[last + 1, D_STRIDE],
    )
    y, end = at, at + links[q, LINK_BLOCK]
    while y < end:
        for i in range(n):
            if near == 0:
                value = small[to + i * far]
                for k in range(n_inner):
                    table[y + k] += value
            else:
                for k in range(n_inner):
                    table[y + k] += small[to + i * far + k * near]
            y += n_inner
        to += _advance(dimensions, first, last, count)


@inner
def _collect(table: Any, at: int, q: int, links: Any, dimensions: Any, small: Any, to: int, count: Any) -> None:
    """Sum link q's block of the clique's table into its own, small[to:]; `count` comes and goes as zeros."""
    first, last = links[q, LINK_FIRST], links[q, LINK_LAST] - 2
    n, far, n_inner, near = (
        dimensions[last, D_STEPS],
        dimensions[last, D_STRIDE],
        dimensions[last + 1, D_STEPS],
        dimensions[last + 1, D_STRIDE],
    )
    for k in range(to, to + links[q, LINK_SIZE]):
        small[k] = 0.0
    y, end = at, at + links[q, LINK_BLOCK]
    while y < end:
        for i in range(n):
            if near == 0:
                total = 0.0
                for k in range(n_inner):
                    total += table[y + k]
                small[to + i * far] += total
            else:
                for k in range(n_inner):
                    small[to + i * far + k * near] += table[y + k]
            y += n_inner
        to += _advance(dimensions, first, last, count)


@inner
def _advance(dimensions: Any, first: int, last: int, count: Any) -> int:
    """Count on by one in the outer dimensions; how far that goes in the smaller table."""
    moved = 0
    for d in range(last - 1, first - 1, -1):
        moved += dimensions[d, D_STRIDE]
        count[d - first] += 1
        if count[d - first] < dimensions[d, D_STEPS]:
            break
        moved -= dimensions[d, D_STEPS] * dimensions[d, D_STRIDE]
        count[d - first] = 0
    return moved


@inner
def _column_max(table: Any, at: int, rows: int, columns: int, out: Any, to: int) -> None:
    """out[to + k] = the largest entry of column k."""
    for k in range(columns):
        out[to + k] = table[at + k]
    for r in range(1, rows):
        y = at + r * columns
        for k in range(columns):
            out[to + k] = table[y + k] if table[y + k] > out[to + k] else out[to + k]


@inner
def _scale_columns(table: Any, at: int, rows: int, columns: int, scale: Any, to: int) -> None:
    """Multiply column k by scale[to + k]."""
    for r in range(rows):
        y = at + r * columns
        for k in range(columns):
            table[y + k] *= scale[to + k]


@inner
def _condition(
    table: Any, at: int, rows: int, columns: int, temperature: float, message: Any, to: int, total: Any
) -> None:
    """Turn each column of scores into probabilities, or zeros if all is forbidden; message = T log sum exp(score / T)."""
    _column_max(table, at, rows, columns, message, to)
    for k in range(columns):
        total[k] = 0.0
    for r in range(rows):
        y = at + r * columns
        for k in range(columns):
            # Where all is forbidden, -inf - -inf would be NaN.
            table[y + k] = np.exp((table[y + k] - message[to + k]) / temperature) if table[y + k] > -np.inf else 0.0
            total[k] += table[y + k]
    for k in range(columns):
        if total[k] > 0.0:
            message[to + k] += temperature * np.log(total[k])
            total[k] = 1.0 / total[k]
    _scale_columns(table, at, rows, columns, total, 0)


@inner
def _take_off_largest(message: Any, at: int, size: int) -> float:
    """Subtract the largest entry from all, unless all are -inf, and return it."""
    top = -np.inf
    for r in range(at, at + size):
        top = max(top, message[r])
    if top > -np.inf:
        for r in range(at, at + size):
            message[r] -= top
    return float(top)

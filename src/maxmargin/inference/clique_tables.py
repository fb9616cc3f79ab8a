"""The clique trees of junction_tree.py as flat arrays: tables of cliques, messages, and the smaller tables inside them.

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

Links are of three kinds, by the first variable of the clique, which is eliminated in it, and by the last: those without the first;
*partial* ones, which know the first and not the last; *full* ones, which know both.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.inference.contract import once_per_structures
from maxmargin.inference.elimination import MOST_ENTRIES, Clique, eliminations, states_of, table_size
from maxmargin.jit import Struct, record_type
from maxmargin.problems.factor_graphs import FactorGraphs

#: A clique (one more than there are; the last holds the ends): table in the example's room, rows, columns, message in the example's
#: room, first member, first member of the separator, first link, first partial and first full link, the full link if there is one
#: alone and it has the order of the clique (or -1), states of the first variable and of the last, if that is another (or 1).
CLIQUE = record_type(
    "table", "rows", "columns", "message", "member", "separator", "link", "partial", "full", "whole", "states", "share"
)  # fmt: skip
#: The variable, its number of states; the residual's first.
MEMBER = record_type("variable", "states")
#: What the smaller table is, where it begins in the example (or in the room for messages), its size, the size of the block, its
#: first and last row of `dimensions`, the factor among those of all structures (or -1). Links are sorted by size of the block,
#: and partial ones stand before full ones.
LINK = record_type("kind", "at", "entries", "block", "first", "last", "factor")
OF_VARIABLE, OF_FACTOR, OF_MESSAGE = range(3)
#: How many steps, and how far each goes in the smaller table.
DIMENSION = record_type("steps", "stride")
#: Entries of all clique tables, of all messages, of the largest message, of the largest clique.
NEED = record_type("tables", "messages", "message", "clique")

# A table of at most that many entries has at most as many dimensions of two steps or more.
MOST_DIMENSIONS = 60


class Tree(Struct):
    """The clique trees of all structures, without scores."""

    #: First clique of each structure, and the end of the last.
    start: NDArray[np.int64]
    cliques: Any
    members: Any
    links: Any
    dimensions: Any
    #: What an example of each structure needs.
    needs: Any


class Room(Struct):
    """Room for the largest example of a batch."""

    table: NDArray[np.float64]
    message: NDArray[np.float64]
    total: NDArray[np.float64]
    #: A counter of the outer dimensions of a link; zeros between uses.
    count: NDArray[np.int64]

    @classmethod
    def of(cls, needs: Any) -> Room:
        """Room for what some examples need."""
        tables, messages, message, _ = (int(needs[name].max()) for name in NEED.names or ())
        return cls(np.empty(tables), np.empty(messages), np.empty(message), np.zeros(MOST_DIMENSIONS, np.int64))


class MaxRoom(Struct):
    """Room for max-product on the largest example of a batch."""

    #: A clique's full links, its partial ones, and what is left when its first variable is maximised out.
    table: NDArray[np.float64]
    partial: NDArray[np.float64]
    rest: NDArray[np.float64]
    #: Messages; and, for each of their entries, the joint state of the residual's other variables that has it.
    message: NDArray[np.float64]
    chosen: NDArray[np.int64]
    #: As in `Room`.
    count: NDArray[np.int64]
    #: Room for the scores of an example's factors.
    scores: NDArray[np.float64]

    @classmethod
    def of(cls, clique: int, messages: int, scores: int = 0) -> MaxRoom:
        """Room for the largest clique, for the messages of an example, and for scores."""
        return cls(
            np.empty(clique), np.empty(clique), np.empty(clique), np.empty(messages), np.empty(messages, np.int64),
            np.zeros(MOST_DIMENSIONS, np.int64), np.empty(scores),
        )  # fmt: skip


@once_per_structures
def clique_trees(graphs: FactorGraphs) -> Tree:
    """The clique trees of all structures."""
    a = graphs.arrays
    start = [0]
    needs: list[tuple[int, ...]] = []
    cliques: list[tuple[int, ...]] = []
    members: list[tuple[int, int]] = []
    links: list[tuple[int, ...]] = []
    dimensions: list[tuple[int, int]] = []
    for s, (structure, found) in enumerate(zip(graphs.structures, eliminations(graphs), strict=True)):
        tables = messages = largest = clique_entries = 0
        # A batch may share structures with one that this engine refuses.
        if found.cliques and found.entries <= MOST_ENTRIES:
            n_states = states_of(graphs, structure)
            first_factor = int(a.structures[s].factors)
            state = a.variables[a.structures[s].variables : a.structures[s + 1].variables].table.tolist()
            table = a.factors[first_factor : a.structures[s + 1].factors].table.tolist()
            inside: list[list[_Small]] = [[] for _ in found.cliques]
            small = [_Small(OF_VARIABLE, at, [v], -1) for v, at in enumerate(state)]
            scopes = structure.scope_lists()
            small += [_Small(OF_FACTOR, table[c], scope, first_factor + c) for c, scope in enumerate(scopes)]
            for c, one in zip(_homes(found.cliques, n_states, [one.scope for one in small]), small, strict=True):
                inside[c].append(one)
            for clique, own in zip(found.cliques, inside, strict=True):
                both = clique.residual + clique.separator
                rows, columns = table_size(clique.residual, n_states), table_size(clique.separator, n_states)
                own, partial, full = _in_order(own, both)
                whole = len(links) + full if full == len(own) - 1 and own[full].scope == both else -1
                cliques.append((
                    tables, rows, columns, messages, len(members), len(members) + len(clique.residual), len(links),
                    len(links) + partial, len(links) + full, whole, n_states[both[0]],
                    n_states[both[-1]] if len(both) > 1 else 1,
                ))  # fmt: skip
                members += [(v, n_states[v]) for v in both]
                for one in own:
                    first = min(map(both.index, one.scope))
                    loops, block = (
                        table_dimensions(both[first:], one.scope, n_states),
                        table_size(both[first:], n_states),
                    )
                    end = len(dimensions) + len(loops)
                    entries = table_size(one.scope, n_states)
                    links.append((one.kind, one.at, entries, block, len(dimensions), end, one.factor))
                    dimensions += loops
                if clique.separator:
                    inside[clique.parent].append(_Small(OF_MESSAGE, messages, clique.separator, -1))
                tables, messages, largest = tables + rows * columns, messages + columns, max(largest, columns)
                clique_entries = max(clique_entries, rows * columns)
        start.append(len(cliques))
        needs.append((tables, messages, largest, clique_entries))
    cliques.append((0, 0, 0, 0, len(members), len(members), *[len(links)] * 3, -1, 0, 0))
    tables_of = ((CLIQUE, cliques), (MEMBER, members), (LINK, links), (DIMENSION, dimensions), (NEED, needs))
    return Tree(np.array(start, np.int64), *(np.array(rows, kind).view(np.recarray) for kind, rows in tables_of))


class _Small(NamedTuple):
    """A smaller table inside a clique's: what it is, where it begins, its variables, its factor."""

    kind: int
    at: int
    scope: list[int]
    factor: int


def _in_order(links: list[_Small], both: list[int]) -> tuple[list[_Small], int, int]:
    """Links in the order in which a clique's table is built, the first that is partial, and the first that is full."""
    without = sorted(
        (one for one in links if both[0] not in one.scope), key=lambda one: -min(map(both.index, one.scope))
    )
    partial = [one for one in links if both[0] in one.scope and both[-1] not in one.scope]
    full = [one for one in links if both[0] in one.scope and both[-1] in one.scope]
    return [*without, *partial, *full], len(without), len(without) + len(partial)


def _homes(cliques: list[Clique], n_states: list[int], scopes: list[list[int]]) -> list[int]:
    """For each scope, the clique of the smallest table that holds it."""
    members = [{*one.residual, *one.separator} for one in cliques]
    holders: list[list[int]] = [[] for _ in n_states]
    for c in sorted(range(len(cliques)), key=lambda c: table_size(members[c], n_states)):
        for v in members[c]:
            holders[v].append(c)
    rarest = [min(scope, key=lambda v: len(holders[v])) for scope in scopes]
    return [
        next(c for c in holders[v] if members[c].issuperset(scope)) for v, scope in zip(rarest, scopes, strict=True)
    ]


def table_dimensions(members: list[int], scope: list[int], n_states: list[int]) -> list[tuple[int, int]]:
    """How the members' table is walked, outermost first, and how far each step goes in the table of the scope."""
    stride, step = {}, 1
    for v in reversed(scope):
        stride[v], step = step, step * n_states[v]
    loops: list[tuple[int, int]] = []
    for v in members:
        n, far = n_states[v], stride.get(v, 0)
        if n == 1:
            continue
        if loops and loops[-1][1] == n * far:
            loops[-1] = (loops[-1][0] * n, far)
        else:
            loops.append((n, far))
    return [(1, 0)] * (2 - len(loops)) + loops


def needs_of(graphs: FactorGraphs) -> Any:
    """What the examples of a batch need; another batch with the same structures may hold larger ones."""
    return clique_trees(graphs).needs[graphs.structure_of]

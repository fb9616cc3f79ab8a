"""Junction trees: exact MAP and marginals on any graph, in time and memory exponential in its induced width.

Variables are eliminated one after the other, which makes a tree of cliques (elimination.py): clique C shares its *separator* S with
its parent, and eliminates the *residual* R = C - S. Every variable and every factor is scored in one clique, of those that hold it
the one with the smallest table, so that the largest have little but messages to add. (Lauritzen and Spiegelhalter, JRSS B 1988;
Koller and Friedman, "Probabilistic Graphical Models", 2009, chapters 9 and 10.)

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

from math import log10
from typing import Any

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
from maxmargin.inference.elimination import (
    MOST_ENTRIES,
    Clique,
    Elimination,
    elimination_of,
    eliminations,
    states_of,
    table_entries,
    table_size,
)
from maxmargin.jit import Struct, inner, kernel, record_type
from maxmargin.problems.factor_graphs import FactorGraphs, Scores

#: A clique (one more than there are; the last holds the ends): table in the example's room, rows, columns, message in the example's
#: room, first member, first member of the separator, first link.
CLIQUE = record_type("table", "rows", "columns", "message", "member", "separator", "link")
#: The variable, its number of states; the residual's first.
MEMBER = record_type("variable", "states")
#: What the smaller table is, where it begins in the example (or in the room for messages), its size, the size of the block, its
#: first and last row of `dimensions`. Links are sorted by size of the block.
LINK = record_type("kind", "at", "entries", "block", "first", "last")
OF_VARIABLE, OF_FACTOR, OF_MESSAGE = range(3)
#: How many steps, and how far each goes in the smaller table.
DIMENSION = record_type("steps", "stride")
#: Entries of all clique tables, of all messages, of the largest message.
NEED = record_type("tables", "messages", "message")

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
        tables, messages, message = (int(needs[name].max()) for name in NEED.names or ())
        return cls(np.empty(tables), np.empty(messages), np.empty(message), np.zeros(MOST_DIMENSIONS, np.int64))


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
                trials[s] = elimination_of(graphs, s, self.limit)
            found = trials[s]
            if found.entries > self.limit:
                most = "" if found.cliques else "at least "
                return (
                    f"Example {graphs.number_of(m)}: its graph has an induced width of {most}{found.width} under the best "
                    f"elimination order found, so its tables would take {most}{_memory(found.entries)}; at most "
                    f"{_memory(self.limit)} (limit={self.limit} entries) are allowed."
                )
        return None

    def width(self, graphs: FactorGraphs) -> NDArray[np.int64]:
        """Induced width (M,) of each example's graph under the best elimination order found."""
        return np.array([one.width for one in eliminations(graphs)], np.int64)[graphs.structure_of]

    def entries(self, graphs: FactorGraphs) -> NDArray[np.float64]:
        """Number of table entries (M,) that each example takes; as floats, since they may be astronomical."""
        return table_entries(graphs)[graphs.structure_of]

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


# ------------------------------------------------------------------------------------------------- flat arrays


@once_per_structures
def _tree(graphs: FactorGraphs) -> Tree:
    a = graphs.arrays
    start = [0]
    needs: list[tuple[int, ...]] = []
    cliques: list[tuple[int, ...]] = []
    members: list[tuple[int, int]] = []
    links: list[tuple[int, ...]] = []
    dimensions: list[tuple[int, int]] = []
    for s, (structure, found) in enumerate(zip(graphs.structures, eliminations(graphs), strict=True)):
        tables = messages = largest = 0
        # A batch may share structures with one that this engine refuses.
        if found.cliques and found.entries <= MOST_ENTRIES:
            n_states = states_of(graphs, structure)
            state = a.variables[a.structures[s].variables : a.structures[s + 1].variables].table.tolist()
            table = a.factors[a.structures[s].factors : a.structures[s + 1].factors].table.tolist()
            inside: list[list[tuple[int, int, list[int]]]] = [[] for _ in found.cliques]
            small = [(OF_VARIABLE, at, [v]) for v, at in enumerate(state)]
            small += [(OF_FACTOR, at, scope) for scope, at in zip(structure.scope_lists(), table, strict=True)]
            for c, one in zip(_homes(found.cliques, n_states, [one[2] for one in small]), small, strict=True):
                inside[c].append(one)
            for clique, own in zip(found.cliques, inside, strict=True):
                both = clique.residual + clique.separator
                rows, columns = table_size(clique.residual, n_states), table_size(clique.separator, n_states)
                at_separator = len(members) + len(clique.residual)
                cliques.append((tables, rows, columns, messages, len(members), at_separator, len(links)))
                members += [(v, n_states[v]) for v in both]
                depth = {v: i for i, v in enumerate(both)}
                for first, (kind, at, scope) in sorted(
                    ((min(depth[v] for v in one[2]), one) for one in own), key=lambda pair: -pair[0]
                ):
                    loops, block = _dimensions(both[first:], scope, n_states), table_size(both[first:], n_states)
                    end = len(dimensions) + len(loops)
                    links.append((kind, at, table_size(scope, n_states), block, len(dimensions), end))
                    dimensions += loops
                if clique.separator:
                    inside[clique.parent].append((OF_MESSAGE, messages, clique.separator))
                tables, messages, largest = tables + rows * columns, messages + columns, max(largest, columns)
        start.append(len(cliques))
        needs.append((tables, messages, largest))
    cliques.append((0, 0, 0, 0, len(members), len(members), len(links)))
    tables_of = ((CLIQUE, cliques), (MEMBER, members), (LINK, links), (DIMENSION, dimensions), (NEED, needs))
    return Tree(np.array(start, np.int64), *(np.array(rows, kind).view(np.recarray) for kind, rows in tables_of))


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
        if loops and loops[-1][1] == n * far:
            loops[-1] = (loops[-1][0] * n, far)
        else:
            loops.append((n, far))
    return [(1, 0)] * (2 - len(loops)) + loops


def _room(graphs: FactorGraphs) -> Room:
    return Room.of(_tree(graphs).needs[graphs.structure_of])


# ------------------------------------------------------------------------------------------------------- kernels


@kernel
def _max_product(examples: Any, tree: Any, room: Any, v_scores: Any, f_scores: Any, labels: Any) -> int:
    """Best labeling of every example; the first example that has none, or -1."""
    start, cliques, members, table, message = tree.start, tree.cliques, tree.members, room.table, room.message
    for m in range(len(examples) - 1):
        s, first = examples[m].structure, examples[m].variables
        for c in range(start[s], start[s + 1]):
            _fill(tree, room, c, v_scores, examples[m].states, f_scores, examples[m].tables)
            columns, to = cliques[c].columns, cliques[c].message
            _column_max(table, cliques[c].table, cliques[c].rows, columns, message, to)
            if _take_off_largest(message, to, columns) == -np.inf:
                return m

        for c in range(start[s + 1] - 1, start[s] - 1, -1):
            separator, columns, column = cliques[c].separator, cliques[c].columns, 0
            for i in range(separator, cliques[c + 1].member):
                column = column * members[i].states + labels[first + members[i].variable]
            at, best = cliques[c].table + column, 0
            for r in range(1, cliques[c].rows):
                if table[at + r * columns] > table[at + best * columns]:
                    best = r
            for i in range(separator - 1, cliques[c].member - 1, -1):
                labels[first + members[i].variable] = best % members[i].states
                best //= members[i].states
    return -1


@kernel
def _sum_product(
    examples: Any, tree: Any, room: Any, v_scores: Any, f_scores: Any, temperature: float,
    out_v: Any, out_f: Any, log_partition: Any,
) -> int:  # fmt: skip
    """Marginals of every example; the first example that has no allowed labeling, or -1."""
    start, cliques, links, table, message = tree.start, tree.cliques, tree.links, room.table, room.message
    for m in range(len(examples) - 1):
        s, states, tables = examples[m].structure, examples[m].states, examples[m].tables
        log_partition[m] = 0.0
        for c in range(start[s], start[s + 1]):
            _fill(tree, room, c, v_scores, states, f_scores, tables)
            columns, to = cliques[c].columns, cliques[c].message
            _condition(table, cliques[c].table, cliques[c].rows, columns, temperature, message, to, room.total)
            top = _take_off_largest(message, to, columns)
            if top == -np.inf:
                return m
            log_partition[m] += top

        for c in range(start[s + 1] - 1, start[s] - 1, -1):
            at, rows, columns = cliques[c].table, cliques[c].rows, cliques[c].columns
            # The message is the separator's marginal by now; a single column is certain, and a root's has none.
            if columns > 1:
                _scale_columns(table, at, rows, columns, message, cliques[c].message)
            block = rows * columns
            for q in range(cliques[c + 1].link - 1, cliques[c].link - 1, -1):
                _fold(table, at, block, links[q].block)
                block = links[q].block
                if links[q].kind == OF_VARIABLE:
                    _collect(tree, room, at, q, out_v, states + links[q].at)
                elif links[q].kind == OF_FACTOR:
                    _collect(tree, room, at, q, out_f, tables + links[q].at)
                else:
                    _collect(tree, room, at, q, message, links[q].at)
    return -1


@inner
def _fill(tree: Any, room: Any, c: int, v_scores: Any, states: int, f_scores: Any, tables: int) -> None:
    """The scores of clique c with its children's messages, into its table."""
    cliques, links, table = tree.cliques, tree.links, room.table
    at, block = cliques[c].table, 1
    table[at] = 0.0
    for q in range(cliques[c].link, cliques[c + 1].link):
        _repeat(table, at, block, links[q].block)
        block = links[q].block
        if links[q].kind == OF_VARIABLE:
            _add(tree, room, at, q, v_scores, states + links[q].at)
        elif links[q].kind == OF_FACTOR:
            _add(tree, room, at, q, f_scores, tables + links[q].at)
        else:
            _add(tree, room, at, q, room.message, links[q].at)
    _repeat(table, at, block, cliques[c].rows * cliques[c].columns)


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
def _add(tree: Any, room: Any, at: int, q: int, small: Any, to: int) -> None:
    """Add link q's table, small[to:], to its block of the clique's, which begins at `at`."""
    table, links, dimensions = room.table, tree.links, tree.dimensions
    first, last = links[q].first, links[q].last - 2
    n, far, n_inner, near = (
        dimensions[last].steps, dimensions[last].stride, dimensions[last + 1].steps, dimensions[last + 1].stride,
    )  # fmt: skip
    y, end = at, at + links[q].block
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
        to += _advance(dimensions, first, last, room.count)


@inner
def _collect(tree: Any, room: Any, at: int, q: int, small: Any, to: int) -> None:
    """Sum link q's block of the clique's table, which begins at `at`, into its own, small[to:]."""
    table, links, dimensions = room.table, tree.links, tree.dimensions
    first, last = links[q].first, links[q].last - 2
    n, far, n_inner, near = (
        dimensions[last].steps, dimensions[last].stride, dimensions[last + 1].steps, dimensions[last + 1].stride,
    )  # fmt: skip
    for k in range(to, to + links[q].entries):
        small[k] = 0.0
    y, end = at, at + links[q].block
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
        to += _advance(dimensions, first, last, room.count)


@inner
def _advance(dimensions: Any, first: int, last: int, count: Any) -> int:
    """Count on by one in the outer dimensions; how far that goes in the smaller table. `count` comes and goes as zeros."""
    moved = 0
    for d in range(last - 1, first - 1, -1):
        moved += dimensions[d].stride
        count[d - first] += 1
        if count[d - first] < dimensions[d].steps:
            break
        moved -= dimensions[d].steps * dimensions[d].stride
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

"""Junction trees: exact MAP and marginals on any graph, in time and memory exponential in its induced width.

Variables are eliminated one after the other, which makes a tree of cliques (elimination.py): clique C shares its *separator* S with
its parent, and eliminates the *residual* R = C - S. Every variable and every factor is scored in one clique, of those that hold it
the one with the smallest table, so that the largest have little but messages to add. (Lauritzen and Spiegelhalter, JRSS B 1988;
Koller and Friedman, "Probabilistic Graphical Models", 2009, chapters 9 and 10.)

*Messages.* From the leaves to the roots, with s_C the scores of clique C, and the children's messages added to it,

    max:  up_S(y_S) = max_{y_R} s_C(y_S, y_R)
    sum:  up_S(y_S) = T log sum_{y_R} exp(s_C(y_S, y_R) / T)

On the way back, max-product finds y_R given y_S, which is known by then. The way up of sum-product has left the
conditional p(y_R | y_S) in the clique's table, and the way back multiplies it by the parent's marginal,

    mu_C(y_S, y_R) = mu_S(y_S) p(y_R | y_S),      mu_S(y_S) = sum of the parent's mu over all but S

As in trees.py, no message is divided out, so forbidden states (-inf) cause no NaN, and every exponent is at most 0.
The largest entry of each message is taken off it and counted apart: messages stay as small as the differences that
they tell, so that little is rounded on large graphs and at low temperatures.

Max-product keeps no tables of cliques. It first maximises over the first variable alone, whose links (clique_tables.py) are
partial, and summed in a table without the last variable, or full. Often one full link has all variables of the clique in their
order, as the factor over three tags in a chain; it is then read where it stands:

    rest(y_2 .. y_n) = without(y_2 .. y_n) + max_{y_1} full(y_1 .. y_n) + partial(y_1 .. y_n-1)

The way back finds the best y_1 from the links' entries for the y_2 .. y_n that are known by then.

Complexity
----------
Time is a few operations per entry of a clique's table and link, one for most of them in max-product on chains. Memory is the tables
of one example at a time, float64: its cliques, its separators, and the largest separator once more for sums. ``limit`` bounds their
entries. Max-product needs the largest clique only.
"""

from __future__ import annotations

from math import log10
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.errors import DataError, OptionError, TooLargeError
from maxmargin.inference.clique_tables import OF_FACTOR, OF_VARIABLE, MaxRoom, Room, Tree, clique_trees, needs_of
from maxmargin.inference.contract import (
    MapResult,
    Marginals,
    check_numbers,
    check_temperature,
    exact_result,
    raise_infeasible,
)
from maxmargin.inference.elimination import MOST_ENTRIES, Elimination, elimination_of, eliminations, table_entries
from maxmargin.jit import inner, kernel
from maxmargin.problems.factor_graphs import FactorGraphs, Scores


class JunctionTree:
    """Message passing on a tree of cliques; exact on any graph of small induced width.

    Parameters
    ----------
    limit : int
        Largest number of table entries (float64) of an example, over all its cliques and separators.
    """

    name = "junction_tree"
    exact = True

    def plan(self, graphs: FactorGraphs) -> Tree:
        """The clique trees, by which compiled loops ask about one example.

        Parameters
        ----------
        graphs : FactorGraphs
            The batch.
        """
        return clique_trees(graphs)

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
        """Induced width (M,) of each example's graph under the best elimination order found.

        Parameters
        ----------
        graphs : FactorGraphs
            The batch.
        """
        return np.array([one.width for one in eliminations(graphs)], np.int64)[graphs.structure_of]

    def entries(self, graphs: FactorGraphs) -> NDArray[np.float64]:
        """Number of table entries (M,) that each example takes; as floats, since they may be astronomical.

        Parameters
        ----------
        graphs : FactorGraphs
            The batch.
        """
        return table_entries(graphs)[graphs.structure_of]

    def maximise(self, graphs: FactorGraphs, scores: Scores) -> MapResult:
        """Find the best labeling of every example by max-product."""
        scores = self._check(graphs, scores)
        labels = np.empty(len(graphs.labels), np.int32)
        needs = needs_of(graphs)
        room = MaxRoom.of(needs.clique.max(), needs.messages.max())
        failed = _max_product(graphs.arrays.examples, clique_trees(graphs), room, *scores, labels)
        if failed >= 0:
            raise_infeasible(graphs, scores, failed)
        return exact_result(graphs, scores, labels)

    def marginals(self, graphs: FactorGraphs, scores: Scores, temperature: float = 1.0) -> Marginals:
        """Compute all marginals by sum-product at the given temperature."""
        temperature = check_temperature(temperature)
        scores = self._check(graphs, scores)
        out = Marginals(np.empty(len(scores.variables)), np.empty(len(scores.factors)), np.empty(graphs.n_examples))
        failed = _sum_product(
            graphs.arrays.examples, clique_trees(graphs), Room.of(needs_of(graphs)), *scores, temperature, *out
        )
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


# ------------------------------------------------------------------------------------------------------- kernels


@kernel
def _max_product(examples: Any, tree: Any, room: Any, v_scores: Any, f_scores: Any, labels: Any) -> int:
    """Best labeling of every example; the first example that has none, or -1."""
    for m in range(len(examples) - 1):
        if not max_product_one(
            tree, room, examples[m].structure, v_scores, examples[m].states, f_scores, examples[m].tables, labels,
            examples[m].variables,
        ):  # fmt: skip
            return m
    return -1


@inner
def max_product_one(
    tree: Any, room: Any, s: int, v_scores: Any, v_at: int, f_scores: Any, f_at: int, labels: Any, first: int
) -> bool:
    """Best labeling of one example of structure s into labels[first:]; False if all are forbidden.

    The example's scores of variables begin at v_scores[v_at], those of its factors at f_scores[f_at].
    """
    start, cliques, members, message, chosen = tree.start, tree.cliques, tree.members, room.message, room.chosen
    for c in range(start[s], start[s + 1]):
        columns, to = cliques[c].columns, cliques[c].message
        size = cliques[c].rows // cliques[c].states * columns
        sent = message[to : to + columns]
        rest = sent if size == columns else room.rest
        _maximise_first(tree, room, c, size, v_scores, v_at, f_scores, f_at, rest)
        if size > columns:
            for k in range(columns):
                sent[k], chosen[to + k] = rest[k], 0
            for y in range(columns, size, columns):
                for k in range(columns):
                    if rest[y + k] > sent[k]:
                        sent[k], chosen[to + k] = rest[y + k], y
        if _take_off_largest(message, to, columns) == -np.inf:
            return False

    for c in range(start[s + 1] - 1, start[s] - 1, -1):
        member, separator, y = cliques[c].member, cliques[c].separator, 0
        for i in range(separator, cliques[c + 1].member):
            y = y * members[i].states + labels[first + members[i].variable]
        size = cliques[c].rows // cliques[c].states * cliques[c].columns
        if size > cliques[c].columns:
            y += chosen[cliques[c].message + y]
        labels[first + members[member].variable] = _best_first(tree, room, c, y, size, v_scores, v_at, f_scores, f_at)
        y //= cliques[c].columns
        for i in range(separator - 1, member, -1):
            labels[first + members[i].variable] = y % members[i].states
            y //= members[i].states
    return True


@inner
def _maximise_first(
    tree: Any, room: Any, c: int, size: int, v_scores: Any, v_at: int, f_scores: Any, f_at: int, rest: Any
) -> None:
    """The scores of clique c with its children's messages, maximised over its first variable, into rest[:size]."""
    cliques, links, table, partial = tree.cliques, tree.links, room.table, room.partial
    states, share, whole = cliques[c].states, cliques[c].share, cliques[c].whole
    for y in range(states * size // share):
        partial[y] = 0.0
    for q in range(cliques[c].partial, cliques[c].full):
        _add_link(tree, room, partial, q, share, v_scores, v_at, f_scores, f_at)
    if whole >= 0 and links[whole].kind == OF_FACTOR:
        _max_first(f_scores, f_at + links[whole].at, states, size, partial, share, rest)
    else:
        for y in range(states * size):
            table[y] = 0.0
        for q in range(cliques[c].full, cliques[c + 1].link):
            _add_link(tree, room, table, q, 1, v_scores, v_at, f_scores, f_at)
        _max_first(table, 0, states, size, partial, share, rest)
    block = 1
    table[0] = 0.0
    for q in range(cliques[c].link, cliques[c].partial):
        _repeat(table, 0, block, links[q].block)
        block = links[q].block
        _add_link(tree, room, table, q, 1, v_scores, v_at, f_scores, f_at)
    _repeat(table, 0, block, size)
    for y in range(size):
        rest[y] += table[y]


@inner
def _max_first(full: Any, at: int, states: int, size: int, partial: Any, share: int, out: Any) -> None:
    """out[y] = max_i full[at + i size + y] + partial[i size / share + y / share].

    Four states at a time, which reads and writes `out` less often; the first ones stand alone.
    """
    n = size // share
    for j in range(n):
        there = out[j * share : j * share + share]
        for k in range(share):
            there[k] = -np.inf
        for i in range(states % 4):
            y, add = at + i * size + j * share, partial[i * n + j]
            row = full[y : y + share]
            for k in range(share):
                value = row[k] + add
                there[k] = value if value > there[k] else there[k]
        for i in range(states % 4, states, 4):
            y, p = at + i * size + j * share, i * n + j
            a, b = full[y : y + share], full[y + size : y + size + share]
            c, d = full[y + 2 * size : y + 2 * size + share], full[y + 3 * size : y + 3 * size + share]
            add_a, add_b, add_c, add_d = partial[p], partial[p + n], partial[p + 2 * n], partial[p + 3 * n]
            for k in range(share):
                one, two, three, four = a[k] + add_a, b[k] + add_b, c[k] + add_c, d[k] + add_d
                one = two if two > one else one
                three = four if four > three else three
                one = three if three > one else one
                there[k] = one if one > there[k] else there[k]


@inner
def _best_first(
    tree: Any, room: Any, c: int, y: int, size: int, v_scores: Any, v_at: int, f_scores: Any, f_at: int
) -> int:
    """The best state of the first variable of clique c, the others being in joint state y of `size`."""
    cliques, links, partial, message = tree.cliques, tree.links, room.partial, room.message
    states = cliques[c].states
    for i in range(states):
        partial[i] = 0.0
    for q in range(cliques[c].partial, cliques[c + 1].link):
        at = _entry(tree, q, y)
        step, at = _entry(tree, q, size + y) - at, at + links[q].at
        for i in range(states):
            if links[q].kind == OF_VARIABLE:
                partial[i] += v_scores[v_at + at + i * step]
            elif links[q].kind == OF_FACTOR:
                partial[i] += f_scores[f_at + at + i * step]
            else:
                partial[i] += message[at + i * step]
    best = 0
    for i in range(1, states):
        if partial[i] > partial[best]:
            best = i
    return best


@inner
def _entry(tree: Any, q: int, y: int) -> int:
    """Which entry of link q's table entry y of its block reads."""
    links, dimensions, at = tree.links, tree.dimensions, 0
    for d in range(links[q].last - 1, links[q].first - 1, -1):
        at += y % dimensions[d].steps * dimensions[d].stride
        y //= dimensions[d].steps
    return at


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
        _add_link(tree, room, table[at : at + block], q, 1, v_scores, states, f_scores, tables)
    _repeat(table, at, block, cliques[c].rows * cliques[c].columns)


@inner
def _add_link(
    tree: Any, room: Any, table: Any, q: int, share: int, v_scores: Any, v_at: int, f_scores: Any, f_at: int
) -> None:
    """Add link q's table to its block; a partial link also where the last variable, of `share` states, is left out."""
    links = tree.links
    if links[q].kind == OF_VARIABLE:
        _add(tree, room.count, table, q, share, v_scores, v_at + links[q].at)
    elif links[q].kind == OF_FACTOR:
        _add(tree, room.count, table, q, share, f_scores, f_at + links[q].at)
    else:
        _add(tree, room.count, table, q, share, room.message, links[q].at)


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
def _add(tree: Any, count: Any, table: Any, q: int, share: int, small: Any, to: int) -> None:
    """Add link q's table, small[to:], to its block, of which `share` neighbours are one entry."""
    links, dimensions = tree.links, tree.dimensions
    first, last = links[q].first, links[q].last - 2
    n, far, n_inner, near = (
        dimensions[last].steps, dimensions[last].stride, dimensions[last + 1].steps // share, dimensions[last + 1].stride,
    )  # fmt: skip
    y, end = 0, links[q].block // share
    while y < end:
        if n_inner == 1:
            for i in range(n):
                table[y + i] += small[to + i * far]
            y += n
        for i in range(n if n_inner > 1 else 0):
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
    a = b = c = d = -np.inf
    # Four running maxima, as in `max_rows`.
    for r in range(at, at + size - 3, 4):
        a, b = max(a, message[r]), max(b, message[r + 1])
        c, d = max(c, message[r + 2]), max(d, message[r + 3])
    for r in range(at + size - size % 4, at + size):
        a = max(a, message[r])
    top = max(max(a, b), max(c, d))
    if top > -np.inf:
        for r in range(at, at + size):
            message[r] -= top
    return float(top)

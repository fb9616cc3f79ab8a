"""Loopy belief propagation: max-product and sum-product on graphs of any shape; exact on forests, approximate else.

Finley and Joachims (2008), section 3.1, use it (after Pearl, 1988) as an undergenerating method. Messages are in the
log domain. With ``r_ci`` the message of factor c to variable i, the belief of a variable, and what it says to c, are

    b_i(k) = scores_i(k) + sum_{c: i in c} r_ci(k),        q_ic = b_i - r_ci

and a factor answers from its table of beliefs, ``B_c(y_c) = scores_c(y_c) + sum_{i in c} q_ic(y_i)``:

    max:  r_ci(k) = max_{y_c: y_i = k} B_c(y_c) - q_ic(k)
    sum:  r_ci(k) = T log sum_{y_c: y_i = k} exp(B_c(y_c) / T) - q_ic(k)

less its largest entry, which is then 0. On graphs with cycles the message kept is ``damping`` times the one before plus
``1 - damping`` times this. Messages of forests are not damped: there they cannot oscillate.

*Order.* Factors send one after another, each from the latest messages. A round visits them from the leaves of a
breadth-first walk to its roots, and back. On a forest, one round therefore makes all messages exact, however long its
paths are, and the next finds nothing to change; on any graph, news crosses the whole graph in one round. A round costs
a few steps per entry of each table and variable of its scope. Rounds end when no message changes by more than ``tol``.

*Forbidden states.* A state that some factor finds impossible (``max = -inf``) is impossible in every allowed labeling,
so its belief is -inf from then on, and so is all that the variable says of it; messages themselves stay finite, and no
difference of infinities arises. If all states of a variable become impossible, no labeling is allowed, which is an
error. The converse does not hold on graphs with cycles: a labeling found may be forbidden, and then has the value -inf.

*Labelings.* After each round every variable takes the state of its largest belief (the lowest of several). When some
states have the same belief, such a choice can be inconsistent even on a forest, so after the last round variables also
choose one after another, in the order of the walk, each given those before it: variables that have chosen say -inf of
all their other states. The best labeling seen is the answer; on a forest, the last is a best one. With ``labeling="last"`` it is
that of the last round's beliefs instead, which is plain belief propagation. There is no bound on what was missed (``bounds`` are
+inf), whether the messages have converged or not.

*Marginals* are the normalised beliefs. With ``Z_i = T log sum exp(b_i / T)``, ``Z_c`` the same of ``B_c``, and d_i the
number of factors of i, ``sum_c Z_c + sum_i (1 - d_i) Z_i`` is the Bethe approximation of the log partition function: a
message raised by a constant raises Z_i once and the Z_c of the other d_i - 1 factors, which cancels.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from maxmargin.errors import OptionError
from maxmargin.inference.contract import (
    MapResult,
    Marginals,
    check_numbers,
    check_refusal,
    check_temperature,
    once_per_structures,
    raise_infeasible,
    unbounded_result,
)
from maxmargin.jit import Struct, inner, kernel, record_type, records
from maxmargin.problems.factor_graphs import FactorGraphs, Scores
from maxmargin.problems.layout import GraphArrays, Largest
from maxmargin.problems.tables import slot_add, slot_max
from maxmargin.problems.templates import Structure

#: An end of a factor: the variable, its first state and the message in the example, the variable's slot, and where its states begin
#: among the factor's.
END = record_type("variable", "state", "message", "states", "stride", "outer", "place")
#: A factor: its table in the example and that table's size, the first and the last row of `ends`.
FACTOR = record_type("table", "entries", "end", "last")


class Walk(Struct):
    """What the shapes of graphs say about who sends when, and where."""

    #: A record per factor of all structures, in their order, and its ends.
    factors: Any
    ends: Any
    #: The factors, structure by structure, from the roots of a breadth-first walk outwards.
    order: NDArray[np.int64]
    #: The variables of each structure, in the order of the same walk.
    variables: NDArray[np.int64]
    #: Whether a structure is a forest.
    forest: NDArray[np.bool_]


class Task(Struct):
    """Graphs and their scores."""

    graphs: GraphArrays
    walk: Walk
    variable_scores: NDArray[np.float64]
    factor_scores: NDArray[np.float64]


class Room(Struct):
    """Beliefs and messages of one example, what a factor works with, and a labeling."""

    belief: NDArray[np.float64]
    message: NDArray[np.float64]
    table: NDArray[np.float64]
    said: NDArray[np.float64]
    heard: NDArray[np.float64]
    trial: NDArray[np.int64]
    done: NDArray[np.bool_]

    @classmethod
    def of(cls, largest: Largest) -> Room:
        """Room for the largest example."""
        return cls(
            np.empty(largest.states), np.empty(largest.deltas), np.empty(largest.table), np.empty(largest.slots),
            np.empty(largest.states), np.empty(largest.variables, np.int64), np.empty(largest.variables, np.bool_),
        )  # fmt: skip


class LoopyBP:
    """Loopy belief propagation; exact on forests, without a guarantee elsewhere.

    Parameters
    ----------
    max_rounds : int
        Most rounds; in each, every factor sends twice to all its variables.
    damping : float
        Share of the old message that is kept, in [0, 1); forests are never damped.
    tol : float
        Rounds end when no message changes by more than this, in units of the score.
    labeling : "best" or "last"
        The best labeling of all rounds, or that of the last one.
    """

    name = "loopy_bp"
    exact = False

    def __init__(
        self, max_rounds: int = 100, damping: float = 0.5, tol: float = 1e-6, labeling: Literal["best", "last"] = "best"
    ) -> None:
        if not _is_number(max_rounds, Integral) or max_rounds < 1:
            raise OptionError(f"max_rounds={max_rounds!r} is not possible; it must be a whole number of at least 1.")
        if not _is_number(damping, Real) or not 0 <= damping < 1:
            raise OptionError(f"damping={damping!r} is not possible; it must be at least 0 and below 1.")
        if not _is_number(tol, Real) or not 0 <= tol < np.inf:
            raise OptionError(f"tol={tol!r} is not possible; it must be a finite number of at least 0.")
        if labeling not in ("best", "last"):
            raise OptionError(f'labeling={labeling!r} is not possible; it is "best" or "last".')
        self.max_rounds = int(max_rounds)
        self.damping = float(damping)
        self.tol = float(tol)
        self.labeling = labeling

    def refusal(self, graphs: FactorGraphs) -> str | None:
        """Refuse structured factors; messages can be passed on every other graph."""
        return graphs.refuse_structured(self.name)

    def maximise(self, graphs: FactorGraphs, scores: Scores) -> MapResult:
        """Find the best labeling of every example that max-product comes by; -inf if it is forbidden."""
        check_refusal(self, graphs)
        scores = check_numbers(graphs, scores)
        labels = np.empty(len(graphs.labels), np.int32)
        task, room = Task(graphs.arrays, _walk(graphs), *scores), Room.of(graphs.arrays.largest)
        keep_last = self.labeling == "last"
        failed = _max_product(task, room, self.max_rounds, self.damping, self.tol, keep_last, labels)
        if failed >= 0:
            raise_infeasible(graphs, scores, failed)
        return unbounded_result(graphs, scores, labels)

    def marginals(self, graphs: FactorGraphs, scores: Scores, temperature: float = 1.0) -> Marginals:
        """Approximate all marginals by loopy sum-product, and the log partition function after Bethe.

        Both are exact on forests. On graphs with cycles the marginals of every variable and factor sum to 1, but
        factors agree with their variables only as far as messages have converged, and nothing bounds the error.
        """
        temperature = check_temperature(temperature)
        check_refusal(self, graphs)
        scores = check_numbers(graphs, scores)
        out = Marginals(np.empty(len(scores.variables)), np.empty(len(scores.factors)), np.empty(graphs.n_examples))
        task, room = Task(graphs.arrays, _walk(graphs), *scores), Room.of(graphs.arrays.largest)
        failed = _sum_product(task, room, temperature, self.max_rounds, self.damping, self.tol, *out)
        if failed >= 0:
            raise_infeasible(graphs, scores, failed)
        return out


def _is_number(value: Any, kind: type) -> bool:
    # NumPy's numbers count; True and False do not.
    return isinstance(value, kind) and not isinstance(value, bool)


@once_per_structures
def _walk(graphs: FactorGraphs) -> Walk:
    a = graphs.arrays
    kind = a.factors.template
    arity = a.factor_kinds[kind].arity
    factor = np.repeat(np.arange(len(kind)), arity)
    slot = a.slots[a.factor_kinds[kind[factor]].slots + np.arange(len(factor)) - a.factors[factor].neighbours]
    first_variable = np.repeat(a.structures[:-1].variables, np.diff(a.structures.factors))
    ends = records(
        END,
        a.scope,
        a.variables[first_variable[factor] + a.scope].table,
        a.factors[factor].delta + slot.delta,
        slot.states,
        slot.stride,
        slot.outer,
        slot.delta,
    )
    first_end = a.factors.neighbours
    factors: list[int] = []
    variables: list[int] = []
    for structure, offset in zip(graphs.structures, a.structures[:-1].factors.tolist(), strict=True):
        of_variables, of_factors = _breadth_first(structure)
        variables += of_variables
        factors += [offset + c for c in of_factors]
    return Walk(
        records(FACTOR, a.factors.table, a.factor_kinds[kind].entries, first_end, first_end + arity),
        ends,
        np.array(factors, np.int64),
        np.array(variables, np.int64),
        np.array([structure.is_forest() for structure in graphs.structures], bool),
    )


def _breadth_first(structure: Structure) -> tuple[list[int], list[int]]:
    """Variables and factors in the order of a breadth-first walk, whose roots are the first variables not seen yet."""
    scopes = structure.scope_lists()
    incident: list[list[int]] = [[] for _ in structure.variable_templates]
    for c, scope in enumerate(scopes):
        for v in scope:
            incident[v].append(c)
    seen, sent = [False] * len(incident), [False] * len(scopes)
    variables: list[int] = []
    factors: list[int] = []
    for root in range(len(incident)):
        if seen[root]:
            continue
        seen[root] = True
        waiting = [root]
        for v in waiting:
            for c in incident[v]:
                if not sent[c]:
                    sent[c] = True
                    factors.append(c)
                    waiting += [u for u in scopes[c] if not seen[u]]
                    for u in scopes[c]:
                        seen[u] = True
        variables += waiting
    return variables, factors


# ------------------------------------------------------------------------------------------------------- kernels


@kernel
def _max_product(
    task: Any, room: Any, max_rounds: int, damping: float, tol: float, keep_last: bool, labels: Any
) -> int:
    """Best or last labeling seen of every example; the first example in which every labeling is known to be forbidden, or -1."""
    examples, trial, message = task.graphs.examples, room.trial, room.message
    for m in range(len(examples) - 1):
        first, n = examples[m].variables, examples[m + 1].variables - examples[m].variables
        own = 0.0 if task.walk.forest[examples[m].structure] else damping
        message[:] = 0.0
        best = -np.inf
        for number in range(max_rounds):
            _gather(task, room, m, number == 0)
            change = _round(task, room, m, 0.0, own)
            if not _states(task, room, m):
                return m
            value = _score(task, m, trial)
            if keep_last or number == 0 or value > best:
                best = value
                for v in range(n):
                    labels[first + v] = trial[v]
            if change <= tol:
                break
        if keep_last:
            continue
        _choose(task, room, m)
        if _score(task, m, trial) > best:
            for v in range(n):
                labels[first + v] = trial[v]
    return -1


@kernel
def _sum_product(
    task: Any, room: Any, temperature: float, max_rounds: int, damping: float, tol: float, out_v: Any, out_f: Any,
    log_partition: Any,
) -> int:  # fmt: skip
    """Beliefs of every example; the first example in which every labeling is known to be forbidden, or -1."""
    g, factors, belief, message = task.graphs, task.walk.factors, room.belief, room.message
    examples, structures, variables, v_kinds = g.examples, g.structures, g.variables, g.variable_kinds
    for m in range(len(examples) - 1):
        s, states, tables = examples[m].structure, examples[m].states, examples[m].tables
        own = 0.0 if task.walk.forest[s] else damping
        message[:] = 0.0
        for number in range(max_rounds):
            _gather(task, room, m, number == 0)
            change = _round(task, room, m, temperature, own)
            if not _states(task, room, m):
                return m
            if change <= tol:
                break
        _gather(task, room, m, False)
        total = 0.0
        for v in range(structures[s].variables, structures[s + 1].variables):
            at, n_states = variables[v].table, v_kinds[variables[v].template].entries
            for k in range(at, at + n_states):
                out_v[states + k] = belief[k]
            total += (1 - variables[v].degree) * _normalise(out_v, states + at, n_states, temperature)
        for c in range(structures[s].factors, structures[s + 1].factors):
            at = tables + factors[c].table
            _fill(task, room, c, tables, out_f, at)
            total += _normalise(out_f, at, factors[c].entries, temperature)
        # What the last round found impossible may have left a factor without a joint state.
        if total == -np.inf:
            return m
        log_partition[m] = total
    return -1


@inner
def _gather(task: Any, room: Any, m: int, anew: bool) -> None:
    """Sum up beliefs, which drift while messages change; unless it is done anew, the impossible stays so."""
    g, v_scores, belief, message = task.graphs, task.variable_scores, room.belief, room.message
    variables, v_kinds, incident = g.variables, g.variable_kinds, g.incident
    s, states = g.examples[m].structure, g.examples[m].states
    for v in range(g.structures[s].variables, g.structures[s + 1].variables):
        at, n_states, row = variables[v].table, v_kinds[variables[v].template].entries, variables[v].neighbours
        for k in range(n_states):
            if anew or belief[at + k] > -np.inf:
                belief[at + k] = v_scores[states + at + k]
        for e in range(row, row + variables[v].degree):
            for k in range(n_states):
                belief[at + k] += message[incident[e].delta + k]


@inner
def _round(task: Any, room: Any, m: int, temperature: float, damping: float) -> float:
    """All factors send, from the leaves to the roots and back; the largest change of a message."""
    g, factors, ends, order = task.graphs, task.walk.factors, task.walk.ends, task.walk.order
    belief, message, table, said, heard = room.belief, room.message, room.table, room.said, room.heard
    s, tables = g.examples[m].structure, g.examples[m].tables
    f0, f1 = g.structures[s].factors, g.structures[s + 1].factors
    change = 0.0
    for step in range(2 * (f1 - f0)):
        c = order[f1 - 1 - step if step < f1 - f0 else 2 * f0 - f1 + step]
        _fill(task, room, c, tables, table, 0)
        for e in range(factors[c].end, factors[c].last):
            at, to, n_states, place = ends[e].state, ends[e].message, ends[e].states, ends[e].place
            slot_max(table, 0, ends[e].outer, n_states, ends[e].stride, heard, 0)
            if temperature > 0.0:
                _slot_log_sum(table, ends[e].outer, n_states, ends[e].stride, temperature, heard)
            top = -np.inf
            for k in range(n_states):
                if heard[k] > -np.inf:
                    heard[k] -= said[place + k]
                    top = max(top, heard[k])
            for k in range(n_states):
                if heard[k] == -np.inf:
                    # A first discovery is a change, for others may conclude from it.
                    if belief[at + k] > -np.inf:
                        change = np.inf
                    belief[at + k] = -np.inf
                else:
                    move = (1.0 - damping) * (heard[k] - top - message[to + k])
                    message[to + k] += move
                    belief[at + k] += move
                    change = max(change, abs(move))
    return change


@inner
def _fill(task: Any, room: Any, c: int, tables: int, table: Any, to: int) -> None:
    """Beliefs of factor c, in table[to:]; what its variables say goes to `said`."""
    factors, ends, f_scores = task.walk.factors, task.walk.ends, task.factor_scores
    belief, message, said = room.belief, room.message, room.said
    here = tables + factors[c].table
    for y in range(factors[c].entries):
        table[to + y] = f_scores[here + y]
    for e in range(factors[c].end, factors[c].last):
        at, sent, n_states, place = ends[e].state, ends[e].message, ends[e].states, ends[e].place
        for k in range(n_states):
            said[place + k] = belief[at + k] - message[sent + k]
        slot_add(table, to, ends[e].outer, n_states, ends[e].stride, said, place, 1.0)


@inner
def _slot_log_sum(table: Any, outer: int, n_states: int, stride: int, temperature: float, out: Any) -> None:
    """Turn out[k], the largest entry of state k, into T log sum exp(entries / T)."""
    for k in range(n_states):
        if out[k] > -np.inf:
            mass = 0.0
            for o in range(outer):
                begin = (o * n_states + k) * stride
                for y in range(begin, begin + stride):
                    mass += np.exp((table[y] - out[k]) / temperature)
            out[k] += temperature * np.log(mass)


@inner
def _normalise(table: Any, at: int, size: int, temperature: float) -> float:
    """Turn scores into probabilities; T log sum exp(scores / T), or -inf if all are."""
    top = -np.inf
    for y in range(at, at + size):
        top = max(top, table[y])
    if top == -np.inf:
        return top
    mass = 0.0
    for y in range(at, at + size):
        table[y] = np.exp((table[y] - top) / temperature)
        mass += table[y]
    for y in range(at, at + size):
        table[y] /= mass
    log_mass: float = top + temperature * np.log(mass)
    return log_mass


@inner
def _states(task: Any, room: Any, m: int) -> bool:
    """Each variable's state of largest belief, into `trial`; False if a variable has no possible state."""
    g, belief, trial = task.graphs, room.belief, room.trial
    variables, v_kinds, v0 = g.variables, g.variable_kinds, g.structures[g.examples[m].structure].variables
    for v in range(g.examples[m + 1].variables - g.examples[m].variables):
        at, best = variables[v0 + v].table, 0
        for k in range(1, v_kinds[variables[v0 + v].template].entries):
            if belief[at + k] > belief[at + best]:
                best = k
        if belief[at + best] == -np.inf:
            return False
        trial[v] = best
    return True


@inner
def _score(task: Any, m: int, trial: Any) -> float:
    """The score of a labeling of example m."""
    g, factors, ends, v_scores, f_scores = (
        task.graphs, task.walk.factors, task.walk.ends, task.variable_scores, task.factor_scores,
    )  # fmt: skip
    variables, structures, s = g.variables, g.structures, g.examples[m].structure
    v0, states, tables, total = structures[s].variables, g.examples[m].states, g.examples[m].tables, 0.0
    for v in range(structures[s + 1].variables - v0):
        total += v_scores[states + variables[v0 + v].table + trial[v]]
    for c in range(structures[s].factors, structures[s + 1].factors):
        joint = tables + factors[c].table
        for e in range(factors[c].end, factors[c].last):
            joint += ends[e].stride * trial[ends[e].variable]
        total += f_scores[joint]
    return total


@inner
def _choose(task: Any, room: Any, m: int) -> None:
    """Variables choose their states in turn, each given the choices before it; into `trial`, over what is there."""
    g, factors, ends, f_scores = task.graphs, task.walk.factors, task.walk.ends, task.factor_scores
    variables, v_kinds, incident, v_scores = g.variables, g.variable_kinds, g.incident, task.variable_scores
    belief, message, table, said, heard, trial, done = (
        room.belief, room.message, room.table, room.said, room.heard, room.trial, room.done,
    )  # fmt: skip
    s, states, tables = g.examples[m].structure, g.examples[m].states, g.examples[m].tables
    v0, f0 = g.structures[s].variables, g.structures[s].factors
    done[:] = False
    for place in range(v0, g.structures[s + 1].variables):
        v = task.walk.variables[place]
        at, n_states = variables[v0 + v].table, v_kinds[variables[v0 + v].template].entries
        row = variables[v0 + v].neighbours
        # The beliefs of the others are still those of the messages; this variable's are not needed any more.
        for k in range(n_states):
            belief[at + k] = v_scores[states + at + k] if belief[at + k] > -np.inf else -np.inf
        for q in range(row, row + variables[v0 + v].degree):
            c = f0 + incident[q].factor
            here = tables + factors[c].table
            for y in range(factors[c].entries):
                table[y] = f_scores[here + y]
            own = 0
            for e in range(factors[c].end, factors[c].last):
                u = ends[e].variable
                if u == v:
                    own = e
                    continue
                for k in range(ends[e].states):
                    if done[u]:
                        said[k] = 0.0 if k == trial[u] else -np.inf
                    else:
                        said[k] = belief[ends[e].state + k] - message[ends[e].message + k]
                slot_add(table, 0, ends[e].outer, ends[e].states, ends[e].stride, said, 0, 1.0)
            slot_max(table, 0, ends[own].outer, n_states, ends[own].stride, heard, 0)
            for k in range(n_states):
                belief[at + k] += heard[k]
        # Where the earlier choices leave no state, the one it had stays.
        best = trial[v]
        for k in range(n_states):
            if belief[at + k] > belief[at + best]:
                best = k
        trial[v] = best
        done[v] = True

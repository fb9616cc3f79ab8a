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
all their other states. The best labeling seen is the answer; on a forest, the last is a best one. There is no bound on
what was missed (``bounds`` are +inf), whether the messages have converged or not.

*Marginals* are the normalised beliefs. With ``Z_i = T log sum exp(b_i / T)``, ``Z_c`` the same of ``B_c``, and d_i the
number of factors of i, ``sum_c Z_c + sum_i (1 - d_i) Z_i`` is the Bethe approximation of the log partition function: a
message raised by a constant raises Z_i once and the Z_c of the other d_i - 1 factors, which cancels.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

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
from maxmargin.jit import Struct, inner, kernel
from maxmargin.problems.factor_graphs import FactorGraphs, Scores
from maxmargin.problems.tables import slot_add, slot_max
from maxmargin.problems.templates import Structure

# Columns of `ends`, a row per (factor, variable of its scope): the variable, its first state and the message in the
# example, the variable's slot, and where its states begin among the factor's.
E_VARIABLE, E_STATE, E_MESSAGE, E_STATES, E_STRIDE, E_OUTER, E_PLACE = range(7)
# Columns of `members`, a row per factor: table in the example, its size, first and last row of `ends`.
M_TABLE, M_SIZE, M_END, M_LAST = range(4)


class Walk(Struct):
    """What the shapes of graphs say about who sends when, and where."""

    #: A row per factor of all structures, in their order, and its ends.
    members: NDArray[np.int64]
    ends: NDArray[np.int64]
    #: The rows of `members`, structure by structure, from the roots of a breadth-first walk outwards.
    factors: NDArray[np.int64]
    #: The variables of each structure, in the order of the same walk.
    variables: NDArray[np.int64]
    #: Whether a structure is a forest.
    forest: NDArray[np.bool_]


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
    """

    name = "loopy_bp"
    exact = False

    def __init__(self, max_rounds: int = 100, damping: float = 0.5, tol: float = 1e-6) -> None:
        if not _is_number(max_rounds, Integral) or max_rounds < 1:
            raise OptionError(f"max_rounds={max_rounds!r} is not possible; it must be a whole number of at least 1.")
        if not _is_number(damping, Real) or not 0 <= damping < 1:
            raise OptionError(f"damping={damping!r} is not possible; it must be at least 0 and below 1.")
        if not _is_number(tol, Real) or not 0 <= tol < np.inf:
            raise OptionError(f"tol={tol!r} is not possible; it must be a finite number of at least 0.")
        self.max_rounds = int(max_rounds)
        self.damping = float(damping)
        self.tol = float(tol)

    def refusal(self, graphs: FactorGraphs) -> str | None:
        """Refuse structured factors; messages can be passed on every other graph."""
        return graphs.refuse_structured(self.name)

    def maximise(self, graphs: FactorGraphs, scores: Scores) -> MapResult:
        """Find the best labeling of every example that max-product comes by; -inf if it is forbidden."""
        check_refusal(self, graphs)
        scores = check_numbers(graphs, scores)
        labels = np.empty(len(graphs.labels), np.int32)
        failed = _max_product(
            graphs.arrays, _walk(graphs), scores.variables, scores.factors, self.max_rounds, self.damping, self.tol,
            labels,
        )  # fmt: skip
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
        failed = _sum_product(
            graphs.arrays, _walk(graphs), scores.variables, scores.factors, temperature, self.max_rounds, self.damping,
            self.tol, *out,
        )  # fmt: skip
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
    ends = np.stack(
        [
            a.scope,
            a.variables[first_variable[factor] + a.scope].table,
            a.factors[factor].delta + slot.delta,
            slot.states,
            slot.stride,
            slot.outer,
            slot.delta,
        ],
        axis=1,
    )
    first_end = a.factors.neighbours
    factors: list[int] = []
    variables: list[int] = []
    for structure, offset in zip(graphs.structures, a.structures[:-1].factors.tolist(), strict=True):
        of_variables, of_factors = _breadth_first(structure)
        variables += of_variables
        factors += [offset + c for c in of_factors]
    return Walk(
        np.stack([a.factors.table, a.factor_kinds[kind].entries, first_end, first_end + arity], axis=1),
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
    g: Any, walk: Any, v_scores: Any, f_scores: Any, max_rounds: int, damping: float, tol: float, labels: Any
) -> int:
    """Best labeling seen of every example; the first example in which every labeling is known to be forbidden, or -1."""
    examples, structures, variables, incident, v_kinds, largest = (
        g.examples, g.structures, g.variables, g.incident, g.variable_kinds, g.largest,
    )  # fmt: skip
    members, ends, order, turn, forest = walk.members, walk.ends, walk.factors, walk.variables, walk.forest
    belief, message = np.empty(largest.states), np.empty(largest.deltas)
    table, said, heard = np.empty(largest.table), np.empty(largest.slots), np.empty(largest.states)
    trial, done = np.empty(largest.variables, np.int64), np.empty(largest.variables, np.bool_)
    for m in range(len(examples) - 1):
        s, first, states, tables = (
            examples[m].structure,
            examples[m].variables,
            examples[m].states,
            examples[m].tables,
        )
        v0, f0, f1, n = (
            structures[s].variables,
            structures[s].factors,
            structures[s + 1].factors,
            examples[m + 1].variables - first,
        )
        own = 0.0 if forest[s] else damping
        for i in range(len(message)):
            message[i] = 0.0
        best = -np.inf
        for number in range(max_rounds):
            _gather(v0, n, states, variables, v_kinds, incident, v_scores, message, number == 0, belief)
            change = _round(
                f0, f1, tables, order, members, ends, f_scores, 0.0, own, table, said, heard, message, belief
            )
            if not _states(v0, n, variables, v_kinds, belief, trial):
                return m
            value = _score(v0, n, f0, f1, states, tables, variables, members, ends, v_scores, f_scores, trial)
            if number == 0 or value > best:
                best = value
                for v in range(n):
                    labels[first + v] = trial[v]
            if change <= tol:
                break
        _choose(
            v0, n, f0, states, tables, variables, v_kinds, incident, turn, members, ends, v_scores, f_scores, table, said,
            heard, message, belief, trial, done,
        )  # fmt: skip
        value = _score(v0, n, f0, f1, states, tables, variables, members, ends, v_scores, f_scores, trial)
        if value > best:
            for v in range(n):
                labels[first + v] = trial[v]
    return -1


@kernel
def _sum_product(
    g: Any, walk: Any, v_scores: Any, f_scores: Any, temperature: float, max_rounds: int, damping: float, tol: float,
    out_v: Any, out_f: Any, log_partition: Any,
) -> int:  # fmt: skip
    """Beliefs of every example; the first example in which every labeling is known to be forbidden, or -1."""
    examples, structures, variables, incident, v_kinds, largest = (
        g.examples, g.structures, g.variables, g.incident, g.variable_kinds, g.largest,
    )  # fmt: skip
    members, ends, order, forest = walk.members, walk.ends, walk.factors, walk.forest
    belief, message = np.empty(largest.states), np.empty(largest.deltas)
    table, said, heard = np.empty(largest.table), np.empty(largest.slots), np.empty(largest.states)
    trial = np.empty(largest.variables, np.int64)
    for m in range(len(examples) - 1):
        s, states, tables = examples[m].structure, examples[m].states, examples[m].tables
        v0, f0, f1, n = (
            structures[s].variables,
            structures[s].factors,
            structures[s + 1].factors,
            examples[m + 1].variables - examples[m].variables,
        )
        own = 0.0 if forest[s] else damping
        for i in range(len(message)):
            message[i] = 0.0
        for number in range(max_rounds):
            _gather(v0, n, states, variables, v_kinds, incident, v_scores, message, number == 0, belief)
            change = _round(
                f0, f1, tables, order, members, ends, f_scores, temperature, own, table, said, heard, message, belief
            )
            if not _states(v0, n, variables, v_kinds, belief, trial):
                return m
            if change <= tol:
                break
        _gather(v0, n, states, variables, v_kinds, incident, v_scores, message, False, belief)
        total = 0.0
        for v in range(v0, v0 + n):
            at, n_states = variables[v].table, v_kinds[variables[v].template].entries
            for k in range(at, at + n_states):
                out_v[states + k] = belief[k]
            total += (1 - variables[v].degree) * _normalise(out_v, states + at, n_states, temperature)
        for c in range(f0, f1):
            at = tables + members[c, M_TABLE]
            _fill(c, tables, members, ends, f_scores, message, belief, said, out_f, at)
            total += _normalise(out_f, at, members[c, M_SIZE], temperature)
        # What the last round found impossible may have left a factor without a joint state.
        if total == -np.inf:
            return m
        log_partition[m] = total
    return -1


@inner
def _gather(
    v0: int, n: int, states: int, variables: Any, v_kinds: Any, incident: Any, v_scores: Any, message: Any, anew: bool,
    belief: Any,
) -> None:  # fmt: skip
    """Sum up beliefs, which drift while messages change; unless it is done anew, the impossible stays so."""
    for v in range(v0, v0 + n):
        at, n_states, row = variables[v].table, v_kinds[variables[v].template].entries, variables[v].neighbours
        for k in range(n_states):
            if anew or belief[at + k] > -np.inf:
                belief[at + k] = v_scores[states + at + k]
        for e in range(row, row + variables[v].degree):
            for k in range(n_states):
                belief[at + k] += message[incident[e].delta + k]


@inner
def _round(
    f0: int, f1: int, tables: int, order: Any, members: Any, ends: Any, f_scores: Any, temperature: float, damping: float,
    table: Any, said: Any, heard: Any, message: Any, belief: Any,
) -> float:  # fmt: skip
    """All factors send, from the leaves to the roots and back; the largest change of a message."""
    change = 0.0
    for step in range(2 * (f1 - f0)):
        q = f1 - 1 - step if step < f1 - f0 else 2 * f0 - f1 + step
        c = order[q]
        _fill(c, tables, members, ends, f_scores, message, belief, said, table, 0)
        for e in range(members[c, M_END], members[c, M_LAST]):
            at, to, n_states, place = ends[e, E_STATE], ends[e, E_MESSAGE], ends[e, E_STATES], ends[e, E_PLACE]
            slot_max(table, 0, ends[e, E_OUTER], n_states, ends[e, E_STRIDE], heard, 0)
            if temperature > 0.0:
                _slot_log_sum(table, ends[e, E_OUTER], n_states, ends[e, E_STRIDE], temperature, heard)
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
def _fill(
    c: int, tables: int, members: Any, ends: Any, f_scores: Any, message: Any, belief: Any, said: Any, table: Any, to: int
) -> None:  # fmt: skip
    """Beliefs of factor c, in table[to:]; what its variables say goes to `said`."""
    here = tables + members[c, M_TABLE]
    for y in range(members[c, M_SIZE]):
        table[to + y] = f_scores[here + y]
    for e in range(members[c, M_END], members[c, M_LAST]):
        at, sent, n_states, place = ends[e, E_STATE], ends[e, E_MESSAGE], ends[e, E_STATES], ends[e, E_PLACE]
        for k in range(n_states):
            said[place + k] = belief[at + k] - message[sent + k]
        slot_add(table, to, ends[e, E_OUTER], n_states, ends[e, E_STRIDE], said, place, 1.0)


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
def _states(v0: int, n: int, variables: Any, v_kinds: Any, belief: Any, trial: Any) -> bool:
    """Each variable's state of largest belief; False if a variable has no possible state."""
    for v in range(n):
        at, best = variables[v0 + v].table, 0
        for k in range(1, v_kinds[variables[v0 + v].template].entries):
            if belief[at + k] > belief[at + best]:
                best = k
        if belief[at + best] == -np.inf:
            return False
        trial[v] = best
    return True


@inner
def _score(
    v0: int, n: int, f0: int, f1: int, states: int, tables: int, variables: Any, members: Any, ends: Any, v_scores: Any,
    f_scores: Any, trial: Any,
) -> float:  # fmt: skip
    total = 0.0
    for v in range(n):
        total += v_scores[states + variables[v0 + v].table + trial[v]]
    for c in range(f0, f1):
        joint = tables + members[c, M_TABLE]
        for e in range(members[c, M_END], members[c, M_LAST]):
            joint += ends[e, E_STRIDE] * trial[ends[e, E_VARIABLE]]
        total += f_scores[joint]
    return total


@inner
def _choose(
    v0: int, n: int, f0: int, states: int, tables: int, variables: Any, v_kinds: Any, incident: Any, turn: Any, members: Any,
    ends: Any, v_scores: Any, f_scores: Any, table: Any, said: Any, heard: Any, message: Any, belief: Any, trial: Any, done: Any,
) -> None:  # fmt: skip
    """Variables choose their states in turn, each given the choices before it; into `trial`, over what is there."""
    for v in range(n):
        done[v] = False
    for place in range(v0, v0 + n):
        v = turn[place]
        at, n_states = variables[v0 + v].table, v_kinds[variables[v0 + v].template].entries
        row = variables[v0 + v].neighbours
        # The beliefs of the others are still those of the messages; this variable's are not needed any more.
        for k in range(n_states):
            belief[at + k] = v_scores[states + at + k] if belief[at + k] > -np.inf else -np.inf
        for q in range(row, row + variables[v0 + v].degree):
            c = f0 + incident[q].factor
            here = tables + members[c, M_TABLE]
            for y in range(members[c, M_SIZE]):
                table[y] = f_scores[here + y]
            own = 0
            for e in range(members[c, M_END], members[c, M_LAST]):
                u = ends[e, E_VARIABLE]
                if u == v:
                    own = e
                    continue
                for k in range(ends[e, E_STATES]):
                    if done[u]:
                        said[k] = 0.0 if k == trial[u] else -np.inf
                    else:
                        said[k] = belief[ends[e, E_STATE] + k] - message[ends[e, E_MESSAGE] + k]
                slot_add(table, 0, ends[e, E_OUTER], ends[e, E_STATES], ends[e, E_STRIDE], said, 0, 1.0)
            slot_max(table, 0, ends[own, E_OUTER], n_states, ends[own, E_STRIDE], heard, 0)
            for k in range(n_states):
                belief[at + k] += heard[k]
        # Where the earlier choices leave no state, the one it had stays.
        best = trial[v]
        for k in range(n_states):
            if belief[at + k] > belief[at + best]:
                best = k
        trial[v] = best
        done[v] = True

"""Trees: max-product and sum-product on forests and chains (Viterbi, forward-backward), exact, factors of any arity.

Each component is rooted at its last variable, so that a chain is walked from left to right. Every factor then has
one *parent* variable, nearest to the root, and sends it one message when its other variables, the *children*, have
heard from all factors below them. With ``up_i`` the scores of variable i plus what it has heard,

    max:  up_p(y_p) += max_{y_c: y_p}  scores_c(y_c) + sum_{children j} up_j(y_j)
    sum:  up_p(y_p) += T log sum_{y_c: y_p} exp((scores_c(y_c) + sum_{children j} up_j(y_j)) / T)

On the way back from the roots, max-product decodes each factor's children given its parent's state. Sum-product
multiplies the parent's marginal by the conditional of the children given the parent, which the way up has left in
the factor's table:

    mu_c(y_c) = mu_p(y_p) exp(...) / sum exp(...),      mu_j(y_j) = sum_{y_c: y_j} mu_c(y_c)

No message is ever divided out, so forbidden states (-inf) cause no NaN, and low temperatures no cancellation: every
exponent is a difference to the largest one with the same y_p, hence at most 0.

The order of factors is a property of a structure, computed once; examples walk it over their own scores.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from maxmargin.errors import DataError
from maxmargin.inference.contract import (
    MapResult,
    Marginals,
    check_scores,
    check_temperature,
    exact_result,
    once_per_structures,
    raise_infeasible,
)
from maxmargin.problems.factor_graphs import FactorGraphs, Scores
from maxmargin.problems.templates import Structure


class Schedule(NamedTuple):
    """Order of all structures' factors, from the leaves to the roots; the same offsets as the factors themselves."""

    #: Local number of the factor that sends next, and the slot of its parent in its scope.
    factor: NDArray[np.int32]
    slot: NDArray[np.int32]
    #: Roots of structure s: root[root_start[s]:root_start[s + 1]].
    root_start: NDArray[np.int64]
    root: NDArray[np.int32]


class Trees:
    """Message passing from the leaves to the roots and back; exact on forests."""

    name = "trees"
    exact = True

    def refusal(self, graphs: FactorGraphs) -> str | None:
        """Name the first example whose graph has a cycle, if there is one."""
        if graphs.is_forest:
            return None
        # The batch may be a subset that uses only some of its structures.
        cyclic = np.flatnonzero(~_forests(graphs)[graphs.arrays.structure])
        if len(cyclic) == 0:
            return None
        return f"The trees engine needs graphs without cycles, but the graph of example {cyclic[0]} has a cycle."

    def maximise(self, graphs: FactorGraphs, scores: Scores) -> MapResult:
        """Find the best labeling of every example by max-product."""
        scores = self._check(graphs, scores)
        labels = np.empty(len(graphs.labels), np.int32)
        failed = _max_product(graphs.arrays, _schedule(graphs), scores.variables, scores.factors, labels)
        if failed >= 0:
            raise_infeasible(graphs, scores, failed)
        return exact_result(graphs, scores, labels)

    def marginals(self, graphs: FactorGraphs, scores: Scores, temperature: float = 1.0) -> Marginals:
        """Compute all marginals by sum-product at the given temperature."""
        temperature = check_temperature(temperature)
        scores = self._check(graphs, scores)
        out = Marginals(np.empty(len(scores.variables)), np.empty(len(scores.factors)), np.empty(graphs.n_examples))
        failed = _sum_product(graphs.arrays, _schedule(graphs), scores.variables, scores.factors, temperature, *out)
        if failed >= 0:
            raise_infeasible(graphs, scores, failed)
        return out

    def _check(self, graphs: FactorGraphs, scores: Scores) -> Scores:
        refusal = self.refusal(graphs)
        if refusal is not None:
            raise DataError(refusal)
        return check_scores(graphs, scores)


@once_per_structures
def _forests(graphs: FactorGraphs) -> NDArray[np.bool_]:
    return np.array([structure.is_forest() for structure in graphs.structures], bool)


@once_per_structures
def _schedule(graphs: FactorGraphs) -> Schedule:
    factors: list[int] = []
    slots: list[int] = []
    roots: list[int] = []
    root_start = [0]
    for structure in graphs.structures:
        of_structure = _walk(structure)
        factors += of_structure[0]
        slots += of_structure[1]
        roots += of_structure[2]
        root_start.append(len(roots))
    return Schedule(
        np.array(factors, np.int32),
        np.array(slots, np.int32),
        np.array(root_start, np.int64),
        np.array(roots, np.int32),
    )


def _walk(structure: Structure) -> tuple[list[int], list[int], list[int]]:
    """Factors from the leaves to the roots, the slots of their parents, and the roots.

    A structure with cycles is walked too, so that offsets stay those of its factors; `Trees.refusal` keeps it from use.
    """
    incident: list[list[tuple[int, int]]] = [[] for _ in structure.variable_templates]
    for c, scope in enumerate(structure.scopes):
        for slot, v in enumerate(scope):
            incident[v].append((c, slot))
    seen = [False] * len(incident)
    sent = [False] * len(structure.scopes)
    order: list[tuple[int, int]] = []
    roots = []
    for root in range(len(incident) - 1, -1, -1):
        if seen[root]:
            continue
        seen[root] = True
        roots.append(root)
        waiting = [root]
        for v in waiting:
            for c, slot in incident[v]:
                if not sent[c]:
                    sent[c] = True
                    order.append((c, slot))
                    waiting += [u for u in structure.scopes[c] if not seen[u]]
                    for u in structure.scopes[c]:
                        seen[u] = True
    order.reverse()
    return [c for c, _ in order], [slot for _, slot in order], roots


# ------------------------------------------------------------------------------------------------------- kernels


@njit(cache=True, nogil=True)
def _max_product(g: Any, schedule: Any, v_scores: Any, f_scores: Any, labels: Any) -> int:
    """Best labeling of every example; the first example that has none, or -1."""
    up, heard = np.empty(g.largest[0]), np.empty(g.largest[0])
    for m in range(len(g.structure)):
        s = g.structure[m]
        v0, f0, f1 = g.local_variables[s], g.local_factors[s], g.local_factors[s + 1]
        first = g.variables[m]
        for i in range(g.states[m + 1] - g.states[m]):
            up[i] = v_scores[g.states[m] + i]

        for q in range(f0, f1):
            c, slot = schedule.factor[q], schedule.slot[q]
            t = g.f_template[f0 + c]
            shape, scope = g.ft_shape_start[t], g.f_scope[f0 + c]
            size = g.ft_start[t + 1] - g.ft_start[t]
            at = g.tables[m] + g.f_table[f0 + c]
            table = f_scores[at : at + size]
            n = g.ft_shape[shape + slot]
            at = g.v_state[v0 + g.scope[scope + slot]]
            parent = up[at : at + n]
            if g.ft_arity[t] == 2:
                n_child = g.ft_shape[shape + 1 - slot]
                at = g.v_state[v0 + g.scope[scope + 1 - slot]]
                child = up[at : at + n_child]
                if slot == 1:
                    _max_rows(table, child, heard[:n])
                    for k in range(n):
                        parent[k] += heard[k]
                else:
                    for k in range(n):
                        parent[k] += _max_along(table[k * n_child : k * n_child + n_child], child)
            else:
                arity, digit = g.ft_arity[t], g.ft_digit_start[t]
                for k in range(n):
                    heard[k] = -np.inf
                for y in range(size):
                    value = table[y]
                    for j in range(arity):
                        if j != slot:
                            value += up[g.v_state[v0 + g.scope[scope + j]] + g.ft_digit[digit + j]]
                    k = g.ft_digit[digit + slot]
                    if value > heard[k]:
                        heard[k] = value
                    digit += arity
                for k in range(n):
                    parent[k] += heard[k]

        for r in range(schedule.root_start[s], schedule.root_start[s + 1]):
            v = schedule.root[r]
            t = g.v_template[v0 + v]
            at = g.v_state[v0 + v]
            best = 0
            for k in range(1, g.vt_start[t + 1] - g.vt_start[t]):
                if up[at + k] > up[at + best]:
                    best = k
            if up[at + best] == -np.inf:
                return m
            labels[first + v] = best

        for q in range(f1 - 1, f0 - 1, -1):
            c, slot = schedule.factor[q], schedule.slot[q]
            t = g.f_template[f0 + c]
            shape, scope, arity = g.ft_shape_start[t], g.f_scope[f0 + c], g.ft_arity[t]
            at = g.tables[m] + g.f_table[f0 + c]
            chosen = labels[first + g.scope[scope + slot]]
            top = -np.inf
            best = 0
            if arity == 2:
                n_child = g.ft_shape[shape + 1 - slot]
                stride = 1 if slot == 0 else g.ft_shape[shape + 1]
                at += chosen * n_child if slot == 0 else chosen
                v = g.scope[scope + 1 - slot]
                below = g.v_state[v0 + v]
                for k in range(n_child):
                    value = f_scores[at + k * stride] + up[below + k]
                    if value > top:
                        top = value
                        best = k
                labels[first + v] = best
            elif arity > 2:
                digit = g.ft_digit_start[t]
                for y in range(g.ft_start[t + 1] - g.ft_start[t]):
                    if g.ft_digit[digit + y * arity + slot] != chosen:
                        continue
                    value = f_scores[at + y]
                    for j in range(arity):
                        if j != slot:
                            value += up[g.v_state[v0 + g.scope[scope + j]] + g.ft_digit[digit + y * arity + j]]
                    if value > top:
                        top = value
                        best = y
                for j in range(arity):
                    if j != slot:
                        labels[first + g.scope[scope + j]] = g.ft_digit[digit + best * arity + j]
    return -1


@njit(cache=True, nogil=True)
def _max_rows(table: Any, child: Any, out: Any) -> None:
    """out[k] = max_i table[i, k] + child[i]; the inner loop is along rows, where it compiles to vector instructions."""
    n = len(out)
    for k in range(n):
        out[k] = -np.inf
    for i in range(len(child)):
        row = table[i * n : i * n + n]
        add = child[i]
        for k in range(n):
            value = row[k] + add
            out[k] = value if value > out[k] else out[k]


@njit(cache=True, nogil=True)
def _max_along(row: Any, child: Any) -> float:
    """max_k row[k] + child[k]; four running maxima, since one would wait for itself at every step."""
    n = len(row)
    a = b = c = d = -np.inf
    for k in range(0, n - 3, 4):
        a = max(a, row[k] + child[k])
        b = max(b, row[k + 1] + child[k + 1])
        c = max(c, row[k + 2] + child[k + 2])
        d = max(d, row[k + 3] + child[k + 3])
    for k in range(n - n % 4, n):
        a = max(a, row[k] + child[k])
    return max(max(a, b), max(c, d))


@njit(cache=True, nogil=True)
def _sum_product(
    g: Any, schedule: Any, v_scores: Any, f_scores: Any, temperature: float, out_v: Any, out_f: Any, log_partition: Any
) -> int:
    """Marginals of every example; the first example that has no allowed labeling, or -1."""
    up, most, total = np.empty(g.largest[0]), np.empty(g.largest[0]), np.empty(g.largest[2])
    for m in range(len(g.structure)):
        s = g.structure[m]
        v0, f0, f1 = g.local_variables[s], g.local_factors[s], g.local_factors[s + 1]
        for i in range(g.states[m + 1] - g.states[m]):
            up[i] = v_scores[g.states[m] + i]
            out_v[g.states[m] + i] = 0.0

        for q in range(f0, f1):
            c, slot = schedule.factor[q], schedule.slot[q]
            t = g.f_template[f0 + c]
            at, size = g.tables[m] + g.f_table[f0 + c], g.ft_start[t + 1] - g.ft_start[t]
            # The table seen from its parent: (outer, n, inner).
            shape, arity = g.ft_shape_start[t], g.ft_arity[t]
            n, inner = g.ft_shape[shape + slot], _stride(g.ft_shape, shape + slot, shape + arity)
            below = out_f[at : at + size]
            for y in range(size):
                below[y] = f_scores[at + y]
            for j in range(arity):
                if j != slot:
                    first, n_child = g.v_state[v0 + g.scope[g.f_scope[f0 + c] + j]], g.ft_shape[shape + j]
                    _add_to_middle(up[first : first + n_child], _stride(g.ft_shape, shape + j, shape + arity), below)
            sums = total[g.f_message[f0 + c] : g.f_message[f0 + c] + n]
            _exponentiate(below, n, inner, temperature, most, sums)
            first = g.v_state[v0 + g.scope[g.f_scope[f0 + c] + slot]]
            for k in range(n):
                up[first + k] += most[k]
                if sums[k] > 1.0:
                    up[first + k] += temperature * np.log(sums[k])

        log_partition[m] = 0.0
        for r in range(schedule.root_start[s], schedule.root_start[s + 1]):
            v = v0 + schedule.root[r]
            t = g.v_template[v]
            first, last = g.v_state[v], g.v_state[v] + g.vt_start[t + 1] - g.vt_start[t]
            top = -np.inf
            for i in range(first, last):
                top = max(top, up[i])
            if top == -np.inf:
                return m
            mass = 0.0
            for i in range(first, last):
                out_v[g.states[m] + i] = np.exp((up[i] - top) / temperature)
                mass += out_v[g.states[m] + i]
            for i in range(first, last):
                out_v[g.states[m] + i] /= mass
            log_partition[m] += top + temperature * np.log(mass)

        for q in range(f1 - 1, f0 - 1, -1):
            c, slot = schedule.factor[q], schedule.slot[q]
            t = g.f_template[f0 + c]
            scope = g.f_scope[f0 + c]
            at, size = g.tables[m] + g.f_table[f0 + c], g.ft_start[t + 1] - g.ft_start[t]
            shape, arity = g.ft_shape_start[t], g.ft_arity[t]
            n, inner = g.ft_shape[shape + slot], _stride(g.ft_shape, shape + slot, shape + arity)
            above = g.states[m] + g.v_state[v0 + g.scope[scope + slot]]
            table = out_f[at : at + size]
            for k in range(n):
                sent = total[g.f_message[f0 + c] + k]
                most[k] = out_v[above + k] / sent if sent > 0.0 else 0.0
            for start in range(0, size, n * inner):
                for k in range(n):
                    for i in range(start + k * inner, start + k * inner + inner):
                        table[i] *= most[k]
            for j in range(arity):
                if j != slot:
                    first = g.states[m] + g.v_state[v0 + g.scope[scope + j]]
                    n_child, stride = g.ft_shape[shape + j], _stride(g.ft_shape, shape + j, shape + arity)
                    _add_margin(table, n_child, stride, out_v[first : first + n_child])
    return -1


@njit(cache=True, nogil=True)
def _stride(shapes: Any, slot: int, end: int) -> int:
    """How far apart neighbouring states of a slot lie in a table whose shape ends at ``end``."""
    stride = 1
    for j in range(slot + 1, end):
        stride *= shapes[j]
    return stride


@njit(cache=True, nogil=True)
def _add_to_middle(values: Any, inner: int, table: Any) -> None:
    """table[o, k, i] += values[k]."""
    n = len(values)
    for start in range(0, len(table), n * inner):
        if inner == 1:
            row = table[start : start + n]
            for k in range(n):
                row[k] += values[k]
        else:
            for k in range(n):
                row = table[start + k * inner : start + k * inner + inner]
                add = values[k]
                for i in range(inner):
                    row[i] += add


@njit(cache=True, nogil=True)
def _exponentiate(table: Any, n: int, inner: int, temperature: float, most: Any, sums: Any) -> None:
    """Turn table into exp((table - most) / T); most and sums run over all but the middle of (outer, n, inner)."""
    for k in range(n):
        most[k] = -np.inf
        sums[k] = 0.0
    for start in range(0, len(table), n * inner):
        for k in range(n):
            for i in range(start + k * inner, start + k * inner + inner):
                most[k] = table[i] if table[i] > most[k] else most[k]
    for start in range(0, len(table), n * inner):
        for k in range(n):
            top = most[k]
            total = sums[k]
            for i in range(start + k * inner, start + k * inner + inner):
                # Where all is forbidden, -inf - -inf would be NaN.
                table[i] = np.exp((table[i] - top) / temperature) if table[i] > -np.inf else 0.0
                total += table[i]
            sums[k] = total


@njit(cache=True, nogil=True)
def _add_margin(table: Any, n: int, inner: int, out: Any) -> None:
    """out[k] += sum over all but the middle axis of (outer, n, inner)."""
    for start in range(0, len(table), n * inner):
        for k in range(n):
            total = 0.0
            for i in range(start + k * inner, start + k * inner + inner):
                total += table[i]
            out[k] += total

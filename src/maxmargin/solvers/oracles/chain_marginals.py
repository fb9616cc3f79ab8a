"""Forward-backward on chains whose factors have the same scores everywhere: the fast path of the exp-oracle.

exp_oracle.py states the recursions: the plain one, in which no product underflows, and the relative one for low temperatures.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from maxmargin.jit import inner, kernel
from maxmargin.problems.factor_graphs import FactorGraphs
from maxmargin.problems.statistics import project
from maxmargin.solvers.oracles.expectations import add_scaled, add_side

#: Least number that products of scaled probabilities are made of: three of them, and a division, stay far from underflow.
LEAST = 1e-60
#: Minus the logarithm of a share that is lost in rounding, many times over.
_NEGLIGIBLE = 45.0


class Chain(NamedTuple):
    """What all factors of a batch of chains share: the template between neighbours, and the feature row."""

    pair: int
    row: int
    #: Whether the states of every variable have consecutive blocks and no fixed scores.
    plain: bool


def chain_of(graphs: FactorGraphs) -> Chain | None:
    """Whether every example is a chain from its first variable to its last, with the same scores for the same factors."""
    a = graphs.arrays
    if len(a.factor_scores) or len(a.factor_groups) == 0:
        return None
    # All factors of all examples read one feature row.
    used = np.flatnonzero(np.diff(a.structures.factors)[graphs.structure_of])
    if len(used) == 0 or np.ptp(a.factor_groups.row) or np.ptp(a.examples[used].factor_row):
        return None
    arity = a.factor_kinds[a.factors.template].arity
    kinds = np.unique(a.factors[arity == 2].template)
    n_states = np.unique(a.variable_kinds[np.unique(a.variables.template)].entries)
    if len(kinds) != 1 or len(n_states) != 1 or arity.max() > 2 or arity.min() < 1:
        return None
    for s in range(len(a.structures) - 1):
        c = np.arange(a.structures[s].factors, a.structures[s + 1].factors)
        pairs = c[arity[c] == 2]
        first = a.scope[a.factors[pairs].neighbours]
        n = a.structures[s + 1].variables - a.structures[s].variables
        if (
            len(pairs) != n - 1
            or (np.sort(first) != np.arange(n - 1)).any()
            or (a.scope[a.factors[pairs].neighbours + 1] != first + 1).any()
        ):
            return None
    plain = len(a.variable_scores) == 0 and all(
        template.blocks[0] >= 0 and (np.diff(template.blocks) == 1).all() and not template.scores.any()
        for template in graphs.variable_templates
    )
    return Chain(int(kinds[0]), int(a.examples[used[0]].factor_row + a.factor_groups[0].row), plain)


@kernel
def add_chain_marginals(
    batch: Any, w_v: Any, pair: int, plain: bool, scores: Any, temperature: float, chosen: Any, out_v: Any, counts: Any,
    values: Any,
) -> float:  # fmt: skip
    """Add weight_m E psi_m of the variables of chains to out_v, and expected minus true factors by template to counts.

    `scores` are those of all factor templates, in the order of their blocks; `plain` is `Chain`'s. Returns the sum of weight_m
    E ell_m without the factors' part.
    """
    g = batch.graphs
    examples, structures, v_groups, weight = g.examples, g.structures, g.variable_groups, g.weight
    variables, factors, scope, kinds, truth, losses = (
        g.variables, g.factors, g.scope, g.factor_kinds, g.labels, g.losses,
    )  # fmt: skip
    v_kinds, v_block, v_fixed, v_scores = g.variable_kinds, g.variable_block, g.variable_fixed, g.variable_scores
    largest = g.largest
    n_states = v_kinds[variables[0].template].entries
    at_pair = kinds[pair].start
    transitions = scores[at_pair : at_pair + n_states * n_states].copy().reshape((n_states, n_states))
    turned = transitions.T.copy()
    safe, top_pair, rising, falling = _exponentials(transitions, temperature)
    length = largest.variables
    z, change = np.empty(largest.buffer), np.zeros(largest.buffer)
    theta, emit = np.empty((length, n_states)), np.empty((length, n_states))
    a, q, b, norm = np.empty((length, n_states)), np.empty((length, n_states)), np.empty(n_states), np.empty(length)
    together = np.zeros((n_states, n_states))
    ahead, kept, share_of = np.empty((length, n_states)), np.empty(0, np.int32), np.empty(0)
    ends = np.empty(length + 1, np.int64)
    sum_of_ell = 0.0
    for k in range(len(chosen)):
        m = chosen[k]
        s, first, share = examples[m].structure, examples[m].variables, weight[m]
        n, v0, states = examples[m + 1].variables - first, structures[s].variables, examples[m].states
        q0, q1 = structures[s].variable_groups, structures[s + 1].variable_groups
        c0, c1 = structures[s].factors, structures[s + 1].factors
        project(batch.variables, m, s, w_v, z)
        for group in range(q0, q1):
            place = v_groups[group].at - v_groups[group].block
            for t in range(v_groups[group].first, v_groups[group].last):
                here = theta[t]
                here[:] = losses[states + t * n_states : states + (t + 1) * n_states]
                start = v_kinds[variables[v0 + t].template].start
                if plain:
                    add_scaled(here, z[place + v_block[start] : place + v_block[start] + n_states], 1.0)
                    continue
                for y in range(n_states):
                    block = v_block[start + y]
                    here[y] += v_fixed[start + y] + (z[place + block] if block >= 0 else 0.0)
                if len(v_scores) > 0:
                    add_scaled(here, v_scores[states + t * n_states : states + (t + 1) * n_states], 1.0)
        value = 0.0
        for c in range(c0, c1):
            kind, t = factors[c].template, scope[factors[c].neighbours]
            if kind != pair:
                for y in range(n_states):
                    theta[t, y] += scores[kinds[kind].start + y]
            else:
                value -= scores[at_pair + truth[first + t] * n_states + truth[first + t + 1]]
        for t in range(n):
            value -= theta[t, truth[first + t]]
        log_partition = _forward(n, theta, temperature, rising, emit, a, norm) if safe else np.nan
        if np.isnan(log_partition) or not _backward(n, falling, emit, a, norm, q, b):
            if len(kept) == 0:
                # At most every transition of the longest chain is kept.
                kept, share_of = np.empty(length * n_states**2, np.int32), np.empty(length * n_states**2)
            log_partition = relative_forward(
                n, theta, temperature, transitions, turned, ahead, a, norm, kept, share_of, ends
            )  # fmt: skip
            relative_backward(n, a, norm, kept, share_of, ends, emit, b, share, counts[at_pair : at_pair + n_states**2])
            values[m] = value + log_partition
        else:
            values[m] = value + log_partition + (n - 1) * top_pair
            for t in range(1, n):
                _add_outer(together, a[t - 1], q[t], share)
        for t in range(1, n):
            counts[at_pair + truth[first + t - 1] * n_states + truth[first + t]] -= share
        # From here on emit holds the marginals minus the truth.
        ell = 0.0
        for group in range(q0, q1):
            place = v_groups[group].at - v_groups[group].block
            for t in range(v_groups[group].first, v_groups[group].last):
                start, moved = v_kinds[variables[v0 + t].template].start, emit[t]
                moved[truth[first + t]] -= 1.0
                ell += _expected(moved, losses, states + t * n_states)
                if plain:
                    add_scaled(change[place + v_block[start] : place + v_block[start] + n_states], moved, -1.0)
                    continue
                ell += _expected(moved, v_fixed, start)
                if len(v_scores) > 0:
                    ell += _expected(moved, v_scores, states + t * n_states)
                for y in range(n_states):
                    if v_block[start + y] >= 0:
                        change[place + v_block[start + y]] -= moved[y]
        sum_of_ell += share * ell
        add_side(batch.variables, m, s, out_v, change, share)
        change[: v_groups[q1 - 1].at + v_groups[q1 - 1].block_end - v_groups[q1 - 1].block] = 0.0
        for c in range(c0, c1):
            kind, t = factors[c].template, scope[factors[c].neighbours]
            if kind != pair:
                for y in range(n_states):
                    counts[kinds[kind].start + y] += share * emit[t, y]
    for i in range(n_states):
        for j in range(n_states):
            counts[at_pair + i * n_states + j] += rising[i, j] * together[i, j]
    return sum_of_ell


@inner
def _exponentials(table: Any, temperature: float) -> Any:
    """Whether no transition is too small beside the largest; that, their exponentials, and those transposed."""
    n = len(table)
    top = -np.inf
    for i in range(n):
        for j in range(n):
            top = max(top, table[i, j])
    rising, falling = np.zeros((n, n)), np.zeros((n, n))
    safe = True
    for i in range(n):
        for j in range(n):
            if table[i, j] > -np.inf:
                rising[i, j] = np.exp((table[i, j] - top) / temperature)
                falling[j, i] = rising[i, j]
                # Not true of NaN either.
                safe = safe and rising[i, j] >= LEAST
    return safe, top, rising, falling


@inner
def _forward(n: int, theta: Any, temperature: float, rising: Any, emit: Any, a: Any, norm: Any) -> float:
    """Fill emit, a and norm; returns the log partition function but for the transitions' largest score, or NaN."""
    n_states = theta.shape[1]
    log_partition = 0.0
    for t in range(n):
        scores, e, here = theta[t], emit[t], a[t]
        top = -np.inf
        for y in range(n_states):
            top = max(top, scores[y])
        least = 1.0
        for y in range(n_states):
            e[y] = np.exp((scores[y] - top) / temperature)
            least = min(least, e[y] if scores[y] > -np.inf else 1.0)
        # Not true of NaN either.
        if not least >= LEAST:
            return np.nan
        if t == 0:
            for y in range(n_states):
                here[y] = e[y]
        else:
            _multiply(a[t - 1], rising, here)
            for y in range(n_states):
                here[y] *= e[y]
        mass = 0.0
        for y in range(n_states):
            mass += here[y]
        if not mass > 0.0:
            return np.nan
        for y in range(n_states):
            here[y] /= mass
            if 0.0 < here[y] < LEAST:
                return np.nan
        norm[t] = mass
        log_partition += top + temperature * np.log(mass)
    return log_partition


@inner
def _backward(n: int, falling: Any, emit: Any, a: Any, norm: Any, q: Any, b: Any) -> bool:
    """Fill q, and the marginals into emit; False if a number is too small."""
    n_states = emit.shape[1]
    for y in range(n_states):
        b[y] = 1.0
    for t in range(n - 1, -1, -1):
        e, here, back = emit[t], a[t], q[t]
        for y in range(n_states):
            # What cannot be reached does not send, or it would grow without bound.
            if here[y] == 0.0:
                b[y] = 0.0
            if 0.0 < b[y] < LEAST:
                return False
            back[y] = e[y] * b[y] / norm[t]
            e[y] = here[y] * b[y]
        if t > 0:
            _multiply(back, falling, b)
    return True


@inner
def relative_forward(
    n: int, theta: Any, temperature: float, transitions: Any, turned: Any, ahead: Any, a: Any, norm: Any, kept: Any,
    share_of: Any, ends: Any,
) -> float:  # fmt: skip
    """Fill a and norm, relative to the best way to go on, and the x that are kept; returns the log partition function.

    `ahead` holds h_t plus the scores of t. Transition i * K + j into position t is kept[e] for an e in ends[t]:ends[t + 1], and
    its x is share_of[e].
    """
    n_states = theta.shape[1]
    for t in range(n - 1, -1, -1):
        here = ahead[t]
        here[:] = 0.0
        if t < n - 1:
            here[:] = -np.inf
            for j in range(n_states):
                row, score = turned[j], ahead[t + 1, j]
                for i in range(n_states):
                    here[i] = max(here[i], row[i] + score)
        for i in range(n_states):
            here[i] += theta[t, i]
    best = -np.inf
    for i in range(n_states):
        best = max(best, ahead[0, i])
    size, log_partition = 0, best
    for t in range(n):
        here = a[t]
        least = -_NEGLIGIBLE - (n - t) * np.log(n_states)
        ends[t] = size
        if t == 0:
            for i in range(n_states):
                here[i] = np.exp((ahead[0, i] - best) / temperature)
        else:
            here[:] = 0.0
            rare = np.exp(least)
            for i in range(n_states):
                if a[t - 1, i] <= rare:
                    continue
                row, score = transitions[i], ahead[t]
                # h_{t-1}(i), with the sum that it is the largest of, so that one x is 1.
                behind = ahead[t - 1, i] - theta[t - 1, i]
                floor = behind + least * temperature
                for j in range(n_states):
                    if row[j] + score[j] > floor:
                        x = np.exp((row[j] + score[j] - behind) / temperature)
                        kept[size], share_of[size] = i * n_states + j, x
                        here[j] += a[t - 1, i] * x
                        size += 1
        mass = 0.0
        for i in range(n_states):
            mass += here[i]
        norm[t] = mass
        for i in range(n_states):
            here[i] /= mass
        log_partition += temperature * np.log(mass)
    ends[n] = size
    return log_partition


@inner
def relative_backward(
    n: int, a: Any, norm: Any, kept: Any, share_of: Any, ends: Any, emit: Any, b: Any, weight: float, counts: Any
) -> None:
    """Marginals into emit, and weight times those of the transitions to counts."""
    n_states = emit.shape[1]
    for i in range(n_states):
        b[i] = 1.0
    for t in range(n - 1, -1, -1):
        for i in range(n_states):
            emit[t, i] = a[t, i] * b[i]
        if t == 0:
            break
        back = emit[t - 1]
        back[:] = 0.0
        for e in range(ends[t], ends[t + 1]):
            i, j = kept[e] // n_states, kept[e] % n_states
            ways = share_of[e] * b[j] / norm[t]
            counts[kept[e]] += weight * a[t - 1, i] * ways
            back[i] += ways
        b[:] = back


@inner
def _expected(moved: Any, scores: Any, at: int) -> float:
    """Sum of moved[y] scores[at + y]; a forbidden state does not move, and -inf times 0 would be NaN."""
    total = 0.0
    for y in range(len(moved)):
        if moved[y] != 0.0:
            total += moved[y] * scores[at + y]
    return total


@inner
def _multiply(vector: Any, matrix: Any, out: Any) -> None:
    """out[j] = sum_i vector[i] matrix[i, j], two rows at a time; the inner loop compiles to vector instructions."""
    n = len(vector)
    for j in range(n):
        out[j] = 0.0
    for i in range(0, n - 1, 2):
        one, two, x, y = matrix[i], matrix[i + 1], vector[i], vector[i + 1]
        for j in range(n):
            out[j] += x * one[j] + y * two[j]
    if n % 2:
        last, x = matrix[n - 1], vector[n - 1]
        for j in range(n):
            out[j] += x * last[j]


@inner
def _add_outer(matrix: Any, left: Any, right: Any, scale: float) -> None:
    """Matrix += scale * left right^T."""
    for i in range(len(left)):
        add_scaled(matrix[i], right, scale * left[i])

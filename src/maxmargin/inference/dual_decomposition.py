"""Dual decomposition by sequential reweighted message passing (TRW-S, SRMP): bounds on the best score, and labelings.

Variables and factors lend scores to each other. With lam_ci(k) what variable i has given to factor c,

    bound(lam) = sum_i max_k b_i(k) + sum_c max_y [theta_c(y) + sum_{i in c} lam_ci(y_i)]
    b_i(k)     = theta_i(k) - sum_{c: i in c} lam_ci(k)

is at least the score of every labeling, whatever lam is, since the lam cancel. At the best lam it is the value of the
linear program over the local marginal polytope. If the score of a labeling meets the bound, the labeling is the best.

*Sweeps* (sequential reweighted message passing: Kolmogorov, "Convergent tree-reweighted message passing for energy
minimization", PAMI 2006, for pairs; "A new look at reweighted message passing", PAMI 2015, for any arity). Variables are
visited in order. Variable i takes all it can get from the factors that have earlier variables, and shares what it has
among those that have later ones:

    n_c(k)  = max_{y_c: y_i = k} theta_c(y_c) + sum_{j in c, j != i} lam_cj(y_j)                what c has for state k
    b_i    <- theta_i + sum_{c with earlier} n_c - sum_{other c} lam_ci
    lam_ci <- -n_c  if c has earlier variables, then  + (b_i - max b_i) / max(#earlier, #later)  if it has later ones

Then the order is reversed. Neither step raises the bound: taking n_c from a factor leaves it a maximum of 0, and a
maximum of a sum is at most the sum of maxima. So after a sweep every factor has the maximum 0, and the bound is the sum
of max b_i at the visits. On a forest one round is exact. Structured factors take part like tables: n_c is a max-marginal
of theirs.

*Labels* are given in order after each round: the best state given the labels before it and the messages from behind. The
best labeling met is improved by single changes; with structured factors, also by relabelling their scopes with their
own oracles.

*Smoothing.* Coordinate descent on a bound with corners may stall above the optimum, mostly where factors have many joint
states. When sweeps are slow, a few rounds minimise the smooth bound in which every max is T log sum exp(. / T), all
messages of one variable at a time:

    lam_ci <- -n_c + b_i / (1 + degree of i),      b_i = theta_i + sum_c n_c,      n_c with T log sum exp for max

and the sweeps go on from there. T begins at twice the gap between bound and labeling over the sum of the logarithms of
all numbers of (joint) states, and is halved for every stage, for as long as a stage lowers the bound noticeably.

*Forbidden states.* A state for which some factor has nothing but -inf is in no allowed labeling, so it is forbidden from
then on, in the variable and in all its factors (lam = -inf), and no difference of infinities arises. If all states of a
variable become forbidden, the example is infeasible; one may be so without being found out.

Why these steps
---------------
Measured on one core, time until the bound is within 0.1 % of the linear program's, for sweeps and for the update that
takes from and gives to all factors at once (stars, as in max-product linear programming):

| problem | sweeps | stars | HiGHS, interior point |
|---|---|---|---|
| 30 x 30 grid, Potts, 5 states, positive / mixed strengths | 2 / 7 ms | 23 / 39 ms | 1.4 s |
| 30 x 30 grid, Potts, 21 states, positive / mixed strengths | 6 / 5 ms | 35 / 44 ms | - |
| complete graph of 30 binary labels | 1.4 ms | 6 ms | 30 ms |

and the final distance to the linear program where both stall:

| problem | sweeps | stars | with smoothing | HiGHS, interior point |
|---|---|---|---|---|
| 60 variables of 3 states, 80 random triples | 3.1 % (6 ms) | 2.6 % | 0.35 % (19 ms) | 40 ms |
| 80 variables of 21 states, 200 random pair tables | 1.3 % (22 ms) | 1.0 % | 0.23 % (63 ms) | 3.5 s |

A factor that gives each of its n variables an n-th of its max-marginals at once is cheaper for structured factors, but
news then spreads an n-th at a time: with a budget over a 12 x 12 grid it was 8 % above the optimum after 200 rounds,
where sweeps had proved the optimum in 50. The price is a max-marginal a visit, O(n^2 log n) a sweep for a budget.

Complexity
----------
A round costs two passes over each table and variable of its scope. Tables are read where they are; memory is a few
numbers per state and message of the largest example, and, with smoothing, a copy of its tables.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.errors import OptionError
from maxmargin.inference.contract import MapResult, Marginals, check_numbers, once_per_structures, raise_infeasible
from maxmargin.inference.rounding import improve
from maxmargin.jit import Struct, inner, kernel
from maxmargin.problems.factor_graphs import FactorGraphs, Scores
from maxmargin.problems.layout import joint_state
from maxmargin.problems.structured import structured_max, structured_max_marginals, structured_score, work_size
from maxmargin.problems.tables import slot_add, slot_max, slot_scale, slot_sum
from maxmargin.problems.templates import TABLE

# `rows` of Plan, a row per (variable, factor) in the order of the layout's `incident`: what the factor is to the
# variable, whether its scope has earlier and later variables; of a pair, the other variable, its number of states, its
# message and its stride.
R_KIND, R_EARLIER, R_LATER, R_OTHER, R_OTHER_STATES, R_OTHER_DELTA, R_OTHER_STRIDE = range(7)
SINGLE, PAIR, WIDE, STRUCTURED = range(4)

#: A bound this close to the score of a labeling, relative to the scores, proves that it is the best one.
CERTIFIED = 1e-9
#: Sweeps are slow, and smoothing is tried, when a round closes less than this part of the gap between bound and score.
SLOW = 1e-2
#: A gap, or the gain of a stage of smoothing, below this, relative to the bound, is not worth another stage.
WORTHWHILE = 1e-4
#: Rounds in a stage of smoothing.
SOFT_ROUNDS = 10
#: Best states this close to each other, relative to the scores, are ties.
TIED = 1e-6


class Plan(Struct):
    """What sweeps need to know of the structures."""

    rows: NDArray[np.int64]
    #: For each variable, the part of its belief that each factor it sends to gets.
    share: NDArray[np.float64]
    #: First structured factor of each structure in `structured`, and the factors, numbered inside their structure.
    first_structured: NDArray[np.int64]
    structured: NDArray[np.int64]


class DualDecomposition:
    """Sweeps of sequential reweighted message passing; any numbers of states, factors of any arity, structured factors.

    Parameters
    ----------
    max_rounds : int
        Most rounds; in each, every variable is visited twice, forwards and backwards.
    tol : float
        Rounds end when one lowers the bound by less than this, relative to the bound or the largest score.
    smoothing : int
        Most stages of smoothing, at falling temperatures, on examples whose bound is not met; 0 for none.
    """

    name = "dual_decomposition"
    exact = False

    def __init__(self, max_rounds: int = 200, tol: float = 1e-6, smoothing: int = 6) -> None:
        for name, value, least in (("max_rounds", max_rounds, 1), ("smoothing", smoothing, 0)):
            if not _is_number(value, Integral) or value < least:
                raise OptionError(f"{name}={value!r} is not possible; it must be a whole number of at least {least}.")
        if not _is_number(tol, Real) or not 0 <= tol < np.inf:
            raise OptionError(f"tol={tol!r} is not possible; it must be a finite number of at least 0.")
        self.max_rounds = int(max_rounds)
        self.tol = float(tol)
        self.smoothing = int(smoothing)

    def refusal(self, graphs: FactorGraphs) -> str | None:
        """Return None: every batch has a bound."""
        return None

    def maximise(self, graphs: FactorGraphs, scores: Scores) -> MapResult:
        """Lower the bound, and keep the best labeling met on the way, improved by single changes.

        Where it meets the bound it is the best one, and ``bounds`` equals ``values``. A labeling that comes out
        forbidden has the value -inf; an example is infeasible only if the bound says so.
        """
        scores = check_numbers(graphs, scores)
        a, plan, room = graphs.arrays, _plan(graphs), work_size(graphs.arrays.largest)
        labels, ambiguous = np.empty(len(graphs.labels), np.int32), np.empty(len(graphs.labels), np.bool_)
        bounds, scales = np.empty(graphs.n_examples), np.empty(graphs.n_examples)
        failed = _solve(
            a, plan, room, *scores, self.max_rounds, self.tol, self.smoothing, labels, bounds, scales, ambiguous
        )
        if failed >= 0:
            raise_infeasible(graphs, scores, failed)
        if graphs.has_structured:
            _improve_structured(a, plan, room, *scores, labels)
        else:
            improve(a, scores.variables, scores.factors, labels)
        values = graphs.labeling_scores(scores, labels)
        certified = bounds - values <= CERTIFIED * scales
        ambiguous[np.repeat(certified, np.diff(graphs.example_variables))] = False
        return MapResult(labels, values, np.where(certified, values, bounds), ambiguous)

    def marginals(self, graphs: FactorGraphs, scores: Scores, temperature: float = 1.0) -> Marginals:
        """Refuse: a bound says nothing about the Gibbs distribution."""
        raise OptionError(
            'The engine "dual_decomposition" gives the best labeling and a bound, not marginals; "trees", "exhaustive" '
            'and "loopy_bp" have them.'
        )


def _is_number(value: Any, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


@once_per_structures
def _plan(graphs: FactorGraphs) -> Plan:
    a = graphs.arrays
    n_factors = np.diff(a.structures.factors)
    owner = np.repeat(np.arange(len(n_factors)), n_factors)
    kinds = a.factor_kinds[a.factors.template]
    arity, first = kinds.arity, a.factors.neighbours
    factor = np.repeat(np.arange(len(arity)), arity)
    slot = a.slots[kinds[factor].slots + np.arange(len(factor)) - first[factor]]
    is_structured = kinds.kind != TABLE
    kind = np.where(arity == 1, SINGLE, np.where(is_structured, STRUCTURED, np.where(arity == 2, PAIR, WIDE)))

    low = np.minimum.reduceat(a.scope, first) if len(first) else first
    high = np.maximum.reduceat(a.scope, first) if len(first) else first
    rows = np.zeros((len(factor), 7), np.int64)
    rows[:, R_KIND] = kind[factor]
    rows[:, R_EARLIER] = a.scope > low[factor]
    rows[:, R_LATER] = a.scope < high[factor]
    # In a pair's scope, the other variable stands one place on, or one back.
    pair = np.flatnonzero(kind[factor] == PAIR)
    other = 2 * first[factor[pair]] + 1 - pair
    rows[pair, R_OTHER] = a.scope[other]
    rows[pair, R_OTHER_STATES] = slot[other].states
    rows[pair, R_OTHER_DELTA] = a.factors[factor[pair]].delta + slot[other].delta
    rows[pair, R_OTHER_STRIDE] = slot[other].stride
    member = a.scope + a.structures[owner[factor]].variables
    rows = rows[np.argsort(member, kind="stable")]
    of_variable = np.repeat(np.arange(len(a.variables)), a.variables.degree)
    most = np.maximum(
        np.bincount(of_variable, rows[:, R_EARLIER], len(a.variables)),
        np.bincount(of_variable, rows[:, R_LATER], len(a.variables)),
    )
    chosen = np.flatnonzero(is_structured)
    return Plan(
        rows,
        1.0 / np.maximum(most, 1.0),
        np.searchsorted(chosen, a.structures.factors),
        chosen - a.structures[owner[chosen]].factors,
    )


# ------------------------------------------------------------------------------------------------------- kernels


@kernel
def _solve(
    g: Any, plan: Any, room: int, v_scores: Any, f_scores: Any, max_rounds: int, tol: float, smoothing: int,
    labels: Any, bounds: Any, scales: Any, ambiguous: Any,
) -> int:  # fmt: skip
    """Bound, its scale and best labeling met of every example; the first example whose bound is -inf, or -1."""
    examples, structures, variables, factors, scope = g.examples, g.structures, g.variables, g.factors, g.scope
    incident, v_kinds, kinds, slots, structured = (
        g.incident, g.variable_kinds, g.factor_kinds, g.slots, g.structured,
    )  # fmt: skip
    rows, share, first_structured, largest = plan.rows, plan.share, plan.first_structured, g.largest
    theta, lam, heard = np.empty(largest.states), np.empty(largest.deltas), np.empty(largest.deltas)
    belief, table, spare = np.empty(largest.states), np.empty(largest.table), np.empty(largest.states)
    soft, most = np.empty(largest.tables if smoothing > 0 else 0), np.empty(largest.deltas)
    given = np.empty(largest.states)
    unary, high = np.empty(largest.slots), np.empty(largest.slots)
    work, order, own = np.empty(room), np.empty(room, np.int64), np.empty(largest.slots, np.int32)
    trial = np.empty(largest.variables, np.int32)
    for m in range(len(examples) - 1):
        s, first, states, tables = (
            examples[m].structure, examples[m].variables, examples[m].states, examples[m].tables,
        )  # fmt: skip
        v0, f0, n = structures[s].variables, structures[s].factors, examples[m + 1].variables - first
        f1 = f0 + examples[m + 1].factors - examples[m].factors
        size, entropy = start(
            v0, n, f0, f1, states, tables, variables, v_kinds, incident, rows, factors, kinds, slots, structured,
            v_scores, f_scores, theta, lam, work, own,
        )  # fmt: skip
        c0, c1 = first_structured[s], first_structured[s + 1]
        bounds[m], best, scale = np.inf, -np.inf, size
        number, decode_at, stage, final, temperature = 0, 1, 0, smoothing == 0, 0.0
        while True:
            bound, before = np.inf, bounds[m]
            while number < max_rounds:
                last = bound
                bound = bound_round(
                    v0, n, f0, tables, variables, v_kinds, incident, rows, share, factors, kinds, slots, structured,
                    f_scores, theta, lam, heard, belief, table, unary, high, work, order, own,
                )  # fmt: skip
                if bound == -np.inf:
                    return m
                number += 1
                bounds[m], scale = min(bounds[m], bound), max(abs(bound), size)
                gap = bounds[m] - best if best > -np.inf else scale
                enough = tol * scale if final else max(tol * scale, SLOW * gap)
                done = last - bound <= enough or number == max_rounds
                # Labels are cheap unless structured factors have to be asked for every variable.
                if c0 == c1 or done or number >= decode_at:
                    decode_at = 2 * number
                    _decode(
                        v0, n, f0, tables, variables, v_kinds, incident, rows, factors, kinds, slots, scope, structured,
                        f_scores, theta, lam, belief, table, spare, unary, high, work, order, own, trial,
                    )  # fmt: skip
                    value = _score(
                        v0, n, f0, f1, states, tables, variables, factors, kinds, slots, scope, structured, v_scores,
                        f_scores, trial, work, own,
                    )  # fmt: skip
                    if value > best or best == -np.inf:
                        best = value
                        for v in range(n):
                            labels[first + v] = trial[v]
                if done or bounds[m] - best <= CERTIFIED * scale:
                    break
            if final or number == max_rounds or bounds[m] - best <= CERTIFIED * scale:
                break
            # If no allowed labeling is known, neither is the gap; the scores are on its scale.
            gap = bounds[m] - best if best > -np.inf else scale
            gained = before - bounds[m] if stage > 0 else np.inf
            if stage == smoothing or min(gap, gained) <= WORTHWHILE * scale:
                final = True
                continue
            temperature = 0.5 * temperature if stage > 0 else 2.0 * gap / entropy
            stage += 1
            _soften(f0, f1, tables, temperature, factors, kinds, f_scores, soft, most)
            for _ in range(SOFT_ROUNDS):
                for forward in (True, False):
                    _soft_sweep(
                        forward, temperature, v0, n, tables, variables, v_kinds, incident, rows, f0, factors, kinds,
                        slots, structured, f_scores, soft, most, theta, lam, heard, belief, table, spare, given, unary,
                        high, work, order, own,
                    )  # fmt: skip
        bound = _final(
            v0, n, f0, tables, TIED * size, variables, v_kinds, incident, rows, factors, kinds, slots, structured,
            f_scores, theta, lam, heard, belief, spare, table, unary, high, work, order, own, ambiguous, first,
        )  # fmt: skip
        bounds[m], scales[m] = min(bounds[m], bound), scale
    return -1


@inner
def start(
    v0: int, n: int, f0: int, f1: int, states: int, tables: int, variables: Any, v_kinds: Any, incident: Any, rows: Any,
    factors: Any, kinds: Any, slots: Any, structured: Any, v_scores: Any, f_scores: Any, theta: Any, lam: Any, work: Any,
    own: Any,
) -> tuple[float, float]:  # fmt: skip
    """Scores of the variables, with factors of one variable among them, and no messages.

    Returns the largest finite score, and 1 + the sum of the logarithms of all numbers of (joint) states.
    """
    size, entropy = 0.0, 1.0
    for v in range(v0, v0 + n):
        n_states, state, q0 = v_kinds[variables[v].template].entries, variables[v].table, variables[v].neighbours
        entropy += np.log(n_states)
        for k in range(n_states):
            theta[state + k] = v_scores[states + state + k]
        for q in range(q0, q0 + variables[v].degree):
            if rows[q, R_KIND] == SINGLE:
                t, at = factors[f0 + incident[q].factor].template, tables + incident[q].table
                for k in range(n_states):
                    if kinds[t].kind == TABLE:
                        theta[state + k] += f_scores[at + k]
                    else:
                        own[0] = k
                        theta[state + k] += structured_score(t, kinds, slots, structured, f_scores, at, own, work)
        for k in range(n_states):
            if theta[state + k] > -np.inf:
                size = max(size, abs(theta[state + k]))
        for q in range(q0, q0 + variables[v].degree):
            for k in range(n_states):
                lam[incident[q].delta + k] = 0.0 if theta[state + k] > -np.inf else -np.inf
    for c in range(f0, f1):
        at = tables + factors[c].table
        entropy += np.log(kinds[factors[c].template].entries)
        for y in range(at, at + kinds[factors[c].template].entries):
            if f_scores[y] > -np.inf:
                size = max(size, abs(f_scores[y]))
    return size, entropy


@inner
def bound_round(
    v0: int, n: int, f0: int, tables: int, variables: Any, v_kinds: Any, incident: Any, rows: Any, share: Any,
    factors: Any, kinds: Any, slots: Any, structured: Any, f_scores: Any, theta: Any, lam: Any, heard: Any, belief: Any,
    table: Any, unary: Any, high: Any, work: Any, order: Any, own: Any,
) -> Any:  # fmt: skip
    """Visit all variables forwards and backwards; the bound."""
    bound = np.inf
    for forward in (True, False):
        bound = sweep(
            forward, v0, n, tables, variables, v_kinds, incident, rows, share, f0, factors, kinds, slots, structured,
            f_scores, theta, lam, heard, belief, table, unary, high, work, order, own,
        )  # fmt: skip
        if bound == -np.inf:
            break
    return bound


@inner
def sweep(
    forward: bool, v0: int, n: int, tables: int, variables: Any, v_kinds: Any, incident: Any, rows: Any, share: Any,
    f0: int, factors: Any, kinds: Any, slots: Any, structured: Any, f_scores: Any, theta: Any, lam: Any, heard: Any,
    belief: Any, table: Any, unary: Any, high: Any, work: Any, order: Any, own: Any,
) -> Any:  # fmt: skip
    """Visit all variables in one order; the bound, since all factors end with 0 as their largest score."""
    total = 0.0
    before, after = (R_EARLIER, R_LATER) if forward else (R_LATER, R_EARLIER)
    for step in range(n):
        v = v0 + (step if forward else n - 1 - step)
        n_states, state = v_kinds[variables[v].template].entries, variables[v].table
        q0 = variables[v].neighbours
        q1 = q0 + variables[v].degree
        for k in range(n_states):
            belief[k] = theta[state + k]
        for q in range(q0, q1):
            to = incident[q].delta
            if rows[q, before]:
                _message(
                    q, n_states, tables, incident, rows, f0, factors, kinds, slots, structured, f_scores, lam, heard, table, unary,
                    high, work, order, own,
                )  # fmt: skip
                for k in range(n_states):
                    belief[k] += heard[to + k]
            else:
                for k in range(n_states):
                    if theta[state + k] > -np.inf:
                        belief[k] -= lam[to + k]
        top, dead = -np.inf, False
        for k in range(n_states):
            dead = dead or belief[k] == -np.inf
            top = max(top, belief[k])
        if top == -np.inf:
            return -np.inf
        total += top
        part = share[v]
        for q in range(q0, q1):
            to = incident[q].delta
            if rows[q, before]:
                for k in range(n_states):
                    lam[to + k] = -heard[to + k]
            if rows[q, after]:
                for k in range(n_states):
                    if belief[k] > -np.inf:
                        lam[to + k] += part * (belief[k] - top)
        if dead:
            _bury(n_states, state, q0, q1, incident, belief, theta, lam)
    return total


@inner
def _bury(n_states: int, state: int, q0: int, q1: int, incident: Any, belief: Any, theta: Any, lam: Any) -> None:
    """Forbid the states that no allowed labeling has, in the variable and in all its factors."""
    for k in range(n_states):
        if belief[k] == -np.inf:
            theta[state + k] = -np.inf
            for q in range(q0, q1):
                lam[incident[q].delta + k] = -np.inf


@inner
def _message(
    q: int, n_states: int, tables: int, incident: Any, rows: Any, f0: int, factors: Any, kinds: Any, slots: Any,
    structured: Any, f_scores: Any, lam: Any, heard: Any, table: Any, unary: Any, high: Any, work: Any, order: Any,
    own: Any,
) -> None:  # fmt: skip
    """Best score of the factor for each state of the variable, without what the variable itself has given to it."""
    to, at = incident[q].delta, tables + incident[q].table
    if rows[q, R_KIND] == PAIR:
        other, n_other = rows[q, R_OTHER_DELTA], rows[q, R_OTHER_STATES]
        if n_states == 2 and n_other == 2:
            stride = incident[q].stride
            zero, one = lam[other], lam[other + 1]
            heard[to] = max(f_scores[at] + zero, f_scores[at + 3 - stride] + one)
            heard[to + 1] = max(f_scores[at + stride] + zero, f_scores[at + 3] + one)
        elif incident[q].stride == 1:
            _max_columns(
                f_scores[at : at + n_states * n_other], lam[other : other + n_other], heard[to : to + n_states]
            )
        else:
            _max_rows(f_scores[at : at + n_states * n_other], lam[other : other + n_other], heard[to : to + n_states])
        return
    c = f0 + incident[q].factor
    t = factors[c].template
    if rows[q, R_KIND] == STRUCTURED:
        mine, own_slot = to - factors[c].delta, 0
        for j in range(kinds[t].arity):
            e = kinds[t].slots + j
            there = slots[e].delta
            if there == mine:
                own_slot = j
            for k in range(there, there + slots[e].states):
                unary[k] = 0.0 if there == mine else lam[factors[c].delta + k]
        structured_max_marginals(t, own_slot, kinds, slots, structured, unary, f_scores, at, high, work, order, own)
        for k in range(n_states):
            heard[to + k] = high[mine + k]
        return
    for y in range(kinds[t].entries):
        table[y] = f_scores[at + y]
    for j in range(kinds[t].arity):
        e = kinds[t].slots + j
        given = factors[c].delta + slots[e].delta
        if given != to:
            slot_add(table, 0, slots[e].outer, slots[e].states, slots[e].stride, lam, given, 1.0)
    slot_max(table, 0, incident[q].outer, n_states, incident[q].stride, heard, to)


@inner
def _max_columns(table: Any, given: Any, out: Any) -> None:
    """out[k] = max_i table[i, k] + given[i]; the inner loop is along rows, where it compiles to vector instructions."""
    n = len(out)
    for k in range(n):
        out[k] = -np.inf
    for i in range(len(given)):
        row = table[i * n : i * n + n]
        add = given[i]
        for k in range(n):
            value = row[k] + add
            out[k] = value if value > out[k] else out[k]


@inner
def _max_rows(table: Any, given: Any, out: Any) -> None:
    """out[k] = max_i table[k, i] + given[i]; four running maxima, since one would wait for itself at every step."""
    n = len(given)
    for k in range(len(out)):
        row = table[k * n : k * n + n]
        a = b = c = d = -np.inf
        for i in range(0, n - 3, 4):
            a = max(a, row[i] + given[i])
            b = max(b, row[i + 1] + given[i + 1])
            c = max(c, row[i + 2] + given[i + 2])
            d = max(d, row[i + 3] + given[i + 3])
        for i in range(n - n % 4, n):
            a = max(a, row[i] + given[i])
        out[k] = max(max(a, b), max(c, d))


@inner
def _soften(
    f0: int, f1: int, tables: int, temperature: float, factors: Any, kinds: Any, f_scores: Any, soft: Any, most: Any
) -> None:
    """Fill soft with exp(score / temperature) of all tables, relative to the largest of each, which most keeps."""
    for c in range(f0, f1):
        t = factors[c].template
        if kinds[t].kind == TABLE:
            at, n = factors[c].table, kinds[t].entries
            top = _largest(f_scores, tables + at, n)
            most[factors[c].delta] = top
            for y in range(at, at + n):
                soft[y] = np.exp((f_scores[tables + y] - top) / temperature) if top > -np.inf else 0.0


@inner
def _soft_sweep(
    forward: bool, temperature: float, v0: int, n: int, tables: int, variables: Any, v_kinds: Any, incident: Any,
    rows: Any, f0: int, factors: Any, kinds: Any, slots: Any, structured: Any, f_scores: Any, soft: Any, most: Any,
    theta: Any, lam: Any, heard: Any, belief: Any, table: Any, spare: Any, given: Any, unary: Any, high: Any, work: Any,
    order: Any, own: Any,
) -> None:  # fmt: skip
    """Minimise the smoothed bound over all messages of one variable, for each variable in turn."""
    for step in range(n):
        v = v0 + (step if forward else n - 1 - step)
        n_states, state = v_kinds[variables[v].template].entries, variables[v].table
        q0 = variables[v].neighbours
        q1 = q0 + variables[v].degree
        for k in range(n_states):
            belief[k] = theta[state + k]
        parts = 1.0
        for q in range(q0, q1):
            to = incident[q].delta
            if rows[q, R_EARLIER] or rows[q, R_LATER]:
                parts += 1.0
                _soft_message(
                    q, n_states, temperature, tables, incident, rows, f0, factors, kinds, slots, structured, f_scores,
                    soft, most, lam, heard, table, spare, given, unary, high, work, order, own,
                )  # fmt: skip
                for k in range(n_states):
                    belief[k] += heard[to + k]
            else:
                for k in range(n_states):
                    if theta[state + k] > -np.inf:
                        belief[k] -= lam[to + k]
        top, dead = -np.inf, False
        for k in range(n_states):
            dead = dead or belief[k] == -np.inf
            top = max(top, belief[k])
        if top == -np.inf:
            return
        for q in range(q0, q1):
            to = incident[q].delta
            if rows[q, R_EARLIER] or rows[q, R_LATER]:
                for k in range(n_states):
                    if belief[k] > -np.inf:
                        lam[to + k] = (belief[k] - top) / parts - heard[to + k]
        if dead:
            _bury(n_states, state, q0, q1, incident, belief, theta, lam)


@inner
def _soft_message(
    q: int, n_states: int, temperature: float, tables: int, incident: Any, rows: Any, f0: int, factors: Any, kinds: Any,
    slots: Any, structured: Any, f_scores: Any, soft: Any, most: Any, lam: Any, heard: Any, table: Any, sums: Any,
    given: Any, unary: Any, high: Any, work: Any, order: Any, own: Any,
) -> None:  # fmt: skip
    """As `_message`, with temperature * log sum exp(. / temperature) for the maximum.

    Tables are exponentiated once a temperature, so that a message costs exponentials of messages only. Structured
    factors, and sums that are too small for a float, are left to the maximum; bounds hold for all messages.
    """
    c = f0 + incident[q].factor
    t, to, at = factors[c].template, incident[q].delta, incident[q].table
    shift = most[factors[c].delta]
    for k in range(n_states):
        sums[k] = 0.0
    if rows[q, R_KIND] == STRUCTURED:
        pass
    elif rows[q, R_KIND] == PAIR:
        n_other = rows[q, R_OTHER_STATES]
        shift += _exponentials(lam, rows[q, R_OTHER_DELTA], n_other, temperature, given)
        pair = soft[at : at + n_states * n_other]
        if incident[q].stride == 1:
            _add_columns(pair, given[:n_other], sums[:n_states])
        else:
            _add_rows(pair, given[:n_other], sums[:n_states])
    else:
        for y in range(kinds[t].entries):
            table[y] = soft[at + y]
        for j in range(kinds[t].arity):
            e = kinds[t].slots + j
            other, n_other = factors[c].delta + slots[e].delta, slots[e].states
            if other != to:
                shift += _exponentials(lam, other, n_other, temperature, given)
                slot_scale(table, 0, slots[e].outer, n_other, slots[e].stride, given, 0)
        slot_sum(table, 0, incident[q].outer, n_states, incident[q].stride, sums, 0)
    least = np.inf
    for k in range(n_states):
        least = min(least, sums[k])
    if least < 1e-290:
        _message(
            q, n_states, tables, incident, rows, f0, factors, kinds, slots, structured, f_scores, lam, heard, table, unary,
            high, work, order, own,
        )  # fmt: skip
    for k in range(n_states):
        if sums[k] >= 1e-290:
            heard[to + k] = shift + temperature * np.log(sums[k])


@inner
def _exponentials(values: Any, at: int, n: int, temperature: float, out: Any) -> Any:
    """Fill out with exp(value / temperature), relative to the largest value, which is returned."""
    top = _largest(values, at, n)
    for k in range(n):
        out[k] = np.exp((values[at + k] - top) / temperature) if top > -np.inf else 0.0
    return top


@inner
def _add_columns(table: Any, given: Any, out: Any) -> None:
    """out[k] += sum_i table[i, k] * given[i]."""
    n = len(out)
    for i in range(len(given)):
        row = table[i * n : i * n + n]
        for k in range(n):
            out[k] += row[k] * given[i]


@inner
def _add_rows(table: Any, given: Any, out: Any) -> None:
    """out[k] += sum_i table[k, i] * given[i]."""
    n = len(given)
    for k in range(len(out)):
        row = table[k * n : k * n + n]
        a = b = c = d = 0.0
        for i in range(0, n - 3, 4):
            a += row[i] * given[i]
            b += row[i + 1] * given[i + 1]
            c += row[i + 2] * given[i + 2]
            d += row[i + 3] * given[i + 3]
        for i in range(n - n % 4, n):
            a += row[i] * given[i]
        out[k] += (a + b) + (c + d)


@inner
def _decode(
    v0: int, n: int, f0: int, tables: int, variables: Any, v_kinds: Any, incident: Any, rows: Any, factors: Any,
    kinds: Any, slots: Any, scope: Any, structured: Any, f_scores: Any, theta: Any, lam: Any, belief: Any, table: Any,
    spare: Any, unary: Any, high: Any, work: Any, order: Any, own: Any, trial: Any,
) -> None:  # fmt: skip
    """Label variables in order: the best state given the labels so far and the messages from later variables."""
    for v in range(n):
        trial[v] = -1
    for v in range(n):
        n_states, state = v_kinds[variables[v0 + v].template].entries, variables[v0 + v].table
        q0 = variables[v0 + v].neighbours
        for k in range(n_states):
            belief[k] = theta[state + k]
        for q in range(q0, q0 + variables[v0 + v].degree):
            to, at = incident[q].delta, tables + incident[q].table
            if not rows[q, R_EARLIER]:
                # The sweep backwards has left what the later variables have to say.
                for k in range(n_states):
                    if theta[state + k] > -np.inf:
                        belief[k] -= lam[to + k]
                continue
            if rows[q, R_KIND] == PAIR:
                at += trial[rows[q, R_OTHER]] * rows[q, R_OTHER_STRIDE]
                for k in range(n_states):
                    belief[k] += f_scores[at + k * incident[q].stride]
                continue
            c = f0 + incident[q].factor
            t, mine = factors[c].template, to - factors[c].delta
            slot_of = _clamped(c, v, factors, kinds, slots, scope, lam, trial, unary)
            if rows[q, R_KIND] == STRUCTURED:
                structured_max_marginals(
                    t, slot_of, kinds, slots, structured, unary, f_scores, at, high, work, order, own
                )
                for k in range(n_states):
                    belief[k] += high[mine + k]
                continue
            for y in range(kinds[t].entries):
                table[y] = f_scores[at + y]
            for j in range(kinds[t].arity):
                e = kinds[t].slots + j
                there = slots[e].delta
                if there != mine:
                    slot_add(table, 0, slots[e].outer, slots[e].states, slots[e].stride, unary, there, 1.0)
            slot_max(table, 0, incident[q].outer, n_states, incident[q].stride, spare, 0)
            for k in range(n_states):
                belief[k] += spare[k]
        best, fallback = -1, 0
        for k in range(n_states):
            if theta[state + k] == -np.inf:
                continue
            if theta[state + fallback] == -np.inf or theta[state + k] > theta[state + fallback]:
                fallback = k
            if belief[k] > -np.inf and (best < 0 or belief[k] > belief[best]):
                best = k
        trial[v] = best if best >= 0 else fallback


@inner
def _clamped(c: int, v: int, factors: Any, kinds: Any, slots: Any, scope: Any, lam: Any, trial: Any, unary: Any) -> int:
    """What all variables of a factor but v have given to it, with other states than the labels known at -inf.

    Returns the place of v in the scope.
    """
    t, place = factors[c].template, 0
    for j in range(kinds[t].arity):
        e, u = kinds[t].slots + j, scope[factors[c].neighbours + j]
        to, label = slots[e].delta, trial[u]
        if u == v:
            place = j
        for k in range(slots[e].states):
            if u == v:
                unary[to + k] = 0.0
            else:
                unary[to + k] = lam[factors[c].delta + to + k] if label < 0 or label == k else -np.inf
    return place


@inner
def _score(
    v0: int, n: int, f0: int, f1: int, states: int, tables: int, variables: Any, factors: Any, kinds: Any, slots: Any,
    scope: Any, structured: Any, v_scores: Any, f_scores: Any, trial: Any, work: Any, own: Any,
) -> Any:  # fmt: skip
    """Score of a labeling of one example."""
    total = 0.0
    for v in range(n):
        total += v_scores[states + variables[v0 + v].table + trial[v]]
    for c in range(f0, f1):
        total += _factor_score(c, tables, factors, kinds, slots, scope, structured, f_scores, trial, work, own)
    return total


@inner
def _factor_score(
    c: int, tables: int, factors: Any, kinds: Any, slots: Any, scope: Any, structured: Any, f_scores: Any, trial: Any,
    work: Any, own: Any,
) -> Any:  # fmt: skip
    """Score of one factor under a labeling of its example."""
    t, at = factors[c].template, tables + factors[c].table
    if kinds[t].kind == TABLE:
        return f_scores[at + joint_state(c, 0, factors, scope, kinds, slots, trial)]
    for j in range(kinds[t].arity):
        own[j] = trial[scope[factors[c].neighbours + j]]
    return structured_score(t, kinds, slots, structured, f_scores, at, own, work)


@inner
def _final(
    v0: int, n: int, f0: int, tables: int, tie: float, variables: Any, v_kinds: Any, incident: Any, rows: Any,
    factors: Any, kinds: Any, slots: Any, structured: Any, f_scores: Any, theta: Any, lam: Any, heard: Any, belief: Any,
    spare: Any, table: Any, unary: Any, high: Any, work: Any, order: Any, own: Any, ambiguous: Any, first: int,
) -> float:  # fmt: skip
    """The bound from its definition, and which variables have no state that is best, alone, for it and all its factors."""
    total = 0.0
    for v in range(v0, v0 + n):
        n_states, state = v_kinds[variables[v].template].entries, variables[v].table
        q0 = variables[v].neighbours
        q1 = q0 + variables[v].degree
        for k in range(n_states):
            belief[k] = theta[state + k]
        for q in range(q0, q1):
            for k in range(n_states):
                if theta[state + k] > -np.inf:
                    belief[k] -= lam[incident[q].delta + k]
        total += _largest(belief, 0, n_states)
        for k in range(n_states):
            spare[k] = belief[k]
        for q in range(q0, q1):
            to = incident[q].delta
            if rows[q, R_KIND] == SINGLE:
                continue
            _message(
                q, n_states, tables, incident, rows, f0, factors, kinds, slots, structured, f_scores, lam, heard, table, unary,
                high, work, order, own,
            )  # fmt: skip
            for k in range(n_states):
                heard[to + k] += lam[to + k]
            if not rows[q, R_EARLIER]:
                total += _largest(heard, to, n_states)
            for k in range(n_states):
                spare[k] += heard[to + k]
        best = 0
        for k in range(n_states):
            if spare[k] > spare[best]:
                best = k
        open_ = belief[best] < _largest(belief, 0, n_states) - tie
        for k in range(n_states):
            open_ = open_ or (k != best and spare[k] >= spare[best] - tie)
        for q in range(q0, q1):
            to = incident[q].delta
            if rows[q, R_KIND] != SINGLE:
                open_ = open_ or heard[to + best] < _largest(heard, to, n_states) - tie
        ambiguous[first + v - v0] = open_
    return total


@inner
def _largest(values: Any, at: int, n: int) -> Any:
    """The largest of n numbers."""
    most = -np.inf
    for k in range(n):
        most = max(most, values[at + k])
    return most


@kernel
def _improve_structured(g: Any, plan: Any, room: int, v_scores: Any, f_scores: Any, labels: Any) -> None:
    """Relabel single variables, and the scopes of structured factors by their own oracles, while that raises the score."""
    examples, structures, variables, factors, scope = g.examples, g.structures, g.variables, g.factors, g.scope
    incident, v_kinds, kinds, slots, structured = (
        g.incident, g.variable_kinds, g.factor_kinds, g.slots, g.structured,
    )  # fmt: skip
    first_structured, chosen, largest = plan.first_structured, plan.structured, g.largest
    local, unary = np.empty(largest.states), np.empty(largest.slots)
    work, order, own = np.empty(room), np.empty(room, np.int64), np.empty(largest.slots, np.int32)
    trial, relabelled = np.empty(largest.variables, np.int32), np.empty(largest.slots, np.int32)
    for m in range(len(examples) - 1):
        s, first, states, tables = (
            examples[m].structure, examples[m].variables, examples[m].states, examples[m].tables,
        )  # fmt: skip
        v0, f0, n = structures[s].variables, structures[s].factors, examples[m + 1].variables - first
        f1 = f0 + examples[m + 1].factors - examples[m].factors
        for v in range(n):
            trial[v] = labels[first + v]
        improving = True
        while improving:
            improving = False
            for v in range(n):
                n_states = _local_scores(
                    v, -1, v0, f0, states, tables, variables, v_kinds, incident, factors, kinds, slots, scope, structured,
                    v_scores, f_scores, trial, work, own, local, 0,
                )  # fmt: skip
                best = trial[v]
                for k in range(n_states):
                    if local[k] > local[best]:
                        best = k
                if _gains(local[best], local[trial[v]]):
                    trial[v], improving = best, True
            for i in range(first_structured[s], first_structured[s + 1]):
                c = f0 + chosen[i]
                t, scope0 = factors[c].template, factors[c].neighbours
                value = _score(
                    v0, n, f0, f1, states, tables, variables, factors, kinds, slots, scope, structured, v_scores, f_scores,
                    trial, work, own,
                )  # fmt: skip
                for j in range(kinds[t].arity):
                    _local_scores(
                        scope[scope0 + j], c, v0, f0, states, tables, variables, v_kinds, incident, factors, kinds, slots,
                        scope, structured, v_scores, f_scores, trial, work, own, unary,
                        slots[kinds[t].slots + j].delta,
                    )  # fmt: skip
                structured_max(
                    t, kinds, slots, structured, unary, f_scores, tables + factors[c].table, relabelled, work, order
                )
                for j in range(kinds[t].arity):
                    v = scope[scope0 + j]
                    trial[v], relabelled[j] = relabelled[j], trial[v]
                new = _score(
                    v0, n, f0, f1, states, tables, variables, factors, kinds, slots, scope, structured, v_scores, f_scores,
                    trial, work, own,
                )  # fmt: skip
                if _gains(new, value):
                    improving = True
                    continue
                for j in range(kinds[t].arity):
                    trial[scope[scope0 + j]] = relabelled[j]
        for v in range(n):
            labels[first + v] = trial[v]


@inner
def _gains(new: float, old: float) -> bool:
    """Whether a score is higher by more than rounding could have made it; such a gain might be undone, and again."""
    return new > old and (old == -np.inf or new - old > 1e-12 * max(abs(new), abs(old)))


@inner
def _local_scores(
    v: int, without: int, v0: int, f0: int, states: int, tables: int, variables: Any, v_kinds: Any, incident: Any,
    factors: Any, kinds: Any, slots: Any, scope: Any, structured: Any, v_scores: Any, f_scores: Any, trial: Any,
    work: Any, own: Any, out: Any, to: int,
) -> Any:  # fmt: skip
    """Score of each state of a variable with the labels of the others, but for one factor; the number of states."""
    n_states, at = v_kinds[variables[v0 + v].template].entries, states + variables[v0 + v].table
    q0, label = variables[v0 + v].neighbours, trial[v]
    for k in range(n_states):
        out[to + k] = v_scores[at + k]
        trial[v] = k
        for q in range(q0, q0 + variables[v0 + v].degree):
            c = f0 + incident[q].factor
            if c != without:
                out[to + k] += _factor_score(
                    c, tables, factors, kinds, slots, scope, structured, f_scores, trial, work, own
                )
    trial[v] = label
    return n_states

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
A round costs two passes over each table and variable of its scope; a pair's table whose unequal states all score the same (Potts)
is passed over once, to see that, and costs a few operations a state from then on. Tables are read where they are; memory is a few
numbers per state and message of the largest example and a copy of its tables, kept for the next call.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np

from maxmargin.errors import OptionError
from maxmargin.inference.contract import MapResult, Marginals, check_numbers, once_per_structures, raise_infeasible
from maxmargin.inference.dual_steps import (
    PAIR,
    ROW,
    SINGLE,
    STRUCTURED,
    WIDE,
    Plan,
    Room,
    Task,
    bound_round,
    example_at,
    largest_of,
    message,
    soft_sweep,
    soften,
    start,
    variable_at,
)
from maxmargin.inference.rounding import improve
from maxmargin.jit import inner, kernel, records
from maxmargin.problems.factor_graphs import FactorGraphs, Scores
from maxmargin.problems.layout import joint_state
from maxmargin.problems.structured import structured_max, structured_max_marginals, structured_score
from maxmargin.problems.tables import slot_add, slot_max
from maxmargin.problems.templates import TABLE

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
    bounded = True

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
        task, idle = Task(graphs.arrays, _plan(graphs), *scores), _idle_rooms(graphs)
        try:
            room = idle.pop()
        except IndexError:
            room = Room.of(graphs.arrays)
        labels, ambiguous = np.empty(len(graphs.labels), np.int32), np.empty(len(graphs.labels), np.bool_)
        bounds, scales = np.empty(graphs.n_examples), np.empty(graphs.n_examples)
        failed = _solve(task, room, self.max_rounds, self.tol, self.smoothing, labels, bounds, scales, ambiguous)
        if failed >= 0:
            raise_infeasible(graphs, scores, failed)
        if graphs.has_structured:
            _improve_structured(task, room, labels)
        else:
            improve(graphs.arrays, scores.variables, scores.factors, labels)
        idle.append(room)
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
def _idle_rooms(graphs: FactorGraphs) -> list[Room]:
    """Rooms that nobody works in: to make one takes longer than a small example."""
    return []


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
    rows = records(ROW, kind[factor], a.scope > low[factor], a.scope < high[factor])
    # In a pair's scope, the other variable stands one place on, or one back.
    pair = np.flatnonzero(kind[factor] == PAIR)
    other = 2 * first[factor[pair]] + 1 - pair
    rows.other[pair] = a.scope[other]
    rows.other_states[pair] = slot[other].states
    rows.other_delta[pair] = a.factors[factor[pair]].delta + slot[other].delta
    rows.other_stride[pair] = slot[other].stride
    member = a.scope + a.structures[owner[factor]].variables
    rows = rows[np.argsort(member, kind="stable")]
    of_variable = np.repeat(np.arange(len(a.variables)), a.variables.degree)
    most = np.maximum(
        np.bincount(of_variable, rows.earlier, len(a.variables)), np.bincount(of_variable, rows.later, len(a.variables))
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
    task: Any, room: Any, max_rounds: int, tol: float, smoothing: int, labels: Any, bounds: Any, scales: Any, ambiguous: Any
) -> int:  # fmt: skip
    """Bound, its scale and best labeling met of every example; the first example whose bound is -inf, or -1."""
    for m in range(len(bounds)):
        size, entropy = start(task, room, m)
        bound, scale = _descend(task, room, m, max_rounds, tol, smoothing, size, entropy, labels)
        if bound == -np.inf:
            return m
        bounds[m], scales[m] = min(bound, _final_bound(task, room, m, TIED * size, ambiguous)), scale
    return -1


@inner
def _descend(
    task: Any, room: Any, m: int, max_rounds: int, tol: float, smoothing: int, size: float, entropy: float, labels: Any
) -> tuple[float, float]:
    """Lower the bound of an example by sweeps, with stages of smoothing between them; the bound and its scale."""
    examples, first_structured, trial = task.graphs.examples, task.plan.first_structured, room.trial
    s, first, n = examples[m].structure, examples[m].variables, examples[m + 1].variables - examples[m].variables
    least, best, scale = np.inf, -np.inf, size
    number, decode_at, stage, final, temperature = 0, 1, 0, smoothing == 0, 0.0
    while True:
        bound, before = np.inf, least
        while number < max_rounds:
            last = bound
            bound = bound_round(task, room, m)
            if bound == -np.inf:
                return -np.inf, scale
            number += 1
            least, scale = min(least, bound), max(abs(bound), size)
            gap = least - best if best > -np.inf else scale
            enough = tol * scale if final else max(tol * scale, SLOW * gap)
            done = last - bound <= enough or number == max_rounds
            # Labels are cheap unless structured factors have to be asked for every variable.
            if first_structured[s] == first_structured[s + 1] or done or number >= decode_at:
                decode_at = 2 * number
                _decode(task, room, m)
                value = _score(task, room, m)
                if value > best or best == -np.inf:
                    best = value
                    for v in range(n):
                        labels[first + v] = trial[v]
            if done or least - best <= CERTIFIED * scale:
                break
        if final or number == max_rounds or least - best <= CERTIFIED * scale:
            return least, scale
        # If no allowed labeling is known, neither is the gap; the scores are on its scale.
        gap = least - best if best > -np.inf else scale
        gained = before - least if stage > 0 else np.inf
        if stage == smoothing or min(gap, gained) <= WORTHWHILE * scale:
            final = True
            continue
        temperature = 0.5 * temperature if stage > 0 else 2.0 * gap / entropy
        stage += 1
        soften(task, room, m, temperature)
        for _ in range(SOFT_ROUNDS):
            for forward in (True, False):
                soft_sweep(task, room, m, temperature, forward)


@inner
def _final_bound(task: Any, room: Any, m: int, tie: float, ambiguous: Any) -> float:
    """The bound from its definition, and which variables have no state that is best, alone, for it and all its factors."""
    g, rows, theta, lam, heard = task.graphs, task.plan.rows, room.theta, room.lam, room.heard
    incident, belief, spare, first, total = g.incident, room.belief, room.spare, g.examples[m].variables, 0.0
    v0, v1, f0, _, _, tables = example_at(g, m)
    for v in range(v0, v1):
        n_states, state, q0, q1 = variable_at(g, v)
        for k in range(n_states):
            belief[k] = theta[state + k]
        for q in range(q0, q1):
            for k in range(n_states):
                if theta[state + k] > -np.inf:
                    belief[k] -= lam[incident[q].delta + k]
        total += largest_of(belief, 0, n_states)
        for k in range(n_states):
            spare[k] = belief[k]
        for q in range(q0, q1):
            to = incident[q].delta
            if rows[q].kind == SINGLE:
                continue
            message(task, room, q, n_states, tables, f0)
            for k in range(n_states):
                heard[to + k] += lam[to + k]
            if not rows[q].earlier:
                total += largest_of(heard, to, n_states)
            for k in range(n_states):
                spare[k] += heard[to + k]
        best = 0
        for k in range(n_states):
            if spare[k] > spare[best]:
                best = k
        open_ = belief[best] < largest_of(belief, 0, n_states) - tie
        for k in range(n_states):
            open_ = open_ or (k != best and spare[k] >= spare[best] - tie)
        for q in range(q0, q1):
            to = incident[q].delta
            if rows[q].kind != SINGLE:
                open_ = open_ or heard[to + best] < largest_of(heard, to, n_states) - tie
        ambiguous[first + v - v0] = open_
    return total


# ------------------------------------------------------------------------------------------------------- labelings


@inner
def _decode(task: Any, room: Any, m: int) -> None:
    """Label variables in order: the best state given the labels so far and the messages from later variables."""
    g, rows, f_scores, trial = task.graphs, task.plan.rows, task.factor_scores, room.trial
    incident, theta, lam, belief = g.incident, room.theta, room.lam, room.belief
    v0, v1, f0, _, _, tables = example_at(g, m)
    trial[: v1 - v0] = -1
    for v in range(v1 - v0):
        n_states, state, q0, q1 = variable_at(g, v0 + v)
        for k in range(n_states):
            belief[k] = theta[state + k]
        for q in range(q0, q1):
            if not rows[q].earlier:
                # The sweep backwards has left what the later variables have to say.
                for k in range(n_states):
                    if theta[state + k] > -np.inf:
                        belief[k] -= lam[incident[q].delta + k]
            elif rows[q].kind == PAIR:
                at = tables + incident[q].table + trial[rows[q].other] * rows[q].other_stride
                for k in range(n_states):
                    belief[k] += f_scores[at + k * incident[q].stride]
            else:
                _add_known(task, room, q, v, n_states, tables, f0)
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
def _add_known(task: Any, room: Any, q: int, v: int, n_states: int, tables: int, f0: int) -> None:
    """Add to the belief of variable v the best score of row q's factor for each state, given the labels so far."""
    g, f_scores, belief, table, unary, high, spare = (
        task.graphs, task.factor_scores, room.belief, room.table, room.unary, room.high, room.spare,
    )  # fmt: skip
    incident, factors, kinds, slots = g.incident, g.factors, g.factor_kinds, g.slots
    c, at = f0 + incident[q].factor, tables + incident[q].table
    t, mine = factors[c].template, incident[q].delta - factors[c].delta
    place = _clamp(g, room, c, v)
    if task.plan.rows[q].kind == STRUCTURED:
        structured_max_marginals(
            t, place, kinds, slots, g.structured, unary, f_scores, at, high, room.work, room.order, room.own
        )
        for k in range(n_states):
            belief[k] += high[mine + k]
        return
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


@inner
def _clamp(g: Any, room: Any, c: int, v: int) -> int:
    """What all variables of a factor but v have given to it, with other states than the labels known at -inf.

    Returns the place of v in the scope.
    """
    factors, kinds, slots, lam, unary = g.factors, g.factor_kinds, g.slots, room.lam, room.unary
    t, place = factors[c].template, 0
    for j in range(kinds[t].arity):
        e, u = kinds[t].slots + j, g.scope[factors[c].neighbours + j]
        to, label = slots[e].delta, room.trial[u]
        if u == v:
            place = j
        for k in range(slots[e].states):
            if u == v:
                unary[to + k] = 0.0
            else:
                unary[to + k] = lam[factors[c].delta + to + k] if label < 0 or label == k else -np.inf
    return place


@inner
def _score(task: Any, room: Any, m: int) -> Any:
    """Score of the labeling `trial` of example m."""
    g, v_scores, trial = task.graphs, task.variable_scores, room.trial
    v0, v1, f0, f1, states, tables = example_at(g, m)
    total = 0.0
    for v in range(v1 - v0):
        total += v_scores[states + g.variables[v0 + v].table + trial[v]]
    for c in range(f0, f1):
        total += _factor_score(task, room, c, tables)
    return total


@inner
def _factor_score(task: Any, room: Any, c: int, tables: int) -> Any:
    """Score of one factor under a labeling of its example."""
    g, f_scores, trial, own = task.graphs, task.factor_scores, room.trial, room.own
    factors, scope, kinds, slots = g.factors, g.scope, g.factor_kinds, g.slots
    t, at = factors[c].template, tables + factors[c].table
    if kinds[t].kind == TABLE:
        return f_scores[at + joint_state(c, 0, factors, scope, kinds, slots, trial)]
    for j in range(kinds[t].arity):
        own[j] = trial[scope[factors[c].neighbours + j]]
    return structured_score(t, kinds, slots, g.structured, f_scores, at, own, room.work)


@kernel
def _improve_structured(task: Any, room: Any, labels: Any) -> None:
    """Relabel single variables, and the scopes of structured factors by their own oracles, while that raises the score."""
    g, first_structured, chosen, trial = task.graphs, task.plan.first_structured, task.plan.structured, room.trial
    examples, relabelled = g.examples, np.empty(g.largest.slots, np.int32)
    for m in range(len(examples) - 1):
        s, first = examples[m].structure, examples[m].variables
        n = examples[m + 1].variables - first
        for v in range(n):
            trial[v] = labels[first + v]
        improving = True
        while improving:
            improving = False
            for v in range(n):
                improving |= _relabel(task, room, m, v)
            for i in range(first_structured[s], first_structured[s + 1]):
                improving |= _relabel_scope(task, room, m, g.structures[s].factors + chosen[i], relabelled)
        for v in range(n):
            labels[first + v] = trial[v]


@inner
def _relabel(task: Any, room: Any, m: int, v: int) -> bool:
    """Give a variable its best state, given the others; whether that has raised the score."""
    local, trial = room.spare, room.trial
    best = trial[v]
    for k in range(_local_scores(task, room, m, v, -1, local, 0)):
        if local[k] > local[best]:
            best = k
    if not _gains(local[best], local[trial[v]]):
        return False
    trial[v] = best
    return True


@inner
def _relabel_scope(task: Any, room: Any, m: int, c: int, relabelled: Any) -> bool:
    """Give the scope of a structured factor its best labels, given the others; whether that has raised the score."""
    g, unary, trial = task.graphs, room.unary, room.trial
    factors, kinds, slots, scope = g.factors, g.factor_kinds, g.slots, g.scope
    t, scope0 = factors[c].template, factors[c].neighbours
    value = _score(task, room, m)
    for j in range(kinds[t].arity):
        _local_scores(task, room, m, scope[scope0 + j], c, unary, slots[kinds[t].slots + j].delta)
    at = g.examples[m].tables + factors[c].table
    structured_max(t, kinds, slots, g.structured, unary, task.factor_scores, at, relabelled, room.work, room.order)
    for j in range(kinds[t].arity):
        v = scope[scope0 + j]
        trial[v], relabelled[j] = relabelled[j], trial[v]
    if _gains(_score(task, room, m), value):
        return True
    for j in range(kinds[t].arity):
        trial[scope[scope0 + j]] = relabelled[j]
    return False


@inner
def _gains(new: float, old: float) -> bool:
    """Whether a score is higher by more than rounding could have made it; such a gain might be undone, and again."""
    return new > old and (old == -np.inf or new - old > 1e-12 * max(abs(new), abs(old)))


@inner
def _local_scores(task: Any, room: Any, m: int, v: int, without: int, out: Any, to: int) -> Any:
    """Score of each state of a variable with the labels of the others, but for one factor; the number of states."""
    g, v_scores, trial = task.graphs, task.variable_scores, room.trial
    incident, label = g.incident, trial[v]
    v0, _, f0, _, states, tables = example_at(g, m)
    n_states, state, q0, q1 = variable_at(g, v0 + v)
    for k in range(n_states):
        out[to + k] = v_scores[states + state + k]
        trial[v] = k
        for q in range(q0, q1):
            c = f0 + incident[q].factor
            if c != without:
                out[to + k] += _factor_score(task, room, c, tables)
    trial[v] = label
    return n_states

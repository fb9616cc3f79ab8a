"""Visits of label sets, whose threads share one example: the inner loop of `SoftBCFW` where every pair of labels has a weight.

What a visit does is in visits.py. Where the variables of an example are binary and have weights of their own, and so have its
factors, which are pairs, no block of a sweep meets another: a factor's step depends on the marginals of its two variables, and a
variable's on the sum of the messages to it. So threads share the blocks of one example, not the examples, and the visits are those
of one thread, one after the other. Examples side by side (frank_wolfe/visits.py) are no good here: all pairs have one feature, the
constant, so that the moves of two examples have a third of their length in common.

Every thread, or *hand*, has a range of the labels and a range of the factors, whose weights no other reads or writes. In a sweep

1. each hand improves its factors, and adds up their messages to each label;
2. the hands exchange these sums, and in the first sweep the scores of their labels, too;
3. every hand moves all labels to their blocks' maximum, for itself, which is less work than to exchange the results.

Sums are made of PARTS parts, in the same order whatever the number of hands, so that the bits do not depend on it. The first hand
*leads*: it goes through all visits, with all ranges as long as it is alone. When the others are there, they *join*, from one
visit on. Hands that are together exchange letters once a sweep; if one is late, because the machine has other work, or has both on
one core, they part after the next visit, and the others come back some time later.

Weights of labels are in rows of whole lines of the cache, so that no two hands write to one line: `lined`.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.jit import Struct, atomic_add, atomic_read, atomic_write, give_way, inner, kernel, unowned, wait_a_little
from maxmargin.parallel.crew import in_threads
from maxmargin.parallel.lines import LINE, zeros_in_lines
from maxmargin.parallel.threads import map_rows
from maxmargin.problems.factor_graphs import FactorGraphs
from maxmargin.problems.features import add_row, score_row
from maxmargin.problems.layout import P_BLOCK, P_STATE_I, P_STATE_J
from maxmargin.solvers.core.batches import Attendance
from maxmargin.solvers.soft.pairs import best_and_worst
from maxmargin.solvers.soft.state import Rules

#: Parts of the factors and of the labels.
PARTS = 4
#: Looks for a letter after which the sender may have the core, some tens of microseconds; of such long waits the leader accepts
#: so many, and one of so many visits.
_LOOKS, _LONG_WAITS, _VISITS = 1_000, 3, 100
#: Seconds after which hands that have parted come back, at first and at most.
_NAP, _LONGEST_NAP = 1e-3, 6.4e-2
#: Walks in which hands part more often than this count as walks that they did not keep up with.
_PARTINGS = 2
#: Places of the counters: how often hands came, and how often they left; how often they were joined, the visit at which they were
#: last, and the one before which they part; how often they parted; whether one failed.
_CAME, _LEFT, _JOINED, _JOIN, _PART, _PARTED, _FAILED = (LINE * k for k in range(7))
#: Added to what `_JOINED` counts when a walk is over.
_OVER = 1 << 40
#: Numbers of a line of a letter; the first of each line is its flag, so that a line that was read is whole.
_TEXT = LINE - 1


class Table(Struct):
    """What the hands of one walk share."""

    #: (PARTS + 1,): where the parts of the labels, and those of the factors, begin.
    labels: NDArray[np.int64]
    factors: NDArray[np.int64]
    #: (2 hands, width): letters of each of the last two exchanges; `flags` is the same memory.
    letters: NDArray[np.float64]
    flags: NDArray[np.int64]
    #: (examples,): how often the leader was alone at each.
    alone: NDArray[np.int64]
    counters: NDArray[np.int64]


class Hand(Struct):
    """What is one hand's own."""

    number: int
    #: (labels,): marginals of state 1, scores, and how far marginals have moved. (factors,): scores, and how far tables have moved.
    mu: NDArray[np.float64]
    z: NDArray[np.float64]
    moved: NDArray[np.float64]
    z_f: NDArray[np.float64]
    moved_f: NDArray[np.float64]
    #: (PARTS, labels): sums of messages; (PARTS, 2): block gap and disagreement.
    message: NDArray[np.float64]
    figures: NDArray[np.float64]
    #: (numbers of a letter,): sums of messages, figures, and scores of a hand's labels.
    text: NDArray[np.float64]
    #: (examples, labels): marginals as this hand has them, so that it does not read what the leader has just written; (examples,):
    #: how often the leader had been alone there before.
    every: NDArray[np.float64]
    seen: NDArray[np.int64]
    #: Long waits for letters, in visits that allow them: above 0 they are too many; how often the hand has joined.
    waits: NDArray[np.int64]


def shares_examples(problem: FactorGraphs) -> bool:
    """Whether every example has the same binary variables and pairs of them, each with one weight of its own, that of state 1."""
    a = problem.arrays
    if len(problem.structures) != 1 or len(a.variable_groups) != 1 or len(a.factor_groups) != 1:
        return False
    n, n_factors = len(a.variables), len(a.factors)
    if problem.variable_features.arrays.gram.size or problem.factor_features.shape[1] != 1:
        return False
    kinds = a.variable_kinds[a.variables.template]
    binary = (kinds.entries == 2).all() and (a.variables.table == 2 * np.arange(n)).all()
    return bool(
        binary
        and len(a.losses) > 0
        and (a.variable_block[kinds.start] == -1).all()
        and (a.variable_block[kinds.start + 1] == np.arange(n)).all()
        and (a.pairs[:, P_STATE_I] >= 0).all()
        and (a.pairs[:, P_BLOCK : P_BLOCK + 3] == -1).all()
        and (a.pairs[:, P_BLOCK + 3] == np.arange(n_factors)).all()
        and problem.n_variable_blocks == n
        and problem.n_factor_blocks == n_factors
    )


def cuts(n: int) -> NDArray[np.int64]:
    """Where parts of n numbers begin: at lines of the cache."""
    inner = LINE * np.round(np.arange(1, PARTS) * n / (PARTS * LINE)).astype(np.int64)
    return np.concatenate([[0], np.minimum(inner, n), [n]])


class PairVisits:
    """The visits of a run.

    Parameters
    ----------
    problem : FactorGraphs
        One that `shares_examples`.
    threads : int
    """

    def __init__(self, problem: FactorGraphs, threads: int) -> None:
        self.problem, self.threads = problem, threads
        self.n_labels, self.n_factors = len(problem.arrays.variables), len(problem.arrays.factors)
        #: Hands are 1, 2 or 4.
        self.most = max(k for k in (1, 2, 4) if k <= max(threads, 1))
        letters = zeros_in_lines((2 * self.most, -(-(2 * self.n_labels + 2) // _TEXT) * LINE))
        self.table = Table(
            cuts(self.n_labels), cuts(self.n_factors), letters, letters.view(np.int64),
            np.zeros(problem.n_examples, np.int64), np.zeros(0, np.int64),
        )  # fmt: skip
        self.hands = [self._hand(k) for k in range(self.most)]
        self.attendance = Attendance()
        #: One hand has the state's own weights there.
        width = -(-self.n_labels // LINE) * LINE if self.most > 1 else 0
        self.lined = zeros_in_lines((problem.variable_features.shape[1], width))

    def _hand(self, number: int) -> Hand:
        n, f = self.n_labels, self.n_factors
        sizes = (n,), (n,), (n,), (f,), (f,), (PARTS, -(-n // LINE) * LINE), (PARTS, LINE), (2 * n + 2,)
        many = self.problem.n_examples if number else 0
        arrays: list[Any] = [*map(zeros_in_lines, sizes), np.zeros((many, n)), np.full(many, -1)]
        arrays.append(zeros_in_lines((LINE,), np.int64))
        return Hand(number, *arrays)

    def begin_pass(self, now: Any) -> None:
        """Bring the weights in lines up to date."""
        if self.most == 1:
            self.lined = now.w_v
            return

        def copy(begin: int, end: int) -> None:
            self.lined[begin:end, : self.n_labels] = now.w_v[begin:end]

        map_rows(copy, now.w_v.shape, self.threads)

    def end_pass(self, now: Any) -> None:
        """Bring the state's weights up to date."""
        if self.most == 1:
            return

        def copy(begin: int, end: int) -> None:
            now.w_v[begin:end] = self.lined[begin:end, : self.n_labels]

        map_rows(copy, now.w_v.shape, self.threads)

    def visit(self, now: Any, order: NDArray[np.int64], rules: Rules) -> None:
        """Visit the examples in order, between the beginning and the end of a pass."""
        # Hands meet at every visit, so that none is left out.
        order = order[self.problem.arrays.weight[order] > 0.0]
        n = self.most if self.most > 1 and len(order) and self.attendance.is_due() else 1
        counters, over = zeros_in_lines((7 * LINE,), np.int64), threading.Event()
        self.table.flags[:, ::LINE] = 0
        table = self.table._replace(counters=counters)

        def visit(hand: Hand) -> bool:
            return bool(visit_pairs(self.problem.batch, self.lined, now.w_f, now.point, order, rules, table, hand, n))

        def lead() -> None:
            try:
                visit(self.hands[0])
            except BaseException:
                counters[_FAILED] = 1
                raise
            finally:
                counters[_JOINED] += _OVER
                over.set()

        def join(hand: Hand) -> None:
            nap, hand.waits[1] = _NAP, 0
            try:
                while not visit(hand) and not over.wait(nap):
                    nap = min(2.0 * nap, _LONGEST_NAP)
            except BaseException:
                # Nobody waits for its letters; the error is raised when all have ended.
                counters[_FAILED] = 1
                raise

        in_threads(lead, [partial(join, hand) for hand in self.hands[1:n]])
        if n > 1:
            self.attendance.note(bool(counters[_PARTED] <= _PARTINGS))


# ------------------------------------------------------------------------------------------------------- kernels


@kernel
def visit_pairs(
    batch: Any, w_v: Any, w_f: Any, dual: Any, order: Any, rules: Any, table: Any, hand: Any, most_hands: int
) -> bool:
    """Visit the examples in `order`, as one of some hands; weights and the dual point are updated in place.

    Returns whether the walk is over.
    """
    w_v, w_f, order = unowned(w_v), unowned(w_f), unowned(order)
    g, side, other, counters = batch.graphs, batch.variables, batch.factors, table.counters
    examples, weight, mu = g.examples, g.weight, dual.mu
    n, leads, n_hands, k = len(hand.mu), hand.number == 0, 1, 0
    if not leads:
        k, n_hands = _come(counters, hand, len(order)), most_hands
    while k < len(order):
        if n_hands > 1 and k >= atomic_read(counters, _PART):
            if not leads:
                break
            # What they wrote is theirs until they have left.
            while atomic_read(counters, _LEFT) < (most_hands - 1) * atomic_read(counters, _PARTED):
                give_way()
            n_hands = 1
        if n_hands < most_hands and atomic_read(counters, _CAME) - atomic_read(counters, _LEFT) == most_hands - 1:
            hand.waits[0], n_hands = -_VISITS * _LONG_WAITS, most_hands
            atomic_write(counters, _PART, len(order))
            atomic_write(counters, _JOIN, k)
            atomic_add(counters, _JOINED, 1)
        m = order[k]
        unit = weight[m] / (rules.lam * len(weight))
        share = PARTS // n_hands
        first, last = hand.number * share, (hand.number + 1) * share
        low, high, f_low, f_high = table.labels[first], table.labels[last], table.factors[first], table.factors[last]
        row, f_row, states = side.first_row[m], other.first_row[m], examples[m].states
        hand.waits[0] = max(hand.waits[0] - 1, -_VISITS * _LONG_WAITS)
        if leads or rules.edgeless or hand.seen[m] != table.alone[m]:
            begin, end = (low, high) if rules.edgeless else (0, n)
            for v in range(begin, end):
                hand.mu[v] = mu[states + 2 * v + 1]
        else:
            for v in range(n):
                hand.mu[v] = hand.every[m, v]
        score_row(side.features, row, w_v, low, high, hand.z, low)
        for v in range(n):
            hand.moved[v] = 0.0
        own = unit * side.features.squared_norms[row]
        if rules.edgeless:
            for v in range(low, high):
                hand.message[0, v] = 0.0
            gap = _move_labels(batch, rules, hand, m, own, True, low, high)
            hand.figures[0, 0], hand.figures[0, 1] = gap, 0.0
        else:
            own_f = unit * other.features.squared_norms[f_row]
            score_row(other.features, f_row, w_f, f_low, f_high, hand.z_f, f_low)
            for c in range(f_low, f_high):
                hand.moved_f[c] = 0.0
            for sweep in range(rules.sweeps):
                if n_hands > 1:
                    _get_paper(table, hand, k * rules.sweeps + sweep, n if sweep > 0 else n + 2 + high - low)
                for part in range(first, last):
                    _sweep_pairs(batch, dual, rules, hand, m, part, table.factors, own_f, sweep == 0)
                _add_parts(hand, first, last, sweep == 0)
                if n_hands > 1:
                    _exchange(table, hand, n_hands, k * rules.sweeps + sweep, sweep == 0, k, len(order))
                gap = _move_labels(batch, rules, hand, m, own, sweep == 0, 0, n)
                if sweep == 0:
                    hand.figures[0, 0] += gap
            _add(other.features, f_row, w_f, f_low, f_high, hand.moved_f, -unit)
        _add(side.features, row, w_v, low, high, hand.moved, -unit)
        if leads or rules.edgeless:
            begin, end = (low, high) if rules.edgeless else (0, n)
            for v in range(begin, end):
                mu[states + 2 * v], mu[states + 2 * v + 1] = 1.0 - hand.mu[v], hand.mu[v]
            if leads and (n_hands == 1 or rules.edgeless):
                table.alone[m] += 1
        else:
            hand.seen[m] = table.alone[m]
            for v in range(n):
                hand.every[m, v] = hand.mu[v]
        if leads:
            dual.block_gap[m], dual.disagreement[m] = hand.figures[0, 0], hand.figures[0, 1]
        k += 1
    if not leads:
        atomic_add(counters, _LEFT, 1)
    return k >= len(order)


@inner
def _add(features: Any, row: int, weights: Any, begin: int, end: int, moved: Any, scale: float) -> None:
    """weights[:, begin:end] += scale * moved[begin:end] * x_row, with the same rounding whatever the range."""
    for b in range(begin, end):
        moved[b] *= scale
    add_row(features, row, weights, begin, end, moved, begin, 1.0)


@inner
def _come(counters: Any, hand: Any, n_visits: int) -> int:
    """A hand is there, and waits for the visit at which it joins; that after the last if it does not."""
    atomic_add(counters, _CAME, 1)
    while atomic_read(counters, _JOINED) <= hand.waits[1]:
        give_way()
    if atomic_read(counters, _JOINED) % _OVER <= hand.waits[1]:
        return n_visits
    hand.waits[1] += 1
    return int(atomic_read(counters, _JOIN))


@inner
def _sweep_pairs(
    batch: Any, dual: Any, rules: Any, hand: Any, m: int, part: int, cuts: Any, own: float, first: bool
) -> None:
    """Improve each factor of a part and add its messages to its labels' sums; `first` of the visit's sweeps."""
    g = batch.graphs
    example, factors, pairs, table, nu, mu = g.examples[m], g.factors, g.pairs, dual.table, dual.nu, hand.mu
    z, moved, message = hand.z_f, hand.moved_f, hand.message[part]
    tables, messages = example.tables, example.messages
    inverse, smoothing, move_nu = 1.0 / rules.rho, rules.smoothing, rules.multipliers and first
    total_gap, total_disagreement = 0.0, 0.0
    for v in range(len(mu)):
        message[v] = 0.0
    for c in range(cuts[part], cuts[part + 1]):
        tab, msg = tables + factors[c].table, messages + factors[c].message
        i, j = pairs[c, P_STATE_I] >> 1, pairs[c, P_STATE_J] >> 1
        p0, p1, p2, p3 = table[tab], table[tab + 1], table[tab + 2], table[tab + 3]
        gone_i = 2.0 * (p2 + p3 - mu[i])
        gone_j = 2.0 * (p1 + p3 - mu[j])
        to_i, to_j = nu[msg], nu[msg + 1]
        if move_nu:
            to_i += gone_i * inverse
            to_j += gone_j * inverse
            nu[msg] = to_i
            nu[msg + 1] = to_j
        to_i += gone_i * inverse
        to_j += gone_j * inverse
        s0 = -smoothing * p0
        s1 = -to_j - smoothing * p1
        s2 = -to_i - smoothing * p2
        s3 = z[c] - to_i - to_j - smoothing * p3
        best, high, worst, low, mass = best_and_worst(p0, p1, p2, p3, s0, s1, s2, s3)
        if first:
            total_gap += high - p0 * s0 - p1 * s1 - p2 * s2 - p3 * s3
            total_disagreement += 0.5 * (abs(to_i * gone_i) + abs(to_j * gone_j))
        if high - low > 1e-15:
            d_i, d_j = (best >> 1) - (worst >> 1), (best & 1) - (worst & 1)
            curvature = 2.0 * (d_i * d_i + d_j * d_j) * inverse + 2.0 * smoothing
            if best == 3 or worst == 3:
                curvature += own
            step = (high - low) / curvature
            if step >= mass:
                step = mass
                table[tab + worst] = 0.0
            else:
                table[tab + worst] = mass - step
            table[tab + best] += step
            if best == 3:
                z[c] -= own * step
                moved[c] += step
            elif worst == 3:
                z[c] += own * step
                moved[c] -= step
            to_i += 2.0 * step * inverse * d_i
            to_j += 2.0 * step * inverse * d_j
        message[i] += to_i
        message[j] += to_j
    if first:
        hand.figures[part, 0], hand.figures[part, 1] = total_gap, total_disagreement


@inner
def _add_parts(hand: Any, first: int, last: int, figures: bool) -> None:
    """Add up the parts of a hand, in pairs, into the first of them."""
    message, step = hand.message, 1
    while step < last - first:
        for part in range(first, last, 2 * step):
            for v in range(len(hand.mu)):
                message[part, v] += message[part + step, v]
            if figures:
                hand.figures[part, 0] += hand.figures[part + step, 0]
                hand.figures[part, 1] += hand.figures[part + step, 1]
        step *= 2
    if first > 0:
        for v in range(len(hand.mu)):
            message[0, v] = message[first, v]
        if figures:
            hand.figures[0, 0], hand.figures[0, 1] = hand.figures[first, 0], hand.figures[first, 1]


@inner
def _exchange(table: Any, hand: Any, n_hands: int, number: int, first: bool, k: int, n_visits: int) -> None:
    """Send the sums of a hand to the others, and add up all, in pairs; in the first sweep with the scores of its labels."""
    text, message, labels, n, share = hand.text, hand.message[0], table.labels, len(hand.mu), PARTS // n_hands
    slot, size = number % 2 * (len(table.letters) // 2), n
    for v in range(n):
        text[v] = message[v]
    if first:
        text[n], text[n + 1] = hand.figures[0, 0], hand.figures[0, 1]
        size = n + 2
        for v in range(labels[hand.number * share], labels[(hand.number + 1) * share]):
            text[size] = hand.z[v]
            size += 1
    _send(table, slot + hand.number, text, size, number)
    for v in range(n):
        message[v] = 0.0
    pair_gap, pair_disagreement = 0.0, 0.0
    if first:
        hand.figures[0, 0], hand.figures[0, 1] = 0.0, 0.0
    for other in range(n_hands):
        begin, end = labels[other * share], labels[(other + 1) * share]
        _receive(table, hand, slot + other, n + 2 + end - begin if first else n, number, k, n_visits)
        # With four hands the sums of two are added first.
        if other < 2:
            for v in range(n):
                message[v] = text[v] if other == 0 else message[v] + text[v]
        elif other == 2:
            for v in range(n):
                hand.message[1, v] = text[v]
        else:
            for v in range(n):
                message[v] += hand.message[1, v] + text[v]
        if first:
            if other % 2 == 0:
                pair_gap, pair_disagreement = text[n], text[n + 1]
            else:
                hand.figures[0, 0] += pair_gap + text[n]
                hand.figures[0, 1] += pair_disagreement + text[n + 1]
            for v in range(begin, end):
                hand.z[v] = text[n + 2 + v - begin]


@inner
def _get_paper(table: Any, hand: Any, number: int, size: int) -> None:
    """Write to the lines of the next letter, which the reader of the last one had: they come while the hand is at work."""
    own = table.letters[number % 2 * (len(table.letters) // 2) + hand.number]
    for line in range((size + _TEXT - 1) // _TEXT):
        own[line * LINE + 1] = 0.0


@inner
def _send(table: Any, letter: int, text: Any, size: int, number: int) -> None:
    """Write a letter, line after line."""
    own, width, at = table.letters[letter], table.letters.shape[1], 0
    for line in range((size + _TEXT - 1) // _TEXT):
        for i in range(min(_TEXT, size - at)):
            own[line * LINE + 1 + i] = text[at + i]
        at += _TEXT
        atomic_write(table.flags, letter * width + line * LINE, number + 1)


@inner
def _receive(table: Any, hand: Any, letter: int, size: int, number: int, k: int, n_visits: int) -> None:
    """Read a letter, as its lines arrive; none comes if another hand failed."""
    own, text, width, at, looks = table.letters[letter], hand.text, table.letters.shape[1], 0, 0
    counters = table.counters
    for line in range((size + _TEXT - 1) // _TEXT):
        while atomic_read(table.flags, letter * width + line * LINE) != number + 1:
            looks += 1
            if looks % _LOOKS > 0:
                wait_a_little()
                continue
            give_way()
            if atomic_read(counters, _FAILED) != 0:
                return
            hand.waits[0] += _VISITS
            if hand.waits[0] > 0 and hand.number == 0 and k + 2 < n_visits and atomic_read(counters, _PART) == n_visits:
                # The others may have begun with the next visit, which is the last that they take part in.
                atomic_add(counters, _PARTED, 1)
                atomic_write(counters, _PART, k + 2)
        for i in range(min(_TEXT, size - at)):
            text[at + i] = own[line * LINE + 1 + i]
        at += _TEXT


@inner
def _move_labels(batch: Any, rules: Any, hand: Any, m: int, own: float, first: bool, begin: int, end: int) -> float:
    """Move some labels to their blocks' maximum; returns their gap before that."""
    g, side = batch.graphs, batch.variables
    members, kinds, fixed, scores, losses, sharing = (
        side.members, side.kinds, side.fixed, side.scores, g.losses, g.variable_sharing,
    )  # fmt: skip
    mu, z, moved, message, total = hand.mu, hand.z, hand.moved, hand.message[0], 0.0
    states, smoothing, rho = g.examples[m].states, rules.smoothing, np.inf if rules.edgeless else rules.rho
    for v in range(begin, end):
        start, at, now = kinds[members[v].template].start, states + 2 * v, mu[v]
        pull = members[v].degree / rho + smoothing
        off = fixed[start] + losses[at] - smoothing * (1.0 - now)
        on = fixed[start + 1] + losses[at + 1] + message[v] - smoothing * now + z[v]
        if len(scores) > 0:
            off += scores[at]
            on += scores[at + 1]
        if first:
            high = max(off, on)
            if now < 1.0:
                total += (1.0 - now) * (high - off)
            if now > 0.0:
                total += now * (high - on)
        slope, curvature = on - off, own * (sharing[start] + sharing[start + 1]) + 2.0 * pull
        if slope == -np.inf or slope == np.inf:
            continue
        if curvature > 0.0:
            target = min(1.0, max(0.0, now + slope / curvature))
        elif slope == 0.0:
            continue
        else:
            target = 1.0 if slope > 0.0 else 0.0
        step = target - now
        if step != 0.0:
            mu[v] = target
            z[v] -= own * step
            moved[v] += step
    return total

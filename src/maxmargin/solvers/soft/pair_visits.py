"""Visits of label sets, whose threads share one example: the inner loop of `SoftBCFW` where every pair of labels has a weight.

What a visit does is in visits.py. Where the variables of an example are binary and have weights of their own, and so have its
factors, which are pairs, no block of a sweep meets another: a factor's step depends on the marginals of its two variables, and a
variable's on the sum of the messages to it. So threads share the blocks of one example, not the examples, and the visits are those
of one thread, one after the other. Examples side by side (frank_wolfe/visits.py) are no good here: all pairs have one feature, the
constant, so that the moves of two examples have a third of their length in common.

Every thread, or *worker*, has a range of the labels and a range of the factors, whose weights no other reads or writes. In a sweep

1. each worker improves its factors, and adds up their messages to each label;
2. the workers exchange these sums, and in the first sweep the scores of their labels, too;
3. every worker moves all labels to their blocks' maximum, for itself, which is less work than to exchange the results.

Sums are made of PARTS parts, in the same order whatever the number of workers, so that the bits do not depend on it. The first
worker *leads*: it goes through all visits, with all ranges as long as it is alone. When the others are there, they *join*, from
one visit on. Workers that are together exchange packets once a sweep; if one is late, because the machine has other work, or has
both on one core, they part after the next visit, and the others come back some time later.

Weights of labels are in rows of whole lines of the cache, so that no two workers write to one line: `lined`.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.jit import Struct, atomic_add, atomic_read, atomic_write, give_way, inner, kernel, unowned, wait_a_little
from maxmargin.parallel.lines import LINE, zeros_in_lines
from maxmargin.parallel.team import in_threads
from maxmargin.parallel.threads import map_rows
from maxmargin.problems.factor_graphs import FactorGraphs
from maxmargin.problems.features import add_row, score_row
from maxmargin.problems.layout import P_BLOCK, P_STATE_I, P_STATE_J
from maxmargin.solvers.core.batches import Attendance
from maxmargin.solvers.soft.pairs import best_and_worst
from maxmargin.solvers.soft.simplex import best_mass
from maxmargin.solvers.soft.state import Rules

#: Parts of the factors and of the labels.
PARTS = 4
#: Looks for a packet after which the sender may have the core, some tens of microseconds; of such long waits the leader accepts
#: so many, and one of so many visits.
_LOOKS, _LONG_WAITS, _VISITS = 1_000, 3, 100
#: Seconds after which workers that have parted come back, at first and at most.
_NAP, _LONGEST_NAP = 1e-3, 6.4e-2
#: Walks in which workers part more often than this count as walks that they did not keep up with.
_PARTINGS = 2
#: Places of the counters: how often workers came, and how often they left; how often they were joined, the visit at which they were
#: last, and the one before which they part; how often they parted; whether one failed.
_ARRIVED, _LEFT, _JOINED, _JOIN, _PART, _PARTED, _FAILED = (LINE * k for k in range(7))
#: Added to what `_JOINED` counts when a walk is over.
_OVER = 1 << 40
#: Numbers of a line of a packet; the first of each line is its flag, so that a line that was read is whole.
_PAYLOAD = LINE - 1


class Shared(Struct):
    """What the workers of one walk share."""

    #: (PARTS + 1,): where the parts of the labels, and those of the factors, begin.
    labels: NDArray[np.int64]
    factors: NDArray[np.int64]
    #: (2 workers, width): packets of each of the last two exchanges; `flags` is the same memory.
    packets: NDArray[np.float64]
    flags: NDArray[np.int64]
    #: (examples,): how often the leader was alone at each.
    alone: NDArray[np.int64]
    counters: NDArray[np.int64]


class Worker(Struct):
    """What is one worker's own."""

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
    #: (numbers of a packet,): sums of messages, figures, and scores of a worker's labels.
    payload: NDArray[np.float64]
    #: (examples, labels): marginals as this worker has them, so that it does not read what the leader has just written;
    #: (examples,): how often the leader had been alone there before.
    every: NDArray[np.float64]
    seen: NDArray[np.int64]
    #: Long waits for packets, in visits that allow them: above 0 they are too many; how often the worker has joined.
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
        #: Workers are 1, 2 or 4.
        self.most = max(k for k in (1, 2, 4) if k <= max(threads, 1))
        packets = zeros_in_lines((2 * self.most, -(-(2 * self.n_labels + 2) // _PAYLOAD) * LINE))
        self.shared = Shared(
            cuts(self.n_labels), cuts(self.n_factors), packets, packets.view(np.int64),
            np.zeros(problem.n_examples, np.int64), np.zeros(0, np.int64),
        )  # fmt: skip
        self.workers = [self._worker(k) for k in range(self.most)]
        self.attendance = Attendance()
        #: One worker has the state's own weights there.
        width = -(-self.n_labels // LINE) * LINE if self.most > 1 else 0
        self.lined = zeros_in_lines((problem.variable_features.shape[1], width))

    def _worker(self, number: int) -> Worker:
        n, f = self.n_labels, self.n_factors
        sizes = (n,), (n,), (n,), (f,), (f,), (PARTS, -(-n // LINE) * LINE), (PARTS, LINE), (2 * n + 2,)
        many = self.problem.n_examples if number else 0
        arrays: list[Any] = [*map(zeros_in_lines, sizes), np.zeros((many, n)), np.full(many, -1)]
        arrays.append(zeros_in_lines((LINE,), np.int64))
        return Worker(number, *arrays)

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
        # Workers meet at every visit, so that none is left out.
        order = order[self.problem.arrays.weight[order] > 0.0]
        n = self.most if self.most > 1 and len(order) and self.attendance.is_due() else 1
        counters, over = zeros_in_lines((7 * LINE,), np.int64), threading.Event()
        self.shared.flags[:, ::LINE] = 0
        shared = self.shared._replace(counters=counters)

        def visit(worker: Worker) -> bool:
            return bool(
                visit_pairs(self.problem.batch, self.lined, now.w_f, now.point, order, rules, shared, worker, n)
            )

        def lead() -> None:
            try:
                visit(self.workers[0])
            except BaseException:
                counters[_FAILED] = 1
                raise
            finally:
                counters[_JOINED] += _OVER
                over.set()

        def join(worker: Worker) -> None:
            nap, worker.waits[1] = _NAP, 0
            try:
                while not visit(worker) and not over.wait(nap):
                    nap = min(2.0 * nap, _LONGEST_NAP)
            except BaseException:
                # Nobody waits for its packets; the error is raised when all have ended.
                counters[_FAILED] = 1
                raise

        in_threads(lead, [partial(join, worker) for worker in self.workers[1:n]])
        if n > 1:
            self.attendance.note(bool(counters[_PARTED] <= _PARTINGS))


# ------------------------------------------------------------------------------------------------------- kernels


@kernel
def visit_pairs(
    batch: Any, w_v: Any, w_f: Any, dual: Any, order: Any, rules: Any, shared: Any, worker: Any, most_workers: int
) -> bool:
    """Visit the examples in `order`, as one of some workers; weights and the dual point are updated in place.

    Returns whether the walk is over.
    """
    w_v, w_f, order = unowned(w_v), unowned(w_f), unowned(order)
    g, side, other, counters = batch.graphs, batch.variables, batch.factors, shared.counters
    examples, weight, mu = g.examples, g.weight, dual.mu
    n, leads, n_workers, k = len(worker.mu), worker.number == 0, 1, 0
    if not leads:
        k, n_workers = _arrive(counters, worker, len(order)), most_workers
    while k < len(order):
        if n_workers > 1 and k >= atomic_read(counters, _PART):
            if not leads:
                break
            # What they wrote is theirs until they have left.
            while atomic_read(counters, _LEFT) < (most_workers - 1) * atomic_read(counters, _PARTED):
                give_way()
            n_workers = 1
        if (
            n_workers < most_workers
            and atomic_read(counters, _ARRIVED) - atomic_read(counters, _LEFT) == most_workers - 1
        ):
            worker.waits[0], n_workers = -_VISITS * _LONG_WAITS, most_workers
            atomic_write(counters, _PART, len(order))
            atomic_write(counters, _JOIN, k)
            atomic_add(counters, _JOINED, 1)
        m = order[k]
        unit = weight[m] / (rules.lam * len(weight))
        share = PARTS // n_workers
        first, last = worker.number * share, (worker.number + 1) * share
        low, high, f_low, f_high = (
            shared.labels[first],
            shared.labels[last],
            shared.factors[first],
            shared.factors[last],
        )
        row, f_row, states = side.first_row[m], other.first_row[m], examples[m].states
        worker.waits[0] = max(worker.waits[0] - 1, -_VISITS * _LONG_WAITS)
        if leads or rules.edgeless or worker.seen[m] != shared.alone[m]:
            begin, end = (low, high) if rules.edgeless else (0, n)
            for v in range(begin, end):
                worker.mu[v] = mu[states + 2 * v + 1]
        else:
            for v in range(n):
                worker.mu[v] = worker.every[m, v]
        score_row(side.features, row, w_v, low, high, worker.z, low)
        for v in range(n):
            worker.moved[v] = 0.0
        own = unit * side.features.squared_norms[row]
        if rules.edgeless:
            for v in range(low, high):
                worker.message[0, v] = 0.0
            gap = _move_labels(batch, rules, worker, m, own, True, low, high)
            worker.figures[0, 0], worker.figures[0, 1] = gap, 0.0
        else:
            own_f = unit * other.features.squared_norms[f_row]
            score_row(other.features, f_row, w_f, f_low, f_high, worker.z_f, f_low)
            for c in range(f_low, f_high):
                worker.moved_f[c] = 0.0
            for sweep in range(rules.sweeps):
                if n_workers > 1:
                    _claim_packet(shared, worker, k * rules.sweeps + sweep, n if sweep > 0 else n + 2 + high - low)
                for part in range(first, last):
                    _sweep_pairs(batch, dual, rules, worker, m, part, shared.factors, own_f, sweep == 0)
                _add_parts(worker, first, last, sweep == 0)
                if n_workers > 1:
                    _exchange(shared, worker, n_workers, k * rules.sweeps + sweep, sweep == 0, k, len(order))
                gap = _move_labels(batch, rules, worker, m, own, sweep == 0, 0, n)
                if sweep == 0:
                    worker.figures[0, 0] += gap
            _add(other.features, f_row, w_f, f_low, f_high, worker.moved_f, -unit)
        _add(side.features, row, w_v, low, high, worker.moved, -unit)
        if leads or rules.edgeless:
            begin, end = (low, high) if rules.edgeless else (0, n)
            for v in range(begin, end):
                mu[states + 2 * v], mu[states + 2 * v + 1] = 1.0 - worker.mu[v], worker.mu[v]
            if leads and (n_workers == 1 or rules.edgeless):
                shared.alone[m] += 1
        else:
            worker.seen[m] = shared.alone[m]
            for v in range(n):
                worker.every[m, v] = worker.mu[v]
        if leads:
            dual.block_gap[m], dual.disagreement[m] = worker.figures[0, 0], worker.figures[0, 1]
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
def _arrive(counters: Any, worker: Any, n_visits: int) -> int:
    """A worker is there, and waits for the visit at which it joins; that after the last if it does not."""
    atomic_add(counters, _ARRIVED, 1)
    while atomic_read(counters, _JOINED) <= worker.waits[1]:
        give_way()
    if atomic_read(counters, _JOINED) % _OVER <= worker.waits[1]:
        return n_visits
    worker.waits[1] += 1
    return int(atomic_read(counters, _JOIN))


@inner
def _sweep_pairs(
    batch: Any, dual: Any, rules: Any, worker: Any, m: int, part: int, cuts: Any, own: float, first: bool
) -> None:
    """Improve each factor of a part and add its messages to its labels' sums; `first` of the visit's sweeps."""
    g = batch.graphs
    example, factors, pairs, table, nu, mu = g.examples[m], g.factors, g.pairs, dual.table, dual.nu, worker.mu
    z, moved, message = worker.z_f, worker.moved_f, worker.message[part]
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
        worker.figures[part, 0], worker.figures[part, 1] = total_gap, total_disagreement


@inner
def _add_parts(worker: Any, first: int, last: int, figures: bool) -> None:
    """Add up the parts of a worker, in pairs, into the first of them."""
    message, step = worker.message, 1
    while step < last - first:
        for part in range(first, last, 2 * step):
            for v in range(len(worker.mu)):
                message[part, v] += message[part + step, v]
            if figures:
                worker.figures[part, 0] += worker.figures[part + step, 0]
                worker.figures[part, 1] += worker.figures[part + step, 1]
        step *= 2
    if first > 0:
        for v in range(len(worker.mu)):
            message[0, v] = message[first, v]
        if figures:
            worker.figures[0, 0], worker.figures[0, 1] = worker.figures[first, 0], worker.figures[first, 1]


@inner
def _exchange(shared: Any, worker: Any, n_workers: int, number: int, first: bool, k: int, n_visits: int) -> None:
    """Send the sums of a worker to the others, and add up all, in pairs; in the first sweep with the scores of its labels."""
    payload, message, labels, n, share = (
        worker.payload,
        worker.message[0],
        shared.labels,
        len(worker.mu),
        PARTS // n_workers,
    )
    slot, size = number % 2 * (len(shared.packets) // 2), n
    for v in range(n):
        payload[v] = message[v]
    if first:
        payload[n], payload[n + 1] = worker.figures[0, 0], worker.figures[0, 1]
        size = n + 2
        for v in range(labels[worker.number * share], labels[(worker.number + 1) * share]):
            payload[size] = worker.z[v]
            size += 1
    _send(shared, slot + worker.number, payload, size, number)
    for v in range(n):
        message[v] = 0.0
    pair_gap, pair_disagreement = 0.0, 0.0
    if first:
        worker.figures[0, 0], worker.figures[0, 1] = 0.0, 0.0
    for other in range(n_workers):
        begin, end = labels[other * share], labels[(other + 1) * share]
        _receive(shared, worker, slot + other, n + 2 + end - begin if first else n, number, k, n_visits)
        # With four workers the sums of two are added first.
        if other < 2:
            for v in range(n):
                message[v] = payload[v] if other == 0 else message[v] + payload[v]
        elif other == 2:
            for v in range(n):
                worker.message[1, v] = payload[v]
        else:
            for v in range(n):
                message[v] += worker.message[1, v] + payload[v]
        if first:
            if other % 2 == 0:
                pair_gap, pair_disagreement = payload[n], payload[n + 1]
            else:
                worker.figures[0, 0] += pair_gap + payload[n]
                worker.figures[0, 1] += pair_disagreement + payload[n + 1]
            for v in range(begin, end):
                worker.z[v] = payload[n + 2 + v - begin]


@inner
def _claim_packet(shared: Any, worker: Any, number: int, size: int) -> None:
    """Write to the lines of the next packet, which the reader of the last one had: they come while the worker is at work."""
    own = shared.packets[number % 2 * (len(shared.packets) // 2) + worker.number]
    for line in range((size + _PAYLOAD - 1) // _PAYLOAD):
        own[line * LINE + 1] = 0.0


@inner
def _send(shared: Any, packet: int, payload: Any, size: int, number: int) -> None:
    """Write a packet, line after line."""
    own, width, at = shared.packets[packet], shared.packets.shape[1], 0
    for line in range((size + _PAYLOAD - 1) // _PAYLOAD):
        for i in range(min(_PAYLOAD, size - at)):
            own[line * LINE + 1 + i] = payload[at + i]
        at += _PAYLOAD
        atomic_write(shared.flags, packet * width + line * LINE, number + 1)


@inner
def _receive(shared: Any, worker: Any, packet: int, size: int, number: int, k: int, n_visits: int) -> None:
    """Read a packet, as its lines arrive; none comes if another worker failed."""
    own, payload, width, at, looks = shared.packets[packet], worker.payload, shared.packets.shape[1], 0, 0
    counters = shared.counters
    for line in range((size + _PAYLOAD - 1) // _PAYLOAD):
        while atomic_read(shared.flags, packet * width + line * LINE) != number + 1:
            looks += 1
            if looks % _LOOKS > 0:
                wait_a_little()
                continue
            give_way()
            if atomic_read(counters, _FAILED) != 0:
                return
            worker.waits[0] += _VISITS
            if (
                worker.waits[0] > 0
                and worker.number == 0
                and k + 2 < n_visits
                and atomic_read(counters, _PART) == n_visits
            ):
                # The others may have begun with the next visit, which is the last that they take part in.
                atomic_add(counters, _PARTED, 1)
                atomic_write(counters, _PART, k + 2)
        for i in range(min(_PAYLOAD, size - at)):
            payload[at + i] = own[line * LINE + 1 + i]
        at += _PAYLOAD


@inner
def _move_labels(batch: Any, rules: Any, worker: Any, m: int, own: float, first: bool, begin: int, end: int) -> float:
    """Move some labels to their blocks' maximum; returns their gap before that."""
    g, side = batch.graphs, batch.variables
    members, kinds, fixed, scores, losses, sharing = (
        side.members, side.kinds, side.fixed, side.scores, g.losses, g.variable_sharing,
    )  # fmt: skip
    mu, z, moved, message, total = worker.mu, worker.z, worker.moved, worker.message[0], 0.0
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
        target = best_mass(now, slope, curvature)
        step = target - now
        if step != 0.0:
            mu[v] = target
            z[v] -= own * step
            moved[v] += step
    return total

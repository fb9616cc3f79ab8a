"""Chains with sparse features of their own at each position, as conditional random fields of text have them, packed.

The vectors of a solver stand here as the kernels read them: for each column of the features the weights of all K states, filled up
with zeros to a multiple of `_LANES`, then the weights of the factors. No vector is turned around between a solver and its oracle,
loops over states are whole vector instructions, and an example's scores, marginals and their way into the gradient stay in the
cache. Forward-backward is that of exp_oracle.py at temperature 1.

*The first steps.* From w = 0, L-BFGS takes dozens of passes until it is where stochastic gradient descent is after two or three
(Bottou, Large-Scale Machine Learning with Stochastic Gradient Descent, COMPSTAT 2010). A step for example m is

    w <- w - eta_t (lam w + weight_m grad H_m(w)),      eta_t = eta_0 / (1 + lam eta_0 t)

with w as a number times a vector, so that a step touches the columns of the example alone. `rate` finds eta_0: the power of two,
in units of 1 / mean |x|^2, with the least sum of H_m over some examples, each taken before its step.

*The diagonal of the Hessian* is bounded along the way. Of column c and state j it is lam + 1/M sum_t weight x_tc^2 p_t(j) (1 -
p_t(j)); features of one position move its scores together, so that x_tc^2 is replaced by |x_tc| |x_t|_1 (a sum of a row of absolute
values bounds the largest eigenvalue), and each position counts with the marginals before its last step. Of a factor's weight it is
the variance of a count, for which the squares of expected minus true counts stand: their mean under the model is the variance.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.errors import OptionError
from maxmargin.jit import kernel
from maxmargin.parallel.threads import map_shards
from maxmargin.problems.factor_graphs import FactorGraphs
from maxmargin.problems.features import KernelFeatures
from maxmargin.problems.layout import offsets
from maxmargin.solvers.oracles.chain_marginals import Chain
from maxmargin.solvers.oracles.expectations import add_blocks
from maxmargin.solvers.oracles.sentences import (
    SentenceRoom,
    Sentences,
    add_curvature,
    add_packed_row,
    count_expected,
    count_truth,
    infer,
    prepare,
    to_blocks,
)

#: States are filled up to a multiple of this, which loops over them count on.
_LANES = 4
#: Examples that a rate is tried on; and how many at a time between two questions whether to stop.
_SAMPLE, _PIECE = 512, 1024
#: Powers of two that a rate is looked for among, up and down.
_POWERS = 12


class PackedChains:
    """The exp-oracle of some chains at temperature 1, for solvers that keep vectors of weights as they are packed here.

    Parameters
    ----------
    problem : FactorGraphs
        For which `packs` is true.
    chain : Chain
    shards : list of (int, int)
        The examples, cut in a way that does not depend on threads.
    """

    def __init__(self, problem: FactorGraphs, chain: Chain, shards: list[tuple[int, int]]) -> None:
        self.problem, self.shards = problem, shards
        a, features = problem.arrays, problem.variable_features
        self.n_states, self.n_columns = problem.n_variable_blocks, features.shape[1]
        self.width = -(-self.n_states // _LANES) * _LANES
        self.cut = self.n_columns * self.width
        self.n_examples = problem.n_examples
        self.n_weights = self.cut + problem.n_weights - self.n_states * self.n_columns
        singles = np.flatnonzero(a.factor_kinds[a.factors.template].arity == 1)
        owner = np.searchsorted(a.structures.factors, singles, side="right") - 1
        self.sentences = Sentences(
            features.arrays, np.ascontiguousarray(a.examples.variables),
            np.ascontiguousarray(a.examples.variable_row), np.ascontiguousarray(a.examples.structure), a.labels, a.weight,
            a.losses.reshape(-1, self.n_states) if a.losses.any() else np.empty((0, self.n_states)),
            offsets(np.bincount(owner, minlength=len(a.structures) - 1)), a.scope[a.factors[singles].neighbours],
            np.ascontiguousarray(a.factor_kinds[a.factors[singles].template].start), problem.factor_features.arrays, chain.row,
            a.factor_block, a.factor_fixed, int(a.factor_kinds[chain.pair].start), self.n_states,
        )  # fmt: skip
        self.sums: list[NDArray[np.float64]] = []
        # Kernels are compiled before any clock starts: called with nothing to do.
        w_v, w_f = np.zeros((0, self.width)), np.zeros((problem.factor_features.shape[1], problem.n_factor_blocks))
        nothing, none, room = np.empty(0, np.int64), np.empty(0), self._room()
        add_sentences(self.sentences, room, w_v, w_f, nothing, w_v, w_f, none)
        visit_sentences(self.sentences, room, w_v, w_f, nothing, np.zeros(3), none, w_v, w_f)

    def packed(self, flat: NDArray[np.float64]) -> NDArray[np.float64]:
        """Flat weights of the problem as they stand here."""
        out = np.zeros(self.n_weights)
        of_variables, of_factors = self.split(out)
        w_v, w_f = self.problem.working_weights(flat)
        of_variables[:, : self.n_states], of_factors[:] = w_v, w_f
        return out

    def flat(self, w: NDArray[np.float64]) -> NDArray[np.float64]:
        """Flat weights of the problem."""
        of_variables, of_factors = self.split(w)
        return self.problem.flat_weights(of_variables[:, : self.n_states], of_factors)

    def split(self, w: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The weights of the variables (columns, width) and of the factors (columns, blocks)."""
        of_factors = w[self.cut :].reshape(self.problem.factor_features.shape[1], -1)
        return w[: self.cut].reshape(self.n_columns, self.width), of_factors

    def mean(self, w: NDArray[np.float64], threads: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The sum over all examples of weight_m E psi_m, which the next call overwrites, and all H_m(w)."""
        if not self.sums:
            # Kept from call to call: memory that is new costs as much as the sums.
            self.sums = [np.empty(self.n_weights) for _ in self.shards]
        values = np.empty(self.n_examples)

        def sum_of(begin: int, end: int) -> None:
            out = self.sums[self.shards.index((begin, end))]
            out[:] = 0.0
            self._add(np.arange(begin, end), w, out, values)

        map_shards(sum_of, self.shards, threads, pausing=True)
        wrong = np.flatnonzero(~np.isfinite(values))
        if len(wrong):
            raise OptionError(
                f"Example {wrong[0]} has a log partition function of {values[wrong[0]]}: its scores are no finite numbers."
            )
        for other in self.sums[1:]:
            self.sums[0] += other
        return self.sums[0], values

    def rate(self, lam: float, order: NDArray[np.int64]) -> tuple[float, int]:
        """The rate eta_0 that is best for some examples, 0 if none is better than no steps; and the examples visited."""
        some, w = order[:_SAMPLE], np.zeros(self.n_weights)
        length = float(np.mean(self.problem.variable_features.arrays.squared_norms))
        unit, n = 1.0 / max(length, 1e-300), 0

        def loss(eta: float) -> float:
            nonlocal n
            n += len(some)
            w[:] = 0.0
            total = self.descend(w, some, min(eta, 0.5 / lam), lam, 0)
            return total if math.isfinite(total) else math.inf

        best, found = loss(0.0), 0.0
        for powers in (range(_POWERS), range(-1, -_POWERS, -1)):
            for power in powers:
                value = loss(unit * 2.0**power)
                if value < best:
                    best, found = value, unit * 2.0**power
                elif found > 0.0 or power >= 0:
                    break
            if found > unit:
                break
        return min(found, 0.5 / lam), n

    def descend(
        self, w: NDArray[np.float64], order: NDArray[np.int64], eta: float, lam: float, begun: int,
        curvature: NDArray[np.float64] | None = None, stop: Callable[[], bool] = lambda: False,
    ) -> float:  # fmt: skip
        """Change w by steps for the examples in order, after `begun` others; returns the sum of weight_m H_m before them.

        Sums that bound the diagonal of the Hessian are added to `curvature`.
        """
        w_v, w_f = self.split(w)
        bent_v, bent_f = (np.empty((0, 0)),) * 2 if curvature is None else self.split(curvature)
        scale, total, room = np.ones(1), 0.0, self._room()
        for low in range(0, len(order), _PIECE):
            if low and stop():
                break
            total += visit_sentences(
                self.sentences, room, w_v, w_f, order[low : low + _PIECE], np.array([eta, lam, begun + low]), scale, bent_v,
                bent_f,
            )  # fmt: skip
        w *= scale[0]
        return total

    def scales(self, curvature: NDArray[np.float64], lam: float) -> NDArray[np.float32]:
        """1 / sqrt of the bounds of the Hessian's diagonal, from the sums of `descend` over all examples."""
        data = self.problem.variable_features.arrays.data
        entries = len(self.problem.variable_features.arrays.indices)
        # Factors move the scores of positions together with the features there.
        a_row = (float(np.abs(data).sum()) if len(data) else entries) / self.problem.variable_features.shape[0]
        self.split(curvature)[1][:] *= 1.0 + a_row
        return (1.0 / np.sqrt(lam + np.abs(curvature) / self.n_examples)).astype(np.float32)

    def _add(self, chosen: NDArray[np.int64], w: NDArray[np.float64], out: Any, values: Any) -> None:
        """Add weight_m E psi_m of some examples to out, and fill their values."""
        add_sentences(self.sentences, self._room(), *self.split(w), chosen, *self.split(out), values)

    def _room(self) -> SentenceRoom:
        length, width = self.problem.arrays.largest.variables, self.width
        joint, power = len(self.sentences.block), np.zeros(width)
        theta, emit, ahead, back = (np.zeros((length, width)) for _ in range(4))
        rising, falling, together = (np.zeros((width, width)) for _ in range(3))
        return SentenceRoom(
            theta, emit, ahead, back, np.zeros(length), np.zeros(width), power, power.view(np.int64), rising, falling, together,
            np.zeros(joint), np.zeros(joint), np.zeros(self.problem.n_factor_blocks),
        )  # fmt: skip


def packs(problem: FactorGraphs, chain: Chain) -> bool:
    """Whether every position has a sparse row of features of its own, and its states the same blocks in their order."""
    features, groups, a = problem.variable_features, problem.arrays.variable_groups, problem.arrays
    if not chain.plain or isinstance(features, KernelFeatures) or not features.sparse:
        return False
    template = problem.variable_templates[0]
    if len(problem.variable_templates) > 1 or len(template.blocks) != problem.n_variable_blocks or len(a.losses) == 0:
        return False
    place = np.concatenate([np.arange(n) for n in np.diff(a.structures.variables)])
    return len(groups) == len(place) and bool((groups.row == place).all() and (groups.first == place).all())


# ------------------------------------------------------------------------------------------------------- kernels


@kernel
def add_sentences(s: Any, room: Any, w_v: Any, w_f: Any, chosen: Any, out_v: Any, out_f: Any, values: Any) -> None:
    """Add weight_m E psi_m of the chosen examples to out, and fill their values."""
    first, labels, weight, row, emit = s.first, s.labels, s.weight, s.row, room.emit
    safe, top = prepare(s, room, w_f, 1.0)
    counts, learned = room.counts, room.learned
    counts[:] = 0.0
    for k in range(len(chosen)):
        m = chosen[k]
        n, share = first[m + 1] - first[m], weight[m]
        values[m] = infer(s, room, m, w_v, 1.0, safe, top)
        if not np.isfinite(values[m]):
            continue
        count_expected(s, room, m, share, counts)
        count_truth(s, m, share, counts)
        for t in range(n):
            emit[t, labels[first[m] + t]] -= 1.0
            add_packed_row(s.features, row[m] + t, out_v, emit[t], -share)
    to_blocks(s.block, counts, learned)
    add_blocks(s.factor_features, s.factor_row, out_f, 0, learned, -1.0)


@kernel
def visit_sentences(
    s: Any, room: Any, w_v: Any, w_f: Any, order: Any, rates: Any, scale: Any, bent_v: Any, bent_f: Any
) -> float:
    """A step for each example; `rates` has eta_0, lam and the steps before, and the weights are scale[0] times w."""
    first, labels, weight, row, emit = s.first, s.labels, s.weight, s.row, room.emit
    counts, learned, total = room.counts, room.learned, 0.0
    for k in range(len(order)):
        m = order[k]
        n = first[m + 1] - first[m]
        safe, top = prepare(s, room, w_f, scale[0])
        value = infer(s, room, m, w_v, scale[0], safe, top)
        total += weight[m] * value
        if not np.isfinite(value):
            return np.inf
        eta = rates[0] / (1.0 + rates[1] * rates[0] * (rates[2] + k))
        scale[0] *= 1.0 - eta * rates[1]
        step = eta * weight[m] / scale[0]
        counts[:] = 0.0
        count_expected(s, room, m, 1.0, counts)
        if len(bent_v) > 0:
            for t in range(n):
                add_curvature(s.features, row[m] + t, bent_v, emit[t], weight[m])
        count_truth(s, m, 1.0, counts)
        to_blocks(s.block, counts, learned)
        add_blocks(s.factor_features, s.factor_row, w_f, 0, learned, -step)
        if len(bent_f) > 0:
            for b in range(len(learned)):
                learned[b] *= learned[b]
            add_blocks(s.factor_features, s.factor_row, bent_f, 0, learned, weight[m])
        for t in range(n):
            emit[t, labels[first[m] + t]] -= 1.0
            add_packed_row(s.features, row[m] + t, w_v, emit[t], -step)
    return total

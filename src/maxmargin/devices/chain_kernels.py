"""Forward-backward and max-product on chains of one GPU, each as one fused kernel of Triton.

The chains have one table of transition scores A (K, K) for all pairs of neighbours. A program takes a share of the chains, one
after the other, in a warp or a few: the table, the messages of a position and the sums over pairs stay in registers, and the
scores of a position are read once and its marginals written once. The longest chains come first, so that none is left over at the
end.

*Sum-product* is that of solvers/oracles/exp_oracle.py: messages are scaled to sum to 1, so that no step takes an exponential of a
transition:

    e_t(j) = exp((theta_t(j) - max_t) / T),      E(i, j) = exp((A(i, j) - max_A) / T)
    a_t(j) = e_t(j) sum_i a_{t-1}(i) E(i, j) / c_t,     q_t(j) = e_t(j) b_t(j) / c_t,     b_{t-1}(i) = sum_j E(i, j) q_t(j)

All of these must be 0, because something is forbidden, or at least `_LEAST`, else a product could underflow; a chain in which one
is smaller has the value NaN, and `cold` is asked for all, which takes logarithms of sums, at any temperature.
"""

# Types of a kernel's parameters are Triton's business.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

#: Most states that fit into registers.
MOST_STATES = 64
#: Least number that products of scaled probabilities are made of.
_LEAST = 1e-60
#: Programs on each multiprocessor of the GPU, and warps of each, for at most 32 states and for more.
_PROGRAMS, _WARPS = 24, (1, 4)


class Chains(NamedTuple):
    """Answers for all chains."""

    #: (M,): the largest score, or T times the log-partition function, less the score of the truth.
    values: Tensor
    #: (V, K): weight times the truth minus marginals; (K, K): weighted sums of the marginals of pairs.
    share: Tensor
    counts: Tensor


class ChainKernels:
    """The kernels for one batch of chains.

    Parameters
    ----------
    first, length : int tensors (M,)
        Where the variables of each chain begin among all, and how many it has.
    weight : float tensor (M,)
    labels : int tensor (V,)
        The truth.
    n_states : int
    """

    def __init__(self, first: Tensor, length: Tensor, weight: Tensor, labels: Tensor, n_states: int) -> None:
        self.order = torch.argsort(length, descending=True, stable=True).int()
        self.first, self.length, self.weight, self.labels = first, length.int(), weight, labels.int()
        self.n, self.n_states = len(first), n_states
        self.width = max(16, triton.next_power_of_2(n_states))
        self.warps, self.programs_each = _WARPS[self.width > 32], _PROGRAMS

    def marginals(self, theta: Tensor, table: Tensor, temperature: float) -> Chains:
        """H_m,T, and the statistics of marginals; values are NaN where something underflowed."""
        factor = torch.exp((table - table.max()) / temperature)
        return self._launch(_sum_product, theta, table, factor, theta.new_empty((2, *theta.shape)), temperature)

    def cold(self, theta: Tensor, table: Tensor, temperature: float) -> Chains:
        """The same at any temperature, by logarithms."""
        return self._launch(_log_sum_product, theta, table, table / temperature, torch.empty_like(theta), temperature)

    def maximise(self, theta: Tensor, table: Tensor) -> Chains:
        """Hinges, and the statistics of the best labelings."""
        return self._launch(_max_product, theta, table, table, torch.empty_like(theta, dtype=torch.uint8), 1.0)

    def _launch(
        self, kernel: Any, theta: Tensor, table: Tensor, factor: Tensor, room: Tensor, temperature: float
    ) -> Chains:
        here = theta.device
        programs = min(self.n, self.programs_each * torch.cuda.get_device_properties(here).multi_processor_count)
        share, values = torch.empty_like(theta), theta.new_empty(self.n)
        counts = theta.new_empty((programs, self.n_states, self.n_states))
        kernel[(programs,)](
            theta, table.contiguous(), factor.contiguous(), share, room, values, counts, self.order, self.first, self.length,
            self.weight, self.labels, self.n, theta.numel(), theta.new_full((1,), temperature), self.n_states, self.width, _LEAST,
            num_warps=self.warps,
        )  # fmt: skip
        return Chains(values, share, counts.sum(0))


@triton.jit
def _truth(theta, table, labels, start, size, K: tl.constexpr, W: tl.constexpr):
    """The score of a chain's truth, W positions at a time."""
    total = tl.zeros((W,), tl.float64)
    for begin in range(0, size, W):
        t = begin + tl.arange(0, W)
        inside, second = t < size, (t < size) & (t > 0)
        y, before = tl.load(labels + start + t, inside, 0), tl.load(labels + start + t - 1, second, 0)
        total += tl.load(theta + (start + t) * K + y, inside, 0.0) + tl.load(table + before * K + y, second, 0.0)
    return tl.sum(total, 0)


@triton.jit
def _sum_product(
    theta, table, factor, share, room, values, counts, order, first, length, weight, labels, n, n_entries, temperature_at,
    K: tl.constexpr, W: tl.constexpr, least: tl.constexpr,
):  # fmt: skip
    # Room for a_t and for e_t / c_t.
    forward, scaled = room, room + n_entries
    temperature = tl.load(temperature_at)
    program, programs = tl.program_id(0), tl.num_programs(0)
    k = tl.arange(0, W)
    here = k < K
    square = here[:, None] & here[None, :]
    at = k[:, None] * K + k[None, :]
    scores, factors = tl.load(table + at, square, float("-inf")), tl.load(factor + at, square, 1.0)
    largest = tl.max(tl.max(scores, 1), 0)
    safe = tl.min(tl.min(tl.where(scores == float("-inf"), 1.0, factors), 1), 0) >= least
    both = tl.zeros((W, W), tl.float64)
    for place in range(program, n, programs):
        m = tl.load(order + place)
        start, size, own = tl.load(first + m), tl.load(length + m), tl.load(weight + m)
        value = (size - 1) * largest - _truth(theta, table, labels, start, size, K, W)
        smallest = tl.full((W,), 1.0, tl.float64)
        # Read again for every chain: both ways round at once would not fit into registers.
        E = tl.load(factor + at, square, 0.0)
        a = tl.zeros((W,), tl.float64)
        # Scores are asked for a position ahead: the way to memory takes longer than a step.
        following = tl.load(theta + start * K + k, here, float("-inf"))
        for t in range(size):
            row = (start + t) * K + k
            score = following
            following = tl.load(theta + row + K, here & (t + 1 < size), float("-inf"))
            top = tl.max(score, 0)
            e = tl.exp((score - top) / temperature)
            smallest = tl.minimum(smallest, tl.where(score == float("-inf"), 1.0, e))
            if t > 0:
                a = tl.sum(a[:, None] * E, 0) * e
            else:
                a = e
            c = tl.sum(a, 0)
            a = a * (1.0 / c)
            smallest = tl.minimum(smallest, tl.where(a == 0.0, 1.0, a))
            value += tl.log(c) * temperature + top
            tl.store(forward + row, a, here)
            tl.store(scaled + row, e * (1.0 / c), here)
        tl.debug_barrier()
        E = tl.load(factor + k[None, :] * K + k[:, None], square, 0.0)
        b = tl.full((W,), 1.0, tl.float64)
        last = (start + size - 1) * K + k
        before, emitted = tl.load(forward + last, here, 0.0), tl.load(scaled + last, here, 0.0)
        for back in range(size):
            row = last - back * K
            y = tl.load(labels + start + size - 1 - back)
            now, q = before, emitted * b
            more = here & (back < size - 1)
            before, emitted = tl.load(forward + row - K, more, 0.0), tl.load(scaled + row - K, more, 0.0)
            tl.store(share + row, own * (tl.where(k == y, 1.0, 0.0) - now * b), here)
            # Before the first position there is nothing: all zeros.
            both += (own * before)[:, None] * q[None, :]
            if back < size - 1:
                b = tl.sum(E * q[:, None], 0)
                smallest = tl.minimum(smallest, tl.where(b == 0.0, 1.0, b))
        tl.store(values + m, tl.where(safe & (tl.min(smallest, 0) >= least), value, float("nan")))
    E = tl.load(factor + at, square, 0.0)
    tl.store(counts + program * K * K + at, both * E, square)


@triton.jit
def _log_sum_product(
    theta, table, factor, share, forward, values, counts, order, first, length, weight, labels, n, n_entries, temperature_at,
    K: tl.constexpr, W: tl.constexpr, least: tl.constexpr,
):  # fmt: skip
    temperature = tl.load(temperature_at)
    program, programs = tl.program_id(0), tl.num_programs(0)
    k = tl.arange(0, W)
    here = k < K
    square = here[:, None] & here[None, :]
    at = k[:, None] * K + k[None, :]
    both = tl.zeros((W, W), tl.float64)
    for place in range(program, n, programs):
        m = tl.load(order + place)
        start, size, own = tl.load(first + m), tl.load(length + m), tl.load(weight + m)
        A = tl.load(factor + at, square, float("-inf"))
        a = tl.zeros((W,), tl.float64)
        for t in range(size):
            row = (start + t) * K + k
            score = tl.load(theta + row, here, float("-inf")) / temperature
            if t > 0:
                x = a[:, None] + A
                best = tl.max(x, 0)
                best = tl.where(best == float("-inf"), 0.0, best)
                a = score + best + tl.log(tl.sum(tl.exp(x - best[None, :]), 0))
            else:
                a = score
            tl.store(forward + row, a, here)
        tl.debug_barrier()
        top = tl.max(a, 0)
        value = top + tl.log(tl.sum(tl.exp(a - top), 0))
        # Scores of all that comes after a position.
        A = tl.load(factor + k[None, :] * K + k[:, None], square, float("-inf"))
        b = tl.zeros((W,), tl.float64)
        for back in range(size):
            row = (start + size - 1 - back) * K + k
            y = tl.load(labels + start + size - 1 - back)
            a = tl.load(forward + row, here, float("-inf"))
            tl.store(share + row, own * (tl.where(k == y, 1.0, 0.0) - tl.exp(a + b - value)), here)
            if back < size - 1:
                after = tl.load(theta + row, here, float("-inf")) / temperature + b
                before = tl.load(forward + row - K, here, float("-inf"))
                x = A + after[:, None]
                # Turned: rows are the later position's.
                both += own * tl.exp(before[None, :] + x - value)
                best = tl.max(x, 0)
                best = tl.where(best == float("-inf"), 0.0, best)
                b = best + tl.log(tl.sum(tl.exp(x - best[None, :]), 0))
        truth = _truth(theta, table, labels, start, size, K, W)
        tl.store(values + m, value * temperature - truth)
    tl.store(counts + program * K * K + k[None, :] * K + k[:, None], both, square)


@triton.jit
def _max_product(
    theta, table, factor, share, pointers, values, counts, order, first, length, weight, labels, n, n_entries, temperature_at,
    K: tl.constexpr, W: tl.constexpr, least: tl.constexpr,
):  # fmt: skip
    program, programs = tl.program_id(0), tl.num_programs(0)
    k = tl.arange(0, W)
    here = k < K
    square = here[:, None] & here[None, :]
    at = k[:, None] * K + k[None, :]
    both = tl.zeros((W, W), tl.float64)
    for place in range(program, n, programs):
        m = tl.load(order + place)
        start, size, own = tl.load(first + m), tl.load(length + m), tl.load(weight + m)
        A = tl.load(table + at, square, float("-inf"))
        a = tl.zeros((W,), tl.float64)
        following = tl.load(theta + start * K + k, here, float("-inf"))
        for t in range(size):
            row = (start + t) * K + k
            score = following
            following = tl.load(theta + row + K, here & (t + 1 < size), float("-inf"))
            if t > 0:
                x = a[:, None] + A
                best = tl.max(x, 0)
                # The first of several, as on the processor.
                which = tl.min(tl.where(x == best[None, :], k[:, None], W - 1), 0)
                tl.store(pointers + row, which.to(tl.uint8), here)
                a = best + score
            else:
                a = score
        value = tl.max(a, 0)
        found = tl.min(tl.where(a == value, k, W - 1), 0)
        tl.store(values + m, value - _truth(theta, table, labels, start, size, K, W))
        tl.debug_barrier()
        for back in range(size):
            row = (start + size - 1 - back) * K
            y = tl.load(labels + start + size - 1 - back)
            tl.store(share + row + k, own * (tl.where(k == y, 1.0, 0.0) - tl.where(k == found, 1.0, 0.0)), here)
            if back < size - 1:
                before = tl.load(pointers + row + found).to(tl.int32)
                both += own * ((k[:, None] == before) & (k[None, :] == found)).to(tl.float64)
                found = before
    tl.store(counts + program * K * K + at, both, square)

"""Forward-backward on one chain of packed features: the inner loops of packed_chains.py.

States are filled up to a whole number of vector instructions. A state that fills up has the score -inf, hence no mass. The
recursions are those of exp_oracle.py at temperature 1, and where a number would be too small, those relative to the best way on.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.jit import Struct, inner, reordering
from maxmargin.problems.features import FeatureArrays, entry, score_row
from maxmargin.solvers.oracles.chain_marginals import LEAST, relative_backward, relative_forward

#: Of `exponentials`: the least exponent; 1 / log 2, and log 2 as a number with few bits and the rest; 1.5 * 2^52 and the bias of a
#: double's exponent.
_LOWEST, _LOG2_E, _LOG_2, _LOG_2_REST = (
    -690.0,
    1.4426950408889634,
    6.93147180369123816490e-01,
    1.90821492927058770002e-10,
)
_SHIFT = 6755399441055744.0 + 1023.0


class Sentences(Struct):
    """What kernels read of the chains."""

    features: FeatureArrays
    #: (M+1,): the first position of each example, and its first row of features.
    first: NDArray[np.int64]
    row: NDArray[np.int64]
    structure: NDArray[np.int64]
    labels: NDArray[np.int32]
    weight: NDArray[np.float64]
    #: (positions, K), or none.
    losses: NDArray[np.float64]
    #: Factors of one variable: where those of each structure begin, their positions, and where their templates' scores begin.
    first_single: NDArray[np.int64]
    single_at: NDArray[np.int64]
    single_start: NDArray[np.int64]
    #: The features of the factors, the row that all read, and the blocks and fixed scores of all templates' joint states.
    factor_features: FeatureArrays
    factor_row: int
    block: NDArray[np.int32]
    fixed: NDArray[np.float64]
    #: Where the scores of the transitions begin, and the states.
    pair: int
    n_states: int


class SentenceRoom(Struct):
    """Room for one example, with padded states, and for what all share."""

    theta: NDArray[np.float64]
    emit: NDArray[np.float64]
    ahead: NDArray[np.float64]
    back: NDArray[np.float64]
    norm: NDArray[np.float64]
    message: NDArray[np.float64]
    #: Powers of two, and their bits.
    power: NDArray[np.float64]
    bits: NDArray[np.int64]
    #: Exponentials of the transitions, the same transposed, and the expected transitions of an example.
    rising: NDArray[np.float64]
    falling: NDArray[np.float64]
    together: NDArray[np.float64]
    #: Scores of all factor templates, and changes of them and of their blocks.
    scores: NDArray[np.float64]
    counts: NDArray[np.float64]
    learned: NDArray[np.float64]


# ------------------------------------------------------------------------------------------------------- kernels


@inner
def prepare(s: Any, room: Any, w_f: Any, scale: float) -> Any:
    """Fill the scores of all factor templates and the exponentials; returns whether none is too small, and the largest score."""
    n, pair, block, fixed = s.n_states, s.pair, s.block, s.fixed
    scores, learned, rising, falling = room.scores, room.learned, room.rising, room.falling
    score_row(s.factor_features, s.factor_row, w_f, 0, len(learned), learned, 0)
    for y in range(len(block)):
        scores[y] = fixed[y] + (scale * learned[block[y]] if block[y] >= 0 else 0.0)
    top, safe = -np.inf, True
    for y in range(pair, pair + n * n):
        top = max(top, scores[y])
    for i in range(n):
        for j in range(n):
            score = scores[pair + i * n + j]
            value = np.exp(score - top) if score > -np.inf else 0.0
            rising[i, j], falling[j, i] = value, value
            # Not true of NaN either.
            safe = safe and (value >= LEAST or score == -np.inf)
    return safe, top


@inner
def infer(s: Any, room: Any, m: int, w_v: Any, scale: float, safe: bool, top: float) -> float:
    """H_m at scale * w_v; the marginals stand in room.emit, the expected transitions in room.together."""
    first, row0, labels, losses, n_states, pair = s.first[m], s.row[m], s.labels, s.losses, s.n_states, s.pair
    single_at, single_start, shape = s.single_at, s.single_start, s.structure[m]
    theta, scores, together = room.theta, room.scores, room.together
    n = s.first[m + 1] - first
    for t in range(n):
        here = theta[t]
        packed_scores(s.features, row0 + t, w_v, scale, here)
        for y in range(n_states, len(here)):
            here[y] = -np.inf
        if len(losses) > 0:
            for y in range(n_states):
                here[y] += losses[first + t, y]
    for c in range(s.first_single[shape], s.first_single[shape + 1]):
        for y in range(n_states):
            theta[single_at[c], y] += scores[single_start[c] + y]
    value = 0.0
    for t in range(n):
        value -= theta[t, labels[first + t]]
        if t > 0:
            value -= scores[pair + labels[first + t - 1] * n_states + labels[first + t]]
    together[:] = 0.0
    log_partition = forward(room, n) if safe else np.nan
    if np.isnan(log_partition) or not backward(room, n):
        return float(value + relative(room, n, n_states, pair))
    for t in range(1, n):
        add_product(together, room.ahead[t - 1], room.back[t])
    rising = room.rising
    for i in range(n_states):
        for j in range(n_states):
            together[i, j] *= rising[i, j]
    return float(value + log_partition + (n - 1) * top)


@inner
def count_expected(s: Any, room: Any, m: int, share: float, counts: Any) -> None:
    """Add share times the expected joint states of example m to counts; room.emit holds the marginals."""
    n_states, pair, shape = s.n_states, s.pair, s.structure[m]
    single_at, single_start, emit, together = s.single_at, s.single_start, room.emit, room.together
    for i in range(n_states):
        for j in range(n_states):
            counts[pair + i * n_states + j] += share * together[i, j]
    for c in range(s.first_single[shape], s.first_single[shape + 1]):
        for y in range(n_states):
            counts[single_start[c] + y] += share * emit[single_at[c], y]


@inner
def count_truth(s: Any, m: int, share: float, counts: Any) -> None:
    """Take share times the true joint states of example m from counts."""
    first, labels, n_states, shape = s.first[m], s.labels, s.n_states, s.structure[m]
    for t in range(first + 1, s.first[m + 1]):
        counts[s.pair + labels[t - 1] * n_states + labels[t]] -= share
    for c in range(s.first_single[shape], s.first_single[shape + 1]):
        counts[s.single_start[c] + labels[first + s.single_at[c]]] -= share


@inner
def to_blocks(block: Any, counts: Any, out: Any) -> None:
    """The sums of counts by block."""
    out[:] = 0.0
    for y in range(len(block)):
        if block[y] >= 0:
            out[block[y]] += counts[y]


@inner
def forward(room: Any, n: int) -> float:
    """Fill emit, ahead and norm; returns the log partition function but for the transitions' largest score, or NaN."""
    theta, emit, ahead, norm, rising = room.theta, room.emit, room.ahead, room.norm, room.rising
    power, bits = room.power, room.bits
    log_partition = 0.0
    for t in range(n):
        scores, e, here = theta[t], emit[t], ahead[t]
        top = largest_of(scores)
        # Not true of NaN either.
        if not top > -np.inf or exponentials(scores, top, e, power, bits) > 0:
            return np.nan
        if t == 0:
            for y in range(len(e)):
                here[y] = 1.0
        else:
            times_matrix(ahead[t - 1], rising, here)
        mass, small = multiply(here, e), 0
        if not mass > 0.0:
            return np.nan
        share = 1.0 / mass
        for y in range(len(e)):
            here[y] *= share
        for y in range(len(e)):
            small += (here[y] > 0.0) & (here[y] < LEAST)
        if small > 0:
            return np.nan
        norm[t] = share
        log_partition += top + np.log(mass)
    return log_partition


@inner
def backward(room: Any, n: int) -> bool:
    """Fill back, and the marginals into emit; False if a number is too small."""
    emit, ahead, back, norm, b, falling = room.emit, room.ahead, room.back, room.norm, room.message, room.falling
    for y in range(len(b)):
        b[y] = 1.0
    for t in range(n - 1, -1, -1):
        e, here, sent, share, small = emit[t], ahead[t], back[t], norm[t], 0
        for y in range(len(b)):
            # What cannot be reached does not send, or it would grow without bound.
            b[y] = b[y] if here[y] > 0.0 else 0.0
        for y in range(len(b)):
            small += (b[y] > 0.0) & (b[y] < LEAST)
        for y in range(len(b)):
            sent[y] = e[y] * b[y] * share
            e[y] = here[y] * b[y]
        if small > 0:
            return False
        if t > 0:
            times_matrix(sent, falling, b)
    return True


@inner
def exponentials(scores: Any, top: float, out: Any, power: Any, bits: Any) -> int:
    """out[y] = exp(scores[y] - top); returns how many are too small, and not forbidden.

    As 2^k exp(r) with |r| <= log(2) / 2 and thirteen terms of the series: some 1e-16 in error, and all vector instructions, which
    a call of the library is not. Adding `_SHIFT` rounds to a whole number, which then stands in the last bits.
    """
    for y in range(len(out)):
        x = max(scores[y] - top, _LOWEST)
        shifted = x * _LOG2_E + _SHIFT
        power[y] = shifted
        k = shifted - _SHIFT
        r = (x - k * _LOG_2) - k * _LOG_2_REST
        p = 1.0 / 6227020800.0
        p = 1.0 / 479001600.0 + r * p
        p = 1.0 / 39916800.0 + r * p
        p = 1.0 / 3628800.0 + r * p
        p = 1.0 / 362880.0 + r * p
        p = 1.0 / 40320.0 + r * p
        p = 1.0 / 5040.0 + r * p
        p = 1.0 / 720.0 + r * p
        p = 1.0 / 120.0 + r * p
        p = 1.0 / 24.0 + r * p
        p = 1.0 / 6.0 + r * p
        p = 0.5 + r * p
        p = 1.0 + r * p
        out[y] = 1.0 + r * p
    small = 0
    for y in range(len(out)):
        bits[y] = bits[y] << 52
    for y in range(len(out)):
        out[y] = out[y] * power[y] if scores[y] > -np.inf else 0.0
        small += (out[y] < LEAST) & (scores[y] > -np.inf)
    return small


@inner
def largest_of(vector: Any) -> float:
    """The largest number; four running maxima, since one would wait for itself."""
    a = b = c = d = -np.inf
    for y in range(0, len(vector), 4):
        a, b = max(a, vector[y]), max(b, vector[y + 1])
        c, d = max(c, vector[y + 2]), max(d, vector[y + 3])
    return max(max(a, b), max(c, d))


@reordering
def multiply(vector: Any, by: Any) -> float:
    """Multiply the numbers of a vector by others; returns their sum."""
    total = 0.0
    for y in range(len(vector)):
        vector[y] *= by[y]
        total += vector[y]
    return total


@inner
def relative(room: Any, n: int, n_states: int, pair: int) -> float:
    """Marginals into emit and together, and the log partition function, relative to the best way to go on."""
    size = n_states * n_states
    theta, scores, emit = room.theta[:n, :n_states].copy(), room.scores, room.emit
    transitions = scores[pair : pair + size].copy().reshape((n_states, n_states))
    ahead, a, marginals = np.empty((n, n_states)), np.empty((n, n_states)), np.empty((n, n_states))
    norm, b, counts, ends = np.empty(n), np.empty(n_states), np.zeros(size), np.empty(n + 1, np.int64)
    kept, share_of = np.empty(n * size, np.int32), np.empty(n * size)
    value = relative_forward(
        n, theta, 1.0, transitions, transitions.T.copy(), ahead, a, norm, kept, share_of, ends
    )  # fmt: skip
    relative_backward(n, a, norm, kept, share_of, ends, marginals, b, 1.0, counts)
    for t in range(n):
        for y in range(n_states):
            emit[t, y] = marginals[t, y]
    for i in range(n_states):
        for j in range(n_states):
            room.together[i, j] = counts[i * n_states + j]
    return value  # type: ignore[no-any-return]


@reordering
def packed_scores(features: Any, row: int, w: Any, scale: float, out: Any) -> None:
    """Out = scale * x_row w, of all states; two features at a time halve the traffic of `out`."""
    indptr, indices, data = features.indptr, features.indices, features.data
    for y in range(len(out)):
        out[y] = 0.0
    k, end = indptr[row], indptr[row + 1]
    while k + 2 <= end:
        one, two, x, z = w[indices[k]], w[indices[k + 1]], scale * entry(data, k), scale * entry(data, k + 1)
        for y in range(len(out)):
            out[y] += x * one[y] + z * two[y]
        k += 2
    if k < end:
        one, x = w[indices[k]], scale * entry(data, k)
        for y in range(len(out)):
            out[y] += x * one[y]


@reordering
def add_packed_row(features: Any, row: int, out: Any, moved: Any, scale: float) -> None:
    """Weights of all states += scale * x_row moved."""
    indptr, indices, data = features.indptr, features.indices, features.data
    for k in range(indptr[row], indptr[row + 1]):
        to, x = out[indices[k]], scale * entry(data, k)
        for y in range(len(moved)):
            to[y] += x * moved[y]


@reordering
def add_curvature(features: Any, row: int, out: Any, marginals: Any, weight: float) -> None:
    """Add weight |x| |x_row|_1 p (1 - p)."""
    indptr, indices, data = features.indptr, features.indices, features.data
    length = 0.0
    for k in range(indptr[row], indptr[row + 1]):
        length += abs(entry(data, k))
    for k in range(indptr[row], indptr[row + 1]):
        to, x = out[indices[k]], weight * length * abs(entry(data, k))
        for y in range(len(marginals)):
            to[y] += x * (marginals[y] - marginals[y] * marginals[y])


@reordering
def times_matrix(vector: Any, matrix: Any, out: Any) -> None:
    """out[j] = sum_i vector[i] matrix[i, j], four rows at a time."""
    for j in range(len(out)):
        out[j] = 0.0
    for i in range(0, len(vector), 4):
        a, b, c, d = matrix[i], matrix[i + 1], matrix[i + 2], matrix[i + 3]
        w, x, y, z = vector[i], vector[i + 1], vector[i + 2], vector[i + 3]
        for j in range(len(out)):
            out[j] += w * a[j] + x * b[j] + y * c[j] + z * d[j]


@reordering
def add_product(matrix: Any, left: Any, right: Any) -> None:
    """Matrix += left right^T."""
    for i in range(len(left)):
        to, x = matrix[i], left[i]
        for j in range(len(right)):
            to[j] += x * right[j]

"""Which examples a pass visits: random numbers that resume, and sampling in proportion to gaps.

A run has one seed; pass k draws from ``default_rng([seed, purpose, k])``, so that a run that is resumed draws what it would
have drawn.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.errors import OptionError
from maxmargin.jit import inner

#: Share of a pass that is sampled uniformly, whatever the gaps.
_UNIFORM_SHARE = 0.2
#: Bytes of features on disk that are visited together.
_BLOCK_BYTES = 64 << 20


def seed_of(random_state: Any) -> int:
    """A seed from a whole number, a generator, or None (different every time)."""
    if random_state is None:
        return int(np.random.default_rng().integers(2**31))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    if isinstance(random_state, bool) or not isinstance(random_state, int | np.integer) or random_state < 0:
        raise OptionError(
            f"random_state={random_state!r} is not possible; use a whole number from 0, a generator or None."
        )
    return int(random_state)


def draw_examples(
    gaps: NDArray[np.float64], weight: NDArray[np.float64], rng: np.random.Generator, by_gap: bool
) -> NDArray[np.int64]:
    """The examples of a pass in random order, each once or drawn in proportion to their gaps; those without weight are left out."""
    if by_gap:
        # Gaps that nothing is known of are infinite, also those that have no weight.
        shares = np.multiply(gaps, weight, out=np.zeros_like(gaps), where=weight > 0.0)
        return rng.permutation(sample_by_gap(shares, rng, weight > 0.0))
    live = np.flatnonzero(weight > 0.0)
    return rng.permutation(len(weight) if len(live) == len(weight) else live)


def near_each_other(
    order: NDArray[np.int64], features: Any, n_examples: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """The same examples, those whose rows are near each other on disk together, in blocks that come in random order.

    Rows in memory stay as they are drawn, and so do rows on disk that are no more than a block.
    """
    if not getattr(features, "on_disk", False):
        return order
    n_blocks = -(-features.nbytes // _BLOCK_BYTES)
    if n_blocks <= 1:
        return order
    size = -(-n_examples // n_blocks)
    rank = rng.permutation(n_blocks)
    return order[np.argsort(rank[order // size], kind="stable")]


def sample_by_gap(gaps: NDArray[np.float64], rng: np.random.Generator, live: NDArray[np.bool_]) -> NDArray[np.int64]:
    """As many examples as are live, drawn in proportion to gaps (systematic sampling: the least variance), a part uniformly."""
    gaps = np.maximum(gaps, 0.0)  # rounding leaves a settled example a hair below
    n, total = len(gaps), float(gaps.sum())
    alive = int(np.count_nonzero(live))
    if not (math.isfinite(total) and total > 0.0):
        return np.arange(n) if alive == n else np.flatnonzero(live)
    share = _UNIFORM_SHARE / alive + (1.0 - _UNIFORM_SHARE) * gaps / total
    if alive < n:
        share *= live
    edges = np.concatenate([[0.0], np.cumsum(share) * alive]) + rng.random()
    count: NDArray[np.int64] = np.diff(np.floor(edges)).astype(np.int64)
    return np.repeat(np.arange(n), count)


@inner
def shuffle(values: Any, n: int, random: int) -> int:
    """Put the first n values in random order, by a random number between 0 and 2^31 - 1; returns the next one.

    Park and Miller's generator, x <- 48271 x mod 2^31 - 1: inside a compiled loop there is no other that resumes.
    """
    for k in range(n - 1, 0, -1):
        random = random * 48271 % 2147483647
        other = (random * (k + 1)) >> 31
        values[k], values[other] = values[other], values[k]
    return random

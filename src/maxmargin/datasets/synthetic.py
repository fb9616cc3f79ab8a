"""The two synthetic multi-label data sets of Finley and Joachims (ICML 2008, section 5.1).

Conventions
-----------
Every function returns ``(X, Y)`` with features float64 and labels int8 of zeros and ones, and depends on nothing but
its arguments: the same integer seed gives the same data.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from maxmargin.errors import OptionError


def make_synth1(
    n_samples: int = 471, random_state: int | np.random.Generator | None = 0
) -> tuple[csr_array[np.float64], NDArray[np.int8]]:
    """Make Synth1: six labels in a chain, each with a thousand features of its own.

    Label 1 is always on; label i is on half the time label i-1 is on, and never otherwise. If label i is on, a random
    10 of its 1000 features are set to 1. The features of label i are the columns ``1000 (i-1)`` to ``1000 i - 1``: that
    the learner does not know this is a property of the learner, so the columns are not shuffled.

    Parameters
    ----------
    n_samples : int
        The number of examples.
    random_state : int, Generator or None
        The seed, or the generator to draw from; None is different every time.

    Returns
    -------
    X : csr_array of float64, shape (n_samples, 6000)
        The binary features.
    Y : ndarray of int8, shape (n_samples, 6)
        The labels.
    """
    rng = _generator(n_samples, random_state)
    n_labels, n_own, n_set = 6, 1000, 10
    coins = rng.integers(0, 2, size=(n_samples, n_labels), dtype=np.int8)
    coins[:, 0] = 1
    Y = np.multiply.accumulate(coins, axis=1, dtype=np.int8)
    rows, labels = np.nonzero(Y)
    # Floyd's sampling without replacement, one draw a step for all pairs (example, label) at once.
    chosen = np.empty((len(rows), n_set), dtype=np.int64)
    for step, last in enumerate(range(n_own - n_set, n_own)):
        draw = rng.integers(0, last + 1, size=len(rows))
        taken = (chosen[:, :step] == draw[:, None]).any(axis=1)
        chosen[:, step] = np.where(taken, last, draw)
    chosen.sort(axis=1)
    columns = (chosen + n_own * labels[:, None]).ravel().astype(np.int32)
    row_ends = np.cumsum(n_set * Y.sum(axis=1, dtype=np.int64))
    indptr = np.concatenate([[0], row_ends]).astype(np.int32)
    return csr_array((np.ones(len(columns)), columns, indptr), shape=(n_samples, n_labels * n_own)), Y


def make_synth2(
    n_samples: int = 1000, random_state: int | np.random.Generator | None = 0
) -> tuple[NDArray[np.float64], NDArray[np.int8]]:
    """Make Synth2: ten labels of which exactly one is on, and forty features.

    The label that is on is uniform over the ten. If it is label i (from 1), ``4 i`` randomly chosen features are set
    to 1, so that only the number of features tells the label.

    Parameters
    ----------
    n_samples : int
        The number of examples.
    random_state : int, Generator or None
        The seed, or the generator to draw from; None is different every time.

    Returns
    -------
    X : ndarray of float64, shape (n_samples, 40)
        The binary features.
    Y : ndarray of int8, shape (n_samples, 10)
        The labels.
    """
    rng = _generator(n_samples, random_state)
    label = rng.integers(0, 10, size=n_samples)
    ranks = rng.permuted(np.broadcast_to(np.arange(40), (n_samples, 40)), axis=1)
    X = (ranks < 4 * (label + 1)[:, None]).astype(np.float64)
    Y = (label[:, None] == np.arange(10)).astype(np.int8)
    return X, Y


def _generator(n_samples: int, random_state: int | np.random.Generator | None) -> np.random.Generator:
    if n_samples < 1:
        raise OptionError(f"n_samples is {n_samples}; expected at least 1.")
    if isinstance(random_state, int | np.integer) and random_state < 0:
        raise OptionError(f"random_state is {random_state}; expected a nonnegative integer, a Generator or None.")
    return np.random.default_rng(random_state)

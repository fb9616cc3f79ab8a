"""Low-rank kernels: k basis functions in the place of all training rows.

T. Joachims, T. Finley and C.-N. Yu, Cutting-Plane Training of Structural SVMs, Machine Learning 77, 2009, section
3.3 (OP8 and OP9).

With basis vectors b_1 .. b_k, their kernel matrix K_bb and k_b(x) = (k(x, b_1), ..., k(x, b_k)), a row x becomes

    phi(x) = S^(-1/2) U' k_b(x),     K_bb = U S U',  without the directions whose eigenvalue is below 1e-10 of the largest

the coordinates of x's projection onto what the basis spans: |phi(x)|^2 <= k(x, x), with equality for the basis itself. OP8 has
the inverse Cholesky factor of K_bb in the place of S^(-1/2) U'; that is a rotation, which no norm notices, but it does not exist
where basis vectors repeat each other. On phi, n rows of at most k features, every solver of linear weights w works as it is, and

    score(x) = w . phi(x) + intercept = sum_j beta_j k(x, b_j) + intercept,     beta = U S^(-1/2) w

so that prediction needs the basis and nothing else of the training data.

How the basis is chosen
-----------------------
"cholesky"   greedily: the row with the largest rest, k(x, x) - |phi(x)|^2 over the rows chosen so far, until there is no rest.
             O(n k^2), with (k, n) numbers held. Follows the data to its corners.
"random"     rows drawn without replacement. Follows the density.
"k-means"    centres of clusters of rows, or the rows nearest to them if the kernel is a function, which may not know what to
             do with a mean of rows. What "auto" takes where there are rows: with 500 basis functions on OCR letters it left
             12.9 % wrong, random rows 13.7 %, greedy ones 14.8 % (benchmarks/kernels.py).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import pairwise_distances_argmin

from maxmargin.problems.features import Features

BASES = ("auto", "cholesky", "random", "k-means")
#: Directions, and rests of rows, that are as small as this share of the largest are rounding.
_NOTHING = 1e-10
#: Kernel columns asked for at a time; a call costs as much as some columns.
_BATCH = 16


class BasisFeatures(Features):
    """The training rows in the coordinates of a basis, which it holds for prediction.

    Parameters
    ----------
    matrix : array (n, r), or (n, r + 1) with a last column of ones
    vectors : array or CSR matrix (k, p), or None with a precomputed kernel
    rows : int array (k,), or None
        Which training rows the basis is, if it is made of some.
    mapping : array (k, r)
        U S^(-1/2).
    residual : float
        Mean rest of the rows, as a share of the mean k(x, x).
    """

    def __init__(
        self,
        matrix: NDArray[np.float64],
        vectors: Any,
        rows: NDArray[np.int64] | None,
        mapping: NDArray[np.float64],
        residual: float,
        name: str,
    ) -> None:
        super().__init__(matrix, name)
        self.vectors, self.rows, self.mapping, self.residual = vectors, rows, mapping, residual


def coordinates(gram: NDArray[np.float64]) -> NDArray[np.float64]:
    """U S^(-1/2) (k, r) of the basis' own kernel matrix."""
    values, vectors = scipy.linalg.eigh(gram)
    kept = values > _NOTHING * max(float(values[-1]), 0.0)
    kept[-1] = True
    length = np.sqrt(np.maximum(values[kept], np.finfo(float).tiny))
    return np.ascontiguousarray((vectors[:, kept] / length)[:, ::-1])


def greedy_rows(
    columns: Callable[[NDArray[np.int64]], NDArray[np.float64]], diagonal: NDArray[np.float64], k: int
) -> NDArray[np.int64]:
    """At most k rows by pivoted Cholesky; `columns(rows)` is the kernel (n, len(rows)) between all rows and these."""
    factor = np.empty((k, len(diagonal)))
    rest, least = diagonal.copy(), _NOTHING * float(diagonal.max())
    chosen: list[int] = []
    near: dict[int, NDArray[np.float64]] = {}
    for j in range(k):
        row = int(rest.argmax())
        if rest[row] <= least:
            break
        if row not in near:
            # The next rows are mostly among those whose rest is the largest now; of equal rests, these may be others.
            batch = np.union1d(row, np.argpartition(rest, -min(_BATCH, len(rest)))[-_BATCH:])
            near = dict(zip(batch.tolist(), columns(batch).T, strict=True))
        factor[j] = (near[row] - factor[:j, row] @ factor[:j]) / np.sqrt(rest[row])
        rest -= factor[j] ** 2
        chosen.append(row)
        rest[chosen] = 0.0
    # Of a kernel that is 0 everywhere no row is better than another.
    return np.array(chosen or [0], np.int64)


def cluster_centres(X: Any, k: int, seed: int) -> NDArray[np.float64]:
    """Centres (k, p) of clusters of rows."""
    from sklearn.cluster import MiniBatchKMeans

    rows = X
    if sp.issparse(X):
        csr: Any = X
        # scikit-learn's clusters take indices of 32 bits only.
        rows = sp.csr_array((csr.data, csr.indices.astype(np.int32), csr.indptr.astype(np.int32)), shape=csr.shape)
    with warnings.catch_warnings():
        # Fewer different rows than clusters make centres that repeat, and `coordinates` drops those.
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = MiniBatchKMeans(k, random_state=seed % 2**32, n_init=1, batch_size=max(1024, 2 * k)).fit(rows)
    return np.ascontiguousarray(found.cluster_centers_, np.float64)


def nearest_rows(X: Any, centres: NDArray[np.float64]) -> NDArray[np.int64]:
    """The row nearest to each centre, each row once."""
    return np.unique(pairwise_distances_argmin(centres.astype(X.dtype), X)).astype(np.int64)

"""Feature rows as a model sees them: with a constant column, or, with a kernel, by their inner products.

Conventions
-----------
With ``kernel="linear"`` block b of the weights is ``(coef_[b], intercept_[b])``, over the columns and a last column of ones.
With any other kernel k it is a sum over the N rows of the training data, of which those that count are the support:

    w_b = sum_r dual_coef_[b, r] phi(x_r),     phi(x) . phi(y) = k(x, y) + 1        (without the 1 if fit_intercept=False)
    score_b(x) = sum_r dual_coef_[b, r] k(x, x_r) + intercept_[b],     intercept_[b] = sum_r dual_coef_[b, r]

    "rbf"    k(x, y) = exp(-gamma |x - y|^2)
    "poly"   k(x, y) = (gamma x.y + coef0)^degree
    callable k(X, Y), a matrix with a row for each row of X and a column for each row of Y
    "precomputed"   X is the matrix itself: (N, N) in `fit`, (n, N) afterwards

Training holds k of all pairs of rows, 8 N^2 bytes (`KernelFeatures`). Prediction computes the scores of new rows, some rows at
a time, and the problem gets the scores as its features: block b has the weight 1 for feature b, and no other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.metrics.pairwise import pairwise_kernels

from maxmargin.errors import DataError
from maxmargin.problems.features import Features, KernelFeatures

KERNELS = ("linear", "rbf", "poly", "precomputed")
#: Solvers that leave norms and inner products of weights to the problem, which knows what they are with a kernel.
KERNEL_SOLVERS = ("bcfw", "soft-bcfw")
#: Most bytes of a matrix of all pairs of training rows.
KERNEL_LIMIT = 8 << 30
#: Bytes of the kernel between new rows and the support that prediction holds at a time.
_BLOCK_BYTES = 64 << 20
#: What is there with a kernel, and only then.
_DUAL = ("dual_coef_", "support_", "support_vectors_", "gamma_")


def is_linear(estimator: Any) -> bool:
    """Whether the estimator is for the features themselves."""
    return isinstance(estimator.kernel, str) and estimator.kernel == "linear"


# --------------------------------------------------------------------------------------------------------------------
# Training


def training_rows(estimator: Any, features: Features) -> Features:
    """The rows that the training problem sees."""
    if is_linear(estimator):
        return with_constant(features) if estimator.fit_intercept else features
    n = features.shape[0]
    if 8 * n * n > KERNEL_LIMIT:
        raise DataError(
            f"The kernel matrix of {n} rows takes {8 * n * n} bytes, and the limit is {KERNEL_LIMIT} "
            '(maxmargin.estimators.feature_space.KERNEL_LIMIT). Train on fewer rows, or with kernel="linear".'
        )
    X = features.matrix()
    if estimator.kernel == "precomputed":
        name, gram = features.name, _dense(features)
        if gram.shape != (n, n):
            raise DataError(
                f'{name} has shape {gram.shape}; with kernel="precomputed" it must be the square matrix of the kernel '
                "between all training rows."
            )
    else:
        name, gram = f"the matrix of the kernel {_name(estimator)}", _between(estimator, X, X, _gamma(estimator, X))
    if estimator.fit_intercept:
        # What the user gave, or what a function of the user's may keep, is not ours to change.
        theirs = callable(estimator.kernel) or estimator.kernel == "precomputed"
        gram = np.add(gram, 1.0, out=None if theirs else gram)
    return KernelFeatures(gram, name)


def with_constant(features: Features) -> Features:
    """The features and a last column of ones; CSR stays CSR, float32 stays float32."""
    matrix = features.matrix()
    ones = np.ones((features.shape[0], 1), matrix.dtype)
    if features.sparse:
        return Features(sp.hstack([matrix, sp.csr_array(ones)], format="csr"), features.name)
    return Features(np.hstack([matrix, ones]), features.name)


def keep_support(estimator: Any, features: Features, blocks: NDArray[np.float64]) -> None:
    """After training, keep the rows that any block (blocks, N) makes use of."""
    for name in _DUAL:
        vars(estimator).pop(name, None)
    if is_linear(estimator):
        return
    estimator.support_ = np.flatnonzero(blocks.any(axis=0))
    estimator._n_rows = blocks.shape[1]
    if estimator.kernel != "precomputed":
        X = features.matrix()
        estimator.support_vectors_ = X[estimator.support_]
        if not callable(estimator.kernel):
            estimator.gamma_ = _gamma(estimator, X)


def name_blocks(estimator: Any, n_blocks: int) -> NDArray[np.float64]:
    """Set ``coef_`` (n_blocks, p), or ``dual_coef_`` (n_blocks, support), and ``intercept_``; returns the weights after them."""
    weights: NDArray[np.float64] = estimator.result_.weights
    p, linear = estimator.n_features_in_, is_linear(estimator)
    width = p + int(estimator.fit_intercept) if linear else estimator._n_rows
    blocks = weights[: n_blocks * width].reshape(n_blocks, width)
    estimator.intercept_ = np.zeros(n_blocks)
    if linear:
        estimator.coef_ = blocks[:, :p]
        if estimator.fit_intercept:
            estimator.intercept_ = blocks[:, p]
    else:
        vars(estimator).pop("coef_", None)
        estimator.dual_coef_ = blocks[:, estimator.support_]
        if estimator.fit_intercept:
            estimator.intercept_ = estimator.dual_coef_.sum(axis=1)
    return weights[n_blocks * width :]


# --------------------------------------------------------------------------------------------------------------------
# Prediction


def prediction_rows(estimator: Any, features: Features) -> Features:
    """The rows that a problem to predict sees; `prediction_weights` has the weights that go with them."""
    if is_linear(estimator):
        return with_constant(features) if estimator.fit_intercept else features
    return Features(block_scores(estimator, features), f"the scores by the kernel {_name(estimator)}")


def prediction_weights(estimator: Any) -> NDArray[np.float64]:
    """The flat weights for `prediction_rows`."""
    weights = np.ascontiguousarray(estimator.result_.weights, np.float64)
    if is_linear(estimator):
        return weights
    n_blocks = len(estimator.intercept_)
    return np.concatenate([np.eye(n_blocks).ravel(), weights[n_blocks * estimator._n_rows :]])


def block_scores(estimator: Any, features: Features) -> NDArray[np.float64]:
    """Score of each row under each block, (n, blocks)."""
    if is_linear(estimator):
        return np.asarray(features.matrix() @ estimator.coef_.T + estimator.intercept_)
    precomputed = estimator.kernel == "precomputed"
    X = _dense(features) if precomputed else features.matrix()
    support = estimator.support_
    scores = np.tile(estimator.intercept_, (features.shape[0], 1))
    step = max(1, _BLOCK_BYTES // (8 * max(1, len(support))))
    for first in range(0, len(scores) if len(support) else 0, step):
        rows = X[first : first + step]
        if precomputed:
            near = rows[:, support]
        else:
            near = _between(estimator, rows, estimator.support_vectors_, getattr(estimator, "gamma_", 1.0))
        scores[first : first + step] += near @ estimator.dual_coef_.T
    return scores


# --------------------------------------------------------------------------------------------------------------------
# Kernels


def _between(estimator: Any, X: Any, Y: Any, gamma: float) -> NDArray[np.float64]:
    """The kernel of each row of X with each row of Y."""
    kernel = estimator.kernel
    if not callable(kernel):
        # That both are one and the same object makes the matrix symmetric to the last bit.
        rows = X.astype(np.float64, copy=False)
        columns = rows if X is Y else Y.astype(np.float64, copy=False)
        options = {"gamma": gamma, "degree": int(estimator.degree), "coef0": float(estimator.coef0)}
        # What overflows is found in the matrix.
        with np.errstate(over="ignore"):
            return np.asarray(pairwise_kernels(rows, columns, metric=kernel, filter_params=True, **options), np.float64)
    kind = "CSR matrices" if sp.issparse(X) else "arrays"
    try:
        found: Any = kernel(X, Y)
        values = np.asarray(found.toarray() if hasattr(found, "toarray") else found, np.float64)
    except Exception as error:
        raise DataError(
            f"The kernel {_name(estimator)} failed on {kind} of shapes {X.shape} and {Y.shape}: "
            f"{type(error).__name__}: {error}"
        ) from error
    if values.shape != (X.shape[0], Y.shape[0]):
        raise DataError(
            f"The kernel {_name(estimator)} returned shape {values.shape} for {kind} of shapes {X.shape} and {Y.shape}; "
            f"expected {(X.shape[0], Y.shape[0])}."
        )
    if not np.isfinite(values).all():
        i, j = (int(k) for k in np.argwhere(~np.isfinite(values))[0])
        raise DataError(f"The kernel {_name(estimator)} is {values[i, j]} between rows {i} and {j}; it must be finite.")
    return values


def _gamma(estimator: Any, X: Any) -> float:
    """``gamma``, or 1 / (p variance of all entries of X), as scikit-learn's SVC has it; 1 if nothing varies."""
    if not isinstance(estimator.gamma, str):
        return float(estimator.gamma)
    values = X.astype(np.float64, copy=False)
    variance = float((values.multiply(values)).mean() - values.mean() ** 2 if sp.issparse(X) else values.var())
    return 1.0 / (X.shape[1] * variance) if variance > 0 else 1.0


def _dense(features: Features) -> NDArray[np.float64]:
    if features.sparse:
        raise DataError(
            f'{features.name} is a sparse matrix; with kernel="precomputed" it must be an array, the kernel between rows.'
        )
    return np.asarray(features.matrix(), np.float64)


def _name(estimator: Any) -> str:
    kernel = estimator.kernel
    return kernel if isinstance(kernel, str) else str(getattr(kernel, "__name__", repr(kernel)))

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

Training holds k of all pairs of rows, 8 N^2 bytes (`KernelFeatures`), except for solvers that look at all rows at once: they get
products with the matrix, computed tile by tile (`KernelBlocks`). With ``n_basis`` the rows get features of their own
(`estimators.basis`), and the weights are those of these features and of a last column of ones.

Prediction computes the scores of new rows, some rows at a time, and the problem gets the scores as its features: block b has the
weight 1 for feature b, and no other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.metrics.pairwise import pairwise_kernels

from maxmargin.errors import DataError
from maxmargin.estimators.basis import BasisFeatures, cluster_centres, coordinates, greedy_rows, nearest_rows
from maxmargin.packed.rows import PackedFeatures, StoredRows
from maxmargin.parallel import n_threads
from maxmargin.problems.columns import OrderedFeatures, worth_ordering
from maxmargin.problems.features import Features, KernelBlocks, KernelFeatures, check_semidefinite
from maxmargin.solvers import SOLVERS
from maxmargin.solvers.core.sampling import seed_of
from maxmargin.sparse import checked_csr

KERNELS = ("linear", "rbf", "poly", "precomputed")
#: Solvers that need products with the kernel's matrix, and never a part of it.
BLOCK_SOLVERS = tuple(name for name, one in SOLVERS.items() if one.kernel_blocks)
#: Solvers that leave norms and inner products of weights to the problem, which knows what they are with a kernel.
KERNEL_SOLVERS = tuple(name for name, one in SOLVERS.items() if one.kernels or name in BLOCK_SOLVERS)
#: Most bytes of a matrix of all pairs of training rows.
KERNEL_LIMIT = 8 << 30
#: Bytes of the kernel between some rows and the support or the basis that are held at a time.
_BLOCK_BYTES = 64 << 20
#: Rows of a tile of which only the diagonal counts.
_TILE = 64
#: What is there with a kernel, and only then: with the training rows that count, or with a basis.
_OF_KERNELS = (
    "gamma_", "_n_rows", "dual_coef_", "support_", "support_vectors_",
    "basis_coef_", "basis_", "basis_vectors_", "basis_residual_", "_basis_map",
)  # fmt: skip
#: What the random numbers of a basis are drawn for.
_PURPOSE = 77
_TINY = float(np.finfo(np.float64).tiny)


def is_linear(estimator: Any) -> bool:
    """Whether the estimator is for the features themselves."""
    return isinstance(estimator.kernel, str) and estimator.kernel == "linear"


def is_low_rank(estimator: Any) -> bool:
    """Whether a basis stands for the training rows."""
    return not is_linear(estimator) and estimator.n_basis is not None


# --------------------------------------------------------------------------------------------------------------------
# Training


def training_rows(estimator: Any, features: Features, blocks: bool | None = None, ordered: bool = True) -> Features:
    """The rows that the training problem sees.

    Parameters
    ----------
    estimator : StructuredEstimator
    features : Features
    blocks : bool, optional
        Never hold the matrix of a kernel whole; None is as the estimator's solver has it, and "auto" does if the matrix would
        be too large. A matrix that is precomputed is there whole already.
    ordered : bool
        Whether sparse columns may stand in the order of their use (problems/columns.py).
    """
    if is_linear(estimator):
        if isinstance(features, PackedFeatures) and estimator.fit_intercept:
            return features.with_constant()
        if ordered and worth_ordering(features):
            threads = n_threads(estimator.n_jobs)
            return OrderedFeatures(features, constant=bool(estimator.fit_intercept), threads=threads)
        return features.with_constant() if estimator.fit_intercept else features
    precomputed = estimator.kernel == "precomputed"
    if precomputed and features.shape[0] != _rows(estimator, features).shape[1]:
        raise DataError(
            f'{features.name} has shape {features.shape}; with kernel="precomputed" it must be the square matrix of the kernel '
            "between all training rows."
        )
    if is_low_rank(estimator):
        return _basis_features(estimator, features)
    X, n, name = _rows(estimator, features), features.shape[0], _matrix_name(estimator, features)
    too_large = 8 * n * n > KERNEL_LIMIT
    if blocks is None:
        solver = estimator.solver
        if isinstance(solver, str):
            blocks = solver in BLOCK_SOLVERS or (solver == "auto" and too_large and bool(BLOCK_SOLVERS))
        else:
            blocks = bool(getattr(solver, "kernel_blocks", False))
    if too_large and (precomputed or not blocks):
        with_solver = "" if precomputed or not BLOCK_SOLVERS else 'solver="one-slack", which never holds it, '
        raise DataError(
            f"The kernel matrix of {n} rows takes {8 * n * n} bytes, and the limit is {KERNEL_LIMIT} "
            f"(maxmargin.estimators.feature_space.KERNEL_LIMIT). Train with {with_solver}n_basis=500 or so, "
            'kernel="linear", or fewer rows.'
        )
    gamma = 1.0 if precomputed else gamma_of(estimator, X)
    if blocks and not precomputed:
        return KernelBlocks(X, lambda one, other: _with_one(estimator, _between(estimator, one, other, gamma)), name)
    gram = X if precomputed else _between(estimator, X, X, gamma)
    rows = KernelFeatures(_with_one(estimator, gram), name)
    if _is_theirs(estimator):
        check_semidefinite(gram, name)
    return rows


def _with_one(estimator: Any, gram: NDArray[np.float64]) -> NDArray[np.float64]:
    """Inner products of rows that have the constant feature, too, if asked for."""
    if not estimator.fit_intercept:
        return gram
    # What the user gave, or what a function of the user's may keep, is not ours to change.
    return np.add(gram, 1.0, out=None if _is_theirs(estimator) else gram)


def _basis_features(estimator: Any, features: Features) -> BasisFeatures:
    """The rows in the coordinates of a basis chosen among them."""
    X, n, name = _rows(estimator, features), features.shape[0], _matrix_name(estimator, features)
    precomputed = estimator.kernel == "precomputed"
    gamma = 1.0 if precomputed else gamma_of(estimator, X)
    diagonal = _diagonal(estimator, X, gamma)
    k, seed = min(int(estimator.n_basis), n), seed_of(estimator.random_state)
    rows: NDArray[np.int64] | None = None
    vectors: Any = None
    basis = estimator.basis if estimator.basis != "auto" else "cholesky" if precomputed else "k-means"
    if basis == "random":
        rows = np.sort(np.random.default_rng([seed, _PURPOSE]).choice(n, k, replace=False))
    elif basis == "cholesky":
        rows = greedy_rows(
            lambda chosen: X[:, chosen] if precomputed else _between(estimator, X, X[chosen], gamma), diagonal, k
        )
    else:
        vectors = cluster_centres(X, k, seed)
        if _is_theirs(estimator):
            rows = nearest_rows(X, vectors)
    if rows is not None and precomputed:
        own = X[np.ix_(rows, rows)]
    else:
        vectors = vectors if rows is None else X[rows]
        own = _between(estimator, vectors, vectors, gamma)
    # Of a function only the basis is looked at: that is what makes it cheap.
    whole, name_of_it = (X, name) if precomputed else (own, f"{name} of the basis")
    KernelFeatures(whole, name_of_it)
    if _is_theirs(estimator):
        check_semidefinite(whole, name_of_it)
    mapping = coordinates(own)
    r = mapping.shape[1]
    matrix = np.ones((n, r + int(estimator.fit_intercept)))
    for first, near in _near(estimator, X, rows, vectors, gamma):
        matrix[first : first + len(near), :r] = near @ mapping
    residual = 1.0 - float(np.einsum("ij,ij->", matrix[:, :r], matrix[:, :r])) / max(float(diagonal.sum()), _TINY)
    return BasisFeatures(matrix, vectors, rows, mapping, max(residual, 0.0), f"the coordinates by {name}")


def keep_support(estimator: Any, features: Features, problem: Any) -> None:
    """After training, keep the basis, or the rows that any block of weights makes use of."""
    for name in _OF_KERNELS:
        vars(estimator).pop(name, None)
    if is_linear(estimator):
        return
    X, rows = _rows(estimator, features), problem.variable_features
    if estimator.kernel in ("rbf", "poly"):
        estimator.gamma_ = gamma_of(estimator, X)
    if isinstance(rows, BasisFeatures):
        estimator._basis_map, estimator.basis_residual_ = rows.mapping, rows.residual
        if rows.rows is not None:
            estimator.basis_ = rows.rows
        if rows.vectors is not None:
            estimator.basis_vectors_ = rows.vectors
        return
    blocks = problem.split_weights(estimator.result_.weights)[0]
    estimator.support_ = np.flatnonzero(blocks.any(axis=0))
    estimator._n_rows = blocks.shape[1]
    if estimator.kernel != "precomputed":
        estimator.support_vectors_ = X[estimator.support_]


def block_width(estimator: Any, p: int) -> int:
    """How many weights a block has, with p columns of features."""
    if is_linear(estimator):
        return p + int(estimator.fit_intercept)
    if is_low_rank(estimator):
        return int(estimator._basis_map.shape[1]) + int(estimator.fit_intercept)
    return int(estimator._n_rows)


def name_blocks(estimator: Any, n_blocks: int) -> NDArray[np.float64]:
    """Set ``intercept_`` and ``coef_`` (n_blocks, p), or ``dual_coef_`` (n_blocks, support), or ``basis_coef_`` (n_blocks, k).

    Returns the weights after them.
    """
    weights: NDArray[np.float64] = estimator.result_.weights
    p = estimator.n_features_in_
    width = block_width(estimator, p)
    blocks = weights[: n_blocks * width].reshape(n_blocks, width)
    estimator.intercept_ = blocks[:, -1] if estimator.fit_intercept else np.zeros(n_blocks)
    if is_linear(estimator):
        estimator.coef_ = blocks[:, :p]
    else:
        vars(estimator).pop("coef_", None)
        if is_low_rank(estimator):
            estimator.basis_coef_ = blocks[:, : estimator._basis_map.shape[1]] @ estimator._basis_map.T
        else:
            estimator.dual_coef_ = blocks[:, estimator.support_]
            if estimator.fit_intercept:
                estimator.intercept_ = estimator.dual_coef_.sum(axis=1)
    return weights[n_blocks * width :]


# --------------------------------------------------------------------------------------------------------------------
# Prediction


def prediction_rows(estimator: Any, features: Features) -> Features:
    """The rows that a problem to predict sees; `prediction_weights` has the weights that go with them."""
    if is_linear(estimator):
        constant = estimator.fit_intercept or isinstance(features, PackedFeatures)
        return features.with_constant() if constant else features
    return Features(block_scores(estimator, features), f"the scores by the kernel {_name(estimator)}")


def prediction_weights(estimator: Any, rows: Features) -> NDArray[np.float64]:
    """The flat weights for `prediction_rows`, which are `rows`."""
    weights = np.ascontiguousarray(estimator.result_.weights, np.float64)
    n_blocks = len(estimator.intercept_)
    if is_linear(estimator):
        if isinstance(rows, StoredRows):
            # Their columns are in another order, and the constant is always among them.
            return rows.inside(weights, n_blocks, bool(estimator.fit_intercept))
        return weights
    width = block_width(estimator, estimator.n_features_in_)
    return np.concatenate([np.eye(n_blocks).ravel(), weights[n_blocks * width :]])


def block_scores(estimator: Any, features: Features) -> NDArray[np.float64]:
    """Score of each row under each block, (n, blocks)."""
    if is_linear(estimator) and isinstance(features, PackedFeatures):
        rows = features.stored
        scores = np.empty((features.shape[0], len(estimator.intercept_)))
        for first, last in rows.ranges():
            scores[first:last] = rows.plain(slice(first, last)) @ estimator.coef_.T + estimator.intercept_
        return scores
    if is_linear(estimator):
        return np.asarray(features.matrix() @ estimator.coef_.T + estimator.intercept_)
    if is_low_rank(estimator):
        kind, coefficients = "basis", estimator.basis_coef_
    else:
        kind, coefficients = "support", estimator.dual_coef_
    numbers, vectors = getattr(estimator, f"{kind}_", None), getattr(estimator, f"{kind}_vectors_", None)
    X = _rows(estimator, features)
    scores = np.tile(estimator.intercept_, (features.shape[0], 1))
    if coefficients.shape[1]:
        for first, near in _near(estimator, X, numbers, vectors, getattr(estimator, "gamma_", 1.0)):
            scores[first : first + len(near)] += near @ coefficients.T
    return scores


# --------------------------------------------------------------------------------------------------------------------
# Kernels


def _near(
    estimator: Any, X: Any, numbers: NDArray[np.int64] | None, vectors: Any, gamma: float
) -> Iterator[tuple[int, NDArray[np.float64]]]:
    """The kernel between some rows at a time and `vectors`, or these columns of X if it is precomputed; with the first row."""
    width = len(numbers) if numbers is not None else vectors.shape[0]
    step = max(1, _BLOCK_BYTES // (8 * width))
    for first in range(0, X.shape[0], step):
        rows = X[first : first + step]
        near = rows[:, numbers] if vectors is None else _between(estimator, rows, vectors, gamma)
        if not np.isfinite(near).all():
            i, j = (int(k) for k in np.argwhere(~np.isfinite(near))[0])
            raise DataError(
                f"The kernel {_name(estimator)} is {near[i, j]} between row {first + i} and a row of the model; "
                "it must be finite."
            )
        yield first, near


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
        values = np.asarray(checked_csr(found, "its value").toarray() if sp.issparse(found) else found, np.float64)
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
    return values


def _diagonal(estimator: Any, X: Any, gamma: float) -> NDArray[np.float64]:
    """The kernel of each row with itself, finite."""
    if estimator.kernel == "precomputed":
        return np.array(X.diagonal(), np.float64)
    if estimator.kernel == "rbf":
        return np.ones(X.shape[0])
    tiles = (X[first : first + _TILE] for first in range(0, X.shape[0], _TILE))
    diagonal = np.concatenate([_between(estimator, tile, tile, gamma).diagonal() for tile in tiles])
    if not (np.isfinite(diagonal) & (diagonal >= 0)).all():
        row = int(np.flatnonzero(~(np.isfinite(diagonal) & (diagonal >= 0)))[0])
        raise DataError(
            f"The kernel {_name(estimator)} of row {row} with itself is {diagonal[row]}; it must be finite and not negative."
        )
    return diagonal


def gamma_of(estimator: Any, X: Any) -> float:
    """``gamma``, or 1 / (p variance of all entries of X), as scikit-learn's SVC has it; 1 if nothing varies."""
    if not isinstance(estimator.gamma, str):
        return float(estimator.gamma)
    values = X.astype(np.float64, copy=False)
    variance = float((values.multiply(values)).mean() - values.mean() ** 2 if sp.issparse(X) else values.var())
    return 1.0 / (X.shape[1] * variance) if variance > 0 else 1.0


def _is_theirs(estimator: Any) -> bool:
    """Whether the kernel is the user's own, and may not be one."""
    return callable(estimator.kernel) or bool(estimator.kernel == "precomputed")


def _rows(estimator: Any, features: Features) -> Any:
    """The rows as the kernel gets them: what the user gave dense, the user's own kernel gets dense."""
    matrix = features.matrix()
    if _is_theirs(estimator) and features.compressed:
        matrix = matrix.toarray()
    if estimator.kernel != "precomputed":
        return matrix
    if sp.issparse(matrix):
        raise DataError(
            f'{features.name} is a sparse matrix; with kernel="precomputed" it must be an array, the kernel between rows.'
        )
    return np.asarray(matrix, np.float64)


def _matrix_name(estimator: Any, features: Features) -> str:
    return features.name if estimator.kernel == "precomputed" else f"the matrix of the kernel {_name(estimator)}"


def _name(estimator: Any) -> str:
    kernel = estimator.kernel
    return kernel if isinstance(kernel, str) else str(getattr(kernel, "__name__", repr(kernel)))

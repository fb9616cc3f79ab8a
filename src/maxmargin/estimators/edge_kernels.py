"""A kernel on the features of edges: the pair cliques of Zhang, Saha and Vishwanathan (ALT 2011, section 4.3).

Weights of a pair of classes (or of equal ones) are a sum over the E edges of the training graphs, of which those that count are
the support, as those of nodes are over rows (feature_space.py):

    w_b = sum_r edge_dual_coef_[b, r] phi(z_r),        score_b(z) = sum_r edge_dual_coef_[b, r] k(z, z_r)

Edges have no constant feature beside the kernel. Prediction computes the scores of new edges, and the problem gets these as its
features: block b has the weight 1 for feature b, and no other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.errors import ModelFileError, OptionError
from maxmargin.estimators.feature_space import block_scores, gamma_of, training_rows
from maxmargin.estimators.parameters import is_real, quoted
from maxmargin.estimators.restoring import size_of
from maxmargin.problems import Features

EDGE_KERNELS = ("linear", "rbf", "poly")


class EdgeSpace:
    """The kernel of an estimator's edges, under the names that feature_space.py knows."""

    fit_intercept, n_basis = False, None

    def __init__(self, estimator: Any) -> None:
        self.kernel, self.gamma = estimator.edge_kernel, estimator.edge_gamma
        self.degree, self.coef0, self.solver = estimator.degree, estimator.coef0, estimator.solver
        self.n_rows = 0
        #: Of each block, and of the edges that count: coefficients, numbers, features; and gamma as it was used.
        self.dual_coef_ = self.support_vectors_ = np.empty((0, 0))
        self.support_ = np.empty(0, np.int64)
        self.intercept_ = np.empty(0)
        self.gamma_ = 1.0

    def check(self) -> None:
        """Refuse a kernel that is not known, and a gamma that cannot be."""
        if not (isinstance(self.kernel, str) and self.kernel in EDGE_KERNELS):
            raise OptionError(f"edge_kernel={self.kernel!r} is not known; use {quoted(EDGE_KERNELS)}.")
        gamma = self.gamma
        if not (gamma == "scale" if isinstance(gamma, str) else is_real(gamma) and np.isfinite(gamma) and gamma > 0):
            raise OptionError(f'edge_gamma={gamma!r} is not possible; it must be "scale" or a finite number above 0.')

    def rows(self, features: NDArray[Any]) -> Features:
        """The rows that the training problem sees, in the place of the edges' features."""
        edges = Features(features, "edge_features")
        self.n_rows, self.gamma_ = edges.shape[0], gamma_of(self, edges.matrix())
        # All of them, until it is known which count.
        self.support_vectors_ = np.ascontiguousarray(features)
        return training_rows(self, edges)

    def name(self, blocks: NDArray[np.float64]) -> None:
        """Name the coefficients of blocks (blocks, E), and keep the edges that any of them makes use of."""
        self.support_ = np.flatnonzero(blocks.any(axis=0))
        self.dual_coef_, self.intercept_ = blocks[:, self.support_], np.zeros(len(blocks))
        if len(self.support_vectors_) == self.n_rows:
            self.support_vectors_ = self.support_vectors_[self.support_]
        if len(self.support_vectors_) != len(self.support_):
            raise ModelFileError(
                f"its edges have {len(self.support_vectors_)} support vectors, and coefficients for {len(self.support_)}."
            )

    def scores(self, features: NDArray[Any]) -> Features:
        """Scores (edges, blocks) of edges that are to be predicted, as features."""
        if len(features) == 0:
            return Features(np.zeros((1, len(self.intercept_))), "edge_features")
        return Features(block_scores(self, Features(features, "edge_features")), "the scores of edges")

    def parts(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What a model file has of it."""
        return {"edge_kernel": {"n_rows": self.n_rows, "gamma": float(self.gamma_)}}, {
            "edge_support_vectors": self.support_vectors_
        }

    def restore(self, header: dict[str, Any], arrays: dict[str, NDArray[Any]], width: int) -> None:
        """Set what a model file has of it."""
        self.n_rows, gamma = size_of(header["edge_kernel"], "n_rows", 1), header["edge_kernel"]["gamma"]
        if not (isinstance(gamma, float) and gamma > 0):
            raise ModelFileError(f"gamma of its edges is {gamma!r}; expected a number above 0.")
        vectors = arrays["edge_support_vectors"]
        if vectors.ndim != 2 or vectors.shape[1] != width or not np.isfinite(vectors).all():
            raise ModelFileError(f"its edges' support vectors have shape {vectors.shape}; expected {width} columns.")
        self.support_vectors_, self.gamma_ = vectors, gamma

"""Problems with rows of features, with their kernel matrix, or with tiles of it."""

from __future__ import annotations

import numpy as np

from maxmargin.problems import chain_problem, label_edges, multi_class_problem, multi_label_problem
from maxmargin.problems.features import Features, KernelBlocks, KernelFeatures


def kernelised(make, kind):
    """Chains, labels or classes with rows of features, with their kernel matrix, or with tiles of it."""
    rng = np.random.default_rng(3)
    kernel = {"rbf": lambda a, b: np.exp(-0.3 * ((a[:, None] - b[None]) ** 2).sum(axis=2))}.get(
        kind.split()[0], lambda a, b: a @ b.T
    )

    def features(X):
        if kind == "linear":
            return Features(X)
        # Tiles of two rows, most of them computed again for every product.
        return KernelBlocks(X, kernel, block_bytes=8 * 16 * 4) if "blocks" in kind else KernelFeatures(kernel(X, X))

    if make == "chains":
        lengths = rng.integers(1, 6, 12)
        X, tags = rng.normal(size=(lengths.sum(), 4)), [rng.integers(0, 3, t) for t in lengths]
        return chain_problem(features(X), tags, 3, lengths=lengths)
    X = rng.normal(size=(20, 3))
    if make == "classes":
        return multi_class_problem(features(X), rng.integers(0, 3, 20), 3, sample_weight=rng.random(20) + 0.5)
    Y = rng.integers(0, 2, (20, 4))
    return multi_label_problem(features(X), Y, label_edges("tree", Y), 4)

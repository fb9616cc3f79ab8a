"""Named views of the flat weights: what models with a block of weights a label have in common."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def name_blocks(estimator: Any, n_blocks: int) -> NDArray[np.float64]:
    """Set ``coef_`` (n_blocks, p) and ``intercept_`` (n_blocks,), views of the flat weights; returns the weights after."""
    p, width = estimator.n_features_in_, estimator.n_features_in_ + int(estimator.fit_intercept)
    weights: NDArray[np.float64] = estimator.result_.weights
    blocks = weights[: n_blocks * width].reshape(n_blocks, width)
    estimator.coef_ = blocks[:, :p]
    estimator.intercept_ = blocks[:, p] if estimator.fit_intercept else np.zeros(n_blocks)
    return weights[n_blocks * width :]

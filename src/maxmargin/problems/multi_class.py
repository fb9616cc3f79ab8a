"""Binary and multi-class problems: one variable an example, a block of weights a class.

T. Joachims, T. Finley and C.-N. Yu, Cutting-Plane Training of Structural SVMs, Machine Learning 77, 2009, section 3.1.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from maxmargin.errors import DataError
from maxmargin.problems.factor_graphs import FactorGraphs, as_states
from maxmargin.problems.features import Features
from maxmargin.problems.losses import is_zero_one, uniform_losses
from maxmargin.problems.templates import Structure, Template


def multi_class_problem(
    X: Any,
    y: ArrayLike | None,
    n_classes: int,
    loss: str | ArrayLike = "hamming",
    sample_weight: ArrayLike | None = None,
) -> FactorGraphs:
    """Build the problem of a multi-class data set: score(x, k) = w_k . x.

    Parameters
    ----------
    X : array or CSR matrix (n, p)
    y : int array (n,) of classes 0 to n_classes - 1, or None to predict
    n_classes : int
        At least 2.
    loss : "hamming" (0 or 1), "count" and "zero-one" (the same), or a (K, K) table of costs ``loss[truth, predicted]``
    sample_weight : array (n,), optional
    """
    return _one_variable(X, y, _template(0, n_classes), loss, sample_weight)


def binary_problem(
    X: Any, y: ArrayLike | None, loss: str | ArrayLike = "hamming", sample_weight: ArrayLike | None = None
) -> FactorGraphs:
    """Build the problem of a binary data set: score(x, 1) = w . x, score(x, 0) = 0; y holds 0 and 1.

    Parameters
    ----------
    X : array, CSR matrix or Features (n, p)
        Features of the examples.
    y : int array (n,), or None
        Their classes, 0 and 1; None to predict.
    loss : "hamming", "zero-one", "fraction", "count" or array (2, 2)
        Task loss; an array has the costs by true and predicted class.
    sample_weight : array (n,), optional
        Weights of the examples.
    """
    return _one_variable(X, y, _template(-1, 1), loss, sample_weight)


@lru_cache
def _template(first: int, last: int) -> Template:
    """The template of states with the blocks from first to last - 1: one object for all, whose arrays are made once (layout.py)."""
    return Template(np.arange(first, last))


@lru_cache
def _structure() -> Structure:
    """One variable, and its row."""
    return Structure([0], [0])


def _one_variable(
    X: Any, y: ArrayLike | None, template: Template, loss: str | ArrayLike, weight: ArrayLike | None
) -> FactorGraphs:
    features = X if isinstance(X, Features) else Features(X)
    n = features.shape[0]
    labels = None
    if y is not None:
        labels = as_states(y, "y")
        if labels.shape != (n,):
            raise DataError(f"X has {n} rows, but y has shape {labels.shape}; expected ({n},).")
    ones = np.ones(n, np.int64)
    # Of one variable, they are the same.
    loss = "hamming" if is_zero_one(loss) else loss
    losses = None if labels is None else uniform_losses(labels, int(template.n_states[0]), 1, loss)
    return FactorGraphs(
        [_structure()], 0 * ones, [template], [], features, Features.constant(), np.arange(n), 0 * ones, labels, losses,
        weights=weight,
    )  # fmt: skip

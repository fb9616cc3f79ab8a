"""Losses of structured scores, all of the form Omega*(scores) - score(truth).

    structured_hinge          max_y [score(y) + cost(y)] - score(truth)
    perceptron                max_y  score(y)            - score(truth)
    negative_log_likelihood   log sum_y exp score(y)              - score(truth)
    softmax_margin            log sum_y exp [score(y) + cost(y)]  - score(truth)

None of them is negative where the maximum is exact or relaxed.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from maxmargin.errors import DataError, OptionError, did_you_mean
from maxmargin.torch.scores import StructuredScores

REDUCTIONS = ("mean", "sum", "token", "none")


def structured_hinge(
    scores: StructuredScores, labels: Tensor, cost: Any = "hamming", reduction: str = "mean"
) -> Tensor:
    """Margin-rescaled hinge: how far the truth is from beating every labeling by its cost.

    Where no exact engine was found for a graph, this is the value of what was solved instead; ``scores.solved`` says which.

    Parameters
    ----------
    scores : ChainScores, TreeScores or FactorGraphScores
        Scores of all labelings.
    labels : int tensor (B, N)
        The truth.
    cost : "hamming", "fraction", "count" or tensor (K, K) or (B, N, K)
        A wrong label costs 1 / the mean number of variables in the batch, 1 / that of its example, or 1; ``cost[truth, label]``;
        or what each state of each variable costs.
    reduction : "mean", "sum", "token" or "none"
        Mean over the examples, sum, sum over the number of variables, or a value an example.
    """
    augmented = scores.augmented(scores.costs(labels, cost))
    value = augmented.hinge_maximum()
    scores.solved = augmented.solved
    return _reduced(value - _truth(scores, labels), scores, reduction)


def perceptron(scores: StructuredScores, labels: Tensor, reduction: str = "mean") -> Tensor:
    """The hinge without a cost: 0 where the truth is a best labeling.

    Parameters
    ----------
    scores : ChainScores, TreeScores or FactorGraphScores
        Scores of all labelings.
    labels : int tensor (B, N)
        The truth.
    reduction : "mean", "sum", "token" or "none"
        Mean over the examples, sum, sum over the number of variables, or a value an example.
    """
    value = scores.hinge_maximum()
    return _reduced(value - _truth(scores, labels), scores, reduction)


def negative_log_likelihood(scores: StructuredScores, labels: Tensor, reduction: str = "mean") -> Tensor:
    """Minus the log-probability of the truth.

    Parameters
    ----------
    scores : ChainScores, TreeScores or FactorGraphScores
        Scores of all labelings.
    labels : int tensor (B, N)
        The truth.
    reduction : "mean", "sum", "token" or "none"
        Mean over the examples, sum, sum over the number of variables, or a value an example.
    """
    return _reduced(scores.log_partition() - _truth(scores, labels), scores, reduction)


def softmax_margin(scores: StructuredScores, labels: Tensor, cost: Any = "hamming", reduction: str = "mean") -> Tensor:
    """The negative log-likelihood with the cost in the exponent.

    Parameters
    ----------
    scores : ChainScores, TreeScores or FactorGraphScores
        Scores of all labelings.
    labels : int tensor (B, N)
        The truth.
    cost : "hamming", "fraction", "count" or tensor (K, K) or (B, N, K)
        A wrong label costs 1 / the mean number of variables in the batch, 1 / that of its example, or 1; ``cost[truth, label]``;
        or what each state of each variable costs.
    reduction : "mean", "sum", "token" or "none"
        Mean over the examples, sum, sum over the number of variables, or a value an example.
    """
    augmented = scores.augmented(scores.costs(labels, cost))
    return _reduced(augmented.log_partition() - _truth(scores, labels), scores, reduction)


def _truth(scores: StructuredScores, labels: Tensor) -> Tensor:
    values = scores.score(labels)
    if scores.constrained and bool(values.isneginf().any()):
        m = int(values.isneginf().nonzero()[0, 0])
        raise DataError(f"Example {m}: its labels are forbidden by the hard constraints.", example=m)
    return values


def _reduced(values: Tensor, scores: StructuredScores, reduction: str) -> Tensor:
    if reduction not in REDUCTIONS:
        raise OptionError(
            f'reduction={reduction!r} is not known; use "mean", "sum", "token" or "none".'
            + did_you_mean(reduction, REDUCTIONS)
        )
    if reduction == "none":
        return values
    if reduction == "token":
        return values.sum() / scores.sizes.sum()
    return values.mean() if reduction == "mean" else values.sum()

"""Structured layers for PyTorch: scores with gradients in, maxima, log-partitions, marginals and losses out.

Needs the extra ``torch``; nothing else in the package imports it. Chains and trees are plain PyTorch, on any device; general graphs
(`FactorGraphScores`) ask the engines of `maxmargin.inference`, and are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError(
        "maxmargin.torch needs PyTorch, which is not installed: pip install 'maxmargin[torch]'."
    ) from error

from maxmargin.torch.chains import ChainScores
from maxmargin.torch.layers import ChainLayer
from maxmargin.torch.losses import negative_log_likelihood, perceptron, softmax_margin, structured_hinge
from maxmargin.torch.scores import Max, TopK
from maxmargin.torch.trees import TreeScores

if TYPE_CHECKING:
    from maxmargin.torch.graphs import FactorGraphScores

__all__ = [
    "ChainLayer",
    "ChainScores",
    "FactorGraphScores",
    "Max",
    "TopK",
    "TreeScores",
    "negative_log_likelihood",
    "perceptron",
    "softmax_margin",
    "structured_hinge",
]


def __getattr__(name: str) -> Any:
    if name == "FactorGraphScores":
        from maxmargin.torch.graphs import FactorGraphScores

        return FactorGraphScores
    raise AttributeError(f"module 'maxmargin.torch' has no attribute {name!r}")

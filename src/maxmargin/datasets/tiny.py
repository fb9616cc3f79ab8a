"""Data of a few examples for each task: enough to run everything once, too little to learn anything."""

from __future__ import annotations

from typing import Any

import numpy as np


def tiny_data(task: str) -> tuple[Any, ...]:
    """What the estimator of a task is fitted on: inputs and outputs, or trees alone."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 4))
    if task == "binary":
        return X, rng.integers(0, 2, 30)
    if task == "ranking":
        return X, rng.integers(0, 3, 30), np.repeat(np.arange(5), 6)
    if task == "multi-class":
        return X, np.arange(30) % 3
    if task == "multi-label":
        return X, rng.integers(0, 2, (30, 4))
    if task == "chain":
        return [X[:10], X[10:20], X[20:]], [np.arange(10) % 3] * 3
    if task == "graph":
        ring = [[0, 1], [1, 2], [2, 3], [3, 0]]
        return [(X[4 * k : 4 * k + 4], ring) for k in range(7)], [np.arange(4) % 3] * 7
    from maxmargin.parsing.trees import Tree

    lines = ("(S (NP (D the) (N dog)) (VP (V ran)))", "(S (NP (N dogs)) (VP (V ran)))")
    return ([Tree.parse(line) for line in lines],)


def further_data(task: str) -> list[tuple[Any, ...]]:
    """What other data of a task have other kernels for: many labels make dense graphs (inference/max_flow.py)."""
    rng = np.random.default_rng(1)
    return [(rng.normal(size=(30, 4)), rng.integers(0, 2, (30, 15)))] if task == "multi-label" else []

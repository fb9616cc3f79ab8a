"""All labelings of small pairwise graphs, scored one by one in PyTorch, so that autograd differentiates the reference."""

from __future__ import annotations

import itertools

import torch


def labelings(size, n_states):
    return list(itertools.product(range(n_states), repeat=size))


def scores(unary, pairs):
    """Score of each labeling of one example; `unary` (N, K), `pairs` a list of (i, j, table (K, K))."""
    size, n_states = unary.shape
    out = []
    for y in labelings(size, n_states):
        total = sum(unary[i, y[i]] for i in range(size))
        for i, j, table in pairs:
            total = total + table[y[i], y[j]]
        out.append(total)
    return torch.stack(out)


def answers(examples):
    """Log-partition, maximum and entropy (B,) of examples (unary, pairs)."""
    values = [scores(*one) for one in examples]
    log_partition = torch.stack([torch.logsumexp(v, 0) for v in values])
    entropy = torch.stack([-(torch.xlogy(p, p)).sum() for p in (torch.softmax(v, 0) for v in values)])
    return log_partition, torch.stack([v.max() for v in values]), entropy, values

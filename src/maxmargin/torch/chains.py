"""ChainScores: the scores of all tag sequences of a batch of sentences."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from maxmargin.errors import DataError
from maxmargin.torch.chain_scan import FORBIDDEN, LogPartition, best_labels, sampled_labels, top_labels
from maxmargin.torch.scores import (
    Max,
    StructuredScores,
    TopK,
    check_alike,
    check_count,
    check_labels,
    check_mask,
    check_tensor,
    check_values,
    padded_costs,
)


class ChainScores(StructuredScores):
    """Scores of chains: ``sum_t unary[t, y_t] + sum_t transitions[y_t, y_{t+1}] + start[y_1] + end[y_T]``.

    Parameters
    ----------
    unary : tensor (B, T, K)
        Score of each tag at each position.
    transitions : tensor (K, K) or (B, T - 1, K, K)
        Score of a tag (row) followed by another (column).
    start, end : tensors (K,), optional
        Scores of the first and of the last tag.
    lengths, mask : int tensor (B,), bool tensor (B, T), optional
        How many positions each sentence has; or, True for these, which come first.
    forbidden : bool tensor (K, K), optional
        Transitions that are not allowed; -inf in any of the scores says the same.
    """

    def __init__(
        self,
        unary: Tensor,
        transitions: Tensor,
        start: Tensor | None = None,
        end: Tensor | None = None,
        lengths: Any = None,
        mask: Tensor | None = None,
        forbidden: Tensor | None = None,
    ) -> None:
        unary = check_tensor(unary, "unary", ((None, None, None),))
        if 0 in unary.shape:
            raise DataError(f"unary has shape {tuple(unary.shape)}; there must be an example, a position and a state.")
        n, length, k = unary.shape
        transitions = check_tensor(transitions, "transitions", ((k, k), (n, length - 1, k, k)))
        check_alike(unary, transitions, ("unary", "transitions"))
        boundary = {"start": start, "end": end}
        for name, value in boundary.items():
            if value is not None:
                boundary[name] = check_tensor(value, name, ((k,),))
                check_alike(unary, boundary[name], ("unary", name))
        self.lengths = check_mask(lengths, mask, unary)
        if self.lengths is not None:
            # What stands at padding may be anything.
            self._inside = torch.arange(length, device=unary.device) < self.lengths[:, None]
            unary = torch.where(self._inside[..., None], unary, 0.0)
        given = {"unary": unary, "transitions": transitions, **{a: b for a, b in boundary.items() if b is not None}}
        below, full = check_values(given, self.lengths, mask, length)
        self.lengths = None if full else self.lengths
        self.constrained = below or forbidden is not None
        if self.constrained:
            unary, transitions = unary.clamp(min=FORBIDDEN), transitions.clamp(min=FORBIDDEN)
            boundary = {a: None if b is None else b.clamp(min=FORBIDDEN) for a, b in boundary.items()}
        self.unary = self._with_boundary(unary, boundary["start"], boundary["end"])
        self.transitions = transitions if forbidden is None else _forbid(transitions, forbidden)

    def _with_boundary(self, unary: Tensor, start: Tensor | None, end: Tensor | None) -> Tensor:
        """The scores of first and last tags, added to those of their positions."""
        if start is None and end is None:
            return unary
        n, length, k = unary.shape
        first = torch.arange(n, device=unary.device) * length
        last = first + (length if self.lengths is None else self.lengths) - 1
        parts = [(rows, value) for rows, value in ((first, start), (last, end)) if value is not None]
        values = torch.cat([value.expand(n, k) for _, value in parts])
        # Rows are added without the sorting of index_put.
        return unary.reshape(-1, k).index_add(0, torch.cat([rows for rows, _ in parts]), values).view(n, length, k)

    @property
    def sizes(self) -> Tensor:
        """Number of positions (B,) of each sentence."""
        n, length, _ = self.unary.shape
        return torch.full((n,), length, device=self.unary.device) if self.lengths is None else self.lengths

    def score(self, labels: Tensor) -> Tensor:
        """Score (B,) of one labeling (B, T) a sentence, with gradients."""
        values = self._score(check_labels(labels, self.unary, self.lengths))
        return torch.where(values < FORBIDDEN / 10, -torch.inf, values) if self.constrained else values

    def _score(self, labels: Tensor) -> Tensor:
        n, length, k = self.unary.shape
        own = self.unary.gather(2, labels[..., None])[..., 0]
        pairs = labels[:, :-1] * k + labels[:, 1:]
        if self.transitions.dim() == 2:
            step = self.transitions.reshape(-1).index_select(0, pairs.reshape(-1)).view(n, length - 1)
        else:
            step = self.transitions.flatten(2).gather(2, pairs[..., None])[..., 0]
        if self.lengths is not None:
            own, step = torch.where(self._inside, own, 0.0), torch.where(self._inside[:, 1:], step, 0.0)
        return own.sum(1) + step.sum(1)

    def log_partition(self) -> Tensor:
        """The logarithm of the sum of exp(score) over all labelings (B,), with gradients: the marginals."""
        return LogPartition.apply(self.unary, self.transitions, self.lengths)

    def max(self) -> Max:
        """The best labeling of each sentence."""
        with torch.no_grad():
            labels = best_labels(self.unary, self.transitions, self.lengths)
        return Max(
            self._score(labels), self._padded(labels), torch.ones(len(labels), dtype=torch.bool, device=labels.device)
        )

    def top_k(self, k: int) -> TopK:
        """The k best labelings of each sentence."""
        with torch.no_grad():
            labels = top_labels(self.unary, self.transitions, self.lengths, check_count(k, "k"))
        missing = labels[..., 0] < 0
        values = torch.stack([self._score(one.clamp(min=0)) for one in labels])
        values = torch.where(missing, -torch.inf, values)
        return TopK(values.T, torch.where(missing[..., None], -1, self._padded(labels)).transpose(0, 1))

    def sample(self, n: int = 1, generator: torch.Generator | None = None) -> Tensor:
        """Labelings (n, B, T), drawn independently from p(y) ~ exp(score(y))."""
        with torch.no_grad():
            labels = sampled_labels(self.unary, self.transitions, self.lengths, check_count(n, "n"), generator)
        return self._padded(labels.view(n, *self.unary.shape[:2]))

    def marginals(self) -> Tensor:
        """Probability (B, T, K) of each tag at each position, 0 at padding."""
        return self._gradients(self.transitions)[0]

    def pair_marginals(self) -> Tensor:
        """Probability (B, T - 1, K, K) of each pair of neighbouring tags, 0 at padding."""
        n, length, k = self.unary.shape
        transitions = self.transitions
        return self._gradients(transitions if transitions.dim() == 4 else transitions.expand(n, length - 1, k, k))[1]

    def entropy(self) -> Tensor:
        """Entropy (B,) of p(y) ~ exp(score(y)), in nats."""
        pairs = self.transitions.expand(len(self.unary), self.unary.shape[1] - 1, -1, -1)
        own, both = self._gradients(pairs if self.transitions.dim() == 2 else self.transitions)
        mean = (own * self.unary).sum((1, 2)) + (both * self.transitions).sum((1, 2, 3))
        return self.log_partition() - mean

    def _gradients(self, transitions: Tensor) -> tuple[Tensor, Tensor]:
        """Marginals, differentiable where the scores have gradients."""
        create = torch.is_grad_enabled() and (self.unary.requires_grad or transitions.requires_grad)
        with torch.enable_grad():
            both = (self.unary, transitions)
            unary, pairs = (one if create and one.requires_grad else one.detach().requires_grad_() for one in both)
            total = LogPartition.apply(unary, pairs, self.lengths).sum()
            own, step = torch.autograd.grad(total, (unary, pairs), create_graph=create)
        return own, step

    def costs(self, labels: Tensor, cost: Any) -> Tensor:
        """What each tag at each position costs (B, T, K) if `labels` are the truth."""
        return padded_costs(check_labels(labels, self.unary, self.lengths), cost, self.unary, self.sizes)

    def augmented(self, costs: Tensor) -> ChainScores:
        """The same scores with costs (B, T, K) added."""
        made = ChainScores.__new__(ChainScores)
        made.__dict__.update(self.__dict__)
        made.unary = self.unary + costs
        return made

    def _padded(self, labels: Tensor) -> Tensor:
        return labels if self.lengths is None else torch.where(self._inside, labels, -1)


def _forbid(transitions: Tensor, forbidden: Tensor) -> Tensor:
    k = transitions.shape[-1]
    if not isinstance(forbidden, Tensor) or forbidden.dtype != torch.bool or tuple(forbidden.shape) != (k, k):
        raise DataError(f"forbidden must be a bool tensor of shape ({k}, {k}).")
    if forbidden.device != transitions.device:
        raise DataError(f"forbidden is on the device {forbidden.device}, the scores on {transitions.device}.")
    return torch.where(forbidden, FORBIDDEN, transitions)

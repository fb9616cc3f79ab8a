"""TreeScores: the scores of all labelings of a batch of forests.

Messages go from the leaves to the roots, one depth of all examples at a time:

    up_p(y_p) += log sum_{y_c} exp(pairwise_c(y_p, y_c) + unary_c(y_c) + up_c(y_c))      for all nodes c of a depth, of parents p

by operations that autograd knows, so marginals are the gradient, and can be differentiated again. Nodes are numbered over the whole
batch, node i of example m being ``m * N + i``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from maxmargin.errors import DataError, OptionError
from maxmargin.torch.chain_scan import FORBIDDEN, check_feasible, gumbel
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


class TreeScores(StructuredScores):
    """Scores of forests: ``sum_i unary[i, y_i] + sum_i pairwise[i, y_parent(i), y_i]``.

    Parameters
    ----------
    unary : tensor (B, N, K)
        Score of each state of each node.
    pairwise : tensor (K, K), (N, K, K) or (B, N, K, K)
        Score of the state of the parent (row) and of the node (column), for each node; those of roots are not read. With `edges`,
        there is an edge in the place of a node, its first end is the row.
    parents : int tensor (N,) or (B, N)
        Parent of each node, -1 for roots.
    edges : int tensor (E, 2)
        In the place of `parents`, pairs of nodes, the same for all examples.
    lengths, mask : int tensor (B,), bool tensor (B, N), optional
        How many nodes each example has; or, True for these, which come first.
    """

    def __init__(
        self,
        unary: Tensor,
        pairwise: Tensor,
        parents: Any = None,
        edges: Any = None,
        lengths: Any = None,
        mask: Tensor | None = None,
    ) -> None:
        unary = check_tensor(unary, "unary", ((None, None, None),))
        if 0 in unary.shape:
            raise DataError(f"unary has shape {tuple(unary.shape)}; there must be an example, a node and a state.")
        if (parents is None) == (edges is None):
            raise OptionError("A forest is given by parents or by edges: one of the two.")
        n, size, k = unary.shape
        ends = None if edges is None else _check_edges(edges, size)
        pieces = size if ends is None else len(ends)
        pairwise = check_tensor(pairwise, "pairwise", ((k, k), (pieces, k, k), (n, pieces, k, k)))
        check_alike(unary, pairwise, ("unary", "pairwise"))
        self.lengths = check_mask(lengths, mask, unary)
        inside = torch.ones(n, size, dtype=torch.bool, device=unary.device)
        if self.lengths is not None:
            inside = torch.arange(size, device=unary.device) < self.lengths[:, None]
            unary = torch.where(inside[..., None], unary, 0.0)
        self._inside = inside
        self.constrained, _ = check_values({"unary": unary, "pairwise": pairwise}, self.lengths, mask, size)
        if self.constrained:
            unary, pairwise = unary.clamp(min=FORBIDDEN), pairwise.clamp(min=FORBIDDEN)
        if ends is not None:
            above, pairwise = _oriented(ends, size, pairwise)
        else:
            above = _check_parents(parents, n, size)
        self.unary, self.pairwise = unary, pairwise
        self.parents = torch.where(inside, above.to(unary.device).expand(n, size), -1)
        self._levels = _levels(above.expand(n, size).clone(), inside.cpu(), unary.device)

    @property
    def sizes(self) -> Tensor:
        """Number of nodes (B,) of each example."""
        return self._inside.sum(1)

    def score(self, labels: Tensor) -> Tensor:
        """Score (B,) of one labeling (B, N) an example, with gradients."""
        values = self._score(check_labels(labels, self.unary, self.lengths))
        return torch.where(values < FORBIDDEN / 10, -torch.inf, values) if self.constrained else values

    def _score(self, labels: Tensor) -> Tensor:
        n, size, _ = self.unary.shape
        own = torch.where(self._inside, self.unary.gather(2, labels[..., None])[..., 0], 0.0)
        linked = self._inside & (self.parents >= 0)
        above = labels.gather(1, self.parents.clamp(min=0))
        if self.pairwise.dim() == 2:
            step = self.pairwise[above, labels]
        else:
            nodes = torch.arange(size, device=labels.device)
            rows = torch.arange(n, device=labels.device)[:, None]
            index = (nodes, above, labels) if self.pairwise.dim() == 3 else (rows, nodes, above, labels)
            step = self.pairwise[index]
        return own.sum(1) + torch.where(linked, step, 0.0).sum(1)

    def log_partition(self) -> Tensor:
        """The logarithm of the sum of exp(score) over all labelings (B,), with gradients: the marginals."""
        values = self._total(self._beliefs(torch.logsumexp), torch.logsumexp)
        check_feasible(values.detach(), self.unary, self.pairwise)
        return values

    def max(self) -> Max:
        """The best labeling of each example."""
        with torch.no_grad():
            beliefs = self._beliefs(torch.amax)
            check_feasible(self._total(beliefs, torch.amax), self.unary, self.pairwise)
            labels = self._walk_down(beliefs, lambda scores: scores.argmax(-1))
        return Max(
            self._score(labels), self._padded(labels), torch.ones(len(labels), dtype=torch.bool, device=labels.device)
        )

    def top_k(self, k: int) -> TopK:
        """The k best labelings of each example, by `maxmargin.inference.top_k`."""
        from maxmargin.torch.graphs import FactorGraphScores

        return FactorGraphScores.of_trees(self).top_k(check_count(k, "k"))

    def sample(self, n: int = 1, generator: torch.Generator | None = None) -> Tensor:
        """Labelings (n, B, N), drawn independently from p(y) ~ exp(score(y))."""
        with torch.no_grad():
            beliefs = self._beliefs(torch.logsumexp)
            check_feasible(self._total(beliefs, torch.logsumexp), self.unary, self.pairwise)

            def draw(scores: Tensor) -> Tensor:
                return (scores + gumbel(scores, generator)).argmax(-1)

            drawn = [self._walk_down(beliefs, draw) for _ in range(check_count(n, "n"))]
        return self._padded(torch.stack(drawn))

    def marginals(self) -> Tensor:
        """Probability (B, N, K) of each state of each node, 0 at padding."""
        return self._gradients()[0]

    def entropy(self) -> Tensor:
        """Entropy (B,) of p(y) ~ exp(score(y)), in nats."""
        own, pairs = self._gradients()
        return self.log_partition() - (own * self.unary).sum((1, 2)) - (pairs * self.pairwise).sum((1, 2, 3))

    def _gradients(self) -> tuple[Tensor, Tensor]:
        """Marginals of nodes and, (B, N, K, K), of nodes with their parents; differentiable where the scores have gradients."""
        n, size, k = self.unary.shape
        pairs = self.pairwise.expand(n, size, k, k)
        create = torch.is_grad_enabled() and (self.unary.requires_grad or pairs.requires_grad)
        with torch.enable_grad():
            made = TreeScores.__new__(TreeScores)
            made.__dict__.update(self.__dict__)
            made.unary, made.pairwise = (
                one if create and one.requires_grad else one.detach().requires_grad_() for one in (self.unary, pairs)
            )
            total, inputs = made.log_partition().sum(), (made.unary, made.pairwise)
            own, step = torch.autograd.grad(total, inputs, create_graph=create, materialize_grads=True)
        return own, step

    def costs(self, labels: Tensor, cost: Any) -> Tensor:
        """What each state of each node costs (B, N, K) if `labels` are the truth."""
        return padded_costs(check_labels(labels, self.unary, self.lengths), cost, self.unary, self.sizes)

    def augmented(self, costs: Tensor) -> TreeScores:
        """The same scores with costs (B, N, K) added."""
        made = TreeScores.__new__(TreeScores)
        made.__dict__.update(self.__dict__)
        made.unary = self.unary + costs
        return made

    # ------------------------------------------------------------------------------------------------ messages

    def _step(self, nodes: Tensor) -> Tensor:
        """Scores (nodes, K, K) of the states of nodes and of their parents."""
        if self.pairwise.dim() == 2:
            return self.pairwise
        if self.pairwise.dim() == 3:
            return self.pairwise[nodes % len(self.pairwise)]
        return self.pairwise.flatten(0, 1)[nodes]

    def _beliefs(self, total: Callable[..., Tensor]) -> Tensor:
        """Scores (B * N, K) of each node's states with all that is below it."""
        beliefs = self.unary.flatten(0, 1)
        for nodes, above in reversed(self._levels[1:]):
            message = total(beliefs[nodes][:, None, :] + self._step(nodes), 2)
            beliefs = beliefs.index_add(0, above, message)
        return beliefs

    def _total(self, beliefs: Tensor, total: Callable[..., Tensor]) -> Tensor:
        n, size, _ = self.unary.shape
        roots = self._levels[0][0]
        return self.unary.new_zeros(n).index_add(0, roots // size, total(beliefs[roots], 1))

    def _walk_down(self, beliefs: Tensor, choose: Callable[[Tensor], Tensor]) -> Tensor:
        n, size, _ = self.unary.shape
        labels = torch.zeros(n * size, dtype=torch.long, device=beliefs.device)
        labels[self._levels[0][0]] = choose(beliefs[self._levels[0][0]])
        for nodes, above in self._levels[1:]:
            step, states = self._step(nodes), labels[above]
            given = step[states] if step.dim() == 2 else step[torch.arange(len(nodes), device=beliefs.device), states]
            labels[nodes] = choose(beliefs[nodes] + given)
        return labels.view(n, size)

    def _padded(self, labels: Tensor) -> Tensor:
        return torch.where(self._inside, labels, -1)


def _check_parents(parents: Any, n: int, size: int) -> Tensor:
    above = torch.as_tensor(parents).cpu()
    if tuple(above.shape) not in ((size,), (n, size)) or above.is_floating_point() or above.dtype == torch.bool:
        raise DataError(
            f"parents has shape {tuple(above.shape)} and dtype {above.dtype}; expected ({size},) or ({n}, {size}) whole numbers."
        )
    return above.long()


def _check_edges(edges: Any, size: int) -> list[tuple[int, int]]:
    ends = torch.as_tensor(edges).cpu()
    if ends.numel() == 0:
        return []
    if ends.dim() != 2 or ends.shape[1] != 2 or ends.is_floating_point():
        raise DataError(f"edges has shape {tuple(ends.shape)} and dtype {ends.dtype}; expected (E, 2) whole numbers.")
    if int(ends.min()) < 0 or int(ends.max()) >= size:
        raise DataError(
            f"edges name node {int(ends.min() if ends.min() < 0 else ends.max())}; there are 0 to {size - 1}."
        )
    return [(a, b) for a, b in ends.tolist()]


def _oriented(ends: list[tuple[int, int]], size: int, pairwise: Tensor) -> tuple[Tensor, Tensor]:
    """Parents (N,) of a forest given by its edges, and the scores of edges in the order of the nodes below them."""
    neighbours: list[list[tuple[int, int, bool]]] = [[] for _ in range(size)]
    for e, (a, b) in enumerate(ends):
        neighbours[a].append((b, e, False))
        neighbours[b].append((a, e, True))
    above, edge, turned = [-2] * size, [0] * size, [False] * size
    used = 0
    for root in range(size):
        if above[root] != -2:
            continue
        above[root], waiting = -1, [root]
        while waiting:
            node = waiting.pop()
            for other, e, flip in neighbours[node]:
                if above[other] == -2:
                    above[other], edge[other], turned[other] = node, e, flip
                    used += 1
                    waiting.append(other)
    if used < len(ends):
        raise DataError(
            "The edges have a cycle, so the graph is no forest; FactorGraphScores takes graphs with cycles."
        )
    device = pairwise.device
    flips = torch.tensor(turned, device=device)[:, None, None]
    if pairwise.dim() > 2 and not ends:
        return torch.tensor(above), pairwise.new_zeros(pairwise.shape[-2:])
    if pairwise.dim() > 2:
        pairwise = pairwise.index_select(pairwise.dim() - 3, torch.tensor(edge, device=device))
    return torch.tensor(above), torch.where(flips, pairwise.mT, pairwise)


def _levels(parents: Tensor, inside: Tensor, device: torch.device) -> list[tuple[Tensor, Tensor]]:
    """Nodes of each depth, roots first, and their parents, by numbers over the whole batch."""
    n, size = parents.shape
    wrong = inside & ((parents < -1) | (parents >= inside.sum(1, keepdim=True)))
    if bool(wrong.any()):
        m, i = wrong.nonzero()[0].tolist()
        raise DataError(
            f"Example {m}: the parent of node {i} is {int(parents[m, i])}; expected -1 or one of its {int(inside[m].sum())} nodes.",
            example=m,
        )
    parents = torch.where(inside, parents, -1)
    rows = torch.arange(n)[:, None]
    depth, at = torch.zeros_like(parents), parents
    for _ in range(size):
        moving = at >= 0
        if not bool(moving.any()):
            break
        depth += moving
        at = torch.where(moving, parents[rows, at.clamp(min=0)], -1)
    else:
        if bool((at >= 0).any()):
            m = int((at >= 0).any(1).nonzero()[0, 0])
            raise DataError(f"Example {m}: its parents go round in a circle; a forest has no cycles.", example=m)
    depth = torch.where(inside, depth, -1).flatten()
    whole = torch.where(parents >= 0, parents + rows * size, -1).flatten()
    levels = []
    for d in range(int(depth.max()) + 1):
        nodes = (depth == d).nonzero()[:, 0]
        levels.append((nodes.to(device), whole[nodes].to(device)))
    return levels

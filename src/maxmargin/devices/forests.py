"""Max-product and sum-product on forests of a device, a level of all trees at a time.

As in inference/trees.py, with pairs alone: from the deepest level on, pairs send to their parents,

    max:  up_p(y_p) += max_{y_c}  scores(y_c, y_p) + up_c(y_c)
    sum:  up_p(y_p) += T log sum_{y_c} exp((scores(y_c, y_p) + up_c(y_c)) / T)

and on the way back a child is decoded given its parent's state; or the parent's marginal is multiplied by the child's distribution
given the parent, exp((scores + up_c - message) / T). No message is divided out, so that what is forbidden (-inf) causes no NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from maxmargin.devices.tensor_graphs import Pairs, Sums, TensorGraphs


class Found(NamedTuple):
    """Marginals, or the indicators of the best labelings."""

    #: (M,): the largest score, or T times the log-partition function, less the score of the truth.
    values: Tensor
    #: As `TensorGraphs.statistics` takes them.
    share: Tensor
    tables: list[Tensor]


class Level(NamedTuple):
    """Pairs of one group whose children are equally deep, as a slice of the group."""

    group: int
    pairs: slice
    child: Tensor
    parent: Tensor
    #: The parents, each once, and sums of the messages to each; None where no two have the same.
    receiver: Tensor
    sums: Sums | None


class Forests:
    """Inference on a batch of forests."""

    def __init__(self, graphs: TensorGraphs) -> None:
        self.graphs = graphs
        self.levels = _levels(graphs)
        children = np.concatenate([np.empty(0, np.int64), *(pairs.child.cpu().numpy() for pairs in graphs.pairs)])
        roots = np.setdiff1d(np.arange(len(graphs.labels)), children)
        #: Of variables alone, the roots are all of them, and if each is an example, sums are of one.
        self.roots: Any = graphs.device.put(roots) if self.levels else slice(None)
        starts = graphs.problem.example_variables
        self.by_example: Any = Sums(np.searchsorted(starts, roots, side="right") - 1, graphs.n_examples, graphs.device)
        if len(roots) == graphs.n_examples and not self.levels:
            self.by_example = _same

    def maximise(self, theta: Tensor, tables: Sequence[Tensor]) -> Found:
        """The best labelings, the first of several."""
        graphs, up, back = self.graphs, theta, []
        if self.levels:
            up = theta.clone()
        for level in self.levels:
            best = _sent(level, tables, up).max(1)
            back.append(best.indices)
            _receive(level, up, best.values)
        at_root = up[self.roots].max(1)
        labels = torch.empty_like(graphs.labels)
        labels[self.roots] = at_root.indices
        for level, chosen in zip(reversed(self.levels), reversed(back), strict=True):
            labels[level.child] = chosen.gather(1, labels[level.parent][:, None])[:, 0]
        mu, counts = self.indicators(labels)
        return Found(self.by_example(at_root.values) - graphs.truth(theta, tables), graphs.share(mu), counts)

    def indicators(self, labels: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Marginals that are 0 or 1: those of one labeling of each example."""
        graphs, tables = self.graphs, []
        mu = torch.zeros((len(labels), graphs.n_states), dtype=torch.float64, device=labels.device)
        mu.scatter_(1, labels[:, None], 1.0)
        for pairs in graphs.pairs:
            entries = labels[pairs.child] * pairs.scoring.shape[1] + labels[pairs.parent]
            size = pairs.scoring.shape[0] * pairs.scoring.shape[1]
            if pairs.scoring.is_shared:
                tables.append(weighted_counts(entries, pairs.weight, size))
            else:
                own = torch.zeros((len(entries), size), dtype=mu.dtype, device=mu.device)
                tables.append(own.scatter_(1, entries[:, None], 1.0))
        return mu, tables

    def marginals(self, theta: Tensor, tables: Sequence[Tensor], temperature: float | Tensor) -> Found:
        """All marginals at a temperature."""
        graphs, up, heard = self.graphs, theta / temperature, []
        truth = graphs.truth(theta, tables)
        tables = [table / temperature for table in tables]
        for level in self.levels:
            heard.append(_sent(level, tables, up).logsumexp(1))
            _receive(level, up, heard[-1])
        values = up[self.roots].logsumexp(1)
        mu = torch.zeros_like(up)
        mu[self.roots] = torch.exp(up[self.roots] - values[:, None])
        expected = [self._nothing(pairs) for pairs in graphs.pairs]
        for level, message in zip(reversed(self.levels), reversed(heard), strict=True):
            # Where nothing can be sent, nothing is: -inf minus -inf.
            given = torch.exp(_sent(level, tables, up) - torch.where(message == -torch.inf, 0.0, message)[:, None])
            pairs, table = graphs.pairs[level.group], expected[level.group]
            both = mu[level.parent][:, None, : given.shape[2]] * given
            mu[level.child, : given.shape[1]] = both.sum(2)
            if pairs.scoring.is_shared:
                table += (pairs.weight[level.pairs] @ both.flatten(1))[None]
            else:
                table[level.pairs] = both.flatten(1)
        return Found(temperature * self.by_example(values) - truth, graphs.share(mu), expected)

    def _nothing(self, pairs: Pairs) -> Tensor:
        n = 1 if pairs.scoring.is_shared else len(pairs.child)
        size = pairs.scoring.shape[0] * pairs.scoring.shape[1]
        return torch.zeros((n, size), dtype=torch.float64, device=pairs.weight.device)


def _same(values: Tensor) -> Tensor:
    return values


def weighted_counts(entries: Tensor, weight: Tensor, size: int) -> Tensor:
    """How often each entry is there, by weight, (1, size); added up in the same order every time."""
    found, order = torch.sort(entries, stable=True)
    ends = torch.searchsorted(found, torch.arange(size, device=entries.device), right=True)
    lengths = torch.diff(ends, prepend=ends.new_zeros(1))
    return torch.segment_reduce(weight[order], "sum", lengths=lengths, unsafe=True, initial=0.0)[None]


def _sent(level: Level, tables: Sequence[Tensor], up: Tensor) -> Tensor:
    """Scores of pairs with all that the children have heard (n, K_child, K_parent)."""
    table = tables[level.group]
    if len(table) > 1:
        table = table[level.pairs]
    return table + up[level.child][:, : table.shape[1], None]


def _receive(level: Level, up: Tensor, messages: Tensor) -> None:
    """Add messages to what parents have heard."""
    if level.sums is not None:
        messages = level.sums(messages)
    up[level.receiver, : messages.shape[1]] += messages


def _levels(graphs: TensorGraphs) -> list[Level]:
    """All levels of all groups, the deepest first."""
    found: list[tuple[int, Any]] = []
    for group, pairs in enumerate(graphs.pairs):
        depths, first = np.unique(-pairs.depth, return_index=True)
        parents = pairs.parent.cpu().numpy()
        for depth, begin, end in zip(-depths, first, [*first[1:], len(parents)], strict=True):
            some = slice(int(begin), int(end))
            child, parent = pairs.child[some], pairs.parent[some]
            receiver, sums = parent, None
            each, number = np.unique(parents[some], return_inverse=True)
            if len(each) < end - begin:
                receiver, sums = graphs.device.put(each), Sums(number, len(each), graphs.device)
            found.append((int(depth), Level(group, some, child, parent, receiver, sums)))
    return [level for _, level in sorted(found, key=lambda one: -one[0])]

"""A batch of forests on a device: scores of all variables and pairs from weights, and sums of statistics from marginals.

Conventions
-----------
Variables of all examples stand one after the other, filled up to K states, the most that one has: arrays (V, K), with scores of
-inf for states that are not there. Factors of one variable (*singles*) are added to its scores. Factors of two (*pairs*) are
grouped by their template, and turned so that the *child* comes first and the *parent*, which is nearer to the root, second. Roots
are the last variables of their components, as in inference/trees.py.

A working vector has the weights of the variables (p, blocks) and then those of the factors (q, blocks), feature-major.

    theta (V, K)      scores of states: learned, fixed, and the task loss
    tables            a group's pairs: (n, K_child, K_parent), or (1, K_child, K_parent) where all of them have the same scores

No sum here depends on the order in which threads of the device come to it (`Sums`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components, dijkstra
from torch import Tensor

from maxmargin.devices.tensor_features import TensorFeatures
from maxmargin.devices.tensor_features import room as room_of_features
from maxmargin.devices.torch_device import TorchDevice
from maxmargin.problems.factor_graphs import FactorGraphs


class Sums:
    """Sums of values by an index, in the order of the values."""

    def __init__(self, index: NDArray[np.int64], size: int, device: TorchDevice) -> None:
        self.size = size
        found, counts = np.unique(index, return_counts=True)
        if len(found) == len(index):
            self.index, self.order = device.put(index), None
        else:
            self.index, self.order = device.put(found), device.put(np.argsort(index, kind="stable"))
            self.counts = device.put(counts)

    def __call__(self, values: Tensor) -> Tensor:
        """Sums (size, ...) of values (n, ...)."""
        if self.order is not None:
            values = torch.segment_reduce(values[self.order], "sum", lengths=self.counts, unsafe=True)
        out = torch.zeros((self.size, *values.shape[1:]), dtype=values.dtype, device=values.device)
        out[self.index] = values
        return out


class Scoring:
    """How the tables of some factors of one template are scored: ``fixed + scores[row, block]``.

    Parameters
    ----------
    rows : int array (n,), or (1,) where all have the same scores
    blocks : int array, the template's shape
        -1 where nothing is learned.
    fixed : float array (n, entries) or (1, entries)
    """

    def __init__(
        self, rows: NDArray[np.int64], blocks: NDArray[np.int64], fixed: NDArray[np.float64], n_rows: int, n_blocks: int,
        device: TorchDevice,
    ) -> None:  # fmt: skip
        self.shape, flat = blocks.shape, blocks.reshape(-1)
        places = rows[:, None] * n_blocks + flat
        self.is_shared = len(rows) == 1 and len(fixed) == 1
        self.some = device.put(np.flatnonzero(flat >= 0))
        self.places = device.put(places[:, flat >= 0])
        self.fixed = device.put(fixed)
        self.sums = Sums(places[:, flat >= 0].reshape(-1), n_rows * n_blocks, device)

    def tables(self, scores: Tensor) -> Tensor:
        """Tables (n or 1, *shape) of the scores (rows, blocks)."""
        found = self.fixed.expand(len(self.places), -1).clone()
        found[:, self.some] += scores.reshape(-1)[self.places]
        return found.view(-1, *self.shape)

    def add(self, rows: Tensor, share: Tensor) -> Tensor:
        """Add shares (n or 1, entries) to those of the rows, (rows, blocks); returns the sum of shares times fixed scores."""
        rows += self.sums(share[:, self.some].reshape(-1)).view_as(rows)
        return total(share, self.fixed)


class Singles(NamedTuple):
    """Factors of one variable and one template."""

    variable: Tensor
    scoring: Scoring


class Pairs(NamedTuple):
    """Factors of two variables and one template, turned one way, from the deepest on."""

    child: Tensor
    parent: Tensor
    #: Depth of the children, the largest first.
    depth: NDArray[np.int64]
    scoring: Scoring
    #: The truth as an entry of a table; the weight of the example of each, over M; sums over the pairs of an example.
    truth: Tensor
    weight: Tensor
    by_example: Sums
    #: Statistics of the truth of all, where they are scored alike.
    counts: Tensor


class TensorGraphs:
    """A batch of forests whose arrays are on a device.

    Parameters
    ----------
    problem : FactorGraphs
        With labels, for which `refusal` is None.
    device : TorchDevice
    """

    def __init__(self, problem: FactorGraphs, device: TorchDevice) -> None:
        self.problem, self.device = problem, device
        device.check_room(room(problem), f"This problem of {problem.n_examples} examples")
        a = problem.arrays
        self.n_examples, self.n_weights = problem.n_examples, problem.n_weights
        self.variable_features = TensorFeatures(problem.variable_features, device)
        self.factor_features = TensorFeatures(problem.factor_features, device)
        self.shapes = (
            (problem.variable_features.shape[1], problem.n_variable_blocks),
            (problem.factor_features.shape[1], problem.n_factor_blocks),
        )
        self.cut = self.shapes[0][0] * self.shapes[0][1]
        self.weight = device.put(a.weight)
        self.labels = device.put(a.labels.astype(np.int64))
        self.n_variables = device.put(np.diff(problem.example_variables))
        self.singles: list[Singles] = []
        self.pairs: list[Pairs] = []
        self._place_variables()
        if problem.example_factors[-1] > 0:
            self._place_factors()

    def _place_variables(self) -> None:
        p, a, device = self.problem, self.problem.arrays, self.device
        example, template, row, _ = _members(p, "variable")
        n, b = len(template), self.shapes[0][1]
        sizes = np.array([one.n_states[0] for one in p.variable_templates])[template]
        self.n_states = int(sizes.max())
        blocks, fixed = _filled_up(p, self.n_states)
        there = np.arange(self.n_states) < sizes[:, None]
        constant = fixed[template]
        if len(a.variable_scores):
            constant[there] += a.variable_scores
        if len(a.losses):
            constant[there] += a.losses
        else:
            there[np.arange(n), a.labels] = False
            constant += np.where(there, a.costs[:, None], 0.0)
        self.constant = device.put(constant) if constant.any() else None
        self.variable_weight = device.put(a.weight[example] / p.n_examples)[:, None]
        index = blocks[template]
        #: Whether scores of rows and blocks are those of variables and states, as they stand.
        self.is_plain = (
            self.n_states == b
            and n == p.variable_features.shape[0]
            and bool((row == np.arange(n)).all() and (index == np.arange(b)).all())
        )
        if not self.is_plain:
            places = (row[:, None] * b + index)[index >= 0]
            self.learned, self.places = device.put(np.flatnonzero(index.reshape(-1) >= 0)), device.put(places)
            self.sums = Sums(places, p.variable_features.shape[0] * b, device)

    def _place_factors(self) -> None:
        p, a, device = self.problem, self.problem.arrays, self.device
        example, template, row, local = _members(p, "factor")
        first, of_scope = p.example_variables[example], a.factors.neighbours[local]
        double = a.factor_kinds.arity[template] == 2
        one = a.scope[of_scope] + first
        other = np.where(double, a.scope[of_scope + double] + first, -1)
        depth = _depths(int(p.example_variables[-1]), one[double], other[double])
        table = a.factors.table[local] + p.example_tables[example]
        for t in np.unique(template):
            here = np.flatnonzero(template == t)
            if not double[here[0]]:
                for some in _distinct(here, one):
                    scoring = self._scoring(t, row[some], table[some], turned=False)
                    self.singles.append(Singles(device.put(one[some]), scoring))
                continue
            downwards = depth[one[here]] > depth[other[here]]
            for turned in (False, True):
                some = here[downwards != turned]
                child, parent = (other, one) if turned else (one, other)
                some = some[np.argsort(-depth[child[some]], kind="stable")]
                if len(some):
                    scoring = self._scoring(t, row[some], table[some], turned)
                    self.pairs.append(self._pairs(scoring, example[some], child[some], parent[some], depth))

    def _scoring(self, t: int, rows: NDArray[np.int64], table: NDArray[np.int64], turned: bool) -> Scoring:
        p, template = self.problem, self.problem.factor_templates[t]
        blocks, fixed = np.asarray(template.blocks, np.int64), np.asarray(template.scores)
        entries = np.arange(blocks.size).reshape(blocks.shape)
        if turned:
            blocks, fixed, entries = blocks.T, fixed.T, entries.T
        values = fixed.reshape(1, -1)
        if len(p.arrays.factor_scores):
            values = values + p.arrays.factor_scores[table[:, None] + entries.reshape(-1)]
        elif not np.ptp(rows):
            rows = rows[:1]
        return Scoring(rows, blocks, values, p.factor_features.shape[0], self.shapes[1][1], self.device)

    def _pairs(
        self, scoring: Scoring, example: NDArray[np.int64], child: NDArray[np.int64], parent: NDArray[np.int64],
        depth: NDArray[np.int64],
    ) -> Pairs:  # fmt: skip
        put, labels = self.device.put, self.problem.labels.astype(np.int64)
        weight = self.problem.arrays.weight[example] / self.n_examples
        truth = labels[child] * scoring.shape[1] + labels[parent]
        counts = np.bincount(truth, weight, minlength=scoring.shape[0] * scoring.shape[1])
        by_example = Sums(example, self.n_examples, self.device)
        return Pairs(
            put(child), put(parent), depth[child], scoring, put(truth), put(weight), by_example, put(counts)[None]
        )

    # ------------------------------------------------------------------------------------------------------- from weights

    def split(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """The weights of variables and of factors in a working vector, as views."""
        return w[: self.cut].view(self.shapes[0]), w[self.cut :].view(self.shapes[1])

    def scores(self, w: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Theta (V, K), and the tables of all groups of pairs."""
        w_v, w_f = self.split(w)
        theta = self.variable_features.scores(w_v)
        if not self.is_plain:
            found = torch.zeros(len(self.labels) * self.n_states, dtype=w.dtype, device=w.device)
            found[self.learned] = theta.reshape(-1)[self.places]
            theta = found.view(-1, self.n_states)
        if self.constant is not None:
            theta = theta + self.constant
        if not self.singles and not self.pairs:
            return theta, []
        of_factors = self.factor_features.scores(w_f)
        for variable, scoring in self.singles:
            theta[variable, : scoring.shape[0]] += scoring.tables(of_factors)
        return theta, [pairs.scoring.tables(of_factors) for pairs in self.pairs]

    def truth(self, theta: Tensor, tables: Sequence[Tensor]) -> Tensor:
        """The score (M,) of every example's truth."""
        own = theta.gather(1, self.labels[:, None])[:, 0]
        found = own
        if len(own) > self.n_examples:
            found = torch.segment_reduce(own, "sum", lengths=self.n_variables, unsafe=True)
        for pairs, table in zip(self.pairs, tables, strict=True):
            flat = table.flatten(1)
            entries = flat[0, pairs.truth] if pairs.scoring.is_shared else flat.gather(1, pairs.truth[:, None])[:, 0]
            found = found + pairs.by_example(entries)
        return found

    # --------------------------------------------------------------------------------------------------------- to weights

    def share(self, mu: Tensor) -> Tensor:
        """The truth minus marginals of variables (V, K), by the weights of their examples, 1/M included."""
        return (-mu * self.variable_weight).scatter_add_(1, self.labels[:, None], self.variable_weight)

    def statistics(self, share: Tensor, tables: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Psi = 1/M sum_m weight_m (phi_m(truth) - E phi_m), a working vector, and ell alike, a number on the device.

        `tables` are the marginals of the pairs of each group (n, K, K); or, where they are scored alike, the sum of them by the
        weights of their examples (1, K, K).
        """
        rows: Tensor = share if self.is_plain else self.sums(share.view(-1)[self.learned]).view(-1, self.shapes[0][1])
        parts = [self.variable_features.sums(rows).reshape(-1)]
        fixed = share.new_zeros(()) if self.constant is None else total(share, self.constant)
        if self.singles or self.pairs:
            rows = share.new_zeros((self.factor_features.shape[0], self.shapes[1][1]))
            for variable, scoring in self.singles:
                own = share[variable, : scoring.shape[0]]
                fixed = fixed + scoring.add(rows, own.sum(0, keepdim=True) if scoring.is_shared else own)
            for pairs, table in zip(self.pairs, tables, strict=True):
                fixed = fixed + pairs.scoring.add(rows, less_truth(pairs, table.flatten(1)))
            parts.append(self.factor_features.sums(rows).reshape(-1))
        elif self.n_weights > self.cut:
            parts.append(share.new_zeros(self.n_weights - self.cut))
        return torch.cat(parts) if len(parts) > 1 else parts[0], -fixed


def less_truth(pairs: Pairs, table: Tensor) -> Tensor:
    """The truth's statistics minus the expected ones, weighted: (n, entries), or (1, entries) of all together."""
    if pairs.scoring.is_shared:
        return pairs.counts - table
    own = -table * pairs.weight[:, None]
    return own.scatter_add_(1, pairs.truth[:, None], pairs.weight[:, None])


def total(share: Tensor, scores: Tensor) -> Tensor:
    """The sum of shares times scores; what is forbidden has no share, and -inf times 0 would be NaN."""
    return (share * torch.where(share == 0.0, 0.0, scores)).sum()


def refusal(problem: Any) -> str | None:
    """Why a problem cannot be on a device, or None."""
    if not isinstance(problem, FactorGraphs):
        return f"a {type(problem).__name__} has an oracle of its own, which runs on the processor"
    if problem.has_kernel:
        return "its features are known by a kernel alone (n_basis makes features that a device takes)"
    if problem.zero_one:
        return "the zero-one loss is no sum over variables"
    if problem.has_structured:
        return "it has structured factors"
    if any(template.arity > 2 for template in problem.factor_templates):
        return "it has factors of more than two variables, as chains of order 2 have"
    if not problem.is_forest:
        return "not all of its graphs are trees"
    return None


def room(problem: FactorGraphs) -> int:
    """Bytes that a batch takes on a device, about, with room to work in."""
    width = max(template.n_states[0] for template in problem.variable_templates)
    entries = int(problem.example_variables[-1]) * width
    features = sum(room_of_features(one) for one in (problem.variable_features, problem.factor_features))
    tables = 0 if problem.factor_features.shape[0] == 1 else int(problem.example_tables[-1])
    rows = problem.n_variable_blocks * problem.variable_features.shape[0]
    return features + 8 * (6 * entries + 2 * rows + 4 * tables + 8 * problem.n_weights)


def _members(problem: FactorGraphs, side: str) -> Iterator[NDArray[np.int64]]:
    """Of the variables or factors of all examples: the example, the template, the feature row, the number among all structures'."""
    a = problem.arrays
    starts, first = getattr(problem, f"example_{side}s"), getattr(a.structures, f"{side}s")
    members, groups = getattr(a, f"{side}s"), getattr(a, f"{side}_groups")
    example = np.repeat(np.arange(problem.n_examples), np.diff(starts))
    local = np.arange(starts[-1]) + (first[problem.structure_of] - starts[:-1])[example]
    rows = np.repeat(groups.row, groups.last - groups.first)
    row = getattr(a.examples, f"{side}_row")[example] + rows[local]
    return iter((example, members.template[local].astype(np.int64), row, local))


def _filled_up(problem: FactorGraphs, width: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Blocks and fixed scores of all variables' templates, with -1 and -inf for states that are not there."""
    n = len(problem.variable_templates)
    blocks, fixed = np.full((n, width), -1), np.full((n, width), -np.inf)
    for t, template in enumerate(problem.variable_templates):
        blocks[t, : len(template.blocks)], fixed[t, : len(template.blocks)] = template.blocks, template.scores
    return blocks, fixed


def _distinct(chosen: NDArray[np.int64], variable: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Cut factors into sets that have no variable twice."""
    order = chosen[np.argsort(variable[chosen], kind="stable")]
    new = np.concatenate([[True], np.diff(variable[order]) != 0])
    first = np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
    rank = np.arange(len(order)) - first
    return (np.sort(order[rank == k]) for k in range(rank.max() + 1))


def _depths(n: int, one: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.int64]:
    """How far each of n variables is from the root of its tree, which is its last variable."""
    graph = coo_array((np.ones(len(one)), (one, other)), shape=(n, n))
    n_trees, tree = connected_components(graph, directed=False)
    roots = np.zeros(n_trees, np.int64)
    np.maximum.at(roots, tree, np.arange(n))
    # One more node, above all roots.
    rows, columns = np.concatenate([one, roots]), np.concatenate([other, np.full(n_trees, n)])
    above: Any = coo_array((np.ones(len(rows)), (rows, columns)), shape=(n + 1, n + 1)).tocsr()
    return np.asarray(dijkstra(above, directed=False, indices=np.array([n]), unweighted=True))[0, :n].astype(np.int64)

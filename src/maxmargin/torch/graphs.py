"""FactorGraphScores: scores of graphs with cycles, or of any batch of `FactorGraphs`, answered by the library's engines.

The scores stand in the flat coordinates of `maxmargin.problems.factor_graphs`: *states* for variables, *tables* for factors.
Engines work in float64 on the processor, and what they answer goes back to the device of the scores. Gradients are the engines'
answers: the indicator of a labeling, the marginals of a relaxation, or the marginals of the Gibbs distribution.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from maxmargin.errors import DataError, MaxMarginError, OptionError, TooLargeError
from maxmargin.inference import Engine, choose, engine
from maxmargin.inference import top_k as best_labelings
from maxmargin.inference.choice import exact_engine
from maxmargin.inference.contract import check_refusal
from maxmargin.problems import FactorGraphs, Features, Scores, Structure, Template
from maxmargin.torch.chain_scan import FORBIDDEN
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
    cost_of_wrong,
    padded_costs,
)


class Places(NamedTuple):
    """Where the entries of a padded batch stand in flat coordinates, and whose they are; tensors on the device of the scores."""

    #: Example of each state and of each entry of a table, and the first state of each variable.
    example_of_state: Tensor
    example_of_entry: Tensor
    first_state: Tensor
    #: Example of each variable, and example and first entry of each factor.
    example_of_variable: Tensor
    example_of_factor: Tensor
    first_entry: Tensor


class FactorGraphScores(StructuredScores):
    """Scores of pairwise graphs: ``sum_i unary[i, y_i] + sum_e pairwise[e, y_i, y_j]`` for edges ``e = (i, j)``.

    Parameters
    ----------
    unary : tensor (B, N, K)
        Score of each state of each variable.
    pairwise : tensor (K, K), (E, K, K) or (B, E, K, K)
        Score of the states of the first end (row) and of the second (column) of each edge.
    edges : int array or tensor (E, 2), or a list of B of them
        The same for all examples, or each example's own; then E is the largest number of edges.
    lengths, mask : int tensor (B,), bool tensor (B, N), optional
        How many variables each example has; or, True for these, which come first.
    inference : "auto", name or engine
        Who finds maxima and marginals; "auto" is exact where that is cheap, and a relaxation elsewhere
        (`maxmargin.inference.choose`).
    """

    def __init__(
        self,
        unary: Tensor,
        pairwise: Tensor,
        edges: Any,
        lengths: Any = None,
        mask: Tensor | None = None,
        inference: str | Engine = "auto",
    ) -> None:
        unary = check_tensor(unary, "unary", ((None, None, None),))
        if 0 in unary.shape:
            raise DataError(f"unary has shape {tuple(unary.shape)}; there must be an example, a variable and a state.")
        n, size, k = unary.shape
        lists = _edge_lists(edges, n)
        most = max(len(one) for one in lists)
        pairwise = check_tensor(pairwise, "pairwise", ((k, k), (most, k, k), (n, most, k, k)))
        check_alike(unary, pairwise, ("unary", "pairwise"))
        self.lengths = check_mask(lengths, mask, unary)
        check_values({}, self.lengths, mask, size)
        sizes = [size] * n if self.lengths is None else self.lengths.tolist()
        graphs = _pairwise_graphs(tuple(one.tobytes() for one in lists), tuple(sizes), k)
        self._inside = torch.arange(size) < torch.tensor(sizes)[:, None]
        inside = self._inside.to(unary.device)
        pairs = pairwise.expand(n, most, k, k)
        if any(len(one) < most for one in lists):
            kept = torch.arange(most) < torch.tensor([len(one) for one in lists])[:, None]
            pairs = pairs[kept.to(unary.device)]
        self._set(graphs, unary[inside].reshape(-1), pairs.reshape(-1), inference)
        self._padded = unary.detach()

    @classmethod
    def from_graphs(
        cls, graphs: FactorGraphs, variables: Tensor, factors: Tensor, inference: str | Engine = "auto"
    ) -> FactorGraphScores:
        """Scores in *states* and *tables* coordinates of any batch of factor graphs with tables; labels are then flat (V,).

        Parameters
        ----------
        graphs : FactorGraphs
            The batch.
        variables, factors : tensors
            Scores in the order of `maxmargin.problems.Scores`.
        inference : "auto", name or engine
            Who finds maxima and marginals.
        """
        states, entries = int(graphs.example_states[-1]), int(graphs.example_tables[-1])
        variables = check_tensor(variables, "The tensor of variables' scores", ((states,),))
        factors = check_tensor(factors, "The tensor of factors' scores", ((entries,),))
        check_alike(variables, factors, ("The scores of variables", "those of factors"))
        refusal = graphs.refuse_structured("FactorGraphScores")
        if refusal is not None:
            raise DataError(refusal)
        made = cls.__new__(cls)
        made.lengths, made._padded, made._inside = None, None, None
        made._set(graphs, variables, factors, inference)
        return made

    @classmethod
    def of_trees(cls, trees: Any, inference: str | Engine = "auto") -> FactorGraphScores:
        """The scores of a `TreeScores`.

        Parameters
        ----------
        trees : TreeScores
            Scores of forests.
        inference : "auto", name or engine
            Who finds maxima and marginals.
        """
        n, size, k = trees.unary.shape
        sizes = trees.sizes.tolist()
        parents = trees.parents.cpu().numpy()
        nodes = [np.flatnonzero(parents[m, : sizes[m]] >= 0) for m in range(n)]
        edges = [np.stack([parents[m, below], below], 1) for m, below in enumerate(nodes)]
        pairs = trees.pairwise.expand(n, size, k, k)
        most = max(len(one) for one in nodes)
        chosen = torch.zeros(n, most, dtype=torch.long)
        for m, below in enumerate(nodes):
            chosen[m, : len(below)] = torch.as_tensor(below)
        rows = torch.arange(n, device=pairs.device)[:, None]
        own, pairs = (
            torch.where(one < FORBIDDEN / 10, -torch.inf, one) if trees.constrained else one
            for one in (trees.unary, pairs[rows, chosen.to(pairs.device)])
        )
        return cls(own, pairs, edges, trees.sizes, inference=inference)

    def _set(self, graphs: FactorGraphs, variables: Tensor, factors: Tensor, inference: str | Engine) -> None:
        self.graphs, self.variables, self.factors = graphs, variables, factors
        self.constrained, _ = check_values({"unary": variables, "pairwise": factors}, None, None, 0)
        self._inference = None if isinstance(inference, str) and inference == "auto" else engine(inference)
        if self._inference is not None:
            check_refusal(self._inference, graphs)
        self._places = Places(*(torch.as_tensor(one, device=variables.device) for one in _places(graphs)))

    # ------------------------------------------------------------------------------------------------ scores of labelings

    @property
    def sizes(self) -> Tensor:
        """Number of variables (B,) of each example."""
        return torch.as_tensor(np.diff(self.graphs.example_variables), device=self.variables.device)

    def score(self, labels: Tensor) -> Tensor:
        """Score (B,) of one labeling an example, with gradients."""
        return self._score(self._flat(labels))

    def _score(self, labels: Tensor) -> Tensor:
        places = self._places
        own = self.variables[places.first_state + labels]
        entries = places.first_entry + torch.as_tensor(
            _joint_states(self.graphs, labels.cpu().numpy()), device=labels.device
        )
        return self._summed(own, places.example_of_variable) + self._summed(
            self.factors[entries], places.example_of_factor
        )

    def _summed(self, values: Tensor, examples: Tensor) -> Tensor:
        return self.variables.new_zeros(self.graphs.n_examples).index_add(0, examples, values)

    def _flat(self, labels: Any) -> Tensor:
        """Labels (V,) of all variables, or a sentence."""
        if self._padded is not None:
            checked = check_labels(labels, self._padded, self.lengths)
            return checked[self._inside.to(checked.device)]
        n_states = _n_states(self.graphs)
        shape = (len(n_states),)
        if not isinstance(labels, Tensor) or tuple(labels.shape) != shape or labels.is_floating_point():
            raise DataError(f"The labels must be a tensor of shape {shape} with whole numbers.")
        wrong = ((labels < 0) | (labels.cpu() >= torch.as_tensor(n_states)).to(labels.device)).nonzero()
        if len(wrong):
            v = int(wrong[0, 0])
            raise DataError(f"Label {v} is {int(labels[v])}; expected a state from 0 to {int(n_states[v]) - 1}.")
        return labels.long()

    def _shown(self, labels: Any) -> Tensor:
        """Labels of all variables in the shape in which they are given, -1 at padding."""
        flat = torch.as_tensor(np.asarray(labels, np.int64), device=self.variables.device)
        if self._padded is None:
            return flat
        out = flat.new_full((*flat.shape[:-1], *self._inside.shape), -1)
        out[..., self._inside.to(flat.device)] = flat
        return out

    def _tables(self) -> Scores:
        """The scores as engines read them."""
        return Scores(*(one.detach().cpu().double().numpy() for one in (self.variables, self.factors)))

    # ------------------------------------------------------------------------------------------------ answers

    def max(self) -> Max:
        """The best labeling of each example, as far as the engine finds it."""
        found = (self._inference or choose(self.graphs)[0]).maximise(self.graphs, self._tables())
        labels = torch.as_tensor(found.labels.astype(np.int64), device=self.variables.device)
        exact = found.bounds <= found.values + 1e-9 * np.maximum(1.0, np.abs(found.values))
        self.solved = "exact" if exact.all() else "approximate"
        return Max(self._score(labels), self._shown(found.labels), torch.as_tensor(exact, device=self.variables.device))

    def hinge_maximum(self) -> Tensor:
        """The value (B,) of the relaxation, if the engine solves one, else that of the labeling it finds."""
        chosen = self._inference or choose(self.graphs)[0]
        if not hasattr(chosen, "relax"):
            return self.max().values
        relaxed = chosen.relax(self.graphs, self._tables())
        self.solved = "relaxed" if relaxed.ambiguous.any() else "exact"
        return self._expected(relaxed.variables, relaxed.factors)

    def _expected(self, of_variables: Any, of_factors: Any) -> Tensor:
        """Mean score (B,) under marginals, which are taken as they are; 0 * -inf is 0."""
        total = 0.0
        for theta, mu, examples in (
            (self.variables, of_variables, self._places.example_of_state),
            (self.factors, of_factors, self._places.example_of_entry),
        ):
            share = torch.as_tensor(mu, device=theta.device).to(theta.dtype)
            total = total + self._summed(torch.where(share > 0, share * theta, 0.0), examples)
        return total

    def log_partition(self) -> Tensor:
        """The logarithm of the sum of exp(score) over all labelings (B,); the gradient is the marginals."""
        return _LogPartition.apply(self.variables, self.factors, self)

    def marginals(self) -> Tensor:
        """Probability of each state: (B, N, K), 0 at padding, or flat (states,) for given graphs."""
        of_variables = _Marginals.apply(self.variables, self.factors, self)[0]
        if self._padded is None:
            return of_variables
        n, size, k = self._padded.shape
        inside = self._inside.to(of_variables.device)
        return of_variables.new_zeros(n, size, k).masked_scatter(inside[..., None], of_variables)

    def entropy(self) -> Tensor:
        """Entropy (B,) of p(y) ~ exp(score(y)), in nats, without gradients."""
        with torch.no_grad():
            found = self._answer()
            return self.variables.new_tensor(found.log_partition) - self._expected(found.variables, found.factors)

    def _answer(self, graphs: FactorGraphs | None = None, tables: Scores | None = None) -> Any:
        """Exact marginals by the engine that was given or a cheap one."""
        given = self.graphs if graphs is None else graphs
        chosen = self._inference
        if chosen is None:
            found = exact_engine(given)
            if found is None:
                raise TooLargeError(
                    "No exact engine takes these graphs at a small cost, so the log-partition is out of reach; give "
                    "inference=JunctionTree(limit=...) where memory allows it, or train by structured_hinge or perceptron, "
                    "which need the maximum alone."
                )
            chosen = found[0]
        elif not chosen.exact:
            raise OptionError(
                f'The engine "{chosen.name}" has no exact marginals; use "auto", "trees", "exhaustive" or "junction_tree", or '
                "train by structured_hinge or perceptron, which need the maximum alone."
            )
        return chosen.marginals(given, self._tables() if tables is None else tables)

    def top_k(self, k: int) -> TopK:
        """The k best labelings of each example, of graphs without cycles."""
        check_count(k, "k")
        if not self.graphs.is_forest:
            raise DataError(
                "top_k needs graphs without cycles; max() has the best labeling, and sample() draws likely ones."
            )
        found = best_labelings(self.graphs, self._tables(), k)
        missing = torch.as_tensor(np.isneginf(found.values), device=self.variables.device)
        labels = torch.as_tensor(found.labels.astype(np.int64), device=self.variables.device)
        values = torch.stack([self._score(one.clamp(min=0)) for one in labels], 1)
        shown = torch.stack([self._shown(one) for one in found.labels], 0)
        if self._padded is not None:
            shown = shown.transpose(0, 1)
        return TopK(torch.where(missing, -torch.inf, values), shown)

    def sample(self, n: int = 1, generator: torch.Generator | None = None) -> Tensor:
        """Labelings drawn independently from p(y) ~ exp(score(y)), the first axis counts them.

        One variable of every example after the other is drawn given those before it, so that a draw costs marginals for
        each variable.
        """
        check_count(n, "n")
        examples = np.tile(np.arange(self.graphs.n_examples), n)
        graphs, tables = self.graphs.take(examples), self._tables()
        v_scores, f_scores = np.tile(tables.variables, n), np.tile(tables.factors, n)
        n_states, firsts = _n_states(graphs), graphs.example_variables
        states = np.concatenate([[0], np.cumsum(n_states)])
        labels = np.zeros(len(n_states), np.int64)
        sizes = np.diff(firsts)
        for i in range(int(sizes.max())):
            found = self._answer(graphs, Scores(v_scores, f_scores))
            noise = torch.empty(graphs.n_examples, dtype=torch.float64).uniform_(generator=generator).numpy()
            for m in np.flatnonzero(sizes > i):
                v = firsts[m] + i
                own = slice(states[v], states[v + 1])
                below = np.cumsum(found.variables[own])
                labels[v] = min(int(np.searchsorted(below, noise[m] * below[-1], side="right")), int(n_states[v]) - 1)
                kept = v_scores[own][labels[v]]
                v_scores[own] = -np.inf
                v_scores[states[v] + labels[v]] = kept
        return self._shown(labels.reshape(n, -1))

    # ------------------------------------------------------------------------------------------------ costs

    def costs(self, labels: Tensor, cost: Any) -> Tensor:
        """What each state of each variable costs if `labels` are the truth, flat (states,)."""
        if self._padded is not None:
            checked = check_labels(labels, self._padded, self.lengths)
            table = padded_costs(checked, cost, self._padded, self.sizes)
            return table[self._inside.to(table.device)].reshape(-1)
        flat = self._flat(labels)
        if isinstance(cost, Tensor):
            cost = check_tensor(cost, "cost", (tuple(self.variables.shape),))
            check_alike(cost, self.variables, ("cost", "the scores"))
            return cost
        table = cost_of_wrong(cost, self.sizes, self.variables)[self._places.example_of_state]
        return table.index_fill(0, self._places.first_state + flat, 0.0)

    def augmented(self, costs: Tensor) -> FactorGraphScores:
        """The same scores with costs added to those of the variables."""
        made = FactorGraphScores.__new__(FactorGraphScores)
        made.__dict__.update(self.__dict__)
        made.variables = self.variables + costs
        return made


class _LogPartition(torch.autograd.Function):
    """The log-partition of an engine; the gradient is its marginals."""

    @staticmethod
    def forward(ctx: Any, variables: Tensor, factors: Tensor, scores: FactorGraphScores) -> Tensor:
        found = scores._answer()
        ctx.scores = scores
        ctx.save_for_backward(variables, factors)
        ctx.found = found
        return variables.new_tensor(found.log_partition)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        scores: FactorGraphScores = ctx.scores
        of_variables, of_factors = _Marginals.apply(*ctx.saved_tensors, scores, ctx.found)
        places = scores._places
        return of_variables * grad[places.example_of_state], of_factors * grad[places.example_of_entry], None


class _Marginals(torch.autograd.Function):
    """Marginals of an engine, which knows no derivatives of them."""

    @staticmethod
    def forward(
        ctx: Any, variables: Tensor, factors: Tensor, scores: FactorGraphScores, found: Any = None
    ) -> tuple[Tensor, Tensor]:
        found = scores._answer() if found is None else found
        return variables.new_tensor(found.variables), factors.new_tensor(found.factors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        raise MaxMarginError(
            "The marginals of FactorGraphScores have no gradient of their own; ChainScores and TreeScores can be "
            "differentiated twice."
        )


# ------------------------------------------------------------------------------------------------------- graphs


def _edge_lists(edges: Any, n: int) -> list[np.ndarray[Any, Any]]:
    """The edges (E, 2) of each example, as int64."""
    own = (
        isinstance(edges, list | tuple) and len(edges) > 0 and (isinstance(edges[0], Tensor) or np.ndim(edges[0]) == 2)
    )
    given = list(edges) if own else [edges]
    if own and len(given) != n:
        raise DataError(f"edges has lists for {len(given)} examples; there are {n}.")
    lists = []
    for m, one in enumerate(given):
        values = one.cpu().numpy() if isinstance(one, Tensor) else np.asarray(one)
        values = np.zeros((0, 2), np.int64) if values.size == 0 else values
        if values.ndim != 2 or values.shape[1] != 2 or values.dtype.kind not in "iu":
            whose = f" of example {m}" if own else ""
            raise DataError(
                f"The edges{whose} have shape {values.shape} and dtype {values.dtype}; expected (E, 2) whole numbers."
            )
        lists.append(np.ascontiguousarray(values, np.int64))
    return lists if own else lists * n


@lru_cache(maxsize=16)
def _pairwise_graphs(edges: tuple[bytes, ...], sizes: tuple[int, ...], k: int) -> FactorGraphs:
    """Graphs without features; the last ones are kept, and with them what engines remember of their shapes."""
    shapes: dict[tuple[bytes, int], int] = {}
    structures: list[Structure] = []
    structure_of: list[int] = []
    for ends, size in zip(edges, sizes, strict=True):
        if (ends, size) not in shapes:
            shapes[ends, size] = len(structures)
            scopes = np.frombuffer(ends, np.int64).reshape(-1, 2)
            no_rows = np.zeros(len(scopes), np.int64)
            structures.append(Structure(np.zeros(size, int), np.zeros(size, int), no_rows, no_rows, scopes))
        structure_of.append(shapes[ends, size])
    rows = np.zeros(len(sizes), int)
    return FactorGraphs(
        structures, structure_of, [Template(np.full(k, -1))], [Template(np.full((k, k), -1))],
        Features.constant(), Features.constant(), rows, rows,
    )  # fmt: skip


def _n_states(graphs: FactorGraphs) -> np.ndarray[Any, Any]:
    return np.diff(np.append(graphs.state_starts(), graphs.example_states[-1]))


def _places(graphs: FactorGraphs) -> tuple[np.ndarray[Any, Any], ...]:
    """The arrays of `Places`."""
    n = np.arange(graphs.n_examples)
    sizes = [np.diff(one) for one in (graphs.example_states, graphs.example_tables)]
    factors = np.diff(graphs.example_factors)
    tables = [
        graphs.factor_templates[t].blocks.size
        for s in graphs.structure_of
        for t in graphs.structures[s].factor_templates
    ]
    return (
        np.repeat(n, sizes[0]),
        np.repeat(n, sizes[1]),
        np.asarray(graphs.state_starts()),
        np.repeat(n, np.diff(graphs.example_variables)),
        np.repeat(n, factors),
        np.concatenate([[0], np.cumsum(tables)])[:-1].astype(np.int64),
    )


def _joint_states(graphs: FactorGraphs, labels: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Number of the joint state of each factor of all examples."""
    parts = []
    for m, s in enumerate(graphs.structure_of):
        structure, own = graphs.structures[s], labels[graphs.example_variables[m] : graphs.example_variables[m + 1]]
        if len(structure.arity) and (structure.arity == 2).all():
            widths = np.array([graphs.factor_templates[t].n_states[1] for t in structure.factor_templates])
            ends = own[structure.scope.reshape(-1, 2)]
            parts.append(ends[:, 0] * widths + ends[:, 1])
            continue
        for scope, t in zip(structure.scope_lists(), structure.factor_templates, strict=True):
            parts.append(np.array([np.ravel_multi_index(tuple(own[scope]), graphs.factor_templates[t].n_states)]))
    return np.concatenate(parts).astype(np.int64) if parts else np.zeros(0, np.int64)

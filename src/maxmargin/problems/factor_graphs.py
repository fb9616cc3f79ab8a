"""FactorGraphs: a batch of factor graphs as flat arrays. Everything but parsing is one of these.

Conventions
-----------
Example m has the variables ``example_variables[m]:example_variables[m+1]`` of all variables, concatenated, and likewise
factors. Three more coordinates, concatenated over examples in the same way, address the arrays that solvers and engines
keep:

- *states*: one entry per (variable, state): losses, variable scores, variable marginals;
- *tables*: one entry per (factor, joint state), C order: factor scores, factor marginals; for a structured factor
  (structured.py) one entry per parameter: its scores, and the means of its statistics;
- *messages*: one entry per (factor, variable of its scope, state but the first): agreement multipliers. They are
  defined only up to a constant per (factor, variable), so the first state's is always 0 and is not kept.

The shape of an example is a `Structure`, shared by all examples of that shape: it stays in the cache while its examples
are visited.

A *group* is a run of consecutive variables (or factors) of one structure that have the same feature row. Its members
are scored together: one pass over the row's features gives the scores of all the blocks they need.

The score of state y of variable i is ``fixed + x_row . W_v[:, block]``, with W_v of shape (features, blocks); the same
for factors with W_f. The flat weights are ``[W_v.T.ravel(), W_f.T.ravel()]``, so that each block's weights are
contiguous there.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from maxmargin import scratch
from maxmargin.errors import DataError, OptionError
from maxmargin.jit import kernel
from maxmargin.parallel.threads import run_shards
from maxmargin.problems.features import Features, KernelBlocks, KernelFeatures
from maxmargin.problems.layout import (
    EXAMPLE,
    Batch,
    GraphArrays,
    Sizes,
    fill_scores,
    flatten_structures,
    joint_state,
    offsets,
    structured_data,
)
from maxmargin.problems.structured import FactorRoom, structured_score, work_size
from maxmargin.problems.templates import TABLE, Structure, Template

#: Columns of weights that are transposed at a time.
_SOME_COLUMNS = 1024
#: Examples whose labels are checked at a time.
_SOME_EXAMPLES = 1 << 16
#: What examples are numbered in.
_COORDINATES = ("variables", "factors", "states", "tables", "messages")


class Scores(NamedTuple):
    """Score tables of a batch.

    Attributes
    ----------
    variables : float64 array
        A score for each state of each variable, in *states* coordinates.
    factors : float64 array
        A score for each joint state of each factor, in *tables* coordinates.
    """

    variables: NDArray[np.float64]
    factors: NDArray[np.float64]


class FactorGraphs:
    """A batch of factor graphs with features, shared weights, labels and a task loss.

    Parameters
    ----------
    structures : list of Structure
    structure_of : int array (M,)
        Structure of each example.
    variable_templates, factor_templates : lists of Template
    variable_features, factor_features : Features
    variable_row, factor_row : int arrays (M,)
        The example's first row in each feature matrix.
    labels : int array (V,), optional
        State of each variable in the truth; None for examples to predict.
    losses : float array (states,), optional
        Task loss of each state of each variable; the loss of a labeling is the sum over variables.
    variable_scores, factor_scores : float arrays in states / tables coordinates, optional
        Fixed scores of single examples, added to the templates'; ``-inf`` forbids.
    weights : float array (M,), optional
        Weight of each example in the mean hinge; they are scaled to mean 1.
    costs : float array (V,), optional
        In the place of `losses`: what any wrong state of each variable costs.
    zero_one : bool
        The task loss is 1 for every labeling but the truth, and `losses` or `costs` are zeros.
    """

    def __init__(
        self,
        structures: Sequence[Structure],
        structure_of: ArrayLike,
        variable_templates: Sequence[Template],
        factor_templates: Sequence[Template],
        variable_features: Features,
        factor_features: Features,
        variable_row: ArrayLike,
        factor_row: ArrayLike,
        labels: ArrayLike | None = None,
        losses: ArrayLike | None = None,
        variable_scores: ArrayLike | None = None,
        factor_scores: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        costs: ArrayLike | None = None,
        zero_one: bool = False,
    ) -> None:
        self.structures = list(structures)
        self.variable_templates = list(variable_templates)
        self.factor_templates = list(factor_templates)
        self.variable_features = variable_features
        self.factor_features = factor_features
        if np.size(structure_of) == 0:
            raise DataError("There are no examples: the data is empty.")
        chosen = as_states(structure_of, "structure_of").astype(np.int64)
        if chosen.ndim != 1:
            raise DataError(f"structure_of has shape {chosen.shape}; expected one structure per example.")
        wrong = np.flatnonzero((chosen < 0) | (chosen >= len(self.structures)))
        if len(wrong):
            m = int(wrong[0])
            raise DataError(
                f"structure_of names structure {chosen[m]} for example {m}; there are {len(self.structures)}."
            )
        self.n_variable_blocks = _n_blocks(self.variable_templates)
        self.n_factor_blocks = _n_blocks(self.factor_templates)
        local, sizes = flatten_structures(
            self.structures, self.variable_templates, self.factor_templates, plain_factors=factor_scores is None
        )
        self.is_forest = all(self.structures[s].is_forest() for s in np.flatnonzero(np.bincount(chosen)))
        examples = _example_table(chosen, sizes)
        for side, rows, features, reads in (
            ("variable", variable_row, variable_features, sizes.variable_rows),
            ("factor", factor_row, factor_features, sizes.factor_rows),
        ):
            examples[f"{side}_row"][:-1] = _first_rows(side, rows, features, reads[chosen])
        n_variables, n_states, n_tables = (int(examples[-1][name]) for name in ("variables", "states", "tables"))
        self.arrays = GraphArrays(
            examples=examples,
            weight=example_weights(weights, len(chosen)),
            labels=_unknown(n_variables) if labels is None else _labels(labels, n_variables),
            losses=np.zeros(n_states if costs is None else 0)
            if losses is None
            else _vector(losses, n_states, "losses", forbidding=False),
            costs=_vector(costs, n_variables, "costs", forbidding=False),
            variable_scores=_vector(variable_scores, n_states, "variable_scores"),
            factor_scores=_vector(factor_scores, n_tables, "factor_scores"),
            **local,
        )
        #: Signs of the flat weights (`with_signs`); None if all are free.
        self.signs: NDArray[np.int8] | None = None
        self._numbers: Any = range(len(chosen))
        self.has_labels = labels is not None
        self.zero_one = zero_one
        if self.has_labels:
            self._check_labels()

    # ------------------------------------------------------------------------------------------------ shapes

    @property
    def offers(self) -> tuple[str, ...]:
        """What solvers may ask of this problem (solvers/core/capabilities.py)."""
        graphs = ("local scores", "max-oracle", "marginals")
        if self.without_matrix:
            return graphs
        if self.has_kernel:
            return (*graphs, "kernel matrix")
        return (*graphs, "kernel matrix", "features")

    @property
    def has_kernel(self) -> bool:
        """Whether the rows of the variables, or those of the factors, are known by a kernel alone."""
        return isinstance(self.variable_features, KernelFeatures) or isinstance(self.factor_features, KernelFeatures)

    @property
    def without_matrix(self) -> bool:
        """Whether a kernel's matrix is never held whole, so that no row has scores of its own."""
        return isinstance(self.variable_features, KernelBlocks) or isinstance(self.factor_features, KernelBlocks)

    @property
    def n_examples(self) -> int:
        """Number of examples, M."""
        return len(self.arrays.weight)

    @property
    def example_variables(self) -> NDArray[np.int64]:
        """Offsets (M+1,) of the examples' variables."""
        return np.asarray(self.arrays.examples.variables)

    @property
    def example_factors(self) -> NDArray[np.int64]:
        """Offsets (M+1,) of the examples' factors."""
        return np.asarray(self.arrays.examples.factors)

    @property
    def example_states(self) -> NDArray[np.int64]:
        """Offsets (M+1,) of the examples in *states* coordinates."""
        return np.asarray(self.arrays.examples.states)

    @property
    def example_tables(self) -> NDArray[np.int64]:
        """Offsets (M+1,) of the examples in *tables* coordinates."""
        return np.asarray(self.arrays.examples.tables)

    @property
    def example_messages(self) -> NDArray[np.int64]:
        """Offsets (M+1,) of the examples in *messages* coordinates."""
        return np.asarray(self.arrays.examples.messages)

    @property
    def structure_of(self) -> NDArray[np.int64]:
        """Structure (M,) of each example."""
        return np.asarray(self.arrays.examples.structure[:-1])

    @property
    def labels(self) -> NDArray[np.int32]:
        """State of each variable in the truth (V,); -1 where unknown."""
        return self.arrays.labels

    @property
    def n_weights(self) -> int:
        """Length of the flat weight vector."""
        return (
            self.n_variable_blocks * self.variable_features.shape[1]
            + self.n_factor_blocks * self.factor_features.shape[1]
        )

    @property
    def has_structured(self) -> bool:
        """Whether any example has a structured factor, one without a table."""
        return self._first_structured() is not None

    def refuse_structured(self, engine: str) -> str | None:
        """A sentence for an engine that knows tables only, naming the first structured factor; None if there is none.

        Parameters
        ----------
        engine : str
            Name of the engine, for the sentence.
        """
        found = self._first_structured()
        if found is None:
            return None
        m, c = found
        template = self.factor_templates[self.structures[self.structure_of[m]].factor_templates[c]]
        return (
            f"Example {self.number_of(m)}: factor {c} is a {template.name} factor over {template.arity} variables; "
            f'"{engine}" takes factors with tables only.'
        )

    def _first_structured(self) -> tuple[int, int] | None:
        """The first example with a structured factor, and that factor."""
        if all(template.kind == TABLE for template in self.factor_templates):
            return None
        a = self.arrays
        factors = np.flatnonzero(a.factor_kinds.kind[a.factors.template] != TABLE)
        first = np.searchsorted(factors, a.structures.factors)
        examples = np.flatnonzero(np.diff(first)[self.structure_of])
        if len(examples) == 0:
            return None
        s = self.structure_of[examples[0]]
        return int(examples[0]), int(factors[first[s]] - a.structures[s].factors)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        # Addresses of compiled functions are those of another process.
        self.arrays = self.arrays._replace(structured=structured_data(self.factor_templates))

    def split_weights(self, flat: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Views of the flat weights: (variable blocks, features) and (factor blocks, features).

        Parameters
        ----------
        flat : array (d,)
            Weights.
        """
        of_variables = (self.n_variable_blocks, self.variable_features.shape[1])
        of_factors = (self.n_factor_blocks, self.factor_features.shape[1])
        cut = of_variables[0] * of_variables[1]
        return flat[:cut].reshape(of_variables), flat[cut:].reshape(of_factors)

    def working_weights(
        self, flat: NDArray[np.float64] | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Weights as kernels want them, feature-major: W_v (p, B_v) and W_f (q, B_f).

        Parameters
        ----------
        flat : array (d,)
            Weights.
        """
        if flat is None:
            pairs = (self.n_variable_blocks, self.variable_features), (self.n_factor_blocks, self.factor_features)
            w_v, w_f = (np.zeros((features.working_rows, blocks)) for blocks, features in pairs)
            return w_v, w_f
        of_variables, of_factors = self.split_weights(flat)
        return self.variable_features.working_weights(of_variables), self.factor_features.working_weights(of_factors)

    def flat_weights(self, w_v: NDArray[np.float64], w_f: NDArray[np.float64], threads: int = 1) -> NDArray[np.float64]:
        """Flat weights of the kernels' two matrices.

        Parameters
        ----------
        w_v, w_f : array (p, B_v), array (q, B_f)
            Weights as kernels have them.
        threads : int
            Threads that copy them.
        """
        flat = np.empty(self.n_weights)
        of_variables, of_factors = self.split_weights(flat)
        for to, blocks in (
            (of_variables, self.variable_features.blocks(w_v)),
            (of_factors, self.factor_features.blocks(w_f)),
        ):

            def copy(begin: int, end: int, to: Any = to, blocks: Any = blocks) -> None:
                # Some columns at a time, which stay in the cache while block after block reads them.
                for first in range(begin, end, _SOME_COLUMNS):
                    last = min(first + _SOME_COLUMNS, end)
                    to[:, first:last] = blocks[:, first:last]

            run_shards(copy, to.shape[1], threads)
        return flat

    def inner(
        self,
        one: tuple[NDArray[np.float64], NDArray[np.float64]],
        other: tuple[NDArray[np.float64], NDArray[np.float64]],
    ) -> float:
        """Inner product of two pairs of the kernels' matrices.

        Parameters
        ----------
        one, other : pairs of arrays (p, B_v) and (q, B_f)
            Weights as kernels have them.
        """
        return self.variable_features.inner(one[0], other[0]) + self.factor_features.inner(one[1], other[1])

    def take(self, examples: ArrayLike, keep_numbers: bool = False) -> FactorGraphs:
        """The batch of some of the examples, in the given order; structures, templates and features are shared.

        Sentences count its examples from 0, or with `keep_numbers` as this batch does.

        Parameters
        ----------
        examples : int array
            Numbers of the examples.
        keep_numbers : bool
            Sentences count examples as this batch does, not from 0.
        """
        chosen = np.asarray(examples, np.int64)
        a = self.arrays
        table = a.examples[np.append(chosen, self.n_examples)]
        for name in _COORDINATES:
            table[name] = offsets(np.diff(a.examples[name])[chosen])
        numbers = np.take(self._numbers, chosen) if keep_numbers else range(len(chosen))
        return self._with(
            a._replace(
                examples=table,
                weight=a.weight[chosen],
                labels=_gather(a.labels, a.examples.variables, chosen),
                losses=_gather(a.losses, a.examples.states, chosen),
                costs=_gather(a.costs, a.examples.variables, chosen),
                variable_scores=_gather(a.variable_scores, a.examples.states, chosen),
                factor_scores=_gather(a.factor_scores, a.examples.tables, chosen),
            ),
            numbers,
        )

    def number_of(self, m: int) -> int:
        """Number of example m in the batch that this one was taken from, for sentences about it.

        Parameters
        ----------
        m : int
            Number of the example in this batch.
        """
        return int(self._numbers[m])

    def slice(self, begin: int, end: int) -> FactorGraphs:
        """The batch of examples begin to end - 1: views of this batch's arrays, which `take` would copy.

        Parameters
        ----------
        begin, end : int
            The first example, and the one after the last.
        """
        a = self.arrays
        table = a.examples[begin : end + 1].copy()
        first, last = a.examples[begin], a.examples[end]
        for name in _COORDINATES:
            table[name] -= first[name]
        return self._with(
            a._replace(
                examples=table,
                weight=a.weight[begin:end],
                labels=a.labels[first.variables : last.variables],
                losses=a.losses[first.states : last.states],
                costs=a.costs[first.variables : last.variables],
                variable_scores=a.variable_scores[first.states : last.states],
                factor_scores=a.factor_scores[first.tables : last.tables],
            ),
            self._numbers[begin:end],
        )

    def shard(self, begin: int, end: int) -> FactorGraphs:
        """Some examples with the feature rows that they read, and no others: what another machine needs of them.

        Parameters
        ----------
        begin, end : int
            The first example, and the one after the last.
        """
        made = self.slice(begin, end)
        table = made.arrays.examples
        for side in ("variable", "factor"):
            features: Features = getattr(made, f"{side}_features")
            if isinstance(features, KernelFeatures):
                raise OptionError(
                    "Examples whose features are known by a kernel alone cannot be cut into shards: a score needs all of their "
                    "rows. Use n_basis, which makes features of a kernel."
                )
            reads = np.array([getattr(s, f"{side}_rows").max(initial=-1) + 1 for s in self.structures], np.int64)
            first = table[f"{side}_row"][:-1]
            low, high = int(first.min()), int((first + reads[made.structure_of]).max())
            setattr(made, f"{side}_features", features.some_rows(low, max(high, low + 1)))
            table[f"{side}_row"][:-1] = first - low
        return made

    def without_losses(self) -> FactorGraphs:
        """The same batch with a task loss of 0."""
        a = self.arrays
        made = self._with(a._replace(losses=np.zeros_like(a.losses), costs=np.zeros_like(a.costs)))
        made.zero_one = False
        return made

    def with_costs(self, factor: NDArray[np.float64]) -> FactorGraphs:
        """The same batch with the task loss of each variable multiplied by a number (V,).

        Parameters
        ----------
        factor : array (V,)
            What the loss of each variable is multiplied by.
        """
        if self.zero_one:
            raise OptionError(
                'class_weight is not possible with loss="zero-one", of which single variables have no share; use sample_weight.'
            )
        a = self.arrays
        if len(a.costs):
            return self._with(a._replace(costs=a.costs * factor))
        sizes = np.diff(np.append(self.state_starts(), self.example_states[-1]))
        return self._with(a._replace(losses=a.losses * np.repeat(factor, sizes)))

    def with_loss_tables(self) -> FactorGraphs:
        """The same batch with the task loss of every state written down."""
        a = self.arrays
        if len(a.losses):
            return self
        starts = self.state_starts()
        losses = scratch.empty(int(self.example_states[-1]))
        losses[:] = np.repeat(a.costs, np.diff(np.append(starts, self.example_states[-1])))
        losses[starts + a.labels] = 0.0
        return self._with(a._replace(losses=losses, costs=np.empty(0)))

    def with_weights(self, weights: ArrayLike | None, mean: float = 1.0) -> FactorGraphs:
        """The same batch with other weights of its examples, scaled to a mean.

        Parameters
        ----------
        weights : array (M,)
            Weights of the examples.
        mean : float
            Their mean; it is 1 for solvers that go over all examples.
        """
        return self._with(self.arrays._replace(weight=mean * example_weights(weights, self.n_examples)))

    def with_variable_features(self, features: Features) -> FactorGraphs:
        """The same batch with other features of its variables, which have as many rows.

        Parameters
        ----------
        features : Features
            As many rows as the variables' features have now.
        """
        made = self._with(self.arrays)
        made.variable_features = features
        return made

    def with_factor_features(self, features: Features) -> FactorGraphs:
        """The same batch with other features of its factors, which have as many rows.

        Parameters
        ----------
        features : Features
            As many rows as the factors' features have now.
        """
        made = self._with(self.arrays)
        made.factor_features = features
        return made

    def with_signs(self, signs: ArrayLike | None) -> FactorGraphs:
        """The same batch with weights that must have signs; solvers that declare it keep them.

        Parameters
        ----------
        signs : int array (d,), or None
            1 for a weight that may not be negative, -1 for one that may not be positive, and 0 for the others.
        """
        made = self._with(self.arrays)
        made.signs = None
        if signs is not None:
            values = np.asarray(signs)
            if values.shape != (self.n_weights,) or not np.isin(values, (-1, 0, 1)).all():
                raise DataError(
                    f"signs has shape {values.shape}; expected -1, 0 or 1 for each of {self.n_weights} weights."
                )
            made.signs = values.astype(np.int8) if values.any() else None
        return made

    @cached_property
    def batch(self) -> Batch:
        """Graphs and features, as kernels see them."""
        return Batch.of(self.arrays, self.variable_features.arrays, self.factor_features.arrays)

    def _with(self, arrays: GraphArrays, numbers: Any = None) -> FactorGraphs:
        """A batch of other arrays on the same structures, templates and features; `numbers` are those of its examples."""
        made = type(self).__new__(type(self))
        made.__dict__.update({name: value for name, value in self.__dict__.items() if name != "batch"})
        made.arrays = arrays
        if numbers is not None:
            made._numbers = numbers
        if not self.is_forest:
            used = np.unique(arrays.examples[:-1].structure)
            made.is_forest = all(self.structures[s].is_forest() for s in used)
        return made

    # ------------------------------------------------------------------------------------------------ scores

    def scores(self, flat: NDArray[np.float64], loss_augmented: bool = False) -> Scores:
        """Score tables of all variables and factors under the weights, with the task loss added if asked.

        Parameters
        ----------
        flat : array (d,)
            Weights.
        loss_augmented : bool
            Add the task loss of every state.
        """
        return self.scores_of(self.working_weights(flat), loss_augmented)

    def scores_of(
        self, working: tuple[NDArray[np.float64], NDArray[np.float64]], loss_augmented: bool = False
    ) -> Scores:
        """The same for weights as kernels have them.

        Parameters
        ----------
        working : pair of arrays (p, B_v) and (q, B_f)
            Weights as kernels have them.
        loss_augmented : bool
            Add the task loss of every state.
        """
        out = Scores(np.empty(int(self.example_states[-1])), np.empty(int(self.example_tables[-1])))
        fill_scores(self.batch, *working, loss_augmented, *out)
        return out

    def labeling_scores(self, scores: Scores, labels: NDArray[np.int32]) -> NDArray[np.float64]:
        """Score (M,) of one labeling per example under the score tables.

        Parameters
        ----------
        scores : Scores
            Tables of scores of its variables and factors.
        labels : int array (V,)
            Labels of all variables, one example after another.
        """
        out = np.empty(self.n_examples)
        given = self.arrays, scores.variables, scores.factors, np.ascontiguousarray(labels, np.int32), out
        if self.has_structured:
            largest = self.arrays.largest
            _labeling_scores(*given, FactorRoom(np.empty(largest.slots, np.int32), np.empty(work_size(largest))))
        else:
            _labeling_scores(*given)
        return out

    def labeling_losses(self, labels: NDArray[np.int32]) -> NDArray[np.float64]:
        """Task loss (M,) of one labeling per example.

        Parameters
        ----------
        labels : int array (V,)
            Labels of all variables, one example after another.
        """
        a = self.arrays
        if self.zero_one:
            wrong = np.logical_or.reduceat(np.asarray(labels) != a.labels, self.example_variables[:-1])
            return np.asarray(wrong, np.float64)
        if len(a.costs):
            lost = np.where(np.asarray(labels) == a.labels, 0.0, a.costs)
        else:
            lost = a.losses[self.state_starts() + np.asarray(labels, np.int64)]
        return np.asarray(np.add.reduceat(lost, self.example_variables[:-1]))

    def worst_losses(self) -> NDArray[np.float64]:
        """The largest task loss (M,) that a labeling of each example can have, if nothing is forbidden."""
        a = self.arrays
        if self.zero_one:
            return np.ones(self.n_examples)
        if self.of_single_variables and len(a.losses):
            # A column at a time, which is fast if they are few.
            return np.asarray(reduce(np.maximum, a.losses.reshape(self.n_examples, -1).T))
        worst = a.costs if len(a.costs) else np.maximum.reduceat(a.losses, self.state_starts())
        return np.asarray(np.add.reduceat(worst, self.example_variables[:-1]))

    @property
    def of_single_variables(self) -> bool:
        """Whether all examples are of one structure, which is a variable."""
        return len(self.structures) == 1 and len(self.structures[0].variable_templates) == 1

    def state_starts(self) -> NDArray[np.int64]:
        """For each variable, where its states begin in *states* coordinates (V,)."""
        a = self.arrays
        if self.of_single_variables:
            return self.example_states[:-1]
        n = np.diff(self.example_variables)
        first = a.structures.variables[self.structure_of] - self.example_variables[:-1]
        local = np.repeat(first, n) + np.arange(len(a.labels))
        return np.asarray(np.repeat(self.example_states[:-1], n) + a.variables.table[local])

    # ------------------------------------------------------------------------------------------------ checks

    def _check_labels(self) -> None:
        a = self.arrays
        # In pieces, so that what is looked at takes no room beside the data.
        for first in range(0, self.n_examples, _SOME_EXAMPLES):
            self.slice(first, min(first + _SOME_EXAMPLES, self.n_examples))._check_states()
        constrained = any(
            np.isneginf(fixed).any() for fixed in (a.variable_fixed, a.factor_fixed, a.variable_scores, a.factor_scores)
        )
        if constrained:
            value = np.empty(self.n_examples)
            if not self.has_structured:
                _fixed_scores(a, value)
            else:
                # In pieces, so that checking never needs all score tables at once.
                zero = np.zeros(self.n_weights)
                for first in range(0, self.n_examples, 1000):
                    part = self.take(np.arange(first, min(first + 1000, self.n_examples)))
                    value[first : first + 1000] = part.labeling_scores(part.scores(zero), part.labels)
            if np.isneginf(value).any():
                m = int(np.flatnonzero(np.isneginf(value))[0])
                raise DataError(f"Example {m}: its own labels are forbidden by the hard constraints.")

    def _check_states(self) -> None:
        a = self.arrays
        starts = self.state_starts()
        n_states = np.diff(np.append(starts, self.example_states[-1]))
        wrong = np.flatnonzero((a.labels < 0) | (a.labels >= n_states))
        if len(wrong):
            m, i = self._locate(int(wrong[0]))
            label, last = a.labels[wrong[0]], n_states[wrong[0]] - 1
            raise DataError(f"Example {self.number_of(m)}: variable {i} has label {label}; its states are 0 to {last}.")
        if len(a.losses):
            truth_loss = a.losses[starts + a.labels]
            if (truth_loss != 0).any():
                m, i = self._locate(int(np.flatnonzero(truth_loss)[0]))
                raise DataError(f"Example {self.number_of(m)}: the loss of variable {i}'s own label is not 0.")

    def _locate(self, variable: int) -> tuple[int, int]:
        m = int(np.searchsorted(self.example_variables, variable, side="right") - 1)
        return m, variable - int(self.example_variables[m])


def _n_blocks(templates: Sequence[Template]) -> int:
    return max((int(template.blocks.max()) + 1 for template in templates), default=0)


def _example_table(structure_of: NDArray[np.int64], sizes: Sizes) -> Any:
    table = scratch.zeros(len(structure_of) + 1, EXAMPLE).view(np.recarray)
    table["structure"][:-1] = structure_of
    for name in _COORDINATES:
        if getattr(sizes, name).any():
            table[name] = offsets(getattr(sizes, name)[structure_of])
    return table


def _first_rows(side: str, rows: ArrayLike, features: Features, reads: NDArray[np.int64]) -> NDArray[np.int64]:
    first = np.asarray(rows, np.int64)
    if first.shape != reads.shape:
        raise DataError(f"{side}_row has shape {first.shape}; expected ({len(reads)},), one per example.")
    over = np.flatnonzero((first < 0) | (first + reads > features.shape[0]))
    if len(over):
        m = int(over[0])
        row = int(first[m]) if first[m] < 0 else int(first[m] + reads[m] - 1)
        raise DataError(
            f"Example {m} reads {side} feature row {row}, but {features.name} has {features.shape[0]} rows."
        )
    return first


def _gather(values: NDArray[Any], starts: NDArray[np.int64], chosen: NDArray[np.int64]) -> NDArray[Any]:
    if len(values) == 0:
        return values
    sizes = np.diff(starts)[chosen]
    first = np.repeat(starts[:-1][chosen] - offsets(sizes)[:-1], sizes)
    return np.asarray(values[first + np.arange(int(sizes.sum()))])


def _unknown(n: int) -> NDArray[np.int32]:
    labels = scratch.empty(n, np.int32)
    labels[:] = -1
    return labels


def _labels(values: ArrayLike, expected: int) -> NDArray[np.int32]:
    labels = np.asarray(values)
    if labels.shape != (expected,):
        raise DataError(f"There are {labels.size} labels for {expected} variables.")
    return as_states(labels, "The labels")


def as_states(values: ArrayLike, name: str) -> NDArray[np.int32]:
    """Labels as int32 states; refuses anything that is not a whole number."""
    labels = np.asarray(values)
    if labels.size == 0:
        return np.empty(labels.shape, np.int32)
    if labels.dtype.kind not in "biuf":
        raise DataError(f"{name} must be whole numbers; found dtype {labels.dtype}.")
    limit = np.iinfo(np.int32)
    if labels.dtype.kind in "bi" and limit.min <= labels.min() and labels.max() <= limit.max:
        # Nothing to look for, and no mask as long as they are.
        states = scratch.empty(labels.shape, np.int32)
        states[...] = labels
        return states
    # A NaN is in no range.
    wrong = ~((labels >= limit.min) & (labels <= limit.max) & (labels == np.floor(labels)))
    if wrong.any():
        at = np.unravel_index(int(np.flatnonzero(wrong)[0]), labels.shape)
        place = ", ".join(str(int(k)) for k in at)
        raise DataError(f"{name} must be whole numbers; entry [{place}] is {labels[at]}.")
    return np.asarray(labels.astype(np.int32))


def _vector(values: ArrayLike | None, expected: int, name: str, forbidding: bool = True) -> NDArray[np.float64]:
    if values is None:
        return np.empty(0)
    vector = np.ascontiguousarray(values, np.float64)
    if vector.shape != (expected,):
        raise DataError(f"{name} has shape {vector.shape}; expected ({expected},).")
    if np.isnan(vector).any() or np.isposinf(vector).any() or (not forbidding and np.isneginf(vector).any()):
        raise DataError(f"{name} must hold finite numbers" + (", or -inf to forbid a state." if forbidding else "."))
    return vector


def example_weights(weights: ArrayLike | None, n_examples: int) -> NDArray[np.float64]:
    """Weights of mean 1, from those given or from none."""
    if weights is None:
        return np.ones(n_examples)
    values = as_weights(weights, "The sample weights")
    if values.shape != (n_examples,):
        raise DataError(f"The sample weights have shape {values.shape}; expected ({n_examples},), one per example.")
    if not np.isfinite(values).all() or (values < 0).any() or not values.any():
        wrong = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
        which = f"; that of example {int(wrong[0])} is {values[wrong[0]]}" if len(wrong) else ""
        raise DataError(f"Sample weights must be finite, not negative, and not all zero{which}.")
    with np.errstate(over="ignore"):
        total = values.sum()
    if not np.isfinite(total):
        raise DataError("Sample weights are too large: their sum is not finite.")
    return np.asarray(values * (n_examples / total))


def as_weights(values: ArrayLike, name: str) -> NDArray[np.float64]:
    """Weights as float64; refuses what is no real number."""
    try:
        weights = np.asarray(values)
        if weights.dtype.kind in "biufO":
            return np.asarray(weights, np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"{name}: expected a real number for each example ({error}).") from None
    raise DataError(f"{name}: expected a real number for each example; found dtype {weights.dtype}.")


# ------------------------------------------------------------------------------------------------------- kernels


@kernel
def _labeling_scores(g: Any, v_scores: Any, f_scores: Any, labels: Any, out: Any, own: Any = None) -> None:
    """Score (M,) of one labeling per example under the score tables; `own` is room for a structured factor, if there are any."""
    examples, structures, variables, factors = g.examples, g.structures, g.variables, g.factors
    scope, kinds, slots, structured = g.scope, g.factor_kinds, g.slots, g.structured
    for m in range(len(examples) - 1):
        s, first = examples[m].structure, examples[m].variables
        v0, f0 = structures[s].variables, structures[s].factors
        total = 0.0
        for v in range(examples[m + 1].variables - first):
            total += v_scores[examples[m].states + variables[v0 + v].table + labels[first + v]]
        for c in range(f0, f0 + examples[m + 1].factors - examples[m].factors):
            at, t = examples[m].tables + factors[c].table, factors[c].template
            # Numba leaves a branch out, and what it calls, if the test of None stands alone.
            if own is not None:  # noqa: SIM102
                if kinds[t].kind != TABLE:
                    for j in range(kinds[t].arity):
                        own.labels[j] = labels[first + scope[factors[c].neighbours + j]]
                    total += structured_score(t, kinds, slots, structured, f_scores, at, own.labels, own.work)
                    continue
            if kinds[t].arity == 2:
                ends = factors[c].neighbours
                stride = slots[kinds[t].slots].stride
                total += f_scores[at + stride * labels[first + scope[ends]] + labels[first + scope[ends + 1]]]
                continue
            total += f_scores[at + joint_state(c, first, factors, scope, kinds, slots, labels)]
        out[m] = total


@kernel
def _fixed_scores(g: Any, out: Any) -> None:
    """Fixed score (M,) of the labels, where all factors have tables: features are not looked at."""
    examples, structures, variables, factors = g.examples, g.structures, g.variables, g.factors
    scope, v_kinds, kinds, slots, labels = g.scope, g.variable_kinds, g.factor_kinds, g.slots, g.labels
    v_fixed, f_fixed, v_scores, f_scores = g.variable_fixed, g.factor_fixed, g.variable_scores, g.factor_scores
    for m in range(len(examples) - 1):
        s, first = examples[m].structure, examples[m].variables
        v0, f0 = structures[s].variables, structures[s].factors
        total = 0.0
        for v in range(examples[m + 1].variables - first):
            total += v_fixed[v_kinds[variables[v0 + v].template].start + labels[first + v]]
            if len(v_scores) > 0:
                total += v_scores[examples[m].states + variables[v0 + v].table + labels[first + v]]
        for c in range(f0, f0 + examples[m + 1].factors - examples[m].factors):
            y = joint_state(c, first, factors, scope, kinds, slots, labels)
            total += f_fixed[kinds[factors[c].template].start + y]
            if len(f_scores) > 0:
                total += f_scores[examples[m].tables + factors[c].table + y]
        out[m] = total

"""FactorGraphs: a batch of factor graphs as flat arrays. Everything but parsing is one of these.

Conventions
-----------
Example m has the variables ``example_variables[m]:example_variables[m+1]`` of all variables, concatenated, and likewise
factors. Three more coordinates, concatenated over examples in the same way, address the arrays that solvers and engines keep:

- *states*: one entry per (variable, state): losses, variable scores, variable marginals;
- *tables*: one entry per (factor, joint state), C order: factor scores, factor marginals;
- *messages*: one entry per (factor, variable of its scope, state): agreement multipliers.

The shape of an example is a `Structure`, shared by all examples of that shape; what follows ``variable_`` and ``factor_``
below is local to a structure, so a structure's arrays stay in the cache while its examples are visited.

A *group* is a run of consecutive variables (or factors) of one structure that have the same feature row. Its members are
scored together: one pass over the row's features gives the scores of blocks ``first_block:last_block``.

The score of state y of variable i is ``fixed + x_row . W_v[:, block]``, with W_v of shape (features, blocks); the same for
factors with W_f. The flat weights are ``[W_v.T.ravel(), W_f.T.ravel()]``, so that each block's weights are contiguous there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from maxmargin.errors import DataError
from maxmargin.problems.features import Features, score_row
from maxmargin.problems.templates import Structure, Template


class GraphArrays(NamedTuple):
    """The flat arrays of a FactorGraphs, as kernels see them."""

    # One entry per example (offsets: one more).
    structure: NDArray[np.int32]
    weight: NDArray[np.float64]
    variables: NDArray[np.int64]
    factors: NDArray[np.int64]
    states: NDArray[np.int64]
    tables: NDArray[np.int64]
    messages: NDArray[np.int64]
    variable_row: NDArray[np.int64]
    factor_row: NDArray[np.int64]
    # One entry per variable; per (variable, state); per (factor, joint state).
    labels: NDArray[np.int32]
    losses: NDArray[np.float64]
    variable_scores: NDArray[np.float64]
    factor_scores: NDArray[np.float64]
    # Structures: offsets into the local arrays below.
    local_variables: NDArray[np.int64]
    local_factors: NDArray[np.int64]
    local_variable_groups: NDArray[np.int64]
    local_factor_groups: NDArray[np.int64]
    # Per variable of a structure.
    v_template: NDArray[np.int32]
    v_state: NDArray[np.int32]
    v_degree: NDArray[np.int32]
    v_incident: NDArray[np.int64]
    # Per factor of a structure; per (factor, slot) of a structure.
    f_template: NDArray[np.int32]
    f_table: NDArray[np.int64]
    f_message: NDArray[np.int64]
    f_scope: NDArray[np.int64]
    scope: NDArray[np.int32]
    # Incident (factor, slot) pairs of each variable.
    incident_factor: NDArray[np.int32]
    incident_slot: NDArray[np.int32]
    incident_message: NDArray[np.int64]
    # Groups, rows (first member, last member + 1, feature row, first block, last block + 1, offset in the score buffer).
    variable_groups: NDArray[np.int64]
    factor_groups: NDArray[np.int64]
    # Templates. A digit is a variable's state in a joint state; a slot is where that state's message stands in the factor's.
    vt_start: NDArray[np.int64]
    vt_block: NDArray[np.int32]
    vt_score: NDArray[np.float64]
    vt_sharing: NDArray[np.float64]
    ft_start: NDArray[np.int64]
    ft_block: NDArray[np.int32]
    ft_score: NDArray[np.float64]
    ft_arity: NDArray[np.int32]
    ft_shape_start: NDArray[np.int64]
    ft_shape: NDArray[np.int32]
    ft_digit_start: NDArray[np.int64]
    ft_digit: NDArray[np.int32]
    ft_slot: NDArray[np.int32]
    # Sizes of the largest example: states, table entries, messages, score buffers, one factor's table.
    largest: NDArray[np.int64]


class Scores(NamedTuple):
    """Score tables of a batch: ``variables`` in *states* coordinates, ``factors`` in *tables* coordinates."""

    variables: NDArray[np.float64]
    factors: NDArray[np.float64]


class FactorGraphs:
    """A batch of factor graphs with features, shared weights, labels and a decomposable task loss.

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
    ) -> None:
        self.structures = list(structures)
        self.variable_templates = list(variable_templates)
        self.factor_templates = list(factor_templates)
        self.variable_features = variable_features
        self.factor_features = factor_features
        structure_of = np.ascontiguousarray(structure_of, np.int32)
        if len(structure_of) == 0:
            raise DataError("There are no examples: the data is empty.")
        self.n_variable_blocks = _n_blocks(self.variable_templates)
        self.n_factor_blocks = _n_blocks(self.factor_templates)
        local, sizes = _flatten_structures(self.structures, self.variable_templates, self.factor_templates)
        self.is_forest = all(structure.is_forest() for structure in self.structures)
        offsets = {name: _offsets(size[structure_of]) for name, size in sizes.items()}
        rows_v, rows_f = np.ascontiguousarray(variable_row, np.int64), np.ascontiguousarray(factor_row, np.int64)
        for side, rows, features, last in (
            ("variable", rows_v, variable_features, sizes["variable_rows"]),
            ("factor", rows_f, factor_features, sizes["factor_rows"]),
        ):
            over = np.flatnonzero(rows + last[structure_of] > features.shape[0])
            if len(over):
                m = int(over[0])
                raise DataError(
                    f"Example {m} reads {side} feature row {rows[m] + last[structure_of[m]] - 1}, but {features.name} has "
                    f"{features.shape[0]} rows."
                )
        n_states, n_tables = int(offsets["states"][-1]), int(offsets["tables"][-1])
        self.arrays = GraphArrays(
            structure=structure_of,
            weight=_example_weights(weights, len(structure_of)),
            variables=offsets["variables"],
            factors=offsets["factors"],
            states=offsets["states"],
            tables=offsets["tables"],
            messages=offsets["messages"],
            variable_row=rows_v,
            factor_row=rows_f,
            labels=np.full(int(offsets["variables"][-1]), -1, np.int32)
            if labels is None
            else np.ascontiguousarray(labels, np.int32),
            losses=np.zeros(n_states) if losses is None else np.ascontiguousarray(losses, np.float64),
            variable_scores=_scores(variable_scores, n_states, "variable_scores"),
            factor_scores=_scores(factor_scores, n_tables, "factor_scores"),
            **local,
        )
        self.has_labels = labels is not None
        if self.has_labels:
            self._check_labels()

    # ------------------------------------------------------------------------------------------------ shapes

    @property
    def n_examples(self) -> int:
        """Number of examples, M."""
        return len(self.arrays.structure)

    @property
    def example_variables(self) -> NDArray[np.int64]:
        """Offsets (M+1,) of the examples' variables."""
        return self.arrays.variables

    @property
    def example_factors(self) -> NDArray[np.int64]:
        """Offsets (M+1,) of the examples' factors."""
        return self.arrays.factors

    @property
    def labels(self) -> NDArray[np.int32]:
        """State of each variable in the truth (V,); -1 where unknown."""
        return self.arrays.labels

    @property
    def n_weights(self) -> int:
        """Length of the flat weight vector."""
        return self.n_variable_blocks * self.variable_features.shape[1] + self.n_factor_blocks * self.factor_features.shape[1]

    def split_weights(self, flat: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Views of the flat weights: (variable blocks, features) and (factor blocks, features)."""
        of_variables = (self.n_variable_blocks, self.variable_features.shape[1])
        of_factors = (self.n_factor_blocks, self.factor_features.shape[1])
        cut = of_variables[0] * of_variables[1]
        return flat[:cut].reshape(of_variables), flat[cut:].reshape(of_factors)

    def working_weights(self, flat: NDArray[np.float64] | None = None) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Weights as kernels want them, feature-major: W_v (p, B_v) and W_f (q, B_f)."""
        if flat is None:
            flat = np.zeros(self.n_weights)
        of_variables, of_factors = self.split_weights(flat)
        return np.ascontiguousarray(of_variables.T), np.ascontiguousarray(of_factors.T)

    def flat_weights(self, w_v: NDArray[np.float64], w_f: NDArray[np.float64]) -> NDArray[np.float64]:
        """Flat weights of the kernels' two matrices."""
        return np.concatenate([w_v.T.ravel(), w_f.T.ravel()])

    def take(self, examples: ArrayLike) -> FactorGraphs:
        """The batch of some of the examples, in the given order; structures, templates and features are shared."""
        chosen = np.asarray(examples, np.int64)
        a = self.arrays
        picked = object.__new__(FactorGraphs)
        picked.__dict__.update(self.__dict__)
        picked.arrays = a._replace(
            structure=a.structure[chosen],
            weight=a.weight[chosen],
            variables=_offsets(np.diff(a.variables)[chosen]),
            factors=_offsets(np.diff(a.factors)[chosen]),
            states=_offsets(np.diff(a.states)[chosen]),
            tables=_offsets(np.diff(a.tables)[chosen]),
            messages=_offsets(np.diff(a.messages)[chosen]),
            variable_row=a.variable_row[chosen],
            factor_row=a.factor_row[chosen],
            labels=_gather(a.labels, a.variables, chosen),
            losses=_gather(a.losses, a.states, chosen),
            variable_scores=_gather(a.variable_scores, a.states, chosen),
            factor_scores=_gather(a.factor_scores, a.tables, chosen),
        )
        return picked

    # ------------------------------------------------------------------------------------------------ scores

    def scores(self, flat: NDArray[np.float64], loss_augmented: bool = False) -> Scores:
        """Score tables of all variables and factors under the weights, with the task loss added if asked."""
        w_v, w_f = self.working_weights(flat)
        a = self.arrays
        out = Scores(np.empty(int(a.states[-1])), np.empty(int(a.tables[-1])))
        fill_scores(a, self.variable_features.arrays, self.factor_features.arrays, w_v, w_f, loss_augmented, out.variables, out.factors)
        return out

    def labeling_scores(self, scores: Scores, labels: NDArray[np.int32]) -> NDArray[np.float64]:
        """Score (M,) of one labeling per example under the score tables."""
        return np.asarray(_labeling_scores(self.arrays, scores.variables, scores.factors, np.ascontiguousarray(labels, np.int32)))

    def labeling_losses(self, labels: NDArray[np.int32]) -> NDArray[np.float64]:
        """Task loss (M,) of one labeling per example."""
        a = self.arrays
        at = self.state_starts() + np.asarray(labels, np.int64)
        return np.asarray(np.add.reduceat(a.losses[at], a.variables[:-1]))

    def state_starts(self) -> NDArray[np.int64]:
        """For each variable, where its states begin in *states* coordinates (V,)."""
        a = self.arrays
        n = np.diff(a.variables)
        local_first = np.repeat(a.local_variables[a.structure], n) + np.arange(len(a.labels)) - np.repeat(a.variables[:-1], n)
        return np.asarray(np.repeat(a.states[:-1], n) + a.v_state[local_first])

    # ------------------------------------------------------------------------------------------------ checks

    def _check_labels(self) -> None:
        a = self.arrays
        if len(a.labels) != a.variables[-1]:
            raise DataError(f"There are {len(a.labels)} labels for {a.variables[-1]} variables.")
        if len(a.losses) != a.states[-1]:
            raise DataError(f"The loss tables have {len(a.losses)} entries; the variables have {a.states[-1]} states.")
        if not np.isfinite(a.losses).all():
            raise DataError("The task loss of some state is not a finite number.")
        n_states = np.diff(np.append(self.state_starts(), a.states[-1]))
        wrong = np.flatnonzero((a.labels < 0) | (a.labels >= n_states))
        if len(wrong):
            m, i = self._locate(int(wrong[0]))
            raise DataError(f"Example {m}: variable {i} has label {a.labels[wrong[0]]}; its states are 0 to {n_states[wrong[0]] - 1}.")
        truth_loss = a.losses[self.state_starts() + a.labels]
        if (truth_loss != 0).any():
            m, i = self._locate(int(np.flatnonzero(truth_loss)[0]))
            raise DataError(f"Example {m}: the loss of variable {i}'s own label is not 0.")
        m = _first_forbidden_truth(a)
        if m >= 0:
            raise DataError(f"Example {m}: its own labels are forbidden by the hard constraints.")

    def _locate(self, variable: int) -> tuple[int, int]:
        m = int(np.searchsorted(self.arrays.variables, variable, side="right") - 1)
        return m, variable - int(self.arrays.variables[m])


def _n_blocks(templates: Sequence[Template]) -> int:
    return max((int(template.blocks.max()) + 1 for template in templates), default=0)


def _offsets(sizes: NDArray[Any]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64)


def _gather(values: NDArray[Any], offsets: NDArray[np.int64], chosen: NDArray[np.int64]) -> NDArray[Any]:
    if len(values) == 0:
        return values
    sizes = np.diff(offsets)[chosen]
    start = np.repeat(offsets[:-1][chosen] - _offsets(sizes)[:-1], sizes)
    return np.asarray(values[start + np.arange(int(sizes.sum()))])


def _scores(values: ArrayLike | None, expected: int, name: str) -> NDArray[np.float64]:
    if values is None:
        return np.empty(0)
    scores = np.ascontiguousarray(values, np.float64)
    if scores.shape != (expected,):
        raise DataError(f"{name} has shape {scores.shape}; expected ({expected},).")
    if np.isnan(scores).any() or np.isposinf(scores).any():
        raise DataError(f"{name} must hold finite numbers, or -inf to forbid a state.")
    return scores


def _example_weights(weights: ArrayLike | None, n_examples: int) -> NDArray[np.float64]:
    if weights is None:
        return np.ones(n_examples)
    values = np.asarray(weights, np.float64)
    if values.shape != (n_examples,):
        raise DataError(f"The sample weights have shape {values.shape}; expected ({n_examples},), one per example.")
    if not np.isfinite(values).all() or (values < 0).any() or values.sum() == 0:
        raise DataError("Sample weights must be finite, not negative, and not all zero.")
    return values * (n_examples / values.sum())


def _flatten_structures(
    structures: Sequence[Structure], variable_templates: Sequence[Template], factor_templates: Sequence[Template]
) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[np.int64]]]:
    """Concatenate the structures' arrays, and give each structure's sizes."""
    sizes: dict[str, list[int]] = {
        name: [] for name in ("variables", "factors", "states", "tables", "messages", "variable_rows", "factor_rows", "buffer")
    }
    parts: dict[str, list[Any]] = {
        name: []
        for name in (
            "v_template", "v_state", "v_degree", "v_incident", "f_template", "f_table", "f_message", "f_scope", "scope",
            "incident_factor", "incident_slot", "incident_message", "variable_groups", "factor_groups",
        )
    }  # fmt: skip
    group_counts: dict[str, list[int]] = {"variable_groups": [], "factor_groups": []}
    n_scope = n_incident = 0
    template_states = np.array([template.n_states[0] for template in variable_templates], np.int64)
    for number, s in enumerate(structures):
        _check_structure(number, s, variable_templates, factor_templates)
        n_states = template_states[s.variable_templates]
        state = _offsets(n_states)
        table_sizes = [factor_templates[t].blocks.size for t in s.factor_templates]
        message_sizes = [sum(factor_templates[t].n_states) for t in s.factor_templates]
        arities = [len(scope) for scope in s.scopes]
        table, message, scope_start = _offsets(np.array(table_sizes)), _offsets(np.array(message_sizes)), _offsets(np.array(arities))
        scope = np.array([v for one in s.scopes for v in one], np.int32)
        of_factor = np.repeat(np.arange(len(s.scopes)), arities).astype(np.int32)
        slot_states = n_states[scope] if len(scope) else np.empty(0, np.int64)
        slot_message = _offsets(slot_states)[:-1]
        order = np.argsort(scope, kind="stable")
        degree = np.bincount(scope, minlength=len(n_states)) if len(scope) else np.zeros(len(n_states), np.int64)

        parts["v_template"].append(s.variable_templates)
        parts["v_state"].append(state[:-1])
        parts["v_degree"].append(degree)
        parts["v_incident"].append(n_incident + _offsets(degree)[:-1])
        parts["f_template"].append(s.factor_templates)
        parts["f_table"].append(table[:-1])
        parts["f_message"].append(message[:-1])
        parts["f_scope"].append(n_scope + scope_start[:-1])
        parts["scope"].append(scope)
        parts["incident_factor"].append(of_factor[order])
        parts["incident_slot"].append((np.arange(len(scope)) - np.repeat(scope_start[:-1], arities))[order])
        parts["incident_message"].append(slot_message[order])
        buffers = []
        for side, templates, rows, kinds in (
            ("variable_groups", variable_templates, s.variable_rows, s.variable_templates),
            ("factor_groups", factor_templates, s.factor_rows, s.factor_templates),
        ):
            groups, buffer = _groups(rows, kinds, templates)
            parts[side].append(groups)
            group_counts[side].append(len(groups))
            buffers.append(buffer)
        n_scope += len(scope)
        n_incident += len(scope)
        for name, value in (
            ("variables", len(n_states)), ("factors", len(s.scopes)), ("states", state[-1]), ("tables", table[-1]),
            ("messages", message[-1]), ("buffer", max(buffers)),
            ("variable_rows", s.variable_rows.max() + 1), ("factor_rows", s.factor_rows.max() + 1 if len(s.scopes) else 0),
        ):  # fmt: skip
            sizes[name].append(int(value))

    per_structure = {name: np.array(values, np.int64) for name, values in sizes.items()}
    dtypes = {"v_incident": np.int64, "f_table": np.int64, "f_message": np.int64, "f_scope": np.int64, "incident_message": np.int64}
    local: dict[str, NDArray[Any]] = {}
    for name, pieces in parts.items():
        if name.endswith("groups"):
            local[name] = np.concatenate([np.asarray(p, np.int64).reshape(-1, 6) for p in pieces])
        else:
            local[name] = np.concatenate([np.asarray(p) for p in pieces]).astype(dtypes.get(name, np.int32))
    local["local_variables"] = _offsets(per_structure["variables"])
    local["local_factors"] = _offsets(per_structure["factors"])
    local["local_variable_groups"] = _offsets(np.array(group_counts["variable_groups"]))
    local["local_factor_groups"] = _offsets(np.array(group_counts["factor_groups"]))
    largest_table = max((template.blocks.size for template in factor_templates), default=0)
    largest_slots = max((sum(template.n_states) for template in factor_templates), default=0)
    local["largest"] = np.array(
        [
            per_structure["states"].max(), per_structure["tables"].max(), per_structure["messages"].max(),
            per_structure["buffer"].max(), largest_table, largest_slots, per_structure["variables"].max(),
        ],
        np.int64,
    )  # fmt: skip

    local["vt_start"] = _offsets(template_states)
    local["vt_block"] = np.concatenate([t.blocks.ravel() for t in variable_templates]).astype(np.int32)
    local["vt_score"] = np.concatenate([t.scores.ravel() for t in variable_templates]).astype(np.float64)
    local["vt_sharing"] = np.concatenate([_sharing(t.blocks) for t in variable_templates])
    shapes = [t.n_states for t in factor_templates]
    digits = [np.indices(shape).reshape(len(shape), -1).T for shape in shapes]
    local["ft_start"] = _offsets(np.array([t.blocks.size for t in factor_templates]))
    local["ft_block"] = _flat([t.blocks for t in factor_templates], np.int32)
    local["ft_score"] = _flat([t.scores for t in factor_templates], np.float64)
    local["ft_arity"] = np.array([len(shape) for shape in shapes], np.int32)
    local["ft_shape_start"] = _offsets(local["ft_arity"])
    local["ft_shape"] = _flat([np.array(shape) for shape in shapes], np.int32)
    local["ft_digit_start"] = _offsets(np.array([d.size for d in digits]))
    local["ft_digit"] = _flat(digits, np.int32)
    local["ft_slot"] = _flat([d + _offsets(np.array(shape))[:-1] for d, shape in zip(digits, shapes, strict=True)], np.int32)
    return local, per_structure


def _sharing(blocks: NDArray[np.int32]) -> NDArray[np.float64]:
    """For each state, how many states of the template share its block; 0 for a state without one."""
    return np.where(blocks >= 0, (blocks[:, None] == blocks[None, :]).sum(axis=1), 0).astype(np.float64)


def _flat(pieces: list[Any], dtype: Any) -> NDArray[Any]:
    return np.concatenate([np.ravel(piece) for piece in pieces]).astype(dtype) if pieces else np.empty(0, dtype)


def _groups(rows: NDArray[np.int32], kinds: NDArray[np.int32], templates: Sequence[Template]) -> tuple[list[list[int]], int]:
    """Cut the members into runs of equal feature row; give each run its range of blocks and its place in the buffer."""
    if len(rows) == 0:
        return [], 0
    used = [template.blocks[template.blocks >= 0] for template in templates]
    low = np.array([blocks.min() if len(blocks) else np.iinfo(np.int64).max for blocks in used])[kinds]
    high = np.array([blocks.max() + 1 if len(blocks) else 0 for blocks in used])[kinds]
    cuts = np.concatenate([[0], np.flatnonzero(np.diff(rows)) + 1])
    lows, highs = np.minimum.reduceat(low, cuts), np.maximum.reduceat(high, cuts)
    lows = np.minimum(lows, highs)
    at = _offsets(highs - lows)
    ends = np.append(cuts[1:], len(rows))
    return [list(g) for g in zip(cuts, ends, rows[cuts], lows, highs, at[:-1], strict=True)], int(at[-1])


def _check_structure(number: int, s: Structure, variable_templates: Sequence[Template], factor_templates: Sequence[Template]) -> None:
    if len(s.variable_templates) == 0:
        raise DataError(f"Structure {number} has no variables.")
    for side, kinds, templates in (
        ("variable", s.variable_templates, variable_templates),
        ("factor", s.factor_templates, factor_templates),
    ):
        if len(kinds) and (kinds.min() < 0 or kinds.max() >= len(templates)):
            raise DataError(f"Structure {number} names {side} template {kinds.max()}; there are {len(templates)}.")
    for t in np.unique(s.variable_templates):
        if variable_templates[t].arity != 1:
            raise DataError(f"Variable template {t} has {variable_templates[t].arity} dimensions; a variable's has 1.")
    for c, scope in enumerate(s.scopes):
        found = tuple(variable_templates[s.variable_templates[v]].n_states[0] for v in scope)
        expected = factor_templates[s.factor_templates[c]].n_states
        if found != expected:
            raise DataError(f"Factor {c} of structure {number} joins variables with {found} states; its template expects {expected}.")


# ------------------------------------------------------------------------------------------------------- kernels


@njit(cache=True, nogil=True)
def score_groups(
    features: Any, weights: Any, groups: Any, first_group: int, last_group: int, base_row: int, buffer: Any
) -> None:
    """Scores of all blocks of all groups of one example, each group at its place in the buffer."""
    for q in range(first_group, last_group):
        score_row(features, base_row + groups[q, 2], weights, groups[q, 3], groups[q, 4], buffer, groups[q, 5])


@njit(cache=True, nogil=True)
def variable_table(g: Any, m: int, q: int, v: int, buffer: Any, with_loss: bool, out: Any, at: int) -> None:
    """Scores of the states of local variable v (of group q) of example m, into out[at:]; buffer holds its group's scores."""
    v0 = g.local_variables[g.structure[m]]
    t = g.v_template[v0 + v]
    start = g.vt_start[t]
    state = g.states[m] + g.v_state[v0 + v]
    shift = g.variable_groups[q, 5] - g.variable_groups[q, 3]
    for k in range(g.vt_start[t + 1] - start):
        value = g.vt_score[start + k]
        b = g.vt_block[start + k]
        if b >= 0:
            value += buffer[shift + b]
        if len(g.variable_scores) > 0:
            value += g.variable_scores[state + k]
        if with_loss:
            value += g.losses[state + k]
        out[at + k] = value


@njit(cache=True, nogil=True)
def factor_table(g: Any, m: int, q: int, c: int, buffer: Any, out: Any, at: int) -> None:
    """Scores of the joint states of local factor c (of group q) of example m, into out[at:]."""
    f0 = g.local_factors[g.structure[m]]
    t = g.f_template[f0 + c]
    start = g.ft_start[t]
    table = g.tables[m] + g.f_table[f0 + c]
    shift = g.factor_groups[q, 5] - g.factor_groups[q, 3]
    for y in range(g.ft_start[t + 1] - start):
        value = g.ft_score[start + y]
        b = g.ft_block[start + y]
        if b >= 0:
            value += buffer[shift + b]
        if len(g.factor_scores) > 0:
            value += g.factor_scores[table + y]
        out[at + y] = value


@njit(cache=True, nogil=True)
def example_scores(
    g: Any, v_features: Any, f_features: Any, w_v: Any, w_f: Any, m: int, with_loss: bool, buffer: Any, out_v: Any, at_v: int, out_f: Any, at_f: int
) -> None:
    """Score tables of example m, variables into out_v[at_v:], factors into out_f[at_f:]."""
    s = g.structure[m]
    q0, q1 = g.local_variable_groups[s], g.local_variable_groups[s + 1]
    score_groups(v_features, w_v, g.variable_groups, q0, q1, g.variable_row[m], buffer)
    for q in range(q0, q1):
        for v in range(g.variable_groups[q, 0], g.variable_groups[q, 1]):
            variable_table(g, m, q, v, buffer, with_loss, out_v, at_v + g.v_state[g.local_variables[s] + v])
    q0, q1 = g.local_factor_groups[s], g.local_factor_groups[s + 1]
    score_groups(f_features, w_f, g.factor_groups, q0, q1, g.factor_row[m], buffer)
    for q in range(q0, q1):
        for c in range(g.factor_groups[q, 0], g.factor_groups[q, 1]):
            factor_table(g, m, q, c, buffer, out_f, at_f + g.f_table[g.local_factors[s] + c])


@njit(cache=True, nogil=True)
def fill_scores(g: Any, v_features: Any, f_features: Any, w_v: Any, w_f: Any, with_loss: bool, out_v: Any, out_f: Any) -> None:
    """Score tables of all examples."""
    buffer = np.empty(g.largest[3])
    for m in range(len(g.structure)):
        example_scores(g, v_features, f_features, w_v, w_f, m, with_loss, buffer, out_v, g.states[m], out_f, g.tables[m])


@njit(cache=True, nogil=True)
def truth_joint_state(g: Any, m: int, c: int, labels: Any) -> int:
    """Joint state of local factor c of example m under a labeling of all variables."""
    f0 = g.local_factors[g.structure[m]]
    t = g.f_template[f0 + c]
    joint = 0
    for j in range(g.ft_arity[t]):
        joint = joint * g.ft_shape[g.ft_shape_start[t] + j] + labels[g.variables[m] + g.scope[g.f_scope[f0 + c] + j]]
    return joint


@njit(cache=True, nogil=True)
def _labeling_scores(g: Any, v_scores: Any, f_scores: Any, labels: Any) -> Any:
    out = np.zeros(len(g.structure))
    for m in range(len(g.structure)):
        s = g.structure[m]
        v0, f0 = g.local_variables[s], g.local_factors[s]
        for v in range(g.variables[m + 1] - g.variables[m]):
            out[m] += v_scores[g.states[m] + g.v_state[v0 + v] + labels[g.variables[m] + v]]
        for c in range(g.factors[m + 1] - g.factors[m]):
            out[m] += f_scores[g.tables[m] + g.f_table[f0 + c] + truth_joint_state(g, m, c, labels)]
    return out


@njit(cache=True, nogil=True)
def _first_forbidden_truth(g: Any) -> int:
    """First example whose own labels have a fixed score of -inf, or -1."""
    for m in range(len(g.structure)):
        s = g.structure[m]
        v0, f0 = g.local_variables[s], g.local_factors[s]
        for v in range(g.variables[m + 1] - g.variables[m]):
            k = g.labels[g.variables[m] + v]
            if g.vt_score[g.vt_start[g.v_template[v0 + v]] + k] == -np.inf:
                return m
            if len(g.variable_scores) > 0 and g.variable_scores[g.states[m] + g.v_state[v0 + v] + k] == -np.inf:
                return m
        for c in range(g.factors[m + 1] - g.factors[m]):
            y = truth_joint_state(g, m, c, g.labels)
            if g.ft_score[g.ft_start[g.f_template[f0 + c]] + y] == -np.inf:
                return m
            if len(g.factor_scores) > 0 and g.factor_scores[g.tables[m] + g.f_table[f0 + c] + y] == -np.inf:
                return m
    return -1


# ------------------------------------------------------------------------------------------------ packed (new)

# Columns of `examples`: the example's structure, its offsets in each coordinate, its first feature rows.
STRUCTURE, VARIABLES, FACTORS, STATES, TABLES, MESSAGES, V_ROW, F_ROW = range(8)
# Columns of `structures`: offsets into the local arrays.
S_VARIABLES, S_FACTORS, S_VARIABLE_GROUPS, S_FACTOR_GROUPS = range(4)
# Columns of `variables`: template, first state in the example, number of factors, first entry of `incident`.
V_TEMPLATE, V_STATE, V_DEGREE, V_INCIDENT = range(4)
# Columns of `factors`: template, table and messages in the example, first entry of `scope`.
F_TEMPLATE, F_TABLE, F_MESSAGE, F_SCOPE = range(4)
# Columns of `pairs`: for a pair of binary variables without fixed scores, the two variables, the places of their states in
# the example (-1 for any other factor), and the blocks of the four joint states.
P_I, P_J, P_STATE_I, P_STATE_J, P_BLOCK = range(5)
# Columns of a group: first and last member, feature row, first and last block, place in the score buffer.
G_FIRST, G_LAST, G_ROW, G_BLOCK, G_BLOCK_END, G_AT = range(6)
# Columns of `incident`: the factor's table and message in the example; the variable's slot of that table (see tables.py).
I_TABLE, I_MESSAGE, I_OUTER, I_STRIDE = range(4)
# Columns of `variable_kinds` and `factor_kinds` (templates), and of `slots` (one row per variable of a factor template).
K_START, K_SIZE, K_ARITY, K_SLOTS = range(4)
SLOT_STATES, SLOT_STRIDE, SLOT_OUTER, SLOT_MESSAGE = range(4)
# Entries of `largest`: the largest example's states, tables, messages, score buffer; the largest factor's table, messages.
L_STATES, L_TABLES, L_MESSAGES, L_BUFFER, L_TABLE, L_SLOTS, L_VARIABLES = range(7)


class KernelArrays(NamedTuple):
    """The flat arrays of a FactorGraphs, as kernels see them: few, because each costs compile time in every kernel."""

    examples: NDArray[np.int64]
    weight: NDArray[np.float64]
    labels: NDArray[np.int32]
    losses: NDArray[np.float64]
    variable_scores: NDArray[np.float64]
    factor_scores: NDArray[np.float64]
    structures: NDArray[np.int64]
    variables: NDArray[np.int64]
    factors: NDArray[np.int64]
    pairs: NDArray[np.int32]
    scope: NDArray[np.int64]
    incident: NDArray[np.int64]
    variable_groups: NDArray[np.int64]
    factor_groups: NDArray[np.int64]
    variable_kinds: NDArray[np.int64]
    variable_block: NDArray[np.int32]
    variable_fixed: NDArray[np.float64]
    variable_sharing: NDArray[np.float64]
    factor_kinds: NDArray[np.int64]
    slots: NDArray[np.int64]
    factor_block: NDArray[np.int32]
    factor_fixed: NDArray[np.float64]
    largest: NDArray[np.int64]


def pack(graphs: FactorGraphs) -> KernelArrays:
    a = graphs.arrays
    M = len(a.structure)
    examples = np.zeros((M + 1, 8), np.int64)
    examples[:M, 0] = a.structure
    for column, values in ((1, a.variables), (2, a.factors), (3, a.states), (4, a.tables), (5, a.messages)):
        examples[:, column] = values
    examples[:M, 6], examples[:M, 7] = a.variable_row, a.factor_row
    variables = np.stack([a.v_template, a.v_state, a.v_degree, a.v_incident], 1).astype(np.int64)
    factors = np.stack([a.f_template, a.f_table, a.f_message, a.f_scope], 1).astype(np.int64)
    pairs = np.full((len(factors), 8), -1, np.int32)
    local_of = np.repeat(np.arange(len(a.local_factors) - 1), np.diff(a.local_factors))
    usable = np.array([t.n_states == (2, 2) and not t.scores.any() for t in graphs.factor_templates], bool)
    if len(a.factor_scores) == 0 and len(factors):
        chosen = np.flatnonzero(usable[a.f_template])
        first = a.scope[a.f_scope[chosen]] + a.local_variables[local_of[chosen]]
        second = a.scope[a.f_scope[chosen] + 1] + a.local_variables[local_of[chosen]]
        pairs[chosen, 0], pairs[chosen, 1] = a.scope[a.f_scope[chosen]], a.scope[a.f_scope[chosen] + 1]
        pairs[chosen, 2], pairs[chosen, 3] = a.v_state[first], a.v_state[second]
        pairs[chosen, 4:] = a.ft_block[a.ft_start[a.f_template[chosen]][:, None] + np.arange(4)]
    slots = [
        (k, int(np.prod(t.n_states[j + 1 :])), int(np.prod(t.n_states[:j])), sum(t.n_states[:j]))
        for t in graphs.factor_templates
        for j, k in enumerate(t.n_states)
    ]
    slot_table = np.array(slots, np.int64).reshape(-1, 4)
    inc_local = np.repeat(np.arange(len(a.local_variables) - 1), [int(a.v_degree[a.local_variables[s]:a.local_variables[s+1]].sum()) for s in range(len(a.local_variables)-1)])
    inc_factor = a.incident_factor + a.local_factors[inc_local]
    inc_slot = a.ft_shape_start[a.f_template[inc_factor]] + a.incident_slot
    incident = np.stack([a.f_table[inc_factor], a.incident_message, slot_table[inc_slot, 2], slot_table[inc_slot, 1]], 1).reshape(-1, 4) if len(inc_factor) else np.empty((0, 4), np.int64)
    return KernelArrays(
        examples, a.weight, a.labels, a.losses, a.variable_scores, a.factor_scores,
        np.stack([a.local_variables, a.local_factors, a.local_variable_groups, a.local_factor_groups], 1),
        variables, factors, pairs, a.scope.astype(np.int64),
        incident,
        a.variable_groups, a.factor_groups,
        np.stack([a.vt_start[:-1], np.diff(a.vt_start)], 1), a.vt_block, a.vt_score, a.vt_sharing,
        np.stack([a.ft_start[:-1], np.diff(a.ft_start), a.ft_arity, a.ft_shape_start[:-1]], 1).astype(np.int64).reshape(-1, 4),
        slot_table, a.ft_block, a.ft_score, a.largest,
    )  # fmt: skip


@njit(cache=True, nogil=True, no_cpython_wrapper=True)
def side_scores(
    row0: int, q0: int, q1: int, groups: Any, first: int, members: Any, kinds: Any, blocks: Any, fixed: Any, extra: Any, extra_at: int,
    features: Any, weights: Any, buffer: Any, out: Any, at: int,
) -> None:  # fmt: skip
    """Score tables of one side (variables or factors) of an example: fixed + extra + learned, into out[at:].

    `members` is `variables` or `factors`: column 0 is the template, column 1 the place of its states or table in the example.
    """
    for q in range(q0, q1):
        low, place = groups[q, G_BLOCK], groups[q, G_AT]
        score_row(features, row0 + groups[q, G_ROW], weights, low, groups[q, G_BLOCK_END], buffer, place)
        for i in range(groups[q, G_FIRST], groups[q, G_LAST]):
            t, here = members[first + i, 0], members[first + i, 1]
            start = kinds[t, K_START]
            for y in range(kinds[t, K_SIZE]):
                b = blocks[start + y]
                value = fixed[start + y] + (buffer[place + b - low] if b >= 0 else 0.0)
                if len(extra) > 0:
                    value += extra[extra_at + here + y]
                out[at + here + y] = value

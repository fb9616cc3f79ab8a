"""The flat arrays of a batch of factor graphs, as kernels see them.

What belongs to an example is in `examples`; what belongs to the shape of its graph is in `structures` and the arrays after it,
numbered inside the example, and shared by all examples of that shape. Rows are records: ``factors[c].table``.

Slots of a factor's table are described in tables.py. A structured factor (structured.py) has no joint states: its
*table* holds its parameters, its slots have stride and outer 0, and its template's further data is in `structured`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.errors import DataError
from maxmargin.jit import Struct, inner, kernel, record_type, records
from maxmargin.problems.features import FeatureArrays, score_row
from maxmargin.problems.templates import TABLE, Structure, Template

#: `examples` (M+1 rows; the last holds the ends): structure, offsets in each coordinate, first row in each feature matrix.
EXAMPLE = record_type(
    "structure", "variables", "factors", "states", "tables", "messages", "variable_row", "factor_row"
)  # fmt: skip
#: `structures` (one more row than structures): offsets into the local arrays.
STRUCTURE = record_type("variables", "factors", "variable_groups", "factor_groups")
#: `variables`, `factors`: template; where its scores begin among the example's (states of variables, tables of factors); how many
#: neighbours it has, and the first of them (a variable's in `incident`, a factor's in `scope`); of factors the messages in the
#: example, and the same with all states.
MEMBER = record_type("template", "table", "degree", "neighbours", "message", "delta")
#: `incident`, a row per (variable, factor): the factor's table and full message in the example, the variable's slot, the factor.
INCIDENT = record_type("table", "delta", "outer", "stride", "factor")
#: `variable_groups`, `factor_groups`: first and last member, feature row, first and last block, place in the score buffer.
GROUP = record_type("first", "last", "row", "block", "block_end", "at")
#: `variable_kinds`, `factor_kinds` (templates): first entry of the block and score arrays, size, arity, first row of `slots`, kind
#: (a table or a structured factor), first entry of `structured`.
KIND = record_type("start", "entries", "arity", "slots", "kind", "first_data")
#: `slots`, a row per (factor template, variable of its scope): the slot's shape, and where its states begin among the factor's.
SLOT = record_type("states", "stride", "outer", "delta")
# Columns of `pairs`: for a pair of binary variables without fixed scores, the variables, the places of their states in the example
# (-1 for any other factor), and the blocks of the four joint states.
P_I, P_J, P_STATE_I, P_STATE_J, P_BLOCK = range(5)


class Largest(Struct):
    """Sizes of the largest example (variables, states, tables, full messages, score buffer) and factor (table, states)."""

    variables: int
    states: int
    tables: int
    deltas: int
    buffer: int
    table: int
    slots: int


class GraphArrays(Struct):
    """The flat arrays of a batch. Records, int32 labels and blocks, float64 numbers."""

    examples: Any
    weight: NDArray[np.float64]
    labels: NDArray[np.int32]
    #: Task loss in *states* coordinates; or empty, with `costs` (V,) of any wrong state of each variable.
    losses: NDArray[np.float64]
    costs: NDArray[np.float64]
    variable_scores: NDArray[np.float64]
    factor_scores: NDArray[np.float64]
    structures: Any
    variables: Any
    factors: Any
    pairs: NDArray[np.int32]
    scope: NDArray[np.int64]
    incident: Any
    variable_groups: Any
    factor_groups: Any
    variable_kinds: Any
    variable_block: NDArray[np.int32]
    variable_fixed: NDArray[np.float64]
    variable_sharing: NDArray[np.float64]
    factor_kinds: Any
    slots: Any
    structured: NDArray[np.int64]
    factor_block: NDArray[np.int32]
    factor_fixed: NDArray[np.float64]
    largest: Largest


class Side(Struct):
    """What the variables and the factors of a batch have alike: members in groups that share a feature row, and their scores."""

    features: FeatureArrays
    members: Any
    groups: Any
    kinds: Any
    block: NDArray[np.int32]
    fixed: NDArray[np.float64]
    scores: NDArray[np.float64]
    #: Where the members and the groups of each structure begin.
    first_member: NDArray[np.int64]
    first_group: NDArray[np.int64]
    #: Where the feature rows and the scores of each example begin.
    first_row: NDArray[np.int64]
    first_score: NDArray[np.int64]
    #: Where the side begins among an example's statistics (statistics.py).
    at: int


class Batch(Struct):
    """The graphs and the features of a batch."""

    graphs: GraphArrays
    variables: Side
    factors: Side

    @classmethod
    def of(cls, a: GraphArrays, variable_features: FeatureArrays, factor_features: FeatureArrays) -> Batch:
        """Join graphs and features."""
        return cls(
            a,
            Side(
                variable_features, a.variables, a.variable_groups, a.variable_kinds, a.variable_block, a.variable_fixed,
                a.variable_scores, a.structures.variables, a.structures.variable_groups, a.examples.variable_row,
                a.examples.states, 0,
            ),
            Side(
                factor_features, a.factors, a.factor_groups, a.factor_kinds, a.factor_block, a.factor_fixed, a.factor_scores,
                a.structures.factors, a.structures.factor_groups, a.examples.factor_row, a.examples.tables, a.largest.buffer,
            ),
        )  # fmt: skip


class Sizes(NamedTuple):
    """What one example of each structure takes in each coordinate, and how many feature rows it reads."""

    variables: NDArray[np.int64]
    factors: NDArray[np.int64]
    states: NDArray[np.int64]
    tables: NDArray[np.int64]
    messages: NDArray[np.int64]
    variable_rows: NDArray[np.int64]
    factor_rows: NDArray[np.int64]


def offsets(sizes: Any) -> NDArray[np.int64]:
    """Where each of a sequence of pieces begins, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64)


def local_offsets(sizes: NDArray[np.int64], counts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where pieces begin inside their structure, which has counts[s] of them, and how much each structure takes."""
    running, starts = offsets(sizes), offsets(counts)
    return running[:-1] - np.repeat(running[starts[:-1]], counts), np.diff(running[starts])


def flatten_structures(
    structures: Sequence[Structure],
    variable_templates: Sequence[Template],
    factor_templates: Sequence[Template],
    plain_factors: bool,
) -> tuple[dict[str, Any], Sizes]:
    """Concatenate the structures' arrays; `plain_factors` says that no example adds fixed scores to its factors.

    Where there is one structure, and no factors, as in problems of classes, they are made once for the same objects.
    """
    if len(structures) == 1 and not factor_templates:
        return _flatten_once(structures[0], tuple(variable_templates))
    return _flatten(structures, variable_templates, factor_templates, plain_factors)


@lru_cache(maxsize=16)
def _flatten_once(structure: Structure, variable_templates: tuple[Template, ...]) -> tuple[dict[str, Any], Sizes]:
    return _flatten([structure], variable_templates, (), True)


def _flatten(
    structures: Sequence[Structure],
    variable_templates: Sequence[Template],
    factor_templates: Sequence[Template],
    plain_factors: bool,
) -> tuple[dict[str, Any], Sizes]:
    for number, template in enumerate(variable_templates):
        if template.arity != 1:
            raise DataError(f"Variable template {number} has {template.arity} dimensions; a variable's has 1.")
    for number, s in enumerate(structures):
        check_structure(number, s, variable_templates, factor_templates)
    shared = _template_arrays(variable_templates, factor_templates)
    v_kinds, kinds, slots = shared["variable_kinds"], shared["factor_kinds"], shared["slots"]
    n_variables = np.array([len(s.variable_templates) for s in structures], np.int64)
    n_factors = np.array([len(s.factor_templates) for s in structures], np.int64)
    first_variable = offsets(n_variables)
    v = np.concatenate([s.variable_templates for s in structures])
    t = np.concatenate([s.factor_templates for s in structures])
    arity = np.concatenate([s.arity for s in structures])
    scope = np.concatenate([s.scope for s in structures])
    # A row per (factor, variable of its scope): the factor, and the variable among all structures' variables.
    factor = np.repeat(np.arange(len(t)), arity)
    member = scope + np.repeat(np.repeat(first_variable[:-1], n_factors), arity)
    _check_fit(v_kinds.entries[v[member]], t, arity, factor, n_factors, factor_templates, shared)

    full_sizes = np.array([sum(template.n_states) for template in factor_templates], np.int64)
    state, n_states = local_offsets(v_kinds.entries[v], n_variables)
    table, n_tables = local_offsets(kinds.entries[t], n_factors)
    full, n_full = local_offsets(full_sizes[t], n_factors)
    message, n_messages = local_offsets(full_sizes[t] - arity, n_factors)
    scope_start, degree = offsets(arity), np.bincount(member, minlength=len(v))
    # Fields are taken before rows: NumPy copies a record much slower than a number.
    by_member = np.argsort(member, kind="stable")
    of = factor[by_member]
    slot = kinds.slots[t[of]] + by_member - scope_start[of]
    inside = of - np.repeat(np.repeat(offsets(n_factors)[:-1], n_factors), arity)[by_member]
    incident = records(INCIDENT, table[of], full[of] + slots.delta[slot], slots.outer[slot], slots.stride[slot], inside)
    v_rows, v_groups, n_v_groups, v_buffer = _groups(
        [s.variable_rows for s in structures], n_variables, v, variable_templates
    )
    f_rows, f_groups, n_f_groups, f_buffer = _groups(
        [s.factor_rows for s in structures], n_factors, t, factor_templates
    )
    local: dict[str, NDArray[Any]] = {
        "structures": records(STRUCTURE, first_variable, offsets(n_factors), offsets(n_v_groups), offsets(n_f_groups)),
        "variables": records(MEMBER, v, state, degree, offsets(degree)[:-1]),
        "factors": records(MEMBER, t, table, arity, scope_start[:-1], message, full),
        "scope": scope,
        "incident": incident,
        "variable_groups": v_groups,
        "factor_groups": f_groups,
    }

    is_pair = np.array(
        [
            plain_factors and one.kind == TABLE and one.n_states == (2, 2) and not one.scores.any()
            for one in factor_templates
        ],
        bool,
    )
    pairs = np.full((len(t), 8), -1, np.int32)
    chosen = np.flatnonzero(is_pair[t])
    ends = scope_start[chosen][:, None] + np.arange(2)
    pairs[chosen, P_I : P_J + 1], pairs[chosen, P_STATE_I : P_STATE_J + 1] = scope[ends], state[member[ends]]
    pairs[chosen, P_BLOCK:] = shared["factor_block"][kinds.start[t[chosen]][:, None] + np.arange(4)]
    local["pairs"] = pairs

    largest = [one.max(initial=0) for one in (n_variables, n_states, n_tables, n_full)]
    largest += [max(v_buffer, f_buffer), kinds.entries.max(initial=0), full_sizes.max(initial=0)]
    return local | shared | {"largest": Largest(*largest)}, Sizes(
        n_variables, n_factors, n_states, n_tables, n_messages, v_rows, f_rows
    )


def _template_arrays(variable_templates: Sequence[Template], factor_templates: Sequence[Template]) -> dict[str, Any]:
    arrays: dict[str, Any] = {}
    for side, templates in (("variable", variable_templates), ("factor", factor_templates)):
        sizes = np.array([t.blocks.size for t in templates], np.int64)
        arities = np.array([t.arity for t in templates], np.int64)
        kinds = np.array([t.kind for t in templates], np.int64)
        data = offsets([len(t.data()) for t in templates])[:-1]
        arrays[f"{side}_kinds"] = records(KIND, offsets(sizes)[:-1], sizes, arities, offsets(arities)[:-1], kinds, data)
        arrays[f"{side}_block"] = np.concatenate([np.empty(0, np.int32), *(t.blocks.ravel() for t in templates)])
        arrays[f"{side}_fixed"] = np.concatenate([np.empty(0), *(t.scores.ravel() for t in templates)])
    # How many states of the template share the state's block; 0 for a state without one.
    sharing = []
    for template in variable_templates:
        _, block, count = np.unique(template.blocks, return_inverse=True, return_counts=True)
        sharing.append(np.where(template.blocks >= 0, count[block], 0))
    arrays["variable_sharing"] = np.concatenate(sharing).astype(np.float64)
    slots = [np.empty(0, SLOT)]
    for t in factor_templates:
        stride = outer = np.zeros(t.arity, np.int64)
        if t.kind == TABLE:
            outer = np.cumprod((1, *t.n_states[:-1]))
            stride = t.blocks.size // (outer * t.n_states)
        slots.append(records(SLOT, t.n_states, stride, outer, offsets(t.n_states)[:-1]))
    arrays["slots"] = np.concatenate(slots).view(np.recarray)
    arrays["structured"] = structured_data(factor_templates)
    return arrays


def structured_data(factor_templates: Sequence[Template]) -> NDArray[np.int64]:
    """The further data of structured factors' templates, where `first_data` says."""
    return np.concatenate([np.empty(0, np.int64), *(t.data() for t in factor_templates)])


def _groups(
    rows_of: Sequence[NDArray[np.int32]],
    counts: NDArray[np.int64],
    kinds: NDArray[np.int32],
    templates: Sequence[Template],
) -> tuple[NDArray[np.int64], Any, NDArray[np.int64], int]:
    """Cut each structure's members into runs of equal feature row, with their blocks and their place in the buffer.

    Returns how many feature rows each structure reads, the groups, how many each structure has, the largest buffer.
    """
    rows, starts = np.concatenate(rows_of).astype(np.int64), offsets(counts)
    if len(rows) == 0:
        return np.zeros_like(counts), records(GROUP, []), np.zeros_like(counts), 0
    filled = counts > 0
    reads = np.zeros_like(counts)
    reads[filled] = np.maximum.reduceat(rows, starts[:-1][filled]) + 1
    used = [template.blocks[template.blocks >= 0] for template in templates]
    low = np.array([blocks.min() if len(blocks) else np.iinfo(np.int64).max for blocks in used])
    high = np.array([blocks.max() + 1 if len(blocks) else 0 for blocks in used])
    owner = np.repeat(np.arange(len(counts)), counts)
    cuts = np.concatenate([[0], np.flatnonzero((rows[1:] != rows[:-1]) | (owner[1:] != owner[:-1])) + 1])
    highs = np.maximum.reduceat(high[kinds], cuts)
    lows = np.minimum(np.minimum.reduceat(low[kinds], cuts), highs)
    n_groups = np.bincount(owner[cuts], minlength=len(counts))
    at, buffer = local_offsets(highs - lows, n_groups)
    first = starts[owner[cuts]]
    groups = records(GROUP, cuts - first, np.append(cuts[1:], len(rows)) - first, rows[cuts], lows, highs, at)
    return reads, groups, n_groups, int(buffer.max())


def check_structure(
    number: int, s: Structure, variable_templates: Sequence[Template], factor_templates: Sequence[Template]
) -> None:
    """Refuse a structure that has no variables, or names templates or rows that cannot be."""
    if len(s.variable_templates) == 0:
        raise DataError(f"Structure {number} has no variables.")
    for side, kinds, templates in (
        ("variable", s.variable_templates, variable_templates),
        ("factor", s.factor_templates, factor_templates),
    ):
        if len(kinds) and (kinds.min() < 0 or kinds.max() >= len(templates)):
            wrong = kinds.min() if kinds.min() < 0 else kinds.max()
            raise DataError(f"Structure {number} names {side} template {wrong}; there are {len(templates)}.")
    for rows in (s.variable_rows, s.factor_rows):
        if len(rows) and rows.min() < 0:
            raise DataError(f"Structure {number} names feature row {rows.min()}; rows count from 0.")


def _check_fit(
    found: NDArray[np.int64], t: NDArray[np.int32], arity: NDArray[np.int64], factor: NDArray[np.int64],
    n_factors: NDArray[np.int64], templates: Sequence[Template], shared: dict[str, Any],
) -> None:  # fmt: skip
    """Refuse a factor whose variables have other states than its template expects; `found` has those of each scope."""
    kinds, slots = shared["factor_kinds"], shared["slots"]
    wrong = arity != kinds.arity[t]
    fits = ~wrong[factor]
    slot = kinds.slots[t[factor]] + np.arange(len(factor)) - offsets(arity)[factor]
    wrong[factor[fits][found[fits] != slots.states[slot[fits]]]] = True
    if wrong.any():
        c = int(np.flatnonzero(wrong)[0])
        number = int(np.searchsorted(offsets(n_factors), c, side="right") - 1)
        name, template = f"Factor {c - int(n_factors[:number].sum())} of structure {number}", templates[t[c]]
        states = tuple(found[factor == c].tolist())
        if template.kind == TABLE:
            raise DataError(f"{name} joins variables with {states} states; its template expects {template.n_states}.")
        if len(states) != template.arity:
            raise DataError(
                f"{name} joins {len(states)} variables; its {template.name} template is for {template.arity}."
            )
        j = next(j for j, n in enumerate(states) if n != template.n_states[j])
        raise DataError(
            f"{name} is a {template.name} factor, and variable {j} of its scope has {states[j]} states; "
            f"its template expects {template.n_states[j]}."
        )


# ------------------------------------------------------------------------------------------------------- kernels


@inner
def side_scores(side: Any, m: int, s: int, weights: Any, buffer: Any, out: Any, at: int) -> None:
    """Score tables of one side of example m, of structure s: fixed + extra + learned, into out[at:]."""
    groups, members, kinds, blocks, fixed, extra = (
        side.groups, side.members, side.kinds, side.block, side.fixed, side.scores,
    )  # fmt: skip
    features, first, row0, extra_at = side.features, side.first_member[s], side.first_row[m], side.first_score[m]
    for q in range(side.first_group[s], side.first_group[s + 1]):
        low, place = groups[q].block, groups[q].at
        score_row(features, row0 + groups[q].row, weights, low, groups[q].block_end, buffer, place)
        done, table = -1, 0
        for i in range(groups[q].first, groups[q].last):
            t, here = members[first + i].template, at + members[first + i].table
            start, size = kinds[t].start, kinds[t].entries
            if t == done:
                # The same row and template as the last one, as along a chain.
                for y in range(size):
                    out[here + y] = out[table + y]
                continue
            for y in range(size):
                b = blocks[start + y]
                out[here + y] = fixed[start + y] + (buffer[place + b - low] if b >= 0 else 0.0)
            if len(extra) == 0:
                done, table = t, here
                continue
            for y in range(size):
                out[here + y] += extra[extra_at + here - at + y]


@kernel
def fill_scores(batch: Any, w_v: Any, w_f: Any, with_loss: bool, out_v: Any, out_f: Any) -> None:
    """Score tables of all examples, in *states* and *tables* coordinates."""
    g = batch.graphs
    examples, buffer = g.examples, np.empty(g.largest.buffer)
    for m in range(len(examples) - 1):
        s, states = examples[m].structure, examples[m].states
        side_scores(batch.variables, m, s, w_v, buffer, out_v, states)
        side_scores(batch.factors, m, s, w_f, buffer, out_f, examples[m].tables)
        if with_loss:
            add_losses(g, m, out_v, states)


@inner
def add_losses(g: Any, m: int, out: Any, at: int) -> None:
    """Add the task loss of the states of example m to out[at:]."""
    examples, losses, costs, labels = g.examples, g.losses, g.costs, g.labels
    states, first = examples[m].states, examples[m].variables
    if len(losses) > 0:
        for k in range(examples[m + 1].states - states):
            out[at + k] += losses[states + k]
    else:
        for v in range(examples[m + 1].variables - first):
            low, size = states_of(g, m, v)
            own, cost = at + low + labels[first + v], costs[first + v]
            kept = out[own]
            for k in range(at + low, at + low + size):
                out[k] += cost
            out[own] = kept


@inner
def states_of(g: Any, m: int, v: int) -> tuple[int, int]:
    """Where the states of variable v begin among those of example m, and how many there are."""
    member = g.variables[g.structures[g.examples[m].structure].variables + v]
    return int(member.table), int(g.variable_kinds[member.template].entries)


@inner
def expected_loss(g: Any, m: int, mu: Any) -> float:
    """Task loss of example m under marginals of its variables, which begin at mu[0]."""
    examples, losses, costs, total = g.examples, g.losses, g.costs, 0.0
    states, first = examples[m].states, examples[m].variables
    if len(losses) > 0:
        for k in range(examples[m + 1].states - states):
            if mu[k] > 0.0:
                total += mu[k] * losses[states + k]
    else:
        for v in range(examples[m + 1].variables - first):
            low, size = states_of(g, m, v)
            for k in range(size):
                if k != g.labels[first + v] and mu[low + k] > 0.0:
                    total += mu[low + k] * costs[first + v]
    return total


@inner
def loss_of(g: Any, state: int, variable: int) -> float:
    """Task loss of a wrong state of a variable, both as counted over all examples."""
    return float(g.losses[state]) if len(g.losses) > 0 else float(g.costs[variable])


@inner
def joint_state(c: int, first: int, factors: Any, scope: Any, kinds: Any, slots: Any, labels: Any) -> int:
    """Joint state of factor c under a labeling; the example's labels begin at `first`."""
    t, at = factors[c].template, factors[c].neighbours
    joint = 0
    for j in range(kinds[t].arity):
        joint += slots[kinds[t].slots + j].stride * labels[first + scope[at + j]]
    return joint


@kernel
def _joint_entries(g: Any, labels: Any, out: Any) -> None:
    examples, structures, factors, scope, kinds, slots = (
        g.examples,
        g.structures,
        g.factors,
        g.scope,
        g.factor_kinds,
        g.slots,
    )
    for m in range(len(examples) - 1):
        f0, first, at = structures[examples[m].structure].factors, examples[m].variables, examples[m].factors
        for c in range(examples[m + 1].factors - at):
            if kinds[factors[f0 + c].template].kind != TABLE:
                out[at + c] = -1
                continue
            out[at + c] = (
                examples[m].tables
                + factors[f0 + c].table
                + joint_state(f0 + c, first, factors, scope, kinds, slots, labels)
            )


def joint_states_of(arrays: GraphArrays, labels: NDArray[np.int32]) -> NDArray[np.int64]:
    """For each factor of each example, where the joint state of a labeling stands in *tables* coordinates.

    A structured factor has no joint states: -1.
    """
    out = np.empty(int(arrays.examples[-1].factors), np.int64)
    if len(out):
        _joint_entries(arrays, labels, out)
    return out

"""The flat arrays of a batch of factor graphs, as kernels see them.

Few arrays with many columns, because every array costs compile time in every kernel. The columns have names, the
constants below. What belongs to an example is in `examples`; what belongs to the shape of its graph is in `structures`
and the arrays after it, numbered inside the example, and shared by all examples of that shape.

Slots of a factor's table are described in tables.py. A structured factor (structured.py) has no joint states: its
*table* holds its parameters, its slots have stride and outer 0, and its template's further data is in `structured`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.errors import DataError
from maxmargin.jit import Struct, inner, kernel
from maxmargin.problems.features import score_row
from maxmargin.problems.templates import TABLE, Structure, Template

# `examples` (M+1 rows; the last holds the ends): structure, offsets in each coordinate, first row in each feature
# matrix.
STRUCTURE, VARIABLES, FACTORS, STATES, TABLES, MESSAGES, V_ROW, F_ROW = range(8)
# `structures` (one more row than structures): offsets into the local arrays.
S_VARIABLES, S_FACTORS, S_VARIABLE_GROUPS, S_FACTOR_GROUPS = range(4)
# `variables`: template, first state in the example, number of factors, first row of `incident`.
V_TEMPLATE, V_STATE, V_DEGREE, V_INCIDENT = range(4)
# `factors`: template, table in the example, first entry of `scope`, messages in the example, the same with all states.
F_TEMPLATE, F_TABLE, F_SCOPE, F_MESSAGE, F_DELTA = range(5)
# `pairs`: for a pair of binary variables without fixed scores, the variables, the places of their states in the example
# (-1 for any other factor), and the blocks of the four joint states.
P_I, P_J, P_STATE_I, P_STATE_J, P_BLOCK = range(5)
# `incident`, a row per (variable, factor): the factor's table and the full message in the example, the variable's slot,
# the factor.
I_TABLE, I_DELTA, I_OUTER, I_STRIDE, I_FACTOR = range(5)
# `variable_groups`, `factor_groups`: first and last member, feature row, first and last block, place in the score
# buffer.
G_FIRST, G_LAST, G_ROW, G_BLOCK, G_BLOCK_END, G_AT = range(6)
# `variable_kinds`, `factor_kinds` (templates): first entry of the block and score arrays, size, arity, first row of
# `slots`, kind (a table or a structured factor), first entry of `structured`.
K_START, K_SIZE, K_ARITY, K_SLOTS, K_KIND, K_DATA = range(6)
# `slots`, a row per (factor template, variable of its scope): the slot's shape, and where its states begin among the
# factor's.
SLOT_STATES, SLOT_STRIDE, SLOT_OUTER, SLOT_DELTA = range(4)
# `largest`: the largest example's variables, states, tables, full messages, score buffer; the largest factor's table,
# states.
L_VARIABLES, L_STATES, L_TABLES, L_DELTAS, L_BUFFER, L_TABLE, L_SLOTS = range(7)


class GraphArrays(Struct):
    """The flat arrays of a batch. int64 columns, int32 labels and blocks, float64 numbers."""

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
    structured: NDArray[np.int64]
    factor_block: NDArray[np.int32]
    factor_fixed: NDArray[np.float64]
    largest: NDArray[np.int64]


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
) -> tuple[dict[str, NDArray[Any]], Sizes]:
    """Concatenate the structures' arrays; `plain_factors` says that no example adds fixed scores to its factors."""
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
    _check_fit(v_kinds[v[member], K_SIZE], t, arity, factor, n_factors, factor_templates, shared)

    full_sizes = np.array([sum(template.n_states) for template in factor_templates], np.int64)
    state, n_states = local_offsets(v_kinds[v, K_SIZE], n_variables)
    table, n_tables = local_offsets(kinds[t, K_SIZE], n_factors)
    full, n_full = local_offsets(full_sizes[t], n_factors)
    message, n_messages = local_offsets(full_sizes[t] - arity, n_factors)
    scope_start, degree = offsets(arity), np.bincount(member, minlength=len(v))
    slot = slots[kinds[t[factor], K_SLOTS] + np.arange(len(scope)) - scope_start[factor]]
    inside = factor - np.repeat(np.repeat(offsets(n_factors)[:-1], n_factors), arity)
    incident = np.stack(
        [table[factor], full[factor] + slot[:, SLOT_DELTA], slot[:, SLOT_OUTER], slot[:, SLOT_STRIDE], inside], axis=1
    )
    v_rows, v_groups, n_v_groups, v_buffer = _groups(
        [s.variable_rows for s in structures], n_variables, v, variable_templates
    )
    f_rows, f_groups, n_f_groups, f_buffer = _groups(
        [s.factor_rows for s in structures], n_factors, t, factor_templates
    )
    local: dict[str, NDArray[Any]] = {
        "structures": np.stack([first_variable, offsets(n_factors), offsets(n_v_groups), offsets(n_f_groups)], axis=1),
        "variables": np.stack([v, state, degree, offsets(degree)[:-1]], axis=1),
        "factors": np.stack([t, table, scope_start[:-1], message, full], axis=1),
        "scope": scope,
        "incident": incident[np.argsort(member, kind="stable")],
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
    pairs[chosen, P_BLOCK:] = shared["factor_block"][kinds[t[chosen], K_START][:, None] + np.arange(4)]
    local["pairs"] = pairs

    largest = [one.max(initial=0) for one in (n_variables, n_states, n_tables, n_full)]
    largest += [max(v_buffer, f_buffer), kinds[:, K_SIZE].max(initial=0), full_sizes.max(initial=0)]
    local["largest"] = np.array(largest, np.int64)
    return local | shared, Sizes(n_variables, n_factors, n_states, n_tables, n_messages, v_rows, f_rows)


def _template_arrays(
    variable_templates: Sequence[Template], factor_templates: Sequence[Template]
) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {}
    for side, templates in (("variable", variable_templates), ("factor", factor_templates)):
        sizes = np.array([t.blocks.size for t in templates], np.int64)
        arities = np.array([t.arity for t in templates], np.int64)
        kinds = np.array([t.kind for t in templates], np.int64)
        data = offsets([len(t.data()) for t in templates])[:-1]
        arrays[f"{side}_kinds"] = np.stack(
            [offsets(sizes)[:-1], sizes, arities, offsets(arities)[:-1], kinds, data], axis=1
        )
        arrays[f"{side}_block"] = np.concatenate([np.empty(0, np.int32), *(t.blocks.ravel() for t in templates)])
        arrays[f"{side}_fixed"] = np.concatenate([np.empty(0), *(t.scores.ravel() for t in templates)])
    # How many states of the template share the state's block; 0 for a state without one.
    sharing = []
    for template in variable_templates:
        _, block, count = np.unique(template.blocks, return_inverse=True, return_counts=True)
        sharing.append(np.where(template.blocks >= 0, count[block], 0))
    arrays["variable_sharing"] = np.concatenate(sharing).astype(np.float64)
    slots = [np.empty((0, 4), np.int64)]
    for t in factor_templates:
        stride = outer = np.zeros(t.arity, np.int64)
        if t.kind == TABLE:
            outer = np.cumprod((1, *t.n_states[:-1]))
            stride = t.blocks.size // (outer * t.n_states)
        slots.append(np.stack([t.n_states, stride, outer, offsets(t.n_states)[:-1]], axis=1))
    arrays["slots"] = np.concatenate(slots)
    arrays["structured"] = structured_data(factor_templates)
    return arrays


def structured_data(factor_templates: Sequence[Template]) -> NDArray[np.int64]:
    """The further data of structured factors' templates, where K_DATA says."""
    return np.concatenate([np.empty(0, np.int64), *(t.data() for t in factor_templates)])


def _groups(
    rows_of: Sequence[NDArray[np.int32]],
    counts: NDArray[np.int64],
    kinds: NDArray[np.int32],
    templates: Sequence[Template],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], int]:
    """Cut each structure's members into runs of equal feature row, with their blocks and their place in the buffer.

    Returns how many feature rows each structure reads, the groups, how many each structure has, the largest buffer.
    """
    rows, starts = np.concatenate(rows_of).astype(np.int64), offsets(counts)
    if len(rows) == 0:
        return np.zeros_like(counts), np.empty((0, 6), np.int64), np.zeros_like(counts), 0
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
    groups = np.stack([cuts - first, np.append(cuts[1:], len(rows)) - first, rows[cuts], lows, highs, at], axis=1)
    return reads, groups.astype(np.int64), n_groups, int(buffer.max())


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
    n_factors: NDArray[np.int64], templates: Sequence[Template], shared: dict[str, NDArray[Any]],
) -> None:  # fmt: skip
    """Refuse a factor whose variables have other states than its template expects; `found` has those of each scope."""
    kinds, slots = shared["factor_kinds"], shared["slots"]
    wrong = arity != kinds[t, K_ARITY]
    fits = ~wrong[factor]
    slot = kinds[t[factor], K_SLOTS] + np.arange(len(factor)) - offsets(arity)[factor]
    wrong[factor[fits][found[fits] != slots[slot[fits], SLOT_STATES]]] = True
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
def side_scores(
    row0: int, q0: int, q1: int, groups: Any, first: int, members: Any, kinds: Any, blocks: Any, fixed: Any,
    extra: Any, extra_at: int, features: Any, weights: Any, buffer: Any, out: Any, at: int,
) -> None:  # fmt: skip
    """Score tables of one side (variables or factors) of an example: fixed + extra + learned, into out[at:].

    `members` is `variables` or `factors`: column 0 is the template, column 1 where its states or table begin.
    """
    for q in range(q0, q1):
        low, place = groups[q, G_BLOCK], groups[q, G_AT]
        score_row(features, row0 + groups[q, G_ROW], weights, low, groups[q, G_BLOCK_END], buffer, place)
        done, table = -1, 0
        for i in range(groups[q, G_FIRST], groups[q, G_LAST]):
            t, here = members[first + i, 0], at + members[first + i, 1]
            start, size = kinds[t, K_START], kinds[t, K_SIZE]
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
def fill_scores(
    g: Any, v_features: Any, f_features: Any, w_v: Any, w_f: Any, with_loss: bool, out_v: Any, out_f: Any
) -> None:
    """Score tables of all examples, in *states* and *tables* coordinates."""
    buffer = np.empty(g.largest[L_BUFFER])
    examples, structures, losses = g.examples, g.structures, g.losses
    v_groups, variables, v_kinds, v_block, v_fixed, v_scores = (
        g.variable_groups, g.variables, g.variable_kinds, g.variable_block, g.variable_fixed, g.variable_scores,
    )  # fmt: skip
    f_groups, factors, f_kinds, f_block, f_fixed, f_scores = (
        g.factor_groups, g.factors, g.factor_kinds, g.factor_block, g.factor_fixed, g.factor_scores,
    )  # fmt: skip
    for m in range(len(examples) - 1):
        s = examples[m, STRUCTURE]
        states, tables = examples[m, STATES], examples[m, TABLES]
        side_scores(
            examples[m, V_ROW], structures[s, S_VARIABLE_GROUPS], structures[s + 1, S_VARIABLE_GROUPS], v_groups,
            structures[s, S_VARIABLES], variables, v_kinds, v_block, v_fixed, v_scores, states,
            v_features, w_v, buffer, out_v, states,
        )  # fmt: skip
        side_scores(
            examples[m, F_ROW], structures[s, S_FACTOR_GROUPS], structures[s + 1, S_FACTOR_GROUPS], f_groups,
            structures[s, S_FACTORS], factors, f_kinds, f_block, f_fixed, f_scores, tables,
            f_features, w_f, buffer, out_f, tables,
        )  # fmt: skip
        if with_loss:
            for k in range(states, examples[m + 1, STATES]):
                out_v[k] += losses[k]


@inner
def joint_state(c: int, first: int, factors: Any, scope: Any, kinds: Any, slots: Any, labels: Any) -> int:
    """Joint state of factor c under a labeling; the example's labels begin at `first`."""
    t, at = factors[c, F_TEMPLATE], factors[c, F_SCOPE]
    joint = 0
    for j in range(kinds[t, K_ARITY]):
        joint += slots[kinds[t, K_SLOTS] + j, SLOT_STRIDE] * labels[first + scope[at + j]]
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
        f0, first, at = structures[examples[m, STRUCTURE], S_FACTORS], examples[m, VARIABLES], examples[m, FACTORS]
        for c in range(examples[m + 1, FACTORS] - at):
            if kinds[factors[f0 + c, F_TEMPLATE], K_KIND] != TABLE:
                out[at + c] = -1
                continue
            out[at + c] = (
                examples[m, TABLES]
                + factors[f0 + c, F_TABLE]
                + joint_state(f0 + c, first, factors, scope, kinds, slots, labels)
            )


def joint_states_of(arrays: GraphArrays, labels: NDArray[np.int32]) -> NDArray[np.int64]:
    """For each factor of each example, where the joint state of a labeling stands in *tables* coordinates.

    A structured factor has no joint states: -1.
    """
    out = np.empty(int(arrays.examples[-1, FACTORS]), np.int64)
    _joint_entries(arrays, labels, out)
    return out

"""Chains: a variable a position, factors between neighbours, weights shared along the chain.

T. Joachims, T. Finley and C.-N. Yu, Cutting-Plane Training of Structural SVMs, Machine Learning 77, 2009, section 3.2.

    score(x, y) = sum_t w[y_t] . x_t + sum_t A[y_{t-1}, y_t] + start[y_1] + end[y_T]

and, of higher order, as SVM-hmm has them (``order``, ``emission_order``, at most 2, the second at most the first),

    + sum_t A2[y_{t-2}, y_{t-1}, y_t]              order 2
    + sum_t E[y_{t-1}, y_t] . x_t                  emission order 1 or 2
    + sum_t E2[y_{t-2}, y_{t-1}, y_t] . x_t        emission order 2

Blocks of factors: the K*K pairs first (from order 1), K*K*K triples (order 2), K for the first tag and K for the last (left out
with boundary=False); `chain_blocks` says where. Factors have the constant feature alone. With an emission order they have the
position's features and the constant as the last: a factor that ends at position t reads (x_t, 1), so that its block is (E, A). No
pair or triple ends at a sequence's first position, and its row is (0, 1): that is what factors without x read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from maxmargin.errors import DataError, OptionError
from maxmargin.problems.factor_graphs import FactorGraphs, as_states, example_weights
from maxmargin.problems.features import Features, as_floats
from maxmargin.problems.losses import is_zero_one, variable_costs, variable_losses
from maxmargin.problems.templates import Structure, Template
from maxmargin.sparse import checked_csr

#: States of all positions above which the task loss is not written down for each of them.
_LARGE = 1 << 20


def chain_problem(
    sequences: Sequence[Any] | Features,
    tags: Sequence[ArrayLike] | NDArray[Any] | None,
    n_tags: int,
    boundary: bool = True,
    forbidden: ArrayLike | None = None,
    loss: str | ArrayLike = "hamming",
    sample_weight: ArrayLike | None = None,
    lengths: ArrayLike | None = None,
    order: int = 1,
    emission_order: int = 0,
    forbidden_first: ArrayLike | None = None,
    emission: Features | None = None,
    known: NDArray[np.bool_] | None = None,
) -> FactorGraphs:
    """Build the problem of a set of tagged sequences.

    Parameters
    ----------
    sequences : list of arrays or CSR matrices (length, p), or Features
        Features hold the rows of all sequences, one sequence after another; `lengths` says how many each has.
    tags : list of int arrays (length,), with Features also one int array for all positions, or None to predict
    n_tags : int
        K.
    boundary : bool
        Learn a weight for the first and for the last tag.
    forbidden : bool array (K, K), optional
        Transitions that may not happen.
    loss : "hamming", "fraction", "count", "zero-one" or array (K, K)
        Task loss; an array has the costs by true and predicted tag.
    sample_weight : array (M,), optional
        Weights of the sequences.
    lengths : int array (M,), optional
    order : 0, 1 or 2
        How many tags before a position its transitions know.
    emission_order : int
        How many tags before a position its features know, at most `order`.
    forbidden_first : bool array (K,), optional
        Tags that may not be the first.
    emission : Features, optional
        The rows that know other tags, if they are not those of `sequences`.
    known : bool array, optional
        Which positions, one sequence after another, have a tag that is known. The others are left out, with their transitions;
        sequences without a known tag are left out whole.
    """
    check_orders(order, emission_order)
    if isinstance(sequences, Features):
        rows, lengths = sequences, np.asarray(lengths, np.int64)
        if lengths.ndim != 1 or (lengths < 1).any() or lengths.sum() != rows.shape[0]:
            raise DataError(f"The lengths of the sequences do not add up to the {rows.shape[0]} rows of {rows.name}.")
    else:
        rows, lengths = stack_examples(sequences, "sequence")
    labels = None
    if isinstance(sequences, Features) and isinstance(tags, np.ndarray) and tags.shape == (rows.shape[0],):
        labels = as_states(tags, "tags")
    elif tags is not None:
        labels = join_labels(list(tags), lengths, "tags")
    pair_scores = _fixed_scores(forbidden, (n_tags, n_tags), "forbidden")
    first_scores = _fixed_scores(forbidden_first, (n_tags,), "forbidden_first")
    blocks = chain_blocks(n_tags, boundary, order)
    shapes = {"pairs": (n_tags, n_tags), "triples": (n_tags,) * 3, "start": (n_tags,), "end": (n_tags,)}
    fixed = {"pairs": pair_scores, "start": first_scores}
    templates = {
        name: Template(np.arange(blocks[name].start, blocks[name].stop).reshape(shape), fixed.get(name))
        for name, shape in shapes.items()
        if name in blocks
    }
    # Constraints hold without weights, too.
    for name, scores in fixed.items():
        if scores is not None and name not in templates:
            templates[name] = Template(np.full(shapes[name], -1), scores)
    starts = np.cumsum(lengths) - lengths
    first, sizes = starts, lengths
    if known is None or labels is None:
        distinct, structure_of = np.unique(lengths, return_inverse=True)
        masks = [np.ones(int(length), bool) for length in distinct]
    else:
        kept, masks, structure_of = _known_shapes(known, starts, lengths)
        first, sizes = starts[kept], np.add.reduceat(known.astype(np.int64), starts)[kept]
        labels = labels[known]
        if sample_weight is not None:
            sample_weight = example_weights(sample_weight, len(lengths))[kept]
    structures = [_chain(mask, list(templates), emission_order) for mask in masks]
    losses = costs = None
    if labels is not None and isinstance(loss, str) and n_tags > 1 and n_tags * len(labels) > _LARGE:
        costs = variable_costs(sizes, loss)
    elif labels is not None:
        losses = variable_losses(labels, np.full(len(labels), n_tags), sizes, loss)
    return FactorGraphs(
        structures,
        structure_of,
        [Template(np.arange(n_tags))],
        list(templates.values()),
        rows,
        emission_rows(emission or rows, starts) if emission_order else Features.constant(),
        first,
        first if emission_order else 0 * first,
        labels,
        losses,
        weights=sample_weight,
        costs=costs,
        zero_one=is_zero_one(loss),
    )


def check_orders(order: Any, emission_order: Any) -> None:
    """Refuse, in a sentence, orders that cannot be."""
    for name, value in (("order", order), ("emission_order", emission_order)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 0 <= value <= 2:
            raise OptionError(f"{name}={value!r} is not possible; it must be 0, 1 or 2.")
    if emission_order > order:
        raise OptionError(
            f"emission_order={emission_order} is not possible with order={order}: features that know {emission_order} "
            f"tag(s) before theirs need transitions that know as many."
        )


def chain_blocks(n_tags: int, boundary: bool, order: int) -> dict[str, slice]:
    """Where the blocks of factors are: "pairs", "triples", "start" and "end", as far as there are any."""
    sizes = {"pairs": n_tags**2 if order >= 1 else 0, "triples": n_tags**3 if order == 2 else 0}
    sizes |= {"start": n_tags, "end": n_tags} if boundary else {}
    blocks, at = {}, 0
    for name, size in sizes.items():
        if size:
            blocks[name] = slice(at, at + size)
            at += size
    return blocks


def emission_rows(features: Features, starts: NDArray[np.int64]) -> Features:
    """The rows of factors that know features, (x, 1); (0, 1) at the starts of sequences."""
    matrix = features.matrix()
    inside = np.ones((features.shape[0], 1), matrix.dtype)
    inside[starts] = 0
    if features.sparse:
        kept = sp.csr_array(matrix.multiply(inside))
        kept.eliminate_zeros()
        return Features(sp.hstack([kept, sp.csr_array(np.ones_like(inside))], format="csr"), features.name)
    return Features(np.hstack([matrix * inside, np.ones_like(inside)]), features.name)


def _fixed_scores(mask: ArrayLike | None, shape: tuple[int, ...], name: str) -> NDArray[np.float64] | None:
    if mask is None:
        return None
    wrong = np.asarray(mask, bool)
    if wrong.shape != shape:
        raise DataError(f"{name} has shape {wrong.shape}; expected {shape}.")
    return np.where(wrong, -np.inf, 0.0)


def _known_shapes(
    known: NDArray[np.bool_], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> tuple[NDArray[np.int64], list[NDArray[np.bool_]], NDArray[np.int64]]:
    """The sequences with a known tag, the distinct ways in which tags are known, and which of these each sequence has."""
    seen: dict[bytes, int] = {}
    kept, structure_of = list[int](), list[int]()
    masks: list[NDArray[np.bool_]] = []
    for m, (start, length) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True)):
        mask = known[start : start + length]
        if not mask.any():
            continue
        key = mask.tobytes()
        if key not in seen:
            seen[key] = len(masks)
            masks.append(mask)
        kept.append(m)
        structure_of.append(seen[key])
    return np.array(kept, np.int64), masks, np.array(structure_of, np.int64)


def _chain(known: NDArray[np.bool_], kinds: list[str], emission_order: int) -> Structure:
    """A variable for each known position, and factors between those that are neighbours."""
    at = np.flatnonzero(known)
    n = len(at)
    scopes: list[tuple[int, ...]] = []
    templates: list[int] = []
    for template, kind in enumerate(kinds):
        if kind in ("pairs", "triples"):
            arity = 2 if kind == "pairs" else 3
            ends = zip(at.tolist(), at[arity - 1 :].tolist(), strict=False)
            found = [tuple(range(v, v + arity)) for v, (one, last) in enumerate(ends) if last - one == arity - 1]
        elif kind == "start":
            found = [(0,)] if known[0] else []
        else:
            found = [(n - 1,)] if known[-1] else []
        scopes += found
        templates += [template] * len(found)
    rows = [int(at[scope[-1]]) if 1 < len(scope) <= emission_order + 1 else 0 for scope in scopes]
    return Structure(np.zeros(n, np.int64), at, templates, rows, scopes)


def stack_examples(parts: Sequence[Any], noun: str, name: str = "X") -> tuple[Features, NDArray[np.int64]]:
    """Stack the feature rows of all examples, CSR if any part is; returns the features and how many rows each has."""
    if len(parts) == 0:
        raise DataError(f"There is no {noun}: the data is empty.")
    title, width = noun.capitalize(), None
    checked: list[Any] = []
    for m, given in enumerate(parts):
        label = f"{title} {m}: {name}"
        part: Any = checked_csr(given, label) if sp.issparse(given) else np.asarray(given)
        if part.ndim != 2:
            raise DataError(f"{title} {m} has shape {part.shape}; expected (rows, features).")
        if part.shape[0] == 0:
            raise DataError(f"{title} {m} is empty.")
        width = part.shape[1] if width is None else width
        if part.shape[1] != width:
            raise DataError(f"{title} {m} has {part.shape[1]} features; {noun} 0 has {width}.")
        checked.append(part if sp.issparse(part) else as_floats(part, label))
    return stack_features(checked, title, name), np.array([part.shape[0] for part in checked], np.int64)


def stack_features(parts: Sequence[Any], title: str, name: str) -> Features:
    """Stack checked parts, CSR if any of them is; what is wrong with their numbers is said of the part that has it."""
    stacked = sp.vstack(parts, format="csr") if any(map(sp.issparse, parts)) else np.concatenate(parts)
    try:
        return Features(stacked, f"the stacked {name}")
    except DataError:
        for m, part in enumerate(parts):
            Features(part, f"{title} {m}: {name}")
        raise


def join_labels(labels: Sequence[ArrayLike], lengths: NDArray[np.int64], noun: str) -> NDArray[np.int32]:
    """Concatenate the labels of all examples after checking their lengths."""
    if len(labels) != len(lengths):
        raise DataError(f"There are {len(lengths)} examples, but {len(labels)} {noun}.")
    parts = []
    for m, one in enumerate(labels):
        part = np.asarray(one)
        if part.shape != (lengths[m],):
            raise DataError(f"Example {m} has {lengths[m]} rows, but its {noun} have shape {part.shape}.")
        parts.append(as_states(part, f"Example {m}: its {noun}"))
    return np.concatenate(parts)

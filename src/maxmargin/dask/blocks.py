"""Dask collections as blocks: one for each chunk of an array, or partition of a data frame or bag, where it lies."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import dask
import distributed
import numpy as np

from maxmargin.errors import DataError
from maxmargin.packed import PackedLabels, PackedRows, PackedSequences

#: Ranges that a packed folder is cut into, at least, and bytes of the features of one of a large folder.
_LEAST_RANGES, _RANGE_BYTES = 4, 64 << 20


@dataclass(frozen=True, eq=False)
class Block:
    """Some of the examples, as `fit` takes them."""

    X: Any
    y: Any
    weight: Any = None


def read_blocks(client: Any, X: Any, y: Any, weight: Any = None) -> list[Any]:
    """Futures of the blocks of inputs, targets and, if there are any, weights of examples."""
    if y is None:
        raise DataError("The target y is None; fit needs one.")
    if isinstance(X, PackedRows | PackedSequences):
        X, y = _packed_parts(X, y)
    inputs = _parts(X, "X")
    targets = _parts(_like(y, X), "y")
    weights = [None] * len(inputs) if weight is None else _parts(_like(weight, X), "sample_weight")
    for name, found in (("y", targets), ("sample_weight", weights)):
        if len(found) != len(inputs):
            raise DataError(
                f"X is in {len(inputs)} blocks, but {name} in {len(found)}; expected a block of {name} for each block of X."
            )
    token = uuid.uuid4().hex
    read = dask.delayed(Block, pure=False)
    blocks = [
        read(*one, dask_key_name=(f"read-shard-{token}", k))
        for k, one in enumerate(zip(inputs, targets, weights, strict=True))
    ]
    futures: list[Any] = client.compute(blocks)
    return futures


def _packed_parts(X: Any, y: Any) -> tuple[list[Any], list[Any]]:
    """Ranges of a packed folder, which workers map themselves: as many as the size of its features makes."""
    if not isinstance(y, PackedLabels) or len(y) != len(X):
        raise DataError("With packed X, y must be the packed labels of the same examples.")
    size = sum(X.folder.arrays[name].nbytes for name in ("dense", "indices", "data") if name in X.folder.arrays)
    n = min(len(X), max(_LEAST_RANGES, -(-size // _RANGE_BYTES)))
    cuts = np.linspace(0, len(X), n + 1).astype(int).tolist()
    itself = dask.delayed(_itself, pure=False)
    ranges = [slice(begin, end) for begin, end in pairwise(cuts)]
    return [itself(X[one]) for one in ranges], [itself(y[one]) for one in ranges]


def _itself(one: Any) -> Any:
    return one


def _like(values: Any, X: Any) -> Any:
    """An array in the chunks of X, where both are arrays whose chunks are known."""
    ours, theirs = getattr(values, "chunks", None), getattr(X, "chunks", None)
    if not (ours and theirs) or ours[0] == theirs[0]:
        return values
    n, rows = sum(ours[0]), sum(theirs[0])
    if n == n and rows == rows and n != rows:
        raise DataError(f"X has {rows} rows, but y or sample_weight has {n}; expected one for each row of X.")
    # Sizes that are not known are NaN, which equals nothing.
    return values.rechunk({0: theirs[0]}) if n == n == rows else values


def _parts(values: Any, name: str) -> list[Any]:
    """The blocks of a collection, or those of a list."""
    if hasattr(values, "to_delayed"):
        if getattr(values, "ndim", 1) == 2 and hasattr(values, "numblocks"):
            values = values.rechunk({1: -1})
        found = values.to_delayed()
        return list(found.ravel()) if hasattr(found, "ravel") else list(found)
    listed = isinstance(values, Sequence) and not isinstance(values, str) and len(values) > 0
    if listed and all(hasattr(one, "__dask_graph__") or isinstance(one, distributed.Future) for one in values):
        return list(values)
    raise DataError(
        f"{name} is of type {type(values).__name__}; expected a Dask array, data frame or bag, or a list of delayed objects or "
        "futures, one for each block. For data that is in this process, fit the plain estimator with solver=OnCluster(client)."
    )

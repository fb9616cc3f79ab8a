"""Task losses that decompose over variables, as tables in *states* coordinates.

With n_m variables in example m, and nbar = mean of n_m over the examples, a wrong variable costs

- "hamming": 1 / nbar. Every variable counts the same, and the mean loss is the fraction of all variables that are wrong;
- "fraction": 1 / n_m. Every example counts the same: its loss is the fraction of its variables that are wrong;
- "count": 1.

"zero-one" is no sum over variables: every labeling but the truth costs 1. Its tables are zeros, and `FactorGraphs.zero_one` says
so.

Where all examples have the same number of variables the first two are one. An array with an entry for each variable of an example
is the cost of getting that variable wrong, a (K, K) array the cost ``table[truth, predicted]``, and an (L, K, K) array has such a
table for each of the L variables of an example; all are divided by nbar, as "hamming" is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from maxmargin import scratch
from maxmargin.errors import DataError, OptionError, did_you_mean

#: The losses that have names.
LOSSES = ("hamming", "fraction", "count", "zero-one")
#: Numbers of a table that are made at a time.
_PIECE = 1 << 20


def is_zero_one(loss: Any) -> bool:
    """Whether the loss is that of whole labelings."""
    return isinstance(loss, str) and loss == "zero-one"


def variable_costs(n_variables: NDArray[Any], loss: str) -> NDArray[np.float64]:
    """What a wrong variable costs (V,) by a loss that has a name."""
    sizes = np.asarray(n_variables, np.float64)
    if loss not in LOSSES:
        raise OptionError(
            f'loss={loss!r} is not known; use "hamming", "fraction", "count", "zero-one" or a table of costs.'
            + did_you_mean(loss, LOSSES)
        )
    share = 1.0 / float(sizes.mean()) if len(sizes) else 1.0
    whole = np.zeros(len(sizes))
    cost = {"hamming": whole + share, "fraction": 1.0 / sizes, "count": whole + 1.0, "zero-one": whole}[loss]
    return np.repeat(cost, n_variables)


def uniform_losses(labels: NDArray[np.int32], n_states: int, size: int, loss: str | ArrayLike) -> NDArray[np.float64]:
    """`variable_losses` of examples with `size` variables each, all of as many states: in pieces, without arrays beside the tables.

    Parameters
    ----------
    labels : int array (V,)
    n_states : int
    size : int
    loss : as for `variable_losses`
    """
    tables = scratch.empty(len(labels) * n_states)
    step = max(1, _PIECE // (size * n_states)) * size
    for first in range(0, len(labels), step):
        some = labels[first : first + step]
        each = np.full(len(some), n_states)
        found = variable_losses(some, each, np.full(len(some) // size, size), loss)
        tables[first * n_states : (first + len(some)) * n_states] = found
    return tables


def variable_losses(
    labels: NDArray[np.int32], n_states: NDArray[Any], n_variables: NDArray[Any], loss: str | ArrayLike
) -> NDArray[np.float64]:
    """Loss tables of all variables.

    Parameters
    ----------
    labels : int array (V,)
    n_states : int array (V,)
    n_variables : int array (M,)
        Number of variables of each example.
    loss : "hamming", "fraction", "count", "zero-one", array (L,) or (L, K, K) with L variables in each example, or array (K, K)
    """
    sizes = np.asarray(n_variables, np.float64)
    share = 1.0 / float(sizes.mean()) if len(sizes) else 1.0
    n_states = np.asarray(n_states, np.int64)
    start = np.concatenate([[0], np.cumsum(n_states)])
    if isinstance(loss, str):
        tables = np.repeat(variable_costs(n_variables, loss), n_states)
    else:
        try:
            table = np.asarray(loss, np.float64)
        except (TypeError, ValueError, OverflowError):
            raise DataError("The loss is neither a name nor a table of numbers.") from None
        if not np.isfinite(table).all() or (table < 0).any():
            raise DataError("The loss table must hold finite costs that are not negative.")
        if table.ndim == 1:
            if (np.asarray(n_variables) != len(table)).any():
                raise DataError(
                    f"loss has {len(table)} costs; expected one for each of the {int(n_variables[0])} labels."
                )
            tables = np.repeat(np.tile(table, len(n_variables)) * share, n_states)
        elif table.ndim == 2:
            if table.shape[0] != table.shape[1] or (n_states != len(table)).any():
                raise DataError(f"loss has shape {table.shape}; expected (K, K) with K = {int(n_states.max())} states.")
            tables = (table[np.clip(labels, 0, len(table) - 1)] * share).ravel()
        elif table.ndim == 3:
            n, k = table.shape[:2]
            if (np.asarray(n_variables) != n).any() or table.shape[2] != k or (n_states != k).any():
                raise DataError(
                    f"loss has shape {table.shape}; expected (L, K, K) with L = {int(n_variables[0])} variables an example and "
                    f"K = {int(n_states.max())} states."
                )
            variable = np.tile(np.arange(n), len(n_variables))
            tables = (table[variable, np.clip(labels, 0, k - 1)] * share).ravel()
        else:
            raise DataError(f"loss has {table.ndim} dimensions; expected 1, 2 or 3.")
    tables = np.array(tables, np.float64)
    # Labels that are no state of their variable get no zero here; FactorGraphs names the first of them.
    known = (labels >= 0) & (labels < n_states)
    tables[start[:-1][known] + labels[known]] = 0.0
    return tables

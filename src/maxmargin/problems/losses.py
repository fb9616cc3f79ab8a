"""Task losses that decompose over variables, as tables in *states* coordinates.

"hamming": the fraction of the example's variables that are wrong. "count": their number. An array of length K (or of
one entry a variable of the example) is the cost of getting a variable wrong by its true label; a (K, K) array is the
cost ``table[truth, predicted]``, divided by the number of variables of the example.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from maxmargin.errors import DataError, OptionError


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
    loss : "hamming", "count", array (L,) with L variables in each example, or array (K, K)
    """
    share = np.repeat(1.0 / np.asarray(n_variables, np.float64), n_variables)
    n_states = np.asarray(n_states, np.int64)
    start = np.concatenate([[0], np.cumsum(n_states)])
    if isinstance(loss, str):
        if loss not in ("hamming", "count"):
            raise OptionError(f'loss={loss!r} is not known; use "hamming", "count" or a table of costs.')
        cost = share if loss == "hamming" else np.ones(len(labels))
        tables = np.repeat(cost, n_states)
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
            tables = (table[np.clip(labels, 0, len(table) - 1)] * share[:, None]).ravel()
        else:
            raise DataError(f"loss has {table.ndim} dimensions; expected 1 or 2.")
    tables = np.array(tables, np.float64)
    # Labels that are no state of their variable get no zero here; FactorGraphs names the first of them.
    known = (labels >= 0) & (labels < n_states)
    tables[start[:-1][known] + labels[known]] = 0.0
    return tables

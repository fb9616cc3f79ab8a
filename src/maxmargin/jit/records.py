"""Rows of whole numbers with names, `factors[c].table`, which kernels and Python read alike."""

from __future__ import annotations

from typing import Any

import numpy as np


def record_type(*names: str) -> np.dtype[Any]:
    """Make the type of a record of whole numbers."""
    return np.dtype([(name, np.int64) for name in names], align=True)


def records(dtype: np.dtype[Any], *columns: Any) -> Any:
    """Make an array of records from columns of numbers; fields without a column are 0."""
    out = np.zeros(len(columns[0]), dtype).view(np.recarray)
    for name, column in zip(dtype.names or (), columns, strict=False):
        out[name] = column
    return out

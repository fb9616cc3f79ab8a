"""What the readers of multi-label files return.

Conventions
-----------
One row per example. Labels are columns of zeros and ones, in the order of `label_names`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from maxmargin.errors import DataError

#: Most entries of a matrix of labels: a short file can have many examples and name many labels.
MOST_LABEL_CELLS = 1 << 29


@dataclass(frozen=True, eq=False)
class MultiLabelData:
    """Examples with a set of labels each.

    Attributes
    ----------
    X : ndarray of float64 or csr_array of float64 with int32 indices, shape (n, p)
        The features.
    Y : ndarray of int8, shape (n, L)
        1 where the example has the label, 0 elsewhere.
    feature_names : list of str
        The names of the p columns of `X`.
    label_names : list of str
        The names of the L columns of `Y`.
    """

    X: NDArray[np.float64] | csr_array[np.float64]
    Y: NDArray[np.int8]
    feature_names: list[str]
    label_names: list[str]


def check_label_cells(place: str, n_examples: int, n_labels: int) -> None:
    """Refuse a file whose labels make a larger matrix than can be meant."""
    if n_examples * n_labels > MOST_LABEL_CELLS:
        raise DataError(
            f"{place} has {n_examples} examples and {n_labels} labels; their product is above the limit of {MOST_LABEL_CELLS} "
            "(maxmargin.formats.multilabel.MOST_LABEL_CELLS)."
        )

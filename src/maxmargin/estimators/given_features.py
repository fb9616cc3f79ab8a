"""Features as users give them: arrays, sparse matrices, data frames; what is wrong with them, and the names of their columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from maxmargin.errors import DataError, WrongTypeError
from maxmargin.estimators.parameters import is_real
from maxmargin.packed.data import PackedRows
from maxmargin.problems import Features


def check_features(X: Any, name: str = "X") -> Features:
    """Features with at least one row and one column, or a sentence."""
    if isinstance(X, PackedRows):
        return X.features
    dtype = getattr(X, "dtype", None)
    if getattr(dtype, "kind", "") == "c":
        raise DataError(f"Complex data not supported: {name} has dtype {dtype}; expected real numbers.")
    if not sp.issparse(X):
        if hasattr(X, "columns") and hasattr(X, "iloc"):
            _check_frame(X, name)
        X = np.asarray(X)
        if X.ndim == 1:
            raise DataError(
                f"{name} has 1 dimension, shape {X.shape}; expected 2: (rows, features). Reshape your data: "
                f"{name}.reshape(1, -1) is one example, {name}.reshape(-1, 1) one feature."
            )
        if X.dtype == object:
            # What a data frame of mixed columns gives.
            try:
                X = X.astype(np.float64)
            except (TypeError, ValueError, OverflowError) as error:
                kind = WrongTypeError if isinstance(error, TypeError) else DataError
                raise kind(f"{name} holds values that are not real numbers ({error}).") from None
    features = Features(X, name)
    if features.shape[0] == 0:
        raise DataError(f"{name} has no rows: the data is empty (shape {features.shape}).")
    if features.shape[1] == 0:
        raise DataError(f"{name} has 0 feature(s) (shape={features.shape}) while a minimum of 1 is required.")
    return features


def _check_frame(X: Any, name: str) -> None:
    """Refuse a data frame with a column that holds anything but finite real numbers, naming the column and the row."""
    for k, column in enumerate(X.columns):
        values = X.iloc[:, k]
        try:
            numbers_ = np.asarray(values, np.float64)
        except (TypeError, ValueError, OverflowError):
            wrong = next(
                ((row, value) for row, value in zip(X.index, values, strict=True) if not is_real(value)),
                (X.index[0], values.iloc[0]),
            )
            raise DataError(
                f"{name} holds values that are not real numbers: column {column!r} is {wrong[1]!r} in row {wrong[0]!r}; encode "
                "such columns as numbers first, or leave them out."
            ) from None
        if not np.isfinite(numbers_).all():
            row = int(np.flatnonzero(~np.isfinite(numbers_))[0])
            raise DataError(
                f"{name} has {numbers_[row]} in column {column!r}, row {X.index[row]!r}; features must be finite, not NaN or "
                "infinity."
            )


def check_same_columns(parts: Any, noun: str) -> None:
    """Refuse data frames whose columns are not those of the first, naming what differs."""
    first = list(getattr(parts[0], "columns", [])) if len(parts) else []
    for m, one in enumerate(parts):
        columns = list(getattr(one, "columns", []))
        if columns == first:
            continue
        raise DataError(
            f"The columns of {noun} {m} are named differently than those of {noun} 0: {_difference(columns, first)}."
        )


def _difference(found: list[Any], expected: list[Any]) -> str:
    """How the names of columns differ."""
    more = [name for name in found if name not in expected]
    less = [name for name in expected if name not in found]
    told = [f"it has {more[0]!r}" if more else "", f"it lacks {less[0]!r}" if less else ""]
    return " and ".join(filter(None, told)) or "they stand in another order"


def remember_columns(estimator: BaseEstimator, X: Any) -> None:
    """Set ``n_features_in_`` and, for a data frame, ``feature_names_in_``, as scikit-learn does."""
    validate_data(estimator, X, skip_check_array=True, reset=True)


def compare_columns(estimator: BaseEstimator, X: Any) -> None:
    """Refuse features of another number or of other names than those of training."""
    check_is_fitted(estimator)
    names = getattr(estimator, "_feature_names", None)
    if names is not None and hasattr(X, "columns") and not all(name.isdigit() for name in names):
        # The columns of the table that the command line trained on.
        found = [str(name) for name in X.columns]
        if found != list(names):
            raise DataError(
                f"The data frame has other columns than the file that the model was trained on: {_difference(found, names)}."
            )
        return
    try:
        validate_data(estimator, X, skip_check_array=True, reset=False)
    except ValueError as error:
        raise DataError(str(error)) from None

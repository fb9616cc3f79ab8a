"""What is read from model files (saving.py has the conventions), checked and set on an estimator that was just made."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import clone

from maxmargin.errors import ModelFileError
from maxmargin.estimators.feature_space import block_width, is_linear, is_low_rank
from maxmargin.estimators.labels import as_vector
from maxmargin.estimators.saving import COLUMN, most_bytes
from maxmargin.features.saved import restore_vectoriser
from maxmargin.problems import Features
from maxmargin.solvers.core.result import CERTIFICATES, Result, Status


def restore_structured(estimator: Any, header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
    """Set the attributes of an estimator of factor graphs."""
    _restore_parts(estimator, header, arrays, result_of(header["certificate"], arrays))


def _restore_parts(estimator: Any, header: dict[str, Any], arrays: dict[str, NDArray[Any]], result: Result) -> None:
    classes, p = _classes(header, arrays), size_of(header, "n_features", 1)

    if is_low_rank(estimator):
        _restore_basis(estimator, header["kernel"], arrays, p)
    elif not is_linear(estimator):
        estimator._n_rows = size_of(header["kernel"], "n_rows", 1)
    expected = estimator._restore_task(header, arrays, classes, block_width(estimator, p))
    if arrays["weights"].shape != (expected,):
        raise ModelFileError(
            f"its weights have shape {arrays['weights'].shape}; its labels and features need ({expected},)."
        )

    estimator.classes_ = classes
    estimator.n_features_in_ = p
    if header["feature_names"] is not None:
        names = _strings(header["feature_names"])
        if len(names) != p:
            raise ModelFileError(f"it has {len(names)} feature names for {p} features.")
        if header["data_frame"]:
            estimator.feature_names_in_ = np.array(names, object)
        else:
            estimator._feature_names = names
    if header.get("vectoriser") is not None:
        estimator._keep_vectoriser(restore_vectoriser(header["vectoriser"], arrays, p))
    estimator.inference_ = str(header["inference"])
    estimator.temperature_ = float(header["temperature"])
    if not 0.0 < estimator.temperature_ < np.inf:
        raise ModelFileError(f"its temperature is {estimator.temperature_}; expected a finite number above 0.")
    estimator.result_ = result
    if not is_linear(estimator):
        _restore_vectors(estimator, header["kernel"]["gamma"], arrays)
    estimator._name_weights()


def fitted(estimator: Any, header: dict[str, Any], result: Result) -> Any:
    """An estimator of linear features as if it had been fitted, with a result from elsewhere.

    The header is that of a model file (saving.py), with the arrays ``classes`` and ``edges`` in it, and ``hashing`` for what makes
    features.
    """
    given = dict(header)
    arrays = {name: given.pop(name) for name in ("classes", "edges") if name in given}
    hashing = given.pop("hashing", None)
    _restore_parts(estimator, given, arrays | {"weights": result.weights}, result)
    estimator.C_, estimator.validation_path_ = float(result.options["C"]), []
    estimator.path_ = {estimator.C_: result}
    if hashing is not None:
        vectoriser = clone(hashing)
        vectoriser.set_columns(None)
        estimator._keep_vectoriser(vectoriser)
    return estimator


def _restore_basis(estimator: Any, kernel: dict[str, Any], arrays: dict[str, NDArray[Any]], p: int) -> None:
    mapping, residual = arrays["basis_map"], kernel["residual"]
    if mapping.dtype != np.float64 or mapping.ndim != 2 or 0 in mapping.shape or not np.isfinite(mapping).all():
        raise ModelFileError("the map of its basis is no matrix of finite numbers of double precision.")
    if not (isinstance(residual, float) and 0.0 <= residual <= 1.0):
        raise ModelFileError(f"the residual of its basis is {residual!r}; expected a number from 0 to 1.")
    if "basis" in arrays:
        rows = arrays["basis"]
        most = p if estimator.kernel == "precomputed" else np.iinfo(np.int64).max
        if rows.dtype != np.int64 or rows.shape != mapping.shape[:1] or not ((rows >= 0) & (rows < most)).all():
            raise ModelFileError(f"the rows of its basis are not {len(mapping)} numbers of rows.")
        estimator.basis_ = rows
    elif estimator.kernel == "precomputed":
        raise ModelFileError("it does not say which columns of a precomputed matrix are its basis.")
    estimator._basis_map, estimator.basis_residual_ = mapping, residual


def _restore_vectors(estimator: Any, gamma: Any, arrays: dict[str, NDArray[Any]]) -> None:
    """The vectors of the support or of the basis, and gamma; the support is where any block has a coefficient."""
    kind = "basis" if is_low_rank(estimator) else "support"
    if kind == "basis":
        count = len(estimator._basis_map)
    else:
        n_rows = estimator._n_rows
        blocks = estimator.result_.weights[: estimator._n_kernel_blocks * n_rows].reshape(-1, n_rows)
        estimator.support_ = np.flatnonzero(blocks.any(axis=0))
        count = len(estimator.support_)
    if estimator.kernel == "precomputed":
        return
    if not (isinstance(gamma, float) and gamma > 0):
        raise ModelFileError(f"gamma is {gamma!r}; expected a number above 0.")
    shape, name = (count, estimator.n_features_in_), f"{kind}_vectors"
    if name in arrays:
        vectors: Any = arrays[name]
    else:
        vectors = sp.csr_array(tuple(arrays[f"{kind}_{part}"] for part in ("data", "indices", "indptr")), shape=shape)
    if vectors.shape != shape:
        raise ModelFileError(f"its {kind} vectors have shape {vectors.shape}; its weights and features need {shape}.")
    checked = Features(vectors, name)
    # An array stays one, however many zeros it holds: predictions are the same to the last bit.
    setattr(estimator, f"{name}_", checked.matrix() if sp.issparse(vectors) else vectors)
    estimator.gamma_ = gamma


def _classes(header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> NDArray[Any]:
    labels = header["labels"]
    if (
        not isinstance(labels, list)
        or not labels
        or not all(isinstance(one, str | bool | int | float) for one in labels)
    ):
        raise ModelFileError("its labels are no list of strings and numbers.")
    classes = arrays["classes"] if "classes" in arrays else as_vector(labels)
    if classes.tolist() != labels or len(set(labels)) != len(labels):
        raise ModelFileError("its labels are given twice, and differ.")
    return classes


def dense_weights(header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> NDArray[Any]:
    """The weights, which may be given by the places and values of those that are not 0."""
    if "weights" in arrays:
        return arrays["weights"]
    index, value, n = arrays["weights_index"], arrays["weights_value"], size_of(header, "n_weights", 1)
    if index.dtype.kind != "i" or index.ndim != 1 or index.shape != value.shape:
        raise ModelFileError("the places of its weights do not fit their values.")
    if len(index) and not (index[0] >= 0 and index[-1] < n and (np.diff(index) > 0).all()):
        raise ModelFileError(f"the places of its weights are not in order, or not below {n}.")
    if 8 * n > most_bytes(index.nbytes + value.nbytes):
        raise ModelFileError(f"it asks for {n} weights and has {len(index)}, too few for so much memory.")
    weights = np.zeros(n)
    weights[index] = value.astype(np.float64, casting="safe")
    return weights


def size_of(header: dict[str, Any], key: str, least: int) -> int:
    """A number of the header that counts something."""
    value = header[key]
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ModelFileError(f"{key} is {value!r}; expected a whole number of at least {least}.")
    return value


def _strings(values: Any) -> list[str]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ModelFileError("its feature names are no list of strings.")
    return values


def result_of(saved: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Result:
    """How training ended."""
    if saved["certificate"] not in CERTIFICATES:
        raise ModelFileError(f"its certificate is {saved['certificate']!r}; expected one of {', '.join(CERTIFICATES)}.")
    return Result(
        status=Status(saved["status"]),
        weights=arrays["weights"],
        primal=float(saved["primal"]),
        dual=float(saved["dual"]),
        gap=float(saved["gap"]),
        certificate=saved["certificate"],
        n_passes=int(saved["n_passes"]),
        n_oracle_calls=int(saved["n_oracle_calls"]),
        seconds=float(saved["seconds"]),
        history={name.removeprefix(COLUMN): column for name, column in arrays.items() if name.startswith(COLUMN)},
        solver=str(saved["solver"]),
        options=dict(saved["options"]),
    )

"""Fitted estimators as model files (``formats.model_file``); restoring.py and loading.py go back.

Conventions
-----------
Header: ``library_version``, ``task``, ``parameters`` (the constructor's), ``labels``, ``feature_names`` (or null),
``data_frame`` (whether they are a data frame's), ``n_features``, ``certificate`` (how training ended), ``validation_path`` (how
C was chosen, a list for each value), ``temperature`` (of probabilities) and what one task needs more. Arrays: ``weights``, or,
where most of them are 0, ``weights_index`` and ``weights_value`` with ``n_weights`` in the header,
``history_NAME`` for each column of the history, ``classes`` if the labels are numbers, ``edges`` for multi-label models. With a
kernel, ``kernel`` in the header has the number of training rows and gamma, and the support vectors are the array
``support_vectors``, or, in CSR, ``support_data``, ``support_indices``, ``support_indptr``. With a basis, ``kernel`` has gamma and
the residual, ``basis_map`` (k, r) makes coordinates of kernel values, and the vectors are under the same names with ``basis`` for
``support``; ``basis`` has the numbers of the rows, if it is made of training rows.

What makes features of positions (``vectoriser``) is saved by name and options, and its columns' names as ``names_text``, all
characters in UTF-8, and ``names_length``, how many characters each name has.

A parser has no labels and no features; its header has the names of the ``grammar``, and its arrays are those of the grammar
(``grammar_NAME``), ``rule_counts`` and ``word_class`` beside the weights and the history.

A solver or engine with options of its own is saved by name and options, JSON's missing numbers (infinity, NaN) as
strings, a dict of class weights as pairs (JSON's keys are strings), and a random generator as null. A kernel that is a
function is code, and is not saved. Nor is the solver's state: that is what checkpoints are for.

An estimator says what it has: `_parts` is its header and arrays beside those of the training, and `_restore` sets its attributes
from them, for estimators of factor graphs by way of `_task_parts` and `_restore_task`.

A loaded estimator predicts bit for bit what the saved one does. Labels may be str, int, float or bool.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from maxmargin.errors import OptionError
from maxmargin.estimators.feature_space import is_linear, is_low_rank
from maxmargin.features.saved import VECTORISERS, name_arrays
from maxmargin.features.vectoriser import FeatureColumns
from maxmargin.formats.model_file import write_model
from maxmargin.inference import ENGINES
from maxmargin.solvers import SOLVERS
from maxmargin.solvers.core.result import Result

#: How many times larger weights may be than the places and values that stand for them.
MOST_TIMES = 1000
#: How the names of the history's columns begin.
COLUMN = "history_"


def save(estimator: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator to a model file; see `StructuredEstimator.save`."""
    check_is_fitted(estimator)
    if not hasattr(estimator, "result_"):
        raise OptionError("A baseline cannot be saved: nothing was trained. Save the model that it came from.")
    result: Result = estimator.result_
    header: dict[str, Any] = {
        "library_version": version("maxmargin"),
        "task": estimator.task,
        "parameters": {name: _plain(name, value) for name, value in estimator.get_params(deep=False).items()},
        "inference": estimator.inference_,
        "validation_path": [[_option(value) for value in one] for one in estimator.validation_path_],
        "certificate": {
            "status": str(result.status),
            "certificate": result.certificate,
            "primal": _number(result.primal),
            "dual": _number(result.dual),
            "gap": _number(result.gap),
            "n_passes": int(result.n_passes),
            "n_oracle_calls": int(result.n_oracle_calls),
            "seconds": float(result.seconds),
            "solver": result.solver,
            "options": {name: _option(value) for name, value in result.options.items()},
        },
    }
    arrays: dict[str, NDArray[Any]] = weight_arrays(np.asarray(result.weights, np.float64))
    if "weights" not in arrays:
        header["n_weights"] = len(result.weights)
    arrays |= {COLUMN + name: np.asarray(column) for name, column in result.history.items()}
    more = estimator._parts()
    write_model(path, header | more[0], arrays | more[1])


def weight_arrays(weights: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
    """The weights, or, if most of them are 0, the places and values of the others.

    Readers refuse files that ask for far more memory than they are large (`MOST_TIMES`); such weights are written in full.
    """
    index = np.flatnonzero(weights)
    if 2 * len(index) > len(weights):
        return {"weights": weights}
    values, places = weights[index], index.astype(np.int32 if len(weights) < 2**31 else np.int64)
    if 8 * len(weights) > most_bytes(values.nbytes + places.nbytes):
        return {"weights": weights}
    return {"weights_index": places, "weights_value": values}


def most_bytes(stored: int) -> int:
    """The most bytes of weights that so many bytes of places and values may stand for."""
    return MOST_TIMES * stored + (64 << 20)


def structured_parts(estimator: Any) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Header and arrays of an estimator of factor graphs: labels, features, what its task adds, and its kernel."""
    classes: NDArray[Any] = estimator.classes_
    arrays: dict[str, NDArray[Any]] = {}
    header: dict[str, Any] = {
        "labels": [_label(label) for label in classes.tolist()],
        "n_features": estimator.n_features_in_,
        "feature_names": _feature_names(estimator),
        "temperature": float(estimator.temperature_),
        "data_frame": hasattr(estimator, "feature_names_in_") and not hasattr(estimator, "vectoriser_"),
    }
    if classes.dtype.kind in "biuf":
        arrays["classes"] = classes
    if hasattr(estimator, "vectoriser_"):
        header["vectoriser"] = _plain("vectoriser", estimator.vectoriser_)
        arrays |= name_arrays(getattr(estimator.vectoriser_, "feature_names_", None))
    more = estimator._task_parts()
    header |= more[0]
    arrays |= more[1]
    if not is_linear(estimator):
        header["kernel"] = {"gamma": getattr(estimator, "gamma_", None)}
        if is_low_rank(estimator):
            header["kernel"]["residual"] = float(estimator.basis_residual_)
            arrays["basis_map"] = estimator._basis_map
            if hasattr(estimator, "basis_"):
                arrays["basis"] = estimator.basis_
        else:
            header["kernel"]["n_rows"] = int(estimator._n_rows)
        arrays |= _vector_arrays(estimator, "basis" if is_low_rank(estimator) else "support")
    return header, arrays


def _feature_names(estimator: Any) -> list[str] | None:
    """Names from a data frame, or from a data file on the command line; those of a vectoriser have arrays of their own."""
    if hasattr(estimator, "vectoriser_"):
        return None
    names = getattr(estimator, "feature_names_in_", getattr(estimator, "_feature_names", None))
    return None if names is None else [str(name) for name in names]


def _vector_arrays(estimator: Any, kind: str) -> dict[str, NDArray[Any]]:
    """The vectors of the support or of the basis, if the kernel is computed from them."""
    vectors = getattr(estimator, f"{kind}_vectors_", None)
    if vectors is None:
        return {}
    if not sp.issparse(vectors):
        return {f"{kind}_vectors": vectors}
    return {f"{kind}_{name}": getattr(vectors, name) for name in ("data", "indices", "indptr")}


def _plain(name: str, value: Any) -> Any:
    """A parameter as JSON can hold it."""
    if name == "kernel" and callable(value):
        raise OptionError(
            f"The kernel {getattr(value, '__name__', repr(value))} cannot be saved: it is code, and a model file holds only "
            'data. Train with kernel="precomputed", and compute the matrices outside.'
        )
    if name in ("solver", "inference") and not isinstance(value, str):
        known: dict[str, Any] = SOLVERS if name == "solver" else ENGINES
        for key, made in known.items():
            if type(value) is made:
                return {
                    "name": key,
                    "options": {k: _option(v) for k, v in vars(value).items() if not k.startswith("_")},
                }
        raise OptionError(f"The {name} {value!r} cannot be saved: it is none of {', '.join(known)}, with options.")
    if isinstance(value, FeatureColumns):
        for key, made in VECTORISERS.items():
            if type(value) is made:
                return {"name": key, "options": {k: _option(v) for k, v in value.get_params(deep=False).items()}}
        raise OptionError(
            f"The {name} {value!r} cannot be saved: it is none of {', '.join(VECTORISERS)}, with options."
        )
    if isinstance(value, np.random.Generator | np.random.RandomState):
        return None
    if name == "class_weight" and isinstance(value, Mapping):
        return [[_label(_option(label)), _option(weight)] for label, weight in value.items()]
    return _option(os.fspath(value) if isinstance(value, os.PathLike) else value)


def _option(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, dict):
        return {str(key): _option(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_option(entry) for entry in value]
    return value if value is None or isinstance(value, str | int) else str(value)


def _number(value: float) -> float | str:
    return float(value) if math.isfinite(value) else str(float(value))


def _label(label: Any) -> Any:
    if not isinstance(label, str | bool | int | float):
        raise OptionError(
            f"The label {label!r} is of type {type(label).__name__}; a model file holds labels of type str, int, "
            "float or bool."
        )
    return label

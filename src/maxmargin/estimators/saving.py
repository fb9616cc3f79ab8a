"""Fitted estimators as model files (``formats.model_file``), and back.

Conventions
-----------
Header: ``library_version``, ``task``, ``parameters`` (the constructor's), ``labels``, ``feature_names`` (or null),
``data_frame`` (whether they are a data frame's), ``n_features``, ``certificate`` (how training ended) and what one task
needs more. Arrays: ``weights``, ``history_NAME`` for each column of the history, ``classes`` if the labels are numbers,
``edges`` for multi-label models. With a kernel, ``kernel`` in the header has the number of training rows and gamma, and the
support vectors are the array ``support_vectors``, or, in CSR, ``support_data``, ``support_indices``, ``support_indptr``. With a
basis, ``kernel`` has gamma and the residual, ``basis_map`` (k, r) makes coordinates of kernel values, and the vectors are under
the same names with ``basis`` for ``support``; ``basis`` has the numbers of the rows, if it is made of training rows.

What makes features of positions (``vectoriser``) is saved by name and options, and its columns' names as ``names_text``, all
characters in UTF-8, and ``names_length``, how many characters each name has.

A parser has no labels and no features; its header has the names of the ``grammar``, and its arrays are those of the grammar
(``grammar_NAME``), ``rule_counts`` and ``word_class`` beside the weights and the history.

A solver or engine with options of its own is saved by name and options, JSON's missing numbers (infinity, NaN) as
strings, a dict of class weights as pairs (JSON's keys are strings), and a random generator as null. A kernel that is a
function is code, and is not saved. Nor is the solver's state: that is what checkpoints are for.

A loaded estimator predicts bit for bit what the saved one does. Labels may be str, int, float or bool.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from maxmargin.errors import MaxMarginError, ModelFileError, OptionError
from maxmargin.estimators.base import StructuredEstimator, check_parameters
from maxmargin.estimators.binary import BinarySVM
from maxmargin.estimators.chain import ChainSVM, check_chain_options, constraints
from maxmargin.estimators.feature_space import block_width, is_linear, is_low_rank
from maxmargin.estimators.graph import GraphSVM
from maxmargin.estimators.labels import check_several, class_weights, cost_table
from maxmargin.estimators.multi_class import MultiClassSVM
from maxmargin.estimators.multi_label import MultiLabelSVM
from maxmargin.estimators.one_variable import OneVariableClassifier
from maxmargin.estimators.parser import ParserSVM, check_parser_options
from maxmargin.features import TextFeatures, Vectoriser
from maxmargin.features.vectoriser import FeatureColumns
from maxmargin.formats.model_file import read_model, write_model
from maxmargin.inference import ENGINES
from maxmargin.problems import Features, label_edges
from maxmargin.problems.chains import chain_blocks
from maxmargin.problems.grammar import Grammar
from maxmargin.solvers import SOLVERS
from maxmargin.solvers.result import CERTIFICATES, Result, Status

TASKS: dict[str, type[Any]] = {
    cls.task: cls for cls in (BinarySVM, MultiClassSVM, MultiLabelSVM, ChainSVM, GraphSVM, ParserSVM)
}
#: What makes features, by its name in model files.
VECTORISERS: dict[str, type[FeatureColumns]] = {"vectoriser": Vectoriser, "text": TextFeatures}
_COLUMN = "history_"


def save(estimator: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator to a model file; see `StructuredEstimator.save`."""
    from importlib.metadata import version

    check_is_fitted(estimator)
    if not hasattr(estimator, "result_"):
        raise OptionError("A baseline cannot be saved: nothing was trained. Save the model that it came from.")
    result: Result = estimator.result_
    header: dict[str, Any] = {
        "library_version": version("maxmargin"),
        "task": estimator.task,
        "parameters": {name: _plain(name, value) for name, value in estimator.get_params(deep=False).items()},
        "inference": estimator.inference_,
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
    arrays: dict[str, NDArray[Any]] = {"weights": np.asarray(result.weights, np.float64)}
    arrays |= {_COLUMN + name: np.asarray(column) for name, column in result.history.items()}
    more = _parser_parts(estimator) if isinstance(estimator, ParserSVM) else _structured_parts(estimator)
    write_model(path, header | more[0], arrays | more[1])


def load(path: str | os.PathLike[str]) -> Any:
    """Read a model file.

    Parameters
    ----------
    path : path-like
        The file, from ``save`` or from ``maxmargin train -o``. It may come from anyone: nothing in it is executed.

    Returns
    -------
    BinarySVM, MultiClassSVM, MultiLabelSVM, ChainSVM, GraphSVM or ParserSVM
        The fitted estimator.
    """
    place = os.fspath(path)
    header, arrays = read_model(place)
    try:
        return _restore(header, arrays)
    except MaxMarginError as error:
        raise ModelFileError(f"The model file {place} does not fit together: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        raise ModelFileError(
            f"The model file {place} lacks what a model needs ({type(error).__name__}: {error})."
        ) from error


# --------------------------------------------------------------------------------------------------------------------
# Writing


def _parser_parts(estimator: ParserSVM) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """What a parser needs more."""
    names, arrays = estimator.grammar_.to_arrays()
    arrays |= {"rule_counts": estimator.rule_counts_, "word_class": estimator.word_class_}
    return {"grammar": names, "n_left_out": int(estimator.n_left_out_)}, arrays


def _structured_parts(estimator: StructuredEstimator) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """What all others need more."""
    classes: NDArray[Any] = estimator.classes_
    arrays: dict[str, NDArray[Any]] = {}
    header: dict[str, Any] = {
        "labels": [_label(label) for label in classes.tolist()],
        "n_features": estimator.n_features_in_,
        "feature_names": _feature_names(estimator),
        "data_frame": hasattr(estimator, "feature_names_in_") and not hasattr(estimator, "vectoriser_"),
    }
    if classes.dtype.kind in "biuf":
        arrays["classes"] = classes
    if isinstance(estimator, MultiLabelSVM):
        header["lists"] = bool(estimator._lists)
        arrays["edges"] = np.asarray(estimator.edges_, np.int64)
    elif isinstance(estimator, GraphSVM):
        header["n_edge_features"] = int(estimator.n_edge_features_in_)
    elif hasattr(estimator, "vectoriser_"):
        header["vectoriser"] = _plain("vectoriser", estimator.vectoriser_)
        arrays |= _name_arrays(getattr(estimator.vectoriser_, "feature_names_", None))
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


def _feature_names(estimator: StructuredEstimator) -> list[str] | None:
    """Names from a data frame, or from a data file on the command line; those of a vectoriser have arrays of their own."""
    if hasattr(estimator, "vectoriser_"):
        return None
    names = getattr(estimator, "feature_names_in_", getattr(estimator, "_feature_names", None))
    return None if names is None else [str(name) for name in names]


def _vector_arrays(estimator: StructuredEstimator, kind: str) -> dict[str, NDArray[Any]]:
    """The vectors of the support or of the basis, if the kernel is computed from them."""
    vectors = getattr(estimator, f"{kind}_vectors_", None)
    if vectors is None:
        return {}
    if not sp.issparse(vectors):
        return {f"{kind}_vectors": vectors}
    return {f"{kind}_{name}": getattr(vectors, name) for name in ("data", "indices", "indptr")}


def _name_arrays(names: NDArray[Any] | None) -> dict[str, NDArray[Any]]:
    """Names of many columns: their characters in UTF-8, one name after another, and how many each has."""
    if names is None:
        return {}
    text = "".join(names.tolist()).encode("utf-8", "surrogatepass")
    return {
        "names_text": np.frombuffer(text, np.uint8),
        "names_length": np.array(list(map(len, names)), np.int64),
    }


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


# --------------------------------------------------------------------------------------------------------------------
# Reading


def _restore(header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Any:
    task = header["task"]
    if not isinstance(task, str) or task not in TASKS:
        raise ModelFileError(f"its task is {task!r}, and this version knows {', '.join(TASKS)}.")
    estimator = _estimator(TASKS[task], header["parameters"])
    weights = arrays["weights"]
    if weights.dtype != np.float64 or not np.isfinite(weights).all():
        raise ModelFileError("its weights are not all finite numbers of double precision.")
    if isinstance(estimator, ParserSVM):
        return _restore_parser(estimator, header, arrays)
    classes, p = _classes(header, arrays), _size(header, "n_features", 1)

    if is_low_rank(estimator):
        _restore_basis(estimator, header["kernel"], arrays, p)
    elif not is_linear(estimator):
        estimator._n_rows = _size(header["kernel"], "n_rows", 1)
    expected = _restore_task(estimator, header, arrays, classes, p)
    if weights.shape != (expected,):
        raise ModelFileError(f"its weights have shape {weights.shape}; its labels and features need ({expected},).")

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
    if isinstance(estimator, ChainSVM) and header.get("vectoriser") is not None:
        estimator._keep_vectoriser(_restore_vectoriser(header["vectoriser"], arrays, p))
    estimator.inference_ = str(header["inference"])
    estimator.result_ = _result(header["certificate"], arrays)
    if not is_linear(estimator):
        _restore_vectors(estimator, header["kernel"]["gamma"], arrays)
    estimator._name_weights()
    return estimator


def _restore_parser(estimator: ParserSVM, header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> ParserSVM:
    grammar = Grammar.from_arrays(header["grammar"], arrays)
    counts, classes, n = arrays["rule_counts"], arrays["word_class"], grammar.n_tokens + 1
    if counts.dtype != np.int64 or counts.shape != (grammar.n_rules,) or not (counts >= 0).all():
        raise ModelFileError(f"its counts of rules are not {grammar.n_rules} numbers of times.")
    if classes.dtype != np.int32 or classes.shape != (n,) or not ((classes >= 0) & (classes < n)).all():
        raise ModelFileError(f"its classes of tokens are not {n} whole numbers below {n}.")
    estimator.grammar_, estimator.rule_counts_, estimator.word_class_ = grammar, counts, classes
    estimator.n_left_out_ = _size(header, "n_left_out", 0)
    expected = estimator._forests([[]]).n_weights
    if arrays["weights"].shape != (expected,):
        raise ModelFileError(f"its weights have shape {arrays['weights'].shape}; its grammar needs ({expected},).")
    estimator.result_ = _result(header["certificate"], arrays)
    estimator._name_weights()
    return estimator


def _restore_basis(
    estimator: StructuredEstimator, kernel: dict[str, Any], arrays: dict[str, NDArray[Any]], p: int
) -> None:
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


def _restore_vectors(estimator: StructuredEstimator, gamma: Any, arrays: dict[str, NDArray[Any]]) -> None:
    """The vectors of the support or of the basis, and gamma; the support is where any block has a coefficient."""
    kind = "basis" if is_low_rank(estimator) else "support"
    if kind == "basis":
        count = len(estimator._basis_map)
    else:
        n_rows = estimator._n_rows
        blocks = estimator.result_.weights[: _n_blocks(estimator) * n_rows].reshape(-1, n_rows)
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


def _n_blocks(estimator: StructuredEstimator) -> int:
    return 1 if isinstance(estimator, BinarySVM) else len(estimator.classes_)


def _restore_task(
    estimator: StructuredEstimator,
    header: dict[str, Any],
    arrays: dict[str, NDArray[Any]],
    classes: NDArray[Any],
    p: int,
) -> int:
    """Set what one task needs more; returns how many weights it has."""
    n_classes = len(classes)
    width = block_width(estimator, p)
    if isinstance(estimator, OneVariableClassifier | ChainSVM):
        cost_table(estimator.loss, classes)
        class_weights(estimator.class_weight, classes, np.arange(n_classes, dtype=np.int32))
    if isinstance(estimator, OneVariableClassifier):
        estimator._check_classes(classes)
        return width if isinstance(estimator, BinarySVM) else n_classes * width
    if isinstance(estimator, MultiLabelSVM):
        estimator.edges_ = label_edges(arrays["edges"], np.empty((0, n_classes)))
        estimator._lists = bool(header["lists"])
        return n_classes * width + len(estimator.edges_)
    if isinstance(estimator, ChainSVM):
        check_several(classes, "ChainSVM")
        check_chain_options(estimator)
        estimator.forbidden_, estimator.forbidden_first_ = constraints(estimator, classes)
        blocks = chain_blocks(n_classes, bool(estimator.boundary), estimator.order)
        n_factor_blocks = max((one.stop for one in blocks.values()), default=0)
        return n_classes * width + n_factor_blocks * (p + 1 if estimator.emission_order else 1)
    assert isinstance(estimator, GraphSVM)
    estimator.n_edge_features_in_ = _size(header, "n_edge_features", 0)
    pairs = 1 if estimator.edge_weights == "potts" else n_classes**2
    return n_classes * width + pairs * max(1, estimator.n_edge_features_in_)


def _estimator(kind: type[Any], parameters: dict[str, Any]) -> Any:
    unknown = sorted(set(parameters) - set(kind().get_params(deep=False)))
    if unknown:
        raise ModelFileError(f"it has the parameter {unknown[0]!r}, which this version does not know.")
    values = dict(parameters)
    for name, known in (("solver", SOLVERS), ("inference", ENGINES)):
        if isinstance(values.get(name), dict):
            key = values[name]["name"]
            if key not in known:
                raise ModelFileError(f"it names the {name} {key!r}, and this version knows {', '.join(known)}.")
            values[name] = known[key](**values[name]["options"])
    if isinstance(values.get("features"), dict):
        values["features"] = _vectoriser(values["features"])
    for name in ("loss", "edges"):
        if isinstance(values.get(name), list):
            values[name] = np.array(values[name])
    if isinstance(values.get("class_weight"), list):
        values["class_weight"] = dict(values["class_weight"])
    estimator = kind(**values)
    # A checkpoint's directory belongs to the machine that trained.
    checkpoint, estimator.checkpoint = estimator.checkpoint, None
    if isinstance(estimator, ParserSVM):
        check_parser_options(estimator)
    else:
        check_parameters(estimator)
    estimator.checkpoint = checkpoint
    return estimator


def _vectoriser(saved: dict[str, Any]) -> FeatureColumns:
    if saved["name"] not in VECTORISERS:
        raise ModelFileError(
            f"it names the vectoriser {saved['name']!r}, and this version knows {', '.join(VECTORISERS)}."
        )
    made = VECTORISERS[saved["name"]](**saved["options"])
    made.check_options()
    return made


def _restore_vectoriser(saved: dict[str, Any], arrays: dict[str, NDArray[Any]], p: int) -> FeatureColumns:
    vectoriser, names = _vectoriser(saved), None
    if vectoriser.n_hash is None:
        text = arrays["names_text"].astype(np.uint8, casting="safe").tobytes().decode("utf-8", "surrogatepass")
        length = arrays["names_length"].astype(np.int64, casting="safe")
        ends = np.cumsum(length)
        if length.min(initial=0) < 0 or length.sum() != len(text):
            raise ModelFileError("the lengths of its feature names do not fit their text.")
        names = [text[end - n : end] for n, end in zip(length.tolist(), ends.tolist(), strict=True)]
    vectoriser.set_columns(names)
    if vectoriser.n_features_ != p or (names is not None and len(set(names)) != p):
        raise ModelFileError(f"its vectoriser has {vectoriser.n_features_} columns, not {p} that differ.")
    return vectoriser


def _classes(header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> NDArray[Any]:
    from maxmargin.estimators.labels import as_vector

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


def _size(header: dict[str, Any], key: str, least: int) -> int:
    value = header[key]
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ModelFileError(f"{key} is {value!r}; expected a whole number of at least {least}.")
    return value


def _strings(values: Any) -> list[str]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ModelFileError("its feature names are no list of strings.")
    return values


def _result(saved: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Result:
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
        history={name.removeprefix(_COLUMN): column for name, column in arrays.items() if name.startswith(_COLUMN)},
        solver=str(saved["solver"]),
        options=dict(saved["options"]),
    )

"""Estimators from model files."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.errors import MaxMarginError, ModelFileError
from maxmargin.estimators.binary import BinarySVM
from maxmargin.estimators.chain import ChainSVM
from maxmargin.estimators.choosing import Candidate
from maxmargin.estimators.graph import GraphSVM
from maxmargin.estimators.multi_class import MultiClassSVM
from maxmargin.estimators.multi_label import MultiLabelSVM
from maxmargin.estimators.parser import ParserSVM
from maxmargin.estimators.ranking import RankingSVM
from maxmargin.estimators.restoring import dense_weights
from maxmargin.features.saved import vectoriser_of
from maxmargin.formats.model_file import read_model
from maxmargin.inference import ENGINES
from maxmargin.solvers import SOLVERS

#: Estimators by the name of their task, which model files and the command line use.
TASKS: dict[str, type[Any]] = {
    cls.task: cls for cls in (BinarySVM, MultiClassSVM, MultiLabelSVM, ChainSVM, GraphSVM, ParserSVM, RankingSVM)
}


def load(path: str | os.PathLike[str]) -> Any:
    """Read a model file.

    Parameters
    ----------
    path : path-like
        The file, from ``save`` or from ``maxmargin train -o``. It may come from anyone: nothing in it is executed.

    Returns
    -------
    BinarySVM, MultiClassSVM, MultiLabelSVM, ChainSVM, GraphSVM, ParserSVM or RankingSVM
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


def _restore(header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Any:
    task = header["task"]
    if not isinstance(task, str) or task not in TASKS:
        raise ModelFileError(f"its task is {task!r}, and this version knows {', '.join(TASKS)}.")
    estimator = _estimator(TASKS[task], header["parameters"])
    weights = arrays["weights"] = dense_weights(header, arrays)
    if weights.dtype != np.float64 or not np.isfinite(weights).all():
        raise ModelFileError("its weights are not all finite numbers of double precision.")
    estimator._restore(header, arrays)
    estimator.C_ = float(estimator.result_.options["C"])
    estimator.validation_path_ = [
        Candidate(
            float(C), float(loss), float(gap), int(passes), float(seconds), None if error is None else float(error)
        )
        for C, loss, gap, passes, seconds, error in header["validation_path"]
    ]
    return estimator


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
        values["features"] = vectoriser_of(values["features"])
    for name in ("loss", "edges"):
        if isinstance(values.get(name), list):
            values[name] = np.array(values[name])
    if isinstance(values.get("signs"), dict):
        values["signs"] = {part: np.array(one) for part, one in values["signs"].items()}
    if isinstance(values.get("class_weight"), list):
        values["class_weight"] = dict(values["class_weight"])
    estimator = kind(**values)
    # A checkpoint's directory belongs to the machine that trained.
    checkpoint, estimator.checkpoint = estimator.checkpoint, None
    estimator._check_parameters()
    estimator.checkpoint = checkpoint
    return estimator

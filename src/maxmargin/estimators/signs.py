"""Weights that must have a sign: what users ask for by the names of weights, as signs of the flat weights of a problem.

``signs`` is None, "attractive", or a dict from a part of the weights, as `to_frame` names them, to 1 (not negative), -1 (not
positive) and 0 (free): a number for all of the part, or an array that can be broadcast to the shape of its attribute,

    "features"      ``coef_``
    "pairs"         ``edge_coef_``
    "transitions"   ``transition_coef_``

"attractive" is that of pairs which prefer equal labels: for `MultiLabelSVM`, and `GraphSVM` with Potts weights, no weight of a pair
is negative; with full weights of edges those of equal classes are not negative, and those of different classes not positive. All
pairs of binary variables are then supermodular, and a graph cut finds their best labeling exactly.

Columns that are scaled while training are divided by positive numbers, which leaves signs as they are. The intercept has no sign.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from types import SimpleNamespace
from typing import Any

import numpy as np

from maxmargin.errors import DataError, OptionError, did_you_mean
from maxmargin.estimators.feature_space import is_linear
from maxmargin.problems import FactorGraphs

#: The attribute of each part that may have signs.
PARTS = {"features": "coef_", "pairs": "edge_coef_", "transitions": "transition_coef_"}


def check_signs(estimator: Any) -> None:
    """Refuse, in a sentence, signs that cannot be."""
    signs = estimator.signs
    if signs is None:
        return
    if not (isinstance(signs, Mapping) or (isinstance(signs, str) and signs == "attractive")):
        raise OptionError(
            f'signs={signs!r} is not possible; it must be None, "attractive", or a dict such as {{"pairs": 1}}.'
        )
    if not is_linear(estimator) or getattr(estimator, "edge_kernel", "linear") != "linear":
        raise OptionError('signs are those of weights of features, of which a kernel has none; use kernel="linear".')


def with_signs(estimator: Any, problem: Any, **attributes: Any) -> Any:
    """The problem with the signs that the estimator asks for; `attributes` are those that a fitted one has."""
    if estimator.signs is None:
        return problem
    check_signs(estimator)
    if not isinstance(problem, FactorGraphs):
        raise OptionError(f"signs are not for loss={estimator.loss!r}, which is a measure of all predictions together.")
    # The names of weights are views of the flat vector: what is written to them is there.
    shadow = copy(estimator)
    vars(shadow).update(attributes)
    flat = np.zeros(problem.n_weights)
    shadow.result_ = SimpleNamespace(weights=flat)
    shadow._name_weights()
    for part, value in _wanted(estimator, shadow).items():
        to = getattr(shadow, PARTS[part])
        try:
            given = np.broadcast_to(np.asarray(value, np.float64), to.shape)
        except (TypeError, ValueError):
            raise DataError(
                f"signs[{part!r}] has shape {np.shape(value)}; expected a number, or an array that can be broadcast to "
                f"{to.shape}, the shape of {PARTS[part]}."
            ) from None
        wrong = ~np.isin(given, (-1.0, 0.0, 1.0))
        if wrong.any():
            place = [int(k) for k in np.argwhere(wrong)[0]]
            raise DataError(f"signs[{part!r}]{place if place else ''} is {given[tuple(place)]:g}; expected -1, 0 or 1.")
        to[...] = given
    made = problem.with_signs(flat)
    if estimator.signs == "attractive" and made.signs is not None and made.factor_features.matrix().min() < 0:
        raise DataError(
            'signs="attractive" needs features of edges that are not negative, and some are; shift them, or leave it out.'
        )
    return made


def _wanted(estimator: Any, shadow: Any) -> dict[str, Any]:
    """Signs by part."""
    known = [part for part, name in PARTS.items() if name in vars(shadow)]
    signs = estimator.signs
    if isinstance(signs, str):
        if "pairs" not in known:
            raise OptionError(
                f'signs="attractive" is about pairs of labels, of which {type(estimator).__name__} has none.'
            )
        pairs = shadow.edge_coef_
        if pairs.ndim == 3:
            return {"pairs": (2.0 * np.eye(len(pairs)) - 1.0)[:, :, None]}
        return {"pairs": 1.0}
    for part in signs:
        if part not in known:
            raise OptionError(
                f"signs has the part {part!r}; {type(estimator).__name__} has {', '.join(known)}."
                + did_you_mean(part, known)
            )
    return dict(signs)

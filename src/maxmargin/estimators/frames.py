"""Weights with their names: data frames of them, and the features that speak most for a label.

Conventions
-----------
A model's weights come in *parts*, and `to_frame` makes a data frame of one part:

    "features"      a row for each feature, and "(intercept)"; a column for each label (for `BinarySVM` the second class)
    "pairs"         `MultiLabelSVM`, `GraphSVM`: a row for each weight of a pair, with the labels, the edge feature and the weight
    "transitions"   `ChainSVM`: a row for each tag, a column for each tag that follows it
    "boundary"      `ChainSVM(boundary=True)`: a row for each tag, the columns "start" and "end"
    "transitions2", "emissions", "emissions2"
                    `ChainSVM` of higher order: a row for each pair of tags or each tag, with the features as columns

Features are named by the columns of a data frame, by a vectoriser, by the file that the command line read, or ``x0``, ``x1`` and so
on; features of edges are ``z0``, ``z1``. pandas is imported when a frame is made, and not before.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from maxmargin.errors import DataError, MaxMarginError, OptionError, did_you_mean
from maxmargin.estimators.labels import states_of

#: The name of the constant feature.
INTERCEPT = "(intercept)"


def require_pandas() -> Any:
    """The module pandas, or a sentence that says how to get it."""
    try:
        return import_module("pandas")
    except ImportError:
        raise MaxMarginError("Data frames need pandas, which is not installed: pip install pandas.") from None


def known_feature_names(model: Any) -> list[str] | None:
    """Names of the model's features, if it was trained with names."""
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        names = getattr(model, "_feature_names", None)
    return None if names is None else [str(name) for name in names]


def feature_names(model: Any) -> list[str]:
    """Names of the model's features; x0, x1 and so on if it was trained without."""
    if getattr(model, "node_weights", "full") == "class-wise":
        return ["score of the class"]
    return known_feature_names(model) or [f"x{k}" for k in range(model.n_features_in_)]


def edge_feature_names(model: Any) -> list[str]:
    """Names of the features of a graph's edges."""
    return [f"z{k}" for k in range(model.n_edge_features_in_)] or ["(constant)"]


class ReadableWeights:
    """What every estimator of linear features says of its weights."""

    def to_frame(self, part: str = "features") -> Any:
        """The weights of one part of the model, with their names, as a pandas data frame.

        Parameters
        ----------
        part : str
            "features" has a row for each feature and a column for each label. "pairs" (`MultiLabelSVM`, `GraphSVM`) has a row for
            each weight of a pair of labels, "transitions" (`ChainSVM`) a row for each tag and a column for each tag that may follow
            it, "boundary" the weights of first and last tags; "transitions2", "emissions" and "emissions2" are those of chains of
            higher order.

        Returns
        -------
        pandas.DataFrame
        """
        check_is_fitted(self)
        parts = _parts(self)
        if part not in parts:
            known = ", ".join(f'"{one}"' for one in parts)
            raise OptionError(
                f"{type(self).__name__} has no part {part!r} of weights; this model has {known}."
                + did_you_mean(part, parts)
                if parts
                else f"{type(self).__name__} has no weights with names: with a kernel the model is made of training rows."
            )
        return parts[part]()

    def top_features(self, label: Any, n: int = 10) -> list[tuple[str, float]]:
        """The n features that speak most for a label, heaviest first: names and weights.

        Parameters
        ----------
        label : one of ``classes_``
            A class, a label or a tag.
        n : int
            How many.

        Returns
        -------
        list of (name, weight)
        """
        check_is_fitted(self)
        return heaviest(weights_for(self, label), feature_names(self), n)


class OneVectorOfWeights:
    """The same for models whose weights are one vector, without labels: `ParserSVM`, `StructuredSVM`."""

    coef_: NDArray[np.float64]

    def _weight_names(self) -> list[str]:
        """A name for each weight."""
        raise NotImplementedError

    def to_frame(self, part: str = "features") -> Any:
        """The weights with their names as a pandas data frame: a row for each, in the column "weight".

        Parameters
        ----------
        part : "features"
            There is no other part.

        Returns
        -------
        pandas.DataFrame
        """
        check_is_fitted(self)
        if part != "features":
            raise OptionError(f'{type(self).__name__} has no part {part!r} of weights; this model has "features".')
        pandas = require_pandas()
        return pandas.DataFrame({"weight": self.coef_}, pandas.Index(self._weight_names(), name="feature"))

    def top_features(self, n: int = 10) -> list[tuple[str, float]]:
        """The n largest weights, heaviest first: names and weights.

        Parameters
        ----------
        n : int
            How many.

        Returns
        -------
        list of (name, weight)
        """
        check_is_fitted(self)
        return heaviest(np.asarray(self.coef_), self._weight_names(), n)


def heaviest(weights: NDArray[np.float64], names: list[str], n: int) -> list[tuple[str, float]]:
    """The n largest weights, with their names."""
    best = np.argsort(-weights, kind="stable")[: max(0, n)].tolist()
    return [(names[k], float(weights[k])) for k in best]


def weights_for(model: Any, label: Any) -> NDArray[np.float64]:
    """Weights (p,) of the features by which they speak for a label; for the first of two classes, against the second."""
    state = int(states_of([label], model.classes_)[0]) if isinstance(label, Hashable) else -1
    if state < 0:
        noun = "tag" if hasattr(model, "transition_coef_") else "label"
        raise DataError(f"The {noun} {label!r} was not seen in training; the {noun}s are {model.classes_.tolist()}.")
    _check_linear(model)
    if model.coef_.ndim == 1:
        return np.asarray(model.coef_[state : state + 1])
    if len(model.coef_) == 1 < len(model.classes_):
        # One score, for the last of the classes or levels.
        return np.asarray(model.coef_[0] if state == len(model.classes_) - 1 else -model.coef_[0])
    return np.asarray(model.coef_[state])


def _check_linear(model: Any) -> None:
    if "coef_" not in vars(model):
        try:
            model.coef_  # noqa: B018
        except AttributeError as error:
            raise OptionError(str(error)) from None


# --------------------------------------------------------------------------------------------------------------------
# The parts of each kind of model


def _parts(model: Any) -> dict[str, Callable[[], Any]]:
    """How a frame of each part of a model is made."""
    parts: dict[str, Callable[[], Any]] = {}
    if "coef_" in vars(model):
        parts["features"] = lambda: _of_features(model)
    if hasattr(model, "edges_") and hasattr(model, "edge_coef_"):
        parts["pairs"] = lambda: _of_label_pairs(model)
    elif "edge_coef_" in vars(model):
        parts["pairs"] = lambda: _of_edges(model)
    if hasattr(model, "transition_coef_"):
        parts["transitions"] = lambda: _square(model)
    if "start_coef_" in vars(model):
        parts["boundary"] = lambda: _of_boundary(model)
    for part, name in (
        ("transitions2", "transition2_coef_"),
        ("emissions", "emission_coef_"),
        ("emissions2", "emission2_coef_"),
    ):
        if name in vars(model):
            parts[part] = partial(_of_contexts, model, name)
    return parts


def columns_of_weights(model: Any) -> list[Any]:
    """What the rows of ``coef_`` are weights for: labels; of two classes the second, and of a ranking its score."""
    if model.task == "ranking":
        return ["score"]
    classes: list[Any] = model.classes_.tolist()
    return classes[1:] if np.ndim(model.coef_) == 2 and len(model.coef_) == 1 < len(classes) else classes


def _of_features(model: Any) -> Any:
    table, names = np.atleast_2d(model.coef_.T), feature_names(model)
    if model.fit_intercept:
        table, names = np.vstack([table, model.intercept_]), [*names, INTERCEPT]
    pandas = require_pandas()
    return pandas.DataFrame(table, pandas.Index(names, name="feature"), columns_of_weights(model))


def _of_label_pairs(model: Any) -> Any:
    first, second = (model.classes_[model.edges_[:, k]] for k in (0, 1))
    return require_pandas().DataFrame({"label": first, "other": second, "weight": model.edge_coef_})


def _of_edges(model: Any) -> Any:
    names, weights = np.array(edge_feature_names(model), object), model.edge_coef_
    if weights.ndim == 1:
        return require_pandas().DataFrame({"feature": names, "weight": weights})
    i, j, k = (one.ravel() for one in np.indices(weights.shape))
    columns = {"label": model.classes_[i], "other": model.classes_[j], "feature": names[k], "weight": weights.ravel()}
    return require_pandas().DataFrame(columns)


def _square(model: Any) -> Any:
    pandas, tags = require_pandas(), model.classes_
    return pandas.DataFrame(
        model.transition_coef_.copy(), pandas.Index(tags, name="tag"), pandas.Index(tags, name="next")
    )


def _of_boundary(model: Any) -> Any:
    pandas = require_pandas()
    columns = {"start": model.start_coef_, "end": model.end_coef_}
    return pandas.DataFrame(columns, pandas.Index(model.classes_, name="tag"))


def _of_contexts(model: Any, name: str) -> Any:
    """A row for each sequence of tags; columns are features, or the last tag."""
    weights, of_features = getattr(model, name), name.startswith("emission")
    pandas, depth = require_pandas(), weights.ndim - 1
    rows = pandas.MultiIndex.from_product([model.classes_] * depth, names=["tag", "next", "third"][:depth])
    columns: Any = feature_names(model) if of_features else model.classes_
    return pandas.DataFrame(weights.reshape(-1, weights.shape[-1]).copy(), rows, columns)

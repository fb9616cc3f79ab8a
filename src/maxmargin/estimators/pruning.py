"""Smaller models: weights of features that hardly count are set to 0, and features without a weight are left out.

A trained tagger has a weight for every feature and tag, most of them close to 0. `prune` keeps those of the largest absolute
values; weights of transitions, pairs and constants are all kept. Columns that are made of words or names and have no weight
left are dropped from the vectoriser; other columns keep their places. Model files hold weights of which most are 0 by their
places (saving.py).

Nothing is certified about the weights that are left; what pruning costs is said by a score on held-out examples.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from maxmargin.errors import OptionError
from maxmargin.estimators.feature_space import is_linear
from maxmargin.estimators.parameters import is_real
from maxmargin.solvers.core.result import Result, Status

#: The shares of the weights that are tried for the smallest model of a given loss: halves of halves.
_HALVINGS = 12


class PruningMixin:
    """`prune`, for estimators whose weights are blocks of features and a rest."""

    def prune(
        self,
        keep: float | None = None,
        threshold: float | None = None,
        eval_set: tuple[Any, Any] | None = None,
        max_loss: float | None = None,
    ) -> Any:
        """A smaller copy of the model: weights of features of small absolute value are 0, and features without a weight are
        left out.

        ``result_.options["pruned"]`` and ``result_.message`` say what is left, and what that costs on held-out examples.

        Parameters
        ----------
        keep : float, optional
            Share of the weights of features that are not 0 to keep, above 0 and at most 1: those of the largest absolute values.
        threshold : float, optional
            Keep the weights of at least this absolute value.
        eval_set : (X, y), optional
            Held-out examples, on which the scores before and after are compared.
        max_loss : float, optional
            Take the smallest of the shares 1/2, 1/4, ... 1/4096 at which the score on the held-out examples falls by no more
            than this.

        Returns
        -------
        estimator
            A model of its own; this one stays as it is.
        """
        check_is_fitted(self)
        model: Any = self
        if not is_linear(model):
            raise OptionError('prune is for kernel="linear": with a kernel, features have no weights.')
        if sum(one is not None for one in (keep, threshold, max_loss)) != 1:
            raise OptionError("Give one of keep, threshold and max_loss: how many weights, which, or at what cost.")
        if keep is not None and not (is_real(keep) and 0 < keep <= 1):
            raise OptionError(f"keep={keep!r} is not possible; it must be a number above 0 and at most 1.")
        for name, value in (("threshold", threshold), ("max_loss", max_loss)):
            if value is not None and not (is_real(value) and 0 <= value < math.inf):
                raise OptionError(f"{name}={value!r} is not possible; it must be a finite number that is not negative.")
        if max_loss is not None and eval_set is None:
            raise OptionError("max_loss is about held-out examples; give them as eval_set=(X, y).")
        before = None if eval_set is None else float(model.score(*eval_set))
        size = np.abs(np.concatenate([block.ravel() for block in _blocks(model, model.result_.weights)]))
        size = np.sort(size[size > 0.0])[::-1]
        if threshold is not None:
            return _pruned(model, float(threshold), eval_set, before)
        if keep is not None:
            return _pruned(model, _cut(size, float(keep)), eval_set, before)
        assert before is not None
        assert max_loss is not None
        best = _pruned(model, _cut(size, 1.0), eval_set, before)
        for k in range(1, _HALVINGS + 1):
            tried = _pruned(model, _cut(size, 2.0**-k), eval_set, before)
            if before - tried.result_.options["pruned"]["score"] > max_loss:
                break
            best = tried
        return best


def _blocks(model: Any, weights: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """The weights of features as views (blocks, p): of variables, and of factors if these have the same features."""
    p, n = model.n_features_in_, len(model.intercept_)
    width = p + int(model.fit_intercept)
    found = [weights[: n * width].reshape(n, width)[:, :p]]
    if getattr(model, "emission_order", 0):
        found.append(weights[n * width :].reshape(-1, p + 1)[:, :p])
    return found


def _cut(size: NDArray[np.float64], share: float) -> float:
    """The absolute value of the last weight that is kept."""
    return float(size[max(1, math.ceil(share * len(size))) - 1]) if len(size) else 0.0


def _pruned(model: Any, threshold: float, eval_set: tuple[Any, Any] | None, before: float | None) -> Any:
    weights = model.result_.weights.copy()
    for block in _blocks(model, weights):
        block[np.abs(block) < threshold] = 0.0
    result: Result = copy.copy(model.result_)
    found = copy.copy(model)
    blocks = _blocks(model, weights)
    used = np.logical_or.reduce([block.any(axis=0) for block in blocks])
    vectoriser = getattr(model, "vectoriser_", None)
    if vectoriser is not None and vectoriser.n_hash is None and used.any() and not used.all():
        weights = _without_columns(model, weights, used)
        smaller = clone(vectoriser)
        smaller.set_columns(vectoriser.feature_names_[used].tolist())
        found._keep_vectoriser(smaller)
    kept, total = int(sum(np.count_nonzero(block) for block in blocks)), int(sum(block.size for block in blocks))
    said = {
        "weights": kept, "of": total, "features": int(used.sum()), "of_features": int(used.size), "threshold": threshold,
    }  # fmt: skip
    found.result_ = Result(
        Status.MAX_PASSES, weights, math.inf, -math.inf, math.inf, "none", result.n_passes, result.n_oracle_calls,
        result.seconds, dict(result.history), result.solver, {**result.options, "pruned": said},
    )  # fmt: skip
    found.path_ = {found.C_: found.result_}
    found._name_weights()
    sentence = f"Pruned to {kept} of {total} weights of features, {said['features']} of {said['of_features']} features"
    if eval_set is not None and before is not None:
        said |= {"score_before": before, "score": float(found.score(*eval_set))}
        sentence += f"; the score on held-out examples is {said['score']:.4f}, before {before:.4f}"
    found.result_.message = sentence + "."
    return found


def _without_columns(model: Any, weights: NDArray[np.float64], used: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The weights without those of the columns that are not used."""
    p, n = model.n_features_in_, len(model.intercept_)
    width = p + int(model.fit_intercept)
    rows = weights[: n * width].reshape(n, width)
    rest = weights[n * width :]
    if getattr(model, "emission_order", 0):
        rest = rest.reshape(-1, p + 1)[:, np.append(used, True)].ravel()
    kept = rows[:, np.append(used, np.ones(int(model.fit_intercept), bool))]
    return np.concatenate([kept.ravel(), rest])

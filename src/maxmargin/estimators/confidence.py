"""How sure predictions are, and abstention: what the estimators of classes and of structures share.

| confidence | of | is |
|---|---|---|
| "probability" | each variable | the probability of its predicted label (`predict_marginals`) |
| "margin" | each example | the score of the best labeling minus that of the second best, by an exact engine |
| "joint" | each example | the probability of the whole predicted labeling, by an exact engine |

An example of one variable has a class, and nothing else: there "joint" is "probability". A variable, or an example, is
*accepted* if its confidence is at least a threshold. Its risk is the share of the accepted variables whose label is wrong, or
of the accepted examples whose labeling is wrong anywhere.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.errors import DataError, OptionError, did_you_mean
from maxmargin.estimators import labels as target
from maxmargin.estimators.parameters import is_real
from maxmargin.reporting.abstention import RiskCoverage, Threshold, choose_threshold, risk_coverage

#: The kinds of confidence.
CONFIDENCES = ("probability", "margin", "joint")


class SelectivePrediction(NamedTuple):
    """Predictions, and which of them a model is sure enough to make.

    Attributes
    ----------
    labels : as `predict` returns them
        All labels, of which those that are not accepted are not to be used.
    accepted : bool array, or list of them
        Of each label, in the layout of `predict_proba` without its last axis; or (n,), of each example, with "margin" and "joint".
    confidence : float array, or list of them
        In the same layout.
    coverage : float
        Share that is accepted.
    """

    labels: Any
    accepted: Any
    confidence: Any
    coverage: float

    def marked(self, marker: Any = None) -> Any:
        """The labels with a marker in the place of those that are not accepted: arrays of objects, or a list of labelings.

        Parameters
        ----------
        marker : object
            What stands for a label, or a labeling, that is left open.
        """
        if isinstance(self.accepted, list):
            return [_marked(row, keep, marker) for row, keep in zip(self.labels, self.accepted, strict=True)]
        if isinstance(self.labels, list):
            if self.accepted.ndim > 1:
                raise OptionError("Collections of labels cannot say which of them are left open; `accepted` does.")
            return [row if keep else marker for row, keep in zip(self.labels, self.accepted, strict=True)]
        if self.accepted.ndim < np.ndim(self.labels):
            return _marked(self.labels, np.broadcast_to(self.accepted[:, None], self.labels.shape), marker)
        return _marked(self.labels, self.accepted, marker)


class Sure(NamedTuple):
    """The states that are predicted, one example after another, and how sure they are."""

    states: NDArray[np.int32]
    #: A number for each variable, or for each example.
    values: NDArray[np.float64]
    #: How many variables each example has.
    sizes: NDArray[np.int64]
    problem: Any = None


class ConfidenceMixin:
    """Margins, abstention, and thresholds for it; a task says how sure it is (`_sure`) and what is true (`_truth`)."""

    def predict_margin(self, X: Any) -> NDArray[np.float64]:
        """By how much the score of the best labeling of each example is above that of the second best, (n,).

        That is in the units of scores, in which training asks for a margin of the task loss. It is inf where the constraints
        allow one labeling only. The two best labelings are found exactly, or the graphs are refused in a sentence: on graphs
        with cycles by enumeration, a junction tree, or branch and bound.

        Parameters
        ----------
        X : examples, in the form that `fit` takes
            Rows of features, sequences for `ChainSVM`, graphs for `GraphSVM`.
        """
        return np.empty(0) if target.is_empty(X) else self._sure(X, "margin").values

    def predict_or_abstain(
        self, X: Any, threshold: float | Threshold, confidence: str = "probability"
    ) -> SelectivePrediction:
        """Predict, and say which predictions have a confidence of at least a threshold.

        Parameters
        ----------
        X : examples, in the form that `fit` takes
            Rows of features, sequences for `ChainSVM`, graphs for `GraphSVM`.
        threshold : float or Threshold
            The least confidence; `choose_threshold` finds it from held-out examples.
        confidence : "probability", "margin" or "joint"
            The probability of each label; by how much each labeling is ahead of the second best; the probability of each labeling.

        Returns
        -------
        SelectivePrediction
        """
        least = threshold.threshold if isinstance(threshold, Threshold) else threshold
        if not is_real(least) or math.isnan(least):
            raise OptionError(f"threshold={threshold!r} is not possible; it must be a number or a Threshold.")
        _check_kind(confidence)
        if target.is_empty(X):
            return SelectivePrediction(self.predict(X), np.empty(0, bool), np.empty(0), math.nan)
        sure = self._sure(X, confidence)
        accepted = sure.values >= float(least)
        return SelectivePrediction(
            self._show(sure), self._lay_out(accepted, sure), self._lay_out(sure.values, sure), float(accepted.mean())
        )

    def choose_threshold(
        self, X: Any, y: Any, risk: float, confidence: str = "probability", level: float | None = None
    ) -> Threshold:
        """The threshold that accepts as many predictions for held-out examples as possible at a risk of at most `risk`.

        The risk is the share of wrong labels among those that are accepted, or, with "margin" and "joint", of labelings that
        are wrong anywhere. On training examples a model is too sure; give others.

        Parameters
        ----------
        X : examples, in the form that `fit` takes
            Examples that were not trained on.
        y : true labels, in the form that `fit` takes
            Labels that are not known do not count.
        risk : float
            The share of mistakes that is wanted, at most.
        confidence : "probability", "margin" or "joint"
            As in `predict_or_abstain`.
        level : float, optional
            Choose the threshold so that the risk on new, independent examples is below `risk` with this probability.

        Returns
        -------
        Threshold
        """
        return choose_threshold(*self._mistakes(X, y, confidence), risk, level)

    def risk_coverage(self, X: Any, y: Any, confidence: str = "probability") -> RiskCoverage:
        """The risk of the surest predictions, for every share of them that is accepted.

        Parameters
        ----------
        X : examples, in the form that `fit` takes
            Examples that were not trained on.
        y : true labels, in the form that `fit` takes
            Labels that are not known do not count.
        confidence : "probability", "margin" or "joint"
            As in `predict_or_abstain`.

        Returns
        -------
        RiskCoverage
        """
        return risk_coverage(*self._mistakes(X, y, confidence))

    def _mistakes(self, X: Any, y: Any, confidence: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Whether each variable, or example, is predicted wrong, and how sure that was; of those that are known."""
        _check_kind(confidence)
        if target.is_empty(X):
            raise DataError("There are no examples to take the risk of.")
        sure = self._sure(X, confidence)
        truth, known = self._truth(y, sure)
        wrong: NDArray[np.bool_] = (sure.states != truth) & known
        if len(sure.values) != len(wrong):
            first = np.cumsum(sure.sizes) - sure.sizes
            wrong, known = np.logical_or.reduceat(wrong, first), np.logical_or.reduceat(known, first)
        if not known.any():
            raise DataError("No label is known: there is no risk to take.")
        # One labeling alone has no second best, and no doubt.
        values = np.nan_to_num(
            sure.values, nan=-np.inf, posinf=np.finfo(np.float64).max, neginf=np.finfo(np.float64).min
        )
        return wrong[known].astype(np.float64), values[known]

    def predict(self, X: Any) -> Any:
        """Best labels of each example.

        Parameters
        ----------
        X : examples, in the form that `fit` takes
            Rows of features, sequences for `ChainSVM`, graphs for `GraphSVM`.
        """
        raise NotImplementedError

    def _sure(self, X: Any, confidence: str) -> Sure:
        """What is predicted, and how sure that is."""
        raise NotImplementedError

    def _truth(self, y: Any, sure: Sure) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
        """The true state of each variable, -1 for a label that was not seen in training; and which of them are known."""
        raise NotImplementedError

    def _show(self, sure: Sure) -> Any:
        """The predicted labels as users see them."""
        raise NotImplementedError

    def _lay_out(self, values: NDArray[Any], sure: Sure) -> Any:
        """A value for each variable, or for each example, as users see them."""
        if len(values) == len(sure.sizes):
            return values
        return np.split(values, np.cumsum(sure.sizes)[:-1])


def _check_kind(confidence: Any) -> None:
    if confidence not in CONFIDENCES:
        raise OptionError(
            f'confidence={confidence!r} is not known; use "probability", "margin" or "joint".'
            + did_you_mean(confidence, CONFIDENCES)
        )


def _marked(labels: Any, accepted: NDArray[np.bool_], marker: Any) -> NDArray[Any]:
    out = np.array(labels, object)
    out[~accepted] = marker
    return out

"""Abstention: predictions of which a model is not sure are left to someone else; what that is worth, and where to draw the line."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import beta

from maxmargin.errors import DataError, OptionError


class RiskCoverage(NamedTuple):
    """What is risked when only the surest predictions are made.

    Attributes
    ----------
    coverage : float array (n,)
        Share of the examples that are predicted, from the surest alone to all of them.
    risk : float array (n,)
        Mean loss of those.
    threshold : float array (n,)
        The confidence of the least sure of those: predict where the confidence is at least this.
    area : float
        Mean of the risk over all coverages: the smaller, the better confidence and loss go together.
    """

    coverage: NDArray[np.float64]
    risk: NDArray[np.float64]
    threshold: NDArray[np.float64]
    area: float


def risk_coverage(loss: ArrayLike, confidence: ArrayLike) -> RiskCoverage:
    """Compute the risk of the surest predictions, for every share of the examples.

    Parameters
    ----------
    loss : array (n,)
        Loss of each prediction: 0 and 1 for right and wrong ones, or any other.
    confidence : array (n,)
        How sure each prediction is; examples of equal confidence are predicted together.

    Returns
    -------
    RiskCoverage
    """
    losses, sure = np.asarray(loss, np.float64), np.asarray(confidence, np.float64)
    if losses.ndim != 1 or losses.shape != sure.shape or not len(losses):
        raise DataError(f"loss has shape {losses.shape} and confidence {sure.shape}; expected two arrays (n,).")
    if not (np.isfinite(losses).all() and np.isfinite(sure).all()):
        raise DataError("loss and confidence must be finite.")
    order = np.argsort(-sure, kind="stable")
    ranked = sure[order]
    # Equal confidences cannot be told apart: all of them have the risk at their end.
    ends = np.searchsorted(-ranked, -ranked, side="right")
    risk = np.cumsum(losses[order])[ends - 1] / ends
    return RiskCoverage(ends / len(losses), risk, ranked, float(risk.mean()))


#: Thresholds that are tried for one whose risk is bounded.
TESTS = 20


class Threshold(NamedTuple):
    """Where to draw the line between predictions that are made and those that are not.

    Attributes
    ----------
    threshold : float
        Predict where the confidence is at least this; inf if no share of the predictions has the risk that was asked for.
    coverage : float
        Share of the given examples that is predicted so.
    risk : float
        Their mean loss; 0 if there is none.
    bound : float
        With a level, an upper bound of the risk on new examples that holds with this probability; otherwise NaN.
    """

    threshold: float
    coverage: float
    risk: float
    bound: float


def choose_threshold(loss: ArrayLike, confidence: ArrayLike, risk: float, level: float | None = None) -> Threshold:
    """Choose the threshold that predicts as many of held-out examples as possible at a mean loss of at most `risk`.

    Without `level` the risk is that of the given examples; on new ones it may be larger. With ``level=0.95``, of 20
    thresholds, that accept 5 %, 10 %, ... of the examples, the last is chosen for which an upper bound of the risk is at most
    `risk`: with that probability the risk on new examples is below the bound. It is the exact binomial bound (Clopper and
    Pearson), with the probability to miss shared out over the 20, as in Geifman and El-Yaniv, Selective Classification for
    Deep Neural Networks, NeurIPS 2017. That takes losses of 0 and 1, and examples that are independent, which the tags of one
    sentence are not.

    Parameters
    ----------
    loss : array (n,)
        Loss of each prediction, for examples that were not trained on.
    confidence : array (n,)
        How sure each prediction is.
    risk : float
        The mean loss that is wanted, at most.
    level : float, optional
        Probability, above 0 and below 1, with which the risk on new examples is below the bound.

    Returns
    -------
    Threshold
    """
    if not (isinstance(risk, int | float | np.number) and 0.0 <= float(risk) < math.inf):
        raise OptionError(f"risk={risk!r} is not possible; it must be a finite number that is not negative.")
    curve = risk_coverage(loss, confidence)
    if level is None:
        fits = np.flatnonzero(curve.risk <= risk)
        best = int(fits[-1]) if len(fits) else -1
        return _threshold(curve, best, math.nan)
    if not (isinstance(level, int | float | np.number) and 0.0 < float(level) < 1.0):
        raise OptionError(f"level={level!r} is not possible; it must be a number above 0 and below 1, or None.")
    losses = np.asarray(loss, np.float64)
    if not np.isin(losses, (0.0, 1.0)).all():
        raise DataError("A bound of the risk, level=..., is for losses of 0 and 1; leave level out for any other.")
    n, best, bound = len(losses), -1, math.nan
    for share in np.linspace(1.0 / TESTS, 1.0, TESTS):
        at = max(1, round(share * n)) - 1
        # Those of equal confidence are predicted together.
        count = round(curve.coverage[at] * n)
        upper = upper_risk(round(curve.risk[at] * count), count, (1.0 - float(level)) / TESTS)
        if upper <= risk:
            best, bound = at, upper
    return _threshold(curve, best, bound)


def upper_risk(wrong: int, n: int, miss: float) -> float:
    """The largest rate of mistakes under which `wrong` or fewer of n have a probability of at least `miss`."""
    return 1.0 if wrong >= n else float(beta.ppf(1.0 - miss, wrong + 1, n - wrong))


def _threshold(curve: RiskCoverage, at: int, bound: float) -> Threshold:
    if at < 0:
        return Threshold(math.inf, 0.0, 0.0, bound)
    return Threshold(float(curve.threshold[at]), float(curve.coverage[at]), float(curve.risk[at]), bound)

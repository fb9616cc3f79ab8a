"""Measures of a table of right and wrong predictions for two classes: F score, precision and recall at k, break-even point.

T. Joachims, A Support Vector Method for Multivariate Performance Measures, ICML 2005, section 3.1. A labeling of all n rows has a
true positives, b false positives and c false negatives, of p positive and q negative rows. Its loss depends on (b, c) alone:

    "f1"             1 - 2 a / (2 a + b + c);     "f0.5", "f2": any beta, 1 - (1 + beta^2) a / ((1 + beta^2) a + b + beta^2 c)
    "precision@k"    (min(k, p) - a) / k   over labelings with k positive rows, k = a + b; k as a number of rows, or "10%" of them
    "recall@k"       (min(k, p) - a) / p   over the same
    "break-even"     1 - a / p             over labelings with p positive rows, where precision and recall are the same
    "error"          (b + c) / n           which is the mean hinge of single rows

With the score s_i = w . x_i of a row, t_i = 1 or -1, and weights v_i of mean 1, the hinge is

    H(w) = max over labelings of   loss - 1/n sum over wrong rows of v_i t_i s_i

and at least the loss of the predictions t = sign(s), whose wrong rows have t_i s_i <= 0, whatever the weights. For given (b, c) the
wrong rows are the c positive ones of least v s and the b negative ones of largest, so two sorts and their running sums P[c] and
N[b] leave a maximum of loss(b, c) + P[c] + N[b]. The F score's loss is concave in b where c is given, as N is, so that the best b
is found by bisection: O(n log n) in all, where the paper tries all pairs (b, c).

Where k rows are to be positive, the truth is not among the labelings unless k = p. The paper compares with it all the same, but
its H is no bound of the loss then: on ijcnn1 with k = n / 100 its optimum was 0.001, and the precision at k below that of an SVM
for the error rate. Here v = 1, and

    k <= p   H(w) = max over labelings with p positive rows of   c / (k or p) - 1/n sum over wrong rows of t_i s_i
    k > p    H(w) = sum over positive rows of   max(0, 1 - s_i + mean of the k - p largest scores of negative rows) / (k or p)

with k for precision and p for recall. Both are bounds: there are not more negative rows among the k best than among the p best, and
a positive row that is not among the k best has at least k - p negative ones above it. For k = p the first is the paper's.

Where the classes overlap much, w = 0 may have the least H of all, though other weights have a smaller loss: a few wrong rows far on
the wrong side count as much as many right ones. Weights "balanced" by class help then.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.errors import DataError, OptionError
from maxmargin.jit import kernel

_F_SCORE = re.compile(r"f(\d+(?:\.\d+)?)")
_AT_K = re.compile(r"(precision|recall)@(\d+(?:\.\d+)?)(%?)")


def is_measure(name: str) -> bool:
    """Whether there is a measure of this name.

    Parameters
    ----------
    name : str
        Such as "f1" or "precision@10%".
    """
    return name in ("break-even", "roc-area", "error") or bool(_F_SCORE.fullmatch(name) or _AT_K.fullmatch(name))


class CountMeasure:
    """A loss of the table of right and wrong predictions.

    Parameters
    ----------
    name : str
        "f1", "f2", "precision@100", "precision@10%", "recall@100", "break-even" or "error".
    positive : bool array (n,)
        The class of each row.
    weight : array (n,), optional
        Weights of the rows' scores, of mean 1, for measures without k.
    """

    def __init__(self, name: str, positive: NDArray[np.bool_], weight: NDArray[np.float64] | None = None) -> None:
        self.name, self.positive = name, np.asarray(positive, bool)
        self.weight = np.ones(len(self.positive)) if weight is None else np.asarray(weight, np.float64)
        self.rows = np.flatnonzero(self.positive), np.flatnonzero(~self.positive)
        self.n = len(self.positive)
        p = len(self.rows[0])
        if p in (0, self.n):
            which = "no" if p == 0 else "nothing but"
            raise DataError(
                f"There are {which} positive rows among {self.n}, so that loss={name!r} cannot be measured."
            )
        f_score, at_k = _F_SCORE.fullmatch(name), _AT_K.fullmatch(name)
        #: Rows that are predicted to be positive, where that is given.
        self.k: int | None = p if name == "break-even" else None
        self.beta = float(f_score[1]) if f_score else None
        if at_k:
            self.k = self._size(at_k[2], at_k[3] == "%")
        elif name == "error":
            self.beta = None
        elif self.beta is None and self.k is None:
            raise OptionError(f"loss={name!r} is not a measure of right and wrong predictions.")
        #: What a true positive is worth, where the number of positive predictions is given.
        self.unit = 1.0 / (self.k if name.startswith("precision") and self.k else p)

    def _size(self, text: str, per_cent: bool) -> int:
        value = float(text)
        k = round(value / 100.0 * self.n) if per_cent else int(value)
        if not per_cent and value != k:
            raise OptionError(f'loss={self.name!r}: k must be a whole number of rows, or a share such as "10%".')
        if per_cent:
            k = max(k, 1)
        if not 1 <= k <= self.n:
            raise DataError(f"loss={self.name!r}: k is {text}{'%' if per_cent else ''}, and there are {self.n} rows.")
        return k

    @property
    def learns_threshold(self) -> bool:
        """Whether scores are compared with 0, and not with each other alone."""
        return self.k is None

    @property
    def n_predicted(self) -> int:
        """How many rows are predicted to be positive, where that is given; else how many are."""
        return len(self.rows[0]) if self.k is None else self.k

    @property
    def kinds(self) -> NDArray[np.int64]:
        """What a part of the rows should have its share of."""
        return self.positive.astype(np.int64)

    def take(self, rows: NDArray[np.int64]) -> CountMeasure:
        """The measure of some of the rows; a number k of all rows becomes its share of these.

        Parameters
        ----------
        rows : int array
            Numbers of the rows.
        """
        name = self.name
        if self.k is not None and name != "break-even" and not name.endswith("%"):
            name = f"{name.partition('@')[0]}@{min(max(1, round(self.k * len(rows) / self.n)), len(rows))}"
        return CountMeasure(name, self.positive[rows], self.weight[rows])

    def fingerprint_arrays(self) -> tuple[NDArray[Any], ...]:
        """What bounds depend on."""
        return np.frombuffer(self.name.encode(), np.uint8), self.positive, self.weight

    def find(self, scores: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
        """The labeling of largest loss minus score: coefficients of the rows in psi, and the loss.

        Parameters
        ----------
        scores : array (n,)
            Scores of all rows.
        """
        positive, negative = self.rows
        margins = self.weight / self.n * scores
        low = positive[np.argsort(margins[positive], kind="stable")]
        high = negative[np.argsort(-margins[negative], kind="stable")]
        if self.k is not None and self.k > len(low):
            return self._above_the_best(scores, high[: self.k - len(low)])
        lost = np.concatenate([[0.0], np.cumsum(-margins[low])])
        won = np.concatenate([[0.0], np.cumsum(margins[high])])
        if self.k is not None:
            wrong_pairs = np.arange(min(len(low), len(high)) + 1)
            n_false = n_missed = int(np.argmax(wrong_pairs * self.unit + lost[wrong_pairs] + won[wrong_pairs]))
            loss = n_missed * self.unit
        elif self.beta is not None:
            n_false, n_missed = (int(one) for one in best_table(lost, won, self.beta))
            loss = float(f_loss(len(low), n_false, n_missed, self.beta))
        else:
            n_false, n_missed = (int(np.argmax(np.arange(len(one)) / self.n + one)) for one in (won, lost))
            loss = (n_false + n_missed) / self.n
        coefficients = np.zeros(self.n)
        wrong = low[:n_missed], high[:n_false]
        coefficients[wrong[0]] = self.weight[wrong[0]] / self.n
        coefficients[wrong[1]] = -self.weight[wrong[1]] / self.n
        return coefficients, loss

    def _above_the_best(
        self, scores: NDArray[np.float64], best: NDArray[np.int64]
    ) -> tuple[NDArray[np.float64], float]:
        """The same with more positive rows than there are: those that are not above the mean of the best negative ones by 1."""
        below = self.rows[0][scores[self.rows[0]] < 1.0 + scores[best].mean()]
        coefficients = np.zeros(self.n)
        coefficients[below] = self.unit
        coefficients[best] = -self.unit * len(below) / len(best)
        return coefficients, self.unit * len(below)

    def loss(self, scores: NDArray[np.float64]) -> float:
        """The loss of predictions: the rows of positive score, or the k rows of largest score.

        Parameters
        ----------
        scores : array (n,)
            Scores of all rows.
        """
        predicted = scores > 0.0
        if self.k is not None:
            predicted = np.zeros(self.n, bool)
            predicted[np.argsort(-scores, kind="stable")[: self.k]] = True
        right = int(np.count_nonzero(predicted & self.positive))
        n_false, n_missed = int(np.count_nonzero(predicted)) - right, len(self.rows[0]) - right
        if self.k is not None:
            return (min(self.k, len(self.rows[0])) - right) * self.unit
        if self.beta is not None:
            return float(f_loss(len(self.rows[0]), n_false, n_missed, self.beta))
        return (n_false + n_missed) / self.n


@kernel
def f_loss(p: int, n_false: int, n_missed: int, beta: float) -> float:
    """1 minus the F score of p positive rows, of which some are missed, and false positives."""
    right = (1.0 + beta * beta) * (p - n_missed)
    below = right + n_false + beta * beta * n_missed
    return 1.0 - right / below if below > 0.0 else 0.0


@kernel
def best_table(lost: Any, won: Any, beta: float) -> tuple[int, int]:
    """The numbers of false positives and of missed rows of largest F loss plus running sums."""
    p, q = len(lost) - 1, len(won) - 1
    best, at_b, at_c = -np.inf, 0, 0
    for c in range(p + 1):
        # Both terms are concave in b: the first b after which nothing is gained.
        low, high = 0, q
        while low < high:
            b = (low + high) // 2
            gain = won[b + 1] - won[b] + f_loss(p, b + 1, c, beta) - f_loss(p, b, c, beta)
            if gain > 0.0:
                low = b + 1
            else:
                high = b
        value = lost[c] + won[low] + f_loss(p, low, c, beta)
        if value > best:
            best, at_b, at_c = value, low, c
    return at_b, at_c

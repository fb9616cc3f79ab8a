"""RankingSVM: scores by which rows are ranked, within queries or all together (ordinal regression).

    score(x) = coef_ . x,      loss = share of pairs of rows, of one query and of different levels, in the wrong order

T. Joachims, Optimizing Search Engines using Clickthrough Data, KDD 2002; the oracle is that of Training Linear SVMs in Linear Time,
KDD 2006 (measures/pairs.py). The objective is ``1/(2C) |w|^2 + mean over pairs of max(0, 1 - (score of the upper row - score of the
lower row))``, which SVM-rank writes as ``1/2 |w|^2 + C`` times that mean.
"""

from __future__ import annotations

import os
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from maxmargin.errors import DataError, ModelFileError
from maxmargin.estimators.base import StructuredEstimator
from maxmargin.estimators.feature_space import block_scores, name_blocks, training_rows
from maxmargin.estimators.frames import feature_names, heaviest, weights_for
from maxmargin.estimators.given_features import check_features, compare_columns, remember_columns
from maxmargin.estimators.labels import is_empty
from maxmargin.estimators.names import Auto, COption, SolverOption
from maxmargin.measures import MeasureProblem, PairMeasure


class RankingSVM(StructuredEstimator):
    """Ranking of rows by a linear score.

    Parameters
    ----------
    C : float, list of float or "auto"
        Strength of the loss in ``1/(2C) |w|^2 + mean loss``: SVM-rank's own C, if its loss is divided by the number of pairs.
        "auto" chooses it on held-out queries, or rows if there are no queries; of a list, the value whose held-out loss is least is
        taken.
    loss : "pairs" or "queries"
        Mean over all pairs, or the mean over queries of the means over their pairs, so that every query counts the same.
    solver : str or solver
        "auto" is "one-slack"; a name in `maxmargin.solvers.SOLVERS`, or a solver with options of its own.
    tol : float
        Certified gap at which training stops, in units of the task loss.
    max_passes : int
        Most passes over the data.
    max_seconds : float, optional
        Most seconds of training.
    random_state : int, Generator, RandomState or None
        Seed of the solver; None is different every time.
    n_jobs : int, optional
        Threads for certificates and predictions; None is 1, and -1 is one a core. The answer does not depend on it.
    verbose : int
        0 is silent; 1 shows progress on the standard error.
    warm_start : bool
        Start from where the last fit ended, if the data has the same shape; C, tol and the limits may differ.
    checkpoint : path, optional
        File where the solver keeps its state, and from which it resumes if it is there.
    kernel : "linear", "rbf", "poly" or callable
        Inner products of feature rows; a callable takes two matrices and returns theirs. One that is not linear needs ``n_basis``.
    gamma : "scale" or float
        Of the kernels "rbf" and "poly"; "scale" is 1 / (p * X.var()).
    degree : int
        Of the kernel "poly".
    coef0 : float
        Of the kernel "poly".
    n_basis : int, optional
        Approximate the kernel by so many basis functions: every solver takes it, time and memory grow with n times this instead of
        n^2, and prediction needs the basis only. None is the kernel itself.
    basis : "auto", "cholesky", "random" or "k-means"
        How the basis is chosen: rows that the ones before describe worst, rows at random, or centres of clusters. "auto" is
        "k-means", which was best wherever we compared them, but "cholesky" for a precomputed kernel, which has no rows.
    validation_fraction : float
        Share of the examples that is held out to choose C; with fewer than 2000 variables in all, each is held out once, in folds
        of this size.
    cv : int, optional
        Number of folds, at least 2, by which C is chosen, whatever the size of the data: every example is held out once. None is as
        `validation_fraction` says.
    scale : "auto", True or False
        Whether columns of features are centred and divided by their size while training: "auto" does so where they need it. Weights
        are always for the features as they were given.

    Attributes
    ----------
    coef_ : array (1, p)
        Weights of the score.
    classes_ : array (L,)
        The levels found in y, in ascending order.
    thresholds_ : array (L - 1,)
        Scores between the levels, for which the absolute error of the levels of the training rows is least: `predict_level`.
    result_ : Result
        Status, certificate and history of training.
    C_, validation_path_ : float, list of (C, loss, gap, n_passes, seconds, standard_error)
        C as given or chosen, and the values that were tried, with the held-out task loss.
    n_features_in_, feature_names_in_ : int, array (p,)
        The latter only if X was a data frame with columns named by strings.

    Examples
    --------
    >>> from maxmargin import RankingSVM
    >>> X = [[1.0, 0.2], [2.0, 0.1], [3.0, 0.3], [10.0, 0.0], [12.0, 0.1]]
    >>> model = RankingSVM(C=100).fit(X, [0, 1, 2, 0, 1], qid=[1, 1, 1, 2, 2])
    >>> model.score(X, [0, 1, 2, 0, 1], qid=[1, 1, 1, 2, 2])
    1.0
    """

    task = "ranking"
    losses = ("pairs", "queries")
    costs = False

    def __init__(
        self,
        C: COption = "auto",
        *,
        loss: str = "pairs",
        solver: SolverOption = "auto",
        tol: float = 1e-3,
        max_passes: int = 1000,
        max_seconds: float | None = None,
        random_state: Any = 0,
        n_jobs: int | None = None,
        verbose: int = 0,
        warm_start: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
        kernel: Any = "linear",
        gamma: Any = "scale",
        degree: int = 3,
        coef0: float = 1.0,
        n_basis: int | None = None,
        basis: str = "auto",
        validation_fraction: float = 0.2,
        cv: int | None = None,
        scale: bool | Auto = "auto",
    ) -> None:
        super().__init__(
            C, loss=loss, solver=solver, tol=tol, max_passes=max_passes, max_seconds=max_seconds, fit_intercept=False,
            random_state=random_state, n_jobs=n_jobs, verbose=verbose, warm_start=warm_start, checkpoint=checkpoint,
            kernel=kernel, gamma=gamma, degree=degree, coef0=coef0, n_basis=n_basis, basis=basis,
            validation_fraction=validation_fraction, cv=cv, scale=scale,
        )  # fmt: skip

    def fit(self, X: Any, y: ArrayLike, qid: Any = None) -> Self:
        """Train.

        Parameters
        ----------
        X : array, CSR matrix or data frame (n, p)
        y : array (n,) of numbers
            The level of each row: rows of larger values should be ranked above those of smaller ones.
        qid : array (n,), optional
            The query of each row, a number or a string; the rows of a query stand together. Rows of different queries are not
            compared. Default: all rows are compared, which is ordinal regression.

        Returns
        -------
        self
        """
        self._check_parameters()
        features = check_features(X)
        values, queries = _levels(y, features.shape[0]), _queries(qid, features.shape[0])
        classes, levels = np.unique(values, return_inverse=True)
        measure = PairMeasure(levels, queries, self.loss == "queries", "pairs")
        problem = MeasureProblem(training_rows(self, features, ordered=False), measure, queries)
        self._train(problem, features)
        self.temperature_ = 1.0
        remember_columns(self, X)
        self.classes_ = classes
        self.thresholds_ = thresholds(problem.scores(self.result_.weights), levels, len(classes))
        self._name_weights()
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Score of each row, (n,): rows are ranked from the largest to the smallest.

        Parameters
        ----------
        X : array, CSR matrix or data frame (n, p)
            Features of the examples.
        """
        check_is_fitted(self)
        if is_empty(X):
            return np.empty(0)
        features = check_features(X)
        compare_columns(self, X)
        return block_scores(self, features)[:, 0]

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """The same as `predict`, under the name that scikit-learn's scorers ask for.

        Parameters
        ----------
        X : array, CSR matrix or data frame (n, p)
            Features of the examples.
        """
        return self.predict(X)

    def predict_level(self, X: Any) -> NDArray[Any]:
        """Level of each row, (n,), by ``thresholds_``: the prediction of ordinal regression.

        Parameters
        ----------
        X : array, CSR matrix or data frame (n, p)
            Features of the examples.
        """
        scores = self.predict(X)
        return np.asarray(self.classes_[(scores[:, None] > self.thresholds_).sum(axis=1)])

    def top_features(self, n: int = 10) -> list[tuple[str, float]]:  # type: ignore[override]
        """The n features that raise a row most, heaviest first: names and weights.

        Parameters
        ----------
        n : int
            How many.

        Returns
        -------
        list of (name, weight)
        """
        check_is_fitted(self)
        return heaviest(weights_for(self, self.classes_[-1]), feature_names(self), n)

    def score(self, X: Any, y: ArrayLike, qid: Any = None) -> float:
        """Share of the pairs that are in the right order, a pair of equal scores as half of one; by query if the loss is.

        Parameters
        ----------
        X : array, CSR matrix or data frame (n, p)
            Features of the examples.
        y : array (n,)
            Their true levels.
        qid : array (n,), optional
            The query of each row; without, all rows are compared with each other.
        """
        scores = self.predict(X)
        values, queries = _levels(y, len(scores)), _queries(qid, len(scores))
        levels = np.unique(values, return_inverse=True)[1]
        return 1.0 - PairMeasure(levels, queries, self.loss == "queries", "pairs").loss(scores)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.sparse = True
        return tags

    @property
    def _n_kernel_blocks(self) -> int:
        return 1

    def _name_weights(self) -> None:
        name_blocks(self, 1)

    def _task_parts(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        return {}, {"thresholds": self.thresholds_}

    def _restore_task(
        self, header: dict[str, Any], arrays: dict[str, NDArray[Any]], classes: NDArray[Any], width: int
    ) -> int:
        self.thresholds_ = arrays["thresholds"]
        if self.thresholds_.dtype != np.float64 or self.thresholds_.shape != (len(classes) - 1,):
            raise ModelFileError(f"its thresholds have shape {self.thresholds_.shape}; expected ({len(classes) - 1},).")
        return width


def _levels(y: ArrayLike, n: int) -> NDArray[np.float64]:
    """Levels as finite numbers."""
    try:
        values = np.asarray(y, np.float64)
    except (TypeError, ValueError):
        raise DataError("y holds values that are not numbers; expected the level of each row.") from None
    if values.shape != (n,):
        raise DataError(f"X has {n} rows, but y has shape {values.shape}; expected ({n},): the level of each row.")
    if not np.isfinite(values).all():
        raise DataError(
            f"y[{int(np.flatnonzero(~np.isfinite(values))[0])}] is not finite; levels must be finite numbers."
        )
    return values


def _queries(qid: Any, n: int) -> NDArray[np.int64] | None:
    """The number of each row's query, from 0, in the order of the rows."""
    if qid is None:
        return None
    given = np.asarray(qid)
    if given.shape != (n,):
        raise DataError(f"X has {n} rows, but qid has shape {given.shape}; expected ({n},): the query of each row.")
    if given.dtype.kind == "O":
        missing = [row for row, one in enumerate(given) if one is None or one != one]
    else:
        missing = np.flatnonzero(given != given).tolist()
    if missing:
        raise DataError(f"qid[{missing[0]}] is missing; expected the query of each row.")
    changes = np.concatenate([[False], given[1:] != given[:-1]])
    numbers = np.cumsum(changes)
    starts = np.flatnonzero(np.concatenate([[True], changes[1:]]))
    first: dict[Any, int] = {}
    for row, query in zip(starts.tolist(), given[starts].tolist(), strict=True):
        if query in first:
            raise DataError(
                f"qid[{row}] is {query!r}, which began at row {first[query]} and had ended: the rows of a query must stand "
                "together; sort the rows by qid."
            )
        first[query] = row
    return numbers


def thresholds(scores: NDArray[np.float64], levels: NDArray[np.int64], n_levels: int) -> NDArray[np.float64]:
    """For each level but the last, the score above which fewest rows are of it or lower, or below it and higher."""
    order = np.argsort(scores, kind="stable")
    ordered = scores[order]
    # A threshold between the k-th and the next: rows before it are below.
    middle = np.concatenate([[ordered[0] - 1.0], (ordered[:-1] + ordered[1:]) / 2.0, [ordered[-1] + 1.0]])
    possible = np.concatenate([[True], ordered[1:] > ordered[:-1], [True]])
    found = np.empty(n_levels - 1)
    for level in range(n_levels - 1):
        higher = levels[order] > level
        wrong = np.concatenate([[0], np.cumsum(higher)]) + np.concatenate([np.cumsum(~higher[::-1])[::-1], [0]])
        found[level] = middle[np.argmin(np.where(possible, wrong, len(order) + 1))]
    return np.maximum.accumulate(found)

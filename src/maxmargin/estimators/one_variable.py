"""What BinarySVM and MultiClassSVM share: a class for each example, and so nothing to infer.

Trained on ``1/(2C) |w|^2 + mean hinge``, where ``class_weight`` and ``sample_weight`` multiply the hinge of an example,
and their products are scaled to mean 1: C means the same whatever they are.
"""

from __future__ import annotations

import os
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax
from sklearn.base import ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from maxmargin.errors import DataError, OptionError
from maxmargin.estimators import labels as target
from maxmargin.estimators.base import Prepared, StructuredEstimator, shared
from maxmargin.estimators.confidence import ConfidenceMixin, Sure
from maxmargin.estimators.explaining import Explainable
from maxmargin.estimators.feature_space import block_scores, prediction_rows, training_rows
from maxmargin.estimators.given_features import check_features, compare_columns, remember_columns
from maxmargin.estimators.names import Auto, COption, InferenceOption, Objective, SolverOption
from maxmargin.estimators.online import OnlineMixin
from maxmargin.estimators.parameters import check_parameters
from maxmargin.estimators.pruning import PruningMixin
from maxmargin.estimators.signs import with_signs
from maxmargin.estimators.stopping import Watch
from maxmargin.inference.contract import check_count, check_temperature
from maxmargin.measures import MeasureProblem
from maxmargin.packed.data import room_for
from maxmargin.problems import FactorGraphs, binary_problem, multi_class_problem


class OneVariableClassifier(
    ClassifierMixin, Explainable, ConfidenceMixin, OnlineMixin, PruningMixin, StructuredEstimator
):
    """Base of the classifiers of single examples; a task adds its problem and what its scores mean."""

    def __init__(
        self,
        C: COption = "auto",
        *,
        class_weight: Any = None,
        solver: SolverOption = "auto",
        inference: InferenceOption = "auto",
        loss: Any = "hamming",
        tol: float = 1e-3,
        max_passes: int = 1000,
        max_seconds: float | None = None,
        fit_intercept: bool = True,
        random_state: Any = 0,
        n_jobs: int | None = None,
        verbose: int = 0,
        warm_start: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
        C_path: Any = None,
        kernel: Any = "linear",
        gamma: Any = "scale",
        degree: int = 3,
        coef0: float = 1.0,
        n_basis: int | None = None,
        basis: str = "auto",
        objective: Objective = "margin",
        validation_fraction: float = 0.2,
        cv: int | None = None,
        scale: bool | Auto = "auto",
        signs: Any = None,
        device: str = "cpu",
        max_memory: int | str | None = None,
    ) -> None:
        super().__init__(**shared(locals()))
        self.class_weight = class_weight

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: ArrayLike | None = None,
        *,
        eval_set: Any = None,
        eval_metric: Any = None,
        patience: int | None = None,
        callbacks: Any = None,
    ) -> Self:
        """Train.

        Parameters
        ----------
        X : array, CSR matrix or data frame (n, p)
            With ``kernel="precomputed"``, the kernel between all rows, (n, n); afterwards between new rows and these.
        y : array or list (n,)
            The class of each example: strings, whole numbers, booleans or other values that are hashable.
        sample_weight : array (n,), optional
        eval_set : (X, y), optional
            Held-out examples, whose task loss is computed at every check: ``result_.history["eval_loss"]``.
        eval_metric : callable, optional
            Takes true and predicted labels, and returns a number of which less is better, in the place of the task loss.
        patience : int, optional
            End training when so many checks in a row have not lowered the held-out loss, and take the weights of the least.
        callbacks : list of callables, optional
            Each is called with a `maxmargin.solvers.Report` at every check; training ends if one returns False.

        Returns
        -------
        self
        """
        check_parameters(self)
        watch = Watch(self, (X, y), eval_set, eval_metric, patience, callbacks)

        def finish(model: Any) -> None:
            remember_columns(model, X)
            model.classes_ = given.classes
            model._name_weights()

        with room_for(X):
            given = self.prepare(X, y, sample_weight)
            self._fit(given.problem, given.features, finish, watch)
        return self

    def prepare(
        self, X: Any, y: Any, sample_weight: ArrayLike | None = None, known: NDArray[Any] | None = None
    ) -> Prepared:
        """The problem of `fit`; of a shard of the data if the classes of all of it are known.

        Parameters
        ----------
        X, y : as in `fit`
        sample_weight : array (n,), optional
            A weight for each example.
        known : array, optional
            The classes of all data, of which this is a shard.
        """
        classes, states = target.classes_and_states(y, type(self).__name__)
        if known is not None:
            states, classes = target.states_of(classes.tolist(), known)[states], known
        features = check_features(X)
        _check_lengths(features.shape[0], len(states))
        self._check_classes(classes)
        by_class = target.class_weights(self.class_weight, classes, states)
        weight = target.example_weights(sample_weight, len(states), "example")
        if by_class is not None:
            weight = weight * by_class[states]
            if not weight.any():
                raise OptionError(
                    "class_weight leaves every example with a weight of 0; at least one class needs a weight above 0."
                )
        problem = self._problem(
            training_rows(self, features, ordered=known is None and not self._has_measure and self.signs is None),
            states,
            len(classes),
            "hamming" if isinstance(self.loss, str) else target.cost_table(self.loss, classes),
            weight,
        )
        problem = with_signs(self, problem, classes_=classes, n_features_in_=features.shape[1])
        return Prepared(problem, features, classes, float(weight.sum()), {})

    def predict(self, X: Any) -> NDArray[Any]:
        """Best class of each example, (n,).

        Parameters
        ----------
        X : array, CSR matrix or data frame (n, p)
            Features of the examples.
        """
        scores = self._scores(X)
        best = scores.argmax(axis=1) if scores.shape[1] > 1 else (scores[:, 0] > 0).astype(np.int64)
        return np.asarray(self.classes_[best])

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probability of each class, (n, K).

        With ``objective="log"`` scores are log odds. A margin's are made so by a temperature, ``temperature_``, that fits the
        classes of held-out examples with ``C="auto"``, and of the training examples, of which a model is too sure, otherwise.

        Parameters
        ----------
        X : array, CSR matrix or data frame (n, p)
            Features of the examples.
        """
        return self.predict_marginals(X)

    def predict_marginals(self, X: Any, temperature: float | None = None) -> NDArray[np.float64]:
        """Probability of each class, (n, K), proportional to exp(score / temperature).

        Parameters
        ----------
        X : array, CSR matrix or data frame (n, p)
            Features of the examples.
        temperature : float, optional
            Above 0. By default ``temperature_``, as in `predict_proba`.
        """
        scores = self._class_scores(X)
        at = self.temperature_ if temperature is None else check_temperature(temperature)
        return np.asarray(softmax(scores / at, axis=1))

    def predict_top_k(self, X: Any, k: int) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """The k best classes of each example, best first, and their scores.

        Parameters
        ----------
        X : array, CSR matrix or data frame (n, p)
            Features of the examples.
        k : int
            How many; all of them if there are fewer.

        Returns
        -------
        labels : array (n, k)
        scores : array (n, k)
        """
        k, scores = check_count(k), self._class_scores(X)
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        return np.asarray(self.classes_[order]), np.take_along_axis(scores, order, axis=1)

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Fraction of the examples whose class is predicted right; a class that was not seen in training never is.

        Parameters
        ----------
        X : array, CSR matrix or data frame (n, p)
            Features of the examples.
        y : array (n,)
            Their true classes.
        sample_weight : array (n,), optional
            How much each example counts.
        """
        check_is_fitted(self)
        states = target.states_of_column(y, self.classes_, type(self).__name__)
        predicted = target.states_of(self.predict(X).tolist(), self.classes_)
        _check_lengths(len(predicted), len(states))
        weight = target.score_weights(sample_weight, len(states), "example")
        return float(np.average(predicted == states, weights=weight))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = not tags.input_tags.pairwise
        return tags

    def _scores(self, X: Any) -> NDArray[np.float64]:
        """Score of each block of weights, (n, blocks)."""
        check_is_fitted(self)
        if target.is_empty(X):
            return np.empty((0, len(self.intercept_)))
        features = check_features(X)
        compare_columns(self, X)
        return block_scores(self, features)

    def _new_problem(self, X: Any) -> FactorGraphs:
        """The examples to predict as graphs of one variable."""
        features = check_features(X)
        compare_columns(self, X)
        rows = prediction_rows(self, features)
        n_blocks = len(self.intercept_)
        return binary_problem(rows, None) if n_blocks == 1 else multi_class_problem(rows, None, n_blocks)

    def _class_scores(self, X: Any) -> NDArray[np.float64]:
        """Score of each class, (n, K); of two classes with one block of weights, the first has 0."""
        scores = self._scores(X)
        return np.hstack([np.zeros_like(scores), scores]) if scores.shape[1] == 1 else scores

    def _predicted(self, X: Any) -> Sure:
        states = self._class_scores(X).argmax(axis=1).astype(np.int32)
        return Sure(states, np.empty(0), np.ones(len(states), np.int64))

    def _sure(self, X: Any, confidence: str) -> Sure:
        scores = self._class_scores(X)
        states = scores.argmax(axis=1).astype(np.int32)
        if confidence == "margin":
            two = np.partition(scores, -2, axis=1)[:, -2:]
            values = two[:, 1] - two[:, 0]
        else:
            values = softmax(scores / self.temperature_, axis=1).max(axis=1)
        return Sure(states, values, np.ones(len(states), np.int64))

    def _show(self, sure: Sure) -> NDArray[Any]:
        return np.asarray(self.classes_[sure.states])

    def _truth(self, y: Any, sure: Sure) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
        states = target.states_of(target.column(y, type(self).__name__), self.classes_)
        _check_lengths(len(sure.states), len(states))
        return states, np.ones(len(states), bool)

    def _restore_task(
        self, header: dict[str, Any], arrays: dict[str, NDArray[Any]], classes: NDArray[Any], width: int
    ) -> int:
        target.check_costs(self, classes)
        self._check_classes(classes)
        return len(classes) * width

    @property
    def _has_measure(self) -> bool:
        """Whether the loss is of all examples together."""
        return False

    def _check_classes(self, classes: NDArray[Any]) -> None:
        target.check_several(classes, type(self).__name__)

    def _problem(
        self, features: Any, states: NDArray[np.int32], n_classes: int, loss: Any, weight: NDArray[np.float64]
    ) -> FactorGraphs | MeasureProblem:
        raise NotImplementedError

    def _name_weights(self) -> None:
        raise NotImplementedError


def _check_lengths(n_rows: int, n_targets: int) -> None:
    if n_rows != n_targets:
        raise DataError(f"X has {n_rows} rows, but y has {n_targets}; expected a class for each row of X.")

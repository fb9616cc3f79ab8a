"""Prediction, the same for every structured task: labels, bounds, scores, marginals, the k best, and what was left open.

A task says how inputs become a problem (`_new_problem`), and how the states of all variables look to a user (`_present`, and
`_present_marginals`).
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from maxmargin.errors import DataError
from maxmargin.estimators import labels as target
from maxmargin.estimators.base import StructuredEstimator
from maxmargin.estimators.confidence import ConfidenceMixin, Sure
from maxmargin.estimators.explaining import Explainable
from maxmargin.estimators.feature_space import prediction_weights
from maxmargin.inference import (
    Engine,
    MapResult,
    TopK,
    batches,
    choose_marginals,
    choose_top_k,
    engine,
    top_k,
    top_k_of_any,
)
from maxmargin.problems import FactorGraphs
from maxmargin.solvers.oracles.prediction import predict


class StructuredPredictor(Explainable, ConfidenceMixin, StructuredEstimator):
    """An estimator whose labels are structures."""

    def predict(self, X: Any, return_bound: bool = False) -> Any:
        """Best labels of each example.

        Parameters
        ----------
        X : inputs, as in `fit`
        return_bound : bool
            Also return the scores of the labelings and upper bounds on the best scores, equal where exact.

        Returns
        -------
        labels : as in `fit`
        scores, bounds : arrays (n,), with ``return_bound=True``
        """
        check_is_fitted(self)
        if target.is_empty(X):
            return (self._nothing(), np.empty(0), np.empty(0)) if return_bound else self._nothing()
        problem, found = self._predict(X)
        labels = self._present_found(found, problem)
        if isinstance(labels, list):
            labels = target.Labelings(labels)
        return (labels, found.values, found.bounds) if return_bound else labels

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Score of the predicted labels of each example, (n,).

        Parameters
        ----------
        X : examples, in the form that `fit` takes
            Rows of features for `MultiLabelSVM`, sequences for `ChainSVM`, graphs for `GraphSVM`.
        """
        check_is_fitted(self)
        return np.empty(0) if target.is_empty(X) else self._predict(X)[1].values

    def predict_proba(self, X: Any) -> Any:
        """Probability of each label of each variable: `predict_marginals` at the temperature that was fitted.

        Parameters
        ----------
        X : examples, in the form that `fit` takes
            Rows of features for `MultiLabelSVM`, sequences for `ChainSVM`, graphs for `GraphSVM`.
        """
        return self.predict_marginals(X)

    def predict_marginals(self, X: Any, temperature: float | None = None) -> Any:
        """Probability of each label of each variable, under p(y) ~ exp(score(y) / temperature).

        A margin does not make scores into log-probabilities; a temperature that fits the labels of held-out examples does so well
        enough to compare with. Marginals are exact where inference is cheap, and otherwise those of loopy sum-product, with a
        warning.

        Parameters
        ----------
        X : inputs, as in `fit`
        temperature : float, optional
            Above 0. By default ``temperature_``: 1 with ``objective="log"``, otherwise fitted by pseudo-likelihood, to held-out
            examples with ``C="auto"``, and to the training examples, of which a model is too sure, with a C that was given.
        """
        check_is_fitted(self)
        temperature = self.temperature_ if temperature is None else temperature
        if target.is_empty(X):
            return self._nothing()
        problem = self._new_problem(X)
        found = batches.predict_marginals(
            problem, self._flat_weights(problem), self._marginaliser(problem), temperature, self.n_jobs
        )
        return self._present_marginals(found.variables, problem)

    def predict_top_k(self, X: Any, k: int) -> tuple[list[list[Any]], list[NDArray[np.float64]]]:
        """The k best labelings of each example, best first, and their scores.

        They are exact, or refused in a sentence. Graphs without cycles take one walk over their tables, whatever k is; graphs with
        cycles n maximisations a labeling of n variables, by an exact engine: that of the model if it is one, otherwise
        enumeration, a junction tree or branch and bound.

        Parameters
        ----------
        X : inputs, as in `fit`
        k : int

        Returns
        -------
        labels : list of n lists of labelings
            Fewer than k where there are no more that the constraints allow.
        scores : list of n arrays
        """
        check_is_fitted(self)
        if target.is_empty(X):
            return [], []
        problem = self._new_problem(X)
        found = self._top_k(problem, k)
        ranked = [self._present(np.maximum(row, 0), problem) for row in found.labels]
        count = (found.values > -np.inf).sum(axis=1)
        labels = [[ranked[r][m] for r in range(n)] for m, n in enumerate(count)]
        return labels, [values[:n] for values, n in zip(found.values, count, strict=True)]

    def ambiguity(self, X: Any) -> float:
        """Share of the labels that the relaxation leaves open and rounding decides; 0 where inference relaxes nothing.

        Parameters
        ----------
        X : examples, in the form that `fit` takes
            Rows of features for `MultiLabelSVM`, sequences for `ChainSVM`, graphs for `GraphSVM`.
        """
        found = self._predict(X)[1]
        return 0.0 if found.ambiguous is None else float(found.ambiguous.mean())

    def _marginaliser(self, problem: FactorGraphs) -> Engine:
        """The engine for marginals, with a warning if they are approximate."""
        if not (isinstance(self.inference, str) and self.inference == "auto"):
            return self._engine(problem)[0]
        chosen, reason = choose_marginals(problem)
        if not chosen.exact:
            warnings.warn(f'These marginals are approximate, by "{chosen.name}": {reason}.', UserWarning, stacklevel=3)
        return chosen

    def _top_k(self, problem: FactorGraphs, k: int) -> TopK:
        scores = problem.scores(self._flat_weights(problem))
        if problem.is_forest and not problem.has_structured:
            return top_k(problem, scores, k)
        asked = None if isinstance(self.inference, str) and self.inference == "auto" else engine(self.inference)
        usable = asked is not None and asked.exact and asked.refusal(problem) is None
        return top_k_of_any(problem, scores, k, asked if usable and asked else choose_top_k(problem)[0], self.n_jobs)

    def _predicted(self, X: Any) -> Sure:
        problem, best = self._predict(X)
        return Sure(best.labels, np.empty(0), np.diff(problem.example_variables), problem)

    def _sure(self, X: Any, confidence: str) -> Sure:
        check_is_fitted(self)
        if confidence == "margin":
            problem = self._new_problem(X)
            ranked = self._top_k(problem, 2)
            return Sure(
                ranked.labels[0], ranked.values[:, 0] - ranked.values[:, 1], np.diff(problem.example_variables), problem
            )
        problem, best = self._predict(X)
        asked = self._marginaliser(problem)
        if confidence == "joint" and not asked.exact:
            raise DataError(
                "The probability of a whole labeling is known only where inference is exact, and no exact engine is cheap on these "
                'graphs; confidence="probability" has that of each label.'
            )
        found = batches.predict_marginals(problem, self._flat_weights(problem), asked, self.temperature_, self.n_jobs)
        if confidence == "joint":
            values = np.exp(np.minimum((best.values - found.log_partition) / self.temperature_, 0.0))
        else:
            values = found.variables[problem.state_starts() + best.labels]
        return Sure(best.labels, values, np.diff(problem.example_variables), problem)

    def _show(self, sure: Sure) -> Any:
        return self._present(sure.states, sure.problem)

    def _predict(self, X: Any) -> tuple[FactorGraphs, MapResult]:
        check_is_fitted(self)
        problem = self._new_problem(X)
        return problem, predict(problem, self._flat_weights(problem), self._engine(problem)[0], self.n_jobs)

    def _present_found(self, found: MapResult, problem: FactorGraphs) -> Any:
        """Labels as the user knows them."""
        return self._present(found.labels, problem)

    def _flat_weights(self, problem: FactorGraphs) -> NDArray[np.float64]:
        """The weights for the rows of a problem to predict."""
        return prediction_weights(self, problem.variable_features)

    def _new_problem(self, X: Any) -> FactorGraphs:
        """The problem of inputs to predict, compared with those of training."""
        raise NotImplementedError

    def _nothing(self) -> Any:
        """The labels of no examples."""
        return []

    def _present(self, states: NDArray[np.int32], problem: FactorGraphs) -> Any:
        """The states of all variables as the user's labels, one entry an example."""
        raise NotImplementedError

    def _present_marginals(self, marginals: NDArray[np.float64], problem: FactorGraphs) -> Any:
        """Marginals of all states as the user sees them: a (variables, K) array an example."""
        rows = marginals.reshape(-1, len(self.classes_))
        return np.split(rows, problem.example_variables[1:-1])

"""MultiClassSVM: one of K classes for each example.

K. Crammer and Y. Singer, On the Algorithmic Implementation of Multiclass Kernel-based Vector Machines, JMLR 2, 2001.

    score(x, k) = coef_[k] . x + intercept_[k],     the class of the highest score

The hinge is ``max_k cost(y, k) + score(x, k) - score(x, y)``. So C times the objective is that of scikit-learn's
``LinearSVC(C / n, multi_class="crammer_singer")`` on the same features if every mistake costs 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.estimators.feature_space import name_blocks
from maxmargin.estimators.one_variable import OneVariableClassifier
from maxmargin.problems import FactorGraphs, multi_class_problem


class MultiClassSVM(OneVariableClassifier):
    """Classifier of any number of classes, all of them trained together.

    Parameters
    ----------
    C : float or "auto"
        Strength of the loss in ``1/(2C) |w|^2 + mean loss``: ``C = n * c`` for scikit-learn's ``c``, and SVM-struct's own C. "auto"
        chooses it on held-out examples.
    class_weight : None, "balanced" or dict
        Weight of the examples of each class: "balanced" is n / (K count), and a class left out of a dict has 1.
    solver, inference, loss, tol, max_passes, max_seconds : see `maxmargin.estimators.base.StructuredEstimator`
    fit_intercept, random_state, n_jobs, verbose, warm_start, checkpoint, C_path, kernel, gamma, degree, coef0 : see there
    n_basis, basis, objective, validation_fraction, cv, scale, device : see there
        ``loss`` is "hamming" or "zero-one", which are the same here, or an array (K, K) of costs
        ``loss[truth, predicted]`` in the order of ``classes_``, with a diagonal of zeros. ``inference`` has nothing to
        do.

    Attributes
    ----------
    classes_ : array (K,)
        The classes found in y, sorted if they can be compared.
    coef_ : array (K, p), intercept_ : array (K,)
        Weights of each class; the intercept is 0 with ``fit_intercept=False``.
    dual_coef_ : array (K, s), support_ : int array (s,), support_vectors_ : array or CSR matrix (s, p)
        With a kernel, in the place of ``coef_``: coefficients of the training rows that count, their numbers, and the rows.
    basis_coef_ : array (K, k), basis_vectors_ : array or CSR matrix (k, p), basis_residual_ : float
        With ``n_basis``, in the place of these: coefficients of the basis, its rows, and the share of k(x, x) that it misses.
    result_ : Result
        Status, certificate and history of training.
    C_ : float, validation_path_ : list of (C, loss, gap, n_passes, seconds, standard_error)
        C as given or chosen, and the values that were tried, with the held-out task loss; `maxmargin.plot_path` draws them.
    temperature_ : float
        What scores are divided by to become log-probabilities.
    inference_ : str
        How the best class would be found by an engine.
    n_features_in_ : int, feature_names_in_ : array (p,)
        The latter only if X was a data frame with columns named by strings.

    Examples
    --------
    >>> from maxmargin import MultiClassSVM
    >>> model = MultiClassSVM(C=100).fit([[-2.0], [0.0], [2.0]], ["low", "middle", "high"])
    >>> model.predict([[-3.0], [3.0]]).tolist()
    ['low', 'high']
    """

    task = "multi-class"

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Score of each class, (n, K); of two classes, as scikit-learn has it, by how much the second is ahead, (n,)."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def _problem(
        self, features: Any, states: NDArray[np.int32], n_classes: int, loss: Any, weight: NDArray[np.float64]
    ) -> FactorGraphs:
        return multi_class_problem(features, states, n_classes, loss, weight)

    def _name_weights(self) -> None:
        name_blocks(self, len(self.classes_))

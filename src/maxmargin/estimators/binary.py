"""BinarySVM: one of two classes for each example.

    score(x) = coef_[0] . x + intercept_[0],     classes_[1] if it is positive, else classes_[0]

The hinge is ``max(0, 1 - t score(x))`` with t = 1 for ``classes_[1]`` and -1 for ``classes_[0]``. So C times the
objective, ``|w|^2 / 2 + C/n sum hinge``, is that of scikit-learn's ``LinearSVC(C / n, loss="hinge")`` on the same features,
where the constant feature, if any, is one of them. With costs, the hinge is ``max(0, cost - t score(x))``.

Of the losses of SVM-perf, the error rate is there, which is a mean over examples, and so are costs by class. F1, precision or
recall at k and the area under the ROC curve (swapped pairs) are not: they are losses of all predictions together, of which no
example has a part, so that a problem made of examples with a hinge each cannot state them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Tags

from maxmargin.errors import DataError
from maxmargin.estimators.feature_space import name_blocks
from maxmargin.estimators.one_variable import OneVariableClassifier
from maxmargin.problems import FactorGraphs, binary_problem


class BinarySVM(OneVariableClassifier):
    """Classifier of two classes.

    Parameters
    ----------
    C : float or "auto"
        Strength of the loss in ``1/(2C) |w|^2 + mean loss``: ``C = n * c`` for scikit-learn's ``c``, and SVM-struct's own C. "auto"
        chooses it on held-out examples.
    class_weight : None, "balanced" or dict
        Weight of the examples of each class: "balanced" is n / (2 count), and a class left out of a dict has 1.
    solver, inference, loss, tol, max_passes, max_seconds : see `maxmargin.estimators.base.StructuredEstimator`
    fit_intercept, random_state, n_jobs, verbose, warm_start, checkpoint, C_path, kernel, gamma, degree, coef0 : see there
    n_basis, basis, objective, validation_fraction, scale : see there
        ``loss`` is "hamming" or "zero-one", which are the same here, or an array (2, 2) of costs
        ``loss[truth, predicted]`` with a diagonal of zeros. ``inference`` has nothing to do.

    Attributes
    ----------
    classes_ : array (2,)
        The classes found in y, sorted if they can be compared.
    coef_ : array (1, p), intercept_ : array (1,)
        Weights of the score; the intercept is 0 with ``fit_intercept=False``.
    dual_coef_ : array (1, s), support_ : int array (s,), support_vectors_ : array or CSR matrix (s, p)
        With a kernel, in the place of ``coef_``: coefficients of the training rows that count, their numbers, and the rows.
    basis_coef_ : array (1, k), basis_vectors_ : array or CSR matrix (k, p), basis_residual_ : float
        With ``n_basis``, in the place of these: coefficients of the basis, its rows, and the share of k(x, x) that it misses.
    result_ : Result
        Status, certificate and history of training.
    C_ : float, validation_path_ : list of (C, loss, gap, n_passes, seconds)
        C as given or chosen, and the values that were tried, with the held-out task loss; `maxmargin.plot_path` draws them.
    temperature_ : float
        What scores are divided by to become log-probabilities.
    inference_ : str
        How the best class would be found by an engine.
    n_features_in_ : int, feature_names_in_ : array (p,)
        The latter only if X was a data frame with columns named by strings.

    Examples
    --------
    >>> from maxmargin import BinarySVM
    >>> model = BinarySVM(C=100).fit([[0.0], [1.0], [2.0], [3.0]], ["low", "low", "high", "high"])
    >>> model.predict([[-1.0], [5.0]]).tolist()
    ['low', 'high']
    """

    task = "binary"

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Score of each example, (n,): positive for ``classes_[1]``."""
        return self._scores(X)[:, 0]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def _restore_task(
        self, header: dict[str, Any], arrays: dict[str, NDArray[Any]], classes: NDArray[Any], width: int
    ) -> int:
        super()._restore_task(header, arrays, classes, width)
        return width

    @property
    def _n_kernel_blocks(self) -> int:
        return 1

    def _check_classes(self, classes: NDArray[Any]) -> None:
        super()._check_classes(classes)
        if len(classes) > 2:
            raise DataError(
                "Only binary classification is supported by BinarySVM, but the type of the target is multiclass: "
                f"y holds {len(classes)} classes. MultiClassSVM takes any number."
            )

    def _problem(
        self, features: Any, states: NDArray[np.int32], n_classes: int, loss: Any, weight: NDArray[np.float64]
    ) -> FactorGraphs:
        return binary_problem(features, states, loss, weight)

    def _name_weights(self) -> None:
        name_blocks(self, 1)

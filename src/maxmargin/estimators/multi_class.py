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
    C : float, list of float or "auto"
        Strength of the loss in ``1/(2C) |w|^2 + mean loss``: ``C = n * c`` for scikit-learn's ``c``, and SVM-struct's own C. "auto"
        chooses it on held-out examples; of a list, the value whose held-out loss is least is taken.
    class_weight : None, "balanced" or dict
        Weight of the examples of each class: "balanced" is n / (K count), and a class left out of a dict has 1.
    solver : str or solver
        "auto", a name in `maxmargin.solvers.SOLVERS`, or a solver with options of its own.
    inference : str or engine
        Has nothing to do here: an example is one variable, whose best state is found without an engine.
    loss : "hamming", "zero-one" or array (K, K)
        "hamming" and "zero-one" are the same here; an array has the costs ``loss[truth, predicted]`` in the order of ``classes_``,
        with a diagonal of zeros.
    tol : float
        Certified gap at which training stops, in units of the task loss.
    max_passes : int
        Most passes over the data.
    max_seconds : float, optional
        Most seconds of training.
    fit_intercept : bool
        Add a constant feature, regularised like the rest.
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
    C_path : sequence of float, optional
        Train for these values too, from small to large, each from the one before; ``path_`` has their results. The model
        is that of C.
    kernel : "linear", "rbf", "poly", "precomputed" or callable
        Inner products of feature rows; a callable takes two matrices and returns theirs. Weights of factors are always linear.
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
    objective : "margin", "log" or "softmax-margin"
        The structured hinge; or, for the solvers that can, the logarithmic loss of a conditional random field, as it is or with the
        task loss of each labeling in the exponent.
    validation_fraction : float
        Share of the examples that is held out to choose C; with fewer than 2000 variables in all, each is held out once, in folds
        of this size.
    cv : int, optional
        Number of folds, at least 2, by which C is chosen, whatever the size of the data: every example is held out once. None is as
        `validation_fraction` says.
    scale : "auto", True or False
        Whether columns of features are centred and divided by their size while training: "auto" does so where they need it. Weights
        are always for the features as they were given.
    signs : None, "attractive" or dict
        Weights that must not be negative (1) or not positive (-1), by the part that they are of, such as ``{"pairs": 1}`` or
        ``{"features": array}``, with zeros for free ones. "attractive": pairs prefer equal labels, which makes graph cuts exact for
        binary ones. The solvers "one-slack" and "bundle" can.
    device : str
        Where to train: "cpu", the processor; "cuda", "cuda:1" and so on, a GPU, by PyTorch (`maxmargin.devices`), for solvers that
        work on all examples at once; "torch" is PyTorch on the processor. Predictions are made on the processor.
    max_memory : int, str or None
        Refuse to train if that would take more memory than this, in bytes or as in "4GB", with an estimate of its parts, before it
        is allocated; None is no limit.

    Attributes
    ----------
    classes_ : array (K,)
        The classes found in y, sorted if they can be compared.
    coef_, intercept_ : array (K, p), array (K,)
        Weights of each class; the intercept is 0 with ``fit_intercept=False``.
    dual_coef_, support_, support_vectors_ : array (K, s), int array (s,), array or CSR matrix (s, p)
        With a kernel, in the place of ``coef_``: coefficients of the training rows that count, their numbers, and the rows.
    basis_coef_, basis_vectors_, basis_residual_ : array (K, k), array or CSR matrix (k, p), float
        With ``n_basis``, in the place of these: coefficients of the basis, its rows, and the share of k(x, x) that it misses.
    result_ : Result
        Status, certificate and history of training.
    C_, validation_path_ : float, list of (C, loss, gap, n_passes, seconds, standard_error)
        C as given or chosen, and the values that were tried, with the held-out task loss; `maxmargin.plot_path` draws them.
    temperature_ : float
        What scores are divided by to become log-probabilities.
    inference_ : str
        How the best class would be found by an engine.
    n_features_in_, feature_names_in_ : int, array (p,)
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
        """Score of each class, (n, K); of two classes, as scikit-learn has it, by how much the second is ahead, (n,).

        Parameters
        ----------
        X : array, CSR matrix or data frame (n, p)
            Features of the examples.
        """
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def _problem(
        self, features: Any, states: NDArray[np.int32], n_classes: int, loss: Any, weight: NDArray[np.float64]
    ) -> FactorGraphs:
        return multi_class_problem(features, states, n_classes, loss, weight)

    def _name_weights(self) -> None:
        name_blocks(self, len(self.classes_))

"""BinarySVM: one of two classes for each example.

    score(x) = coef_[0] . x + intercept_[0],     classes_[1] if it is positive, else classes_[0]

The hinge is ``max(0, 1 - t score(x))`` with t = 1 for ``classes_[1]`` and -1 for ``classes_[0]``. So C times the
objective, ``|w|^2 / 2 + C/n sum hinge``, is that of scikit-learn's ``LinearSVC(C / n, loss="hinge")`` on the same features,
where the constant feature, if any, is one of them. With costs, the hinge is ``max(0, cost - t score(x))``.

The losses of SVM-perf, such as F1 and the area under the ROC curve, are of all predictions together (maxmargin/measures). Where
such a loss compares scores with each other alone, training learns no threshold, and the intercept is then chosen so that as many
training examples have a positive score as the measure counts: k, or as many as are positive.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Tags

from maxmargin.errors import DataError, OptionError
from maxmargin.estimators.choosing import SOME
from maxmargin.estimators.feature_space import name_blocks
from maxmargin.estimators.one_variable import OneVariableClassifier
from maxmargin.estimators.stopping import Watch
from maxmargin.measures import CountMeasure, MeasureProblem, PairMeasure, is_measure
from maxmargin.problems import FactorGraphs, Features, binary_problem
from maxmargin.problems.conditionals import temperature_of

#: The measures that error messages name; those with a number may have another.
MEASURES = ("f1", "precision@10%", "recall@10%", "break-even", "roc-area")


class BinarySVM(OneVariableClassifier):
    """Classifier of two classes.

    Parameters
    ----------
    C : float, list of float or "auto"
        Strength of the loss in ``1/(2C) |w|^2 + mean loss``: ``C = n * c`` for scikit-learn's ``c``, and SVM-struct's own C. "auto"
        chooses it on held-out examples; of a list, the value whose held-out loss is least is taken.
    class_weight : None, "balanced" or dict
        Weight of the examples of each class: "balanced" is n / (2 count), and a class left out of a dict has 1.
    solver : str or solver
        "auto", a name in `maxmargin.solvers.SOLVERS`, or a solver with options of its own.
    inference : str or engine
        Has nothing to do here: an example is one variable, whose best state is found without an engine.
    loss : "hamming", "zero-one", array (2, 2) or a measure
        "hamming" and "zero-one" are the same here; an array has the costs ``loss[truth, predicted]``, with a diagonal of zeros. A
        measure is of all predictions together, with ``classes_[1]`` as the positive class: "f1" (or "f0.5", "f2"), "precision@100",
        "precision@10%", "recall@100", "break-even" (precision = recall), "roc-area"; weights of examples are for the F scores
        alone.
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
    classes_ : array (2,)
        The classes found in y, sorted if they can be compared.
    coef_, intercept_ : array (1, p), array (1,)
        Weights of the score; the intercept is 0 with ``fit_intercept=False``.
    dual_coef_, support_, support_vectors_ : array (1, s), int array (s,), array or CSR matrix (s, p)
        With a kernel, in the place of ``coef_``: coefficients of the training rows that count, their numbers, and the rows.
    basis_coef_, basis_vectors_, basis_residual_ : array (1, k), array or CSR matrix (k, p), float
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
    >>> from maxmargin import BinarySVM
    >>> model = BinarySVM(C=100).fit([[0.0], [1.0], [2.0], [3.0]], ["low", "low", "high", "high"])
    >>> model.predict([[-1.0], [5.0]]).tolist()
    ['low', 'high']
    """

    task = "binary"
    losses: tuple[str, ...] = (*OneVariableClassifier.losses, *MEASURES)

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Score of each example, (n,): positive for ``classes_[1]``.

        Parameters
        ----------
        X : array, CSR matrix or data frame (n, p)
            Features of the examples.
        """
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

    @property
    def _has_measure(self) -> bool:
        return isinstance(self.loss, str) and self.loss not in OneVariableClassifier.losses

    def knows_loss(self, name: str) -> bool:
        """Whether there is a loss of this name.

        Parameters
        ----------
        name : str
            Such as "hamming" or "f1".
        """
        return name in OneVariableClassifier.losses or is_measure(name)

    def _problem(
        self, features: Any, states: NDArray[np.int32], n_classes: int, loss: Any, weight: NDArray[np.float64]
    ) -> FactorGraphs | MeasureProblem:
        if not self._has_measure:
            return binary_problem(features, states, loss, weight)
        measure: Any = PairMeasure(states.astype(np.int64)) if self.loss == "roc-area" else None
        if measure is None:
            measure = CountMeasure(self.loss, states == 1, weight / weight.mean())
        if not measure.learns_threshold and (weight != weight[0]).any():
            raise OptionError(
                f"loss={self.loss!r} compares scores of examples with each other, in which they have no weights of their own; "
                "leave sample_weight and class_weight out."
            )
        return MeasureProblem(features, measure, constant=bool(self.fit_intercept))

    def _train(self, problem: FactorGraphs | MeasureProblem, features: Features, watch: Watch | None = None) -> None:
        super()._train(problem, features, watch)
        if isinstance(problem, MeasureProblem):
            if not self.result_.weights.any():
                warnings.warn(
                    f"No weights have a smaller bound of the loss {self.loss!r} than zero, which these are: the classes overlap "
                    'too much for it, or C is too small. Try class_weight="balanced" with an F score, or loss="roc-area".',
                    UserWarning,
                    stacklevel=3,
                )
            for result in self.path_.values():
                if self.fit_intercept and not problem.measure.learns_threshold:
                    result.weights = result.weights.copy()
                    result.weights[-1] -= threshold(problem.scores(result.weights), problem.measure.n_predicted)
            graphs = binary_problem(problem.variable_features, problem.measure.kinds)
            self.temperature_ = temperature_of(graphs, self.result_.weights, SOME)

    def _name_weights(self) -> None:
        name_blocks(self, 1)


def threshold(scores: NDArray[np.float64], k: int) -> float:
    """The middle between the k-th largest score and the next."""
    ordered = np.sort(scores)[::-1]
    return float(ordered[k - 1] + ordered[k]) / 2.0 if k < len(ordered) else float(ordered[-1]) - 1.0

"""MultiLabelSVM: a set of labels for each example, scored by label and by pair of labels.

    score(x, y) = sum_i (coef_[i] . x + intercept_[i]) y_i + sum_{e = (i, j) in edges_} edge_coef_[e] y_i y_j

Trained on ``1/(2C) |w|^2 + mean hinge``; ``fit`` accepts what `estimators.labels` describes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from maxmargin.errors import DataError, OptionError
from maxmargin.estimators import labels as target
from maxmargin.estimators.base import Prepared, shared
from maxmargin.estimators.confidence import Sure
from maxmargin.estimators.feature_space import name_blocks, prediction_rows, training_rows
from maxmargin.estimators.given_features import check_features, compare_columns, remember_columns
from maxmargin.estimators.missing import known_rows, note_unknown, unknown_entries
from maxmargin.estimators.names import Auto, COption, InferenceOption, Objective, SolverOption
from maxmargin.estimators.online import OnlineMixin
from maxmargin.estimators.parameters import check_parameters
from maxmargin.estimators.prediction import StructuredPredictor
from maxmargin.estimators.pruning import PruningMixin
from maxmargin.estimators.signs import with_signs
from maxmargin.estimators.stopping import Watch
from maxmargin.inference import MapResult
from maxmargin.packed.data import room_for
from maxmargin.problems import FactorGraphs, label_edges, multi_label_problem
from maxmargin.problems.conditionals import conditional_scores


class MultiLabelSVM(OnlineMixin, PruningMixin, StructuredPredictor):
    """Multi-label classifier that learns which labels go together.

    Parameters
    ----------
    C : float, list of float or "auto"
        Strength of the loss in ``1/(2C) |w|^2 + mean loss``: ``C = n * c`` for scikit-learn's ``c``, and SVM-struct's own C. "auto"
        chooses it on held-out examples; of a list, the value whose held-out loss is least is taken.
    edges : "full", "tree", "none" or list of pairs
        Which pairs of labels have a weight: every pair, the tree of greatest mutual information, none, or these, by their names or
        by the numbers of their columns.
    class_weight : None, "balanced" or dict
        What the cost of a wrong label is multiplied by. A dict has a number for each label, 1 for those left out. "balanced" is
        n / (2 count), with the count of examples that have the label where it is on, and of the others where it is off.
    solver : str or solver
        "auto", a name in `maxmargin.solvers.SOLVERS`, or a solver with options of its own.
    inference : str or engine
        Who finds labelings, in training and in prediction alike, unless a solver object names an engine of its own: "auto" (exact
        where that is cheap, else a relaxation, rounded and improved), or an engine of `maxmargin.inference`. Solvers that ask no
        engine, such as "soft-bcfw", train without it.
    loss : "hamming", "fraction", "count", "zero-one" or array (L,), (2, 2) or (L, 2, 2)
        Task loss of a wrong label: 1 over the number of labels ("hamming" and "fraction" are the same here), 1 ("count"), or costs,
        which are divided by the number of labels: of each label; ``loss[truth, predicted]`` of all labels, where 0 is off and 1 is
        on, so that a missed label costs ``loss[1, 0]``; or such a table for each label, in the order of ``classes_``.
        "zero-one" is 1 for every set of labels but the true one, on graphs without cycles.
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
    classes_ : array (L,)
        The labels: those found in the lists, the columns' names of a data frame, or 0 to L - 1.
    coef_, intercept_ : array (L, p), array (L,)
        Weights of each label; the intercept is 0 with ``fit_intercept=False``.
    edges_, edge_coef_ : int array (E, 2), array (E,)
        Pairs of columns, and the weight of both being on.
    dual_coef_, support_, support_vectors_ : array (L, s), int array (s,), array or CSR matrix (s, p)
        With a kernel, in the place of ``coef_``: coefficients of the training rows that count, their numbers, and the rows.
    basis_coef_, basis_vectors_, basis_residual_ : array (L, k), array or CSR matrix (k, p), float
        With ``n_basis``, in the place of these: coefficients of the basis, its rows, and the share of k(x, x) that it misses.
    result_ : Result
        Status, certificate and history of training.
    C_, validation_path_ : float, list of (C, loss, gap, n_passes, seconds, standard_error)
        C as given or chosen, and the values that were tried, with the held-out task loss; `maxmargin.plot_path` draws them.
    temperature_ : float
        What scores are divided by to become log-probabilities.
    inference_ : str
        How predictions are made, and why.
    n_features_in_, feature_names_in_ : int, array (p,)
        The latter only if X was a data frame with columns named by strings.

    Examples
    --------
    >>> from maxmargin import MultiLabelSVM, make_synth2
    >>> X, Y = make_synth2(100)
    >>> model = MultiLabelSVM(C=1000).fit(X, Y)
    >>> model.predict(X).shape
    (100, 10)
    """

    task = "multi-label"

    def __init__(
        self,
        C: COption = "auto",
        *,
        edges: Any = "full",
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
        self.edges = edges
        self.class_weight = class_weight

    def fit(
        self,
        X: Any,
        Y: Any,
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
        Y : array, sparse matrix or data frame of zeros and ones (n, L), or list of n collections of labels
            NaN, None or a masked entry is a label that is not known: it is left out of training, with its pairs.
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
        watch = Watch(self, (X, Y), eval_set, eval_metric, patience, callbacks)

        def finish(model: Any) -> None:
            remember_columns(model, X)
            model.classes_ = given.classes
            vars(model).update(given.attributes)
            model._name_weights()

        with room_for(X):
            given = self.prepare(X, Y, sample_weight)
            self._fit(given.problem, given.features, finish, watch)
        note_unknown(self, len(given.classes) * given.features.shape[0] - len(given.problem.labels))
        return self

    def prepare(
        self, X: Any, Y: Any, sample_weight: ArrayLike | None = None, known: NDArray[Any] | None = None
    ) -> Prepared:
        """The problem of `fit`; of a shard of the data if the labels of all of it are known.

        Parameters
        ----------
        X, Y : as in `fit`
        sample_weight : array (n,), optional
            A weight for each example.
        known : array, optional
            The labels of all data, of which this is a shard.
        """
        if Y is None:
            raise DataError("MultiLabelSVM requires y to be passed, but the target y is None.")
        features = check_features(X)
        lists = target.is_lists(Y)
        values, found = (Y, None) if lists else unknown_entries(Y)
        encoded, classes = target.encode_lists(Y, known) if lists else target.encode_array(values)
        if known is not None and classes.tolist() != known.tolist():
            raise DataError(f"Y has the labels {classes.tolist()} here and {known.tolist()} elsewhere.")
        _check_lengths(features.shape[0], len(encoded))
        edges = self.pairs_of(classes, encoded, found)
        costs = self._label_costs(encoded, classes, found)
        rows = known_rows(found)
        weight = target.example_weights(sample_weight, len(encoded), "example")
        problem = multi_label_problem(
            training_rows(self, features, ordered=known is None and self.signs is None),
            encoded,
            edges,
            len(classes),
            target.label_costs(self.loss, classes),
            None if sample_weight is None else weight,
            found,
        )
        if costs is not None:
            problem = problem.with_costs(costs)
        problem = with_signs(self, problem, classes_=classes, n_features_in_=features.shape[1], edges_=edges)
        mass = float((weight if rows is None else weight[rows]).sum())
        return Prepared(problem, features, classes, mass, {"edges_": edges, "_lists": lists})

    def pairs_of(
        self, classes: NDArray[Any], encoded: NDArray[np.int8], known: NDArray[np.bool_] | None = None
    ) -> NDArray[np.int64]:
        """The pairs of columns (E, 2) that have a weight.

        Parameters
        ----------
        classes : array (L,)
            The labels.
        encoded : array (n, L)
            Rows of zeros and ones, by which a tree is chosen.
        known : bool array (n, L), optional
            Which of them are known.
        """
        return label_edges(_numbers(self.edges, classes), encoded, known)

    def score(self, X: Any, Y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Mean fraction of labels that are right: 1 - Hamming loss. A label that was not seen in training is never predicted.

        With an engine that rounds nothing (``inference=GraphCut(rounding="fraction")``), a label that the relaxation leaves open is
        half right.

        Parameters
        ----------
        X : array, CSR matrix or data frame (n, p)
            Features of the examples.
        Y : lists of labels, or array, sparse matrix or data frame (n, L) of zeros and ones
            The true labels. Those that are not known, NaN or None, do not count, nor do rows without a known one.
        sample_weight : array (n,), optional
            How much each example counts.
        """
        check_is_fitted(self)
        unseen: NDArray[np.bool_] | None = None
        if target.is_lists(Y):
            Y, unseen = target.without_unseen(Y, self.classes_)
        values, known = (Y, None) if unseen is not None else unknown_entries(Y)
        rows = known_rows(known)
        truth = self._encode(values)
        _, found = self._predict(X)
        _check_lengths(len(found.values), len(truth))
        equal: NDArray[Any] = found.labels.reshape(truth.shape) == truth
        if getattr(self.inference, "rounding", None) == "fraction" and found.ambiguous is not None:
            equal = np.where(found.ambiguous.reshape(truth.shape), 0.5, equal)
        weight = target.score_weights(sample_weight, len(equal), "example")
        if known is not None and rows is not None:
            right = (equal * known)[rows].sum(axis=1) / known[rows].sum(axis=1)
            return float(np.average(right, weights=target.score_weights(weight[rows], len(rows), "example")))
        right = (equal if unseen is None else np.hstack([equal, ~unseen])).mean(axis=1)
        return float(np.average(right, weights=weight))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = not tags.input_tags.pairwise
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = False
        return tags

    def _label_costs(
        self, encoded: NDArray[np.int8], classes: NDArray[Any], known: NDArray[np.bool_] | None
    ) -> NDArray[np.float64] | None:
        """What the cost of each known label of each example is multiplied by; None if by nothing."""
        if isinstance(self.class_weight, str) and self.class_weight == "balanced":
            seen = np.ones(encoded.shape, bool) if known is None else known
            n, on = seen.sum(axis=0), (encoded * seen).sum(axis=0, dtype=np.float64)
            costs = np.where(encoded == 1, n / (2.0 * np.maximum(on, 1.0)), n / (2.0 * np.maximum(n - on, 1.0)))
        else:
            weight = target.class_weights(self.class_weight, classes, np.arange(len(classes), dtype=np.int32))
            if weight is None:
                return None
            costs = np.broadcast_to(weight, encoded.shape)
        return np.asarray(costs.ravel() if known is None else costs[known])

    def _task_parts(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        return {"lists": bool(self._lists)}, {"edges": np.asarray(self.edges_, np.int64)}

    def _restore_task(
        self, header: dict[str, Any], arrays: dict[str, NDArray[Any]], classes: NDArray[Any], width: int
    ) -> int:
        target.label_costs(self.loss, classes)
        self.edges_ = label_edges(arrays["edges"], np.empty((0, len(classes))))
        self._lists = bool(header["lists"])
        return len(classes) * width + len(self.edges_)

    def _new_problem(self, X: Any) -> FactorGraphs:
        features = check_features(X)
        compare_columns(self, X)
        return multi_label_problem(prediction_rows(self, features), None, self.edges_, len(self.classes_))

    def _present(self, states: NDArray[np.int32], problem: FactorGraphs) -> Any:
        """Zeros and ones (n, L), or lists of labels if trained on lists."""
        on = states.reshape(-1, len(self.classes_)).astype(np.int64)
        return [self.classes_[row == 1].tolist() for row in on] if self._lists else on

    def _present_found(self, found: MapResult, problem: FactorGraphs) -> Any:
        """The same; an open label that an engine does not round is one half, in an array."""
        on = self._present(found.labels, problem)
        if self._lists or found.ambiguous is None or getattr(self.inference, "rounding", None) != "fraction":
            return on
        return np.where(found.ambiguous.reshape(on.shape), 0.5, on)

    def _nothing(self) -> Any:
        return [] if self._lists else np.empty((0, len(self.classes_)), np.int64)

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """By how much each label raises the score, the other labels as predicted, (n, L): positive where it is predicted.

        Where inference is not exact, a label may be predicted that a change of this one label alone would improve.

        Parameters
        ----------
        X : array, CSR matrix or data frame (n, p)
            Features of the examples.
        """
        check_is_fitted(self)
        if target.is_empty(X):
            return np.empty((0, len(self.classes_)))
        problem, found = self._predict(X)
        given = conditional_scores(problem, problem.scores(self._flat_weights(problem)), found.labels).reshape(-1, 2)
        return np.asarray(given[:, 1] - given[:, 0]).reshape(-1, len(self.classes_))

    def _present_marginals(self, marginals: NDArray[np.float64], problem: FactorGraphs) -> NDArray[np.float64]:
        """Probability of each label, (n, L)."""
        return marginals[1::2].reshape(-1, len(self.classes_))

    def _lay_out(self, values: NDArray[Any], sure: Sure) -> Any:
        """Of labels (n, L), of examples (n,)."""
        return values if len(values) == len(sure.sizes) else values.reshape(-1, len(self.classes_))

    def _truth(self, y: Any, sure: Sure) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
        Y, known = unknown_entries(target.without_unseen(y, self.classes_)[0] if target.is_lists(y) else y)
        truth = self._encode(Y)
        _check_lengths(len(sure.sizes), len(truth))
        return truth.ravel().astype(np.int32), np.ones(truth.size, bool) if known is None else known.ravel()

    def _encode(self, Y: Any) -> NDArray[np.int8]:
        """Zeros and ones of a target of either kind, in the order of ``classes_``."""
        check_is_fitted(self)
        if target.is_lists(Y):
            return target.encode_lists(Y, self.classes_)[0]
        encoded, names = target.encode_array(Y)
        if encoded.shape[1] != len(self.classes_):
            raise DataError(f"Y has {encoded.shape[1]} columns; the model has {len(self.classes_)} labels.")
        if hasattr(Y, "columns") and names.tolist() != self.classes_.tolist() and not _numbered(self.classes_):
            raise DataError("The columns of Y are named differently, or stand in another order, than in training.")
        return encoded

    def _name_weights(self) -> None:
        """Views of the flat weights under their names."""
        self.edge_coef_ = name_blocks(self, len(self.classes_))


def _check_lengths(n_rows: int, n_targets: int) -> None:
    if n_rows != n_targets:
        raise DataError(f"X has {n_rows} rows, but Y has {n_targets}; expected a row of Y for each row of X.")


def _numbers(edges: Any, classes: NDArray[Any]) -> Any:
    """Pairs of labels as pairs of columns, if they are pairs of names."""
    if isinstance(edges, str) or not isinstance(edges, Iterable):
        return edges
    pairs = list(edges)
    names = [name for pair in pairs if isinstance(pair, tuple | list) for name in pair]
    if not any(isinstance(name, str) for name in names):
        return edges
    column = {label: k for k, label in enumerate(classes.tolist())}
    for name in names:
        if name not in column:
            raise OptionError(f"edges names the label {name!r}, which is not in Y; the labels are {list(column)}.")
    return [[column[name] for name in pair] for pair in pairs]


def _numbered(classes: NDArray[Any]) -> bool:
    return bool(classes.tolist() == list(range(len(classes))))

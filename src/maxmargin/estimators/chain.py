"""ChainSVM: a tag for each position of a sequence, scored by position and by neighbouring tags.

    score(x, y) = sum_t (coef_[y_t] . x_t + intercept_[y_t]) + sum_t transition_coef_[y_{t-1}, y_t]
                  + start_coef_[y_1] + end_coef_[y_T]                                                  boundary=True
                  + sum_t transition2_coef_[y_{t-2}, y_{t-1}, y_t]                                     order=2
                  + sum_t emission_coef_[y_{t-1}, y_t] . x_t                                           emission_order=1, 2
                  + sum_t emission2_coef_[y_{t-2}, y_{t-1}, y_t] . x_t                                 emission_order=2

With ``order=0`` there are no transitions. A sequence is a matrix (length, p), or a list of positions that a vectoriser makes
one of (``maxmargin.features``); weights are shared over positions and sequences.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import Tags

from maxmargin.errors import DataError, OptionError
from maxmargin.estimators import labels as target
from maxmargin.estimators.base import Prepared, shared
from maxmargin.estimators.confidence import Sure
from maxmargin.estimators.feature_space import is_linear, name_blocks, prediction_rows, training_rows
from maxmargin.estimators.given_features import compare_columns, remember_columns
from maxmargin.estimators.missing import known_positions, note_unknown
from maxmargin.estimators.names import Auto, COption, InferenceOption, Objective, SolverOption
from maxmargin.estimators.online import OnlineMixin
from maxmargin.estimators.parameters import check_parameters
from maxmargin.estimators.prediction import StructuredPredictor
from maxmargin.estimators.pruning import PruningMixin
from maxmargin.estimators.restoring import size_of
from maxmargin.estimators.sequences import (
    check_sequences,
    check_tags,
    kind_of,
    known_states,
    lengths_of,
    vectoriser_for,
)
from maxmargin.estimators.signs import with_signs
from maxmargin.estimators.stopping import Watch
from maxmargin.estimators.transitions import check_constraints, check_possible, constraints
from maxmargin.features.vectoriser import FeatureColumns
from maxmargin.packed.data import PackedSequences, room_for
from maxmargin.problems import FactorGraphs, Features, chain_problem
from maxmargin.problems.chains import chain_blocks, check_orders
from maxmargin.solvers.core.result import Result, Status

#: Most weights that features in the context of other tags may take: 4 GB.
MOST_WEIGHTS = 2**29
#: What some models have and others have not.
_OPTIONAL = ("start_coef_", "end_coef_", "transition2_coef_", "emission_coef_", "emission2_coef_", "vectoriser_")


class ChainSVM(OnlineMixin, PruningMixin, StructuredPredictor):
    """Tagger of sequences that learns which tags follow each other.

    Parameters
    ----------
    C : float, list of float or "auto"
        Strength of the loss in ``1/(2C) |w|^2 + mean loss``: ``C = n * c`` for scikit-learn's ``c``, and SVM-struct's own C. "auto"
        chooses it on held-out examples; of a list, the value whose held-out loss is least is taken.
    boundary : bool
        Learn a weight for each tag at the first and at the last position.
    forbidden : list of (tag, tag), optional
        Transitions that are never predicted, and that may not be in the training data.
    bio : bool
        Tags are "O", "B-kind" and "I-kind", and I-kind stands only after B-kind and I-kind: no other I is ever predicted, nor
        may it be in the training data.
    order : 0, 1 or 2
        How many tags before its own a position's transitions know.
    emission_order : 0, 1 or 2
        How many tags before its own a position's features know, at most `order`. There are p more weights for each pair of
        tags with 1, and for each triple with 2.
    features : TextFeatures or Vectoriser, optional
        What makes features of the positions. Without, positions are rows of matrices; words, for which there is `TextFeatures`; or
        dicts or lists of strings, for which there is a `Vectoriser`. `TextFeatures` takes tuples that begin with a word, too.
    class_weight : None, "balanced" or dict
        What the cost of a position is multiplied by, by its true tag: "balanced" is n / (K count) over all n positions,
        and a tag left out of a dict has 1.
    solver : str or solver
        "auto", a name in `maxmargin.solvers.SOLVERS`, or a solver with options of its own.
    inference : str or engine
        Who finds labelings, in training and in prediction alike, unless a solver object names an engine of its own: "auto" (exact
        where that is cheap, else a relaxation, rounded and improved), or an engine of `maxmargin.inference`. Solvers that ask no
        engine, such as "soft-bcfw", train without it.
    loss : "hamming", "fraction", "count", "zero-one" or array (K, K)
        Task loss of a wrong tag: the same for all, so that the mean loss is the fraction of all tags that are wrong; one over the
        length of its sequence, so that every sequence counts the same; 1; or costs ``loss[truth, predicted]`` in the order of
        ``classes_``, with a diagonal of zeros, whose sum over a sequence is divided by the mean length. "zero-one" is 1 for every
        sequence of tags but the true one.
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
    kernel : "linear", "rbf", "poly" or callable
        Inner products of the rows of features of positions; a callable takes two matrices and returns theirs. Weights of
        transitions are always linear.
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
        The tags found in y, sorted if they can be compared.
    coef_, intercept_ : array (K, p), array (K,)
        Weights of each tag; the intercept is 0 with ``fit_intercept=False``.
    transition_coef_ : array (K, K)
        Weight of a tag (row) followed by another (column); zeros with ``order=0``.
    start_coef_, end_coef_ : arrays (K,)
        Weights of the first and of the last tag; not there with ``boundary=False``.
    transition2_coef_ : array (K, K, K)
        With ``order=2``, weight of three tags in a row.
    emission_coef_, emission2_coef_ : array (K, K, p), array (K, K, K, p)
        With ``emission_order``, weights of the features of a position by its tag, the last index of tags, and those before.
    forbidden_, forbidden_first_ : bool array (K, K), bool array (K,), or None
        The transitions and the first tags that are never predicted.
    vectoriser_ : Vectoriser or TextFeatures
        What makes features of positions, if these are no matrices.
    dual_coef_, support_, support_vectors_ : array (K, s), int array (s,), array or CSR matrix (s, p)
        With a kernel, in the place of ``coef_``: coefficients of the training rows that count, their numbers, and the
        rows: positions, one sequence after another.
    result_ : Result
        Status, certificate and history of training.
    C_, validation_path_ : float, list of (C, loss, gap, n_passes, seconds, standard_error)
        C as given or chosen, and the values that were tried, with the held-out task loss; `maxmargin.plot_path` draws them.
    temperature_ : float
        What scores are divided by to become log-probabilities.
    inference_ : str
        How predictions are made, and why.
    n_features_in_, feature_names_in_ : int, array (p,)
        The latter only if the sequences were data frames with columns named by strings, or had a vectoriser that names its
        columns.

    Examples
    --------
    >>> from maxmargin import ChainSVM
    >>> model = ChainSVM(C=100).fit([[[1.0], [0.0]], [[0.0], [1.0], [0.0]]], [["b", "a"], ["a", "b", "a"]])
    >>> [tags.tolist() for tags in model.predict([[[0.0], [1.0]]])]
    [['a', 'b']]
    """

    task = "chain"
    kernels = ("linear", "rbf", "poly")

    def __init__(
        self,
        C: COption = "auto",
        *,
        boundary: bool = True,
        forbidden: Sequence[tuple[Any, Any]] | None = None,
        bio: bool = False,
        order: int = 1,
        emission_order: int = 0,
        features: Any = None,
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
        self.boundary = boundary
        self.forbidden = forbidden
        self.bio = bio
        self.order = order
        self.emission_order = emission_order
        self.features = features
        self.class_weight = class_weight

    def fit(
        self,
        X: Sequence[Any],
        y: Sequence[Any],
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
        X : list of arrays, CSR matrices or data frames (length, p), or of lists of positions
            A matrix for each sequence, with a row for each position, at least one; or a list of positions, each a word, a dict of
            features or a list of strings.
        y : list of sequences of tags
            A tag for each position: strings, numbers or other values that are hashable. None or NaN is a tag that is not known: the
            position is left out of training, with its transitions, and the pieces of the sequence keep theirs.
        sample_weight : array, optional
            A weight for each sequence.
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
        self._check_parameters()
        watch = Watch(self, (X, y), eval_set, eval_metric, patience, callbacks)

        def finish(model: Any) -> None:
            for name in _OPTIONAL:
                vars(model).pop(name, None)
            model.classes_ = given.classes
            vars(model).update(given.attributes)
            if vectoriser is None:
                remember_columns(model, X[0])
            else:
                model._keep_vectoriser(vectoriser)
            model._name_weights()

        with room_for(X):
            given = self.prepare(X, y, sample_weight)
            vectoriser = given.attributes.pop("vectoriser_")
            self._fit(given.problem, given.features, finish, watch)
        note_unknown(self, given.features.shape[0] - len(given.problem.labels))
        return self

    def prepare(
        self,
        X: Sequence[Any],
        y: Sequence[Any],
        sample_weight: ArrayLike | None = None,
        known: NDArray[Any] | None = None,
    ) -> Prepared:
        """The problem of `fit`; of a shard of the data if the tags of all of it are known.

        Parameters
        ----------
        X, y : as in `fit`
        sample_weight : array, optional
            A weight for each sequence.
        known : array, optional
            The tags of all data, of which this is a shard.
        """
        packed = isinstance(X, PackedSequences)
        vectoriser = X.vectoriser if isinstance(X, PackedSequences) else vectoriser_for(self.features, X)
        if vectoriser is not None and vectoriser.n_hash is None and known is not None and not packed:
            raise OptionError(
                "Words and features by name need columns that all shards share; give features=TextFeatures(n_hash=2**20) or "
                "Vectoriser(n_hash=2**20), whose columns do not depend on the data."
            )
        features: Features
        if isinstance(X, PackedSequences):
            _check_packed(self, vectoriser)
            features, lengths = X.features, X.lengths
        elif vectoriser is None:
            features, lengths = check_sequences(X)
        else:
            features, lengths = vectoriser.fit_features(X), lengths_of(X)
        place, tags = check_tags(y, lengths)
        given = known_positions(place, tags)
        classes = target.distinct(tag for tag in tags if not target.is_missing(tag)) if known is None else known
        target.check_several(classes, "ChainSVM")
        _check_size(len(classes), features.shape[1], self.order, self.emission_order)
        states = known_states(place, tags, lengths, classes, given)
        forbidden, first = constraints(self, classes)
        check_constraints(states, lengths, forbidden, first, classes)
        weight = None if sample_weight is None else target.example_weights(sample_weight, len(lengths), "sequence")
        rows, width = training_rows(self, features, ordered=known is None and self.signs is None), features.shape[1]
        if is_linear(self) and not self.emission_order:
            # Nothing reads the rows without the constant any more.
            features = rows
        problem = self._problem(
            rows,
            features,
            lengths,
            len(classes),
            (forbidden, first),
            states,
            target.cost_table(self.loss, classes),
            weight,
            given,
        )
        by_tag = target.class_weights(self.class_weight, classes, problem.labels)
        if by_tag is not None:
            problem = problem.with_costs(by_tag[problem.labels])
        problem = with_signs(self, problem, classes_=classes, n_features_in_=width)
        mass = float(len(lengths) if weight is None else weight.sum())
        if given is not None:
            some = np.logical_or.reduceat(given, np.cumsum(lengths) - lengths)
            mass = float(some.sum() if weight is None else weight[some].sum())
        found = {"forbidden_": forbidden, "forbidden_first_": first, "vectoriser_": vectoriser}
        return Prepared(problem, features, classes, mass, found)

    @classmethod
    def from_weights(
        cls,
        classes: Sequence[Any],
        coef: ArrayLike,
        transition_coef: ArrayLike,
        intercept: ArrayLike | None = None,
        start_coef: ArrayLike | None = None,
        end_coef: ArrayLike | None = None,
        **parameters: Any,
    ) -> Self:
        """A model of given weights, as if it was trained; ``result_`` has no certificate.

        Parameters
        ----------
        classes : K tags
        coef, transition_coef : array (K, p), array (K, K)
        intercept : array (K,), optional
        start_coef, end_coef : arrays (K,), optional
            Both or none.
        parameters : of the constructor
            For prediction, and to train again; ``boundary``, ``fit_intercept`` and ``order`` follow from the weights.
        """
        if (start_coef is None) != (end_coef is None):
            raise OptionError("start_coef and end_coef must be given together, or neither of them.")
        model = cls(
            **parameters,
            boundary=start_coef is not None,
            fit_intercept=intercept is not None,
            order=1,
            emission_order=0,
        )
        check_parameters(model)
        check_chain_options(model)
        tags = target.as_vector(list(classes))
        target.check_several(tags, "ChainSVM")
        k = len(tags)
        rows = np.array(coef, np.float64)
        if rows.ndim != 2 or len(rows) != k or rows.shape[1] == 0 or len(set(tags.tolist())) != k:
            raise DataError(f"coef has shape {rows.shape}; expected a row for each of {k} classes that differ.")
        parts: list[tuple[Any, str, tuple[int, ...]]] = []
        if intercept is not None:
            parts.append((intercept, "intercept", (k,)))
        parts.append((transition_coef, "transition_coef", (k, k)))
        if start_coef is not None:
            parts += [(start_coef, "start_coef", (k,)), (end_coef, "end_coef", (k,))]
        given = {}
        for value, name, shape in parts:
            given[name] = np.asarray(value, np.float64)
            if given[name].shape != shape:
                raise DataError(f"{name} has shape {given[name].shape}; expected {shape}.")
        columns = rows if intercept is None else np.column_stack([rows, given.pop("intercept")])
        weights = np.concatenate([columns.ravel(), *(value.ravel() for value in given.values())])
        if not np.isfinite(weights).all():
            raise DataError("The weights must be finite numbers.")
        model.result_ = Result(
            Status.MAX_PASSES, weights, np.inf, -np.inf, np.inf, "none", 0, 0, 0.0, {}, "given weights"
        )
        model.C_ = float("nan") if isinstance(model.C, str) else float(np.max(model.C))
        model.result_.options["C"] = model.C_
        model.validation_path_, model.temperature_ = [], 1.0
        model.classes_, model.n_features_in_ = tags, rows.shape[1]
        model.forbidden_, model.forbidden_first_ = constraints(model, tags)
        model.inference_ = "trees (exact): no graph has a cycle"
        model._name_weights()
        return model

    def score(self, X: Sequence[Any], y: Sequence[Any], sample_weight: ArrayLike | None = None) -> float:
        """Fraction of the tags that are predicted right; a tag that was not seen in training never is.

        Parameters
        ----------
        X : list of sequences
            Matrices of features, words, dicts or lists of strings, as in `fit`.
        y : list of sequences of tags
            The true tags; those that are not known, None or NaN, do not count.
        sample_weight : array (n,), optional
            How much each sequence counts.
        """
        problem, found = self._predict(X)
        lengths = np.diff(problem.example_variables)
        truth, known = self._states_of(y, lengths)
        counts = np.repeat(target.score_weights(sample_weight, len(lengths), "sequence"), lengths)
        counts = counts * known
        if not counts.any():
            raise DataError("No sequence with a weight above 0 has a known tag: there is nothing to score.")
        return float(np.average(found.labels == truth, weights=counts))

    def _states_of(self, y: Sequence[Any], lengths: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
        """The states of the tags of sequences, -1 for a tag that was not seen in training; and which tags are known."""
        place, tags = check_tags(y, lengths)
        known = known_positions(place, tags)
        states: NDArray[np.int32] = target.states_of(tags, self.classes_)[place]
        return states, np.ones(len(place), bool) if known is None else known

    def _truth(self, y: Any, sure: Sure) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
        return self._states_of(y, sure.sizes)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = False
        tags.no_validation = True
        return tags

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_chain_options(self)

    def _restore_task(
        self, header: dict[str, Any], arrays: dict[str, NDArray[Any]], classes: NDArray[Any], width: int
    ) -> int:
        target.check_costs(self, classes)
        target.check_several(classes, "ChainSVM")
        check_chain_options(self)
        self.forbidden_, self.forbidden_first_ = constraints(self, classes)
        blocks = chain_blocks(len(classes), bool(self.boundary), self.order)
        n_factor_blocks = max((one.stop for one in blocks.values()), default=0)
        n_factor_features = size_of(header, "n_features", 1) + 1 if self.emission_order else 1
        return len(classes) * width + n_factor_blocks * n_factor_features

    def _new_problem(self, X: Sequence[Any]) -> FactorGraphs:
        vectoriser = getattr(self, "vectoriser_", None)
        features: Features
        if isinstance(X, PackedSequences):
            self._check_packed_columns(X, vectoriser)
            features, lengths = X.features, X.lengths
        elif vectoriser is not None:
            features, lengths = vectoriser.features(X), lengths_of(X)
        elif kind_of(X) is not None:
            raise DataError("X holds features by name, or words, but the model was trained on matrices.")
        else:
            features, lengths = check_sequences(X)
            compare_columns(self, X[0])
        constrained = self.forbidden_, self.forbidden_first_
        check_possible(lengths, *constrained)
        return self._problem(prediction_rows(self, features), features, lengths, len(self.classes_), constrained)

    def _check_packed_columns(self, X: PackedSequences, vectoriser: FeatureColumns | None) -> None:
        """Refuse packed sequences whose columns are not those of training."""
        theirs = X.vectoriser
        if vectoriser is None and theirs is None:
            compare_columns(self, X[0])
            return
        known: Any = None if vectoriser is None else getattr(vectoriser, "feature_names_", vectoriser.n_hash)
        found: Any = None if theirs is None else getattr(theirs, "feature_names_", theirs.n_hash)
        if not np.array_equal(known, found):
            raise DataError(
                "The packed sequences have other columns than those that the model was trained on: words are packed with the "
                "vocabulary of their own text. Predict the text itself, or pack it with n_hash."
            )

    def _present(self, states: NDArray[np.int32], problem: FactorGraphs) -> list[NDArray[Any]]:
        """An array of tags a sequence."""
        return np.split(self.classes_[states], problem.example_variables[1:-1])

    def _problem(
        self,
        rows: Features,
        features: Features,
        lengths: NDArray[np.int64],
        n_tags: int,
        constrained: tuple[NDArray[np.bool_] | None, NDArray[np.bool_] | None],
        tags: NDArray[np.int32] | None = None,
        loss: Any = "hamming",
        weight: NDArray[np.float64] | None = None,
        known: NDArray[np.bool_] | None = None,
    ) -> FactorGraphs:
        return chain_problem(
            rows,
            tags,
            n_tags,
            bool(self.boundary),
            constrained[0],
            loss,
            weight,
            lengths,
            int(self.order),
            int(self.emission_order),
            constrained[1],
            features,
            known,
        )

    def _keep_vectoriser(self, vectoriser: FeatureColumns) -> None:
        self.vectoriser_ = vectoriser
        self.n_features_in_ = vectoriser.n_features_
        self.__dict__.pop("feature_names_in_", None)
        if vectoriser.n_hash is None:
            self.feature_names_in_ = vectoriser.feature_names_

    def _name_weights(self) -> None:
        """Views of the flat weights under their names."""
        n_tags, at = len(self.classes_), chain_blocks(len(self.classes_), bool(self.boundary), self.order)
        of_factors = name_blocks(self, n_tags).reshape(-1, self.n_features_in_ + 1 if self.emission_order else 1)
        # With order=0 there are none, and they score 0.
        self.transition_coef_ = np.zeros((n_tags, n_tags))
        for name, kind, depth in (
            ("transition_coef_", "pairs", 2),
            ("transition2_coef_", "triples", 3),
            ("start_coef_", "start", 1),
            ("end_coef_", "end", 1),
        ):
            if kind in at:
                setattr(self, name, of_factors[at[kind], -1].reshape((n_tags,) * depth))
        for order, name, kind in ((1, "emission_coef_", "pairs"), (2, "emission2_coef_", "triples")):
            if self.emission_order >= order:
                setattr(self, name, of_factors[at[kind], :-1].reshape((n_tags,) * (order + 1) + (-1,)))


def check_chain_options(estimator: ChainSVM) -> None:
    """Refuse, in a sentence, what a chain cannot have."""
    for name in ("boundary", "bio"):
        value = getattr(estimator, name)
        if not isinstance(value, bool | np.bool_):
            raise OptionError(f"{name}={value!r} is not possible; it must be True or False.")
    check_orders(estimator.order, estimator.emission_order)
    if estimator.emission_order and not is_linear(estimator):
        raise OptionError(
            f'emission_order={estimator.emission_order} is for kernel="linear": a kernel knows the tag of a position alone.'
        )
    if not (estimator.features is None or isinstance(estimator.features, FeatureColumns)):
        raise OptionError(
            f"features={estimator.features!r} is not possible; it must be a TextFeatures, a Vectoriser or None."
        )


def _check_packed(estimator: ChainSVM, vectoriser: FeatureColumns | None) -> None:
    """Refuse what would copy packed features, or make others of them."""
    if estimator.emission_order:
        raise OptionError(
            f"emission_order={estimator.emission_order} is not possible with packed data: such features would be written out for "
            "pairs of tags."
        )
    if estimator.features is not None and repr(estimator.features) != repr(vectoriser):
        raise OptionError(
            f"features={estimator.features!r} is not possible with this packed data, whose features were made by {vectoriser!r}."
        )


def _check_size(n_tags: int, p: int, order: int, emission_order: int) -> None:
    """Refuse more weights than memory is likely to hold; factors of all orders have as many features."""
    size = n_tags ** (order + 1) * (p + 1)
    if emission_order and size > MOST_WEIGHTS:
        raise DataError(
            f"With order={order} and emission_order={emission_order}, {n_tags} tags and {p} features make {size} weights; at "
            f"most {MOST_WEIGHTS} (maxmargin.estimators.chain.MOST_WEIGHTS) are allowed. Use fewer features, or lower orders."
        )

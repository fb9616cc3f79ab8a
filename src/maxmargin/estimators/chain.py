"""ChainSVM: a tag for each position of a sequence, scored by position and by neighbouring tags (Cutting section 3.2).

    score(x, y) = sum_t (coef_[y_t] . x_t + intercept_[y_t]) + sum_t transition_coef_[y_t, y_{t+1}]
                  + start_coef_[y_1] + end_coef_[y_T]

The last line is left out with ``boundary=False``. A sequence is a matrix (length, p); weights are shared over positions
and sequences.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Sequence
from itertools import chain
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import Tags

from maxmargin.errors import DataError, OptionError
from maxmargin.estimators import labels as target
from maxmargin.estimators.base import (
    check_parameters,
    compare_columns,
    remember_columns,
)
from maxmargin.estimators.feature_space import name_blocks, prediction_rows, training_rows
from maxmargin.estimators.prediction import StructuredPredictor
from maxmargin.problems import FactorGraphs, Features, chain_problem
from maxmargin.problems.chains import stack_examples


class ChainSVM(StructuredPredictor):
    """Tagger of sequences that learns which tags follow each other.

    Parameters
    ----------
    C : float
        Strength of the loss against the regulariser.
    boundary : bool
        Learn a weight for each tag at the first and at the last position.
    forbidden : list of (tag, tag), optional
        Transitions that are never predicted, and that may not be in the training data.
    class_weight : None, "balanced" or dict
        What the cost of a position is multiplied by, by its true tag: "balanced" is n / (K count) over all n positions,
        and a tag left out of a dict has 1.
    solver, inference, loss, tol, max_passes, max_seconds : see `maxmargin.estimators.base.StructuredEstimator`
    fit_intercept, random_state, n_jobs, verbose, warm_start, checkpoint, C_path, kernel, gamma, degree, coef0 : see there
        ``loss`` may also be an array (K, K) of costs ``loss[truth, predicted]`` in the order of ``classes_``, with a
        diagonal of zeros; the costs of a sequence are divided by its length. ``kernel`` cannot be "precomputed".

    Attributes
    ----------
    classes_ : array (K,)
        The tags found in y, sorted if they can be compared.
    coef_ : array (K, p), intercept_ : array (K,)
        Weights of each tag; the intercept is 0 with ``fit_intercept=False``.
    transition_coef_ : array (K, K)
        Weight of a tag (row) followed by another (column).
    start_coef_, end_coef_ : arrays (K,)
        Weights of the first and of the last tag; not there with ``boundary=False``.
    forbidden_ : bool array (K, K), or None
        The transitions that are never predicted.
    dual_coef_ : array (K, s), support_ : int array (s,), support_vectors_ : array or CSR matrix (s, p)
        With a kernel, in the place of ``coef_``: coefficients of the training rows that count, their numbers, and the
        rows: positions, one sequence after another.
    result_ : Result
        Status, certificate and history of training.
    inference_ : str
        How predictions are made, and why.
    n_features_in_ : int, feature_names_in_ : array (p,)
        The latter only if the sequences were data frames with columns named by strings.

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
        C: float = 1.0,
        *,
        boundary: bool = True,
        forbidden: Sequence[tuple[Any, Any]] | None = None,
        class_weight: Any = None,
        solver: Any = "auto",
        inference: Any = "auto",
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
    ) -> None:
        super().__init__(
            C,
            solver=solver,
            inference=inference,
            loss=loss,
            tol=tol,
            max_passes=max_passes,
            max_seconds=max_seconds,
            fit_intercept=fit_intercept,
            random_state=random_state,
            n_jobs=n_jobs,
            verbose=verbose,
            warm_start=warm_start,
            checkpoint=checkpoint,
            C_path=C_path,
            kernel=kernel,
            gamma=gamma,
            degree=degree,
            coef0=coef0,
        )
        self.boundary = boundary
        self.forbidden = forbidden
        self.class_weight = class_weight

    def fit(self, X: Sequence[Any], y: Sequence[Any], sample_weight: ArrayLike | None = None) -> Self:
        """Train.

        Parameters
        ----------
        X : list of arrays, CSR matrices or data frames (length, p)
            A matrix for each sequence, with a row for each position; at least one.
        y : list of sequences of tags
            A tag for each position: strings, numbers or other values that are hashable.
        sample_weight : array, optional
            A weight for each sequence.

        Returns
        -------
        self
        """
        check_parameters(self)
        check_boundary(self.boundary)
        features, lengths = _check_sequences(X)
        values = _check_tags(y, lengths)
        classes = target.distinct(chain.from_iterable(values))
        target.check_several(classes, "ChainSVM")
        states = _states(values, classes)
        forbidden = forbidden_transitions(self.forbidden, classes)
        _check_transitions(states, lengths, forbidden, classes)
        weight = None if sample_weight is None else target.example_weights(sample_weight, len(lengths), "sequence")
        problem = self._problem(
            training_rows(self, features),
            lengths,
            _cut(states, lengths),
            len(classes),
            forbidden,
            target.cost_table(self.loss, classes),
            weight,
        )
        by_tag = target.class_weights(self.class_weight, classes, states)
        if by_tag is not None:
            # The builder's losses know nothing of tags; all variables have the same number of states.
            problem.arrays.losses[:] *= np.repeat(by_tag[states], len(classes))
        self._train(problem, features)
        remember_columns(self, X[0])
        self.classes_ = classes
        self.forbidden_ = forbidden
        self._name_weights()
        return self

    def score(self, X: Sequence[Any], y: Sequence[Any], sample_weight: ArrayLike | None = None) -> float:
        """Fraction of the tags that are predicted right; with `sample_weight`, a sequence's tags count that much."""
        problem, found = self._predict(X)
        lengths = np.diff(problem.example_variables)
        truth = _states(_check_tags(y, lengths), self.classes_)
        counts = np.repeat(target.example_weights(sample_weight, len(lengths), "sequence"), lengths)
        return float(np.average(found.labels == truth, weights=counts))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = False
        tags.no_validation = True
        return tags

    def _new_problem(self, X: Sequence[Any]) -> FactorGraphs:
        features, lengths = _check_sequences(X)
        compare_columns(self, X[0])
        _check_possible(lengths, self.forbidden_)
        return self._problem(prediction_rows(self, features), lengths, None, len(self.classes_), self.forbidden_)

    def _present(self, states: NDArray[np.int32], problem: FactorGraphs) -> list[NDArray[Any]]:
        """An array of tags a sequence."""
        return np.split(self.classes_[states], problem.example_variables[1:-1])

    def _problem(
        self,
        rows: Features,
        lengths: NDArray[np.int64],
        tags: list[NDArray[np.int32]] | None,
        n_tags: int,
        forbidden: NDArray[np.bool_] | None,
        loss: Any = "hamming",
        weight: NDArray[np.float64] | None = None,
    ) -> FactorGraphs:
        return chain_problem(rows, tags, n_tags, bool(self.boundary), forbidden, loss, weight, lengths)

    def _name_weights(self) -> None:
        """Views of the flat weights under their names."""
        n_tags = len(self.classes_)
        of_factors = name_blocks(self, n_tags)
        square = n_tags * n_tags
        self.transition_coef_ = of_factors[:square].reshape(n_tags, n_tags)
        for name, start in (("start_coef_", square), ("end_coef_", square + n_tags)):
            if self.boundary:
                setattr(self, name, of_factors[start : start + n_tags])
            elif hasattr(self, name):
                delattr(self, name)


def check_boundary(boundary: Any) -> None:
    """Refuse what is neither True nor False."""
    if not isinstance(boundary, bool | np.bool_):
        raise OptionError(f"boundary={boundary!r} is not possible; it must be True or False.")


def _check_sequences(X: Any) -> tuple[Features, NDArray[np.int64]]:
    """The rows of all sequences, one after the other, and the sequences' lengths."""
    if sp.issparse(X) or hasattr(X, "columns") or (isinstance(X, np.ndarray) and X.ndim == 2):
        raise DataError(f"X is one matrix, of shape {X.shape}; expected a list with a matrix (length, p) per sequence.")
    if isinstance(X, str) or not isinstance(X, Sequence | np.ndarray):
        raise DataError(f"X is of type {type(X).__name__}; expected a list with a matrix (length, p) per sequence.")
    first = list(getattr(X[0], "columns", [])) if len(X) else []
    for m, one in enumerate(X):
        if list(getattr(one, "columns", [])) != first:
            raise DataError(f"The columns of sequence {m} are named differently than those of sequence 0.")
    features, lengths = stack_examples(list(X), "sequence")
    if features.shape[1] == 0:
        raise DataError("The sequences have 0 features; at least 1 is required.")
    return features, lengths


def _check_tags(y: Any, lengths: NDArray[np.int64]) -> list[list[Any]]:
    if y is None:
        raise DataError("ChainSVM requires y to be passed, but the target y is None.")
    if isinstance(y, str) or not hasattr(y, "__len__"):
        raise DataError(f"y is of type {type(y).__name__}; expected a list with the tags of each sequence.")
    if len(y) != len(lengths):
        raise DataError(f"There are {len(lengths)} sequences in X, but tags for {len(y)} in y.")
    values = [
        target.labels_of_parts(row, m, n, "sequence", "position", "tag")
        for m, (row, n) in enumerate(zip(y, lengths.tolist(), strict=True))
    ]
    for m, row in enumerate(values):
        for t, tag in enumerate(row):
            if target.is_missing(tag):
                raise DataError(f"y[{m}][{t}] is {tag}; every position needs a tag.")
    return values


def _states(values: list[list[Any]], classes: NDArray[Any]) -> NDArray[np.int32]:
    """States of all positions, one sequence after the other."""
    states = target.states_of(chain.from_iterable(values), classes)
    if (states < 0).any():
        known = set(classes.tolist())
        m, t = next((m, t) for m, row in enumerate(values) for t, tag in enumerate(row) if tag not in known)
        raise DataError(f"y[{m}][{t}] is {values[m][t]!r}, a tag that was not seen in training.")
    return states


def _cut(stacked: NDArray[Any], lengths: NDArray[np.int64]) -> list[NDArray[Any]]:
    """What is stacked over sequences as one piece a sequence."""
    return np.split(stacked, np.cumsum(lengths)[:-1])


# --------------------------------------------------------------------------------------------------------------------
# Hard constraints


def forbidden_transitions(pairs: Any, classes: NDArray[Any]) -> NDArray[np.bool_] | None:
    """Which transitions (K, K) are forbidden; None if none is."""
    if pairs is None:
        return None
    if isinstance(pairs, str) or not isinstance(pairs, Iterable):
        raise OptionError(f"forbidden={pairs!r} is not possible; it must be a list of pairs of tags, or None.")
    state = {tag: k for k, tag in enumerate(classes.tolist())}
    mask = np.zeros((len(state), len(state)), bool)
    for pair in pairs:
        if isinstance(pair, str) or not hasattr(pair, "__len__") or len(pair) != 2:
            raise OptionError(f"forbidden has the entry {pair!r}; expected pairs (tag, tag that may not follow it).")
        for tag in pair:
            if not isinstance(tag, Hashable) or tag not in state:
                raise OptionError(f"forbidden names the tag {tag!r}, which is not in y; the tags are {list(state)}.")
        mask[state[pair[0]], state[pair[1]]] = True
    return mask if mask.any() else None


def _check_transitions(
    states: NDArray[np.int32], lengths: NDArray[np.int64], forbidden: NDArray[np.bool_] | None, classes: NDArray[Any]
) -> None:
    if forbidden is None:
        return
    inside = np.ones(len(states), bool)
    starts = np.cumsum(lengths) - lengths
    inside[starts] = False
    wrong = np.flatnonzero(inside[1:] & forbidden[states[:-1], states[1:]])
    if len(wrong):
        at = int(wrong[0])
        m = int(np.searchsorted(starts, at, side="right") - 1)
        before, after = classes[states[at : at + 2]].tolist()
        raise DataError(
            f"Sequence {m} goes from {before!r} at position {at - starts[m]} to {after!r}, a transition that is forbidden."
        )


def _check_possible(lengths: NDArray[np.int64], forbidden: NDArray[np.bool_] | None) -> None:
    """Refuse sequences for which the constraints leave no tags at all."""
    if forbidden is None:
        return
    # The tags that can stand at position t; they only become fewer, so after K steps they change no more.
    reachable: NDArray[np.bool_] = np.ones(len(forbidden), bool)
    for t in range(1, len(forbidden) + 1):
        reachable = np.asarray(~forbidden[reachable].all(axis=0))
        if not reachable.any():
            if (lengths > t).any():
                m = int(np.flatnonzero(lengths > t)[0])
                raise DataError(
                    f"Sequence {m} has {lengths[m]} positions, but the forbidden transitions allow no tags for more "
                    f"than {t}."
                )
            return

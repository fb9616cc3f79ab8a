"""`partial_fit`: training on data that comes in batches, by the solvers that visit one example after another.

A call visits each example of its batch once, in order (solvers/online/stream.py). Nothing about the data may depend on what is
still to come, so classes are named at the first call, words are hashed, columns stay as they are given (``scale`` has no
effect), weights of examples are not scaled to a mean of 1, and "balanced" class weights are refused. Where sequences are of
different lengths, the loss of a position is that of the first batch: one over its mean length.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from maxmargin import jit
from maxmargin.errors import DataError, OptionError
from maxmargin.estimators import labels as target
from maxmargin.estimators.choosing import FEW, RULE, SOME, rounded, scale_of
from maxmargin.estimators.feature_space import is_linear
from maxmargin.estimators.given_features import compare_columns, remember_columns
from maxmargin.estimators.parameters import is_real
from maxmargin.problems.conditionals import temperature_of
from maxmargin.solvers import make_solver
from maxmargin.solvers.core.result import Result, Status
from maxmargin.solvers.online.stream import Stream


def _has_rows(model: Any) -> bool:
    """Whether the model is one of features; raises a sentence if not."""
    if not is_linear(model):
        raise AttributeError('partial_fit is for kernel="linear": a kernel is known by all training rows.')
    return True


class OnlineMixin:
    """`partial_fit`, for estimators whose `prepare` makes the problem of a part of the data."""

    _online: tuple[Stream, float, str] | None = None

    @available_if(_has_rows)
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Visit each example of a batch once, in order, and go on from the calls before, or from the weights of `fit`.

        The solver must be "subgradient", which "auto" is here, or "perceptron". Weights are the average over all visits; nothing is
        certified. Subgradient steps begin with a size that fits the first batch; ``solver=Subgradient(t0=...)`` sets it.

        Parameters
        ----------
        X : examples, in the form that `fit` takes
            With words or features by name, ``features`` must hash them (``n_hash``).
        y : labels, in the form that `fit` takes
            Labels of these examples.
        classes : array, optional
            All classes, labels or tags that will ever come; needed at the first call, unless the labels are columns of zeros and
            ones.
        sample_weight : array (n,), optional
            Weights of the examples, as they are: they are not scaled to a mean of 1, as `fit` does.

        Returns
        -------
        self
        """
        model: Any = self
        model._check_parameters()
        _refuse(model)
        before: Result | None = getattr(model, "result_", None)
        known = _known(model, y, classes, before is None)
        if before is not None and model.task != "chain":
            compare_columns(model, X)
        given = model.prepare(X, y, sample_weight, known=known)
        problem, vectoriser = given.problem, given.attributes.pop("vectoriser_", None)
        if before is not None and problem.n_weights != len(before.weights):
            raise DataError(
                f"X has {given.features.shape[1] - int(model.fit_intercept)} features, but {type(model).__name__} is expecting "
                f"{model.n_features_in_} features as input, as in the first batch."
            )
        problem = problem.with_weights(problem.arrays.weight, given.mass / problem.n_examples)
        asked = "subgradient" if isinstance(model.solver, str) and model.solver == "auto" else model.solver
        solver = make_solver(asked, problem, model.objective, model.inference, model.device)
        online = model._online or _begin(model, problem, solver, before)
        stream, mean_size, reason = online
        size = len(problem.labels) / problem.n_examples
        if size != mean_size and not (isinstance(model.loss, str) and model.loss != "hamming"):
            problem = problem.with_costs(np.full(len(problem.labels), size / mean_size))
        clock = jit.clock()
        weights = stream.visit(solver, problem)
        model._online = online
        if before is None:
            model.classes_ = given.classes
            vars(model).update(given.attributes)
            if vectoriser is not None:
                model._keep_vectoriser(vectoriser)
            else:
                remember_columns(model, X[0] if model.task == "chain" else X)
            model.validation_path_ = []
            engine, why = model._engine(problem)
            model.inference_ = f"{engine.name} ({'exact' if engine.exact else 'not always exact'}): {why}"
        model.C_ = 1.0 / stream.lam
        model.result_ = Result(
            Status.MAX_PASSES, weights, np.inf, -np.inf, np.inf, "none", 1 + (before.n_passes if before else 0), stream.t,
            jit.clock() - clock + (before.seconds if before else 0.0), {}, solver.name,
            {**solver.options(), "C": model.C_, "tol": float(model.tol), "C_reason": reason, "t0": stream.t0},
        )  # fmt: skip
        model.path_ = {model.C_: model.result_}
        model.temperature_ = temperature_of(problem, weights, min(SOME, problem.n_examples))
        model._name_weights()
        return self


def _begin(model: Any, problem: Any, solver: Any, before: Result | None) -> tuple[Stream, float, str]:
    """The first visit is still to come: the stream, the mean size of examples, and why this C."""
    unit, _ = scale_of(problem)
    if is_real(model.C):
        C, reason = float(model.C), "as asked"
    elif before is not None:
        C, reason = float(model.C_), "as in the fit before"
    else:
        C, reason = rounded(unit * FEW * 10.0**RULE), "by the scale of the first batch"
    # The first step moves scores by about the loss.
    t0 = getattr(solver, "t0", None)
    stream = Stream(
        1.0 / C, max(1.0, C / unit) if t0 is None else float(t0), None if before is None else before.weights
    )
    return stream, len(problem.labels) / problem.n_examples, reason


def _refuse(model: Any) -> None:
    """Refuse what needs all the data, in a sentence."""
    solver = model.solver
    if isinstance(solver, str) and solver not in ("auto", "subgradient", "perceptron"):
        name: Any = solver
    else:
        name = None if isinstance(solver, str) or getattr(solver, "streams", False) else getattr(solver, "name", solver)
    if name is not None:
        raise OptionError(
            'partial_fit is for solvers that visit one example after another, "subgradient" and "perceptron"; '
            f"solver={name!r} needs all examples."
        )
    if isinstance(model.class_weight, str):
        raise OptionError(
            f"class_weight={model.class_weight!r} is not possible in partial_fit: how many examples each class has is known only "
            "at the end; give a dict of weights by class."
        )
    if isinstance(getattr(model, "edges", None), str) and model.edges == "tree":
        raise OptionError(
            'edges="tree" is not possible in partial_fit: it is chosen by all labels; give pairs of labels.'
        )
    if getattr(model, "_has_measure", False):
        raise OptionError(f"loss={model.loss!r} is of all predictions together, and partial_fit sees some at a time.")
    if not (is_real(model.C) or isinstance(model.C, str)):
        raise OptionError("partial_fit has no examples to choose C with; give one C.")


def _known(model: Any, y: Any, classes: Any, first: bool) -> NDArray[Any]:
    """All classes: those of the first call."""
    if not first:
        check_is_fitted(model)
        known: NDArray[Any] = model.classes_
        if classes is not None and target.distinct(classes).tolist() != known.tolist():
            raise DataError(
                f"classes={list(classes)!r} is not the same as at the first call of partial_fit: {known.tolist()}."
            )
    elif classes is not None:
        known = target.distinct(classes)
    elif model.task == "multi-label" and y is not None and not target.is_lists(y):
        known = target.encode_array(y)[1]
    else:
        raise DataError("classes must be passed on the first call to partial_fit: all that will ever come.")
    if model.task in ("binary", "multi-class"):
        found = target.distinct(target.column(y, type(model).__name__)).tolist()
        new = [label for label in found if label not in set(known.tolist())]
        if new:
            raise DataError(
                f"y has the class {new[0]!r}, which is not among the classes of the first call, {known.tolist()}."
            )
    return known

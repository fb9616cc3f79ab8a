"""Held-out loss during training, early stopping, and callbacks: what `fit` does with ``eval_set``, ``patience`` and ``callbacks``.

At every check of the solver (solvers/core/monitor.py) the model is made as if training had ended there, its task loss on the
held-out examples is computed, and the callbacks are told. Checks come often at first, then ever more rarely; runs that choose C
(choosing.py) are not watched.

With `patience` the run ends when so many checks in a row have not lowered the held-out loss, and the weights are those of the check
where it was least: ``Status.EARLY_STOPPED``, with the primal value of these weights and the best dual bound of the run, so
that the gap is still a certified one. Without, the held-out loss is only recorded.

scikit-learn's own callbacks (`sklearn.callback`, from 1.9 on) hear of every check, too: `set_callbacks` is there where scikit-learn
has it.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.errors import OptionError
from maxmargin.estimators.confidence import Sure
from maxmargin.estimators.feature_space import is_linear
from maxmargin.estimators.parameters import is_whole
from maxmargin.measures import is_measure
from maxmargin.solvers.core.monitor import Monitor, Report, Silent
from maxmargin.solvers.core.result import Result, Status
from maxmargin.solvers.oracles.prediction import predict

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:
    # scikit-learn before 1.9 has no callbacks.
    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Nothing."""

    def with_callbacks(method: Any) -> Any:
        """The method itself."""
        return method


__all__ = ["CallbackSupportMixin", "Watch", "task_loss", "unfinished", "with_callbacks"]


class Watch(Silent):
    """A monitor that computes the held-out loss at every check, keeps the best weights, and asks the callbacks.

    Parameters
    ----------
    estimator : estimator
        Who trains.
    data : tuple
        X and y of the training, for scikit-learn's callbacks.
    eval_set : (X, y), list of one such pair, callable, or None
        Held-out examples; a callable takes the model at the first check and returns the pair, where reading it needs the model.
    eval_metric : callable, optional
        Takes true and predicted labels, and returns a number of which less is better; None is the task loss.
    patience : int, optional
        Checks without a smaller loss after which training ends.
    callbacks : sequence of callables, optional
        Each takes a `Report`; training ends if one returns False.
    """

    def __init__(
        self, estimator: Any, data: tuple[Any, Any], eval_set: Any = None, eval_metric: Any = None, patience: Any = None,
        callbacks: Any = None,
    ) -> None:  # fmt: skip
        self.estimator, self.data, self.metric, self.patience = estimator, data, eval_metric, patience
        self.held = _pair(eval_set)
        self.callbacks = _functions(callbacks)
        if eval_metric is not None and not callable(eval_metric):
            raise OptionError(
                f"eval_metric={eval_metric!r} is not possible; it must be a function of true and predicted labels, or None."
            )
        if patience is not None and not (is_whole(patience) and patience >= 1):
            raise OptionError(
                f"patience={patience!r} is not possible; it must be a whole number of at least 1, or None."
            )
        if self.held is None and (patience is not None or eval_metric is not None):
            raise OptionError("patience and eval_metric are about held-out examples; give them as eval_set=(X, y).")
        loss = getattr(estimator, "loss", None)
        if self.held is not None and isinstance(loss, str) and is_measure(loss):
            raise OptionError(
                f"eval_set is for losses of single examples; loss={loss!r} is of all predictions together. Use callbacks."
            )
        self.inner: Monitor = Silent()
        self.finish_model: Callable[[Any], None] = lambda model: None
        self.model_of: Callable[[NDArray[np.float64]], Any] | None = None
        self._cached: tuple[Any, Sure, NDArray[np.int32], NDArray[np.bool_]] | None = None
        self._context: Any = None
        self._step: Any = None

    @property
    def active(self) -> bool:
        """Whether there is anything to do at a check."""
        return self.held is not None or bool(self.callbacks) or self._context is not None

    # ------------------------------------------------------------------------------------------- one fit

    def begin(self, finish: Callable[[Any], None]) -> None:
        """Training begins; `finish` gives a model that has weights all its other attributes."""
        self.finish_model = finish
        if getattr(self.estimator, "_skl_callbacks", None):
            self._context = self.estimator._init_callback_context(max_subtasks=None)
            X, y = self.data
            self._context.call_on_fit_task_begin(estimator=self.estimator, X=X, y=y)

    def end(self) -> None:
        """The estimator is fitted."""
        if self._context is not None:
            X, y = self.data
            self._context.call_on_fit_task_end(estimator=self.estimator, X=X, y=y, reconstruction_attributes={})
            self._context = None

    def around(self, inner: Monitor | None) -> Monitor | None:
        """The monitor of a run: this one, which passes everything on."""
        self.inner = inner or Silent()
        self.losses: dict[int, float] = {}
        self.best, self.best_pass = math.inf, 0
        self.best_report: Report | None = None
        self.best_weights: NDArray[np.float64] | None = None
        self.waited, self.stopped_by = 0, ""
        return self if self.active else inner

    # ------------------------------------------------------------------------------------------- one run

    def start(self, solver: str, max_passes: int, tol: float) -> None:
        """Training begins."""
        self.inner.start(solver, max_passes, tol)
        self._next_step()

    def update(self, report: Report) -> bool:
        """Compute the held-out loss, and ask everyone whether to go on."""
        go_on = self.inner.update(report)
        model = None
        if self.held is not None:
            if report.weights is None:
                raise OptionError("This solver does not show its weights during training, which eval_set needs.")
            weights = report.weights()
            model = self._model(weights, report)
            loss = self._loss(model)
            self.losses[report.n_passes] = loss
            report = report._replace(eval_loss=loss)
            self.waited += 1
            if loss < self.best:
                self.best, self.best_pass, self.best_report, self.waited = loss, report.n_passes, report, 0
                self.best_weights = weights.copy()
            if self.patience is not None and self.waited >= self.patience:
                self.stopped_by, go_on = "patience", False
        for function in self.callbacks:
            if function(report) is False and not self.stopped_by:
                self.stopped_by, go_on = "callback", False
        if self._step is not None:

            def attributes() -> dict[str, Any]:
                assert report.weights is not None
                made = model or self._model(report.weights(), report)
                return {name: value for name, value in vars(made).items() if name.endswith("_") or name.startswith("_")}

            X, y = self.data
            if self._step.call_on_fit_task_end(
                estimator=self.estimator, X=X, y=y, reconstruction_attributes=attributes
            ):
                self.stopped_by, go_on = self.stopped_by or "callback", False
            self._step = None
            self._next_step()
        return go_on

    def stop(self, summary: str) -> None:
        """The run ended; what there is to say is said when its result is known (`finish`)."""
        if self._step is not None:
            self._step.call_on_fit_task_end(estimator=self.estimator)
            self._step = None

    def finish(self, result: Result, tol: float) -> None:
        """Write the held-out losses into the result, and put the best weights there if that was asked for."""
        if self.losses:
            passes = [int(one) for one in result.history["n_passes"]]
            result.history["eval_loss"] = np.array([self.losses.get(one, math.nan) for one in passes])
            result.options |= {"best_pass": self.best_pass, "best_eval_loss": self.best}
        said = [result.message] if result.message else []
        if self.stopped_by == "callback":
            said.append("A callback ended training.")
        if self.patience is not None and self.best_report is not None:
            if self.stopped_by == "patience" and result.status is Status.INTERRUPTED:
                result.status = Status.EARLY_STOPPED
            if self.best_pass != max(self.losses):
                assert self.best_weights is not None
                result.weights, result.primal = self.best_weights, self.best_report.primal
                result.gap = max(result.primal - result.dual, 0.0)
                if result.status is Status.CONVERGED and not result.gap <= tol:
                    result.status = Status.EARLY_STOPPED
            said.append(
                f"The weights are those of pass {self.best_pass}, where the held-out loss was least, {self.best:.4g}."
            )
        result.message = " ".join(said)
        self.inner.stop(result.summary())

    # ------------------------------------------------------------------------------------------- helpers

    def _next_step(self) -> None:
        if self._context is not None:
            self._step = self._context.subcontext(task_name="check")
            X, y = self.data
            self._step.call_on_fit_task_begin(estimator=self.estimator, X=X, y=y)

    def _model(self, weights: NDArray[np.float64], report: Report) -> Any:
        """The estimator as if training had ended with these weights."""
        if self.model_of is not None:
            model = self.model_of(weights)
        else:
            model = copy.copy(self.estimator)
            model.result_ = unfinished(weights)
        model.result_.n_passes, model.result_.primal = report.n_passes, report.primal
        if not hasattr(model, "temperature_"):
            model.temperature_ = 1.0
        self.finish_model(model)
        return model

    def _loss(self, model: Any) -> float:
        assert self.held is not None
        if callable(self.held):
            self.held = self.held(model)
        X, y = self.held
        if self.metric is not None:
            return float(self.metric(y, model.predict(X)))
        if not hasattr(model, "_truth"):
            return 1.0 - float(model.score(X, y))
        if hasattr(model, "_flat_weights") and is_linear(model) and getattr(model, "_edges", None) is None:
            # The problem, of which words may have been made features, is the same at all weights.
            if self._cached is None:
                problem = model._new_problem(X)
                sure = Sure(np.empty(0, np.int32), np.empty(0), np.diff(problem.example_variables), problem)
                self._cached = (problem, sure, *model._truth(y, sure))
            problem, sure, truth, known = self._cached
            states = predict(problem, model._flat_weights(problem), model._engine(problem)[0], model.n_jobs).labels
            return _mean_loss(model.loss, states, truth, known, sure.sizes)
        return task_loss(model, X, y)


def unfinished(weights: NDArray[np.float64]) -> Result:
    """The result of a run that has not ended."""
    return Result(Status.INTERRUPTED, weights, math.inf, -math.inf, math.inf, "none", 0, 0, 0.0, {})


def task_loss(model: Any, X: Any, y: Any) -> float:
    """The mean task loss of a fitted model's predictions; labels that are not known do not count, and class weights neither.

    Parameters
    ----------
    model : estimator of classes or structures
        It is fitted.
    X, y : as in `fit`
        Examples and their true labels.
    """
    sure = model._predicted(X)
    truth, known = model._truth(y, sure)
    return _mean_loss(model.loss, sure.states, truth, known, sure.sizes)


def _mean_loss(
    loss: Any, states: NDArray[np.int32], truth: NDArray[np.int32], known: NDArray[np.bool_], sizes: NDArray[np.int64]
) -> float:
    lost: NDArray[np.float64] = ((states != truth) & known).astype(np.float64)
    if not isinstance(loss, str):
        table = np.asarray(loss, np.float64)
        # A label that was not seen in training costs the most there is.
        costs = table[np.maximum(truth, 0), states] if table.ndim == 2 else np.tile(table, len(sizes))
        lost *= np.where(truth < 0, table.max(), costs)
    first = np.cumsum(sizes) - sizes
    of_example, count = np.add.reduceat(lost, first), np.add.reduceat(known.astype(np.float64), first)
    if not count.any():
        raise OptionError("No label of eval_set is known.")
    some = count > 0
    if isinstance(loss, str) and loss != "hamming":
        of_each = {"fraction": of_example / np.maximum(count, 1), "count": of_example, "zero-one": of_example > 0}[loss]
        return float(np.mean(of_each[some]))
    return float(of_example.sum() / count.sum())


def _pair(eval_set: Any) -> Any:
    """Held-out examples and labels."""
    if eval_set is None or callable(eval_set):
        return eval_set
    if isinstance(eval_set, list) and len(eval_set) == 1:
        eval_set = eval_set[0]
    if not isinstance(eval_set, tuple) or len(eval_set) != 2:
        raise OptionError("eval_set must be a pair (X, y) of held-out examples, or a list of one such pair.")
    return eval_set


def _functions(callbacks: Any) -> Sequence[Callable[[Report], object]]:
    if callbacks is None:
        return ()
    given: list[Any] = [callbacks] if callable(callbacks) or not isinstance(callbacks, Sequence) else list(callbacks)
    if not all(callable(one) for one in given):
        raise OptionError(
            f"callbacks={callbacks!r} is not possible; it must be a list of functions that take a report of training."
        )
    return given

"""StructuredSVM: any inputs and outputs, by a model that the user writes in Python (problems/python_problem.py).

Trained on ``1/(2C) |w|^2 + mean hinge`` with the loss and the oracle of the model, by the same solvers, to the same certificates
as everything else. What is learned is one vector of weights; what it means is the model's business.
"""

from __future__ import annotations

import os
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from maxmargin.errors import DataError, OptionError
from maxmargin.estimators.base import StructuredEstimator
from maxmargin.estimators.frames import OneVectorOfWeights
from maxmargin.estimators.labels import score_weights
from maxmargin.estimators.names import COption, SolverOption
from maxmargin.estimators.parameters import check_parameters
from maxmargin.estimators.stopping import Watch
from maxmargin.estimators.training import train
from maxmargin.problems.python_problem import PythonProblem, ask, named, outputs
from maxmargin.solvers import SOLVERS
from maxmargin.solvers.choice import choose_solver
from maxmargin.solvers.core.capabilities import able, missing
from maxmargin.solvers.core.result import Result


class StructuredSVM(OneVectorOfWeights, BaseEstimator):
    """Structured predictor for a problem written in Python.

    Parameters
    ----------
    model : Model, or an object with its methods
        ``joint_features``, ``loss``, ``most_violated`` and ``predict``; see `maxmargin.problems.python_problem`.
    C : float, list of float or "auto"
        Strength of the loss in ``1/(2C) |w|^2 + mean loss``: ``C = n * c`` for scikit-learn's ``c``, and SVM-struct's own C. "auto"
        chooses it on held-out examples; of a list, the value whose held-out loss is least is taken.
    solver : str or solver
        "auto" is "bcfw"; or any solver that needs a max-oracle and nothing else.
    tol : float
        Certified gap at which training stops, in units of the task loss.
    max_passes : int
        Most passes over the data.
    max_seconds : float, optional
        Most seconds of training.
    random_state : int, Generator, RandomState or None
        Seed of the solver; None is different every time.
    n_jobs : int, optional
        The code of the model runs in one thread whatever this is.
    verbose : int
        0 is silent; 1 shows progress on the standard error.
    warm_start : bool
        Start from where the last fit ended, if the data has the same shape; C, tol and the limits may differ.
    checkpoint : path, optional
        File where the solver keeps its state, and from which it resumes if it is there; it cannot see changes of the model's code.
    validation_fraction : float
        Share of the examples that is held out to choose C; with fewer than 2000 variables in all, each is held out once, in folds
        of this size.
    cv : int, optional
        Number of folds, at least 2, by which C is chosen, whatever the size of the data: every example is held out once. None is as
        `validation_fraction` says.

    Attributes
    ----------
    coef_ : array (d,)
        The weights, ``result_.weights``.
    feature_names_ : list or None
        The names of the weights, where features are dicts.
    result_ : Result
        Status, certificate and history of training. If the model's code raised after something had been certified, the status is
        INTERRUPTED and ``result_.options["error"]`` says where.

    Examples
    --------
    >>> import numpy as np
    >>> from maxmargin.estimators.structured import StructuredSVM
    >>> class Sign:
    ...     def joint_features(self, x, y):
    ...         return [x * y, y]
    ...     def loss(self, y, y_hat):
    ...         return float(y != y_hat)
    ...     def most_violated(self, x, y, w):
    ...         return max((-1, 1), key=lambda one: self.loss(y, one) + w @ self.joint_features(x, one))
    ...     def predict(self, x, w):
    ...         return max((-1, 1), key=lambda one: w @ self.joint_features(x, one))
    >>> StructuredSVM(Sign(), C=100).fit([-3.0, -1.0, 2.0], [-1, -1, 1]).predict([-2.0, 4.0])
    [-1, 1]
    """

    result_: Result

    def __init__(
        self,
        model: Any,
        C: COption = "auto",
        *,
        solver: SolverOption = "auto",
        tol: float = 1e-3,
        max_passes: int = 1000,
        max_seconds: float | None = None,
        random_state: Any = 0,
        n_jobs: int | None = None,
        verbose: int = 0,
        warm_start: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
        validation_fraction: float = 0.2,
        cv: int | None = None,
    ) -> None:
        self.model = model
        self.C = C
        self.solver = solver
        self.tol = tol
        self.max_passes = max_passes
        self.max_seconds = max_seconds
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.warm_start = warm_start
        self.checkpoint = checkpoint
        self.validation_fraction = validation_fraction
        self.cv = cv

    def fit(
        self,
        X: Any,
        y: Any,
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
        X, y : sequences of the same length
            Inputs and true outputs, as the model understands them.
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
        shared = {name: value for name, value in self.get_params(deep=False).items() if name not in ("model", "solver")}
        check_parameters(StructuredEstimator(**shared))
        watch = Watch(self, (X, y), eval_set, eval_metric, patience, callbacks)
        problem = PythonProblem(X, y, self.model, sample_weight)
        solver = _solver(self.solver, problem)
        shape = problem.n_examples, problem.n_weights
        going_on = self.warm_start and getattr(self, "_shape", None) == shape

        def finish(model: Any) -> None:
            model.coef_, model.feature_names_ = model.result_.weights, problem.feature_names

        watch.begin(finish)
        train(self, solver, problem, self.result_.state if going_on else None, watch=watch)
        self._shape = shape
        finish(self)
        return self

    def predict(self, X: Any) -> list[Any]:
        """The model's best output of each input.

        Parameters
        ----------
        X : list
            Inputs, as the model's methods take them.
        """
        check_is_fitted(self)
        inputs = list(X)
        names = self.feature_names_
        number_of = None if names is None else {name: number for number, name in enumerate(names)}
        w = named(number_of, np.asarray(self.coef_, np.float64))
        return outputs(self.model, "predict", [f"Input {m}" for m in range(len(inputs))], (inputs,), w)

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """1 minus the mean task loss of the predictions.

        Parameters
        ----------
        X : list
            Inputs.
        y : list
            Their true outputs.
        sample_weight : array (n,), optional
            How much each example counts.
        """
        predicted, truth = self.predict(X), list(y)
        if len(predicted) != len(truth):
            raise DataError(
                f"X has {len(predicted)} inputs, but y has {len(truth)}; expected an output for each input."
            )
        losses: NDArray[np.float64] = np.array(
            [
                float(ask(self.model, "loss", f"Input {m}", one, other))
                for m, (one, other) in enumerate(zip(truth, predicted, strict=True))
            ]
        )
        return 1.0 - float(np.average(losses, weights=score_weights(sample_weight, len(truth), "example")))

    def _weight_names(self) -> list[str]:
        names = self.feature_names_
        return [f"x{k}" for k in range(len(self.coef_))] if names is None else [str(name) for name in names]

    def save(self, path: str | os.PathLike[str]) -> NoReturn:
        """Refuse: a model file holds data and never code, and this model is the user's code.

        Parameters
        ----------
        path : path
            It is not written.
        """
        raise OptionError(
            "A StructuredSVM cannot be saved: its model is code, and a model file holds only data. Keep the weights, with "
            "numpy.savez(path, coef=model.coef_), and the code where code is kept."
        )


def _solver(chosen: Any, problem: PythonProblem) -> Any:
    """A solver that asks for no more than a model written in Python has."""
    if isinstance(chosen, str):
        if chosen == "auto":
            return choose_solver(problem)
        if chosen in able(problem):
            return SOLVERS[chosen]()
    elif not isinstance(chosen, type) and hasattr(chosen, "solve") and not missing(chosen, problem):
        return chosen
    name = getattr(chosen, "name", chosen)
    raise OptionError(
        f"solver={name!r} cannot train a model written in Python, of which only the most violated outputs are known; "
        f"use one of: auto, {', '.join(able(problem))}."
    )

"""What all estimators share: the parameters, and the way from a problem to a model.

Conventions
-----------
A constructor stores its parameters and does nothing else; `check_parameters` looks at all of them when `fit` begins.
Names that end in an underscore appear with `fit`. ``result_.weights`` is the flat vector that ``coef_``, ``intercept_``
and the edges' coefficients are views of.

The constant feature of ``fit_intercept`` is the last column of the features that the problem sees, and is regularised
like the rest. What each parameter may be stands in `parameters`, training in `training`, and what a kernel makes of features in
`feature_space`.
"""

from __future__ import annotations

import copy
import inspect
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import Tags

from maxmargin.errors import OptionError
from maxmargin.estimators.feature_space import KERNEL_SOLVERS, KERNELS, is_linear, keep_support
from maxmargin.estimators.frames import ReadableWeights
from maxmargin.estimators.memory import check_memory
from maxmargin.estimators.names import Auto, COption, InferenceOption, Objective, SolverOption
from maxmargin.estimators.parameters import check_parameters, quoted
from maxmargin.estimators.restoring import restore_structured
from maxmargin.estimators.saving import save, structured_parts
from maxmargin.estimators.scaling import ScaledFeatures, scale_columns
from maxmargin.estimators.signs import with_signs
from maxmargin.estimators.stopping import CallbackSupportMixin, Watch, unfinished, with_callbacks
from maxmargin.estimators.training import train
from maxmargin.inference import Engine, choose, engine
from maxmargin.inference.choice import is_exact
from maxmargin.measures import MeasureProblem
from maxmargin.parallel import n_threads
from maxmargin.problems import FactorGraphs, Features
from maxmargin.problems.columns import OrderedFeatures
from maxmargin.problems.features import KernelBlocks, KernelFeatures
from maxmargin.problems.losses import LOSSES
from maxmargin.solvers import make_solver
from maxmargin.solvers.core.result import Result


class Prepared(NamedTuple):
    """What `fit` trains on, and what it found out about the data."""

    problem: Any
    #: The rows as they were given.
    features: Features
    classes: NDArray[Any]
    #: The sum of the examples' weights, before they were scaled to mean 1.
    mass: float
    #: Attributes of the fitted estimator.
    attributes: dict[str, Any]


class StructuredEstimator(ReadableWeights, CallbackSupportMixin, BaseEstimator):
    """Base of the estimators; a task adds its own problem and the names of its weights.

    Parameters
    ----------
    C : float, list of float or "auto"
        Strength of the loss against the regulariser: lam = 1/C in ``lam/2 |w|^2 + mean hinge``, so ``C = n * c`` for scikit-learn's
        ``c``, and SVM-struct's own C. "auto" chooses it by the task loss on held-out examples,
        and of a list that value is taken whose held-out loss is least.
    solver : str or solver
        "auto", a name in `maxmargin.solvers.SOLVERS`, or a solver with options of its own.
    inference : str or engine
        Who finds labelings, in training and in prediction alike, unless a solver object names an engine of its own: "auto" (exact
        where that is cheap, else a relaxation, rounded and improved), or an engine of `maxmargin.inference`. Solvers that ask no
        engine, such as "soft-bcfw", train without it.
    loss : "hamming", "fraction", "count", "zero-one" or array
        Task loss of a wrong variable: the same for all, so that the mean loss is the fraction of all variables that are wrong; one
        over the number of variables of its example, so that every example counts the same; 1; or a table of costs. "zero-one" is 1
        for every labeling but the truth, on graphs without cycles.
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
    checkpoint : path or Checkpoints, optional
        File where the solver keeps its state, and from which it resumes if it is there; `maxmargin.solvers.Checkpoints` says how
        often it is written.
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
    """

    #: Name in model files and on the command line.
    task = ""
    #: The names that `loss` may have, and `kernel`.
    losses: tuple[str, ...] = LOSSES
    #: Whether `loss` may be a table of costs.
    costs = True
    kernels: tuple[str, ...] = KERNELS
    result_: Result

    def __init__(
        self,
        C: COption = "auto",
        *,
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
        self.C = C
        self.solver = solver
        self.inference = inference
        self.loss = loss
        self.tol = tol
        self.max_passes = max_passes
        self.max_seconds = max_seconds
        self.fit_intercept = fit_intercept
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.warm_start = warm_start
        self.checkpoint = checkpoint
        self.C_path = C_path
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.n_basis = n_basis
        self.basis = basis
        self.objective = objective
        self.validation_fraction = validation_fraction
        self.cv = cv
        self.scale = scale
        self.signs = signs
        self.device = device
        self.max_memory = max_memory

    def __getattr__(self, name: str) -> Any:
        if name == "coef_":
            for coefficients, where in (
                ("dual_coef_", "support_ and support_vectors_"),
                ("basis_coef_", "basis_vectors_"),
            ):
                if coefficients in vars(self):
                    raise AttributeError(
                        f"With a kernel there are no weights of features, coef_; the model is in {coefficients}, {where}."
                    )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = isinstance(self.kernel, str) and self.kernel == "precomputed"
        return tags

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted estimator to a model file, which `maxmargin.load` reads.

        Parameters
        ----------
        path : path-like
            The file to write or to replace; ``.mm`` is the usual ending.
        """
        save(self, path)

    def _parts(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Header and arrays of a model file, beside those of the training."""
        return structured_parts(self)

    def _task_parts(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What this task adds to a model file."""
        return {}, {}

    def _restore(self, header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Set the attributes that `fit` would, from a model file."""
        restore_structured(self, header, arrays)

    def _restore_task(
        self, header: dict[str, Any], arrays: dict[str, NDArray[Any]], classes: NDArray[Any], width: int
    ) -> int:
        """Set what this task added to a model file; returns how many weights there are, of blocks of a width."""
        raise NotImplementedError

    def knows_loss(self, name: str) -> bool:
        """Whether there is a loss of this name.

        Parameters
        ----------
        name : str
            Such as "hamming".
        """
        return name in self.losses

    def _check_parameters(self) -> None:
        """Refuse a parameter that cannot be, in a sentence that says what can."""
        check_parameters(self)

    @property
    def _n_kernel_blocks(self) -> int:
        """Blocks of weights that a kernel has coefficients for."""
        return len(self.classes_)

    # ------------------------------------------------------------------------------------------------ training

    @with_callbacks
    def _fit(self, problem: Any, features: Features, finish: Callable[[Any], None], watch: Watch) -> None:
        """Train; `finish` gives a model that has weights all its other attributes."""
        watch.begin(finish)
        self.__dict__.pop("_online", None)
        self._train(problem, features, watch)
        finish(self)
        watch.end()

    def _train(self, problem: FactorGraphs | MeasureProblem, features: Features, watch: Watch | None = None) -> None:
        """Solve the problem; sets ``result_``, ``inference_``, and the support among the rows of `features`."""
        given = problem.variable_features
        problem, scaled = self._scaled(problem)
        solver = self._solver(problem)
        if self.device == "cpu":
            # Another device looks at its own memory.
            check_memory(self.max_memory, solver, problem, self.n_jobs)
        shape = (
            _shape(problem),
            self.kernel,
            self.gamma,
            self.degree,
            self.coef0,
            self.n_basis,
            self.basis,
            self.objective,
        )
        going_on = self.warm_start and getattr(self, "_shape", None) == shape and self.result_.solver == solver.name
        state = self.result_.state if going_on else None
        engine, self.inference_ = None, "scores are compared with 0 or with each other"
        if isinstance(problem, FactorGraphs):
            engine, reason = self._engine(problem)
            exact = is_exact(engine, problem)
            self.inference_ = f"{engine.name} ({'exact' if exact else 'not always exact'}): {reason}"

        def restored(weights: NDArray[np.float64]) -> NDArray[np.float64]:
            """Weights of the features as they were given."""
            if scaled:
                # Some solvers return an array of their state, which stays as it was.
                weights = weights.copy()
            for side, rows in scaled:
                rows.restore(problem.split_weights(weights)[side])
            if not isinstance(given, OrderedFeatures):
                return weights
            return given.outside(weights, problem.n_variable_blocks, n_threads(self.n_jobs))

        def as_if_ended(weights: NDArray[np.float64]) -> Any:
            model = copy.copy(self)
            model.result_ = unfinished(restored(weights))
            keep_support(model, features, problem)
            return model

        if watch is not None:
            watch.model_of = as_if_ended
        train(self, solver, problem, state, engine, watch)
        for result in self.path_.values():
            result.options["scale"] = "; ".join(one.describe() for _, one in scaled) or "columns are as they were given"
            result.weights = restored(result.weights)
        keep_support(self, features, problem)
        self._shape = shape

    def _scaled(self, problem: Any) -> tuple[Any, list[tuple[int, ScaledFeatures]]]:
        """The problem with columns of features on one scale, and which of its sides (0: variables, 1: factors) were changed."""
        changed: list[tuple[int, ScaledFeatures]] = []
        always = self.scale is True
        if not is_linear(self) or not (always or self.scale == "auto"):
            return problem, changed
        rows = scale_columns(problem.variable_features, bool(self.fit_intercept), always)
        if rows is not None:
            problem = problem.with_variable_features(rows)
            changed.append((0, rows))
        if problem.n_factor_blocks and not isinstance(problem.factor_features, KernelFeatures):
            rows = scale_columns(problem.factor_features, False, always)
            if rows is not None:
                problem = problem.with_factor_features(rows)
                changed.append((1, rows))
        return problem, changed

    def _solver(self, problem: Any) -> Any:
        """The solver for this objective, if it can train on these rows."""
        sides, chosen = (problem.variable_features, getattr(problem, "factor_features", None)), self.solver
        blocks = any(isinstance(rows, KernelBlocks) for rows in sides)
        left_open = isinstance(chosen, str) and chosen == "auto"
        if blocks and left_open:
            chosen = "one-slack"
        solver = make_solver(chosen, problem, self.objective, self.inference, self.device)
        if any(isinstance(rows, KernelFeatures) for rows in sides) and not (
            getattr(solver, "kernel_blocks", False) or (not blocks and getattr(solver, "kernels", False))
        ):
            raise OptionError(
                f"The solver {getattr(solver, 'name', repr(solver))} needs features, of which a kernel has none; use "
                f"{quoted(('auto', *KERNEL_SOLVERS))}, "
                'or kernel="linear", or n_basis=500 or so, which makes features of a kernel.'
            )
        if blocks and left_open:
            largest = max(rows.shape[0] for rows in sides if isinstance(rows, KernelBlocks))
            solver.reason = f"the matrix of a kernel of {largest} rows is too large to hold"
        return solver

    # ------------------------------------------------------------------------------------------------ prediction

    def _engine(self, problem: FactorGraphs) -> tuple[Engine, str]:
        """The engine that predicts on these graphs, and why."""
        if isinstance(self.inference, str) and self.inference == "auto":
            if self.signs is not None and problem.signs is None:
                # What the model's weights have is true of graphs to predict, too.
                problem = with_signs(self, problem)
            return choose(problem)
        return engine(self.inference), "as asked"


def _shape(problem: Any) -> tuple[int, ...]:
    """What must be equal for a solver to go on from the state of another problem."""
    if isinstance(problem, MeasureProblem):
        return problem.measure.n, problem.n_weights
    ends = (problem.example_states, problem.example_tables, problem.example_messages)
    signs = 0 if problem.signs is None else hash(problem.signs.tobytes())
    return (problem.n_examples, problem.n_weights, *(int(end[-1]) for end in ends), signs)


_SHARED = tuple(inspect.signature(StructuredEstimator).parameters)


def shared(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that all estimators have, from the ``locals()`` of a task's constructor."""
    return {name: given[name] for name in _SHARED}

"""What all estimators share: their parameters and how each is checked, and training.

Conventions
-----------
A constructor stores its parameters and does nothing else; `check_parameters` looks at all of them when `fit` begins.
Names that end in an underscore appear with `fit`. ``result_.weights`` is the flat vector that ``coef_``, ``intercept_``
and the edges' coefficients are views of.

The constant feature of ``fit_intercept`` is the last column of the features that the problem sees, and is regularised
like the rest. What a kernel makes of features stands in `feature_space`.
"""

from __future__ import annotations

import inspect
import math
import numbers
import os
import warnings
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from maxmargin import jit
from maxmargin.errors import DataError, OptionError, did_you_mean
from maxmargin.estimators.basis import BASES
from maxmargin.estimators.choosing import SOME, Choice, choose_C
from maxmargin.estimators.feature_space import KERNEL_SOLVERS, KERNELS, is_linear, keep_support
from maxmargin.estimators.names import Auto, InferenceOption, Objective, SolverOption
from maxmargin.estimators.restoring import restore_structured
from maxmargin.estimators.saving import save, structured_parts
from maxmargin.estimators.scaling import ScaledFeatures, scale_columns
from maxmargin.inference import ENGINES, Engine, choose, engine
from maxmargin.problems import FactorGraphs, Features
from maxmargin.problems.conditionals import fit_temperature
from maxmargin.problems.features import KernelBlocks, KernelFeatures
from maxmargin.problems.losses import LOSSES
from maxmargin.solvers import SOLVERS, make_solver
from maxmargin.solvers.core.checkpoint import option_in
from maxmargin.solvers.core.monitor import OnTheWay
from maxmargin.solvers.core.result import Result, Status

#: What `objective` may be.
OBJECTIVES = ("margin", "log")

if TYPE_CHECKING:
    from maxmargin.reporting.progress import ProgressMonitor


class StructuredEstimator(BaseEstimator):
    """Base of the estimators; a task adds its own problem and the names of its weights.

    Parameters
    ----------
    C : float or "auto"
        Strength of the loss against the regulariser: lam = 1/C in ``lam/2 |w|^2 + mean hinge``, so ``C = n * c`` for scikit-learn's
        ``c``, and SVM-struct's own C. "auto" chooses it by the task loss on held-out examples (`maxmargin.estimators.choosing`).
    solver : str or solver
        "auto", a name in `maxmargin.solvers.SOLVERS`, or a solver with options of its own.
    inference : str or engine
        Who finds labelings, in training and in prediction alike, unless a solver object names an engine of its own: "auto" (exact
        where that is cheap, else a relaxation, rounded and improved), or an engine of `maxmargin.inference`. Solvers that ask no
        engine, such as "soft-bcfw", train without it.
    loss : "hamming", "fraction", "count" or array
        Task loss of a wrong variable: the same for all, so that the mean loss is the fraction of all variables that are wrong; one
        over the number of variables of its example, so that every example counts the same; 1; or a table of costs.
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
        Inner products of feature rows (see `maxmargin.estimators.feature_space`); a callable takes two matrices. Weights of
        factors are always linear.
    gamma : "scale" or float
        Of "rbf" and "poly"; "scale" is 1 / (p * X.var()).
    degree : int, coef0 : float
        Of "poly".
    n_basis : int, optional
        Approximate the kernel by so many basis functions (see `maxmargin.estimators.basis`): every solver takes it, time and
        memory grow with n times this instead of n^2, and prediction needs the basis only. None is the kernel itself.
    basis : "auto", "cholesky", "random" or "k-means"
        How the basis is chosen: rows that the ones before describe worst, rows at random, or centres of clusters. "auto" is
        "k-means", which was best wherever we compared them, but "cholesky" for a precomputed kernel, which has no rows.
    objective : "margin" or "log"
        The structured hinge, or the logarithmic loss of a conditional random field, for the solvers that can.
    validation_fraction : float
        Share of the examples that is held out to choose C; with fewer than 500 variables in all, each is held out once, in folds
        of this size.
    scale : "auto", True or False
        Whether columns of features are centred and divided by their size while training (`maxmargin.estimators.scaling`): "auto"
        does so where they need it. Weights are always for the features as they were given.
    """

    #: Name in model files and on the command line.
    task = ""
    #: The names that `loss` may have, and `kernel`.
    losses: tuple[str, ...] = LOSSES
    kernels: tuple[str, ...] = KERNELS
    result_: Result

    def __init__(
        self,
        C: float | Auto = "auto",
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
        scale: bool | Auto = "auto",
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
        self.scale = scale

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

    def _check_parameters(self) -> None:
        """Refuse a parameter that cannot be, in a sentence that says what can."""
        check_parameters(self)

    @property
    def _n_kernel_blocks(self) -> int:
        """Blocks of weights that a kernel has coefficients for."""
        return len(self.classes_)

    # ------------------------------------------------------------------------------------------------ training

    def _train(self, problem: FactorGraphs, features: Features) -> None:
        """Solve the problem; sets ``result_``, ``inference_``, and the support among the rows of `features`."""
        problem, scaled = self._scaled(problem)
        solver = self._solver(problem)
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
        engine, reason = self._engine(problem)
        train(self, solver, problem, state, engine)
        self.inference_ = _describe(engine, reason)
        for result in self.path_.values():
            result.options["scale"] = "; ".join(one.describe() for _, one in scaled) or "columns are as they were given"
            if scaled:
                # Some solvers return an array of their state, which stays as it was.
                result.weights = result.weights.copy()
            for side, rows in scaled:
                rows.restore(problem.split_weights(result.weights)[side])
        keep_support(self, features, problem)
        self._shape = shape

    def _scaled(self, problem: FactorGraphs) -> tuple[FactorGraphs, list[tuple[int, ScaledFeatures]]]:
        """The problem with columns of features on one scale, and which of its sides (0: variables, 1: factors) were changed."""
        changed: list[tuple[int, ScaledFeatures]] = []
        always = self.scale is True
        if not is_linear(self) or not (always or self.scale == "auto"):
            return problem, changed
        rows = scale_columns(problem.variable_features, bool(self.fit_intercept), always)
        if rows is not None:
            problem = problem.with_variable_features(rows)
            changed.append((0, rows))
        if problem.n_factor_blocks:
            rows = scale_columns(problem.factor_features, False, always)
            if rows is not None:
                problem = problem.with_factor_features(rows)
                changed.append((1, rows))
        return problem, changed

    def _solver(self, problem: FactorGraphs) -> Any:
        """The solver for this objective, if it can train on these rows."""
        rows, chosen = problem.variable_features, self.solver
        blocks = isinstance(rows, KernelBlocks)
        left_open = isinstance(chosen, str) and chosen == "auto"
        if blocks and left_open:
            chosen = "one-slack"
        solver = make_solver(chosen, problem, self.objective, self.inference)
        if isinstance(rows, KernelFeatures) and not (
            getattr(solver, "kernel_blocks", False) or (not blocks and getattr(solver, "kernels", False))
        ):
            raise OptionError(
                f"The solver {getattr(solver, 'name', repr(solver))} needs features, of which a kernel has none; use "
                f"{_quoted(('auto', *KERNEL_SOLVERS))}, "
                'or kernel="linear", or n_basis=500 or so, which makes features of a kernel.'
            )
        if blocks and left_open:
            solver.reason = f"the matrix of a kernel of {rows.shape[0]} rows is too large to hold"
        return solver

    # ------------------------------------------------------------------------------------------------ prediction

    def _engine(self, problem: FactorGraphs) -> tuple[Engine, str]:
        """The engine that predicts on these graphs, and why."""
        if isinstance(self.inference, str) and self.inference == "auto":
            return choose(problem)
        return engine(self.inference), "as asked"


# --------------------------------------------------------------------------------------------------------------------
# Parameters

_SHARED = tuple(inspect.signature(StructuredEstimator).parameters)


def shared(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that all estimators have, from the ``locals()`` of a task's constructor."""
    return {name: given[name] for name in _SHARED}


@lru_cache
def _parameter_names(kind: Any) -> tuple[str, ...]:
    """The parameters of a constructor: scikit-learn reads its signature every time, which takes longer than all checks."""
    return tuple(kind._get_param_names())


def check_parameters(estimator: StructuredEstimator) -> None:
    """Refuse a parameter that cannot be, in a sentence that says what can."""
    kind: Any = type(estimator)
    p: Mapping[str, Any] = {name: getattr(estimator, name) for name in _parameter_names(kind)}
    # Whole numbers of Python's have no limit; those that are no float are no parameter, and their digits fill pages.
    for name, value in p.items():
        if name != "random_state" and isinstance(value, int) and abs(value) >= 2**63:
            raise OptionError(f"{name} is not possible: a whole number of {value.bit_length()} bits is too large.")
    automatic = isinstance(p["C"], str) and p["C"] == "auto"
    if not automatic and not (_is_real(p["C"]) and math.isfinite(p["C"]) and p["C"] > 0):
        raise OptionError(f'C={p["C"]!r} is not possible; it must be "auto" or a finite number above 0.')
    if not (_is_real(p["validation_fraction"]) and 0 < p["validation_fraction"] < 1):
        raise OptionError(
            f"validation_fraction={p['validation_fraction']!r} is not possible; it must be a number above 0 and below 1."
        )
    if not (_is_real(p["tol"]) and p["tol"] >= 0):
        raise OptionError(f"tol={p['tol']!r} is not possible; it must be a number that is not negative.")
    if not (is_whole(p["max_passes"]) and p["max_passes"] >= 1):
        raise OptionError(f"max_passes={p['max_passes']!r} is not possible; it must be a whole number of at least 1.")
    if p["max_seconds"] is not None and not (_is_real(p["max_seconds"]) and p["max_seconds"] > 0):
        raise OptionError(f"max_seconds={p['max_seconds']!r} is not possible; it must be a number above 0, or None.")
    if p["C_path"] is not None:
        values = [] if isinstance(p["C_path"], str) or not hasattr(p["C_path"], "__len__") else list(p["C_path"])
        if not values or not all(_is_real(C) and math.isfinite(C) and C > 0 for C in values):
            raise OptionError(
                f"C_path={p['C_path']!r} is not possible; it must be a list of finite numbers above 0, or None."
            )
        if p["checkpoint"] is not None:
            raise OptionError("A path of C has no checkpoint: give either C_path or checkpoint.")
    for name in ("fit_intercept", "warm_start"):
        if not isinstance(p[name], bool | np.bool_):
            raise OptionError(f"{name}={p[name]!r} is not possible; it must be True or False.")
    if not (isinstance(p["scale"], bool | np.bool_) or (isinstance(p["scale"], str) and p["scale"] == "auto")):
        raise OptionError(f'scale={p["scale"]!r} is not possible; it must be "auto", True or False.')
    if p["n_jobs"] is not None and not (is_whole(p["n_jobs"]) and p["n_jobs"] != 0):
        raise OptionError(f"n_jobs={p['n_jobs']!r} is not possible; it must be a whole number other than 0, or None.")
    if not (isinstance(p["verbose"], bool) or (is_whole(p["verbose"]) and p["verbose"] >= 0)):
        raise OptionError(f"verbose={p['verbose']!r} is not possible; it must be 0 or a positive whole number.")
    _check_name("solver", p["solver"], ("auto", *SOLVERS), "solve")
    _check_name("inference", p["inference"], ("auto", *ENGINES), "maximise")
    if isinstance(p["loss"], str) and p["loss"] not in estimator.losses:
        raise OptionError(
            f"loss={p['loss']!r} is not known; use {_quoted(estimator.losses)} or a table of costs."
            + did_you_mean(p["loss"], estimator.losses)
        )
    _check_kernel(estimator)
    _check_basis(estimator)
    if estimator.objective not in OBJECTIVES:
        raise OptionError(
            f"objective={estimator.objective!r} is not known; use {_quoted(OBJECTIVES)}."
            + did_you_mean(estimator.objective, OBJECTIVES)
        )
    seed = p["random_state"]
    if not (
        seed is None or isinstance(seed, np.random.Generator | np.random.RandomState) or (is_whole(seed) and seed >= 0)
    ):
        raise OptionError(
            f"random_state={seed!r} is not possible; it must be a whole number from 0, a generator or None."
        )
    if p["checkpoint"] is not None:
        from maxmargin.formats import check_writable

        if not isinstance(p["checkpoint"], str | os.PathLike):
            raise OptionError(f"checkpoint={p['checkpoint']!r} is not possible; it must be a path, or None.")
        check_writable(p["checkpoint"])


def _check_kernel(estimator: StructuredEstimator) -> None:
    kernel, gamma = estimator.kernel, estimator.gamma
    named = isinstance(kernel, str)
    if named and kernel in KERNELS and kernel not in estimator.kernels:
        raise OptionError(
            f"kernel={kernel!r} is not possible for {type(estimator).__name__}, whose examples have many rows each; "
            f"use {_quoted(estimator.kernels)} or a function of two matrices."
        )
    if isinstance(kernel, type) or not (kernel in estimator.kernels if named else callable(kernel)):
        raise OptionError(
            f"kernel={kernel!r} is not known; use {_quoted(estimator.kernels)} or a function of two matrices."
            + did_you_mean(kernel, estimator.kernels if named else ())
        )
    if not (gamma == "scale" if isinstance(gamma, str) else _is_real(gamma) and math.isfinite(gamma) and gamma > 0):
        raise OptionError(f'gamma={gamma!r} is not possible; it must be "scale" or a finite number above 0.')
    if not (is_whole(estimator.degree) and estimator.degree >= 1):
        raise OptionError(f"degree={estimator.degree!r} is not possible; it must be a whole number of at least 1.")
    if not (_is_real(estimator.coef0) and math.isfinite(estimator.coef0) and estimator.coef0 >= 0):
        raise OptionError(
            f"coef0={estimator.coef0!r} is not possible; it must be a finite number that is not negative."
        )


def _check_basis(estimator: StructuredEstimator) -> None:
    n_basis, basis = estimator.n_basis, estimator.basis
    if not (isinstance(basis, str) and basis in BASES):
        raise OptionError(f"basis={basis!r} is not known; use {_quoted(BASES)}." + did_you_mean(basis, BASES))
    if n_basis is None:
        return
    if not (is_whole(n_basis) and n_basis >= 1):
        raise OptionError(f"n_basis={n_basis!r} is not possible; it must be a whole number of at least 1, or None.")
    if is_linear(estimator):
        raise OptionError(
            f'n_basis={n_basis!r} is for kernels: with kernel="linear" the features themselves are the basis.'
        )
    if basis == "k-means" and isinstance(estimator.kernel, str) and estimator.kernel == "precomputed":
        raise OptionError(
            'basis="k-means" needs the rows, and with kernel="precomputed" there are none; use "cholesky" or "random".'
        )


def _check_name(parameter: str, value: Any, known: tuple[str, ...], method: str) -> None:
    if isinstance(value, str):
        if value not in known:
            raise OptionError(
                f"{parameter}={value!r} is not known; the known names are {_quoted(known)}."
                + did_you_mean(value, known)
            )
    elif isinstance(value, type) or not callable(getattr(value, method, None)):
        raise OptionError(
            f"{parameter}={value!r} is neither a name nor an object with a method {method}; "
            f"the known names are {_quoted(known)}."
        )


def _quoted(names: tuple[str, ...]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _is_real(value: Any) -> bool:
    """Whether a value is a number that a float can hold."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        return False
    try:
        float(value)
    except OverflowError:
        return False
    return True


def is_whole(value: Any) -> bool:
    """Whether a value is an integer, and not True or False."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool | np.bool_)


def train(estimator: Any, solver: Any, problem: Any, state: Any, engine: Engine | None = None) -> None:
    """Choose C if that is left open, and train for it and for each C of a path, within the estimator's limits.

    From small to large, each from the one before. Sets ``C_``, ``validation_path_``, ``path_`` and ``result_``.
    """
    monitor = _monitor(int(estimator.verbose))
    clock = jit.clock()
    results: dict[float, Result] = {}
    try:
        if isinstance(estimator.C, str) and state is not None and hasattr(estimator, "C_"):
            choice = Choice(estimator.C_, "as chosen by the fit before, from which this one starts", state=state)
        elif isinstance(estimator.C, str) and estimator.checkpoint is not None and os.path.exists(estimator.checkpoint):
            # Written by the last run, after the path: nothing is chosen twice.
            C = float(option_in(estimator.checkpoint, "C"))
            choice = Choice(C, "as chosen before the checkpoint was written", state=state)
        elif isinstance(estimator.C, str):
            quiet = None if monitor is None else OnTheWay(monitor, "choosing C")
            choice = choose_C(estimator, solver, problem, engine, state, quiet)
        else:
            choice = Choice(float(estimator.C), "as asked", state=state)
        state = choice.state
        for C in sorted({choice.C, *(float(one) for one in getattr(estimator, "C_path", None) or ())}):
            left = None if estimator.max_seconds is None else float(estimator.max_seconds)
            if left is not None and choice.path:
                left = max(left - (jit.clock() - clock), 0.0)
            result: Result = choice.interrupted or solver.solve(
                problem, C=C, tol=float(estimator.tol), max_passes=int(estimator.max_passes), max_seconds=left,
                random_state=estimator.random_state, n_jobs=estimator.n_jobs, monitor=monitor,
                checkpoint=estimator.checkpoint, state=state,
            )  # fmt: skip
            result.options |= {"C": C, "tol": float(estimator.tol), "C_reason": choice.reason}
            state, results[C] = result.state, result
    finally:
        if monitor is not None:
            monitor.close()
    warn_if_open(results[choice.C])
    estimator.C_, estimator.validation_path_ = choice.C, choice.path
    estimator.path_, estimator.result_ = results, results[choice.C]
    if isinstance(problem, FactorGraphs):
        estimator.temperature_ = choice.temperature
        if estimator.objective == "log" or isinstance(problem.variable_features, KernelBlocks):
            # Rows of a kernel whose matrix is not held have no scores of their own.
            estimator.temperature_ = 1.0
        elif choice.temperature is None:
            every = -(-problem.n_examples // SOME)
            some = problem if every == 1 else problem.take(np.arange(0, problem.n_examples, every))
            estimator.temperature_ = fit_temperature(some, some.scores(estimator.result_.weights))


def warn_if_open(result: Result) -> None:
    """Warn of a run that ended before its gap was closed, where one can be closed, and say what would help."""
    advice = {
        Status.MAX_PASSES: "Allow more passes (max_passes)",
        Status.TIME_LIMIT: "Allow more time (max_seconds)",
        Status.STALLED: "Its gap has stopped shrinking",
    }
    if result.certificate == "none" or result.status not in advice or not result.gap > result.options["tol"]:
        return
    warnings.warn(
        f"Training ended with {result.status} after {result.n_passes} passes, at a gap of {result.gap:.3g} where tol is "
        f"{result.options['tol']:g}. {advice[result.status]}; or try a larger tol, a smaller C than {result.options['C']:g}, or "
        "features on one scale (scale=True).",
        ConvergenceWarning,
        stacklevel=5,
    )


def _monitor(verbose: int) -> ProgressMonitor | None:
    if not verbose:
        return None
    from maxmargin.reporting.progress import ProgressMonitor

    return ProgressMonitor()


def _describe(chosen: Engine, reason: str) -> str:
    return f"{chosen.name} ({'exact' if chosen.exact else 'not always exact'}): {reason}"


def _shape(problem: FactorGraphs) -> tuple[int, ...]:
    """What must be equal for a solver to go on from the state of another problem."""
    ends = (problem.example_states, problem.example_tables, problem.example_messages)
    return (problem.n_examples, problem.n_weights, *(int(end[-1]) for end in ends))


# --------------------------------------------------------------------------------------------------------------------
# Features


def check_features(X: Any, name: str = "X") -> Features:
    """Features with at least one row and one column, or a sentence."""
    dtype = getattr(X, "dtype", None)
    if getattr(dtype, "kind", "") == "c":
        raise DataError(f"Complex data not supported: {name} has dtype {dtype}; expected real numbers.")
    if not sp.issparse(X):
        if hasattr(X, "columns") and hasattr(X, "iloc"):
            _check_frame(X, name)
        X = np.asarray(X)
        if X.ndim == 1:
            raise DataError(
                f"{name} has 1 dimension, shape {X.shape}; expected 2: (rows, features). Reshape your data: "
                f"{name}.reshape(1, -1) is one example, {name}.reshape(-1, 1) one feature."
            )
        if X.dtype == object:
            # What a data frame of mixed columns gives.
            try:
                X = X.astype(np.float64)
            except (TypeError, ValueError, OverflowError) as error:
                raise DataError(f"{name} holds values that are not real numbers ({error}).") from None
    features = Features(X, name)
    if features.shape[0] == 0:
        raise DataError(f"{name} has no rows: the data is empty (shape {features.shape}).")
    if features.shape[1] == 0:
        raise DataError(f"{name} has 0 feature(s) (shape={features.shape}) while a minimum of 1 is required.")
    return features


def _check_frame(X: Any, name: str) -> None:
    """Refuse a data frame with a column that holds anything but finite real numbers, naming the column and the row."""
    for k, column in enumerate(X.columns):
        values = X.iloc[:, k]
        try:
            numbers_ = np.asarray(values, np.float64)
        except (TypeError, ValueError, OverflowError):
            wrong = next(
                ((row, value) for row, value in zip(X.index, values, strict=True) if not _is_real(value)),
                (X.index[0], values.iloc[0]),
            )
            raise DataError(
                f"{name} holds values that are not real numbers: column {column!r} is {wrong[1]!r} in row {wrong[0]!r}; encode "
                "such columns as numbers first, or leave them out."
            ) from None
        if not np.isfinite(numbers_).all():
            row = int(np.flatnonzero(~np.isfinite(numbers_))[0])
            raise DataError(
                f"{name} has {numbers_[row]} in column {column!r}, row {X.index[row]!r}; features must be finite, not NaN or "
                "infinity."
            )


def remember_columns(estimator: StructuredEstimator, X: Any) -> None:
    """Set ``n_features_in_`` and, for a data frame, ``feature_names_in_``, as scikit-learn does."""
    validate_data(estimator, X, skip_check_array=True, reset=True)


def compare_columns(estimator: StructuredEstimator, X: Any) -> None:
    """Refuse features of another number or of other names than those of training."""
    check_is_fitted(estimator)
    try:
        validate_data(estimator, X, skip_check_array=True, reset=False)
    except ValueError as error:
        raise DataError(str(error)) from None

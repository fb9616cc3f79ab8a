"""Parameters of the estimators: what each may be. `check_parameters` looks at all of them when `fit` begins."""

from __future__ import annotations

import math
import numbers
import os
from typing import Any

import numpy as np

from maxmargin.devices import check_device
from maxmargin.errors import OptionError, did_you_mean
from maxmargin.estimators.basis import BASES
from maxmargin.estimators.feature_space import KERNELS, is_linear
from maxmargin.estimators.memory import bytes_of
from maxmargin.estimators.signs import check_signs
from maxmargin.formats import check_writable
from maxmargin.inference import ENGINES
from maxmargin.solvers import SOLVERS
from maxmargin.solvers.core.capabilities import OBJECTIVES


def check_parameters(estimator: Any) -> None:
    """Refuse a parameter that cannot be, in a sentence that says what can."""
    p = {name: value for name, value in vars(estimator).items() if not (name.startswith("_") or name.endswith("_"))}
    # Whole numbers of Python's have no limit; those that are no float are no parameter, and their digits fill pages.
    for name, value in p.items():
        if name != "random_state" and isinstance(value, int) and abs(value) >= 2**63:
            raise OptionError(f"{name} is not possible: a whole number of {value.bit_length()} bits is too large.")
    C = [p["C"]] if is_real(p["C"]) else values_of(p["C"])
    if not (isinstance(p["C"], str) and p["C"] == "auto") and not are_positive(C):
        raise OptionError(
            f'C={p["C"]!r} is not possible; it must be "auto", a finite number above 0 or a list of such numbers.'
        )
    if p["cv"] is not None and not (is_whole(p["cv"]) and p["cv"] >= 2):
        raise OptionError(f"cv={p['cv']!r} is not possible; it must be a whole number of at least 2, or None.")
    if not (is_real(p["validation_fraction"]) and 0 < p["validation_fraction"] < 1):
        raise OptionError(
            f"validation_fraction={p['validation_fraction']!r} is not possible; it must be a number above 0 and below 1."
        )
    if not (is_real(p["tol"]) and p["tol"] >= 0):
        raise OptionError(f"tol={p['tol']!r} is not possible; it must be a number that is not negative.")
    if not (is_whole(p["max_passes"]) and p["max_passes"] >= 1):
        raise OptionError(f"max_passes={p['max_passes']!r} is not possible; it must be a whole number of at least 1.")
    if p["max_seconds"] is not None and not (is_real(p["max_seconds"]) and p["max_seconds"] > 0):
        raise OptionError(f"max_seconds={p['max_seconds']!r} is not possible; it must be a number above 0, or None.")
    if p["C_path"] is not None:
        if not are_positive(values_of(p["C_path"])):
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
    bytes_of(p.get("max_memory"))
    if p.get("device", "cpu") != "cpu":
        check_device(p["device"])
    _check_name("solver", p["solver"], ("auto", *SOLVERS), "solve")
    _check_name("inference", p["inference"], ("auto", *ENGINES), "maximise")
    if isinstance(p["loss"], str) and not estimator.knows_loss(p["loss"]):
        raise OptionError(
            f"loss={p['loss']!r} is not known; use {quoted(estimator.losses)}{' or a table of costs' * estimator.costs}."
            + did_you_mean(p["loss"], estimator.losses)
        )
    check_signs(estimator)
    _check_kernel(estimator)
    _check_basis(estimator)
    if estimator.objective not in OBJECTIVES:
        raise OptionError(
            f"objective={estimator.objective!r} is not known; use {quoted(OBJECTIVES)}."
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
        if not isinstance(p["checkpoint"], str | os.PathLike):
            raise OptionError(f"checkpoint={p['checkpoint']!r} is not possible; it must be a path, or None.")
        check_writable(p["checkpoint"])


def _check_kernel(estimator: Any) -> None:
    kernel, gamma = estimator.kernel, estimator.gamma
    named = isinstance(kernel, str)
    if named and kernel in KERNELS and kernel not in estimator.kernels:
        raise OptionError(
            f"kernel={kernel!r} is not possible for {type(estimator).__name__}, whose examples have many rows each; "
            f"use {quoted(estimator.kernels)} or a function of two matrices."
        )
    if isinstance(kernel, type) or not (kernel in estimator.kernels if named else callable(kernel)):
        raise OptionError(
            f"kernel={kernel!r} is not known; use {quoted(estimator.kernels)} or a function of two matrices."
            + did_you_mean(kernel, estimator.kernels if named else ())
        )
    if not (gamma == "scale" if isinstance(gamma, str) else is_real(gamma) and math.isfinite(gamma) and gamma > 0):
        raise OptionError(f'gamma={gamma!r} is not possible; it must be "scale" or a finite number above 0.')
    if not (is_whole(estimator.degree) and estimator.degree >= 1):
        raise OptionError(f"degree={estimator.degree!r} is not possible; it must be a whole number of at least 1.")
    if not (is_real(estimator.coef0) and math.isfinite(estimator.coef0) and estimator.coef0 >= 0):
        raise OptionError(
            f"coef0={estimator.coef0!r} is not possible; it must be a finite number that is not negative."
        )


def _check_basis(estimator: Any) -> None:
    n_basis, basis = estimator.n_basis, estimator.basis
    if not (isinstance(basis, str) and basis in BASES):
        raise OptionError(f"basis={basis!r} is not known; use {quoted(BASES)}." + did_you_mean(basis, BASES))
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
                f"{parameter}={value!r} is not known; the known names are {quoted(known)}." + did_you_mean(value, known)
            )
    elif isinstance(value, type) or not callable(getattr(value, method, None)):
        raise OptionError(
            f"{parameter}={value!r} is neither a name nor an object with a method {method}; "
            f"the known names are {quoted(known)}."
        )


def quoted(names: tuple[str, ...]) -> str:
    """Names in quotation marks, with commas."""
    return ", ".join(f'"{name}"' for name in names)


def values_of(given: Any) -> list[Any]:
    """What a list holds; nothing if it is none."""
    plain = hasattr(given, "__len__") and not isinstance(given, str) and getattr(given, "ndim", 1) == 1
    return list(given) if plain else []


def are_positive(values: list[Any]) -> bool:
    """Whether there are values, all of them finite numbers above 0."""
    return bool(values) and all(is_real(one) and math.isfinite(one) and one > 0 for one in values)


def is_real(value: Any) -> bool:
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

"""The decorators of compiled code.

`kernel` is for functions called from Python, `inner` for functions called only by kernels, `reordering` for those of them whose
sums may be taken in any order, and `inner_overload` for those that depend on the type of an argument. Division follows IEEE
rules, as in NumPy.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numba
from numba import types
from numba.extending import overload

from . import shortcuts  # noqa: F401
from .cache import KNOWN
from .inner_code import REPLACEABLE

_INNER: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
if REPLACEABLE:
    from .inner_code import InnerCompiler

    _INNER["pipeline_class"] = InnerCompiler
if KNOWN:
    from .cache import ContentCache


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function that Python calls."""
    return _compiled(function, no_cfunc_wrapper=True)


def inner(function: Callable[..., Any]) -> Any:
    """Compile a function that only kernels call: Python must not, there is nothing that it could enter."""
    return _compiled(function, **_INNER)


def reordering(function: Callable[..., Any]) -> Any:
    """As `inner`, for a function whose sums may be taken in any order: then several are made at a time."""
    return _compiled(function, fastmath={"reassoc", "contract", "nsz"}, **_INNER)


def inner_overload(function: Callable[..., Any]) -> Any:
    """Decorate a function that, given types, returns the inner function that kernels call in the place of `function`."""
    options: Any = {"nogil": True, "error_model": "numpy", **_INNER}
    return overload(function, jit_options=options)


def _compiled(function: Callable[..., Any], **options: Any) -> Any:
    # Numba's stubs do not know all of its options.
    njit: Any = numba.njit
    options |= {"nogil": True, "error_model": "numpy"}
    made = njit(**options)(function)
    if not hasattr(made, "py_func"):  # NUMBA_DISABLE_JIT
        return made
    made.get_call_template = _without_literals(made.get_call_template)
    if KNOWN and hasattr(made, "_cache"):
        made._cache = ContentCache(function)
        return made
    with contextlib.suppress(RuntimeError):  # Numba finds no place for its own cache
        return njit(cache=True, **options)(function)
    return made


def _without_literals(get_call_template: Callable[..., Any]) -> Callable[..., Any]:
    """Numba would compile f(0) and f(n) as two functions; the number is as good as any other."""

    def template(args: tuple[Any, ...], kws: dict[str, Any]) -> Any:
        return get_call_template(tuple(map(types.unliteral, args)), {k: types.unliteral(v) for k, v in kws.items()})

    return template

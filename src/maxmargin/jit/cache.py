"""The cache of compiled code: one folder of the user for all environments, one file a function and signature.

A file's name is a hash of everything that its content depends on:

- the text of the function's module and of all modules of this package that it imports, directly or not (`source_stamp`), so
  that no edit leaves stale code, and an edit of anything else recompiles nothing;
- the types of the arguments, and for tuples and structs with named fields the fields and the text of the module that defines them;
- the versions of Python, Numba, llvmlite and NumPy, the processor, and the settings of Numba that change the code.

Where nothing can be kept, kernels are compiled without a cache, and one line on the standard error says so.
"""

from __future__ import annotations

import contextlib
import hashlib
import pickle
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numba

from .folder import ENDING, cache_folder, cannot_keep, read, sweep, write
from .inner_code import REPLACEABLE, rebuild
from .sources import of_package, source_stamp
from .stopwatch import counting, say_once

try:
    from numba.core import caching, config, serialize

    # Numba's stubs have no types for this.
    _pickling: Any = serialize
    #: Whether this is a Numba whose cache can be replaced.
    KNOWN = REPLACEABLE and hasattr(caching, "_Cache")
except ImportError:
    KNOWN = False

#: Settings of Numba that change the code, beside those that its description of the processor has.
_SETTINGS = (
    "BOUNDSCHECK",
    "OPT",
    "LOOP_VECTORIZE",
    "SLP_VECTORIZE",
    "USING_SVML",
    "DEBUGINFO_DEFAULT",
    "FULL_TRACEBACKS",
)


if KNOWN:

    class ContentCache(caching._Cache):
        """Keeps the compiled code of one function; what Numba asks is `load_overload` and `save_overload`."""

        def __init__(self, function: Callable[..., Any]) -> None:
            self._function = function
            self._enabled = True

        @property
        def cache_path(self) -> str | None:
            """The folder."""
            folder = cache_folder()[0]
            return None if folder is None else str(folder)

        def enable(self) -> None:
            """Load and save from now on."""
            self._enabled = True

        def disable(self) -> None:
            """Neither load nor save from now on."""
            self._enabled = False

        def flush(self) -> None:
            """Nothing to do: a file that no longer fits is never found."""

        def load_overload(self, sig: Any, target_context: Any) -> Any:
            """The compiled code for the types of arguments, or None."""
            target_context.refresh()
            with contextlib.suppress(Exception):  # a file that cannot be used is a file that is not there
                path = self._path(sig, target_context.codegen())
                content = None if path is None else read(path)
                if content is not None:
                    types, payload = pickle.loads(content)
                    if types == sig:
                        return rebuild(target_context, payload)
            return None

        def save_overload(self, sig: Any, data: Any) -> None:
            """Keep compiled code, where that is possible."""
            with counting(), contextlib.suppress(Exception):
                folder, problem = cache_folder()
                if problem is not None:
                    say_once(problem)
                lasting = all(one.can_cache for one in data.lifted) and not data.library.has_dynamic_globals
                path = self._path(sig, data.codegen)
                if folder is None or path is None or not lasting:
                    return
                content: bytes = _pickling.dumps((sig, data._reduce()))
                try:
                    write(path, content)
                except OSError as error:
                    say_once(cannot_keep(folder, error.strerror or str(error)))
                else:
                    sweep(folder)

        def _path(self, sig: Any, codegen: Any) -> Path | None:
            """The file for the types of arguments; None where nothing may be kept."""
            folder, function = cache_folder()[0], self._function
            stamp = source_stamp(function.__module__)
            # Code that is baked in but is not text of the package is not known well enough.
            if folder is None or stamp is None or not self._enabled or function.__closure__ or "Dispatcher" in str(sig):
                return None
            classes = [
                (str(one), getattr(one, "_fields", ()), source_stamp(one.__module__), of_package(one.__module__))
                for one in _classes(getattr(sig, "args", sig))
            ]
            if any(text is None and ours for _, _, text, ours in classes):
                return None
            code = function.__code__
            key = (
                stamp, function.__qualname__, code.co_firstlineno, code.co_code, str(sig), classes, codegen.magic_tuple(),
                _versions(), [str(getattr(config, name, None)) for name in _SETTINGS],
            )  # fmt: skip
            name = re.sub(r"[^\w.]", "", f"{function.__module__}.{function.__qualname__}")
            return folder / f"{name[-100:]}-{hashlib.sha256(repr(key).encode()).hexdigest()[:32]}{ENDING}"


def _classes(types: Any) -> Iterator[Any]:
    """The classes of all tuples with names and structs, at any depth."""
    for one in types if isinstance(types, tuple | list) else (types,):
        if hasattr(one, "instance_class"):
            yield one.instance_class
        parts = getattr(one, "field_types", None) or getattr(one, "types", None) or getattr(one, "dtype", None)
        if parts is not None and parts is not one:
            yield from _classes(tuple(parts) if isinstance(parts, tuple | list) else parts)


@cache
def _versions() -> tuple[str, ...]:
    import llvmlite  # type: ignore[import-untyped]
    import numpy

    return (
        str(sys.implementation.cache_tag), getattr(sys, "abiflags", ""), sys.platform, numba.__version__,
        llvmlite.__version__, numpy.__version__,
    )  # fmt: skip

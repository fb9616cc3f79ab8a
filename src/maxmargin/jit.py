"""All about compilation: the decorators of compiled code, the cache of what was compiled, and the seconds that it took.

`kernel` is for functions called from Python, `inner` for functions called only by kernels (no Python entry is compiled
for them). Division follows IEEE rules, as in NumPy. Kernels take the tuple of a batch's arrays and bind what they need
once, at the top; inner functions take plain arrays, because reading an array out of a tuple counts a reference, and in
an inner loop that costs more than the loop.

The cache
---------
Compiled code is kept in one folder of the user, for all environments, one file a function and signature. A file's name is a
hash of everything that its content depends on:

- the text of the function's module and of all modules of this package that it imports, directly or not (`source_stamp`), so
  that no edit leaves stale code, and an edit of anything else recompiles nothing;
- the types of the arguments, and for tuples with named fields the fields and the text of the module that defines them;
- the versions of Python, Numba, llvmlite and NumPy, the processor, and the settings of Numba that change the code.

Loading compiled code executes what the file says, so only files are read that belong to this user (or to root) and that
nobody else may write. Where nothing can be kept, kernels are compiled without a cache, and one line on the standard error says
so. Files that were not used for 90 days are removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import re
import stat
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numba

try:
    from numba.core import caching, config, event, serialize
    from numba.core.compiler import CompileResult

    # Numba's stubs have no types for these.
    _events: Any = event
    _pickling: Any = serialize
    _CompileResult: Any = CompileResult
    _KNOWN = all(hasattr(CompileResult, name) for name in ("_reduce", "_rebuild")) and hasattr(caching, "_Cache")
except ImportError:  # another Numba than those that are known
    _KNOWN = False

_PACKAGE = __name__.partition(".")[0]
#: Sources that changed later may differ from what was imported.
_IMPORTED: float = sys.modules[_PACKAGE]._imported
_ENDING = ".kernel"
_DAY = 86400.0
_KEPT_DAYS = 90
#: Seconds of compilation after which it is announced.
_PATIENCE = 2.0
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


# --------------------------------------------------------------------------------------------------------- decorators


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function that Python calls."""
    return _compiled(function)


def inner(function: Callable[..., Any]) -> Any:
    """Compile a function that only kernels call."""
    return _compiled(function, no_cpython_wrapper=True)


def _compiled(function: Callable[..., Any], **options: Any) -> Any:
    # Numba's stubs do not know all of its options.
    njit: Any = numba.njit
    options |= {"nogil": True, "error_model": "numpy"}
    made = njit(**options)(function)
    if not hasattr(made, "py_func"):  # NUMBA_DISABLE_JIT
        return made
    if _KNOWN and hasattr(made, "_cache"):
        made._cache = ContentCache(function)
        return made
    with contextlib.suppress(RuntimeError):  # Numba finds no place for its own cache
        return njit(cache=True, **options)(function)
    return made


# -------------------------------------------------------------------------------------------------------------- cache

if _KNOWN:

    class ContentCache(caching._Cache):
        """Keeps the compiled code of one function; what Numba asks is `load_overload` and `save_overload`."""

        def __init__(self, function: Callable[..., Any]) -> None:
            self._function = function
            self._enabled = True

        @property
        def cache_path(self) -> str | None:
            """The folder."""
            folder = _folder()[0]
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
                content = None if path is None else _read(path)
                if content is not None:
                    types, payload = pickle.loads(content)
                    if types == sig:
                        return _CompileResult._rebuild(target_context, *payload)
            return None

        def save_overload(self, sig: Any, data: Any) -> None:
            """Keep compiled code, where that is possible."""
            with _stopwatch.counting(), contextlib.suppress(Exception):
                folder, problem = _folder()
                if problem is not None:
                    _say_once(problem)
                lasting = all(one.can_cache for one in data.lifted) and not data.library.has_dynamic_globals
                path = self._path(sig, data.codegen)
                if folder is None or path is None or not lasting:
                    return
                content: bytes = _pickling.dumps((sig, data._reduce()))
                try:
                    _write(path, content)
                except OSError as error:
                    _say_once(_cannot_keep(folder, error.strerror or str(error)))
                else:
                    _sweep(folder)

        def _path(self, sig: Any, codegen: Any) -> Path | None:
            """The file for the types of arguments; None where nothing may be kept."""
            folder, function = _folder()[0], self._function
            stamp = source_stamp(function.__module__)
            # Code that is baked in but is not text of the package is not known well enough.
            if folder is None or stamp is None or not self._enabled or function.__closure__ or "Dispatcher" in str(sig):
                return None
            classes = [
                (str(one), getattr(one, "_fields", ()), source_stamp(one.__module__), _of_package(one.__module__))
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
            return folder / f"{name[-100:]}-{hashlib.sha256(repr(key).encode()).hexdigest()[:32]}{_ENDING}"


def _classes(types: Any) -> Iterator[Any]:
    """The classes of all tuples with names, at any depth."""
    for one in types if isinstance(types, tuple | list) else (types,):
        if hasattr(one, "instance_class"):
            yield one.instance_class
        parts = getattr(one, "types", None) or getattr(one, "dtype", None)
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


# ----------------------------------------------------------------------------------------------------- text of sources

# Imports anywhere, also in functions and in text; a module that is named in full counts as imported.
_IMPORTS = re.compile(
    rf"\bfrom\s+(?P<source>\.+[\w.]*|{_PACKAGE}[\w.]*)\s+import\s*(?P<names>\((?:[^)#]|#[^\n]*)*\)|(?:[^\n]*\\\n)*[^\n]*)"
    rf"|\b(?P<whole>{_PACKAGE}(?:\.\w+)+)"
    rf"|\bimport[ \t][^\n;#]*?\b(?P<root>{_PACKAGE})\b(?![.])"
)


@cache
def source_stamp(module: str) -> str | None:
    """Hash of the text of a module of this package and of all that it imports from the package.

    None for other modules, where there is no text, and where any of it changed after it was imported.
    """
    found: set[str] = set()
    new = [module]
    while new:
        found.update(new)
        new = sorted({there for here in new for there in _source(here)[1]} - found)
    texts = [_source(name)[0] for name in sorted(found)]
    return None if None in texts else hashlib.sha256(repr(texts).encode()).hexdigest()


@cache
def _source(module: str) -> tuple[str | None, tuple[str, ...]]:
    """Hash of the text of one module of the package, and the modules that it names; no hash if it cannot be had."""
    path = _file(module)
    try:
        if path is None or max(path.stat().st_mtime, path.stat().st_ctime) > _IMPORTED:
            return None, ()
        text = path.read_bytes().decode()
    except (OSError, ValueError):
        return None, ()
    parents = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    named: set[str] = set()
    for match in _IMPORTS.finditer(text):
        source, names, whole = match["source"], match["names"], match["whole"]
        if source is None:
            named.add(_longest(whole or _PACKAGE))
            continue
        if source.startswith("."):
            dots = len(source) - len(source.lstrip("."))
            source = ".".join(parents[: len(parents) - dots + 1] + [part for part in [source.lstrip(".")] if part])
        inside = _file(source)
        if inside is None or inside.name != "__init__.py":
            named.add(_longest(source))
            continue
        # A name of a package is a module in it, or something that its __init__ has.
        named.update(
            f"{source}.{name}" if _file(f"{source}.{name}") is not None else source
            for name in re.findall(r"[\w*]+", re.sub(r"#[^\n]*|\bas\s+\w+", "", names))
        )
    return hashlib.sha256(text.encode()).hexdigest(), tuple(sorted(named - {module}))


def _of_package(module: str) -> bool:
    return module.partition(".")[0] == _PACKAGE


def _longest(name: str) -> str:
    """The longest part of a dotted name that is a module."""
    while _file(name) is None and "." in name:
        name = name.rpartition(".")[0]
    return name


@cache
def _file(module: str) -> Path | None:
    """The file of a module of the package."""
    root, *parts = module.split(".")
    base = Path(__file__).parent.joinpath(*parts)
    if root != _PACKAGE:
        return None
    if parts and base.with_suffix(".py").is_file():
        return base.with_suffix(".py")
    return base / "__init__.py" if (base / "__init__.py").is_file() else None


# ---------------------------------------------------------------------------------------------------- folder and files


def describe_cache() -> str:
    """Where compiled code is kept, and how much of it there is."""
    folder, problem = _folder()
    if folder is None:
        return str(problem)
    sizes = [entry.stat().st_size for entry in os.scandir(folder) if entry.name.endswith(_ENDING)]
    return f"{len(sizes)} in {folder} ({sum(sizes) / 1e6:.1f} MB)" if sizes else f"none yet in {folder}"


@cache
def _folder() -> tuple[Path | None, str | None]:
    """The folder of compiled code; and what is wrong with it, if nothing can be kept there."""
    try:
        folder = _place()
    except RuntimeError:  # no home
        return None, _cannot_keep(None, "there is no home folder")
    try:
        # Each level is made for this user alone.
        for level in (folder.parent, folder):
            if not level.is_dir():
                level.parent.mkdir(parents=True, exist_ok=True)
                level.mkdir(0o700, exist_ok=True)
        fault = _not_safe(os.stat(folder))
    except OSError as error:
        return None, _cannot_keep(folder, error.strerror or str(error))
    return (folder, None) if fault is None else (None, _cannot_keep(folder, fault))


def _place() -> Path:
    # The environment alone decides: Numba also reads a file in the current folder, which may be anybody's.
    chosen, numbas = os.environ.get("MAXMARGIN_CACHE_DIR"), os.environ.get("NUMBA_CACHE_DIR")
    if chosen:
        base = Path(chosen).expanduser()
    elif numbas:
        base = Path(numbas).expanduser() / _PACKAGE
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches" / _PACKAGE
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / _PACKAGE / "Cache"
    else:
        given = os.environ.get("XDG_CACHE_HOME", "")
        base = (Path(given) if os.path.isabs(given) else Path.home() / ".cache") / _PACKAGE
    return Path(os.path.abspath(base)) / "kernels"


def _not_safe(found: os.stat_result) -> str | None:
    """Why something must not be executed: others could have written it."""
    if os.name != "posix":
        return None
    if found.st_uid not in (os.geteuid(), 0):
        return "it belongs to another user"
    return "others may write there" if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) else None


def _cannot_keep(folder: Path | None, reason: str) -> str:
    place = "" if folder is None else f" in {folder}"
    return (
        f"maxmargin: compiled kernels cannot be kept{place} ({reason}), so each process compiles them again; set "
        "MAXMARGIN_CACHE_DIR to a folder of yours that can be written."
    )


def _read(path: Path) -> bytes | None:
    """The content of a file of the cache; None if it is not there, not safe or not whole."""
    try:
        with open(path, "rb") as stream:
            found = os.fstat(stream.fileno())
            if _not_safe(found) is not None:
                return None
            digest, content = stream.read(32), stream.read()
    except OSError:
        return None
    if hashlib.sha256(content).digest() != digest:
        return None
    if time.time() - found.st_mtime > _DAY:
        with contextlib.suppress(OSError):
            os.utime(path)
    return content


def _write(path: Path, content: bytes) -> None:
    """Write a file of the cache at once; whoever reads it meanwhile finds all or nothing."""
    temporary = path.with_name(f"{uuid.uuid4().hex}.tmp{_ENDING}")
    try:
        with open(
            os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600), "wb"
        ) as out:
            out.write(hashlib.sha256(content).digest() + content)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


@cache
def _sweep(folder: Path) -> None:
    """Remove what was not used for long, once a process and once a day; several processes may do it at once."""
    now, mark = time.time(), folder / "swept"
    with contextlib.suppress(OSError):
        if mark.exists() and now - mark.stat().st_mtime < _DAY:
            return
        mark.touch(0o600)
        for entry in os.scandir(folder):
            days = 1 if entry.name.endswith(f".tmp{_ENDING}") else _KEPT_DAYS
            with contextlib.suppress(OSError):  # another process was faster
                if entry.name.endswith(_ENDING) and now - entry.stat().st_mtime > days * _DAY:
                    os.unlink(entry.path)


# ---------------------------------------------------------------------------------------- announcements and the clock


@cache
def _say_once(sentence: str) -> None:
    with contextlib.suppress(Exception):  # there may be no standard error
        print(sentence, file=sys.stderr, flush=True)


def announce_compilation() -> None:
    """Say, once a process, that kernels are being compiled."""
    problem = _folder()[1] if _KNOWN else None
    _say_once(problem or "Compiling kernels for this machine; they are kept for next time.")


class _Stopwatch:
    """Seconds of compilation. Numba compiles in one thread at a time, and a compilation contains those of what it calls."""

    def __init__(self) -> None:
        self.depth = 0
        self.quiet = False
        # Seconds of what is over, and when the present one began: read at once by other threads.
        self.state: tuple[float, float | None] = (0.0, None)
        self.timer: threading.Timer | None = None

    def begin(self, ours: bool) -> None:
        self.depth += 1
        if self.depth > 1:
            return
        total = self.state[0]
        self.state = total, time.perf_counter()
        if ours and not self.quiet:
            self.timer = threading.Timer(max(0.0, _PATIENCE - total), self.announce)
            self.timer.daemon = True
            self.timer.start()

    def end(self) -> None:
        self.depth -= 1
        total, started = self.state
        if self.depth == 0 and started is not None:
            self.state = total + time.perf_counter() - started, None
            if self.timer is not None:
                self.timer.cancel()
                self.timer = None

    def announce(self) -> None:
        if not self.quiet:
            self.quiet = True
            announce_compilation()

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        self.begin(ours=False)
        try:
            yield
        finally:
            self.end()


_stopwatch = _Stopwatch()

if _KNOWN:

    class _Listener(_events.Listener):
        def on_start(self, event: Any) -> None:
            function = getattr((event.data or {}).get("dispatcher"), "py_func", None)
            _stopwatch.begin(_of_package(str(getattr(function, "__module__", ""))))

        def on_end(self, event: Any) -> None:
            _stopwatch.end()

    _events.register("numba:compile", _Listener())


def silence() -> None:
    """Do not announce compilation in this process."""
    _stopwatch.quiet = True


def compile_seconds() -> float:
    """Seconds that this process has spent compiling, in whatever thread, until now."""
    total, started = _stopwatch.state
    return total if started is None else total + time.perf_counter() - started


def clock() -> float:
    """Seconds from some moment, as `time.perf_counter`, which stand still while kernels are being compiled."""
    return time.perf_counter() - compile_seconds()

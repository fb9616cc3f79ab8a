"""The text that compiled code depends on: a module of this package and all that it imports from the package."""

from __future__ import annotations

import hashlib
import re
import sys
from functools import cache
from pathlib import Path

_PACKAGE = __name__.partition(".")[0]
#: Sources that changed later may differ from what was imported.
_IMPORTED: float = sys.modules[_PACKAGE]._imported

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


def of_package(module: str) -> bool:
    """Whether a module is one of this package."""
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
    base = Path(__file__).parent.parent.joinpath(*parts)
    if root != _PACKAGE:
        return None
    if parts and base.with_suffix(".py").is_file():
        return base.with_suffix(".py")
    return base / "__init__.py" if (base / "__init__.py").is_file() else None

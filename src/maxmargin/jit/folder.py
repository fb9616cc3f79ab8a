"""The folder of compiled code, and its files: written at once, read only if nobody else can have written them, removed after
90 days without use.

Loading compiled code executes what the file says, so only files are read that belong to this user (or to root) and that
nobody else may write.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import sys
import time
import uuid
from functools import cache
from pathlib import Path

_PACKAGE = __name__.partition(".")[0]
ENDING = ".kernel"
_DAY = 86400.0
_KEPT_DAYS = 90


def describe_cache() -> str:
    """Where compiled code is kept, and how much of it there is."""
    folder, problem = cache_folder()
    if folder is None:
        return str(problem)
    sizes = [entry.stat().st_size for entry in os.scandir(folder) if entry.name.endswith(ENDING)]
    return f"{len(sizes)} in {folder} ({sum(sizes) / 1e6:.1f} MB)" if sizes else f"none yet in {folder}"


@cache
def cache_folder() -> tuple[Path | None, str | None]:
    """The folder of compiled code; and what is wrong with it, if nothing can be kept there."""
    try:
        folder = _place()
    except RuntimeError:  # no home
        return None, cannot_keep(None, "there is no home folder")
    try:
        # Each level is made for this user alone.
        for level in (folder.parent, folder):
            if not level.is_dir():
                level.parent.mkdir(parents=True, exist_ok=True)
                level.mkdir(0o700, exist_ok=True)
        fault = _not_safe(os.stat(folder))
    except OSError as error:
        return None, cannot_keep(folder, error.strerror or str(error))
    return (folder, None) if fault is None else (None, cannot_keep(folder, fault))


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


def cannot_keep(folder: Path | None, reason: str) -> str:
    """A sentence about kernels that are compiled in every process."""
    place = "" if folder is None else f" in {folder}"
    return (
        f"maxmargin: compiled kernels cannot be kept{place} ({reason}), so each process compiles them again; set "
        "MAXMARGIN_CACHE_DIR to a folder of yours that can be written."
    )


def read(path: Path) -> bytes | None:
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


def write(path: Path, content: bytes) -> None:
    """Write a file of the cache at once; whoever reads it meanwhile finds all or nothing."""
    temporary = path.with_name(f"{uuid.uuid4().hex}.tmp{ENDING}")
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
def sweep(folder: Path) -> None:
    """Remove what was not used for long, once a process and once a day; several processes may do it at once."""
    now, mark = time.time(), folder / "swept"
    with contextlib.suppress(OSError):
        if mark.exists() and now - mark.stat().st_mtime < _DAY:
            return
        mark.touch(0o600)
        for entry in os.scandir(folder):
            days = 1 if entry.name.endswith(f".tmp{ENDING}") else _KEPT_DAYS
            with contextlib.suppress(OSError):  # another process was faster
                if entry.name.endswith(ENDING) and now - entry.stat().st_mtime > days * _DAY:
                    os.unlink(entry.path)

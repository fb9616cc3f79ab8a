"""Writing files so that a reader sees the old file or the new one, never a part.

Conventions
-----------
The new content goes to a temporary file in the same directory, is flushed to the disk, and takes the name of the target
in one step. A path that cannot be written is an `OptionError`, found before anything is computed or written. Symbolic
links are followed.

A process that is killed leaves its temporary file behind, and the next write of the same target removes it. Whether a temporary
file is in use says its lock, which the system gives up with the process that holds it; the age is looked at, too, since a file
is there before it is locked. Where there are no locks, such files stay (on Windows a file that is in use cannot be removed).
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from typing import Any, BinaryIO

from maxmargin.errors import OptionError

fcntl: Any = importlib.import_module("fcntl") if os.name == "posix" else None

#: Seconds after which a temporary file that nobody holds is taken for one that was left behind.
_STALE_SECONDS = 60.0


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise a sentence if a file cannot be written at a path, and leave nothing behind.

    Parameters
    ----------
    path : path-like
        The file to be written later; it may exist.

    Raises
    ------
    OptionError
        The directory is missing, the path is a directory or a device, the file is read-only, or permission is missing.
    """
    try:
        target = os.path.realpath(path)
        # Names that are too long, that hold a zero byte or that lead in circles are found by no other question.
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.stat(target)
    except (OSError, ValueError) as error:
        raise OptionError(
            f"The file {os.fspath(path)!s} cannot be written: {getattr(error, 'strerror', None) or error}."
        ) from error
    directory = os.path.dirname(target)
    if not os.path.isdir(directory):
        raise OptionError(f"The file {os.fspath(path)} cannot be written: the directory {directory} does not exist.")
    if os.path.isdir(target):
        raise OptionError(f"The file {os.fspath(path)} cannot be written: it is a directory, not a file.")
    if os.path.exists(target):
        mode = os.stat(target).st_mode
        if not stat.S_ISREG(mode):
            raise OptionError(f"The file {os.fspath(path)} cannot be written: it exists and is not a regular file.")
        # The mode is looked at as well, since the superuser may write what its owner has marked read-only.
        if not mode & 0o222 or not os.access(target, os.W_OK):
            raise OptionError(f"The file {os.fspath(path)} cannot be written: it exists and is read-only.")
    try:
        descriptor, temporary = _create_beside(target)
        os.close(descriptor)
        os.unlink(temporary)
    except OSError as error:
        raise OptionError(
            f"The file {os.fspath(path)} cannot be written: the directory {directory} refuses new files "
            f"({error.strerror or error})."
        ) from error


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Write a file in one step: the block writes to the yielded stream, and the file appears when the block ends.

    If the block raises, the old file stays as it was and the temporary file is removed.

    Parameters
    ----------
    path : path-like
        The file to write or to replace.

    Yields
    ------
    BinaryIO
        A seekable stream for the content.
    """
    check_writable(path)
    target = os.path.realpath(path)
    _remove_stale(target)
    descriptor, temporary = _create_beside(target)
    # A second descriptor keeps the lock until the file has its name.
    lock = _lock(descriptor)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        if os.path.exists(target):
            os.chmod(temporary, stat.S_IMODE(os.stat(target).st_mode))
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    finally:
        if lock is not None:
            os.close(lock)
    if os.name == "posix":
        _sync_directory(os.path.dirname(target))


def _prefix(target: str) -> str:
    # The name is cut so that a target with the longest possible name still has a temporary file.
    return f".{os.path.basename(target)[:60]}."


def _lock(descriptor: int) -> int | None:
    """Say that a temporary file is in use; returns a descriptor that holds the lock, or None where there are no locks."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.dup(descriptor)
    except OSError:
        return None


def _remove_stale(target: str) -> None:
    """Remove temporary files of this target that killed processes left behind."""
    prefix, directory = _prefix(target), os.path.dirname(target)
    pattern = re.compile(re.escape(prefix) + r"[0-9a-f]{16}\.tmp")
    with contextlib.suppress(OSError):
        found = [name for name in os.listdir(directory) if name.startswith(prefix) and pattern.fullmatch(name)]
        for name in found:
            with contextlib.suppress(OSError):
                _remove_if_stale(os.path.join(directory, name))


def _remove_if_stale(temporary: str) -> None:
    status = os.lstat(temporary)
    if not stat.S_ISREG(status.st_mode) or time.time() - status.st_mtime < _STALE_SECONDS:
        return
    if fcntl is None:
        os.unlink(temporary)
        return
    descriptor = os.open(temporary, os.O_RDWR | os.O_NOFOLLOW)
    try:
        # Refused, with an OSError, as long as the process that writes the file lives.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(temporary)
    finally:
        os.close(descriptor)


def _create_beside(target: str) -> tuple[int, str]:
    """Create an empty file beside the target. Unlike `tempfile`, this gives it the permissions of the umask."""
    name = f"{_prefix(target)}{secrets.token_hex(8)}.tmp"
    temporary = os.path.join(os.path.dirname(target), name)
    return os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_BINARY", 0), 0o666), temporary


def _sync_directory(directory: str) -> None:
    """Make the new name itself durable; some file systems cannot, and the content is safe without it."""
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

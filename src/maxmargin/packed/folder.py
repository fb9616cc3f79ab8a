"""The packed folder: ``header.json`` and a plain ``NAME.npy`` for each array.

Conventions
-----------
The header is a JSON object, as that of a model file: ``format``, ``format_version`` and ``arrays``, which has the dtype, shape,
number of bytes and SHA-256 of every array; all other keys are the caller's. Arrays are maps of their files, which nothing
writes to.

A folder is written under another name beside its own and gets its name in one step, when it is whole and on the disk; one that
is there already is never touched. A folder may come from anyone: reading executes nothing, and what the header, the files' own
headers and their sizes say must be the same. Checksums are compared where asked for (`Folder.verify`), since that reads
everything.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import math
import mmap
import os
import re
import secrets
import shutil
import stat
import time
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from maxmargin.errors import DataError, OptionError
from maxmargin.formats.model_file import MAX_HEADER_BYTES, NPY_HEADER, is_entry, to_json
from maxmargin.formats.npz import is_text

FORMAT, FORMAT_VERSION, HEADER = "maxmargin packed data", 1, "header.json"
#: The npy header of a packed array has this many bytes, so that it can be written when the size is known, at the end.
_NPY_BYTES = 128
_NAME = re.compile(r"[a-z_]{1,40}")
_LOCK = "lock"
#: Seconds after which a folder that nobody works on is taken for one that was left behind, and bytes that are read at a time.
_STALE_SECONDS, _PIECE = 60.0, 1 << 24

_fcntl: Any = importlib.import_module("fcntl") if os.name == "posix" else None


class ArrayWriter:
    """An array that is written row after row."""

    def __init__(self, path: str, dtype: Any, width: int | None = None) -> None:
        self.dtype, self.width, self.n_rows = np.dtype(dtype), width, 0
        self.digest = hashlib.sha256()
        self.stream: BinaryIO = open(path, "wb")  # noqa: SIM115
        self.stream.write(bytes(_NPY_BYTES))

    def add(self, rows: NDArray[Any]) -> None:
        """Append rows, or numbers."""
        values = np.ascontiguousarray(rows, self.dtype)
        if (values.ndim, *values.shape[1:]) != ((1,) if self.width is None else (2, self.width)):
            raise ValueError(f"rows of shape {values.shape} do not fit")
        content = values.reshape(-1).view(np.uint8).data
        self.digest.update(content)
        self.stream.write(content)
        self.n_rows += len(values)

    def close(self) -> dict[str, Any]:
        """Write the header of the file; returns what the folder's header says of the array."""
        shape = (self.n_rows,) if self.width is None else (self.n_rows, self.width)
        said = f"{{'descr': '{self.dtype.str}', 'fortran_order': False, 'shape': {shape}, }}"
        self.stream.seek(0)
        self.stream.write(b"\x93NUMPY\x01\x00" + (_NPY_BYTES - 10).to_bytes(2, "little"))
        self.stream.write(said.ljust(_NPY_BYTES - 11).encode() + b"\n")
        self.stream.flush()
        os.fsync(self.stream.fileno())
        self.stream.close()
        size = math.prod(shape) * self.dtype.itemsize
        return {"dtype": self.dtype.str, "shape": list(shape), "nbytes": size, "sha256": self.digest.hexdigest()}


class FolderWriter:
    """A new packed folder, which appears when the block ends without an error.

    Parameters
    ----------
    path : path-like
        The folder, which must not be there.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.place = check_new(path)
        self.header: dict[str, Any] = {}
        self._arrays: dict[str, ArrayWriter] = {}
        self._raw: list[BinaryIO] = []
        parent, name = os.path.split(self.place)
        prefix = f".{name[:60]}."
        _remove_stale(parent, prefix)
        self.temporary = os.path.join(parent, f"{prefix}{secrets.token_hex(8)}.tmp")
        try:
            os.mkdir(self.temporary)
        except OSError as error:
            raise OptionError(f"The folder {self.place} cannot be written: {error.strerror or error}.") from error
        self._lock = _locked(os.path.join(self.temporary, _LOCK))

    def array(self, name: str, dtype: Any, width: int | None = None) -> ArrayWriter:
        """An array of numbers, or of rows of so many, to be filled."""
        self._arrays[name] = ArrayWriter(self.path_of(f"{name}.npy"), dtype, width)
        return self._arrays[name]

    def raw(self, name: str) -> BinaryIO:
        """A file for what is on its way, which must be gone before the folder gets its name."""
        stream = open(self.path_of(f"raw_{name}"), "wb")  # noqa: SIM115
        self._raw.append(stream)
        return stream

    def path_of(self, name: str) -> str:
        """Where a file is as long as the folder has its other name."""
        return os.path.join(self.temporary, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            if kind is None:
                self._finish()
        finally:
            for stream in (*self._raw, *(one.stream for one in self._arrays.values())):
                with contextlib.suppress(OSError):
                    stream.close()
            if self._lock is not None:
                os.close(self._lock)
            if os.path.isdir(self.temporary):
                shutil.rmtree(self.temporary, ignore_errors=True)

    def _finish(self) -> None:
        entries = {name: one.close() for name, one in self._arrays.items()}
        full = {**to_json(self.header), "format": FORMAT, "format_version": FORMAT_VERSION, "arrays": entries}
        text = json.dumps(full, indent=1, sort_keys=True, allow_nan=False).encode("ascii")
        if len(text) > MAX_HEADER_BYTES:
            raise DataError(
                f"The header of {self.place} takes {len(text)} bytes, at most 16 MiB are allowed: it has too many labels."
            )
        with open(self.path_of(HEADER), "wb") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.unlink(self.path_of(_LOCK))
        if os.path.lexists(self.place):
            raise OptionError(f"The folder {self.place} cannot be written: another one has come there meanwhile.")
        os.rename(self.temporary, self.place)
        with contextlib.suppress(OSError):
            descriptor = os.open(os.path.dirname(self.place), os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def check_new(path: str | os.PathLike[str]) -> str:
    """Where a new folder will be, or a sentence why there can be none."""
    place = os.fspath(path)
    try:
        target = os.path.realpath(place)
        there = os.path.lexists(target)
    except (OSError, ValueError) as error:
        raise OptionError(f"The folder {place!r:.200} cannot be written: {error}.") from error
    if there:
        raise OptionError(
            f"The folder {place} cannot be written: it is there already; remove it first, or name another."
        )
    if not os.path.isdir(os.path.dirname(target)):
        raise OptionError(
            f"The folder {place} cannot be written: the directory {os.path.dirname(target)} does not exist."
        )
    return target


def _locked(path: str) -> int | None:
    """Say that a folder is being written; the system gives the lock up with the process."""
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o666)
    if _fcntl is not None:
        with contextlib.suppress(OSError):
            _fcntl.flock(descriptor, _fcntl.LOCK_EX | _fcntl.LOCK_NB)
    return descriptor


def _remove_stale(parent: str, prefix: str) -> None:
    """Remove what killed processes have left of a folder of this name."""
    pattern = re.compile(re.escape(prefix) + r"[0-9a-f]{16}\.tmp")
    with contextlib.suppress(OSError):
        for name in os.listdir(parent):
            if not pattern.fullmatch(name):
                continue
            folder = os.path.join(parent, name)
            with contextlib.suppress(OSError):
                status = os.lstat(folder)
                if _fcntl is None or not stat.S_ISDIR(status.st_mode) or time.time() - status.st_mtime < _STALE_SECONDS:
                    continue
                # Killed before it was locked, it has no lock.
                descriptor = os.open(os.path.join(folder, _LOCK), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)
                try:
                    # Refused, with an OSError, as long as the process that writes the folder lives.
                    _fcntl.flock(descriptor, _fcntl.LOCK_EX | _fcntl.LOCK_NB)
                    shutil.rmtree(folder)
                finally:
                    os.close(descriptor)


# --------------------------------------------------------------------------------------------------------------------
# Reading


class Folder:
    """A packed folder that was opened: its header, and its arrays as maps that cannot be written to.

    Parameters
    ----------
    path : path-like
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.place = os.path.abspath(os.fspath(path))
        text = self._text()
        #: Of the header, which has the checksums of all else.
        self.digest = hashlib.sha256(text).hexdigest()
        self.header = self._header(text)
        self.arrays = {name: self._map(name, entry) for name, entry in self.header["arrays"].items()}

    def verify(self) -> None:
        """Compare all checksums."""
        for name, array in self.arrays.items():
            digest, content = (
                hashlib.sha256(),
                array.reshape(-1).view(np.uint8) if array.size else np.empty(0, np.uint8),
            )
            for first in range(0, len(content), _PIECE):
                digest.update(content[first : first + _PIECE].data)
            if digest.hexdigest() != self.header["arrays"][name]["sha256"]:
                raise self.error(f"it was altered: the SHA-256 of the array {name!r} does not fit")

    def error(self, what: str) -> DataError:
        """An error of this folder's."""
        return DataError(f"The packed folder {self.place}: {what}.")

    def array(self, name: str, dtype: Any, shape: tuple[int | None, ...]) -> NDArray[Any]:
        """An array that must be there, of this type and shape; None stands for any size."""
        if name not in self.arrays:
            raise self.error(f"the array {name!r} is missing")
        found = self.arrays[name]
        fits = len(found.shape) == len(shape) and all(
            want in (None, have) for want, have in zip(shape, found.shape, strict=True)
        )
        if found.dtype != dtype or not fits:
            wanted = tuple("any" if size is None else size for size in shape)
            raise self.error(
                f"the array {name!r} has dtype {found.dtype} and shape {found.shape}; expected {np.dtype(dtype)} and {wanted}"
            )
        return found

    def size(self, key: str, least: int) -> int:
        """A number of the header that counts something."""
        value = self.header.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**62:
            raise self.error(f"its header says {key}={value!r:.60}; expected a whole number of at least {least}")
        return value

    def _text(self) -> bytes:
        try:
            with open(os.path.join(self.place, HEADER), "rb") as stream:
                if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                    raise self.error(f"its {HEADER} is no regular file")
                text = stream.read(MAX_HEADER_BYTES + 1)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise DataError(
                f"The folder {self.place} is no packed folder: its {HEADER} cannot be read: {reason}."
            ) from error
        if len(text) > MAX_HEADER_BYTES:
            raise self.error(f"its {HEADER} has more than 16 MiB")
        return text

    def _header(self, text: bytes) -> dict[str, Any]:
        def refuse(constant: str) -> None:
            raise ValueError(f"{constant} is no JSON")

        try:
            header = json.loads(text.decode("utf-8"), parse_constant=refuse)
        except RecursionError:
            raise self.error(f"its {HEADER} is nested too deep") from None
        except ValueError as error:
            raise self.error(f"its {HEADER} is not JSON ({error})") from error
        if not isinstance(header, dict) or header.get("format") != FORMAT:
            raise DataError(
                f"The folder {self.place} is no packed folder: its {HEADER} does not say format {FORMAT!r}."
            )
        version = header.get("format_version")
        if isinstance(version, bool) or not isinstance(version, int) or version != FORMAT_VERSION:
            raise self.error(
                f"its format_version is {version!r:.60}; this version of maxmargin reads {FORMAT_VERSION}: pack the data again"
            )
        entries = header.get("arrays")
        if not isinstance(entries, dict):
            raise self.error(f"its {HEADER} does not describe the arrays")
        for name, entry in entries.items():
            if not _NAME.fullmatch(name) or not is_entry(entry) or len(entry["shape"]) not in (1, 2):
                raise self.error(
                    f"its {HEADER} describes the array {name[:40]!r} wrongly; expected a plain dtype, a shape of one or two "
                    "numbers, nbytes and sha256"
                )
        return header

    def _map(self, name: str, entry: dict[str, Any]) -> NDArray[Any]:
        """Map the file of an array, after a look at what it says of itself."""
        dtype, shape = np.dtype(entry["dtype"]), tuple(entry["shape"])
        size = math.prod(shape) * dtype.itemsize
        try:
            with open(os.path.join(self.place, f"{name}.npy"), "rb") as stream:
                status = os.fstat(stream.fileno())
                if not stat.S_ISREG(status.st_mode):
                    raise self.error(f"the file of the array {name!r} is no regular file")
                said = stream.read(_NPY_BYTES)
                if size != entry["nbytes"] or status.st_size != _NPY_BYTES + size:
                    raise self.error(
                        f"the array {name!r} has shape {shape} of {dtype}, which is {size} bytes, but its file has "
                        f"{status.st_size} and should have {_NPY_BYTES} more than that"
                    )
                self._compare(name, said, entry)
                if size == 0:
                    return np.empty(shape, dtype)
                pages = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError, OverflowError) as error:
            if isinstance(error, DataError):
                raise
            reason = getattr(error, "strerror", None) or error
            raise self.error(f"the array {name!r} cannot be read: {reason}") from error
        array = np.frombuffer(pages, dtype, math.prod(shape), _NPY_BYTES).reshape(shape)
        if dtype.kind == "U" and not is_text(array):
            raise self.error(f"the array {name!r} has numbers in its strings that are no characters")
        return array

    def _compare(self, name: str, said: bytes, entry: dict[str, Any]) -> None:
        match = NPY_HEADER.fullmatch(said[10:])
        if said[:8] != b"\x93NUMPY\x01\x00" or int.from_bytes(said[8:10], "little") != _NPY_BYTES - 10 or match is None:
            raise self.error(f"the file of the array {name!r} is not a plain npy array of version 1.0")
        shape = [int(one) for one in match[3].decode("ascii").replace(" ", "").split(",") if one]
        if match[1].decode("latin-1") != entry["dtype"] or shape != entry["shape"] or match[2] != b"False":
            raise self.error(f"the array {name!r} has another dtype, shape or order in its file than in the header")


def is_packed(path: str | os.PathLike[str]) -> bool:
    """Whether there is a folder with a header at a path."""
    try:
        return os.path.isfile(os.path.join(os.fspath(path), HEADER))
    except (OSError, ValueError):
        return False

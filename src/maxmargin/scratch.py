"""Room on disk for arrays that grow with the data, while the data itself is larger than memory.

Inside of ``on_disk(folder)``, arrays that are asked for here and are not small are maps of files there. The files have no name, so
that they are gone with the arrays, or with the process. The system writes pages of them to the disk when it needs their memory, and
reads them again when they are used. Room is reserved on the disk before it is used: a disk that is full is an error here, and not a
signal in the middle of a kernel.

Outside of it, arrays are NumPy's own.
"""

from __future__ import annotations

import math
import mmap
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from maxmargin.errors import TooLargeError

#: Bytes below which an array is in memory all the same.
LEAST = 1 << 20
#: Where files are made now; the innermost is the last. One for all threads: a solver's threads work for one run.
_folders: list[str] = []


@contextmanager
def on_disk(folder: str | None) -> Iterator[None]:
    """Make large arrays on the disk of this folder, or, where it cannot be written, in the folder for temporary files.

    Parameters
    ----------
    folder : str or None
        None changes nothing.
    """
    if folder is None:
        yield
        return
    _folders.append(folder if os.access(folder, os.W_OK) else tempfile.gettempdir())
    try:
        yield
    finally:
        _folders.pop()


def empty(shape: int | tuple[int, ...], dtype: DTypeLike = np.float64) -> NDArray[Any]:
    """An array of anything; on disk it is one of zeros.

    Parameters
    ----------
    shape : int or tuple of int
    dtype : dtype
    """
    return _mapped(shape, dtype) if _is_large(shape, dtype) else np.empty(shape, dtype)


def zeros(shape: int | tuple[int, ...], dtype: DTypeLike = np.float64) -> NDArray[Any]:
    """An array of zeros.

    Parameters
    ----------
    shape : int or tuple of int
    dtype : dtype
    """
    return _mapped(shape, dtype) if _is_large(shape, dtype) else np.zeros(shape, dtype)


def copied(array: NDArray[Any]) -> NDArray[Any]:
    """A copy.

    Parameters
    ----------
    array : array
    """
    if not _is_large(array.shape, array.dtype):
        return array.copy()
    made = _mapped(array.shape, array.dtype)
    made[...] = array
    return made


def _is_large(shape: int | tuple[int, ...], dtype: DTypeLike) -> bool:
    return bool(_folders) and _size(shape, dtype) >= LEAST


def _size(shape: int | tuple[int, ...], dtype: DTypeLike) -> int:
    return math.prod(shape if isinstance(shape, tuple) else (int(shape),)) * np.dtype(dtype).itemsize


def _mapped(shape: int | tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    size, folder = _size(shape, dtype), _folders[-1]
    try:
        with tempfile.TemporaryFile(dir=folder, prefix=".maxmargin-") as file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                file.truncate(size)
            # The map has a descriptor of its own.
            pages = mmap.mmap(file.fileno(), size)
    except OSError as error:
        raise TooLargeError(
            f"{size} bytes of the state of training are to be on disk, in {folder}, which refuses them: "
            f"{error.strerror or error}."
        ) from error
    return np.frombuffer(pages, dtype).reshape(shape)

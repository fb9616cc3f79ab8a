"""Named arrays in ``.npz`` files, as NumPy's ``savez`` and ``savez_compressed`` write them.

Nothing is unpickled, and nothing is allocated before the sizes that the zip and the array's header declare have been found
equal, and in proportion to the file (`maxmargin.formats.compression`).
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import zipfile
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.errors import DataError
from maxmargin.formats.compression import READ_ERRORS, ZIP_ERRORS, check_archive, open_seekable


def array_names(path: str | os.PathLike[str]) -> set[str]:
    """The names of the arrays in a file."""
    with _opened(os.fspath(path)) as archive:
        return {name.removesuffix(".npy") for name in archive.namelist()}


def read_npz(path: str | os.PathLike[str], names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Read those of the named arrays that a file has.

    Parameters
    ----------
    path : path-like
    names : sequence of str
        Other members of the file are not looked at.
    """
    place = os.fspath(path)
    with _opened(place) as archive:
        there = set(archive.namelist())
        members = {name: f"{name}.npy" for name in names if f"{name}.npy" in there}
        check_archive(place, archive, list(members.values()))
        return {name: _read_array(place, archive, name, member) for name, member in members.items()}


def _read_array(place: str, archive: zipfile.ZipFile, name: str, member: str) -> NDArray[Any]:
    with archive.open(member) as stream:
        try:
            version = np.lib.format.read_magic(stream)
            if version == (1, 0):
                shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
            else:
                shape, _, dtype = np.lib.format.read_array_header_2_0(stream)
        except (*READ_ERRORS, zipfile.BadZipFile):
            raise
        # The header is a literal of Python's, and its parser and tokenizer raise whatever they like about one that is none.
        except Exception as error:
            raise DataError(f"{place}: the member {name!r} is not an array ({error}).") from error
        if dtype.hasobject:
            raise DataError(f"{place}: the array {name!r} holds pickled objects; expected numbers or strings.")
        room = archive.getinfo(member).file_size - stream.tell()
    if any(size < 0 for size in shape) or math.prod(shape) * dtype.itemsize != room:
        raise DataError(f"{place}: the array {name!r} has shape {shape} of {dtype}, but {room} bytes.")
    with archive.open(member) as stream:
        array: NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
        # Only the end of the member makes zipfile compare the checksum.
        stream.read(1)
    if not is_text(array):
        raise DataError(f"{place}: the array {name!r} has numbers in its strings that are no characters.")
    return array


def is_text(array: NDArray[Any]) -> bool:
    """Whether an array of strings holds characters only; Python's strings cannot be made of other numbers."""
    if array.dtype.kind != "U" or array.nbytes == 0:
        return True
    codes = np.ascontiguousarray(array).reshape(-1).view(np.dtype(np.uint32).newbyteorder(array.dtype.byteorder))
    return bool(codes.max() <= sys.maxunicode)


@contextlib.contextmanager
def _opened(place: str) -> Iterator[zipfile.ZipFile]:
    """The archive; what is wrong with it is said in sentences."""
    try:
        with open_seekable(place) as stream:
            if stream.read(2) != b"PK":
                raise DataError(f"{place}: this is not an npz file.")
            try:
                with zipfile.ZipFile(stream) as archive:
                    yield archive
            except DataError:
                raise
            except ZIP_ERRORS as error:
                raise DataError(f"{place}: this npz file is truncated or corrupt ({error}).") from error
    except DataError:
        raise
    except (OSError, ValueError) as error:
        raise DataError(f"The file {place} cannot be read: {getattr(error, 'strerror', None) or error}.") from error

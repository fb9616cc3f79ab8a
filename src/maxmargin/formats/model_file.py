"""The ``.mm`` model file: a zip of ``header.json`` and ``arrays/NAME.npy``.

Conventions
-----------
The header is a JSON object. Three of its keys are set here: ``format``, ``format_version`` and ``arrays``, which holds
the dtype, shape, number of bytes and SHA-256 of every array; all other keys are the caller's.

A model file may come from anyone. Reading executes nothing, and allocates nothing before the sizes that the zip, the
header and the npy member declare have been found equal to each other and below the limits. Every failure is a
`ModelFileError`. The same header and arrays give the same bytes: members are stored without compression (what deflate
makes depends on the version of zlib) under a fixed date. Deflated members are accepted when read.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from maxmargin.errors import ModelFileError, OptionError
from maxmargin.formats.atomic import atomic_write
from maxmargin.formats.npz import is_text

FORMAT = "maxmargin model"
FORMAT_VERSION = 1

_RESERVED = ("format", "format_version", "arrays")
_HEADER = "header.json"
_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_MEMBER = re.compile(r"arrays/([A-Za-z0-9_.-]+)\.npy")
_DTYPE = re.compile(r"[<>|][fiubU][0-9]{1,9}")
# What NumPy writes for a plain dtype, and nothing else: no expression is evaluated to find the shape.
NPY_HEADER = re.compile(
    rb"\{'descr': '([^']*)', 'fortran_order': (True|False), 'shape': \(([0-9, ]*)\), \} *\n", re.ASCII
)
MAX_HEADER_BYTES = 16 << 20
_MAX_MEMBERS = 256
_MAX_DEPTH = 64
# Deflate reaches 1032:1 on nothing but repetition; weights never come near this.
_MAX_RATIO = 200


def write_model(
    path: str | os.PathLike[str], header: Mapping[str, Any], arrays: Mapping[str, NDArray[np.generic]]
) -> None:
    """Write a model file in one step.

    Parameters
    ----------
    path : path-like
        The file to write or to replace.
    header : mapping
        What JSON can hold, with keys of str; NumPy scalars become numbers and tuples lists. NaN and infinity are
        refused, and so are the keys ``format``, ``format_version`` and ``arrays``.
    arrays : mapping of str to ndarray
        At most 255 arrays of bool, integers, floats of at most 8 bytes, or str.
    """
    for key in _RESERVED:
        if key in header:
            raise OptionError(f"The header of {os.fspath(path)} has the key {key!r}, which the format itself uses.")
    if len(arrays) >= _MAX_MEMBERS:
        raise OptionError(
            f"{len(arrays)} arrays are too many for {os.fspath(path)}; expected at most {_MAX_MEMBERS - 1}."
        )
    plain: dict[str, NDArray[np.generic]] = {}
    for name, array in sorted(arrays.items()):
        if not _NAME.fullmatch(name):
            raise OptionError(f"The array name {name!r} has characters other than letters, digits, '_', '.' and '-'.")
        plain[name] = np.asarray(array, order="C")
        if not is_plain(plain[name].dtype):
            raise OptionError(
                f"The array {name!r} has dtype {plain[name].dtype}; expected bool, integers, floats or strings."
            )
    full: dict[str, Any] = {
        **to_json(header, "header", 0),
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "arrays": {
            name: {
                "dtype": array.dtype.str,
                "shape": list(array.shape),
                "nbytes": array.nbytes,
                "sha256": hashlib.sha256(_bytes_of(array)).hexdigest(),
            }
            for name, array in plain.items()
        },
    }
    text = json.dumps(full, indent=1, sort_keys=True, allow_nan=False).encode("ascii")
    if len(text) > MAX_HEADER_BYTES:
        raise OptionError(f"The header of {os.fspath(path)} takes {len(text)} bytes; expected at most 16 MiB.")
    with atomic_write(path) as stream, zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        with archive.open(_member_info(_HEADER, len(text)), "w") as member:
            member.write(text)
        for name, array in plain.items():
            # The room for the npy header only decides whether the member needs 64-bit sizes.
            with archive.open(_member_info(f"arrays/{name}.npy", array.nbytes + 65536), "w") as member:
                np.lib.format.write_array(member, array, version=(1, 0), allow_pickle=False)


def read_model(
    path: str | os.PathLike[str], max_bytes: int = 8 << 30
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read a model file.

    Parameters
    ----------
    path : path-like
        The file.
    max_bytes : int
        The most that all members together may take in memory.

    Returns
    -------
    header : dict
        The header as written, and the keys ``format``, ``format_version`` and ``arrays``.
    arrays : dict of str to ndarray
        The arrays, writable and C-contiguous.
    """
    with _opened(path, max_bytes) as (place, archive, header):
        arrays = {name: _read_array(place, archive, name, entry) for name, entry in header["arrays"].items()}
    return header, arrays


def read_header(path: str | os.PathLike[str], max_bytes: int = 8 << 30) -> dict[str, Any]:
    """Read the header of a model file and check the members against it, without reading the arrays.

    Parameters
    ----------
    path : path-like
        The file.
    max_bytes : int
        The most that all members together may take in memory.

    Returns
    -------
    dict
        The header as written, and the keys ``format``, ``format_version`` and ``arrays``.
    """
    with _opened(path, max_bytes) as (_, _, header):
        return header


# --------------------------------------------------------------------------------------------------------------------
# Writing


def is_plain(dtype: np.dtype[Any]) -> bool:
    """Whether arrays of this type may stand in a file: bool, integers, floats of at most 8 bytes, str."""
    return dtype.kind in "fiubU" and dtype.names is None and not (dtype.kind == "f" and dtype.itemsize > 8)


def _bytes_of(array: NDArray[np.generic]) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def to_json(value: Any, place: str = "header", depth: int = 0) -> Any:
    """Return the value in the types of JSON, or raise a sentence that names the place in the header."""
    if depth > _MAX_DEPTH:
        raise OptionError(f"The header is nested more than {_MAX_DEPTH} deep at {place[:60]}...")
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise OptionError(f"{place} is {value}; JSON has no such number, so use None.")
        return value
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise OptionError(f"{place} has the key {key!r}; expected keys of type str.")
        return {str(key): to_json(entry, f"{place}[{key!r}]", depth + 1) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(entry, f"{place}[{i}]", depth + 1) for i, entry in enumerate(value)]
    raise OptionError(f"{place} is of type {type(value).__name__}, which JSON cannot hold.")


def _member_info(name: str, size: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
    info.create_system = 3
    info.external_attr = 0o644 << 16
    info.file_size = size
    return info


# --------------------------------------------------------------------------------------------------------------------
# Reading


@contextlib.contextmanager
def _opened(path: str | os.PathLike[str], max_bytes: int) -> Iterator[tuple[str, zipfile.ZipFile, dict[str, Any]]]:
    """Open a model file whose members and header have been checked; errors of the zip inside become sentences."""
    place = os.fspath(path)
    try:
        with open(place, "rb") as stream:
            archive = _open_zip(place, stream)
            with archive:
                _check_members(place, archive, os.fstat(stream.fileno()).st_size, max_bytes)
                header = _read_json(place, archive)
                _check_header(place, archive, header)
                yield place, archive, header
    except ModelFileError:
        raise
    except FileNotFoundError as error:
        raise ModelFileError(f"The model file {place} does not exist.") from error
    # zipfile speaks in many tongues about bytes that make no sense.
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, KeyError, RuntimeError) as error:
        raise ModelFileError(f"The model file {place} is truncated or altered ({error}).") from error


def _open_zip(place: str, stream: BinaryIO) -> zipfile.ZipFile:
    magic = stream.read(4)
    if magic != b"PK\x03\x04":
        raise ModelFileError(f"The file {place} is no model file: it is not a zip archive with a header.json.")
    return zipfile.ZipFile(stream)


def _check_members(place: str, archive: zipfile.ZipFile, file_bytes: int, max_bytes: int) -> None:
    members = archive.infolist()
    # zipfile cuts and mends the names it finds; what counts is what the file says.
    names = [member.orig_filename for member in members]
    if len(members) > _MAX_MEMBERS:
        raise ModelFileError(f"The file {place} has {len(members)} members; a model file has at most {_MAX_MEMBERS}.")
    if _HEADER not in names:
        raise ModelFileError(f"The file {place} is no model file: the zip archive has no {_HEADER}.")
    for name in names:
        if name != _HEADER and not _MEMBER.fullmatch(name):
            raise ModelFileError(f"The model file {place} has the member {name!r}, which has no place in a model file.")
        if names.count(name) > 1:
            raise ModelFileError(f"The model file {place} has the member {name!r} twice.")
    for member in members:
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or member.flag_bits & 0x1:
            raise ModelFileError(
                f"The model file {place}: the member {member.filename!r} is encrypted or compressed in another way "
                "than deflate."
            )
        stored = member.compress_type == zipfile.ZIP_STORED
        ratio = 1 if stored else _MAX_RATIO
        if (
            stored and member.file_size != member.compress_size
        ) or member.file_size > ratio * member.compress_size + 64:
            raise ModelFileError(
                f"The model file {place}: the member {member.filename!r} declares {member.file_size} bytes in "
                f"{member.compress_size}, more than a model file can hold."
            )
        if member.filename == _HEADER and member.file_size > MAX_HEADER_BYTES:
            raise ModelFileError(
                f"The model file {place}: {_HEADER} declares {member.file_size} bytes; the limit is 16 MiB."
            )
    if sum(member.compress_size for member in members) > file_bytes:
        raise ModelFileError(f"The model file {place} is truncated or altered: it declares more bytes than it has.")
    total = sum(member.file_size for member in members)
    if total > max_bytes:
        raise ModelFileError(
            f"The model file {place} declares {total} bytes of content; the limit max_bytes is {max_bytes}."
        )


def _read_json(place: str, archive: zipfile.ZipFile) -> dict[str, Any]:
    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON")

    # zipfile stops at the declared size, so no more than the limit is ever read.
    text = archive.read(_HEADER)
    try:
        header = json.loads(text.decode("utf-8"), parse_constant=refuse)
    except RecursionError:
        raise ModelFileError(f"The model file {place}: {_HEADER} is nested too deep.") from None
    except ValueError as error:
        raise ModelFileError(f"The model file {place}: {_HEADER} is not JSON ({error}).") from error
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ModelFileError(f"The file {place} is no model file: {_HEADER} does not say format {FORMAT!r}.")
    version = header.get("format_version")
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise ModelFileError(f"The model file {place} has the format_version {version!r}; expected {FORMAT_VERSION}.")
    if version > FORMAT_VERSION:
        raise ModelFileError(
            f"The model file {place} was written by a newer maxmargin (format_version {version}); "
            f"this one reads up to {FORMAT_VERSION}."
        )
    return header


def _check_header(place: str, archive: zipfile.ZipFile, header: dict[str, Any]) -> None:
    """Check that the header describes exactly the members there are, in sizes that fit."""
    entries = header.get("arrays")
    if not isinstance(entries, dict):
        raise ModelFileError(f"The model file {place}: {_HEADER} does not describe the arrays.")
    expected = {f"arrays/{name}.npy" for name in entries} | {_HEADER}
    different = sorted(expected ^ set(archive.namelist()))
    if different:
        raise ModelFileError(f"The model file {place}: {different[0]!r} is in the header or in the zip, not in both.")
    for name, entry in entries.items():
        if not is_entry(entry):
            raise ModelFileError(
                f"The model file {place}: {_HEADER} describes the array {name!r} wrongly; "
                "expected a plain dtype, a shape, nbytes and sha256."
            )
        size = math.prod(entry["shape"]) * np.dtype(entry["dtype"]).itemsize
        declared = archive.getinfo(f"arrays/{name}.npy").file_size
        # The header of an npy member takes at most 10 bytes and a 16-bit length.
        if size != entry["nbytes"] or not 0 < declared - size <= 10 + 65535:
            raise ModelFileError(
                f"The model file {place}: the array {name!r} has shape {entry['shape']} of {entry['dtype']}, which is "
                f"{size} bytes, but {entry['nbytes']} are declared in the header and {declared} in the zip."
            )


def is_entry(entry: Any) -> bool:
    """Tell whether an entry of ``arrays`` has the four fields, each of its type."""
    if not isinstance(entry, dict):
        return False
    shape, nbytes = entry.get("shape"), entry.get("nbytes")
    if not (isinstance(shape, list) and len(shape) <= 32):
        return False
    if not all(isinstance(size, int) and not isinstance(size, bool) and 0 <= size < 2**62 for size in [*shape, nbytes]):
        return False
    dtype = entry.get("dtype")
    if not (isinstance(entry.get("sha256"), str) and isinstance(dtype, str) and _DTYPE.fullmatch(dtype)):
        return False
    try:
        return is_plain(np.dtype(dtype))
    except (TypeError, ValueError, OverflowError):
        return False


def _read_array(place: str, archive: zipfile.ZipFile, name: str, entry: dict[str, Any]) -> NDArray[Any]:
    member_name = f"arrays/{name}.npy"
    with archive.open(member_name) as member:
        prefix = member.read(10)
        text = member.read(int.from_bytes(prefix[8:10], "little"))
    match = NPY_HEADER.fullmatch(text)
    if prefix[:8] != b"\x93NUMPY\x01\x00" or match is None:
        raise ModelFileError(f"The model file {place}: the array {name!r} is not a plain npy array of version 1.0.")
    dtype = match[1].decode("latin-1")
    shape = [int(size) for size in match[3].decode("ascii").replace(" ", "").split(",") if size]
    if dtype != entry["dtype"] or shape != entry["shape"] or match[2] != b"False":
        raise ModelFileError(
            f"The model file {place}: the array {name!r} says dtype {dtype} and shape {shape} in the npy member, but "
            f"{entry['dtype']} and {entry['shape']} in the header, in C order."
        )
    if archive.getinfo(member_name).file_size != len(prefix) + len(text) + entry["nbytes"]:
        raise ModelFileError(f"The model file {place}: the array {name!r} is not as long as its shape says.")
    with archive.open(member_name) as member:
        array: NDArray[Any] = np.lib.format.read_array(member, allow_pickle=False)
        # Only the end of the member makes zipfile compare the checksum.
        if member.read(1):
            raise ModelFileError(f"The model file {place}: the array {name!r} is followed by other bytes.")
    if not is_text(array):
        raise ModelFileError(
            f"The model file {place}: the array {name!r} has numbers in its strings that are no characters."
        )
    if hashlib.sha256(_bytes_of(array)).hexdigest() != entry["sha256"]:
        raise ModelFileError(f"The model file {place} was altered: the SHA-256 of the array {name!r} does not fit.")
    return array

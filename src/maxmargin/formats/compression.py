"""Reading files that may be compressed.

Conventions
-----------
Plain, gzip, xz and bzip2 files are told apart by their first bytes, never by their name. Whatever goes wrong while a
file is opened or read (missing, truncated, corrupt, not UTF-8) is a `DataError` that names the file and the line at
which the reading stopped; the streams returned here raise it themselves, so that no reader has to translate errors.

Standard input, which goes by the name ``-``, and named pipes are read whole into memory, at most `MOST_PIPED` bytes of them. They
can be read once, and readers may look at a file twice: `keeping` holds what was read.

A small compressed file can unpack to more than any memory holds. What unpacks to more than `FREE_BYTES`, and to more than
`MOST_TIMES` its own size, is refused: real data sets unpack to 3 to 20 times their size. Unpacked files have no limit.
"""

from __future__ import annotations

import bz2
import codecs
import contextlib
import gzip
import io
import lzma
import os
import stat
import struct
import sys
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO, TextIO, cast

from maxmargin.errors import DataError

#: What compressed files may unpack to: always so many bytes, and above so many times their own size.
FREE_BYTES, MOST_TIMES = 64 << 20, 200
#: The name of the standard input, and how many bytes are read from it or from a named pipe.
STANDARD_INPUT, MOST_PIPED = "-", 4 << 30
#: What the standard library raises about compressed bytes that make no sense, or that ask for more memory than there is.
READ_ERRORS = (EOFError, OSError, lzma.LZMAError, zlib.error, MemoryError)
#: What its zipfile raises on archives that are cut, altered, encrypted or of an unknown kind.
ZIP_ERRORS = (*READ_ERRORS, zipfile.BadZipFile, struct.error, RuntimeError, ValueError, LookupError)


#: The content of pipes, for as long as `keeping` is open.
_kept: dict[str, bytes] = {}


@contextlib.contextmanager
def keeping(path: str | os.PathLike[str]) -> Iterator[None]:
    """Let all that is opened under this name be read from memory if it is a pipe, so that it can be opened more than once."""
    place = os.fspath(path)
    piped = place not in _kept and is_pipe(place)
    if piped:
        with _translated(place), open_seekable(place) as stream:
            _kept[place] = stream.read()
    try:
        yield
    finally:
        if piped:
            del _kept[place]


def is_pipe(place: str) -> bool:
    """Whether this is the standard input, or a named pipe."""
    if place == STANDARD_INPUT:
        return True
    try:
        return stat.S_ISFIFO(os.stat(place).st_mode)
    except (OSError, ValueError):
        return False


def open_seekable(place: str) -> BinaryIO:
    """Open a regular file, the standard input or a named pipe for reading its bytes as they are.

    Raises OSError, or ValueError about a name with a zero byte or one that the file system cannot spell.
    """
    if place in _kept:
        return io.BytesIO(_kept[place])
    if place == STANDARD_INPUT:
        if sys.stdin is None:
            raise OSError("the standard input is closed")
        return io.BytesIO(_piped(sys.stdin.buffer))
    stream = open(place, "rb")  # noqa: SIM115
    mode = os.fstat(stream.fileno()).st_mode
    if stat.S_ISREG(mode):
        return stream
    with stream:
        if not stat.S_ISFIFO(mode):
            raise OSError("it is neither a regular file nor a pipe")
        return io.BytesIO(_piped(stream))


def _piped(stream: BinaryIO) -> bytes:
    content = bytearray()
    while piece := stream.read(1 << 20):
        content += piece
        if len(content) > MOST_PIPED:
            raise OSError(f"more than {MOST_PIPED} bytes came through a pipe; write them to a file first")
    return bytes(content)


@contextlib.contextmanager
def _translated(place: str) -> Iterator[None]:
    try:
        yield
    # A name with a zero byte, or one that the file system cannot spell, is a ValueError.
    except (OSError, ValueError, MemoryError) as error:
        raise DataError(f"The file {place} cannot be opened: {_reason(error)}.") from error


def decompressing(stream: BinaryIO) -> BinaryIO:
    """Return the decompressed view of a seekable binary stream, or the stream itself where it is not compressed.

    Errors of the decompressor are not translated here.
    """
    magic = stream.read(6)
    stream.seek(0)
    if magic.startswith(b"\x1f\x8b"):
        return cast(BinaryIO, gzip.GzipFile(fileobj=stream, mode="rb"))
    if magic.startswith(b"\xfd7zXZ\x00"):
        return cast(BinaryIO, lzma.LZMAFile(stream))
    if magic.startswith(b"BZh"):
        return cast(BinaryIO, bz2.BZ2File(stream))
    return stream


def most_unpacked(file_bytes: int) -> int:
    """How many bytes a compressed file of this size may unpack to."""
    return max(FREE_BYTES, MOST_TIMES * file_bytes)


def check_archive(place: str, archive: zipfile.ZipFile, names: list[str]) -> None:
    """Refuse a zip archive whose members of these names declare more than it may unpack to; zipfile reads no more than that."""
    stream = archive.fp
    assert stream is not None
    limit = most_unpacked(stream.seek(0, os.SEEK_END))
    total = sum(archive.getinfo(name).file_size for name in names)
    if total > limit:
        raise DataError(
            f"The zip archive {place} declares {total} bytes of content, {MOST_TIMES} times its own size and more than "
            "64 MiB; it is not read. If this is meant, store its members without compression."
        )


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)


def open_binary(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a file for reading bytes, decompressed if it is compressed.

    Parameters
    ----------
    path : path-like
        The file.

    Returns
    -------
    BinaryIO
        A stream that raises `DataError` when the file turns out to be unreadable on the way.
    """
    return cast(BinaryIO, io.BufferedReader(_GuardedStream(path, utf8=False), 1 << 16))


def open_text(path: str | os.PathLike[str]) -> TextIO:
    """Open a UTF-8 file for reading lines, decompressed if it is compressed.

    A byte order mark is dropped, and all line ends read as a newline.

    Parameters
    ----------
    path : path-like
        The file.

    Returns
    -------
    TextIO
        A stream that raises `DataError` when the file turns out to be unreadable, or not UTF-8, on the way.
    """
    guarded = io.BufferedReader(_GuardedStream(path, utf8=True), 1 << 16)
    return io.TextIOWrapper(guarded, encoding="utf-8-sig")


class _GuardedStream(io.RawIOBase):
    """A raw stream that counts the lines that went through it and speaks in `DataError`."""

    def __init__(self, path: str | os.PathLike[str], utf8: bool) -> None:
        self._path = os.fspath(path)
        self._line = 1
        # The text layer above cannot say on which line a byte is that is no UTF-8, so the bytes are checked here.
        self._decoder = codecs.getincrementaldecoder("utf-8")() if utf8 else None
        # `close` is called even on a stream whose file could not be opened.
        self._file: BinaryIO | None = None
        with _translated(self._path):
            self._file = open_seekable(self._path)
        try:
            size = self._file.seek(0, os.SEEK_END)
            self._file.seek(0)
            self._stream = decompressing(self._file)
        except READ_ERRORS as error:
            self._file.close()
            raise DataError(f"The file {self._path} cannot be read: {error}.") from error
        self._read = 0
        self._limit = most_unpacked(size) if self._stream is not self._file else None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        try:
            data = self._stream.read(len(buffer))
        except READ_ERRORS as error:
            raise DataError(
                f"The file {self._path} is truncated or corrupt: reading stopped at line {self._line} ({error})."
            ) from error
        self._read += len(data)
        if self._limit is not None and self._read > self._limit:
            raise DataError(
                f"The file {self._path} unpacks to more than {self._limit} bytes, {MOST_TIMES} times its own size and more "
                "than 64 MiB: no more is read. If this is meant, unpack it first."
            )
        if self._decoder is not None:
            self._check_utf8(self._decoder, data)
        self._line += data.count(b"\n")
        buffer[: len(data)] = data
        return len(data)

    def _check_utf8(self, decoder: codecs.IncrementalDecoder, data: bytes) -> None:
        try:
            decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            line = self._line + error.object[: error.start].count(b"\n")
            raise DataError(f"The file {self._path} is not UTF-8 text at line {line} ({error.reason}).") from error

    def close(self) -> None:
        if not self.closed and self._file is not None:
            stream = getattr(self, "_stream", self._file)
            if stream is not self._file:
                stream.close()
            self._file.close()
        super().close()

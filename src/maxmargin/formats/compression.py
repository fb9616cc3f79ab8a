"""Reading files that may be compressed.

Conventions
-----------
Plain, gzip, xz and bzip2 files are told apart by their first bytes, never by their name. Whatever goes wrong while a
file is opened or read (missing, truncated, corrupt, not UTF-8) is a `DataError` that names the file and the line at
which the reading stopped; the streams returned here raise it themselves, so that no reader has to translate errors.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import os
import zlib
from typing import Any, BinaryIO, TextIO, cast

from maxmargin.errors import DataError

_READ_ERRORS = (EOFError, OSError, lzma.LZMAError, zlib.error)


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
        try:
            self._file = open(self._path, "rb")  # noqa: SIM115
        except OSError as error:
            raise DataError(f"The file {self._path} cannot be opened: {error.strerror or error}.") from error
        try:
            self._stream = decompressing(self._file)
        except _READ_ERRORS as error:
            self._file.close()
            raise DataError(f"The file {self._path} cannot be read: {error}.") from error

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        try:
            data = self._stream.read(len(buffer))
        except _READ_ERRORS as error:
            raise DataError(
                f"The file {self._path} is truncated or corrupt: reading stopped at line {self._line} ({error})."
            ) from error
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

"""Tagged sentences in columns, as CoNLL's shared tasks have them: ``Confidence NN B-NP``.

Conventions
-----------
One word a line, with its columns between spaces or tabs, the same number in every line; the last one is the tag. Blank
lines stand between sentences. Lines whose first column is ``-DOCSTART-`` are skipped. A line that begins with ``#`` is a
word like any other, unless comments are asked for.

A path may go on into a zip file: ``conll2000.zip/conll2000/train.txt``, or ``conll2000.zip/train.txt`` where only one of
its files has that name. What is in a zip is not unpacked to disk.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import TextIO

from maxmargin.errors import DataError
from maxmargin.formats.atomic import atomic_write
from maxmargin.formats.compression import ZIP_ERRORS, check_archive, open_text

_SPACES = re.compile(r"[ \t]+")
_ANY_SPACE = re.compile(r"[ \t-\r\x1c-\x1f]")

Sentence = list[tuple[str, ...]]


def read_conll(
    path: str | os.PathLike[str], comment: str | None = None, tagged: bool = True
) -> tuple[list[Sentence], list[list[str]]]:
    """Read sentences in columns, possibly compressed or in a zip file.

    Parameters
    ----------
    path : path-like
        The file; it may go on into a zip file.
    comment : str, optional
        Lines that begin with it are skipped.
    tagged : bool
        Whether the last column is the tag. If not, all columns belong to the word.

    Returns
    -------
    sentences : list of lists of tuples of str
        The columns of each word, without the tag.
    tags : list of lists of str
        The tags of each sentence; no list at all if the file is not tagged.
    """
    place = os.fspath(path)
    sentences: list[Sentence] = [[]]
    tags: list[list[str]] = [[]]
    width, first = 0, 0
    with _open(path) as stream:
        for number, line in enumerate(stream, start=1):
            # Other scripts have spaces that belong to a word, such as the one that is not to be broken.
            columns = line.split() if line.isascii() else [word for word in _SPACES.split(line.rstrip("\n")) if word]
            if not columns:
                if sentences[-1]:
                    sentences.append([])
                    tags.append([])
                continue
            if columns[0] == "-DOCSTART-" or (comment is not None and line.startswith(comment)):
                continue
            if len(columns) != width:
                if width:
                    raise DataError(
                        f"{place}, line {number}: {_columns(len(columns))} found, but line {first} has {width}."
                    )
                width, first = len(columns), number
                if tagged and width == 1:
                    raise DataError(
                        f"{place}, line {number}: 1 column found; expected a word, and its tag in the last."
                    )
            if tagged:
                tags[-1].append(columns.pop())
            sentences[-1].append(tuple(columns))
    if not sentences[-1]:
        sentences.pop()
        tags.pop()
    if not sentences:
        raise DataError(f"{place}: there are no sentences in the file.")
    return sentences, tags if tagged else []


def write_conll(
    path: str | os.PathLike[str],
    sentences: Sequence[Sequence[Sequence[str]]],
    tags: Sequence[Sequence[str]] | None = None,
) -> None:
    """Write sentences in columns, with spaces between them.

    Parameters
    ----------
    path : path-like
        The file to write or to replace, in one step.
    sentences : list of lists of tuples of str
        The columns of each word.
    tags : list of lists of str, optional
        A last column.
    """
    with atomic_write(path) as stream:
        stream.write(conll_text(sentences, tags, f" cannot be written to {os.fspath(path)}").encode())


def conll_text(
    sentences: Sequence[Sequence[Sequence[str]]],
    tags: Sequence[Sequence[str]] | None = None,
    complaint: str = " cannot be written",
) -> str:
    """The text of a file in columns."""
    if tags is not None and [len(rows) for rows in sentences] != [len(row) for row in tags]:
        raise DataError(f"The sentences and their tags{complaint}: they are not of the same lengths.")
    texts = []
    for m, rows in enumerate(sentences):
        if not rows:
            raise DataError(f"Sentence {m}{complaint}: it is empty.")
        lines = [tuple(row) if tags is None else (*row, tags[m][t]) for t, row in enumerate(rows)]
        for t, line in enumerate(lines):
            if len(line) != len(lines[0]) or not all(line) or any(map(_ANY_SPACE.search, line)):
                raise DataError(
                    f"Sentence {m}{complaint}: position {t} is {line!r}; expected {_columns(len(lines[0]))} without spaces."
                )
        texts.append("".join(" ".join(line) + "\n" for line in lines))
    return "\n".join(texts)


def _columns(count: int) -> str:
    return f"{count} column{'s' if count > 1 else ''}"


# --------------------------------------------------------------------------------------------------------------------
# Zip files


@contextlib.contextmanager
def _open(path: str | os.PathLike[str]) -> Iterator[TextIO]:
    """The lines of a file, or of a file in a zip file."""
    place = os.fspath(path)
    archive, member = _archive(place)
    if archive is None:
        with open_text(path) as stream:
            yield stream
        return
    content = _unzip(place, archive, member)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise DataError(f"The file {place} is not UTF-8 text at line {line} ({error.reason}).") from error
    yield io.StringIO(text, newline=None)


def _archive(place: str) -> tuple[str | None, str]:
    """The zip file that a path is or goes through, and the rest of the path; None if it is an ordinary path."""
    if os.path.isfile(place):
        return (place, "") if zipfile.is_zipfile(place) else (None, "")
    for parent in PurePath(place).parents:
        if os.path.isfile(parent):
            return str(parent), PurePath(place).relative_to(parent).as_posix()
    return None, ""


def _unzip(place: str, archive: str, member: str) -> bytes:
    try:
        with zipfile.ZipFile(archive) as opened:
            names = [info.filename for info in opened.infolist() if not info.is_dir()]
            found = [name for name in names if not member or name == member or name.endswith(f"/{member}")]
            if member in found:
                found = [member]
            if len(found) == 1:
                check_archive(archive, opened, found)
                return opened.read(found[0])
    except DataError:
        raise
    except ZIP_ERRORS as error:
        raise DataError(f"The file {archive} is truncated or corrupt, or no zip file ({error}).") from error
    shown = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
    raise DataError(f"{place}: {len(found)} files in {archive} could be meant; expected one of {shown}.")

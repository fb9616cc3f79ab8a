"""Tagged sentences in columns, as CoNLL's shared tasks have them: ``Confidence NN B-NP``.

Conventions
-----------
One word a line, with its columns between spaces or tabs, the same number in every line. The first is the word and the last
its tag, unless others are named; columns between the two belong to the word, and others are left out. Blank lines stand
between sentences. Lines whose first column is ``-DOCSTART-`` are skipped. A line that begins with ``#`` is a word like any
other, unless comments are asked for.

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

from maxmargin.errors import DataError, OptionError, did_you_mean
from maxmargin.formats.atomic import atomic_write
from maxmargin.formats.compression import STANDARD_INPUT, ZIP_ERRORS, check_archive, open_text

_SPACES = re.compile(r"[ \t]+")
_ANY_SPACE = re.compile(r"[ \t-\r\x1c-\x1f]")

Sentence = list[tuple[str, ...]]


def read_conll(
    path: str | os.PathLike[str],
    comment: str | None = None,
    tagged: bool = True,
    word_column: int | str = 1,
    tag_column: int | str = -1,
) -> tuple[list[Sentence], list[list[str]]]:
    """Read sentences in columns, possibly compressed or in a zip file.

    Parameters
    ----------
    path : path-like
        The file; it may go on into a zip file.
    comment : str, optional
        Lines that begin with it are skipped.
    tagged : bool
        Whether there is a column of tags. If not, all columns from that of the word on belong to the word.
    word_column, tag_column : int
        Numbers of these columns from 1, or from -1 for the last.

    Returns
    -------
    sentences : list of lists of tuples of str
        The columns of each word, without the tag.
    tags : list of lists of str
        The tags of each sentence; no list at all if the file is not tagged.
    """
    sentences: list[Sentence] = []
    tags: list[list[str]] = []
    for words, own in conll_sentences(path, comment, tagged, word_column, tag_column):
        sentences.append(words)
        tags.append(own)
    return sentences, tags if tagged else []


def conll_sentences(
    path: str | os.PathLike[str],
    comment: str | None = None,
    tagged: bool = True,
    word_column: int | str = 1,
    tag_column: int | str = -1,
) -> Iterator[tuple[Sentence, list[str]]]:
    """The sentences of a file and their tags, one after the other, as `read_conll` has them."""
    place = os.fspath(path)
    check_comment(comment)
    word = column_number("word_column", word_column)
    tag = column_number("tag_column", tag_column) if tagged else None
    words: Sentence = []
    tags: list[str] = []
    width, first, found = 0, 0, False
    at, tag_at, belong = 0, 0, slice(0)
    with _open(path) as stream:
        for number, line in enumerate(stream, start=1):
            # Other scripts have spaces that belong to a word, such as the one that is not to be broken.
            columns = line.split() if line.isascii() else [piece for piece in _SPACES.split(line.rstrip("\n")) if piece]
            if not columns:
                if words:
                    yield words, tags
                    words, tags = [], []
                continue
            if columns[0] == "-DOCSTART-" or (comment is not None and line.startswith(comment)):
                continue
            if len(columns) != width:
                if width:
                    raise DataError(
                        f"{place}, line {number}: {_columns(len(columns))} found, but line {first} has {width}."
                    )
                width, first = len(columns), number
                if (tagged, width, word, tag) == (True, 1, 1, -1):
                    raise DataError(
                        f"{place}, line {number}: 1 column found; expected a word, and its tag in the last."
                    )
                at, tag_at, belong = _places(f"{place}, line {number}", width, word, tag)
            if tagged:
                tags.append(columns[tag_at])
            words.append((columns[at], *columns[belong]))
            found = True
    if words:
        yield words, tags
    if not found:
        raise DataError(f"{place}: there are no sentences in the file.")


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


def column_number(option: str, value: int | str, names: Sequence[str] = ()) -> int:
    """The number of a column, from 1 or, if negative, from the last, that is given as such or by one of the names."""
    if isinstance(value, str):
        if value.upper() in names:
            return names.index(value.upper()) + 1
        if not re.fullmatch(r"[+-]?[0-9]{1,9}", value):
            known = f", or a name: {', '.join(names)}" if names else ""
            raise OptionError(
                f"{option}={value!r} is not possible; expected the number of a column, such as 2 or -1{known}."
                + did_you_mean(value, names)
            )
        value = int(value)
    if isinstance(value, bool) or not hasattr(value, "__index__") or value == 0:
        raise OptionError(f"{option}={value!r} is not possible; columns count from 1, or from -1 for the last.")
    return int(value)


def check_comment(comment: str | None) -> None:
    """Refuse what no line, or every line, begins with."""
    if comment is not None and (not isinstance(comment, str) or not comment.strip()):
        raise OptionError(f'comment={comment!r} is not possible; it must be how comments begin, such as "#", or None.')


def _places(where: str, width: int, word: int, tag: int | None) -> tuple[int, int, slice]:
    """Of lines with so many columns: the index of the word, of the tag, and of what else belongs to the word."""
    for name, number in (("word_column", word), ("tag_column", tag)):
        if number is not None and not -width <= number <= width:
            raise DataError(f"{where}: {_columns(width)} found, but {name} is {number}.")
    at = column_index(word, width)
    if tag is None:
        return at, at, slice(at + 1, width)
    tag_at = column_index(tag, width)
    if at == tag_at:
        raise OptionError(f"{where}: word_column={word} and tag_column={tag} are the same of {_columns(width)}.")
    return at, tag_at, slice(min(at, tag_at) + 1, max(at, tag_at))


def column_index(number: int, width: int) -> int:
    """The index from 0 of a column that is counted from 1 or from -1."""
    return number - 1 if number > 0 else width + number


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
    if place == STANDARD_INPUT:
        return None, ""
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

"""Annotated sentences in CoNLL-U, the format of Universal Dependencies: ten columns with tabs between them.

Conventions
-----------
The columns are `COLUMNS`. Lines that begin with ``#`` are comments, and a blank line ends a sentence. Multi-word tokens (``1-2``)
and empty nodes (``1.1``) are left out; the other words of a sentence are numbered 1, 2, and so on. A column without a value holds
``_``. Forms and lemmas may have spaces in them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

from maxmargin.errors import DataError, OptionError
from maxmargin.formats.compression import open_text
from maxmargin.formats.conll import Sentence, check_comment, column_index, column_number

COLUMNS = ("ID", "FORM", "LEMMA", "UPOS", "XPOS", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC")
#: What stands in a column that has no value.
NO_VALUE = "_"
_WORD = re.compile(r"[1-9][0-9]{0,8}")
_NO_WORD = re.compile(r"[0-9]{1,9}(-[0-9]{1,9}|\.[0-9]{1,9})")


def read_conllu(
    path: str | os.PathLike[str],
    comment: str | None = "#",
    tagged: bool = True,
    word_column: int | str = "FORM",
    tag_column: int | str = "UPOS",
) -> tuple[list[Sentence], list[list[str]]]:
    """Read the words and tags of sentences, possibly compressed.

    The columns between word and tag are no features: they are annotations, which new text does not have.

    Parameters
    ----------
    path : path-like
        The file.
    comment : str or None
        Lines that begin with it are skipped.
    tagged : bool
        Whether tags are read.
    word_column, tag_column : str or int
        Names of these columns, or their numbers from 1, or from -1 for the last.

    Returns
    -------
    sentences : list of lists of tuples of str
        Each word, in a tuple, as `read_conll` has it.
    tags : list of lists of str
        The tags of each sentence; no list at all if `tagged` is false.
    """
    sentences: list[Sentence] = []
    tags: list[list[str]] = []
    for words, own in conllu_sentences(path, comment, tagged, word_column, tag_column):
        sentences.append(words)
        tags.append(own)
    return sentences, tags if tagged else []


def conllu_sentences(
    path: str | os.PathLike[str],
    comment: str | None = "#",
    tagged: bool = True,
    word_column: int | str = "FORM",
    tag_column: int | str = "UPOS",
) -> Iterator[tuple[Sentence, list[str]]]:
    """The sentences of a file and their tags, one after the other, as `read_conllu` has them."""
    check_comment(comment)
    word, tag = column_of("word_column", word_column), column_of("tag_column", tag_column)
    if tagged and word == tag:
        raise OptionError(f"word_column={word_column!r} and tag_column={tag_column!r} are the same column.")
    place = os.fspath(path)
    words: Sentence = []
    tags: list[str] = []
    found = False
    with open_text(path) as stream:
        for number, line in enumerate(stream, start=1):
            if comment is not None and line.startswith(comment):
                continue
            if not line.strip():
                if words:
                    yield words, tags
                    words, tags = [], []
                continue
            columns = _columns(f"{place}, line {number}", line, len(words) + 1)
            if columns is not None:
                words.append((columns[word],))
                tags.append(columns[tag])
                found = True
    if words:
        yield words, tags
    if not found:
        raise DataError(f"{place}: there are no sentences in the file.")


def conllu_text(
    lines: Sequence[str],
    tags: Sequence[Sequence[str]],
    tag_column: int | str = "UPOS",
    comment: str | None = "#",
) -> str:
    """The text of a file with other tags; all else stays as it was.

    Parameters
    ----------
    lines : sequence of str
        The lines of a file that `read_conllu` accepts, without their ends.
    tags : list of lists of str
        The tags of each sentence.
    tag_column : str or int
        Where they go.
    comment : str or None
        How lines begin that are comments.
    """
    place = column_of("tag_column", tag_column)
    left = iter([tag for row in tags for tag in row])
    written = []
    for line in lines:
        columns = line.split("\t")
        if not (comment is not None and line.startswith(comment)) and _WORD.fullmatch(columns[0]):
            columns[place] = next(left, "")
            if not columns[place] or re.search(r"\s", columns[place]):
                raise DataError(f"The tag {columns[place]!r} cannot be written: it is missing, or has a space in it.")
        written.append("\t".join(columns) + "\n")
    if next(left, None) is not None:
        raise DataError("The tags cannot be written: there are more of them than words.")
    return "".join(written)


def column_of(option: str, value: int | str) -> int:
    """The index from 0 of a column that is named, or numbered from 1 or -1."""
    number = column_number(option, value, COLUMNS)
    if not -len(COLUMNS) <= number <= len(COLUMNS):
        raise OptionError(f"{option}={value!r} is not possible: CoNLL-U has {len(COLUMNS)} columns.")
    return column_index(number, len(COLUMNS))


def _columns(where: str, line: str, expected: int) -> list[str] | None:
    """The columns of a word; None for a multi-word token or an empty node."""
    columns = line.rstrip("\n").split("\t")
    if len(columns) != len(COLUMNS):
        raise DataError(
            f"{where}: {len(columns)} column{'s' if len(columns) > 1 else ''} found; CoNLL-U has {len(COLUMNS)}, with tabs "
            "between them."
        )
    for name, value in zip(COLUMNS, columns, strict=True):
        if not value.strip():
            raise DataError(f"{where}: the column {name} is empty; a column without a value holds {NO_VALUE!r}.")
    if _NO_WORD.fullmatch(columns[0]):
        return None
    if not _WORD.fullmatch(columns[0]):
        raise DataError(f"{where}: the ID is {columns[0]!r}; expected a number, such as 3, 3-4 or 3.1.")
    if int(columns[0]) != expected:
        raise DataError(
            f"{where}: the ID is {columns[0]}, but the next word of this sentence is {expected}; a blank line ends a sentence."
        )
    return columns

"""Tagged tokens as JSON: ``{"tokens": ["the", "dog"], "tags": ["DET", "NOUN"]}``, one object a line.

Conventions
-----------
Every object has ``tokens``, strings, and its tags under one of ``tags``, ``ner_tags``, ``pos_tags``, ``chunk_tags``,
``labels`` and ``upos``, the same in all objects: the layout of data sets for token classification on the Hugging Face hub,
saved with ``to_json``. Tags are strings; or numbers, which have names if `label_names` gives them. Other entries are left out.
Blank lines are skipped. A file may also be one array of such objects.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from maxmargin.errors import DataError
from maxmargin.formats.compression import open_text
from maxmargin.formats.svmlight import short

#: Where tags may be, the first that is there.
TAG_KEYS = ("tags", "ner_tags", "pos_tags", "chunk_tags", "labels", "upos")


def read_json_lines(path: str | os.PathLike[str]) -> Iterator[tuple[str, Any]]:
    """Yield every value of a file of JSON lines, or of one array, with its place for sentences.

    Parameters
    ----------
    path : path-like
        The file, possibly compressed.
    """
    place = os.fspath(path)
    with open_text(path) as stream:
        first, number = stream.readline(), 1
        while first and not first.strip():
            first, number = stream.readline(), number + 1
        if first.lstrip().startswith("[") and not _parses(first):
            yield from _array(place, first + stream.read())
            return
        found = False
        for at, line in enumerate(chain([first], stream), start=number):
            if line.strip():
                found = True
                yield f"{place}, line {at}", _value(f"{place}, line {at}", line.rstrip())
    if not found:
        raise DataError(f"{place}: there is nothing in the file.")


def _parses(line: str) -> bool:
    """Whether a line is a value of its own, such as ``["a text", {"entities": []}]``, and no array of all values."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, list) and not (value and all(isinstance(one, dict) for one in value))


def _array(place: str, text: str) -> Iterator[tuple[str, Any]]:
    values = _value(place, text)
    if not values:
        raise DataError(f"{place}: there is nothing in the file.")
    for at, value in enumerate(values):
        yield f"{place}, entry {at}", value


def _value(place: str, text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        where = f"{place}, column {error.colno}" if error.lineno == 1 else f"{place}, line {error.lineno}"
        raise DataError(f"{where}: this is no JSON: {error.msg}.") from error
    except RecursionError:
        raise DataError(f"{place}: this JSON is nested too deeply.") from None
    except ValueError as error:
        raise DataError(f"{place}: this is no JSON: {error}.") from error


def read_token_json(
    path: str | os.PathLike[str], label_names: Sequence[str] | None = None, tagged: bool | None = None
) -> tuple[list[list[tuple[str]]], list[list[Any]]]:
    """Read tagged tokens.

    Parameters
    ----------
    path : path-like
        The file, possibly compressed.
    label_names : sequence of str, optional
        The names of the tags 0, 1, and so on, where tags are numbers.
    tagged : bool, optional
        Whether there are tags; by default the first object says so, and all others must be as it is.

    Returns
    -------
    sentences : list of lists of tuples of str
        The words, as `read_conll` returns them.
    tags : list of lists of str or int
        The tags of each sentence; no list at all if there are none.
    """
    sentences: list[list[tuple[str]]] = []
    tags: list[list[Any]] = []
    key: str | None = None
    for place, value in read_json_lines(path):
        if not isinstance(value, dict) or not isinstance(value.get("tokens"), list):
            raise DataError(
                f"{place}: {short(json.dumps(value))} was found; expected an object with the array 'tokens'."
            )
        tokens = value["tokens"]
        wrong = next((one for one in tokens if not isinstance(one, str)), None)
        if wrong is not None or not tokens:
            raise DataError(
                f"{place}: 'tokens' holds {short(json.dumps(wrong)) if tokens else 'nothing'}; expected strings."
            )
        if not sentences and tagged is not False:
            key = next((name for name in TAG_KEYS if name in value), None)
            if key is None and tagged:
                raise DataError(f"{place}: there are no tags; expected one of {', '.join(map(repr, TAG_KEYS))}.")
        sentences.append([(one,) for one in tokens])
        if key is not None:
            tags.append(_tags(place, value.get(key), key, len(tokens), label_names))
    return sentences, tags


def _tags(place: str, values: Any, key: str, n: int, names: Sequence[str] | None) -> list[Any]:
    if not isinstance(values, list) or len(values) != n:
        found = f"{len(values)} tags" if isinstance(values, list) else short(json.dumps(values))
        raise DataError(f"{place}: {key!r} is {found}; expected an array with one for each of the {n} tokens.")
    for value in values:
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole and (not isinstance(value, str) or not value):
            raise DataError(f"{place}: {key!r} holds {short(json.dumps(value))}; expected strings, or whole numbers.")
        if whole and names is not None and not 0 <= value < len(names):
            raise DataError(f"{place}: {key!r} holds {value}; there are names for 0 to {len(names) - 1}.")
    if names is None:
        return list(values)
    return [names[value] if isinstance(value, int) else value for value in values]

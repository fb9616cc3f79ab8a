"""Texts with entities as character offsets, as spaCy has them: ``{"text": "Ada lives", "entities": [[0, 3, "PERSON"]]}``.

Conventions
-----------
An object a line, or one array. Entities are under ``entities``, ``ents`` or ``spans``, each as ``[first, end, label]`` or as
an object with ``start``, ``end`` and ``label``: characters from 0, the end not included. So are spaCy's ``Doc.to_json()``, and
the pairs ``["Ada lives", {"entities": [[0, 3, "PERSON"]]}]`` that training examples of its second version were. Its older
training file, documents with ``paragraphs`` of ``sentences`` of ``tokens`` with ``orth`` and ``ner``, is read, too.

Words are the ``tokens`` with ``start`` and ``end`` if a text has them; else what a simple rule finds: runs of letters and
digits, and every other character that is no space. An entity that begins or ends within a word is refused. Tags are
``B-LABEL``, ``I-LABEL`` and ``O``.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from typing import Any

from maxmargin.errors import DataError
from maxmargin.formats.json_lines import read_json_lines
from maxmargin.formats.svmlight import short

_WORD = re.compile(r"\w+|[^\w\s]")
_ENTITIES = ("entities", "ents", "spans")


@dataclass(frozen=True, eq=False)
class TextData:
    """Texts as words with tags.

    Attributes
    ----------
    sentences : list of lists of tuples of str
        The words of each text, as `read_conll` returns them.
    tags : list of lists of str
        B-LABEL, I-LABEL and O for each word; no list at all if no text has entities.
    texts : list of str
        The texts.
    offsets : list of lists of tuples (int, int)
        Where in its text each word begins and ends.
    """

    sentences: list[list[tuple[str]]]
    tags: list[list[str]]
    texts: list[str]
    offsets: list[list[tuple[int, int]]]

    def entities(self, tags: list[list[Any]]) -> list[list[tuple[int, int, str]]]:
        """The entities of each text by the tags of its words: first character, end, label.

        Parameters
        ----------
        tags : list of lists of str
            A tag for each word of each text. An I that follows no B or I of its label begins an entity.
        """
        found = []
        for offsets, row in zip(self.offsets, tags, strict=True):
            spans: list[tuple[int, int, str]] = []
            before = "O"
            for (first, end), tag in zip(offsets, map(str, row), strict=True):
                letter, _, label = tag.partition("-")
                if letter == "I" and before in (f"B-{label}", f"I-{label}") and spans:
                    spans[-1] = (spans[-1][0], end, label)
                elif letter in ("B", "I"):
                    spans.append((first, end, label))
                before = tag
            found.append(spans)
        return found


def read_spacy_json(path: str | os.PathLike[str]) -> TextData:
    """Read texts with entities.

    Parameters
    ----------
    path : path-like
        The file, possibly compressed.

    Returns
    -------
    TextData
    """
    made = TextData([], [], [], [])
    known: bool | None = None
    for place, value in read_json_lines(path):
        if isinstance(value, dict) and "paragraphs" in value:
            known = _all_or_none(place, known, True)
            _document(place, value, made)
            continue
        if isinstance(value, list) and len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], dict):
            value = {"text": value[0], **value[1]}
        if not isinstance(value, dict) or not isinstance(value.get("text"), str):
            raise DataError(
                f"{place}: {short(json.dumps(value))} was found; expected an object with 'text' and 'entities'."
            )
        key = next((name for name in _ENTITIES if name in value), None)
        known = _all_or_none(place, known, key is not None)
        offsets = _offsets(place, value)
        if not offsets:
            raise DataError(f"{place}: the text {short(value['text'])} has no words.")
        made.texts.append(value["text"])
        made.offsets.append(offsets)
        made.sentences.append([(value["text"][first:end],) for first, end in offsets])
        if key is not None:
            made.tags.append(_tagged(place, offsets, _spans(place, value[key], len(value["text"]))))
    return made


def _all_or_none(place: str, known: bool | None, found: bool) -> bool:
    """Whether texts have entities: all of them, or none."""
    if known is not None and known != found:
        raise DataError(
            f"{place}: there is no 'entities', which texts before have; an empty array says that there are none."
            if known
            else f"{place}: there are 'entities', which texts before do not have."
        )
    return found


def _offsets(place: str, value: dict[str, Any]) -> list[tuple[int, int]]:
    tokens, text = value.get("tokens"), value["text"]
    if tokens is None:
        return [found.span() for found in _WORD.finditer(text)]
    offsets: list[tuple[int, int]] = []
    for token in tokens if isinstance(tokens, list) else [tokens]:
        first: Any = token.get("start") if isinstance(token, dict) else None
        end: Any = token.get("end") if isinstance(token, dict) else None
        least = offsets[-1][1] if offsets else 0
        if not _whole(first) or not _whole(end) or not least <= first < end <= len(text):
            raise DataError(
                f"{place}: the token {short(json.dumps(token))} was found; expected 'start' and 'end' within the text of "
                f"{len(text)} characters, after the token before."
            )
        if text[first:end].strip():
            offsets.append((first, end))
    return offsets


def _spans(place: str, values: Any, length: int) -> list[tuple[int, int, str]]:
    if not isinstance(values, list):
        raise DataError(f"{place}: 'entities' is {short(json.dumps(values))}; expected an array.")
    found: list[tuple[int, int, str]] = []
    for value in values:
        parts: Any = [value.get(name) for name in ("start", "end", "label")] if isinstance(value, dict) else value
        fine = isinstance(parts, list) and len(parts) >= 3 and _whole(parts[0]) and _whole(parts[1])
        if not fine or not isinstance(parts[2], str) or not parts[2] or not 0 <= parts[0] < parts[1] <= length:
            raise DataError(
                f"{place}: the entity {short(json.dumps(value))} was found; expected [first, end, label] within the text of "
                f"{length} characters."
            )
        found.append((parts[0], parts[1], parts[2]))
    return sorted(found)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _tagged(place: str, offsets: list[tuple[int, int]], spans: list[tuple[int, int, str]]) -> list[str]:
    """Tags of words, by entities that begin and end with words and do not overlap."""
    begins = {first: at for at, (first, _) in enumerate(offsets)}
    ends = {end: at for at, (_, end) in enumerate(offsets)}
    tags = ["O"] * len(offsets)
    for first, end, label in spans:
        one, other = begins.get(first), ends.get(end)
        if one is None or other is None:
            raise DataError(
                f"{place}: the entity from {first} to {end} ({label}) begins or ends within a word; give the 'tokens' of the text, "
                "or correct its place."
            )
        if any(tag != "O" for tag in tags[one : other + 1]):
            raise DataError(f"{place}: the entity from {first} to {end} ({label}) overlaps with another one.")
        tags[one] = f"B-{label}"
        tags[one + 1 : other + 1] = [f"I-{label}"] * (other - one)
    return tags


def _document(place: str, value: dict[str, Any], made: TextData) -> None:
    """A document of spaCy's older training file: a text is a sentence, its words with spaces between them."""
    paragraphs = value["paragraphs"]
    if not isinstance(paragraphs, list):
        raise DataError(f"{place}: 'paragraphs' is {short(json.dumps(paragraphs))}; expected an array.")
    for paragraph in paragraphs:
        sentences = paragraph.get("sentences") if isinstance(paragraph, dict) else None
        if not isinstance(sentences, list):
            raise DataError(f"{place}: a paragraph has no array 'sentences'.")
        for sentence in sentences:
            tokens = sentence.get("tokens") if isinstance(sentence, dict) else None
            if not isinstance(tokens, list) or not tokens:
                raise DataError(f"{place}: a sentence has no array 'tokens'.")
            words, tags, offsets, at = [], [], [], 0
            for token in tokens:
                word, ner = (token.get("orth"), token.get("ner")) if isinstance(token, dict) else (None, None)
                if not isinstance(word, str) or not word or not isinstance(ner, str):
                    raise DataError(
                        f"{place}: the token {short(json.dumps(token))} was found; expected 'orth' and 'ner'."
                    )
                words.append(word)
                tags.append(_biluo(place, ner))
                offsets.append((at, at + len(word)))
                at += len(word) + 1
            made.texts.append(" ".join(words))
            made.offsets.append(offsets)
            made.sentences.append([(word,) for word in words])
            made.tags.append(tags)


def _biluo(place: str, tag: str) -> str:
    """B, I and O by spaCy's B, I, L, U and O."""
    letter, _, label = tag.partition("-")
    if tag == "O" or (letter in ("B", "I", "L", "U") and label):
        return tag if tag == "O" else f"{ {'L': 'I', 'U': 'B'}.get(letter, letter) }-{label}"
    raise DataError(f"{place}: 'ner' is {short(tag)}; expected O, or B, I, L or U with -LABEL.")

"""TextFeatures: words, their neighbours, prefixes, suffixes and shapes as features of the positions of sentences.

Conventions
-----------
A sentence is a list of words, or of tuples whose entries have the names in ``columns``, the word first, such as ("word",
"pos"). An *attribute* of a token is a column, or something that is computed from its word:

    prefixN, suffixN   its first and last N characters; words that are shorter have none
    shape              its characters as X (upper case), x (lower), d (digit) or themselves, each run once: "U.S." is X.X.
    length             the number of its characters
    lower              the word in lower case

A *template* is what one feature says: an attribute of a token at some distance from the position, as in ``word[-1]``, or
several, joined by a bar, as in ``pos[0]|pos[1]``. Every position has at most one feature of each template, "template=value":

    word[-1]=the     suffix3=ing     pos[0]|pos[1]=DT|NN

and none where the template reaches over an end of the sentence: what begins and ends a sentence is known to `ChainSVM` from the
first and the last tag. What is computed from the word at the position itself is written without its ``[0]``.

Tokens are numbered, so that strings are made once for a distinct word, or for a distinct pair, and never for a position:
windows are shifted arrays of numbers, and joined attributes are numbers of pairs of numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from maxmargin.errors import DataError, OptionError
from maxmargin.features.vectoriser import FeatureColumns, Found, flatten, is_whole, number, number_codes, place_of
from maxmargin.problems.layout import offsets

_PART = re.compile(r"([^\[\]|=]+)(?:\[([+-]?[0-9]{1,9})\])?")
_COMPUTED = re.compile(r"(prefix|suffix)([1-9][0-9]{0,8})|shape|length|lower")
#: Most templates, each of which is a feature of every position: options of a model file must not make billions.
_MOST_TEMPLATES = 10_000


class Attribute(NamedTuple):
    """A property of all tokens: the number of each token's value, -1 where there is none, and the distinct values."""

    ids: NDArray[np.int32]
    values: list[str]


class TextFeatures(FeatureColumns):
    """Features of the words of sentences, their neighbours and their form.

    Parameters
    ----------
    window : int
        How far the neighbours stand whose words, and other columns, are features.
    prefixes, suffixes : int
        Longest prefix and suffix of a word that are features; 0 for none.
    affix_window : int
        How far the neighbours stand whose prefixes, suffixes, shapes and lengths are features, too.
    shape, length : bool
        Whether the word's shape and its length are features.
    lowercase : bool
        Read words, prefixes and suffixes in lower case; the shape still sees the word as it is.
    bigrams : int
        Join the neighbouring tokens of a window this far: with 1, ``word[-1]|word[0]`` and ``word[0]|word[1]``.
    templates : sequence of str
        Further templates, such as "pos[-1]|pos[0]|pos[1]".
    columns : sequence of str
        What the entries of a token are called, the word's first. Sentences of plain words have one column.
    min_count : int
        Features that fewer positions of the training data have get no column.
    n_hash : int, optional
        Number of columns that names are hashed into, in place of a vocabulary.

    Attributes
    ----------
    feature_names_, n_features_ : array (p,), int
        The columns' names, sorted (not there with ``n_hash``), and how many there are.

    Examples
    --------
    >>> from maxmargin.features import TextFeatures
    >>> text = TextFeatures(window=1, prefixes=0, suffixes=0, shape=True)
    >>> text.fit_transform([["The", "cat"]]).toarray()
    array([[1., 0., 0., 1., 0., 1.],
           [0., 1., 1., 0., 1., 0.]])
    >>> text.feature_names_.tolist()
    ['shape=Xx', 'shape=x', 'word[-1]=The', 'word[0]=The', 'word[0]=cat', 'word[1]=cat']
    """

    def __init__(
        self,
        window: int = 2,
        prefixes: int = 4,
        suffixes: int = 4,
        affix_window: int = 0,
        shape: bool = True,
        length: bool = False,
        lowercase: bool = False,
        bigrams: int = 0,
        templates: Sequence[str] = (),
        columns: Sequence[str] = ("word",),
        min_count: int = 1,
        n_hash: int | None = None,
    ) -> None:
        self.window = window
        self.prefixes = prefixes
        self.suffixes = suffixes
        self.affix_window = affix_window
        self.shape = shape
        self.length = length
        self.lowercase = lowercase
        self.bigrams = bigrams
        self.templates = templates
        self.columns = columns
        self.min_count = min_count
        self.n_hash = n_hash

    @classmethod
    def chunking(cls, **options: Any) -> Self:
        """The usual features for chunks, from tokens (word, pos): CRFsuite's for CoNLL-2000.

        Words and parts of speech in a window of 2; the word with each neighbour; pairs and triples of parts of speech.

        Parameters
        ----------
        **options : parameters of `TextFeatures`
            In the place of the usual ones.
        """
        pairs = [f"pos[{k}]|pos[{k + 1}]" for k in range(-2, 2)]
        triples = [f"pos[{k}]|pos[{k + 1}]|pos[{k + 2}]" for k in range(-2, 1)]
        usual: dict[str, Any] = {
            "window": 2,
            "prefixes": 0,
            "suffixes": 0,
            "shape": False,
            "templates": ("word[-1]|word[0]", "word[0]|word[1]", *pairs, *triples),
            "columns": ("word", "pos"),
        }
        return cls(**(usual | options))

    @classmethod
    def tagging(cls, **options: Any) -> Self:
        """Features for parts of speech, as in section 5 of Joachims, Finley and Yu (2009).

        The word, its prefixes, its suffixes and its length, of the position and of both its neighbours. The paper has affixes
        of all lengths; here they have up to 10 characters, and longer words count as a whole.

        Parameters
        ----------
        **options : parameters of `TextFeatures`
            In the place of the usual ones.
        """
        usual: dict[str, Any] = {
            "window": 1,
            "prefixes": 10,
            "suffixes": 10,
            "affix_window": 1,
            "shape": False,
            "length": True,
        }
        return cls(**(usual | options))

    def template_names(self) -> list[str]:
        """All templates, as names of features begin with them."""
        near, far = _span(self.affix_window), _span(self.window)
        own = [f"{kind}{n}" for kind, most in self._affixes() for n in range(1, most + 1)]
        own += [name for name in ("shape", "length") if getattr(self, name)]
        parts = [[(column, k)] for column in self.columns for k in far]
        parts += [[(name, k)] for name in own for k in near]
        parts += [[(column, k), (column, k + 1)] for column in self.columns for k in _span(self.bigrams)[:-1]]
        parts += [_parse(template, self.columns) for template in self.templates]
        return list(dict.fromkeys(map(_title, parts)))

    def check_options(self) -> None:
        """Refuse, in a sentence, options that cannot be."""
        super().check_options()
        for name in ("window", "prefixes", "suffixes", "affix_window", "bigrams"):
            if not is_whole(getattr(self, name), 0):
                raise OptionError(
                    f"{name}={getattr(self, name)!r} is not possible; it must be a whole number from 0 on."
                )
        for name in ("shape", "length", "lowercase"):
            if not isinstance(getattr(self, name), bool | np.bool_):
                raise OptionError(f"{name}={getattr(self, name)!r} is not possible; it must be True or False.")
        for name in ("columns", "templates"):
            value = getattr(self, name)
            if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
                raise OptionError(f"{name}={value!r} is not possible; it must be a list of strings.")
        if not self.columns or len(set(self.columns)) < len(self.columns):
            raise OptionError(f"columns={self.columns!r} is not possible; it must be a list of names that differ.")
        for column in self.columns:
            if _COMPUTED.fullmatch(column) or not re.fullmatch(r"[^\[\]|=]+", column):
                raise OptionError(
                    f"columns has the name {column!r}, which is taken, or has a bracket, a bar or an equals sign."
                )
        columns = len(self.columns) * (2 * int(self.window) + 1 + 2 * int(self.bigrams))
        affixes = (int(self.prefixes) + int(self.suffixes) + 2) * (2 * int(self.affix_window) + 1)
        if columns + affixes + len(self.templates) > _MOST_TEMPLATES:
            raise OptionError(
                f"window={_shown(self.window)}, bigrams={_shown(self.bigrams)}, prefixes={_shown(self.prefixes)}, "
                f"suffixes={_shown(self.suffixes)} and affix_window={_shown(self.affix_window)} make more than "
                f"{_MOST_TEMPLATES} templates, which are too many."
            )
        self.template_names()

    def _affixes(self) -> tuple[tuple[str, int], tuple[str, int]]:
        return ("prefix", self.prefixes), ("suffix", self.suffixes)

    def _read(self, X: Any) -> Found:
        tokens, lengths = flatten(X)
        columns = _columns(tokens, lengths, list(self.columns))
        attributes: dict[str, Attribute] = {}
        window = _Window(lengths)
        names: list[str] = []
        counts = [np.empty(0, np.int64)]
        # A feature's name is its template, an equals sign and a value: in this order columns rise along a row.
        titles = sorted(self.template_names(), key=lambda title: f"{title}=")
        table = np.empty((len(tokens), len(titles)), np.int32)
        for column, title in enumerate(titles):
            parts = []
            for name, distance in _parse(title, self.columns):
                if name not in attributes:
                    attributes[name] = self._attribute(name, columns)
                parts.append(window.shifted(attributes[name], distance))
            ids, values = _joined(parts)
            counts.append(np.bincount(ids + 1, minlength=len(values) + 1)[1:])
            table[:, column] = np.where(ids >= 0, ids + len(names), -1)
            names += [f"{title}={value}" for value in values]
        return Found(names, np.concatenate(counts), table)

    def _attribute(self, name: str, columns: dict[str, Attribute]) -> Attribute:
        """A column, or what is computed from the word, once for each distinct one."""
        word = next(iter(columns.values()))
        computed = _COMPUTED.fullmatch(name)
        if computed is None:
            same = name != self.columns[0] or not self.lowercase
            return columns[name] if same else _mapped(word, str.lower)
        if name == "shape":
            return _mapped(word, _shape)
        if name == "length":
            return _mapped(word, lambda one: str(len(one)))
        if name == "lower":
            return _mapped(word, str.lower)
        n, ahead = int(computed[2]), computed[1] == "prefix"
        read: Callable[[str], str] = str.lower if self.lowercase else str
        return _mapped(word, lambda one: None if len(one) < n else read(one)[:n] if ahead else read(one)[-n:])


# --------------------------------------------------------------------------------------------------------------------
# Tokens


def _columns(tokens: list[Any], lengths: NDArray[np.int64], names: list[str]) -> dict[str, Attribute]:
    """The columns of all tokens."""
    plain = len(names) == 1 and isinstance(tokens[0], str)
    try:
        # Equal tokens are looked at once.
        ids, distinct = number(tokens)
    except TypeError:
        # Lists have no hash, and neither has what can be no token.
        ids, distinct = np.arange(len(tokens), dtype=np.int32), tokens
    if plain:
        wrong = (k for k, one in enumerate(distinct) if not isinstance(one, str))
    else:
        wrong = (k for k, one in enumerate(distinct) if not isinstance(one, tuple | list) or len(one) != len(names))
    found = next(wrong, None)
    if found is not None:
        expected = "a word" if len(names) == 1 else f"a tuple of {len(names)} strings"
        place = place_of(int((ids == found).argmax()), lengths)
        raise DataError(f"{place} is {distinct[found]!r}; expected {expected}, since columns={names}.")
    columns = {}
    for name, entries in zip(names, [distinct] if plain else zip(*distinct, strict=True), strict=True):
        if not all(issubclass(kind, str) for kind in set(map(type, entries))):
            found = next(k for k, entry in enumerate(entries) if not isinstance(entry, str))
            place = place_of(int((ids == found).argmax()), lengths)
            raise DataError(f"{place} has the {name} {entries[found]!r}; expected a string.")
        own, values = _sorted(*number(entries))
        columns[name] = Attribute(own[ids], values)
    return columns


def _mapped(attribute: Attribute, function: Callable[[str], str | None]) -> Attribute:
    """A function of an attribute's values; None for values that have none."""
    ids, values = number(map(function, attribute.values))
    if None in values:
        none = values.index(None)
        ids = np.where(ids == none, -1, ids - (ids > none)).astype(np.int32)
        values.pop(none)
    ids, values = _sorted(ids, values)
    return Attribute(ids[attribute.ids], values)


def _sorted(ids: NDArray[np.int32], values: list[str]) -> tuple[NDArray[np.int32], list[str]]:
    """The same values in their order, so that names of features come nearly sorted."""
    order = sorted(range(len(values)), key=values.__getitem__)
    # The last is for those without a value, -1.
    rank = np.full(len(values) + 1, -1, np.int32)
    rank[order] = np.arange(len(values))
    return rank[ids], [values[k] for k in order]


def _shape(word: str) -> str:
    return "".join(kind for kind, _ in groupby(map(_kind, word)))


def _kind(character: str) -> str:
    if character.isupper():
        return "X"
    return "x" if character.islower() else "d" if character.isdigit() else character


# --------------------------------------------------------------------------------------------------------------------
# Templates


class _Window:
    """Where tokens stand in their sentences, so that no neighbour is of another sentence."""

    def __init__(self, lengths: NDArray[np.int64]) -> None:
        self.before = (np.arange(int(lengths.sum())) - np.repeat(offsets(lengths)[:-1], lengths)).astype(np.int32)
        self.after = np.repeat(lengths.astype(np.int32) - 1, lengths) - self.before

    def shifted(self, attribute: Attribute, distance: int) -> Attribute:
        """The attribute of the token that stands at a distance from each."""
        if distance == 0:
            return attribute
        # What comes around the end is of another sentence.
        moved = np.roll(attribute.ids, -distance)
        there = self.before >= -distance if distance < 0 else self.after >= distance
        moved[~there] = -1
        return Attribute(moved, attribute.values)


def _joined(parts: list[Attribute]) -> Attribute:
    """Attributes side by side, numbered over the combinations that occur."""
    ids, values = parts[0]
    for others, texts in parts[1:]:
        codes = ids * np.int64(len(texts)) + others
        codes[(ids < 0) | (others < 0)] = -1
        ids = np.empty(len(codes), np.int32)
        distinct = number_codes(codes, ids)
        order = np.argsort(distinct)
        rank = np.full(len(order) + 1, -1, np.int32)
        rank[order] = np.arange(len(order))
        ids, distinct = rank[ids], distinct[order]
        values = [
            f"{values[k]}|{texts[j]}"
            for k, j in zip(*(one.tolist() for one in divmod(distinct, len(texts))), strict=True)
        ]
    return Attribute(ids, values)


def _parse(template: str, columns: Sequence[str]) -> list[tuple[str, int]]:
    """The attributes of a template, and the distances at which they are read."""
    parts = []
    for text in template.split("|"):
        match = _PART.fullmatch(text)
        if match is None or not (match[1] in columns or _COMPUTED.fullmatch(match[1])):
            raise OptionError(
                f"templates has {template!r}; expected attributes such as word[-1], joined by |: the columns "
                f"{', '.join(columns)}, or prefixN, suffixN, shape, length, lower."
            )
        parts.append((match[1], int(match[2] or 0)))
    return parts


def _title(parts: list[tuple[str, int]]) -> str:
    return "|".join(
        name if distance == 0 and _COMPUTED.fullmatch(name) else f"{name}[{distance}]" for name, distance in parts
    )


def _shown(number: int) -> str:
    """A whole number, but none with thousands of digits."""
    return str(int(number)) if int(number) < 10**18 else "more than 10**18"


def _span(window: int) -> range:
    return range(-int(window), int(window) + 1)

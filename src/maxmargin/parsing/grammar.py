"""Context-free grammars in the form that charts read, and their induction from trees.

Conventions
-----------
A *derivation* of a sentence gives every span of it a bottom symbol, by a binary rule (two parts) or a lexical rule (one
word), and on top of that at most one *chain*: the nodes with a single subtree that stand over each other on the same
span, taken as one rule. So unary rules never apply to each other, charts have no cycles, and every tree has exactly one
derivation. The score of a derivation is the sum of its rules' weights.

A node of more than two subtrees is binarised, its leftmost subtree first: A -> c1 c2 c3 c4 becomes

    A -> c1 A|<c1>,    A|<c1> -> c2 A|<c1 c2>,    A|<c1 c2> -> c3 c4

in which the *hidden* symbol A|<...> remembers what stands to the left: all of it (``markov=None``: the grammar has the
rules of the treebank, no others), or the last ``markov`` labels only, which also gives rules that were never seen.
``parent=True`` annotates every symbol that is no tag with the label above it (NP^S). The labels without all this are in
``labels``, so names are never taken apart.

Rules have one numbering: binary, sorted by (left, right, parent), then unary, sorted by (bottom, top, labels between),
then lexical, sorted by (token, tag). Tokens are the known words, then the classes of unknown words. A word has a class
by its shape and its last three letters, one by shape and two letters, one by shape alone, and ``UNK``, which all words
have; an unknown word takes the first of these that the grammar has. Shapes write A for capitals, a for other letters
and 9 for digits, and repeat nothing: ``UNK/Aa-9``, ``UNK/a/-ing``.

The rows of a derivation are (begin, end, symbol, rule, split), each span before its parts and from left to right; the
split is -1 for unary and lexical rules, and the symbol is the one on the left of the rule. The row of a chain comes
right before that of its bottom.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from maxmargin.errors import DataError, OptionError
from maxmargin.parsing.trees import Tree


def short_record(*names: str) -> np.dtype[Any]:
    """Make the type of a record of 32-bit numbers: grammars are large, and charts read through them."""
    return np.dtype([(name, np.int32) for name in names], align=True)


#: A row of a derivation.
ROW = short_record("begin", "end", "symbol", "rule", "split")
# The kinds of rules, in the order of their numbers.
BINARY, UNARY, LEXICAL = range(3)

#: Most nodes of a chain over a single subtree: its brackets are compared with those of the truth, one by one.
MOST_CHAIN = 10_000
UNKNOWN = "UNK"
# Characters of a word to those of its shape; all others stand for themselves.
_SHAPES = ((re.compile(r"[^\W\d_]"), lambda m: "A" if m[0] != m[0].lower() else "a"), (re.compile(r"\d"), "9"))
_REPEATED = re.compile(r"(.)\1+")
_SUFFIXES = (3, 2)

# Kind, names in the rule (of a chain: top, bottom, labels between; of a word: tag, word), label of its left symbol ("" if
# hidden), begin, end, split.
_Step = tuple[int, tuple[Any, ...], str, int, int, int]


@dataclass(frozen=True, eq=False, repr=False)
class Grammar:
    """A grammar as arrays and names.

    Parameters
    ----------
    symbols : list of str, S of them
    words, word_classes : list of str
        Token t is ``words[t]``, and token ``len(words) + c`` is ``word_classes[c]``.
    binary : int array (B, 3)
        Parent, left and right symbol.
    unary : int array (U, 2)
        Top and bottom symbol of a chain.
    lexical : int array (L, 2)
        Tag (a symbol) and token.
    roots : int array
        The symbols that may span a sentence.
    hidden : bool array (S,), optional
        Symbols made by binarisation, which are no nodes of a tree. Default: none is.
    chains : list of tuples of str, optional
        For every unary rule, the labels between its top and its bottom, from the top. Default: none.
    labels : list of str, optional
        The label that each symbol gives to a node. Default: the symbols.
    markov, parent
        How trees were binarised and annotated; see `induce`.
    """

    symbols: list[str]
    words: list[str]
    word_classes: list[str]
    binary: Any
    unary: Any
    lexical: Any
    roots: Any
    hidden: Any = None
    chains: Any = None
    labels: Any = None
    markov: int | None = None
    parent: bool = False

    def __post_init__(self) -> None:
        for name in ("symbols", "words", "word_classes"):
            object.__setattr__(self, name, _names(getattr(self, name), name))
        n, n_tokens = len(self.symbols), len(self.words) + len(self.word_classes)
        for name, limits in (("binary", (n, n, n)), ("unary", (n, n)), ("lexical", (n, n_tokens))):
            object.__setattr__(self, name, _rules(getattr(self, name), name, limits))
        object.__setattr__(self, "roots", _rules(np.reshape(self.roots, (-1, 1)), "roots", (n,))[:, 0])
        hidden = np.zeros(n, bool) if self.hidden is None else np.ascontiguousarray(self.hidden, bool)
        chains = [()] * len(self.unary) if self.chains is None else [tuple(chain) for chain in self.chains]
        labels = self.symbols if self.labels is None else list(self.labels)
        if hidden.shape != (n,) or len(labels) != n or len(chains) != len(self.unary):
            raise DataError(
                f"A grammar of {n} symbols and {len(self.unary)} unary rules has {hidden.size} entries in hidden, "
                f"{len(labels)} labels and {len(chains)} chains; expected one of each per symbol or unary rule."
            )
        if not all(isinstance(label, str) for label in [*labels, *(label for chain in chains for label in chain)]):
            raise DataError("The labels and chains of a grammar must be strings.")
        for name, value in (("hidden", hidden), ("chains", chains), ("labels", labels)):
            object.__setattr__(self, name, value)
        for name, used in (("unary", self.unary), ("lexical", self.lexical[:, 0]), ("roots", self.roots)):
            if hidden[used].any():
                wrong = self.symbols[used[hidden[used]].flat[0]]
                raise DataError(f"The hidden symbol {wrong} stands in {name}; only binary rules may have it.")
        if len(np.unique(self.roots)) < len(self.roots):
            raise DataError("The roots of a grammar must differ.")
        if len(self._number) < self.n_rules:
            raise DataError(f"The grammar has {self.n_rules} rules, but only {len(self._number)} that differ.")
        check_binarisation(self.markov, self.parent)

    @property
    def n_rules(self) -> int:
        """Number of rules of all kinds: of weights."""
        return len(self.binary) + len(self.unary) + len(self.lexical)

    @property
    def n_tokens(self) -> int:
        """Number of known words and classes."""
        return len(self.words) + len(self.word_classes)

    def __repr__(self) -> str:
        return (
            f"Grammar({len(self.symbols)} symbols, {len(self.words)} words, {len(self.word_classes)} classes; "
            f"{len(self.binary)} binary, {len(self.unary)} unary, {len(self.lexical)} lexical rules)"
        )

    def rule_names(self) -> list[str]:
        """Readable rules: ``NP -> DT NN``, ``S => VP => VB`` (a chain), ``NN -> 'dog'``, ``NN -> UNK/a/-ing``."""
        s, tokens = self.symbols, [repr(word) for word in self.words] + self.word_classes
        names = [f"{s[a]} -> {s[b]} {s[c]}" for a, b, c in self.binary.tolist()]
        for (top, bottom), chain in zip(self.unary.tolist(), self.chains, strict=True):
            names.append(" => ".join([s[top], *chain, s[bottom]]))
        return names + [f"{s[tag]} -> {tokens[token]}" for tag, token in self.lexical.tolist()]

    def tokens(self, words: Sequence[str]) -> NDArray[np.int32]:
        """The tokens of a sentence; unknown words by their class.

        Parameters
        ----------
        words : sequence of str
            A sentence.
        """
        return np.array([self._token_of(word) for word in words], np.int32)

    def _token_of(self, word: str) -> int:
        if word in self._token:
            return self._token[word]
        for name in classes_of(word):
            if name in self._class:
                return self._class[name]
        raise DataError(f"The word {word!r} was never seen, and the grammar has no class of words for it.")

    def _token_name(self, token: int) -> str:
        known = len(self.words)
        return self.words[token] if token < known else self.word_classes[token - known]

    def spans_of(self, tree: Tree) -> Any:
        """The derivation of a tree: records begin, end, symbol, rule, split.

        Parameters
        ----------
        tree : Tree
            A tree.
        """
        rows = []
        for kind, names, _, begin, end, split in _steps(tree, self.markov, self.parent):
            key = self._key(kind, names)
            if key not in self._number:
                raise DataError(
                    f"The tree cannot be derived: the grammar has no rule {self._shown(kind, names)} "
                    f"(words {begin} to {end - 1})."
                )
            rows.append((begin, end, key[1], self._number[key], split))
        return np.array(rows, ROW).view(np.recarray)

    def _key(self, kind: int, names: tuple[Any, ...]) -> tuple[Any, ...]:
        if kind == LEXICAL:
            return kind, self._symbol.get(names[0]), self._token_of(names[1])
        symbols = [self._symbol.get(name) for name in names[: 3 if kind == BINARY else 2]]
        return kind, *symbols, *names[len(symbols) :]

    def _shown(self, kind: int, names: tuple[Any, ...]) -> str:
        if kind == BINARY:
            return f"{names[0]} -> {names[1]} {names[2]}"
        if kind == UNARY:
            return " => ".join([names[0], *names[2], names[1]])
        token = self._token_of(names[1]) - len(self.words)
        unknown = f", an unknown word of the class {self.word_classes[token]}" if token >= 0 else ""
        return f"{names[0]} -> {names[1]!r}{unknown}"

    def rules_of(self, tree: Tree) -> NDArray[np.int64]:
        """The numbers of the rules in the derivation of a tree, with repetitions.

        Parameters
        ----------
        tree : Tree
            A tree.
        """
        return self.spans_of(tree).rule.astype(np.int64)  # type: ignore[no-any-return]

    def build(self, derivation: ArrayLike, words: Sequence[str] | None = None) -> Tree:
        """The tree of a derivation: `spans_of` undone.

        Parameters
        ----------
        derivation : records, or int array (rows, 5)
            Rows in the order of `spans_of`; only their begins and rules are read.
        words : list of str, optional
            The sentence. Without it, unknown words are written as their classes.
        """
        n_binary, n_lexical = len(self.binary), len(self.binary) + len(self.unary)
        # Trees of the spans done so far, the leftmost last; a hidden symbol has several.
        done: list[list[Tree]] = []
        try:
            for begin, _, _, rule, _ in reversed(np.asarray(derivation).tolist()):
                if not 0 <= rule < self.n_rules:
                    raise DataError(f"A derivation has rule {rule}; the grammar has {self.n_rules}.")
                if rule >= n_lexical:
                    tag, token = self.lexical[rule - n_lexical].tolist()
                    word = self._token_name(token) if words is None else words[begin]
                    done.append([Tree(self.labels[tag], word)])
                elif rule >= n_binary:
                    below = done.pop()
                    for label in reversed(self.chains[rule - n_binary]):
                        below = [Tree(label, below)]
                    done.append([Tree(self.labels[self.unary[rule - n_binary, 0]], below)])
                else:
                    below = done.pop() + done.pop()
                    parent = self.binary[rule, 0]
                    done.append(below if self.hidden[parent] else [Tree(self.labels[parent], below)])
        except IndexError:
            done = []
        if len(done) != 1 or len(done[0]) != 1:
            raise DataError("The rows are no derivation: expected each span before its parts, and one span over all.")
        return done[0][0]

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What JSON can hold, and the arrays, as a model file wants them."""
        header = {name: getattr(self, name) for name in _IN_HEADER}
        header["chains"] = [list(chain) for chain in self.chains]
        return header, {f"grammar_{name}": getattr(self, name) for name in _IN_ARRAYS}

    @classmethod
    def from_arrays(cls, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Grammar:
        """The grammar of what `to_arrays` returned.

        Parameters
        ----------
        header : dict
            Names and options, as JSON has them.
        arrays : dict of str to array
            The rules.
        """
        missing = sorted(_IN_HEADER - set(header)) + sorted({f"grammar_{name}" for name in _IN_ARRAYS} - set(arrays))
        if missing:
            raise DataError(f"A saved grammar lacks {missing[0]!r}.")
        saved: dict[str, Any] = {name: header[name] for name in _IN_HEADER}
        return cls(**saved | {name: arrays[f"grammar_{name}"] for name in _IN_ARRAYS})

    @cached_property
    def _symbol(self) -> dict[str, int]:
        return {name: k for k, name in enumerate(self.symbols)}

    @cached_property
    def _token(self) -> dict[str, int]:
        return {word: k for k, word in enumerate(self.words)}

    @cached_property
    def _class(self) -> dict[str, int]:
        return {name: len(self.words) + k for k, name in enumerate(self.word_classes)}

    @cached_property
    def _number(self) -> dict[tuple[Any, ...], int]:
        """Rules by kind, symbols and what else tells them apart."""
        keys: list[tuple[Any, ...]] = [(BINARY, *rule) for rule in self.binary.tolist()]
        keys += [(UNARY, *rule, chain) for rule, chain in zip(self.unary.tolist(), self.chains, strict=True)]
        keys += [(LEXICAL, *rule) for rule in self.lexical.tolist()]
        return {key: r for r, key in enumerate(keys)}


_IN_ARRAYS = {"binary", "unary", "lexical", "roots", "hidden"}
_IN_HEADER = {field.name for field in fields(Grammar)} - _IN_ARRAYS


def induce(
    trees: Iterable[Tree],
    markov: int | None = None,
    parent: bool = False,
    min_count: int = 1,
    min_word: int = 1,
    rare: int = 1,
    min_class: int = 10,
) -> tuple[Grammar, NDArray[np.int64]]:
    """Collect the rules of a set of trees.

    Parameters
    ----------
    trees : iterable of Tree
        Passed through once.
    markov : int, optional
        How many labels to the left a hidden symbol remembers. Default: all of them.
    parent : bool
        Annotate symbols with the label above them.
    min_count : int
        Binary and unary rules seen fewer times are left out, and with them what can then no longer be part of a tree.
    min_word : int
        Words seen fewer times are unknown.
    rare : int
        Words seen at most so often, and unknown words, also count as words of their classes.
    min_class : int
        Classes seen fewer times are left out; their words take the next class. ``UNK`` always stays.

    Returns
    -------
    grammar : Grammar
    counts : int array (n_rules,)
        How often each rule was seen; a rare word counts once for itself and once for each of its classes.
    """
    check_binarisation(markov, parent)
    for name, value, least in (
        ("min_count", min_count, 1), ("min_word", min_word, 1), ("rare", rare, 0), ("min_class", min_class, 1),
    ):  # fmt: skip
        if not _is_whole(value) or value < least:
            raise OptionError(f"{name}={value!r} is not possible; it must be a whole number of at least {least}.")
    seen: tuple[Counter[tuple[Any, ...]], ...] = (Counter(), Counter(), Counter())
    labels: dict[str, str] = {}
    roots: Counter[str] = Counter()
    for m, tree in enumerate(trees):
        if not isinstance(tree, Tree):
            raise DataError(f"Tree {m} is a {type(tree).__name__}; expected a Tree, such as Tree.parse makes.")
        roots[_annotated(tree, None)] += 1
        try:
            for kind, names, label, *_ in _steps(tree, markov, parent):
                seen[kind][names] += 1
                if labels.setdefault(names[0], label) != label:
                    raise DataError(f"{names[0]} is a label, and the name of a symbol made of other labels.")
        except DataError as error:
            raise DataError(f"Tree {m}: {error}") from None
    if not labels:
        raise DataError("There is no tree to take rules from.")

    symbols = sorted(labels, key=lambda name: (labels[name] == "", name))
    symbol = {name: k for k, name in enumerate(symbols)}
    binary = sorted((symbol[b], symbol[c], symbol[a], n) for (a, b, c), n in seen[BINARY].items() if n >= min_count)
    unary = sorted((symbol[b], symbol[a], chain, n) for (a, b, chain), n in seen[UNARY].items() if n >= min_count)
    lexical, words, classes = _lexicon(seen[LEXICAL], symbol, min_word, rare, min_class)
    rules = (
        np.array(binary, np.int64).reshape(-1, 4)[:, [2, 0, 1]],
        np.array([row[:2] for row in unary], np.int64).reshape(-1, 2)[:, ::-1],
        np.array(lexical, np.int64).reshape(-1, 3)[:, [1, 0]],
    )
    top = np.array(sorted(symbol[name] for name in roots))
    alive, keep = _useful(len(symbols), rules, top)
    counts = np.array([row[-1] for part in (binary, unary, lexical) for row in part], np.int64)
    renumbered = np.cumsum(alive) - 1
    kept_rules = [renumbered[part[k]] for part, k in zip(rules[:2], keep[:2], strict=True)]
    kept_lexical = rules[LEXICAL][keep[LEXICAL]]
    kept_lexical[:, 0] = renumbered[kept_lexical[:, 0]]
    kept_symbols = [name for name, lives in zip(symbols, alive, strict=True) if lives]
    if not alive[top].any():
        raise DataError(f"No rules are left that derive a sentence: min_count={min_count} is too many.")
    grammar = Grammar(
        kept_symbols,
        words,
        classes,
        kept_rules[BINARY],
        kept_rules[UNARY],
        kept_lexical,
        renumbered[top[alive[top]]],
        np.array([labels[name] == "" for name in kept_symbols]),
        [row[2] for row, k in zip(unary, keep[UNARY], strict=True) if k],
        [labels[name] for name in kept_symbols],
        markov,
        parent,
    )
    return grammar, counts[np.concatenate(keep)]


def pcfg_weights(grammar: Grammar, counts: ArrayLike) -> NDArray[np.float64]:
    """Log probabilities of the rules by maximum likelihood: how often a symbol was expanded in each of its ways.

    The probabilities of a symbol's binary and unary rules, its known words and ``UNK`` sum to one; finer classes are
    parts of ``UNK``. Rules never seen get -inf.

    Parameters
    ----------
    grammar : Grammar
        The rules.
    counts : array (n_rules,)
        How often each was seen.
    """
    n = np.asarray(counts, np.float64)
    if n.shape != (grammar.n_rules,) or not (n >= 0).all():
        raise DataError(f"The counts have shape {n.shape}; expected ({grammar.n_rules},), with no count below 0.")
    left = np.concatenate([grammar.binary[:, 0], grammar.unary[:, 0], grammar.lexical[:, 0]])
    once = n.copy()
    if UNKNOWN in grammar.word_classes:
        token = grammar.lexical[:, 1]
        once[len(n) - len(token) :][(token >= len(grammar.words)) & (token != grammar._class[UNKNOWN])] = 0
    total = np.bincount(left, once, len(grammar.symbols))[left]
    weights, seen = np.full(len(n), -np.inf), (n > 0) & (total > 0)
    weights[seen] = np.log(n[seen] / total[seen])
    return weights


def classes_of(word: str) -> list[str]:
    """The classes of a word, the finest first."""
    shape = word
    for pattern, written in _SHAPES:
        shape = pattern.sub(written, shape)
    shape = f"{UNKNOWN}/" + _REPEATED.sub(r"\1", shape)
    found = [f"{shape}/-{word[-n:]}" for n in _SUFFIXES if len(word) > n + 1 and word[-n:].isalpha()]
    return [*found, shape, UNKNOWN]


def check_binarisation(markov: Any, parent: Any) -> None:
    """Refuse what cannot be said of a binarisation."""
    if markov is not None and (not _is_whole(markov) or markov < 0):
        raise OptionError(f"markov={markov!r} is not possible; it must be a whole number of at least 0, or None.")
    if not isinstance(parent, bool):
        raise OptionError(f"parent={parent!r} is not possible; it must be True or False.")


def _steps(tree: Tree, markov: int | None, parent: bool) -> Iterator[_Step]:
    """The derivation of a tree, by names."""
    size: dict[int, int] = {}

    def count(node: Tree, below: list[int]) -> int:
        if not node.label:
            raise DataError("a bracket has no label, as the outermost of Penn files; a grammar needs one.")
        size[id(node)] = n = sum(below) if below else 1
        return n

    tree.fold(count)
    # What is to be derived from which word on: a node under its name, or the rest of a node's children, from number i on,
    # under the name of the whole and of the rest.
    stack: list[tuple[Any, ...]] = [(tree, _annotated(tree, None), 0)]
    while stack:
        node, name, begin, *rest = stack.pop()
        if not rest:
            end, above, bottom = begin + size[id(node)], None, node
            between = []
            while not bottom.is_tag and len(bottom.children) == 1:
                between.append(bottom.label)
                above, bottom = bottom.label, bottom.children[0]
            if len(between) > MOST_CHAIN:
                raise DataError(
                    f"a chain of {len(between)} nodes stands over a single subtree; at most {MOST_CHAIN} are possible "
                    "(maxmargin.parsing.grammar.MOST_CHAIN)."
                )
            if above is not None:
                top, name = name, _annotated(bottom, above if parent else None)
                yield UNARY, (top, name, tuple(between[1:])), node.label, begin, end, -1
            if bottom.is_tag:
                yield LEXICAL, (name, bottom.children[0]), bottom.label, begin, end, -1
                continue
            node, rest = bottom, [0, name, end]
        i, whole, end = rest
        above = node.label if parent else None
        left, right = node.children[i], node.children[i + 1]
        middle = begin + size[id(left)]
        if i + 2 == len(node.children):
            after: tuple[Any, ...] = (right, _annotated(right, above), middle)
        else:
            first = 0 if markov is None else max(0, i + 1 - markov)
            memory = " ".join(child.label for child in node.children[first : i + 1])
            after = (node, f"{whole}|<{memory}>", middle, i + 1, whole, end)
        names = (name, _annotated(left, above), after[1])
        yield BINARY, names, node.label if i == 0 else "", begin, end, middle
        stack += [after, (left, names[1], begin)]


def _annotated(node: Tree, above: str | None) -> str:
    return node.label if above is None or node.is_tag else f"{node.label}^{above}"


def _lexicon(
    seen: Counter[tuple[Any, ...]], symbol: dict[str, int], min_word: int, rare: int, min_class: int
) -> tuple[list[tuple[int, int, int]], list[str], list[str]]:
    """The lexical rules as sorted (token, tag, count), the known words and the classes."""
    total: Counter[str] = Counter()
    for (_, word), n in seen.items():
        total[word] += n
    words = sorted(word for word, n in total.items() if n >= min_word)
    known = {word: t for t, word in enumerate(words)}
    by_class: Counter[tuple[str, str]] = Counter()
    class_total: Counter[str] = Counter()
    for (tag, word), n in seen.items():
        if total[word] <= rare or word not in known:
            for name in classes_of(word):
                by_class[tag, name] += n
                class_total[name] += n
    classes = sorted(name for name, n in class_total.items() if n >= min_class or name == UNKNOWN)
    number = {name: len(words) + c for c, name in enumerate(classes)}
    rules = [(known[word], symbol[tag], n) for (tag, word), n in seen.items() if word in known]
    rules += [(number[name], symbol[tag], n) for (tag, name), n in by_class.items() if name in number]
    return sorted(rules), words, classes


def _useful(
    n: int, rules: tuple[NDArray[np.int64], ...], roots: NDArray[np.int64]
) -> tuple[NDArray[np.bool_], list[NDArray[np.bool_]]]:
    """Which symbols, and which rules of each kind, can be part of a derivation of some sentence.

    A symbol may be good as the bottom of a span, as its top, or as both, since chains do not follow each other.
    """
    binary, unary, lexical = rules

    def closed(bottom: NDArray[np.bool_], top: NDArray[np.bool_], grow: Any) -> None:
        found = -1
        while found < (found := int(bottom.sum() + top.sum())):
            grow(bottom, top)

    def derives(bottom: NDArray[np.bool_], top: NDArray[np.bool_]) -> None:
        bottom[binary[top[binary[:, 1]] & top[binary[:, 2]], 0]] = True
        top |= bottom
        top[unary[bottom[unary[:, 1]], 0]] = True

    bottom, top = np.zeros(n, bool), np.zeros(n, bool)
    bottom[lexical[:, 0]] = True
    closed(bottom, top, derives)
    binary_derives = top[binary[:, 1]] & top[binary[:, 2]]
    unary_derives = bottom[unary[:, 1]]

    def is_reached(below: NDArray[np.bool_], above: NDArray[np.bool_]) -> None:
        below |= above
        below[unary[unary_derives & above[unary[:, 0]], 1]] = True
        above[binary[binary_derives & below[binary[:, 0]], 1:].ravel()] = True

    below, above = np.zeros(n, bool), np.zeros(n, bool)
    above[roots[top[roots]]] = True
    closed(below, above, is_reached)
    keep = [binary_derives & below[binary[:, 0]], unary_derives & above[unary[:, 0]], below[lexical[:, 0]]]
    return below | above, keep


def _names(given: Any, name: str) -> list[str]:
    names = list(given)
    if not all(isinstance(one, str) for one in names):
        raise DataError(f"The {name} of a grammar must be strings.")
    if len(set(names)) < len(names):
        twice = next(one for one, n in Counter(names).items() if n > 1)
        raise DataError(f"The {name} of a grammar must differ; {twice!r} stands there twice.")
    return names


def _rules(given: Any, name: str, limits: tuple[int, ...]) -> NDArray[np.int32]:
    rules = np.asarray(given)
    if rules.size == 0:
        return np.empty((0, len(limits)), np.int32)
    if rules.ndim != 2 or rules.shape[1] != len(limits) or rules.dtype.kind not in "iu":
        raise DataError(
            f"{name} has shape {rules.shape} and dtype {rules.dtype}; expected whole numbers in {len(limits)} columns."
        )
    wrong = np.argwhere((rules < 0) | (rules >= limits))
    if len(wrong):
        row, column = wrong[0].tolist()
        raise DataError(f"{name} has {rules[row, column]} in row {row}; expected 0 to {limits[column] - 1}.")
    return np.ascontiguousarray(rules, np.int32)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)

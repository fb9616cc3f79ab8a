"""Labelled, ordered trees over words, and their bracketed text: ``(S (NP (DT the) (NN dog)) (VP (VBZ barks)))``.

Conventions
-----------
A node has either trees below it or one word, which is a string; in the second case the node is a *tag* (pre-terminal).
Words and labels hold no space and no bracket. The label may be empty, as is that of the outer bracket ``( (S ...))`` in
Penn files, unless the node is a tag. Words of a sentence count from 0, and a span ``begin, end`` holds the words
``begin`` to ``end - 1``. Trees are read, written, compared and walked through without recursion, however deep they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from maxmargin.errors import DataError
from maxmargin.parsing.tree_layout import draw_svg

T = TypeVar("T")

# Spaces that are not ASCII, such as the one between thousands, may stand in words.
_TOKEN = re.compile(r"[()]|[^\s()]+", re.ASCII)
_ATOM = re.compile(r"[^\s()]*", re.ASCII)


class Tree:
    """A node and all that is below it; cannot be changed.

    Parameters
    ----------
    label : str
    children : sequence of Tree, or of one str
        The subtrees from left to right, or the word.
    """

    __slots__ = ("children", "label")

    label: str
    children: tuple[Tree | str, ...]

    def __init__(self, label: str, children: Sequence[Tree | str]) -> None:
        below = (children,) if isinstance(children, str) else tuple(children)
        if not (isinstance(label, str) and _ATOM.fullmatch(label)):
            raise DataError(f"{label!r} cannot be a label; expected a string without spaces and brackets.")
        if not below:
            raise DataError(f"The bracket ({label}) is empty; expected trees or a word in it.")
        if len(below) == 1 and isinstance(below[0], str):
            if not (label and below[0] and _ATOM.fullmatch(below[0])):
                raise DataError(
                    f"{below[0]!r} cannot be a word with the tag {label!r}; both are strings without spaces and "
                    "brackets, and not empty."
                )
        elif not all(isinstance(child, Tree) for child in below):
            raise DataError(
                f"The bracket ({label} ...) holds {len(below)} things that are not all trees; expected trees, or one "
                "word."
            )
        object.__setattr__(self, "label", label)
        object.__setattr__(self, "children", below)

    @classmethod
    def parse(cls, text: str) -> Tree:
        """Read one tree from its bracketed text.

        Parameters
        ----------
        text : str
            One tree in brackets.
        """
        trees = list(parse_trees(text.split("\n"), "The text of the tree"))
        if len(trees) != 1:
            raise DataError(f"The text has {len(trees)} trees; expected one.")
        return trees[0]

    @property
    def is_tag(self) -> bool:
        """Whether a word stands below this node."""
        return isinstance(self.children[0], str)

    def nodes(self) -> Iterator[Tree]:
        """All nodes, each before those below it, from left to right."""
        stack: list[Any] = [self]
        while stack:
            node = stack.pop()
            yield node
            if not node.is_tag:
                stack.extend(reversed(node.children))

    def fold(self, combine: Callable[[Tree, list[T]], T]) -> T:
        """Compute something of every node from what was computed of its subtrees (none below a tag).

        Parameters
        ----------
        combine : callable
            ``combine(node, results)`` of a node and the results of its children, in order.
        """
        done: list[T] = []
        for node in reversed(list(self.nodes())):
            n = 0 if node.is_tag else len(node.children)
            below = done[len(done) - n :][::-1]
            del done[len(done) - n :]
            done.append(combine(node, below))
        return done[0]

    def words(self) -> list[str]:
        """The words from left to right."""
        return [str(node.children[0]) for node in self.nodes() if node.is_tag]

    def tags(self) -> list[str]:
        """The label above each word."""
        return [node.label for node in self.nodes() if node.is_tag]

    def spans(self) -> list[tuple[int, int, str]]:
        """(begin, end, label) of all nodes but the tags, each before those below it, from left to right."""
        found: list[tuple[int, int, str]] = []
        # Words seen before the node is entered, and, at its end, the row of `found` to be completed.
        n, stack = 0, [(self, -1)]
        while stack:
            node, row = stack.pop()
            if row >= 0:
                found[row] = (found[row][0], n, node.label)
            elif node.is_tag:
                n += 1
            else:
                stack.append((node, len(found)))
                found.append((n, n, node.label))
                stack.extend((child, -1) for child in reversed(node.children) if isinstance(child, Tree))
        return found

    def __str__(self) -> str:
        parts: list[str] = []
        stack: list[Any] = [self]
        while stack:
            node = stack.pop()
            if isinstance(node, str):
                parts.append(node)
            elif node.is_tag:
                parts.append(f" ({node.label} {node.children[0]})")
            else:
                parts.append(f" ({node.label}")
                stack.append(")")
                stack.extend(reversed(node.children))
        return "".join(parts)[1:]

    def _repr_svg_(self) -> str:
        """A picture, for notebooks."""
        return draw_svg(self)

    def __repr__(self) -> str:
        text = str(self)
        return f"Tree.parse({text if len(text) <= 80 else text[:77] + '...'!r})"

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Tree) and str(self) == str(other))

    def __hash__(self) -> int:
        return hash(str(self))

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"A tree cannot be changed: {name} was to be set.")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"A tree cannot be changed: {name} was to be deleted.")

    def __reduce__(self) -> Any:
        return Tree.parse, (str(self),)


def parse_trees(lines: Iterable[str], place: str) -> Iterator[Tree]:
    """Read bracketed trees one after another, holding no more than one.

    Parameters
    ----------
    lines : iterable of str
    place : str
        What errors begin with, such as the file; the line and the column, both counted from 1, come after it.
    """
    for tree, _, _ in located_trees(lines, place):
        yield tree


def located_trees(lines: Iterable[str], place: str) -> Iterator[tuple[Tree, int, int]]:
    """Read trees like `parse_trees`; each comes with the line and the column of its first bracket."""
    # Open brackets: label (None as long as it is not known), children, line, column.
    open_: list[tuple[list[str], list[Tree | str], int, int]] = []
    for number, line in enumerate(lines, start=1):
        for match in _TOKEN.finditer(line):
            token, column = match[0], match.start() + 1
            if token == "(":
                open_.append(([], [], number, column))
            elif not open_:
                what = (
                    "this bracket closes nothing" if token == ")" else f"{token[:60]!r} stands outside of all brackets"
                )
                raise DataError(f"{place}, line {number}, column {column}: {what}.")
            elif token == ")":
                label, children, begin, at = open_.pop()
                try:
                    tree = Tree("".join(label), children)
                except DataError as error:
                    raise DataError(f"{place}, line {begin}, column {at}: {error}") from None
                if open_:
                    open_[-1][1].append(tree)
                else:
                    yield tree, begin, at
            elif open_[-1][0] or open_[-1][1]:
                open_[-1][1].append(token)
            else:
                open_[-1][0].append(token)
    if open_:
        _, _, begin, at = open_[0]
        raise DataError(f"{place}, line {begin}, column {at}: the tree that begins here is never closed.")

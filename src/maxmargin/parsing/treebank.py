"""Treebanks: files of bracketed trees, as in the Penn treebank's ``.mrg`` files.

Conventions
-----------
Trees stand one after another, over as many lines as they like, in UTF-8. An outer bracket without a label,
``( (S ...))``, is dropped if one tree is in it, and is named TOP if there are more. Brackets in words are written -LRB-
and -RRB- in such files, and stay so.

A *trace* is the tag -NONE- with its word, which stands for nothing that was said. *Functions* are what follows the
first ``-`` or ``=`` of a label (NP-SBJ-1 is an NP); labels that begin with one, such as -LRB-, have none. Collapsed
chains of single subtrees are one node with a label such as S+VP; tags are left alone, so the words keep their tags.
"""

from __future__ import annotations

import contextlib
import os
import re
import zipfile
from collections.abc import Iterable, Iterator
from typing import IO, Literal

from maxmargin.errors import DataError, OptionError
from maxmargin.formats.atomic import atomic_write
from maxmargin.formats.compression import (
    ZIP_ERRORS,
    check_archive,
    is_pipe,
    keeping,
    open_binary,
    open_seekable,
    open_text,
)
from maxmargin.parsing.trees import Tree, located_trees

TRACE = "-NONE-"
TOP = "TOP"
_Chain = tuple[list[str], list[Tree | str]]
_PLAIN = re.compile(r"[^-=]+|.*")


def read_trees(
    path: str | os.PathLike[str],
    remove_traces: bool = False,
    remove_functions: bool = False,
    unary: Literal["keep", "collapse"] = "keep",
    suffix: str = ".mrg",
) -> Iterator[Tree]:
    """Read the trees of a file one by one, holding no more than one in memory; of a pipe, all of them.

    Parameters
    ----------
    path : path-like
        The file, possibly compressed (gzip, xz, bzip2), or a zip archive: then the trees of its members in the order of
        their names.
    remove_traces, remove_functions : bool
        Leave out traces, with all that holds nothing else, and functions.
    unary : "keep" or "collapse"
        What becomes of nodes over a single subtree.
    suffix : str
        How the names of a zip archive's members with trees end.

    Yields
    ------
    Tree
    """
    if unary not in ("keep", "collapse"):
        raise OptionError(f'unary={unary!r} is not known; use "keep" or "collapse".')
    place = os.fspath(path)
    if is_pipe(place):
        with keeping(place):
            return iter(list(_trees(place, suffix, remove_traces, remove_functions, unary)))
    return _trees(place, suffix, remove_traces, remove_functions, unary)


def _trees(place: str, suffix: str, remove_traces: bool, remove_functions: bool, unary: str) -> Iterator[Tree]:
    """Open the file at once, and read it tree by tree."""
    with open_binary(place) as stream:
        zipped = stream.read(4) == b"PK\x03\x04"
    return _read(_members(place, suffix) if zipped else _file(place), remove_traces, remove_functions, unary)


def write_trees(path: str | os.PathLike[str], trees: Iterable[Tree]) -> None:
    """Write trees to a file, one a line; `read_trees` reads them back.

    Parameters
    ----------
    path : path-like
        The file to write or to replace, in one step.
    trees : iterable of Tree
    """
    with atomic_write(path) as stream:
        for tree in trees:
            stream.write(f"{tree}\n".encode())


def without_traces(tree: Tree) -> Tree | None:
    """The tree without traces and without nodes that hold nothing else; None if nothing is left.

    Parameters
    ----------
    tree : Tree
        A tree.
    """

    def kept(node: Tree, below: list[Tree | None]) -> Tree | None:
        if node.is_tag:
            return None if node.label == TRACE else node
        left = [child for child in below if child is not None]
        return Tree(node.label, left) if left else None

    return tree.fold(kept)


def without_functions(tree: Tree) -> Tree:
    """The tree without functions in its labels.

    Parameters
    ----------
    tree : Tree
        A tree.
    """

    def plain(node: Tree, below: list[Tree]) -> Tree:
        label = _PLAIN.match(node.label)
        return Tree(label[0] if label else "", below or node.children)

    return tree.fold(plain)


def collapse_unary(tree: Tree) -> Tree:
    """The tree with every chain of nodes over a single subtree made one node, such as S+VP; `expand_unary` undoes it.

    Parameters
    ----------
    tree : Tree
        A tree.
    """

    # A node is its labels, from the bottom up, and what is below; labels are joined once, when the chain ends.
    def collapsed(node: Tree, below: list[_Chain]) -> _Chain:
        if "+" in node.label and not node.is_tag:
            raise DataError(f"The label {node.label} has a '+', which collapsed labels are joined with.")
        if len(below) == 1 and isinstance(below[0][1][0], Tree):
            below[0][0].append(node.label)
            return below[0]
        return [node.label], [_joined(one) for one in below] or list(node.children)

    return _joined(tree.fold(collapsed))


def _joined(chain: _Chain) -> Tree:
    labels, below = chain
    return Tree("+".join(reversed(labels)), below)


def expand_unary(tree: Tree) -> Tree:
    """The tree with collapsed labels made chains of nodes again.

    Parameters
    ----------
    tree : Tree
        A tree.
    """

    def expanded(node: Tree, below: list[Tree]) -> Tree:
        if node.is_tag:
            return node
        for label in reversed(node.label.split("+")):
            below = [Tree(label, below)]
        return below[0]

    return tree.fold(expanded)


def _file(place: str) -> Iterator[tuple[str, Iterable[str]]]:
    with open_text(place) as stream:
        yield place, stream


def _members(place: str, suffix: str) -> Iterator[tuple[str, Iterable[str]]]:
    """The lines of the texts in a zip archive, and what errors call them."""
    with _readable(place), open_seekable(place) as stream, zipfile.ZipFile(stream) as archive:
        names = sorted(name for name in archive.namelist() if name.endswith(suffix))
        if not names:
            raise DataError(f"{place}: no member of this zip archive has a name that ends in {suffix!r}.")
        check_archive(place, archive, names)
        for name in names:
            with archive.open(name) as member:
                yield f"{place}, {name}", _lines(f"{place}, {name}", member)


def _lines(place: str, member: IO[bytes]) -> Iterator[str]:
    with _readable(place):
        for number, line in enumerate(member, start=1):
            try:
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise DataError(f"{place}, line {number}: this is not UTF-8 text ({error.reason}).") from error


@contextlib.contextmanager
def _readable(place: str) -> Iterator[None]:
    try:
        yield
    except DataError:
        raise
    except ZIP_ERRORS as error:
        raise DataError(f"{place}: this zip archive is truncated, corrupt or encrypted ({error}).") from error


def _read(
    texts: Iterator[tuple[str, Iterable[str]]], remove_traces: bool, remove_functions: bool, unary: str
) -> Iterator[Tree]:
    for place, lines in texts:
        for whole, line, column in located_trees(lines, place):
            tree: Tree | None = whole
            try:
                if not whole.label:
                    only = whole.children[0]
                    tree = only if len(whole.children) == 1 and isinstance(only, Tree) else Tree(TOP, whole.children)
                if remove_traces and tree is not None:
                    tree = without_traces(tree)
                if tree is None:
                    raise DataError("nothing but traces is in this tree.")
                if remove_functions:
                    tree = without_functions(tree)
                if unary == "collapse":
                    tree = collapse_unary(tree)
            except DataError as error:
                raise DataError(f"{place}, line {line}, column {column}: {error}") from None
            yield tree

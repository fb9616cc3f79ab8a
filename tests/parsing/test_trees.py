"""Trees: their text, spans and walks, however deep; and the place of every mistake in a text."""

import copy
import pickle

import pytest

from maxmargin.errors import DataError
from maxmargin.parsing.trees import Tree, parse_trees

DOG = "(S (NP (DT the) (NN dog)) (VP (VBZ barks)) (. .))"


def test_parts():
    tree = Tree.parse(DOG)
    assert tree.label == "S"
    assert [child.label for child in tree.children] == ["NP", "VP", "."]
    assert tree.words() == ["the", "dog", "barks", "."]
    assert tree.tags() == ["DT", "NN", "VBZ", "."]
    assert tree.spans() == [(0, 4, "S"), (0, 2, "NP"), (2, 3, "VP")]
    assert [node.label for node in tree.nodes()] == ["S", "NP", "DT", "NN", "VP", "VBZ", "."]
    assert [node.is_tag for node in tree.nodes()] == [False, False, True, True, False, True, True]
    assert tree.fold(lambda node, below: [node.label, *below]) == [
        "S", ["NP", ["DT"], ["NN"]], ["VP", ["VBZ"]], ["."],
    ]  # fmt: skip


def test_text_and_equality():
    tree = Tree.parse(DOG.replace(" ", "\n\t ").replace("(", "( "))
    assert str(tree) == DOG
    same = Tree(
        "S", [Tree("NP", [Tree("DT", "the"), Tree("NN", ["dog"])]), Tree("VP", [Tree("VBZ", "barks")]), Tree(".", ".")]
    )
    assert tree == same
    assert len({tree, same}) == 1
    assert tree != Tree.parse(DOG.replace("dog", "cat"))
    assert tree != DOG
    assert repr(tree) == f"Tree.parse({DOG!r})"
    assert Tree.parse("( (S (A a)))").label == ""
    assert str(Tree.parse("((S (A a)))")) == "( (S (A a)))"
    # Only ASCII spaces divide words.
    assert Tree.parse("(CD 1\u00a0000)").words() == ["1\u00a0000"]


def test_trees_do_not_change():
    tree = Tree.parse(DOG)
    with pytest.raises(AttributeError, match="cannot be changed: label"):
        tree.label = "X"
    with pytest.raises(AttributeError, match="cannot be changed: children"):
        del tree.children


def test_deep_trees():
    depth = 50_000
    text = "(A (B b) " * depth + "(N x)" + ")" * depth
    tree = Tree.parse(text)
    assert str(tree) == text
    assert tree == Tree.parse(text)
    assert tree.spans()[-1] == (depth - 1, depth + 1, "A")
    assert tree.fold(lambda node, below: 1 + max(below, default=0)) == depth + 1
    assert pickle.loads(pickle.dumps(tree)) == copy.deepcopy(tree) == tree


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("(S\n  (NP (DT a))\n", "line 1, column 1: the tree that begins here is never closed"),
        ("(A a)\n (S (B b)", "line 2, column 2: the tree that begins here is never closed"),
        ("(S (A a)))", "line 1, column 10: this bracket closes nothing"),
        ("(A a)\n dog", "line 2, column 2: 'dog' stands outside of all brackets"),
        ("()", r"line 1, column 1: The bracket \(\) is empty"),
        ("(S (A a)\n   (NP))", r"line 2, column 4: The bracket \(NP\) is empty"),
        ("(S (NP the dog))", r"line 1, column 4: The bracket \(NP ...\) holds 2 things that are not all trees"),
        ("(S (A a) b)", r"line 1, column 1: The bracket \(S ...\) holds 2 things that are not all trees"),
    ],
)
def test_mistakes_have_a_place(text, match):
    with pytest.raises(DataError, match=f"^here, {match}"):
        list(parse_trees(text.split("\n"), "here"))


def test_one_tree_is_read_at_a_time():
    def lines():
        yield "(A a) (B"
        yield "b)"
        yield "(C"

    trees = parse_trees(lines(), "here")
    assert [str(next(trees)), str(next(trees))] == ["(A a)", "(B b)"]
    with pytest.raises(DataError, match="line 3, column 1"):
        next(trees)


@pytest.mark.parametrize("text", ["", "(A a) (B b)"])
def test_not_one_tree(text):
    with pytest.raises(DataError, match=f"has {text.count('(')} trees; expected one"):
        Tree.parse(text)


@pytest.mark.parametrize(
    ("label", "children", "match"),
    [
        ("N P", ["a"], "'N P' cannot be a label"),
        (3, ["a"], "3 cannot be a label"),
        ("NN", ["a b"], "'a b' cannot be a word"),
        ("NN", [""], "'' cannot be a word"),
        ("", ["a"], "cannot be a word with the tag ''"),
        ("NN", ["("], r"'\(' cannot be a word"),
        ("NP", [], "is empty"),
        ("NP", ["a", "b"], "2 things"),
        ("NP", [3], "1 things"),
    ],
)
def test_what_cannot_be_a_tree(label, children, match):
    with pytest.raises(DataError, match=match):
        Tree(label, children)

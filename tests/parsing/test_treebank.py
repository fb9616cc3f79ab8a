"""Treebank files: Penn's peculiarities, compression, and the place of every mistake."""

import bz2
import gzip
import lzma
import zipfile

import pytest

from maxmargin.errors import DataError, OptionError
from maxmargin.parsing.treebank import (
    collapse_unary,
    expand_unary,
    read_trees,
    without_functions,
    without_traces,
    write_trees,
)
from maxmargin.parsing.trees import Tree

PENN = """
( (S
    (NP-SBJ-1 (NNP Mary) )
    (VP (VBZ seems)
      (S (NP-SBJ (-NONE- *-1) )
        (VP (TO to) (VP (VB sleep) ))))
    (. .) ))
( (FRAG (-LRB- -LRB-) (NP=2 (NN ja) ) (-RRB- -RRB-) (SBAR (-NONE- 0) (S (-NONE- *T*) ))))
"""
AS_WRITTEN = [
    "(S (NP-SBJ-1 (NNP Mary)) (VP (VBZ seems) (S (NP-SBJ (-NONE- *-1)) (VP (TO to) (VP (VB sleep))))) (. .))",
    "(FRAG (-LRB- -LRB-) (NP=2 (NN ja)) (-RRB- -RRB-) (SBAR (-NONE- 0) (S (-NONE- *T*))))",
]
CLEAN = [
    "(S (NP (NNP Mary)) (VP (VBZ seems) (S (VP (TO to) (VP (VB sleep))))) (. .))",
    "(FRAG (-LRB- -LRB-) (NP (NN ja)) (-RRB- -RRB-))",
]
COLLAPSED = [CLEAN[0].replace("(S (VP (TO to) (VP (VB sleep))))", "(S+VP (TO to) (VP (VB sleep)))"), CLEAN[1]]


def texts(path, **options):
    return [str(tree) for tree in read_trees(path, **options)]


@pytest.fixture
def penn(tmp_path):
    path = tmp_path / "wsj.mrg"
    path.write_text(PENN)
    return path


def test_options(penn):
    assert texts(penn) == AS_WRITTEN
    assert texts(penn, remove_functions=True)[1] == AS_WRITTEN[1].replace("=2", "")
    assert texts(penn, remove_traces=True)[1] == CLEAN[1].replace("NP", "NP=2")
    assert texts(penn, remove_traces=True, remove_functions=True) == CLEAN
    assert texts(penn, remove_traces=True, remove_functions=True, unary="collapse") == COLLAPSED
    with pytest.raises(OptionError, match="unary='fold' is not known"):
        read_trees(penn, unary="fold")


@pytest.mark.parametrize(
    "compress", [lambda data: data, gzip.compress, lzma.compress, bz2.compress], ids=["plain", "gz", "xz", "bz2"]
)
def test_compressed(tmp_path, compress):
    path = tmp_path / "trees"
    path.write_bytes(compress(b"\xef\xbb\xbf" + PENN.replace("ja", "j\u00e4").encode()))
    assert texts(path) == [text.replace("ja", "j\u00e4") for text in AS_WRITTEN]


def test_zip(tmp_path):
    path = tmp_path / "bank.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("b/2.mrg", "\ufeff(B b)\r\n(C\r\nc)")
        archive.writestr("b/README", "no trees")
        archive.writestr("b/1.mrg", "(A a)")
        archive.writestr("b/1.tree", "(D d)")
        archive.writestr("b/3.bad", "(D d)\n(E e))")
        archive.writestr("b/4.latin", "(A a)\n(D d\u00e9j\u00e0)".encode("latin-1"))
    assert texts(path) == ["(A a)", "(B b)", "(C c)"]
    assert texts(path, suffix=".tree") == ["(D d)"]
    with pytest.raises(DataError, match=r"bank.zip: no member of this zip archive has a name that ends in '.ptb'"):
        texts(path, suffix=".ptb")
    with pytest.raises(DataError, match=r"bank.zip, b/3.bad, line 2, column 6: this bracket closes nothing"):
        texts(path, suffix=".bad")
    with pytest.raises(DataError, match=r"bank.zip, b/4.latin, line 2: this is not UTF-8"):
        texts(path, suffix=".latin")
    whole = path.read_bytes()
    for size in range(4, len(whole), 41):
        path.write_bytes(whole[:size])
        with pytest.raises(DataError, match=r"bank.zip"):
            texts(path)
    at = whole.index(b"1.mrg") + len(b"1.mrg")
    path.write_bytes(whole[:at] + b"\xff\xff" + whole[at + 2 :])
    with pytest.raises(DataError, match=r"bank.zip.*truncated, corrupt or encrypted"):
        texts(path)


def test_streaming(tmp_path):
    """Trees before a mistake are read, and the file is not read to its end for the first of them."""
    path = tmp_path / "long.mrg"
    path.write_text("(A a)\n" * 200_000 + "(B")
    trees = read_trees(path)
    assert str(next(trees)) == "(A a)"
    with pytest.raises(DataError, match=r"long.mrg, line 200001, column 1: .* never closed"):
        list(trees)


@pytest.mark.parametrize(
    ("text", "options", "match"),
    [
        ("(S (NP (DT a))", {}, "line 1, column 1: the tree that begins here is never closed"),
        ("(A a)\n( )", {}, r"line 2, column 1: The bracket \(\) is empty"),
        ("(A a)\n ( (S (-NONE- *)))", {"remove_traces": True}, "line 2, column 2: nothing but traces is in this tree"),
        ("(S (A+B (C c)))", {"unary": "collapse"}, "line 1, column 1: The label A.B has a '.'"),
    ],
)
def test_bad_files(tmp_path, text, options, match):
    path = tmp_path / "bad.mrg"
    path.write_text(text)
    with pytest.raises(DataError, match=f"bad.mrg, {match}"):
        texts(path, **options)


def test_missing_file(tmp_path):
    with pytest.raises(DataError, match="No such file"):
        read_trees(tmp_path / "nowhere.mrg")


def test_several_trees_in_an_outer_bracket(tmp_path):
    path = tmp_path / "x.mrg"
    path.write_text("( (S (A a)) (S (B b)))")
    assert texts(path) == ["(TOP (S (A a)) (S (B b)))"]


def test_write(tmp_path):
    path = tmp_path / "out.mrg"
    write_trees(path, map(Tree.parse, AS_WRITTEN))
    assert path.read_text() == "".join(f"{text}\n" for text in AS_WRITTEN)
    assert texts(path) == AS_WRITTEN
    path.write_text("kept")
    with pytest.raises(DataError):
        write_trees(path, map(Tree.parse, ["(A a)", "(B"]))
    assert path.read_text() == "kept"


def test_functions_on_trees():
    tree = Tree.parse(AS_WRITTEN[1])
    assert str(without_functions(without_traces(tree))) == CLEAN[1]
    assert without_traces(Tree.parse("(S (NP (-NONE- *)) (-NONE- 0))")) is None
    odd = Tree.parse("(ADVP-TMP|PRT (-NONE- *) (PRP$ x) (-- --) (= =))")
    assert str(without_functions(odd)) == "(ADVP (-NONE- *) (PRP$ x) (-- --) (= =))"
    chain = Tree.parse("(S (VP (X (A a) (B b))))")
    assert str(collapse_unary(chain)) == "(S+VP+X (A a) (B b))"
    assert expand_unary(collapse_unary(chain)) == chain
    assert str(collapse_unary(Tree.parse("(S (VP (VB go)))"))) == "(S+VP (VB go))"

"""Sentences in columns: reading, also out of zip files, writing, and the sentence for every line that is wrong."""

import bz2
import zipfile

import numpy as np
import pytest

from maxmargin.errors import DataError, OptionError
from maxmargin.formats.conll import conll_text, read_conll, write_conll

GOOD = """\
-DOCSTART- -X- O

Confidence NN B-NP
in\tIN  B-PP


# # O
caf\u00e9\u00a0noir NN B-NP
"""
SENTENCES = [[("Confidence", "NN"), ("in", "IN")], [("#", "#"), ("caf\u00e9\u00a0noir", "NN")]]
TAGS = [["B-NP", "B-PP"], ["O", "B-NP"]]


def write(tmp_path, text):
    path = tmp_path / "set.conll"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("text", [GOOD, GOOD.strip(), GOOD.replace("\n", "\r\n"), "\n \n" + GOOD + "\n\n"])
def test_read(tmp_path, text):
    assert read_conll(write(tmp_path, text)) == (SENTENCES, TAGS)


def test_without_tags(tmp_path):
    whole = [
        [(*word, tag) for word, tag in zip(words, tags, strict=True)]
        for words, tags in zip(SENTENCES, TAGS, strict=True)
    ]
    assert read_conll(write(tmp_path, GOOD), tagged=False) == (whole, [])
    assert read_conll(write(tmp_path, "a\nb\n\nc\n"), tagged=False) == ([[("a",), ("b",)], [("c",)]], [])


def test_comments(tmp_path):
    path = write(tmp_path, "# text = a b c\na A\nb B\n# half\n#c C\n")
    assert read_conll(path, comment="#") == ([[("a",), ("b",)]], [["A", "B"]])
    assert read_conll(path, comment="# ") == ([[("a",), ("b",), ("#c",)]], [["A", "B", "C"]])
    with pytest.raises(DataError, match=r"line 2: 2 columns found, but line 1 has 6\."):
        read_conll(path)


NUMBERED = "1 The the DT B-NP x\n2 dog dog NN I-NP y\n"


@pytest.mark.parametrize(
    ("options", "words", "tags"),
    [
        ({}, [("1", "The", "the", "DT", "B-NP"), ("2", "dog", "dog", "NN", "I-NP")], ["x", "y"]),
        ({"word_column": 2, "tag_column": 5}, [("The", "the", "DT"), ("dog", "dog", "NN")], ["B-NP", "I-NP"]),
        ({"word_column": "2", "tag_column": "-2"}, [("The", "the", "DT"), ("dog", "dog", "NN")], ["B-NP", "I-NP"]),
        ({"word_column": -5, "tag_column": 3}, [("The",), ("dog",)], ["the", "dog"]),
        ({"word_column": 5, "tag_column": 2}, [("B-NP", "the", "DT"), ("I-NP", "dog", "NN")], ["The", "dog"]),
        ({"word_column": 4, "tagged": False}, [("DT", "B-NP", "x"), ("NN", "I-NP", "y")], None),
    ],
)
def test_columns_by_number(tmp_path, options, words, tags):
    assert read_conll(write(tmp_path, NUMBERED), **options) == ([words], [] if tags is None else [tags])


def test_columns_that_are_not_there(tmp_path):
    path = write(tmp_path, "\n" + NUMBERED)
    with pytest.raises(DataError, match=r"set.conll, line 2: 6 columns found, but tag_column is 7\."):
        read_conll(path, tag_column=7)
    with pytest.raises(DataError, match=r"set.conll, line 2: 6 columns found, but word_column is -7\."):
        read_conll(path, word_column=-7)
    with pytest.raises(OptionError, match=r"word_column=6 and tag_column=-1 are the same of 6 columns\."):
        read_conll(path, word_column=6)
    for wrong in ("FORM", 0, True, 1.0, "1.0", None, ""):
        with pytest.raises(OptionError, match=r"word_column=.* is not possible"):
            read_conll(path, word_column=wrong)
    with pytest.raises(OptionError, match="comment='' is not possible"):
        read_conll(path, comment="")


def test_compressed(tmp_path):
    path = tmp_path / "set.conll.bz2"
    path.write_bytes(bz2.compress(GOOD.encode()))
    assert read_conll(path) == (SENTENCES, TAGS)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "set.conll: there are no sentences in the file"),
        ("\n\n-DOCSTART- O\n", "set.conll: there are no sentences in the file"),
        ("word\n", "line 1: 1 column found; expected a word, and its tag in the last"),
        ("a A B\n\nb B\n", r"line 3: 2 columns found, but line 1 has 3\."),
        ("\na A\nb\n", r"line 3: 1 column found, but line 2 has 2\."),
    ],
)
def test_bad_files(tmp_path, text, match):
    with pytest.raises(DataError, match=match):
        read_conll(write(tmp_path, text))


def test_not_utf8(tmp_path):
    (tmp_path / "latin").write_bytes(b"a A\nb\xff B\n")
    with pytest.raises(DataError, match="latin is not UTF-8 text at line 2"):
        read_conll(tmp_path / "latin")
    with pytest.raises(DataError, match="none cannot be opened: No such file"):
        read_conll(tmp_path / "none")


# ------------------------------------------------------------------------------------------------- zip files


def test_zip(tmp_path):
    path = tmp_path / "set.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("deep/train.txt", "\ufeff" + GOOD.replace("\n", "\r\n"))
        archive.writestr("deep/test.txt", "a A\n")
        archive.writestr("deep/latin.txt", b"a A\n\xe9 B\n")
        archive.writestr("other/test.txt", "b B\n")
        archive.writestr("test.txt", "c C\n")
    for name in ("train.txt", "deep/train.txt"):
        assert read_conll(path / name) == (SENTENCES, TAGS)
        assert read_conll(f"{path}/{name}") == (SENTENCES, TAGS)
    assert read_conll(path / "other" / "test.txt") == ([[("b",)]], [["B"]])
    assert read_conll(path / "test.txt") == ([[("c",)]], [["C"]])
    with pytest.raises(
        DataError, match=r"est.txt: 0 files in .*set.zip could be meant; expected one of deep/train.txt, "
    ):
        read_conll(path / "est.txt")
    with pytest.raises(DataError, match=r"set.zip: 5 files in .*set.zip could be meant"):
        read_conll(path)
    with pytest.raises(DataError, match=r"latin.txt is not UTF-8 text at line 2"):
        read_conll(path / "latin.txt")
    assert [entry.name for entry in tmp_path.iterdir()] == ["set.zip"]


def test_a_zip_of_one_file(tmp_path):
    with zipfile.ZipFile(tmp_path / "one.zip", "w") as archive:
        archive.writestr("a/", "")
        archive.writestr("a/train.txt", GOOD)
    assert read_conll(tmp_path / "one.zip") == (SENTENCES, TAGS)


def test_a_path_through_a_file_that_is_no_zip(tmp_path):
    with pytest.raises(DataError, match=r"set.conll is truncated or corrupt, or no zip file"):
        read_conll(write(tmp_path, GOOD) / "train.txt")


def test_altered_zips(tmp_path):
    """Whatever the bytes are, they are read or refused."""
    with zipfile.ZipFile(tmp_path / "good.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("train.txt", GOOD * 20)
    good = (tmp_path / "good.zip").read_bytes()
    rng, refusals = np.random.default_rng(0), []
    for k in range(300):
        content = bytearray(good)
        if k % 3 == 0:
            content = content[: rng.integers(len(content))]
        else:
            content[rng.integers(len(content))] = rng.integers(256)
        (tmp_path / "bad.zip").write_bytes(content)
        try:
            read_conll(tmp_path / "bad.zip" / "train.txt")
        except DataError as error:
            refusals.append(str(error))
    assert len(refusals) > 200
    assert all("bad.zip" in sentence for sentence in refusals)


# ------------------------------------------------------------------------------------------------- writing


def test_round_trip(tmp_path):
    path = tmp_path / "out.conll"
    write_conll(path, SENTENCES, TAGS)
    assert path.read_text(encoding="utf-8").startswith("Confidence NN B-NP\nin IN B-PP\n\n# # O\n")
    assert read_conll(path) == (SENTENCES, TAGS)
    write_conll(path, SENTENCES)
    assert read_conll(path, tagged=False) == (SENTENCES, [])


@pytest.mark.parametrize(
    ("sentences", "tags", "match"),
    [
        ([[("a b",)]], None, r"Sentence 0 cannot be written to .*out.conll: position 0 is \('a b',\)"),
        ([[("a",)], [("a",), ("",)]], None, r"Sentence 1 .*: position 1 is \('',\); expected 1 column without spaces"),
        ([[("a",), ("a", "b")]], None, r"position 1 is \('a', 'b'\); expected 1 column"),
        ([[("a",)]], [["x\n"]], r"position 0 is \('a', 'x\\n'\); expected 2 columns without spaces"),
        ([[("a",)]], [["x", "y"]], "they are not of the same lengths"),
        ([[("a",)], []], None, "Sentence 1 cannot be written to .*: it is empty"),
    ],
)
def test_what_cannot_be_written(tmp_path, sentences, tags, match):
    with pytest.raises(DataError, match=match):
        write_conll(tmp_path / "out.conll", sentences, tags)
    assert not list(tmp_path.iterdir())


def test_text():
    assert conll_text([[("a",), ("b",)], [("c",)]], [["X", "Y"], ["Z"]]) == "a X\nb Y\n\nc Z\n"

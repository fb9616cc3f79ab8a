"""CoNLL-U: what is read and left out, columns by name, other tags in the same file, and sentences about lines that are wrong."""

import gzip
import os
import threading

import pytest

from maxmargin.errors import DataError, OptionError
from maxmargin.formats import conllu_text, read_conllu

GOOD = """\
# sent_id = 1
# text = They don't buy 10 000
1\tThey\tthey\tPRON\tPRP\tCase=Nom\t4\tnsubj\t_\t_
2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
2\tdo\tdo\tAUX\tVBP\t_\t4\taux\t_\t_
3\tn't\tnot\tPART\tRB\t_\t4\tadvmod\t_\t_
4\tbuy\tbuy\tVERB\tVB\t_\t0\troot\t_\t_
4.1\tbooks\tbook\tNOUN\tNNS\t_\t_\t_\t_\t_
5\t10 000\t10 000\tNUM\tCD\t_\t4\tobj\t_\t_

# sent_id = 2
1\tYes\tyes\tINTJ\tUH\t_\t0\troot\t_\t_
"""
WORDS = [[("They",), ("do",), ("n't",), ("buy",), ("10 000",)], [("Yes",)]]
TAGS = [["PRON", "AUX", "PART", "VERB", "NUM"], ["INTJ"]]


def write(tmp_path, text):
    path = tmp_path / "set.conllu"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "text", [GOOD, GOOD.strip(), GOOD.replace("\n", "\r\n"), "\n\n" + GOOD + "\n\n", "\ufeff" + GOOD]
)
def test_words_and_tags(tmp_path, text):
    assert read_conllu(write(tmp_path, text)) == (WORDS, TAGS)


def test_compressed(tmp_path):
    (tmp_path / "a.conllu.gz").write_bytes(gzip.compress(GOOD.encode()))
    assert read_conllu(tmp_path / "a.conllu.gz") == (WORDS, TAGS)


@pytest.mark.parametrize("column", ["XPOS", "xpos", 5, "5", -6, "-6"])
def test_columns_by_name_or_number(tmp_path, column):
    words, tags = read_conllu(write(tmp_path, GOOD), tag_column=column)
    assert words == WORDS
    assert tags == [["PRP", "VBP", "RB", "VB", "CD"], ["UH"]]


def test_other_columns(tmp_path):
    path = write(tmp_path, GOOD.replace("# ", "% "))
    words, tags = read_conllu(path, comment="%", word_column="LEMMA", tag_column="DEPREL")
    assert words[0][2] == ("not",)
    assert tags[1] == ["root"]
    assert read_conllu(path, comment="%", tagged=False) == (WORDS, [])


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"tag_column": "UPSO"}, r"tag_column='UPSO' is not possible; .* Did you mean \"UPOS\"\?"),
        ({"tag_column": 11}, "tag_column=11 is not possible: CoNLL-U has 10 columns"),
        ({"tag_column": 0}, "columns count from 1, or from -1 for the last"),
        ({"tag_column": True}, "tag_column=True is not possible"),
        ({"word_column": None}, "word_column=None is not possible"),
        ({"word_column": 1.5}, "word_column=1.5 is not possible"),
        ({"word_column": "UPOS"}, "are the same column"),
        ({"comment": ""}, "comment='' is not possible"),
    ],
)
def test_columns_that_cannot_be(tmp_path, options, match):
    with pytest.raises(OptionError, match=match):
        read_conllu(write(tmp_path, GOOD), **options)


ROW = "1\ta\ta\tX\tX\t_\t0\troot\t_\t_\n"


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "set.conllu: there are no sentences in the file"),
        ("# only comments\n\n", "set.conllu: there are no sentences in the file"),
        ("a b c\n", "set.conllu, line 1: 1 column found; CoNLL-U has 10, with tabs"),
        (ROW + "2\tb\n", "set.conllu, line 2: 2 columns found; CoNLL-U has 10"),
        (ROW + "\n" + ROW.replace("X\tX", "\tX"), "set.conllu, line 3: the column UPOS is empty"),
        (ROW.replace("1", "one"), "set.conllu, line 1: the ID is 'one'; expected a number"),
        (ROW.replace("1", "0"), "line 1: the ID is '0'; expected a number"),
        (ROW + ROW, "line 2: the ID is 1, but the next word of this sentence is 2; a blank line ends a sentence"),
        (ROW + ROW.replace("1", "3"), "line 2: the ID is 3, but the next word of this sentence is 2"),
    ],
)
def test_bad_files(tmp_path, text, match):
    with pytest.raises(DataError, match=match):
        read_conllu(write(tmp_path, text))


def test_not_utf8(tmp_path):
    (tmp_path / "latin").write_bytes(ROW.encode() + b"2\tb\xff\n")
    with pytest.raises(DataError, match="latin is not UTF-8 text at line 2"):
        read_conllu(tmp_path / "latin")


def test_other_tags_in_the_same_file(tmp_path):
    new = [["A", "B", "C", "D", "E"], ["F"]]
    text = conllu_text(GOOD.splitlines(), new)
    assert read_conllu(write(tmp_path, text)) == (WORDS, new)
    assert [line for line in text.splitlines() if line.startswith(("#", "2-3", "4.1")) or not line] == [
        line for line in GOOD.splitlines() if line.startswith(("#", "2-3", "4.1")) or not line
    ]
    assert conllu_text(GOOD.splitlines(), TAGS) == GOOD
    assert read_conllu(write(tmp_path, conllu_text(GOOD.splitlines(), new, "DEPREL")), tag_column="DEPREL")[1] == new
    for tags, match in (
        ([["A"]], "it is missing"),
        ([*new, ["G"]], "there are more of them than words"),
        ([["A b", "B", "C", "D", "E"], ["F"]], "has a space in it"),
    ):
        with pytest.raises(DataError, match=match):
            conllu_text(GOOD.splitlines(), tags)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names here")
def test_a_named_pipe(tmp_path):
    path = tmp_path / "pipe.conllu"
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: path.write_text(GOOD, encoding="utf-8"))
    writer.start()
    assert read_conllu(path) == (WORDS, TAGS)
    writer.join()

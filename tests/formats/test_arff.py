"""Mulan's ARFF files: what is accepted, in what form, and the sentence for everything that is not."""

import lzma

import numpy as np
import pytest

from maxmargin.errors import DataError, OptionError
from maxmargin.formats import arff
from maxmargin.formats.arff import read_mulan

XML = '<?xml version="1.0"?>\n<labels xmlns="http://mulan.sourceforge.net/labels">\n{}\n</labels>\n'

HEADER = """% a comment
@RELATION demo

@attribute a numeric
@Attribute 'b c' REAL
@attribute "it's" integer % trailing comment
@attribute L1 {0,1}
@attribute L2 {0, 1}
@DATA
"""
DENSE = HEADER + "1,2.5,-3e1,0,1\n% between\n\n 4 , 5,6,1,0\n"
SPARSE = HEADER + "{0 1, 2 -2.5,4 1}\n{}\n{1 0,3 1}\n"


def write(tmp_path, text, name="set.arff"):
    path = tmp_path / name
    path.write_text(text)
    return path


def write_xml(tmp_path, names, name="set.xml"):
    labels = "\n".join(f'<label name="{label}"></label>' for label in names)
    return write(tmp_path, XML.format(labels), name)


def fails(tmp_path, text, match, n_labels=2):
    with pytest.raises(DataError, match=match):
        read_mulan(write(tmp_path, text), n_labels=n_labels)


def test_dense(tmp_path):
    data = read_mulan(write(tmp_path, DENSE), n_labels=2)
    assert isinstance(data.X, np.ndarray)
    assert data.X.dtype == np.float64
    assert data.Y.dtype == np.int8
    np.testing.assert_array_equal(data.X, [[1, 2.5, -30], [4, 5, 6]])
    np.testing.assert_array_equal(data.Y, [[0, 1], [1, 0]])
    assert data.feature_names == ["a", "b c", "it's"]
    assert data.label_names == ["L1", "L2"]


def test_sparse(tmp_path):
    data = read_mulan(write(tmp_path, SPARSE), n_labels=2)
    assert data.X.format == "csr"
    assert data.X.dtype == np.float64
    assert data.X.indices.dtype == np.int32
    assert data.X.nnz == 2  # the zero that is spelled out is not stored
    np.testing.assert_array_equal(data.X.toarray(), [[1, 0, -2.5], [0, 0, 0], [0, 0, 0]])
    np.testing.assert_array_equal(data.Y, [[0, 1], [0, 0], [1, 0]])


@pytest.mark.parametrize("text", [DENSE, SPARSE])
def test_slow_parser_agrees_with_the_fast_one(tmp_path, monkeypatch, text):
    path = write(tmp_path, text)
    fast = read_mulan(path, n_labels=2)
    monkeypatch.setattr(arff, "_parse_fast", lambda header: None)
    slow = read_mulan(path, n_labels=2)
    assert type(fast.X) is type(slow.X)
    difference = fast.X - slow.X
    assert abs(difference).max() == 0
    np.testing.assert_array_equal(fast.Y, slow.Y)


@pytest.mark.parametrize("text", [DENSE, SPARSE])
def test_fast_parser_accepts_nothing_that_the_slow_one_refuses(text):
    rng = np.random.default_rng(0)
    start = text.index("@DATA") + 6
    n_compared = 0
    for _ in range(3000):
        letters = list(text)
        for position in rng.integers(start, len(text), size=rng.integers(1, 4)):
            letters[position] = str(rng.choice(list("0123 ,{}.-+e_?'\n%x")))
        header = arff._read_header("f", "".join(letters).split("\n"))
        fast = arff._parse_fast(header)
        if fast is not None:
            slow = arff._parse_slow("f", header)
            np.testing.assert_array_equal(fast.values, slow.values)
            np.testing.assert_array_equal(fast.rows, slow.rows)
            np.testing.assert_array_equal(fast.columns, slow.columns)
            n_compared += 1
    assert n_compared > 100


def test_ordinary_files_take_the_fast_path(tmp_path, monkeypatch):
    monkeypatch.setattr(arff, "_parse_slow", lambda *_: pytest.fail("the slow parser was called"))
    for text in (DENSE, SPARSE):
        read_mulan(write(tmp_path, text), n_labels=2)


def test_nominal_values(tmp_path):
    head = (
        '@relation r\n@attribute size {small, \'very big\', "it\\"s"}\n'
        "@attribute step {0,5,10}\n@attribute L {no,yes}\n@data\n"
    )
    dense = read_mulan(write(tmp_path, head + 'small,5,yes\n\'very big\',10,no\n"it\\"s",0.0,no\n'), n_labels=1)
    np.testing.assert_array_equal(dense.X, [[0, 5], [1, 10], [2, 0]])
    np.testing.assert_array_equal(dense.Y, [[1], [0], [0]])
    sparse = read_mulan(write(tmp_path, head + "{1 5,2 yes}\n{0 'very big'}\n"), n_labels=1)
    np.testing.assert_array_equal(sparse.X.toarray(), [[0, 5], [1, 0]])
    np.testing.assert_array_equal(sparse.Y, [[1], [0]])


def test_labels_from_xml_are_in_the_order_of_the_arff(tmp_path):
    path = write(tmp_path, HEADER + "0,2,3,0,1\n")
    data = read_mulan(path, write_xml(tmp_path, ["L2", "a"], "other.xml"))
    assert data.label_names == ["a", "L2"]
    assert data.feature_names == ["b c", "it's", "L1"]
    np.testing.assert_array_equal(data.Y, [[0, 1]])
    np.testing.assert_array_equal(data.X, [[2, 3, 0]])


def test_label_must_be_zero_or_one(tmp_path):
    xml = write_xml(tmp_path, ["L2", "a"], "other.xml")
    with pytest.raises(DataError, match=r"set.arff, line 13: the label 'a' is 4; expected 0 or 1"):
        read_mulan(write(tmp_path, DENSE), xml)
    with pytest.raises(DataError, match=r"""set.arff, line 10: the label "it's" is -2.5; expected 0 or 1"""):
        read_mulan(write(tmp_path, SPARSE), n_labels=3)


@pytest.mark.parametrize("xml", ["yeast.xml", "yeast-train.xml"])
def test_xml_beside_the_arff(tmp_path, xml):
    path = tmp_path / "yeast-train.arff.xz"
    path.write_bytes(lzma.compress(DENSE.encode()))
    write_xml(tmp_path, ["L1"], xml)
    assert read_mulan(path).label_names == ["L1"]
    assert read_mulan(path, n_labels=2).label_names == ["L1", "L2"]


@pytest.mark.parametrize(("option", "labels"), [("-C 2", ["a", "b"]), ("-C -2", ["c", "d"]), ("-V -C 1 -x", ["a"])])
def test_meka_option_in_the_relation(tmp_path, option, labels):
    names = "".join(f"@attribute {name} {{0,1}}\n" for name in "abcd")
    path = write(tmp_path, f"@relation 'r: {option}'\n{names}@data\n0,1,0,1\n")
    assert read_mulan(path).label_names == labels


def test_nothing_says_which_are_labels(tmp_path):
    with pytest.raises(DataError, match=r"set.arff: nothing says which attributes are labels"):
        read_mulan(write(tmp_path, DENSE))


def test_label_options(tmp_path):
    path = write(tmp_path, DENSE)
    with pytest.raises(OptionError, match="give one of the two"):
        read_mulan(path, write_xml(tmp_path, ["L1"], "other.xml"), 2)
    for n_labels in (0, 5, -1):
        with pytest.raises(OptionError, match=rf"n_labels is {n_labels}, .*set.arff has 5 attributes; expected 1 to 4"):
            read_mulan(path, n_labels=n_labels)
    with pytest.raises(DataError, match=r"set.arff, line 1: the option -C 9 does not fit the 2 attributes"):
        read_mulan(
            write(tmp_path, "@relation 'r -C 9'\n@attribute a real\n@attribute L {0,1}\n@data\n1,1\n", "set.arff")
        )


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (
            XML.format('<label name="L9"/>'),
            r"set.xml, line 3: the label 'L9' is not among the attributes of .*set.arff",
        ),
        (XML.format('<label name="L1"/>\n<label name="L1"/>'), r"set.xml, line 4: the label 'L1' is named twice"),
        (XML.format("<label/>"), r"set.xml, line 3: a label has no name"),
        (XML.format(""), r"set.xml: no <label name=...> was found"),
        (XML.format("<label"), r"set.xml, line 4: this is not well-formed XML"),
        ('<!DOCTYPE labels>\n<labels><label name="L1"/></labels>', r"set.xml, line 1: a DOCTYPE was found"),
        (
            '<!DOCTYPE l [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>\n<labels><label name="&b;"/></labels>',
            r"set.xml, line 1: a DOCTYPE was found",
        ),
        (
            XML.format("".join(f'<label name="{n}"/>' for n in ("a", "b c", "it's", "L1", "L2"))),
            r"set.xml: all attributes of .* are labels",
        ),
    ],
)
def test_bad_xml(tmp_path, content, match):
    write(tmp_path, content, "set.xml")
    with pytest.raises(DataError, match=match):
        read_mulan(write(tmp_path, DENSE))


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("@relation r\n@attribute a real\n", r"set.arff: there is no @data line"),
        ("@relation r\n@data\n1\n", r"line 2: @data comes before any @attribute"),
        (HEADER + "\n% nothing\n", r"line 9: there are no rows after @data"),
        ("@relation r\nnonsense here\n", r"line 2: 'nonsense here' was found where @relation, @attribute or @data"),
        ("@attribute a\n", r"line 1: the attribute 'a' has the type ''"),
        ("@attribute\n", r"line 1: '@attribute' is not of the form"),
        ("@attribute 'a numeric\n", r"line 1: .* is not of the form"),
        ("@attribute a string\n", r"line 1: the attribute 'a' has the type 'string'; expected numeric"),
        ("@attribute a {0,1\n", r"line 1: the values of the attribute 'a' are not of the form"),
        ("@attribute a {0,,1}\n", r"line 1: the values of the attribute 'a' are not of the form"),
        ("@attribute a {0,1} x\n", r"line 1: 'x' was found after the values of the attribute 'a'"),
        ("@attribute a {0,0}\n", r"line 1: the attribute 'a' has the same value twice"),
        ("@attribute a real\n@attribute a real\n", r"line 2: the attribute 'a' was declared before, in line 1"),
    ],
)
def test_bad_header(tmp_path, text, match):
    fails(tmp_path, text, match)


@pytest.mark.parametrize(
    ("rows", "match"),
    [
        ("1,2,3,0\n", r"set.arff, line 10: the row has 4 values; expected 5"),
        ("1,2,3,0,1\n1,2,3,0,1,1\n", r"line 11: the row has 6 values; expected 5"),
        ("1,x,3,0,1\n", r"line 10, attribute 'b c': 'x' is not a finite number"),
        ("1,1_0,3,0,1\n", r"line 10, attribute 'b c': '1_0' is not a finite number"),
        ("1,,3,0,1\n", r"line 10, attribute 'b c': '' is not a finite number"),
        ("1,nan,3,0,1\n", r"line 10, attribute 'b c': 'nan' is not a finite number"),
        ("-inf,2,3,0,1\n", r"line 10, attribute 'a': '-inf' is not a finite number"),
        ("1e999,2,3,0,1\n", r"line 10, attribute 'a': '1e999' is too large"),
        ("1,2,3,0,1\n1,?,3,0,1\n", r"line 11, attribute 'b c': the value is missing"),
        ("1,2,3,0,2\n", r"line 10, attribute 'L2': '2' is not one of the values '0,1'"),
        ("1,2,3,no,1\n", r"line 10, attribute 'L1': 'no' is not one of the values '0,1'"),
        ("1,2,3,0,'1\n", r"line 10: a quote is opened in .* never closed"),
        ("1,2,3,0,1\n{0 1}\n", r"line 11: a sparse row was found in a file whose first row is dense"),
        ("{0 1}\n1,2,3,0,1\n", r"line 11: .* is not a row in braces"),
        ("{0 1\n", r"line 10: .* is not a row in braces"),
        ("{0 1}\n{5 1}\n", r"line 11: the index '5' is not an attribute number from 0 to 4"),
        ("{-1 1}\n", r"line 10: the index '-1' is not an attribute number"),
        ("{-0 1}\n", r"line 10: the index '-0' is not an attribute number"),
        ("{+1 1}\n", r"line 10: the index '\+1' is not an attribute number"),
        ("{99999999999999999999999 1}\n", r"line 10: the index '9+' is not an attribute number"),
        ("{a 1}\n", r"line 10: the index 'a' is not an attribute number"),
        ("{1 1,0 1}\n", r"line 10: the index 0 comes after 1; indices must increase"),
        ("{1 1,1 1}\n", r"line 10: the index 1 comes after 1; indices must increase"),
        ("{1}\n", r"line 10: '1' was found where a pair 'index value' was expected"),
        ("{1 2 3, 2}\n", r"line 10, attribute 'b c': '2 3' is not a finite number"),
        ("{1 1,,2 2}\n", r"line 10: '' was found where a pair"),
        ("{1 x}\n", r"line 10, attribute 'b c': 'x' is not a finite number"),
        ("{1 ?}\n", r"line 10, attribute 'b c': the value is missing"),
        ("{1 inf}\n", r"line 10, attribute 'b c': 'inf' is not a finite number"),
        ("{0 1}\n{3 7}\n", r"line 11, attribute 'L1': '7' is not one of the values '0,1'"),
    ],
)
def test_bad_rows(tmp_path, rows, match):
    fails(tmp_path, HEADER + rows, match)


def test_sparse_nominal_whose_left_out_value_is_not_zero(tmp_path):
    text = "@relation r\n@attribute a {1,0}\n@attribute L {0,1}\n@data\n{}\n"
    fails(tmp_path, text, r"set.arff, line 2: the first value of the attribute 'a' is 1; a sparse row", 1)
    dense = read_mulan(write(tmp_path, text.replace("{}", "1,0")), n_labels=1)
    assert dense.X.item() == 1


def test_line_numbers_of_windows_files(tmp_path):
    path = tmp_path / "set.arff"
    path.write_bytes((HEADER + "1,2,3,0,1\n1,x,3,0,1\n").replace("\n", "\r\n").encode())
    with pytest.raises(DataError, match=r"line 11, attribute 'b c'"):
        read_mulan(path, n_labels=2)

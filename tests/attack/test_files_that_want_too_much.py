"""Short files that took minutes or gigabytes: a sentence, in linear time."""

import io
import time
import zipfile

import numpy as np
import pytest

import maxmargin as mm
from attack.fuzz import _describe
from maxmargin.errors import DataError, ModelFileError
from maxmargin.features import TextFeatures
from maxmargin.formats import read_graphs, read_model, read_mulan, read_svmlight, write_model
from maxmargin.formats.svmlight import _parse_pairs_fast
from maxmargin.parsing.treebank import read_trees

ARFF = "@relation x\n@attribute a numeric\n@attribute b {0,1}\n@data\n"


@pytest.fixture(autouse=True)
def quick():
    started = time.perf_counter()
    yield
    assert time.perf_counter() - started < 20


def test_long_numbers_that_end_wrongly(tmp_path):
    """Quadratic regular expressions: 43 s for 20,000 digits, 18 minutes for these."""
    path = tmp_path / "x"
    path.write_text("1 1:" + "9" * 100_000 + "x\n")
    with pytest.raises(DataError, match=r"line 1: the value of '1:9+\.\.\.' is not a finite number"):
        read_svmlight(path)
    path.write_text(ARFF + "9" * 100_000 + "x,1\n")
    with pytest.raises(DataError, match="is not a finite number"):
        read_mulan(path, n_labels=1)
    path.write_text("@relation x\n@attribute a {b" + " " * 100_000 + "{\n")
    with pytest.raises(DataError, match="are not of the form"):
        read_mulan(path, n_labels=1)


def test_deep_trees_collapse_in_one_pass(tmp_path):
    """Labels were joined again at every node: no answer in 40 s."""
    path = tmp_path / "x.mrg"
    path.write_text("(S " * 300_000 + "(A b" + ")" * 300_001)
    (tree,) = read_trees(path, unary="collapse")
    assert tree.label == "+".join(["S"] * 300_000)


def test_options_of_a_model_file_are_limited(tmp_path):
    """``"prefixes": 1000000000`` took 3.8 GB."""
    path = tmp_path / "x.mm"
    mm.ChainSVM(max_passes=2, features=TextFeatures(prefixes=2)).fit([["a", "b"]], [["A", "B"]]).save(path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    assert members["header.json"].count(b'"prefixes": 2') == 2
    members["header.json"] = members["header.json"].replace(b'"prefixes": 2', b'"prefixes": 1000000000')
    _describe(members)
    with zipfile.ZipFile(path, "w") as archive:
        for name, member in members.items():
            archive.writestr(name, member)
    with pytest.raises(ModelFileError, match=r"prefixes=1000000000, .*too many"):
        mm.load(path)


def test_members_that_are_not_arrays(tmp_path):
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("edges.npy", b"this is no array")
    with pytest.raises(DataError, match="the member 'edges' is not an array"):
        read_graphs(path)


def test_arrays_that_unpack_to_gigabytes(tmp_path):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (1 << 25, 4)})
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("edges.npy", "w") as member:
        member.write(header.getvalue())
        for _ in range(1 << 8):
            member.write(bytes(1 << 20))
    with pytest.raises(DataError, match=r"declares .* bytes of content"):
        read_graphs(path)


def test_labels_that_make_a_huge_matrix(tmp_path):
    path = tmp_path / "x.svm"
    path.write_text("".join(f"{k} 1:1\n" for k in range(40_000)))
    with pytest.raises(DataError, match="40000 examples and 40000 labels"):
        read_svmlight(path).multi_label()


def test_one_long_label_does_not_pad_all(tmp_path):
    path = tmp_path / "x.svm"
    path.write_text("x" * 100_000 + " 1:1\n" + "a 1:1\n" * 100_000)
    assert read_svmlight(path).classes().y.dtype == object


def test_encodings_that_are_not_known(tmp_path):
    (tmp_path / "x.arff").write_text(ARFF + "1,1\n")
    (tmp_path / "x.xml").write_text('<?xml version="1.0" encoding="nothing"?><labels><label name="b"/></labels>')
    with pytest.raises(DataError, match=r"x\.xml, line 1: the encoding"):
        read_mulan(tmp_path / "x.arff")


def test_both_parsers_refuse_the_same_spaces(tmp_path):
    path = tmp_path / "x.svm"
    for space in "\x0b\x0c\x1c\x1d\x1e\x1f":
        assert _parse_pairs_fast([f"2:{space}1"]) is None
        path.write_text(f"1 2:{space}1\n")
        with pytest.raises(DataError, match="where a pair"):
            read_svmlight(path)


def test_strings_of_numbers_that_are_no_characters(tmp_path):
    """NumPy reads them, and Python ends with a SystemError when it makes a string of one."""
    names = np.array(["a", "b"])
    names.view(np.uint32)[0] = 0x110000
    path = tmp_path / "x.npz"
    np.savez(path, edges=np.zeros((0, 2), int), classes=names)
    with pytest.raises(DataError, match="the array 'classes' has numbers in its strings that are no characters"):
        read_graphs(path)
    write_model(tmp_path / "x.mm", {}, {"names": names})
    with pytest.raises(ModelFileError, match="the array 'names' has numbers in its strings that are no characters"):
        read_model(tmp_path / "x.mm")


def test_chains_of_nodes_are_limited_in_training():
    """A parser compared all brackets of a chain with all of the truth: no answer for 300,000 nested brackets."""
    n = 300_000
    with pytest.raises(DataError, match="Tree 0: a chain of 300000 nodes stands over a single subtree; at most 10000"):
        mm.ParserSVM().fit(["(S " * n + "(A b" + ")" * (n + 1)])

"""Labelled rows in SVM-light's and LIBSVM's text: reading, writing, and the sentence for every line that is wrong."""

import bz2

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from maxmargin.errors import DataError, OptionError
from maxmargin.formats import svmlight
from maxmargin.formats.multilabel import MultiLabelData
from maxmargin.formats.svmlight import (
    ClassData,
    read_libsvm_multilabel,
    read_svmlight,
    read_svmlight_classes,
    write_libsvm_multilabel,
    write_svmlight_classes,
)

GOOD = "# head\n2,10 1:0.5 3:-2e-1\n\n 2:1\n3:4 # no label\n10\n2\t1:0\n"


def write(tmp_path, text):
    path = tmp_path / "set.svm"
    path.write_text(text)
    return path


def test_read(tmp_path):
    data = read_libsvm_multilabel(write(tmp_path, GOOD))
    assert data.X.format == "csr"
    assert data.X.dtype == np.float64
    assert data.X.indices.dtype == np.int32
    assert data.X.nnz == 4
    np.testing.assert_array_equal(data.X.toarray(), [[0.5, 0, -0.2], [0, 1, 0], [0, 0, 4], [0, 0, 0], [0, 0, 0]])
    assert data.label_names == ["2", "10"]  # sorted as numbers
    assert data.Y.dtype == np.int8
    np.testing.assert_array_equal(data.Y, [[1, 1], [0, 0], [0, 0], [0, 1], [1, 0]])
    assert data.feature_names == ["1", "2", "3"]


def test_compressed_and_slow_path_agree(tmp_path, monkeypatch):
    path = tmp_path / "set.svm"
    path.write_bytes(bz2.compress(GOOD.encode()))
    fast = read_libsvm_multilabel(path)
    monkeypatch.setattr(svmlight, "_parse_pairs_fast", lambda texts: None)
    slow = read_libsvm_multilabel(path)
    np.testing.assert_array_equal(fast.X.toarray(), slow.X.toarray())
    np.testing.assert_array_equal(fast.Y, slow.Y)


def test_fast_parser_accepts_nothing_that_the_slow_one_refuses():
    rng = np.random.default_rng(0)
    texts = ["1:0.5 3:-2e-1", "", "2:1 4:17 20:3"]
    n_compared = 0
    for _ in range(1500):
        altered = [list(text) for text in texts]
        for _ in range(rng.integers(1, 4)):
            line = altered[rng.choice([0, 2])]
            line[rng.integers(len(line))] = str(rng.choice(list("0123 :.-e_x+")))
        lines = ["".join(line).strip() for line in altered]
        fast = svmlight._parse_pairs_fast(lines)
        if fast is not None:
            for one, two in zip(fast, svmlight._parse_pairs_slow("f", [1, 2, 3], lines), strict=True):
                np.testing.assert_array_equal(one, two)
            n_compared += 1
    assert n_compared > 100


def test_ordinary_files_take_the_fast_path(tmp_path, monkeypatch):
    monkeypatch.setattr(svmlight, "_parse_pairs_slow", lambda *_: pytest.fail("the slow parser was called"))
    read_libsvm_multilabel(write(tmp_path, GOOD))


def test_where_indices_begin(tmp_path):
    path = write(tmp_path, "1 0:1 2:3\n")
    np.testing.assert_array_equal(read_libsvm_multilabel(path).X.toarray(), [[1, 0, 3]])
    assert read_libsvm_multilabel(path).feature_names == ["0", "1", "2"]
    path = write(tmp_path, "1 1:1 2:3\n")
    np.testing.assert_array_equal(read_libsvm_multilabel(path).X.toarray(), [[1, 3]])
    np.testing.assert_array_equal(read_libsvm_multilabel(path, zero_based=True).X.toarray(), [[0, 1, 3]])
    assert read_libsvm_multilabel(path, n_features=5).X.shape == (1, 5)


def test_labels(tmp_path):
    path = write(tmp_path, "b,a 1:1\n10 1:1\n")
    assert read_libsvm_multilabel(path).label_names == ["10", "a", "b"]
    data = read_libsvm_multilabel(path, label_names=["b", "10", "c", "a"])
    np.testing.assert_array_equal(data.Y, [[1, 0, 0, 1], [0, 1, 0, 0]])
    with pytest.raises(DataError, match=r"set.svm, line 2: the label '10' is not among the 2 known labels"):
        read_libsvm_multilabel(path, label_names=["a", "b"])


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", r"set.svm: there are no examples"),
        ("1 1:1\n1 2\n", r"set.svm, line 2: '2' was found where a pair 'index:value' was expected"),
        ("1 1:1 :2\n", r"line 1: ':2' was found where a pair"),
        ("1 1:1 2:\n", r"line 1: '2:' was found where a pair"),
        ("1 1:1 2: 3\n", r"line 1: '2:' was found where a pair"),
        ("1 a:1\n", r"line 1: the index of 'a:1' is not a nonnegative integer"),
        ("1 -3:1\n", r"line 1: the index of '-3:1' is not a nonnegative integer"),
        ("1 -0:1\n", r"line 1: the index of '-0:1' is not a nonnegative integer"),
        ("1 +3:1\n", r"line 1: the index of '\+3:1' is not a nonnegative integer"),
        ("1 1.0:1\n", r"line 1: the index of '1.0:1' is not a nonnegative integer"),
        ("1 1:1\n1 qid:x 1:1\n", r"line 2: 'qid:x' was found where 'qid:NUMBER' was expected"),
        ("1 1:1 qid:3\n", r"line 1: the index of 'qid:3' is not a nonnegative integer"),
        ("1 1:1:2\n", r"line 1: the value of '1:1:2' is not a finite number"),
        ("1 1:x\n", r"line 1: the value of '1:x' is not a finite number"),
        ("1 1:nan\n", r"line 1: the value of '1:nan' is not a finite number"),
        ("1 1:1\n\n1 1:1e999\n", r"line 3: the value of '1:1e999' is not a finite number"),
        ("1 1:1_0\n", r"line 1: the value of '1:1_0' is not a finite number"),
        ("1 2:1 1:1\n", r"line 1: the index 1 comes after 2; indices must increase"),
        ("1 2:1 2:1\n", r"line 1: the index 2 comes after 2; indices must increase"),
        ("1 1:1\n1 2000000000:1\n", r"line 2: the index 2000000000 is out of range.* give n_features"),
        ("1,,2 1:1\n", r"line 1: a label is empty in '1,,2'"),
        ("1,1 1:1\n", r"line 1: the label '1' occurs twice"),
        (" 1:1\n", r"set.svm: no line has a label"),
        ("1\n", r"set.svm: no line has a feature"),
    ],
)
def test_bad_lines(tmp_path, text, match):
    with pytest.raises(DataError, match=match):
        read_libsvm_multilabel(write(tmp_path, text))


def test_index_out_of_range(tmp_path):
    path = write(tmp_path, "1 1:1\n\n2\n1 2:1 4:1\n")
    with pytest.raises(DataError, match=r"line 4: the index 4 is out of range; expected 1 to 3\."):
        read_libsvm_multilabel(path, n_features=3)
    with pytest.raises(DataError, match=r"line 4: the index 4 is out of range; expected 0 to 3\."):
        read_libsvm_multilabel(path, n_features=4, zero_based=True)
    with pytest.raises(DataError, match=r"line 1: the index 0 is out of range; expected 1 to"):
        read_libsvm_multilabel(write(tmp_path, "1 0:1\n"), zero_based=False)


@pytest.mark.parametrize("options", [{"zero_based": "maybe"}, {"n_features": 0}, {"n_features": 2**31}])
def test_bad_options(tmp_path, options):
    with pytest.raises(OptionError, match=next(iter(options))):
        read_libsvm_multilabel(write(tmp_path, GOOD), **options)


@pytest.mark.parametrize("dense", [False, True])
def test_round_trip_is_exact(tmp_path, dense):
    rng = np.random.default_rng(0)
    values = rng.standard_normal((30, 20)) * (rng.random((30, 20)) < 0.1)
    Y = (rng.random((30, 4)) < 0.3).astype(np.int8)
    values[3] = 0
    Y[3] = 0  # an example with neither features nor labels
    X = csr_array(values)
    data = MultiLabelData(X.toarray() if dense else X, Y, [str(i) for i in range(20)], ["a", "b", "7", "d"])
    path = tmp_path / "out.svm"
    write_libsvm_multilabel(path, data)
    back = read_libsvm_multilabel(path, 20, data.label_names)
    np.testing.assert_array_equal(back.X.toarray(), X.toarray())
    np.testing.assert_array_equal(back.Y, Y)
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.svm"]


@pytest.mark.parametrize(
    ("value", "label", "match"),
    [(np.nan, "a", r"features cannot be written to .*out.svm"), (1.0, "a b", r"label 'a b' cannot be written")],
)
def test_what_cannot_be_written(tmp_path, value, label, match):
    data = MultiLabelData(np.array([[value]]), np.ones((1, 1), dtype=np.int8), ["x"], [label])
    with pytest.raises(DataError, match=match):
        write_libsvm_multilabel(tmp_path / "out.svm", data)
    assert not list(tmp_path.iterdir())


# ------------------------------------------------------------------------------------------------- one label a line


@pytest.mark.parametrize("zero_based", [False, True])
@pytest.mark.parametrize("labels", [[-1, 1], [3, 7, 12], [0]])
def test_the_same_as_another_reader(tmp_path, zero_based, labels):
    """As scikit-learn reads what scikit-learn has written, over more lines than are parsed at a time."""
    rng = np.random.default_rng(len(labels))
    n = svmlight.BLOCK_LINES + 100
    X = rng.standard_normal((n, 9)) * (rng.random((n, 9)) < 0.3)
    X[0, [0, -1]] = 1
    y = rng.choice(labels, n)
    path = tmp_path / "set.svm"
    dump_svmlight_file(X, y, str(path), zero_based=zero_based, query_id=np.arange(n) // 3, comment="of scikit-learn")
    expected, truth = load_svmlight_file(str(path))
    data = read_svmlight_classes(path)
    assert data.y.dtype == np.int64
    np.testing.assert_array_equal(data.y, truth)
    for name in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(data.X, name), getattr(expected, name))
    assert data.feature_names == [str(k) for k in range(1 - zero_based, 10 - zero_based)]


def test_an_error_far_down_has_its_line(tmp_path):
    lines = ["1 1:1\n"] * (2 * svmlight.BLOCK_LINES + 1)
    lines[svmlight.BLOCK_LINES + 5] = "1 2:1 2:3\n"
    with pytest.raises(DataError, match=rf"line {svmlight.BLOCK_LINES + 6}: the index 2 comes after 2"):
        read_svmlight_classes(write(tmp_path, "".join(lines)))


@pytest.mark.parametrize(
    ("tokens", "labels"),
    [
        (["+1", "-1", "1", "01"], [1, -1, 1, 1]),
        (["1.0", "2.", "-3"], [1, 2, -3]),
        (["0", "1"], [0, 1]),
        (["cat", "1", "+1"], ["cat", "1", "+1"]),
        (["1.5", "2"], ["1.5", "2"]),
        (["1", "", "3"], [1, None, 3]),
    ],
)
def test_what_labels_are(tmp_path, tokens, labels):
    path = write(tmp_path, "".join(f"{token} 1:1\n" for token in tokens))
    y = read_svmlight_classes(path).y
    assert y.tolist() == labels
    assert y.dtype.kind == ("O" if None in labels else "U" if isinstance(labels[0], str) else "i")
    assert read_svmlight(path).one_label_each() == ("" not in tokens)


def test_labels_that_are_known(tmp_path):
    path = write(tmp_path, "+1 1:1\n0 1:1\n-1.0 1:1\n 1:2\n")
    assert read_svmlight_classes(path, classes=[-1, 1]).y.tolist() == [1, None, -1, None]
    assert read_svmlight_classes(path, classes=[-1.0, 0.0, 1.0]).y.tolist() == [1, 0, -1, None]
    with pytest.raises(DataError, match=r"line 3: the label '-1.0' is not among the 2 known labels"):
        read_svmlight_classes(path, classes=[0, 1])
    with pytest.raises(DataError, match=r"line 1: the label '\+1' is not among the 2 known labels"):
        read_svmlight_classes(path, classes=["1", "cat"])
    with pytest.raises(DataError, match=r"line 2: the label '1,2' holds several"):
        read_svmlight_classes(write(tmp_path, "1 1:1\n1,2 1:1\n"))
    assert not read_svmlight(write(tmp_path, "1 1:1\n1,2 1:1\n")).one_label_each()


def test_query_numbers_are_skipped(tmp_path):
    data = read_svmlight_classes(write(tmp_path, "2 qid:1 1:0.5\n1\tqid:1\t2:3\n3 qid:7\n"))
    np.testing.assert_array_equal(data.X.toarray(), [[0.5, 0], [0, 3], [0, 0]])
    assert data.y.tolist() == [2, 1, 3]


@pytest.mark.parametrize("y", [np.array([3, -1, 2]), np.array(["a", "b", "a"]), np.array([1, None, 2], object)])
def test_round_trip_of_classes(tmp_path, y):
    X = np.array([[0.1, 0], [0, 0], [1e-300, -1 / 3]])
    path = tmp_path / "out.svm"
    write_svmlight_classes(path, ClassData(X, y, ["1", "2"]))
    back = read_svmlight_classes(path)
    np.testing.assert_array_equal(back.X.toarray(), X)
    assert back.y.tolist() == y.tolist()
    with pytest.raises(DataError, match=r"The label 'a:b' cannot be written"):
        write_svmlight_classes(path, ClassData(X[:1], np.array(["a:b"]), ["1", "2"]))
    assert read_svmlight_classes(path).y.tolist() == y.tolist()

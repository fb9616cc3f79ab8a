"""LIBSVM's multi-label text: reading, writing, and the sentence for every line that is wrong."""

import bz2

import numpy as np
import pytest
from scipy.sparse import csr_array

from maxmargin.errors import DataError, OptionError
from maxmargin.formats import svmlight
from maxmargin.formats.multilabel import MultiLabelData
from maxmargin.formats.svmlight import read_libsvm_multilabel, write_libsvm_multilabel

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
        ("qid:3 1:1\n", r"line 1: the index of 'qid:3' is not a nonnegative integer"),
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

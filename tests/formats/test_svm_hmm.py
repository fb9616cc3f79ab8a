"""SVM-hmm's text: reading, writing, and the sentence for every line that is wrong."""

import gzip
import re

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from maxmargin.errors import DataError, OptionError
from maxmargin.formats.svm_hmm import SequenceData, read_svm_hmm, write_svm_hmm

GOOD = """\
# two sequences
1 qid:1 1:0.5 3:-2e-1 # the

2\tqid:01  2:1
1 qid:9
"""


def write(tmp_path, text):
    path = tmp_path / "set.hmm"
    path.write_text(text)
    return path


def test_read(tmp_path):
    data = read_svm_hmm(write(tmp_path, GOOD))
    assert (data.X.format, data.X.dtype, data.X.indices.dtype) == ("csr", np.float64, np.int32)
    np.testing.assert_array_equal(data.X.toarray(), [[0.5, 0, -0.2], [0, 1, 0], [0, 0, 0]])
    assert (data.tags.dtype, data.tags.tolist()) == (np.int64, [1, 2, 1])
    assert (data.lengths.dtype, data.lengths.tolist()) == (np.int64, [2, 1])
    assert (data.qids.dtype, data.qids.tolist()) == (np.int64, [1, 9])
    assert data.tag_lists() == [[1, 2], [1]]
    assert [part.toarray().tolist() for part in data.sequences()] == [[[0.5, 0, -0.2], [0, 1, 0]], [[0, 0, 0]]]
    assert read_svm_hmm(write(tmp_path, GOOD), n_features=5).X.shape == (3, 5)


def test_tags_that_are_names(tmp_path):
    data = read_svm_hmm(write(tmp_path, "B-NP qid:1 1:1\n, qid:1 1:1\n2 qid:2 1:1\n"))
    assert data.tag_lists() == [["B-NP", ","], ["2"]]


def test_the_same_as_another_reader(tmp_path):
    """The file without its tags' meaning is one of labels and queries, which scikit-learn reads and writes."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 9, 1500)
    n = int(lengths.sum())
    X = rng.standard_normal((n, 12)) * (rng.random((n, 12)) < 0.3)
    X[0, -1] = 1
    tags, qids = rng.integers(1, 5, n), np.repeat(np.arange(len(lengths)) * 3 + 1, lengths)
    plain = tmp_path / "set.hmm"
    dump_svmlight_file(X, tags, str(plain), zero_based=False, query_id=qids)
    path = tmp_path / "set.hmm.gz"
    path.write_bytes(gzip.compress(plain.read_bytes()))
    expected, truth, queries = load_svmlight_file(str(plain), query_id=True, zero_based=False)
    data = read_svm_hmm(path)
    for name in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(data.X, name), getattr(expected, name))
    np.testing.assert_array_equal(data.tags, truth)
    np.testing.assert_array_equal(np.repeat(data.qids, data.lengths), queries)
    np.testing.assert_array_equal(data.lengths, lengths)
    parts = data.sequences()
    assert [part.shape for part in parts] == [(length, 12) for length in lengths]
    np.testing.assert_array_equal(np.concatenate([part.toarray() for part in parts]), expected.toarray())


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "set.hmm: there are no examples in the file"),
        ("# nothing\n", "set.hmm: there are no examples in the file"),
        ("1\n", "line 1: '' was found where 'qid:NUMBER' was expected"),
        ("1 qid:1 1:1\n\n1 1:1\n", "line 3: '1:1' was found where 'qid:NUMBER' was expected"),
        ("1 qid:1 1:1\n1\n", "line 2: '' was found where 'qid:NUMBER' was expected"),
        ("1 qid:a 1:1\n", "line 1: 'qid:a' was found where 'qid:NUMBER' was expected"),
        ("1 qid:-1 1:1\n", "line 1: 'qid:-1' was found where 'qid:NUMBER' was expected"),
        ("1 qid:1234567890123456789 1:1\n", "line 1: 'qid:1234567890123456789' was found"),
        ("1 qid: 1 1:1\n", "line 1: 'qid:' was found where 'qid:NUMBER' was expected"),
        ("1 qid1 1:1\n", "line 1: 'qid1' was found where 'qid:NUMBER' was expected"),
        ("qid:1 1:1\n", "line 1: 'qid:1' was found where a tag was expected"),
        ("1 qid:1 1:1\n1 qid:2 1:1\n1 qid:2 1:1\n2 qid:1 1:1\n", "line 4: the sequence qid:1 of line 1 comes back"),
        ("1 qid:1 1:1\n1 qid:2 1:1\n2 qid:01 1:1\n", "line 3: the sequence qid:1 of line 1 comes back"),
        ("1 qid:1 0:1\n", "line 1: the index 0 is out of range; expected 1 to"),
        ("1 qid:1 1:1\n1 qid:1 2:1 1:1\n", "line 2: the index 1 comes after 2; indices must increase"),
        ("1 qid:1 1:1\n1 qid:1 2:x\n", "line 2: the value of '2:x' is not a finite number"),
        ("1 qid:1 1:1\n1 qid:1 word\n", "line 2: 'word' was found where a pair 'index:value' was expected"),
        ("1 qid:1\n", "no line has a feature"),
    ],
)
def test_bad_lines(tmp_path, text, match):
    with pytest.raises(DataError, match=match):
        read_svm_hmm(write(tmp_path, text))


def test_altered_files_end_in_a_sentence(tmp_path):
    """Whatever stands in a file, it is read or refused with a line."""
    rng = np.random.default_rng(0)
    n_read, refusals = 0, []
    for _ in range(400):
        letters = list(GOOD.replace("# two sequences", ""))
        for _ in range(rng.integers(1, 4)):
            letters[rng.integers(len(letters))] = str(rng.choice(list("0129 :.-eqd#\n\t\x00é")))
        try:
            data = read_svm_hmm(write(tmp_path, "".join(letters)))
        except DataError as error:
            refusals.append(str(error))
        else:
            assert data.lengths.sum() == len(data.tags) == data.X.shape[0]
            n_read += 1
    assert min(n_read, len(refusals)) > 50
    assert all(re.search(r"line \d+|no line has a feature|no examples", sentence) for sentence in refusals)


def test_features_that_are_too_many(tmp_path):
    with pytest.raises(DataError, match=r"line 2: the index 3 is out of range; expected 1 to 2\."):
        read_svm_hmm(write(tmp_path, GOOD), n_features=2)
    with pytest.raises(OptionError, match="n_features is 0"):
        read_svm_hmm(write(tmp_path, GOOD), n_features=0)


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("tags", [np.array([2, 1, 1]), np.array(["B-NP", "O", ","])])
def test_round_trip_is_exact(tmp_path, dense, tags):
    X = np.array([[0.1, 0, 0], [0, 0, 0], [1e-300, 0, -1 / 3]])
    path = tmp_path / "out.hmm"
    data = SequenceData(X if dense else csr_array(X), np.array([1, 2]), tags, np.array([4, 3]))
    assert [part.shape for part in data.sequences()] == [(1, 3), (2, 3)]
    write_svm_hmm(path, data)
    back = read_svm_hmm(path)
    np.testing.assert_array_equal(back.X.toarray(), X)
    for name in ("lengths", "tags", "qids"):
        assert getattr(back, name).tolist() == getattr(data, name).tolist()


def test_what_cannot_be_written(tmp_path):
    data = SequenceData(np.ones((1, 1)), np.array([1]), np.array([":"]), np.array([1]))
    with pytest.raises(DataError, match=r"The tag ':' cannot be written to .*out.hmm: it is empty or has one of ' :#'"):
        write_svm_hmm(tmp_path / "out.hmm", data)
    assert not list(tmp_path.iterdir())

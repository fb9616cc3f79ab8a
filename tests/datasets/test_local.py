"""Data sets that are only read from the user's directory: how they are found, cut and refused."""

import gzip
import zipfile

import numpy as np
import pytest

from maxmargin import datasets
from maxmargin.errors import DataError, OptionError


@pytest.mark.parametrize(
    ("fetcher", "file"),
    [
        (datasets.fetch_conll2000, "conll2000.zip"),
        (datasets.fetch_ocr_letters, "letters.npz"),
        (datasets.fetch_covtype, "covtype.csv"),
        (datasets.fetch_treebank_sample, "treebank.zip"),
    ],
)
def test_missing_files(tmp_path, fetcher, file):
    with pytest.raises(DataError, match=rf"cannot be downloaded; put the file at .*{file}\.$"):
        fetcher(tmp_path)


def test_conll2000(tmp_path):
    (tmp_path / "conll2000").mkdir()
    with zipfile.ZipFile(tmp_path / "conll2000" / "conll2000.zip", "w") as archive:
        archive.writestr("conll2000/train.txt", "He PRP B-NP\nreckons VBZ B-VP\n\n")
        archive.writestr("conll2000/test.txt", ". . O\n\n")
    assert datasets.fetch_conll2000(tmp_path) == ([[("He", "PRP"), ("reckons", "VBZ")]], [["B-NP", "B-VP"]])
    assert datasets.fetch_conll2000(tmp_path, "test") == ([[(".", ".")]], [["O"]])
    with pytest.raises(OptionError, match="subset is 'all'"):
        datasets.fetch_conll2000(tmp_path, "all")


def letters(folder, **changes):
    (folder / "ocr-letters").mkdir(exist_ok=True)
    pixels = np.random.default_rng(0).integers(0, 2, (6, 128), dtype=np.uint8)
    arrays = {
        "pixels": np.packbits(pixels, axis=1),
        "labels": np.array([2, 0, 19, 14, 13, 25], np.uint8),
        "word_lengths": np.array([3, 2, 1], np.int16),
        "folds": np.array([4, 0, 9], np.int8),
    }
    np.savez(folder / "ocr-letters" / "letters.npz", **{k: v for k, v in (arrays | changes).items() if v is not None})
    return pixels


def test_ocr_letters(tmp_path):
    pixels = letters(tmp_path)
    for setting, subset, words, rows, qids in [
        ("small", "train", ["on"], [3, 4], [1]),
        ("small", "test", ["cat", "z"], [0, 1, 2, 5], [0, 2]),
        ("large", "train", ["cat", "z"], [0, 1, 2, 5], [0, 2]),
        ("large", "test", ["on"], [3, 4], [1]),
    ]:
        data = datasets.fetch_ocr_letters(tmp_path, subset, setting=setting)
        assert ["".join(row) for row in data.tag_lists()] == words
        np.testing.assert_array_equal(data.X, pixels[rows])
        assert [part.shape for part in data.sequences()] == [(len(word), 128) for word in words]
        assert data.qids.tolist() == qids
    with pytest.raises(OptionError, match="setting is 'huge'"):
        datasets.fetch_ocr_letters(tmp_path, setting="huge")


@pytest.mark.parametrize(
    "changes",
    [
        {"folds": None},
        {"folds": np.array([1, 2])},
        {"labels": np.array([0, 1, 2, 3, 4, 26])},
        {"labels": np.array([0.5] * 6)},
        {"word_lengths": np.array([3, 3, 0])},
        {"word_lengths": np.array([3, 2, 2])},
        {"pixels": np.zeros((6, 15), np.uint8)},
        {"pixels": np.array([{}], object)},
    ],
)
def test_ocr_letters_that_do_not_fit(tmp_path, changes):
    letters(tmp_path, **changes)
    with pytest.raises(DataError, match=r"do not fit together|no npz file with the arrays"):
        datasets.fetch_ocr_letters(tmp_path)


def test_ocr_letters_that_are_no_archive(tmp_path):
    letters(tmp_path)
    path = tmp_path / "ocr-letters" / "letters.npz"
    whole = path.read_bytes()
    np.save(tmp_path / "one.npy", np.ones(3))
    one = (tmp_path / "one.npy").read_bytes()
    for content in (b"", b"hello", one, whole[:200], whole[:-30], whole.replace(b"NUMPY", b"NUMPI")):
        path.write_bytes(content)
        with pytest.raises(DataError, match="no npz file with the arrays"):
            datasets.fetch_ocr_letters(tmp_path)


def test_covtype(tmp_path):
    (tmp_path / "covtype").mkdir()
    path = tmp_path / "covtype" / "covtype.csv.gz"
    path.write_bytes(gzip.compress(b"height,slope,Cover_Type\n2596,-3,5\n10,0.5,1\n"))
    data = datasets.fetch_covtype(tmp_path)
    np.testing.assert_array_equal(data.X, [[2596, -3], [10, 0.5]])
    assert (data.y.dtype, data.y.tolist()) == (np.int64, [5, 1])
    assert data.feature_names == ["height", "slope"]


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"a,b,c\n1,2,3\n1,x,3\n", "could not convert string 'x'"),
        (b"a,b,c\n1,2,3\n1,2\n", "the number of columns changed from 3 to 2"),
        (b"a,b\n1,2,3\n", "3 columns of numbers, or fewer, for the 2 names"),
        (b"a,b\n1,nan\n", "2 columns of numbers, or fewer, for the 2 names"),
    ],
)
def test_covtype_that_cannot_be_read(tmp_path, content, match):
    (tmp_path / "covtype").mkdir()
    (tmp_path / "covtype" / "covtype.csv").write_bytes(content)
    with pytest.raises(DataError, match=f"covtype.csv: .*{match}"):
        datasets.fetch_covtype(tmp_path)


def test_treebank_sample(tmp_path):
    (tmp_path / "treebank-sample").mkdir()
    with zipfile.ZipFile(tmp_path / "treebank-sample" / "treebank.zip", "w") as archive:
        archive.writestr("combined/README", "no tree")
        archive.writestr("combined/b.mrg", "( (S (NP-SBJ (NN dogs)) (VP (VB bark) (NP (-NONE- *T*)))) )")
        archive.writestr("combined/a.mrg", "( (NP (NN yes)) )")
    trees = datasets.fetch_treebank_sample(tmp_path)
    assert [str(tree) for tree in trees] == ["(NP (NN yes))", "(S (NP (NN dogs)) (VP (VB bark)))"]

"""Packed folders: training on them gives the bits of training in memory; damage is refused in a sentence."""

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import scipy.sparse as sp

import maxmargin as mm
from maxmargin import scratch
from maxmargin.errors import DataError, MaxMarginError, OptionError
from maxmargin.features import TextFeatures
from maxmargin.formats import read_conll, read_libsvm_multilabel, read_svm_hmm, read_svmlight_classes
from maxmargin.formats.conll import conll_sentences
from maxmargin.packed import pack, read_packed
from maxmargin.packed.packing import pack_svm_hmm, pack_svmlight, pack_words

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 6))
CLASSES = X[:, :3].argmax(axis=1)
LABELS = (X[:, :4] + 0.3 * RNG.normal(size=(300, 4)) > 0).astype(int)
SPARSE = sp.random(300, 200, 0.05, format="csr", random_state=1)
#: More columns than stay in their order, all of them ones.
WIDE = sp.random(300, 40_000, 0.0005, format="csr", random_state=1)
WIDE.data[:] = 1.0
NAMES = np.array(["a", "b", "c", "d"])[(SPARSE @ RNG.normal(size=(200, 4))).argmax(axis=1)]
SEQUENCES = [RNG.normal(size=(n, 5)) for n in RNG.integers(2, 9, 60)]
TAGS = [np.array(["x", "y", "z"])[one[:, :3].argmax(axis=1)].tolist() for one in SEQUENCES]


@pytest.fixture(autouse=True)
def all_on_disk(monkeypatch):
    """However small the data is, all that may be on disk is there."""
    monkeypatch.setattr(scratch, "LEAST", 1)


def same(model, other):
    assert np.array_equal(model.result_.weights, other.result_.weights)
    assert (model.result_.gap, model.result_.certificate) == (other.result_.gap, other.result_.certificate)
    assert model.classes_.tolist() == other.classes_.tolist()


@pytest.mark.parametrize("rows", [X, X.astype(np.float32), SPARSE, WIDE, X * [1, 1000, 1, 1, 0.01, 1]])
@pytest.mark.parametrize("options", [{}, {"solver": "bcfw"}, {"solver": "one-slack"}, {"fit_intercept": False}])
def test_classes_have_the_bits_of_memory(tmp_path, rows, options):
    y = NAMES if sp.issparse(rows) else CLASSES
    pack(tmp_path / "f", rows, y)
    data = read_packed(tmp_path / "f", verify=True)
    model = mm.MultiClassSVM(C=10, **options).fit(rows, y)
    packed = mm.MultiClassSVM(C=10, **options).fit(data.X, data.y)
    same(model, packed)
    assert (packed.predict(data.X) == model.predict(rows)).all()
    assert np.allclose(packed.decision_function(data.X), model.decision_function(rows), atol=1e-12)
    assert packed.score(data.X, data.y) == model.score(rows, y)
    assert np.array_equal(
        data.X.matrix().toarray() if sp.issparse(rows) else data.X.matrix(),
        np.asarray(rows if not sp.issparse(rows) else rows.toarray()),
    )


@pytest.mark.parametrize("C", ["auto", 10.0])
@pytest.mark.parametrize("edges", ["full", "tree", "none"])
def test_sets_of_labels_have_the_bits_of_memory(tmp_path, edges, C):
    pack(tmp_path / "f", X, LABELS)
    data = read_packed(tmp_path / "f")
    model, packed = (mm.MultiLabelSVM(C, edges=edges) for _ in range(2))
    same(model.fit(X, LABELS), packed.fit(data.X, data.y))
    assert (packed.predict(data.X) == model.predict(X)).all()
    assert packed.score(data.X, data.y) == model.score(X, LABELS)


@pytest.mark.parametrize(
    "options", [{"C": 10.0}, {}, {"C": 10.0, "objective": "log"}, {"C": 10.0, "solver": "one-slack"}]
)
def test_sequences_have_the_bits_of_memory(tmp_path, options):
    pack(tmp_path / "f", SEQUENCES, TAGS)
    data = read_packed(tmp_path / "f")
    model, packed = mm.ChainSVM(**options).fit(SEQUENCES, TAGS), mm.ChainSVM(**options).fit(data.X, data.y)
    same(model, packed)
    assert [one.tolist() for one in packed.predict(data.X)] == [one.tolist() for one in model.predict(SEQUENCES)]
    assert packed.score(data.X, data.y) == model.score(SEQUENCES, TAGS)
    assert [one.tolist() for one in data.y] == TAGS
    assert np.array_equal(data.X[7], SEQUENCES[7])


def test_binary_with_measures_and_warm_starts(tmp_path):
    y = np.where(CLASSES == 0, -1, 1)
    pack(tmp_path / "f", X, y)
    data = read_packed(tmp_path / "f")
    same(mm.BinarySVM(C=1.0, loss="f1").fit(X, y), mm.BinarySVM(C=1.0, loss="f1").fit(data.X, data.y))
    warm = mm.BinarySVM(C=1.0, warm_start=True).fit(data.X, data.y)
    assert warm.set_params(C=10.0).fit(data.X, data.y).result_.gap <= 1e-3


# --------------------------------------------------------------------------------------------------------------------
# Text


def test_svmlight_is_packed_as_it_is_read(tmp_path):
    path = tmp_path / "rows.svm"
    path.write_text("".join(f"{'+1' if k % 3 else '-1'} 1:{k % 5} 3:{k / 7!r} 9:0 # {k}\n" for k in range(9000)))
    pack_svmlight(tmp_path / "f", path)
    data, read = read_packed(tmp_path / "f", verify=True), read_svmlight_classes(path)
    assert data.task == "binary"
    assert data.feature_names == read.feature_names
    assert (np.asarray(data.y) == read.y).all()
    assert (data.X.matrix() != read.X).nnz == 0
    same(mm.BinarySVM(C=1.0).fit(read.X, read.y), mm.BinarySVM(C=1.0).fit(data.X, data.y))


def test_sets_of_labels_are_packed_as_they_are_read(tmp_path):
    path = tmp_path / "labels.svm"
    path.write_text("".join(("10,9" if k % 2 else "9" if k % 3 else "") + f" 0:{k} 2:1\n" for k in range(100)))
    pack_svmlight(tmp_path / "f", path)
    data, read = read_packed(tmp_path / "f"), read_libsvm_multilabel(path)
    assert data.y.columns == read.label_names == ["9", "10"]
    assert (np.asarray(data.y) == read.Y).all()
    assert (data.X.matrix() != read.X).nnz == 0


def test_svm_hmm_is_packed_as_it_is_read(tmp_path):
    path = tmp_path / "words.hmm"
    path.write_text("".join(f"{k % 3 + 1} qid:{k // 5 + 1} {k % 3 + 1}:1 4:0.5\n" for k in range(160)))
    pack_svm_hmm(tmp_path / "f", path)
    data, read = read_packed(tmp_path / "f"), read_svm_hmm(path)
    assert [one.tolist() for one in data.y] == read.tag_lists()
    assert (data.X.features.matrix() != read.X).nnz == 0
    same(mm.ChainSVM(C=1.0).fit(read.sequences(), read.tag_lists()), mm.ChainSVM(C=1.0).fit(data.X, data.y))


WORDS = (
    "Confidence NN B-NP\nin IN B-PP\nthe DT B-NP\npound NN I-NP\nfell VBD B-VP\n. . O\n\nIt PRP B-NP\nfell VBD B-VP\n\n"
    * 4
)


@pytest.mark.parametrize("n_hash", [None, 64])
def test_words_are_packed_as_they_are_read(tmp_path, n_hash, monkeypatch):
    from maxmargin.packed import packing

    # Several blocks, whose vocabularies are one.
    monkeypatch.setattr(packing, "_POSITIONS", 10)
    path = tmp_path / "words.conll"
    path.write_text(WORDS)
    features = TextFeatures.chunking(n_hash=n_hash)
    pack_words(tmp_path / "f", lambda: conll_sentences(path), TextFeatures.chunking(n_hash=n_hash))
    data, (sentences, tags) = read_packed(tmp_path / "f"), read_conll(path)
    model = mm.ChainSVM(C=1.0, features=features).fit(sentences, tags)
    packed = mm.ChainSVM(C=1.0).fit(data.X, data.y)
    same(model, packed)
    packed.save(tmp_path / "m.mm")
    assert [one.tolist() for one in mm.load(tmp_path / "m.mm").predict(sentences)] == [
        one.tolist() for one in model.predict(sentences)
    ]
    assert packed.score(data.X, data.y) == model.score(sentences, tags)
    with pytest.raises(OptionError, match="made by"):
        mm.ChainSVM(features=TextFeatures(window=9)).fit(data.X, data.y)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1 1:1\n2 5:x\n", "line 2"),
        ("1 1:1\n2 3:1 2:1\n", "line 2"),
        ("1 9999999:1\n", r"line 1.*out of range"),
        ("1 1:nan\n", "line 1"),
        ("", "no examples"),
        ("1\n2\n", "no line has a feature"),
        ("a,,b 1:1\n", "line 1"),
    ],
)
def test_text_that_is_wrong_leaves_nothing_behind(tmp_path, text, said):
    (tmp_path / "rows.svm").write_text(text)
    with pytest.raises(DataError, match=said):
        pack_svmlight(tmp_path / "f", tmp_path / "rows.svm")
    assert [one.name for one in tmp_path.iterdir()] == ["rows.svm"]


def test_a_sequence_that_comes_back(tmp_path):
    (tmp_path / "w.hmm").write_text("1 qid:1 1:1\n1 qid:2 1:1\n1 qid:1 1:1\n")
    with pytest.raises(DataError, match=r"line 3.*comes back"):
        pack_svm_hmm(tmp_path / "f", tmp_path / "w.hmm")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the limit on memory is Linux's")
def test_packing_does_not_grow_with_the_text(tmp_path):
    """Text of 60 MB, in 96 MB beyond what Python and Numba take."""
    path = tmp_path / "rows.svm"
    line = " ".join(f"{k}:{k / 7:.6f}" for k in range(1, 60))
    with path.open("w") as stream:
        for k in range(90_000):
            stream.write(f"{k % 2} {line}\n")
    program = """
import resource, sys
from maxmargin.packed.packing import pack_svmlight
open(sys.argv[1] + "-s", "w").write("0 1:2\\n1 2:1\\n")
pack_svmlight(sys.argv[1] + "-f", sys.argv[1] + "-s")
used = int(next(one for one in open("/proc/self/status") if one.startswith("VmData")).split()[1]) << 10
resource.setrlimit(resource.RLIMIT_DATA, (used + (96 << 20), resource.RLIM_INFINITY))
pack_svmlight(sys.argv[1] + "-g", sys.argv[1])
"""
    subprocess.run([sys.executable, "-c", program, str(path)], check=True, timeout=300)
    assert len(read_packed(str(path) + "-g").X) == 90_000


# --------------------------------------------------------------------------------------------------------------------
# The folder


def test_a_folder_that_is_there_is_not_touched(tmp_path):
    pack(tmp_path / "f", X, CLASSES)
    before = (tmp_path / "f" / "header.json").read_bytes()
    with pytest.raises(OptionError, match="there already"):
        pack(tmp_path / "f", X[:10], CLASSES[:10])
    with pytest.raises(OptionError, match="does not exist"):
        pack(tmp_path / "g" / "f", X, CLASSES)
    assert (tmp_path / "f" / "header.json").read_bytes() == before


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_killed_pack_leaves_no_folder_and_the_next_one_cleans_up(tmp_path):
    path = tmp_path / "rows.svm"
    path.write_text("".join(f"{k % 2} 1:{k} 2:1\n" for k in range(200_000)))
    program = (
        f"from maxmargin.packed.packing import pack_svmlight; pack_svmlight({str(tmp_path / 'f')!r}, {str(path)!r})"
    )
    process = subprocess.Popen([sys.executable, "-c", program])
    while not any(one.name.endswith(".tmp") for one in tmp_path.iterdir()) and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    left = [one for one in tmp_path.iterdir() if one.name.endswith(".tmp")]
    assert left
    assert not (tmp_path / "f").exists()
    os.utime(left[0], (0, 0))
    pack_svmlight(tmp_path / "f", path)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["f", "rows.svm"]


def test_parts_are_ranges_of_the_same_files(tmp_path):
    pack(tmp_path / "f", SPARSE, NAMES)
    data = read_packed(tmp_path / "f")
    part = pickle.loads(pickle.dumps(data.X[40:90]))
    assert part.shape == (50, 200)
    assert (part.matrix() != SPARSE[40:90]).nnz == 0
    assert len(pickle.dumps(data.X)) < 500
    assert (np.asarray(data.y[40:90]) == NAMES[40:90]).all()
    assert (data.X[[3, -1]] != SPARSE[[3, 299]]).nnz == 0
    with pytest.raises(DataError, match="slices"):
        data.X[::2]
    shutil.rmtree(tmp_path / "f")
    pack(tmp_path / "f", SPARSE[:50], NAMES[:50])
    with pytest.raises(DataError, match="header differs"):
        pickle.loads(pickle.dumps(data.X[:10]))


def test_a_problem_is_sent_by_the_name_of_its_folder(tmp_path):
    pack(tmp_path / "f", SPARSE, NAMES)
    data = read_packed(tmp_path / "f")
    problem = mm.MultiClassSVM().prepare(data.X, data.y).problem
    shard = problem.shard(100, 200)
    sent = pickle.dumps(shard)
    again = pickle.loads(sent)
    assert len(sent) < len(pickle.dumps(mm.MultiClassSVM().prepare(SPARSE, NAMES).problem.shard(100, 200))) / 1.3
    w = RNG.normal(size=problem.n_weights)
    assert np.array_equal(again.scores(w).variables, shard.scores(w).variables)


@pytest.mark.parametrize("name", ["header.json", "indptr.npy", "indices.npy", "data.npy", "labels.npy"])
@pytest.mark.parametrize("change", ["cut", "gone", "flip", "folder"])
def test_damage_is_a_sentence(tmp_path, name, change):
    pack(tmp_path / "f", SPARSE, NAMES)
    path = tmp_path / "f" / name
    content = bytearray(path.read_bytes())
    path.unlink()
    if change == "cut":
        path.write_bytes(content[:-3])
    elif change == "flip":
        content[len(content) * 3 // 4] ^= 0x81
        path.write_bytes(content)
    elif change == "folder":
        path.mkdir()
    with pytest.raises(MaxMarginError) as error:
        read_packed(tmp_path / "f", verify=True)
    assert len(str(error.value)) > 20


def test_what_goes_to_kernels_is_checked_whatever_the_checksums_say(tmp_path):
    pack(tmp_path / "f", SPARSE, NAMES)
    path = tmp_path / "f" / "indices.npy"
    content = bytearray(path.read_bytes())
    content[128:132] = (10**9).to_bytes(4, "little")
    path.write_bytes(content)
    data = read_packed(tmp_path / "f")
    with pytest.raises(DataError, match="row 0 is damaged"):
        mm.MultiClassSVM().fit(data.X, data.y)


def test_a_later_version_is_refused(tmp_path):
    pack(tmp_path / "f", X, CLASSES)
    path = tmp_path / "f" / "header.json"
    header = json.loads(path.read_text())
    path.write_text(json.dumps(header | {"format_version": 2}))
    with pytest.raises(DataError, match="pack the data again"):
        read_packed(tmp_path / "f")
    with pytest.raises(DataError, match="no packed folder"):
        read_packed(tmp_path)


def test_what_cannot_be_packed(tmp_path):
    for rows, y, said in (
        (X, CLASSES[:-1], "for each of 300 rows"),
        (X, X[:, 0], "strings or whole numbers"),
        (np.where(X > 2.9, np.nan, X) * np.nan, CLASSES, "finite"),
        (X, LABELS * 2, "other than 0 and 1"),
        (SEQUENCES, TAGS[:-1], "tags of each sequence"),
        (X[:0], CLASSES[:0], "at least one"),
        ("text", CLASSES, "expected a matrix"),
    ):
        with pytest.raises(DataError, match=said):
            pack(tmp_path / "f", rows, y)
    assert list(tmp_path.iterdir()) == []

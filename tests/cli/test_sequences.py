"""The command line on sequences: SVM-hmm's files, and words in columns."""

import gzip
import json
import re

import numpy as np
import pytest
from scipy.sparse import csr_array

import maxmargin as mm
from maxmargin.cli.main import run
from maxmargin.features import TextFeatures
from maxmargin.formats import SequenceData, read_conll, write_conll, write_svm_hmm
from maxmargin.reporting.chunks import chunk_scores

WORDS = {"DT": ["the", "a"], "NN": ["dog", "cat", "bone"], "VB": ["sees", "eats"], "RB": ["often"]}
SHAPES = [
    ("DT NN VB", "B-NP I-NP B-VP"),
    ("DT NN VB DT NN", "B-NP I-NP B-VP B-NP I-NP"),
    ("NN RB VB NN", "B-NP O B-VP B-NP"),
    ("RB DT NN VB", "O B-NP I-NP B-VP"),
]


def sentences(seed, n):
    """Generated sentences of words with parts of speech, and their tags."""
    rng = np.random.default_rng(seed)
    chosen = [SHAPES[k] for k in rng.integers(len(SHAPES), size=n)]
    words = [[(str(rng.choice(WORDS[part])), part) for part in parts.split()] for parts, _ in chosen]
    return words, [tags.split() for _, tags in chosen]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sequences")
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 6, 20)
    X = rng.normal(size=(int(lengths.sum()), 3)).round(3)
    tags = np.digitize(X[:, 0], [-0.4, 0.4]) + 1
    data = SequenceData(csr_array(X), lengths, tags, np.arange(1, 21))
    write_svm_hmm(folder / "toy.hmm", data)
    (folder / "toy.dat").write_bytes((folder / "toy.hmm").read_bytes())
    (folder / "toy.hmm.gz").write_bytes(gzip.compress((folder / "toy.hmm").read_bytes()))
    write_svm_hmm(folder / "bio.hmm", SequenceData(X, lengths, np.array(["O", "B-A", "I-A"])[tags - 1], data.qids))
    np.savez(folder / "toy.npz", X=X, y=tags, sequence_ptr=np.concatenate([[0], np.cumsum(lengths)]))
    for name in ("toy", "bio"):
        line = ["train", str(folder / f"{name}.hmm"), "-C", "10", "--quiet", "-o", str(folder / f"{name}.mm")]
        assert run(line) == 0
    train, test = sentences(1, 30), sentences(2, 20)
    write_conll(folder / "words.conll", *train)
    write_conll(folder / "test.conll", *test)
    write_conll(folder / "bare.conll", test[0])
    mm.ChainSVM(C=10, features=TextFeatures.chunking()).fit(*train).save(folder / "words.mm")
    return folder


def answer(capsys, *line):
    assert run([str(word) for word in (*line, "--json")]) == 0
    return json.loads(capsys.readouterr().out)


def refused(capsys, code, sentence, *line):
    assert run([str(word) for word in line]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert re.search(sentence, err), err
    assert err.startswith("maxmargin: ")


# ------------------------------------------------------------------------------------------------- SVM-hmm's files


def test_the_same_model_as_from_arrays(folder, tmp_path, capsys):
    for name, options in (
        ("toy.hmm", ()),
        ("toy.hmm.gz", ()),
        ("toy.dat", ()),
        ("toy.dat", ("--format", "svmhmm")),
        ("toy.npz", ()),
    ):
        line = ["train", folder / name, "-C", "10", "--quiet", "-o", tmp_path / f"{name}.mm", *options]
        found = answer(capsys, *line)
        assert (found["task"], found["n_examples"], found["n_features"]) == ("chain", 20, 3)
    models = [mm.load(tmp_path / f"{name}.mm") for name in ("toy.hmm", "toy.hmm.gz", "toy.dat", "toy.npz")]
    assert [model.classes_.tolist() for model in models] == [[1, 2, 3]] * 4
    for model in models[1:]:
        np.testing.assert_allclose(model.result_.weights, models[0].result_.weights, rtol=0, atol=1e-9)


def test_a_tag_a_line(folder, capsys, tmp_path):
    found = answer(capsys, "predict", folder / "toy.mm", folder / "toy.hmm")["predictions"]
    with np.load(folder / "toy.npz") as arrays:
        parts = np.split(arrays["X"], arrays["sequence_ptr"][1:-1])
    assert found == [tags.tolist() for tags in mm.load(folder / "toy.mm").predict(parts)]
    path = tmp_path / "tags.txt"
    assert run(["predict", str(folder / "toy.mm"), str(folder / "toy.hmm"), "-o", str(path)]) == 0
    assert path.read_text() == "\n".join("".join(f"{tag}\n" for tag in tags) for tags in found)
    assert capsys.readouterr().out == ""


def test_evaluate(folder, tmp_path, capsys):
    found = answer(capsys, "evaluate", folder / "toy.mm", folder / "toy.hmm")
    assert found["tag_accuracy"] > 0.8
    assert found == answer(capsys, "evaluate", folder / "toy.mm", folder / "toy.npz") | {
        "data": str(folder / "toy.hmm")
    }
    assert "chunk_f1" not in found
    # A 0 is a tag that is not known, and does not count.
    lines = (folder / "toy.hmm").read_text().splitlines()
    guesses = [
        tag for tags in answer(capsys, "predict", folder / "toy.mm", folder / "toy.hmm")["predictions"] for tag in tags
    ]
    wrong = [k for k, line in enumerate(lines) if line.split()[0] != str(guesses[k])]
    assert wrong
    for k in wrong:
        lines[k] = "0 " + lines[k].partition(" ")[2]
    (tmp_path / "zero.hmm").write_text("\n".join(lines))
    assert answer(capsys, "evaluate", folder / "toy.mm", tmp_path / "zero.hmm")["tag_accuracy"] == 1


def test_chunks_of_numbers(folder, capsys):
    found = answer(capsys, "evaluate", folder / "bio.mm", folder / "bio.hmm")
    guesses = answer(capsys, "predict", folder / "bio.mm", folder / "bio.hmm")["predictions"]
    tags = [line.split()[0] for line in (folder / "bio.hmm").read_text().splitlines()]
    truth = [[tags.pop(0) for _ in guess] for guess in guesses]
    scores = chunk_scores(truth, guesses)
    assert found["chunk_f1"] == scores.overall.f1 > 0.5
    assert found["chunk_precision"] == scores.overall.precision
    assert found["chunk_recall"] == scores.overall.recall
    assert found["chunks"]["A"]["n_right"] == scores.by_type["A"].n_right
    assert run(["evaluate", str(folder / "bio.mm"), str(folder / "bio.hmm")]) == 0
    out = capsys.readouterr().out
    assert f"chunk F1           {scores.overall.f1:.4f}" in out
    assert f"{scores}\n\n" in out


def test_bad_files(folder, tmp_path, capsys):
    lines = (folder / "toy.hmm").read_text().splitlines()
    for text, sentence in (
        ("1 1:1", r"bad.hmm, line 3: '1:1' was found where 'qid:NUMBER' was expected"),
        ("1 qid:1 1:x", r"bad.hmm, line 3: the value of '1:x' is not a finite number"),
    ):
        (tmp_path / "bad.hmm").write_text("\n".join([*lines[:2], text, *lines[3:]]))
        for command in (["train"], ["predict", folder / "toy.mm"], ["evaluate", folder / "toy.mm"]):
            refused(capsys, 3, sentence, *command, tmp_path / "bad.hmm")
    (tmp_path / "wide.hmm").write_text("1 qid:1 4:1\n")
    refused(capsys, 3, r"line 1: the index 4 is out of range; expected 1 to 3", "predict", folder / "toy.mm",
            tmp_path / "wide.hmm")  # fmt: skip
    (tmp_path / "toy.xyz").write_text("1 1:1\n")
    refused(capsys, 3, "the ending says nothing about the format, nor does 'qid:' in its first line", "train",
            tmp_path / "toy.xyz")  # fmt: skip
    refused(capsys, 3, "toy.hmm: this is not an npz file", "train", folder / "toy.hmm", "--format", "npz")
    refused(capsys, 2, "holds chain data, but --task is binary", "train", folder / "toy.hmm", "--task", "binary")
    assert run(["train", str(folder / "toy.hmm"), "--format", "xls"]) == 2


# ------------------------------------------------------------------------------------------------- words in columns


def test_columns_and_the_tag_after_them(folder, tmp_path, capsys):
    words, truth = read_conll(folder / "test.conll")
    expected = [tags.tolist() for tags in mm.load(folder / "words.mm").predict(words)]
    assert expected == truth
    assert run(["predict", str(folder / "words.mm"), str(folder / "bare.conll")]) == 0
    assert capsys.readouterr().out == (folder / "test.conll").read_text()
    assert run(["predict", str(folder / "words.mm"), str(folder / "test.conll"), "-o", str(tmp_path / "a.conll")]) == 0
    assert capsys.readouterr().out == ""
    columns, tags = read_conll(tmp_path / "a.conll")
    assert [[row[:2] for row in rows] for rows in columns] == words
    assert [[row[2] for row in rows] for rows in columns] == truth
    assert tags == expected
    assert answer(capsys, "predict", folder / "words.mm", folder / "test.conll")["predictions"] == expected


def test_chunks_of_words(folder, tmp_path, capsys):
    words, truth = read_conll(folder / "test.conll")
    # An I after O is a chunk, too, and a tag that was never seen is wrong.
    truth[0][0], truth[1][-1] = "I-NP", "B-PP"
    write_conll(tmp_path / "odd.conll", words, truth)
    scores = chunk_scores(truth, [tags.tolist() for tags in mm.load(folder / "words.mm").predict(words)])
    assert scores.by_type["PP"].n_true == 1
    found = answer(capsys, "evaluate", folder / "words.mm", tmp_path / "odd.conll")
    assert found["chunk_f1"] == scores.overall.f1 < 1
    assert run(["evaluate", str(folder / "words.mm"), str(tmp_path / "odd.conll")]) == 0
    assert f"{scores}\n\n" in capsys.readouterr().out


def test_words_that_are_not_for_this_model(folder, tmp_path, capsys):
    refused(capsys, 3, "no labels to compare with: a column of tags is missing", "evaluate", folder / "words.mm",
            folder / "bare.conll")  # fmt: skip
    refused(capsys, 3, "test.conll holds words, but the model was not trained on words", "predict", folder / "toy.mm",
            folder / "test.conll")  # fmt: skip
    refused(capsys, 3, "toy.hmm holds numbers, but the model was trained on words", "predict", folder / "words.mm",
            folder / "toy.hmm")  # fmt: skip
    (tmp_path / "wide.conll").write_text("a b c d\n")
    refused(capsys, 3, "wide.conll has 4 columns; the model reads word, pos, and a tag may follow", "predict",
            folder / "words.mm", tmp_path / "wide.conll")  # fmt: skip
    (tmp_path / "bad.conll").write_text("a b c\n\na b\n")
    refused(capsys, 3, "bad.conll, line 3: 2 columns found, but line 1 has 3", "evaluate", folder / "words.mm",
            tmp_path / "bad.conll")  # fmt: skip


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), TextFeatures.chunking()),
        (("--features", "chunking"), TextFeatures.chunking()),
        (("--features", "tagging"), TextFeatures.tagging(columns=("word", "pos"))),
        (("--features", "words"), TextFeatures(columns=("word", "pos"))),
    ],
)
def test_training_on_words(folder, tmp_path, capsys, options, expected):
    line = [
        "train",
        folder / "words.conll",
        "-C",
        "10",
        "--quiet",
        "-o",
        tmp_path / "a.mm",
        "--test",
        folder / "test.conll",
    ]
    found = answer(capsys, *line, *options)
    assert (found["task"], found["n_examples"]) == ("chain", 30)
    assert found["test"]["chunk_f1"] == 1
    parameters = mm.load(tmp_path / "a.mm").features.get_params()
    assert {name: list(v) if isinstance(v, tuple) else v for name, v in parameters.items()} == {
        name: list(v) if isinstance(v, tuple) else v for name, v in expected.get_params().items()
    }
    assert answer(capsys, "evaluate", tmp_path / "a.mm", folder / "test.conll")["chunk_f1"] == 1


def test_training_on_words_alone(folder, tmp_path, capsys):
    words, tags = read_conll(folder / "words.conll")
    (tmp_path / "one.txt").write_text(
        "\n".join(
            "".join(f"{w} {t}\n" for (w, _), t in zip(*pair, strict=True)) for pair in zip(words, tags, strict=True)
        )
    )
    line = ["train", tmp_path / "one.txt", "--format", "conll", "-C", "10", "--quiet"]
    answer(capsys, *line, "-o", tmp_path / "a.mm")
    assert list(mm.load(tmp_path / "a.mm").features.columns) == ["word"]
    refused(capsys, 2, "--features is chunking, but .*one.txt has no column between", *line, "--features", "chunking")
    refused(capsys, 2, "--features is for words, which", "train", folder / "toy.hmm", "--features", "words")
    refused(capsys, 2, "--features needs DATA", "train", "--features", "words")
    refused(capsys, 2, "--format needs DATA", "train", "--format", "conll")

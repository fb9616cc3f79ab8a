"""The command line for people who arrive with data: CoNLL-U, columns, files that tell their format, pipes, and the defaults."""

import gzip
import io
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

import maxmargin as mm
from maxmargin.cli.main import run
from maxmargin.features import TextFeatures
from maxmargin.formats import read_conllu

LEXICON = {"the": "DET", "a": "DET", "dog": "NOUN", "cat": "NOUN", "sees": "VERB", "eats": "VERB"}


def conllu(seed, n):
    """Sentences of a determiner, a noun and a verb, with comments, a multi-word token and an empty node."""
    rng = np.random.default_rng(seed)
    lines = []
    for m in range(n):
        words = [str(rng.choice(pair)) for pair in (("the", "a"), ("dog", "cat"), ("sees", "eats"))]
        lines += [f"# sent_id = {m}", "1-2\tthedog" + "\t_" * 8]
        lines += [f"{k}\t{w}\t{w}\t{LEXICON[w]}\t{LEXICON[w][0]}\t_\t0\tdep{k}\t_\t_" for k, w in enumerate(words, 1)]
        lines += ["3.1\tso" + "\t_" * 8, ""]
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("arriving")
    (folder / "train.conllu").write_text(conllu(0, 30))
    (folder / "test.conllu").write_text(conllu(1, 10))
    bare = re.sub(r"\t(DET|NOUN|VERB)\t[DNV]", r"\t_\t_", conllu(1, 10))
    (folder / "bare.conllu").write_text(bare)
    assert run(["train", str(folder / "train.conllu"), "-C", "10", "--quiet", "-o", str(folder / "words.mm")]) == 0
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3)).round(3)
    rows = [" ".join(f"{k + 1}:{v}" for k, v in enumerate(x)) for x in X]
    labels = [("+1" if x[0] > 0 else "-1") for x in X]
    (folder / "rows.svm").write_text("".join(f"{y} {row}\n" for y, row in zip(labels, rows, strict=True)))
    (folder / "rows.dat").write_text("# a comment\n\n" + (folder / "rows.svm").read_text())
    tagged = [f"{1 + (x[0] > 0)} qid:{1 + m // 4} {row}\n" for m, (x, row) in enumerate(zip(X, rows, strict=True))]
    for name in ("tags.dat", "tags.data", "tags.txt"):
        (folder / name).write_text("# a comment\n\n" + "".join(tagged))
    (folder / "tags.dat.gz").write_bytes(gzip.compress((folder / "tags.dat").read_bytes()))
    assert run(["train", str(folder / "rows.svm"), "-C", "10", "--quiet", "-o", str(folder / "rows.mm")]) == 0
    return folder


@pytest.fixture(autouse=True)
def nothing_left(capsys, folder):
    capsys.readouterr()


def answer(capsys, *line):
    assert run([str(word) for word in (*line, "--json")]) in (0, 1)
    return json.loads(capsys.readouterr().out)


def refused(capsys, code, sentence, *line):
    assert run([str(word) for word in line]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert re.search(sentence, err), err


def give(monkeypatch, content):
    """Make this the standard input."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))


# ------------------------------------------------------------------------------------------------- CoNLL-U


def test_conllu(folder, capsys, tmp_path):
    model = mm.load(folder / "words.mm")
    assert list(model.features.columns) == ["word"]
    assert model.classes_.tolist() == ["DET", "NOUN", "VERB"]
    assert answer(capsys, "evaluate", folder / "words.mm", folder / "test.conllu")["tag_accuracy"] == 1
    # The tags are written into their column; all other lines stay.
    for name in ("test.conllu", "bare.conllu"):
        assert run(["predict", str(folder / "words.mm"), str(folder / name), "-o", str(tmp_path / "a.conllu")]) == 0
        expected = (folder / name).read_text() if name == "test.conllu" else None
        assert expected in (None, (tmp_path / "a.conllu").read_text())
        assert read_conllu(tmp_path / "a.conllu") == read_conllu(folder / "test.conllu")


def test_columns_of_conllu(folder, capsys, tmp_path):
    line = ["train", folder / "train.conllu", "-C", "10", "--quiet", "--word-column", "LEMMA"]
    for column in ("DEPREL", "8", "-3"):
        answer(capsys, *line, "--tag-column", column, "-o", tmp_path / "a.mm", "--test", folder / "test.conllu")
        assert mm.load(tmp_path / "a.mm").classes_.tolist() == ["dep1", "dep2", "dep3"]
        options = ["--tag-column", column, "--word-column", "lemma"]
        assert answer(capsys, "evaluate", tmp_path / "a.mm", folder / "test.conllu", *options)["tag_accuracy"] == 1
    assert run(["predict", str(tmp_path / "a.mm"), str(folder / "bare.conllu"), *options]) == 0
    assert capsys.readouterr().out == (folder / "bare.conllu").read_text()
    refused(capsys, 2, 'tag_column=.DEPRL. is not possible.* Did you mean "DEPREL"', *line, "--tag-column", "DEPRL")


def test_conllu_that_is_not_for_this_model(folder, capsys, tmp_path):
    refused(capsys, 3, "UPOS, holds nothing but '_': there is nothing to learn", "train", folder / "bare.conllu")
    refused(capsys, 3, "no labels to compare with: the column of tags holds nothing but '_'", "evaluate",
            folder / "words.mm", folder / "bare.conllu")  # fmt: skip
    refused(capsys, 3, "holds chain data, but the model is for the task binary", "predict", folder / "rows.mm",
            folder / "test.conllu")  # fmt: skip
    features = TextFeatures.chunking()
    mm.ChainSVM(C=1.0, features=features).fit([[("a", "b")], [("c", "d")]], [["x"], ["y"]]).save(tmp_path / "two.mm")
    refused(capsys, 3, "words alone are read, but the model reads word, pos", "predict", tmp_path / "two.mm",
            folder / "test.conllu")  # fmt: skip
    (tmp_path / "bad.conllu").write_text("1 a b\n")
    for command in (["train"], ["predict", folder / "words.mm"], ["evaluate", folder / "words.mm"]):
        refused(capsys, 3, "bad.conllu, line 1: 1 column found; CoNLL-U has 10", *command, tmp_path / "bad.conllu")


def test_columns_by_number(folder, capsys, tmp_path):
    words = [re.findall(r"(?m)^\d\t(\w+)\t\w+\t(\w+)", part) for part in conllu(0, 30).split("\n\n")[:-1]]
    text = "\n".join(
        f"%% {m}\n" + "".join(f"{k} {word} p{k} {tag} x\n" for k, (word, tag) in enumerate(rows, 1))
        for m, rows in enumerate(words)
    )
    (tmp_path / "a.conll").write_text(text)
    options = ["--word-column", "2", "--tag-column", "-2", "--comment", "%%"]
    found = answer(capsys, "train", tmp_path / "a.conll", *options, "-C", "10", "--quiet", "-o", tmp_path / "a.mm",
                   "--test", tmp_path / "a.conll")  # fmt: skip
    assert found["n_examples"] == 30
    assert found["test"]["tag_accuracy"] == 1
    assert list(mm.load(tmp_path / "a.mm").features.columns) == ["word", "pos"]
    assert answer(capsys, "evaluate", tmp_path / "a.mm", tmp_path / "a.conll", *options)["tag_accuracy"] == 1
    # Without tags, all columns from that of the word on are the word's.
    (tmp_path / "b.conll").write_text(re.sub(r"(?m)^(\d \w+ p\d) .*", r"\1", text))
    assert run(["predict", str(tmp_path / "a.mm"), str(tmp_path / "b.conll"), *options[:2], *options[4:]]) == 0
    assert capsys.readouterr().out.splitlines()[0] == f"1 {words[0][0][0]} p1 {words[0][0][1]}"
    refused(capsys, 3, "a.conll has 4 columns; the model reads word, pos", "predict", tmp_path / "a.mm", tmp_path / "a.conll",
            *options[:2], "--comment", "%%")  # fmt: skip
    refused(capsys, 3, "a.conll has 1 column for words; the model reads word, pos", "predict", tmp_path / "a.mm",
            tmp_path / "a.conll", "--word-column", "2", "--tag-column", "3", "--comment", "%%")  # fmt: skip
    refused(capsys, 3, "line 2: 5 columns found, but tag_column is 9", "train", tmp_path / "a.conll", "--tag-column", "9",
            "--comment", "%%")  # fmt: skip
    refused(capsys, 2, "word_column='FORM' is not possible; expected the number", "train", tmp_path / "a.conll",
            "--word-column", "FORM")  # fmt: skip
    for option in ("--word-column", "--tag-column", "--comment"):
        refused(capsys, 2, f"{option} is for words in columns", "train", folder / "rows.svm", option, "1")
        refused(capsys, 2, f"{option} needs DATA", "train", option, "1")


# ------------------------------------------------------------------------------------------------- what tells the format


@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("rows.dat", "binary"),
        ("tags.dat", "chain"),
        ("tags.data", "chain"),
        ("tags.txt", "chain"),
        ("tags.dat.gz", "chain"),
    ],
)
def test_the_first_example_tells_the_format(folder, capsys, name, task):
    assert answer(capsys, "train", folder / name, "-C", "1", "--quiet", "--tol", "0.1")["task"] == task


def test_what_was_recognised_is_said(folder, capsys, tmp_path):
    (tmp_path / "a.dat").write_text("1 qid:1 1:1\n2 1:1\n")
    refused(capsys, 3, r"a.dat, line 2: '1:1' was found where 'qid:NUMBER' was expected\. \(It was recognised as SVM-hmm's text: "
            r"its first example, line 1, has 'qid:'; --format says otherwise\.\)", "train", tmp_path / "a.dat")  # fmt: skip
    (tmp_path / "b.dat").write_text("1 x:1\n")
    refused(capsys, 3, r"b.dat, line 1: .* \(It was recognised as SVM-light's and LIBSVM's text: its first example has no 'qid:'",
            "train", tmp_path / "b.dat")  # fmt: skip
    refused(capsys, 3, r"none.dat cannot be opened: No such file or directory\.$", "train", tmp_path / "none.dat")
    # A format that is asked for is not guessed.
    assert (
        answer(capsys, "train", folder / "tags.dat", "--format", "svmlight", "-C", "1", "--quiet")["task"] == "binary"
    )
    refused(capsys, 3, "b.dat, line 1: 'x:1' was found where 'qid:NUMBER' was expected.$", "train", tmp_path / "b.dat",
            "--format", "svm-hmm")  # fmt: skip


# ------------------------------------------------------------------------------------------------- pipes


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_standard_input(folder, capsys, monkeypatch, tmp_path, pack):
    content = pack((folder / "train.conllu").read_bytes())
    give(monkeypatch, content)
    line = ["train", "-", "--format", "conllu", "-C", "10", "--quiet", "-o", tmp_path / "a.mm"]
    assert answer(capsys, *line)["data"] == "-"
    np.testing.assert_array_equal(mm.load(tmp_path / "a.mm").coef_, mm.load(folder / "words.mm").coef_)
    give(monkeypatch, content)
    assert answer(capsys, "evaluate", tmp_path / "a.mm", "-", "--format", "conllu")["tag_accuracy"] == 1
    give(monkeypatch, pack((folder / "bare.conllu").read_bytes()))
    assert run(["predict", str(tmp_path / "a.mm"), "-", "--format", "conllu"]) == 0
    found = capsys.readouterr().out
    assert run(["predict", str(tmp_path / "a.mm"), str(folder / "bare.conllu")]) == 0
    assert found == capsys.readouterr().out


def test_arrays_from_the_standard_input(folder, capsys, monkeypatch):
    stored = io.BytesIO()
    np.savez(stored, X=np.random.default_rng(0).normal(size=(30, 2)), y=np.arange(30) % 3)
    give(monkeypatch, stored.getvalue())
    assert answer(capsys, "train", "-", "--format", "npz", "-C", "1", "--quiet")["task"] == "multi-class"
    give(monkeypatch, (folder / "rows.svm").read_bytes())
    assert answer(capsys, "train", folder / "rows.svm", "--format", "libsvm", "-C", "1", "--quiet", "--test", "-")[
        "test"
    ]


def test_a_standard_input_that_cannot_be_read(folder, capsys, monkeypatch):
    for command in (["train"], ["predict", folder / "words.mm"], ["evaluate", folder / "words.mm"]):
        give(monkeypatch, b"")
        refused(capsys, 2, "The standard input has no ending that says its format; say --format arff", *command, "-")
        refused(capsys, 3, "-: there are no sentences in the file", *command, "-", "--format", "conllu")
        give(monkeypatch, b"a\n\xff")
        refused(capsys, 3, "The file - is not UTF-8 text at line 2", *command, "-", "--format", "conll")
    refused(
        capsys,
        2,
        "both -, the standard input, which can be read once",
        "train",
        "-",
        "--test",
        "-",
        "--format",
        "conll",
    )


@pytest.mark.skipif(not os.path.exists("/dev/fd"), reason="pipes have no names here")
def test_a_real_pipe(folder):
    def line(*words):
        return [sys.executable, "-m", "maxmargin", *map(str, words)]

    content = (folder / "rows.svm").read_bytes()
    done = subprocess.run(line("evaluate", folder / "rows.mm", "-", "--format", "svmlight", "--json"), input=content,
                          capture_output=True, check=True)  # fmt: skip
    assert json.loads(done.stdout)["n_examples"] == 60
    # As a shell's <(...): a pipe with a name, and an ending that says nothing, is read once and looked at twice.
    done = subprocess.run(line("train", "/dev/fd/0", "-C", "1", "--tol", "0.1", "--quiet", "--json"),
                          input=(folder / "tags.dat").read_bytes(), capture_output=True, check=True)  # fmt: skip
    assert json.loads(done.stdout)["task"] == "chain"


# ------------------------------------------------------------------------------------------------- defaults and figures


def test_parameters_that_were_not_set_are_the_estimators_own(folder, capsys, tmp_path):
    for options, expected in (
        ([], {}),
        (["--C", "auto", "--quiet"], {}),
        (["-C", "3", "--scale", "yes", "--validation-fraction", "0.3", "--loss", "fraction", "--seed", "5"],
         {"C": 3.0, "scale": True, "validation_fraction": 0.3, "loss": "fraction", "random_state": 5}),
        (["--scale", "no", "--tol", "0.01", "--no-intercept"], {"scale": False, "tol": 0.01, "fit_intercept": False}),
    ):  # fmt: skip
        assert run(["train", str(folder / "rows.svm"), *options, "-o", str(tmp_path / "a.mm")]) in (0, 1)
        assert mm.load(tmp_path / "a.mm").get_params() == mm.BinarySVM(**expected).get_params()


def test_what_C_was_chosen_and_why(folder, capsys, tmp_path):
    assert run(["train", str(folder / "rows.svm"), "-o", str(tmp_path / "a.mm")]) in (0, 1)
    out, err = capsys.readouterr()
    # Not a line for each value that was tried.
    assert len(re.findall(r"(?m)^[A-Z_]+: exact gap", err)) == 1
    model = mm.load(tmp_path / "a.mm")
    reason = model.result_.options["C_reason"]
    assert "held-out loss" in reason
    assert f"C            {model.C_:g}: {reason}\n" in out
    assert f"C = {model.C_:g}, {reason}" in model.result_.summary()
    # It used to end in an error: C is a word here.
    assert run(["info", str(tmp_path / "a.mm")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(re.fullmatch(rf"C_ +{model.C_:g}", line) for line in lines)
    assert any(re.fullmatch(r"C +auto", line) for line in lines)
    at = next(k for k, line in enumerate(lines) if line.startswith("validation path"))
    assert lines[at].split()[2:] == ["C", "held-out", "loss", "gap", "passes", "seconds", "standard", "error"]
    for line, one in zip(lines[at + 1 :], model.validation_path_, strict=False):
        assert line.split() == [
            f"{one.C:.3g}",
            f"{one.loss:.3g}",
            f"{one.gap:.3g}",
            str(one.n_passes),
            f"{one.seconds:.3g}",
            "-" if one.standard_error is None else f"{one.standard_error:.3g}",
        ]
    found = answer(capsys, "info", tmp_path / "a.mm")
    assert (found["C"], found["C_"]) == ("auto", model.C_)
    assert [one["C"] for one in found["validation_path"]] == [one.C for one in model.validation_path_]
    assert answer(capsys, "train", folder / "rows.svm", "--quiet")["C"] == model.C_


def test_small_weights_have_digits(capsys, tmp_path):
    X = np.random.default_rng(0).normal(size=(40, 2)) * 1e5
    mm.BinarySVM(C=1e-9, scale=False, tol=1.0).fit(X, X[:, 0] > 0).save(tmp_path / "a.mm")
    assert run(["info", str(tmp_path / "a.mm")]) == 0
    found = re.search(r"strongest weights +(\S+: \S+) (\S+)", capsys.readouterr().out)
    weight = np.abs(mm.load(tmp_path / "a.mm").coef_).max()
    assert 0 < weight < 0.004
    assert abs(float(found[2])) == pytest.approx(weight, rel=5e-3)
    assert len(re.sub(r"e.*|^[-0.]*|\.", "", found[2])) <= 3


@pytest.mark.parametrize(("data", "model"), [("rows.svm", "rows.mm"), ("test.conllu", "words.mm")])
def test_train_and_evaluate_print_the_same_figures(folder, capsys, data, model):
    assert run(["evaluate", str(folder / model), str(folder / data)]) == 0
    figures = capsys.readouterr().out
    source = folder / ("train.conllu" if data.endswith("conllu") else data)
    line = ["train", source, "-C", "10", "--test", folder / data, "--quiet"]
    assert run([str(word) for word in line]) == 0
    assert figures in capsys.readouterr().out
    assert answer(capsys, *line)["test"] == answer(capsys, "evaluate", folder / model, folder / data)


# ------------------------------------------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        (["trian"], "train"),
        (["train", "--sovler", "bcfw"], "--solver"),
        (["train", "x.svm", "--kernel", "RBF"], "rbf"),
        (["train", "x.svm", "--task", "multiclass"], "multi-class"),
        (["predict", "a.mm", "x.svm", "--task", "chains"], "chain"),
        (["evaluate", "a.mm", "x.svm", "--format", "connlu"], "conllu"),
        (["train", "x.svm", "--features", "chunks"], "chunking"),
        (["train", "x.svm", "--objective", "margins"], "margin"),
        (["compile", "pasrer"], "parser"),
        (["compile", "--solver", "bundel"], "bundle"),
    ],
)
def test_the_nearest_name(capsys, line, meant):
    assert run(line) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert f'Did you mean "{meant}"?' in err
    assert "usage: maxmargin" in err


@pytest.mark.parametrize(
    ("option", "wrong", "meant"),
    [("--solver", "bfcw", "bcfw"), ("--inference", "tree", "trees"), ("--loss", "haming", "hamming")],
)
def test_the_nearest_name_in_the_library(capsys, option, wrong, meant):
    refused(
        capsys, 2, f"maxmargin: .*='{wrong}' is not known.* Did you mean \"{meant}\"", "train", "x.svm", option, wrong
    )


def test_a_label_that_is_nearly_known(capsys, tmp_path):
    for name, label in (("a", "red"), ("b", "rde")):
        (tmp_path / f"{name}.svm").write_text(f"{label},blue 1:1\nblue 2:1\n" * 4)
    assert run(["train", str(tmp_path / "a.svm"), "-C", "1", "--quiet", "-o", str(tmp_path / "a.mm")]) == 0
    capsys.readouterr()
    refused(capsys, 3, "the label 'rde' .*Did you mean \"red\"", "evaluate", tmp_path / "a.mm", tmp_path / "b.svm")


def test_an_open_gap_is_a_status_and_no_warning_of_python(tmp_path):
    data = tmp_path / "rows.svm"
    data.write_text("".join(f"{k % 3 + 1} 1:{k % 7} 2:{k % 5} 3:1\n" for k in range(60)))
    line = [sys.executable, "-m", "maxmargin", "train", str(data), "-C", "1000", "--max-passes", "2", "--quiet"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert "MAX_PASSES" in done.stdout
    assert "ConvergenceWarning" not in done.stderr

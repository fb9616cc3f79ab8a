"""SVM-struct's commands: their files and options, against the quadratic programme of the papers written out from the files."""

import re
from itertools import product

import clarabel
import numpy as np
import pytest
import scipy.sparse as sp

import maxmargin as mm
from maxmargin.cli.main import run


def classes_text(seed, n):
    rng = np.random.default_rng(seed)
    y = rng.integers(1, 4, n)
    X = np.eye(3)[y - 1] + 0.6 * rng.normal(size=(n, 3))
    return "".join(
        f"{k} " + " ".join(f"{i}:{v:.3f}" for i, v in enumerate(x, 1)) + " # c\n" for k, x in zip(y, X, strict=True)
    )


def tags_text(seed, n, length=3):
    rng = np.random.default_rng(seed)
    text = ""
    for sequence in range(1, n + 1):
        tag = rng.integers(1, 4)
        for _ in range(length):
            tag = tag % 3 + 1 if rng.random() < 0.7 else rng.integers(1, 4)
            x = np.eye(3)[tag - 1] + 0.8 * rng.normal(size=3)
            text += f"{tag} qid:{sequence} " + " ".join(f"{i}:{v:.3f}" for i, v in enumerate(x, 1)) + "\n"
    return text


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("svm_struct")
    (folder / "classes.dat").write_text(classes_text(0, 25))
    (folder / "classes-test.dat").write_text(classes_text(1, 40))
    (folder / "tags.dat").write_text(tags_text(0, 10))
    (folder / "tags-test.dat").write_text(tags_text(1, 30))
    return folder


# ------------------------------------------------------------------------------ the papers' programme, from the files


def rows_of(path):
    """Labels, sequence numbers and features of a file, read by other means than the library's."""
    found = []
    for line in path.read_text().splitlines():
        label, *pairs = line.partition("#")[0].split()
        query = int(pairs.pop(0).partition(":")[2]) if pairs[0].startswith("qid:") else len(found)
        x = np.zeros(3)
        for pair in pairs:
            index, value = pair.split(":")
            x[int(index) - 1] = float(value)
        found.append((int(label), query, x))
    return found


def examples_of(path):
    """Sequences of (tag, features); one position each in a file without ``qid:``."""
    sequences = {}
    for label, query, x in rows_of(path):
        sequences.setdefault(query, []).append((label, x))
    return list(sequences.values())


def joint_features(example, tags, order=1):
    """SVM-hmm's psi: emissions of each tag and transitions of each order; of one position, SVM-multiclass's."""
    emissions, pairs, triples = np.zeros((3, 3)), np.zeros((3, 3)), np.zeros((3, 3, 3))
    for t, (_, x) in enumerate(example):
        emissions[tags[t] - 1] += x
        if t >= 1 and order >= 1:
            pairs[tags[t - 1] - 1, tags[t] - 1] += 1
        if t >= 2 and order >= 2:
            triples[tags[t - 2] - 1, tags[t - 1] - 1, tags[t] - 1] += 1
    return np.concatenate([emissions.ravel(), pairs.ravel(), triples.ravel()])


def optimum(examples, C, loss, slack_rescaling=False, order=1):
    """Weights of min 1/2 |w|^2 + C/n sum xi subject to every constraint, by Clarabel."""
    n, d = len(examples), 9 + 9 + 27
    rows, sides = [], []
    for i, example in enumerate(examples):
        truth = tuple(tag for tag, _ in example)
        own = joint_features(example, truth, order)
        for tags in product((1, 2, 3), repeat=len(example)):
            cost = loss(truth, tags)
            row = np.zeros(d + n)
            if cost > 0:
                row[:d] = own - joint_features(example, tags, order)
                row[d + i] = 1 / cost if slack_rescaling else 1.0
                sides.append(1.0 if slack_rescaling else cost)
            else:
                row[d + i] = 1.0
                sides.append(0.0)
            rows.append(row)
    P = sp.csc_matrix(sp.diags([1.0] * d + [0.0] * n))
    q = np.concatenate([np.zeros(d), np.full(n, C / n)])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    A = sp.csc_matrix(-np.array(rows))
    solution = clarabel.DefaultSolver(
        P, q, A, -np.array(sides), [clarabel.NonnegativeConeT(len(rows))], settings
    ).solve()
    assert str(solution.status) == "Solved"
    return np.array(solution.x[:d])


def predict(examples, w, order=1):
    return [
        max(product((1, 2, 3), repeat=len(one)), key=lambda tags, one=one: w @ joint_features(one, tags, order))
        for one in examples
    ]


def hundred(truth, tags):
    return 100.0 * (truth != tags)


def squares(truth, tags):
    return float((truth[0] - tags[0]) ** 2)


def wrong_tags(truth, tags):
    return float(sum(one != other for one, other in zip(truth, tags, strict=True)))


def command(*line):
    return run([str(word) for word in line])


@pytest.mark.parametrize("algorithm", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("options", [(), ("-o", "1"), ("-l", "1")])
def test_multiclass_scores_are_those_of_the_papers_programme(folder, tmp_path, capsys, algorithm, options):
    model, out = tmp_path / "model", tmp_path / "out"
    line = ("svm-multiclass", "learn", "-c", 20, "-e", 1e-4, "-w", algorithm, *options, folder / "classes.dat", model)
    assert command(*line) == 0
    assert "It is a model file of maxmargin" in capsys.readouterr().out
    assert command("svm-multiclass", "classify", folder / "classes-test.dat", model, out) == 0
    printed = capsys.readouterr().out
    train, test = examples_of(folder / "classes.dat"), examples_of(folder / "classes-test.dat")
    w = optimum(train, 20, squares if "-l" in options else hundred, "-o" in options)
    expected = np.array([[x @ w[3 * k : 3 * k + 3] for k in range(3)] for ((_, x),) in test])
    found = np.array([list(map(float, row.split())) for row in out.read_text().splitlines()])
    assert found.shape == (40, 4)
    assert found[:, 0].tolist() == (expected.argmax(axis=1) + 1).tolist()
    assert np.abs(found[:, 1:] - expected).max() <= 0.02 * np.abs(expected).max()
    right = sum(tags == (one[0][0],) for one, tags in zip(test, predict(test, w), strict=True))
    error = f"{100 * (40 - right) / 40:.2f}% ({right} correct, {40 - right} incorrect, 40 total)"
    assert f"Zero/one-error on test set: {error}" in printed
    cost = squares if "-l" in options else hundred
    loss = np.mean([cost((one[0][0],), (int(k),)) for one, k in zip(test, found[:, 0], strict=True)])
    assert f"Average loss on test set: {loss:.4f}" in printed


@pytest.mark.parametrize(
    ("algorithm", "order", "rescaling"), [(0, 1, 2), (3, 1, 2), (4, 1, 2), (4, 2, 2), (4, 0, 2), (3, 1, 1)]
)
def test_hmm_tags_are_those_of_the_papers_programme(folder, tmp_path, capsys, algorithm, order, rescaling):
    model, out = tmp_path / "model", tmp_path / "out"
    options = ("-c", 5, "-e", 1e-4, "-w", algorithm, "--t", order, "-o", rescaling)
    assert command("svm-hmm", "learn", *options, folder / "tags.dat", model) == 0
    capsys.readouterr()
    assert command("svm-hmm", "classify", folder / "tags-test.dat", model, out) == 0
    train, test = examples_of(folder / "tags.dat"), examples_of(folder / "tags-test.dat")
    w = optimum(train, 5, wrong_tags, rescaling == 1, order)
    expected = predict(test, w, order)
    assert out.read_text() == "".join(f"{tag}\n" for tags in expected for tag in tags)
    truth = [tuple(tag for tag, _ in one) for one in test]
    wrong = sum(wrong_tags(one, other) for one, other in zip(truth, expected, strict=True))
    right = sum(one == other for one, other in zip(truth, expected, strict=True))
    printed = capsys.readouterr().out
    assert f"Average loss per token: {wrong / 90:.4f}" in printed
    assert f"({right} correct, {30 - right} incorrect, 30 total)" in printed
    weights = np.concatenate(
        [mm.load(model).coef_.ravel(), getattr(mm.load(model), "transition_coef_", np.zeros((3, 3))).ravel()]
    )
    assert np.abs(weights - w[:18]).max() <= 0.02 * np.abs(w).max()


def test_kernels_are_svm_lights(folder, tmp_path):
    """A polynomial kernel of degree 1 with r = 0 and s = 4 is the linear one on features twice as large."""
    doubled = tmp_path / "doubled.dat"
    doubled.write_text(re.sub(r":(\S+)", lambda found: f":{2 * float(found[1])}", (folder / "classes.dat").read_text()))
    test = tmp_path / "test.dat"
    test.write_text(
        re.sub(r":(\S+)", lambda found: f":{2 * float(found[1])}", (folder / "classes-test.dat").read_text())
    )
    outs = []
    for name, train, new, options in (
        ("linear", doubled, test, ()),
        ("poly", folder / "classes.dat", folder / "classes-test.dat", ("-t", 1, "-d", 1, "-s", 4, "-r", 0)),
    ):
        line = ("-v", 0, "-c", 20, "-e", 1e-3, *options, train, tmp_path / name)
        assert command("svm-multiclass", "learn", *line) == 0
        assert command("svm-multiclass", "classify", "-v", 0, new, tmp_path / name, tmp_path / "out") == 0
        outs.append(np.loadtxt(tmp_path / "out"))
    assert np.abs(outs[0] - outs[1]).max() <= 0.02 * np.abs(outs[0]).max()
    line = ("-v", 0, "-c", 20, "-t", 2, "-g", 0.5, folder / "tags.dat", tmp_path / "rbf")
    assert command("svm-hmm", "learn", *line) == 0
    rbf = mm.load(tmp_path / "rbf")
    assert (rbf.kernel, rbf.gamma, rbf.boundary, rbf.fit_intercept, rbf.loss) == ("rbf", 0.5, False, False, "count")


def test_files_have_their_names_when_none_are_given(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert command("svm-multiclass", "learn", folder / "classes.dat") == 0
    assert command("svm-multiclass", "classify", folder / "classes-test.dat", "svm_struct_model") == 0
    assert len((tmp_path / "svm_predictions").read_text().splitlines()) == 40
    bare = tmp_path / "bare.dat"
    bare.write_text(re.sub(r"(?m)^\d", "0", (folder / "classes-test.dat").read_text()))
    capsys.readouterr()
    assert command("svm-multiclass", "classify", bare, "svm_struct_model", "bare.out") == 0
    assert "no labels to compare with" in capsys.readouterr().out
    assert (tmp_path / "bare.out").read_text() == (tmp_path / "svm_predictions").read_text()


def test_classes_without_examples(tmp_path, capsys):
    (tmp_path / "gap.dat").write_text("1 1:1\n4 2:1\n1 1:2\n4 2:2\n")
    assert command("svm-multiclass", "learn", "-c", 100, tmp_path / "gap.dat", tmp_path / "model") == 0
    assert "No example has the class 2, 3" in capsys.readouterr().err
    assert command("svm-multiclass", "classify", tmp_path / "gap.dat", tmp_path / "model", tmp_path / "out") == 0
    lines = [row.split() for row in (tmp_path / "out").read_text().splitlines()]
    assert [row[0] for row in lines] == ["1", "4", "1", "4"]
    assert {tuple(row[2:4]) for row in lines} == {("-inf", "-inf")}


# ------------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("line", "code", "sentence"),
    [
        (("svm-multiclass", "learn", "-z", "1", "train"), 2, r"svm-multiclass learn has no option -z; it has -c, -e"),
        (("svm-multiclass", "learn", "--t", "1", "train"), 2, r"has no option --t"),
        (("svm-hmm", "learn", "-c"), 2, r"svm-hmm learn: -c needs a value"),
        (("svm-hmm", "learn", "-c", "five", "train"), 2, r"-c is 'five'; expected a number"),
        (("svm-hmm", "learn", "-c", "0", "train"), 2, r"-c is 0; it must be above 0"),
        (("svm-hmm", "learn", "-w", "9", "train"), 2, r"-w is 9; possible are 0, 1, 2, 3, 4 \(9 is an algorithm of your own"),
        (("svm-hmm", "learn", "-p", "2", "train"), 2, r"-p is 2; possible are 1: squared slacks"),
        (("svm-hmm", "learn", "-t", "3", "train"), 2, r"-t is 3; possible are 0, 1, 2"),
        (("svm-hmm", "learn", "--t", "3", "train"), 2, r"--t is 3; possible are 0, 1, 2: transitions see two tags"),
        (("svm-hmm", "learn", "--t", "0", "--e", "1", "train"), 2, r"--e must be at most --t"),
        (("svm-hmm", "learn", "-a", "alphas", "train"), 2, r"-a is not possible"),
        (("svm-hmm", "learn", "-b", "0", "train"), 2, r"-b is 0; expected a percentage"),
        (("svm-hmm", "learn", "train", "model", "-c", "1"), 2, r"-c stands after a file"),
        (("svm-hmm", "learn"), 2, r"0 files found; expected the training data and, if it is not to be svm_struct_model"),
        (("svm-hmm", "classify", "test"), 2, r"1 file found; expected the test data, a model and"),
        (("svm-hmm", "learn", "missing.dat", "m"), 3, r"missing\.dat"),
        (("svm-hmm", "learn", "names", "m"), 3, r"names: the tag 'N' was found; SVM-struct's files have whole numbers"),
        (("svm-multiclass", "learn", "zero", "m"), 3, r"zero: the class 0 was found"),
        (("svm-hmm", "classify", "train", "classes", "out"), 3, r"classes is a model for the task multi-class; svm-hmm"),
        (("svm-multiclass", "classify", "zero", "theirs", "out"), 3, r"theirs is a model of SVM-struct's own program"),
        (("svm-multiclass", "classify", "wide", "classes", "out"), 3, r"wide, line 1: .*9"),
    ],
)  # fmt: skip
def test_a_sentence(folder, tmp_path, monkeypatch, capsys, line, code, sentence):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train").write_text((folder / "tags.dat").read_text())
    (tmp_path / "names").write_text("N qid:1 1:1\n")
    (tmp_path / "zero").write_text("0 1:1\n1 1:2\n")
    (tmp_path / "wide").write_text("1 9:1\n")
    (tmp_path / "theirs").write_text("SVM-multiclass Version V2.20\n3 # number of classes\n")
    if "classes" in line:
        assert command("svm-multiclass", "learn", "-v", 0, folder / "classes.dat", "classes") == 0
    capsys.readouterr()
    assert command(*line) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("maxmargin: ")
    assert re.search(sentence, err), err
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "m").exists()


def test_what_is_ignored_is_said(folder, tmp_path, capsys):
    options = ("-y", 0, "-#", 5, "-k", 3, "--b", 10, "-c", 1)
    assert command("svm-hmm", "learn", *options, folder / "tags.dat", tmp_path / "m") == 0
    err = capsys.readouterr().err
    for sentence in ("-y 0 is ignored", "-# 5 is ignored", "-k is ignored: it is for -w 0 and 1", "--b 10 is ignored"):
        assert sentence in err


def test_help_lists_the_options(capsys):
    for name, words in product(("svm-multiclass", "svm-hmm"), (("--help",), ("learn", "--help"), ("classify", "-?"))):
        assert command(name, *words) == 0
        out = capsys.readouterr().out
        assert f"maxmargin {name} learn [options] TRAIN [MODEL]" in out
        assert "-c   C: the loss against the regulariser (default: 0.01)" in out

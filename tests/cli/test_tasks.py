"""The command line on every task: what is read, trained, predicted, compared and described."""

import itertools
import json
import re

import numpy as np
import pytest

import maxmargin as mm
from maxmargin.cli import names
from maxmargin.cli.arrays import read_arrays
from maxmargin.cli.main import run
from maxmargin.cli.metrics import labeling_metrics
from maxmargin.errors import DataError
from maxmargin.estimators.feature_space import KERNELS
from maxmargin.estimators.loading import TASKS
from maxmargin.formats import GraphData, write_graphs
from maxmargin.inference import ENGINES
from maxmargin.solvers import SOLVERS
from maxmargin.solvers.core.capabilities import OBJECTIVES


@pytest.fixture(autouse=True)
def no_debugging(monkeypatch):
    monkeypatch.delenv("MAXMARGIN_DEBUG", raising=False)


def svmlight(path, X, labels):
    path.write_text(
        "".join(
            f"{y} " + " ".join(f"{k + 1}:{v}" for k, v in enumerate(x)) + "\n" for x, y in zip(X, labels, strict=True)
        )
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small data set of every task, and a model of each."""
    folder = tmp_path_factory.mktemp("tasks")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3)).round(3)
    two, three = (X[:, 0] > 0).astype(int), np.digitize(X[:, 1], [-0.4, 0.4])
    svmlight(folder / "binary.svm", X, np.array(["-1", "+1"])[two])
    svmlight(folder / "words.svm", X, np.array(["low", "middle", "high"])[three])
    np.savez(folder / "binary.npz", X=X, y=two)
    np.savez(folder / "multi-class.npz", X=X, y=three, classes=["low", "middle", "high"], split=np.arange(60) % 2)
    Y = np.column_stack([two, three == 2])
    np.savez(folder / "multi-label.npz", X=X, y=Y, classes=["on", "high"])
    np.savez(folder / "bare.npz", X=X)
    header = (
        "@relation toy\n" + "".join(f"@attribute {name} numeric\n" for name in "abc") + "@attribute sign {0,1}\n@data\n"
    )
    rows = [",".join(map(str, [*x, y])) for x, y in zip(X, two, strict=True)]
    (folder / "binary.arff").write_text(header + "\n".join(rows) + "\n")
    pointers = np.array([0, 4, 5, 12, 30, 33, 60])
    np.savez(
        folder / "chain.npz", X=X, y=three, classes=["A", "B", "C"], sequence_ptr=pointers, split=[0, 0, 1, 0, 0, 0]
    )
    edges = np.array([[0, 1], [1, 2], [2, 0]])
    graphs = [(X[3 * m : 3 * m + 3], edges, np.ones((3, 1))) for m in range(20)]
    write_graphs(folder / "graph.npz", GraphData(graphs, np.split(three, 20), ["low", "middle", "high"]))
    for task in names.TASKS[:5]:
        assert run(["train", str(folder / f"{task}.npz"), "-C", "10", "--quiet", "-o", str(folder / f"{task}.mm")]) == 0
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


# ------------------------------------------------------------------------------------------------- names


def test_help_lists_what_there_is(capsys):
    assert sorted(names.SOLVERS) == sorted(SOLVERS), "cli/names.py says what --help lists"
    assert sorted(names.ENGINES) == sorted(ENGINES), "cli/names.py says what --help lists"
    assert list(names.TASKS) == list(TASKS)
    assert {*names.KERNELS, "precomputed"} == set(KERNELS)
    assert run(["train", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for name in (*SOLVERS, *ENGINES, *names.TASKS, *names.KERNELS):
        assert re.search(rf"[ {{,]{name}[ ,}}]", text), name


# ------------------------------------------------------------------------------------------------- train


@pytest.mark.parametrize(
    ("name", "task", "classes"),
    [
        ("binary.svm", "binary", [-1, 1]),
        ("words.svm", "multi-class", ["high", "low", "middle"]),
        ("binary.npz", "binary", [0, 1]),
        ("multi-class.npz", "multi-class", ["high", "low", "middle"]),
        ("multi-label.npz", "multi-label", ["on", "high"]),
        ("chain.npz", "chain", ["A", "B", "C"]),
        ("graph.npz", "graph", ["high", "low", "middle"]),
    ],
)
def test_the_file_says_the_task(folder, tmp_path, capsys, name, task, classes):
    assert answer(capsys, "train", folder / name, "--quiet", "-o", tmp_path / "a.mm")["task"] == task
    model = mm.load(tmp_path / "a.mm")
    assert type(model) is TASKS[task]
    assert model.classes_.tolist() == classes


def test_the_user_says_the_task(folder, capsys):
    for name, task in (("binary.svm", "multi-class"), ("binary.svm", "multi-label"), ("binary.arff", "binary")):
        assert answer(capsys, "train", folder / name, "--task", task, "--quiet")["task"] == task
    refused(capsys, 2, "holds binary data, but --task is graph", "train", folder / "binary.npz", "--task", "graph")
    refused(capsys, 2, "holds chain data, but --task is binary", "train", folder / "chain.npz", "--task", "binary")
    refused(
        capsys, 2, "holds multi-label data, but --task is chain", "train", folder / "multi-label.npz", "--task", "chain"
    )
    refused(capsys, 2, "--edges is for multi-label data", "train", folder / "chain.npz", "--edges", "tree")
    refused(capsys, 2, "--edge-weights is for graphs", "train", folder / "binary.svm", "--edge-weights", "potts")
    refused(capsys, 2, "loss='one-zero' is not known", "train", folder / "chain.npz", "--loss", "one-zero")
    # The last attribute alone is the label; the one before is none.
    refused(capsys, 3, "2 labels; the task binary needs one|expected 0 or 1", "train", folder / "binary.arff", "--task", "binary",
            "--n-labels", "2")  # fmt: skip
    assert answer(capsys, "train", folder / "binary.svm", "--loss", "zero-one", "--quiet")["status"] == "CONVERGED"


@pytest.mark.parametrize(
    ("name", "solver", "engine"),
    [
        ("binary.npz", "soft-bcfw: without factors every block has a closed-form optimum", "trees (exact)"),
        (
            "chain.npz",
            "bcfw: no graph has a cycle, so max-product is an exact oracle",
            "trees (exact): no graph has a cycle",
        ),
    ],
)
def test_training_says_what_was_chosen_and_why(folder, capsys, name, solver, engine):
    assert run(["train", str(folder / name), "--quiet"]) == 0
    out = capsys.readouterr().out
    assert f"solver       {solver}\n" in out
    assert f"inference    {engine}" in out
    assert ("6 sequences, 3 features, 3 labels (chain)" if name == "chain.npz" else "60 examples") in out
    assert run(["train", str(folder / name), "--quiet", "--solver", "bcfw", "--inference", "junction_tree"]) == 0
    out = capsys.readouterr().out
    assert "solver       bcfw: as asked\n" in out
    assert "inference    junction_tree (exact): as asked\n" in out


def test_kernels(folder, tmp_path, capsys):
    for name in ("binary.svm", "multi-label.npz", "chain.npz", "graph.npz"):
        line = [
            "train",
            folder / name,
            "--kernel",
            "rbf",
            "--gamma",
            "0.5",
            "-C",
            "10",
            "--quiet",
            "-o",
            tmp_path / "a.mm",
        ]
        assert answer(capsys, *line, "--test", folder / name)["kernel"] == "rbf"
        model = mm.load(tmp_path / "a.mm")
        assert model.gamma_ == 0.5
        assert len(answer(capsys, "predict", tmp_path / "a.mm", folder / name)["predictions"]) > 0
        assert "strongest_weights" not in answer(capsys, "info", tmp_path / "a.mm")
        assert run(["info", str(tmp_path / "a.mm")]) == 0
        assert f"rbf, gamma 0.5; {len(model.support_)} of 60 training rows count" in capsys.readouterr().out
    assert run(["train", str(folder / "binary.svm"), "--kernel", "poly", "--degree", "2", "--quiet"]) == 0
    assert re.search(r"kernel       poly, gamma 0\.\d+, degree 2, coef0 1; \d+ of 60", capsys.readouterr().out)
    refused(capsys, 2, "gamma=-1.0 is not possible", "train", folder / "none.svm", "--kernel", "rbf", "--gamma", "-1")
    refused(capsys, 2, "degree=0 is not possible", "train", folder / "none.svm", "--kernel", "poly", "--degree", "0")
    refused(capsys, 2, "--kernel needs DATA", "train", "--kernel", "rbf")
    assert run(["train", str(folder / "binary.svm"), "--kernel", "precomputed"]) == 2


# ------------------------------------------------------------------------------------------------- predict, evaluate, info


@pytest.mark.parametrize("task", names.TASKS[:5])
def test_predictions_are_the_models(folder, capsys, task):
    model, path = mm.load(folder / f"{task}.mm"), folder / f"{task}.npz"
    with np.load(path) as arrays:
        X, pointers = arrays["X"], arrays.get("sequence_ptr", np.arange(0, 61, 3))
    inputs = X
    if task in ("chain", "graph"):
        inputs = [X[a:b] for a, b in itertools.pairwise(pointers)]
    if task == "graph":
        inputs = [(x, [[0, 1], [1, 2], [2, 0]], np.ones((3, 1))) for x in inputs]
    expected = model.predict(inputs)
    if task == "multi-label":
        expected = [model.classes_[row == 1].tolist() for row in expected]
    found = answer(capsys, "predict", folder / f"{task}.mm", path)
    assert found["predictions"] == [getattr(one, "tolist", lambda one=one: one)() for one in expected]
    scores = model.predict(inputs, return_bound=True)[1] if "bounds" in found else model.decision_function(inputs)
    np.testing.assert_allclose(found["scores"], scores)
    assert ("bounds" in found) == (task not in ("binary", "multi-class"))
    assert run(["predict", str(folder / f"{task}.mm"), str(path)]) == 0
    lines = capsys.readouterr().out.split("\n")[:-1]
    between = "," if task == "multi-label" else " "
    shown = [between.join(map(str, np.atleast_1d(one))) for one in expected]
    assert lines == shown


@pytest.mark.parametrize(
    ("task", "name"), [("binary", "accuracy"), ("multi-class", "accuracy"), ("graph", "node_accuracy")]
)
def test_accuracy(folder, capsys, task, name):
    found = answer(capsys, "evaluate", folder / f"{task}.mm", folder / f"{task}.npz")
    assert found[name] > 0.8
    guesses = answer(capsys, "predict", folder / f"{task}.mm", folder / f"{task}.npz")["predictions"]
    with np.load(folder / f"{task}.npz") as arrays:
        y = arrays["y"] if task == "binary" else arrays["classes"][arrays["y"]]
    assert found[name] == pytest.approx(np.mean(np.ravel(guesses) == y))
    assert run(["evaluate", str(folder / f"{task}.mm"), str(folder / f"{task}.npz")]) == 0
    assert capsys.readouterr().out.startswith(name.replace("_", " "))


def test_accuracy_of_chains(folder, capsys):
    found = answer(capsys, "evaluate", folder / "chain.mm", folder / "chain.npz")
    guesses = answer(capsys, "predict", folder / "chain.mm", folder / "chain.npz")["predictions"]
    with np.load(folder / "chain.npz") as arrays:
        y, pointers = arrays["classes"][arrays["y"]], arrays["sequence_ptr"]
    right = [np.array(guess) == y[a:b] for guess, a, b in zip(guesses, pointers[:-1], pointers[1:], strict=True)]
    assert found["tag_accuracy"] == pytest.approx(np.concatenate(right).mean())
    assert found["sequence_accuracy"] == pytest.approx(np.mean([one.all() for one in right]))
    assert "open_labels" not in found
    assert run(["evaluate", str(folder / "chain.mm"), str(folder / "chain.npz")]) == 0
    figures, _, labels = capsys.readouterr().out.partition("\n\n")
    assert [line.split("  ")[0] for line in figures.splitlines()] == ["tag accuracy", "sequence accuracy"]
    assert labels.split()[:5] == ["precision", "recall", "F1", "true", "predicted"]


def test_figures_of_labelings():
    truth, predicted = (
        [["a", None, "b"], ["a"], ["b", "b"]],
        [np.array(["a", "b", "a"]), np.array(["a"]), np.array(["b", "b"])],
    )
    assert labeling_metrics("graph", truth, predicted) == {"node_accuracy": 0.8}
    assert labeling_metrics("chain", truth, predicted) == {
        "tag_accuracy": 0.8,
        "sequence_accuracy": pytest.approx(2 / 3),
    }
    with pytest.raises(DataError, match="No label of this data is known"):
        labeling_metrics("graph", [[None]], [np.array(["a"])])


def test_labels_that_the_relaxation_leaves_open(folder, tmp_path, capsys):
    """A frustrated triangle: every pair wants to differ."""
    model = mm.MultiLabelSVM(fit_intercept=False, inference="graph_cut").fit(np.ones((2, 1)), [[1, 0, 0], [0, 1, 1]])
    model.result_.weights[:] = [1.0, 1.0, 1.0, -1.0, -1.0, -1.0]
    model.save(tmp_path / "a.mm")
    np.savez(tmp_path / "a.npz", X=np.array([[1.0], [4.0]]), y=np.ones((2, 3), int))
    # With 4 times the scores of labels all three are on, without doubt.
    assert answer(capsys, "evaluate", tmp_path / "a.mm", tmp_path / "a.npz")["open_labels"] == 0.5
    assert run(["evaluate", str(tmp_path / "a.mm"), str(tmp_path / "a.npz")]) == 0
    assert "labels left open by the relaxation  0.5000" in capsys.readouterr().out


@pytest.mark.parametrize("task", names.TASKS[:5])
def test_info(folder, capsys, task):
    found = answer(capsys, "info", folder / f"{task}.mm")
    model = mm.load(folder / f"{task}.mm")
    assert (found["task"], found["kernel"]) == (task, "linear")
    assert found["reason"] == model.result_.options["reason"]
    strongest = abs(model.coef_).max()
    name, weight = next(iter(found["strongest_weights"].items()))
    assert abs(weight) == pytest.approx(strongest)
    if task == "binary":
        assert name.startswith("1: x")
    assert ("strongest_edges" in found) == (task in ("multi-label", "graph"))
    if task == "chain":
        by_hand = {f"{a} > {b}": model.transition_coef_[i, j] for i, a in enumerate("ABC") for j, b in enumerate("ABC")}
        by_hand |= {f"start > {a}": model.start_coef_[i] for i, a in enumerate("ABC")}
        by_hand |= {f"{a} > end": model.end_coef_[i] for i, a in enumerate("ABC")}
        shown = found["strongest_transitions"]
        assert shown == {name: by_hand[name] for name in shown}
        assert sorted(map(abs, shown.values())) == sorted(map(abs, by_hand.values()))[-len(shown) :]
    assert run(["info", str(folder / f"{task}.mm")]) == 0
    assert task in capsys.readouterr().out


def test_a_chain_without_boundary(folder, tmp_path, capsys):
    X = [np.eye(2), np.eye(2)[::-1]]
    mm.ChainSVM(boundary=False).fit(X, [["a", "b"], ["b", "a"]]).save(tmp_path / "a.mm")
    assert not any("start" in name for name in answer(capsys, "info", tmp_path / "a.mm")["strongest_transitions"])


def test_spellings_of_labels(folder, tmp_path, capsys):
    """+1 is 1, 0 is an example without a label, and an unknown label is one with its line."""
    assert run(["train", str(folder / "binary.svm"), "--quiet", "-o", str(tmp_path / "a.mm")]) == 0
    capsys.readouterr()
    lines = (folder / "binary.svm").read_text()
    (tmp_path / "plain.svm").write_text(lines.replace("+1 ", "1 "))
    one = answer(capsys, "evaluate", tmp_path / "a.mm", folder / "binary.svm")["accuracy"]
    assert one == answer(capsys, "evaluate", tmp_path / "a.mm", tmp_path / "plain.svm")["accuracy"] > 0.9
    expected = answer(capsys, "predict", tmp_path / "a.mm", folder / "binary.svm")["predictions"]
    (tmp_path / "zero.svm").write_text(re.sub(r"(?m)^\S+ ", "0 ", lines))
    (tmp_path / "none.svm").write_text(re.sub(r"(?m)^\S+ ", " ", lines))
    for name in ("zero.svm", "none.svm"):
        assert answer(capsys, "predict", tmp_path / "a.mm", tmp_path / name)["predictions"] == expected
        refused(capsys, 3, r"y\[0\] is None", "evaluate", tmp_path / "a.mm", tmp_path / name)
    (tmp_path / "other.svm").write_text("+1 1:1\n7 1:2\n")
    refused(capsys, 3, "line 2: the label '7' is not among", "evaluate", tmp_path / "a.mm", tmp_path / "other.svm")


def test_files_without_labels(folder, capsys):
    for task in ("binary", "multi-class", "multi-label"):
        assert len(answer(capsys, "predict", folder / f"{task}.mm", folder / "bare.npz")["predictions"]) == 60
        refused(capsys, 3, "no labels to compare with", "evaluate", folder / f"{task}.mm", folder / "bare.npz")
    refused(
        capsys,
        3,
        "holds binary data, but the model is for the task chain",
        "predict",
        folder / "chain.mm",
        folder / "bare.npz",
    )
    refused(capsys, 3, "has no labels: the array 'y' is missing", "train", folder / "bare.npz")


def test_data_that_is_not_for_this_model(folder, capsys):
    refused(capsys, 3, "holds multi-class data, but the model is for the task graph", "evaluate", folder / "graph.mm",
            folder / "multi-class.npz")  # fmt: skip
    refused(capsys, 3, "holds multi-label data, but the model is for the task chain", "evaluate", folder / "chain.mm",
            folder / "binary.svm")  # fmt: skip
    refused(capsys, 2, "--task is chain, but the model is for the task binary", "evaluate", folder / "binary.mm",
            folder / "binary.npz", "--task", "chain")  # fmt: skip
    # Classes that were not seen in training are wrong.
    assert answer(capsys, "evaluate", folder / "binary.mm", folder / "multi-class.npz")["accuracy"] == 0.0


def test_splits(folder, capsys):
    assert answer(capsys, "train", folder / "multi-class.npz", "--split", "1", "--quiet")["n_examples"] == 30
    assert answer(capsys, "train", folder / "chain.npz", "--split", "0", "--quiet")["n_examples"] == 5
    refused(capsys, 3, r"nothing has split=7; found \[0, 1\]", "train", folder / "chain.npz", "--split", "7")
    refused(capsys, 3, "the file has no array 'split'", "train", folder / "binary.npz", "--split", "7")


# ------------------------------------------------------------------------------------------------- bad files


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"y": [1]}, "the array 'X' is missing"),
        ({"X": [1.0]}, r"'X' has dtype float64 and shape \(1,\)"),
        ({"X": [["a"]]}, "'X' has dtype <U1"),
        ({"X": np.ones((2, 1)), "y": [1]}, "expected a label for each of the 2 rows"),
        ({"X": np.ones((2, 1)), "y": [1j, 2]}, "'y' has dtype complex128"),
        ({"X": np.ones((2, 1)), "y": [0, 2], "classes": ["a", "b"]}, "row 1 has the label 2; expected 0 to 1"),
        ({"X": np.ones((2, 1)), "y": ["a", "b"], "classes": ["a", "b"]}, "row 0 has the label a; expected 0 to 1"),
        ({"X": np.ones((2, 1)), "y": [0, 1], "classes": ["a", "a"]}, "expected distinct strings"),
        ({"X": np.ones((2, 1)), "y": [0, 1], "classes": [1, 2]}, "'classes' has dtype int64"),
        ({"X": np.ones((2, 1)), "y": [0, 1], "sequence_ptr": [0, 1]}, "whole numbers from 0 to the 2 rows"),
        ({"X": np.ones((2, 1)), "y": [0, 1], "sequence_ptr": [0, 2, 2]}, "sequence 1 goes from row 2 to 2"),
        ({"X": np.ones((2, 1)), "y": np.eye(2), "sequence_ptr": [0, 2]}, "sequences have one tag a row"),
        ({"X": np.ones((2, 1)), "split": [1]}, r"'split' has dtype int64 and shape \(1,\); expected 2"),
        ({"X": np.array([[{}]], object)}, "pickled objects"),
    ],
)
def test_arrays_that_do_not_fit(tmp_path, arrays, sentence):
    np.savez(tmp_path / "a.npz", **{name: np.asarray(array) for name, array in arrays.items()})
    with pytest.raises(DataError, match=sentence):
        read_arrays(str(tmp_path / "a.npz"), 1 if "split" in arrays else None)


def test_files_that_are_no_archives(folder, tmp_path, capsys):
    whole = (folder / "chain.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[:-40])
    refused(capsys, 3, "truncated or corrupt", "train", tmp_path / "cut.npz")
    (tmp_path / "text.npz").write_text("hello")
    refused(capsys, 3, "this is not an npz file", "train", tmp_path / "text.npz")
    refused(capsys, 3, "cannot be read: No such file", "train", tmp_path / "none.npz")
    (tmp_path / "flipped.npz").write_bytes(whole.replace(b"NUMPY", b"NUMPI"))
    refused(capsys, 3, r"truncated or corrupt|pickled", "train", tmp_path / "flipped.npz")


def test_objectives(tmp_path, capsys):
    assert names.OBJECTIVES == OBJECTIVES
    path = tmp_path / "rows.svm"
    path.write_text("".join(f"{k % 3 + 1} 1:{k % 3} 2:{k % 2}\n" for k in range(30)))
    train = ["train", str(path), "--task", "multi-class", "--quiet", "--json"]
    assert run([*train, "--objective", "log", "--solver", "lbfgs"]) == 0
    assert json.loads(capsys.readouterr().out)["solver"] == "lbfgs"
    assert run([*train, "--objective", "log"]) == 0
    assert json.loads(capsys.readouterr().out)["solver"] == "lbfgs"
    # Found before the data is read.
    for options, sentence in (
        (
            ["--solver", "lbfgs"],
            "--solver lbfgs is for --objective log or softmax-margin, not for margin; with --objective margin use auto or",
        ),
        (
            ["--solver", "bcfw", "--objective", "log"],
            "--solver bcfw is for --objective margin, not for log; with --objective log use auto or one of: bundle, "
            "exponentiated-gradient, lbfgs.",
        ),
    ):
        assert run(["train", str(tmp_path / "nowhere.svm"), *options]) == 2
        assert sentence in capsys.readouterr().err
    assert run(["train", "--objective", "log"]) == 2
    assert "--objective needs DATA" in capsys.readouterr().err

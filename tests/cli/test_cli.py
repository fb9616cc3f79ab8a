"""The command line: what it prints, where, and how it ends."""

import errno
import json
import os
import signal
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import maxmargin as mm
from maxmargin.cli import demonstration
from maxmargin.cli.main import run
from maxmargin.formats import GraphData, MultiLabelData, write_graphs, write_libsvm_multilabel
from maxmargin.solvers.core.solver import Solver


@pytest.fixture(autouse=True)
def no_debugging(monkeypatch):
    monkeypatch.delenv("MAXMARGIN_DEBUG", raising=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One small data set in every format, and models trained on it."""
    folder = tmp_path_factory.mktemp("cli")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3)).round(3)
    Y = (X[:, :2] > 0).astype(np.int8)
    header = "@relation toy\n" + "".join(f"@attribute {name} numeric\n" for name in ("size", "weight", "age"))
    header += "@attribute red {0,1}\n@attribute blue {0,1}\n@data\n"
    rows = [",".join(map(str, [*x, *y])) for x, y in zip(X, Y, strict=True)]
    (folder / "toy.arff").write_text(header + "\n".join(rows) + "\n")
    (folder / "toy.xml").write_text('<labels><label name="red"/><label name="blue"/></labels>')
    (folder / "bare.arff").write_text((folder / "toy.arff").read_text())
    (folder / "broken.arff").write_text(header + "\n".join(rows[:2]) + "\n1,2,oops,0,1\n")
    write_libsvm_multilabel(folder / "toy.svm", MultiLabelData(_csr(X), Y, ["1", "2", "3"], ["red", "blue"]))
    graphs = [(rng.normal(size=(3, 2)), np.array([[0, 1], [1, 2]]), np.ones((2, 1))) for _ in range(10)]
    labels = [(nodes[:, 0] > 0).astype(np.int64) for nodes, _, _ in graphs]
    write_graphs(folder / "toy.npz", GraphData(graphs, labels, ["cat", "dog"]))
    for name in ("arff", "svm", "npz"):
        assert (
            run(
                [
                    "train",
                    str(folder / f"toy.{name}"),
                    "-C",
                    "10",
                    "--tol",
                    "0.01",
                    "--quiet",
                    "-o",
                    str(folder / f"{name}.mm"),
                ]
            )
            == 0
        )
    return folder


def _csr(X):
    from scipy.sparse import csr_array

    return csr_array(X)


# ------------------------------------------------------------------------------------------------- help


@pytest.mark.parametrize("command", [[], ["train"], ["predict"], ["evaluate"], ["info"]])
def test_help_explains_the_exit_codes(capsys, command):
    assert run([*command, "--help"]) == 0
    out, err = capsys.readouterr()
    assert "exit codes:" in out
    assert "130  interrupted" in out
    assert err == ""


def test_help_imports_nothing_heavy():
    code = """
import sys
from maxmargin.cli.main import run
assert run(["train", "--help"]) == 0
assert not {"numba", "numpy", "scipy", "sklearn", "rich", "matplotlib"} & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "maxmargin train" in done.stdout


def test_version(capsys):
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"maxmargin {mm.__version__}\n"


@pytest.mark.parametrize("line", [[], ["fly"], ["train", "--magic"], ["train", "-C", "much"], ["predict", "model.mm"]])
def test_wrong_usage(capsys, line):
    assert run(line) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "usage: maxmargin" in err


# ------------------------------------------------------------------------------------------------- train


@pytest.mark.parametrize(
    ("name", "labels"), [("arff", ["red", "blue"]), ("svm", ["blue", "red"]), ("npz", ["cat", "dog"])]
)
def test_models_know_names(folder, name, labels):
    model = mm.load(folder / f"{name}.mm")
    assert model.classes_.tolist() == labels
    assert str(model.result_.status) == "CONVERGED"
    assert not hasattr(model, "feature_names_in_")


def test_training_says_what_it_did(folder, capsys):
    assert (
        run(["train", str(folder / "toy.arff"), "-C", "10", "--tol", "0.01", "--test", str(folder / "toy.arff")]) == 0
    )
    out, err = capsys.readouterr()
    assert "40 examples, 3 features, 2 labels, 1 pairs" in out
    assert "CONVERGED after" in out
    assert "certificate  exact" in out
    assert "Hamming loss" in out
    assert "Not saved; -o model.mm keeps the model." in out
    assert "CONVERGED" in err
    assert "\x1b" not in err


def test_json_is_one_object_and_nothing_else(folder, capsys):
    line = [
        "train",
        str(folder / "toy.svm"),
        "--json",
        "--tol",
        "0.01",
        "--edges",
        "none",
        "--no-intercept",
        "-C",
        "1",
        "--test",
        str(folder / "toy.svm"),
    ]
    assert run(line) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert (found["status"], found["certificate"], found["C"]) == ("CONVERGED", "exact", 1.0)
    assert (found["n_examples"], found["n_labels"], found["n_weights"]) == (40, 2, 6)
    assert found["gap"] <= 0.01
    assert 0 <= found["test"]["hamming_loss"] <= 1
    assert "CONVERGED" in err


def test_graphs(folder, capsys):
    assert (
        run(
            [
                "train",
                str(folder / "toy.npz"),
                "--edge-weights",
                "potts",
                "--json",
                "--quiet",
                "--test",
                str(folder / "toy.npz"),
            ]
        )
        == 0
    )
    out, err = capsys.readouterr()
    assert err == ""
    found = json.loads(out)
    assert found["task"] == "graph"
    assert found["test"]["node_accuracy"] > 0.6


def test_not_converged(folder, tmp_path, capsys):
    path = tmp_path / "a.mm"
    assert run(["train", str(folder / "toy.arff"), "--max-passes", "2", "--tol", "0", "--quiet", "-o", str(path)]) == 1
    assert "MAX_PASSES" in capsys.readouterr().out
    assert str(mm.load(path).result_.status) == "MAX_PASSES"


def test_interrupted_in_the_middle(folder, tmp_path, capsys, monkeypatch):
    solve = Solver.solve

    class CtrlC:
        def start(self, *_):
            pass

        def update(self, report):
            raise KeyboardInterrupt

        def stop(self, summary):
            pass

    monkeypatch.setattr(
        Solver, "solve", lambda self, problem, **options: solve(self, problem, **(options | {"monitor": CtrlC()}))
    )
    path = tmp_path / "a.mm"
    assert run(["train", str(folder / "toy.arff"), "-C", "1", "--tol", "0", "-o", str(path)]) == 130
    out, err = capsys.readouterr()
    assert f"Model saved to {path}." in out
    assert "Interrupted; this is the best certified model so far." in err
    assert np.isfinite(mm.load(path).result_.gap)
    # While C is being chosen nothing is certified, and nothing says so.
    assert run(["train", str(folder / "toy.arff"), "--tol", "0", "-o", str(path)]) == 130
    assert "best certified" not in (err := capsys.readouterr().err)
    assert "Interrupted while C was being chosen" in err
    assert mm.load(path).result_.certificate == "none"


def test_interrupted_before_there_is_a_model(folder, capsys, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(Solver, "solve", stop)
    assert run(["train", str(folder / "toy.arff")]) == 130
    assert capsys.readouterr().err == "maxmargin: Interrupted before there was a model; nothing was written.\n"


@pytest.mark.skipif(os.name != "posix", reason="signals are those of POSIX")
@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGHUP", 129), ("SIGINT", 130)])
def test_signals_keep_the_best_model(folder, tmp_path, capsys, monkeypatch, name, code):
    """Without a handler, SIGTERM and SIGHUP end the process, and the model is lost."""
    solve = Solver.solve

    class Killed:
        def start(self, *_):
            pass

        def update(self, report):
            os.kill(os.getpid(), signal.Signals[name])
            return True

        def stop(self, summary):
            pass

    monkeypatch.setattr(
        Solver, "solve", lambda self, problem, **options: solve(self, problem, **(options | {"monitor": Killed()}))
    )
    path = tmp_path / "a.mm"
    assert run(["train", str(folder / "toy.arff"), "-C", "1", "--tol", "0", "-o", str(path)]) == code
    err = capsys.readouterr().err
    how = "Interrupted" if name == "SIGINT" else f"Stopped by {name}"
    assert f"{how}; this is the best certified model so far." in err
    assert mm.load(path).result_.status == "INTERRUPTED"
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.skipif(os.name != "posix", reason="signals are those of POSIX")
def test_signals_before_there_is_a_model(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(Solver, "solve", lambda *_, **__: os.kill(os.getpid(), signal.SIGTERM))
    assert run(["train", str(folder / "toy.arff"), "-o", str(tmp_path / "a.mm")]) == 143
    assert capsys.readouterr().err.endswith("Stopped by SIGTERM before there was a model; nothing was written.\n")
    assert not os.listdir(tmp_path)


def test_plot(folder, tmp_path):
    path = tmp_path / "gap.png"
    assert run(["train", str(folder / "toy.arff"), "--quiet", "--plot", str(path)]) == 0
    assert path.read_bytes().startswith(b"\x89PNG")
    assert run(["train", str(folder / "none.arff"), "--quiet", "--plot", str(tmp_path / "gap.mp3")]) == 2
    assert [entry.name for entry in tmp_path.iterdir()] == ["gap.png"]


# ------------------------------------------------------------------------------------------------- the demonstration


def test_the_demonstration_shows_why_structure_matters(capsys, tmp_path):
    path = tmp_path / "demo.mm"
    assert run(["train", "--json", "-o", str(path)]) == 0
    out, _ = capsys.readouterr()
    models = json.loads(out)["models"]
    assert models["structured"]["test_hamming_loss"] <= 0.06
    assert models["edgeless"]["test_hamming_loss"] >= 0.075
    for model in models.values():
        assert model["status"] == "CONVERGED"
        assert model["gap"] <= model["tol"]
    assert models["structured"]["certificate"] == "relaxed"
    assert models["edgeless"]["certificate"] == "exact"
    assert mm.load(path).edges_.shape == (45, 2)


def test_the_demonstration_in_words(capsys, monkeypatch):
    monkeypatch.setattr(demonstration, "_GRID", (1e3,))
    monkeypatch.setattr(demonstration, "_PASSES_TO_COMPARE", 2)
    assert run(["train", "--tol", "0.1"]) == 0
    out, err = capsys.readouterr()
    for word in (
        "edgeless",
        "structured",
        "test loss",
        "CONVERGED",
        "Strongest weights",
        "Next: 'maxmargin train DATA",
    ):
        assert word in out
    assert max(map(len, out.splitlines()[1:6])) <= 80
    assert err == ""


@pytest.mark.parametrize("option", [["--edges", "none"], ["--test", "x.arff"], ["--task", "graph"], ["--split", "1"]])
def test_options_that_need_data(capsys, option):
    assert run(["train", *option]) == 2
    assert f"{option[0]} needs DATA" in capsys.readouterr().err


# ---------------------------------------------------------------------------------------- predict, evaluate, info


@pytest.mark.parametrize("name", ["arff", "svm", "npz"])
def test_predict(folder, capsys, tmp_path, name):
    line = ["predict", str(folder / f"{name}.mm"), str(folder / f"toy.{name}")]
    assert run(line) == 0
    lines = capsys.readouterr().out.split("\n")
    assert len(lines) == (41 if name != "npz" else 11)
    words = {word for text in lines for word in text.replace(",", " ").split()}
    assert words == ({"red", "blue"} if name != "npz" else {"cat", "dog"})
    assert run([*line, "-o", str(tmp_path / "out.txt")]) == 0
    assert capsys.readouterr().out == ""
    assert (tmp_path / "out.txt").read_text() == "\n".join(lines)
    assert run([*line, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["predictions"]) == len(found["scores"]) == len(found["bounds"]) == len(lines) - 1


def test_evaluate(folder, capsys):
    assert run(["evaluate", str(folder / "arff.mm"), str(folder / "toy.arff"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["hamming_loss"] < 0.2
    assert 0.8 < found["micro_f1"] <= 1
    assert run(["evaluate", str(folder / "arff.mm"), str(folder / "toy.arff")]) == 0
    assert capsys.readouterr().out.split()[:2] == ["Hamming", "loss"]
    assert run(["evaluate", str(folder / "npz.mm"), str(folder / "toy.npz")]) == 0
    assert capsys.readouterr().out.startswith("node accuracy")


def test_metrics_agree_with_scikit_learn():
    from sklearn.metrics import f1_score, hamming_loss

    from maxmargin.cli.metrics import multi_label_metrics

    rng = np.random.default_rng(0)
    truth, predicted = rng.integers(0, 2, (20, 4)) == 1, rng.integers(0, 2, (20, 4)) == 1
    truth[:, 3] = predicted[:, 3] = False
    found = multi_label_metrics(truth, predicted)
    assert found["hamming_loss"] == pytest.approx(hamming_loss(truth, predicted))
    for kind in ("micro", "macro"):
        assert found[f"{kind}_f1"] == pytest.approx(f1_score(truth, predicted, average=kind, zero_division=0))
    assert found["subset_accuracy"] == pytest.approx((truth == predicted).all(axis=1).mean())


def test_labels_are_matched_by_name(folder, capsys):
    # LIBSVM's reader sorts the labels, ARFF keeps their order; the model trained on the one reads the other.
    assert run(["evaluate", str(folder / "svm.mm"), str(folder / "toy.svm"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["hamming_loss"] < 0.2
    # Nothing beside this file names its labels, but the model knows how many there are.
    assert run(["evaluate", str(folder / "arff.mm"), str(folder / "bare.arff"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["hamming_loss"] < 0.2


def test_info_of_a_model(folder, capsys):
    assert run(["info", str(folder / "arff.mm")]) == 0
    out = capsys.readouterr().out
    for word in ("multi-label", "CONVERGED", "red, blue", "red: size", "red + blue"):
        assert word in out
    assert run(["info", str(folder / "npz.mm"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["task"], found["C"], found["library_version"]) == ("graph", 10.0, mm.__version__)
    assert found["sizes"]["labels"] == 2


def test_weights_of_a_model_as_a_table(folder, capsys, tmp_path):
    model = mm.load(folder / "arff.mm")
    place = tmp_path / "weights.csv"
    assert run(["info", str(folder / "arff.mm"), "--weights", str(place)]) == 0
    written = pd.read_csv(place, index_col=0)
    assert written.index.tolist() == model.to_frame().index.tolist()
    np.testing.assert_allclose(written.to_numpy(), model.to_frame().to_numpy())
    capsys.readouterr()
    assert run(["info", str(folder / "arff.mm"), "--weights", "-", "--part", "pairs"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "label,other,weight"
    ends(capsys, ["info", folder / "arff.mm", "--weights", place, "--part", "pair"], 2, "Did you mean")
    ends(capsys, ["info", "--weights", place], 2, "needs a model file")


def test_info_of_the_installation(capsys):
    assert run(["info", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["versions"]["maxmargin"] == mm.__version__
    assert found["cores"] >= 1
    assert run(["info"]) == 0
    assert "numba" in capsys.readouterr().out


# ------------------------------------------------------------------------------------------------- what goes wrong


def ends(capsys, line, code, *words):
    assert run([str(word) for word in line]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("maxmargin: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    for word in words:
        assert word in err


def test_options_that_cannot_be(folder, capsys):
    data = folder / "toy.arff"
    ends(capsys, ["train", data, "-C", "-1"], 2, "C=-1.0 is not possible")
    ends(capsys, ["train", data, "--tol", "-1"], 2, "tol=-1.0 is not possible")
    ends(capsys, ["train", data, "--max-passes", "0"], 2, "max_passes=0")
    ends(capsys, ["train", data, "--solver", "sgd"], 2, "solver='sgd' is not known", '"soft-bcfw"')
    ends(capsys, ["train", data, "--loss", "square"], 2, "loss='square' is not known")
    ends(capsys, ["train", data, "--device", "gpu"], 2, "device='gpu' is not known", '"cuda"')
    ends(capsys, ["train", data, "--seed", "-1"], 2, "random_state=-1")
    ends(capsys, ["train", data, "--task", "graph"], 2, "holds multi-label data, but --task is graph")
    ends(capsys, ["train", data, "--edge-weights", "potts"], 2, "--edge-weights is for graphs")
    ends(capsys, ["train", folder / "toy.npz", "--edges", "tree"], 2, "--edges is for multi-label data")


def test_data_that_cannot_be_read(folder, capsys):
    ends(capsys, ["train", folder / "none.arff"], 3, "none.arff")
    ends(capsys, ["train", folder / "broken.arff", "--n-labels", "2"], 3, "broken.arff, line 10", "oops")
    ends(capsys, ["train", folder / "bare.arff"], 3, "nothing says which attributes are labels")
    ends(capsys, ["train", folder / "toy.xml"], 3, "the ending says nothing about the format")
    ends(capsys, ["train", folder / "toy.npz", "--split", "1"], 3, "split")
    (folder / "broken.svm").write_text("red 1:2\nblue 1:x\n")
    ends(capsys, ["train", folder / "broken.svm"], 3, "broken.svm, line 2")
    (folder / "nan.svm").write_text("red 1:2\nblue 1:nan\n")
    ends(capsys, ["train", folder / "nan.svm"], 3, "nan")
    (folder / "empty.svm").write_text("")
    ends(capsys, ["train", folder / "empty.svm"], 3, "empty.svm")


def test_data_that_is_not_for_this_model(folder, capsys):
    ends(capsys, ["predict", folder / "arff.mm", folder / "toy.npz"], 3, "the model is for the task multi-label")
    (folder / "other.svm").write_text("green 1:2\n")
    ends(
        capsys,
        ["evaluate", folder / "svm.mm", folder / "other.svm"],
        3,
        "line 1",
        "'green' is not among the 2 known labels",
    )
    (folder / "wide.svm").write_text("red 4:2\n")
    ends(capsys, ["evaluate", folder / "svm.mm", folder / "wide.svm"], 3, "line 1")
    renamed = (folder / "toy.arff").read_text()
    (folder / "renamed.arff").write_text(renamed.replace("age", "rage"))
    ends(
        capsys,
        ["predict", folder / "arff.mm", folder / "renamed.arff", "--n-labels", "2"],
        3,
        "feature 2 is 'rage'",
        "'age'",
    )
    (folder / "labels.arff").write_text(renamed.replace("blue", "pink"))
    ends(capsys, ["predict", folder / "arff.mm", folder / "labels.arff", "--n-labels", "2"], 3, "the label 'pink'")
    ends(capsys, ["predict", folder / "arff.mm", folder / "toy.arff", "--n-labels", "1"], 3, "labels")


def test_model_files_that_are_none(folder, capsys, tmp_path):
    whole = (folder / "arff.mm").read_bytes()
    (tmp_path / "cut.mm").write_bytes(whole[: len(whole) // 2])
    for command in ("predict", "evaluate"):
        ends(capsys, [command, tmp_path / "cut.mm", folder / "toy.arff"], 3, "cut.mm", "truncated")
    ends(capsys, ["info", tmp_path / "cut.mm"], 3, "truncated")
    ends(capsys, ["info", tmp_path / "none.mm"], 3, "does not exist")
    ends(capsys, ["info", folder / "toy.arff"], 3, "is no model file")


def test_output_is_checked_before_anything_else(folder, capsys, tmp_path, monkeypatch):
    def never(*_, **__):
        raise AssertionError("training has begun")

    monkeypatch.setattr(Solver, "solve", never)
    for option in ("-o", "--plot"):
        ends(capsys, ["train", folder / "toy.arff", option, tmp_path / "no" / "a.mm"], 4, "does not exist")
        ends(capsys, ["train", option, tmp_path], 4, "is a directory")
    ends(capsys, ["predict", folder / "none.mm", folder / "toy.arff", "-o", tmp_path / "no" / "a"], 4, "does not exist")


def test_a_full_disk(folder, capsys, tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    ends(capsys, ["train", folder / "toy.arff", "--quiet", "-o", tmp_path / "a.mm"], 4, "No space left on device")
    ends(capsys, ["predict", folder / "arff.mm", folder / "toy.arff", "-o", tmp_path / "a.txt"], 4, "No space left")
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_standard_output():
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "maxmargin.cli.main", "info"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 4
    assert "No space left" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(os.name != "posix", reason="needs pipes that close")
def test_a_reader_that_goes_away():
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "maxmargin.cli.main", "info"],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writing)
    assert done.returncode == 141
    assert done.stderr == ""


def test_an_error_inside_is_a_sentence_unless_debugging(folder, capsys, monkeypatch):
    def broken(*_, **__):
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(Solver, "solve", broken)
    ends(capsys, ["train", folder / "toy.arff"], 70, "ZeroDivisionError: oops", "MAXMARGIN_DEBUG=1")
    monkeypatch.setenv("MAXMARGIN_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        run(["train", str(folder / "toy.arff")])

"""The command line: held-out loss during training, predictions that are left open, smaller models."""

import json

import numpy as np
import pytest

import maxmargin as mm
from maxmargin.cli.main import run


@pytest.fixture(autouse=True)
def no_debugging(monkeypatch):
    monkeypatch.delenv("MAXMARGIN_DEBUG", raising=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stopping")
    rng = np.random.default_rng(0)
    for name, n in (("train", 60), ("held", 40)):
        X = rng.normal(size=(n, 8)).round(3)
        y = np.digitize(X[:, 0] + rng.normal(size=n), [-0.5, 0.5])
        # The last column is missing in most rows of the held-out file.
        lines = [
            f"{k} " + " ".join(f"{j + 1}:{v}" for j, v in enumerate(x[: 8 if name == "train" else 6]))
            for k, x in zip(y, X, strict=True)
        ]
        (folder / f"{name}.svm").write_text("\n".join(lines) + "\n")
        Y = np.column_stack([X[:, 0] > 0, X[:, 1] > 0]).astype(int)
        np.savez(folder / f"{name}-labels.npz", X=X, y=Y, classes=["on", "high"])
    words = "the DT\ndog NN\nbarks VB\n\na DT\ncat NN\nsleeps VB\n\nthe DT\nbird NN\nsleeps VB\n\n"
    (folder / "words.conll").write_text(words)
    return folder


def test_training_stops_by_the_held_out_loss(folder, capsys, tmp_path):
    model = tmp_path / "model.mm"
    given = [str(folder / "train.svm"), "-C", "1e5", "--solver", "bcfw", "--tol", "1e-7", "--quiet", "-o", str(model)]
    assert run(["train", *given, "--eval", str(folder / "held.svm"), "--patience", "3", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["status"] == "EARLY_STOPPED"
    assert run(["evaluate", str(model), str(folder / "held.svm"), "--json"]) == 0
    accuracy = json.loads(capsys.readouterr().out)["accuracy"]
    assert found["eval"]["best_loss"] == pytest.approx(1.0 - accuracy)
    assert run(["train", *given, "--eval", str(folder / "held.svm"), "--patience", "3"]) == 0
    assert f"held out     {folder / 'held.svm'}: the least loss was" in capsys.readouterr().out
    assert run(["train", *given, "--patience", "3"]) == 2
    assert "give it as --eval DATA" in capsys.readouterr().err
    assert run(["train", "--patience", "3"]) == 2


def test_predictions_that_are_left_open(folder, capsys, tmp_path):
    model = str(tmp_path / "model.mm")
    assert run(["train", str(folder / "train.svm"), "-C", "10", "--quiet", "-o", model]) == 0
    capsys.readouterr()
    assert run(["predict", model, str(folder / "held.svm"), "--threshold", "0.5"]) == 0
    lines = capsys.readouterr().out.split()
    assert run(["predict", model, str(folder / "held.svm")]) == 0
    plain = capsys.readouterr().out.split()
    assert 0 < lines.count("?") < 40
    assert all(a in ("?", b) for a, b in zip(lines, plain, strict=True))
    assert (
        run(["predict", model, str(folder / "held.svm"), "--threshold", "1", "--confidence", "margin", "--json"]) == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert found["coverage"] == np.mean(np.array(found["confidence"]) >= 1)
    assert run(["predict", model, str(folder / "held.svm"), "--confidence", "margin"]) == 2

    labels = str(tmp_path / "labels.mm")
    assert run(["train", str(folder / "train-labels.npz"), "-C", "1", "--quiet", "-o", labels]) == 0
    capsys.readouterr()
    assert run(["predict", labels, str(folder / "held-labels.npz"), "--threshold", "0.9"]) == 0
    lines = capsys.readouterr().out.split("\n")[:-1]
    assert len(lines) == 40
    assert {name for line in lines for name in line.split(",") if name} <= {"on", "high", "on?", "high?"}
    assert (
        run(["predict", labels, str(folder / "held-labels.npz"), "--threshold", "1e9", "--confidence", "margin"]) == 0
    )
    assert set(capsys.readouterr().out.split()) == {"?"}

    tagger = str(tmp_path / "tagger.mm")
    assert run(["train", str(folder / "words.conll"), "-C", "1", "--quiet", "-o", tagger]) == 0
    capsys.readouterr()
    assert run(["predict", tagger, str(folder / "words.conll"), "--threshold", "2"]) == 0
    assert capsys.readouterr().out.count("?") == 9


def test_a_smaller_model(folder, capsys, tmp_path):
    tagger, small = str(tmp_path / "tagger.mm"), str(tmp_path / "small.mm")
    data = str(folder / "words.conll")
    assert run(["train", data, "-C", "1", "--quiet", "-o", tagger]) == 0
    capsys.readouterr()
    assert run(["prune", tagger, "-o", small, "--keep", "0.5", "--eval", data]) == 0
    said = capsys.readouterr().out
    assert "the score on held-out examples is" in said
    assert run(["prune", tagger, "-o", small, "--max-loss", "0", "--eval", data, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["score"] >= found["score_before"]
    assert found["bytes"] < found["bytes_before"]
    assert mm.load(small).n_features_in_ == found["features"]
    assert run(["prune", tagger, "-o", small]) == 2
    assert "Give one of keep, threshold and max_loss" in capsys.readouterr().err

"""Measures and rankings on the command line."""

import json

import numpy as np
import pytest

from maxmargin.cli.main import run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("measures")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4)).round(3)
    y = X @ [1.0, -1.0, 0.5, 0.0] + 0.3 * rng.normal(size=300)
    pairs = [" ".join(f"{k + 1}:{value}" for k, value in enumerate(row)) for row in X]
    level = np.digitize(y, [-1, 0, 1])
    lines = [f"{one} qid:{m // 10 + 1} {text}" for m, (one, text) in enumerate(zip(level, pairs, strict=True))]
    (folder / "rank.dat").write_text("\n".join(lines) + "\n")
    (folder / "ordinal.svm").write_text("\n".join(f"{a} {b}" for a, b in zip(level, pairs, strict=True)) + "\n")
    (folder / "rare.svm").write_text(
        "\n".join(f"{'+1' if a > 1.5 else '-1'} {b}" for a, b in zip(y, pairs, strict=True)) + "\n"
    )
    return folder


def answer(capsys, *words):
    assert run([str(word) for word in (*words, "--json")]) in (0, 1)
    return json.loads(capsys.readouterr().out)


def test_a_ranking_is_trained_evaluated_and_predicted(folder, capsys, tmp_path):
    data, model = folder / "rank.dat", tmp_path / "rank.mm"
    found = answer(capsys, "train", data, "--task", "ranking", "--quiet", "-o", model, "--test", data)
    assert found["task"] == "ranking"
    assert found["certificate"] == "exact"
    assert found["test"]["pair_accuracy"] > 0.9
    # By query, 10 rows each; a model knows that the file is a ranking's.
    assert answer(capsys, "evaluate", model, data)["pair_accuracy"] == found["test"]["pair_accuracy"]
    assert len(answer(capsys, "predict", model, data)["predictions"]) == 300
    assert answer(capsys, "info", model)["task"] == "ranking"
    assert run(["predict", str(model), str(data)]) == 0
    assert len([float(line) for line in capsys.readouterr().out.split()]) == 300


def test_without_queries_all_lines_are_compared(folder, capsys):
    data = folder / "ordinal.svm"
    found = answer(capsys, "train", data, "--task", "ranking", "--loss", "pairs", "-C", 10, "--quiet", "--test", data)
    assert found["test"]["pair_accuracy"] > 0.9


@pytest.mark.parametrize("loss", ["f1", "roc-area", "precision@5%"])
def test_measures(folder, capsys, loss):
    data = folder / "rare.svm"
    found = answer(capsys, "train", data, "--loss", loss, "--quiet", "--test", data)
    assert found["solver"] == "one-slack"
    assert found["test"]["roc_area"] > 0.9
    assert set(found["test"]) > {"accuracy", "precision", "recall", "f1"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1 qid:1 1:1\n2 qid:2 1:1\n1 qid:1 1:2\n", "line 3: the query qid:1 of line 1 comes back"),
        ("1 qid:1 1:1\n2 1:1\n", "line 2: 'qid:NUMBER' is missing"),
        ("1 qid:1 1:1\ngood qid:1 1:1\n", "line 2: 'good' was found where a number"),
        ("1 qid:1 1:1\n1 qid:1 1:3\n", "nothing to rank"),
    ],
)
def test_bad_rankings_get_a_sentence(tmp_path, capsys, text, words):
    (tmp_path / "bad.dat").write_text(text)
    assert run(["train", str(tmp_path / "bad.dat"), "--task", "ranking", "--quiet"]) not in (0, 1)
    assert words in capsys.readouterr().err


def test_options_that_mean_nothing_here(folder, capsys):
    for option in (["--objective", "log"], ["--inference", "greedy"], ["--no-intercept"]):
        assert run(["train", str(folder / "rank.dat"), "--task", "ranking", "--quiet", *option]) not in (0, 1)
        assert "no meaning for --task ranking" in capsys.readouterr().err

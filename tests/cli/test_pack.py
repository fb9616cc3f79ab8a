"""``maxmargin pack``, and packed folders where data files stand otherwise."""

import json

import numpy as np
import pytest

from maxmargin.cli.main import run

WORDS = (
    "Confidence NN B-NP\nin IN B-PP\nthe DT B-NP\npound NN I-NP\nfell VBD B-VP\n. . O\n\nIt PRP B-NP\nfell VBD B-VP\n\n"
    * 6
)


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    rows = "".join(f"{k % 3} 1:{k % 3 + rng.normal():.3f} 2:{rng.normal():.3f}\n" for k in range(60))
    (tmp_path / "rows.svm").write_text(rows)
    (tmp_path / "sets.svm").write_text("".join(f"{'a,b' if k % 2 else 'c'} 1:{k % 2} 3:{k}\n" for k in range(40)))
    (tmp_path / "tags.hmm").write_text("".join(f"{k % 3 + 1} qid:{k // 5 + 1} {k % 3 + 1}:1\n" for k in range(60)))
    (tmp_path / "words.conll").write_text(WORDS)
    np.savez(tmp_path / "rows.npz", X=rng.normal(size=(40, 3)), y=np.arange(40) % 2)
    return tmp_path


def report(capsys, *words):
    assert run([*words, "--json"]) in (0, 1)
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("name", ["rows.svm", "sets.svm", "tags.hmm", "words.conll", "rows.npz"])
def test_a_folder_stands_for_its_file(files, capsys, name):
    packed = report(capsys, "pack", name, "-o", "folder/")
    there = report(capsys, "train", "folder/", "-C", "10", "-o", "there.mm", "--quiet")
    here = report(capsys, "train", name, "-C", "10", "-o", "here.mm", "--quiet")
    same = ("task", "primal", "dual", "certificate", "n_labels", "n_features", "n_examples")
    assert {key: there[key] for key in same} == {key: here[key] for key in same}
    assert packed["n_examples"] == here["n_examples"]
    with_folder, with_file = (report(capsys, "evaluate", "there.mm", data) for data in ("folder/", name))
    assert {k: v for k, v in with_folder.items() if k != "data"} == {k: v for k, v in with_file.items() if k != "data"}
    assert run(["predict", "there.mm", "folder"]) == 0
    assert capsys.readouterr().out.strip()
    assert run(["info", "folder/"]) == 0
    assert "all as they were written" in capsys.readouterr().out


def test_test_data_in_the_terms_of_a_model(files, capsys):
    (files / "few.conll").write_text("It PRP B-NP\nrose VBD B-VP\n\n")
    assert run(["train", "words.conll", "-C", "10", "-o", "m.mm", "--quiet"]) == 0
    assert run(["pack", "few.conll", "-o", "few", "--model", "m.mm"]) == 0
    capsys.readouterr()
    found = [report(capsys, "evaluate", "m.mm", data)["tag_accuracy"] for data in ("few", "few.conll")]
    assert found[0] == found[1]
    assert run(["pack", "few.conll", "-o", "own"]) == 0
    assert run(["evaluate", "m.mm", "own"]) == 3
    assert "other columns" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["rows.svm", "-o", "rows.svm"], 4, "there already"),
        (["rows.svm", "-o", "no/folder"], 4, "does not exist"),
        (["rows.svm", "-o", "f", "--task", "graph"], 2, "cannot be packed"),
        (["rows.svm", "-o", "f", "--n-hash", "8"], 2, "--n-hash is not for"),
        (["none.svm", "-o", "f"], 3, "none.svm"),
        (["tags.hmm", "-o", "f", "--n-features", "2"], 3, "line 3"),
    ],
)
def test_refusals(files, capsys, words, code, said):
    before = sorted(one.name for one in files.iterdir())
    assert run(["pack", *words]) == code
    assert said in capsys.readouterr().err
    assert sorted(one.name for one in files.iterdir()) == before


def test_too_little_memory(files, capsys):
    assert run(["train", "rows.svm", "-C", "1", "--max-memory", "1kB", "--quiet"]) == 3
    assert "max_memory is" in capsys.readouterr().err
    assert run(["train", "rows.svm", "--max-memory", "much"]) == 2

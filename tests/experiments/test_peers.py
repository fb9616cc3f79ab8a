"""Comparisons with other programs: both sides solve the same problem, and take turns."""

import numpy as np
import pytest

from maxmargin.cli.main import run
from maxmargin.errors import MaxMarginError
from maxmargin.estimators.binary import BinarySVM
from maxmargin.estimators.multi_class import MultiClassSVM
from maxmargin.experiments import peers
from maxmargin.experiments.experiment import Row


def rows(n, n_classes):
    rng = np.random.default_rng(0)
    y = np.arange(n) % n_classes
    return rng.normal(size=(n_classes, 3))[y] + rng.normal(size=(n, 3)), y


def test_sides_take_turns():
    calls = []
    found = peers.take_turns(lambda: calls.append("a") or 1.0, lambda: calls.append("b") or 2.0, 3)
    assert "".join(calls) == "ab" + "ba" + "ab" + "ba"
    assert len(found["ours"]) == len(found["peer"]) == 3
    assert (found["our_value"], found["peer_value"]) == (1.0, 2.0)


@pytest.mark.parametrize(("kind", "n_classes"), [(BinarySVM, 2), (MultiClassSVM, 4)])
def test_the_objective_is_ours(kind, n_classes):
    X, y = rows(60, n_classes)
    model = kind(C=10.0, tol=1e-6, scale=False).fit(X, y)
    value = peers.objective(X, y, np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_), 10.0)
    assert value == pytest.approx(model.result_.primal, rel=1e-9)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_liblinear_comes_to_the_same(monkeypatch, n_classes):
    monkeypatch.setattr(peers, "_rows", lambda name, data_home: rows(80, n_classes))
    found = peers.beside_liblinear({"data": "any", "cost": 0.1, "repeats": 1}, None)
    assert found["peer_value"] == pytest.approx(found["our_value"], rel=2.1e-3)
    table = peers.show([Row({"data": "any", "cost": 0.1, "repeats": 1}, found, 1.0)]).tables[0]
    assert table.rows[0][:2] == ["any, 0.1", "LIBLINEAR"]
    assert table.rows[0][6] == pytest.approx(found["peer"][0] / found["ours"][0])


@pytest.mark.parametrize("name", ["HiGHS", "PyMaxflow"])
def test_relaxations_agree(name):
    pytest.importorskip({"HiGHS": "highspy", "PyMaxflow": "maxflow"}[name])
    found = peers.beside_relaxations({"peer": name, "nodes": 6, "problems": 20, "repeats": 1}, None)
    assert found["peer_value"] == pytest.approx(found["our_value"], rel=1e-7)


def test_crfsuite_learns_the_same_tags():
    pytest.importorskip("pycrfsuite")
    found = peers.beside_crfsuite({"data": "grammar", "method": "perceptron", "repeats": 1}, None)
    assert min(found["our_value"], found["peer_value"]) > 90.0


def test_what_is_missing_is_said(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MaxMarginError, match="no svm_hmm_learn on the PATH"):
        peers.beside_svm_hmm({"data": "chains", "cost": 0.1, "epsilon": 0.1, "repeats": 1}, None)
    monkeypatch.setattr(peers.importlib, "import_module", lambda name: __import__("no_such_module_at_all"))
    with pytest.raises(MaxMarginError, match="PyMaxflow is not installed: pip install PyMaxflow"):
        peers.beside_relaxations({"peer": "PyMaxflow", "nodes": 4, "problems": 2, "repeats": 1}, None)


def test_svm_hmm_is_asked_as_its_users_ask(monkeypatch, tmp_path):
    """A program that keeps what it was called with; the file is one that SVM-hmm reads."""
    program = tmp_path / "svm_hmm_learn"
    keep = f'for last; do before="$file"; file="$last"; done\ncp "$before" {tmp_path}/data\n'
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/call\n{keep}')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    found = peers.beside_svm_hmm({"data": "chains", "cost": 0.01, "epsilon": 0.5, "repeats": 1}, None)
    assert found["our_value"] > 0.0
    call = (tmp_path / "call").read_text().split()
    assert call[:4] == ["-c", "2", "-e", "0.5"]
    line = (tmp_path / "data").read_text().splitlines()[0].split()
    assert line[1].startswith("qid:")


def test_the_command_lists_and_reports(capsys):
    assert run(["bench", "--list"]) == 0
    assert "liblinear" in capsys.readouterr().out
    assert run(["bench", "nothing"]) == 2
    assert "There is no experiment 'nothing'." in capsys.readouterr().err

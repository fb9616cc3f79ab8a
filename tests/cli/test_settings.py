"""Every parameter of estimators and solvers from a shell."""

import json

import numpy as np
import pytest

import maxmargin as mm
from maxmargin.cli.main import run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("settings")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3)).round(3)
    # Every sequence is allowed with bio=True.
    tags = np.tile(["O", "B-X", "I-X", "B-X", "O", "O"], 10)
    np.savez(folder / "tags.npz", X=X, y=tags, sequence_ptr=np.arange(0, 61, 6))
    np.savez(folder / "classes.npz", X=X, y=rng.integers(0, 3, 60))
    np.savez(folder / "labels.npz", X=X, y=rng.integers(0, 2, (60, 4)))
    return folder


def trained(capsys, *words):
    assert run(["train", *map(str, words), "--quiet", "--json"]) in (0, 1), capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def refused(capsys, *words):
    assert run(["train", *map(str, words), "--quiet"]) == 2
    return capsys.readouterr().err


def test_options_of_solvers(folder, capsys):
    data = folder / "tags.npz"
    found = trained(capsys, data, "-C", 1, "--rescaling", "slack")
    assert (found["solver"], found["options"]["rescaling"]) == ("one-slack", "slack")
    found = trained(capsys, data, "-C", 1, "--solver", "n-slack", "--rescaling", "slack")
    assert (found["solver"], found["options"]["rescaling"]) == ("n-slack", "slack")
    found = trained(capsys, data, "-C", 1, "--stop", "svm-struct", "--cache", 5, "--tol", 0.01)
    assert (found["options"]["stop"], found["options"]["cache"]) == ("svm-struct", 5)
    found = trained(
        capsys, data, "-C", 1, "--solver", "bcfw", "--set", "solver.sampling=uniform", "--set", "solver.averaging=true"
    )
    assert (found["options"]["sampling"], found["options"]["averaging"]) == ("uniform", True)
    found = trained(capsys, data, "-C", 1, "--solver", "bundle", "--objective", "log", "--set", "solver.step=1.0")
    assert (found["options"]["objective"], found["options"]["step"]) == ("log", 1.0)


def test_one_engine_trains_and_another_predicts(folder, capsys, tmp_path):
    data, model = folder / "labels.npz", tmp_path / "model.mm"
    found = trained(
        capsys,
        data,
        "-C",
        1,
        "--solver",
        "bcfw",
        "--train-inference",
        "greedy",
        "--inference",
        "exhaustive",
        "-o",
        model,
    )
    assert found["options"]["inference"] == "greedy"
    assert found["inference"].startswith("exhaustive")
    again = mm.load(model)
    assert (again.solver.inference, again.inference) == ("greedy", "exhaustive")


def test_parameters_of_estimators(folder, capsys, tmp_path):
    data, model = folder / "tags.npz", tmp_path / "model.mm"
    trained(capsys, data, "-C", 1, "--order", 2, "--bio", "--threads", 1, "--set", "boundary=false", "-o", model)
    again = mm.load(model)
    assert (again.order, again.bio, again.boundary) == (2, True, False)
    trained(
        capsys, folder / "classes.npz", "-C", 1, "--kernel", "rbf", "--n-basis", 10, "--C-path", "0.1,10", "-o", model
    )
    again = mm.load(model)
    assert (again.n_basis, again.C_path) == (10, [0.1, 10.0])
    trained(capsys, data, "-C", 1, "--checkpoint", tmp_path / "state.mm")
    assert (tmp_path / "state.mm").exists()
    trained(capsys, folder / "labels.npz", "-C", 1, "--set", "edges=tree", "--set", "loss=count", "-o", model)
    assert mm.load(model).edges == "tree"


def test_c_from_a_list_in_folds(folder, capsys, tmp_path):
    model = tmp_path / "model.mm"
    found = trained(capsys, folder / "classes.npz", "--C", "1,0.01,0.1", "--folds", 10, "-o", model)
    assert [one["C"] for one in found["validation_path"]] == [0.01, 0.1, 1.0]
    assert all(one["standard_error"] > 0.0 for one in found["validation_path"])
    assert found["C"] in (0.01, 0.1, 1.0)
    assert "10 folds; 3 values tried" in found["C_reason"]
    assert run(["info", str(model)]) == 0
    assert "standard error" in capsys.readouterr().out
    assert "neither auto nor a number" in refused(capsys, folder / "classes.npz", "-C", "1,x")
    assert "cv=1 is not possible" in refused(capsys, folder / "classes.npz", "--folds", 1)
    assert run(["train", "-C", "1,2"]) == 2
    assert "need DATA" in capsys.readouterr().err
    assert run(["train", "--folds", "3"]) == 2
    assert "--folds needs DATA" in capsys.readouterr().err


def test_what_is_refused_says_what_there_is(folder, capsys):
    tags, classes = folder / "tags.npz", folder / "classes.npz"
    assert "it has inference, steps, sampling" in refused(
        capsys, tags, "--solver", "bcfw", "--set", "solver.sampeling=gap"
    )
    assert 'Did you mean "sampling"' in refused(capsys, tags, "--solver", "bcfw", "--set", "solver.sampeling=gap")
    assert "needs --solver" in refused(capsys, tags, "--set", "solver.cache=3")
    assert "has no option 'rescaling'" in refused(capsys, tags, "--solver", "bcfw", "--rescaling", "slack")
    assert "--order is not for the task multi-class" in refused(capsys, classes, "--order", 2)
    assert "MultiClassSVM has no such parameter" in refused(capsys, classes, "--set", "edges=tree")
    assert "it has an option of its own" in refused(capsys, classes, "--set", "C=3")
    assert "is not of the form NAME=VALUE" in refused(capsys, classes, "--set", "edges")
    assert "sampling=3 is not known" in refused(capsys, tags, "--solver", "bcfw", "--set", "solver.sampling=3")
    assert "n_jobs=0 is not possible" in refused(capsys, classes, "--threads", 0)
    assert "no list of numbers" in refused(capsys, classes, "--C-path", "1,x")
    assert run(["train", "--rescaling", "slack"]) == 2
    assert "--rescaling needs DATA" in capsys.readouterr().err


def test_options_of_engines(folder, capsys):
    data = folder / "labels.npz"
    words = [data, "-C", 1, "--solver", "one-slack", "--inference", "rho_approximate", "--set", "inference.rho=0.8"]
    assert trained(capsys, *words, "--max-passes", 50)["options"]["inference"] == "rho_approximate"
    assert "rho=2 is not possible" in refused(capsys, *words[:-1], "inference.rho=2")
    assert "it has rho, limit" in refused(capsys, *words[:-1], "inference.r=0.5")
    assert "needs --inference" in refused(capsys, data, "--set", "inference.rho=0.5")


def test_checkpoints(folder, capsys, tmp_path):
    data, file = folder / "tags.npz", tmp_path / "run.ck"
    words = (data, "-C", 1, "--tol", 0, "--max-passes")
    assert "There is no checkpoint" in refused(capsys, data, "--resume", file)
    assert "--checkpoint-passes needs --checkpoint or --resume" in refused(capsys, data, "--checkpoint-passes", 1)
    assert "name two files" in refused(capsys, data, "--resume", file, "--checkpoint", tmp_path / "other")
    assert "passes=0 is not possible" in refused(capsys, data, "--checkpoint", file, "--checkpoint-passes", 0)
    first = trained(capsys, *words, 3, "--checkpoint", file, "--checkpoint-passes", 1, "--checkpoint-seconds", 5)
    assert (tmp_path / "run.ck.previous").exists()
    model = tmp_path / "model.mm"
    resumed = trained(capsys, *words, 6, "--resume", file, "-o", model)
    straight = trained(capsys, *words, 6)
    assert (first["n_passes"], resumed["n_passes"]) == (3, straight["n_passes"])
    assert (resumed["primal"], resumed["dual"]) == (straight["primal"], straight["dual"])
    assert mm.load(model).checkpoint == str(file)
    assert "C is 1.0 there and 2.0 here" in refused(capsys, data, "-C", 2, "--resume", file)

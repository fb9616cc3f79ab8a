"""A checkpoint that is refused says what differs."""

import numpy as np
import pytest

from maxmargin.errors import ModelFileError, OptionError
from maxmargin.formats import read_header, read_model, write_model
from maxmargin.problems import multi_class_problem
from maxmargin.solvers.core.checkpoint import Checkpoints, RunKey, previous_of
from maxmargin.solvers.frank_wolfe.bcfw import BCFW
from maxmargin.solvers.frank_wolfe.frank_wolfe import FrankWolfe

X = np.random.default_rng(0).normal(size=(12, 3))
Y = np.arange(12) % 3


def solve(path, solver=None, X=X, C=1.0, seed=0):
    made = BCFW() if solver is None else solver
    return made.solve(multi_class_problem(X, Y, 3), C, max_passes=3, tol=0.0, checkpoint=path, random_state=seed)


@pytest.fixture
def path(tmp_path):
    solve(tmp_path / "run.ckpt")
    return tmp_path / "run.ckpt"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"C": 2.0}, r"C is 1\.0 there and 2\.0 here"),
        ({"seed": 7}, "seed is 0 there and 7 here"),
        ({"X": X + 1.0}, "the data differs"),
        ({"solver": FrankWolfe()}, "the solver is 'bcfw' there and 'frank-wolfe' here"),
        ({"solver": BCFW(averaging=True)}, "averaging is False there and True here"),
        (
            {"X": X + 1.0, "C": 3.0, "seed": 1},
            r"the data differs; C is 1\.0 there and 3\.0 here; seed is 0 there and 1 here",
        ),
        ({"solver": FrankWolfe(), "X": X + 1.0}, "the solver is 'bcfw' there and 'frank-wolfe' here; the data differs"),
    ],
)
def test_what_differs(path, changes, said):
    with pytest.raises(OptionError, match=rf"run\.ckpt' belongs to another run: {said}\. Delete it to start afresh"):
        solve(path, **changes)


def test_the_same_run_goes_on(path):
    assert solve(path).n_passes == 3
    header = read_header(path)
    assert header["checkpoint"] == "bcfw"
    assert header["options"]["C"] == "1.0"


def test_an_earlier_version_and_other_files(path):
    header, arrays = read_model(path)
    own = {name: header[name] for name in ("checkpoint", "numbers", "digest")}
    for wrong in ({"fingerprint": "0" * 64}, {"checkpoint_version": 99}):
        write_model(path, own | wrong, arrays)
        with pytest.raises(OptionError, match="is of another version of this library; delete it to start afresh"):
            solve(path)
    own["checkpoint_version"] = header["checkpoint_version"]
    for wrong in ({}, {"data": 3, "options": {}}, {"data": "x"}, {"data": "x", "options": ["C"]}):
        write_model(path, own | wrong, arrays)
        with pytest.raises(ModelFileError, match="does not say which run it belongs to"):
            solve(path)
    write_model(path, {"task": "binary"}, {"weights": np.zeros(3)})
    with pytest.raises(OptionError, match="is no checkpoint; delete it to start afresh"):
        solve(path)


def test_options_that_one_of_them_lacks():
    one, other = RunKey("a", "d", {"x": "1", "y": "2"}), RunKey("a", "d", {"x": "1", "z": "3"})
    assert one.differences(one) == ""
    assert one.differences(other) == "y is not set there and 2 here; z is 3 there and not set here"


def test_the_one_before_stays_and_takes_the_place_of_a_damaged_one(tmp_path):
    path, whole = tmp_path / "run.ckpt", tmp_path / "whole.ckpt"
    often = Checkpoints(path, passes=1)
    problem = multi_class_problem(X, Y, 3)
    BCFW().solve(problem, max_passes=5, tol=0.0, checkpoint=often)
    passes = [read_header(one)["numbers"]["n_passes"] for one in (path, previous_of(path))]
    assert passes == [5, 4]
    straight = BCFW().solve(problem, max_passes=9, tol=0.0, checkpoint=whole)
    for damage in (lambda data: data[: len(data) // 2], lambda data: data[:-200] + bytes(200), lambda data: b""):
        path.write_bytes(damage(path.read_bytes()))
        with pytest.warns(RuntimeWarning, match=r"run\.ckpt' cannot be read, and the one before it is taken"):
            found = BCFW().solve(problem, max_passes=9, tol=0.0, checkpoint=often)
        assert np.array_equal(found.weights, straight.weights)
    # Both of them damaged.
    for one in (path, tmp_path / "run.ckpt.previous"):
        one.write_bytes(b"nothing")
    with pytest.raises(ModelFileError):
        solve(path)
    # Deleted, as the sentences advise, a run begins afresh.
    path.unlink()
    assert solve(path).n_passes == 3


def test_files_are_written_by_passes_and_by_seconds(tmp_path, monkeypatch):
    from maxmargin.solvers.core.run import Run

    written = []
    monkeypatch.setattr(Run, "save", lambda self, now, path, key: written.append(now.n_passes))
    problem = multi_class_problem(X, Y, 3)
    for rule, expected in (
        (Checkpoints(tmp_path / "a"), [12]),
        (Checkpoints(tmp_path / "b", passes=5), [5, 10, 12]),
        (Checkpoints(tmp_path / "c", seconds=0), list(range(1, 13))),
    ):
        written.clear()
        BCFW().solve(problem, max_passes=12, tol=0.0, checkpoint=rule)
        assert sorted(set(written)) == expected


def test_rules_that_cannot_be(tmp_path):
    with pytest.raises(OptionError, match="seconds=-1 is not possible"):
        Checkpoints(tmp_path / "a", seconds=-1)
    with pytest.raises(OptionError, match="passes=0 is not possible"):
        Checkpoints(tmp_path / "a", passes=0)
    with pytest.raises(OptionError, match=r"There is no checkpoint .* to resume from"):
        Checkpoints(tmp_path / "a", resume=True)

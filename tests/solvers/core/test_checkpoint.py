"""A checkpoint that is refused says what differs."""

import numpy as np
import pytest

from maxmargin.errors import ModelFileError, OptionError
from maxmargin.formats import read_header, read_model, write_model
from maxmargin.problems import multi_class_problem
from maxmargin.solvers.core.checkpoint import RunKey
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
    write_model(path, own | {"fingerprint": "0" * 64}, arrays)
    with pytest.raises(OptionError, match="is of an earlier version of this library; delete it to start afresh"):
        solve(path)
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

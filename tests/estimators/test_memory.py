"""``max_memory``: a limit in any spelling, and a refusal before anything is allocated that names the parts."""

import numpy as np
import pytest

import maxmargin as mm
from maxmargin.errors import OptionError, TooLargeError
from maxmargin.estimators.memory import bytes_of, estimate
from maxmargin.packed import pack, read_packed
from maxmargin.solvers import SOLVERS

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2000, 20))
Y = (X[:, :5] > 0).astype(int)


@pytest.mark.parametrize(
    ("given", "size"),
    [
        (None, None),
        (1000, 1000),
        ("4GB", 4 * 10**9),
        ("512 MiB", 512 << 20),
        ("1.5kb", 1500),
        (" 7 ", 7),
        ("2TiB", 2 << 40),
    ],
)
def test_sizes(given, size):
    assert bytes_of(given) == size


@pytest.mark.parametrize("given", [0, -1, True, 1.5, "", "GB", "4 XB", "-1GB", "1e9", [], "9" * 400])
def test_what_is_no_size(given):
    with pytest.raises(OptionError, match="max_memory"):
        mm.MultiLabelSVM(max_memory=given).fit(X, Y)


@pytest.mark.parametrize("solver", ["bcfw", "soft-bcfw", "one-slack", "subgradient"])
def test_refused_with_the_parts(solver):
    with pytest.raises(TooLargeError, match=r"needs about .* MB of memory \(.*features.*max_memory is 0.1 MB"):
        mm.MultiLabelSVM(C=1.0, solver=solver, max_memory="100kB").fit(X, Y)
    mm.MultiLabelSVM(C=1.0, solver=solver, max_memory="4GB", max_passes=2).fit(X, Y)


@pytest.mark.parametrize("solver", ["bcfw", "soft-bcfw"])
def test_the_state_is_foreseen(solver):
    """The part of the estimate that is the solver's own, against what it had in the end."""
    model = mm.MultiLabelSVM(C=100.0, solver=solver, max_passes=20)
    problem = model.prepare(X, Y).problem
    part = estimate(SOLVERS[solver](), problem)["planes" if solver == "bcfw" else "marginals"]
    result = model.fit(X, Y).result_
    taken = result.state.store.nbytes if solver == "bcfw" else sum(one.nbytes for one in result.state.point)
    assert 0.3 < part / taken < 3.0


def test_packed_data_takes_less(tmp_path):
    pack(tmp_path / "f", X, Y)
    data = read_packed(tmp_path / "f")
    solver = SOLVERS["bcfw"]()
    here, there = (mm.MultiLabelSVM().prepare(rows, y).problem for rows, y in ((X, Y), (data.X, data.y)))
    assert sum(estimate(solver, there).values()) < sum(estimate(solver, here).values()) / 3


def test_weights_of_threads_are_foreseen():
    problem = mm.MultiLabelSVM().prepare(X, Y).problem
    one, four = (sum(estimate(SOLVERS["bcfw"](), problem, threads).values()) for threads in (1, 4))
    assert four - one == 3 * 8 * problem.n_weights

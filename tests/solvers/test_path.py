"""A path of C: every point certified, and the weights kept where they were."""

from __future__ import annotations

import numpy as np
import pytest

from maxmargin.errors import OptionError
from maxmargin.problems.chains import chain_problem
from maxmargin.solvers import BCFW, SoftBCFW, Status, path
from reference.quadratic_program import optimum


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(5)
    lengths = rng.integers(1, 6, 20)
    return chain_problem([rng.normal(size=(t, 4)) for t in lengths], [rng.integers(0, 3, t) for t in lengths], 3)


@pytest.mark.parametrize("solver", [BCFW(), SoftBCFW()], ids=["bcfw", "soft-bcfw"])
def test_every_point_of_a_path_is_certified(problem, solver):
    Cs = [10.0, 0.3, 3.0, 0.3]
    results = path(problem, Cs, solver, tol=1e-4, max_passes=5000)
    for C, result in zip(Cs, results, strict=True):
        assert result.status is Status.CONVERGED
        assert result.dual - 1e-7 <= optimum(problem, C) <= result.primal + 1e-7
    assert results[1] is results[3]


@pytest.mark.parametrize("solver", [BCFW(), SoftBCFW()], ids=["bcfw", "soft-bcfw"])
def test_the_start_keeps_the_weights(problem, solver):
    first = solver.solve(problem, 1.0, tol=1e-5, max_passes=5000)
    run = solver.make_run(problem, 1.0 / 1.1, 0, 1)
    now = run.begin(first.state)
    kept = solver.make_run(problem, 1.0, 0, 1).begin(first.state)
    np.testing.assert_allclose(now.w_v, kept.w_v, atol=1e-10)
    run.check(now)
    # The gap of a start at zero is the whole objective.
    assert now.gap < 0.3 * now.primal


@pytest.mark.parametrize(("Cs", "words"), [([], "is empty"), ([1.0, -2.0], "has the value -2.0"), ([np.nan], "nan")])
def test_bad_paths(problem, Cs, words):
    with pytest.raises(OptionError, match=words):
        path(problem, Cs)

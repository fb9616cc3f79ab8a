"""Batch Frank-Wolfe against the training problem written out."""

from __future__ import annotations

import numpy as np
import pytest

from maxmargin.errors import OptionError
from maxmargin.problems.chains import chain_problem
from maxmargin.solvers import Status
from maxmargin.solvers.frank_wolfe.frank_wolfe import FrankWolfe
from maxmargin.solvers.online.subgradient import Subgradient
from reference.enumerated_program import exact_optimum
from reference.quadratic_program import optimum
from reference.random_problems import random_problem

SLACK = 1e-7


def problem_of(seed, **options):
    rng = np.random.default_rng(seed)
    options = {"sparse": bool(seed % 4 < 2), "forbidden": bool(seed % 3 == 0)} | options
    kind = ("loopy", "forest")[seed % 2]
    return random_problem(rng, kind=kind, n_examples=int(rng.integers(1, 6)), **options), 10.0 ** rng.uniform(-1, 0.5)


def check(result, best, seed, tol):
    assert (result.history["dual"] <= best + SLACK).all(), seed
    assert (result.history["primal"] >= best - SLACK).all(), seed
    assert (np.diff(result.history["dual"]) >= 0.0).all(), seed
    assert result.status is Status.CONVERGED, (seed, result.summary())
    assert result.gap <= tol


@pytest.mark.parametrize("solver", [FrankWolfe(), FrankWolfe("exhaustive", averaging=True)], ids=["auto", "averaged"])
def test_it_closes_the_exact_gap(solver):
    for seed in range(1, 25, 2):
        problem, C = problem_of(seed)
        result = solver.solve(problem, C, tol=2e-3, max_passes=20_000)
        assert result.certificate == "exact"
        check(result, exact_optimum(problem, C), seed, 2e-3)


def test_it_closes_the_relaxed_gap():
    for seed in range(0, 20, 2):
        problem, C = problem_of(seed, max_states=2, max_arity=2, forbidden=False)
        result = FrankWolfe("graph_cut").solve(problem, C, tol=2e-3, max_passes=20_000)
        assert result.certificate == "relaxed"
        check(result, optimum(problem, C), seed, 2e-3)


def test_one_call_for_each_example_a_pass_and_none_for_the_gap():
    problem = chain(20)
    result = FrankWolfe().solve(problem, 1.0, tol=0.0, max_passes=7)
    assert result.n_oracle_calls == 7 * 20
    assert len(result.history["gap"]) == 7
    # The primal value that is reported is that of the weights that are returned: checked by another engine.
    from maxmargin.solvers.oracles.max_oracle import oracle_of

    hinges = oracle_of(problem, "junction_tree").mean_plane(result.weights, 1).hinges
    value = 0.5 * result.weights @ result.weights + problem.arrays.weight @ hinges / 20
    assert result.primal == pytest.approx(value, abs=1e-12)


def test_bounds_that_are_not_hinges():
    problem, C = problem_of(4, forbidden=False)
    best = exact_optimum(problem, C)
    result = FrankWolfe("dual_decomposition").solve(problem, C, tol=1e-2, max_passes=200)
    assert result.certificate == "exact"
    assert (result.history["dual"] <= best + SLACK).all()
    assert (result.history["primal"] >= best - SLACK).all()


def chain(n, seed=0):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 8, n)
    return chain_problem([rng.normal(size=(t, 5)) for t in lengths], [rng.integers(0, 4, t) for t in lengths], 4)


def test_threads_do_not_change_the_bits():
    one, two = (FrankWolfe().solve(chain(60), 10.0, tol=0.0, n_jobs=n, max_passes=20) for n in (1, 2))
    np.testing.assert_array_equal(one.weights, two.weights)
    np.testing.assert_array_equal(one.history["gap"], two.history["gap"])


@pytest.mark.parametrize("averaging", [False, True])
def test_a_checkpoint_goes_on_bit_for_bit(averaging, tmp_path):
    solver, problem = FrankWolfe(averaging=averaging), chain(30)
    whole = solver.solve(problem, 10.0, tol=0.0, max_passes=24)
    solver.solve(problem, 10.0, tol=0.0, max_passes=11, checkpoint=tmp_path / "state")
    rest = solver.solve(problem, 10.0, tol=0.0, max_passes=24, checkpoint=tmp_path / "state")
    np.testing.assert_array_equal(rest.weights, whole.weights)
    assert (rest.primal, rest.dual) == (whole.primal, whole.dual)


def test_a_warm_start_keeps_the_weights_and_a_true_bound():
    problem = chain(30)
    first = FrankWolfe().solve(problem, 1.0, tol=1e-2, max_passes=2000)
    run = FrankWolfe().make_run(problem, 0.1, 0, 1)
    np.testing.assert_allclose(run.begin(first.state).w, first.state.w, rtol=1e-12)
    for C in (0.3, 3.0):
        cold = FrankWolfe().solve(problem, C, tol=1e-2, max_passes=20_000)
        warm = FrankWolfe().solve(problem, C, tol=1e-2, max_passes=20_000, state=first.state)
        assert warm.status is cold.status is Status.CONVERGED
        assert warm.dual <= cold.primal
        assert cold.dual <= warm.primal
    other = Subgradient().solve(problem, max_passes=1)
    with pytest.raises(OptionError, match='The earlier state is not one of "frank-wolfe"'):
        FrankWolfe().solve(problem, state=other.state)

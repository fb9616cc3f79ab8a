"""The stochastic subgradient method: against its own definition in plain Python, and against the optimum."""

from __future__ import annotations

import numpy as np
import pytest

from maxmargin.errors import OptionError
from maxmargin.problems.chains import chain_problem
from maxmargin.solvers import Status
from maxmargin.solvers.online.subgradient import Subgradient
from reference.enumerated_program import exact_optimum, planes
from reference.quadratic_program import optimum
from reference.random_problems import random_problem

SLACK = 1e-7


def problem_of(seed, **options):
    rng = np.random.default_rng(seed)
    options = {"sparse": bool(seed % 4 < 2), "forbidden": bool(seed % 3 == 0)} | options
    kind = ("loopy", "forest")[seed % 2]
    return random_problem(rng, kind=kind, n_examples=int(rng.integers(2, 7)), **options), 10.0 ** rng.uniform(-1, 0.3)


def by_definition(problem, C, t0, batch, n_passes):
    """Last and averaged weights, by steps w - eta (lam w - weight psi) with every labeling written out."""
    lam, M, found = 1.0 / C, problem.n_examples, planes(problem)
    w, mean, t, total = np.zeros(problem.n_weights), np.zeros(problem.n_weights), 0, 0.0
    for k in range(n_passes):
        order = np.random.default_rng([0, 0, k]).permutation(M)
        for first in range(0, M, batch):
            held = w.copy()
            for m in order[first : first + batch]:
                psi, _ = max(found[m], key=lambda one: one[1] - held @ one[0])
                t += 1
                eta = 1.0 / (lam * (t + t0))
                w = w - eta * (lam * w - problem.arrays.weight[m] * psi)
                mean += (t + t0) * w
                total += t + t0
    return w, mean / total


@pytest.mark.parametrize(("t0", "batch"), [(0.0, 1), (7.0, 1), (2.5, 3), (None, 2)])
def test_steps_are_those_of_the_definition(t0, batch):
    for seed in (1, 3, 5, 7):
        # Forests, whose visits are compiled.
        problem, C = problem_of(seed, forbidden=False)
        solver = Subgradient(t0=t0, batch=batch)
        run = solver.make_run(problem, 1.0 / C, 0, 1)
        assert run.compiled
        now = run.begin(None)
        for _ in range(3):
            run.one_pass(now, lambda: False)
        last, mean = by_definition(problem, C, problem.n_examples if t0 is None else t0, batch, 3)
        np.testing.assert_allclose(run.flat(run.last(now)), last, atol=1e-9)
        t = now.t
        total = t * (t + 1) / 2 + t * run.t0
        np.testing.assert_allclose(run.flat((t + 1) * now.v - now.u) * C / total, mean, atol=1e-9)


@pytest.mark.parametrize("solver", [Subgradient(), Subgradient(t0=1.0), Subgradient(batch=3)])
def test_within_a_hundredth_of_the_optimum(solver):
    for seed in range(1, 21, 2):
        problem, C = problem_of(seed)
        best = exact_optimum(problem, C)
        result = solver.solve(problem, C, tol=0.0, max_passes=1000)
        assert result.certificate == "exact"
        assert (result.history["dual"] <= best + SLACK).all()
        assert (result.history["primal"] >= best - SLACK).all()
        assert result.primal <= 1.01 * best
        assert result.dual >= 0.99 * best


def test_engines_outside_the_loop_take_the_same_steps():
    for seed in (1, 3, 5):
        problem, C = problem_of(seed, forbidden=False)
        one, other = (Subgradient(e, batch=2).solve(problem, C, tol=0.0, max_passes=5) for e in ("trees", "exhaustive"))
        np.testing.assert_allclose(one.weights, other.weights, atol=1e-9)
        np.testing.assert_allclose(one.history["dual"], other.history["dual"], atol=1e-9)


def test_relaxed_oracles():
    for seed in range(0, 10, 2):
        problem, C = problem_of(seed, max_states=2, max_arity=2, forbidden=False)
        best = optimum(problem, C)
        result = Subgradient("graph_cut").solve(problem, C, tol=0.02 * best, max_passes=3000)
        assert result.certificate == "relaxed"
        assert result.status is Status.CONVERGED
        assert result.dual - SLACK <= best <= result.primal + SLACK


def test_a_heuristic_oracle_certifies_nothing():
    problem, C = problem_of(4)
    # However wide the tolerance.
    assert Subgradient("greedy").solve(problem, C, tol=10.0, max_passes=5).status is not Status.CONVERGED
    result = Subgradient("greedy").solve(problem, C, tol=0.0, max_passes=5)
    assert result.certificate == "none"
    assert result.status is Status.MAX_PASSES
    assert result.dual <= exact_optimum(problem, C) + SLACK


def test_a_pass_cut_short_still_has_a_true_bound():
    """Examples visited unequally often: the masses of the dual point are counted one by one."""
    for seed in range(1, 16, 2):
        problem, C = problem_of(seed)
        run = Subgradient("exhaustive", t0=0.0).make_run(problem, 1.0 / C, 0, 1)
        now = run.begin(None)
        run.one_pass(now, lambda: True)
        run.check(now)
        run.one_pass(now, lambda: False)
        run.check(now)
        assert now.visits.max() > now.visits.min()
        assert now.dual <= exact_optimum(problem, C) + SLACK


def chain(n=40, seed=0):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 8, n)
    return chain_problem([rng.normal(size=(t, 5)) for t in lengths], [rng.integers(0, 4, t) for t in lengths], 4)


@pytest.mark.parametrize("solver", [Subgradient(), Subgradient("exhaustive", batch=7)], ids=["compiled", "batches"])
def test_a_checkpoint_goes_on_bit_for_bit(solver, tmp_path):
    problem = chain(20)
    whole = solver.solve(problem, 10.0, tol=0.0, max_passes=12)
    solver.solve(problem, 10.0, tol=0.0, max_passes=5, checkpoint=tmp_path / "state")
    rest = solver.solve(problem, 10.0, tol=0.0, max_passes=12, checkpoint=tmp_path / "state")
    np.testing.assert_array_equal(rest.weights, whole.weights)
    assert (rest.primal, rest.dual) == (whole.primal, whole.dual)


def test_threads_do_not_change_the_bits():
    one, two = (Subgradient().solve(chain(), 10.0, tol=0.0, n_jobs=n, max_passes=12) for n in (1, 2))
    np.testing.assert_array_equal(one.weights, two.weights)
    np.testing.assert_array_equal(one.history["primal"], two.history["primal"])


def test_warm_starts_at_another_c():
    problem = chain()
    first = Subgradient().solve(problem, 1.0, tol=0.0, max_passes=30)
    run = Subgradient().make_run(problem, 0.2, 0, 1)
    before = first.state.v / (first.state.t + 40)
    np.testing.assert_allclose(run.last(run.begin(first.state)), before, atol=1e-12)
    for C in (0.2, 5.0):
        cold = Subgradient().solve(problem, C, tol=0.0, max_passes=100)
        warm = Subgradient().solve(problem, C, tol=0.0, max_passes=50, state=first.state)
        assert (warm.history["dual"] <= cold.primal).all()
        assert (warm.history["primal"] >= cold.dual).all()


def test_bad_options():
    for options, words in (
        ({"t0": -1.0}, "t0=-1.0 is not possible"),
        ({"t0": np.nan}, "t0=nan is not possible"),
        ({"batch": 0}, "batch=0 is not possible"),
        ({"batch": True}, "batch=True is not possible"),
    ):
        with pytest.raises(OptionError, match=words):
            Subgradient(**options).solve(chain(3))

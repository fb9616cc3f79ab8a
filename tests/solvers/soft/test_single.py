"""SoftBCFW on examples of one variable: what passes leave out, and what is certified all the same."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from maxmargin.problems import FactorGraphs, Features, binary_problem, multi_class_problem
from maxmargin.problems.templates import Structure, Template
from maxmargin.solvers import SoftBCFW, Status
from maxmargin.solvers.soft import single_run
from maxmargin.solvers.soft.single import is_plain_binary
from maxmargin.solvers.soft.single_run import SingleRun
from reference.enumerated_program import exact_optimum, value


def rows(n_classes, n=60, p=6, seed=0, sparse=False, spread=2.0):
    """Clusters that overlap, so that masses end at their bounds and between them."""
    rng = np.random.default_rng(seed)
    y = rng.integers(n_classes, size=n)
    X = rng.normal(size=(n, p)) + spread * np.eye(max(n_classes, p))[y, :p]
    X[rng.random((n, p)) < 0.4] = 0.0
    X = np.hstack([X, np.ones((n, 1))])
    return (sp.csr_array(X) if sparse else X), y


def build(X, y, n_classes, **more):
    return binary_problem(X, y, **more) if n_classes == 1 else multi_class_problem(X, y, n_classes, **more)


@pytest.mark.parametrize("n_classes", [1, 2, 3, 7])
@pytest.mark.parametrize("C", [0.3, 30.0, 3000.0])
def test_the_optimum_is_that_of_the_program_written_out(n_classes, C):
    X, y = rows(max(n_classes, 2), seed=n_classes)
    weight = np.random.default_rng(1).integers(0, 3, size=len(y)).astype(float)
    problem = build(X, y, n_classes, sample_weight=weight)
    best = exact_optimum(problem, C)
    result = SoftBCFW().solve(problem, C, tol=1e-6 * best, max_passes=100_000)
    assert result.status is Status.CONVERGED
    assert result.certificate == "exact"
    assert result.dual <= best * (1 + 1e-8)
    assert best * (1 - 1e-8) <= result.primal <= best * (1 + 2e-6)
    np.testing.assert_allclose(value(problem, C, result.weights), result.primal, rtol=1e-10)


def test_costs_and_forbidden_states():
    X, y = rows(4, seed=5)
    y[y == 3] = 0
    costs = np.array([[0, 1, 2, 9], [3, 0, 1, 9], [1, 1, 0, 9], [9, 9, 9, 0.0]])
    scores = np.array([0.1, 0.0, -0.2, -np.inf])
    losses = costs[y].ravel()
    n = len(y)
    problem = FactorGraphs(
        [Structure([0], [0])], np.zeros(n, int), [Template(np.arange(4), scores)], [], Features(X), Features.constant(),
        np.arange(n), np.zeros(n, int), y, losses,
    )  # fmt: skip
    best = exact_optimum(problem, 20.0)
    result = SoftBCFW().solve(problem, 20.0, tol=1e-6, max_passes=100_000)
    assert isinstance(SoftBCFW().make_run(problem, 0.05, 0, 1), SingleRun)
    assert best - 1e-8 <= result.primal <= best + 2e-6


@pytest.mark.parametrize("n_classes", [1, 3])
def test_most_visits_are_left_out_and_nothing_is_lost(n_classes):
    X, y = rows(max(n_classes, 2), n=2000, seed=3, spread=4.0)
    problem = build(X, y, n_classes)
    some, all_of_them = (
        SoftBCFW(sampling=how).solve(problem, 2000.0, tol=1e-5, max_passes=100_000) for how in ("gap", "uniform")
    )
    assert some.status is all_of_them.status is Status.CONVERGED
    assert some.dual <= all_of_them.primal
    assert all_of_them.dual <= some.primal
    assert all_of_them.n_oracle_calls == all_of_them.n_passes * len(y)
    assert some.n_oracle_calls < 0.6 * all_of_them.n_oracle_calls
    assert some.history["n_active"][-1] < 0.5 * len(y)


def test_examples_that_were_left_out_too_soon_come_back(monkeypatch):
    X, y = rows(3, n=600, seed=4)
    problem = build(X, y, 3)
    # All that is settled at all is left out.
    monkeypatch.setattr(single_run.SingleState, "__init__", _with_leave_out(single_run.SingleState.__init__, 0.0))
    result = SoftBCFW().solve(problem, 600.0, tol=1e-6, max_passes=100_000)
    assert result.status is Status.CONVERGED
    np.testing.assert_allclose(value(problem, 600.0, result.weights), result.primal, rtol=1e-10)


def _with_leave_out(init, leave_out):
    def changed(self, *values, **named):
        init(self, *values, **named | {"leave_out": leave_out})

    return changed


@pytest.mark.parametrize("n_classes", [1, 4])
@pytest.mark.parametrize("C", [1.0, 5000.0])  # without a proximal term, and with one
@pytest.mark.parametrize("passes", [1, 5, 6, 13])
def test_a_checkpoint_continues_bit_for_bit(n_classes, C, passes, tmp_path):
    X, y = rows(max(n_classes, 2), n=300, seed=6)
    problem, path = build(X, y, n_classes), tmp_path / "run.ckpt"
    whole = SoftBCFW().solve(problem, C, tol=1e-12, max_passes=30)
    SoftBCFW().solve(problem, C, tol=1e-12, max_passes=passes, checkpoint=path)
    resumed = SoftBCFW().solve(problem, C, tol=1e-12, max_passes=30, checkpoint=path)
    assert resumed.n_passes == whole.n_passes
    assert (resumed.weights == whole.weights).all()
    assert (resumed.primal, resumed.dual) == (whole.primal, whole.dual)


@pytest.mark.parametrize("n_classes", [1, 4])
def test_a_pass_in_pieces_and_threads_have_the_same_bits(n_classes, monkeypatch):
    X, y = rows(max(n_classes, 2), n=300, seed=7)
    problem = build(X, y, n_classes)
    whole = SoftBCFW().solve(problem, 500.0, tol=1e-6)
    threads = SoftBCFW().solve(problem, 500.0, tol=1e-6, n_jobs=3)
    monkeypatch.setattr(single_run, "_ENTRIES", 100.0)
    pieces = SoftBCFW().solve(problem, 500.0, tol=1e-6)
    for other in (threads, pieces):
        assert (other.weights == whole.weights).all()
        assert other.n_passes == whole.n_passes
        assert other.n_oracle_calls == whole.n_oracle_calls


@pytest.mark.parametrize("n_classes", [1, 4])
def test_dense_and_compressed_rows_have_the_same_bits(n_classes):
    X, y = rows(max(n_classes, 2), n=200, seed=8)
    one, other = (SoftBCFW().solve(build(rows_, y, n_classes), 50.0, tol=1e-6) for rows_ in (X, sp.csr_array(X)))
    assert (one.weights == other.weights).all()


def test_a_warm_start_for_another_C_needs_fewer_visits():
    X, y = rows(3, n=500, seed=9)
    problem = build(X, y, 3)
    first = SoftBCFW().solve(problem, 100.0, tol=1e-5, max_passes=10_000)
    cold = SoftBCFW().solve(problem, 200.0, tol=1e-5, max_passes=10_000)
    warm = SoftBCFW().solve(problem, 200.0, tol=1e-5, max_passes=10_000, state=first.state)
    assert warm.status is Status.CONVERGED
    assert warm.n_oracle_calls < cold.n_oracle_calls
    assert abs(warm.primal - cold.primal) <= 1e-5


def test_a_smoothed_problem_leaves_nothing_out():
    X, y = rows(3, n=100, seed=10)
    problem = build(X, y, 3)
    smooth = SoftBCFW(smoothing=0.1).solve(problem, 10.0, tol=0, max_passes=50)
    assert smooth.n_oracle_calls == 50 * len(y)
    best = exact_optimum(problem, 10.0)
    assert smooth.dual <= best <= smooth.primal <= best + 0.1


def test_which_problems_are_plainly_binary():
    X, y = rows(2)
    assert is_plain_binary(binary_problem(X, y))
    assert not is_plain_binary(multi_class_problem(X, y, 2))


def test_rows_without_features_and_classes_that_are_never_confused():
    X, y = np.zeros((6, 2)), np.array([0, 1, 0, 1, 1, 1])
    for n_classes in (1, 2):
        result = SoftBCFW().solve(build(X, y, n_classes), 10.0, tol=1e-9)
        assert result.status is Status.CONVERGED
        assert result.primal == pytest.approx(1.0)

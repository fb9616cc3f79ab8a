"""Visits whose threads share one example: the same bits for any number of threads, and the moves of visits.py."""

from __future__ import annotations

import copy
import threading
import time

import numpy as np
import pytest
import scipy.sparse as sp

from maxmargin.problems import label_edges, multi_class_problem, multi_label_problem
from maxmargin.problems.chains import chain_problem
from maxmargin.problems.features import Features
from maxmargin.solvers import SoftBCFW, Status
from maxmargin.solvers.soft import pair_visits
from maxmargin.solvers.soft.pair_visits import PARTS, cuts, shares_examples
from reference.quadratic_program import optimum


def label_sets(n=60, n_labels=12, sparse=False, weights=False, pairs="full"):
    rng = np.random.default_rng(n_labels)
    X, Y = rng.normal(size=(n, 5)) * (rng.random((n, 5)) < 0.7), rng.integers(0, 2, (n, n_labels))
    given = {"sample_weight": rng.integers(0, 3, n).astype(float)} if weights else {}
    return multi_label_problem(sp.csr_array(X) if sparse else X, Y, label_edges(pairs, Y), n_labels, **given)


PROBLEMS = {
    "labels": label_sets,
    "sparse": lambda: label_sets(sparse=True),
    "more labels": lambda: label_sets(n_labels=37),
    "few labels": lambda: label_sets(n_labels=3),
    "a tree of pairs": lambda: label_sets(pairs="tree"),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_number_of_threads_does_not_change_the_bits(name):
    problem = PROBLEMS[name]()
    assert shares_examples(problem)
    one, *others = [SoftBCFW().solve(problem, 20.0, tol=0.0, max_passes=12, n_jobs=n) for n in (1, 2, 3, 4)]
    for other in others:
        np.testing.assert_array_equal(one.weights, other.weights)
        for column in ("primal", "dual", "block_gap", "disagreement", "rho"):
            np.testing.assert_array_equal(one.history[column], other.history[column])
        for field in ("mu", "table", "nu", "block_gap"):
            np.testing.assert_array_equal(getattr(one.state.point, field), getattr(other.state.point, field))


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("options", [{}, {"multipliers": False, "rho": 2.0}, {"smoothing": 0.01}])
def test_a_visit_moves_what_it_moves_one_block_at_a_time(name, options):
    """Beside visits.py, which knows nothing of workers.

    At a point drawn at random, and of one sweep: at others, joint states have equal scores, and the last bit decides between them.
    """
    problem, solver = PROBLEMS[name](), SoftBCFW(sweeps=1, **options)
    run, rng, n_moved = solver.make_run(problem, 0.2, 0, 1), np.random.default_rng(0), 0
    now = run.truth()
    now.w_v[:], now.w_f[:] = rng.normal(size=now.w_v.shape), rng.normal(size=now.w_f.shape)
    now.point.nu[:] = rng.normal(size=now.point.nu.shape)
    now.point.table[:] = rng.dirichlet(np.ones(4), len(now.point.table) // 4).ravel()
    now.point.mu[:] = rng.dirichlet(np.ones(2), len(now.point.mu) // 2).ravel()
    visits = run.pair_visits
    for m in range(problem.n_examples):
        found = []
        for run.pair_visits in (visits, None):
            again = copy.deepcopy(now)
            with run.in_lines(again):
                run.visit(again, np.array([m]), edgeless=m % 5 == 0)
            found.append(again)
        n_moved += not np.array_equal(again.point.table, now.point.table)
        for field in ("w_v", "w_f"):
            np.testing.assert_allclose(*(getattr(one, field) for one in found), atol=1e-12)
        for field in ("mu", "table", "nu", "block_gap", "disagreement"):
            np.testing.assert_allclose(*(getattr(one.point, field) for one in found), atol=1e-12)
    assert n_moved > problem.n_examples // 2


@pytest.mark.parametrize("jobs", [1, 2])
def test_they_reach_the_optimum_of_the_relaxation(jobs):
    problem = label_sets(n=12, n_labels=4)
    best, result = optimum(problem, 5.0), SoftBCFW().solve(problem, 5.0, tol=1e-3, max_passes=3000, n_jobs=jobs)
    assert result.status is Status.CONVERGED
    assert result.dual - 1e-7 <= best <= result.primal + 1e-7


def test_walks_without_the_others_are_known_to_them(monkeypatch):
    """What the leader does alone, the others read afterwards."""
    problem = label_sets(n=200)
    one = SoftBCFW().solve(problem, 20.0, tol=0.0, max_passes=9)
    due = iter([True, True] * 2 + [False, True, True] * 40)
    monkeypatch.setattr(pair_visits.Attendance, "is_due", lambda self: next(due))
    other = SoftBCFW().solve(problem, 20.0, tol=0.0, max_passes=9, n_jobs=2)
    np.testing.assert_array_equal(one.weights, other.weights)


@pytest.mark.parametrize("number", [0, 1])
def test_a_worker_that_fails_ends_the_others(number, monkeypatch):
    real, began = pair_visits.visit_pairs, threading.Event()

    def failing(*arguments):
        worker, order = arguments[-2].number, arguments[4]
        if worker == number and len(order):
            began.set()
            raise ValueError("not here")
        # A worker that has not begun when the leader ends never does.
        assert not len(order) or began.wait(60.0)
        return real(*arguments)

    monkeypatch.setattr(pair_visits, "visit_pairs", failing)
    with pytest.raises(ValueError, match="not here"):
        SoftBCFW().solve(label_sets(n=300), 20.0, tol=0.0, max_passes=2, n_jobs=2)


def test_examples_without_weight_are_left_out():
    problem = label_sets(weights=True)
    one, other = (SoftBCFW().solve(problem, 20.0, tol=0.0, max_passes=5, n_jobs=n) for n in (1, 2))
    np.testing.assert_array_equal(one.weights, other.weights)
    assert np.isfinite(one.weights).all()


def test_workers_that_part_and_come_back_do_the_same(monkeypatch):
    """More threads than cores, beside one that has other work: they are late again and again, and come back at once."""
    problem = label_sets(n=400, n_labels=20)
    one = SoftBCFW().solve(problem, 20.0, tol=0.0, max_passes=4)
    monkeypatch.setattr(pair_visits, "_NAP", 1e-5)
    monkeypatch.setattr(pair_visits, "_PARTINGS", 1 << 30)
    stop, rival = threading.Event(), threading.Thread(target=lambda: busy(stop))
    rival.start()
    try:
        results = [SoftBCFW().solve(problem, 20.0, tol=0.0, max_passes=4, n_jobs=n) for n in (2, 4)]
    finally:
        stop.set()
        rival.join()
    for other in results:
        np.testing.assert_array_equal(one.weights, other.weights)


def busy(stop):
    while not stop.is_set():
        sum(range(2000))
        time.sleep(1e-5)


def test_cuts_are_at_lines():
    for n in (1, 7, 8, 30, 435, 1000):
        at = cuts(n)
        assert len(at) == PARTS + 1
        assert at[0] == 0
        assert at[-1] == n
        assert (np.diff(at) >= 0).all()
        assert all(k % 8 == 0 or k == n for k in at)


def test_other_problems_do_not_share_examples():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6, 3))
    assert not shares_examples(multi_class_problem(X, np.arange(6) % 3, 3))
    assert not shares_examples(chain_problem(Features(X), np.arange(6) % 2, 2, lengths=np.array([4, 2])))

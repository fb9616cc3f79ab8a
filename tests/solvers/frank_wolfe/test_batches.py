"""Visits in batches that threads share: the same bits for any number of threads, and the optimum of the problem written out."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from maxmargin.problems import Features, graph_problem, label_edges, multi_class_problem, multi_label_problem
from maxmargin.problems.chains import chain_problem
from maxmargin.solvers import BCFW, Status
from maxmargin.solvers.core import batches as core_batches
from maxmargin.solvers.core.batches import in_batches
from maxmargin.solvers.frank_wolfe import plane_run
from maxmargin.solvers.frank_wolfe.visits import Rules
from maxmargin.solvers.planes.arena import INNER, STEPS
from reference.enumerated_program import exact_optimum
from reference.quadratic_program import optimum
from reference.random_problems import random_problem

SLACK = 1e-7


@pytest.fixture
def batches(monkeypatch):
    """Batches of up to a quarter of the examples, from the second pass on, however few there are."""
    monkeypatch.setattr(core_batches, "BATCH_SHARE", 0.25)


def chains(n=60, n_states=15, sparse=False, bio=False):
    rng = np.random.default_rng(n_states)
    lengths = rng.integers(1, 8, n)
    X = rng.normal(size=(lengths.sum(), 20)) * (rng.random((lengths.sum(), 20)) < 0.2)
    tags = rng.integers(0, n_states, lengths.sum())
    if bio:
        # What may follow a state is the state itself and those above it.
        tags = np.concatenate([np.sort(one) for one in np.split(tags, np.cumsum(lengths)[:-1])])
    forbidden = np.tril(np.ones((n_states, n_states), bool), -1) if bio else None
    return chain_problem(
        Features(sp.csr_array(X) if sparse else X), tags, n_states, lengths=lengths, forbidden=forbidden
    )


def labels(n=60, sparse=False):
    rng = np.random.default_rng(1)
    X, Y = rng.normal(size=(n, 6)), rng.integers(0, 2, (n, 5))
    return multi_label_problem(sp.csr_array(X) if sparse else X, Y, label_edges("full", Y), 5)


def classes(n=80):
    rng = np.random.default_rng(2)
    return multi_class_problem(rng.normal(size=(n, 4)), rng.integers(0, 20, n), 20)


def grids(n=40):
    rng = np.random.default_rng(3)
    edges = np.array([[0, 1], [2, 3], [0, 2], [1, 3]])
    graphs = [(rng.normal(size=(4, 3)), edges) for _ in range(n)]
    return graph_problem(graphs, [rng.integers(0, 3, 4) for _ in range(n)], 3)


PROBLEMS = {
    "chains": chains,
    "chains of few states": lambda: chains(n_states=3),
    "sparse chains": lambda: chains(sparse=True),
    "chains with rules": lambda: chains(bio=True),
    "labels": labels,
    "sparse labels": lambda: labels(sparse=True),
    "classes": classes,
    "graphs": grids,
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_number_of_threads_does_not_change_the_bits(name, batches):
    problem = PROBLEMS[name]()
    one, *others = [BCFW().solve(problem, 20.0, tol=0.0, max_passes=12, n_jobs=n) for n in (1, 2, 3)]
    for other in others:
        np.testing.assert_array_equal(one.weights, other.weights)
        for column in ("primal", "dual", "gap", "n_oracle_calls", "n_cached", "bytes"):
            np.testing.assert_array_equal(one.history[column], other.history[column])
        np.testing.assert_array_equal(one.state.store.alpha, other.state.store.alpha)
        assert one.state.store.filled.tolist() == other.state.store.filled.tolist()


def test_dense_and_sparse_features_train_to_the_same_bits(batches):
    for make in (chains, labels):
        dense, sparse = (
            BCFW().solve(make(sparse=kind), 20.0, tol=0.0, max_passes=8, n_jobs=2) for kind in (False, True)
        )
        np.testing.assert_array_equal(dense.weights, sparse.weights)


@pytest.mark.parametrize("wide", [0, 1000], ids=["few coordinates", "all coordinates"])
@pytest.mark.parametrize("jobs", [1, 3])
def test_batches_close_the_gap(wide, jobs, monkeypatch):
    monkeypatch.setattr(core_batches, "BATCH_SHARE", 1.0)
    monkeypatch.setattr(plane_run, "_WIDE", wide)
    for seed in range(12):
        rng = np.random.default_rng(seed)
        relaxed = seed % 3 == 0
        options = {"max_states": 2, "max_arity": 2, "forbidden": False} if relaxed else {"forbidden": bool(seed % 2)}
        kind = "loopy" if relaxed else "forest"
        problem = random_problem(
            rng, kind=kind, n_examples=8, max_variables=4, sparse=bool(seed % 2), shared=False,
            **({"max_states": 3, "max_arity": 3} | options),
        )  # fmt: skip
        best = optimum(problem, 5.0) if relaxed else exact_optimum(problem, 5.0)
        engine = "graph_cut" if relaxed else "trees"
        result = BCFW(engine).solve(problem, 5.0, tol=1e-4, max_passes=5000, n_jobs=jobs)
        assert result.status is Status.CONVERGED, (seed, result.summary())
        assert result.dual - SLACK <= best <= result.primal + SLACK, (seed, best, result.summary())
        assert (np.diff(result.history["dual"]) >= -1e-12).all(), seed


@pytest.mark.parametrize("name", PROBLEMS)
def test_coordinates_of_planes_have_the_slopes_of_all_coordinates(name, batches):
    """What is read and written where planes are is what a projection reads and writes, but for rounding."""
    problem = PROBLEMS[name]()
    run = BCFW().make_run(problem, 0.05, 0, 1)
    now = run.begin(None)
    for _ in range(3):
        run.one_pass(now, lambda: False)
    rules, n_moved = Rules(run.scale, np.inf, np.inf, INNER, STEPS, False), 0
    # One visit each: where a block's steps end depends on the last bit of what came before.
    for m in range(problem.n_examples):
        found = []
        for run.few in (True, False):
            again = replace(now, w_v=now.w_v.copy(), w_f=now.w_f.copy(), store=now.store._copy())
            gain = run.visit(again, np.array([m]), rules, np.zeros(3, np.int64))
            found.append((gain, again.w_v, again.w_f, again.store.alpha))
        n_moved += not np.array_equal(again.w_v, now.w_v)
        for one, other in zip(*found, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)
    assert n_moved > 10


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_checkpoint_in_the_middle_goes_on_bit_for_bit(jobs, batches, tmp_path):
    problem = chains()
    whole = BCFW().solve(problem, 20.0, tol=0.0, max_passes=12)
    path = tmp_path / "state"
    BCFW().solve(problem, 20.0, tol=0.0, max_passes=5, checkpoint=path, n_jobs=jobs)
    rest = BCFW().solve(problem, 20.0, tol=0.0, max_passes=12, checkpoint=path, n_jobs=3 - jobs)
    np.testing.assert_array_equal(rest.weights, whole.weights)
    assert rest.dual == whole.dual


@pytest.mark.parametrize("jobs", [1, 3])
def test_segments_that_are_full_get_more_room(jobs, batches, monkeypatch):
    problem = chains()
    roomy = BCFW().solve(problem, 20.0, tol=0.0, max_passes=10)
    monkeypatch.setattr(plane_run, "_ROOM", 1)
    tight = BCFW().solve(problem, 20.0, tol=0.0, max_passes=10, n_jobs=jobs)
    assert len(tight.state.store.entry) < len(roomy.state.store.entry)
    np.testing.assert_array_equal(tight.weights, roomy.weights)
    np.testing.assert_array_equal(tight.history["dual"], roomy.history["dual"])


def test_batches_of_large_examples_are_small(batches, monkeypatch):
    problem = chains()
    run = BCFW().make_run(problem, 0.05, 0, 2)
    assert run.batch_size(20) == 15
    monkeypatch.setattr(plane_run, "_CHANGES", 3 * plane_run.SLOTS * (2 * run.half + 1))
    assert run.batch_size(20) == 3
    one, other = (BCFW().solve(problem, 20.0, tol=0.0, max_passes=6, n_jobs=n) for n in (1, 2))
    np.testing.assert_array_equal(one.weights, other.weights)
    monkeypatch.setattr(plane_run, "_CHANGES", 1)
    assert run.batch_size(20) == 1
    walk = run.new_walk(run.begin(None), np.arange(60), Rules(1.0, 0.0, 0.0, INNER, STEPS, True))
    assert len(walk.move) == 1


def test_a_time_limit_holds_in_threads(batches):
    problem = chains(n=3000)
    BCFW().solve(problem, 1e4, tol=0.0, max_passes=1, n_jobs=2)
    started = time.perf_counter()
    result = BCFW().solve(problem, 1e4, tol=0.0, max_seconds=0.3, n_jobs=2)
    assert result.status is Status.TIME_LIMIT
    assert time.perf_counter() - started < 20.0


@pytest.mark.parametrize("size", [1, 2, 7, 100])
def test_a_batch_has_an_example_once(size):
    rng = np.random.default_rng(size)
    for order in (rng.integers(0, 12, 60), np.zeros(9, np.int64), np.arange(30), np.empty(0, np.int64)):
        places, starts = in_batches(order, size, 30)
        assert sorted(places) == list(range(len(order)))
        assert starts[0] == 0
        assert starts[-1] == len(order)
        for begin, end in itertools.pairwise(starts):
            batch = order[places[begin:end]]
            assert 1 <= len(batch) <= size
            assert len(set(batch)) == len(batch)
    places, starts = in_batches(np.arange(30), size, 30)
    assert places.tolist() == list(range(30))
    assert len(starts) == 1 + -(-30 // size)

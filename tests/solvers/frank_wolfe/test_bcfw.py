"""BCFW against the training problem written out, with every kind of oracle and step."""

from __future__ import annotations

import itertools
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from maxmargin.errors import OptionError
from maxmargin.inference import JunctionTree
from maxmargin.problems import Features, graph_problem, label_edges, multi_label_problem, statistics
from maxmargin.problems.chains import chain_problem
from maxmargin.solvers import FrankWolfe, OneSlack, Status, Subgradient
from maxmargin.solvers.frank_wolfe import plane_run
from maxmargin.solvers.frank_wolfe.bcfw import BCFW
from reference.enumerated_program import exact_optimum
from reference.quadratic_program import optimum
from reference.random_problems import random_problem

SLACK = 1e-7


def problem_of(seed, **options):
    rng = np.random.default_rng(seed)
    options = {
        "kind": ("loopy", "forest")[seed % 2],
        "n_examples": int(rng.integers(1, 8)),
        "max_variables": int(rng.integers(1, 6)),
        "max_states": int(rng.integers(2, 4)),
        "max_arity": int(rng.integers(1, 4)),
        "sparse": bool(rng.integers(2)),
        "forbidden": bool(rng.integers(2)),
        "shared": bool(rng.integers(2)),
    } | options
    return random_problem(rng, **options), float(10.0 ** rng.uniform(-1, 1.5))


def check(result, best, seed, tol):
    assert result.dual - SLACK <= best <= result.primal + SLACK, (seed, best, result.summary())
    assert (result.history["dual"] <= best + SLACK).all(), seed
    assert (result.history["primal"] >= best - SLACK).all(), seed
    assert (np.diff(result.history["dual"]) >= -1e-12).all(), seed
    assert result.status is Status.CONVERGED, (seed, result.summary())
    assert result.gap <= tol


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_exact_oracles_close_the_gap_of_the_exact_problem(first):
    for seed in range(first, first + 10):
        problem, C = problem_of(seed)
        best = exact_optimum(problem, C)
        result = BCFW("exhaustive").solve(problem, C, tol=1e-4, max_passes=5000)
        assert result.certificate == "exact"
        check(result, best, seed, 1e-4)


@pytest.mark.parametrize("options", [{}, {"steps": "pairwise"}, {"sampling": "uniform"}, {"cache": 0}, {"cache": 2}])
def test_trees_inside_the_loop(options):
    for seed in range(1, 31, 2):
        problem, C = problem_of(seed)
        best = exact_optimum(problem, C)
        result = BCFW(**options).solve(problem, C, tol=1e-4, max_passes=20_000)
        assert result.options["inference"] == "trees"
        check(result, best, seed, 1e-4)


@pytest.mark.parametrize("engine", ["graph_cut", "linear_program"])
def test_relaxed_oracles_close_the_relaxed_gap(engine):
    for seed in range(0, 40, 2):
        problem, C = problem_of(seed, max_states=2, max_arity=2, forbidden=False)
        best = optimum(problem, C)
        result = BCFW(engine).solve(problem, C, tol=1e-4, max_passes=5000)
        assert result.certificate == "relaxed"
        check(result, best, seed, 1e-4)


def test_linear_programs_of_any_states_and_arity():
    for seed in range(0, 16, 2):
        problem, C = problem_of(seed, forbidden=False)
        result = BCFW("linear_program").solve(problem, C, tol=1e-4, max_passes=5000)
        check(result, optimum(problem, C), seed, 1e-4)


def test_the_plain_algorithm():
    for seed in range(1, 21, 2):
        problem, _ = problem_of(seed)
        best = exact_optimum(problem, 1.0)
        result = BCFW.plain().solve(problem, 1.0, tol=3e-3, max_passes=20_000)
        check(result, best, seed, 3e-3)


def test_an_oracle_that_may_miss_certifies_nothing():
    problem, C = problem_of(4)
    result = BCFW("greedy").solve(problem, C, tol=1e-4, max_passes=50)
    assert result.certificate == "none"
    assert result.status is not Status.CONVERGED
    # Its planes are true ones, so the dual still is a bound.
    assert result.dual <= exact_optimum(problem, C) + SLACK


def chain(n=30, seed=0):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 8, n)
    return chain_problem([rng.normal(size=(t, 5)) for t in lengths], [rng.integers(0, 4, t) for t in lengths], 4)


def test_planes_that_outgrow_their_room():
    """Blocks with two planes at first, and an arena that is compacted: the same optimum."""
    problem = chain(40)
    small, large = BCFW(cache=1), BCFW(cache=50)
    one, other = (solver.solve(problem, 50.0, tol=1e-4, max_passes=5000) for solver in (small, large))
    assert one.status is other.status is Status.CONVERGED
    assert one.state.store.most > 2
    assert one.dual <= other.primal
    assert other.dual <= one.primal


def test_graphs_too_large_for_gram_matrices(monkeypatch):
    """Inner products through the weights' coordinates are those through the rows' Gram matrices."""
    problem = chain(20)

    def products_and_duals():
        store = BCFW().make_run(problem, 0.2, 0, 1).begin(None).store
        gram = store.products.reshape(problem.n_examples, store.most, store.most)
        return gram, BCFW.plain().solve(problem, 5.0, tol=0.0, max_passes=4)

    gram, plain = products_and_duals()
    assert (np.diagonal(gram, axis1=1, axis2=2).sum(axis=1) > 0.0).all()
    monkeypatch.setattr(statistics, "_KEEP_ENTRIES", 0)
    monkeypatch.setattr(statistics, "_KEEP_RATIO", 0)
    assert not statistics.row_grams(problem).kept
    other, again = products_and_duals()
    np.testing.assert_allclose(other, gram, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(again.history["dual"], plain.history["dual"], rtol=1e-9)


@pytest.mark.parametrize("emission_order", [0, 1])
@pytest.mark.parametrize("ones", [False, True])
def test_products_of_sparse_rows(emission_order, ones, monkeypatch):
    """Products of a plane's rows with the others, computed when it is found, are those of Gram matrices, to the bit."""
    rng = np.random.default_rng(1)
    lengths = rng.integers(1, 8, 20)
    X = rng.random((lengths.sum(), 30)) < 0.2
    X = sp.csr_array(X.astype(float) if ones else X * rng.normal(size=X.shape))
    tags = rng.integers(0, 4, lengths.sum())
    problem = chain_problem(Features(X), tags, 4, lengths=lengths, emission_order=emission_order)
    found = statistics.row_grams(problem, of_labelings=True)
    assert found.by_row
    assert not found.kept
    by_row = [solver.solve(problem, 5.0, tol=0.0, max_passes=6) for solver in (BCFW(), BCFW.plain())]
    monkeypatch.setattr(statistics, "_FEW_ROWS", 0)
    assert statistics.row_grams(problem, of_labelings=True).kept
    for result, solver in zip(by_row, (BCFW(), BCFW.plain()), strict=True):
        kept = solver.solve(problem, 5.0, tol=0.0, max_passes=6)
        np.testing.assert_array_equal(result.weights, kept.weights)
        np.testing.assert_array_equal(result.history["dual"], kept.history["dual"])


def test_very_many_examples_begin_with_less_room(monkeypatch):
    problem = chain(40)
    monkeypatch.setattr(plane_run, "_PRODUCTS", 40 * 9)
    monkeypatch.setattr(plane_run, "_LEAST_CAPACITY", 2)
    small = BCFW().solve(problem, 50.0, tol=1e-4, max_passes=5000)
    assert small.status is Status.CONVERGED
    assert small.state.store.capacity.min() < small.state.store.most
    monkeypatch.undo()
    large = BCFW().solve(problem, 50.0, tol=1e-4, max_passes=5000)
    assert small.dual <= large.primal
    assert large.dual <= small.primal


def test_threads_do_not_change_the_bits():
    problem = chain(60)
    one, two = (BCFW(averaging=True).solve(problem, 10.0, tol=1e-4, n_jobs=n, max_passes=30) for n in (1, 2))
    np.testing.assert_array_equal(one.weights, two.weights)
    np.testing.assert_array_equal(one.history["gap"], two.history["gap"])


@pytest.mark.parametrize("jobs", [1, 2])
def test_checks_of_many_short_examples_and_a_long_one_need_little_room(jobs):
    rng = np.random.default_rng(0)
    lengths = [400, *[3] * 3999]
    X, y = [rng.normal(size=(n, 2)) for n in lengths], [rng.integers(0, 10, n) for n in lengths]
    problem = chain_problem(X, y, 10)
    BCFW().solve(problem, 1.0, max_passes=1, n_jobs=jobs)
    tracemalloc.start()
    BCFW().solve(problem, 1.0, max_passes=1, n_jobs=jobs)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # Room for 4000 planes of the long example is 390 MB.
    assert peak < 2e8, peak


@pytest.mark.parametrize("solver", [BCFW(), BCFW.plain()], ids=["default", "plain"])
def test_a_checkpoint_goes_on_bit_for_bit(solver, tmp_path):
    problem = chain(40)
    whole = solver.solve(problem, 10.0, tol=0.0, max_passes=12)
    path = tmp_path / "state"
    solver.solve(problem, 10.0, tol=0.0, max_passes=5, checkpoint=path)
    rest = solver.solve(problem, 10.0, tol=0.0, max_passes=12, checkpoint=path)
    np.testing.assert_array_equal(rest.weights, whole.weights)
    assert rest.dual == whole.dual


@pytest.mark.parametrize("solver", [BCFW(), BCFW.plain()], ids=["default", "plain"])
def test_a_warm_start_with_a_larger_c_keeps_the_weights(solver):
    problem = chain(40)
    first = solver.solve(problem, 1.0, tol=1e-3, max_passes=1000)
    run = solver.make_run(problem, 0.1, 0, 1)
    now = run.begin(first.state)
    before = solver.make_run(problem, 1.0, 0, 1)
    again = before.begin(first.state)
    np.testing.assert_allclose(now.w_v, again.w_v, atol=1e-12)
    # The gap grows by exactly (1 - lam' / lam) (l - lam |w|^2).
    before.check(again)
    run.check(now)
    squared = float(np.vdot(now.w_v, now.w_v) + np.vdot(now.w_f, now.w_f))
    linear = again.dual + 0.5 * squared
    gaps = [one.history["block_gap"][-1] for one in (now, again)]
    assert gaps[0] - gaps[1] == pytest.approx(0.9 * (linear - squared), rel=1e-9, abs=1e-12)


def test_a_warm_start_on_other_data_begins_afresh():
    """Planes of other data of the same shape would certify what is not so."""
    first, other = chain(20, seed=1), chain(20, seed=1)
    other.variable_features = Features(other.variable_features.matrix()[::-1])
    earlier = BCFW().solve(first, 5.0, tol=1e-4, max_passes=2000)
    warm = BCFW().solve(other, 5.0, tol=1e-4, max_passes=2000, state=earlier.state)
    cold = BCFW().solve(other, 5.0, tol=1e-4, max_passes=2000)
    np.testing.assert_array_equal(warm.weights, cold.weights)


def test_bad_options():
    problem = chain(3)
    for options, words in (
        ({"steps": "away"}, "steps='away' is not known"),
        ({"sampling": "best"}, "sampling='best' is not known"),
        ({"cache": -1}, "cache=-1 is not possible"),
        ({"batch": 0}, "batch=0 is not possible"),
        (
            {"inference": "graph_cut"},
            'The engine "graph_cut" cannot be the oracle here. Example 0: variable 0 has 4 states',
        ),
    ):
        with pytest.raises(OptionError, match=words):
            BCFW(**options).solve(problem)


def test_a_relaxed_state_certifies_nothing_exact():
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(10, 2)), rng.integers(0, 2, (10, 4))
    problem = multi_label_problem(X, Y, label_edges("full", Y), 4)
    for solver in (BCFW, FrankWolfe, Subgradient):
        relaxed = solver("graph_cut").solve(problem, 3.0, max_passes=5)
        with pytest.raises(OptionError, match="belongs to the relaxed problem"):
            solver("exhaustive").solve(problem, 3.0, state=relaxed.state)
        exact = solver("exhaustive").solve(problem, 3.0, max_passes=5)
        # A labeling is a vertex of the relaxation, so this way round is fine.
        assert solver("graph_cut").solve(problem, 3.0, state=exact.state, max_passes=5).certificate == "relaxed"


def dense_rows_always(monkeypatch):
    monkeypatch.setattr("maxmargin.solvers.frank_wolfe.cached_visits._LEAST", 0.0)


@pytest.mark.parametrize("engine", ["exhaustive", "auto"])
def test_visits_with_dense_rows_close_the_gap(monkeypatch, engine):
    dense_rows_always(monkeypatch)
    for seed in range(12):
        problem, C = problem_of(seed, sparse=False, **({"kind": "forest"} if engine == "auto" else {}))
        solver = BCFW(engine)
        assert solver.make_run(problem, 1.0, 0, 1).rows is not None
        check(solver.solve(problem, C, tol=1e-4, max_passes=20_000), exact_optimum(problem, C), seed, 1e-4)


def test_visits_with_dense_rows_do_what_others_do(monkeypatch):
    dense_rows_always(monkeypatch)
    for seed in range(20):
        problem, C = problem_of(seed, n_examples=6, max_variables=6, sparse=False)
        state = BCFW("exhaustive").solve(problem, C, tol=0.0, max_passes=4).state
        run = BCFW("exhaustive").make_run(problem, 1.0 / C, 0, 1)
        # Masses elsewhere than where the last visits left them.
        state.store.shrink(0.5)
        run.make_afresh(state, (state.w_v, state.w_f))
        dense = run.rows
        # One step of one example: a step leaves two planes with equal slopes, and rounding has the choice of the next.
        for m in range(problem.n_examples):
            found = []
            for rows in (dense, None):
                now = replace(state, w_v=state.w_v.copy(), w_f=state.w_f.copy(), store=state.store._copy())
                run.rows, counts = rows, np.zeros(3, np.int64)
                gain = run.visit(now, np.array([m]), run.resting._replace(ask=False, steps=1), counts)
                linear, w = run.linear_part(now), (np.empty_like(now.w_v), np.empty_like(now.w_f))
                run.make_afresh(now, w)
                np.testing.assert_allclose(now.w_v, w[0], atol=1e-9)
                np.testing.assert_allclose(now.w_f, w[1], atol=1e-9)
                found.append((gain, linear, *w, counts))
            for one, other in zip(*found, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-9)


def test_rows_that_were_given_sparse_stay_so(monkeypatch):
    dense_rows_always(monkeypatch)
    problem, _ = problem_of(3, sparse=True)
    assert BCFW().make_run(problem, 1.0, 0, 1).rows is None


def crowded(seed, n_examples=6, n_nodes=9, n_states=4):
    """Complete graphs with labels at random: the relaxation is loose, and no exact engine is cheap."""
    rng, edges = np.random.default_rng(seed), np.array(list(itertools.combinations(range(n_nodes), 2)))
    labels = rng.integers(n_states, size=(n_examples, n_nodes))
    graphs = [(np.eye(n_states)[y] + 1.5 * rng.normal(size=(n_nodes, n_states)), edges) for y in labels]
    return graph_problem(graphs, list(labels), n_states)


@pytest.mark.parametrize("make", [BCFW, OneSlack])
def test_what_dual_decomposition_leaves_open_ends_a_run(make):
    problem, C = crowded(0), 2.0
    result = make().solve(problem, C, tol=1e-6, max_passes=1000)
    assert result.options["inference"] == "dual_decomposition"
    assert result.status is Status.STALLED
    assert result.n_passes < 300
    assert result.certificate == "exact"
    assert result.state.in_earnest
    # The bounds hold for the objective by exact inference.
    w = result.weights
    scores = problem.scores(w, loss_augmented=True)
    best = JunctionTree(10**6).maximise(problem, scores).values - problem.labeling_scores(scores, problem.labels)
    value = w @ w / (2.0 * C) + best.mean()
    assert result.dual - SLACK <= value <= result.primal + SLACK
    if make is BCFW:
        assert "between the labelings" in result.message
        assert result.history["left_open"][-1] > 0.8 * result.gap


def test_a_gap_that_shrinks_is_not_over():
    problem = crowded(1)
    run = BCFW().make_run(problem, 0.5, 0, 1)
    now = run.begin(None)
    now.in_earnest, now.n_passes = True, 100
    now.history = {"n_passes": [50.0, 75.0, 100.0], "gap": [1.0, 0.9, 0.8], "left_open": [0.9, 0.9, 0.9]}
    assert not run.stalled(now)
    now.history["gap"] = [1.0, 0.99, 0.98]
    assert run.stalled(now)
    now.history["left_open"][0] = 0.5
    assert run.stalled(now)
    now.history["left_open"][1] = 0.5
    assert not run.stalled(now)

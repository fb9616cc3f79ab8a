"""Max-oracles against all labelings written out: planes, their mean, hinges, and what each engine's answers are worth."""

from __future__ import annotations

import numpy as np
import pytest

from maxmargin.errors import DataError, OptionError
from maxmargin.inference import JunctionTree, Trees, batches
from maxmargin.problems.chains import chain_problem
from maxmargin.solvers import NSlack, OneSlack, Status
from maxmargin.solvers.frank_wolfe.bcfw import BCFW
from maxmargin.solvers.oracles.compiled import CliqueOracle
from maxmargin.solvers.oracles.graph_oracle import GraphOracle
from maxmargin.solvers.oracles.max_oracle import oracle_of
from maxmargin.solvers.oracles.prediction import predict
from reference.enumerated_program import exact_optimum, planes
from reference.quadratic_program import optimum
from reference.random_problems import random_problem


def problem_of(seed, **options):
    rng = np.random.default_rng(seed)
    kind = ("loopy", "forest")[seed % 2]
    options = {"sparse": bool(seed % 4 < 2), "forbidden": bool(seed % 3 == 0), "shared": bool(seed % 5 < 3)} | options
    problem = random_problem(rng, kind=kind, n_examples=int(rng.integers(1, 8)), **options)
    return problem, rng.normal(size=problem.n_weights)


def best_planes(problem, w):
    """For every example the plane of largest slope, by enumeration."""
    found = [max(some, key=lambda one: one[1] - w @ one[0]) for some in planes(problem)]
    psi, ell = (np.array(part) for part in zip(*found, strict=True))
    return psi, ell


@pytest.mark.parametrize("engine", ["exhaustive", "trees", "junction_tree"])
def test_exact_engines(engine):
    for seed in range(1, 25, 2 if engine == "trees" else 1):
        problem, w = problem_of(seed)
        psi, ell = best_planes(problem, w)
        oracle = oracle_of(problem, engine)
        assert oracle.certificate == "exact"
        assert oracle.name == engine
        found = oracle.mean_plane(w, 1)
        weight = problem.arrays.weight
        np.testing.assert_allclose(found.hinges, ell - psi @ w, atol=1e-9)
        np.testing.assert_allclose(found.dense(len(w)), weight @ psi / len(ell), atol=1e-9)
        assert found.ell == pytest.approx(weight @ ell / len(ell), abs=1e-9)
        assert found.ell - w @ found.dense(len(w)) == pytest.approx(weight @ found.hinges / len(ell), abs=1e-9)
        # Some examples, in any order and more than once.
        chosen = np.random.default_rng(seed).integers(0, problem.n_examples, 5)
        rows, ells = oracle.planes(w, chosen)
        np.testing.assert_allclose(rows.toarray(), psi[chosen], atol=1e-9)
        np.testing.assert_allclose(ells, ell[chosen], atol=1e-9)
        assert rows.shape == (5, problem.n_weights)
        assert rows.has_canonical_format


@pytest.mark.parametrize("engine", ["graph_cut", "linear_program"])
def test_relaxed_engines_bound_the_hinges(engine):
    fractional = 0
    for seed in range(0, 40, 2):
        problem, w = problem_of(seed, max_states=2, max_arity=2, max_variables=7, forbidden=False)
        w *= 3.0
        psi, ell = best_planes(problem, w)
        oracle = oracle_of(problem, engine)
        assert oracle.certificate == "relaxed"
        found = oracle.mean_plane(w, 1)
        assert (found.hinges >= ell - psi @ w - 1e-8).all()
        fractional += (found.hinges > ell - psi @ w + 1e-6).sum()
        weight = problem.arrays.weight
        assert found.ell - w @ found.dense(len(w)) == pytest.approx(weight @ found.hinges / len(ell), abs=1e-8)
        rows, ells = oracle.planes(w, np.arange(problem.n_examples))
        np.testing.assert_allclose(ells - rows @ w, found.hinges, atol=1e-8)
        np.testing.assert_allclose(weight @ rows / len(ell), found.dense(len(w)), atol=1e-8)
    assert fractional > 0


def test_engines_that_may_miss_give_true_planes():
    for seed in range(0, 30, 2):
        problem, w = problem_of(seed)
        every = planes(problem)
        psi, ell = best_planes(problem, w)
        oracle = oracle_of(problem, "greedy")
        assert oracle.certificate == "none"
        found = oracle.mean_plane(w, 1)
        assert (found.hinges <= ell - psi @ w + 1e-9).all()
        assert (found.hinges >= 0.0).all()
        rows, ells = oracle.planes(w, np.arange(problem.n_examples))
        for m, (row, one) in enumerate(zip(rows.toarray(), ells, strict=True)):
            assert min(np.abs(row - a).max() + abs(one - b) for a, b in every[m]) < 1e-9


def test_bounds_instead_of_hinges():
    for seed in range(0, 12, 2):
        problem, w = problem_of(seed, forbidden=False)
        psi, ell = best_planes(problem, w)
        oracle = oracle_of(problem, "dual_decomposition")
        assert oracle.certificate == "exact"
        found = oracle.mean_plane(w, 1)
        assert (found.hinges >= ell - psi @ w - 1e-8).all()
        weight = problem.arrays.weight
        assert found.ell - w @ found.dense(len(w)) <= weight @ found.hinges / len(ell) + 1e-8


def test_predictions_leave_the_loss_out():
    for seed in range(1, 20, 2):
        problem, w = problem_of(seed, forbidden=False)
        losses = problem.arrays.losses.copy()
        problem.arrays.losses[:] = 0.0
        psi, ell = best_planes(problem, w)
        problem.arrays.losses[:] = losses
        found = oracle_of(problem, loss_augmented=False).mean_plane(w, 1)
        np.testing.assert_allclose(found.hinges, ell - psi @ w, atol=1e-9)
        np.testing.assert_array_equal(problem.arrays.losses, losses)


@pytest.mark.parametrize("engine", ["trees", "loopy_bp"])
def test_threads_do_not_change_the_bits(engine):
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 8, 50)
    problem = chain_problem([rng.normal(size=(t, 5)) for t in lengths], [rng.integers(0, 4, t) for t in lengths], 4)
    oracle = oracle_of(problem, engine)
    assert len(oracle.shards) > 1
    w = rng.normal(size=problem.n_weights)
    one, three = (oracle.mean_plane(w, threads) for threads in (1, 3))
    np.testing.assert_array_equal(one.index, three.index)
    np.testing.assert_array_equal(one.value, three.value)
    np.testing.assert_array_equal(one.hinges, three.hinges)
    assert one.ell == three.ell


@pytest.mark.parametrize(("engine", "best"), [("exhaustive", exact_optimum), ("graph_cut", optimum)])
def test_bcfw_on_an_oracle_alone(engine, best):
    """Factor graphs behind the interface: planes in flat weights lead to the same optimum as statistics do."""

    class Hidden:
        def __init__(self, graphs):
            self.graphs = graphs

        def max_oracle(self, loss_augmented):
            return oracle_of(self.graphs, engine, loss_augmented)

    for seed in range(0, 8, 2):
        problem, _ = problem_of(seed, max_states=2, max_arity=2, forbidden=False)
        result = BCFW(batch=2).solve(Hidden(problem), 2.0, tol=1e-4, max_passes=1000)
        assert result.status is Status.CONVERGED
        assert result.certificate == oracle_of(problem, engine).certificate
        assert result.dual - 1e-7 <= best(problem, 2.0) <= result.primal + 1e-7


def test_what_has_no_oracle():
    with pytest.raises(OptionError, match="A list has no max-oracle"):
        oracle_of([])
    with pytest.raises(OptionError, match="inference='trees' is for factor graphs"):
        oracle_of([], "trees")

    class Own:
        def max_oracle(self, loss_augmented):
            return "its own", loss_augmented

    assert oracle_of(Own()) == ("its own", True)


def second_order(seed, forbidden, emission_order):
    rng = np.random.default_rng(seed)
    lengths = [1, 2, 3, 5, 4]
    tags = [rng.integers(0, 3, n) for n in lengths]
    seen = np.zeros((3, 3), bool)
    for one in tags:
        seen[one[:-1], one[1:]] = True
    return chain_problem(
        [rng.normal(size=(n, 2)) for n in lengths], tags, 3, order=2, emission_order=emission_order,
        forbidden=~seen if forbidden else None, sample_weight=rng.random(5) + 0.5,
    )  # fmt: skip


@pytest.mark.parametrize("emission_order", [0, 1, 2])
@pytest.mark.parametrize("forbidden", [False, True])
def test_chains_of_order_two_are_asked_in_compiled_loops(forbidden, emission_order):
    """All tables are read from the statistics, or, with constraints, those of three tags are, and the others filled."""
    problem = second_order(emission_order, forbidden, emission_order)
    oracle = GraphOracle(problem, "junction_tree")
    assert isinstance(oracle.compiled, CliqueOracle)
    assert oracle.compiled.filled.tolist() == ([True, False, False, False] if forbidden else [])
    for scale in (0.1, 1.0, 5.0):
        w = scale * np.random.default_rng(7).normal(size=problem.n_weights)
        psi, ell = best_planes(problem, w)
        np.testing.assert_allclose(oracle.hinges(*problem.working_weights(w), 1), ell - psi @ w, atol=1e-9)
        rows, ells = oracle.planes(w, np.arange(5))
        np.testing.assert_allclose(rows.toarray(), psi, atol=1e-9)
        np.testing.assert_allclose(ells, ell, atol=1e-9)


@pytest.mark.parametrize("forbidden", [False, True])
def test_solvers_with_clique_trees_reach_the_optimum(forbidden):
    problem = second_order(3, forbidden, 0)
    best = exact_optimum(problem, 4.0)
    for solver in (
        BCFW("junction_tree"),
        BCFW("junction_tree", steps="joint"),
        OneSlack(inference="junction_tree"),
        NSlack(inference="junction_tree"),
    ):
        found = solver.solve(problem, 4.0, tol=1e-5)
        assert found.certificate == "exact"
        assert found.dual - 1e-7 <= best <= found.primal + 1e-7
        assert found.primal - found.dual <= 1e-5


@pytest.mark.parametrize("kind", ["forest", "loopy"])
def test_predictions_from_weights_equal_those_from_tables(kind):
    for seed in range(12):
        rng = np.random.default_rng(seed)
        problem = random_problem(
            rng,
            kind=kind,
            n_examples=int(rng.integers(1, 8)),
            sparse=bool(seed % 2),
            forbidden=bool(seed % 3),
            shared=seed < 6,
        )
        w = rng.normal(size=problem.n_weights)
        engine = Trees() if kind == "forest" else JunctionTree()
        expected, found = batches.predict(problem, w, engine), predict(problem, w, engine, n_jobs=1 + seed % 2)
        np.testing.assert_array_equal(found.labels, expected.labels)
        np.testing.assert_allclose(found.values, expected.values, rtol=1e-13, atol=1e-13)
        np.testing.assert_array_equal(found.bounds, found.values)
    with pytest.raises(DataError, match="The trees engine needs graphs without cycles"):
        predict(second_order(0, False, 0), np.zeros(39 + 6), Trees())


@pytest.mark.parametrize("order", [1, 2])
def test_predictions_of_an_example_that_has_no_labeling(order):
    """Only 1 may follow 0, and nothing may follow 1."""
    forbidden = np.array([[True, False], [True, True]])
    problem = chain_problem([np.ones((2, 1)), np.ones((3, 1))], None, 2, order=order, forbidden=forbidden)
    engine = Trees() if order == 1 else JunctionTree()
    with pytest.raises(DataError, match="Example 1: every labeling is forbidden"):
        predict(problem, np.zeros(problem.n_weights), engine)

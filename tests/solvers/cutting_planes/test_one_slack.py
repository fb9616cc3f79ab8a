"""1-slack cutting planes: the theorems of the paper by enumeration, its stopping rule, the cache, kernels, and how runs go on."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest

from maxmargin import jit
from maxmargin.datasets import make_synth2
from maxmargin.errors import OptionError
from maxmargin.problems import label_edges, multi_label_problem
from maxmargin.problems.chains import chain_problem
from maxmargin.problems.multi_class import binary_problem, multi_class_problem
from maxmargin.problems.python_problem import Model, PythonProblem
from maxmargin.solvers import BCFW, BundleMethod, Callback, NSlack, OneSlack, Status, path
from maxmargin.solvers.oracles.joint_plane import joint_oracle
from reference.enumerated_program import exact_optimum, hinges, planes, value
from reference.interruptions import Ticks, ctrl_c
from reference.kernel_problems import kernelised
from reference.random_problems import coupled_labels, random_problem

SLACK = 1e-7


def problem_of(seed, **options):
    rng = np.random.default_rng(seed)
    options = {"sparse": bool(seed % 4 < 2), "forbidden": bool(seed % 3 == 0)} | options
    kind = ("loopy", "forest")[seed % 2]
    problem = random_problem(rng, kind=kind, n_examples=int(rng.integers(1, 8)), max_variables=4, **options)
    return problem, float(10.0 ** rng.uniform(-1, 1.5))


def chain(n=30, seed=0):
    """Tags that features tell, but not always."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 6, n)
    rows, planted = [rng.normal(size=(t, 5)) for t in lengths], rng.normal(size=(5, 3))
    return chain_problem(rows, [(x @ planted + rng.normal(size=(len(x), 3))).argmax(axis=1) for x in rows], 3)


def classes(n=40, seed=0):
    """Classes that features tell, but not always."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    return multi_class_problem(X, (X @ rng.normal(size=(4, 4)) + rng.normal(size=(n, 4))).argmax(axis=1), 4)


# ------------------------------------------------------------------------------------------------- the theorems


@pytest.mark.parametrize("rescaling", ["margin", "slack"])
def test_n_slack_and_one_slack_are_one_problem(rescaling):
    """Theorems 1 and 2: the same optimum, and xi is the mean of the n slacks there."""
    for seed in range(14):
        problem, C = problem_of(seed)
        best = exact_optimum(problem, C, rescaling)
        one, many = (
            solver.solve(problem, C, tol=1e-5, max_passes=20_000)
            for solver in (OneSlack(rescaling, inference="exhaustive"), NSlack(rescaling, inference="exhaustive"))
        )
        for result in (one, many):
            assert result.certificate == "exact"
            assert result.status is Status.CONVERGED, (seed, result.summary())
            assert (result.history["dual"] <= best + SLACK).all(), seed
            assert (result.history["primal"] >= best - SLACK).all(), seed
            assert result.primal == pytest.approx(value(problem, C, result.weights, rescaling), abs=1e-9)
        # P is strongly convex: both are so near the one optimum, and so are their mean hinges.
        apart = 2.0 * math.sqrt(2.0 * 1e-5 * C)
        assert np.linalg.norm(one.weights - many.weights) <= apart
        steepest = max(float(np.linalg.norm(psi)) for some in planes(problem, rescaling) for psi, _ in some)
        xi = [
            problem.arrays.weight @ hinges(planes(problem, rescaling), w.weights) / problem.n_examples
            for w in (one, many)
        ]
        assert abs(xi[0] - xi[1]) <= apart * steepest + 1e-9


def theorem(problem, C, epsilon, rescaling):
    """The most rounds of theorem 5 or 6, with R and Delta over all labelings."""
    # Without fixed scores, ell is the loss.
    radius = max(float(psi @ psi) for some in planes(problem) for psi, _ in some)
    loss = max(ell for some in planes(problem) for _, ell in some)
    if rescaling == "slack":
        assert epsilon <= 4.0 * loss**2 * radius * C
        return max(0, math.ceil(math.log2(1.0 / (4.0 * radius * loss * C)))) + math.ceil(
            16.0 * radius * loss**2 * C / epsilon
        )
    assert epsilon <= 4.0 * radius * C
    return max(0, math.ceil(math.log2(loss / (4.0 * radius * C)))) + math.ceil(16.0 * radius * C / epsilon)


def hard(n=10):
    """The example of section 3.4 that makes the bound tight: one example, one feature, n classes."""
    return multi_class_problem(np.ones((1, 1)), [0], n)


@pytest.mark.parametrize("rescaling", ["margin", "slack"])
@pytest.mark.parametrize("C", [0.01, 0.3, 10.0])
def test_rounds_are_at_most_those_of_theorems_5_and_6(rescaling, C):
    for problem in (hard(), classes(20), chain(6)):
        # No fixed scores and weights of 1, as in the paper.
        for epsilon in (0.03, 0.003, 0.0003):
            bound = theorem(problem, C, epsilon, rescaling)
            result = OneSlack(rescaling, cache=0, step=1.0, stop="svm-struct").solve(
                problem, C, tol=epsilon, max_passes=bound
            )
            assert result.history["violation"][-1] <= epsilon
            assert result.n_passes <= bound
            assert result.status is Status.CONVERGED


def test_the_bound_is_tight_in_epsilon():
    """k constraints leave a violation of 1 / (k + 1) in the paper's example (C >= 1/2), one constraint after the other."""
    result = OneSlack(cache=0, step=1.0).solve(hard(12), 2.0, tol=1e-6, max_passes=100)
    np.testing.assert_allclose(result.history["violation"][:11], 1.0 / np.arange(1, 12), atol=1e-6)
    assert result.n_passes == 12


# ----------------------------------------------------------------------------------------- SVM-struct's criterion


@pytest.mark.parametrize("rescaling", ["margin", "slack"])
@pytest.mark.parametrize("cache", [0, 5])
@pytest.mark.parametrize(("make", "n", "tol"), [(chain, 8, 3e-3), (classes, 20, 3e-2)])
def test_it_stops_where_svm_struct_does(rescaling, cache, make, n, tol):
    """At the first round whose weights violate no constraint by more than tol; all recomputed by enumeration."""
    problem, C = make(n), 5.0
    every, weight = planes(problem, rescaling), problem.arrays.weight / problem.n_examples
    solver = OneSlack(rescaling, cache=cache, step=1.0, stop="svm-struct", inference="exhaustive")
    result = solver.solve(problem, C, tol=tol, max_passes=2000)
    assert result.status is Status.CONVERGED
    run = solver.make_run(problem, 1.0 / C, 0, 1)
    run.tol = tol
    ask, asked = run.ask, []

    def record(now, u):
        # The value of the programme's model at its weights, from its planes.
        asked.append((run.oracle.flat(u), max(now.ell[j] - dense_plane(now, j) @ u for j in range(now.n_planes))))
        return ask(now, u)

    run.ask = record
    now, violations = run.begin(None), []
    for k in range(result.n_passes):
        assert run.verdict(now, tol, 2000) is None
        run.one_pass(now, lambda: False)
        run.check(now)
        assert len(asked) == k + 1
        w, xi = asked[-1]
        # The programme is solved to a twentieth of the violation before, which counts as violation, too.
        violation, before = weight @ hinges(every, w) - xi, violations[-1] if violations else 0.0
        assert -1e-9 <= now.violation - violation <= 0.06 * max(before, tol)
        violations.append(violation)
    np.testing.assert_array_equal(asked[-1][0], result.weights)
    assert violations[-1] <= tol
    assert (np.array(violations[:-1]) > 0.9 * tol).all()
    assert result.primal == pytest.approx(value(problem, C, result.weights, rescaling), abs=1e-10)
    assert (cache > 0) == (result.history["n_recalled"][-1] > 0)


@pytest.mark.parametrize("rescaling", ["margin", "slack"])
@pytest.mark.parametrize("cache", [0, 5])
@pytest.mark.parametrize("step", ["auto", 0.5])
def test_the_last_weights_meet_svm_structs_rule_wherever_planes_come_from(rescaling, cache, step):
    """Violations and the objective at the weights that are returned, recomputed by enumeration."""
    problem, C, tol = chain(8), 5.0, 1e-3
    every, weight = planes(problem, rescaling), problem.arrays.weight / problem.n_examples
    solver = OneSlack(rescaling, cache=cache, step=step, stop="svm-struct")
    result = solver.solve(problem, C, tol=tol, max_passes=2000)
    now, w = result.state, result.weights
    assert result.status is Status.CONVERGED
    assert now.asked_at_w
    run = solver.make_run(problem, 1.0 / C, 0, 1)
    # The masses are still those of the programme whose solution was asked about, unless that was improved on.
    hinge = weight @ hinges(every, w)
    np.testing.assert_allclose(result.primal, w @ w / (2 * C) + hinge, rtol=1e-9)
    xi = max(now.ell[j] - run.oracle.flat(dense_plane(now, j)) @ w for j in range(now.n_planes))
    assert hinge - xi <= tol + 1e-9
    best = exact_optimum(problem, C, rescaling)
    assert best - 1e-8 <= result.primal <= best + tol


@pytest.mark.parametrize("solver", [OneSlack(), OneSlack(stop="svm-struct"), NSlack(), BundleMethod()])
def test_where_nothing_is_violated_nothing_is_learned(solver):
    """Every loss is 0, so w = 0 is the optimum, and one round proves it."""
    problem = multi_class_problem(np.eye(3), [0, 1, 2], 3, np.zeros((3, 3)))
    result = solver.solve(problem, 1.0)
    assert result.status is Status.CONVERGED
    assert (result.primal, result.dual, result.n_passes) == (0.0, 0.0, 1)
    assert not result.weights.any()


def dense_plane(now, k):
    psi = np.zeros(len(now.w))
    piece = slice(now.start[k], now.start[k + 1])
    psi[now.index[piece]] = now.value[piece]
    return psi


def test_the_default_stops_no_later():
    for seed in range(6):
        problem, C = problem_of(seed)
        ours = OneSlack(cache=0, step=1.0).solve(problem, C, tol=1e-3, max_passes=5000)
        theirs = OneSlack(cache=0, step=1.0, stop="svm-struct").solve(problem, C, tol=1e-3, max_passes=5000)
        assert ours.status is theirs.status is Status.CONVERGED
        assert ours.n_passes <= theirs.n_passes
        assert theirs.history["violation"][-1] <= 1e-3
        assert (theirs.history["violation"][:-1] > 1e-3).all()
        assert theirs.n_oracle_calls == problem.n_examples * theirs.n_passes
    # And sooner, where weights from before meet the bound of now.
    ours, theirs = (
        OneSlack(cache=0, step=1.0, stop=stop).solve(classes(20), 5.0, tol=0.03) for stop in ("gap", "svm-struct")
    )
    assert ours.n_passes < theirs.n_passes
    assert ours.primal < theirs.primal


# ----------------------------------------------------------------------------------------------------- the cache


@pytest.mark.parametrize("rescaling", ["margin", "slack"])
def test_a_cache_saves_calls_and_changes_nothing(rescaling):
    problem, C, tol = classes(60), 30.0, 1e-3
    results = {
        cache: OneSlack(rescaling, cache=cache).solve(problem, C, tol=tol, max_passes=5000) for cache in (0, 1, 5)
    }
    best = exact_optimum(problem, C, rescaling)
    for cache, result in results.items():
        assert result.status is Status.CONVERGED
        assert result.dual - SLACK <= best <= result.primal + SLACK
        assert (result.history["dual"] <= best + SLACK).all()
        recalled = result.history["n_recalled"][-1]
        assert (recalled > 0) == (cache > 0)
        assert result.options["n_recalled"] == recalled
        assert result.n_oracle_calls == 60 * result.n_passes
        assert result.options["cached_planes"] == cache
    assert results[5].n_oracle_calls < 0.7 * results[0].n_oracle_calls


def test_passes_are_rounds_that_ask_the_oracle():
    """With a cache most rounds are recalled; they are bounded, and none of them uses up max_passes."""
    X, Y = make_synth2(60, random_state=0)
    problem = multi_label_problem(X, Y, label_edges("full", Y), 10)
    result = OneSlack(cache=10).solve(problem, 1000.0, tol=1e-3, max_passes=100)
    assert result.status is Status.CONVERGED, result.summary()
    assert result.n_oracle_calls == 60 * result.n_passes
    recalled = result.history["n_recalled"]
    assert recalled[-1] > 5 * result.n_passes
    assert np.diff(recalled).max() <= 100
    np.testing.assert_array_equal(result.history["n_passes"], np.arange(1, result.n_passes + 1))
    limited = OneSlack(cache=10).solve(problem, 1000.0, tol=1e-3, max_passes=5)
    assert (limited.status, limited.n_passes, limited.n_oracle_calls) == (Status.MAX_PASSES, 5, 300)


def test_a_limit_ends_recalled_rounds():
    """A pass that is cut short before it asks the oracle does not count."""
    X, Y = make_synth2(60, random_state=0)
    problem = multi_label_problem(X, Y, label_edges("full", Y), 10)
    run = OneSlack(cache=10).make_run(problem, 1e-3, 0, 1)
    run.tol = 1e-3
    now = run.begin(None)
    for _ in range(3):
        run.one_pass(now, lambda: False)
        run.check(now)
    before = now.n_passes, now.n_oracle_calls, now.n_recalled
    run.one_pass(now, lambda: True)
    assert (now.n_passes, now.n_oracle_calls, now.n_recalled) == (*before[:2], before[2] + 1)


# ------------------------------------------------------------------------------------------ oracles that under-generate


@pytest.mark.parametrize(
    "solver", [OneSlack(inference="greedy"), OneSlack(inference="greedy", cache=0), BundleMethod(inference="greedy")]
)
def test_an_oracle_that_misses_ends_when_nothing_is_violated(solver):
    """A plane of the working set may beat the oracle's answer, and the last weights count, not those of the best value."""
    for seed, C in ((0, 300.0), (2, 300.0), (3, 300.0)):
        problem, tol = coupled_labels(seed), 1e-3
        result = solver.solve(problem, C, tol=tol)
        assert (result.status, result.certificate) == (Status.STALLED, "none"), result.summary()
        assert result.n_passes < 300
        assert 0.0 <= result.gap <= tol
        assert result.history["violation"][-1] <= tol
        assert (result.history["gap"] >= 0.0).all()
        assert result.dual <= exact_optimum(problem, C) + SLACK
        now = result.state
        model = max(now.ell[k] - dense_plane(now, k) @ now.best for k in range(now.n_planes))
        assert result.primal >= now.best @ now.best / (2.0 * C) + model - 1e-12


def test_a_round_that_changes_nothing_is_the_last():
    """Without a tolerance there is nothing to wait for once the oracle has no news."""
    for solver in (OneSlack(inference="greedy"), BundleMethod(inference="greedy")):
        result = solver.solve(coupled_labels(2), 3.0, tol=0.0, max_passes=400)
        assert result.status is Status.STALLED
        assert result.n_passes < 400


def test_auto_leaves_the_cache_out_where_the_oracle_is_fast():
    assert OneSlack().solve(chain(5), max_passes=1).options["cached_planes"] == 0
    assert OneSlack(inference="exhaustive").solve(chain(5), max_passes=1).options["cached_planes"] == 10


def test_planes_of_the_working_set_are_true():
    """With the cache, too: no plane is above the mean hinge anywhere."""
    problem = classes(30)
    now = OneSlack(cache=4).solve(problem, 30.0, tol=1e-3, max_passes=5000).state
    assert now.n_recalled > 0
    rng, every = np.random.default_rng(0), planes(problem)
    oracle = joint_oracle(problem)
    for _ in range(20):
        u = rng.normal(size=len(now.w))
        mean_hinge = problem.arrays.weight @ hinges(every, oracle.flat(u)) / 30
        assert max(now.ell[k] - dense_plane(now, k) @ u for k in range(now.n_planes)) <= mean_hinge + 1e-9


# ------------------------------------------------------------------------------------------ the working set in use


@pytest.mark.parametrize("solver", [OneSlack(inactive=1), OneSlack(inactive=3, cache=3), BundleMethod(inactive=2)])
def test_inactive_planes_are_dropped_and_the_optimum_stays(solver):
    problem = classes(40)
    best = exact_optimum(problem, 10.0)
    result = solver.solve(problem, 10.0, tol=1e-4, max_passes=5000)
    assert result.status is Status.CONVERGED
    assert (result.history["dual"] <= best + SLACK).all()
    assert result.dual - SLACK <= best <= result.primal + SLACK
    now = result.state
    dense = np.array([dense_plane(now, k) for k in range(now.n_planes)])
    np.testing.assert_allclose(now.gram, dense @ dense.T, rtol=1e-12, atol=1e-14)
    kept = type(solver)(**{**solver.options(), "inactive": 10**6}).solve(problem, 10.0, tol=1e-4, max_passes=5000)
    assert now.n_planes < kept.state.n_planes


@pytest.mark.parametrize("refresh", [0.05, 0.4])
@pytest.mark.parametrize("make", [chain, classes])
def test_a_cache_refreshed_in_parts_has_the_same_optimum(make, refresh):
    problem, tol = make(40), 1e-4
    whole = OneSlack(cache=5).solve(problem, 10.0, tol=tol, max_passes=5000)
    result = OneSlack(cache=5, refresh=refresh).solve(problem, 10.0, tol=tol, max_passes=5000)
    assert result.status is whole.status is Status.CONVERGED
    assert result.dual <= whole.primal
    assert whole.dual <= result.primal
    assert result.primal == pytest.approx(value(problem, 10.0, result.weights), abs=1e-9)
    assert result.state.n_refreshed > 0
    # Beside the rounds about all examples, those about a share of each shard.
    share = sum(-(-(end - begin) * refresh // 1) for begin, end in shards_of(problem))
    more = result.n_oracle_calls - problem.n_examples * result.n_passes
    assert 0 < more <= result.state.n_refreshed * share


def shards_of(problem):
    return OneSlack(cache=5).make_run(problem, 1.0, 0, 1).oracle.shards


def test_every_example_has_its_turn(monkeypatch):
    problem, asked = chain(40), set()
    solver = OneSlack(cache=5, refresh=0.1)
    run = solver.make_run(problem, 0.1, 0, 1)
    now = run.begin(None)
    run.one_pass(now, lambda: False)

    def ask(u, cache, turn, shards, threads, pausing=False, segments=None):
        asked.update(m for begin, end in shards for m in range(begin, end))
        return cache

    monkeypatch.setattr(run.oracle, "ask", ask)
    for _ in range(10 * 40):
        run.refreshed(now)
    assert asked == set(range(40))


def test_a_cache_that_is_recalled_asks_the_oracle_less_often():
    problem = chain(80)
    plain = OneSlack(cache=0).solve(problem, 30.0, tol=1e-3, max_passes=5000)
    cached = OneSlack(cache=10).solve(problem, 30.0, tol=1e-3, max_passes=5000)
    assert cached.n_oracle_calls < plain.n_oracle_calls
    # At most so many rounds between two with the oracle, where that is quick.
    assert cached.options["n_recalled"] <= 10 * cached.n_passes


# ------------------------------------------------------------------------------------------------------- kernels


@pytest.mark.parametrize("solver", [OneSlack(cache=0), OneSlack(cache=3), OneSlack(stop="svm-struct"), BundleMethod()])
@pytest.mark.parametrize("make", ["chains", "classes", "labels"])
@pytest.mark.parametrize("kind", ["kernel matrix", "kernel blocks"])
def test_a_linear_kernel_takes_the_steps_of_the_linear_model(solver, make, kind):
    plain, other = kernelised(make, "linear"), kernelised(make, kind)
    passes = 3 if getattr(solver, "cache", 0) == 3 else 12
    one, two = (solver.solve(problem, 2.0, tol=0.0, max_passes=passes) for problem in (plain, other))
    np.testing.assert_allclose(two.history["primal"], one.history["primal"], rtol=1e-8)
    np.testing.assert_allclose(two.history["dual"], one.history["dual"], rtol=1e-8, atol=1e-12)
    matrix = kernelised(make, "kernel matrix")
    linear, dual = plain.scores(one.weights), matrix.scores(two.weights)
    np.testing.assert_allclose(dual.variables, linear.variables, atol=1e-8)
    np.testing.assert_allclose(dual.factors, linear.factors, atol=1e-8)


@pytest.mark.parametrize("solver", [OneSlack(), BundleMethod()])
@pytest.mark.parametrize("make", ["chains", "classes"])
@pytest.mark.parametrize("kind", ["rbf matrix", "rbf blocks"])
def test_a_kernel_has_the_optimum_that_bcfw_finds(solver, make, kind):
    other = BCFW().solve(kernelised(make, "rbf matrix"), 20.0, tol=1e-4, max_passes=5000)
    result = solver.solve(kernelised(make, kind), 20.0, tol=1e-4, max_passes=5000)
    assert result.status is other.status is Status.CONVERGED
    assert result.dual <= other.primal
    assert other.dual <= result.primal
    # What is returned has the value that is said: by the other solver's scores.
    problem = kernelised(make, "rbf matrix")
    scores = problem.scores(result.weights, loss_augmented=True)
    from reference.enumeration import maximise

    _, best, _ = maximise(problem, scores)
    risk = problem.arrays.weight @ (best - problem.labeling_scores(scores, problem.labels)) / problem.n_examples
    w = problem.working_weights(result.weights)
    assert result.primal == pytest.approx(problem.inner(w, w) / 40.0 + risk, abs=1e-9)


# ------------------------------------------------------------------------------------------------ how runs go on

RUNS = {
    "default": OneSlack(),
    "cache": OneSlack(cache=3, inactive=5),
    "as SVM-struct": OneSlack("slack", 2, "svm-struct"),
    "refreshed in parts": OneSlack(cache=3, refresh=0.3),
}


@pytest.mark.parametrize("solver", RUNS)
@pytest.mark.parametrize("make", [chain, classes])
def test_a_checkpoint_goes_on_bit_for_bit(solver, make, tmp_path):
    solver, problem = RUNS[solver], make(40)
    whole = solver.solve(problem, 10.0, tol=0.0, max_passes=40)
    solver.solve(problem, 10.0, tol=0.0, max_passes=20, checkpoint=tmp_path / "state")
    rest = solver.solve(problem, 10.0, tol=0.0, max_passes=40, checkpoint=tmp_path / "state")
    np.testing.assert_array_equal(rest.weights, whole.weights)
    assert (rest.primal, rest.dual, rest.n_oracle_calls) == (whole.primal, whole.dual, whole.n_oracle_calls)
    np.testing.assert_array_equal(rest.history["dual"], whole.history["dual"])


def test_a_checkpoint_of_a_kernel_goes_on(tmp_path):
    problem = kernelised("chains", "rbf blocks")
    whole = OneSlack(cache=2).solve(problem, 10.0, tol=0.0, max_passes=16)
    OneSlack(cache=2).solve(problem, 10.0, tol=0.0, max_passes=8, checkpoint=tmp_path / "state")
    rest = OneSlack(cache=2).solve(problem, 10.0, tol=0.0, max_passes=16, checkpoint=tmp_path / "state")
    np.testing.assert_array_equal(rest.weights, whole.weights)
    assert rest.dual == whole.dual


@pytest.mark.parametrize("solver", RUNS)
@pytest.mark.parametrize("make", [chain, classes])
def test_threads_do_not_change_the_bits(solver, make):
    one, two = (RUNS[solver].solve(make(80), 10.0, tol=0.0, n_jobs=n, max_passes=25) for n in (1, 2))
    np.testing.assert_array_equal(one.weights, two.weights)
    np.testing.assert_array_equal(one.history["dual"], two.history["dual"])


@pytest.mark.parametrize("solver", [OneSlack(), OneSlack(cache=3), OneSlack("slack"), BundleMethod()])
def test_a_warm_start_keeps_the_planes(solver):
    """Planes hold whatever C is, so the first programme is as good as the last was."""
    problem, rescaling = classes(30), getattr(solver, "rescaling", "margin")
    first = solver.solve(problem, 3.0, tol=1e-3, max_passes=5000)
    for C in (0.5, 3.0, 10.0):
        best = exact_optimum(problem, C, rescaling)
        warm = solver.solve(problem, C, tol=1e-3, max_passes=5000, state=first.state)
        cold = solver.solve(problem, C, tol=1e-3, max_passes=5000)
        assert warm.status is Status.CONVERGED
        assert (warm.history["dual"] <= best + SLACK).all()
        assert (warm.history["primal"] >= best - SLACK).all()
        assert warm.n_passes < cold.n_passes
        assert warm.history["dual"][0] > cold.history["dual"][0]


def test_planes_of_another_problem_are_refused():
    """Planes of the other rescaling, or of the relaxation, would certify what is not so."""
    rng = np.random.default_rng(0)
    Y = rng.integers(0, 2, (10, 4))
    problem = multi_label_problem(rng.normal(size=(10, 2)), Y, label_edges("full", Y), 4)
    for kind in (OneSlack, NSlack):
        margin = kind().solve(problem, max_passes=3)
        slack = kind("slack").solve(problem, max_passes=3)
        exact = kind(inference="exhaustive").solve(problem, max_passes=3)
        assert (margin.certificate, slack.certificate, exact.certificate) == ("relaxed", "exact", "exact")
        for solver, other, words in (
            (kind("slack"), exact, "another objective or rescaling"),
            (kind(inference="exhaustive"), slack, "another objective or rescaling"),
            (kind(inference="exhaustive"), margin, "belongs to the relaxed problem"),
        ):
            with pytest.raises(OptionError, match=words):
                solver.solve(problem, state=other.state)
    with pytest.raises(OptionError, match='The earlier state is not one of "one-slack"'):
        OneSlack().solve(problem, state=NSlack().solve(problem, max_passes=1).state)
    log = BundleMethod("log", inference="exhaustive").solve(problem, max_passes=2)
    with pytest.raises(OptionError, match="another objective"):
        BundleMethod(inference="exhaustive").solve(problem, state=log.state)


@pytest.mark.parametrize("solver", [OneSlack(), OneSlack(cache=3), NSlack(), BundleMethod()])
def test_a_path_of_c(solver):
    problem, Cs = classes(30), [10.0, 0.1, 1.0]
    for C, result in zip(Cs, path(problem, Cs, solver, tol=1e-3, max_passes=5000), strict=True):
        assert result.status is Status.CONVERGED
        assert result.dual - SLACK <= exact_optimum(problem, C) <= result.primal + SLACK


@pytest.mark.parametrize("solver", [OneSlack(), NSlack(), BundleMethod(), BundleMethod("log")])
def test_limits_and_interruptions(monkeypatch, solver):
    problem = chain(200)
    with monkeypatch.context() as patch:
        patch.setattr(jit, "clock", Ticks())
        late = solver.solve(problem, 1e4, tol=0.0, max_passes=10**6, max_seconds=40.0)
    assert late.status is Status.TIME_LIMIT
    stopped = solver.solve(problem, 10.0, tol=0.0, monitor=Callback(lambda report: report.n_passes < 5))
    assert stopped.status is Status.INTERRUPTED
    assert stopped.n_passes >= 5
    short = solver.solve(problem, 10.0, tol=0.0, max_passes=4)
    assert (short.status, short.n_passes) == (Status.MAX_PASSES, 4)
    for result in (late, stopped, short):
        assert result.dual <= result.primal < np.inf
        assert np.isfinite(result.weights).all()


@pytest.mark.skipif(os.name == "nt", reason="signals are sent another way on Windows")
@pytest.mark.parametrize("solver", [OneSlack(), NSlack(), BundleMethod()])
def test_ctrl_c_keeps_the_best_certified_weights(solver):
    result = solver.solve(chain(200), 1e5, tol=0.0, max_passes=10**7, monitor=ctrl_c(3))
    assert result.status is Status.INTERRUPTED
    assert result.dual <= result.primal < np.inf
    assert np.isfinite(result.weights).all()


# ---------------------------------------------------------------------------------------------- models in Python


class Signs(Model):
    """Classes of numbers, tried one by one; it may raise after so many questions."""

    def __init__(self, exact=True, after=10**9):
        self.exact, self.left = exact, after

    def joint_features(self, x, y):
        phi = np.zeros((3, 2))
        phi[y] = x
        return phi.ravel()

    def loss(self, y, y_hat):
        return float(y != y_hat)

    def most_violated(self, x, y, w):
        self.left -= 1
        if self.left < 0:
            raise RuntimeError("tired")
        return max(range(3), key=lambda one: self.loss(y, one) + w @ self.joint_features(x, one))

    def predict(self, x, w):
        return max(range(3), key=lambda one: w @ self.joint_features(x, one))


def pairs():
    rng = np.random.default_rng(1)
    return rng.normal(size=(25, 2)), rng.integers(0, 3, 25)


@pytest.mark.parametrize("solver", [OneSlack(), OneSlack(cache=0), NSlack(), BundleMethod()])
def test_a_model_in_python(solver):
    X, y = pairs()
    best = exact_optimum(multi_class_problem(X, y, 3), 3.0)
    result = solver.solve(PythonProblem(list(X), list(y), Signs()), 3.0, tol=1e-3, max_passes=500)
    assert result.certificate == "exact"
    assert result.status is Status.CONVERGED
    assert result.dual - SLACK <= best <= result.primal + SLACK


@pytest.mark.parametrize("solver", [OneSlack(), NSlack(), BundleMethod()])
def test_a_model_that_raises_later_keeps_what_was_learned(solver):
    X, y = pairs()
    with pytest.warns(RuntimeWarning, match="what was learned before is kept.*raised RuntimeError: tired"):
        result = solver.solve(PythonProblem(list(X), list(y), Signs(after=110)), 3.0, tol=0.0, n_jobs=2)
    assert result.status is Status.INTERRUPTED
    assert result.dual <= exact_optimum(multi_class_problem(X, y, 3), 3.0) <= result.primal
    assert "tired" in result.options["error"]


# ---------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize("kind", [OneSlack, NSlack, BundleMethod])
def test_an_exact_certificate_can_be_asked_for(kind):
    rng = np.random.default_rng(0)
    Y = rng.integers(0, 2, (6, 4))
    problem = multi_label_problem(rng.normal(size=(6, 2)), Y, label_edges("full", Y), 4)
    would = '"branch_and_bound" or "exhaustive" or "junction_tree"'
    with pytest.raises(OptionError, match=f'the engine "greedy" is not exact; use {would}.'):
        kind(inference="greedy", certificate="exact").solve(problem)
    with pytest.raises(OptionError, match=f'the engine "graph_cut" relaxes the problem; use {would}.'):
        kind(certificate="exact").solve(problem)
    X, y = pairs()
    with pytest.raises(OptionError, match=r"Signs may miss the best output: .*exact = False.*says exact = True"):
        kind(certificate="exact").solve(PythonProblem(list(X), list(y), Signs(exact=False)))
    with pytest.raises(OptionError, match="certificate='soft' is not known"):
        kind(certificate="soft").solve(problem)
    # What can be had is had, and what is not asked for is not asked.
    exact = kind(inference="exhaustive", certificate="exact").solve(problem, tol=1e-3, max_passes=2000)
    assert (exact.certificate, exact.status) == ("exact", Status.CONVERGED)
    assert (
        kind(certificate="exact").solve(PythonProblem(list(X), list(y), Signs()), max_passes=1).certificate == "exact"
    )
    greedy = kind(inference="greedy").solve(problem, tol=1e-3, max_passes=50)
    assert greedy.certificate == "none"
    assert greedy.status is not Status.CONVERGED
    assert greedy.dual <= exact.primal


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"rescaling": "both"}, "rescaling='both' is not known"),
        ({"cache": -1}, "cache=-1 is not possible"),
        ({"cache": "large"}, "cache='large' is not possible"),
        ({"cache": True}, "cache=True is not possible"),
        ({"stop": "never"}, "stop='never' is not known"),
        ({"step": 0.0}, "step=0.0 is not possible"),
        ({"step": 1.5}, "step=1.5 is not possible"),
        ({"step": "half"}, "step='half' is not possible"),
        ({"inactive": 0}, "inactive=0 is not possible"),
        ({"inactive": 2.5}, "inactive=2.5 is not possible"),
        ({"inference": "magic"}, "no inference engine 'magic'"),
        ({"inference": "graph_cut"}, 'The engine "graph_cut" cannot be the oracle here. Example 0'),
    ],
)
def test_options_are_checked_in_sentences(options, sentence):
    with pytest.raises(OptionError, match=sentence):
        OneSlack(**options).solve(chain(3))


def test_one_pass_serves_binary_problems():
    """The oracle of one pass is what OneSlack uses there, and the optimum is that of all constraints written out."""
    rng = np.random.default_rng(0)
    problem = binary_problem(rng.normal(size=(50, 4)), rng.integers(0, 2, 50), sample_weight=rng.random(50) + 0.5)
    assert OneSlack().make_run(problem, 1.0, 0, 1).oracle.single
    for C in (0.1, 10.0):
        result = OneSlack().solve(problem, C, tol=1e-5, max_passes=2000)
        best = exact_optimum(problem, C)
        assert result.status is Status.CONVERGED
        assert result.dual - SLACK <= best <= result.primal + SLACK

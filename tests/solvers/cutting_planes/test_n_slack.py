"""n-slack cutting planes against all constraints written out, and the working sets recomputed plane by plane."""

from __future__ import annotations

import json

import numpy as np
import pytest

from maxmargin.cli.main import run
from maxmargin.errors import OptionError
from maxmargin.inference import engine
from maxmargin.problems.chains import chain_problem
from maxmargin.problems.multi_class import multi_class_problem
from maxmargin.solvers import NSlack, OneSlack, Status
from maxmargin.solvers.planes.arena import Arena
from reference.enumerated_program import exact_optimum, planes, value
from reference.enumeration import maximise
from reference.kernel_problems import kernelised
from reference.quadratic_program import optimum
from reference.random_problems import coupled_labels, random_problem

SLACK = 1e-7


def problem_of(seed, **options):
    rng = np.random.default_rng(seed)
    options = {"sparse": bool(seed % 4 < 2), "forbidden": bool(seed % 3 == 0)} | options
    kind = ("loopy", "forest")[seed % 2]
    problem = random_problem(rng, kind=kind, n_examples=int(rng.integers(1, 20)), **options)
    return problem, float(10.0 ** rng.uniform(-1, 1.5))


def chain(n=40, seed=0):
    """Tags that features tell, but not always."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 6, n)
    rows, planted = [rng.normal(size=(t, 5)) for t in lengths], rng.normal(size=(5, 3))
    return chain_problem(rows, [(x @ planted + rng.normal(size=(len(x), 3))).argmax(axis=1) for x in rows], 3)


def check(result, best, tol):
    assert result.status is Status.CONVERGED, result.summary()
    assert result.gap <= tol
    assert (result.history["dual"] <= best + SLACK).all()
    assert (result.history["primal"] >= best - SLACK).all()
    assert (np.diff(result.history["dual"]) >= 0.0).all()
    assert (np.diff(result.history["primal"]) <= 0.0).all()


@pytest.mark.parametrize(
    "solver", [NSlack(inference="exhaustive"), NSlack(inference="exhaustive", batch=1, inactive=1)]
)
def test_it_closes_the_exact_gap(solver):
    for seed in range(16):
        problem, C = problem_of(seed)
        result = solver.solve(problem, C, tol=1e-4, max_passes=5000)
        assert result.certificate == "exact"
        check(result, exact_optimum(problem, C), 1e-4)
        assert result.primal == pytest.approx(value(problem, C, result.weights), abs=1e-9)


@pytest.mark.parametrize("engine", ["graph_cut", "linear_program"])
def test_it_closes_the_relaxed_gap(engine):
    for seed in range(0, 16, 2):
        problem, C = problem_of(seed, max_states=2, max_arity=2, forbidden=False)
        result = NSlack(inference=engine).solve(problem, C, tol=1e-4, max_passes=5000)
        assert result.certificate == "relaxed"
        check(result, optimum(problem, C), 1e-4)


def test_bounds_that_are_not_hinges():
    problem, C = problem_of(4, forbidden=False)
    best = exact_optimum(problem, C)
    result = NSlack(inference="dual_decomposition").solve(problem, C, tol=1e-3, max_passes=100)
    assert result.certificate == "exact"
    assert (result.history["dual"] <= best + SLACK).all()
    assert (result.history["primal"] >= best - SLACK).all()


def working_sets(now):
    """Plane, constant and mass of every constraint of each example, without the truth."""
    sets, kept = [], now.planes
    for first, n in zip(kept.first, kept.n_planes, strict=True):
        some = []
        for a in range(first + 1, first + n):
            psi, piece = np.zeros(len(now.w)), slice(kept.start[a], kept.start[a] + kept.size[a])
            psi[kept.entry[piece]] = kept.value[piece]
            some.append((psi, kept.ell[a], kept.alpha[a]))
        sets.append(some)
    return sets


@pytest.mark.parametrize(("seed", "C"), [(0, 30.0), (1, 300.0), (2, 30.0), (3, 30.0), (3, 300.0)])
def test_what_an_oracle_misses_at_one_example_does_not_cancel_what_is_violated_at_another(seed, C):
    """Intractable, algorithm 1, lines 7 and 8, at the weights that come back: greedy's answers against the working sets."""
    problem, tol = coupled_labels(seed), 1e-3
    result = NSlack(inference="greedy").solve(problem, C, tol=tol)
    assert (result.status, result.certificate) == (Status.STALLED, "none"), result.summary()
    now = result.state
    np.testing.assert_allclose(problem.flat_weights(*_working(problem, now.w)), result.weights, atol=1e-12)
    scores = problem.scores_of(problem.working_weights(result.weights), loss_augmented=True)
    found = engine("greedy").maximise(problem, scores).values - problem.labeling_scores(scores, problem.labels)
    slack = np.array([max([0.0, *(ell - psi @ now.w for psi, ell, _ in some)]) for some in working_sets(now)])
    assert (found <= slack + tol).all()
    value = result.weights @ result.weights / (2.0 * C) + np.maximum(found, slack).mean()
    assert result.primal == pytest.approx(value, abs=1e-9)
    # The dual is one of labelings, and bounds the exact optimum; values of the oracle do not.
    assert result.dual <= exact_optimum(problem, C) + SLACK
    assert (result.history["gap"] >= 0.0).all()


def _working(problem, w):
    """The variables' and the factors' part of a working vector."""
    shapes = [one.shape for one in problem.working_weights()]
    cut = shapes[0][0] * shapes[0][1]
    return w[:cut].reshape(shapes[0]), w[cut:].reshape(shapes[1])


def test_some_of_those_runs_have_misses():
    """Otherwise the test before would prove nothing."""
    result = NSlack(inference="greedy").solve(coupled_labels(3), 300.0)
    assert result.dual < exact_optimum(coupled_labels(3), 300.0) - 0.005


def test_without_a_tolerance_bounds_that_are_heuristic_do_not_cross():
    for seed in range(4):
        result = NSlack(inference="greedy").solve(coupled_labels(seed), 300.0, tol=0.0, max_passes=30)
        assert (result.history["gap"] >= 0.0).all()
        assert result.gap < 1e-3


@pytest.mark.parametrize("inactive", [1, 5, 10**6])
def test_working_sets_hold_true_planes_and_all_mass(inactive):
    problem, C = chain(), 20.0
    solver = NSlack(inactive=inactive)
    result = solver.solve(problem, C, tol=1e-4, max_passes=5000)
    check(result, exact_optimum(problem, C), 1e-4)
    now, run = result.state, solver.make_run(problem, 1.0 / C, 0, 1)
    sets, scale = working_sets(now), problem.arrays.weight * C / problem.n_examples
    w = np.zeros(len(now.w))
    for some, every, truth, share in zip(sets, planes(problem), now.planes.alpha[now.planes.first], scale, strict=True):
        assert truth + sum(mass for _, _, mass in some) == pytest.approx(1.0, abs=1e-9)
        assert min([truth, *(mass for _, _, mass in some)]) >= 0.0
        for psi, ell, mass in some:
            w += share * mass * psi
            assert min(np.abs(run.oracle.flat(psi) - a).max() + abs(ell - b) for a, b in every) < 1e-9
    np.testing.assert_allclose(now.w, w, atol=1e-10)
    assert sum(len(some) for some in sets) == now.n_constraints == result.options["constraints"]
    assert result.options["support_vectors"] == sum(mass > 0.0 for some in sets for _, _, mass in some)
    shrank = (np.diff(result.history["n_constraints"]) < 0).any()
    assert shrank == (inactive < 10)


def test_a_cache_without_room_grows():
    """The answers wait in an arena, which may be too small for even one plane."""
    problem, C = chain(), 5.0
    states = []
    for room in (10_000, 1):
        run = NSlack().make_run(problem, 1.0 / C, 0, 1)
        run.answers = Arena.empty(problem.n_examples, 2, room, 8, products=False)
        now = run.begin(None)
        for _ in range(6):
            run.one_pass(now, lambda: False)
            run.check(now)
        states.append(now)
        assert len(run.answers.entry) > 8
    np.testing.assert_array_equal(states[0].w, states[1].w)
    assert states[0].dual == states[1].dual
    assert states[0].n_constraints == states[1].n_constraints > 0


@pytest.mark.parametrize("rescaling", ["margin", "slack"])
def test_a_checkpoint_goes_on_bit_for_bit(rescaling, tmp_path):
    solver, problem = NSlack(rescaling, batch=20, inactive=3), chain()
    whole = solver.solve(problem, 10.0, tol=0.0, max_passes=16)
    solver.solve(problem, 10.0, tol=0.0, max_passes=8, checkpoint=tmp_path / "state")
    rest = solver.solve(problem, 10.0, tol=0.0, max_passes=16, checkpoint=tmp_path / "state")
    np.testing.assert_array_equal(rest.weights, whole.weights)
    assert (rest.primal, rest.dual) == (whole.primal, whole.dual)
    np.testing.assert_array_equal(rest.state.w, whole.state.w)


def test_threads_do_not_change_the_bits():
    one, two = (NSlack(batch=20).solve(chain(80), 10.0, tol=0.0, n_jobs=n, max_passes=10) for n in (1, 2))
    np.testing.assert_array_equal(one.weights, two.weights)
    np.testing.assert_array_equal(one.history["dual"], two.history["dual"])


def test_a_warm_start_with_a_larger_c_keeps_the_weights():
    problem = chain()
    first = NSlack().solve(problem, 1.0, tol=1e-3, max_passes=1000)
    np.testing.assert_allclose(NSlack().make_run(problem, 0.1, 0, 1).begin(first.state).w, first.state.w, rtol=1e-12)
    for C in (0.2, 1.0, 10.0):
        best = exact_optimum(problem, C)
        warm = NSlack().solve(problem, C, tol=1e-3, max_passes=1000, state=first.state)
        cold = NSlack().solve(problem, C, tol=1e-3, max_passes=1000)
        check(warm, best, 1e-3)
        assert warm.n_oracle_calls < cold.n_oracle_calls
        # The earlier state is left as it was.
        assert first.state.planes.alpha.sum() == pytest.approx(40.0)


def test_example_weights_equal_repetition():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20, 3)), rng.integers(0, 3, 20)
    weight = np.where(np.arange(20) < 5, 3.0, 1.0)
    rows = np.repeat(np.arange(20), weight.astype(int))
    weighted = NSlack().solve(multi_class_problem(X, y, 3, sample_weight=weight), 5.0, tol=1e-5, max_passes=1000)
    repeated = NSlack().solve(multi_class_problem(X[rows], y[rows], 3), 5.0, tol=1e-5, max_passes=1000)
    assert weighted.status is repeated.status is Status.CONVERGED
    assert abs(weighted.primal - repeated.primal) <= 1e-5


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"rescaling": "both"}, "rescaling='both' is not known"),
        ({"batch": 0}, "batch=0 is not possible"),
        ({"batch": True}, "batch=True is not possible"),
        ({"batch": 2.5}, "batch=2.5 is not possible"),
        ({"batch": "all"}, "batch='all' is not possible"),
        ({"epsilon": 0.1}, "epsilon=0.1 is not known"),
        ({"stop": "never"}, "stop='never' is not known"),
        ({"inactive": 0}, "inactive=0 is not possible"),
        ({"inference": "graph_cut"}, 'The engine "graph_cut" cannot be the oracle here. Example 0'),
    ],
)
def test_options_are_checked_in_sentences(options, sentence):
    with pytest.raises(OptionError, match=sentence):
        NSlack(**options).solve(chain(3))


# ------------------------------------------------------------------------------------------------------- as published

PUBLISHED = {"batch": 1, "epsilon": "tol", "stop": "svm-struct", "inactive": 10**6}


@pytest.mark.parametrize("rescaling", ["margin", "slack"])
def test_as_published_a_programme_has_one_constraint_more_than_the_last(rescaling):
    """Algorithms 1 and 2: the rule at the end by enumeration, and theorem 18 of Tsochantaridis and others (2005) for the number."""
    problem, C, epsilon = chain(15), 5.0, 0.01
    result = NSlack(rescaling, **PUBLISHED).solve(problem, C, tol=epsilon, max_passes=5000)
    every, now = planes(problem, rescaling), result.state
    check_final(result, exact_optimum(problem, C, rescaling), epsilon)
    # All but the last sweep added a constraint, at least, and that one looked at the programme again.
    assert now.n_programmes == now.n_constraints + 1
    assert result.n_oracle_calls >= 15 * result.n_passes
    sets, flat = working_sets(now), problem.flat_weights(*_working(problem, now.w))
    assert sum(map(len, sets)) == now.n_constraints
    for some, all_of_it in zip(sets, every, strict=True):
        slack = max([0.0, *(ell - psi @ now.w for psi, ell, _ in some)])
        hinge = max(ell - psi @ flat for psi, ell in all_of_it)
        assert hinge <= slack + epsilon + 1e-9
        # No constraint twice.
        assert len({(ell, psi.tobytes()) for psi, ell, _ in some}) == len(some)
    loss = max(problem.worst_losses())
    length = max(np.linalg.norm(psi) for some in planes(problem) for psi, _ in some)
    cost = loss**3 if rescaling == "slack" else loss
    assert now.n_constraints <= max(2 * 15 * loss / epsilon, 8 * C * cost * length**2 / epsilon**2)


def check_final(result, best, tol):
    assert result.status is Status.CONVERGED, result.summary()
    assert result.gap <= tol
    assert result.dual <= best + SLACK
    assert result.primal >= best - SLACK
    assert result.state.violation <= tol


@pytest.mark.parametrize(
    "options",
    [PUBLISHED, PUBLISHED | {"stop": "gap"}, PUBLISHED | {"batch": 7}, {"epsilon": "tol"}, {"stop": "svm-struct"}],
    ids=str,
)
def test_every_option_has_the_same_optimum(options):
    for seed in range(6):
        problem, C = problem_of(seed)
        solver = NSlack(inference="exhaustive", **options)
        result = solver.solve(problem, C, tol=1e-4, max_passes=5000)
        best = exact_optimum(problem, C)
        assert result.status is Status.CONVERGED
        assert result.dual <= best + SLACK
        assert best - SLACK <= result.primal <= best + 1e-4 + SLACK
        assert result.primal == pytest.approx(value(problem, C, result.weights), abs=1e-9)
        if solver.stop == "svm-struct":
            np.testing.assert_allclose(result.weights, solver.make_run(problem, 1.0, 0, 1).weights(result.state))
            assert result.state.violation <= 1e-4


def test_from_a_shell(tmp_path, capsys):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "classes.npz", X=rng.normal(size=(30, 3)), y=rng.integers(0, 3, 30))
    line = ["train", tmp_path / "classes.npz", "-C", 1, "--solver", "n-slack", "--set", "solver.batch=1"]
    line += ["--set", "solver.epsilon=tol", "--stop", "svm-struct", "--kernel", "rbf", "--quiet", "--json"]
    assert run([str(word) for word in line]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [found["options"][name] for name in ("batch", "epsilon", "stop")] == [1, "tol", "svm-struct"]


# ------------------------------------------------------------------------------------------------------- kernels


@pytest.mark.parametrize("options", [{}, PUBLISHED], ids=["default", "published"])
@pytest.mark.parametrize("make", ["chains", "classes", "labels"])
def test_a_kernel_has_the_optimum_that_one_slack_finds(make, options):
    problem = kernelised(make, "rbf matrix")
    other = OneSlack().solve(problem, 20.0, tol=1e-4, max_passes=5000)
    result = NSlack(**options).solve(problem, 20.0, tol=1e-4, max_passes=5000)
    assert result.status is other.status is Status.CONVERGED
    assert result.dual <= other.primal
    assert other.dual <= result.primal
    # What is returned has the value that is said, by the scores of the coefficients.
    scores = problem.scores(result.weights, loss_augmented=True)
    best = maximise(problem, scores)[1]
    risk = problem.arrays.weight @ (best - problem.labeling_scores(scores, problem.labels)) / problem.n_examples
    w = problem.working_weights(result.weights)
    assert result.primal == pytest.approx(problem.inner(w, w) / 40.0 + risk, abs=1e-9)


@pytest.mark.parametrize("make", ["chains", "classes", "labels"])
def test_a_linear_kernel_has_the_scores_of_the_linear_model(make):
    """Weights at a gap of 1e-7 are within sqrt(2 C gap) of the best ones."""
    plain, other = kernelised(make, "linear"), kernelised(make, "kernel matrix")
    one, two = (NSlack().solve(problem, 2.0, tol=1e-7, max_passes=5000) for problem in (plain, other))
    assert one.primal == pytest.approx(two.primal, abs=2e-7)
    linear, dual = plain.scores(one.weights), other.scores(two.weights)
    np.testing.assert_allclose(dual.variables, linear.variables, atol=5e-3)
    np.testing.assert_allclose(dual.factors, linear.factors, atol=5e-3)


def test_a_kernel_in_a_checkpoint_and_from_an_earlier_c(tmp_path):
    problem, place = kernelised("chains", "rbf matrix"), tmp_path / "state"
    whole = NSlack().solve(problem, 10.0, tol=0.0, max_passes=12)
    NSlack().solve(problem, 10.0, tol=0.0, max_passes=6, checkpoint=place)
    rest = NSlack().solve(problem, 10.0, tol=0.0, max_passes=12, checkpoint=place)
    np.testing.assert_array_equal(rest.weights, whole.weights)
    for C in (3.0, 30.0):
        cold = NSlack().solve(problem, C, tol=1e-4, max_passes=5000)
        warm = NSlack().solve(problem, C, tol=1e-4, max_passes=5000, state=whole.state)
        assert warm.dual <= cold.primal
        assert cold.dual <= warm.primal


def test_kernels_in_tiles_are_refused():
    problem = kernelised("classes", "rbf blocks")
    with pytest.raises(
        OptionError, match=r'The solver "n-slack" needs a kernel whose matrix is held, .*; use .*"one-slack"'
    ):
        NSlack().solve(problem)

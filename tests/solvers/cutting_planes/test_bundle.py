"""The bundle method: the hinge against all constraints, the logistic loss against SciPy on an enumerated objective."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp

from maxmargin.errors import OptionError
from maxmargin.problems import graph_problem, label_edges, multi_label_problem
from maxmargin.problems.chains import chain_problem
from maxmargin.problems.features import KernelFeatures
from maxmargin.problems.multi_class import multi_class_problem
from maxmargin.problems.python_problem import Model, PythonProblem
from maxmargin.solvers import BundleMethod, OneSlack, Status
from reference.enumerated_program import exact_optimum, planes, value
from reference.quadratic_program import optimum
from reference.random_problems import random_problem

SLACK = 1e-7


def problem_of(seed, **options):
    rng = np.random.default_rng(seed)
    options = {"sparse": bool(seed % 4 < 2), "forbidden": bool(seed % 3 == 0)} | options
    kind = ("loopy", "forest")[seed % 2]
    problem = random_problem(rng, kind=kind, n_examples=int(rng.integers(1, 8)), **options)
    return problem, float(10.0 ** rng.uniform(-1, 1))


def check(result, best, tol, certificate="exact"):
    assert result.certificate == certificate
    assert result.status is Status.CONVERGED, result.summary()
    assert result.gap <= tol
    assert (result.history["dual"] <= best + SLACK).all()
    assert (result.history["primal"] >= best - SLACK).all()
    assert (np.diff(result.history["dual"]) >= 0.0).all()
    assert (np.diff(result.history["primal"]) <= 0.0).all()


# ------------------------------------------------------------------------------------------------------ the hinge


@pytest.mark.parametrize("step", [0.3, 1.0])
def test_it_closes_the_exact_gap(step):
    for seed in range(12):
        problem, C = problem_of(seed)
        result = BundleMethod(inference="exhaustive", step=step).solve(problem, C, tol=1e-4, max_passes=5000)
        check(result, exact_optimum(problem, C), 1e-4)
        assert result.primal == pytest.approx(value(problem, C, result.weights), abs=1e-9)


def test_it_closes_the_relaxed_gap():
    for seed in range(0, 12, 2):
        problem, C = problem_of(seed, max_states=2, max_arity=2, forbidden=False)
        result = BundleMethod(inference="graph_cut").solve(problem, C, tol=1e-4, max_passes=5000)
        check(result, optimum(problem, C), 1e-4, "relaxed")


def chain(n=30, seed=0, **options):
    """Tags that features tell, but not always."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 5, n)
    rows, planted = [rng.normal(size=(t, 4)) for t in lengths], rng.normal(size=(4, 3))
    tags = [(x @ planted + rng.normal(size=(len(x), 3))).argmax(axis=1) for x in rows]
    return chain_problem(rows, tags, 3, **options)


def test_it_is_one_slack_without_its_cache():
    ours, theirs = (s.solve(chain(), 10.0, tol=1e-4, max_passes=500) for s in (BundleMethod(), OneSlack(cache=0)))
    np.testing.assert_array_equal(ours.weights, theirs.weights)
    np.testing.assert_array_equal(ours.history["dual"], theirs.history["dual"])


@pytest.mark.parametrize("objective", ["margin", "log"])
def test_shorter_steps_take_fewer_rounds(objective):
    short, whole = (
        BundleMethod(objective, step=step).solve(chain(100), 300.0, tol=1e-3, max_passes=5000) for step in (0.3, 1.0)
    )
    assert short.status is whole.status is Status.CONVERGED
    assert short.n_passes < 0.7 * whole.n_passes


# ---------------------------------------------------------------------------------------------- the logistic loss


def log_objective(problem, C):
    """P and its gradient, by all labelings of all examples."""
    every = [(np.array([psi for psi, _ in some]), np.array([s for _, s in some])) for some in planes(problem, "log")]
    share = problem.arrays.weight / problem.n_examples

    def of(w):
        total, gradient = w @ w / (2.0 * C), w / C
        for (psi, fixed), weight in zip(every, share, strict=True):
            scores = fixed - psi @ w
            log_z = logsumexp(scores)
            total, gradient = total + weight * log_z, gradient - weight * (np.exp(scores - log_z) @ psi)
        return total, gradient

    return of


def log_problems():
    rng = np.random.default_rng(7)
    X, Y, weight = rng.normal(size=(15, 3)), rng.integers(0, 2, (15, 4)), rng.random(15) + 0.5
    forbidden = np.zeros((3, 3), bool)
    forbidden[0, 2] = True
    tags = [np.array([0, 1, 2]), np.array([1, 0]), np.array([2, 2, 1, 1]), np.array([1])]
    rows = [rng.normal(size=(len(one), 3)) for one in tags]
    return {
        "chains": chain(12),
        "chains with constraints": chain_problem(rows, tags, 3, forbidden=forbidden),
        "classes": multi_class_problem(X, rng.integers(0, 3, 15), 3, sample_weight=weight),
        "tree of labels": multi_label_problem(X, Y, label_edges("tree", Y), 4, sample_weight=weight),
        "all pairs of labels": multi_label_problem(X, Y, label_edges("full", Y), 4),
        "anything": random_problem(np.random.default_rng(4), n_examples=5, max_variables=4, forbidden=True),
    }


LOG = log_problems()


@pytest.mark.parametrize("name", LOG)
def test_the_logistic_loss_against_scipy(name):
    problem = LOG[name]
    for C in (0.3, 10.0):
        of = log_objective(problem, C)
        best = minimize(
            of, np.zeros(problem.n_weights), jac=True, method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-9}
        )
        for step in (0.3, 1.0):
            result = BundleMethod("log", step=step).solve(problem, C, tol=1e-5, max_passes=2000)
            check(result, best.fun, 1e-5)
            assert result.primal == pytest.approx(of(result.weights)[0], abs=1e-9)
            assert result.primal <= best.fun + 1e-5


def test_planes_of_the_logistic_loss_are_its_tangents():
    problem, rng = LOG["anything"], np.random.default_rng(0)
    run, of = BundleMethod("log").make_run(problem, 1.0, 0, 1), log_objective(problem, np.inf)
    now = run.begin(None)
    for _ in range(10):
        u = rng.normal(size=run.size)
        plane, risk = run.ask(now, u)
        loss, gradient = of(u)
        psi = np.zeros(run.size)
        psi[plane.index] = plane.value
        assert risk == pytest.approx(loss, abs=1e-9)
        np.testing.assert_allclose(-psi, gradient, atol=1e-9)
        assert plane.ell - psi @ u == pytest.approx(risk, abs=1e-9)
        for other in rng.normal(size=(5, run.size)):
            assert plane.ell - psi @ other <= of(other)[0] + 1e-9


# ------------------------------------------------------------------------------------------------ how runs go on


@pytest.mark.parametrize("objective", ["margin", "log"])
def test_a_checkpoint_goes_on_bit_for_bit(objective, tmp_path):
    solver, problem = BundleMethod(objective, inactive=3), chain()
    whole = solver.solve(problem, 10.0, tol=0.0, max_passes=30)
    solver.solve(problem, 10.0, tol=0.0, max_passes=15, checkpoint=tmp_path / "state")
    rest = solver.solve(problem, 10.0, tol=0.0, max_passes=30, checkpoint=tmp_path / "state")
    np.testing.assert_array_equal(rest.weights, whole.weights)
    assert (rest.primal, rest.dual) == (whole.primal, whole.dual)


@pytest.mark.parametrize("objective", ["margin", "log"])
def test_threads_do_not_change_the_bits(objective):
    one, two = (BundleMethod(objective).solve(chain(80), 10.0, tol=0.0, n_jobs=n, max_passes=20) for n in (1, 2))
    np.testing.assert_array_equal(one.weights, two.weights)
    np.testing.assert_array_equal(one.history["dual"], two.history["dual"])


def test_a_warm_start_of_the_logistic_loss():
    problem = LOG["chains"]
    first = BundleMethod("log").solve(problem, 100.0, tol=1e-4, max_passes=2000)
    for C in (30.0, 300.0):
        of = log_objective(problem, C)
        best = minimize(
            of, np.zeros(problem.n_weights), jac=True, method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-9}
        )
        warm = BundleMethod("log").solve(problem, C, tol=1e-4, max_passes=2000, state=first.state)
        cold = BundleMethod("log").solve(problem, C, tol=1e-4, max_passes=2000)
        check(warm, best.fun, 1e-4)
        assert warm.n_passes < cold.n_passes


# ----------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"objective": "hinge"}, "objective='hinge' is not known"),
        ({"step": -0.1}, "step=-0.1 is not possible"),
        ({"step": True}, "step=True is not possible"),
        ({"inactive": -3}, "inactive=-3 is not possible"),
        ({"certificate": "best"}, "certificate='best' is not known"),
        ({"inference": "graph_cut"}, 'The engine "graph_cut" cannot be the oracle here. Example 0'),
        ({"objective": "log", "inference": "exhaust"}, "no inference engine 'exhaust'"),
    ],
)
def test_options_are_checked_in_sentences(options, sentence):
    with pytest.raises(OptionError, match=sentence):
        BundleMethod(**options).solve(chain(3))


def test_problems_that_have_no_marginals():
    with pytest.raises(OptionError, match=r'"bundle" needs features .a kernel has none'):
        BundleMethod("log").solve(multi_class_problem(KernelFeatures(np.eye(3)), [0, 1, 0], 2))

    class Sign(Model):
        def joint_features(self, x, y):
            return np.array([x * y])

        def loss(self, y, y_hat):
            return float(y != y_hat)

        def most_violated(self, x, y, w):
            return -y

        def predict(self, x, w):
            return 1

    with pytest.raises(OptionError, match='"bundle" needs marginals, which this problem does not have'):
        BundleMethod("log").solve(PythonProblem([1.0, 2.0], [1, -1], Sign()))


def test_approximate_marginals_certify_nothing():
    rng = np.random.default_rng(0)
    graphs = [(rng.normal(size=(4, 2)), [[0, 1], [1, 2], [2, 3], [3, 0]], rng.normal(size=(4, 2))) for _ in range(6)]
    problem = graph_problem(graphs, [rng.integers(0, 3, 4) for _ in graphs], 3, edge_weights="potts")
    result = BundleMethod("log", inference="loopy_bp").solve(problem, 3.0, max_passes=50)
    assert result.certificate == "none"
    assert result.status is not Status.CONVERGED
    with pytest.raises(OptionError, match=r'the engine "loopy_bp" is not exact; use "exhaustive" or "junction_tree".'):
        BundleMethod("log", inference="loopy_bp", certificate="exact").solve(problem)
    exact = BundleMethod("log", inference="junction_tree", certificate="exact").solve(problem, 3.0, tol=1e-3)
    assert (exact.certificate, exact.status) == ("exact", Status.CONVERGED)

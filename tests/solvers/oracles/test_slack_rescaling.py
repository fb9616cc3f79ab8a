"""Slack rescaling against all labelings written out: the violators, the bounds of the scalar search, and training by them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from maxmargin.errors import DataError, OptionError
from maxmargin.inference import engine
from maxmargin.problems import FactorGraphs, label_edges, multi_label_problem, structured
from maxmargin.problems.chains import chain_problem
from maxmargin.problems.features import Features, KernelFeatures
from maxmargin.problems.multi_class import multi_class_problem
from maxmargin.problems.python_problem import Model, PythonProblem
from maxmargin.problems.templates import Structure, Template
from maxmargin.solvers import NSlack, OneSlack, Status
from maxmargin.solvers.oracles import slack_rescaling
from maxmargin.solvers.oracles.max_oracle import oracle_of
from reference.enumerated_program import exact_optimum, hinges, planes, value
from reference.random_problems import random_problem

SLACK = 1e-7


@pytest.fixture
def searching(monkeypatch):
    """The scalar search, however few the labelings."""
    monkeypatch.setattr(slack_rescaling, "_FEW", 0)


def problem_of(seed, **options):
    rng = np.random.default_rng(seed)
    options = {"sparse": bool(seed % 4 < 2), "forbidden": bool(seed % 3 == 0)} | options
    kind = options.pop("kind", ("loopy", "forest")[seed % 2])
    problem = random_problem(rng, kind=kind, n_examples=int(rng.integers(1, 8)), **options)
    # From losses that decide everything to scores that do.
    return problem, rng.normal(size=problem.n_weights) * 10.0 ** rng.uniform(-1.5, 1.0)


def points(problem, w):
    """For every example the points (a, b) = (loss, 1 + score - score of the truth) of its labelings."""
    out = []
    for own, margin in zip(planes(problem, "log"), planes(problem), strict=True):
        out.append(
            [(ell - change, 1.0 + change - psi @ w) for (psi, change), (_, ell) in zip(own, margin, strict=True)]
        )
    return out


def hull_bound(some):
    """The largest product on the convex hull of points: it lies on a line between two of them."""
    a, b = np.array(some).T
    da, db = a[None] - a[:, None], b[None] - b[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.clip(-(a[:, None] * db + b[:, None] * da) / (2.0 * da * db), 0.0, 1.0)
    t = np.where(da * db < 0.0, t, 0.0)
    return max(0.0, float(((a[:, None] + t * da) * (b[:, None] + t * db)).max()))


def check_planes(problem, oracle, w):
    """Every plane is that of a labeling; returns the slopes."""
    psi, ell = oracle.planes(w, np.arange(problem.n_examples))
    for row, one, some in zip(psi.toarray(), ell, planes(problem, "slack"), strict=True):
        assert min(np.abs(row - a).max(initial=0.0) + abs(one - b) for a, b in some) < 1e-9
    return ell - psi @ w


# -------------------------------------------------------------------------------------------------- violators


def test_few_labelings_are_all_tried_and_trees_searched_by_number():
    reasons = set()
    for seed in range(18):
        problem, w = problem_of(seed)
        oracle = oracle_of(problem, rescaling="slack")
        assert oracle.certificate == "exact"
        reasons.add(oracle.reason)
        expected, found = hinges(planes(problem, "slack"), w), oracle.mean_plane(w, 1)
        np.testing.assert_allclose(found.hinges, expected, atol=1e-9)
        np.testing.assert_allclose(check_planes(problem, oracle, w), expected, atol=1e-9)
        weighted = problem.arrays.weight @ expected / problem.n_examples
        assert found.ell - w @ found.dense(len(w)) == pytest.approx(weighted, abs=1e-9)
    assert reasons == {
        "every labeling of an example is tried",
        "max-product over states and numbers of wrong variables",
    }


def test_trees_with_costs_of_their_own_are_not_searched_by_number():
    rng = np.random.default_rng(0)
    X, y = [rng.normal(size=(5, 2)) for _ in range(6)], [rng.integers(0, 3, 5) for _ in range(6)]
    for loss, expected in (("hamming", True), (np.array([[0, 1, 2], [1, 0, 1], [2, 1, 0]]), False)):
        problem = chain_problem(X, y, 3, loss=loss)
        oracle = oracle_of(problem, rescaling="slack")
        assert (oracle.reason == "max-product over states and numbers of wrong variables") == expected
        w = rng.normal(size=problem.n_weights)
        np.testing.assert_allclose(oracle.mean_plane(w, 1).hinges, hinges(planes(problem, "slack"), w), atol=1e-9)


def test_long_chains_close_their_gap():
    """Where hulls leave it open: 3^12 labelings an example are too many to be tried."""
    rng = np.random.default_rng(1)
    X, y = [rng.normal(size=(12, 3)) for _ in range(20)], [rng.integers(0, 3, 12) for _ in range(20)]
    result = OneSlack("slack").solve(chain_problem(X, y, 3), 10.0, tol=1e-3, max_passes=2000)
    assert result.certificate == "exact"
    assert result.status is Status.CONVERGED


@pytest.mark.parametrize("engine", ["exhaustive", "junction_tree"])
def test_the_search_finds_the_hull(engine, searching):
    """The hinge lies between the best product found and the largest on the hull of all points, which is what is said."""
    loose = 0
    for seed in range(1, 20):
        problem, w = problem_of(seed)
        oracle = oracle_of(problem, engine, rescaling="slack")
        assert oracle.certificate == "exact"
        expected, upper = hinges(planes(problem, "slack"), w), oracle.mean_plane(w, 1).hinges
        lower = check_planes(problem, oracle, w)
        assert (lower <= expected + 1e-9).all(), seed
        assert (upper >= expected - 1e-9).all(), seed
        hull = np.array([hull_bound(some) for some in points(problem, w)])
        np.testing.assert_allclose(upper, hull, rtol=1e-7, atol=1e-9, err_msg=str(seed))
        loose += (upper > expected + 1e-6).sum()
    # Some hinges are under the hull, or this would not test the bound.
    assert loose > 0


@pytest.mark.parametrize("engine", ["graph_cut", "linear_program", "dual_decomposition"])
def test_engines_with_bounds_bracket_the_hinge(engine, searching):
    tight = 0
    for seed in range(0, 24, 2):
        problem, w = problem_of(seed, max_states=2, max_arity=2, forbidden=False)
        oracle = oracle_of(problem, engine, rescaling="slack")
        assert oracle.certificate == "exact"
        expected, upper = hinges(planes(problem, "slack"), w), oracle.mean_plane(w, 1).hinges
        assert (check_planes(problem, oracle, w) <= expected + 1e-8).all()
        assert (upper >= expected - 1e-8).all()
        tight += (upper <= expected + 1e-6).sum()
    assert tight > 0


def test_engines_that_may_miss_promise_nothing():
    for name in ("greedy", "loopy_bp"):
        for seed in range(0, 12, 2):
            problem, w = problem_of(seed)
            oracle = oracle_of(problem, name, rescaling="slack")
            assert oracle.certificate == "none"
            found, slopes = oracle.mean_plane(w, 1), check_planes(problem, oracle, w)
            # What was found, and no bound.
            np.testing.assert_allclose(found.hinges, slopes, atol=1e-9)
            assert (slopes <= hinges(planes(problem, "slack"), w) + 1e-9).all()


def test_a_single_point_is_known_exactly(searching):
    """Two classes: the hull is the line from the truth's point to another, and ends in its best product or passes above it."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 2)), rng.integers(0, 2, 40)
    problem = multi_class_problem(X, y, 2)
    for scale in (0.01, 1.0, 100.0):
        w = scale * rng.normal(size=4)
        margin = 1.0 + X @ (w[:2] - w[2:]) * np.where(y == 1, 1.0, -1.0)
        expected = np.maximum(margin, 0.0)
        found = oracle_of(problem, rescaling="slack").mean_plane(w, 1).hinges
        np.testing.assert_allclose(found[margin >= 0.5], expected[margin >= 0.5], rtol=1e-9)
        assert (found >= expected - 1e-12).all()
        assert (found <= expected + 0.25).all()


# ---------------------------------------------------------------------------------------------------- training


def problems():
    rng = np.random.default_rng(5)
    X, Y = rng.normal(size=(15, 3)), rng.integers(0, 2, (15, 4))
    cost = rng.random((4, 4)) * 3.0
    np.fill_diagonal(cost, 0.0)
    weight = rng.random(15) + 0.5
    lengths = rng.integers(1, 6, 6)
    rows, tags = [rng.normal(size=(t, 2)) for t in lengths], [rng.integers(0, 4, t) for t in lengths]
    forbidden = np.zeros((4, 4), bool)
    forbidden[0, 3] = forbidden[2, 1] = True
    allowed = [one.copy() for one in tags]
    for one in allowed:
        for t in range(1, len(one)):
            if forbidden[one[t - 1], one[t]]:
                one[t] = one[t - 1]
    return {
        "classes with costs": multi_class_problem(X, rng.integers(0, 4, 15), 4, cost, weight),
        "chains": chain_problem(rows, tags, 4),
        "chains with constraints": chain_problem(rows, allowed, 4, forbidden=forbidden),
        "labels": multi_label_problem(X, Y, label_edges("full", Y), 4, "hamming", weight),
        "anything": random_problem(np.random.default_rng(8), n_examples=6, max_variables=4, sparse=True),
        "anything with fixed scores": random_problem(np.random.default_rng(4), n_examples=5, forbidden=True),
    }


PROBLEMS = problems()
BEST = {}


def best(name, C):
    if (name, C) not in BEST:
        BEST[name, C] = exact_optimum(PROBLEMS[name], C, "slack")
    return BEST[name, C]


def test_the_problems_have_what_they_should():
    """Fixed scores, forbidden states, and an optimum that margin rescaling would miss."""
    assert any(len(one.arrays.variable_scores) for one in PROBLEMS.values())
    assert any(np.isneginf(one.arrays.factor_scores).any() for one in PROBLEMS.values())
    for name, problem in PROBLEMS.items():
        assert abs(best(name, 3.0) - exact_optimum(problem, 3.0)) > 1e-3


@pytest.mark.parametrize("solver", [OneSlack("slack"), OneSlack("slack", cache=0, step=1.0), NSlack("slack")])
@pytest.mark.parametrize("name", PROBLEMS)
def test_both_formulations_close_the_gap(solver, name):
    for C in (0.3, 30.0):
        result = solver.solve(PROBLEMS[name], C, tol=1e-4, max_passes=20_000)
        expected = best(name, C)
        assert result.certificate == "exact"
        assert result.status is Status.CONVERGED, result.summary()
        assert (result.history["dual"] <= expected + SLACK).all()
        assert (result.history["primal"] >= expected - SLACK).all()
        assert result.primal == pytest.approx(value(PROBLEMS[name], C, result.weights, "slack"), abs=1e-9)
        assert result.primal <= expected + 1e-4 + SLACK


@pytest.mark.parametrize("solver", [OneSlack("slack"), OneSlack("slack", cache=2), NSlack("slack")])
@pytest.mark.parametrize("name", PROBLEMS)
def test_bounds_by_the_search_bracket_the_optimum(solver, name, searching):
    """The gap may stay open, by what lies between points and their hull; it never lies."""
    result = solver.solve(PROBLEMS[name], 3.0, tol=1e-3, max_passes=60)
    expected = best(name, 3.0)
    assert result.certificate == "exact"
    assert (result.history["dual"] <= expected + SLACK).all()
    assert (result.history["primal"] >= expected - SLACK).all()
    assert value(PROBLEMS[name], 3.0, result.weights, "slack") <= result.primal + SLACK
    # Half of the largest loss is far from all that a bound could be off by.
    assert result.gap <= 0.25 * max(1.0, PROBLEMS[name].arrays.losses.max())


@pytest.mark.parametrize("engine", ["graph_cut", "linear_program", "dual_decomposition"])
def test_relaxed_engines_train_the_exact_problem(engine, searching):
    problem, expected = PROBLEMS["labels"], best("labels", 3.0)
    result = OneSlack("slack", inference=engine).solve(problem, 3.0, tol=1e-3, max_passes=40)
    assert result.certificate == "exact"
    assert (result.history["dual"] <= expected + SLACK).all()
    assert (result.history["primal"] >= expected - SLACK).all()
    assert result.gap <= 0.3


@pytest.mark.parametrize("solver", [OneSlack("slack", inference="greedy"), NSlack("slack", inference="greedy")])
def test_an_engine_that_may_miss_still_trains(solver):
    problem, expected = PROBLEMS["labels"], best("labels", 3.0)
    result = solver.solve(problem, 3.0, tol=1e-3, max_passes=80)
    assert result.certificate == "none"
    assert result.status is not Status.CONVERGED
    assert result.dual <= expected + SLACK
    assert np.isfinite(result.primal)
    assert value(problem, 3.0, result.weights, "slack") <= expected + 0.1


def test_a_linear_kernel_has_the_optimum_of_the_linear_model():
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(15, 3)), rng.integers(0, 3, 15)
    cost = np.array([[0.0, 1.0, 2.0], [1.0, 0.0, 0.5], [3.0, 1.0, 0.0]])
    expected = exact_optimum(multi_class_problem(X, y, 3, cost), 3.0, "slack")
    result = OneSlack("slack").solve(multi_class_problem(KernelFeatures(X @ X.T), y, 3, cost), 3.0, tol=1e-5)
    assert result.status is Status.CONVERGED
    assert result.dual - SLACK <= expected <= result.primal + SLACK


def test_structured_factors_are_searched():
    """A factor without a table: labelings are not counted, and the search asks an engine that knows the factor."""
    rng = np.random.default_rng(1)
    M, n = 6, 4
    template = structured.cardinality(n, np.zeros(n + 1), np.arange(n + 1))
    labels = rng.integers(0, 2, (M, n))
    losses = np.array([[0.0, 1.0 / n] if k == 0 else [1.0 / n, 0.0] for k in labels.ravel()]).ravel()
    problem = FactorGraphs(
        [Structure([0] * n, list(range(n)), [0], [0], [tuple(range(n))])], [0] * M, [Template([-1, 0])], [template],
        Features(rng.normal(size=(M * n, 2))), Features.constant(), n * np.arange(M), [0] * M, labels.ravel(), losses,
    )  # fmt: skip
    expected = exact_optimum(problem, 3.0, "slack")
    result = OneSlack("slack").solve(problem, 3.0, tol=1e-3, max_passes=60)
    assert (result.history["dual"] <= expected + SLACK).all()
    assert (result.history["primal"] >= expected - SLACK).all()
    assert result.gap <= 0.3


# ------------------------------------------------------------------------------------------------------ Python


class Sequences(Model):
    """Chains of three tags whose maxima are found by trying every output."""

    def joint_features(self, x, y):
        phi = np.zeros((3, 3))
        emit = np.zeros((3, x.shape[1]))
        for row, tag in zip(x, y, strict=True):
            emit[tag] += row
        for one, two in itertools.pairwise(y):
            phi[one, two] += 1.0
        return np.concatenate([emit.ravel(), phi.ravel()])

    def loss(self, y, y_hat):
        return float(np.mean(np.asarray(y) != np.asarray(y_hat)))

    def best(self, x, value):
        return max(itertools.product(range(3), repeat=len(x)), key=value)

    def most_violated(self, x, y, w):
        return self.best(x, lambda one: self.loss(y, one) + w @ self.joint_features(x, one))

    def predict(self, x, w):
        return self.best(x, lambda one: w @ self.joint_features(x, one))


class Slack(Sequences):
    def most_violated_slack(self, x, y, w):
        truth = w @ self.joint_features(x, y)
        return self.best(x, lambda one: self.loss(y, one) * (1.0 + w @ self.joint_features(x, one) - truth))


def sequences():
    rng = np.random.default_rng(6)
    lengths = rng.integers(1, 4, 6)
    return [rng.normal(size=(t, 2)) for t in lengths], [rng.integers(0, 3, t) for t in lengths]


@pytest.mark.parametrize("solver", [OneSlack("slack"), NSlack("slack")])
def test_a_model_with_a_slack_oracle(solver):
    rows, tags = sequences()
    expected = exact_optimum(chain_problem(rows, tags, 3, boundary=False, loss="fraction"), 3.0, "slack")
    result = solver.solve(PythonProblem(rows, tags, Slack()), 3.0, tol=1e-3, max_passes=500)
    assert result.certificate == "exact"
    assert result.status is Status.CONVERGED
    assert result.dual - SLACK <= expected <= result.primal + SLACK


@pytest.mark.parametrize("solver", [OneSlack("slack"), NSlack("slack")])
def test_problems_without_a_slack_oracle(solver):
    with pytest.raises(DataError, match=r"Slack rescaling needs a method most_violated_slack.* and Sequences has none"):
        solver.solve(PythonProblem(*sequences(), Sequences()))

    class Own:
        n_examples = 1

        def max_oracle(self, loss_augmented):
            raise AssertionError

    with pytest.raises(OptionError, match="A Own has no oracle for slack rescaling; use margin rescaling"):
        solver.solve(Own())


@pytest.mark.parametrize("name", ["exhaustive", "greedy", "junction_tree"])
@pytest.mark.parametrize("solver", [OneSlack, NSlack])
def test_the_engine_that_is_named_is_the_one_that_is_asked(solver, name):
    asked = []

    class Counting(type(engine(name))):
        def maximise(self, graphs, scores):
            asked.append(graphs.n_examples)
            return super().maximise(graphs, scores)

    problem, _ = problem_of(2, forbidden=False)
    result = solver("slack", inference=Counting()).solve(problem, 1.0, max_passes=1)
    assert result.options["inference"] == name
    assert result.options["inference_reason"] == "as asked"
    assert sum(asked) >= problem.n_examples

"""DLPW: bounds against a quadratic program solved by Clarabel, single steps against plain Python, and how a run behaves."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.sparse as sp

from maxmargin.datasets import make_synth2
from maxmargin.errors import OptionError
from maxmargin.inference.trees import Trees
from maxmargin.problems import FactorGraphs, Features, Structure, Template, label_edges, multi_label_problem, structured
from maxmargin.solvers import Status
from maxmargin.solvers.soft.dlpw import DLPW
from reference.quadratic_program import optimum
from reference.random_problems import random_problem

SLACK = 1e-7
EPS = 1e-3
#: Of an optimum of next to nothing, 2 % are not asked.
LEAST = 1e-3


def problem_of(seed, forbidden=False):
    """Binary and many states, forests and loops, dense and CSR; C of 0.1 to 10."""
    rng = np.random.default_rng([seed, 7])
    problem = random_problem(
        rng,
        kind=("loopy", "forest")[seed % 2],
        n_examples=int(rng.integers(1, 8)),
        max_variables=int(rng.integers(1, 6)),
        max_states=int(rng.integers(2, 5)),
        max_arity=int(rng.integers(1, 5)),
        sparse=bool(rng.integers(2)),
        forbidden=forbidden,
        shared=bool(rng.integers(2)),
    )
    return problem, float(10.0 ** rng.uniform(-1, 1))


def entropy(problem):
    """Sum over blocks of the logarithm of their size, averaged over examples: the soft-max is above the max by eps of it."""
    a, total = problem.arrays, 0.0
    for m, s in enumerate(problem.structure_of):
        structure = problem.structures[s]
        sizes = [problem.variable_templates[t].blocks.size for t in structure.variable_templates]
        sizes += [problem.factor_templates[t].blocks.size for t in structure.factor_templates]
        total += a.weight[m] * np.log(sizes).sum()
    return total / problem.n_examples


@pytest.fixture(scope="module")
def labels():
    """A multi-label problem with all pairs."""
    X, Y = make_synth2(80, random_state=3)
    return multi_label_problem(X, Y, label_edges("full", Y), Y.shape[1])


@pytest.fixture(scope="module")
def tables():
    """A problem of several states, arities and templates."""
    return random_problem(np.random.default_rng(5), n_examples=12, max_variables=6, max_states=4)


# ------------------------------------------------------------------------------------------------------- bounds


@pytest.mark.parametrize("seed", range(40))
def test_the_bounds_hold_and_the_primal_comes_close(seed):
    problem, C = problem_of(seed)
    best = optimum(problem, C)
    for smoothing, bias in ((None, 0.0), (EPS, EPS * entropy(problem))):
        result = DLPW(smoothing).solve(problem, C, tol=1e-6, max_passes=2000)
        assert (result.history["primal"] >= best - SLACK).all()
        assert (result.history["dual"] <= best + SLACK).all()
        assert result.primal <= best + 0.02 * max(best, LEAST) + bias, result.summary()
        assert result.certificate == ("exact" if problem.is_forest else "relaxed")
        assert (result.status is Status.CONVERGED) == (result.gap <= 1e-6)


@pytest.mark.parametrize("seed", range(40))
def test_forbidden_states(seed):
    problem, C = problem_of(seed, forbidden=True)
    best = optimum(problem, C)
    for smoothing, bias in ((None, 0.0), (EPS, EPS * entropy(problem))):
        result = DLPW(smoothing).solve(problem, C, tol=0, max_passes=1000)
        assert np.isfinite(result.weights).all()
        assert all(np.isfinite(column).all() for column in result.history.values())
        assert (result.history["primal"] >= best - SLACK).all()
        assert (result.history["dual"] <= best + SLACK).all()
        assert result.primal <= best + 0.02 * max(best, LEAST) + bias, result.summary()


@pytest.mark.parametrize("dead", [0, 1])
@pytest.mark.parametrize("smoothing", [None, EPS])
def test_a_forbidden_state_among_pairs(dead, smoothing):
    """A triangle of binary variables whose factors forbid nothing, but one variable does."""
    rng = np.random.default_rng(dead)
    scores = np.where(np.arange(2) == dead, -np.inf, 0.0)
    variables = [Template([-1, i], scores if i == 0 else None) for i in range(3)]
    pairs = [Template([[-1, -1], [-1, i]]) for i in range(3)]
    graph = Structure([0, 1, 2], [0, 0, 0], [0, 1, 2], [0, 0, 0], [(0, 1), (1, 2), (0, 2)])
    y = rng.integers(2, size=(6, 3))
    y[:, 0] = 1 - dead
    losses = (y[:, :, None] != np.arange(2)) / 3.0
    problem = FactorGraphs(
        [graph], [0] * 6, variables, pairs, Features(rng.normal(size=(6, 3))), Features.constant(), np.arange(6), [0] * 6,
        y.ravel(), losses.ravel(),
    )  # fmt: skip
    best = optimum(problem, 5.0)
    result = DLPW(smoothing).solve(problem, 5.0, tol=0, max_passes=1000)
    assert (result.history["dual"] <= best + SLACK).all()
    assert (result.history["primal"] >= best - SLACK).all()
    assert result.primal <= 1.02 * best


@pytest.mark.parametrize("seed", range(20))
def test_marginals_of_the_smooth_version_close_the_gap(seed):
    problem, C = problem_of(seed)
    best = optimum(problem, C)
    tol = 0.02 * best + 2 * EPS * entropy(problem)
    result = DLPW(EPS).solve(problem, C, tol=tol, max_passes=3000)
    assert result.status is Status.CONVERGED, result.summary()
    assert result.dual >= best - tol - SLACK


@pytest.mark.parametrize("seed", [2, 3, 4, 5])
def test_little_smoothing_is_none(seed):
    problem, C = problem_of(seed)
    plain, *smooth = (DLPW(eps).solve(problem, C, tol=0, max_passes=2000).primal for eps in (None, 1e-4, 1e-2, 1.0))
    assert abs(smooth[0] - plain) <= 0.01 * plain
    assert smooth[0] <= smooth[1] + 0.01 * plain <= smooth[2] + 0.02 * plain


def test_the_weights_have_the_reported_value():
    """P(w) by exact inference on forests: the reported primal is not below it, and not far above."""
    for seed in range(1, 20, 2):
        problem, C = problem_of(seed)
        for smoothing in (None, EPS):
            result = DLPW(smoothing).solve(problem, C, tol=0, max_passes=300)
            augmented = problem.scores(result.weights, loss_augmented=True)
            hinge = Trees().maximise(problem, augmented).values - problem.labeling_scores(
                problem.scores(result.weights), problem.labels
            )
            value = 0.5 / C * result.weights @ result.weights + np.mean(problem.arrays.weight * hinge)
            assert value - SLACK <= result.primal <= 1.05 * value + EPS * entropy(problem) + SLACK


@pytest.mark.parametrize("seed", range(12))
def test_every_step_size_has_the_same_limit(seed):
    problem, C = problem_of(seed)
    best = optimum(problem, C)
    for step in (0.5 * C, 3.0 * C, "adaptive"):
        result = DLPW(EPS, step=step).solve(problem, C, tol=0, max_passes=2000)
        assert (result.history["primal"] >= best - SLACK).all()
        assert (result.history["dual"] <= best + SLACK).all()
        assert result.primal <= best + 0.02 * max(best, LEAST) + EPS * entropy(problem), (step, result.summary())


def test_the_default_step_is_C(labels):
    one, other = (DLPW(step=step).solve(labels, 2.0, tol=0, max_passes=5) for step in ("auto", 2.0))
    assert (one.weights == other.weights).all()
    assert one.options["final_step"] == other.options["final_step"] == 2.0


def test_an_adaptive_step_follows_the_objective_within_bounds(labels):
    result = DLPW(step="adaptive").solve(labels, 2.0, tol=0, max_passes=60)
    steps = [2.0]
    for before, after in itertools.pairwise([np.inf, *result.history["last"]]):
        steps.append(np.clip(steps[-1] * (1.5 if after < before else 0.4), 2.0 / 100, 2.0 * 100))
    # The last check, at the end of the run, may be one that is not on schedule.
    assert any(result.options["final_step"] == pytest.approx(step) for step in steps[-2:])
    assert min(steps) < 2.0 < max(steps)


def test_an_adaptive_run_resumes_and_goes_on(labels, tmp_path):
    path = tmp_path / "a.ckpt"
    solver = DLPW(0.01, step="adaptive")
    whole = solver.solve(labels, 2.0, tol=0, max_passes=24)
    solver.solve(labels, 2.0, tol=0, max_passes=13, checkpoint=path)
    resumed = solver.solve(labels, 2.0, tol=0, max_passes=24, checkpoint=path)
    assert (resumed.weights == whole.weights).all()
    assert resumed.options["final_step"] == whole.options["final_step"]
    again = solver.solve(labels, 2.0, tol=0, max_passes=1, state=whole.state)
    assert again.options["final_step"] in (whole.options["final_step"] * 1.5, whole.options["final_step"] * 0.4)


def test_long_steps_do_not_underflow():
    """The weights' scale falls like t^(-step/C) within a pass: below every double, if it were not written out."""
    X, Y = make_synth2(3000, random_state=3)
    problem = multi_label_problem(X, Y, np.empty((0, 2), int), Y.shape[1])
    result = DLPW(step=300.0, step0=1e9).solve(problem, 1.0, tol=0, max_passes=20)
    assert result.weights.any()
    assert result.primal < 0.5
    # Averages are of weights, and no larger than the largest of them.
    assert result.history["average"][-1] < 1.0


# ------------------------------------------------------------------------------------------------------- single steps


@pytest.mark.parametrize("step", ["auto", 3.0, 50.0])
@pytest.mark.parametrize("smoothing", [None, 0.05])
def test_steps_and_their_average_in_plain_python(smoothing, step):
    """Without factors a visit is one step on a multi-class loss; the lazily scaled weights must follow it."""
    rng = np.random.default_rng(1)
    n, p, K, C, step0, seed = 9, 4, 3, 20.0, 0.5, 11
    x, y = rng.normal(size=(n, p)), rng.integers(K, size=n)
    losses = 1.0 - np.eye(K)[y]
    share = rng.random(n) + 0.5
    problem = FactorGraphs(
        [Structure([0], [0], [], [], [])], [0] * n, [Template(np.arange(K))], [], Features(x), Features.constant(),
        np.arange(n), np.zeros(n, int), y, losses.ravel(), weights=share,
    )  # fmt: skip
    state = DLPW(smoothing, step0=step0, step=step).solve(problem, C, tol=0, max_passes=3, random_state=seed).state

    w, average, t = np.zeros((K, p)), np.zeros((K, p)), 0
    share = share * n / share.sum()
    for k in range(3):
        for m in np.random.default_rng([seed, 0, k]).permutation(n):
            t += 1
            theta = losses[m] + w @ x[m]
            mu = np.eye(K)[theta.argmax()]
            if smoothing is not None:
                mu = np.exp((theta - theta.max()) / smoothing)
                mu /= mu.sum()
            size = C if step == "auto" else step
            eta = size / (t + max(size / step0, size / C, 1.0))
            w = (1.0 - eta / C) * w - eta * share[m] * np.outer(mu - np.eye(K)[y[m]], x[m])
            average = (1.0 - 2.0 / (t + 2)) * average + 2.0 / (t + 2) * w
    np.testing.assert_allclose(state.w_v.T, w, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(state.average_v.T, average, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("smoothing", [None, 0.1])
def test_messages_solve_a_forest_in_enough_rounds(smoothing):
    """At fixed weights (steps of next to nothing) the bound falls to the exact hinge, or to that of the soft-max."""
    for seed in range(1, 30, 2):
        problem, _ = problem_of(seed)
        C = 1e-9
        exact = np.mean(
            problem.arrays.weight
            * (
                Trees().maximise(problem, problem.scores(np.zeros(problem.n_weights), loss_augmented=True)).values
                - problem.labeling_scores(problem.scores(np.zeros(problem.n_weights)), problem.labels)
            )
        )
        result = DLPW(smoothing, message_rounds=200).solve(problem, C, tol=0, max_passes=1)
        bias = 0.0 if smoothing is None else smoothing * entropy(problem)
        assert exact - 1e-6 <= result.primal <= exact + bias + 1e-6, seed


@pytest.mark.parametrize("smoothing", [None, 0.003, 0.1])
def test_pairs_are_tables_like_any_other(smoothing):
    """Fixed scores of 0 take the same factors along the way of all tables."""
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(30, 6)), rng.integers(2, size=(30, 5))
    pairs = multi_label_problem(X, Y, label_edges("full", Y), 5)
    rows = pairs.arrays.examples[:-1]
    tables = FactorGraphs(
        pairs.structures, pairs.structure_of, pairs.variable_templates, pairs.factor_templates, pairs.variable_features,
        pairs.factor_features, rows.variable_row, rows.factor_row, pairs.labels, pairs.arrays.losses,
        factor_scores=np.zeros(pairs.example_tables[-1]),
    )  # fmt: skip
    solver = DLPW(smoothing, message_rounds=2)
    one, other = (solver.solve(problem, 2.0, tol=0, max_passes=5) for problem in (pairs, tables))
    assert solver.make_run(pairs, 0.5, 0, 1).only_pairs
    assert not solver.make_run(tables, 0.5, 0, 1).only_pairs
    np.testing.assert_allclose(one.weights, other.weights, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(one.state.point.table, other.state.point.table, rtol=1e-9, atol=1e-12)
    assert one.primal == pytest.approx(other.primal, rel=1e-9)


# ------------------------------------------------------------------------------------------------------- runs


@pytest.mark.parametrize("smoothing", [None, 0.01])
@pytest.mark.parametrize("passes", [12, 13])  # with a check on schedule, and without
def test_a_checkpoint_continues_bit_for_bit(labels, tables, tmp_path, smoothing, passes):
    for number, problem in enumerate((labels, tables)):
        path = tmp_path / f"{number}.ckpt"
        whole = DLPW(smoothing).solve(problem, 2.0, tol=0, max_passes=24)
        DLPW(smoothing).solve(problem, 2.0, tol=0, max_passes=passes, checkpoint=path)
        resumed = DLPW(smoothing).solve(problem, 2.0, tol=0, max_passes=24, checkpoint=path)
        assert resumed.n_passes == whole.n_passes == 24
        assert (resumed.weights == whole.weights).all()
        assert (resumed.primal, resumed.dual) == (whole.primal, whole.dual)
        assert resumed.n_oracle_calls == whole.n_oracle_calls
        assert (resumed.state.point.delta == whole.state.point.delta).all()
        assert (resumed.state.average_v == whole.state.average_v).all()


def test_seeds_and_threads(labels):
    first, again, threads, other = (
        DLPW().solve(labels, 2.0, tol=0, max_passes=5, random_state=seed, n_jobs=n)
        for seed, n in ((1, 1), (1, 1), (1, 2), (2, 1))
    )
    assert (first.weights == again.weights).all()
    assert (first.weights == threads.weights).all()
    assert first.primal == threads.primal
    assert (first.weights != other.weights).any()


@pytest.mark.parametrize("smoothing", [None, 0.01])
def test_dense_and_csr_agree(smoothing):
    X, Y = make_synth2(60, random_state=2)
    X = X * (np.random.default_rng(0).random(X.shape) < 0.5)
    dense, csr = (
        DLPW(smoothing).solve(
            multi_label_problem(matrix, Y, label_edges("full", Y), Y.shape[1]), 2.0, tol=0, max_passes=10
        )
        for matrix in (X, sp.csr_array(X))
    )
    assert (dense.weights == csr.weights).all()
    assert (dense.primal, dense.dual) == (csr.primal, csr.dual)


def test_history_and_counts(labels):
    result = DLPW(message_rounds=3).solve(labels, 2.0, tol=0, max_passes=30)
    h = result.history
    assert (np.diff(h["dual"]) >= 0).all()
    assert (np.diff(h["primal"]) <= 0).all()
    assert (h["primal"] == np.minimum.accumulate(np.minimum(h["last"], h["average"]))).all()
    blocks = labels.example_variables[-1] + labels.example_factors[-1]
    assert result.n_oracle_calls == 30 * 3 * blocks
    assert result.status is Status.MAX_PASSES
    assert result.options["message_rounds"] == 3
    assert result.options["first_step"] > 0


def test_a_warm_start_goes_on(labels, tables):
    first = DLPW().solve(labels, 2.0, tol=0, max_passes=100)
    again = DLPW().solve(labels, 2.0, tol=0, max_passes=1, state=first.state)
    cold = DLPW().solve(labels, 2.0, tol=0, max_passes=1)
    assert again.primal < first.primal + 0.1 * (cold.primal - first.primal)
    # On other graphs it begins afresh.
    other, afresh = (DLPW().solve(tables, 2.0, max_passes=2, state=state) for state in (first.state, None))
    np.testing.assert_array_equal(other.weights, afresh.weights)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"smoothing": 0.0}, r"smoothing=0\.0 is not possible; use None or a finite number above 0\."),
        ({"smoothing": np.nan}, "smoothing=nan is not possible"),
        ({"smoothing": "auto"}, "smoothing='auto' is not possible"),
        ({"smoothing": True}, "smoothing=True is not possible"),
        ({"message_rounds": 0}, r"message_rounds=0 is not possible; use a whole number above 0\."),
        ({"message_rounds": 1.5}, r"message_rounds=1\.5 is not possible"),
        ({"step0": -1.0}, r'step0=-1\.0 is not possible; use "auto" or a finite number above 0\.'),
        ({"step0": "big"}, "step0='big' is not possible"),
        ({"step0": np.inf}, "step0=inf is not possible"),
        ({"step": 0}, 'step=0 is not possible; use "auto", "adaptive" or a finite number above 0'),
        ({"step": "small"}, "step='small' is not possible"),
    ],
)
def test_options_are_refused_in_a_sentence(labels, options, sentence):
    with pytest.raises(OptionError, match=sentence):
        DLPW(**options).solve(labels)


def test_structured_factors_are_refused_in_a_sentence():
    one = Features.constant()
    problem = FactorGraphs(
        [Structure([0] * 3, [0] * 3, [0], [0], [(0, 1, 2)])], [0], [Template(np.arange(2))],
        [structured.cardinality(3, np.zeros(4), np.full(4, -1))], one, one, [0], [0], [0, 0, 0],
    )  # fmt: skip
    with pytest.raises(OptionError, match="Example 0: factor 0 is a cardinality factor over 3 variables"):
        DLPW().solve(problem)


@pytest.mark.parametrize("smoothing", [None, 1e-300, 1e-6, 1e6])
@pytest.mark.parametrize("step0", [1e-9, 1e9])
@pytest.mark.parametrize("step", ["adaptive", 1e-9, 1e9])
def test_extreme_options_stay_finite(tables, smoothing, step0, step):
    result = DLPW(smoothing, step0=step0, step=step).solve(tables, 5.0, tol=0, max_passes=20)
    assert np.isfinite(result.weights).all()
    assert np.isfinite([result.primal, result.dual]).all()
    assert result.dual <= result.primal

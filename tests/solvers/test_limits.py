"""Limits of time: what they count, how well they are kept, and that a run that was cut anywhere says nothing that is not so."""

import math
import time

import numpy as np
import pytest

from maxmargin import jit
from maxmargin.inference import Exhaustive
from maxmargin.problems import graph_problem, label_edges, multi_label_problem
from maxmargin.problems.chains import chain_problem
from maxmargin.problems.python_problem import PythonProblem
from maxmargin.solvers import BCFW, SOLVERS, Status
from maxmargin.solvers.core import loop
from maxmargin.solvers.oracles.graph_oracle import GraphOracle
from reference.enumerated_program import exact_optimum
from reference.interruptions import Ticks
from reference.quadratic_program import optimum

C, SLACK = 3.0, 1e-7


def labels(n=12, edges="tree"):
    rng = np.random.default_rng(1)
    X, Y = rng.normal(size=(n, 3)), rng.integers(0, 2, (n, 3))
    return multi_label_problem(X, Y, label_edges(edges, Y), 3, "hamming", rng.random(n) + 0.5)


class Slow:
    """Exhaustive search that takes its time for every example."""

    name = "slow"
    exact = True

    def __init__(self, seconds, wait=time.sleep):
        self.seconds, self.wait, self.calls = seconds, wait, 0

    def refusal(self, graphs):
        return None

    def marginals(self, graphs, scores, temperature=1.0):
        raise NotImplementedError

    def maximise(self, graphs, scores):
        self.calls += graphs.n_examples
        self.wait(self.seconds * graphs.n_examples)
        return Exhaustive().maximise(graphs, scores)


def wait_as_if_compiling(seconds):
    with jit.stopwatch.counting():
        time.sleep(seconds)


def true_value(problem, w):
    working = problem.working_weights(w)
    hinges = GraphOracle(problem, "exhaustive").hinges(*working, 1)
    return 0.5 / C * float(w @ w) + float(problem.arrays.weight @ hinges) / problem.n_examples


@pytest.mark.parametrize("name", sorted(set(SOLVERS) - {"lbfgs"}))
def test_a_run_that_is_cut_anywhere_is_truthful(monkeypatch, name):
    problem = labels()
    best = {"exact": exact_optimum(problem, C), "relaxed": optimum(problem, C), "none": math.inf}
    statuses = set()
    for limit in (1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144):
        monkeypatch.setattr(jit, "clock", Ticks())
        state = None
        for _ in range(2):
            result = SOLVERS[name]().solve(problem, C=C, tol=0.0, max_passes=8, max_seconds=limit, state=state)
            statuses.add(result.status)
            assert result.dual <= best[result.certificate] + SLACK
            if math.isfinite(result.primal):
                assert result.primal >= true_value(problem, result.weights) - SLACK
                assert result.gap >= -SLACK or result.certificate == "none"
            assert len(result.history["primal"]) >= 1
            # What was cut can be gone on with.
            state = result.state
    assert Status.TIME_LIMIT in statuses


@pytest.mark.parametrize("name", ["bcfw", "one-slack", "n-slack", "bundle", "frank-wolfe", "subgradient", "perceptron"])
def test_limits_reach_loops_over_examples(name):
    problem, engine = labels(400), Slow(0.01)
    solver = SOLVERS[name](inference=engine)
    started = jit.clock()
    result = solver.solve(problem, C=C, max_seconds=0.3)
    assert result.status is Status.TIME_LIMIT
    # A pass takes 4 s; the limit, a second of grace, and one question to the engine, of up to 25 examples.
    assert jit.clock() - started < 0.3 + 1.0 + 0.8
    # No check was complete; w = 0 is known without inference.
    assert result.dual >= 0.0
    if not result.weights.any():
        assert result.primal == pytest.approx(true_value(problem, result.weights))


@pytest.mark.parametrize("name", ["bcfw", "one-slack", "frank-wolfe", "subgradient"])
def test_limits_reach_problems_in_python(name):
    class Model:
        def joint_features(self, x, y):
            return np.array([x, 1.0]) * y

        def loss(self, y, other):
            return float(y != other)

        def most_violated(self, x, y, w):
            time.sleep(0.005)
            return max((-1, 1), key=lambda z: float(z != y) + w @ self.joint_features(x, z))

        def predict(self, x, w):
            return 1

    rng = np.random.default_rng(0)
    x = rng.normal(size=600)
    problem = PythonProblem(x.tolist(), np.where(x > 0, 1, -1).tolist(), Model())
    started = jit.clock()
    result = SOLVERS[name]().solve(problem, C=C, max_seconds=0.2)
    assert result.status is Status.TIME_LIMIT
    # All 600 examples would take 3 s.
    assert jit.clock() - started < 0.2 + 1.0 + 0.5
    assert result.primal == math.inf or result.primal >= 0.0
    assert result.dual >= 0.0


def test_what_is_fixed_or_forbidden_is_not_taken_for_known():
    rng = np.random.default_rng(0)
    rows, tags = [rng.normal(size=(3, 2)) for _ in range(40)], [np.zeros(3, int) for _ in range(40)]
    forbidden = np.array([[False, True], [False, False]])
    problem = chain_problem(rows, tags, 2, forbidden=forbidden)
    result = BCFW(inference=Slow(0.1)).solve(problem, C=C, max_seconds=0.1)
    assert result.primal == result.gap == math.inf
    assert 0.0 <= result.dual <= exact_optimum(problem, C) + SLACK
    assert "inf" in result.summary()


def test_compilation_counts_for_no_limit():
    problem, engine = labels(4), Slow(0.2, wait_as_if_compiling)
    started = time.perf_counter()
    result = BCFW(inference=engine).solve(problem, C=C, tol=1e-6, max_seconds=5.0, max_passes=3)
    wall = time.perf_counter() - started
    assert engine.calls >= 8
    assert result.status is not Status.TIME_LIMIT
    assert result.compile_seconds >= 0.2 * engine.calls - 0.1
    assert result.seconds + result.compile_seconds <= wall + 0.01
    assert result.seconds < wall - 0.2 * engine.calls + 0.1
    assert result.history["monitor_seconds"][-1] < wall - 0.2 * engine.calls + 0.1


def test_ctrl_c_gives_up_a_long_check(monkeypatch):
    problem, engine = labels(400), Slow(0.0)

    class Pressed:
        asked = False

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

    pressed = Pressed()
    monkeypatch.setattr(loop, "Interruptible", lambda: pressed)

    def wait(seconds):
        # Pressed during the second round of questions.
        if engine.calls > 900:
            pressed.asked = True
            time.sleep(0.05)

    engine.wait = wait
    started = jit.clock()
    result = BCFW(inference=engine).solve(problem, C=C, tol=0.0)
    assert result.status is Status.INTERRUPTED
    assert math.isfinite(result.primal)
    assert result.primal >= true_value(problem, result.weights) - SLACK
    assert jit.clock() - started < 20.0


def test_a_picture_of_many_states_is_trained():
    rng = np.random.default_rng(0)
    side, K = 90, 4
    at = np.arange(side * side).reshape(side, side)
    edges = np.concatenate([np.c_[a.ravel(), b.ravel()] for a, b in ((at[:, :-1], at[:, 1:]), (at[:-1], at[1:]))])
    y = rng.integers(0, K, side * side)
    X = np.eye(K)[y] + rng.normal(size=(side * side, K))
    # 4 ** 8100 has 4877 digits, more than Python writes.
    problem = graph_problem([(X, edges, np.ones((len(edges), 1)))], [y], K, edge_weights="potts")
    result = BCFW().solve(problem, C=1.0, max_passes=1)
    assert result.options["inference"] == "dual_decomposition"
    assert math.isfinite(result.primal)

"""Solvers and problems that do not fit are refused from what both declare; a new solver is one class and one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from maxmargin.errors import OptionError
from maxmargin.inference import ENGINES, Exhaustive
from maxmargin.problems.chains import chain_problem
from maxmargin.problems.features import KernelBlocks, KernelFeatures
from maxmargin.problems.multi_class import binary_problem
from maxmargin.problems.python_problem import PythonProblem
from maxmargin.solvers import BCFW, SOLVERS, make_solver
from maxmargin.solvers.core.capabilities import NEEDS, able, missing, needs, solver_table
from maxmargin.solvers.frank_wolfe.frank_wolfe import FrankWolfe
from maxmargin.solvers.online.perceptron import Perceptron

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(12, 3)), RNG.integers(0, 2, 12)


class Model:
    """Two outputs, known by their most violated ones alone."""

    exact = True

    def joint_features(self, x, y):
        return y * x

    def loss(self, y, other):
        return float(y != other)

    def most_violated(self, x, y, w):
        return max((-1, 1), key=lambda other: (y != other) + other * (x @ w))

    def predict(self, x, w):
        return 1 if x @ w > 0 else -1


def problems():
    gram = X @ X.T
    return {
        "rows": binary_problem(X, Y),
        "kernel": binary_problem(KernelFeatures(gram), Y),
        "kernel in blocks": binary_problem(KernelBlocks(X, lambda a, b: a @ b.T), Y),
        "python": PythonProblem(list(X), [2 * int(y) - 1 for y in Y], Model()),
    }


@pytest.mark.parametrize("name", problems())
@pytest.mark.parametrize("solver", SOLVERS)
def test_every_pair_trains_or_is_refused(solver, name):
    """The declarations are true: what they allow runs, and what they refuse names what is missing and who would do."""
    problem, made = problems()[name], SOLVERS[solver]()
    lacks = missing(made, problem)
    assert set(needs(made, getattr(made, "objective", "margin"))) <= set(NEEDS)
    if not lacks:
        assert np.isfinite(made.solve(problem, C=1.0, max_passes=2).weights).all()
        return
    with pytest.raises(OptionError, match=f'The solver "{solver}" needs') as refused:
        made.solve(problem, C=1.0)
    assert all(NEEDS[need] in str(refused.value) for need in lacks)
    for other in able(problem, getattr(made, "objective", "margin")):
        assert f'"{other}"' in str(refused.value)


def test_who_can_train_what():
    found = {name: able(problem) for name, problem in problems().items()}
    assert set(found["python"]) == {
        "bcfw", "bundle", "frank-wolfe", "n-slack", "one-slack", "perceptron", "subgradient"
    }  # fmt: skip
    assert set(found["kernel in blocks"]) == {"bundle", "one-slack"}
    assert set(found["kernel in blocks"]) < set(found["kernel"]) < set(found["rows"])
    assert able(problems()["kernel"], "log") == ["exponentiated-gradient"]


@pytest.mark.parametrize("name", problems())
@pytest.mark.parametrize("solver", [name for name, one in SOLVERS.items() if "log" in one.objectives])
def test_the_log_objective_likewise(solver, name):
    problem = problems()[name]
    made = make_solver(solver, problem, "log")
    if solver in able(problem, "log"):
        assert np.isfinite(made.solve(problem, C=1.0, max_passes=2).weights).all()
        return
    with pytest.raises(OptionError, match=f'The solver "{solver}" needs'):
        made.solve(problem, C=1.0)


def test_a_toy_solver_is_one_class_and_one_line(monkeypatch):
    class Toy(Perceptron):
        name = "toy"

    monkeypatch.setitem(SOLVERS, "toy", Toy)
    problem = problems()["rows"]
    assert make_solver("toy", problem).solve(problem, max_passes=1).solver == "toy"
    assert "toy" in able(problem)
    with pytest.raises(OptionError, match=r'use one of: .*"toy"'):
        SOLVERS["soft-bcfw"]().solve(problems()["python"])


def test_a_toy_engine_is_one_class_and_one_line(monkeypatch):
    class Toy(Exhaustive):
        name = "toy"

    monkeypatch.setitem(ENGINES, "toy", Toy)
    problem = chain_problem([X[:4], X[4:8], X[8:]], [Y[:4], Y[4:8], Y[8:]], 2)
    ours, theirs = (BCFW(engine).solve(problem, C=5.0, tol=1e-6) for engine in ("toy", "exhaustive"))
    assert ours.options["inference"] == "toy"
    np.testing.assert_array_equal(ours.weights, theirs.weights)
    assert FrankWolfe(inference="toy").solve(problem, max_passes=2).certificate == "exact"


def test_the_table_of_the_documentation_is_what_solvers_declare():
    page = Path(__file__).parents[3] / "docs" / "solvers.md"
    assert solver_table() in page.read_text(encoding="utf-8")
    for one in SOLVERS.values():
        assert set(one.certificates) <= {"exact", "relaxed", "soft", "none"}, one.name
        assert one.keeps, one.name
        assert one.paper, one.name

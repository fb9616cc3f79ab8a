"""Every solver on every small problem: bounds hold at every check, solvers agree within their gaps, and runs repeat to the bit."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from maxmargin.errors import OptionError
from maxmargin.problems import Features, graph_problem, label_edges, multi_label_problem
from maxmargin.problems.chains import chain_problem
from maxmargin.problems.multi_class import binary_problem, multi_class_problem
from maxmargin.solvers import (
    BCFW,
    DLPW,
    LBFGS,
    SMO,
    SOLVERS,
    BundleMethod,
    ExcessiveGap,
    ExponentiatedGradient,
    Extragradient,
    FrankWolfe,
    NSlack,
    OneSlack,
    Perceptron,
    SoftBCFW,
    Status,
    Subgradient,
    choose_solver,
)
from reference.enumerated_program import exact_optimum
from reference.quadratic_program import optimum
from reference.random_problems import random_problem

SLACK = 1e-7
C = 3.0

#: Solvers and options that close their gap, and the tolerance they are asked for.
CLOSING = {
    "bcfw": (BCFW(), 1e-4),
    "bcfw, pairwise": (BCFW(steps="pairwise"), 1e-4),
    "bcfw, uniform": (BCFW(sampling="uniform"), 1e-4),
    "bcfw, joint": (BCFW(steps="joint", batch=3), 1e-4),
    "bcfw, plain": (BCFW.plain(), 5e-3),
    "bcfw, exhaustive": (BCFW("exhaustive"), 1e-4),
    "bundle": (BundleMethod(), 1e-4),
    "excessive-gap": (ExcessiveGap(), 1e-2),
    "exponentiated-gradient": (ExponentiatedGradient(), 2e-2),
    "extragradient": (Extragradient(), 2e-2),
    "frank-wolfe": (FrankWolfe(), 2e-2),
    "n-slack": (NSlack(), 1e-4),
    "n-slack, one by one": (NSlack(batch=1), 1e-4),
    "one-slack": (OneSlack(), 1e-4),
    "one-slack, cache": (OneSlack(cache=3), 1e-4),
    "one-slack, as published": (OneSlack(cache=0, step=1.0), 1e-4),
    "one-slack, as SVM-struct": (OneSlack(stop="svm-struct"), 1e-4),
    "smo": (SMO(), 1e-4),
    "soft-bcfw": (SoftBCFW(), 1e-4),
    "soft-bcfw, uniform": (SoftBCFW(sampling="uniform", sweeps=1), 1e-4),
}
#: Solvers of the log objective.
LOG = {
    "bundle": BundleMethod("log"),
    "exponentiated-gradient": ExponentiatedGradient(objective="log"),
    "lbfgs": LBFGS(),
}
#: Solvers whose values are true, but need not meet.
OPEN = {
    "soft-bcfw, soft": SoftBCFW(rho=1.0, multipliers=False),
    "soft-bcfw, algorithm 1": SoftBCFW.algorithm_1(1.0),
    "soft-bcfw, shrinking rho": SoftBCFW(rho=3.0, multipliers=False, rho_decay=0.9),
    "soft-bcfw, smooth": SoftBCFW(smoothing=0.01),
    "dlpw": DLPW(),
    "dlpw, smooth": DLPW(smoothing=0.01),
    "subgradient": Subgradient(),
    "perceptron": Perceptron(),
}


def problems():
    rng = np.random.default_rng(7)
    X, Y = rng.normal(size=(12, 3)), rng.integers(0, 2, (12, 4))
    lengths = rng.integers(1, 5, 8)
    rows, tags = [rng.normal(size=(t, 3)) for t in lengths], [np.zeros(t, int) for t in lengths]
    for one in tags:
        # Tag 2 may only follow tag 1, as I may only follow B.
        for t in range(len(one)):
            one[t] = rng.integers(0, 3) if t and one[t - 1] > 0 else rng.integers(0, 2)
    forbidden = np.zeros((3, 3), bool)
    forbidden[0, 2] = True
    known, in_pieces = rng.random((12, 4)) < 0.7, np.concatenate([np.arange(t) != t // 2 for t in lengths])
    graphs = [(rng.normal(size=(4, 2)), [[0, 1], [1, 2], [2, 3], [3, 0]], rng.normal(size=(4, 2))) for _ in range(6)]
    return {
        "labels": multi_label_problem(X, Y, label_edges("full", Y), 4, "hamming", rng.random(12) + 0.5),
        "tree of labels": multi_label_problem(X, Y, label_edges("tree", Y), 4),
        "labels partly known": multi_label_problem(
            X, Y, label_edges("full", Y), 4, "hamming", rng.random(12) + 0.5, known
        ),
        "classes": multi_class_problem(X, rng.integers(0, 3, 12), 3),
        "two classes": binary_problem(X, rng.integers(0, 2, 12)),
        "chains": chain_problem(rows, tags, 3),
        "chains with constraints": chain_problem(rows, tags, 3, forbidden=forbidden),
        "chains in pieces": chain_problem(
            Features(np.concatenate(rows)), tags, 3, forbidden=forbidden, lengths=lengths, known=in_pieces
        ),
        "cycles": graph_problem(graphs, [rng.integers(0, 3, 4) for _ in graphs], 3, edge_weights="potts"),
        "anything": random_problem(np.random.default_rng(8), n_examples=6, max_variables=4, sparse=True),
    }


PROBLEMS = problems()
BEST: dict[str, dict[str, float]] = {}


def best(name):
    """The optimum of each certificate's problem."""
    if name not in BEST:
        problem = PROBLEMS[name]
        BEST[name] = {"exact": exact_optimum(problem, C), "relaxed": optimum(problem, C)}
        has_factors = problem.example_factors[-1] > 0
        BEST[name]["soft"] = optimum(problem, C, 1.0 if has_factors else None)
    return BEST[name]


def test_every_solver_is_in_the_battery():
    named = {solver.name for solver, _ in CLOSING.values()} | {solver.name for solver in OPEN.values()}
    named |= {solver.name for solver in LOG.values()}
    assert named == set(SOLVERS)


@pytest.mark.parametrize("solver", CLOSING)
@pytest.mark.parametrize("name", PROBLEMS)
def test_solvers_that_close_their_gap(solver, name):
    chosen, tol = CLOSING[solver]
    if chosen.name == "smo" and not PROBLEMS[name].is_forest:
        with pytest.raises(OptionError, match="Not all of these graphs are trees"):
            chosen.solve(PROBLEMS[name], C)
        return
    result = chosen.solve(PROBLEMS[name], C, tol=tol, max_passes=20_000)
    assert result.certificate in chosen.certificates
    value = best(name)[result.certificate]
    assert (result.history["dual"] <= value + SLACK).all()
    assert (result.history["primal"] >= value - SLACK).all()
    assert (np.diff(result.history["dual"]) >= -1e-12).all()
    if name == "chains with constraints" and chosen.name == "soft-bcfw":
        # Its repair cannot always keep to allowed joint states (docs/certificates.md): the weights are good, the gap stays.
        assert result.primal - value <= 0.1
        return
    assert result.status is Status.CONVERGED, result.summary()
    assert result.primal - value <= tol + SLACK


@pytest.mark.parametrize("name", PROBLEMS)
def test_solvers_of_the_log_objective_agree(name):
    results = [solver.solve(PROBLEMS[name], C, tol=1e-3, max_passes=5000) for solver in LOG.values()]
    for one in results:
        assert one.status is Status.CONVERGED, one.summary()
        assert one.certificate == "exact"
        for other in results:
            assert one.dual <= other.primal + SLACK


@pytest.mark.parametrize("solver", OPEN)
@pytest.mark.parametrize("name", PROBLEMS)
def test_solvers_whose_values_are_true(solver, name):
    result = OPEN[solver].solve(PROBLEMS[name], C, tol=1e-4, max_passes=60)
    assert result.certificate in OPEN[solver].certificates
    if result.certificate != "none":
        value = best(name)[result.certificate]
        assert (result.history["dual"] <= value + SLACK).all()
        assert (result.history["primal"] >= value - SLACK).all()
    else:
        assert result.status is not Status.CONVERGED
        assert result.primal >= best(name)["exact"] - SLACK


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_choice_closes_the_gap(name):
    solver = choose_solver(PROBLEMS[name])
    result = solver.solve(PROBLEMS[name], C, tol=1e-3, max_passes=5000)
    assert result.status is Status.CONVERGED, result.summary()
    assert result.options["reason"] == solver.reason
    assert abs(result.primal - best(name)[result.certificate]) <= 1e-3 + SLACK


@pytest.mark.parametrize("solver", [*CLOSING, *OPEN])
@pytest.mark.parametrize("name", ["tree of labels", "chains"])
def test_runs_repeat_to_the_bit_whatever_the_threads(solver, name):
    chosen = CLOSING[solver][0] if solver in CLOSING else OPEN[solver]
    results = [chosen.solve(PROBLEMS[name], C, tol=0.0, max_passes=5, n_jobs=n, random_state=3) for n in (1, 1, 2)]
    for other in results[1:]:
        np.testing.assert_array_equal(other.weights, results[0].weights)
        np.testing.assert_array_equal(other.history["primal"], results[0].history["primal"])
        np.testing.assert_array_equal(other.history["dual"], results[0].history["dual"])


def test_many_pairs_are_swept():
    many = multi_label_problem(np.ones((1, 1)), np.zeros((1, 26), int), label_edges("full", np.zeros((1, 26), int)), 26)
    assert choose_solver(many).name == "soft-bcfw"
    assert choose_solver(many).reason.startswith("325 pairs an example")


@pytest.mark.parametrize(("n_features", "name"), [(3, "one-slack"), (60, "bcfw")])
def test_loopy_graphs_with_few_weights_share_a_plane(n_features, name):
    edges = list(itertools.combinations(range(9), 2))
    problem = graph_problem([(np.ones((9, n_features)), np.array(edges))], [np.zeros(9, int)], 4, edge_weights="potts")
    assert choose_solver(problem).name == name

"""A search that is bad by a known factor: against enumeration, and theorems 2 and 3 of Finley and Joachims."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import maxmargin as mm
from maxmargin.errors import OptionError
from maxmargin.inference import Exhaustive, GraphCut, LinearProgram, RhoApproximate
from maxmargin.problems import label_edges, multi_label_problem
from maxmargin.solvers import BCFW, OneSlack
from maxmargin.solvers.oracles.max_oracle import oracle_of
from reference.enumerated_program import exact_optimum
from reference.random_problems import coupled_labels, random_problem


@pytest.mark.parametrize("rho", [0.3, 0.7, 0.95, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_it_finds_the_worst_labeling_that_is_good_enough(rho, seed):
    rng = np.random.default_rng(seed)
    graphs = random_problem(rng, n_examples=6, max_variables=4, forbidden=seed == 0)
    scores = graphs.scores(rng.normal(size=graphs.n_weights))
    found, best = RhoApproximate(rho).maximise(graphs, scores), Exhaustive().maximise(graphs, scores)
    for m in range(graphs.n_examples):
        part = graphs.take([m])
        own = type(scores)(
            scores.variables[graphs.example_states[m] : graphs.example_states[m + 1]],
            scores.factors[graphs.example_tables[m] : graphs.example_tables[m + 1]],
        )
        sizes = np.diff(np.append(part.state_starts(), part.example_states[-1]))
        every = [
            part.labeling_scores(own, np.array(labels, np.int32))[0]
            for labels in itertools.product(*(range(n) for n in sizes))
        ]
        top = max(every)
        expected = min(one for one in every if one >= rho * top) if top > 0 else top
        assert found.values[m] == pytest.approx(expected, abs=1e-12)
    assert (found.bounds >= best.values).all()
    np.testing.assert_allclose(
        found.bounds, np.maximum(np.where(found.values > 0, found.values / rho, found.values), best.values)
    )


@pytest.mark.parametrize("rho", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("solver", [OneSlack, BCFW], ids=lambda one: one.name)
def test_theorem_2_the_optimum_is_in_the_interval(rho, solver):
    problem, C = coupled_labels(3, n=12, n_labels=4), 10.0
    optimum = exact_optimum(problem, C)
    result = solver(inference=RhoApproximate(rho)).solve(problem, C, tol=1e-4, max_passes=300)
    assert result.certificate == "exact"
    assert result.dual <= optimum + 1e-9
    assert result.primal >= optimum - 1e-9
    if rho == 0.99:
        # The better the oracle, the closer the bounds.
        loose = solver(inference=RhoApproximate(0.5)).solve(problem, C, tol=1e-4, max_passes=300)
        assert result.gap < loose.gap


def test_theorem_3_the_risk_of_approximate_predictions_is_bounded():
    problem, C, rho = coupled_labels(5, n=20, n_labels=4), 10.0, 0.8
    result = BCFW(inference="exhaustive").solve(problem, C, tol=1e-6)
    scores = problem.scores(result.weights)
    found = RhoApproximate(rho).maximise(problem, scores)
    truth = problem.labeling_scores(scores, problem.labels)
    # By example: loss(y') <= (1 - rho) score(truth) + xi, where the score is not negative.
    xi = oracle_of(problem, "exhaustive").mean_plane(result.weights, 1).hinges
    losses = problem.labeling_losses(found.labels)
    positive = Exhaustive().maximise(problem, scores).values > 0
    assert positive.any()
    assert (losses[positive] <= ((1 - rho) * truth + xi)[positive] + 1e-9).all()


@pytest.mark.parametrize("rho", [0.0, -1, 1.5, float("nan"), "0.5", True])
def test_factors_that_are_none(rho):
    with pytest.raises(OptionError, match="it must be a number above 0 and at most 1"):
        RhoApproximate(rho)


# ---------------------------------------------------------------------------------------------------------- open labels


def open_labels():
    """A triangle of labels that repel each other: the relaxation leaves them open."""
    X = np.ones((40, 1))
    Y = np.eye(3, dtype=int)[np.arange(40) % 3]
    return X, Y, multi_label_problem(X, Y, label_edges("full", Y), 3)


@pytest.mark.parametrize("kind", [GraphCut, LinearProgram])
def test_open_labels_count_one_half_or_are_coins(kind):
    X, Y, problem = open_labels()
    w = np.array([1.0, 1.0, 1.0, -2.0, -2.0, -2.0])
    scores = problem.scores(w)
    relaxed = kind().relax(problem, scores)
    assert relaxed.ambiguous.all()
    coins = kind(rounding="random").maximise(problem, scores)
    assert np.array_equal(coins.labels, kind(rounding="random").maximise(problem, scores).labels)
    assert 0.3 < coins.labels.mean() < 0.7
    assert (coins.bounds >= coins.values).all()
    model = mm.MultiLabelSVM(C=1.0, fit_intercept=False, inference=kind(rounding="fraction"), solver="bcfw").fit(X, Y)
    model.result_.weights[:] = w
    assert np.array_equal(model.predict(X), np.full((40, 3), 0.5))
    assert model.score(X, Y) == 0.5
    assert model.ambiguity(X) == 1.0
    model.set_params(inference=kind(rounding="half-up"))
    assert model.predict(X).dtype == np.int64
    assert model.score(X, Y) == pytest.approx(1 / 3)


def test_a_rounding_that_is_not_known_is_named():
    with pytest.raises(OptionError, match="no rounding 'up'"):
        GraphCut(rounding="up")

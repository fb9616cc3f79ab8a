"""SMO on marginals against the training problem written out."""

from __future__ import annotations

import numpy as np
import pytest

from maxmargin.errors import OptionError
from maxmargin.problems import label_edges, multi_label_problem
from maxmargin.problems.chains import chain_problem
from maxmargin.problems.features import KernelFeatures
from maxmargin.problems.multi_class import multi_class_problem
from maxmargin.solvers import BCFW, Status
from maxmargin.solvers.marginals.smo import SMO
from reference.enumerated_program import exact_optimum
from reference.enumeration import examples
from reference.random_problems import random_problem

SLACK = 1e-7


def problems():
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(10, 3)), rng.integers(0, 2, (10, 4))
    lengths = rng.integers(1, 5, 8)
    rows, tags = [rng.normal(size=(t, 3)) for t in lengths], [rng.integers(0, 3, t) for t in lengths]
    return {
        "tree of labels": multi_label_problem(X, Y, label_edges("tree", Y), 4),
        "classes": multi_class_problem(X, rng.integers(0, 3, 10), 3),
        "chains": chain_problem(rows, tags, 3, sample_weight=rng.random(8) + 0.5),
        "forest": random_problem(np.random.default_rng(1), kind="forest", n_examples=6, forbidden=True, sparse=True),
        "other forest": random_problem(np.random.default_rng(5), kind="forest", n_examples=6),
    }


PROBLEMS = problems()


def consistent(problem, now):
    """Marginals are not negative, sum to 1, and factors agree with variables."""
    assert now.variables.min() >= 0.0
    assert now.factors.min(initial=0.0) >= 0.0
    for one in examples(problem):
        for start, n in zip(one.state_start, one.n_states, strict=True):
            assert now.variables[start : start + n].sum() == pytest.approx(1.0, abs=1e-10)
        for start, shape, scope in zip(one.table_start, one.shapes, one.structure.scopes, strict=True):
            table = now.factors[start : start + int(np.prod(shape))].reshape(shape)
            for slot, v in enumerate(scope):
                others = tuple(k for k in range(len(shape)) if k != slot)
                at = one.state_start[v]
                np.testing.assert_allclose(table.sum(axis=others), now.variables[at : at + shape[slot]], atol=1e-10)


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("steps", [1, 10])
def test_it_closes_the_gap(name, steps):
    best = exact_optimum(PROBLEMS[name], 3.0)
    result = SMO(steps).solve(PROBLEMS[name], 3.0, tol=1e-4, max_passes=5000)
    assert result.certificate == "exact"
    assert (result.history["dual"] <= best + SLACK).all()
    assert (result.history["primal"] >= best - SLACK).all()
    assert (np.diff(result.history["dual"]) >= -1e-12).all()
    assert result.status is Status.CONVERGED, result.summary()
    consistent(PROBLEMS[name], result.state)


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_weights_are_those_of_the_marginals(name):
    problem, lam = PROBLEMS[name], 0.2
    run = SMO().make_run(problem, lam, 0, 1)
    now = run.begin(None)
    for _ in range(5):
        run.one_pass(now, lambda: False)
    from maxmargin.solvers.oracles.compiled import workspace
    from maxmargin.solvers.oracles.exp_oracle import add_marginals

    out = problem.working_weights()
    ell = add_marginals(problem.batch, workspace(problem.arrays.largest), now.variables, now.factors, *out)
    np.testing.assert_allclose(problem.flat_weights(*out) / (lam * problem.n_examples), now.w, atol=1e-10)
    assert problem.arrays.weight @ now.ell == pytest.approx(ell, abs=1e-10)


def test_longer_chains_than_enumeration_can_do():
    rng = np.random.default_rng(2)
    lengths = rng.integers(1, 25, 40)
    problem = chain_problem([rng.normal(size=(t, 6)) for t in lengths], [rng.integers(0, 5, t) for t in lengths], 5)
    one, two = SMO().solve(problem, 1.0, tol=1e-3), BCFW().solve(problem, 1.0, tol=1e-3)
    assert one.status is two.status is Status.CONVERGED
    assert one.dual <= two.primal
    assert two.dual <= one.primal


def test_a_linear_kernel_comes_to_the_same():
    # Not by the same way: labelings that tie are told apart by rounding.
    rng = np.random.default_rng(3)
    lengths = rng.integers(1, 6, 8)
    rows, tags = [rng.normal(size=(t, 4)) for t in lengths], [rng.integers(0, 3, t) for t in lengths]
    x = np.concatenate(rows)
    plain, kernel = chain_problem(rows, tags, 3), chain_problem(KernelFeatures(x @ x.T), tags, 3, lengths=lengths)
    best = exact_optimum(plain, 2.0)
    result = SMO().solve(kernel, 2.0, tol=1e-8, max_passes=20_000)
    assert result.status is Status.CONVERGED
    assert result.dual - SLACK <= best <= result.primal + SLACK
    one = SMO().solve(plain, 2.0, tol=1e-8, max_passes=20_000)
    w = (result.weights[: 3 * len(x)].reshape(3, -1) @ x).ravel()
    # |w - w*|^2 <= 2 gap / lam for both.
    assert np.linalg.norm(w - one.weights[:12]) <= 2 * np.sqrt(2 * 1e-8 * 2.0)


def test_a_checkpoint_goes_on_bit_for_bit(tmp_path):
    solver, problem = SMO(), PROBLEMS["chains"]
    whole = solver.solve(problem, 10.0, tol=0.0, max_passes=20, n_jobs=2)
    solver.solve(problem, 10.0, tol=0.0, max_passes=9, checkpoint=tmp_path / "state")
    rest = solver.solve(problem, 10.0, tol=0.0, max_passes=20, checkpoint=tmp_path / "state")
    np.testing.assert_array_equal(rest.weights, whole.weights)
    assert (rest.primal, rest.dual) == (whole.primal, whole.dual)


def test_a_warm_start_keeps_the_weights_and_true_bounds():
    problem = PROBLEMS["chains"]
    first = SMO().solve(problem, 1.0, tol=1e-3)
    np.testing.assert_allclose(SMO().make_run(problem, 0.5, 0, 1).begin(first.state).w, first.state.w, rtol=1e-12)
    for C in (0.3, 4.0):
        warm, best = SMO().solve(problem, C, tol=1e-3, state=first.state), exact_optimum(problem, C)
        assert warm.status is Status.CONVERGED
        assert warm.dual <= best + SLACK
        assert warm.primal >= best - SLACK


def test_sentences():
    loopy = random_problem(np.random.default_rng(2), n_examples=5, max_variables=4)
    with pytest.raises(OptionError, match='"smo" keeps marginals of trees'):
        SMO().solve(loopy)
    with pytest.raises(OptionError, match="steps=0 is not possible"):
        SMO(0).solve(PROBLEMS["chains"])

"""No false bound, whatever the scale of the features and C (a longer attack: certificates.py)."""

from __future__ import annotations

import numpy as np
import pytest

from attack.certificates import attack, random_case
from maxmargin.problems.multi_class import binary_problem, multi_class_problem
from maxmargin.solvers import BCFW, BundleMethod, OneSlack, SoftBCFW, Status


@pytest.mark.parametrize("seed", range(30))
def test_no_bound_is_false(seed):
    results, _, false = attack(random_case(np.random.default_rng([7, seed])), max_passes=40, seed=seed)
    assert len(results) >= 16
    assert not false, "\n".join(false)


def test_masses_sum_to_one_where_c_is_tiny():
    rng = np.random.default_rng(0)
    X = 1e-4 * rng.normal(size=(7, 2))
    # At this scale no weights change anything: the optimum is the loss at w = 0, which is 1.
    result = SoftBCFW().solve(multi_class_problem(X, rng.integers(0, 3, 7), 3), C=1e-3)
    assert result.dual <= 1.0
    assert result.status is Status.CONVERGED


@pytest.mark.parametrize("C", [1e-3, 1e-6])
def test_many_examples_under_strong_regularisation_converge(C):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(20_000, 5))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    result = SoftBCFW().solve(multi_class_problem(X, rng.integers(0, 3, len(X)), 3), C, tol=1e-9, max_passes=50)
    assert result.status is Status.CONVERGED, result.summary()
    assert result.primal >= result.dual


@pytest.mark.parametrize("scale", [1e4, 1e5, 1e6, 7e8])
@pytest.mark.parametrize("solver", [OneSlack(), BundleMethod()], ids=lambda one: one.name)
def test_cutting_planes_of_large_features(solver, scale):
    rng = np.random.default_rng(2)
    problem = binary_problem(scale * rng.normal(size=(50, 4)), rng.integers(0, 2, 50))
    # The same problem in another unit: features of size 1, and C in proportion.
    small = binary_problem(problem.variable_features.matrix() / scale, problem.labels)
    best = BCFW().solve(small, scale**2, max_passes=200, max_seconds=5.0)
    result = solver.solve(problem, 1.0, max_passes=1500)
    assert result.dual <= best.primal + 1e-12
    assert result.primal >= result.dual
    if scale <= 1e6:
        assert result.status is Status.CONVERGED, result.summary()

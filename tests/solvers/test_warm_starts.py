"""A state of other data is never gone on from: its planes and dual points would certify what is not so."""

from __future__ import annotations

import numpy as np
import pytest

import maxmargin as mm
from maxmargin.problems import multi_label_problem
from maxmargin.problems.chains import chain_problem
from maxmargin.problems.features import KernelBlocks
from maxmargin.problems.multi_class import binary_problem
from maxmargin.solvers import (
    BCFW,
    DLPW,
    SMO,
    BundleMethod,
    ExcessiveGap,
    ExponentiatedGradient,
    Extragradient,
    FrankWolfe,
    NSlack,
    OneSlack,
    SoftBCFW,
    Status,
    Subgradient,
)
from maxmargin.solvers.core.checkpoint import data_key, structure_key

DUAL = [
    BCFW(), BundleMethod(), DLPW(), ExcessiveGap(), ExponentiatedGradient(), Extragradient(), FrankWolfe(), NSlack(), OneSlack(),
    SMO(), SoftBCFW(), Subgradient(),
]  # fmt: skip


def chains(forbidden=None):
    """Chains that never go from tag 0 to tag 1."""
    rng = np.random.default_rng(1)
    tags = [one for one in rng.integers(0, 3, (60, 4)) if not ((one[:-1] == 0) & (one[1:] == 1)).any()]
    return chain_problem([rng.normal(size=(4, 3)) for _ in tags], tags, 3, forbidden=forbidden)


def pairs_of_labels(edges):
    rng = np.random.default_rng(2)
    return multi_label_problem(rng.normal(size=(40, 3)), rng.integers(0, 2, (40, 4)), np.array(edges), 4)


def one_column_negated(sign):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(8_000, 20))
    y = X[:, 7] + 0.5 * rng.normal(size=len(X)) > 0
    X[:, 7] *= sign
    return binary_problem(X, y.astype(int))


FORBIDDEN = np.zeros((3, 3), bool)
FORBIDDEN[0, 1] = True
CHANGES = {
    "constraints": (lambda: chains(), lambda: chains(FORBIDDEN)),
    "fewer constraints": (lambda: chains(FORBIDDEN), lambda: chains()),
    "edges": (lambda: pairs_of_labels([[0, 1], [1, 2]]), lambda: pairs_of_labels([[0, 3], [2, 3]])),
    "a column": (lambda: one_column_negated(1), lambda: one_column_negated(-1)),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("solver", DUAL, ids=lambda one: one.name)
def test_a_state_of_other_data_certifies_nothing_false(solver, change):
    before, after = (make() for make in CHANGES[change])
    passes = 8 if change == "a column" else 100
    earlier = solver.solve(before, C=10.0, max_passes=passes)
    result = solver.solve(after, C=10.0, max_passes=passes, state=earlier.state)
    bound = min(one.solve(after, C=10.0, tol=1e-4, max_passes=300).primal for one in (BCFW(), OneSlack()))
    assert result.dual <= bound + 1e-9
    if not solver.portable:
        afresh = solver.solve(after, C=10.0, max_passes=passes)
        np.testing.assert_array_equal(result.weights, afresh.weights)


def test_an_estimator_with_new_constraints_starts_afresh():
    rng = np.random.default_rng(1)
    tags = [one for one in rng.integers(0, 3, (60, 4)) if not ((one[:-1] == 0) & (one[1:] == 1)).any()]
    rows = [rng.normal(size=(4, 3)) for _ in tags]
    model = mm.ChainSVM(C=10.0, warm_start=True).fit(rows, tags)
    model.set_params(forbidden=[(0, 1)]).fit(rows, tags)
    afresh = mm.ChainSVM(C=10.0, forbidden=[(0, 1)]).fit(rows, tags)
    assert model.result_.status is Status.CONVERGED
    assert model.result_.dual <= afresh.result_.primal
    np.testing.assert_array_equal(model.coef_, afresh.coef_)


def test_the_same_data_goes_on():
    problem = chains()
    first = BCFW().solve(problem, C=10.0, tol=1e-6)
    again = BCFW().solve(chains(), C=10.0, tol=1e-3, state=first.state)
    assert again.n_passes == 1
    assert data_key(problem) == data_key(chains())


def test_keys_tell_graphs_from_data():
    one, other = one_column_negated(1), one_column_negated(-1)
    assert data_key(one) != data_key(other)
    assert structure_key(one) == structure_key(other)
    assert structure_key(chains()) != structure_key(chains(FORBIDDEN))


def test_rows_and_function_of_a_kernel_are_part_of_the_data():
    rng = np.random.default_rng(4)
    X, y = rng.normal(size=(300, 3)), rng.integers(0, 2, 300)

    def problem(rows, power):
        made = KernelBlocks(rows, lambda a, b: np.asarray(a @ b.T) ** power)
        return binary_problem(made, y)

    changed = X.copy()
    changed[150, 1] *= -1.0
    keys = [data_key(problem(*one)) for one in ((X, 2), (X.copy(), 2), (changed, 2), (X, 4))]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3


class Signs:
    """Learn the sign of a number; `cost` is the loss of a wrong one."""

    exact = True

    def __init__(self, cost):
        self.cost = cost

    def joint_features(self, x, y):
        return np.array([x * y])

    def loss(self, y, other):
        return self.cost * (y != other)

    def most_violated(self, x, y, w):
        return max((-1, 1), key=lambda other: self.loss(y, other) + w[0] * x * other)

    def predict(self, x, w):
        return 1 if w[0] * x >= 0 else -1


def test_inputs_and_attributes_of_a_python_problem_are_part_of_its_data():
    problem = mm.PythonProblem([1.0, -2.0], [1, -1], Signs(1.0))
    assert data_key(problem) == data_key(mm.PythonProblem([1.0, -2.0], [1, -1], Signs(1.0)))
    # The features of the truths are the same.
    assert data_key(problem) != data_key(mm.PythonProblem([1.0, -2.0], [1, -1], Signs(2.0)))
    assert data_key(problem) != data_key(mm.PythonProblem([-1.0, -2.0], [-1, -1], Signs(1.0)))

    class Local(Signs):
        pass

    local = mm.PythonProblem([1.0], [1], Local(1.0))
    assert data_key(local) == data_key(local)
    assert data_key(local) != data_key(mm.PythonProblem([1.0], [1], Local(1.0)))

"""What large data is held without: values of features that are all 1, and task losses of single states."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import scipy.sparse as sp

from maxmargin.problems import Features, chain_problem, chains
from maxmargin.solvers import BCFW, SMO, SOLVERS, ExponentiatedGradient, OneSlack, SoftBCFW, Subgradient


def test_features_of_ones_keep_no_values():
    """The same scores, products, bits and weights as with values that are all 1."""
    rng = np.random.default_rng(3)
    lengths = rng.integers(1, 6, 12)
    matrix = sp.csr_array((rng.random((lengths.sum(), 20)) < 0.2).astype(float))
    tags = [rng.integers(0, 3, n) for n in lengths]
    ones = Features(matrix)
    assert len(ones.arrays.data) == 0
    np.testing.assert_array_equal(ones.matrix().toarray(), matrix.toarray())
    for given in (matrix.astype(bool), matrix.astype(np.int8), matrix.astype(np.float32)):
        assert len(Features(given).arrays.data) == 0
    assert Features(matrix.astype(np.float32)).matrix().dtype == np.float32
    a = ones.arrays
    kept = Features.of_rows(a.indptr, a.indices, np.ones(len(a.indices)), 20, "X")
    np.testing.assert_array_equal(a.squared_norms, kept.arrays.squared_norms)
    with_constant = ones.with_constant()
    assert len(with_constant.arrays.data) == 0
    np.testing.assert_array_equal(
        with_constant.matrix().toarray(), np.hstack([matrix.toarray(), np.ones((lengths.sum(), 1))])
    )
    np.testing.assert_array_equal(kept.with_constant().matrix().toarray(), with_constant.matrix().toarray())
    one, other = (chain_problem(features, tags, 3, lengths=lengths) for features in (ones, kept))
    for solver in (BCFW(), BCFW.plain(), OneSlack(cache=3), Subgradient(), SoftBCFW(), ExponentiatedGradient(), SMO()):
        found, expected = (solver.solve(problem, 5.0, tol=1e-3, max_passes=20) for problem in (one, other))
        np.testing.assert_array_equal(found.weights, expected.weights)
        assert found.dual == expected.dual


@pytest.mark.parametrize("loss", ["hamming", "fraction", "count"])
def test_costs_stand_for_tables_of_losses(loss, monkeypatch):
    """Large chains have a cost a position where small ones have the loss of each state: nothing else differs, to the bit."""
    rng = np.random.default_rng(5)
    lengths = rng.integers(1, 6, 12)
    rows, tags = Features(rng.normal(size=(lengths.sum(), 3))), rng.integers(0, 2, lengths.sum())
    build = functools.partial(chain_problem, rows, tags, 2, loss=loss, lengths=lengths)
    tables = build()
    monkeypatch.setattr(chains, "_LARGE", 0)
    costs = build()
    assert len(costs.arrays.losses) == 0
    assert len(costs.arrays.costs) == len(tags)
    factor, some = rng.random(len(tags)), rng.permutation(12)[:5]
    w, labels = rng.normal(size=costs.n_weights), rng.integers(0, 2, len(tags)).astype(np.int32)
    for change in (
        lambda p: p,
        lambda p: p.take(some),
        lambda p: p.slice(3, 7),
        lambda p: p.with_costs(factor),
        lambda p: p.without_losses(),
    ):
        one, other = change(costs), change(tables)
        np.testing.assert_array_equal(one.with_loss_tables().arrays.losses, other.arrays.losses)
        for found, expected in zip(one.scores(w, True), other.scores(w, True), strict=True):
            np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(
            one.labeling_losses(labels[: len(one.labels)]), other.labeling_losses(labels[: len(one.labels)])
        )
        np.testing.assert_array_equal(one.worst_losses(), other.worst_losses())
    engines = {"bcfw": ("trees", "graph_cut", "exhaustive", "linear_program"), "subgradient": ("trees", "graph_cut")}
    for name, kind in SOLVERS.items():
        for engine in engines.get(name, ("auto",)):
            solver = kind() if engine == "auto" else kind(inference=engine)
            found, expected = (solver.solve(problem, 5.0, tol=1e-3, max_passes=10) for problem in (costs, tables))
            np.testing.assert_array_equal(found.weights, expected.weights, err_msg=name)
            assert (found.primal, found.dual) == (expected.primal, expected.dual)
    slack = OneSlack(rescaling="slack")
    found, expected = (slack.solve(problem, 5.0, tol=1e-3, max_passes=10) for problem in (costs, tables))
    np.testing.assert_array_equal(found.weights, expected.weights)

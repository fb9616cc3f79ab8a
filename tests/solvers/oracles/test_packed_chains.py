"""Packed chains against enumeration and the oracle of all chains, and their steps of gradient descent written out."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from maxmargin.jit import kernel
from maxmargin.problems.chains import chain_problem
from maxmargin.problems.features import Features
from maxmargin.solvers.oracles import packed_chains
from maxmargin.solvers.oracles.exp_oracle import FactorGraphExpOracle, exp_oracle_of
from maxmargin.solvers.oracles.sentences import exponentials
from reference.enumerated_program import planes


def sentences(seed=0, n=9, tags=3, forbidden=False, boundary=True, ones=False, columns=7, longest=5):
    """Chains of sparse rows, some of them empty."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, longest + 1, n)
    dense = rng.normal(size=(lengths.sum(), columns)) * (rng.random((lengths.sum(), columns)) < 0.4)
    rows = sp.csr_array(np.where(dense, 1.0, 0.0) if ones else dense)
    labels = [rng.integers(0, tags, length) for length in lengths]
    never = None
    if forbidden:
        never = rng.random((tags, tags)) < 0.3
        for own in labels:
            never[own[:-1], own[1:]] = False
    return chain_problem(
        Features(rows), labels, tags, boundary, never, lengths=lengths, sample_weight=rng.random(n) + 0.5
    )


def both(problem, loss_augmented=False):
    oracle = exp_oracle_of(problem, loss_augmented=loss_augmented)
    return oracle, oracle.packed()


@pytest.mark.parametrize("tags", [1, 2, 3, 8, 9])
@pytest.mark.parametrize("forbidden", [False, True])
@pytest.mark.parametrize("losses", [False, True])
def test_expectations_are_those_of_all_chains(tags, forbidden, losses):
    for seed, scale in ((0, 0.5), (1, 3.0), (2, 100.0)):
        problem = sentences(seed, tags=tags, forbidden=forbidden, boundary=bool(seed % 2), ones=seed == 1)
        oracle, packed = both(problem, losses)
        w = scale * np.random.default_rng(seed).normal(size=problem.n_weights)
        expected = oracle.mean(w, 1.0, 1)
        psi, values = packed.mean(packed.packed(w), 1)
        np.testing.assert_allclose(values, expected.values, rtol=1e-12, atol=1e-12 * scale)
        np.testing.assert_allclose(packed.flat(psi) / problem.n_examples, expected.psi, rtol=1e-11, atol=1e-12)
        # What fills up the states stays 0.
        assert np.count_nonzero(packed.split(psi)[0][:, tags:]) == 0


@pytest.mark.parametrize("scale", [0.5, 300.0])
def test_expectations_are_those_of_enumeration(scale):
    problem = sentences(3, longest=4)
    _, packed = both(problem, True)
    w = scale * np.random.default_rng(0).normal(size=problem.n_weights)
    psi, values = packed.mean(packed.packed(w), 1)
    total = np.zeros(problem.n_weights)
    for m, found in enumerate(planes(problem)):
        slopes = np.array([ell - plane @ w for plane, ell in found])
        mass = np.exp(slopes - slopes.max())
        np.testing.assert_allclose(values[m], slopes.max() + np.log(mass.sum()), rtol=1e-12)
        total += problem.arrays.weight[m] * (mass / mass.sum()) @ np.array([plane for plane, _ in found])
    np.testing.assert_allclose(packed.flat(psi), total, rtol=1e-10, atol=1e-12)


def test_weights_go_there_and_back():
    problem = sentences(0, tags=5)
    _, packed = both(problem)
    w = np.random.default_rng(0).normal(size=problem.n_weights)
    there = packed.packed(w)
    np.testing.assert_array_equal(packed.flat(there), w)
    assert np.sum(there**2) == pytest.approx(np.sum(w**2), rel=1e-14)


def test_threads_do_not_change_the_bits():
    problem = sentences(0, n=60, tags=4, columns=3)
    oracle, packed = both(problem)
    assert len(oracle.shards) > 1
    w = packed.packed(np.random.default_rng(0).normal(size=problem.n_weights))
    psi, values = (one.copy() for one in packed.mean(w, 1))
    again, same = packed.mean(w, 3)
    np.testing.assert_array_equal(again, psi)
    np.testing.assert_array_equal(same, values)


@pytest.mark.parametrize("scale", [0.5, 200.0])
def test_steps_of_gradient_descent(scale):
    problem = sentences(4, tags=3, forbidden=True)
    lam, eta, begun = 0.1, 0.3, 5
    w = scale * np.random.default_rng(1).normal(size=problem.n_weights)
    _, packed = both(problem)
    order = np.array([4, 0, 8, 4])
    changed, total = packed.packed(w), 0.0
    found = packed.descend(changed, order, eta, lam, begun)
    for k, m in enumerate(order):
        weight, alone = problem.arrays.weight[m], problem.take(np.array([m])).with_weights(None)
        one = FactorGraphExpOracle(alone, "auto", False).mean(w, 1.0, 1)
        rate = eta / (1.0 + lam * eta * (begun + k))
        total += weight * one.values[0]
        w = w - rate * (lam * w - weight * one.psi)
    assert found == pytest.approx(total, rel=1e-10)
    np.testing.assert_allclose(packed.flat(changed), w, rtol=1e-9, atol=1e-10 * scale)


def test_the_curvature_is_summed_with_the_marginals_before_each_step():
    problem = sentences(5, tags=3)
    _, packed = both(problem)
    w = np.random.default_rng(2).normal(size=problem.n_weights)
    curvature = np.zeros(packed.n_weights)
    packed.descend(packed.packed(w), np.arange(problem.n_examples), 0.0, 0.1, 0, curvature)
    a = problem.variable_features.arrays
    rows = sp.csr_array((a.data, a.indices, a.indptr), problem.variable_features.shape).toarray()
    plain = problem.without_losses()
    marginals = exp_oracle_of(plain).engine.marginals(plain, plain.scores_of(plain.working_weights(w), False)).variables
    p, owner = (
        marginals.reshape(-1, 3),
        np.repeat(np.arange(problem.n_examples), np.diff(problem.arrays.examples.variables)),
    )
    size = np.abs(rows).sum(axis=1) * problem.arrays.weight[owner]
    expected = np.abs(rows).T @ (size[:, None] * p * (1.0 - p))
    np.testing.assert_allclose(packed.split(curvature)[0][:, :3], expected, rtol=1e-9, atol=1e-12)
    scales = packed.scales(curvature, 0.1)
    assert (scales <= 1.0 / np.sqrt(0.1) * (1 + 1e-6)).all()
    assert (scales > 0.0).all()


def test_the_rate_is_0_where_nothing_can_be_learned():
    # No features, no boundary, and one tag.
    rows = sp.csr_array((6, 2))
    problem = chain_problem(Features(rows), [np.zeros(3, int)] * 2, 1, False, lengths=[3, 3])
    _, packed = both(problem)
    assert packed is not None
    assert packed.rate(0.1, np.arange(2))[0] == 0.0


def test_the_rate_does_not_depend_on_the_units_of_the_features(monkeypatch):
    monkeypatch.setattr(packed_chains, "_SAMPLE", 40)
    rng = np.random.default_rng(0)
    labels = [rng.integers(0, 3, 4) for _ in range(40)]
    rows = np.eye(3)[np.concatenate(labels)] + rng.normal(size=(160, 3)) * (rng.random((160, 3)) < 0.5)
    found = []
    for unit in (1.0, 1024.0):
        problem = chain_problem(Features(sp.csr_array(unit * rows)), labels, 3, False, lengths=[4] * 40)
        found.append(both(problem)[1].rate(1e-9, np.arange(40))[0] * unit**2)
    assert found[0] > 0.0
    # Transitions have a unit of their own.
    assert 0.2 < found[0] / found[1] < 5.0


def test_a_rate_far_below_the_first_guess_is_found():
    # Features that say nothing beside a transition that is always the same, in sequences that are long: steps add up.
    rng = np.random.default_rng(0)
    labels = [np.arange(400) % 2 for _ in range(5)]
    problem = chain_problem(
        Features(sp.csr_array(rng.normal(size=(2000, 1)) * 0.1)), labels, 2, False, lengths=[400] * 5
    )
    _, packed = both(problem)
    found, visited = packed.rate(1e-3, np.arange(5))
    w = np.zeros(packed.n_weights)
    assert found > 0.0
    assert packed.descend(w, np.arange(5), found, 1e-3, 0) < 5 * 400 * np.log(2.0)
    assert visited % 5 == 0


def test_others_are_not_packed():
    rng = np.random.default_rng(0)
    rows = [rng.normal(size=(3, 2)) for _ in range(4)]
    assert both(chain_problem(rows, [np.array([0, 1, 0])] * 4, 2))[1] is None


def test_exponentials():
    scores = np.concatenate([np.linspace(-137.0, 0.0, 999), [-np.inf]])[:, None] * np.ones(8)
    power = np.zeros(8)
    out = np.empty((1000, 8))
    exponentials_of(scores, out, power, power.view(np.int64))
    np.testing.assert_allclose(out, np.exp(scores), rtol=5e-16)
    assert (out[-1] == 0.0).all()


@kernel
def exponentials_of(scores, out, power, bits):
    for t in range(len(scores)):
        exponentials(scores[t], 0.0, out[t], power, bits)

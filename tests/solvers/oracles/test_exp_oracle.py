"""The exp-oracle against expectations over all labelings, written out."""

from __future__ import annotations

import numpy as np
import pytest

from maxmargin.errors import OptionError
from maxmargin.problems import graph_problem
from maxmargin.problems.chains import chain_problem
from maxmargin.problems.factor_graphs import FactorGraphs
from maxmargin.problems.features import Features, KernelFeatures
from maxmargin.problems.multi_class import multi_class_problem
from maxmargin.problems.python_problem import PythonProblem
from maxmargin.problems.templates import Template
from maxmargin.solvers.oracles.exp_oracle import HOT, FactorGraphExpOracle, exp_oracle_of
from reference.enumerated_program import planes
from reference.random_problems import random_problem

TEMPERATURES = (10.0, 1.0, 0.1, 0.01)


def expected(problem, w, temperature):
    """Means of psi and ell and all values, by enumeration."""
    psi, ell, values = np.zeros(problem.n_weights), 0.0, []
    for found, weight in zip(planes(problem), problem.arrays.weight, strict=True):
        features, losses = np.array([one for one, _ in found]), np.array([one for _, one in found])
        slope = losses - features @ w
        mass = np.exp((slope - slope.max()) / temperature)
        values.append(slope.max() + temperature * np.log(mass.sum()))
        psi += weight * mass @ features / mass.sum()
        ell += weight * mass @ losses / mass.sum()
    return psi / problem.n_examples, ell / problem.n_examples, np.array(values)


def check(oracle, problem, w, temperature):
    found, (psi, ell, values) = oracle.mean(w, temperature, 1), expected(problem, w, temperature)
    np.testing.assert_allclose(found.psi, psi, rtol=0, atol=1e-10)
    assert found.ell == pytest.approx(ell, abs=1e-10)
    np.testing.assert_allclose(found.values, values, rtol=1e-12, atol=1e-10)


def chains(seed=0, n=7, tags=3, forbidden=False, boundary=True, features=3, longest=6):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, longest, n)
    mask, labels = np.zeros((tags, tags), bool), [rng.integers(0, tags, t) for t in lengths]
    if forbidden:
        # The last tag may only follow itself and the first.
        mask[1:-1, -1] = True
        for one in labels:
            for t in range(1, len(one)):
                while mask[one[t - 1], one[t]]:
                    one[t] = rng.integers(0, tags)
    return chain_problem(
        [rng.normal(size=(t, features)) for t in lengths],
        labels,
        tags,
        boundary,
        mask,
        sample_weight=rng.random(n) + 0.5,
    )


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("kind", ["forest", "loopy"])
def test_expectations_are_those_of_enumeration(kind, temperature):
    for seed in range(12):
        rng = np.random.default_rng(seed)
        problem = random_problem(rng, kind=kind, n_examples=4, forbidden=bool(seed % 2), sparse=bool(seed % 3))
        oracle = exp_oracle_of(problem)
        assert oracle.certificate == "exact"
        check(oracle, problem, rng.normal(size=problem.n_weights), temperature)


@pytest.mark.parametrize("temperature", [*TEMPERATURES, 1e-3, HOT])
@pytest.mark.parametrize("forbidden", [False, True])
def test_chains_in_scaled_numbers(temperature, forbidden):
    for seed in range(6):
        problem = chains(seed, tags=2 + seed % 3, forbidden=forbidden, boundary=bool(seed % 2))
        oracle = exp_oracle_of(problem)
        assert oracle.chain is not None
        w = np.random.default_rng(seed).normal(size=problem.n_weights)
        if temperature == HOT:
            # Every labeling counts the same: the log partition function counts them.
            counts = np.array([len(one) for one in planes(problem)])
            np.testing.assert_allclose(oracle.mean(w, HOT, 1).values / HOT, np.log(counts), rtol=1e-12, atol=1e-15)
            np.testing.assert_allclose(oracle.mean(w, HOT, 1).psi, expected(problem, w, HOT)[0], atol=1e-12)
        else:
            check(oracle, problem, w, temperature)


@pytest.mark.parametrize("scale", [1.0, 40.0])
def test_chains_relative_to_the_best_way_on(scale):
    for seed in range(3):
        problem = chains(seed, tags=2 + seed % 3, forbidden=bool(seed % 2))
        w = scale * np.random.default_rng(seed).normal(size=problem.n_weights)
        for temperature in (*TEMPERATURES, 1e-3):
            check(exp_oracle_of(problem), problem, w, temperature)


def test_one_transition_that_is_far_too_small_for_scaled_numbers():
    # Everything else stays as warm as it was: every other transition is kept.
    problem = chains(0, tags=3, boundary=False)
    w = np.random.default_rng(0).normal(size=problem.n_weights)
    for cost in (100.0, 200.0, 1e4):
        w[-1] = -cost
        for temperature in (1.0, 0.5, 3.0):
            check(exp_oracle_of(problem), problem, w, temperature)


def test_states_that_are_hard_to_reach_but_decide():
    # Tag 2 is reached only over tag 1, which the first words almost exclude; the last word allows tag 2 alone.
    forbidden = np.array([[False, False, True], [True, False, False], [True, True, False]])
    problem = chain_problem([np.eye(6)], [np.array([0, 0, 0, 1, 2, 2])], 3, False, forbidden)
    for cost in (10.0, 30.0, 100.0, 300.0, 3000.0):
        w = np.zeros((3, 6))
        w[0, :3], w[1, 3], w[2, 5] = cost, -cost, 2 * cost
        flat = np.concatenate([w.ravel(), np.zeros(9)])
        oracle = exp_oracle_of(problem)
        found, (psi, ell, values) = oracle.mean(flat, 1.0, 1), expected(problem, flat, 1.0)
        np.testing.assert_allclose(found.psi, psi, atol=1e-10)
        np.testing.assert_allclose(found.values, values, rtol=1e-12, atol=1e-10)
        assert found.ell == pytest.approx(ell, abs=1e-10)


def test_chains_and_forests_agree_on_what_enumeration_cannot_do():
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 60, 30)
    rows = [rng.normal(size=(t, 8)) for t in lengths]
    problem = chain_problem(rows, [rng.integers(0, 9, t) for t in lengths], 9, sample_weight=rng.random(30))
    fast, slow = exp_oracle_of(problem), FactorGraphExpOracle(problem)
    slow.chain = None
    for temperature in (10.0, 1.0, 0.2, 0.1, 0.05, 0.01, 1e-4):
        w = rng.normal(size=problem.n_weights)
        one, two = (oracle.mean(w, temperature, 1) for oracle in (fast, slow))
        np.testing.assert_allclose(one.psi, two.psi, rtol=0, atol=1e-11)
        # Differences of scores of hundreds, some of which are all but 0.
        np.testing.assert_allclose(one.values, two.values, rtol=1e-12, atol=1e-13)
        assert one.ell == pytest.approx(two.ell, rel=1e-11)


def test_cold_marginals_are_the_best_labelings():
    problem = random_problem(np.random.default_rng(4), kind="forest", n_examples=5)
    w = np.random.default_rng(5).normal(size=problem.n_weights)
    hinges = [max(ell - psi @ w for psi, ell in found) for found in planes(problem)]
    for temperature in (1e-6, 1e-12, 1e-100, 1e-280):
        found = exp_oracle_of(problem).mean(w, temperature, 1)
        np.testing.assert_allclose(found.values, hinges, rtol=1e-12, atol=20 * temperature + 1e-13)
        assert np.isfinite(found.psi).all()


def test_without_the_task_loss_values_are_negative_log_likelihoods():
    for problem in (chains(1), random_problem(np.random.default_rng(2), n_examples=4)):
        w = np.random.default_rng(0).normal(size=problem.n_weights)
        plain = problem.take(np.arange(problem.n_examples))
        plain.arrays = plain.arrays._replace(losses=np.zeros_like(plain.arrays.losses))
        check(exp_oracle_of(problem, loss_augmented=False), plain, w, 1.0)
        # The problem itself is as it was.
        check(exp_oracle_of(problem), problem, w, 1.0)


@pytest.mark.parametrize(
    "make", [lambda: chains(0, n=60, longest=9), lambda: random_problem(np.random.default_rng(0), n_examples=30)]
)
def test_threads_do_not_change_the_bits(make):
    problem = make()
    oracle = exp_oracle_of(problem)
    oracle.shards = [(0, 7), (7, 20), (20, problem.n_examples)]
    w = np.random.default_rng(0).normal(size=problem.n_weights)
    one, two = (oracle.mean(w, 0.3, threads) for threads in (1, 2))
    np.testing.assert_array_equal(one.psi, two.psi)
    np.testing.assert_array_equal(one.values, two.values)
    assert one.ell == two.ell
    whole = exp_oracle_of(problem)
    whole.shards = [(0, problem.n_examples)]
    np.testing.assert_allclose(whole.mean(w, 0.3, 1).psi, one.psi, atol=1e-13)


def test_pieces_of_a_batch_give_the_same(monkeypatch):
    problem = random_problem(np.random.default_rng(1), n_examples=9)
    w = np.random.default_rng(0).normal(size=problem.n_weights)
    whole = exp_oracle_of(problem, "junction_tree").mean(w, 1.0, 1)
    monkeypatch.setattr("maxmargin.solvers.oracles.exp_oracle._ENTRIES", 20)
    pieces = exp_oracle_of(problem, "junction_tree").mean(w, 1.0, 1)
    np.testing.assert_allclose(pieces.psi, whole.psi, atol=1e-13)
    np.testing.assert_array_equal(pieces.values, whole.values)


@pytest.mark.parametrize("boundary", [False, True])
def test_a_linear_kernel_gives_the_coefficients(boundary):
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 6, 8)
    rows, tags = [rng.normal(size=(t, 4)) for t in lengths], [rng.integers(0, 3, t) for t in lengths]
    x = np.concatenate(rows)
    plain = chain_problem(rows, tags, 3, boundary)
    kernel = chain_problem(KernelFeatures(x @ x.T), tags, 3, boundary, lengths=lengths)
    coefficients = rng.normal(size=kernel.n_weights)
    cut = 3 * len(x)
    w = np.concatenate([(coefficients[:cut].reshape(3, -1) @ x).ravel(), coefficients[cut:]])
    for chain in (True, False):
        one, two = exp_oracle_of(plain), exp_oracle_of(kernel)
        if not chain:
            one.chain = two.chain = None
        a, b = one.mean(w, 0.5, 1), two.mean(coefficients, 0.5, 1)
        np.testing.assert_allclose((b.psi[:cut].reshape(3, -1) @ x).ravel(), a.psi[:12], atol=1e-12)
        np.testing.assert_allclose(b.psi[cut:], a.psi[12:], atol=1e-12)
        np.testing.assert_allclose(b.values, a.values, atol=1e-12)
        assert b.ell == pytest.approx(a.ell, abs=1e-13)


def test_the_radius_bounds_all_planes():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6, 3))
    classes = multi_class_problem(X, np.arange(6) % 3, 3)
    assert exp_oracle_of(classes).radius() == pytest.approx(np.sqrt(2) * np.linalg.norm(X, axis=1).max())
    for seed in range(20):
        problem = random_problem(np.random.default_rng(seed), n_examples=4)
        longest = max(np.linalg.norm(psi) for found in planes(problem) for psi, _ in found)
        assert longest <= exp_oracle_of(problem).radius() + 1e-12
    chain = chains(2)
    longest = max(np.linalg.norm(psi) for found in planes(chain) for psi, _ in found)
    assert longest <= exp_oracle_of(chain).radius() <= 3 * longest


def test_chains_with_other_factors_are_forests():
    assert exp_oracle_of(random_problem(np.random.default_rng(1), kind="forest")).chain is None
    problem = chains(1)
    given = FactorGraphs(
        problem.structures, problem.structure_of, problem.variable_templates, problem.factor_templates,
        problem.variable_features, Features.constant(), problem.arrays.examples[:-1].variable_row,
        problem.arrays.examples[:-1].factor_row,
        problem.labels, problem.arrays.losses, None, np.random.default_rng(0).normal(size=problem.example_tables[-1]),
    )  # fmt: skip
    oracle = exp_oracle_of(given)
    assert oracle.chain is None
    check(oracle, given, np.random.default_rng(0).normal(size=given.n_weights), 0.7)


def test_sentences():
    rng = np.random.default_rng(0)
    grid = [(i * 12 + j, i * 12 + j + 1) for i in range(12) for j in range(11)]
    grid += [(i * 12 + j, i * 12 + j + 12) for i in range(11) for j in range(12)]
    wide = graph_problem([(rng.normal(size=(144, 2)), grid, None)], [rng.integers(0, 4, 144)], 4)
    with pytest.raises(OptionError, match=r"cannot be the exp-oracle here\. .*[Ee]xample 0"):
        exp_oracle_of(wide, "junction_tree")
    loopy = exp_oracle_of(wide)
    assert loopy.certificate == "none"
    assert "approximate" in loopy.reason
    chain = exp_oracle_of(chains(0))
    w = np.zeros(chain.n_weights)
    with pytest.raises(OptionError, match="temperature=1e-300 is too low"):
        chain.mean(w, 1e-300, 1)
    with pytest.raises(OptionError, match=r"temperature=0\.0 is not possible"):
        chain.mean(w, 0.0, 1)
    with pytest.raises(OptionError, match="Example 0 has a log partition function of"):
        chain.mean(np.full_like(w, np.nan), 1.0, 1)
    with pytest.raises(OptionError, match=r'A Plain has no marginals .*use "bcfw"'):
        exp_oracle_of(type("Plain", (), {})())
    assert not hasattr(PythonProblem, "exp_oracle")
    with pytest.raises(OptionError, match="has an exp-oracle of its own"):
        exp_oracle_of(type("Own", (), {"exp_oracle": lambda self, loss_augmented: None})(), "trees")
    from maxmargin.problems.structured import cardinality

    one = Features.constant()
    from maxmargin.problems.templates import Structure

    structured = FactorGraphs(
        [Structure([0, 0], [0, 0], [0], [0], [(0, 1)])], [0], [Template([0, 1])], [cardinality(2, [0.0, 1.0, 0.0])], one,
        one, [0], [0], [0, 1],
    )  # fmt: skip
    with pytest.raises(OptionError, match="takes factors with tables only"):
        exp_oracle_of(structured)

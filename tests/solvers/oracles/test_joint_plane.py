"""The joint oracle: planes for all examples and the cache of planes, against all labelings written out."""

from __future__ import annotations

import itertools
import threading

import numpy as np
import pytest
import scipy.sparse as sp

from maxmargin.problems import FactorGraphs, Features, Structure, Template
from maxmargin.problems.chains import chain_problem
from maxmargin.problems.features import KernelBlocks, KernelFeatures
from maxmargin.problems.multi_class import binary_problem, multi_class_problem
from maxmargin.problems.python_problem import Model, PythonProblem
from maxmargin.solvers.oracles.joint_plane import (
    GraphJointOracle,
    JointOracle,
    is_single,
    joint_oracle,
)
from maxmargin.solvers.oracles.max_oracle import oracle_of
from maxmargin.solvers.planes.arena import Arena
from reference.enumerated_program import hinges, planes
from reference.random_problems import random_problem


class Hidden:
    """Factor graphs behind the interface of oracles, so that planes are rows of flat weights."""

    def __init__(self, graphs):
        self.graphs = graphs

    def max_oracle(self, loss_augmented):
        return oracle_of(self.graphs, "exhaustive", loss_augmented)


def problem_of(seed):
    rng = np.random.default_rng(seed)
    options = {"sparse": bool(seed % 4 < 2), "forbidden": bool(seed % 3 == 0)}
    kind = ("loopy", "forest")[seed % 2]
    problem = random_problem(rng, kind=kind, n_examples=int(rng.integers(1, 30)), **options)
    return problem, [rng.normal(size=problem.n_weights) for _ in range(6)]


def oracles(problem):
    return [GraphJointOracle(problem, "exhaustive"), JointOracle(Hidden(problem))]


def working(oracle, flat):
    if isinstance(oracle, GraphJointOracle):
        return np.concatenate([one.ravel() for one in oracle.problem.working_weights(flat)])
    return flat


def flat_psi(oracle, plane):
    dense = np.zeros(oracle.size)
    dense[plane.index] = plane.value
    return oracle.flat(dense)


def best_planes(every, w):
    """For every example the plane of largest slope."""
    return [max(some, key=lambda one: one[1] - w @ one[0]) for some in every]


def mean_of(problem, chosen):
    """The weighted mean of one plane of each example."""
    weight = problem.arrays.weight / problem.n_examples
    return weight @ np.array([psi for psi, _ in chosen]), weight @ np.array([ell for _, ell in chosen])


def test_found_and_recalled_planes():
    """Found: the largest slope. Recalled: the best of what was found, which is below the mean hinge everywhere."""
    for seed in range(8):
        problem, weights = problem_of(seed)
        every = planes(problem)
        for oracle in oracles(problem):
            cache, known = oracle.cache(9), [[(np.zeros(problem.n_weights), 0.0)] for _ in every]
            for now, w in enumerate(weights[:4]):
                plane, cache = oracle.find(working(oracle, w), cache, 1, now)
                chosen = best_planes(every, w)
                psi, ell = mean_of(problem, chosen)
                np.testing.assert_allclose(flat_psi(oracle, plane), psi, atol=1e-9)
                assert plane.ell == pytest.approx(ell, abs=1e-9)
                np.testing.assert_allclose(plane.hinges, hinges(every, w), atol=1e-9)
                assert (np.diff(plane.index) > 0).all()
                for some, one in zip(known, chosen, strict=True):
                    some.append(one)
                for u in weights:
                    plane = oracle.recall(working(oracle, u), cache, 1, now)
                    psi, ell = mean_of(problem, best_planes(known, u))
                    reached = plane.ell - u @ flat_psi(oracle, plane)
                    assert reached == pytest.approx(ell - u @ psi, abs=1e-9)
                    np.testing.assert_allclose(plane.hinges, hinges(known, u), atol=1e-9)
                    for other in weights:
                        mean_hinge = problem.arrays.weight @ hinges(every, other) / problem.n_examples
                        assert plane.ell - other @ flat_psi(oracle, plane) <= mean_hinge + 1e-9


def test_an_arena_without_room_grows():
    for seed in range(12):
        problem, weights = problem_of(seed)
        for oracle in oracles(problem):
            roomy, tiny = oracle.cache(3), Arena.empty(problem.n_examples, 4, 1, len(oracle.shards), products=False)
            if not isinstance(oracle, GraphJointOracle):
                oracle.widest = 1
            for now, w in enumerate(weights):
                u = working(oracle, w)
                (one, roomy), (other, tiny) = (oracle.find(u, cache, 1, now) for cache in (roomy, tiny))
                for a, b in ((one, other), (oracle.recall(-u, roomy, 1, now), oracle.recall(-u, tiny, 1, now))):
                    np.testing.assert_array_equal(a.index, b.index)
                    np.testing.assert_array_equal(a.value, b.value)
                    np.testing.assert_array_equal(a.hinges, b.hinges)
                    assert a.ell == b.ell
            assert tiny.segment[-1] > len(oracle.shards) or not tiny.n_kept
            assert (tiny.filled[:, 0] <= tiny.segment[1:]).all()


def one_example(n_classes=5):
    """One example whose worst class is the one that has the largest weight."""
    return GraphJointOracle(multi_class_problem(np.ones((1, 1)), [0], n_classes), "exhaustive")


def ask_for(oracle, cache, k, now):
    u = np.zeros(oracle.size)
    u[k] = 5.0
    plane, cache = oracle.find(u, cache, 1, now)
    return plane, cache


def classes(cache):
    """The wrong class of each plane that is kept: its entry has the value -1."""
    kept = []
    for a in range(1, cache.n_planes[0]):
        piece = slice(cache.start[a], cache.start[a] + cache.size[a])
        kept.append(int(cache.entry[piece][cache.value[piece] == -1.0][0]))
    return kept


def test_the_plane_least_recently_used_makes_room():
    oracle = one_example()
    cache = oracle.cache(3)
    for now, k in enumerate((1, 2, 3)):
        _, cache = ask_for(oracle, cache, k, now)
    assert classes(cache) == [1, 2, 3]
    # Recalling class 1 makes class 2 the oldest; a plane that is not the best stays as old as it was.
    u = np.zeros(oracle.size)
    u[1] = 5.0
    assert oracle.recall(u, cache, 1, 3).ell == 1.0
    _, cache = ask_for(oracle, cache, 4, 4)
    assert classes(cache) == [1, 4, 3]
    _, cache = ask_for(oracle, cache, 2, 5)
    assert classes(cache) == [1, 4, 2]


def test_equal_planes_are_kept_once():
    oracle = one_example()
    cache = oracle.cache(3)
    for now in range(5):
        _, cache = ask_for(oracle, cache, 1 + now % 2, now)
    assert classes(cache) == [1, 2]
    assert list(cache.used[1:3]) == [4, 3]
    assert cache.filled[0, 0] - cache.segment[0] == 4


def test_a_truth_that_is_best_is_not_kept():
    oracle = one_example()
    plane, cache = ask_for(oracle, oracle.cache(2), 0, 0)
    assert cache.n_planes[0] == 1
    assert (len(plane.index), plane.ell, plane.hinges[0]) == (0, 0.0, 0.0)


@pytest.mark.parametrize("hidden", [False, True])
def test_threads_do_not_change_the_bits(hidden):
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 5, 50)
    graphs = chain_problem([rng.normal(size=(t, 5)) for t in lengths], [rng.integers(0, 3, t) for t in lengths], 3)
    oracle = JointOracle(Hidden(graphs)) if hidden else GraphJointOracle(graphs)
    assert len(oracle.shards) > 1
    caches = [oracle.cache(3), oracle.cache(3)]
    for now in range(5):
        u = rng.normal(size=oracle.size)
        found = []
        for k, threads in enumerate((1, 3)):
            plane, caches[k] = oracle.find(u, caches[k], threads, now)
            found.append((plane, oracle.recall(-u, caches[k], threads, now)))
        for one, other in zip(*found, strict=True):
            np.testing.assert_array_equal(one.index, other.index)
            np.testing.assert_array_equal(one.value, other.value)
            np.testing.assert_array_equal(one.hinges, other.hinges)
            assert one.ell == other.ell
    for name in ("n_planes", "ell", "start", "size", "used", "filled"):
        np.testing.assert_array_equal(*(getattr(cache, name) for cache in caches))


def test_rows_are_the_planes_of_examples():
    for seed in range(12):
        problem, (w, *_) = problem_of(seed)
        for oracle in oracles(problem):
            _, cache = oracle.find(working(oracle, w), oracle.cache(1), 1, 0)
            chosen = np.flatnonzero(cache.n_planes > 1)[::-1].copy()
            found = oracle.rows(cache, chosen)
            best = best_planes(planes(problem), w)
            rows = sp.csr_array((found.value, found.entry, found.start), (len(chosen), oracle.size)).toarray()
            for row, ell, m in zip(rows, found.ell, chosen, strict=True):
                np.testing.assert_allclose(oracle.flat(row), best[m][0], atol=1e-9)
                assert ell == pytest.approx(best[m][1], abs=1e-9)
            for begin, end in itertools.pairwise(found.start):
                assert (np.diff(found.entry[begin:end]) > 0).all()


# ------------------------------------------------------------------------------------------- binary, multi-class


def singles():
    rng = np.random.default_rng(1)
    X, weight = rng.normal(size=(60, 4)), rng.random(60) + 0.5
    cost = rng.random((5, 5)) * 2.0
    np.fill_diagonal(cost, 0.0)
    wide = sp.csr_array(X * (rng.random(X.shape) < 0.5))
    y, two = rng.integers(0, 5, 60), rng.integers(0, 2, 60)
    return {
        "binary": binary_problem(X, two),
        "binary, sparse and weighted": binary_problem(wide, two, sample_weight=weight),
        "binary, with costs": binary_problem(X, two, [[0.0, 3.0], [0.5, 0.0]]),
        "classes": multi_class_problem(X, y, 5),
        "classes, sparse, weighted, with costs": multi_class_problem(wide, y, 5, cost, weight),
        "classes, float32": multi_class_problem(X.astype(np.float32), y, 5),
    }


@pytest.mark.parametrize("name", singles())
@pytest.mark.parametrize("threads", [1, 2])
def test_one_pass_finds_what_the_general_oracle_finds(name, threads):
    problem = singles()[name]
    fast, general = joint_oracle(problem), GraphJointOracle(problem)
    assert fast.single
    fast.keeps, general.single = False, False
    rng = np.random.default_rng(2)
    every = planes(problem)
    for scale in (0.0, 0.1, 1.0, 10.0):
        u = scale * rng.normal(size=fast.size)
        one, same = fast.find(u, fast.cache(1), threads, 0)
        other, _ = general.find(u, general.cache(1), 1, 0)
        assert not same.n_kept
        np.testing.assert_allclose(flat_psi(fast, one), flat_psi(general, other), atol=1e-12)
        np.testing.assert_allclose(one.hinges, other.hinges, atol=1e-12)
        np.testing.assert_allclose(one.hinges, hinges(every, fast.flat(u)), atol=1e-5 if "float32" in name else 1e-9)
        assert one.ell == pytest.approx(other.ell, abs=1e-12)
        # With a cache the planes are kept, one by one.
        fast.keeps = True
        kept, cache = fast.find(u, fast.cache(1), threads, 0)
        fast.keeps = False
        assert (cache.n_planes - 1 == (kept.hinges > 0.0)).all()
        np.testing.assert_allclose(flat_psi(fast, kept), flat_psi(general, other), atol=1e-12)


def test_what_one_pass_does_not_serve():
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(6, 3)), rng.integers(0, 2, 6)

    single = Structure([0], [0])

    def graphs(structures=(single,), template=None, scores=None, features=X, of=(0,) * 6):
        losses = np.where(np.arange(2) == y[:, None], 0.0, 1.0).ravel()
        rows = np.arange(6) if len(features) == 6 else 2 * np.arange(6)
        return FactorGraphs(
            list(structures), list(of), [template or Template([0, 1])], [], Features(features), Features.constant(), rows,
            [0] * 6, y, losses, scores,
        )  # fmt: skip

    assert is_single(graphs())
    others = {
        "the second row": graphs([Structure([0], [1])], features=rng.normal(size=(12, 3))),
        "fixed scores of states": graphs(template=Template([0, 1], [0.0, 2.0])),
        "fixed scores of examples": graphs(scores=rng.normal(size=12)),
        "two structures": graphs([single, Structure([0], [0])], of=(0, 1) * 3),
        "chains": chain_problem([X], [y], 2),
    }
    for name, problem in others.items():
        oracle = joint_oracle(problem)
        assert not oracle.single, name
        u = rng.normal(size=oracle.size)
        plane, _ = oracle.find(u, oracle.cache(1), 1, 0)
        np.testing.assert_allclose(plane.hinges, hinges(planes(problem), oracle.flat(u)), atol=1e-9, err_msg=name)


# ------------------------------------------------------------------------------------------------------ kernels


@pytest.mark.parametrize("blocks", [False, True])
def test_with_a_kernel_planes_are_coefficients(blocks):
    rng = np.random.default_rng(4)
    lengths = rng.integers(1, 5, 12)
    rows, tags = [rng.normal(size=(t, 4)) for t in lengths], [rng.integers(0, 3, t) for t in lengths]
    X = np.concatenate(rows)
    linear = chain_problem(rows, tags, 3)
    features = KernelBlocks(X, lambda one, other: one @ other.T) if blocks else KernelFeatures(X @ X.T)
    plain, kernelised = GraphJointOracle(linear), joint_oracle(chain_problem(features, tags, 3, lengths=lengths))
    assert kernelised.has_images
    A, a_f = rng.normal(size=(len(X), 3)), rng.normal(size=15)
    vector = np.concatenate([A.ravel(), a_f])
    image = kernelised.image(vector)
    np.testing.assert_allclose(image, np.concatenate([(X @ X.T @ A).ravel(), a_f]), atol=1e-10)
    one, _ = plain.find(np.concatenate([(X.T @ A).ravel(), a_f]), plain.cache(1), 1, 0)
    other, _ = kernelised.find(image, kernelised.cache(1), 1, 0)
    dense = np.zeros(kernelised.size)
    dense[other.index] = other.value
    expected = np.zeros(plain.size)
    expected[one.index] = one.value
    coefficients = dense[: A.size].reshape(A.shape)
    np.testing.assert_allclose(np.concatenate([(X.T @ coefficients).ravel(), dense[A.size :]]), expected, atol=1e-10)
    np.testing.assert_allclose(other.hinges, one.hinges, atol=1e-9)
    assert other.ell == pytest.approx(one.ell, abs=1e-12)


# ------------------------------------------------------------------------------------------------------ threads


class Signs(Model):
    """The sign of a number; it takes note of who asks."""

    def __init__(self):
        self.asked_by = set()

    def joint_features(self, x, y):
        return np.array([x * y, float(y)])

    def loss(self, y, y_hat):
        return float(y != y_hat)

    def most_violated(self, x, y, w):
        self.asked_by.add(threading.get_ident())
        return max((-1, 1), key=lambda one: self.loss(y, one) + w @ self.joint_features(x, one))

    def predict(self, x, w):
        return max((-1, 1), key=lambda one: w @ self.joint_features(x, one))


def test_code_of_users_runs_in_one_thread():
    x = np.random.default_rng(0).normal(size=40)
    model = Signs()
    oracle = joint_oracle(PythonProblem(x, np.where(x > 0, 1, -1), model))
    oracle.find(np.ones(2), oracle.cache(2), 4, 0)
    assert model.asked_by == {threading.get_ident()}


def test_engines_that_remember_are_asked_in_order():
    rng = np.random.default_rng(1)
    lengths = rng.integers(1, 4, 30)
    graphs = chain_problem([rng.normal(size=(t, 2)) for t in lengths], [rng.integers(0, 2, t) for t in lengths], 2)
    assert joint_oracle(graphs, "linear_program").sequential
    assert not joint_oracle(graphs, "trees").sequential


def test_scores_of_all_rows_recall_the_same_planes(monkeypatch):
    for seed in range(12):
        problem, _ = problem_of(seed)
        oracle, rng, found = GraphJointOracle(problem, "exhaustive"), np.random.default_rng(seed), []
        cache = oracle.cache(4)
        for now in range(5):
            _, cache = oracle.find(rng.normal(size=oracle.size), cache, 1, now)
        u = rng.normal(size=oracle.size)
        for most in (0.0, np.inf):
            monkeypatch.setattr("maxmargin.solvers.oracles.joint_plane._MANY", most)
            found.append(oracle.recall(u, cache, 1, 9))
        one, other = found
        np.testing.assert_allclose(one.hinges, other.hinges, rtol=1e-9, atol=1e-12)
        assert np.isclose(one.ell, other.ell)

"""Kernels: a linear kernel trains the linear model, and any kernel the model of its feature map; products tile by tile."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from maxmargin.errors import DataError, OptionError
from maxmargin.problems import Features, graph_problem, label_edges, multi_class_problem, multi_label_problem
from maxmargin.problems import features as module
from maxmargin.problems.chains import chain_problem
from maxmargin.problems.features import KernelBlocks, KernelFeatures, check_semidefinite
from maxmargin.solvers import BCFW, DLPW, SOLVERS, FrankWolfe, Perceptron, SoftBCFW, Subgradient
from maxmargin.solvers.core.checkpoint import data_key
from reference.enumerated_program import value


def chains(kernel):
    """The same sequences with rows of features, or with their inner products."""
    rng = np.random.default_rng(3)
    lengths = rng.integers(1, 6, 15)
    rows = [rng.normal(size=(t, 4)) for t in lengths]
    problem = chain_problem(rows, [rng.integers(0, 3, t) for t in lengths], 3)
    if kernel:
        X = np.concatenate(rows)
        problem.variable_features = KernelFeatures(X @ X.T)
    return problem


def labels(kernel):
    rng = np.random.default_rng(4)
    X, Y = rng.normal(size=(20, 3)), rng.integers(0, 2, (20, 4))
    features = KernelFeatures(X @ X.T) if kernel else Features(X)
    return multi_label_problem(features, Y, label_edges("full", Y), 4)


def edges(kernel, nodes=False):
    """Graphs without cycles whose edges have features, or inner products of them; `nodes` too."""
    rng = np.random.default_rng(5)
    graphs, truth = [], []
    for n in rng.integers(2, 6, 10):
        tree = np.array([(int(rng.integers(k)), k) for k in range(1, n)])
        graphs.append((rng.normal(size=(n, 2)), tree, rng.normal(size=(n - 1, 3))))
        truth.append(rng.integers(0, 3, n))
    problem = graph_problem(graphs, truth, 3)
    if kernel:
        Z = problem.factor_features.matrix()
        problem.factor_features = KernelFeatures(Z @ Z.T)
    if kernel and nodes:
        X = problem.variable_features.matrix()
        problem.variable_features = KernelFeatures(X @ X.T)
    return problem


def both(kernel):
    return edges(kernel, nodes=True)


def test_few_of_many_classes_move_the_scores_of_all_rows():
    """Visits that move few of 16 classes write columns, those that move many write rows: the optimum is the linear model's."""
    rng = np.random.default_rng(6)
    X, y = rng.normal(size=(40, 5)), np.arange(40) % 16
    for C in (1.0, 30.0):
        found = [
            solver.solve(multi_class_problem(features, y, 16), C, tol=1e-3)
            for features in (Features(X), KernelFeatures(X @ X.T))
            for solver in (SoftBCFW(), BCFW())
        ]
        for one in found:
            assert one.certificate == "exact"
            assert one.primal - one.dual <= 1e-3
            assert all(one.dual <= other.primal + 1e-9 for other in found)


@pytest.mark.parametrize("make", [chains, labels, edges, both])
def test_a_linear_kernel_takes_the_steps_of_the_linear_model(make):
    plain, kernelised = make(False), make(True)
    one = BCFW.plain().solve(plain, 2.0, tol=0.0, max_passes=12)
    other = BCFW.plain().solve(kernelised, 2.0, tol=0.0, max_passes=12)
    np.testing.assert_allclose(other.history["primal"], one.history["primal"], rtol=1e-8)
    np.testing.assert_allclose(other.history["dual"], one.history["dual"], rtol=1e-8, atol=1e-12)
    linear, dual = plain.scores(one.weights), kernelised.scores(other.weights)
    np.testing.assert_allclose(dual.variables, linear.variables, atol=1e-8)
    np.testing.assert_allclose(dual.factors, linear.factors, atol=1e-8)


# Rounding decides between equal steps, so that runs of these part; their optimum is one.
@pytest.mark.parametrize("solver", [BCFW(), SoftBCFW()], ids=["bcfw", "soft-bcfw"])
@pytest.mark.parametrize("make", [chains, labels, edges, both])
def test_a_linear_kernel_has_the_optimum_of_the_linear_model(solver, make):
    C, tol = 2.0, 1e-5
    plain, kernelised = make(False), make(True)
    one = solver.solve(plain, C, tol=tol, max_passes=20_000)
    other = solver.solve(kernelised, C, tol=tol, max_passes=20_000)
    assert max(one.gap, other.gap) <= tol
    assert one.dual <= other.primal
    assert other.dual <= one.primal
    # P is strongly convex: weights are this near the optimum, and so are scores, for rows of this length.
    apart = 2.0 * np.sqrt(2.0 * tol * C)
    longest = float(np.sqrt(plain.variable_features.arrays.squared_norms.max()))
    linear, dual = plain.scores(one.weights), kernelised.scores(other.weights)
    np.testing.assert_allclose(dual.variables, linear.variables, atol=apart * longest)
    longest = float(np.sqrt(plain.factor_features.arrays.squared_norms.max()))
    np.testing.assert_allclose(dual.factors, linear.factors, atol=apart * longest)


@pytest.mark.parametrize("name", [name for name, one in SOLVERS.items() if one.kernels or one.kernel_blocks])
@pytest.mark.parametrize("make", [edges, both])
def test_every_solver_of_kernels_takes_kernels_on_edges(name, make):
    plain, kernelised = make(False), make(True)
    solver = SOLVERS[name]()
    found = solver.solve(kernelised, 2.0, tol=0.01, max_passes=20_000)
    best = BCFW().solve(plain, 2.0, tol=1e-5, max_passes=20_000)
    assert found.certificate == "exact"
    assert found.gap <= 0.01, found.summary()
    assert found.dual <= best.primal + 1e-9
    assert found.primal >= best.dual - 1e-9
    # The weights of the feature map, written out, have the value that was reported.
    own, of_edges = kernelised.split_weights(found.weights)
    x, z = plain.variable_features.matrix(), plain.factor_features.matrix()
    w = np.concatenate([(own @ x if make is both else own).ravel(), (of_edges @ z).ravel()])
    assert best.dual - 1e-9 <= value(plain, 2.0, w) <= found.primal + 1e-7


def test_tiles_of_a_kernel_on_edges():
    plain, kernelised = edges(False), edges(True)
    kernelised.factor_features = KernelBlocks(plain.factor_features.matrix(), lambda one, other: one @ other.T)
    for name in ("one-slack", "bundle"):
        found = SOLVERS[name]().solve(kernelised, 2.0, tol=1e-3)
        best = BCFW().solve(plain, 2.0, tol=1e-3)
        assert found.dual <= best.primal
        assert best.dual <= found.primal
        assert found.gap <= 1e-3
    with pytest.raises(OptionError):
        BCFW().solve(kernelised, 2.0)


@pytest.mark.parametrize("solver", [DLPW(), FrankWolfe(), Perceptron(), Subgradient()], ids=lambda one: one.name)
def test_solvers_that_need_features_say_so(solver):
    with pytest.raises(OptionError, match=f'The solver "{solver.name}" needs features .a kernel has none'):
        solver.solve(chains(True))
    with pytest.raises(OptionError, match=f'The solver "{solver.name}" needs features .a kernel has none'):
        solver.solve(edges(True))


def test_weights_there_and_back():
    problem = chains(True)
    rng = np.random.default_rng(0)
    flat = rng.normal(size=problem.n_weights)
    w_v, w_f = problem.working_weights(flat)
    np.testing.assert_array_equal(problem.flat_weights(w_v, w_f), flat)
    # The norm of the function that the coefficients stand for.
    A, gram = w_v[len(w_v) // 2 :], problem.variable_features.arrays.gram
    assert problem.inner((w_v, w_f), (w_v, w_f)) == pytest.approx(np.trace(A.T @ gram @ A) + (w_f**2).sum())


@pytest.mark.parametrize(
    ("gram", "words"),
    [
        (np.ones((2, 3)), r"shape \(2, 3\); expected a square matrix"),
        (np.array([[1.0, np.nan], [np.nan, 1.0]]), r"\[0, 1\] is nan"),
        (np.array([[1.0, 0.5], [0.0, 1.0]]), r"not symmetric: \[0, 1\] is 0.5, but \[1, 0\] is 0.0"),
        (np.array([[1.0, 0.0], [0.0, -1.0]]), r"\[1, 1\] is -1.0; a kernel of a row with itself is not negative"),
    ],
)
def test_bad_matrices(gram, words):
    with pytest.raises(DataError, match=words):
        KernelFeatures(gram)


# ------------------------------------------------------------------------------------------------- tile by tile


def products(X, Y):
    found = X @ Y.T
    return found.toarray() if sp.issparse(found) else found


@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("side", [1, 3, 7, 23, 1000])
def test_products_with_a_matrix_that_is_never_whole(side, convert):
    rng = np.random.default_rng(0)
    X, A = rng.normal(size=(23, 4)), rng.normal(size=(23, 5))
    shapes = []

    def kernel(one, other):
        shapes.append((one.shape[0], other.shape[0]))
        return products(one, other)

    room = 8 * 16 * side**2
    blocks = KernelBlocks(convert(X), kernel, block_bytes=room)
    expected = np.array([[sum(X[i] @ X[j] * A[j, b] for j in range(23)) for b in range(5)] for i in range(23)])
    found = blocks.times(A)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(KernelFeatures(X @ X.T).times(A), expected, rtol=1e-12, atol=1e-12)
    # Few columns of the whole are asked for once, whatever the size of tiles.
    tiles = [shape for shape in shapes if shape != (23, 4)]
    assert max(max(shape) for shape in tiles) <= side
    assert sum(tile.nbytes for tile in blocks._kept.values()) <= room
    assert np.array_equal(blocks.times(A), found)
    np.testing.assert_allclose(blocks.arrays.squared_norms, (X**2).sum(axis=1))


def test_tiles_that_fit_are_kept_and_half_of_the_others_computed():
    X, calls = np.random.default_rng(0).normal(size=(40, 2)), []

    def kernel(one, other):
        calls.append(len(one) * len(other))
        return products(one, other)

    small = KernelBlocks(X, kernel, block_bytes=8 * 16 * 10**2)
    for expected in (6, 0):
        calls.clear()
        small.times(X)
        assert len(calls) == expected  # the other 4 of 10 tiles are those of the diagonal, there from the beginning
    large = KernelBlocks(X, kernel, block_bytes=8 * 16 * 2**2)
    large.times(X)
    calls.clear()
    large.times(X)
    assert len(calls) == 20 * 21 // 2 - 14
    assert large.nbytes < 8 * 40 * 40


def test_what_needs_the_whole_matrix_refuses():
    problem = chains(True)
    X = np.random.default_rng(0).normal(size=(problem.variable_features.shape[0], 4))
    blocks = problem.variable_features = KernelBlocks(X, products, "the matrix of the kernel products")
    assert blocks.arrays.gram.shape == (0, 0)
    sentence = 'The matrix of the kernel products is not held whole, .* use "one-slack" or "bundle"'
    for ask in (blocks.matrix, problem.working_weights, lambda: problem.scores(np.zeros(problem.n_weights))):
        with pytest.raises(OptionError, match=sentence):
            ask()


def test_other_rows_or_another_kernel_are_other_data():
    X = np.random.default_rng(0).normal(size=(30, 4))
    other = X.copy()
    other[17, 2] += 1e-3

    def key(rows, scale=1.0):
        problem = multi_label_problem(Features(X), np.ones((30, 2)), np.array([[0, 1]]), 2)
        problem.variable_features = KernelBlocks(
            rows, lambda one, two: np.exp(-scale * ((one[:, None] - two) ** 2).sum(2))
        )
        return data_key(problem)

    assert key(X) == key(X.copy())
    assert len({key(X), key(other), key(X, 1.1)}) == 3


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda K: K.__setitem__((slice(20, 22), slice(2, 4)), np.inf), r"K\[2, 20\] is inf"),
        (lambda K: K.__setitem__((21, 22), 9.0), r"K is not symmetric: \[21, 22\] is 9.0"),
        (
            lambda K: K.__setitem__((20, 20), -1.0),
            r"K\[20, 20\] is -1.0; a kernel of a row with itself is not negative",
        ),
    ],
)
def test_bad_tiles_are_named_by_their_rows(change, words):
    K = np.eye(23)
    change(K)
    K[2:4, 20:22] = K[20:22, 2:4].T
    rows = np.arange(23.0)[:, None]

    def kernel(one, other):
        return K[np.ix_(one[:, 0].astype(int), other[:, 0].astype(int))]

    with pytest.raises(DataError, match=words):
        KernelBlocks(rows, kernel, "K", block_bytes=8 * 16 * 7**2).times(np.ones((23, 1)))


# ------------------------------------------------------------------------------------------------- positive semi-definite


def symmetric(values, seed=0):
    """A matrix with these eigenvalues."""
    Q = np.linalg.qr(np.random.default_rng(seed).normal(size=(len(values), len(values))))[0]
    K = (Q * values) @ Q.T
    return (K + K.T) / 2


@pytest.mark.parametrize("n", [1, 2, 5, 60, 200])
def test_matrices_without_a_negative_eigenvalue_pass(n):
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, 3))
    for K in (
        X @ X.T,
        np.zeros((n, n)),
        np.ones((n, n)),
        np.exp(-((X[:, None] - X) ** 2).sum(2)),
        symmetric(np.arange(n)),
    ):
        check_semidefinite(K, "K")
        check_semidefinite(1e12 * K, "K")
    check_semidefinite(symmetric(np.append(np.ones(n), -0.9e-8)), "K")


@pytest.mark.parametrize("decided", [4096, 0])
@pytest.mark.parametrize("least", [-2e-7, -1e-3, -2.0])
def test_the_most_negative_eigenvalue_is_named(decided, least, monkeypatch):
    monkeypatch.setattr(module, "_DECIDED", decided)
    K = symmetric(np.concatenate([[least, 0.5 * least], np.linspace(0.0, 10.0, 40)]))
    with pytest.raises(
        DataError, match=r"K is not positive semi-definite: its most negative eigenvalue is (.*), and"
    ) as raised:
        check_semidefinite(K, "K")
    named = float(str(raised.value).split("eigenvalue is ")[1].split(",")[0])
    assert named == pytest.approx(np.linalg.eigvalsh(K)[0], rel=1e-5)


def test_many_rows_are_searched_for_an_eigenvalue_that_is_clearly_negative(monkeypatch):
    monkeypatch.setattr(module, "_DECIDED", 0)
    K = symmetric(np.append(np.random.default_rng(0).uniform(0.0, 1.0, 400), -0.5))
    with pytest.raises(DataError, match=r"most negative eigenvalue is -0\.5"):
        check_semidefinite(K, "K")

"""The quadratic program over the simplex, against Clarabel, enumeration of supports, and its own certificate."""

from __future__ import annotations

import itertools

import clarabel
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from maxmargin.solvers.planes.simplex_qp import solve_simplex_qp

EPS = 2.0**-52
#: Gap that rounding may leave, in rounding errors of the largest number that goes into a slope: 2e-13 of it. Most programs end
#: below 1 of them; the worst of 300 programs of each family left 360, where planes were many and their space had few dimensions.
FLOOR = 1000.0
FAMILIES = (
    "plain",
    "decaying",
    "low rank",
    "duplicates",
    "near duplicates",
    "uneven",
    "far away",
    "signs",
    "converging",
)


def family(name, rng):
    """A Gram matrix of some kind with the plane of the truth in row 0, and constants."""
    n, d = int(rng.integers(2, 80)), int(rng.integers(1, 100))
    psi = rng.normal(size=(n, d))
    if name == "decaying":
        psi *= 10.0 ** -np.linspace(0, rng.uniform(5, 12), d)
    elif name == "low rank":
        psi = psi[:, : 1 + d // 20]
    elif name == "duplicates":
        psi = psi[rng.integers(0, 1 + n // 4, n)]
    elif name == "near duplicates":
        psi = psi[rng.integers(0, 1 + n // 4, n)] + 10.0 ** rng.uniform(-12, -4) * rng.normal(size=(n, d))
    elif name == "uneven":
        psi *= 10.0 ** rng.uniform(-1.5, 1.5, size=(n, 1))
    elif name == "far away":
        psi += 1e4 * rng.normal(size=d)
    elif name == "signs":
        psi = rng.integers(-1, 2, size=(n, d)).astype(float)
    elif name == "converging":
        psi = rng.normal(size=d) + psi * 10.0 ** -np.linspace(0, 9, n)[:, None]
    psi[0] = 0.0
    w = rng.normal(size=psi.shape[1])
    kinds = (rng.random(n), np.maximum(0.0, psi @ w + 0.01 * rng.random(n)), np.ones(n), psi @ w)
    ell = kinds[rng.integers(4)].copy()
    ell[0] = 0.0
    gram = np.triu(psi @ psi.T)
    return gram + np.triu(gram, 1).T, ell


def strength(gram, ell, rng):
    """A kappa for which neither part of f is everything."""
    return max(abs(ell).max(), 1e-3) / max(gram.diagonal().mean(), 1e-12) * 10.0 ** rng.uniform(-2, 4)


def start(n, rng=None):
    alpha = np.zeros(n)
    alpha[0] = 1.0
    if rng is not None:
        alpha += rng.random(n) * (rng.random(n) < 0.3)
    return alpha / alpha.sum()


def value(gram, ell, kappa, alpha):
    """f and its gap, in longer numbers than the solver's."""
    G, x = gram.astype(np.longdouble), alpha.astype(np.longdouble)
    x /= x.sum()
    v = ell - kappa * (G @ x)
    return float(x @ (ell + v)) / 2.0, float(v.max() - x @ v)


def scale(gram, ell, kappa, alpha):
    """The largest number that goes into a slope."""
    return abs(ell).max() + kappa * (abs(gram) @ alpha).max()


def check(gram, ell, kappa, alpha, gap, tol=0.0):
    """Feasible, and as good as the gap says, which is as small as was asked for or as rounding allows."""
    assert np.isfinite(alpha).all()
    assert (alpha >= 0.0).all()
    assert abs(alpha.sum() - 1.0) <= len(alpha) * EPS
    rounding = EPS * scale(gram, ell, kappa, alpha)
    found, true_gap = value(gram, ell, kappa, alpha)
    assert gap == pytest.approx(true_gap, rel=0, abs=len(alpha) * rounding)
    assert gap <= max(tol, FLOOR * rounding)
    return found


def optimum(gram, ell, kappa):
    n, options = len(ell), clarabel.DefaultSettings()
    options.verbose = False
    options.tol_gap_abs = options.tol_gap_rel = options.tol_feas = 1e-10
    rows = sp.vstack([np.ones((1, n)), -sp.eye(n)]).tocsc()
    cones = [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(n)]
    hessian = sp.csc_matrix(np.triu(kappa * gram))
    found = clarabel.DefaultSolver(hessian, -ell, rows, np.eye(1, n + 1)[0], cones, options).solve()
    assert str(found.status) in ("Solved", "AlmostSolved"), found.status
    return -found.obj_val


@pytest.mark.parametrize("name", FAMILIES)
def test_values_are_those_of_clarabel(name):
    rng = np.random.default_rng(FAMILIES.index(name))
    for _ in range(15):
        gram, ell = family(name, rng)
        kappa = strength(gram, ell, rng)
        alpha = start(len(ell))
        gap = solve_simplex_qp(gram, len(ell), ell, kappa, alpha, 0.0)
        found = check(gram, ell, kappa, alpha, gap)
        best = optimum(gram, ell, kappa)
        assert found == pytest.approx(best, rel=1e-7, abs=1e-7 * max(1.0, abs(ell).max()))


@pytest.mark.parametrize("name", FAMILIES)
def test_the_gap_closes_as_far_as_rounding_allows(name):
    rng = np.random.default_rng(100 + FAMILIES.index(name))
    for _ in range(100):
        gram, ell = family(name, rng)
        kappa = strength(gram, ell, rng) if rng.random() < 0.5 else 10.0 ** rng.uniform(-8, 8)
        alpha = start(len(ell), rng)
        gap = solve_simplex_qp(gram, len(ell), ell, kappa, alpha, 0.0)
        check(gram, ell, kappa, alpha, gap)


def test_norms_over_nine_orders_of_magnitude():
    # What is large changes on the way, from planes of large norm to those that keep their mass.
    rng = np.random.default_rng(3)
    for number in range(200):
        gram, ell = family("plain", rng)
        size = 10.0 ** rng.uniform(-6, 3, len(ell))
        gram *= size[:, None] * size
        ell = np.append(0.0, rng.random(len(ell) - 1))
        alpha = start(len(ell), rng if number % 2 else None)
        kappa = 10.0 ** rng.uniform(-3, 16) / gram.diagonal().mean()
        gap = solve_simplex_qp(gram, len(ell), ell, kappa, alpha, 0.0)
        check(gram, ell, kappa, alpha, gap)


def by_supports(gram, ell, kappa):
    """The best stationary point of all supports: some optimum has one of affinely independent planes."""
    n, best = len(ell), -np.inf
    for size in range(1, n + 1):
        for chosen in itertools.combinations(range(n), size):
            part = np.ix_(chosen, chosen)
            system = np.block([[kappa * gram[part], np.ones((size, 1))], [np.ones((1, size)), np.zeros((1, 1))]])
            x = np.linalg.lstsq(system, np.append(ell[list(chosen)], 1.0), rcond=None)[0][:size]
            if x.min() >= -1e-12 and abs(x.sum() - 1.0) < 1e-9:
                best = max(best, ell[list(chosen)] @ x - kappa / 2.0 * x @ gram[part] @ x)
    return best


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.integers(1, 5).flatmap(
        lambda n: st.tuples(
            arrays(np.float64, (n, 3), elements=st.integers(-3, 3)),
            arrays(np.float64, n, elements=st.integers(-4, 4)),
            arrays(np.float64, n, elements=st.sampled_from([0.0, 1.0, 2.0])),
        )
    ),
    st.sampled_from([0.0, 0.01, 1.0, 100.0]),
)
def test_all_supports(planes, kappa):
    psi, ell, masses = planes
    masses[0] += masses.sum() == 0.0
    alpha, gram = masses / masses.sum(), psi @ psi.T
    gap = solve_simplex_qp(gram, len(ell), ell, kappa, alpha, 0.0)
    found = check(gram, ell, kappa, alpha, gap)
    assert found == pytest.approx(by_supports(gram, ell, kappa), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("exponent", [-28, 28, -300, 300])
def test_any_scale_gives_the_same_masses(exponent):
    # 2^28 is some 3e8; an even power keeps the bits of square roots, too. Both parts of f scaled, then G at the cost of kappa.
    rng, factor = np.random.default_rng(5), 2.0**exponent
    for name in FAMILIES:
        gram, ell = family(name, rng)
        kappa = strength(gram, ell, rng)
        tol = 1e-10 * abs(ell).max()
        plain, scaled, moved = start(len(ell)), start(len(ell)), start(len(ell))
        gap = solve_simplex_qp(gram, len(ell), ell, kappa, plain, tol)
        assert solve_simplex_qp(factor * gram, len(ell), factor * ell, kappa, scaled, factor * tol) == factor * gap
        assert solve_simplex_qp(gram / factor, len(ell), ell, factor * kappa, moved, tol) == gap
        np.testing.assert_array_equal(scaled, plain)
        np.testing.assert_array_equal(moved, plain)


def test_planes_that_come_one_by_one():
    # A cutting-plane loop on max_k (b_k - A_k . w) + 1/(2 kappa) |w|^2: more planes never lower f, whose limit is the optimum.
    rng = np.random.default_rng(6)
    A, b, kappa = rng.normal(size=(400, 15)), rng.random(400), 30.0
    room = 200
    psi, gram = np.zeros((room, 15)), np.full((room, room), np.nan)
    ell, alpha = np.full(room, np.nan), np.full(room, np.nan)
    ell[0], alpha[0], gram[0, 0] = 0.0, 1.0, 0.0
    n, before, primal = 1, 0.0, np.inf
    while True:
        w = kappa * alpha[:n] @ psi[:n]
        slopes = b - A @ w
        new = int(np.argmax(slopes))
        primal = min(primal, max(slopes[new], 0.0) + w @ w / (2.0 * kappa))
        if primal - before <= 1e-9:
            break
        psi[n], ell[n], alpha[n] = A[new], b[new], 0.0
        gram[n, : n + 1] = gram[: n + 1, n] = psi[: n + 1] @ A[new]
        n += 1
        gap = solve_simplex_qp(gram, n, ell, kappa, alpha, 1e-12)
        found = check(gram[:n, :n], ell[:n], kappa, alpha[:n], gap, 1e-12)
        assert found >= before - 1e-12
        before = found
    assert np.isnan(gram[n:]).all()
    assert np.isnan(alpha[n:]).all()
    whole, constants = np.vstack([np.zeros(15), A]), np.append(0.0, b)
    assert before == pytest.approx(optimum(whole @ whole.T, constants, kappa), rel=1e-7)
    cold = start(n)
    solve_simplex_qp(gram, n, ell, kappa, cold, 1e-12)
    assert value(gram[:n, :n], ell[:n], kappa, cold)[0] == pytest.approx(before, abs=2e-12)


def test_two_thousand_planes():
    rng = np.random.default_rng(7)
    psi = rng.normal(size=(2000, 60)) + 3.0 * rng.normal(size=60)
    psi[0] = 0.0
    gram, ell = psi @ psi.T, np.append(0.0, rng.random(1999))
    alpha = start(2000)
    gap = solve_simplex_qp(gram, 2000, ell, 0.05, alpha, 1e-10)
    check(gram, ell, 0.05, alpha, gap, 1e-10)
    # The slopes of the other 1900 planes are part of the certificate, so this is the whole program's optimum.
    chosen = np.flatnonzero(alpha > 0.0)
    part = gram[np.ix_(chosen, chosen)]
    assert 5 < len(chosen) <= 61
    assert value(gram, ell, 0.05, alpha)[0] == pytest.approx(optimum(part, ell[chosen], 0.05), rel=1e-7)


def test_an_optimum_stays_as_it_is():
    rng = np.random.default_rng(8)
    for name in FAMILIES:
        gram, ell = family(name, rng)
        kappa, tol = strength(gram, ell, rng), 1e-8 * max(abs(ell).max(), 1e-3)
        alpha = start(len(ell))
        gap = solve_simplex_qp(gram, len(ell), ell, kappa, alpha, tol)
        again = alpha.copy()
        assert solve_simplex_qp(gram, len(ell), ell, kappa, again, tol) == pytest.approx(
            gap, abs=len(ell) * EPS * scale(gram, ell, kappa, alpha)
        )
        np.testing.assert_array_equal(again, alpha)


def test_a_wide_tolerance_is_taken_at_its_word():
    rng = np.random.default_rng(9)
    gram, ell = family("plain", rng)
    alpha = start(len(ell))
    gap = solve_simplex_qp(gram, len(ell), ell, 1.0, alpha, 10.0 * ell.max())
    assert gap == ell.max()
    np.testing.assert_array_equal(alpha, start(len(ell)))


def test_the_buffer_may_be_larger_and_answers_repeat():
    rng = np.random.default_rng(10)
    gram, ell = family("near duplicates", rng)
    n, kappa = len(ell), strength(gram, ell, rng)
    room = np.full((n + 7, n + 7), np.nan)
    room[:n, :n] = gram
    answers = []
    for matrix, size in ((gram, n), (gram, n), (room, n + 7)):
        alpha, constants = np.full(size, np.nan), np.full(size, np.nan)
        alpha[:n], constants[:n] = start(n), ell
        gap = solve_simplex_qp(matrix, n, constants, kappa, alpha, 0.0)
        answers.append(np.append(alpha[:n], gap))
        assert np.isnan(alpha[n:]).all()
    np.testing.assert_array_equal(answers[1], answers[0])
    np.testing.assert_array_equal(answers[2], answers[0])


def test_small_programs():
    one = np.ones(1)
    assert solve_simplex_qp(np.ones((1, 1)), 1, one, 2.0, one, 0.0) == 0.0
    assert one[0] == 1.0
    # The truth and a plane: alpha = ell / (kappa |psi|^2), at most 1.
    for ell, best in ((1.0, 0.125), (100.0, 1.0), (-1.0, 0.0), (0.0, 0.0)):
        alpha = np.array([0.5, 0.5])
        solve_simplex_qp(np.diag([0.0, 4.0]), 2, np.array([0.0, ell]), 2.0, alpha, 0.0)
        np.testing.assert_allclose(alpha, [1.0 - best, best], rtol=0, atol=1e-15)
    # No quadratic part.
    for gram, kappa in ((np.zeros((4, 4)), 1.0), (np.ones((4, 4)), 1.0), (np.eye(4), 0.0)):
        alpha = np.full(4, 0.25)
        assert solve_simplex_qp(gram, 4, np.array([0.0, 3.0, 1.0, 2.0]), kappa, alpha, 0.0) <= 1e-15
        np.testing.assert_allclose(alpha, [0.0, 1.0, 0.0, 0.0], rtol=0, atol=1e-15)


def test_a_matrix_that_is_not_quite_semi_definite():
    rng = np.random.default_rng(11)
    for _ in range(100):
        n = int(rng.integers(2, 60))
        psi = rng.normal(size=(n, 3))
        noise = rng.normal(size=(n, n))
        gram, ell = psi @ psi.T + 1e-10 * (noise + noise.T), rng.random(n)
        alpha = start(n)
        gap = solve_simplex_qp(gram, n, ell, 10.0, alpha, 1e-7)
        check(gram, ell, 10.0, alpha, gap, 1e-7)


def test_it_ends_whatever_it_is_given():
    rng = np.random.default_rng(12)
    for _ in range(50):
        n = int(rng.integers(2, 30))
        noise = rng.normal(size=(n, n))
        alpha = start(n)
        solve_simplex_qp(noise + noise.T, n, rng.normal(size=n), 1.0, alpha, 0.0)
        assert np.isfinite(alpha).all()
    alpha, gram = start(3), np.full((3, 3), np.nan)
    assert np.isnan(solve_simplex_qp(gram, 3, np.ones(3), 1.0, alpha, 0.0))

"""The working set of cutting planes: what is kept, what is dropped, and the programme over it, all recomputed densely."""

from __future__ import annotations

import clarabel
import numpy as np
import pytest
import scipy.sparse as sp

from maxmargin.devices import Processor
from maxmargin.solvers.planes import working_set
from maxmargin.solvers.planes.mean_plane import MeanPlane
from maxmargin.solvers.planes.working_set import WorkingSet

SIZE = 40


def filled(seed, n, kernel=None, threads=1):
    """A working set with n planes beside the truth's; the planes and constants as they were given."""
    rng = np.random.default_rng(seed)
    ours = WorkingSet(**WorkingSet.only_truth(SIZE, kernel is not None, Processor()))
    dense = np.zeros(SIZE)
    given = [np.zeros(SIZE)]
    for _ in range(n):
        psi = rng.normal(size=SIZE) * (rng.random(SIZE) < rng.random())
        index = np.flatnonzero(psi)
        ours.add_plane(
            MeanPlane(index, psi[index], rng.random(), np.empty(0)),
            dense,
            None if kernel is None else kernel @ psi,
            threads,
        )
        assert not dense.any()
        given.append(psi)
    return ours, np.array(given)


def some_kernel(seed):
    half = np.random.default_rng(seed).normal(size=(SIZE, 6))
    return half @ half.T


def check(ours, given, kernel=None):
    """Planes, Hessian, images and what is made of them, against the dense planes."""
    for k, psi in enumerate(given):
        piece = slice(ours.start[k], ours.start[k + 1])
        np.testing.assert_array_equal(ours.index[piece], np.flatnonzero(psi))
        np.testing.assert_array_equal(ours.value[piece], psi[np.flatnonzero(psi)])
    images = given if kernel is None else given @ kernel
    np.testing.assert_allclose(ours.gram, given @ images.T, rtol=1e-12, atol=1e-12)
    assert ours.gram.flags.c_contiguous
    assert ours.n_planes == len(given) == len(ours.alpha) == len(ours.idle)
    lam, w = 0.3, given.T @ ours.alpha / 0.3
    np.testing.assert_allclose(ours.weights(lam, np.full(SIZE, np.nan), 1), w, rtol=1e-12, atol=1e-12)
    assert ours.linear == pytest.approx(ours.ell @ ours.alpha, rel=1e-13, abs=1e-14)
    if kernel is not None:
        np.testing.assert_allclose(ours.images, images, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(ours.scores(lam), kernel @ w, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kernel", [None, some_kernel(0)], ids=["linear", "kernel"])
def test_planes_are_kept_as_they_are_given(kernel):
    ours, given = filled(1, 70, kernel)
    ours.alpha[:] = np.random.default_rng(0).dirichlet(np.ones(71))
    check(ours, given, kernel)


@pytest.mark.parametrize("kernel", [None, some_kernel(0)], ids=["linear", "kernel"])
def test_dropped_planes_leave_the_others_as_they_were(kernel):
    for seed in range(10):
        rng = np.random.default_rng(seed)
        ours, given = filled(seed, 30, kernel)
        dense = np.zeros(SIZE)
        for _ in range(4):
            mass = rng.dirichlet(np.ones(ours.n_planes)) * (rng.random(ours.n_planes) < 0.5)
            mass[1] += 0.1
            ours.alpha[:] = mass / mass.sum()
            ours.idle[:] = np.where(ours.alpha > 0.0, 0, rng.integers(0, 9, ours.n_planes))
            keep = ours.idle < 5
            keep[0] = True
            ell, alpha = ours.ell[keep], ours.alpha[keep]
            ours.drop_idle(5)
            given = given[keep]
            np.testing.assert_array_equal(ours.ell, ell)
            np.testing.assert_array_equal(ours.alpha, alpha)
            check(ours, given, kernel)
            # New ones go where the old ones were.
            psi = rng.normal(size=SIZE)
            ours.add_plane(
                MeanPlane(np.arange(SIZE), psi, 1.0, np.empty(0)), dense, None if kernel is None else kernel @ psi, 1
            )
            given = np.concatenate([given, psi[None]])
            check(ours, given, kernel)


def dual_value(ours, lam):
    w = ours.weights(lam, np.empty(SIZE), 1)
    return ours.linear - 0.5 * lam * w @ w


def test_idle_programmes_are_counted():
    ours, _ = filled(2, 12)
    for k in range(1, 4):
        ours.optimise(0.1, 1e-10)
        assert ((ours.idle == 0) == (ours.alpha > 0.0)).all()
        assert set(ours.idle[ours.alpha == 0.0]) == {k}
    before = dual_value(ours, 0.1)
    ours.drop_idle(4)
    assert ours.n_planes == 13
    ours.drop_idle(3)
    assert ours.n_planes == np.count_nonzero(ours.alpha) + (ours.alpha[0] == 0.0) < 13
    assert dual_value(ours, 0.1) == pytest.approx(before, rel=1e-12)
    assert ours.optimise(0.1, 1e-10) <= 1e-10


def test_the_programme_against_clarabel():
    for seed in range(6):
        ours, given = filled(seed, 25)
        lam = 10.0 ** (seed - 3)
        gap = ours.optimise(lam, 1e-9)
        n = len(given)
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        cones = [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(n)]
        solution = clarabel.DefaultSolver(
            sp.csc_matrix(np.triu(given @ given.T / lam)), -ours.ell, sp.csc_matrix(np.vstack([np.ones(n), -np.eye(n)])),
            np.concatenate([[1.0], np.zeros(n)]), cones, settings,
        ).solve()  # fmt: skip
        assert gap <= 1e-9
        assert dual_value(ours, lam) == pytest.approx(-solution.obj_val, abs=1e-7)
        assert ours.alpha.sum() == pytest.approx(1.0)
        assert (ours.alpha >= 0.0).all()


def test_threads_and_ranges_do_not_change_the_bits(monkeypatch):
    one, three = (filled(3, 50, threads=threads)[0] for threads in (1, 3))
    np.testing.assert_array_equal(one.gram, three.gram)
    one.alpha[:] = np.random.default_rng(0).dirichlet(np.ones(51))
    expected = one.weights(0.1, np.empty(SIZE), 1)
    np.testing.assert_array_equal(one.weights(0.1, np.empty(SIZE), 3), expected)
    # The compiled kernel keeps its own range: pieces that are smaller than it must give the same sums.
    monkeypatch.setattr(working_set, "_RANGE", 7)
    np.testing.assert_array_equal(one.weights(0.1, np.empty(SIZE), 2), expected)


def test_bytes_are_counted():
    ours, _ = filled(4, 20)
    assert ours.nbytes >= ours.gram.nbytes + ours.value.nbytes + ours.index.nbytes

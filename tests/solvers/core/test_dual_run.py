"""Sums over long weights that are made in one sweep, against NumPy; inner products with a kernel are of scores and coefficients."""

import numpy as np
import pytest

from maxmargin.problems import Features
from maxmargin.problems.features import KernelFeatures
from maxmargin.solvers.core.dual_run import move_towards, products_towards
from maxmargin.solvers.core.proximal import between, move, product_of_ways


def features(kind, rng):
    if kind == "linear":
        return Features(rng.normal(size=(9, 7)))
    rows = rng.normal(size=(9, 4))
    return KernelFeatures(rows @ rows.T)


def weights(of, rng, n):
    return [of.working_weights(rng.normal(size=(5, of.shape[1]))) for _ in range(n)]


@pytest.mark.parametrize("kind", ["linear", "kernel"])
def test_products_are_those_of_differences(kind):
    rng = np.random.default_rng(1)
    of = features(kind, rng)
    dual, r, last = weights(of, rng, 3)
    along, square = products_towards(*of.halves(dual), *of.halves(r))
    np.testing.assert_allclose([along, square], [of.inner(dual, r - dual), of.inner(r - dual, r - dual)], rtol=1e-12)
    (r_one, r_other), (dual_one, _), (_, last_other) = map(of.halves, (r, dual, last))
    found = product_of_ways(dual_one, r_one, r_other, last_other)
    np.testing.assert_allclose(found, of.inner(dual - r, r - last), rtol=1e-12)


def test_moves_are_those_of_whole_arrays():
    rng = np.random.default_rng(2)
    w, centre, last, r = rng.normal(size=(4, 8, 3))
    beta, share = 0.3, 0.6
    moved = w + beta * (w - last)
    expected = w + (1.0 - share) * (moved - centre), moved, w.copy()
    found = w.copy(), centre.copy(), last.copy()
    move(*found, beta, share)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-14)
    out = np.empty_like(w)
    between(centre, r, share, out)
    np.testing.assert_allclose(out, (1.0 - share) * centre + share * r, rtol=1e-14)
    towards = w.copy()
    move_towards(towards, r, 0.25)
    np.testing.assert_allclose(towards, 0.75 * w + 0.25 * r, rtol=1e-13)

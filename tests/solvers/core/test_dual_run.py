"""Sums over long weights that are made in one sweep, against NumPy; inner products with a kernel are of scores and coefficients."""

import numpy as np
import pytest

from maxmargin.problems import Features, multi_class_problem
from maxmargin.problems.features import KernelFeatures
from maxmargin.solvers.core.dual_run import move_towards, products_towards
from maxmargin.solvers.core.proximal import between, move, product_of_ways
from maxmargin.solvers.frank_wolfe.bcfw import BCFW


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
    found = products_towards(*of.halves(dual), *of.halves(r), *of.halves(last))
    pairs = (dual, dual), (dual, r - dual), (r - dual, r - dual), (r, last), (last, last)
    np.testing.assert_allclose(found, [of.inner(*pair) for pair in pairs], rtol=1e-12)
    (r_one, r_other), (dual_one, _), (_, last_other) = map(of.halves, (r, dual, last))
    found = product_of_ways(dual_one, r_one, r_other, last_other)
    np.testing.assert_allclose(found, of.inner(dual - r, r - last), rtol=1e-12)


@pytest.mark.parametrize("kind", ["linear", "kernel"])
def test_the_dual_is_raised_as_far_as_it_grows(kind):
    rng = np.random.default_rng(3)
    of = features(kind, rng)
    problem = multi_class_problem(of, np.arange(9) % 3, 3)
    run = BCFW().make_run(problem, 0.5, 0, 2)
    now = run.begin(None)
    for w in (now.w_v, now.centre_v, now.dual_v):
        w[:] = of.working_weights(rng.normal(size=(3, of.shape[1])))
    before, r, share = now.dual_v.copy(), run.dual_weights, 0.3
    expected = (now.w_v - (1.0 - share) * now.centre_v) / share

    def value(step):
        point = before + step * (expected - before)
        return step * linear - 0.25 * of.inner(point, point)

    # The best step is inside.
    linear = 0.5 * (of.inner(before, expected - before) + 0.4 * of.inner(expected - before, expected - before))
    across, norm = run.raise_dual(now, linear, *r, (now.centre_v, now.centre_f), share)
    np.testing.assert_allclose(r[0], expected, rtol=1e-12)
    np.testing.assert_allclose([across, norm], [of.inner(now.w_v, expected), of.inner(now.w_v, now.w_v)], rtol=1e-12)
    np.testing.assert_allclose(now.dual_v, before + 0.4 * (expected - before), rtol=1e-9)
    np.testing.assert_allclose(now.dual_linear - 0.25 * of.inner(now.dual_v, now.dual_v), value(0.4), rtol=1e-9)
    assert value(0.4) > max(value(0.39), value(0.41))
    assert now.dual == pytest.approx(max(0.0, value(0.4)), rel=1e-9)


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

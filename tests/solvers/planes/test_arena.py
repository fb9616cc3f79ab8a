"""The step over the planes of one block."""

import numpy as np
import pytest

from maxmargin.jit import kernel
from maxmargin.solvers.planes.arena import PlaneStore, improve_block


@kernel
def one_step(store, kappa, v, moved):
    return improve_block(store, 0, kappa, v, moved, 0.0, 1)


@pytest.mark.parametrize("seed", range(8))
def test_a_step_goes_to_the_top_of_the_parabola(seed):
    """Mass moves from the worst plane that has some to the best, by the amount that is best of a thousand."""
    rng = np.random.default_rng(seed)
    n, kappa = 4, rng.uniform(0.2, 3.0)
    psi, ell = rng.normal(size=(n, 3)), rng.normal(size=n)
    alpha = rng.dirichlet(np.ones(n))
    gram = psi @ psi.T

    def f(masses):
        """The block's part of the dual, but for weight / M, with no other block."""
        w = kappa * masses @ psi
        return masses @ ell - w @ w / (2.0 * kappa)

    store = PlaneStore.empty(1, n, 0)._replace(
        n_planes=np.array([n], np.int32), alpha=alpha[None].copy(), gram=gram[None].copy()
    )
    v, moved = ell - kappa * alpha @ gram, np.empty(n)
    best, worst = int(v.argmax()), int(v.argmin())
    gain = one_step(store, kappa, v, moved)
    found = store.alpha[0]
    direction = np.zeros(n)
    direction[best], direction[worst] = 1.0, -1.0
    values = [f(alpha + t * direction) for t in np.linspace(0.0, alpha[worst], 1001)]
    assert f(found) >= max(values) - 1e-12
    assert gain == pytest.approx(f(found) - f(alpha), abs=1e-12)
    np.testing.assert_allclose(found - alpha, moved, atol=1e-15)
    np.testing.assert_allclose(v, ell - kappa * found @ gram, atol=1e-12)

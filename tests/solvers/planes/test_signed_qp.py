"""The programme of planes where weights have signs, beside Clarabel."""

import clarabel
import numpy as np
import pytest
import scipy.sparse as sp

from maxmargin.solvers.planes.mean_plane import MeanPlane
from maxmargin.solvers.planes.signed_qp import Signs, solve_signed_qp


def best_value(psi, ell, lam, signs):
    """min_w lam/2 |w|^2 + xi, such that xi >= ell_k - w . psi_k, and w has its signs."""
    d = psi.shape[1]
    rows = [np.append(-one, -1.0) for one in psi]
    rhs = [-value for value in ell]
    for j in np.flatnonzero(signs):
        rows.append(np.append(-signs[j] * np.eye(d)[j], 0.0))
        rhs.append(0.0)
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-12
    found = clarabel.DefaultSolver(
        sp.csc_matrix(np.diag([lam] * d + [0.0])), np.append(np.zeros(d), 1.0), sp.csc_matrix(np.array(rows)),
        np.array(rhs), [clarabel.NonnegativeConeT(len(rhs))], settings,
    ).solve()  # fmt: skip
    return found.obj_val


@pytest.mark.parametrize("seed", range(30))
def test_the_best_masses(seed):
    rng = np.random.default_rng(seed)
    K, d = int(rng.integers(2, 40)), int(rng.integers(1, 12))
    psi, ell = rng.normal(size=(K, d)), rng.random(K)
    psi[0], ell[0] = 0.0, 0.0
    if seed % 3 == 0:
        # Planes that depend on each other.
        psi[1::2] = psi[: len(psi[1::2])]
    signs, lam = rng.integers(-1, 2, d), float(10.0 ** rng.uniform(-3, 1))
    own = Signs(signs)
    signed = np.stack([own.row(None, one) for one in psi])
    alpha = np.zeros(K)
    alpha[0] = 1.0
    gap = solve_signed_qp(psi @ psi.T, signed, ell, 1.0 / lam, alpha, 1e-9)
    assert alpha.min() >= 0
    assert alpha.sum() == pytest.approx(1.0)
    assert gap <= 1e-8
    w = alpha @ psi / lam
    own.project(w)
    assert (w * signs >= 0).all()
    dual = ell @ alpha - lam / 2 * w @ w
    primal = lam / 2 * w @ w + (ell - psi @ w).max()
    best = best_value(psi, ell, lam, signs)
    assert dual == pytest.approx(best, abs=1e-7)
    # The gap is that between the two.
    assert primal - dual == pytest.approx(gap, abs=1e-9)


def test_rows_of_sparse_planes():
    signs = Signs(np.array([0, 1, -1, 0, 1]))
    index, value = np.array([1, 2, 3]), np.array([2.0, 3.0, 4.0])
    assert signs.row(index, value).tolist() == [2.0, -3.0, 0.0]
    assert signs.of_plane(MeanPlane(index, value, 0.0, np.empty(0))).tolist() == [2.0, -3.0, 0.0]
    assert signs.row(None, np.array([9.0, 2.0, 3.0, 4.0, 0.0])).tolist() == [2.0, -3.0, 0.0]

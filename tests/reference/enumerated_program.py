"""The exact training problem with all labelings written out, solved by Clarabel.

Shares no code with the solvers: features of every labeling are summed by Python loops over `Structure`s and `Template`s.

    min  lam/2 |w|^2 + 1/M sum_m weight_m xi_m     s.t.  xi_m >= ell_m(y) - w . psi_m(y)  for every allowed labeling y

With s(y) = fixed(y) - fixed(truth) and psi(y) = phi(truth) - phi(y), a labeling's plane is

    "margin"   psi,  loss + s             "slack"   loss psi,  loss (1 + s)             "log"   psi,  s
    "zero-one" psi,  1 + s, for every labeling but the truth, whatever the tables of losses say
"""

from __future__ import annotations

import itertools

import clarabel
import numpy as np
import scipy.sparse as sp

from reference.enumeration import examples, statistics


def planes(graphs, kind="margin", dtype=np.float64):
    """For every example, the list of (psi, ell) of all its allowed labelings."""
    x, z = (_dense(features).astype(dtype) for features in (graphs.variable_features, graphs.factor_features))
    return [_planes_of(graphs, m, example, x, z, kind) for m, example in enumerate(examples(graphs))]


def hinges(every, w):
    """The largest slope of each example's planes."""
    return np.array([max(ell - psi @ w for psi, ell in some) for some in every])


def value(graphs, C, w, kind="margin"):
    """P(w)."""
    return w @ w / (2.0 * C) + graphs.arrays.weight @ hinges(planes(graphs, kind), w) / graphs.n_examples


def exact_optimum(graphs, C, kind="margin", signs=None):
    """The least value of P, over weights of these signs."""
    return least_value(planes(graphs, kind), graphs.arrays.weight, C, signs)


def least_value(every, weight, C, signs=None):
    """The least value of P by the planes of each example; w_j >= 0 where signs[j] is 1, and <= 0 where it is -1."""
    lam, M, d = 1.0 / C, len(every), len(every[0][0][0])
    rows, rhs = [], []
    for j in np.flatnonzero(signs) if signs is not None else ():
        row = np.zeros(d + M)
        row[j] = -signs[j]
        rows.append(row)
        rhs.append(0.0)
    for m, found in enumerate(every):
        for psi, ell in found:
            slack = np.zeros(M)
            slack[m] = -1.0
            rows.append(np.concatenate([-psi, slack]))
            rhs.append(-ell)
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11
    quadratic = sp.csc_matrix(sp.diags(np.concatenate([np.full(d, lam), np.zeros(M)])))
    linear = np.concatenate([np.zeros(d), np.asarray(weight) / M])
    cones = [clarabel.NonnegativeConeT(len(rhs))]
    solution = clarabel.DefaultSolver(
        quadratic, linear, sp.csc_matrix(np.array(rows)), np.array(rhs), cones, settings
    ).solve()
    assert str(solution.status) in ("Solved", "AlmostSolved"), solution.status
    return solution.obj_val


def _planes_of(graphs, m, example, x, z, kind):
    labels = graphs.labels[example.first_variable :][: len(example.n_states)]
    truth, _, fixed = _features(graphs, m, example, labels, x, z)
    out = []
    for y in itertools.product(*(range(n) for n in example.n_states)):
        phi, loss, score = _features(graphs, m, example, y, x, z)
        if np.isfinite(score):
            psi, change = truth - phi, score - fixed
            of = {"margin": (psi, loss + change), "slack": (loss * psi, loss * (1.0 + change)), "log": (psi, change)}
            of["zero-one"] = psi, float(tuple(y) != tuple(labels)) + change
            out.append(of[kind])
    return out


def _features(graphs, m, example, y, x, z):
    """Joint features, task loss and fixed score of a labeling."""
    structure, a = example.structure, graphs.arrays
    of_v = np.zeros((graphs.n_variable_blocks, x.shape[1]), x.dtype)
    of_f = np.zeros((graphs.n_factor_blocks, z.shape[1]), z.dtype)
    loss = score = x.dtype.type(0)
    for i, t in enumerate(structure.variable_templates):
        template, at = graphs.variable_templates[t], example.state_start[i] + y[i]
        if template.blocks[y[i]] >= 0:
            of_v[template.blocks[y[i]]] += x[a.examples[m].variable_row + structure.variable_rows[i]]
        loss += a.losses[at]
        score += template.scores[y[i]] + (a.variable_scores[at] if len(a.variable_scores) else 0.0)
    for c, t in enumerate(structure.factor_templates):
        template = graphs.factor_templates[t]
        for entry, times in statistics(template, [int(y[v]) for v in structure.scopes[c]]).items():
            if template.blocks.flat[entry] >= 0:
                of_f[template.blocks.flat[entry]] += times * z[a.examples[m].factor_row + structure.factor_rows[c]]
            at = example.table_start[c] + entry
            score += times * (template.scores.flat[entry] + (a.factor_scores[at] if len(a.factor_scores) else 0.0))
    return np.concatenate([of_v.ravel(), of_f.ravel()]), loss, score


def _dense(features):
    matrix = features.matrix()
    return np.asarray(matrix.todense()) if sp.issparse(matrix) else np.asarray(matrix)

"""SoftBCFW where every example is one variable: binary and multi-class problems.

Then a visit is one step of dual coordinate ascent with a closed form, and nothing is left of factors, messages and rho:

    mu_m <- argmax over the simplex of  theta . mu - c/2 |mu - mu_m|^2,      c = |x|^2 weight / (lam M)

(Keerthi, Sundararajan, Chang, Hsieh and Lin 2008; of two states, Hsieh et al. 2008). The same steps as in visits.py and the
same bounds as in bounds.py, in loops that know how little there is to do.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maxmargin.jit import kernel
from maxmargin.problems.factor_graphs import FactorGraphs
from maxmargin.problems.features import KernelFeatures, add_row, score_row
from maxmargin.solvers.soft.simplex import project_block


def is_single(problem: FactorGraphs) -> bool:
    """Whether every example is one variable of the same template, with a feature row of its own."""
    a = problem.arrays
    one = len(problem.structures) == 1 and len(problem.structures[0].variable_templates) == 1
    return bool(
        one
        and problem.example_factors[-1] == 0
        and not isinstance(problem.variable_features, KernelFeatures)
        and problem.n_examples == problem.variable_features.shape[0]
        and (a.examples[:-1].variable_row == np.arange(problem.n_examples)).all()
        and a.variable_groups[0].row == 0
    )


# ------------------------------------------------------------------------------------------------------- kernels


@kernel
def visit_single(batch: Any, w: Any, dual: Any, order: Any, lam: float, smoothing: float) -> None:
    """Visit the examples in order: each variable goes to the maximum of its block."""
    g, features, mu, block_gap = batch.graphs, batch.variables.features, dual.mu, dual.block_gap
    weight, losses, extra = g.weight, g.losses, g.variable_scores
    t = g.variables[g.structures[0].variables].template
    start, n_states = g.variable_kinds[t].start, g.variable_kinds[t].entries
    blocks, fixed = g.variable_block[start : start + n_states], g.variable_fixed[start : start + n_states]
    sharing, norms = g.variable_sharing[start : start + n_states], features.squared_norms
    n_blocks, scale = w.shape[1], 1.0 / (lam * len(weight))
    buffer, moved = np.zeros(n_blocks), np.zeros(n_blocks)
    theta, flat = np.empty(n_states), np.empty(n_states)
    for m in order:
        unit = weight[m] * scale
        if unit == 0.0:
            continue
        at, own = n_states * m, unit * norms[m]
        score_row(features, m, w, 0, n_blocks, buffer, 0)
        high = -np.inf
        for k in range(n_states):
            b = blocks[k]
            theta[k] = fixed[k] + losses[at + k] + (buffer[b] if b >= 0 else 0.0) - smoothing * mu[at + k]
            if len(extra) > 0:
                theta[k] += extra[at + k]
            high = max(high, theta[k])
        gap = 0.0
        for k in range(n_states):
            if mu[at + k] > 0.0:
                gap += mu[at + k] * (high - theta[k])
        block_gap[m] = gap
        if gap <= 0.0:
            continue
        if n_states == 2:
            slope = theta[1] - theta[0]
            curvature = (own * (sharing[0] + sharing[1]) if blocks[0] != blocks[1] else 0.0) + 2.0 * smoothing
            target = mu[at + 1] + slope / curvature if curvature > 0.0 else (1.0 if slope > 0.0 else 0.0)
            target = min(1.0, max(0.0, target))
            flat[0], flat[1] = 1.0 - target, target
        else:
            project_block(n_states, own, smoothing, high, sharing, 0, mu, at, theta, flat)
        for k in range(n_states):
            if blocks[k] >= 0:
                moved[blocks[k]] += flat[k] - mu[at + k]
            mu[at + k] = flat[k]
        add_row(features, m, w, 0, n_blocks, moved, 0, -unit)
        for k in range(n_states):
            if blocks[k] >= 0:
                moved[blocks[k]] = 0.0


@kernel
def single_hinges(batch: Any, w: Any, begin: int, end: int, out: Any) -> None:
    """Hinges of examples begin to end - 1, into out[begin:end]."""
    g, features = batch.graphs, batch.variables.features
    labels, losses, extra = g.labels, g.losses, g.variable_scores
    t = g.variables[g.structures[0].variables].template
    start, n_states = g.variable_kinds[t].start, g.variable_kinds[t].entries
    blocks, fixed = g.variable_block[start : start + n_states], g.variable_fixed[start : start + n_states]
    n_blocks = w.shape[1]
    buffer = np.zeros(n_blocks)
    for m in range(begin, end):
        score_row(features, m, w, 0, n_blocks, buffer, 0)
        high, truth, at = -np.inf, 0.0, n_states * m
        for k in range(n_states):
            score = fixed[k] + losses[at + k] + (buffer[blocks[k]] if blocks[k] >= 0 else 0.0)
            if len(extra) > 0:
                score += extra[at + k]
            high = max(high, score)
            if k == labels[m]:
                truth = score
        out[m] = high - truth


@kernel
def single_dual_point(batch: Any, mu: Any, lam: float, w: Any) -> float:
    """The weights of the marginals, into w; returns the linear part of f there."""
    g, features = batch.graphs, batch.variables.features
    labels, losses, extra, weight = g.labels, g.losses, g.variable_scores, g.weight
    t = g.variables[g.structures[0].variables].template
    start, n_states = g.variable_kinds[t].start, g.variable_kinds[t].entries
    blocks, fixed = g.variable_block[start : start + n_states], g.variable_fixed[start : start + n_states]
    n_blocks, scale = w.shape[1], 1.0 / (lam * len(weight))
    moved = np.zeros(n_blocks)
    w[:] = 0.0
    total = 0.0
    for m in range(len(weight)):
        at = n_states * m
        if mu[at + labels[m]] == 1.0:
            continue
        linear = 0.0
        for k in range(n_states):
            change = mu[at + k] - (1.0 if k == labels[m] else 0.0)
            # A forbidden state has no mass, and -inf times 0 would be NaN.
            if change != 0.0:
                linear += change * (fixed[k] + losses[at + k])
                if len(extra) > 0:
                    linear += change * extra[at + k]
                if blocks[k] >= 0:
                    moved[blocks[k]] += change
        total += weight[m] * linear
        add_row(features, m, w, 0, n_blocks, moved, 0, -scale * weight[m])
        for k in range(n_states):
            if blocks[k] >= 0:
                moved[blocks[k]] = 0.0
    return total / len(weight)

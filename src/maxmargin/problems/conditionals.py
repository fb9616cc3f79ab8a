"""Scores of a variable's states with all other variables as they are labelled, and the temperature that fits them.

With score tables theta and a labeling y, the score of state k of variable i given the others is

    s_i(k) = theta_i(k) + sum of theta_c(k, y of the others) over the factors c that i is in

and p(k | others) = softmax(s_i / T). The temperature T of largest pseudo-likelihood (J. Besag, Statistical Analysis of Non-Lattice
Data, The Statistician 24, 1975), the product of these probabilities of the true labels, makes probabilities of scores that were
trained for a margin, and needs no inference. Structured factors, which have no tables, are left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.jit import inner, kernel
from maxmargin.problems.factor_graphs import FactorGraphs, Scores
from maxmargin.problems.layout import side_scores
from maxmargin.problems.templates import TABLE

#: Temperatures are looked for between the typical difference of scores times and divided by this.
_RANGE = 100.0
#: Share by which the last step changes the temperature, at most; and the most steps.
_PRECISION, _STEPS = 1e-4, 100


def conditional_scores(graphs: FactorGraphs, scores: Scores, labels: NDArray[np.int32]) -> NDArray[np.float64]:
    """Score of each state of each variable given the labels of all others, in *states* coordinates."""
    a, out = graphs.arrays, np.array(scores.variables, np.float64)
    if not graphs.factor_templates:
        return out
    starts = graphs.state_starts()
    n_factors = np.diff(graphs.example_factors)
    example = np.repeat(np.arange(graphs.n_examples), n_factors)
    local = np.arange(len(example)) + np.repeat(
        a.structures.factors[graphs.structure_of] - graphs.example_factors[:-1], n_factors
    )
    # Fields before rows: NumPy copies a record much slower than a number.
    of_template, neighbours, table = a.factors.template[local], a.factors.neighbours[local], a.factors.table[local]
    for t, template in enumerate(graphs.factor_templates):
        if template.kind != TABLE:
            continue
        chosen = np.flatnonzero(of_template == t)
        if len(chosen) == 0:
            continue
        arity, slots = len(template.n_states), a.slots[a.factor_kinds[t].slots :]
        m = example[chosen]
        variables = [graphs.example_variables[m] + a.scope[neighbours[chosen] + j] for j in range(arity)]
        at = graphs.example_tables[m] + table[chosen]
        for j in range(arity):
            at = at + slots[j].stride * labels[variables[j]].astype(np.int64)
        for j in range(arity):
            states = np.arange(int(template.n_states[j]))
            moved = at[:, None] + (states - labels[variables[j]].astype(np.int64)[:, None]) * int(slots[j].stride)
            places = starts[variables[j]][:, None] + states
            with np.errstate(invalid="ignore"):
                out += np.bincount(places.ravel(), scores.factors[moved].ravel(), len(out))
    return out


def fit_temperature(graphs: FactorGraphs, scores: Scores) -> float:
    """The temperature of largest pseudo-likelihood of the true labels; 1 if scores say nothing.

    Parameters
    ----------
    graphs : FactorGraphs
        With labels, of examples that the scores were not trained on.
    scores : Scores
    """
    starts = np.append(graphs.state_starts(), graphs.example_states[-1])
    weight = np.repeat(graphs.arrays.weight, np.diff(graphs.example_variables))
    return float(_fit(conditional_scores(graphs, scores, graphs.labels), starts, graphs.labels, weight, _RANGE))


def temperature_of(graphs: FactorGraphs, weights: NDArray[np.float64], n_examples: int) -> float:
    """The same for weights, by about so many of the examples, at equal distances."""
    every = -(-graphs.n_examples // max(n_examples, 1))
    if not graphs.of_single_variables or graphs.factor_templates or len(graphs.variable_templates) > 1:
        some = graphs if every == 1 else graphs.take(np.arange(0, graphs.n_examples, every))
        return fit_temperature(some, some.scores(weights))
    labels, weight = graphs.labels[::every], graphs.arrays.weight[::every]
    n, n_states = len(labels), len(graphs.arrays.variable_block)
    given = np.empty(n * n_states)
    _some_scores(graphs.batch, graphs.working_weights(weights)[0], every, given)
    return float(_fit(given, np.arange(n + 1) * n_states, labels, weight, _RANGE))


# ------------------------------------------------------------------------------------------------------- kernels


@kernel
def _some_scores(batch: Any, w: Any, every: int, out: Any) -> None:
    """Scores of the only variable of every so-many-th example."""
    buffer, n_states = np.empty(batch.graphs.largest.buffer), len(batch.graphs.variable_block)
    for k in range(len(out) // n_states):
        side_scores(batch.variables, k * every, 0, w, buffer, out, k * n_states)


@kernel
def _fit(given: Any, starts: Any, labels: Any, weight: Any, widest: float) -> float:
    """The temperature 1 / b at the minimum of f(b) = sum_i weight_i log sum_k exp b (s_i(k) - s_i(truth)), which is convex.

    By Newton's method in an interval, or its middle where that leads out of it. The ends are tried where it points beyond them.
    """
    total, count = 0.0, 0
    for i in range(len(labels)):
        truth = given[starts[i] + labels[i]]
        for k in range(starts[i], starts[i + 1]):
            given[k] -= truth
            if np.isfinite(given[k]) and given[k] != 0.0:
                total += abs(given[k])
                count += 1
    if total == 0.0 or not weight.any():
        return 1.0
    b = count / total
    low, high = b / widest, b * widest
    first, last = low, high
    for _ in range(_STEPS):
        slope, curvature = _slope(given, starts, weight, b)
        if slope > 0.0:
            high = b
        else:
            low = b
        if (b == first and slope >= 0.0) or (b == last and slope <= 0.0):
            break
        moved = b - slope / curvature if curvature > 0.0 else first if slope > 0.0 else last
        if moved <= first and low == first:
            moved = first
        elif moved >= last and high == last:
            moved = last
        elif not low < moved < high:
            moved = np.sqrt(low * high)
        done = abs(moved - b) <= _PRECISION * b
        b = moved
        if done:
            break
    return 1.0 / b


@inner
def _slope(given: Any, starts: Any, weight: Any, b: float) -> tuple[float, float]:
    """The first two derivatives of f."""
    slope, curvature = 0.0, 0.0
    for i in range(len(weight)):
        top, mass, mean, square = 0.0, 0.0, 0.0, 0.0
        for k in range(starts[i], starts[i + 1]):
            top = max(top, given[k])
        for k in range(starts[i], starts[i + 1]):
            if given[k] > -np.inf:
                share = np.exp(b * (given[k] - top))
                mass += share
                mean += share * given[k]
                square += share * given[k] * given[k]
        mean /= mass
        slope += weight[i] * mean
        curvature += weight[i] * (square / mass - mean * mean)
    return slope, curvature

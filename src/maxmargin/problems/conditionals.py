"""Scores of a variable's states with all other variables as they are labelled, and the temperature that fits them.

With score tables theta and a labeling y, the score of state k of variable i given the others is

    s_i(k) = theta_i(k) + sum of theta_c(k, y of the others) over the factors c that i is in

and p(k | others) = softmax(s_i / T). The temperature T of largest pseudo-likelihood (J. Besag, Statistical Analysis of Non-Lattice
Data, The Statistician 24, 1975), the product of these probabilities of the true labels, makes probabilities of scores that were
trained for a margin, and needs no inference. Structured factors, which have no tables, are left out.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from maxmargin.problems.factor_graphs import FactorGraphs, Scores
from maxmargin.problems.templates import TABLE

#: Temperatures are looked for between the typical difference of scores times and divided by this.
_RANGE = 100.0


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
    given = conditional_scores(graphs, scores, graphs.labels)
    starts = graphs.state_starts()
    weight = np.repeat(graphs.arrays.weight, np.diff(graphs.example_variables))
    sizes = np.diff(np.append(starts, len(given)))
    given -= np.repeat(given[starts + graphs.labels], sizes)
    finite = given[np.isfinite(given) & (given != 0.0)]
    typical = float(np.abs(finite).mean()) if len(finite) else 0.0
    if typical == 0.0 or not weight.any():
        return 1.0

    # Where all variables have as many states, rows of one state each are faster than runs of all states.
    equal = bool((sizes == sizes[0]).all())
    table = np.ascontiguousarray(given.reshape(len(sizes), -1).T) if equal else given

    def loss(log_beta: float) -> float:
        scaled = table * (np.exp(log_beta) / typical)
        if equal:
            top = scaled.max(axis=0)
            return float(weight @ (top + np.log(np.exp(scaled - top).sum(axis=0))))
        top = np.maximum.reduceat(scaled, starts)
        total = np.add.reduceat(np.exp(scaled - np.repeat(top, sizes)), starts)
        return float(weight @ (top + np.log(total)))

    bound = float(np.log(_RANGE))
    found = minimize_scalar(loss, bounds=(-bound, bound), method="bounded", options={"xatol": 1e-3})
    return float(typical / np.exp(found.x))

"""Answers by plain enumeration, in Python loops over `Structure`s and `Template`s; shares no code with the kernels.

Only ``structures``, ``structure_of``, templates, feature matrices, each example's first feature rows, ``*_scores`` and
``losses`` are read; offsets are counted again here.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp


@dataclass
class Example:
    """One example: its structure and where its entries begin in states and tables coordinates."""

    structure: object
    n_states: list
    state_start: list
    shapes: list
    table_start: list
    first_variable: int
    templates: list


def examples(graphs):
    """All examples with their offsets, counted one by one."""
    state = table = variable = 0
    out = []
    for s in graphs.structure_of:
        structure = graphs.structures[s]
        n_states = [graphs.variable_templates[t].n_states[0] for t in structure.variable_templates]
        templates = [graphs.factor_templates[t] for t in structure.factor_templates]
        shapes = [template.n_states for template in templates]
        state_start, table_start = [], []
        for n in n_states:
            state_start.append(state)
            state += n
        for template in templates:
            table_start.append(table)
            table += template.blocks.size
        out.append(Example(structure, n_states, state_start, shapes, table_start, variable, templates))
        variable += len(n_states)
    return out


def joint_index(labels, scope, shape):
    """C-order number of the joint state of a scope."""
    return int(np.ravel_multi_index([labels[v] for v in scope], shape))


def statistics(template, labels):
    """The entries of a factor's table or parameters that the labels of its scope select, and how often: a dict."""
    if template.name == "table":
        return {int(np.ravel_multi_index(labels, template.n_states)): 1.0}
    if template.name == "cardinality":
        return {sum(1 for k in labels if k == 1): 1.0}
    if template.name == "custom":
        out = np.zeros(template.blocks.size)
        function = getattr(template.statistics, "py_func", template.statistics)
        function(np.array(labels, np.int32), np.array(template.n_states), out)
        return {p: value for p, value in enumerate(out) if value != 0}
    counts = {}
    for j in range(1, len(labels)):
        entry = labels[template.parents[j]] * template.n_states[0] + labels[j]
        counts[entry] = counts.get(entry, 0.0) + 1.0
    return counts


def selected(example, labels):
    """All (entry in tables coordinates, how often) that one labeling selects."""
    for start, scope, template in zip(example.table_start, example.structure.scopes, example.templates, strict=True):
        for entry, times in statistics(template, [int(labels[v]) for v in scope]).items():
            yield start + entry, times


def labeling_score(example, scores, labels):
    """Score of one labeling of one example."""
    total = sum(float(scores.variables[start + k]) for start, k in zip(example.state_start, labels, strict=True))
    for entry, times in selected(example, labels):
        total += times * float(scores.factors[entry])
    return total


def all_scores(example, scores):
    """List of (labeling, score) in C order."""
    return [
        (labels, labeling_score(example, scores, labels))
        for labels in itertools.product(*(range(n) for n in example.n_states))
    ]


def maximise(graphs, scores):
    """First best labeling of each example (concatenated), best scores, and whether the runner-up is 1e-9 away."""
    labels, values, unique = [], [], []
    for example in examples(graphs):
        table = all_scores(example, scores)
        ranked = sorted((-value for _, value in table))
        best = -ranked[0]
        labels += next(list(one) for one, value in table if value == best)
        values.append(best)
        unique.append(len(ranked) == 1 or ranked[1] > ranked[0] + 1e-9)
    return np.array(labels), np.array(values), np.array(unique)


def marginals(graphs, scores, temperature=1.0):
    """Marginals in states and tables coordinates, and temperature * log sum exp(score / temperature)."""
    of_variables, of_factors = np.zeros(len(scores.variables)), np.zeros(len(scores.factors))
    log_partition = []
    for example in examples(graphs):
        table = all_scores(example, scores)
        best = max(value for _, value in table)
        masses = np.exp((np.array([value for _, value in table]) - best) / temperature)
        total = masses.sum()
        log_partition.append(best + temperature * np.log(total))
        for (labels, _), mass in zip(table, masses, strict=True):
            for start, k in zip(example.state_start, labels, strict=True):
                of_variables[start + k] += mass / total
            for entry, times in selected(example, labels):
                of_factors[entry] += times * mass / total
    return of_variables, of_factors, np.array(log_partition)


def dense(features):
    """A feature matrix as a dense float64 array."""
    matrix = features.matrix()
    return np.asarray(matrix.toarray() if sp.issparse(matrix) else matrix, np.float64)


def first_rows(graphs):
    """Each example's first row in the two feature matrices, (M, 2)."""
    return np.stack([graphs.arrays.examples[:-1].variable_row, graphs.arrays.examples[:-1].factor_row], axis=1)


def joint_features(graphs, m, labels):
    """phi(x_m, y), flat, in the order of the flat weights."""
    row_v, row_f = first_rows(graphs)[m]
    structure = graphs.structures[graphs.structure_of[m]]
    x, z = dense(graphs.variable_features), dense(graphs.factor_features)
    phi_v, phi_f = np.zeros((graphs.n_variable_blocks, x.shape[1])), np.zeros((graphs.n_factor_blocks, z.shape[1]))
    for t, row, k in zip(structure.variable_templates, structure.variable_rows, labels, strict=True):
        block = graphs.variable_templates[t].blocks[k]
        if block >= 0:
            phi_v[block] += x[row_v + row]
    for t, row, scope in zip(structure.factor_templates, structure.factor_rows, structure.scopes, strict=True):
        template = graphs.factor_templates[t]
        for entry, times in statistics(template, [int(labels[v]) for v in scope]).items():
            block = template.blocks.ravel()[entry]
            if block >= 0:
                phi_f[block] += times * z[row_f + row]
    return np.concatenate([phi_v.ravel(), phi_f.ravel()])


def score_tables(graphs, flat, loss_augmented=False):
    """Score tables (variables, factors) from the definition: fixed scores + w_block . x_row (+ loss)."""
    a = graphs.arrays
    x, z = dense(graphs.variable_features), dense(graphs.factor_features)
    cut = graphs.n_variable_blocks * x.shape[1]
    w_v, w_f = flat[:cut].reshape(-1, x.shape[1]), flat[cut:].reshape(-1, z.shape[1])
    of_variables, of_factors = [], []
    for s, (row_v, row_f) in zip(graphs.structure_of, first_rows(graphs), strict=True):
        structure = graphs.structures[s]
        for t, row in zip(structure.variable_templates, structure.variable_rows, strict=True):
            of_variables += _table(graphs.variable_templates[t], w_v, x[row_v + row])
        for t, row in zip(structure.factor_templates, structure.factor_rows, strict=True):
            of_factors += _table(graphs.factor_templates[t], w_f, z[row_f + row])
    of_variables, of_factors = np.array(of_variables), np.array(of_factors)
    if len(a.variable_scores):
        of_variables = of_variables + a.variable_scores
    if len(a.factor_scores):
        of_factors = of_factors + a.factor_scores
    if loss_augmented:
        of_variables = of_variables + a.losses
    return of_variables, of_factors


def _table(template, weights, row):
    blocks, fixed = template.blocks.ravel(), template.scores.ravel()
    return [score + (weights[block] @ row if block >= 0 else 0.0) for block, score in zip(blocks, fixed, strict=True)]

"""Random batches of factor graphs that use everything `FactorGraphs` can hold."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numba import njit

from maxmargin.problems import FactorGraphs, Features, Structure, Template, multi_label_problem, structured
from maxmargin.problems.losses import variable_losses


def coupled_labels(seed, n=30, n_labels=6):
    """Labels that pull each other on and off, so that changes of one label at a time often end below the best labeling."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    every = (np.arange(2**n_labels)[:, None] >> np.arange(n_labels)) & 1
    pairs = np.array([(i, j) for i in range(n_labels) for j in range(i + 1, n_labels)])
    strength = 2.0 * rng.choice([-1.0, 1.0], len(pairs))
    alone = x @ rng.normal(size=(3, n_labels)) @ every.T
    scores = alone + (every[:, pairs[:, 0]] * every[:, pairs[:, 1]]) @ strength + rng.gumbel(size=(n, len(every)))
    return multi_label_problem(x, every[scores.argmax(axis=1)], pairs, n_labels)


def random_problem(
    rng,
    *,
    kind="loopy",
    n_examples=5,
    max_variables=5,
    max_states=3,
    max_arity=3,
    sparse=False,
    forbidden=False,
    shared=True,
):
    """A labelled batch with Hamming losses.

    Parameters
    ----------
    rng : numpy Generator
    kind : "loopy" (any scopes) or "forest" (no cycle; some variables may be alone)
    n_examples, max_variables, max_states, max_arity : int
        States are 2 to max_states; each example has 1 to max_variables variables.
    sparse : bool
        Features in CSR.
    forbidden : bool
        Forbid some states and joint states, by template and by example; the truth stays allowed.
    shared : bool
        Share templates between variables of the same number of states and factors of the same shape; otherwise every
        variable and factor of every structure has its own.
    """
    pool_v, pool_f = _Pool(rng, shared, forbidden), _Pool(rng, shared, forbidden)
    constant = rng.random() < 0.5
    structures = []
    for _ in range(max(1, (n_examples + 1) // 2)):
        n_states = rng.integers(2, max_states + 1, rng.integers(1, max_variables + 1))
        scopes = (_forest if kind == "forest" else _loopy)(rng, len(n_states), max_arity)
        kinds_v = [pool_v.draw((int(n),)) for n in n_states]
        kinds_f = [pool_f.draw(tuple(int(n_states[v]) for v in scope)) for scope in scopes]
        rows_v = _rows(rng, len(n_states))
        rows_f = np.zeros(len(scopes), int) if constant else _rows(rng, len(scopes))
        structures.append(Structure(kinds_v, rows_v, kinds_f, rows_f, scopes))
    structure_of = rng.integers(0, len(structures), n_examples)

    used_v = [int(structures[s].variable_rows.max()) + 1 for s in structure_of]
    used_f = [int(structures[s].factor_rows.max(initial=-1)) + 1 for s in structure_of]
    first_v = np.concatenate([[0], np.cumsum(used_v)[:-1]])
    first_f = np.zeros(n_examples, int) if constant else np.concatenate([[0], np.cumsum(used_f)[:-1]])
    x = _features(rng, sum(used_v), int(rng.integers(1, 4)), sparse)
    z = Features.constant() if constant else _features(rng, max(1, sum(used_f)), int(rng.integers(1, 3)), sparse)

    n_states = [[pool_v.templates[t].n_states[0] for t in structures[s].variable_templates] for s in structure_of]
    labels = [_allowed(rng, structures[s], pool_v.templates, pool_f.templates) for s in structure_of]
    scores_v, scores_f = None, None
    if rng.random() < 0.5:
        pairs = [pair for n, y in zip(n_states, labels, strict=True) for pair in zip(n, y, strict=True)]
        scores_v = np.concatenate([_fixed(rng, n, y, forbidden) for n, y in pairs])
        tables = [np.empty(0)]
        for s, y in zip(structure_of, labels, strict=True):
            for t, scope in zip(structures[s].factor_templates, structures[s].scopes, strict=True):
                shape = pool_f.templates[t].n_states
                truth = int(np.ravel_multi_index([y[v] for v in scope], shape))
                tables.append(_fixed(rng, int(np.prod(shape)), truth, forbidden))
        scores_f = np.concatenate(tables)
    flat_labels, flat_states = np.concatenate(labels).astype(np.int32), np.concatenate(n_states)
    losses = variable_losses(flat_labels, flat_states, np.array([len(one) for one in labels]), "hamming")
    return FactorGraphs(
        structures, structure_of, pool_v.templates, pool_f.templates, x, z, first_v, first_f, flat_labels, losses,
        scores_v, scores_f, rng.random(n_examples) + 0.5,
    )  # fmt: skip


class _Pool:
    """Templates by shape, made when first asked for."""

    def __init__(self, rng, shared, forbidden):
        self.rng, self.shared, self.forbidden = rng, shared, forbidden
        self.templates, self.of_shape, self.n_blocks = [], {}, 0

    def draw(self, shape):
        known = self.of_shape.setdefault(shape, [])
        # At most two templates a shape, so that most members share theirs.
        if not (self.shared and known and (len(known) == 2 or self.rng.random() < 0.7)):
            blocks = np.full(shape, -1)
            given = self.rng.random(shape) < 0.8
            blocks[given] = self.n_blocks + np.arange(given.sum())
            self.n_blocks += int(given.sum())
            scores = np.where(self.rng.random(shape) < 0.3, self.rng.normal(size=shape), 0.0)
            if self.forbidden:
                out = self.rng.random(shape) < 0.2
                out.flat[0] = False  # the labeling of zeros stays allowed, so every example has a labeling
                scores[out] = -np.inf
            known.append(len(self.templates))
            self.templates.append(Template(blocks, scores))
        return int(self.rng.choice(known)) if self.shared else known[-1]


def _forest(rng, n, max_arity):
    component = np.arange(n)
    scopes = []
    for _ in range(n + 1):
        arity = int(rng.integers(1, max_arity + 1))
        heads = rng.permutation(np.unique(component))[:arity]
        if len(heads) < arity:
            continue
        scope = [int(rng.choice(np.flatnonzero(component == head))) for head in heads]
        component[np.isin(component, heads)] = heads[0]
        scopes.append(tuple(scope))
    return scopes


def _loopy(rng, n, max_arity):
    arities = rng.integers(1, min(max_arity, n) + 1, rng.integers(0, 2 * n + 1))
    return [tuple(int(v) for v in rng.permutation(n)[:arity]) for arity in arities]


def _rows(rng, n):
    """One row for all, one row each, or runs of equal rows."""
    style = rng.integers(3)
    if style == 0:
        return np.zeros(n, int)
    if style == 1:
        return np.arange(n)
    return np.sort(rng.integers(0, 2, n))


def _features(rng, rows, columns, sparse):
    values = rng.normal(size=(rows, columns)) * (rng.random((rows, columns)) < 0.7)
    return Features(sp.csr_array(values) if sparse else values)


def _allowed(rng, structure, templates_v, templates_f):
    """A labeling that the templates allow: one of twenty random ones, or all zeros."""
    for _ in range(20):
        labels = [int(rng.integers(templates_v[t].n_states[0])) for t in structure.variable_templates]
        fixed = [templates_v[t].scores[k] for t, k in zip(structure.variable_templates, labels, strict=True)]
        for t, scope in zip(structure.factor_templates, structure.scopes, strict=True):
            fixed.append(templates_f[t].scores[tuple(labels[v] for v in scope)])
        if np.isfinite(fixed).all():
            return labels
    return [0] * len(structure.variable_templates)


def _fixed(rng, size, truth, forbidden):
    scores = rng.normal(size=size)
    if forbidden:
        out = rng.random(size) < 0.1
        out[truth] = False
        scores[out] = -np.inf
    return scores


@njit
def parity_maximise(unary, params, n_states, labels):
    """Best labels of binary variables, where an even number in state 1 scores params[0], and an odd one params[1]."""
    total, cost, cheapest, odd = 0.0, np.inf, -1, 0
    for i in range(len(labels)):
        zero, one = unary[2 * i], unary[2 * i + 1]
        if zero == -np.inf and one == -np.inf:
            return -np.inf
        labels[i] = 1 if one > zero else 0
        total += max(zero, one)
        odd ^= labels[i]
        if abs(one - zero) < cost:
            cost, cheapest = abs(one - zero), i
    if total - cost + params[1 - odd] > total + params[odd]:
        labels[cheapest] = 1 - labels[cheapest]
        return total - cost + params[1 - odd]
    return total + params[odd]


@njit
def parity_statistics(labels, n_states, out):
    """Indicator of an even and of an odd number in state 1."""
    out[:] = 0.0
    out[labels.sum() % 2] = 1.0


def random_structured_template(rng, name, n, n_states, forbidden=False, n_blocks=0):
    """A structured template over n variables; cardinality and parity ("custom") are for binary variables."""
    size = {"cardinality": n + 1, "chain": n_states**2, "tree": n_states**2, "custom": 2}[name]
    scores = 2 * rng.normal(size=size)
    if forbidden:
        out = rng.random(size) < 0.4
        out[rng.integers(size)] = False
        scores[out] = -np.inf
    blocks = np.where(rng.random(size) < 0.7, n_blocks + np.arange(size), -1)
    if name == "cardinality":
        return structured.cardinality(n, scores, blocks)
    if name == "chain":
        return structured.chain(n, n_states, scores, blocks)
    if name == "tree":
        parents = [-1] + [int(rng.integers(j)) for j in range(1, n)]
        return structured.tree(parents, n_states, scores, blocks)
    return structured.custom((2,) * n, 2, parity_maximise, parity_statistics, scores, blocks)


def random_structured_problem(
    rng, *, n_examples=4, max_variables=6, n_states=2, pairs=True, forbidden=False, names=None
):
    """Examples without labels, with one or two structured factors and some pairs over random scopes."""
    if names is None:
        names = ["cardinality", "chain", "tree", "custom"] if n_states == 2 else ["chain", "tree"]
    structures, templates = [], [Template(np.arange(n_states**2).reshape(n_states, n_states))]
    for _ in range(2):
        n = int(rng.integers(2, max_variables + 1))
        kinds, scopes = [], []
        for _ in range(int(rng.integers(1, 3))):
            arity = int(rng.integers(1, n + 1))
            last = int(templates[-1].blocks.max(initial=-1)) + 1
            templates.append(random_structured_template(rng, str(rng.choice(names)), arity, n_states, forbidden, last))
            kinds.append(len(templates) - 1)
            scopes.append(tuple(int(v) for v in rng.permutation(n)[:arity]))
        for _ in range(int(rng.integers(0, n + 1)) if pairs else 0):
            kinds.insert(0, 0)
            scopes.insert(0, tuple(int(v) for v in rng.permutation(n)[:2]))
        structures.append(Structure([0] * n, [0] * n, kinds, [0] * len(kinds), scopes))
    variable = [Template(np.arange(n_states))]
    one = Features.constant()
    zeros = [0] * n_examples
    return FactorGraphs(structures, rng.integers(0, 2, n_examples), variable, templates, one, one, zeros, zeros)

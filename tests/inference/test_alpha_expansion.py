"""Alpha expansion against enumeration of moves and of labelings, and against other engines."""

import itertools

import numpy as np
import pytest

from maxmargin.errors import DataError, OptionError
from maxmargin.inference import Engine, LoopyBP
from maxmargin.inference.alpha_expansion import AlphaExpansion
from maxmargin.inference.graph_cut import GraphCut
from maxmargin.inference.rounding import improve
from maxmargin.problems import FactorGraphs, Features, Scores, Structure, Template
from reference import enumeration

TOLERANCE = 1e-9


def build(n_states, scopes, n_examples=1):
    """A batch of one structure, with a template per shape."""
    shapes = sorted({(k,) for k in n_states}), sorted({tuple(n_states[v] for v in scope) for scope in scopes})
    kinds_v = [shapes[0].index((k,)) for k in n_states]
    kinds_f = [shapes[1].index(tuple(n_states[v] for v in scope)) for scope in scopes]
    structure = Structure(kinds_v, [0] * len(n_states), kinds_f, [0] * len(scopes), scopes)
    one = Features.constant()
    templates = ([Template(np.full(shape, -1)) for shape in side] for side in shapes)
    return FactorGraphs([structure], [0] * n_examples, *templates, one, one, [0] * n_examples, [0] * n_examples)


def random_scopes(rng, n, density=0.6):
    return [(i, j) for i in range(n) for j in range(i + 1, n) if rng.random() < density]


def metric(rng, k, kind):
    """Costs of a pair: 0 on the diagonal, symmetric, and no detour is cheaper."""
    if kind == "potts":
        return rng.random() * (1.0 - np.eye(k))
    apart = np.abs(np.subtract.outer(np.arange(k), np.arange(k)))
    return rng.random() * np.minimum(apart, 2.0)


def metric_problem(rng, n, k, kind, n_examples=4):
    scopes = random_scopes(rng, n)
    graphs = build([k] * n, scopes, n_examples)
    tables = [-metric(rng, k, kind).ravel() for _ in range(n_examples * len(scopes))]
    return graphs, Scores(rng.normal(size=n * k * n_examples), np.concatenate([np.empty(0), *tables]))


def any_problem(rng, n, k, n_examples=4, whole=False):
    """Pairs of no particular kind, and some factors of one variable."""
    scopes = random_scopes(rng, n) + [(int(v),) for v in rng.integers(0, n, 2)]
    graphs = build([k] * n, scopes, n_examples)
    sizes = int(graphs.example_states[-1]), int(graphs.example_tables[-1])
    if whole:
        return graphs, Scores(*(rng.integers(-2, 3, size).astype(float) for size in sizes))
    return graphs, Scores(rng.normal(size=sizes[0]), rng.normal(size=sizes[1]))


def best_move(example, scores, labels, k):
    """The best score that any expansion move reaches: all states, all subsets of variables."""
    best = -np.inf
    for alpha in range(k):
        for subset in itertools.product((False, True), repeat=len(labels)):
            moved = [alpha if taken else now for taken, now in zip(subset, labels, strict=True)]
            best = max(best, enumeration.labeling_score(example, scores, moved))
    return best


@pytest.mark.parametrize("kind", ["potts", "truncated linear"])
@pytest.mark.parametrize(("seed", "n", "k"), [(0, 8, 3), (1, 7, 4), (2, 4, 5)])
def test_no_move_improves_a_metric_problem(kind, seed, n, k):
    graphs, scores = metric_problem(np.random.default_rng(seed), n, k, kind)
    found = AlphaExpansion().maximise(graphs, scores)
    np.testing.assert_array_equal(found.values, graphs.labeling_scores(scores, found.labels))
    np.testing.assert_array_equal(found.bounds, np.inf)
    assert found.labels.dtype == np.int32
    start = AlphaExpansion(max_sweeps=0).maximise(graphs, scores)
    np.testing.assert_array_equal(start.labels, scores.variables.reshape(-1, k).argmax(axis=1))
    assert (found.values > start.values).any()
    for m, example in enumerate(enumeration.examples(graphs)):
        own = found.labels[m * n : (m + 1) * n]
        assert best_move(example, scores, own, k) <= found.values[m] + TOLERANCE


@pytest.mark.parametrize("kind", ["potts", "truncated linear"])
@pytest.mark.parametrize("seed", range(5))
def test_costs_within_the_proven_factor(kind, seed):
    n, k = 6, 4
    graphs, scores = metric_problem(np.random.default_rng(seed), n, k, kind, n_examples=3)
    # Own costs from 0 up: a variable's best state costs nothing.
    most = scores.variables.reshape(-1, n, k).max(axis=2).sum(axis=1)
    cost = most - AlphaExpansion().maximise(graphs, scores).values
    least = most - enumeration.maximise(graphs, scores)[1]
    assert (least >= -TOLERANCE).all()
    assert (cost <= 2 * (1 if kind == "potts" else 2) * least + TOLERANCE).all()


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_scores_never_fall_whatever_the_pairs(seed, whole):
    rng = np.random.default_rng(seed)
    k = int(rng.integers(2, 6))
    graphs, scores = any_problem(rng, 6 if k < 5 else 4, k, n_examples=10, whole=whole)
    last = AlphaExpansion(max_sweeps=0).maximise(graphs, scores).values
    first = last
    for sweeps in range(1, 6):
        values = AlphaExpansion(sweeps).maximise(graphs, scores).values
        assert (values >= last - TOLERANCE).all()
        last = values
    assert (last > first + 0.1).any()
    best = enumeration.maximise(graphs, scores)[1]
    found = AlphaExpansion().maximise(graphs, scores)
    assert (found.values <= best + TOLERANCE).all()
    assert (found.values >= last - TOLERANCE).all()


@pytest.mark.parametrize("seed", range(5))
def test_two_states_are_one_cut(seed):
    rng = np.random.default_rng(seed)
    graphs, scores = any_problem(rng, 9, 2, n_examples=10)
    for example in enumeration.examples(graphs):
        for start, shape in zip(example.table_start, example.shapes, strict=True):
            table = scores.factors[start : start + 4]
            if len(shape) == 2 and table[0] + table[3] < table[1] + table[2]:
                table[:] = table[[1, 0, 3, 2]]
    found, best = AlphaExpansion().maximise(graphs, scores), GraphCut().maximise(graphs, scores)
    np.testing.assert_array_equal(best.bounds, best.values)
    np.testing.assert_allclose(found.values, best.values, rtol=0, atol=TOLERANCE)


def test_a_potts_grid_against_other_engines():
    rng = np.random.default_rng(7)
    side, k = 30, 5
    at = np.arange(side * side).reshape(side, side)
    ends = [(at[:, :-1], at[:, 1:]), (at[:-1], at[1:])]
    scopes = [(int(i), int(j)) for one, other in ends for i, j in zip(one.ravel(), other.ravel(), strict=True)]
    graphs = build([k] * side**2, scopes)
    for strength in (0.3, 1.0, 2.0):
        scores = Scores(rng.normal(size=side**2 * k), np.tile(strength * np.eye(k).ravel(), len(scopes)))
        found = AlphaExpansion().maximise(graphs, scores)
        single = AlphaExpansion(max_sweeps=0).maximise(graphs, scores).labels.copy()
        improve(graphs.arrays, scores.variables, scores.factors, single)
        assert found.values[0] >= graphs.labeling_scores(scores, single)[0]
        # Belief propagation is close to exact where pairs are weak, and gets lost where they are strong.
        messages = LoopyBP().maximise(graphs, scores).values[0]
        assert found.values[0] >= (messages if strength == 2.0 else 0.99 * messages)


def test_variables_of_many_kinds():
    # Two parts with 2 and 4 states, and a variable of 3 that stands alone with a factor of its own.
    n_states, scopes = [2, 4, 2, 4, 3], [(0, 2), (1, 3), (4,), (3, 1)]
    graphs = build(n_states, scopes, n_examples=20)
    rng = np.random.default_rng(0)
    scores = Scores(rng.normal(size=15 * 20), rng.normal(size=39 * 20))
    found = AlphaExpansion().maximise(graphs, scores)
    labels = found.labels.reshape(20, 5)
    assert (labels < np.array(n_states)).all()
    own = scores.variables.reshape(20, 15)[:, 12:] + scores.factors.reshape(20, 39)[:, 20:23]
    np.testing.assert_array_equal(labels[:, 4], own.argmax(axis=1))
    best = enumeration.maximise(graphs, scores)[1]
    assert (found.values <= best + TOLERANCE).all()
    assert np.mean(found.values >= best - TOLERANCE) > 0.5


def test_refusals():
    engine = AlphaExpansion()
    assert isinstance(engine, Engine)
    assert not engine.exact
    three = build([2, 2, 2], [(0, 1), (0, 1, 2)])
    assert engine.refusal(three) == "Example 0: factor 1 joins 3 variables; expansion moves take factors of 1 or 2."
    unlike = build([2, 3], [(0, 1)])
    assert engine.refusal(unlike) == (
        "Example 0: factor 0 joins variables with 2 and 3 states; expansion moves need the same number."
    )
    with pytest.raises(DataError, match="joins variables with 2 and 3 states"):
        engine.maximise(unlike, Scores(np.zeros(5), np.zeros(6)))
    graphs = build([3, 3], [(0, 1)], n_examples=2)
    assert engine.refusal(graphs) is None
    scores = Scores(np.zeros(12), np.zeros(18))
    scores.factors[10] = -np.inf
    with pytest.raises(DataError, match=r"Example 1 has a score of -inf; expansion moves take finite scores only\."):
        engine.maximise(graphs, scores)
    scores.factors[10] = np.nan
    with pytest.raises(DataError, match=r"Example 1 has a score of NaN or \+inf"):
        engine.maximise(graphs, scores)
    with pytest.raises(OptionError, match="not marginals"):
        engine.marginals(graphs, scores)
    with pytest.raises(OptionError, match="max_sweeps=-1 is not possible"):
        AlphaExpansion(-1)

"""Dual decomposition: bounds against enumeration, linear programs and cuts; labelings against enumeration."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp
from tests.reference import enumeration
from tests.reference.random_problems import (
    parity_maximise,
    parity_statistics,
    random_problem,
    random_structured_problem,
)

from maxmargin.errors import DataError, OptionError
from maxmargin.inference import Engine, Exhaustive, GraphCut, LinearProgram
from maxmargin.inference.dual_decomposition import DualDecomposition
from maxmargin.problems import FactorGraphs, Features, Scores, Structure, Template, multi_label_problem
from maxmargin.problems.structured import at_least, at_most, chain, custom, exactly, exactly_one, tree

INF = np.inf
some = settings(max_examples=25, derandomize=True, deadline=None)
seeds = st.integers(0, 10**6)


def check(graphs, scores, engine=None):
    """All that is promised of every answer; returns it with the best scores."""
    found = (engine or DualDecomposition()).maximise(graphs, scores)
    best = Exhaustive().maximise(graphs, scores).values
    assert found.labels.dtype == np.int32
    assert not np.isnan(found.bounds).any()
    np.testing.assert_array_equal(found.values, graphs.labeling_scores(scores, found.labels))
    scale = 1e-9 * (1 + np.abs(best))
    assert (found.bounds >= best - scale).all()
    assert (found.values <= np.minimum(found.bounds, best + scale)).all()
    met = found.bounds == found.values
    np.testing.assert_allclose(found.values[met], best[met], rtol=1e-8, atol=1e-8)
    open_ = np.logical_or.reduceat(found.ambiguous, graphs.example_variables[:-1])
    assert not open_[met].any()
    return found, best


def graph(n, n_states, scopes, templates=None, kinds=None):
    """One example without labels: variables of n_states states, and a table or the given template for each scope."""
    if templates is None:
        shapes = sorted({len(scope) for scope in scopes})
        templates = [Template(np.zeros((n_states,) * arity, int)) for arity in shapes]
        kinds = [shapes.index(len(scope)) for scope in scopes]
    one = Features.constant()
    structure = Structure([0] * n, [0] * n, kinds, [0] * len(scopes), scopes)
    return FactorGraphs([structure], [0], [Template(np.zeros(n_states, int))], templates, one, one, [0], [0])


def grid_edges(height, width):
    at = np.arange(height * width).reshape(height, width)
    return np.concatenate(
        [np.stack([at[:, :-1], at[:, 1:]], axis=-1).reshape(-1, 2), np.stack([at[:-1], at[1:]], axis=-1).reshape(-1, 2)]
    )


def normal_scores(rng, graphs, strength=1.0):
    return Scores(rng.normal(size=graphs.example_states[-1]), strength * rng.normal(size=graphs.example_tables[-1]))


@pytest.mark.parametrize("forbidden", [False, True])
@given(seed=seeds, smoothing=st.sampled_from([0, 6]))
@some
def test_random_graphs(forbidden, seed, smoothing):
    rng = np.random.default_rng(seed)
    graphs = random_problem(rng, max_variables=6, max_states=4, forbidden=forbidden)
    scores = graphs.scores(2 * rng.normal(size=graphs.n_weights), loss_augmented=True)
    check(graphs, scores, DualDecomposition(smoothing=smoothing))


@pytest.mark.parametrize("forbidden", [False, True])
@given(seed=seeds)
@some
def test_forests_are_solved(forbidden, seed):
    rng = np.random.default_rng(seed)
    graphs = random_problem(rng, kind="forest", max_variables=7, forbidden=forbidden)
    found, best = check(graphs, graphs.scores(2 * rng.normal(size=graphs.n_weights)))
    np.testing.assert_array_equal(found.bounds, found.values)
    np.testing.assert_allclose(found.values, best, rtol=1e-9, atol=1e-9)


def test_ties_are_no_obstacle_on_chains():
    rng = np.random.default_rng(1)
    graphs = graph(8, 3, [(i, i + 1) for i in range(7)])
    for _ in range(20):
        scores = Scores(rng.integers(-1, 2, 24).astype(float), rng.integers(-1, 2, 63).astype(float))
        found, _ = check(graphs, scores)
        assert found.bounds[0] == found.values[0]


def shares(problems):
    """How many bounds are within 1e-6 of the linear program's, with and without smoothing; none may be below."""
    pytest.importorskip("highspy")
    close = {0: [], 6: []}
    for graphs, scores in problems:
        program = LinearProgram().maximise(graphs, scores).bounds
        scale = 1 + np.abs(program)
        for smoothing, seen in close.items():
            gap = (DualDecomposition(1000, 1e-9, smoothing).maximise(graphs, scores).bounds - program) / scale
            # Where the linear program is tight it may meet the best score from above, and this engine from below.
            assert (gap >= -1e-9).all()
            seen += list(gap <= 1e-6)
    return np.mean(close[0]), np.mean(close[6])


def test_most_bounds_on_pairs_are_those_of_the_linear_program():
    def problems():
        for seed in range(40):
            rng = np.random.default_rng(seed)
            graphs = random_problem(rng, max_variables=7, max_states=3, max_arity=2)
            yield graphs, graphs.scores(2 * rng.normal(size=graphs.n_weights))

    plain, smoothed = shares(problems())
    assert plain >= 0.97
    assert smoothed >= 0.99


def test_smoothing_helps_where_sweeps_stall():
    def problems():
        for seed in range(30):
            rng = np.random.default_rng(seed)
            scopes = [tuple(int(v) for v in rng.permutation(8)[:3]) for _ in range(10)]
            graphs = graph(8, 3, scopes)
            yield graphs, normal_scores(rng, graphs)

    plain, smoothed = shares(problems())
    assert smoothed > plain


@pytest.mark.parametrize("supermodular", [False, True])
def test_binary_grids_against_maximum_flow(supermodular):
    rng = np.random.default_rng(3)
    graphs = graph(400, 2, grid_edges(20, 20))
    scores = normal_scores(rng, graphs)
    tables = scores.factors.reshape(-1, 4)
    if supermodular:
        tables[:, 0] += np.maximum(0, tables[:, 1] + tables[:, 2] - tables[:, 0] - tables[:, 3])
    cut, found = GraphCut().maximise(graphs, scores), DualDecomposition(1000, 1e-9).maximise(graphs, scores)
    assert found.bounds[0] == pytest.approx(cut.bounds[0], rel=1e-6)
    assert found.bounds[0] >= cut.values[0] * (1 - 1e-9)
    if supermodular:
        assert found.values[0] == pytest.approx(cut.values[0], rel=1e-9)
        assert found.bounds[0] == found.values[0]


def test_a_frustrated_triangle_is_left_open():
    graphs = multi_label_problem(np.ones((1, 1)), None, np.array([[0, 1], [0, 2], [1, 2]]), 3)
    found, _ = check(graphs, Scores(np.zeros(6), np.tile([0.0, 1.0, 1.0, 0.0], 3)))
    assert found.bounds[0] == pytest.approx(3.0)
    assert found.values[0] == 2.0
    assert found.ambiguous.all()


def test_small_shapes():
    # No factors; one state; factors of one variable; two factors on the same variables.
    check(graph(3, 2, []), Scores(np.array([1.0, 3.0, 0.5, -2.0, 0.0, 0.0]), np.empty(0)))
    check(graph(2, 1, [(0, 1)]), Scores(np.array([1.0, 2.0]), np.array([-4.0])))
    graphs = graph(2, 2, [(1,), (0, 1), (1, 0), (0,)])
    found, _ = check(graphs, normal_scores(np.random.default_rng(0), graphs))
    assert found.bounds[0] == found.values[0]
    graphs = graph(2, 2, [(1,)])
    hard = Scores(np.array([0.0, -INF, 0.0, 5.0]), np.array([1.0, -INF]))
    np.testing.assert_array_equal(check(graphs, hard)[0].labels, [0, 0])


# ---------------------------------------------------------------------------------------------- structured factors


@pytest.mark.parametrize("n_states", [2, 3])
@pytest.mark.parametrize("forbidden", [False, True])
@given(seed=seeds)
@some
def test_structured_factors(n_states, forbidden, seed):
    rng = np.random.default_rng(seed)
    graphs = random_structured_problem(rng, n_states=n_states, forbidden=forbidden)
    scores = graphs.scores(rng.normal(size=graphs.n_weights))
    best = enumeration.maximise(graphs, scores)[1]
    allowed = np.flatnonzero(best > -INF)
    if len(allowed):
        part = graphs.take(allowed)
        check(part, part.scores(rng.normal(size=graphs.n_weights)))
    for m in np.flatnonzero(best == -INF):
        one = graphs.take([m])
        found = answer(one, one.scores(np.zeros(graphs.n_weights)))
        if isinstance(found, str):
            assert "every labeling is forbidden" in found
        else:
            assert found.values[0] == -INF
            assert not np.isnan(found.bounds[0])


def answer(graphs, scores):
    """The result, or what the error says."""
    try:
        return DualDecomposition().maximise(graphs, scores)
    except DataError as error:
        return str(error)


@pytest.mark.parametrize(
    "template",
    [
        at_most(8, 3),
        exactly(8, 5),
        exactly_one(8),
        chain(8, 2, [[1.0, -2.0], [0.5, -INF]]),
        tree([-1, 0, 0, 1, 1, 2, 2, 3], 2, [[1.0, -2.0], [0.5, 0.3]]),
        custom((2,) * 8, 2, parity_maximise, parity_statistics, scores=[-INF, 0.0]),
    ],
    ids=["at_most", "exactly", "exactly_one", "chain", "tree", "custom"],
)
def test_one_structured_factor_is_solved(template):
    rng = np.random.default_rng(5)
    graphs = graph(8, 2, [tuple(int(v) for v in rng.permutation(8))], [template], [0])
    for _ in range(20):
        scores = Scores(rng.normal(size=16), template.scores)
        found, _ = check(graphs, scores)
        assert found.bounds[0] == found.values[0]


def as_tables(graphs, scores):
    """The same examples, one after the other, with a table for every structured factor."""
    for m, example in enumerate(enumeration.examples(graphs)):
        templates, tables = [], []
        for start, template in zip(example.table_start, example.templates, strict=True):
            templates.append(Template(np.zeros(template.n_states, int)))
            for labels in itertools.product(*(range(n) for n in template.n_states)):
                counted = enumeration.statistics(template, labels).items()
                tables.append(sum((times * scores.factors[start + entry] for entry, times in counted), 0.0))
        n = len(example.n_states)
        one = Features.constant()
        structure = Structure(
            [0] * n, [0] * n, np.arange(len(templates)), [0] * len(templates), example.structure.scopes
        )
        alone = FactorGraphs([structure], [0], graphs.variable_templates, templates, one, one, [0], [0])
        own = slice(graphs.example_states[m], graphs.example_states[m + 1])
        yield alone, Scores(scores.variables[own], np.array(tables))


def test_bounds_with_structured_factors_are_those_of_their_tables():
    pytest.importorskip("highspy")
    close = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        graphs = random_structured_problem(rng, n_states=2 + seed % 2, max_variables=5)
        scores = graphs.scores(rng.normal(size=graphs.n_weights))
        bounds = DualDecomposition(1000, 1e-9).maximise(graphs, scores).bounds
        for bound, (alone, own) in zip(bounds, as_tables(graphs, scores), strict=True):
            program = LinearProgram().maximise(alone, own).bounds[0]
            assert bound >= program - 1e-9 * (1 + abs(program))
            close.append(bound <= program + 1e-6 * (1 + abs(program)))
    assert np.mean(close) >= 0.9


def test_a_budget_on_a_grid_is_kept():
    rng = np.random.default_rng(7)
    edges = [tuple(int(v) for v in edge) for edge in grid_edges(12, 12)]
    every, some_of = tuple(range(144)), tuple(range(0, 144, 3))
    templates = [Template(np.zeros((2, 2), int)), exactly(144, 20), at_least(48, 15)]
    graphs = graph(144, 2, [*edges, every, some_of], templates, [0] * len(edges) + [1, 2])
    pairs = np.outer(rng.random(len(edges)), [1.0, 0.0, 0.0, 1.0]).ravel()
    scores = Scores(rng.normal(size=288), np.concatenate([pairs, templates[1].scores, templates[2].scores]))
    found = DualDecomposition().maximise(graphs, scores)
    assert found.labels.sum() == 20
    assert found.labels[::3].sum() >= 15
    # An integer program says the same.
    assert found.values[0] == pytest.approx(best_with_budget(edges, scores), rel=1e-9)
    assert found.bounds[0] == found.values[0]


def best_with_budget(edges, scores):
    """The integer program over x in {0, 1}, and d_e >= |x_i - x_j|, of the test above."""
    n, strength = 144, scores.factors[: 4 * len(edges) : 4]
    gain = np.concatenate([scores.variables[1::2] - scores.variables[::2], -strength])
    row, column = np.repeat(np.arange(len(edges)), 2), np.array(edges).ravel()
    across = sp.csr_array((np.tile([1.0, -1.0], len(edges)), (row, column)), shape=(len(edges), n))
    own = sp.eye_array(len(edges))
    counts = np.zeros((2, n + len(edges)))
    counts[0, :n], counts[1, :n:3] = 1.0, 1.0
    limits = [
        LinearConstraint(sp.hstack([across, -own]), -INF, 0.0),
        LinearConstraint(sp.hstack([-across, -own]), -INF, 0.0),
        LinearConstraint(counts, [20, 15], [20, INF]),
    ]
    whole = np.concatenate([np.ones(n), np.zeros(len(edges))])
    solved = milp(-gain, constraints=limits, integrality=whole, bounds=Bounds(0, 1))
    assert solved.status == 0
    return scores.variables[::2].sum() + strength.sum() - solved.fun


def test_contradictions():
    # Each variable alone could be anything: only the bound of the whole knows better.
    pair = Template(np.zeros((2, 2), int))
    graphs = graph(2, 2, [(0, 1), (0, 1)], [pair, exactly(2, 2)], [0, 1])
    forbid = np.array([0.0, 0.0, 0.0, -INF, -INF, -INF, 0.0])
    with pytest.raises(DataError, match=r"Example 0: every labeling is forbidden by the hard constraints\."):
        DualDecomposition().maximise(graphs, Scores(np.zeros(4), forbid))
    # In an odd cycle of "exactly one of two", halves satisfy the relaxation, and no labeling does.
    graphs = graph(3, 2, [(0, 1), (1, 2), (0, 2)], [exactly_one(2)], [0] * 3)
    found = DualDecomposition().maximise(graphs, Scores(np.arange(6.0), np.tile([-INF, 0.0, -INF], 3)))
    assert found.values[0] == -INF
    assert np.isfinite(found.bounds[0])
    assert found.ambiguous.all()


# ---------------------------------------------------------------------------------------------------- the engine


def test_parts_of_a_batch_get_the_same_answers():
    rng = np.random.default_rng(2)
    graphs = random_problem(rng, n_examples=6, max_variables=6)
    weights = rng.normal(size=graphs.n_weights)
    whole = DualDecomposition().maximise(graphs, graphs.scores(weights))
    for one, other in zip(whole, DualDecomposition().maximise(graphs, graphs.scores(weights)), strict=True):
        np.testing.assert_array_equal(one, other)
    part = graphs.take([4, 1])
    some_of = DualDecomposition().maximise(part, part.scores(weights))
    np.testing.assert_array_equal(some_of.bounds, whole.bounds[[4, 1]])
    starts = graphs.example_variables
    chosen = np.concatenate([np.arange(starts[m], starts[m + 1]) for m in (4, 1)])
    np.testing.assert_array_equal(some_of.labels, whole.labels[chosen])
    np.testing.assert_array_equal(some_of.ambiguous, whole.ambiguous[chosen])


def test_scores_of_any_size():
    rng = np.random.default_rng(6)
    graphs = graph(9, 3, [(i, j) for i in range(9) for j in range(i)])
    scores = normal_scores(rng, graphs)
    plain = DualDecomposition().maximise(graphs, scores)
    for factor in (2.0**-60, 2.0**60):
        scaled = DualDecomposition().maximise(graphs, Scores(factor * scores.variables, factor * scores.factors))
        np.testing.assert_array_equal(scaled.labels, plain.labels)
        np.testing.assert_allclose(scaled.bounds, factor * plain.bounds, rtol=1e-12)


def test_more_rounds_never_loosen_the_bound():
    rng = np.random.default_rng(8)
    graphs = graph(30, 3, [tuple(int(v) for v in rng.permutation(30)[: 2 + i % 2]) for i in range(60)])
    scores = normal_scores(rng, graphs)
    bounds = [DualDecomposition(rounds, 0.0, 0).maximise(graphs, scores).bounds[0] for rounds in (1, 2, 4, 8, 16, 32)]
    assert (np.diff(bounds) <= 1e-12 * abs(bounds[0])).all()
    assert bounds[-1] < bounds[0]


def test_wrong_scores_are_named():
    graphs = random_problem(np.random.default_rng(0), n_examples=3)
    weights = np.zeros(graphs.n_weights)
    for value in (np.nan, INF):
        scores = graphs.scores(weights)
        scores.variables[graphs.example_states[1]] = value
        with pytest.raises(DataError, match=r"Example 1 has a score of NaN or \+inf"):
            DualDecomposition().maximise(graphs, scores)
    with pytest.raises(DataError, match=r"The scores of variables have shape \(3,\)"):
        DualDecomposition().maximise(graphs, Scores(np.zeros(3), scores.factors))


def test_options():
    for option, value in (
        ("max_rounds", 0),
        ("max_rounds", 1.5),
        ("max_rounds", True),
        ("tol", -1e-9),
        ("tol", np.nan),
        ("tol", INF),
        ("smoothing", -1),
        ("smoothing", 0.5),
    ):
        with pytest.raises(OptionError, match=f"{option}={value!r} is not possible"):
            DualDecomposition(**{option: value})


def test_the_contract():
    engine = DualDecomposition()
    graphs = random_problem(np.random.default_rng(0))
    assert isinstance(engine, Engine)
    assert engine.name == "dual_decomposition"
    assert not engine.exact
    assert engine.refusal(graphs) is None
    with pytest.raises(OptionError, match=r"not marginals"):
        engine.marginals(graphs, graphs.scores(np.zeros(graphs.n_weights)))


@given(seed=seeds, smoothing=st.sampled_from([0, 6]))
@some
def test_pairs_whose_unequal_states_score_the_same(seed, smoothing):
    rng = np.random.default_rng(seed)
    n_states = int(rng.integers(4, 6))
    graphs = graph(5, n_states, [(0, 1), (1, 2), (3, 2), (0, 3), (4, 1)])
    unequal = np.where(rng.random(5) < 0.2, 0.0, rng.normal(size=5))[:, None, None]
    tables = np.where(np.eye(n_states, dtype=bool), 2 * rng.normal(size=(5, n_states))[:, :, None], unequal)
    if seed % 3 == 0:
        # One that is not of the kind, and forbidden states, which are.
        tables[1] = rng.normal(size=(n_states, n_states))
        tables[2][~np.eye(n_states, dtype=bool)] = -INF
        tables[3, 0, 0] = -INF
    scores = Scores(rng.normal(size=5 * n_states), tables.ravel())
    check(graphs, scores, DualDecomposition(smoothing=smoothing))
    # A difference too small to count leaves nothing but general tables, and must change as little.
    other = Scores(scores.variables, tables.ravel() * (1.0 + 1e-13 * rng.random(tables.size)))
    one, two = (DualDecomposition(smoothing=0, max_rounds=5).maximise(graphs, s) for s in (scores, other))
    np.testing.assert_allclose(one.bounds, two.bounds, rtol=1e-9, atol=1e-9)

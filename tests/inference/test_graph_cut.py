"""Graph cuts against enumeration and against the local-polytope linear program, solved by HiGHS."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from maxmargin.errors import DataError, OptionError
from maxmargin.inference import Engine, Exhaustive
from maxmargin.inference.graph_cut import CutRoom, GraphCut, network
from maxmargin.inference.max_flow import DenseFlow, Flow, SparseFlow
from maxmargin.problems import FactorGraphs, Features, Scores, Structure, Template, multi_label_problem
from reference import enumeration
from reference.random_problems import random_problem

TOLERANCE = 1e-9


def random_edges(rng, n, density):
    pairs = np.stack(np.triu_indices(n, 1), axis=1)
    return pairs[rng.random(len(pairs)) < density]


def with_scores(rng, n, edges, n_examples=3, strength=1.0):
    """A multi-label batch with tables of normal scores."""
    graphs = multi_label_problem(np.ones((n_examples, 1)), None, edges, n)
    sizes = int(graphs.example_states[-1]), int(graphs.example_tables[-1])
    return graphs, Scores(rng.normal(size=sizes[0]), strength * rng.normal(size=sizes[1]))


def problems(seed):
    """Complete and sparse graphs of 2 to 9 variables, with weak and strong pairs, and batches of many shapes."""
    rng = np.random.default_rng(seed)
    for density in (1.0, 0.4):
        for strength in (0.1, 0.4, 3.0):
            n = int(rng.integers(2, 10))
            yield with_scores(rng, n, random_edges(rng, n, density), strength=strength)
    # Pure interactions of both signs and little else: the relaxation leaves most variables open.
    graphs, scores = with_scores(rng, 7, random_edges(rng, 7, 1.0))
    scores.factors[:] = np.outer(scores.factors[::4], [1, -1, -1, 1]).ravel()
    yield graphs, scores
    graphs = random_problem(rng, max_variables=8, max_states=2, max_arity=2)
    yield graphs, graphs.scores(2 * rng.normal(size=graphs.n_weights), loss_augmented=True)


def whole_numbers(rng, graphs):
    """Scores that tie often, and add without rounding."""
    sizes = graphs.example_states[-1], graphs.example_tables[-1]
    return Scores(*(rng.integers(-2, 3, int(size)).astype(float) for size in sizes))


def local_polytope(example, scores):
    """The best value over the local polytope of one example."""
    cost, rows, columns, values, rhs = [], [], [], [], []

    def equality(terms, value):
        for column, coefficient in terms:
            rows.append(len(rhs))
            columns.append(column)
            values.append(coefficient)
        rhs.append(value)

    marginals = []
    for start, n in zip(example.state_start, example.n_states, strict=True):
        marginals.append([len(cost) + k for k in range(n)])
        cost.extend(scores.variables[start : start + n])
        equality([(one, 1.0) for one in marginals[-1]], 1.0)
    for start, scope, shape in zip(example.table_start, example.structure.scopes, example.shapes, strict=True):
        own = len(cost) + np.arange(int(np.prod(shape))).reshape(shape)
        cost.extend(scores.factors[start : start + own.size])
        for j, v in enumerate(scope):
            for k in range(shape[j]):
                equality([(one, 1.0) for one in np.take(own, k, axis=j).ravel()] + [(marginals[v][k], -1.0)], 0.0)
    matrix = sp.csr_array((values, (rows, columns)), shape=(len(rhs), len(cost)))
    options = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    solved = linprog(-np.array(cost), A_eq=matrix, b_eq=rhs, bounds=(0, None), method="highs", options=options)
    assert solved.status == 0
    return -solved.fun


def relaxed_value(example, scores, marginals):
    """The best value over the local polytope, given half-integral marginals of the variables."""
    ones = [marginals[start + 1] for start in example.state_start]
    total = 0.0
    for start in example.state_start:
        total += marginals[start : start + 2] @ scores.variables[start : start + 2]
    for start, scope in zip(example.table_start, example.structure.scopes, strict=True):
        table = scores.factors[start : start + 2 ** len(scope)]
        if len(scope) == 1:
            total += (1 - ones[scope[0]]) * table[0] + ones[scope[0]] * table[1]
            continue
        p, q = ones[scope[0]], ones[scope[1]]
        # mu(1, 1) is between these two, and the rest follows from it.
        total += max(table @ [1 - p - q + both, q - both, p - both, both] for both in (max(0.0, p + q - 1), min(p, q)))
    return total


def check(graphs, scores):
    """All that is promised of a relaxation and of its rounding; returns the number of ambiguous variables."""
    relaxed, found = GraphCut().relax(graphs, scores), GraphCut().maximise(graphs, scores)
    assert np.isin(relaxed.variables, [0.0, 0.5, 1.0]).all()
    np.testing.assert_array_equal(relaxed.variables[::2] + relaxed.variables[1::2], 1.0)
    np.testing.assert_array_equal(relaxed.ambiguous, relaxed.variables[1::2] == 0.5)
    np.testing.assert_array_equal(found.values, graphs.labeling_scores(scores, found.labels))
    assert (found.values <= found.bounds).all()
    decided = ~relaxed.ambiguous
    np.testing.assert_array_equal(found.labels[decided], relaxed.variables[1::2][decided])
    assert found.labels.dtype == np.int32
    for m, example in enumerate(enumeration.examples(graphs)):
        scale = 1 + abs(relaxed.bounds[m])
        table = enumeration.all_scores(example, scores)
        best = max(value for _, value in table)
        assert relaxed.bounds[m] >= best - 1e-12 * scale
        assert relaxed.bounds[m] == pytest.approx(local_polytope(example, scores), rel=TOLERANCE, abs=TOLERANCE)
        assert relaxed.bounds[m] == pytest.approx(
            relaxed_value(example, scores, relaxed.variables), rel=TOLERANCE, abs=TOLERANCE
        )
        own = slice(example.first_variable, example.first_variable + len(example.n_states))
        kept = np.flatnonzero(decided[own])
        agreeing = [value for y, value in table if (np.array(y)[kept] == found.labels[own][kept]).all()]
        assert max(agreeing) >= best - TOLERANCE
        if len(kept) == len(example.n_states):
            assert found.values[m] == pytest.approx(best, abs=TOLERANCE)
            assert found.bounds[m] == found.values[m]
        for i in np.flatnonzero(relaxed.ambiguous[own]):
            changed = found.labels[own].copy()
            changed[i] = 1 - changed[i]
            assert enumeration.labeling_score(example, scores, changed) <= found.values[m] + TOLERANCE
    return int(relaxed.ambiguous.sum())


@pytest.mark.parametrize("seed", range(6))
def test_relaxation_and_rounding(seed):
    ambiguous, variables = 0, 0
    for graphs, scores in problems(seed):
        ambiguous += check(graphs, scores)
        variables += len(graphs.labels)
    assert 0 < ambiguous < variables


@pytest.mark.parametrize("seed", range(4))
def test_ties(seed):
    rng = np.random.default_rng(seed)
    for graphs, _ in problems(seed):
        scores = whole_numbers(rng, graphs)
        check(graphs, scores)
        # A tenth is not a binary fraction, so the same ties are left to rounding.
        tenths = Scores(scores.variables / 10, scores.factors / 10)
        check(graphs, tenths)
        np.testing.assert_array_equal(
            GraphCut().relax(graphs, tenths).ambiguous, GraphCut().relax(graphs, scores).ambiguous
        )


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(2, 8), st.sampled_from(["whole", "tenths", "wide", "normal"]))
def test_decided_labels_together_are_part_of_a_best_labeling(seed, n, kind):
    rng = np.random.default_rng(seed)
    graphs, scores = with_scores(rng, n, random_edges(rng, n, 0.6), n_examples=2, strength=0.5)
    if kind in ("whole", "tenths"):
        scores = whole_numbers(rng, graphs)
        scale = 0.1 if kind == "tenths" else 1.0
        scores = Scores(scale * scores.variables, scale * scores.factors)
    elif kind == "wide":
        # Some scores are as small as what counts as saturated, some smaller, some larger.
        scores = Scores(*(one * 10.0 ** rng.integers(-14, 1, len(one)) for one in scores))
    check(graphs, scores)


@pytest.mark.parametrize("seed", range(4))
def test_ambiguous_is_what_no_optimal_relaxation_decides(seed):
    rng = np.random.default_rng(seed)
    opened = settled = 0
    for graphs, _ in problems(seed):
        scores = whole_numbers(rng, graphs)
        relaxed = GraphCut().relax(graphs, scores)
        for m, example in enumerate(enumeration.examples(graphs)):
            for i, start in enumerate(example.state_start):
                # Scores are whole numbers and marginals halves, so that what is not optimal falls short by a half.
                values = []
                for k in (0, 1):
                    forced = scores.variables.copy()
                    forced[start + 1 - k] -= 100.0
                    values.append(local_polytope(example, Scores(forced, scores.factors)))
                is_open = max(values) < relaxed.bounds[m] - 0.4
                assert relaxed.ambiguous[example.first_variable + i] == is_open
                opened += is_open
                settled += not is_open and min(values) > relaxed.bounds[m] - 0.1
    assert opened > 0
    # Ties that either state could win.
    assert settled > 0


def test_an_even_cycle_of_ties_is_settled():
    # Neighbours must differ; a cycle of four can do it in two ways, and halves are as good.
    edges = np.array([[0, 1], [1, 2], [2, 3], [0, 3]])
    graphs = multi_label_problem(np.ones((1, 1)), None, edges, 4)
    scores = Scores(np.zeros(8), np.tile([0.0, 1.0, 1.0, 0.0], 4))
    assert check(graphs, scores) == 0
    found = GraphCut().maximise(graphs, scores)
    np.testing.assert_array_equal(found.bounds, 4.0)
    assert found.labels.tolist() in ([0, 1, 0, 1], [1, 0, 1, 0])


@pytest.mark.parametrize(("n", "density"), [(15, 1.0), (15, 0.3)])
@pytest.mark.parametrize("strength", [0.05, 0.1, 0.3, 2.0])
def test_dense_and_sparse_graphs(n, density, strength):
    # Many arcs a node and few take different ways to the largest flow.
    rng = np.random.default_rng(n)
    for whole in (False, True):
        graphs, scores = with_scores(rng, n, random_edges(rng, n, density), n_examples=4, strength=strength)
        if whole:
            scores = whole_numbers(rng, graphs)
        relaxed = GraphCut().relax(graphs, scores)
        best = Exhaustive().maximise(graphs, scores).values
        # A reward for what is decided leaves a best labeling best.
        reward = np.where(relaxed.variables == 1.0, 100.0, 0.0)
        decided = np.add.reduceat(~relaxed.ambiguous, graphs.example_variables[:-1])
        agreeing = Exhaustive().maximise(graphs, Scores(scores.variables + reward, scores.factors)).values
        np.testing.assert_allclose(agreeing - 100.0 * decided, best, rtol=0, atol=TOLERANCE)
        for m, example in enumerate(enumeration.examples(graphs)):
            for value in (local_polytope(example, scores), relaxed_value(example, scores, relaxed.variables)):
                assert relaxed.bounds[m] == pytest.approx(value, rel=TOLERANCE, abs=TOLERANCE)


def test_a_batch_of_dense_and_sparse_graphs_has_the_bits_of_each_by_itself():
    rng = np.random.default_rng(5)
    edges = random_edges(rng, 15, 1.0), random_edges(rng, 15, 0.3)
    (one, one_scores), (two, two_scores) = (with_scores(rng, 15, some, strength=0.3) for some in edges)
    structures = [one.structures[0], two.structures[0]]
    # Numbers of templates go on where the first problem's end.
    first = len(one.factor_templates)
    moved = Structure(
        structures[1].variable_templates, [0] * 15, np.asarray(structures[1].factor_templates) + first,
        [0] * len(edges[1]), [tuple(pair) for pair in edges[1]],
    )  # fmt: skip
    both = FactorGraphs(
        [structures[0], moved], [0, 1, 1, 0], one.variable_templates, [*one.factor_templates, *two.factor_templates],
        Features.constant(), Features.constant(), [0] * 4, [0] * 4,
    )  # fmt: skip
    places = (one_scores, one, 0), (two_scores, two, 0), (two_scores, two, 1), (one_scores, one, 1)
    scores = Scores(
        np.concatenate([s.variables[g.example_states[m] : g.example_states[m + 1]] for s, g, m in places]),
        np.concatenate([s.factors[g.example_tables[m] : g.example_tables[m + 1]] for s, g, m in places]),
    )
    kinds = [type(CutRoom.of(g.arrays.largest, network(g)).flow) for g in (one, two, both)]
    assert kinds == [DenseFlow, SparseFlow, Flow]
    apart, together = (
        (GraphCut().relax(one, one_scores), GraphCut().relax(two, two_scores)),
        GraphCut().relax(both, scores),
    )
    for k, (which, m) in enumerate(((0, 0), (1, 0), (1, 1), (0, 1))):
        assert together.bounds[k] == apart[which].bounds[m]
        np.testing.assert_array_equal(
            together.variables[30 * k : 30 * k + 30], apart[which].variables[30 * m : 30 * m + 30]
        )


def test_all_scores_zero():
    graphs, scores = with_scores(np.random.default_rng(0), 4, random_edges(np.random.default_rng(0), 4, 1.0))
    zero = Scores(np.zeros_like(scores.variables), np.zeros_like(scores.factors))
    assert check(graphs, zero) == 0
    np.testing.assert_array_equal(GraphCut().relax(graphs, zero).bounds, 0.0)


@pytest.mark.parametrize("seed", range(5))
def test_supermodular_examples_are_solved(seed):
    rng = np.random.default_rng(seed)
    for graphs, scores in problems(seed):
        tables = scores.factors
        for example in enumeration.examples(graphs):
            for start, shape in zip(example.table_start, example.shapes, strict=True):
                if len(shape) == 2 and tables[start] + tables[start + 3] < tables[start + 1] + tables[start + 2]:
                    tables[start : start + 4] = tables[[start + 1, start, start + 3, start + 2]]
        for one in (scores, Scores(np.round(scores.variables), np.zeros_like(tables))):
            found = GraphCut().maximise(graphs, one)
            exact = Exhaustive().maximise(graphs, one)
            np.testing.assert_allclose(found.values, exact.values, rtol=0, atol=TOLERANCE)
            np.testing.assert_array_equal(found.bounds, found.values)
            assert not GraphCut().relax(graphs, one).ambiguous.any()
            check(graphs, one)
    # A change of which state is called 1 makes pairs across it submodular, and leaves the example as easy.
    n = 8
    graphs, scores = with_scores(rng, n, random_edges(rng, n, 1.0))
    flipped = rng.integers(0, 2, n)
    for example in enumeration.examples(graphs):
        for start, (i, j) in zip(example.table_start, example.structure.scopes, strict=True):
            alike = np.array([1, -1, -1, 1]) if flipped[i] == flipped[j] else np.array([-1, 1, 1, -1])
            scores.factors[start : start + 4] = rng.random() * alike
    assert check(graphs, scores) == 0
    np.testing.assert_allclose(
        GraphCut().maximise(graphs, scores).values, Exhaustive().maximise(graphs, scores).values, atol=TOLERANCE
    )


def test_frustrated_triangle():
    graphs = multi_label_problem(np.ones((1, 1)), None, np.array([[0, 1], [0, 2], [1, 2]]), 3)
    scores = Scores(np.zeros(6), np.tile([0.0, 1.0, 1.0, 0.0], 3))
    relaxed, found = GraphCut().relax(graphs, scores), GraphCut().maximise(graphs, scores)
    np.testing.assert_array_equal(relaxed.variables, 0.5)
    np.testing.assert_allclose(relaxed.bounds, 3.0)
    np.testing.assert_allclose(found.values, 2.0)


def test_a_single_variable():
    graphs = multi_label_problem(np.ones((2, 1)), None, np.empty((0, 2), np.int64), 1)
    scores = Scores(np.array([1.0, 3.0, 0.5, -2.0]), np.empty(0))
    assert check(graphs, scores) == 0
    found = GraphCut().maximise(graphs, scores)
    np.testing.assert_array_equal(found.labels, [1, 0])
    np.testing.assert_array_equal(found.bounds, [3.0, 0.5])


def test_no_factors():
    rng = np.random.default_rng(1)
    graphs, scores = with_scores(rng, 5, np.empty((0, 2), np.int64))
    assert check(graphs, scores) == 0
    np.testing.assert_array_equal(
        GraphCut().maximise(graphs, scores).labels, scores.variables[::2] < scores.variables[1::2]
    )


def three_shapes(factor_template=None, scopes=((0, 1), (2, 0)), n_states=2, **fixed):
    """Examples of structures 2, 0, 2, 1: one variable, a variable with a single, and the given factors."""
    one = Features.constant()
    pair = factor_template or Template(np.arange(4).reshape(2, 2))
    structures = [
        Structure([0], [0]),
        Structure([0, 0], [0, 0], [1], [0], [(1,)]),
        Structure([0, 0, 1], [0] * 3, [0] * len(scopes), [0] * len(scopes), scopes),
    ]
    templates = [Template([0, 1]), Template(np.arange(n_states))]
    return FactorGraphs(
        structures, [2, 0, 2, 1], templates, [pair, Template([4, 5])], one, one, [0] * 4, [0] * 4, **fixed
    )


def test_several_structures():
    rng = np.random.default_rng(2)
    graphs = three_shapes()
    scores = Scores(rng.normal(size=18), 3 * rng.normal(size=18))
    check(graphs, scores)
    whole = GraphCut().relax(graphs, scores)
    part = graphs.take([3, 2])
    some = GraphCut().relax(
        part,
        Scores(
            np.concatenate([scores.variables[14:18], scores.variables[8:14]]),
            np.concatenate([scores.factors[16:18], scores.factors[8:16]]),
        ),
    )
    np.testing.assert_array_equal(some.bounds, whole.bounds[[3, 2]])
    np.testing.assert_array_equal(some.variables, np.concatenate([whole.variables[14:18], whole.variables[8:14]]))


def test_answers_repeat():
    rng = np.random.default_rng(4)
    graphs, scores = with_scores(rng, 9, random_edges(rng, 9, 1.0), strength=0.5)
    for method in (GraphCut().relax, GraphCut().maximise):
        for one, other in zip(method(graphs, scores), method(graphs, scores), strict=True):
            np.testing.assert_array_equal(one, other)


def test_scores_of_any_size():
    rng = np.random.default_rng(6)
    graphs, scores = with_scores(rng, 7, random_edges(rng, 7, 1.0), strength=0.5)
    plain = GraphCut().relax(graphs, scores)
    for factor in (2.0**-60, 2.0**60):
        scaled = GraphCut().relax(graphs, Scores(factor * scores.variables, factor * scores.factors))
        np.testing.assert_array_equal(scaled.variables, plain.variables)
        np.testing.assert_allclose(scaled.bounds, factor * plain.bounds, rtol=1e-12)


@pytest.mark.parametrize("supermodular", [False, True])
def test_a_large_grid(supermodular):
    rng = np.random.default_rng(8)
    side = 60
    at = np.arange(side * side).reshape(side, side)
    edges = np.concatenate(
        [np.stack([at[:, :-1], at[:, 1:]], axis=-1).reshape(-1, 2), np.stack([at[:-1], at[1:]], axis=-1).reshape(-1, 2)]
    )
    graphs, scores = with_scores(rng, side * side, edges, n_examples=1)
    tables = scores.factors.reshape(-1, 4)
    if supermodular:
        tables[:, 0] += np.maximum(0, tables[:, 1] + tables[:, 2] - tables[:, 0] - tables[:, 3])
    example = enumeration.examples(graphs)[0]
    relaxed, found = GraphCut().relax(graphs, scores), GraphCut().maximise(graphs, scores)
    assert relaxed.bounds[0] == pytest.approx(local_polytope(example, scores), rel=TOLERANCE)
    assert (found.bounds[0] == found.values[0]) == (not relaxed.ambiguous.any())
    assert relaxed.ambiguous.any() != supermodular


def test_refusals():
    cut = GraphCut()
    assert cut.refusal(three_shapes()) is None
    graphs = three_shapes(Template(np.zeros((2, 2, 2), int)), [(0, 1, 2)])
    assert cut.refusal(graphs) == "Example 0: factor 0 joins 3 variables; graph cuts take factors of 1 or 2."
    assert cut.refusal(graphs.take([1, 0])).startswith("Example 1: ")
    assert cut.refusal(graphs.take([1, 3])) is None
    scores = Scores(np.zeros(graphs.example_states[-1]), np.zeros(graphs.example_tables[-1]))
    with pytest.raises(DataError, match="factor 0 joins 3 variables"):
        cut.maximise(graphs, scores)
    part = graphs.take([1, 3])
    check(part, Scores(np.arange(6.0), np.arange(2.0)))
    three = three_shapes(scopes=[(0, 1)], n_states=3)
    assert cut.refusal(three) == "Example 0: variable 2 has 3 states; graph cuts take binary variables only."
    check(three.take([3, 1]), Scores(np.arange(6.0), np.arange(2.0)))
    hard = three_shapes(Template(np.zeros((2, 2), int), [[0.0, 0.0], [0.0, -np.inf]]))
    assert cut.refusal(hard) == "Example 0: factor 0 has a score of -inf; graph cuts take finite scores only."
    fixed = np.zeros(18)
    fixed[7] = -np.inf
    hard = three_shapes(variable_scores=fixed)
    assert cut.refusal(hard) == "Example 1: a variable has a score of -inf; graph cuts take finite scores only."


def test_scores_must_be_finite():
    graphs = three_shapes()
    for side, place, m in ((0, 7, 1), (1, 17, 3)):
        for value, sentence in (
            (-np.inf, rf"Example {m} has a score of -inf; graph cuts take finite scores only\."),
            (np.nan, rf"Example {m} has a score of NaN or \+inf"),
        ):
            scores = Scores(np.zeros(18), np.zeros(18))
            scores[side][place] = value
            for method in (GraphCut().relax, GraphCut().maximise):
                with pytest.raises(DataError, match=sentence):
                    method(graphs, scores)


def test_marginals_are_refused():
    graphs = three_shapes()
    assert isinstance(GraphCut(), Engine)
    with pytest.raises(OptionError, match=r"Graph cuts give the best labeling or its relaxation, not marginals"):
        GraphCut().marginals(graphs, Scores(np.zeros(18), np.zeros(18)))

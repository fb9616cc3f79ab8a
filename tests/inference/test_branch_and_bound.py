"""Branch and bound against exhaustive search, and against a mixed-integer program solved by HiGHS."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp

from maxmargin.errors import DataError, OptionError, TooLargeError
from maxmargin.inference import Engine, Exhaustive
from maxmargin.inference.branch_and_bound import BranchAndBound
from maxmargin.inference.graph_cut import GraphCut
from maxmargin.problems import Scores, multi_label_problem
from reference import enumeration
from reference.random_problems import random_problem

TOLERANCE = 1e-9


def random_graphs(rng, n, density=1.0, n_examples=3, strength=1.0, whole=False):
    """A multi-label batch with tables of normal scores, or of whole numbers that tie often."""
    pairs = np.stack(np.triu_indices(n, 1), axis=1)
    graphs = multi_label_problem(np.ones((n_examples, 1)), None, pairs[rng.random(len(pairs)) < density], n)
    sizes = int(graphs.example_states[-1]), int(graphs.example_tables[-1])
    if whole:
        return graphs, Scores(*(rng.integers(-2, 3, size).astype(float) for size in sizes))
    return graphs, Scores(rng.normal(size=sizes[0]), strength * rng.normal(size=sizes[1]))


def best_by_program(graphs, scores):
    """Best scores by mixed-integer programming: y_e stands for the product of the two labels of pair e."""
    out = []
    for example in enumeration.examples(graphs):
        n, scopes = len(example.n_states), example.structure.scopes
        gain = [scores.variables[start + 1] - scores.variables[start] for start in example.state_start]
        constant = sum(scores.variables[start] for start in example.state_start)
        rows, columns, values = [], [], []
        for e, (start, (i, j)) in enumerate(zip(example.table_start, scopes, strict=True)):
            s00, s01, s10, s11 = scores.factors[start : start + 4]
            constant += s00
            gain[i] += s10 - s00
            gain[j] += s01 - s00
            gain.append(s00 + s11 - s01 - s10)
            # y <= x_i, y <= x_j, y >= x_i + x_j - 1, as upper limits of 0, 0 and 1.
            for row, terms in enumerate(({i: -1, n + e: 1}, {j: -1, n + e: 1}, {i: 1, j: 1, n + e: -1})):
                for column, value in terms.items():
                    rows.append(3 * e + row)
                    columns.append(column)
                    values.append(value)
        matrix = sp.csr_array((values, (rows, columns)), shape=(3 * len(scopes), len(gain)))
        whole = np.concatenate([np.ones(n), np.zeros(len(scopes))])
        limits = LinearConstraint(matrix, ub=np.tile([0.0, 0.0, 1.0], len(scopes)))
        options = {"mip_rel_gap": 0.0}
        solved = milp(-np.array(gain), integrality=whole, bounds=Bounds(0, 1), constraints=limits, options=options)
        assert solved.status == 0
        out.append(constant - solved.fun)
    return np.array(out)


@settings(derandomize=True, deadline=None, max_examples=120)
@given(
    st.integers(0, 2**32 - 1), st.integers(1, 12), st.sampled_from([0.3, 1.0]),
    st.sampled_from([0.1, 0.5, 3.0]), st.booleans(),
)  # fmt: skip
def test_equals_exhaustive_search(seed, n, density, strength, whole):
    graphs, scores = random_graphs(np.random.default_rng(seed), n, density, 2, strength, whole)
    # A tenth is not a binary fraction, so ties of whole numbers are left to rounding.
    for one in (scores, Scores(scores.variables / 10, scores.factors / 10)):
        found, best = BranchAndBound().maximise(graphs, one), Exhaustive().maximise(graphs, one)
        np.testing.assert_allclose(found.values, best.values, rtol=0, atol=TOLERANCE)
        np.testing.assert_array_equal(found.values, graphs.labeling_scores(one, found.labels))
        np.testing.assert_array_equal(found.bounds, found.values)
        assert found.labels.dtype == np.int32


def test_small_differences_are_searched_for():
    graphs, scores = random_graphs(np.random.default_rng(2), 16, n_examples=20)
    scores = Scores(1e-3 * scores.variables, 1e-3 * scores.factors)
    best = Exhaustive().maximise(graphs, scores).values
    np.testing.assert_allclose(BranchAndBound().maximise(graphs, scores).values, best, rtol=0, atol=1e-13)
    # The first node rounds as graph cuts do, and misses some.
    assert (GraphCut().maximise(graphs, scores).values < best - 1e-5).any()


@pytest.mark.parametrize("seed", range(10))
def test_batches_of_many_shapes(seed):
    # Factors of one variable, pairs joined by several factors, several structures.
    rng = np.random.default_rng(seed)
    graphs = random_problem(rng, n_examples=10, max_variables=9, max_states=2, max_arity=2)
    scores = graphs.scores(3 * rng.normal(size=graphs.n_weights), loss_augmented=True)
    found = BranchAndBound().maximise(graphs, scores)
    np.testing.assert_allclose(found.values, enumeration.maximise(graphs, scores)[1], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(("n", "density", "strength"), [(20, 0.5, 1.0), (22, 0.3, 3.0), (25, 0.2, 1.0), (25, 1.0, 0.1)])
def test_equals_a_mixed_integer_program(n, density, strength):
    graphs, scores = random_graphs(np.random.default_rng(n), n, density, 2, strength)
    found, visited = BranchAndBound().search(graphs, scores)
    assert visited.max() > 1
    np.testing.assert_allclose(found.values, best_by_program(graphs, scores), rtol=0, atol=1e-6)


def test_a_planted_answer_among_ties():
    # Every pair agrees with a planted labeling, and with its opposite, so that all marginals of 1/2 are optimal as well.
    rng = np.random.default_rng(3)
    n = 40
    graphs, _ = random_graphs(rng, n, 0.3, 1)
    planted = rng.integers(0, 2, n)
    tables = []
    for i, j in graphs.structures[0].scopes:
        equal = rng.random() * np.array([1.0, 0.0, 0.0, 1.0])
        tables.append(equal if planted[i] == planted[j] else equal[[1, 0, 3, 2]])
    scores = Scores(np.zeros(2 * n), np.concatenate(tables))
    found, visited = BranchAndBound().search(graphs, scores)
    np.testing.assert_allclose(found.values, sum(table.max() for table in tables), rtol=1e-12)
    # Ties alone leave nothing open.
    np.testing.assert_array_equal(visited, 1)


def test_the_limit():
    graphs, scores = random_graphs(np.random.default_rng(0), 14)
    found, visited = BranchAndBound().search(graphs, scores)
    enough = int(visited.max())
    np.testing.assert_array_equal(BranchAndBound(enough).maximise(graphs, scores).labels, found.labels)
    last = int(np.argmax(visited == enough))
    sentence = rf"Example {last} with its 14 labels took more than {enough - 1} nodes .* still open by [0-9.e+-]+\."
    with pytest.raises(TooLargeError, match=sentence):
        BranchAndBound(enough - 1).maximise(graphs, scores)
    with pytest.raises(OptionError, match="limit=0 is not possible"):
        BranchAndBound(0)


def test_the_gap_left_is_true():
    graphs, scores = random_graphs(np.random.default_rng(1), 16, n_examples=1)
    best, visited = BranchAndBound().search(graphs, scores)
    gaps = []
    for limit in range(1, int(visited[0])):
        with pytest.raises(TooLargeError) as error:
            BranchAndBound(limit).maximise(graphs, scores)
        gaps.append(float(str(error.value).rstrip(".").split()[-1]))
    assert min(gaps) > 0
    # The root's bound is the relaxation's, and its labeling is at most the best.
    assert gaps[0] >= 0.99 * (GraphCut().relax(graphs, scores).bounds[0] - best.values[0])
    assert gaps[-1] < gaps[0]


def test_refusals():
    search = BranchAndBound()
    assert isinstance(search, Engine)
    assert search.exact
    graphs, scores = random_graphs(np.random.default_rng(0), 4)
    assert search.refusal(graphs) is None
    many = random_problem(np.random.default_rng(0), max_states=3, max_arity=3)
    assert "graph cuts take" in search.refusal(many)
    with pytest.raises(DataError, match="graph cuts take"):
        search.maximise(many, many.scores(np.zeros(many.n_weights)))
    scores.factors[0] = -np.inf
    with pytest.raises(DataError, match=r"Example 0 has a score of -inf; graph cuts take finite scores only\."):
        search.maximise(graphs, scores)
    with pytest.raises(OptionError, match="not marginals"):
        search.marginals(graphs, scores)

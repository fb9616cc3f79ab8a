"""Junction trees against enumeration, exhaustive search, trees, and a dynamic programme over the columns of a grid."""

import gc
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp

from maxmargin.errors import DataError, OptionError, TooLargeError
from maxmargin.inference import Engine, Exhaustive, Trees
from maxmargin.inference.clique_tables import Room, clique_trees, needs_of, table_dimensions
from maxmargin.inference.elimination import OverError, clique_tree, eliminate, missing_edges
from maxmargin.inference.junction_tree import JunctionTree, _memory
from maxmargin.problems import FactorGraphs, Features, Scores, Structure, Template, structured
from reference import enumeration
from reference.random_problems import random_problem

TOLERANCE = 1e-10
TEMPERATURES = [10.0, 1.0, 0.1, 0.01]


def batch(shapes, structure_of=None):
    """Examples without features; a shape is (number of states of each variable, scopes)."""
    kinds_v, kinds_f, structures = {}, {}, []
    for n_states, scopes in shapes:
        of_variables = [kinds_v.setdefault((int(n),), len(kinds_v)) for n in n_states]
        of_factors = [kinds_f.setdefault(tuple(int(n_states[v]) for v in one), len(kinds_f)) for one in scopes]
        zeros = [0] * len(of_variables), [0] * len(of_factors)
        structures.append(Structure(of_variables, zeros[0], of_factors, zeros[1], [tuple(one) for one in scopes]))
    chosen = list(range(len(shapes))) if structure_of is None else structure_of
    templates = [[Template(np.full(shape, -1)) for shape in kinds] for kinds in (kinds_v, kinds_f)]
    one = Features.constant()
    return FactorGraphs(structures, chosen, *templates, one, one, [0] * len(chosen), [0] * len(chosen))


def normal_scores(rng, graphs, scale=1.0):
    sizes = graphs.example_states[-1], graphs.example_tables[-1]
    return Scores(*(scale * rng.normal(size=int(size)) for size in sizes))


def weighted_scores(rng, graphs):
    return graphs.scores(2 * rng.normal(size=graphs.n_weights), loss_augmented=bool(rng.integers(2)))


def grid_edges(rows, columns):
    """Scopes of a grid whose nodes are numbered column by column: all edges down, then all edges across."""
    at = np.arange(rows * columns).reshape(columns, rows).T
    down, across = np.stack([at[:-1], at[1:]], axis=-1), np.stack([at[:, :-1], at[:, 1:]], axis=-1)
    return [tuple(map(int, edge)) for part in (down, across) for edge in part.reshape(-1, 2)]


def cycle(n):
    return [(i, (i + 1) % n) for i in range(n)]


def complete(n):
    return list(combinations(range(n), 2))


def random_edges(rng, n, density):
    return [edge for edge in complete(n) if rng.random() < density]


def check_map(graphs, scores, values):
    found = JunctionTree().maximise(graphs, scores)
    np.testing.assert_allclose(found.values, values, rtol=0, atol=TOLERANCE)
    np.testing.assert_array_equal(found.values, graphs.labeling_scores(scores, found.labels))
    np.testing.assert_array_equal(found.bounds, found.values)
    assert found.labels.dtype == np.int32
    return found


def check_marginals(graphs, scores, temperature, expected):
    found = JunctionTree().marginals(graphs, scores, temperature)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=TOLERANCE)
    assert (found.variables[np.isneginf(scores.variables)] == 0).all()
    assert (found.factors[np.isneginf(scores.factors)] == 0).all()


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**32 - 1),
    max_variables=st.integers(1, 4),
    max_states=st.integers(2, 4),
    max_arity=st.integers(1, 4),
    forbidden=st.booleans(),
    shared=st.booleans(),
    temperature=st.sampled_from(TEMPERATURES),
)
def test_any_graph_equals_enumeration(seed, max_variables, max_states, max_arity, forbidden, shared, temperature):
    rng = np.random.default_rng(seed)
    graphs = random_problem(
        rng,
        n_examples=3,
        max_variables=max_variables,
        max_states=max_states,
        max_arity=max_arity,
        forbidden=forbidden,
        shared=shared,
    )
    scores = weighted_scores(rng, graphs)
    labels, values, unique = enumeration.maximise(graphs, scores)
    found = check_map(graphs, scores, values)
    np.testing.assert_array_equal((found.labels == labels)[np.repeat(unique, np.diff(graphs.example_variables))], True)
    check_marginals(graphs, scores, temperature, enumeration.marginals(graphs, scores, temperature))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**32 - 1),
    max_states=st.integers(2, 4),
    max_arity=st.integers(2, 4),
    forbidden=st.booleans(),
    temperature=st.sampled_from(TEMPERATURES),
)
def test_any_graph_equals_exhaustive_search(seed, max_states, max_arity, forbidden, temperature):
    rng = np.random.default_rng(seed)
    most = {2: 12, 3: 9, 4: 7}[max_states]
    graphs = random_problem(
        rng, n_examples=3, max_variables=most, max_states=max_states, max_arity=max_arity, forbidden=forbidden
    )
    scores = weighted_scores(rng, graphs)
    check_map(graphs, scores, Exhaustive().maximise(graphs, scores).values)
    check_marginals(graphs, scores, temperature, Exhaustive().marginals(graphs, scores, temperature))


@settings(max_examples=20, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1), density=st.floats(0.1, 0.4), temperature=st.sampled_from(TEMPERATURES))
def test_sparse_graphs_of_mixed_states_equal_exhaustive_search(seed, density, temperature):
    # Few edges, so that trees of cliques are deep; variables of one state have dimensions that vanish.
    rng = np.random.default_rng(seed)
    n_states = rng.permutation([1, 1, 2, 2, 2, 2, 2, 2, 3, 3, 4])
    scopes = [tuple(rng.permutation(one).tolist()) for one in random_edges(rng, len(n_states), density)]
    graphs = batch([(n_states, [*scopes, (0, 1, 2), *scopes[:3], (10,)])], [0, 0])
    scores = normal_scores(rng, graphs)
    scores.factors[rng.random(len(scores.factors)) < 0.05] = -np.inf
    try:
        best = Exhaustive().maximise(graphs, scores).values
    except DataError as error:
        with pytest.raises(DataError, match=str(error)):
            JunctionTree().maximise(graphs, scores)
        return
    check_map(graphs, scores, best)
    check_marginals(graphs, scores, temperature, Exhaustive().marginals(graphs, scores, temperature))


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**32 - 1),
    max_arity=st.integers(1, 4),
    forbidden=st.booleans(),
    temperature=st.sampled_from(TEMPERATURES),
)
def test_forests_equal_trees(seed, max_arity, forbidden, temperature):
    rng = np.random.default_rng(seed)
    graphs = random_problem(
        rng, kind="forest", n_examples=3, max_variables=40, max_states=4, max_arity=max_arity, forbidden=forbidden
    )
    scores = weighted_scores(rng, graphs)
    check_map(graphs, scores, Trees().maximise(graphs, scores).values)
    check_marginals(graphs, scores, temperature, Trees().marginals(graphs, scores, temperature))


@pytest.mark.parametrize("seed", range(5))
def test_low_temperature_and_large_scores(seed):
    # Hundreds and small binary fractions add without rounding, so the reference is exact to the last exponential.
    rng = np.random.default_rng(seed)
    graphs = batch([([2, 3, 2, 2, 3, 2, 2, 2], [*random_edges(rng, 8, 0.5), (0, 3, 5), (7, 1, 2, 4)])] * 3)
    scores = Scores(
        *(
            100.0 * rng.integers(-1, 2, len(side)) + rng.integers(0, 64, len(side)) / 1024
            for side in normal_scores(rng, graphs)
        )
    )
    scores.factors[rng.random(len(scores.factors)) < 0.05] = -np.inf
    best = check_map(graphs, scores, Exhaustive().maximise(graphs, scores).values)
    check_marginals(graphs, scores, 0.01, Exhaustive().marginals(graphs, scores, 0.01))
    tiny = JunctionTree().marginals(graphs, scores, 1e-9)
    assert all(np.isfinite(part).all() for part in tiny)
    np.testing.assert_allclose(tiny.log_partition, best.values, rtol=0, atol=1e-7)


# -------------------------------------------------------------------------------------------------------- a grid

HEIGHT, LENGTH, K = 3, 60, 3
COLUMNS = np.array(list(product(range(K), repeat=HEIGHT)))


def column_tables(scores):
    """Scores (LENGTH, 27) of the columns' joint states, and (LENGTH - 1, 27, 27) of each and the next."""
    unary = scores.variables.reshape(LENGTH, HEIGHT, K)
    n_down = (HEIGHT - 1) * LENGTH
    down = scores.factors[: n_down * K * K].reshape(HEIGHT - 1, LENGTH, K, K)
    across = scores.factors[n_down * K * K :].reshape(HEIGHT, LENGTH - 1, K, K)
    own = sum(unary[:, i, COLUMNS[:, i]] for i in range(HEIGHT))
    own = own + sum(down[i][:, COLUMNS[:, i], COLUMNS[:, i + 1]] for i in range(HEIGHT - 1))
    return own, sum(across[i][:, COLUMNS[:, i][:, None], COLUMNS[:, i][None, :]] for i in range(HEIGHT))


def grid_map(scores):
    own, pairs = column_tables(scores)
    forward = own[0]
    for t in range(1, LENGTH):
        forward = (forward[:, None] + pairs[t - 1]).max(axis=0) + own[t]
    return forward.max()


def grid_marginals(scores, temperature):
    own, pairs = (part / temperature for part in column_tables(scores))
    forward, backward = np.zeros((LENGTH, 27)), np.zeros((LENGTH, 27))
    forward[0] = own[0]
    for t in range(1, LENGTH):
        forward[t] = logsumexp(forward[t - 1][:, None] + pairs[t - 1], axis=0) + own[t]
    for t in range(LENGTH - 2, -1, -1):
        backward[t] = logsumexp(pairs[t] + own[t + 1] + backward[t + 1], axis=1)
    log_z = logsumexp(forward[-1])
    single = np.exp(forward + backward - log_z)
    both = np.exp(forward[:-1, :, None] + pairs + (own + backward)[1:, None, :] - log_z)
    is_state = [[COLUMNS[:, i] == k for k in range(K)] for i in range(HEIGHT)]
    of_variables = [[[column[is_state[i][k]].sum() for k in range(K)] for i in range(HEIGHT)] for column in single]
    down = [
        [[[column[is_state[i][k] & is_state[i + 1][j]].sum() for j in range(K)] for k in range(K)] for column in single]
        for i in range(HEIGHT - 1)
    ]
    across = [
        [[[pair[is_state[i][k]][:, is_state[i][j]].sum() for j in range(K)] for k in range(K)] for pair in both]
        for i in range(HEIGHT)
    ]
    of_factors = np.concatenate([np.ravel(down), np.ravel(across)])
    return np.ravel(of_variables), of_factors, np.array([temperature * log_z])


def test_a_long_grid_equals_a_dynamic_programme_over_columns():
    rng = np.random.default_rng(0)
    graphs = batch([([K] * (HEIGHT * LENGTH), grid_edges(HEIGHT, LENGTH))])
    for scale in (1.0, 5.0):
        scores = normal_scores(rng, graphs, scale)
        check_map(graphs, scores, [grid_map(scores)])
        for temperature in (10.0, 1.0, 0.3):
            check_marginals(graphs, scores, temperature, grid_marginals(scores, temperature))


# --------------------------------------------------------------------------------------------------- elimination


def exact_width(n, edges):
    """Treewidth by dynamic programming over sets: which variables go before v, and what v then sees."""
    near = [{b for a, b in [*edges, *((j, i) for i, j in edges)] if a == v} for v in range(n)]

    def seen(gone, v):
        reached, waiting = {v}, [v]
        for u in waiting:
            for other in near[u] - reached:
                reached.add(other)
                if other in gone:
                    waiting.append(other)
        return len(reached - gone) - 1

    best = {frozenset(): 0}
    for size in range(1, n + 1):
        best = {
            frozenset(gone): min(
                max(best[frozenset(gone) - {v}], seen(frozenset(gone) - {v}, v)) for v in gone
            )
            for gone in combinations(range(n), size)
        }  # fmt: skip
    return best[frozenset(range(n))]


@pytest.mark.parametrize(
    ("n", "scopes", "width"),
    [
        (1, [], 0),
        (4, [], 0),
        (7, [(0, 1), (0, 2), (2, 3), (2, 4), (4, 5)], 1),
        (300, [(i // 2, i) for i in range(1, 300)], 1),
        (4, cycle(4), 2),
        (50, cycle(50), 2),
        (60, grid_edges(2, 30), 2),
        (45, grid_edges(3, 15), 3),
        (80, grid_edges(4, 20), 4),
        (9, complete(9), 8),
        (12, [*complete(5), *((i, i + 1) for i in range(4, 11))], 4),
        (6, [(0, 1, 2, 3), (3, 4), (4, 5), (5, 3)], 3),
    ],
)
def test_width_of_known_graphs(n, scopes, width):
    graphs = batch([([2] * n, scopes)], [0, 0])
    np.testing.assert_array_equal(JunctionTree().width(graphs), [width, width])
    assert JunctionTree().width(graphs).dtype == np.int64


def test_width_is_seldom_above_the_least():
    rng = np.random.default_rng(1)
    drawn = [random_edges(rng, 8, density) for density in np.linspace(0.2, 0.9, 24)]
    found = JunctionTree().width(batch([([2] * 8, edges) for edges in drawn]))
    least = np.array([exact_width(8, edges) for edges in drawn])
    assert (found >= least).all()
    assert (found == least).mean() > 0.9


def test_entries_of_known_graphs():
    # A chain: 4 cliques of 9 entries, 3 separators of 3, the root's of 1, and a separator once more.
    chain = ([3] * 5, [(i, i + 1) for i in range(4)])
    # A complete graph: one clique, and an empty separator twice.
    graphs = batch([chain, ([2, 3, 4], complete(3)), ([2, 3, 4], [])], [1, 0, 2])
    np.testing.assert_array_equal(JunctionTree().entries(graphs), [24 + 2, 4 * 9 + 3 * 3 + 1 + 3, 9 + 3 + 1])
    assert [len(one) for one in Room.of(needs_of(graphs))][:3] == [36, 10, 3]
    assert [len(one) for one in Room.of(needs_of(graphs.take([0, 2])))][:3] == [24, 3, 1]


def test_dimensions_are_few():
    # Kernels count in at most 60 dimensions, so those of one step must not be among them.
    assert table_dimensions(list(range(200)), list(range(0, 200, 2)), [1] * 200) == [(1, 0), (1, 0)]
    assert table_dimensions([4, 0, 3, 1, 2], [2, 4, 3], [5, 1, 2, 3, 7]) == [(7, 3), (5, 0), (3, 1), (2, 21)]
    assert table_dimensions([0, 1, 2, 3], [1, 2], [2, 3, 4, 5]) == [(2, 0), (12, 1), (5, 0)]


@pytest.mark.parametrize("fill_first", [True, False])
def test_orders_are_greedy(fill_first):
    rng = np.random.default_rng(2)
    for density in np.linspace(0.05, 0.8, 20):
        n = int(rng.integers(1, 16))
        n_states, edges = rng.integers(1, 5, n).tolist(), random_edges(rng, n, density)
        near = {v: {b for a, b in [*edges, *((j, i) for i, j in edges)] if a == v} for v in range(n)}
        sets = [set(near[v]) for v in range(n)]
        order, later, filled = eliminate(sets, missing_edges(sets), n_states, fill_first)
        assert sets == [near[v] for v in range(n)]
        expected, added = [], 0
        while near:
            # Everything is counted again at every step.
            cost = {}
            for v, around in near.items():
                fill = sum(b not in near[a] for a, b in combinations(around, 2))
                size = int(np.prod([n_states[u] for u in around | {v}]))
                cost[v] = (fill, size, v) if fill_first else (size, fill, v)
            v = min(cost, key=cost.get)
            added += cost[v][0 if fill_first else 1]
            around = near.pop(v)
            assert later[v] == around
            expected.append(v)
            for u in around:
                near[u] = (near[u] | around) - {u, v}
        assert order == expected
        assert filled == (added > 0)


def test_the_smaller_of_two_orders_is_kept():
    rng = np.random.default_rng(3)
    winners = set()
    for _ in range(60):
        n_states, edges = rng.integers(2, 9, 14).tolist(), random_edges(rng, 14, 0.3)
        sets = [set() for _ in n_states]
        for a, b in edges:
            sets[a].add(b)
            sets[b].add(a)
        entries = []
        for fill_first in (True, False):
            order, later, _ = eliminate(sets, missing_edges(sets), n_states, fill_first)
            bags = [later[v] | {v} for v in order]
            maximal = {frozenset(bag) for bag in bags if not any(bag < other for other in bags)}
            tree = clique_tree(order, later, n_states)
            assert sorted(map(sorted, maximal)) == sorted(sorted(c.residual + c.separator) for c in tree.cliques)
            entries.append(tree.entries)
        assert JunctionTree().entries(batch([(n_states, edges)])) == [min(entries)]
        winners.add(int(np.sign(entries[1] - entries[0])))
    assert winners >= {-1, 1}


# ------------------------------------------------------------------------------------------------------ refusals


def test_wide_graphs_are_refused_by_example():
    wide, easy = ([2] * 31, complete(31)), ([2] * 3, cycle(3))
    graphs = batch([easy, wide], [0, 0, 0, 1, 0])
    assert JunctionTree().refusal(graphs) == (
        "Example 3: its graph has an induced width of at least 30 under the best elimination order found, so its tables "
        "would take at least 17.2 GB; at most 134 MB (limit=16777216 entries) are allowed."
    )
    scores = Scores(np.zeros(graphs.example_states[-1]), np.zeros(graphs.example_tables[-1]))
    for method in (JunctionTree().maximise, JunctionTree().marginals):
        with pytest.raises(
            TooLargeError, match=r"Example 3: its graph has an induced width of at least 30 .* 17\.2 GB"
        ):
            method(graphs, scores)
    assert JunctionTree().refusal(graphs.take([3, 0])).startswith("Example 0: ")
    assert JunctionTree(limit=2**31 + 2).refusal(graphs) is None
    assert "would take 17.2 GB; at most 17.2 GB" in JunctionTree(limit=2**31 + 1).refusal(graphs)
    # The structures are shared with the wide example, which takes no room where it is not present.
    part = graphs.take([4, 0])
    assert JunctionTree().refusal(part) is None
    scores = normal_scores(np.random.default_rng(0), part)
    check_map(part, scores, Exhaustive().maximise(part, scores).values)
    check_marginals(part, scores, 1.0, Exhaustive().marginals(part, scores))


def test_astronomical_tables():
    graphs = batch([([2] * 3, cycle(3)), ([5] * 150, complete(150)), ([7] * 70, complete(70))], [1, 0, 2])
    np.testing.assert_array_equal(JunctionTree().width(graphs), [149, 2, 69])
    np.testing.assert_array_equal(JunctionTree().entries(graphs), [np.inf, 10, np.inf])
    assert "induced width of 149 " in JunctionTree(limit=2**60).refusal(graphs)
    anew = batch([([5] * 150, complete(150))])
    assert "induced width of at least 149 " in JunctionTree(limit=2**60).refusal(anew)
    # 8 * 5^150 = 5.6 * 10^105.
    assert "would take about 10^96 GB; at most about 10^9 GB" in JunctionTree(limit=2**60).refusal(graphs)
    # Too many digits to be written out: 8 * 3^20000 = 2.1 * 10^9543.
    assert _memory(3**20000) == "about 10^9534 GB"
    part = graphs.take([1])
    scores = normal_scores(np.random.default_rng(0), part)
    check_map(part, scores, Exhaustive().maximise(part, scores).values)


def test_large_pictures_are_refused_at_once():
    # A grid of 200 x 200: stopping at the first tables over the limit takes seconds less than the whole elimination.
    at = np.arange(200 * 200).reshape(200, 200)
    edges = np.concatenate([np.c_[a.ravel(), b.ravel()] for a, b in ((at[:, :-1], at[:, 1:]), (at[:-1], at[1:]))])
    sets = [set() for _ in range(at.size)]
    for a, b in edges.tolist():
        sets[a].add(b)
        sets[b].add(a)
    graphs = batch([([4] * at.size, [tuple(edge) for edge in edges.tolist()])])
    found = JunctionTree(2**22).refusal(graphs)
    assert "induced width of at least " in found
    assert Exhaustive().refusal(graphs) == (
        "Example 0 has about 10^24082 joint states; exhaustive search tries at most 1048576."
    )
    # Both orders stop long before the end, and what is said of them is true of the whole ones.
    for fill_first in (True, False):
        with pytest.raises(OverError) as over:
            eliminate(sets, missing_edges(sets), [4] * at.size, fill_first, 2**22)
        width, entries, filled = over.value.args
        assert filled
        assert 2**22 < entries < 2**24
        assert width < 12


@pytest.mark.parametrize("fill_first", [True, False])
def test_an_order_stops_only_where_it_is_too_large(fill_first):
    rng = np.random.default_rng(5)
    stopped = 0
    for density in np.linspace(0.1, 0.8, 30):
        n = int(rng.integers(2, 14))
        n_states, edges = rng.integers(2, 5, n).tolist(), random_edges(rng, n, density)
        sets = [{b for a, b in [*edges, *((j, i) for i, j in edges)] if a == v} for v in range(n)]
        order, later, _ = eliminate(sets, missing_edges(sets), n_states, fill_first)
        whole = clique_tree(order, later, n_states)
        for most in (8, 64, whole.entries - 1, whole.entries):
            try:
                assert eliminate(sets, missing_edges(sets), n_states, fill_first, most)[:2] == (order, later)
            except OverError as over:
                width, entries, _ = over.args
                stopped += 1
                assert most < entries <= whole.entries
                assert width <= whole.width
    assert stopped > 20


def test_factors_without_tables_are_refused():
    one = Features.constant()
    structures = [Structure([0] * 3, [0] * 3, [0, 1], [0, 0], [(0, 1), (2, 1, 0)]), Structure([0], [0])]
    templates = [Template(np.full((2, 2), -1)), structured.at_least_one(3)]
    graphs = FactorGraphs(structures, [1, 0], [Template([-1, -1])], templates, one, one, [0, 0], [0, 0])
    scores = Scores(np.arange(8.0), np.zeros(graphs.example_tables[-1]))
    for method in (JunctionTree().maximise, JunctionTree().marginals):
        with pytest.raises(DataError, match=r'Example 1: factor 1 .* "junction_tree" takes factors with tables'):
            method(graphs, scores)
    part = graphs.take([0])
    assert JunctionTree().refusal(part) is None
    np.testing.assert_array_equal(JunctionTree().maximise(part, _part(graphs, scores, [0])).labels, [1])


def test_the_limit_in_small_units():
    graphs = batch([([2] * 4, complete(4))])
    sentence = "its tables would take {}; at most {} (limit={} entries) are allowed."
    assert sentence.format("144 bytes", "136 bytes", 17) in JunctionTree(limit=17).refusal(graphs)
    assert JunctionTree(limit=18).refusal(graphs) is None
    graphs = batch([([2] * 10, complete(10))])
    assert sentence.format("at least 8.19 kB", "8 kB", 1000) in JunctionTree(limit=1000).refusal(graphs)


@pytest.mark.parametrize("limit", [0, -1, 2.5, 2**60 + 1, True, "large", None])
def test_limits_that_cannot_be(limit):
    with pytest.raises(OptionError, match=r"limit=.* must be a whole number from 1 to 2\*\*60\."):
        JunctionTree(limit=limit)


def test_an_infeasible_example_is_named():
    graphs = batch([([2] * 4, cycle(4)), ([3] * 5, complete(5))], [0, 1, 0])
    scores = normal_scores(np.random.default_rng(4), graphs)
    scores.factors[-4:] = -np.inf
    for method in (JunctionTree().maximise, JunctionTree().marginals):
        with pytest.raises(DataError, match=r"Example 2: every labeling is forbidden by the hard constraints\."):
            method(graphs, scores)


def test_an_odd_cycle_cannot_alternate():
    # Every edge allows its two ends to differ, and so does every path.
    graphs = batch([([2] * 4, cycle(4)), ([2] * 5, cycle(5))])
    scores = Scores(np.zeros(18), np.tile([-np.inf, 0.0, 0.0, -np.inf], 9))
    for method in (JunctionTree().maximise, JunctionTree().marginals):
        with pytest.raises(DataError, match=r"Example 1: every labeling is forbidden by the hard constraints\."):
            method(graphs, scores)
    even = graphs.take([0])
    found = JunctionTree().marginals(even, _part(graphs, scores, [0]))
    np.testing.assert_allclose(found.variables, 0.5)
    np.testing.assert_allclose(found.factors, np.tile([0.0, 0.5, 0.5, 0.0], 4))
    np.testing.assert_allclose(found.log_partition, np.log(2))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_scores_that_are_no_numbers_are_named(value):
    graphs = batch([([2] * 3, cycle(3))], [0, 0, 0])
    for side, place, m in ((0, 7, 1), (1, 30, 2), (0, 0, 0)):
        scores = Scores(np.zeros(18), np.zeros(36))
        scores[side][place] = value
        for method in (JunctionTree().maximise, JunctionTree().marginals):
            with pytest.raises(DataError, match=rf"Example {m} has a score of NaN or \+inf"):
                method(graphs, scores)


def test_temperatures_and_shapes_that_cannot_be():
    graphs = batch([([2] * 3, cycle(3))])
    scores = Scores(np.zeros(6), np.zeros(12))
    for temperature in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(OptionError, match=r"temperature=.* must be a finite number above 0\."):
            JunctionTree().marginals(graphs, scores, temperature)
    with pytest.raises(DataError, match=r"The scores of factors have shape \(3,\); this batch needs \(12,\)\."):
        JunctionTree().maximise(graphs, Scores(np.zeros(6), np.zeros(3)))


# ------------------------------------------------------------------------------------------------------- batches


def _part(graphs, scores, chosen):
    return Scores(
        *(
            np.concatenate([side[starts[m] : starts[m + 1]] for m in chosen])
            for side, starts in zip(scores, (graphs.example_states, graphs.example_tables), strict=True)
        )
    )


def test_no_factors():
    graphs = batch([([3, 2, 4], [])], [0, 0])
    scores = normal_scores(np.random.default_rng(5), graphs)
    found = check_map(graphs, scores, Exhaustive().maximise(graphs, scores).values)
    np.testing.assert_array_equal(found.labels[:3], [part.argmax() for part in np.split(scores.variables[:9], [3, 5])])
    for temperature in TEMPERATURES:
        check_marginals(graphs, scores, temperature, enumeration.marginals(graphs, scores, temperature))


def test_a_subset_has_the_answers_of_the_whole():
    rng = np.random.default_rng(6)
    graphs = random_problem(rng, n_examples=12, max_variables=7, max_states=4, max_arity=4, forbidden=True)
    assert len(np.unique(graphs.structure_of)) > 3
    scores = weighted_scores(rng, graphs)
    chosen = [9, 0, 0, 3, 11]
    part, some = graphs.take(chosen), _part(graphs, scores, chosen)
    whole, found = JunctionTree().maximise(graphs, scores), JunctionTree().maximise(part, some)
    np.testing.assert_array_equal(found.values, whole.values[chosen])
    variables = graphs.example_variables
    np.testing.assert_array_equal(
        found.labels, np.concatenate([whole.labels[variables[m] : variables[m + 1]] for m in chosen])
    )
    whole, found = JunctionTree().marginals(graphs, scores), JunctionTree().marginals(part, some)
    for one, other in zip(found[:2], _part(graphs, whole[:2], chosen), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(found.log_partition, whole.log_partition[chosen])
    np.testing.assert_array_equal(JunctionTree().width(part), JunctionTree().width(graphs)[chosen])
    np.testing.assert_array_equal(JunctionTree().entries(part), JunctionTree().entries(graphs)[chosen])


def test_answers_repeat():
    shapes = [([3] * 12, grid_edges(3, 4)), ([2] * 6, complete(6))]
    rng = np.random.default_rng(7)
    ties = Scores(*(rng.integers(0, 2, len(side)).astype(float) for side in normal_scores(rng, batch(shapes))))
    # Equal graphs that are made anew have the same order, so ties are broken alike.
    once, same = batch(shapes), batch(shapes)
    for method in (JunctionTree().maximise, JunctionTree().marginals):
        for graphs in (once, same):
            for one, other in zip(method(once, ties), method(graphs, ties), strict=True):
                np.testing.assert_array_equal(one, other)


def test_subsets_share_the_tree_and_it_dies_with_the_batch():
    graphs = batch([([2] * 3, cycle(3)), ([2] * 4, cycle(4))])
    assert clique_trees(graphs) is clique_trees(graphs.take([1]))
    cache = next(cell.cell_contents for cell in clique_trees.__closure__ if isinstance(cell.cell_contents, dict))
    key = id(graphs.arrays.structures)
    assert key in cache
    del graphs
    gc.collect()
    assert key not in cache


def test_it_is_an_engine():
    assert isinstance(JunctionTree(), Engine)
    assert (JunctionTree.name, JunctionTree.exact) == ("junction_tree", True)
    assert JunctionTree(limit=np.int64(5)).limit == 5


# ------------------------------------------------------------------------------------------------- chains of order 2


def best_of_second_order(unary, pairs, triples):
    """The best score of a chain, by a programme over pairs of neighbouring tags in NumPy."""
    if len(unary) == 1:
        return unary[0].max()
    best = unary[0][:, None] + unary[1] + pairs[0]
    for t in range(2, len(unary)):
        best = (best[:, :, None] + triples[t - 2]).max(axis=0) + pairs[t - 1] + unary[t]
    return best.max()


@pytest.mark.parametrize("n_tags", [1, 2, 3, 4, 5, 6, 7, 8, 9, 13])
def test_chains_of_order_two_equal_a_programme_over_pairs(n_tags):
    rng = np.random.default_rng(n_tags)
    lengths, shapes = [1, 2, 3, 4, 9, 2], []
    for n in lengths:
        # Scopes in the chain's order are read where they stand; others, and a second triple, are added up.
        turned = [(2, 1, 0), (0, 1, 2)] if n == 4 else []
        scopes = [*((t, t + 1) for t in range(n - 1)), *((t, t + 1, t + 2) for t in range(n - 2)), *turned]
        shapes.append(([n_tags] * n, scopes))
    graphs = batch(shapes)
    scores = normal_scores(rng, graphs)
    scores.factors[rng.random(len(scores.factors)) < 0.2 * (n_tags > 3)] = -np.inf
    expected = []
    for m, n in enumerate(lengths):
        unary = scores.variables[graphs.example_states[m] : graphs.example_states[m + 1]].reshape(n, n_tags)
        table = scores.factors[graphs.example_tables[m] : graphs.example_tables[m + 1]]
        pairs = table[: (n - 1) * n_tags**2].reshape(n - 1, n_tags, n_tags)
        triples = table[(n - 1) * n_tags**2 :].reshape(-1, n_tags, n_tags, n_tags).copy()
        if n == 4:
            triples[0] += triples[2].transpose(2, 1, 0) + triples[3]
        expected.append(best_of_second_order(unary, pairs, triples))
    check_map(graphs, scores, np.array(expected))

"""Triplet clusters: between the local polytope and labelings, against programs written with loops and triangle inequalities."""

import copy
import itertools
import pickle

import numpy as np
import pytest
from scipy.optimize import linprog

import maxmargin as mm
from maxmargin.cli.main import run
from maxmargin.errors import OptionError, TooLargeError
from maxmargin.inference import Exhaustive
from maxmargin.inference.linear_program import LinearProgram
from maxmargin.inference.triplets import triangles
from maxmargin.problems import Scores, graph_problem, multi_label_problem
from maxmargin.solvers import BCFW, OneSlack, Status
from reference.enumerated_program import exact_optimum
from reference.quadratic_program import optimum
from reference.random_problems import coupled_labels, random_problem

ATOL = 1e-7
PAIRS, TRIPLETS = LinearProgram(), LinearProgram(clusters="triplets")


def random_scores(rng, graphs):
    sizes = int(graphs.example_states[-1]), int(graphs.example_tables[-1])
    return Scores(0.05 * rng.normal(size=sizes[0]), rng.normal(size=sizes[1]))


def complete(n, n_examples=1):
    edges = np.array(list(itertools.combinations(range(n), 2)))
    return multi_label_problem(np.ones((n_examples, 1)), None, edges, n)


def states_graph(n_nodes, edges, n_states, n_examples=1):
    return graph_problem([(np.ones((n_nodes, 1)), edges)] * n_examples, None, n_states)


def with_triangle_inequalities(n, scores):
    """The best value of binary pairs whose chances to differ are a metric: exactly the pairs that every three have together.

    A pair is P(1, 1) and P(1) of its ends; P(differ) = a + b - 2 P(1, 1).
    """
    pairs = list(itertools.combinations(range(n), 2))
    at = {pair: n + e for e, pair in enumerate(pairs)}
    own, tables = scores.variables.reshape(n, 2), scores.factors.reshape(-1, 2, 2)
    cost, constant = np.zeros(n + len(pairs)), own[:, 0].sum() + tables[:, 0, 0].sum()
    cost[:n] = own[:, 1] - own[:, 0]
    rows, right = [], []

    def add(terms, most):
        row = np.zeros(len(cost))
        for column, value in terms:
            row[column] += value
        rows.append(row)
        right.append(most)

    for (i, j), t in zip(pairs, tables, strict=True):
        cost[i] += t[1, 0] - t[0, 0]
        cost[j] += t[0, 1] - t[0, 0]
        cost[at[i, j]] += t[1, 1] - t[1, 0] - t[0, 1] + t[0, 0]
        add([(at[i, j], 1.0), (i, -1.0)], 0.0)
        add([(at[i, j], 1.0), (j, -1.0)], 0.0)
        add([(i, 1.0), (j, 1.0), (at[i, j], -1.0)], 1.0)

    def differ(i, j, sign):
        return [(i, sign), (j, sign), (at[i, j], -2.0 * sign)]

    for i, j, k in itertools.combinations(range(n), 3):
        add(differ(i, j, 1.0) + differ(j, k, 1.0) + differ(i, k, 1.0), 2.0)
        for a, b, c in (((i, j), (j, k), (i, k)), ((j, k), (i, j), (i, k)), ((i, k), (i, j), (j, k))):
            add(differ(*a, 1.0) + differ(*b, -1.0) + differ(*c, -1.0), 0.0)
    found = linprog(-cost, np.array(rows), np.array(right), bounds=(0.0, 1.0), method="highs")
    assert found.status == 0
    return constant - found.fun


# ------------------------------------------------------------------------------------------------------- the polytope


@pytest.mark.parametrize("n", [3, 4, 5, 6])
def test_binary_triplets_are_triangle_inequalities(n):
    rng, graphs = np.random.default_rng(n), complete(n)
    tighter = 0
    for _ in range(20):
        scores = random_scores(rng, graphs)
        value = TRIPLETS.relax(graphs, scores).bounds[0]
        assert value == pytest.approx(with_triangle_inequalities(n, scores), abs=ATOL)
        best, loose = Exhaustive().maximise(graphs, scores).values[0], PAIRS.relax(graphs, scores).bounds[0]
        assert best - ATOL <= value <= loose + ATOL
        tighter += value < loose - 1e-3
        if n == 3:
            assert value == pytest.approx(best, abs=ATOL)
    assert tighter > (0 if n < 5 else 5)


def test_a_frustrated_triangle():
    """Three variables that all want to differ: two pairs of three can, and the local polytope believes in three."""
    graphs = states_graph(3, [[0, 1], [1, 2], [0, 2]], 2)
    scores = Scores(np.zeros(6), np.tile([0.0, 1.0, 1.0, 0.0], 3))
    assert PAIRS.relax(graphs, scores).bounds[0] == pytest.approx(3.0)
    found = TRIPLETS.relax(graphs, scores)
    assert found.bounds[0] == pytest.approx(2.0)
    assert scores.factors @ found.factors == pytest.approx(2.0)


@pytest.mark.parametrize("n", [4, 5, 7])
@pytest.mark.parametrize("n_states", [2, 3])
def test_a_single_cycle_is_exact(n, n_states):
    """Chords cut it into triangles. All pairs but one want to be equal, and that one does not."""
    edges = np.column_stack([np.arange(n), (np.arange(n) + 1) % n])
    graphs, rng = states_graph(n, edges, n_states), np.random.default_rng(n)
    wishes, looser = [np.eye(n_states)] * (n - 1) + [1.0 - np.eye(n_states)], 0
    for _ in range(10):
        scores = random_scores(rng, graphs)
        scores = scores._replace(factors=np.ravel(wishes) + 0.2 * scores.factors)
        best = Exhaustive(10_000).maximise(graphs, scores).values[0]
        found = TRIPLETS.maximise(graphs, scores)
        assert found.bounds[0] == pytest.approx(best, abs=ATOL)
        looser += PAIRS.relax(graphs, scores).bounds[0] > best + 1e-3
    assert looser > 0


@pytest.mark.parametrize("seed", range(20))
def test_between_pairs_and_labelings_on_any_graphs(seed):
    """Factors of one to four variables, two to four states, forbidden ones among them."""
    rng = np.random.default_rng([seed, 3])
    graphs = random_problem(
        rng,
        n_examples=6,
        max_arity=int(rng.integers(2, 5)),
        max_states=int(rng.integers(2, 5)),
        forbidden=seed % 2 == 0,
    )
    scores = graphs.scores(2.0 * rng.normal(size=graphs.n_weights), loss_augmented=True)
    best = Exhaustive(100_000).maximise(graphs, scores).values
    tight, loose = TRIPLETS.relax(graphs, scores), PAIRS.relax(graphs, scores)
    assert (best <= tight.bounds + ATOL).all()
    assert (tight.bounds <= loose.bounds + ATOL).all()
    # The marginals have the value of the bound, and agree: no other proof is needed that it is attained.
    finite = [np.where(np.isneginf(one), 0.0, one) for one in scores]
    value = finite[0] @ tight.variables + finite[1] @ tight.factors
    assert value == pytest.approx(tight.bounds.sum(), abs=1e-6)
    assert (tight.variables[np.isneginf(scores.variables)] == 0.0).all()


def test_chords_and_triangles():
    assert triangles(4, [(0, 1), (1, 2), (2, 3), (3, 0)]) == ([(1, 3)], [(0, 1, 3), (1, 2, 3)])
    assert triangles(3, [(0, 1, 2)]) == ([], [(0, 1, 2)])
    assert triangles(3, [(0, 1), (1, 2)]) == ([], [])
    assert len(triangles(6, list(itertools.combinations(range(6), 2)))[1]) == 20


# ------------------------------------------------------------------------------------------------------- training


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("solver", [BCFW, OneSlack])
def test_training_has_the_optimum_of_the_tighter_relaxation(seed, solver):
    problem, C = coupled_labels(seed, n=12, n_labels=4), 5.0
    tight, loose, exact = optimum(problem, C, triangles=True), optimum(problem, C), exact_optimum(problem, C)
    assert exact - ATOL <= tight <= loose + ATOL
    result = solver(inference=TRIPLETS).solve(problem, C, tol=1e-4)
    assert result.certificate == "relaxed"
    assert result.status is Status.CONVERGED
    assert result.dual - ATOL <= tight <= result.primal + ATOL
    # Planes of both relaxations: the looser one is never below.
    assert result.dual <= solver(inference=PAIRS).solve(problem, C, tol=1e-4).primal


def test_training_on_a_frustrated_triangle_is_strictly_tighter():
    """Three labels: all that the triplet leaves are labelings, and the pairs leave more."""
    problem, C = coupled_labels(1, n=20, n_labels=3), 50.0
    tight, loose, exact = optimum(problem, C, triangles=True), optimum(problem, C), exact_optimum(problem, C)
    assert tight == pytest.approx(exact, abs=ATOL)
    assert loose > exact + 1e-3
    result = BCFW(inference=TRIPLETS).solve(problem, C, tol=1e-4)
    assert result.dual - ATOL <= exact <= result.primal + ATOL
    assert result.primal < loose - 1e-3


def test_from_an_estimator(tmp_path):
    X, Y = mm.make_synth2(40, random_state=0)
    engine = LinearProgram(clusters="triplets")
    model = mm.MultiLabelSVM(C=10.0, tol=0.02, solver="bcfw", inference=engine).fit(X[:, :3], Y[:, :4])
    assert model.result_.certificate == "relaxed"
    model.save(tmp_path / "a.mm")
    loaded = mm.load(tmp_path / "a.mm")
    assert loaded.inference.clusters == "triplets"
    np.testing.assert_array_equal(loaded.predict(X[:, :3]), model.predict(X[:, :3]))


def test_from_the_command_line(tmp_path, capsys):
    X, Y = mm.make_synth2(40, random_state=0)
    np.savez(tmp_path / "a.npz", X=X[:, :3], y=Y[:, :3])
    line = ["train", tmp_path / "a.npz", "-C", 10, "--tol", 0.02, "--solver", "bcfw", "--inference", "linear_program"]
    line += ["--set", "inference.clusters=triplets", "--quiet", "-o", tmp_path / "a.mm"]
    assert run([str(word) for word in line]) == 0
    assert mm.load(tmp_path / "a.mm").inference.clusters == "triplets"


# ------------------------------------------------------------------------------------------------------- what it says


def test_refusals():
    with pytest.raises(OptionError, match='clusters=\'quads\' is not known; use "pairs" or "triplets"'):
        LinearProgram(clusters="quads")
    graphs = complete(8)
    columns = 2 * 8 + 4 * 28
    assert LinearProgram(limit=columns).refusal(graphs) is None
    small = LinearProgram(limit=columns, clusters="triplets")
    assert f"a linear program of {columns + 8 * 56} columns; at most {columns}" in small.refusal(graphs)
    with pytest.raises(TooLargeError):
        small.relax(graphs, random_scores(np.random.default_rng(0), graphs))


def test_copies_keep_the_clusters():
    assert copy.deepcopy(TRIPLETS).clusters == pickle.loads(pickle.dumps(TRIPLETS)).clusters == "triplets"

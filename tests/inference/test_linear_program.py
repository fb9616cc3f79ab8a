"""The local-polytope relaxation against enumeration, and against the same program written with loops for SciPy."""

import copy
import gc
import itertools
import pickle
import sys
import weakref

import numpy as np
import pytest
from scipy.optimize import linprog

from maxmargin.errors import DataError, OptionError, TooLargeError
from maxmargin.inference import Engine
from maxmargin.inference.linear_program import LinearProgram
from maxmargin.problems import FactorGraphs, Features, Scores, Structure, Template, chain_problem, multi_label_problem
from reference import enumeration
from reference.random_problems import random_problem

TOLERANCE = 1e-9
SETTINGS = [
    {"kind": "loopy"},
    {"kind": "loopy", "max_states": 2, "max_variables": 7, "max_arity": 2},
    {"kind": "loopy", "max_arity": 4, "max_states": 4, "max_variables": 4},
    {"kind": "loopy", "sparse": True, "n_examples": 12},
    {"kind": "loopy", "forbidden": True, "n_examples": 12},
    {"kind": "loopy", "shared": False, "forbidden": True},
    {"kind": "forest", "max_arity": 4},
    {"kind": "forest", "max_arity": 4, "forbidden": True},
    {"kind": "loopy", "max_variables": 1},
]
EVERY_SETTING = pytest.mark.parametrize("setting", SETTINGS, ids=lambda s: "-".join(f"{k}={v}" for k, v in s.items()))


def random_scores(rng, graphs, scale=2.0):
    return graphs.scores(scale * rng.normal(size=graphs.n_weights), loss_augmented=bool(rng.integers(2)))


def complete_graphs(rng, n_labels=8, n_examples=20):
    """Binary labels, all pairs joined, scores that frustrate most cycles."""
    edges = np.array(list(itertools.combinations(range(n_labels), 2)))
    graphs = multi_label_problem(np.ones((n_examples, 1)), None, edges, n_labels)
    scores = Scores(
        0.3 * rng.normal(size=int(graphs.example_states[-1])), rng.normal(size=int(graphs.example_tables[-1]))
    )
    return graphs, scores


def program_value(example, scores):
    """Optimum of one example's program: every equality, written in loops, none left out."""
    cost, rows, right = [], [], []
    column = {}
    for i, n in enumerate(example.n_states):
        for k in range(n):
            column["v", i, k] = len(cost)
            cost.append(scores.variables[example.state_start[i] + k])
    for c, shape in enumerate(example.shapes):
        for number, states in enumerate(itertools.product(*(range(n) for n in shape))):
            column["f", c, states] = len(cost)
            cost.append(scores.factors[example.table_start[c] + number])
    for i, n in enumerate(example.n_states):
        rows.append({column["v", i, k]: 1.0 for k in range(n)})
        right.append(1.0)
    for c, (scope, shape) in enumerate(zip(example.structure.scopes, example.shapes, strict=True)):
        for j, v in enumerate(scope):
            for k in range(shape[j]):
                row = {column["v", int(v), k]: -1.0}
                for states in itertools.product(*(range(n) for n in shape)):
                    if states[j] == k:
                        row[column["f", c, states]] = 1.0
                rows.append(row)
                right.append(0.0)
    equalities = np.zeros((len(rows), len(cost)))
    for r, row in enumerate(rows):
        for at, value in row.items():
            equalities[r, at] = value
    cost = np.array(cost)
    forbidden = np.isneginf(cost)
    limits = [(0, 0) if out else (0, None) for out in forbidden]
    solved = linprog(np.where(forbidden, 0, -cost), A_eq=equalities, b_eq=right, bounds=limits, method="highs")
    assert solved.status == 0
    return -solved.fun


def check_real(graphs, scores, result):
    """Labels are labels, values their scores, bounds no smaller."""
    np.testing.assert_array_equal(result.values, graphs.labeling_scores(scores, result.labels))
    assert (result.bounds >= result.values).all()
    n_states = np.diff(np.append(graphs.state_starts(), graphs.example_states[-1]))
    assert ((result.labels >= 0) & (result.labels < n_states)).all()
    assert result.labels.dtype == np.int32


@EVERY_SETTING
@pytest.mark.parametrize("seed", range(4))
def test_bounds_and_labels_against_enumeration(setting, seed):
    rng = np.random.default_rng(seed)
    graphs = random_problem(rng, **setting)
    scores = random_scores(rng, graphs)
    engine = LinearProgram()
    relaxed, result = engine.relax(graphs, scores), engine.maximise(graphs, scores)
    _, best, _ = enumeration.maximise(graphs, scores)
    assert (relaxed.bounds >= best - TOLERANCE).all()
    assert (result.values <= best + TOLERANCE).all()
    check_real(graphs, scores, result)
    integral = ~np.logical_or.reduceat(relaxed.ambiguous, graphs.example_variables[:-1])
    if setting["kind"] == "forest":
        np.testing.assert_allclose(relaxed.bounds, best, rtol=0, atol=TOLERANCE)
    # A vertex whose variables are all integral has integral factors too, so it is a best labeling.
    np.testing.assert_allclose(result.values[integral], best[integral], rtol=0, atol=TOLERANCE)
    np.testing.assert_allclose(relaxed.bounds[integral], best[integral], rtol=0, atol=TOLERANCE)


@EVERY_SETTING
@pytest.mark.parametrize("seed", range(3))
def test_the_program_is_the_one_written_with_loops(setting, seed):
    rng = np.random.default_rng(100 + seed)
    graphs = random_problem(rng, **setting)
    scores = random_scores(rng, graphs)
    relaxed = LinearProgram().relax(graphs, scores)
    expected = [program_value(example, scores) for example in enumeration.examples(graphs)]
    np.testing.assert_allclose(relaxed.bounds, expected, rtol=0, atol=TOLERANCE)
    assert (relaxed.variables >= 0).all()
    np.testing.assert_allclose(np.add.reduceat(relaxed.variables, graphs.state_starts()), 1.0, atol=TOLERANCE)
    assert (relaxed.variables[np.isneginf(scores.variables)] == 0).all()
    starts = graphs.state_starts()
    ends = np.append(starts, len(relaxed.variables))[1:]
    for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
        assert relaxed.ambiguous[i] == any(one not in (0.0, 1.0) for one in relaxed.variables[start:end])


def test_binary_pairs_give_half_integers():
    graphs, scores = complete_graphs(np.random.default_rng(0))
    relaxed = LinearProgram().relax(graphs, scores)
    halves = 2 * relaxed.variables
    np.testing.assert_allclose(halves, np.round(halves), rtol=0, atol=TOLERANCE)
    assert relaxed.ambiguous.any()
    expected = [program_value(example, scores) for example in enumeration.examples(graphs)]
    np.testing.assert_allclose(relaxed.bounds, expected, rtol=0, atol=TOLERANCE)
    assert (relaxed.bounds > enumeration.maximise(graphs, scores)[1] + 1e-3).any()


def test_rounding_leaves_no_single_change_that_helps():
    graphs, scores = complete_graphs(np.random.default_rng(1), n_labels=6)
    result = LinearProgram().maximise(graphs, scores)
    check_real(graphs, scores, result)
    for i in range(len(result.labels)):
        other = result.labels.copy()
        other[i] = 1 - other[i]
        assert (graphs.labeling_scores(scores, other) <= result.values + TOLERANCE).all()


def test_a_fractional_cycle_is_rounded_by_own_scores():
    # All three pairs want to differ: the relaxation satisfies them all with halves, a labeling two of them.
    graphs = multi_label_problem(np.ones((1, 1)), None, np.array([[0, 1], [0, 2], [1, 2]]), 3)
    scores = Scores(np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.1]), np.tile([0.0, 1.0, 1.0, 0.0], 3))
    engine = LinearProgram()
    relaxed = engine.relax(graphs, scores)
    np.testing.assert_array_equal(relaxed.variables, 0.5)
    np.testing.assert_allclose(relaxed.bounds, 3.05, rtol=0, atol=1e-12)
    assert relaxed.ambiguous.all()
    result = engine.maximise(graphs, scores)
    np.testing.assert_allclose(result.values, 2.1, rtol=0, atol=1e-12)
    # From all zeros, changes of single labels would have led to [1, 0, 1].
    np.testing.assert_array_equal(result.labels, [0, 0, 1])


def test_a_subset_has_the_bounds_of_the_whole():
    rng = np.random.default_rng(5)
    graphs = random_problem(rng, kind="loopy", n_examples=8, forbidden=True)
    assert len(np.unique(graphs.structure_of)) > 1
    scores = random_scores(rng, graphs)
    chosen = [6, 0, 0, 3]
    states, tables = graphs.example_states, graphs.example_tables
    part = Scores(
        np.concatenate([scores.variables[states[m] : states[m + 1]] for m in chosen]),
        np.concatenate([scores.factors[tables[m] : tables[m + 1]] for m in chosen]),
    )
    engine = LinearProgram()
    whole, some = engine.relax(graphs, scores), engine.relax(graphs.take(chosen), part)
    np.testing.assert_allclose(some.bounds, whole.bounds[chosen], rtol=0, atol=TOLERANCE)
    check_real(graphs.take(chosen), part, engine.maximise(graphs.take(chosen), part))


@pytest.mark.parametrize("engine", [LinearProgram(), LinearProgram(warm=True)], ids=["fixed", "warm"])
@pytest.mark.parametrize("forbidden", [False, True])
def test_warm_starts_do_not_change_answers(forbidden, engine):
    rng = np.random.default_rng(8)
    graphs = random_problem(rng, kind="loopy", n_examples=10, max_variables=6, forbidden=forbidden)
    for _ in range(4):
        scores = random_scores(rng, graphs)
        warm, fresh = engine.maximise(graphs, scores), LinearProgram().maximise(graphs, scores)
        np.testing.assert_allclose(warm.bounds, fresh.bounds, rtol=0, atol=TOLERANCE)
        again = engine.maximise(graphs, scores)
        np.testing.assert_allclose(again.bounds, warm.bounds, rtol=0, atol=TOLERANCE)
        np.testing.assert_allclose(again.values, warm.values, rtol=0, atol=TOLERANCE)


def test_forbidden_states_of_one_example_are_allowed_in_the_next():
    graphs = chain_problem([np.ones((2, 1)), np.ones((2, 1)), np.ones((2, 1))], None, 2)
    scores = graphs.scores(np.zeros(graphs.n_weights))
    scores.variables[:] = np.tile([0.0, 1.0, 0.0, 1.0], 3)
    scores.variables[graphs.example_states[1] + 1] = -np.inf
    result = LinearProgram().maximise(graphs, scores)
    np.testing.assert_array_equal(result.labels, [1, 1, 0, 1, 1, 1])
    np.testing.assert_allclose(result.values, [2.0, 1.0, 2.0])
    np.testing.assert_allclose(result.bounds, [2.0, 1.0, 2.0])


def test_a_feasible_relaxation_without_labelings_is_minus_infinity():
    # Three labels that must differ in pairs: halves can, labelings cannot.
    graphs = multi_label_problem(np.ones((2, 1)), None, np.array([[0, 1], [0, 2], [1, 2]]), 3)
    scores = Scores(np.zeros(12), np.tile([-np.inf, 0.0, 0.0, -np.inf], 6))
    scores.factors[graphs.example_tables[1] :] = 0.0
    result = LinearProgram().maximise(graphs, scores)
    np.testing.assert_array_equal(result.values, [-np.inf, 0.0])
    np.testing.assert_allclose(result.bounds, [0.0, 0.0], atol=1e-12)


@pytest.mark.parametrize("scale", [1e-6, 1e6, 1e9])
def test_tolerances_are_relative_to_the_scores(scale):
    graphs, scores = complete_graphs(np.random.default_rng(2), n_labels=5, n_examples=5)
    plain = LinearProgram().relax(graphs, scores)
    scaled = LinearProgram().relax(graphs, Scores(scores.variables * scale, scores.factors * scale))
    np.testing.assert_allclose(scaled.bounds, plain.bounds * scale, rtol=1e-12)


def test_everything_forbidden_names_the_example_and_the_engine_goes_on():
    graphs = chain_problem([np.ones((2, 1)), np.ones((3, 1))], None, 2)
    scores = graphs.scores(np.zeros(graphs.n_weights))
    engine = LinearProgram()
    wrong = Scores(scores.variables, scores.factors.copy())
    wrong.factors[graphs.example_tables[1] : graphs.example_tables[1] + 4] = -np.inf
    for method in (engine.relax, engine.maximise):
        with pytest.raises(DataError, match=r"Example 1: every labeling is forbidden by the hard constraints\."):
            method(graphs, wrong)
    np.testing.assert_allclose(engine.maximise(graphs, scores).bounds, 0.0, atol=1e-12)


def test_scores_must_fit_the_batch_and_be_numbers():
    graphs, scores = complete_graphs(np.random.default_rng(0), 3, 2)
    with pytest.raises(DataError, match=r"The scores of factors have shape \(3,\); this batch needs \(24,\)\."):
        LinearProgram().maximise(graphs, Scores(scores.variables, np.zeros(3)))
    for nonsense in (np.nan, np.inf):
        scores.variables[-1] = nonsense
        with pytest.raises(DataError, match=r"Example 1 has a score of NaN or \+inf"):
            LinearProgram().relax(graphs, scores)


def test_several_factors_of_one_variable():
    one = Features.constant()
    structure = Structure([0], [0], [0, 0], [0, 0], [(0,), (0,)])
    graphs = FactorGraphs(
        [structure], [0], [Template(np.zeros(3, int))], [Template(np.zeros(3, int))], one, one, [0], [0]
    )
    result = LinearProgram().maximise(graphs, Scores(np.array([0.0, 1, 2]), np.array([5.0, 0, 0, 0, 3, 0])))
    np.testing.assert_array_equal(result.labels, [0])
    np.testing.assert_allclose(result.bounds, [5.0])


def test_too_many_columns():
    graphs, scores = complete_graphs(np.random.default_rng(0), 3, 2)
    assert LinearProgram().refusal(graphs) is None
    assert LinearProgram(limit=18).refusal(graphs) is None
    sentence = r"Example 0 needs a linear program of 18 columns; at most 17 are tried\."
    assert LinearProgram(limit=17).refusal(graphs) is not None
    for method in (LinearProgram(limit=17).relax, LinearProgram(limit=17).maximise):
        with pytest.raises(TooLargeError, match=sentence):
            method(graphs, scores)


def test_many_structures_with_room_for_one_model():
    rng = np.random.default_rng(11)
    graphs = random_problem(rng, kind="loopy", n_examples=12)
    scores = random_scores(rng, graphs)
    # No second model fits beside the first, whatever their sizes.
    tight = LinearProgram(limit=5000)
    np.testing.assert_allclose(
        tight.relax(graphs, scores).bounds, LinearProgram().relax(graphs, scores).bounds, rtol=0, atol=TOLERANCE
    )
    assert len(tight._models(graphs)._kept) == 1


def test_models_are_kept_while_the_structures_live():
    graphs, scores = complete_graphs(np.random.default_rng(0), 3, 2)
    engine = LinearProgram()
    engine.relax(graphs, scores)
    model = weakref.ref(engine._models(graphs)._kept[0])
    engine.relax(graphs.take([1]), Scores(scores.variables[6:], scores.factors[12:]))
    assert engine._models(graphs)._kept[0] is model()
    del graphs
    gc.collect()
    assert model() is None


def test_no_gibbs_marginals():
    graphs, scores = complete_graphs(np.random.default_rng(0), 3, 2)
    with pytest.raises(OptionError, match='The engine "linear_program" has no Gibbs marginals'):
        LinearProgram().marginals(graphs, scores)


def test_missing_highspy_is_a_sentence(monkeypatch):
    graphs, scores = complete_graphs(np.random.default_rng(0), 3, 2)
    monkeypatch.setitem(sys.modules, "highspy", None)
    with pytest.raises(OptionError, match=r"needs highspy, which is not installed: pip install 'maxmargin\[lp\]'\."):
        LinearProgram().maximise(graphs, scores)


def test_copies_have_the_options_and_models_of_their_own():
    graphs, scores = complete_graphs(np.random.default_rng(0), 3, 2)
    engine = LinearProgram(limit=1000, warm=True)
    assert isinstance(engine, Engine)
    assert engine.name == "linear_program"
    assert not engine.exact
    first = engine.relax(graphs, scores)
    for other in (copy.deepcopy(engine), pickle.loads(pickle.dumps(engine))):
        assert (other.limit, other.warm) == (1000, True)
        np.testing.assert_allclose(other.relax(graphs, scores).bounds, first.bounds, rtol=0, atol=TOLERANCE)

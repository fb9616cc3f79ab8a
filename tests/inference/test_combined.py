"""The better of greedy search and loopy belief propagation."""

import numpy as np
import pytest

from maxmargin.errors import DataError, OptionError
from maxmargin.inference import Engine
from maxmargin.inference.combined import Combined
from maxmargin.inference.greedy import Greedy
from maxmargin.inference.loopy_bp import LoopyBP
from maxmargin.problems import Scores, chain_problem, multi_label_problem
from reference import enumeration
from reference.random_problems import random_problem

SETTINGS = [
    {"kind": "loopy"},
    {"kind": "loopy", "max_states": 2, "max_variables": 8, "max_arity": 2},
    {"kind": "loopy", "max_arity": 4, "max_states": 4, "max_variables": 4},
    {"kind": "loopy", "forbidden": True, "shared": False},
    {"kind": "forest", "max_arity": 4, "forbidden": True},
]
NAMES = ["-".join(f"{k}={v}" for k, v in s.items()) for s in SETTINGS]


def random_scores(rng, graphs, scale=2.0):
    return graphs.scores(scale * rng.normal(size=graphs.n_weights), loss_augmented=bool(rng.integers(2)))


@pytest.mark.parametrize("setting", SETTINGS, ids=NAMES)
@pytest.mark.parametrize("seed", range(3))
def test_the_better_of_both(setting, seed):
    rng = np.random.default_rng(seed)
    graphs = random_problem(rng, **setting)
    scores = random_scores(rng, graphs)
    greedy, loopy = Greedy().maximise(graphs, scores), LoopyBP().maximise(graphs, scores)
    result = Combined().maximise(graphs, scores)
    assert result.labels.dtype == np.int32
    np.testing.assert_array_equal(result.values, np.maximum(greedy.values, loopy.values))
    np.testing.assert_array_equal(result.values, graphs.labeling_scores(scores, result.labels))
    np.testing.assert_array_equal(result.bounds, np.inf)
    assert (result.values <= enumeration.maximise(graphs, scores)[1] + 1e-10).all()


def test_each_method_wins_somewhere():
    rng = np.random.default_rng(0)
    edges = np.stack(np.triu_indices(10, 1), axis=1)
    graphs = multi_label_problem(np.ones((300, 1)), None, edges, 10)
    scores = Scores(rng.normal(size=graphs.example_states[-1]), rng.normal(size=graphs.example_tables[-1]))
    greedy, loopy = Greedy().maximise(graphs, scores), LoopyBP().maximise(graphs, scores)
    result = Combined().maximise(graphs, scores)
    first, second = greedy.values > loopy.values, loopy.values > greedy.values
    assert first.any()
    assert second.any()
    by_example = result.labels.reshape(300, 10)
    np.testing.assert_array_equal(by_example[first], greedy.labels.reshape(300, 10)[first])
    np.testing.assert_array_equal(by_example[second], loopy.labels.reshape(300, 10)[second])


def test_a_subset_has_the_answers_of_the_whole():
    rng = np.random.default_rng(5)
    graphs = random_problem(rng, kind="loopy", n_examples=8)
    scores = random_scores(rng, graphs)
    chosen = [6, 0, 0, 3]
    states, tables = graphs.example_states, graphs.example_tables
    part = Scores(
        np.concatenate([scores.variables[states[m] : states[m + 1]] for m in chosen]),
        np.concatenate([scores.factors[tables[m] : tables[m + 1]] for m in chosen]),
    )
    whole, some = Combined().maximise(graphs, scores), Combined().maximise(graphs.take(chosen), part)
    np.testing.assert_array_equal(some.values, whole.values[chosen])


def test_options_and_refusals():
    graphs = chain_problem([np.ones((2, 1)), np.ones((3, 1))], None, 2)
    scores = graphs.scores(np.zeros(graphs.n_weights))
    engine = Combined(max_rounds=7, damping=0.25, tol=1e-3)
    assert (engine.loopy_bp.max_rounds, engine.loopy_bp.damping, engine.loopy_bp.tol) == (7, 0.25, 1e-3)
    assert isinstance(engine, Engine)
    assert (engine.name, engine.exact, engine.refusal(graphs)) == ("combined", False, None)
    with pytest.raises(OptionError, match=r'The "combined" engine finds labelings and has no marginals; .*\.'):
        engine.marginals(graphs, scores)
    for options in ({"max_rounds": 0}, {"damping": 1.0}, {"tol": -1.0}):
        with pytest.raises(OptionError, match="is not possible; it must be"):
            Combined(**options)
    with pytest.raises(DataError, match=r"The scores of factors have shape \(3,\); this batch needs \(20,\)\."):
        engine.maximise(graphs, Scores(scores.variables, np.zeros(3)))
    scores.factors[graphs.example_tables[1] : graphs.example_tables[1] + 4] = -np.inf
    with pytest.raises(DataError, match=r"Example 1: every labeling is forbidden by the hard constraints\."):
        engine.maximise(graphs, scores)

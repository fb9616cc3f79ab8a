"""The second best labeling, beside enumeration."""

import numpy as np
import pytest

from maxmargin.inference import Exhaustive, GraphCut, LoopyBP, batches
from maxmargin.inference import runner_up as module
from maxmargin.inference.runner_up import runner_up
from maxmargin.problems import graph_problem, multi_label_problem
from maxmargin.problems.factor_graphs import Scores
from reference.enumeration import all_scores, examples


def ranked(graphs, scores):
    table = all_scores(examples(graphs)[0], scores)
    return sorted(table, key=lambda pair: -pair[1])


def random_scores(graphs, rng):
    return Scores(rng.normal(size=int(graphs.example_states[-1])), rng.normal(size=int(graphs.example_tables[-1])))


@pytest.mark.parametrize("seed", range(5))
def test_on_trees_it_is_the_second_of_two(seed):
    rng = np.random.default_rng(seed)
    graphs = graph_problem([(np.ones((4, 1)), [[0, 1], [1, 2], [1, 3]])], None, 3)
    scores = random_scores(graphs, rng)
    best, second = ranked(graphs, scores)[:2]
    found = runner_up(graphs, scores, np.array(best[0], np.int32), Exhaustive())
    assert found.exact
    assert tuple(found.labels) == second[0]
    assert found.value == pytest.approx(second[1])


@pytest.mark.parametrize("seed", range(8))
def test_on_cycles_it_is_exact_with_an_exact_engine(seed):
    rng = np.random.default_rng(seed)
    graphs = graph_problem([(np.ones((4, 1)), [[0, 1], [1, 2], [2, 3], [3, 0], [0, 2]])], None, 3)
    scores = random_scores(graphs, rng)
    best, second = ranked(graphs, scores)[:2]
    found = runner_up(graphs, scores, np.array(best[0], np.int32), Exhaustive())
    assert found.exact
    assert tuple(found.labels) == second[0]


@pytest.mark.parametrize("seed", range(8))
def test_exactness_is_claimed_only_where_the_bound_proves_it(seed):
    rng = np.random.default_rng(seed)
    edges = np.array([[i, j] for i in range(5) for j in range(i)])
    graphs = multi_label_problem(np.ones((1, 1)), None, np.sort(edges, axis=1), 5)
    scores = random_scores(graphs, rng)
    best, second = ranked(graphs, scores)[:2]
    for engine in (GraphCut(), LoopyBP()):
        found = runner_up(graphs, scores, np.array(best[0], np.int32), engine)
        assert found.value <= second[1] + 1e-9
        assert tuple(found.labels) != best[0]
        if found.exact:
            assert found.value == pytest.approx(second[1])
        else:
            assert "another may score up to" in found.how


def test_a_large_graph_gets_one_change(monkeypatch):
    rng = np.random.default_rng(0)
    graphs = graph_problem([(np.ones((4, 1)), [[0, 1], [1, 2], [2, 3], [3, 0]])], None, 2)
    scores = random_scores(graphs, rng)
    best = np.array(ranked(graphs, scores)[0][0], np.int32)
    monkeypatch.setattr(module, "MOST_ENTRIES", 1)
    found = runner_up(graphs, scores, best, Exhaustive())
    assert not found.exact
    assert (found.labels != best).sum() == 1
    near = [value for labels, value in ranked(graphs, scores) if (np.array(labels) != best).sum() == 1]
    assert found.value == pytest.approx(max(near))


def test_forbidden_states_are_left_alone_and_one_labeling_has_no_other():
    graphs = graph_problem([(np.ones((3, 1)), [[0, 1], [1, 2], [2, 0]])], None, 2)
    variables = np.array([0.0, -np.inf, 1.0, 0.5, 0.0, -np.inf])
    scores = Scores(variables, np.zeros(12))
    found = runner_up(graphs, scores, np.array([0, 0, 0], np.int32), Exhaustive())
    assert found.labels.tolist() == [0, 1, 0]
    variables[3] = -np.inf
    assert runner_up(graphs, scores, np.array([0, 0, 0], np.int32), Exhaustive()) is None
    assert batches.maximise(graphs, scores, Exhaustive()).labels.tolist() == [0, 0, 0]

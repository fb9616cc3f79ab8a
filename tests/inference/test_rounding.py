"""Rounding schemes against their definitions, in plain loops."""

import numpy as np
import pytest

from maxmargin.errors import OptionError
from maxmargin.inference.graph_cut import GraphCut
from maxmargin.inference.linear_program import LinearProgram
from maxmargin.inference.rounding import round_marginals
from maxmargin.problems import Scores, multi_label_problem
from reference import enumeration
from reference.random_problems import random_problem


def binary_problem(rng, n=8, n_examples=10):
    edges = np.stack(np.triu_indices(n, 1), axis=1)
    graphs = multi_label_problem(np.ones((n_examples, 1)), None, edges, n)
    sizes = int(graphs.example_states[-1]), int(graphs.example_tables[-1])
    return graphs, Scores(rng.normal(size=sizes[0]), 0.5 * rng.normal(size=sizes[1]))


def by_definition(marginals, own, rounding):
    """The state that one variable takes before any repair."""
    states = range(len(own))
    largest = [k for k in states if marginals[k] >= max(marginals) - 1e-9]
    if rounding == "half-up":
        return max(largest)
    candidates = largest if rounding == "repair" else [k for k in states if marginals[k] > 1e-9]
    return next(k for k in candidates if own[k] == max(own[j] for j in candidates))


def rounded(graphs, scores, marginals, rounding):
    labels = []
    for example in enumeration.examples(graphs):
        for start, n in zip(example.state_start, example.n_states, strict=True):
            labels.append(by_definition(marginals[start : start + n], scores.variables[start : start + n], rounding))
    return np.array(labels)


@pytest.mark.parametrize("rounding", ["half-up", "unary"])
@pytest.mark.parametrize("seed", range(3))
def test_definitions(rounding, seed):
    rng = np.random.default_rng(seed)
    binary = binary_problem(rng)
    many = random_problem(rng, n_examples=20, max_states=4, max_arity=3)
    # Whole numbers tie often.
    sizes = int(many.example_states[-1]), int(many.example_tables[-1])
    whole = many, Scores(*(rng.integers(-2, 3, size).astype(float) for size in sizes))
    for engine, (graphs, scores) in ((GraphCut, binary), (LinearProgram, binary), (LinearProgram, whole)):
        relaxed = engine().relax(graphs, scores)
        assert relaxed.ambiguous.any()
        found = engine(rounding=rounding).maximise(graphs, scores)
        np.testing.assert_array_equal(found.labels, rounded(graphs, scores, relaxed.variables, rounding))
        np.testing.assert_array_equal(found.ambiguous, relaxed.ambiguous)
        np.testing.assert_array_equal(found.values, graphs.labeling_scores(scores, found.labels))
        assert (found.bounds >= found.values).all()


def test_marginals_of_any_kind():
    # One example of three variables with 3, 2 and 4 states.
    rng = np.random.default_rng(5)
    for _ in range(50):
        graphs = random_problem(rng, n_examples=3, max_states=4)
        size = int(graphs.example_states[-1])
        marginals = rng.integers(0, 4, size) / 4
        marginals[graphs.state_starts()] += 0.25
        scores = Scores(rng.integers(-1, 2, size).astype(float), np.zeros(int(graphs.example_tables[-1])))
        for rounding in ("half-up", "unary"):
            found = round_marginals(graphs, scores, marginals, rounding)
            np.testing.assert_array_equal(found, rounded(graphs, scores, marginals, rounding))
            assert found.dtype == np.int32


def test_schemes_differ_and_repair_is_the_best_of_its_start():
    graphs, scores = binary_problem(np.random.default_rng(1), n_examples=50)
    values = {}
    for rounding in ("half-up", "unary", "repair"):
        cut, program = GraphCut(rounding), LinearProgram(rounding=rounding)
        values[rounding] = cut.maximise(graphs, scores).values
        # Without ties there is one optimal relaxed solution, so one start; ways to repair may differ.
        assert (program.maximise(graphs, scores).values >= values["unary" if rounding == "repair" else rounding]).all()
    assert (values["repair"] >= values["unary"]).all()
    assert (values["repair"] > values["unary"] + 1e-6).any()
    assert (values["half-up"] != values["unary"]).any()


@pytest.mark.parametrize("engine", [GraphCut, LinearProgram])
def test_unknown_names(engine):
    with pytest.raises(OptionError, match='no rounding \'down\'; known names are "half-up", "unary", "repair"'):
        engine(rounding="down")

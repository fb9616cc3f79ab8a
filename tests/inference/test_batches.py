"""Batches in shards and threads: the engine's own answer on the whole batch, to the bit."""

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxmargin.errors import DataError, OptionError, TooLargeError
from maxmargin.inference import (
    Combined,
    Exhaustive,
    GraphCut,
    Greedy,
    LinearProgram,
    LoopyBP,
    MapResult,
    Trees,
)
from maxmargin.inference.batches import marginals, maximise, predict, predict_marginals, relax
from maxmargin.problems import Scores, chain_problem, graph_problem, multi_label_problem
from reference import enumeration
from reference.random_problems import random_problem

JOBS = [None, 1, 2, 3, -1]


def same(one, other):
    """Equal to the bit, field by field."""
    assert type(one) is type(other)
    for a, b in zip(one, other, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)


def binary_pairs(rng, n_examples=40, n=6):
    """Complete graphs with pairs stronger than their variables, some of which relaxations leave open."""
    edges = np.stack(np.triu_indices(n, 1), axis=1)
    graphs = multi_label_problem(np.ones((n_examples, 1)), None, edges, n)
    sizes = int(graphs.example_states[-1]), int(graphs.example_tables[-1])
    return graphs, Scores(rng.normal(size=sizes[0]), 3 * rng.normal(size=sizes[1]))


@pytest.mark.parametrize("engine", [Trees(), Exhaustive(), Greedy(), LoopyBP(), Combined()], ids=lambda one: one.name)
@pytest.mark.parametrize("forbidden", [False, True])
def test_every_engine_gives_the_same_bits_in_threads(engine, forbidden):
    rng = np.random.default_rng(1)
    graphs = random_problem(rng, kind="forest", n_examples=60, forbidden=forbidden)
    weights = 2 * rng.normal(size=graphs.n_weights)
    scores = graphs.scores(weights)
    whole = engine.maximise(graphs, scores)
    for n_jobs in JOBS:
        same(maximise(graphs, scores, engine, n_jobs), whole)
        for chunk_bytes in (1, 2000, 64 << 20):
            same(predict(graphs, weights, engine, n_jobs, chunk_bytes), whole)
    augmented = engine.maximise(graphs, graphs.scores(weights, loss_augmented=True))
    same(predict(graphs, weights, engine, 2, 2000, loss_augmented=True), augmented)
    assert (augmented.labels != whole.labels).any()


@pytest.mark.parametrize("engine", [Trees(), Exhaustive(), LoopyBP()], ids=lambda one: one.name)
def test_marginals_in_threads(engine):
    rng = np.random.default_rng(2)
    graphs = random_problem(rng, kind="forest", n_examples=60)
    weights = rng.normal(size=graphs.n_weights)
    scores = graphs.scores(weights)
    whole = engine.marginals(graphs, scores, 0.5)
    for n_jobs in JOBS:
        same(marginals(graphs, scores, engine, 0.5, n_jobs), whole)
        for chunk_bytes in (1, 2000, 64 << 20):
            found = predict_marginals(graphs, weights, engine, 0.5, n_jobs, chunk_bytes, with_factors=True)
            same(found, whole)
            found = predict_marginals(graphs, weights, engine, 0.5, n_jobs, chunk_bytes)
            same(found, whole._replace(factors=np.empty(0)))


@pytest.mark.parametrize("make", [GraphCut, LinearProgram])
def test_relaxations_in_threads(make):
    if make is LinearProgram:
        pytest.importorskip("highspy")
    graphs, scores = binary_pairs(np.random.default_rng(3))
    # A new engine each time: the linear program's would go on from the basis of the last answer.
    relaxed, best = make().relax(graphs, scores), make().maximise(graphs, scores)
    assert 0 < relaxed.ambiguous.sum() < len(graphs.labels)
    for n_jobs in JOBS:
        same(relax(graphs, scores, make(), n_jobs), relaxed)
        same(maximise(graphs, scores, make(), n_jobs), best)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**32 - 1),
    n_examples=st.integers(1, 9),
    kind=st.sampled_from(["forest", "loopy"]),
    forbidden=st.booleans(),
    chunk_bytes=st.sampled_from([1, 300, 10_000]),
    n_jobs=st.integers(1, 3),
)
def test_predictions_equal_enumeration(seed, n_examples, kind, forbidden, chunk_bytes, n_jobs):
    rng = np.random.default_rng(seed)
    graphs = random_problem(rng, kind=kind, n_examples=n_examples, max_variables=4, forbidden=forbidden)
    weights = rng.normal(size=graphs.n_weights)
    tables = Scores(*enumeration.score_tables(graphs, weights))
    found = predict(graphs, weights, Exhaustive(), n_jobs, chunk_bytes)
    np.testing.assert_allclose(found.values, enumeration.maximise(graphs, tables)[1], rtol=0, atol=1e-10)
    found = predict_marginals(graphs, weights, Exhaustive(), 1.0, n_jobs, chunk_bytes, with_factors=True)
    for one, other in zip(found, enumeration.marginals(graphs, tables), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", ["forest", "loopy"])
def test_a_run_of_examples_is_what_take_gives_without_copies(kind):
    rng = np.random.default_rng(4)
    for _ in range(10):
        graphs = random_problem(rng, kind=kind, n_examples=7)
        for begin, end in ((0, 7), (0, 3), (2, 6), (6, 7)):
            run, taken = graphs.slice(begin, end), graphs.take(np.arange(begin, end))
            # The last row of the table of examples holds ends alone; its feature rows mean nothing.
            for name, one, other in zip(run.arrays._fields, run.arrays, taken.arrays, strict=True):
                if name == "examples":
                    np.testing.assert_array_equal(one[:-1], other[:-1])
                    assert list(one[-1])[1:6] == list(other[-1])[1:6]
                elif name == "largest":
                    assert one is graphs.arrays.largest
                else:
                    np.testing.assert_array_equal(one, other)
                    assert one.size == 0 or np.shares_memory(one, getattr(graphs.arrays, name))
            assert run.is_forest == taken.is_forest
            assert run.n_examples == end - begin


class Recorder:
    """Answers zeros, and notes how many scores every shard has."""

    def __init__(self):
        self.sizes = []

    def maximise(self, graphs, scores):
        self.sizes.append(len(scores.variables) + len(scores.factors))
        return MapResult(
            np.zeros(len(graphs.labels), np.int32), np.zeros(graphs.n_examples), np.zeros(graphs.n_examples)
        )


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_shards_are_of_equal_work_and_below_the_limit(n_jobs):
    rng = np.random.default_rng(5)
    graphs = chain_problem([np.ones((n, 1)) for n in rng.integers(1, 20, 300)], None, 3)
    largest = int((np.diff(graphs.example_states) + np.diff(graphs.example_tables)).max())
    limit = 4000
    recorder = Recorder()
    predict(graphs, np.zeros(graphs.n_weights), recorder, n_jobs, chunk_bytes=8 * limit)
    assert sum(recorder.sizes) == graphs.example_states[-1] + graphs.example_tables[-1]
    # Cuts fall between examples.
    assert max(recorder.sizes) <= limit // n_jobs + largest
    assert min(recorder.sizes) >= np.mean(recorder.sizes) - largest


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_errors_name_the_example_by_its_number_in_the_batch(n_jobs):
    graphs = chain_problem([np.ones((2, 1))] * 50, None, 2)
    scores = graphs.scores(np.zeros(graphs.n_weights))
    for m in (44, 37):
        scores.variables[graphs.example_states[m] : graphs.example_states[m] + 2] = -np.inf
    with pytest.raises(DataError, match=r"^Example 37: every labeling is forbidden"):
        maximise(graphs, scores, Trees(), n_jobs)
    with pytest.raises(DataError, match=r"^Example 37: every labeling is forbidden"):
        marginals(graphs, scores, Trees(), n_jobs=n_jobs)
    nodes = np.ones((3, 2))
    tree, cycle = (nodes, [[0, 1], [1, 2]]), (nodes, [[0, 1], [1, 2], [0, 2]])
    loopy = graph_problem([tree] * 20 + [cycle] * 20, None, 2)
    weights = np.zeros(loopy.n_weights)
    for chunk_bytes in (1, 64 << 20):
        with pytest.raises(DataError, match="the graph of example 20 has a cycle"):
            predict(loopy, weights, Trees(), n_jobs, chunk_bytes)
        with pytest.raises(TooLargeError, match="Example 0 has 8 joint states"):
            predict(loopy, weights, Exhaustive(limit=7), n_jobs, chunk_bytes)


def test_options_are_checked():
    graphs = chain_problem([np.ones((2, 1))] * 3, None, 2)
    weights = np.zeros(graphs.n_weights)
    with pytest.raises(OptionError, match="chunk_bytes=0"):
        predict(graphs, weights, Trees(), chunk_bytes=0)
    with pytest.raises(OptionError, match="n_jobs=0"):
        predict(graphs, weights, Trees(), n_jobs=0)
    with pytest.raises(DataError, match="The scores of factors have shape"):
        maximise(graphs, Scores(np.zeros(12), np.zeros(3)), Trees(), 2)


def test_threads_do_share_the_work():
    # Two shards wait for each other, which they can only do at the same time.
    meeting = threading.Barrier(2, timeout=60)

    class Meeting(Recorder):
        def maximise(self, graphs, scores):
            meeting.wait()
            return super().maximise(graphs, scores)

    graphs = chain_problem([np.ones((2, 1))] * 64, None, 2)
    recorder = Meeting()
    predict(graphs, np.zeros(graphs.n_weights), recorder, n_jobs=2)
    assert len(recorder.sizes) % 2 == 0


def test_a_sequential_engine_gets_its_examples_in_order_and_in_one_thread():
    class Sequential(Recorder):
        sequential = True

        def maximise(self, graphs, scores):
            assert threading.current_thread() is threading.main_thread()
            return super().maximise(graphs, scores)

    graphs = chain_problem([np.ones((n, 1)) for n in (1, 2, 3, 4)], None, 2)
    recorder = Sequential()
    predict(graphs, np.zeros(graphs.n_weights), recorder, n_jobs=2, chunk_bytes=1)
    sizes = np.diff(graphs.example_states) + np.diff(graphs.example_tables)
    np.testing.assert_array_equal(recorder.sizes, sizes)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_errors_name_the_example_of_the_whole_batch(n_jobs):
    rng = np.random.default_rng(3)
    graphs = random_problem(rng, kind="forest", n_examples=40)
    scores = graphs.scores(rng.normal(size=graphs.n_weights))
    scores.variables[graphs.example_states[37]] = np.nan
    with pytest.raises(DataError, match=r"^Example 37 has a score of NaN") as caught:
        maximise(graphs, scores, Trees(), n_jobs)
    assert caught.value.example == 37
    part = graphs.take([5, 37, 2], keep_numbers=True).slice(1, 3)
    assert [part.number_of(m) for m in range(2)] == [37, 2]
    with pytest.raises(DataError, match=r"^Example 37 has a score of NaN"):
        Trees().maximise(part, Scores(np.full(part.example_states[-1], np.nan), np.zeros(part.example_tables[-1])))

"""Planes of shards: their sum is the plane of all examples, in an order that depends on the shards alone."""

import pickle

import numpy as np
import pytest

from maxmargin import make_synth2
from maxmargin.errors import DataError, OptionError
from maxmargin.problems import chain_problem, label_edges, multi_class_problem, multi_label_problem
from maxmargin.problems.features import KernelFeatures
from maxmargin.solvers import SOLVERS
from maxmargin.solvers.cutting_planes.one_slack import OneSlack
from maxmargin.solvers.oracles.max_oracle import oracle_of
from maxmargin.solvers.oracles.sharded import LocalShards, Packed, Question, Shard, ShardedProblem, shards_of


def problems():
    rng = np.random.default_rng(3)
    X, Y = make_synth2(40)
    lengths = rng.integers(1, 6, 30)
    sequences = [rng.normal(size=(n, 4)) for n in lengths]
    tags = [rng.integers(0, 3, n) for n in lengths]
    rows, classes, weight = rng.normal(size=(70, 5)), rng.integers(0, 3, 70), rng.random(70)
    rows[:, 3:] *= rng.random((70, 2)) < 0.2
    return {
        "classes": multi_class_problem(rows, classes, 3, sample_weight=weight),
        "labels": multi_label_problem(X, Y, label_edges("full", Y), Y.shape[1]),
        "chains": chain_problem(sequences, tags, 3, order=2, emission_order=1),
    }


@pytest.mark.parametrize("kind", ["classes", "labels", "chains"])
def test_the_parts_add_up_to_the_plane_of_all(kind):
    problem = problems()[kind]
    weights = np.random.default_rng(0).normal(size=problem.n_weights)
    whole = oracle_of(problem).mean_plane(weights, 1)
    for n_shards in (1, 3, 20):
        # As they come to another machine.
        shards = LocalShards(pickle.loads(pickle.dumps(shards_of(problem, n_shards))))
        sharded = ShardedProblem(shards)
        oracle = sharded.joint_oracle("auto", "margin")
        assert sharded.n_examples == problem.n_examples
        working = np.concatenate([one.ravel() for one in problem.working_weights(weights)])
        plane, _ = oracle.find(working, oracle.cache(1), 1, 0)
        np.testing.assert_allclose(oracle.flat(plane.dense(len(weights))), whole.dense(len(weights)), atol=1e-14)
        assert plane.ell == pytest.approx(whole.ell, abs=1e-13)
        assert plane.hinges[0] == pytest.approx(np.average(whole.hinges, weights=problem.arrays.weight), abs=1e-13)


@pytest.mark.parametrize(
    ("kind", "name", "options"),
    [
        ("classes", "one-slack", {}),
        ("classes", "one-slack", {"rescaling": "slack"}),
        ("labels", "one-slack", {"inference": "graph_cut"}),
        ("chains", "one-slack", {"stop": "svm-struct"}),
        ("chains", "bundle", {}),
        ("chains", "bundle", {"objective": "log"}),
        ("chains", "bundle", {"objective": "softmax-margin"}),
    ],
)
def test_shards_have_the_optimum_of_the_whole(kind, name, options):
    problem = problems()[kind]
    whole = SOLVERS[name](**options).solve(problem, C=5.0, tol=1e-3)
    parts = SOLVERS[name](**options).solve(ShardedProblem(LocalShards(shards_of(problem, 4))), C=5.0, tol=1e-3)
    assert parts.status == whole.status == "CONVERGED"
    assert parts.certificate == whole.certificate
    # Both pairs of bounds enclose one optimum.
    assert max(parts.dual, whole.dual) <= min(parts.primal, whole.primal) + 1e-12


def test_a_run_on_shards_goes_on_from_its_checkpoint(tmp_path):
    problem = problems()["chains"]
    path = tmp_path / "run.state"

    def solve(n_shards=4, **more):
        return OneSlack().solve(ShardedProblem(LocalShards(shards_of(problem, n_shards))), C=5.0, tol=1e-3, **more)

    whole = solve()
    solve(max_passes=3, checkpoint=path)
    again = solve(checkpoint=path)
    assert np.array_equal(whole.weights, again.weights)
    assert (whole.primal, whole.dual, whole.n_passes) == (again.primal, again.dual, again.n_passes)
    with pytest.raises(OptionError, match="belongs to another run: the data differs"):
        solve(n_shards=3, checkpoint=path)


def test_vectors_are_sent_as_they_are_smallest():
    vector = np.zeros(100)
    vector[[3, 70]] = 1.5, -2.0
    packed = Packed.of(vector)
    assert packed.nbytes == 24
    assert np.array_equal(packed.dense(), vector)
    full = Packed.of(np.ones(100))
    assert full.nbytes == 800
    assert np.array_equal(full.dense(), np.ones(100))


def test_what_cannot_be_is_said():
    problem = problems()["classes"]
    sharded = ShardedProblem(LocalShards(shards_of(problem, 4)))
    with pytest.raises(OptionError, match="cache=5 is not possible for examples in shards, which keep nothing"):
        OneSlack(cache=5).solve(sharded)
    other = multi_class_problem(np.ones((4, 2)), [0, 1, 0, 1], 2)
    with pytest.raises(DataError, match=r"Shard 1 has 4 weights, .* all shards must have the same features"):
        OneSlack().solve(ShardedProblem(LocalShards([Shard(problem, 70.0), Shard(other, 4.0)])))
    with pytest.raises(DataError, match="There are no shards: the data is empty"):
        OneSlack().solve(ShardedProblem(LocalShards([])))
    with pytest.raises(DataError, match=r"The weights of shard 0 add up to 0\.0; they must be more than 0"):
        OneSlack().solve(ShardedProblem(LocalShards([Shard(problem, 0.0)])))
    kernel = multi_class_problem(KernelFeatures(np.eye(4)), [0, 1, 0, 1], 2)
    with pytest.raises(OptionError, match="known by a kernel alone cannot be cut into shards"):
        shards_of(kernel, 2)


def test_facts_name_the_oracle():
    facts = LocalShards(shards_of(problems()["classes"], 2)).open(Question("margin", "auto"))
    assert {one.name for one in facts} == {"trees"}
    assert len({one.digest for one in facts}) == 2

"""Workers of a cluster that answer on a device: the same planes, objective and certificate as on the processor."""

from __future__ import annotations

import dask.array as da
import distributed
import numpy as np
import pytest

from maxmargin.dask import DaskMultiClassSVM, OnCluster
from maxmargin.errors import OptionError
from maxmargin.problems import chain_problem, multi_class_problem, multi_label_problem
from maxmargin.solvers import BundleMethod, OneSlack
from maxmargin.solvers.oracles.sharded import (
    LocalShards,
    Packed,
    Question,
    Shard,
    ShardedProblem,
    ShardOracle,
    shards_of,
)


def chains():
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 7, 30)
    return chain_problem([rng.normal(size=(n, 3)) for n in sizes], [rng.integers(0, 4, n) for n in sizes], 4)


def classes():
    rng = np.random.default_rng(1)
    return multi_class_problem(rng.normal(size=(60, 5)), rng.integers(0, 3, 60), 3)


@pytest.mark.parametrize("make", [chains, classes])
@pytest.mark.parametrize("objective", ["margin", "log", "softmax-margin"])
def test_a_shard_answers_on_a_device_as_on_the_processor(make, objective):
    problem = make()
    shard = Shard(problem, float(problem.n_examples))
    here, there = (ShardOracle(shard, Question(objective, "auto", device)) for device in ("cpu", "torch"))
    flat = np.random.default_rng(2).normal(size=problem.n_weights)
    shapes = here.facts().shapes
    working = flat
    if shapes is not None:
        # Planes of the processor have the weights feature by feature.
        (p, b), (q, c) = shapes
        w_v, w_f = flat[: p * b].reshape(b, p).T, flat[p * b :].reshape(c, q).T
        working = np.concatenate([w_v.ravel(), w_f.ravel()])
    one, other = here.part(Packed.of(working)), there.part(Packed.of(flat))
    psi = one.psi.dense()
    if shapes is not None:
        psi = np.concatenate([psi[: p * b].reshape(p, b).T.ravel(), psi[p * b :].reshape(q, c).T.ravel()])
    np.testing.assert_allclose(other.psi.dense(), psi, atol=1e-9)
    assert other.ell == pytest.approx(one.ell, abs=1e-9)
    assert other.risk == pytest.approx(one.risk, abs=1e-9)


@pytest.mark.parametrize("solver", [OneSlack(), BundleMethod(objective="log")])
def test_shards_on_a_device_train_to_the_same_gap(solver):
    problem = chains()
    here, there = (
        solver.solve(ShardedProblem(LocalShards(shards_of(problem, 3)), device), C=20.0, tol=1e-3, max_passes=500)
        for device in ("cpu", "torch")
    )
    assert here.certificate == there.certificate == "exact"
    assert there.gap <= 1e-3
    assert max(here.dual, there.dual) <= min(here.primal, there.primal) + 1e-9


def test_what_a_device_cannot_do_is_refused():
    problem = chains()
    sharded = ShardedProblem(LocalShards(shards_of(problem, 2)), "torch")
    with pytest.raises(OptionError, match="has no slack rescaling"):
        OneSlack(rescaling="slack").solve(sharded, C=1.0)
    rng = np.random.default_rng(0)
    pairs = np.array([[0, 1], [1, 2], [0, 2]])
    loops = multi_label_problem(rng.normal(size=(8, 2)), rng.integers(0, 2, (8, 3)), pairs, 3)
    with pytest.raises(OptionError, match="not all of its graphs are trees"):
        OneSlack().solve(ShardedProblem(LocalShards(shards_of(loops, 2)), "torch"), C=1.0)


def test_workers_of_a_cluster_answer_on_their_device():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(200, 4))
    y = X[:, :3].argmax(axis=1)
    with distributed.Client(processes=False, n_workers=1, threads_per_worker=2, dashboard_address=None) as client:
        with pytest.raises(OptionError, match="on a cluster the planes are put together on the processor"):
            OnCluster(client, OneSlack(device="torch"))
        models = [
            DaskMultiClassSVM(C=10.0, client=client, device=device).fit(
                da.from_array(X, (100, 4)), da.from_array(y, 100)
            )
            for device in ("cpu", "torch")
        ]
    here, there = (model.result_ for model in models)
    assert "on torch" in there.options["inference_reason"]
    assert max(here.dual, there.dual) <= min(here.primal, there.primal) + 1e-9
    assert (models[0].predict(X) == models[1].predict(X)).mean() > 0.95

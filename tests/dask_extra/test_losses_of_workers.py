"""A worker that is killed in mid-run: its shards are made again, and the result has the bits of a run that nobody disturbed."""

import os
import signal

import distributed
import numpy as np

from maxmargin.dask import train
from maxmargin.problems import multi_class_problem
from maxmargin.solvers.cutting_planes.one_slack import OneSlack
from maxmargin.solvers.oracles.sharded import LocalShards, ShardedProblem, shards_of


def problem_of(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(200, 6))
    return multi_class_problem(X, np.argmax(X[:, :3] + rng.normal(size=(200, 3)), axis=1), 3)


class Killing:
    """Kills the process of a worker after three rounds."""

    def __init__(self, client):
        self.pids = client.run(os.getpid)
        self.killed = 0

    def start(self, *said):
        pass

    def update(self, report):
        if report.n_passes == 3:
            os.kill(sorted(self.pids.values())[0], signal.SIGKILL)
            self.killed += 1
        return True

    def stop(self, said):
        pass


def test_nothing_is_lost_with_a_worker():
    shards = [one for seed in (1, 2) for one in shards_of(problem_of(seed), 2)]
    whole = OneSlack().solve(ShardedProblem(LocalShards(shards)), C=10.0, tol=1e-3)
    assert whole.n_passes > 5
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        killing = Killing(client)
        found = train(client, shards, C=10.0, tol=1e-3, monitor=killing)
    assert killing.killed == 1
    assert np.array_equal(found.weights, whole.weights)
    assert (found.primal, found.dual, found.n_passes) == (whole.primal, whole.dual, whole.n_passes)

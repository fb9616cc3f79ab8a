"""A Dask cluster on this machine: bytes and seconds of rounds at several sizes, and runs whose workers are killed.

    python benchmarks/cluster.py sizes --workers 2
    python benchmarks/cluster.py tasks
    python benchmarks/cluster.py kills --runs 20
    python benchmarks/cluster.py devices --device cuda

``sizes`` trains multi-class data of three sizes in the same number of shards, and prints what a round sends and takes, and what a
round takes that does nothing (shards of one example). ``kills`` kills a process of a worker at a random round of every run, and
compares the bits of the result with those of shards in this process. ``tasks`` has shards of one example: what Dask itself takes.
``devices`` trains on processors and on a device, in turns: the same objective, and seconds a round.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import time

import dask
import distributed
import numpy as np

from maxmargin.dask import train
from maxmargin.problems import multi_class_problem
from maxmargin.solvers.cutting_planes.one_slack import OneSlack
from maxmargin.solvers.oracles.sharded import LocalShards, ShardedProblem, shards_of


def problem_of(n, p=50, k=7):
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, p))
    return multi_class_problem(X, np.argmax(X[:, :k] + rng.normal(size=(n, k)), axis=1), k)


class Killing:
    """A monitor that kills the process of a worker at a round."""

    def __init__(self, client, at):
        self.client, self.at, self.killed = client, at, 0

    def start(self, *said):
        pass

    def update(self, report):
        if report.n_passes == self.at:
            self.killed = random.choice(list(self.client.run(os.getpid).values()))
            os.kill(self.killed, signal.SIGKILL)
        return True

    def stop(self, said):
        pass


def sizes(client, args):
    # Workers compile, or read what is compiled, once.
    train(client, shards_of(problem_of(100), args.shards), C=1.0, tol=0.1)
    print(f"{'examples':>9} {'rounds':>6} {'down':>8} {'up':>8} {'s/round':>8} {'local s/round':>13}")
    for n in (args.shards, 2000, 20000, 200000):
        shards = shards_of(problem_of(n), args.shards)
        clock = time.perf_counter()
        here = OneSlack().solve(ShardedProblem(LocalShards(shards)), C=100.0, tol=args.tol)
        local = (time.perf_counter() - clock) / here.n_passes
        said = train(client, shards, C=100.0, tol=args.tol).options
        each = said["n_rounds"] * said["n_shards"]
        print(
            f"{n:>9} {said['n_rounds']:>6} {said['bytes_down'] / each:>8.0f} {said['bytes_up'] / each:>8.0f} "
            f"{said['round_seconds']:>8.4f} {local:>13.4f}"
        )


def tasks(client, args):
    """Shards of one example each: what a round takes is Dask's own."""
    train(client, shards_of(problem_of(100), args.shards), C=1.0, tol=0.1)
    print(f"{'shards':>6} {'rounds':>6} {'s/round':>8} {'s/task':>8}")
    for n in (4, 64, 512):
        said = train(client, shards_of(problem_of(n), n), C=1.0, tol=0.0, max_passes=10).options
        each = said["round_seconds"] / n
        print(f"{n:>6} {said['n_rounds']:>6} {said['round_seconds']:>8.4f} {each:>8.5f}")


def devices(client, args):
    """400,000 rows, on workers' processors and on their devices."""
    shards = shards_of(problem_of(400_000), args.shards)
    print(f"{'device':>6} {'rounds':>6} {'primal':>10} {'dual':>10} {'s/round':>8}")
    for number in range(2 * args.runs + 2):
        device = args.device if number % 2 else "cpu"
        found = train(client, shards, C=100.0, tol=args.tol, device=device)
        # Workers compile, or read what is compiled, once.
        if number >= 2:
            said = found.options
            print(
                f"{device:>6} {said['n_rounds']:>6} {found.primal:>10.6f} {found.dual:>10.6f} {said['round_seconds']:>8.4f}"
            )


def kills(args):
    shards = shards_of(problem_of(500), args.shards)
    whole = OneSlack().solve(ShardedProblem(LocalShards(shards)), C=10.0, tol=args.tol)
    random.seed(args.seed)
    finished = same = killed = 0
    for number in range(args.runs):
        with cluster_of(args) as client:
            killing = Killing(client, random.randrange(1, whole.n_passes))
            found = train(client, shards, C=10.0, tol=args.tol, monitor=killing)
        finished += found.status == "CONVERGED"
        same += np.array_equal(found.weights, whole.weights) and found.n_passes == whole.n_passes
        killed += killing.killed > 0
        print(
            f"{number + 1} runs of {whole.n_passes} rounds, {killed} workers killed: {finished} finished, {same} with equal bits",
            flush=True,
        )


@contextlib.contextmanager
def cluster_of(args):
    with (
        distributed.LocalCluster(n_workers=args.workers, threads_per_worker=1, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=("sizes", "tasks", "kills", "devices"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tol", type=float, default=0.003)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    # On a machine that has other work, the start of a process takes long.
    dask.config.set({"distributed.comm.timeouts.connect": "300s"})
    if given.mode == "kills":
        kills(given)
    else:
        with cluster_of(given) as made:
            {"sizes": sizes, "tasks": tasks, "devices": devices}[given.mode](made, given)

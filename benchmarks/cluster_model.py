"""Rounds, bytes and seconds of cutting planes on a large cluster: a model on paper, and a simulation that checks it.

    python benchmarks/cluster_model.py
    python benchmarks/cluster_model.py --examples 1e9 --workers 1000 --weights 1e6

The model adds up the steps of a round as if they followed each other:

    down      V / B (1 + log2 W)          the vector goes to one worker, and who has it passes it on: twice as many with every step
    find      n t / (W c)  (1 + s)        the oracle, on the threads of all workers, and the wait for the slowest of them
    tasks     S (1 + 1/15) e              the scheduler's own work, one task after the other
    up        ceil(log16 S) 15 V / B      planes are added up, 16 at a time
    client    k V / M                     the programme over k planes: a few passes over them in memory

with V bytes a vector, S shards, W workers of c threads, t seconds an example, bandwidth B, memory bandwidth M and e seconds a task.
The simulation has shards whose times differ, a scheduler that does one thing at a time, workers that ask a random holder for the
vector and wait while it serves others, and sums that begin when the last of their 16 parts is there.
"""

from __future__ import annotations

import argparse
import heapq
import math

import numpy as np

FAN_IN = 16


def model(a):
    vector, shards = 8.0 * a.weights, a.workers * a.per_worker
    find = a.examples * a.oracle / (a.workers * a.threads)
    # The slowest of W workers, each the sum of several shards with a spread of their own.
    each = a.spread / math.sqrt(max(a.per_worker / a.threads, 1.0))  # fewer shards than threads: a shard has several
    steps = {
        "down": vector / a.bandwidth * (1.0 + math.log2(a.workers)),
        "find": find * (1.0 + each * math.sqrt(2.0 * math.log(a.workers))),
        "tasks": shards * (1.0 + 1.0 / (FAN_IN - 1)) * a.task,
        "up": math.ceil(math.log(shards, FAN_IN)) * (FAN_IN - 1) * vector / a.bandwidth,
        "client": a.planes * vector / a.memory,
    }
    return steps


def simulate(a, rng):
    """Seconds of one round."""
    vector, shards = 8.0 * a.weights, a.workers * a.per_worker
    send, now = vector / a.bandwidth, 0.0
    # Tasks reach the workers one after the other.
    told = a.task * (1 + np.arange(a.workers) * a.per_worker)
    there = np.full(a.workers, np.inf)
    there[0] = told[0] + send
    free = {0: there[0]}
    waiting = [(told[w], w) for w in range(1, a.workers)]
    heapq.heapify(waiting)
    holders = [0]
    coming = []
    while waiting:
        now, w = heapq.heappop(waiting)
        while coming and coming[0][0] <= now:
            holders.append(heapq.heappop(coming)[1])
        holder = int(rng.choice(holders))
        begin = max(now, free[holder])
        if begin > now and begin - now > send / 2 and coming:
            # Busy: look again when somebody else has it.
            heapq.heappush(waiting, (min(begin, coming[0][0]) + 1e-9, w))
            continue
        free[holder] = begin + send
        there[w] = begin + send
        free[w] = there[w]
        heapq.heappush(coming, (there[w], w))
    # Shards of a worker, on its threads.
    sigma = math.sqrt(math.log(1.0 + a.spread**2))
    # A worker with fewer shards than threads has several of these for each (n_jobs).
    own = max(a.threads // a.per_worker, 1)
    times = a.examples / shards * a.oracle / own * rng.lognormal(-(sigma**2) / 2, sigma, (a.workers, a.per_worker))
    done = np.empty(shards)
    for w in range(a.workers):
        threads = [there[w]] * (a.threads // own)
        for k in range(a.per_worker):
            begin = heapq.heappop(threads)
            heapq.heappush(threads, begin + times[w, k])
            done[w * a.per_worker + k] = begin + times[w, k]
    # The scheduler hears of them one at a time.
    clock = 0.0
    while len(done) > 1:
        heard = np.empty(len(done))
        for k in np.argsort(done, kind="stable"):
            clock = max(clock, done[k]) + a.task
            heard[k] = clock
        groups = [heard[k : k + FAN_IN] for k in range(0, len(heard), FAN_IN)]
        done = np.array([one.max() + (len(one) - 1) * send for one in groups])
    return float(done[0]) + a.planes * vector / a.memory


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value, said in (
        ("examples", 1e9, "n"), ("workers", 1000, "W"), ("threads", 16, "c"), ("per-worker", 1, "shards of a worker"),
        ("weights", 1e6, ""), ("oracle", 20e-6, "t"), ("bandwidth", 1.25e9, "B, bytes a second: 10 Gbit/s"), ("task", 1e-3, "e"),
        ("spread", 0.2, "of the times of shards"), ("planes", 200, "k"), ("memory", 10e9, "M"), ("rounds", 100, ""),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=float, default=value, help=said)
    a = parser.parse_args()
    for name in ("workers", "threads", "per_worker", "weights", "planes"):
        setattr(a, name, int(getattr(a, name)))
    print("     n     W shards  weights   down    find  tasks     up client   round  simulated     run")
    rng = np.random.default_rng(0)
    asked = (a.examples, a.workers, a.per_worker, a.weights)
    others = [
        (1e9, 1000, 16, 10**6), (1e9, 1000, 1, 10**4), (1e9, 1000, 1, 10**7), (1e9, 100, 1, 10**6), (1e7, 100, 1, 10**6),
        (1e7, 10, 1, 10**4),
    ]  # fmt: skip
    for n, workers, each, weights in dict.fromkeys([asked, *others]):
        a.examples, a.workers, a.per_worker, a.weights = n, workers, each, weights
        steps = model(a)
        total, found = sum(steps.values()), np.mean([simulate(a, rng) for _ in range(3)])
        columns = " ".join(f"{steps[name]:>{width}.2f}" for name, width in zip(steps, (6, 7, 6, 6, 6), strict=True))
        size = f"{n:>6.0e} {workers:>5} {workers * each:>6} {weights:>8.0e}"
        print(f"{size} {columns} {total:>7.1f} {found:>10.1f} {total * a.rounds / 60:>5.0f} m")
    shards, vector = asked[1] * asked[2], 8.0 * asked[3]
    down, up = asked[1] * vector / 1e9, shards * (1 + 1 / 15) * vector / 1e9
    print(f"at most {down:.3g} GB down and {up:.3g} GB up in a round of the first line, whatever n is")


if __name__ == "__main__":
    main()

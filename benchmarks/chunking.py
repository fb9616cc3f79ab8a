"""Chunking CoNLL-2000: seconds to a chunk F1, to an objective, and memory, beside CRFsuite.

    python benchmarks/chunking.py [--part f1 objective log threads] [--data-home DIR] [--repeats 3]

Features are CRFsuite's usual template (`TextFeatures.chunking()`): words, parts of speech and their combinations in a window of
five, 335,672 of them, all binary; the same for everyone. F1 is conlleval's, on the 2,012 test sentences. Seconds are of training
alone, features at hand, certificates left out for our solvers (they are given beside), in one thread.

- *f1*: the averaged perceptron, ours and CRFsuite's (20 passes each, in turns), and F1 after each of our passes; BCFW and 1-slack
  beside them, with what they certify.
- *objective*: seconds to within 0.1 % of the same primal value: BCFW, 1-slack, n-slack.
- *log*: the conditional random field: L-BFGS, ours and CRFsuite's, to the same regularised log-likelihood (within 0.1 %), and F1.
  Seconds are of everything here, preparations included, and the processor's, as in CRFsuite's log. CRFsuite has weights only for
  pairs of a feature and a tag that were seen together (452,760 of 7.4 million), which is another model; its last value, the goal,
  is one that ours can only fall below.
- *threads*: one and two threads in turns, 1-slack, and whether the bits are equal.

CRFsuite (python-crfsuite) is left out where it is not installed. Its L2 coefficient c2 makes the objective
``sum of log-losses + c2 |w|^2``; ours is ``lam/2 |w|^2 + mean log-loss``, so that c2 = n lam / 2.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import resource
import tempfile
import time

import numpy as np

from maxmargin.datasets import fetch_conll2000
from maxmargin.features import TextFeatures
from maxmargin.inference import Trees
from maxmargin.inference.batches import predict
from maxmargin.problems import Features, chain_problem
from maxmargin.reporting.chunks import chunk_scores
from maxmargin.solvers import BCFW, LBFGS, Callback, NSlack, OneSlack, Perceptron

try:
    import pycrfsuite
except ImportError:
    pycrfsuite = None


class Data:
    """Features, tags and problems of the two sets."""

    def __init__(self, data_home):
        (train, self.tags), (test, self.truth) = (fetch_conll2000(data_home, subset) for subset in ("train", "test"))
        started = time.perf_counter()
        self.features = TextFeatures.chunking()
        self.X, self.test = self.features.fit_transform(train), self.features.transform(test)
        print(f"features {self.X.shape} in {time.perf_counter() - started:.1f} s")
        self.classes = sorted({tag for tags in self.tags for tag in tags})
        number = {tag: k for k, tag in enumerate(self.classes)}
        states = [np.array([number[tag] for tag in tags], np.int32) for tags in self.tags]
        self.lengths, self.test_lengths = np.array([len(s) for s in train]), np.array([len(s) for s in test])
        self.problem = chain_problem(Features(self.X), states, len(self.classes), lengths=self.lengths)
        self.unseen = chain_problem(Features(self.test), None, len(self.classes), lengths=self.test_lengths)

    def f1(self, weights):
        """Chunk F1 of weights on the test sentences, in per cent."""
        found = np.array(self.classes)[predict(self.unseen, weights, Trees(), 1).labels]
        return self.f1_of([list(tags) for tags in np.split(found, np.cumsum(self.test_lengths)[:-1])])

    def f1_of(self, tags):
        return 100.0 * chunk_scores(self.truth, tags).overall.f1

    def strings(self, X, lengths):
        """The same features as CRFsuite wants them."""
        names = self.features.feature_names_
        rows = [[names[j] for j in X.indices[a:b]] for a, b in zip(X.indptr[:-1], X.indptr[1:], strict=True)]
        cuts = np.concatenate([[0], np.cumsum(lengths)])
        return [pycrfsuite.ItemSequence(rows[a:b]) for a, b in itertools.pairwise(cuts)]


def crfsuite(data, algorithm, log=None, clock=time.perf_counter, **options):
    """Seconds, the loss it reports, and F1; `log` gets a line an iteration."""
    trainer = pycrfsuite.Trainer(algorithm=algorithm, verbose=False, params=options)
    if not hasattr(data, "items"):
        data.items, data.test_items = data.strings(data.X, data.lengths), data.strings(data.test, data.test_lengths)
    for items, tags in zip(data.items, data.tags, strict=True):
        trainer.append(items, tags)
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "model")
        started = clock()
        trainer.train(path)
        seconds = clock() - started
        tagger = pycrfsuite.Tagger()
        tagger.open(path)
        f1 = data.f1_of([tagger.tag(items) for items in data.test_items])
        tagger.close()
    last = trainer.logparser.last_iteration or {}
    if log is not None:
        log += trainer.logparser.iterations
    return seconds, last.get("loss"), f1


def ours(data, solver, C, **options):
    """Warm kernels first; then the result."""
    solver.solve(data.problem.take(np.arange(20)), C, max_passes=2)
    return solver.solve(data.problem, C, **options)


def part_f1(data, args):
    rows = {"Perceptron, 20 passes": [], "CRFsuite averaged perceptron, 20 passes": []}
    scores = {}
    for _ in range(args.repeats):
        result = ours(data, Perceptron(), 1.0, max_passes=20)
        rows["Perceptron, 20 passes"].append(result.seconds)
        scores["Perceptron, 20 passes"] = data.f1(result.weights)
        if pycrfsuite is not None:
            name = "CRFsuite averaged perceptron, 20 passes"
            seconds, _, scores[name] = crfsuite(data, "ap", max_iterations=20)
            rows[name].append(seconds)
    for name, seconds in rows.items():
        if seconds:
            print(
                f"{name:42s} {np.median(seconds):6.2f} s ({min(seconds):.2f}-{max(seconds):.2f})  F1 {scores[name]:.2f}"
            )
    print("F1 of our perceptron by passes:")
    for passes in (2, 3, 4, 5, 6, 8, 10, 12):
        result = ours(data, Perceptron(), 1.0, max_passes=passes)
        print(f"  {passes:3d} passes {result.seconds:6.2f} s  F1 {data.f1(result.weights):.2f}")
    for name, solver, C in (("BCFW", BCFW(), 30.0), ("BCFW", BCFW(), 100.0), ("1-slack", OneSlack(), 30.0)):
        result = ours(data, solver, C, tol=2e-3, max_seconds=120)
        print(
            f"{name} C={C:g}: {result.seconds:.1f} s and {result.history['monitor_seconds'][-1]:.1f} s of checks, "
            f"{result.n_oracle_calls} calls, primal {result.primal:.5f}, gap {result.gap:.5f} ({result.certificate}), "
            f"F1 {data.f1(result.weights):.2f}"
        )


def part_objective(data, args):
    C = args.C
    best = ours(data, BCFW(), C, tol=2e-4, max_seconds=600)
    goal = best.dual + 0.001 * best.primal + (best.primal - best.dual)
    print(f"C={C:g}: the optimum is within [{best.dual:.6f}, {best.primal:.6f}]; goal {goal:.6f}")
    for name, solver in (
        ("BCFW", BCFW()),
        ("1-slack", OneSlack()),
        ("1-slack, cache", OneSlack(cache=10)),
        ("n-slack", NSlack()),
    ):
        reached = Callback(lambda report: report.primal > goal)
        result = ours(data, solver, C, tol=0.0, max_seconds=args.seconds, monitor=reached, max_passes=10_000)
        checks = result.history["monitor_seconds"][-1]
        print(
            f"{name:15s} {result.seconds:7.1f} s (and {checks:.1f} s of checks)  {result.n_oracle_calls:9d} calls  "
            f"primal {result.primal:.6f} {'reached' if result.primal <= goal else 'not reached'}  F1 {data.f1(result.weights):.2f}"
        )


def part_log(data, args):
    n = data.problem.n_examples
    # CRFsuite's own default is c2 = 1.
    C, goal, rows = args.log_C or n / 2.0, 0.0, []
    for _ in range(args.repeats):
        if pycrfsuite is not None:
            log = []
            seconds, loss, f1 = crfsuite(
                data, "lbfgs", log, time.process_time, c1=0.0, c2=n / (2.0 * C), max_iterations=100
            )
            goal = loss / n * 1.001
            there = next(k for k, line in enumerate(log) if line["loss"] / n <= goal)
            # What it does before its first iteration is not in its log.
            before = seconds - sum(line["time"] for line in log)
            reached = before + sum(line["time"] for line in log[: there + 1])
            rows.append((f"CRFsuite L-BFGS, {len(log)} iterations", seconds, loss / n, f1))
            rows.append((f"  to within 0.1 % of that, {there + 1}", reached, log[there]["loss"] / n, np.nan))
        for title, limit in (("LBFGS to the same value", goal), ("LBFGS to a gap of 0.1 nats", 0.0)):
            reached = Callback(lambda report, limit=limit: report.primal > limit)
            LBFGS().solve(data.problem.take(np.arange(20)), C, max_passes=2)
            started = time.process_time()
            result = LBFGS().solve(data.problem, C, tol=0.1, max_passes=200, monitor=reached)
            seconds = time.process_time() - started
            rows.append((f"{title}, {result.n_passes} passes", seconds, result.primal, data.f1(result.weights)))
    for name, seconds, value, f1 in rows:
        print(f"{name:40s} {seconds:6.1f} s  objective {value:.6f}  F1 {f1:.2f}")


def part_threads(data, args):
    found = {1: [], 2: []}
    weights = {}
    for _ in range(args.repeats):
        for threads in (1, 2):
            result = ours(data, OneSlack(), 30.0, tol=0.0, max_passes=15, n_jobs=threads)
            found[threads].append(result.seconds)
            weights[threads] = result.weights
    ratios = np.array(found[1]) / np.array(found[2])
    same = np.array_equal(weights[1], weights[2])
    print(
        f"1-slack, 15 rounds: one thread {np.median(found[1]):.2f} s, two {np.median(found[2]):.2f} s, "
        f"{np.median(ratios):.2f} times ({ratios.min():.2f}-{ratios.max():.2f}); bits equal: {same}"
    )


PARTS = {"f1": part_f1, "objective": part_objective, "log": part_log, "threads": part_threads}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--data-home")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--C", type=float, default=100.0)
    parser.add_argument("--log-C", type=float, help="of log; half the number of sentences without")
    parser.add_argument("--seconds", type=float, default=300.0)
    args = parser.parse_args()
    data = Data(args.data_home)
    for part in args.part:
        print(f"\n{part}")
        with contextlib.suppress(KeyboardInterrupt):
            PARTS[part](data, args)
    print(f"\nlargest memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")


if __name__ == "__main__":
    main()

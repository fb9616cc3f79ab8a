"""The default solver in several threads: seconds to the same certified gap, as ratios to the first number of threads.

    python benchmarks/threads.py [--row NAME...] [--n-jobs 1 2 4 8 16] [--repeats 5] [--share] [--data-home DIR]

`solver="auto"` chooses, C is given, and every run ends at the same gap, after the same passes, with the same bits, which is
checked; rows that begin with the name of a solver have that one. Runs with different numbers of threads alternate. A ratio is
taken inside a repeat; the table has the median, the smallest and the largest, and that of the fastest runs.

With `--share`, one run of `bcfw` in one thread: processor seconds of what threads share (visits, and the oracles of checks; every
thread writes what a batch has found, which is counted here, too) and of what they do not, and what that allows at most with 2 and
with 16 threads.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time

import numpy as np

from maxmargin import datasets, solvers
from maxmargin.features import TextFeatures
from maxmargin.problems import Features, chain_problem, label_edges, multi_class_problem, multi_label_problem
from maxmargin.solvers.frank_wolfe.plane_run import PlaneRun
from maxmargin.solvers.registry import make_solver


def ocr(home):
    """6,251 words of 8 letters, 26 classes."""
    data = datasets.fetch_ocr_letters(home, setting="large")
    tags = np.unique(data.tags, return_inverse=True)[1]
    starts = np.cumsum(data.lengths)[:-1]
    return chain_problem(Features(data.X), np.split(tags, starts), 26, lengths=data.lengths), 1000.0


def conll2000(home):
    """8,936 sentences, 22 tags, sparse features of words."""
    sentences, tags = datasets.fetch_conll2000(home, "train")
    X = TextFeatures.chunking().fit_transform(sentences)
    number = {tag: k for k, tag in enumerate(sorted({tag for one in tags for tag in one}))}
    states = [np.array([number[tag] for tag in one], np.int32) for one in tags]
    return chain_problem(Features(X), states, len(number), lengths=np.array([len(one) for one in tags])), 1000.0


def _labels(X, Y, C):
    return multi_label_problem(X, Y, label_edges("full", Y), Y.shape[1]), C


def yeast20(home):
    """Yeast 20 times over, with noise of a hundredth: 30,000 rows, 14 labels, all pairs."""
    data = datasets.fetch_yeast(home)
    X, Y = np.tile(data.X, (20, 1)), np.tile(np.asarray(data.Y), (20, 1))
    noise = np.random.default_rng(0).normal(size=X.shape)
    return _labels(X + 0.01 * X.std() * noise, Y, 200.0)


def rcv1(home):
    """RCV1 subset 1: its 30 most frequent labels, all pairs."""
    data = datasets.fetch_rcv1subset1(home)
    Y = np.asarray(data.Y)
    Y = Y[:, np.sort(np.argsort(-Y.sum(axis=0), kind="stable")[:30])]
    return _labels(data.X, Y, 3000.0)


def covtype(home, n=50_000, C=500.0):
    """50,000 rows, 7 classes: no factors."""
    data = datasets.fetch_covtype(home)
    X, y = data.X[:n].astype(float), np.unique(data.y[:n], return_inverse=True)[1]
    return multi_class_problem((X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-12), y, int(y.max()) + 1), C


def covtype_large(home):
    """400,000 rows, 7 classes."""
    return covtype(home, 400_000, 1e3)


def ocr_small_c(home):
    """6,251 words, at a C that one-slack cutting planes can do."""
    return ocr(home)[0], 625.1


ROWS = {"ocr": ocr, "conll2000": conll2000, "yeast x 20": yeast20, "rcv1": rcv1, "covtype": covtype}
#: Rows with a solver that `auto` does not choose for them.
BY_NAME = {"one-slack ocr": ("one-slack", ocr_small_c), "one-slack covtype": ("one-slack", covtype_large)}


def share(problem, C, passes):
    """Processor seconds of the parts of a run."""
    seconds = dict.fromkeys(("visits that may ask", "cached passes", "oracles of checks"), 0.0)

    class Timed(PlaneRun):
        def visit_with(self, oracle, now, order, rules, counts):
            kind = "oracles of checks" if rules.steps == 0 else "visits that may ask" if rules.ask else "cached passes"
            started = time.thread_time()
            gain = super().visit_with(oracle, now, order, rules, counts)
            seconds[kind] += time.thread_time() - started
            return gain

    class Solver(solvers.BCFW):
        def make_run(self, *arguments):
            return Timed(self, *arguments)

    started = time.thread_time()
    Solver().solve(problem, C, tol=0.0, max_passes=passes)
    whole = time.thread_time() - started
    shared = sum(seconds.values()) / whole
    seconds["rest"] = whole - sum(seconds.values())
    print("  " + ", ".join(f"{name} {spent:.2f} s" for name, spent in seconds.items()))
    print(
        f"  shared by threads {shared:.0%}: at most {1 / (1 - shared / 2):.2f} times with 2, "
        f"{1 / (1 - 15 / 16 * shared):.2f} times with 16",
        flush=True,
    )


#: Gaps that runs end at.
GAPS = {
    "ocr": 0.04, "conll2000": 0.004, "yeast x 20": 0.005, "rcv1": 0.002, "covtype": 0.01,
    "one-slack ocr": 0.1, "one-slack covtype": 0.01,
}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--row", nargs="*", choices=[*ROWS, *BY_NAME], default=list(ROWS)[:4])
    parser.add_argument("--n-jobs", nargs="*", type=int, default=[1, 2])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--share", action="store_true")
    parser.add_argument("--data-home", default=os.environ.get("MAXMARGIN_DATA"))
    options = parser.parse_args()
    for name in options.row:
        chosen, make = BY_NAME[name] if name in BY_NAME else ("auto", ROWS[name])
        problem, C = make(options.data_home)
        solver = make_solver(chosen, problem)
        tol = GAPS[name]
        # Kernels are compiled here.
        solver.solve(problem, C, tol=tol, max_passes=1, n_jobs=2)

        def run(n_jobs, problem=problem, C=C, solver=solver, tol=tol):
            started = time.perf_counter()
            result = solver.solve(problem, C, tol=tol, n_jobs=n_jobs)
            return time.perf_counter() - started, result

        print(f"{name}: {solver.name}, {problem.n_examples} examples, C={C:g}, gap {tol:.3g}", flush=True)
        if options.share:
            if solver.name == "bcfw":
                share(problem, C, solver.solve(problem, C, tol=tol).n_passes)
            continue
        seconds = {n: [] for n in options.n_jobs}
        bits = set()
        for k in range(options.repeats):
            for n in options.n_jobs if k % 2 else options.n_jobs[::-1]:
                spent, result = run(n)
                seconds[n].append(spent)
                bits.add((result.weights.tobytes(), result.primal, result.dual, result.n_passes))
        print(
            f"  {result.n_passes} passes, gap {result.gap:.3g}, {result.n_oracle_calls} calls; "
            f"{'same bits' if len(bits) == 1 else 'BITS DIFFER'}"
        )
        base = seconds[options.n_jobs[0]]
        for n in options.n_jobs:
            ratios = sorted(a / b for a, b in zip(base, seconds[n], strict=True))
            print(
                f"  n_jobs={n:<3}{min(seconds[n]):8.3f} s (to {max(seconds[n]):.3f})   {statistics.median(ratios):5.2f} "
                f"({ratios[0]:.2f} to {ratios[-1]:.2f}), of the fastest {min(base) / min(seconds[n]):.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()

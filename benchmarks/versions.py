"""Two versions of the library side by side: the same work, warm, alternating, as ratios with their spread.

    python benchmarks/versions.py OLD/src NEW/src [--job NAME...] [--repeats 5] [--data-home DIR]

Each side is a process of its own that stays alive, so that each compiles once; the two are asked in turn. A ratio above 1 says that
the new version is faster. Jobs end after a number of passes or rounds, so that both sides do the same steps. One thread.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time


def jobs(home):
    """Name, and what prepares the job: it returns the function that is timed."""
    import numpy as np

    import maxmargin as mm
    from maxmargin import datasets as d
    from maxmargin import solvers
    from maxmargin.inference import GraphCut, Trees
    from maxmargin.problems import (
        Features,
        chain_problem,
        label_edges,
        multi_class_problem,
        multi_label_problem,
    )  # fmt: skip

    def labels(fetch, rows):
        data = fetch(home)
        X, Y = data.X[:rows], np.asarray(data.Y)[:rows]
        return multi_label_problem(X, Y, label_edges("full", Y), Y.shape[1])

    def words(n):
        data = d.fetch_ocr_letters(home, setting="large")
        lengths = data.lengths[:n]
        rows = int(lengths.sum())
        tags = np.unique(data.tags[:rows], return_inverse=True)[1]
        return chain_problem(Features(data.X[:rows]), np.split(tags, np.cumsum(lengths)[:-1]), 26, lengths=lengths)

    def sentences(n):
        from maxmargin.features import TextFeatures

        train, tags = d.fetch_conll2000(home, "train")
        train, tags = train[:n], tags[:n]
        X = TextFeatures.chunking().fit_transform(train)
        number = {tag: k for k, tag in enumerate(sorted({tag for one in tags for tag in one}))}
        states = [np.array([number[tag] for tag in one], np.int32) for one in tags]
        return chain_problem(Features(X), states, len(number), lengths=np.array([len(one) for one in train]))

    def classes(n):
        data = d.fetch_covtype(home)
        X, y = data.X[:n], np.unique(data.y[:n], return_inverse=True)[1]
        return multi_class_problem(X, y, int(y.max()) + 1)

    def run(make, solver, C, passes):
        problem = make()
        return lambda: solver().solve(problem, C, tol=0.0, max_passes=passes)

    def answers(make, engine):
        problem = make()
        w = np.random.default_rng(0).normal(size=problem.n_weights)
        scores = problem.scores(w)
        return lambda: engine.maximise(problem, scores)

    def charts():
        trees = [tree for tree in d.fetch_treebank_sample(home) if len(tree.words()) <= 12][:300]
        model = mm.ParserSVM(C=1.0, max_passes=2, markov=1)
        return lambda: model.fit(trees)

    yeast, rcv1 = (lambda: labels(d.fetch_yeast, 1500)), (lambda: labels(d.fetch_rcv1subset1, 1500))
    return {
        "yeast bcfw": lambda: run(yeast, solvers.BCFW, 10.0, 8),
        "yeast soft-bcfw": lambda: run(yeast, solvers.SoftBCFW, 10.0, 20),
        "yeast one-slack": lambda: run(yeast, solvers.OneSlack, 10.0, 15),
        "rcv1 soft-bcfw": lambda: run(rcv1, solvers.SoftBCFW, 100.0, 4),
        "ocr bcfw": lambda: run(lambda: words(1000), solvers.BCFW, 1000.0, 8),
        "ocr plain": lambda: run(lambda: words(1000), solvers.BCFW.plain, 1000.0, 8),
        "ocr one-slack": lambda: run(lambda: words(1000), solvers.OneSlack, 1000.0, 40),
        "ocr n-slack": lambda: run(lambda: words(300), solvers.NSlack, 100.0, 10),
        "ocr smo": lambda: run(lambda: words(300), solvers.SMO, 100.0, 3),
        "ocr exponentiated-gradient": lambda: run(lambda: words(300), solvers.ExponentiatedGradient, 100.0, 5),
        "conll2000 perceptron": lambda: run(lambda: sentences(2000), solvers.Perceptron, 1.0, 5),
        "conll2000 bcfw": lambda: run(lambda: sentences(2000), solvers.BCFW, 1000.0, 4),
        "conll2000 lbfgs": lambda: run(lambda: sentences(2000), lambda: solvers.LBFGS(), 1000.0, 15),
        "covtype one-slack": lambda: run(lambda: classes(50_000), solvers.OneSlack, 1000.0, 20),
        "covtype soft-bcfw": lambda: run(lambda: classes(50_000), solvers.SoftBCFW, 1000.0, 5),
        "charts": charts,
        "graph cuts": lambda: answers(yeast, GraphCut()),
        "trees": lambda: answers(lambda: words(3000), Trees()),
    }


def serve(home):
    """Time the jobs that are named on the standard input, after a first run of each."""
    import warnings

    warnings.simplefilter("ignore")
    known, ready = jobs(home), {}
    for line in sys.stdin:
        name = line.strip()
        if name not in ready:
            ready[name] = known[name]()
            ready[name]()
        started = time.perf_counter()
        ready[name]()
        print(time.perf_counter() - started, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="*")
    parser.add_argument("--job", nargs="*")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--data-home", default=os.environ.get("MAXMARGIN_DATA"))
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return serve(options.data_home)
    if len(options.sources) != 2:
        parser.error("name the source folders of two versions")
    sides = [
        subprocess.Popen(
            [sys.executable, __file__, "--serve", "--data-home", options.data_home],
            env=os.environ | {"PYTHONPATH": source},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for source in options.sources
    ]

    def ask(side, name):
        side.stdin.write(name + "\n")
        side.stdin.flush()
        return float(side.stdout.readline())

    print("old / new: above 1 the new version is faster")
    for name in options.job or jobs(options.data_home):
        pairs = [[ask(side, name) for side in (sides if k % 2 else sides[::-1])] for k in range(options.repeats)]
        old, new = zip(*(pair if k % 2 else pair[::-1] for k, pair in enumerate(pairs)), strict=True)
        ratios = sorted(a / b for a, b in zip(old, new, strict=True))
        print(
            f"{name:28}{min(old):8.3f} s {min(new):8.3f} s   {statistics.median(ratios):5.2f} "
            f"({ratios[0]:.2f} to {ratios[-1]:.2f}), of the fastest {min(old) / min(new):.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()

"""Does ``solver="auto"`` take the fastest solver? Processor seconds of each candidate to the same gap, and the ratio to the best.

    python benchmarks/auto.py [--row NAME...] [--gap 0.01] [--repeats 3] [--data-home DIR]

The gap is a share of the objective, which a first run of the default finds to a gap of 5 %. Runs alternate, and end when the
default would long have been done: those that did not get there are shown as "> seconds". A candidate counts if its certificate
says as much as that of the default: a gap to the relaxation is not one to the exact problem. Those that do not count stand in
brackets.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
import warnings

import numpy as np
from images import with_class

import maxmargin as mm
from maxmargin import datasets, solvers
from maxmargin.errors import MaxMarginError
from maxmargin.features import TextFeatures
from maxmargin.problems import (
    Features,
    binary_problem,
    chain_problem,
    graph_problem,
    label_edges,
    multi_class_problem,
    multi_label_problem,
)  # fmt: skip
from maxmargin.solvers import Status, choose_solver

CANDIDATES = ("bcfw", "soft-bcfw", "one-slack", "n-slack")
#: What a certificate says, from the least on.
STRENGTH = ("none", "soft", "relaxed", "exact")
#: Seconds that a candidate may take: a multiple of those that the default took, and some more.
LIMIT = 2.0, 1.0


class _Found(Exception):
    """The problem that an estimator was about to solve."""


class _Stop(solvers.BCFW):
    def make_run(self, problem, *others):
        raise _Found(problem)


def problem_of(model, *data):
    """The problem that an estimator makes of its data."""
    try:
        model.set_params(solver=_Stop(), C=1.0).fit(*data)
    except _Found as found:
        return found.args[0]
    raise AssertionError("the estimator asked no solver")


def two(home, name, cost):
    data = datasets.fetch_binary(name, home)
    return binary_problem(data.X, data.y > 0), cost * len(data.y)


def letters(home, rows=10_000):
    data = datasets.fetch_ocr_letters(home, setting="large")
    y = np.unique(data.tags[:rows], return_inverse=True)[1]
    return multi_class_problem(data.X[:rows], y, int(y.max()) + 1), 0.01 * rows


def covtype(home, rows=20_000):
    data = datasets.fetch_covtype(home)
    chosen = np.random.default_rng(0).permutation(len(data.y))[:rows]
    X = data.X[chosen].astype(np.float64)
    X, y = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-12), np.unique(data.y[chosen], return_inverse=True)[1]
    return multi_class_problem(X, y, int(y.max()) + 1), 0.01 * rows


def labels(data, C, most=None, rows=None):
    Y = np.asarray(data.Y)[:rows]
    Y = Y[:, np.sort(np.argsort(-Y.sum(axis=0), kind="stable")[:most])]
    return multi_label_problem(data.X[:rows], Y, label_edges("full", Y), Y.shape[1]), C


def words(home, n, C, order=1):
    data = datasets.fetch_ocr_letters(home, setting="large")
    lengths = data.lengths[:n]
    end = int(lengths.sum())
    tags = np.unique(data.tags[:end], return_inverse=True)[1].astype(np.int32)
    return chain_problem(Features(data.X[:end]), tags, 26, lengths=lengths, order=order), C


def sentences(home, n, C, order=1):
    train, tags = datasets.fetch_conll2000(home, "train")
    number = {tag: k for k, tag in enumerate(sorted({tag for one in tags for tag in one}))}
    X = Features(TextFeatures.chunking().fit_transform(train[:n]))
    states = np.array([number[tag] for one in tags[:n] for tag in one], np.int32)
    return chain_problem(X, states, len(number), lengths=np.array([len(one) for one in tags[:n]]), order=order), C


def trees(home):
    found = [tree for tree in datasets.fetch_treebank_sample(home) if len(tree.words()) <= 12][:300]
    return problem_of(mm.ParserSVM(markov=1), found), 1.0


def images(home):
    data = datasets.fetch_msrc21(80, home, "train")
    some = [with_class(*one) for one in zip(data.graphs, data.labels, strict=True)][:40]
    return graph_problem([one[:3] for one in some], [one[3] for one in some], 21, edge_weights="potts"), 100.0


def pictures(home):
    rng = np.random.default_rng(0)
    at = np.arange(100).reshape(10, 10)
    edges = np.concatenate(
        [np.stack([at[:-1], at[1:]], -1).reshape(-1, 2), np.stack([at[:, :-1], at[:, 1:]], -1).reshape(-1, 2)]
    )
    truth = [
        (rng.integers(0, 4) + (np.add.outer(np.arange(10), np.arange(10)) > rng.integers(4, 16))).ravel() % 4
        for _ in range(60)
    ]
    graphs = [(np.eye(4)[one] + rng.normal(size=(100, 4)), edges) for one in truth]
    return graph_problem(graphs, truth, 4, edge_weights="potts"), 10.0


def kernel_labels(home):
    data = datasets.fetch_yeast(home)
    return problem_of(mm.MultiLabelSVM(kernel="rbf"), data.X[:500], np.asarray(data.Y)[:500]), 30.0


def kernel_classes(home):
    data = datasets.fetch_ocr_letters(home, setting="large")
    return problem_of(mm.MultiClassSVM(kernel="rbf"), data.X[:2000], data.tags[:2000]), 2000.0


ROWS = {
    "reuters": lambda home: two(home, "reuters", 1.0),
    "ijcnn1": lambda home: two(home, "ijcnn1", 0.1),
    "letters": letters,
    "covtype": covtype,
    "yeast": lambda home: labels(datasets.fetch_yeast(home), 10.0),
    "scene": lambda home: labels(datasets.fetch_scene(home), 10.0),
    "rcv1, 10 labels": lambda home: labels(datasets.fetch_rcv1subset1(home), 100.0, 10, 1500),
    "rcv1, 30 labels": lambda home: labels(datasets.fetch_rcv1subset1(home), 100.0, 30, 1500),
    "OCR small": lambda home: words(home, 626, 100.0),
    "OCR large": lambda home: words(home, 3000, 1000.0),
    "OCR, order 2": lambda home: words(home, 300, 100.0, 2),
    "conll2000": lambda home: sentences(home, 1000, 100.0),
    "conll2000, order 2": lambda home: sentences(home, 300, 30.0, 2),
    "treebank": trees,
    "msrc21": images,
    "pictures": pictures,
    "yeast, kernel": kernel_labels,
    "letters, kernel": kernel_classes,
}  # fmt: skip


def run(solver, problem, C, tol, limit):
    """Processor seconds of a run, and its result."""
    begin = time.process_time()
    result = solver.solve(problem, C, tol=tol, max_passes=10**6, max_seconds=limit)
    return time.process_time() - begin, result


def compare(name, options):
    problem, C = ROWS[name](options.data_home)
    chosen = choose_solver(problem)
    own = chosen.name
    made = {one: solvers.SOLVERS[one]() for one in CANDIDATES}
    made[own] = chosen
    for one in list(made):  # compiled before any clock starts, if it takes the problem at all
        try:
            made[one].solve(problem, C, tol=0.0, max_passes=2, max_seconds=options.seconds)
        except MaxMarginError:
            del made[one]
    _, first = run(chosen, problem, C, 0.05 * made[own].solve(problem, C, max_passes=3).primal, options.seconds)
    tol = options.gap * first.primal
    seconds, last, limits = {one: [] for one in made}, {}, dict.fromkeys(made, options.seconds)
    for _ in range(options.repeats):
        for one in sorted(made, key=lambda one: one != own):
            # A run that did not get there is not made again.
            if one not in last or last[one].status is Status.CONVERGED:
                begin = time.perf_counter()
                taken, last[one] = run(made[one], problem, C, tol, limits[one])
                seconds[one].append(taken)
                if one == own:
                    limit = LIMIT[0] * (time.perf_counter() - begin) + LIMIT[1]
                    limits |= {other: limit for other in made if other != own}
    time_of = {one: statistics.median(taken) for one, taken in seconds.items()}
    enough = STRENGTH.index(last[own].certificate)
    best, shown = time_of[own], []
    for one in made:
        there, strong = last[one].status is Status.CONVERGED, STRENGTH.index(last[one].certificate) >= enough
        best = min(best, time_of[one]) if there and strong else best
        text = f"{one} {'' if there else '> '}{time_of[one]:.3g}"
        shown.append(text if strong else f"({text}, {last[one].certificate})")
    note = "" if last[own].status is Status.CONVERGED else f"  [{last[own].summary()}]"
    print(f"{name:20} {own:10} {time_of[own] / best:5.2f}   {', '.join(shown)}{note}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--row", nargs="*", choices=ROWS)
    parser.add_argument("--gap", type=float, default=0.01)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=60.0, help="of a run of the default, at most")
    parser.add_argument("--data-home", default=os.environ.get("MAXMARGIN_DATA"))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"processor seconds to a gap of {options.gap:g} of the objective\n\n{'':20} {'auto':10} ratio   solvers")
    for name in options.row or ROWS:
        compare(name, options)


if __name__ == "__main__":
    main()

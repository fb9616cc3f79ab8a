"""Images: 21 classes of superpixels on loopy graphs and on a two-level model, gap against seconds.

    python benchmarks/images.py [--model potts levels] [--solver BCFW ...] [--seconds 600] [--figures DIR] [--data-home DIR]

MSRC-21, 276 images for training and 256 for testing, 149 features and a constant for a superpixel; superpixels without a class
are left out. C = 100, and the task loss is the fraction of wrong superpixels.

- *potts*: some 54 superpixels an image; neighbours of equal class score a weight for each of the edge's six features. These
  graphs have cycles.
- *levels*, after Meshi et al.: some 157 fine superpixels, each joined to the nearest of the coarse ones, with one weight for
  equal classes. Positions are two of the features. Every graph is a forest of stars, so all certificates are exact.

Three solvers: BCFW with the engine it chooses (dual decomposition, whose bounds and labelings bracket the exact problem;
max-product on the two-level model), SoftBCFW, and BCFW with HiGHS from the last basis. On loopy graphs the gaps of the first are to
the exact problem, those of the others to the relaxation. The table says when the others were where HiGHS ended.

One thread. Times are of the clock on the wall, with the checks, where BCFW makes many of its oracle calls. --seconds limits each
run, but BCFW asks its oracle about all examples once before that clock starts and once at the end, which takes HiGHS long on
loopy graphs and counts here. Accuracy is that of the weights a run ends with, on the test superpixels of all levels, by
max-product or dual decomposition.
"""

from __future__ import annotations

import argparse
import pathlib
import time

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from maxmargin.datasets import fetch_msrc21
from maxmargin.inference import LinearProgram
from maxmargin.inference.batches import predict
from maxmargin.inference.choice import choose
from maxmargin.problems import graph_problem
from maxmargin.solvers import BCFW, Callback, SoftBCFW

C = 100.0
N_CLASSES = 21
#: Columns of the features: the centre of a superpixel, across and down, as fractions of the image.
POSITION = (144, 145)


def with_class(graph, labels):
    """The superpixels that have a class, their features and a constant, and the edges between them."""
    features, edges, edge_features = graph
    kept = labels >= 0
    number = np.cumsum(kept) - 1
    inside = kept[edges].all(axis=1)
    features = np.hstack([features[kept], np.ones((kept.sum(), 1))])
    return features, number[edges[inside]], edge_features[inside], labels[kept]


def potts(options, subset):
    data = fetch_msrc21(80, options.data_home, subset)
    images = [with_class(*one) for one in zip(data.graphs, data.labels, strict=True)][: options.images]
    return graph_problem([one[:3] for one in images], [one[3] for one in images], N_CLASSES, edge_weights="potts")


def levels(options, subset):
    """Fine superpixels first, then the coarse ones, of the same image."""
    graphs, truth = [], []
    sets = [fetch_msrc21(superpixels, options.data_home, subset) for superpixels in (200, 80)]
    for pairs in list(zip(*(zip(one.graphs, one.labels, strict=True) for one in sets), strict=True))[: options.images]:
        (fine, _, _, fine_labels), (coarse, _, _, coarse_labels) = (with_class(*pair) for pair in pairs)
        apart = fine[:, None, POSITION] - coarse[None, :, POSITION]
        nearest = np.argmin((apart**2).sum(axis=2), axis=1)
        edges = np.stack([np.arange(len(fine)), len(fine) + nearest], axis=1)
        graphs.append((np.concatenate([fine, coarse]), edges))
        truth.append(np.concatenate([fine_labels, coarse_labels]))
    return graph_problem(graphs, truth, N_CLASSES, edge_weights="potts")


MODELS = {"potts": potts, "levels": levels}
SOLVERS = {"HiGHS": lambda: BCFW(LinearProgram(warm=True)), "BCFW": BCFW, "SoftBCFW": SoftBCFW}


def train(solver, problem, limit):
    """The result, and when each check ended: seconds since training began, kernels having been compiled before."""
    solver.solve(problem.take(np.arange(2)), C, max_passes=1)
    at, start = [], time.perf_counter()
    clock = Callback(lambda report: at.append(time.perf_counter() - start))
    result = solver.solve(problem, C, tol=0, max_passes=10**6, max_seconds=limit, monitor=clock)
    return result, np.array(at)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--solver", nargs="+", choices=SOLVERS, default=list(SOLVERS))
    parser.add_argument("--figures", type=pathlib.Path, help="directory for the pictures; without it there are none")
    parser.add_argument("--data-home", help="directory of the data sets (default: MAXMARGIN_DATA)")
    parser.add_argument("--seconds", type=float, default=600.0, help="limit of a run")
    parser.add_argument("--images", type=int, help="use the first few only, to try things out")
    options = parser.parse_args()
    for model in options.model:
        compare(model, options)


def compare(model, options):
    problem, test = (MODELS[model](options, subset) for subset in ("train", "test"))
    engine, _ = choose(test)
    print(
        f"\n== {model} ==\n{problem.n_examples} images, {problem.example_variables[-1]} superpixels, "
        f"{problem.example_factors[-1]} edges, {problem.n_weights} weights, C = {C:g}; {options.seconds:g} s a run; "
        f"predictions by {engine.name}\n"
    )
    solvers = {name: make() for name, make in SOLVERS.items() if name in options.solver}
    print(
        f"| {'solver':26} | certificate | passes | seconds | checks |   primal |     dual |      gap | gap/primal ",
        end="",
    )
    print("| test accuracy | where HiGHS ended after | HiGHS takes x times |")
    print(
        f"|{'-' * 28}|-------------|-------:|--------:|-------:|---------:|---------:|---------:|-----------:", end=""
    )
    print(f"|--------------:|{'-' * 24}:|--------------------:|")
    figure, axes = plt.subplots(figsize=(8, 5), layout="constrained")
    target = end = None
    for name, solver in solvers.items():
        result, at = train(solver, problem, options.seconds)
        gap = np.minimum.accumulate(result.history["gap"])
        if name == "HiGHS":
            target, end = gap[-1], at[-1]
        there = np.flatnonzero(gap <= (-1.0 if target is None else target))
        after = at[there[0]] if len(there) else None
        right = np.mean(predict(test, result.weights, engine).labels == test.labels)
        label = {"HiGHS": "BCFW, HiGHS", "BCFW": f"BCFW, {result.options.get('inference')}"}.get(name, name)
        when, ratio = ("not within", "-") if after is None else (f"{after:.1f} s", f"{end / after:.1f}")
        print(
            f"| {label:26} | {result.certificate:11} | {result.n_passes:6} | {result.seconds:7.1f} "
            f"| {result.history['monitor_seconds'][-1]:6.1f} | {result.primal:8.5f} | {result.dual:8.5f} | {result.gap:8.5f} "
            f"| {result.gap / result.primal:10.2%} | {right:13.2%} | {when:>23} | {ratio:>19} |",
            flush=True,
        )
        axes.loglog(at, np.maximum(gap, 1e-6), marker="o", ms=3, label=f"{label} ({result.certificate})")
    if target is not None:
        axes.axhline(target, color="0.5", ls="--", lw=1, label="where HiGHS ended")
    axes.set(xlabel="seconds, with checks", ylabel="certified gap", title=f"MSRC-21, {model}")
    axes.grid(alpha=0.3, which="both")
    axes.legend(fontsize=8)
    if options.figures is not None:
        options.figures.mkdir(parents=True, exist_ok=True)
        figure.savefig(options.figures / f"images-{model}.png", dpi=110)
        print(f"picture: {options.figures / f'images-{model}.png'}")
    plt.close(figure)


if __name__ == "__main__":
    main()

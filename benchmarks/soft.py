"""Gap against seconds: Algorithm 1 of Meshi, Srebro and Hazan (2015), and the default of this library, for rho in {0.1, 1, 10}.

    python benchmarks/soft.py [--data yeast|synth2] [--data-home DIR] [--seconds 20] [--output benchmarks/output]

The task loss is the number of wrong labels, as in the paper, so that its range of rho means the same. Prints a table and saves
a picture: on the left each solver's gap to the problem it solves (soft for a fixed rho without multipliers, relaxed for the
default), on the right the certified gap to the hard problem G for all of them.
"""

from __future__ import annotations

import argparse
import pathlib

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from maxmargin.datasets import fetch_yeast, make_synth2
from maxmargin.problems import label_edges, multi_label_problem
from maxmargin.solvers import SoftBCFW


def load(name, data_home):
    if name == "yeast":
        data = fetch_yeast(data_home=data_home)
        return data.X, data.Y, 100.0
    X, Y = make_synth2(1000, random_state=0)
    return np.hstack([X, np.ones((len(X), 1))]), Y, 10.0


def first_below(history, gap, share):
    reached = np.flatnonzero(gap <= share * history["primal"])
    return f"{history['seconds'][reached[0]]:8.2f}" if len(reached) else "       -"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=("yeast", "synth2"), default="synth2")
    parser.add_argument("--data-home")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("benchmarks/output"))
    options = parser.parse_args()
    X, Y, C = load(options.data, options.data_home)
    problem = multi_label_problem(X, Y, label_edges("full", Y), Y.shape[1], loss="count")
    runs = {f"Algorithm 1, rho = {rho:g}": SoftBCFW.algorithm_1(rho) for rho in (0.1, 1.0, 10.0)}
    runs |= {f"visits, rho = {rho:g}": SoftBCFW(rho=rho, multipliers=False) for rho in (0.1, 1.0, 10.0)}
    runs["default (multipliers, rho by itself)"] = SoftBCFW()
    print(
        f"{options.data}: {problem.n_examples} examples, {Y.shape[1]} labels, C = {C:g}, loss = number of wrong labels"
    )
    print(
        f"{'':38} {'passes':>7} {'certificate':>11} {'gap/primal':>10}   seconds to a gap of 5 %, 1 % (own) | 5 %, 1 % (to G)"
    )
    figure, (own, hard) = plt.subplots(1, 2, figsize=(12, 5.2), sharey=True)
    for number, (name, solver) in enumerate(runs.items()):
        solver.solve(problem, C, max_passes=1)  # compiled before the clock starts
        result = solver.solve(problem, C, tol=1e-4, max_passes=10**6, max_seconds=options.seconds)
        h = result.history
        primal, dual = h.get("relaxed_primal", h["primal"]), h.get("relaxed_dual", h["dual"])
        to_hard = np.minimum.accumulate(primal) - np.maximum.accumulate(dual)
        style = {
            "color": f"C{number % 3}" if number < 6 else "black",
            "linestyle": ":" if number < 3 else "--" if number < 6 else "-",
        }
        own.loglog(h["seconds"], h["gap"] / h["primal"], label=name, **style)
        hard.loglog(h["seconds"], to_hard / h["primal"], label=name, **style)
        times = [first_below(h, gap, share) for gap in (h["gap"], to_hard) for share in (0.05, 0.01)]
        print(
            f"{name:38} {result.n_passes:7} {result.certificate:>11} {result.gap / result.primal:10.4f}   {' '.join(times)}"
        )
    own.set(
        title="gap to the problem solved (soft, or G for the default)",
        xlabel="seconds",
        ylabel="gap / primal",
        ylim=(1e-4, 3),
    )
    hard.set(title="certified gap to the hard problem G", xlabel="seconds")
    for axes in (own, hard):
        axes.grid(alpha=0.3)
    figure.legend(*own.get_legend_handles_labels(), loc="lower center", ncol=4, fontsize=8)
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / f"soft-{options.data}.png"
    figure.tight_layout(rect=(0, 0.1, 1, 1))
    figure.savefig(path, dpi=110)
    print(f"picture: {path}")


if __name__ == "__main__":
    main()

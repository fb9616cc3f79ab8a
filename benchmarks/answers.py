"""The same answers as before: train every solver on fixed small problems, and compare weights and bounds to the bit.

    python benchmarks/answers.py --save before.npz          in the old version
    python benchmarks/answers.py --compare before.npz       in the new one; names what differs, and by how much

Status 1 if anything differs. No data is needed.
"""

from __future__ import annotations

import argparse
import sys
import warnings

import numpy as np

from maxmargin.errors import MaxMarginError
from maxmargin.problems import graph_problem, label_edges, multi_label_problem
from maxmargin.problems.chains import chain_problem
from maxmargin.problems.multi_class import binary_problem, multi_class_problem
from maxmargin.solvers import BCFW, SOLVERS, OneSlack, SoftBCFW


def problems():
    rng = np.random.default_rng(5)
    X, Y = rng.normal(size=(60, 8)), rng.integers(0, 2, (60, 5))
    lengths = rng.integers(2, 9, 40)
    rows, tags = [rng.normal(size=(n, 6)) for n in lengths], [rng.integers(0, 4, n) for n in lengths]
    ring = [[0, 1], [1, 2], [2, 3], [3, 0]]
    graphs = [(rng.normal(size=(4, 3)), ring, rng.normal(size=(4, 2))) for _ in range(20)]
    return {
        "two classes": binary_problem(X, rng.integers(0, 2, 60)),
        "classes": multi_class_problem(X, rng.integers(0, 4, 60), 4),
        "labels": multi_label_problem(X, Y, label_edges("full", Y), 5),
        "tree of labels": multi_label_problem(X, Y, label_edges("tree", Y), 5),
        "chains": chain_problem(rows, tags, 4),
        "cycles": graph_problem(graphs, [rng.integers(0, 3, 4) for _ in graphs], 3),
    }


def solvers():
    named = {name: kind() for name, kind in SOLVERS.items()}
    return named | {
        "bcfw, plain": BCFW.plain(), "bcfw, joint": BCFW(steps="joint"), "bcfw, pairwise": BCFW(steps="pairwise"),
        "soft-bcfw, algorithm 1": SoftBCFW.algorithm_1(1.0), "one-slack, cache": OneSlack(cache=5),
    }  # fmt: skip


def answers():
    found = {}
    for which, problem in problems().items():
        for name, solver in solvers().items():
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    result = solver.solve(problem, C=20.0, tol=1e-9, max_passes=12)
            except MaxMarginError:
                continue
            found[f"{which}: {name}"] = np.concatenate([result.weights, [result.primal, result.dual]])
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument("--save", metavar="FILE")
    way.add_argument("--compare", metavar="FILE")
    arguments = parser.parse_args()
    found = answers()
    if arguments.save:
        np.savez(arguments.save, **found)
        print(f"{len(found)} runs saved")
        return 0
    with np.load(arguments.compare) as before:
        differ = [f"{name}: only on one side" for name in set(found) ^ set(before.files)]
        for name in sorted(set(found) & set(before.files)):
            if not np.array_equal(found[name], before[name], equal_nan=True):
                with np.errstate(invalid="ignore"):
                    far = np.nanmax(np.abs(found[name] - before[name]))
                differ.append(f"{name}: by {far:.3g}")
    print(*differ, sep="\n")
    print(f"{len(found)} runs, {len(differ)} differ")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())

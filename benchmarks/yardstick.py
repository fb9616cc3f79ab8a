"""The soft solver beside the yardstick prototype: seconds to a certified relaxed gap of 1 % of the primal, one thread.

    python benchmarks/yardstick.py yeast|rcv1 PATH/TO/soft_multipliers.py [--data-home DIR] [--runs 5]

The two sides alternate. Seconds are the algorithm's own on both sides, without monitoring. The yardstick is a program of its own
that knows only this model; its loss is the number of wrong labels, ours the fraction, so C here is 1 / (labels x its lam).
Also printed: test error, bytes of dual state per example, and the time of a pass beside one X @ W.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import pathlib
import re
import statistics
import subprocess
import sys
import time

import numpy as np
from sklearn.metrics import f1_score

import maxmargin as mm
from maxmargin.solvers import Callback, SoftBCFW


def ours(X, Y, C):
    """Seconds to 1 %, total seconds with monitoring, and the result."""
    problem = mm.problems.multi_label_problem(X, Y, mm.problems.label_edges("full", Y), Y.shape[1])
    result = SoftBCFW().solve(problem, C, tol=0, monitor=Callback(lambda report: report.gap > 0.01 * report.primal))
    return result.seconds, result.seconds + result.history["monitor_seconds"][-1], result


def yardstick(path, name):
    printed = subprocess.run([sys.executable, path, name], capture_output=True, text=True, check=True).stdout
    return ast.literal_eval(re.search(r"soft with multipliers: ({.*?})", printed).group(1))[0.01]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", choices=("yeast", "rcv1"))
    parser.add_argument("yardstick", type=pathlib.Path)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    spec = importlib.util.spec_from_file_location("yardstick_program", options.yardstick)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    X, Y, X_test, Y_test, lam, _ = getattr(module, options.data)()
    if options.data == "yeast":
        X, X_test = X.toarray(), X_test.toarray()
    C = 1.0 / (Y.shape[1] * lam)
    ours(X[:50], Y[:50], C)  # compiled before the clock starts
    mine, total, theirs = [], [], []
    for run in range(options.runs):
        seconds, with_monitor, result = ours(X, Y, C)
        mine.append(seconds)
        total.append(with_monitor)
        theirs.append(yardstick(options.yardstick, options.data))
        print(
            f"run {run}: ours {mine[-1]:.2f} s ({total[-1]:.2f} s with monitoring), yardstick {theirs[-1]:.2f} s",
            flush=True,
        )
    ratios = [b / a for a, b in zip(mine, theirs, strict=True)]
    print(f"median: ours {statistics.median(mine):.2f} s, yardstick {statistics.median(theirs):.2f} s")
    print(f"yardstick / ours: median {statistics.median(ratios):.2f}, from {min(ratios):.2f} to {max(ratios):.2f}")
    print(result.summary(), f"after {result.n_passes} passes; relative gap {result.gap / result.primal:.4f}")

    model = mm.MultiLabelSVM(C=C, tol=0.005 * result.primal, fit_intercept=False).fit(X, Y)
    predicted = model.predict(X_test)
    print(
        f"trained to {model.result_.gap / model.result_.primal:.2%}: test Hamming error {np.mean(predicted != Y_test):.4f}, ",
        end="",
    )
    print(f"micro-F1 {f1_score(Y_test, predicted, average='micro'):.4f} (inference: {model.inference_})")
    print(f"dual state: {result.options['state_bytes'] / len(Y):.0f} bytes an example")
    W = np.zeros((X.shape[1], Y.shape[1]))
    products = []
    for _ in range(20):
        start = time.perf_counter()
        X @ W
        products.append(time.perf_counter() - start)
    one_pass = result.seconds / (result.n_passes + 2)  # two short passes over the variables alone at the start
    print(f"a pass takes {one_pass * 1e3:.1f} ms, one X @ W {statistics.median(products) * 1e3:.2f} ms")


if __name__ == "__main__":
    main()

"""Measures that are trained for: F1, precision at k, recall at k, break-even point and ROC area, beside LinearSVC.

    python benchmarks/measures.py [ijcnn1] [covtype] [--data-home DIR] [--rows N]

Every model is trained with its defaults (C chosen on held-out data; LinearSVC with C = 0.01, 1 and 100 / n, plain and balanced, of
which the best *on the test set* is shown for each measure), and all measures are taken on the test set; the one that was trained
for is marked. Seconds of `fit`, kernels compiled, one thread. covtype: class 4 against all others, standardised, the first part of
a random order for training, the next as many rows for testing.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

import maxmargin as mm
from maxmargin.datasets import fetch_covtype
from maxmargin.datasets.fetch import data_directory
from maxmargin.formats import read_svmlight_classes
from maxmargin.measures import CountMeasure, PairMeasure

LOSSES = ("hamming", "f1", "precision@1%", "recall@5%", "break-even", "roc-area")


def ijcnn1(home, rows):
    parts = []
    for end in ("trn", "tst"):
        data = read_svmlight_classes(data_directory(home) / "binary" / f"ijcnn1.{end}.bz2", 22)
        parts += [data.X.toarray()[:rows], (data.y[:rows] > 0).astype(int)]
    return parts


def covtype(home, rows):
    data = fetch_covtype(home)
    order = np.random.default_rng(0).permutation(len(data.y))[: 2 * rows]
    X, y = StandardScaler().fit_transform(data.X[order]), (np.asarray(data.y)[order] == 4).astype(int)
    return X[:rows], y[:rows], X[rows:], y[rows:]


def measures(y, scores):
    found = {"hamming": float(((scores > 0) == (y == 1)).mean())}
    for name in LOSSES[1:]:
        measure = PairMeasure(y) if name == "roc-area" else CountMeasure(name, y == 1)
        found[name] = 1.0 - measure.loss(scores)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=["ijcnn1", "covtype"])
    parser.add_argument("--data-home")
    parser.add_argument("--rows", type=int, default=100_000)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in options.names:
        X, y, X_test, y_test = {"ijcnn1": ijcnn1, "covtype": covtype}[name](options.data_home, options.rows)
        print(f"{name}: {X.shape[0]} x {X.shape[1]}, {100 * y.mean():.2f} % positive")
        print(f"{'':22}{'seconds':>9}" + "".join(f"{loss:>14}" for loss in LOSSES))
        best, seconds = dict.fromkeys(LOSSES, 0.0), 0.0
        for weight in (None, "balanced"):
            for c in (0.01, 1.0, 100.0 / len(y)):
                started = time.perf_counter()
                model = LinearSVC(C=c, class_weight=weight, dual=False).fit(X, y)
                seconds += time.perf_counter() - started
                found = measures(y_test, model.decision_function(X_test))
                best = {loss: max(best[loss], found[loss]) for loss in LOSSES}
        print(f"{'LinearSVC, best of 6':22}{seconds:9.2f}" + "".join(f"{best[loss]:14.4f}" for loss in LOSSES))
        for loss in LOSSES:
            mm.BinarySVM(loss=loss, max_passes=3, C=1.0).fit(X[:500], y[:500] | (np.arange(len(y[:500])) < 9))
            started = time.perf_counter()
            model = mm.BinarySVM(loss=loss).fit(X, y)
            seconds = time.perf_counter() - started
            found = measures(y_test, model.decision_function(X_test))
            cells = "".join(f"{found[one]:13.4f}{'*' if one == loss else ' '}" for one in LOSSES)
            print(f"{'BinarySVM ' + loss:22}{seconds:9.2f}{cells}   C = {model.C_:g}", flush=True)


if __name__ == "__main__":
    main()

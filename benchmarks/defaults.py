"""Models with no settings: error and seconds of every estimator's defaults, beside the best fixed C and beside peers' defaults.

    python benchmarks/defaults.py [NAME...] [--data-home DIR] [--no-grid] [--no-peers]

Per cent wrong on test data: of classes (iris and wine, five folds; digits, the second half; letters of OCR by class), labels
(yeast, scene), letters of words (OCR, fold 0 for training), tags (conll2000; treebank sample, the last fifth of the sentences),
superpixels (msrc21). The grid is C = 10^-1 to 10^5 for the same estimator; "best" is the C of least error on the *test* data, which
no user could choose. Peers: LinearSVC, one for each label where there are several, LogisticRegression on superpixels, and CRFsuite
(L-BFGS and averaged perceptron), on the same features, with their defaults. Seconds of training alone, kernels compiled; one
thread.
"""

from __future__ import annotations

import argparse
import itertools
import os
import tempfile
import time
import warnings
from functools import partial

import numpy as np
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.multioutput import MultiOutputClassifier
from sklearn.svm import LinearSVC

import maxmargin as mm
from maxmargin.datasets import (
    fetch_conll2000,
    fetch_msrc21,
    fetch_ocr_letters,
    fetch_scene,
    fetch_treebank_sample,
    fetch_yeast,
)
from maxmargin.features import TextFeatures

GRID = 10.0 ** np.arange(-1, 6)


def folds(load):
    X, y = load(return_X_y=True)
    cuts = StratifiedKFold(5, shuffle=True, random_state=0).split(X, y)
    return [(X[a], y[a], X[b], y[b]) for a, b in cuts]


def iris(home):
    return mm.MultiClassSVM, folds(load_iris), LinearSVC


def wine(home):
    return mm.MultiClassSVM, folds(load_wine), LinearSVC


def digits(home):
    X, y = load_digits(return_X_y=True)
    half = len(y) // 2
    return mm.MultiClassSVM, [(X[:half], y[:half], X[half:], y[half:])], LinearSVC


def _labels(fetch, home):
    train, test = (fetch(data_home=home, subset=subset) for subset in ("train", "test"))
    return mm.MultiLabelSVM, [(train.X, train.Y, test.X, test.Y)], lambda: MultiOutputClassifier(LinearSVC())


def yeast(home):
    return _labels(fetch_yeast, home)


def scene(home):
    return _labels(fetch_scene, home)


def _words(data):
    cuts = np.cumsum(data.lengths)[:-1]
    return np.split(data.X, cuts), [list(tags) for tags in np.split(data.tags, cuts)]


def ocr_chain(home):
    train, test = (_words(fetch_ocr_letters(home, subset)) for subset in ("train", "test"))
    return mm.ChainSVM, [(*train, *test)], "crfsuite"


def ocr_classes(home):
    train, test = (fetch_ocr_letters(home, subset) for subset in ("train", "test"))
    return mm.MultiClassSVM, [(train.X, train.tags, test.X, test.tags)], LinearSVC


def conll2000(home):
    (X, y), (X_test, y_test) = (fetch_conll2000(home, subset) for subset in ("train", "test"))
    return partial(mm.ChainSVM, features=TextFeatures.chunking()), [(X, y, X_test, y_test)], "crfsuite"


def treebank(home):
    trees = fetch_treebank_sample(home)
    X, y = [tree.words() for tree in trees], [tree.tags() for tree in trees]
    at = len(X) * 4 // 5
    return mm.ChainSVM, [(X[:at], y[:at], X[at:], y[at:])], "crfsuite"


def msrc21(home):
    parts = []
    for subset in ("train", "test"):
        data = fetch_msrc21(80, home, subset)
        graphs, labels = [], []
        for (features, edges, edge_features), states in zip(data.graphs, data.labels, strict=True):
            kept = states >= 0
            number, inside = np.cumsum(kept) - 1, kept[edges].all(axis=1)
            graphs.append((features[kept], number[edges[inside]], edge_features[inside]))
            labels.append(states[kept])
        parts += [graphs, labels]
    return mm.GraphSVM, [tuple(parts)], "nodes"


DATA = {
    "iris": iris, "wine": wine, "digits": digits, "yeast": yeast, "scene": scene, "ocr": ocr_chain, "letters": ocr_classes,
    "conll2000": conll2000, "treebank": treebank, "msrc21": msrc21,
}  # fmt: skip


def flat(y):
    """All labels in one column."""
    return np.asarray(y).ravel() if isinstance(y, np.ndarray) else np.concatenate([np.asarray(one) for one in y])


def run(make, parts):
    """Per cent wrong over all parts, seconds, and the models."""
    wrong = count = seconds = 0
    models = []
    for X, y, X_test, y_test in parts:
        model = make()
        started = time.perf_counter()
        model.fit(X, y)
        seconds += time.perf_counter() - started
        found, truth = flat(model.predict(X_test)), flat(y_test)
        wrong, count = wrong + (found != truth).sum(), count + len(truth)
        models.append(model)
    return 100.0 * wrong / count, seconds, models


class Nodes:
    """Logistic regression on single nodes."""

    def fit(self, X, y):
        self.model = LogisticRegression(max_iter=1000).fit(np.vstack([one[0] for one in X]), flat(y))
        return self

    def predict(self, X):
        return [self.model.predict(one[0]) for one in X]


class CRFsuite:
    """CRFsuite with its defaults, on pixels or on the library's features of words."""

    def __init__(self, algorithm="lbfgs"):
        self.algorithm = algorithm

    def items(self, X):
        import pycrfsuite

        if isinstance(X[0], np.ndarray):
            return [pycrfsuite.ItemSequence([{f"p{j}": v for j, v in enumerate(row) if v} for row in one]) for one in X]
        matrix, names = self.features.transform(X), self.features.feature_names_
        rows = [
            [names[j] for j in matrix.indices[a:b]] for a, b in zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True)
        ]
        cuts = np.cumsum([0, *(len(one) for one in X)])
        return [pycrfsuite.ItemSequence(rows[a:b]) for a, b in itertools.pairwise(cuts)]

    def fit(self, X, y):
        import pycrfsuite

        if not isinstance(X[0], np.ndarray):
            self.features = TextFeatures() if isinstance(X[0][0], str) else TextFeatures.chunking()
            self.features.fit(X)
        trainer = pycrfsuite.Trainer(algorithm=self.algorithm, verbose=False)
        for items, tags in zip(self.items(X), y, strict=True):
            trainer.append(items, tags)
        self.file = os.path.join(tempfile.mkdtemp(), "model")
        trainer.train(self.file)
        return self

    def predict(self, X):
        import pycrfsuite

        tagger = pycrfsuite.Tagger()
        tagger.open(self.file)
        return [tagger.tag(items) for items in self.items(X)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"any of {', '.join(DATA)}; all by default")
    parser.add_argument("--data-home")
    parser.add_argument("--no-grid", action="store_true")
    parser.add_argument("--grid", type=float, nargs="+", default=GRID.tolist(), metavar="C", help="other values of C")
    parser.add_argument(
        "--max-seconds", type=float, help="limit of every fit of ours, for data that takes longer than you wait"
    )
    parser.add_argument("--no-peers", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in options.names or DATA:
        kind, parts, peer = DATA[name](options.data_home)
        if options.max_seconds is not None:
            kind = partial(kind, max_seconds=options.max_seconds)
        few = [tuple(one[:: max(1, len(one) // 60)] for one in parts[0])]
        run(lambda kind=kind: kind(max_passes=3), few)
        error, seconds, models = run(kind, parts)
        chosen = ", ".join(f"{model.C_:g}" for model in models)
        print(f"{name:10} defaults {error:6.2f} %  {seconds:7.2f} s   C = {chosen}", flush=True)
        print("   " + models[0].result_.summary())
        for one in models[0].validation_path_:
            print(
                f"      C {one.C:10g}  loss {one.loss:.5f}  gap {one.gap:.4f}  {one.n_passes} passes  {one.seconds:.2f} s"
            )
        final = sum(model.result_.seconds for model in models)
        print(f"   last fit {final:.2f} s of {seconds:.2f} s")
        if not options.no_grid:
            found = [(*run(lambda C=C, kind=kind: kind(C=C), parts)[:2], C) for C in options.grid]
            for wrong, took, C in found:
                print(f"      grid C {C:10g}  {wrong:6.2f} %  {took:7.2f} s", flush=True)
            wrong, took, C = min(found)
            print(
                f"   best of grid {wrong:6.2f} %  {took:7.2f} s  C = {C:g}: {error - wrong:+.2f} points, {seconds / took:.1f} x"
            )
        if not options.no_peers:
            makers = {"crfsuite": [CRFsuite, lambda: CRFsuite("ap")], "nodes": [Nodes]}.get(peer) or [peer]
            for make in makers:
                wrong, took, models = run(make, parts)
                label = getattr(models[0], "algorithm", type(models[0]).__name__)
                print(f"   peer {label}: {wrong:6.2f} %  {took:7.2f} s", flush=True)


if __name__ == "__main__":
    main()

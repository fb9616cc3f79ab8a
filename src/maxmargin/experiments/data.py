"""Data sets by the names that experiments use, as the papers split and reduced them."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from maxmargin.datasets import (
    fetch_binary,
    fetch_covtype,
    fetch_msrc21,
    fetch_rcv1subset1,
    fetch_scene,
    fetch_tmc2007,
    fetch_treebank_sample,
    fetch_yeast,
    make_synth1,
    make_synth2,
)
from maxmargin.inference import GraphCut, Trees
from maxmargin.inference.batches import predict
from maxmargin.parsing.trees import Tree
from maxmargin.problems import (
    FactorGraphs,
    graph_problem,
    label_edges,
    multi_label_problem,
    nearest_superpixels,
    two_level_graph,
)


class LabelData(NamedTuple):
    """Examples with sets of labels, to train on and to test with."""

    X: Any
    Y: NDArray[np.int8]
    X_test: Any
    Y_test: NDArray[np.int8]


def label_data(name: str, data_home: str | None = None) -> LabelData:
    """A multi-label data set of Finley and Joachims (ICML 2008, table 1).

    reuters keeps the 10 most frequent labels and the documents that have one of them. mediamill, which cannot be had, is stood in
    for by tmc2007 (aviation reports) with its 10 most frequent labels. small-synth1 and small-synth2 have fewer examples.
    """
    if name in ("scene", "yeast"):
        fetch = fetch_scene if name == "scene" else fetch_yeast
        train, test = (fetch(data_home, subset) for subset in ("train", "test"))
        return LabelData(train.X, train.Y, test.X, test.Y)
    if name == "reuters":
        train, test = (
            fetch_rcv1subset1(data_home, subset, n_labels=10, drop_unlabelled=True) for subset in ("train", "test")
        )
        return LabelData(train.X, train.Y, test.X, test.Y)
    if name == "tmc2007":
        train, test = (fetch_tmc2007(data_home, subset) for subset in ("train", "test"))
        kept = np.sort(np.argsort(-train.Y.sum(axis=0, dtype=np.int64), kind="stable")[:10])
        return LabelData(train.X, train.Y[:, kept], test.X, test.Y[:, kept])
    make = make_synth1 if name.endswith("synth1") else make_synth2
    n, n_test = {
        "synth1": (471, 5045),
        "synth2": (1000, 10_000),
        "small-synth1": (150, 1000),
        "small-synth2": (200, 1000),
    }[name]
    return LabelData(*make(n, 0), *make(n_test, 1))


class Examples(NamedTuple):
    """Inputs and outputs, to train on and to test with; trees have no outputs of their own."""

    X: Any
    y: Any
    X_test: Any
    y_test: Any


def class_data(name: str, n: int, data_home: str | None = None) -> Examples:
    """Classes: the first n rows of covtype in random order, scaled to 0..1, and 58,101 others to test; or clouds of points."""
    if name == "clouds":
        rng = np.random.default_rng(0)
        centres = rng.normal(size=(7, 20))
        y = rng.integers(0, 7, n + 2000)
        X = centres[y] + 1.7 * rng.normal(size=(len(y), 20))
        return Examples(X[:n], y[:n], X[n:], y[n:])
    data = fetch_covtype(data_home)
    order = np.random.default_rng(0).permutation(len(data.y))
    X = np.asarray(data.X)[order]
    X -= X.min(axis=0)
    X /= np.maximum(X.max(axis=0), 1e-12)
    y, split = np.asarray(data.y)[order], len(order) - 58_101
    return Examples(X[: min(n, split)], y[: min(n, split)], X[split:], y[split:])


def tag_data(name: str, n: int, data_home: str | None = None) -> Examples:
    """Tagged sequences: the treebank sample's sentences (every seventh to test), or chains drawn at random."""
    if name == "chains":
        rng = np.random.default_rng(0)
        means, follows = rng.normal(size=(8, 20)), rng.dirichlet(np.full(8, 0.5), size=8)
        X, y = [], []
        for length in rng.integers(5, 15, n + 300):
            tags = [int(rng.integers(8))]
            while len(tags) < length:
                tags.append(int(rng.choice(8, p=follows[tags[-1]])))
            y.append(np.array(tags))
            X.append(means[tags] + 2.0 * rng.normal(size=(int(length), 20)))
        return Examples(X[:n], y[:n], X[n:], y[n:])
    trees = fetch_treebank_sample(data_home)
    train, test = _split(trees, n)
    return Examples(
        [one.words() for one in train],
        [one.tags() for one in train],
        [one.words() for one in test],
        [one.tags() for one in test],
    )


def tree_data(name: str, n: int, data_home: str | None = None) -> Examples:
    """Trees: those of the treebank sample with at most 15 words (every seventh to test), or drawn from a small grammar."""
    if name == "grammar":
        rng = np.random.default_rng(0)
        trees: list[Tree] = []
        while len(trees) < n + 100:
            tree = _grow("S", rng, 0)
            if len(tree.words()) <= 12:
                trees.append(tree)
        return Examples(trees[:n], None, trees[n:], None)
    train, test = _split([one for one in fetch_treebank_sample(data_home) if len(one.words()) <= 15], n)
    return Examples(train, None, test, None)


def _split(items: list[Any], n: int) -> tuple[list[Any], list[Any]]:
    order = np.random.default_rng(0).permutation(len(items))
    test = [items[k] for k in order[::7]]
    train = [items[k] for place, k in enumerate(order) if place % 7]
    return train[:n], test


#: Rules with their odds; what has none is a tag.
_RULES = {
    "S": (("NP VP", 4), ("S CC S", 1)),
    "NP": (("DT NN", 3), ("NN", 2), ("NP PP", 2), ("DT JJ NN", 2)),
    "VP": (("VB NP", 3), ("VB", 1), ("VP PP", 2), ("VB NP PP", 1)),
    "PP": (("IN NP", 1),),
}
#: Words of tags; some have two, so that there is something to learn.
_WORDS = {
    "DT": "the a", "NN": "dog saw man park cat light", "JJ": "old light big", "VB": "saw sees light ran",
    "IN": "in with", "CC": "and",
}  # fmt: skip


def _grow(label: str, rng: np.random.Generator, depth: int) -> Tree:
    """A tree drawn from the grammar."""
    if label in _WORDS:
        return Tree(label, str(rng.choice(_WORDS[label].split())))
    rules = _RULES[label]
    # Deep down the first rule alone, which ends soon.
    odds = np.array([odds for _, odds in rules], float) if depth < 6 else np.eye(len(rules))[0]
    right = rules[int(rng.choice(len(rules), p=odds / odds.sum()))][0]
    return Tree(label, [_grow(part, rng, depth + 1) for part in right.split()])


def binary_data(name: str, n: int, data_home: str | None = None) -> Examples:
    """Two classes: ijcnn1 and reuters (grain or not), one class of covtype against the others, or two clouds."""
    if name in ("clouds", "covtype"):
        many = class_data(name, n, data_home)
        first = 0 if name == "clouds" else 1
        return many._replace(y=np.where(many.y == first, 1, -1), y_test=np.where(many.y_test == first, 1, -1))
    train, test = (fetch_binary(name, data_home, subset) for subset in ("train", "test"))  # type: ignore[arg-type]
    return Examples(train.X[:n], train.y[:n], test.X, test.y)


class Training(NamedTuple):
    """A problem to train on, its C, and a function that measures weights on test examples."""

    problem: FactorGraphs
    C: float
    measure: Callable[[NDArray[np.float64]], float]
    measure_name: str


def soft_data(name: str, data_home: str | None = None, n: int | None = None, seed: int = 0) -> Training:
    """The data of Meshi, Srebro and Hazan (AISTATS 2015, section 6), or a random n of its examples; the loss is a count.

    yeast, lam = 0.01; reuters, 5000 of the 6000 documents of RCV1 subset 1 with their 30 most frequent labels, lam = 3e-4; msrc21,
    superpixels on two levels with scores of 21 classes by logistic regression, which stands in for the features of Yao et al.,
    lam = 1; small-synth2, 200 examples, lam = 0.01.
    """
    if name == "msrc21":
        return _pictures(data_home, n, seed)
    if name == "reuters":
        both = [fetch_rcv1subset1(data_home, subset) for subset in ("train", "test")]
        X: Any = sp.vstack([one.X for one in both], format="csr")  # type: ignore[call-overload]
        Y = np.concatenate([one.Y for one in both])
        Y = Y[:, np.argsort(-Y.sum(axis=0, dtype=np.int64), kind="stable")[:30]]
        order = np.random.default_rng(0).permutation(len(Y))
        data, lam = LabelData(X[order[:5000]], Y[order[:5000]], X[order[5000:]], Y[order[5000:]]), 3e-4
    else:
        data, lam = label_data(name, data_home), 0.01
        if "synth2" in name:
            # Nothing can be learned there without a constant.
            X, X_test = (np.hstack([one, np.ones((len(one), 1))]) for one in (data.X, data.X_test))
            data = data._replace(X=X, X_test=X_test)
    L = data.Y.shape[1]
    edges = label_edges("full", data.Y)
    chosen = _some(len(data.Y), n, seed)
    problem = multi_label_problem(data.X[chosen], data.Y[chosen], edges, L, loss="count")
    test = multi_label_problem(data.X_test, None, edges, L)

    def measure(weights: NDArray[np.float64]) -> float:
        found = predict(test, weights, GraphCut()).labels.reshape(data.Y_test.shape)
        if name == "reuters":
            return 100.0 * float(f1_score(data.Y_test, found, average="micro", zero_division=0.0))
        return 100.0 * float(np.mean(found == data.Y_test))

    return Training(problem, 1.0 / lam, measure, "F1 %" if name == "reuters" else "labels right %")


def _some(count: int, n: int | None, seed: int) -> NDArray[np.int64]:
    """A random n of the examples, in order; all if n is None."""
    if n is None or n >= count:
        return np.arange(count)
    return np.sort(np.random.default_rng(seed).permutation(count)[:n])


#: Columns of the features of a superpixel that are its place in the image.
_PLACE = (144, 145)


@lru_cache(maxsize=1)
def _scored_pictures(data_home: str | None) -> dict[str, list[Any]]:
    """Graphs and classes of two levels of superpixels, those that have a class, to train and to test.

    The scores of a level come from its own features. They take half a minute, and a process asks for many parts of them.
    """
    found: dict[str, list[Any]] = {}
    for subset in ("train", "test"):
        levels = [fetch_msrc21(size, data_home, subset) for size in (200, 80)]
        found[subset] = [
            [
                (graph[0][labels >= 0], labels[labels >= 0])
                for graph, labels in zip(level.graphs, level.labels, strict=True)
            ]
            for level in levels
        ]
    models = []
    for level in found["train"]:
        X, y = (np.concatenate(part) for part in zip(*level, strict=True))
        model = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=200))
        models.append(model.fit(X, y))
    return {subset: [_two_levels(pair, models) for pair in zip(*found[subset], strict=True)] for subset in found}


def _pictures(data_home: str | None, n: int | None, seed: int) -> Training:
    """All pictures to train on, or a random n of them."""
    made = _scored_pictures(data_home)
    chosen = _some(len(made["train"]), n, seed)
    graphs, truth = zip(*(made["train"][k] for k in chosen), strict=True)
    problem = graph_problem(graphs, truth, 21, edge_weights="potts", loss="count", node_weights="class-wise")
    test_graphs, test_truth = zip(*made["test"], strict=True)
    test = graph_problem(test_graphs, None, 21, edge_weights="potts", node_weights="class-wise")
    right = np.concatenate(test_truth)

    def measure(weights: NDArray[np.float64]) -> float:
        return 100.0 * float(np.mean(predict(test, weights, Trees()).labels == right))

    return Training(problem, 1.0, measure, "superpixels right %")


def _two_levels(pair: Any, models: list[Any]) -> tuple[Any, NDArray[np.int64]]:
    """The graph of a picture, with scores as features, and the classes of its superpixels."""
    (fine, fine_labels), (coarse, coarse_labels) = pair
    scores: list[Any] = [model.predict_log_proba(X) for model, X in zip(models, (fine, coarse), strict=True)]
    parents = nearest_superpixels(fine[:, _PLACE], coarse[:, _PLACE])
    return two_level_graph(scores[0], scores[1], parents), np.concatenate([fine_labels, coarse_labels])

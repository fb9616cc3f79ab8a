"""Beside other programs: LIBLINEAR, CRFsuite, HiGHS, PyMaxflow, and an ``svm_hmm_learn`` on the PATH, as far as they are there.

Both sides run in turns, in one process and one thread, after a first run of each that compiles or warms; a ratio is the other's
seconds by ours inside a repeat, so that 2 means twice as fast. What is compared is said with each, and so is what both came to: an
objective, or a test score.
"""

from __future__ import annotations

import importlib
import itertools
import os
import shutil
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.svm import LinearSVC

from maxmargin.datasets import fetch_conll2000, fetch_ocr_letters
from maxmargin.errors import MaxMarginError
from maxmargin.estimators.binary import BinarySVM
from maxmargin.estimators.chain import ChainSVM
from maxmargin.estimators.multi_class import MultiClassSVM
from maxmargin.experiments.data import Examples, binary_data, class_data, tag_data, tree_data
from maxmargin.experiments.experiment import Experiment, Figures, Row, Setting, Table, View
from maxmargin.experiments.papers.intractable_inference import random_graphs
from maxmargin.features import TextFeatures
from maxmargin.formats.svm_hmm import SequenceData, write_svm_hmm
from maxmargin.inference import GraphCut, LinearProgram
from maxmargin.solvers import OneSlack

Side = Callable[[], Any]


def take_turns(ours: Side, theirs: Side, repeats: int) -> Figures:
    """Seconds of both sides, in turns, the first of a pair changing; and what each returned last."""
    seconds: dict[str, list[float]] = {"ours": [], "peer": []}
    values: dict[str, Any] = {}
    sides = (("ours", ours), ("peer", theirs))
    for name, side in sides:
        values[name] = side()
    for repeat in range(repeats):
        for name, side in sides if repeat % 2 else reversed(sides):
            began = time.perf_counter()
            values[name] = side()
            seconds[name].append(time.perf_counter() - began)
    return {"ours": seconds["ours"], "peer": seconds["peer"], "our_value": values["ours"], "peer_value": values["peer"]}


def _import(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise MaxMarginError(f"{package} is not installed: pip install {package}") from None


# ------------------------------------------------------------------------------------------------------- LIBLINEAR

#: Tolerances of LIBLINEAR, from loose to tight.
_LADDER = (10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0003, 0.0001)
_WITHIN = 0.001


def _rows(name: str, data_home: str | None) -> tuple[Any, NDArray[np.int64]]:
    if name == "letters":
        letters = fetch_ocr_letters(data_home, setting="large")
        return letters.X, np.unique(letters.tags, return_inverse=True)[1]
    many = name in ("clouds", "covtype")
    data = class_data(name, 4000, data_home) if many else binary_data(name.removeprefix("two-"), 60_000, data_home)
    X = data.X
    if not isinstance(X, np.ndarray):
        # LIBLINEAR takes no other.
        X.indptr, X.indices = X.indptr.astype(np.int32), X.indices.astype(np.int32)
    return X, np.unique(data.y, return_inverse=True)[1]


def objective(
    X: Any, y: NDArray[np.int64], coef: NDArray[np.float64], intercept: NDArray[np.float64], C: float
) -> float:
    """What both minimise: 1/(2C) (|coef|^2 + |intercept|^2) + mean hinge, of two classes or of several."""
    scores = np.asarray(X @ coef.T) + intercept
    if len(coef) == 1:
        hinges = np.maximum(0.0, 1.0 - (2 * y - 1) * scores[:, 0])
    else:
        at = np.arange(len(y)), y
        truth = scores[at].copy()
        scores += 1.0
        scores[at] = truth
        hinges = scores.max(axis=1) - truth
    return 0.5 / C * float((coef**2).sum() + (intercept**2).sum()) + float(hinges.mean())


def beside_liblinear(setting: Setting, data_home: str | None) -> Figures:
    """The same objective to 0.1 %: ours by its certificate, LIBLINEAR with the loosest tolerance that gets there."""
    X, y = _rows(str(setting["data"]), data_home)
    two, C = int(y.max()) == 1, float(setting["cost"]) * len(y)

    def fit(tol: float) -> Any:
        kind = BinarySVM if two else MultiClassSVM
        return kind(C=C, tol=tol, scale=False, max_passes=10**6, max_seconds=120.0, n_jobs=1).fit(X, y)

    def other(tol: float) -> Any:
        options = {"loss": "hinge"} if two else {"multi_class": "crammer_singer"}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return LinearSVC(C=C / len(y), tol=tol, max_iter=10_000, random_state=0, **options).fit(X, y)

    best = fit(1e-4).result_.dual
    best = fit(1e-4 * best).result_.dual
    for tol in _LADDER:
        found = other(tol)
        value = objective(X, y, found.coef_, found.intercept_, C)
        if value <= (1.0 + _WITHIN) * best:
            break
    figures = take_turns(
        lambda: fit(_WITHIN * best).result_.primal, lambda: other(tol) and value, int(setting["repeats"])
    )
    return figures | {"what": "objective", "peer_name": "LIBLINEAR"}


# -------------------------------------------------------------------------------------------------------- CRFsuite

#: CRFsuite's weight of |w|^2 beside the sum of the log-losses: C is the number of examples by twice that.
_C2 = 1.0
#: Ours, and CRFsuite's algorithm with its options: about the same score. Of the conditional random field both have the same
#: objective, but CRFsuite has weights only for pairs of a feature and a tag that were seen together.
_TAGGERS: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    "perceptron": ({"C": 1.0, "solver": "perceptron", "max_passes": 4}, "ap", {"max_iterations": 6}),
    "bcfw": ({"C": 30.0, "solver": "bcfw", "tol": 0.02}, "pa", {"max_iterations": 10}),
    "lbfgs": ({"solver": "lbfgs", "objective": "log", "tol": 0.05}, "lbfgs", {"c1": 0.0, "c2": _C2}),
}


def _sentences(name: str, data_home: str | None) -> Examples:
    if name == "conll2000":
        (X, y), (X_test, y_test) = (fetch_conll2000(data_home, subset) for subset in ("train", "test"))
        return Examples(X, y, X_test, y_test)
    trees = tree_data("grammar", 300)
    words, tags = ([[tree.words() for tree in part] for part in (trees.X, trees.X_test)],
                   [[tree.tags() for tree in part] for part in (trees.X, trees.X_test)])  # fmt: skip
    return Examples(words[0], tags[0], words[1], tags[1])


def beside_crfsuite(setting: Setting, data_home: str | None) -> Figures:
    """From features to a model: ours from the words (features, checks, training), CRFsuite from feature strings made before."""
    crfsuite = _import("pycrfsuite", "python-crfsuite")
    data = _sentences(str(setting["data"]), data_home)
    features = TextFeatures.chunking() if setting["data"] == "conll2000" else TextFeatures()
    options, algorithm, parameters = _TAGGERS[str(setting["method"])]
    options = {"C": len(data.X) / (2.0 * _C2)} | options

    def items(X: Any, matrix: Any) -> list[Any]:
        names = features.feature_names_
        rows = [[names[j] for j in matrix.indices[a:b]] for a, b in itertools.pairwise(matrix.indptr)]
        cuts = np.concatenate([[0], np.cumsum([len(one) for one in X])])
        return [crfsuite.ItemSequence(rows[a:b]) for a, b in itertools.pairwise(cuts)]

    made, tests = items(data.X, features.fit_transform(data.X)), items(data.X_test, features.transform(data.X_test))

    def ours() -> float:
        model = ChainSVM(features=features, n_jobs=1, **options).fit(data.X, data.y)
        return 100.0 * model.score(data.X_test, data.y_test)

    def theirs() -> float:
        trainer = crfsuite.Trainer(algorithm=algorithm, verbose=False, params=parameters)
        for one, tags in zip(made, data.y, strict=True):
            trainer.append(one, tags)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model")
            trainer.train(path)
            tagger = crfsuite.Tagger()
            tagger.open(path)
            found = [tagger.tag(one) for one in tests]
            tagger.close()
        pairs = zip(itertools.chain(*found), itertools.chain(*data.y_test), strict=True)
        return 100.0 * float(np.mean([one == other for one, other in pairs]))

    figures = take_turns(ours, theirs, int(setting["repeats"]))
    return figures | {"what": "test score %", "peer_name": f"CRFsuite, {algorithm}"}


# ------------------------------------------------------------------------------------------- HiGHS and PyMaxflow


def beside_relaxations(setting: Setting, data_home: str | None) -> Figures:
    """The relaxation of complete graphs of labels: our max-flow beside HiGHS from the last basis, or PyMaxflow's max-flow."""
    n, count = int(setting["nodes"]), int(setting["problems"])
    graphs, scores = random_graphs(n, count)

    def ours() -> float:
        return float(GraphCut().relax(graphs, scores).bounds.sum())

    if setting["peer"] == "HiGHS":
        _import("highspy", "highspy")
        program = LinearProgram(warm=True)
        figures = take_turns(ours, lambda: float(program.relax(graphs, scores).bounds.sum()), int(setting["repeats"]))
    else:
        maxflow = _import("maxflow", "PyMaxflow")
        figures = take_turns(ours, lambda: _roof_dual(maxflow, scores, n, count), int(setting["repeats"]))
    return figures | {"what": "sum of bounds", "peer_name": str(setting["peer"])}


def _roof_dual(maxflow: Any, scores: Any, n: int, count: int) -> float:
    """The bound by one maximum flow of all problems: a node for each label and one for its complement (Boros and Hammer).

    The score less is ``constant + sum_i c_i x_i + sum_ij d_ij x_i x_j``. With d < 0, ``d x_i x_j = d x_i - d x_i (1 - x_j)`` is an
    arc from i to j, with d > 0 it is ``d x_i (1 - x'_j)``, an arc to the complement; half of each, and half of its mirror image.
    """
    i, j = np.triu_indices(n, 1)
    own = -scores.variables.reshape(count, n, 2)
    pair = -scores.factors.reshape(count, len(i), 4)
    d = pair[:, :, 0] - pair[:, :, 1] - pair[:, :, 2] + pair[:, :, 3]
    c = own[:, :, 1] - own[:, :, 0]
    for e, (one, other) in enumerate(zip(i, j, strict=True)):
        c[:, one] += pair[:, e, 2] - pair[:, e, 0] + np.minimum(d[:, e], 0.0)
        c[:, other] += pair[:, e, 1] - pair[:, e, 0]
    total, first = n * count, n * np.arange(count)[:, None]
    tail, head = (i + first).ravel(), (j + first).ravel()
    graph = maxflow.GraphFloat(2 * total, 2 * len(tail))
    nodes, none = graph.add_nodes(2 * total), np.zeros(total)
    graph.add_grid_tedges(nodes, np.concatenate([none, 0.5 * c.ravel()]), np.concatenate([0.5 * c.ravel(), none]))
    alike, half, nothing = d.ravel() <= 0.0, 0.5 * np.abs(d).ravel(), np.zeros(d.size)
    graph.add_edges(tail, np.where(alike, head, total + head), half, nothing)
    graph.add_edges(np.where(alike, total + head, head), total + tail, half, nothing)
    return -float(own[:, :, 0].sum() + pair[:, :, 0].sum() + graph.maxflow())


# --------------------------------------------------------------------------------------------------------- SVM-hmm


def beside_svm_hmm(setting: Setting, data_home: str | None) -> Figures:
    """1-slack with SVM-struct's rule, beside the program of its author: the same C and epsilon, the loss counts wrong tags."""
    program = shutil.which("svm_hmm_learn")
    if program is None:
        raise MaxMarginError("there is no svm_hmm_learn on the PATH; its source is on svmlight.joachims.org")
    if setting["data"] == "ocr-letters":
        data = fetch_ocr_letters(data_home)
    else:
        chains = tag_data("chains", 200)
        X, y = np.concatenate(chains.X), np.concatenate(chains.y)
        data = SequenceData(X, np.array([len(one) for one in chains.X]), y + 1, np.arange(len(chains.X)))
    cuts, epsilon = np.cumsum(data.lengths)[:-1], float(setting["epsilon"])
    rows, tags = np.split(np.asarray(data.X), cuts), np.split(np.unique(data.tags, return_inverse=True)[1], cuts)
    C = float(setting["cost"]) * len(rows)

    def ours() -> float:
        options: dict[str, Any] = {
            "boundary": False,
            "scale": False,
            "fit_intercept": False,
            "max_passes": 10**6,
            "n_jobs": 1,
        }
        model = ChainSVM(C=C, loss="count", tol=epsilon, solver=OneSlack(stop="svm-struct"), **options).fit(rows, tags)
        return float(model.result_.primal)

    with tempfile.TemporaryDirectory() as folder:
        path, model = os.path.join(folder, "data"), os.path.join(folder, "model")
        write_svm_hmm(path, data)

        def theirs() -> float:
            command = [str(program), "-c", f"{C:g}", "-e", f"{epsilon:g}", "--t", "1", "--e", "0", path, model]
            subprocess.run(command, check=True, capture_output=True)
            return float("nan")

        figures = take_turns(ours, theirs, int(setting["repeats"]))
    return figures | {"what": "objective", "peer_name": "SVM-hmm"}


# ---------------------------------------------------------------------------------------------------- declarations


def show(rows: list[Row]) -> View:
    """A line for each comparison."""
    cells = []
    for row in rows:
        f = row.figures
        ours, peer = np.array(f["ours"]), np.array(f["peer"])
        ratio = peer / ours
        cells.append(
            [_words(row.setting), f["peer_name"], float(np.median(ours)), _range(ours), float(np.median(peer)), _range(peer),
             float(np.median(ratio)), _range(ratio), f["what"], f["our_value"], f["peer_value"]]
        )  # fmt: skip
    columns = (
        "work",
        "beside",
        "ours, s",
        "from - to",
        "theirs, s",
        "from - to",
        "times as fast",
        "from - to",
        "came to",
        "ours",
        "theirs",
    )
    return View([Table("Medians, and the smallest and the largest.", columns, cells, 3)])


def _range(values: NDArray[np.float64]) -> str:
    return f"{values.min():.3g} - {values.max():.3g}"


def _words(setting: Setting) -> str:
    return ", ".join(str(value) for name, value in setting.items() if name not in ("repeats", "peer"))


PEERS = {"peers": "Beside other programs"}
_RELAXED: dict[str, Any] = {"peer": ("HiGHS", "PyMaxflow"), "nodes": (14, 30)}
EXPERIMENTS = [
    Experiment(
        "liblinear", "peers", "LIBLINEAR: two classes and several", "To within 0.1 % of the optimum; the cost is C / n.",
        beside_liblinear,
        ({"data": ("two-clouds", "clouds"), "cost": (0.01, 1.0), "repeats": (3,)},),
        ({"data": ("reuters", "ijcnn1"), "cost": (0.1, 1.0, 10.0), "repeats": (5,)},
         {"data": ("letters",), "cost": (0.01,), "repeats": (3,)}),
        show, timed=True,
    ),
    Experiment(
        "crfsuite", "peers", "CRFsuite: taggers", "From words, or feature strings, to a model and to predictions.",
        beside_crfsuite,
        ({"data": ("grammar",), "method": tuple(_TAGGERS), "repeats": (3,)},),
        ({"data": ("conll2000",), "method": tuple(_TAGGERS), "repeats": (3,)},),
        show, timed=True,
    ),
    Experiment(
        "relaxation", "peers", "HiGHS and PyMaxflow: the relaxation of complete graphs", "Bounds must agree.",
        beside_relaxations,
        (_RELAXED | {"problems": (100,), "repeats": (3,)},), (_RELAXED | {"problems": (1000,), "repeats": (5,)},), show, timed=True,
    ),
    Experiment(
        "svm-hmm", "peers", "SVM-hmm: 1-slack at the same rule", "With SVM-struct's stopping rule, C and epsilon.", beside_svm_hmm,
        ({"data": ("chains",), "cost": (0.1,), "epsilon": (0.1,), "repeats": (3,)},),
        ({"data": ("ocr-letters",), "cost": (0.1,), "epsilon": (0.1, 0.01), "repeats": (3,)},),
        show, timed=True,
    ),
]  # fmt: skip

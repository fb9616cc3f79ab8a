"""Held-out loss during training, early stopping, and callbacks, against models that were trained to the same pass."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from maxmargin import BinarySVM, ChainSVM, GraphSVM, MultiClassSVM, MultiLabelSVM, ParserSVM, StructuredSVM, load
from maxmargin.errors import OptionError
from maxmargin.solvers import SOLVERS, Report
from maxmargin.solvers.core.result import Status

RING = [[0, 1], [1, 2], [2, 3], [3, 0]]


def noisy_rows(seed, n=80, p=30):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    return X, (X[:, 0] + 1.5 * rng.normal(size=n) > 0).astype(int)


def noisy_tags(seed, n=40, noise=1.0):
    rng = np.random.default_rng(seed)
    tags = [rng.choice(["B", "I", "O"], size=k) for k in rng.integers(1, 6, n)]
    return [np.eye(3)[np.searchsorted(["B", "I", "O"], y)] + noise * rng.normal(size=(len(y), 3)) for y in tags], tags


def noisy_graphs(seed, n=20):
    rng = np.random.default_rng(seed)
    labels = [rng.integers(0, 3, 4) for _ in range(n)]
    return [(np.eye(3)[y] + rng.normal(size=(4, 3)), RING) for y in labels], labels


def noisy_sets(seed, n=60):
    rng = np.random.default_rng(seed)
    Y = rng.integers(0, 2, (n, 4))
    return Y + rng.normal(size=(n, 4)), Y


CASES = {
    "classes": (MultiClassSVM(C=1e4, tol=1e-4, solver="bcfw"), noisy_rows),
    "two classes, scaled": (BinarySVM(C=1e4, tol=1e-4, solver="bcfw", scale=True), noisy_rows),
    "kernel": (MultiClassSVM(C=1e3, kernel="rbf", tol=1e-4), noisy_rows),
    "basis": (MultiClassSVM(C=1e3, kernel="rbf", n_basis=10, tol=1e-4), noisy_rows),
    "labels": (MultiLabelSVM(C=1e3, tol=1e-4), noisy_sets),
    "tags": (ChainSVM(C=1e3, tol=1e-4), noisy_tags),
    "nodes": (GraphSVM(C=1e3, tol=1e-4, solver="bcfw"), noisy_graphs),
    "perceptron": (ChainSVM(C=1, solver="perceptron", max_passes=12), noisy_tags),
    "lbfgs": (ChainSVM(C=100, objective="log", tol=1e-5), noisy_tags),
}


@pytest.mark.parametrize("name", CASES)
def test_the_recorded_loss_is_that_of_the_model_at_each_pass(name):
    """1 - score, of models that were stopped at the same pass; training itself is not changed by being watched."""
    model, data = CASES[name]
    model, (X, y), held = clone(model), data(0), data(1)
    plain = clone(model).fit(X, y)
    seen = []
    model.fit(X, y, eval_set=held, callbacks=[seen.append])
    history = model.result_.history
    if name != "perceptron":
        # A perceptron has no checks unless it is watched.
        np.testing.assert_array_equal(model.result_.weights, plain.result_.weights)
        assert model.result_.status == plain.result_.status
    assert all(isinstance(report, Report) for report in seen)
    np.testing.assert_array_equal([report.eval_loss for report in seen], history["eval_loss"])
    np.testing.assert_array_equal([report.n_passes for report in seen], history["n_passes"])
    assert history["eval_loss"][-1] == pytest.approx(1.0 - model.score(*held))
    for at in (0, len(seen) // 2):
        n = seen[at].n_passes
        stopped = clone(model).set_params(max_passes=n, tol=0.0).fit(X, y)
        if at == 0 and "No weights were found that are better than zero" in stopped.result_.message:
            continue
        assert history["eval_loss"][at] == pytest.approx(1.0 - stopped.score(*held)), f"pass {n}"
    assert model.result_.options["best_eval_loss"] == np.min(history["eval_loss"])


def test_patience_keeps_the_best_weights_and_says_so():
    (X, y), held = noisy_rows(0), noisy_rows(1, 300)
    model = MultiClassSVM(C=1e5, tol=1e-6, solver="bcfw").fit(X, y, eval_set=held, patience=3)
    result = model.result_
    losses = result.history["eval_loss"]
    best = int(np.argmin(losses))
    assert result.status is Status.EARLY_STOPPED
    assert len(losses) == best + 4
    assert result.options["best_pass"] == result.history["n_passes"][best]
    assert 1.0 - model.score(*held) == pytest.approx(losses[best])
    assert f"The weights are those of pass {result.options['best_pass']}" in result.summary()
    # The certificate is that of these weights.
    w = result.weights
    scores = X @ model.coef_.T + model.intercept_
    hinge = np.max(scores - scores[np.arange(len(y)), y][:, None] + (np.arange(2) != y[:, None]), axis=1)
    assert result.primal == pytest.approx(w @ w / 2e5 + hinge.mean(), rel=1e-9)
    assert result.gap == pytest.approx(result.primal - result.dual)
    assert result.gap > 1e-6


def test_first_weights_that_are_worse_than_none_are_watched_all_the_same():
    """They are not given away as a result, but what they predict may be better than nothing, and training must not end there."""
    (X, y), held = noisy_tags(0, 60), noisy_tags(1, 60)
    model = ChainSVM(C=1000, tol=1e-4).fit(X, y, eval_set=held, patience=3)
    losses = model.result_.history["eval_loss"]
    assert len(set(losses[:4])) > 1
    assert losses.min() < 0.9 * np.mean(np.concatenate(held[1]) != "B")
    assert model.result_.weights.any()


def test_a_converged_run_whose_best_weights_are_earlier_ones_does_not_claim_to_have_converged():
    (X, y), held = noisy_rows(0), noisy_rows(1, 300)
    model = MultiClassSVM(C=1e3, tol=1e-5, solver="bcfw").fit(X, y, eval_set=held, patience=10**6)
    assert model.result_.options["best_pass"] < model.result_.history["n_passes"][-1]
    assert model.result_.status is Status.EARLY_STOPPED
    assert model.result_.gap > 1e-5
    plain = MultiClassSVM(C=1e3, tol=1e-5, solver="bcfw").fit(X, y, eval_set=held)
    assert plain.result_.status is Status.CONVERGED
    assert "eval_loss" in plain.result_.history


def test_a_callback_ends_training():
    X, y = noisy_rows(0)
    model = BinarySVM(C=1e4, tol=1e-8, solver="bcfw").fit(X, y, callbacks=[lambda report: report.n_passes < 3])
    assert model.result_.status is Status.INTERRUPTED
    assert model.result_.n_passes == 3
    assert "A callback ended training." in model.result_.message
    same = BinarySVM(C=1e4, tol=0.0, solver="bcfw", max_passes=3).fit(X, y)
    np.testing.assert_array_equal(model.coef_, same.coef_)


@pytest.mark.parametrize("name", SOLVERS)
def test_every_solver_can_be_watched(name):
    (X, Y), held = noisy_sets(0, 30), noisy_sets(1, 30)
    # With a larger C some are still worse than zero after so few passes, and return that.
    options = {"C": 1.0, "solver": name, "objective": SOLVERS[name].objectives[0], "max_passes": 12, "edges": "tree"}
    watched = MultiLabelSVM(**options).fit(X, Y, eval_set=held)
    np.testing.assert_array_equal(watched.result_.weights, MultiLabelSVM(**options).fit(X, Y).result_.weights)
    assert watched.result_.history["eval_loss"][-1] == pytest.approx(1.0 - watched.score(*held))
    stopped = MultiLabelSVM(**options).fit(X, Y, eval_set=held, patience=1)
    assert stopped.result_.options["best_eval_loss"] == pytest.approx(1.0 - stopped.score(*held))
    assert stopped.result_.status is not Status.CONVERGED or stopped.result_.gap <= 1e-3


def test_runs_that_choose_C_are_not_watched():
    (X, y), held = noisy_rows(0), noisy_rows(1)
    seen = []
    model = MultiClassSVM().fit(X, y, eval_set=held, callbacks=[seen.append])
    plain = MultiClassSVM().fit(X, y)
    np.testing.assert_array_equal(model.result_.weights, plain.result_.weights)
    assert model.C_ == plain.C_
    assert [report.n_passes for report in seen] == model.result_.history["n_passes"].tolist()
    assert not np.isnan(model.result_.history["eval_loss"]).any()


def test_progress_says_how_it_ended(capsys):
    (X, y), held = noisy_rows(0), noisy_rows(1, 300)
    MultiClassSVM(C=1e5, tol=1e-6, solver="bcfw", verbose=1).fit(X, y, eval_set=held, patience=2)
    assert "EARLY_STOPPED" in capsys.readouterr().err


def test_a_resumed_run_has_no_loss_for_the_checks_before(tmp_path):
    (X, y), held = noisy_rows(0), noisy_rows(1)
    options = {"C": 1e4, "tol": 0.0, "solver": "bcfw", "checkpoint": tmp_path / "run.ck"}
    first = MultiClassSVM(**options, max_passes=4).fit(X, y, eval_set=held)
    again = MultiClassSVM(**options, max_passes=9).fit(X, y, eval_set=held)
    whole = MultiClassSVM(**options | {"checkpoint": None}, max_passes=9).fit(X, y, eval_set=held)
    n = len(first.result_.history["eval_loss"])
    losses = again.result_.history["eval_loss"]
    assert np.isnan(losses[: n - 1]).all()
    np.testing.assert_array_equal(losses[n:], whole.result_.history["eval_loss"][n:])
    np.testing.assert_array_equal(again.result_.weights, whole.result_.weights)


def test_weights_of_a_report_are_those_of_the_problem():
    """Also where columns of sparse features are trained in another order."""
    rng = np.random.default_rng(0)
    X = sp.random_array((300, 2000), density=0.02, format="csr", rng=rng)
    y = rng.integers(0, 3, 300)
    held = sp.random_array((50, 2000), density=0.02, format="csr", rng=rng), rng.integers(0, 3, 50)
    seen = []
    model = MultiClassSVM(C=100, solver="subgradient", max_passes=5, fit_intercept=False, scale=False)
    model.fit(X, y, eval_set=held, callbacks=lambda report: seen.append(report.weights()))
    assert model.result_.history["eval_loss"][-1] == pytest.approx(1.0 - model.score(*held))
    assert len(seen) > 1


def test_other_metrics_and_losses():
    (X, y), held = noisy_tags(0), noisy_tags(1)

    def whole(truth, predicted):
        return float(np.mean([list(a) != list(b) for a, b in zip(truth, predicted, strict=True)]))

    model = ChainSVM(C=10).fit(X, y, eval_set=held, eval_metric=whole)
    assert model.result_.history["eval_loss"][-1] == whole(held[1], model.predict(held[0]))
    # With more noise no weights are better than zero for whole sequences.
    zero_one = ChainSVM(C=10, loss="zero-one").fit(*noisy_tags(0, noise=0.3), eval_set=[held])
    assert zero_one.result_.primal < 0.6
    assert zero_one.result_.history["eval_loss"][-1] == whole(held[1], zero_one.predict(held[0]))
    wrong = [np.asarray(a) != np.asarray(b) for a, b in zip(held[1], model.predict(held[0]), strict=True)]
    for loss, expected in (
        ("fraction", np.mean([one.mean() for one in wrong])),
        ("count", np.mean([one.sum() for one in wrong])),
    ):
        other = ChainSVM(C=10, loss=loss, max_passes=1, tol=0).fit(X, y)
        from maxmargin.estimators.stopping import task_loss

        other.result_.weights[:] = model.result_.weights
        assert task_loss(other, *held) == pytest.approx(expected)
    costs = np.array([[0.0, 1.0, 4.0], [2.0, 0.0, 1.0], [0.5, 3.0, 0.0]])
    other = ChainSVM(C=10, loss=costs).fit(X, y, eval_set=held)
    lost = [
        costs[np.searchsorted(other.classes_, a), np.searchsorted(other.classes_, b)]
        for a, b in zip(held[1], other.predict(held[0]), strict=True)
    ]
    assert other.result_.history["eval_loss"][-1] == pytest.approx(np.concatenate(lost).mean())


def test_words_parsers_and_problems_in_python(tmp_path):
    words = [["the", "dog", "barked"], ["dogs", "bark"], ["a", "small", "dog"]]
    tags = [["DET", "NOUN", "VERB"], ["NOUN", "VERB"], ["DET", "ADJ", "NOUN"]]
    tagger = ChainSVM(C=10).fit(words, tags, eval_set=(words[:1], [["DET", "NOUN", "UNSEEN"]]), patience=2)
    assert tagger.result_.options["best_eval_loss"] == pytest.approx(1 / 3)
    tagger.save(tmp_path / "tagger.mm")
    again = load(tmp_path / "tagger.mm").result_
    assert again.status == tagger.result_.status
    np.testing.assert_array_equal(again.history["eval_loss"], tagger.result_.history["eval_loss"])
    assert again.options["best_pass"] == tagger.result_.options["best_pass"]

    trees = ["(S (N dogs) (V bark))", "(S (N cats) (V sleep))"]
    parser = ParserSVM(C=1).fit(trees, eval_set=([["dogs", "sleep"]], ["(S (N dogs) (V sleep))"]))
    assert parser.result_.history["eval_loss"][-1] == pytest.approx(0.0)

    class Sign:
        def joint_features(self, x, y):
            return [x * y, y]

        def loss(self, y, y_hat):
            return float(y != y_hat)

        def most_violated(self, x, y, w):
            return max((-1, 1), key=lambda one: self.loss(y, one) + w @ self.joint_features(x, one))

        def predict(self, x, w):
            return max((-1, 1), key=lambda one: w @ self.joint_features(x, one))

    model = StructuredSVM(Sign(), C=100).fit([-3.0, -1.0, 2.0], [-1, -1, 1], eval_set=([-2.0, 4.0], [1, 1]))
    assert model.result_.history["eval_loss"][-1] == 0.5


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"patience": 3}, "give them as eval_set"),
        ({"eval_set": ([1], [1], [1])}, r"eval_set must be a pair \(X, y\)"),
        ({"eval_set": noisy_rows(1), "patience": 0}, "patience=0 is not possible"),
        ({"eval_set": noisy_rows(1), "eval_metric": "f1"}, "eval_metric='f1' is not possible"),
        ({"callbacks": 3}, "callbacks=3 is not possible"),
        ({"callbacks": [3]}, "callbacks="),
    ],
)
def test_what_is_refused(given, sentence):
    with pytest.raises(OptionError, match=sentence):
        MultiClassSVM(C=1).fit(*noisy_rows(0), **given)
    with pytest.raises(OptionError, match="eval_set is for losses of single examples"):
        BinarySVM(C=1, loss="f1").fit(*noisy_rows(0), eval_set=noisy_rows(1))


def test_callbacks_of_scikit_learn():
    callback = pytest.importorskip("sklearn.callback", reason="scikit-learn before 1.9 has no callbacks")
    (X, y), held = noisy_rows(0), noisy_rows(1)
    log = []

    class Recorder:
        def setup(self, estimator, context):
            log.append("setup")

        def on_fit_task_begin(self, estimator, context):
            log.append(("begin", context.task_name))

        def on_fit_task_end(self, estimator, context, *, X, fitted_estimator):
            if context.task_name == "check" and fitted_estimator is not None:
                log.append(("score", fitted_estimator.score(*held)))
                return len([one for one in log if one[0] == "score"]) == 3
            log.append(("end", context.task_name))
            return False

        def teardown(self, estimator, context):
            log.append("teardown")

    model = MultiClassSVM(C=1e4, tol=1e-9, solver="bcfw").set_callbacks(Recorder())
    model.fit(X, y, eval_set=held)
    assert log[0] == "setup"
    assert log[-1] == "teardown"
    scores = [one[1] for one in log if one[0] == "score"]
    np.testing.assert_allclose(scores, 1.0 - model.result_.history["eval_loss"])
    assert len(scores) == 3
    assert model.result_.status is Status.INTERRUPTED
    begun = [one for one in log if one[0] == "begin"]
    ended = [one for one in log if one[0] in ("end", "score")]
    assert len(begun) == len(ended)
    # An error in training is followed by a teardown, too.
    log.clear()
    with pytest.raises(ZeroDivisionError):
        model.fit(X, y, callbacks=[lambda report: 1 / 0])
    assert log[-1] == "teardown"
    monitor = callback.ScoringMonitor(scoring="accuracy")
    monitored = MultiClassSVM(C=10).set_callbacks(monitor).fit(X, y)
    assert monitored.result_.status is Status.CONVERGED


def test_without_the_callbacks_of_scikit_learn():
    """Releases before 1.9 have none; nothing else changes."""
    code = """
import sys
import sklearn.base, sklearn.utils.estimator_checks
sys.modules["sklearn.callback"] = None
import numpy as np
import maxmargin as mm
X, y = np.eye(4), [0, 1, 0, 1]
model = mm.BinarySVM(C=1.0).fit(X, y, eval_set=(X, y), patience=3, callbacks=[lambda report: True])
assert not hasattr(model, "set_callbacks")
assert "eval_loss" in model.result_.history
"""
    subprocess.run([sys.executable, "-c", code], check=True)

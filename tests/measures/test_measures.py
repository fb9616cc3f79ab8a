"""Measures of all predictions together: oracles against all labelings, optima against another solver, and what is refused."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import linprog
from sklearn.metrics import f1_score, fbeta_score, precision_score, recall_score, roc_auc_score

import maxmargin as mm
from maxmargin.errors import DataError, OptionError
from maxmargin.measures import CountMeasure, MeasureProblem, PairMeasure, is_measure
from maxmargin.solvers import BCFW, BundleMethod, FrankWolfe, NSlack, OneSlack

NAMES = ["f1", "f0.5", "f2", "precision@3", "precision@50%", "recall@2", "recall@7", "break-even", "error"]


def random_rows(seed, n=9):
    rng = np.random.default_rng(seed)
    positive = rng.random(n) < 0.4
    positive[:2] = True, False
    return rng, positive, np.round(rng.normal(size=n), 1)


def loss_of_table(name, truth, predicted):
    """The loss by scikit-learn's measures."""
    if name[0] == "f":
        return 1.0 - fbeta_score(truth, predicted, beta=float(name[1:]), zero_division=0.0)
    if name == "error":
        return float((truth != predicted).mean())
    # Without what no labeling with so many positive rows can avoid.
    right = min(truth.sum(), predicted.sum())
    if name.startswith("precision"):
        return right / predicted.sum() - precision_score(truth, predicted)
    return right / truth.sum() - recall_score(truth, predicted)


def by_enumeration(name, positive, scores):
    """The hinge, over all labelings of all rows."""
    n, best = len(positive), -np.inf
    sizes = {
        "precision@3": 3,
        "precision@50%": round(n / 2),
        "recall@2": 2,
        "recall@7": 7,
        "break-even": int(positive.sum()),
    }
    for bits in itertools.product((False, True), repeat=n):
        predicted = np.array(bits)
        sign = np.where(positive, 1.0, -1.0)
        behind = float((sign * scores)[predicted != positive].sum()) / n
        if name in sizes:
            k, p = sizes[name], int(positive.sum())
            if predicted.sum() != p:
                continue
            if k > p:
                best = np.sort(scores[~positive])[-(k - p) :].mean()
                return np.maximum(0.0, 1.0 - scores[positive] + best).sum() / (k if name.startswith("precision") else p)
            loss = (positive & ~predicted).sum() / (k if name.startswith("precision") else p)
            best = max(best, loss - behind)
            continue
        best = max(best, loss_of_table(name, positive, predicted) - behind)
    return best


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(4))
def test_the_most_violated_labeling_is_that_of_enumeration(name, seed):
    _, positive, scores = random_rows(seed)
    coefficients, loss = CountMeasure(name, positive).find(scores)
    assert loss - coefficients @ scores == pytest.approx(by_enumeration(name, positive, scores), abs=1e-12)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(20))
def test_the_hinge_bounds_the_loss_of_predictions(name, seed):
    rng, positive, _ = random_rows(seed, 40)
    scores = rng.normal(size=40) * rng.choice([0.1, 1.0, 10.0, 100.0]) + rng.normal()
    weight = rng.random(40) + 0.1 if name[0] == "f" else None
    measure = CountMeasure(name, positive, weight)
    coefficients, loss = measure.find(scores)
    assert loss - coefficients @ scores >= measure.loss(scores) - 1e-12


@pytest.mark.parametrize("seed", range(3))
def test_weights_of_rows_multiply_their_scores(seed):
    rng, positive, scores = random_rows(seed)
    weight = rng.random(9) + 0.2
    coefficients, loss = CountMeasure("f1", positive, weight).find(scores)
    assert loss - coefficients @ scores == pytest.approx(by_enumeration("f1", positive, scores * weight), abs=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_the_loss_of_predictions_is_that_of_scikit_learn(name):
    rng, positive, _ = random_rows(5, 60)
    scores = rng.normal(size=60)
    measure = CountMeasure(name, positive)
    k = {"precision@3": 3, "precision@50%": 30, "recall@2": 2, "recall@7": 7, "break-even": int(positive.sum())}.get(
        name
    )
    predicted = scores > 0 if k is None else scores >= np.sort(scores)[-k]
    assert measure.loss(scores) == pytest.approx(loss_of_table(name, positive, predicted))


def pair_hinges(levels, queries, scores, by_query):
    """The mean over pairs, one at a time."""
    total, means = [], []
    for query in np.unique(queries):
        rows = np.flatnonzero(queries == query)
        own = [max(0.0, 1.0 - scores[i] + scores[j]) for i in rows for j in rows if levels[i] > levels[j]]
        total += own
        means += [np.mean(own)] if own else []
    return float(np.mean(means if by_query else total))


@pytest.mark.parametrize("by_query", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_swapped_pairs_are_those_of_a_double_loop(seed, by_query):
    rng = np.random.default_rng(seed)
    levels, queries = rng.integers(0, 4, 40), np.sort(rng.integers(0, 5, 40))
    # Ties of scores, and scores that differ by the margin exactly.
    scores = rng.integers(-4, 5, 40) / 2.0
    coefficients, loss = PairMeasure(levels, queries, by_query).find(scores)
    assert loss - coefficients @ scores == pytest.approx(pair_hinges(levels, queries, scores, by_query), abs=1e-12)
    assert coefficients.sum() == pytest.approx(0.0, abs=1e-12)


def test_the_loss_of_two_levels_is_the_roc_area():
    rng = np.random.default_rng(0)
    truth, scores = rng.random(200) < 0.2, np.round(rng.normal(size=200), 1)
    assert 1.0 - PairMeasure(truth.astype(int)).loss(scores) == pytest.approx(roc_auc_score(truth, scores))


def small_data(seed=0, n=60, share=0.25):
    rng = np.random.default_rng(seed)
    positive = rng.random(n) < share
    return rng.normal(size=(n, 4)) + 0.8 * positive[:, None], positive


def reference(problem, C, rounds=400):
    """The optimum by cutting planes in a linear model of the objective: every plane is a row, |w|^2 by its tangents."""
    d = problem.n_weights
    oracle, w = problem.max_oracle(), np.zeros(d)
    planes, tangents = [], []
    best = np.inf
    for _ in range(rounds):
        plane = oracle.mean_plane(w, 1)
        psi = np.zeros(d)
        psi[plane.index] = plane.value
        best = min(best, 0.5 / C * w @ w + max(0.0, plane.ell - psi @ w))
        planes.append(np.concatenate([-psi, [-1.0, 0.0, -plane.ell]]))
        tangents.append(np.concatenate([w / C, [0.0, -1.0, 0.5 / C * w @ w]]))
        rows = np.array(planes + tangents)
        found = linprog(
            np.concatenate([np.zeros(d), [1.0, 1.0]]),
            rows[:, :-1],
            rows[:, -1],
            bounds=[(-50, 50)] * d + [(0, None)] * 2,
        )
        lower, w = found.fun, 0.5 * (w + found.x[:d])
        if best - lower < 1e-5:
            break
    return lower, best


@pytest.mark.parametrize("name", ["f1", "precision@10", "break-even", "roc-area"])
def test_the_optimum_is_that_of_a_linear_programme(name):
    X, positive = small_data()
    measure = PairMeasure(positive.astype(int)) if name == "roc-area" else CountMeasure(name, positive)
    problem = MeasureProblem(X, measure)
    lower, upper = reference(problem, 3.0)
    assert upper - lower < 1e-3
    result = OneSlack().solve(problem, C=3.0, tol=1e-5)
    assert result.certificate == "exact"
    assert lower - 1e-9 <= result.primal <= upper + 1e-5


@pytest.mark.parametrize("solver", [BundleMethod(), NSlack(), BCFW(), FrankWolfe()], ids=lambda one: one.name)
def test_other_solvers_come_to_the_same_optimum(solver):
    X, positive = small_data(1)
    problem = MeasureProblem(X, CountMeasure("f1", positive))
    best = OneSlack().solve(problem, C=2.0, tol=1e-6)
    other = solver.solve(problem, C=2.0, tol=1e-3, max_passes=3000)
    assert other.dual <= best.primal + 1e-9
    assert other.primal >= best.dual - 1e-9
    assert other.gap < 1e-2


def test_the_error_rate_is_the_mean_hinge():
    X, positive = small_data(2)
    joint = OneSlack().solve(MeasureProblem(X, CountMeasure("error", positive)), C=5.0, tol=1e-6)
    single = mm.BinarySVM(C=5.0, fit_intercept=False, tol=1e-6, scale=False).fit(X, positive)
    assert joint.primal == pytest.approx(single.result_.primal, abs=3e-6)


def test_threads_and_formats_do_not_change_the_answer():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 6)) * (rng.random((20_000, 6)) < 0.5)
    positive = X @ np.arange(6) + rng.normal(size=20_000) > 4
    measure = CountMeasure("f1", positive)
    one = OneSlack().solve(MeasureProblem(X, measure), C=1.0, tol=1e-3)
    two = OneSlack().solve(MeasureProblem(X, measure), C=1.0, tol=1e-3, n_jobs=2)
    rows = OneSlack().solve(MeasureProblem(sp.csr_array(X), measure), C=1.0, tol=1e-3)
    assert np.array_equal(one.weights, two.weights)
    assert one.primal == pytest.approx(rows.primal, abs=2e-3)


# ---------------------------------------------------------------------------------------------------------- estimators


def rare(seed, n, names=False):
    """Four in a hundred are positive, and some of the others are like them."""
    rng = np.random.default_rng(seed)
    hidden = rng.random(n) < 0.04
    hidden[0] = True
    X = rng.normal(size=(n, 10))
    X[:, :3] += 1.5 * hidden[:, None]
    return X, np.where(hidden, "yes", "no") if names else hidden.astype(int)


@pytest.mark.parametrize("loss", ["f1", "precision@2%", "recall@20%", "break-even", "roc-area"])
def test_a_measure_is_no_worse_for_being_trained_for(loss):
    (X, y), (X_test, y_test) = rare(0, 4000), rare(1, 20_000)
    model = mm.BinarySVM(loss=loss).fit(X, y)
    plain = mm.BinarySVM().fit(X, y)
    measure = PairMeasure(y_test) if loss == "roc-area" else CountMeasure(loss, y_test == 1)
    own, other = (measure.loss(one.decision_function(X_test)) for one in (model, plain))
    assert own <= other + 0.02
    assert model.result_.certificate == "exact"


def test_predictions_for_a_measure_are_better_by_it():
    (X, y), (X_test, y_test) = rare(0, 4000), rare(1, 20_000)
    model, plain = mm.BinarySVM(loss="break-even").fit(X, y), mm.BinarySVM().fit(X, y)
    assert f1_score(y_test, model.predict(X_test)) > f1_score(y_test, plain.predict(X_test)) + 0.05


def test_weights_of_zero_are_said_to_be_so():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(500, 3)), (rng.random(500) < 0.05).astype(int)
    with pytest.warns(UserWarning, match="the classes overlap too much"):
        model = mm.BinarySVM(loss="f1", C=1000.0).fit(X, y)
    assert not model.coef_.any()


@pytest.mark.parametrize("loss", ["f1", "break-even", "roc-area"])
@pytest.mark.parametrize("n_positive", [1, 3])
def test_a_class_of_few_rows_is_never_held_out_whole(loss, n_positive):
    rng = np.random.default_rng(0)
    y = (np.arange(100) < n_positive).astype(int)
    X = rng.normal(size=(100, 3)) + 3.0 * y[:, None]
    model = mm.BinarySVM(loss=loss).fit(X, y)
    assert len(model.validation_path_) > 1
    assert model.score(X, y) > 0.95


def test_queries_without_pairs_are_not_all_that_is_left():
    rng = np.random.default_rng(0)
    X, qid = rng.normal(size=(60, 2)), np.repeat(np.arange(30), 2)
    y = np.where(np.arange(60) == 0, 1, 0)
    model = mm.RankingSVM().fit(X, y, qid)
    assert model.score(X, y, qid) == 1.0


def test_as_many_are_positive_as_the_measure_counts():
    X, y = rare(2, 2000)
    for loss, expected in (("precision@100", 100), ("recall@3%", 60), ("break-even", y.sum()), ("roc-area", y.sum())):
        model = mm.BinarySVM(loss=loss, C=10.0).fit(X, y)
        assert (model.predict(X) == 1).sum() == expected


def test_probabilities_and_files(tmp_path):
    X, y = rare(3, 1500, names=True)
    model = mm.BinarySVM(loss="f1", C=10.0).fit(X, y)
    p = model.predict_proba(X)
    assert np.allclose(p.sum(axis=1), 1.0)
    assert np.array_equal(p[:, 1] > 0.5, model.predict(X) == "yes")
    model.save(tmp_path / "model.mm")
    again = mm.load(tmp_path / "model.mm")
    assert again.loss == "f1"
    assert np.array_equal(again.decision_function(X), model.decision_function(X))


def test_a_basis_of_a_kernel():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 2))
    y = (np.linalg.norm(X, axis=1) < 0.7).astype(int)
    model = mm.BinarySVM(loss="f1", kernel="rbf", n_basis=60, C=1e4).fit(X, y)
    assert f1_score(y, model.predict(X)) > 0.85


def ranked(seed, n_queries=40):
    rng = np.random.default_rng(seed)
    qid = np.repeat(np.arange(n_queries), rng.integers(2, 12, n_queries))
    X = rng.normal(size=(len(qid), 5)) + rng.normal(size=(n_queries, 1))[qid]
    value = X @ [2.0, -1.0, 0.5, 0.0, 0.0] + rng.normal(size=len(qid)) * 0.5
    return X, np.digitize(value, [-1.0, 0.5, 2.0]), qid


@pytest.mark.parametrize("loss", ["pairs", "queries"])
def test_ranking(loss, tmp_path):
    (X, y, qid), (X_test, y_test, qid_test) = ranked(0), ranked(1)
    model = mm.RankingSVM(loss=loss).fit(X, y, qid)
    assert model.result_.certificate == "exact"
    assert model.score(X_test, y_test, qid_test) > 0.85
    assert len(model.validation_path_) > 1
    model.save(tmp_path / "model.mm")
    again = mm.load(tmp_path / "model.mm")
    assert np.array_equal(again.predict(X_test), model.predict(X_test))
    assert np.array_equal(again.predict_level(X_test), model.predict_level(X_test))


def test_ordinal_regression_has_levels():
    X, y, _ = ranked(2, 60)
    model = mm.RankingSVM(C=100.0).fit(X, 10 * y)
    levels = model.predict_level(X)
    assert set(levels) <= {0, 10, 20, 30}
    assert (np.diff(model.thresholds_) >= 0).all()
    # By absolute error no constant is better, and no shift of all thresholds.
    error = np.abs(levels - 10 * y).mean()
    assert error < min(np.abs(one - 10 * y).mean() for one in (0, 10, 20, 30))
    scores = model.predict(X)
    for shift in (-0.3, -0.1, 0.1, 0.3):
        other = 10 * (scores[:, None] > model.thresholds_ + shift).sum(axis=1)
        assert error <= np.abs(other - 10 * y).mean()


def test_bad_input_gets_a_sentence():
    X, y = rare(4, 100)
    with pytest.raises(DataError, match="no positive rows"):
        CountMeasure("f1", np.zeros(5, bool))
    with pytest.raises(DataError, match="k is 1000, and there are 100 rows"):
        mm.BinarySVM(loss="precision@1000", C=1.0).fit(X, y)
    with pytest.raises(DataError, match="k is 0"):
        mm.BinarySVM(loss="recall@0", C=1.0).fit(X, y)
    with pytest.raises(OptionError, match="whole number of rows"):
        mm.BinarySVM(loss="recall@2.5", C=1.0).fit(X, y)
    with pytest.raises(OptionError, match="Did you mean"):
        mm.BinarySVM(loss="roc-aera").fit(X, y)
    with pytest.raises(OptionError, match="leave sample_weight and class_weight out"):
        mm.BinarySVM(loss="roc-area", class_weight="balanced").fit(X, y)
    with pytest.raises(OptionError, match="n_basis"):
        mm.BinarySVM(loss="f1", kernel="rbf").fit(X, y)
    with pytest.raises(OptionError, match="marginals"):
        mm.BinarySVM(loss="f1", objective="log", C=1.0).fit(X, y)
    with pytest.raises(OptionError, match="oracle of its own"):
        mm.BinarySVM(loss="f1", inference="greedy", C=1.0).fit(X, y)
    X, y, qid = ranked(0)
    ranking = mm.RankingSVM(C=1.0)
    with pytest.raises(DataError, match="rows of a query must stand together"):
        ranking.fit(X, y, qid[::-1] % 7)
    with pytest.raises(DataError, match=r"qid\[3\] is missing"):
        ranking.fit(X, y, np.where(np.arange(len(qid)) == 3, np.nan, qid))
    with pytest.raises(DataError, match="qid has shape"):
        ranking.fit(X, y, qid[1:])
    with pytest.raises(DataError, match="nothing to rank"):
        ranking.fit(X, np.ones(len(y)), qid)
    with pytest.raises(DataError, match="not numbers"):
        ranking.fit(X, ["a"] * len(y))
    with pytest.raises(OptionError, match="loss='hamming' is not known"):
        mm.RankingSVM(loss="hamming").fit(X, y)
    assert not is_measure("f")
    assert not is_measure("precision@")

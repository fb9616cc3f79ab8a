"""``C="auto"``: what is held out, where the path goes, what is chosen, and what a fit has to say about it."""

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import cross_val_score

import maxmargin as mm
from maxmargin.errors import OptionError
from maxmargin.estimators import choosing
from maxmargin.estimators.choosing import held_out, held_out_loss, scale_of
from maxmargin.inference import GraphCut
from maxmargin.problems import chain_problem, multi_class_problem, multi_label_problem
from maxmargin.solvers import BCFW, SoftBCFW
from maxmargin.solvers.core.result import Status


def blobs(n=120, seed=0, noise=1.0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    return rng.normal(size=(n, 4)) * noise + 2.0 * np.eye(4)[y], y


def chains(n=40, seed=0):
    rng = np.random.default_rng(seed)
    y = [rng.integers(0, 3, rng.integers(2, 7)) for _ in range(n)]
    return [rng.normal(size=(len(row), 3)) + 2.0 * np.eye(3)[row] for row in y], y


# ------------------------------------------------------------------------------------------------- good models


def test_defaults_are_good_where_one_was_not():
    """C = 1 gives one class for all of iris; see the issue of poor defaults."""
    X, y = load_iris(return_X_y=True)
    assert cross_val_score(mm.MultiClassSVM(C=1.0, scale=False), X, y, cv=5).mean() < 0.7
    assert cross_val_score(mm.MultiClassSVM(), X, y, cv=5).mean() > 0.95


@pytest.mark.parametrize("factor", [1e-3, 1.0, 1e3])
def test_the_choice_does_not_depend_on_the_unit_of_the_features(factor):
    X, y = blobs()
    model = mm.MultiClassSVM(fit_intercept=False, scale=False).fit(factor * X, y)
    same = mm.MultiClassSVM(fit_intercept=False, scale=False).fit(X, y)
    assert model.C_ * factor**2 == pytest.approx(same.C_, rel=0.01)
    assert [one.loss for one in model.validation_path_] == pytest.approx([one.loss for one in same.validation_path_])


def test_the_scale_counts_variables_loss_and_features():
    X, y = chains()
    problem = chain_problem(X, y, 3, boundary=False)
    count = chain_problem(X, y, 3, boundary=False, loss="count")
    mean = np.mean([len(row) for row in y])
    unit, loss = scale_of(problem)
    assert loss == pytest.approx(1.0)
    rows = np.vstack(X)
    size = (rows**2).sum(axis=1).mean() * mean + (mean - 1.0)
    assert unit == pytest.approx(1.0 / size)
    assert scale_of(count) == pytest.approx((mean / size, mean))


# ------------------------------------------------------------------------------------------------- what is held out


def test_every_class_has_its_share():
    X, y = blobs(3000)
    y[:30] = 3
    problem = multi_class_problem(X, y, 4)
    (part,) = held_out(problem, 0.2, 0)
    assert len(part) == 600
    assert np.bincount(y[part], minlength=4) / np.bincount(y) == pytest.approx(0.2, abs=0.04)
    (other,) = held_out(problem, 0.2, 1)
    assert part.tolist() != other.tolist()
    assert part.tolist() == held_out(problem, 0.2, 0)[0].tolist()


def test_little_data_is_held_out_in_folds():
    X, y = blobs(60)
    parts = held_out(multi_class_problem(X, y, 3), 0.2, 0)
    assert np.sort(np.concatenate(parts)).tolist() == list(range(60))
    assert [len(part) for part in parts] == [12] * 5
    for part in parts:
        assert np.bincount(y[part]).tolist() == [4, 4, 4]


def test_the_only_example_of_a_label_is_never_held_out():
    X, y = chains(30)
    y = [np.minimum(row, 1) for row in y]
    y[7][0] = 2
    for seed in range(5):
        parts = held_out(chain_problem(X, y, 3), 0.2, seed)
        assert 7 not in np.concatenate(parts)
        assert len(np.unique(np.concatenate(parts))) == 29


def test_examples_without_weight_are_not_held_out():
    X, y = blobs(60)
    weight = np.arange(60) % 2
    parts = held_out(multi_class_problem(X, y, 3, sample_weight=weight), 0.2, 0)
    assert (np.concatenate(parts) % 2 == 1).all()


def test_few_examples_get_a_rule():
    X, y = blobs(15)
    model = mm.MultiClassSVM().fit(X, y)
    assert model.validation_path_ == []
    assert "fewer than 20 examples" in model.result_.options["C_reason"]
    assert "fewer than 20 examples" in model.result_.summary()
    # An example twice, or with twice the weight, is the same data.
    twice = mm.MultiClassSVM().fit(np.vstack([X[:8], X[:1]]), np.append(y[:8], y[0]))
    weighted = mm.MultiClassSVM().fit(X[:8], y[:8], sample_weight=np.array([2.0] + [1.0] * 7))
    assert twice.C_ == weighted.C_


# ------------------------------------------------------------------------------------------------- the path


class Recorder(SoftBCFW):
    """Keeps what it was asked."""

    def __init__(self):
        super().__init__()
        self.__dict__["calls"] = []

    def options(self):
        return {}

    def solve(self, problem, **options):
        result = super().solve(problem, **options)
        self.calls.append((options["C"], options["state"], problem.arrays.weight.copy(), result))
        return result


def test_the_path_is_warm_and_ends_when_the_loss_has_risen_twice(monkeypatch):
    monkeypatch.setattr(choosing, "_LITTLE", 0)
    X, y = blobs(400, noise=1.5)
    solver = Recorder()
    model = mm.MultiClassSVM(solver=solver).fit(X, y)
    Cs = [call[0] for call in solver.calls]
    assert Cs[:-1] == sorted(Cs[:-1])
    assert Cs[-1] == model.C_
    assert all(call[1] is not None for call in solver.calls[1:])
    # Held-out examples have no weight on the path, and theirs in the last run, which starts from where the path was at C.
    assert (solver.calls[0][2] == 0).sum() == 80
    assert (solver.calls[-1][2] == 1).all()
    at_C = next(call for call in solver.calls if call[0] == model.C_)
    assert solver.calls[-1][1] is at_C[3].state
    losses = [one.loss for one in model.validation_path_]
    after = losses[losses.index(min(losses)) :]
    assert sum(loss > min(losses) for loss in after) == 2
    assert after[-1] > min(losses)
    assert model.result_.status is Status.CONVERGED
    assert model.result_.options["C"] == model.C_
    assert f"C = {model.C_:g}" in model.result_.summary()


def test_the_held_out_loss_is_that_of_predictions(monkeypatch):
    monkeypatch.setattr(choosing, "_LITTLE", 0)
    X, y = chains(60)
    solver = Recorder()
    model = mm.ChainSVM(solver=solver, scale=False).fit(X, y)
    C, _, weight, result = solver.calls[0]
    held = np.flatnonzero(weight == 0)
    again = mm.ChainSVM(C=C, scale=False, max_passes=1).fit(X, y)
    again.result_.weights[:] = result.weights
    found = again.predict([X[m] for m in held])
    wrong = sum((row != y[m]).sum() for row, m in zip(found, held, strict=True))
    mean = np.mean([len(row) for row in y])
    loss = next(one.loss for one in model.validation_path_ if one.C == C)
    assert loss == pytest.approx(wrong / mean / len(held))


def test_smaller_values_are_tried_if_the_first_is_the_best(monkeypatch):
    monkeypatch.setattr(choosing, "_FIRST", 0.3)
    X, y = blobs(60, noise=2.0)
    solver = Recorder()
    model = mm.MultiClassSVM(solver=solver).fit(X, y)
    Cs, first = [one.C for one in model.validation_path_], solver.calls[0][0]
    assert Cs == sorted(Cs)
    loss = {one.C: one.loss for one in model.validation_path_}
    assert loss[first] <= min(loss[C] for C in Cs if first < C)
    assert Cs[0] < first


@pytest.mark.parametrize("solver", [SoftBCFW(), BCFW(), "one-slack", "subgradient"])
def test_any_solver(solver):
    X, y = chains()
    model = mm.ChainSVM(solver=solver, max_passes=60).fit(X, y)
    assert model.score(X, y) > 0.8
    assert len(model.validation_path_) > 2


def test_planes_of_the_path_serve_the_last_run(monkeypatch):
    """States of BCFW fit the same data with other weights; the bounds are those of the whole data."""
    monkeypatch.setattr(choosing, "_LITTLE", 0)
    X, y = chains(60)
    model = mm.ChainSVM(solver="bcfw", tol=1e-3).fit(X, y)
    alone = mm.ChainSVM(C=model.C_, solver="bcfw", tol=1e-3).fit(X, y)
    assert model.result_.n_oracle_calls < alone.result_.n_oracle_calls
    assert max(model.result_.dual, alone.result_.dual) <= min(model.result_.primal, alone.result_.primal) + 1e-12


def test_a_kernel_and_the_log_objective():
    X, y = blobs(90)
    assert mm.MultiClassSVM(kernel="rbf").fit(X, y).score(X, y) > 0.8
    model = mm.MultiClassSVM(objective="log").fit(X, y)
    assert model.score(X, y) > 0.8
    assert model.validation_path_


def test_parsers_and_models_in_python():
    trees = ["(S (NP (DT the) (NN dog)) (VP (VBZ barks)))", "(S (NP (NN Kim)) (VP (VBZ sees) (NP (DT the) (NN cat))))"]
    parser = mm.ParserSVM(max_passes=20).fit(trees * 12)
    assert parser.validation_path_
    assert parser.score(trees) == 1.0

    class Sign:
        def joint_features(self, x, y):
            return [x * y, y]

        def loss(self, y, other):
            return float(y != other)

        def most_violated(self, x, y, w):
            return max((-1, 1), key=lambda one: self.loss(y, one) + w @ self.joint_features(x, one))

        def predict(self, x, w):
            return max((-1, 1), key=lambda one: w @ self.joint_features(x, one))

    X = np.random.default_rng(0).normal(size=40)
    model = mm.StructuredSVM(Sign()).fit(X, np.where(X > 0.3, 1, -1))
    assert model.validation_path_
    assert model.score(X, np.where(X > 0.3, 1, -1)) > 0.9


# ------------------------------------------------------------------------------------------------- lists and folds


@pytest.mark.parametrize("n_folds", [2, 10])
def test_folds_are_all_examples_once_whatever_the_size(n_folds):
    X, y = blobs(3000)
    parts = held_out(multi_class_problem(X, y, 3), 0.2, 0, n_folds)
    assert len(parts) == n_folds
    assert np.sort(np.concatenate(parts)).tolist() == list(range(3000))
    for part in parts:
        assert np.bincount(y[part]).tolist() == [1000 // n_folds] * 3


def test_a_list_is_tried_whole_in_every_fold_and_each_fold_goes_on_from_its_own_last_value():
    X, y = blobs(60, noise=1.5)
    Cs = [3.0, 0.03, 30.0, 0.3]
    solver = Recorder()
    model = mm.MultiClassSVM(C=Cs, cv=4, solver=solver, tol=1e-4).fit(X, y)
    assert [call[0] for call in solver.calls] == [C for C in sorted(Cs) for _ in range(4)] + [model.C_]
    for at, (_, state, weight, result) in enumerate(solver.calls[:-1]):
        assert state is (solver.calls[at - 4][3].state if at >= 4 else None)
        assert (weight == 0.0).sum() == 15
        assert (weight == solver.calls[at % 4][2]).all()
        assert result.gap <= 1e-4
    # Against models that know nothing of each other.
    for at, one in enumerate(model.validation_path_):
        losses = []
        for weight in (call[2] for call in solver.calls[:4]):
            trained, held = weight > 0.0, weight == 0.0
            alone = mm.MultiClassSVM(C=one.C, tol=1e-4, scale=False).fit(X[trained], y[trained])
            losses.append(1.0 - alone.score(X[held], y[held]))
        assert sorted(Cs)[at] == one.C
        assert one.loss == pytest.approx(np.mean(losses))
        assert one.standard_error == pytest.approx(np.std(losses, ddof=1) / 2.0)
    least = min(one.loss for one in model.validation_path_)
    assert next(one.C for one in model.validation_path_ if one.loss == least) == model.C_
    assert "on 4 folds; 4 values tried" in model.result_.options["C_reason"]
    assert model.result_.status is Status.CONVERGED


def test_the_number_of_folds_of_the_path_of_auto():
    X, y = blobs(60, noise=1.5)
    solver = Recorder()
    model = mm.MultiClassSVM(cv=3, solver=solver).fit(X, y)
    assert "3 folds" in model.result_.options["C_reason"]
    assert [(call[2] == 0).sum() for call in solver.calls[:3]] == [20, 20, 20]
    assert all(one.standard_error is not None for one in model.validation_path_)


def test_one_part_has_no_standard_error(monkeypatch):
    monkeypatch.setattr(choosing, "_LITTLE", 0)
    model = mm.MultiClassSVM(C=(0.1, 10.0)).fit(*blobs())
    assert [(one.C, one.standard_error) for one in model.validation_path_] == [(0.1, None), (10.0, None)]


def test_lists_for_every_kind_of_problem():
    X, y = chains(12)
    few = mm.ChainSVM(C=np.array([0.1, 10.0])).fit(X, y)
    assert len(few.validation_path_) == 2
    assert few.C_ in (0.1, 10.0)
    rows, classes = blobs(40)
    for model in (mm.BinarySVM(C=[0.1, 1.0], cv=4, loss="f1"), mm.BinarySVM(C=[0.1, 1.0], cv=4, kernel="rbf")):
        assert [one.C for one in model.fit(rows, classes == 0).validation_path_] == [0.1, 1.0]
    ranked = mm.RankingSVM(C=[0.1, 1.0], cv=4).fit(rows, classes, qid=np.arange(40) // 5)
    assert [one.C for one in ranked.validation_path_] == [0.1, 1.0]
    trees = ["(S (NP (DT the) (NN dog)) (VP (VBZ barks)))", "(S (NP (NN Kim)) (VP (VBZ sees) (NP (DT the) (NN cat))))"]
    assert len(mm.ParserSVM(C=[1.0, 10.0], cv=2).fit(trees * 3).validation_path_) == 2


def test_open_labels_count_one_half_where_the_engine_says_so():
    """Three labels, no two of which go together: the relaxation leaves all of them open."""
    Y = np.array([[0, 0, 1], [1, 1, 1]])
    problem = multi_label_problem(np.ones((2, 1)), Y, np.array([[0, 1], [0, 2], [1, 2]]), 3)
    w = np.array([1.0, 1.0, 1.0, -2.0, -2.0, -2.0])
    everyone = np.arange(2)
    assert held_out_loss(problem, everyone, GraphCut(rounding="half-up"), None)(w) == pytest.approx((2 / 3 + 0.0) / 2)
    assert held_out_loss(problem, everyone, GraphCut(rounding="fraction"), None)(w) == pytest.approx(0.5)


@pytest.mark.parametrize(
    "C", [[], [0.0, 1.0], [1.0, np.inf], ["a"], [[1.0]], {}, np.array(3.0), np.ones((1, 2)), "1,2"]
)
def test_lists_that_cannot_be(C):
    with pytest.raises(OptionError, match=r'C=.* must be "auto", a finite number above 0 or a list of such numbers'):
        mm.MultiClassSVM(C=C).fit(*blobs())


@pytest.mark.parametrize("cv", [1, 0, -3, 2.5, True, "10"])
def test_numbers_of_folds_that_cannot_be(cv):
    with pytest.raises(OptionError, match=r"cv=.* whole number of at least 2"):
        mm.MultiClassSVM(cv=cv).fit(*blobs())


def test_nothing_to_hold_out():
    with pytest.raises(OptionError, match=r"cv=10 .* 9 examples with a weight"):
        mm.MultiClassSVM(C=[1, 2], cv=10).fit(*blobs(9))
    with pytest.raises(OptionError, match="no example can be held out"):
        mm.MultiClassSVM(C=[1, 2]).fit(np.eye(3), [0, 1, 2])


def test_a_warm_start_keeps_a_value_that_is_in_the_list():
    X, y = blobs()
    model = mm.MultiClassSVM(C=[0.1, 1.0], warm_start=True).fit(X, y)
    chosen = model.C_
    model.fit(X, y)
    assert chosen == model.C_
    assert model.validation_path_ == []
    model.set_params(C=[5.0, 6.0]).fit(X, y)
    assert [one.C for one in model.validation_path_] == [5.0, 6.0]


# ------------------------------------------------------------------------------------------------- limits and words


def test_warm_starts_keep_the_value():
    X, y = blobs()
    model = mm.MultiClassSVM(warm_start=True).fit(X, y)
    chosen = model.C_
    model.fit(X, y)
    assert chosen == model.C_
    assert model.validation_path_ == []
    assert "fit before" in model.result_.options["C_reason"]


def test_a_number_is_taken_as_it_is():
    X, y = blobs()
    model = mm.MultiClassSVM(C=3).fit(X, y)
    assert (model.C_, model.validation_path_, model.result_.options["C_reason"]) == (3.0, [], "as asked")
    assert "C =" not in model.result_.summary()


def test_the_path_takes_at_most_half_of_the_time():
    X, y = blobs(3000)
    model = mm.MultiClassSVM(solver="subgradient", max_seconds=0.4, max_passes=10**6, tol=0.0).fit(X, y)
    assert sum(one.seconds for one in model.validation_path_) < 0.35
    assert model.result_.n_passes > 0


def test_interrupted_while_choosing():
    X, y = blobs()

    class Impatient(SoftBCFW):
        def solve(self, problem, **options):
            result = super().solve(problem, **options)
            result.status = Status.INTERRUPTED
            return result

    model = mm.MultiClassSVM(solver=Impatient()).fit(X, y)
    assert model.result_.status is Status.INTERRUPTED
    assert (model.result_.certificate, model.result_.gap) == ("none", np.inf)
    assert "while C was being chosen" in model.result_.summary()
    assert len(model.validation_path_) == 1


@pytest.mark.parametrize(("C", "cv"), [("auto", None), ([0.1, 1.0], 3)])
def test_the_choice_survives_a_file(tmp_path, C, cv):
    X, y = blobs()
    model = mm.MultiClassSVM(C=C, cv=cv).fit(X, y)
    model.save(tmp_path / "a.mm")
    loaded = mm.load(tmp_path / "a.mm")
    assert (loaded.C, loaded.cv) == (C, cv)
    assert loaded.C_ == model.C_
    assert loaded.validation_path_ == model.validation_path_
    assert loaded.result_.summary() == model.result_.summary()


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, "half", None, True])
def test_bad_fractions_are_refused(fraction):
    with pytest.raises(OptionError, match=r"validation_fraction=.* must be a number above 0 and below 1"):
        mm.MultiClassSVM(validation_fraction=fraction).fit(*blobs())


def test_a_run_that_does_not_converge_warns():
    X, y = blobs()
    with pytest.warns(ConvergenceWarning, match=r"MAX_PASSES after 2 passes, .* Allow more passes .*scale=True"):
        mm.MultiClassSVM(C=1e4, max_passes=2, tol=1e-9).fit(X, y)


def test_a_checkpoint_keeps_the_choice(tmp_path):
    X, y = blobs()
    file = tmp_path / "a.ckpt"
    first = mm.MultiClassSVM(tol=0.0, max_passes=4, checkpoint=file).fit(X, y)
    rest = mm.MultiClassSVM(tol=0.0, max_passes=8, checkpoint=file).fit(X, y)
    assert rest.C_ == first.C_
    assert rest.validation_path_ == []
    assert "checkpoint" in rest.result_.options["C_reason"]
    assert rest.result_.n_passes == 8

"""ChainSVM: the objective, the weights and the hard constraints against enumeration; what it accepts and refuses."""

import itertools

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import maxmargin as mm
from maxmargin.errors import DataError, OptionError
from maxmargin.problems import chain_problem
from reference.quadratic_program import optimum

TAGS = np.array(["A", "B", "C"])
# In this data A is never followed by C.
FORBIDDEN = [("A", "C")]


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    follow = np.array([[0.2, 0.8, 0.0], [0.1, 0.1, 0.8], [0.7, 0.1, 0.2]])
    X, y = [], []
    for length in [1, 1, *rng.integers(2, 6, 18)]:
        states = [rng.integers(3)]
        for _ in range(length - 1):
            states.append(rng.choice(3, p=follow[states[-1]]))
        X.append(np.column_stack([np.eye(3)[states], np.zeros(length)]) + 0.6 * rng.normal(size=(length, 4)))
        y.append(TAGS[states])
    return X, y


def small(**options):
    return mm.ChainSVM(**({"C": 5.0, "tol": 1e-3} | options))


@pytest.fixture(scope="module")
def model(data):
    return small().fit(*data)


def states(row):
    return np.searchsorted(TAGS, row)


def score_by_hand(model, x, row):
    value = sum(model.coef_[k] @ one + model.intercept_[k] for one, k in zip(x, row, strict=True))
    value += sum(model.transition_coef_[i, j] for i, j in itertools.pairwise(row))
    if model.boundary:
        value += model.start_coef_[row[0]] + model.end_coef_[row[-1]]
    return value


def labelings(length, forbidden=()):
    no = {(states(i), states(j)) for i, j in forbidden}
    return [row for row in itertools.product(range(3), repeat=length) if no.isdisjoint(itertools.pairwise(row))]


def objective(model, X, y, cost, weight=None):
    """1/(2C) |w|^2 + mean hinge from the definition, with cost(truth, row) as the task loss."""
    hinges = []
    for x, tags in zip(X, y, strict=True):
        truth = states(tags)
        best = max(cost(truth, row) + score_by_hand(model, x, row) for row in labelings(len(x), model.forbidden or ()))
        hinges.append(best - score_by_hand(model, x, truth))
    parts = [model.coef_, model.intercept_, model.transition_coef_]
    parts += [model.start_coef_, model.end_coef_] if model.boundary else []
    return sum((part**2).sum() for part in parts) / (2 * model.C) + np.average(hinges, weights=weight)


def hamming(truth, row):
    return np.mean(truth != np.array(row))


def with_ones(X):
    return [np.column_stack([x, np.ones(len(x))]) for x in X]


# ------------------------------------------------------------------------------------------------- training


@pytest.mark.parametrize("options", [{}, {"boundary": False}, {"fit_intercept": False}])
def test_the_objective_is_the_quadratic_programs(data, options):
    X, y = data
    model = small(**options).fit(X, y)
    found = objective(model, X, y, hamming)
    rows = with_ones(X) if model.fit_intercept else X
    best = optimum(chain_problem(rows, [states(row) for row in y], 3, model.boundary), 5.0)
    assert best - 1e-7 <= found <= best + 1e-3
    assert found <= model.result_.primal + 1e-9
    assert model.result_.dual <= best + 1e-7
    assert str(model.result_.status) == "CONVERGED"
    assert model.result_.certificate == "exact"


@pytest.mark.parametrize(
    ("loss", "cost"),
    [
        ("hamming", lambda by_tag, truth, row: np.mean(by_tag[truth] * (truth != row))),
        ("count", lambda by_tag, truth, row: np.sum(by_tag[truth] * (truth != row))),
        (
            [[0, 1, 2], [3, 0, 1], [1, 1, 0]],
            lambda by_tag, truth, row: np.mean(by_tag[truth] * np.array([[0, 1, 2], [3, 0, 1], [1, 1, 0]])[truth, row]),
        ),
    ],
)
@pytest.mark.parametrize("class_weight", [None, "balanced", {"B": 3.0}])
def test_losses_class_weights_and_sample_weights(data, loss, cost, class_weight):
    X, y = data
    weight = np.random.default_rng(1).uniform(0, 2, len(X))
    model = small(loss=loss, class_weight=class_weight, tol=1e-3).fit(X, y, sample_weight=weight)
    tags = np.concatenate(y)
    by_tag = {
        "None": np.ones(3),
        "balanced": len(tags) / (3 * np.array([np.sum(tags == tag) for tag in TAGS])),
    }.get(str(class_weight), np.array([1.0, 3.0, 1.0]))
    found = objective(model, X, y, lambda truth, row: cost(by_tag, truth, np.array(row)), weight)
    # The certificate is about exactly this objective: both bounds hold, and they are close.
    assert model.result_.dual - 1e-9 <= found <= model.result_.primal + 1e-9
    assert model.result_.gap <= 1e-3


def test_attributes_have_the_promised_shapes(data, model):
    assert model.classes_.tolist() == ["A", "B", "C"]
    assert model.coef_.shape == (3, 4)
    assert model.intercept_.shape == (3,)
    assert model.transition_coef_.shape == (3, 3)
    assert model.start_coef_.shape == model.end_coef_.shape == (3,)
    assert model.n_features_in_ == 4
    assert model.forbidden_ is None
    assert model.inference_ == "trees (exact): no graph has a cycle"
    assert model.score(*data) > 0.9
    named = (model.coef_, model.intercept_, model.transition_coef_, model.start_coef_, model.end_coef_)
    for part in named:
        assert np.shares_memory(part, model.result_.weights)
    assert sum(part.size for part in named) == model.result_.weights.size
    # A row is the tag before, a column the tag after.
    assert model.transition_coef_[0].argmax() == 1
    assert model.transition_coef_[1].argmax() == 2


def test_without_boundary_there_are_no_such_weights(data):
    model = small(boundary=False).fit(*data)
    for name in ("start_coef_", "end_coef_"):
        with pytest.raises(AttributeError):
            getattr(model, name)
    again = small().fit(*data).set_params(boundary=False).fit(*data)
    assert not hasattr(again, "start_coef_")
    np.testing.assert_array_equal(again.result_.weights, model.result_.weights)


@pytest.mark.parametrize("options", [{}, {"boundary": False}, {"forbidden": FORBIDDEN, "max_passes": 50}])
def test_prediction_is_the_best_of_all_labelings(data, options):
    X, y = data
    model = small(**options).fit(X, y)
    predicted, scores, bounds = model.predict(X, return_bound=True)
    for x, tags, score in zip(X, predicted, scores, strict=True):
        best = max(score_by_hand(model, x, row) for row in labelings(len(x), options.get("forbidden", ())))
        assert score == pytest.approx(best)
        assert score_by_hand(model, x, states(tags)) == pytest.approx(best)
        assert isinstance(tags, np.ndarray)
    np.testing.assert_array_equal(scores, bounds)
    np.testing.assert_array_equal(model.decision_function(X), scores)
    right = np.concatenate([one == two for one, two in zip(predicted, y, strict=True)])
    assert model.score(X, y) == right.mean()


def test_score_with_sample_weights(data, model):
    X, y = data
    right = [np.mean(one == two) == 1 for one, two in zip(model.predict(X), y, strict=True)]
    assert not all(right)
    assert model.score(X, y, sample_weight=right) == 1.0


@pytest.mark.parametrize("convert", [sp.csr_array, sp.csr_matrix, pd.DataFrame, lambda x: x.tolist()])
def test_kinds_of_X_agree(data, model, convert):
    X, y = data
    other = small().fit([convert(x) for x in X], y)
    np.testing.assert_array_equal(other.result_.weights, model.result_.weights)
    predicted = other.predict([convert(x) for x in X])
    assert [row.tolist() for row in predicted] == [row.tolist() for row in model.predict(X)]


@pytest.mark.parametrize("convert", [list, tuple, pd.Series, lambda row: row.astype(object)])
def test_kinds_of_y_agree(data, model, convert):
    X, y = data
    other = small().fit(X, [convert(row) for row in y])
    np.testing.assert_array_equal(other.result_.weights, model.result_.weights)
    assert other.score(X, [convert(row) for row in y]) == model.score(X, y)


@pytest.mark.parametrize(
    ("names", "classes"), [([7, 8, 9], [7, 8, 9]), ([False, True, True], [False, True]), ([0.5, 1, 2], [0.5, 1, 2])]
)
def test_kinds_of_tags(data, names, classes):
    X, y = data
    model = small(max_passes=5).fit(X, [[names[k] for k in states(row)] for row in y])
    assert model.classes_.tolist() == classes
    assert model.predict(X)[0].dtype == model.classes_.dtype


def test_tags_that_do_not_compare(data):
    X, y = data
    names = [("t", 1), "x", 3]
    values = [[names[k] for k in states(row)] for row in y]
    model = small().fit(X, values)
    assert set(model.classes_.tolist()) == set(names)
    assert model.classes_.tolist()[0] == values[0][0]
    assert model.score(X, values) > 0.9
    assert model.predict(X)[0].dtype == object


def test_arrays_of_equal_lengths(data):
    X, y = np.random.default_rng(0).normal(size=(6, 3, 2)), np.arange(18).reshape(6, 3) % 2
    listed = small().fit(list(X), list(y))
    np.testing.assert_array_equal(small().fit(X, y).result_.weights, listed.result_.weights)
    assert [row.shape for row in listed.predict(X)] == [(3,)] * 6


def test_sequences_of_length_one_are_multi_class(data):
    X = np.random.default_rng(0).normal(size=(30, 3))
    y = TAGS[X.argmax(axis=1)]
    chain = small(boundary=False, tol=1e-4).fit(list(X[:, None]), list(y[:, None]))
    flat = mm.MultiClassSVM(C=5.0, tol=1e-4).fit(X, y)
    assert chain.result_.primal == pytest.approx(flat.result_.primal, abs=1e-4)
    assert (chain.transition_coef_ == 0).all()


def test_warm_start_checkpoint_and_seed(data, model, tmp_path):
    X, y = data
    np.testing.assert_array_equal(small(n_jobs=2).fit(X, y).result_.weights, model.result_.weights)
    warm = small(warm_start=True).fit(X, y)
    assert warm.fit(X, y).result_.n_passes < model.result_.n_passes
    path = tmp_path / "state.mm"
    first = small(checkpoint=path, tol=1e-2).fit(X, y)
    assert small(checkpoint=path).fit(X, y).result_.n_passes > first.result_.n_passes


def test_feature_names(data):
    frames = [pd.DataFrame(x, columns=list("wxyz")) for x in data[0]]
    model = small(max_passes=2).fit(frames, data[1])
    assert model.feature_names_in_.tolist() == list("wxyz")
    with pytest.raises(DataError, match="feature names should match"):
        model.predict([frames[0][list("xwyz")]])
    with pytest.raises(DataError, match="The columns of sequence 1 are named differently than those of sequence 0"):
        model.predict([frames[0], frames[1][list("xwyz")]])


# ------------------------------------------------------------------------------------------------- hard constraints


def test_training_under_constraints(data):
    X, y = data
    model = small(forbidden=FORBIDDEN).fit(X, y)
    assert model.forbidden_.tolist() == [[False, False, True], [False] * 3, [False] * 3]
    found = objective(model, X, y, hamming)
    best = optimum(chain_problem(with_ones(X), [states(row) for row in y], 3, forbidden=model.forbidden_), 5.0)
    assert model.result_.dual - 1e-7 <= best <= found + 1e-7
    assert found <= model.result_.primal + 1e-9
    # The transition costs nothing to exclude, so the constrained optimum is lower.
    free = optimum(chain_problem(with_ones(X), [states(row) for row in y], 3), 5.0)
    assert best < free - 1e-3
    assert found == pytest.approx(best, abs=1e-3)


def test_a_forbidden_transition_is_never_predicted(data):
    X, y = data
    noise = list(np.random.default_rng(5).normal(size=(200, 6, 4)) * 3)

    def transitions(model):
        return {pair for row in model.predict(noise) for pair in itertools.pairwise(row.tolist())}

    assert not transitions(small().fit(X, y)).isdisjoint([("A", "C"), ("B", "B")])
    kept = [row for row in y if ("B", "B") not in itertools.pairwise(row.tolist())]
    sequences = [x for x, row in zip(X, y, strict=True) if ("B", "B") not in itertools.pairwise(row.tolist())]
    model = small(forbidden=[("A", "C"), ["B", "B"]], max_passes=50).fit(sequences, kept)
    assert transitions(model).isdisjoint([("A", "C"), ("B", "B")])


def test_forbidden_transitions_in_the_data_are_named(data):
    X, y = data
    m, t = next((m, t) for m, row in enumerate(y) for t in range(len(row) - 1) if tuple(row[t : t + 2]) == ("C", "A"))
    with pytest.raises(DataError, match=f"Sequence {m} goes from 'C' at position {t} to 'A', a transition that is for"):
        small(forbidden=[("C", "A")]).fit(X, y)
    # The end of one sequence and the start of the next are no transition.
    ends = [np.array(["A", "B"]), np.array(["A", "B"])]
    small(forbidden=[("B", "A")], max_passes=2).fit([np.eye(2), np.eye(2)], ends)


def test_constraints_that_leave_no_tags():
    model = small(forbidden=[("A", "A"), ("B", "A"), ("B", "B")], max_passes=5).fit([np.eye(2)] * 2, [["A", "B"]] * 2)
    assert model.predict([np.zeros((2, 2))])[0].tolist() == ["A", "B"]
    with pytest.raises(
        DataError, match="Sequence 1 has 3 positions, but the forbidden transitions allow no tags for mo"
    ):
        model.predict([np.zeros((2, 2)), np.zeros((3, 2))])


# ------------------------------------------------------------------------------------------------- refused


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda X, y: ([], []), "There is no sequence: the data is empty"),
        (
            lambda X, y: (X[3], y[3]),
            r"X is one matrix, of shape .*; expected a list with a matrix \(length, p\) per seq",
        ),
        (lambda X, y: (sp.csr_array(X[3]), y[3]), "X is one matrix"),
        (lambda X, y: ("text", y), "X is of type str"),
        (lambda X, y: (X, None), "ChainSVM requires y to be passed"),
        (lambda X, y: (X, "tags"), "y is of type str"),
        (lambda X, y: (X, y[:-1]), "There are 20 sequences in X, but tags for 19 in y"),
        (lambda X, y: (X, [*y[:2], y[2][:-1], *y[3:]]), r"Sequence 2 has \d positions, but \d tags"),
        (lambda X, y: (X, ["A", *y[1:]]), "The tags of sequence 0 are 'A'; expected one tag for each of its 1 pos"),
        (lambda X, y: (X, [[["A"]], *y[1:]]), "Sequence 0: position 0 has the tag .*not hashable"),
        (lambda X, y: (X, [[None], *y[1:]]), r"y\[0\]\[0\] is None; every position needs a tag"),
        (lambda X, y: (X, [y[0], [np.nan], *y[2:]]), r"y\[1\]\[0\] is nan"),
        (lambda X, y: (X, [np.full(len(row), "A") for row in y]), "ChainSVM needs at least 2 classes .* only: 'A'"),
        (lambda X, y: ([X[0] * np.nan, *X[1:]], y), r"Sequence 0: X\[0, 0\] is nan"),
        (lambda X, y: ([*X[:5], X[5][:, :2], *X[6:]], y), "Sequence 5 has 2 features; sequence 0 has 4"),
        (lambda X, y: ([X[0][:0], *X[1:]], y), "Sequence 0 is empty"),
        (lambda X, y: ([X[0][0], *X[1:]], y), r"Sequence 0 has shape \(4,\); expected \(rows, features\)"),
        (lambda X, y: ([x[:, :0] for x in X], y), "The sequences have 0 features"),
    ],
)
def test_bad_data_is_a_sentence(data, change, sentence):
    X, y = change(*data)
    with pytest.raises(DataError, match=sentence):
        small().fit(X, y)


@pytest.mark.parametrize(
    ("options", "kind", "sentence"),
    [
        ({"C": -1}, OptionError, "C=-1 is not possible"),
        ({"boundary": "no"}, OptionError, "boundary='no' is not possible; it must be True or False"),
        ({"loss": "zero-one"}, OptionError, "loss='zero-one' is not known"),
        ({"loss": np.ones((3, 3))}, DataError, r"loss\[0, 0\], the cost of 'A' where it is true, is 1.0"),
        ({"loss": np.ones(3)}, DataError, r"loss has shape \(3,\); expected \(3, 3\)"),
        ({"class_weight": {"Z": 1}}, OptionError, "class_weight has the class 'Z', which is not in y"),
        ({"forbidden": "AB"}, OptionError, "forbidden='AB' is not possible"),
        ({"forbidden": 3}, OptionError, "forbidden=3 is not possible"),
        ({"forbidden": ["AB"]}, OptionError, "forbidden has the entry 'AB'"),
        ({"forbidden": [("A", "B", "C")]}, OptionError, "forbidden has the entry"),
        (
            {"forbidden": [("A", "Z")]},
            OptionError,
            r"forbidden names the tag 'Z', which is not in y; the tags are \['A',",
        ),
        ({"forbidden": [(["A"], "B")]}, OptionError, "forbidden names the tag"),
    ],
)
def test_a_bad_parameter_is_a_sentence(data, options, kind, sentence):
    with pytest.raises(kind, match=sentence):
        small(**options).fit(*data)


def test_wrong_sample_weights(data):
    with pytest.raises(DataError, match=r"sample_weight has shape \(1,\); expected \(20,\), one per sequence"):
        small().fit(*data, sample_weight=[1.0])


def test_prediction_and_score_refuse_what_they_do_not_know(data, model):
    X, y = data
    with pytest.raises(DataError, match="X has 2 features, but ChainSVM is expecting 4"):
        model.predict([x[:, :2] for x in X])
    with pytest.raises(DataError, match=r"y\[1\]\[0\] is 'Z', a tag that was not seen in training"):
        model.score(X, [y[0], ["Z"], *y[2:]])
    with pytest.raises(DataError, match="There are 20 sequences in X, but tags for 1 in y"):
        model.score(X, y[:1])

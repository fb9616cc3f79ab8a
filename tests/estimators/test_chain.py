"""ChainSVM: the objective, the weights and the hard constraints against enumeration; what it accepts and refuses."""

import itertools

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import maxmargin as mm
from maxmargin.errors import DataError, ModelFileError, OptionError
from maxmargin.features import TextFeatures, Vectoriser
from maxmargin.formats.model_file import read_model, write_model
from maxmargin.inference.choice import CHEAP_ENTRIES, CHEAP_LABELINGS
from maxmargin.problems import chain_problem
from reference.enumerated_program import exact_optimum
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
    for t in range(2, len(row)) if model.order == 2 else ():
        value += model.transition2_coef_[row[t - 2], row[t - 1], row[t]]
    for t in range(1, len(row)) if model.emission_order >= 1 else ():
        value += model.emission_coef_[row[t - 1], row[t]] @ x[t]
    for t in range(2, len(row)) if model.emission_order == 2 else ():
        value += model.emission2_coef_[row[t - 2], row[t - 1], row[t]] @ x[t]
    return value


def labelings(length, forbidden=()):
    no = {(states(i), states(j)) for i, j in forbidden}
    return [row for row in itertools.product(range(3), repeat=length) if no.isdisjoint(itertools.pairwise(row))]


def objective(model, X, y, cost, weight=None):
    """1/(2C) |w|^2 + mean hinge from the definition; the task loss is cost(truth, row) over the mean length of all sequences."""
    hinges, mean = [], np.mean([len(x) for x in X])
    for x, tags in zip(X, y, strict=True):
        truth = states(tags)
        best = max(
            cost(truth, row) / mean + score_by_hand(model, x, row) for row in labelings(len(x), model.forbidden or ())
        )
        hinges.append(best - score_by_hand(model, x, truth))
    parts = [model.coef_, model.intercept_, model.transition_coef_]
    parts += [model.start_coef_, model.end_coef_] if model.boundary else []
    parts += [model.transition2_coef_] if model.order == 2 else []
    parts += [model.emission_coef_] if model.emission_order >= 1 else []
    parts += [model.emission2_coef_] if model.emission_order == 2 else []
    return sum((part**2).sum() for part in parts) / (2 * model.C) + np.average(hinges, weights=weight)


def hamming(truth, row):
    return np.sum(truth != np.array(row))


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
        ("hamming", lambda by_tag, truth, row, mean: np.sum(by_tag[truth] * (truth != row))),
        ("fraction", lambda by_tag, truth, row, mean: mean * np.mean(by_tag[truth] * (truth != row))),
        ("count", lambda by_tag, truth, row, mean: mean * np.sum(by_tag[truth] * (truth != row))),
        (
            [[0, 1, 2], [3, 0, 1], [1, 1, 0]],
            lambda by_tag, truth, row, mean: np.sum(
                by_tag[truth] * np.array([[0, 1, 2], [3, 0, 1], [1, 1, 0]])[truth, row]
            ),
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
    mean = np.mean([len(x) for x in X])
    found = objective(model, X, y, lambda truth, row: cost(by_tag, truth, np.array(row), mean), weight)
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


# ------------------------------------------------------------------------------------------------- orders

ORDERS = [(0, 0), (1, 1), (2, 0), (2, 1), (2, 2)]


@pytest.mark.parametrize(("order", "emission_order"), ORDERS)
@pytest.mark.parametrize("boundary", [True, False])
def test_other_orders_train_and_predict_exactly(data, order, emission_order, boundary):
    X, y = data
    options = {"order": order, "emission_order": emission_order, "boundary": boundary}
    model = small(**options, C=2.0).fit(X, y)
    found = objective(model, X, y, hamming)
    if order < 2:
        # Without the intercept, which is a feature of a tag alone and has no place in the builder's features in context.
        problem = chain_problem(X, [states(row) for row in y], 3, boundary, order=order, emission_order=emission_order)
        without = small(**options, C=2.0, fit_intercept=False).fit(X, y)
        assert objective(without, X, y, hamming) == pytest.approx(optimum(problem, 2.0), abs=1.01e-3)
    assert model.result_.certificate == "exact"
    assert str(model.result_.status) == "CONVERGED"
    # Both bounds are about this objective.
    assert model.result_.dual - 1e-9 <= found <= model.result_.primal + 1e-9
    predicted, scores, bounds = model.predict(X, return_bound=True)
    np.testing.assert_array_equal(scores, bounds)
    for x, tags, score in zip(X, predicted, scores, strict=True):
        assert score == pytest.approx(max(score_by_hand(model, x, row) for row in labelings(len(x))))
        assert score_by_hand(model, x, states(tags)) == pytest.approx(score)


@pytest.mark.parametrize("emission_order", [0, 1, 2])
def test_order_two_is_the_optimum_over_all_labelings(data, emission_order):
    X, y = ([one for one in part if len(one) <= 4][:8] for part in data)
    assert max(map(len, X)) == 4
    model = small(order=2, emission_order=emission_order, fit_intercept=False, C=2.0).fit(X, y)
    best = exact_optimum(chain_problem(X, [states(row) for row in y], 3, order=2, emission_order=emission_order), 2.0)
    assert best - 1e-7 <= objective(model, X, y, hamming) <= best + 1e-3
    assert model.result_.dual <= best + 1e-7


def test_order_two_learns_what_pairs_cannot():
    """Of "a a b b a a b b" features show the first two tags; a tag follows from the two before it, and not from one."""
    y = [list("aabbaabbaabb")[k : k + 8] for k in range(4)]
    first = [np.vstack([np.eye(2)[[0 if tag == "a" else 1 for tag in row[:2]]], np.zeros((6, 2))]) for row in y]
    two = small(order=2, C=1e4).fit(first, y)
    assert two.score(first, y) == 1.0
    assert small(order=1, C=1e4).fit(first, y).score(first, y) < 1.0


@pytest.mark.parametrize("solver", ["auto", "bcfw"])
def test_order_two_is_exact_where_tables_are_large(solver):
    """So many tags that the general rule finds no exact engine cheap."""
    rng = np.random.default_rng(0)
    lengths = [6, 4, 6]
    X, y = [rng.normal(size=(n, 3)) for n in lengths], [rng.integers(0, 24, n) for n in lengths]
    assert CHEAP_ENTRIES < 4 * 24**3
    assert CHEAP_LABELINGS < 24**6
    model = small(order=2, solver=solver, max_passes=3, tol=0.5).fit(X, y)
    assert model.inference_.startswith("junction_tree (exact)")
    assert model.result_.certificate == "exact"
    _, scores, bounds = model.predict(X, return_bound=True)
    np.testing.assert_array_equal(scores, bounds)


def test_weights_of_higher_orders_are_views(data):
    model = small(order=2, emission_order=2, max_passes=3).fit(*data)
    assert model.transition2_coef_.shape == (3, 3, 3)
    assert model.emission_coef_.shape == (3, 3, 4)
    assert model.emission2_coef_.shape == (3, 3, 3, 4)
    for name in ("transition_coef_", "transition2_coef_", "emission_coef_", "emission2_coef_", "start_coef_"):
        part = getattr(model, name)
        assert part.any()
        assert np.shares_memory(part, model.result_.weights), name
    model.set_params(order=1, emission_order=0).fit(*data)
    for name in ("transition2_coef_", "emission_coef_", "emission2_coef_"):
        assert not hasattr(model, name)
    assert (small(order=0, max_passes=3).fit(*data).transition_coef_ == 0).all()


def test_order_two_under_constraints(data):
    X, y = data
    model = small(order=2, forbidden=FORBIDDEN).fit(X, y)
    found = objective(model, X, y, hamming)
    assert model.result_.dual - 1e-9 <= found <= model.result_.primal + 1e-9
    noise = list(np.random.default_rng(5).normal(size=(100, 6, 4)) * 3)
    seen = {pair for row in model.predict(noise) for pair in itertools.pairwise(row.tolist())}
    assert ("A", "C") not in seen
    assert len(seen) > 4


def test_sparse_features_in_context(data):
    X, y = data
    dense = small(emission_order=1).fit(X, y)
    sparse = small(emission_order=1).fit([sp.csr_array(x) for x in X], y)
    np.testing.assert_allclose(sparse.result_.weights, dense.result_.weights, atol=1e-12)


def test_too_many_weights_are_refused(data, monkeypatch):
    monkeypatch.setattr("maxmargin.estimators.chain.MOST_WEIGHTS", 44)
    with pytest.raises(
        DataError, match="order=1 and emission_order=1, 3 tags and 4 features make 45 weights; at most 44"
    ):
        small(emission_order=1).fit(*data)
    small(order=2, max_passes=1).fit(*data)


# ------------------------------------------------------------------------------------------------- BIO

CHUNKS = [
    ("the cat sat on the red mat", "B-NP I-NP B-VP B-PP B-NP I-NP I-NP"),
    ("yes I saw red paint", "O B-NP B-VP B-NP I-NP"),
    ("he sat on it", "B-NP B-VP B-PP B-NP"),
    ("the red cat ran", "B-NP I-NP I-NP B-VP"),
]
SENTENCES, CHUNK_TAGS = ([row[k].split() for row in CHUNKS] for k in range(2))


def is_bio(tags):
    return all(
        not tag.startswith("I-") or (before is not None and before[1:] == tag[1:] and before[0] in "BI")
        for before, tag in zip([None, *tags], tags, strict=False)
    )


def test_the_check_itself():
    assert is_bio(["B-NP", "I-NP", "I-NP", "O", "B-VP"])
    assert not any(map(is_bio, (["I-NP"], ["O", "I-NP"], ["B-VP", "I-NP"], ["B-NP", "I-NP", "I-VP"])))


@pytest.mark.parametrize("boundary", [True, False])
@pytest.mark.parametrize("order", [0, 1, 2])
def test_only_bio_is_predicted(boundary, order):
    rng = np.random.default_rng(0)
    tags = [*CHUNK_TAGS, ["B-VP", "I-VP"]]
    X = [rng.normal(size=(len(row), 3)) for row in tags]
    noise = [rng.normal(size=(n, 3)) * 10 for n in rng.integers(1, 9, 150)]
    free = small(boundary=boundary, order=order, max_passes=400).fit(X, tags)
    assert not all(is_bio(row.tolist()) for row in free.predict(noise))
    model = small(bio=True, boundary=boundary, order=order, max_passes=400).fit(X, tags)
    predicted, values, _ = model.predict(noise, return_bound=True)
    assert all(is_bio(row.tolist()) for row in predicted)
    assert {"I-NP", "I-VP"} <= {tag for row in predicted for tag in row.tolist()}
    # The best of all allowed labelings, counted by hand.
    names = model.classes_.tolist()
    for x, value in zip(noise, values, strict=True):
        if len(x) <= 4:
            rows = itertools.product(range(len(names)), repeat=len(x))
            allowed = [row for row in rows if is_bio([names[k] for k in row])]
            assert value == pytest.approx(max(score_by_hand(model, x, row) for row in allowed))


def test_bio_adds_to_what_is_forbidden():
    X = [np.eye(len(row), 7) for row in CHUNK_TAGS]
    model = small(bio=True, forbidden=[("O", "B-VP")], max_passes=2).fit(X, CHUNK_TAGS)
    names = model.classes_.tolist()
    assert model.forbidden_first_.tolist() == [tag == "I-NP" for tag in names]
    expected = [[b == "I-NP" and a not in ("B-NP", "I-NP") for b in names] for a in names]
    expected[names.index("O")][names.index("B-VP")] = True
    assert model.forbidden_.tolist() == expected


@pytest.mark.parametrize(
    ("tags", "sentence"),
    [
        (["I-NP", "O", "O"], "Sequence 1 has 'I-NP' at position 0, where no tag before it allows it"),
        (["O", "O", "I-NP"], "Sequence 1 goes from 'O' at position 1 to 'I-NP', a transition that is forbidden"),
        (["O", "B-VP", "I-NP"], "Sequence 1 goes from 'B-VP' at position 1 to 'I-NP'"),
        (["O", "NP", "O"], 'bio=True, but y has the tag \'NP\'; expected "O", "B-kind" and "I-kind"'),
        (["O", "B-", "O"], "bio=True, but y has the tag 'B-'"),
    ],
)
def test_tags_that_are_not_bio_are_named(tags, sentence):
    with pytest.raises(DataError, match=sentence):
        small(bio=True).fit([np.eye(3), np.eye(3)], [["O", "B-NP", "I-NP"], tags])


# ------------------------------------------------------------------------------------------------- features by name


def as_dicts(sentence):
    return [{"word": word, "length": len(word), "capital": word[0].isupper()} for word in sentence]


def as_strings(sentence):
    return [[f"word={word}", word[0]] for word in sentence]


@pytest.mark.parametrize("convert", [as_dicts, as_strings])
def test_named_features_train_as_their_matrix(convert):
    X = [convert(one) for one in SENTENCES]
    model = small().fit(X, CHUNK_TAGS)
    vectoriser = Vectoriser()
    rows = vectoriser.fit_transform(X)
    cuts = np.cumsum([0, *map(len, X)])
    matrices = [rows[a:b] for a, b in itertools.pairwise(cuts)]
    other = small().fit(matrices, CHUNK_TAGS)
    np.testing.assert_array_equal(model.result_.weights, other.result_.weights)
    assert model.feature_names_in_.tolist() == vectoriser.feature_names_.tolist()
    assert model.n_features_in_ == len(vectoriser.feature_names_)
    assert [row.tolist() for row in model.predict(X)] == [row.tolist() for row in other.predict(matrices)]
    assert model.score(X, CHUNK_TAGS) == other.score(matrices, CHUNK_TAGS)
    # A word that was never seen is no error.
    assert [len(row) for row in model.predict([convert(["unheard", "the"])])] == [2]
    assert not hasattr(other, "vectoriser_")
    # The other way round: a model that had names forgets them.
    model.fit(matrices, CHUNK_TAGS)
    assert not hasattr(model, "vectoriser_")
    assert not hasattr(model, "feature_names_in_")


@pytest.mark.parametrize(
    "features",
    [
        TextFeatures(window=1, bigrams=1),
        TextFeatures.tagging(min_count=2),
        TextFeatures(n_hash=64),
        Vectoriser(n_hash=32),
    ],
)
def test_a_given_vectoriser_makes_the_features(features):
    X = SENTENCES if isinstance(features, TextFeatures) else [as_dicts(one) for one in SENTENCES]
    model = small(features=features, bio=True).fit(X, CHUNK_TAGS)
    assert not hasattr(features, "n_features_")
    rows = type(features)(**features.get_params()).fit_transform(X)
    np.testing.assert_array_equal(model.vectoriser_.transform(X).toarray(), rows.toarray())
    assert model.coef_.shape == (5, rows.shape[1])
    assert model.score(X, CHUNK_TAGS) > 0.9
    assert hasattr(model, "feature_names_in_") == (features.n_hash is None)
    assert small(features=features).set_params(features__n_hash=16, features__min_count=1).fit(
        X, CHUNK_TAGS
    ).coef_.shape == (5, 16)


def test_tokens_of_several_columns():
    X = [[(word, word[-1]) for word in one] for one in SENTENCES]
    model = small(features=TextFeatures.chunking()).fit(X, CHUNK_TAGS)
    assert "pos[-1]|pos[0]=e|t" in model.feature_names_in_
    assert model.score(X, CHUNK_TAGS) == 1.0


def test_top_features():
    model = small(features=TextFeatures(window=1), C=100.0).fit(SENTENCES, CHUNK_TAGS)
    k = model.classes_.tolist().index("B-PP")
    found = model.top_features("B-PP", 4)
    order = sorted(range(model.n_features_in_), key=lambda j: -model.coef_[k, j])
    assert [weight for _, weight in found] == [model.coef_[k, j] for j in order[:4]]
    assert {name: model.coef_[k, list(model.feature_names_in_).index(name)] for name, _ in found} == dict(found)
    # "on" is the only word with this tag.
    assert "word[0]=on" in [name for name, _ in model.top_features("B-PP", 10)]
    with pytest.raises(DataError, match="The tag 'B-ADJP' was not seen in training; the tags are"):
        model.top_features("B-ADJP")
    with pytest.raises(DataError, match="was not seen in training"):
        model.top_features(["B-PP"])


def test_features_without_names_are_numbered(model):
    assert sorted(name for name, _ in model.top_features("A")) == ["x0", "x1", "x2", "x3"]


@pytest.mark.parametrize(
    "options",
    [
        {"order": 2},
        {"order": 2, "emission_order": 2, "boundary": False},
        {"order": 0},
        {"emission_order": 1, "fit_intercept": False},
        {"bio": True},
        {"features": TextFeatures(window=1, templates=["word[-1]|shape"], min_count=2)},
        {"features": TextFeatures(n_hash=64)},
        {"features": Vectoriser(min_count=2), "dicts": True},
        {"dicts": True},
    ],
)
def test_saved_models_predict_the_same(tmp_path, options):
    dicts = options.get("dicts", False)
    options = {"features": None if dicts else TextFeatures(window=1)} | options
    options.pop("dicts", None)
    # Names of many alphabets, and one that no encoding likes.
    words = [[*one, "Straße", "日本", "\ud800"] for one in SENTENCES]
    tags = [[*row, "O", "O", "O"] for row in CHUNK_TAGS]
    X = [as_dicts(one) for one in words] if dicts else words
    model = small(max_passes=10, **options).fit(X, tags)
    model.save(tmp_path / "a.mm")
    loaded = mm.load(tmp_path / "a.mm")
    new = [["a", "red", "cat", "日本", "unheard", "\ud800"], ["it"]]
    new = [as_dicts(one) for one in new] if dicts else new
    for one, two in zip(model.predict(new, return_bound=True), loaded.predict(new, return_bound=True), strict=True):
        assert [np.asarray(row).tolist() for row in one] == [np.asarray(row).tolist() for row in two]
    assert loaded.vectoriser_.n_features_ == model.vectoriser_.n_features_
    assert hasattr(loaded, "feature_names_in_") == hasattr(model, "feature_names_in_")
    if hasattr(model, "feature_names_in_"):
        assert loaded.feature_names_in_.tolist() == model.feature_names_in_.tolist()
        assert loaded.top_features("O") == model.top_features("O")
    for name in ("transition_coef_", "transition2_coef_", "emission_coef_", "emission2_coef_", "start_coef_"):
        assert hasattr(loaded, name) == hasattr(model, name)
        if hasattr(model, name):
            np.testing.assert_array_equal(getattr(loaded, name), getattr(model, name))
    given = model.features
    if given is not None:
        assert type(loaded.features) is type(given)
        assert {k: list(v) if isinstance(v, tuple) else v for k, v in given.get_params().items()} == (
            loaded.features.get_params()
        )
    # A loaded model trains like the one it was.
    np.testing.assert_array_equal(loaded.fit(X, tags).result_.weights, model.result_.weights)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda h, a: a["names_length"].__setitem__(0, 2), "the lengths of its feature names do not fit their text"),
        (lambda h, a: a["names_length"].__setitem__(slice(2), [-1, 3]), "the lengths of its feature names do not fit"),
        (lambda h, a: a["names_text"].__setitem__(0, ord("b")), "its vectoriser has 2 columns, not 2 that differ"),
        (lambda h, a: a["names_text"].__setitem__(0, 255), "UnicodeDecodeError"),
        (lambda h, a: a.pop("names_text"), "names_text"),
        (lambda h, a: h["vectoriser"].update(name="pickle"), "it names the vectoriser 'pickle', and this version knows vec"),
        (lambda h, a: h["vectoriser"]["options"].update(n_hash=5), "its vectoriser has 5 columns, not 2"),
        (lambda h, a: h["vectoriser"]["options"].update(min_count=0), "min_count=0 is not possible"),
        (lambda h, a: h["parameters"].update(order=2), "its weights have shape"),
        (lambda h, a: h["parameters"].update(emission_order=2), "emission_order=2 is not possible with order=1"),
        (lambda h, a: h["parameters"].update(bio=True), "bio=True, but y has the tag 'A'"),
    ],
)  # fmt: skip
def test_a_file_that_was_tampered_with_is_refused(tmp_path, change, sentence):
    path = tmp_path / "a.mm"
    small(max_passes=2).fit([[["a"], ["b"]]] * 2, [["A", "B"]] * 2).save(path)
    header, arrays = read_model(path)
    header = {key: value for key, value in header.items() if key not in ("format", "format_version", "arrays")}
    arrays = {name: array.copy() for name, array in arrays.items()}
    change(header, arrays)
    write_model(path, header, arrays)
    with pytest.raises(ModelFileError, match=sentence):
        mm.load(path)


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
        (lambda X, y: (X, [[None] * len(row) for row in y]), "No position of any sequence has a known tag"),
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
        ({"loss": "one-zero"}, OptionError, "loss='one-zero' is not known"),
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
        ({"bio": 1}, OptionError, "bio=1 is not possible; it must be True or False"),
        ({"bio": True}, DataError, "bio=True, but y has the tag 'A'"),
        ({"order": 3}, OptionError, "order=3 is not possible; it must be 0, 1 or 2"),
        ({"order": True}, OptionError, "order=True is not possible"),
        ({"emission_order": -1}, OptionError, "emission_order=-1 is not possible"),
        ({"emission_order": 2}, OptionError, "emission_order=2 is not possible with order=1: features that know 2 tag"),
        ({"emission_order": 1, "kernel": "rbf"}, OptionError, 'emission_order=1 is for kernel="linear"'),
        ({"features": "words"}, OptionError, "features='words' is not possible; it must be a TextFeatures, a Vectoris"),
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
    with pytest.raises(DataError, match="There are 20 sequences in X, but tags for 1 in y"):
        model.score(X, y[:1])


def test_a_tag_that_was_not_seen_is_wrong(data, model):
    """As everywhere in scikit-learn; folds of cross-validation may lack a rare tag."""
    X, y = data
    assert model.score(X[1:2], [["Z"] * len(y[1])]) == 0.0
    strange = [np.array(y[0], object), *y[1:]]
    strange[0][0] = "Z"
    right = [np.sum(np.asarray(a) == np.asarray(b)) for a, b in zip(model.predict(X), strange, strict=True)]
    assert model.score(X, strange) == pytest.approx(sum(right) / sum(map(len, y)), rel=1e-12)


@pytest.mark.parametrize(
    ("X", "sentence"),
    [
        ([[{"a": 1}, "cat"], ["a"]], "Sequence 0: position 1 is 'cat'; .* For sentences of words, use TextFeatures"),
        ([[{"a": 1}, {"a": 2}], []], "Sequence 1 is empty"),
        ([[{"a": 1}, {"a": None}], [{}]], "Sequence 0: position 1 has the feature 'a' with the value None"),
        ([[["a"], ["b"]], [["c"], ["d"]]], "Sequence 1 has 2 positions, but 1 tags"),
    ],
)
def test_bad_features_by_name_are_a_sentence(X, sentence):
    with pytest.raises(DataError, match=sentence):
        small().fit(X, [["A", "B"], ["A"]])


def test_words_and_matrices_are_not_mixed(data, model):
    named = small(max_passes=2).fit([[["a"], ["b"]]] * 2, [["A", "B"]] * 2)
    with pytest.raises(DataError, match="Sequence 0: position 0 is array"):
        named.predict(data[0])
    for X in ([[{"a": 1}]], [["word"]], [[["a"]]]):
        with pytest.raises(
            DataError, match="X holds features by name, or words, but the model was trained on matrices"
        ):
            model.predict(X)


def test_given_weights_can_be_saved(tmp_path):
    made = mm.ChainSVM.from_weights(["b", "a"], [[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [0.5, 0.0]], C=3)
    assert [y.tolist() for y in made.predict([[[2.0, 0.0], [0.0, 3.0]]])] == [["b", "a"]]
    made.save(tmp_path / "model.mm")
    again = mm.load(tmp_path / "model.mm")
    assert again.result_.certificate == "none"
    assert [y.tolist() for y in again.predict([[[2.0, 0.0], [0.0, 3.0]]])] == [["b", "a"]]
    # It can be trained as any other.
    made.fit([[[1.0, 0.0], [0.0, 1.0]]], [["b", "a"]])
    assert made.classes_.tolist() == ["a", "b"]


def test_given_weights_must_fit():
    ones = np.ones((2, 2))
    for options, words in (
        ({"coef": np.ones((3, 2))}, "coef has shape"),
        ({"transition_coef": np.ones(2)}, "transition_coef has shape"),
        ({"intercept": np.ones(3)}, "intercept has shape"),
        ({"start_coef": np.ones(2)}, "must be given together"),
        ({"coef": np.full((2, 2), np.nan)}, "finite"),
        ({"classes": ["a", "a"]}, "that differ"),
        ({"classes": ["a"]}, "at least 2 classes"),
    ):
        with pytest.raises(ValueError, match=words):
            mm.ChainSVM.from_weights(**({"classes": ["a", "b"], "coef": ones, "transition_coef": ones} | options))

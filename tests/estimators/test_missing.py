"""Labels that are not known: training is that of the problem without them, which is written out here by its definition."""

import itertools

import numpy as np
import pandas as pd
import pytest

import maxmargin as mm
from maxmargin.errors import DataError
from maxmargin.problems import label_edges
from reference.enumerated_program import least_value

C, TOL = 10.0, 1e-4


@pytest.fixture(scope="module")
def labels():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 3))
    Y = (X + 0.7 * rng.normal(size=(20, 3)) > 0).astype(float)
    Y[rng.random((20, 3)) < 0.3] = np.nan
    Y[4] = np.nan
    return X, Y


@pytest.fixture(scope="module")
def sequences():
    rng = np.random.default_rng(1)
    lengths = [1, 2, 3, 4, 5, 4, 3, 4]
    tags = [rng.choice(["A", "B"], size=n).astype(object) for n in lengths]
    X = [
        np.column_stack([y == "A", rng.normal(size=len(y))]).astype(float) + rng.normal(size=(len(y), 2)) for y in tags
    ]
    for y in tags[1:]:
        y[rng.random(len(y)) < 0.35] = None
    tags[6][:] = None
    return X, tags


def planes_of_labels(X, Y, edges, costs):
    """(psi, ell) of every set of the known labels of each row, by the definition of the score."""
    every, known = [], ~np.isnan(Y)
    mean = known[known.any(axis=1)].sum(axis=1).mean()
    for x, truth, seen in zip(X, Y, known, strict=True):
        if not seen.any():
            continue
        row = np.append(x, 1.0)

        def phi(y, row=row, seen=seen):
            singles = [row * (y[i] if seen[i] else 0.0) for i in range(len(y))]
            pairs = [y[i] * y[j] if seen[i] and seen[j] else 0.0 for i, j in edges]
            return np.concatenate([*singles, pairs])

        own = np.where(seen, truth, 0.0)
        found = []
        for y in itertools.product((0.0, 1.0), repeat=len(truth)):
            wrong = sum(costs[i] for i in range(len(truth)) if seen[i] and y[i] != truth[i])
            found.append((phi(own) - phi(y), wrong / mean))
        every.append(found)
    return every


@pytest.mark.parametrize("loss", ["hamming", [1.0, 2.0, 0.5]])
@pytest.mark.parametrize("edges", ["none", "tree"])
def test_sets_of_labels_by_their_definition(labels, edges, loss):
    X, Y = labels
    model = mm.MultiLabelSVM(C=C, edges=edges, loss=loss, tol=TOL, scale=False).fit(X, Y)
    assert model.result_.certificate == "exact"
    costs = [1.0, 1.0, 1.0] if isinstance(loss, str) else loss
    every = planes_of_labels(X, Y, model.edges_.tolist(), costs)
    assert len(every) == 19
    best = least_value(every, np.ones(19), C)
    assert model.result_.primal == pytest.approx(best, abs=TOL)
    assert model.result_.dual <= best + 1e-9
    assert model.result_.options["unknown_labels"] == int(np.isnan(Y).sum())


def test_weights_of_examples_are_those_of_the_examples_left(labels):
    X, Y = labels
    weight = np.linspace(0.5, 2.0, 20)
    model = mm.MultiLabelSVM(C=C, edges="none", tol=TOL, scale=False).fit(X, Y, weight)
    left = np.delete(weight, 4)
    best = least_value(planes_of_labels(X, Y, [], [1.0] * 3), left / left.mean(), C)
    assert model.result_.primal == pytest.approx(best, abs=TOL)


def planes_of_tags(X, tags, mean):
    every = []
    for x, y in zip(X, tags, strict=True):
        known = [t for t, tag in enumerate(y) if tag is not None]
        if not known:
            continue
        rows = np.column_stack([x, np.ones(len(x))])

        def phi(states, rows=rows, known=known):
            at = dict(zip(known, states, strict=True))
            out = [np.zeros((2, 3)), np.zeros((2, 2)), np.zeros(2), np.zeros(2)]
            for t, k in at.items():
                out[0][k] += rows[t]
                if t - 1 in at:
                    out[1][at[t - 1], k] += 1
            if 0 in at:
                out[2][at[0]] += 1
            if len(rows) - 1 in at:
                out[3][at[len(rows) - 1]] += 1
            return np.concatenate([one.ravel() for one in out])

        truth = ["AB".index(y[t]) for t in known]
        every.append(
            [
                (phi(truth) - phi(states), sum(a != b for a, b in zip(states, truth, strict=True)) / mean)
                for states in itertools.product((0, 1), repeat=len(known))
            ]
        )
    return every


def test_sequences_in_pieces_by_their_definition(sequences):
    X, tags = sequences
    model = mm.ChainSVM(C=C, tol=TOL, scale=False).fit(X, tags)
    counts = [sum(tag is not None for tag in y) for y in tags]
    mean = sum(counts) / sum(n > 0 for n in counts)
    every = planes_of_tags(X, tags, mean)
    assert len(every) == 7
    best = least_value(every, np.ones(7), C)
    assert model.result_.certificate == "exact"
    assert model.result_.primal == pytest.approx(best, abs=TOL)
    assert model.result_.dual <= best + 1e-9
    assert model.result_.options["unknown_labels"] == sum(map(len, tags)) - sum(counts)


@pytest.mark.parametrize(
    "options", [{"order": 2, "emission_order": 2}, {"objective": "log"}, {"class_weight": "balanced"}]
)
def test_other_chains_train_on_pieces(sequences, options):
    model = mm.ChainSVM(C=C, tol=1e-2, **options).fit(*sequences)
    assert str(model.result_.status) == "CONVERGED"
    assert [len(y) for y in model.predict(sequences[0])] == [len(y) for y in sequences[1]]


def test_every_mark_of_a_missing_label_is_the_same(labels):
    X, Y = labels
    boxed = Y.astype(object)
    boxed[np.isnan(Y)] = None
    nullable = pd.DataFrame(Y).astype("Int64")
    given = [Y, boxed, boxed.tolist(), np.ma.masked_invalid(Y), pd.DataFrame(Y), nullable]
    models = [mm.MultiLabelSVM(C=C, tol=TOL).fit(X, one) for one in given]
    for model in models[1:]:
        assert model.result_.weights.tolist() == models[0].result_.weights.tolist()
    tags = [["A", None, "B"], ["B", "A", "A"]]
    rows = [np.eye(3), np.eye(3)[::-1]]
    one, other = (mm.ChainSVM(C=C, tol=TOL).fit(rows, y) for y in (tags, [["A", float("nan"), "B"], tags[1]]))
    assert one.result_.weights.tolist() == other.result_.weights.tolist()


def test_unknown_labels_do_not_count_in_scores(labels, sequences):
    X, Y = labels
    model = mm.MultiLabelSVM(C=C, tol=1e-2).fit(X, Y)
    known = ~np.isnan(Y)
    rows = known.any(axis=1)
    by_hand = [(model.predict(X)[m] == Y[m])[known[m]].mean() for m in np.flatnonzero(rows)]
    assert model.score(X, Y) == pytest.approx(np.mean(by_hand))
    tagger = mm.ChainSVM(C=C, tol=1e-2).fit(*sequences)
    pairs = [
        (a, b)
        for one, other in zip(tagger.predict(sequences[0]), sequences[1], strict=True)
        for a, b in zip(one, other, strict=True)
    ]
    assert tagger.score(*sequences) == pytest.approx(np.mean([a == b for a, b in pairs if b is not None]))


def test_a_tree_of_labels_counts_what_is_known_of_both():
    rng = np.random.default_rng(3)
    Y = rng.integers(0, 2, (200, 4)).astype(float)
    # Labels 0 and 2 are equal wherever both are known; elsewhere the first is on.
    Y[:, 2] = Y[:, 0]
    known = np.ones((200, 4), bool)
    known[:120, 2] = False
    Y[:120, 0] = 1.0
    assert [0, 2] in label_edges("tree", np.where(known, Y, 0), known).tolist()


def test_constraints_hold_between_known_neighbours_only():
    rows = [np.eye(3)]
    model = mm.ChainSVM(C=1.0, forbidden=[("A", "B")], tol=1e-2).fit(rows, [["A", None, "B"]])
    assert model.transition_coef_.shape == (2, 2)
    with pytest.raises(
        DataError, match="Sequence 0 goes from 'A' at position 0 to 'B', a transition that is forbidden"
    ):
        mm.ChainSVM(C=1.0, forbidden=[("A", "B")]).fit(rows, [["A", "B", None]])
    bio = mm.ChainSVM(C=1.0, bio=True, tol=1e-2).fit(rows * 2, [[None, "I-x", "O"], ["O", "B-x", "I-x"]])
    assert set(bio.classes_) == {"B-x", "I-x", "O"}
    with pytest.raises(DataError, match="Sequence 0 has 'I-x' at position 0"):
        mm.ChainSVM(C=1.0, bio=True).fit(rows, [["I-x", None, "O"]])


def test_what_cannot_be_is_a_sentence(labels, sequences):
    X, Y = labels
    wrong = np.where(np.isnan(Y), -1.0, Y)
    with pytest.raises(DataError, match=r"is -1.0; expected 0 or 1. A label that is not known is NaN or None."):
        mm.MultiLabelSVM(C=C).fit(X, wrong)
    with pytest.raises(DataError, match="No label of any example in Y is known"):
        mm.MultiLabelSVM(C=C).fit(X, np.full((20, 3), np.nan))
    with pytest.raises(DataError, match="No position of any sequence has a known tag"):
        mm.ChainSVM(C=C).fit(sequences[0], [[None] * len(y) for y in sequences[1]])
    with pytest.raises(DataError, match="Input y contains NaN or None"):
        mm.MultiClassSVM(C=C).fit(X, [None, *["a", "b"] * 9, "a"])


def test_files_keep_how_many_were_unknown(sequences, tmp_path):
    model = mm.ChainSVM(C=C, tol=1e-2).fit(*sequences)
    model.save(tmp_path / "chain.mm")
    loaded = mm.load(tmp_path / "chain.mm")
    assert loaded.result_.options["unknown_labels"] == model.result_.options["unknown_labels"] > 0

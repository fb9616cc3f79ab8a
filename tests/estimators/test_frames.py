"""Weights as data frames: names, shapes, and the numbers of the attributes."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris

import maxmargin as mm
from maxmargin.errors import DataError, OptionError

WORDS = [["the", "dog", "barked"], ["dogs", "bark"], ["a", "small", "dog"]]
TAGS = [["DET", "NOUN", "VERB"], ["NOUN", "VERB"], ["DET", "ADJ", "NOUN"]]
RING = [[0, 1], [1, 2], [2, 3], [3, 0]]


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True, as_frame=True)
    return X, np.array(["setosa", "versicolor", "virginica"])[y]


@pytest.fixture(scope="module")
def labels():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    return X, (X + 0.3 * rng.normal(size=(40, 3)) > 0).astype(int)


@pytest.fixture(scope="module")
def graphs():
    rng = np.random.default_rng(1)
    nodes = [pd.DataFrame(rng.normal(size=(4, 2)), columns=["light", "edge"]) for _ in range(12)]
    given = [(one, RING, rng.uniform(size=(4, 2))) for one in nodes]
    return given, [np.where(one["light"] > 0, "in", "out") for one in nodes]


def test_features_have_a_row_each_and_labels_a_column(iris):
    X, y = iris
    model = mm.MultiClassSVM(C=10.0, tol=1e-2).fit(X, y)
    frame = model.to_frame()
    assert frame.columns.tolist() == model.classes_.tolist()
    assert frame.index.tolist() == [*X.columns, "(intercept)"]
    for k, label in enumerate(model.classes_):
        assert frame[label].tolist() == [*model.coef_[k], model.intercept_[k]]
    assert mm.MultiClassSVM(C=1.0, tol=0.1, fit_intercept=False).fit(X, y).to_frame().index.tolist() == list(X.columns)
    best = frame["virginica"][:-1].idxmax()
    assert model.top_features("virginica", 1) == [(best, frame.loc[best, "virginica"])]


def test_the_score_of_two_classes_is_the_second_ones(iris):
    X, y = iris
    model = mm.BinarySVM(C=10.0, tol=1e-2).fit(X, y == "setosa")
    assert model.to_frame().columns.tolist() == [True]
    assert model.to_frame()[True].tolist() == [*model.coef_[0], model.intercept_[0]]
    # What speaks for the one speaks against the other.
    assert dict(model.top_features(True)) == {name: -weight for name, weight in model.top_features(False)}


def test_pairs_of_labels(labels):
    X, Y = labels
    model = mm.MultiLabelSVM(C=10.0, tol=1e-2).fit(X, pd.DataFrame(Y, columns=["sun", "sea", "sand"]))
    frame = model.to_frame("pairs")
    found = {(row.label, row.other): row.weight for row in frame.itertuples()}
    assert found == {
        (model.classes_[i], model.classes_[j]): w for (i, j), w in zip(model.edges_, model.edge_coef_, strict=True)
    }
    assert model.to_frame().index.tolist() == ["x0", "x1", "x2", "(intercept)"]
    assert len(mm.MultiLabelSVM(C=1.0, edges="none", tol=0.1).fit(X, Y).to_frame("pairs")) == 0


def test_transitions_and_boundary():
    model = mm.ChainSVM(C=10.0, order=2, emission_order=1).fit(WORDS, TAGS)
    transitions, boundary = model.to_frame("transitions"), model.to_frame("boundary")
    tags = model.classes_.tolist()
    assert transitions.loc["DET", "NOUN"] == model.transition_coef_[tags.index("DET"), tags.index("NOUN")]
    assert boundary.loc["DET", "start"] == model.start_coef_[tags.index("DET")]
    assert boundary.loc["VERB", "end"] == model.end_coef_[tags.index("VERB")]
    three = model.to_frame("transitions2")
    place = tuple(tags.index(tag) for tag in ("DET", "ADJ", "NOUN"))
    assert three.loc[("DET", "ADJ"), "NOUN"] == model.transition2_coef_[place]
    emissions = model.to_frame("emissions")
    name = model.feature_names_in_[3]
    assert emissions.loc[("DET", "NOUN"), name] == model.emission_coef_[tags.index("DET"), tags.index("NOUN"), 3]
    assert model.to_frame().index[:-1].tolist() == model.feature_names_in_.tolist()
    with pytest.raises(OptionError, match=r'has no part \'boundary\' .* this model has "features", "transitions"'):
        mm.ChainSVM(C=1.0, boundary=False).fit(WORDS, TAGS).to_frame("boundary")


def test_nodes_and_edges_of_graphs(graphs, tmp_path):
    full = mm.GraphSVM(C=10.0, tol=1e-2).fit(*graphs)
    assert full.to_frame().index.tolist() == ["light", "edge", "(intercept)"]
    rows = full.to_frame("pairs").set_index(["label", "other", "feature"])["weight"]
    assert rows[("in", "out", "z1")] == full.edge_coef_[0, 1, 1]
    potts = mm.GraphSVM(C=10.0, tol=1e-2, edge_weights="potts").fit(*graphs)
    assert potts.to_frame("pairs").values.tolist() == [["z0", potts.edge_coef_[0]], ["z1", potts.edge_coef_[1]]]
    potts.save(tmp_path / "potts.mm")
    assert mm.load(tmp_path / "potts.mm").to_frame().equals(potts.to_frame())


def test_other_columns_of_nodes_are_named(graphs):
    given, y = graphs
    model = mm.GraphSVM(C=1.0, tol=0.1).fit(given, y)
    renamed = [(nodes.rename(columns={"edge": "depth"}), *rest) for nodes, *rest in given]
    with pytest.raises(DataError, match=r"(?s)depth.*edge"):
        model.predict(renamed)
    with pytest.raises(
        DataError, match=r"The columns of graph 1 are named differently .* it has 'depth' and it lacks 'edge'"
    ):
        model.predict([given[0], renamed[1]])


def test_class_wise_weights():
    rng = np.random.default_rng(0)
    given = [(rng.normal(size=(4, 2)), RING) for _ in range(10)]
    model = mm.GraphSVM(C=1.0, node_weights="class-wise", tol=0.1)
    model.fit(given, [nodes.argmax(axis=1) for nodes, _ in given])
    frame = model.to_frame()
    assert frame.loc["score of the class"].tolist() == model.coef_.tolist()
    assert model.top_features(1) == [("score of the class", model.coef_[1])]


def test_one_vector_of_weights():
    ranked = mm.RankingSVM(C=10.0).fit([[1.0, 0.2], [2.0, 0.1], [3.0, 0.3]], [0, 1, 2])
    assert ranked.to_frame()["score"].tolist() == ranked.coef_[0].tolist()
    assert ranked.top_features(1) == [(f"x{ranked.coef_[0].argmax()}", ranked.coef_[0].max())]
    parser = mm.ParserSVM(C=10.0).fit(["(S (NP dogs) (VP bark))", "(S (NP cats) (VP sleep))"])
    frame = parser.to_frame()
    assert frame.index.tolist() == parser.feature_names()
    assert frame["weight"].tolist() == parser.coef_.tolist()
    assert parser.top_features(1)[0][1] == parser.coef_.max()


def test_what_there_is_not_is_refused(iris, labels):
    model = mm.MultiLabelSVM(C=1.0, tol=0.1).fit(*labels)
    with pytest.raises(
        OptionError, match=r'MultiLabelSVM has no part \'pair\' .* has "features", "pairs". Did you mean "pairs"'
    ):
        model.to_frame("pair")
    with pytest.raises(DataError, match="The label 7 was not seen in training; the labels are"):
        model.top_features(7)
    kernel = mm.MultiClassSVM(C=1.0, kernel="rbf", tol=0.1).fit(*iris)
    with pytest.raises(OptionError, match="no weights with names: with a kernel"):
        kernel.to_frame()
    with pytest.raises(OptionError, match="With a kernel there are no weights of features"):
        kernel.top_features("setosa")


def test_pandas_is_asked_for_in_a_sentence(labels, monkeypatch):
    model = mm.MultiLabelSVM(C=1.0, tol=0.1).fit(*labels)
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(Exception, match="Data frames need pandas, which is not installed"):
        model.to_frame()

"""Costs of labels and of confusions, on every estimator that has labels."""

import numpy as np
import pytest

import maxmargin as mm
from maxmargin.errors import DataError, OptionError
from maxmargin.problems import multi_label_problem
from maxmargin.problems.losses import variable_losses

RING = [[0, 1], [1, 2], [2, 3], [3, 0]]


@pytest.fixture(scope="module")
def labels():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    return X, (X + rng.normal(size=(60, 3)) > 0.5).astype(int)


@pytest.fixture(scope="module")
def graphs():
    rng = np.random.default_rng(1)
    given = [(rng.normal(size=(4, 2)), RING) for _ in range(20)]
    return given, [np.where(nodes[:, 0] + rng.normal(size=4) > 0, "in", "out") for nodes, _ in given]


def test_tables_of_sets_of_labels_by_hand(labels):
    _, Y = labels
    table = np.array([[[0, 1.0], [2.0, 0]], [[0, 3.0], [4.0, 0]], [[0, 5.0], [6.0, 0]]])
    expected = np.array([[[table[i, y, k] / 3 for k in (0, 1)] for i, y in enumerate(row)] for row in Y]).ravel()
    for loss, each in ((table, table), (table[1], np.stack([table[1]] * 3))):
        problem = multi_label_problem(np.ones((60, 1)), Y, np.empty((0, 2), np.int64), 3, loss)
        by_hand = np.array([[[each[i, y, k] / 3 for k in (0, 1)] for i, y in enumerate(row)] for row in Y]).ravel()
        assert problem.arrays.losses == pytest.approx(by_hand)
    assert variable_losses(Y.ravel().astype(np.int32), np.full(180, 2), np.full(60, 3), table) == pytest.approx(
        expected
    )


def test_a_cost_of_each_label_is_a_table_for_each(labels):
    costs = np.array([1.0, 2.0, 0.5])
    tables = costs[:, None, None] * np.array([[0.0, 1.0], [1.0, 0.0]])
    by_label, by_table = (mm.MultiLabelSVM(C=10.0, loss=loss, tol=1e-6).fit(*labels) for loss in (costs, tables))
    weighted = mm.MultiLabelSVM(C=10.0, class_weight=dict(enumerate(costs)), tol=1e-6).fit(*labels)
    assert by_table.result_.primal == pytest.approx(by_label.result_.primal, abs=2e-6)
    assert weighted.result_.primal == pytest.approx(by_label.result_.primal, abs=2e-6)


def test_what_costs_more_to_miss_is_predicted_more(labels):
    X, Y = labels
    plain, careful = (mm.MultiLabelSVM(C=10.0, loss=[[0, 1], [c, 0]], tol=1e-2).fit(X, Y) for c in (1.0, 5.0))
    missed = [int(((model.predict(X) == 0) & (Y == 1)).sum()) for model in (plain, careful)]
    assert missed[1] < missed[0]


def test_class_weights_of_nodes_are_costs_by_true_class(graphs):
    table = np.array([[0.0, 3.0], [1.0, 0.0]])
    by_class = mm.GraphSVM(C=10.0, class_weight={"in": 3.0}, tol=1e-6).fit(*graphs)
    by_table = mm.GraphSVM(C=10.0, loss=table, tol=1e-6).fit(*graphs)
    assert by_class.result_.primal == pytest.approx(by_table.result_.primal, abs=2e-6)
    plain = mm.GraphSVM(C=10.0, tol=1e-6).fit(*graphs)
    assert abs(by_class.result_.primal - plain.result_.primal) > 1e-3


def test_balanced_nodes(graphs):
    given, y = graphs
    n_in = sum(int((one == "in").sum()) for one in y)
    weights = {"in": 80 / (2 * n_in), "out": 80 / (2 * (80 - n_in))}
    balanced, by_hand = (mm.GraphSVM(C=10.0, class_weight=one, tol=1e-6).fit(given, y) for one in ("balanced", weights))
    assert balanced.result_.primal == pytest.approx(by_hand.result_.primal, abs=2e-6)


def test_files_keep_costs(graphs, labels, tmp_path):
    graph = mm.GraphSVM(C=1.0, class_weight={"in": 3.0}, tol=0.1).fit(*graphs)
    graph.save(tmp_path / "graph.mm")
    assert mm.load(tmp_path / "graph.mm").class_weight == {"in": 3.0}
    table = np.array([[0.0, 1.0], [4.0, 0.0]])
    mm.MultiLabelSVM(C=1.0, loss=table, tol=0.1).fit(*labels).save(tmp_path / "labels.mm")
    assert mm.load(tmp_path / "labels.mm").loss.tolist() == table.tolist()


def test_bad_costs_are_sentences(labels, graphs):
    X, Y = labels
    cases = (
        (np.ones((3, 3)), r"loss has shape \(3, 3\); expected \(3,\), the cost of each label; \(2, 2\)"),
        ([1.0, -1.0, 1.0], r"loss\[1\], a cost of 1, is -1.0; costs must be finite and not negative"),
        ([[0.0, 1.0], [np.nan, 0.0]], r"loss\[1, 0\], a cost is nan"),
        ([[1.0, 1.0], [1.0, 0.0]], "to be right must cost 0"),
        ([["a", "b"]], "neither a name nor a table of numbers"),
    )
    for loss, sentence in cases:
        with pytest.raises(DataError, match=sentence):
            mm.MultiLabelSVM(C=1.0, loss=loss).fit(X, Y)
    with pytest.raises(DataError, match=r"expected \(2, 2\): the cost of each predicted class, by true class"):
        mm.GraphSVM(C=1.0, loss=np.ones(3)).fit(*graphs)
    with pytest.raises(
        OptionError, match=r"class_weight has the class 'inn', which is not in y; .* Did you mean \"in\""
    ):
        mm.GraphSVM(C=1.0, class_weight={"inn": 2.0}).fit(*graphs)
    with pytest.raises(OptionError, match='class_weight is not possible with loss="zero-one"'):
        mm.GraphSVM(C=1.0, class_weight={"in": 2.0}, loss="zero-one").fit(*graphs)

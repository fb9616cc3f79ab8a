"""Figures of each label, against scikit-learn's; the table, the data frame, the pictures and the page."""

import json
import re
import sys
from html.parser import HTMLParser

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

import maxmargin as mm
from maxmargin.cli.main import run
from maxmargin.errors import DataError, OptionError
from maxmargin.reporting import (
    classification_report,
    compare_label_sets,
    compare_labels,
    plot_confusion,
    plot_label_scores,
)
from maxmargin.reporting.evaluation_page import evaluation_page

matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def close():
    yield
    plt.close("all")


def compared_with_sklearn(found, truth, predicted, labels):
    expected = precision_recall_fscore_support(truth, predicted, labels=labels, zero_division=0)
    for ours, theirs in zip((found.precision, found.recall, found.f1, found.n_true), expected, strict=True):
        np.testing.assert_allclose(ours, theirs)
    for name in ("micro", "macro", "weighted"):
        mean = precision_recall_fscore_support(truth, predicted, labels=labels, average=name, zero_division=0)
        np.testing.assert_allclose(list(found.averages()[name].values()), mean[:3])


def test_one_label_an_item():
    rng = np.random.default_rng(0)
    truth, predicted = rng.choice(list("abcd"), 200).tolist(), rng.choice(list("abce"), 200).tolist()
    found = compare_labels(truth, predicted, labels=["z"])
    assert found.labels == list("abcdez")
    compared_with_sklearn(found, truth, predicted, found.labels)
    np.testing.assert_array_equal(found.confusion, confusion_matrix(truth, predicted, labels=found.labels))
    assert found.accuracy == np.mean(np.array(truth) == predicted)
    mistakes = found.confusions()
    assert sum(count for _, _, count in mistakes) == sum(a != b for a, b in zip(truth, predicted, strict=True))
    assert [count for _, _, count in mistakes] == sorted((count for _, _, count in mistakes), reverse=True)
    one, other, count = mistakes[0]
    assert count == sum((a, b) == (one, other) for a, b in zip(truth, predicted, strict=True))


def test_unknown_truth_is_left_out_and_labels_may_be_of_two_kinds():
    found = compare_labels([1, None, "x"], [1, 5, 1])
    assert (found.n_items, found.accuracy, found.labels) == (2, 0.5, [1, "x"])
    with pytest.raises(DataError, match="No label of this data is known"):
        compare_labels([None], [1])
    with pytest.raises(DataError, match="There are 1 labels, but 2 predictions"):
        compare_labels([1], [1, 2])


def test_label_sets():
    rng = np.random.default_rng(0)
    truth, predicted = rng.integers(0, 2, (40, 3)), rng.integers(0, 2, (40, 3))
    truth[:, 2] = predicted[:, 2] = 0
    found = compare_label_sets(truth, predicted, ["a", "b", "c"])
    compared_with_sklearn(found, truth, predicted, None)
    assert found.accuracy == (truth == predicted).mean()
    assert found.confusions() == []
    with pytest.raises(OptionError, match="Label sets have no confusion matrix"):
        plot_confusion(found)
    with pytest.raises(DataError, match=r"labels of shape \(40, 3\) and predictions of shape \(39, 3\)"):
        compare_label_sets(truth, predicted[1:], ["a", "b", "c"])


def test_models_of_every_task():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = np.array(["low", "mid", "high"])[np.digitize(X[:, 0], [-0.5, 0.5])]
    model = mm.MultiClassSVM(C=1).fit(X, y)
    compared_with_sklearn(classification_report(model, X, y), y, model.predict(X), ["high", "low", "mid"])
    binary = mm.BinarySVM(C=1).fit(X, X[:, 0] > 0)
    assert classification_report(binary, X, X[:, 0] > 0).accuracy == binary.score(X, X[:, 0] > 0)
    Y = (X > 0).astype(int)
    sets = mm.MultiLabelSVM(C=1).fit(X, Y)
    compared_with_sklearn(classification_report(sets, X, Y), Y, sets.predict(X), None)
    rows, tags = list(X.reshape(12, 5, 3)), y.reshape(12, 5).tolist()
    chain = mm.ChainSVM(C=1).fit(rows, tags)
    tags[0][0] = None
    found = classification_report(chain, rows, tags)
    assert found.n_items == 59
    flat = [tag for row in tags for tag in row]
    guesses = np.concatenate(chain.predict(rows))
    compared_with_sklearn(found, flat[1:], guesses[1:], found.labels)
    graph = mm.GraphSVM(C=1).fit([(one, [[0, 1]]) for one in rows], y.reshape(12, 5))
    assert classification_report(graph, [(one, [[0, 1]]) for one in rows], y.reshape(12, 5)).n_items == 60
    with pytest.raises(DataError, match="not of the lengths"):
        classification_report(chain, rows, [row[1:] for row in tags])
    parser = mm.ParserSVM(C=1).fit(["(S (A a) (B b))", "(S (B b) (A a))"])
    with pytest.raises(OptionError, match="A ParserSVM predicts no labels"):
        classification_report(parser, [["a", "b"]], ["(S (A a) (B b))"])


def test_frame_and_table(monkeypatch):
    found = compare_labels(list("aaabbc"), list("aabbbb"))
    frame = found.to_frame()
    assert frame.loc["b", "precision"] == 0.5
    assert frame.columns.tolist() == ["precision", "recall", "f1", "n_true", "n_predicted", "n_right"]
    lines = str(found).splitlines()
    assert lines[1].split() == ["a", "1.0000", "0.6667", "0.8000", "3", "2"]
    assert found.lines(2)[3] == "... 1 more"
    assert json.loads(json.dumps(found.to_dict()))["labels"]["c"]["n_right"] == 0
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(OptionError, match="A data frame needs pandas"):
        found.to_frame()


def test_pictures():
    found = compare_labels(list("aaabbc"), list("aabbbb"))
    ax = plot_confusion(found, normalize=False)
    np.testing.assert_array_equal(np.asarray(ax.collections[0].get_array()).reshape(3, 3), found.confusion)
    assert [tick.get_text() for tick in ax.get_xticklabels()] == list("abc")
    assert {text.get_text() for text in ax.texts} == {"1", "2"}
    shares = np.asarray(plot_confusion(found).collections[0].get_array()).reshape(3, 3)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    assert np.asarray(plot_confusion(found, most=2).collections[0].get_array()).size == 4
    ax = plot_label_scores(found)
    assert [bar.get_width() for bar in ax.patches] == found.f1.tolist()
    given = plt.subplots()[1]
    assert plot_label_scores(found, given) is given


class Strict(HTMLParser):
    """Counts tags that are open, and collects what asks for another file."""

    def __init__(self):
        super().__init__()
        self.open, self.links = [], []

    def handle_starttag(self, tag, attributes):
        if tag not in ("meta", "br"):
            self.open.append(tag)
        self.links += [
            value
            for name, value in attributes
            if name in ("src", "href", "xlink:href") and not value.startswith(("#", "data:"))
        ]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_whole_and_asks_for_nothing():
    found = compare_labels(["<b>", "x", "x"], ["x", "x", "<b>"])
    text = evaluation_page("a & b", {"Model": "<i>"}, {"accuracy": 1 / 3}, found)
    parser = Strict()
    parser.feed(text)
    assert (parser.open, parser.links) == ([], [])
    assert text.count("<svg") == 2
    assert "<b>" not in text
    assert "prefers-color-scheme: dark" in text
    assert "a &amp; b" in text
    assert "0.3333" in text
    assert not re.search(r"(src|href)=\"(https?:)?//|@import|url\(http", text)


def test_evaluate_writes_the_page_and_prints_the_labels(tmp_path, capsys):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 2))
    np.savez(tmp_path / "a.npz", X=X, y=np.digitize(X[:, 0], [-0.5, 0.5]))
    assert run(["train", str(tmp_path / "a.npz"), "-C", "1", "--quiet", "-o", str(tmp_path / "a.mm")]) == 0
    capsys.readouterr()
    line = ["evaluate", str(tmp_path / "a.mm"), str(tmp_path / "a.npz")]
    assert run([*line, "--html", str(tmp_path / "a.html")]) == 0
    out = capsys.readouterr().out
    assert "macro mean" in out
    assert "most frequent mistakes" in out
    page = (tmp_path / "a.html").read_text()
    assert "Each label" in page
    assert "Mistakes, the most frequent first" in page
    assert run([*line, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["by_label"]
    assert set(found["labels"]) == {"0", "1", "2"}
    assert sum(one["n_true"] for one in found["labels"].values()) == 30
    assert run([*line, "--html", str(tmp_path / "no" / "a.html")]) == 4
    assert "cannot be written" in capsys.readouterr().err

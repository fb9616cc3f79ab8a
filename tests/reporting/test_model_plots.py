"""Pictures of weights and of predictions: what is on the axes."""

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.patches import FancyArrowPatch

import maxmargin as mm
from maxmargin.errors import DataError, OptionError

matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def close():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def labels():
    X, Y = mm.make_synth2(60, random_state=0)
    return mm.MultiLabelSVM(C=10, edges=[(0, 1), (2, 5)], tol=0.1).fit(X, Y)


@pytest.fixture(scope="module")
def tagger():
    words = [["Ann", "lives", "in", "New", "York"], ["Bo", "likes", "Ann", "Lee"]]
    names = [["B-PER", "O", "O", "B-LOC", "I-LOC"], ["B-PER", "O", "B-PER", "I-PER"]]
    return mm.ChainSVM(C=10, bio=True).fit(words, names)


def test_interactions_of_labels(labels):
    ax = mm.plot_interactions(labels)
    drawn = ax.images[0].get_array()
    assert drawn.shape == (10, 10)
    np.testing.assert_array_equal(drawn, drawn.T)
    assert float(drawn[0, 1]) == labels.edge_coef_[0]
    assert float(drawn[2, 5]) == labels.edge_coef_[1]
    # Pairs without a weight are no zeros.
    assert np.ma.getmaskarray(np.ma.masked_invalid(drawn)).sum() == 96
    low, high = ax.images[0].get_clim()
    assert low == -high == -np.abs(labels.edge_coef_).max()
    assert [tick.get_text() for tick in ax.get_xticklabels()] == [str(name) for name in labels.classes_]


def test_interactions_of_tags_and_of_classes(tagger):
    drawn = np.ma.filled(mm.plot_interactions(tagger, plt.subplots()[1]).images[0].get_array().astype(float), np.nan)
    allowed = ~tagger.forbidden_
    np.testing.assert_array_equal(drawn[allowed], tagger.transition_coef_[allowed])
    assert np.isnan(drawn[tagger.forbidden_]).all()
    ring = [[0, 1], [1, 2], [2, 0]]
    graphs = [(np.eye(3), ring), (-np.eye(3), ring)]
    model = mm.GraphSVM(C=1).fit(graphs, [["a", "b", "a"], ["b", "b", "a"]])
    np.testing.assert_array_equal(mm.plot_interactions(model).images[0].get_array(), model.edge_coef_[:, :, 0])


def test_what_has_no_pairs_is_refused():
    classes = mm.MultiClassSVM(C=1).fit([[0.0], [1.0], [2.0]], [0, 1, 2])
    with pytest.raises(DataError, match="MultiClassSVM has no weights of pairs of labels to draw"):
        mm.plot_interactions(classes)
    with pytest.raises(DataError, match="MultiClassSVM has no transitions to draw"):
        mm.plot_transitions(classes)


def test_transitions(tagger):
    ax = mm.plot_transitions(tagger, strongest=1)
    assert [text.get_text() for text in ax.texts] == tagger.classes_.tolist()
    arrows = [patch for patch in ax.patches if isinstance(patch, FancyArrowPatch)]
    rows = tagger.transition_coef_
    assert len(arrows) == sum(np.abs(row).max() > 0 for row in rows)
    best = np.argmax(np.abs(rows).max(axis=1))
    strongest = max(arrows, key=lambda arrow: arrow.get_linewidth())
    assert strongest.get_linewidth() == 4.0
    positive = rows[best][np.abs(rows[best]).argmax()] > 0
    assert strongest.get_edgecolor()[:3] == to_rgb("C0" if positive else "C3")
    with pytest.raises(OptionError, match="strongest=0 is not possible"):
        mm.plot_transitions(tagger, strongest=0)


def test_risk_and_coverage():
    found = mm.risk_coverage([0, 1, 0, 1], [0.9, 0.8, 0.7, 0.7])
    np.testing.assert_allclose(found.coverage, [0.25, 0.5, 1.0, 1.0])
    np.testing.assert_allclose(found.risk, [0.0, 0.5, 0.5, 0.5])
    np.testing.assert_allclose(found.threshold, [0.9, 0.8, 0.7, 0.7])
    assert found.area == pytest.approx(0.375)
    # By enumeration of the thresholds.
    rng = np.random.default_rng(0)
    loss, sure = rng.random(50), rng.integers(0, 9, 50) / 9
    found = mm.risk_coverage(loss, sure)
    for coverage, risk, threshold in zip(found.coverage, found.risk, found.threshold, strict=True):
        assert coverage == np.mean(sure >= threshold)
        assert risk == pytest.approx(loss[sure >= threshold].mean())


@pytest.mark.parametrize(
    ("loss", "sure", "sentence"),
    [
        ([0.0], [1.0, 2.0], "expected two arrays"),
        ([], [], "expected two arrays"),
        ([0.0, 1.0], [np.nan, 1.0], "must be finite"),
    ],
)
def test_wrong_risk(loss, sure, sentence):
    with pytest.raises(DataError, match=sentence):
        mm.risk_coverage(loss, sure)


def test_risk_is_drawn():
    ax = mm.plot_risk_coverage([0, 1, 0], [0.9, 0.1, 0.8], label="one")
    mm.plot_risk_coverage([0, 1, 1], [0.9, 0.1, 0.8], ax, label="other")
    np.testing.assert_allclose(ax.get_lines()[0].get_xdata(), [1 / 3, 2 / 3, 1.0])
    np.testing.assert_allclose(ax.get_lines()[0].get_ydata(), [0.0, 0.0, 1 / 3])
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["one", "other"]


def test_a_segmented_picture():
    image, found = np.zeros((4, 6, 3)), np.arange(24).reshape(4, 6) % 3
    truth = found.copy()
    truth[0, 0] = -1
    ax = mm.plot_segmentation(image, found, confidence=np.full((4, 6), 0.5), truth=truth)
    titles = [one.get_title() for one in ax.figure.axes if one.get_title()]
    assert titles == ["picture", "truth", "predicted", "confidence"]
    assert np.ma.is_masked(ax.figure.axes[1].images[0].get_array()[0, 0])
    np.testing.assert_array_equal(ax.figure.axes[2].images[0].get_array(), found)
    assert [one.get_title() for one in mm.plot_segmentation(image, found).figure.axes] == ["picture", "predicted"]
    with pytest.raises(DataError, match=r"confidence has shape \(2, 2\), but the picture has \(4, 6\) pixels"):
        mm.plot_segmentation(image, found, confidence=np.ones((2, 2)))

"""Names that are not known suggest the nearest that is."""

import numpy as np
import pytest

import maxmargin as mm
from maxmargin.errors import DataError, OptionError, did_you_mean
from maxmargin.formats import read_libsvm_multilabel, read_mulan, read_svmlight_classes
from maxmargin.inference import engine
from maxmargin.solvers import make_solver


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        ("soft-bcwf", ("bcfw", "soft-bcfw"), ' Did you mean "soft-bcfw"?'),
        ("Trees", ("trees", "greedy"), ' Did you mean "trees"?'),
        ("loopy-bp", ("loopy_bp", "trees"), ' Did you mean "loopy_bp"?'),
        ("xyz", ("trees", "greedy"), ""),
        ("", ("trees",), ""),
        ("trees", (), ""),
        # Digits that are alike are not a number that was meant.
        ("10", ("1", "100"), ""),
        (3.5, (3, 5), ""),
    ],
)
def test_the_nearest_name(name, known, expected):
    assert did_you_mean(name, known) == expected


X, y = np.array([[0.0], [1.0], [2.0], [3.0]]), ["cat", "cat", "dog", "dog"]


@pytest.mark.parametrize(
    ("parameter", "wrong", "meant"),
    [
        ("solver", "bfcw", "bcfw"),
        ("inference", "exhaustiv", "exhaustive"),
        ("loss", "haming", "hamming"),
        ("kernel", "rfb", "rbf"),
        ("objective", "margins", "margin"),
        ("basis", "kmeans", "k-means"),
    ],
)
def test_parameters_of_estimators(parameter, wrong, meant):
    with pytest.raises(OptionError, match=rf"{parameter}='{wrong}' is not known; .* Did you mean \"{meant}\"\?"):
        mm.BinarySVM(**{parameter: wrong}).fit(X, y)


def test_other_names():
    with pytest.raises(OptionError, match='Did you mean "n-slack"'):
        make_solver("nslack", None)
    with pytest.raises(OptionError, match='Did you mean "junction_tree"'):
        engine("junction-trees")
    with pytest.raises(OptionError, match='Did you mean "brackets"'):
        mm.ParserSVM(loss="bracket").fit(["(S (N a))"])
    with pytest.raises(OptionError, match='Did you mean "dog"'):
        mm.BinarySVM(class_weight={"dgo": 2.0, "cat": 1.0}).fit(X, y)


def test_names_in_files(tmp_path):
    (tmp_path / "a.svm").write_text("rd 1:1\n")
    with pytest.raises(DataError, match=r"line 1: the label 'rd' .* Did you mean \"red\"\?"):
        read_svmlight_classes(tmp_path / "a.svm", classes=["red", "blue"])
    with pytest.raises(DataError, match=r"line 1: the label 'rd' .* Did you mean \"red\"\?"):
        read_libsvm_multilabel(tmp_path / "a.svm", label_names=["red", "blue"])
    (tmp_path / "a.arff").write_text("@relation a\n@attribute size numeric\n@attribute red {0,1}\n@data\n1,0\n")
    (tmp_path / "a.xml").write_text('<labels><label name="read"/></labels>')
    with pytest.raises(DataError, match=r"the label 'read' is not among .* Did you mean \"red\"\?"):
        read_mulan(tmp_path / "a.arff")

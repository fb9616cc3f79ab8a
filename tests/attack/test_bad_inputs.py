"""All estimators with all parameters, and all their methods with all data, that cannot be: our errors, and no others."""

import warnings

import numpy as np
import pytest

import maxmargin as mm
from attack.hostile import ALLOWED, ROWS, TARGETS, VALUES, WEIGHTS
from maxmargin.errors import DataError, OptionError, TooLargeError
from maxmargin.features import TextFeatures, Vectoriser
from maxmargin.problems import (
    Features,
    binary_problem,
    chain_problem,
    graph_problem,
    multi_class_problem,
    multi_label_problem,
)

X = np.array([[0.0, 1, 2], [1, 0, 2], [2, 1, 0], [0, 2, 1], [1, 2, 0], [2, 0, 1]])
TWO, THREE = np.array([0, 1, 0, 1, 0, 1]), np.array([0, 1, 2, 0, 1, 2])
EDGES = np.array([[0, 1], [1, 2]])
TREES = ["(S (A a) (B b))", "(S (B b) (A a))", "(S (A a) (S (A a) (B b)))"] * 2


class Toy:
    """Two classes, in Python."""

    def joint_features(self, x, y):
        return np.asarray(x, float) * (1 if y else -1)

    def loss(self, truth, y):
        return float(truth != y)

    def most_violated(self, x, y, w):
        return max((0, 1), key=lambda z: float(z != y) + float(np.dot(w, self.joint_features(x, z))))

    def predict(self, x, w):
        return int(np.dot(w, x) > 0)


ESTIMATORS = {
    "BinarySVM": (mm.BinarySVM, X, TWO),
    "MultiClassSVM": (mm.MultiClassSVM, X, THREE),
    "MultiLabelSVM": (mm.MultiLabelSVM, X, np.eye(3, dtype=int)[THREE]),
    "ChainSVM": (mm.ChainSVM, [X] * 6, [THREE] * 6),
    "GraphSVM": (mm.GraphSVM, [(X, EDGES)] * 6, [THREE] * 6),
    "ParserSVM": (mm.ParserSVM, [["a", "b"], ["b", "a"], ["a", "a", "b"]] * 2, TREES),
    "StructuredSVM": (lambda **options: mm.StructuredSVM(Toy(), **options), X, TWO),
}


def small(name, **options):
    return ESTIMATORS[name][0](**({"max_passes": 2} | options))


def attempt(wrong, place, allowed, function):
    """Call a function, and note what is raised that should not be, or that says nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            function()
        except allowed as error:
            if not str(error):
                wrong.append(f"{place}: {type(error).__name__} without a word")
        except BaseException as error:
            wrong.append(f"{place}: {type(error).__name__}: {str(error)[:100]}")


def parts(name, rows):
    """The data as this estimator's examples have it: as it is, and as the features of an example."""
    yield "as it is", rows
    if name == "ChainSVM":
        yield "in a sequence", [X] * 5 + [rows]
    if name == "GraphSVM":
        yield "as nodes", [(X, EDGES)] * 5 + [(rows, EDGES)]
        yield "as edges", [(X, EDGES)] * 5 + [(X, rows)]
        yield "as edge features", [(X, EDGES, np.ones((2, 1)))] * 5 + [(X, EDGES, rows)]
    if name == "ParserSVM":
        yield "as words", [["a", "b"]] * 5 + [rows]


@pytest.mark.parametrize("name", ESTIMATORS)
def test_parameters(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _, inputs, targets = ESTIMATORS[name]
    wrong = []
    parameters = small(name).get_params(deep=False)
    for parameter in parameters:
        if parameter in ("problem", "model"):
            continue
        for title, value in VALUES.items():
            attempt(
                wrong,
                f"{name}({parameter}={title})",
                ALLOWED,
                lambda p=parameter, v=value: small(name, **{p: v}).fit(inputs, targets).predict(inputs),
            )
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_data(name):
    _, inputs, targets = ESTIMATORS[name]
    wrong = []
    fitted = small(name).fit(inputs, targets)
    methods = ("predict", "decision_function", "predict_marginals", "ambiguity")
    for title, rows in ROWS.items():
        for where, data in parts(name, rows):
            attempt(wrong, f"{name}.fit(X={title} {where})", ALLOWED, lambda d=data: small(name).fit(d, targets))
            for method in (method for method in methods if hasattr(fitted, method)):
                call = getattr(fitted, method)
                attempt(wrong, f"{name}.{method}({title} {where})", ALLOWED, lambda c=call, d=data: c(d))
            attempt(wrong, f"{name}.score(X={title} {where})", ALLOWED, lambda d=data: fitted.score(d, targets))
    for title, values in TARGETS.items():
        both = [values, [*targets[:5], values]] if name in ("ChainSVM", "GraphSVM", "ParserSVM") else [values]
        for y in both:
            attempt(wrong, f"{name}.fit(y={title})", ALLOWED, lambda y=y: small(name).fit(inputs, y))
            attempt(wrong, f"{name}.score(y={title})", ALLOWED, lambda y=y: fitted.score(inputs, y))
    for title, weight in WEIGHTS.items():
        for method in ("fit", "score"):
            call = getattr(small(name) if method == "fit" else fitted, method)
            attempt(
                wrong,
                f"{name}.{method}(sample_weight={title})",
                ALLOWED,
                lambda c=call, w=weight: c(inputs, targets, sample_weight=w),
            )
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", ["MultiLabelSVM", "ChainSVM", "GraphSVM", "ParserSVM"])
def test_numbers_of_predictions(name):
    _, inputs, targets = ESTIMATORS[name]
    fitted = small(name, **({"edges": "tree"} if name == "MultiLabelSVM" else {})).fit(inputs, targets)
    wrong = []
    for title, value in VALUES.items():
        attempt(wrong, f"{name}.predict_top_k(k={title})", ALLOWED, lambda v=value: fitted.predict_top_k(inputs, v))
        if name != "ParserSVM":
            attempt(
                wrong,
                f"{name}.predict_marginals(temperature={title})",
                ALLOWED,
                lambda v=value: fitted.predict_marginals(inputs, v),
            )
    assert not wrong, "\n".join(wrong)
    with pytest.raises(TooLargeError, match="k=1000000000 "):
        fitted.predict_top_k(inputs, 10**9)


def test_builders():
    builders = {
        "Features": lambda rows: Features(rows),
        "multi_class_problem": lambda rows: multi_class_problem(rows, THREE, 3),
        "binary_problem": lambda rows: binary_problem(rows, TWO),
        "multi_label_problem": lambda rows: multi_label_problem(rows, np.eye(3, dtype=int)[THREE]),
        "chain_problem": lambda rows: chain_problem([rows], [THREE], 3),
        "chain_problem as it is": lambda rows: chain_problem(rows, [THREE], 3),
        "graph_problem": lambda rows: graph_problem([(rows, EDGES)], [THREE], 3),
        "graph_problem edges": lambda rows: graph_problem([(X, EDGES, rows)], [THREE], 3),
        "graph_problem as it is": lambda rows: graph_problem(rows, [THREE], 3),
    }
    wrong = []
    for builder, build in builders.items():
        for title, rows in ROWS.items():
            attempt(wrong, f"{builder}({title})", ALLOWED, lambda b=build, r=rows: b(r))
    of_targets = {
        "multi_class_problem": lambda y: multi_class_problem(X, y, 3),
        "binary_problem": lambda y: binary_problem(X, y),
        "multi_label_problem": lambda y: multi_label_problem(X, y),
        "chain_problem": lambda y: chain_problem([X], [y], 3),
        "graph_problem": lambda y: graph_problem([(X, EDGES)], [y], 3),
    }
    for builder, build in of_targets.items():
        for title, y in TARGETS.items():
            attempt(wrong, f"{builder}(y={title})", ALLOWED, lambda b=build, y=y: b(y))
    assert not wrong, "\n".join(wrong)


def test_vectorisers():
    wrong = []
    sentences = [["a", "b"], ["c"]]
    for kind in (TextFeatures, Vectoriser):
        for parameter in kind().get_params():
            for title, value in VALUES.items():
                attempt(
                    wrong,
                    f"{kind.__name__}({parameter}={title})",
                    ALLOWED,
                    lambda k=kind, p=parameter, v=value: k(**{p: v}).fit_transform(sentences),
                )
        for title, rows in ROWS.items():
            for data in (rows, [rows], [["a"], rows]):
                attempt(wrong, f"{kind.__name__}.fit({title})", ALLOWED, lambda k=kind, d=data: k().fit_transform(d))
    assert not wrong, "\n".join(wrong)


def test_solvers_parameters(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    problem = multi_class_problem(X, THREE, 3)
    wrong = []
    names = ("C", "tol", "max_passes", "max_seconds", "random_state", "n_jobs", "checkpoint", "state")
    for parameter in names:
        for title, value in VALUES.items():
            attempt(
                wrong,
                f"BCFW.solve({parameter}={title})",
                ALLOWED,
                lambda p=parameter, v=value: mm.solvers.BCFW().solve(problem, **({"max_passes": 2} | {p: v})),
            )
    assert not wrong, "\n".join(wrong)


def test_the_sentences_name_the_parameter():
    for parameter in ("C", "tol", "max_passes", "max_seconds", "gamma", "degree", "coef0", "n_basis"):
        with pytest.raises(
            OptionError, match=f"^{parameter} is not possible: a whole number of 1329 bits is too large"
        ):
            mm.BinarySVM(**{parameter: 10**400}).fit(X, TWO)


def test_zero_weights_in_score():
    fitted = mm.BinarySVM(max_passes=2).fit(X, TWO)
    with pytest.raises(DataError, match="sample_weight"):
        fitted.score(X, TWO, sample_weight=np.zeros(6))

"""Weights that have signs: optima beside a reference programme, certificates, and what is refused."""

import itertools

import numpy as np
import pytest

import maxmargin as mm
from maxmargin.errors import DataError, OptionError
from maxmargin.inference import GraphCut, batches
from maxmargin.problems.attractive import is_attractive
from maxmargin.problems.graphs import graph_problem
from maxmargin.solvers import SOLVERS, BundleMethod, OneSlack
from reference.enumerated_program import exact_optimum

C, TOL = 10.0, 1e-5
RING = [[0, 1], [1, 2], [2, 3], [3, 0]]


@pytest.fixture(scope="module")
def labels():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 3))
    Y = (X + rng.normal(size=(30, 3)) > 0).astype(int)
    # The last label avoids the first: its pair would be negative.
    return X, np.column_stack([Y, 1 - Y[:, 0]])


@pytest.fixture(scope="module")
def graphs():
    rng = np.random.default_rng(1)
    given = [(rng.normal(size=(4, 2)), RING, rng.uniform(size=(4, 2))) for _ in range(15)]
    # Neighbours differ, so that free weights of equal classes are negative.
    return given, [np.array(["in", "out", "in", "out"])[:: (-1) ** int(nodes[0, 0] > 0)] for nodes, _, _ in given]


def signed_problem(model, graphs, labels):
    """The problem of a GraphSVM, by the builder, with signs by hand."""
    states = [np.searchsorted(model.classes_, y).astype(np.int32) for y in labels]
    parts = [(np.column_stack([nodes, np.ones(len(nodes))]), edges, z) for nodes, edges, z in graphs]
    problem = graph_problem(parts, states, len(model.classes_), model.edge_weights)
    signs = np.zeros(problem.n_weights)
    q = graphs[0][2].shape[1]
    if model.edge_weights == "potts":
        signs[-q:] = 1
    else:
        for i, j in itertools.product(range(2), repeat=2):
            at = 2 * 3 + (2 * i + j) * q
            signs[at : at + q] = 1 if i == j else -1
    return problem, signs


@pytest.mark.parametrize("solver", ["auto", "one-slack", "bundle", OneSlack(cache=0, step=1.0), BundleMethod(step=1.0)])
def test_attractive_labels_beside_the_reference(labels, solver):
    X, Y = labels
    model = mm.MultiLabelSVM(C=C, signs="attractive", solver=solver, tol=TOL, scale=False).fit(X, Y)
    problem = model.prepare(X, Y).problem
    signs = np.zeros(problem.n_weights)
    signs[-6:] = 1
    best = exact_optimum(problem, C, signs=signs)
    assert model.result_.certificate == "exact"
    assert best - 1e-9 <= model.result_.primal <= best + TOL
    assert model.result_.dual <= best + 1e-9
    assert (model.edge_coef_ >= 0).all()
    # Without signs the optimum is another one.
    assert exact_optimum(problem, C) < best - 1e-4
    assert model.inference_.startswith("graph_cut (exact): all pairs of binary variables attract")


@pytest.mark.parametrize("edge_weights", ["potts", "full"])
def test_attractive_graphs_beside_the_reference(graphs, edge_weights):
    model = mm.GraphSVM(C=C, edge_weights=edge_weights, signs="attractive", tol=TOL, scale=False).fit(*graphs)
    problem, signs = signed_problem(model, *graphs)
    best = exact_optimum(problem, C, signs=signs)
    assert model.result_.certificate == "exact"
    assert model.result_.primal == pytest.approx(best, abs=TOL)
    assert model.result_.dual <= best + 1e-9
    wanted = 1 if edge_weights == "potts" else (2 * np.eye(2) - 1)[:, :, None]
    assert (model.edge_coef_ * wanted >= 0).all()
    assert exact_optimum(problem, C) < best - 1e-4


@pytest.mark.parametrize("objective", ["margin", "log"])
def test_signs_of_features_and_transitions(objective):
    rng = np.random.default_rng(2)
    tags = [rng.choice(["A", "B"], size=3) for _ in range(12)]
    X = [np.column_stack([y == "A", rng.normal(size=3)]) - 0.5 + rng.normal(size=(3, 2)) for y in tags]
    signs = {"features": [[-1, 0], [1, 0]], "transitions": [[-1, 1], [0, 0]]}
    model = mm.ChainSVM(C=C, signs=signs, tol=TOL, scale=False, objective=objective).fit(X, tags)
    assert (model.coef_ * [[-1, 0], [1, 0]] >= 0).all()
    assert (model.transition_coef_ * [[-1, 1], [0, 0]] >= 0).all()
    assert str(model.result_.status) == "CONVERGED"
    if objective == "log":
        assert model.result_.solver == "bundle"
        return
    problem = model.prepare(X, tags).problem
    # coef_ and the intercept of each tag, then transitions.
    flat = np.concatenate([[-1, 0, 0, 1, 0, 0], [-1, 1, 0, 0], np.zeros(4)])
    assert problem.signs.tolist() == flat.tolist()
    assert model.result_.primal == pytest.approx(exact_optimum(problem, C, signs=flat), abs=TOL)


def test_the_log_objective_beside_scipy():
    """The conditions of an optimum: no slope along free weights, and none that leads away from a bound that holds."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(40, 4))
    y = (X[:, 0] - X[:, 1] + rng.normal(size=40) > 0).astype(int)
    model = mm.BinarySVM(C=C, signs={"features": 1}, objective="log", tol=1e-9, scale=False).fit(X, y)
    w = np.append(model.coef_[0], model.intercept_[0])
    rows = np.column_stack([X, np.ones(40)])
    slope = w / C + rows.T @ (1 / (1 + np.exp(-rows @ w)) - y) / 40
    assert (w[:4] >= 0).all()
    assert (w[:4] == 0).any()
    free = w != 0
    assert slope[free] == pytest.approx(0.0, abs=1e-3)
    assert (slope[~free] >= -1e-3).all()


@pytest.mark.parametrize("sparse", [False, True])
def test_classes(sparse):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(30, 4)) * (rng.random((30, 4)) < 0.6)
    y = rng.integers(0, 3, 30)
    given = __import__("scipy.sparse").sparse.csr_array(X) if sparse else X
    signs = rng.integers(-1, 2, (3, 4))
    model = mm.MultiClassSVM(C=C, signs={"features": signs}, tol=TOL, scale=False).fit(given, y)
    assert (model.coef_ * signs >= 0).all()
    problem = model.prepare(given, y).problem
    flat = np.column_stack([signs, np.zeros(3)]).ravel()
    assert model.result_.primal == pytest.approx(exact_optimum(problem, C, signs=flat), abs=TOL)


def test_signs_hold_when_columns_are_scaled(labels):
    X, Y = labels
    model = mm.MultiLabelSVM(C=C, signs={"features": 1, "pairs": 1}, tol=1e-3, scale=True).fit(
        X * [1.0, 100.0, 0.01], Y
    )
    assert (model.coef_ >= 0).all()
    assert (model.edge_coef_ >= 0).all()


def test_predictions_of_a_cut_are_exact_on_a_picture():
    rng = np.random.default_rng(5)
    side = 12
    at = np.arange(side * side).reshape(side, side)
    edges = np.concatenate(
        [np.stack([at[:, :-1].ravel(), at[:, 1:].ravel()], 1), np.stack([at[:-1].ravel(), at[1:].ravel()], 1)]
    )
    truth = [np.indices((side, side))[0].ravel() // 4 % 2 for _ in range(6)]
    pictures = [(one[:, None] + 0.8 * rng.normal(size=(side * side, 1)), edges) for one in truth]
    model = mm.GraphSVM(C=C, edge_weights="potts", signs="attractive", tol=1e-3).fit(pictures, truth)
    assert model.result_.certificate == "exact"
    assert model.inference_.startswith("graph_cut (exact)")
    _, scores, bounds = model.predict(pictures, return_bound=True)
    assert scores == pytest.approx(bounds)
    assert model.ambiguity(pictures) == 0.0


def test_paths_warm_starts_and_files(labels, tmp_path):
    X, Y = labels
    paths = mm.MultiLabelSVM(C=C, C_path=[1.0, 3.0], signs="attractive", tol=1e-4, scale=False).fit(X, Y)
    for value, result in paths.path_.items():
        alone = mm.MultiLabelSVM(C=value, signs="attractive", tol=1e-4, scale=False).fit(X, Y)
        assert result.primal == pytest.approx(alone.result_.primal, abs=2e-4)
    again = mm.MultiLabelSVM(C=C, signs="attractive", tol=1e-4, warm_start=True).fit(X, Y)
    before = again.result_.n_passes
    assert again.fit(X, Y).result_.n_passes - before <= 1
    again.set_params(signs={"pairs": -1}).fit(X, Y)
    assert (again.edge_coef_ <= 0).all()
    again.save(tmp_path / "model.mm")
    loaded = mm.load(tmp_path / "model.mm")
    assert loaded.signs == {"pairs": -1}
    assert (loaded.predict(X) == again.predict(X)).all()
    chosen = mm.MultiLabelSVM(signs="attractive", tol=1e-2).fit(X, Y)
    assert (chosen.edge_coef_ >= 0).all()


def test_a_checkpoint_of_other_signs_is_not_resumed(labels, tmp_path):
    X, Y = labels
    place = tmp_path / "run.ck"
    options = {"C": C, "tol": 1e-6, "max_passes": 2, "checkpoint": place}
    with pytest.warns(match="Training ended"):
        mm.MultiLabelSVM(signs="attractive", **options).fit(X, Y)
    resumed = mm.MultiLabelSVM(signs="attractive", **(options | {"max_passes": 100})).fit(X, Y)
    whole = mm.MultiLabelSVM(signs="attractive", C=C, tol=1e-6, max_passes=100).fit(X, Y)
    assert resumed.result_.weights.tolist() == whole.result_.weights.tolist()
    with pytest.raises(OptionError, match="the data differs"):
        mm.MultiLabelSVM(signs={"pairs": -1}, **options).fit(X, Y)


def test_what_makes_pairs_attract():
    nodes, edges = np.ones((3, 1)), [[0, 1], [1, 2], [2, 0]]
    for z, n, edge_weights, signs, expected in (
        (np.ones((3, 1)), 2, "potts", [0, 0, 1], True),
        (np.ones((3, 1)), 2, "potts", [0, 0, -1], False),
        (-np.ones((3, 1)), 2, "potts", [0, 0, 1], False),
        (np.ones((3, 1)), 3, "potts", [0, 0, 0, 1], False),
        (np.ones((3, 1)), 2, "full", [0, 0, 1, -1, -1, 1], True),
        (np.ones((3, 1)), 2, "full", [0, 0, 1, -1, 0, 1], False),
        (np.ones((3, 1)), 2, "full", [0, 0, 1, 1, -1, 1], False),
    ):
        problem = graph_problem([(nodes, edges, z)], None, n, edge_weights)
        assert not is_attractive(problem)
        assert is_attractive(problem.with_signs(signs)) == expected
    # A cut of attractive pairs leaves nothing open; others may.
    rng = np.random.default_rng(0)
    problem = graph_problem([(nodes, edges)], None, 2, "potts").with_signs([0, 0, 1])
    for _ in range(20):
        weights = np.append(rng.normal(size=2), rng.random())
        found = GraphCut().maximise(problem, problem.scores(weights))
        assert found.values == pytest.approx(found.bounds)
        assert batches.maximise(problem, problem.scores(weights), GraphCut()).ambiguous.sum() == 0


@pytest.mark.parametrize("name", sorted(set(SOLVERS) - {"one-slack", "bundle"}))
def test_other_solvers_are_refused_by_their_declarations(labels, name):
    sentence = f'The solver "{name}" needs .*weights that may have either sign, which this problem does not have; use one of: "bundle", "one-slack"'  # noqa: E501
    objective = "log" if name == "lbfgs" else "margin"
    if name == "lbfgs":
        sentence = sentence.replace('"bundle", "one-slack"', '"bundle"')
    with pytest.raises(OptionError, match=sentence):
        mm.MultiLabelSVM(C=C, signs="attractive", solver=name, objective=objective, edges="tree").fit(*labels)


def test_bad_signs_are_sentences(labels, graphs):
    X, Y = labels
    cases = (
        ("positive", OptionError, "signs='positive' is not possible; it must be None, \"attractive\", or a dict"),
        (
            {"pair": 1},
            OptionError,
            "signs has the part 'pair'; MultiLabelSVM has features, pairs. Did you mean \"pairs\"",
        ),
        ({"pairs": 2}, DataError, r"signs\['pairs'\]\[0\] is 2; expected -1, 0 or 1"),
        ({"pairs": [1, 1]}, DataError, r"signs\['pairs'\] has shape \(2,\); expected .* broadcast to \(6,\)"),
        ({"features": [["a"]]}, DataError, r"signs\['features'\] has shape"),
    )
    for signs, kind, sentence in cases:
        with pytest.raises(kind, match=sentence):
            mm.MultiLabelSVM(C=C, signs=signs).fit(X, Y)
    with pytest.raises(OptionError, match="signs are those of weights of features, of which a kernel has none"):
        mm.MultiLabelSVM(C=C, signs="attractive", kernel="rbf").fit(X, Y)
    with pytest.raises(OptionError, match='signs="attractive" is about pairs of labels, of which BinarySVM has none'):
        mm.BinarySVM(C=C, signs="attractive").fit(X, Y[:, 0])
    with pytest.raises(OptionError, match="signs are not for loss='f1'"):
        mm.BinarySVM(C=C, signs={"features": 1}, loss="f1").fit(X, Y[:, 0])
    given, y = graphs
    negative = [(nodes, edges, -z) for nodes, edges, z in given]
    with pytest.raises(DataError, match="needs features of edges that are not negative"):
        mm.GraphSVM(C=C, edge_weights="potts", signs="attractive").fit(negative, y)

"""GraphSVM with a kernel on the features of edges: against the feature map written out, in every way a model is used."""

import itertools

import numpy as np
import pytest
from sklearn.metrics.pairwise import polynomial_kernel, rbf_kernel

import maxmargin as mm
from maxmargin.cli.main import run
from maxmargin.errors import DataError, OptionError
from maxmargin.formats import GraphData, write_graphs


def paths(n, seed):
    """Paths of four nodes; neighbours are equal where the edge's feature is far from 0, which no linear weight can say."""
    rng = np.random.default_rng(seed)
    graphs, labels = [], []
    for _ in range(n):
        z = rng.normal(size=(3, 2)) * [2.0, 0.3]
        y = [int(rng.integers(2))]
        for one in z:
            y.append(y[-1] if abs(one[0]) > 1.2 else 1 - y[-1])
        X = np.eye(2)[y] + 0.9 * rng.normal(size=(4, 2))
        graphs.append((X, np.column_stack([np.arange(3), np.arange(1, 4)]), z))
        labels.append(np.array(["no", "yes"])[y])
    return graphs, labels


@pytest.fixture(scope="module")
def data():
    return paths(30, 2)


def small(**options):
    return mm.GraphSVM(**({"C": 30.0, "tol": 1e-3, "edge_kernel": "rbf", "edge_gamma": 0.5} | options))


@pytest.fixture(scope="module")
def model(data):
    return small().fit(*data)


def test_what_no_linear_weight_can_say(model):
    train, test = paths(100, 0), paths(100, 1)
    kernel, linear = (small(edge_kernel=name).fit(*train).score(*test) for name in ("rbf", "linear"))
    assert kernel > linear + 0.1, (kernel, linear)
    assert model.edge_dual_coef_.shape == (2, 2, len(model.edge_support_))
    assert model.edge_support_vectors_.shape == (len(model.edge_support_), 2)
    assert not hasattr(model, "edge_coef_")


def square_map(z):
    """Features whose inner products are (z . z' / 2 + 1)^2."""
    a, b = z.T / np.sqrt(2.0)
    return np.column_stack([a**2, b**2, np.sqrt(2) * a * b, np.sqrt(2) * a, np.sqrt(2) * b, np.ones(len(z))])


@pytest.mark.parametrize("edge_weights", ["full", "potts"])
@pytest.mark.parametrize("solver", ["auto", "excessive-gap", "soft-bcfw", "one-slack", "smo"])
def test_a_polynomial_is_its_feature_map(data, edge_weights, solver):
    tol = 1e-3 if solver in ("auto", "one-slack") else 0.02
    graphs, labels = data
    options = {"edge_weights": edge_weights, "scale": False, "C": 5.0}
    written = [(X, edges, square_map(z)) for X, edges, z in graphs]
    plain = small(edge_kernel="linear", tol=1e-4, **options).fit(written, labels)
    kernel = small(
        edge_kernel="poly", degree=2, edge_gamma=0.5, coef0=1.0, solver=solver, tol=tol, max_passes=20_000, **options
    ).fit(graphs, labels)
    assert kernel.result_.certificate == "exact"
    assert kernel.result_.gap <= tol
    assert kernel.result_.dual <= plain.result_.primal + 1e-9
    assert kernel.result_.primal >= plain.result_.dual - 1e-9
    if solver == "auto":
        apart = 2.0 * np.sqrt(2.0 * (1e-3 + 1e-4) * 5.0) * 20.0
        np.testing.assert_allclose(kernel.decision_function(graphs), plain.decision_function(written), atol=apart)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("edge_weights", ["full", "potts"])
def test_predictions_are_the_best_labelings_by_hand(data, kernel, edge_weights):
    graphs, labels = data
    model = small(kernel=kernel, edge_weights=edge_weights, tol=1e-2).fit(graphs, labels)
    coef = np.broadcast_to(model.edge_dual_coef_, (2, 2, len(model.edge_support_)))
    for graph, found, score in zip(
        graphs[:5], model.predict(graphs[:5]), model.decision_function(graphs[:5]), strict=True
    ):
        X, edges, z = graph
        near = rbf_kernel(z, model.edge_support_vectors_, gamma=0.5)
        if kernel == "linear":
            own = X @ model.coef_.T + model.intercept_
        else:
            own = rbf_kernel(X, model.support_vectors_, gamma=model.gamma_) @ model.dual_coef_.T + model.intercept_

        def value(y, near=near, own=own, edges=edges):
            total = sum(own[i, k] for i, k in enumerate(y))
            for e, (i, j) in enumerate(edges):
                if edge_weights == "full" or y[i] == y[j]:
                    total += coef[y[i], y[j]] @ near[e]
            return total

        best = max(itertools.product(range(2), repeat=4), key=value)
        assert model.classes_[list(best)].tolist() == found.tolist()
        assert score == pytest.approx(value(best))


def test_saved_models_and_other_uses(data, model, tmp_path):
    graphs, labels = data
    model.save(tmp_path / "a.mm")
    loaded = mm.load(tmp_path / "a.mm")
    np.testing.assert_array_equal(loaded.decision_function(graphs), model.decision_function(graphs))
    np.testing.assert_array_equal(loaded.edge_dual_coef_, model.edge_dual_coef_)
    np.testing.assert_array_equal(loaded.edge_support_vectors_, model.edge_support_vectors_)
    assert loaded.predict([(np.eye(2), [])])[0].shape == (2,)
    assert model.predict_proba(graphs[:2])[0].sum(axis=1) == pytest.approx(np.ones(4))
    chosen = small(C="auto", tol=1e-2, edge_gamma="scale").fit(graphs, labels)
    Z = np.concatenate([z for _, _, z in graphs])
    assert chosen._edges.gamma_ == pytest.approx(1.0 / (2 * Z.var()))
    # The same estimator without a kernel again.
    again = chosen.set_params(edge_kernel="linear").fit(graphs, labels)
    assert again.edge_coef_.shape == (2, 2, 2)
    assert not hasattr(again, "edge_dual_coef_")


def test_values_of_the_kernel(data):
    model = small(edge_kernel="poly", degree=3, coef0=0.5, edge_gamma=0.2, tol=1e-2).fit(*data)
    z = data[0][0][2]
    expected = polynomial_kernel(z, model.edge_support_vectors_, degree=3, gamma=0.2, coef0=0.5)
    problem = model._new_problem(data[0][:1])
    own = expected @ model.edge_dual_coef_.reshape(4, -1).T
    np.testing.assert_allclose(problem.factor_features.matrix(), own, atol=1e-12)


def test_the_command_line(data, model, tmp_path, capsys):
    graphs, labels = data
    states = [(row == "yes").astype(int) for row in labels]
    write_graphs(tmp_path / "a.npz", GraphData(graphs, states, ["no", "yes"]))
    line = ["train", tmp_path / "a.npz", "-C", 30, "--tol", 1e-3, "--set", "edge_kernel=rbf", "--set", "edge_gamma=0.5"]
    assert run([str(word) for word in [*line, "--quiet", "-o", tmp_path / "a.mm"]]) == 0
    np.testing.assert_array_equal(mm.load(tmp_path / "a.mm").edge_dual_coef_, model.edge_dual_coef_)
    assert run(["info", str(tmp_path / "a.mm")]) == 0
    capsys.readouterr()


def test_what_cannot_be_is_a_sentence(data):
    graphs, labels = data
    with pytest.raises(OptionError, match="edge_kernel='sigmoid' is not known"):
        small(edge_kernel="sigmoid").fit(graphs, labels)
    with pytest.raises(OptionError, match="edge_gamma=-1 is not possible"):
        small(edge_gamma=-1).fit(graphs, labels)
    with pytest.raises(DataError, match="A kernel on edges needs features of edges"):
        small().fit([graph[:2] for graph in graphs], labels)
    with pytest.raises(OptionError, match="Class-wise weights of nodes are weights of factors"):
        small(node_weights="class-wise").fit(graphs, labels)
    with pytest.raises(OptionError, match="The solver subgradient needs features, of which a kernel has none"):
        small(solver="subgradient").fit(graphs, labels)

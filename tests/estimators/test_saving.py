"""Model files: what is loaded predicts bit for bit what was saved, and a bad file is a sentence."""

import json
import zipfile

import numpy as np
import pandas as pd
import pytest

import maxmargin as mm
from maxmargin.errors import ModelFileError, OptionError
from maxmargin.formats.model_file import read_model, write_model


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 4))
    return X, (X[:, :3] > 0).astype(int)


@pytest.fixture(scope="module")
def graphs():
    rng = np.random.default_rng(0)
    edges = [[0, 1], [1, 2], [2, 0]]
    return [(rng.normal(size=(3, 2)), edges, rng.normal(size=(3, 1))) for _ in range(8)], rng.integers(
        0, 2, size=(8, 3)
    )


def small(**options):
    return mm.MultiLabelSVM(**({"C": 10.0, "tol": 1e-2, "max_passes": 20} | options))


def round_trip(model, path):
    model.save(path)
    return mm.load(path)


def rewrite(path, other, change):
    """Write a model file again after changing its header and arrays."""
    header, arrays = read_model(path)
    for key in ("format", "format_version", "arrays"):
        header.pop(key)
    change(header, arrays)
    write_model(other, header, arrays)


def same_result(one, two):
    assert (one.status, one.primal, one.dual, one.gap) == (two.status, two.primal, two.dual, two.gap)
    assert (one.certificate, one.n_passes, one.solver) == (two.certificate, two.n_passes, two.solver)
    assert one.history.keys() == two.history.keys()
    for column in one.history:
        np.testing.assert_array_equal(one.history[column], two.history[column])


@pytest.mark.parametrize(
    "options", [{}, {"edges": "none"}, {"edges": [[0, 2]]}, {"fit_intercept": False}, {"inference": "graph_cut"}]
)
def test_multi_label(data, tmp_path, options):
    X, Y = data
    model = small(**options).fit(X, Y)
    loaded = round_trip(model, tmp_path / "a.mm")
    assert type(loaded) is mm.MultiLabelSVM
    for one, two in zip(model.predict(X, return_bound=True), loaded.predict(X, return_bound=True), strict=True):
        assert one.tobytes() == two.tobytes()
    for name in ("coef_", "intercept_", "edge_coef_", "edges_", "classes_"):
        np.testing.assert_array_equal(getattr(model, name), getattr(loaded, name))
        assert getattr(model, name).dtype == getattr(loaded, name).dtype
    same_result(model.result_, loaded.result_)
    assert loaded.inference_ == model.inference_
    assert loaded.score(X, Y) == model.score(X, Y)


def test_the_same_model_gives_the_same_bytes_twice(data, tmp_path):
    model = small().fit(*data)
    model.save(tmp_path / "a.mm")
    mm.load(tmp_path / "a.mm").save(tmp_path / "b.mm")
    assert (tmp_path / "a.mm").read_bytes() == (tmp_path / "b.mm").read_bytes()


@pytest.mark.parametrize("labels", [["a", "b", "ü"], [3, 4, 5], [0.5, 1.5, 2.5], ["x", 1, 2.5]])
def test_kinds_of_labels(data, tmp_path, labels):
    X, Y = data
    lists = [[label for label, on in zip(labels, row, strict=True) if on] for row in Y]
    model = small().fit(X, lists)
    loaded = round_trip(model, tmp_path / "a.mm")
    assert loaded.classes_.tolist() == model.classes_.tolist()
    assert loaded.predict(X) == model.predict(X)
    assert [type(label) for label in loaded.classes_.tolist()] == [type(label) for label in model.classes_.tolist()]


def test_a_label_that_json_cannot_hold(data, tmp_path):
    model = small(max_passes=1).fit(data[0][:2], [[("a", 1)], [("b", 2)]])
    with pytest.raises(OptionError, match=r"The label \('a', 1\) is of type tuple; a model file holds labels"):
        model.save(tmp_path / "a.mm")
    assert not list(tmp_path.iterdir())


def test_feature_names(data, tmp_path):
    X = pd.DataFrame(data[0], columns=list("wxyz"))
    loaded = round_trip(small().fit(X, data[1]), tmp_path / "a.mm")
    assert loaded.feature_names_in_.tolist() == list("wxyz")
    loaded.predict(X)


@pytest.mark.parametrize("edge_weights", ["full", "potts"])
def test_graph(graphs, tmp_path, edge_weights):
    model = mm.GraphSVM(C=10.0, tol=1e-2, edge_weights=edge_weights).fit(*graphs)
    loaded = round_trip(model, tmp_path / "a.mm")
    assert type(loaded) is mm.GraphSVM
    one, two = model.predict(graphs[0], return_bound=True), loaded.predict(graphs[0], return_bound=True)
    assert [row.tobytes() for row in one[0]] == [row.tobytes() for row in two[0]]
    assert one[1].tobytes() == two[1].tobytes()
    np.testing.assert_array_equal(model.edge_coef_, loaded.edge_coef_)
    same_result(model.result_, loaded.result_)


@pytest.mark.parametrize("kind", [mm.BinarySVM, mm.MultiClassSVM])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"fit_intercept": False},
        {"class_weight": "balanced", "loss": "zero-one"},
        {"loss": [[0, 2], [1, 0]], "class_weight": {3: 2.0, np.int64(4): 0.5}},
    ],
)
def test_classifiers(data, tmp_path, kind, options):
    X, Y = data
    y = 3 + Y[:, 0]
    model = kind(C=10.0, tol=1e-2, **options).fit(X, y)
    loaded = round_trip(model, tmp_path / "a.mm")
    assert type(loaded) is kind
    assert model.predict(X).tobytes() == loaded.predict(X).tobytes()
    assert model.decision_function(X).tobytes() == loaded.decision_function(X).tobytes()
    for name in ("coef_", "intercept_", "classes_"):
        np.testing.assert_array_equal(getattr(model, name), getattr(loaded, name))
    assert loaded.class_weight == model.class_weight
    np.testing.assert_array_equal(loaded.loss, model.loss)
    same_result(model.result_, loaded.result_)
    # A loaded estimator trains as the saved one does.
    np.testing.assert_array_equal(loaded.fit(X, y).result_.weights, model.result_.weights)
    model.save(tmp_path / "a.mm")
    mm.load(tmp_path / "a.mm").save(tmp_path / "b.mm")
    assert (tmp_path / "a.mm").read_bytes() == (tmp_path / "b.mm").read_bytes()


@pytest.fixture(scope="module")
def sequences():
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(length, 2)) for length in rng.integers(1, 6, 10)]
    return X, [np.where(x[:, 0] > 0, "A", "B") for x in X]


@pytest.mark.parametrize(
    "options", [{}, {"boundary": False}, {"fit_intercept": False}, {"forbidden": [("C", "A"), ("C", "C")]}]
)
def test_chain(sequences, tmp_path, options):
    X, y = sequences
    y = [*y[:-1], np.array([*y[-1][:-1], "C"])]
    model = mm.ChainSVM(C=10.0, tol=1e-2, max_passes=50, class_weight={"B": 2.0}, **options).fit(X, y)
    loaded = round_trip(model, tmp_path / "a.mm")
    assert type(loaded) is mm.ChainSVM
    one, two = model.predict(X, return_bound=True), loaded.predict(X, return_bound=True)
    assert [row.tobytes() for row in one[0]] == [row.tobytes() for row in two[0]]
    assert one[1].tobytes() == two[1].tobytes()
    for name in ("coef_", "intercept_", "transition_coef_", "start_coef_", "end_coef_", "forbidden_"):
        assert hasattr(model, name) == hasattr(loaded, name)
        np.testing.assert_array_equal(getattr(model, name, 0), getattr(loaded, name, 0))
    same_result(model.result_, loaded.result_)
    np.testing.assert_array_equal(loaded.fit(X, y).result_.weights, model.result_.weights)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda h, a: h["parameters"].update(forbidden=[["A", "Z"]]), "forbidden names the tag 'Z'"),
        (lambda h, a: h["parameters"].update(forbidden=7), "forbidden=7 is not possible"),
        (lambda h, a: h["parameters"].update(forbidden=[[["A"], "B"]]), "forbidden names the tag"),
        (lambda h, a: h["parameters"].update(boundary="perhaps"), "boundary='perhaps' is not possible"),
        (lambda h, a: h["parameters"].update(boundary=False), "its weights have shape"),
        (lambda h, a: h["parameters"].update(class_weight=[[["A"], 1]]), "lacks what a model needs"),
        (lambda h, a: h["parameters"].update(class_weight=[3]), "lacks what a model needs"),
        (lambda h, a: h["parameters"].update(class_weight=[["Z", 1]]), "class_weight has the class 'Z'"),
        (lambda h, a: h["parameters"].update(class_weight="some"), "class_weight='some' is not possible"),
        (lambda h, a: h.update(labels=["A"]), "at least 2 classes"),
        (lambda h, a: h.update(task="binary"), "the parameter 'bio', which this version does not know"),
        (lambda h, a: a.update(weights=a["weights"][1:]), "its weights have shape"),
    ],
)
def test_a_chain_that_does_not_fit_together(sequences, tmp_path, change, sentence):
    mm.ChainSVM(max_passes=2).fit(*sequences).save(tmp_path / "a.mm")
    rewrite(tmp_path / "a.mm", tmp_path / "b.mm", change)
    with pytest.raises(ModelFileError, match=sentence):
        mm.load(tmp_path / "b.mm")


@pytest.mark.parametrize(
    ("kind", "change", "sentence"),
    [
        (mm.BinarySVM, lambda h, a: (h.update(labels=[0, 1, 2]), a.update(classes=np.arange(3))), "y holds 3 classes"),
        (mm.BinarySVM, lambda h, a: (h.update(labels=[0]), a.update(classes=np.arange(1))), "at least 2 classes"),
        (mm.MultiClassSVM, lambda h, a: h.update(task="binary"), "its weights have shape"),
        (mm.MultiClassSVM, lambda h, a: h["parameters"].update(loss=[[1]]), "loss has shape"),
        (mm.MultiClassSVM, lambda h, a: h["parameters"].update(loss="one-two"), "loss='one-two' is not known"),
    ],
)
def test_a_classifier_that_does_not_fit_together(data, tmp_path, kind, change, sentence):
    kind(max_passes=2).fit(data[0], data[1][:, 0]).save(tmp_path / "a.mm")
    rewrite(tmp_path / "a.mm", tmp_path / "b.mm", change)
    with pytest.raises(ModelFileError, match=sentence):
        mm.load(tmp_path / "b.mm")


def test_parameters_come_back(data, tmp_path):
    parameters = {
        "C": np.float64(3.0),
        "solver": mm.solvers.SoftBCFW(rho=2.0, sweeps=3),
        "inference": mm.inference.Exhaustive(limit=4096),
        "loss": np.array([1.0, 2.0, 3.0]),
        "edges": [(0, 1)],
        "random_state": np.random.default_rng(0),
        "checkpoint": tmp_path / "state.mm",
        "n_jobs": 2,
    }
    loaded = round_trip(small(**parameters).fit(*data), tmp_path / "a.mm")
    assert loaded.C == 3.0
    assert (loaded.solver.rho, loaded.solver.sweeps) == (2.0, 3)
    assert loaded.inference.limit == 4096
    assert loaded.loss.tolist() == [1, 2, 3]
    assert loaded.edges.tolist() == [[0, 1]]
    assert loaded.random_state is None
    assert loaded.checkpoint == str(tmp_path / "state.mm")
    assert loaded.set_params(checkpoint=None).fit(*data).edges_.tolist() == [[0, 1]]


def test_a_solver_of_the_users_own_is_not_saved(data, tmp_path):
    class Mine(mm.solvers.SoftBCFW):
        pass

    with pytest.raises(OptionError, match=r"The solver .* cannot be saved"):
        small(solver=Mine()).fit(*data).save(tmp_path / "a.mm")


def test_not_fitted(tmp_path):
    from sklearn.exceptions import NotFittedError

    with pytest.raises(NotFittedError):
        small().save(tmp_path / "a.mm")


def test_a_path_that_cannot_be_written(data, tmp_path):
    model = small().fit(*data)
    with pytest.raises(OptionError, match="does not exist"):
        model.save(tmp_path / "no" / "a.mm")


# ------------------------------------------------------------------------------------------------- bad files


@pytest.fixture(scope="module")
def saved(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "good.mm"
    small().fit(*data).save(path)
    return path


def test_truncated(saved, tmp_path):
    whole = saved.read_bytes()
    for size in (0, 3, 100, len(whole) // 2, len(whole) - 1):
        (tmp_path / "a.mm").write_bytes(whole[:size])
        with pytest.raises(ModelFileError):
            mm.load(tmp_path / "a.mm")


def test_altered(saved, tmp_path):
    whole = bytearray(saved.read_bytes())
    for place in np.random.default_rng(0).integers(0, len(whole), 60):
        altered = bytearray(whole)
        altered[place] ^= 0x41
        (tmp_path / "a.mm").write_bytes(altered)
        try:
            loaded = mm.load(tmp_path / "a.mm")
        except ModelFileError:
            continue
        # A date in the zip says nothing about the model.
        np.testing.assert_array_equal(loaded.result_.weights, mm.load(saved).result_.weights)


def test_oversized(saved, tmp_path):
    with zipfile.ZipFile(saved) as archive, zipfile.ZipFile(tmp_path / "a.mm", "w") as other:
        header = json.loads(archive.read("header.json"))
        header["arrays"]["weights"] |= {"shape": [10**12], "nbytes": 8 * 10**12}
        other.writestr("header.json", json.dumps(header))
        for name in archive.namelist()[1:]:
            other.writestr(name, archive.read(name))
    with pytest.raises(ModelFileError):
        mm.load(tmp_path / "a.mm")


def test_foreign(tmp_path):
    (tmp_path / "a.mm").write_bytes(b"not a zip at all")
    with pytest.raises(ModelFileError, match="is no model file"):
        mm.load(tmp_path / "a.mm")
    with pytest.raises(ModelFileError, match="does not exist"):
        mm.load(tmp_path / "b.mm")
    # A file of this format that is no estimator, such as a checkpoint.
    write_model(tmp_path / "a.mm", {"checkpoint": "soft-bcfw"}, {"mu": np.zeros(3)})
    with pytest.raises(ModelFileError, match="lacks what a model needs"):
        mm.load(tmp_path / "a.mm")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            lambda h, a: h.update(task="chess"),
            "its task is 'chess', and this version knows binary, multi-class, multi-label, chain, graph",
        ),
        (lambda h, a: h.update(task=["graph"]), "its task is"),
        (lambda h, a: h["parameters"].update(magic=1), "the parameter 'magic', which this version does not know"),
        (lambda h, a: h["parameters"].update(C=-1), "C=-1 is not possible"),
        (lambda h, a: h["parameters"].update(solver="simplex"), "solver='simplex' is not known"),
        (lambda h, a: h["parameters"].update(solver={"name": "os", "options": {}}), "it names the solver 'os'"),
        (
            lambda h, a: h["parameters"].update(solver={"name": "soft-bcfw", "options": {"x": 1}}),
            "lacks what a model needs",
        ),
        (lambda h, a: h.update(parameters=3), "lacks what a model needs"),
        (lambda h, a: h.update(labels=[]), "its labels are no list"),
        (lambda h, a: h.update(labels=[0, 1]), "its labels are given twice"),
        (lambda h, a: h.update(labels=[[0], 1, 2]), "its labels are no list"),
        (lambda h, a: h.update(n_features=3), "its weights have shape"),
        (lambda h, a: h.update(n_features=-4), "n_features is -4"),
        (lambda h, a: h.update(feature_names=["a"]), "1 feature names for 4 features"),
        (lambda h, a: h["certificate"].update(certificate="gold"), "its certificate is 'gold'"),
        (lambda h, a: h["certificate"].update(status="DONE"), "lacks what a model needs"),
        (lambda h, a: h.pop("certificate"), "lacks what a model needs"),
        (lambda h, a: a.update(weights=a["weights"][:-1]), "its weights have shape"),
        (lambda h, a: a.update(weights=a["weights"] * np.nan), "not all finite"),
        (lambda h, a: a.update(weights=a["weights"].astype(np.float32)), "double precision"),
        (lambda h, a: a.update(edges=a["edges"] + 1), "there are labels 0 to 2 only"),
        (lambda h, a: a.pop("edges"), "lacks what a model needs"),
    ],
)
def test_a_file_that_does_not_fit_together(saved, tmp_path, change, sentence):
    rewrite(saved, tmp_path / "a.mm", change)
    with pytest.raises(ModelFileError, match=sentence):
        mm.load(tmp_path / "a.mm")

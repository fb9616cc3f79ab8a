"""Estimators of Dask collections: the optimum of the plain ones, whose models they give back."""

import pickle

import dask
import dask.array as da
import dask.bag as db
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from maxmargin import BinarySVM, ChainSVM, MultiClassSVM, MultiLabelSVM, load, make_synth2
from maxmargin.dask import DaskBinarySVM, DaskChainSVM, DaskMultiClassSVM, DaskMultiLabelSVM, OnCluster
from maxmargin.errors import DataError, OptionError
from maxmargin.features import TextFeatures
from maxmargin.packed import pack, read_packed

PLAIN = {"solver": "one-slack", "scale": False}


def rows(n=120, n_classes=3):
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, 6))
    y = np.argmax(X[:, :n_classes] + 0.5 * rng.normal(size=(n, n_classes)), axis=1)
    # The last class is in the last block alone.
    return X, np.array(["a", "b", "c"])[np.sort(y)]


def sentences(n=40):
    rng = np.random.default_rng(n)
    X = [rng.normal(size=(k, 4)) for k in rng.integers(1, 7, n)]
    return X, [[("O", "B-x", "I-x")[k] for k in np.argmax(x[:, :3], axis=1)] for x in X]


def agree(there, here):
    """Whether two runs enclose one optimum."""
    assert there.result_.status == here.result_.status == "CONVERGED"
    assert max(there.result_.dual, here.result_.dual) <= min(there.result_.primal, here.result_.primal) + 1e-12


@pytest.mark.parametrize("weights", [None, "balanced", {"a": 2.0, "b": 1.0, "c": 0.5}])
def test_classes(client, tmp_path, weights):
    X, y = rows()
    given = np.random.default_rng(0).random(len(y))
    # Other chunks of y than of X, and columns in two chunks.
    there = DaskMultiClassSVM(C=10.0, client=client, class_weight=weights)
    there.fit(da.from_array(X, chunks=(50, 3)), da.from_array(y, chunks=30), da.from_array(given, chunks=50))
    here = MultiClassSVM(C=10.0, class_weight=weights, **PLAIN).fit(X, y, given)
    agree(there, here)
    local = there.to_local()
    assert isinstance(local, MultiClassSVM)
    assert local.class_weight == weights
    np.testing.assert_allclose(local.coef_, here.coef_, atol=1e-9)
    assert there.predict(da.from_array(X, chunks=(50, 6))).compute().tolist() == local.predict(X).tolist()
    local.save(tmp_path / "model.mm")
    assert np.array_equal(load(tmp_path / "model.mm").predict(X), local.predict(X))


def test_copies_share_the_client_and_files_have_none(client):
    X, y = rows(30)
    model = DaskMultiClassSVM(C=1.0, tol=0.1, client=client)
    assert clone(model).client is client
    solver = OnCluster(client)
    assert clone(MultiClassSVM(solver=solver)).solver is solver
    model.fit(da.from_array(X, chunks=(10, 6)), da.from_array(y, chunks=10))
    again = pickle.loads(pickle.dumps(model))
    assert again.client is None
    assert np.array_equal(again.predict(X), model.predict(X))


def test_two_classes_in_sparse_blocks_and_the_log_objective(client):
    X, y = rows(80, 2)
    X[np.abs(X) < 0.5] = 0.0
    blocks = [slice(0, 30), slice(30, 80)]
    lazy = [dask.delayed(sp.csr_array(X[one])) for one in blocks], [dask.delayed(y[one]) for one in blocks]
    for objective in ("margin", "log"):
        there = DaskBinarySVM(C=5.0, client=client, objective=objective).fit(*lazy)
        solver = "one-slack" if objective == "margin" else "bundle"
        agree(there, BinarySVM(C=5.0, scale=False, solver=solver, objective=objective).fit(X, y))


@pytest.mark.parametrize("edges", ["full", "tree", [[0, 1], [2, 3]]])
def test_labels(client, edges):
    X, Y = make_synth2(60)
    there = DaskMultiLabelSVM(C=10.0, client=client, edges=edges, tol=0.01)
    there.fit(da.from_array(X, chunks=(25, -1)), da.from_array(Y, chunks=(25, -1)))
    here = MultiLabelSVM(C=10.0, edges=edges, tol=0.01, **PLAIN).fit(X, Y)
    agree(there, here)
    assert np.array_equal(there.to_local().edges_, here.edges_)
    assert there.predict(da.from_array(X, chunks=(25, -1))).compute().shape == Y.shape


def test_labels_in_lists(client):
    X, Y = make_synth2(40)
    lists = [[f"label {k}" for k in np.flatnonzero(row)] for row in Y]
    inputs = [dask.delayed(X[:15]), dask.delayed(X[15:])]
    there = DaskMultiLabelSVM(C=10.0, client=client, tol=0.01).fit(
        inputs, [dask.delayed(lists[:15]), dask.delayed(lists[15:])]
    )
    here = MultiLabelSVM(C=10.0, tol=0.01, **PLAIN).fit(X, lists)
    agree(there, here)
    assert there.to_local().predict(X[:3]) == [sorted(one) for one in there.predict(X[:3])]


@pytest.mark.parametrize("options", [{}, {"bio": False, "order": 0}, {"class_weight": "balanced", "loss": "count"}])
def test_chains_in_bags_with_an_empty_partition(client, options):
    X, y = sentences()
    pairs = db.from_sequence(list(zip(X, y, strict=True)), npartitions=4)
    none = db.from_sequence([], npartitions=1)
    both = db.concat([pairs, none])
    there = DaskChainSVM(C=10.0, client=client, **options).fit(both.pluck(0), both.pluck(1))
    here = ChainSVM(C=10.0, **PLAIN, **options).fit(X, y)
    agree(there, here)
    assert there.to_local().score(X, y) == pytest.approx(here.score(X, y), abs=0.02)


def test_words_are_hashed(client):
    _, y = sentences()
    words = [[f"word{k % 3}" for k in range(len(tags))] for tags in y]
    bags = db.from_sequence(words, npartitions=3), db.from_sequence(y, npartitions=3)
    there = DaskChainSVM(C=10.0, client=client, features=TextFeatures(n_hash=512)).fit(*bags)
    agree(there, ChainSVM(C=10.0, features=TextFeatures(n_hash=512), **PLAIN).fit(words, y))
    with pytest.raises(
        OptionError, match=r"Shard 0: Words and features by name need columns that all shards share; give"
    ):
        DaskChainSVM(client=client).fit(*bags)


def test_data_frames(client):
    pytest.importorskip("dask.dataframe", reason="dask.dataframe needs pandas and pyarrow")
    import dask.dataframe as dd

    X, y = rows()
    frame = pd.DataFrame(X, columns=list("uvwxyz"))
    whole = dd.from_pandas(frame, npartitions=3)
    target = dd.from_pandas(pd.Series(y, index=frame.index), npartitions=3)
    there = DaskMultiClassSVM(C=10.0, client=client).fit(whole, target)
    agree(there, MultiClassSVM(C=10.0, **PLAIN).fit(frame, y))
    assert there.to_local().feature_names_in_.tolist() == list("uvwxyz")
    assert np.asarray(there.predict(whole).compute()).tolist() == there.to_local().predict(frame).tolist()
    # Labels by the columns of a data frame, in their order, one of which no example has.
    sets = pd.DataFrame({"z": y == "a", "k": y == "b", "a": y == "none"}).astype(int)
    there = DaskMultiLabelSVM(C=1.0, client=client, tol=0.01).fit(whole, dd.from_pandas(sets, npartitions=3))
    here = MultiLabelSVM(C=1.0, tol=0.01, **PLAIN).fit(frame, sets)
    agree(there, here)
    assert there.to_local().classes_.tolist() == here.classes_.tolist() == ["z", "k", "a"]
    np.testing.assert_allclose(there.to_local().coef_, here.coef_, atol=0.05)


def test_bad_input_is_answered_with_a_sentence(client):
    X, y = rows()
    lazy = da.from_array(X, chunks=(60, 6)), da.from_array(y, chunks=60)

    def refuses(match, X=lazy[0], y=lazy[1], kind=DaskMultiClassSVM, error=DataError, **options):
        with pytest.raises(error, match=match):
            kind(client=client, **options).fit(X, y)

    refuses("X is of type ndarray; expected a Dask array, data frame or bag.*OnCluster", X=X)
    refuses("The target y is None", y=None)
    refuses("X has 120 rows, but y or sample_weight has 80", y=lazy[1][:80])
    refuses("X is in 2 blocks, but y in 1;", y=[dask.delayed(y)])
    refuses("C='auto' is not possible here; it must be a number", error=OptionError, C="auto")
    refuses("tol=-1", error=OptionError, tol=-1)
    refuses("solver='bcfw' cannot train on a cluster", error=OptionError, solver="bcfw")
    refuses("loss='f1' is of all predictions together", kind=DaskBinarySVM, error=OptionError, loss="f1")
    refuses("y holds 3 classes", kind=DaskBinarySVM)
    refuses(
        r"Shard 1: X\[3, 2\] is nan",
        X=da.from_array(np.where(np.arange(720).reshape(120, 6) == 380, np.nan, X), chunks=(60, 6)),
    )
    other = [dask.delayed(X[:60]), dask.delayed(X[60:, :4])]
    refuses("Block 1 has n_features=4, and block 0 has 6", X=other, y=[dask.delayed(y[:60]), dask.delayed(y[60:])])
    refuses("There are no examples: the data is empty", X=lazy[0][:0], y=lazy[1][:0])
    X2, Y2 = make_synth2(20)
    labels = da.from_array(X2, chunks=(10, -1)), da.from_array(Y2, chunks=(10, -1))
    refuses(
        "class_weight='balanced' is not possible here", *labels, DaskMultiLabelSVM, OptionError, class_weight="balanced"
    )
    refuses("Block 0: Y", labels[0], da.from_array(Y2 + 5, chunks=(10, -1)), DaskMultiLabelSVM)
    unknown = da.from_array(np.where(Y2 == 1, np.nan, Y2), chunks=(10, -1))
    refuses(r"Block 0: Y\[\d+, \d+\] is nan; expected 0 or 1", labels[0], unknown, DaskMultiLabelSVM)
    rows_of = db.from_sequence([np.eye(2)] * 2, npartitions=1)
    refuses(
        "Block 0: y has a tag that is None or NaN",
        rows_of,
        db.from_sequence([["a", None]] * 2, npartitions=1),
        DaskChainSVM,
    )
    with pytest.raises(OptionError, match="A cluster does not keep signs of weights"):
        MultiLabelSVM(C=1.0, signs="attractive", solver=OnCluster(client)).fit(X2, Y2)
    bag = db.from_sequence(["x"], npartitions=1)
    refuses("Block 0: y holds single tags", bag, bag, DaskChainSVM)


@pytest.mark.parametrize("columns", [6, 40_000])
def test_packed_classes(client, tmp_path, columns):
    X, y = rows()
    if columns > 6:
        # Many columns are stored in another order.
        X = sp.random(120, columns, 0.001, format="csr", random_state=0)
    pack(tmp_path / "f", X, y)
    data = read_packed(tmp_path / "f")
    there = DaskMultiClassSVM(C=10.0, client=client).fit(data.X, data.y)
    agree(there, MultiClassSVM(C=10.0, **PLAIN).fit(X, y))
    assert there.result_.options["n_shards"] == 4
    assert (there.to_local().predict(X) == there.to_local().predict(data.X)).all()
    two = (y == "a").astype(int)
    pack(tmp_path / "two", X, two)
    data = read_packed(tmp_path / "two")
    agree(DaskBinarySVM(C=10.0, client=client).fit(data.X, data.y), BinarySVM(C=10.0, **PLAIN).fit(X, two))


def test_packed_sequences_and_sets_of_labels(client, tmp_path):
    X, y = sentences()
    pack(tmp_path / "f", X, y)
    data = read_packed(tmp_path / "f")
    there = DaskChainSVM(C=10.0, client=client).fit(data.X, data.y)
    agree(there, ChainSVM(C=10.0, **PLAIN).fit(X, y))
    assert there.to_local().score(data.X, data.y) == there.to_local().score(X, y)
    X = np.random.default_rng(0).normal(size=(80, 5))
    Y = (X[:, :3] > 0).astype(int)
    pack(tmp_path / "l", X, Y)
    data = read_packed(tmp_path / "l")
    agree(
        DaskMultiLabelSVM(C=10.0, client=client, edges="tree").fit(data.X, data.y),
        MultiLabelSVM(C=10.0, edges="tree", **PLAIN).fit(X, Y),
    )
    with pytest.raises(DataError, match="packed labels"):
        DaskMultiLabelSVM(client=client).fit(data.X, Y)


def test_packed_data_trained_by_the_plain_estimator(client, tmp_path):
    X, y = rows()
    pack(tmp_path / "f", X, y)
    data = read_packed(tmp_path / "f")
    there = MultiClassSVM(C=10.0, solver=OnCluster(client)).fit(data.X, data.y)
    here = MultiClassSVM(C=10.0, solver=OnCluster(client)).fit(X, y)
    assert np.array_equal(there.result_.weights, here.result_.weights)


def test_damaged_messages_are_sentences():
    from maxmargin.solvers.oracles.sharded import Packed, Part, add_all

    good = Part.of(np.arange(4.0), 1.0, 2.0)
    for bad in (
        Packed(4, np.array([0, 9]), np.ones(2)), Packed(5, None, np.ones(4)), Packed(4, None, np.full(4, np.nan)),
        Packed(4, np.array([-1]), np.ones(1)), Packed(4, None, None), Packed("4", None, np.ones(4)), None,
    ):  # fmt: skip
        with pytest.raises(DataError, match="answer of a shard"):
            add_all([good, Part(bad, 1.0, 2.0, 0)], 4)
    with pytest.raises(DataError, match="no plane"):
        add_all([good, "text"], 4)
    with pytest.raises(DataError, match="no finite numbers"):
        add_all([Part(good.psi, float("inf"), 2.0, 0)], 4)
    assert np.array_equal(add_all([good, good], 4).psi.dense(), 2 * np.arange(4.0))

"""Training on a cluster: the same optimum, the same bits whoever answers, bytes that do not depend on n, and sentences."""

import json
import pickle

import dask
import numpy as np
import pytest

import maxmargin.dask.cluster as cluster_module
from maxmargin import MultiClassSVM, load
from maxmargin.cli.main import run
from maxmargin.dask import ClusterError, OnCluster, connected, train
from maxmargin.errors import DataError, OptionError
from maxmargin.packed import pack, read_packed
from maxmargin.problems import chain_problem, multi_class_problem
from maxmargin.solvers.cutting_planes.bundle import BundleMethod
from maxmargin.solvers.cutting_planes.one_slack import OneSlack
from maxmargin.solvers.frank_wolfe.bcfw import BCFW
from maxmargin.solvers.oracles.sharded import LocalShards, ShardedProblem, shards_of


def chains(n=60, seed=0):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 7, n)
    sequences = [rng.normal(size=(k, 5)) for k in lengths]
    return chain_problem(sequences, [np.argmax(x[:, :3] + rng.normal(size=(len(x), 3)), axis=1) for x in sequences], 3)


@pytest.mark.parametrize("solver", [OneSlack(), BundleMethod(objective="log")])
def test_the_bits_depend_on_the_shards_alone(clients, solver, monkeypatch):
    problem = chains()
    # So many that their planes are added up in two steps.
    shards = shards_of(problem, 18)
    local = solver.solve(ShardedProblem(LocalShards(shards)), C=1.0, tol=0.01)
    for n_workers, client in clients.items():
        # Planes are added up by the client, or by workers.
        monkeypatch.setattr(cluster_module, "_SMALL", (1 << 20) * (n_workers == 1))
        found = train(client, shards, solver=solver, C=1.0, tol=0.01)
        assert np.array_equal(found.weights, local.weights)
        assert (found.primal, found.dual, found.n_passes) == (local.primal, local.dual, local.n_passes)
    whole = solver.solve(problem, C=1.0, tol=0.01)
    assert found.status == whole.status == "CONVERGED"
    assert max(found.dual, whole.dual) <= min(found.primal, whole.primal) + 1e-12


def test_bytes_of_a_round_do_not_depend_on_n(client):
    sizes = []
    for n in (40, 400, 4000):
        rng = np.random.default_rng(n)
        problem = multi_class_problem(rng.normal(size=(n, 50)), rng.integers(0, 4, n), 4)
        found = train(client, shards_of(problem, 4), C=1.0, tol=0.01)
        said = found.options
        # At first the weights are 0, and there is nothing to send.
        down = said["bytes_down"] / 4 / (said["n_rounds"] - 1)
        sizes.append((down, said["bytes_up"] / said["n_rounds"]))
    weights = 8 * 50 * 4
    # A vector down and a plane up, for each of 4 shards, and the sum of their planes.
    assert sizes == [(weights, 5 * (weights + 16))] * 3


def test_shards_come_from_recipes(client):
    def recipe(seed):
        return lambda: chains(20, seed)

    lazy = [dask.delayed(chains)(20, seed) for seed in (1, 2)]
    futures = client.map(chains, [20, 20], [1, 2], pure=False)
    found = [
        train(client, shards, C=1.0, tol=0.01).weights
        for shards in ([chains(20, 1), chains(20, 2)], lazy, futures, [recipe(1), recipe(2)])
    ]
    for one in found[1:]:
        assert np.array_equal(one, found[0])


def test_an_estimator_trains_on_a_cluster_and_chooses_C_here(client):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 4)), rng.integers(0, 3, 60)
    options = {"C": [0.1, 1.0], "tol": 0.01}
    there = MultiClassSVM(solver=OnCluster(client, n_shards=3), **options).fit(X, y)
    here = MultiClassSVM(solver="one-slack", **options).fit(X, y)
    assert there.C_ == here.C_
    assert max(there.result_.dual, here.result_.dual) <= min(there.result_.primal, here.result_.primal) + 1e-12
    assert there.result_.options["n_shards"] == 3


def test_a_limit_of_time_ends_the_wait(client):
    found = train(client, shards_of(chains(), 3), C=1e6, tol=0.0, max_seconds=0.7, max_passes=10**6)
    assert found.status in ("TIME_LIMIT", "STALLED", "CONVERGED")
    assert np.isfinite(found.gap)


def test_a_cluster_without_workers_is_given_up(client, monkeypatch):
    import distributed

    monkeypatch.setattr(cluster_module, "PATIENCE", 0.2)
    with (
        distributed.LocalCluster(n_workers=0, processes=False, dashboard_address=":0") as empty,
        distributed.Client(empty, set_as_default=False) as nobody,
        pytest.raises(ClusterError, match=r"The cluster has had no workers for 0\.2 s"),
    ):
        train(nobody, [chains(5)])


def test_a_scheduler_that_dies_leaves_a_checkpoint(client, tmp_path):
    import distributed

    shards, path = shards_of(chains(), 3), tmp_path / "run.state"
    whole = train(client, shards, C=10.0, tol=1e-3)
    assert whole.n_passes > 6

    class Closing:
        """Closes the cluster after three rounds."""

        def __init__(self, cluster):
            self.cluster = cluster

        def start(self, *said):
            pass

        def update(self, report):
            if report.n_passes == 3:
                self.cluster.close()
            return True

        def stop(self, said):
            pass

    cluster = distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=":0")
    with (
        distributed.Client(cluster, set_as_default=False) as lost,
        pytest.warns(
            RuntimeWarning, match=r"Training stopped, and what was learned before is kept\. The cluster does not"
        ),
    ):
        found = train(lost, shards, C=10.0, tol=1e-3, checkpoint=path, monitor=Closing(cluster))
    assert found.status == "INTERRUPTED"
    assert found.n_passes == 3
    again = train(client, shards, C=10.0, tol=1e-3, checkpoint=path)
    assert np.array_equal(again.weights, whole.weights)
    assert again.n_passes == whole.n_passes


def test_bad_input_is_answered_with_a_sentence(client):
    with pytest.raises(OptionError, match="solver='bcfw' cannot train on a cluster: it looks at one example after the"):
        train(client, [chains(5)], solver="bcfw")
    with pytest.raises(OptionError, match="solver='bcfw' cannot train on a cluster"):
        train(client, [chains(5)], solver=BCFW())
    with pytest.raises(DataError, match="There are no shards: the data is empty"):
        train(client, [])
    with pytest.raises(DataError, match="Shard 1: it is a str; expected a problem, or what makes one"):
        train(client, [chains(5), "folder"])
    with pytest.raises(DataError, match="all shards must have the same features and labels"):
        train(client, [chains(5), multi_class_problem(np.eye(2), [0, 1], 2)])
    with pytest.raises(OptionError, match=r"client=5 is not possible; it must be a distributed\.Client"):
        train(5, [chains(5)])
    with pytest.raises(OptionError, match="n_shards=0 is not possible"):
        OnCluster(client, n_shards=0)
    with pytest.raises(OptionError, match="cannot be cut into shards"):
        OnCluster(client).solve(object())
    for address in ("local:0", "local:two", "local:"):
        with pytest.raises(OptionError, match="local:N is for N processes"), connected(address):
            pass
    with pytest.raises(OptionError, match="No Dask scheduler answers at 'nowhere'"), connected("nowhere"):
        pass


def test_the_command_line_trains_on_processes(tmp_path, capsys):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(80, 3)), rng.integers(0, 3, 80)
    np.savez(tmp_path / "rows.npz", X=X, y=y)
    words = ["train", str(tmp_path / "rows.npz"), "-C", "10", "--quiet", "--dask", "local:1"]
    assert run([*words, "--solver", "bcfw"]) == 2
    assert "cannot train on a cluster" in capsys.readouterr().err
    assert run([*words, "-o", str(tmp_path / "rows.mm"), "--json"]) == 0
    there = json.loads(capsys.readouterr().out)
    here = MultiClassSVM(C=10.0, solver="one-slack").fit(X, y).result_
    assert max(there["dual"], here.dual) <= min(there["primal"], here.primal) + 1e-12
    assert load(tmp_path / "rows.mm").solver.name == "one-slack"


def test_the_command_line_trains_a_packed_folder_on_processes(tmp_path, capsys):
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(3000, 4)), rng.integers(0, 3, 3000)
    pack(tmp_path / "rows", X, y)
    words = ["train", str(tmp_path / "rows"), "-C", "10", "--quiet", "--json", "--solver", "one-slack"]
    assert run([*words, "--dask", "local:2"]) == 0
    there = json.loads(capsys.readouterr().out)
    assert run(words) == 0
    here = json.loads(capsys.readouterr().out)
    assert max(there["dual"], here["dual"]) <= min(there["primal"], here["primal"]) + 1e-12
    # Shards are sent as ranges of the folder, not as rows.
    data = read_packed(tmp_path / "rows")
    problem = MultiClassSVM(C=10.0).prepare(data.X, data.y, None, np.arange(3)).problem
    sent = [len(pickle.dumps(one)) for one in shards_of(problem, 4)]
    wide = rng.normal(size=(3000, 400))
    pack(tmp_path / "wide", wide, y)
    data = read_packed(tmp_path / "wide")
    problem = MultiClassSVM(C=10.0).prepare(data.X, data.y, None, np.arange(3)).problem
    assert [len(pickle.dumps(one)) for one in shards_of(problem, 4)] == pytest.approx(sent, rel=0.1)

"""The extra `dask`: its tests are skipped, with a reason, where distributed is not installed.

The folder is not called `dask`, for the reason that tests/torch_extra gives.
"""

from __future__ import annotations

import importlib
import importlib.util

import numpy as np
import pytest

collect_ignore_glob = []
if importlib.util.find_spec("distributed") is None:
    collect_ignore_glob = ["test_cluster.py", "test_estimators.py", "test_losses_of_workers.py"]


@pytest.fixture(scope="session")
def clients():
    """A client of one worker and a client of three, both in threads of this process."""
    import distributed

    from maxmargin import MultiClassSVM

    # Imports and compilation here, before several threads of the workers need them at once: a whole run of the tests has hung in
    # the first test that asks for this.
    importlib.import_module("maxmargin.parallel.team")
    importlib.import_module("maxmargin.solvers.oracles.sharded")
    X = np.random.default_rng(0).normal(size=(12, 3))
    MultiClassSVM(C=1.0, solver="one-slack", max_passes=2).fit(X, np.arange(12) % 3)

    made = {}
    for n in (1, 3):
        cluster = distributed.LocalCluster(n_workers=n, threads_per_worker=1, processes=False, dashboard_address=":0")
        made[n] = cluster, distributed.Client(cluster, set_as_default=False)
    yield {n: client for n, (_, client) in made.items()}
    for cluster, client in made.values():
        client.close()
        cluster.close()


@pytest.fixture
def client(clients):
    return clients[3]

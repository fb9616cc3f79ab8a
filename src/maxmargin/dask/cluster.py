"""Shards on a Dask cluster: cutting planes whose joint oracle is asked of workers (solvers/oracles/sharded.py).

Tasks, by the names that the dashboard shows
--------------------------------------------
``read-shard``, ``look-at-shard`` and ``build-shard`` (estimators.py) make the problem of a shard from its recipe, or ``send-shard``
has it from the client; ``open-shard`` makes its oracle, which stays in the worker's memory; ``shard-facts`` tells what there is to
know of it. In every round ``weights`` is the vector, which the client sends once and workers pass on; ``find-plane`` is one shard's
answer, and ``add-planes`` adds up answers of neighbouring shards.

What is lost with a worker
--------------------------
Nothing. Every task is known to the scheduler, the vector of weights and the recipes of the shards included, so that what was in the
memory of a worker is made again on another one. Planes are in the client, which has the working set and writes the checkpoint. A
scheduler that is lost ends the run: what was certified is returned, and a new cluster goes on from the checkpoint.
"""

from __future__ import annotations

import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import dask
import distributed
from distributed.client import ClosedClientError
from distributed.comm.core import CommClosedError

from maxmargin.errors import DataError, MaxMarginError, OptionError
from maxmargin.parallel.threads import Stopped, n_threads, pause
from maxmargin.problems.factor_graphs import FactorGraphs
from maxmargin.problems.python_problem import OracleError
from maxmargin.solvers import SOLVERS
from maxmargin.solvers.core.result import Result
from maxmargin.solvers.oracles.sharded import (
    FAN_IN,
    Packed,
    Part,
    Question,
    Shard,
    ShardedProblem,
    ShardFacts,
    ShardOracle,
    add_all,
    add_parts,
    shards_of,
)

#: The solvers that ask for one plane of all examples.
CLUSTER_SOLVERS = ("one-slack", "bundle")
#: Seconds between two looks at the limits of the run while the cluster works, and without any worker before the run gives up.
_LOOK, PATIENCE = 0.5, 300.0
#: Bytes of all vectors of a round up to which the client sends and adds them up itself: fewer tasks wait for each other.
_SMALL = 1 << 20
#: Shards of data that is in the client: as many whatever the cluster is, as long as it is small.
_SHARDS = 16
#: What Dask raises where the scheduler is gone.
_LOST = (distributed.CancelledError, CommClosedError, ClosedClientError, OSError)


class ClusterError(OracleError):
    """The cluster does not answer any more."""


def client_of(client: Any = None) -> Any:
    """The client that is given, or the one that is there already."""
    if client is None:
        try:
            return distributed.get_client()
        except ValueError:
            raise OptionError(
                "There is no Dask client; make one first, with distributed.Client(address) or distributed.Client(), or give "
                "client=."
            ) from None
    if not isinstance(client, distributed.Client):
        raise OptionError(f"client={client!r} is not possible; it must be a distributed.Client, or None.")
    if client.asynchronous:
        raise OptionError("The client is asynchronous; expected one that waits for its answers (asynchronous=False).")
    return client


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """A client of the scheduler at an address, or, with ``local:N``, of a cluster of N processes on this machine."""
    kind, _, number = address.partition(":")
    if kind == "local":
        if not number.isdecimal() or not 1 <= int(number) <= 4096:
            raise OptionError(
                f"{address!r} is not possible; local:N is for N processes, a whole number from 1 to 4096."
            )
        with (
            distributed.LocalCluster(n_workers=int(number), threads_per_worker=1, dashboard_address=":0") as cluster,
            distributed.Client(cluster) as client,
        ):
            yield client
        return
    try:
        client = distributed.Client(address, timeout=10)
    except (OSError, ValueError, TimeoutError) as error:
        raise OptionError(
            f"No Dask scheduler answers at {address!r} ({error}); expected an address such as tcp://10.0.0.1:8786, or local:N "
            "for N processes on this machine."
        ) from None
    with client:
        yield client


class ClusterShards:
    """Shards on the workers of a cluster."""

    def __init__(self, client: Any, shards: Sequence[Any], threads: int = 1) -> None:
        self.client, self.shards, self.threads = client, list(shards), threads
        self.oracles: list[Any] = []
        self.token = ""
        self.n_rounds = self.bytes_down = self.bytes_up = 0
        self.seconds = 0.0

    def open(self, question: Question) -> list[ShardFacts]:
        """Make the oracles where the shards are."""
        self.token = uuid.uuid4().hex
        numbers = range(len(self.shards))
        self.oracles = self.client.map(
            _open,
            self.shards,
            numbers,
            question=question,
            threads=self.threads,
            key=self._keys("open-shard"),
            pure=False,
        )
        facts = self.client.map(_facts, self.oracles, key=self._keys("shard-facts"), pure=False)
        return list(self.gather(facts))

    def sum_of_parts(self, weights: Packed, in_earnest: bool) -> Part:
        """The answers of all shards, added up on the workers in the order of the shards."""
        begun = time.monotonic()
        self.n_rounds += 1
        with answering():
            total = add_all(self.gather(self._submit(weights, in_earnest)), weights.size)
        self.bytes_down += weights.nbytes * len(self.shards)
        self.bytes_up += total.sent
        self.seconds += time.monotonic() - begun
        return total

    def _submit(self, weights: Packed, in_earnest: bool) -> list[Any]:
        """Futures of the answers; where these are large, they are added up on the workers, and one is left."""
        small = 8 * weights.size * len(self.shards) <= _SMALL
        u: Any = weights
        if not small:
            # A task of its own, so that it is sent once; scattered, it would be lost with the worker that has it.
            u = self.client.submit(_itself, weights, key=(f"weights-{self.token}", self.n_rounds), pure=False)
        keys = self._keys("find-plane")
        parts = self.client.map(_part, self.oracles, weights=u, in_earnest=in_earnest, key=keys, pure=False)
        level = 0
        while len(parts) > 1 and not small:
            groups = [parts[k : k + FAN_IN] for k in range(0, len(parts), FAN_IN)]
            keys = [(f"add-planes-{self.token}", self.n_rounds, level, k) for k in range(len(groups))]
            parts, level = self.client.map(add_parts, groups, size=weights.size, key=keys, pure=False), level + 1
        return list(parts)

    def release(self) -> None:
        """Let the workers forget the oracles, and the shards that nobody else holds."""
        self.shards, self.oracles = [], []

    def gather(self, futures: Sequence[Any]) -> Any:
        """The results of tasks; a limit of time or Ctrl-C ends the wait."""
        return gather(self.client, futures)

    def _keys(self, name: str) -> list[Any]:
        return [(f"{name}-{self.token}", self.n_rounds, k) for k in range(len(self.shards))]


def gather(client: Any, futures: Sequence[Any]) -> Any:
    """The results of tasks; a limit of time or Ctrl-C ends the wait, and so does a cluster that is gone."""
    last_seen = time.monotonic()
    while True:
        try:
            with answering():
                # There may be several clients.
                with client.as_current():
                    distributed.wait(futures, timeout=_LOOK)
                failed = next((one for one in futures if one.status == "error"), None)
                if failed is not None:
                    # Of several errors, the first in the order of the shards.
                    raise failed.exception()
                return client.gather(list(futures))
        except TimeoutError:
            try:
                pause()
            except Stopped:
                client.cancel(list(futures))
                raise
            with answering(), suppress(TimeoutError):
                if client.nthreads():
                    last_seen = time.monotonic()
            if time.monotonic() - last_seen > PATIENCE:
                raise ClusterError(f"The cluster has had no workers for {PATIENCE:g} s.") from None


@contextmanager
def answering() -> Iterator[None]:
    """Say it in a sentence if the cluster does not answer any more."""
    try:
        yield
    except TimeoutError:
        raise
    except distributed.KilledWorker as error:
        raise ClusterError(
            "A task was lost with its worker several times over; it may take more memory than a worker has: make more and smaller "
            "shards."
        ) from error
    except _LOST as error:
        if isinstance(error, MaxMarginError):
            raise
        raise ClusterError(
            f"The cluster does not answer any more ({type(error).__name__}: {error}). A run with a checkpoint goes on from it on a "
            "new cluster."
        ) from error


@contextmanager
def large_tasks() -> Iterator[None]:
    """Vectors and data of the client are meant to be in tasks: Dask is not to warn of their size."""
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
        yield


def train(
    client: Any,
    shards: Sequence[Any],
    *,
    solver: Any = "one-slack",
    C: float = 1.0,
    inference: Any = "auto",
    n_jobs: int | None = None,
    device: str = "cpu",
    **limits: Any,
) -> Result:
    """Train on shards of the examples, each on some worker of a cluster.

    Parameters
    ----------
    client : distributed.Client or None
        None is the client that is there already.
    shards : list
        Each is a problem (`FactorGraphs`, or any with a max-oracle), a `Shard`, or what gives one: a function without parameters, a
        ``dask.delayed`` or a future. All have the same features and labels. Their order counts, and not where they are: the result
        is the same to the bit on any number of workers.
    solver : "one-slack", "bundle", or one of these with options
    C : float
    inference : "auto", str or engine
        For a solver that is named.
    n_jobs : int, optional
        Threads of a task; workers that have several threads do as many tasks at a time, so that None, one thread, is best.
    device : str
        Where workers answer: "cpu", or "cuda" for workers that have a GPU and PyTorch, for chains and other models without cycles.
    limits : tol, max_passes, max_seconds, monitor, checkpoint, state
        As for `Solver.solve`.

    Returns
    -------
    Result
        ``options`` has ``n_shards``, ``n_rounds``, ``bytes_down`` and ``bytes_up`` (of vectors and planes, summed over shards and
        rounds) and ``round_seconds``, the mean time of a round.
    """
    client = client_of(client)
    made = cluster_solver(solver, inference)
    given = list(shards)
    if not given:
        raise DataError("There are no shards: the data is empty.")
    with large_tasks():
        placed = ClusterShards(client, _placed(client, given), n_threads(n_jobs))
        try:
            result: Result = made.solve(ShardedProblem(placed, device), C=C, **limits)
        finally:
            placed.release()
    result.options |= {
        "n_shards": len(given),
        "n_rounds": placed.n_rounds,
        "bytes_down": placed.bytes_down,
        "bytes_up": placed.bytes_up,
        "round_seconds": placed.seconds / max(placed.n_rounds, 1),
    }
    return result


def cluster_solver(solver: Any, inference: Any = "auto", objective: str = "margin") -> Any:
    """The solver, which must be one that a cluster can run."""
    if isinstance(solver, str):
        if solver == "auto":
            solver = "one-slack" if objective == "margin" else "bundle"
        if solver in CLUSTER_SOLVERS:
            options = {"objective": objective} if solver == "bundle" else {}
            if solver == "one-slack" and objective != "margin":
                raise OptionError(f'The solver "one-slack" is not for objective={objective!r}; use "bundle".')
            return SOLVERS[solver](inference=inference, **options)
    elif getattr(solver, "name", None) in CLUSTER_SOLVERS and hasattr(solver, "solve"):
        if getattr(solver, "device", "cpu") != "cpu":
            raise OptionError(
                f"The device of the solver is {solver.device!r}, but on a cluster the planes are put together on the processor; "
                f"say device={solver.device!r} to the cluster, whose workers find them."
            )
        return solver
    name = getattr(solver, "name", solver)
    raise OptionError(
        f"solver={name!r} cannot train on a cluster: it looks at one example after the other. Use "
        + " or ".join(f'"{one}"' for one in CLUSTER_SOLVERS)
        + ", which ask for one plane of all examples."
    )


class OnCluster:
    """A solver for estimators whose data is in this process: it cuts the examples into shards and trains on a cluster.

    ``MultiLabelSVM(solver=OnCluster(client)).fit(X, Y)`` does all else here, such as choosing C.

    Parameters
    ----------
    client : distributed.Client or None
    solver : "auto", "one-slack", "bundle", or one of these with options
    n_shards : int, optional
        None is 16, or, on a cluster of more than 8 threads, twice their number, made a power of two.
    objective : "margin", "log" or "softmax-margin"
    inference : "auto", str or engine
        For a solver that is named.
    device : str
        Where workers answer, as for `train`.
    """

    def __init__(
        self,
        client: Any = None,
        solver: Any = "auto",
        n_shards: int | None = None,
        objective: str = "margin",
        inference: Any = "auto",
        device: str = "cpu",
    ) -> None:
        if n_shards is not None and (isinstance(n_shards, bool) or not isinstance(n_shards, int) or n_shards < 1):
            raise OptionError(
                f"n_shards={n_shards!r} is not possible; it must be a whole number of at least 1, or None."
            )
        self.client, self.n_shards, self.workers_device = client_of(client), n_shards, device
        self.solver = cluster_solver(solver, inference, objective)
        self.objective = str(getattr(self.solver, "objective", "margin"))
        self._sent: weakref.WeakKeyDictionary[Any, list[Any]] = weakref.WeakKeyDictionary()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "solver":
            raise AttributeError(name)
        return getattr(self.solver, name)

    def __deepcopy__(self, memo: Any) -> OnCluster:
        # As scikit-learn copies parameters; a client cannot be copied, and nothing here changes.
        return self

    def solve(self, problem: Any, C: float = 1.0, n_jobs: int | None = None, **more: Any) -> Result:
        """Train; the parameters are those of `Solver.solve`, and the threads those of the cluster."""
        if not isinstance(problem, FactorGraphs):
            raise OptionError(
                f"A {type(problem).__name__} cannot be cut into shards; a cluster trains binary, multi-class, multi-label, chain "
                "and graph models, with losses that are sums over examples."
            )
        if problem.signs is not None:
            raise OptionError(
                'A cluster does not keep signs of weights; use solver="one-slack" or "bundle" on this machine, or signs=None.'
            )
        if problem not in self._sent:
            with large_tasks():
                self._sent[problem] = _placed(self.client, shards_of(problem, self.n_shards or self._default_shards()))
        return train(self.client, self._sent[problem], solver=self.solver, C=C, device=self.workers_device, **more)

    def _default_shards(self) -> int:
        threads = sum(self.client.nthreads().values())
        return _SHARDS if threads <= _SHARDS // 2 else 1 << (2 * threads - 1).bit_length()


def _placed(client: Any, shards: Sequence[Any]) -> list[Any]:
    """Futures of the shards."""
    token, placed = uuid.uuid4().hex, []
    for k, one in enumerate(shards):
        key = (f"send-shard-{token}", k)
        if isinstance(one, distributed.Future):
            placed.append(one)
        elif hasattr(one, "__dask_graph__"):
            placed.append(client.compute(one))
        else:
            maker: Callable[..., Any] = _made if callable(one) else _itself
            placed.append(client.submit(maker, one, key=key, pure=False))
    return placed


# --------------------------------------------------------------------------------------------------------------------
# Tasks


def _itself(one: Any) -> Any:
    return one


def _made(recipe: Callable[[], Any]) -> Any:
    return recipe()


def _open(shard: Any, number: int, question: Question, threads: int) -> ShardOracle:
    try:
        if not isinstance(shard, Shard):
            n = getattr(shard, "n_examples", None)
            if n is None:
                raise DataError(f"it is a {type(shard).__name__}; expected a problem, or what makes one.")
            shard = Shard(shard, float(n))
        return ShardOracle(shard, question, threads)
    except MaxMarginError as error:
        raise type(error)(f"Shard {number}: {error}") from None


def _facts(oracle: ShardOracle) -> ShardFacts:
    return oracle.facts()


def _part(oracle: ShardOracle, weights: Packed, in_earnest: bool) -> Part:
    return oracle.part(weights, in_earnest)

"""Estimators of data on a Dask cluster: arrays, data frames and bags are trained on where they lie.

A block of the data (a chunk, a partition) is a shard. First every block is looked at for what all must know: its labels, how often
they occur, its columns. Then its problem is built by the plain estimator's own code (`prepare`), with the labels of all blocks, and
with the costs that the mean number of variables over all blocks makes. Training is `maxmargin.dask.train`.
"""

from __future__ import annotations

import os
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from maxmargin.dask.blocks import Block, read_blocks
from maxmargin.dask.cluster import client_of, cluster_solver, gather, large_tasks, train
from maxmargin.errors import DataError, MaxMarginError, OptionError
from maxmargin.estimators import labels as target
from maxmargin.estimators.binary import BinarySVM
from maxmargin.estimators.chain import ChainSVM
from maxmargin.estimators.choosing import SOME
from maxmargin.estimators.multi_class import MultiClassSVM
from maxmargin.estimators.multi_label import MultiLabelSVM
from maxmargin.estimators.parameters import is_real
from maxmargin.estimators.restoring import fitted
from maxmargin.estimators.training import warn_if_open
from maxmargin.packed.data import PackedLabels, PackedRows, PackedSequences, room_for
from maxmargin.problems.conditionals import fit_temperature
from maxmargin.problems.multi_label import mutual_information_tree, pair_counts
from maxmargin.reporting.progress import ProgressMonitor
from maxmargin.solvers.core.result import Result
from maxmargin.solvers.oracles.sharded import Shard


@dataclass(frozen=True, eq=False)
class Looked:
    """What a block, or all of them, have."""

    n_examples: int
    n_variables: int = 0
    n_features: int = 0
    #: Names of the columns of a data frame.
    columns: tuple[str, ...] | None = None
    #: How often each label occurs, for multi-label data the number of examples that have it.
    counts: Counter[Any] = field(default_factory=Counter)
    #: Of multi-label data: whether labels come in lists; if not, all labels in the order of their columns; and, for a tree, how
    #: many examples have both of two labels.
    lists: bool = False
    labels: tuple[Any, ...] | None = None
    pairs: NDArray[np.float64] | None = None


class DaskEstimator(BaseEstimator):
    """Base of the estimators; a task names its plain estimator and looks at blocks.

    Parameters
    ----------
    C : float
        Strength of the loss, as for the plain estimator; it is not chosen here.
    client : distributed.Client, optional
        None is the client that is there already.
    solver : "one-slack", "bundle", or one of these with options
        "auto" is "one-slack", and "bundle" for the objective "log".
    class_weight, inference, loss, tol, max_passes, max_seconds, fit_intercept, objective, checkpoint : see the plain estimator
        Columns of features are taken as they are, as with ``scale=False``.
    n_jobs : int, optional
        Threads of a task: for workers of one thread each on machines with many cores, so that there are few shards.
    device : str
        Where workers answer: "cpu", or "cuda" for workers that have a GPU and PyTorch, for models without cycles.
    verbose : int
        1 shows progress on the standard error.

    Attributes
    ----------
    result_ : Result
        How training ended, with what was certified over all shards; ``result_.options`` has the rounds and their bytes.
    classes_ : array
    """

    plain: type[Any]
    result_: Result

    def __init__(
        self,
        C: float = 1.0,
        *,
        client: Any = None,
        solver: Any = "auto",
        class_weight: Any = None,
        inference: Any = "auto",
        loss: Any = "hamming",
        tol: float = 1e-3,
        max_passes: int = 1000,
        max_seconds: float | None = None,
        fit_intercept: bool = True,
        objective: str = "margin",
        checkpoint: str | os.PathLike[str] | None = None,
        n_jobs: int | None = None,
        device: str = "cpu",
        verbose: int = 0,
    ) -> None:
        self.C = C
        self.client = client
        self.solver = solver
        self.class_weight = class_weight
        self.inference = inference
        self.loss = loss
        self.tol = tol
        self.max_passes = max_passes
        self.max_seconds = max_seconds
        self.fit_intercept = fit_intercept
        self.objective = objective
        self.checkpoint = checkpoint
        self.n_jobs = n_jobs
        self.device = device
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train.

        Parameters
        ----------
        X, y, sample_weight : Dask arrays, data frames or bags; lists of delayed objects or futures; packed X and y
            With as many blocks each; what a block holds is what the plain estimator's `fit` takes. Packed data
            (`maxmargin.packed.read_packed`) must be under the same name on all workers, which map ranges of it.
        """
        client = client_of(self.client)
        solver = cluster_solver(self.solver, self.inference, self.objective)
        model = self._plain_model()
        with large_tasks():
            blocks = read_blocks(client, X, y, sample_weight)
            token = uuid.uuid4().hex
            keys = [(f"look-at-shard-{token}", k) for k in range(len(blocks))]
            looks = client.map(_look, blocks, range(len(blocks)), look=self._look, model=model, key=keys, pure=False)
            looked = gather(client, looks)
            # A filter may leave partitions empty.
            blocks = [block for block, one in zip(blocks, looked, strict=True) if one.n_examples]
            whole = _merged(looked)
            classes = self._decide(model, whole)
            keys = [(f"build-shard-{token}", k) for k in range(len(blocks))]
            shards = client.map(
                _build, blocks, range(len(blocks)), model=model, classes=classes,
                mean_size=self._mean_size(whole, classes), key=keys, pure=False,
            )  # fmt: skip
        del blocks, looks
        monitor = ProgressMonitor() if self.verbose else None
        try:
            result = train(
                client, shards, solver=solver, C=self.C, tol=self.tol, max_passes=self.max_passes,
                max_seconds=self.max_seconds, checkpoint=self.checkpoint, n_jobs=self.n_jobs, device=self.device,
                monitor=monitor,
            )  # fmt: skip
        finally:
            if monitor is not None:
                monitor.close()
        result.options |= {"C": float(self.C), "tol": float(self.tol), "C_reason": "as asked"}
        warn_if_open(result)
        temperature = 1.0
        if self.objective != "log":
            temperature = gather(client, [client.submit(_temperature, shards[0], result.weights, pure=False)])[0]
        if isinstance(X, PackedRows | PackedSequences) and self.fit_intercept:
            # Columns are stored in another order.
            result.weights = X[:1].features.stored.outside(result.weights, self._n_blocks(classes))
        self.inference_ = f"{result.options['inference']}: {result.options['inference_reason']}"
        self.classes_, self.result_, self.n_features_in_ = classes, result, whole.n_features
        self._local = fitted(model, self._header(model, whole, classes, temperature), result)
        if isinstance(X, PackedSequences) and X.vectoriser is not None:
            self._local._keep_vectoriser(X.vectoriser)
        # The parameters as they were given, and not what all of the data made of them.
        for name in ("class_weight", "edges"):
            if hasattr(self, name):
                setattr(model, name, getattr(self, name))
        return self

    def __sklearn_clone__(self) -> Self:
        # A client cannot be copied.
        return type(self)(**self.get_params(deep=False))

    def __getstate__(self) -> dict[str, Any]:
        # Nor sent: whoever reads this has a client of its own.
        return {**super().__getstate__(), "client": None}

    def to_local(self) -> Any:
        """The plain estimator, fitted: it predicts, and is saved, without Dask."""
        check_is_fitted(self)
        return self._local

    def predict(self, X: Any) -> Any:
        """Predictions: for a Dask array, data frame or bag one more, block by block; for other data those of `to_local`."""
        model = self.to_local()
        if hasattr(X, "map_blocks"):
            return self._predict_array(model, X.rechunk({1: -1}))
        if hasattr(X, "map_partitions"):
            more = {} if not hasattr(X, "columns") else {"meta": model.predict(X.head(1))[:0]}
            return X.map_partitions(model.predict, **more)
        return model.predict(X)

    def _predict_array(self, model: Any, X: Any) -> Any:
        return X.map_blocks(model.predict, dtype=self.classes_.dtype, drop_axis=1)

    def _plain_model(self) -> Any:
        """The plain estimator with these parameters."""
        own = self.get_params(deep=False)
        own.pop("client")
        model = self.plain(**own, scale=False)
        if not is_real(self.C):
            raise OptionError(
                f"C={self.C!r} is not possible here; it must be a number: choose it on a sample, with the plain estimator."
            )
        model._check_parameters()
        if isinstance(self.loss, str) and self.loss not in ("hamming", "fraction", "count", "zero-one"):
            raise OptionError(
                f"loss={self.loss!r} is of all predictions together, which shards do not have; use a loss that is a sum over "
                "examples."
            )
        return model

    def _decide(self, model: Any, whole: Looked) -> NDArray[Any]:
        """The classes; what depends on all of the data is written into the model's parameters."""
        classes = target.distinct(whole.counts)
        for label in classes.tolist():
            if not isinstance(label, str | bool | int | float):
                raise DataError(f"y holds the label {label!r}; expected strings or numbers.")
        if isinstance(model.class_weight, str) and model.class_weight == "balanced":
            n = sum(whole.counts.values())
            model.class_weight = {
                label: n / (len(classes) * count) for label, count in whole.counts.items() if count > 0
            }
        return classes

    def _n_blocks(self, classes: NDArray[Any]) -> int:
        """Blocks of weights of the features."""
        return len(classes)

    def _mean_size(self, whole: Looked, classes: NDArray[Any]) -> float:
        """The mean number of variables of an example."""
        return whole.n_variables / whole.n_examples

    @staticmethod
    def _look(model: Any, block: Block) -> Looked:
        """Look at a block."""
        raise NotImplementedError

    def _header(self, model: Any, whole: Looked, classes: NDArray[Any], temperature: float) -> dict[str, Any]:
        """What a fitted estimator has beside its weights, as model files have it."""
        names = None if whole.columns is None else list(whole.columns)
        return {
            "labels": classes.tolist(), "classes": classes, "n_features": whole.n_features, "feature_names": names,
            "data_frame": names is not None, "temperature": temperature, "inference": self.inference_,
        }  # fmt: skip


def _look(block: Block, number: int, look: Any, model: Any) -> Looked:
    try:
        if not hasattr(block.X, "shape") and not hasattr(block.X, "__len__"):
            raise DataError(f"X is of type {type(block.X).__name__}; expected rows or sequences.")
        n = int(block.X.shape[0]) if hasattr(block.X, "shape") else len(block.X)
        looked: Looked = look(model, block) if n else Looked(0)
        return looked
    except MaxMarginError as error:
        raise type(error)(f"Block {number}: {error}") from None


def _build(block: Block, number: int, model: Any, classes: NDArray[Any], mean_size: float) -> Shard:
    try:
        # What grows with the data is on the disk of packed data.
        with room_for(block.X):
            given = model.prepare(block.X, block.y, block.weight, classes)
    except MaxMarginError as error:
        raise type(error)(f"Shard {number}: {error}") from None
    problem = given.problem
    own = len(problem.labels) / problem.n_examples
    if own != mean_size and not problem.zero_one and model.loss not in ("fraction", "count"):
        # Costs are divided by the mean number of variables of an example, and that is one over all shards.
        problem = problem.with_costs(np.full(len(problem.labels), own / mean_size))
    return Shard(problem, given.mass)


def _temperature(shard: Shard, weights: NDArray[np.float64]) -> float:
    """The temperature of probabilities, by some examples of the first shard."""
    p = shard.problem
    every = -(-max(p.n_examples, len(p.labels) // 8) // SOME)
    some = p if every == 1 else p.take(np.arange(0, p.n_examples, every))
    return float(fit_temperature(some, some.scores(weights)))


def _merged(looked: Sequence[Looked]) -> Looked:
    """What all blocks have together."""
    filled = [(k, one) for k, one in enumerate(looked) if one.n_examples]
    if not filled:
        raise DataError("There are no examples: the data is empty.")
    first = filled[0][1]
    counts: Counter[Any] = Counter()
    for k, one in filled:
        for name in ("n_features", "columns", "lists", "labels"):
            if getattr(one, name) != getattr(first, name):
                raise DataError(
                    f"Block {k} has {name}={getattr(one, name)!r}, and block {filled[0][0]} has {getattr(first, name)!r}; all "
                    "blocks must have the same."
                )
        counts.update(one.counts)
    pairs = [one.pairs for _, one in filled if one.pairs is not None]
    return Looked(
        sum(one.n_examples for _, one in filled), sum(one.n_variables for _, one in filled), first.n_features, first.columns,
        counts, first.lists, first.labels, sum(pairs[1:], pairs[0]) if pairs else None,
    )  # fmt: skip


def _columns(X: Any) -> tuple[int, tuple[str, ...] | None]:
    """The number of columns, and their names, if they are those of a data frame."""
    if getattr(X, "ndim", 2) != 2 or not hasattr(X, "shape"):
        shape = getattr(X, "shape", None)
        raise DataError(f"X is of type {type(X).__name__}, shape {shape}; expected rows and columns of numbers.")
    names = [str(name) for name in getattr(X, "columns", []) if isinstance(name, str)]
    return int(X.shape[1]), tuple(names) if len(names) == X.shape[1] else None


class DaskMultiClassSVM(DaskEstimator):
    """`MultiClassSVM` on a cluster; see `DaskEstimator` for the parameters."""

    plain = MultiClassSVM

    @staticmethod
    def _look(model: Any, block: Block) -> Looked:
        classes, states = target.classes_and_states(block.y, type(model).__name__)
        found = np.bincount(states, minlength=len(classes)).tolist()
        counts = Counter(dict(zip(classes.tolist(), found, strict=True)))
        return Looked(len(states), len(states), *_columns(block.X), counts)


class DaskBinarySVM(DaskMultiClassSVM):
    """`BinarySVM` on a cluster, with losses that are sums over examples; see `DaskEstimator` for the parameters."""

    plain = BinarySVM

    def _n_blocks(self, classes: NDArray[Any]) -> int:
        return 1


class DaskMultiLabelSVM(DaskEstimator):
    """`MultiLabelSVM` on a cluster; see `DaskEstimator` for the parameters, and `MultiLabelSVM` for `edges`."""

    plain = MultiLabelSVM

    def __init__(
        self,
        C: float = 1.0,
        *,
        client: Any = None,
        edges: Any = "full",
        solver: Any = "auto",
        class_weight: Any = None,
        inference: Any = "auto",
        loss: Any = "hamming",
        tol: float = 1e-3,
        max_passes: int = 1000,
        max_seconds: float | None = None,
        fit_intercept: bool = True,
        objective: str = "margin",
        checkpoint: str | os.PathLike[str] | None = None,
        n_jobs: int | None = None,
        device: str = "cpu",
        verbose: int = 0,
    ) -> None:
        super().__init__(
            C, client=client, solver=solver, class_weight=class_weight, inference=inference, loss=loss, tol=tol,
            max_passes=max_passes, max_seconds=max_seconds, fit_intercept=fit_intercept, objective=objective,
            checkpoint=checkpoint, n_jobs=n_jobs, device=device, verbose=verbose,
        )  # fmt: skip
        self.edges = edges

    @staticmethod
    def _look(model: Any, block: Block) -> Looked:
        lists = target.is_lists(block.y)
        encoded, classes = target.encode_lists(block.y, None) if lists else target.encode_array(block.y)
        counts = Counter(dict(zip(classes.tolist(), encoded.sum(axis=0).tolist(), strict=True)))
        labels = None if lists else tuple(classes.tolist())
        tree = not lists and isinstance(model.edges, str) and model.edges == "tree"
        pairs = pair_counts(encoded) if tree else None
        return Looked(len(encoded), encoded.size, *_columns(block.X), counts, lists, labels, pairs)

    def _n_blocks(self, classes: NDArray[Any]) -> int:
        """Blocks of weights of the features."""
        return len(classes)

    def _mean_size(self, whole: Looked, classes: NDArray[Any]) -> float:
        # Lists of one block need not have all labels.
        return float(len(classes))

    def _decide(self, model: Any, whole: Looked) -> NDArray[Any]:
        if isinstance(model.class_weight, str):
            raise OptionError(
                f"class_weight={model.class_weight!r} is not possible here; give a dict with a number for each label."
            )
        classes = super()._decide(model, whole)
        if whole.labels is not None:
            # A label that no example has is a label all the same, and columns stay in their order.
            classes = target.as_vector(list(whole.labels))
        if isinstance(model.edges, str) and model.edges == "tree":
            if whole.pairs is None:
                raise OptionError(
                    'edges="tree" needs labels as zeros and ones here; from lists, choose the pairs on a sample, and give them.'
                )
            model.edges = mutual_information_tree(whole.n_examples, whole.pairs)
        return classes

    def _header(self, model: Any, whole: Looked, classes: NDArray[Any], temperature: float) -> dict[str, Any]:
        # A tree has been written down already, and other edges depend on the labels alone.
        edges = model.pairs_of(classes, np.zeros((1, len(classes)), np.int8))
        more = {"lists": whole.lists, "edges": edges}
        return super()._header(model, whole, classes, temperature) | more

    def _predict_array(self, model: Any, X: Any) -> Any:
        return X.map_blocks(model.predict, dtype=np.int64, chunks=(X.chunks[0], (len(self.classes_),)))


class DaskChainSVM(DaskEstimator):
    """`ChainSVM` on a cluster; see `DaskEstimator` for the parameters, and `ChainSVM` for the first ones.

    X and y are bags of sequences, or blocks that are lists of them. Words and features by name need columns that all blocks share:
    ``features=TextFeatures(n_hash=2**20)``.
    """

    plain = ChainSVM

    def __init__(
        self,
        C: float = 1.0,
        *,
        client: Any = None,
        boundary: bool = True,
        forbidden: Any = None,
        bio: bool = False,
        order: int = 1,
        emission_order: int = 0,
        features: Any = None,
        solver: Any = "auto",
        class_weight: Any = None,
        inference: Any = "auto",
        loss: Any = "hamming",
        tol: float = 1e-3,
        max_passes: int = 1000,
        max_seconds: float | None = None,
        fit_intercept: bool = True,
        objective: str = "margin",
        checkpoint: str | os.PathLike[str] | None = None,
        n_jobs: int | None = None,
        device: str = "cpu",
        verbose: int = 0,
    ) -> None:
        super().__init__(
            C, client=client, solver=solver, class_weight=class_weight, inference=inference, loss=loss, tol=tol,
            max_passes=max_passes, max_seconds=max_seconds, fit_intercept=fit_intercept, objective=objective,
            checkpoint=checkpoint, n_jobs=n_jobs, device=device, verbose=verbose,
        )  # fmt: skip
        self.boundary = boundary
        self.forbidden = forbidden
        self.bio = bio
        self.order = order
        self.emission_order = emission_order
        self.features = features

    @staticmethod
    def _look(model: Any, block: Block) -> Looked:
        if isinstance(block.X, PackedSequences) and isinstance(block.y, PackedLabels):
            classes, states = block.y.classes, block.y.states
            found = np.bincount(states, minlength=len(classes)).tolist()
            width = block.X.folder.size("n_features", 1)
            return Looked(
                len(block.X), len(states), width, None, Counter(dict(zip(classes.tolist(), found, strict=True)))
            )
        if not isinstance(block.y, Sequence | np.ndarray) or isinstance(block.y, str):
            raise DataError(f"y is of type {type(block.y).__name__}; expected a list with the tags of each sequence.")
        if len(block.X) != len(block.y):
            raise DataError(f"There are {len(block.X)} sequences in X, but tags for {len(block.y)} in y.")
        if any(isinstance(row, str) or not hasattr(row, "__len__") for row in block.y):
            raise DataError("y holds single tags; expected a list of tags for each sequence.")
        tags = [row.tolist() if isinstance(row, np.ndarray) else list(row) for row in block.y]
        counts: Counter[Any] = Counter(tag for row in tags for tag in row)
        if any(target.is_missing(tag) for tag in counts):
            raise DataError("y has a tag that is None or NaN; a cluster trains on sequences whose tags are all known.")
        if model.features is not None:
            columns: tuple[int, Any] = int(model.features.n_hash or 0), None
        else:
            shape = np.shape(block.X[0]) if not hasattr(block.X[0], "shape") else block.X[0].shape
            # What else may be wrong, such as words where rows were expected, is said when the problem is built.
            columns = int(shape[1]) if len(shape) == 2 else 0, None
        return Looked(len(tags), sum(map(len, tags)), *columns, counts)

    def _header(self, model: Any, whole: Looked, classes: NDArray[Any], temperature: float) -> dict[str, Any]:
        more: dict[str, Any] = {} if model.features is None else {"hashing": model.features}
        return super()._header(model, whole, classes, temperature) | more

"""GraphSVM: a class for each node of a graph, scored by node and by edge.

    score(x, y) = sum_i (coef_[y_i] . x_i + intercept_[y_i])
                  + sum_{e = (i, j)} edge_coef_[y_i, y_j] . z_e        (edge_weights="full")
                  + sum_{e = (i, j)} edge_coef_ . z_e [y_i = y_j]      (edge_weights="potts")

With ``node_weights="class-wise"`` the features of a node are scores of its classes, and the nodes' part is

    sum_i (coef_[y_i] x_i[y_i] + intercept_[y_i])

A graph is ``(node_features (n, p), edges (e, 2))`` or ``(node_features, edges, edge_features (e, q))``; without edge
features each edge has the constant feature 1. Weights are shared over all nodes and over all edges.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import Tags

from maxmargin.errors import DataError, OptionError
from maxmargin.estimators import labels as target
from maxmargin.estimators.base import shared
from maxmargin.estimators.confidence import Sure
from maxmargin.estimators.edge_kernels import EdgeSpace
from maxmargin.estimators.feature_space import is_linear, name_blocks, prediction_rows, training_rows
from maxmargin.estimators.given_features import check_same_columns, compare_columns, remember_columns
from maxmargin.estimators.missing import note_unknown
from maxmargin.estimators.names import Auto, COption, InferenceOption, Objective, SolverOption
from maxmargin.estimators.parameters import check_parameters
from maxmargin.estimators.prediction import StructuredPredictor
from maxmargin.estimators.restoring import size_of
from maxmargin.estimators.signs import with_signs
from maxmargin.estimators.stopping import Watch
from maxmargin.problems import FactorGraphs, Features, graph_problem
from maxmargin.problems.chains import stack_examples
from maxmargin.problems.graphs import check_graph

Graph = tuple[Any, NDArray[np.int64], NDArray[Any] | None]


class GraphSVM(StructuredPredictor):
    """Classifier of the nodes of graphs that learns which classes are neighbours.

    Parameters
    ----------
    C : float, list of float or "auto"
        Strength of the loss in ``1/(2C) |w|^2 + mean loss``: ``C = n * c`` for scikit-learn's ``c``, and SVM-struct's own C. "auto"
        chooses it on held-out examples; of a list, the value whose held-out loss is least is taken.
    edge_weights : "full" or "potts"
        A weight vector for every pair of classes, or one for equal classes.
    node_weights : "full" or "class-wise"
        A weight vector for every class; or one number, for nodes whose K features are scores of the K classes by given
        classifiers, in the order of ``classes_``. Of two levels of superpixels see `maxmargin.problems.two_level_graph`.
    edge_kernel : "linear", "rbf" or "poly"
        Inner products of the features of edges; ``degree`` and ``coef0`` are for both kernels.
    edge_gamma : "scale" or float
        Of the edges' kernels "rbf" and "poly".
    class_weight : None, "balanced" or dict
        What the cost of a node is multiplied by, by its true class: "balanced" is n / (K count) over all n known nodes, and a
        class left out of a dict has 1.
    solver : str or solver
        "auto", a name in `maxmargin.solvers.SOLVERS`, or a solver with options of its own.
    inference : str or engine
        Who finds labelings, in training and in prediction alike, unless a solver object names an engine of its own: "auto" (exact
        where that is cheap, else a relaxation, rounded and improved), or an engine of `maxmargin.inference`. Solvers that ask no
        engine, such as "soft-bcfw", train without it.
    loss : "hamming", "fraction", "count", "zero-one" or array (K, K)
        Task loss of a wrong node: the same for all, so that the mean loss is the fraction of all nodes that are wrong; one over the
        number of nodes of its graph, so that every graph counts the same; 1; or costs ``loss[truth, predicted]`` in the order of
        ``classes_``, with a diagonal of zeros. "zero-one" is 1 for every labeling but the truth, on graphs without cycles.
    tol : float
        Certified gap at which training stops, in units of the task loss.
    max_passes : int
        Most passes over the data.
    max_seconds : float, optional
        Most seconds of training.
    fit_intercept : bool
        Add a constant feature, regularised like the rest.
    random_state : int, Generator, RandomState or None
        Seed of the solver; None is different every time.
    n_jobs : int, optional
        Threads for certificates and predictions; None is 1, and -1 is one a core. The answer does not depend on it.
    verbose : int
        0 is silent; 1 shows progress on the standard error.
    warm_start : bool
        Start from where the last fit ended, if the data has the same shape; C, tol and the limits may differ.
    checkpoint : path, optional
        File where the solver keeps its state, and from which it resumes if it is there.
    C_path : sequence of float, optional
        Train for these values too, from small to large, each from the one before; ``path_`` has their results. The model
        is that of C.
    kernel : "linear", "rbf", "poly" or callable
        Inner products of the rows of features of nodes; a callable takes two matrices and returns theirs.
    gamma : "scale" or float
        Of the kernels "rbf" and "poly"; "scale" is 1 / (p * X.var()).
    degree : int
        Of the kernel "poly".
    coef0 : float
        Of the kernel "poly".
    n_basis : int, optional
        Approximate the kernel by so many basis functions: every solver takes it, time and memory grow with n times this instead of
        n^2, and prediction needs the basis only. None is the kernel itself.
    basis : "auto", "cholesky", "random" or "k-means"
        How the basis is chosen: rows that the ones before describe worst, rows at random, or centres of clusters. "auto" is
        "k-means", which was best wherever we compared them, but "cholesky" for a precomputed kernel, which has no rows.
    objective : "margin", "log" or "softmax-margin"
        The structured hinge; or, for the solvers that can, the logarithmic loss of a conditional random field, as it is or with the
        task loss of each labeling in the exponent.
    validation_fraction : float
        Share of the examples that is held out to choose C; with fewer than 2000 variables in all, each is held out once, in folds
        of this size.
    cv : int, optional
        Number of folds, at least 2, by which C is chosen, whatever the size of the data: every example is held out once. None is as
        `validation_fraction` says.
    scale : "auto", True or False
        Whether columns of features are centred and divided by their size while training: "auto" does so where they need it. Weights
        are always for the features as they were given.
    signs : None, "attractive" or dict
        Weights that must not be negative (1) or not positive (-1), by the part that they are of, such as ``{"pairs": 1}`` or
        ``{"features": array}``, with zeros for free ones. "attractive": pairs prefer equal labels, which makes graph cuts exact for
        binary ones. The solvers "one-slack" and "bundle" can.
    device : str
        Where to train: "cpu", the processor; "cuda", "cuda:1" and so on, a GPU, by PyTorch (`maxmargin.devices`), for solvers that
        work on all examples at once; "torch" is PyTorch on the processor. Predictions are made on the processor.
    max_memory : int, str or None
        Refuse to train if that would take more memory than this, in bytes or as in "4GB", with an estimate of its parts, before it
        is allocated; None is no limit.

    Attributes
    ----------
    classes_ : array (K,)
        The classes found in the labels.
    coef_, intercept_ : array (K, p), or (K,) with ``node_weights="class-wise"``, array (K,)
        Weights of each class; the intercept is 0 with ``fit_intercept=False``.
    edge_coef_ : array (K, K, q), or (q,) with ``edge_weights="potts"``
        Weights of the edges' features, by the classes of an edge's first and second node.
    edge_dual_coef_, edge_support_, edge_support_vectors_ : array (K, K, s) or (s,), int array (s,), array (s, q)
        With a kernel on edges, in the place of ``edge_coef_``: coefficients of the training edges that count, their numbers and
        features.
    dual_coef_, support_, support_vectors_ : array (K, s), int array (s,), array or CSR matrix (s, p)
        With a kernel, in the place of ``coef_``: coefficients of the training rows that count, their numbers, and the
        rows: known nodes, one graph after another.
    basis_coef_, basis_vectors_, basis_residual_ : array (K, k), array or CSR matrix (k, p), float
        With ``n_basis``, in the place of these: coefficients of the basis, its rows, and the share of k(x, x) that it misses.
    result_ : Result
        Status, certificate and history of training.
    C_, validation_path_ : float, list of (C, loss, gap, n_passes, seconds, standard_error)
        C as given or chosen, and the values that were tried, with the held-out task loss; `maxmargin.plot_path` draws them.
    temperature_ : float
        What scores are divided by to become log-probabilities.
    inference_ : str
        How the training graphs would be predicted; other graphs may allow another engine.
    n_features_in_, n_edge_features_in_ : int
        p, and q; the latter is 0 if the edges have no features of their own.
    feature_names_in_ : array (p,)
        Only if the node features were data frames with columns named by strings.

    Examples
    --------
    >>> from maxmargin import GraphSVM
    >>> ring = [[0, 1], [1, 2], [2, 3], [3, 0]]
    >>> graphs = [([[1.0], [0.8], [-0.2], [0.9]], ring), ([[-1.0], [-0.7], [0.1], [-0.9]], ring)]
    >>> model = GraphSVM(C=100).fit(graphs, [["in"] * 4, ["out"] * 4])
    >>> [labels.tolist() for labels in model.predict(graphs)]
    [['in', 'in', 'in', 'in'], ['out', 'out', 'out', 'out']]
    """

    task = "graph"
    kernels = ("linear", "rbf", "poly")
    _edges: EdgeSpace | None = None

    def __init__(
        self,
        C: COption = "auto",
        *,
        edge_weights: str = "full",
        node_weights: str = "full",
        edge_kernel: str = "linear",
        edge_gamma: float | str = "scale",
        class_weight: Any = None,
        solver: SolverOption = "auto",
        inference: InferenceOption = "auto",
        loss: Any = "hamming",
        tol: float = 1e-3,
        max_passes: int = 1000,
        max_seconds: float | None = None,
        fit_intercept: bool = True,
        random_state: Any = 0,
        n_jobs: int | None = None,
        verbose: int = 0,
        warm_start: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
        C_path: Any = None,
        kernel: Any = "linear",
        gamma: Any = "scale",
        degree: int = 3,
        coef0: float = 1.0,
        n_basis: int | None = None,
        basis: str = "auto",
        objective: Objective = "margin",
        validation_fraction: float = 0.2,
        cv: int | None = None,
        scale: bool | Auto = "auto",
        signs: Any = None,
        device: str = "cpu",
        max_memory: int | str | None = None,
    ) -> None:
        super().__init__(**shared(locals()))
        self.edge_weights = edge_weights
        self.node_weights = node_weights
        self.edge_kernel = edge_kernel
        self.edge_gamma = edge_gamma
        self.class_weight = class_weight

    def fit(
        self,
        graphs: Sequence[Any],
        labels: Sequence[Any],
        sample_weight: ArrayLike | None = None,
        *,
        eval_set: Any = None,
        eval_metric: Any = None,
        patience: int | None = None,
        callbacks: Any = None,
    ) -> Self:
        """Train.

        Parameters
        ----------
        graphs : list of (node_features, edges) or (node_features, edges, edge_features)
        labels : list of sequences of labels, one label a node
            Nodes whose label is -1, None or NaN are unknown: they are left out of training, with their edges.
        sample_weight : array, optional
            A weight for each graph.
        eval_set : (X, y), optional
            Held-out examples, whose task loss is computed at every check: ``result_.history["eval_loss"]``.
        eval_metric : callable, optional
            Takes true and predicted labels, and returns a number of which less is better, in the place of the task loss.
        patience : int, optional
            End training when so many checks in a row have not lowered the held-out loss, and take the weights of the least.
        callbacks : list of callables, optional
            Each is called with a `maxmargin.solvers.Report` at every check; training ends if one returns False.

        Returns
        -------
        self
        """
        check_parameters(self)
        watch = Watch(self, (graphs, labels), eval_set, eval_metric, patience, callbacks)
        if self.edge_weights not in ("full", "potts"):
            raise OptionError(f'edge_weights={self.edge_weights!r} is not known; use "full" or "potts".')
        if self.node_weights not in ("full", "class-wise"):
            raise OptionError(f'node_weights={self.node_weights!r} is not known; use "full" or "class-wise".')
        if self._class_wise and not is_linear(self):
            raise OptionError('node_weights="class-wise" has one weight a class, and no kernel; use kernel="linear".')
        space = EdgeSpace(self)
        space.check()
        parts, n_edge_features = _check_graphs(graphs)
        values, known = _check_labels(np.array([part[0].shape[0] for part in parts]), labels)
        classes = target.distinct(
            v for row, keep in zip(values, known, strict=True) for v, k in zip(row, keep, strict=True) if k
        )
        if len(classes) == 0:
            raise DataError("No node of any graph has a known label: there is nothing to learn from.")
        state = {label: k for k, label in enumerate(classes.tolist())}
        kept = [m for m in range(len(parts)) if known[m].any()]
        states = [np.array([state[v] for v, k in zip(values[m], known[m], strict=True) if k], np.int32) for m in kept]
        weight = None
        if sample_weight is not None:
            weight = target.example_weights(sample_weight, len(parts), "graph")[kept]
        chosen = [_known_part(parts[m], known[m]) for m in kept]
        features = _stack_nodes(chosen)
        edges = None if self.edge_kernel == "linear" else space.rows(_stack_edges(chosen, n_edge_features))
        problem = graph_problem(
            chosen,
            states,
            len(classes),
            loss=target.cost_table(self.loss, classes),
            sample_weight=weight,
            node_features=features if self._class_wise else training_rows(self, features, ordered=self.signs is None),
            edge_features=edges,
            **self._weight_options(),
        )
        flat = np.concatenate(states)
        by_class = target.class_weights(self.class_weight, classes, flat)
        if by_class is not None:
            problem = problem.with_costs(by_class[flat])
        names = {"classes_": classes, "n_features_in_": features.shape[1], "n_edge_features_in_": n_edge_features}

        def finish(model: Any) -> None:
            model._edges = None if edges is None else space
            model.classes_ = classes
            remember_columns(model, parts[0][0])
            model.n_edge_features_in_ = n_edge_features
            model._name_weights()

        self._fit(with_signs(self, problem, **names, _edges=None), features, finish, watch)
        note_unknown(self, sum(len(one) for one in known) - len(flat))
        return self

    def score(
        self,
        graphs: Sequence[Any],
        labels: Sequence[Any],
        sample_weight: ArrayLike | None = None,
        node_weight: Sequence[ArrayLike] | None = None,
    ) -> float:
        """Fraction of the nodes with a known label that are predicted right.

        A label never seen in training counts as wrong. With `sample_weight`, a graph's nodes count that much; with `node_weight`, a
        list of an array a graph, each node counts that much, such as the pixels of a superpixel.

        Parameters
        ----------
        graphs : list of (node features, edges) or (node features, edges, edge features)
            The graphs.
        labels : list of arrays
            The true classes of their nodes; -1, None or NaN where they are not known.
        sample_weight : array (n,), optional
            How much each graph counts.
        node_weight : list of arrays, optional
            How much each node counts, such as the pixels of a superpixel.
        """
        problem, found = self._predict(graphs)
        starts = problem.example_variables
        truth, known = self._states_of(labels, np.diff(starts))
        weight = target.score_weights(sample_weight, len(starts) - 1, "graph")
        counts = known * np.repeat(weight, np.diff(starts))
        if node_weight is not None:
            counts = counts * np.concatenate(_node_arrays(node_weight, np.diff(starts), "node_weight", None))
        if not counts.sum() > 0:
            raise DataError("No node has a known label and a positive weight: there is nothing to score.")
        return float(np.average(found.labels == truth, weights=counts))

    def _states_of(
        self, labels: Sequence[Any], sizes: NDArray[np.int64]
    ) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
        """The states of the labels of graphs, -1 for one that was not seen in training; and which nodes have a label."""
        values, known = _check_labels(sizes, labels)
        return target.states_of((v for row in values for v in row), self.classes_), np.concatenate(known)

    def _truth(self, y: Any, sure: Sure) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
        return self._states_of(y, sure.sizes)

    def pixel_accuracy(self, graphs: Sequence[Any], pixel_counts: Sequence[ArrayLike]) -> float:
        """Fraction of the pixels that have the class predicted for their superpixel.

        Parameters
        ----------
        graphs : as in `fit`
        pixel_counts : list of arrays (n, K)
            How many pixels of each class, in the order of ``classes_``, each node of a graph has. Pixels without a class are left
            out, and nodes without pixels, such as those of a coarse level, do not count.
        """
        problem, found = self._predict(graphs)
        sizes = np.diff(problem.example_variables)
        counts = np.concatenate(_node_arrays(pixel_counts, sizes, "pixel_counts", len(self.classes_)))
        if not counts.sum() > 0:
            raise DataError("No node has a pixel: there is nothing to score.")
        return float(counts[np.arange(len(counts)), found.labels].sum() / counts.sum())

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = False
        tags.no_validation = True
        return tags

    def _task_parts(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        header, arrays = ({}, {}) if self._edges is None else self._edges.parts()
        return {"n_edge_features": int(self.n_edge_features_in_)} | header, arrays

    def _restore_task(
        self, header: dict[str, Any], arrays: dict[str, NDArray[Any]], classes: NDArray[Any], width: int
    ) -> int:
        target.check_costs(self, classes)
        self.n_edge_features_in_ = size_of(header, "n_edge_features", 0)
        pairs = 1 if self.edge_weights == "potts" else len(classes) ** 2
        if self._class_wise:
            pairs, width = pairs + len(classes), int(self.fit_intercept)
        self._edges, edge_width = None, max(1, self.n_edge_features_in_)
        if self.edge_kernel != "linear":
            self._edges = EdgeSpace(self)
            self._edges.restore(header, arrays, edge_width)
            edge_width = self._edges.n_rows
        return len(classes) * width + pairs * edge_width

    def _new_problem(self, graphs: Sequence[Any]) -> FactorGraphs:
        """The graphs to predict, compared with those of training."""
        own = self.n_edge_features_in_
        parts, _ = _check_graphs(graphs, own)
        for m, (nodes, edges, features) in enumerate(parts):
            if nodes.shape[1] != self.n_features_in_:
                raise DataError(
                    f"Graph {m} has {nodes.shape[1]} node features, but GraphSVM is expecting "
                    f"{self.n_features_in_}, as in training."
                )
            width = 0 if features is None else features.shape[1]
            if len(edges) and width != own:
                raise DataError(
                    f"Graph {m} has {width} edge features, but GraphSVM is expecting {own}, as in training."
                )
        compare_columns(self, parts[0][0])
        rows = _stack_nodes(parts)
        rows = rows if self._class_wise else prediction_rows(self, rows)
        edge_rows = None if self._edges is None else self._edges.scores(_stack_edges(parts, own))
        options = self._weight_options() | {"edge_features": edge_rows}
        return graph_problem(parts, None, len(self.classes_), node_features=rows, **options)

    def _flat_weights(self, problem: FactorGraphs) -> NDArray[np.float64]:
        """With a kernel on edges, their scores are the features, and each has the weight 1 for its own block."""
        weights = super()._flat_weights(problem)
        if self._edges is None:
            return weights
        n_blocks = len(self._edges.intercept_)
        return np.concatenate([weights[: len(weights) - n_blocks * self._edges.n_rows], np.eye(n_blocks).ravel()])

    def _present(self, states: NDArray[np.int32], problem: FactorGraphs) -> list[NDArray[Any]]:
        """An array of labels a graph."""
        return np.split(self.classes_[states], problem.example_variables[1:-1])

    def _name_weights(self) -> None:
        """Views of the flat weights under their names."""
        n_classes, q = len(self.classes_), max(self.n_edge_features_in_, 1)
        shape = (q,) if self.edge_weights == "potts" else (n_classes, n_classes, q)
        for name in ("edge_coef_", "edge_dual_coef_", "edge_support_", "edge_support_vectors_"):
            self.__dict__.pop(name, None)
        if self._edges is not None:
            self._edges.name(name_blocks(self, n_classes).reshape(-1, self._edges.n_rows))
            self.edge_dual_coef_ = self._edges.dual_coef_.reshape(*shape[:-1], -1)
            self.edge_support_, self.edge_support_vectors_ = self._edges.support_, self._edges.support_vectors_
            return
        if not self._class_wise:
            self.edge_coef_ = name_blocks(self, n_classes).reshape(shape)
            return
        weights, n_constant = self.result_.weights, n_classes * int(self.fit_intercept)
        factors = weights[n_constant:].reshape(-1, q)
        self.intercept_ = weights[:n_constant] if n_constant else np.zeros(n_classes)
        # Scores are the first feature of their factors, which have no others.
        self.coef_, self.edge_coef_ = factors[:n_classes, 0], factors[n_classes:].reshape(shape)

    @property
    def _class_wise(self) -> bool:
        return bool(self.node_weights == "class-wise")

    def _weight_options(self) -> dict[str, Any]:
        """How weights are shared, for `graph_problem`."""
        return {
            "edge_weights": self.edge_weights,
            "node_weights": self.node_weights,
            "intercept": self._class_wise and bool(self.fit_intercept),
        }


def _check_graphs(graphs: Sequence[Any], n_edge_features: int | None = None) -> tuple[list[Graph], int]:
    """Graphs in full, and the number of edge features; a graph without edges need not say how many they would have."""
    if isinstance(graphs, str) or not isinstance(graphs, Sequence):
        raise DataError(
            f"graphs is of type {type(graphs).__name__}; expected a list of (node_features, edges[, edge_features])."
        )
    if len(graphs) == 0:
        raise DataError("There is no graph: the data is empty.")
    parts = [check_graph(m, graph) for m, graph in enumerate(graphs)]
    for m, (nodes, _, _) in enumerate(parts):
        if nodes.ndim != 2 or 0 in nodes.shape:
            raise DataError(
                f"Graph {m}: the node features have shape {nodes.shape}; expected (nodes, features), "
                "at least one of each."
            )
    check_same_columns([nodes for nodes, _, _ in parts], "graph")
    # No columns is no features of their own.
    parts = [
        (nodes, edges, None if features is None or features.shape[1] == 0 else features)
        for nodes, edges, features in parts
    ]
    widths = [features.shape[1] for _, _, features in parts if features is not None]
    width = n_edge_features if n_edge_features is not None else (widths[0] if widths else 0)
    if width:
        parts = [
            (nodes, edges, np.zeros((0, width)) if features is None and not len(edges) else features)
            for nodes, edges, features in parts
        ]
    return parts, width


def _check_labels(sizes: NDArray[np.int64], labels: Sequence[Any]) -> tuple[list[list[Any]], list[NDArray[np.bool_]]]:
    """The labels of the nodes of graphs that have so many, and which of them are known."""
    if labels is None or isinstance(labels, str) or not hasattr(labels, "__len__"):
        raise DataError("labels must be a list with the labels of each graph's nodes.")
    if len(labels) != len(sizes):
        raise DataError(f"There are {len(sizes)} graphs, but labels for {len(labels)}.")
    both = [target.known_labels(labels[m], m, n) for m, n in enumerate(sizes.tolist())]
    return [values for values, _ in both], [known for _, known in both]


def _node_arrays(
    given: Sequence[ArrayLike], sizes: NDArray[np.int64], name: str, width: int | None
) -> list[NDArray[np.float64]]:
    """An array a graph with a number that is not negative for each node, or with `width` of them."""
    if len(given) != len(sizes):
        raise DataError(f"There are {len(sizes)} graphs, but {name} for {len(given)}.")
    arrays = [np.asarray(one, np.float64) for one in given]
    for m, (one, n) in enumerate(zip(arrays, sizes.tolist(), strict=True)):
        expected = (n,) if width is None else (n, width)
        if one.shape != expected:
            raise DataError(f"Graph {m}: {name} has shape {one.shape}; expected {expected}.")
        if not (np.isfinite(one) & (one >= 0)).all():
            raise DataError(f"Graph {m}: {name} must be finite numbers that are not negative.")
    return arrays


def _known_part(graph: Graph, known: NDArray[np.bool_]) -> Graph:
    """The graph without its unknown nodes and their edges."""
    nodes, edges, features = graph
    if known.all():
        return graph
    number = np.cumsum(known) - 1
    kept = known[edges].all(axis=1)
    nodes = nodes.tocsr()[np.flatnonzero(known)] if hasattr(nodes, "tocsr") else nodes[known]
    return nodes, number[edges[kept]], None if features is None else features[kept]


def _stack_edges(parts: list[Graph], width: int) -> NDArray[Any]:
    """The features of all edges, one graph after another."""
    if width == 0:
        raise DataError(
            "A kernel on edges needs features of edges, and these have none; give (nodes, edges, edge_features)."
        )
    return np.concatenate([np.empty((0, width)), *(features for _, _, features in parts if features is not None)])


def _stack_nodes(parts: list[Graph]) -> Features:
    """The features of all nodes, one graph after another."""
    return stack_examples([nodes for nodes, _, _ in parts], "graph", "node_features")[0]

"""Why a labeling was predicted: the weights by which it beats another one, and those against it.

The score of a labeling is a sum over variables and factors, and each of their scores is a sum over features. So the difference of
two scores is a sum of contributions, one for each feature of each variable or factor where the two labelings y and y' differ:

    score(x, y) - score(x, y') = sum_i sum_k (w[y_i, k] - w[y'_i, k]) x_i[k] + sum_c sum_k (V[y_c, k] - V[y'_c, k]) z_c[k]

The other labeling is the runner-up (inference/runner_up.py), or one that the user names.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from maxmargin.errors import DataError
from maxmargin.estimators import labels as target
from maxmargin.estimators.feature_space import is_linear, prediction_weights
from maxmargin.estimators.frames import INTERCEPT, edge_feature_names, feature_names, require_pandas
from maxmargin.inference.runner_up import runner_up
from maxmargin.problems.chains import chain_blocks
from maxmargin.problems.factor_graphs import FactorGraphs
from maxmargin.solvers.oracles.prediction import predict

#: Contributions, and changed labels, that are printed.
_PRINTED = 10
#: Share of a score that rounding may change.
_ROUNDING = 1e-9


class Contribution(NamedTuple):
    """What one weight adds to the difference of two scores.

    Attributes
    ----------
    part : str
        "feature", "intercept", "pair", "transition", "start", "end" or "edge".
    place : str
        The label, position, node, or pair of them.
    labels, against : str
        What the place is labelled in the one and in the other labeling.
    feature : str
        The feature's name; "" where it is a constant.
    value : float
        The feature's value.
    weight : float
        Its weight by the one labeling minus that by the other.
    contribution : float
        value times weight.
    """

    part: str
    place: str
    labels: str
    against: str
    feature: str
    value: float
    weight: float
    contribution: float


@dataclass(frozen=True)
class Explanation:
    """By what a labeling beats another one.

    Parameters
    ----------
    labels, against : labelings, as `predict` has them
        The prediction, and the other labeling.
    score, against_score : float
        Their scores.
    exact : bool
        Whether the other labeling is known to be the second best; False if the user named it.
    how : str
        Where the other labeling comes from.
    contributions : tuple of Contribution
        They sum to the difference of the scores; those of largest size first. What adds nothing is left out.
    """

    labels: Any
    against: Any
    score: float
    against_score: float
    exact: bool
    how: str
    contributions: tuple[Contribution, ...]

    @property
    def difference(self) -> float:
        """The sum of the contributions: by how much the score of the labeling is ahead."""
        return math.fsum(one.contribution for one in self.contributions)

    def to_frame(self) -> Any:
        """The contributions as a pandas data frame, a row for each."""
        return require_pandas().DataFrame(list(self.contributions), columns=list(Contribution._fields))

    def by(self, *columns: str) -> dict[Any, float]:
        """Sums of the contributions by one or several of their columns, largest first.

        Parameters
        ----------
        *columns : str
            Such as "part", "place" or "feature".
        """
        for name in columns:
            if name not in Contribution._fields:
                raise DataError(f"A contribution has no {name!r}; it has {', '.join(Contribution._fields)}.")
        terms: dict[Any, list[float]] = {}
        for one in self.contributions:
            key = tuple(getattr(one, name) for name in columns)
            terms.setdefault(key[0] if len(key) == 1 else key, []).append(one.contribution)
        sums = {key: math.fsum(values) for key, values in terms.items()}
        return dict(sorted(sums.items(), key=lambda pair: -pair[1]))

    def __str__(self) -> str:
        changes = list(
            dict.fromkeys(
                (one.place, one.labels, one.against)
                for one in self.contributions
                if one.part in ("feature", "intercept")
            )
        )
        lines = [
            f"score {self.score:.6g}, against {self.against_score:.6g}: ahead by {self.difference:.6g}",
            f"against: {self.how}",
        ]
        for place, one, other in changes[:_PRINTED]:
            lines.append(f"  {place + ': ' if place else ''}{one}, not {other}")
        if len(changes) > _PRINTED:
            lines.append(f"  and {len(changes) - _PRINTED} more")
        rows = [("contribution", "part", "place", "labels", "feature", "value", "weight")]
        rows += [
            (f"{c.contribution:+.4g}", c.part, c.place, _words(c), c.feature, f"{c.value:.4g}", f"{c.weight:+.4g}")
            for c in self.contributions[:_PRINTED]
        ]
        rest = self.contributions[_PRINTED:]
        if rest:
            rows.append((f"{math.fsum(c.contribution for c in rest):+.4g}", f"{len(rest)} more", "", "", "", "", ""))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines += [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
        ]
        return "\n".join(lines)


def _words(one: Contribution) -> str:
    return f"{one.labels}, not {one.against}"


class Explainable:
    """What estimators of factor graphs say of one prediction."""

    def explain(self, x: Any, against: Any = None) -> Explanation:
        """By which features, and which pairs or transitions, the prediction of an example beats the runner-up.

        Parameters
        ----------
        x : one example
            A row of features (`BinarySVM`, `MultiClassSVM`, `MultiLabelSVM`), a sequence (`ChainSVM`) or a graph (`GraphSVM`).
        against : labeling, optional
            The other labeling, as `predict` would have it: a class, labels, tags of a sequence, labels of a graph's nodes. By
            default the second best, which is exact on graphs without cycles, and wherever the engine's bound proves it; `how` says
            which.

        Returns
        -------
        Explanation
            With `contributions` that sum to the difference of the two scores; `str`, `to_frame` and
            `maxmargin.plot_explanation` show them.
        """
        check_is_fitted(self)
        model: Any = self
        problem: FactorGraphs = model._new_problem(one_example(model, x))
        weights = np.ascontiguousarray(
            model._flat_weights(problem)
            if hasattr(model, "_flat_weights")
            else prediction_weights(model, problem.variable_features)
        )
        engine, reason = model._engine(problem)
        found = predict(problem, weights, engine, model.n_jobs)
        scores = problem.scores(weights)
        if against is None:
            second = runner_up(problem, scores, found.labels, engine, model.n_jobs)
            if second is None:
                raise DataError("The constraints allow one labeling only: there is no other to compare it with.")
            other, how = second.labels, f"the runner-up ({second.how})"
            best = bool(found.bounds[0] <= found.values[0] + _ROUNDING * (1.0 + abs(found.values[0])))
            exact = second.exact and best
            if not best:
                how += f"; the prediction itself may not be the best labeling ({reason})"
        else:
            other, how, exact = _states(model, against, problem), "the labeling that was given", False
        values = problem.labeling_scores(scores, other)
        if np.isneginf(values[0]):
            raise DataError("The labeling to compare with is forbidden by the constraints: its score is -inf.")
        terms = _contributions(model, problem, weights, found.labels, other)
        chosen = _present(model, found.labels, problem)
        return Explanation(
            chosen, _present(model, other, problem), float(found.values[0]), float(values[0]), exact, how, terms
        )


# --------------------------------------------------------------------------------------------------------------------
# One example, and labelings of it


def one_example(model: Any, x: Any) -> Any:
    """The inputs of a batch with this example alone."""
    if model.task in ("chain", "graph"):
        if model.task == "graph" and isinstance(x, list) and x and isinstance(x[0], tuple):
            raise DataError(
                "explain takes one graph, (node_features, edges), and this is a list of graphs; give graphs[0]."
            )
        return [x]
    if hasattr(x, "iloc"):
        rows = x.to_frame().T if x.ndim == 1 else x
    elif sp.issparse(x):
        rows = x
    else:
        rows = np.asarray(x)
        rows = rows.reshape(1, -1) if rows.ndim == 1 else rows
    if rows.ndim == 2 and rows.shape[0] != 1:
        raise DataError(f"explain takes one example, and x has {rows.shape[0]} rows; give one of them, such as X[:1].")
    return rows


def _states(model: Any, against: Any, problem: FactorGraphs) -> NDArray[np.int32]:
    """The states of a labeling that a user names."""
    n = int(problem.example_variables[-1])
    if model.task == "multi-label":
        flat = isinstance(against, np.ndarray) or (
            isinstance(against, list | tuple) and not model._lists and len(against) == n
        )
        states = model._encode(np.reshape(against, (1, -1)) if flat else [against])
        return np.ascontiguousarray(states.ravel(), np.int32)
    if model.task in ("binary", "multi-class"):
        values = [against]
    else:
        words = ("sequence", "position", "tag") if model.task == "chain" else ("graph", "node", "label")
        values = target.labels_of_parts(against, 0, n, *words)
    states = target.states_of(values, model.classes_)
    if (states < 0).any():
        unknown = values[int((states < 0).argmax())]
        raise DataError(f"against has {unknown!r}, which was not seen in training; known: {model.classes_.tolist()}.")
    return states


def _present(model: Any, states: NDArray[np.int32], problem: FactorGraphs) -> Any:
    if model.task in ("binary", "multi-class"):
        return model.classes_[states[0]]
    return model._present(states, problem)[0]


# --------------------------------------------------------------------------------------------------------------------
# Contributions


def _contributions(
    model: Any, problem: FactorGraphs, weights: NDArray[np.float64], chosen: NDArray[np.int32], other: NDArray[np.int32]
) -> tuple[Contribution, ...]:
    structure, first = problem.structures[problem.structure_of[0]], problem.arrays.examples[0]
    of_variables, of_factors = problem.split_weights(weights)
    names, terms = Names(model), list[Contribution]()
    for i in np.flatnonzero(chosen != other).tolist():
        template = problem.variable_templates[structure.variable_templates[i]]
        change = _block(of_variables, template.blocks[chosen[i]]) - _block(of_variables, template.blocks[other[i]])
        row = int(first.variable_row) + int(structure.variable_rows[i])
        for k, value, weight in _products(problem.variable_features.matrix(), row, change):
            part, feature = names.of_variable(k)
            place, one, two = names.at_variable(i, int(chosen[i]), int(other[i]))
            terms.append(Contribution(part, place, one, two, feature, value, weight, value * weight))
    for c, scope in enumerate(structure.scope_lists()):
        if (chosen[scope] == other[scope]).all():
            continue
        template = problem.factor_templates[structure.factor_templates[c]]
        blocks = template.blocks[tuple(chosen[scope])], template.blocks[tuple(other[scope])]
        change = _block(of_factors, blocks[0]) - _block(of_factors, blocks[1])
        row = int(first.factor_row) + int(structure.factor_rows[c])
        for k, value, weight in _products(problem.factor_features.matrix(), row, change):
            part, feature = names.of_factor(k, scope, max(blocks))
            place, one, two = names.at_factor(scope, chosen[scope].tolist(), other[scope].tolist())
            terms.append(Contribution(part, place, one, two, feature, value, weight, value * weight))
    return tuple(sorted(terms, key=lambda one: -abs(one.contribution)))


def _block(weights: NDArray[np.float64], block: int) -> NDArray[np.float64]:
    return weights[block] if block >= 0 else np.zeros(weights.shape[1])


def _products(matrix: Any, row: int, change: NDArray[np.float64]) -> list[tuple[int, float, float]]:
    """Columns of a row, their values and the change of their weights, where neither is 0."""
    if hasattr(matrix, "indptr"):
        own = slice(matrix.indptr[row], matrix.indptr[row + 1])
        columns, values = matrix.indices[own], matrix.data[own].astype(np.float64)
    else:
        columns, values = np.arange(matrix.shape[1]), np.asarray(matrix[row], np.float64)
    kept = (values != 0) & (change[columns] != 0)
    columns, values = columns[kept], values[kept]
    return list(zip(columns.tolist(), values.tolist(), change[columns].tolist(), strict=True))


class Names:
    """What the variables, factors and features of a problem are called."""

    def __init__(self, model: Any) -> None:
        self.model, self.task = model, model.task
        self.class_wise = getattr(model, "node_weights", "full") == "class-wise"
        self.features = feature_names(model)
        self.classes = [str(one) for one in model.classes_.tolist()]
        self.n_columns = len(self.features) if is_linear(model) and not self.class_wise else 0

    def of_variable(self, k: int) -> tuple[str, str]:
        """The part and the name of column k of the variables' features."""
        if self.class_wise:
            return "intercept", INTERCEPT
        if not is_linear(self.model):
            return "feature", "(score by the kernel)"
        return ("feature", self.features[k]) if k < self.n_columns else ("intercept", INTERCEPT)

    def at_variable(self, i: int, one: int, other: int) -> tuple[str, str, str]:
        """The place of variable i, and its labels."""
        if self.task == "multi-label":
            return self.classes[i], "on" if one else "off", "on" if other else "off"
        place = {"chain": f"position {i}", "graph": f"node {i}"}.get(self.task, "")
        return place, self.classes[one], self.classes[other]

    def of_factor(self, k: int, scope: list[int], block: int) -> tuple[str, str]:
        """The part and the name of column k of the factors' features."""
        if self.task == "multi-label":
            return "pair", ""
        if self.task == "graph":
            if len(scope) == 1:
                return "feature", self.features[0]
            if getattr(self.model, "edge_kernel", "linear") != "linear":
                return "edge", "(score by the kernel)"
            names = edge_feature_names(self.model)
            return "edge", names[k] if self.model.n_edge_features_in_ else ""
        if len(scope) == 1:
            start = chain_blocks(len(self.classes), bool(self.model.boundary), self.model.order)["start"]
            return ("start" if start.start <= block < start.stop else "end"), ""
        of_features = self.model.emission_order and k < len(self.features)
        return "transition", self.features[k] if of_features else ""

    def at_factor(self, scope: list[int], one: list[int], other: list[int]) -> tuple[str, str, str]:
        """The place of a factor, and its labels."""
        if self.task == "multi-label":
            words = ("off", "on")
            place = " + ".join(self.classes[i] for i in scope)
            return place, " + ".join(words[k] for k in one), " + ".join(words[k] for k in other)
        noun = ("position" if self.task == "chain" else "node") + ("s" if len(scope) > 1 else "")
        place = f"{noun} {'-'.join(str(i) for i in scope)}"
        arrow = " > " if self.task == "chain" else " - "
        return place, arrow.join(self.classes[k] for k in one), arrow.join(self.classes[k] for k in other)

"""Templates: how weights are shared, and the graph shapes that use them.

A `Template` maps each (joint) state of a variable or factor to a *block*, a row of the weight matrix, or to -1 for
"scores 0"; it may add fixed, unlearned scores, where ``-inf`` forbids the state. A `Structure` is the shape of one
example's graph: which template and which feature row each variable and factor has, and each factor's scope. Examples of
the same shape (all multi-label examples; all chains of one length) share one structure, so memory holds each shape once.

Joint states are numbered in C order: the last variable of the scope changes fastest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from maxmargin.errors import DataError


@dataclass(frozen=True, eq=False)
class Template:
    """How the states of a variable, or the joint states of a factor, are scored.

    Parameters
    ----------
    blocks : int array of shape (n_states of each variable in the scope, ...)
        Row of the weight matrix for each (joint) state, or -1 if the state scores 0.
    scores : float array of the same shape, optional
        Fixed scores, added to the learned ones; ``-inf`` forbids a state.
    """

    blocks: Any
    scores: Any = None
    n_states: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        blocks = np.ascontiguousarray(self.blocks, np.int32)
        if blocks.ndim == 0 or blocks.size == 0:
            raise DataError(f"A template needs at least one state for each variable; its blocks have shape {blocks.shape}.")
        if blocks.min() < -1:
            raise DataError(f"A template names block {blocks.min()}; blocks are rows of the weight matrix, or -1.")
        scores = np.zeros(blocks.shape) if self.scores is None else np.ascontiguousarray(self.scores, np.float64)
        if scores.shape != blocks.shape:
            raise DataError(f"A template's fixed scores have shape {scores.shape}; its blocks have {blocks.shape}.")
        if np.isnan(scores).any() or np.isposinf(scores).any():
            raise DataError("A template's fixed scores must be finite numbers, or -inf to forbid a state.")
        if np.isneginf(scores).all():
            raise DataError("A template forbids all of its states; at least one must be allowed.")
        object.__setattr__(self, "blocks", blocks)
        object.__setattr__(self, "scores", scores)
        object.__setattr__(self, "n_states", blocks.shape)

    @property
    def arity(self) -> int:
        """Number of variables in the scope."""
        return len(self.n_states)


@dataclass(frozen=True, eq=False)
class Structure:
    """The shape of one example's graph.

    Parameters
    ----------
    variable_templates : int array (n,)
        Template of each variable.
    variable_rows : int array (n,)
        Feature row of each variable, counted from the example's first row.
    factor_templates, factor_rows : int arrays (F,)
        The same for factors.
    scopes : list of tuples of int, or int array (F, arity)
        The variables of each factor, numbered inside the example.
    """

    variable_templates: Any
    variable_rows: Any
    factor_templates: Any = ()
    factor_rows: Any = ()
    scopes: Any = ()

    def __post_init__(self) -> None:
        for name in ("variable_templates", "variable_rows", "factor_templates", "factor_rows"):
            object.__setattr__(self, name, _vector(getattr(self, name), name))
        if len(self.variable_templates) != len(self.variable_rows):
            raise DataError(
                f"A structure has {len(self.variable_templates)} variable templates and {len(self.variable_rows)} "
                "variable rows; it needs one of each per variable."
            )
        scopes = [tuple(int(v) for v in scope) for scope in self.scopes]
        if not len(self.factor_templates) == len(self.factor_rows) == len(scopes):
            raise DataError(
                f"A structure has {len(self.factor_templates)} factor templates, {len(self.factor_rows)} factor rows and "
                f"{len(scopes)} scopes; it needs one of each per factor."
            )
        n = len(self.variable_templates)
        for c, scope in enumerate(scopes):
            if any(v < 0 or v >= n for v in scope):
                raise DataError(f"Factor {c} joins variables {scope}, but the example has variables 0 to {n - 1} only.")
            if len(set(scope)) != len(scope):
                raise DataError(f"Factor {c} joins variables {scope}: a variable may stand in a scope only once.")
        object.__setattr__(self, "scopes", scopes)

    def is_forest(self) -> bool:
        """Whether the graph of variables and factors has no cycle, so that the local polytope is exact."""
        parent = list(range(len(self.variable_templates)))

        def root(v: int) -> int:
            while parent[v] != v:
                parent[v] = parent[parent[v]]
                v = parent[v]
            return v

        for scope in self.scopes:
            roots = {root(v) for v in scope}
            if len(roots) < len(scope):
                return False
            first = roots.pop()
            for other in roots:
                parent[other] = first
        return True


def _vector(values: ArrayLike, name: str) -> NDArray[np.int32]:
    vector = np.asarray(values)
    if vector.size == 0:
        return np.empty(0, np.int32)
    if vector.ndim != 1 or not np.issubdtype(vector.dtype, np.integer):
        raise DataError(f"{name} must be a vector of whole numbers; found shape {vector.shape}, dtype {vector.dtype}.")
    return vector.astype(np.int32)

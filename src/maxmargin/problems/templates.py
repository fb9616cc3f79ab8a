"""Templates: how weights are shared, and the graph shapes that use them.

A `Template` maps each (joint) state of a variable or factor to a *block*, a row of the weight matrix, or to -1 for
"scores 0"; it may add fixed, unlearned scores, where ``-inf`` forbids the state. A `Structure` is the shape of one
example's graph: which template and which feature row each variable and factor has, and each factor's scope. Examples of
the same shape (all multi-label examples; all chains of one length) share one structure, so memory holds each shape
once.

Joint states are numbered in C order: the last variable of the scope changes fastest.

Factors that are too big for a table have templates of their own, with parameters in place of joint states
(structured.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from maxmargin.errors import DataError

# Kinds of templates: a table of joint states, and the structured ones.
TABLE, CARDINALITY, TREE, CUSTOM = range(4)


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
    #: TABLE, or the kind of a structured factor, and what sentences call it.
    kind: int = field(default=TABLE, init=False)
    name: str = field(default="table", init=False)

    def __post_init__(self) -> None:
        blocks = np.asarray(self.blocks)
        if blocks.ndim == 0 or blocks.size == 0:
            raise DataError(f"A template needs at least one state a variable; its blocks have shape {blocks.shape}.")
        if not np.issubdtype(blocks.dtype, np.integer):
            raise DataError(f"A template's blocks must be whole numbers; found dtype {blocks.dtype}.")
        blocks = np.ascontiguousarray(blocks, np.int32)
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

    def data(self) -> NDArray[np.int64]:
        """What kernels need to know of a structured factor beside its parameters; nothing for a table."""
        return np.empty(0, np.int64)


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

    Attributes
    ----------
    scope : int array
        All scopes, one after the other.
    arity : int array (F,)
        Number of variables in each.
    """

    variable_templates: Any
    variable_rows: Any
    factor_templates: Any = ()
    factor_rows: Any = ()
    scopes: Any = ()
    scope: NDArray[np.int64] = field(init=False, repr=False)
    arity: NDArray[np.int64] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("variable_templates", "variable_rows", "factor_templates", "factor_rows"):
            object.__setattr__(self, name, _vector(getattr(self, name), name).astype(np.int32))
        if len(self.variable_templates) != len(self.variable_rows):
            raise DataError(
                f"A structure has {len(self.variable_templates)} variable templates and {len(self.variable_rows)} "
                "variable rows; it needs one of each per variable."
            )
        if not len(self.factor_templates) == len(self.factor_rows) == len(self.scopes):
            raise DataError(
                f"A structure has {len(self.factor_templates)} factor templates, {len(self.factor_rows)} factor rows "
                f"and {len(self.scopes)} scopes; it needs one of each per factor."
            )
        if isinstance(self.scopes, np.ndarray) and self.scopes.ndim == 2:
            arity = np.full(len(self.scopes), self.scopes.shape[1], np.int64)
            scope = self.scopes.ravel()
        else:
            object.__setattr__(self, "scopes", [tuple(one) for one in self.scopes])
            arity = np.array([len(one) for one in self.scopes], np.int64)
            scope = np.array([v for one in self.scopes for v in one])
        object.__setattr__(self, "arity", arity)
        object.__setattr__(self, "scope", _vector(scope, "scopes"))
        self._check_scopes()

    def _check_scopes(self) -> None:
        n = len(self.variable_templates)
        factor = np.repeat(np.arange(len(self.arity)), self.arity)
        wrong = np.flatnonzero((self.scope < 0) | (self.scope >= n))
        if len(wrong):
            c = int(factor[wrong[0]])
            raise DataError(
                f"Factor {c} joins variables {self._shown(c)}, but the example has variables 0 to {n - 1} only."
            )
        keys = np.sort(factor * n + self.scope)
        twice = np.flatnonzero(keys[1:] == keys[:-1])
        if len(twice):
            c = int(keys[twice[0]] // n)
            raise DataError(f"Factor {c} joins variables {self._shown(c)}: a variable may stand in a scope only once.")

    def _shown(self, factor: int) -> tuple[int, ...]:
        return tuple(int(v) for v in self.scopes[factor])

    def scope_lists(self) -> list[list[int]]:
        """The variables of each factor, as lists of plain ints."""
        scope, ends = self.scope.tolist(), np.cumsum(self.arity).tolist()
        return [scope[end - n : end] for n, end in zip(self.arity.tolist(), ends, strict=True)]

    def is_forest(self) -> bool:
        """Whether the graph of variables and factors has no cycle, so that the local polytope is exact."""
        return self._is_forest

    @cached_property
    def _is_forest(self) -> bool:
        n = len(self.variable_templates)
        # Each factor joins `arity` trees into one, so most graphs have too many to be forests.
        if self.arity.sum() - len(self.arity) >= n:
            return False
        parent = list(range(n))

        def root(v: int) -> int:
            while parent[v] != v:
                parent[v] = parent[parent[v]]
                v = parent[v]
            return v

        for scope in filter(None, self.scope_lists()):
            roots = {root(v) for v in scope}
            if len(roots) < len(scope):
                return False
            first = roots.pop()
            for other in roots:
                parent[other] = first
        return True


def first_repeat(edges: NDArray[np.int64]) -> tuple[int, int] | None:
    """The first edge (E, 2) that joins the same two ends as an earlier one, in either order: (earlier, later)."""
    if len(edges) < 2:
        return None
    low, high = edges.min(axis=1), edges.max(axis=1)
    keys = low * (high.max() + 1) + high
    order = np.argsort(keys, kind="stable")
    repeats = np.flatnonzero(keys[order[1:]] == keys[order[:-1]])
    if len(repeats) == 0:
        return None
    at = repeats[np.argmin(order[repeats + 1])]
    return int(order[at]), int(order[at + 1])


def _vector(values: ArrayLike, name: str) -> NDArray[np.int64]:
    vector = np.asarray(values)
    if vector.size == 0:
        return np.empty(0, np.int64)
    if vector.ndim != 1 or not np.issubdtype(vector.dtype, np.integer):
        raise DataError(f"{name} must be a vector of whole numbers; found shape {vector.shape}, dtype {vector.dtype}.")
    return vector.astype(np.int64)

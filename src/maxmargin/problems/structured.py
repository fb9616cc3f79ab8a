"""Structured factors: factors over many variables, too big for a table, that answer their own maximisation.

A factor over a scope c of n variables has P parameters theta and sufficient statistics F(y_c) in R^P:

    score_c(y_c) = theta . F(y_c)                                                     (SoftBCFW: soft/structured.py)

The parameters stand where a table would: they have P entries in *tables* coordinates, and blocks, fixed scores and
features make them as they make a table (a table is the case in which F is the indicator of the joint state). A fixed
score of -inf forbids every labeling whose statistic there is not 0; 0 * -inf counts as 0.

| made by | P | F |
|---|---|---|
| `cardinality`, `at_most`, `exactly`, `at_least`, `at_least_one`, `exactly_one` | n + 1 | indicator of how many are in state 1 |
| `chain`, `tree` | K * K | how often each (state of the parent, state) occurs |
| `custom` | any | any |

What takes the place of a table's largest entries are two oracles, given unary scores u of the scope's states:

    max:            max_y  u(y) + theta . F(y),                  and its labels
    max-marginals:  max_{y: y_i = k}  u(y) + theta . F(y),       for every variable i and state k

Cardinality sorts the gains u_i(1) - u_i(0), O(n log n), and adds prefix and suffix maxima over the counts; a tree
passes messages up and down, O(n K^2); a custom factor is maximised once for the first, and once a state, with the
other states of its variable at -inf, for the second.

Custom factors
--------------
Two compiled functions, over the scope's states one variable after the other:

    maximise(unary, params, n_states, labels) -> float     writes the best labels (int32), returns their value
    statistics(labels, n_states, out)                      writes F(labels) into out (P,), float64

unary, params and out are float64, n_states is int64 (n,). Scores of -inf must be respected; -inf is the value if all
is forbidden. Kernels find the functions by their addresses, which are data (`structured` in the layout): kernels are
compiled once for all factors anyone writes, and stay cached. A call costs 7 to 10 ns. Numba's first-class functions
cache as well, but cost 21 ns a call and one more argument in every kernel. Addresses hold in one process only;
unpickled batches look theirs up again.

Conventions of the compiled functions
-------------------------------------
`t` is the factor's template, and `kinds`, `slots`, `structured` the layout's arrays; `unary` and `labels` belong to the
scope alone and begin at 0; the parameters begin at `at`. `work` (float64) and `order` (int64) are scratch of at least
`work_size(largest)` entries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped, unused-ignore]
from numba.core.errors import NumbaError
from numba.extending import intrinsic
from numpy.typing import ArrayLike, NDArray

from maxmargin.errors import DataError
from maxmargin.jit import Struct, inner
from maxmargin.problems.templates import CARDINALITY, CUSTOM, TREE, Template


@dataclass(frozen=True, eq=False, kw_only=True)
class StructuredTemplate(Template):
    """How a structured factor is scored; made by the functions below.

    Parameters
    ----------
    blocks, scores : arrays (P,)
        Row of the weight matrix (or -1) and fixed score of each parameter.
    scope_states : tuple of int
        Number of states of each variable in the scope.
    kind : int
        CARDINALITY, TREE or CUSTOM.
    name : str
        What sentences call it.
    parents : int array (n,)
        Of a tree: the place of each variable's parent in the scope.
    maximise, statistics : compiled functions
        Of a custom factor.
    """

    scope_states: tuple[int, ...]
    kind: int
    name: str
    parents: Any = ()
    maximise: Any = None
    statistics: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "n_states", tuple(int(n) for n in self.scope_states))
        if len(self.n_states) == 0 or min(self.n_states) < 1:
            raise DataError(f"A {self.name} factor needs variables, of at least one state each; got {self.n_states}.")

    def data(self) -> NDArray[np.int64]:
        """What kernels need to know beside the parameters: the layout's `structured`."""
        if self.kind == TREE:
            return np.asarray(self.parents, np.int64)
        if self.kind == CUSTOM:
            return np.array(
                [_address(self.maximise, "maximise"), _address(self.statistics, "statistics"), *self.n_states], np.int64
            )
        return np.empty(0, np.int64)


def cardinality(n: int, scores: ArrayLike | None = None, blocks: ArrayLike | None = None) -> StructuredTemplate:
    """Score the number of variables in state 1, of n binary variables: one parameter for each of 0 to n.

    Parameters
    ----------
    n : int
        Number of variables.
    scores : array (n + 1,), optional
        Fixed score of each count; -inf forbids it. 0 by default.
    blocks : int array (n + 1,), optional
        Row of the weights that each count learns, or -1 for none, the default.
    """
    blocks, scores = _parameters("cardinality", n + 1, scores, blocks)
    return StructuredTemplate(blocks=blocks, scores=scores, scope_states=(2,) * n, kind=CARDINALITY, name="cardinality")


def at_most(n: int, k: int) -> StructuredTemplate:
    """Allow at most k of n binary variables to be in state 1.

    Parameters
    ----------
    n : int
        Number of variables.
    k : int
        Largest number of them in state 1.
    """
    return _counts("at_most", n, k, np.arange(n + 1) <= k)


def at_least(n: int, k: int) -> StructuredTemplate:
    """Demand that at least k of n binary variables are in state 1.

    Parameters
    ----------
    n : int
        Number of variables.
    k : int
        Least number of them in state 1.
    """
    return _counts("at_least", n, k, np.arange(n + 1) >= k)


def exactly(n: int, k: int) -> StructuredTemplate:
    """Demand that exactly k of n binary variables are in state 1.

    Parameters
    ----------
    n : int
        Number of variables.
    k : int
        Number of them in state 1.
    """
    return _counts("exactly", n, k, np.arange(n + 1) == k)


def at_least_one(n: int) -> StructuredTemplate:
    """Demand that one or more of n binary variables are in state 1.

    Parameters
    ----------
    n : int
        Number of variables.
    """
    return at_least(n, 1)


def exactly_one(n: int) -> StructuredTemplate:
    """Demand that one and only one of n binary variables is in state 1.

    Parameters
    ----------
    n : int
        Number of variables.
    """
    return exactly(n, 1)


def chain(
    n: int, n_states: int, scores: ArrayLike | None = None, blocks: ArrayLike | None = None
) -> StructuredTemplate:
    """Score each transition (y_j, y_{j+1}) along the scope: K * K parameters, in C order, shared by all places.

    Parameters
    ----------
    n : int
        Number of variables.
    n_states : int
        K.
    scores : array (K, K), optional
        Fixed score of each transition; -inf forbids it. 0 by default.
    blocks : int array (K, K), optional
        Row of the weights that each transition learns, or -1 for none, the default.
    """
    return _tree("chain", np.arange(n) - 1, n_states, scores, blocks)


def tree(
    parents: ArrayLike, n_states: int, scores: ArrayLike | None = None, blocks: ArrayLike | None = None
) -> StructuredTemplate:
    """Score each (state of the parent, state) of a tree: K * K parameters, in C order, shared by all places.

    Parameters
    ----------
    parents : int array (n,)
        Place of each variable's parent in the scope: -1 for the first variable, an earlier one for the others.
    n_states : int
        Number of states, K, of every variable.
    scores, blocks : arrays (K, K), optional
        Fixed scores (0 if left out; -inf forbids) and rows of the weight matrix (-1, none, if left out).
    """
    return _tree("tree", np.asarray(parents), n_states, scores, blocks)


def custom(
    n_states: Sequence[int],
    n_parameters: int,
    maximise: Callable[..., float],
    statistics: Callable[..., None],
    scores: ArrayLike | None = None,
    blocks: ArrayLike | None = None,
) -> StructuredTemplate:
    """Score labelings of a scope by two ``@njit`` functions of your own; the top of this file says what they are given.

    They are compiled and tried out here, on one random problem, so that a mistake is found before training.

    Parameters
    ----------
    n_states : sequence of int
        Number of states of each variable of the scope.
    n_parameters : int
        Number of parameters, and of statistics.
    maximise : compiled function
        ``maximise(unary, params, n_states, labels)`` writes the best labels and returns their score.
    statistics : compiled function
        ``statistics(labels, n_states, out)`` writes the statistics of labels into `out`.
    scores : array (n_parameters,), optional
        Fixed score of each parameter; 0 by default.
    blocks : int array (n_parameters,), optional
        Row of the weights that each parameter learns, or -1 for none, the default.
    """
    blocks, scores = _parameters("custom", n_parameters, scores, blocks)
    made = StructuredTemplate(
        blocks=blocks, scores=scores, scope_states=tuple(n_states), kind=CUSTOM, name="custom",
        maximise=_compiled(maximise), statistics=_compiled(statistics),
    )  # fmt: skip
    made.data()
    _try_out(made)
    return made


class FactorRoom(Struct):
    """Room for the labels of a structured factor, and to work in."""

    labels: NDArray[np.int32]
    work: NDArray[np.float64]


def work_size(largest: Any) -> int:
    """Scratch that every structured factor of a batch can work in; `largest` is the layout's."""
    return int(2 * largest.slots + largest.table + 2)


def _parameters(name: str, size: int, scores: Any, blocks: Any) -> tuple[Any, Any]:
    blocks = np.full(max(size, 0), -1) if blocks is None else np.asarray(blocks).ravel()
    scores = np.zeros(max(size, 0)) if scores is None else np.asarray(scores, np.float64).ravel()
    for what, values in (("blocks", blocks), ("scores", scores)):
        if size < 1 or len(values) != size:
            raise DataError(f"A {name} factor of this size has {size} parameters; got {len(values)} {what}.")
    return blocks, scores


def _counts(name: str, n: int, k: int, allowed: NDArray[np.bool_]) -> StructuredTemplate:
    if k < 0 or not allowed.any():
        raise DataError(f"{name}({n}, {k}) is not possible: of {n} variables, 0 to {n} can be in state 1.")
    return cardinality(n, np.where(allowed, 0.0, -np.inf))


def _tree(name: str, parents: NDArray[Any], n_states: int, scores: Any, blocks: Any) -> StructuredTemplate:
    blocks, scores = _parameters(name, n_states * n_states, scores, blocks)
    wrong = np.flatnonzero((parents < -1) | (parents >= np.arange(len(parents))) | ((parents < 0) & (parents != -1)))
    roots = np.flatnonzero(parents == -1)
    if len(parents) and (len(wrong) or len(roots) != 1):
        j = int(wrong[0]) if len(wrong) else int(roots[1])
        raise DataError(
            f"Variable {j} of a tree has parent {parents[j]}; the first has -1, and each other an earlier one."
        )
    return StructuredTemplate(
        blocks=blocks, scores=scores, scope_states=(n_states,) * len(parents), kind=TREE, name=name,
        parents=parents.astype(np.int64),
    )  # fmt: skip


# --------------------------------------------------------------------------------------------- custom functions

# Numba's stubs do not know all of these.
_numba: Any = numba
carray, cfunc, njit, types = _numba.carray, _numba.cfunc, _numba.njit, _numba.types
COMPILED: bool = not _numba.config.DISABLE_JIT

_float, _long, _int = types.float64, types.int64, types.int32
_floats, _longs, _ints = (types.CPointer(one) for one in (_float, _long, _int))
# As C sees them, arrays are pointers and lengths.
_SIGNATURES = {
    "maximise": _float(_floats, _long, _floats, _long, _longs, _ints, _long),
    "statistics": types.void(_ints, _longs, _long, _floats, _long),
}
# Functions by address, so that they stay alive; without compilation, an address is a place in this list.
_kept: list[Any] = []


def _compiled(function: Any) -> Any:
    return function if hasattr(function, "py_func") else njit(function)


@cache
def _address(function: Any, role: str) -> int:
    """The address of a user's function, as a C function."""
    if not COMPILED:
        _kept.append(function)
        return len(_kept) - 1

    def maximise(u: Any, n_u: Any, p: Any, n_p: Any, n_states: Any, labels: Any, n: Any) -> Any:
        return function(carray(u, (n_u,)), carray(p, (n_p,)), carray(n_states, (n,)), carray(labels, (n,)))

    def statistics(labels: Any, n_states: Any, n: Any, out: Any, n_p: Any) -> None:
        function(carray(labels, (n,)), carray(n_states, (n,)), carray(out, (n_p,)))

    try:
        made = cfunc(_SIGNATURES[role])(maximise if role == "maximise" else statistics)
    except NumbaError as error:
        given = "(unary, params, n_states, labels)" if role == "maximise" else "(labels, n_states, out)"
        raise DataError(f"A custom factor's {role}{given} does not compile: {error}") from error
    _kept.append(made)
    return int(made.address)


def _try_out(template: StructuredTemplate) -> None:
    """Refuse functions that contradict each other."""
    rng = np.random.default_rng(0)
    n_states = np.array(template.n_states, np.int64)
    params = rng.normal(size=template.blocks.size)
    unary, labels = rng.normal(size=int(n_states.sum())), np.full(len(n_states), -1, np.int32)
    value = template.maximise(unary, params, n_states, labels)
    if (labels < 0).any() or (labels >= n_states).any():
        i = int(np.flatnonzero((labels < 0) | (labels >= n_states))[0])
        raise DataError(
            f"A custom factor's maximise gave variable {i} the label {labels[i]}; its states are 0 to {n_states[i] - 1}."
        )
    found = np.full(len(params), np.nan)
    template.statistics(labels, n_states, found)
    if not np.isfinite(found).all():
        raise DataError("A custom factor's statistics must write a finite number for each of its parameters.")
    starts = np.cumsum(n_states) - n_states
    expected = float(unary[starts + labels].sum() + params @ found)
    if not abs(value - expected) <= 1e-6 * (1.0 + abs(expected)):
        raise DataError(
            f"A custom factor's maximise returned {value:g} for labels that score {expected:g}, by its statistics."
        )


if not COMPILED:

    def _call_maximise(address: Any, unary: Any, params: Any, n_states: Any, labels: Any) -> Any:
        return _kept[address](unary, params, n_states, labels)

    def _call_statistics(address: Any, labels: Any, n_states: Any, out: Any) -> None:
        _kept[address](labels, n_states, out)

else:

    def _pointers(context: Any, builder: Any, kinds: Any, values: Any) -> list[Any]:
        return [context.make_array(kind)(context, builder, value) for kind, value in zip(kinds, values, strict=True)]

    def _jump(builder: Any, address: Any, result: Any, values: list[Any]) -> Any:
        kind = ir.FunctionType(result, [value.type for value in values])
        return builder.call(builder.inttoptr(address, kind.as_pointer()), values)

    @intrinsic
    def _call_maximise(typing: Any, address: Any, unary: Any, params: Any, n_states: Any, labels: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            u, p, s, y = _pointers(context, builder, signature.args[1:], values[1:])
            given = [u.data, u.nitems, p.data, p.nitems, s.data, y.data, y.nitems]
            return _jump(builder, values[0], ir.DoubleType(), given)

        return _float(address, unary, params, n_states, labels), generate

    @intrinsic
    def _call_statistics(typing: Any, address: Any, labels: Any, n_states: Any, out: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            y, s, f = _pointers(context, builder, signature.args[1:], values[1:])
            _jump(builder, values[0], ir.VoidType(), [y.data, s.data, y.nitems, f.data, f.nitems])
            return context.get_dummy_value()

        return types.void(address, labels, n_states, out), generate


# ------------------------------------------------------------------------------------------------------- kernels


@inner
def structured_statistics(t: int, kinds: Any, slots: Any, structured: Any, labels: Any, out: Any, to: int) -> None:
    """out[to : to + P] = F(labels)."""
    n, data, kind = kinds[t].arity, kinds[t].first_data, kinds[t].kind
    if kind == CUSTOM:
        _call_statistics(
            structured[data + 1], labels[:n], structured[data + 2 : data + 2 + n], out[to : to + kinds[t].entries]
        )
        return
    for p in range(kinds[t].entries):
        out[to + p] = 0.0
    if kind == CARDINALITY:
        count = 0
        for j in range(n):
            count += labels[j]
        out[to + count] = 1.0
        return
    n_states = slots[kinds[t].slots].states
    for j in range(1, n):
        out[to + labels[structured[data + j]] * n_states + labels[j]] += 1.0


@inner
def structured_score(
    t: int, kinds: Any, slots: Any, structured: Any, params: Any, at: int, labels: Any, work: Any
) -> Any:
    """Score of a labeling of the scope, theta . F(labels)."""
    n, data = kinds[t].arity, kinds[t].first_data
    total = 0.0
    if kinds[t].kind == CARDINALITY:
        count = 0
        for j in range(n):
            count += labels[j]
        total = params[at + count]
    elif kinds[t].kind == TREE:
        n_states = slots[kinds[t].slots].states
        for j in range(1, n):
            total += params[at + labels[structured[data + j]] * n_states + labels[j]]
    else:
        structured_statistics(t, kinds, slots, structured, labels, work, 0)
        for p in range(kinds[t].entries):
            if work[p] != 0.0:
                total += work[p] * params[at + p]
    return total


@inner
def structured_max(
    t: int, kinds: Any, slots: Any, structured: Any, unary: Any, params: Any, at: int, labels: Any, work: Any,
    order: Any,
) -> Any:  # fmt: skip
    """Best labels of the scope, and their value; the labels mean nothing if it is -inf."""
    n, data, kind = kinds[t].arity, kinds[t].first_data, kinds[t].kind
    if kind == CARDINALITY:
        low, high = _sorted_gains(n, unary, work, order)
        best, value = 0, -np.inf
        for k in range(low, high + 1):
            if params[at + k] + work[n + k] > value:
                best, value = k, params[at + k] + work[n + k]
        for p in range(n):
            labels[order[p]] = 1 if p < best else 0
        return value
    if kind == CUSTOM:
        return _call_maximise(
            structured[data], unary[: _end(t, kinds, slots)], params[at : at + kinds[t].entries],
            structured[data + 2 : data + 2 + n], labels[:n],
        )  # fmt: skip
    n_states = slots[kinds[t].slots].states
    for i in range(n * n_states):
        work[i] = unary[i]
    _tree_up(n, n_states, structured, data, params, at, work)
    for j in range(n):
        row = at + (labels[structured[data + j]] * n_states if j > 0 else 0)
        best, top = 0, -np.inf
        for k in range(n_states):
            value = work[j * n_states + k] + (params[row + k] if j > 0 else 0.0)
            if value > top:
                best, top = k, value
        labels[j] = best
        if j == 0:
            result = top
    return result


@inner
def structured_max_marginals(
    t: int, only: int, kinds: Any, slots: Any, structured: Any, unary: Any, params: Any, at: int, out: Any, work: Any,
    order: Any, labels: Any,
) -> None:  # fmt: skip
    """out[i, k] = the best value with variable i of the scope in state k, in the places of unary.

    With `only` not below 0, only those of that variable are needed, and others may be left out; labels is scratch.
    """
    n, data, kind = kinds[t].arity, kinds[t].first_data, kinds[t].kind
    if kind == CARDINALITY:
        _count_marginals(n, unary, params, at, out, work, order)
        return
    if kind == CUSTOM:
        last, first_slot = _end(t, kinds, slots), kinds[t].slots
        for i in range(last):
            work[i] = unary[i]
        for j in range(n) if only < 0 else range(only, only + 1):
            first = slots[first_slot + j].delta
            end = first + slots[first_slot + j].states
            work[first:end] = -np.inf
            for i in range(first, end):
                out[i] = -np.inf
                if unary[i] > -np.inf:
                    work[i] = unary[i]
                    out[i] = _call_maximise(
                        structured[data], work[:last], params[at : at + kinds[t].entries],
                        structured[data + 2 : data + 2 + n], labels[:n],
                    )  # fmt: skip
                    work[i] = -np.inf
            for i in range(first, end):
                work[i] = unary[i]
        return
    n_states = slots[kinds[t].slots].states
    for i in range(n * n_states):
        out[i] = unary[i]
    # Going down, a variable hears from its parent all but what it told it on the way up.
    _tree_up(n, n_states, structured, data, params, at, out)
    for j in range(1, n):
        parent = structured[data + j] * n_states
        for k in range(n_states):
            told = -np.inf
            for y in range(n_states):
                told = max(told, params[at + k * n_states + y] + out[j * n_states + y])
            # Where the parent's state is forbidden already, -inf - -inf would be NaN.
            work[k] = out[parent + k] - told if out[parent + k] > -np.inf else -np.inf
        for y in range(n_states):
            heard = -np.inf
            for k in range(n_states):
                heard = max(heard, params[at + k * n_states + y] + work[k])
            out[j * n_states + y] += heard


@inner
def _end(t: int, kinds: Any, slots: Any) -> Any:
    """Number of states of a scope."""
    last = kinds[t].slots + kinds[t].arity - 1
    return slots[last].delta + slots[last].states


@inner
def _tree_up(n: int, n_states: int, structured: Any, data: int, params: Any, at: int, up: Any) -> None:
    """Add to each variable's states the best of all that hangs below it."""
    for j in range(n - 1, 0, -1):
        parent = structured[data + j] * n_states
        for k in range(n_states):
            best = -np.inf
            for y in range(n_states):
                best = max(best, params[at + k * n_states + y] + up[j * n_states + y])
            up[parent + k] += best


@inner
def _sorted_gains(n: int, unary: Any, work: Any, order: Any) -> tuple[int, int]:
    """Sort variables by u(1) - u(0), largest first, and return the smallest and largest count that unary allows.

    Then work[p], p < n, is the gain of order[p], and work[n + k] the best sum of unary scores with k in state 1. Of
    equal gains the first variable's comes first.
    """
    low, high, base = 0, n, 0.0
    for i in range(n):
        zero, one = unary[2 * i], unary[2 * i + 1]
        order[i] = i
        if zero == -np.inf:
            # In state 1 whatever it costs, or nothing is allowed at all.
            low += 1
            work[i] = np.inf
            base += one
        else:
            work[i] = one - zero
            base += zero
            if one == -np.inf:
                high -= 1
    # Shell's method, in place; scopes are small, and after the first round of a solver nearly sorted.
    gap = n // 2
    while gap > 0:
        for i in range(gap, n):
            gain, who = work[i], order[i]
            j = i
            while j >= gap and (work[j - gap] < gain or (work[j - gap] == gain and order[j - gap] > who)):
                work[j], order[j] = work[j - gap], order[j - gap]
                j -= gap
            work[j], order[j] = gain, who
        gap //= 2
    for k in range(n + 1):
        if k < low or k > high:
            work[n + k] = -np.inf
        else:
            work[n + k] = base if k == low else work[n + k - 1] + work[k - 1]
    return low, high


@inner
def _count_marginals(n: int, unary: Any, params: Any, at: int, out: Any, work: Any, order: Any) -> None:
    """Max-marginals of a cardinality factor.

    With v(k) the best sum of k variables in state 1, and g the gain of the variable at place p of the sorted order:
    state 1 keeps v(k) for k > p, and has v(k - 1) + g for k <= p; state 0 keeps v(k) for k <= p, and has v(k + 1) - g
    for k > p.
    """
    low, high = _sorted_gains(n, unary, work, order)
    keep, take = -np.inf, -np.inf
    for p in range(n):
        keep = max(keep, params[at + p] + work[n + p])
        if p > 0:
            take = max(take, params[at + p] + work[n + p - 1])
        out[2 * order[p]] = keep
        out[2 * order[p] + 1] = work[p] + take if low <= p < high else -np.inf
    keep, drop = -np.inf, -np.inf
    for p in range(n - 1, -1, -1):
        keep = max(keep, params[at + p + 1] + work[n + p + 1])
        if p < n - 1:
            drop = max(drop, params[at + p + 1] + work[n + p + 2])
        zero, one = 2 * order[p], 2 * order[p] + 1
        out[one] = max(out[one], keep)
        if low <= p < high:
            out[zero] = max(out[zero], drop - work[p])
        if p < low:
            out[zero] = -np.inf
        if p >= high:
            out[one] = -np.inf

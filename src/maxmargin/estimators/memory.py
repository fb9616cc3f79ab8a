"""``max_memory``: what training would take, part by part, before any of it is allocated.

The features and the graphs are there already, or are maps of files (`packed`), which take no memory of their own. What a solver
will allocate follows from the sizes of the problem:

    weights      so many vectors of all weights
    threads      of BCFW: weights of their own, up to a limit
    planes       of solvers that keep labelings of each example: slots, inner products, and entries of a few planes
    cuts         of solvers that keep planes of all examples together: some tens of vectors
    marginals    of solvers that keep a number for each state, joint state and message

How many planes a run will keep is not known before it; the estimate is for a usual one.
"""

from __future__ import annotations

import math
import re
from typing import Any

from maxmargin.errors import OptionError, TooLargeError
from maxmargin.parallel import n_threads
from maxmargin.problems import FactorGraphs
from maxmargin.solvers.core.batches import n_copies

_UNITS = {
    "": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40,
}  # fmt: skip
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)")
#: Vectors of weights that solvers hold at a time, the result's and the checks' among them.
_VECTORS = {"lbfgs": 24, "soft-bcfw": 14, "one-slack": 6, "bundle": 8, "subgradient": 5, "perceptron": 5}
_USUAL_VECTORS = 10
#: Planes of all examples that cutting planes hold, and planes of one example whose entries are held, as a rule.
_CUTS, _PLANES = 30, 4
#: Of BCFW: inner products and slots for which there is room at first (frank_wolfe/plane_run.py); bytes of a slot and of an entry.
_PRODUCTS, _LEAST_CAPACITY, _SLOT, _ENTRY = 1 << 24, 6, 32, 12


def bytes_of(value: Any) -> int | None:
    """A number of bytes from a whole number or a text such as "4GB" or "512 MiB"; None is no limit."""
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    found = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    size = float(found[1]) * _UNITS.get(found[2].upper(), 0) if found else 0.0
    if not 1.0 <= size < 2**62:
        raise OptionError(
            f'max_memory={value!r:.60} is not possible; it must be a number of bytes, a text such as "4GB" or "512 MiB", or None.'
        )
    return int(size)


def check_memory(max_memory: Any, solver: Any, problem: Any, n_jobs: int | None = None) -> None:
    """Refuse to train what would take more memory than is allowed, with the parts of the estimate.

    Parameters
    ----------
    max_memory : int, str or None
    solver : Solver
    problem : FactorGraphs or another problem
    n_jobs : int, optional
        Threads.
    """
    limit = bytes_of(max_memory)
    if limit is None:
        return
    parts = estimate(solver, problem, n_threads(n_jobs))
    total = sum(parts.values())
    if total > limit:
        named = ", ".join(
            f"{name} {_shown(size)}" for name, size in sorted(parts.items(), key=lambda one: -one[1]) if size
        )
        raise TooLargeError(
            f"Training needs about {_shown(total)} of memory ({named}), and max_memory is {_shown(limit)}; train on fewer examples "
            "or columns, on a packed folder (maxmargin pack), or with another solver."
        )


def estimate(solver: Any, problem: Any, threads: int = 1) -> dict[str, int]:
    """Bytes that training takes in memory, by parts."""
    name, n_weights = str(getattr(solver, "name", "")), int(problem.n_weights)
    parts = {"weights": 8 * _VECTORS.get(name, _USUAL_VECTORS) * n_weights}
    if name == "bcfw":
        parts["threads"] = n_copies(threads, 8 * n_weights) * 8 * n_weights
    if name in ("one-slack", "bundle"):
        parts["cuts"] = 8 * _CUTS * n_weights
    if not isinstance(problem, FactorGraphs):
        return parts
    sides = problem.variable_features, problem.factor_features
    on_disk = any(getattr(side, "on_disk", False) for side in sides)
    parts["features"] = sum(side.nbytes for side in sides if not getattr(side, "on_disk", False))
    if on_disk:
        # A few numbers an example, whatever else is on disk.
        parts["graphs"] = 100 * problem.n_examples
        return parts
    parts["graphs"] = (
        sum(array.nbytes for array in problem.arrays if hasattr(array, "nbytes")) + 50 * problem.n_examples
    )
    n, n_variables = problem.n_examples, len(problem.labels)
    if name in ("bcfw", "n-slack"):
        cache = int(getattr(solver, "cache", 20) or 1)
        states = [float(one.n_states[0]) for one in problem.variable_templates]
        labelings = max(math.prod(states[t] for t in one.variable_templates[:64]) for one in problem.structures)
        capacity = int(min(cache + 1, labelings, max(_LEAST_CAPACITY, math.isqrt(_PRODUCTS // n))))
        entries = min(_PLANES, capacity) * 2 * 2 * n_variables
        parts["planes"] = n * capacity * (_SLOT + 8 * capacity) + _ENTRY * entries
    elif name not in ("one-slack", "bundle", "subgradient", "perceptron", "lbfgs", "frank-wolfe"):
        ends = problem.example_states, problem.example_tables, problem.example_messages
        parts["marginals"] = 8 * sum(int(end[-1]) for end in ends)
    return parts


def _shown(size: int) -> str:
    return f"{size / 1e9:.2f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"

"""Pictures of training.

`plot_convergence` shows the certified interval: the optimum lies between the primal and the dual value, in the shaded
band, and the gap is the height of the band, below on an axis of its own. `plot_path` shows how C was chosen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.errors import DataError, MaxMarginError, OptionError
from maxmargin.solvers.core.result import Result

_LABELS = {
    "seconds": "seconds of training",
    "n_passes": "passes over the data",
    "n_oracle_calls": "calls of the oracle",
}
#: Markers on a line, at most.
_MARKERS = 12


def plot_convergence(
    results: Result | Sequence[Result] | Mapping[str, Result], ax: Any = None, x: str = "seconds"
) -> Any:
    """Plot how the bounds and the gap came together.

    Parameters
    ----------
    results : Result, list of results, or dict of name to result
        Such as ``model.result_``.
    ax : matplotlib Axes, optional
        Draw the gap there, and nothing else. By default a figure is made, with the bounds above and the gap below.
    x : "seconds", "n_passes" or "n_oracle_calls"

    Returns
    -------
    matplotlib Axes
        `ax`, or the upper of the two; the lower one is ``.figure.axes[1]``.
    """
    if x not in _LABELS:
        raise OptionError(f'x={x!r} is not known; use "seconds", "n_passes" or "n_oracle_calls".')
    named = _named(results)
    upper, lower = (None, ax) if ax is not None else _figure()
    colors = [f"C{k}" for k in range(len(named))]
    for (name, result), color in zip(named.items(), colors, strict=True):
        at, primal, dual, gap = (
            np.asarray(result.history[column], np.float64) for column in (x, "primal", "dual", "gap")
        )
        if upper is not None:
            _bounds(upper, at, primal, dual, color)
        seen = np.isfinite(gap) & (gap > 0)
        every = max(1, int(seen.sum()) // _MARKERS)
        lower.plot(at[seen], gap[seen], color=color, marker="o", markersize=3, markevery=every, label=name or "gap")
    lower.set_yscale("log")
    lower.set_xlabel(_LABELS[x])
    lower.set_ylabel("certified gap")
    lower.grid(True, which="major", alpha=0.3)
    tolerances = {result.options["tol"] for result in named.values() if "tol" in result.options}
    if len(tolerances) == 1 and (tol := float(tolerances.pop())) > 0:
        lower.axhline(tol, color="0.5", linestyle="--", linewidth=1, label="tol")
    if len(named) > 1 or lower.get_lines()[-1].get_label() == "tol":
        lower.legend(frameon=False)
    top = lower if upper is None else upper
    top.set_title(_title(named), fontsize="medium")
    if upper is not None:
        upper.set_ylabel("objective")
        upper.grid(True, alpha=0.3)
        values = [np.asarray(line.get_ydata()) for line in upper.get_lines()]
        if all(len(one) and one[-1] > 0 for one in values):
            # The first lower bound is often 0, for which such an axis has no place.
            upper.set_yscale("log")
            upper.set_ylim(bottom=0.9 * min(float(one[one > 0].min()) for one in values))
        if len(named) == 1:
            upper.legend(frameon=False)
        else:
            # The colors are the same below, where the names are.
            kinds = upper.get_lines()[:2]
            upper.legend(kinds, ["primal (upper bound)", "dual (lower bound)"], frameon=False)
    return top


def plot_eval_loss(
    results: Result | Sequence[Result] | Mapping[str, Result], ax: Any = None, x: str = "n_passes"
) -> Any:
    """Plot the held-out loss at every check of training, with a ring where it was least.

    Parameters
    ----------
    results : Result, list of results, or dict of name to result
        Of `fit` with an ``eval_set``, such as ``model.result_``.
    ax : matplotlib Axes, optional
        By default a figure is made.
    x : "seconds", "n_passes" or "n_oracle_calls"

    Returns
    -------
    matplotlib Axes
    """
    if x not in _LABELS:
        raise OptionError(f'x={x!r} is not known; use "seconds", "n_passes" or "n_oracle_calls".')
    named = _named(results)
    for name, result in named.items():
        if "eval_loss" not in result.history or np.isnan(result.history["eval_loss"]).all():
            raise DataError(f"{name or 'The result'} has no held-out losses; give fit an eval_set.")
    if ax is None:
        require_matplotlib()
        import matplotlib.pyplot as plt

        ax = plt.subplots(figsize=(6, 3.5), layout="constrained")[1]
    for k, (name, result) in enumerate(named.items()):
        at, loss = (np.asarray(result.history[column], np.float64) for column in (x, "eval_loss"))
        seen = ~np.isnan(loss)
        best = int(np.nanargmin(loss))
        ax.plot(at[seen], loss[seen], color=f"C{k}", marker=".", label=name or "held-out loss")
        ax.plot(at[best], loss[best], color=f"C{k}", marker="o", markersize=10, fillstyle="none", linestyle="none")
    ax.set_xlabel(_LABELS[x])
    ax.set_ylabel("loss on held-out examples")
    ax.grid(True, alpha=0.3)
    ax.legend(frameon=False)
    return ax


def plot_path(model: Any, ax: Any = None) -> Any:
    """Plot the held-out loss of each value of C that was tried with ``C="auto"`` or a list, and the one that was chosen.

    Parameters
    ----------
    model : fitted estimator
        With ``validation_path_``.
    ax : matplotlib Axes, optional
        By default a figure is made.

    Returns
    -------
    matplotlib Axes
    """
    path = list(getattr(model, "validation_path_", []))
    if not path:
        raise DataError('There is no path to plot: C was given, or there were too few examples; fit with C="auto".')
    if ax is None:
        require_matplotlib()
        import matplotlib.pyplot as plt

        ax = plt.subplots(figsize=(6, 3.5), layout="constrained")[1]
    C, loss = [one.C for one in path], [one.loss for one in path]
    ax.plot(C, loss, color="C0", marker="o", markersize=4, label="held-out loss")
    errors = [one.standard_error or 0.0 for one in path]
    if any(errors):
        ax.errorbar(C, loss, errors, fmt="none", ecolor="C0", capsize=2, linewidth=1)
    ax.axvline(model.C_, color="0.5", linestyle="--", linewidth=1, label=f"chosen: C = {model.C_:g}")
    ax.set_xscale("log")
    ax.set_xticks(C, [f"{one:g}" for one in C])
    ax.set_xticks([], minor=True)
    ax.set_ylim(0, 1.1 * max(np.add(loss, errors)) or 1.0)
    ax.set_xlabel("C")
    ax.set_ylabel("task loss on held-out examples")
    ax.grid(True, alpha=0.3)
    ax.legend(frameon=False)
    return ax


def _named(results: Any) -> dict[str, Result]:
    if isinstance(results, Result):
        named = {"": results}
    elif isinstance(results, Mapping):
        named = dict(results)
    else:
        named = {f"{r.solver} {k}": r for k, r in enumerate(_listed(results))}
    if not named or not all(isinstance(result, Result) for result in named.values()):
        raise DataError("There is nothing to plot; expected a result, a list of results or a dict of them.")
    for name, result in named.items():
        if "gap" not in result.history:
            raise DataError(
                f"{name or 'The result'} has no history: its weights were given, pruned, or trained by partial_fit."
            )
    return named


def _listed(results: Any) -> list[Result]:
    if not isinstance(results, Sequence) or not all(isinstance(result, Result) for result in results):
        raise DataError(
            f"{type(results).__name__} cannot be plotted; expected a result, such as model.result_, or several."
        )
    return list(results)


def _figure() -> tuple[Any, Any]:
    require_matplotlib()
    import matplotlib.pyplot as plt

    _, (upper, lower) = plt.subplots(2, 1, sharex=True, figsize=(7, 6), height_ratios=(3, 2), layout="constrained")
    return upper, lower


def require_matplotlib() -> None:
    """Raise a sentence if there is no matplotlib."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise MaxMarginError("Plots need matplotlib, which is not installed: pip install 'maxmargin[plot]'.") from None


def _bounds(ax: Any, at: NDArray[Any], primal: NDArray[Any], dual: NDArray[Any], color: str) -> None:
    # What was certified up to then: the best of both bounds so far. No objective is negative, so 0 is a lower bound.
    above = np.minimum.accumulate(np.where(np.isfinite(primal), primal, np.inf))
    below = np.maximum.accumulate(np.where(dual > 0, dual, 0.0))
    seen = np.isfinite(above)
    ax.plot(at[seen], above[seen], color=color, label="primal (upper bound)")
    ax.plot(at[seen], below[seen], color=color, linestyle="--", label="dual (lower bound)")
    ax.fill_between(at[seen], below[seen], above[seen], color=color, alpha=0.15, linewidth=0)


def _title(named: Mapping[str, Result]) -> str:
    def one(result: Result) -> str:
        return f"{result.status}, {result.certificate} gap {result.gap:.2g}"

    if len(named) == 1:
        ((name, result),) = named.items()
        return f"{name or result.solver}: {one(result)}".lstrip(": ")
    if len(named) <= 4:
        return "\n".join(f"{name}: {one(result)}" for name, result in named.items())
    return f"{len(named)} results"

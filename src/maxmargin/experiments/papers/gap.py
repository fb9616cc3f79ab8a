"""Zhang, Saha and Vishwanathan: Accelerated training of max-margin Markov networks with kernels (ALT 2011), table 1.

The table states how many iterations each method needs for a gap of epsilon. Here each is run, and the exponent p of
gap ~ 1 / k^p is the slope of a line through the last decade of iterations on logarithmic axes: 2 is what excessive gap reduction
promises, 1 and 1/2 are the table's for the others.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maxmargin.datasets import fetch_ocr_letters
from maxmargin.experiments.data import tag_data
from maxmargin.experiments.experiment import (
    Experiment,
    Figures,
    Line,
    Panel,
    Picture,
    Row,
    Setting,
    Table,
    View,
    judge,
    values_of,
)
from maxmargin.problems import chain_problem
from maxmargin.solvers import BundleMethod, ExcessiveGap, ExponentiatedGradient, Extragradient, NSlack

METHODS: dict[str, Any] = {
    "excessive gap": ExcessiveGap(),
    "excessive gap, safe constant": ExcessiveGap(constant="safe"),
    "BMRM": BundleMethod(),
    "SVM-struct (n-slack)": NSlack(),
    "exponentiated gradient": ExponentiatedGradient(online=False),
    "extragradient": Extragradient(),
}
#: Iterations for a gap of epsilon, and the exponent that they mean.
RATES = {
    "excessive gap": ("G sqrt(log |Y| / (lam epsilon))", 2.0),
    "excessive gap, safe constant": ("G sqrt(log |Y| / (lam epsilon))", 2.0),
    "BMRM": ("G^2 / (lam epsilon)", 1.0),
    "SVM-struct (n-slack)": ("G^2 / (lam epsilon^2)", 0.5),
    "exponentiated gradient": ("G^2 log |Y| / (lam epsilon)", 1.0),
    "extragradient": ("log |Y| / epsilon", 1.0),
}


def run_method(setting: Setting, data_home: str | None) -> Figures:
    """The gap of one method by iterations."""
    if setting["data"] == "ocr-letters":
        letters = fetch_ocr_letters(data_home)
        ends = np.cumsum(letters.lengths)[:-1]
        number = np.searchsorted(np.unique(letters.tags), letters.tags)
        rows, tags = np.split(np.asarray(letters.X), ends), np.split(number, ends)
        problem = chain_problem(rows, tags, 26)
    else:
        data = tag_data("chains", int(setting["n"]))
        problem = chain_problem(data.X, data.y, 8)
    solver = METHODS[str(setting["method"])]
    limits: dict[str, Any] = {"max_passes": int(setting["passes"]), "max_seconds": float(setting["limit"])}
    result = solver.solve(problem, float(setting["C"]), tol=1e-6, **limits)
    history = result.history
    return {
        "iterations": history["n_passes"], "gap": history["gap"], "seconds": history["seconds"],
        "bound": result.options.get("bound_by_log_labelings"), "steps": result.options.get("n_steps"),
    }  # fmt: skip


def _slope(figures: Figures) -> float | None:
    k, gap = (np.array(figures[name], float) for name in ("iterations", "gap"))
    seen = np.isfinite(gap) & (gap > 1e-6) & (k >= k[-1] / 10.0)
    return -float(np.polyfit(np.log(k[seen]), np.log(gap[seen]), 1)[0]) if seen.sum() >= 3 else None


def show_rates(rows: list[Row]) -> View:
    """Table 1."""
    panels, cells, slopes = [], [], {}
    for C in values_of(rows, "C"):
        lines = []
        for row in (row for row in rows if row.setting["C"] == C):
            name, f = str(row.setting["method"]), row.figures
            slope = _slope(f)
            slopes[name, C] = slope
            lines.append(Line(name, f["iterations"], f["gap"], marker=False))
            cells.append(
                [
                    name,
                    C,
                    RATES[name][0],
                    RATES[name][1],
                    slope,
                    int(f["iterations"][-1]),
                    f["gap"][-1],
                    f["seconds"][-1],
                ]
            )
        panels.append(Panel(f"C = {C:g}", "iterations", "certified gap", lines, log_x=True, log_y=True))
    verdicts = []
    fast = {C: slope for (name, C), slope in slopes.items() if name == "excessive gap" and slope is not None}
    if fast:
        told = ", ".join(f"C = {C:g}: {slope:.2f}" for C, slope in fast.items())
        verdicts.append(
            judge("Excessive gap reduction converges as 1 / k^2.", min(fast.values()) >= 1.5, f"Exponents: {told}.")
        )
        others = {C: max(s for (name, at), s in slopes.items() if at == C and s is not None and "gradient" in name) for C in fast
                  if any(at == C and s is not None and "gradient" in name for (name, at), s in slopes.items())}  # fmt: skip
        if others:
            told = ", ".join(f"C = {C:g}: {slope:.2f}" for C, slope in others.items())
            verdicts.append(
                judge(
                    "The gradient methods of the table, whose bounds are 1 / k, converge more slowly.",
                    all(slope < fast[C] for C, slope in others.items()), f"Largest exponent of the two: {told}.",
                )
            )  # fmt: skip
    bounded = [
        (row.figures["steps"], row.figures["bound"]) for row in rows if row.figures["bound"] and row.figures["steps"]
    ]
    if bounded:
        share = max(steps / bound for steps, bound in bounded)
        verdicts.append(
            judge("The number of steps is within the theorem's (eq. 22).", share <= 1.0, f"At most {share:.3f} of it.")
        )
    columns = (
        "method",
        "C",
        "iterations in the table",
        "exponent there",
        "exponent here",
        "iterations",
        "gap",
        "seconds",
    )
    return View([Table("Rates.", columns, cells, 3)], [Picture("The certified gap by iterations.", panels)], verdicts)


_ALL = {"method": tuple(METHODS)}
EXPERIMENTS = [
    Experiment(
        "gap-table-1", "gap", "Table 1: rates of convergence",
        "Chains with Hamming loss: 626 handwritten words in full mode, chains drawn at random in quick mode.",
        run_method,
        (_ALL | {"data": ("chains",), "n": (60,), "C": (10.0,), "passes": (500,), "limit": (15.0,)},),
        (_ALL | {"data": ("ocr-letters",), "C": (10.0, 100.0), "passes": (3000,), "limit": (120.0,)},),
        show_rates,
    )
]  # fmt: skip

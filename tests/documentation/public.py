"""The public names: what the package's `__all__` lists have, and the names of modules that have none."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

#: Modules whose `__all__` is public.
PACKAGES = (
    "maxmargin",
    "maxmargin.datasets",
    "maxmargin.estimators",
    "maxmargin.features",
    "maxmargin.formats",
    "maxmargin.inference",
    "maxmargin.measures",
    "maxmargin.packed",
    "maxmargin.problems",
    "maxmargin.reporting",
    "maxmargin.solvers",
    *(("maxmargin.torch",) if importlib.util.find_spec("torch") else ()),
)
#: Public names of other modules: what pages use, and what extensions derive from.
MODULES = {
    "maxmargin.errors": (
        "DataError",
        "MaxMarginError",
        "ModelFileError",
        "OptionError",
        "TooLargeError",
        "WrongTypeError",
    ),
    "maxmargin.estimators.explaining": ("Contribution", "Explanation"),
    "maxmargin.experiments.experiment": (
        "Experiment",
        "Line",
        "Panel",
        "Picture",
        "Row",
        "Table",
        "Verdict",
        "View",
        "judge",
    ),
    "maxmargin.inference.batches": ("marginals", "maximise", "predict", "predict_marginals", "relax"),
    "maxmargin.parsing.brackets": ("BracketScores", "bracket_scores"),
    "maxmargin.estimators.confidence": ("SelectivePrediction",),
    "maxmargin.parsing.grammar": ("Grammar", "induce", "pcfg_weights"),
    "maxmargin.parsing.treebank": (
        "collapse_unary",
        "expand_unary",
        "read_trees",
        "without_functions",
        "without_traces",
        "write_trees",
    ),
    "maxmargin.parsing.trees": ("Tree",),
    "maxmargin.problems.grids": ("grid_edges",),
    "maxmargin.problems.losses": ("variable_losses",),
    "maxmargin.problems.python_problem": ("Model", "OracleError"),
    "maxmargin.reporting.chunks": ("ChunkScore", "ChunkScores", "chunk_scores"),
    "maxmargin.reporting.abstention": ("RiskCoverage", "Threshold"),
    "maxmargin.reporting.tree_plot": ("tree_svg",),
    "maxmargin.solvers.core.run": ("Run", "State"),
    "maxmargin.solvers.core.solver": ("Solver",),
}


def public_names() -> dict[str, Any]:
    """All public objects, each under the first of its names; modules and plain values are left out."""
    found: dict[int, tuple[str, Any]] = {}
    listed = {name: tuple(importlib.import_module(name).__all__) for name in PACKAGES} | MODULES
    for module, names in listed.items():
        for name in names:
            value = getattr(importlib.import_module(module), name)
            if callable(value):
                found.setdefault(id(value), (f"{module}.{name}", value))
    return dict(found.values())

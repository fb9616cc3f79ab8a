"""Structured prediction with a margin.

The public names, nothing else. Each is imported when it is first used, so that ``import maxmargin`` and the command
line's ``--help`` cost next to nothing.
"""

from __future__ import annotations

import importlib
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from maxmargin import datasets, errors, estimators, features, formats, inference, problems, reporting, solvers
    from maxmargin.datasets import (
        fetch_bibtex,
        fetch_conll2000,
        fetch_covtype,
        fetch_msrc21,
        fetch_ocr_letters,
        fetch_rcv1subset1,
        fetch_scene,
        fetch_tmc2007,
        fetch_treebank_sample,
        fetch_yeast,
        make_synth1,
        make_synth2,
    )
    from maxmargin.estimators.binary import BinarySVM
    from maxmargin.estimators.chain import ChainSVM
    from maxmargin.estimators.graph import GraphSVM
    from maxmargin.estimators.loading import load
    from maxmargin.estimators.multi_class import MultiClassSVM
    from maxmargin.estimators.multi_label import MultiLabelSVM
    from maxmargin.estimators.parser import ParserSVM
    from maxmargin.estimators.ranking import RankingSVM
    from maxmargin.estimators.structured import StructuredSVM
    from maxmargin.features.text import TextFeatures
    from maxmargin.problems.grids import grid_graph, labels_as_image
    from maxmargin.problems.networks import graph_from_adjacency, graph_from_networkx
    from maxmargin.problems.python_problem import PythonProblem
    from maxmargin.reporting.abstention import choose_threshold, risk_coverage
    from maxmargin.reporting.explanation_plot import plot_explanation
    from maxmargin.reporting.model_plots import plot_interactions, plot_transitions
    from maxmargin.reporting.plots import plot_convergence, plot_eval_loss, plot_path
    from maxmargin.reporting.prediction_plots import plot_risk_coverage, plot_segmentation
    from maxmargin.reporting.tree_plot import plot_tree
    from maxmargin.solvers.path import path

    __version__: str

__all__ = [
    "BinarySVM",
    "ChainSVM",
    "GraphSVM",
    "MultiClassSVM",
    "MultiLabelSVM",
    "ParserSVM",
    "PythonProblem",
    "RankingSVM",
    "StructuredSVM",
    "TextFeatures",
    "__version__",
    "choose_threshold",
    "datasets",
    "errors",
    "estimators",
    "features",
    "fetch_bibtex",
    "fetch_conll2000",
    "fetch_covtype",
    "fetch_msrc21",
    "fetch_ocr_letters",
    "fetch_rcv1subset1",
    "fetch_scene",
    "fetch_tmc2007",
    "fetch_treebank_sample",
    "fetch_yeast",
    "formats",
    "graph_from_adjacency",
    "graph_from_networkx",
    "grid_graph",
    "inference",
    "labels_as_image",
    "load",
    "make_synth1",
    "make_synth2",
    "measures",
    "packed",
    "path",
    "plot_convergence",
    "plot_eval_loss",
    "plot_explanation",
    "plot_interactions",
    "plot_path",
    "plot_risk_coverage",
    "plot_segmentation",
    "plot_transitions",
    "plot_tree",
    "problems",
    "reporting",
    "risk_coverage",
    "solvers",
]

#: Before any other module was read: `jit` keeps no code of sources that changed later.
_imported = time.time()
_MODULES = (
    "datasets",
    "errors",
    "estimators",
    "features",
    "formats",
    "inference",
    "measures",
    "packed",
    "problems",
    "reporting",
    "solvers",
)
_HOMES = {
    "BinarySVM": "estimators.binary",
    "ChainSVM": "estimators.chain",
    "GraphSVM": "estimators.graph",
    "MultiClassSVM": "estimators.multi_class",
    "MultiLabelSVM": "estimators.multi_label",
    "ParserSVM": "estimators.parser",
    "PythonProblem": "problems.python_problem",
    "RankingSVM": "estimators.ranking",
    "StructuredSVM": "estimators.structured",
    "TextFeatures": "features.text",
    "choose_threshold": "reporting.abstention",
    "graph_from_adjacency": "problems.networks",
    "graph_from_networkx": "problems.networks",
    "grid_graph": "problems.grids",
    "labels_as_image": "problems.grids",
    "load": "estimators.loading",
    "path": "solvers.path",
    "plot_convergence": "reporting.plots",
    "plot_eval_loss": "reporting.plots",
    "plot_explanation": "reporting.explanation_plot",
    "plot_interactions": "reporting.model_plots",
    "plot_path": "reporting.plots",
    "plot_risk_coverage": "reporting.prediction_plots",
    "plot_segmentation": "reporting.prediction_plots",
    "plot_transitions": "reporting.model_plots",
    "plot_tree": "reporting.tree_plot",
    "risk_coverage": "reporting.abstention",
}


def __getattr__(name: str) -> Any:
    value: Any
    if name == "__version__":
        from importlib.metadata import version

        value = version("maxmargin")
    elif name in _MODULES:
        value = importlib.import_module(f"maxmargin.{name}")
    elif name in __all__:
        value = getattr(importlib.import_module(f"maxmargin.{_HOMES.get(name, 'datasets')}"), name)
    else:
        raise AttributeError(f"module 'maxmargin' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

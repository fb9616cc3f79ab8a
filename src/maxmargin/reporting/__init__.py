"""Reporting: progress in a terminal, plots, and figures of predictions.

A name is imported when it is first used, since each module has its price.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from maxmargin.reporting.labels import (
        LabelReport,
        classification_report,
        compare_label_sets,
        compare_labels,
        plot_confusion,
        plot_label_scores,
    )

__all__ = [
    "LabelReport",
    "classification_report",
    "compare_label_sets",
    "compare_labels",
    "plot_confusion",
    "plot_label_scores",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(importlib.import_module("maxmargin.reporting.labels"), name)
    raise AttributeError(f"module 'maxmargin.reporting' has no attribute {name!r}")

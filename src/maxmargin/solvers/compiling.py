"""Compile the kernels of the default solver and of predictions: ``python -m maxmargin.solvers.compiling``.

The first run on a machine compiles for a while on one core. The command line starts this module as a second process then, so
that what is needed later is compiled on another core while what is needed first is being compiled; both write to the same cache.
"""

from __future__ import annotations

import numpy as np

from maxmargin.inference.exhaustive import Exhaustive
from maxmargin.problems.multi_label import multi_label_problem
from maxmargin.solvers.bcfw import BCFW


def compile_kernels() -> None:
    """Train and predict one example with two labels and their pair."""
    problem = multi_label_problem(np.ones((1, 1)), np.ones((1, 2), np.int64), np.array([[0, 1]]), 2)
    BCFW("graph_cut").solve(problem, max_passes=1)
    Exhaustive().maximise(problem, problem.scores(np.zeros(problem.n_weights)))


if __name__ == "__main__":
    compile_kernels()

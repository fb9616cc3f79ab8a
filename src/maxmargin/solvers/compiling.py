"""Compile the kernels that certify and predict: ``python -m maxmargin.solvers.compiling``.

The first run on a machine compiles for a while on one core. The command line starts this module as a second process then, so
that what the solver needs later is compiled on another core while the solver's own kernels are being compiled; both write to
the same cache.
"""

from __future__ import annotations

import numpy as np

from maxmargin.inference.exhaustive import Exhaustive
from maxmargin.problems.multi_label import multi_label_problem
from maxmargin.solvers.soft_bcfw import SoftBCFW, SoftRun
from maxmargin.solvers.soft_bounds import dual_point, hinges


def compile_bounds() -> None:
    """Run the kernels of certificates and of small predictions once, on one example."""
    problem = multi_label_problem(np.ones((1, 1)), np.ones((1, 2), np.int64), np.array([[0, 1]]), 2)
    start = SoftRun(SoftBCFW(), problem, 1.0, 0, 1).truth()
    features = problem.variable_features.arrays, problem.factor_features.arrays
    one, out = np.ones(1), np.empty(1)
    hinges(
        problem.arrays, *features, start.w_v, start.w_f, start.mu, start.table, start.nu, 1.0, 2, False, one, 0.0, 0, 1, out
    )  # fmt: skip
    dual_point(problem.arrays, *features, start.mu, start.table, 1.0, 1.0, False, start.best_v, start.best_f)
    scores = problem.scores(np.zeros(problem.n_weights))
    Exhaustive().maximise(problem, scores)


if __name__ == "__main__":
    compile_bounds()

"""Compile the kernels that certify and predict: ``python -m maxmargin.solvers.compiling``.

The first run on a machine compiles for a while on one core. The command line starts this module as a second process then, so
that what the demonstration needs later is compiled on another core while the solver's own kernels are being compiled; both write
to the same cache.
"""

from __future__ import annotations

import numpy as np

from maxmargin.inference.exhaustive import Exhaustive
from maxmargin.problems.multi_label import multi_label_problem
from maxmargin.solvers.soft_bcfw import SoftBCFW, SoftRun


def compile_bounds() -> None:
    """Run the kernels of certificates and of small predictions once, on one example."""
    problem = multi_label_problem(np.ones((1, 1)), np.ones((1, 2), np.int64), np.array([[0, 1]]), 2)
    run = SoftRun(SoftBCFW(), problem, 1.0, 0, 1)
    start = run.truth()
    run.upper(start, False)
    run.lower(start, False)
    Exhaustive().maximise(problem, problem.scores(np.zeros(problem.n_weights)))


if __name__ == "__main__":
    compile_bounds()

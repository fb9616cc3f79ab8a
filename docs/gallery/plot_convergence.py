"""
Convergence, with its certificate
=================================

The optimum lies in the shaded band: the upper line is the best objective so far, the lower one what no weights can
beat. Below, the gap between them, until it is at most `tol`.
"""

import maxmargin as mm

X, Y = mm.make_synth2(500, random_state=0)
model = mm.MultiLabelSVM(C=100, solver="soft-bcfw", tol=0.005).fit(X, Y)
mm.plot_convergence(model.result_, x="n_passes")

# %%
# Several solvers of the same problem:
results = {
    name: mm.MultiLabelSVM(C=100, solver=name, tol=0.005, max_seconds=20).fit(X, Y).result_
    for name in ("bcfw", "soft-bcfw", "one-slack")
}
mm.plot_convergence(results, x="n_passes")

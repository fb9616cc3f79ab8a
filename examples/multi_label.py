"""Multi-label learning from start to finish: compare no pairs, a tree of pairs and all pairs, inspect, save, load, plot.

python examples/multi_label.py
"""

from pathlib import Path
from tempfile import mkdtemp

import numpy as np

import maxmargin as mm

X, Y = mm.make_synth2(1000, random_state=0)  # exactly one of ten labels is on; the number of features set tells which
X_test, Y_test = mm.make_synth2(2000, random_state=1)

results = {}
for edges in ("none", "tree", "full"):
    model = mm.MultiLabelSVM(C=1000, edges=edges, tol=2e-3).fit(X, Y)
    results[f"edges={edges!r}"] = model.result_
    print(f"edges={edges!r:6}  test loss {np.mean(model.predict(X_test) != Y_test):.4f}  {model.result_.summary()}")

strongest = abs(model.edge_coef_).argsort()[-5:][::-1]
print(
    "strongest pairs:",
    {f"{i} + {j}": round(float(model.edge_coef_[e]), 2) for e in strongest for i, j in [model.edges_[e]]},
)

folder = Path(mkdtemp())
model.save(folder / "synth2.mm")
again = mm.load(folder / "synth2.mm")
assert (again.predict(X_test) == model.predict(X_test)).all()
print("saved:", folder / "synth2.mm")

try:
    axes = mm.plot_convergence(results)
    axes.figure.savefig(folder / "convergence.png")
    print("picture:", folder / "convergence.png")
except mm.errors.MaxMarginError as error:
    print(error)  # matplotlib is an extra

"""Multi-label learning from start to finish: compare no pairs, a tree of pairs and all pairs, inspect, save, load, plot.

    python examples/multi_label.py
"""

from pathlib import Path
from tempfile import mkdtemp

import numpy as np

import maxmargin as mm

X, Y = mm.make_synth1(471, random_state=0)  # six labels, each on only if the one before is; 6000 sparse features
X_test, Y_test = mm.make_synth1(2000, random_state=1)

results = {}
for edges in ("none", "tree", "full"):
    model = mm.MultiLabelSVM(C=3, edges=edges, tol=2e-3).fit(X, Y)
    results[f"edges={edges!r}"] = model.result_
    print(f"edges={edges!r:6}  test loss {np.mean(model.predict(X_test) != Y_test):.4f}  {model.result_.summary()}")

print("pairs:", {f"{i} + {j}": round(float(w), 2) for (i, j), w in zip(model.edges_, model.edge_coef_, strict=True)})

folder = Path(mkdtemp())
model.save(folder / "synth1.mm")
again = mm.load(folder / "synth1.mm")
assert (again.predict(X_test) == model.predict(X_test)).all()
print("saved:", folder / "synth1.mm")

try:
    axes = mm.plot_convergence(results)
    axes.figure.savefig(folder / "convergence.png")
    print("picture:", folder / "convergence.png")
except mm.errors.MaxMarginError as error:
    print(error)  # matplotlib is an extra

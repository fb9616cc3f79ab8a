"""Labeling the nodes of graphs: noisy pictures, where neighbours tend to agree across edges that look alike.

python examples/graph_labeling.py
"""

import numpy as np

import maxmargin as mm


def picture(rng, size=8, n_classes=3):
    """A grid of a few rectangles of one class each, seen through noise; edges carry how different their pixels look."""
    truth = np.zeros((size, size), int)
    for _ in range(3):
        top, left = rng.integers(0, size - 3, 2)
        height, width = rng.integers(3, size, 2)
        truth[top : top + height, left : left + width] = rng.integers(n_classes)
    nodes = np.eye(n_classes)[truth.ravel()] + 1.2 * rng.normal(size=(size * size, n_classes))
    number = np.arange(size * size).reshape(size, size)
    edges = np.concatenate(
        [
            np.stack([number[:, :-1].ravel(), number[:, 1:].ravel()], axis=1),
            np.stack([number[:-1].ravel(), number[1:].ravel()], axis=1),
        ]
    )
    unlike = np.abs(nodes[edges[:, 0]] - nodes[edges[:, 1]]).sum(axis=1, keepdims=True)
    return (nodes, edges, np.hstack([np.ones_like(unlike), unlike])), truth.ravel()


rng = np.random.default_rng(0)
train, test = ([picture(rng) for _ in range(n)] for n in (30, 30))
graphs, labels = (list(part) for part in zip(*train, strict=True))
test_graphs, test_labels = (list(part) for part in zip(*test, strict=True))

alone = mm.GraphSVM(C=2, edge_weights="potts").fit([(nodes, []) for nodes, *_ in graphs], labels)
print(f"nodes alone:  {alone.score([(nodes, []) for nodes, *_ in test_graphs], test_labels):.3f} of test nodes right")
joint = mm.GraphSVM(C=2, edge_weights="potts", tol=0.02, max_seconds=60).fit(graphs, labels)
print(f"with edges:   {joint.score(test_graphs, test_labels):.3f}   {joint.result_.summary()}")
print("weights of an edge whose ends agree (constant, difference):", joint.edge_coef_.round(3))

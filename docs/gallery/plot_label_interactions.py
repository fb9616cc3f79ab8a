"""
Which labels go together
========================

What can be said of a handwritten digit: whether it is odd, prime, a square, small, has a loop, is a multiple of
three. `MultiLabelSVM` learns how each of these looks, and a weight for every pair of them: blue pairs are sought
together, red pairs avoid each other.
"""

from sklearn.datasets import load_digits

import maxmargin as mm

sets = {
    "odd": {1, 3, 5, 7, 9},
    "prime": {2, 3, 5, 7},
    "square": {0, 1, 4, 9},
    "small": {0, 1, 2, 3, 4},
    "loop": {0, 6, 8, 9},
    "multiple of 3": {0, 3, 6, 9},
    "power of 2": {1, 2, 4, 8},
}
images, digits = load_digits(return_X_y=True)
names = list(sets)
Y = [[name for name in names if digit in sets[name]] for digit in digits]
X = images / 16

model = mm.MultiLabelSVM(C=300, tol=0.01).fit(X[:600], Y[:600])
alone = mm.MultiLabelSVM(C=300, tol=0.01, edges="none").fit(X[:600], Y[:600])
print(f"labels right: {model.score(X[600:], Y[600:]):.3f} with pairs, {alone.score(X[600:], Y[600:]):.3f} without")
mm.plot_interactions(model)

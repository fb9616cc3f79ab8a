"""
Coins: a photograph, segmented
==============================

A pixel alone does not say whether it is coin or background: the light differs from corner to corner. Neighbours
help, and they should agree unless there is an edge between them. A grid of pixels with these two kinds of weights
is learned from the left half of the picture, whose coins were outlined by a watershed, and applied to the right
half.
"""

import warnings

import numpy as np
from scipy import ndimage
from skimage import data, filters, segmentation, transform

import maxmargin as mm

photo = transform.rescale(data.coins() / 255.0, 0.5, anti_aliasing=True)
gradient = filters.sobel(photo)

# %%
# The labels to learn from: a watershed of the gradient, from pixels that are surely dark or bright.
markers = np.zeros(photo.shape, int)
markers[photo < 30 / 255], markers[photo > 150 / 255] = 1, 2
truth = ndimage.binary_fill_holes(segmentation.watershed(gradient, markers) == 2).astype(int)


# %%
# Every pixel is a node with five features; every pair of neighbours is an edge with two, a constant and the contrast
# between them.
features = np.stack(
    [photo, filters.gaussian(photo, 2), filters.gaussian(photo, 12), gradient, filters.gaussian(gradient, 2)], axis=-1
)


def grid(rows, columns):
    """The graph of a part of the picture."""
    return mm.grid_graph(photo[rows, columns], features[rows, columns], beta=1000.0)


height, width = photo.shape
pieces = [
    (slice(r, r + 30), slice(c, c + 30)) for r in range(0, height - 29, 30) for c in range(0, width // 2 - 29, 30)
]
graphs, labels = [grid(*piece) for piece in pieces], [truth[piece].ravel() for piece in pieces]
model = mm.GraphSVM(C=1000, edge_weights="potts", tol=0.01, max_seconds=60).fit(graphs, labels)
print(model.result_.summary())
print("weights of neighbours that agree, constant and by how alike they are:", model.edge_coef_.round(4))

# %%
# The right half, which the model has not seen. Cuts find the best labeling of the whole grid; probabilities on a
# grid are approximate, and a warning says so.
right = (slice(0, height), slice(width // 2, width))
found, score, bound = model.predict([grid(*right)], return_bound=True)
print("the best labeling, proved:", bool(np.isclose(score, bound)[0]))
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    sure = model.predict_proba([grid(*right)])[0].max(axis=1)
shape = photo[right].shape
print(f"pixels as the watershed has them: {np.mean(found[0] == truth[right].ravel()):.3f}")
mm.plot_segmentation(photo[right], mm.labels_as_image(found[0], shape), mm.labels_as_image(sure, shape), truth[right])

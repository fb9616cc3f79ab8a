"""
Textures: three materials told apart
====================================

Brick, grass and gravel, cut into small tiles. A tile alone is easily mistaken; next to its neighbours it is not.
The test picture is a patchwork of parts of the photographs that training did not see.
"""

import warnings

import numpy as np
from skimage import data, filters

import maxmargin as mm
from maxmargin.problems.grids import grid_edges

photos = [data.brick() / 255.0, data.grass() / 255.0, data.gravel() / 255.0]
rng = np.random.default_rng(0)
tile, tiles = 10, 18


def patchwork(half):
    """Regions of the three materials, around random centres; from the upper or the lower half of each photograph."""
    centres, kinds = rng.random((9, 2)) * tiles, rng.permutation(np.arange(9) % 3)
    place = np.stack(np.mgrid[:tiles, :tiles], axis=-1).reshape(-1, 2) + 0.5
    truth = kinds[((place[:, None] - centres) ** 2).sum(axis=-1).argmin(axis=1)].reshape(tiles, tiles)
    mask, side = np.kron(truth, np.ones((tile, tile), int)), tile * tiles
    picture = np.zeros((side, side))
    for kind, photo in enumerate(photos):
        column = rng.integers(512 - side)
        picture[mask == kind] = photo[256 * half : 256 * half + side, column : column + side][mask == kind]
    return picture, truth


def graph(picture):
    """A node for each tile, with a few statistics; neighbours are joined."""
    edges_x, edges_y = filters.sobel_h(picture), filters.sobel_v(picture)
    layers = [picture, np.abs(edges_x), np.abs(edges_y), np.abs(filters.laplace(picture))]
    blocks = [one.reshape(tiles, tile, tiles, tile).swapaxes(1, 2).reshape(tiles * tiles, -1) for one in layers]
    features = np.column_stack([f(one, axis=1) for one in blocks for f in (np.mean, np.std)])
    return features, grid_edges(tiles, tiles)


train = [patchwork(0) for _ in range(4)]
picture, truth = patchwork(1)
graphs, labels = [graph(one) for one, _ in train], [two.ravel() for _, two in train]
mean, spread = np.vstack([g[0] for g in graphs]).mean(axis=0), np.vstack([g[0] for g in graphs]).std(axis=0)
graphs, test = [((x - mean) / spread, e) for x, e in graphs], graph(picture)
test = (test[0] - mean) / spread, test[1]

# %%
# With edges and without:
alone = mm.GraphSVM(C=1, tol=0.01).fit([(x, []) for x, _ in graphs], labels)
model = mm.GraphSVM(C=1, edge_weights="potts", tol=0.01, max_seconds=60).fit(graphs, labels)
single = alone.score([(test[0], [])], [truth.ravel()])
print(f"tiles alone {single:.3f}, with neighbours {model.score([test], [truth.ravel()]):.3f}")

# %%
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # probabilities on a graph with cycles are approximate
    sure = model.predict_proba([test])[0].max(axis=1).reshape(tiles, tiles)
found = model.predict([test])[0].reshape(tiles, tiles)
large = np.ones((tile, tile), int)
mm.plot_segmentation(picture, np.kron(found, large), np.kron(sure, large), np.kron(truth, large))

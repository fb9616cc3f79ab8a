"""Pictures as graphs: a node for each pixel, an edge for each pair of neighbours, and back from labels to pictures.

Edges have two features: a constant 1, and the contrast

    exp(-beta |x_i - x_j|^2),     beta = 1 / (2 mean |x_i - x_j|^2) over the edges of the picture,

which is near 1 between pixels that look alike and near 0 across an edge of the picture (Boykov and Jolly, Interactive Graph
Cuts, ICCV 2001; beta as in Rother, Kolmogorov and Blake, GrabCut, 2004). With ``GraphSVM(edge_weights="potts")`` each has one
weight.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from maxmargin.errors import DataError, OptionError

GridGraph = tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]


def grid_graph(
    image: ArrayLike, node_features: ArrayLike | None = None, neighbours: int = 4, beta: float | str = "auto"
) -> GridGraph:
    """The graph of a picture, as `GraphSVM` takes it: ``(node_features, edges, edge_features)``.

    Pixels are numbered row by row. Edges come by direction: to the right, down, and, with 8 neighbours, down to the right and
    down to the left.

    Parameters
    ----------
    image : array (h, w) or (h, w, channels)
        The picture, by which pixels are compared.
    node_features : array (h, w), (h, w, p) or (h * w, p), optional
        Features of the pixels; by default the picture itself.
    neighbours : 4 or 8
        How many neighbours a pixel has.
    beta : "auto" or float
        How fast the contrast falls with the squared difference of two pixels; "auto" is one over twice its mean.

    Returns
    -------
    nodes : array (h * w, p)
    edges : int array (E, 2)
    edge_features : array (E, 2)
        The constant 1, and the contrast.
    """
    picture = _numbers(image, "image")
    if picture.ndim not in (2, 3) or 0 in picture.shape:
        raise DataError(f"image has shape {picture.shape}; expected (h, w) or (h, w, channels), at least one pixel.")
    height, width = picture.shape[:2]
    pixels = picture.reshape(height * width, -1)
    nodes = pixels if node_features is None else _rows(_numbers(node_features, "node_features"), height, width)
    edges = grid_edges(height, width, neighbours)
    differ = np.zeros(len(edges))
    for channel in pixels.T:
        # A channel at a time: those of both ends of all edges would take much more room than the picture.
        differ += (channel[edges[:, 0]] - channel[edges[:, 1]]) ** 2
    contrast = np.exp(-_scale(beta, differ) * differ)
    return nodes, edges, np.column_stack([np.ones(len(edges)), contrast])


def grid_edges(height: int, width: int, neighbours: int = 4) -> NDArray[np.int64]:
    """The pairs of neighbours of a grid, (E, 2), each once; cells are numbered row by row.

    Parameters
    ----------
    height, width : int
        Rows and columns of the grid.
    neighbours : 4 or 8
        How many neighbours a cell has.
    """
    if neighbours not in (4, 8):
        raise OptionError(f"neighbours={neighbours!r} is not possible; it must be 4 or 8.")
    at = np.arange(height * width, dtype=np.int64).reshape(height, width)
    pairs = [(at[:, :-1], at[:, 1:]), (at[:-1], at[1:])]
    if neighbours == 8:
        pairs += [(at[:-1, :-1], at[1:, 1:]), (at[:-1, 1:], at[1:, :-1])]
    return np.concatenate([np.column_stack([one.ravel(), other.ravel()]) for one, other in pairs])


def labels_as_image(labels: ArrayLike, segments: Any) -> NDArray[Any]:
    """The labels of nodes as a picture.

    Parameters
    ----------
    labels : array (n,) or (n, k)
        A label, a probability or several numbers for each node.
    segments : tuple (h, w), or int array (h, w)
        The size of the picture, if its pixels are the nodes; or the number of the node that each pixel belongs to, as
        superpixels have it.

    Returns
    -------
    array (h, w) or (h, w, k)
    """
    values = np.asarray(labels)
    if isinstance(segments, tuple):
        height, width = (int(one) for one in segments[:2])
        if values.ndim not in (1, 2) or len(values) != height * width:
            raise DataError(f"labels has shape {values.shape}; expected one for each of the {height} x {width} pixels.")
        return values.reshape(height, width, *values.shape[1:])
    number = np.asarray(segments)
    if number.ndim != 2 or not np.issubdtype(number.dtype, np.integer):
        raise DataError(
            f"segments has shape {number.shape}, dtype {number.dtype}; expected (h, w), whole numbers of nodes."
        )
    if number.size and not (number.min() >= 0 and number.max() < len(values)):
        raise DataError(
            f"segments has numbers from {number.min()} to {number.max()}; there are {len(values)} labels, from 0."
        )
    return np.asarray(values[number])


def _numbers(values: ArrayLike, name: str) -> NDArray[np.float64]:
    try:
        numbers = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise DataError(f"{name} is no array of numbers.") from None
    if not np.isfinite(numbers).all():
        place = tuple(int(k) for k in np.argwhere(~np.isfinite(numbers))[0])
        raise DataError(f"{name}{list(place)} is {numbers[place]}; it must be finite.")
    return numbers


def _rows(features: NDArray[np.float64], height: int, width: int) -> NDArray[np.float64]:
    if features.ndim in (2, 3) and features.shape[:2] == (height, width):
        return features.reshape(height * width, -1)
    if features.ndim == 2 and len(features) == height * width:
        return features
    raise DataError(
        f"node_features has shape {features.shape}; expected ({height}, {width}, p) or ({height * width}, p), as the image has "
        f"{height} x {width} pixels."
    )


def _scale(beta: Any, differ: NDArray[np.float64]) -> float:
    if isinstance(beta, str) and beta == "auto":
        mean = float(differ.mean()) if len(differ) else 0.0
        return 1.0 / (2.0 * mean) if mean > 0.0 else 0.0
    if isinstance(beta, bool) or not (isinstance(beta, int | float | np.number) and 0.0 <= float(beta) < np.inf):
        raise OptionError(f'beta={beta!r} is not possible; it must be "auto" or a finite number that is not negative.')
    return float(beta)

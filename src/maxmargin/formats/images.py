"""A folder of images with masks, as graphs: ``images/ant.png`` and ``masks/ant.png``.

Conventions
-----------
Images and masks of the same name, but for the ending, belong together; the file ``masks/`` may be missing altogether in a
folder to predict. A mask has the size of its image. The colour of a pixel is its class: of masks of one channel a number,
where 255 is a pixel of no class; of masks of several channels a colour such as ``#00ff00``, all of them classes. Classes are
sorted.

A node is a superpixel (SLIC, about `n_superpixels` an image) or, with 0, a pixel. Its features are the mean and the standard
deviation of each channel, from 0 to 1, and the mean row and column as shares of the height and the width. Nodes with
neighbouring pixels share an edge, whose features are 1 and exp(-10 times the distance of the mean colours). A node's class is
that of most of its pixels.

Images are read one after another by Pillow, and cut into superpixels by scikit-image (the extra ``images``); what is kept of one
is its graph.
"""

from __future__ import annotations

import io
import os
import re
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.errors import DataError, OptionError
from maxmargin.formats.atomic import atomic_write
from maxmargin.formats.graphs import Graph, GraphData

_ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".gif")
#: Pixels of this value in a mask of one channel have no class.
NO_CLASS = 255
#: One picture must not make a graph that no memory holds.
_MOST_PIXELS = 1 << 26


def image_graph(image: Any, n_superpixels: int = 200) -> tuple[Graph, NDArray[np.int64]]:
    """The graph of one image.

    Parameters
    ----------
    image : array (h, w) or (h, w, channels)
        Whole numbers from 0 to 255, or numbers from 0 to 1.
    n_superpixels : int
        About how many nodes; 0 is a node for each pixel.

    Returns
    -------
    graph : tuple
        Features of the nodes, edges, and features of the edges, as `GraphSVM` takes them.
    nodes : ndarray of int64 (h, w)
        The node of each pixel.
    """
    pixels = np.asarray(image)
    pixels = pixels / 255.0 if pixels.dtype.kind in "iu" else pixels.astype(np.float64)
    pixels = pixels[:, :, None] if pixels.ndim == 2 else pixels
    height, width, channels = pixels.shape
    if n_superpixels == 0:
        nodes = np.arange(height * width).reshape(height, width)
    else:
        colours = pixels if channels == 3 else np.repeat(pixels[:, :, :1], 3, axis=2)
        found = _slic()(colours, n_segments=n_superpixels, compactness=10, sigma=1, start_label=0, channel_axis=2)
        nodes = np.unique(found, return_inverse=True)[1].reshape(height, width)
    owner = nodes.ravel()
    size = np.bincount(owner).astype(np.float64)
    flat = pixels.reshape(-1, channels)
    rows, columns = np.indices((height, width))
    values = np.column_stack([flat, rows.ravel() / height, columns.ravel() / width])
    means = np.column_stack([np.bincount(owner, values[:, k]) / size for k in range(channels + 2)])
    squares = np.column_stack([np.bincount(owner, flat[:, k] ** 2) / size for k in range(channels)])
    spread = np.sqrt(np.maximum(squares - means[:, :channels] ** 2, 0.0))
    X = np.column_stack([means[:, :channels], spread, means[:, channels:]])
    edges = _neighbours(nodes)
    contrast = np.linalg.norm(means[edges[:, 0], :channels] - means[edges[:, 1], :channels], axis=1)
    return (X, edges, np.column_stack([np.ones(len(edges)), np.exp(-10.0 * contrast)])), nodes.astype(np.int64)


def _neighbours(nodes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Pairs of nodes with pixels side by side, each once."""
    across = np.column_stack([nodes[:, :-1].ravel(), nodes[:, 1:].ravel()])
    down = np.column_stack([nodes[:-1].ravel(), nodes[1:].ravel()])
    pairs = np.concatenate([across, down])
    pairs = np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1)
    return np.unique(pairs, axis=0).astype(np.int64).reshape(-1, 2)


def read_image_masks(folder: str | os.PathLike[str], n_superpixels: int = 200) -> tuple[GraphData, list[str]]:
    """Read a folder of images, and of masks if there are some, as graphs.

    Parameters
    ----------
    folder : path-like
        With the folders ``images`` and ``masks``.
    n_superpixels : int
        About how many nodes an image has; 0 is a node for each pixel.

    Returns
    -------
    data : GraphData
        Without masks, all labels are unknown, and there are no classes.
    names : list of str
        The names of the images, without endings.
    """
    if isinstance(n_superpixels, bool) or not isinstance(n_superpixels, int | np.integer) or n_superpixels < 0:
        raise OptionError(f"n_superpixels={n_superpixels!r} is not possible; it must be a whole number, 0 for pixels.")
    graphs: list[Graph] = []
    coloured: list[tuple[NDArray[np.int64], NDArray[np.int64], int]] = []
    names: list[str] = []
    for name, image, mask in _pairs(Path(folder)):
        graph, nodes = image_graph(image, int(n_superpixels))
        graphs.append(graph)
        names.append(name)
        if mask is not None:
            coloured.append((nodes.ravel(), mask.ravel(), len(graph[0])))
    if not coloured:
        return GraphData(graphs, [np.full(len(X), -1, np.int64) for X, _, _ in graphs], []), names
    colours = sorted({int(colour) for _, mask, _ in coloured for colour in np.unique(mask)} - {-1})
    if not colours:
        raise DataError(f"{os.fspath(folder)}: no pixel of the masks has a class.")
    labels, counts = [], []
    for nodes, mask, n in coloured:
        at = np.searchsorted(colours, mask)
        known = mask >= 0
        table = np.zeros((n, len(colours)), np.int64)
        np.add.at(table, (nodes[known], at[known]), 1)
        labels.append(np.where(table.sum(axis=1) > 0, table.argmax(axis=1), -1).astype(np.int64))
        counts.append(table)
    return GraphData(graphs, labels, [_colour_name(one) for one in colours], counts), names


def write_masks(
    path: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    labels: Sequence[Sequence[Any]],
    n_superpixels: int = 200,
) -> None:
    """Write the predicted labels of nodes as masks, a zip file of PNGs with the names of the images.

    Parameters
    ----------
    path : path-like
        The zip file to write or to replace, in one step.
    folder : path-like
        That `read_image_masks` read; its images are read again.
    labels : list of lists
        The class of each node of each image, in the order of `read_image_masks`: numbers from 0 to 255, or colours such as
        "#00ff00".
    n_superpixels : int
        As in `read_image_masks`.
    """
    images = _files(Path(folder) / "images")
    if len(images) != len(labels):
        raise DataError(f"{os.fspath(folder)} has {len(images)} images, but there are labels for {len(labels)}.")
    Image = _pillow()
    with atomic_write(path) as stream, zipfile.ZipFile(stream, "w") as archive:
        for name, row in zip(sorted(images), labels, strict=True):
            (X, _, _), nodes = image_graph(_pixels(images[name]), n_superpixels)
            if len(X) != len(row):
                raise DataError(f"{images[name]} has {len(X)} nodes, but {len(row)} labels; is n_superpixels the same?")
            colours = np.array([_colour(images[name], label) for label in row], np.uint8)
            content = io.BytesIO()
            Image.fromarray(colours[nodes]).save(content, "PNG")
            # One date for all, so that the same masks are the same file.
            archive.writestr(zipfile.ZipInfo(f"{name}.png", (1980, 1, 1, 0, 0, 0)), content.getvalue())


def _colour(path: Path, label: Any) -> int | list[int]:
    """The value of a mask's pixel, or its three."""
    if isinstance(label, str) and re.fullmatch("#[0-9a-f]{6}", label):
        return [int(label[k : k + 2], 16) for k in (1, 3, 5)]
    if isinstance(label, int | np.integer) and 0 <= label < 256:
        return int(label)
    raise DataError(f"{path}: the label {label!r} is no value of a mask: a number from 0 to 255, or a colour.")


#: Colours of several channels are numbers above all of one channel.
_COLOUR = 1 << 24


def _colour_name(colour: int) -> str:
    return str(colour) if colour < _COLOUR else f"#{colour - _COLOUR:06x}"


def _pairs(folder: Path) -> Iterator[tuple[str, Any, NDArray[np.int64] | None]]:
    """Name, image and mask, one after another."""
    images, masks = _files(folder / "images"), _files(folder / "masks")
    if not images:
        raise DataError(f"{folder / 'images'} has no images; expected files such as one.png.")
    if masks and set(masks) != set(images):
        name = min(set(masks) ^ set(images))
        have, lack = ("images", "masks") if name in images else ("masks", "images")
        raise DataError(f"{folder}: {have}/{name} has no file of that name in {lack}/.")
    for name in sorted(images):
        image = _pixels(images[name])
        mask = None
        if masks:
            mask = _classes(masks[name])
            if mask.shape != image.shape[:2]:
                raise DataError(f"{masks[name]} has {mask.shape} pixels, but its image has {image.shape[:2]}.")
        yield name, image, mask


def _files(folder: Path) -> dict[str, Path]:
    if not folder.is_dir():
        return {}
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        if path.suffix.lower() in _ENDINGS and not path.name.startswith("."):
            if path.stem in found:
                raise DataError(f"{folder}: {found[path.stem].name} and {path.name} have the same name.")
            found[path.stem] = path
    return found


def _pixels(path: Path, mask: bool = False) -> NDArray[Any]:
    """An image as whole numbers from 0 to 255, (h, w) or (h, w, 3); of a mask with a palette, the places in it."""
    Image = _pillow()
    try:
        with Image.open(path) as picture:
            if picture.width * picture.height > _MOST_PIXELS:
                raise DataError(f"{path} has {picture.width * picture.height} pixels; at most {_MOST_PIXELS} are read.")
            if picture.mode in ("I;16", "I", "F"):
                raise DataError(f"{path} has pixels of the mode {picture.mode}; expected 8 bits a channel.")
            grey = picture.mode in ("1", "L", "LA") or (mask and picture.mode == "P")
            found = np.asarray(picture if picture.mode == "P" and mask else picture.convert("L" if grey else "RGB"))
    except DataError:
        raise
    # Whatever Pillow raises about a broken file.
    except Exception as error:
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"{path} cannot be read as an image: {said.removesuffix('.')}.") from error
    return found


def _classes(path: Path) -> NDArray[np.int64]:
    """The class of each pixel of a mask, -1 for none."""
    mask = _pixels(path, mask=True).astype(np.int64)
    if mask.ndim == 3:
        return _COLOUR + (mask[:, :, 0] << 16) + (mask[:, :, 1] << 8) + mask[:, :, 2]
    return np.where(mask == NO_CLASS, -1, mask)


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise OptionError("Reading images needs Pillow: pip install 'maxmargin[images]'.") from None
    return Image


def _slic() -> Any:
    try:
        from skimage.segmentation import slic
    except ImportError:
        raise OptionError(
            "Superpixels need scikit-image: pip install 'maxmargin[images]'; 0 is a node for each pixel."
        ) from None
    return slic

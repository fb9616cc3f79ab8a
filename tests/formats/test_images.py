"""Folders of images and masks, as graphs."""

import io
import sys
import zipfile

import numpy as np
import pytest

from maxmargin.errors import DataError, OptionError
from maxmargin.formats import image_graph, read_image_masks, write_masks

Image = pytest.importorskip("PIL.Image")
pytest.importorskip("skimage")


def folder_of(path, images, masks=()):
    for name, pictures in (("images", images), ("masks", masks)):
        if len(pictures):
            (path / name).mkdir()
        for k, picture in enumerate(pictures):
            Image.fromarray(picture).save(path / name / f"{k}.png")
    return path


def halves(seed, size=12):
    """Dark on the left and bright on the right, and a mask that says so."""
    rng = np.random.default_rng(seed)
    bright = np.arange(size) >= rng.integers(4, size - 4)
    image = (60 + 120 * bright[None, :, None] + rng.integers(0, 40, (size, size, 3))).astype(np.uint8)
    return image, np.broadcast_to(np.where(bright, 3, 1), (size, size)).astype(np.uint8)


def test_pixels_are_a_grid(tmp_path):
    image = np.array([[[255, 0, 0], [0, 0, 0]], [[255, 255, 255], [0, 51, 0]]], np.uint8)
    (X, edges, weights), nodes = image_graph(image, 0)
    assert nodes.tolist() == [[0, 1], [2, 3]]
    assert edges.tolist() == [[0, 1], [0, 2], [1, 3], [2, 3]]
    assert X.tolist() == [
        [1, 0, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 0, 0.5], [1, 1, 1, 0, 0, 0, 0.5, 0], [0, 0.2, 0, 0, 0, 0, 0.5, 0.5]
    ]  # fmt: skip
    assert np.allclose(
        weights, np.column_stack([np.ones(4), np.exp([-10, -10 * 2**0.5, -2, -10 * (2 + 0.8**2) ** 0.5])])
    )


def test_superpixels_and_their_classes(tmp_path):
    image, mask = halves(0, 40)
    mask[:, :5] = 255
    data, names = read_image_masks(folder_of(tmp_path, [image], [mask]), 16)
    (X, edges, _), nodes = image_graph(image, 16)
    assert names == ["0"]
    assert np.array_equal(data.graphs[0][0], X)
    assert np.array_equal(data.graphs[0][1], edges)
    assert data.class_names == ["1", "3"]
    # Written anew: pixel by pixel.
    for node in range(len(X)):
        here = nodes == node
        counts = [int((mask[here] == k).sum()) for k in (1, 3)]
        assert data.pixel_counts[0][node].tolist() == counts
        assert data.labels[0][node] == (int(np.argmax(counts)) if sum(counts) else -1)
        assert np.allclose(X[node, :3], image[here].mean(axis=0) / 255)
        assert np.allclose(X[node, 3:6], image[here].std(axis=0) / 255)
    beside = {
        tuple(sorted((int(nodes[i, j]), int(nodes[i + a, j + b]))))
        for i in range(39) for j in range(39) for a, b in ((0, 1), (1, 0)) if nodes[i, j] != nodes[i + a, j + b]
    }  # fmt: skip
    assert {tuple(edge) for edge in edges.tolist()} >= beside
    assert len({tuple(edge) for edge in edges.tolist()}) == len(edges)


def test_colours_are_classes_and_masks_may_be_missing(tmp_path):
    image, mask = halves(1)
    colours = np.zeros((12, 12, 3), np.uint8)
    colours[mask == 3] = (0, 255, 16)
    data, _ = read_image_masks(folder_of(tmp_path, [image], [colours]), 0)
    assert data.class_names == ["#000000", "#00ff10"]
    assert np.array_equal(data.labels[0].reshape(12, 12), mask == 3)
    bare, _ = read_image_masks(folder_of(tmp_path / "images", [image[:, :, 0]]), 0)
    assert bare.class_names == []
    assert set(bare.labels[0].tolist()) == {-1}
    assert bare.graphs[0][0].shape == (144, 4)


def test_places_in_a_palette_are_classes(tmp_path):
    image, mask = halves(3)
    folder = folder_of(tmp_path, [image], [mask])
    picture = Image.fromarray(mask).convert("P")
    picture.putdata(mask.ravel().tolist())
    picture.putpalette([200, 0, 0] * 256)
    picture.save(folder / "masks" / "0.png")
    data, _ = read_image_masks(folder, 0)
    assert data.class_names == ["1", "3"]


@pytest.mark.parametrize("colours", [False, True])
def test_masks_come_back(tmp_path, colours):
    image, mask = halves(4, 30)
    made = np.stack([mask * 0, mask * 80, mask * 0 + 7], axis=2).astype(np.uint8) if colours else mask
    folder = folder_of(tmp_path, [image, image[:, ::-1].copy()], [made, made[:, ::-1].copy()])
    data, _ = read_image_masks(folder, 0)
    names = data.class_names if colours else [int(name) for name in data.class_names]
    write_masks(tmp_path / "masks.zip", folder, [[names[k] for k in row] for row in data.labels], 0)
    with zipfile.ZipFile(tmp_path / "masks.zip") as archive:
        assert archive.namelist() == ["0.png", "1.png"]
        found = np.asarray(Image.open(io.BytesIO(archive.read("1.png"))))
    assert np.array_equal(found, made[:, ::-1])
    with pytest.raises(DataError, match=r"0\.png has 900 nodes, but 3 labels; is n_superpixels the same"):
        write_masks(tmp_path / "bad.zip", folder, [[1, 1, 1]] * 2, 0)
    with pytest.raises(DataError, match="has 2 images, but there are labels for 1"):
        write_masks(tmp_path / "bad.zip", folder, [[1]], 0)
    with pytest.raises(DataError, match="the label 'x' is no value of a mask"):
        write_masks(tmp_path / "bad.zip", folder, [["x"] * 900] * 2, 0)
    assert not (tmp_path / "bad.zip").exists()


def test_what_is_refused(tmp_path, monkeypatch):
    image, mask = halves(2)
    with pytest.raises(DataError, match="has no images"):
        read_image_masks(tmp_path)
    folder = folder_of(tmp_path, [image, image], [mask])
    with pytest.raises(DataError, match=r"images/1 has no file of that name in masks/"):
        read_image_masks(folder)
    Image.fromarray(mask[:5]).save(folder / "masks" / "1.png")
    with pytest.raises(DataError, match=r"1\.png has \(5, 12\) pixels, but its image has \(12, 12\)"):
        read_image_masks(folder)
    (folder / "images" / "0.png").write_bytes(b"\x89PNG nothing")
    with pytest.raises(DataError, match=r"0\.png cannot be read as an image"):
        read_image_masks(folder)
    with pytest.raises(OptionError, match="n_superpixels=-1 is not possible"):
        read_image_masks(folder, -1)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "skimage.segmentation", None)
        with pytest.raises(OptionError, match=r"need scikit-image: pip install 'maxmargin\[images\]'"):
            image_graph(image)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(OptionError, match=r"needs Pillow: pip install 'maxmargin\[images\]'"):
        read_image_masks(folder)

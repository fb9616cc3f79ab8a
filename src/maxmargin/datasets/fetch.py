"""Real data sets, read from a directory of the user and downloaded into it where that is possible.

Conventions
-----------
The directory is `data_home`, else the environment variable ``MAXMARGIN_DATA``, else ``maxmargin`` in the user's cache
directory; each set has a folder in it, and each file may be there plain or as ``.xz``, ``.gz`` or ``.bz2``. A download
is kept only if the SHA-256 of its decompressed content is the one in this module. A file that is already there is the
user's own and is read as it is. No data comes with this library.
"""

from __future__ import annotations

import hashlib
import http.client
import io
import lzma
import os
import sys
import urllib.error
import urllib.request
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from maxmargin.errors import DataError, OptionError
from maxmargin.formats.arff import read_mulan
from maxmargin.formats.atomic import atomic_write
from maxmargin.formats.compression import decompressing
from maxmargin.formats.graphs import GraphData, read_graphs
from maxmargin.formats.multilabel import MultiLabelData
from maxmargin.formats.svmlight import read_libsvm_multilabel

Subset = Literal["train", "test"]

_SUFFIXES = ("", ".xz", ".gz", ".bz2")
_MAX_DOWNLOAD_BYTES = 32 << 20
_TIMEOUT_SECONDS = 60


@dataclass(frozen=True)
class _File:
    """A file of a data set: its place below the data directory, where it is published, and what it must hold."""

    name: str
    url: str
    sha256: str


# The first repository keeps its files in Git LFS, which this host serves.
_BOOMER = "https://media.githubusercontent.com/media/mrapp-ke/Boomer-Datasets"
_MULAN = "https://raw.githubusercontent.com/tsoumakas/mulan"
_LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multilabel"

_FILES = {
    ("yeast", "train"): _File(
        "yeast/yeast-train.arff",
        f"{_BOOMER}/73db96cbcc8cc8891830fc86827617e4a8e7f033/yeast-train.arff",
        "e759dc991ff54694a4ff9c4314f3be0d6fd2b1994a4b563f57e416394c6aebbd",
    ),
    ("yeast", "test"): _File(
        "yeast/yeast-test.arff",
        f"{_BOOMER}/7e587cb68234bf7628aef6ed0a5c2df8a4eb519e/yeast_test.arff",
        "4aaac102bff9669a765bf0b378602e5cc8c3b181048282e2f003117b496d552a",
    ),
    ("scene", "train"): _File(
        "scene/scene-train.arff",
        f"{_MULAN}/5862bed221a9ec2baf9a090f5e98637e9dfb088b/data/multi-label/scene/scene-train.arff",
        "b53ba93bdf412de922e3960389bcee24744fa3e872ce610511fc1d750888b64d",
    ),
    ("scene", "test"): _File(
        "scene/scene-test.arff",
        f"{_MULAN}/5862bed221a9ec2baf9a090f5e98637e9dfb088b/data/multi-label/scene/scene-test.arff",
        "ea38d20296b3ff7e220f477a3b802a9bcb2d768881fe6ee163efbc97ea527a42",
    ),
    ("tmc2007", "train"): _File(
        "tmc2007/tmc2007-500-train.arff",
        f"{_MULAN}/925c4bc85b1b7a7f238e05b921a4d621f1524bc3/data/multi-label/tmc2007-500/tmc2007-500-train.arff",
        "edfe7b7615c6f80e54c92a214437610d1ae36560c5cc6c4253b51c434d258273",
    ),
    ("tmc2007", "test"): _File(
        "tmc2007/tmc2007-500-test.arff",
        f"{_MULAN}/1531119649de9c7ffec8e3009c649e5985d76c21/data/multi-label/tmc2007/tmc2007-500-test.arff",
        "b24f9c3f1eba77c9da0bbaff093ba41d331b7351be0167a8e1e3852c62e25e38",
    ),
    ("bibtex", "train"): _File(
        "bibtex/bibtex-train.arff",
        f"{_BOOMER}/e925d705fe09f4ce593cf162e953862d8a0cee76/bibtex-train.arff",
        "8dcc9de6e0b2cebaec8c1f4fac78431adeeb73cfd3ab879b530a66d366e59174",
    ),
    ("bibtex", "test"): _File(
        "bibtex/bibtex-test.arff",
        f"{_BOOMER}/e925d705fe09f4ce593cf162e953862d8a0cee76/bibtex-test.arff",
        "9b03329cde64d3f994bdf7fbbac3f3b10fe185c311cb9ae725475f59c7f3f922",
    ),
    ("rcv1subset1", "train"): _File(
        "rcv1subset1/train.svm",
        f"{_LIBSVM}/rcv1subset_topics_train_1.svm.bz2",
        "b670ceabcd1f77d379384bfc93b37f067c5d6c2340b3c7d49162d2eebff82da3",
    ),
    ("rcv1subset1", "test"): _File(
        "rcv1subset1/test.svm",
        f"{_LIBSVM}/rcv1subset_topics_test_1.svm.bz2",
        "1faaed947af88ea312b14e0de448b01d97071878456f4cc56d59535cbf24adcf",
    ),
}


def fetch_yeast(
    data_home: str | os.PathLike[str] | None = None, subset: Subset = "train", download: bool = True
) -> MultiLabelData:
    """Read yeast: genes with 103 dense features and 14 labels, 1500 for training and 917 for testing.

    Parameters
    ----------
    data_home : path-like, optional
        The directory of all data sets.
    subset : {"train", "test"}
        Which examples.
    download : bool
        Whether a missing file may be downloaded.

    Returns
    -------
    MultiLabelData
        `X` is an ndarray.
    """
    return read_mulan(_locate("yeast", subset, data_home, download), n_labels=14)


def fetch_scene(
    data_home: str | os.PathLike[str] | None = None, subset: Subset = "train", download: bool = True
) -> MultiLabelData:
    """Read scene: images with 294 dense features and 6 labels, 1211 for training and 1196 for testing.

    Parameters
    ----------
    data_home : path-like, optional
        The directory of all data sets.
    subset : {"train", "test"}
        Which examples.
    download : bool
        Whether a missing file may be downloaded.

    Returns
    -------
    MultiLabelData
        `X` is an ndarray.
    """
    return read_mulan(_locate("scene", subset, data_home, download), n_labels=6)


def fetch_tmc2007(
    data_home: str | os.PathLike[str] | None = None, subset: Subset = "train", download: bool = True
) -> MultiLabelData:
    """Read tmc2007-500: aviation reports with 500 words and 22 labels, 21,519 for training and 7,077 for testing.

    Parameters
    ----------
    data_home : path-like, optional
        The directory of all data sets.
    subset : {"train", "test"}
        Which examples.
    download : bool
        Whether a missing file may be downloaded.

    Returns
    -------
    MultiLabelData
        `X` is a csr_array.
    """
    return read_mulan(_locate("tmc2007", subset, data_home, download), n_labels=22)


def fetch_bibtex(
    data_home: str | os.PathLike[str] | None = None, subset: Subset = "train", download: bool = True
) -> MultiLabelData:
    """Read bibtex: bookmarks with 1,836 words and 159 labels, 4,880 for training and 2,515 for testing.

    Parameters
    ----------
    data_home : path-like, optional
        The directory of all data sets.
    subset : {"train", "test"}
        Which examples.
    download : bool
        Whether a missing file may be downloaded.

    Returns
    -------
    MultiLabelData
        `X` is a csr_array.
    """
    return read_mulan(_locate("bibtex", subset, data_home, download), n_labels=159)


def fetch_rcv1subset1(
    data_home: str | os.PathLike[str] | None = None,
    subset: Subset = "train",
    download: bool = True,
    n_labels: int | None = None,
    drop_unlabelled: bool = False,
) -> MultiLabelData:
    """Read RCV1 topics, subset 1: news with 47,236 words and 101 labels, 3000 for training and 3000 for testing.

    Parameters
    ----------
    data_home : path-like, optional
        The directory of all data sets.
    subset : {"train", "test"}
        Which examples.
    download : bool
        Whether a missing file may be downloaded.
    n_labels : int, optional
        Keep the labels that are most frequent among the training examples (whichever `subset` is read, so that the
        columns of both agree; ties go to the smaller label), in their original order.
    drop_unlabelled : bool
        Leave out the examples that have none of these labels. With 10 labels, 2916 and 2914 remain, as in Finley and Joachims, ICML
        2008.

    Returns
    -------
    MultiLabelData
        `X` is a csr_array.
    """
    if n_labels is not None and not 1 <= n_labels <= 101:
        raise OptionError(f"n_labels is {n_labels}; expected 1 to 101.")
    data = _read_rcv1(subset, data_home, download)
    if n_labels is None:
        return _labelled(data) if drop_unlabelled else data
    frequencies = (data if subset == "train" else _read_rcv1("train", data_home, download)).Y.sum(
        axis=0, dtype=np.int64
    )
    kept = np.sort(np.argsort(-frequencies, kind="stable")[:n_labels])
    data = MultiLabelData(data.X, data.Y[:, kept], data.feature_names, [data.label_names[label] for label in kept])
    return _labelled(data) if drop_unlabelled else data


def _labelled(data: MultiLabelData) -> MultiLabelData:
    """The examples with at least one label."""
    rows = np.flatnonzero(data.Y.any(axis=1))
    X: Any = data.X
    return MultiLabelData(X[rows], data.Y[rows], data.feature_names, data.label_names)


def fetch_msrc21(
    superpixels: Literal[80, 200] = 80,
    data_home: str | os.PathLike[str] | None = None,
    subset: Literal["train", "validation", "test"] = "train",
    download: bool = True,
) -> GraphData:
    """Read MSRC-21: superpixel graphs of 276 images for training, 59 for validation and 256 for testing.

    The features were computed for this library and are published nowhere, so there is nothing to download.

    Parameters
    ----------
    superpixels : {80, 200}
        About how many superpixels an image was cut into.
    data_home : path-like, optional
        The directory of all data sets.
    subset : {"train", "validation", "test"}
        Which images.
    download : bool
        Changes nothing; it is here so that all fetchers are called alike.

    Returns
    -------
    GraphData
        149 features a node, 6 features an edge, 21 classes.
    """
    splits = {"train": 0, "validation": 1, "test": 2}
    if subset not in splits:
        raise OptionError(f"subset is {subset!r}; expected 'train', 'validation' or 'test'.")
    if superpixels not in (80, 200):
        raise OptionError(f"superpixels is {superpixels!r}; expected 80 or 200.")
    path = data_directory(data_home) / "msrc21" / f"msrc21_slic{superpixels}.npz"
    if not path.is_file():
        raise DataError(f"The data set msrc21 cannot be downloaded; put the file at {path}.")
    return read_graphs(path, split=splits[subset])


def _read_rcv1(subset: Subset, data_home: str | os.PathLike[str] | None, download: bool) -> MultiLabelData:
    path = _locate("rcv1subset1", subset, data_home, download)
    return read_libsvm_multilabel(path, 47236, [str(label) for label in range(101)], zero_based=False)


def data_directory(data_home: str | os.PathLike[str] | None) -> Path:
    """Where data sets are kept: the folder given, or that of the user."""
    if data_home is not None:
        return Path(data_home)
    if os.environ.get("MAXMARGIN_DATA"):
        return Path(os.environ["MAXMARGIN_DATA"])
    if sys.platform == "win32":
        cache = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        cache = Path.home() / "Library" / "Caches"
    else:
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "maxmargin"


def _locate(name: str, subset: Subset, data_home: str | os.PathLike[str] | None, download: bool) -> Path:
    """Return the path of a file of a data set, downloaded if it was missing."""
    if (name, subset) not in _FILES:
        raise OptionError(f"subset is {subset!r}; expected 'train' or 'test'.")
    file = _FILES[name, subset]
    plain = data_directory(data_home) / file.name
    for suffix in _SUFFIXES:
        path = plain.with_name(plain.name + suffix)
        if path.is_file():
            return path
    if not download:
        raise DataError(
            f"The file {plain} (or .xz, .gz, .bz2) of the data set {name} is not there; "
            f"put it there or allow the download of {file.url}."
        )
    suffix = Path(file.url).suffix
    target = plain.with_name(plain.name + suffix) if suffix in _SUFFIXES else plain
    _download(file, target)
    return target


class _SameSchemeRedirects(urllib.request.HTTPRedirectHandler):
    """Follow redirects to the scheme of the first request only, so that https is never left."""

    def redirect_request(  # type: ignore[no-untyped-def]
        self, req: urllib.request.Request, fp, code: int, msg: str, headers, newurl: str
    ) -> urllib.request.Request | None:
        if not newurl.startswith(f"{req.type}://"):
            raise urllib.error.URLError(f"it redirects to {newurl}, which is not {req.type}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _download(file: _File, target: Path, scheme: str = "https") -> None:
    """Download a file of known content, and keep it only if the content is the known one."""
    if not file.url.startswith(f"{scheme}://"):
        raise DataError(f"The address {file.url} is refused: expected {scheme}.")
    request = urllib.request.Request(file.url, headers={"User-Agent": "maxmargin"})
    by_hand = f"download it by hand and put its content at {target}"
    try:
        with urllib.request.build_opener(_SameSchemeRedirects).open(request, timeout=_TIMEOUT_SECONDS) as response:
            payload = response.read(_MAX_DOWNLOAD_BYTES + 1)
    except (OSError, http.client.HTTPException) as error:
        raise DataError(f"The download of {file.url} failed ({error}); {by_hand}.") from error
    try:
        content = decompressing(io.BytesIO(payload)).read(_MAX_DOWNLOAD_BYTES + 1)
    except (EOFError, OSError, lzma.LZMAError, zlib.error) as error:
        raise DataError(f"The download of {file.url} is truncated or corrupt ({error}); nothing was kept.") from error
    if max(len(payload), len(content)) > _MAX_DOWNLOAD_BYTES:
        raise DataError(f"The download of {file.url} is larger than {_MAX_DOWNLOAD_BYTES} bytes; nothing was kept.")
    found = hashlib.sha256(content).hexdigest()
    if found != file.sha256:
        raise DataError(
            f"The download of {file.url} has the SHA-256 {found}; expected {file.sha256}. Nothing was kept."
        )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"The directory {target.parent} cannot be made ({error.strerror or error}).") from error
    with atomic_write(target) as stream:
        stream.write(payload)

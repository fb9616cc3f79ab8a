"""Data sets by the names that experiments use, as the papers split and reduced them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.datasets import fetch_rcv1subset1, fetch_scene, fetch_tmc2007, fetch_yeast, make_synth1, make_synth2


class LabelData(NamedTuple):
    """Examples with sets of labels, to train on and to test with."""

    X: Any
    Y: NDArray[np.int8]
    X_test: Any
    Y_test: NDArray[np.int8]


def label_data(name: str, data_home: str | None = None) -> LabelData:
    """A multi-label data set of Finley and Joachims (ICML 2008, table 1).

    reuters keeps the 10 most frequent labels and the documents that have one of them. mediamill, which cannot be had, is stood in
    for by tmc2007 (aviation reports) with its 10 most frequent labels. small-synth1 and small-synth2 have fewer examples.
    """
    if name in ("scene", "yeast"):
        fetch = fetch_scene if name == "scene" else fetch_yeast
        train, test = (fetch(data_home, subset) for subset in ("train", "test"))
        return LabelData(train.X, train.Y, test.X, test.Y)
    if name == "reuters":
        train, test = (
            fetch_rcv1subset1(data_home, subset, n_labels=10, drop_unlabelled=True) for subset in ("train", "test")
        )
        return LabelData(train.X, train.Y, test.X, test.Y)
    if name == "tmc2007":
        train, test = (fetch_tmc2007(data_home, subset) for subset in ("train", "test"))
        kept = np.sort(np.argsort(-train.Y.sum(axis=0, dtype=np.int64), kind="stable")[:10])
        return LabelData(train.X, train.Y[:, kept], test.X, test.Y[:, kept])
    make = make_synth1 if name.endswith("synth1") else make_synth2
    n, n_test = {
        "synth1": (471, 5045),
        "synth2": (1000, 10_000),
        "small-synth1": (150, 1000),
        "small-synth2": (200, 1000),
    }[name]
    return LabelData(*make(n, 0), *make(n_test, 1))

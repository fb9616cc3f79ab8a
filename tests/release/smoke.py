"""What a user of the wheel does first: every estimator is fitted, saved, loaded and asked again.

`.ci/release` runs this in empty environments, and mypy reads it with --strict: what is public has types.
"""

import sys
import tempfile
import time
from pathlib import Path

began = time.perf_counter()
import maxmargin as mm  # noqa: E402

seconds = time.perf_counter() - began

import numpy as np  # noqa: E402
import scipy.sparse as sp  # noqa: E402


def main() -> None:
    """Fit all, and compare what was saved."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 6))
    classes = X[:, :3].argmax(axis=1)
    labels = (X[:, :3] > 0).astype(np.int64)
    sequences = [X[k : k + 6] for k in range(0, 120, 6)]
    tags = [classes[k : k + 6] for k in range(0, 120, 6)]
    edges = np.stack([np.arange(5), np.arange(1, 6)], axis=1)
    graphs = [(one, edges) for one in sequences]
    words = [["the", "dog", "barked"], ["dogs", "bark"], ["a", "small", "dog"]] * 4
    word_tags = [["D", "N", "V"], ["N", "V"], ["D", "A", "N"]] * 4

    binary = mm.BinarySVM(C=10.0).fit(X, classes == 0)
    multi_class = mm.MultiClassSVM(C=10.0).fit(sp.csr_array(X), classes)
    multi_label = mm.MultiLabelSVM(C=10.0).fit(X, labels)
    chain = mm.ChainSVM(C=10.0).fit(sequences, tags)
    graph = mm.GraphSVM(C=10.0).fit(graphs, tags)
    tagger = mm.ChainSVM().fit(words, word_tags)
    scores: dict[str, float] = {
        "binary": binary.score(X, classes == 0),
        "classes": multi_class.score(sp.csr_array(X), classes),
        "labels": multi_label.score(X, labels),
        "chain": chain.score(sequences, tags),
        "graph": graph.score(graphs, tags),
        "tagger": tagger.score(words, word_tags),
    }
    gap: float = chain.result_.gap
    status: str = chain.result_.status
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.mm"
        multi_label.save(path)
        assert np.array_equal(mm.load(path).predict(X), multi_label.predict(X))
        tagger.save(path)
        again = mm.load(path).predict(words)
        assert all(np.array_equal(one, other) for one, other in zip(again, tagger.predict(words), strict=True))
    assert min(scores.values()) > 0.8, scores
    assert gap < 0.01, gap
    assert status == "CONVERGED", status
    versions = ", ".join(f"{name} {sys.modules[name].__version__}" for name in ("numpy", "scipy", "numba", "sklearn"))
    python = ".".join(map(str, sys.version_info[:3]))
    print(f"maxmargin {mm.__version__} on Python {python}, {versions}: import {seconds:.2f} s; scores {scores}")


if __name__ == "__main__":
    main()

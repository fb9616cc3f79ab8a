"""Files of SVM-multiclass and SVM-hmm through our commands, beside the paper's algorithm written anew, and the optimum.

    python benchmarks/svm_struct_files.py --data-home ~/data

Data sets become files in the formats of SVM-struct; ``maxmargin svm-multiclass`` and ``svm-hmm`` learn and classify them. The
test error, read from the file of predictions, stands beside that of

- the paper: Algorithm 3 of Joachims, Finley and Yu (2009), which SVM-struct's ``-w 3`` is, written below in NumPy, with Clarabel
  for its quadratic programmes, at the same C and epsilon; it shares nothing with the library;
- the optimum: the same problem solved by bcfw to a certified gap a hundred times smaller than -e.

SVM-struct's own programs are not run: they may not be distributed, and no package has them.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import clarabel
import numpy as np
from scipy.sparse import csc_array, csr_array

import maxmargin as mm
from maxmargin.cli.main import run
from maxmargin.datasets import fetch_conll2000, fetch_covtype, fetch_ocr_letters
from maxmargin.features import TextFeatures
from maxmargin.formats import ClassData, SequenceData, write_svm_hmm, write_svmlight_classes


def covtype(home: str) -> tuple[ClassData, ClassData]:
    """4,000 rows to train and 20,000 to test, each column in 0 to 1, and a constant."""
    data = fetch_covtype(home)
    order = np.random.default_rng(0).permutation(len(data.y))[:24_000]
    X, y = data.X[order], data.y[order]
    X = (X - X.min(axis=0)) / np.maximum(np.ptp(X, axis=0), 1e-9)
    X = np.hstack([X, np.ones((len(X), 1))])
    names = [str(k + 1) for k in range(X.shape[1])]
    return ClassData(X[:4000], y[:4000], names), ClassData(X[4000:], y[4000:], names)


def letters(home: str) -> tuple[SequenceData, SequenceData]:
    """One fold of the handwritten words to train, the others to test; tags from 1."""
    parts = [fetch_ocr_letters(home, subset) for subset in ("train", "test")]
    return tuple(
        SequenceData(one.X, one.lengths, np.array([ord(tag) - 96 for tag in one.tags]), one.qids) for one in parts
    )


def chunks(home: str) -> tuple[SequenceData, SequenceData]:
    """500 sentences of CoNLL-2000 to train and 2,012 to test, as numbered features."""
    (train, tags), (test, truth) = fetch_conll2000(home, "train"), fetch_conll2000(home, "test")
    train, tags = train[:500], tags[:500]
    names = {tag: k + 1 for k, tag in enumerate(sorted({tag for row in tags for tag in row}))}
    features = TextFeatures.chunking().fit(train)
    made = []
    for sentences, rows in ((train, tags), (test, truth)):
        # A tag that no training sentence has cannot be right.
        flat = np.array([names.get(tag, len(names) + 1) for row in rows for tag in row])
        lengths = np.array([len(row) for row in rows])
        made.append(SequenceData(csr_array(features.transform(sentences)), lengths, flat, np.arange(1, len(rows) + 1)))
    return tuple(made)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-home", required=True)
    parser.add_argument("--only", default="covtype,letters,chunks")
    args = parser.parse_args()
    settings = {
        "covtype": (covtype, "svm-multiclass", [(1000, 0.1), (1000, 0.01), (10_000, 0.1)]),
        "letters": (letters, "svm-hmm", [(10, 0.1), (100, 0.1), (1000, 0.5)]),
        "chunks": (chunks, "svm-hmm", [(10, 0.1), (100, 0.5)]),
    }
    print("test errors in per cent; seconds of the command, and of the paper's algorithm")
    print(
        f"{'data':<9}{'-c':>7}{'-e':>5}{'-w 3':>8}{'-f 5':>8}{'paper':>8}{'optimum':>9}{'w3-paper':>10}{'f5-paper':>10}  seconds"
    )
    with tempfile.TemporaryDirectory() as folder:
        for name in args.only.split(","):
            make, program, values = settings[name]
            train, test = make(args.data_home)
            files = [str(Path(folder) / f"{name}-{kind}") for kind in ("train.dat", "test.dat", "model", "out")]
            write = write_svmlight_classes if program == "svm-multiclass" else write_svm_hmm
            write(files[0], train)
            write(files[1], test)
            for C, epsilon in values:
                compare(name, program, C, epsilon, files, train, test)


def compare(name, program, C, epsilon, files, train, test) -> None:
    truth = np.asarray(test.y if program == "svm-multiclass" else test.tags)
    errors, seconds = [], []
    for algorithm in (["-w", "3"], ["-w", "4", "-f", "5"]):
        started = time.perf_counter()
        line = [*algorithm, "-c", str(C), "-e", str(epsilon), "-v", "0"]
        assert run([program, "learn", *line, files[0], files[2]]) == 0
        seconds.append(time.perf_counter() - started)
        assert run([program, "classify", "-v", "0", files[1], files[2], files[3]]) == 0
        predicted = np.array([int(line.split()[0]) for line in Path(files[3]).read_text().splitlines()])
        errors.append(100 * float((predicted != truth).mean()))
    started = time.perf_counter()
    errors.append(100 * paper(program, C, epsilon, train, test))
    seconds.append(time.perf_counter() - started)
    errors.append(100 * optimum(program, C, epsilon / 100, train, test))
    w3, w4, theirs, best = errors
    print(
        f"{name:<9}{C:>7g}{epsilon:>5g}{w3:>8.2f}{w4:>8.2f}{theirs:>8.2f}{best:>9.2f}{w3 - theirs:>10.2f}{w4 - theirs:>10.2f}  "
        + " ".join(f"{one:.1f}" for one in seconds),
        flush=True,
    )


def optimum(program, C, tol, train, test) -> float:
    """The test error of the same problem by another solver, to a certificate."""
    shared = {"C": C, "solver": "bcfw", "tol": tol, "fit_intercept": False, "scale": False, "max_passes": 100_000}
    if program == "svm-multiclass":
        K = len(np.unique(train.y))
        model = mm.MultiClassSVM(loss=100.0 * (1 - np.eye(K)), **shared).fit(train.X, train.y)
        right = model.predict(test.X) == test.y
    else:
        model = mm.ChainSVM(loss="count", boundary=False, **shared).fit(train.sequences(), train.tag_lists())
        right = np.concatenate(model.predict(test.sequences())) == test.tags
    assert str(model.result_.status) == "CONVERGED", model.result_.summary()
    return 1.0 - float(right.mean())


# --------------------------------------------------------------------------------------------------------------------
# The paper's algorithm. Classes are chains of one position without transitions, with a loss of 100.


def paper(program, C, epsilon, train, test) -> float:
    single = program == "svm-multiclass"
    lengths = np.ones(len(train.y), int) if single else train.lengths
    tags = np.asarray(train.y if single else train.tags) - 1
    K, p = int(tags.max()) + 1, train.X.shape[1]
    cost, n = 100.0 if single else 1.0, len(lengths)
    own = joint(train.X, lengths, tags, K)
    w = np.zeros(K * p + K * K)
    planes, sides, gram = [], [], np.zeros((0, 0))
    xi = 0.0
    while True:
        guess = viterbi(train.X, lengths, w, K, cost * (1 - np.eye(K))[tags])
        plane = (own - joint(train.X, lengths, guess, K)) / n
        side = cost * float((guess != tags).sum()) / n
        if side - w @ plane <= xi + epsilon:
            break
        planes.append(plane)
        sides.append(side)
        row = np.array([plane @ other for other in planes])
        gram = np.block([[gram, row[:-1, None]], [row[None, :-1], row[-1:, None]]])
        alpha = programme(gram, np.array(sides), C)
        w = np.array(planes).T @ alpha
        xi = max(0.0, max(side - w @ plane for side, plane in zip(sides, planes, strict=True)))
    guess = viterbi(test.X, np.ones(len(test.y), int) if single else test.lengths, w, K)
    return float((guess + 1 != np.asarray(test.y if single else test.tags)).mean())


def programme(gram, sides, C):
    """max sides.alpha - 1/2 alpha.gram.alpha, alpha >= 0, sum alpha <= C."""
    m = len(sides)
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    A = csc_array(np.vstack([-np.eye(m), np.ones((1, m))]))
    cones = [clarabel.NonnegativeConeT(m + 1)]
    bounds = np.concatenate([np.zeros(m), [C]])
    answer = clarabel.DefaultSolver(csc_array(np.triu(gram)), -sides, A, bounds, cones, settings).solve()
    return np.maximum(np.array(answer.x), 0.0)


def joint(X, lengths, tags, K):
    """Sums of features by tag, and counts of pairs of tags."""
    where = csr_array((np.ones(len(tags)), (tags, np.arange(len(tags)))), shape=(K, len(tags)))
    emissions = where @ X
    first = np.zeros(len(tags), bool)
    first[np.cumsum([0, *lengths[:-1]])] = True
    later = np.flatnonzero(~first)
    pairs = np.zeros((K, K))
    np.add.at(pairs, (tags[later - 1], tags[later]), 1.0)
    emissions = emissions.toarray() if hasattr(emissions, "toarray") else emissions
    return np.concatenate([emissions.ravel(), pairs.ravel()])


def viterbi(X, lengths, w, K, more=0.0):
    """Best tags of all sequences; all sequences of one length at a time."""
    p = X.shape[1]
    scores = X @ w[: K * p].reshape(K, p).T + more
    moves = w[K * p :].reshape(K, K)
    starts = np.cumsum([0, *lengths[:-1]])
    found = np.empty(len(scores), int)
    for length in np.unique(lengths):
        rows = starts[lengths == length][:, None] + np.arange(length)
        best, back = scores[rows[:, 0]], []
        for t in range(1, length):
            table = best[:, :, None] + moves
            back.append(table.argmax(axis=1))
            best = table.max(axis=1) + scores[rows[:, t]]
        tag = best.argmax(axis=1)
        for t in range(length - 1, -1, -1):
            found[rows[:, t]] = tag
            if t:
                tag = back[t - 1][np.arange(len(tag)), tag]
    return found


if __name__ == "__main__":
    main()

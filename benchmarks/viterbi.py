"""Transitions a second: Viterbi over all sentences of CoNLL 2000 with their BIO tags, in one and in two threads.

    python benchmarks/viterbi.py [--data-home DIR] [--repeats 7]

A transition is a pair of neighbouring tokens and a pair of tags. Features are the word, its part of speech and the words beside
it; weights are random, since the time does not depend on them. Transitions that BIO does not allow are forbidden.

- *maximise*: `batches.maximise` with `Trees()`, from score tables to labels. The tables of all sentences would take more than a
  gigabyte, so they are made, outside the clock, for a part of the sentences at a time.
- *predict*: `batches.predict` with `Trees()`, from weights to labels; it makes the tables of a few sentences at a time.

The four runs alternate, and their labels must be equal.
"""

from __future__ import annotations

import argparse
import io
import os
import pathlib
import time
import zipfile

import numpy as np
import scipy.sparse as sp

from maxmargin.inference import Trees
from maxmargin.inference.batches import maximise, predict
from maxmargin.problems import chain_problem

#: Size of the score tables that *maximise* is given at a time.
PART_BYTES = 256 << 20


def read_sentences(data_home):
    """All sentences of both files, each a list of rows (word, part of speech, tag)."""
    path = pathlib.Path(data_home) / "conll2000" / "conll2000.zip"
    sentences = []
    with zipfile.ZipFile(path) as archive:
        for name in ("train.txt", "test.txt"):
            with archive.open(f"conll2000/{name}") as stream:
                blocks = io.TextIOWrapper(stream, "utf-8").read().split("\n\n")
            sentences += [[row.split() for row in block.splitlines()] for block in blocks if block.strip()]
    return sentences


def sparse_features(sentences):
    """A CSR matrix a sentence: a column per word, part of speech, word before and word after."""
    rows = [row for sentence in sentences for row in sentence]
    lengths = np.array([len(sentence) for sentence in sentences])
    ends = np.cumsum(lengths)
    words, word = np.unique([row[0] for row in rows], return_inverse=True)
    kinds, kind = np.unique([row[1] for row in rows], return_inverse=True)
    # The word beyond either end of a sentence has a column of its own.
    before, after = np.roll(word, 1), np.roll(word, -1)
    before[ends - lengths] = after[ends - 1] = len(words)
    widths = (len(words), len(kinds), len(words) + 1, len(words) + 1)
    firsts = np.cumsum((0, *widths))
    columns = np.stack([word, kind, before, after], axis=1) + firsts[:-1]
    X = sp.csr_array(
        (np.ones(columns.size), columns.ravel(), np.arange(0, columns.size + 1, 4)), (len(rows), firsts[-1])
    )
    return [X[end - length : end] for end, length in zip(ends, lengths, strict=True)]


def forbidden_by_bio(tags):
    """I-X comes after B-X and I-X only."""
    return np.array([[after[0] == "I" and before not in (f"B{after[1:]}", after) for after in tags] for before in tags])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-home", default=os.environ.get("MAXMARGIN_DATA"))
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--sentences", type=int, help="use the first few only, to try things out")
    options = parser.parse_args()
    if options.data_home is None:
        parser.error("give --data-home, or set MAXMARGIN_DATA; it holds conll2000/conll2000.zip")
    sentences = read_sentences(options.data_home)[: options.sentences]
    tags = sorted({row[2] for sentence in sentences for row in sentence})
    truth = [[tags.index(row[2]) for row in sentence] for sentence in sentences]
    forbidden = forbidden_by_bio(tags)
    graphs = chain_problem(sparse_features(sentences), truth, len(tags), forbidden=forbidden)
    weights = np.random.default_rng(0).normal(size=graphs.n_weights)
    lengths = np.diff(graphs.example_variables)
    transitions = int((lengths - 1).sum()) * len(tags) ** 2
    print(
        f"{len(lengths)} sentences, {lengths.sum()} tokens, {len(tags)} tags, {transitions / 1e6:.1f} million transitions"
    )
    part_of = 8 * graphs.example_tables[:-1] // PART_BYTES
    parts = [graphs.take(part) for part in np.split(np.arange(len(lengths)), np.flatnonzero(np.diff(part_of)) + 1)]

    engine = Trees()
    small = graphs.take(np.arange(min(64, len(lengths))))
    for jobs in (1, 2):  # compiled before the clock starts
        maximise(small, small.scores(weights), engine, jobs)
        predict(small, weights, engine, jobs)
    seconds = {(what, jobs): [] for what in ("maximise", "predict") for jobs in (1, 2)}
    for repeat in range(options.repeats):
        # Who goes first changes, since what goes second finds the tables in memory.
        order = (1, 2) if repeat % 2 == 0 else (2, 1)
        total, labels = dict.fromkeys(seconds, 0.0), {key: [] for key in seconds}
        for part in parts:
            scores = part.scores(weights)
            for jobs in order:
                start = time.perf_counter()
                labels["maximise", jobs].append(maximise(part, scores, engine, jobs).labels)
                total["maximise", jobs] += time.perf_counter() - start
            del scores
        for jobs in order:
            start = time.perf_counter()
            labels["predict", jobs].append(predict(graphs, weights, engine, jobs).labels)
            total["predict", jobs] += time.perf_counter() - start
        first, *others = [np.concatenate(found) for found in labels.values()]
        assert all(np.array_equal(first, other) for other in others), "the four runs differ in their labels"
        inside = np.delete(np.arange(len(first) - 1), np.cumsum(lengths)[:-1] - 1)
        assert not forbidden[first[inside], first[inside + 1]].any(), "a labeling has a transition that BIO forbids"
        for key, taken in total.items():
            seconds[key].append(taken)

    print(f"\n{'billion transitions a second':30} {'median':>7} {'from':>7} {'to':>7}    threads gain (from - to)")
    for (what, jobs), taken in seconds.items():
        rate = transitions / np.array(taken) / 1e9
        gain = ""
        if jobs == 2:
            ratio = np.array(seconds[what, 1]) / np.array(taken)
            gain = f"{np.median(ratio):7.2f} ({ratio.min():.2f} - {ratio.max():.2f})"
        name = f"{what}, {jobs} thread{'s' if jobs > 1 else ''}"
        print(f"{name:30} {np.median(rate):7.3f} {rate.min():7.3f} {rate.max():7.3f}    {gain}")


if __name__ == "__main__":
    main()

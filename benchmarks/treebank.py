"""Parsing the Penn sample: sizes, oracle calls with and without a cache, against n-slack and BCFW, and F1 against the PCFG.

    python benchmarks/treebank.py [--data-home DIR] [--part sizes training caches f1 folds] [--C 100] [--tol 0.001]

Trees of at most 15 words without traces and functions, as in Cutting, section 5. The first nine tenths of the files are for
training, the rest is held out. The grammar of *training* and *caches* has rules that remember one label (markov=1), words seen
once are unknown, and the task loss is that of brackets: a gap of 0.001 is 0.1 %.

- *sizes*: trees, rules and weights of each grammar.
- *training*: calls of the oracle (one a sentence) and seconds to the gap: one-slack with a cache and without, as published (planes
  asked for at the programme's weights) and as is the default; n-slack; BCFW.
- *caches*: one-slack as published with caches of f = 0, 1, 2, 5, 10 and 20 planes (Joachims et al. 2009, figures 1, 5 and 6).
- *f1*: brackets of the held-out sentences, by the trained model and by the maximum likelihood weights of the same grammar.
- *folds*: the same over five folds by file, which has every sentence held out once; *f1* has no more than some 50. C is not
  chosen but given, and all settings are shown: the best of them was not chosen on other sentences than these.

One thread.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import tempfile
import time
import warnings
import zipfile

from maxmargin.estimators.parser import ParserSVM
from maxmargin.parsing.brackets import bracket_scores
from maxmargin.parsing.forests import SPAN_FEATURES
from maxmargin.parsing.treebank import read_trees
from maxmargin.solvers import BCFW, NSlack, OneSlack

SETTINGS = (
    ("rules", {"markov": 1}),
    ("rules and spans", {"markov": 1, "span_features": SPAN_FEATURES}),
    ("annotated rules", {"markov": 1, "parent": True}),
    ("annotated, spans", {"markov": 1, "parent": True, "span_features": SPAN_FEATURES}),
    ("annotated, markov 0", {"markov": 0, "parent": True}),
    ("the same, spans", {"markov": 0, "parent": True, "span_features": SPAN_FEATURES}),
)
CACHES = (0, 1, 2, 5, 10, 20)
N_FOLDS = 5


def load(data_home, longest):
    """Short trees of each file."""
    path = pathlib.Path(data_home) / "treebank-sample" / "treebank.zip"
    files = []
    with zipfile.ZipFile(path) as archive, tempfile.TemporaryDirectory() as folder:
        for name in sorted(name for name in archive.namelist() if name.endswith(".mrg")):
            trees = read_trees(archive.extract(name, folder), remove_traces=True, remove_functions=True)
            files.append([tree for tree in trees if len(tree.words()) <= longest])
    return files


def split(files):
    cut = 9 * len(files) // 10
    return [tree for file in files[:cut] for tree in file], [tree for file in files[cut:] for tree in file]


def show_sizes(train, test):
    words = sum(len(tree.words()) for tree in train)
    print(f"{len(train)} trees to train on ({words} words), {len(test)} held out")
    print("grammar                 symbols  binary  unary  lexical    rules  weights")
    for name, setting in SETTINGS:
        # One step is enough to see the sizes.
        model = ParserSVM(1e-6, max_passes=1, **setting).fit(train)
        g = model.grammar_
        sizes = (len(g.symbols), len(g.binary), len(g.unary), len(g.lexical), g.n_rules, len(model.coef_))
        print(f"{name:22} {sizes[0]:8} {sizes[1]:7} {sizes[2]:6} {sizes[3]:8} {sizes[4]:8} {sizes[5]:8}", flush=True)


def run(label, solver, train, options):
    begin = time.perf_counter()
    model = ParserSVM(
        options.C, markov=1, solver=solver, tol=options.tol, max_seconds=options.max_seconds, max_passes=10**6
    )
    result = model.fit(train).result_
    extra = f"{result.options['n_cached']} cached visits" if "n_cached" in result.options else ""
    if "n_recalled" in result.history:
        extra = f"{int(result.history['n_recalled'][-1])} rounds from the cache"
    print(
        f"{label:34} {result.n_oracle_calls:8} calls = {result.n_oracle_calls / len(train):7.1f} n, {result.n_passes:5} rounds, "
        f"{result.seconds:7.1f} s, gap {result.gap:.4f} ({result.status})  {extra}",
        flush=True,
    )
    return result, time.perf_counter() - begin


def show_training(train, options):
    print(f"to a gap of {options.tol:g}, C = {options.C:g}")
    for label, solver in (
        ("bcfw", BCFW()),
        ("one-slack, cache of 10", OneSlack(cache=10)),
        ("one-slack, no cache", OneSlack(cache=0)),
        ("one-slack, cache of 10, published", OneSlack(cache=10, step=1.0)),
        ("one-slack, no cache, published", OneSlack(cache=0, step=1.0)),
        ("n-slack", NSlack()),
    ):
        run(label, solver, train, options)


def show_caches(train, options):
    print(f"one-slack as published to a gap of {options.tol:g}, C = {options.C:g}")
    for f in CACHES:
        run(f"f = {f}", OneSlack(cache=f, step=1.0), train, options)


def line(name, scores, missing):
    return (
        f"{name:30} F1 {100 * scores.f1:5.2f}  precision {100 * scores.precision:5.2f}  recall {100 * scores.recall:5.2f}  "
        f"exact {100 * scores.exact_match:5.2f}  tags {100 * scores.tag_accuracy:5.2f}  without a parse {missing}"
    )


def show_f1(parts, options):
    """Of (train, test) pairs, all test sentences together."""
    warnings.simplefilter("ignore", UserWarning)
    for name, setting in SETTINGS:
        gold, predicted, by_counts, gaps = [], [], [], []
        for train, test in parts:
            model = ParserSVM(options.C, tol=10 * options.tol, max_seconds=options.max_seconds, **setting).fit(train)
            sentences = [tree.words() for tree in test]
            gold += test
            predicted += model.predict(sentences)
            by_counts += model.baseline().predict(sentences)
            gaps.append(model.result_.gap)
        for kind, trees in (("PCFG", by_counts), ("SVM", predicted)):
            print(line(f"{name}, {kind}", bracket_scores(gold, trees), sum(tree is None for tree in trees)), flush=True)
        print(f"{'':30} largest gap {max(gaps):.4f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-home", default=os.environ.get("MAXMARGIN_DATA"))
    parser.add_argument("--part", nargs="+", default=["sizes", "training", "caches", "f1", "folds"])
    parser.add_argument("--C", type=float, default=100.0)
    parser.add_argument("--tol", type=float, default=0.001)
    parser.add_argument("--max-words", type=int, default=15)
    parser.add_argument("--max-seconds", type=float, default=900.0, help="of one training")
    options = parser.parse_args()
    if options.data_home is None:
        parser.error("give --data-home, or set MAXMARGIN_DATA: the treebank cannot be downloaded")
    files = load(options.data_home, options.max_words)
    train, test = split(files)
    if "sizes" in options.part:
        show_sizes(train, test)
    if "training" in options.part:
        show_training(train, options)
    if "caches" in options.part:
        show_caches(train, options)
    if "f1" in options.part:
        show_f1([(train, test)], options)
    if "folds" in options.part:
        parts = [
            (
                [tree for i, file in enumerate(files) if i % N_FOLDS != k for tree in file],
                [tree for i, file in enumerate(files) if i % N_FOLDS == k for tree in file],
            )
            for k in range(N_FOLDS)
        ]
        show_f1(parts, options)


if __name__ == "__main__":
    main()

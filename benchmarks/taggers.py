"""Taggers from lists of words to a model: seconds and memory of `ChainSVM.fit`, beside CRFsuite.

    python benchmarks/taggers.py [--task chunks words] [--run perceptron bcfw ap pa] [--copies 1] [--repeats 3] [--data-home DIR]

CoNLL-2000: its chunk tags from words and parts of speech (`TextFeatures.chunking()`, F1 of chunks), or its parts of speech from
words (`TextFeatures()`, per cent of the tags). Every run is a process of its own, because only then is its peak of memory its own;
runs alternate. Seconds are of the processor, in one thread, after a first fit of some sentences has compiled everything. Ours are
all of `fit`: features, checks of the data, training, names. CRFsuite's are of training alone, for the same features, made before:
making them as strings, and handing them over, is not counted. ``--copies 28`` trains on the sentences that often: 250,208.

Passes are those that reach about the same quality: 4 of our perceptron, a gap of 0.02 for BCFW with C = 30, 6 of CRFsuite's
averaged perceptron, 10 of its passive-aggressive method.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings

import numpy as np

OURS = {
    "perceptron": {"C": 1.0, "solver": "perceptron", "max_passes": 4},
    "bcfw": {"C": 30.0, "solver": "bcfw", "tol": 0.02},
}
THEIRS = {"ap": 6, "pa": 10}


def load(task, home, subset):
    from maxmargin.datasets import fetch_conll2000

    sentences, chunks = fetch_conll2000(home, subset)
    if task == "chunks":
        return sentences, chunks
    return [[word for word, _ in one] for one in sentences], [[pos for _, pos in one] for one in sentences]


def quality(task, truth, found):
    from maxmargin.reporting.chunks import chunk_scores

    if task == "chunks":
        return 100.0 * chunk_scores(truth, found).overall.f1
    pairs = zip(itertools.chain(*truth), itertools.chain(*found), strict=True)
    return 100.0 * float(np.mean([one == other for one, other in pairs]))


def ours(args, name, features):
    from maxmargin import ChainSVM

    warnings.simplefilter("ignore")
    X, y = load(args.task[0], args.data_home, "train")
    # Large enough for all that the whole needs to be compiled.
    ChainSVM(features=features, **OURS[name] | {"max_passes": 2}).fit(X[:3000], y[:3000])
    X, y = X * args.copies, y * args.copies
    started = time.process_time()
    model = ChainSVM(features=features, **OURS[name]).fit(X, y)
    seconds = time.process_time() - started
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    X, truth = load(args.task[0], args.data_home, "test")
    return seconds, memory, quality(args.task[0], truth, [list(tags) for tags in model.predict(X)])


def theirs(args, name, features):
    import pycrfsuite

    def items(X, matrix):
        names = features.feature_names_
        rows = [[names[j] for j in matrix.indices[a:b]] for a, b in itertools.pairwise(matrix.indptr)]
        cuts = np.concatenate([[0], np.cumsum([len(one) for one in X])])
        return [pycrfsuite.ItemSequence(rows[a:b]) for a, b in itertools.pairwise(cuts)]

    X, y = load(args.task[0], args.data_home, "train")
    trainer = pycrfsuite.Trainer(algorithm=name, verbose=False, params={"max_iterations": THEIRS[name]})
    made = items(X, features.fit_transform(X))
    for one, tags in itertools.chain(*(zip(made, y, strict=True) for _ in range(args.copies))):
        trainer.append(one, tags)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model")
        started = time.process_time()
        trainer.train(path)
        seconds = time.process_time() - started
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        tagger = pycrfsuite.Tagger()
        tagger.open(path)
        X, truth = load(args.task[0], args.data_home, "test")
        found = [tagger.tag(one) for one in items(X, features.transform(X))]
        tagger.close()
    return seconds, memory, quality(args.task[0], truth, found)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", nargs="+", choices=["chunks", "words"], default=["chunks", "words"])
    parser.add_argument("--run", nargs="+", choices=[*OURS, *THEIRS], default=[*OURS, *THEIRS])
    parser.add_argument("--copies", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--data-home", default=os.environ.get("MAXMARGIN_DATA"))
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        from maxmargin.features import TextFeatures

        features = TextFeatures.chunking() if args.task[0] == "chunks" else TextFeatures()
        print(json.dumps((ours if args.run[0] in OURS else theirs)(args, args.run[0], features)))
        return
    for task in args.task:
        found = {name: [] for name in args.run}
        for _, name in itertools.product(range(args.repeats), args.run):
            command = [sys.executable, __file__, "--one", "--task", task, "--run", name, "--copies", str(args.copies)]
            command += [] if args.data_home is None else ["--data-home", args.data_home]
            environment = os.environ | {"OMP_NUM_THREADS": "1"}
            out = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
            found[name].append(json.loads(out.splitlines()[-1]))
        for name, runs in found.items():
            seconds, memory, score = np.array(runs).T
            print(
                f"{task:7s} {name:11s} {np.median(seconds):7.2f} s ({seconds.min():.2f}-{seconds.max():.2f})  "
                f"{np.median(memory) / 1e6:5.2f} GB  {score[0]:.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()

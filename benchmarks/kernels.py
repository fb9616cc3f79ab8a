"""Linear models, a kernel and bases of it: test error and seconds, on Yeast and on handwritten words.

    python benchmarks/kernels.py [--data yeast ocr] [--n-basis 500] [--data-home DIR]

Yeast: 14 labels and all their pairs, 1500 genes for training and 917 for testing. Words: the letters of 1000 of Taskar's words,
drawn at random, and of 1000 others for testing. The task loss is the fraction of wrong labels or letters.

C is chosen for each model on a third of the training examples, by models trained on the rest; gamma, as a multiple of "scale", for
all models with a kernel together, by a basis of k-means (the exact kernel at every point of the grid would take an hour).
Then each model is trained on all training examples to the same certified gap. Seconds are those of `fit`, with the kernel's matrix
or the basis, and after kernels were compiled; they are the processor's, which other programs do not lengthen (so set
OMP_NUM_THREADS=1). Errors are in per cent of labels or letters; "rest" is the share of k(x, x) that a basis misses, in the mean
over training rows.
"""

from __future__ import annotations

import argparse
import os
import time

import numpy as np
from ocr import load

from maxmargin import ChainSVM, MultiLabelSVM
from maxmargin.datasets import fetch_yeast
from maxmargin.estimators.basis import BASES

#: By data set: the values of C for the linear model and for kernels, multiples of gamma="scale", and the gap to train to.
GRIDS = {
    "yeast": ((1.0, 10.0, 100.0, 1000.0), (10.0, 30.0, 100.0, 300.0), (0.3, 1.0, 3.0), 0.005),
    "ocr": ((3.0, 10.0, 30.0, 100.0, 300.0), (100.0, 300.0, 1000.0, 3000.0), (0.5, 1.0, 2.0), 0.01),
}


def yeast(data_home):
    parts = [fetch_yeast(data_home, subset) for subset in ("train", "test")]
    return MultiLabelSVM, *[(data.X, data.Y) for data in parts]


def ocr(data_home):
    X, y, _ = load(data_home)
    order = np.random.default_rng(0).permutation(len(X))[:2000]
    # The last column is a constant, which models have of their own.
    words = [([X[m][:, :-1] for m in part], [y[m] for m in part]) for part in np.split(order, 2)]
    return ChainSVM, *words


def some(data, chosen):
    return tuple([part[m] for m in chosen] if isinstance(part, list) else part[chosen] for part in data)


def rows_of(X):
    return np.concatenate(X) if isinstance(X, list) else X


def fit(kind, train, test, **options):
    """The model, its test error in per cent, and the seconds of `fit`."""
    model = kind(max_passes=10_000, **options)
    begin = time.process_time()
    model.fit(*train)
    seconds = time.process_time() - begin
    return model, 100.0 * (1.0 - model.score(*test)), seconds


def compare(name, options):
    kind, train, test = {"yeast": yeast, "ocr": ocr}[name](options.data_home)
    linear_Cs, kernel_Cs, multiples, tol = GRIDS[name]
    n = len(train[0])
    # What "scale" comes to, so that all models have the same kernel.
    rows = rows_of(train[0])
    scale = 1.0 / (rows.shape[1] * rows.var())
    order = np.random.default_rng(1).permutation(n)
    part, held_out = some(train, order[n // 3 :]), some(train, order[: n // 3])
    few = some(train, order[:60])
    for more in ({}, {"kernel": "rbf"}, {"kernel": "rbf", "n_basis": 10}):  # compiled before the clock starts
        fit(kind, few, few, tol=0.1, **more)

    print(f"\n{name}: {n} training examples, {len(rows)} rows, {len(test[0])} test examples; gap {tol:g}\n")

    def held_out_error(**setting):
        return fit(kind, part, held_out, tol=2 * tol, **setting)[1]

    size = {"n_basis": options.n_basis}
    _, gamma = min(
        (held_out_error(C=C, kernel="rbf", gamma=times * scale, basis="k-means", **size), times * scale)
        for C in kernel_Cs
        for times in multiples
    )
    print(f"gamma = {gamma:.4g}, {gamma / scale:g} times scale", flush=True)
    rbf = {"kernel": "rbf", "gamma": gamma}
    settings = {"linear": {}, "rbf": rbf}
    for basis in BASES:
        settings[f"rbf, {options.n_basis} by {basis}"] = rbf | size | {"basis": basis}

    print("\n| model                  |     C | held out | test error | seconds | of rbf | gap    | passes | rest   |")
    print("|------------------------|------:|---------:|-----------:|--------:|-------:|-------:|-------:|-------:|")
    whole = np.nan
    for title, setting in settings.items():
        before, C = min((held_out_error(C=C, **setting), C) for C in (kernel_Cs if setting else linear_Cs))
        model, error, seconds = fit(kind, train, test, C=C, tol=tol, **setting)
        whole = seconds if title == "rbf" else whole
        rest = f"{model.basis_residual_:6.3f}" if "n_basis" in setting else " " * 6
        print(
            f"| {title:22} | {C:5g} | {before:8.2f} | {error:10.2f} | {seconds:7.2f} | {seconds / whole:6.3f} "
            f"| {model.result_.gap:6.2g} | {model.result_.n_passes:6} | {rest} |",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", choices=GRIDS, default=list(GRIDS))
    parser.add_argument("--n-basis", type=int, default=500)
    parser.add_argument("--data-home", default=os.environ.get("MAXMARGIN_DATA"))
    options = parser.parse_args()
    if options.data_home is None:
        parser.error("give --data-home, or set MAXMARGIN_DATA; it holds yeast and ocr-letters/letters.npz")
    for name in options.data:
        compare(name, options)


if __name__ == "__main__":
    main()

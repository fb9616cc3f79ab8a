"""Cutting planes with one slack and with n: seconds, oracle calls, support vectors, growth with n, threads, and the cache.

    python benchmarks/cutting.py [--part table scaling threads ocr cache] [--data covtype treebank words] [--data-home DIR]

The experiments of Joachims, Finley and Yu (2009), section 5, on the data at hand:

- covtype: 581,012 rows, 54 features scaled to [0, 1], 7 classes, loss 0 or 1 (theirs was 0 or 100, and their C 100 times ours).
- treebank: the 3,914 sentences of the sample without traces, 45 tags; word, prefixes, suffixes and length of a position and of its
  neighbours; no weights for the first and the last tag; the loss counts wrong tags.
- words: Taskar's 6,877 words, 128 pixels and 26 letters, no weights for the first and the last; the loss counts wrong letters.
- fold: the 704 words of fold 1. conll2000: 8,936 sentences with 22 BIO tags and the usual features, for threads.

Examples are in random order, so the first few are a sample. Parts:

- *table*: their table 1. Rounds are rounds of one-slack, sweeps of n-slack, passes of bcfw, which is there for orientation.
- *scaling*: figures 1, 3, 4 and 5: five sizes, each twice the last, at one C; exponents are slopes of lines through logarithms.
  A solver that does not get to the gap within --seconds is left out there and at larger sizes.
- *threads*: some rounds of one-slack in one and in two threads by turns; a ratio is taken inside a repeat, and bits must be equal.
- *ocr*: fold 1 at C = 70.4 to a gap of 0.25 % of the optimum, beside what SVM-hmm was measured to take: 3.6 s, 31,680 calls.
- *cache*: figure 6: oracle calls and seconds for caches of 0 to 20 planes an example.

Seconds are wall-clock time with checks; "processor" is the processor's, which other programs do not lengthen, with setting up.
covtype is parsed once, and kept as arrays in --cache-dir.
"""

from __future__ import annotations

import argparse
import lzma
import os
import pathlib
import tempfile
import time

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from ocr import load

from maxmargin.features import TextFeatures
from maxmargin.formats.conll import read_conll
from maxmargin.parsing.treebank import read_trees
from maxmargin.problems import Features, chain_problem, multi_class_problem
from maxmargin.solvers import BCFW, NSlack, OneSlack, Status

#: C and the gap to train to, by data set.
SETTINGS = {
    "covtype": (10_000.0, 0.001),
    "treebank": (100.0, 0.1),
    "words": (100.0, 0.01),
    "fold": (70.4, 0.00875),
    "conll2000": (100.0, 0.1),
}
SOLVERS = {
    "one-slack": OneSlack(),
    "one-slack, cache 10": OneSlack(cache=10),
    "one-slack, as published": OneSlack(cache=0, step=1.0),
    "n-slack": NSlack(),
    "bcfw": BCFW(),
}
CACHES = (0, 1, 2, 5, 10, 20)
#: For --part ocr: the gap, as a share of the optimum.
WITHIN = 0.0025


# ---------------------------------------------------------------------------------------------------------------- data


def covtype(options):
    """The rows, scaled, in random order; parsed once."""
    kept = options.cache_dir / "maxmargin-covtype.npy"
    if not kept.exists():
        with lzma.open(options.data_home / "covtype" / "covtype.csv.xz", "rt") as stream:
            table = np.loadtxt(stream, delimiter=",", skiprows=1, dtype=np.float32)
        options.cache_dir.mkdir(parents=True, exist_ok=True)
        # Renamed when it is whole: a run that is cut short leaves nothing that looks like the data.
        half = kept.with_suffix(f".{os.getpid()}.npy")
        np.save(half, table)
        half.replace(kept)
    table = np.load(kept)[np.random.default_rng(0).permutation(581_012)].astype(np.float64)
    X = table[:, :-1]
    X -= X.min(axis=0)
    X /= np.maximum(X.max(axis=0), 1e-12)
    return multi_class_problem(np.ascontiguousarray(X), table[:, -1].astype(np.int64) - 1, 7)


def tagged(text, sentences, tags):
    """The problem of tagged sentences, in random order."""
    order = np.random.default_rng(0).permutation(len(tags))
    sentences, tags = [sentences[m] for m in order], [tags[m] for m in order]
    number = {tag: k for k, tag in enumerate(sorted({tag for one in tags for tag in one}))}
    states = [np.array([number[tag] for tag in one]) for one in tags]
    rows, lengths = Features(text.fit_transform(sentences)), [len(one) for one in tags]
    return chain_problem(rows, states, len(number), boundary=False, loss="count", lengths=lengths)


def treebank(options):
    trees = list(read_trees(options.data_home / "treebank-sample" / "treebank.zip", remove_traces=True))
    return tagged(TextFeatures.tagging(), [tree.words() for tree in trees], [tree.tags() for tree in trees])


def conll2000(options):
    return tagged(TextFeatures.chunking(), *read_conll(options.data_home / "conll2000" / "conll2000.zip" / "train.txt"))


def words(options, fold=None):
    X, y, folds = load(options.data_home)
    chosen = np.random.default_rng(0).permutation(len(y))
    chosen = chosen if fold is None else chosen[folds[chosen] == fold]
    # The last column is a constant, which SVM-hmm has not.
    return chain_problem([X[m][:, :-1] for m in chosen], [y[m] for m in chosen], 26, boundary=False, loss="count")


DATA = {
    "covtype": covtype,
    "treebank": treebank,
    "words": words,
    "fold": lambda options: words(options, 1),
    "conll2000": conll2000,
}


def problem_of(name, options):
    problem = DATA[name](options)
    n = min(options.examples or problem.n_examples, problem.n_examples)
    return problem if n == problem.n_examples else problem.take(np.arange(n))


# --------------------------------------------------------------------------------------------------------------- parts


def run(solver, problem, C, tol, limit):
    """The result, its seconds with checks, and the processor's."""
    solver.solve(
        problem.take(np.arange(min(20, problem.n_examples))), C, max_passes=2
    )  # compiled before the clock starts
    begin = time.process_time()
    result = solver.solve(problem, C, tol, max_passes=10**6, max_seconds=limit)
    processor = time.process_time() - begin
    return result, result.seconds + result.history["monitor_seconds"][-1], processor


def head(*names):
    """The beginning of a table of results."""
    columns = (
        *names,
        "seconds",
        "processor",
        "rounds",
        "oracle calls",
        "calls / n",
        "support vectors",
        "primal",
        "gap",
        "status",
    )
    print("\n| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))


def line(*names, n, outcome):
    result, seconds, processor = outcome
    support = result.options.get("support_vectors", "")
    cells = [*names, f"{seconds:.2f}", f"{processor:.2f}", result.n_passes, result.n_oracle_calls]
    cells += [
        f"{result.n_oracle_calls / n:.1f}",
        support,
        f"{result.primal:.5g}",
        f"{result.gap:.2g}",
        result.status.name,
    ]
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def table(options):
    """Table 1."""
    head("data", "n", "C", "solver")
    for name in options.data or ("covtype", "treebank", "words"):
        problem, (C, tol) = problem_of(name, options), SETTINGS[name]
        n = problem.n_examples
        for title, solver in SOLVERS.items():
            line(name, n, f"{C:g}", title, n=n, outcome=run(solver, problem, C, tol, options.seconds))


def scaling(options):
    """Figures 1, 3, 4 and 5."""
    names = ("one-slack", "one-slack, cache 10", "n-slack")
    for name in options.data or ("covtype", "words"):
        problem, (C, tol) = problem_of(name, options), SETTINGS[name]
        sizes = [problem.n_examples >> k for k in range(4, -1, -1)]
        found = {title: [] for title in names}
        head("data", "n", "solver")
        for n in sizes:
            part = problem.take(np.arange(n))
            for title in names:
                if len(found[title]) < sizes.index(n):
                    continue
                outcome = run(SOLVERS[title], part, C, tol, options.seconds)
                line(name, n, title, n=n, outcome=outcome)
                result, *seconds = outcome
                support = result.options["support_vectors"]
                if result.status is Status.CONVERGED:
                    found[title].append([*seconds, result.n_passes, result.n_oracle_calls, support])
        measures = ("seconds", "processor", "rounds", "oracle calls", "support vectors")
        print(f"\n| {name}: exponent of n | " + " | ".join(measures) + " |\n|" + "---|" * (1 + len(measures)))
        figure, axes = plt.subplots(1, 4, figsize=(15, 3.6), layout="constrained")
        for title, values in found.items():
            if len(values) < 3:
                print(f"| {title} | too few sizes within {options.seconds:g} s" + " | " * len(measures) + "|")
                continue
            values, reached = np.array(values), sizes[: len(values)]
            slopes = np.polyfit(np.log(reached), np.log(np.maximum(values, 1e-9)), 1)[0]
            print(
                f"| {title}, {len(reached)} sizes | " + " | ".join(f"{slope:.2f}" for slope in slopes) + " |",
                flush=True,
            )
            for axis, column in zip(axes, (0, 2, 3, 4), strict=True):
                axis.loglog(reached, values[:, column], "o-", label=title)
                axis.set(xlabel="n", title=measures[column])
                axis.grid(alpha=0.3, which="both")
        axes[0].legend(fontsize=8)
        save(figure, options, f"scaling-{name}")


def threads(options):
    """One and two threads by turns, the first of a pair changing."""
    print(
        "\n| data | solver | n | rounds | one thread, s | two, s | ratio (smallest - largest) | same bits |\n|"
        + "---|" * 8
    )
    for name in options.data or ("covtype", "conll2000"):
        problem, (C, _) = problem_of(name, options), SETTINGS[name]
        for title in ("one-slack", "one-slack, cache 10"):
            taken, weights = [], []
            SOLVERS[title].solve(problem, C, tol=0.0, max_passes=2, n_jobs=2)  # compiled, and threads started
            for repeat in range(options.repeats):
                pair = {}
                for jobs in (1, 2) if repeat % 2 else (2, 1):
                    result = SOLVERS[title].solve(problem, C, tol=0.0, max_passes=options.rounds, n_jobs=jobs)
                    pair[jobs] = result.seconds
                    weights.append(result.weights)
                taken.append((pair[1], pair[2]))
            one, two = np.array(taken).T
            ratios, same = one / two, all(np.array_equal(weights[0], other) for other in weights[1:])
            print(
                f"| {name} | {title} | {problem.n_examples} | {options.rounds} | {np.median(one):.3f} | {np.median(two):.3f} "
                f"| {np.median(ratios):.2f} ({ratios.min():.2f} - {ratios.max():.2f}) | {'yes' if same else 'NO'} |",
                flush=True,
            )


def ocr(options):
    """Fold 1, to a share of the optimum."""
    problem, (C, _) = problem_of("fold", options), SETTINGS["fold"]
    n, best = problem.n_examples, BCFW().solve(problem, C, tol=1e-3, max_passes=10_000).dual
    print(f"\n{n} words, C = {C:g}, optimum {best:.4f}, to a gap of {100 * WITHIN:g} %; SVM-hmm: 3.6 s, 31,680 calls")
    head("solver", "repeat")
    for repeat in range(options.repeats):
        for title, solver in SOLVERS.items():
            line(title, repeat + 1, n=n, outcome=run(solver, problem, C, WITHIN * best, options.seconds))


def cache(options):
    """Figure 6, and the seconds with it."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for name in options.data or ("fold", "treebank"):
        problem, (C, tol) = problem_of(name, options), SETTINGS[name]
        n, found = problem.n_examples, []
        head("data", "n", "cache", "recalled")
        for planes in CACHES:
            outcome = run(OneSlack(cache=planes), problem, C, tol, options.seconds)
            result, seconds, _ = outcome
            line(name, n, planes, int(result.history["n_recalled"][-1]), n=n, outcome=outcome)
            found.append((result.n_oracle_calls / n, seconds))
        for axis, values in zip(axes, np.array(found).T, strict=True):
            axis.semilogy(CACHES, values, "o-", label=f"{name}, n = {n}")
    for axis, title in zip(axes, ("oracle calls an example", "seconds"), strict=True):
        axis.set(xlabel="cached planes an example", title=title)
        axis.grid(alpha=0.3, which="both")
        axis.legend(fontsize=8)
    save(figure, options, "cache")


def save(figure, options, name):
    if options.figures is not None:
        options.figures.mkdir(parents=True, exist_ok=True)
        figure.savefig(options.figures / f"cutting-{name}.png", dpi=110, bbox_inches="tight")
        print(f"picture: {options.figures / f'cutting-{name}.png'}")
    plt.close(figure)


PARTS = {"table": table, "scaling": scaling, "threads": threads, "ocr": ocr, "cache": cache}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", nargs="+", choices=PARTS, default=["table"])
    parser.add_argument("--data", nargs="+", choices=DATA, help="in the place of a part's own; ocr has fold 1 alone")
    parser.add_argument("--data-home", type=pathlib.Path, default=os.environ.get("MAXMARGIN_DATA"))
    parser.add_argument("--cache-dir", type=pathlib.Path, default=tempfile.gettempdir(), help="for parsed data")
    parser.add_argument("--figures", type=pathlib.Path, help="directory for the pictures; without it there are none")
    parser.add_argument("--seconds", type=float, default=300.0, help="limit of a run")
    parser.add_argument("--examples", type=int, help="use a random few only, to try things out")
    parser.add_argument("--repeats", type=int, default=5, help="of threads and ocr")
    parser.add_argument("--rounds", type=int, default=15, help="of a run of threads")
    options = parser.parse_args()
    if options.data_home is None:
        parser.error(
            "give --data-home, or set MAXMARGIN_DATA; it holds covtype, treebank-sample, conll2000 and ocr-letters"
        )
    for part in options.part:
        PARTS[part](options)


if __name__ == "__main__":
    main()

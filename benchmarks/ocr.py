"""Chains of letters: seconds and oracle calls to a certified gap, the time of a pass, and the test error over a path of C.

    python benchmarks/ocr.py [--part gap error pass] [--setting small large] [--data-home DIR]

Taskar's handwritten words: 128 pixels and a constant for a letter, 26 letters, and weights for neighbours. "small" trains on the
626 words of fold 0, "large" on the other 6,251; the rest is for testing. The task loss is the fraction of wrong letters of a word.

- *gap*: BCFW as published (``BCFW.plain()``, with its averaging) and the default, to certified gaps of 0.01 and 0.001, for lam of
  0.01, 0.001 and 1/n. Oracle calls include those of the checks, a call per word, whose answers the default learns from; so
  seconds are given without and with checks.
- *error*: the test error in the large setting over a path of C, with weights for the first and the last letter and without. C is
  chosen on the words of fold 9 by a path without them; beside it stands the best on the test words, which nobody can know.
- *pass*: seconds of one plain pass over the words of the large setting.

The data is ``ocr-letters/letters.npz``: `pixels` bit by bit, `labels`, `word_lengths`, `folds`. One thread.
"""

from __future__ import annotations

import argparse
import os
import pathlib

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from maxmargin.inference import Trees
from maxmargin.inference.batches import predict
from maxmargin.problems import chain_problem
from maxmargin.solvers import BCFW, path

TOLERANCES = (0.01, 0.001)
LIMITS = {"small": 60.0, "large": 120.0}
#: Of the path, from small to large.
CS = tuple(float(f"{C:.3g}") for C in np.logspace(1, 10 / 3, 8))


def load(data_home):
    """Features and labels of each word, and its fold."""
    data = np.load(pathlib.Path(data_home) / "ocr-letters" / "letters.npz")
    X = np.unpackbits(data["pixels"], axis=1)[:, :128].astype(np.float64)
    X = np.hstack([X, np.ones((len(X), 1))])
    y, cuts, folds = data["labels"].astype(np.int64), np.cumsum(data["word_lengths"])[:-1], data["folds"]
    y -= y.min()
    if len(folds) == len(y):
        folds = folds[np.concatenate([[0], cuts])]
    return np.split(X, cuts), np.split(y, cuts), folds


def problem_of(words, chosen, **options):
    X, y, _ = words
    chosen = np.flatnonzero(chosen)
    return chain_problem([X[m] for m in chosen], [y[m] for m in chosen], 26, **options)


def in_training(words, setting):
    return (words[2] == 0) == (setting == "small")


def reached(result, tol):
    at = np.flatnonzero(result.history["gap"] <= tol)
    return at[0] if len(at) else None


# ---------------------------------------------------------------------------------------------------------------- gaps


def gap(words, options):
    """Both solvers go to the smaller gap; the larger is passed on the way."""
    columns = " | ".join(
        f"{f'{what} to {tol:g}':>19}" for tol in TOLERANCES for what in ("seconds", "with checks", "calls")
    )
    print(f"\n| words | lam     | solver  | {columns} | gap at end |")
    print(f"|------:|---------|---------|{':|'.join(['-' * 20 + '-'] * 6)}:|-----------:|")
    for setting in options.setting:
        problem = problem_of(words, in_training(words, setting))
        limit = options.seconds or LIMITS[setting]
        solvers = {"plain": BCFW.plain(), "default": BCFW()}
        for solver in solvers.values():  # compiled before the clock starts
            solver.solve(problem.take(np.arange(10)), max_passes=1)
        n = problem.n_examples
        figure, axes = plt.subplots(figsize=(7, 4.8), layout="constrained")
        for k, (name, lam) in enumerate((("0.01", 0.01), ("0.001", 0.001), (f"1/{n}", 1.0 / n))):
            for kind, solver in solvers.items():
                result = solver.solve(problem, 1.0 / lam, min(TOLERANCES), max_passes=10**6, max_seconds=limit)
                h, cells = result.history, []
                for tol in TOLERANCES:
                    at = reached(result, tol)
                    if at is None:
                        cells += [f"not within {limit:g} s", "", ""]
                    else:
                        seconds = h["seconds"][at]
                        cells += [f"{seconds:.2f}", f"{seconds + h['monitor_seconds'][at]:.2f}"]
                        cells += [f"{h['n_oracle_calls'][at]:.0f}"]
                print(
                    f"| {n:5} | {name:7} | {kind:7} | {' | '.join(f'{cell:>19}' for cell in cells)} | {result.gap:10.2g} |",
                    flush=True,
                )
                axes.loglog(
                    h["seconds"] + h["monitor_seconds"], np.maximum(h["gap"], 1e-5), ":" if kind == "plain" else "-",
                    color=f"C{k}", label=f"{kind}, lam = {name}",
                )  # fmt: skip
        axes.set(xlabel="seconds, with checks", ylabel="certified gap", title=f"{n} words")
        axes.grid(alpha=0.3, which="both")
        axes.legend(fontsize=8)
        save(figure, options, f"gap-{setting}")


# --------------------------------------------------------------------------------------------------------------- error


def error(words, options):
    """Paths with fold 9 held out, to choose C, and paths of the whole training set, for the test error."""
    folds = words[2]
    test, held_out = folds == 0, folds == 9
    print(f"\nlarge setting, {(~test).sum()} words; errors in per cent of letters; paths to a gap of {options.tol:g}\n")
    print("| boundary |       C | held out | gap there | training | test | gap    | seconds | checks | passes |")
    print("|----------|--------:|---------:|----------:|---------:|-----:|-------:|--------:|-------:|-------:|")
    best: dict[bool, tuple[float, float, float]] = {}
    lowest: dict[bool, tuple[float, float]] = {}
    figure, axes = plt.subplots(figsize=(7, 4.8), layout="constrained")
    for k, boundary in enumerate((True, False)):
        few, rest, whole, new = (
            problem_of(words, chosen, boundary=boundary) for chosen in (~test & ~held_out, held_out, ~test, test)
        )
        limits = {"tol": options.tol, "max_passes": 10**6, "max_seconds": options.seconds or LIMITS["large"]}
        lines = []
        for C, partial, result in zip(
            CS, path(few, CS, BCFW(), **limits), path(whole, CS, BCFW(), **limits), strict=True
        ):
            shares = [
                100.0 * wrong(graphs, weights)
                for graphs, weights in ((rest, partial.weights), (whole, result.weights), (new, result.weights))
            ]
            lines.append((shares[0], C, shares[2]))
            print(
                f"| {'yes' if boundary else 'no':8} | {C:7g} | {shares[0]:8.2f} | {partial.gap:9.2g} | {shares[1]:8.2f} "
                f"| {shares[2]:4.2f} | {result.gap:6.2g} | {result.seconds:7.2f} | {result.history['monitor_seconds'][-1]:6.2f} "
                f"| {result.n_passes:6} |",
                flush=True,
            )
        best[boundary] = min(lines)
        held, _, tested = zip(*lines, strict=True)
        name = "first and last letter" if boundary else "neighbours only"
        axes.semilogx(CS, tested, color=f"C{k}", marker="o", ms=4, label=f"test, {name}")
        axes.semilogx(CS, held, color=f"C{k}", marker="o", ms=4, ls=":", label=f"held out, {name}")
        lowest[boundary] = min(line[:0:-1] for line in lines)
    print()
    for boundary, (share, C) in lowest.items():
        print(f"lowest on test words, boundary={boundary}: {share:.2f} % at C = {C:g}")
    boundary = min(best, key=lambda kind: best[kind])
    print(
        f"chosen on held-out words: boundary={boundary}, C = {best[boundary][1]:g}: test error {best[boundary][2]:.2f} %"
    )
    axes.set(xlabel="C", ylabel="wrong letters (%)", title="over a path of C, large setting")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    save(figure, options, "error")


def wrong(graphs, weights):
    """Share of wrong letters."""
    return np.mean(predict(graphs, weights, Trees()).labels != graphs.labels)


# ---------------------------------------------------------------------------------------------------------------- pass


def one_pass(words, options):
    """Every pass of a short run; there is a check after each, outside the clock."""
    problem = problem_of(words, in_training(words, "large"))
    BCFW.plain().solve(problem.take(np.arange(10)), max_passes=1)
    h = BCFW.plain().solve(problem, 100.0, tol=0, max_passes=5).history
    seconds = np.diff(h["seconds"], prepend=0.0)
    letters = int(problem.example_variables[-1])
    print(
        f"\none plain pass over {problem.n_examples} words, {letters} letters: median {np.median(seconds):.4f} s ",
        end="",
    )
    print(f"(from {seconds.min():.4f} to {seconds.max():.4f} s), ", end="")
    print(f"{1e6 * np.median(seconds) / problem.n_examples:.1f} microseconds a word")


def save(figure, options, name):
    if options.figures is not None:
        options.figures.mkdir(parents=True, exist_ok=True)
        figure.savefig(options.figures / f"ocr-{name}.png", dpi=110, bbox_inches="tight")
        print(f"picture: {options.figures / f'ocr-{name}.png'}")
    plt.close(figure)


PARTS = {"gap": gap, "error": error, "pass": one_pass}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", nargs="+", choices=PARTS, default=["gap"])
    parser.add_argument("--setting", nargs="+", choices=LIMITS, default=list(LIMITS))
    parser.add_argument("--data-home", default=os.environ.get("MAXMARGIN_DATA"))
    parser.add_argument("--figures", type=pathlib.Path, help="directory for the pictures; without it there are none")
    parser.add_argument("--seconds", type=float, help="limit of a run (default: 60 for small, 120 for large)")
    parser.add_argument("--tol", type=float, default=0.002, help="gap of the path (error)")
    options = parser.parse_args()
    if options.data_home is None:
        parser.error("give --data-home, or set MAXMARGIN_DATA; it holds ocr-letters/letters.npz")
    words = load(options.data_home)
    for part in options.part:
        print(f"\n== {part} ==", flush=True)
        PARTS[part](words, options)


if __name__ == "__main__":
    main()
